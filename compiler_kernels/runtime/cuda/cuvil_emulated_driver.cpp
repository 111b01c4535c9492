/* A libcuda.so.1 that is no GPU's: the functions cuvil_gpu.c uses, with the kernels of kernels.cu compiled for this
 * processor (docs/gpu.md, "Emulation"). An engine finds it through LD_LIBRARY_PATH, so that its host code runs as shipped.
 * It says what it is in the device's name; its events measure nothing.
 *
 * With CUVIL_EMULATED_FAULTS defined, as tests do, the environment variable CUVIL_EMULATED_FAULT="cuStreamSynchronize=719@3"
 * makes that function report 719 from its third call on: a context that has failed stays so. */
#include "cuvil_emulate.h"

#undef cuvil_shared

#include <stdlib.h>
#include <unistd.h>

extern "C" {
#include "cuvil_gpu_driver.h"
extern const cuvil_emulated_kernel cuvil_emulated_kernels[];
const char *cuvil_emulate(void (*run)(void *const *), void *const *arguments, const unsigned grid[3], unsigned threads,
                          unsigned shared_bytes, unsigned cluster, int independent, uint64_t seed);
}

namespace {

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NOT_FOUND = 500, LAUNCH_FAILED = 719 };
enum { MOST_ARGUMENTS = 512, MOST_CONTEXTS = 8, MOST_BLOCKS = 64 };

struct Step {
    void *to;
    const void *from;
    size_t bytes;
    const cuvil_emulated_kernel *kernel; /* NULL: a copy */
    unsigned grid[3], threads, shared_bytes, cluster;
    void *arguments[MOST_ARGUMENTS];
    Step *next;
};

/* The contexts of the calling thread, as a stack: a call without one fails, as it would on a GPU. */
thread_local cu_context contexts[MOST_CONTEXTS];
thread_local int current;

/* What was allocated: a device refuses a copy that reaches beyond it. */
struct {
    cu_pointer at;
    size_t bytes;
} blocks[MOST_BLOCKS];
int block_count;

bool allocated(cu_pointer at, size_t bytes)
{
    for (int k = 0; k < block_count; k++)
        if (at >= blocks[k].at && bytes <= blocks[k].bytes && at - blocks[k].at <= blocks[k].bytes - bytes) return true;
    return false;
}

Step *captured, *last;
bool capturing;

/* Fills and copies on the default stream, made when somebody waits for it, or in the middle of a graph that does not. */
struct Late {
    void *to;
    unsigned char *bytes;
    size_t count;
    Late *next;
};
Late *late, **late_end = &late;

unsigned char *later(cu_pointer to, size_t count)
{
    Late *made = (Late *)calloc(1, sizeof(Late));
    unsigned char *bytes = (unsigned char *)malloc(count ? count : 1);
    if (!made || !bytes) abort();
    *made = {(void *)(uintptr_t)to, bytes, count, nullptr};
    *late_end = made;
    late_end = &made->next;
    return bytes;
}

void make_late()
{
    while (Late *const one = late) {
        memcpy(one->to, one->bytes, one->count);
        late = one->next;
        free(one->bytes);
        free(one);
    }
    late_end = &late;
}
uint64_t launches;

Step *add()
{
    Step *made = (Step *)calloc(1, sizeof(Step));
    if (!made) abort();
    if (last) last->next = made;
    else captured = made;
    last = made;
    return made;
}

int execute(const Step *s)
{
    if (!s->kernel) {
        memcpy(s->to, s->from, s->bytes);
        return SUCCESS;
    }
    const char *problem = cuvil_emulate(s->kernel->run, s->arguments, s->grid, s->threads, s->shared_bytes, s->cluster,
                                        s->kernel->independent, ++launches);
    if (!problem) return SUCCESS;
    const char *const parts[] = {"emulated kernel ", s->kernel->name, ": ", problem, "\n"};
    for (const char *part : parts)
        if (write(2, part, strlen(part)) < 0) break;
    return LAUNCH_FAILED;
}

int copy(void *to, const void *from, size_t bytes)
{
    if (!capturing) {
        memcpy(to, from, bytes);
        return SUCCESS;
    }
    Step *s = add();
    s->to = to;
    s->from = from;
    s->bytes = bytes;
    return SUCCESS;
}

#ifdef CUVIL_EMULATED_FAULTS
/* What the environment says of the function called so, or of ordinary results (the version, the number of devices). */
int calls;
int wanted(const char *name, int otherwise)
{
    const char *text = getenv("CUVIL_EMULATED_FAULT");
    const size_t size = strlen(name);
    if (!text || strncmp(text, name, size) || text[size] != '=') return otherwise;
    char *end;
    const int result = (int)strtol(text + size + 1, &end, 10);
    return ++calls >= (*end == '@' ? atoi(end + 1) : 1) ? result : otherwise;
}
/* Whether the next call of the function called so is to fail. */
bool about_to_fail(const char *name)
{
    const int before = calls;
    const bool found = wanted(name, SUCCESS) != SUCCESS;
    calls = before;
    return found;
}
#else
int wanted(const char *, int otherwise) { return otherwise; }
bool about_to_fail(const char *) { return false; }
#endif

} // namespace

#define MAY_FAIL \
    if (const int fault = wanted(__func__, SUCCESS)) return fault
#define NEEDS_CONTEXT \
    if (!current) return INVALID_CONTEXT

extern "C" {

cu_result cuInit(unsigned)
{
    MAY_FAIL;
    return SUCCESS;
}
cu_result cuDriverGetVersion(int *version) { return *version = wanted("version", 13000), SUCCESS; }
cu_result cuGetErrorName(cu_result result, const char **name)
{
    MAY_FAIL;
    *name = result == LAUNCH_FAILED ? "a failure of the emulation" : "an error of the emulation";
    return SUCCESS;
}
cu_result cuDeviceGetCount(int *count) { return *count = wanted("devices", 1), SUCCESS; }
cu_result cuDeviceGet(cu_device *device, int) { return *device = 0, SUCCESS; }
cu_result cuDeviceGetName(char *name, int length, cu_device)
{
    strncpy(name, "no GPU: kernels emulated on the CPU", (size_t)length);
    return SUCCESS;
}
cu_result cuDeviceGetAttribute(int *value, int attribute, cu_device)
{
    *value = attribute == CU_COMPUTE_CAPABILITY_MAJOR ? CUVIL_EMULATED_CHIP / 10 : CUVIL_EMULATED_CHIP % 10;
    return SUCCESS;
}
cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device)
{
    MAY_FAIL;
    return *context = (cu_context)(void *)&launches, SUCCESS;
}
cu_result cuCtxPushCurrent_v2(cu_context context)
{
    MAY_FAIL;
    if (current == MOST_CONTEXTS) return INVALID_VALUE;
    contexts[current++] = context;
    return SUCCESS;
}
cu_result cuCtxPopCurrent_v2(cu_context *context)
{
    if (!current) return INVALID_CONTEXT;
    return *context = contexts[--current], SUCCESS;
}
cu_result cuModuleLoadDataEx(cu_module *module, const void *, unsigned, int *, void **)
{
    MAY_FAIL;
    NEEDS_CONTEXT;
    return *module = nullptr, SUCCESS;
}
cu_result cuModuleGetFunction(cu_function *function, cu_module, const char *name)
{
    MAY_FAIL;
    NEEDS_CONTEXT;
    for (const cuvil_emulated_kernel *k = cuvil_emulated_kernels; k->name; k++)
        if (!strcmp(k->name, name)) return *function = (cu_function)(void *)k, SUCCESS;
    return NOT_FOUND;
}
cu_result cuFuncSetAttribute(cu_function, int, int)
{
    MAY_FAIL;
    return SUCCESS;
}
cu_result cuMemAlloc_v2(cu_pointer *pointer, size_t bytes)
{
    MAY_FAIL;
    NEEDS_CONTEXT;
    void *memory = nullptr;
    if (block_count == MOST_BLOCKS || posix_memalign(&memory, 4096, bytes)) return OUT_OF_MEMORY;
    memset(memory, 0xff, bytes);
    *pointer = (cu_pointer)(uintptr_t)memory;
    blocks[block_count++] = {*pointer, bytes};
    return SUCCESS;
}
cu_result cuMemsetD8_v2(cu_pointer pointer, unsigned char value, size_t bytes)
{
    MAY_FAIL;
    NEEDS_CONTEXT;
    if (!allocated(pointer, bytes)) return INVALID_VALUE;
    memset(later(pointer, bytes), value, bytes);
    return SUCCESS;
}
cu_result cuMemcpyHtoD_v2(cu_pointer to, const void *from, size_t bytes)
{
    MAY_FAIL;
    NEEDS_CONTEXT;
    if (!allocated(to, bytes)) return INVALID_VALUE;
    memcpy(later(to, bytes), from, bytes);
    return SUCCESS;
}
cu_result cuMemcpyHtoDAsync_v2(cu_pointer to, const void *from, size_t bytes, cu_stream)
{
    MAY_FAIL;
    NEEDS_CONTEXT;
    if (!allocated(to, bytes)) return INVALID_VALUE;
    return copy((void *)(uintptr_t)to, from, bytes);
}
cu_result cuMemcpyDtoHAsync_v2(void *to, cu_pointer from, size_t bytes, cu_stream)
{
    MAY_FAIL;
    NEEDS_CONTEXT;
    if (!allocated(from, bytes)) return INVALID_VALUE;
    return copy(to, (const void *)(uintptr_t)from, bytes);
}
cu_result cuMemHostRegister_v2(void *, size_t, unsigned)
{
    MAY_FAIL;
    return SUCCESS;
}
cu_result cuMemHostGetDevicePointer_v2(cu_pointer *pointer, void *memory, unsigned)
{
    MAY_FAIL;
    return *pointer = (cu_pointer)(uintptr_t)memory, SUCCESS;
}
/* One that does not wait for the default stream. */
cu_result cuStreamCreate(cu_stream *stream, unsigned) { return *stream = (cu_stream)(void *)&launches, SUCCESS; }
cu_result cuStreamSynchronize(cu_stream stream)
{
    MAY_FAIL;
    NEEDS_CONTEXT;
    if (!stream) make_late();
    return SUCCESS;
}
/* Not written where the stream failed, as who waits for it will hear; with the fault "word" the write is never seen. */
cu_result cuStreamWriteValue32_v2(cu_stream, cu_pointer to, unsigned value, unsigned)
{
    MAY_FAIL;
    NEEDS_CONTEXT;
    if (!about_to_fail("cuStreamSynchronize") && !wanted("word", 0)) __atomic_store_n((unsigned *)(uintptr_t)to, value, __ATOMIC_RELEASE);
    return SUCCESS;
}
cu_result cuStreamBeginCapture_v2(cu_stream, int)
{
    MAY_FAIL;
    NEEDS_CONTEXT;
    captured = last = nullptr;
    capturing = true;
    return SUCCESS;
}
cu_result cuStreamEndCapture(cu_stream, cu_graph *graph)
{
    MAY_FAIL;
    NEEDS_CONTEXT;
    capturing = false;
    *graph = (cu_graph)(void *)captured;
    return SUCCESS;
}
cu_result cuGraphInstantiateWithFlags(cu_graph_exec *exec, cu_graph graph, unsigned long long)
{
    MAY_FAIL;
    NEEDS_CONTEXT;
    *exec = (cu_graph_exec)(void *)graph;
    return SUCCESS;
}
cu_result cuGraphLaunch(cu_graph_exec exec, cu_stream)
{
    MAY_FAIL;
    NEEDS_CONTEXT;
    int done = 0;
    for (const Step *s = (const Step *)(void *)exec; s; s = s->next) {
        if (const int result = execute(s)) return result;
        if (++done == 2) make_late(); /* in the middle of what did not wait: behind the first copy and kernel */
    }
    return SUCCESS;
}
cu_result cuLaunchKernelEx(const cu_launch_config *config, cu_function function, void **arguments, void **)
{
    MAY_FAIL;
    NEEDS_CONTEXT;
    const cuvil_emulated_kernel *kernel = (const cuvil_emulated_kernel *)(void *)function;
    if (kernel->parameters > MOST_ARGUMENTS) return INVALID_VALUE;
    static Step alone;
    Step *s = capturing ? add() : &alone;
    s->kernel = kernel;
    s->grid[0] = config->grid_x, s->grid[1] = config->grid_y, s->grid[2] = config->grid_z;
    s->threads = config->block_x;
    s->shared_bytes = config->shared_bytes;
    s->cluster = 1;
    for (unsigned k = 0; k < config->attribute_count; k++)
        if (config->attributes[k].id == CU_LAUNCH_CLUSTER_DIMENSION) s->cluster = config->attributes[k].value.cluster.x;
    for (int k = 0; k < kernel->parameters; k++) s->arguments[k] = *(void **)arguments[k];
    return capturing ? SUCCESS : execute(s);
}
cu_result cuEventCreate(cu_event *event, unsigned) { return *event = nullptr, SUCCESS; }
cu_result cuEventRecord(cu_event, cu_stream)
{
    MAY_FAIL;
    NEEDS_CONTEXT;
    return SUCCESS;
}
cu_result cuEventElapsedTime(float *milliseconds, cu_event, cu_event)
{
    MAY_FAIL;
    return *milliseconds = 0.0f, SUCCESS;
}
}

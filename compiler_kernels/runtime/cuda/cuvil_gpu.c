/* The host side of a GPU engine: the CUDA driver API, found at run time in libcuda.so.1. No CUDA toolkit is needed.
 *
 * CUDA Driver API reference manual, sections "Module Management", "Execution Control", "Graph Management". Types of cuda.h
 * are declared here, since the compiler that builds engines has no CUDA headers; tests/cuda compares them with cuda.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "cuvil_gpu.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuvil_gpu_driver.h"

enum { MOST_LAUNCHES = 8192, MOST_ARGUMENTS = 512, OLDEST_DRIVER = 13000 }; /* the version of nvcc (toolchain/nvcc.py) */
/* Up to here threads copy an input or output (cuvil_copy.h, whose blocks these are); what is larger is the copy engine's. */
enum { MOST_COPIED = 1024 * 1024, COPY_THREADS = 256, COPY_BLOCK = 16 * 1024, PAGE = 4096, MOST_TRANSFERS = 1024 };
enum { SPIN_TURNS = 256, SPIN_NANOSECONDS = 2000000 };

static struct {
#define DECLARE(name, arguments) cu_result(*name) arguments;
    CUVIL_DRIVER_FUNCTIONS(DECLARE)
#undef DECLARE
} cu;

static char problem[512];
static char device_name[256];
static int tried, opened;
static pid_t opener; /* the process whose context it is */
static cu_device device;
static cu_context context;
static cu_stream stream;
static cu_event before, after;
static cu_pointer block;
static cu_function functions[MOST_LAUNCHES];
static cu_function copier;
static cu_graph_exec whole, kernels;                                       /* with the copies of inputs and outputs, and without */
static cu_pointer mapped_inputs[MOST_TRANSFERS], mapped_outputs[MOST_TRANSFERS]; /* 0: not page-locked */

/* How many inferences have ended: written by the GPU, read here, and never written here. The page is its own, so that no write
 * of this process after a fork moves it away from the one the GPU knows. */
static _Alignas(PAGE) _Atomic unsigned ended[PAGE / sizeof(unsigned)];
static cu_pointer ended_mapped; /* 0: the driver waits instead */
static unsigned begun;

/* 0 when the call succeeded; else the sentence is in problem. */
static int failed(cu_result result, const char *call) {
    const char *name = NULL;
    if (!result) return 0;
    if (!cu.GetErrorName || cu.GetErrorName(result, &name) || !name) name = "an unknown error";
    snprintf(problem, sizeof problem,
             "the GPU failed: %s reported %s (%d); look at nvidia-smi, free the GPU's memory, or run a CPU engine", call, name, result);
    return 1;
}
#define TRY(name, ...) \
    do { \
        if (failed(cu.name(__VA_ARGS__), "cu" #name)) return problem; \
    } while (0)

static const char *load_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return "this engine computes on an NVIDIA GPU, and this machine has no CUDA driver (libcuda.so.1): run it where "
               "nvidia-smi lists a GPU, or build the model for a CPU target";
#define FIND(name, arguments) \
    *(void **)&cu.name = dlsym(library, CUVIL_DRIVER_NAME(name)); \
    if (!cu.name) \
        return "the CUDA driver of this machine is too old for this engine (it lacks " CUVIL_DRIVER_NAME(name) "): install one of CUDA 13.0 or later";
    CUVIL_DRIVER_FUNCTIONS(FIND)
#undef FIND
    return NULL;
}

/* What was put on the default stream is done. Our own stream does not wait for that one, and a fill, or the end of a copy from
 * ordinary memory, may still be under way when its call returns (driver API manual, "API synchronization behavior"). */
static const char *settle(void) {
    TRY(StreamSynchronize, NULL);
    return NULL;
}

static const char *find_device(const cuvil_gpu_program *program, const cuvil_image **image) {
    int count = 0, version = 0, major = 0, minor = 0;
    const cu_result result = cu.Init(0);
    if (result && result != CU_NO_DEVICE && failed(result, "cuInit")) return problem;
    if (result || cu.DeviceGetCount(&count) || !count)
        return "this engine computes on an NVIDIA GPU, and the CUDA driver finds none on this machine: run it where nvidia-smi "
               "lists a GPU, or build the model for a CPU target";
    TRY(DriverGetVersion, &version);
    if (version < OLDEST_DRIVER) {
        snprintf(problem, sizeof problem,
                 "the CUDA driver of this machine is of CUDA %d.%d, too old for this engine: install one of CUDA %d.%d or later", version / 1000,
                 version % 1000 / 10, OLDEST_DRIVER / 1000, OLDEST_DRIVER % 1000 / 10);
        return problem;
    }
    TRY(DeviceGet, &device, 0);
    char name[128] = "";
    TRY(DeviceGetName, name, (int)sizeof name - 1, device);
    TRY(DeviceGetAttribute, &major, CU_COMPUTE_CAPABILITY_MAJOR, device);
    TRY(DeviceGetAttribute, &minor, CU_COMPUTE_CAPABILITY_MINOR, device);
    *image = NULL;
    for (int i = program->image_count - 1; i >= 0; i--) {
        const cuvil_image *one = program->images + i;
        if (major * 10 + minor >= one->major * 10 + one->minor && (!one->most_major || major <= one->most_major)) *image = one;
    }
    if (!*image) {
        snprintf(problem, sizeof problem,
                 "this engine is compiled for %s, and the GPU of this machine (%s) has compute capability %d.%d: build the model "
                 "for a target of that chip", program->chip, name, major, minor);
        return problem;
    }
    snprintf(device_name, sizeof device_name, "%s, driver API %d.%d, compute capability %d.%d, %s_%d%d %s", name, version / 1000,
             version % 1000 / 10, major, minor, (*image)->text ? "compute" : "sm", (*image)->major, (*image)->minor,
             (*image)->text ? "code compiled by the driver" : "code");
    return NULL;
}

static const char *load_kernels(const cuvil_gpu_program *program, const cuvil_image *image) {
    cu_module module;
    if (program->launch_count > MOST_LAUNCHES) return "this engine has more launches than its runtime handles: a defect of the compiler";
    const cu_result loaded = cu.ModuleLoadDataEx(&module, image->image, 0, NULL, NULL);
    if (loaded == CU_INVALID_IMAGE || loaded == CU_NO_BINARY_FOR_GPU || loaded == CU_INVALID_PTX || loaded == CU_UNSUPPORTED_PTX_VERSION)
        return "the CUDA driver of this machine does not read this engine's code, or compile it (it may be too old): install one of "
               "CUDA 13.0 or later";
    if (failed(loaded, "cuModuleLoadDataEx")) return problem;
    for (int i = 0; i < program->launch_count; i++) {
        const cuvil_launch *one = program->launches + i;
        TRY(ModuleGetFunction, &functions[i], module, one->kernel);
        if (one->shared_bytes > 48 * 1024 &&
            cu.FuncSetAttribute(functions[i], CU_MAX_DYNAMIC_SHARED_BYTES, (int)one->shared_bytes)) {
            snprintf(problem, sizeof problem,
                     "this engine is compiled for %s, and the GPU of this machine (%s) gives a block less than the %u bytes of shared "
                     "memory that kernel %s needs: run it on that chip, or build the model for a CPU target",
                     program->chip, device_name, one->shared_bytes, one->kernel);
            return problem;
        }
        if (one->cluster > 8) TRY(FuncSetAttribute, functions[i], CU_NON_PORTABLE_CLUSTER_ALLOWED, 1);
    }
    TRY(ModuleGetFunction, &copier, module, "cuvil_copy");
    return NULL;
}

/* `follows`: whether a kernel comes before it in the graph, which it then need not wait for to start. */
static const char *launch(const cuvil_gpu_program *program, int number, int follows) {
    const cuvil_launch *one = program->launches + number;
    cu_pointer values[MOST_ARGUMENTS];
    void *arguments[MOST_ARGUMENTS];
    if (one->count > MOST_ARGUMENTS) return "a kernel has more arguments than this runtime handles: a defect of the compiler";
    for (unsigned k = 0; k < one->count; k++) {
        values[k] = block + program->offsets[one->first + k];
        arguments[k] = &values[k];
    }
    cu_launch_attribute attributes[2];
    unsigned count = 0;
    memset(attributes, 0, sizeof attributes);
    if (one->cluster > 1) {
        attributes[count].id = CU_LAUNCH_CLUSTER_DIMENSION;
        attributes[count].value.cluster.x = one->cluster;
        attributes[count].value.cluster.y = attributes[count].value.cluster.z = 1;
        count++;
    }
    if (one->dependent && follows) {
        attributes[count].id = CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[count].value.programmatic = 1;
        count++;
    }
    const cu_launch_config config = {one->grid[0],      one->grid[1], one->grid[2], one->block, 1, 1,
                                     one->shared_bytes, stream,       attributes,   count};
    TRY(LaunchKernelEx, &config, functions[number], arguments, NULL);
    return NULL;
}

/* Page-locked memory is copied faster, and the GPU can write there itself. Where the system allows no locked pages, or the
 * driver maps none, ordinary copies do: 0. With unified addresses, as every 64-bit process has, what is locked is mapped. */
static cu_pointer lock_pages(void *memory, unsigned long bytes) {
    cu_pointer found = 0;
    if (cu.MemHostRegister(memory, (bytes + PAGE - 1) / PAGE * PAGE, 0) || cu.MemHostGetDevicePointer(&found, memory, 0)) return 0;
    return found;
}

static int copied_by_threads(const cuvil_transfer *one, cu_pointer mapped) {
    return mapped && one->bytes <= MOST_COPIED && (mapped | (block + one->offset)) % 16 == 0;
}

static const char *launch_copy(cu_pointer from, cu_pointer to, unsigned long bytes) {
    void *arguments[] = {&from, &to, &bytes};
    const unsigned blocks = (unsigned)((bytes + COPY_BLOCK - 1) / COPY_BLOCK);
    const cu_launch_config config = {blocks, 1, 1, COPY_THREADS, 1, 1, 0, stream, NULL, 0};
    TRY(LaunchKernelEx, &config, copier, arguments, NULL);
    return NULL;
}

static const char *copy_in(const cuvil_gpu_program *program) {
    for (int i = 0; i < program->input_count; i++) {
        const cuvil_transfer *one = program->inputs + i;
        if (copied_by_threads(one, mapped_inputs[i])) {
            const char *wrong = launch_copy(mapped_inputs[i], block + one->offset, one->bytes);
            if (wrong) return wrong;
        } else {
            TRY(MemcpyHtoDAsync, block + one->offset, one->host, one->bytes, stream);
        }
    }
    return NULL;
}

static const char *copy_out(const cuvil_gpu_program *program) {
    for (int i = 0; i < program->output_count; i++) {
        const cuvil_transfer *one = program->outputs + i;
        if (copied_by_threads(one, mapped_outputs[i])) {
            const char *wrong = launch_copy(block + one->offset, mapped_outputs[i], one->bytes);
            if (wrong) return wrong;
        } else {
            TRY(MemcpyDtoHAsync, one->host, block + one->offset, one->bytes, stream);
        }
    }
    return NULL;
}

static const char *capture(const cuvil_gpu_program *program, int copies, cu_graph_exec *made) {
    cu_graph graph;
    const char *wrong = NULL;
    TRY(StreamBeginCapture, stream, CU_CAPTURE_THREAD_LOCAL);
    if (copies) wrong = copy_in(program);
    const int last = program->input_count - 1;
    const int follows = copies && last >= 0 && copied_by_threads(program->inputs + last, mapped_inputs[last]);
    for (int i = 0; i < program->launch_count && !wrong; i++) wrong = launch(program, i, follows || i > 0);
    if (copies && !wrong) wrong = copy_out(program);
    if (wrong) return wrong;
    TRY(StreamEndCapture, stream, &graph);
    TRY(GraphInstantiateWithFlags, made, graph, 0);
    return NULL;
}

static const char *prepare(const cuvil_gpu_program *program, const cuvil_image *image) {
    TRY(StreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    TRY(EventCreate, &before, 0);
    TRY(EventCreate, &after, 0);
    const char *wrong = load_kernels(program, image);
    if (wrong) return wrong;
    const cu_result got = cu.MemAlloc(&block, program->bytes);
    if (got == CU_OUT_OF_MEMORY) {
        snprintf(problem, sizeof problem,
                 "this engine needs %lu bytes of the GPU's memory, and so much is not free (%s): end what nvidia-smi lists there, or run a "
                 "CPU engine", program->bytes, device_name);
        return problem;
    }
    if (failed(got, "cuMemAlloc")) return problem;
    TRY(MemsetD8, block, 0, program->bytes);
    TRY(MemcpyHtoD, block, program->weights, program->weights_bytes);
    wrong = settle();
    if (wrong) return wrong;
    int every_output = 1;
    for (int i = 0; i < program->input_count; i++)
        mapped_inputs[i] = lock_pages(program->inputs[i].host, program->inputs[i].bytes);
    for (int i = 0; i < program->output_count; i++) {
        mapped_outputs[i] = lock_pages(program->outputs[i].host, program->outputs[i].bytes);
        every_output = every_output && mapped_outputs[i];
    }
    /* A copy into memory that is not locked may end on this side: only the driver knows when. */
    ended_mapped = every_output ? lock_pages((void *)ended, sizeof ended) : 0;
    if (ended_mapped && cu.StreamWriteValue32(stream, ended_mapped, begun, 0)) ended_mapped = 0;
    wrong = capture(program, 1, &whole);
    return wrong ? wrong : capture(program, 0, &kernels);
}

static void leave(void) {
    cu_context popped;
    (void)cu.CtxPopCurrent(&popped);
}

static const char *open_device(const cuvil_gpu_program *program) {
    const cuvil_image *image = NULL;
    const char *wrong = load_driver();
    if (!wrong) wrong = find_device(program, &image);
    if (wrong) return wrong;
    TRY(DevicePrimaryCtxRetain, &context, device);
    TRY(CtxPushCurrent, context);
    wrong = prepare(program, image);
    leave();
    return wrong;
}

const char *cuvil_gpu_open(const cuvil_gpu_program *program) {
    static const char *answer;
    if (!tried) {
        opener = getpid();
        answer = open_device(program);
        opened = !answer;
        tried = 1;
    }
    /* The driver's state does not survive a fork (CUDA C++ programming guide, "Initialization"). */
    if (opened && opener != getpid())
        return "this process was forked after the engine opened the GPU, which only the process before can use: load the engine "
               "after the fork, or start a new process (in Python's multiprocessing: the start method spawn)";
    return answer;
}

/* Makes our context the calling thread's; leave() gives the thread back the one it had. */
static const char *enter(const cuvil_gpu_program *program) {
    const char *wrong = cuvil_gpu_open(program);
    if (wrong) return wrong;
    TRY(CtxPushCurrent, context);
    return NULL;
}

static void relax(void) {
#if defined(__x86_64__)
    __asm__ volatile("pause" ::: "memory");
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

static long long nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (long long)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* 1 as soon as the GPU has written that inference `number` has ended, 0 when it did not for a while. */
static int seen(unsigned number) {
    const long long end = nanoseconds() + SPIN_NANOSECONDS;
    do {
        for (int i = 0; i < SPIN_TURNS; i++) {
            if (atomic_load_explicit(ended, memory_order_acquire) == number) return 1;
            relax();
        }
    } while (nanoseconds() < end);
    return 0;
}

/* The word is written after everything before it in the stream, behind a fence for the whole system (driver API manual,
 * cuStreamWriteValue32), so who reads it finds the outputs there. A GPU that failed writes none: the driver, asked after
 * the spin, reports what happened, and also does the waiting for long inferences. */
static const char *run(void) {
    TRY(GraphLaunch, whole, stream);
    if (ended_mapped) {
        TRY(StreamWriteValue32, stream, ended_mapped, ++begun, 0);
        if (seen(begun)) return NULL;
    }
    TRY(StreamSynchronize, stream);
    return NULL;
}

void cuvil_gpu_infer(const cuvil_gpu_program *program) {
    const char *wrong = enter(program);
    if (!wrong) {
        wrong = run();
        leave();
    }
    *program->refusal = wrong;
}

void cuvil_gpu_erase(const cuvil_gpu_program *program) {
    if (!opened || enter(program)) return;
    (void)cu.MemsetD8(block + program->held_offset, 0, program->bytes - program->held_offset);
    (void)settle();
    leave();
}

static const char *measure(const cuvil_gpu_program *program, float *milliseconds) {
    /* An inference may overwrite its inputs when it has read them. */
    const char *wrong = copy_in(program);
    if (wrong) return wrong;
    TRY(EventRecord, before, stream);
    TRY(GraphLaunch, kernels, stream);
    TRY(EventRecord, after, stream);
    TRY(StreamSynchronize, stream);
    TRY(EventElapsedTime, milliseconds, before, after);
    return NULL;
}

double cuvil_gpu_time(const cuvil_gpu_program *program) {
    float milliseconds = 0.0f;
    const char *wrong = enter(program);
    if (!wrong) {
        wrong = measure(program, &milliseconds);
        leave();
    }
    *program->refusal = wrong;
    return wrong ? -1.0 : (double)milliseconds * 1000.0;
}

const char *cuvil_gpu_name(void) {
    return device_name;
}

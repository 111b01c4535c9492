/* The host side of evidence/gpu_program.py: runs engines one after another on the emulator, or with nvcc on a device.
 *
 * argv[1] is the first engine to run. Ends with 2 where the input ends early, 3 where output cannot be written, 4 where
 * the device fails, 5 where emulated threads wait without end or touch memory before they wait for the launch before, 6 where a
 * ticket is not given back, 7 where two runs of an engine give different bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef CUVIL_EMULATE
#include <sys/mman.h>
extern "C" const char *cuvil_emulate(void (*run)(void *const *), void *const *arguments, const unsigned grid[3], unsigned threads,
                                     unsigned shared_bytes, unsigned cluster, int independent, uint64_t seed);
extern "C" void cuvil_emulated_guard(void *first, size_t bytes);
#define KERNEL(name) [](void *const *a) { cuvil_unpack(name, a); }
typedef void (*Kernel)(void *const *);
#else
#define KERNEL(name) (const void *)name
typedef const void *Kernel;
#endif

struct Argument { int space; size_t offset; };
struct Launch {
    Kernel kernel;
    unsigned grid[3];
    int threads, shared, cluster, independent, dependent, first, count;
};
/* output, extents: of all outputs, by number; extents is -1 where the type says the sizes. */
struct Result { const char *name; int dtype, bytes, rank, shape, output, extents; };
/* Spaces: weights, arena, workspace, tickets, refusals, inputs, outputs. Places of inputs and outputs may be in the arena. */
struct Engine {
    const unsigned char *weights;
    const size_t *sizes;
    const Argument *arguments;
    const Launch *launches;
    const long long *shapes;
    const Result *results;
    const char *const *sentences;
    const int *firsts; /* of the sentences of every launch that may refuse */
    const Argument *places;
    int spaces, launch_count, result_count, input_count, refusing;
};
enum { WEIGHTS, ARENA, WORKSPACE, TICKETS, REFUSALS, INPUTS, MOST = 1024 };

#ifdef CUVIL_EMULATE
/* Memory that ends (up to 64 bytes) at a page nobody may touch; another lies before it. */
static unsigned char *take_memory(size_t bytes)
{
    const size_t page = 4096, whole = (bytes + page) / page * page;
    unsigned char *start = (unsigned char *)mmap(0, whole + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) exit(4);
    mprotect(start, page, PROT_NONE);
    mprotect(start + page + whole, page, PROT_NONE);
    return start + page + (whole - (bytes + 63) / 64 * 64);
}
static void give_memory(unsigned char *p, size_t bytes)
{
    const size_t page = 4096, whole = (bytes + page) / page * page;
    munmap(p + (bytes + 63) / 64 * 64 - whole - page, whole + 2 * page);
}
static void put_in(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static void get_out(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static void fill(void *to, int value, size_t bytes) { memset(to, value, bytes); }
static void settle() {}
static void launch(const Launch *l, void **pointers, int, int seed)
{
    const char *problem = cuvil_emulate(l->kernel, pointers, l->grid, l->threads, l->shared, l->cluster, l->independent, (uint64_t)seed);
    if (problem) {
        fprintf(stderr, "%s\n", problem);
        exit(5);
    }
}
/* A launch that may start early must leave alone what others write until it waits. */
static void guard(const Engine *e, unsigned char *const *spaces, int early)
{
    const size_t page = 4096;
    cuvil_emulated_guard(0, 0);
    for (int n = 0; early && n < e->spaces; n++) {
        const size_t whole = (e->sizes[n] + page) / page * page;
        if (n != WEIGHTS) cuvil_emulated_guard(spaces[n] + (e->sizes[n] + 63) / 64 * 64 - whole, whole);
    }
}
#else
#define CHECK(call) \
    do { \
        const cudaError_t e_ = (call); \
        if (e_ != cudaSuccess) { \
            fprintf(stderr, "engine %d: %s: %s\n", running, #call, cudaGetErrorString(e_)); \
            exit(4); \
        } \
    } while (0)
static int running;
static unsigned char *take_memory(size_t bytes)
{
    void *p;
    CHECK(cudaMalloc(&p, bytes ? bytes : 1));
    return (unsigned char *)p;
}
static void give_memory(unsigned char *p, size_t) { CHECK(cudaFree(p)); }
static void put_in(void *to, const void *from, size_t bytes) { CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice)); }
static void get_out(void *to, const void *from, size_t bytes) { CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost)); }
static void fill(void *to, int value, size_t bytes) { CHECK(cudaMemset(to, value, bytes)); }
static void settle() { CHECK(cudaDeviceSynchronize()); }
static void launch(const Launch *l, void **pointers, int number, int)
{
    void *arguments[MOST];
    for (int k = 0; k < l->count; k++) arguments[k] = &pointers[k];
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(l->grid[0], l->grid[1], l->grid[2]);
    config.blockDim = dim3(l->threads);
    config.dynamicSmemBytes = l->shared;
    config.attrs = attributes;
    if (l->dependent && number > 0) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (l->cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs].val.clusterDim.x = l->cluster;
        attributes[config.numAttrs].val.clusterDim.y = attributes[config.numAttrs].val.clusterDim.z = 1;
        config.numAttrs++;
    }
    if (l->shared > 48 * 1024) CHECK(cudaFuncSetAttribute(l->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, l->shared));
    CHECK(cudaLaunchKernelExC(&config, l->kernel, arguments));
}
static void guard(const Engine *, unsigned char *const *, int) {}
#endif

/* engines */

static void put(long long value) { fwrite(&value, 8, 1, stdout); }

/* Number k of the inputs, then of the outputs. */
static unsigned char *place(const Engine *e, unsigned char *const *spaces, int k)
{
    return spaces[e->places[k].space] + e->places[k].offset;
}

static int take(const Engine *e, unsigned char **inputs)
{
    int good = 1;
    for (int n = 0; n < e->input_count; n++) {
        long long size = 0;
        if (fread(&size, 8, 1, stdin) != 1) exit(2);
        inputs[n] = (unsigned char *)malloc(size + 1);
        if (!inputs[n] || fread(inputs[n], 1, size, stdin) != (size_t)size) exit(2);
        good &= (size_t)size == e->sizes[INPUTS + n];
    }
    return good;
}

/* NULL, or the sentence with which the engine refuses. */
static const char *infer(const Engine *e, unsigned char *const *spaces, unsigned char *const *inputs, int run)
{
    for (int n = 0; n < e->spaces; n++)
        if (n != WEIGHTS) fill(spaces[n], n == TICKETS || n == REFUSALS ? 0 : 0xff, e->sizes[n]);
    for (int n = 0; n < e->input_count; n++) put_in(place(e, spaces, n), inputs[n], e->sizes[INPUTS + n]);
    for (int n = 0; n < e->launch_count; n++) {
        const Launch *l = e->launches + n;
        void *pointers[MOST];
        for (int k = 0; k < l->count; k++) pointers[k] = spaces[e->arguments[l->first + k].space] + e->arguments[l->first + k].offset;
        guard(e, spaces, l->dependent);
        launch(l, pointers, n, run);
    }
    guard(e, spaces, 0);
    settle();
    unsigned char *tickets = (unsigned char *)calloc(e->sizes[TICKETS] + 1, 1);
    get_out(tickets, spaces[TICKETS], e->sizes[TICKETS]);
    for (size_t k = 0; k < e->sizes[TICKETS]; k++)
        if (tickets[k]) exit(6);
    free(tickets);
    for (int n = 0; n < e->refusing; n++) {
        int number = 0;
        get_out(&number, spaces[REFUSALS] + 4 * n, 4);
        if (number) return e->sentences[e->firsts[n] + number - 1];
    }
    return 0;
}

static void give(const Engine *e, unsigned char *const *spaces, const Result *r)
{
    long long sizes[8] = {0};
    size_t count = 1;
    if (r->extents >= 0) get_out(sizes, place(e, spaces, e->input_count + r->extents), 8 * r->rank);
    else memcpy(sizes, e->shapes + r->shape, 8 * r->rank);
    put((long long)strlen(r->name));
    fputs(r->name, stdout);
    put(r->dtype);
    put(r->rank);
    for (int axis = 0; axis < r->rank; axis++) {
        put(sizes[axis]);
        count *= (size_t)sizes[axis];
    }
    const size_t bytes = count * r->bytes;
    put((long long)bytes);
    unsigned char *room = (unsigned char *)malloc(bytes + 1);
    if (!room || bytes > e->sizes[INPUTS + e->input_count + r->output]) exit(3);
    get_out(room, place(e, spaces, e->input_count + r->output), bytes);
    fwrite(room, 1, bytes, stdout);
    free(room);
}

/* The bytes of all outputs, one after another. */
static unsigned char *outputs(const Engine *e, unsigned char *const *spaces, size_t *total)
{
    *total = 0;
    for (int n = INPUTS + e->input_count; n < e->spaces; n++) *total += e->sizes[n];
    unsigned char *all = (unsigned char *)malloc(*total + 1), *at = all;
    if (!all) exit(3);
    for (int n = e->input_count; n < e->spaces - INPUTS; at += e->sizes[INPUTS + n++])
        get_out(at, place(e, spaces, n), e->sizes[INPUTS + n]);
    return all;
}

int main(int argc, char **argv)
{
    for (int number = argc > 1 ? atoi(argv[1]) : 0; number < engine_count; number++) {
        const Engine *e = engines[number];
        unsigned char *spaces[MOST], *inputs[MOST], *first = 0;
        const char *refusal = 0;
        size_t total = 0;
#ifndef CUVIL_EMULATE
        running = number;
#endif
        for (int n = 0; n < e->spaces; n++) spaces[n] = take_memory(e->sizes[n]);
        put_in(spaces[WEIGHTS], e->weights, e->sizes[WEIGHTS]);
        const int good = take(e, inputs);
        for (int run = 1; good && run <= RUNS; run++) {
            refusal = infer(e, spaces, inputs, run);
            unsigned char *found = outputs(e, spaces, &total);
            if (first && !refusal && memcmp(first, found, total)) exit(7);
            free(first);
            first = found;
        }
        free(first);
        fwrite("CVF1", 1, 4, stdout);
        put(number);
        put(refusal ? -2 : good ? e->result_count : -1);
        if (refusal) {
            put((long long)strlen(refusal));
            fputs(refusal, stdout);
        }
        for (int n = 0; good && !refusal && n < e->result_count; n++) give(e, spaces, e->results + n);
        if (fflush(stdout)) return 3;
        for (int n = 0; n < e->input_count; n++) free(inputs[n]);
        for (int n = 0; n < e->spaces; n++) give_memory(spaces[n], e->sizes[n]);
    }
    return 0;
}

/* Times of the launches of one network, alone and as a CUDA graph; the table comes from benchmarks/gpu_launches.py. */
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(x)                                                                              \
    do {                                                                                      \
        cudaError_t e = (x);                                                                  \
        if (e != cudaSuccess) {                                                               \
            fprintf(stderr, "error: %s: %s\n", #x, cudaGetErrorString(e));                    \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)

struct Launch {
    const char *name, *node;
    void *function;
    dim3 grid;
    int block, shared, cluster, dependent, count;
    const unsigned long *offsets;
};

static unsigned char *memory;

/* early: dependent kernels may start while the one before ends. */
static void launch(const Launch &l, cudaStream_t stream, bool early)
{
    std::vector<void *> pointers(l.count), arguments(l.count);
    for (int i = 0; i < l.count; i++) {
        pointers[i] = memory + l.offsets[i];
        arguments[i] = &pointers[i];
    }
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = l.grid;
    config.blockDim = dim3(l.block);
    config.dynamicSmemBytes = l.shared;
    config.stream = stream;
    config.attrs = attributes;
    if (early && l.dependent) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (l.cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs].val.clusterDim.y = attributes[config.numAttrs].val.clusterDim.z = 1;
        attributes[config.numAttrs++].val.clusterDim.x = l.cluster;
    }
    CHECK(cudaLaunchKernelExC(&config, l.function, arguments.data()));
}

/* Median microseconds of a graph of what `add` launches. */
template <class Add> static double timed(Add add, int runs)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    cudaEvent_t begin, end;
    std::vector<float> found;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    add(stream);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&ready, graph, 0));
    for (int i = 0; i < runs + 5; i++) {
        float milliseconds;
        CHECK(cudaEventRecord(begin, stream));
        CHECK(cudaGraphLaunch(ready, stream));
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
        if (i >= 5) found.push_back(milliseconds);
    }
    CHECK(cudaGraphExecDestroy(ready));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    std::sort(found.begin(), found.end());
    return 1000.0 * found[found.size() / 2];
}

static int times(const char *net, const Launch *launches, int count, unsigned long zeros, unsigned long bytes)
{
    std::vector<float> start(bytes / 4); /* zeros would take the slow way through divisions */
    unsigned state = 1;
    for (unsigned long i = 0; i < start.size(); i++) {
        state = state * 1664525u + 1013904223u;
        start[i] = i * 4 < zeros ? (float)(state >> 8) / (1 << 24) - 0.5f : 0.0f;
    }
    CHECK(cudaMalloc(&memory, bytes));
    CHECK(cudaMemcpy(memory, start.data(), bytes, cudaMemcpyHostToDevice));
    for (int i = 0; i < count; i++)
        CHECK(cudaFuncSetAttribute(launches[i].function, cudaFuncAttributeMaxDynamicSharedMemorySize, launches[i].shared));
    const auto all = [&](bool early) {
        return [=](cudaStream_t s) {
            for (int i = 0; i < count; i++) launch(launches[i], s, early);
        };
    };
    for (double spent = 0; spent < 3e5;) spent += 100 * timed(all(true), 100); /* until the clock is up */
    printf("%s: %d launches, %.1f us (%.1f us without dependent launches)\n", net, count, timed(all(true), 200),
           timed(all(false), 200));
    for (int i = 0; i < count; i++) {
        int uses = 0, seen = 0;
        for (int k = 0; k < count; k++) uses += launches[k].function == launches[i].function;
        for (int k = 0; k < i; k++) seen += launches[k].function == launches[i].function;
        if (seen) continue;
        const double one = timed([&](cudaStream_t s) { for (int k = 0; k < 16; k++) launch(launches[i], s, true); }, 15) / 16;
        printf("%8.2f us x %2d  %s, %u blocks of %d, %d bytes shared  %s\n", one, uses, launches[i].name,
               launches[i].grid.x * launches[i].grid.y * launches[i].grid.z, launches[i].block, launches[i].shared,
               launches[i].node);
    }
    return 0;
}

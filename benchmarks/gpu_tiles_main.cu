/* Runs the kernels of a sweep: bits against the CPU kernel, then the time of one launch among 16 of a CUDA graph. */
#include "gpu_tiles.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

extern const Case cases[];
extern const Kernel *const tables[];
extern const int units;

#define CHECK(call)                                                                                     \
    do {                                                                                                \
        const cudaError_t error = call;                                                                 \
        if (error != cudaSuccess) {                                                                     \
            printf("error: %s: %s (%s)\n", #call, cudaGetErrorString(error), now);                      \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)

static const char *now = "";
enum { THREADS = 16, LAUNCHES = 16, ROUNDS = 7 };

static void fill(float *p, long count, uint64_t seed)
{
    const long part = (count + THREADS - 1) / THREADS;
    std::vector<std::thread> threads;
    for (int t = 0; t < THREADS; t++)
        threads.emplace_back([=] {
            uint64_t state = seed * 1000003 + t;
            for (long i = t * part; i < count && i < (t + 1) * part; i++) {
                state = 6364136223846793005ull * state + 1442695040888963407ull;
                p[i] = (float)((int64_t)(state >> 40) - (1 << 23)) * (1.0f / (1 << 23));
            }
        });
    for (auto &t : threads) t.join();
}

/* docs/arithmetic.md, 3.7 and 3.8: of [block][unit][9][128] taps the transforms [block][16][unit][128]. */
static void transform(const float *taps, float *u, long groups, int units)
{
    const auto axis = [](double a, double b, double c, double *to) {
        to[0] = a, to[1] = ((a + b) + c) * 0.5, to[2] = ((a - b) + c) * 0.5, to[3] = c;
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < THREADS; t++)
        threads.emplace_back([=] {
            for (long n = groups * t / THREADS; n < groups * (t + 1) / THREADS; n++)
                for (int i = 0; i < 128; i++) {
                    double down[3][4], row[4];
                    for (int j = 0; j < 3; j++) {
                        const float *g = taps + n * 9 * 128 + j * 128 + i;
                        axis(g[0], g[3 * 128], g[6 * 128], down[j]);
                    }
                    for (int a = 0; a < 4; a++) {
                        axis(down[0][a], down[1][a], down[2][a], row);
                        for (int b = 0; b < 4; b++)
                            u[((n / units * 16 + a * 4 + b) * units + n % units) * 128 + i] = (float)row[b];
                    }
                }
        });
    for (auto &t : threads) t.join();
}

static void launch(const Kernel &k, void **arguments, cudaStream_t stream, bool dependent)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(k.grid);
    config.blockDim = dim3(k.block);
    config.dynamicSmemBytes = k.shared;
    config.stream = stream;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = dependent && k.dependent ? 1 : 0;
    CHECK(cudaLaunchKernelExC(&config, k.function, arguments));
}

int main()
{
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    printf("# %s, %d multiprocessors\n", device.name, device.multiProcessorCount);
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    long wrong = 0, runs = 0;
    for (int n = 0; cases[n].key; n++) {
        const Case &c = cases[n];
        now = c.name;
        std::vector<float *> host(c.buffers), gpu(c.buffers);
        for (int i = 0; i < c.buffers; i++) {
            CHECK(cudaMallocHost((void **)&host[i], c.bytes[i]));
            CHECK(cudaMalloc((void **)&gpu[i], c.bytes[i]));
            if (i + 1 < c.buffers) fill(host[i], c.bytes[i] / 4, 100 * n + i);
            else memset(host[i], 0xff, c.bytes[i]);
            CHECK(cudaMemcpy(gpu[i], host[i], c.bytes[i], cudaMemcpyHostToDevice));
        }
        long weight_bytes = c.bytes[1];
        if (c.taps) {
            weight_bytes = c.taps * 9 * 128 * 4;
            std::vector<float> taps(weight_bytes / 4);
            fill(taps.data(), weight_bytes / 4, 100 * n + 1);
            transform(taps.data(), host[1], c.taps, c.units);
            CHECK(cudaMemcpy(gpu[1], taps.data(), weight_bytes, cudaMemcpyHostToDevice));
        }
        const long words = c.bytes[c.buffers - 1] / 4;
        std::vector<std::thread> threads;
        for (int t = 0; t < THREADS; t++)
            threads.emplace_back([&, t] {
                float *scratch = (float *)aligned_alloc(64, (c.scratch * 4 + 127) / 64 * 64);
                const int begin = (int)((long)c.items * t / THREADS), end = (int)((long)c.items * (t + 1) / THREADS);
                if (begin < end) c.reference((const float **)host.data(), scratch, begin, end);
                free(scratch);
            });
        for (auto &t : threads) t.join();
        const int copies = weight_bytes > (1 << 20) ? (int)std::min<long>(8, 1 + (96l << 20) / weight_bytes) : 1;
        std::vector<float *> weights{gpu[1]};
        for (int i = 1; i < copies; i++) {
            weights.push_back(nullptr);
            CHECK(cudaMalloc((void **)&weights[i], weight_bytes));
            CHECK(cudaMemcpy(weights[i], gpu[1], weight_bytes, cudaMemcpyDeviceToDevice));
        }
        std::vector<uint32_t> got(words);
        for (int u = 0; u < units; u++)
            for (const Kernel *k = tables[u]; k->number >= 0; k++) {
                if (k->number != n) continue;
                void *workspace = nullptr, *tickets = nullptr;
                CHECK(cudaMalloc(&workspace, k->workspace + 64));
                CHECK(cudaMalloc(&tickets, k->tickets * 4 + 64));
                CHECK(cudaMemset(tickets, 0, k->tickets * 4 + 64));
                CHECK(cudaMemset(workspace, 0xff, k->workspace + 64));
                CHECK(cudaMemset(gpu.back(), 0xff, words * 4));
                if (k->shared > 48 * 1024)
                    CHECK(cudaFuncSetAttribute(k->function, cudaFuncAttributeMaxDynamicSharedMemorySize, k->shared));
                std::vector<void *> arguments;
                for (auto &p : gpu) arguments.push_back(&p);
                if (k->workspace) arguments.push_back(&workspace);
                if (k->tickets) arguments.push_back(&tickets);
                auto launches = [&](int count, bool dependent) {
                    for (int i = 0; i < count; i++) {
                        arguments[1] = &weights[i % copies];
                        launch(*k, arguments.data(), stream, dependent && i);
                    }
                };
                launches(1, false);
                CHECK(cudaStreamSynchronize(stream));
                CHECK(cudaMemcpy(got.data(), gpu.back(), words * 4, cudaMemcpyDeviceToHost));
                long differ = 0;
                const uint32_t *wanted = (const uint32_t *)host[c.buffers - 1];
                for (long i = 0; i < words; i++) differ += got[i] != wanted[i];
                cudaGraph_t graph;
                cudaGraphExec_t executable;
                CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
                launches(LAUNCHES, true);
                CHECK(cudaStreamEndCapture(stream, &graph));
                CHECK(cudaGraphInstantiate(&executable, graph, 0));
                std::vector<float> times;
                static cudaEvent_t from, to;
                if (!from) cudaEventCreate(&from), cudaEventCreate(&to);
                for (int r = 0; r < ROUNDS; r++) {
                    cudaEventRecord(from, stream);
                    CHECK(cudaGraphLaunch(executable, stream));
                    cudaEventRecord(to, stream);
                    CHECK(cudaStreamSynchronize(stream));
                    float ms;
                    cudaEventElapsedTime(&ms, from, to);
                    times.push_back(ms * 1e3f / LAUNCHES);
                }
                std::sort(times.begin(), times.end());
                CHECK(cudaMemcpy(got.data(), gpu.back(), words * 4, cudaMemcpyDeviceToHost));
                for (long i = 0; i < words; i++) differ += got[i] != wanted[i];
                printf("RESULT\t%s\t%s\t%.3f\t%ld\n", c.key, k->tile, times[ROUNDS / 2], differ);
                runs++;
                wrong += differ != 0;
                cudaGraphExecDestroy(executable);
                cudaGraphDestroy(graph);
                cudaFree(workspace);
                cudaFree(tickets);
            }
        for (int i = 1; i < copies; i++) cudaFree(weights[i]);
        for (int i = 0; i < c.buffers; i++) cudaFree(gpu[i]), cudaFreeHost(host[i]);
        printf("NAME\t%s\t%s\n", c.key, c.name);
        fflush(stdout);
    }
    printf("# %ld runs, %ld with differing bits\n", runs, wrong);
    return wrong != 0;
}

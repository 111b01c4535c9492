/* --bench N: processor time (of all threads) and wall time of an inference alone, after one run that is not counted.
 *
 * Of an engine on a GPU the wall time holds the copies of inputs and outputs; gpu_us is the time of the kernels alone, by
 * the device's clock.
 *
 * Linux adds the time of a thread that runs on another processor to the process's only when the scheduler looks at it, every
 * few milliseconds: with several threads the mean over many runs is right where a single sample is not. */
#include "cuvil_runtime.h"

#include <stdlib.h>
#include <time.h>

static int64_t cpu[CUVIL_BENCH_MAX], wall[CUVIL_BENCH_MAX], device[CUVIL_BENCH_MAX]; /* nanoseconds */

static int64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int ascending(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Nearest-rank percentile of sorted samples, in microseconds. */
static double percentile(const int64_t *samples, long runs, int percent) {
    return (double)samples[(runs * percent + 99) / 100 - 1] / 1000.0;
}

static void put_samples(const char *name, int64_t *samples, long runs) {
    double total = 0.0;
    for (long run = 0; run < runs; run++) total += (double)samples[run];
    qsort(samples, (size_t)runs, sizeof samples[0], ascending);
    cuvil_putf(cuvil_json ? "\"%s\": {\"min\": %.3f, \"median\": %.3f, \"p99\": %.3f, \"mean\": %.3f}, "
                          : "%-8s min %.3f  median %.3f  p99 %.3f  mean %.3f\n",
               name, (double)samples[0] / 1000.0, percentile(samples, runs, 50), percentile(samples, runs, 99),
               total / (double)runs / 1000.0);
}

/* A GPU that fails refuses (docs/gpu.md); of an inference so and of a measurement. */
static void check_device(const cuvil_engine *engine) {
    if (engine->device && *engine->refusal) cuvil_fail(CUVIL_REFUSED, "gpu", "%s", *engine->refusal);
}

void cuvil_bench(const cuvil_engine *engine, long runs) {
    cuvil_infer();
    for (long run = 0; run < runs; run++) {
        int64_t wall_start = now(CLOCK_MONOTONIC), cpu_start = now(CLOCK_PROCESS_CPUTIME_ID);
        cuvil_infer();
        cpu[run] = now(CLOCK_PROCESS_CPUTIME_ID) - cpu_start;
        wall[run] = now(CLOCK_MONOTONIC) - wall_start;
        check_device(engine);
        if (cuvil_lockstep_problem()) cuvil_fail(CUVIL_REFUSED, "lockstep", "%s", cuvil_lockstep_problem());
    }
    for (long run = 0; engine->device && run < runs; run++) {
        device[run] = (int64_t)(engine->device->time() * 1000.0);
        check_device(engine);
    }
    cuvil_putf(cuvil_json ? "{\"runs\": %ld, " : "runs     %ld\n", runs);
    put_samples("cpu_us", cpu, runs);
    put_samples("wall_us", wall, runs);
    if (engine->device) {
        put_samples("gpu_us", device, runs);
        cuvil_put(cuvil_json ? "\"gpu\": " : "gpu      ");
        if (cuvil_json) cuvil_put_json_string(engine->device->name());
        else cuvil_put(engine->device->name());
        cuvil_putf(cuvil_json ? ", \"device_bytes\": %lu, " : "\nmemory   %lu bytes on the device\n", engine->device->memory_bytes);
    }
    cuvil_putf(cuvil_json ? "\"isa\": \"%s\", \"threads\": %d}\n" : "isa      %s\nthreads  %d\n", cuvil_variant_in_use()->isa,
               cuvil_threads_in_use());
}

/* --bench N: processor and wall time of infer() alone, after one run that is not counted. */
#include "cuvil_runtime.h"

#include <stdlib.h>
#include <time.h>

static int64_t cpu[CUVIL_BENCH_MAX], wall[CUVIL_BENCH_MAX]; /* nanoseconds */

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
    qsort(samples, (size_t)runs, sizeof samples[0], ascending);
    cuvil_putf(cuvil_json ? "\"%s\": {\"min\": %.3f, \"median\": %.3f, \"p99\": %.3f}, "
                          : "%-8s min %.3f  median %.3f  p99 %.3f\n",
               name, (double)samples[0] / 1000.0, percentile(samples, runs, 50), percentile(samples, runs, 99));
}

void cuvil_bench(const cuvil_engine *engine, long runs) {
    engine->infer();
    for (long run = 0; run < runs; run++) {
        int64_t wall_start = now(CLOCK_MONOTONIC), cpu_start = now(CLOCK_PROCESS_CPUTIME_ID);
        engine->infer();
        cpu[run] = now(CLOCK_PROCESS_CPUTIME_ID) - cpu_start;
        wall[run] = now(CLOCK_MONOTONIC) - wall_start;
    }
    cuvil_putf(cuvil_json ? "{\"runs\": %ld, " : "runs     %ld\n", runs);
    put_samples("cpu_us", cpu, runs);
    put_samples("wall_us", wall, runs);
    cuvil_putf(cuvil_json ? "\"isa\": \"%s\", \"threads\": 1}\n" : "isa      %s\nthreads  1\n", cuvil_isa);
}

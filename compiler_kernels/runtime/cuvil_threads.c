/* Worker threads: made once at start, on static stacks, each with its own floating-point environment and scratch area.
 *
 * Every thread walks through the same table of steps. Thread t of n computes the t-th of n contiguous ranges of a step's
 * items, and all meet at a barrier before the next step. Items are independent, so the bits do not depend on n.
 * A thread that waits spins for a moment, because steps are short, and then sleeps in the kernel, so that idle workers
 * cost no processor time between inferences or beside a step that cannot be divided.
 */
#define _GNU_SOURCE /* syscall() */
#include "cuvil_runtime.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cuvil_fpenv.h"

enum { FUTEX_WAIT_PRIVATE_CODE = 128, FUTEX_WAKE_PRIVATE_CODE = 129 }; /* linux/futex.h, FUTEX_PRIVATE_FLAG included */
enum { GUARD_BYTES = 65536, STACK_BYTES = 4 * GUARD_BYTES, SPIN_NANOSECONDS = 50000, SPIN_TURNS = 32 };
enum { STACK_IN_USE = 8192 }; /* by the C library's start of a thread and the functions here, at most */

/* The lowest GUARD_BYTES of each stack are made inaccessible: an overflow stops the engine instead of changing results. */
static _Alignas(GUARD_BYTES) unsigned char stacks[CUVIL_MAX_THREADS - 1][STACK_BYTES];

static const cuvil_engine *engine;
static const cuvil_engine *computing; /* the engine, or its checker: whose scratch areas the threads use */
static const cuvil_variant *variant;
static const cuvil_step *steps; /* the table being executed: written by the main thread while the others wait */
static int step_count;
static int team = 1, patient;
static int prepared, started;

static _Atomic uint32_t arrived, turn, sleepers;

static void relax(void) {
#if defined(__x86_64__)
    __asm__ volatile("pause" ::: "memory");
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* a short delay on most cores; yield returns at once */
#endif
}

static int64_t nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void wait_for_turn(uint32_t old) {
    if (patient) {
        const int64_t end = nanoseconds() + SPIN_NANOSECONDS;
        do {
            for (int i = 0; i < SPIN_TURNS; i++) {
                if (atomic_load_explicit(&turn, memory_order_acquire) != old) return;
                relax();
            }
        } while (nanoseconds() < end);
    }
    atomic_fetch_add(&sleepers, 1);
    /* The kernel compares turn with old before it sleeps, so a turn taken since then is never missed. */
    while (atomic_load(&turn) == old) syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE_CODE, old, NULL, NULL, 0);
    atomic_fetch_sub(&sleepers, 1);
}

/* Returns when all threads of the team have called it. */
static void barrier(void) {
    const uint32_t old = atomic_load(&turn);
    if (atomic_fetch_add(&arrived, 1) + 1 < (uint32_t)team) {
        wait_for_turn(old);
        return;
    }
    atomic_store(&arrived, 0);
    atomic_fetch_add(&turn, 1);
    if (atomic_load(&sleepers)) syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE_CODE, CUVIL_MAX_THREADS, NULL, NULL, 0);
}

/* First item of thread self, rounded up, so that a single item belongs to the main thread, which never sleeps long. */
static int share(int items, int self) {
    return (int)(((int64_t)items * self + team - 1) / team);
}

/* The part of thread self in every step. */
static void work(int self) {
    float *scratch = computing->scratch + (long)self * computing->scratch_floats;
    for (int s = 0; s < step_count; s++) {
        const cuvil_step *step = steps + s;
        const int begin = share(step->items, self), end = share(step->items, self + 1);
        if (begin < end) step->run(begin, end, scratch);
        /* two indivisible steps in a row run on one thread, in order: nobody need wait between them */
        if (s + 1 < step_count && step->items == 1 && step[1].items == 1) continue;
        if (team > 1) barrier();
    }
}

static void *worker(void *self) {
    cuvil_fpenv_set(CUVIL_FPENV_DEFAULT);
    for (;;) {
        barrier();
        work((int)(intptr_t)self);
    }
    return NULL;
}

static void execute(const cuvil_engine *owner, const cuvil_step *table, int count) {
    if (count == 0) return;
    computing = owner;
    steps = table;
    step_count = count;
    if (team > 1) barrier(); /* releases the workers into the table */
    work(0);
}

static void execute_twice(void) {
    const cuvil_engine *checker = engine->checker;
    cuvil_lockstep_begin(engine);
    for (int s = 0; s < engine->step_count; s++) {
        execute(engine, variant->steps + s, 1);
        execute(checker, checker->variants[0].steps + s, 1);
        cuvil_lockstep_step(engine, variant, s);
    }
    cuvil_lockstep_end(engine, variant);
}

void cuvil_infer(void) {
    const cuvil_fpenv saved = cuvil_fpenv_enter();
    if (engine->device) {
        engine->infer();
        cuvil_fpenv_leave(saved);
        return;
    }
    if (!prepared) execute(engine, variant->prepare_steps, engine->prepare_count);
    prepared = 1;
    if (engine->refusal) *engine->refusal = NULL;
    if (engine->checker)
        execute_twice();
    else
        execute(engine, variant->steps, engine->step_count);
    cuvil_fpenv_leave(saved);
}

const char *cuvil_lockstep_problem(void) {
    return engine && engine->mismatch ? *engine->mismatch : NULL;
}

static __attribute__((noinline)) void wipe_stack(void) {
    unsigned char frame[STACK_BYTES - GUARD_BYTES - STACK_IN_USE];
    cuvil_wipe(frame, sizeof frame);
}

/* One item for each thread of the team. The main thread wipes its own stack at the end (cuvil_exit.c). */
static void wipe_thread(int begin, int end, float *scratch) {
    (void)end;
    (void)scratch;
    if (begin > 0) wipe_stack();
    cuvil_wipe_registers();
}

void cuvil_erase_threads(void) {
    const cuvil_step wipe[] = {{wipe_thread, team, "wipe_thread", ""}};
    if (started) execute(engine, wipe, 1);
}

const cuvil_variant *cuvil_variant_in_use(void) {
    return variant;
}

int cuvil_threads_in_use(void) {
    return team;
}

const cuvil_variant *cuvil_choose_variant(const cuvil_engine *described, const char *isa) {
    const int count = described->variant_count;
    if (!isa) {
        for (int v = 0; v < count; v++)
            if (described->variants[v].supported()) return described->variants + v;
        cuvil_fail(CUVIL_UNSUPPORTED, "cpu", "this processor supports none of the instruction sets of this engine: build the "
                   "engine for it, or run it on another processor");
    }
    for (int v = 0; v < count; v++) {
        if (strcmp(described->variants[v].isa, isa) != 0) continue;
        if (described->variants[v].supported()) return described->variants + v;
        cuvil_fail(CUVIL_UNSUPPORTED, "cpu", "--isa %s: this processor does not support it; leave out --isa to use the best "
                   "one it supports", isa);
    }
    char names[256] = "";
    for (int v = 0; v < count; v++) {
        const size_t used = strlen(names), size = strlen(described->variants[v].isa);
        if (used + size + 3 > sizeof names) break;
        memcpy(names + used, used ? ", " : "", used ? 3 : 1);
        memcpy(names + used + (used ? 2 : 0), described->variants[v].isa, size + 1);
    }
    cuvil_fail(CUVIL_USAGE, NULL, "this engine has no kernels for the instruction set '%s': choose one of %s", isa, names);
}

int cuvil_most_threads(const cuvil_engine *described) {
    return described->max_threads < CUVIL_MAX_THREADS ? described->max_threads : CUVIL_MAX_THREADS;
}

void cuvil_start(const cuvil_engine *described, int threads, const char *isa) {
    engine = described;
    const char *without = described->device ? described->device->open() : NULL;
    if (without) cuvil_fail(CUVIL_UNSUPPORTED, "gpu", "%s", without);
    variant = cuvil_choose_variant(described, isa);
    team = threads;
    /* With fewer processors than threads the one who is waited for may be waiting for this processor. */
    patient = sysconf(_SC_NPROCESSORS_ONLN) >= threads;
    for (int i = 1; i < threads; i++) {
        pthread_attr_t attributes;
        pthread_t handle;
        unsigned char *stack = stacks[i - 1];
        int problem = pthread_attr_init(&attributes);
        if (!problem && mprotect(stack, GUARD_BYTES, PROT_NONE)) problem = 1;
        if (!problem) problem = pthread_attr_setstack(&attributes, stack + GUARD_BYTES, STACK_BYTES - GUARD_BYTES);
        if (!problem) problem = pthread_create(&handle, &attributes, worker, (void *)(intptr_t)i);
        if (problem)
            cuvil_fail(CUVIL_USAGE, NULL, "cannot start thread %d of %d (%s): give a smaller number to --threads", i + 1, threads,
                       strerror(problem));
        pthread_attr_destroy(&attributes);
    }
    started = 1;
}

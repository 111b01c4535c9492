/* Flips single bits in a lockstep engine and says what became of each; linked with the engine in place of the runtime.
 *
 * usage: HOST MODE SIDE ISA SEED FIRST COUNT       (prints one JSON object)
 *   MODE weights   bits FIRST..FIRST+COUNT-1 of a copy of the weights, every bit once
 *        sample    COUNT random bits of a copy of the weights
 *        live      COUNT random bits of values in the arena, each between two steps, after its step and before its last reader
 *        arena     COUNT random bits of the whole arena, each between two steps
 *        poison    no fault: the arenas and scratch areas begin each of COUNT inferences with different bytes
 *        within    COUNT random bits of arena, outputs, scratch and input copy, each between two parts of one step
 *        vector    COUNT random bits of vector registers, each at a random instruction of a kernel (x86-64)
 *        general   the same of general-purpose registers
 *        stack     the same of the stack around the stack pointer: spilled registers, saved ones, return addresses
 *   SIDE a: the chosen kernels and their memory, b: the checker's
 *
 * Every fault is one inference. value, output, input, weights: lockstep said so, and through what; refused: the engine itself did;
 * masked: lockstep was silent and every output has the bits of the run without fault; missed: silent, and an output is
 * wrong; crashed, hung: the process ended by a signal, or did not end, so no output would exist. In the last three modes
 * each inference runs in a child.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "cuvil_engine.h"
#include "cuvil_fpenv.h"

enum { REPORTED_VALUE, REPORTED_OUTPUT, REPORTED_INPUT, REPORTED_WEIGHTS, REFUSED, MASKED, MISSED, CRASHED, HUNG, KINDS };
enum { GOLDEN_BYTES = 1 << 22, PATIENCE_SECONDS = 2 };
static const char *const names[KINDS] = {"value", "output", "input", "weights", "refused", "masked", "missed", "crashed", "hung"};

static const cuvil_engine *const engine = &cuvil_engine_instance;
static const cuvil_engine *victim; /* the engine, or its checker */
static const cuvil_variant *variant;
static unsigned char golden[GOLDEN_BYTES], given[GOLDEN_BYTES]; /* outputs without fault, and inputs */
static long counts[KINDS];
static uint64_t state;

static uint64_t draw(uint64_t below) { /* splitmix64 */
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (z ^ z >> 31) % below;
}

static size_t bytes_of(const cuvil_tensor *tensor) {
    return (size_t)tensor->count * (size_t)cuvil_element_bytes(tensor->dtype);
}

static void fail(const char *what) {
    fprintf(stderr, "fault_host: %s\n", what);
    exit(2);
}

static void flip(void *area, uint64_t bit) {
    ((unsigned char *)area)[bit / 8] ^= (unsigned char)(1u << bit % 8);
}

/* ---- faults inside a kernel: single steps up to a random instruction ---- */
enum fault { NO_FAULT, VECTOR, GENERAL, STACK };
static volatile long countdown;
static volatile int injected;
static enum fault fault;

#if defined(__x86_64__)
enum { TRAP_FLAG = 0x100 };

/* One bit of a vector register in the frame the kernel reloads them from: XMM in the legacy area, and what AVX (2),
 * the upper halves (6) and the upper sixteen registers (7) add, each where CPUID leaf 0xD says it lies. */
static int flip_vector(ucontext_t *context) {
    unsigned char *frame = (unsigned char *)context->uc_mcontext.fpregs;
    uint64_t in_use;
    memcpy(&in_use, frame + 512, 8);
    const int part = (int[]){1, 2, 6, 7}[draw(4)];
    if (part == 1) {
        flip(frame + 160, draw(16 * 128));
        return 1;
    }
    if (!(in_use >> part & 1)) return 0;
    unsigned size, offset, c, d;
    __asm__ volatile("cpuid" : "=a"(size), "=b"(offset), "=c"(c), "=d"(d) : "a"(0xD), "c"(part));
    flip(frame + offset, draw(8 * size));
    return 1;
}

static int flip_general(ucontext_t *context) {
    const int all[] = {REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8, REG_R9, REG_R10,
                       REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    flip(&context->uc_mcontext.gregs[all[draw(16)]], draw(64));
    return 1;
}

static int flip_stack(ucontext_t *context) {
    flip((unsigned char *)context->uc_mcontext.gregs[REG_RSP] - 128, draw(8 * 640)); /* the red zone and 512 bytes above */
    return 1;
}

static void on_trap(int signal_number, siginfo_t *info, void *opaque) {
    ucontext_t *context = opaque;
    (void)signal_number;
    (void)info;
    if (--countdown > 0) return;
    const int done = fault == VECTOR ? flip_vector(context) : fault == GENERAL ? flip_general(context) : flip_stack(context);
    if (!done) return; /* at the next instruction, another draw */
    injected = 1;
    context->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}

static void start_stepping(void) {
    __asm__ volatile("pushfq\n orq $0x100, (%%rsp)\n popfq" ::: "memory", "cc");
}

static void stop_stepping(void) {
    __asm__ volatile("pushfq\n andq $~0x100, (%%rsp)\n popfq" ::: "memory", "cc");
}
#else
static void on_trap(int signal_number, siginfo_t *info, void *opaque) {
    (void)signal_number, (void)info, (void)opaque;
}
static void start_stepping(void) { fail("faults in registers need x86-64"); }
static void stop_stepping(void) {}
#endif

/* ---- one inference with one fault, between the steps or inside one of side's ---- */
typedef struct {
    int step, item; /* the step, and the item before which the fault happens; items: behind the step */
    unsigned char *area;
    uint64_t bit;
} place;

static void run_step(const cuvil_engine *side, const cuvil_step *step, const place *where) {
    if (!where) {
        step->run(0, step->items, side->scratch);
        return;
    }
    if (where->item > 0) step->run(0, where->item, side->scratch);
    if (fault == NO_FAULT) {
        flip(where->area, where->bit);
        if (where->item < step->items) step->run(where->item, step->items, side->scratch);
    } else {
        start_stepping();
        step->run(where->item, step->items, side->scratch);
        stop_stepping();
    }
}

static void infer(const place *where) {
    const cuvil_fpenv saved = cuvil_fpenv_enter();
    if (engine->refusal) *engine->refusal = NULL;
    cuvil_lockstep_begin(engine);
    for (int s = 0; s < engine->step_count; s++) {
        const place *here = where && where->step == s ? where : NULL;
        run_step(engine, variant->steps + s, victim == engine ? here : NULL);
        run_step(engine->checker, engine->checker->variants[0].steps + s, victim != engine ? here : NULL);
        cuvil_lockstep_step(engine, variant, s);
    }
    cuvil_lockstep_end(engine, variant);
    cuvil_fpenv_leave(saved);
}

/* Calls each on every tensor's buffer and its place in store, a row of all of them. */
static int over(unsigned char *store, const cuvil_tensor *tensors, int count, void *const *buffers,
                int (*each)(unsigned char *stored, void *buffer, size_t size)) {
    size_t at = 0;
    for (int i = 0; i < count; at += bytes_of(&tensors[i++])) {
        if (at + bytes_of(&tensors[i]) > GOLDEN_BYTES) fail("tensors too large");
        if (!each(store + at, buffers[i], bytes_of(&tensors[i]))) return 0;
    }
    return 1;
}

static int keep(unsigned char *stored, void *buffer, size_t size) {
    memcpy(stored, buffer, size);
    return 1;
}

static int restore(unsigned char *stored, void *buffer, size_t size) {
    memcpy(buffer, stored, size);
    return 1;
}

static int same(unsigned char *stored, void *buffer, size_t size) {
    return !memcmp(stored, buffer, size);
}

static int outputs_are_golden(void) {
    return over(golden, engine->outputs, engine->output_count, engine->output_buffers, same);
}

static int verdict(void) {
    const char *said = *engine->mismatch;
    if (said && strstr(said, "the value of '")) return REPORTED_VALUE;
    if (said && strstr(said, "copies of the weights")) return REPORTED_WEIGHTS;
    if (said && strstr(said, "input '")) return REPORTED_INPUT;
    if (said) return REPORTED_OUTPUT;
    if (engine->refusal && *engine->refusal) return REFUSED;
    return outputs_are_golden() ? MASKED : MISSED;
}

/* In a child, because a damaged pointer may write anywhere. */
static int verdict_of_child(const place *where) {
    const pid_t child = fork();
    if (child < 0) fail("fork");
    if (!child) {
        alarm(PATIENCE_SECONDS);
        infer(where);
        _exit(injected ? verdict() : 100); /* 100: the part was over before its instruction came */
    }
    int status;
    if (waitpid(child, &status, 0) != child) fail("waitpid");
    if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGALRM ? HUNG : CRASHED;
    return WEXITSTATUS(status);
}

static void random_place(place *where, int within) {
    const cuvil_step *steps = victim == engine ? variant->steps : victim->variants[0].steps;
    where->step = (int)draw((uint64_t)victim->step_count);
    const int items = steps[where->step].items;
    where->item = within ? (int)draw((uint64_t)items) : items;
    where->area = victim->arena;
    uint64_t size = victim->arena_bytes;
    const uint64_t kind = within ? draw(4) : 0;
    if (kind == 1) where->area = victim->output_buffers[0], size = bytes_of(&victim->outputs[0]);
    if (kind == 2) where->area = (unsigned char *)victim->scratch, size = (uint64_t)victim->scratch_floats * 4;
    if (kind == 3) where->area = victim->input_buffers[0], size = bytes_of(&victim->inputs[0]);
    where->bit = size ? draw(8 * size) : 0;
    if (!size) where->area = victim->output_buffers[0];
}

/* A bit of a value, after the step before the last one that reads it. */
static void live_place(place *where) {
    const cuvil_step *steps = victim == engine ? variant->steps : victim->variants[0].steps;
    const cuvil_held *held;
    do held = engine->held + draw((uint64_t)engine->held_count);
    while (held->step < 1);
    where->step = held->step - 1;
    where->item = steps[where->step].items;
    where->area = (unsigned char *)victim->arena + held->offset;
    where->bit = draw(8 * (uint64_t)held->count * (uint64_t)cuvil_element_bytes(held->dtype));
}

/* The two engines begin with other leftovers: bytes of large numbers, of NaN, anything. */
static void poison(void) {
    for (int side = 0; side < 2; side++) {
        const cuvil_engine *which = side ? engine->checker : engine;
        for (unsigned long i = 0; i < which->arena_bytes; i++) ((unsigned char *)which->arena)[i] = (unsigned char)draw(256);
        for (long i = 0; i < 4 * which->scratch_floats; i++) ((unsigned char *)which->scratch)[i] = (unsigned char)draw(256);
    }
}

static void writable(const unsigned char *area, size_t size) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)area & ~(page - 1);
    if (mprotect((void *)first, (uintptr_t)area + size - first, PROT_READ | PROT_WRITE)) fail("mprotect");
}

static void weights_bit(uint64_t bit) {
    flip((void *)(uintptr_t)victim->weights, bit);
    infer(NULL);
    counts[verdict()]++;
    flip((void *)(uintptr_t)victim->weights, bit);
}

static void prepare_input(void) {
    for (int i = 0; i < engine->input_count; i++)
        for (long n = 0; n < engine->inputs[i].count; n++) /* the float32 numbers of [-1, 1) with 16 random bits */
            ((float *)engine->input_buffers[i])[n] = (float)((long)draw(1 << 16) - (1 << 15)) / 32768.0f;
    over(given, engine->inputs, engine->input_count, engine->input_buffers, keep);
    infer(NULL);
    if (*engine->mismatch) fail(*engine->mismatch);
    over(golden, engine->outputs, engine->output_count, engine->output_buffers, keep);
}

int main(int argc, char **argv) {
    if (argc != 7) fail("usage: HOST MODE SIDE ISA SEED FIRST COUNT");
    const char *mode = argv[1];
    victim = argv[2][0] == 'a' ? engine : engine->checker;
    for (int v = 0; v < engine->variant_count; v++)
        if (!strcmp(engine->variants[v].isa, argv[3]) && engine->variants[v].supported()) variant = engine->variants + v;
    if (!variant) fail("this engine or processor has no such variant");
    state = strtoull(argv[4], NULL, 10);
    const uint64_t first = strtoull(argv[5], NULL, 10), count = strtoull(argv[6], NULL, 10);
    prepare_input();
    writable(victim->weights, victim->weights_size);
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    fault = !strcmp(mode, "vector") ? VECTOR : !strcmp(mode, "general") ? GENERAL : !strcmp(mode, "stack") ? STACK : NO_FAULT;
    for (uint64_t n = 0, done = 0; done < count; n++) {
        place where;
        if (!strcmp(mode, "weights")) {
            weights_bit(first + n);
        } else if (!strcmp(mode, "sample")) {
            weights_bit(draw(8 * victim->weights_size));
        } else if (fault != NO_FAULT) {
            random_place(&where, 1);
            countdown = 1 + (long)draw(first); /* FIRST: the most instructions before the fault */
            const int found = verdict_of_child(&where);
            if (found == 100) continue;
            counts[found]++;
        } else {
            const int poisoned = !strcmp(mode, "poison");
            if (poisoned) poison();
            if (!strcmp(mode, "live")) live_place(&where);
            else random_place(&where, !strcmp(mode, "within"));
            infer(poisoned ? NULL : &where);
            counts[verdict()]++;
            over(given, engine->inputs, engine->input_count, engine->input_buffers, restore);
        }
        done++;
    }
    printf("{\"weights_bits\": %lu", 8 * engine->weights_size);
    for (int kind = 0; kind < KINDS; kind++) printf(", \"%s\": %ld", names[kind], counts[kind]);
    printf("}\n");
    return 0;
}

/* The one way out of an engine's program: everything it held of its input is wiped first (docs/erasure.md). */
#include "cuvil_runtime.h"

#include <unistd.h>

/* Kernels run on the workers' stacks too, which are no larger: nothing of theirs lies deeper than this. */
enum { STACK_BELOW = 192 * 1024 };

static unsigned char *stack_top; /* NULL before any input is read */
static volatile int exit_code;

void cuvil_wipe_at_exit(void *frame) {
    stack_top = frame;
    cuvil_register_text();
    cuvil_register_input();
    cuvil_register_output();
    cuvil_register_guard();
    cuvil_register_inference();
}

static __attribute__((noinline)) void wipe_below(void) {
    unsigned char frame[STACK_BELOW];
    cuvil_wipe(frame, sizeof frame);
}

/* Overwrites the frames of everything that has been called since main, itself included: it uses no variable in memory but
 * static ones, and never returns. */
static _Noreturn __attribute__((noinline)) void wipe_above(void) {
    for (volatile unsigned char *at = (unsigned char *)__builtin_frame_address(0) + 2 * sizeof(void *); at < stack_top; at++) *at = 0;
    cuvil_wipe_registers();
    _exit(exit_code);
}

_Noreturn void cuvil_exit(int code) {
    exit_code = code;
    if (!stack_top) _exit(code); /* no input was read */
    cuvil_erase_threads();
    cuvil_erase();
    wipe_below();
    wipe_above();
}

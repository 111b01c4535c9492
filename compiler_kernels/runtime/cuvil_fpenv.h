/* The floating-point environment of Canonical Arithmetic 1: round to nearest even, subnormals kept, exceptions masked.
 *
 * infer() brackets its work with cuvil_fpenv_enter / cuvil_fpenv_leave, so the bits do not depend on what the host
 * program (or a library built with -ffast-math, which sets FTZ and DAZ for the whole process) left in the register.
 * The memory clobbers keep loads and stores of the kernels between the two calls.
 */
#ifndef CUVIL_FPENV_H
#define CUVIL_FPENV_H

#ifdef __FAST_MATH__
#error "Cuvil engines are defined bit by bit: compile them without -ffast-math, -Ofast and -funsafe-math-optimizations"
#endif

#if defined(__x86_64__)

typedef unsigned int cuvil_fpenv;
#define CUVIL_FPENV_DEFAULT 0x1F80u /* MXCSR: all exceptions masked, RC nearest, FTZ and DAZ clear */

static inline cuvil_fpenv cuvil_fpenv_get(void) {
    cuvil_fpenv value;
    __asm__ volatile("stmxcsr %0" : "=m"(value) : : "memory");
    return value;
}

static inline void cuvil_fpenv_set(cuvil_fpenv value) {
    __asm__ volatile("ldmxcsr %0" : : "m"(value) : "memory");
}

#elif defined(__aarch64__)

typedef unsigned long cuvil_fpenv;
#define CUVIL_FPENV_DEFAULT 0ul /* FPCR: RMode nearest; FZ, FZ16, DN, AH, FIZ clear; no trap enabled */

static inline cuvil_fpenv cuvil_fpenv_get(void) {
    cuvil_fpenv value;
    __asm__ volatile("mrs %0, fpcr" : "=r"(value) : : "memory");
    return value;
}

static inline void cuvil_fpenv_set(cuvil_fpenv value) {
    __asm__ volatile("msr fpcr, %0" : : "r"(value) : "memory");
}

#else

/* WebAssembly and soft-float targets have no such register: the environment is fixed by the platform. */
typedef int cuvil_fpenv;
#define CUVIL_FPENV_DEFAULT 0

static inline cuvil_fpenv cuvil_fpenv_get(void) {
    return 0;
}

static inline void cuvil_fpenv_set(cuvil_fpenv value) {
    (void)value;
}

#endif

/* Sets the environment above and returns the caller's, to be handed to cuvil_fpenv_leave. */
static inline cuvil_fpenv cuvil_fpenv_enter(void) {
    cuvil_fpenv saved = cuvil_fpenv_get();
    cuvil_fpenv_set(CUVIL_FPENV_DEFAULT);
    return saved;
}

static inline void cuvil_fpenv_leave(cuvil_fpenv saved) {
    cuvil_fpenv_set(saved);
}

#endif

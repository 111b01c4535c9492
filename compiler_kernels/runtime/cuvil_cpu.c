/* Does this processor have the instructions the generated code was compiled for?
 *
 * Compiled for the oldest processor of the target, so that it can run, and answer, on a machine that cannot run the rest.
 * The list is the x86-64-v3 level of the System V ABI for x86-64 (section 3.1.1).
 */
#include "cuvil_runtime.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <stdio.h>
#include <string.h>

#ifdef __AVX__
#error "the runtime must be compiled for baseline x86-64: it has to report a processor without AVX, not crash on it"
#endif

static unsigned long long enabled_state(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (unsigned long long)high << 32 | low;
}

static void note_missing(char list[CUVIL_MISSING_MAX], unsigned has, const char *name) {
    if (has) return;
    size_t used = strlen(list);
    snprintf(list + used, CUVIL_MISSING_MAX - used, "%s%s", used ? ", " : "", name);
}

void cuvil_missing_features(char missing[CUVIL_MISSING_MAX]) {
    unsigned a = 0, b = 0, c = 0, d = 0, b7 = 0, c1 = 0, c81 = 0;
    missing[0] = 0;
    if (__get_cpuid(1, &a, &b, &c, &d)) c1 = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) b7 = b;
    if (__get_cpuid(0x80000001u, &a, &b, &c, &d)) c81 = c;
    note_missing(missing, c1 & 1u << 12, "FMA");
    note_missing(missing, c1 & 1u << 28, "AVX");
    note_missing(missing, b7 & 1u << 5, "AVX2");
    note_missing(missing, c1 & 1u << 29, "F16C");
    note_missing(missing, c1 & 1u << 22, "MOVBE");
    note_missing(missing, b7 & 1u << 3, "BMI1");
    note_missing(missing, b7 & 1u << 8, "BMI2");
    note_missing(missing, c81 & 1u << 5, "LZCNT");
    /* bits 1 and 2 of XCR0: the operating system saves XMM and YMM registers */
    if (c1 & 1u << 28 && (!(c1 & 1u << 27) || (enabled_state() & 6u) != 6u))
        note_missing(missing, 0, "AVX enabled by the operating system");
}

void cuvil_require_cpu(void) {
    char missing[CUVIL_MISSING_MAX];
    cuvil_missing_features(missing);
    if (missing[0])
        cuvil_fail(CUVIL_UNSUPPORTED, "cpu",
                   "this engine is compiled for x86-64-v3 and this processor lacks %s: run it on an Intel Haswell, AMD "
                   "Excavator or later processor",
                   missing);
}

#else

/* Fused multiply-add and Advanced SIMD are part of the AArch64 baseline. */
void cuvil_missing_features(char missing[CUVIL_MISSING_MAX]) {
    missing[0] = 0;
}

void cuvil_require_cpu(void) {}

#endif

/* Which x86-64 instruction sets may be used: the processor has them and the operating system saves their registers.
 * Usable from generated code and from the runtime; no C library, no AVX instruction. */
#ifndef CUVIL_X86_H
#define CUVIL_X86_H

#if defined(__x86_64__)
#include <cpuid.h>

/* AVX-512 F, CD, BW, DQ, VL (x86-64-v4) with ZMM state enabled in XCR0. */
static inline int cuvil_x86_has_avx512(void) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 27)) return 0;
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 0xe6u) != 0xe6u) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    const unsigned wanted = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
    return (b & wanted) == wanted;
}
#endif

#endif

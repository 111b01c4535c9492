/* Canonical Arithmetic 1: pow, after docs/arithmetic-elementary.md. Binary64 add, sub, mul, div only (no fma, so that
 * WebAssembly needs none), rounded once to binary32. Special cases as ISO C99 F.9.4.4.
 */
#ifndef CA1_POW_H
#define CA1_POW_H
#include "ca1_fma.h"

/* nvcc contracts binary64 a * b + c by default; its intrinsics are never contracted. */
#ifdef __CUDA_ARCH__
CA1_INLINE double ca1_dadd(double a, double b) { return __dadd_rn(a, b); }
CA1_INLINE double ca1_dmul(double a, double b) { return __dmul_rn(a, b); }
CA1_INLINE double ca1_ddiv(double a, double b) { return __ddiv_rn(a, b); }
CA1_INLINE float ca1_fmul_(float a, float b) { return __fmul_rn(a, b); }
#else
CA1_INLINE double ca1_dadd(double a, double b) { return a + b; }
CA1_INLINE double ca1_dmul(double a, double b) { return a * b; }
CA1_INLINE double ca1_ddiv(double a, double b) { return a / b; }
CA1_INLINE float ca1_fmul_(float a, float b) { return a * b; }
#endif

/* q * s + c, rounded twice. */
CA1_INLINE double ca1_dstep_(double q, double s, double c) { return ca1_dadd(ca1_dmul(q, s), c); }

/* log2(a), a finite and positive. */
CA1_INLINE double ca1_log2_(float a)
{
    const ca1_u64 bits = ca1_bits64((double)a);                       /* normal: every binary32 value is in binary64 */
    const ca1_u64 k = (bits - 0x3fe6a09e667f3bcdULL) >> 52;           /* exponent modulo 4096, 2^k sqrt(1/2) <= a */
    const double e = (double)((ca1_i32)(k ^ 0x800u) - 0x800);
    const double m = ca1_double(bits - (k << 52));                    /* sqrt(1/2) <= m < sqrt(2) */
    const double f = ca1_ddiv(ca1_dadd(m, -1.0), ca1_dadd(m, 1.0));
    const double s = ca1_dmul(f, f);
    double q = 1.0 / 19.0;
    q = ca1_dstep_(q, s, 1.0 / 17.0);
    q = ca1_dstep_(q, s, 1.0 / 15.0);
    q = ca1_dstep_(q, s, 1.0 / 13.0);
    q = ca1_dstep_(q, s, 1.0 / 11.0);
    q = ca1_dstep_(q, s, 1.0 / 9.0);
    q = ca1_dstep_(q, s, 1.0 / 7.0);
    q = ca1_dstep_(q, s, 1.0 / 5.0);
    q = ca1_dstep_(q, s, 1.0 / 3.0);
    q = ca1_dstep_(ca1_dmul(q, s), f, f);                             /* atanh(f) = log(m) / 2 */
    return ca1_dstep_(q, 0x1.71547652b82fep+1, e);                    /* 2 / ln 2 */
}

/* 2^z rounded to binary32 with overflow and gradual underflow; NaN gives NaN. */
CA1_INLINE float ca1_exp2_(double z)
{
    double c = z > 160.0 ? 160.0 : z;
    c = -160.0 > c ? -160.0 : c;
    const double t = ca1_dadd(c, 0x1.8p+52);
    const double n = ca1_dadd(t, -0x1.8p+52);
    const double r = ca1_dmul(ca1_dadd(c, -n), 0x1.62e42fefa39efp-1); /* ln 2 */
    double p = 1.0 / 39916800.0;
    p = ca1_dstep_(p, r, 1.0 / 3628800.0);
    p = ca1_dstep_(p, r, 1.0 / 362880.0);
    p = ca1_dstep_(p, r, 1.0 / 40320.0);
    p = ca1_dstep_(p, r, 1.0 / 5040.0);
    p = ca1_dstep_(p, r, 1.0 / 720.0);
    p = ca1_dstep_(p, r, 1.0 / 120.0);
    p = ca1_dstep_(p, r, 1.0 / 24.0);
    p = ca1_dstep_(p, r, 1.0 / 6.0);
    p = ca1_dstep_(p, r, 0.5);
    p = ca1_dstep_(p, r, 1.0);
    p = ca1_dstep_(p, r, 1.0);
    return (float)ca1_dmul(p, ca1_double((ca1_bits64(t) << 52) + 0x3ff0000000000000ULL));
}

/* v >= 0 is an integer. */
CA1_INLINE int ca1_is_integer_(float v) { return v >= 0x1p+23f || (v + 0x1p+23f) - 0x1p+23f == v; }

CA1_INLINE float ca1_pow(float x, float y)
{
    const float inf = __builtin_inff(), nan = __builtin_nanf("");
    if (y == 2.0f)
        return ca1_fmul_(x, x);
    if (y == 3.0f)
        return ca1_fmul_(ca1_fmul_(x, x), x);
    if (y == 0.0f || x == 1.0f)
        return 1.0f;
    if (x != x || y != y)
        return nan;
    const float a = __builtin_fabsf(x), b = __builtin_fabsf(y);
    const int odd = ca1_is_integer_(b) && !ca1_is_integer_(b * 0.5f);
    if (x < 0.0f && a < inf && !ca1_is_integer_(b))
        return nan;
    float r = 1.0f;
    if (a != 1.0f) {
        const double l = a == 0.0f ? -(double)inf : a == inf ? (double)inf : ca1_log2_(a);
        r = ca1_exp2_(ca1_dmul((double)y, l));
    }
    return odd && (x < 0.0f || (x == 0.0f && __builtin_signbit(x))) ? -r : r;
}

#endif

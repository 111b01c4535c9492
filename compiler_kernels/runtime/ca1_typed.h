/* Canonical Arithmetic 1 for the other element types: integers, binary64, bool, and the storage types float16, bfloat16.
 *
 * Names end in the type: f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 b8. Integers wrap; division truncates, division by
 * zero gives 0; binary64 follows the rules of binary32 (NaN propagates, of equal operands the first is kept).
 */
#ifndef CA1_TYPED_H
#define CA1_TYPED_H

#include <stdint.h>

#include "ca1_fma.h"

/* Integers: unsigned arithmetic of 64 bits, cut to the type, is two's complement wrap-around for every width. EDGE is the
 * first value above the type, as binary64. */
#define CA1_INTEGER(T, S, LOW, HIGH, EDGE)                                                             \
    CA1_INLINE T ca1_add_##S(T a, T b) { return (T)((uint64_t)a + (uint64_t)b); }                      \
    CA1_INLINE T ca1_sub_##S(T a, T b) { return (T)((uint64_t)a - (uint64_t)b); }                      \
    CA1_INLINE T ca1_mul_##S(T a, T b) { return (T)((uint64_t)a * (uint64_t)b); }                      \
    CA1_INLINE T ca1_div_##S(T a, T b)                                                                 \
    {                                                                                                  \
        if (b == 0) return 0;                                                                          \
        if ((LOW) != 0 && b == (T)-1) return ca1_sub_##S(0, a); /* the lowest value has no opposite */ \
        return (T)(a / b);                                                                             \
    }                                                                                                  \
    CA1_INLINE T ca1_neg_##S(T a) { return ca1_sub_##S(0, a); }                                        \
    CA1_INLINE T ca1_abs_##S(T a) { return a < (T)1 ? ca1_neg_##S(a) : a; }                            \
    CA1_INLINE T ca1_relu_##S(T a) { return a < (T)1 ? (T)0 : a; }                                     \
    CA1_INLINE T ca1_max_##S(T a, T b) { return b > a ? b : a; }                                       \
    CA1_INLINE T ca1_min_##S(T a, T b) { return b < a ? b : a; }                                       \
    /* A floating-point value truncates and saturates; NaN becomes 0. */                               \
    CA1_INLINE T ca1_to_##S(double a)                                                                  \
    {                                                                                                  \
        if (!(a == a)) return 0;                                                                       \
        if (a >= (EDGE)) return HIGH;                                                                  \
        if (a <= (double)(LOW)) return LOW;                                                            \
        return (T)a;                                                                                   \
    }
CA1_INTEGER(int8_t, i8, INT8_MIN, INT8_MAX, 0x1p7)
CA1_INTEGER(int16_t, i16, INT16_MIN, INT16_MAX, 0x1p15)
CA1_INTEGER(int32_t, i32, INT32_MIN, INT32_MAX, 0x1p31)
CA1_INTEGER(int64_t, i64, INT64_MIN, INT64_MAX, 0x1p63)
CA1_INTEGER(uint8_t, u8, 0, UINT8_MAX, 0x1p8)
CA1_INTEGER(uint16_t, u16, 0, UINT16_MAX, 0x1p16)
CA1_INTEGER(uint32_t, u32, 0, UINT32_MAX, 0x1p32)
CA1_INTEGER(uint64_t, u64, 0, UINT64_MAX, 0x1p64)
#undef CA1_INTEGER

/* The last step of quantize: a whole binary32 number saturates; NaN becomes 0. Selects only, so that loops vectorise. */
#define CA1_NEAR(T, S, LOW, HIGH)                                                                      \
    CA1_INLINE T ca1_near_##S(float a)                                                                 \
    {                                                                                                  \
        a = a == a ? a : 0.0f;                                                                         \
        a = a < LOW ? LOW : a;                                                                         \
        a = a > HIGH ? HIGH : a;                                                                       \
        return (T)(int32_t)a;                                                                          \
    }
CA1_NEAR(int8_t, i8, -128.0f, 127.0f)
CA1_NEAR(int16_t, i16, -32768.0f, 32767.0f)
CA1_NEAR(uint8_t, u8, 0.0f, 255.0f)
CA1_NEAR(uint16_t, u16, 0.0f, 65535.0f)
#undef CA1_NEAR

CA1_INLINE double ca1_neg_f64(double a) { return -a; }
CA1_INLINE double ca1_abs_f64(double a) { return __builtin_fabs(a); }
CA1_INLINE double ca1_relu_f64(double a) { return a <= 0.0 ? 0.0 : a; }
CA1_INLINE double ca1_max_f64(double a, double b) { return b > a || b != b ? (a != a ? a : b) : a; }
CA1_INLINE double ca1_min_f64(double a, double b) { return b < a || b != b ? (a != a ? a : b) : a; }

/* binary64 to a format of `fraction` explicit significand bits and largest exponent `top`, to nearest even; `bias` is the
 * exponent bias of the format. One rounding, whatever the value came from; NaN is canonical. */
CA1_INLINE uint16_t ca1_half(double a, int fraction, int bias)
{
    const ca1_u64 bits = ca1_bits64(a), magnitude = bits & 0x7FFFFFFFFFFFFFFFu;
    const uint16_t sign = (uint16_t)(bits >> 63 << 15);
    const uint16_t infinity = (uint16_t)((2 * bias + 1) << fraction);
    const int exponent = (int)(magnitude >> 52) - 1023 + bias; /* biased exponent in the format, if normal there */
    if (magnitude > 0x7FF0000000000000u) return (uint16_t)(infinity | 1u << (fraction - 1));
    if (exponent > 2 * bias) return (uint16_t)(sign | infinity);
    if (exponent < -fraction) return sign; /* below half of the smallest subnormal */
    const ca1_u64 significand = (magnitude & 0xFFFFFFFFFFFFFu) | 0x10000000000000u;
    const int drop = 52 - fraction + (exponent < 1 ? 1 - exponent : 0);
    const ca1_u64 kept = significand >> drop, rest = significand & (((ca1_u64)1 << drop) - 1), tie = (ca1_u64)1 << (drop - 1);
    const ca1_u64 rounded = kept + (rest > tie || (rest == tie && (kept & 1u)));
    /* The hidden bit carries into the exponent field, as does a round-up to the next power of two, up to infinity. */
    return (uint16_t)(sign | (rounded + ((ca1_u64)(exponent < 1 ? 0 : exponent - 1) << fraction)));
}

CA1_INLINE uint16_t ca1_to_f16(double a) { return ca1_half(a, 10, 15); }
CA1_INLINE uint16_t ca1_to_bf16(double a) { return ca1_half(a, 7, 127); }
CA1_INLINE float ca1_to_f32(double a) { return (float)a; }
CA1_INLINE double ca1_to_f64(double a) { return a; }
CA1_INLINE uint8_t ca1_to_b8(double a) { return a != 0.0; } /* NaN is true */

CA1_INLINE double ca1_from_bf16(uint16_t a)
{
    const ca1_u32 bits = (ca1_u32)a << 16;
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return (double)x;
}

CA1_INLINE double ca1_from_f16(uint16_t a)
{
    const int exponent = a >> 10 & 31, fraction = a & 1023;
    const double magnitude = exponent == 31  ? (fraction ? __builtin_nan("") : __builtin_inf())
                             : exponent == 0 ? (double)fraction * 0x1p-24
                                             : ca1_double((ca1_u64)(exponent + 1008) << 52 | (ca1_u64)fraction << 42);
    return a >> 15 ? -magnitude : magnitude;
}

/* Sizes known at run time. */
CA1_INLINE int64_t cuvil_floordiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
CA1_INLINE int64_t cuvil_min(int64_t a, int64_t b) { return b < a ? b : a; }
CA1_INLINE int64_t cuvil_max(int64_t a, int64_t b) { return b > a ? b : a; }

#endif

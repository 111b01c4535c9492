/* Canonical Arithmetic 1: rounding to integers, signs, remainders, integer powers, bits and the random generator.
 *
 * Names end in the type, as in ca1_typed.h.
 */
#ifndef CA1_WHOLE_H
#define CA1_WHOLE_H
#include "ca1_circular.h"
#include "ca1_typed.h"

/* To the nearest integer, ties to even: beyond 2^23 (2^52) every number is one; below, the sum has no fraction bits. */
CA1_INLINE float ca1_round(float x)
{
    const float t = __builtin_fabsf(x);
    return t < 0x1p+23f ? __builtin_copysignf((t + 0x1p+23f) - 0x1p+23f, x) : x;
}
CA1_INLINE double ca1_round_f64(double x)
{
    const double t = __builtin_fabs(x);
    return t < 0x1p+52 ? __builtin_copysign((t + 0x1p+52) - 0x1p+52, x) : x;
}

/* -1, +0 or 1; NaN gives itself. */
CA1_INLINE float ca1_sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? 0.0f : x; }
CA1_INLINE double ca1_sign_f64(double x) { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x == 0.0 ? 0.0 : x; }

/* The remainder with the sign of y, as x - floor(x / y) y; of 0 it is 0 with that sign. */
CA1_INLINE double ca1_mod_f64(double x, double y)
{
    const double r = ca1_fmod_f64(x, y);
    return r == 0.0 ? __builtin_copysign(0.0, y) : (r < 0.0) != (y < 0.0) ? ca1_dadd(r, y) : r;
}
CA1_INLINE float ca1_mod(float x, float y)
{
    const float r = ca1_fmod(x, y);
    return r == 0.0f ? __builtin_copysignf(0.0f, y) : (r < 0.0f) != (y < 0.0f) ? r + y : r;
}

/* Of a division by zero the remainder is 0, as its quotient is. A power with a negative exponent is the exact value cut
 * to an integer, and 0 where there is none. */
#define CA1_INTEGER(T, S, SIGNED)                                                   \
    CA1_INLINE T ca1_sign_##S(T a) { return (T)((a > 0) - (SIGNED && a < (T)1 && a != 0)); } \
    CA1_INLINE T ca1_fmod_##S(T a, T b)                                             \
    {                                                                               \
        if (b == 0 || (SIGNED && b == (T)-1)) return 0;                             \
        return (T)(a % b);                                                          \
    }                                                                               \
    CA1_INLINE T ca1_mod_##S(T a, T b)                                              \
    {                                                                               \
        const T r = ca1_fmod_##S(a, b);                                             \
        return r != 0 && SIGNED && (r > 0) != (b > 0) ? (T)(r + b) : r;             \
    }                                                                               \
    CA1_FUNCTION T ca1_pow_##S(T a, T b)                                            \
    {                                                                               \
        if (SIGNED && b != 0 && b < (T)1) {                                         \
            if (a == 1) return 1;                                                   \
            return a == (T)-1 ? ((uint64_t)b & 1u ? (T)-1 : (T)1) : (T)0;           \
        }                                                                           \
        uint64_t power = 1, square = (uint64_t)a;                                   \
        for (uint64_t n = (uint64_t)b; n != 0; n >>= 1) {                           \
            if (n & 1u) power *= square;                                            \
            square *= square;                                                       \
        }                                                                           \
        return (T)power;                                                            \
    }
CA1_INTEGER(int8_t, i8, 1)
CA1_INTEGER(int16_t, i16, 1)
CA1_INTEGER(int32_t, i32, 1)
CA1_INTEGER(int64_t, i64, 1)
CA1_INTEGER(uint8_t, u8, 0)
CA1_INTEGER(uint16_t, u16, 0)
CA1_INTEGER(uint32_t, u32, 0)
CA1_INTEGER(uint64_t, u64, 0)
#undef CA1_INTEGER

/* A shift by a negative number or by the width or more leaves copies of the sign (right, signed) or zeros. */
#define CA1_SHIFT(T, S, WIDTH, SIGNED)                                                           \
    CA1_INLINE T ca1_shift_left_##S(T a, T b)                                                    \
    {                                                                                            \
        return (uint64_t)b < WIDTH ? (T)((uint64_t)a << b) : (T)0;                               \
    }                                                                                            \
    CA1_INLINE T ca1_shift_right_##S(T a, T b)                                                   \
    {                                                                                            \
        return (uint64_t)b < WIDTH ? (T)(a >> b) : (T)(SIGNED && a < (T)1 && a != 0 ? -1 : 0);   \
    }
CA1_SHIFT(int8_t, i8, 8, 1)
CA1_SHIFT(int16_t, i16, 16, 1)
CA1_SHIFT(int32_t, i32, 32, 1)
CA1_SHIFT(int64_t, i64, 64, 1)
CA1_SHIFT(uint8_t, u8, 8, 0)
CA1_SHIFT(uint16_t, u16, 16, 0)
CA1_SHIFT(uint32_t, u32, 32, 0)
CA1_SHIFT(uint64_t, u64, 64, 0)
#undef CA1_SHIFT

/* The same bits in the other kind of type of the same width. */
CA1_INLINE uint32_t ca1_bits_f32(float x)
{
    uint32_t u;
    __builtin_memcpy(&u, &x, sizeof u);
    return u;
}
CA1_INLINE float ca1_number_f32(uint32_t u)
{
    float x;
    __builtin_memcpy(&x, &u, sizeof x);
    return x;
}
CA1_INLINE uint64_t ca1_bits_f64(double x) { return (uint64_t)ca1_bits64(x); }
CA1_INLINE double ca1_number_f64(uint64_t u) { return ca1_double((ca1_u64)u); }

/* Word `word` of block `index` of stream `stream`: Philox 4x32-10 (Salmon et al., SC 2011) of the counter
 * (index, 0, stream, 0) and the key seed. */
CA1_FUNCTION uint32_t ca1_random_bits(uint64_t seed, uint32_t stream, uint32_t index, int word)
{
    uint32_t c0 = index, c1 = 0, c2 = stream, c3 = 0, k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p = (uint64_t)0xD2511F53u * c0, q = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(q >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)q;
        c2 = (uint32_t)(p >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;
}

#endif

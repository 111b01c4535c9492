/* Reading between elements at run-time coordinates: GridSample, RoiAlign, MaxRoiPool, DeformConv (docs/arithmetic.md,
 * section 20). Names end in f32 or f64. No coordinate, NaN and infinities included, leads outside an axis. */
#ifndef CA1_SAMPLE_H
#define CA1_SAMPLE_H

#include "ca1_index.h"
#include "ca1_sum_typed.h"
#include "ca1_typed.h"

enum { CA1_ZEROS, CA1_BORDER, CA1_REFLECTION };

/* The element of an axis of n that position i reads; -1, none. */
CA1_INLINE int ca1_pixel(int64_t i, int n, int padding, int corners)
{
    if (i >= 0 && i < n) return (int)i;
    if (padding == CA1_ZEROS) return -1;
    if (padding == CA1_BORDER) return i < 0 ? 0 : n - 1;
    if (corners && n == 1) return 0;
    const int64_t period = corners ? 2 * ((int64_t)n - 1) : 2 * (int64_t)n;
    const int64_t j = (i % period + period) % period;
    return (int)(j < n ? j : corners ? period - j : period - 1 - j);
}

#define CA1_SAMPLING(T, S, BITS, FMA)                                                                                   \
    CA1_INLINE int64_t ca1_position_##S(T x)                                                                           \
    {                                                                                                                  \
        const T far = (T)0x1p40;                                                                                       \
        return ca1_to_i64((double)(x > far ? far : x < -far ? -far : x));                                              \
    }                                                                                                                  \
    /* A coordinate in [-1, 1] as one in elements. */                                                                  \
    CA1_INLINE T ca1_place_##S(T g, int n, int corners)                                                                \
    {                                                                                                                  \
        if (corners) return (g + 1) / 2 * (T)(n - 1);                                                                  \
        return ((g + 1) * (T)n - 1) / 2;                                                                               \
    }                                                                                                                  \
    /* A coordinate outside the axis moved inside. */                                                                  \
    CA1_INLINE T ca1_inside_##S(T c, int n, int padding, int corners)                                                  \
    {                                                                                                                  \
        const T low = corners ? (T)0 : (T)-0.5, high = corners ? (T)(n - 1) : (T)n - (T)0.5;                            \
        if (padding == CA1_ZEROS || !(c < low || c > high)) return c;                                                  \
        if (padding == CA1_BORDER) return c < 0 ? (T)0 : (T)(n - 1);                                                   \
        const T range = high - low, over = c < low ? low - c : c - high;                                               \
        if (range == 0) return low;                                                                                    \
        const T turns = __builtin_trunc##BITS(over / range), rest = over - turns * range;                              \
        const int odd = turns - 2 * __builtin_floor##BITS(turns / 2) != 0;                                             \
        return (c < low) != odd ? low + rest : high - rest;                                                            \
    }                                                                                                                  \
    /* Weights of the two or four neighbours of a coordinate t above the lower of the middle ones. */                  \
    CA1_INLINE void ca1_lerp_##S(T t, T *w)                                                                            \
    {                                                                                                                  \
        w[0] = 1 - t;                                                                                                  \
        w[1] = t;                                                                                                      \
    }                                                                                                                  \
    CA1_INLINE void ca1_cubic_##S(T t, T *w)                                                                           \
    {                                                                                                                  \
        const T s = 1 - t, a = (T)-0.75;                                                                               \
        w[0] = a * t * (s * s);                                                                                        \
        w[1] = FMA(FMA((T)1.25, t, (T)-2.25) * t, t, (T)1);                                                            \
        w[2] = FMA(FMA((T)1.25, s, (T)-2.25) * s, s, (T)1);                                                            \
        w[3] = a * s * (t * t);                                                                                        \
    }                                                                                                                  \
    /* RoiAlign: position, lower and upper element and upper weight on an axis of n; 0 for a position outside. */      \
    CA1_INLINE int ca1_roi_axis_##S(T c, int n, int *low, int *high, T *weight)                                        \
    {                                                                                                                  \
        if (c < -1 || c > (T)n) return 0;                                                                              \
        c = c > 0 ? c : 0;                                                                                             \
        *low = (int)c < n - 1 ? (int)c : n - 1;                                                                        \
        *high = *low < n - 1 ? *low + 1 : n - 1;                                                                       \
        *weight = (int)c < n - 1 ? c - (T)*low : 0;                                                                    \
        return 1;                                                                                                      \
    }                                                                                                                  \
    /* Samples per bin: a given number or one per element, at most 1024. */                                            \
    CA1_INLINE int ca1_roi_samples_##S(T bin, int given)                                                               \
    {                                                                                                                  \
        const int64_t found = given > 0 ? given : ca1_position_##S(__builtin_ceil##BITS(bin));                         \
        return found < 0 ? 0 : found > 1024 ? 1024 : (int)found;                                                       \
    }                                                                                                                  \
    /* Ties away from zero. */                                                                                         \
    CA1_INLINE int64_t ca1_nearest_##S(T x)                                                                            \
    {                                                                                                                  \
        const T whole = __builtin_trunc##BITS(x), rest = x - whole;                                                    \
        return ca1_position_##S(whole) + (rest >= (T)0.5) - (rest <= (T)-0.5);                                         \
    }
CA1_SAMPLING(float, f32, f, ca1_fmaf)
CA1_SAMPLING(double, f64, , ca1_fma64)
#undef CA1_SAMPLING

#endif

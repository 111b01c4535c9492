/* Run-time indices (docs/arithmetic.md, section 14): a negative one counts from the end of its axis. */
#ifndef CA1_INDEX_H
#define CA1_INDEX_H

#include <stdint.h>

#include "ca1_fma.h"

/* Where to read: an index outside the n elements is the nearest one inside. */
CA1_INLINE int ca1_read_at(int64_t j, int n)
{
    if (j < 0) j += n;
    return j < 0 ? 0 : j >= n ? n - 1 : (int)j;
}

/* Where to write: -1, nowhere, for an index outside the n elements. */
CA1_INLINE int ca1_write_at(int64_t j, int n)
{
    if (j < 0) j += n;
    return j < 0 || j >= n ? -1 : (int)j;
}

/* A first position cut to where it makes no difference any more: outside [-n, n] nothing is written. */
CA1_INLINE int64_t ca1_start(int64_t j, int n) { return j < -n ? -n : j > n ? n : j; }

/* Order of values and of rows of values. ca1_above: NaN is above every number, -0 is +0. ca1_row_before: whether row p
 * comes before row q, ascending or descending in their first `columns` values compared one after another; of equal rows
 * the lower index comes first, so no two places are equal. ca1_first: the first k of n rows in that order into out, by a heap
 * that lives in out itself and has the last of the rows kept so far on top. */
#define CA1_ORDER(T, S)                                                                                              \
    CA1_INLINE int ca1_above_##S(T a, T b) { return a > b || (a != a && b == b); }                                   \
    CA1_INLINE int ca1_level_##S(T a, T b) { return a == b || (a != a && b != b); }                                  \
    CA1_INLINE int ca1_row_before_##S(const T *x, int step, int columns, int descending, int p, int q)               \
    {                                                                                                                \
        for (int c = 0; c < columns; c++) {                                                                          \
            const T a = x[p * step + c], b = x[q * step + c];                                                        \
            if (!ca1_level_##S(a, b)) return ca1_above_##S(a, b) == descending;                                      \
        }                                                                                                            \
        return p < q;                                                                                                \
    }                                                                                                                \
    CA1_INLINE void ca1_sink_##S(const T *x, int step, int columns, int descending, int size, int row, int64_t *out, \
                                 int out_step)                                                                       \
    {                                                                                                                \
        int at = 0;                                                                                                  \
        for (int down = 1; down < size; down = 2 * at + 1) {                                                         \
            int later = (int)out[down * out_step];                                                                   \
            if (down + 1 < size) {                                                                                   \
                const int other = (int)out[(down + 1) * out_step];                                                   \
                if (ca1_row_before_##S(x, step, columns, descending, later, other)) {                                \
                    later = other;                                                                                   \
                    down++;                                                                                          \
                }                                                                                                    \
            }                                                                                                        \
            if (!ca1_row_before_##S(x, step, columns, descending, row, later)) break;                                \
            out[at * out_step] = later;                                                                              \
            at = down;                                                                                               \
        }                                                                                                            \
        out[at * out_step] = row;                                                                                    \
    }                                                                                                                \
    CA1_INLINE void ca1_first_##S(const T *x, int n, int step, int columns, int descending, int k, int64_t *out,     \
                                  int out_step)                                                                      \
    {                                                                                                                \
        for (int row = 0; row < n; row++) {                                                                          \
            if (row >= k) {                                                                                          \
                if (ca1_row_before_##S(x, step, columns, descending, row, (int)out[0]))                              \
                    ca1_sink_##S(x, step, columns, descending, k, row, out, out_step);                               \
                continue;                                                                                            \
            }                                                                                                        \
            int at = row;                                                                                            \
            while (at > 0) {                                                                                         \
                const int up = (at - 1) / 2, above = (int)out[up * out_step];                                        \
                if (!ca1_row_before_##S(x, step, columns, descending, above, row)) break;                            \
                out[at * out_step] = above;                                                                          \
                at = up;                                                                                             \
            }                                                                                                        \
            out[at * out_step] = row;                                                                                \
        }                                                                                                            \
        for (int size = k - 1; size > 0; size--) {                                                                   \
            const int row = (int)out[size * out_step];                                                               \
            out[size * out_step] = out[0];                                                                           \
            ca1_sink_##S(x, step, columns, descending, size, row, out, out_step);                                    \
        }                                                                                                            \
    }
CA1_ORDER(float, f32)
CA1_ORDER(double, f64)
CA1_ORDER(int8_t, i8)
CA1_ORDER(int16_t, i16)
CA1_ORDER(int32_t, i32)
CA1_ORDER(int64_t, i64)
CA1_ORDER(uint8_t, u8)
CA1_ORDER(uint16_t, u16)
CA1_ORDER(uint32_t, u32)
CA1_ORDER(uint64_t, u64)
CA1_ORDER(uint8_t, b8)
#undef CA1_ORDER

/* Whether boxes a and b overlap by more than `threshold` (intersection over union), step by step as in section 14. A box is
 * two opposite corners (y, x, y, x) or, with `center`, (x, y, width, height). */
typedef struct {
    float low, high;
} ca1_range;
CA1_INLINE ca1_range ca1_side(const float *box, int side, int center)
{
    if (center) {
        const float half = box[2 + side] / 2.0f;
        return (ca1_range){box[side] - half, box[side] + half};
    }
    const float a = box[1 - side], b = box[3 - side];
    return a >= b ? (ca1_range){b, a} : (ca1_range){a, b};
}
CA1_INLINE int ca1_overlap(const float *a, const float *b, int center, float threshold)
{
    float shared[2], of_a[2], of_b[2];
    for (int side = 0; side < 2; side++) {
        const ca1_range ra = ca1_side(a, side, center), rb = ca1_side(b, side, center);
        const float low = rb.low > ra.low ? rb.low : ra.low, high = rb.high < ra.high ? rb.high : ra.high;
        if (high <= low) return 0;
        shared[side] = high - low;
        of_a[side] = ra.high - ra.low;
        of_b[side] = rb.high - rb.low;
    }
    const float both = shared[0] * shared[1];
    const float area_a = of_a[0] * of_a[1], area_b = of_b[0] * of_b[1], sum = area_a + area_b;
    const float either = sum - both;
    if (both <= 0.0f || area_a <= 0.0f || area_b <= 0.0f || either <= 0.0f) return 0;
    return both / either > threshold;
}

#endif

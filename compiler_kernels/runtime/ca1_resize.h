/* Resize where sizes, scales or the region are known at run time only (docs/arithmetic.md, section 7).
 *
 * Coordinates and weights are exact rationals in integers of 128 bits, and a weight is rounded once: the bits are those of
 * the tables that a compiler makes of known sizes. */
#ifndef CA1_RESIZE_H
#define CA1_RESIZE_H

#include <stdint.h>

#include "ca1_fma.h"

__extension__ typedef __int128 ca1_wide;

/* Long functions: called, not copied into every kernel. */
#define CA1_CALLED static __attribute__((unused, noinline)) CA1_DEVICE

enum {
    CA1_HALF_PIXEL,
    CA1_HALF_PIXEL_SYMMETRIC,
    CA1_PYTORCH_HALF_PIXEL,
    CA1_ALIGN_CORNERS,
    CA1_ASYMMETRIC,
    CA1_TF_HALF_PIXEL_FOR_NN
};
enum { CA1_PREFER_FLOOR, CA1_PREFER_CEIL, CA1_FLOOR, CA1_CEIL };

/* Output o of one axis lies at (a o + b) / d of its n elements; p / q is the scale, in lowest terms. An axis whose map is
 * the identity is left alone. */
typedef struct {
    ca1_wide a, b, d;
    int64_t p, q;
    int n, m, alone;
} ca1_axis;

/* The largest integer not above x / d, d > 0. The compiler's own division of 128 bits is a library function, which engines
 * are not linked with. */
CA1_CALLED ca1_wide ca1_floor_ratio(ca1_wide x, ca1_wide d)
{
    if (d <= INT64_MAX && x <= INT64_MAX && x >= INT64_MIN) {
        const int64_t s = (int64_t)x, t = (int64_t)d;
        return s / t - (s % t < 0);
    }
    ca1_wide rest = x < 0 ? -1 - x : x, found = 0; /* floor(-1 - y / d) = -1 - floor(y / d) for the y of negative x */
    int shift = 0;
    while (d <= rest >> 1) {
        d *= 2;
        shift++;
    }
    for (; shift >= 0; shift--) {
        found *= 2;
        if (rest >= d) {
            rest -= d;
            found++;
        }
        d >>= 1;
    }
    return x < 0 ? -1 - found : found;
}

CA1_INLINE int64_t ca1_rest(ca1_wide x, int64_t d) { return (int64_t)(x - ca1_floor_ratio(x, d) * d); }

CA1_CALLED int64_t ca1_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* x / d, 0 <= x and 0 < d, both below 2^125, in `bits` significant bits, of which the last is set where the quotient is not
 * exact: rounded to odd, so that the rounding to a format of at least two bits less is the only one. */
CA1_CALLED double ca1_quotient(ca1_wide x, ca1_wide d, int bits)
{
    if (x == 0) return 0.0;
    int exponent = 0;
    while (x >= d) {
        d *= 2;
        exponent++;
    }
    while (2 * x < d) {
        x *= 2;
        exponent--;
    }
    uint64_t q = 0; /* of x / d in [1/2, 1) */
    for (int k = 0; k < bits; k++) {
        x *= 2;
        q *= 2;
        if (x >= d) {
            x -= d;
            q++;
        }
    }
    q |= x != 0;
    return (double)q * ca1_double((ca1_u64)(1023 + exponent - bits) << 52);
}

/* x / d rounded once; x may be negative. */
CA1_CALLED float ca1_weight_f32(ca1_wide x, ca1_wide d)
{
    /* No quotient by a number below 2^29 is so close to the middle of two binary32 numbers that binary64 would meet it. */
    if (d < (1 << 29) && x < ((int64_t)1 << 53) && x > -((int64_t)1 << 53)) return (float)((double)(int64_t)x / (double)(int64_t)d);
    return (float)(x < 0 ? -ca1_quotient(-x, d, 50) : ca1_quotient(x, d, 50));
}

CA1_CALLED double ca1_weight_f64(ca1_wide x, ca1_wide d)
{
    if (d < ((int64_t)1 << 53) && x < ((int64_t)1 << 53) && x > -((int64_t)1 << 53)) return (double)(int64_t)x / (double)(int64_t)d;
    return x < 0 ? -ca1_quotient(-x, d, 60) : ca1_quotient(x, d, 60); /* 60 bits to 53: the conversion rounds */
}

/* The scale s as p / q in lowest terms; 1 / 1 and 0 for a scale outside [2^-14, 2^14]. */
CA1_CALLED int ca1_scale(float s, int64_t *p, int64_t *q)
{
    *p = *q = 1;
    if (!(s >= 0x1p-14f && s <= 0x1p14f)) return 0;
    const double whole = (double)s * 0x1p38; /* an integer: s has 24 bits down to 2^-38 at most */
    *p = (int64_t)whole;
    *q = (int64_t)1 << 38;
    while (*p % 2 == 0 && *q > 1) {
        *p /= 2;
        *q /= 2;
    }
    return 1;
}

/* The axis from n elements to m by the scale p / q. */
CA1_CALLED ca1_axis ca1_axis_of(int mode, int n, int m, int64_t p, int64_t q)
{
    const int64_t common = ca1_divisor(p, q);
    p /= common;
    q /= common;
    ca1_axis x = {2 * (ca1_wide)q, (ca1_wide)q - p, 2 * (ca1_wide)p, p, q, n, m, 0}; /* half_pixel */
    if (mode == CA1_HALF_PIXEL_SYMMETRIC) x.b += (ca1_wide)n * p - (ca1_wide)m * q;
    if (mode == CA1_TF_HALF_PIXEL_FOR_NN) x.b = q;
    if (mode == CA1_ASYMMETRIC) {
        x.a = q;
        x.b = 0;
        x.d = p;
    }
    if (mode == CA1_ALIGN_CORNERS) {
        x.a = n - 1;
        x.b = 0;
        x.d = m > 1 ? m - 1 : 1;
    }
    if (m == 1 && (mode == CA1_PYTORCH_HALF_PIXEL || mode == CA1_ALIGN_CORNERS)) x.a = x.b = 0;
    x.alone = n == m && ((x.b == 0 && (x.a == x.d || m == 1)) || (mode == CA1_TF_HALF_PIXEL_FOR_NN && p == q));
    return x;
}

/* tf_crop_and_resize from `start` to `end` of the axis; 0 for ends that are no multiples of 2^-40 below 2^10. */
CA1_CALLED int ca1_axis_crop(ca1_axis *x, float start, float end)
{
    const double s = (double)start * 0x1p40, e = (double)end * 0x1p40;
    const int n = x->n, m = x->m, good = s > -0x1p50 && s < 0x1p50 && e > -0x1p50 && e < 0x1p50 &&
                                         (double)(int64_t)s == s && (double)(int64_t)e == e;
    const ca1_wide first = good ? (int64_t)s : 0, last = good ? (int64_t)e : 0;
    x->a = m > 1 ? (last - first) * (n - 1) : 0;
    x->b = m > 1 ? first * (n - 1) * (m - 1) : (first + last) * (n - 1);
    x->d = ((ca1_wide)1 << (m > 1 ? 40 : 41)) * (m > 1 ? m - 1 : 1);
    while (x->a % 2 == 0 && x->b % 2 == 0 && x->d % 2 == 0) {
        x->a >>= 1; /* exact: nvcc divides 128 bits by way of an approximate reciprocal, which no kernel may hold */
        x->b >>= 1;
        x->d >>= 1;
    }
    x->alone = n == m && x->b == 0 && (x->a == x->d || m == 1);
    return good;
}

CA1_INLINE int ca1_axis_outside(const ca1_axis *x, int o)
{
    const ca1_wide at = x->a * o + x->b;
    return at < 0 || at > (x->n - 1) * x->d;
}

CA1_INLINE int ca1_within(ca1_wide i, int n) { return i < 0 ? 0 : i >= n ? n - 1 : (int)i; }

CA1_CALLED int ca1_axis_nearest(const ca1_axis *x, int o, int mode)
{
    if (x->alone) return o;
    const ca1_wide at = x->a * o + x->b;
    if (mode == CA1_FLOOR) return ca1_within(ca1_floor_ratio(at, x->d), x->n);
    if (mode == CA1_CEIL) return ca1_within(-ca1_floor_ratio(-at, x->d), x->n);
    if (mode == CA1_PREFER_CEIL) return ca1_within(ca1_floor_ratio(2 * at + x->d, 2 * x->d), x->n);
    return ca1_within(-ca1_floor_ratio(x->d - 2 * at, 2 * x->d), x->n);
}

/* T / D, the distance of a tap in units of the filter, times its denominator: 1 - t of the linear one, D; the cubic one with
 * coefficient A / B, B D^3. */
CA1_INLINE ca1_wide ca1_filter(ca1_wide t, ca1_wide d, int cubic, int64_t a, int64_t b)
{
    if (t < 0) t = -t;
    if (!cubic) return t < d ? d - t : 0;
    if (t <= d) return ((a + 2 * (ca1_wide)b) * t - (a + 3 * (ca1_wide)b) * d) * t * t + b * d * d * d;
    return t < 2 * d ? a * (((t - 5 * d) * t + 8 * d * d) * t - 4 * d * d * d) : 0;
}

/* Whether the cubic filter stays within 128 bits on this axis. */
CA1_INLINE int ca1_axis_cubic(const ca1_axis *x, int antialias)
{
    if (!antialias || x->p >= x->q) return x->d < (1 << 30);
    return x->q * ca1_floor_ratio(x->d, ca1_divisor(x->p, ca1_rest(x->d, x->p))) < (1 << 30);
}

/* Taps of output o: the number of them, the first index, and their weights, rounded once, by `weight`. `exclude`: taps
 * outside the axis do not exist, and the others are normalised. At most `most` of them. */
#define CA1_TAPS(T, S)                                                                                                 \
    CA1_CALLED int ca1_axis_taps_##S(const ca1_axis *x, int o, int cubic, int antialias, int exclude, int64_t a,       \
                                     int64_t b, int most, int *first, T *weights)                                      \
    {                                                                                                                  \
        const ca1_wide at = x->a * o + x->b;                                                                           \
        const int shrinks = antialias && x->p < x->q, reach = cubic ? 2 : 1;                                           \
        const int64_t p = shrinks ? x->p : 1, q = shrinks ? x->q : 1, common = ca1_divisor(p, ca1_rest(x->d, p));      \
        const ca1_wide unit = p / common, d = q * ca1_floor_ratio(x->d, common);                                       \
        ca1_wide low = ca1_floor_ratio(at * p - reach * q * x->d, p * x->d) + 1;                                       \
        ca1_wide high = -ca1_floor_ratio(-(at * p + reach * q * x->d), p * x->d) - 1;                                  \
        if (!antialias) {                                                                                              \
            low = ca1_floor_ratio(at, x->d) - 1;                                                                       \
            high = low + 3;                                                                                            \
        }                                                                                                              \
        if (exclude && low < 0) low = 0;                                                                               \
        if (exclude && high >= x->n) high = x->n - 1;                                                                  \
        const int count = high < low ? 0 : high - low >= most ? most : (int)(high - low + 1);                          \
        ca1_wide sum = 0;                                                                                              \
        for (int k = 0; k < count; k++) sum += ca1_filter(unit * ((low + k) * x->d - at), d, cubic, a, b);             \
        if ((!exclude && !antialias) || sum == 0) sum = cubic ? b * d * d * d : d;                                     \
        const ca1_wide sign = sum < 0 ? -1 : 1;                                                                        \
        for (int k = 0; k < count; k++)                                                                                \
            weights[k] =                                                                                               \
                ca1_weight_##S(sign * ca1_filter(unit * ((low + k) * x->d - at), d, cubic, a, b), sign * sum);         \
        *first = (int)low;                                                                                             \
        return count;                                                                                                  \
    }                                                                                                                  \
    /* The lower of two neighbours and their weights. */                                                               \
    CA1_CALLED int ca1_axis_linear_##S(const ca1_axis *x, int o, T *weights)                                           \
    {                                                                                                                  \
        const ca1_wide end = (x->n - 1) * x->d;                                                                        \
        ca1_wide at = x->a * o + x->b;                                                                                 \
        if (at < 0) at = 0;                                                                                            \
        if (at > end) at = end;                                                                                        \
        const ca1_wide low = ca1_floor_ratio(at, x->d), rest = at - low * x->d;                                        \
        weights[0] = ca1_weight_##S(x->d - rest, x->d);                                                                \
        weights[1] = ca1_weight_##S(rest, x->d);                                                                       \
        return x->alone ? o : (int)low;                                                                                \
    }
CA1_TAPS(float, f32)
CA1_TAPS(double, f64)
#undef CA1_TAPS

#endif

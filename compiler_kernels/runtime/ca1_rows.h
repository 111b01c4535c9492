/* Canonical Arithmetic 1: rows whose size is known at run time, in the 16 virtual lanes of section 4 of
 * docs/arithmetic.md. The same bits as ca1_sum.h, for the vector width in force. Include with CA1_VL greater than 1. */
#include "ca1_math.h"
#include "ca1_part.h"

#if (CA1_VL == 16 && !defined(CA1_ROWS_16)) || (CA1_VL == 8 && !defined(CA1_ROWS_8)) || \
    (CA1_VL == 4 && !defined(CA1_ROWS_4))
#if CA1_VL == 16
#define CA1_ROWS_16
#elif CA1_VL == 8
#define CA1_ROWS_8
#else
#define CA1_ROWS_4
#endif
#define F CA1_N(f32)
#define PARTS (16 / CA1_VL)

/* 16 lanes folded 8, 4, 2 and 1 apart. */
CA1_FN float CA1_N(row_fold)(const F *a, int largest)
{
    float lane[16];
    for (int p = 0; p < PARTS; p++) CA1_N(store)(lane + p * CA1_VL, a[p]);
    for (int apart = 8; apart >= 1; apart /= 2)
        for (int j = 0; j < apart; j++)
            lane[j] = largest > 0   ? ca1_max_v1(lane[j], lane[j + apart])
                      : largest < 0 ? ca1_min_v1(lane[j], lane[j + apart])
                                    : lane[j] + lane[j + apart];
    return lane[0];
}

/* The largest (sign 1) or least (sign -1) of n values, from the infinity of the other sign. */
static CA1_TARGET __attribute__((unused, noinline)) float CA1_N(row_extreme)(const float *x, int n, int sign)
{
    const float absent = sign > 0 ? -__builtin_inff() : __builtin_inff();
    const int whole = n / 16 * 16;
    F a[PARTS];
    float part[16];
    for (int l = 0; l < 16; l++) part[l] = absent;
    for (int k = whole; k < n; k++) part[k - whole] = x[k];
    for (int p = 0; p < PARTS; p++) a[p] = CA1_N(set1)(absent);
    if (sign > 0) {
        for (int k = 0; k < whole; k += 16)
            for (int p = 0; p < PARTS; p++) a[p] = CA1_N(max)(a[p], CA1_N(load)(x + k + p * CA1_VL));
        for (int p = 0; p < PARTS; p++) a[p] = CA1_N(max)(a[p], CA1_N(load)(part + p * CA1_VL));
    } else {
        for (int k = 0; k < whole; k += 16)
            for (int p = 0; p < PARTS; p++) a[p] = CA1_N(min)(a[p], CA1_N(load)(x + k + p * CA1_VL));
        for (int p = 0; p < PARTS; p++) a[p] = CA1_N(min)(a[p], CA1_N(load)(part + p * CA1_VL));
    }
    return CA1_N(row_fold)(a, sign);
}

/* The sum of n values, or of the squares of what they differ from shift: leaves of 64 in every lane, radix-8 tree. */
static CA1_TARGET __attribute__((unused, noinline)) float CA1_N(row_sum)(const float *x, int n, int what, float shift)
{
    F node[8][PARTS], a[PARTS];
    int count[8] = {0};
    const F s = CA1_N(set1)(shift);
    for (int first = 0; first < n; first += 1024) {
        const int stop = first + 1024 < n ? first + 1024 : n;
        int k = first;
        for (int p = 0; p < PARTS; p++) a[p] = CA1_N(set1)(0.0f);
        if (what == CA1_PLAIN)
            for (; k + 16 <= stop; k += 16)
                for (int p = 0; p < PARTS; p++) a[p] = CA1_N(add)(a[p], CA1_N(load)(x + k + p * CA1_VL));
        else
            for (; k + 16 <= stop; k += 16)
                for (int p = 0; p < PARTS; p++) {
                    const F d = CA1_N(sub)(CA1_N(load)(x + k + p * CA1_VL), s);
                    a[p] = CA1_N(fma)(d, d, a[p]);
                }
        if (k < stop) {
            float part[16] = {0.0f};
            for (int l = k; l < stop; l++) part[l - k] = what == CA1_PLAIN ? x[l] : x[l] - shift;
            for (int p = 0; p < PARTS; p++) {
                const F d = CA1_N(load)(part + p * CA1_VL);
                a[p] = what == CA1_PLAIN ? CA1_N(add)(a[p], d) : CA1_N(fma)(d, d, a[p]);
            }
        }
        for (int level = 0; level < 8; level++) {
            for (int p = 0; p < PARTS; p++) node[level][p] = count[level] ? CA1_N(add)(node[level][p], a[p]) : a[p];
            if (++count[level] < 8) break;
            count[level] = 0;
            for (int p = 0; p < PARTS; p++) a[p] = node[level][p];
        }
    }
    for (int p = 0; p < PARTS; p++) a[p] = CA1_N(set1)(0.0f);
    for (int level = 0, started = 0; level < 8; level++) {
        if (!count[level]) continue;
        for (int p = 0; p < PARTS; p++) a[p] = started ? CA1_N(add)(node[level][p], a[p]) : node[level][p];
        started = 1;
    }
    return CA1_N(row_fold)(a, 0);
}

/* y = softmax of n contiguous values, or its logarithm; y is not x. */
static CA1_TARGET __attribute__((unused, noinline)) void CA1_N(row_softmax)(const float *x, float *y, int n, int log)
{
    const float m = CA1_N(row_extreme)(x, n, 1);
    const F mv = CA1_N(set1)(m);
    for (int k = 0; k < n; k += CA1_VL) {
        const unsigned bits = ca1_first(n - k, CA1_VL);
        const F e = CA1_N(exp_nonpositive)(CA1_N(sub)(CA1_N(load_bits)(x + k, bits), mv));
        CA1_N(store_bits)(y + k, e, bits);
    }
    const float s = log ? ca1_log(CA1_N(row_sum)(y, n, CA1_PLAIN, 0.0f)) : CA1_N(row_sum)(y, n, CA1_PLAIN, 0.0f);
    const F sv = CA1_N(set1)(s);
    for (int k = 0; k < n; k += CA1_VL) {
        const unsigned bits = ca1_first(n - k, CA1_VL);
        const F v = CA1_N(load_bits)((log ? x : y) + k, bits);
        CA1_N(store_bits)(y + k, log ? CA1_N(sub)(CA1_N(sub)(v, mv), sv) : CA1_N(div)(v, sv), bits);
    }
}
/* The sum over n positions, stride floats apart, of neighbouring columns: leaves of 64, radix-8 tree. */
static CA1_TARGET __attribute__((unused, noinline)) F CA1_N(column_sum)(const float *x, int n, long stride, unsigned bits)
{
    F node[8], a = CA1_N(set1)(0.0f);
    int count[8] = {0};
    for (int first = 0; first < n; first += 64) {
        const int stop = first + 64 < n ? first + 64 : n;
        a = CA1_N(set1)(0.0f);
        for (int k = first; k < stop; k++) a = CA1_N(add)(a, CA1_N(load_bits)(x + k * stride, bits));
        for (int level = 0; level < 8; level++) {
            node[level] = count[level] ? CA1_N(add)(node[level], a) : a;
            if (++count[level] < 8) break;
            count[level] = 0;
            a = node[level];
        }
    }
    a = CA1_N(set1)(0.0f);
    for (int level = 0, started = 0; level < 8; level++) {
        if (!count[level]) continue;
        a = started ? CA1_N(add)(node[level], a) : node[level];
        started = 1;
    }
    return a;
}
#undef F
#undef PARTS
#endif

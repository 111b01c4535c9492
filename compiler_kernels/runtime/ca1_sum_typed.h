/* Canonical Arithmetic 1: the tree and the two orders of ca1_sum.h for binary64 sums (_f64) and for products of binary32
 * and binary64 values (_product, _product_f64). An empty product, and an absent lane of one, is 1. */
#ifndef CA1_SUM_TYPED_H
#define CA1_SUM_TYPED_H

#include <stdint.h>

#include "ca1_sum.h"

CA1_INLINE double ca1_fma64(double a, double b, double c) { return __builtin_fma(a, b, c); }

#define CA1_TREE(T, S, OP, NOTHING)                                                                    \
    typedef struct {                                                                                   \
        T node[CA1_TREE_LEVELS];                                                                       \
        int count[CA1_TREE_LEVELS];                                                                    \
    } ca1_tree##S;                                                                                     \
    CA1_INLINE void ca1_tree_init##S(ca1_tree##S *tree)                                                \
    {                                                                                                  \
        for (int level = 0; level < CA1_TREE_LEVELS; level++) tree->count[level] = 0;                  \
    }                                                                                                  \
    CA1_INLINE void ca1_tree_push##S(ca1_tree##S *tree, T value)                                       \
    {                                                                                                  \
        for (int level = 0; level < CA1_TREE_LEVELS; level++) {                                        \
            tree->node[level] = tree->count[level] ? tree->node[level] OP value : value;               \
            if (++tree->count[level] < 8) return;                                                      \
            tree->count[level] = 0;                                                                    \
            value = tree->node[level];                                                                 \
        }                                                                                              \
    }                                                                                                  \
    CA1_INLINE T ca1_tree_sum##S(const ca1_tree##S *tree)                                              \
    {                                                                                                  \
        T sum = NOTHING;                                                                               \
        int started = 0;                                                                               \
        for (int level = 0; level < CA1_TREE_LEVELS; level++) {                                        \
            if (!tree->count[level]) continue;                                                         \
            sum = started ? tree->node[level] OP sum : tree->node[level];                              \
            started = 1;                                                                               \
        }                                                                                              \
        return sum;                                                                                    \
    }
CA1_TREE(double, _f64, +, 0.0)
CA1_TREE(float, _product, *, 1.0f)
CA1_TREE(double, _product_f64, *, 1.0)
#undef CA1_TREE

CA1_INLINE double ca1_accumulate_f64(int what, double x, double shift, double acc)
{
    if (what == CA1_PLAIN) return acc + x;
    const double d = x - shift;
    return ca1_fma64(d, d, acc);
}

/* By positions: leaves of 64 consecutive terms, then the tree. Term k is x[k * stride]. */
CA1_DEVICE static inline double ca1_sum_positions_f64(const double *x, int n, int stride, int what, double shift)
{
    ca1_tree_f64 tree;
    ca1_tree_init_f64(&tree);
    for (int start = 0; start < n; start += 64) {
        const int stop = start + 64 < n ? start + 64 : n;
        double acc = 0.0;
        for (int k = start; k < stop; k++) acc = ca1_accumulate_f64(what, x[(int64_t)k * stride], shift, acc);
        ca1_tree_push_f64(&tree, acc);
    }
    return ca1_tree_sum_f64(&tree);
}

/* In 16 lanes, lane j takes terms j, j+16, ...; then lanes 8, 4, 2, 1 apart are added. */
CA1_DEVICE static inline double ca1_sum_lanes_f64(const double *x, int n, int what, double shift)
{
    double lane[16];
    for (int j = 0; j < 16; j++) lane[j] = ca1_sum_positions_f64(x + j, n > j ? (n - j + 15) / 16 : 0, 16, what, shift);
    for (int apart = 8; apart >= 1; apart /= 2)
        for (int j = 0; j < apart; j++) lane[j] = lane[j] + lane[j + apart];
    return lane[0];
}

#define CA1_PRODUCT(T, S)                                                                              \
    CA1_DEVICE static inline T ca1_product_positions##S(const T *x, int n, int stride)                 \
    {                                                                                                  \
        ca1_tree_product##S tree;                                                                      \
        ca1_tree_init_product##S(&tree);                                                               \
        for (int start = 0; start < n; start += 64) {                                                  \
            const int stop = start + 64 < n ? start + 64 : n;                                          \
            T acc = 1;                                                                                 \
            for (int k = start; k < stop; k++) acc = acc * x[(int64_t)k * stride];                     \
            ca1_tree_push_product##S(&tree, acc);                                                      \
        }                                                                                              \
        return ca1_tree_sum_product##S(&tree);                                                         \
    }                                                                                                  \
    CA1_DEVICE static inline T ca1_product_lanes##S(const T *x, int n)                                 \
    {                                                                                                  \
        T lane[16];                                                                                    \
        for (int j = 0; j < 16; j++)                                                                   \
            lane[j] = ca1_product_positions##S(x + j, n > j ? (n - j + 15) / 16 : 0, 16);              \
        for (int apart = 8; apart >= 1; apart /= 2)                                                    \
            for (int j = 0; j < apart; j++) lane[j] = lane[j] * lane[j + apart];                       \
        return lane[0];                                                                                \
    }
CA1_PRODUCT(float, )
CA1_PRODUCT(double, _f64)
#undef CA1_PRODUCT

#endif

/* Canonical Arithmetic 1: the radix-8 summation tree and the two orders of pure sums (docs/arithmetic.md).
 *
 * A node is the left-to-right sum of at most eight children; a node with one child is that child. Pushing leaves
 * one by one keeps one open node per level. */
#ifndef CA1_SUM_H
#define CA1_SUM_H

#include "ca1_fma.h"

#ifndef CA1_DEVICE
#define CA1_DEVICE
#endif

#define CA1_TREE_LEVELS 8 /* 8^8 leaves of 64 terms: more than any tensor that fits an address space of 2^31 floats */

typedef struct {
    float node[CA1_TREE_LEVELS];
    int count[CA1_TREE_LEVELS];
} ca1_tree;

CA1_DEVICE static inline void ca1_tree_init(ca1_tree *tree) {
    for (int level = 0; level < CA1_TREE_LEVELS; level++) tree->count[level] = 0;
}

CA1_DEVICE static inline void ca1_tree_push(ca1_tree *tree, float value) {
    for (int level = 0; level < CA1_TREE_LEVELS; level++) {
        tree->node[level] = tree->count[level] ? tree->node[level] + value : value;
        if (++tree->count[level] < 8) return;
        tree->count[level] = 0;
        value = tree->node[level];
    }
}

/* Value of the tree; +0 when nothing was pushed. */
CA1_DEVICE static inline float ca1_tree_sum(const ca1_tree *tree) {
    float sum = 0.0f;
    int started = 0;
    for (int level = 0; level < CA1_TREE_LEVELS; level++) {
        if (!tree->count[level]) continue;
        sum = started ? tree->node[level] + sum : tree->node[level];
        started = 1;
    }
    return sum;
}

/* What is summed: the terms themselves, or the squares of (term - shift). */
enum { CA1_PLAIN = 0, CA1_SQUARES = 1 };

CA1_DEVICE static inline float ca1_accumulate(int what, float x, float shift, float acc) {
    if (what == CA1_PLAIN) return acc + x;
    const float d = x - shift;
    return ca1_fmaf(d, d, acc);
}

/* Sum in position order: leaves of 64 consecutive terms, then the tree. Term k is x[k * stride]. */
CA1_DEVICE static inline float ca1_sum_positions(const float *x, int n, int stride, int what, float shift) {
    ca1_tree tree;
    ca1_tree_init(&tree);
    for (int start = 0; start < n; start += 64) {
        const int stop = start + 64 < n ? start + 64 : n;
        float acc = 0.0f;
        for (int k = start; k < stop; k++) acc = ca1_accumulate(what, x[(long)k * stride], shift, acc);
        ca1_tree_push(&tree, acc);
    }
    return ca1_tree_sum(&tree);
}

/* Sum of a contiguous row: 16 lanes, lane j takes terms j, j+16, ...; each lane by leaves of 64 and the tree; then
 * lanes 8, 4, 2, 1 apart are added. An absent lane is +0. */
CA1_DEVICE static inline float ca1_sum_lanes(const float *x, int n, int what, float shift) {
    float lane[16];
    for (int j = 0; j < 16; j++) {
        const int terms = n > j ? (n - j + 15) / 16 : 0;
        lane[j] = ca1_sum_positions(x + j, terms, 16, what, shift);
    }
    for (int apart = 8; apart >= 1; apart /= 2)
        for (int j = 0; j < apart; j++) lane[j] = lane[j] + lane[j + apart];
    return lane[0];
}

#endif

/* Helpers of the vector kernels: zeroing halos, masking the padded channels of a block of 16, tree nodes in memory. */
#ifndef CA1_TILE_H
#define CA1_TILE_H

#include "ca1_fma.h"

/* All ones in the first 16 lanes, zero after: the mask of n channels of a block, from lane l on, starts at 16 - n + l. */
CA1_CONSTANT union {
    ca1_i32 bits[32];
    float lanes[32];
} ca1_mask = {{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}};

CA1_INLINE void ca1_zero(float *y, int n) { __builtin_memset(y, 0, (unsigned long)n * sizeof *y); }

/* Zero the halo between a row and the row before it: `side` floats within a plane, `above` from plane to plane, `front`
 * before the first row, and as many after the last one. So every float of the halo belongs to exactly one row. */
CA1_INLINE void ca1_halo(float *row, int d, int h, int last, int side, int above, int front, int length)
{
    const int gap = h ? side : d ? above : front;
    ca1_zero(row - gap, gap);
    if (last) ca1_zero(row + length, front);
}

/* One child more for n nodes of the summation tree. */
CA1_INLINE void ca1_node(float *node, const float *child, int n, int first)
{
    for (int i = 0; i < n; i++) node[i] = first ? child[i] : node[i] + child[i];
}

#endif

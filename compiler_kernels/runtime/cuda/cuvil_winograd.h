/* Winograd forms of a convolution (docs/arithmetic.md, 3.6 to 3.9): W23 for planes, W1-23 for lines.
 *
 * P holds the constants (targets/cuda/families/winograd.py) and finish(). A block transforms the inputs of T tiles for LW
 * leaves at a time into shared memory, sums the products of its positions, a warp per position and leaf, and transforms the
 * sums. A plane has 16 positions, of which a block takes NB columns; blocks that share tiles, by columns or by nodes of the
 * tree, meet in the workspace, and the one that comes last makes the outputs.
 * Weights are transformed already, or of a plane (TAPS) the 3x3 taps, which the block transforms for itself. */
#ifndef CUVIL_WINOGRAD_H
#define CUVIL_WINOGRAD_H

#include "cuvil_product.h"
#include "cuvil_taps.h"

template <class P> struct cuvil_winograd {
    static constexpr bool PLANE = P::AXES == 2;
    static constexpr int POSITIONS = PLANE ? 16 : 4, COLUMNS = PLANE ? P::NB : 1, LOCAL = 4 * COLUMNS, PARTS = PLANE ? 4 / P::NB : 1;
    static constexpr int LP = 32 / P::LO, T = LP * P::TP, OCB = P::LO * 4 * P::TQ, OCBS = OCB / 16, QUADS = OCB / 4;
    static constexpr int WARPS = LOCAL * P::LW, THREADS = 32 * WARPS;
    static constexpr int LEAVES = cuvil_ceil(P::UNITS, P::PER), NODES = cuvil_ceil(LEAVES, 8), LEVELS = cuvil_levels(LEAVES);
    static constexpr int ROUNDS = cuvil_ceil(LEAVES, P::LW), SHARE = cuvil_ceil(ROUNDS, P::G), MEMBERS = PARTS * P::G;
    static_assert(P::G == 1 || SHARE * P::LW % 8 == 0, "blocks that share a sum take whole nodes");
    static constexpr int UNITS_PER = P::PER < P::UNITS ? P::PER : P::UNITS; /* most units of a leaf */
    static constexpr int VP = UNITS_PER * 8 + 4, SPAN = 2 * (T - 1) + 3 * (P::GROUPS - 1) + 2;
    static constexpr int AREA = PLANE ? T * VP : SPAN * VP, AREAS = PLANE ? LOCAL : 3;
    static constexpr int V_FLOATS = P::LW * AREAS * AREA, M_FLOATS = WARPS * T * OCB;
    static constexpr bool MEET = P::LW > 1 || MEMBERS == 1; /* sums lie in shared memory once */
    static constexpr int FIRST = V_FLOATS > (MEET ? M_FLOATS : 0) ? V_FLOATS : M_FLOATS;
    static constexpr int SLICE = UNITS_PER * P::GROUPS * 128 + 16, U_FLOATS = WARPS * OCBS * SLICE,
                         SHARED = 4 * (FIRST + P::BUFFERS * U_FLOATS);
    /* (output, channel) pairs of a round whose taps a block transforms, and how many of them a thread. */
    static constexpr int PAIRS = P::LW * UNITS_PER * OCBS * 128, EACH = P::TAPS ? cuvil_ceil(PAIRS, THREADS) : 1;
    static_assert(!P::TAPS || PLANE, "taps of a line are transformed at compile time");
    /* A thread's values of x for the next round wait in registers where it has one piece only (and few taps). */
    static constexpr bool EARLY =
        PLANE && (P::NB == 1 || P::TP * P::TQ <= 3) && EACH <= 2 && SHARE > 1 && P::LW * T * UNITS_PER * 2 <= THREADS;
    static constexpr int OWN = P::LW > 1 ? cuvil_ceil(P::TP * P::TQ, P::LW) : P::TP * P::TQ;
    static constexpr int TILE_GROUPS = PLANE ? cuvil_ceil(P::N * P::TILES, T) : P::N * cuvil_ceil(P::TILES, T);
    static constexpr int SUMS = TILE_GROUPS * cuvil_ceil(P::BLOCKS, OCBS), GRID = SUMS * MEMBERS;
    static constexpr int KEPT = P::G > 1 ? NODES : 1; /* values per sum in the workspace */
    static constexpr long WORKSPACE = MEMBERS > 1 ? (long)SUMS * KEPT * POSITIONS * T * QUADS * 16 : 0;

    /* Tile number i of group g: image, row and column of its first output. */
    struct tile {
        int n, row, column;
        bool exists;
    };
    CUVIL_FN tile tile_at(int group, int i)
    {
        tile t;
        if (PLANE) {
            int at = group * T + i;
            t.exists = at < P::N * P::TILES;
            at = t.exists ? at : P::N * P::TILES - 1;
            t.n = at / P::TILES;
            t.row = at % P::TILES / P::TILE_COLUMNS * 2;
            t.column = at % P::TILES % P::TILE_COLUMNS * 2;
        } else {
            constexpr int EACH = cuvil_ceil(P::TILES, T);
            t.n = group / EACH;
            t.row = 0;
            t.column = (group % EACH * T + i) * 2;
            t.exists = t.column < 2 * P::TILES;
        }
        return t;
    }

    CUVIL_FN int units(int leaf) { return P::UNITS - leaf * P::PER < P::PER ? P::UNITS - leaf * P::PER : P::PER; }

    /* This warp's weights of its leaf of a round. */
    CUVIL_FN void copy_weights(int round, int block, int part, float *u, const float *w)
    {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, leaf = round * P::LW + warp / LOCAL;
        if (leaf >= LEAVES) return;
        const int local = warp % LOCAL, position = PLANE ? local / COLUMNS * 4 + part * P::NB + local % COLUMNS : local;
        const int pieces = units(leaf) * P::GROUPS * 32;
        CUVIL_UNROLL for (int b = 0; b < OCBS; b++) {
            const bool kept = block + b < P::BLOCKS;
            const float *from = w + (((long)(kept ? block + b : 0) * POSITIONS + position) * P::UNITS + leaf * P::PER) * P::GROUPS * 128;
            float *slice = u + (warp * OCBS + b) * SLICE;
            for (int e = lane; e < pieces; e += 32) cuvil_copy_async<16>(slice + e * 4, from + e * 4, kept);
        }
    }

    /* Where pair number i of this thread lies: leaf of the round, block, and unit, channel and output within the leaf. */
    struct pair {
        int way, block, at;
        bool exists;
    };
    CUVIL_FN pair pair_at(int i)
    {
        const int e = i * THREADS + threadIdx.x;
        return {e / (UNITS_PER * 128 * OCBS), e / (UNITS_PER * 128) % OCBS, e % (UNITS_PER * 128), PAIRS % THREADS == 0 || e < PAIRS};
    }

    /* This thread's taps of a round from memory. */
    CUVIL_FN void load_taps(float (&g)[EACH][9], int round, int end, int block, const float *w)
    {
        CUVIL_UNROLL for (int i = 0; i < EACH; i++) {
            const pair p = pair_at(i);
            const int unit = (round * P::LW + p.way) * P::PER + p.at / 128;
            const bool kept = round < end && p.exists && unit < P::UNITS && block + p.block < P::BLOCKS;
            const float *from = w + ((long)(block + p.block) * P::UNITS + unit) * 9 * 128 + p.at % 128;
            CUVIL_UNROLL for (int k = 0; k < 9; k++) g[i][k] = kept ? from[k * 128] : 0.0f;
        }
    }

    /* Their transforms (3.8, U) into the slices of the warps. */
    CUVIL_FN void store_taps(const float (&g)[EACH][9], int part, float *u)
    {
        CUVIL_UNROLL for (int i = 0; i < EACH; i++) {
            const pair p = pair_at(i);
            if (!p.exists) continue;
            float *to = u + (p.way * LOCAL * OCBS + p.block) * SLICE + p.at;
            cuvil_transform_taps<P::NB, OCBS * SLICE>(g[i], part, to);
        }
    }

    /* Values 0 to 3 along one axis (3.7). */
    CUVIL_FN float4 v_of(int j, float4 d0, float4 d1, float4 d2, float4 d3)
    {
        return j == 0 ? cuvil_sub4(d0, d2) : j == 1 ? cuvil_add4(d1, d2) : j == 2 ? cuvil_sub4(d2, d1) : cuvil_sub4(d1, d3);
    }
    CUVIL_FN float4 y0_of(float4 m0, float4 m1, float4 m2) { return cuvil_add4(cuvil_add4(m0, m1), m2); }
    CUVIL_FN float4 y1_of(float4 m1, float4 m2, float4 m3) { return cuvil_sub4(cuvil_sub4(m1, m2), m3); }

    /* The 4x4 values of x of piece e of a round; of one column of a plane only those it takes. `false`: nothing there. */
    CUVIL_FN bool load_plane(float4 (&r)[4][4], int e, int round, int group, int part, const float *x)
    {
        constexpr int PIECES = UNITS_PER * 2;
        const int piece = e % PIECES, i = e / PIECES % T, leaf = round * P::LW + e / (PIECES * T);
        const int unit = leaf * P::PER + piece / 2;
        if (unit >= P::UNITS) return false;
        const tile t = tile_at(group, i);
        const float *d = x + (long)t.n * P::XN + P::ORIGIN + (unit >> 1) * P::XB + (unit & 1) * 8 + (piece & 1) * 4 +
                         t.row * P::XR + t.column * 16;
        if (P::NB == 1) { /* columns 0 and 2, 1 and 2, or 1 and 3, as columns 0 and 1 of r */
            const int first = part == 0 ? 0 : 16, second = part == 3 ? 48 : 32;
            CUVIL_UNROLL for (int k = 0; k < 4; k++) {
                r[0][k] = cuvil_load4(d + k * P::XR + first);
                r[1][k] = cuvil_load4(d + k * P::XR + second);
            }
            return true;
        }
        CUVIL_UNROLL for (int j = 0; j < 4; j++) {
            if (P::NB == 2 && j == (part == 0 ? 3 : 0)) continue;
            CUVIL_UNROLL for (int k = 0; k < 4; k++) r[j][k] = cuvil_load4(d + k * P::XR + j * 16);
        }
        return true;
    }

    /* Along the height, then along the width, into shared memory. */
    CUVIL_FN void store_plane(float4 (&r)[4][4], int e, int part, float *v)
    {
        constexpr int PIECES = UNITS_PER * 2;
        float *to = v + e / (PIECES * T) * AREAS * AREA + e / PIECES % T * VP + e % PIECES * 4;
        CUVIL_UNROLL for (int a = 0; a < 4; a++) {
            float4 c[4];
            CUVIL_UNROLL for (int j = 0; j < 4; j++) c[j] = v_of(a, r[j][0], r[j][1], r[j][2], r[j][3]);
            if (P::NB == 1) {
                const float4 sum = cuvil_add4(c[0], c[1]), less = part == 2 ? cuvil_sub4(c[1], c[0]) : cuvil_sub4(c[0], c[1]);
                cuvil_store4(to + a * AREA, part == 1 ? sum : less);
            } else
                CUVIL_UNROLL for (int j = 0; j < P::NB; j++)
                    cuvil_store4(to + (a * P::NB + j) * AREA, v_of(part * P::NB + j, c[0], c[1], c[2], c[3]));
        }
    }

    CUVIL_FN void transform_plane(int round, int group, int part, float *v, const float *x)
    {
        for (int e = threadIdx.x; e < P::LW * T * UNITS_PER * 2; e += THREADS) {
            float4 r[4][4];
            if (load_plane(r, e, round, group, part, x)) store_plane(r, e, part, v);
        }
    }

    /* Three arrays over starting positions s: x(s) - x(s+2), x(s) + x(s+1), x(s+1) - x(s). */
    CUVIL_FN void transform_line(int round, int group, float *v, const float *x)
    {
        constexpr int PIECES = UNITS_PER * 2, ALL = P::LW * SPAN * PIECES, LAST = 2 * (P::TILES - 1) + 3 * (P::GROUPS - 1) + 3;
        const tile first = tile_at(group, 0);
        for (int e = threadIdx.x; e < ALL; e += THREADS) {
            const int piece = e % PIECES, s = e / PIECES % SPAN, way = e / (PIECES * SPAN);
            const int unit = (round * P::LW + way) * P::PER + piece / 2, at = first.column + s;
            if (unit >= P::UNITS) continue;
            const float *d = x + (long)first.n * P::XN + P::ORIGIN + (unit >> 1) * P::XB + (unit & 1) * 8 + (piece & 1) * 4;
            float4 r[3];
            CUVIL_UNROLL for (int k = 0; k < 3; k++) r[k] = cuvil_load4(d + (at + k < LAST ? at + k : LAST) * 16);
            float *to = v + way * AREAS * AREA + s * VP + piece * 4;
            cuvil_store4(to, cuvil_sub4(r[0], r[2]));
            cuvil_store4(to + AREA, cuvil_add4(r[0], r[1]));
            cuvil_store4(to + 2 * AREA, cuvil_sub4(r[1], r[0]));
        }
    }

    CUVIL_FN void leaf_sum(float4 (&a)[P::TP][P::TQ], int leaf, const float *v, const float *u)
    {
        constexpr int COLUMN = (PLANE ? 1 : 2) * LP * VP, QUAD = 2 * SLICE;
        CUVIL_UNROLL for (int p = 0; p < P::TP; p++)
            CUVIL_UNROLL for (int q = 0; q < P::TQ; q++) a[p][q] = cuvil_zero4();
        if (PLANE && P::UNITS % UNITS_PER == 0) {
            cuvil_taps<UNITS_PER, 8, P::TQ, P::TP, P::TP, 0, COLUMN, QUAD>(a, v, u);
            return;
        }
        const int count = units(leaf);
        CUVIL_ROLLED for (int k = 0; k < count; k++, u += P::GROUPS * 128)
            cuvil_taps<P::GROUPS, 3 * VP, P::TQ, P::TP, P::TP, 0, COLUMN, QUAD>(a, v + k * 8, u);
    }

    /* Where quad number `own` of this thread lies among the block's sums: (local position * T + tile) * QUADS + quad. */
    CUVIL_FN int owned(int own)
    {
        if (P::LW > 1) return own * THREADS + threadIdx.x;
        return spot(threadIdx.x / 32, own / P::TQ, own % P::TQ);
    }
    CUVIL_FN int spot(int area, int p, int q)
    {
        return (area * T + p * LP + cuvil_lane_pixel<P::LO>()) * QUADS + q * P::LO + cuvil_lane_quad<P::LO>();
    }

    template <class... Operands>
    CUVIL_FN void outputs(const float4 (&m)[POSITIONS], const tile &t, int oc, float *y, Operands... operands)
    {
        if (!t.exists || oc >= P::BLOCKS * 16) return;
        if (PLANE) {
            float4 s[2][4];
            CUVIL_UNROLL for (int b = 0; b < 4; b++) {
                s[0][b] = y0_of(m[b], m[4 + b], m[(8 + b) % POSITIONS]);
                s[1][b] = y1_of(m[4 + b], m[(8 + b) % POSITIONS], m[(12 + b) % POSITIONS]);
            }
            CUVIL_UNROLL for (int a = 0; a < 2; a++) {
                if (t.row + a >= P::H) break;
                P::finish(y0_of(s[a][0], s[a][1], s[a][2]), t.n, oc, 0, t.row + a, t.column, y, operands...);
                if (t.column + 1 < P::W)
                    P::finish(y1_of(s[a][1], s[a][2], s[a][3]), t.n, oc, 0, t.row + a, t.column + 1, y, operands...);
            }
        } else {
            P::finish(y0_of(m[0], m[1], m[2]), t.n, oc, 0, 0, t.column, y, operands...);
            if (t.column + 1 < P::W) P::finish(y1_of(m[1], m[2], m[3]), t.n, oc, 0, 0, t.column + 1, y, operands...);
        }
    }

    /* P::ready stands between the copy of weights and the first touch of memory that earlier kernels use. */
    template <class... Operands>
    CUVIL_FN void run(int block, const float *x, const float *w, float *workspace, unsigned *tickets, float *y, Operands... operands)
    {
        float *v = (float *)cuvil_shared, *u = v + FIRST;
        const int member = block % MEMBERS, sum = block / MEMBERS, part = member % PARTS, share = member / PARTS;
        const int group = sum % TILE_GROUPS, first = sum / TILE_GROUPS * OCBS;
        const int warp = threadIdx.x / 32, way = warp / LOCAL, local = warp % LOCAL;
        const int begin = share * SHARE, end = begin + SHARE < ROUNDS ? begin + SHARE : ROUNDS;
        const long base = (long)sum * KEPT * POSITIONS * T * QUADS;
        float taps[EACH][9];
        if (P::TAPS) {
            load_taps(taps, begin, end, first, w);
            store_taps(taps, part, u);
            load_taps(taps, begin + 1, end, first, w);
        } else
            CUVIL_UNROLL for (int b = 0; b < P::BUFFERS; b++) {
                if (begin + b < end) copy_weights(begin + b, first, part, u + b * U_FLOATS, w);
                cuvil_copy_commit();
            }
        P::ready(y, block);
        cuvil_tree<LEVELS, OWN> tree;
        float4 early[4][4];
        bool there = EARLY && (int)threadIdx.x < P::LW * T * UNITS_PER * 2 && load_plane(early, threadIdx.x, begin, group, part, x);
        CUVIL_ROLLED for (int round = begin; round < end; round++) {
            float *slices = u + (P::BUFFERS > 1 ? (round - begin) % P::BUFFERS * U_FLOATS : 0);
            if (EARLY) {
                if (there) store_plane(early, threadIdx.x, part, v);
            } else if (PLANE)
                transform_plane(round, group, part, v, x);
            else
                transform_line(round, group, v, x);
            if (!P::TAPS) cuvil_copy_wait<P::BUFFERS - 1>();
            __syncthreads();
            if (EARLY && there && round + 1 < end) there = load_plane(early, threadIdx.x, round + 1, group, part, x);
            const int leaf = round * P::LW + way;
            float4 a[P::TP][P::TQ];
            /* With two buffers half of the warps of every scheduler transform taps while the others sum. */
            constexpr bool BOTH = P::TAPS && P::BUFFERS > 1;
            CUVIL_ROLLED for (int turn = 0; turn < (BOTH ? 2 : 1); turn++) {
                if (BOTH && (turn ^ warp / 4) & 1) {
                    if (round + 1 < end) {
                        store_taps(taps, part, u + (round + 1 - begin) % P::BUFFERS * U_FLOATS);
                        load_taps(taps, round + 2, end, first, w);
                    }
                } else if (leaf < LEAVES) {
                    const int lo = cuvil_lane_quad<P::LO>(), lp = cuvil_lane_pixel<P::LO>();
                    const float *from = PLANE ? v + warp * AREA + lp * VP
                                              : v + (way * 3 + local % 3) * AREA + ((local ? 1 : 0) + 2 * lp) * VP;
                    leaf_sum(a, leaf, from, slices + (warp * OCBS + (lo >> 2)) * SLICE + (lo & 3) * 4);
                }
            }
            __syncwarp();
            if (!P::TAPS) {
                if (round + P::BUFFERS < end) copy_weights(round + P::BUFFERS, first, part, slices, w);
                cuvil_copy_commit();
            }
            __syncthreads();
            if (P::TAPS && P::BUFFERS == 1 && round + 1 < end) {
                store_taps(taps, part, u);
                load_taps(taps, round + 2, end, first, w);
            }
            if (P::LW == 1) {
                CUVIL_UNROLL for (int own = 0; own < OWN; own++) tree.push(0, leaf, own, a[own / P::TQ][own % P::TQ]);
            } else {
                if (leaf < LEAVES)
                    CUVIL_UNROLL for (int p = 0; p < P::TP; p++)
                        CUVIL_UNROLL for (int q = 0; q < P::TQ; q++) cuvil_store4(v + spot(warp, p, q) * 4, a[p][q]);
                __syncthreads();
                CUVIL_UNROLL for (int own = 0; own < OWN; own++)
                    if (owned(own) < LOCAL * T * QUADS)
                        CUVIL_UNROLL for (int j = 0; j < P::LW; j++)
                            if (round * P::LW + j < LEAVES)
                                tree.push(0, round * P::LW + j, own, cuvil_load4(v + (j * LOCAL * T * QUADS + owned(own)) * 4));
                __syncthreads();
            }
            const int last = (round + 1) * P::LW < LEAVES ? (round + 1) * P::LW : LEAVES;
            if (P::G > 1 && (last % 8 == 0 || last == LEAVES)) keep(tree, 0, workspace + (base + (last - 1) / 8 * (POSITIONS * T * QUADS)) * 4, part);
        }
        if (MEMBERS == 1) {
            CUVIL_UNROLL for (int own = 0; own < OWN; own++)
                if (owned(own) < LOCAL * T * QUADS) cuvil_store4(v + owned(own) * 4, tree.total(0, LEAVES, own));
            __syncthreads();
        } else {
            if (P::G == 1) {
                CUVIL_UNROLL for (int own = 0; own < OWN; own++) tree.node[0][own] = tree.total(0, LEAVES, own);
                keep(tree, 0, workspace + base * 4, part);
            }
            unsigned *turn = (unsigned *)u;
            __syncthreads();
            if (threadIdx.x == 0) {
                *turn = cuvil_ticket(tickets + sum);
                if (*turn == MEMBERS - 1) tickets[sum] = 0;
            }
            __syncthreads();
            if (*turn != MEMBERS - 1) return;
        }
        for (int e = threadIdx.x; e < T * QUADS; e += THREADS) {
            float4 m[POSITIONS];
            CUVIL_UNROLL for (int p = 0; p < POSITIONS; p++) {
                if (MEMBERS == 1)
                    m[p] = cuvil_load4(v + (p * T * QUADS + e) * 4);
                else {
                    const float *from = workspace + (base + p * T * QUADS + e) * 4;
                    m[p] = cuvil_load4(from);
                    if (KEPT > 1) {
                        cuvil_tree<cuvil_levels(KEPT), 1> nodes;
                        nodes.push(0, 0, 0, m[p]);
                        for (int k = 1; k < KEPT; k++) nodes.push(0, k, 0, cuvil_load4(from + k * (POSITIONS * T * QUADS * 4)));
                        m[p] = nodes.total(0, KEPT, 0);
                    }
                }
            }
            outputs(m, tile_at(group, e / QUADS), first * 16 + e % QUADS * 4, y, operands...);
        }
    }

    /* The values of a level into the workspace, at their positions of the tile. */
    CUVIL_FN void keep(const cuvil_tree<LEVELS, OWN> &tree, int level, float *to, int part)
    {
        CUVIL_UNROLL for (int own = 0; own < OWN; own++) {
            const int at = owned(own), area = at / (T * QUADS);
            const int position = PLANE ? area / COLUMNS * 4 + part * P::NB + area % COLUMNS : area;
            if (at < LOCAL * T * QUADS) cuvil_store4(to + (position * (T * QUADS) + at % (T * QUADS)) * 4, tree.node[level][own]);
        }
    }
};

#endif

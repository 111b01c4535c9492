/* Direct convolution on blocked values, and the phases of a transposed convolution (docs/arithmetic.md, 3.1 to 3.5).
 *
 * P holds the constants of one window (targets/cuda/families/conv.py), and the functions origin() and finish().
 * A block makes TH = PW * LP * RT rows of TW outputs for OCB outputs, round by round of LW leaves. The next round's weights
 * and inputs are copied while one is summed. */
#ifndef CUVIL_CONV_H
#define CUVIL_CONV_H

#include "cuvil_product.h"

template <class P> struct cuvil_conv {
    static constexpr int LP = 32 / P::LO, TP = P::RT * P::TW, OCB = P::LO * 4 * P::TQ, OCBS = OCB / 16, WARPS = P::LW * P::PW,
                         THREADS = 32 * WARPS, TH = P::PW * LP * P::RT, PIXELS = TH * P::TW;
    static constexpr int POS = P::KD * P::KH * P::KW, Q = 9, CUTS = POS > Q ? cuvil_ceil(POS, Q) : 1;
    static constexpr int PER = POS > Q ? 1 : (64 / (8 * POS) > 1 ? 64 / (8 * POS) : 1);
    static constexpr int LEAVES = POS > Q ? P::UNITS * CUTS : cuvil_ceil(P::UNITS, PER);
    static constexpr int STEPS = POS > Q ? Q : (PER < P::UNITS ? PER : P::UNITS) * POS; /* most steps of a leaf */
    static constexpr int NODES = cuvil_ceil(LEAVES, 8), ROUNDS = cuvil_ceil(LEAVES, P::LW), SHARE = cuvil_ceil(ROUNDS, P::G);
    static constexpr int LEVELS = cuvil_levels(LEAVES), BUFFERS = SHARE > 1 ? 2 : 1;
    static_assert(P::G == 1 || SHARE * P::LW % 8 == 0, "blocks that share a sum take whole nodes");
    /* Inputs in shared memory: [slot of channels][kernel depth][row][column][CP], rows shared by kernel rows or apart. */
    static constexpr int CP = CUTS == 1 && PER * P::LW % 2 == 0 && P::UNITS > 1 ? 16 : 8;
    static constexpr int SLOTS = CUTS == 1 ? cuvil_ceil((PER * P::LW < P::UNITS ? PER * P::LW : P::UNITS) * 8, CP)
                                           : (P::LW + CUTS - 2) / CUTS + 1;
    /* A run's kernel rows are taps of its one axis, DH pixels apart. */
    static constexpr bool APART = P::RUN ? P::KH > 1 : P::DH > P::SH * TH;
    static constexpr int ROWS = APART ? P::KH * TH : (TH - 1) * P::SH + (P::KH - 1) * P::DH + 1;
    static constexpr int COLUMNS = (P::TW - 1) * P::SW + (P::KW - 1) * P::DW + 1, ROW = COLUMNS * CP + 4, SLOT = P::KD * ROWS * ROW;
    static constexpr int SLICE = STEPS * 128 + 16, W_FLOATS = P::LW * OCBS * SLICE, X_FLOATS = SLOTS * SLOT;
    static constexpr int EXCHANGE = P::LW > 1 ? P::LW * PIXELS * OCB : 0;
    static constexpr int BUFFER = W_FLOATS + X_FLOATS > EXCHANGE ? W_FLOATS + X_FLOATS : EXCHANGE;
    static constexpr int SHARED = 4 * BUFFERS * BUFFER;
    static constexpr int OWN = P::LW > 1 ? cuvil_ceil(TP * P::TQ, P::LW) : TP * P::TQ;
    static constexpr int QUADS = PIXELS * OCB / 4; /* of a block */
    static constexpr int TILES = P::TILE_ROWS * P::TILE_COLUMNS * P::OD, GROUPS = cuvil_ceil(P::BLOCKS, OCBS);
    static constexpr int GRID = P::N * GROUPS * TILES * P::PHASES * P::G;
    static constexpr long WORKSPACE = P::G > 1 ? (long)(GRID / P::G) * NODES * QUADS * 16 : 0;

    struct place {
        int n, block, d, row, column, phase, share, sum; /* sum: number of the block's tile among all */
    };
    CUVIL_FN place where(int block)
    {
        place at;
        at.share = block % P::G;
        at.sum = block / P::G;
        int i = at.sum;
        at.phase = i % P::PHASES;
        i /= P::PHASES;
        at.column = i % P::TILE_COLUMNS * P::TW;
        i /= P::TILE_COLUMNS;
        at.row = i % P::TILE_ROWS * TH;
        i /= P::TILE_ROWS;
        at.d = i % P::OD;
        i /= P::OD;
        at.block = i % GROUPS * OCBS;
        at.n = i / GROUPS;
        return at;
    }

    /* First step of a leaf in the order of the packed weights, and how many it has. */
    CUVIL_FN int first_step(int leaf)
    {
        return CUTS == 1 ? leaf * PER * POS : leaf / CUTS * POS + leaf % CUTS * Q;
    }
    CUVIL_FN int steps(int leaf)
    {
        if (CUTS == 1) {
            const int left = P::UNITS - leaf * PER;
            return (left < PER ? left : PER) * POS;
        }
        const int left = POS - leaf % CUTS * Q;
        return left < Q ? left : Q;
    }

    CUVIL_FN void copy_weights(const place &at, int round, float *to, const float *w)
    {
        const int warp = threadIdx.x / 32, way = warp % P::LW, leaf = round * P::LW + way;
        if (leaf >= LEAVES) return;
        const int quads = steps(leaf) * 32, first = first_step(leaf);
        CUVIL_UNROLL for (int b = 0; b < OCBS; b++) {
            const bool kept = at.block + b < P::BLOCKS;
            const float *from = w + P::weights(at.phase) + ((long)(kept ? at.block + b : 0) * P::UNITS * POS + first) * 128;
            float *slice = to + (way * OCBS + b) * SLICE;
            for (int e = warp / P::LW * 32 + threadIdx.x % 32; e < quads; e += 32 * P::PW)
                cuvil_copy_async<16>(slice + e * 4, from + e * 4, kept);
        }
    }

    CUVIL_FN void copy_inputs(const place &at, int round, float *to, const float *x)
    {
        constexpr int PIECES = CP / 4, ALL = SLOTS * P::KD * ROWS * COLUMNS * PIECES;
        const int unit0 = CUTS == 1 ? round * P::LW * PER : round * P::LW / CUTS;
        const float *base = x + P::origin(at.n, at.block, at.d, at.phase);
        for (int e = threadIdx.x; e < ALL; e += THREADS) {
            const int piece = e % PIECES, column = e / PIECES % COLUMNS, r = e / (PIECES * COLUMNS) % (P::KD * ROWS);
            const int slot = e / (PIECES * COLUMNS * P::KD * ROWS), unit = unit0 + slot * (CP / 8);
            const int kd = r / ROWS, row = r % ROWS;
            const int down = APART ? row % TH : row, tap = APART ? row / TH * P::DH : 0;
            const int in = (APART ? (at.row + down) * P::SH : at.row * P::SH + down) + (P::RUN ? 0 : tap);
            const int across = at.column * P::SW + column + (P::RUN ? tap : 0);
            const bool kept = unit < P::UNITS && (P::RUN ? in * P::TW * P::SW + across < P::COLUMNS_IN
                                                         : in < P::ROWS_IN && across < P::COLUMNS_IN);
            const int from = (unit >> 1) * P::XB + (unit & 1) * 8 + piece * 4 + kd * P::DD * P::XD + in * P::XR + across * 16;
            cuvil_copy_async<16>(to + slot * SLOT + r * ROW + column * CP + piece * 4, base + (kept ? from : 0), kept);
        }
    }

    CUVIL_FN void leaf_sum(float4 (&a)[TP][P::TQ], int leaf, int unit0, const float *x, const float *w)
    {
        constexpr int QUAD = 2 * SLICE;
        CUVIL_UNROLL for (int p = 0; p < TP; p++)
            CUVIL_UNROLL for (int q = 0; q < P::TQ; q++) a[p][q] = cuvil_zero4();
        constexpr int DOWN = (APART ? TH : P::DH) * ROW, ACROSS = P::DW * CP, DEEP = ROWS * ROW;
        constexpr int LD = P::FLIP ? P::KD - 1 : 0, LH = P::FLIP ? P::KH - 1 : 0, LA = P::FLIP ? P::KW - 1 : 0; /* first taps */
        constexpr int SIGN = P::FLIP ? -1 : 1;
        constexpr int PIXEL_ROW = LP * (APART ? 1 : P::SH) * ROW, PIXEL = P::SW * CP;
        if (CUTS == 1) {
            const int units = steps(leaf) / POS, start = leaf * PER - unit0;
            if (POS == 1 && CP == 16 && P::UNITS % 2 == 0) {
                CUVIL_PAIRS for (int u = start; u < start + units; u += 2, w += 256)
                    cuvil_taps<2, 8, P::TQ, TP, P::TW, PIXEL_ROW, PIXEL, QUAD>(a, x + (u >> 1) * SLOT, w);
                return;
            }
            CUVIL_ROLLED for (int u = start; u < start + units; u++) {
                const float *xu = x + (CP == 16 ? (u >> 1) * SLOT + (u & 1) * 8 : u * SLOT);
                CUVIL_ROLLED for (int kd = 0; kd < P::KD; kd++)
                    CUVIL_ROLLED for (int kh = 0; kh < P::KH; kh++, w += P::KW * 128)
                        cuvil_taps<P::KW, SIGN * ACROSS, P::TQ, TP, P::TW, PIXEL_ROW, PIXEL, QUAD>(
                            a, xu + (LD + SIGN * kd) * DEEP + (LH + SIGN * kh) * DOWN + LA * ACROSS, w);
            }
        } else {
            const float *xu = x + (leaf / CUTS - unit0) * SLOT;
            const int first = leaf % CUTS * Q, count = steps(leaf);
            CUVIL_ROLLED for (int k = first; k < first + count; k++, w += 128)
                cuvil_taps<1, 0, P::TQ, TP, P::TW, PIXEL_ROW, PIXEL, QUAD>(
                    a,
                    xu + (LD + SIGN * (k / (P::KH * P::KW))) * DEEP + (LH + SIGN * (k / P::KW % P::KH)) * DOWN +
                        (LA + SIGN * (k % P::KW)) * ACROSS,
                    w);
        }
    }

    /* Where quad number `own` of this thread lies in the block's tile: pixel * (OCB / 4) + quad. */
    CUVIL_FN int owned(int own)
    {
        if (P::LW > 1) return own * THREADS + threadIdx.x;
        const int p = own / P::TQ, q = own % P::TQ;
        const int row = threadIdx.x / 32 * LP * P::RT + p / P::TW * LP + cuvil_lane_pixel<P::LO>();
        return (row * P::TW + p % P::TW) * (OCB / 4) + q * P::LO + cuvil_lane_quad<P::LO>();
    }

    template <class... Operands>
    CUVIL_FN void finish(const place &at, int quad, float4 sum, float *y, Operands... operands)
    {
        const int pixel = quad / (OCB / 4), row = at.row + pixel / P::TW, column = at.column + pixel % P::TW;
        const int oc = at.block * 16 + quad % (OCB / 4) * 4;
        const int across = P::RUN ? row * P::TW + column : column, down = P::RUN ? 0 : row;
        if (quad < QUADS && oc < P::BLOCKS * 16 && down < P::OH && across < P::OW)
            P::finish(sum, at.n, oc, at.d * P::EVERY_D + P::first_d(at.phase), down * P::EVERY_H + P::first_h(at.phase),
                      across * P::EVERY_W + P::first_w(at.phase), y, operands...);
    }

    /* P::ready stands between the copy of weights and the first touch of memory that earlier kernels use. */
    template <class... Operands>
    CUVIL_FN void run(int block, const float *x, const float *w, float *workspace, unsigned *tickets,
                                float *y, Operands... operands)
    {
        float *shared = (float *)cuvil_shared;
        const place at = where(block);
        const int warp = threadIdx.x / 32, way = warp % P::LW, pixels = warp / P::LW;
        const int begin = at.share * SHARE, end = begin + SHARE < ROUNDS ? begin + SHARE : ROUNDS;
        copy_weights(at, begin, shared, w);
        P::ready(y, block);
        copy_inputs(at, begin, shared + W_FLOATS, x);
        cuvil_copy_commit();
        cuvil_tree<LEVELS, OWN> tree;
        CUVIL_ROLLED for (int round = begin; round < end; round++) {
            float *buffer = shared + (BUFFERS > 1 ? (round - begin) % 2 * BUFFER : 0);
            if (round + 1 < end) {
                float *next = shared + (round + 1 - begin) % 2 * BUFFER;
                copy_weights(at, round + 1, next, w);
                copy_inputs(at, round + 1, next + W_FLOATS, x);
            }
            cuvil_copy_commit();
            cuvil_copy_wait<1>();
            __syncthreads();
            const int leaf = round * P::LW + way, unit0 = CUTS == 1 ? round * P::LW * PER : round * P::LW / CUTS;
            float4 a[TP][P::TQ];
            if (leaf < LEAVES) {
                const int lo = cuvil_lane_quad<P::LO>();
                const float *xs = buffer + W_FLOATS + (pixels * LP * P::RT + cuvil_lane_pixel<P::LO>()) * (APART ? 1 : P::SH) * ROW;
                const float *ws = buffer + way * OCBS * SLICE + (lo >> 2) * SLICE + (lo & 3) * 4;
                leaf_sum(a, leaf, unit0, xs, ws);
            }
            if (P::LW == 1) {
                CUVIL_UNROLL for (int own = 0; own < OWN; own++) tree.push(0, leaf, own, a[own / P::TQ][own % P::TQ]);
            } else {
                __syncthreads();
                if (leaf < LEAVES)
                    CUVIL_UNROLL for (int p = 0; p < TP; p++)
                        CUVIL_UNROLL for (int q = 0; q < P::TQ; q++) {
                            const int row = pixels * LP * P::RT + p / P::TW * LP + cuvil_lane_pixel<P::LO>();
                            cuvil_store4(buffer + (way * PIXELS + row * P::TW + p % P::TW) * OCB +
                                             (q * P::LO + cuvil_lane_quad<P::LO>()) * 4,
                                         a[p][q]);
                        }
                __syncthreads();
                CUVIL_UNROLL for (int own = 0; own < OWN; own++) {
                    const int quad = owned(own);
                    if (quad < QUADS)
                        CUVIL_UNROLL for (int j = 0; j < P::LW; j++)
                            if (round * P::LW + j < LEAVES)
                                tree.push(0, round * P::LW + j, own, cuvil_load4(buffer + (j * QUADS + quad) * 4));
                }
            }
            const int last = (round + 1) * P::LW;
            if (P::G > 1 && (last % 8 == 0 || last >= LEAVES)) {
                const long node = (long)at.sum * NODES + ((last < LEAVES ? last : LEAVES) - 1) / 8;
                CUVIL_UNROLL for (int own = 0; own < OWN; own++)
                    if (owned(own) < QUADS) cuvil_store4(workspace + (node * QUADS + owned(own)) * 4, tree.node[0][own]);
            }
            if (BUFFERS > 1) __syncthreads();
        }
        if (P::G > 1) {
            unsigned *turn = (unsigned *)cuvil_shared;
            __syncthreads();
            if (threadIdx.x == 0) {
                *turn = cuvil_ticket(tickets + at.sum);
                if (*turn == P::G - 1) tickets[at.sum] = 0;
            }
            __syncthreads();
            if (*turn != P::G - 1) return;
            CUVIL_UNROLL for (int own = 0; own < OWN; own++)
                if (owned(own) < QUADS)
                    for (int node = 0; node < NODES; node++)
                        tree.push(1, node, own, cuvil_load4(workspace + (((long)at.sum * NODES + node) * QUADS + owned(own)) * 4));
        }
        CUVIL_UNROLL for (int own = 0; own < OWN; own++) {
            const float4 sum = P::G > 1 ? tree.total(1, NODES, own) : tree.total(0, LEAVES, own);
            finish(at, owned(own), sum, y, operands...);
        }
    }
};

#endif

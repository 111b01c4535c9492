/* Direct convolution of fewer than 16 channels (docs/arithmetic.md, 3.1: units of one channel): x in planes or blocked.
 *
 * P holds the constants of targets/cuda/families/stem.py. A block copies all channels of its window of x and all weights
 * of its outputs; a thread sums every leaf of its outputs, so that nothing but the result leaves it. */
#ifndef CUVIL_STEM_H
#define CUVIL_STEM_H

#include "cuvil_product.h"

template <class P> struct cuvil_stem {
    static constexpr int LP = 32 / P::LO, TP = P::RT * P::TW, OCB = P::LO * 4, OCBS = OCB / 16, THREADS = 32 * P::PW,
                         TH = P::PW * LP * P::RT;
    static constexpr int POS = P::KD * P::KH * P::KW, PER = 16 / POS > 1 ? 16 / POS : 1, LEAVES = cuvil_ceil(P::C, PER);
    static_assert(POS <= 72, "leaves of whole channels");
    static constexpr int LEVELS = cuvil_levels(LEAVES);
    static constexpr int ROWS = (TH - 1) * P::SH + (P::KH - 1) * P::DH + 1, COLUMNS = (P::TW - 1) * P::SW + (P::KW - 1) * P::DW + 1;
    /* A row starts an odd number of quads after the one before it, so that the rows of a warp lie in different banks. */
    static constexpr int PITCH = cuvil_ceil(COLUMNS, 4) % 2 ? cuvil_ceil(COLUMNS, 4) * 4 : cuvil_ceil(COLUMNS, 4) * 4 + 4;
    static constexpr int PLANE = P::KD * ROWS * PITCH, X_FLOATS = P::C * PLANE;
    static constexpr int SLICE = P::C * POS * 16 + (P::C * POS % 2 ? 0 : 16), SHARED = 4 * (X_FLOATS + OCBS * SLICE);
    static constexpr int GROUPS = cuvil_ceil(P::BLOCKS, OCBS), GRID = P::N * GROUPS * P::OD * P::TILE_ROWS * P::TILE_COLUMNS;

    /* Whether an output reads row `in` and column `across` of x, counted from the first ones that are read. */
    CUVIL_FN bool inside(int in, int across)
    {
        return P::RUN ? in * P::TW * P::SW + across < P::COLUMNS_IN : in < P::ROWS_IN && across < P::COLUMNS_IN;
    }

    template <class... Operands> CUVIL_FN void run(int block, const float *x, const float *w, float *y, Operands... operands)
    {
        float *xs = (float *)cuvil_shared, *ws = xs + X_FLOATS;
        int i = block;
        const int column = i % P::TILE_COLUMNS * P::TW, row = i / P::TILE_COLUMNS % P::TILE_ROWS * TH;
        i /= P::TILE_COLUMNS * P::TILE_ROWS;
        const int d = i % P::OD, outputs = i / P::OD % GROUPS * OCBS, n = i / (P::OD * GROUPS);
        for (int e = threadIdx.x; e < OCBS * P::C * POS * 4; e += THREADS) {
            const int b = e / (P::C * POS * 4), piece = e % (P::C * POS * 4);
            const bool kept = outputs + b < P::BLOCKS;
            cuvil_copy_async<16>(ws + b * SLICE + piece * 4, w + (long)(kept ? outputs + b : 0) * (P::C * POS * 16) + piece * 4, kept);
        }
        P::ready(y, block);
        const float *base = x + P::ORIGIN + (long)n * P::XN + d * P::SD * P::XD;
        for (int e = threadIdx.x; e < P::C * P::KD * ROWS * COLUMNS; e += THREADS) {
            const int c = P::PLANAR ? e / (P::KD * ROWS * COLUMNS) : e % P::C, rest = P::PLANAR ? e : e / P::C;
            const int at = rest % COLUMNS, r = rest / COLUMNS % ROWS, kd = rest / (COLUMNS * ROWS) % P::KD;
            const int in = row * P::SH + r, across = column * P::SW + at;
            const bool kept = inside(in, across);
            const int from = c * P::XC + kd * P::DD * P::XD + in * P::XR + across * (P::PLANAR ? 1 : 16);
            cuvil_copy_async<4>(xs + c * PLANE + (kd * ROWS + r) * PITCH + at, base + (kept ? from : 0), kept);
        }
        cuvil_copy_commit();
        cuvil_copy_wait<0>();
        __syncthreads();
        const int lo = cuvil_lane_quad<P::LO>();
        const int first = threadIdx.x / 32 * LP * P::RT + cuvil_lane_pixel<P::LO>();
        const float *u = ws + (lo >> 2) * SLICE + (lo & 3) * 4;
        cuvil_tree<LEVELS, TP> tree;
        CUVIL_ROLLED for (int leaf = 0; leaf < LEAVES; leaf++) {
            float4 a[TP];
            CUVIL_UNROLL for (int p = 0; p < TP; p++) a[p] = cuvil_zero4();
            const int stop = (leaf + 1) * PER < P::C ? (leaf + 1) * PER : P::C;
            CUVIL_ROLLED for (int c = leaf * PER; c < stop; c++)
                CUVIL_PAIRS for (int k = 0; k < P::KD * P::KH; k++, u += P::KW * 16) {
                    const float *line = xs + c * PLANE + (k / P::KH * ROWS + k % P::KH * P::DH + first * P::SH) * PITCH;
                    CUVIL_UNROLL for (int rt = 0; rt < P::RT; rt++) {
                        float v[cuvil_ceil(COLUMNS, 4) * 4];
                        CUVIL_UNROLL for (int q = 0; q < cuvil_ceil(COLUMNS, 4); q++) {
                            const float4 four = cuvil_load4(line + rt * LP * P::SH * PITCH + q * 4);
                            v[q * 4] = four.x, v[q * 4 + 1] = four.y, v[q * 4 + 2] = four.z, v[q * 4 + 3] = four.w;
                        }
                        CUVIL_UNROLL for (int kw = 0; kw < P::KW; kw++) {
                            const float4 weight = cuvil_load4(u + kw * 16);
                            CUVIL_UNROLL for (int p = 0; p < P::TW; p++)
                                a[rt * P::TW + p] = cuvil_fma4(v[p * P::SW + kw * P::DW], weight, a[rt * P::TW + p]);
                        }
                    }
                }
            CUVIL_UNROLL for (int p = 0; p < TP; p++) tree.push(0, leaf, p, a[p]);
        }
        const int oc = outputs * 16 + lo * 4;
        CUVIL_UNROLL for (int p = 0; p < TP; p++) {
            const int down = row + first + p / P::TW * LP, across = column + p % P::TW;
            const int h = P::RUN ? 0 : down, along = P::RUN ? down * P::TW + across : across;
            if (oc < P::BLOCKS * 16 && h < P::OH && along < P::OW)
                P::finish(tree.total(0, LEAVES, p), n, oc, d, h, along, y, operands...);
        }
    }
};

#endif

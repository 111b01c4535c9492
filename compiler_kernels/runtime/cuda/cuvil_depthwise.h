/* Depthwise convolution on blocked values: one leaf of at most 72 positions per output (docs/arithmetic.md, 3.2).
 *
 * A thread makes TW neighbouring outputs of four channels; every x of a row is loaded once. */
#ifndef CUVIL_DEPTHWISE_H
#define CUVIL_DEPTHWISE_H

#include "cuvil_product.h"

template <class P> struct cuvil_depthwise {
    static constexpr int STRIPS = cuvil_ceil(P::OW, P::TW), ITEMS = P::N * P::BLOCKS * P::OD * P::OH * STRIPS * 4;
    static constexpr int COLUMNS = (P::TW - 1) * P::SW + (P::KW - 1) * P::DW + 1;

    template <class... Operands> CUVIL_FN void run(int block, const float *x, const float *w, float *y, Operands... operands)
    {
        P::ready(y, block);
        int i = block * P::THREADS + threadIdx.x;
        if (i >= ITEMS) return;
        const int quad = i % 4, column = i / 4 % STRIPS * P::TW;
        i /= 4 * STRIPS;
        const int h = i % P::OH, d = i / P::OH % P::OD, c = i / (P::OH * P::OD) % P::BLOCKS, n = i / (P::OH * P::OD * P::BLOCKS);
        const float *from = x + P::ORIGIN + (long)n * P::XN + c * P::XB + d * P::SD * P::XD + h * P::SH * P::XR +
                            column * P::SW * 16 + quad * 4;
        w += c * (P::KD * P::KH * P::KW * 16) + quad * 4;
        float4 a[P::TW];
        CUVIL_UNROLL for (int p = 0; p < P::TW; p++) a[p] = cuvil_zero4();
        CUVIL_ROLLED for (int kd = 0; kd < P::KD; kd++)
            CUVIL_UNROLL for (int kh = 0; kh < P::KH; kh++) {
                float4 u[P::KW];
                CUVIL_UNROLL for (int k = 0; k < P::KW; k++) u[k] = cuvil_load4(w + ((kd * P::KH + kh) * P::KW + k) * 16);
                CUVIL_UNROLL for (int j = 0; j < COLUMNS; j++) {
                    if (j % P::SW != 0 && P::DW % P::SW == 0) continue;
                    const bool inside = column * P::SW + j < P::COLUMNS_IN;
                    const float4 v = cuvil_load4(from + kd * P::DD * P::XD + kh * P::DH * P::XR + (inside ? j * 16 : 0));
                    CUVIL_UNROLL for (int p = 0; p < P::TW; p++) {
                        const int reach = j - p * P::SW;
                        if (reach >= 0 && reach % P::DW == 0 && reach / P::DW < P::KW) {
                            const float4 weight = u[reach / P::DW];
                            a[p] = make_float4(ca1_fma_v1(v.x, weight.x, a[p].x), ca1_fma_v1(v.y, weight.y, a[p].y),
                                               ca1_fma_v1(v.z, weight.z, a[p].z), ca1_fma_v1(v.w, weight.w, a[p].w));
                        }
                    }
                }
            }
        CUVIL_UNROLL for (int p = 0; p < P::TW; p++)
            if (column + p < P::OW) P::finish(a[p], n, c * 16 + quad * 4, d, h, column + p, y, operands...);
    }
};

#endif

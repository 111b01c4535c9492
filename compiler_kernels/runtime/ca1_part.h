/* Vectors at the ends of rows, for kernels over sizes known at run time. Bit l of `bits` says whether lane l exists: an
 * absent lane is not read and holds +0, or is not written. Include after ca1_vec.h with CA1_VL in force. */
#include "ca1_vec.h"

#ifndef CA1_PART_H
#define CA1_PART_H
/* Bits of the lanes l for which 0 <= at + l * step < size; step is positive, lanes at most 16. */
CA1_INLINE unsigned ca1_bits(int at, int step, int size, int lanes)
{
    int low = at < 0 ? (step - 1 - at) / step : 0, high = at < size ? (size - at + step - 1) / step : 0;
    low = low < lanes ? low : lanes;
    high = high < lanes ? high : lanes;
    return high > low ? ((1u << high) - 1u) & ~((1u << low) - 1u) : 0u;
}

/* Bits of the first n of `lanes` lanes. */
CA1_INLINE unsigned ca1_first(int n, int lanes) { return n >= lanes ? (1u << lanes) - 1u : n > 0 ? (1u << n) - 1u : 0u; }
#endif

#if CA1_VL == 16 && !defined(CA1_PART_16)
#define CA1_PART_16
CA1_FN __m512 ca1_load_bits_v16(const float *p, unsigned bits) { return _mm512_maskz_loadu_ps((__mmask16)bits, p); }
CA1_FN void ca1_store_bits_v16(float *p, __m512 a, unsigned bits) { _mm512_mask_storeu_ps(p, (__mmask16)bits, a); }
CA1_FN __m512 ca1_load_two_v16(const float *p, unsigned bits)
{
    const unsigned even = _pdep_u32(bits, 0x55555555u);
    const __m512 low = _mm512_maskz_loadu_ps((__mmask16)even, p);
    const __m512 high = _mm512_maskz_loadu_ps((__mmask16)(even >> 16), p + 16);
    const __m512i pick = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutex2var_ps(low, pick, high);
}
CA1_FN __m512 ca1_load_step_v16(const float *p, int step, unsigned bits)
{
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i at = _mm512_mullo_epi32(lane, _mm512_set1_epi32(step));
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), (__mmask16)bits, at, p, 4);
}
/* The lanes of a with a bit, those of b elsewhere. */
CA1_FN __m512 ca1_pick_bits_v16(__m512 a, __m512 b, unsigned bits) { return _mm512_mask_mov_ps(b, (__mmask16)bits, a); }

#elif CA1_VL == 8 && !defined(CA1_PART_8)
#define CA1_PART_8
CA1_FN __m256i ca1_lanes_of_v8(unsigned bits)
{
    const __m256i one = _mm256_set_epi32(128, 64, 32, 16, 8, 4, 2, 1);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), one), one);
}
CA1_FN __m256 ca1_load_bits_v8(const float *p, unsigned bits) { return _mm256_maskload_ps(p, ca1_lanes_of_v8(bits)); }
CA1_FN void ca1_store_bits_v8(float *p, __m256 a, unsigned bits) { _mm256_maskstore_ps(p, ca1_lanes_of_v8(bits), a); }
CA1_FN __m256 ca1_load_two_v8(const float *p, unsigned bits)
{
    const unsigned even = _pdep_u32(bits, 0x5555u);
    const __m256 low = ca1_load_bits_v8(p, even & 255u), high = ca1_load_bits_v8(p + 8, even >> 8);
    const __m256d pairs = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88));
    return _mm256_castpd_ps(_mm256_castsi256_pd(_mm256_permute4x64_epi64(_mm256_castpd_si256(pairs), 0xd8)));
}
CA1_FN __m256 ca1_load_step_v8(const float *p, int step, unsigned bits)
{
    const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    const __m256i at = _mm256_mullo_epi32(lane, _mm256_set1_epi32(step));
    return _mm256_mask_i32gather_ps(_mm256_setzero_ps(), p, at, _mm256_castsi256_ps(ca1_lanes_of_v8(bits)), 4);
}
CA1_FN __m256 ca1_pick_bits_v8(__m256 a, __m256 b, unsigned bits)
{
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(ca1_lanes_of_v8(bits)));
}

#elif CA1_VL == 4 && !defined(CA1_PART_4)
#define CA1_PART_4
CA1_FN float32x4_t ca1_load_step_v4(const float *p, int step, unsigned bits)
{
    float part[4];
    for (int l = 0; l < 4; l++) part[l] = bits >> l & 1u ? p[(long)l * step] : 0.0f;
    return vld1q_f32(part);
}
CA1_FN float32x4_t ca1_load_two_v4(const float *p, unsigned bits) { return ca1_load_step_v4(p, 2, bits); }
CA1_FN float32x4_t ca1_load_bits_v4(const float *p, unsigned bits)
{
    return bits == 15u ? vld1q_f32(p) : ca1_load_step_v4(p, 1, bits);
}
CA1_FN void ca1_store_bits_v4(float *p, float32x4_t a, unsigned bits)
{
    float part[4];
    if (bits == 15u) {
        vst1q_f32(p, a);
        return;
    }
    vst1q_f32(part, a);
    for (int l = 0; l < 4; l++)
        if (bits >> l & 1u) p[l] = part[l];
}
CA1_FN float32x4_t ca1_pick_bits_v4(float32x4_t a, float32x4_t b, unsigned bits)
{
    const uint32_t lane[4] = {1u, 2u, 4u, 8u};
    return vbslq_f32(vtstq_u32(vdupq_n_u32(bits), vld1q_u32(lane)), a, b);
}
#endif

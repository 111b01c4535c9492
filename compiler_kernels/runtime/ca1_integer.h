/* Sums of products of 16-bit integers, modulo 2^32, for the vector width in force (CA1_VL; see ca1_vec.h).
 *
 * A vector holds CA1_VL sums of 32 bits. One step adds to each the products of a pair of neighbours of w with the one
 * pair at x: lane j gets w[2 j] x[0] + w[2 j + 1] x[1]. The additions wrap, so their order changes no bit. */
#include "ca1_math.h"

#if CA1_VL == 1 && !defined(CA1_INTEGER_1)
#define CA1_INTEGER_1
CA1_FN ca1_i32 ca1_madd_v1(ca1_i32 sum, const int16_t *w, const int16_t *x)
{
    return (ca1_i32)((ca1_u32)sum + (ca1_u32)(w[0] * x[0]) + (ca1_u32)(w[1] * x[1]));
}
CA1_FN void ca1_istore_v1(int32_t *p, ca1_i32 a) { *p = a; }

#elif CA1_VL == 4 && !defined(CA1_INTEGER_4)
#define CA1_INTEGER_4
CA1_FN int32x4_t ca1_madd_v4(int32x4_t sum, const int16_t *w, const int16_t *x)
{
    int32_t pair;
    __builtin_memcpy(&pair, x, sizeof pair);
    const int16x8_t a = vld1q_s16(w), b = vreinterpretq_s16_s32(vdupq_n_s32(pair));
    const int32x4_t low = vmull_s16(vget_low_s16(a), vget_low_s16(b)), high = vmull_high_s16(a, b);
    return vaddq_s32(sum, vpaddq_s32(low, high));
}
CA1_FN void ca1_istore_v4(int32_t *p, int32x4_t a) { vst1q_s32(p, a); }

#elif CA1_VL == 8 && !defined(CA1_INTEGER_8)
#define CA1_INTEGER_8
CA1_FN __m256i ca1_madd_v8(__m256i sum, const int16_t *w, const int16_t *x)
{
    int32_t pair;
    __builtin_memcpy(&pair, x, sizeof pair);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_loadu_si256((const __m256i *)w), _mm256_set1_epi32(pair)));
}
CA1_FN void ca1_istore_v8(int32_t *p, __m256i a) { _mm256_storeu_si256((__m256i *)p, a); }

#elif CA1_VL == 16 && !defined(CA1_INTEGER_16)
#define CA1_INTEGER_16
CA1_FN __m512i ca1_madd_v16(__m512i sum, const int16_t *w, const int16_t *x)
{
    int32_t pair;
    __builtin_memcpy(&pair, x, sizeof pair);
    return _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_loadu_si512(w), _mm512_set1_epi32(pair)));
}
CA1_FN void ca1_istore_v16(int32_t *p, __m512i a) { _mm512_storeu_si512(p, a); }
#endif

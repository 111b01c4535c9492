/* Canonical Arithmetic 1: the vector layer.
 *
 * Define CA1_VL (1, 4, 8 or 16; default 1) and include; the header may be included again with another CA1_VL in the
 * same translation unit. Each inclusion defines, with the suffix _v<CA1_VL>, the types ca1_f32_v8, ca1_i32_v8 and one
 * function per operation: ca1_add_v8, ... CA1_N(add) names the one of the CA1_VL in force. Every function is one IEEE
 * 754 binary32 operation, one integer operation or one compare-and-select per lane; none crosses lanes.
 *   1   scalar C, CUDA device code, WebAssembly
 *   4   aarch64 NEON
 *   8   AVX2 with FMA
 *   16  AVX-512F; usable in a file compiled for x86-64-v3 (functions carry the target attribute), behind a CPU check
 */
#include "ca1_fma.h"

#ifndef CA1_VL
#define CA1_VL 1
#endif
#ifndef CA1_N
#define CA1_CAT_(name, width) ca1_##name##_v##width
#define CA1_CAT(name, width) CA1_CAT_(name, width)
#define CA1_N(name) CA1_CAT(name, CA1_VL)
#endif

/* CA1_TARGET: attribute of every function that handles values of this width, the caller's own ones included. */
#undef CA1_TARGET
#undef CA1_FN
#if CA1_VL == 16 && !defined(__AVX512F__)
#define CA1_TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma")))
#else
#define CA1_TARGET
#endif
#define CA1_FN CA1_INLINE CA1_TARGET

/* ------------------------------------------------------------------------------------------------ per instruction set */
#if CA1_VL == 1 && !defined(CA1_VEC_1)
#define CA1_VEC_1
#define CA1_VEC_NEW
typedef float ca1_f32_v1;
typedef ca1_i32 ca1_i32_v1;
CA1_FN float ca1_load_v1(const float *p) { return *p; }
CA1_FN void ca1_store_v1(float *p, float a) { *p = a; }
CA1_FN float ca1_set1_v1(float a) { return a; }
CA1_FN ca1_i32 ca1_iset1_v1(ca1_i32 a) { return a; }
CA1_FN float ca1_fma_v1(float a, float b, float c) { return ca1_fmaf(a, b, c); }
#ifdef __CUDA_ARCH__   /* nvcc contracts a * b + c by default; the intrinsics are never contracted */
CA1_FN float ca1_add_v1(float a, float b) { return __fadd_rn(a, b); }
CA1_FN float ca1_sub_v1(float a, float b) { return __fsub_rn(a, b); }
CA1_FN float ca1_mul_v1(float a, float b) { return __fmul_rn(a, b); }
CA1_FN float ca1_div_v1(float a, float b) { return __fdiv_rn(a, b); }
CA1_FN float ca1_sqrt_v1(float a) { return __fsqrt_rn(a); }
#else
CA1_FN float ca1_add_v1(float a, float b) { return a + b; }
CA1_FN float ca1_sub_v1(float a, float b) { return a - b; }
CA1_FN float ca1_mul_v1(float a, float b) { return a * b; }
CA1_FN float ca1_div_v1(float a, float b) { return a / b; }
CA1_FN float ca1_sqrt_v1(float a) { return __builtin_sqrtf(a); }
#endif
CA1_FN ca1_i32 ca1_as_i32_v1(float a)
{
    ca1_i32 i;
    __builtin_memcpy(&i, &a, sizeof i);
    return i;
}
CA1_FN float ca1_as_f32_v1(ca1_i32 i)
{
    float a;
    __builtin_memcpy(&a, &i, sizeof a);
    return a;
}
CA1_FN ca1_i32 ca1_iadd_v1(ca1_i32 a, ca1_i32 b) { return (ca1_i32)((ca1_u32)a + (ca1_u32)b); }
CA1_FN ca1_i32 ca1_isub_v1(ca1_i32 a, ca1_i32 b) { return (ca1_i32)((ca1_u32)a - (ca1_u32)b); }
CA1_FN ca1_i32 ca1_iand_v1(ca1_i32 a, ca1_i32 b) { return a & b; }
CA1_FN ca1_i32 ca1_ior_v1(ca1_i32 a, ca1_i32 b) { return a | b; }
CA1_FN ca1_i32 ca1_ixor_v1(ca1_i32 a, ca1_i32 b) { return a ^ b; }
CA1_FN ca1_i32 ca1_shl23_v1(ca1_i32 a) { return (ca1_i32)((ca1_u32)a << 23); }
CA1_FN ca1_i32 ca1_sra23_v1(ca1_i32 a) { return a >> 23; }   /* arithmetic in every supported compiler */
CA1_FN float ca1_sel_gt_v1(float a, float b, float c, float d) { return a > b ? c : d; }
CA1_FN float ca1_sel_nan_v1(float a, float c, float d) { return a != a ? c : d; }
CA1_FN float ca1_maxn_v1(float a, float b) { return b > a ? b : a; }
CA1_FN float ca1_minn_v1(float a, float b) { return b < a ? b : a; }
CA1_FN float ca1_relu_v1(float a) { return a <= 0.0f ? 0.0f : a; }

#elif CA1_VL == 4 && !defined(CA1_VEC_4)
#ifndef __aarch64__
#error "CA1_VL 4 needs aarch64"
#endif
#define CA1_VEC_4
#define CA1_VEC_NEW
#include <arm_neon.h>
typedef float32x4_t ca1_f32_v4;
typedef int32x4_t ca1_i32_v4;
CA1_FN ca1_f32_v4 ca1_load_v4(const float *p) { return vld1q_f32(p); }
CA1_FN void ca1_store_v4(float *p, ca1_f32_v4 a) { vst1q_f32(p, a); }
CA1_FN ca1_f32_v4 ca1_set1_v4(float a) { return vdupq_n_f32(a); }
CA1_FN ca1_i32_v4 ca1_iset1_v4(ca1_i32 a) { return vdupq_n_s32(a); }
CA1_FN ca1_f32_v4 ca1_fma_v4(ca1_f32_v4 a, ca1_f32_v4 b, ca1_f32_v4 c) { return vfmaq_f32(c, a, b); }
CA1_FN ca1_f32_v4 ca1_add_v4(ca1_f32_v4 a, ca1_f32_v4 b) { return vaddq_f32(a, b); }
CA1_FN ca1_f32_v4 ca1_sub_v4(ca1_f32_v4 a, ca1_f32_v4 b) { return vsubq_f32(a, b); }
CA1_FN ca1_f32_v4 ca1_mul_v4(ca1_f32_v4 a, ca1_f32_v4 b) { return vmulq_f32(a, b); }
CA1_FN ca1_f32_v4 ca1_div_v4(ca1_f32_v4 a, ca1_f32_v4 b) { return vdivq_f32(a, b); }
CA1_FN ca1_f32_v4 ca1_sqrt_v4(ca1_f32_v4 a) { return vsqrtq_f32(a); }
CA1_FN ca1_i32_v4 ca1_as_i32_v4(ca1_f32_v4 a) { return vreinterpretq_s32_f32(a); }
CA1_FN ca1_f32_v4 ca1_as_f32_v4(ca1_i32_v4 a) { return vreinterpretq_f32_s32(a); }
CA1_FN ca1_i32_v4 ca1_iadd_v4(ca1_i32_v4 a, ca1_i32_v4 b) { return vaddq_s32(a, b); }
CA1_FN ca1_i32_v4 ca1_isub_v4(ca1_i32_v4 a, ca1_i32_v4 b) { return vsubq_s32(a, b); }
CA1_FN ca1_i32_v4 ca1_iand_v4(ca1_i32_v4 a, ca1_i32_v4 b) { return vandq_s32(a, b); }
CA1_FN ca1_i32_v4 ca1_ior_v4(ca1_i32_v4 a, ca1_i32_v4 b) { return vorrq_s32(a, b); }
CA1_FN ca1_i32_v4 ca1_ixor_v4(ca1_i32_v4 a, ca1_i32_v4 b) { return veorq_s32(a, b); }
CA1_FN ca1_i32_v4 ca1_shl23_v4(ca1_i32_v4 a) { return vshlq_n_s32(a, 23); }
CA1_FN ca1_i32_v4 ca1_sra23_v4(ca1_i32_v4 a) { return vshrq_n_s32(a, 23); }
CA1_FN ca1_f32_v4 ca1_sel_gt_v4(ca1_f32_v4 a, ca1_f32_v4 b, ca1_f32_v4 c, ca1_f32_v4 d)
{
    return vbslq_f32(vcgtq_f32(a, b), c, d);
}
CA1_FN ca1_f32_v4 ca1_sel_nan_v4(ca1_f32_v4 a, ca1_f32_v4 c, ca1_f32_v4 d) { return vbslq_f32(vceqq_f32(a, a), d, c); }
/* FMAX and FMIN order -0 below +0, so they are no substitute for compare and select, except against +0 in relu. */
CA1_FN ca1_f32_v4 ca1_maxn_v4(ca1_f32_v4 a, ca1_f32_v4 b) { return vbslq_f32(vcgtq_f32(b, a), b, a); }
CA1_FN ca1_f32_v4 ca1_minn_v4(ca1_f32_v4 a, ca1_f32_v4 b) { return vbslq_f32(vcgtq_f32(a, b), b, a); }
CA1_FN ca1_f32_v4 ca1_relu_v4(ca1_f32_v4 a) { return vmaxq_f32(a, vdupq_n_f32(0.0f)); }

#elif CA1_VL == 8 && !defined(CA1_VEC_8)
#if !defined(__AVX2__) || !defined(__FMA__)
#error "CA1_VL 8 needs AVX2 and FMA (-march=x86-64-v3)"
#endif
#define CA1_VEC_8
#define CA1_VEC_NEW
#include <immintrin.h>
typedef __m256 ca1_f32_v8;
typedef __m256i ca1_i32_v8;
CA1_FN __m256 ca1_load_v8(const float *p) { return _mm256_loadu_ps(p); }
CA1_FN void ca1_store_v8(float *p, __m256 a) { _mm256_storeu_ps(p, a); }
CA1_FN __m256 ca1_set1_v8(float a) { return _mm256_set1_ps(a); }
CA1_FN __m256i ca1_iset1_v8(ca1_i32 a) { return _mm256_set1_epi32(a); }
CA1_FN __m256 ca1_fma_v8(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
CA1_FN __m256 ca1_add_v8(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
CA1_FN __m256 ca1_sub_v8(__m256 a, __m256 b) { return _mm256_sub_ps(a, b); }
CA1_FN __m256 ca1_mul_v8(__m256 a, __m256 b) { return _mm256_mul_ps(a, b); }
CA1_FN __m256 ca1_div_v8(__m256 a, __m256 b) { return _mm256_div_ps(a, b); }
CA1_FN __m256 ca1_sqrt_v8(__m256 a) { return _mm256_sqrt_ps(a); }
CA1_FN __m256i ca1_as_i32_v8(__m256 a) { return _mm256_castps_si256(a); }
CA1_FN __m256 ca1_as_f32_v8(__m256i a) { return _mm256_castsi256_ps(a); }
CA1_FN __m256i ca1_iadd_v8(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
CA1_FN __m256i ca1_isub_v8(__m256i a, __m256i b) { return _mm256_sub_epi32(a, b); }
CA1_FN __m256i ca1_iand_v8(__m256i a, __m256i b) { return _mm256_and_si256(a, b); }
CA1_FN __m256i ca1_ior_v8(__m256i a, __m256i b) { return _mm256_or_si256(a, b); }
CA1_FN __m256i ca1_ixor_v8(__m256i a, __m256i b) { return _mm256_xor_si256(a, b); }
CA1_FN __m256i ca1_shl23_v8(__m256i a) { return _mm256_slli_epi32(a, 23); }
CA1_FN __m256i ca1_sra23_v8(__m256i a) { return _mm256_srai_epi32(a, 23); }
CA1_FN __m256 ca1_sel_gt_v8(__m256 a, __m256 b, __m256 c, __m256 d)
{
    return _mm256_blendv_ps(d, c, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
CA1_FN __m256 ca1_sel_nan_v8(__m256 a, __m256 c, __m256 d) { return _mm256_blendv_ps(d, c, _mm256_cmp_ps(a, a, _CMP_UNORD_Q)); }
/* VMAXPS x, y is x > y ? x : y: with the operands exchanged it keeps the first of two equals and a NaN first operand. */
CA1_FN __m256 ca1_maxn_v8(__m256 a, __m256 b) { return _mm256_max_ps(b, a); }
CA1_FN __m256 ca1_minn_v8(__m256 a, __m256 b) { return _mm256_min_ps(b, a); }
CA1_FN __m256 ca1_relu_v8(__m256 a) { return _mm256_and_ps(a, _mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_NLE_UQ)); }

#elif CA1_VL == 16 && !defined(CA1_VEC_16)
#ifndef __x86_64__
#error "CA1_VL 16 needs x86-64"
#endif
#define CA1_VEC_16
#define CA1_VEC_NEW
#include <immintrin.h>
typedef __m512 ca1_f32_v16;
typedef __m512i ca1_i32_v16;
CA1_FN __m512 ca1_load_v16(const float *p) { return _mm512_loadu_ps(p); }
CA1_FN void ca1_store_v16(float *p, __m512 a) { _mm512_storeu_ps(p, a); }
CA1_FN __m512 ca1_set1_v16(float a) { return _mm512_set1_ps(a); }
CA1_FN __m512i ca1_iset1_v16(ca1_i32 a) { return _mm512_set1_epi32(a); }
CA1_FN __m512 ca1_fma_v16(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
CA1_FN __m512 ca1_add_v16(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }
CA1_FN __m512 ca1_sub_v16(__m512 a, __m512 b) { return _mm512_sub_ps(a, b); }
CA1_FN __m512 ca1_mul_v16(__m512 a, __m512 b) { return _mm512_mul_ps(a, b); }
CA1_FN __m512 ca1_div_v16(__m512 a, __m512 b) { return _mm512_div_ps(a, b); }
CA1_FN __m512 ca1_sqrt_v16(__m512 a) { return _mm512_sqrt_ps(a); }
CA1_FN __m512i ca1_as_i32_v16(__m512 a) { return _mm512_castps_si512(a); }
CA1_FN __m512 ca1_as_f32_v16(__m512i a) { return _mm512_castsi512_ps(a); }
CA1_FN __m512i ca1_iadd_v16(__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }
CA1_FN __m512i ca1_isub_v16(__m512i a, __m512i b) { return _mm512_sub_epi32(a, b); }
CA1_FN __m512i ca1_iand_v16(__m512i a, __m512i b) { return _mm512_and_si512(a, b); }
CA1_FN __m512i ca1_ior_v16(__m512i a, __m512i b) { return _mm512_or_si512(a, b); }
CA1_FN __m512i ca1_ixor_v16(__m512i a, __m512i b) { return _mm512_xor_si512(a, b); }
CA1_FN __m512i ca1_shl23_v16(__m512i a) { return _mm512_slli_epi32(a, 23); }
CA1_FN __m512i ca1_sra23_v16(__m512i a) { return _mm512_srai_epi32(a, 23); }
CA1_FN __m512 ca1_sel_gt_v16(__m512 a, __m512 b, __m512 c, __m512 d)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), d, c);
}
CA1_FN __m512 ca1_sel_nan_v16(__m512 a, __m512 c, __m512 d)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), d, c);
}
CA1_FN __m512 ca1_maxn_v16(__m512 a, __m512 b) { return _mm512_max_ps(b, a); }
CA1_FN __m512 ca1_minn_v16(__m512 a, __m512 b) { return _mm512_min_ps(b, a); }
CA1_FN __m512 ca1_relu_v16(__m512 a)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_NLE_UQ), a);
}

#elif CA1_VL != 1 && CA1_VL != 4 && CA1_VL != 8 && CA1_VL != 16
#error "CA1_VL must be 1, 4, 8 or 16"
#endif

/* --------------------------------------------------------------------------------------- the same text for every width
 * maxn and minn above require that b is not NaN (a bound of Clip, a running maximum of checked data). */
#ifdef CA1_VEC_NEW
#undef CA1_VEC_NEW
#define F CA1_N(f32)
#if CA1_VL == 1
/* The canonical NaN in the place of b: with b in both choices clang makes them one choice on two conditions, which x86
 * computes by a branch on the values. No NaN's payload leaves an engine. */
CA1_FN F CA1_N(max)(F a, F b) { return CA1_N(sel_nan)(b, ca1_as_f32_v1(0x7fc00000), CA1_N(maxn)(a, b)); }
CA1_FN F CA1_N(min)(F a, F b) { return CA1_N(sel_nan)(b, ca1_as_f32_v1(0x7fc00000), CA1_N(minn)(a, b)); }
#else
CA1_FN F CA1_N(max)(F a, F b) { return CA1_N(sel_nan)(b, b, CA1_N(maxn)(a, b)); }
CA1_FN F CA1_N(min)(F a, F b) { return CA1_N(sel_nan)(b, b, CA1_N(minn)(a, b)); }
#endif
CA1_FN F CA1_N(abs)(F a)
{
    return CA1_N(as_f32)(CA1_N(iand)(CA1_N(as_i32)(a), CA1_N(iset1)(0x7fffffff)));
}
CA1_FN F CA1_N(neg)(F a)
{
    return CA1_N(as_f32)(CA1_N(ixor)(CA1_N(as_i32)(a), CA1_N(iset1)((ca1_i32)0x80000000u)));
}
/* |a| with the sign bit of b. */
CA1_FN F CA1_N(with_sign)(F a, F b)
{
    return CA1_N(as_f32)(CA1_N(ior)(CA1_N(as_i32)(CA1_N(abs)(a)),
                                    CA1_N(iand)(CA1_N(as_i32)(b), CA1_N(iset1)((ca1_i32)0x80000000u))));
}
/* Canonical NaN, for values that leave the engine. */
CA1_FN F CA1_N(canon)(F a) { return CA1_N(sel_nan)(a, CA1_N(as_f32)(CA1_N(iset1)(0x7fc00000)), a); }
#undef F
#endif

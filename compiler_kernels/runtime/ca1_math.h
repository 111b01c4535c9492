/* Canonical Arithmetic 1: elementary functions, after docs/arithmetic-elementary.md (the text is normative).
 *
 * Written once over the vector layer: define CA1_VL and include, as for ca1_vec.h. The scalar functions (CA1_VL 1) also
 * have plain names: float ca1_exp(float). Coefficients: benchmarks/fit_elementary.py.
 */
#include "ca1_pow.h"
#include "ca1_vec.h"

#ifndef CA1_MATH_COEFFICIENTS
#define CA1_MATH_COEFFICIENTS
#define CA1_MAGIC 0x1.8p+23f
#define CA1_LOG2E 0x1.715476p+0f
#define CA1_LN2_HI 0x1.62e4p-1f
#define CA1_LN2_LO 0x1.7f7d1cp-20f
#define CA1_LN2 0x1.62e43p-1f
#define CA1_SQRT2 0x1.6a09e6p+0f
#define CA1_SQRT_2_OVER_PI 0x1.988452p-1f
#endif

#if (CA1_VL == 1 && !defined(CA1_MATH_1)) || (CA1_VL == 4 && !defined(CA1_MATH_4)) || \
    (CA1_VL == 8 && !defined(CA1_MATH_8)) || (CA1_VL == 16 && !defined(CA1_MATH_16))
#if CA1_VL == 1
#define CA1_MATH_1
#elif CA1_VL == 4
#define CA1_MATH_4
#elif CA1_VL == 8
#define CA1_MATH_8
#else
#define CA1_MATH_16
#endif

#define F CA1_N(f32)
#define I CA1_N(i32)
#define ADD CA1_N(add)
#define SUB CA1_N(sub)
#define MUL CA1_N(mul)
#define DIV CA1_N(div)
#define FMA CA1_N(fma)
#define SELGT CA1_N(sel_gt)
#define K CA1_N(set1)
#define BITS CA1_N(as_i32)
#define FLOAT CA1_N(as_f32)

/* exp: the part before scaling. Returns p with exp(x) ~ p * 2^n; *n_bits = n << 23. */
CA1_FN F CA1_N(exp_reduced_)(F x, I *n_bits)
{
    const F t = FMA(x, K(CA1_LOG2E), K(CA1_MAGIC));
    const F n = SUB(t, K(CA1_MAGIC));
    F r = FMA(n, K(-CA1_LN2_HI), x);
    r = FMA(n, K(-CA1_LN2_LO), r);
    F p = K(0x1.6ac518p-10f);
    p = FMA(p, r, K(0x1.123dccp-7f));
    p = FMA(p, r, K(0x1.555858p-5f));
    p = FMA(p, r, K(0x1.55548cp-3f));
    p = FMA(p, r, K(0x1.fffffcp-2f));
    p = FMA(p, r, K(1.0f));
    p = FMA(p, r, K(1.0f));
    *n_bits = CA1_N(shl23)(BITS(t));
    return p;
}

/* exp for -87 <= x <= 88 (or NaN): no scaling can leave the normal range. Same bits as exp there. */
CA1_FN F CA1_N(exp_core_)(F x)
{
    I n;
    const F p = CA1_N(exp_reduced_)(x, &n);
    return MUL(p, FLOAT(CA1_N(iadd)(n, CA1_N(iset1)(0x3f800000))));
}

/* exp for x <= 0 (or NaN), as softmax and sigmoid need it. Same bits as exp there. */
CA1_FN F CA1_N(exp_nonpositive)(F x)
{
    I n;
    const F p = CA1_N(exp_reduced_)(SELGT(K(-104.0f), x, K(-104.0f), x), &n);
    return MUL(MUL(p, FLOAT(CA1_N(iadd)(n, CA1_N(iset1)(0x4b800000)))), K(0x1p-24f));
}

CA1_FN F CA1_N(exp)(F x)
{
    I n;
    const F low = SELGT(K(-104.0f), x, K(-104.0f), x);
    const F p = CA1_N(exp_reduced_)(SELGT(low, K(89.0f), K(89.0f), low), &n);
    const F c = SELGT(x, K(0.0f), K(0x1p+24f), K(0x1p-24f));
    const I s = CA1_N(iadd)(n, CA1_N(isub)(CA1_N(iset1)(0x7f000000), BITS(c)));
    return MUL(MUL(p, FLOAT(s)), c);
}

CA1_FN F CA1_N(log)(F x)
{
    const F tiny = K(0x1p-126f);
    const F a = SELGT(tiny, x, MUL(x, K(0x1p+23f)), x);
    const F bias = SELGT(tiny, x, K(0x1.80002ep+23f), K(CA1_MAGIC));   /* the magic number, +23 when x was scaled */
    const I k = CA1_N(sra23)(CA1_N(isub)(BITS(a), CA1_N(iset1)(0x3f2aaaab)));
    const F f = SUB(FLOAT(CA1_N(isub)(BITS(a), CA1_N(shl23)(k))), K(1.0f));
    const F e = SUB(FLOAT(CA1_N(iadd)(k, CA1_N(iset1)(0x4b400000))), bias);
    const F s = MUL(f, f);
    F r = K(-0x1.ffbdfp-4f);
    r = FMA(r, f, K(0x1.1fefcp-3f));
    r = FMA(r, f, K(-0x1.f6b1fep-4f));
    r = FMA(r, f, K(0x1.1e82ep-3f));
    r = FMA(r, f, K(-0x1.557e34p-3f));
    r = FMA(r, f, K(0x1.99d588p-3f));
    r = FMA(r, f, K(-0x1.ffff94p-3f));
    r = FMA(r, f, K(0x1.5554fap-2f));
    r = FMA(r, f, K(-0.5f));
    r = FMA(r, s, f);
    r = FMA(e, K(CA1_LN2), r);
    const F inf = FLOAT(CA1_N(iset1)(0x7f800000));
    r = SELGT(inf, x, r, x);                                           /* +inf and NaN give themselves */
    const F z = SELGT(K(0.0f), x, FLOAT(CA1_N(iset1)(0x7fc00000)), SUB(x, inf));
    return SELGT(x, K(0.0f), r, z);
}

CA1_FN F CA1_N(erf)(F x)
{
    const F t = CA1_N(abs)(x);
    const F s = MUL(t, t);
    F q = K(-0x1.5340cep-11f);
    q = FMA(q, s, K(0x1.4cb072p-8f));
    q = FMA(q, s, K(-0x1.b75edep-6f));
    q = FMA(q, s, K(0x1.ce277ap-4f));
    q = FMA(q, s, K(-0x1.81272ep-2f));
    q = FMA(q, s, K(0x1.06eba8p-3f));
    const F small = FMA(q, t, t);
    const F u = SELGT(t, K(4.0f), K(4.0f), t);
    F g = K(0x1.c37d6p-18f);
    g = FMA(g, u, K(-0x1.24661ep-12f));
    g = FMA(g, u, K(0x1.c6a0d6p-9f));
    g = FMA(g, u, K(-0x1.7f769p-6f));
    g = FMA(g, u, K(0x1.b17faap-4f));
    g = FMA(g, u, K(0x1.455168p-1f));
    g = FMA(g, u, K(0x1.075b8p-3f));
    g = FMA(g, u, u);
    const F large = SUB(K(1.0f), CA1_N(exp_core_)(CA1_N(neg)(g)));
    return CA1_N(with_sign)(SELGT(t, K(0x1.a4p-1f), large, small), x);
}

CA1_FN F CA1_N(tanh)(F x)
{
    const F t = CA1_N(abs)(x);
    const F s = MUL(t, t);
    F q = K(-0x1.7c96f6p-8f);
    q = FMA(q, s, K(0x1.53d7dp-6f));
    q = FMA(q, s, K(-0x1.b88944p-5f));
    q = FMA(q, s, K(0x1.1109fp-3f));
    q = FMA(q, s, K(-0x1.555544p-2f));
    const F small = FMA(MUL(q, s), t, t);
    const F u = SELGT(t, K(9.125f), K(9.125f), t);
    const F e = CA1_N(exp_core_)(ADD(u, u));
    const F large = FMA(K(-2.0f), DIV(K(1.0f), ADD(e, K(1.0f))), K(1.0f));
    return CA1_N(with_sign)(SELGT(t, K(0.625f), large, small), x);
}

CA1_FN F CA1_N(sigmoid)(F x)
{
    const F e = CA1_N(exp_nonpositive)(CA1_N(neg)(CA1_N(abs)(x)));
    return DIV(SELGT(K(0.0f), x, e, K(1.0f)), ADD(K(1.0f), e));
}

CA1_FN F CA1_N(reciprocal)(F x) { return DIV(K(1.0f), x); }

/* --------------------------------------------------------- ONNX function bodies, operation by operation, never fused */
CA1_FN F CA1_N(softplus)(F x)
{
    const F t = CA1_N(exp_nonpositive)(CA1_N(neg)(CA1_N(abs)(x)));
    const F u = ADD(K(1.0f), t), d = SUB(u, K(1.0f));
    const F tail = SELGT(d, K(0.0f), MUL(CA1_N(log)(u), DIV(t, d)), t); /* log(1 + t): t itself where u rounds to 1 */
    return ADD(CA1_N(max)(x, K(0.0f)), tail);
}

CA1_FN F CA1_N(elu)(F x, F alpha)
{
    return SELGT(K(0.0f), x, MUL(alpha, SUB(CA1_N(exp)(x), K(1.0f))), x);
}

CA1_FN F CA1_N(leaky_relu)(F x, F alpha) { return SELGT(K(0.0f), x, MUL(alpha, x), x); }

CA1_FN F CA1_N(hard_sigmoid)(F x, F alpha, F beta)
{
    return CA1_N(maxn)(CA1_N(minn)(ADD(MUL(x, alpha), beta), K(1.0f)), K(0.0f));
}

CA1_FN F CA1_N(hard_swish)(F x) { return MUL(x, CA1_N(hard_sigmoid)(x, K(0x1.555556p-3f), K(0.5f))); }

CA1_FN F CA1_N(gelu)(F x)
{
    const F phi = ADD(K(1.0f), CA1_N(erf)(DIV(x, K(CA1_SQRT2))));
    return MUL(MUL(K(0.5f), x), phi);
}

CA1_FN F CA1_N(gelu_tanh)(F x)
{
    const F cube = MUL(MUL(x, x), x);                                  /* Pow(x, 3) */
    const F inner = MUL(K(CA1_SQRT_2_OVER_PI), ADD(x, MUL(K(0x1.6e4e26p-5f), cube)));
    return MUL(MUL(K(0.5f), x), ADD(K(1.0f), CA1_N(tanh)(inner)));
}

CA1_FN F CA1_N(mish)(F x) { return MUL(x, CA1_N(tanh)(CA1_N(softplus)(x))); }

#if CA1_VL == 1
CA1_FN float ca1_pow_v1(float x, float y) { return ca1_pow(x, y); }
CA1_FN float ca1_exp(float x) { return ca1_exp_v1(x); }
CA1_FN float ca1_exp_nonpositive(float x) { return ca1_exp_nonpositive_v1(x); }
CA1_FN float ca1_log(float x) { return ca1_log_v1(x); }
CA1_FN float ca1_erf(float x) { return ca1_erf_v1(x); }
CA1_FN float ca1_tanh(float x) { return ca1_tanh_v1(x); }
CA1_FN float ca1_sigmoid(float x) { return ca1_sigmoid_v1(x); }
CA1_FN float ca1_reciprocal(float x) { return ca1_reciprocal_v1(x); }
CA1_FN float ca1_softplus(float x) { return ca1_softplus_v1(x); }
CA1_FN float ca1_hard_swish(float x) { return ca1_hard_swish_v1(x); }
CA1_FN float ca1_gelu(float x) { return ca1_gelu_v1(x); }
CA1_FN float ca1_gelu_tanh(float x) { return ca1_gelu_tanh_v1(x); }
CA1_FN float ca1_mish(float x) { return ca1_mish_v1(x); }
CA1_FN float ca1_elu(float x, float alpha) { return ca1_elu_v1(x, alpha); }
#else
CA1_FN F CA1_N(pow)(F x, F y)
{
    float a[CA1_VL], b[CA1_VL];
    CA1_N(store)(a, x);
    CA1_N(store)(b, y);
    for (int i = 0; i < CA1_VL; i++)
        a[i] = ca1_pow(a[i], b[i]);
    return CA1_N(load)(a);
}
#endif

#undef F
#undef I
#undef ADD
#undef SUB
#undef MUL
#undef DIV
#undef FMA
#undef SELGT
#undef K
#undef BITS
#undef FLOAT
#endif

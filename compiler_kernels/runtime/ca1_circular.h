/* Canonical Arithmetic 1: trigonometric and hyperbolic functions in binary64, after docs/arithmetic-binary64.md (the text
 * is normative). The binary32 functions round the binary64 result once.
 */
#ifndef CA1_CIRCULAR_H
#define CA1_CIRCULAR_H
#include "ca1_double.h"

#define A_ ca1_dadd
#define S_(a, b) ca1_dadd(a, -(b))
#define M_ ca1_dmul
#define D_ ca1_ddiv
#define Q_ ca1_dstep_

/* ------------------------------------------------------------------------------------------------------ trigonometry */
/* x finite, t = |x| > pi/4: t = quadrant * pi/2 + (r + lo), exact to 2^-61 of the remainder, by the bits of 2/pi that
 * matter (Payne and Hanek, SIGNUM 1983). */
CA1_FUNCTION int ca1_quadrant_(double t, double *r, double *lo)
{
    const ca1_u32 table[39] = {
        0x00000000u, 0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u,
        0xfe5163abu, 0xdebbc561u, 0xb7246e3au, 0x424dd2e0u, 0x06492eeau, 0x09d1921cu, 0xfe1deb1cu, 0xb129a73eu,
        0xe88235f5u, 0x2ebb4484u, 0xe99c7026u, 0xb45f7e41u, 0x3991d639u, 0x835339f4u, 0x9c845f8bu, 0xbdf9283bu,
        0x1ff897ffu, 0xde05980fu, 0xef2f118bu, 0x5a0a6d1fu, 0x6d367ecfu, 0x27cb09b7u, 0x4f463f66u, 0x9e5fea2du,
        0x7527bac7u, 0xebe5f17bu, 0x3d0739f7u, 0x8a5292eau, 0x6bfb5fb1u, 0x1f8d5d08u, 0x56033046u};
    const ca1_u64 bits = ca1_bits64(t), m = (bits & 0xfffffffffffffULL) | 0x10000000000000ULL;
    const int skip = (int)(bits >> 52) - 1013; /* t = m 2^E, E + 62 bits of the table count multiples of 4 */
    const int first = skip >> 5, shift = skip & 31;
    ca1_u32 b[6], p[6]; /* least significant word first */
    for (int i = 0; i < 6; i++) {
        const ca1_u64 pair = (ca1_u64)table[first + 5 - i] << 32 | table[first + 6 - i];
        b[i] = (ca1_u32)(pair >> (32 - shift));
    }
    const ca1_u64 half[2] = {m & 0xffffffffu, m >> 32};
    ca1_u64 carry = 0;
    for (int i = 0; i < 6; i++) {
        p[i] = (ca1_u32)(carry += half[0] * b[i]);
        carry >>= 32;
    }
    carry = 0;
    for (int i = 1; i < 6; i++) {
        p[i] = (ca1_u32)(carry += half[1] * b[i - 1] + p[i]);
        carry >>= 32;
    }
    /* p / 2^190 is t * 2/pi modulo 4; to the nearest integer, the rest as sign and magnitude. */
    const int quadrant = (int)((p[5] + 0x20000000u) >> 30);
    p[5] -= (ca1_u32)quadrant << 30;
    const int negative = p[5] >> 31;
    carry = negative;
    for (int i = 0; i < 6; i++) {
        p[i] = (ca1_u32)(carry += negative ? ~p[i] : p[i]);
        carry >>= 32;
    }
    int top = 5, zeros = 0;
    while (top > 1 && p[top] == 0) top--;
    while (zeros < 31 && !(p[top] << zeros & 0x80000000u)) zeros++;
    ca1_u64 h = (ca1_u64)p[top] << 32 | p[top - 1];
    if (zeros) h = h << zeros | (top > 1 ? p[top - 2] >> (32 - zeros) : 0u);
    /* times pi/2 = 0xC90FDAA22168C235 / 2^63, the high 64 bits of the product */
    const ca1_u64 a0 = h & 0xffffffffu, a1 = h >> 32, c0 = 0x2168c235u, c1 = 0xc90fdaa2u;
    const ca1_u64 mid = a1 * c0 + (a0 * c0 >> 32), cross = a0 * c1 + (mid & 0xffffffffu);
    const ca1_u64 product = a1 * c1 + (mid >> 32) + (cross >> 32);
    /* h has weight 2^(32 (top - 1) - zeros - 190); the product one of 2^(that + 1) */
    const double unit = ca1_double((ca1_u64)(1023 + 32 * top - 32 - zeros - 189) << 52);
    const double sign = negative ? -unit : unit;
    *r = M_((double)(product >> 11), M_(sign, 2048.0));
    *lo = M_((double)(product & 2047u), sign);
    return quadrant & 3;
}

/* sin(r + lo) and cos(r + lo), |r| <= pi/4. */
CA1_FUNCTION double ca1_sin_small_(double r, double lo)
{
    const double z = M_(r, r), v = M_(z, r);
    double q = 1.0 / 355687428096000.0;
    q = Q_(q, z, -1.0 / 1307674368000.0);
    q = Q_(q, z, 1.0 / 6227020800.0);
    q = Q_(q, z, -1.0 / 39916800.0);
    q = Q_(q, z, 1.0 / 362880.0);
    q = Q_(q, z, -1.0 / 5040.0);
    q = Q_(q, z, 1.0 / 120.0);
    const double tail = S_(M_(z, S_(M_(0.5, lo), M_(v, q))), lo);
    return S_(r, A_(tail, M_(v, 1.0 / 6.0)));
}

CA1_FUNCTION double ca1_cos_small_(double r, double lo)
{
    const double z = M_(r, r), h = M_(0.5, z), w = S_(1.0, h);
    double q = -1.0 / 6402373705728000.0;
    q = Q_(q, z, 1.0 / 20922789888000.0);
    q = Q_(q, z, -1.0 / 87178291200.0);
    q = Q_(q, z, 1.0 / 479001600.0);
    q = Q_(q, z, -1.0 / 3628800.0);
    q = Q_(q, z, 1.0 / 40320.0);
    q = Q_(q, z, -1.0 / 720.0);
    q = Q_(q, z, 1.0 / 24.0);
    return A_(w, A_(S_(S_(1.0, w), h), S_(M_(M_(z, z), q), M_(r, lo))));
}

/* What of |x| the quadrant asks for: sin of the remainder or its cos. */
CA1_FUNCTION double ca1_wave_(double t, int turn)
{
    double r = t, lo = 0.0;
    if (!(t < __builtin_inf())) return __builtin_nan("");
    const int quadrant = ((t > 0x1.921fb54442d18p-1 ? ca1_quadrant_(t, &r, &lo) : 0) + turn) & 3;
    const double y = quadrant & 1 ? ca1_cos_small_(r, lo) : ca1_sin_small_(r, lo);
    return quadrant & 2 ? -y : y;
}

CA1_FUNCTION double ca1_sin_f64(double x)
{
    if (x == 0.0) return x;
    const double y = ca1_wave_(__builtin_fabs(x), 0);
    return x < 0.0 ? -y : y;
}

CA1_FUNCTION double ca1_cos_f64(double x) { return ca1_wave_(__builtin_fabs(x), 1); }

CA1_FUNCTION double ca1_tan_f64(double x) { return D_(ca1_sin_f64(x), ca1_cos_f64(x)); }

CA1_FUNCTION double ca1_atan_f64(double x)
{
    /* atan(j/8) and pi/2 - atan(j/8), each in two parts */
    const double table[9][4] = {
        {0.0, 0.0, 0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54},
        {0x1.fd5ba9aac2f6ep-4, -0x1.cd37686760c17p-59, 0x1.7249faa996a21p+0, 0x1.a8cc1e7480c68p-54},
        {0x1.f5b75f92c80ddp-3, 0x1.8ab6e3cf7afbdp-57, 0x1.5368c951e9cfdp+0, -0x1.96f47948a99f1p-54},
        {0x1.6f61941e4def1p-2, -0x1.c63aae6f6e918p-56, 0x1.3647503caf55cp+0, 0x1.17e21d9a42c9ap-55},
        {0x1.dac670561bb4fp-2, 0x1.a2b7f222f65e2p-56, 0x1.1b6e192ebbe44p+0, 0x1.b1b466a88828ep-54},
        {0x1.1e00babdefeb4p-1, -0x1.928df287a668fp-58, 0x1.031f57e54adbep+0, 0x1.338b4259c027p-54},
        {0x1.4978fa3269ee1p-1, 0x1.2419a87f2a458p-56, 0x1.dac670561bb4fp-1, 0x1.a2b7f222f65e2p-55},
        {0x1.700a7c5784634p-1, -0x1.8c34d25aadef6p-56, 0x1.b434ee31013fdp-1, -0x1.0520d0701d877p-55},
        {0x1.921fb54442d18p-1, 0x1.1a62633145c07p-55, 0x1.921fb54442d18p-1, 0x1.1a62633145c07p-55}};
    const double t = __builtin_fabs(x);
    if (!(t >= 0.0)) return x;
    const int beyond = t > 1.0;
    const double u = beyond ? D_(1.0, t) : t;
    const int j = (int)A_(M_(u, 8.0), 0.5);
    const double c = M_((double)j, 0.125);
    const double d = D_(S_(u, c), A_(1.0, M_(u, c))), z = M_(d, d);
    double q = 1.0 / 13.0;
    q = Q_(q, z, -1.0 / 11.0);
    q = Q_(q, z, 1.0 / 9.0);
    q = Q_(q, z, -1.0 / 7.0);
    q = Q_(q, z, 1.0 / 5.0);
    q = Q_(q, z, -1.0 / 3.0);
    const double part = A_(d, M_(M_(d, z), q));
    const double y = beyond ? A_(table[j][2], S_(table[j][3], part)) : A_(table[j][0], A_(table[j][1], part));
    return ca1_sign_of_(y, x);
}

CA1_FUNCTION double ca1_asin_f64(double x)
{
    return ca1_atan_f64(D_(x, ca1_sqrt_f64(M_(S_(1.0, x), A_(1.0, x)))));
}

CA1_FUNCTION double ca1_acos_f64(double x)
{
    return M_(2.0, ca1_atan_f64(ca1_sqrt_f64(D_(S_(1.0, x), A_(1.0, x)))));
}

/* -------------------------------------------------------------------------------------------------------- hyperbolic */
/* (e^t + side e^-t) / 2, t >= 0 or NaN; e^t itself may overflow where the half does not. */
CA1_FUNCTION double ca1_half_exp_(double t, double side)
{
    if (t > 709.0) {
        const double root = ca1_exp_f64(M_(0.5, t));
        return M_(M_(0.5, root), root);
    }
    const double e = ca1_exp_f64(t);
    return A_(M_(0.5, e), D_(side, e));
}

CA1_FUNCTION double ca1_sinh_f64(double x)
{
    const double t = __builtin_fabs(x);
    return ca1_sign_of_(t < 1.0 ? ca1_sinh_small_(t) : ca1_half_exp_(t, -0.5), x);
}

CA1_FUNCTION double ca1_cosh_f64(double x) { return ca1_half_exp_(__builtin_fabs(x), 0.5); }

CA1_FUNCTION double ca1_asinh_f64(double x)
{
    const double t = __builtin_fabs(x), s = M_(t, t);
    if (t > 0x1p+28) return ca1_sign_of_(A_(ca1_log_f64(t), CA1_LN2_64), x);
    return ca1_sign_of_(ca1_log1p_(A_(t, D_(s, A_(1.0, ca1_sqrt_f64(A_(1.0, s)))))), x);
}

CA1_FUNCTION double ca1_acosh_f64(double x)
{
    if (!(x >= 1.0)) return __builtin_nan("");
    if (x > 0x1p+28) return A_(ca1_log_f64(x), CA1_LN2_64);
    const double d = A_(x, -1.0);
    return ca1_log1p_(A_(d, ca1_sqrt_f64(A_(M_(2.0, d), M_(d, d)))));
}

CA1_FUNCTION double ca1_atanh_f64(double x)
{
    const double t = __builtin_fabs(x), u = A_(t, t);
    if (!(t <= 1.0)) return __builtin_nan("");
    const double y = t < 0.5 ? A_(u, D_(M_(u, t), S_(1.0, t))) : D_(u, S_(1.0, t));
    return ca1_sign_of_(M_(0.5, ca1_log1p_(y)), x);
}

#define CA1_ROUNDED_ONCE(NAME) \
    CA1_FUNCTION float ca1_##NAME(float x) { return (float)ca1_##NAME##_f64((double)x); }
CA1_ROUNDED_ONCE(sin)
CA1_ROUNDED_ONCE(cos)
CA1_ROUNDED_ONCE(tan)
CA1_ROUNDED_ONCE(asin)
CA1_ROUNDED_ONCE(acos)
CA1_ROUNDED_ONCE(atan)
CA1_ROUNDED_ONCE(sinh)
CA1_ROUNDED_ONCE(cosh)
CA1_ROUNDED_ONCE(asinh)
CA1_ROUNDED_ONCE(acosh)
CA1_ROUNDED_ONCE(atanh)
#undef CA1_ROUNDED_ONCE

#undef A_
#undef S_
#undef M_
#undef D_
#undef Q_
#endif

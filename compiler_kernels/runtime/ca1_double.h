/* Canonical Arithmetic 1: exp, log, tanh, erf, sigmoid, pow and the remainder in binary64, after docs/arithmetic-binary64.md (the text is normative).
 *
 * Add, subtract, multiply, divide and square root only, each rounded to binary64, no fma: WebAssembly needs none.
 */
#ifndef CA1_DOUBLE_H
#define CA1_DOUBLE_H
#include "ca1_pow.h"

#define CA1_FUNCTION static __attribute__((unused)) CA1_DEVICE
#define A_ ca1_dadd
#define S_(a, b) ca1_dadd(a, -(b))
#define M_ ca1_dmul
#define D_ ca1_ddiv
#define Q_ ca1_dstep_
#define CA1_SHIFT64 0x1.8p+52
#define CA1_LN2_64 0x1.62e42fefa39efp-1
#define CA1_LN2_HI64 0x1.62e42feep-1
#define CA1_LN2_LO64 0x1.a39ef35793c76p-33

CA1_INLINE double ca1_sqrt_f64(double x)
{
#ifdef __CUDA_ARCH__
    return __dsqrt_rn(x);
#else
    return __builtin_sqrt(x);
#endif
}

CA1_INLINE double ca1_sign_of_(double a, double b) { return __builtin_copysign(a, b); }

/* p * 2^n, |n| < 2000, one rounding: the first factor keeps p normal. */
CA1_INLINE double ca1_scale_(double p, int n)
{
    const int half = n >> 1;
    return M_(M_(p, ca1_double((ca1_u64)(1023 + half) << 52)), ca1_double((ca1_u64)(1023 + n - half) << 52));
}

/* The low 32 bits of the pattern of n + CA1_SHIFT64 are n; NaN gives some number and never undefined behaviour. */
CA1_INLINE int ca1_whole_(double shifted) { return (int)(ca1_u32)ca1_bits64(shifted); }

/* e^r for |r| <= 0.36, r = hi + lo with |lo| far below hi. */
CA1_FUNCTION double ca1_exp_small_(double r, double lo)
{
    double q = 1.0 / 6227020800.0;
    q = Q_(q, r, 1.0 / 479001600.0);
    q = Q_(q, r, 1.0 / 39916800.0);
    q = Q_(q, r, 1.0 / 3628800.0);
    q = Q_(q, r, 1.0 / 362880.0);
    q = Q_(q, r, 1.0 / 40320.0);
    q = Q_(q, r, 1.0 / 5040.0);
    q = Q_(q, r, 1.0 / 720.0);
    q = Q_(q, r, 1.0 / 120.0);
    q = Q_(q, r, 1.0 / 24.0);
    q = Q_(q, r, 1.0 / 6.0);
    q = Q_(q, r, 0.5);
    return A_(1.0, A_(r, A_(M_(M_(r, r), q), lo)));
}

/* e^(x + t) for |t| far below 1; +inf and 0 beyond the range. */
CA1_FUNCTION double ca1_exp_sum_(double x, double t)
{
    double c = x > 710.0 ? 710.0 : x;
    c = -746.0 > c ? -746.0 : c;
    const double shifted = A_(M_(c, 0x1.71547652b82fep+0), CA1_SHIFT64);
    const double n = A_(shifted, -CA1_SHIFT64);
    const double hi = S_(c, M_(n, CA1_LN2_HI64));
    const double lo = S_(M_(n, CA1_LN2_LO64), t);
    const double r = S_(hi, lo);
    return ca1_scale_(ca1_exp_small_(r, S_(S_(hi, r), lo)), ca1_whole_(shifted));
}

CA1_FUNCTION double ca1_exp_f64(double x) { return ca1_exp_sum_(x, 0.0); }

CA1_FUNCTION double ca1_log_f64(double x)
{
    if (!(x > 0.0)) return x == 0.0 ? -__builtin_inf() : __builtin_nan("");
    if (!(x < __builtin_inf())) return x;
    const int tiny = x < 0x1p-1022;
    const ca1_u64 bits = ca1_bits64(tiny ? M_(x, 0x1p+54) : x);
    const ca1_u64 k = (bits - 0x3fe6a09e667f3bcdULL) >> 52; /* modulo 4096 */
    const double e = (double)((ca1_i32)(k ^ 0x800u) - 0x800 - (tiny ? 54 : 0));
    const double f = A_(ca1_double(bits - (k << 52)), -1.0);
    const double s = D_(f, A_(2.0, f)), z = M_(s, s);
    double q = 2.0 / 21.0;
    q = Q_(q, z, 2.0 / 19.0);
    q = Q_(q, z, 2.0 / 17.0);
    q = Q_(q, z, 2.0 / 15.0);
    q = Q_(q, z, 2.0 / 13.0);
    q = Q_(q, z, 2.0 / 11.0);
    q = Q_(q, z, 2.0 / 9.0);
    q = Q_(q, z, 2.0 / 7.0);
    q = Q_(q, z, 2.0 / 5.0);
    q = Q_(q, z, 2.0 / 3.0);
    const double h = M_(0.5, M_(f, f));
    const double tail = A_(M_(s, A_(h, M_(q, z))), M_(e, CA1_LN2_LO64));
    return S_(M_(e, CA1_LN2_HI64), S_(S_(h, tail), f));
}

/* log(1 + y), y >= 0 or NaN. */
CA1_FUNCTION double ca1_log1p_(double y)
{
    const double u = A_(1.0, y);
    if (!(u < __builtin_inf())) return u;
    return A_(ca1_log_f64(u), D_(S_(y, A_(u, -1.0)), u));
}

/* sinh(t), 0 <= t < 1. */
CA1_FUNCTION double ca1_sinh_small_(double t)
{
    const double z = M_(t, t);
    double q = 1.0 / 121645100408832000.0;
    q = Q_(q, z, 1.0 / 355687428096000.0);
    q = Q_(q, z, 1.0 / 1307674368000.0);
    q = Q_(q, z, 1.0 / 6227020800.0);
    q = Q_(q, z, 1.0 / 39916800.0);
    q = Q_(q, z, 1.0 / 362880.0);
    q = Q_(q, z, 1.0 / 5040.0);
    q = Q_(q, z, 1.0 / 120.0);
    q = Q_(q, z, 1.0 / 6.0);
    return A_(t, M_(M_(t, z), q));
}

CA1_FUNCTION double ca1_tanh_f64(double x)
{
    const double t = __builtin_fabs(x);
    double y;
    if (t < 1.0) {
        const double s = ca1_sinh_small_(t);
        y = D_(s, ca1_sqrt_f64(A_(1.0, M_(s, s))));
    } else {
        y = S_(1.0, D_(2.0, A_(ca1_exp_f64(A_(t, t)), 1.0)));
    }
    return ca1_sign_of_(y, x);
}

/* -------------------------------------------------------------------------------------------------- erf, sigmoid, pow */
CA1_FUNCTION double ca1_erf_f64(double x)
{
    const double terms[27] = {
        -0x1.31b7776e54127p-99, 0x1.0baeaddb047bp-94,   -0x1.c40abff27ce65p-90, 0x1.6f928977a0028p-85,
        -0x1.1f690c2b2753ap-80, 0x1.af83c2fb19fa6p-76,  -0x1.3676fc48c133cp-71, 0x1.ab5cc31489f29p-67,
        -0x1.18cc8a061c479p-62, 0x1.5f7919bc67b8cp-58,  -0x1.a2007af3447f6p-54, 0x1.d70b3537f4765p-50,
        -0x1.f56f071a885cfp-46, 0x1.f683ae4a97007p-42,  -0x1.d8453cb0c46eap-38, 0x1.9e6ad5e55a73p-34,
        -0x1.51d7181c5d36dp-30, 0x1.fcc5720624c1cp-27,  -0x1.5f742ec43e71ap-23, 0x1.b9e6c9dc651a3p-20,
        -0x1.f4d25c3e0c2ebp-17, 0x1.f9a326f9b89b7p-14,  -0x1.c02db40040b86p-11, 0x1.565bcd0e6a53fp-8,
        -0x1.b82ce31288b51p-6,  0x1.ce2f21a042be2p-4,   -0x1.812746b0379e7p-2};
    const double t = __builtin_fabs(x);
    double y = 1.0;
    if (!(t == t)) return x;
    if (t < 1.5) {
        const double z = M_(t, t);
        double q = terms[0];
        for (int k = 1; k < 27; k++) q = Q_(q, z, terms[k]);
        y = A_(t, M_(t, Q_(q, z, 0x1.06eba8214db69p-3)));
    } else if (t < 6.0) {
        double f = t; /* erfc(t) = e^(-t^2) / (sqrt(pi) (t + (1/2) / (t + 1 / (t + (3/2) / (t + ...))))) */
        for (int k = 80; k > 0; k--) f = A_(t, D_(M_(0.5, (double)k), f));
        const double high = ca1_double(ca1_bits64(t) & ~(ca1_u64)0x7ffffff);
        const double e = ca1_exp_sum_(-M_(high, high), -M_(S_(t, high), A_(t, high)));
        y = S_(1.0, D_(M_(e, 0x1.20dd750429b6dp-1), f));
    }
    return ca1_sign_of_(y, x);
}

CA1_FUNCTION double ca1_sigmoid_f64(double x)
{
    const double e = ca1_exp_f64(-__builtin_fabs(x));
    return D_(x < 0.0 ? e : 1.0, A_(1.0, e));
}

/* a * b exactly, as the returned product and *low (Dekker; Veltkamp's splitting), far from overflow. */
CA1_FUNCTION double ca1_product_(double a, double b, double *low)
{
    const double ca = M_(a, 134217729.0), cb = M_(b, 134217729.0);
    const double ah = S_(ca, S_(ca, a)), bh = S_(cb, S_(cb, b)), al = S_(a, ah), bl = S_(b, bh);
    const double p = M_(a, b);
    *low = A_(S_(A_(S_(M_(ah, bh), p), M_(ah, bl)), -M_(al, bh)), M_(al, bl));
    return p;
}

/* log2(a), a finite and positive, as the returned number and *low. */
CA1_FUNCTION double ca1_log2_pair_(double a, double *low)
{
    const int tiny = a < 0x1p-1022;
    const ca1_u64 bits = ca1_bits64(tiny ? M_(a, 0x1p+54) : a);
    const ca1_u64 k = (bits - 0x3fe6a09e667f3bcdULL) >> 52;
    const double e = (double)((ca1_i32)(k ^ 0x800u) - 0x800 - (tiny ? 54 : 0));
    const double m = ca1_double(bits - (k << 52)), f = A_(m, -1.0);
    const double n = A_(m, 1.0), nl = S_(m, A_(n, -1.0)); /* m + 1 = n + nl: m - (n - 1) is exact */
    const double s = D_(f, n);
    double pl, zl, wl, ll, cl;
    const double p = ca1_product_(s, n, &pl);
    const double sl = D_(S_(S_(S_(f, p), pl), M_(s, nl)), n); /* f / (m + 1) = s + sl */
    const double z = ca1_product_(s, s, &zl);
    zl = A_(zl, M_(M_(2.0, s), sl));
    double q = 1.0 / 23.0;
    q = Q_(q, z, 1.0 / 21.0);
    q = Q_(q, z, 1.0 / 19.0);
    q = Q_(q, z, 1.0 / 17.0);
    q = Q_(q, z, 1.0 / 15.0);
    q = Q_(q, z, 1.0 / 13.0);
    q = Q_(q, z, 1.0 / 11.0);
    q = Q_(q, z, 1.0 / 9.0);
    q = Q_(q, z, 1.0 / 7.0);
    q = M_(Q_(q, z, 1.0 / 5.0), z);
    const double t = A_(1.0 / 3.0, q), tl = A_(S_(q, S_(t, 1.0 / 3.0)), 0x1.5555555555555p-56);
    const double w = ca1_product_(z, t, &wl);
    wl = A_(wl, A_(M_(z, tl), M_(zl, t)));
    const double u = A_(1.0, w), ul = A_(S_(w, A_(u, -1.0)), wl);
    const double l = ca1_product_(s, u, &ll);
    ll = A_(ll, A_(M_(s, ul), M_(sl, u))); /* atanh(f / (m + 1)) = l + ll */
    const double c = ca1_product_(l, 0x1.71547652b82fep+1, &cl);
    cl = A_(cl, A_(M_(l, 0x1.777d0ffda0d24p-55), M_(ll, 0x1.71547652b82fep+1)));
    const double r = A_(e, c);
    *low = A_(S_(c, S_(r, e)), cl);
    return r;
}

/* 2^(z + low). */
CA1_FUNCTION double ca1_exp2_pair_(double z, double low)
{
    const double c = z > 1100.0 ? 1100.0 : z < -1100.0 ? -1100.0 : z;
    const double shifted = A_(c, CA1_SHIFT64), n = A_(shifted, -CA1_SHIFT64);
    const double main = M_(S_(c, n), CA1_LN2_64), tail = c == z ? M_(low, CA1_LN2_64) : 0.0;
    const double r = A_(main, tail);
    return ca1_scale_(ca1_exp_small_(r, A_(S_(main, r), tail)), ca1_whole_(shifted));
}

CA1_INLINE int ca1_is_integer64_(double v) { return v >= 0x1p+52 || S_(A_(v, 0x1p+52), 0x1p+52) == v; }

CA1_FUNCTION double ca1_pow_f64(double x, double y)
{
    const double inf = __builtin_inf();
    if (y == 2.0) return M_(x, x);
    if (y == 3.0) return M_(M_(x, x), x);
    if (y == 0.0 || x == 1.0) return 1.0;
    if (x != x || y != y) return __builtin_nan("");
    const double a = __builtin_fabs(x), b = __builtin_fabs(y);
    const int odd = ca1_is_integer64_(b) && !ca1_is_integer64_(M_(b, 0.5));
    if (x < 0.0 && a < inf && !ca1_is_integer64_(b)) return __builtin_nan("");
    double r = 1.0;
    if (a == 0.0 || a == inf) {
        r = (a == 0.0) == (y < 0.0) ? inf : 0.0;
    } else if (a != 1.0) {
        /* An exponent beyond 2^64 overflows or vanishes like 2^64 does. */
        const double exponent = ca1_sign_of_(b > 0x1p+64 ? 0x1p+64 : b, y);
        double l, low;
        const double whole = ca1_log2_pair_(a, &l);
        const double z = ca1_product_(exponent, whole, &low);
        r = ca1_exp2_pair_(z, A_(low, M_(exponent, l)));
    }
    return odd && (x < 0.0 || (x == 0.0 && __builtin_signbit(x))) ? -r : r;
}

/* The remainder of x / y with the sign of x, exact: long division bit by bit. */
CA1_FUNCTION double ca1_fmod_f64(double x, double y)
{
    const double a = __builtin_fabs(x), b = __builtin_fabs(y);
    if (!(a < __builtin_inf()) || !(b > 0.0)) return __builtin_nan("");
    if (a < b) return x;
    const ca1_u64 hidden = 0x10000000000000ULL, below = hidden - 1;
    const ca1_u64 bits = ca1_bits64(a), other = ca1_bits64(b);
    int ea = (int)(bits >> 52), eb = (int)(other >> 52);
    ca1_u64 m = bits & below, n = other & below;
    if (ea) m |= hidden;
    else for (ea = 1; m < hidden; ea--) m <<= 1;
    if (eb) n |= hidden;
    else for (eb = 1; n < hidden; eb--) n <<= 1;
    for (; ea > eb; ea--) {
        m = m >= n ? m - n : m;
        m <<= 1;
    }
    m = m >= n ? m - n : m;
    for (; m && m < hidden; eb--) m <<= 1;
    /* a remainder below the normal range is a multiple of the smallest number, so nothing is shifted out */
    const double r = ca1_double(m == 0 ? 0 : eb < 1 ? m >> (1 - eb) : (m & below) | (ca1_u64)eb << 52);
    return ca1_sign_of_(r, x);
}

/* ------------------------------------------------------------------------------------ ONNX function bodies, as binary32 */
CA1_FUNCTION double ca1_softplus_f64(double x)
{
    const double t = ca1_exp_f64(-__builtin_fabs(x)), u = A_(1.0, t), d = A_(u, -1.0);
    const double tail = d > 0.0 ? M_(ca1_log_f64(u), D_(t, d)) : t;
    return A_(x != x ? x : 0.0 > x ? 0.0 : x, tail);
}

CA1_FUNCTION double ca1_hard_sigmoid_f64(double x, double alpha, double beta)
{
    const double v = A_(M_(x, alpha), beta);
    return v != v ? v : v > 1.0 ? 1.0 : v < 0.0 ? 0.0 : v;
}

CA1_FUNCTION double ca1_hard_swish_f64(double x) { return M_(x, ca1_hard_sigmoid_f64(x, 1.0 / 6.0, 0.5)); }
CA1_FUNCTION double ca1_leaky_relu_f64(double x, double slope) { return x < 0.0 ? M_(slope, x) : x; }

CA1_FUNCTION double ca1_elu_f64(double x, double alpha)
{
    return x < 0.0 ? M_(alpha, A_(ca1_exp_f64(x), -1.0)) : x;
}

CA1_FUNCTION double ca1_gelu_f64(double x)
{
    return M_(M_(0.5, x), A_(1.0, ca1_erf_f64(D_(x, 0x1.6a09e667f3bcdp+0))));
}

CA1_FUNCTION double ca1_gelu_tanh_f64(double x)
{
    const double inner = M_(0x1.9884533d43651p-1, A_(x, M_(0.044715, M_(M_(x, x), x))));
    return M_(M_(0.5, x), A_(1.0, ca1_tanh_f64(inner)));
}

CA1_INLINE float ca1_fmod(float x, float y) { return (float)ca1_fmod_f64((double)x, (double)y); }

#undef A_
#undef S_
#undef M_
#undef D_
#undef Q_
#endif

/* Canonical Arithmetic 1: correctly rounded binary32 fused multiply-add (IEEE 754-2019, 5.4.1) on every target.
 *
 * ca1_fmaf(a, b, c) is the hardware instruction where there is one. Elsewhere (WebAssembly, x86-64 without FMA, soft
 * float) it is ca1_fmaf_soft, because the library functions of several C libraries round twice:
 * fmaf(1126341*2^-75, 15618881*2^-119, 2^-127) is 0x00400001, musl's and wasi-libc's fmaf return 0x00400000.
 *
 * Compile with -ffp-contract=off -fno-math-errno. Needs no header of the C library.
 */
#ifndef CA1_FMA_H
#define CA1_FMA_H

#ifdef __FAST_MATH__
#error "Canonical Arithmetic 1 must not be compiled with -ffast-math"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "Canonical Arithmetic 1 needs binary32 evaluation (FLT_EVAL_METHOD 0); on 32-bit x86 use -msse2 -mfpmath=sse"
#endif

/* CA1_DEVICE: qualifiers of every function; CUDA code sees both a host and a device version. */
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#ifndef CA1_DEVICE
#define CA1_DEVICE __host__ __device__
#endif
#define CA1_INLINE static __forceinline__ CA1_DEVICE
#else
#ifndef CA1_DEVICE
#define CA1_DEVICE
#endif
#define CA1_INLINE static inline __attribute__((always_inline, unused)) CA1_DEVICE
#endif

/* Constants that device code reads lie in the device's memory. */
#ifndef CA1_CONSTANT
#define CA1_CONSTANT static const
#endif

typedef int ca1_i32;                  /* 32 bits on every supported target */
typedef unsigned int ca1_u32;
typedef unsigned long long ca1_u64;   /* 64 bits */

#if !defined(CA1_SOFT_FMA) && (defined(__CUDA_ARCH__) || defined(__FMA__) || defined(__aarch64__) || \
                               defined(__ARM_FEATURE_FMA) || (defined(__riscv_flen) && __riscv_flen >= 32))
#define CA1_HARDWARE_FMA 1
#else
#define CA1_HARDWARE_FMA 0
#endif

CA1_INLINE ca1_u64 ca1_bits64(double x)
{
    ca1_u64 u;
    __builtin_memcpy(&u, &x, sizeof u);
    return u;
}

CA1_INLINE double ca1_double(ca1_u64 u)
{
    double x;
    __builtin_memcpy(&x, &u, sizeof x);
    return x;
}

/* The product of two 24-bit significands fits binary64 exactly. The sum is rounded to odd: where it is inexact (TwoSum,
 * Knuth 1969, gives the error) and its last bit is even, step one unit towards the exact value. A value rounded to odd
 * with at least two bits more than the target rounds correctly afterwards (Boldo and Melquiond, IEEE TC 57, 2008),
 * subnormal results included, since those keep fewer bits. */
CA1_INLINE float ca1_fmaf_soft(float a, float b, float c)
{
    const double p = (double)a * (double)b;
    const double z = (double)c;
    double s = p + z;
    const double t = s - p;
    const double e = (p - (s - t)) + (z - t);   /* NaN when s is not finite: no step is taken then */
    const ca1_u64 u = ca1_bits64(s);
    if ((u & 1u) == 0 && (e > 0.0 || e < 0.0))
        s = ca1_double(((e > 0.0) == (s > 0.0)) ? u + 1 : u - 1);
    return (float)s;
}

CA1_INLINE float ca1_fmaf(float a, float b, float c)
{
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(a, b, c);
#elif CA1_HARDWARE_FMA
    return __builtin_fmaf(a, b, c);
#else
    return ca1_fmaf_soft(a, b, c);
#endif
}

#endif

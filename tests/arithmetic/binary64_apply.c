/* Functions of ca1_double.h and ca1_whole.h over arrays, for tests that load this as a shared library. */
#include "ca1_whole.h"

#define UNARY(NAME)                                                        \
    void apply_##NAME(const double *x, double *y, int count)               \
    {                                                                      \
        for (int i = 0; i < count; i++) y[i] = ca1_##NAME##_f64(x[i]);     \
    }
UNARY(exp) UNARY(log) UNARY(sin) UNARY(cos) UNARY(tan) UNARY(asin) UNARY(acos) UNARY(atan) UNARY(sinh) UNARY(cosh)
UNARY(tanh) UNARY(asinh) UNARY(acosh) UNARY(atanh) UNARY(erf) UNARY(sigmoid) UNARY(round) UNARY(sign)

#define BINARY(NAME)                                                                  \
    void apply_##NAME(const double *a, const double *b, double *y, int count)         \
    {                                                                                 \
        for (int i = 0; i < count; i++) y[i] = ca1_##NAME##_f64(a[i], b[i]);          \
    }
BINARY(pow) BINARY(fmod) BINARY(mod)

/* Largest distance, in units of 2^-30 of the last place of binary32, of the function of every operand first + i * step
 * from the nearest binary32 number to the C library's binary64 value, beyond half a unit; and the operand. */
#ifdef AGAINST_LIBM
#include <math.h>
static double ulp_of(double t)
{
    int e;
    frexp(t, &e);
    return ldexp(1.0, (e < -125 ? -125 : e) - 24);
}
#define WORST(NAME)                                                                                     \
    double worst_##NAME(unsigned first, unsigned step, unsigned long count, unsigned *where)            \
    {                                                                                                   \
        double worst = 0.0;                                                                             \
        for (unsigned long i = 0; i < count; i++) {                                                     \
            const unsigned bits = first + (unsigned)i * step;                                           \
            const double x = (double)ca1_number_f32(bits), t = NAME(x), y = (double)ca1_##NAME((float)x); \
            double error;                                                                               \
            if (t != t || y != y) error = (t != t) == (y != y) ? 0.0 : 1e9;                             \
            else if (!(fabs(t) < 0x1.ffffffp+127)) error = fabs(y) == (double)__builtin_inff() ? 0.0 : 1e9; \
            else error = fabs(y - t) / ulp_of(t);                                                       \
            if (error > worst) {                                                                        \
                worst = error;                                                                          \
                *where = bits;                                                                          \
            }                                                                                           \
        }                                                                                               \
        return worst;                                                                                   \
    }
WORST(sin) WORST(cos) WORST(tan) WORST(asin) WORST(acos) WORST(atan) WORST(sinh) WORST(cosh) WORST(asinh) WORST(acosh)
WORST(atanh)
#endif

/* Test program: `elementary_ulp FUNCTION FIRST LAST STEP` measures the largest error in ulp against the C library's
 * binary64 function over one pattern per STEP in [FIRST, LAST), and prints
 * "worst-ulp pattern wrong tested": wrong counts results of the wrong kind (NaN, infinity where the binary64 value
 * rounds to a finite one or the reverse, sign of zero). FUNCTION "forms" compares the short forms of exp with exp. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CA1_VL 1
#include "ca1_math.h"

static double exact_sigmoid(double x)
{
    const double e = exp(-fabs(x));
    return (x < 0 ? e : 1.0) / (1.0 + e);
}

static const struct { const char *name; float (*own)(float); double (*exact)(double); } table[] = {
    {"exp", ca1_exp, exp}, {"log", ca1_log, log}, {"erf", ca1_erf, erf}, {"tanh", ca1_tanh, tanh},
    {"sigmoid", ca1_sigmoid, exact_sigmoid}};

static unsigned bits(float x) { return (unsigned)ca1_as_i32_v1(ca1_canon_v1(x)); }

static float pattern(unsigned long long k, unsigned step)
{
    return ca1_as_f32_v1((ca1_i32)(unsigned)(k * step + (k * 2654435761ULL >> 7) % step));
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    const unsigned step = (unsigned)atoi(argv[4]);
    const unsigned long long first = strtoull(argv[2], NULL, 0) / step, last = strtoull(argv[3], NULL, 0) / step;
    unsigned long long wrong = 0, tested = 0;
    double worst = 0;
    unsigned at = 0;
    if (strcmp(argv[1], "forms") == 0) {
        for (unsigned long long k = first; k < last; k++) {
            const float x = pattern(k, step);
            const unsigned e = bits(ca1_exp(x));
            if (!(x > 0.0f) && ++tested && bits(ca1_exp_nonpositive(x)) != e)
                wrong++;
            if (!(x > 88.0f) && !(x < -87.0f) && ++tested && bits(ca1_exp_core__v1(x)) != e)
                wrong++;
        }
        printf("0 0 %llu %llu\n", wrong, tested);
        return 0;
    }
    for (size_t f = 0; f < sizeof table / sizeof table[0]; f++) {
        if (strcmp(argv[1], table[f].name) != 0)
            continue;
        for (unsigned long long k = first; k < last; k++, tested++) {
            const float x = pattern(k, step), y = table[f].own(x);
            const double t = table[f].exact((double)x);
            const float rounded = (float)t;
            if (t != t || isinf(rounded) || isinf(y) || y != y) {
                wrong += bits(y) != bits(rounded);
                continue;
            }
            wrong += signbit(y) != signbit(rounded);
            int e = -125;
            if (t != 0)
                frexp(t, &e);                                         /* 2^(e-1) <= |t| < 2^e */
            const double error = fabs((double)y - t) * ldexp(1.0, 24 - (e < -125 ? -125 : e));
            if (error > worst) {
                worst = error;
                at = bits(x);
            }
        }
        printf("%.6f 0x%08x %llu %llu\n", worst, at, wrong, tested);
        return 0;
    }
    return 2;
}

/* One width of the functions under test; included by elementary_probe.c once per CA1_VL. */
#include "ca1_math.h"

#define V CA1_N(f32)
CA1_TARGET CA1_DEVICE static void CA1_N(apply)(int function, const float *a, const float *b, const float *c, float *out, long n)
{
    for (long i = 0; i + CA1_VL <= n; i += CA1_VL) {
        const V x = CA1_N(load)(a + i), y = CA1_N(load)(b + i), z = CA1_N(load)(c + i);
        V r;
        switch (function) {
        case 0: r = CA1_N(exp)(x); break;
        case 1: r = CA1_N(log)(x); break;
        case 2: r = CA1_N(erf)(x); break;
        case 3: r = CA1_N(tanh)(x); break;
        case 4: r = CA1_N(sigmoid)(x); break;
        case 5: r = CA1_N(sqrt)(x); break;
        case 6: r = CA1_N(reciprocal)(x); break;
        case 7: r = CA1_N(pow)(x, y); break;
        case 8: r = CA1_N(softplus)(x); break;
        case 9: r = CA1_N(elu)(x, y); break;
        case 10: r = CA1_N(hard_swish)(x); break;
        case 11: r = CA1_N(gelu)(x); break;
        case 12: r = CA1_N(gelu_tanh)(x); break;
        case 13: r = CA1_N(mish)(x); break;
        case 14: r = CA1_N(leaky_relu)(x, y); break;
        case 15: r = CA1_N(relu)(x); break;
        case 16: r = CA1_N(max)(x, y); break;
        case 17: r = CA1_N(min)(x, y); break;
        case 18: r = CA1_N(maxn)(x, CA1_N(set1)(-0.0f)); break;
        case 19: r = CA1_N(minn)(x, CA1_N(set1)(6.0f)); break;
        case 20: r = CA1_N(fma)(x, y, z); break;
        case 21: r = CA1_N(div)(x, y); break;
        case 22: r = CA1_N(sub)(CA1_N(mul)(x, y), z); break;   /* one fma under contraction, two roundings without */
        case 23: r = CA1_N(exp_nonpositive)(x); break;
        default: r = CA1_N(exp_core_)(x); break;
        }
        CA1_N(store)(out + i, CA1_N(canon)(r));
    }
}
#undef V

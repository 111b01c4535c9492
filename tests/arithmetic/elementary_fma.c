/* Test program: `elementary_fma COUNT` compares the software fma with the hardware's over COUNT operand triples of each
 * class and prints "class mismatches subnormal-results special-results naive-mismatches", the last against binary64
 * multiply-add rounded twice (what the software fma must not be). Compile for a target with hardware fma. */
#include <stdio.h>
#include <stdlib.h>
#include "ca1_fma.h"
#if !CA1_HARDWARE_FMA
#error "elementary_fma needs hardware fma to compare with"
#endif

static ca1_u64 state = 0x853c49e6748fea9bULL;
static ca1_u32 next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (ca1_u32)(state >> 24);
}
static float as_float(ca1_u32 u)
{
    float x;
    __builtin_memcpy(&x, &u, sizeof x);
    return x;
}
static ca1_u32 bits(float x)
{
    ca1_u32 u;
    __builtin_memcpy(&u, &x, sizeof u);
    return x != x ? 0x7fc00000u : u;
}
/* Random sign and significand (few significant bits half the time), biased exponent e. */
static float with_exponent(int e)
{
    const ca1_u32 r = next(), trim = next() % 48;
    const ca1_u32 fraction = (r & 0x7fffffu) & (trim < 23 ? ~0u << trim : ~0u);
    return as_float((r & 0x80000000u) | (ca1_u32)(e < 0 ? 0 : e > 255 ? 255 : e) << 23 | fraction);
}

int main(int argc, char **argv)
{
    static const char *const classes[] = {"patterns", "close", "subnormal", "halfway", "overflow", "special"};
    static const ca1_u32 specials[] = {0, 0x80000000u, 1, 0x80000001u, 0x007fffffu, 0x00800000u, 0x3f800000u, 0xbf800000u,
                                       0x7f7fffffu, 0xff7fffffu, 0x7f800000u, 0xff800000u, 0x7fc00000u};
    if (argc != 2)
        return 2;
    const long count = atol(argv[1]);
    for (int class = 0; class < 6; class++) {
        long bad = 0, subnormal = 0, special = 0, naive = 0;
        for (long i = 0; i < count; i++) {
            float a, b, c;
            const int e = 1 + (int)(next() % 254);
            if (class == 0) {                                         /* arbitrary patterns */
                a = as_float(next()), b = as_float(next()), c = as_float(next());
            } else if (class == 1) {                                  /* addend near the product: cancellation */
                a = with_exponent(e), b = with_exponent(127 + (int)(next() % 9) - 4);
                c = with_exponent(e + (int)(next() % 60) - 30);
            } else if (class == 2) {                                  /* product or sum below 2^-126 */
                const int d = 20 + (int)(next() % 88);
                a = with_exponent(d), b = with_exponent(127 - d + (int)(next() % 50) - 25);
                c = with_exponent((int)(next() % 4));
            } else if (class == 3) {                                  /* half an ulp of c, less 2^-46 to 2^-38 of it */
                const ca1_u32 k = 1 + next() % 16;
                c = with_exponent(60 + (int)(next() % 120));
                const int ec = (int)(bits(c) >> 23 & 255);
                a = as_float(((ca1_u32)(ec - 24) << 23) + k);         /* (1 + k 2^-23)(1 - k 2^-23) = 1 - k^2 2^-46 */
                b = as_float((next() & 0x80000000u) | (0x3f800000u - 2 * k));
            } else if (class == 4) {
                a = with_exponent(180 + (int)(next() % 20)), b = with_exponent(180 + (int)(next() % 20));
                c = with_exponent(250 + (int)(next() % 5));
            } else {
                a = as_float(specials[next() % 13]), b = as_float(specials[next() % 13]);
                c = as_float(specials[next() % 13]);
            }
            const ca1_u32 hard = bits(ca1_fmaf(a, b, c));
            bad += bits(ca1_fmaf_soft(a, b, c)) != hard;
            naive += bits((float)((double)a * (double)b + (double)c)) != hard;
            subnormal += (hard & 0x7f800000u) == 0 && (hard & 0x7fffffu) != 0;
            special += (hard & 0x7f800000u) == 0x7f800000u;
        }
        printf("%s %ld %ld %ld %ld\n", classes[class], bad, subnormal, special, naive);
    }
    const float a = 1126341 * 0x1p-75f, b = 15618881 * 0x1p-119f, c = 0x1p-127f;
    printf("pinned 0x%08x 0x%08x 0x%08x\n", bits(ca1_fmaf(a, b, c)), bits(ca1_fmaf_soft(a, b, c)),
           bits((float)((double)a * (double)b + (double)c)));
    return 0;
}

/* U of W23/L from the 3x3 taps of an output and a channel (docs/arithmetic.md, 3.7 and 3.8), on the GPU.
 *
 * All in binary64 but scaled: the bits of a binary32 number, moved to where binary64 has them, are the number times 2^-896,
 * subnormal or not, which takes three integer operations where a conversion takes four times as long. Nothing overflows;
 * sums that are subnormal in binary64 are exact on either scale, others are rounded alike. The factors 0.5 of both axes are
 * exact and wait for the one multiplication that takes the scale away, before the one rounding to binary32. */
#ifndef CUVIL_TAPS_H
#define CUVIL_TAPS_H

CUVIL_FN double cuvil_scaled(float x)
{
    const int bits = __float_as_int(x);
    return __hiloint2double(bits >> 3 & (int)0x8fffffffu, (int)((unsigned)bits << 29));
}
/* `x` times 2^(896 - HALVINGS), rounded. */
template <int HALVINGS> CUVIL_FN float cuvil_unscaled(double x)
{
    return __double2float_rn(__dmul_rn(x, __hiloint2double((1023 + 896 - HALVINGS) << 20, 0)));
}

/* Columns FIRST to FIRST + NB - 1 of the four by four values U, rows first, STEP floats apart; g row-major. */
template <int NB, int FIRST, int STEP> CUVIL_FN void cuvil_columns_of_u(const float (&g)[9], float *to)
{
    double d[9];
    CUVIL_UNROLL for (int k = 0; k < 9; k++) d[k] = cuvil_scaled(g[k]);
    CUVIL_UNROLL for (int a = 0; a < 4; a++) {
        double c[3];
        CUVIL_UNROLL for (int j = 0; j < 3; j++)
            c[j] = a == 0   ? d[j]
                   : a == 3 ? d[6 + j]
                            : __dadd_rn(a == 1 ? __dadd_rn(d[j], d[3 + j]) : __dsub_rn(d[j], d[3 + j]), d[6 + j]);
        CUVIL_UNROLL for (int b = 0; b < NB; b++) {
            const int column = FIRST + b, halvings = (a == 1 || a == 2) + (column == 1 || column == 2);
            const double sum = column == 0   ? c[0]
                               : column == 3 ? c[2]
                                             : __dadd_rn(column == 1 ? __dadd_rn(c[0], c[1]) : __dsub_rn(c[0], c[1]), c[2]);
            float *at = to + (a * NB + b) * STEP;
            if (halvings == 0)
                *at = g[(a ? 6 : 0) + (column ? 2 : 0)]; /* a tap itself */
            else
                *at = halvings == 1 ? cuvil_unscaled<1>(sum) : cuvil_unscaled<2>(sum);
        }
    }
}

/* The NB columns of U that belong to `part`, the same for a whole block. */
template <int NB, int STEP> CUVIL_FN void cuvil_transform_taps(const float (&g)[9], int part, float *to)
{
    if constexpr (NB == 4)
        cuvil_columns_of_u<4, 0, STEP>(g, to);
    else if constexpr (NB == 2) {
        if (part == 0)
            cuvil_columns_of_u<2, 0, STEP>(g, to);
        else
            cuvil_columns_of_u<2, 2, STEP>(g, to);
    } else if (part == 0)
        cuvil_columns_of_u<1, 0, STEP>(g, to);
    else if (part == 1)
        cuvil_columns_of_u<1, 1, STEP>(g, to);
    else if (part == 2)
        cuvil_columns_of_u<1, 2, STEP>(g, to);
    else
        cuvil_columns_of_u<1, 3, STEP>(g, to);
}

#endif

/* Canonical Arithmetic 1: the transforms of the Winograd forms of a convolution (docs/arithmetic.md, 3.7 to 3.9).
 *
 * One value at a time, for the scalar kernels; the vector kernels write the same steps for a whole tile. */
#ifndef CA1_WINOGRAD_H
#define CA1_WINOGRAD_H

#ifndef CA1_DEVICE
#define CA1_DEVICE
#endif

/* Value j of the four that three taps become. */
CA1_DEVICE static inline double ca1_w23_u(int j, double g0, double g1, double g2) {
    return j == 0 ? g0 : j == 1 ? ((g0 + g1) + g2) * 0.5 : j == 2 ? ((g0 - g1) + g2) * 0.5 : g2;
}

/* Value j of the four that four values of x become. */
CA1_DEVICE static inline float ca1_w23_v(int j, float d0, float d1, float d2, float d3) {
    return j == 0 ? d0 - d2 : j == 1 ? d1 + d2 : j == 2 ? d2 - d1 : d1 - d3;
}

/* Output j of the two that four sums become. */
CA1_DEVICE static inline float ca1_w23_y(int j, float m0, float m1, float m2, float m3) {
    return j == 0 ? (m0 + m1) + m2 : (m1 - m2) - m3;
}

/* U(a, b) of one 3x3 kernel. */
CA1_DEVICE static inline float ca1_w23_plane_u(const float *w, int a, int b) {
    return (float)ca1_w23_u(b, ca1_w23_u(a, w[0], w[3], w[6]), ca1_w23_u(a, w[1], w[4], w[7]),
                            ca1_w23_u(a, w[2], w[5], w[8]));
}

/* V(a, b) of the 4x4 values of one channel (h x w) whose first is at (row, column); +0 outside. */
CA1_DEVICE static inline float ca1_w23_plane_v(const float *x, int a, int b, int row, int column, int h, int w) {
    float d[4][4];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            const int r = row + i, c = column + j;
            d[i][j] = r >= 0 && r < h && c >= 0 && c < w ? x[r * w + c] : 0.0f;
        }
    return ca1_w23_v(b, ca1_w23_v(a, d[0][0], d[1][0], d[2][0], d[3][0]), ca1_w23_v(a, d[0][1], d[1][1], d[2][1], d[3][1]),
                     ca1_w23_v(a, d[0][2], d[1][2], d[2][2], d[3][2]), ca1_w23_v(a, d[0][3], d[1][3], d[2][3], d[3][3]));
}

/* U(j) of the three taps from `first` on of a kernel of `taps`; missing taps are +0. */
CA1_DEVICE static inline float ca1_w23_line_u(const float *w, int j, int first, int taps) {
    return (float)ca1_w23_u(j, w[first], first + 1 < taps ? w[first + 1] : 0.0f, first + 2 < taps ? w[first + 2] : 0.0f);
}

/* V(j) of the four values of one channel (of `length`) from `first` on; +0 outside. */
CA1_DEVICE static inline float ca1_w23_line_v(const float *x, int j, int first, int length) {
    float d[4];
    for (int i = 0; i < 4; i++) d[i] = first + i >= 0 && first + i < length ? x[first + i] : 0.0f;
    return ca1_w23_v(j, d[0], d[1], d[2], d[3]);
}

#endif

/* Keccak-f[1600] (FIPS 202, 3.3) over CUVIL_LANE: a 64-bit word, or a vector of them, one independent state in each element.
 *
 * Include it once per type, with CUVIL_LANE, CUVIL_KECCAK (the function's name) and CUVIL_KECCAK_AS (its storage class and
 * attributes) defined; all three are undefined again. Lane (x, y) is state[x + 5y].
 */
#ifndef CUVIL_KECCAK_H
#define CUVIL_KECCAK_H

#include <stdint.h>

#define CUVIL_ROTATE(value, count) ((value) << (count) | (value) >> (64 - (count)))

/* Round constants of iota: FIPS 202, algorithm 5. */
static const uint64_t cuvil_round_constants[24] = {
    0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000,
    0x000000000000808b, 0x0000000080000001, 0x8000000080008081, 0x8000000000008009,
    0x000000000000008a, 0x0000000000000088, 0x0000000080008009, 0x000000008000000a,
    0x000000008000808b, 0x800000000000008b, 0x8000000000008089, 0x8000000000008003,
    0x8000000000008002, 0x8000000000000080, 0x000000000000800a, 0x800000008000000a,
    0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
};

/* chi on one row of five lanes. */
#define CUVIL_CHI(e0, e1, e2, e3, e4, b0, b1, b2, b3, b4)            \
    do {                                                             \
        const CUVIL_LANE p0 = b0, p1 = b1, p2 = b2, p3 = b3, p4 = b4; \
        e0 = p0 ^ (~p1 & p2);                                        \
        e1 = p1 ^ (~p2 & p3);                                        \
        e2 = p2 ^ (~p3 & p4);                                        \
        e3 = p3 ^ (~p4 & p0);                                        \
        e4 = p4 ^ (~p0 & p1);                                        \
    } while (0)

/* One round from the lanes A0..A24 to E0..E24: theta, then rho and pi written out, chi, iota. Named variables instead of
 * arrays, because compilers keep those in registers: more than twice as fast. */
#define CUVIL_ROUND(A, E, constant)                                                                                   \
    do {                                                                                                              \
        const CUVIL_LANE c0 = A##0 ^ A##5 ^ A##10 ^ A##15 ^ A##20;                                                    \
        const CUVIL_LANE c1 = A##1 ^ A##6 ^ A##11 ^ A##16 ^ A##21;                                                    \
        const CUVIL_LANE c2 = A##2 ^ A##7 ^ A##12 ^ A##17 ^ A##22;                                                    \
        const CUVIL_LANE c3 = A##3 ^ A##8 ^ A##13 ^ A##18 ^ A##23;                                                    \
        const CUVIL_LANE c4 = A##4 ^ A##9 ^ A##14 ^ A##19 ^ A##24;                                                    \
        const CUVIL_LANE d0 = c4 ^ CUVIL_ROTATE(c1, 1);                                                               \
        const CUVIL_LANE d1 = c0 ^ CUVIL_ROTATE(c2, 1);                                                               \
        const CUVIL_LANE d2 = c1 ^ CUVIL_ROTATE(c3, 1);                                                               \
        const CUVIL_LANE d3 = c2 ^ CUVIL_ROTATE(c4, 1);                                                               \
        const CUVIL_LANE d4 = c3 ^ CUVIL_ROTATE(c0, 1);                                                               \
        CUVIL_CHI(E##0, E##1, E##2, E##3, E##4, A##0 ^ d0,                                                            \
                  CUVIL_ROTATE(A##6 ^ d1, 44), CUVIL_ROTATE(A##12 ^ d2, 43),                                          \
                  CUVIL_ROTATE(A##18 ^ d3, 21), CUVIL_ROTATE(A##24 ^ d4, 14));                                        \
        CUVIL_CHI(E##5, E##6, E##7, E##8, E##9, CUVIL_ROTATE(A##3 ^ d3, 28),                                          \
                  CUVIL_ROTATE(A##9 ^ d4, 20), CUVIL_ROTATE(A##10 ^ d0, 3),                                           \
                  CUVIL_ROTATE(A##16 ^ d1, 45), CUVIL_ROTATE(A##22 ^ d2, 61));                                        \
        CUVIL_CHI(E##10, E##11, E##12, E##13, E##14, CUVIL_ROTATE(A##1 ^ d1, 1),                                      \
                  CUVIL_ROTATE(A##7 ^ d2, 6), CUVIL_ROTATE(A##13 ^ d3, 25),                                           \
                  CUVIL_ROTATE(A##19 ^ d4, 8), CUVIL_ROTATE(A##20 ^ d0, 18));                                         \
        CUVIL_CHI(E##15, E##16, E##17, E##18, E##19, CUVIL_ROTATE(A##4 ^ d4, 27),                                     \
                  CUVIL_ROTATE(A##5 ^ d0, 36), CUVIL_ROTATE(A##11 ^ d1, 10),                                          \
                  CUVIL_ROTATE(A##17 ^ d2, 15), CUVIL_ROTATE(A##23 ^ d3, 56));                                        \
        CUVIL_CHI(E##20, E##21, E##22, E##23, E##24, CUVIL_ROTATE(A##2 ^ d2, 62),                                     \
                  CUVIL_ROTATE(A##8 ^ d3, 55), CUVIL_ROTATE(A##14 ^ d4, 39),                                          \
                  CUVIL_ROTATE(A##15 ^ d0, 41), CUVIL_ROTATE(A##21 ^ d1, 2));                                         \
        E##0 ^= constant;                                                                                             \
    } while (0)

#endif

CUVIL_KECCAK_AS void CUVIL_KECCAK(CUVIL_LANE state[25]) {
    CUVIL_LANE a0 = state[0], a1 = state[1], a2 = state[2], a3 = state[3], a4 = state[4], a5 = state[5],
        a6 = state[6], a7 = state[7], a8 = state[8], a9 = state[9], a10 = state[10], a11 = state[11], a12 = state[12],
        a13 = state[13], a14 = state[14], a15 = state[15], a16 = state[16], a17 = state[17], a18 = state[18],
        a19 = state[19], a20 = state[20], a21 = state[21], a22 = state[22], a23 = state[23], a24 = state[24];
    CUVIL_LANE e0, e1, e2, e3, e4, e5, e6, e7, e8, e9, e10, e11, e12, e13, e14, e15, e16, e17, e18, e19, e20, e21,
        e22, e23, e24;
    for (int round = 0; round < 24; round += 2) {
        CUVIL_ROUND(a, e, cuvil_round_constants[round]);
        CUVIL_ROUND(e, a, cuvil_round_constants[round + 1]);
    }
    const CUVIL_LANE last[25] = {a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18,
        a19, a20, a21, a22, a23, a24};
    for (int i = 0; i < 25; i++) state[i] = last[i];
}

#undef CUVIL_LANE
#undef CUVIL_KECCAK
#undef CUVIL_KECCAK_AS

/* Keccak-f[1600] (FIPS 202, 3.3) over CUVIL_LANE: a 64-bit word, or a vector of them, one independent state in each element.
 *
 * Include it once per type, with CUVIL_LANE, CUVIL_KECCAK (the function's name) and CUVIL_KECCAK_AS (its storage class and
 * attributes) defined; all three are undefined again. Lane (x, y) is a[x + 5y]. Rho's rotations and pi's moves are written
 * out, so that no index is computed at run time.
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

/* chi on one row of five lanes, written back at row. */
#define CUVIL_CHI(row, b0, b1, b2, b3, b4)                               \
    do {                                                                 \
        const CUVIL_LANE p0 = b0, p1 = b1, p2 = b2, p3 = b3, p4 = b4;    \
        (row)[0] = p0 ^ (~p1 & p2);                                      \
        (row)[1] = p1 ^ (~p2 & p3);                                      \
        (row)[2] = p2 ^ (~p3 & p4);                                      \
        (row)[3] = p3 ^ (~p4 & p0);                                      \
        (row)[4] = p4 ^ (~p0 & p1);                                      \
    } while (0)

#endif

CUVIL_KECCAK_AS void CUVIL_KECCAK(CUVIL_LANE a[25]) {
    for (int round = 0; round < 24; round++) {
        CUVIL_LANE c[5], d[5], e[25];
        for (int x = 0; x < 5; x++) c[x] = a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20];
        d[0] = c[4] ^ CUVIL_ROTATE(c[1], 1);
        d[1] = c[0] ^ CUVIL_ROTATE(c[2], 1);
        d[2] = c[1] ^ CUVIL_ROTATE(c[3], 1);
        d[3] = c[2] ^ CUVIL_ROTATE(c[4], 1);
        d[4] = c[3] ^ CUVIL_ROTATE(c[0], 1);
        for (int i = 0; i < 25; i++) e[i] = a[i] ^ d[i % 5];
        CUVIL_CHI(a + 0, e[0], CUVIL_ROTATE(e[6], 44), CUVIL_ROTATE(e[12], 43), CUVIL_ROTATE(e[18], 21), CUVIL_ROTATE(e[24], 14));
        CUVIL_CHI(a + 5, CUVIL_ROTATE(e[3], 28), CUVIL_ROTATE(e[9], 20), CUVIL_ROTATE(e[10], 3), CUVIL_ROTATE(e[16], 45), CUVIL_ROTATE(e[22], 61));
        CUVIL_CHI(a + 10, CUVIL_ROTATE(e[1], 1), CUVIL_ROTATE(e[7], 6), CUVIL_ROTATE(e[13], 25), CUVIL_ROTATE(e[19], 8), CUVIL_ROTATE(e[20], 18));
        CUVIL_CHI(a + 15, CUVIL_ROTATE(e[4], 27), CUVIL_ROTATE(e[5], 36), CUVIL_ROTATE(e[11], 10), CUVIL_ROTATE(e[17], 15), CUVIL_ROTATE(e[23], 56));
        CUVIL_CHI(a + 20, CUVIL_ROTATE(e[2], 62), CUVIL_ROTATE(e[8], 55), CUVIL_ROTATE(e[14], 39), CUVIL_ROTATE(e[15], 41), CUVIL_ROTATE(e[21], 2));
        a[0] ^= cuvil_round_constants[round];
    }
}

#undef CUVIL_LANE
#undef CUVIL_KECCAK
#undef CUVIL_KECCAK_AS

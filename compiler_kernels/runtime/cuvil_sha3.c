/* SHA3-512 (FIPS 202): Keccak-f[1600], rate 576 bits, suffix 01. Little-endian hosts. */
#include "cuvil_runtime.h"

#include <string.h>

#define RATE 72u

#define ROTATE(value, count) ((value) << (count) | (value) >> (64 - (count)))

/* Round constants of iota: FIPS 202, algorithm 5. */
static const uint64_t round_constants[24] = {
    0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000,
    0x000000000000808b, 0x0000000080000001, 0x8000000080008081, 0x8000000000008009,
    0x000000000000008a, 0x0000000000000088, 0x0000000080008009, 0x000000008000000a,
    0x000000008000808b, 0x800000000000008b, 0x8000000000008089, 0x8000000000008003,
    0x8000000000008002, 0x8000000000000080, 0x000000000000800a, 0x800000008000000a,
    0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
};

/* chi on one row of five lanes, written back at row. */
static inline void chi(uint64_t *row, uint64_t b0, uint64_t b1, uint64_t b2, uint64_t b3, uint64_t b4) {
    row[0] = b0 ^ (~b1 & b2);
    row[1] = b1 ^ (~b2 & b3);
    row[2] = b2 ^ (~b3 & b4);
    row[3] = b3 ^ (~b4 & b0);
    row[4] = b4 ^ (~b0 & b1);
}

/* Lane (x, y) is a[x + 5y]. Rho's rotations and pi's moves are written out, so that no index is computed at run time. */
static void permute(uint64_t a[25]) {
    for (int round = 0; round < 24; round++) {
        uint64_t c[5], d[5], e[25];
        for (int x = 0; x < 5; x++) c[x] = a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20];
        d[0] = c[4] ^ ROTATE(c[1], 1);
        d[1] = c[0] ^ ROTATE(c[2], 1);
        d[2] = c[1] ^ ROTATE(c[3], 1);
        d[3] = c[2] ^ ROTATE(c[4], 1);
        d[4] = c[3] ^ ROTATE(c[0], 1);
        for (int i = 0; i < 25; i++) e[i] = a[i] ^ d[i % 5];
        chi(a + 0, e[0], ROTATE(e[6], 44), ROTATE(e[12], 43), ROTATE(e[18], 21), ROTATE(e[24], 14));
        chi(a + 5, ROTATE(e[3], 28), ROTATE(e[9], 20), ROTATE(e[10], 3), ROTATE(e[16], 45), ROTATE(e[22], 61));
        chi(a + 10, ROTATE(e[1], 1), ROTATE(e[7], 6), ROTATE(e[13], 25), ROTATE(e[19], 8), ROTATE(e[20], 18));
        chi(a + 15, ROTATE(e[4], 27), ROTATE(e[5], 36), ROTATE(e[11], 10), ROTATE(e[17], 15), ROTATE(e[23], 56));
        chi(a + 20, ROTATE(e[2], 62), ROTATE(e[8], 55), ROTATE(e[14], 39), ROTATE(e[15], 41), ROTATE(e[21], 2));
        a[0] ^= round_constants[round];
    }
}

void cuvil_sha3_init(cuvil_sha3 *hash) {
    memset(hash, 0, sizeof *hash);
}

void cuvil_sha3_update(cuvil_sha3 *hash, const void *data, size_t size) {
    const unsigned char *bytes = data;
    while (size > 0) {
        if (hash->fill == 0 && size >= RATE) {
            for (unsigned lane = 0; lane < RATE / 8; lane++) {
                uint64_t word;
                memcpy(&word, bytes + 8 * lane, 8);
                hash->state[lane] ^= word;
            }
            bytes += RATE;
            size -= RATE;
            permute(hash->state);
            continue;
        }
        hash->state[hash->fill / 8] ^= (uint64_t)*bytes << (8 * (hash->fill % 8));
        bytes++;
        size--;
        if (++hash->fill == RATE) {
            permute(hash->state);
            hash->fill = 0;
        }
    }
}

void cuvil_sha3_hex(cuvil_sha3 *hash, char hex[129]) {
    hash->state[hash->fill / 8] ^= (uint64_t)0x06 << (8 * (hash->fill % 8));
    hash->state[(RATE - 1) / 8] ^= (uint64_t)0x80 << 56;
    permute(hash->state);
    for (unsigned i = 0; i < 64; i++) {
        unsigned byte = (unsigned)(hash->state[i / 8] >> (8 * (i % 8))) & 0xFFu;
        hex[2 * i] = "0123456789abcdef"[byte >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[byte & 15u];
    }
    hex[128] = 0;
}

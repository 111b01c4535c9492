/* SHA3-512 (FIPS 202): Keccak-f[1600], rate 576 bits, suffix 01. Little-endian hosts. */
#include "cuvil_runtime.h"

#include <string.h>

#define RATE 72u

static uint64_t rotate(uint64_t value, unsigned count) {
    return count ? value << count | value >> (64 - count) : value;
}

/* The round constants are the output of an 8-bit LFSR (FIPS 202, algorithm 5); bit 2^j - 1 of constant for j = 0..6. */
static uint64_t round_constant(unsigned *lfsr) {
    uint64_t constant = 0;
    for (unsigned j = 0; j < 7; j++) {
        if (*lfsr & 1u) constant |= (uint64_t)1 << ((1u << j) - 1u);
        *lfsr = *lfsr << 1 ^ (*lfsr & 0x80u ? 0x171u : 0u);
    }
    return constant;
}

static void permute(uint64_t a[25]) {
    unsigned lfsr = 1;
    for (int round = 0; round < 24; round++) {
        uint64_t parity[5];
        for (int x = 0; x < 5; x++) parity[x] = a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20];
        for (int x = 0; x < 5; x++) {
            uint64_t mix = parity[(x + 4) % 5] ^ rotate(parity[(x + 1) % 5], 1);
            for (int y = 0; y < 25; y += 5) a[x + y] ^= mix;
        }
        /* rho and pi together: walk the 24 lanes along (x, y) -> (y, 2x + 3y) */
        uint64_t carried = a[1];
        int x = 1, y = 0;
        for (unsigned step = 1; step <= 24; step++) {
            int next = (2 * x + 3 * y) % 5;
            x = y;
            y = next;
            uint64_t displaced = a[x + 5 * y];
            a[x + 5 * y] = rotate(carried, step * (step + 1) / 2 % 64);
            carried = displaced;
        }
        for (int row = 0; row < 25; row += 5) {
            uint64_t line[5];
            for (int i = 0; i < 5; i++) line[i] = a[row + i];
            for (int i = 0; i < 5; i++) a[row + i] = line[i] ^ (~line[(i + 1) % 5] & line[(i + 2) % 5]);
        }
        a[0] ^= round_constant(&lfsr);
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

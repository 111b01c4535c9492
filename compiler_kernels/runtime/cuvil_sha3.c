/* SHA3-512 (FIPS 202): Keccak-f[1600], rate 576 bits, suffix 01. Little-endian hosts. */
#include "cuvil_runtime.h"

#include <string.h>

#define RATE 72u

#define CUVIL_LANE uint64_t
#define CUVIL_KECCAK cuvil_keccak
#define CUVIL_KECCAK_AS
#include "cuvil_keccak.h"

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
            cuvil_keccak(hash->state);
            continue;
        }
        hash->state[hash->fill / 8] ^= (uint64_t)*bytes << (8 * (hash->fill % 8));
        bytes++;
        size--;
        if (++hash->fill == RATE) {
            cuvil_keccak(hash->state);
            hash->fill = 0;
        }
    }
}

void cuvil_sha3_hex(cuvil_sha3 *hash, char hex[129]) {
    hash->state[hash->fill / 8] ^= (uint64_t)0x06 << (8 * (hash->fill % 8));
    hash->state[(RATE - 1) / 8] ^= (uint64_t)0x80 << 56;
    cuvil_keccak(hash->state);
    for (unsigned i = 0; i < 64; i++) {
        unsigned byte = (unsigned)(hash->state[i / 8] >> (8 * (i % 8))) & 0xFFu;
        hex[2 * i] = "0123456789abcdef"[byte >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[byte & 15u];
    }
    hex[128] = 0;
}

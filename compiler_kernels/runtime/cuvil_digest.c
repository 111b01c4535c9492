/* The digest of a tensor in an archive of sessions (docs/sessions.md): SHAKE256 over pieces of 8192 bytes, SHA3-512 over
 * salt, description and the pieces' digests. Several pieces are hashed side by side in the elements of a vector, so this
 * unit is compiled like the generated code; the result depends on neither. */
#include "cuvil_runtime.h"
#include "cuvil_x86.h"

#include <string.h>

enum { PIECE = 8192, RATE = 136, DIGEST = 64, WIDEST = 8 };

typedef uint64_t lanes4 __attribute__((vector_size(32)));
#define CUVIL_LANE lanes4
#define CUVIL_KECCAK keccak4
#define CUVIL_KECCAK_AS static
#include "cuvil_keccak.h"

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx512f,avx512vl")))
typedef uint64_t lanes8 __attribute__((vector_size(64)));
#define CUVIL_LANE lanes8
#define CUVIL_KECCAK keccak8
#define CUVIL_KECCAK_AS static WIDE
#include "cuvil_keccak.h"
#endif

/* SHAKE256 (FIPS 202, 6.2) of one piece, 512 bits of output. */
static void shake(const unsigned char *bytes, size_t size, unsigned char digest[DIGEST]) {
    uint64_t state[25] = {0};
    unsigned char block[RATE] = {0};
    for (; size >= RATE; bytes += RATE, size -= RATE) {
        for (int lane = 0; lane < RATE / 8; lane++) {
            uint64_t word;
            memcpy(&word, bytes + 8 * lane, 8);
            state[lane] ^= word;
        }
        cuvil_keccak(state);
    }
    memcpy(block, bytes, size);
    block[size] = 0x1F;
    block[RATE - 1] |= 0x80;
    for (int lane = 0; lane < RATE / 8; lane++) {
        uint64_t word;
        memcpy(&word, block + 8 * lane, 8);
        state[lane] ^= word;
    }
    cuvil_keccak(state);
    memcpy(digest, state, DIGEST);
}

/* The same of COUNT whole pieces that lie one behind the other. */
#define SHAKE_MANY(NAME, AS, LANES, COUNT, KECCAK)                                            \
    AS void NAME(const unsigned char *bytes, unsigned char *digests) {                        \
        LANES state[25];                                                                      \
        uint64_t words[COUNT];                                                                \
        memset(state, 0, sizeof state);                                                       \
        for (int at = 0; at + RATE <= PIECE; at += RATE) {                                    \
            for (int lane = 0; lane < RATE / 8; lane++) {                                     \
                LANES word;                                                                   \
                for (int n = 0; n < COUNT; n++) memcpy(&words[n], bytes + n * PIECE + at + 8 * lane, 8); \
                memcpy(&word, words, sizeof word);                                            \
                state[lane] ^= word;                                                          \
            }                                                                                 \
            KECCAK(state);                                                                    \
        }                                                                                     \
        for (int lane = 0; lane < PIECE % RATE / 8; lane++) {                                 \
            LANES word;                                                                       \
            for (int n = 0; n < COUNT; n++)                                                   \
                memcpy(&words[n], bytes + n * PIECE + PIECE / RATE * RATE + 8 * lane, 8);     \
            memcpy(&word, words, sizeof word);                                                \
            state[lane] ^= word;                                                              \
        }                                                                                     \
        state[PIECE % RATE / 8] ^= (uint64_t)0x1F;                                            \
        state[RATE / 8 - 1] ^= (uint64_t)0x80 << 56;                                          \
        KECCAK(state);                                                                        \
        for (int n = 0; n < COUNT; n++)                                                       \
            for (int lane = 0; lane < DIGEST / 8; lane++) {                                   \
                const uint64_t word = state[lane][n];                                         \
                memcpy(digests + n * DIGEST + 8 * lane, &word, 8);                            \
            }                                                                                 \
    }

SHAKE_MANY(shake4, static, lanes4, 4, keccak4)
#if defined(__x86_64__)
SHAKE_MANY(shake8, static WIDE, lanes8, 8, keccak8)
#endif

/* Digests of the first pieces of left bytes, as many as fit side by side; returns how many. */
static size_t shake_first(const unsigned char *bytes, size_t left, unsigned char *digests) {
#if defined(__x86_64__)
    static int wide = -1;
    if (wide < 0) wide = cuvil_x86_has_avx512();
    if (wide && left >= 8 * PIECE) {
        shake8(bytes, digests);
        return 8;
    }
#endif
    if (left >= 4 * PIECE) {
        shake4(bytes, digests);
        return 4;
    }
    shake(bytes, left < PIECE ? left : PIECE, digests);
    return 1;
}

void cuvil_tensor_digest(const cuvil_tensor *tensor, const void *values, const unsigned char *salt, char hex[129]) {
    char text[256];
    unsigned char digests[WIDEST * DIGEST];
    const unsigned char *bytes = values;
    const cuvil_type *type = cuvil_type_of(tensor);
    size_t left = (size_t)tensor->count * type->size;
    cuvil_sha3 hash;
    cuvil_sha3_init(&hash);
    if (salt) cuvil_sha3_update(&hash, salt, CUVIL_SALT_BYTES);
    cuvil_sha3_update(&hash, "cuvil-tensor/1\n", 15);
    cuvil_sha3_update(&hash, type->name, strlen(type->name));
    cuvil_sha3_update(&hash, "\n", 1);
    for (int axis = 0; axis < tensor->rank; axis++)
        cuvil_sha3_update(&hash, text, (size_t)cuvil_decimal(text, (uint64_t)tensor->shape[axis], axis ? "," : ""));
    cuvil_sha3_update(&hash, "\n", 1);
    while (left > 0) {
        const size_t size = left < PIECE ? left : PIECE, count = shake_first(bytes, left, digests);
        cuvil_sha3_update(&hash, digests, count * DIGEST);
        bytes += count * size;
        left -= count * size;
    }
    cuvil_sha3_hex(&hash, hex);
}

/* Lockstep: every inference is computed twice, by the chosen kernels and by the checker's scalar ones, and compared.
 *
 * Part of every engine with lockstep, program or library, so it uses memory functions of the C library only. The two runs
 * share nothing but the input: weights, arena, scratch, inputs and outputs exist twice. They go step by step: what is
 * compared is every intermediate value after the last step that reads it, and at the end refusals, the actual sizes, every
 * output, and both copies of the input and of the weights. Values are compared bit by bit; a NaN equals a NaN, because its
 * bits are defined at the outputs only, where it is canonicalised.
 */
#include "cuvil_engine.h"

#include <string.h>

static char sentence[640];
static size_t used;
static int found, next; /* a difference in this inference; the next of engine->held to compare */

static void put(const char *text) {
    while (*text && used + 1 < sizeof sentence) sentence[used++] = *text++;
    sentence[used] = 0;
}

static void put_number(unsigned long value) {
    char digits[24];
    int at = sizeof digits - 1;
    digits[at] = 0;
    do digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    put(digits + at);
}

static void put_bits(uint64_t bits, int bytes) {
    char text[2] = {0, 0};
    put("0x");
    for (int digit = 2 * bytes - 1; digit >= 0; digit--) {
        text[0] = "0123456789abcdef"[bits >> 4 * digit & 15];
        put(text);
    }
}

/* memcmp of the C library compares byte after byte; weights are many. */
static int same(const void *left, const void *right, size_t size) {
    const unsigned char *a = left, *b = right;
    enum { BLOCK = 1024 };
    for (; size >= BLOCK; a += BLOCK, b += BLOCK, size -= BLOCK) {
        uint64_t differing = 0;
        for (int i = 0; i < BLOCK; i += 8) {
            uint64_t x, y;
            memcpy(&x, a + i, 8);
            memcpy(&y, b + i, 8);
            differing |= x ^ y;
        }
        if (differing) return 0;
    }
    while (size > 0 && *a == *b) a++, b++, size--;
    return size == 0;
}

static uint64_t element(const void *values, int bytes, long i) {
    uint64_t bits = 0;
    memcpy(&bits, (const unsigned char *)values + bytes * i, (size_t)bytes); /* little-endian */
    return bits;
}

/* Above this magnitude (sign removed) the bits of a floating-point type are a NaN; 0 for other types. */
static uint64_t infinity_of(int dtype) {
    switch (dtype) {
    case CUVIL_FLOAT64: return 0x7FF0000000000000u;
    case CUVIL_FLOAT32: return 0x7F800000u;
    case CUVIL_FLOAT16: return 0x7C00u;
    case CUVIL_BFLOAT16: return 0x7F80u;
    default: return 0;
    }
}

static int is_nan(int dtype, int bytes, uint64_t bits) {
    const uint64_t infinity = infinity_of(dtype), sign = (uint64_t)1 << (8 * bytes - 1);
    return infinity && (bits & (sign - 1)) > infinity;
}

static long count_of(const cuvil_tensor *tensor) {
    long count = 1;
    if (!tensor->extents) return tensor->count;
    for (int axis = 0; axis < tensor->rank; axis++) count *= (long)tensor->extents[axis];
    return count < 0 ? 0 : count < tensor->count ? count : tensor->count;
}

static int same_sizes(const cuvil_tensor *a, const cuvil_tensor *b) {
    for (int axis = 0; a->extents && axis < a->rank; axis++)
        if (a->extents[axis] != b->extents[axis]) return 0;
    return 1;
}

/* The first element that is not the same in both, or -1. */
static long first_difference(const void *a, const void *b, long count, int dtype) {
    const int bytes = cuvil_element_bytes(dtype);
    if (same(a, b, (size_t)count * (size_t)bytes)) return -1;
    for (long i = 0; i < count; i++) {
        const uint64_t left = element(a, bytes, i), right = element(b, bytes, i);
        if (left != right && !(is_nan(dtype, bytes, left) && is_nan(dtype, bytes, right))) return i;
    }
    return -1;
}

static void put_difference(const void *a, const void *b, long i, int dtype, const cuvil_variant *variant) {
    const int bytes = cuvil_element_bytes(dtype);
    put(" ");
    put_number((unsigned long)i);
    put(": ");
    put_bits(element(a, bytes, i), bytes);
    put(" from the ");
    put(variant->isa);
    put(" kernels, ");
    put_bits(element(b, bytes, i), bytes);
    put(" from the checker's");
}

/* 1 with the sentence written when output is not the same in both runs. */
static int output_differs(const cuvil_engine *engine, const cuvil_variant *variant, int output) {
    const cuvil_tensor *tensor = &engine->outputs[output];
    const void *a = engine->output_buffers[output], *b = engine->checker->output_buffers[output];
    if (!same_sizes(tensor, &engine->checker->outputs[output])) {
        put("the sizes of output '");
        put(tensor->name);
        put("' differ between the two runs");
        return 1;
    }
    const long i = first_difference(a, b, count_of(tensor), tensor->dtype);
    if (i < 0) return 0;
    put("output '");
    put(tensor->name);
    put("' differs at index (row-major)");
    put_difference(a, b, i, tensor->dtype, variant);
    return 1;
}

static int refusals_differ(const cuvil_engine *engine) {
    const char *a = engine->refusal ? *engine->refusal : NULL, *b = engine->refusal ? *engine->checker->refusal : NULL;
    if (!a && !b) return 0;
    if (a && b && !strcmp(a, b)) return 0;
    put("one of the two runs refused its input and the other did not, or for another reason");
    return 1;
}

/* A run leaves its input as it is, so afterwards both copies are what they were. */
static int inputs_differ(const cuvil_engine *engine) {
    for (int i = 0; i < engine->input_count; i++) {
        const cuvil_tensor *tensor = &engine->inputs[i];
        const size_t size = (size_t)count_of(tensor) * (size_t)cuvil_element_bytes(tensor->dtype);
        if (same(engine->input_buffers[i], engine->checker->input_buffers[i], size)) continue;
        put("input '");
        put(tensor->name);
        put("' changed during the inference in one of its two copies");
        return 1;
    }
    return 0;
}

static int weights_differ(const cuvil_engine *engine) {
    const unsigned char *a = engine->weights, *b = engine->checker->weights;
    if (same(a, b, engine->weights_size)) return 0;
    unsigned long at = 0;
    while (at + 1 < engine->weights_size && a[at] == b[at]) at++;
    put("the two copies of the weights differ at byte ");
    put_number(at);
    put(": ");
    put_bits(a[at], 1);
    put(" and ");
    put_bits(b[at], 1);
    put("; --self-test says which is damaged");
    return 1;
}

void cuvil_lockstep_begin(const cuvil_engine *engine) {
    const cuvil_engine *checker = engine->checker;
    *engine->mismatch = NULL;
    found = next = 0;
    used = 0;
    put("lockstep: ");
    for (int i = 0; i < engine->input_count; i++) {
        const cuvil_tensor *tensor = &engine->inputs[i];
        memcpy(checker->input_buffers[i], engine->input_buffers[i], (size_t)tensor->count * (size_t)cuvil_element_bytes(tensor->dtype));
        for (int axis = 0; tensor->extents && axis < tensor->rank; axis++) checker->inputs[i].extents[axis] = tensor->extents[axis];
    }
    if (checker->refusal) *checker->refusal = NULL;
    if (checker->bind) (void)checker->bind(); /* refused sizes were refused by the engine's own bind before */
}

void cuvil_lockstep_step(const cuvil_engine *engine, const cuvil_variant *variant, int step) {
    for (; next < engine->held_count && engine->held[next].step <= step; next++) {
        const cuvil_held *held = engine->held + next;
        const unsigned char *a = (unsigned char *)engine->arena + held->offset, *b = (unsigned char *)engine->checker->arena + held->offset;
        const long i = found ? -1 : first_difference(a, b, held->count, held->dtype);
        if (i < 0) continue;
        put("the value of '");
        put(held->node);
        put("' differs at element");
        put_difference(a, b, i, held->dtype, variant);
        found = 1;
    }
}

void cuvil_lockstep_end(const cuvil_engine *engine, const cuvil_variant *variant) {
    if (!found) found = refusals_differ(engine);
    /* after a refusal that both runs share the outputs mean nothing */
    const int refused = engine->refusal && *engine->refusal;
    for (int output = 0; !found && !refused && output < engine->output_count; output++)
        found = output_differs(engine, variant, output);
    if (!found) found = inputs_differ(engine) || weights_differ(engine);
    *engine->mismatch = found ? sentence : NULL;
}

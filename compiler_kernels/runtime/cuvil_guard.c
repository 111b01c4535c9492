/* The guards of the policy on inputs and outputs. NaN is recognised by its bits, never by x != x. */
#include "cuvil_runtime.h"

#include <stdio.h>
#include <string.h>

#define MAGNITUDE 0x7FFFFFFFu
#define INFINITE 0x7F800000u
#define CANONICAL_NAN 0x7FC00000u

static uint32_t bits_of(const float *value) {
    uint32_t bits;
    memcpy(&bits, value, 4);
    return bits;
}

void cuvil_canonicalise(float *values, long count) {
    const uint32_t canonical = CANONICAL_NAN;
    for (long i = 0; i < count; i++)
        if ((bits_of(values + i) & MAGNITUDE) > INFINITE) memcpy(values + i, &canonical, 4);
}

/* NULL when the value passes, else the words that follow "is". */
static const char *complaint(const cuvil_tensor *tensor, const float *value) {
    uint32_t magnitude = bits_of(value) & MAGNITUDE;
    if (tensor->finite && magnitude >= INFINITE) return "not finite";
    if (magnitude > INFINITE) return tensor->has_lo || tensor->has_hi ? "in no range" : NULL;
    if (tensor->has_lo && *value < tensor->lo) return "below the lower bound";
    if (tensor->has_hi && *value > tensor->hi) return "above the upper bound";
    return NULL;
}

static void format_value(char text[32], const float *value) {
    uint32_t bits = bits_of(value);
    if ((bits & MAGNITUDE) > INFINITE)
        snprintf(text, 32, "NaN (0x%08x)", (unsigned)bits);
    else if ((bits & MAGNITUDE) == INFINITE)
        snprintf(text, 32, "%s", bits >> 31 ? "-infinity" : "+infinity");
    else
        snprintf(text, 32, "%.9g", (double)*value);
}

static _Noreturn void refuse(const char *kind, const cuvil_tensor *tensor, const float *values, long first, long broken,
                             const char *words) {
    char value[32], place[256], rule[96] = "";
    long index[CUVIL_MAX_RANK], rest = first;
    for (int axis = tensor->rank - 1; axis >= 0; axis--) {
        index[axis] = rest % tensor->shape[axis];
        rest /= tensor->shape[axis];
    }
    format_value(value, values + first);
    cuvil_shape_text(place, index, tensor->rank);
    if (tensor->finite) snprintf(rule, sizeof rule, " finite");
    if (tensor->has_lo) snprintf(rule + strlen(rule), 40, " >= %.9g", (double)tensor->lo);
    if (tensor->has_hi) snprintf(rule + strlen(rule), 40, " <= %.9g", (double)tensor->hi);
    cuvil_fail(CUVIL_REFUSED, "guard",
               "%s '%s' is refused by the policy's guard: value %s at index %s is %s, and every value must be%s "
               "(%ld of %ld break the guard); %s",
               kind, tensor->name, value, place, words, rule, broken, tensor->count,
               kind[0] == 'i' ? "correct the input, or the guard in the policy if it does not describe your data"
                              : "no output was written");
}

void cuvil_guard(const char *kind, const cuvil_tensor *tensor, const float *values) {
    long first = -1, broken = 0;
    if (!tensor->finite && !tensor->has_lo && !tensor->has_hi) return;
    for (long i = 0; i < tensor->count; i++) {
        if (!complaint(tensor, values + i)) continue;
        if (first < 0) first = i;
        broken++;
    }
    if (first >= 0) refuse(kind, tensor, values, first, broken, complaint(tensor, values + first));
}

/* The guards of the policy on inputs and outputs. NaN is recognised by its bits, never by x != x. */
#include "cuvil_runtime.h"

#include <stdio.h>
#include <string.h>

/* NULL when the value passes, else the words that follow "is". Bounds are compared as binary64. */
static const char *complaint(const cuvil_tensor *tensor, const void *values, long i) {
    const int class = cuvil_class(tensor, values, i);
    if (tensor->finite && class) return "not finite";
    if (class == 2) return tensor->has_lo || tensor->has_hi ? "in no range" : NULL;
    const double value = cuvil_value(tensor, values, i);
    if (tensor->has_lo && value < tensor->lo) return "below the lower bound";
    if (tensor->has_hi && value > tensor->hi) return "above the upper bound";
    return NULL;
}

static void format_value(char text[48], const cuvil_tensor *tensor, const void *values, long i) {
    const int class = cuvil_class(tensor, values, i);
    const cuvil_type *type = cuvil_type_of(tensor);
    const double value = cuvil_value(tensor, values, i);
    if (class == 2 && tensor->dtype == CUVIL_FLOAT32) {
        uint32_t bits;
        memcpy(&bits, (const char *)values + 4 * i, 4);
        snprintf(text, 48, "NaN (0x%08x)", (unsigned)bits);
    } else if (class == 2) {
        snprintf(text, 48, "NaN");
    } else if (class == 1) {
        snprintf(text, 48, "%s", value < 0.0 ? "-infinity" : "+infinity");
    } else {
        snprintf(text, 48, "%.*g", type->kind == 'f' && type->size == 4 ? 9 : 17, value);
    }
}

static char sentence[4096];

void cuvil_register_guard(void) {
    cuvil_erase_register(sentence, sizeof sentence);
}

static const char *sentence_of(const char *kind, const cuvil_tensor *tensor, const void *values, long first, long broken,
                               const char *words) {
    char value[48], place[256], rule[96] = "";
    long index[CUVIL_MAX_RANK], rest = first;
    for (int axis = tensor->rank - 1; axis >= 0; axis--) {
        index[axis] = rest % tensor->shape[axis];
        rest /= tensor->shape[axis];
    }
    format_value(value, tensor, values, first);
    cuvil_shape_text(place, index, tensor->rank);
    if (tensor->finite) snprintf(rule, sizeof rule, " finite");
    if (tensor->has_lo) snprintf(rule + strlen(rule), 40, " >= %.9g", tensor->lo);
    if (tensor->has_hi) snprintf(rule + strlen(rule), 40, " <= %.9g", tensor->hi);
    snprintf(sentence, sizeof sentence,
             "%s '%s' is refused by the policy's guard: value %s at index %s is %s, and every value must be%s "
             "(%ld of %ld break the guard); %s",
             kind, tensor->name, value, place, words, rule, broken, tensor->count,
             kind[0] == 'i' ? "correct the input, or the guard in the policy if it does not describe your data"
                            : "no output was written");
    return sentence;
}

const char *cuvil_guard(const char *kind, const cuvil_tensor *tensor, const void *values) {
    long first = -1, broken = 0;
    if (!tensor->finite && !tensor->has_lo && !tensor->has_hi) return NULL;
    for (long i = 0; i < tensor->count; i++) {
        if (!complaint(tensor, values, i)) continue;
        if (first < 0) first = i;
        broken++;
    }
    return first < 0 ? NULL : sentence_of(kind, tensor, values, first, broken, complaint(tensor, values, first));
}

/* The element types an engine's inputs and outputs may have. */
#include "cuvil_runtime.h"

#include "cuvil_load.h"

#include <string.h>

static const cuvil_type types[] = {
    {CUVIL_FLOAT32, 4, 'f', "float32", "<f4"}, {CUVIL_FLOAT64, 8, 'f', "float64", "<f8"},
    {CUVIL_FLOAT16, 2, 'f', "float16", "<f2"}, {CUVIL_BFLOAT16, 2, 'b', "bfloat16", "<V2"},
    {CUVIL_INT8, 1, 'i', "int8", "|i1"},       {CUVIL_INT16, 2, 'i', "int16", "<i2"},
    {CUVIL_INT32, 4, 'i', "int32", "<i4"},     {CUVIL_INT64, 8, 'i', "int64", "<i8"},
    {CUVIL_UINT8, 1, 'u', "uint8", "|u1"},     {CUVIL_UINT16, 2, 'u', "uint16", "<u2"},
    {CUVIL_UINT32, 4, 'u', "uint32", "<u4"},   {CUVIL_UINT64, 8, 'u', "uint64", "<u8"},
    {CUVIL_BOOL, 1, 'u', "bool", "|b1"},
};

const cuvil_type *cuvil_type_of(const cuvil_tensor *tensor) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].dtype == tensor->dtype) return &types[i];
    cuvil_fail(CUVIL_FAILED, "engine-description", "tensor '%s' has the element type %d, which this runtime does not know: "
               "the engine is damaged; build it again", tensor->name, tensor->dtype);
}

int cuvil_same_descr(const cuvil_type *type, const char *descr) {
    if (!strcmp(descr, type->npy)) return 1;
    /* One-byte types have no byte order, and NumPy calls any two-byte type it does not know |V2 or <V2. */
    if (type->size == 1 && descr[0] && !strcmp(descr + 1, type->npy + 1)) return 1;
    return type->kind == 'b' && !strcmp(descr, "|V2");
}

static int half_is_finite(uint16_t bits, int fraction) {
    const unsigned exponent = (0x7FFFu >> fraction);
    return ((bits & 0x7FFFu) >> fraction) != exponent;
}

double cuvil_value(const cuvil_tensor *tensor, const void *values, long i) {
    return cuvil_load(tensor->dtype, values, i);
}

int cuvil_class(const cuvil_tensor *tensor, const void *values, long i) {
    uint64_t wide;
    uint32_t word;
    uint16_t half;
    switch (tensor->dtype) {
    case CUVIL_FLOAT32:
        memcpy(&word, (const char *)values + 4 * i, 4);
        word &= 0x7FFFFFFFu;
        return word < 0x7F800000u ? 0 : word == 0x7F800000u ? 1 : 2;
    case CUVIL_FLOAT64:
        memcpy(&wide, (const char *)values + 8 * i, 8);
        wide &= 0x7FFFFFFFFFFFFFFFu;
        return wide < 0x7FF0000000000000u ? 0 : wide == 0x7FF0000000000000u ? 1 : 2;
    case CUVIL_FLOAT16:
    case CUVIL_BFLOAT16:
        memcpy(&half, (const char *)values + 2 * i, 2);
        const int fraction = tensor->dtype == CUVIL_FLOAT16 ? 10 : 7;
        if (half_is_finite(half, fraction)) return 0;
        return half & ((1u << fraction) - 1) ? 2 : 1;
    default: return 0;
    }
}

cuvil_tensor cuvil_actual(const cuvil_tensor *tensor) {
    cuvil_tensor found = *tensor;
    if (!tensor->extents) return found;
    found.count = 1;
    for (int axis = 0; axis < tensor->rank; axis++) {
        found.shape[axis] = (long)tensor->extents[axis];
        found.count *= found.shape[axis];
    }
    return found;
}

void cuvil_canonicalise(const cuvil_tensor *tensor, void *values) {
    static const union { uint64_t bits; unsigned char bytes[8]; } f64 = {0x7FF8000000000000u};
    static const uint32_t f32 = 0x7FC00000u;
    static const uint16_t f16 = 0x7E00u, bf16 = 0x7FC0u;
    const void *canonical = tensor->dtype == CUVIL_FLOAT32   ? (const void *)&f32
                            : tensor->dtype == CUVIL_FLOAT64 ? (const void *)&f64
                            : tensor->dtype == CUVIL_FLOAT16 ? (const void *)&f16
                                                             : (const void *)&bf16;
    const cuvil_type *type = cuvil_type_of(tensor);
    if (type->kind != 'f' && type->kind != 'b') return;
    for (long i = 0; i < tensor->count; i++)
        if (cuvil_class(tensor, values, i) == 2) memcpy((char *)values + (long)type->size * i, canonical, type->size);
}

/* One element of a tensor as binary64: exact for every type but 64-bit integers past 2^53, which round to nearest even. */
#ifndef CUVIL_LOAD_H
#define CUVIL_LOAD_H

#include "cuvil_engine.h"

/* Element i of values. The half types are decoded from their bits. */
static inline double cuvil_load(int dtype, const void *values, long i) {
    uint16_t half;
    union {
        uint32_t bits;
        float value;
    } wide;
    switch (dtype) {
    case CUVIL_FLOAT32: return (double)((const float *)values)[i];
    case CUVIL_FLOAT64: return ((const double *)values)[i];
    case CUVIL_INT8: return (double)((const int8_t *)values)[i];
    case CUVIL_INT16: return (double)((const int16_t *)values)[i];
    case CUVIL_INT32: return (double)((const int32_t *)values)[i];
    case CUVIL_INT64: return (double)((const int64_t *)values)[i];
    case CUVIL_UINT16: return (double)((const uint16_t *)values)[i];
    case CUVIL_UINT32: return (double)((const uint32_t *)values)[i];
    case CUVIL_UINT64: return (double)((const uint64_t *)values)[i];
    case CUVIL_BFLOAT16:
        half = ((const uint16_t *)values)[i];
        wide.bits = (uint32_t)half << 16;
        return (double)wide.value;
    case CUVIL_FLOAT16: {
        half = ((const uint16_t *)values)[i];
        const int exponent = half >> 10 & 31;
        double value = (double)(half & 1023);
        if (exponent == 31) value = half & 1023 ? __builtin_nan("") : __builtin_inf();
        else if (exponent == 0) value *= 0x1p-24;
        else value = (value + 1024.0) * (double)(1u << exponent) * 0x1p-25;
        return half >> 15 ? -value : value;
    }
    default: return (double)((const uint8_t *)values)[i];
    }
}

#endif

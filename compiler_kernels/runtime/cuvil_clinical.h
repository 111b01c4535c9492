/* Numbers the clinical logic computes from tensors (docs/clinical.md). All in binary64, one operation after the other in
 * row-major order, so that every target has the same bits. A NaN anywhere in a region gives NaN; so do the reductions of
 * an empty region, but sum and area, which are 0. */
#ifndef CUVIL_CLINICAL_H
#define CUVIL_CLINICAL_H

#include "cuvil_load.h"

enum { CUVIL_LT, CUVIL_LE, CUVIL_GT, CUVIL_GE, CUVIL_EQ, CUVIL_NE };

/* A box of input or output number tensor: positions start[axis] to before stop[axis], where -1 is the axis's actual end. */
typedef struct {
    int output, tensor;
    int start[CUVIL_MAX_RANK], stop[CUVIL_MAX_RANK];
} cuvil_region;

/* The region at the sizes of this inference: runs of length elements, contiguous in memory. */
typedef struct {
    int dtype, rank;
    const unsigned char *values;
    long count, length;
    long at[CUVIL_MAX_RANK], size[CUVIL_MAX_RANK], stride[CUVIL_MAX_RANK]; /* of the axes outside the runs */
    long offset;
} cuvil_box;

static inline cuvil_box cuvil_open_box(const cuvil_engine *engine, const cuvil_region *region) {
    const cuvil_tensor *tensor = &(region->output ? engine->outputs : engine->inputs)[region->tensor];
    cuvil_box box = {.dtype = tensor->dtype, .count = 1, .length = 1};
    box.values = (region->output ? engine->output_buffers : engine->input_buffers)[region->tensor];
    long stride = 1;
    int whole = 1; /* every axis further in is taken whole, so that its runs join */
    for (int axis = tensor->rank - 1; axis >= 0; axis--) {
        const long full = tensor->extents ? (long)tensor->extents[axis] : tensor->shape[axis];
        const long stop = region->stop[axis] < 0 ? full : region->stop[axis];
        const long size = stop - region->start[axis];
        box.offset += region->start[axis] * stride;
        box.count *= size;
        if (whole) {
            box.length *= size;
        } else {
            box.size[box.rank] = size;
            box.stride[box.rank] = stride;
            box.rank++;
        }
        whole = whole && size == full;
        stride *= full;
    }
    return box;
}

/* Moves to the next run; 0 when there is none. */
static inline int cuvil_next_run(cuvil_box *box) {
    for (int axis = 0; axis < box->rank; axis++) {
        box->offset += box->stride[axis];
        if (++box->at[axis] < box->size[axis]) return 1;
        box->offset -= box->at[axis] * box->stride[axis];
        box->at[axis] = 0;
    }
    return 0;
}

/* body for every element of box in row-major order, as the binary64 number x; the binary32 case is a loop of its own. */
#define CUVIL_EACH(box, body)                                                          \
    do {                                                                               \
        if ((box).count <= 0) break;                                                   \
        do {                                                                           \
            const long last = (box).offset + (box).length;                             \
            if ((box).dtype == CUVIL_FLOAT32) {                                        \
                for (long i = (box).offset; i < last; i++) {                           \
                    const double x = (double)((const float *)(const void *)(box).values)[i]; \
                    body                                                               \
                }                                                                      \
            } else {                                                                   \
                for (long i = (box).offset; i < last; i++) {                           \
                    const double x = cuvil_load((box).dtype, (box).values, i);         \
                    body                                                               \
                }                                                                      \
            }                                                                          \
        } while (cuvil_next_run(&(box)));                                              \
    } while (0)

#define CUVIL_NAN __builtin_nan("")

static inline uint64_t cuvil_bits(double value) {
    union {
        double value;
        uint64_t bits;
    } word = {value};
    return word.bits;
}

/* The value with the canonical NaN, 0x7ff8000000000000, for every NaN: processors differ in the sign of those they make. */
static inline double cuvil_number(double value) {
    return __builtin_isnan(value) ? CUVIL_NAN : value;
}

/* The first of count values that is NaN or infinite, or -1. */
static inline int cuvil_not_finite(const double *values, int count) {
    for (int i = 0; i < count; i++)
        if ((cuvil_bits(values[i]) >> 52 & 0x7FF) == 0x7FF) return i;
    return -1;
}

/* The first of several elements that compare equal, as with -0 and +0, is the largest, and the smallest. */
static inline double cuvil_max(const cuvil_engine *engine, const cuvil_region *region) {
    cuvil_box box = cuvil_open_box(engine, region);
    double most = -__builtin_inf();
    int begun = 0;
    CUVIL_EACH(box, {
        if (x > most || !begun) most = x;
        if (__builtin_isnan(x)) return CUVIL_NAN;
        begun = 1;
    });
    return begun ? most : CUVIL_NAN;
}

static inline double cuvil_min(const cuvil_engine *engine, const cuvil_region *region) {
    cuvil_box box = cuvil_open_box(engine, region);
    double least = __builtin_inf();
    int begun = 0;
    CUVIL_EACH(box, {
        if (x < least || !begun) least = x;
        if (__builtin_isnan(x)) return CUVIL_NAN;
        begun = 1;
    });
    return begun ? least : CUVIL_NAN;
}

/* The row-major position within the region of its first largest element. */
static inline double cuvil_argmax(const cuvil_engine *engine, const cuvil_region *region) {
    cuvil_box box = cuvil_open_box(engine, region);
    double most = -__builtin_inf();
    long position = 0, found = -1;
    CUVIL_EACH(box, {
        if (x > most || found < 0) {
            most = x;
            found = position;
        }
        if (__builtin_isnan(x)) return CUVIL_NAN;
        position++;
    });
    return found < 0 ? CUVIL_NAN : (double)found;
}

/* One chain of additions, from +0. */
static inline double cuvil_sum(const cuvil_engine *engine, const cuvil_region *region) {
    cuvil_box box = cuvil_open_box(engine, region);
    double total = 0.0;
    CUVIL_EACH(box, total += x;);
    return total;
}

static inline double cuvil_mean(const cuvil_engine *engine, const cuvil_region *region) {
    return cuvil_sum(engine, region) / (double)cuvil_open_box(engine, region).count;
}

static inline double cuvil_element(const cuvil_engine *engine, const cuvil_region *region) {
    const cuvil_box box = cuvil_open_box(engine, region);
    return box.count == 1 ? cuvil_load(box.dtype, box.values, box.offset) : CUVIL_NAN;
}

static inline int cuvil_compare(int sign, double left, double right) {
    switch (sign) {
    case CUVIL_LT: return left < right;
    case CUVIL_LE: return left <= right;
    case CUVIL_GT: return left > right;
    case CUVIL_GE: return left >= right;
    case CUVIL_EQ: return left == right;
    default: return left != right;
    }
}

/* How many elements compare so with bound. */
static inline double cuvil_area(const cuvil_engine *engine, const cuvil_region *region, int sign, double bound) {
    cuvil_box box = cuvil_open_box(engine, region);
    long found = 0;
    if (__builtin_isnan(bound)) return CUVIL_NAN;
    CUVIL_EACH(box, {
        if (__builtin_isnan(x)) return CUVIL_NAN;
        found += cuvil_compare(sign, x, bound);
    });
    return (double)found;
}

static inline double cuvil_fraction(const cuvil_engine *engine, const cuvil_region *region, int sign, double bound) {
    return cuvil_area(engine, region, sign, bound) / (double)cuvil_open_box(engine, region).count;
}

/* Bits whose unsigned order is the order of the numbers, -0 before +0. */
static inline uint64_t cuvil_order_key(double value) {
    const uint64_t bits = cuvil_bits(value);
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

/* Whether the lowest 20 bits of every element as binary64 are zero. */
static inline int cuvil_is_narrow(int dtype) {
    return dtype != CUVIL_FLOAT64 && dtype != CUVIL_INT64 && dtype != CUVIL_UINT64 && dtype != CUVIL_INT32 && dtype != CUVIL_UINT32;
}

/* Nearest rank: the element of rank max(1, ceil(percent * count / 100)) in ascending order, -0 before +0. The product and
 * the quotient are binary64 operations. Found digit by digit of the ordered bits, so that nothing is sorted or copied. */
static inline double cuvil_percentile(const cuvil_engine *engine, const cuvil_region *region, double percent) {
    enum { DIGIT = 11, VALUES = 1 << DIGIT };
    const cuvil_box whole = cuvil_open_box(engine, region);
    if (whole.count <= 0) return CUVIL_NAN;
    const double wanted = percent * (double)whole.count / 100.0;
    long rank = (long)wanted;
    rank += (double)rank < wanted;
    if (rank < 1) rank = 1;
    const int last = cuvil_is_narrow(whole.dtype) ? 20 : 0;
    uint64_t known = 0, mask = 0;
    for (int shift = 64 - DIGIT;; shift = shift > DIGIT ? shift - DIGIT : 0) {
        uint32_t count[VALUES]; /* 8 KiB: within what cuvil_erase wipes of the stack */
        cuvil_box box = whole;
        for (int digit = 0; digit < VALUES; digit++) count[digit] = 0;
        CUVIL_EACH(box, {
            if (__builtin_isnan(x)) return CUVIL_NAN;
            const uint64_t key = cuvil_order_key(x);
            if ((key & mask) == known) count[key >> shift & (VALUES - 1)]++;
        });
        int digit = 0;
        while (rank > (long)count[digit]) rank -= (long)count[digit++];
        known |= (uint64_t)digit << shift;
        mask |= (uint64_t)(VALUES - 1) << shift;
        if (shift == last) break;
    }
    if (last && !(known >> 63)) known |= ((uint64_t)1 << last) - 1; /* a negative number's key has its bits reversed */
    const uint64_t bits = known >> 63 ? known & ~((uint64_t)1 << 63) : ~known;
    const union {
        uint64_t bits;
        double value;
    } word = {bits};
    return word.value;
}

#endif

/* Probes of the clinical logic. A generated clinical.c defines CUVIL_PROBES as 1 or 0 before it includes this file; with
 * 0 a condition is its value and a probe is nothing. */
#ifndef CUVIL_COVER_H
#define CUVIL_COVER_H

#include <stdint.h>

#if CUVIL_PROBES
/* The value of condition index (0 to 31) of a decision, noted in the trace: bit index says that it was evaluated, bit
 * 32 + index that it was true. */
static inline int cuvil_condition(uint64_t *trace, int index, int value) {
    *trace |= (uint64_t)1 << index | (uint64_t)(value != 0) << (32 + index);
    return value;
}
#define __cuvil_cover(label, number, trace, outcome) ((void)(number), (void)(trace), (void)(outcome))
#else
#define cuvil_condition(trace, index, value) (value)
#define __cuvil_cover(label, number, trace, outcome) ((void)(number), (void)(trace), (void)(outcome))
#endif

#endif

/* Probes of the clinical logic (docs/coverage.md). A generated clinical.c defines CUVIL_PROBES as 1 or 0 before it includes
 * this file; with 0 a condition is its value, a probe is nothing, and there is no ring. */
#ifndef CUVIL_COVER_H
#define CUVIL_COVER_H

#include "cuvil_engine.h"

#if CUVIL_PROBES

/* The ring until a host gives another one (`--coverage FILE`). */
static struct {
    cuvil_ring head;
    cuvil_probe_record records[CUVIL_RING_RECORDS];
} cuvil_own_ring = {{CUVIL_RING_MAGIC, CUVIL_RING_RECORDS, 0, {0}, {0}, 0, {0}, 0, {0}}, {{0, 0, 0}}};
static cuvil_ring *cuvil_this_ring = &cuvil_own_ring.head;
#define CUVIL_RING (&cuvil_this_ring)

/* The value of condition index (0 to 31) of a decision, noted in the trace: bit index says that it was evaluated, bit
 * 32 + index that it was true. */
static inline int cuvil_condition(uint64_t *trace, int index, int value) {
    *trace |= (uint64_t)1 << index | (uint64_t)(value != 0) << (32 + index);
    return value;
}

/* One record into the ring. Wait-free: a bounded number of instructions, no lock and no system call; a full ring counts the
 * record as lost. One producer, the thread that decides; a consumer may read at the same time, from another process too. */
static inline void cuvil_cover_record(uint32_t number, uint64_t trace, int outcome) {
    cuvil_ring *ring = cuvil_this_ring;
    const uint64_t head = ring->head; /* written here alone */
    const uint64_t lost = ring->dropped;
    if (head - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) >= ring->capacity) {
        __atomic_store_n(&ring->dropped, lost + 1, __ATOMIC_RELAXED);
        return;
    }
    cuvil_probe_record *record = &cuvil_ring_records(ring)[head & (ring->capacity - 1)];
    record->probe = number | (uint32_t)(outcome != 0) << 31;
    record->sequence = (uint32_t)(head + lost);
    record->trace = trace;
    __atomic_store_n(&ring->head, head + 1, __ATOMIC_RELEASE);
}
#define __cuvil_cover(label, number, trace, outcome) cuvil_cover_record(number, trace, outcome)

/* Erasure: the engine's own ring is emptied; one that a host gave is the host's. */
static inline void cuvil_forget_ring(void) {
    cuvil_own_ring.head.head = cuvil_own_ring.head.tail = cuvil_own_ring.head.dropped = 0;
    cuvil_wipe(cuvil_own_ring.records, sizeof cuvil_own_ring.records);
}

#else
#define CUVIL_RING 0
static inline void cuvil_forget_ring(void) {}
#define cuvil_condition(trace, index, value) (value)
#define __cuvil_cover(label, number, trace, outcome) ((void)(number), (void)(trace), (void)(outcome))
#endif

#endif

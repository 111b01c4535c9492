/* Copies of small inputs and outputs by threads, in place of the copy engine, whose start and handing over take longer than such
 * a copy. host memory is page-locked and mapped; both pointers are aligned to 16 bytes. */
#ifndef CUVIL_COPY_H
#define CUVIL_COPY_H

#include "cuvil_device.h"

enum { CUVIL_COPY_THREADS = 256, CUVIL_COPY_WORDS = 4 }; /* a block copies 16 KiB (cuvil_gpu.c launches that many blocks) */

/* Sixteen bytes at a time, and single ones of what is left. Loads go first, so that a thread waits for the host's memory once. */
extern "C" __global__ void __launch_bounds__(CUVIL_COPY_THREADS) cuvil_copy(const uint4 *from, uint4 *to, unsigned long bytes)
{
    const unsigned long words = bytes / sizeof(uint4), first = words * sizeof(uint4);
    const unsigned long at = (unsigned long)blockIdx.x * (CUVIL_COPY_THREADS * CUVIL_COPY_WORDS) + threadIdx.x;
    uint4 held[CUVIL_COPY_WORDS];
    for (int k = 0; k < CUVIL_COPY_WORDS; k++)
        if (at + (unsigned)(k * CUVIL_COPY_THREADS) < words) held[k] = __ldcs(from + at + k * CUVIL_COPY_THREADS);
    for (int k = 0; k < CUVIL_COPY_WORDS; k++)
        if (at + (unsigned)(k * CUVIL_COPY_THREADS) < words) to[at + k * CUVIL_COPY_THREADS] = held[k];
    if (at < bytes - first) ((unsigned char *)to)[first + at] = ((const unsigned char *)from)[first + at];
}

#endif

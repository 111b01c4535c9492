/* What GPU kernels are written in: CUDA C++ and the functions below, which the emulator (cuvil_emulate.h) has too.
 *
 * Arithmetic is that of ca1_*.h at CA1_VL 1: ca1_fma_v1, ca1_add_v1, ca1_mul_v1, ca1_div_v1... are the intrinsics with
 * explicit rounding, which no compiler option contracts. Compile with -fmad=false -ftz=false -prec-div=true -prec-sqrt=true.
 * PTX ISA 8.0 and later, sections "cp.async", "griddepcontrol" and "barrier.cluster".
 */
#ifndef CUVIL_DEVICE_H
#define CUVIL_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef CUVIL_EMULATE
#include "cuvil_emulate.h"
#else

#ifndef __CUDACC__
#error "cuvil_device.h is for nvcc, or for a C++ compiler with CUVIL_EMULATE defined"
#endif
#define CA1_DEVICE __device__
#define CA1_CONSTANT static __device__ const
#define __builtin_prefetch(...) ((void)0)

/* Dynamic shared memory of the block, aligned to 128 bytes. Kernels declare no other: the emulator fills this one with
 * NaN before every block. */
extern __shared__ __align__(128) unsigned char cuvil_shared_memory[];
#define cuvil_shared cuvil_shared_memory

#define CUVIL_FN static __device__ __forceinline__

CUVIL_FN unsigned cuvil_shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

/* Asynchronous copy of BYTES (4, 8 or 16, both sides aligned to it) from global to shared memory; kept == 0 writes zeros
 * instead and reads nothing. Visible to the copying thread after cuvil_copy_wait, to others after a barrier besides. */
template <int BYTES> CUVIL_FN void cuvil_copy_async(void *shared, const void *global, bool kept = true)
{
    const unsigned to = cuvil_shared_address(shared);
    const int read = kept ? BYTES : 0;
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(read) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global), "n"(BYTES), "r"(read) : "memory");
}
CUVIL_FN void cuvil_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Waits until at most PENDING of this thread's latest groups are unfinished. */
template <int PENDING> CUVIL_FN void cuvil_copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

/* A ticket: how many took one from this counter before; the counter lies in global memory. The one who takes the last
 * ticket must set the counter back to zero. Writes made before (by the thread, or by its block before a barrier) are
 * visible to whoever takes a later ticket. */
CUVIL_FN unsigned cuvil_ticket(unsigned *counter)
{
    __threadfence();
    const unsigned before = atomicAdd(counter, 1u);
    __threadfence();
    return before;
}

#if __CUDA_ARCH__ >= 900
/* Blocks of a cluster: rank of this one, a barrier over all of them (release, acquire), and the address in block `rank`
 * of what is at p in this one's shared memory. A block may not end while another reads its memory. */
CUVIL_FN unsigned cuvil_cluster_rank()
{
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
CUVIL_FN void cuvil_cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
template <class T> CUVIL_FN T *cuvil_cluster_at(T *p, unsigned rank)
{
    unsigned long long there;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"((unsigned long long)p), "r"(rank));
    return (T *)there;
}

/* Programmatic dependent launch: wait until the kernels before this one have ended and their writes are visible; let the
 * next kernel start its part before its own wait. Without the launch attribute neither does anything. */
CUVIL_FN void cuvil_grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
CUVIL_FN void cuvil_grid_release() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#else
CUVIL_FN void cuvil_grid_wait() {}
CUVIL_FN void cuvil_grid_release() {}
#endif

#endif /* CUVIL_EMULATE */
#endif

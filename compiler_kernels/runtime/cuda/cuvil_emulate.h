/* GPU kernels on a CPU: the same text, compiled as C++ (docs/gpu.md, "Emulation").
 *
 * Every thread of a block, or of a cluster's blocks, is a fiber on a stack of its own; a fiber runs until it waits. Blocks,
 * and the fibers of a block at every barrier, run in an order drawn from a seed, shared memory is full of NaN before a
 * block starts, and an asynchronous copy is made at once or as late as allowed, at the wait: a missing wait or barrier shows as
 * wrong bits. It is no model of time, of memory beyond a block, or of a GPU's rounding: that is IEEE 754's on both sides.
 */
#ifndef CUVIL_EMULATE_H
#define CUVIL_EMULATE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define CA1_CONSTANT static const
#define CUVIL_FN static inline

struct dim3 {
    unsigned x, y, z;
};
struct __align__(8) float2 { float x, y; };
struct __align__(16) float4 { float x, y, z, w; };
struct __align__(8) int2 { int x, y; };
struct __align__(16) int4 { int x, y, z, w; };
struct __align__(8) uint2 { unsigned x, y; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
CUVIL_FN float2 make_float2(float x, float y) { return {x, y}; }
CUVIL_FN float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
CUVIL_FN int2 make_int2(int x, int y) { return {x, y}; }
CUVIL_FN int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
CUVIL_FN uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
CUVIL_FN uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

/* What a fiber sees of itself. */
struct cuvil_self {
    dim3 thread, block, threads, blocks;
    unsigned char *shared;
    unsigned rank; /* of its block in the cluster */
    unsigned lane;
};
extern __thread cuvil_self *cuvil_now;
#define threadIdx (cuvil_now->thread)
#define blockIdx (cuvil_now->block)
#define blockDim (cuvil_now->threads)
#define gridDim (cuvil_now->blocks)
#define warpSize 32
#define cuvil_shared (cuvil_now->shared)

extern "C" {
void cuvil_emulated_syncthreads(void);
void cuvil_emulated_syncwarp(void);
void cuvil_emulated_cluster_sync(void);
void *cuvil_emulated_at(void *p, unsigned rank);
/* Gives every live thread of the warp's value to all: values[32] by lane; *live the mask of lanes that take part. */
const uint64_t *cuvil_emulated_exchange(uint64_t value, unsigned *live);
void cuvil_emulated_copy(void *shared, const void *global, unsigned bytes, int kept);
void cuvil_emulated_commit(void);
void cuvil_emulated_copy_wait(int pending);
}

CUVIL_FN void __syncthreads() { cuvil_emulated_syncthreads(); }
CUVIL_FN void __syncwarp(unsigned = 0xffffffffu) { cuvil_emulated_syncwarp(); }
CUVIL_FN void __threadfence() {}
CUVIL_FN void __threadfence_block() {}

template <class T> CUVIL_FN T cuvil_from_lane(T value, unsigned lane)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    uint64_t bits = 0;
    unsigned live;
    memcpy(&bits, &value, sizeof value);
    const uint64_t *values = cuvil_emulated_exchange(bits, &live);
    memcpy(&value, values + (lane & 31u), sizeof value);
    return value;
}
template <class T> CUVIL_FN T __shfl_sync(unsigned, T value, int lane, int width = 32)
{
    return cuvil_from_lane(value, (cuvil_now->lane & ~(unsigned)(width - 1)) | ((unsigned)lane & (unsigned)(width - 1)));
}
template <class T> CUVIL_FN T __shfl_xor_sync(unsigned, T value, int mask, int = 32)
{
    return cuvil_from_lane(value, cuvil_now->lane ^ (unsigned)mask);
}
template <class T> CUVIL_FN T __shfl_down_sync(unsigned, T value, unsigned delta, int width = 32)
{
    const unsigned own = cuvil_now->lane, last = own | (unsigned)(width - 1);
    return cuvil_from_lane(value, own + delta <= last ? own + delta : own);
}
template <class T> CUVIL_FN T __shfl_up_sync(unsigned, T value, unsigned delta, int width = 32)
{
    const unsigned own = cuvil_now->lane, first = own & ~(unsigned)(width - 1);
    return cuvil_from_lane(value, own >= first + delta ? own - delta : own);
}
CUVIL_FN unsigned __ballot_sync(unsigned, int predicate)
{
    unsigned live, found = 0;
    const uint64_t *values = cuvil_emulated_exchange(predicate != 0, &live);
    for (unsigned l = 0; l < 32; l++)
        if (live >> l & 1u && values[l]) found |= 1u << l;
    return found;
}
CUVIL_FN int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
CUVIL_FN int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

template <class T> CUVIL_FN T __ldg(const T *p) { return *p; }
template <class T> CUVIL_FN T __ldcs(const T *p) { return *p; }
CUVIL_FN int __float_as_int(float x) { int i; memcpy(&i, &x, 4); return i; }
CUVIL_FN unsigned __float_as_uint(float x) { unsigned i; memcpy(&i, &x, 4); return i; }
CUVIL_FN float __int_as_float(int i) { float x; memcpy(&x, &i, 4); return x; }
CUVIL_FN float __uint_as_float(unsigned i) { float x; memcpy(&x, &i, 4); return x; }
CUVIL_FN float __fadd_rn(float a, float b) { return a + b; }
CUVIL_FN float __fsub_rn(float a, float b) { return a - b; }
CUVIL_FN float __fmul_rn(float a, float b) { return a * b; }
CUVIL_FN float __fdiv_rn(float a, float b) { return a / b; }
CUVIL_FN double __dadd_rn(double a, double b) { return a + b; }
CUVIL_FN double __dsub_rn(double a, double b) { return a - b; }
CUVIL_FN double __dmul_rn(double a, double b) { return a * b; }
CUVIL_FN float __double2float_rn(double a) { return (float)a; }
CUVIL_FN double __hiloint2double(int high, int low)
{
    const uint64_t bits = (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
    double x;
    memcpy(&x, &bits, 8);
    return x;
}
CUVIL_FN float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
CUVIL_FN float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
template <class T> CUVIL_FN T min(T a, T b) { return b < a ? b : a; }
template <class T> CUVIL_FN T max(T a, T b) { return a < b ? b : a; }

template <int BYTES> CUVIL_FN void cuvil_copy_async(void *shared, const void *global, bool kept = true)
{
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "asynchronous copies move 4, 8 or 16 bytes");
    cuvil_emulated_copy(shared, global, BYTES, kept);
}
CUVIL_FN void cuvil_copy_commit() { cuvil_emulated_commit(); }
template <int PENDING> CUVIL_FN void cuvil_copy_wait() { cuvil_emulated_copy_wait(PENDING); }
CUVIL_FN unsigned cuvil_ticket(unsigned *counter) { return __atomic_fetch_add(counter, 1u, __ATOMIC_SEQ_CST); }

CUVIL_FN unsigned cuvil_cluster_rank() { return cuvil_now->rank; }
CUVIL_FN void cuvil_cluster_sync() { cuvil_emulated_cluster_sync(); }
template <class T> CUVIL_FN T *cuvil_cluster_at(T *p, unsigned rank) { return (T *)cuvil_emulated_at((void *)p, rank); }
CUVIL_FN void cuvil_grid_wait() {}
CUVIL_FN void cuvil_grid_release() {}

/* The table of kernels at the end of a unit: each called with its pointers in an array. */
template <class... A> struct cuvil_rest;
template <> struct cuvil_rest<> {
    template <class F, class... B> static void call(F f, void *const *, B... b) { f(b...); }
};
template <class A, class... R> struct cuvil_rest<A, R...> {
    template <class F, class... B> static void call(F f, void *const *a, B... b) { cuvil_rest<R...>::call(f, a + 1, b..., (A)*a); }
};
template <class... A> CUVIL_FN void cuvil_unpack(void (*f)(A...), void *const *a) { cuvil_rest<A...>::call(f, a); }
template <class... A> constexpr int cuvil_parameters(void (*)(A...)) { return (int)sizeof...(A); }
struct cuvil_emulated_kernel {
    const char *name;
    void (*run)(void *const *arguments);
    int parameters, independent;
};
#define CUVIL_EMULATED(kernel, independent) \
    {#kernel, [](void *const *a) { cuvil_unpack(kernel, a); }, cuvil_parameters(kernel), independent},

#endif

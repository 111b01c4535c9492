"""One kernel that uses everything cuvil_device.h offers, and its defects, each of which the emulator must show."""

from __future__ import annotations

from compiler_kernels.targets.cuda.kernel import CudaKernel

BLOCKS, THREADS, CLUSTER = 4, 64, 2

# y[block][t] = sum of the block's 64 values (by shuffles and shared memory) + 2 * x[t] + the other block's first value.
TEXT = """
extern "C" __global__ void NAME(const float *p0, float *y, unsigned char *workspace, unsigned *tickets)
{
    float *own = (float *)cuvil_shared, *sums = own + 64;
    unsigned *last = (unsigned *)(sums + 64);
    const unsigned t = threadIdx.x, block = blockIdx.x;
    cuvil_grid_wait();
    cuvil_copy_async<4>(own + t, p0 + block * 64 + t);
    cuvil_copy_commit();
    cuvil_copy_wait<0>(); /* 2 */
    __syncthreads(); /* 3 */
    float sum = own[(t + 1) % 64];
    for (int apart = 16; apart >= 1; apart /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, apart));
    if (t % 32 == 0) sums[t / 32] = sum;
    __syncthreads(); /* 4 */
    cuvil_copy_async<4>(own + t, p0 + block * 64 + 63 - t);
    cuvil_copy_commit();
    sum = __fadd_rn(sums[0], sums[1]);
    cuvil_copy_wait<0>(); /* 5 */
    cuvil_cluster_sync(); /* 6 */
    const float other = cuvil_cluster_at(own, cuvil_cluster_rank() ^ 1u)[63];
    cuvil_cluster_sync();
    ((float *)workspace)[block * 64 + t] = ca1_fma_v1(2.0f, own[63 - t], __fadd_rn(sum, other));
    __syncthreads(); /* 7 */
    if (t == 0) last[0] = cuvil_ticket(tickets) == gridDim.x - 1;
    __syncthreads(); /* 8 */
    if (last[0] == 1u) {
        for (unsigned b = 0; b < gridDim.x; b++) y[b * 64 + t] = ((const float *)workspace)[b * 64 + t];
        if (t == 0) tickets[0] = 0; /* 9 */
    }
}
"""
LINES = {
    "no wait for the asynchronous copy": ("    cuvil_copy_wait<0>(); /* 2 */\n", ""),
    "no barrier after the asynchronous copy": ("    __syncthreads(); /* 3 */\n", ""),
    "no barrier after the sums": ("    __syncthreads(); /* 4 */\n", ""),
    "a copy over what others still read": (
        "    float sum = own",
        "    cuvil_copy_async<4>(own + t, p0 + block * 64 + 63 - t);\n    float sum = own",
    ),
    "no wait for the second copy": ("    cuvil_copy_wait<0>(); /* 5 */\n", ""),
    "no barrier over the cluster": ("    cuvil_cluster_sync(); /* 6 */\n", ""),
    "ticket taken before all wrote": ("    __syncthreads(); /* 7 */\n", ""),
    "ticket read before it is there": ("    __syncthreads(); /* 8 */\n", ""),
    "ticket not given back": ("        if (t == 0) tickets[0] = 0; /* 9 */\n", ""),
    "one thread waits alone": ("    __syncthreads(); /* 4 */\n", "    if (t == 5) cuvil_cluster_sync();\n"),
    "one thread never comes": ("    __syncthreads(); /* 4 */\n", "    if (t != 5) __syncthreads();\n"),
}


def kernel(name: str, old: str = "", new: str = "") -> CudaKernel:
    """The kernel, with the first ``old`` in its text made ``new``."""
    text = TEXT.replace(old, new, 1) if old else TEXT
    assert not old or text != TEXT
    return CudaKernel(
        name,
        text.replace("NAME", name),
        (BLOCKS, 1, 1),
        THREADS,
        1024,
        BLOCKS * THREADS * 4,
        1,
        CLUSTER,
        dependent=True,
    )

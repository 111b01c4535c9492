/* Test program: applies the CA-1 functions at every vector width of the target.
 * As a program: `elementary_probe WIDTH STEP` prints one line "function hash" per function, over a fixed sample of
 * about 2^32 / STEP operands. As a shared library: probe_apply, at most 4096 operands a call for width 0. */
#include <stdio.h>
#include <stdlib.h>

#define CA1_VL 1
#include "elementary_apply.h"
#ifdef __aarch64__
#undef CA1_VL
#define CA1_VL 4
#include "elementary_apply.h"
#endif
#if defined(__AVX2__) && defined(__FMA__)
#undef CA1_VL
#define CA1_VL 8
#include "elementary_apply.h"
#undef CA1_VL
#define CA1_VL 16
#include "elementary_apply.h"
#endif

#ifdef __CUDACC__   /* width 0 of a build by nvcc -x cu: device code, one thread per operand */
__global__ static void on_device(int function, const float *a, const float *b, const float *c, float *out)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    ca1_apply_v1(function, a + i, b + i, c + i, out + i, 1);
}

static int device_apply(int function, const float *a, const float *b, const float *c, float *out, long n)
{
    static float *buffer;
    if (buffer == NULL && cudaMalloc(&buffer, 4 * (size_t)n * sizeof *buffer) != cudaSuccess)
        return 1;
    const float *const from[3] = {a, b, c};
    for (int i = 0; i < 3; i++)
        cudaMemcpy(buffer + i * n, from[i], (size_t)n * sizeof *buffer, cudaMemcpyHostToDevice);
    on_device<<<(unsigned)(n / 256), 256>>>(function, buffer, buffer + n, buffer + 2 * n, buffer + 3 * n);
    return cudaMemcpy(out, buffer + 3 * n, (size_t)n * sizeof *buffer, cudaMemcpyDeviceToHost) != cudaSuccess;
}
#endif

#define FUNCTIONS 25
static const char *const names[FUNCTIONS] = {
    "exp", "log", "erf", "tanh", "sigmoid", "sqrt", "reciprocal", "pow", "softplus", "elu", "hard_swish", "gelu",
    "gelu_tanh", "mish", "leaky_relu", "relu", "max", "min", "maxn", "minn", "fma", "div", "mul_sub",
    "exp_nonpositive", "exp_core"};

/* 0 on success, 1 when this build lacks the width. n is a multiple of 16. */
int probe_apply(int function, int width, const float *a, const float *b, const float *c, float *out, long n)
{
    if (width == 1)
        ca1_apply_v1(function, a, b, c, out, n);
#ifdef __aarch64__
    else if (width == 4)
        ca1_apply_v4(function, a, b, c, out, n);
#endif
#if defined(__AVX2__) && defined(__FMA__)
    else if (width == 8)
        ca1_apply_v8(function, a, b, c, out, n);
    else if (width == 16)
        ca1_apply_v16(function, a, b, c, out, n);
#endif
#ifdef __CUDACC__
    else if (width == 0)
        return device_apply(function, a, b, c, out, n);
#endif
    else
        return 1;
    return 0;
}

/* Operands at which something changes: zeros, subnormals, thresholds of the text with their neighbours, specials. */
static const unsigned edges[] = {
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x807fffff, 0x00800000, 0x80800000, 0x3f000000,
    0x3f7fffff, 0x3f800000, 0x3f800001, 0xbf7fffff, 0xbf800000, 0xbf800001, 0x3f520000, 0x3f520001, 0x3f200000,
    0x3f200001, 0x40000000, 0x40400000, 0xc0000000, 0xc0400000, 0x40800000, 0x41120000, 0x42b17217, 0x42b17218,
    0xc2aeac4f, 0xc2aeac50, 0xc2cff1b4, 0xc2cff1b5, 0xc2d00000, 0x42b20000, 0x3f2aaaaa, 0x3f2aaaab, 0x4affffff,
    0x4b000001, 0x4b800000, 0xcb7fffff, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345};
#define EDGES ((unsigned long)(sizeof edges / sizeof edges[0]))

static unsigned mix(unsigned long long k)
{
    k ^= k >> 31;
    k *= 0x9e3779b97f4a7c15ULL;
    k ^= k >> 29;
    k *= 0xbf58476d1ce4e5b9ULL;
    return (unsigned)(k >> 32);
}

static float as_float(unsigned u) { return ca1_as_f32_v1((ca1_i32)u); }

/* Operand k: all pairs of edges first, then one pattern per interval of `step` patterns with a second operand that is a
 * moderate number, an arbitrary pattern, or close to the first. */
static void operands(unsigned long long k, unsigned step, float *a, float *b, float *c)
{
    if (k < EDGES * EDGES) {
        *a = as_float(edges[k % EDGES]);
        *b = as_float(edges[k / EDGES]);
        *c = as_float(edges[mix(k) % EDGES]);
        return;
    }
    const unsigned long long i = k - EDGES * EDGES;
    const unsigned u = (unsigned)(i * step + mix(i) % step), v = mix(i + 0x123456789ULL);
    *a = as_float(u);
    *b = i % 3 == 0 ? (float)(v >> 8) * 0x1p-20f - 8.0f : i % 3 == 1 ? as_float(v) : as_float(u ^ (v & 0x80000003u));
    *c = i % 2 ? as_float(mix(v)) : -(float)((double)*a * (double)*b);
}

int main(int argc, char **argv)
{
    enum { BLOCK = 4096 };
    static float a[BLOCK], b[BLOCK], c[BLOCK], out[BLOCK];
    if (argc != 3)
        return 2;
    const int width = atoi(argv[1]);
    const unsigned step = (unsigned)atoi(argv[2]);
    const unsigned long long total = (EDGES * EDGES + 0x100000000ULL / step) / BLOCK * BLOCK;
    unsigned long long hash[FUNCTIONS];
    for (int f = 0; f < FUNCTIONS; f++)
        hash[f] = 14695981039346656037ULL;                            /* FNV-1a over words */
    for (unsigned long long k = 0; k < total; k += BLOCK) {
        for (int i = 0; i < BLOCK; i++)
            operands(k + (unsigned)i, step, a + i, b + i, c + i);
        for (int f = 0; f < FUNCTIONS; f++) {
            if (probe_apply(f, width, a, b, c, out, BLOCK))
                return 2;
            for (int i = 0; i < BLOCK; i++)
                hash[f] = (hash[f] ^ (unsigned)ca1_as_i32_v1(out[i])) * 1099511628211ULL;
        }
    }
    for (int f = 0; f < FUNCTIONS; f++)
        printf("%s %016llx\n", names[f], hash[f]);
    return 0;
}

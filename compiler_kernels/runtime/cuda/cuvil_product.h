/* Sums of products of blocked values on a GPU, in the order of docs/arithmetic.md, section 3: what the convolutions share.
 *
 * A warp makes a leaf: its lanes are LO quads of outputs times LP = 32 / LO pixels, and a lane holds TQ quads for each of
 * its TP pixels in registers. Warps of a block are LW leaves times PW groups of pixels. Leaves meet in shared memory, are
 * added in order, and only finished nodes of the tree leave the block. So any tile and any split give the same bits. */
#ifndef CUVIL_PRODUCT_H
#define CUVIL_PRODUCT_H

#ifdef CUVIL_EMULATE
#define CUVIL_UNROLL
#define CUVIL_ROLLED
#define CUVIL_PAIRS
#else
#define CUVIL_UNROLL _Pragma("unroll")
#define CUVIL_ROLLED _Pragma("unroll 1")
#define CUVIL_PAIRS _Pragma("unroll 2")
#endif

CUVIL_FN float4 cuvil_fma4(float x, float4 w, float4 a)
{
    return make_float4(ca1_fma_v1(x, w.x, a.x), ca1_fma_v1(x, w.y, a.y), ca1_fma_v1(x, w.z, a.z), ca1_fma_v1(x, w.w, a.w));
}
CUVIL_FN float4 cuvil_add4(float4 a, float4 b)
{
    return make_float4(ca1_add_v1(a.x, b.x), ca1_add_v1(a.y, b.y), ca1_add_v1(a.z, b.z), ca1_add_v1(a.w, b.w));
}
CUVIL_FN float4 cuvil_sub4(float4 a, float4 b)
{
    return make_float4(ca1_sub_v1(a.x, b.x), ca1_sub_v1(a.y, b.y), ca1_sub_v1(a.z, b.z), ca1_sub_v1(a.w, b.w));
}
CUVIL_FN float4 cuvil_zero4() { return make_float4(0.0f, 0.0f, 0.0f, 0.0f); }
CUVIL_FN float4 cuvil_load4(const float *p) { return *(const float4 *)p; }
CUVIL_FN void cuvil_store4(float *p, float4 v) { *(float4 *)p = v; }

__host__ __device__ constexpr int cuvil_ceil(int a, int b) { return (a + b - 1) / b; }
/* Levels of the summation tree of so many leaves that have a value of their own. */
__host__ __device__ constexpr int cuvil_levels(int leaves) { return leaves <= 8 ? 1 : 1 + cuvil_levels(cuvil_ceil(leaves, 8)); }

/* A lane's quad of outputs and its pixel. Loads of 16 bytes from shared memory take half the time where lanes i and i ^ 1, or
 * lanes i and i ^ 2, read one address: the former holds of weights, the latter of inputs. */
template <int LO> CUVIL_FN int cuvil_lane_quad() { return threadIdx.x % 32 / 2 % LO; }
template <int LO> CUVIL_FN int cuvil_lane_pixel() { return threadIdx.x % 2 + threadIdx.x % 32 / (2 * LO) * 2; }

/* The open nodes of N sums, one per level of the tree. */
template <int LEVELS, int N> struct cuvil_tree {
    float4 node[LEVELS][N];

    /* Value number `index` of `level` for sum `n`; a node that is then full becomes a value of the level above. */
    __device__ __forceinline__ void push(int level, int index, int n, float4 value)
    {
        CUVIL_UNROLL for (int l = 0; l < LEVELS; l++) {
            if (l < level) continue;
            node[l][n] = (index & 7) == 0 ? value : cuvil_add4(node[l][n], value);
            if ((index & 7) != 7) return;
            value = node[l][n];
            index >>= 3;
        }
    }

    /* The total of `count` values that entered at `level`. */
    __device__ __forceinline__ float4 total(int level, int count, int n)
    {
        CUVIL_UNROLL for (int l = 0; l < LEVELS - 1; l++) {
            if (l < level) continue;
            if (count & 7) push(l + 1, count >> 3, n, node[l][n]);
            count = cuvil_ceil(count, 8);
        }
        return node[LEVELS - 1][n];
    }
};

template <int TQ, int QUAD> CUVIL_FN void cuvil_weights(float4 (&u)[4][TQ], const float *w)
{
    CUVIL_UNROLL for (int k = 0; k < 4; k++)
        CUVIL_UNROLL for (int q = 0; q < TQ; q++) u[k][q] = cuvil_load4(w + k * 16 + q * QUAD);
}

/* N units of eight taps (the channels of a unit at one kernel position) one after another, STEP floats apart in x, for TP
 * pixels (rows of TW) and TQ quads of outputs. Weights are loaded four taps ahead. */
template <int N, int STEP, int TQ, int TP, int TW, int ROW, int COLUMN, int QUAD>
CUVIL_FN void cuvil_taps(float4 (&a)[TP][TQ], const float *x, const float *w)
{
    float4 u[2][4][TQ];
    cuvil_weights<TQ, QUAD>(u[0], w);
    CUVIL_UNROLL for (int g = 0; g < 2 * N; g++) {
        if (g + 1 < 2 * N) cuvil_weights<TQ, QUAD>(u[(g + 1) % 2], w + (g + 1) * 64);
        const float *from = x + g / 2 * STEP + g % 2 * 4;
        CUVIL_UNROLL for (int p = 0; p < TP; p++) {
            const float4 v = cuvil_load4(from + p / TW * ROW + p % TW * COLUMN);
            CUVIL_UNROLL for (int q = 0; q < TQ; q++) a[p][q] = cuvil_fma4(v.x, u[g % 2][0][q], a[p][q]);
            CUVIL_UNROLL for (int q = 0; q < TQ; q++) a[p][q] = cuvil_fma4(v.y, u[g % 2][1][q], a[p][q]);
            CUVIL_UNROLL for (int q = 0; q < TQ; q++) a[p][q] = cuvil_fma4(v.z, u[g % 2][2][q], a[p][q]);
            CUVIL_UNROLL for (int q = 0; q < TQ; q++) a[p][q] = cuvil_fma4(v.w, u[g % 2][3][q], a[p][q]);
        }
    }
}

/* Zeroes the halo of a blocked value: PLANES planes of D x H x W positions of 16 channels with HD, HH, HW around them,
 * shared out among all threads of the grid. */
template <int PLANES, int D, int H, int W, int HD, int HH, int HW>
CUVIL_FN void cuvil_halo(float *y, int thread, int threads)
{
    constexpr int ROW = W + 2 * HW, PLANE = (H + 2 * HH) * ROW, WHOLE = (D + 2 * HD) * PLANE;
    constexpr int ENDS = 2 * HD * PLANE, ABOVE = 2 * HH * ROW, SIDES = 2 * HW * H, EACH = ABOVE + SIDES;
    constexpr int COUNT = ENDS + D * EACH;
    if (COUNT == 0) return;
    for (int i = thread; i < PLANES * COUNT * 4; i += threads) {
        int at = i / 4 % COUNT;
        if (at < ENDS)
            at += at < HD * PLANE ? 0 : D * PLANE;
        else {
            const int d = (at - ENDS) / (EACH ? EACH : 1), j = (at - ENDS) % (EACH ? EACH : 1);
            if (j < ABOVE)
                at = j + (j < HH * ROW ? 0 : H * ROW);
            else {
                const int side = j - ABOVE, row = side / (HW ? 2 * HW : 1), column = side % (HW ? 2 * HW : 1);
                at = (HH + row) * ROW + column + (column < HW ? 0 : W);
            }
            at += (HD + d) * PLANE;
        }
        cuvil_store4(y + ((long)(i / 4 / COUNT) * WHOLE + at) * 16 + i % 4 * 4, cuvil_zero4());
    }
}

/* The halo beside rows FIRST to LAST (which is none of them) of one plane of H x W positions; above the first row of all and
 * below the last, too. */
template <int FIRST, int LAST, int H, int W, int HH, int HW>
CUVIL_FN void cuvil_halo_rows(float *y, int thread, int threads)
{
    constexpr int ROW = W + 2 * HW, SIDES = 2 * HW * (LAST - FIRST), ABOVE = FIRST == 0 ? HH * ROW : 0;
    constexpr int BELOW = LAST == H ? HH * ROW : 0, COUNT = SIDES + ABOVE + BELOW;
    for (int i = thread; i < COUNT * 4; i += threads) {
        int at = i / 4;
        if (at < SIDES) {
            const int row = at / (HW ? 2 * HW : 1), column = at % (HW ? 2 * HW : 1);
            at = (HH + FIRST + row) * ROW + column + (column < HW ? 0 : W);
        } else {
            at -= SIDES;
            if (at >= ABOVE) at += (HH + H) * ROW - ABOVE;
        }
        cuvil_store4(y + at * 16 + i % 4 * 4, cuvil_zero4());
    }
}

#endif

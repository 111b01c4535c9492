/* Compiled with the flags of the generated code, so that what is tested here is what the kernels use. */
#include "cuvil_runtime.h"

#include <string.h>

#include "cuvil_fpenv.h"

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

/* volatile: the processor must compute these, not the compiler */
static volatile float one = 1.0f, half = 0.5f, three_quarters_ulp = 0x1.8p-24f, half_ulp = 0x1p-24f;
static volatile float smallest_normal = 0x1p-126f, smallest = 0x1p-149f, two_to_23 = 0x1p23f;
static volatile float fma_x = 1126341.0f * 0x1p-75f, fma_y = 15618881.0f * 0x1p-119f, fma_z = 0x1p-127f;

const char *cuvil_fp_problem(const char **check) {
    const char *problem = NULL;
    cuvil_fpenv saved = cuvil_fpenv_enter();
    if (bits_of(one + half_ulp) != 0x3F800000u || bits_of(one + three_quarters_ulp) != 0x3F800001u ||
        bits_of(-one - three_quarters_ulp) != 0xBF800001u) {
        *check = "fp-rounding";
        problem = "additions are not rounded to nearest even";
    } else if (bits_of(smallest_normal * half) != 0x00400000u || bits_of(smallest * two_to_23) != 0x00800000u) {
        *check = "fp-subnormals";
        problem = "subnormal numbers are flushed to zero";
    } else if (bits_of(__builtin_fmaf(fma_x, fma_y, fma_z)) != 0x00400001u) {
        /* a fused multiply-add through binary64 rounds twice and gives 0x00400000 */
        *check = "fp-fma";
        problem = "the fused multiply-add rounds twice";
    }
    cuvil_fpenv_leave(saved);
    return problem;
}

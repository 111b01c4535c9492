/* Forgetting: what an engine held of its inputs and results is overwritten with zeros (docs/erasure.md).
 *
 * Part of every engine, program or library. The barrier behind each wipe tells the compiler that the memory is read, so
 * that it can not leave the stores out.
 */
#include "cuvil_engine.h"

#include <string.h>

static struct {
    void *area;
    size_t size;
} areas[CUVIL_ERASE_AREAS];
static int area_count;

void cuvil_wipe(void *area, size_t size) {
    if (!area || !size) return;
    memset(area, 0, size);
    __asm__ volatile("" : : "r"(area) : "memory");
}

int cuvil_erase_register(void *area, size_t size) {
    int at = 0;
    while (at < area_count && areas[at].area != area) at++;
    if (at == CUVIL_ERASE_AREAS) return -1;
    areas[at].area = area;
    areas[at].size = size;
    if (at == area_count) area_count++;
    return 0;
}

/* AVX-512 with its state saved by the operating system: CPUID (7, 0).EBX bit 16, XCR0 bits 1, 2, 5, 6, 7. */
#if defined(__x86_64__)
#include <cpuid.h>

static int vector_registers(void) { /* 0: XMM only, 1: YMM, 2: ZMM */
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 27) || !(c & 1u << 28)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6u) != 6u) return 0;
    if ((low & 0xE6u) != 0xE6u || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & 1u << 16)) return 1;
    return 2;
}

#define CLEAR_ZMM(n) "vpxorq %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n"
#define CLEAR_XMM(n) "pxor %%xmm" #n ", %%xmm" #n "\n"

void cuvil_wipe_registers(void) {
    const int wide = vector_registers();
    if (wide == 2)
        __asm__ volatile(CLEAR_ZMM(16) CLEAR_ZMM(17) CLEAR_ZMM(18) CLEAR_ZMM(19) CLEAR_ZMM(20) CLEAR_ZMM(21) CLEAR_ZMM(22)
                         CLEAR_ZMM(23) CLEAR_ZMM(24) CLEAR_ZMM(25) CLEAR_ZMM(26) CLEAR_ZMM(27) CLEAR_ZMM(28) CLEAR_ZMM(29)
                         CLEAR_ZMM(30) CLEAR_ZMM(31) ::: "memory");
    if (wide >= 1) /* the lower sixteen, to their full width */
        __asm__ volatile("vzeroall" ::: "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                         "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    else
        __asm__ volatile(CLEAR_XMM(0) CLEAR_XMM(1) CLEAR_XMM(2) CLEAR_XMM(3) CLEAR_XMM(4) CLEAR_XMM(5) CLEAR_XMM(6) CLEAR_XMM(7)
                         CLEAR_XMM(8) CLEAR_XMM(9) CLEAR_XMM(10) CLEAR_XMM(11) CLEAR_XMM(12) CLEAR_XMM(13) CLEAR_XMM(14)
                         CLEAR_XMM(15) ::: "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                         "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}
#elif defined(__aarch64__)
#define CLEAR_V(n) "movi v" #n ".2d, #0\n"
#define CLEAR_HIGH(n) "mov v" #n ".d[1], xzr\n"

/* The low halves of v8..v15 belong to the caller and are its own values (AAPCS64, 6.1.2). */
void cuvil_wipe_registers(void) {
    __asm__ volatile(CLEAR_V(0) CLEAR_V(1) CLEAR_V(2) CLEAR_V(3) CLEAR_V(4) CLEAR_V(5) CLEAR_V(6) CLEAR_V(7) CLEAR_V(16)
                     CLEAR_HIGH(8) CLEAR_HIGH(9) CLEAR_HIGH(10) CLEAR_HIGH(11) CLEAR_HIGH(12) CLEAR_HIGH(13)
                     CLEAR_HIGH(14) CLEAR_HIGH(15) CLEAR_V(17) CLEAR_V(18) CLEAR_V(19) CLEAR_V(20) CLEAR_V(21) CLEAR_V(22) CLEAR_V(23) CLEAR_V(24)
                     CLEAR_V(25) CLEAR_V(26) CLEAR_V(27) CLEAR_V(28) CLEAR_V(29) CLEAR_V(30) CLEAR_V(31) ::: "memory", "v0",
                     "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24",
                     "v25", "v26", "v27", "v28", "v29", "v30", "v31");
}
#else
void cuvil_wipe_registers(void) {}
#endif

static void wipe_tensors(const cuvil_tensor *tensors, int count, void *const *buffers) {
    for (int i = 0; i < count; i++) cuvil_wipe(buffers[i], (size_t)tensors[i].count * (size_t)cuvil_element_bytes(tensors[i].dtype));
}

/* Sizes tell how large a patient's image was. */
static void largest_sizes(const cuvil_tensor *tensors, int count) {
    for (int i = 0; i < count; i++)
        for (int axis = 0; tensors[i].extents && axis < tensors[i].rank; axis++) tensors[i].extents[axis] = tensors[i].shape[axis];
}

static void wipe_engine(const cuvil_engine *engine) {
    wipe_tensors(engine->inputs, engine->input_count, engine->input_buffers);
    wipe_tensors(engine->outputs, engine->output_count, engine->output_buffers);
    cuvil_wipe(engine->arena, engine->arena_bytes);
    cuvil_wipe(engine->scratch, (size_t)engine->max_threads * (size_t)engine->scratch_floats * sizeof(float));
    largest_sizes(engine->inputs, engine->input_count);
    largest_sizes(engine->outputs, engine->output_count);
    if (engine->bind) (void)engine->bind();
    if (engine->clinical) engine->clinical->erase();
    if (engine->device) engine->device->erase();
    if (engine->refusal) *engine->refusal = NULL;
    if (engine->mismatch) *engine->mismatch = NULL;
}

/* Its frame lies where the kernels' frames lay. */
static __attribute__((noinline)) void wipe_stack(void) {
    unsigned char frame[CUVIL_ERASE_STACK];
    cuvil_wipe(frame, sizeof frame);
}

void cuvil_erase(void) {
    for (int i = 0; i < area_count; i++) cuvil_wipe(areas[i].area, areas[i].size);
    wipe_engine(&cuvil_engine_instance);
    if (cuvil_engine_instance.checker) wipe_engine(cuvil_engine_instance.checker);
    wipe_stack();
    cuvil_wipe_registers();
}

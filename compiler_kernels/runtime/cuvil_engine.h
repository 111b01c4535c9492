/* The interface between a generated engine.c and the runtime, and between an engine and a host program that links it.
 *
 * A generated engine defines one constant, cuvil_engine_instance, and owns all memory it uses: inputs, outputs, arena
 * and weights are static, 64-byte aligned and never allocated. It is therefore not re-entrant: one instance, one caller.
 */
#ifndef CUVIL_ENGINE_H
#define CUVIL_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __FAST_MATH__
#error "Cuvil engines are defined bit by bit: compile them without -ffast-math, -Ofast and -funsafe-math-optimizations"
#endif

/* Element types, little-endian; the numbers are ONNX's TensorProto.DataType. bool is one byte, 0 or 1. */
#define CUVIL_FLOAT32 1
#define CUVIL_UINT8 2
#define CUVIL_INT8 3
#define CUVIL_UINT16 4
#define CUVIL_INT16 5
#define CUVIL_INT32 6
#define CUVIL_INT64 7
#define CUVIL_BOOL 9
#define CUVIL_FLOAT16 10
#define CUVIL_FLOAT64 11
#define CUVIL_UINT32 12
#define CUVIL_UINT64 13
#define CUVIL_BFLOAT16 16
#define CUVIL_MAX_RANK 8
#define CUVIL_MAX_THREADS 16
#define CUVIL_MAX_TENSORS 64 /* inputs or outputs of one engine; the generator refuses more */

static inline int cuvil_element_bytes(int dtype) {
    switch (dtype) {
    case CUVIL_FLOAT64:
    case CUVIL_INT64:
    case CUVIL_UINT64: return 8;
    case CUVIL_FLOAT32:
    case CUVIL_INT32:
    case CUVIL_UINT32: return 4;
    case CUVIL_FLOAT16:
    case CUVIL_BFLOAT16:
    case CUVIL_INT16:
    case CUVIL_UINT16: return 2;
    default: return 1;
    }
}

/* One input or output. shape[0..rank-1] in elements, C order; count is their product (1 for rank 0).
 * The guards come from the policy: finite != 0 refuses NaN and infinities; has_lo / has_hi refuse values below lo or
 * above hi, and NaN, which lies in no range. */
typedef struct {
    const char *name; /* UTF-8, as in the model */
    int dtype;        /* CUVIL_FLOAT32, ... */
    int rank;
    long shape[CUVIL_MAX_RANK];
    long count;
    int finite;
    int has_lo, has_hi;
    double lo, hi;
    /* NULL where the shape is what it says. Otherwise shape and count are bounds that the buffer has room for, and the
     * actual size of each axis stands here: the value is the buffer's first elements in row-major order. Of an input the
     * host writes it, before bind; of an output bind writes it, or every inference where it depends on the data. */
    int64_t *extents;
    /* NULL, or rank texts where symbols decide the extents: a number, the name of a symbol, or an expression over symbols
     * ("2 * (height // 2)"). For reports. */
    const char *const *axes;
} cuvil_tensor;

/* One symbol that the engine leaves open: multiples of step from lowest to highest, both included. */
typedef struct {
    const char *name;
    int64_t lowest, highest, step;
} cuvil_symbol;

/* One kernel call of an inference: run(begin, end, scratch) computes work items begin..end-1 of items; items are
 * independent, so any division among threads gives the same bits. scratch is private to the calling thread. */
typedef struct {
    void (*run)(int begin, int end, float *scratch);
    int items;
    const char *kernel; /* C function, for reports */
    const char *node;   /* the model's nodes it computes */
} cuvil_step;

/* The steps compiled for one instruction set. prepare_steps run once before the first inference (they transform weights
 * that would make the file large); supported() asks the processor. */
typedef struct {
    const char *isa;
    int (*supported)(void);
    const cuvil_step *steps;
    const cuvil_step *prepare_steps;
} cuvil_variant;

/* A value that an inference holds in its arena, for lockstep: count elements from byte offset on, all of them written in every
 * inference and read for the last time in step. */
typedef struct {
    int step;
    unsigned long offset;
    long count;
    int dtype;
    const char *node; /* the model's nodes that computed it */
} cuvil_held;

/* ---- Clinical logic (docs/clinical.md) ---- */

/* What can keep an engine from deciding. */
enum {
    CUVIL_NO_FAILURE = 0,
    CUVIL_INPUT_GUARD,
    CUVIL_OUTPUT_GUARD,
    CUVIL_SAFETY_GUARD,
    CUVIL_NOT_A_NUMBER,
    CUVIL_REFUSAL,
    CUVIL_LOCKSTEP,
    CUVIL_FAILURES
};

/* How an inference ended: decided; not decided, and the policy's fallback gives the decisions; or no answer at all. */
enum { CUVIL_OPEN = 0, CUVIL_DECIDED, CUVIL_FALLBACK, CUVIL_NO_ANSWER };

/* The answer of the last inference. Entries of truth values: 1, 0, or -1 where nothing was computed. */
typedef struct {
    int status;           /* CUVIL_DECIDED... */
    int failure;          /* CUVIL_NO_FAILURE... */
    int guard;            /* safety guard that does not hold, or -1 */
    const char *sentence; /* what failed, or NULL */
    const char *message;  /* what the fallback tells the user; empty where it tells nothing */
    const double *quantities;
    const unsigned char *quantities_known; /* 1 where the quantity was computed */
    const signed char *decisions;
    const signed char *guards;
} cuvil_answer;

/* One probe that was passed: its number with the outcome in bit 31, a running number (gaps are records lost), and of a
 * decision which conditions were evaluated (bits 0 to 31) and which were true (bits 32 to 63). */
typedef struct {
    uint32_t probe, sequence;
    uint64_t trace;
} cuvil_probe_record;

/* A ring of records, single producer and single consumer: record n is records[n % capacity] and there from the moment head
 * is past n; the consumer moves tail on. Little-endian, as a file too (docs/coverage.md). */
#define CUVIL_RING_MAGIC {'C', 'V', 'R', 'I', 'N', 'G', '1', 0}
enum { CUVIL_RING_RECORDS = 1024, CUVIL_RING_MOST = 1 << 26 };
typedef struct {
    char magic[8];
    uint64_t capacity; /* a power of two */
    uint64_t dropped;
    char config[128]; /* compile-config digest in hex; zeros until an engine has opened the file */
    uint64_t unused[5];
    uint64_t head;
    uint64_t between[7]; /* head and tail in cache lines of their own */
    uint64_t tail;
    uint64_t reserved[7];
} cuvil_ring; /* 320 bytes; capacity records follow */

static inline cuvil_probe_record *cuvil_ring_records(cuvil_ring *ring) {
    return (cuvil_probe_record *)(ring + 1);
}

/* The policy's logic as code. Of one inference a host calls begin; then, with the inputs in their buffers and within
 * their guards, before; infer; and, with the outputs canonical and within their guards, after. Where before or after
 * returns 0 the answer is complete and there is nothing more to do. What the host itself finds wrong (a guard of a tensor,
 * a refusal) it reports with fail, which completes the answer with the fallback of that failure. An answer other than
 * CUVIL_DECIDED means that the outputs are not to be used. */
typedef struct {
    int quantity_count, decision_count, guard_count;
    const char *const *quantities, *const *decisions, *const *guards; /* names */
    const cuvil_answer *answer;
    void (*begin)(void);
    int (*before)(void);
    int (*after)(void);
    void (*fail)(int failure, const char *sentence); /* the sentence is kept by reference */
    void (*erase)(void); /* forgets the answer; cuvil_erase calls it */
    cuvil_ring **ring; /* where probes write to; NULL without probes. A host may set another ring between inferences */
} cuvil_clinical;

/* An engine that computes on a GPU (docs/gpu.md). Its steps are launches, for reports: their run is NULL. */
typedef struct {
    const char *chip;           /* the architecture it is compiled for, such as "sm_90" */
    unsigned long memory_bytes; /* of device memory: weights, arena, inputs, outputs, workspace */
    /* NULL once the device is ready (driver found, weights copied), else the sentence that says why it can not be; infer
     * does it by itself and leaves the sentence as a refusal. */
    const char *(*open)(void);
    void (*erase)(void);           /* zeros over what the device holds of an inference; cuvil_erase calls it */
    double (*time)(void);          /* runs the kernels on what lies in device memory: microseconds by the device's clock */
    const char *(*name)(void);     /* which GPU and driver compute, or that none does; empty before open */
} cuvil_device;

typedef struct cuvil_engine {
    /* model..target: what was compiled; digests are SHA3-512 in hex, with or without the prefix "sha3-512:" */
    const char *model, *model_version, *arithmetic, *frozen_graph, *config_digest, *weights_digest, *target;
    int input_count, output_count;
    const cuvil_tensor *inputs, *outputs;
    const unsigned char *weights; /* weights_size bytes whose digest is weights_digest */
    unsigned long weights_size;
    unsigned long arena_bytes; /* static working memory beside inputs, outputs and weights */
    void *const *input_buffers;
    void *const *output_buffers;
    int variant_count; /* best first; the last one is supported wherever the engine starts */
    const cuvil_variant *variants;
    int step_count, prepare_count;
    float *scratch; /* max_threads areas of scratch_floats each */
    long scratch_floats;
    int max_threads;
    /* One thread, best supported variant. Reads every input buffer, writes every output buffer, leaves the input buffers
     * unchanged. Sets the floating-point environment on entry and restores the caller's on return (cuvil_fpenv.h). No
     * guard runs inside. */
    void (*infer)(void);
    /* NULL where nothing in the engine can refuse. Otherwise *refusal is NULL after an inference, or a sentence: a
     * run-time value (a shape, axes...) is not what the engine was compiled for, and the outputs mean nothing. infer()
     * resets it; a host that runs the steps itself sets it to NULL first. */
    const char **refusal;
    /* NULL where every input has one shape. Otherwise called after the host wrote the extents of the inputs and before
     * infer: NULL, or the sentence that says which size the engine does not take. */
    const char *(*bind)(void);
    const cuvil_symbol *symbols; /* symbol_count of them, for reports; bind checks them */
    int symbol_count;
    void *arena; /* arena_bytes of working memory, or NULL */
    /* NULL without lockstep (docs/lockstep.md). Otherwise the same graph once more, in plain scalar code with weights, arena,
     * scratch and buffers of its own: infer() computes both and compares them. */
    const struct cuvil_engine *checker;
    /* NULL without lockstep. Otherwise *mismatch is NULL after an inference whose two runs agree, or a sentence, and the
     * outputs must not be used. */
    const char **mismatch;
    /* held_count values by the step that reads them last, the same places in the arenas of both; NULL without lockstep. */
    const cuvil_held *held;
    int held_count;
    const cuvil_clinical *clinical; /* NULL where the policy has no decisions and no safety guards */
    const cuvil_device *device;     /* NULL where the processor computes */
} cuvil_engine;

#ifdef __cplusplus
extern "C" {
#endif
extern const cuvil_engine cuvil_engine_instance;

/* ---- cuvil_lockstep.c, for hosts that run the steps themselves, as infer() does: begin, then for every step that of the
 * variant, that of the checker and cuvil_lockstep_step, then end, which writes *mismatch. ---- */
void cuvil_lockstep_begin(const cuvil_engine *engine);
void cuvil_lockstep_step(const cuvil_engine *engine, const cuvil_variant *variant, int step);
void cuvil_lockstep_end(const cuvil_engine *engine, const cuvil_variant *variant);

/* ---- cuvil_erase.c: forgetting (docs/erasure.md) ---- */
/* Overwrites with zeros the arena, scratch, input and output buffers of cuvil_engine_instance and of its checker, every
 * registered area, the caller's stack below this call (CUVIL_ERASE_STACK bytes) and its vector registers. Sizes go back
 * to the largest ones: call bind again before the next inference. Weights and code stay. Not while an inference runs. */
void cuvil_erase(void);
#define CUVIL_ERASE_AREAS 64    /* areas that can be registered */
#define CUVIL_ERASE_STACK 16384 /* a host's thread must have this much stack left */
/* Has size bytes at area wiped by every later cuvil_erase, before the engine's own. Returns 0, or -1 when
 * CUVIL_ERASE_AREAS are registered already. Static memory; an area registered again with the same address is replaced. */
int cuvil_erase_register(void *area, size_t size);
/* The wipe itself: zeros that no compiler leaves out, whether or not the memory is read again. */
void cuvil_wipe(void *area, size_t size);
/* Zeros in every vector register of the calling thread, and in the stack below the caller, bytes deep. */
void cuvil_wipe_registers(void);
#ifdef __cplusplus
}
#endif

#endif

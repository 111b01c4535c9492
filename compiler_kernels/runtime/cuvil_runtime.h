/* Internal interface of the engine's command-line runtime. Include it first: it selects POSIX.1-2008 under -std=c11.
 *
 * The runtime allocates nothing and uses no stdio stream: every buffer is static, files go through open/read/write.
 */
#ifndef CUVIL_RUNTIME_H
#define CUVIL_RUNTIME_H

#define _POSIX_C_SOURCE 200809L

#include <stddef.h>
#include <stdint.h>

#include "cuvil_engine.h"

_Static_assert(sizeof(float) == 4 && sizeof(long) == 8, "the runtime is written for LP64 targets");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, ".npy files are written from memory: little-endian targets only");

/* Exit codes, the same as the cuvil command line's (docs/engine.md). */
enum { CUVIL_DONE = 0, CUVIL_FAILED = 1, CUVIL_USAGE = 2, CUVIL_REFUSED = 3, CUVIL_UNSUPPORTED = 4 };

#define CUVIL_FILE_NAME_MAX 128 /* longest output file name, ".npy" and the final NUL included */
#define CUVIL_BENCH_MAX 100000  /* samples kept by --bench, hence its largest N */

/* ---- cuvil_text.c: standard output, JSON and the one-sentence error ---- */
extern char cuvil_also[256]; /* further members of that object, such as `, "session": {...}`; empty by default */
extern int cuvil_json; /* --json was given: results, and errors too, are one JSON object on standard output */
void cuvil_put(const char *text);
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void cuvil_putf(const char *format, ...); /* one piece of at most 1023 bytes */
void cuvil_put_json_string(const char *text); /* quoted and escaped; bytes that are not UTF-8 become U+FFFD */
void cuvil_put_shape(const long *shape, int rank, const char *open, const char *close);
/* Sends what is put to buffer (of room bytes) instead of standard output, until cuvil_capture_end, which ends it with NUL. */
void cuvil_capture(char *buffer, size_t room);
void cuvil_capture_end(void);
void cuvil_flush(void); /* exit 2 when standard output cannot be written */
/* "(1, 1, 28, 28)" as NumPy prints it, into a buffer of at least 256 bytes; returns the buffer. */
char *cuvil_shape_text(char *buffer, const long *shape, int rank);
/* Writes before and the decimal digits of value, at most 20, without a NUL; returns the number of bytes. */
int cuvil_decimal(char *text, uint64_t value, const char *before);
/* Prints "error: SENTENCE" on standard error (and the JSON object when asked) and exits with code. check is the stable
 * name of a failed verification, or NULL. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
_Noreturn void cuvil_fail(int code, const char *check, const char *format, ...);
/* From now on the JSON object of an error also names the clinical failure and the safety guard (or NULL). */
void cuvil_name_failure(const char *failure, const char *guard);

/* ---- cuvil_exit.c: the only way out (docs/erasure.md) ---- */
/* Call before the first input is read, with main's frame address: from then on every exit wipes the stack below it, the
 * engine's memory, the threads' stacks and the registered areas. */
void cuvil_wipe_at_exit(void *frame);
_Noreturn void cuvil_exit(int code);
/* Registers static buffers of this runtime that hold what was read, computed or said. */
void cuvil_register_text(void);
void cuvil_register_input(void);
void cuvil_register_output(void);
void cuvil_register_guard(void);
void cuvil_register_inference(void);

/* ---- cuvil_sha3.c: SHA3-512 (FIPS 202) ---- */
typedef struct {
    uint64_t state[25];
    size_t fill; /* bytes absorbed into the current block of 72 */
} cuvil_sha3;
void cuvil_sha3_init(cuvil_sha3 *hash);
void cuvil_sha3_update(cuvil_sha3 *hash, const void *data, size_t size);
void cuvil_sha3_hex(cuvil_sha3 *hash, char hex[129]); /* finishes; lower case, NUL-terminated */
void cuvil_keccak(uint64_t state[25]);                /* Keccak-f[1600] */

/* ---- cuvil_digest.c: call cuvil_require_cpu first ---- */
#define CUVIL_SALT_BYTES 32
/* Hex of the digest of an input or output (docs/sessions.md), under a salt of CUVIL_SALT_BYTES or NULL. */
void cuvil_tensor_digest(const cuvil_tensor *tensor, const void *values, const unsigned char *salt, char hex[129]);

/* ---- cuvil_types.c ---- */
typedef struct {
    int dtype;
    size_t size;      /* bytes of one element */
    char kind;        /* 'f' floating point, 'b' bfloat16, 'i' signed, 'u' unsigned or bool */
    const char *name; /* as NumPy names it */
    const char *npy;  /* its .npy type string */
} cuvil_type;
const cuvil_type *cuvil_type_of(const cuvil_tensor *tensor);
/* The tensor as the last inference left it: where it has extents, with those as shape, and their product as count. */
cuvil_tensor cuvil_actual(const cuvil_tensor *tensor);
int cuvil_same_descr(const cuvil_type *type, const char *descr);
double cuvil_value(const cuvil_tensor *tensor, const void *values, long i); /* element i; 64-bit integers round */
/* 0: a number, 1: an infinity, 2: NaN; told from the bits. */
int cuvil_class(const cuvil_tensor *tensor, const void *values, long i);
/* Every NaN becomes the canonical one of its type: 0x7fc00000, 0x7ff8000000000000, 0x7e00, 0x7fc0. */
void cuvil_canonicalise(const cuvil_tensor *tensor, void *values);

/* ---- cuvil_guard.c ---- */
/* NULL, or a sentence (valid until the next call) when a value breaks the tensor's guards; kind is "input" or "output". */
const char *cuvil_guard(const char *kind, const cuvil_tensor *tensor, const void *values);

/* ---- cuvil_output.c ---- */
/* The file names of all outputs, unique and safe; see docs/engine.md for the rule. Call once before use. */
void cuvil_output_names(const cuvil_engine *engine);
extern char cuvil_output_file[CUVIL_MAX_TENSORS][CUVIL_FILE_NAME_MAX];
extern char cuvil_output_digest[CUVIL_MAX_TENSORS][129]; /* SHA3-512 of each file written */
#define CUVIL_ANSWER_FILE "decisions.json"
/* Writes all files below directory, or none: exit 2 in one sentence and nothing left behind. outputs: whether the outputs
 * are among them. answer: NULL, or what makes the text of decisions.json, called once the digests of the outputs are known. */
void cuvil_write_files(const cuvil_engine *engine, const char *directory, int outputs, const char *(*answer)(void));

/* ---- cuvil_inference.c: one inference with the policy's guards and clinical logic (docs/clinical.md) ---- */
/* From the files of all inputs to the files of all outputs below directory. network_only: without clinical logic and guards of outputs. */
void cuvil_run(const cuvil_engine *engine, const char *const *input_path, const char *directory, int network_only);
/* Reads inputs (those with a path) and tells the engine their sizes. */
void cuvil_load_inputs(const cuvil_engine *engine, const char *const *input_path);
const char *cuvil_guard_inputs(const cuvil_engine *engine, const char *const *input_path); /* NULL or a sentence */
/* The decisions on given outputs; directory may be NULL. */
void cuvil_decide(const cuvil_engine *engine, const char *const *input_path, const char *const *output_path,
                  const char *directory);
enum {
    CUVIL_PRETEND_REFUSAL = 1,
    CUVIL_PRETEND_LOCKSTEP = 2,
    CUVIL_PRETEND_INPUT_GUARD = 4,
    CUVIL_PRETEND_OUTPUT_GUARD = 8
};
/* What cuvil_decide does between reading and writing, with the failures that are pretended. */
void cuvil_decide_given(const cuvil_engine *engine, unsigned pretended);

/* ---- cuvil_answer.c: the answer as text ---- */
extern const char *const cuvil_failure_name[CUVIL_FAILURES];
enum { CUVIL_FROM_INFERENCE, CUVIL_FROM_GIVEN };
/* The JSON object in one line; files: whether the outputs were written, with their digests. */
void cuvil_put_answer(const cuvil_engine *engine, int source, int files);
void cuvil_put_answer_lines(const cuvil_engine *engine); /* for people */
_Noreturn void cuvil_refuse_answer(const cuvil_engine *engine); /* exit 3 with the failure's sentence */

/* ---- cuvil_vectors.c ---- */
/* Decides on every vector of a file (docs/clinical.md) and prints one JSON object a line. */
void cuvil_decide_vectors(const cuvil_engine *engine, const char *path);
void cuvil_cover_open(const cuvil_engine *engine, const char *path); /* probes write to the ring in this file from now on */

/* ---- cuvil_cpu.c and cuvil_isa.c ---- */
#define CUVIL_MISSING_MAX 160
/* Writes the names of what this processor lacks of what the generated code was compiled for; empty when nothing. */
void cuvil_missing_features(char list[CUVIL_MISSING_MAX]);
void cuvil_require_cpu(void); /* exit 4 when something is missing */
/* cuvil_isa.c is compiled with the flags of the generated code: call only after cuvil_require_cpu. */
const char *cuvil_fp_problem(const char **check); /* NULL, or a sentence with *check set to the test's name */

/* ---- cuvil_threads.c: call cuvil_require_cpu first, it calls generated code ---- */
int cuvil_most_threads(const cuvil_engine *engine);
/* The variant called isa, or the best supported one for NULL. Exit 2 when the engine has no such variant, 4 when this
 * processor does not support it. */
const cuvil_variant *cuvil_choose_variant(const cuvil_engine *engine, const char *isa);
/* Chooses the variant and starts threads - 1 workers (1 <= threads <= cuvil_most_threads), before any input is read. Call once. */
void cuvil_start(const cuvil_engine *engine, int threads, const char *isa);
void cuvil_infer(void); /* one inference by all threads, the prepare steps before the first one */
/* NULL when the last inference's two runs agreed or the engine has no lockstep, else the sentence that says what differs;
 * the outputs must not be used then (docs/lockstep.md). */
const char *cuvil_lockstep_problem(void);
void cuvil_erase_threads(void); /* every thread of the team wipes its own stack and vector registers */
const cuvil_variant *cuvil_variant_in_use(void);
int cuvil_threads_in_use(void);

/* ---- cuvil_info.c and cuvil_bench.c ---- */
/* isa: the value of --isa, or NULL */
void cuvil_print_version(const cuvil_engine *engine, const char *isa);
void cuvil_self_test(const cuvil_engine *engine); /* exit 1 on the first failed check */
void cuvil_bench(const cuvil_engine *engine, long runs);

#endif

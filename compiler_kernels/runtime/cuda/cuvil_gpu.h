/* The launches of a GPU engine and the library that makes them (docs/gpu.md). Memory on the device is one block, whose
 * layout the generator has decided: weights, then what belongs to an inference, by offset. Inputs, outputs and workspace lie
 * among the values of the arena, each for as long as it is needed. */
#ifndef CUVIL_GPU_H
#define CUVIL_GPU_H

#include "cuvil_engine.h"

/* One kernel launch. Its arguments are count pointers, offsets[first...] into the block. dependent: may start while the
 * launch before it still runs (programmatic dependent launch). */
typedef struct {
    const char *kernel, *node;
    unsigned grid[3], block, shared_bytes, cluster, dependent;
    unsigned first, count;
} cuvil_launch;

/* Code for chips of compute capability at least major.minor and, where most_major is not 0, of no higher major number than
 * that. text: PTX, which the driver compiles. */
typedef struct {
    int major, minor, most_major, text;
    const void *image;
} cuvil_image;

typedef struct {
    void *host;
    unsigned long offset, bytes;
} cuvil_transfer;

typedef struct {
    const char *chip; /* "sm_90" */
    const cuvil_image *images;
    int image_count;
    const cuvil_launch *launches;
    int launch_count;
    const unsigned long *offsets;
    const unsigned char *weights;
    unsigned long weights_bytes; /* at offset 0 */
    unsigned long bytes;         /* of the whole block */
    unsigned long held_offset;   /* from here on the block holds what belongs to an inference */
    const cuvil_transfer *inputs, *outputs;
    int input_count, output_count;
    const char **refusal; /* the engine's: a sentence when the GPU failed */
} cuvil_gpu_program;

/* Loads the driver, allocates the block, copies the weights, captures the launches in a graph. NULL, or the sentence that
 * says why this machine can not; later calls give the same answer. */
const char *cuvil_gpu_open(const cuvil_gpu_program *program);
void cuvil_gpu_infer(const cuvil_gpu_program *program);
/* Zeros over everything the block holds of an inference. Does nothing on a closed device. */
void cuvil_gpu_erase(const cuvil_gpu_program *program);
/* Runs the kernels once more on the host's inputs: microseconds by the device's own events, negative on failure. */
double cuvil_gpu_time(const cuvil_gpu_program *program);
/* "NVIDIA H200, driver API 13.0, compute capability 9.0, sm_90 code"; empty before open. */
const char *cuvil_gpu_name(void);

#endif

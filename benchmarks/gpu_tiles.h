/* What the files of a sweep share (benchmarks/gpu_tiles.py). */
#include <stddef.h>
#include <stdint.h>
struct Kernel {
    int number; /* of the case; -1 ends a table */
    const char *tile;
    const void *function;
    int grid, block, shared;
    long workspace;
    int tickets, dependent;
};
struct Case {
    const char *key, *name;
    int buffers; /* operands and result */
    long bytes[8];
    void (*reference)(const float **, float *, int, int);
    int items;
    long scratch;
    long taps; /* groups of 16 outputs x 8 channels where kernels read 3x3 taps and the reference their transforms; else 0 */
    int units; /* of them, those of 16 outputs */
};

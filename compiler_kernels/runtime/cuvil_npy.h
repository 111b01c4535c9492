/* NumPy's .npy format, versions 1.0, 2.0 and 3.0 (numpy.lib.format): reading one array, writing its header. */
#ifndef CUVIL_NPY_H
#define CUVIL_NPY_H

#include "cuvil_runtime.h"

#define CUVIL_NPY_MAX_RANK 64
#define CUVIL_NPY_HEADER_MAX 65536

typedef struct {
    char descr[48]; /* the type string, for example "<f4"; "[...]" for a structured type */
    int fortran_order;
    int rank;
    long shape[CUVIL_NPY_MAX_RANK];
} cuvil_npy_header;

/* Parses the dictionary after the length field. Returns NULL, or what is wrong with it as a noun phrase. */
const char *cuvil_npy_parse(const char *text, size_t size, cuvil_npy_header *header);

/* Reads the array at path into values (tensor->count elements). Exit 2 with the file, what it holds, what is wanted and
 * the remedy unless it is exactly the tensor's dtype, order, shape and size. */
void cuvil_npy_load(const char *kind, const char *path, const cuvil_tensor *tensor, void *values);

/* The bytes numpy.save (2.x) puts before the data of this tensor; buffer of 512 bytes; returns their number. */
size_t cuvil_npy_write_header(unsigned char *buffer, const cuvil_tensor *tensor);

#endif

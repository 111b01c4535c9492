/* Reading one input array from a file (or a pipe) straight into the engine's buffer. */
#include "cuvil_npy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char header_text[CUVIL_NPY_HEADER_MAX];
static cuvil_npy_header parsed;

void cuvil_register_input(void) {
    cuvil_erase_register(header_text, sizeof header_text);
    cuvil_erase_register(&parsed, sizeof parsed);
}
static const char *role = "input"; /* of the tensor that is read */

/* Reads up to size bytes; fewer only at the end of the file. */
static size_t read_up_to(int descriptor, const char *path, void *data, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t got = read(descriptor, (char *)data + done, size - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) cuvil_fail(CUVIL_USAGE, NULL, "cannot read the %s file %s: %s", role, path, strerror(errno));
        if (got == 0) break;
        done += (size_t)got;
    }
    return done;
}

/* "float64" for "<f8", "big-endian float32" for ">f4". */
static void describe_dtype(char text[64], const char *descr) {
    static const char *const kinds[][2] = {{"f", "float"}, {"i", "int"}, {"u", "uint"}, {"c", "complex"}};
    const char *order = descr[0] == '>' && strcmp(descr + 2, "1") ? "big-endian " : "";
    int bytes = 0;
    for (const char *at = descr[0] ? descr + 2 : descr; descr[0] && descr[1] && *at >= '0' && *at <= '9'; at++)
        if (bytes < 1000) bytes = bytes * 10 + (*at - '0');
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (descr[0] && descr[1] == kinds[i][0][0] && bytes > 0) {
            snprintf(text, 64, "%s%s%d", order, kinds[i][1], 8 * bytes);
            return;
        }
    }
    snprintf(text, 64, "%s", !strcmp(descr, "|b1") ? "bool" : descr[0] == '[' ? "a structured type" : "another type");
}

static void check_dtype(const char *path, const cuvil_tensor *tensor, const char *descr) {
    char kind[64];
    const cuvil_type *type = cuvil_type_of(tensor);
    if (cuvil_same_descr(type, descr)) return;
    describe_dtype(kind, descr);
    cuvil_fail(CUVIL_USAGE, NULL,
               "%s holds %s ('%s') but %s '%s' is %s ('%s'): convert it with numpy.save(path, "
               "numpy.load(path).astype('%s'))",
               path, kind, descr, role, tensor->name, type->name, type->npy, type->npy);
}

static void check_shape(const char *path, const cuvil_tensor *tensor, const cuvil_npy_header *header) {
    char held[256], wanted[256];
    long count = 1;
    int same = header->rank == tensor->rank;
    for (int axis = 0; same && axis < header->rank; axis++)
        same = tensor->extents ? header->shape[axis] >= (role[0] == 'i') && header->shape[axis] <= tensor->shape[axis]
                               : header->shape[axis] == tensor->shape[axis];
    for (int axis = 0; same && tensor->extents && axis < header->rank; axis++) tensor->extents[axis] = header->shape[axis];
    if (same) return;
    if (tensor->extents) {
        cuvil_shape_text(held, header->shape, header->rank);
        cuvil_shape_text(wanted, tensor->shape, tensor->rank);
        cuvil_fail(CUVIL_USAGE, NULL, "%s has shape %s but %s '%s' takes at most %s: resample or crop the array", path, held,
                   role, tensor->name, wanted);
    }
    cuvil_shape_text(held, header->shape, header->rank);
    cuvil_shape_text(wanted, tensor->shape, tensor->rank);
    for (int axis = 0; axis < header->rank; axis++)
        if (__builtin_mul_overflow(count, header->shape[axis], &count)) count = -1;
    if (count == tensor->count)
        cuvil_fail(CUVIL_USAGE, NULL,
                   "%s has shape %s but %s '%s' is compiled for %s: if the order of the elements is the same, "
                   "numpy.save(path, numpy.load(path).reshape(%s)) fixes it",
                   path, held, role, tensor->name, wanted, wanted);
    cuvil_fail(CUVIL_USAGE, NULL,
               "%s has shape %s but %s '%s' is compiled for %s: resample or crop the array, or compile an engine for "
               "that shape with cuvil build --input-shape",
               path, held, role, tensor->name, wanted);
}

static int read_header(const char *path, const cuvil_tensor *tensor) {
    unsigned char lead[12];
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (descriptor < 0)
        cuvil_fail(CUVIL_USAGE, NULL, "cannot open the file of %s '%s', %s: %s", role, tensor->name, path, strerror(errno));
    size_t got = read_up_to(descriptor, path, lead, 10);
    if (got >= 2 && !memcmp(lead, "PK", 2))
        cuvil_fail(CUVIL_USAGE, NULL, "%s is a .npz archive, not a .npy file: save one array with numpy.save(path, array)",
                   path);
    if (got < 10 || memcmp(lead, "\x93NUMPY", 6) != 0)
        cuvil_fail(CUVIL_USAGE, NULL, "%s is not a .npy file (%s): write it with numpy.save(path, array)", path,
                   got == 0 ? "it is empty" : got < 10 ? "it ends after a few bytes" : "its first bytes are not \\x93NUMPY");
    if (lead[6] < 1 || lead[6] > 3 || lead[7] != 0)
        cuvil_fail(CUVIL_USAGE, NULL, "%s is .npy format version %d.%d and this engine reads 1.0, 2.0 and 3.0: write it again "
                   "with numpy.save(path, array)", path, lead[6], lead[7]);
    size_t size = (size_t)lead[8] | (size_t)lead[9] << 8;
    if (lead[6] > 1) {
        if (read_up_to(descriptor, path, lead + 10, 2) != 2) size = CUVIL_NPY_HEADER_MAX;
        size |= (size_t)lead[10] << 16 | (size_t)lead[11] << 24;
    }
    if (size > sizeof header_text || read_up_to(descriptor, path, header_text, size) != size)
        cuvil_fail(CUVIL_USAGE, NULL, "%s is truncated or corrupt: its header is announced as %lu bytes, which are not there "
                   "or are more than 65536; write it again with numpy.save(path, array)", path, (unsigned long)size);
    const char *problem = cuvil_npy_parse(header_text, size, &parsed);
    if (problem)
        cuvil_fail(CUVIL_USAGE, NULL, "%s is corrupt: its .npy header has %s; write it again with numpy.save(path, array)",
                   path, problem);
    check_dtype(path, tensor, parsed.descr);
    check_shape(path, tensor, &parsed);
    if (parsed.fortran_order)
        cuvil_fail(CUVIL_USAGE, NULL, "%s is in Fortran order but %s '%s' is read in C order: convert it with "
                   "numpy.save(path, numpy.ascontiguousarray(numpy.load(path)))", path, role, tensor->name);
    return descriptor;
}

void cuvil_npy_load(const char *kind, const char *path, const cuvil_tensor *tensor, void *values) {
    role = kind;
    char extra;
    int descriptor = read_header(path, tensor);
    size_t size = (size_t)cuvil_actual(tensor).count * cuvil_type_of(tensor)->size;
    size_t got = read_up_to(descriptor, path, values, size);
    if (got != size)
        cuvil_fail(CUVIL_USAGE, NULL, "%s is truncated: it holds %lu of the %lu data bytes of %s '%s'; write it again with "
                   "numpy.save(path, array)", path, (unsigned long)got, (unsigned long)size, role, tensor->name);
    if (read_up_to(descriptor, path, &extra, 1) != 0)
        cuvil_fail(CUVIL_USAGE, NULL, "%s has bytes after the array of %s '%s': one file holds one array; write it again "
                   "with numpy.save(path, array)", path, role, tensor->name);
    close(descriptor);
}

/* Deciding on many given inputs and outputs at once: `--decide --vectors FILE`.
 *
 * The file is the magic "CVEC1\0\0\0", a count (uint64), and for every vector all inputs, all outputs, each at its full
 * compiled shape in C order and the engine's element type, and flags (uint32, CUVIL_PRETEND_...)
 * of failures that are pretended. Little-endian, without padding. */
#include "cuvil_runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const char remedy[] = "write it as docs/clinical.md says";

static void read_all(int descriptor, const char *path, void *data, size_t size) {
    size_t done = 0;
    while (done < size) {
        const ssize_t got = read(descriptor, (char *)data + done, size - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) cuvil_fail(CUVIL_USAGE, NULL, "cannot read the vectors %s: %s", path, strerror(errno));
        if (got == 0) cuvil_fail(CUVIL_USAGE, NULL, "the vectors %s are truncated: %s", path, remedy);
        done += (size_t)got;
    }
}

static void check_static(const cuvil_tensor *tensors, int count) {
    for (int i = 0; i < count; i++)
        if (tensors[i].extents)
            cuvil_fail(CUVIL_USAGE, NULL, "the size of '%s' varies, and --vectors is for fixed shapes: use --input and --output",
                       tensors[i].name);
}

static void read_tensors(int descriptor, const char *path, const cuvil_tensor *tensors, int count, void *const *buffers) {
    for (int i = 0; i < count; i++)
        read_all(descriptor, path, buffers[i], (size_t)tensors[i].count * cuvil_type_of(&tensors[i])->size);
}

void cuvil_decide_vectors(const cuvil_engine *engine, const char *path) {
    struct {
        char magic[8];
        uint64_t count;
    } head;
    uint32_t flags;
    char extra;
    check_static(engine->inputs, engine->input_count);
    check_static(engine->outputs, engine->output_count);
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (descriptor < 0) cuvil_fail(CUVIL_USAGE, NULL, "cannot open the vectors %s: %s", path, strerror(errno));
    read_all(descriptor, path, &head, sizeof head);
    if (memcmp(head.magic, "CVEC1\0\0\0", 8) != 0)
        cuvil_fail(CUVIL_USAGE, NULL, "%s holds no vectors (its first bytes are not CVEC1): %s", path, remedy);
    for (uint64_t vector = 0; vector < head.count; vector++) {
        read_tensors(descriptor, path, engine->inputs, engine->input_count, engine->input_buffers);
        read_tensors(descriptor, path, engine->outputs, engine->output_count, engine->output_buffers);
        read_all(descriptor, path, &flags, sizeof flags);
        cuvil_decide_given(engine, flags);
        cuvil_put_answer(engine, CUVIL_FROM_GIVEN, 0);
        cuvil_put("\n");
    }
    if (read(descriptor, &extra, 1) != 0)
        cuvil_fail(CUVIL_USAGE, NULL, "the vectors %s have bytes after the last one: %s", path, remedy);
    close(descriptor);
}

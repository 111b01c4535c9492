/* `--coverage FILE`: the ring of probe records as a file in shared memory (docs/coverage.md).
 *
 * A file that holds a ring already is used as it is, so that a host chooses its size and reads while the engine writes; the ring
 * goes on where it was. A file that is absent or empty becomes a ring of CUVIL_RING_RECORDS.
 */
#include "cuvil_runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const cuvil_ring fresh = {CUVIL_RING_MAGIC, CUVIL_RING_RECORDS, 0, {0}, {0}, 0, {0}, 0, {0}};

static _Noreturn void unusable(const char *path, const char *words) {
    cuvil_fail(CUVIL_USAGE, NULL, "the coverage file %s %s: give a path that is free, or remove the file", path, words);
}

/* The problem with a ring found in a file of size bytes, or NULL. */
static const char *problem_of(const cuvil_ring *ring, size_t size, const char *config) {
    if (memcmp(ring->magic, fresh.magic, sizeof ring->magic) != 0) return "is no ring of probe records";
    if (ring->capacity < 1 || (ring->capacity & (ring->capacity - 1)) || ring->capacity > CUVIL_RING_MOST)
        return "has a capacity that is no power of two";
    if (size != sizeof *ring + ring->capacity * sizeof(cuvil_probe_record)) return "is truncated";
    if (ring->head - ring->tail > ring->capacity) return "is damaged";
    if (ring->config[0] && memcmp(ring->config, config, sizeof ring->config) != 0) return "belongs to another engine";
    return NULL;
}

void cuvil_cover_open(const cuvil_engine *engine, const char *path) {
    const char *config = strchr(engine->config_digest, ':');
    struct stat status;
    char digest[sizeof fresh.config] = {0};
    config = config ? config + 1 : engine->config_digest;
    memcpy(digest, config, strlen(config) < sizeof digest ? strlen(config) : sizeof digest);
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
    if (file < 0 || fstat(file, &status) < 0)
        cuvil_fail(CUVIL_USAGE, NULL, "cannot open the coverage file %s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode)) unusable(path, "is no regular file");
    size_t size = (size_t)status.st_size;
    const int empty = size == 0;
    if (empty) size = sizeof fresh + CUVIL_RING_RECORDS * sizeof(cuvil_probe_record);
    if (size < sizeof fresh) unusable(path, "is truncated");
    if (empty && ftruncate(file, (off_t)size) < 0)
        cuvil_fail(CUVIL_USAGE, NULL, "cannot make the coverage file %s as large as its ring: %s", path, strerror(errno));
    cuvil_ring *ring = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (ring == MAP_FAILED) cuvil_fail(CUVIL_USAGE, NULL, "cannot map the coverage file %s: %s", path, strerror(errno));
    close(file);
    if (empty) memcpy(ring, &fresh, sizeof fresh);
    const char *problem = problem_of(ring, size, digest);
    if (problem) unusable(path, problem);
    memcpy(ring->config, digest, sizeof digest);
    *engine->clinical->ring = ring;
}

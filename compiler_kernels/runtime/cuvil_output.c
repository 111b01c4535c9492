/* Writing all outputs or none: temporaries in the target directory, fsync, then the renames. */
#include "cuvil_npy.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char cuvil_output_file[CUVIL_MAX_TENSORS][CUVIL_FILE_NAME_MAX];
char cuvil_output_digest[CUVIL_MAX_TENSORS][129];

/* The files of one call: the outputs, and the answer after them. */
static char temporary[CUVIL_MAX_TENSORS + 1][CUVIL_FILE_NAME_MAX + 32];
static const char *final_name[CUVIL_MAX_TENSORS + 1];
static int directory_fd = -1, directory_created = 0;
static const char *directory_path;
static int made = 0, renamed = 0; /* temporaries that exist or existed; of those, how many have their final name */

static unsigned char header[512];

void cuvil_register_output(void) {
    cuvil_erase_register(header, sizeof header);
    cuvil_erase_register(cuvil_output_digest, sizeof cuvil_output_digest);
}

static int name_taken(int before, const char *name) {
    for (int i = 0; i < before; i++)
        if (!strcmp(cuvil_output_file[i], name)) return 1;
    return 0;
}

void cuvil_output_names(const cuvil_engine *engine) {
    for (int i = 0; i < engine->output_count; i++) {
        char stem[CUVIL_FILE_NAME_MAX], *name = cuvil_output_file[i];
        size_t size = 0;
        for (const char *at = engine->outputs[i].name; *at && size < 100; at++) {
            int safe = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9') || *at == '_' ||
                       (size > 0 && (*at == '.' || *at == '-'));
            stem[size++] = safe ? *at : '_';
        }
        stem[size] = 0;
        if (size == 0) strcpy(stem, "output");
        snprintf(name, CUVIL_FILE_NAME_MAX, "%.100s.npy", stem);
        for (int suffix = 2; name_taken(i, name); suffix++) snprintf(name, CUVIL_FILE_NAME_MAX, "%.100s-%d.npy", stem, suffix);
    }
}

static _Noreturn void give_up(const char *what, const char *file, int problem) {
    for (int i = 0; i < made; i++) unlinkat(directory_fd, i < renamed ? final_name[i] : temporary[i], 0);
    if (directory_created) rmdir(directory_path);
    cuvil_fail(CUVIL_USAGE, NULL, "cannot %s %s%s%s: %s; give --output-dir a directory that can be written", what,
               directory_path, file[0] ? "/" : "", file, strerror(problem));
}

static void open_directory(void) {
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    directory_fd = open(directory_path, flags);
    if (directory_fd < 0 && errno == ENOENT) {
        if (mkdir(directory_path, 0777)) give_up("create the output directory", "", errno);
        directory_created = 1;
        directory_fd = open(directory_path, flags);
    }
    if (directory_fd < 0) give_up("open the output directory", "", errno);
}

static int write_piece(int file, cuvil_sha3 *hash, const void *data, size_t size) {
    const char *at = data;
    cuvil_sha3_update(hash, data, size);
    while (size > 0) {
        ssize_t written = write(file, at, size);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return written < 0 ? errno : EIO;
        at += written;
        size -= (size_t)written;
    }
    return 0;
}

/* Opens temporary number made for the file called name, in the open directory. */
static int open_temporary(const char *name) {
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    struct stat existing;
    char *own = temporary[made];
    if (!fstatat(directory_fd, name, &existing, AT_SYMLINK_NOFOLLOW) && S_ISDIR(existing.st_mode))
        give_up("replace", name, EISDIR);
    snprintf(own, sizeof temporary[0], ".%.127s.%ld.tmp", name, (long)getpid());
    int file = openat(directory_fd, own, flags, 0666);
    if (file < 0 && errno == EEXIST) { /* left by a killed process that had our number */
        unlinkat(directory_fd, own, 0);
        file = openat(directory_fd, own, flags, 0666);
    }
    if (file < 0) give_up("write", name, errno);
    final_name[made++] = name;
    return file;
}

static void close_temporary(int file, const char *name, int problem) {
    if (!problem && fsync(file) && errno != EINVAL && errno != EROFS) problem = errno; /* EINVAL: nothing to sync */
    if (close(file) && !problem) problem = errno;
    if (problem) give_up("write", name, problem);
}

static void write_output(int i, const cuvil_tensor *tensor, const void *values) {
    const int file = open_temporary(cuvil_output_file[i]);
    cuvil_sha3 hash;
    cuvil_sha3_init(&hash);
    int problem = write_piece(file, &hash, header, cuvil_npy_write_header(header, tensor));
    if (!problem) problem = write_piece(file, &hash, values, (size_t)tensor->count * cuvil_type_of(tensor)->size);
    close_temporary(file, cuvil_output_file[i], problem);
    cuvil_sha3_hex(&hash, cuvil_output_digest[i]);
}

static void write_answer(const char *text) {
    const int file = open_temporary(CUVIL_ANSWER_FILE);
    cuvil_sha3 unused;
    cuvil_sha3_init(&unused);
    close_temporary(file, CUVIL_ANSWER_FILE, write_piece(file, &unused, text, strlen(text)));
}

void cuvil_write_files(const cuvil_engine *engine, const char *directory, int outputs, const char *(*answer)(void)) {
    directory_path = directory;
    signal(SIGXFSZ, SIG_IGN); /* a file size limit becomes an error that is cleaned up after */
    open_directory();
    for (int i = 0; i < (outputs ? engine->output_count : 0); i++) {
        const cuvil_tensor actual = cuvil_actual(&engine->outputs[i]);
        write_output(i, &actual, engine->output_buffers[i]);
    }
    if (answer) write_answer(answer()); /* it names the digests of the outputs */
    for (int i = 0; i < made; i++) {
        if (renameat(directory_fd, temporary[i], directory_fd, final_name[i])) give_up("write", final_name[i], errno);
        renamed = i + 1;
    }
    fsync(directory_fd); /* makes the renames durable where the file system can; the data already is */
    close(directory_fd);
}

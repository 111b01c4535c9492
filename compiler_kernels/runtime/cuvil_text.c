/* Standard output through one static buffer, JSON escaping, and the one-sentence error with which everything ends. */
#include "cuvil_runtime.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cuvil_json = 0;
char cuvil_also[256];

static char pending[8192];
static size_t pending_size = 0;
static char *captured; /* where text goes instead of standard output */
static size_t captured_size, captured_room;
static const char *failure_name, *failure_guard;

/* Returns 0, or the errno of the failed write. */
static int write_all(int descriptor, const char *data, size_t size) {
    while (size > 0) {
        ssize_t written = write(descriptor, data, size);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return written < 0 ? errno : EIO;
        data += written;
        size -= (size_t)written;
    }
    return 0;
}

static char message[8192];

void cuvil_register_text(void) {
    cuvil_erase_register(pending, sizeof pending);
    cuvil_erase_register(message, sizeof message);
}

void cuvil_flush(void) {
    size_t size = pending_size;
    pending_size = 0;
    int problem = write_all(STDOUT_FILENO, pending, size);
    if (problem) {
        cuvil_json = 0; /* the object could not be written either */
        cuvil_fail(CUVIL_USAGE, NULL, "cannot write to standard output (%s): redirect it to a writable file",
                   strerror(problem));
    }
}

static void put_bytes(const char *text, size_t size) {
    if (captured) {
        if (size >= captured_room - captured_size) {
            captured = NULL;
            cuvil_fail(CUVIL_USAGE, NULL, "the answer is longer than %lu bytes: give the outputs and decisions shorter names",
                       (unsigned long)captured_room);
        }
        memcpy(captured + captured_size, text, size);
        captured_size += size;
        return;
    }
    for (size_t i = 0; i < size; i++) {
        if (pending_size == sizeof pending) cuvil_flush();
        pending[pending_size++] = text[i];
    }
}

void cuvil_capture(char *buffer, size_t room) {
    captured = buffer;
    captured_size = 0;
    captured_room = room;
}

void cuvil_capture_end(void) {
    captured[captured_size] = 0;
    captured = NULL;
}

void cuvil_name_failure(const char *failure, const char *guard) {
    failure_name = failure;
    failure_guard = guard;
}

void cuvil_put(const char *text) {
    put_bytes(text, strlen(text));
}

void cuvil_putf(const char *format, ...) {
    char piece[1024];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    if (size > 0) put_bytes(piece, (size_t)size < sizeof piece ? (size_t)size : sizeof piece - 1);
}

/* Length of the well-formed UTF-8 sequence at text (Unicode 15, table 3-7), or 0. A NUL ends every sequence. */
static size_t utf8_length(const unsigned char *text) {
    unsigned char lead = text[0];
    if (lead < 0x80) return 1;
    size_t length = lead >= 0xC2 && lead <= 0xDF ? 2 : lead >= 0xE0 && lead <= 0xEF ? 3 : lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
    for (size_t i = 1; i < length; i++) {
        unsigned char low = 0x80, high = 0xBF;
        if (i == 1) {
            if (lead == 0xE0) low = 0xA0;
            if (lead == 0xED) high = 0x9F;
            if (lead == 0xF0) low = 0x90;
            if (lead == 0xF4) high = 0x8F;
        }
        if (text[i] < low || text[i] > high) return 0;
    }
    return length;
}

void cuvil_put_json_string(const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    cuvil_put("\"");
    while (*at) {
        size_t length = utf8_length(at);
        if (length == 0) {
            cuvil_put("\\ufffd");
            length = 1;
        } else if (*at == '"' || *at == '\\') {
            cuvil_putf("\\%c", *at);
        } else if (*at < 0x20 || *at == 0x7F) {
            cuvil_putf("\\u%04x", *at);
        } else {
            put_bytes((const char *)at, length);
        }
        at += length;
    }
    cuvil_put("\"");
}

void cuvil_put_shape(const long *shape, int rank, const char *open, const char *close) {
    cuvil_put(open);
    for (int axis = 0; axis < rank; axis++) cuvil_putf("%s%ld", axis ? ", " : "", shape[axis]);
    cuvil_put(close);
}

int cuvil_decimal(char *text, uint64_t value, const char *before) {
    char digits[20];
    int count = 0, size = (int)strlen(before);
    memcpy(text, before, (size_t)size);
    do digits[count++] = (char)('0' + value % 10);
    while (value /= 10);
    while (count > 0) text[size++] = digits[--count];
    return size;
}

char *cuvil_shape_text(char *buffer, const long *shape, int rank) {
    size_t used = 1;
    buffer[0] = '(';
    for (int axis = 0; axis < rank && used < 220; axis++)
        used += (size_t)snprintf(buffer + used, 32, "%ld%s", shape[axis], axis + 1 < rank ? ", " : rank == 1 ? "," : "");
    memcpy(buffer + used, ")", 2);
    return buffer;
}

_Noreturn void cuvil_fail(int code, const char *check, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    captured = NULL;
    if (cuvil_json) {
        static const char *const kinds[] = {"", "VerificationFailed", "UsageError", "RefusedError", "UnsupportedError"};
        pending_size = 0;
        cuvil_putf("{\"error\": \"%s\", \"exit\": %d, \"message\": ", kinds[code], code);
        cuvil_put_json_string(message);
        if (check) {
            cuvil_put(", \"check\": ");
            cuvil_put_json_string(check);
        }
        if (failure_name) {
            cuvil_putf(", \"failure\": \"%s\", \"guard\": ", failure_name);
            if (failure_guard) cuvil_put_json_string(failure_guard);
            else cuvil_put("null");
        }
        cuvil_put(cuvil_also);
        cuvil_put("}\n");
        cuvil_flush();
    }
    /* a file name may hold a line feed or an escape sequence; the sentence stays one plain line */
    for (char *at = message; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7F) *at = '?';
    write_all(STDERR_FILENO, "error: ", 7);
    write_all(STDERR_FILENO, message, strlen(message));
    write_all(STDERR_FILENO, "\n", 1);
    cuvil_exit(code);
}

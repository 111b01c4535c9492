/* The .npy header: a Python dictionary literal with exactly the keys descr, fortran_order and shape. */
#include "cuvil_npy.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const char *at, *end;
} cursor;

static void skip_space(cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')) c->at++;
}

static int accept(cursor *c, char wanted) {
    skip_space(c);
    if (c->at == c->end || *c->at != wanted) return 0;
    c->at++;
    return 1;
}

static int accept_word(cursor *c, const char *word) {
    size_t size = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->at) < size || memcmp(c->at, word, size) != 0) return 0;
    c->at += size;
    return 1;
}

/* A quoted string without escapes, copied to text (capacity bytes, NUL included). */
static int parse_string(cursor *c, char *text, size_t capacity) {
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return 0;
    char quote = *c->at++;
    size_t size = 0;
    while (c->at < c->end && *c->at != quote) {
        if (*c->at < 0x20 || *c->at > 0x7E || *c->at == '\\' || size + 1 == capacity) return 0;
        text[size++] = *c->at++;
    }
    if (c->at == c->end) return 0;
    c->at++;
    text[size] = 0;
    return 1;
}

/* A non-negative integer below 2^62; Python 2 wrote a trailing L. */
static int parse_integer(cursor *c, long *value) {
    skip_space(c);
    const char *first = c->at;
    *value = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9') {
        if (*value > (1L << 62) / 10 - 1) return 0;
        *value = *value * 10 + (*c->at++ - '0');
    }
    if (c->at == first) return 0;
    if (c->at < c->end && *c->at == 'L') c->at++;
    return 1;
}

static const char *parse_shape(cursor *c, cuvil_npy_header *header) {
    int comma = 0;
    if (!accept(c, '(')) return "a shape that is no tuple";
    header->rank = 0;
    while (!accept(c, ')')) {
        if (header->rank > 0 && !comma) return "a shape that is no tuple of integers";
        if (header->rank == CUVIL_NPY_MAX_RANK) return "a shape of more than 64 dimensions";
        if (!parse_integer(c, &header->shape[header->rank])) return "a shape that is no tuple of sizes";
        header->rank++;
        comma = accept(c, ',');
    }
    if (header->rank == 1 && !comma) return "a shape that is no tuple"; /* (3) is a number in Python */
    return NULL;
}

static const char *parse_descr(cursor *c, cuvil_npy_header *header) {
    skip_space(c);
    if (c->at < c->end && *c->at == '[') { /* fields: never wanted here, so their list is only skipped */
        int depth = 0;
        do {
            depth += (*c->at == '[') - (*c->at == ']');
            c->at++;
        } while (c->at < c->end && depth > 0);
        strcpy(header->descr, "[...]");
        return depth ? "a field list without end" : NULL;
    }
    return parse_string(c, header->descr, sizeof header->descr) ? NULL : "a descr that is no type string";
}

const char *cuvil_npy_parse(const char *text, size_t size, cuvil_npy_header *header) {
    cursor c = {text, text + size};
    int seen_descr = 0, seen_order = 0, seen_shape = 0, comma = 1;
    if (!accept(&c, '{')) return "no dictionary";
    while (!accept(&c, '}')) {
        char key[16];
        const char *problem = NULL;
        if (!comma) return "a dictionary without comma between its entries";
        if (!parse_string(&c, key, sizeof key) || !accept(&c, ':')) return "an unreadable key";
        if (!strcmp(key, "descr") && !seen_descr++) {
            problem = parse_descr(&c, header);
        } else if (!strcmp(key, "fortran_order") && !seen_order++) {
            header->fortran_order = accept_word(&c, "True");
            if (!header->fortran_order && !accept_word(&c, "False")) problem = "a fortran_order that is no boolean";
        } else if (!strcmp(key, "shape") && !seen_shape++) {
            problem = parse_shape(&c, header);
        } else {
            problem = "an unknown or repeated key";
        }
        if (problem) return problem;
        comma = accept(&c, ',');
    }
    skip_space(&c);
    if (c.at != c.end) return "text after the dictionary";
    return seen_descr && seen_order && seen_shape ? NULL : "a missing key (descr, fortran_order and shape are needed)";
}

/* numpy.lib.format leaves room for the first axis to grow to 21 digits, then pads the whole to a multiple of 64. */
size_t cuvil_npy_write_header(unsigned char *buffer, const cuvil_tensor *tensor) {
    char shape[256], first[24];
    size_t size = 10;
    cuvil_shape_text(shape, tensor->shape, tensor->rank);
    size += (size_t)snprintf((char *)buffer + size, 320, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                             cuvil_type_of(tensor)->npy, shape);
    if (tensor->rank > 0) {
        size_t room = 21 - (size_t)snprintf(first, sizeof first, "%ld", tensor->shape[0]);
        memset(buffer + size, ' ', room);
        size += room;
    }
    while ((size + 1) % 64) buffer[size++] = ' ';
    buffer[size++] = '\n';
    memcpy(buffer, "\x93NUMPY\x01\x00", 8);
    buffer[8] = (unsigned char)((size - 10) & 255);
    buffer[9] = (unsigned char)((size - 10) >> 8);
    return size;
}

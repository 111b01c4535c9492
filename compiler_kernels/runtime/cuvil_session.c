/* One record of each inference, at the end of a chain of digests (docs/sessions.md). No clock is read here. */
#include "cuvil_runtime.h"
#include "cuvil_session.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT "cuvil-session/1"
enum { LINE_MAX_BYTES = 1 << 17, MOST_NAMES = 512 };

static const cuvil_engine *const engine = &cuvil_engine_instance;
extern const cuvil_session_hooks cuvil_sessions __attribute__((weak)); /* without it the linker leaves all of this out */

static cuvil_session_options session;
static unsigned char salt[CUVIL_SALT_BYTES];
static int archive = -1;
static char line[LINE_MAX_BYTES], tail[LINE_MAX_BYTES + 1];
static size_t used;
static int order[MOST_NAMES];

/* ---- digests of the inputs, by a thread of its own beside the inference, which leaves its inputs unchanged ---- */

enum { GUARD_BYTES = 65536, STACK_BYTES = 4 * GUARD_BYTES, IDLE = 0, WAITING, DIGESTING };

/* The lowest GUARD_BYTES are made inaccessible: an overflow stops the engine instead of changing results. */
static _Alignas(GUARD_BYTES) unsigned char stack[STACK_BYTES];
static pthread_t thread;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER;
static int phase; /* under mutex; IDLE where there is no thread */
static char input_digest[CUVIL_MAX_TENSORS][129];

static void digest_inputs(void) {
    for (int i = 0; i < engine->input_count; i++) {
        const cuvil_tensor actual = cuvil_actual(&engine->inputs[i]);
        cuvil_tensor_digest(&actual, engine->input_buffers[i], session.salt ? salt : NULL, input_digest[i]);
    }
}

static void *digest_beside(void *nothing) {
    pthread_mutex_lock(&mutex);
    while (phase != DIGESTING) pthread_cond_wait(&begun, &mutex);
    pthread_mutex_unlock(&mutex);
    digest_inputs();
    cuvil_wipe_registers();
    return nothing;
}

/* Without it, where the system has no thread left, the digests are computed when the record is. */
static void start_thread(void) {
    pthread_attr_t attributes;
    if (mprotect(stack, GUARD_BYTES, PROT_NONE)) return;
    phase = WAITING;
    if (pthread_attr_init(&attributes) || pthread_attr_setstack(&attributes, stack + GUARD_BYTES, STACK_BYTES - GUARD_BYTES) ||
        pthread_create(&thread, &attributes, digest_beside, NULL))
        phase = IDLE;
}

void cuvil_session_begin(void) {
    if (archive < 0) return;
    if (phase == IDLE) start_thread();
    if (phase == IDLE) return;
    pthread_mutex_lock(&mutex);
    phase = DIGESTING;
    pthread_cond_signal(&begun);
    pthread_mutex_unlock(&mutex);
}

static void finish_digests(void) {
    if (phase == IDLE) digest_inputs();
    else pthread_join(thread, NULL);
    phase = IDLE;
}

/* ---- the canonical text (RFC 8785) of a record; what does not fit is told by used == sizeof line ---- */

static void put_bytes(const char *text, size_t size) {
    if (size > sizeof line - used) size = sizeof line - used;
    memcpy(line + used, text, size);
    used += size;
}

static void put(const char *text) {
    put_bytes(text, strlen(text));
}

static void put_number(uint64_t value) {
    char text[20];
    put_bytes(text, (size_t)cuvil_decimal(text, value, ""));
}

/* Names come from the model and the policy, whose importers accept UTF-8 only. */
static void put_string(const char *text) {
    static const char shorts[] = "btn\0fr", hex[] = "0123456789abcdef";
    put("\"");
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        char escape[6] = {'\\', 'u', '0', '0', hex[*at >> 4], hex[*at & 15]};
        if (*at == '"' || *at == '\\') {
            escape[1] = (char)*at;
            put_bytes(escape, 2);
        } else if (*at >= 8 && *at <= 13 && *at != 11) {
            escape[1] = shorts[*at - 8];
            put_bytes(escape, 2);
        } else if (*at < 0x20) {
            put_bytes(escape, 6);
        } else {
            put_bytes((const char *)at, 1);
        }
    }
    put("\"");
}

static void put_member(const char *name, const char *value) {
    put("\"");
    put(name);
    put("\":");
    if (value) put_string(value);
    else put("null");
}

static const char *bare(const char *digest) {
    return strncmp(digest, "sha3-512:", 9) ? digest : digest + 9;
}

/* digests: those that are known, or NULL. */
static void put_tensors(const cuvil_tensor *tensors, void *const *buffers, int count, char (*digests)[129]) {
    char hex[129];
    put("[");
    for (int i = 0; i < count; i++) {
        const cuvil_tensor actual = cuvil_actual(&tensors[i]);
        if (!digests) cuvil_tensor_digest(&actual, buffers[i], session.salt ? salt : NULL, hex);
        put(i ? ",{" : "{");
        put_member("digest", digests ? digests[i] : hex);
        put(",");
        put_member("dtype", cuvil_type_of(&actual)->name);
        put(",");
        put_member("name", actual.name);
        put(",\"shape\":[");
        for (int axis = 0; axis < actual.rank; axis++) {
            if (axis) put(",");
            put_number((uint64_t)actual.shape[axis]);
        }
        put("]}");
    }
    put("]");
}

static void put_engine(void) {
    put("\"engine\":{");
    put_member("arithmetic", engine->arithmetic);
    put(",");
    put_member("config_digest", bare(engine->config_digest));
    put(",");
    put_member("frozen_graph", bare(engine->frozen_graph));
    put(",");
    put_member("model", engine->model);
    put(",");
    put_member("model_version", engine->model_version);
    put(",");
    put_member("target", engine->target);
    put(",");
    put_member("weights_digest", bare(engine->weights_digest));
    put("}");
}

/* ---- the clinical logic's part; names are put in the order of their bytes ---- */

static int in_order(const char *const *names, int count, int (*present)(const cuvil_clinical *logic, int i),
                    const cuvil_clinical *logic, int order[MOST_NAMES]) {
    int found = 0;
    for (int i = 0; i < count && found < MOST_NAMES; i++) {
        if (!present(logic, i)) continue;
        int at = found++;
        for (; at > 0 && strcmp(names[order[at - 1]], names[i]) > 0; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    return found;
}

static int has_quantity(const cuvil_clinical *logic, int i) {
    return logic->answer->quantities_known[i];
}

static int has_decision(const cuvil_clinical *logic, int i) {
    return logic->answer->decisions[i] >= 0;
}

static int has_guard(const cuvil_clinical *logic, int i) {
    return logic->answer->guards[i] >= 0;
}

static void put_truths(const char *const *names, const signed char *values, const int *order, int count) {
    put("{");
    for (int n = 0; n < count; n++) {
        if (n) put(",");
        put_string(names[order[n]]);
        put(values[order[n]] ? ":true" : ":false");
    }
    put("}");
}

static void put_decisions(const cuvil_clinical *logic) {
    const int count = logic ? in_order(logic->decisions, logic->decision_count, has_decision, logic, order) : 0;
    put_truths(logic ? logic->decisions : NULL, logic ? logic->answer->decisions : NULL, order, count);
}

static void put_guards(const cuvil_clinical *logic) {
    const int count = logic ? in_order(logic->guards, logic->guard_count, has_guard, logic, order) : 0;
    put_truths(logic ? logic->guards : NULL, logic ? logic->answer->guards : NULL, order, count);
}

/* Their values are those of a person's data, so that the record has a digest of them, salted like the others. */
static void put_quantities(const cuvil_clinical *logic) {
    char hex[129];
    cuvil_sha3 hash;
    if (!logic) {
        put("null");
        return;
    }
    const int count = in_order(logic->quantities, logic->quantity_count, has_quantity, logic, order);
    cuvil_sha3_init(&hash);
    if (session.salt) cuvil_sha3_update(&hash, salt, sizeof salt);
    cuvil_sha3_update(&hash, "cuvil-quantities/1\n", 19);
    for (int n = 0; n < count; n++) {
        uint64_t bits;
        char digits[18] = "=";
        memcpy(&bits, &logic->answer->quantities[order[n]], 8);
        for (int digit = 0; digit < 16; digit++) digits[1 + digit] = "0123456789abcdef"[bits >> (60 - 4 * digit) & 15];
        digits[17] = '\n';
        cuvil_sha3_update(&hash, logic->quantities[order[n]], strlen(logic->quantities[order[n]]));
        cuvil_sha3_update(&hash, digits, sizeof digits);
    }
    cuvil_sha3_hex(&hash, hex);
    put_string(hex);
}

static void put_failure(const cuvil_clinical *logic, int failure) {
    if (logic) failure = logic->answer->failure;
    if (failure == CUVIL_NO_FAILURE) {
        put("null");
        return;
    }
    put("{");
    put_member("guard", logic && logic->answer->guard >= 0 ? logic->guards[logic->answer->guard] : NULL);
    put(",");
    put_member("kind", cuvil_failure_name[failure]);
    put("}");
}

static const char *status_of(const cuvil_clinical *logic, int failure) {
    if (!logic) return failure == CUVIL_NO_FAILURE ? "computed" : "refused";
    return logic->answer->status == CUVIL_DECIDED ? "decided" : logic->answer->status == CUVIL_FALLBACK ? "fallback" : "refused";
}

static void put_record(const cuvil_clinical *logic, int failure, int has_outputs, uint64_t index, const char *previous) {
    used = 0;
    put("{\"decisions\":");
    put_decisions(logic);
    put(",");
    put_engine();
    put(",\"failure\":");
    put_failure(logic, failure);
    put(",\"format\":\"" FORMAT "\",\"guards\":");
    put_guards(logic);
    put(",\"index\":");
    put_number(index);
    put(",\"inputs\":");
    put_tensors(engine->inputs, engine->input_buffers, engine->input_count, input_digest);
    put(session.kept ? ",\"kept\":true,\"kind\":\"inference\",\"outputs\":" : ",\"kept\":false,\"kind\":\"inference\",\"outputs\":");
    put_tensors(engine->outputs, engine->output_buffers, has_outputs ? engine->output_count : 0, NULL);
    put(",");
    put_member("previous", previous);
    put(",\"quantities\":");
    put_quantities(logic);
    put(",\"run\":{");
    if (engine->device) {
        put_member("device", engine->device->name());
        put(",");
    }
    put_member("isa", cuvil_variant_in_use()->isa);
    put(",\"threads\":");
    put_number((uint64_t)cuvil_threads_in_use());
    put(session.salt ? "},\"salted\":true," : "},\"salted\":false,");
    put_member("status", status_of(logic, failure));
    put(",");
    put_member("subject", session.subject);
    put(",\"trace\":");
    if (session.traceparent) {
        put("{");
        put_member("parent", session.traceparent);
        put(",");
        put_member("state", session.tracestate);
        put("}");
    } else {
        put("null");
    }
    put("}");
}

static void put_repair(uint64_t index, const char *previous, const char *rest, size_t size) {
    char hex[129];
    cuvil_sha3 hash;
    cuvil_sha3_init(&hash);
    cuvil_sha3_update(&hash, rest, size);
    cuvil_sha3_hex(&hash, hex);
    used = 0;
    put("{\"dropped_bytes\":");
    put_number(size);
    put(",");
    put_member("dropped_sha3_512", hex);
    put(",\"format\":\"" FORMAT "\",\"index\":");
    put_number(index);
    put(",\"kind\":\"repair\",");
    put_member("previous", previous);
    put("}");
}

/* ---- the archive ---- */

static _Noreturn void give_up(const char *what, int problem) {
    cuvil_fail(CUVIL_USAGE, "session", "cannot %s the session archive %s: %s; give --session a folder that can be written", what,
               session.folder, strerror(problem));
}

static _Noreturn void damaged(const char *how) {
    cuvil_fail(CUVIL_USAGE, "session", "the session archive %s cannot be continued: %s; keep it as evidence, see what `cuvil session "
               "verify` says, and give another folder", session.folder, how);
}

/* SHA3-512(0x00 || line), without the line feed: what the next record names as previous. */
static void leaf(const char *text, size_t size, char hex[129]) {
    cuvil_sha3 hash;
    cuvil_sha3_init(&hash);
    cuvil_sha3_update(&hash, "", 1);
    cuvil_sha3_update(&hash, text, size);
    cuvil_sha3_hex(&hash, hex);
}

static off_t size_of_archive(void) {
    struct stat status;
    if (fstat(archive, &status)) give_up("read", errno);
    return status.st_size;
}

/* The index in a whole record: no text can hold these bytes, because a quote inside one is escaped. */
static uint64_t index_of(const char *text, size_t size) {
    static const char key[] = "\"index\":";
    const size_t length = sizeof key - 1;
    if (size < 2 || text[0] != '{' || text[size - 1] != '}') damaged("its last line is no record");
    for (size_t at = 0; at + length < size; at++) {
        uint64_t value = 0;
        size_t next = at + length;
        if (memcmp(text + at, key, length) != 0) continue;
        while (next < size && text[next] >= '0' && text[next] <= '9' && value < (uint64_t)1 << 52)
            value = 10 * value + (uint64_t)(text[next++] - '0');
        if (next > at + length && text[next] == ',') return value;
    }
    damaged("its last line is no record");
}

static void read_tail(size_t length, off_t from) {
    size_t got = 0;
    while (got < length) {
        ssize_t part = pread(archive, tail + got, length - got, from + (off_t)got);
        if (part < 0 && errno == EINTR) continue;
        if (part <= 0) give_up("read", part < 0 ? errno : EIO);
        got += (size_t)part;
    }
}

static const char *last_line_feed(const char *text, size_t size) {
    while (size > 0)
        if (text[--size] == '\n') return text + size;
    return NULL;
}

/* Finds the end: index and previous of the next record, and the bytes after the last line feed, which a crash left. */
static void find_end(off_t size, uint64_t *index, char previous[129], const char **rest, size_t *rest_size) {
    size_t length, end, start;
    for (size_t wanted = 8192;; wanted = sizeof tail) { /* most records are short */
        length = size < (off_t)wanted ? (size_t)size : wanted;
        read_tail(length, size - (off_t)length);
        const char *last = length ? last_line_feed(tail, length) : NULL;
        if (wanted == sizeof tail || length == (size_t)size || (last && last_line_feed(tail, (size_t)(last - tail)))) break;
    }
    for (end = length; end > 0 && tail[end - 1] != '\n';) end--;
    *rest = tail + end;
    *rest_size = length - end;
    if (end == 0) {
        if (length == sizeof tail) damaged("it has a line longer than any record");
        *index = 0;
        memset(previous, '0', 128);
        previous[128] = 0;
        return;
    }
    for (start = end - 1; start > 0 && tail[start - 1] != '\n';) start--;
    if (start == 0 && length == sizeof tail) damaged("it has a line longer than any record");
    *index = index_of(tail + start, end - 1 - start) + 1;
    leaf(tail + start, end - 1 - start, previous);
}

/* Puts the line and its line feed where the file ends at the given size; the old size again when that fails. */
static void write_line(off_t size) {
    size_t done = 0;
    if (used >= sizeof line) cuvil_fail(CUVIL_USAGE, "session", "a record of this engine is longer than %d bytes: this is a defect of the compiler", LINE_MAX_BYTES);
    line[used++] = '\n';
    while (done < used) {
        ssize_t written = pwrite(archive, line + done, used - done, size + (off_t)done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            const int problem = written < 0 ? errno : EIO;
            if (ftruncate(archive, size)) give_up("write", errno);
            give_up("write", problem);
        }
        done += (size_t)written;
    }
    used--;
}

static void lock(short type) {
    struct flock wanted = {.l_type = type, .l_whence = SEEK_SET};
    while (fcntl(archive, F_SETLKW, &wanted))
        if (errno != EINTR) give_up("lock", errno);
}

void cuvil_session_append(const cuvil_clinical *logic, int failure, int has_outputs) {
    const char *rest;
    char previous[129];
    uint64_t index;
    size_t rest_size;
    if (archive < 0) return;
    finish_digests();
    lock(F_WRLCK);
    off_t size = size_of_archive();
    find_end(size, &index, previous, &rest, &rest_size);
    if (rest_size) { /* the line first and the cut second, so that no crash loses bytes without a line that says so */
        size -= (off_t)rest_size;
        put_repair(index++, previous, rest, rest_size);
        write_line(size);
        size += (off_t)used + 1;
        if (ftruncate(archive, size)) give_up("write", errno);
        leaf(line, used, previous);
    }
    put_record(logic, failure, has_outputs, index, previous);
    write_line(size);
    if (cuvil_sessions.sync && fsync(archive) && errno != EINVAL && errno != EROFS) give_up("write", errno);
    lock(F_UNLCK);
    leaf(line, used, previous);
    snprintf(cuvil_also, sizeof cuvil_also, ", \"session\": {\"index\": %llu, \"record\": \"%s\"}", (unsigned long long)index, previous);
}

/* ---- the options ---- */

static int is_hex(const char *text, size_t digits) {
    return strspn(text, "0123456789abcdef") >= digits;
}

static int all_zero(const char *text, size_t digits) {
    return strspn(text, "0") >= digits;
}

/* W3C Trace Context, 3.2: version 00 only, "00-" trace-id "-" parent-id "-" flags. */
static int good_parent(const char *text) {
    return strlen(text) == 55 && !strncmp(text, "00-", 3) && is_hex(text + 3, 32) && text[35] == '-' && is_hex(text + 36, 16) &&
           text[52] == '-' && is_hex(text + 53, 2) && !all_zero(text + 3, 32) && !all_zero(text + 36, 16);
}

static int key_byte(char c, int first) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (!first && c && strchr("_-*/@", c));
}

/* W3C Trace Context, 3.3: at most 32 members key=value, 512 bytes in all, no key twice (keys are not compared here). */
static int good_state(const char *text) {
    int members = 0;
    if (strlen(text) > 512) return 0;
    for (;;) {
        size_t key = 0, value = 0;
        while (key_byte(text[key], key == 0)) key++;
        if (key == 0 || key > 256 || text[key] != '=' || ++members > 32) return 0;
        text += key + 1;
        while (text[value] >= 0x20 && text[value] <= 0x7E && text[value] != ',' && text[value] != '=') value++;
        if (value == 0 || value > 256 || text[value - 1] == ' ') return 0;
        text += value;
        if (!*text) return 1;
        if (*text++ != ',') return 0;
        while (*text == ' ' || *text == '\t') text++;
    }
}

static void check_options(void) {
    if (session.traceparent && !session.traceparent[0]) session.traceparent = NULL;
    if (session.tracestate && !session.tracestate[0]) session.tracestate = NULL;
    if (session.traceparent && !good_parent(session.traceparent))
        cuvil_fail(CUVIL_USAGE, NULL, "'%.80s' is no traceparent of W3C Trace Context version 00 (00-TRACEID-PARENTID-FLAGS): correct "
                   "--traceparent or the environment variable TRACEPARENT", session.traceparent);
    if (session.tracestate && !session.traceparent)
        cuvil_fail(CUVIL_USAGE, NULL, "a tracestate is given without a traceparent: give --traceparent or TRACEPARENT too");
    if (session.tracestate && !good_state(session.tracestate))
        cuvil_fail(CUVIL_USAGE, NULL, "'%.80s' is no tracestate of W3C Trace Context (key=value, separated by commas): correct "
                   "--tracestate or the environment variable TRACESTATE", session.tracestate);
    if (session.subject && (strlen(session.subject) != 32 || !is_hex(session.subject, 32)))
        cuvil_fail(CUVIL_USAGE, NULL, "--subject takes a token of 32 lower-case hex digits, never a name: `cuvil run --subject` makes one");
    if (session.salt && (strlen(session.salt) != 64 || !is_hex(session.salt, 64)))
        cuvil_fail(CUVIL_USAGE, NULL, "the environment variable CUVIL_SESSION_SALT is not 64 lower-case hex digits: unset it");
    for (int i = 0; session.salt && i < CUVIL_SALT_BYTES; i++) {
        const char *digits = "0123456789abcdef", *at = session.salt + 2 * i;
        salt[i] = (unsigned char)((strchr(digits, at[0]) - digits) << 4 | (strchr(digits, at[1]) - digits));
    }
}

void cuvil_session_open(const cuvil_session_options *options) {
    session = *options;
    check_options();
    cuvil_erase_register(line, sizeof line);
    cuvil_erase_register(tail, sizeof tail);
    cuvil_erase_register(salt, sizeof salt);
    cuvil_erase_register(input_digest, sizeof input_digest);
    cuvil_erase_register(stack + GUARD_BYTES, sizeof stack - GUARD_BYTES); /* its thread has ended, or waits for nothing */
    if (session.salt) cuvil_wipe((char *)session.salt, strlen(session.salt)); /* in the environment */
    signal(SIGXFSZ, SIG_IGN); /* a file size limit becomes an error that is cleaned up after */
    if (mkdir(session.folder, 0700) && errno != EEXIST) give_up("create", errno);
    int folder = open(session.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) give_up("open", errno);
    archive = openat(folder, "session.jsonl", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (archive < 0) give_up("open", errno);
    struct stat status;
    if (fstat(archive, &status)) give_up("read", errno);
    if (!S_ISREG(status.st_mode)) damaged("session.jsonl is no regular file");
    fsync(folder); /* makes a new name durable where the file system can */
    close(folder);
    start_thread();
}

/* Records of inferences, kept by the engine's program when the policy has audit.sessions (docs/sessions.md).
 *
 * A generated engine with that section defines cuvil_sessions, which refers to the functions below; the linker leaves
 * them out of every other engine. They are weak, so that an engine that is a library does without them.
 */
#ifndef CUVIL_SESSION_H
#define CUVIL_SESSION_H

#include "cuvil_engine.h"

typedef struct {
    const char *folder;      /* of the archive; NULL: no record */
    const char *subject;     /* NULL, or the subject's token: 32 hex digits */
    const char *salt;        /* NULL, or 64 hex digits */
    const char *traceparent; /* NULL or "", or what W3C Trace Context says */
    const char *tracestate;
    int kept; /* the host keeps the inputs */
} cuvil_session_options;

/* Checks the options and opens the archive; ends the program in one sentence (exit 2) when either is wrong. */
__attribute__((weak, visibility("hidden"))) void cuvil_session_open(const cuvil_session_options *options);
/* The inputs are in their buffers: begins with their digests, beside the inference, where a session is open. */
__attribute__((weak, visibility("hidden"))) void cuvil_session_begin(void);
/* Appends the record of the present inference where a session is open; durable on return when sync is set. Exit 2 when that
 * is impossible. logic: with the answer, or NULL where the engine has none; failure is then CUVIL_NO_FAILURE or what the
 * inference is refused for. has_outputs: the output buffers hold what the network computed. */
__attribute__((weak, visibility("hidden"))) void cuvil_session_append(const cuvil_clinical *logic, int failure, int has_outputs);

typedef struct {
    const char *inputs; /* "digest" or "keep", as the policy says */
    int required;       /* whether an inference without a session is refused */
    int sync;           /* whether a record is synced to the disk before the outputs appear */
    void (*open)(const cuvil_session_options *options);
    void (*begin)(void);
    void (*append)(const cuvil_clinical *logic, int failure, int has_outputs);
} cuvil_session_hooks;

#endif

/* Pages that nobody may touch until a launch that may start early waits for the one before (cuvil_emulator.cpp). On a device
 * such an access would be a race; emulated launches run one after another, so no bit would show it. */
#ifndef CUVIL_EMULATOR_GUARD_H
#define CUVIL_EMULATOR_GUARD_H

#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>

namespace {

enum { MOST_GUARDED = 1024 };
struct Pages {
    void *first;
    size_t bytes;
} guarded[MOST_GUARDED];
int guard_count;
bool closed, touched;
struct sigaction usual;

void set_guard(bool close)
{
    closed = close;
    for (int k = 0; k < guard_count; k++) mprotect(guarded[k].first, guarded[k].bytes, close ? PROT_NONE : PROT_READ | PROT_WRITE);
}

void on_touch(int number)
{
    if (!closed) {
        sigaction(number, &usual, nullptr); /* another fault: it happens again */
        return;
    }
    touched = true;
    set_guard(false);
}

const char *ended()
{
    if (closed) set_guard(false);
    return touched ? "a thread touched memory before it waited for the launch before" : nullptr;
}

} // namespace

/* Kernels run from now on must not touch these whole pages before they wait for the launch before; without bytes: none. */
extern "C" void cuvil_emulated_guard(void *first, size_t bytes)
{
    if (closed) set_guard(false);
    if (!bytes) {
        if (guard_count) sigaction(SIGSEGV, &usual, nullptr);
        guard_count = 0;
        return;
    }
    if (guard_count == MOST_GUARDED) __builtin_trap();
    if (!guard_count) {
        struct sigaction watching = {};
        watching.sa_handler = on_touch;
        sigaction(SIGSEGV, &watching, &usual);
    }
    guarded[guard_count++] = {first, bytes};
}

#endif

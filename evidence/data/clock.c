/* Moves the calendar clock of the process it is preloaded into by CUVIL_CLOCK_OFFSET seconds (LD_PRELOAD; glibc or musl).
 * Monotonic clocks and time stamps of files stay: they would end waits and void compiled Python. */
typedef struct { long seconds, nanoseconds; } timespec_;
typedef struct { long seconds, microseconds; } timeval_;

extern long syscall(long number, ...);
extern char *getenv(const char *name);
extern long strtol(const char *text, char **end, int base);

#if defined(__x86_64__)
enum { CLOCK_GETTIME = 228 };
#elif defined(__aarch64__)
enum { CLOCK_GETTIME = 113 };
#endif
enum { REALTIME = 0, REALTIME_COARSE = 5, TAI = 11 };

static long offset(void)
{
    const char *text = getenv("CUVIL_CLOCK_OFFSET");
    return text ? strtol(text, 0, 10) : 0;
}

int clock_gettime(int clock, timespec_ *now)
{
    long failed = syscall(CLOCK_GETTIME, (long)clock, now);
    if (!failed && (clock == REALTIME || clock == REALTIME_COARSE || clock == TAI))
        now->seconds += offset();
    return (int)failed;
}

int gettimeofday(timeval_ *now, void *zone)
{
    timespec_ found;
    (void)zone;
    if (clock_gettime(REALTIME, &found))
        return -1;
    now->seconds = found.seconds;
    now->microseconds = found.nanoseconds / 1000;
    return 0;
}

long time(long *now)
{
    timespec_ found;
    if (clock_gettime(REALTIME, &found))
        return -1;
    if (now)
        *now = found.seconds;
    return found.seconds;
}

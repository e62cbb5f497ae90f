// Moves the wall clock of one process: preloaded, it adds the seconds that the file $CHAOS_CLOCK holds to what
// clock_gettime(CLOCK_REALTIME) says. Monotonic clocks stay, as they do when somebody sets a clock.
//
// libfaketime is of no use here: it also answers timespec_get, but not the cnd_timedwait of glibc to which librdkafka
// gives the time that comes of it, so every wait in librdkafka would be as much too long as the clock is ahead.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    const char *path = getenv("CHAOS_CLOCK");
    char text[32] = {0};
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    return length > 0 ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += offset();
    return result;
}

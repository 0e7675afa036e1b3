/* Makes the Nth call of a kind on the database's files fail, be slow, or be the last thing the process does,
 * and has the wall clock run ahead or behind.
 *
 * Built by the test into a temporary directory and preloaded into the daemon. Told by environment:
 * FAULT_KIND write|sync|truncate, FAULT_AT the number of the call (from 1), FAULT_COUNT how many
 * calls from there on, FAULT_DOES EIO|ENOSPC|KILL|DELAY (100 ms), FAULT_HIT a file to be made when it happens.
 * FAULT_CLOCK: a file with the seconds that the wall clock is ahead.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static long calls;

/* Whether a descriptor leads to the database or a file beside it, the lock file apart. */
static int is_ours(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    const char *name = strrchr(path, '/');
    return name && !strncmp(name, "/state.db", 9) && !strstr(name, ".lock");
}

/* The error that this call is to fail with; 0: none. */
static int fault(const char *kind, int fd)
{
    const char *wanted = getenv("FAULT_KIND"), *does = getenv("FAULT_DOES");
    if (!wanted || !does || strcmp(wanted, kind) || !is_ours(fd))
        return 0;
    long at = atol(getenv("FAULT_AT")), count = atol(getenv("FAULT_COUNT"));
    long call = __sync_add_and_fetch(&calls, 1);
    if (call < at || call >= at + count)
        return 0;
    close(open(getenv("FAULT_HIT"), O_CREAT | O_WRONLY, 0644));
    if (!strcmp(does, "KILL"))
        kill(getpid(), SIGKILL);
    if (!strcmp(does, "DELAY")) {
        usleep(100 * 1000);
        return 0;
    }
    return strcmp(does, "ENOSPC") ? EIO : ENOSPC;
}

#define FAIL(kind, fd) do { int e = fault(kind, fd); if (e) { errno = e; return -1; } } while (0)
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* How many seconds the wall clock is ahead. */
static long ahead(void)
{
    char text[32];
    const char *path = getenv("FAULT_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = 0;
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = NEXT(clock_gettime)(clock, now);
    if (!result && clock == CLOCK_REALTIME)
        now->tv_sec += ahead();
    return result;
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    FAIL("write", fd);
    return NEXT(write)(fd, bytes, length);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at)
{
    FAIL("write", fd);
    return NEXT(pwrite)(fd, bytes, length, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at)
{
    FAIL("write", fd);
    return NEXT(pwrite64)(fd, bytes, length, at);
}

int fsync(int fd)
{
    FAIL("sync", fd);
    return NEXT(fsync)(fd);
}

int fdatasync(int fd)
{
    FAIL("sync", fd);
    return NEXT(fdatasync)(fd);
}

int ftruncate(int fd, off_t length)
{
    FAIL("truncate", fd);
    return NEXT(ftruncate)(fd, length);
}

int ftruncate64(int fd, off64_t length)
{
    FAIL("truncate", fd);
    return NEXT(ftruncate64)(fd, length);
}

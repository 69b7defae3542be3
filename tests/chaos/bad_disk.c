/* Loaded before the C library: calls that write below a folder take long, and each n-th one fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(int file)
{
    static long calls;
    char link[64], path[4096] = "";
    const char *folder = getenv("BAD_DISK");
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    if (!folder || readlink(link, path, sizeof path - 1) < 0 || strncmp(path, folder, strlen(folder)))
        return 0;
    usleep(atoi(getenv("BAD_DISK_MICROSECONDS")));
    long nth = atol(getenv("BAD_DISK_FAILS_EACH"));
    return nth && __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) % nth == 0;
}

#define ON_BAD_DISK(result, name, parameters, arguments) \
    result name parameters \
    { \
        result (*real) parameters = (result (*) parameters) dlsym(RTLD_NEXT, #name); \
        if (fails(file)) { \
            errno = EIO; \
            return -1; \
        } \
        return real arguments; \
    }

ON_BAD_DISK(ssize_t, write, (int file, const void *from, size_t size), (file, from, size))
ON_BAD_DISK(ssize_t, writev, (int file, const struct iovec *from, int many), (file, from, many))
ON_BAD_DISK(ssize_t, pwrite, (int file, const void *from, size_t size, off_t at), (file, from, size, at))
ON_BAD_DISK(ssize_t, pwrite64, (int file, const void *from, size_t size, off64_t at), (file, from, size, at))
ON_BAD_DISK(int, fsync, (int file), (file))
ON_BAD_DISK(int, fdatasync, (int file), (file))

/* Faults below the broker, by LD_PRELOAD: disk errors, a disk that hangs, a journal of what is not synced, the clock.
 *
 *   broker ── pwrite, fdatasync, rename, ... ──► shim ──► libc
 *                                                 │ ▲
 *                       journal (append only) ◄───┘ └─── switches (a file mapped into both processes)
 *
 * Only files below FAULT_DIR are touched. Every change of one is written to the journal before it is made, with the
 * bytes it replaces, and every completed sync after it: whoever reads the journal after a SIGKILL can take back what
 * no sync has covered, in whole or in part, as a power cut would. The switches are set by shim.py, the journal is read by power.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct switches {
    int32_t write_error;  /* errno of every write, 0 for none */
    int32_t growth_error; /* errno of every write that needs room on the disk */
    int32_t sync_error;   /* errno of every sync */
    int32_t sync_hangs;   /* syncs wait while this is not 0 */
    int64_t clock_ns;     /* added to the wall clock */
};

enum kind { WRITE = 1, TRUNCATE, SYNC, CREATE, RENAME, UNLINK };

struct record {
    uint32_t kind;
    uint32_t path_bytes;
    uint64_t offset;   /* of a write; the new size of a truncation; the number of changes a sync covers */
    uint64_t old_size; /* of the file, before */
    uint32_t old_bytes;
    uint32_t new_bytes; /* of a write; of the new name of a rename; of the name an unlinked file is kept under */
};

static volatile struct switches *switches;
static const char *dir;
static size_t dir_bytes;
static int journal = -1;
static uint64_t changes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_ftruncate)(int, off_t);
static int (*real_rename)(const char *, const char *), (*real_unlink)(const char *);
static int (*real_mkdir)(const char *, mode_t);
static int (*real_openat)(int, const char *, int, ...);
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("FAULT_SWITCHES");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_write = dlsym(RTLD_NEXT, "write");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    real_mkdir = dlsym(RTLD_NEXT, "mkdir");
    real_openat = dlsym(RTLD_NEXT, "openat64");
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int fd = real_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    switches = mmap(NULL, sizeof *switches, PROT_READ, MAP_SHARED, fd, 0);
    if (fd < 0 || switches == MAP_FAILED) {
        fprintf(stderr, "the fault shim cannot map FAULT_SWITCHES, %s\n", path);
        abort();
    }
    close(fd);
    dir = getenv("FAULT_DIR");
    dir_bytes = strlen(dir);
    if (getenv("FAULT_JOURNAL"))
        journal = real_openat(AT_FDCWD, getenv("FAULT_JOURNAL"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int is_below(const char *path) {
    return dir && strncmp(path, dir, dir_bytes) == 0 && (path[dir_bytes] == '/' || path[dir_bytes] == 0);
}

/* The path of an open file below FAULT_DIR; 0 for every other descriptor. */
static int find_path(int fd, char path[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return is_below(path);
}

static void note(enum kind kind, const char *path, uint64_t offset, uint64_t old_size, const void *old, size_t old_bytes,
                 const void *new, size_t new_bytes) {
    struct record record = {kind, strlen(path), offset, old_size, old_bytes, new_bytes};
    struct iovec parts[] = {{&record, sizeof record},
                            {(void *)path, record.path_bytes},
                            {(void *)old, old_bytes},
                            {(void *)new, new_bytes}};
    if (kind != SYNC)
        changes++;
    if (journal >= 0 && writev(journal, parts, 4) < 0)
        abort();
}

static int64_t size_of(int fd) {
    struct stat status;
    return fstat(fd, &status) ? 0 : status.st_size;
}

/* Notes a change of the bytes from offset on, and those it replaces. */
static void note_bytes(enum kind kind, int fd, const char *path, off_t offset, const void *new, size_t new_bytes) {
    int64_t size = size_of(fd);
    size_t cut = size > offset ? size - offset : 0, replaced = kind == TRUNCATE ? cut : new_bytes;
    char *old = journal >= 0 ? malloc(replaced + 1) : NULL;
    ssize_t old_bytes = 0;
    if (old) { /* the descriptor may be for writing only */
        int reading = real_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
        old_bytes = reading < 0 ? 0 : pread(reading, old, replaced, offset);
        if (reading >= 0)
            close(reading);
    }
    note(kind, path, offset, size, old, old_bytes < 0 ? 0 : old_bytes, new, new_bytes);
    free(old);
}

static int refused(int error) {
    if (error)
        errno = error;
    return error;
}

static int write_refused(int fd, off_t end) {
    return refused(switches->write_error) || (end > size_of(fd) && refused(switches->growth_error));
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) {
    char path[PATH_MAX];
    if (!find_path(fd, path))
        return real_pwrite(fd, data, size, offset);
    if (write_refused(fd, offset + size))
        return -1;
    pthread_mutex_lock(&lock);
    note_bytes(WRITE, fd, path, offset, data, size);
    ssize_t written = real_pwrite(fd, data, size, offset);
    pthread_mutex_unlock(&lock);
    return written;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return pwrite64(fd, data, size, offset); }

ssize_t write(int fd, const void *data, size_t size) {
    char path[PATH_MAX];
    if (!find_path(fd, path))
        return real_write(fd, data, size);
    off_t offset = fcntl(fd, F_GETFL) & O_APPEND ? size_of(fd) : lseek(fd, 0, SEEK_CUR);
    if (write_refused(fd, offset + size))
        return -1;
    pthread_mutex_lock(&lock);
    note_bytes(WRITE, fd, path, offset, data, size);
    ssize_t written = real_write(fd, data, size);
    pthread_mutex_unlock(&lock);
    return written;
}

int ftruncate64(int fd, off_t size) {
    char path[PATH_MAX];
    if (!find_path(fd, path))
        return real_ftruncate(fd, size);
    if (write_refused(fd, size))
        return -1;
    pthread_mutex_lock(&lock);
    note_bytes(TRUNCATE, fd, path, size, NULL, 0);
    int result = real_ftruncate(fd, size);
    pthread_mutex_unlock(&lock);
    return result;
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

static int synced(int fd, int (*real)(int)) {
    char path[PATH_MAX];
    if (!find_path(fd, path))
        return real(fd);
    pthread_mutex_lock(&lock);
    uint64_t covered = changes;
    pthread_mutex_unlock(&lock);
    while (switches->sync_hangs)
        usleep(1000);
    if (refused(switches->sync_error))
        return -1;
    int result = real(fd);
    pthread_mutex_lock(&lock);
    if (result == 0)
        note(SYNC, path, covered, 0, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

int fsync(int fd) { return synced(fd, real_fsync); }

int fdatasync(int fd) { return synced(fd, real_fdatasync); }

static int opened(int at, const char *path, int flags, mode_t mode) {
    int is_new = path[0] == '/' && is_below(path) && flags & O_CREAT && access(path, F_OK) != 0;
    if (!is_new)
        return real_openat(at, path, flags, mode);
    if (refused(switches->write_error) || refused(switches->growth_error))
        return -1;
    pthread_mutex_lock(&lock);
    note(CREATE, path, 0, 0, NULL, 0, NULL, 0);
    int fd = real_openat(at, path, flags, mode);
    pthread_mutex_unlock(&lock);
    return fd;
}

#define OPENING(name, at, ...)                                                                                         \
    int name(__VA_ARGS__, ...) {                                                                                       \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                        \
        va_end(rest);                                                                                                  \
        return opened(at, path, flags, mode);                                                                          \
    }
OPENING(open, AT_FDCWD, const char *path, int flags)
OPENING(open64, AT_FDCWD, const char *path, int flags)
OPENING(openat, at, int at, const char *path, int flags)
OPENING(openat64, at, int at, const char *path, int flags)

int mkdir(const char *path, mode_t mode) {
    if (!is_below(path) || access(path, F_OK) == 0)
        return real_mkdir(path, mode);
    if (refused(switches->write_error) || refused(switches->growth_error))
        return -1;
    pthread_mutex_lock(&lock);
    note(CREATE, path, 0, 0, NULL, 0, NULL, 0);
    int result = real_mkdir(path, mode);
    pthread_mutex_unlock(&lock);
    return result;
}

int rename(const char *from, const char *to) {
    if (!is_below(from))
        return real_rename(from, to);
    if (refused(switches->write_error))
        return -1;
    pthread_mutex_lock(&lock);
    note(RENAME, from, 0, 0, NULL, 0, to, strlen(to));
    int result = real_rename(from, to);
    pthread_mutex_unlock(&lock);
    return result;
}

int unlink(const char *path) {
    char kept[PATH_MAX] = "";
    if (!is_below(path))
        return real_unlink(path);
    if (refused(switches->write_error))
        return -1;
    pthread_mutex_lock(&lock);
    if (journal >= 0) { /* a power cut may bring it back */
        snprintf(kept, sizeof kept, "%s.%llu", getenv("FAULT_JOURNAL"), (unsigned long long)changes);
        if (link(path, kept) != 0)
            kept[0] = 0;
    }
    note(UNLINK, path, 0, 0, NULL, 0, kept, strlen(kept));
    int result = real_unlink(path);
    pthread_mutex_unlock(&lock);
    return result;
}

static void move_clock(struct timespec *at) {
    int64_t ns = (int64_t)at->tv_sec * 1000000000 + at->tv_nsec + switches->clock_ns;
    at->tv_sec = ns / 1000000000;
    at->tv_nsec = ns % 1000000000;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int result = real_clock_gettime(clock, at);
    if (result == 0 && clock == CLOCK_REALTIME)
        move_clock(at);
    return result;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

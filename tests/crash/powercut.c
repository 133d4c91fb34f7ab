/*
 * A power cut in a library: preload it, and every byte that was not synced is lost.
 *
 * Theory of operation. kill -9 leaves the page cache alive, so it can never show a missing fsync. This library keeps, beside
 * the directory POWERCUT_DIR, a second one, POWERCUT_MIRROR, that holds what a disk would hold after the plug was pulled.
 * A write only marks the pages it touches; fsync and fdatasync copy the marked pages of that file into the mirror and give the
 * mirror the file's length. The cut is: SIGKILL the process, then put the mirror in the directory's place.
 *
 *   POWERCUT_KEEP=P   P per cent of the written pages reach the mirror at once, as a kernel that writes back early would do;
 *                     POWERCUT_SEED chooses which. A program may rely neither on a page being lost nor on its being kept.
 *   POWERCUT_COUNTS   a file that receives the number of calls seen, so that a test can tell a library that is
 *                     preloaded from one that is really called. Written at every sync.
 *
 * What it does not model. Directory entries: a file's name becomes durable with the first sync of the file itself (no sync of
 * the directory is asked for), and unlink and rename are durable at once; a rename onto a name whose new file was
 * never synced leaves the old content. Memory-mapped writes are not seen: SQLite maps only its -shm file that way, which it
 * rebuilds, so -shm files are left out altogether. Pages are tracked per process: the one that writes a file must be the one
 * that syncs it. stdio streams opened inside libc are not seen.
 *
 * Files are known by (device, inode), not by descriptor: descriptors are reused, duplicated and closed behind our back.
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
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096
#define MAX_FILES 4096

struct file {
    dev_t device;
    ino_t inode;
    char name[PATH_MAX]; /* below POWERCUT_DIR */
    unsigned char *is_dirty; /* one byte a page */
    size_t pages;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct file files[MAX_FILES];
static int file_count;
static char root[PATH_MAX], mirror[PATH_MAX];
static const char *counts_path;
static int keep_percent;
static unsigned seed;
static unsigned long writes_seen, syncs_seen, pages_copied;

static int (*real_open)(const char *, int, ...);
static int (*real_openat)(int, const char *, int, ...);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_pwritev)(int, const struct iovec *, int, off_t);
static int (*real_ftruncate)(int, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_rename)(const char *, const char *);
static int (*real_unlink)(const char *);
static int (*real_unlinkat)(int, const char *, int);

static void start(void) {
    real_open = dlsym(RTLD_NEXT, "open64");
    real_openat = dlsym(RTLD_NEXT, "openat64");
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_writev = dlsym(RTLD_NEXT, "writev");
    real_pwritev = dlsym(RTLD_NEXT, "pwritev64");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    real_unlinkat = dlsym(RTLD_NEXT, "unlinkat");
    const char *dir = getenv("POWERCUT_DIR"), *to = getenv("POWERCUT_MIRROR");
    if (dir && to && realpath(dir, root) && realpath(to, mirror)) {
        const char *keep = getenv("POWERCUT_KEEP"), *text = getenv("POWERCUT_SEED");
        keep_percent = keep ? atoi(keep) : 0;
        seed = text ? (unsigned)strtoul(text, NULL, 10) : 1;
        counts_path = getenv("POWERCUT_COUNTS");
    } else {
        root[0] = 0;
    }
}

/* The part of `path` below the watched directory, or NULL. The file itself need not exist. */
static const char *name_below_root(int dirfd, const char *path, char *buffer) {
    char joined[PATH_MAX], parent[PATH_MAX];
    if (!root[0] || !path) return NULL;
    if (path[0] == '/' || dirfd == AT_FDCWD) {
        if (snprintf(joined, sizeof joined, "%s", path) >= (int)sizeof joined) return NULL;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
        ssize_t size = readlink(link, parent, sizeof parent - 1);
        if (size < 0) return NULL;
        parent[size] = 0;
        if (snprintf(joined, sizeof joined, "%s/%s", parent, path) >= (int)sizeof joined) return NULL;
    }
    char *slash = strrchr(joined, '/');
    const char *last = slash ? slash + 1 : joined;
    if (slash == joined) return NULL;
    if (slash) *slash = 0;
    if (!realpath(slash ? joined : ".", parent)) return NULL;
    size_t length = strlen(root);
    if (strncmp(parent, root, length) || (parent[length] && parent[length] != '/')) return NULL;
    const char *below = parent[length] ? parent + length + 1 : "";
    if (snprintf(buffer, PATH_MAX, "%s%s%s", below, *below ? "/" : "", last) >= PATH_MAX) return NULL;
    size_t size = strlen(buffer);
    return size > 4 && !strcmp(buffer + size - 4, "-shm") ? NULL : buffer;
}

static struct file *find(int fd, struct stat *status) {
    if (!root[0] || !file_count || fstat(fd, status) || !S_ISREG(status->st_mode)) return NULL;
    for (int i = 0; i < file_count; i++)
        if (files[i].inode == status->st_ino && files[i].device == status->st_dev && files[i].name[0]) return &files[i];
    return NULL;
}

static void mark(struct file *file, off_t from, off_t until) {
    size_t first = from / PAGE, last = (until + PAGE - 1) / PAGE;
    if (last > file->pages) {
        size_t pages = last * 2;
        unsigned char *grown = realloc(file->is_dirty, pages);
        if (!grown) abort();
        memset(grown + file->pages, 0, pages - file->pages);
        file->is_dirty = grown;
        file->pages = pages;
    }
    memset(file->is_dirty + first, 1, last - first);
}

static int open_mirror(const struct file *file) {
    char path[PATH_MAX * 2];
    snprintf(path, sizeof path, "%s/%s", mirror, file->name);
    for (char *at = path + strlen(mirror) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(path, 0755);
        *at = '/';
    }
    int fd = real_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) abort(); /* a mirror that cannot be kept would make every later verdict wrong */
    return fd;
}

static void copy_page(int from, int to, size_t page) {
    char bytes[PAGE];
    ssize_t size = pread(from, bytes, PAGE, (off_t)page * PAGE);
    if (size > 0 && real_pwrite(to, bytes, size, (off_t)page * PAGE) != size) abort();
    pages_copied++;
}

/* A descriptor for reading the file back: the caller's own may be write-only. */
static int open_for_reading(int fd) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return real_open(link, O_RDONLY | O_CLOEXEC);
}

static void note_open(int fd, int dirfd, const char *path) {
    char name[PATH_MAX];
    struct stat status;
    int saved = errno;
    if (fd >= 0 && name_below_root(dirfd, path, name) && !fstat(fd, &status) && S_ISREG(status.st_mode)) {
        pthread_mutex_lock(&lock);
        struct file *file = NULL, *gone = NULL;
        for (int i = 0; i < file_count && !file; i++) {
            if (files[i].inode == status.st_ino && files[i].device == status.st_dev) file = &files[i];
            else if (!files[i].name[0]) gone = &files[i];
        }
        if (!file && gone) file = gone;
        if (!file && file_count < MAX_FILES) file = &files[file_count++];
        if (!file) abort();
        if (file->inode != status.st_ino || file->device != status.st_dev || !file->name[0]) {
            file->device = status.st_dev;
            file->inode = status.st_ino;
            memset(file->is_dirty, 0, file->pages);
            snprintf(file->name, sizeof file->name, "%s", name);
        }
        pthread_mutex_unlock(&lock);
    }
    errno = saved;
}

static void note_write(int fd, off_t offset, ssize_t size) {
    struct stat status;
    int saved = errno;
    if (size > 0 && root[0]) {
        pthread_mutex_lock(&lock);
        struct file *file = find(fd, &status);
        if (file) {
            writes_seen++;
            if (offset < 0) offset = lseek(fd, 0, SEEK_CUR) - size;
            mark(file, offset, offset + size);
            if (keep_percent) {
                int from = -1, to = -1;
                for (size_t page = offset / PAGE; page < (size_t)(offset + size + PAGE - 1) / PAGE; page++) {
                    if ((int)(rand_r(&seed) % 100) >= keep_percent) continue;
                    if (to < 0) to = open_mirror(file), from = open_for_reading(fd);
                    copy_page(from, to, page);
                }
                if (to >= 0) close(from), close(to);
            }
        }
        pthread_mutex_unlock(&lock);
    }
    errno = saved;
}

static void note_truncate(int fd, off_t before, off_t length) {
    struct stat status;
    int saved = errno;
    pthread_mutex_lock(&lock);
    struct file *file = find(fd, &status);
    /* What was cut off reads as zeros if the file grows again, so the mirror's old bytes must go as well. */
    if (file && before > length) mark(file, length, before);
    pthread_mutex_unlock(&lock);
    errno = saved;
}

static void note_sync(int fd) {
    struct stat status;
    int saved = errno;
    pthread_mutex_lock(&lock);
    struct file *file = find(fd, &status);
    if (file) {
        int from = open_for_reading(fd), to = open_mirror(file);
        if (from < 0) abort();
        for (size_t page = 0; page < file->pages; page++) {
            if (!file->is_dirty[page]) continue;
            copy_page(from, to, page);
            file->is_dirty[page] = 0;
        }
        if (real_ftruncate(to, status.st_size)) abort();
        fchmod(to, status.st_mode & 07777);
        close(from);
        close(to);
        syncs_seen++;
        if (counts_path) {
            char text[128];
            /* One write of a fixed size: a kill leaves either the old counts or the new ones. */
            int size = snprintf(text, sizeof text, "%012lu %012lu %012lu\n", writes_seen, syncs_seen, pages_copied);
            int counts = real_open(counts_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
            if (counts >= 0) {
                if (real_pwrite(counts, text, size, 0) != size) abort();
                close(counts);
            }
        }
    }
    pthread_mutex_unlock(&lock);
    errno = saved;
}

static void mirror_path(char *path, const char *name) { snprintf(path, PATH_MAX * 2, "%s/%s", mirror, name); }

static void note_unlink(int dirfd, const char *path) {
    char name[PATH_MAX], there[PATH_MAX * 2];
    int saved = errno;
    if (name_below_root(dirfd, path, name)) {
        pthread_mutex_lock(&lock);
        for (int i = 0; i < file_count; i++)
            if (!strcmp(files[i].name, name)) files[i].name[0] = 0;
        mirror_path(there, name);
        real_unlink(there);
        pthread_mutex_unlock(&lock);
    }
    errno = saved;
}

static void note_rename(const char *from, const char *to) {
    char old[PATH_MAX], new[PATH_MAX], there_old[PATH_MAX * 2], there_new[PATH_MAX * 2];
    int saved = errno;
    const char *is_old = name_below_root(AT_FDCWD, from, old), *is_new = name_below_root(AT_FDCWD, to, new);
    if (is_old && is_new) {
        pthread_mutex_lock(&lock);
        for (int i = 0; i < file_count; i++) {
            if (!strcmp(files[i].name, new)) files[i].name[0] = 0;
        }
        for (int i = 0; i < file_count; i++) {
            if (!strcmp(files[i].name, old)) snprintf(files[i].name, sizeof files[i].name, "%s", new);
        }
        mirror_path(there_old, old);
        mirror_path(there_new, new);
        real_rename(there_old, there_new);
        pthread_mutex_unlock(&lock);
    }
    errno = saved;
}

#define MODE_ARGUMENT(flags)                                  \
    mode_t mode = 0;                                          \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                  \
        va_list rest;                                         \
        va_start(rest, flags);                                \
        mode = va_arg(rest, mode_t);                          \
        va_end(rest);                                         \
    }

static int do_open(int dirfd, const char *path, int flags, mode_t mode) {
    pthread_once(&once, start);
    struct stat status;
    off_t before = root[0] && (flags & O_TRUNC) && !fstatat(dirfd, path, &status, 0) ? status.st_size : 0;
    int fd = dirfd == AT_FDCWD ? real_open(path, flags, mode) : real_openat(dirfd, path, flags, mode);
    note_open(fd, dirfd, path);
    if (fd >= 0 && before) note_truncate(fd, before, 0);
    return fd;
}

int open(const char *path, int flags, ...) { MODE_ARGUMENT(flags) return do_open(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE_ARGUMENT(flags) return do_open(AT_FDCWD, path, flags, mode); }
int openat(int dirfd, const char *path, int flags, ...) { MODE_ARGUMENT(flags) return do_open(dirfd, path, flags, mode); }
int openat64(int dirfd, const char *path, int flags, ...) { MODE_ARGUMENT(flags) return do_open(dirfd, path, flags, mode); }
int creat(const char *path, mode_t mode) { return do_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return do_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

ssize_t write(int fd, const void *bytes, size_t size) {
    pthread_once(&once, start);
    ssize_t done = real_write(fd, bytes, size);
    note_write(fd, -1, done);
    return done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off_t offset) {
    pthread_once(&once, start);
    ssize_t done = real_pwrite(fd, bytes, size, offset);
    note_write(fd, offset, done);
    return done;
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) { return pwrite64(fd, bytes, size, offset); }

ssize_t writev(int fd, const struct iovec *parts, int count) {
    pthread_once(&once, start);
    ssize_t done = real_writev(fd, parts, count);
    note_write(fd, -1, done);
    return done;
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) {
    pthread_once(&once, start);
    ssize_t done = real_pwritev(fd, parts, count, offset);
    note_write(fd, offset, done);
    return done;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) { return pwritev64(fd, parts, count, offset); }

int ftruncate64(int fd, off_t length) {
    pthread_once(&once, start);
    struct stat status;
    off_t before = fstat(fd, &status) ? 0 : status.st_size;
    int result = real_ftruncate(fd, length);
    if (!result) note_truncate(fd, before, length);
    return result;
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

int fsync(int fd) {
    pthread_once(&once, start);
    note_sync(fd);
    return real_fsync(fd);
}

int fdatasync(int fd) {
    pthread_once(&once, start);
    note_sync(fd);
    return real_fdatasync(fd);
}

int unlink(const char *path) {
    pthread_once(&once, start);
    int result = real_unlink(path);
    if (!result) note_unlink(AT_FDCWD, path);
    return result;
}

int unlinkat(int dirfd, const char *path, int flags) {
    pthread_once(&once, start);
    int result = real_unlinkat(dirfd, path, flags);
    if (!result && !(flags & AT_REMOVEDIR)) note_unlink(dirfd, path);
    return result;
}

int rename(const char *from, const char *to) {
    pthread_once(&once, start);
    int result = real_rename(from, to);
    if (!result) note_rename(from, to);
    return result;
}

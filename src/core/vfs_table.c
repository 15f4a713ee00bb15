/* The table of system calls behind vfs.h, and faults for tests: every call of the library goes
 * through a wrapper that can be made to fail. Used by vfs.c and, through lvni_core_vfs_get, by the
 * code that reads or links files itself. */
#include "core/vfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the real table ---- */

static int real_open(const char *path, int flags, mode_t mode)
{
    return open(path, flags, mode);
}

static int real_link(const char *from, const char *to)
{
    return linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW);
}

static const lvni_core_vfs real_vfs = {
    .open = real_open,
    .write = write,
    .read = read,
    .fsync = fsync,
    .close = close,
    .rename = rename,
    .unlink = unlink,
    .link = real_link,
    .mkdir = mkdir,
};

static const lvni_core_vfs *current = &real_vfs; /* what the wrappers call */

void lvni_core_vfs_set(const lvni_core_vfs *vfs)
{
    current = vfs != NULL ? vfs : &real_vfs;
}

/* ---- faults ---- */

enum fault_kind { OPEN, WRITE, SHORT, ROOM, FSYNC, CLOSE, RENAME, MKDIR, LINK, READ, KINDS };

static const char *const kind_names[KINDS] = {"open",  "write",  "short", "room", "fsync",
                                              "close", "rename", "mkdir", "link", "read"};

/* Atomic because the writer thread calls while a test sets. */
static struct fault {
    _Atomic int64_t calls;
    _Atomic int64_t fail_at; /* 0 = never */
    _Atomic int error;
} faults[KINDS];

static int kind_of(const char *name)
{
    for (int i = 0; i < KINDS; i++) {
        if (strcmp(kind_names[i], name) == 0) {
            return i;
        }
    }
    fprintf(stderr, "vfs: no kind of call named \"%s\"\n", name);
    abort(); /* a misspelt test must not pass */
}

void lvni_core_vfs_fail_at(const char *kind, int64_t k, int error)
{
    for (int i = 0; k == 0 && i < KINDS; i++) {
        atomic_store(&faults[i].fail_at, 0);
        atomic_store(&faults[i].calls, 0);
    }
    if (k > 0) {
        struct fault *f = &faults[kind_of(kind)];
        atomic_store(&f->calls, 0);
        atomic_store(&f->error, error);
        atomic_store(&f->fail_at, k);
    }
}

int64_t lvni_core_vfs_calls(const char *kind)
{
    return atomic_load(&faults[kind_of(kind)].calls);
}

/* Counts a call; true (errno set) when it is the one that has to fail. */
static bool faulty(enum fault_kind kind)
{
    struct fault *f = &faults[kind];
    const int64_t n = atomic_fetch_add(&f->calls, 1) + 1;
    if (n != atomic_load(&f->fail_at)) {
        return false;
    }
    errno = atomic_load(&f->error);
    return true;
}

/* ---- the wrappers ---- */

static int may_open(const char *path, int flags, mode_t mode);
static ssize_t may_write(int fd, const void *buf, size_t n);
static ssize_t may_read(int fd, void *buf, size_t n);
static int may_fsync(int fd);
static int may_close(int fd);
static int may_rename(const char *from, const char *to);
static int may_unlink(const char *path);
static int may_link(const char *from, const char *to);
static int may_mkdir(const char *path, mode_t mode);

static const lvni_core_vfs wrappers = {
    .open = may_open,
    .write = may_write,
    .read = may_read,
    .fsync = may_fsync,
    .close = may_close,
    .rename = may_rename,
    .unlink = may_unlink,
    .link = may_link,
    .mkdir = may_mkdir,
};

const lvni_core_vfs *lvni_core_vfs_get(void)
{
    return &wrappers;
}

/* A test's table is often a copy of lvni_core_vfs_get() with one function exchanged: the others
 * mean the real ones. */
#define BEHIND(name) (current->name == may_##name ? real_vfs.name : current->name)

static int may_open(const char *path, int flags, mode_t mode)
{
    return faulty(OPEN) ? -1 : BEHIND(open)(path, flags, mode);
}

/* How many of n bytes the disk still takes. */
static size_t room_for(size_t n)
{
    const int64_t first_bad = atomic_load(&faults[ROOM].fail_at);
    if (first_bad == 0) {
        return n;
    }
    const int64_t left = first_bad - 1 - atomic_load(&faults[ROOM].calls);
    return left <= 0 ? 0 : left < (int64_t)n ? (size_t)left : n;
}

static ssize_t may_write(int fd, const void *buf, size_t n)
{
    if (faulty(WRITE)) {
        return -1;
    }
    const size_t wanted = faulty(SHORT) ? (n + 1) / 2 : n, fits = room_for(wanted);
    if (fits == 0 && wanted > 0) {
        errno = atomic_load(&faults[ROOM].error);
        return -1;
    }
    const ssize_t done = BEHIND(write)(fd, buf, fits);
    atomic_fetch_add(&faults[ROOM].calls, done > 0 ? done : 0);
    return done;
}

static ssize_t may_read(int fd, void *buf, size_t n)
{
    return faulty(READ) ? -1 : BEHIND(read)(fd, buf, n);
}

static int may_fsync(int fd)
{
    return faulty(FSYNC) ? -1 : BEHIND(fsync)(fd);
}

/* Linux gives the descriptor back even when close fails, so an injected failure closes as well. */
static int may_close(int fd)
{
    const bool broken = faulty(CLOSE);
    const int error = errno;
    const int rc = BEHIND(close)(fd);
    if (broken) {
        errno = error;
    }
    return broken ? -1 : rc;
}

static int may_rename(const char *from, const char *to)
{
    return faulty(RENAME) ? -1 : BEHIND(rename)(from, to);
}

static int may_unlink(const char *path)
{
    return BEHIND(unlink)(path);
}

static int may_link(const char *from, const char *to)
{
    return faulty(LINK) ? -1 : BEHIND(link)(from, to);
}

static int may_mkdir(const char *path, mode_t mode)
{
    return faulty(MKDIR) ? -1 : BEHIND(mkdir)(path, mode);
}

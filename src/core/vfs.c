/* File functions over a replaceable table of system calls, with fault injection (vfs.h).
 * Called by the checkpoint writer, the loggers, the configuration reader and everything else that touches a
 * file. */
#include "core/vfs.h"

#include "core/alloc.h"

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

static const lvni_vfs real_vfs = {
    .open = real_open,
    .write = write,
    .read = read,
    .fsync = fsync,
    .close = close,
    .rename = rename,
    .unlink = unlink,
    .link = link,
    .mkdir = mkdir,
};

static const lvni_vfs *current = &real_vfs;

const lvni_vfs *lvni_vfs_get(void)
{
    return current;
}

void lvni_vfs_set(const lvni_vfs *vfs)
{
    current = vfs != NULL ? vfs : &real_vfs;
}

/* ---- faults ---- */

enum fault_kind { OPEN, WRITE, SHORT, FSYNC, CLOSE, RENAME, MKDIR, LINK, READ, KINDS };

static const char *const kind_names[KINDS] = {"open",   "write", "short", "fsync", "close",
                                              "rename", "mkdir", "link",  "read"};

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

void lvni_vfs_fail_at(const char *kind, int64_t k, int error)
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

int64_t lvni_vfs_calls(const char *kind)
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

/* ---- single calls: faults, table, EINTR ---- */

static int call_open(const char *path, int flags)
{
    int fd = -1;
    do {
        fd = faulty(OPEN) ? -1 : current->open(path, flags | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

static ssize_t call_write(int fd, const void *buf, size_t n)
{
    ssize_t done = -1;
    do {
        if (faulty(WRITE)) {
            done = -1;
        } else {
            done = current->write(fd, buf, faulty(SHORT) ? (n + 1) / 2 : n);
        }
    } while (done < 0 && errno == EINTR);
    return done;
}

static ssize_t call_read(int fd, void *buf, size_t n)
{
    ssize_t done = -1;
    do {
        done = faulty(READ) ? -1 : current->read(fd, buf, n);
    } while (done < 0 && errno == EINTR);
    return done;
}

static int call_fsync(int fd)
{
    int rc = -1;
    do {
        rc = faulty(FSYNC) ? -1 : current->fsync(fd);
    } while (rc < 0 && errno == EINTR);
    return rc;
}

/* Linux gives the descriptor back even when close fails, so an injected failure closes as well and nothing
 * retries. */
static int call_close(int fd)
{
    const bool broken = faulty(CLOSE);
    const int error = errno;
    const int rc = current->close(fd);
    if (broken) {
        errno = error;
    }
    return broken ? -1 : rc;
}

static int call_rename(const char *from, const char *to)
{
    return faulty(RENAME) ? -1 : current->rename(from, to);
}

static int call_mkdir(const char *path)
{
    return faulty(MKDIR) ? -1 : current->mkdir(path, 0777);
}

static const char *advice(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT: return "; free some space or choose another place";
    case EACCES:
    case EPERM:
    case EROFS: return "; check the permissions or choose another place";
    case ENOENT: return "; check the path";
    case ENOTDIR: return "; a part of the path is a file";
    case EMFILE: return "; raise the limit on open files (ulimit -n)";
    default: return "";
    }
}

#define FAIL_ERRNO(verb, path) return io_error(__LINE__, (verb), (path), errno)

static lvn_status io_error(int line, const char *verb, const char *path, int error)
{
    char text[128];
    const char *why = strerror_r(error, text, sizeof text);
    return lvn_error_set(error == ENOENT ? LVN_ERR_NOT_FOUND : LVN_ERR_IO, __FILE__, line,
                         "cannot %s \"%s\": %s%s", verb, path, why, advice(error));
}

/* Writes all bytes; short writes are continued. A write of nothing would go on for ever: taken as an error.
 */
static lvn_status write_all(int fd, const char *path, const char *data, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t n = call_write(fd, data, bytes);
        if (n == 0) {
            errno = EIO;
        }
        if (n <= 0) {
            FAIL_ERRNO("write", path);
        }
        data += n;
        bytes -= (size_t)n;
    }
    return LVN_OK;
}

/* ---- atomic files ---- */

struct lvni_atomic_file {
    int fd;
    char *path, *temp, *dir;
};

static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) {
        return lvni_strdup(LVNI_TAG_CORE, ".");
    }
    const size_t n = slash == path ? 1 : (size_t)(slash - path);
    char *dir = lvni_alloc(LVNI_TAG_CORE, n + 1);
    if (dir != NULL) {
        memcpy(dir, path, n);
        dir[n] = '\0';
    }
    return dir;
}

static char *temp_name_of(const char *path)
{
    const size_t room = strlen(path) + 32;
    char *temp = lvni_alloc(LVNI_TAG_CORE, room);
    if (temp != NULL) {
        snprintf(temp, room, "%s.tmp-%ld", path, (long)getpid());
    }
    return temp;
}

static void atomic_free(lvni_atomic_file *f)
{
    lvni_free(f->path);
    lvni_free(f->temp);
    lvni_free(f->dir);
    lvni_free(f);
}

lvn_status lvni_atomic_open(const char *path, lvni_atomic_file **out)
{
    *out = NULL;
    lvni_atomic_file *f = LVNI_NEW(LVNI_TAG_CORE, lvni_atomic_file);
    if (f == NULL) {
        return LVN_ERR_MEMORY;
    }
    f->path = lvni_strdup(LVNI_TAG_CORE, path);
    f->temp = temp_name_of(path);
    f->dir = directory_of(path);
    if (f->path == NULL || f->temp == NULL || f->dir == NULL) {
        atomic_free(f);
        return LVN_ERR_MEMORY;
    }
    f->fd = call_open(f->temp, O_WRONLY | O_CREAT | O_TRUNC);
    if (f->fd < 0) {
        const int error = errno;
        atomic_free(f);
        return io_error(__LINE__, "create", path, error);
    }
    *out = f;
    return LVN_OK;
}

lvn_status lvni_atomic_write(lvni_atomic_file *f, const void *data, size_t bytes)
{
    return write_all(f->fd, f->path, data, bytes);
}

/* Some file systems cannot sync a directory and say so with EINVAL or ENOTSUP; there is nothing more to do
 * there. */
static lvn_status sync_directory(int dir_fd, const char *path)
{
    if (call_fsync(dir_fd) != 0 && errno != EINVAL && errno != ENOTSUP) {
        FAIL_ERRNO(
            "make durable (the new content is in place, a power cut may lose it) the directory entry of",
            path);
    }
    return LVN_OK;
}

/* Everything that can fail and leave the old content in place comes before the rename, also opening the
 * directory. */
static lvn_status commit_steps(lvni_atomic_file *f, int *dir_fd)
{
    if (call_fsync(f->fd) != 0) {
        FAIL_ERRNO("sync", f->path);
    }
    const int fd = f->fd;
    f->fd = -1;
    if (call_close(fd) != 0) {
        FAIL_ERRNO("close", f->path);
    }
    *dir_fd = call_open(f->dir, O_RDONLY | O_DIRECTORY);
    if (*dir_fd < 0) {
        FAIL_ERRNO("open the directory", f->dir);
    }
    if (call_rename(f->temp, f->path) != 0) {
        FAIL_ERRNO("rename the finished temporary file to", f->path);
    }
    f->temp[0] = '\0'; /* it is `path` now: nothing to unlink */
    return sync_directory(*dir_fd, f->path);
}

lvn_status lvni_atomic_commit(lvni_atomic_file *f)
{
    int dir_fd = -1;
    const lvn_status status = commit_steps(f, &dir_fd);
    if (dir_fd >= 0) {
        (void)call_close(dir_fd); /* opened for reading: nothing can be lost */
    }
    lvni_atomic_abort(f);
    return status;
}

void lvni_atomic_abort(lvni_atomic_file *f)
{
    if (f == NULL) {
        return;
    }
    if (f->fd >= 0) {
        (void)call_close(f->fd);
    }
    if (f->temp[0] != '\0') {
        (void)current->unlink(f->temp);
    }
    atomic_free(f);
}

/* ---- whole files ---- */

static size_t size_hint(int fd, size_t max_bytes)
{
    struct stat st;
    const size_t hint = fstat(fd, &st) == 0 && st.st_size > 0 ? (size_t)st.st_size : 4096;
    return hint < max_bytes ? hint : max_bytes;
}

/* Reads to the end, also of pipes and of files whose size is not known beforehand. */
static lvn_status read_all(int fd, const char *path, size_t max_bytes, char **data, size_t *bytes)
{
    size_t room = size_hint(fd, max_bytes) + 1; /* one byte more: the end shows without growing */
    size_t used = 0;
    *data = lvni_alloc(LVNI_TAG_CORE, room + 1);
    while (*data != NULL) {
        const ssize_t n = call_read(fd, *data + used, room - used);
        if (n < 0) {
            FAIL_ERRNO("read", path);
        }
        used += (size_t)n;
        if (used > max_bytes) {
            LVN_FAIL(LVN_ERR_IO, "\"%s\" is larger than the %zu bytes that are read of such a file", path,
                     max_bytes);
        }
        if (n == 0) {
            (*data)[used] = '\0';
            *bytes = used;
            return LVN_OK;
        }
        if (used == room) {
            room *= 2;
            char *more = lvni_realloc(LVNI_TAG_CORE, *data, room + 1);
            if (more == NULL) {
                return LVN_ERR_MEMORY;
            }
            *data = more;
        }
    }
    return LVN_ERR_MEMORY;
}

lvn_status lvni_file_read(const char *path, size_t max_bytes, char **data, size_t *bytes)
{
    *data = NULL;
    *bytes = 0;
    const int fd = call_open(path, O_RDONLY);
    if (fd < 0) {
        FAIL_ERRNO("open", path);
    }
    char *content = NULL;
    const lvn_status status = read_all(fd, path, max_bytes, &content, bytes);
    (void)call_close(fd);
    if (status != LVN_OK) {
        lvni_free(content);
        *bytes = 0;
        return status;
    }
    *data = content;
    return LVN_OK;
}

lvn_status lvni_file_write(const char *path, const void *data, size_t bytes)
{
    lvni_atomic_file *f = NULL;
    lvn_status status = lvni_atomic_open(path, &f);
    if (f == NULL) {
        return status;
    }
    status = lvni_atomic_write(f, data, bytes);
    if (status != LVN_OK) {
        lvni_atomic_abort(f);
        return status;
    }
    return lvni_atomic_commit(f);
}

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Asks mkdir first and stat only when it failed: another process may make the same directory at the same
 * time. */
static lvn_status make_one(const char *path)
{
    if (call_mkdir(path) == 0) {
        return LVN_OK;
    }
    const int error = errno;
    if (is_directory(path)) {
        return LVN_OK;
    }
    return io_error(__LINE__, "make the directory", path,
                    error == EEXIST ? ENOTDIR : error); /* a file has this name */
}

lvn_status lvni_mkdirs(const char *path)
{
    if (is_directory(path)) {
        return LVN_OK;
    }
    char *copy = lvni_strdup(LVNI_TAG_CORE, path);
    if (copy == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status status = LVN_OK;
    for (char *p = copy + 1; copy[0] != '\0' && *p != '\0' && status == LVN_OK; p++) {
        if (*p == '/' && p[-1] != '/') {
            *p = '\0';
            status = is_directory(copy) ? LVN_OK : make_one(copy);
            *p = '/';
        }
    }
    if (status == LVN_OK && !is_directory(copy)) { /* "a/b/" is complete already */
        status = make_one(copy);
    }
    lvni_free(copy);
    return status;
}

bool lvni_path_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* ---- append-only files ---- */

lvn_status lvni_append_open(const char *path, bool truncate, int *fd)
{
    *fd = call_open(path, O_WRONLY | O_CREAT | O_APPEND | (truncate ? O_TRUNC : 0));
    if (*fd < 0) {
        FAIL_ERRNO("open for appending", path);
    }
    return LVN_OK;
}

lvn_status lvni_append_write(int fd, const char *path, const void *data, size_t bytes)
{
    return write_all(fd, path, data, bytes);
}

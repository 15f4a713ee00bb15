/* File functions over a replaceable table of system calls (vfs.h; the table itself and its faults:
 * vfs_table.c; reading: vfs_read.c). Called by the checkpoint writer, the loggers, the
 * configuration reader and everything else that touches a file. */
#include "core/error.h"
#include "core/vfs_impl.h"

#include "core/alloc.h"
#include "core/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- single calls, again when a signal came between ---- */

int lvni_core_call_open(const char *path, int flags)
{
    int fd = -1;
    do {
        fd = lvni_core_vfs_get()->open(path, flags | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

static ssize_t call_write(int fd, const void *buf, size_t n)
{
    ssize_t done = -1;
    do {
        done = lvni_core_vfs_get()->write(fd, buf, n);
    } while (done < 0 && errno == EINTR);
    return done;
}

ssize_t lvni_core_call_read(int fd, void *buf, size_t n)
{
    ssize_t done = -1;
    do {
        done = lvni_core_vfs_get()->read(fd, buf, n);
    } while (done < 0 && errno == EINTR);
    return done;
}

static int call_fsync(int fd)
{
    int rc = -1;
    do {
        rc = lvni_core_vfs_get()->fsync(fd);
    } while (rc < 0 && errno == EINTR);
    return rc;
}

static const char *advice(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT: return "; free some space or choose another place";
    case EFBIG:
        return "; files may not grow so large here: raise the limit (ulimit -f) or choose another "
               "place";
    case EACCES:
    case EPERM:
    case EROFS: return "; check the permissions or choose another place";
    case ENOENT: return "; check the path";
    case ENOTDIR: return "; a part of the path is a file";
    case EMFILE: return "; raise the limit on open files (ulimit -n)";
    default: return "";
    }
}

lvn_status lvni_core_io_error(const char *file, int line, const char *verb, const char *path,
                              int error)
{
    char text[128];
    const char *why = strerror_r(error, text, sizeof text);
    return lvn_error_set(error == ENOENT ? LVN_ERR_NOT_FOUND : LVN_ERR_IO, file, line,
                         "cannot %s \"%s\": %s%s", verb, path, why, advice(error));
}

/* Writes all bytes; short writes are continued. A write of nothing would go on for ever: taken as
 * an error. */
static lvn_status write_all(int fd, const char *path, const char *data, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t n = call_write(fd, data, bytes < LVNI_PACE_BYTES ? bytes : LVNI_PACE_BYTES);
        if (n == 0) {
            errno = EIO;
        }
        if (n <= 0) {
            LVNI_FAIL_ERRNO("write", path);
        }
        data += n;
        bytes -= (size_t)n;
        lvni_core_thread_worked((size_t)n);
    }
    return LVN_OK;
}

/* ---- atomic files ---- */

struct lvni_core_atomic_file {
    int fd;
    char *path, *temp, *dir;
    bool named;  /* temp is in the directory */
    bool output; /* standard output itself, which is not ours to close */
};

enum { TEMP_NAMES = 1000, SUFFIX_ROOM = 40 };

static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) {
        return lvni_core_strdup(LVNI_TAG_CORE, ".");
    }
    const size_t n = slash == path ? 1 : (size_t)(slash - path);
    char *dir = lvni_core_alloc(LVNI_TAG_CORE, n + 1);
    if (dir != NULL) {
        memcpy(dir, path, n);
        dir[n] = '\0';
    }
    return dir;
}

/* "<path>.tmp-<pid>"; behind it "-<i>" where that name is taken: by a process that died with our
 * number, by one of another machine or container, or by a trap. */
static void name_temp(lvni_core_atomic_file *f, int i)
{
    const size_t room = strlen(f->path) + SUFFIX_ROOM;
    const int n = snprintf(f->temp, room, "%s.tmp-%ld", f->path, (long)getpid());
    if (i > 0) {
        snprintf(f->temp + n, room - (size_t)n, "-%d", i);
    }
}

/* A file that has no name: the kernel takes it away with a process that is killed. */
static int open_nameless(const lvni_core_atomic_file *f)
{
    if (!lvni_core_path_exists("/proc/self/fd")) { /* its way to a name */
        errno = EOPNOTSUPP;
        return -1;
    }
    return lvni_core_call_open(f->dir, O_WRONLY | O_TMPFILE);
}

/* Where the file system knows none of these (NFS, older kernels): one that is ours for sure. */
static int open_named(lvni_core_atomic_file *f)
{
    int fd = -1;
    for (int i = 0; i < TEMP_NAMES; i++) {
        name_temp(f, i);
        fd = lvni_core_call_open(f->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
        if (fd >= 0 || errno != EEXIST) {
            break;
        }
    }
    f->named = fd >= 0;
    return fd;
}

static int open_temp(lvni_core_atomic_file *f)
{
    const int fd = open_nameless(f);
    const bool unknown = fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL);
    return unknown ? open_named(f) : fd;
}

/* Into a file that has a name, read through a descriptor of its own: ours is at the end. */
static lvn_status copy_to_named(lvni_core_atomic_file *f, const char *open_file)
{
    char buffer[16 << 10];
    const int in = lvni_core_call_open(open_file, O_RDONLY), out = in < 0 ? -1 : open_named(f);
    lvn_status status = LVN_OK;
    ssize_t n = out < 0 ? -1 : 1;
    while (n > 0) {
        n = lvni_core_call_read(in, buffer, sizeof buffer);
        LVNI_TRY_DONE(status, n > 0 ? write_all(out, f->path, buffer, (size_t)n) : LVN_OK);
    }
    if (n < 0 || call_fsync(out) != 0) {
        status = lvni_core_io_error(__FILE__, __LINE__, "copy the finished temporary file to",
                                    f->path, errno);
    }
done:
    if (in >= 0) {
        (void)lvni_core_vfs_get()->close(in); /* opened for reading: nothing can be lost */
    }
    if (out >= 0) {
        (void)lvni_core_vfs_get()->close(f->fd); /* nameless, and not wanted any more */
        f->fd = out;
    }
    return status;
}

/* link replaces nothing, and follows nothing but the way to the open file. */
static lvn_status give_name(lvni_core_atomic_file *f)
{
    char open_file[64];
    snprintf(open_file, sizeof open_file, "/proc/self/fd/%d", f->fd);
    for (int i = 0; i < TEMP_NAMES && !f->named; i++) {
        name_temp(f, i);
        f->named = lvni_core_vfs_get()->link(open_file, f->temp) == 0;
        if (!f->named && errno != EEXIST) {
            break;
        }
    }
    return f->named ? LVN_OK : copy_to_named(f, open_file); /* no links here */
}

static void atomic_free(lvni_core_atomic_file *f)
{
    lvni_core_free(f->path);
    lvni_core_free(f->temp);
    lvni_core_free(f->dir);
    lvni_core_free(f);
}

/* The file behind a link, so that the link stays; devices and pipes cannot be replaced by a
 * finished file. */
static lvn_status resolve(const char **path, char real[PATH_MAX])
{
    struct stat s;
    if (lstat(*path, &s) != 0) {
        return LVN_OK; /* not there yet, or opening reports why not */
    }
    if (S_ISLNK(s.st_mode)) {
        if (stat(*path, &s) != 0) {
            return LVN_OK; /* leads nowhere: becomes a file */
        }
        *path = realpath(*path, real) != NULL ? real : *path;
    }
    if (!S_ISREG(s.st_mode)) {
        LVN_FAIL(LVN_ERR_USAGE, "%s is %s: give the name of a file to write", *path,
                 S_ISDIR(s.st_mode) ? "a folder"
                                    : "a device or pipe, and levin writes whole files");
    }
    return LVN_OK;
}

lvn_status lvni_core_file_check(const char *path)
{
    lvni_core_atomic_file *f = NULL;
    LVN_TRY(lvni_core_atomic_open(path, &f));
    lvni_core_atomic_abort(f);
    return LVN_OK;
}

static lvn_status open_output(lvni_core_atomic_file **out)
{
    if (fflush(stdout) != 0) { /* what was printed before comes first */
        LVNI_FAIL_ERRNO("write", LVNI_STDOUT_PATH);
    }
    lvni_core_atomic_file *f = LVNI_NEW(LVNI_TAG_CORE, lvni_core_atomic_file);
    if (f == NULL) {
        return LVN_ERR_MEMORY;
    }
    *f = (lvni_core_atomic_file){.fd = STDOUT_FILENO, .output = true};
    f->path = lvni_core_strdup(LVNI_TAG_CORE, LVNI_STDOUT_PATH);
    if (f->path == NULL) {
        atomic_free(f);
        return LVN_ERR_MEMORY;
    }
    *out = f;
    return LVN_OK;
}

lvn_status lvni_core_atomic_open(const char *path, lvni_core_atomic_file **out)
{
    char real[PATH_MAX];
    *out = NULL;
    if (strcmp(path, LVNI_STDOUT_PATH) == 0) {
        return open_output(out);
    }
    LVN_TRY(resolve(&path, real));
    lvni_core_atomic_file *f = LVNI_NEW(LVNI_TAG_CORE, lvni_core_atomic_file);
    if (f == NULL) {
        return LVN_ERR_MEMORY;
    }
    f->path = lvni_core_strdup(LVNI_TAG_CORE, path);
    f->temp = lvni_core_alloc(LVNI_TAG_CORE, strlen(path) + SUFFIX_ROOM);
    f->dir = directory_of(path);
    if (f->path == NULL || f->temp == NULL || f->dir == NULL) {
        atomic_free(f);
        return LVN_ERR_MEMORY;
    }
    f->fd = open_temp(f);
    if (f->fd < 0) {
        const int error = errno;
        atomic_free(f);
        return lvni_core_io_error(__FILE__, __LINE__, "create", path, error);
    }
    *out = f;
    return LVN_OK;
}

lvn_status lvni_core_atomic_write(lvni_core_atomic_file *f, const void *data, size_t bytes)
{
    return write_all(f->fd, f->path, data, bytes);
}

lvn_status lvni_core_atomic_seek(lvni_core_atomic_file *f, int64_t at)
{
    if (lseek(f->fd, (off_t)at, SEEK_SET) < 0) {
        LVNI_FAIL_ERRNO("go to another place of", f->path);
    }
    return LVN_OK;
}

/* Some file systems cannot sync a directory (EINVAL, ENOTSUP); there is nothing more to do
 * there. */
static lvn_status sync_directory(int dir_fd, const char *path)
{
    if (call_fsync(dir_fd) != 0 && errno != EINVAL && errno != ENOTSUP) {
        LVNI_FAIL_ERRNO("make durable (the new content is in place, a power cut may lose it) the "
                        "directory entry of",
                        path);
    }
    return LVN_OK;
}

/* Everything that can fail and leave the old content in place comes before the rename, also opening
 * the directory. */
static lvn_status commit_steps(lvni_core_atomic_file *f, int *dir_fd)
{
    if (call_fsync(f->fd) != 0) {
        LVNI_FAIL_ERRNO("sync", f->path);
    }
    *dir_fd = lvni_core_call_open(f->dir, O_RDONLY | O_DIRECTORY);
    if (*dir_fd < 0) {
        LVNI_FAIL_ERRNO("open the directory", f->dir);
    }
    LVN_TRY(give_name(f)); /* late: a kill between here and the rename leaves the name */
    const int fd = f->fd;
    f->fd = -1;
    if (lvni_core_vfs_get()->close(fd) != 0) {
        LVNI_FAIL_ERRNO("close", f->path);
    }
    if (lvni_core_vfs_get()->rename(f->temp, f->path) != 0) {
        LVNI_FAIL_ERRNO("rename the finished temporary file to", f->path);
    }
    f->named = false; /* it is `path` now: nothing to unlink */
    return sync_directory(*dir_fd, f->path);
}

lvn_status lvni_core_atomic_commit(lvni_core_atomic_file *f)
{
    int dir_fd = -1;
    const lvn_status status = f->output ? LVN_OK : commit_steps(f, &dir_fd);
    if (dir_fd >= 0) {
        (void)lvni_core_vfs_get()->close(dir_fd); /* opened for reading: nothing can be lost */
    }
    lvni_core_atomic_abort(f);
    return status;
}

void lvni_core_atomic_abort(lvni_core_atomic_file *f)
{
    if (f == NULL) {
        return;
    }
    if (f->fd >= 0 && !f->output) {
        (void)lvni_core_vfs_get()->close(f->fd);
    }
    if (f->named) {
        (void)lvni_core_vfs_get()->unlink(f->temp);
    }
    atomic_free(f);
}

/* ---- whole files ---- */

static lvn_status write_whole(const char *path, const void *data, size_t bytes, const mode_t *mode)
{
    lvni_core_atomic_file *f = NULL;
    lvn_status status = lvni_core_atomic_open(path, &f);
    if (f == NULL) {
        return status;
    }
    if (mode != NULL && fchmod(f->fd, *mode & 07777) != 0) {
        status = lvni_core_io_error(__FILE__, __LINE__, "set the permissions of", path, errno);
    } else {
        status = lvni_core_atomic_write(f, data, bytes);
    }
    if (status != LVN_OK) {
        lvni_core_atomic_abort(f);
        return status;
    }
    return lvni_core_atomic_commit(f);
}

lvn_status lvni_core_file_write(const char *path, const void *data, size_t bytes)
{
    return write_whole(path, data, bytes, NULL);
}

lvn_status lvni_core_file_rewrite(const char *path, const void *data, size_t bytes)
{
    struct stat s;
    return write_whole(path, data, bytes, stat(path, &s) == 0 ? &s.st_mode : NULL);
}

lvn_status lvni_core_file_remove(const char *path)
{
    if (lvni_core_vfs_get()->unlink(path) != 0 && errno != ENOENT) {
        LVNI_FAIL_ERRNO("remove", path);
    }
    return LVN_OK;
}

lvn_status lvni_core_folder_sync(const char *path)
{
    char *dir = directory_of(path);
    if (dir == NULL) {
        return LVN_ERR_MEMORY;
    }
    const int fd = lvni_core_call_open(dir, O_RDONLY | O_DIRECTORY);
    const int error = errno;
    lvn_status s = fd < 0 ? lvni_core_io_error(__FILE__, __LINE__, "open the directory", dir, error)
                          : sync_directory(fd, path);
    if (fd >= 0) {
        (void)lvni_core_vfs_get()->close(fd); /* opened for reading: nothing can be lost */
    }
    lvni_core_free(dir);
    return s;
}

bool lvni_core_path_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Asks mkdir first and stat only when it failed: another process may make the same directory at the
 * same time. */
static lvn_status make_one(const char *path)
{
    if (lvni_core_vfs_get()->mkdir(path, 0777) == 0) {
        return LVN_OK;
    }
    const int error = errno;
    if (lvni_core_path_is_folder(path)) {
        return LVN_OK;
    }
    return lvni_core_io_error(__FILE__, __LINE__, "make the directory", path,
                              error == EEXIST ? ENOTDIR : error); /* a file has this name */
}

lvn_status lvni_core_mkdirs(const char *path)
{
    if (lvni_core_path_is_folder(path)) {
        return LVN_OK;
    }
    char *copy = lvni_core_strdup(LVNI_TAG_CORE, path);
    if (copy == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status status = LVN_OK;
    for (char *p = copy + 1; copy[0] != '\0' && *p != '\0'; p++) {
        if (*p == '/' && p[-1] != '/') {
            *p = '\0';
            LVNI_TRY_DONE(status, lvni_core_path_is_folder(copy) ? LVN_OK : make_one(copy));
            *p = '/';
        }
    }
    if (!lvni_core_path_is_folder(copy)) { /* "a/b/" is complete already */
        status = make_one(copy);
    }
done:
    lvni_core_free(copy);
    return status;
}

bool lvni_core_path_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

void lvni_core_path_absolute(const char *path, lvni_core_str *out)
{
    char room[PATH_MAX];
    const char *here = path[0] == '/' ? NULL : getcwd(room, sizeof room);
    while (here != NULL && path[0] == '.' && (path[1] == '/' || path[1] == '\0')) {
        path += path[1] == '/' ? 2 : 1;
        path += strspn(path, "/");
    }
    if (here != NULL) {
        lvni_core_str_append(out, strcmp(here, "/") == 0 ? "" : here);
        lvni_core_str_append(out, path[0] == '\0' && strcmp(here, "/") != 0 ? "" : "/");
    }
    lvni_core_str_append(out, path);
}

/* ---- append-only files ---- */

lvn_status lvni_core_append_open(const char *path, bool truncate, int *fd)
{
    *fd = lvni_core_call_open(path, O_WRONLY | O_CREAT | O_APPEND | (truncate ? O_TRUNC : 0));
    if (*fd < 0) {
        LVNI_FAIL_ERRNO("open for appending", path);
    }
    return LVN_OK;
}

lvn_status lvni_core_append_write(int fd, const char *path, const void *data, size_t bytes)
{
    return write_all(fd, path, data, bytes);
}

/* Reading files (vfs.h): whole ones into memory, and those of data, which are refused where they
 * are not regular files. */
#include "core/vfs_impl.h"

#include "core/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

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
    *data = lvni_core_alloc(LVNI_TAG_CORE, room + 1);
    while (*data != NULL) {
        const ssize_t n = lvni_core_call_read(fd, *data + used, room - used);
        if (n < 0) {
            LVNI_FAIL_ERRNO("read", path);
        }
        used += (size_t)n;
        if (used > max_bytes) {
            LVN_FAIL(LVN_ERR_IO, "\"%s\" is larger than the %zu bytes that are read of such a file",
                     path, max_bytes);
        }
        if (n == 0) {
            (*data)[used] = '\0';
            *bytes = used;
            return LVN_OK;
        }
        if (used == room) {
            room *= 2;
            char *more = lvni_core_realloc(LVNI_TAG_CORE, *data, room + 1);
            if (more == NULL) {
                return LVN_ERR_MEMORY;
            }
            *data = more;
        }
    }
    return LVN_ERR_MEMORY;
}

static lvn_status not_regular(const char *path, mode_t mode)
{
    LVN_FAIL(LVN_ERR_IO, "%s: cannot read: it is %s, not a file%s", path,
             S_ISDIR(mode)    ? "a folder"
             : S_ISFIFO(mode) ? "a pipe"
             : S_ISSOCK(mode) ? "a socket"
                              : "a device",
             S_ISDIR(mode) ? "" : "; copy the data into a file");
}

/* A pipe opens at once, without waiting for its writer, and is then refused. */
static int open_regular(const char *path, struct stat *info)
{
    const int fd = lvni_core_call_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && fstat(fd, info) != 0) {
        const int error = errno;
        (void)lvni_core_vfs_get()->close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

lvn_status lvni_core_regular_open(const char *path, int *fd, uint64_t *bytes)
{
    struct stat info;
    LVN_TRY(lvni_core_regular_open_stat(path, fd, &info));
    *bytes = (uint64_t)info.st_size;
    return LVN_OK;
}

lvn_status lvni_core_regular_open_stat(const char *path, int *fd, struct stat *out)
{
    struct stat info;
    *fd = open_regular(path, &info);
    if (*fd < 0) {
        const int error = errno;
        LVN_FAIL(error == ENOENT || error == ENOTDIR ? LVN_ERR_NOT_FOUND : LVN_ERR_IO,
                 "%s: cannot open: %s", path, strerror(error));
    }
    if (!S_ISREG(info.st_mode)) {
        (void)lvni_core_vfs_get()->close(*fd);
        *fd = -1;
        return not_regular(path, info.st_mode);
    }
    *out = info;
    return LVN_OK;
}

static lvn_status read_and_close(int fd, const char *path, size_t max_bytes, char **data,
                                 size_t *bytes)
{
    char *content = NULL;
    const lvn_status status = read_all(fd, path, max_bytes, &content, bytes);
    (void)lvni_core_vfs_get()->close(fd);
    if (status != LVN_OK) {
        lvni_core_free(content);
        *bytes = 0;
        return status;
    }
    *data = content;
    return LVN_OK;
}

lvn_status lvni_core_regular_read(const char *path, size_t max_bytes, char **data, size_t *bytes)
{
    struct stat info;
    *data = NULL;
    *bytes = 0;
    const int fd = open_regular(path, &info);
    if (fd < 0) {
        LVNI_FAIL_ERRNO("open", path);
    }
    if (!S_ISREG(info.st_mode)) {
        (void)lvni_core_vfs_get()->close(fd);
        return not_regular(path, info.st_mode);
    }
    return read_and_close(fd, path, max_bytes, data, bytes);
}

lvn_status lvni_core_file_read(const char *path, size_t max_bytes, char **data, size_t *bytes)
{
    *data = NULL;
    *bytes = 0;
    const int fd = lvni_core_call_open(path, O_RDONLY);
    if (fd < 0) {
        LVNI_FAIL_ERRNO("open", path);
    }
    return read_and_close(fd, path, max_bytes, data, bytes);
}

/* ---- copies ---- */

enum { COPY_BYTES = 1 << 20 };

static lvn_status copy_content(int fd, const char *from, char *buffer, lvni_core_atomic_file *file)
{
    for (;;) {
        const ssize_t n = lvni_core_call_read(fd, buffer, COPY_BYTES);
        if (n < 0) {
            LVNI_FAIL_ERRNO("read", from);
        }
        if (n == 0) {
            return LVN_OK;
        }
        LVN_TRY(lvni_core_atomic_write(file, buffer, (size_t)n));
    }
}

static lvn_status copy_open_file(int fd, const char *from, const char *to)
{
    char *buffer = lvni_core_alloc(LVNI_TAG_CORE, COPY_BYTES);
    if (buffer == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_core_atomic_file *file = NULL;
    lvn_status status = lvni_core_atomic_open(to, &file);
    if (status == LVN_OK) {
        status = copy_content(fd, from, buffer, file);
        if (status == LVN_OK) {
            status = lvni_core_atomic_commit(file);
        } else {
            lvni_core_atomic_abort(file);
        }
    }
    lvni_core_free(buffer);
    return status;
}

lvn_status lvni_core_file_copy(const char *from, const char *to)
{
    int fd;
    uint64_t bytes;
    LVN_TRY(lvni_core_regular_open(from, &fd, &bytes));
    const lvn_status status = copy_open_file(fd, from, to);
    lvni_core_vfs_get()->close(fd); /* opened for reading: nothing can be lost */
    return status;
}

/* All file writing of levin goes through this table of functions, so that a test can break the
 * disk. Paths are bytes as the system has them. Every function returns LVN_OK or records LVN_ERR_IO
 * / LVN_ERR_NOT_FOUND with path, what was tried and the system's reason. */
#ifndef LEVIN_CORE_VFS_H
#define LEVIN_CORE_VFS_H

#include "core/str.h"
#include <sys/types.h>

/* The system calls, replaceable. Each returns what the system call returns and sets errno. */
typedef struct lvni_core_vfs {
    int (*open)(const char *path, int flags, mode_t mode);
    ssize_t (*write)(int fd, const void *buf, size_t n);
    ssize_t (*read)(int fd, void *buf, size_t n);
    int (*fsync)(int fd);
    int (*close)(int fd);
    int (*rename)(const char *from, const char *to);
    int (*unlink)(const char *path);
    int (*link)(const char *from, const char *to); /* linkat, and follows links of `from` */
    int (*mkdir)(const char *path, mode_t mode);
} lvni_core_vfs;

/* The table to call: what lvni_core_vfs_set gave, behind the faults below. Tests replace it (a copy
 * of this one with some functions exchanged) and put NULL back for the real one. Not
 * thread-safe. */
const lvni_core_vfs *lvni_core_vfs_get(void);
void lvni_core_vfs_set(const lvni_core_vfs *vfs);
/* Faults for tests: the k-th call (1 = next) of a kind fails with `error` (errno value); for
 * "short" the k-th write writes half; for "room" byte k and all behind it do not fit on the disk.
 * kind: "open" "write" "short" "room" "fsync" "close" "rename" "mkdir" "link" "read". k = 0
 * switches all off. The number of calls made of a kind (of "room": of bytes written) since the last
 * setting is lvni_core_vfs_calls(kind). */
void lvni_core_vfs_fail_at(const char *kind, int64_t k, int error);
int64_t lvni_core_vfs_calls(const char *kind);

/* A file being written beside `path`: without a name where the file system has such files, so that
 * a process that is killed leaves nothing; else as "<path>.tmp-<pid>", always a new file, never
 * through a link. commit: fsync, name it so, close, rename over `path`, fsync the directory (killed
 * between the name and the rename, a process leaves the whole file under the first name). abort
 * (or a failed commit): close and unlink the temporary; `path` keeps its old content. One failure
 * is different: when only the directory cannot be synced, commit reports it although `path` already
 * has the new content (whole, but a power cut may bring the old one back). No failure leaves the
 * temporary file behind. */
typedef struct lvni_core_atomic_file lvni_core_atomic_file;
/* This path is not a file that is replaced: data goes to standard output at once, and an abort
 * cannot take it back. */
#define LVNI_STDOUT_PATH "/dev/stdout"
lvn_status lvni_core_atomic_open(const char *path, lvni_core_atomic_file **out);
lvn_status lvni_core_atomic_write(lvni_core_atomic_file *f, const void *data,
                                  size_t bytes); /* retries short writes and EINTR */
/* Where the next bytes go, counted from the file's beginning. */
lvn_status lvni_core_atomic_seek(lvni_core_atomic_file *f, int64_t at);
lvn_status lvni_core_atomic_commit(lvni_core_atomic_file *f); /* frees f in every case */
void lvni_core_atomic_abort(lvni_core_atomic_file *f);        /* frees f; NULL is fine */

/* Opens a file that holds data: weights, a checkpoint, images. A folder, a pipe and a device are
 * refused at once: opening a pipe waits for its writer, and reading a device may never end. *fd -1:
 * not open. LVN_ERR_NOT_FOUND, LVN_ERR_IO. */
lvn_status lvni_core_regular_open(const char *path, int *fd, uint64_t *bytes);
struct stat;
lvn_status lvni_core_regular_open_stat(const char *path, int *fd, struct stat *out);
/* A whole one in memory, as lvni_core_file_read. */
lvn_status lvni_core_regular_read(const char *path, size_t max_bytes, char **data, size_t *bytes);
/* Whole small files, also from a pipe (configuration, variables of an environment). *data is
 * zero-terminated beyond its size, owned by the caller (lvni_core_free). */
lvn_status lvni_core_file_read(const char *path, size_t max_bytes, char **data, size_t *bytes);
/* Can it be written? Before long work whose result goes there; nothing is left behind.
 * LVN_ERR_USAGE: a folder, device or pipe. */
lvn_status lvni_core_file_check(const char *path);
/* through lvni_core_atomic_* */
lvn_status lvni_core_file_write(const char *path, const void *data, size_t bytes);
/* The same with the permissions of the file that is there. */
lvn_status lvni_core_file_rewrite(const char *path, const void *data, size_t bytes);
/* One that holds data, through lvni_core_atomic_* */
lvn_status lvni_core_file_copy(const char *from, const char *to);
lvn_status lvni_core_file_remove(const char *path); /* fine when it does not exist */
/* What was named and removed in the folder of this path stays so after a power cut. */
lvn_status lvni_core_folder_sync(const char *path);
lvn_status lvni_core_mkdirs(const char *path); /* with parents; fine when it exists */
bool lvni_core_path_exists(const char *path);
bool lvni_core_path_is_folder(const char *path); /* or a link to one */
/* The same path for every current directory, appended to out: of a relative one that of now stands
 * before it, without "./". As it is where that cannot be asked (it was removed). */
void lvni_core_path_absolute(const char *path, lvni_core_str *out);

/* Append-only files (logs): opened with O_APPEND | O_CLOEXEC; each write is one system call. */
lvn_status lvni_core_append_open(const char *path, bool truncate, int *fd);
lvn_status lvni_core_append_write(int fd, const char *path, const void *data, size_t bytes);

#endif

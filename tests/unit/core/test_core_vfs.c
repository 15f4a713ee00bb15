/* Files under faults: whatever fails, the old content stays, no temporary file is left, no
 * descriptor leaks. */
#include "core/alloc.h"
#include "core/vfs.h"
#include "support/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/levin-vfs-XXXXXX");
    return mkdtemp(dir) == NULL ? -1 : 0;
}

/* One level deep is enough for these tests. */
static void remove_tree(const char *path)
{
    DIR *d = opendir(path);
    if (d == NULL) {
        return;
    }
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        char name[512];
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            snprintf(name, sizeof name, "%s/%s", path, e->d_name);
            if (e->d_type == DT_DIR) {
                remove_tree(name);
            }
            (void)remove(name);
        }
    }
    closedir(d);
}

static int drop_dir(void **state)
{
    (void)state;
    lvni_core_vfs_fail_at(NULL, 0, 0);
    lvni_core_vfs_set(NULL);
    lvni_core_alloc_fail_at(0);
    remove_tree(dir);
    return rmdir(dir);
}

TEST_EACH(make_dir, drop_dir);

static const char *at(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int entries(const char *path)
{
    DIR *d = opendir(path);
    assert_non_null(d);
    int n = 0;
    while (readdir(d) != NULL) {
        n++;
    }
    closedir(d);
    return n - 2; /* . and .. */
}

static void assert_content(const char *path, const char *expected)
{
    char *data = NULL;
    size_t bytes = 0;
    assert_int_equal(lvni_core_file_read(path, 1000000, &data, &bytes), LVN_OK);
    assert_int_equal(bytes, strlen(expected));
    assert_string_equal(data, expected);
    lvni_core_free(data);
}

/* Three writes and a commit. */
static lvn_status write_three(const char *path)
{
    lvni_core_atomic_file *f = NULL;
    LVN_TRY(lvni_core_atomic_open(path, &f));
    static const char *const parts[] = {"new ", "content ", "here"};
    for (int i = 0; i < 3; i++) {
        const lvn_status status = lvni_core_atomic_write(f, parts[i], strlen(parts[i]));
        if (status != LVN_OK) {
            lvni_core_atomic_abort(f);
            return status;
        }
    }
    return lvni_core_atomic_commit(f);
}

TEST(atomic_file_replaces_content)
{
    assert_int_equal(lvni_core_file_write(at("a"), "old", 3), LVN_OK);
    assert_content(at("a"), "old");
    assert_int_equal(write_three(at("a")), LVN_OK);
    assert_content(at("a"), "new content here");
    assert_int_equal(entries(dir), 1);
}

/* A file system that knows no files without a name. */
static int open_without_nameless(const char *path, int flags, mode_t mode)
{
    if ((flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return open(path, flags, mode);
}

static void forbid_nameless(void)
{
    static lvni_core_vfs table;
    table = *lvni_core_vfs_get();
    table.open = open_without_nameless;
    lvni_core_vfs_set(&table);
}

static bool has_nameless(void)
{
    const int fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

/* named: what the other file system sees while the file is written. */
static void abort_keeps(bool named)
{
    assert_int_equal(lvni_core_file_write(at("a"), "old", 3), LVN_OK);
    lvni_core_atomic_file *f = NULL;
    assert_int_equal(lvni_core_atomic_open(at("a"), &f), LVN_OK);
    assert_int_equal(lvni_core_atomic_write(f, "half", 4), LVN_OK);
    assert_int_equal(entries(dir), named ? 2 : 1);
    lvni_core_atomic_abort(f);
    lvni_core_atomic_abort(NULL);
    assert_content(at("a"), "old");
    assert_int_equal(entries(dir), 1);
}

TEST(abort_keeps_the_old_content)
{
    abort_keeps(!has_nameless());
    forbid_nameless();
    abort_keeps(true);
}

/* Links to a file of ours, and to nothing, lie where the temporary will be. */
static void traps_are_left_alone(void)
{
    char trap[2][200], pointed[64];
    assert_int_equal(lvni_core_file_write(at("victim"), "mine", 4), LVN_OK);
    for (int i = 0; i < 2; i++) {
        snprintf(trap[i], sizeof trap[i], "%s.tmp-%ld%s", at("a"), (long)getpid(),
                 i == 0 ? "" : "-1");
    }
    assert_int_equal(symlink("victim", trap[0]), 0);
    assert_int_equal(symlink("made", trap[1]), 0);
    assert_int_equal(write_three(at("a")), LVN_OK);
    assert_content(at("a"), "new content here");
    assert_content(at("victim"), "mine");
    assert_false(lvni_core_path_exists(at("made")));
    for (int i = 0; i < 2; i++) {
        assert_true(readlink(trap[i], pointed, sizeof pointed) > 0);
        assert_int_equal(unlink(trap[i]), 0);
    }
    assert_int_equal(entries(dir), 2);
}

TEST(a_trap_under_the_temporary_name_is_left_alone)
{
    traps_are_left_alone();
    forbid_nameless();
    traps_are_left_alone();
}

TEST(a_killed_process_leaves_nothing)
{
    if (!has_nameless()) {
        print_message("the file system of /tmp has no files without a name: left out\n");
        skip();
    }
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        lvni_core_atomic_file *f = NULL;
        const bool open = lvni_core_atomic_open(at("a"), &f) == LVN_OK;
        _exit(open && lvni_core_atomic_write(f, "half", 4) == LVN_OK ? 9 : 1);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 9);
    assert_int_equal(entries(dir), 0);
}

static int no_links(const char *from, const char *to)
{
    (void)from, (void)to;
    errno = EPERM;
    return -1;
}

TEST(where_there_are_no_links_it_is_copied)
{
    lvni_core_vfs table = *lvni_core_vfs_get();
    table.link = no_links;
    lvni_core_vfs_set(&table);
    assert_int_equal(lvni_core_file_write(at("a"), "old", 3), LVN_OK);
    assert_int_equal(write_three(at("a")), LVN_OK);
    assert_content(at("a"), "new content here");
    lvni_core_vfs_fail_at("write", 4, ENOSPC); /* of the copy: three parts come before */
    assert_int_equal(write_three(at("a")), has_nameless() ? LVN_ERR_IO : LVN_OK);
    assert_int_equal(entries(dir), 1);
}

/* The sweep: every call of every kind fails once. Returns how many failed. */
static int sweep(const char *kind, int error)
{
    for (int k = 1;; k++) {
        assert_int_equal(lvni_core_file_write(at("a"), "old", 3), LVN_OK);
        const int fds = entries("/proc/self/fd");
        const uint64_t live = lvni_core_alloc_get_total().live_bytes;
        lvni_core_vfs_fail_at(kind, k, error);
        const lvn_status status = write_three(at("a"));
        const int64_t calls = lvni_core_vfs_calls(kind);
        lvni_core_vfs_fail_at(NULL, 0, 0);
        assert_int_equal(entries("/proc/self/fd"), fds);
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
        assert_int_equal(entries(dir), 1); /* no temporary file, success or not */
        if (status == LVN_OK && calls < k) {
            assert_content(at("a"), "new content here");
            return k - 1;
        }
        const bool in_place =
            (strcmp(kind, "fsync") == 0 && k == 2) || (strcmp(kind, "close") == 0 && k == 2);
        assert_content(at("a"), in_place ? "new content here" : "old");
        if (status != LVN_OK) {
            assert_int_equal(status, LVN_ERR_IO);
            assert_non_null(strstr(lvn_last_error()->message, dir));
            assert_non_null(strstr(lvn_last_error()->message, strerror(error)));
        }
    }
}

static void sweep_all(int opens)
{
    assert_int_equal(sweep("open", EMFILE), opens); /* the temporary, the directory */
    assert_int_equal(sweep("write", ENOSPC), 3);
    assert_int_equal(sweep("fsync", EIO), 2); /* the file; the directory after the rename */
    /* the file; the directory, where nothing can be lost */
    assert_int_equal(sweep("close", EIO), 2);
    assert_int_equal(sweep("rename", EACCES), 1);
}

TEST(every_failing_call_keeps_the_old_content)
{
    sweep_all(has_nameless() ? 2 : 3);
    forbid_nameless();
    sweep_all(3); /* a nameless one is asked for first */
}

TEST(a_directory_that_cannot_be_synced_is_an_error_after_the_rename)
{
    lvni_core_vfs_fail_at("fsync", 2, EIO);
    assert_int_equal(write_three(at("a")), LVN_ERR_IO);
    assert_non_null(strstr(lvn_last_error()->message, "in place"));
    lvni_core_vfs_fail_at("fsync", 2, EINVAL); /* a file system without directory syncs */
    assert_int_equal(write_three(at("a")), LVN_OK);
}

TEST(short_writes_and_interrupts_are_continued)
{
    for (int k = 1; k <= 3; k++) {
        lvni_core_vfs_fail_at("short", k, 0);
        assert_int_equal(write_three(at("a")), LVN_OK);
        /* three parts, one of them in two pieces */
        assert_int_equal(lvni_core_vfs_calls("short"), 4);
        assert_content(at("a"), "new content here");
    }
    static const char *const kinds[] = {"open", "write", "fsync"};
    for (int i = 0; i < 3; i++) {
        lvni_core_vfs_fail_at(NULL, 0, 0);
        lvni_core_vfs_fail_at(kinds[i], 1, EINTR);
        assert_int_equal(write_three(at("a")), LVN_OK);
    }
    lvni_core_vfs_fail_at(NULL, 0, 0);
    lvni_core_vfs_fail_at("short", 1, 0);
    lvni_core_vfs_fail_at("write", 2, ENOSPC); /* a disk that fills up in the middle of a write */
    assert_int_equal(write_three(at("a")), LVN_ERR_IO);
    assert_content(at("a"), "new content here");
}

static ssize_t write_nothing(int fd, const void *buf, size_t n)
{
    (void)fd, (void)buf, (void)n;
    return 0;
}

TEST(a_write_of_nothing_is_an_error_and_not_an_endless_loop)
{
    lvni_core_vfs table = *lvni_core_vfs_get();
    table.write = write_nothing;
    lvni_core_vfs_set(&table);
    assert_int_equal(write_three(at("a")), LVN_ERR_IO);
    lvni_core_vfs_set(NULL);
    assert_int_equal(entries(dir), 0);
}

TEST(allocation_failures_leave_nothing)
{
    assert_int_equal(lvni_core_file_write(at("a"), "old", 3), LVN_OK);
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    for (int k = 1; k <= 4; k++) {
        lvni_core_alloc_fail_at(k);
        assert_int_equal(write_three(at("a")), LVN_ERR_MEMORY);
        lvni_core_alloc_fail_at(0);
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
        assert_int_equal(entries(dir), 1);
        assert_content(at("a"), "old");
    }
}

TEST(missing_places_are_named)
{
    lvni_core_atomic_file *f = NULL;
    assert_int_equal(lvni_core_atomic_open(at("no/such/file"), &f), LVN_ERR_NOT_FOUND);
    assert_null(f);
    assert_non_null(strstr(lvn_last_error()->message, "no/such/file"));
    char *data = NULL;
    size_t bytes = 7;
    assert_int_equal(lvni_core_file_read(at("nothing"), 10, &data, &bytes), LVN_ERR_NOT_FOUND);
    assert_null(data);
    assert_int_equal(bytes, 0);
    assert_int_equal(lvni_core_file_read(dir, 10, &data, &bytes), LVN_ERR_IO); /* a directory */
    assert_false(lvni_core_path_exists(at("nothing")));
    assert_true(lvni_core_path_exists(dir));
}

TEST(reading_has_a_limit_and_needs_no_size)
{
    char *data = NULL;
    size_t bytes = 0;
    assert_int_equal(lvni_core_file_write(at("a"), "0123456789", 10), LVN_OK);
    assert_int_equal(lvni_core_file_read(at("a"), 9, &data, &bytes), LVN_ERR_IO);
    assert_non_null(strstr(lvn_last_error()->message, "9 bytes"));
    assert_null(data);
    assert_int_equal(lvni_core_file_read(at("a"), 10, &data, &bytes), LVN_OK);
    assert_int_equal(bytes, 10);
    lvni_core_free(data);
    assert_int_equal(lvni_core_file_write(at("empty"), "", 0), LVN_OK);
    assert_content(at("empty"), "");
    assert_int_equal(lvni_core_file_read("/proc/self/status", 100000, &data, &bytes),
                     LVN_OK); /* its size reads as 0 */
    assert_true(bytes > 100);
    lvni_core_free(data);
    lvni_core_vfs_fail_at("read", 2, EIO);
    assert_int_equal(lvni_core_file_read(at("a"), 10, &data, &bytes), LVN_ERR_IO);
    assert_null(data);
}

TEST(a_growing_read_keeps_every_byte)
{
    enum { BYTES = 30000 };
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    char *sent = calloc(1, BYTES);
    assert_non_null(sent);
    for (int i = 0; i < BYTES; i++) {
        sent[i] = (char)('a' + i % 23);
    }
    assert_int_equal(write(ends[1], sent, BYTES), BYTES); /* fits the pipe's 64 KiB */
    close(ends[1]);
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    char *data = NULL;
    size_t bytes = 0;
    assert_int_equal(lvni_core_file_read(path, 100000, &data, &bytes), LVN_OK);
    assert_int_equal(bytes, BYTES);
    assert_memory_equal(data, sent, BYTES);
    lvni_core_free(data);
    free(sent);
    close(ends[0]);
}

TEST(directories_are_made_with_parents)
{
    struct stat st;
    assert_int_equal(lvni_core_mkdirs(at("x//y/")), LVN_OK);
    assert_int_equal(stat(at("x/y"), &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_int_equal(lvni_core_mkdirs(at("x/y")), LVN_OK);
    assert_int_equal(lvni_core_mkdirs("/"), LVN_OK);
    assert_int_equal(lvni_core_file_write(at("file"), "", 0), LVN_OK);
    assert_int_equal(lvni_core_mkdirs(at("file/z")), LVN_ERR_IO);
    assert_int_equal(lvni_core_mkdirs(at("file")), LVN_ERR_IO);
    lvni_core_vfs_fail_at("mkdir", 1, EROFS);
    assert_int_equal(lvni_core_mkdirs(at("w")), LVN_ERR_IO);
    assert_non_null(strstr(lvn_last_error()->message, "permissions"));
    assert_int_equal(lvni_core_mkdirs(""), LVN_ERR_NOT_FOUND);
}

TEST(logs_are_appended)
{
    int fd = -1;
    assert_int_equal(lvni_core_append_open(at("log"), false, &fd), LVN_OK);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_int_equal(lvni_core_append_write(fd, at("log"), "one\n", 4), LVN_OK);
    assert_int_equal(lvni_core_vfs_calls("write") > 0, 1);
    close(fd);
    assert_int_equal(lvni_core_append_open(at("log"), false, &fd), LVN_OK);
    lvni_core_vfs_fail_at("write", 1, ENOSPC);
    assert_int_equal(lvni_core_append_write(fd, at("log"), "lost\n", 5), LVN_ERR_IO);
    assert_int_equal(lvni_core_append_write(fd, at("log"), "two\n", 4), LVN_OK);
    close(fd);
    assert_content(at("log"), "one\ntwo\n");
    assert_int_equal(lvni_core_append_open(at("log"), true, &fd), LVN_OK);
    close(fd);
    assert_content(at("log"), "");
}

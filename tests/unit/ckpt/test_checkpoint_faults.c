/* The disk breaks while a checkpoint is written: at every call of every kind the old one stays
 * whole, nothing is left lying about, and the error names the file. */
#include "ckpt_support.h"

#include "support/sanitized.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

static int64_t step_of(const char *path)
{
    lvni_ckpt *c = NULL;
    assert_int_equal(lvni_ckpt_load(path, &c), LVN_OK);
    const int64_t step = c->at.step;
    lvni_ckpt_free(c);
    return step;
}

static int lowest_free_descriptor(void)
{
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    return fd;
}

/* Returns the number of failures seen. */
static int sweep(const char *kind, int error)
{
    lvni_ckpt_st_tensor tensors[4];
    const lvni_ckpt_content next = sample_content(20, tensors);
    const int free_fd = lowest_free_descriptor();
    for (int64_t k = 1;; k++) {
        assert_true(k < 100);
        save_sample(in_dir("last"), 10);
        lvni_core_vfs_fail_at(kind, k, error);
        const lvn_status status = lvni_ckpt_save(in_dir("last"), &next);
        const int64_t calls = lvni_core_vfs_calls(kind);
        lvni_core_vfs_fail_at(kind, 0, 0);
        const int64_t step = step_of(in_dir("last"));
        assert_int_equal(files_in_dir(0), 1);
        assert_int_equal(lowest_free_descriptor(), free_fd);
        if (status == LVN_OK) {
            assert_int_equal(step, 20);
        } else {
            assert_int_equal(status, LVN_ERR_IO);
            assert_non_null(strstr(lvn_last_error()->message, dir));
            assert_non_null(strstr(lvn_last_error()->message, strerror(error)));
            assert_int_equal(lvn_last_error()->n_frames, 1);
            /* only the sync of the folder comes after the rename */
            assert_int_equal(step, strcmp(kind, "fsync") == 0 && k == 2 ? 20 : 10);
        }
        if (calls < k) {
            return (int)k - 1;
        }
    }
}

TEST_EACH(make_dir, drop_dir);

TEST(a_full_disk_leaves_the_old_checkpoint)
{
    assert_int_equal(sweep("write", ENOSPC), 5); /* header and four tensors */
    assert_int_equal(sweep("write", EIO), 5);
    assert_true(sweep("open", ENOSPC) >= 1);
}

TEST(a_failing_sync_leaves_a_whole_checkpoint)
{
    assert_int_equal(sweep("fsync", EIO), 2); /* file and folder */
}

TEST(a_failing_close_or_rename_leaves_the_old_checkpoint)
{
    assert_true(sweep("close", EIO) >= 1);
    assert_int_equal(sweep("rename", EACCES), 1);
}

TEST(short_writes_are_continued)
{
    lvni_ckpt_st_tensor tensors[4];
    const lvni_ckpt_content next = sample_content(20, tensors);
    for (int64_t k = 1; k <= 6; k++) {
        lvni_core_vfs_fail_at("short", k, 0);
        assert_int_equal(lvni_ckpt_save(in_dir("last"), &next), LVN_OK);
        lvni_core_vfs_fail_at("short", 0, 0);
        assert_int_equal(step_of(in_dir("last")), 20);
    }
}

static int interrupted(const char *path, int flags, mode_t mode)
{
    (void)path;
    (void)flags;
    (void)mode;
    errno = EACCES;
    return -1;
}

static ssize_t broken_read(int fd, void *buffer, size_t n)
{
    (void)fd;
    (void)buffer;
    (void)n;
    errno = EIO;
    return -1;
}

static int reads;

/* One byte at a time, every other call interrupted. */
static ssize_t slow_read(int fd, void *buffer, size_t n)
{
    if (++reads % 2 == 0) {
        errno = EINTR;
        return -1;
    }
    return read(fd, buffer, n > 0 ? 1 : 0);
}

TEST(reading_meets_a_bad_disk)
{
    save_sample(in_dir("last"), 10);
    lvni_ckpt *c = NULL;
    lvni_core_vfs table = *lvni_core_vfs_get();
    lvni_core_vfs_set(&table);
    table.read = slow_read;
    assert_int_equal(step_of(in_dir("last")), 10);
    table.read = broken_read;
    assert_int_equal(lvni_ckpt_load(in_dir("last"), &c), LVN_ERR_IO);
    assert_non_null(strstr(lvn_last_error()->message, strerror(EIO)));
    table.open = interrupted;
    assert_int_equal(lvni_ckpt_load(in_dir("last"), &c), LVN_ERR_IO);
    assert_non_null(strstr(lvn_last_error()->message, strerror(EACCES)));
}

/* The old checkpoint is whole, and nothing else is taken for one. */
static void assert_old_is_all_there_is(int files)
{
    lvni_ckpt *c = NULL;
    assert_int_equal(lvni_ckpt_newest_valid(dir, NULL, NULL, &c), LVN_OK);
    assert_int_equal(c->at.step, 10);
    assert_string_equal(c->path, in_dir("last.safetensors"));
    lvni_ckpt_free(c);
    assert_int_equal(files_in_dir(0), files);
}

TEST(a_disk_that_is_full_after_any_byte)
{
    lvni_ckpt_st_tensor tensors[4];
    const lvni_ckpt_content next = sample_content(20, tensors);
    save_sample(in_dir("last.safetensors"), 10);
    char raw[8192];
    const int64_t bytes = (int64_t)get_file(in_dir("last.safetensors"), raw, sizeof raw);
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    /* byte k is the first that does not fit */
    for (int64_t k = 1; k <= bytes; k += SANITIZED ? 7 : 1) {
        lvni_core_vfs_fail_at("room", k, ENOSPC);
        assert_int_equal(lvni_ckpt_save(in_dir("last.safetensors"), &next), LVN_ERR_IO);
        assert_int_equal(lvni_core_vfs_calls("room"), k - 1);
        lvni_core_vfs_fail_at("room", 0, 0);
        assert_non_null(strstr(lvn_last_error()->message, in_dir("last.safetensors")));
        assert_non_null(strstr(lvn_last_error()->message, "free some space"));
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
        assert_old_is_all_there_is(1);
    }
    lvni_core_vfs_fail_at("room", bytes + 1, ENOSPC); /* now it just fits */
    assert_int_equal(lvni_ckpt_save(in_dir("last.safetensors"), &next), LVN_OK);
    assert_int_equal(step_of(in_dir("last.safetensors")), 20);
}

static int64_t life; /* bytes that the process still writes */

static ssize_t write_and_die(int fd, const void *buffer, size_t n)
{
    const ssize_t done = write(fd, buffer, (int64_t)n < life ? n : (size_t)life);
    life -= done;
    if (life <= 0) {
        _exit(9);
    }
    return done;
}

/* In a child: what a kill leaves on the disk is what was written so far, and no cleaning up. */
static void die_after(int64_t k, const lvni_ckpt_content *next)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        lvni_core_vfs table = *lvni_core_vfs_get();
        table.write = write_and_die;
        lvni_core_vfs_set(&table);
        life = k;
        (void)lvni_ckpt_save(in_dir("last.safetensors"), next);
        _exit(0);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 9);
    char left[300];
    snprintf(left, sizeof left, "%s.tmp-%ld", in_dir("last.safetensors"), (long)child);
    if (access(left, F_OK) == 0) { /* the file system knows no files without a name */
        char raw[8192];
        assert_int_equal(get_file(left, raw, sizeof raw), k);
        assert_old_is_all_there_is(2); /* what it wrote is not a checkpoint, whole or not */
        assert_int_equal(unlink(left), 0);
    }
    assert_old_is_all_there_is(1);
}

TEST(a_process_killed_after_any_byte)
{
    lvni_ckpt_st_tensor tensors[4];
    const lvni_ckpt_content next = sample_content(20, tensors);
    save_sample(in_dir("last.safetensors"), 10);
    char raw[8192];
    const int64_t bytes = (int64_t)get_file(in_dir("last.safetensors"), raw, sizeof raw);
    for (int64_t k = 1; k <= bytes; k += SANITIZED ? 29 : 1) {
        die_after(k, &next);
    }
}

/* Every call of every kind once while best becomes last: best is the old one or the new one,
 * whole. */
TEST(a_link_meets_a_bad_disk)
{
    static const struct {
        const char *kind;
        bool linkless; /* hard links are not to be had: it is copied */
    } cases[] = {{"link", false}, {"rename", false}, {"open", true}, {"read", true},
                 {"write", true}, {"fsync", true},   {"close", true}};
    const int free_fd = lowest_free_descriptor();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int failures = 0;
        for (int64_t k = 1, calls = k; calls >= k; k++) {
            save_sample(in_dir("best"), 10);
            save_sample(in_dir("last"), 20);
            lvni_core_vfs_fail_at(cases[i].kind, k, EIO);
            if (cases[i].linkless) {
                lvni_core_vfs_fail_at("link", 1, EPERM);
            }
            const lvn_status status = lvni_ckpt_link(in_dir("last"), in_dir("best"));
            calls = lvni_core_vfs_calls(cases[i].kind);
            lvni_core_vfs_fail_at(cases[i].kind, 0, 0);
            assert_int_equal(files_in_dir(0), 2);
            assert_int_equal(lowest_free_descriptor(), free_fd);
            assert_int_equal(step_of(in_dir("last")), 20);
            const int64_t step = step_of(in_dir("best"));
            assert_true(status == LVN_OK || status == LVN_ERR_IO);
            assert_true(step == 20 || (step == 10 && status != LVN_OK));
            assert_true(status == LVN_OK || strstr(lvn_last_error()->message, dir) != NULL);
            failures += status != LVN_OK;
        }
        /* a link or rename that fails is made good by copying */
        assert_int_equal(failures > 0, cases[i].linkless);
    }
}

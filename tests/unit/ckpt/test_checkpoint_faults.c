/* The disk breaks while a checkpoint is written: at every call of every kind the old one stays whole, nothing
 * is left lying about, and the error says which file. */
#include "ckpt_support.h"

#include <errno.h>
#include <fcntl.h>

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
    lvni_st_tensor tensors[4];
    const lvni_ckpt_content next = sample_content(20, tensors);
    const int free_fd = lowest_free_descriptor();
    for (int64_t k = 1;; k++) {
        assert_true(k < 100);
        save_sample(in_dir("last"), 10);
        lvni_vfs_fail_at(kind, k, error);
        const lvn_status status = lvni_ckpt_save(in_dir("last"), &next);
        const int64_t calls = lvni_vfs_calls(kind);
        lvni_vfs_fail_at(kind, 0, 0);
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

static void a_full_disk_leaves_the_old_checkpoint(void **state)
{
    (void)state;
    assert_int_equal(sweep("write", ENOSPC), 5); /* header and four tensors */
    assert_int_equal(sweep("write", EIO), 5);
    assert_true(sweep("open", ENOSPC) >= 1);
}

static void a_failing_sync_leaves_a_whole_checkpoint(void **state)
{
    (void)state;
    assert_int_equal(sweep("fsync", EIO), 2); /* file and folder */
}

static void a_failing_close_or_rename_leaves_the_old_checkpoint(void **state)
{
    (void)state;
    assert_true(sweep("close", EIO) >= 1);
    assert_int_equal(sweep("rename", EACCES), 1);
}

static void short_writes_are_continued(void **state)
{
    (void)state;
    lvni_st_tensor tensors[4];
    const lvni_ckpt_content next = sample_content(20, tensors);
    for (int64_t k = 1; k <= 6; k++) {
        lvni_vfs_fail_at("short", k, 0);
        assert_int_equal(lvni_ckpt_save(in_dir("last"), &next), LVN_OK);
        lvni_vfs_fail_at("short", 0, 0);
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

static void reading_meets_a_bad_disk(void **state)
{
    (void)state;
    save_sample(in_dir("last"), 10);
    lvni_ckpt *c = NULL;
    lvni_vfs table = *lvni_vfs_get();
    lvni_vfs_set(&table);
    table.read = slow_read;
    assert_int_equal(step_of(in_dir("last")), 10);
    table.read = broken_read;
    assert_int_equal(lvni_ckpt_load(in_dir("last"), &c), LVN_ERR_IO);
    assert_non_null(strstr(lvn_last_error()->message, strerror(EIO)));
    table.open = interrupted;
    assert_int_equal(lvni_ckpt_load(in_dir("last"), &c), LVN_ERR_IO);
    assert_non_null(strstr(lvn_last_error()->message, strerror(EACCES)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_full_disk_leaves_the_old_checkpoint, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(a_failing_sync_leaves_a_whole_checkpoint, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(a_failing_close_or_rename_leaves_the_old_checkpoint, make_dir,
                                        drop_dir),
        cmocka_unit_test_setup_teardown(short_writes_are_continued, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(reading_meets_a_bad_disk, make_dir, drop_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

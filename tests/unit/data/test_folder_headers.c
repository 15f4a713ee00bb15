/* Headers of a folder's images: by several threads as by one, and no more of a file than its
 * header needs. */
#include "core/alloc.h"
#include "core/vfs.h"
#include "data/image_folder.h"
#include "data/image.h"
#include "images_support.h"
#include "support/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Enough for threads: the headers and the sentence are those of one thread. */
TEST(a_large_folder_is_read_by_several_threads)
{
    char folder[256], path[512];
    enum { MANY = 1100 };
    snprintf(folder, sizeof folder, "%s", images_temp_folder());
    snprintf(path, sizeof path, "%s/a/0000.jpg", folder);
    images_make_jpeg(path, 9, 7, 1);
    char *jpeg;
    size_t n;
    assert_int_equal(lvni_core_file_read(path, 1 << 20, &jpeg, &n), LVN_OK);
    for (int i = 0; i < MANY; i++) { /* every fiftieth is cut off */
        snprintf(path, sizeof path, "%s/a/%04d.jpg", folder, i);
        const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        assert_true(fd >= 0 && write(fd, jpeg, i % 50 == 7 ? 3 : n) > 0);
        close(fd);
    }
    lvni_core_free(jpeg);
    lvni_data_image_scan *s;
    lvni_data_index x = {.mode = LVNI_INDEX_KEEP};
    assert_int_equal(lvni_data_image_scan_open_indexed(folder, LVNI_SCAN_FLAT, &x, &s), LVN_OK);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(s->size[i].width, i % 50 == 7 ? 0 : 9);
    }
    assert_non_null(strstr(lvni_core_str_text(&x.damaged), "22 of 1100 images cannot be used: "));
    assert_non_null(strstr(lvni_core_str_text(&x.damaged),
                           "/a/0007.jpg: damaged JPEG header: Premature end of JPEG file; "
                           "a/0057.jpg: damaged JPEG header: Premature end of JPEG file; "));
    assert_non_null(strstr(lvni_core_str_text(&x.damaged), "of JPEG file; and "));
    lvni_data_image_scan_release(s);
    lvni_data_index_free(&x);
    images_remove_folder(folder);
}

static size_t bytes_read;

static ssize_t counting_read(int fd, void *buffer, size_t n)
{
    const ssize_t got = read(fd, buffer, n);
    bytes_read += got > 0 ? (size_t)got : 0;
    return got;
}

/* A JPEG whose frame lies behind `n_comments` segments of 60000 bytes, and zeros at its end. */
static void make_long_jpeg(const char *path, int n_comments)
{
    static char zeros[200000];
    char *jpeg;
    size_t n;
    images_make_jpeg(path, 9, 7, 1);
    assert_int_equal(lvni_core_file_read(path, 1 << 20, &jpeg, &n), LVN_OK);
    const int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_true(fd >= 0 && write(fd, jpeg, 2) == 2);
    for (int i = 0; i < n_comments; i++) {
        /* 60002 bytes with the length itself */
        assert_int_equal(write(fd, "\xff\xfe\xea\x62", 4), 4);
        assert_int_equal(write(fd, zeros, 60000), 60000);
    }
    assert_int_equal(write(fd, jpeg + 2, n - 2), n - 2);
    assert_int_equal(write(fd, zeros, sizeof zeros), sizeof zeros);
    close(fd);
    lvni_core_free(jpeg);
}

TEST(no_more_is_read_than_the_header_needs)
{
    static const size_t at_most[] = {4096, 4096 + 65536, 4096 + 65536 + 400000};
    for (int comments = 0; comments < 3; comments++) {
        char folder[256];
        snprintf(folder, sizeof folder, "%s", images_temp_folder());
        lvni_data_image_scan *s = NULL;
        make_long_jpeg(images_path(folder, "long/1.jpg"), comments);
        lvni_core_vfs counting = *lvni_core_vfs_get();
        counting.read = counting_read;
        lvni_core_vfs_set(&counting);
        bytes_read = 0;
        lvni_data_index x = {.mode = LVNI_INDEX_KEEP};
        const lvn_status status =
            lvni_data_image_scan_open_indexed(images_path(folder, "long"), LVNI_SCAN_FLAT, &x, &s);
        lvni_core_vfs_set(NULL);
        assert_int_equal(status, LVN_OK);
        assert_int_equal(s->size[0].width, 9);
        assert_int_equal(s->size[0].height, 7);
        assert_int_equal(x.damaged.len, 0);
        assert_true(bytes_read <= at_most[comments]);
        assert_true(comments == 0 || bytes_read > at_most[comments - 1]);
        lvni_data_image_scan_release(s);
        lvni_data_index_free(&x);
        images_remove_folder(folder);
    }
}

AFTER_ALL()
{
    lvni_data_scratch_release();
    return 0;
}

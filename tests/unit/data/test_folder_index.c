/* The kept list of a folder: what it says, when it is taken, when it is made again, and what a damaged one does. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/alloc.h"
#include "core/vfs.h"
#include "data/folder_scan.h"
#include "data/picture_scratch.h"
#include "images_support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Folders a minute old: younger ones are not trusted. */
static void age(const char *folder)
{
    static const char *const below[] = {"", "/a", "/a/deep", "/b b%", "/train", "/train/a", "/train/b", "/val", "/val/a"};
    for (int i = 0; i < 9; i++) {
        char path[512];
        struct timespec then;
        snprintf(path, sizeof path, "%s%s", folder, below[i]);
        clock_gettime(CLOCK_REALTIME, &then);
        then.tv_sec -= 60 + i;
        assert_true(utimensat(AT_FDCWD, path, (struct timespec[]){then, then}, 0) == 0 || errno == ENOENT);
    }
}

static const char *make_folder(void)
{
    static char folder[256];
    snprintf(folder, sizeof folder, "%s", images_temp_folder());
    const char *made[] = {"data/a/deep/1.jpg", "data/a/2.jpg", "data/b b%/3.jpg"};
    for (int i = 0; i < 3; i++) {
        images_make_jpeg(images_path(folder, made[i]), 8 + i, 20, 1);
    }
    return folder;
}

/* How many pictures, and how many files were opened to know it. The scan must be the one without an index. */
static int64_t scan(const char *folder, int64_t *opened, char *notes, size_t room)
{
    lvni_image_scan *with, *without;
    lvni_str text = {0};
    const char *data = images_path(folder, "data");
    lvni_vfs_fail_at("open", 1000000, EIO); /* only to count */
    assert_int_equal(lvni_image_scan_open_indexed(data, LVNI_SCAN_CLASSES, images_path(folder, "x.index"), &text, &with), LVN_OK);
    *opened = lvni_vfs_calls("open");
    lvni_vfs_fail_at("open", 0, 0);
    assert_int_equal(lvni_image_scan_open(data, LVNI_SCAN_CLASSES, &without), LVN_OK);
    assert_int_equal(with->n, without->n);
    assert_int_equal(with->n_classes, without->n_classes);
    for (int64_t i = 0; i < with->n; i++) {
        assert_string_equal(lvni_image_scan_name(with, i), lvni_image_scan_name(without, i));
        assert_int_equal(with->label[i], without->label[i]);
    }
    snprintf(notes, room, "%s", lvni_str_text(&text));
    const int64_t n = with->n;
    lvni_str_free(&text);
    lvni_image_scan_release(with);
    lvni_image_scan_release(without);
    return n;
}

static void an_unchanged_folder_is_not_looked_at_again(void **state)
{
    (void)state;
    const char *folder = make_folder();
    char notes[256];
    int64_t opened;
    age(images_path(folder, "data"));
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    assert_true(opened >= 4); /* the pictures, the index */
    char *text;
    size_t n;
    assert_int_equal(lvni_file_read(images_path(folder, "x.index"), 1 << 20, &text, &n), LVN_OK);
    assert_non_null(strstr(text, " 9 20 a/2.jpg\n")); /* width, height, path */
    assert_non_null(strstr(text, " 10 20 b%20b%25/3.jpg\n"));
    lvni_free(text);
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    assert_int_equal(opened, 1); /* the index alone */
    assert_string_equal(notes, "");
    images_remove_folder(folder);
}

static void what_changes_a_folder_changes_the_list(void **state)
{
    (void)state;
    const char *folder = make_folder();
    char notes[256];
    int64_t opened;
    age(images_path(folder, "data"));
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    images_write_file(images_path(folder, "data/a/deep/4.png"), "no picture", 10); /* new, and damaged */
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 4);
    assert_string_equal(notes, "1 of 4 pictures have a damaged header: a/deep/4.png");
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 4);
    assert_true(opened > 1); /* the folder is too young to be trusted */
    age(images_path(folder, "data"));
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 4);
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 4);
    assert_int_equal(opened, 1);
    assert_string_equal(notes, "1 of 4 pictures have a damaged header: a/deep/4.png");
    assert_int_equal(unlink(images_path(folder, "data/a/2.jpg")), 0);
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    assert_int_equal(rename(images_path(folder, "data/b b%"), images_path(folder, "data/c")), 0);
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    images_remove_folder(folder);
}

static void an_index_of_something_else_is_not_taken(void **state)
{
    (void)state;
    const char *folder = make_folder();
    char notes[256];
    int64_t opened;
    age(images_path(folder, "data"));
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    lvni_image_scan *s;
    lvni_str text = {0};
    const char *index = images_path(folder, "x.index"), *part = images_path(folder, "data/a");
    assert_int_equal(lvni_image_scan_open_indexed(part, LVNI_SCAN_FLAT, index, &text, &s), LVN_OK);
    assert_int_equal(s->n, 2);
    lvni_image_scan_release(s);
    lvni_str_free(&text);
    images_remove_folder(folder);
}

static lvn_status scan_as(const char *folder, lvni_scan_mode mode, const char *index, int64_t *n)
{
    lvni_image_scan *s = NULL;
    lvni_str text = {0};
    const lvn_status status = lvni_image_scan_open_indexed(images_path(folder, "data"), mode, index, &text, &s);
    *n = s == NULL ? 0 : s->n;
    lvni_image_scan_release(s);
    lvni_str_free(&text);
    return status;
}

/* `predict` lists everything, training train/ and val/ alone: the index of the one outlives the other. */
static void an_index_of_other_parts_stays(void **state)
{
    (void)state;
    char folder[256];
    snprintf(folder, sizeof folder, "%s", images_temp_folder());
    const char *made[] = {"data/train/a/1.jpg", "data/train/b/2.jpg", "data/val/a/3.jpg"};
    for (int i = 0; i < 3; i++) {
        images_make_jpeg(images_path(folder, made[i]), 8, 8, 1);
    }
    char *before, *after, index[300];
    size_t n[2];
    int64_t pictures;
    snprintf(index, sizeof index, "%s/x.index", folder);
    age(images_path(folder, "data"));
    assert_int_equal(scan_as(folder, LVNI_SCAN_CLASSES, index, &pictures), LVN_OK);
    assert_int_equal(lvni_file_read(index, 1 << 20, &before, &n[0]), LVN_OK);
    assert_int_equal(scan_as(folder, LVNI_SCAN_FLAT, index, &pictures), LVN_OK);
    assert_int_equal(pictures, 3);
    assert_int_equal(lvni_file_read(index, 1 << 20, &after, &n[1]), LVN_OK);
    assert_string_equal(before, after);
    lvni_free(before);
    lvni_free(after);
    images_remove_folder(folder);
}

static void an_index_inside_of_the_folder_is_refused(void **state)
{
    (void)state;
    const char *folder = make_folder();
    const char *const inside[] = {"data/x.index", "data/a/x.index", "data/a/../x.index"};
    int64_t n;
    for (int i = 0; i < 3; i++) {
        char index[512];
        snprintf(index, sizeof index, "%s/%s", folder, inside[i]);
        assert_int_equal(scan_as(folder, LVNI_SCAN_CLASSES, index, &n), LVN_ERR_USAGE);
        assert_non_null(strstr(lvn_last_error()->message, "lies inside of data="));
        assert_false(lvni_path_exists(index));
    }
    char index[512];
    snprintf(index, sizeof index, "%s/data.index", folder); /* a name that begins like the folder's */
    assert_int_equal(scan_as(folder, LVNI_SCAN_CLASSES, index, &n), LVN_OK);
    images_remove_folder(folder);
}

static void a_damaged_index_is_told_and_not_overwritten(void **state)
{
    (void)state;
    const char *folder = make_folder();
    char notes[256], *text;
    int64_t opened;
    size_t n;
    age(images_path(folder, "data"));
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    const char *index = images_path(folder, "x.index"), *data = images_path(folder, "data");
    assert_int_equal(lvni_file_read(index, 1 << 20, &text, &n), LVN_OK);
    const uint64_t before = lvni_alloc_get_total().live_bytes;
    for (size_t at = 0; at < n; at += 3) { /* a byte wrong, or the rest gone */
        for (int cut = 0; cut < 2; cut++) {
            lvni_image_scan *s;
            lvni_str told = {0};
            text[at] = (char)(text[at] ^ 1);
            assert_int_equal(lvni_file_write(index, text, cut ? at : n), LVN_OK);
            text[at] = (char)(text[at] ^ 1);
            assert_int_equal(lvni_image_scan_open_indexed(data, LVNI_SCAN_CLASSES, index, &told, &s), LVN_ERR_CORRUPT);
            assert_non_null(strstr(lvn_last_error()->message, "x.index"));
            assert_int_equal(lvni_alloc_get_total().live_bytes, before);
        }
    }
    lvni_free(text);
    images_remove_folder(folder);
}

static void no_memory_and_no_disk_leave_nothing_behind(void **state)
{
    (void)state;
    const char *folder = make_folder();
    lvni_data_scratch_release();
    age(images_path(folder, "data"));
    const char *index = images_path(folder, "x.index"), *data = images_path(folder, "data");
    const uint64_t before = lvni_alloc_get_total().live_bytes;
    for (int second = 0; second < 2; second++) { /* writing the index, then reading it */
        lvn_status s = LVN_ERR_MEMORY;
        for (int64_t k = 1; s == LVN_ERR_MEMORY && k < 200; k++) {
            lvni_image_scan *found = NULL;
            lvni_str told = {0};
            lvni_alloc_fail_at(k);
            s = lvni_image_scan_open_indexed(data, LVNI_SCAN_CLASSES, index, &told, &found);
            lvni_alloc_fail_at(0);
            lvni_image_scan_release(found);
            lvni_str_free(&told);
            lvni_data_scratch_release();
            assert_int_equal(lvni_alloc_get_total().live_bytes, before);
        }
        assert_int_equal(s, LVN_OK);
    }
    assert_int_equal(unlink(index), 0);
    lvni_image_scan *found = NULL;
    lvni_str told = {0};
    lvni_vfs_fail_at("write", 1, ENOSPC);
    assert_int_equal(lvni_image_scan_open_indexed(data, LVNI_SCAN_CLASSES, index, &told, &found), LVN_ERR_IO);
    lvni_vfs_fail_at("write", 0, 0);
    lvni_data_scratch_release();
    assert_int_equal(lvni_alloc_get_total().live_bytes, before);
    images_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unchanged_folder_is_not_looked_at_again),
        cmocka_unit_test(what_changes_a_folder_changes_the_list),
        cmocka_unit_test(an_index_of_something_else_is_not_taken),
        cmocka_unit_test(an_index_of_other_parts_stays),
        cmocka_unit_test(an_index_inside_of_the_folder_is_refused),
        cmocka_unit_test(a_damaged_index_is_told_and_not_overwritten),
        cmocka_unit_test(no_memory_and_no_disk_leave_nothing_behind),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lvni_data_scratch_release();
    return failed;
}

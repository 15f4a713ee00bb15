/* The kept list of a folder: what it holds, when it is taken, when it is made again, and what a
 * damaged one does. */
#include "core/alloc.h"
#include "core/vfs.h"
#include "data/image_folder.h"
#include "data/image.h"
#include "images_support.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

/* Folders a minute old: younger ones are not trusted. */
static void age(const char *folder)
{
    static const char *const below[] = {"",         "/a",       "/a/deep", "/b b%", "/train",
                                        "/train/a", "/train/b", "/val",    "/val/a"};
    for (int i = 0; i < 9; i++) {
        char path[512];
        struct timespec then;
        snprintf(path, sizeof path, "%s%s", folder, below[i]);
        clock_gettime(CLOCK_REALTIME, &then);
        then.tv_sec -= 60 + i;
        assert_true(utimensat(AT_FDCWD, path, (struct timespec[]){then, then}, 0) == 0 ||
                    errno == ENOENT);
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

/* As a run does when it begins. */
static void write_text(const lvni_data_index *x)
{
    if (x->text.len > 0) {
        assert_int_equal(lvni_core_file_write(x->file, x->text.data, x->text.len), LVN_OK);
    }
}

/* How many images, and how many files were opened to know it. The scan must be the one without an
 * index. */
static int64_t scan(const char *folder, int64_t *opened, char *notes, size_t room)
{
    lvni_data_image_scan *with, *without;
    const char *data = images_path(folder, "data");
    lvni_data_index x = {.mode = LVNI_INDEX_FILE, .file = images_path(folder, "x.index")};
    lvni_core_vfs_fail_at("open", 1000000, EIO); /* only to count */
    assert_int_equal(lvni_data_image_scan_open_indexed(data, LVNI_SCAN_CLASSES, &x, &with), LVN_OK);
    write_text(&x);
    *opened = lvni_core_vfs_calls("open");
    lvni_core_vfs_fail_at("open", 0, 0);
    assert_int_equal(lvni_data_image_scan_open(data, LVNI_SCAN_CLASSES, &without), LVN_OK);
    assert_int_equal(with->n, without->n);
    assert_int_equal(with->n_classes, without->n_classes);
    for (int64_t i = 0; i < with->n; i++) {
        assert_string_equal(lvni_data_image_scan_name(with, i),
                            lvni_data_image_scan_name(without, i));
        assert_int_equal(with->label[i], without->label[i]);
    }
    const char *damaged = lvni_core_str_text(&x.damaged), *changed = lvni_core_str_text(&x.changed);
    snprintf(notes, room, "%s%s%s", damaged, changed[0] != '\0' ? "|" : "", changed);
    const int64_t n = with->n;
    lvni_data_index_free(&x);
    lvni_data_image_scan_release(with);
    lvni_data_image_scan_release(without);
    return n;
}

TEST(an_unchanged_folder_is_not_looked_at_again)
{
    const char *folder = make_folder();
    char notes[256];
    int64_t opened;
    age(images_path(folder, "data"));
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    assert_true(opened >= 4); /* the images, and the index that is written */
    char *text;
    size_t n;
    assert_int_equal(lvni_core_file_read(images_path(folder, "x.index"), 1 << 20, &text, &n),
                     LVN_OK);
    char line[128], *at = strstr(text, " 9 20 "), *file;
    assert_non_null(at);
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    char want[128];
    size_t bytes;
    assert_int_equal(
        lvni_core_file_read(images_path(folder, "data/a/2.jpg"), 1 << 20, &file, &bytes), LVN_OK);
    snprintf(want, sizeof want, " 9 20 %lld a/2.jpg", /* width, height, begin, path */
             (long long)XXH3_64bits(file, bytes < 4096 ? bytes : 4096));
    assert_string_equal(line, want);
    lvni_core_free(file);
    assert_non_null(strstr(text, " b%20b%25/3.jpg\n"));
    lvni_core_free(text);
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    assert_int_equal(opened, 1); /* the index alone */
    assert_string_equal(notes, "");
    images_remove_folder(folder);
}

/* The one damaged image is read again each time, with the index opened before. */
TEST(what_changes_a_folder_changes_the_list)
{
    const char *folder = make_folder();
    char notes[512];
    int64_t opened;
    age(images_path(folder, "data"));
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    /* new, and damaged */
    images_write_file(images_path(folder, "data/a/deep/4.png"), "no image", 8);
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 4);
    assert_non_null(strstr(notes, "1 of 4 images cannot be used: "));
    assert_non_null(strstr(notes, "data/a/deep/4.png: "));
    assert_non_null(strstr(notes, "data/a/deep, removed or renamed"));
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 4);
    assert_true(opened > 2);         /* the folder is too young to be trusted */
    assert_null(strchr(notes, '|')); /* which does not count as a change */
    age(images_path(folder, "data"));
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 4);
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 4);
    assert_int_equal(opened, 2);
    assert_non_null(strstr(notes, "1 of 4 images cannot be used: "));
    assert_int_equal(unlink(images_path(folder, "data/a/2.jpg")), 0);
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    assert_int_equal(rename(images_path(folder, "data/b b%"), images_path(folder, "data/c")), 0);
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    images_remove_folder(folder);
}

static void set_time(const char *path, time_t seconds)
{
    assert_int_equal(
        utimensat(AT_FDCWD, path, (struct timespec[]){{.tv_sec = seconds}, {.tv_sec = seconds}}, 0),
        0);
}

/* None of this touches a folder's time. */
TEST(what_changes_an_image_changes_the_list)
{
    const char *folder = make_folder();
    char notes[512], image[512], other[512];
    int64_t opened;
    snprintf(image, sizeof image, "%s/data/a/2.jpg", folder);
    snprintf(other, sizeof other, "%s/data/a/deep/1.jpg", folder);
    set_time(image, 1000);
    age(images_path(folder, "data"));
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    set_time(image, 2000);
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    assert_non_null(strstr(notes, "data/a/2.jpg was written again"));
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    assert_int_equal(opened, 1);
    assert_int_equal(truncate(image, 5), 0);
    set_time(image, 2000);
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    assert_non_null(strstr(notes, "data/a/2.jpg has 5 bytes, and had "));
    assert_non_null(strstr(notes, "1 of 3 images cannot be used: "));
    char *bytes;
    size_t n;
    assert_int_equal(lvni_core_file_read(other, 1 << 20, &bytes, &n), LVN_OK);
    const int fd = open(image, O_WRONLY | O_CLOEXEC); /* in place */
    assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
    lvni_core_free(bytes);
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    assert_non_null(strstr(notes, "data/a/2.jpg is not damaged any more"));
    assert_null(strstr(notes, "cannot be used"));
    images_remove_folder(folder);
}

/* Of a run: no file yet, then the text that was handed out, then a damaged file, which is not an
 * error. */
TEST(the_index_of_a_run_is_handed_out_and_made_again)
{
    const char *folder = make_folder();
    lvni_data_image_scan *s;
    age(images_path(folder, "data"));
    char data[512], file[512];
    snprintf(data, sizeof data, "%s/data", folder);
    snprintf(file, sizeof file, "%s/x.index", folder);
    const struct {
        const char *file;
        bool handed_out, changed;
    } rounds[] = {{NULL, true, false}, {file, false, false}, {file, true, true}};
    for (int i = 0; i < 3; i++) {
        lvni_data_index x = {.mode = LVNI_INDEX_KEEP, .file = rounds[i].file};
        if (i == 2) {
            assert_int_equal(truncate(file, 40), 0);
        }
        assert_int_equal(lvni_data_image_scan_open_indexed(data, LVNI_SCAN_CLASSES, &x, &s),
                         LVN_OK);
        assert_int_equal(x.text.len > 0, rounds[i].handed_out);
        assert_int_equal(x.changed.len > 0, rounds[i].changed);
        assert_int_equal(s->size[1].width, 8); /* a/deep/1.jpg, behind a/2.jpg */
        assert_int_equal(s->size[0].width, 9);
        assert_int_equal(s->size[0].height, 20);
        if (i == 0) {
            assert_int_equal(lvni_core_file_write(file, x.text.data, x.text.len), LVN_OK);
        }
        lvni_data_image_scan_release(s);
        lvni_data_index_free(&x);
    }
    lvni_data_index x = {.mode = LVNI_INDEX_LOOK, .file = file};
    lvni_core_vfs_fail_at("open", 1000000, EIO); /* only to count */
    assert_int_equal(lvni_data_image_scan_open_indexed(data, LVNI_SCAN_CLASSES, &x, &s), LVN_OK);
    assert_int_equal(lvni_core_vfs_calls("open"), 1);
    lvni_core_vfs_fail_at("open", 0, 0);
    assert_null(s->size);
    assert_int_equal(x.text.len, 0);
    lvni_data_image_scan_release(s);
    lvni_data_index_free(&x);
    images_remove_folder(folder);
}

TEST(an_index_of_something_else_is_not_taken)
{
    const char *folder = make_folder();
    char notes[256];
    int64_t opened;
    age(images_path(folder, "data"));
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    lvni_data_image_scan *s;
    lvni_data_index x = {.mode = LVNI_INDEX_FILE, .file = images_path(folder, "x.index")};
    assert_int_equal(
        lvni_data_image_scan_open_indexed(images_path(folder, "data/a"), LVNI_SCAN_FLAT, &x, &s),
        LVN_OK);
    assert_int_equal(s->n, 2);
    assert_int_equal(x.changed.len, 0); /* another folder does not count as changed */
    lvni_data_image_scan_release(s);
    lvni_data_index_free(&x);
    images_remove_folder(folder);
}

static lvn_status scan_as(const char *folder, lvni_data_scan_mode mode, const char *index,
                          int64_t *n)
{
    lvni_data_image_scan *s = NULL;
    lvni_data_index x = {.mode = LVNI_INDEX_FILE, .file = index};
    const lvn_status status =
        lvni_data_image_scan_open_indexed(images_path(folder, "data"), mode, &x, &s);
    write_text(&x);
    *n = s == NULL ? 0 : s->n;
    lvni_data_image_scan_release(s);
    lvni_data_index_free(&x);
    return status;
}

/* `predict` lists everything, training train/ and val/ alone: the index of the one outlives the
 * other. */
TEST(an_index_of_other_parts_stays)
{
    char folder[256];
    snprintf(folder, sizeof folder, "%s", images_temp_folder());
    const char *made[] = {"data/train/a/1.jpg", "data/train/b/2.jpg", "data/val/a/3.jpg"};
    for (int i = 0; i < 3; i++) {
        images_make_jpeg(images_path(folder, made[i]), 8, 8, 1);
    }
    char *before, *after, index[300];
    size_t n[2];
    int64_t images;
    snprintf(index, sizeof index, "%s/x.index", folder);
    age(images_path(folder, "data"));
    assert_int_equal(scan_as(folder, LVNI_SCAN_CLASSES, index, &images), LVN_OK);
    assert_int_equal(lvni_core_file_read(index, 1 << 20, &before, &n[0]), LVN_OK);
    assert_int_equal(scan_as(folder, LVNI_SCAN_FLAT, index, &images), LVN_OK);
    assert_int_equal(images, 3);
    assert_int_equal(lvni_core_file_read(index, 1 << 20, &after, &n[1]), LVN_OK);
    assert_string_equal(before, after);
    lvni_core_free(before);
    lvni_core_free(after);
    images_remove_folder(folder);
}

TEST(an_index_inside_of_the_folder_is_refused)
{
    const char *folder = make_folder();
    const char *const inside[] = {"data/x.index", "data/a/x.index", "data/a/../x.index"};
    int64_t n;
    for (int i = 0; i < 3; i++) {
        char index[512];
        snprintf(index, sizeof index, "%s/%s", folder, inside[i]);
        assert_int_equal(scan_as(folder, LVNI_SCAN_CLASSES, index, &n), LVN_ERR_USAGE);
        assert_non_null(strstr(lvn_last_error()->message, "lies inside of data="));
        assert_false(lvni_core_path_exists(index));
    }
    char index[512];
    /* a name that begins like the folder's */
    snprintf(index, sizeof index, "%s/data.index", folder);
    assert_int_equal(scan_as(folder, LVNI_SCAN_CLASSES, index, &n), LVN_OK);
    images_remove_folder(folder);
}

TEST(a_damaged_index_is_reported_and_not_overwritten)
{
    const char *folder = make_folder();
    char notes[256], *text;
    int64_t opened;
    size_t n;
    age(images_path(folder, "data"));
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    const char *index = images_path(folder, "x.index"), *data = images_path(folder, "data");
    assert_int_equal(lvni_core_file_read(index, 1 << 20, &text, &n), LVN_OK);
    const uint64_t before = lvni_core_alloc_get_total().live_bytes;
    for (size_t at = 0; at < n; at += 3) { /* a byte wrong, or the rest gone */
        for (int cut = 0; cut < 2; cut++) {
            lvni_data_image_scan *s;
            lvni_data_index x = {.mode = LVNI_INDEX_FILE, .file = index};
            text[at] = (char)(text[at] ^ 1);
            assert_int_equal(lvni_core_file_write(index, text, cut ? at : n), LVN_OK);
            text[at] = (char)(text[at] ^ 1);
            assert_int_equal(lvni_data_image_scan_open_indexed(data, LVNI_SCAN_CLASSES, &x, &s),
                             LVN_ERR_CORRUPT);
            assert_non_null(strstr(lvn_last_error()->message, "x.index"));
            assert_int_equal(lvni_core_alloc_get_total().live_bytes, before);
        }
    }
    lvni_core_free(text);
    images_remove_folder(folder);
}

/* Of a version before: whole, so it is levin's own. */
TEST(an_older_index_is_made_again)
{
    const char *folder = make_folder();
    char notes[256], *text;
    int64_t opened;
    size_t n;
    age(images_path(folder, "data"));
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    const char *index = images_path(folder, "x.index");
    assert_int_equal(lvni_core_file_read(index, 1 << 20, &text, &n), LVN_OK);
    char *version = strchr(text, '\n') - 1, *end = text + n - 21;
    assert_memory_equal(version, "4\n", 2);
    for (int older = '1'; older < '4'; older++) {
        *version = (char)older;
        snprintf(end, 22, "end %016llx\n", (unsigned long long)XXH3_64bits(text, n - 21));
        assert_int_equal(lvni_core_file_write(index, text, n), LVN_OK);
        assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
        assert_non_null(strstr(notes, "x.index is of another version"));
        assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
        assert_string_equal(notes, "");
    }
    lvni_core_free(text);
    images_remove_folder(folder);
}

/* Whole and of this version, with lines that this program does not know: the images behind them
 * would be missing. */
TEST(an_index_with_unknown_lines_is_made_again)
{
    const char *folder = make_folder();
    char notes[256], *text;
    int64_t opened;
    size_t n;
    age(images_path(folder, "data"));
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    const char *index = images_path(folder, "x.index");
    assert_int_equal(lvni_core_file_read(index, 1 << 20, &text, &n), LVN_OK);
    char *end = text + n - 21;
    for (char *at = text; (at = strstr(at, "\npicture ")) != NULL; at++) {
        at[1] = 'P';
    }
    snprintf(end, 22, "end %016llx\n", (unsigned long long)XXH3_64bits(text, n - 21));
    assert_int_equal(lvni_core_file_write(index, text, n), LVN_OK);
    lvni_core_free(text);
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    assert_true(opened >= 4);
    assert_int_equal(scan(folder, &opened, notes, sizeof notes), 3);
    assert_int_equal(opened, 1);
    images_remove_folder(folder);
}

TEST(no_memory_leaves_nothing_behind)
{
    const char *folder = make_folder();
    lvni_data_scratch_release();
    age(images_path(folder, "data"));
    const char *index = images_path(folder, "x.index"), *data = images_path(folder, "data");
    const uint64_t before = lvni_core_alloc_get_total().live_bytes;
    for (int second = 0; second < 2; second++) { /* writing the index, then reading it */
        lvn_status s = LVN_ERR_MEMORY;
        for (int64_t k = 1; s == LVN_ERR_MEMORY && k < 200; k++) {
            lvni_data_image_scan *found = NULL;
            lvni_data_index x = {.mode = LVNI_INDEX_FILE, .file = index};
            lvni_core_alloc_fail_at(k);
            s = lvni_data_image_scan_open_indexed(data, LVNI_SCAN_CLASSES, &x, &found);
            lvni_core_alloc_fail_at(0);
            if (s == LVN_OK) {
                write_text(&x);
            }
            lvni_data_image_scan_release(found);
            lvni_data_index_free(&x);
            lvni_data_scratch_release();
            assert_int_equal(lvni_core_alloc_get_total().live_bytes, before);
        }
        assert_int_equal(s, LVN_OK);
    }
    images_remove_folder(folder);
}

/* Reported before a header is read: the file is written long after. */
TEST(an_index_without_a_place_is_refused)
{
    const char *folder = make_folder();
    char index[512];
    int64_t n;
    snprintf(index, sizeof index, "%s/none/x.index", folder);
    assert_int_equal(scan_as(folder, LVNI_SCAN_CLASSES, index, &n), LVN_ERR_NOT_FOUND);
    assert_non_null(
        strstr(lvn_last_error()->message, "none/x.index cannot be written there: No such file"));
    lvn_clear_error();
    images_remove_folder(folder);
}

/* What appears behind a link changes no time in the folder, so such a list is not kept: else the
 * new class would be missed. */
TEST(a_link_that_leads_nowhere_is_followed_when_it_leads_somewhere)
{
    static const char *const links[] = {"data/c", "data/a/c.jpg", "data/a/deep/c"},
                             *const in_target[] = {"3.jpg", "", "2.jpg"};
    for (int i = 0; i < 3; i++) {
        const char *folder = make_folder();
        char target[512], notes[512];
        int64_t opened;
        snprintf(target, sizeof target, "%s/disk", folder);
        if (i == 2) {
            images_write_file(target, "a note", 6); /* neither folder nor image */
        }
        assert_int_equal(symlink(target, images_path(folder, links[i])), 0);
        age(images_path(folder, "data"));
        const int64_t n = scan(folder, &opened, notes, sizeof notes);
        assert_int_equal(n, i == 1 ? 4 : 3);
        assert_false(lvni_core_path_exists(images_path(folder, "x.index")));
        (void)unlink(target);
        char image[600];
        snprintf(image, sizeof image, "%s%s%s", target, in_target[i][0] != '\0' ? "/" : "",
                 in_target[i]);
        images_make_jpeg(image, 8, 8, 1);
        assert_int_equal(scan(folder, &opened, notes, sizeof notes), 4);
        assert_string_equal(notes, "");
        age(images_path(folder, "data"));
        (void)scan(folder, &opened, notes, sizeof notes);
        assert_true(lvni_core_path_exists(images_path(folder, "x.index")));
        images_remove_folder(folder);
    }
}

/* Opens a list of two entries with its index, and writes that; what changed since. */
static void open_list(const char *const entries[2], const char *file, char *changed, size_t room)
{
    lvni_data_image_scan *s;
    lvni_data_index x = {.mode = LVNI_INDEX_FILE, .file = file};
    assert_int_equal(lvni_data_image_scan_open_list(entries, 2, &x, &s), LVN_OK);
    assert_int_equal(s->n, 3);
    assert_non_null(s->size);
    write_text(&x);
    snprintf(changed, room, "%s%s", x.text.len > 0 ? "made" : "taken",
             x.changed.len > 0 ? ", changed" : "");
    lvni_data_index_free(&x);
    lvni_data_image_scan_release(s);
}

static lvn_status keep_path(void *user, const char *path)
{
    snprintf(user, 96, "%s", path);
    return LVN_OK;
}

/* The list that one process of a node has made, in another: what it holds, and what it costs. */
TEST(a_list_is_shared)
{
    enum { IMAGES = 2000 };
    const char *folder = make_folder();
    char first[512], data[400], shared[96] = "";
    snprintf(data, sizeof data, "%s/data", folder);
    snprintf(first, sizeof first, "%s/a/2.jpg", data);
    for (int i = 0; i < IMAGES - 3; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/a/deep/image_%06d.jpg", data, i);
        assert_int_equal(link(first, path), 0);
    }
    for (int mode = LVNI_SCAN_CLASSES; mode <= LVNI_SCAN_FLAT; mode++) {
        lvni_data_image_scan *a, *b;
        lvni_data_index made = {.mode = LVNI_INDEX_KEEP, .publish = keep_path, .user = shared};
        lvni_data_index taken = {.mode = LVNI_INDEX_KEEP, .shared = shared};
        assert_int_equal(
            lvni_data_image_scan_open_indexed(data, (lvni_data_scan_mode)mode, &made, &a), LVN_OK);
        assert_non_null(strstr(shared, "/fd/"));
        const int64_t before = (int64_t)lvni_core_alloc_get_stats(LVNI_TAG_DATA).live_bytes;
        lvni_core_vfs_fail_at("open", 1000000, EIO); /* only to count */
        assert_int_equal(
            lvni_data_image_scan_open_indexed(data, (lvni_data_scan_mode)mode, &taken, &b), LVN_OK);
        assert_int_equal(lvni_core_vfs_calls("open"), 0); /* no image is looked at */
        lvni_core_vfs_fail_at("open", 0, 0);
        const int64_t cost = (int64_t)lvni_core_alloc_get_stats(LVNI_TAG_DATA).live_bytes - before;
        assert_true(cost < 4096 + (mode == LVNI_SCAN_FLAT ? 0 : IMAGES * 8)); /* labels */
        assert_int_equal(taken.text.len, 0);
        assert_int_equal(b->n, IMAGES);
        assert_true(lvni_data_image_scan_is_same(a, b));
        assert_memory_equal(a->size, b->size, IMAGES * sizeof *a->size);
        assert_int_equal(b->n_classes, mode == LVNI_SCAN_FLAT ? 0 : 2);
        /* a list of another program, in the same place */
        lvni_data_image_scan *own;
        char *last = shared + strlen(shared) - 1;
        *last = *last == '0' ? '1' : '0';
        assert_int_equal(
            lvni_data_image_scan_open_indexed(data, (lvni_data_scan_mode)mode, &taken, &own),
            LVN_OK);
        assert_true(own->n == IMAGES && own->map.base == NULL);
        lvni_data_image_scan_release(own);
        lvni_data_image_scan_release(a); /* the other's map stays */
        assert_string_equal(lvni_data_image_scan_name(b, IMAGES - 1), "b b%/3.jpg");
        lvni_data_image_scan_release(b);
        /* where the process is gone, or does not show its files, the folder is listed */
        assert_int_equal(
            lvni_data_image_scan_open_indexed(data, (lvni_data_scan_mode)mode, &taken, &b), LVN_OK);
        assert_int_equal(b->n, IMAGES);
        assert_null(b->map.base);
        lvni_data_image_scan_release(b);
        lvni_data_index_free(&made);
        lvni_data_index_free(&taken);
    }
    images_remove_folder(folder);
}

TEST(the_index_of_a_list_is_of_its_entries)
{
    const char *folder = make_folder();
    char first[512], second[512], file[512], what[32];
    snprintf(first, sizeof first, "%s/data/a", folder);
    snprintf(second, sizeof second, "%s/data/b b%%/3.jpg", folder);
    snprintf(file, sizeof file, "%s/list.index", folder);
    const char *const entries[] = {first, second}, *const turned[] = {second, first};
    age(images_path(folder, "data"));
    open_list(entries, file, what, sizeof what);
    assert_string_equal(what, "made");
    open_list(entries, file, what, sizeof what);
    assert_string_equal(what, "taken");
    images_make_jpeg(second, 16, 24, 2); /* a file that no folder of the list holds */
    open_list(entries, file, what, sizeof what);
    assert_string_equal(what, "made, changed");
    open_list(turned, file, what, sizeof what); /* another list */
    assert_string_equal(what, "made");
    images_remove_folder(folder);
}

AFTER_ALL()
{
    lvni_data_scratch_release();
    return 0;
}

/* Image folders: layouts, order, errors, splits, views, and the same bytes from any thread. */
#include "core/alloc.h"
#include "core/rng.h"
#include "data/dataset.h"
#include "data/image_folder.h"
#include "images_support.h"
#include "support/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void expect_scan_error(const char *folder, lvni_data_scan_mode mode, lvn_status status,
                              const char *text)
{
    lvni_data_image_scan *scan;
    assert_int_equal(lvni_data_image_scan_open(folder, mode, &scan), status);
    assert_null(scan);
    if (strstr(lvn_last_error()->message, text) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", lvn_last_error()->message, text);
    }
}

static void expect_names(const lvni_data_image_scan *scan, const char *const *names, int n)
{
    assert_int_equal(scan->n, n);
    for (int i = 0; i < n; i++) {
        assert_string_equal(lvni_data_image_scan_name(scan, i), names[i]);
    }
}

TEST(class_folders_are_read_in_byte_order)
{
    const char *f = images_temp_folder();
    const char *const made[] = {"b/2.jpg",  "a/deep/er/x.JPEG", "a-b/y.jpg",
                                "b/10.Jpg", "b/.hidden.jpg",    ".cache/z.jpg"};
    for (int i = 0; i < 6; i++) {
        images_make_jpeg(images_path(f, made[i]), 8, 8, 1);
    }
    images_write_file(images_path(f, "b/notes.txt"), "x", 1);
    images_write_file(images_path(f, "empty/readme.md"), "x", 1);
    lvni_data_image_scan *scan;
    assert_int_equal(lvni_data_image_scan_open(f, LVNI_SCAN_CLASSES, &scan), LVN_OK);
    expect_names(scan, (const char *[]){"a-b/y.jpg", "a/deep/er/x.JPEG", "b/10.Jpg", "b/2.jpg"}, 4);
    assert_int_equal(scan->n_classes, 3);
    assert_string_equal(scan->class_names[0], "a");
    assert_string_equal(scan->class_names[1], "a-b");
    assert_string_equal(scan->class_names[2], "b");
    const int64_t labels[4] = {1, 0, 2, 2};
    assert_memory_equal(scan->label, labels, sizeof labels);
    assert_int_equal(
        lvni_data_image_scan_relabel(scan, (const char *[]){"b", "zebra", "a-b", "a"}, 4), LVN_OK);
    const int64_t renumbered[4] = {2, 3, 0, 0};
    assert_memory_equal(scan->label, renumbered, sizeof renumbered);
    assert_int_equal(lvni_data_image_scan_relabel(scan, (const char *[]){"b", "a"}, 2),
                     LVN_ERR_MISMATCH);
    assert_non_null(strstr(lvn_last_error()->message, "has the class zebra, which the model"));
    lvni_data_image_scan_release(scan);
    images_remove_folder(f);
}

TEST(train_and_val_folders_are_parts_of_one_list)
{
    const char *f = images_temp_folder();
    const char *const made[] = {"train/a/1.jpg", "train/b/1.jpg", "train/c/1.jpg", "val/b/7.jpg",
                                "val/c/8.jpg"};
    for (int i = 0; i < 5; i++) {
        images_make_jpeg(images_path(f, made[i]), 8, 8, 1);
    }
    lvni_data_image_scan *scan;
    assert_int_equal(lvni_data_image_scan_open(f, LVNI_SCAN_CLASSES, &scan), LVN_OK);
    expect_names(scan, made, 5);
    assert_int_equal(scan->n_classes, 3);
    assert_int_equal(scan->label[3], 1);
    assert_int_equal(scan->label[4], 2);
    int64_t *indices, n;
    assert_int_equal(lvni_data_image_scan_select(scan, LVNI_PART_VAL, &indices, &n), LVN_OK);
    assert_int_equal(n, 2);
    assert_int_equal(indices[0], 3);
    lvni_data_transform t;
    lvni_data_transform_init(&t, 8);
    lvn_dataset *val;
    const lvni_data_views views = lvni_data_views_make(&t, 1);
    assert_int_equal(lvni_data_image_view_create(scan, indices, n, &views, &val), LVN_OK);
    assert_int_equal(val->cls->length(val), 2);
    assert_int_equal(lvni_data_dataset_index(val, 1), 4);
    assert_string_equal(val->cls->sample_name(val, 4), "val/c/8.jpg");
    assert_int_equal(val->n_classes, 3);
    lvni_core_free(indices);
    lvni_data_image_scan_release(scan);
    lvn_dataset_destroy(val);
    images_make_jpeg(images_path(f, "val/d/1.jpg"), 8, 8, 1);
    expect_scan_error(f, LVNI_SCAN_CLASSES, LVN_ERR_USAGE, "class d, which train/ does not have");
    images_remove_folder(f);
}

TEST(unusable_folders_are_explained)
{
    const char *f = images_temp_folder();
    expect_scan_error(images_path(f, "none"), LVNI_SCAN_CLASSES, LVN_ERR_NOT_FOUND, "none");
    expect_scan_error(f, LVNI_SCAN_CLASSES, LVN_ERR_USAGE, "no images");
    expect_scan_error(f, LVNI_SCAN_FLAT, LVN_ERR_USAGE, "no images");
    images_make_jpeg(images_path(f, "dress/1.jpg"), 8, 8, 1);
    expect_scan_error(f, LVNI_SCAN_CLASSES, LVN_ERR_USAGE,
                      "needs two or more classes, found 1: dress");
    lvni_data_image_scan *scan;
    assert_int_equal(lvni_data_image_scan_open(f, LVNI_SCAN_EVAL, &scan), LVN_OK);
    lvni_data_image_scan_release(scan);
    images_make_jpeg(images_path(f, "loose.jpg"), 8, 8, 1);
    expect_scan_error(f, LVNI_SCAN_CLASSES, LVN_ERR_USAGE,
                      "1 of 2 images lie in no class folder (the first is loose.jpg)");
    expect_scan_error(images_path(f, "loose.jpg"), LVNI_SCAN_CLASSES, LVN_ERR_USAGE, "is a file");
    images_remove_folder(f);
}

TEST(links_are_followed_and_loops_found)
{
    const char *f = images_temp_folder();
    images_make_jpeg(images_path(f, "store/1.jpg"), 8, 8, 1);
    images_make_jpeg(images_path(f, "set/a/1.jpg"), 8, 8, 1);
    assert_int_equal(symlink("../store", images_path(f, "set/b")), 0);
    assert_int_equal(symlink("../../store/1.jpg", images_path(f, "set/a/2.jpg")), 0);
    lvni_data_image_scan *scan;
    assert_int_equal(lvni_data_image_scan_open(images_path(f, "set"), LVNI_SCAN_CLASSES, &scan),
                     LVN_OK);
    expect_names(scan, (const char *[]){"a/1.jpg", "a/2.jpg", "b/1.jpg"}, 3);
    lvni_data_image_scan_release(scan);
    assert_int_equal(symlink("..", images_path(f, "set/a/up")), 0);
    char text[600];
    snprintf(text, sizeof text, "set/a/up is a link to a folder that it lies in, %s/set: ", f);
    expect_scan_error(images_path(f, "set"), LVNI_SCAN_CLASSES, LVN_ERR_USAGE, text);
    assert_int_equal(unlink(images_path(f, "set/a/up")), 0);
    assert_int_equal(symlink("round", images_path(f, "set/a/round")), 0);
    expect_scan_error(images_path(f, "set"), LVNI_SCAN_CLASSES, LVN_ERR_USAGE,
                      "set/a/round is a link that leads back to itself");
    images_remove_folder(f);
}

TEST(flat_mode_takes_images_anywhere_or_one_file)
{
    const char *f = images_temp_folder();
    images_make_jpeg(images_path(f, "z.jpg"), 8, 8, 1);
    images_make_jpeg(images_path(f, "in/side.jpg"), 8, 8, 1);
    lvn_dataset *d = LVN_IMAGE_FOLDER(f, .resize = 8, .flat = true);
    assert_non_null(d);
    lvn_field fields[LVN_MAX_FIELDS];
    assert_int_equal(d->cls->fields(d, fields), 1);
    assert_int_equal(d->n_classes, 0);
    assert_int_equal(d->cls->length(d), 2);
    assert_string_equal(d->cls->sample_name(d, 0), "in/side.jpg");
    lvn_dataset_destroy(d);
    d = LVN_IMAGE_FOLDER(images_path(f, "z.jpg"), .resize = 8, .flat = true);
    assert_non_null(d);
    assert_string_equal(d->cls->sample_name(d, 0), "z.jpg");
    float image[8 * 8 * 3];
    assert_int_equal(d->cls->get(d, &(lvn_sample_key){0}, (void *[]){image}), LVN_OK);
    lvn_dataset_destroy(d);
    assert_null(LVN_IMAGE_FOLDER(f, .resize = -3));
    assert_int_equal(lvn_last_error()->code, LVN_ERR_USAGE);
    images_remove_folder(f);
}

TEST(unreadable_images_are_errors_of_their_own)
{
    const char *f = images_temp_folder();
    images_write_file(images_path(f, "a/empty.jpg"), "", 0);
    images_make_jpeg(images_path(f, "b/gone.jpg"), 8, 8, 1);
    assert_int_equal(symlink("nowhere.jpg", images_path(f, "b/broken.jpg")), 0);
    lvn_dataset *d = LVN_IMAGE_FOLDER(f, .resize = 8);
    assert_non_null(d);
    float image[8 * 8 * 3];
    int64_t label;
    void *field[] = {image, &label};
    assert_int_equal(d->cls->get(d, &(lvn_sample_key){.sample = 0}, field), LVN_ERR_CORRUPT);
    assert_non_null(strstr(lvn_last_error()->message, "a/empty.jpg: the file is empty (0 bytes)"));
    assert_int_equal(d->cls->get(d, &(lvn_sample_key){.sample = 1}, field), LVN_ERR_NOT_FOUND);
    assert_int_equal(d->cls->get(d, &(lvn_sample_key){.sample = 2}, field), LVN_OK);
    assert_int_equal(label, 1);
    assert_int_equal(unlink(images_path(f, "b/gone.jpg")), 0);
    assert_int_equal(d->cls->get(d, &(lvn_sample_key){.sample = 2}, field), LVN_ERR_NOT_FOUND);
    assert_int_equal(d->cls->get(d, &(lvn_sample_key){.sample = 3}, field), LVN_ERR_INVALID);
    lvn_dataset_destroy(d);
    images_remove_folder(f);
}

/* The rule of dataset.h, written once more. */
TEST(split_takes_a_seeded_part_of_every_class)
{
    int64_t labels[110];
    for (int i = 0; i < 110; i++) {
        /* 34, 33, 33, 4, 5 and 1 samples */
        labels[i] = i < 100 ? i % 3 : i < 104 ? 3 : i < 109 ? 4 : 5;
    }
    int64_t *train, *val, n_train, n_val;
    assert_int_equal(lvni_data_split(labels, 110, 6, 0.1, 42, &train, &n_train, &val, &n_val),
                     LVN_OK);
    assert_int_equal(n_val, 3 + 3 + 3 + 1 + 1 + 0);
    assert_int_equal(n_train, 110 - 11);
    int seen[110] = {0};
    for (int64_t i = 0; i < n_train; i++) {
        assert_true(i == 0 || train[i] > train[i - 1]);
        seen[train[i]]++;
    }
    for (int64_t i = 0; i < n_val; i++) {
        assert_true(i == 0 || val[i] > val[i - 1]);
        seen[val[i]] += 10;
    }
    int64_t members[4] = {100, 101, 102, 103};
    const lvni_core_rng rng = {lvni_core_rng_make_key(42, lvni_core_rng_purpose("split")), 3, 0, 0};
    uint64_t element = 0;
    for (uint32_t i = 3; i > 0; i--) {
        const uint32_t j = lvni_core_rng_below(&rng, i + 1, &element);
        const int64_t m = members[i];
        members[i] = members[j];
        members[j] = m;
    }
    assert_int_equal(seen[members[3]], 10);
    for (int i = 0; i < 110; i++) {
        assert_true(seen[i] == 1 || seen[i] == 10);
    }
    int64_t *train2, *val2;
    assert_int_equal(lvni_data_split(labels, 110, 6, 0.1, 43, &train2, &n_train, &val2, &n_val),
                     LVN_OK);
    assert_memory_not_equal(val, val2, 11 * sizeof *val);
    lvni_core_free(train), lvni_core_free(val), lvni_core_free(train2), lvni_core_free(val2);
    assert_int_equal(lvni_data_split(labels, 110, 6, 0.0, 42, &train, &n_train, &val, &n_val),
                     LVN_OK);
    assert_int_equal(n_val, 0);
    lvni_core_free(train), lvni_core_free(val);
    assert_int_equal(lvni_data_split(labels, 110, 6, 1.0, 42, &train, &n_train, &val, &n_val),
                     LVN_ERR_USAGE);
}

/* ---- the same bytes from any thread ---- */

enum { SIZE = 32, SAMPLES = 12, BYTES = SIZE * SIZE * 3 * (int)sizeof(float) };

typedef struct reader {
    const lvn_dataset *dataset;
    int first; /* threads walk the samples from different ends */
    float images[SAMPLES][SIZE * SIZE * 3];
    lvn_status status;
} reader;

static void *read_all(void *arg)
{
    reader *r = arg;
    for (int k = 0; k < SAMPLES && r->status == LVN_OK; k++) {
        const int i = (r->first + k * 5) % SAMPLES;
        int64_t label;
        r->status = r->dataset->cls->get(r->dataset, &(lvn_sample_key){9, 2, i, true},
                                         (void *[]){r->images[i], &label});
    }
    return NULL;
}

TEST(four_threads_read_the_same_bytes)
{
    const char *f = images_temp_folder();
    for (int i = 0; i < SAMPLES; i++) {
        char name[32];
        snprintf(name, sizeof name, "%c/%02d.jpg", i % 2 ? 'a' : 'b', i);
        images_make_jpeg(images_path(f, name), 60 + 13 * i, 200 - 11 * i, (unsigned)i);
    }
    lvn_dataset *d = LVN_IMAGE_FOLDER(f, .resize = SIZE, .color_jitter = 0.4);
    assert_non_null(d);
    reader *readers = calloc(4, sizeof *readers);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        readers[i].dataset = d;
        readers[i].first = 3 * i;
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, &readers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readers[i].status, LVN_OK);
        assert_memory_equal(readers[i].images, readers[0].images, sizeof readers[0].images);
    }
    float other[SIZE * SIZE * 3];
    int64_t label;
    assert_int_equal(d->cls->get(d, &(lvn_sample_key){9, 3, 0, true}, (void *[]){other, &label}),
                     LVN_OK);
    assert_memory_not_equal(other, readers[0].images[0], BYTES);
    assert_int_equal(d->cls->get(d, &(lvn_sample_key){8, 2, 0, true}, (void *[]){other, &label}),
                     LVN_OK);
    assert_memory_not_equal(other, readers[0].images[0], BYTES);
    assert_int_equal(d->cls->get(d, &(lvn_sample_key){9, 2, 0, true}, (void *[]){other, &label}),
                     LVN_OK);
    assert_memory_equal(other, readers[0].images[0], BYTES);
    /* this thread is warm for every size by now */
    const uint64_t calls = lvni_core_alloc_get_total().calls;
    read_all(&readers[0]);
    const uint64_t warm = lvni_core_alloc_get_total().calls;
    read_all(&readers[0]);
    assert_true(warm >= calls);
    assert_int_equal(lvni_core_alloc_get_total().calls, warm);
    free(readers);
    lvn_dataset_destroy(d);
    images_remove_folder(f);
}

/* Every k-th allocation fails once: a clean error, nothing lost (the sanitizer build looks for
 * leaks). */
TEST(opening_survives_any_failed_allocation)
{
    const char *f = images_temp_folder();
    images_make_jpeg(images_path(f, "a/1.jpg"), 9, 9, 1);
    images_make_jpeg(images_path(f, "b/1.jpg"), 9, 9, 1);
    float image[8 * 8 * 3];
    int64_t label;
    for (int k = 1;; k++) {
        assert_true(k < 200);
        lvni_data_scratch_release();
        lvni_core_alloc_fail_at(k);
        lvn_dataset *d = LVN_IMAGE_FOLDER(f, .resize = 8);
        const lvn_status status =
            d == NULL ? lvn_last_error()->code
                      : d->cls->get(d, &(lvn_sample_key){.sample = 1}, (void *[]){image, &label});
        lvni_core_alloc_fail_at(0);
        lvn_dataset_destroy(d);
        if (status == LVN_OK) {
            assert_true(k > 10);
            break;
        }
        assert_int_equal(status, LVN_ERR_MEMORY);
    }
    images_remove_folder(f);
}

TEST(the_clothing_photos_all_decode)
{
    const char *folder = images_real_folder();
    if (folder == NULL) {
        skip();
    }
    lvn_dataset *d = LVN_IMAGE_FOLDER(folder, .resize = 64);
    assert_non_null(d);
    assert_int_equal(d->cls->length(d), 341);
    assert_int_equal(d->n_classes, 10);
    assert_string_equal(d->class_names[9], "t-shirt");
    float *image = malloc(64 * 64 * 3 * sizeof *image);
    int64_t label;
    for (int64_t i = 0; i < 341; i++) {
        assert_int_equal(
            d->cls->get(d, &(lvn_sample_key){1, 0, i, i % 2 == 0}, (void *[]){image, &label}),
            LVN_OK);
        assert_int_equal(label, d->cls->label(d, i));
        for (int k = 0; k < 64 * 64 * 3; k++) {
            assert_true(image[k] >= -2.2f && image[k] <= 2.7f);
        }
    }
    int64_t *train, *val, n_train, n_val;
    assert_int_equal(lvni_data_split_dataset(d, 0.2, 1, &train, &n_train, &val, &n_val), LVN_OK);
    assert_int_equal(n_train + n_val, 341);
    assert_int_in_range(n_val, 64, 73);
    lvni_core_free(train), lvni_core_free(val);
    free(image);
    lvn_dataset_destroy(d);
}

TEST(a_list_of_folders_and_files_is_one_sorted_list)
{
    const char *f = images_temp_folder();
    const char *const made[] = {"b/2.jpg", "b/1.jpg", "a c/x.jpg", "a c/sub/y.jpg", "z.jpg"};
    char dotted[512], entry[4][512];
    for (int i = 0; i < 5; i++) {
        images_make_jpeg(images_path(f, made[i]), 8, 8, 1);
    }
    snprintf(entry[0], 512, "%s/z.jpg", f);
    snprintf(entry[1], 512, "%s/b/", f);
    snprintf(entry[2], 512, "%s/a c", f);
    snprintf(dotted, sizeof dotted, "%s/b/../b/./2.jpg", f);
    const char *const entries[] = {entry[0], entry[1], entry[2], dotted};
    lvni_data_image_scan *scan;
    lvni_data_index none = {.mode = LVNI_INDEX_NONE};
    assert_int_equal(lvni_data_image_scan_open_list(entries, 3, &none, &scan), LVN_OK);
    const char *const sorted[] = {"a c/sub/y.jpg", "a c/x.jpg", "b/1.jpg", "b/2.jpg", "z.jpg"};
    expect_names(scan, sorted, 5);
    assert_string_equal(scan->root, f);
    assert_int_equal(scan->n_twice, 0);
    lvni_data_image_scan_release(scan);
    /* what is named twice is there twice, whatever it is called */
    assert_int_equal(lvni_data_image_scan_open_list(entries, 4, &none, &scan), LVN_OK);
    assert_int_equal(scan->n, 6);
    assert_int_equal(scan->n_twice, 1);
    assert_string_equal(lvni_data_image_scan_name(scan, scan->twice), "b/2.jpg");
    lvni_data_image_scan_release(scan);
    /* folders within each other lie in the parent of the outer one */
    snprintf(entry[3], 512, "%s/a c/sub", f);
    const char *const nested[] = {entry[2], entry[3]};
    assert_int_equal(lvni_data_image_scan_open_list(nested, 2, &none, &scan), LVN_OK);
    expect_names(scan, (const char *[]){"a c/sub/y.jpg", "a c/sub/y.jpg", "a c/x.jpg"}, 3);
    lvni_data_image_scan_release(scan);
    images_remove_folder(f);
}

TEST(all_mistakes_of_a_list_come_at_once)
{
    const char *f = images_temp_folder();
    char entry[5][512];
    const char *const names[] = {"good", "missing", "empty", "notes.txt", "odd.dat"};
    images_make_jpeg(images_path(f, "good/1.jpg"), 8, 8, 1);
    images_make_jpeg(images_path(f, "odd.jpg"), 8, 8, 1);
    assert_int_equal(rename(images_path(f, "odd.jpg"), images_path(f, "odd.dat")), 0);
    images_write_file(images_path(f, "empty/deep/readme.md"), "x", 1);
    images_write_file(images_path(f, "notes.txt"), "x", 1);
    const char *entries[5];
    for (int i = 0; i < 5; i++) {
        snprintf(entry[i], sizeof entry[i], "%s/%s", f, names[i]);
        entries[i] = entry[i];
    }
    lvni_core_str mistakes = {0};
    char expected[2048];
    snprintf(expected, sizeof expected,
             "%s: No such file or directory; %s: no images (JPEG or PNG) in this folder or below; "
             "%s: neither a folder nor an image (JPEG or PNG: .jpg, .jpeg, .png)",
             entry[1], entry[2], entry[3]);
    assert_int_equal(lvni_data_list_check(entries, 5, &mistakes), LVN_OK);
    assert_string_equal(lvni_core_str_text(&mistakes), expected);
    lvni_core_str_free(&mistakes);
    images_remove_folder(f);
}

AFTER_ALL()
{
    lvni_data_scratch_release();
    return 0;
}

/* Images in array files: MNIST's four files and .npy, their parts, classes, pixels, and what does
 * not fit together. */
#include "core/alloc.h"
#include "data/array_images.h"
#include "data/array_set.h"
#include "data/array.h"
#include "data/shapes.h"
#include "images_support.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { W = 6, H = 5, TRAIN = 4, VAL = 2 };

static void write_idx(const char *folder, const char *name, int ndim, const int *shape,
                      const uint8_t *data, int n)
{
    uint8_t file[1024] = {0, 0, 8, (uint8_t)ndim};
    for (int i = 0; i < ndim; i++) {
        file[7 + 4 * i] = (uint8_t)shape[i];
    }
    memcpy(file + 4 + (ptrdiff_t)4 * ndim, data, (size_t)n);
    images_write_file(images_path(folder, name), file, 4 + 4 * (size_t)ndim + (size_t)n);
}

/* Value of a pixel: all differ. */
static void paint(uint8_t *pixels, int n, int start)
{
    for (int i = 0; i < n; i++) {
        pixels[i] = (uint8_t)(start + i);
    }
}

static void write_mnist(const char *folder)
{
    uint8_t pixels[TRAIN * W * H];
    const uint8_t labels[TRAIN] = {2, 0, 1, 2}, val_labels[VAL] = {1, 0};
    paint(pixels, TRAIN * W * H, 0);
    write_idx(folder, "train-images-idx3-ubyte", 3, (int[]){TRAIN, H, W}, pixels, TRAIN * W * H);
    write_idx(folder, "train-labels-idx1-ubyte", 1, (int[]){TRAIN}, labels, TRAIN);
    paint(pixels, VAL * W * H, 100);
    write_idx(folder, "t10k-images.idx3-ubyte", 3, (int[]){VAL, H, W}, pixels, VAL * W * H);
    write_idx(folder, "t10k-labels.idx1-ubyte", 1, (int[]){VAL}, val_labels, VAL);
}

TEST(mnist_folder_has_its_two_parts_and_its_pixels)
{
    const char *folder = images_temp_folder();
    assert_false(lvni_data_array_set_is_folder(folder));
    write_mnist(folder);
    assert_true(lvni_data_array_set_is_folder(folder));
    assert_false(lvni_data_array_set_is_file(folder));
    lvni_data_array_images *m;
    assert_int_equal(lvni_data_array_images_open(folder, NULL, true, &m), LVN_OK);
    assert_int_equal(m->n_parts, 2);
    assert_int_equal(m->n, TRAIN + VAL);
    assert_int_equal(m->n_classes, 3);
    assert_string_equal(m->class_names[2], "2");
    lvni_data_transform t;
    lvni_data_shapes_transform_init(&t, H); /* the central square of 6 x 5, one to one */
    lvn_dataset *d;
    const lvni_data_views views = lvni_data_views_make(&t, 1);
    assert_int_equal(lvni_data_array_images_view(m, (int64_t[]){3, 5}, 2, &views, &d), LVN_OK);
    lvni_data_array_images_release(m);
    assert_int_equal(d->cls->length(d), 2);
    assert_int_equal(d->cls->index(d, 1), 5);
    const struct {
        int64_t sample, label;
        int first;
    } cases[] = {{3, 2, 3 * W * H}, {5, 0, 100 + W * H}};
    for (int i = 0; i < 2; i++) {
        float image[H * H * 3];
        uint8_t rgb[H * H * 3];
        int64_t label = -1;
        assert_int_equal(d->cls->get(d, &(lvn_sample_key){1, 0, cases[i].sample, true},
                                     (void *[]){image, &label}),
                         LVN_OK);
        assert_int_equal(label, cases[i].label);
        assert_int_equal(d->cls->label(d, cases[i].sample), label);
        lvni_data_transform_to_rgb(&t, image, rgb);
        for (int k = 0; k < H * H * 3; k++) {
            /* between the two columns of the centre: half a grey level more, rounded up or down */
            const int x = k / 3 % H, y = k / 3 / H, want = cases[i].first + y * W + x;
            assert_int_in_range(rgb[k], want, want + 1);
        }
    }
    lvn_dataset_destroy(d);
    images_remove_folder(folder);
}

static void expect(const char *path, const char *labels, lvn_status status, const char *text)
{
    lvni_data_array_images *m;
    const uint64_t before = lvni_core_alloc_get_total().live_bytes;
    assert_int_equal(lvni_data_array_images_open(path, labels, true, &m), status);
    if (strstr(lvn_last_error()->message, text) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", lvn_last_error()->message, text);
    }
    assert_int_equal(lvni_core_alloc_get_total().live_bytes, before);
}

TEST(parts_that_do_not_fit_are_reported)
{
    const char *folder = images_temp_folder();
    write_mnist(folder);
    const uint8_t three[3] = {0, 1, 2}, far[VAL] = {0, 3}, zeros[TRAIN] = {0};
    uint8_t pixels[TRAIN * W * H] = {0};
    write_idx(folder, "t10k-labels.idx1-ubyte", 1, (int[]){VAL}, far, VAL);
    expect(folder, NULL, LVN_ERR_USAGE, "has the class 3, which the training images do not have");
    write_idx(folder, "t10k-images.idx3-ubyte", 3, (int[]){VAL, W, H}, pixels, VAL * W * H);
    expect(folder, NULL, LVN_ERR_MISMATCH, "5 x 6 x 1");
    assert_int_equal(unlink(images_path(folder, "t10k-images.idx3-ubyte")), 0);
    write_idx(folder, "train-labels-idx1-ubyte", 1, (int[]){3}, three, 3);
    expect(folder, NULL, LVN_ERR_MISMATCH, "(3) labels for 4 images");
    write_idx(folder, "train-labels-idx1-ubyte", 1, (int[]){TRAIN}, zeros, TRAIN);
    expect(folder, NULL, LVN_ERR_USAGE, "two or more classes");
    assert_int_equal(unlink(images_path(folder, "train-labels-idx1-ubyte")), 0);
    expect(folder, NULL, LVN_ERR_NOT_FOUND, "no train-labels-idx1-ubyte");
    write_idx(folder, "train-labels-idx1-ubyte", 1, (int[]){TRAIN}, zeros, TRAIN);
    write_idx(folder, "train-images-idx3-ubyte", 2, (int[]){TRAIN, W * H}, pixels, TRAIN * W * H);
    expect(folder, NULL, LVN_ERR_USAGE, "(4, 30) of uint8");
    write_idx(folder, "train-images-idx3-ubyte", 3, (int[]){0, H, W}, pixels, 0);
    expect(folder, NULL, LVN_ERR_USAGE, "no images");
    images_remove_folder(folder);
}

/* EMNIST's names and torchvision's folders; which labels have no image. */
/* In whichever order the file system lists them. */
TEST(sets_among_many_files_are_found)
{
    enum { FILES = 1500, SETS = 12 };
    const char *folder = images_temp_folder();
    for (int i = 0; i < FILES; i++) {
        char path[512];
        const bool is_set = i % (FILES / SETS) == 0;
        snprintf(path, sizeof path, is_set ? "%s/%d-train-images-idx3-ubyte" : "%s/%d", folder, i);
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        fclose(f);
    }
    lvni_data_array_images *m;
    assert_int_equal(lvni_data_array_images_open(folder, NULL, true, &m), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "holds 12 sets; "));
}

TEST(sets_are_found_by_their_names)
{
    const char *folder = images_temp_folder();
    char raw[256], file[512];
    snprintf(raw, sizeof raw, "%s/EMNIST/raw", folder);
    uint8_t pixels[TRAIN * W * H];
    const uint8_t labels[TRAIN] = {1, 9, 5, 6}, test[VAL] = {9, 1};
    paint(pixels, TRAIN * W * H, 3);
    write_idx(raw, "emnist-letters-train-images-idx3-ubyte", 3, (int[]){TRAIN, H, W}, pixels,
              TRAIN * W * H);
    write_idx(raw, "emnist-letters-train-labels-idx1-ubyte", 1, (int[]){TRAIN}, labels, TRAIN);
    write_idx(raw, "emnist-letters-test-images-idx3-ubyte", 3, (int[]){VAL, H, W}, pixels,
              VAL * W * H);
    write_idx(raw, "emnist-letters-test-labels-idx1-ubyte", 1, (int[]){VAL}, test, VAL);
    snprintf(file, sizeof file, "%s/emnist-letters-train-images-idx3-ubyte", raw);
    const char *const names[] = {folder, raw, file};
    for (int i = 0; i < 3; i++) {
        lvni_data_array_images *m;
        lvni_core_str gaps = {0};
        assert_true(lvni_data_array_set_is_folder(names[i]) == (i < 2));
        assert_int_equal(lvni_data_array_images_open(names[i], NULL, true, &m), LVN_OK);
        assert_int_equal(m->n_parts, 2);
        assert_int_equal(m->n, TRAIN + VAL);
        assert_int_equal(m->label[TRAIN], 9);
        assert_memory_equal(m->part[0].data, pixels, sizeof pixels);
        assert_int_equal(lvni_data_array_images_print_gaps(m, &gaps), LVN_OK);
        assert_string_equal(lvni_core_str_text(&gaps), "0, 2 to 4, 7, 8");
        lvni_core_str_free(&gaps);
        lvni_data_array_images_release(m);
    }
    snprintf(file, sizeof file, "%s/emnist-letters-test-images-idx3-ubyte", raw);
    lvni_data_array_images *m; /* a test part by itself, with its labels; to predict, without */
    assert_int_equal(lvni_data_array_images_open(file, NULL, true, &m), LVN_OK);
    assert_int_equal(m->n, VAL);
    lvni_data_array_images_release(m);
    snprintf(file, sizeof file, "%s/emnist-letters-train-images-idx3-ubyte", raw);
    assert_int_equal(lvni_data_array_images_open(file, NULL, false, &m), LVN_OK);
    assert_int_equal(m->n, TRAIN);
    lvni_data_array_images_release(m);
    /* an unpacked archive is a folder of the file's name */
    write_idx(raw, "emnist-digits-train-images-idx3-ubyte/x", 1, (int[]){TRAIN}, labels, TRAIN);
    assert_int_equal(lvni_data_array_images_open(raw, NULL, true, &m), LVN_OK);
    lvni_data_array_images_release(m);
    snprintf(file, sizeof file, "%s/KMNIST", folder);
    write_mnist(file);
    assert_true(lvni_data_array_set_is_folder(file));
    snprintf(file, sizeof file, "%s/KMNIST/raw", folder);
    write_mnist(file);
    expect(folder, NULL, LVN_ERR_USAGE, "holds 2 sets; give the training images of one as data=: ");
    images_remove_folder(folder);
}

TEST(npy_images_find_their_labels)
{
    const char *folder = images_temp_folder(), *images = images_path(folder, "p.npy");
    static const char header[] =
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3, 3, 3), }";
    uint8_t file[256] = "\x93NUMPY\x01";
    file[8] = sizeof header - 1;
    memcpy(file + 10, header, sizeof header - 1);
    paint(file + 10 + sizeof header - 1, 54, 7);
    images_write_file(images, file, 10 + sizeof header - 1 + 54);
    assert_true(lvni_data_array_set_is_file(images));
    expect(images, NULL, LVN_ERR_USAGE, "labels= is missing");
    const char *labels = images_path(folder, "labels.npy");
    const float reals[2] = {0.0F, 1.0F};
    assert_int_equal(lvni_data_npy_write_f32(labels, 1, (int64_t[]){2}, reals), LVN_OK);
    expect(images, NULL, LVN_ERR_USAGE, "whole numbers");
    images_write_labels(labels, 2, (int64_t[]){0, -1});
    expect(images, NULL, LVN_ERR_USAGE, "label -1 of image 1");
    images_write_labels(labels, 2, (int64_t[]){3, 1});
    lvni_data_array_images *m, *other;
    assert_int_equal(lvni_data_array_images_open(images, NULL, true, &m), LVN_OK);
    assert_int_equal(m->n_classes, 4);
    assert_int_equal(lvni_data_array_images_open(images, labels, true, &other), LVN_OK);
    assert_true(m->content == other->content);
    lvni_data_array_images_release(other);
    static const char *const names[] = {"1", "3"}, *const too_few[] = {"0", "1"};
    assert_int_equal(lvni_data_array_images_relabel(m, too_few, 2), LVN_ERR_MISMATCH);
    assert_non_null(strstr(lvn_last_error()->message, "class 3"));
    assert_int_equal(lvni_data_array_images_relabel(m, names, 2), LVN_OK);
    assert_true(m->label[0] == 1 && m->label[1] == 0);
    lvni_data_transform t;
    lvni_data_shapes_transform_init(&t, 3);
    lvn_dataset *d;
    const lvni_data_views views = lvni_data_views_make(&t, 1);
    assert_int_equal(lvni_data_array_images_view(m, NULL, 0, &views, &d), LVN_OK);
    assert_int_equal(d->n_classes, 2);
    float image[27];
    uint8_t rgb[27];
    int64_t label;
    assert_int_equal(d->cls->get(d, &(lvn_sample_key){1, 0, 1, false}, (void *[]){image, &label}),
                     LVN_OK);
    lvni_data_transform_to_rgb(&t, image, rgb);
    assert_memory_equal(rgb, file + 10 + sizeof header - 1 + 27, 27);
    lvn_dataset_destroy(d);
    lvni_data_array_images_release(m);
    /* to predict: labels are not read */
    assert_int_equal(lvni_data_array_images_open(images, NULL, false, &m), LVN_OK);
    assert_null(m->label);
    lvni_data_array_images_release(m);
    images_remove_folder(folder);
}

TEST(no_memory_leaves_nothing_behind)
{
    const char *folder = images_temp_folder();
    write_mnist(folder);
    const uint64_t before = lvni_core_alloc_get_total().live_bytes;
    static const char *const names[] = {"2", "1", "0"};
    lvni_data_transform t;
    lvni_data_shapes_transform_init(&t, H);
    lvn_status s = LVN_ERR_MEMORY;
    int64_t k = 0;
    while (s == LVN_ERR_MEMORY && k < 100) {
        lvni_data_array_images *m = NULL;
        lvn_dataset *d = NULL;
        lvni_core_alloc_fail_at(++k);
        s = lvni_data_array_images_open(folder, NULL, true, &m);
        if (s == LVN_OK) {
            s = lvni_data_array_images_relabel(m, names, 3);
        }
        if (s == LVN_OK) {
            const lvni_data_views views = lvni_data_views_make(&t, 1);
            s = lvni_data_array_images_view(m, (int64_t[]){1}, 1, &views, &d);
        }
        lvni_core_alloc_fail_at(0);
        lvn_dataset_destroy(d);
        lvni_data_array_images_release(m);
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, before);
    }
    assert_int_equal(s, LVN_OK);
    assert_true(k > 10);
    images_remove_folder(folder);
}

AFTER_ALL()
{
    lvni_data_scratch_release();
    return 0;
}

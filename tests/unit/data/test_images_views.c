/* Datasets as users open them (lvn_image_folder_open): several views of a sample, each option,
 * parts, the built-in images. */
#include "data/dataset.h"
#include "data/views.h"
#include "images_support.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 16, N = SIDE * SIDE * 3 };

/* Fields of a sample, in order of views. */
typedef struct sample {
    float view[LVNI_MAX_VIEWS][N];
    int64_t label;
} sample;

static sample read_at(const lvn_dataset *data, const lvn_sample_key *at)
{
    assert_non_null(data);
    sample s;
    memset(&s, 0, sizeof s);
    void *labelled[] = {s.view[0], &s.label, s.view[1], s.view[2], s.view[3]};
    void *flat[] = {s.view[0], s.view[1], s.view[2], s.view[3]};
    const lvn_status status = data->cls->get(data, at, data->n_classes > 0 ? labelled : flat);
    if (status != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    return s;
}

static bool same(const float *a, const float *b)
{
    return memcmp(a, b, N * sizeof *a) == 0;
}

/* Mean distance in grey levels. */
static double distance(const float *a, const float *b)
{
    double sum = 0.0;
    for (int e = 0; e < N; e++) {
        sum += fabs((double)a[e] - (double)b[e]);
    }
    return sum / N * 0.226 * 255.0;
}

static const char *make_folder(int side)
{
    const char *f = images_temp_folder();
    for (int i = 0; i < 10; i++) {
        char name[32];
        snprintf(name, sizeof name, "%c/%d.jpg", 'a' + i % 2, i);
        images_make_jpeg(images_path(f, name), side, side * 3 / 4, (unsigned)i + 1);
    }
    return f;
}

static const lvn_sample_key key = {.seed = 5, .epoch = 3, .sample = 4, .training = true};

/* Other draws in each view: the first ones of a dataset with one view, and those of another seed.
 */
static void check_views(const char *path, double closeness)
{
    lvn_dataset *one = LVN_IMAGE_FOLDER(path, .resize = SIDE, .color_jitter = 0.4),
                *four = LVN_IMAGE_FOLDER(path, .resize = SIDE, .color_jitter = 0.4, .views = 4);
    lvn_field field[LVN_MAX_FIELDS];
    assert_int_equal(four->cls->fields(four, field), 5);
    assert_string_equal(field[0].name, "image");
    assert_string_equal(field[1].name, "label");
    assert_string_equal(field[2].name, "image2");
    assert_string_equal(field[4].name, "image4");
    assert_true(field[4].ndim == 3 && field[4].shape[0] == SIDE && field[4].shape[2] == 3);
    const sample a = read_at(one, &key), b = read_at(four, &key), again = read_at(four, &key);
    assert_int_equal(a.label, b.label);
    for (int v = 0; v < 4; v++) {
        const lvn_sample_key own = lvni_data_view_key(&key, v);
        assert_int_equal(own.sample, key.sample);
        assert_true(v == 0 ? own.seed == key.seed : own.seed != key.seed);
        const sample alone = read_at(one, &own);
        assert_true(same(b.view[v], again.view[v]));
        assert_true(closeness == 0.0 ? same(alone.view[0], b.view[v])
                                     : distance(alone.view[0], b.view[v]) < closeness);
        for (int w = 0; w < v; w++) {
            assert_true(distance(b.view[v], b.view[w]) > 2.0);
        }
    }
    const lvn_sample_key plain = {.seed = 5, .epoch = 3, .sample = 4};
    const sample still = read_at(four, &plain), whole = read_at(one, &plain);
    for (int v = 0; v < 4; v++) { /* evaluation draws nothing */
        assert_true(same(still.view[v], whole.view[0]));
    }
    lvn_dataset_destroy(one);
    lvn_dataset_destroy(four);
}

TEST(views_have_draws_of_their_own)
{
    const char *f = make_folder(24);
    check_views(f, 0.0);
    images_remove_folder(f);
    check_views("builtin:shapes", 0.0);
}

/* One decoded image serves all views, so it may be larger than the one that a view alone gets. */
TEST(views_of_large_photos_share_a_decoded_image)
{
    const char *f = make_folder(400);
    check_views(f, 3.0);
    images_remove_folder(f);
}

static void check_flat(const char *path)
{
    lvn_dataset *flat = LVN_IMAGE_FOLDER(path, .resize = SIDE, .flat = true, .views = 2),
                *one = LVN_IMAGE_FOLDER(path, .resize = SIDE, .flat = true),
                *labelled = LVN_IMAGE_FOLDER(path, .resize = SIDE);
    lvn_field field[LVN_MAX_FIELDS];
    assert_int_equal(flat->cls->fields(flat, field), 2);
    assert_string_equal(field[1].name, "image2");
    const sample a = read_at(flat, &key), b = read_at(one, &key), c = read_at(labelled, &key);
    assert_true(same(a.view[0], b.view[0]) && !same(a.view[0], a.view[1]));
    assert_true(same(a.view[0], c.view[0]));
    lvn_dataset_destroy(flat);
    lvn_dataset_destroy(one);
    lvn_dataset_destroy(labelled);
}

TEST(flat_images_have_views_and_no_labels)
{
    const char *f = make_folder(24);
    check_flat(f);
    images_remove_folder(f);
    check_flat("builtin:shapes");
}

/* Whatever is drawn with probability 1 changes the image in its way, and 0 is the default. */
TEST(every_option_changes_the_images)
{
    const char *f = make_folder(24);
    lvn_dataset *const all[] = {
        LVN_IMAGE_FOLDER(f, .resize = SIDE),
        LVN_IMAGE_FOLDER(f, .resize = SIDE, .no_augment = true),
        LVN_IMAGE_FOLDER(f, .resize = SIDE, .min_scale = 0.9),
        LVN_IMAGE_FOLDER(f, .resize = SIDE, .color_jitter = 0.4),
        LVN_IMAGE_FOLDER(f, .resize = SIDE, .hue = 0.5),
        LVN_IMAGE_FOLDER(f, .resize = SIDE, .grey = 1.0),
        LVN_IMAGE_FOLDER(f, .resize = SIDE, .blur = 1.0),
        LVN_IMAGE_FOLDER(f, .resize = SIDE, .solarize = 1.0),
    };
    enum { ALL = sizeof all / sizeof *all };
    static sample s[ALL];
    for (int i = 0; i < ALL; i++) {
        s[i] = read_at(all[i], &key);
        for (int k = 0; k < i; k++) {
            if (same(s[i].view[0], s[k].view[0])) {
                fail_msg("options %d and %d give the same image", k, i);
            }
        }
    }
    static const double mean[3] = {0.485, 0.456, 0.406}, std[3] = {0.229, 0.224, 0.225};
    for (int e = 0; e < N; e += 3) { /* grey */
        const float *p = s[5].view[0] + e;
        const double red = (double)p[0] * std[0] + mean[0], green = (double)p[1] * std[1] + mean[1];
        assert_true(fabs(red - green) < 1e-5);
    }
    /* jitter in half of the images only */
    lvn_dataset *half = LVN_IMAGE_FOLDER(f, .resize = SIDE, .color_jitter = 0.4, .jitter = 0.5);
    int changed = 0;
    for (uint32_t epoch = 0; epoch < 200; epoch++) {
        const lvn_sample_key own = {.seed = 1, .epoch = epoch, .sample = 1, .training = true};
        const sample a = read_at(all[0], &own), b = read_at(half, &own);
        changed += !same(a.view[0], b.view[0]);
    }
    assert_int_in_range(changed, 70, 130);
    lvn_dataset_destroy(half);
    for (int i = 0; i < ALL; i++) {
        lvn_dataset_destroy(all[i]);
    }
    images_remove_folder(f);
}

/* Each sample is in one part, and keeps its number. */
static void check_parts(const char *path, bool flat, int64_t total, int64_t to_validate)
{
    lvn_dataset *part[2] = {
        LVN_IMAGE_FOLDER(path, .resize = SIDE, .flat = flat, .part = LVN_IMAGES_TRAIN),
        LVN_IMAGE_FOLDER(path, .resize = SIDE, .flat = flat, .part = LVN_IMAGES_VAL)};
    if (part[0] == NULL || part[1] == NULL) {
        fail_msg("%s", lvn_last_error()->message);
        return;
    }
    assert_int_equal(part[1]->cls->length(part[1]), to_validate);
    bool *seen = calloc((size_t)total, sizeof *seen);
    assert_non_null(seen);
    int64_t n = 0;
    for (int p = 0; p < 2; p++) {
        assert_int_equal(part[p]->n_classes, part[0]->n_classes);
        assert_int_equal(part[p]->n_classes == 0, flat);
        for (int64_t i = 0; i < part[p]->cls->length(part[p]); i++, n++) {
            const int64_t at = lvni_data_dataset_index(part[p], i);
            assert_int_in_range(at, 0, total - 1);
            assert_false(seen[at]);
            seen[at] = true;
        }
    }
    assert_int_equal(n, total);
    free(seen);
    lvn_dataset_destroy(part[0]);
    lvn_dataset_destroy(part[1]);
}

TEST(parts_are_disjoint)
{
    const char *f = make_folder(24);
    check_parts(f, false, 10, 2); /* one of five in each class */
    check_parts(f, true, 10, 2);
    images_remove_folder(f);
    f = images_temp_folder();
    for (int i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s/%c/%d.jpg", i < 2 ? "train" : "val", 'a' + i % 2, i);
        images_make_jpeg(images_path(f, name), 24, 24, (unsigned)i);
    }
    check_parts(f, false, 5, 3);
    check_parts(f, true, 5, 1); /* whatever the folders are called */
    images_remove_folder(f);
    check_parts("builtin:shapes", false, 2000, 402);
    check_parts("builtin:shapes", true, 2000, 400);
}

static void refused(lvn_dataset *data, const char *text)
{
    assert_null(data);
    if (strstr(lvn_last_error()->message, text) == NULL) {
        fail_msg("expected \"%s\" in: %s", text, lvn_last_error()->message);
    }
}

TEST(what_cannot_be_is_refused)
{
    refused(LVN_IMAGE_FOLDER("builtin:shapes", .views = 8), "8 views take 9 fields with the label");
    refused(LVN_IMAGE_FOLDER("builtin:shapes", .views = 11), "views is 11");
    refused(LVN_IMAGE_FOLDER("builtin:shapes", .views = -1), "views is -1");
    refused(LVN_IMAGE_FOLDER("builtin:shapes", .hue = 0.6), "augment.hue is 0.6");
    refused(LVN_IMAGE_FOLDER("builtin:shapes", .part = (lvn_image_part)3), "part is 3");
    refused(LVN_IMAGE_FOLDER("nowhere", .flat = true, .part = LVN_IMAGES_VAL),
            "give a folder of images, or builtin:shapes");
    refused(LVN_IMAGE_FOLDER("nowhere", .flat = true, .part = LVN_IMAGES_ALL),
            "give a folder of images, or one image");
    refused(LVN_IMAGE_FOLDER("builtin:mass"), "the only built-in set is builtin:shapes");
    refused(lvn_image_folder_open_with(NULL, NULL), "the data folder has no name");
}

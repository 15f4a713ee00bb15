/* Views of one decoded image: each the same as a dataset of that view alone gives, whatever the
 * kind of data; their fields; batches that do not depend on the loader's threads. */
#include "core/alloc.h"
#include "data/array_images.h"
#include "data/image_folder.h"
#include "data/loader.h"
#include "data/shapes.h"
#include "deep_png.h"
#include "images_support.h"
#include "support/test.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { W = 48, H = 36, VIEWS = 8, MOST = 32 * 32 * 3, SAMPLES = 7 };

/* Two squares, an oblong view, five smaller ones: no transform is as another. All need more than
 * half of the pixels of an image of 48 x 36, so that a JPEG is decoded in full. */
static lvni_data_views make_views(void)
{
    lvni_data_views views = {.n = VIEWS, .stacked = true};
    for (int v = 0; v < VIEWS; v++) {
        lvni_data_transform *t = &views.view[v];
        lvni_data_transform_init(t, v < 2 ? 32 : v == 2 ? 24 : 22);
        t->width = v == 2 ? 40 : 0;
        t->area = v % 2 == 0;
        t->whole = v == 4;
        t->scale[0] = 0.05 + 0.1 * v;
        t->vflip = v == 1 ? 0.5 : 0.0;
        t->brightness = t->hue = 0.1 * (v % 3);
        t->grey = v == 3;
        t->blur = v == 5;
        t->rotate = v == 6 || v == 2 ? 1.0 : 0.0;
        t->rotate_degrees = 30.0;
        t->mean[0] = 0.1F * (float)v;
        t->std[2] = 0.2F + 0.05F * (float)v;
    }
    return views;
}

/* ---- the kinds of data ---- */

typedef struct source {
    char folder[256];
    lvni_data_image_scan *scan;
    lvni_data_array_images *arrays;
} source;

typedef lvn_dataset *(*opener)(source *s, const lvni_data_views *views);

static lvn_dataset *open_scan(source *s, const lvni_data_views *views)
{
    lvn_dataset *d = NULL;
    if (s->scan == NULL) {
        assert_int_equal(lvni_data_image_scan_open(s->folder, LVNI_SCAN_FLAT, &s->scan), LVN_OK);
    }
    assert_int_equal(lvni_data_image_view_create(s->scan, NULL, 0, views, &d), LVN_OK);
    return d;
}

static lvn_dataset *open_png(source *s, const lvni_data_views *views)
{
    for (int i = 0; s->scan == NULL && i < SAMPLES; i++) {
        uint8_t rgb[W * H * 3];
        char name[32];
        snprintf(name, sizeof name, "%d.png", i);
        images_paint(rgb, W, H, (unsigned)i);
        assert_int_equal(lvni_data_png_write(images_path(s->folder, name), rgb, W, H), LVN_OK);
    }
    return open_scan(s, views);
}

static lvn_dataset *open_jpeg(source *s, const lvni_data_views *views)
{
    for (int i = 0; s->scan == NULL && i < SAMPLES; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d.jpg", i);
        images_make_jpeg(images_path(s->folder, name), W, H, (unsigned)i);
    }
    return open_scan(s, views);
}

static lvn_dataset *open_array(source *s, const lvni_data_views *views)
{
    static const char header[] =
        "{'descr': '|u1', 'fortran_order': False, 'shape': (7, 36, 48, 3), }\n";
    static uint8_t file[256 + SAMPLES * W * H * 3];
    const size_t begin = 10 + sizeof header - 1, n = begin + sizeof file - 256;
    lvn_dataset *d = NULL;
    if (s->arrays == NULL) {
        memcpy(file, "\x93NUMPY\x01\x00", 8);
        file[8] = sizeof header - 1;
        memcpy(file + 10, header, sizeof header - 1);
        for (int i = 0; i < SAMPLES; i++) {
            images_paint(file + begin + (size_t)i * W * H * 3, W, H, (unsigned)i);
        }
        const char *path = images_path(s->folder, "images.npy");
        images_write_file(path, file, n);
        assert_int_equal(lvni_data_array_images_open(path, NULL, false, &s->arrays), LVN_OK);
    }
    assert_int_equal(lvni_data_array_images_view(s->arrays, NULL, 0, views, &d), LVN_OK);
    return d;
}

static lvn_dataset *open_shapes(source *s, const lvni_data_views *views)
{
    (void)s;
    lvn_dataset *d = NULL;
    const lvni_data_shapes_options o = {.count = SAMPLES, .flat = true, .side = 44};
    assert_int_equal(lvni_data_shapes_create(&o, NULL, 0, views, &d), LVN_OK);
    return d;
}

static void with_source(opener open, void (*check)(opener open, source *s))
{
    source s = {.scan = NULL};
    snprintf(s.folder, sizeof s.folder, "%s", images_temp_folder());
    check(open, &s);
    lvni_data_image_scan_release(s.scan);
    lvni_data_array_images_release(s.arrays);
    images_remove_folder(s.folder);
}

static const opener openers[] = {open_png, open_jpeg, open_array, open_shapes};
enum { OPENERS = sizeof openers / sizeof *openers };

/* ---- tests ---- */

typedef struct sample {
    float squares[2][32 * 32 * 3], oblong[24 * 40 * 3], small[5][22 * 22 * 3];
} sample;

static float *view_of(sample *s, int v)
{
    return v < 2 ? s->squares[v] : v == 2 ? s->oblong : s->small[v - 3];
}

static void get(const lvn_dataset *d, const lvn_sample_key *key, void *const field[])
{
    const lvn_status status = d->cls->get(d, key, field);
    if (status != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
}

static void check_alone(opener open, source *s)
{
    const lvni_data_views views = make_views();
    static sample all, again;
    static float alone[MOST];
    lvn_dataset *d = open(s, &views);
    for (int i = 0; i < 2 * SAMPLES; i++) {
        const lvn_sample_key key = {
            .seed = 3, .epoch = (uint32_t)i, .sample = i % SAMPLES, .training = i < SAMPLES + 4};
        memset(&all, 0, sizeof all);
        memset(&again, 1, sizeof again);
        get(d, &key, (void *[]){all.squares, all.oblong, all.small});
        get(d, &key, (void *[]){again.squares, again.oblong, again.small});
        assert_memory_equal(&all, &again, sizeof all);
        for (int v = 0; v < VIEWS; v++) {
            const lvni_data_views one = lvni_data_views_make(&views.view[v], 1);
            const lvn_sample_key own = lvni_data_view_key(&key, v);
            lvn_dataset *single = open(s, &one);
            get(single, &own, (void *[]){alone});
            const int n = views.view[v].size * lvni_data_transform_width(&views.view[v]) * 3;
            assert_memory_equal(alone, view_of(&all, v), (size_t)n * sizeof *alone);
            lvn_dataset_destroy(single);
        }
    }
    lvn_dataset_destroy(d);
}

TEST(a_view_is_the_same_alone)
{
    for (int i = 0; i < OPENERS; i++) {
        with_source(openers[i], check_alone);
    }
}

/* ---- channels ---- */

enum { SIDE = 20, PIXELS = SIDE * SIDE };

static void read_one(opener open, source *s, const lvni_data_transform *t, bool training,
                     float out[PIXELS * 4])
{
    const lvni_data_views one = lvni_data_views_make(t, 1);
    const lvn_sample_key key = {.seed = 7, .sample = 2, .training = training};
    lvn_dataset *d = open(s, &one);
    lvn_field f[LVN_MAX_FIELDS];
    assert_int_equal(d->cls->fields(d, f), 1);
    assert_int_equal(f[0].shape[2], lvni_data_transform_depth(t));
    get(d, &key, (void *[]){out});
    lvn_dataset_destroy(d);
}

/* Grey is a linear function of the colours except for its rounding. */
static void check_channels(opener open, source *s)
{
    static float rgb[PIXELS * 4], out[PIXELS * 4];
    lvni_data_transform t;
    lvni_data_transform_init(&t, SIDE);
    t.area = true;
    t.blur = t.rotate = 1.0;
    t.rotate_degrees = 20.0;
    for (int c = 0; c < 4; c++) {
        t.mean[c] = 0.5F;
        t.std[c] = 0.25F;
    }
    const lvni_data_transform plain = t;
    read_one(open, s, &plain, true, rgb);
    t.channels = 4;
    t.brightness = t.hue = 0.4; /* not for these */
    t.grey = t.solarize = 1.0;
    read_one(open, s, &t, true, out);
    for (int i = 0; i < PIXELS; i++) {
        assert_memory_equal(out + (ptrdiff_t)4 * i, rgb + (ptrdiff_t)3 * i, 3 * sizeof *out);
        assert_float_equal(out[4 * i + 3], 2.0F, 1e-5F); /* opaque */
    }
    for (t.channels = 1; t.channels <= 2; t.channels++) {
        read_one(open, s, &t, true, out);
        for (int i = 0; i < PIXELS; i++) {
            const float *p = rgb + (ptrdiff_t)3 * i, *q = out + (ptrdiff_t)t.channels * i;
            const float grey = 0.299F * p[0] + 0.587F * p[1] + 0.114F * p[2];
            assert_float_equal(q[0], grey, 0.51F / 255.0F / 0.25F);
            assert_true(t.channels == 1 || fabsf(q[1] - 2.0F) < 1e-5F);
        }
    }
    t.channels = 3;
    t.keep = 2;
    t.drop_weight[1] = 1.0;
    read_one(open, s, &t, true, out);
    for (int i = 0; i < PIXELS; i++) {
        assert_true(out[2 * i] == rgb[3 * i] && out[2 * i + 1] == rgb[3 * i + 2]);
    }
    t.keep = 0;
    /* evaluation rounds three channels to bytes, twice, as Pillow does */
    for (int whole = 0; whole < 2; whole++) {
        t.whole = whole == 1;
        t.channels = 3;
        read_one(open, s, &t, false, rgb);
        t.channels = 4;
        read_one(open, s, &t, false, out);
        for (int i = 0; i < PIXELS * 3; i++) {
            assert_float_equal(out[i / 3 * 4 + i % 3], rgb[i], whole == 1 ? 1e-5F : 0.05F);
        }
    }
}

TEST(views_have_the_channels_asked_for)
{
    for (int i = 0; i < OPENERS; i++) {
        with_source(openers[i], check_channels);
    }
}

/* ---- 16 bits ---- */

enum { DEEP = 8 };

/* Grey of 16 bits, whose values differ in their low bytes alone. */
static void write_deep(const char *path)
{
    static uint16_t value[DEEP * DEEP];
    for (int i = 0; i < DEEP * DEEP; i++) {
        value[i] = (uint16_t)(100 * 256 + 3 * i);
    }
    deep_png_write(path, DEEP, DEEP, 1, value);
}

/* Values in 0..1 of a view of the file, times 65535. */
static void read_deep(lvni_data_image_scan *scan, const lvni_data_transform *t, bool training,
                      float out[DEEP * DEEP * 4])
{
    const lvni_data_views one = lvni_data_views_make(t, 1);
    const lvn_sample_key key = {.seed = 7, .training = training};
    lvn_dataset *d;
    assert_int_equal(lvni_data_image_view_create(scan, NULL, 0, &one, &d), LVN_OK);
    get(d, &key, (void *[]){out});
    for (int i = 0; i < t->size * t->size * lvni_data_transform_depth(t); i++) {
        out[i] *= 65535.0F;
    }
    lvn_dataset_destroy(d);
}

TEST(a_view_of_16_bits_has_what_lies_between_those_of_8)
{
    const char *folder = images_temp_folder();
    static float out[DEEP * DEEP * 4];
    lvni_data_image_scan *scan;
    lvni_data_transform t;
    write_deep(images_path(folder, "deep.png"));
    assert_int_equal(lvni_data_image_scan_open(folder, LVNI_SCAN_FLAT, &scan), LVN_OK);
    for (int channels = 1; channels <= 4; channels++) {
        lvni_data_transform_init(&t, DEEP);
        lvni_data_transform_no_augment(&t);
        t.whole = t.area = t.deep = true;
        t.channels = channels;
        for (int c = 0; c < 4; c++) {
            t.mean[c] = 0.0F;
            t.std[c] = 1.0F;
        }
        read_deep(scan, &t, true, out);
        for (int i = 0; i < DEEP * DEEP * channels; i++) {
            const bool alpha = channels % 2 == 0 && i % channels == channels - 1;
            const int grey = 25600 + 3 * (i / channels);
            const float want = alpha ? 65535.0F : (float)grey;
            assert_float_equal(out[i], want, 0.02F);
        }
        t.deep = false;
        read_deep(scan, &t, true, out);
        assert_float_equal(out[0], 100.0F * 257.0F, 0.02F);
        assert_float_equal(out[channels], 100.0F * 257.0F, 0.02F);
    }
    /* halved, by area and as evaluation does, which takes the middle: means of neighbours */
    lvni_data_transform_no_augment(&t);
    t.channels = 0;
    t.deep = true;
    t.size = DEEP / 2;
    read_deep(scan, &t, true, out);
    assert_float_equal(out[0], 25600.0F + 3.0F * 4.5F, 0.05F);
    t.whole = t.area = false;
    t.size = DEEP / 4;
    t.eval_resize = DEEP / 2;
    for (t.channels = 0; t.channels <= 4; t.channels++) {
        read_deep(scan, &t, false, out);
        assert_float_equal(out[0], 25600.0F + 3.0F * (float)(2 * DEEP + 2 + 4.5), 0.5F);
    }
    lvni_data_image_scan_release(scan);
    images_remove_folder(folder);
}

/* As small as every view allows, and no smaller. */
TEST(an_image_is_decoded_as_large_as_the_view_that_needs_most)
{
    const lvni_data_views views = make_views();
    const lvni_data_image_info info = {
        .format = LVNI_IMAGE_JPEG, .width = 1024, .height = 768, .orientation = 1};
    for (int i = 0; i < 100; i++) {
        const lvn_sample_key key = {.seed = 3, .sample = i, .training = true};
        lvni_data_views_drawn drawn;
        assert_int_equal(lvni_data_views_draw(&views, &key, &info, &drawn), LVN_OK);
        double most = 0.0;
        for (int v = 0; v < VIEWS; v++) {
            const lvni_data_transform *t = &views.view[v];
            const lvni_data_box box = drawn.view[v].box;
            most = fmax(most, fmax(t->size / box.height, lvni_data_transform_width(t) / box.width));
        }
        assert_true(most < 1.0 && fabs(drawn.need - most) < 1e-12);
    }
}

TEST(neighbours_of_a_shape_share_a_field)
{
    lvni_data_views views = make_views();
    lvn_field f[LVN_MAX_FIELDS];
    assert_int_equal(lvni_data_views_fields(&views, true, f), 4);
    static const char *const names[] = {"image", "label", "image2", "image3"};
    static const int64_t shapes[][4] = {{2, 32, 32, 3}, {0}, {1, 24, 40, 3}, {5, 22, 22, 3}};
    for (int i = 0; i < 4; i++) {
        assert_string_equal(f[i].name, names[i]);
        assert_int_equal(f[i].ndim, i == 1 ? 0 : 4);
        assert_memory_equal(f[i].shape, shapes[i], i == 1 ? 0 : sizeof shapes[i]);
    }
    const lvni_data_view_place last = lvni_data_views_place(&views, 7, true),
                               flat = lvni_data_views_place(&views, 2, false);
    assert_true(last.field == 3 && last.index == 4 && flat.field == 1 && flat.index == 0);
    assert_int_equal(lvni_data_views_side(&views), 40);
    views.stacked = false;
    views.n = 3;
    assert_int_equal(lvni_data_views_fields(&views, false, f), 3);
    assert_true(f[2].ndim == 3 && f[2].shape[0] == 24 && f[2].shape[1] == 40);
    const lvni_data_view_place own = lvni_data_views_place(&views, 1, true);
    assert_true(own.field == 2 && own.index == 0);
}

static void refused(const lvni_data_views *views, bool label, const char *text)
{
    assert_int_equal(lvni_data_views_check(views, label), LVN_ERR_USAGE);
    const lvn_error *e = lvn_last_error();
    if (strstr(e->message, text) == NULL) {
        fail_msg("expected \"%s\" in: %s", text, e->message);
    }
}

TEST(views_that_cannot_be_are_refused)
{
    lvni_data_views views = make_views();
    assert_int_equal(lvni_data_views_check(&views, true), LVN_OK);
    views.view[5].rotate_degrees = 181.0;
    refused(&views, true, "random_rotation.degrees is 181; it must lie between 0 and 180");
    views = make_views();
    views.view[3].keep = 1;
    views.view[3].drop_weight[1] = 1.0;
    refused(&views, true,
            "weight_drop is above 0 for 1 of 3 channels, and num_channels_keep=1 drops 2");
    views = make_views();
    views.view[6].channels = 1;
    assert_int_equal(lvni_data_views_check(&views, true), LVN_ERR_INVALID);
    assert_non_null(strstr(lvn_last_error()->message, "view 7 has 1 channels and the first 3"));
    views = make_views();
    views.stacked = false;
    assert_int_equal(lvni_data_views_check(&views, false), LVN_OK);
    refused(&views, true, "8 views take 9 fields with the label, and a sample has at most 8");
    views.n = 11;
    refused(&views, true, "views is 11; it must lie between 1 and 10");
}

/* ---- the loader ---- */

static void read_epoch(const lvn_dataset *d, int workers, sample out[SAMPLES])
{
    lvni_plan plan;
    lvni_data_loader *l;
    const lvni_plan_options p = {.n_samples = SAMPLES,
                                 .batch_size = 4,
                                 .micro_batches = 2,
                                 .devices = 1,
                                 .lanes = 1,
                                 .cores = 1};
    assert_int_equal(lvni_plan_make(&p, &plan), LVN_OK);
    const lvni_data_loader_options o = {.dataset = d,
                                        .plan = &plan,
                                        .training = true,
                                        .seed = 5,
                                        .workers = workers,
                                        .max_epochs = 1};
    assert_int_equal(lvni_data_loader_create(&o, &l), LVN_OK);
    const lvni_data_loader_batch *b;
    int seen = 0;
    while (lvni_data_loader_next(l, &b) == LVN_OK && b != NULL) {
        assert_int_equal(b->batch.n_fields, 3);
        for (int64_t i = 0; i < b->batch.size; i++, seen++) {
            sample *s = &out[b->batch.sample[i]];
            memcpy(s->squares, (float *)b->batch.field[0]->data + i * 2 * MOST, sizeof s->squares);
            memcpy(s->oblong, (float *)b->batch.field[1]->data + i * 24 * 40 * 3, sizeof s->oblong);
            memcpy(s->small, (float *)b->batch.field[2]->data + i * 5 * 22 * 22 * 3,
                   sizeof s->small);
        }
        lvni_data_loader_release(l, b);
    }
    assert_int_equal(seen, SAMPLES);
    lvni_data_loader_destroy(l);
}

static void check_workers(opener open, source *s)
{
    const lvni_data_views views = make_views();
    static sample first[SAMPLES], other[SAMPLES], direct;
    lvn_dataset *d = open(s, &views);
    read_epoch(d, 0, first);
    for (int workers = 1; workers <= 3; workers += 2) {
        memset(other, 0, sizeof other);
        read_epoch(d, workers, other);
        assert_memory_equal(first, other, sizeof first);
    }
    const lvn_sample_key key = {.seed = 5, .sample = 4, .training = true};
    get(d, &key, (void *[]){direct.squares, direct.oblong, direct.small});
    assert_memory_equal(&direct, &first[4], sizeof direct);
    lvn_dataset_destroy(d);
}

TEST(batches_are_the_same_for_any_number_of_threads)
{
    with_source(open_jpeg, check_workers);
}

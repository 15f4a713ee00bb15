/* Views of the methods of self-supervised training: what is drawn for each, over many samples, and
 * the fields that come of it, and the memory that decoding takes. */
#include "../data/deep_png.h"
#include "../data/images_support.h"
#include "images/image_data.h"
#include "images/view_presets.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { DRAWS = 10000 };

static lvni_data_views views_of(const char *method)
{
    const lvni_images_view_args *a = lvni_images_view_preset(method);
    assert_non_null(a);
    lvni_data_views views;
    lvni_images_views_make(a, &views);
    assert_int_equal(lvni_data_views_check(&views, false), LVN_OK);
    return views;
}

static lvni_data_augment drawn(const lvni_data_transform *t, int view, int sample, int width,
                               int height)
{
    const lvn_sample_key key = {.seed = 1, .epoch = 2, .sample = sample, .training = true};
    const lvn_sample_key own = lvni_data_view_key(&key, view);
    lvni_data_augment a;
    assert_int_equal(lvni_data_augment_draw(t, &own, width, height, &a), LVN_OK);
    return a;
}

/* ---- crops ---- */

/* Crops whose sides the ratio does not allow are drawn again, so that large ones are rarer than
 * their areas alone are. */
static void check_crops(int width, int height, double mean)
{
    const lvni_data_views views = views_of("simclr");
    double sum = 0.0;
    int whole = 0;
    for (int i = 0; i < DRAWS; i++) {
        const lvni_data_augment a = drawn(&views.view[0], 0, i, width, height);
        const double part = a.box.width * a.box.height / ((double)width * height),
                     ratio = a.box.width / a.box.height;
        assert_true(a.box.x >= 0.0 && a.box.x + a.box.width <= width);
        assert_true(a.box.y >= 0.0 && a.box.y + a.box.height <= height);
        assert_true(part >= 0.079 && part <= 1.0 && ratio >= 0.74 && ratio <= 1.35);
        sum += part;
        whole += part == 1.0; /* what is taken when ten tries did not fit */
    }
    assert_true(fabs(sum / DRAWS - mean) < 0.01);
    assert_true(whole < DRAWS / 1000);
}

TEST(crops_have_the_areas_and_ratios_asked_for)
{
    check_crops(400, 300, 0.434);
    check_crops(256, 256, 0.479);
}

TEST(a_whole_image_is_not_cropped)
{
    lvni_images_view_args a = *lvni_images_view_preset("simclr");
    a.resize.off = true;
    lvni_data_views views;
    lvni_images_views_make(&a, &views);
    for (int i = 0; i < 100; i++) {
        const lvni_data_augment d = drawn(&views.view[0], 0, i, 400, 300);
        assert_true(!d.centre && d.box.x == 0.0 && d.box.y == 0.0);
        assert_true(d.box.width == 400.0 && d.box.height == 300.0);
    }
}

/* ---- colours ---- */

typedef struct range {
    double low, high;
} range;

static void widen(range *r, double x)
{
    r->low = fmin(r->low, x);
    r->high = fmax(r->high, x);
}

/* Inside of the bounds, and all the way to them. */
static void check_range(const range *r, double low, double high)
{
    const double near = 0.01 * (high - low);
    assert_true(r->low >= low - 1e-6 && r->low < low + near);
    assert_true(r->high <= high + 1e-6 && r->high > high - near);
}

/* b, c, s, h: what a colour may move by. */
static void check_jitter(const char *method, int view, double b, double c, double s, double h)
{
    const lvni_data_views views = views_of(method);
    range brightness = {9, -9}, contrast = {9, -9}, saturation = {9, -9}, hue = {9, -9};
    int jitter = 0, first[4] = {0};
    for (int i = 0; i < 2 * DRAWS; i++) {
        const lvni_data_augment a = drawn(&views.view[view], view, i, 400, 300);
        if (!a.colour) {
            continue;
        }
        jitter++;
        first[a.order[0] - LVNI_AUGMENT_BRIGHTNESS]++;
        widen(&brightness, (double)a.brightness);
        widen(&contrast, (double)a.contrast);
        widen(&saturation, (double)a.saturation);
        widen(&hue, (double)a.hue);
    }
    assert_int_in_range(jitter, 15800, 16200);
    for (int i = 0; i < 4; i++) {
        assert_int_in_range(first[i], jitter / 4 - 300, jitter / 4 + 300);
    }
    check_range(&brightness, 1.0 - b, 1.0 + b);
    check_range(&contrast, 1.0 - c, 1.0 + c);
    check_range(&saturation, 1.0 - s, 1.0 + s);
    check_range(&hue, -h, h);
}

TEST(colours_move_as_far_as_the_method_has_it)
{
    check_jitter("simclr", 0, 0.8, 0.8, 0.8, 0.2);
    check_jitter("simclr", 1, 0.8, 0.8, 0.8, 0.2);
    check_jitter("dino", 0, 0.4, 0.4, 0.2, 0.1);
    check_jitter("dino", 7, 0.4, 0.4, 0.2, 0.1);
    check_jitter("dinov2", 1, 0.4, 0.4, 0.2, 0.1);
}

static void check_share(int n, double share)
{
    const double deviation = sqrt(DRAWS * share * (1.0 - share));
    assert_true(fabs(n - DRAWS * share) <= 4.0 * deviation);
}

static void check_effects(const char *method, int view, double blur, double solarize)
{
    const lvni_data_views views = views_of(method);
    const lvni_data_transform *t = &views.view[view];
    int blurred = 0, solarized = 0, grey = 0, flipped = 0;
    for (int i = 0; i < DRAWS; i++) {
        const lvni_data_augment a = drawn(t, view, i, 400, 300);
        blurred += a.blur_sigma > 0.0;
        solarized += a.solarize;
        grey += a.grey;
        flipped += a.hflip;
        assert_true(!a.vflip && a.turns == 0.0);
        assert_true(a.blur_sigma == 0.0 || (a.blur_sigma >= 0.1 && a.blur_sigma < 2.0));
    }
    check_share(blurred, blur);
    check_share(solarized, solarize);
    check_share(grey, 0.2);
    check_share(flipped, 0.5);
    assert_true(t->solarize_from == 0.5);
}

TEST(effects_come_as_often_as_the_method_has_it)
{
    check_effects("simclr", 1, 0.5, 0.0);
    check_effects("dino", 0, 1.0, 0.0);
    check_effects("dino", 1, 0.1, 0.2);
    check_effects("dino", 2, 0.5, 0.0);
    check_effects("dino", 7, 0.5, 0.0);
    check_effects("dinov2", 1, 0.1, 0.2);
}

/* 2 floor(3.5 sigma) + 1 is 1 for sigma < 2/7: the blur of distillation changes nothing. */
TEST(the_blur_of_distillation_is_a_pixel_wide)
{
    const lvni_data_views views = views_of("distillation");
    assert_int_equal(views.n, 1);
    for (int i = 0; i < 100; i++) {
        const lvni_data_augment a = drawn(&views.view[0], 0, i, 400, 300);
        assert_true(a.blur_kernel == 0 && a.blur_sigma < 0.1);
    }
}

/* A limit is one of a drawn width, made odd; a rotation goes as far as asked either way. */
TEST(widths_and_angles_are_drawn_up_to_their_limits)
{
    lvni_images_view_args args = *lvni_images_view_preset("simclr");
    args.blur.limit = 6;
    args.rotate = 0.3;
    args.degrees = 45.0;
    lvni_data_views views;
    lvni_images_views_make(&args, &views);
    int width[8] = {0}, rotated = 0, blurred = 0;
    range turns = {9, -9};
    for (int i = 0; i < DRAWS; i++) {
        const lvni_data_augment a = drawn(&views.view[1], 1, i, 400, 300);
        blurred += a.blur_sigma > 0.0;
        width[a.blur_kernel] += a.blur_sigma > 0.0;
        rotated += a.turns != 0.0;
        widen(&turns, a.turns);
    }
    check_share(rotated, 0.3);
    check_range(&turns, -0.125, 0.125);
    assert_true(width[2] == 0 && width[4] == 0 && width[6] == 0);
    for (int k = 0; k < 4; k++) { /* 0; 1; 2, 3; 4, 5; 6 */
        static const int kernel[] = {0, 1, 3, 5}, parts[] = {1, 1, 2, 2};
        const int want = blurred * parts[k] / 7;
        assert_int_in_range(width[kernel[k]], want - 130, want + 130);
    }
    assert_int_in_range(width[7], blurred / 7 - 130, blurred / 7 + 130);
}

/* Weights 1, 0, 3: of three, two are dropped: the second never, and first the third three times as
 * often as the first. */
TEST(channels_are_dropped_by_their_weights)
{
    lvni_images_view_args args = *lvni_images_view_preset("simclr");
    args.keep = 2;
    args.drop_weight[0] = 1.0;
    args.drop_weight[2] = 3.0;
    lvni_data_views views;
    lvni_images_views_make(&args, &views);
    int third = 0, colours = 0;
    for (int i = 0; i < DRAWS; i++) {
        const lvni_data_augment a = drawn(&views.view[0], 0, i, 400, 300);
        assert_true((a.channel[0] == 0 && a.channel[1] == 1) ||
                    (a.channel[0] == 1 && a.channel[1] == 2));
        third += a.channel[0] == 0;
        colours += a.colour || a.grey || a.solarize;
    }
    check_share(third, 0.75);
    assert_int_equal(colours, 0);
    args.keep = 1;
    lvni_images_views_make(&args, &views);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(drawn(&views.view[0], 0, i, 400, 300).channel[0], 1);
    }
}

/* ---- fields and values ---- */

static void check_shape(const lvn_field *f, int64_t views, int64_t height, int64_t width)
{
    const int64_t shape[] = {views, height, width, 3};
    assert_int_equal(f->ndim, 4);
    assert_memory_equal(f->shape, shape, sizeof shape);
}

TEST(methods_have_their_views)
{
    lvn_field f[LVN_MAX_FIELDS];
    lvni_data_views views = views_of("simclr");
    assert_int_equal(lvni_data_views_fields(&views, false, f), 1);
    check_shape(&f[0], 2, 224, 224);
    views = views_of("dino");
    assert_int_equal(lvni_data_views_fields(&views, false, f), 2);
    check_shape(&f[0], 2, 224, 224);
    check_shape(&f[1], 6, 96, 96);
    assert_true(views.view[0].scale[0] == 0.14 && views.view[1].scale[1] == 1.0);
    assert_true(views.view[2].scale[0] == 0.05 && views.view[7].scale[1] == 0.14);
    views = views_of("dinov2");
    assert_int_equal(lvni_data_views_fields(&views, false, f), 2);
    check_shape(&f[1], 8, 98, 98);
    assert_true(views.view[1].scale[0] == 0.32 && views.view[9].scale[1] == 0.32);
    views = views_of("distillation");
    assert_int_equal(lvni_data_views_fields(&views, false, f), 1);
    check_shape(&f[0], 1, 224, 224);
    assert_null(lvni_images_view_preset("classify"));
    lvni_images_view_args args = *lvni_images_view_preset("dino");
    args.size[0] = 128;
    args.size[1] = 160;
    args.local.n = 0;
    lvni_images_views_make(&args, &views);
    assert_int_equal(lvni_data_views_fields(&views, false, f), 1);
    check_shape(&f[0], 2, 128, 160);
    args.local.n = 9;
    lvni_images_views_make(&args, &views);
    assert_int_equal(lvni_data_views_check(&views, false), LVN_ERR_USAGE);
}

/* Whatever is drawn, an image that is its mean throughout becomes 0. */
TEST(an_image_of_the_mean_becomes_zero)
{
    lvni_images_view_args args = *lvni_images_view_preset("dino");
    static uint8_t rgb[40 * 30 * 3];
    static float out[24 * 20 * 3];
    for (int c = 0; c < 3; c++) {
        args.mean[c] = (float)(90 + 30 * c) / 255.0F;
    }
    for (int i = 0; i < (int)sizeof rgb; i++) {
        rgb[i] = (uint8_t)(90 + 30 * (i % 3));
    }
    args.size[0] = 24;
    args.size[1] = 20;
    args.jitter.prob = args.grey = args.second.solarize.prob = 0.0; /* these change colours */
    args.rotate = 1.0;
    args.degrees = 90.0;
    const lvni_data_image image = {.rgb = rgb, .width = 40, .height = 30, .scale = 1.0};
    const lvni_data_image_info info = {
        .format = LVNI_IMAGE_PNG, .width = 40, .height = 30, .orientation = 1};
    lvni_data_views views;
    lvni_images_views_make(&args, &views);
    for (int i = 0; i < 60; i++) {
        const lvni_data_transform *t = &views.view[i % 2];
        const lvni_data_augment a = drawn(t, i % 2, i, 40, 30);
        assert_int_equal(
            lvni_data_augment_render(lvni_data_scratch_get(), t, &a, &image, &info, out), LVN_OK);
        for (int k = 0; k < 24 * 20 * 3; k++) {
            assert_true(fabsf(out[k]) <= 1e-6F);
        }
    }
}

/* ---- memory ---- */

/* What is estimated for a folder, against what a thread that has read its images keeps. */
static void check_memory(const char *name, const lvni_data_views *views)
{
    enum { WIDTH = 400, HEIGHT = 300, TIMES = 40 };
    static uint8_t rgb[WIDTH * HEIGHT * 3];
    static float fields[2][8 * 128 * 128 * 4];
    const char *folder = images_temp_folder(), *path = images_path(folder, name);
    lvni_data_image_scan *scan;
    lvn_dataset *d;
    lvni_core_str damaged = {0};
    images_paint(rgb, WIDTH, HEIGHT, 1);
    if (strcmp(name, "deep.png") == 0) {
        static uint16_t value[WIDTH * HEIGHT * 3];
        for (uint32_t i = 0; i < WIDTH * HEIGHT * 3; i++) {
            value[i] = (uint16_t)(i * 40503U);
        }
        deep_png_write(path, WIDTH, HEIGHT, 3, value);
    } else if (strstr(name, ".png") != NULL) {
        assert_int_equal(lvni_data_png_write(path, rgb, WIDTH, HEIGHT), LVN_OK);
    } else {
        images_make_jpeg(path, WIDTH, HEIGHT, 1);
    }
    assert_int_equal(lvni_data_image_scan_open(folder, LVNI_SCAN_FLAT, &scan), LVN_OK);
    assert_int_equal(lvni_data_image_scan_read_headers(scan, &damaged), LVN_OK);
    const size_t predicted =
        lvni_images_sizes_decode_views(scan, views) - (size_t)scan->size[0].bytes;
    assert_int_equal(lvni_data_image_view_create(scan, NULL, 0, views, &d), LVN_OK);
    lvni_data_scratch_release();
    for (uint32_t e = 0; e < TIMES; e++) {
        const lvn_sample_key key = {.epoch = e, .training = true};
        assert_int_equal(d->cls->get(d, &key, (void *[]){fields[0], fields[1]}), LVN_OK);
    }
    const lvni_data_scratch *kept = lvni_data_scratch_get();
    const double bytes =
        0.8 * (double)(kept->pixels.bytes + kept->turned.bytes); /* a fifth spare */
    assert_true((double)predicted > 0.9 * bytes && (double)predicted < 1.6 * bytes);
    lvn_dataset_destroy(d);
    lvni_data_image_scan_release(scan);
    images_remove_folder(folder);
}

TEST(memory_of_an_image_decoded_for_several_views_is_estimated)
{
    lvni_images_view_args args = *lvni_images_view_preset("dino");
    lvni_data_views views;
    args.size[0] = args.size[1] = 40;
    args.local.size[0] = args.local.size[1] = 8;
    lvni_images_views_make(&args, &views);
    check_memory("a.jpg", &views);
    args.local.size[0] = args.local.size[1] = 64; /* small crops in full */
    lvni_images_views_make(&args, &views);
    check_memory("a.jpg", &views);
    check_memory("a.png", &views);
    args.channels = 4;
    lvni_images_views_make(&args, &views);
    check_memory("a.png", &views);
    check_memory("a.jpg", &views);
    args.channels = 1;
    lvni_images_views_make(&args, &views);
    check_memory("a.png", &views);
    args.deep = true;
    check_memory("a.png", &views);
    for (args.channels = 0; args.channels <= 4; args.channels += 4) {
        lvni_images_views_make(&args, &views);
        check_memory("deep.png", &views);
    }
}

/* Resampling against a double-precision reference, the draws of the augmentation, colours. */
#include "core/rng.h"
#include "data/augment.h"
#include "data/effects.h"
#include "golden_area.h"
#include "golden_augment.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void random_image(uint8_t *rgb, int n, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        rgb[i] = (uint8_t)(seed >> 24);
    }
}

/* Weight of input pixel k for output i of one axis, straight from the definition. */
static double tent(double start, double length, int n, int size, int i, int k)
{
    const double step = length / n, reach = step > 1.0 ? step : 1.0,
                 centre = start + (i + 0.5) * step;
    double total = 0.0;
    for (int j = 0; j < size; j++) {
        total += fmax(0.0, 1.0 - fabs((j + 0.5 - centre) / reach));
    }
    return fmax(0.0, 1.0 - fabs((k + 0.5 - centre) / reach)) / total;
}

static double reference_pixel(const uint8_t *rgb, int w, int h, const lvni_data_box *b, int ow,
                              int oh, int x, int y, int c)
{
    double sum = 0.0;
    for (int j = 0; j < h; j++) {
        const double wy = tent(b->y, b->height, oh, h, y, j);
        for (int i = 0; wy > 0.0 && i < w; i++) {
            sum += wy * tent(b->x, b->width, ow, w, x, i) * rgb[3 * (j * w + i) + c];
        }
    }
    return sum;
}

TEST(resampling_equals_the_double_reference)
{
    const struct {
        int w, h, ow, oh;
        lvni_data_box box;
    } cases[] = {
        {40, 30, 16, 16, {0, 0, 40, 30}},
        {40, 30, 16, 16, {3.25, 2.5, 20.5, 17.75}},
        {7, 5, 12, 9, {0, 0, 7, 5}},
        {100, 9, 5, 9, {0, 0, 100, 9}},
        {1, 1, 3, 3, {0, 0, 1, 1}},
        {33, 47, 1, 1, {0, 0, 33, 47}},
        {64, 3, 10, 10, {60.5, 0.25, 3.5, 2.5}},
        {21, 64, 8, 30, {10, 50, 11, 14}},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int w = cases[i].w, h = cases[i].h, ow = cases[i].ow, oh = cases[i].oh;
        /* exact size: a sanitizer sees a byte too far */
        uint8_t *rgb = malloc((size_t)w * (size_t)h * 3);
        random_image(rgb, w * h * 3, i + 1);
        float out[30 * 30 * 3];
        const lvni_data_image image = {.rgb = rgb, .width = w, .height = h, .scale = 1.0};
        const lvni_data_resample_target target = {out, 3, 3 * ow, {1, 1, 1, 1}, {0}};
        assert_int_equal(
            lvni_data_resample(lvni_data_scratch_get(), &image, &cases[i].box, ow, oh, &target),
            LVN_OK);
        for (int k = 0; k < ow * oh * 3; k++) {
            const double want =
                reference_pixel(rgb, w, h, &cases[i].box, ow, oh, k / 3 % ow, k / 3 / ow, k % 3);
            assert_true(fabs((double)out[k] - want) < 0.1); /* grey levels; weights have 14 bits */
        }
        free(rgb);
    }
}

/* Exactly the bytes of the box, so that a sanitizer sees what is read beside them. */
static lvni_data_image cut(const int box[6], uint8_t *rgb)
{
    for (int y = 0; y < box[3]; y++) {
        memcpy(rgb + (size_t)y * (size_t)box[2] * 3,
               golden_image + ((size_t)(box[1] + y) * GOLDEN_W + (size_t)box[0]) * 3,
               (size_t)box[2] * 3);
    }
    return (lvni_data_image){.rgb = rgb, .width = box[2], .height = box[3], .scale = 1.0};
}

/* Inside of an image as alone: nothing beyond the box counts. */
TEST(resampling_by_area_equals_opencv)
{
    for (unsigned i = 0; i < sizeof golden_boxes / sizeof *golden_boxes; i++) {
        const int *b = golden_boxes[i], width = b[4], height = b[5];
        uint8_t *rgb = malloc((size_t)b[2] * (size_t)b[3] * 3);
        assert_non_null(rgb);
        const lvni_data_image images[] = {
            cut(b, rgb),
            {.rgb = golden_image, .width = GOLDEN_W, .height = GOLDEN_H, .scale = 1.0}};
        for (int k = 0; k < 2; k++) {
            float out[22 * 18 * 3];
            const lvni_data_box box = {k * b[0], k * b[1], b[2], b[3]};
            const lvni_data_resample_target target = {
                out, 3, 3 * (ptrdiff_t)width, {1, 1, 1, 1}, {0}};
            assert_int_equal(lvni_data_resample_area(lvni_data_scratch_get(), &images[k], &box,
                                                     width, height, &target),
                             LVN_OK);
            for (int e = 0; e < width * height * 3; e++) {
                assert_float_equal(out[e], golden_areas[i][e], 0.1F); /* of 255 */
            }
        }
        free(rgb);
    }
}

TEST(vector_code_equals_plain_code)
{
    enum { TAPS = 6, N = 64 };
    uint8_t bytes[TAPS * N];
    const uint8_t *rows[TAPS];
    random_image(bytes, TAPS * N, 9);
    for (int k = 0; k < TAPS; k++) {
        rows[k] = bytes + k * N;
    }
    const int16_t weights[TAPS] = {1, 5000, 9000, 2380, 3, 0};
    int16_t a[N], b[N];
    lvni_data_resample_column(rows, weights, TAPS, N, a);
    lvni_data_resample_column_plain(rows, weights, TAPS, N, b);
    assert_memory_equal(a, b, sizeof a);
    memset(bytes, 255, sizeof bytes);
    const int16_t whole[TAPS] = {0, 16384, 0, 0, 0, 0};
    lvni_data_resample_column(rows, whole, TAPS, N, a);
    assert_int_equal(a[17], 255 * 128);
}

TEST(a_constant_image_stays_constant)
{
    uint8_t rgb[37 * 53 * 3];
    memset(rgb, 201, sizeof rgb);
    lvni_data_transform t;
    lvni_data_transform_init(&t, 24);
    const lvni_data_image image = {.rgb = rgb, .width = 37, .height = 53, .scale = 1.0};
    const lvni_data_image_info info = {
        .format = LVNI_IMAGE_PNG, .width = 37, .height = 53, .orientation = 1};
    for (int k = 0; k < 20; k++) {
        lvni_data_augment a;
        float out[24 * 24 * 3];
        lvni_data_augment_draw(&t, &(lvn_sample_key){5, 1, k, k > 0}, 37, 53, &a);
        assert_int_equal(
            lvni_data_augment_render(lvni_data_scratch_get(), &t, &a, &image, &info, out), LVN_OK);
        for (int i = 0; i < 24 * 24 * 3; i++) {
            assert_true(out[i] == out[i % 3]);
            assert_float_equal(out[i], (201.0f / 255.0f - t.mean[i % 3]) / t.std[i % 3], 1e-6f);
        }
    }
}

TEST(evaluation_resizes_and_takes_the_centre)
{
    lvni_data_transform t;
    lvni_data_transform_init(&t, 224);
    lvni_data_augment a;
    assert_int_equal(lvni_data_augment_draw(&t, &(lvn_sample_key){1, 2, 3, false}, 400, 600, &a),
                     LVN_OK);
    assert_true(a.centre && a.plan.width == 256 && a.plan.height == 384 && a.plan.left == 16 &&
                a.plan.top == 80);
    assert_false(a.hflip);
    assert_false(a.colour);
    assert_true(lvni_data_augment_need(&t, &a) == 1.0); /* nothing is decoded smaller */
    t.random_crop = false;                              /* training samples, too */
    assert_int_equal(lvni_data_augment_draw(&t, &(lvn_sample_key){1, 2, 3, true}, 400, 600, &a),
                     LVN_OK);
    assert_true(a.centre && a.plan.top == 80);
}

TEST(random_crops_keep_scale_ratio_and_image)
{
    lvni_data_transform t;
    lvni_data_transform_init(&t, 64);
    int flips = 0;
    double area = 0.0;
    for (int i = 0; i < 2000; i++) {
        lvni_data_augment a;
        lvni_data_augment_draw(&t, &(lvn_sample_key){7, 0, i, true}, 500, 375, &a);
        const double part = a.box.width * a.box.height / (500.0 * 375.0),
                     ratio = a.box.width / a.box.height;
        assert_true(part > 0.079 && part < 1.001);
        assert_true(ratio > 0.74 && ratio < 1.35);
        assert_true(a.box.x >= 0 && a.box.y >= 0 && a.box.x + a.box.width <= 500 &&
                    a.box.y + a.box.height <= 375);
        flips += a.hflip;
        area += part;
    }
    assert_int_in_range(flips, 920, 1080);
    /* computed apart; below 0.54, as large crops often do not fit */
    assert_true(fabs(area / 2000 - 0.433) < 0.015);
}

/* Results depend on the draws: these numbers never change. */
TEST(draws_are_reproducible)
{
    lvni_data_transform t;
    lvni_data_transform_init(&t, 64);
    t.brightness = 0.4;
    lvni_data_augment a;
    const lvn_sample_key key = {42, 3, 17, true};
    lvni_data_augment_draw(&t, &key, 500, 375, &a);
    const lvni_core_rng crop = {lvni_core_rng_make_key(42, lvni_core_rng_purpose("data")), 3, 17,
                                LVNI_AUGMENT_CROP};
    const double target =
        500.0 * 375.0 * (0.08 + (double)lvni_core_rng_u32(&crop, 0) / 4294967296.0 * 0.92);
    const double aspect = exp(log(0.75) + (double)lvni_core_rng_u32(&crop, 1) / 4294967296.0 *
                                              (log(4.0 / 3.0) - log(0.75)));
    assert_true(a.box.width == floor(sqrt(target * aspect) + 0.5));
    assert_true(a.box.height == floor(sqrt(target / aspect) + 0.5));
    assert_true(a.box.y == floor((double)lvni_core_rng_u32(&crop, 2) / 4294967296.0 *
                                 (375 - a.box.height + 1)));
    assert_true(a.box.x == floor((double)lvni_core_rng_u32(&crop, 3) / 4294967296.0 *
                                 (500 - a.box.width + 1)));
    const lvni_core_rng flip = {crop.key, 3, 17, LVNI_AUGMENT_HFLIP},
                        bright = {crop.key, 3, 17, LVNI_AUGMENT_BRIGHTNESS};
    assert_int_equal(a.hflip, lvni_core_rng_u32(&flip, 0) < 0x80000000u);
    assert_float_equal(a.brightness,
                       (float)(0.6 + (double)lvni_core_rng_u32(&bright, 0) / 4294967296.0 * 0.8),
                       1e-6f);
    lvni_data_augment other;
    lvni_data_augment_draw(&t, &(lvn_sample_key){42, 4, 17, true}, 500, 375, &other);
    assert_memory_not_equal(&a.box, &other.box, sizeof a.box);
}

TEST(a_crop_that_never_fits_falls_back_to_the_middle)
{
    lvni_data_transform t;
    lvni_data_transform_init(&t, 8);
    t.scale[0] = 0.9; /* of an image 20 times as wide as high: too high at any allowed ratio */
    lvni_data_augment a;
    lvni_data_augment_draw(&t, &(lvn_sample_key){1, 0, 0, true}, 400, 20, &a);
    assert_true(a.box.width == 27.0 && a.box.height == 20.0 && a.box.x == 186.0 && a.box.y == 0.0);
}

TEST(flips_mirror_the_image)
{
    uint8_t rgb[10 * 10 * 3];
    random_image(rgb, 300, 4);
    const lvni_data_image image = {.rgb = rgb, .width = 10, .height = 10, .scale = 1.0};
    const lvni_data_image_info info = {
        .format = LVNI_IMAGE_PNG, .width = 10, .height = 10, .orientation = 1};
    lvni_data_transform t;
    lvni_data_transform_init(&t, 10);
    lvni_data_augment a = {.box = {0, 0, 10, 10}};
    float plain[300], flipped[300];
    assert_int_equal(
        lvni_data_augment_render(lvni_data_scratch_get(), &t, &a, &image, &info, plain), LVN_OK);
    a.hflip = a.vflip = true;
    assert_int_equal(
        lvni_data_augment_render(lvni_data_scratch_get(), &t, &a, &image, &info, flipped), LVN_OK);
    uint8_t back[300];
    lvni_data_transform_to_rgb(&t, plain, back);
    assert_memory_equal(back, rgb, 300);
    for (int i = 0; i < 100; i++) {
        assert_memory_equal(plain + 3 * i, flipped + 3 * (99 - i), 3 * sizeof(float));
    }
}

TEST(colours_move_as_defined)
{
    const float start[6] = {100, 50, 200, 0, 255, 30};
    float p[6];
    memcpy(p, start, sizeof p);
    lvni_data_colour_brightness(p, 2, 1.5f);
    assert_true(p[0] == 150.0f && p[2] == 255.0f && p[4] == 255.0f && p[5] == 45.0f);
    memcpy(p, start, sizeof p);
    /* grey: 0.299 * 100 + 0.587 * 50 + 0.114 * 200 = 82.05 */
    lvni_data_colour_saturation(p, 2, 0.0f);
    assert_float_equal(p[0], 82.05f, 1e-3f);
    assert_float_equal(p[1], 82.05f, 1e-3f);
    memcpy(p, start, sizeof p);
    /* mean grey of 82.05 and 0.587 * 255 + 0.114 * 30 = 153.105, in steps of 1/64 */
    lvni_data_colour_contrast(p, 2, 0.0f);
    assert_float_equal(p[4], 117.5775f, 0.02f);
    memcpy(p, start, sizeof p);
    /* a third of the circle: red becomes green becomes blue */
    lvni_data_colour_hue(p, 2, 1.0f / 3.0f);
    const float want[6] = {200, 100, 50, 30, 0, 255};
    for (int i = 0; i < 6; i++) {
        assert_float_equal(p[i], want[i], 1e-2f);
    }
    memcpy(p, start, sizeof p);
    lvni_data_colour_hue(p, 2, -0.25f);
    lvni_data_colour_hue(p, 2, 0.25f);
    for (int i = 0; i < 6; i++) {
        assert_float_equal(p[i], start[i], 1e-2f);
    }
}

TEST(settings_out_of_range_are_named)
{
    lvni_data_transform t;
    lvni_data_transform_init(&t, 64);
    assert_int_equal(lvni_data_transform_check(&t), LVN_OK);
    t.hflip = 1.5;
    assert_int_equal(lvni_data_transform_check(&t), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "augment.hflip is 1.5"));
    lvni_data_transform_init(&t, 0);
    assert_int_equal(lvni_data_transform_check(&t), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "image_size is 0"));
}

AFTER_ALL()
{
    lvni_data_scratch_release();
    return 0;
}

TEST(rotations_equal_scipy)
{
    for (unsigned i = 0; i < sizeof golden_degrees / sizeof *golden_degrees; i++) {
        float rgb[GOLDEN_W * GOLDEN_H * 3];
        for (unsigned k = 0; k < sizeof rgb / sizeof *rgb; k++) {
            rgb[k] = (float)golden_image[k];
        }
        assert_int_equal(lvni_data_rotate(lvni_data_scratch_get(), rgb, GOLDEN_W, GOLDEN_H, 3,
                                          (double)golden_degrees[i] / 360.0),
                         LVN_OK);
        for (unsigned k = 0; k < sizeof rgb / sizeof *rgb; k++) {
            assert_float_equal(rgb[k], golden_turns[i][k], 0.001F);
        }
    }
}

/* Blur, solarize, grey against torchvision and Pillow (golden_augment.py); when they are drawn, and
 * that they are off by themselves. */
#include "core/rng.h"
#include "data/augment.h"
#include "data/effects.h"
#include "golden_augment.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { N = GOLDEN_W * GOLDEN_H * 3 };

static void load(float *rgb)
{
    for (int i = 0; i < N; i++) {
        rgb[i] = golden_image[i];
    }
}

static void expect_blur(int kernel, double sigma, const float *want)
{
    float rgb[N];
    load(rgb);
    assert_int_equal(
        lvni_data_blur(lvni_data_scratch_get(), rgb, GOLDEN_W, GOLDEN_H, 3, sigma, kernel), LVN_OK);
    for (int i = 0; i < N; i++) {
        assert_float_equal(rgb[i], want[i], 2e-3F);
    }
}

TEST(blur_equals_torchvision)
{
    expect_blur(5, 0.7, golden_blur_5_7);
    expect_blur(0, 0.7, golden_blur_5_7); /* 2 floor(3.5 * 0.7) + 1 = 5 */
    expect_blur(7, 1.3, golden_blur_7_13);
    expect_blur(9, 2.0, golden_blur_9_20);
}

TEST(a_narrow_blur_does_nothing_and_a_wide_one_fits_any_image)
{
    float rgb[N], start[N];
    load(rgb);
    load(start);
    assert_int_equal(lvni_data_blur(lvni_data_scratch_get(), rgb, GOLDEN_W, GOLDEN_H, 3, 0.1, 0),
                     LVN_OK);
    assert_memory_equal(rgb, start, sizeof rgb);
    for (int width = 1; width <= 3; width++) {
        /* mirrored many times over; a constant image stays */
        for (int i = 0; i < N; i++) {
            rgb[i] = 77.0F;
        }
        assert_int_equal(lvni_data_blur(lvni_data_scratch_get(), rgb, width, 4 - width, 3,
                                        LVNI_BLUR_MAX_SIGMA, 0),
                         LVN_OK);
        for (int i = 0; i < 3 * width * (4 - width); i++) {
            assert_float_equal(rgb[i], 77.0F, 1e-3F);
        }
    }
}

TEST(solarize_and_grey_equal_theirs)
{
    float rgb[N];
    load(rgb);
    lvni_data_colour_solarize(rgb, N / 3, 0.5F * 255.0F);
    for (int i = 0; i < N; i++) {
        assert_float_equal(rgb[i], (float)golden_solarize_128[i], 0.0F);
    }
    load(rgb);
    lvni_data_colour_saturation(rgb, N / 3, 0.0F);
    for (int i = 0; i < N; i++) {
        const int pixel = i / 3;
        assert_float_equal(rgb[i], (float)golden_grey[pixel], 0.51F);
    }
}

static lvni_data_augment drawn(const lvni_data_transform *t, int sample)
{
    lvni_data_augment a;
    lvni_data_augment_draw(t, &(lvn_sample_key){3, 1, sample, true}, 50, 40, &a);
    return a;
}

/* Results depend on the draws: these numbers never change. */
TEST(effects_come_as_often_as_asked_and_by_their_own_draws)
{
    lvni_data_transform t;
    lvni_data_transform_init(&t, 16);
    t.brightness = 0.4;
    const lvni_data_augment plain = drawn(&t, 5);
    assert_true(plain.colour && !plain.grey && !plain.solarize && plain.blur_sigma == 0.0);
    t.jitter = 0.8;
    t.grey = 0.2;
    t.blur = 0.5;
    t.solarize = 0.1;
    int colour = 0, grey = 0, blur = 0, solarize = 0;
    for (int i = 0; i < 2000; i++) {
        const lvni_data_augment a = drawn(&t, i);
        colour += a.colour;
        grey += a.grey;
        blur += a.blur_sigma > 0.0;
        solarize += a.solarize;
        assert_true(a.blur_sigma == 0.0 || (a.blur_sigma >= 0.1 && a.blur_sigma < 2.0));
        const lvni_core_rng rng = {lvni_core_rng_make_key(3, lvni_core_rng_purpose("data")), 1,
                                   (uint32_t)i, LVNI_AUGMENT_BLUR};
        const bool blurred = lvni_core_rng_u32(&rng, 0) < 0x80000000U;
        assert_true(!blurred || fabs(a.blur_sigma - (0.1 + (double)lvni_core_rng_u32(&rng, 1) /
                                                               4294967296.0 * 1.9)) < 1e-12);
        assert_true(blurred == (a.blur_sigma > 0.0));
    }
    assert_int_in_range(colour, 1530, 1670);
    assert_int_in_range(grey, 340, 460);
    assert_int_in_range(blur, 910, 1090);
    assert_int_in_range(solarize, 150, 250);
    const lvni_data_augment same = drawn(&t, 5); /* what was there before is drawn as before */
    assert_memory_equal(&same.box, &plain.box, sizeof plain.box);
    assert_true(same.hflip == plain.hflip);
    t.grey = t.blur = t.solarize = t.jitter = 1.0;
    lvni_data_augment evaluation;
    lvni_data_augment_draw(&t, &(lvn_sample_key){3, 1, 5, false}, 50, 40, &evaluation);
    assert_true(!evaluation.colour && !evaluation.grey && !evaluation.solarize &&
                evaluation.blur_sigma == 0.0);
}

/* Rendering does them in the order jitter, grey, blur, solarize, normalisation. */
TEST(effects_are_done_in_their_order)
{
    enum { S = GOLDEN_H };
    lvni_data_transform t;
    lvni_data_transform_init(&t, S);
    t.blur_kernel = 5;
    t.brightness = 0.5;
    const lvni_data_image image = {
        .rgb = golden_image, .width = GOLDEN_W, .height = GOLDEN_H, .scale = 1.0};
    const lvni_data_image_info info = {
        .format = LVNI_IMAGE_PNG, .width = GOLDEN_W, .height = GOLDEN_H, .orientation = 1};
    const lvni_data_augment a = {.box = {1, 0, S, S},
                                 .colour = true,
                                 .brightness = 0.7F,
                                 .grey = true,
                                 .blur_sigma = 0.9,
                                 .blur_kernel = 5,
                                 .solarize = true,
                                 .order = {LVNI_AUGMENT_BRIGHTNESS, LVNI_AUGMENT_CONTRAST,
                                           LVNI_AUGMENT_SATURATION, LVNI_AUGMENT_HUE}};
    float out[S * S * 3], want[S * S * 3];
    assert_int_equal(lvni_data_augment_render(lvni_data_scratch_get(), &t, &a, &image, &info, out),
                     LVN_OK);
    for (int i = 0; i < S * S * 3; i++) {
        const int y = i / 3 / S, x = i / 3 % S + 1;
        want[i] = golden_image[3 * (y * GOLDEN_W + x) + i % 3];
    }
    lvni_data_colour_brightness(want, (int64_t)S * S, 0.7F);
    lvni_data_colour_saturation(want, (int64_t)S * S, 0.0F);
    assert_int_equal(lvni_data_blur(lvni_data_scratch_get(), want, S, S, 3, 0.9, 5), LVN_OK);
    lvni_data_colour_solarize(want, (int64_t)S * S, 127.5F);
    for (int i = 0; i < S * S * 3; i++) {
        assert_float_equal(out[i], (want[i] / 255.0F - t.mean[i % 3]) / t.std[i % 3], 1e-4F);
    }
}

TEST(settings_out_of_range_are_named)
{
    lvni_data_transform t;
    lvni_data_transform_init(&t, 64);
    t.blur_kernel = 4;
    assert_int_equal(lvni_data_transform_check(&t), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "augment.blur_kernel is 4"));
    t.blur_kernel = 0;
    t.blur_sigma[0] = 3.0;
    assert_int_equal(lvni_data_transform_check(&t), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "augment.blur_sigma, second value, is 2"));
}

AFTER_ALL()
{
    lvni_data_scratch_release();
    return 0;
}

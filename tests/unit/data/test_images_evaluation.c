/* What evaluation sees is what torchvision and timm make with Pillow: golden_evaluation.h. */
#include "data/image_folder.h"
#include "images_support.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "golden_evaluation.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* The noise of golden_evaluation.py. The caller frees. */
static uint8_t *noise(int width, int height)
{
    const size_t n = (size_t)width * (size_t)height * 3;
    uint8_t *rgb = malloc(n); /* exact size: a sanitizer sees a byte too far */
    unsigned seed = 7;
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        rgb[i] = (uint8_t)(seed >> 24);
    }
    return rgb;
}

/* The resized crop as bytes. */
static void resize_to(const lvni_data_image *image, const lvni_data_resize_plan *plan, uint8_t *out)
{
    const size_t n = (size_t)plan->crop * (size_t)plan->crop * 3;
    float *values = malloc(n * sizeof *values);
    const lvni_data_resample_target target = {
        values, 3, 3 * (ptrdiff_t)plan->crop, {1, 1, 1}, {0, 0, 0}};
    assert_int_equal(lvni_data_resize(lvni_data_scratch_get(), image, plan, &target), LVN_OK);
    for (size_t i = 0; i < n; i++) {
        out[i] = (uint8_t)values[i];
    }
    free(values);
}

static uint32_t crc_of(const uint8_t *bytes, int crop)
{
    return (uint32_t)crc32(0, bytes, (unsigned)(crop * crop * 3));
}

TEST(odd_shapes_are_torchvisions)
{
    for (size_t i = 0; i < COUNT(golden_shapes); i++) {
        const struct golden_shape *g = &golden_shapes[i];
        uint8_t *rgb = noise(g->width, g->height),
                *out = malloc((size_t)g->crop * (size_t)g->crop * 3);
        const lvni_data_image image = {
            .rgb = rgb, .width = g->width, .height = g->height, .scale = 1.0};
        lvni_data_resize_plan plan;
        assert_int_equal(
            lvni_data_resize_centre(g->shorter, g->crop, g->filter, g->width, g->height, &plan),
            LVN_OK);
        for (int vector = 0; vector < 2; vector++) {
            lvni_data_resize_use_vector(vector == 1);
            resize_to(&image, &plan, out);
            if (crc_of(out, g->crop) != g->crc) {
                fail_msg("%d x %d to %d, crop %d, filter %d, vector %d", g->width, g->height,
                         g->shorter, g->crop, (int)g->filter, vector);
            }
        }
        free(rgb);
        free(out);
    }
}

/* What lvni_data_resize_wanted names is enough, and nothing outside of it counts. */
TEST(a_window_gives_what_the_whole_image_gives)
{
    static const int sizes[][4] = {{97, 61, 37, 32},
                                   {61, 97, 73, 64},
                                   {200, 33, 37, 20},
                                   {17, 300, 37, 32},
                                   {120, 77, 20, 31}};
    for (size_t i = 0; i < COUNT(sizes) * 6; i++) {
        const int *s = sizes[i / 6], width = s[0], height = s[1];
        uint8_t *rgb = noise(width, height), whole[64 * 64 * 3], part[64 * 64 * 3];
        lvni_data_resize_plan plan;
        assert_int_equal(
            lvni_data_resize_centre(s[2], s[3], (lvni_data_filter)(i % 6), width, height, &plan),
            LVN_OK);
        lvni_data_image image = {.rgb = rgb, .width = width, .height = height, .scale = 1.0};
        resize_to(&image, &plan, whole);
        const lvni_data_box box = lvni_data_resize_wanted(&plan, width, height);
        assert_true(box.x >= 0 && box.y >= 0 && box.x + box.width <= width &&
                    box.y + box.height <= height);
        image.left = (int)box.x, image.top = (int)box.y, image.columns = (int)box.width,
        image.rows = (int)box.height;
        const size_t row = (size_t)image.columns * 3;
        uint8_t *window = malloc(row * (size_t)image.rows);
        for (int y = 0; y < image.rows; y++) {
            memcpy(window + (size_t)y * row,
                   rgb + ((size_t)(image.top + y) * (size_t)width + (size_t)image.left) * 3, row);
        }
        image.rgb = window;
        resize_to(&image, &plan, part);
        assert_memory_equal(whole, part, (size_t)(s[3] * s[3] * 3));
        free(window);
        free(rgb);
    }
}

TEST(the_shorter_side_is_that_of_torchvision)
{
    static const int sizes[][2] = {{224, 256}, {32, 37},   {64, 73},   {96, 110}, {128, 146},
                                   {160, 183}, {299, 342}, {384, 439}, {1, 1},    {7, 8}};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        assert_int_equal(lvni_data_transform_resize(sizes[i][0]), sizes[i][1]);
    }
    lvni_data_resize_plan p; /* 533 / 400 * 256 = 341.12; (341 - 224) / 2 = 58.5, to even */
    assert_int_equal(lvni_data_resize_centre(256, 224, LVNI_FILTER_BILINEAR, 400, 533, &p), LVN_OK);
    assert_true(p.width == 256 && p.height == 341 && p.left == 16 && p.top == 58);
    assert_int_equal(lvni_data_resize_centre(8192, 224, LVNI_FILTER_BILINEAR, 1, 1000000, &p),
                     LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "1 x 1000000"));
}

static int64_t sample_of(const lvn_dataset *d, const char *name)
{
    for (int64_t i = 0; i < d->cls->length(d); i++) {
        if (strcmp(d->cls->sample_name(d, i), name) == 0) {
            return i;
        }
    }
    fail_msg("no photo %s", name);
    return -1;
}

/* One photo as evaluation sees it, in bytes. */
static void photo_read(lvni_data_image_scan *scan, const struct golden_photo *g, uint8_t *out)
{
    lvni_data_transform t;
    lvn_dataset *d;
    float *image = malloc((size_t)g->crop * (size_t)g->crop * 3 * sizeof *image);
    lvni_data_transform_init(&t, g->crop);
    t.eval_resize = g->shorter;
    t.eval_filter = g->filter;
    const lvni_data_views views = lvni_data_views_make(&t, 1);
    assert_int_equal(lvni_data_image_view_create(scan, NULL, 0, &views, &d), LVN_OK);
    assert_int_equal(
        d->cls->get(d, &(lvn_sample_key){1, 0, sample_of(d, g->name), false}, (void *[]){image}),
        LVN_OK);
    lvni_data_transform_to_rgb(&t, image, out);
    lvn_dataset_destroy(d);
    free(image);
}

/* The bytes of Pillow, but at most one level off where another libjpeg decodes, and of the one tall
 * photo (resample.h). */
TEST(photos_are_torchvisions)
{
    const char *folder = images_real_folder();
    if (folder == NULL) {
        skip();
    }
    const size_t step = getenv("LEVIN_TEST_SLOW") == NULL ? 3 : 1;
    lvni_data_image_scan *scan;
    uint8_t *out = malloc((size_t)224 * 224 * 3);
    int seen = 0, equal = 0;
    assert_int_equal(lvni_data_image_scan_open(folder, LVNI_SCAN_FLAT, &scan), LVN_OK);
    for (size_t i = 0; i < COUNT(golden_photos); i += step) {
        const struct golden_photo *g = &golden_photos[i];
        photo_read(scan, g, out);
        for (size_t k = 0; k < GOLDEN_SAMPLES; k++) {
            const int is = out[(size_t)(g->crop * g->crop * 3) * k / GOLDEN_SAMPLES],
                      wanted = (uint8_t)g->samples[k];
            if (abs(is - wanted) > 1) {
                fail_msg("%s to %d, crop %d: value %zu is %d, not %d", g->name, g->shorter, g->crop,
                         k, is, wanted);
            }
        }
        seen++;
        equal += crc_of(out, g->crop) == g->crc;
    }
    print_message("%d of %d photos have the bytes of torchvision\n", equal, seen);
    assert_true(equal * 10 >= seen * 9);
    lvni_data_image_scan_release(scan);
    free(out);
}

/* Where pixel (x, y) of the upright image lies in the stored one (Exif 2.3,
 * orientation). */
static size_t stored_at(int orientation, int width, int height, int x, int y)
{
    const int mirrored_x = width - 1, mirrored_y = height - 1;
    const int at[9][2] = {{0, 0},
                          {x, y},
                          {mirrored_x - x, y},
                          {mirrored_x - x, mirrored_y - y},
                          {x, mirrored_y - y},
                          {y, x},
                          {y, mirrored_y - x},
                          {mirrored_x - y, mirrored_y - x},
                          {mirrored_x - y, x}};
    return (size_t)at[orientation][1] * (size_t)width + (size_t)at[orientation][0];
}

/* A JPEG much larger than the crop: all of its pixels, turned, then resized. */
static void check_large_jpeg(const char *folder, const uint8_t *jpeg, size_t n, int orientation)
{
    enum { W = 330, H = 210, CROP = 16 };
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    lvni_data_image_info info;
    lvni_data_image image;
    assert_int_equal(lvni_data_image_probe(scratch, jpeg, n, "large", &info), LVN_OK);
    assert_int_equal(info.orientation, orientation);
    assert_int_equal(lvni_data_image_decode(scratch, jpeg, n, "large", &info, 1.0, NULL, &image),
                     LVN_OK);
    const int width = orientation >= 5 ? H : W, height = orientation >= 5 ? W : H;
    uint8_t *upright = malloc((size_t)W * H * 3), wanted[CROP * CROP * 3], out[CROP * CROP * 3];
    for (int i = 0; i < W * H; i++) {
        const size_t from = stored_at(orientation, W, H, i % width, i / width);
        memcpy(upright + 3 * (size_t)i, image.rgb + 3 * from, 3);
    }
    const lvni_data_image turned = {.rgb = upright, .width = width, .height = height, .scale = 1.0};
    lvni_data_resize_plan plan;
    assert_int_equal(lvni_data_resize_centre(18, CROP, LVNI_FILTER_BILINEAR, width, height, &plan),
                     LVN_OK);
    resize_to(&turned, &plan, wanted);
    images_write_file(images_path(folder, "large.jpg"), jpeg, n);
    const struct golden_photo g = {
        .name = "large.jpg", .shorter = 18, .crop = CROP, .filter = plan.filter};
    lvni_data_image_scan *scan;
    assert_int_equal(lvni_data_image_scan_open(folder, LVNI_SCAN_FLAT, &scan), LVN_OK);
    photo_read(scan, &g, out);
    assert_memory_equal(out, wanted, sizeof out);
    lvni_data_image_scan_release(scan);
    free(upright);
}

TEST(a_large_jpeg_is_decoded_in_full_and_turned)
{
    const char *folder = images_temp_folder();
    uint8_t *rgb = noise(330, 210);
    for (int orientation = 1; orientation <= 8; orientation++) {
        size_t n;
        uint8_t *jpeg = images_jpeg(rgb, 330, 210, 90, 0, orientation, 0, &n);
        check_large_jpeg(folder, jpeg, n, orientation);
        free(jpeg);
    }
    free(rgb);
    images_remove_folder(folder);
}

AFTER_ALL()
{
    lvni_data_scratch_release();
    return 0;
}

/* Decoding: JPEG and PNG, grey, turned by Exif, damaged. */
#include "data/image.h"
#include "data/image_folder.h"
#include "images_support.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>

enum { W = 48, H = 32 };

static lvn_status decode(const uint8_t *bytes, size_t n, double need, lvni_data_image_info *info,
                         lvni_data_image *image)
{
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    const lvn_status status = lvni_data_image_probe(scratch, bytes, n, "a/b.jpg", info);
    if (status != LVN_OK) {
        return status;
    }
    return lvni_data_image_decode(scratch, bytes, n, "a/b.jpg", info, need, NULL, image);
}

static int largest_difference(const uint8_t *a, const uint8_t *b, int n)
{
    int worst = b == NULL ? 256 : 0; /* an image without pixels is as far away as can be */
    for (int i = 0; b != NULL && i < n; i++) {
        worst = abs(a[i] - b[i]) > worst ? abs(a[i] - b[i]) : worst;
    }
    return worst;
}

TEST(jpeg_comes_back_within_its_quality)
{
    uint8_t rgb[W * H * 3];
    images_paint(rgb, W, H, 3);
    size_t n;
    uint8_t *jpeg = images_jpeg(rgb, W, H, 100, 0, 0, 0, &n);
    lvni_data_image_info info = {0};
    lvni_data_image image = {0};
    assert_int_equal(decode(jpeg, n, 1.0, &info, &image), LVN_OK);
    assert_int_equal(info.width, W);
    assert_int_equal(info.height, H);
    assert_int_equal(info.orientation, 1);
    assert_int_equal(image.width, W);
    assert_true(largest_difference(rgb, image.rgb, W * H * 3) <= 4);
    free(jpeg);
}

TEST(jpeg_is_decoded_no_larger_than_needed)
{
    uint8_t rgb[W * H * 3];
    images_paint(rgb, W, H, 3);
    size_t n;
    uint8_t *jpeg = images_jpeg(rgb, W, H, 95, 0, 0, 0, &n);
    const struct {
        double need;
        int width, height;
    } cases[] = {{1.0, 48, 32}, {0.51, 48, 32}, {0.5, 24, 16}, {0.26, 24, 16},
                 {0.25, 12, 8}, {0.125, 6, 4},  {0.01, 6, 4}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        lvni_data_image_info info = {0};
        lvni_data_image image = {0};
        assert_int_equal(decode(jpeg, n, cases[i].need, &info, &image), LVN_OK);
        assert_int_equal(image.width, cases[i].width);
        assert_int_equal(image.height, cases[i].height);
        assert_true(image.scale * W == cases[i].width);
    }
    free(jpeg);
}

TEST(grey_jpeg_becomes_rgb)
{
    uint8_t rgb[W * H * 3];
    memset(rgb, 77, sizeof rgb);
    size_t n;
    uint8_t *jpeg = images_jpeg(rgb, W, H, 95, 1, 0, 0, &n);
    lvni_data_image_info info = {0};
    lvni_data_image image = {0};
    assert_int_equal(decode(jpeg, n, 1.0, &info, &image), LVN_OK);
    assert_non_null(image.rgb);
    for (int i = 0; image.rgb != NULL && i < W * H * 3; i++) {
        assert_int_equal(image.rgb[i], 77);
    }
    free(jpeg);
}

static void expect_corrupt(const uint8_t *bytes, size_t n, const char *text)
{
    lvni_data_image_info info = {0};
    lvni_data_image image = {0};
    assert_int_equal(decode(bytes, n, 1.0, &info, &image), LVN_ERR_CORRUPT);
    assert_non_null(strstr(lvn_last_error()->message, "a/b.jpg"));
    if (strstr(lvn_last_error()->message, text) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", lvn_last_error()->message, text);
    }
}

TEST(damaged_files_are_errors_with_their_path)
{
    uint8_t rgb[W * H * 3];
    images_paint(rgb, W, H, 5);
    size_t n;
    uint8_t *jpeg = images_jpeg(rgb, W, H, 90, 0, 0, 0, &n);
    expect_corrupt(jpeg, 0, "0 bytes");
    expect_corrupt(jpeg, 100, "header");
    expect_corrupt(jpeg, n / 2 + 300, "remature end");
    expect_corrupt((const uint8_t *)"hello, world", 12, "neither");
    for (size_t cut = 3; cut < n - 4; cut += 7) { /* with all pixels: test_images_odd */
        lvni_data_image_info info = {0};
        lvni_data_image image = {0};
        assert_int_equal(decode(jpeg, cut, 1.0, &info, &image), LVN_ERR_CORRUPT);
        /* a bad file must not spoil the next one */
        assert_int_equal(decode(jpeg, n, 1.0, &info, &image), LVN_OK);
    }
    free(jpeg);
}

TEST(extra_bytes_after_the_end_are_harmless)
{
    uint8_t rgb[W * H * 3];
    images_paint(rgb, W, H, 5);
    size_t n;
    uint8_t *jpeg = images_jpeg(rgb, W, H, 90, 0, 0, 0, &n);
    uint8_t *longer = calloc(n + 10, 1);
    memcpy(longer, jpeg, n);
    lvni_data_image_info info = {0};
    lvni_data_image image = {0};
    assert_int_equal(decode(longer, n + 10, 1.0, &info, &image), LVN_OK);
    memcpy(longer, jpeg, n - 2); /* four zero bytes before the end marker */
    memset(longer + n - 2, 0, 4);
    longer[n + 2] = 0xFF;
    longer[n + 3] = 0xD9;
    assert_int_equal(decode(longer, n + 4, 1.0, &info, &image), LVN_OK);
    free(longer);
    free(jpeg);
}

/* As the library makes it: YCCK, four times 90. Black leaves 90 of white, each colour takes (255 -
 * 90) / 255 of that. */
TEST(print_colours_become_rgb)
{
    uint8_t cmyk[8 * 8 * 4];
    memset(cmyk, 90, sizeof cmyk);
    tjhandle handle = tjInitCompress();
    unsigned char *jpeg = NULL;
    unsigned long n = 0;
    assert_int_equal(tjCompress2(handle, cmyk, 8, 0, 8, TJPF_CMYK, &jpeg, &n, TJSAMP_420, 95, 0),
                     0);
    lvni_data_image_info info = {0};
    lvni_data_image image = {0};
    assert_int_equal(decode(jpeg, n, 1.0, &info, &image), LVN_OK);
    if (image.rgb == NULL) {
        fail();
        return;
    }
    for (int i = 0; i < 8 * 8 * 3; i++) {
        assert_int_in_range(image.rgb[i], 30, 34);
    }
    tjFree(jpeg);
    tjDestroy(handle);
}

TEST(png_comes_back_exactly)
{
    uint8_t rgb[W * H * 3];
    images_paint(rgb, W, H, 8);
    const char *folder = images_temp_folder(), *path = images_path(folder, "x.png");
    assert_int_equal(lvni_data_png_write(path, rgb, W, H), LVN_OK);
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    size_t n;
    assert_int_equal(lvni_data_read_file(scratch, path, &n), LVN_OK);
    lvni_data_image_info info = {0};
    lvni_data_image image = {0};
    assert_int_equal(decode(scratch->file.data, n, 0.1, &info, &image), LVN_OK);
    assert_int_equal(image.width, W);
    assert_int_equal(image.height, H);
    assert_memory_equal(image.rgb, rgb, sizeof rgb);
    for (size_t cut = 8; cut < n - 12; cut += 5) {
        /* without the last chunk, which only marks the end */
        assert_int_equal(decode(scratch->file.data, cut, 1.0, &info, &image), LVN_ERR_CORRUPT);
    }
    ((uint8_t *)scratch->file.data)[n / 2] ^= 1;
    assert_int_equal(decode(scratch->file.data, n, 1.0, &info, &image), LVN_ERR_CORRUPT);
    ((uint8_t *)scratch->file.data)[n / 2] ^= 1;
    memset((uint8_t *)scratch->file.data + 16, 0x7f, 4); /* two thousand million pixels wide */
    assert_int_equal(decode(scratch->file.data, n, 1.0, &info, &image), LVN_ERR_CORRUPT);
    images_remove_folder(folder);
}

TEST(orientation_is_read_in_both_byte_orders_and_never_out_of_bounds)
{
    uint8_t rgb[16 * 8 * 3];
    images_paint(rgb, 16, 8, 1);
    for (int orientation = 0; orientation <= 9; orientation++) {
        for (int big = 0; big < 2; big++) {
            size_t n;
            uint8_t *jpeg = images_jpeg(rgb, 16, 8, 90, 0, orientation, big, &n);
            assert_int_equal(lvni_data_jpeg_orientation(jpeg, n),
                             orientation >= 1 && orientation <= 8 ? orientation : 1);
            for (size_t cut = 0; cut < 60; cut++) {
                /* exact blocks, so that a sanitizer sees one byte too far */
                uint8_t *part = malloc(cut == 0 ? 1 : cut);
                memcpy(part, jpeg, cut);
                const int found = lvni_data_jpeg_orientation(part, cut);
                assert_true(found == 1 || found == orientation);
                free(part);
            }
            for (size_t at = 2; at < 48; at++) { /* any single byte wrong */
                uint8_t *wrong = malloc(n);
                memcpy(wrong, jpeg, n);
                wrong[at] = 0xFF;
                const int found = lvni_data_jpeg_orientation(wrong, n);
                assert_int_in_range(found, 1, 8);
                free(wrong);
            }
            free(jpeg);
        }
    }
}

/* Where display pixel (x, y) of a stored w x h image comes from, straight from the standard's
 * table. */
static void stored_from_display(int orientation, int w, int h, int x, int y, int *sx, int *sy)
{
    switch (orientation) {
    case 2: *sx = w - 1 - x, *sy = y; break;
    case 3: *sx = w - 1 - x, *sy = h - 1 - y; break;
    case 4: *sx = x, *sy = h - 1 - y; break;
    case 5: *sx = y, *sy = x; break;
    case 6: *sx = y, *sy = h - 1 - x; break;
    case 7: *sx = w - 1 - y, *sy = h - 1 - x; break;
    case 8: *sx = w - 1 - y, *sy = x; break;
    default: *sx = x, *sy = y; break;
    }
}

/* Display the image as 16 x 16 (eval, whole shorter side) and compare with the same image
 * turned by hand and then stored as it is. */
TEST(all_eight_orientations_are_looked_at_upright)
{
    const char *folder = images_temp_folder();
    lvni_data_transform t;
    lvni_data_transform_init(&t, 16);
    t.eval_resize = 16;
    for (int o = 1; o <= 8; o++) {
        const int width = o >= 5 ? H : W, height = o >= 5 ? W : H;
        uint8_t rgb[W * H * 3], upright[W * H * 3];
        images_paint(rgb, W, H, 7);
        for (int y = 0; y < height; y++) {
            for (int x = 0; x < width; x++) {
                int sx, sy;
                stored_from_display(o, W, H, x, y, &sx, &sy);
                memcpy(upright + 3 * (y * width + x), rgb + 3 * (sy * W + sx), 3);
            }
        }
        size_t n;
        uint8_t *jpeg = images_jpeg(rgb, W, H, 100, 0, o, o & 1, &n);
        images_write_file(images_path(folder, "turned.jpg"), jpeg, n);
        free(jpeg);
        jpeg = images_jpeg(upright, width, height, 100, 0, 0, 0, &n);
        images_write_file(images_path(folder, "upright.jpg"), jpeg, n);
        free(jpeg);
        lvni_data_image_scan *scan;
        lvn_dataset *d;
        assert_int_equal(lvni_data_image_scan_open(folder, LVNI_SCAN_FLAT, &scan), LVN_OK);
        const lvni_data_views views = lvni_data_views_make(&t, 1);
        assert_int_equal(lvni_data_image_view_create(scan, NULL, 0, &views, &d), LVN_OK);
        float a[16 * 16 * 3], b[16 * 16 * 3];
        assert_int_equal(d->cls->get(d, &(lvn_sample_key){0, 0, 0, false}, (void *[]){a}), LVN_OK);
        assert_int_equal(d->cls->get(d, &(lvn_sample_key){0, 0, 1, false}, (void *[]){b}), LVN_OK);
        for (int i = 0; i < 16 * 16 * 3; i++) {
            /* three grey levels: the two were compressed apart */
            assert_float_equal(a[i], b[i], 0.05f);
        }
        lvn_dataset_destroy(d);
        lvni_data_image_scan_release(scan);
    }
    images_remove_folder(folder);
}

AFTER_ALL()
{
    lvni_data_scratch_release();
    return 0;
}

/* Every kind of PNG, print colours, progressive files against Pillow's RGB (golden_images.py);
 * decoding a part of a JPEG gives the pixels of the whole. */
#include "core/alloc.h"
#include "data/image.h"
#include "golden_images.h"
#include "images_support.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>

static lvn_status decode(const uint8_t *bytes, size_t n, double need, const lvni_data_box *wanted,
                         lvni_data_image *image)
{
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    lvni_data_image_info info = {0};
    LVN_TRY(lvni_data_image_probe(scratch, bytes, n, "a/b", &info));
    return lvni_data_image_decode(scratch, bytes, n, "a/b", &info, need, wanted, image);
}

TEST(all_kinds_have_the_colours_of_pillow)
{
    for (size_t i = 0; i < sizeof golden_images / sizeof *golden_images; i++) {
        const struct golden_image *g = &golden_images[i];
        const int allowed = g->name[0] == 'j' ? 2 : 0;
        lvni_data_image p = {0};
        assert_int_equal(decode((const uint8_t *)g->file, g->n, 1.0, NULL, &p), LVN_OK);
        assert_int_equal(p.width, GOLDEN_W);
        assert_int_equal(p.height, GOLDEN_H);
        assert_non_null(p.rgb);
        for (int k = 0; p.rgb != NULL && k < GOLDEN_W * GOLDEN_H * 3; k++) {
            if (abs(p.rgb[k] - (uint8_t)g->rgb[k]) > allowed) {
                fail_msg("%s: value %d is %d, not %d", g->name, k, p.rgb[k], (uint8_t)g->rgb[k]);
            }
        }
    }
}

/* Grey and alpha of any kind; each number of channels has its own of the four. */
TEST(all_kinds_have_the_grey_and_the_alpha_of_pillow)
{
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    for (size_t i = 0; i < sizeof golden_images / sizeof *golden_images; i++) {
        const struct golden_image *g = &golden_images[i];
        const uint8_t *bytes = (const uint8_t *)g->file;
        const int allowed = g->name[0] == 'j' ? 2 : 0;
        lvni_data_image_info info = {0};
        assert_int_equal(lvni_data_image_probe(scratch, bytes, g->n, "a/b", &info), LVN_OK);
        for (int channels = 1; channels <= 4; channels++) {
            lvni_data_image p = {0};
            assert_int_equal(lvni_data_image_decode_channels(scratch, bytes, g->n, "a/b", &info,
                                                             channels, 1.0, NULL, &p),
                             LVN_OK);
            assert_int_equal(p.channels, channels);
            assert_non_null(p.rgb);
            for (int k = 0; p.rgb != NULL && k < GOLDEN_W * GOLDEN_H * channels; k++) {
                const int pixel = k / channels, c = k % channels;
                const char want = channels % 2 == 0 && c == channels - 1 ? g->alpha[pixel]
                                  : channels <= 2                        ? g->grey[pixel]
                                                                         : g->rgb[3 * pixel + c];
                if (abs(p.rgb[k] - (uint8_t)want) > allowed) {
                    fail_msg("%s, %d channels: value %d is %d, not %d", g->name, channels, k,
                             p.rgb[k], (uint8_t)want);
                }
            }
        }
    }
}

/* All bits of files of 16: their high bytes are what is there without. Others are as they were. */
TEST(files_of_16_bits_have_all_of_them_when_asked)
{
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    int deep = 0, low = 0;
    for (size_t i = 0; i < sizeof golden_images / sizeof *golden_images; i++) {
        const struct golden_image *g = &golden_images[i];
        lvni_data_image_info info = {0};
        assert_int_equal(
            lvni_data_image_probe(scratch, (const uint8_t *)g->file, g->n, "a/b", &info), LVN_OK);
        assert_true(info.has_16_bits == (strstr(g->name, "16") != NULL));
        info.deep = true;
        for (int channels = 1; channels <= 4; channels++) {
            lvni_data_image p = {0};
            assert_int_equal(lvni_data_image_decode_channels(scratch, (const uint8_t *)g->file,
                                                             g->n, "a/b", &info, channels, 1.0,
                                                             NULL, &p),
                             LVN_OK);
            assert_true((p.deep != NULL) == info.has_16_bits &&
                        (p.rgb == NULL) == info.has_16_bits);
            for (int k = 0; p.deep != NULL && k < GOLDEN_W * GOLDEN_H * channels; k++) {
                const int pixel = k / channels, c = k % channels;
                const bool alpha = channels % 2 == 0 && c == channels - 1;
                const char want = alpha           ? g->alpha[pixel]
                                  : channels <= 2 ? g->grey[pixel]
                                                  : g->rgb[3 * pixel + c];
                const int allowed = !alpha && channels <= 2; /* grey of all bits is not cut */
                deep++;
                low += (p.deep[k] & 255) != p.deep[k] >> 8;
                if (abs((p.deep[k] >> 8) - (uint8_t)want) > allowed) {
                    fail_msg("%s, %d channels: value %d is %d, not %d", g->name, channels, k,
                             p.deep[k], (uint8_t)want);
                }
            }
        }
    }
    assert_true(deep > 1000 && low > deep / 2);
}

TEST(damage_anywhere_is_an_error_and_never_worse)
{
    for (size_t i = 0; i < sizeof golden_images / sizeof *golden_images; i++) {
        const struct golden_image *g = &golden_images[i];
        lvni_data_image p;
        uint8_t *copy = malloc(g->n);
        for (size_t at = 0; at < g->n; at++) {
            /* PNG: seen by a checksum, or in a chunk that does not matter */
            memcpy(copy, g->file, g->n);
            copy[at] ^= 0x5a;
            const lvn_status s = decode(copy, g->n, 1.0, NULL, &p);
            const bool unharmed =
                s == LVN_OK &&
                (g->name[0] == 'j' || memcmp(p.rgb, g->rgb, (size_t)GOLDEN_W * GOLDEN_H * 3) == 0);
            if (s != LVN_ERR_CORRUPT && !unharmed) {
                fail_msg("%s, byte %zu wrong: %s", g->name, at, lvn_status_name(s));
            }
        }
        free(copy);
        for (size_t cut = 0; cut < g->n - 12; cut++) {
            uint8_t *part = malloc(cut == 0 ? 1 : cut);
            memcpy(part, g->file, cut);
            assert_int_equal(decode(part, cut, 1.0, NULL, &p), LVN_ERR_CORRUPT);
            free(part);
        }
    }
}

static uint8_t *encode(const uint8_t *rgb, int w, int h, int sampling, int flags, unsigned long *n)
{
    tjhandle handle = tjInitCompress();
    unsigned char *jpeg = NULL;
    assert_int_equal(tjCompress2(handle, rgb, w, 0, h, TJPF_RGB, &jpeg, n, sampling, 90, flags), 0);
    tjDestroy(handle);
    return jpeg;
}

/* Both name their window; compare what they share. */
static void compare_window(const uint8_t *whole, const lvni_data_image *part,
                           const lvni_data_box *wanted)
{
    const double s = part->scale;
    assert_true(part->left <= (int)(wanted->x * s) && part->top <= (int)(wanted->y * s));
    const double right = (wanted->x + wanted->width) * s, bottom = (wanted->y + wanted->height) * s;
    assert_true(part->left + part->columns >= (right < part->width ? (int)right : part->width));
    assert_true(part->top + part->rows >= (bottom < part->height ? (int)bottom : part->height));
    const int from = (int)(wanted->x * s), to = right < part->width ? (int)right : part->width;
    for (int y = 0; y < part->rows; y++) {
        const uint8_t *a = whole + 3 * ((ptrdiff_t)(part->top + y) * part->width + from);
        const uint8_t *b = part->rgb + 3 * ((ptrdiff_t)y * part->columns + from - part->left);
        assert_memory_equal(a, b, 3 * (size_t)(to - from));
    }
}

TEST(a_part_has_the_pixels_of_the_whole)
{
    enum { W = 203, H = 157, PARTS = 24 };
    static uint8_t rgb[W * H * 3], whole[W * H * 3];
    unsigned seed = 1;
    images_paint(rgb, W, H, 3);
    for (int i = 0; i < W * H * 3; i++) {
        /* noise: neighbours differ, so a pixel too far left or right would show */
        seed = seed * 1664525U + 1013904223U;
        rgb[i] = (uint8_t)(rgb[i] / 2 + (seed >> 25));
    }
    static const int samplings[] = {TJSAMP_444, TJSAMP_422, TJSAMP_420,
                                    TJSAMP_440, TJSAMP_411, TJSAMP_GRAY};
    for (int k = 0; k < 12; k++) {
        unsigned long n = 0;
        uint8_t *jpeg =
            encode(rgb, W, H, samplings[k / 2], k % 2 == 0 ? 0 : TJFLAG_PROGRESSIVE, &n);
        for (int e = 0; e < 4; e++) {
            lvni_data_image p;
            assert_int_equal(decode(jpeg, n, (1 << e) / 8.0, NULL, &p), LVN_OK);
            assert_int_equal(p.columns * p.rows, p.width * p.height);
            memcpy(whole, p.rgb, 3 * (size_t)p.width * (size_t)p.height);
            for (int i = 0; i < PARTS; i++) {
                seed = seed * 1664525U + 1013904223U;
                const double x = seed >> 16 & 127, y = seed >> 24 & 127;
                const lvni_data_box wanted = {x, y, 1 + (i * 37 & 63), 1 + (i * 29 & 63)};
                assert_int_equal(decode(jpeg, n, (1 << e) / 8.0, &wanted, &p), LVN_OK);
                compare_window(whole, &p, &wanted);
            }
        }
        tjFree(jpeg);
    }
}

TEST(no_memory_for_a_jpeg_leaves_nothing_behind)
{
    lvni_data_scratch_release();
    const uint64_t before = lvni_core_alloc_get_total().live_bytes;
    const struct golden_image *g = &golden_images[sizeof golden_images / sizeof *golden_images - 1];
    lvn_status s = LVN_ERR_MEMORY;
    int64_t k = 0;
    while (s == LVN_ERR_MEMORY && k < 20) {
        lvni_data_image p;
        lvni_core_alloc_fail_at(++k);
        s = lvni_data_scratch_get() == NULL ? LVN_ERR_MEMORY
                                            : decode((const uint8_t *)g->file, g->n, 1.0, NULL, &p);
        lvni_core_alloc_fail_at(0);
        lvni_data_scratch_release();
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, before);
    }
    assert_int_equal(s, LVN_OK);
    assert_true(k > 2);
}

AFTER_ALL()
{
    lvni_data_scratch_release();
    return 0;
}

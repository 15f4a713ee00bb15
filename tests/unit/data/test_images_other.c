/* WebP, TIFF, GIF, BMP and PNM: their pixels, with alpha and without, of 1 to 16 bits; files that
 * are cut off. Written by hand here; the WebP by ffmpeg, without losses. */
#include "data/foreign.h"
#include "data/image.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { W = 5, H = 3, MOST = 512 };

typedef struct file {
    uint8_t bytes[MOST];
    size_t n;
} file;

static bool has_module(void)
{
    char module[512];
    const char *folder = getenv("LEVIN_BACKEND_PATH");
    snprintf(module, sizeof module, "%s/levin_video.so", folder != NULL ? folder : "");
    if (access(module, F_OK) != 0) {
        print_message("skipped: this build has no levin_video.so\n");
        return false;
    }
    return true;
}

#define NEEDS_MODULE()                                                                             \
    if (!has_module()) {                                                                           \
        skip();                                                                                    \
    }

static void put(file *f, const void *bytes, size_t n)
{
    assert_true(f->n + n <= MOST);
    memcpy(f->bytes + f->n, bytes, n);
    f->n += n;
}

static void put_text(file *f, const char *text)
{
    put(f, text, strlen(text));
}

static void put_u16(file *f, int value)
{
    const uint8_t bytes[2] = {(uint8_t)value, (uint8_t)(value >> 8)};
    put(f, bytes, 2);
}

static void put_u32(file *f, int value)
{
    put_u16(f, value & 0xFFFF);
    put_u16(f, value >> 16);
}

static uint8_t colour(int x, int y, int c)
{
    return (uint8_t)(c == 0 ? 40 * x : c == 1 ? 80 * y : c == 2 ? 10 * (x + y) + 5 : 17 * x);
}

/* The pixels of all of it. */
static const uint8_t *decode(const file *f, int channels, lvni_data_image_info *info)
{
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    lvni_data_image image = {0};
    *info = (lvni_data_image_info){0};
    if (lvni_data_image_probe(scratch, f->bytes, f->n, "x", info) != LVN_OK ||
        lvni_data_image_decode_channels(scratch, f->bytes, f->n, "x", info, channels, 1.0, NULL,
                                        &image) != LVN_OK ||
        image.rgb == NULL) {
        fail_msg("%.2s: %s", (const char *)f->bytes, lvn_last_error()->message);
        abort();
    }
    return image.rgb;
}

/* channels: of the result; has_alpha: the file has them. */
static void expect(const file *f, int channels, bool has_alpha)
{
    lvni_data_image_info info;
    const uint8_t *pixels = decode(f, channels, &info);
    assert_int_equal(info.width, W);
    assert_int_equal(info.height, H);
    for (int i = 0; i < W * H * channels; i++) {
        const int c = i % channels, x = i / channels % W, y = i / channels / W;
        const uint8_t right = c == 3 && !has_alpha ? 255 : colour(x, y, c);
        if (pixels[i] != right) {
            fail_msg("%.2s: pixel (%d, %d), channel %d: %d, not %d", (const char *)f->bytes, x, y,
                     c, pixels[i], right);
        }
    }
}

static void put_rgb(file *f)
{
    for (int i = 0; i < W * H * 3; i++) {
        const uint8_t value = colour(i / 3 % W, i / 3 / W, i % 3);
        put(f, &value, 1);
    }
}

static file make_ppm(void)
{
    file f = {.n = 0};
    put_text(&f, "P6\n# two\n# comments\n5 3\n255\n");
    put_rgb(&f);
    return f;
}

/* Rows from the bottom, with gaps; 4 bytes of a pixel: alpha is the last one. */
static file make_bmp(int bytes)
{
    file f = {.n = 0};
    const int row = (W * bytes + 3) / 4 * 4;
    put_text(&f, "BM");
    put_u32(&f, 54 + row * H);
    put_u32(&f, 0);
    put_u32(&f, 54);
    put_u32(&f, 40);
    put_u32(&f, W);
    put_u32(&f, H);
    put_u16(&f, 1);
    put_u16(&f, 8 * bytes);
    for (int i = 0; i < 6; i++) {
        put_u32(&f, i == 1 ? row * H : 0);
    }
    for (int y = H - 1; y >= 0; y--) {
        for (int i = 0; i < row; i++) {
            static const int order[] = {2, 1, 0, 3};
            const uint8_t value = i < W * bytes ? colour(i / bytes, y, order[i % bytes]) : 0;
            put(&f, &value, 1);
        }
    }
    return f;
}

static const uint8_t webp[] = {
    0x52, 0x49, 0x46, 0x46, 0x48, 0x00, 0x00, 0x00, 0x57, 0x45, 0x42, 0x50, 0x56, 0x50, 0x38, 0x4c,
    0x3c, 0x00, 0x00, 0x00, 0x2f, 0x04, 0x80, 0x00, 0x00, 0x77, 0x30, 0x50, 0x02, 0x81, 0x64, 0x9c,
    0xfc, 0x69, 0xc6, 0x41, 0xdb, 0xb6, 0x6d, 0xa6, 0x24, 0x2d, 0xff, 0xbf, 0x55, 0xf3, 0xfc, 0x87,
    0x26, 0x00, 0xc0, 0x70, 0x1c, 0xc7, 0x19, 0x00, 0x00, 0x30, 0x15, 0xc9, 0xc6, 0x7b, 0x0f, 0xbf,
    0x46, 0x16, 0xa5, 0x64, 0x51, 0x49, 0x16, 0xc1, 0x22, 0xfa, 0x1f, 0xd5, 0xbe, 0x13, 0xf7, 0x09};

TEST(colours_of_8_bits)
{
    NEEDS_MODULE();
    const file ppm = make_ppm(), bmp = make_bmp(3);
    file of_webp = {.n = 0};
    put(&of_webp, webp, sizeof webp);
    for (int channels = 3; channels <= 4; channels++) {
        expect(&ppm, channels, false);
        expect(&bmp, channels, false);
        expect(&of_webp, channels, false);
    }
}

TEST(text_and_alpha)
{
    NEEDS_MODULE();
    file text = {.n = 0}, pam = {.n = 0};
    put_text(&text, "P3 5 3 255");
    for (int i = 0; i < W * H * 3; i++) {
        char number[8];
        snprintf(number, sizeof number, " %d", colour(i / 3 % W, i / 3 / W, i % 3));
        put_text(&text, number);
    }
    put_text(&text, "\n");
    expect(&text, 3, false);
    put_text(&pam, "P7\nWIDTH 5\nHEIGHT 3\nDEPTH 4\nMAXVAL 255\nTUPLTYPE RGB_ALPHA\nENDHDR\n");
    for (int i = 0; i < W * H * 4; i++) {
        const uint8_t value = colour(i / 4 % W, i / 4 / W, i % 4);
        put(&pam, &value, 1);
    }
    expect(&pam, 3, true);
    expect(&pam, 4, true);
}

/* The pixels that a file of one channel gives. */
static void expect_grey(const file *f, int width, int height, const uint8_t *right)
{
    lvni_data_image_info info;
    const uint8_t *pixels = decode(f, 3, &info);
    assert_int_equal(info.width, width);
    assert_int_equal(info.height, height);
    for (int i = 0; i < width * height * 3; i++) {
        assert_int_equal(pixels[i], right[i / 3]);
    }
}

static void put_entry(file *f, int tag, int value)
{
    put_u16(f, tag);
    put_u16(f, 3);
    put_u32(f, 1);
    put_u32(f, value);
}

/* Two columns, three rows, grey of 16 bits, whose stored image lies on its side. subfile: 1 of a
 * preview. */
static file make_tiff(int subfile)
{
    const int entry[][2] = {{254, subfile}, {256, 2}, {257, 3}, {258, 16}, {259, 1}, {262, 1},
                            {273, 8},       {274, 6}, {277, 1}, {278, 3},  {279, 12}};
    enum { ENTRIES = sizeof entry / sizeof *entry };
    file f = {.n = 0};
    put_text(&f, "II*");
    put(&f, "", 1);
    put_u32(&f, 8 + 12); /* the directory stands at the end */
    for (int i = 0; i < 6; i++) {
        put_u16(&f, 0x1234 + 0x1000 * i);
    }
    put_u16(&f, ENTRIES);
    for (int i = 0; i < ENTRIES; i++) {
        put_entry(&f, entry[i][0], entry[i][1]);
    }
    put_u32(&f, 0);
    return f;
}

TEST(numbers_of_other_widths)
{
    NEEDS_MODULE();
    static const uint8_t high[6] = {0x12, 0x22, 0x32, 0x42, 0x52, 0x62}, ink[4] = {0, 255, 255, 0};
    const file tiff = make_tiff(0), preview = make_tiff(1);
    expect_grey(&tiff, 2, 3, high);
    lvni_data_image_info info = {0};
    assert_int_equal(lvni_data_image_probe(lvni_data_scratch_get(), tiff.bytes, tiff.n, "x", &info),
                     LVN_OK);
    assert_int_equal(info.orientation, 6);
    assert_int_equal(
        lvni_data_image_probe(lvni_data_scratch_get(), preview.bytes, preview.n, "x", &info),
        LVN_ERR_CORRUPT);
    assert_non_null(strstr(lvn_last_error()->message, "is a preview, as in raw files of cameras"));
    file pgm = {.n = 0}, pbm = {.n = 0};
    put_text(&pgm, "P5\n3 2\n65535\n");
    for (int i = 0; i < 6; i++) {
        const uint8_t value[2] = {high[i], 0x34};
        put(&pgm, value, 2);
    }
    expect_grey(&pgm, 3, 2, high);
    put_text(&pbm, "P4\n2 2\n\x80\x40"); /* 1 is black */
    expect_grey(&pbm, 2, 2, ink);
}

/* Four colours; each pair of codes of 3 bits is followed by a clearing, so that none grows. */
TEST(a_table_of_colours)
{
    NEEDS_MODULE();
    static const uint8_t head[] = {0x2C, 0, 0, 0, 0, 2, 0, 2, 0, 0, 2, 3}, tail[] = {0, 0x3B};
    static const uint8_t right[] = {10, 20, 30, 40};
    /* 4 0 1 4 2 3 5, the lowest bits first */
    uint32_t bits = 0;
    static const uint32_t codes[] = {4, 0, 1, 4, 2, 3, 5};
    for (int i = 0; i < 7; i++) {
        bits |= codes[i] << (3 * i);
    }
    file gif = {.n = 0};
    put_text(&gif, "GIF89a");
    put_u16(&gif, 2);
    put_u16(&gif, 2);
    put(&gif, "\x91\0\0", 3);
    for (int i = 0; i < 4; i++) {
        const uint8_t grey[3] = {right[i], right[i], right[i]};
        put(&gif, grey, 3);
    }
    put(&gif, head, sizeof head);
    const uint8_t packed[3] = {(uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16)};
    put(&gif, packed, 3);
    put(&gif, tail, sizeof tail);
    expect_grey(&gif, 2, 2, right);
}

/* At every byte: an error that names the file, or, where a decoder asks for no more, all pixels. */
TEST(files_that_are_cut_off)
{
    NEEDS_MODULE();
    file all[4] = {make_ppm(), make_bmp(4), make_tiff(0), {.n = 0}};
    put(&all[3], webp, sizeof webp);
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    for (int i = 0; i < 4; i++) {
        int refused = 0;
        for (size_t n = 18; n < all[i].n; n++) {
            lvni_data_image_info info = {0};
            lvni_data_image image;
            uint8_t *part = malloc(n);
            assert_non_null(part);
            memcpy(part, all[i].bytes, n);
            lvn_status s = lvni_data_image_probe(scratch, part, n, "cut", &info);
            s = s == LVN_OK
                    ? lvni_data_image_decode(scratch, part, n, "cut", &info, 1.0, NULL, &image)
                    : s;
            if (s != LVN_OK) {
                assert_int_equal(s, LVN_ERR_CORRUPT);
                assert_memory_equal(lvn_last_error()->message, "cut: ", 5);
                refused++;
            }
            free(part);
        }
        assert_true(refused * 2 > (int)all[i].n - 18);
    }
}

/* The header of an extended WebP may end with the file, in a block of just these bytes. */
TEST(extended_webp)
{
    NEEDS_MODULE();
    static const uint8_t head[30] = "RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x06\1\0\x04\2";
    lvni_data_image_info info = {0};
    uint8_t *part = malloc(sizeof head);
    assert_non_null(part);
    memcpy(part, head, sizeof head);
    assert_int_equal(lvni_data_image_probe(lvni_data_scratch_get(), part, sizeof head, "x", &info),
                     LVN_OK);
    assert_int_equal(info.width, 1 + 0x106);
    assert_int_equal(info.height, 1 + 0x204);
    part[20] = 2;
    assert_int_equal(lvni_data_image_probe(lvni_data_scratch_get(), part, sizeof head, "x", &info),
                     LVN_ERR_CORRUPT);
    assert_string_equal(lvn_last_error()->message,
                        "x: an animated WebP is not read; convert one frame to PNG");
    free(part);
}

TEST(kinds_are_known_by_their_first_bytes)
{
    static const struct {
        const char *bytes;
        size_t n;
        lvni_data_foreign kind;
    } all[] = {{"P6\n5 3\n255\n", 11, LVNI_FOREIGN_PNM},
               {"P5 # x", 6, LVNI_FOREIGN_PNM},
               {"P6", 2, LVNI_FOREIGN_NONE},
               {"P6 is a name", 12, LVNI_FOREIGN_NONE},
               {"P8\n5 3\n255\n", 11, LVNI_FOREIGN_NONE},
               {"P7\nWIDTH 5\n", 11, LVNI_FOREIGN_PNM},
               {"II+\0\x08\0\0\0", 8, LVNI_FOREIGN_BIGTIFF},
               {"MM\0*\0\0\0\x08", 8, LVNI_FOREIGN_TIFF}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_int_equal(lvni_data_foreign_of((const uint8_t *)all[i].bytes, all[i].n),
                         all[i].kind);
    }
    assert_false(lvni_data_foreign_is_read(LVNI_FOREIGN_BIGTIFF));
    assert_false(lvni_data_foreign_is_read(LVNI_FOREIGN_NONE));
}

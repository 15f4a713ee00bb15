/* JPEG files that libjpeg, Pillow and browsers show, although they are not as the standard has
 * them: the pixels of the installed library, of all of the image and of parts. What lacks pixels is
 * an error. Where the orientation of an image may stand. */
#include "data/image.h"
#include "odd_jpeg.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { W = 83, H = 61, MANY = 70000 };

static uint8_t zeros[MANY], noise[MANY];

static lvn_status decode(const odd_file *f, const lvni_data_box *wanted, lvni_data_image *image)
{
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    lvni_data_image_info info = {0};
    LVN_TRY(lvni_data_image_probe(scratch, f->bytes, f->n, "a/b.jpg", &info));
    return lvni_data_image_decode(scratch, f->bytes, f->n, "a/b.jpg", &info, 1.0, wanted, image);
}

/* Of three colours; four are compared by test_images_kinds. Columns beside the wanted ones may be
 * others. */
static bool has_pixels(const lvni_data_image *p, const lvni_data_box *part, const uint8_t *whole)
{
    const int x = part == NULL ? 0 : (int)part->x;
    const size_t columns = part == NULL ? (size_t)p->width : (size_t)part->width;
    for (int y = 0; y < p->rows; y++) {
        if (memcmp(p->rgb + 3 * ((ptrdiff_t)y * p->columns + x - p->left),
                   whole + 3 * ((ptrdiff_t)(p->top + y) * p->width + x), 3 * columns) != 0) {
            return false;
        }
    }
    return true;
}

static void expect_whole(const char *name, int i, const odd_file *odd)
{
    static const lvni_data_box parts[] = {
        {0, 0, W, H}, {3, 0, 20, 9}, {40, 21, 30, 16}, {60, 50, 23, 11}};
    uint8_t *whole;
    int width, height, channels;
    lvni_data_image p;
    assert_true(odd_reference(odd, &whole, &width, &height, &channels));
    assert_int_equal(channels, 3);
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        const lvni_data_box *part = k == 0 ? NULL : &parts[k];
        if (decode(odd, part, &p) != LVN_OK) {
            fail_msg("%s %d, part %zu: %s", name, i, k, lvn_last_error()->message);
        } else if (p.rgb == NULL || !has_pixels(&p, part, whole)) {
            fail_msg("%s %d, part %zu: other pixels than the library's", name, i, k);
        }
    }
    free(whole);
}

/* Of the same pixels as the file it was made from, too. */
static void expect_same(const char *name, int i, const odd_file *from, odd_file *odd)
{
    uint8_t *whole;
    int width, height, channels;
    lvni_data_image p;
    expect_whole(name, i, odd);
    assert_true(odd_reference(from, &whole, &width, &height, &channels));
    assert_int_equal(decode(odd, NULL, &p), LVN_OK);
    if (!has_pixels(&p, NULL, whole)) {
        fail_msg("%s %d: other pixels than before", name, i);
    }
    free(whole);
    odd_free(odd);
}

static const odd_kind kinds[] = {{0},
                                 {.restart = 3},
                                 {.progressive = true},
                                 {.progressive = true, .restart = 5},
                                 {.separate = true},
                                 {.separate = true, .restart = 4},
                                 {.arithmetic = true}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

TEST(what_stands_behind_the_end_is_not_the_image)
{
    for (int k = 0; k < N_KINDS; k++) {
        odd_file base = odd_make(W, H, &kinds[k]);
        const odd_file other = odd_make(40, 30, &kinds[0]);
        const struct {
            const void *bytes;
            size_t n;
        } tails[] = {{zeros, 1},
                     {zeros, 5000},
                     {zeros, MANY},
                     {noise, MANY},
                     {other.bytes, other.n},
                     {"\xFF", 1},
                     {"\0\0\0\x18"
                      "ftypmp42\xFF\xC4\0\2",
                      16}};
        for (int i = 0; i < (int)(sizeof tails / sizeof *tails); i++) {
            odd_file odd = odd_copy(&base);
            odd_append(&odd, tails[i].bytes, tails[i].n);
            expect_same("tail", 100 * k + i, &base, &odd);
        }
        if (kinds[k].arithmetic) { /* whose data has no end of its own */
            odd_free(&base);
            free(other.bytes);
            continue;
        }
        odd_file none = odd_copy(&base); /* no end at all: all pixels are there */
        none.n -= 2;
        expect_same("no end", k, &base, &none);
        none = odd_copy(&base);
        none.n -= 1;
        expect_same("half an end", k, &base, &none);
        for (int i = 0; i < 6; i++) { /* where the library of several scans looks for more */
            static const size_t most[] = {1, 7, 8, 9, 5000, MANY};
            for (size_t more = 0; more < 2; more++) {
                none = odd_copy(&base);
                none.n -= 2;
                odd_append(&none, zeros, most[i]);
                odd_append(&none, tails[6].bytes, more * tails[6].n);
                expect_same("no end and a tail", 100 * k + 10 * i + (int)more, &base, &none);
            }
        }
        odd_free(&base);
        free(other.bytes);
    }
}

TEST(bytes_between_segments_are_passed_over)
{
    static const struct {
        const char *bytes;
        size_t n;
    } junk[] = {{"\0", 1},
                {"forty-two bytes that belong to no segment.", 42},
                {"ab\xFF\0cd", 6},
                {"\xFF\xFF\xFF", 3}};
    for (int k = 0; k < N_KINDS; k++) {
        odd_file base = odd_make(W, H, &kinds[k]);
        size_t at[32];
        const int n = odd_segments(&base, at);
        for (int s = 0; s < n; s++) {
            for (int i = 0; i < (int)(sizeof junk / sizeof *junk); i++) {
                odd_file odd = odd_copy(&base);
                odd_insert(&odd, at[s], junk[i].bytes, junk[i].n);
                expect_same("junk", 1000 * k + 10 * s + i, &base, &odd);
            }
            odd_file odd = odd_copy(&base); /* the header lies behind 64 KiB of them */
            odd_insert(&odd, at[s], zeros, MANY);
            expect_same("much junk", 10 * k + s, &base, &odd);
        }
        for (int m = 0; m < 3; m++) { /* before later scans, their tables, the end */
            static const uint8_t markers[] = {0xDA, 0xC4, 0xD9};
            const size_t last = odd_find(&base, markers[m], m == 2 ? 0 : 1);
            for (int i = 0; last > 0 && i < 4; i++) {
                odd_file odd = odd_copy(&base);
                odd_insert(&odd, last, junk[i].bytes, junk[i].n);
                expect_same("later junk", 100 * k + 10 * m + i, &base, &odd);
            }
        }
        odd_free(&base);
    }
}

/* A table of 8 bits per value becomes one of 16. */
static void widen_tables(odd_file *f)
{
    size_t at;
    for (int k = 0; (at = odd_find(f, 0xDB, k)) != 0; k++) {
        uint8_t wide[129];
        assert_int_equal(f->bytes[at + 3], 67);
        wide[0] = (uint8_t)(0x10 | f->bytes[at + 4]);
        for (int i = 0; i < 64; i++) {
            wide[1 + 2 * i] = 0;
            wide[2 + 2 * i] = f->bytes[at + 5 + (size_t)i];
        }
        odd_remove(f, at, 69);
        odd_insert_segment(f, at, 0xDB, wide, sizeof wide);
    }
}

TEST(headers_of_cameras_and_scanners)
{
    odd_file base = odd_make(W, H, &kinds[1]), odd;
    const odd_file preview = odd_make(16, 16, &kinds[0]);
    static uint8_t body[65533];
    memcpy(body, "Exif\0\0", 6);
    memcpy(body + 20, preview.bytes, preview.n);
    odd = odd_copy(&base);
    for (int i = 0; i < 4; i++) {
        /* previews of an Exif block with begin and end, packets, pieces of a profile */
        odd_insert_segment(&odd, 2, 0xE1, body, i == 0 ? sizeof body : 1000);
        odd_insert_segment(&odd, 2, i % 2 == 0 ? 0xE2 : 0xFE, noise, sizeof body);
        odd_insert_segment(&odd, 2, 0xE1, "http://ns.adobe.com/xap/1.0/\0<x/>", 33);
    }
    expect_same("many segments", 0, &base, &odd);
    odd = odd_copy(&base);
    odd_remove(&odd, 2, 18); /* without JFIF: colours by their numbers */
    expect_same("no JFIF", 0, &base, &odd);
    odd = odd_copy(&base);
    odd.bytes[11] = 9; /* JFIF 9.01 */
    expect_same("JFIF version", 0, &base, &odd);
    for (int transform = 0; transform < 4; transform++) { /* 0: the same values, shown as RGB */
        const uint8_t adobe[] = {'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, (uint8_t)transform};
        odd = odd_copy(&base);
        odd_remove(&odd, 2, 18);
        odd_insert_segment(&odd, 2, 0xEE, adobe, sizeof adobe);
        expect_whole("Adobe", transform, &odd);
        odd_free(&odd);
    }
    odd = odd_copy(&base);
    widen_tables(&odd);
    expect_same("wide tables", 0, &base, &odd);
    odd = odd_copy(&base);
    odd.bytes[odd_find(&odd, 0xDA, 0) + 4 + 7 + 1] = 0; /* end of the band: 0 in place of 63 */
    expect_same("band of a scan", 0, &base, &odd);
    odd_free(&base);
    free(preview.bytes);
}

TEST(restart_markers_that_lose_nothing)
{
    for (int k = 1; k <= 5; k += 2) {
        odd_file base = odd_make(W, H, &kinds[k]);
        for (uint8_t marker = 0xD0; marker < 0xD4; marker++) {
            const size_t at = odd_find(&base, marker, 0);
            assert_true(at > 0);
            odd_file odd = odd_copy(&base);
            odd_insert(&odd, at, "\xFF\xFF\xFF\xFF", 4); /* fill bytes */
            expect_same("filled restart", k, &base, &odd);
            odd = odd_copy(&base);
            odd_insert(&odd, at, "\0\0\0", 3); /* padding */
            expect_same("padded restart", k, &base, &odd);
            odd = odd_copy(&base);
            odd.bytes[at + 1] = (uint8_t)(0xD0 | ((marker + 4) & 7)); /* far from the expected */
            expect_same("number of a restart", k, &base, &odd);
        }
        odd_free(&base);
    }
}

/* Whatever is accepted has the pixels of the whole file. */
TEST(what_lacks_pixels_is_an_error)
{
    for (int k = 0; k < N_KINDS; k++) {
        odd_file base = odd_make(W, H, &kinds[k]);
        uint8_t *whole;
        int width, height, channels, accepted = 0;
        lvni_data_image p;
        static const lvni_data_box top = {0, 0, W, 8};
        assert_true(odd_reference(&base, &whole, &width, &height, &channels));
        for (size_t cut = 2; cut + 3 < base.n; cut += 5) {
            /* cut off, or filled up with zeros, of which the library reads some ahead */
            const int tails = cut % 4 == 0 ? 4 : 2;
            for (int tail = 0; tail < tails; tail++) {
                odd_file odd = {.bytes = malloc(cut), .n = cut};
                memcpy(odd.bytes, base.bytes, cut);
                if (tail > 0) {
                    odd_append(&odd, zeros, tail == 1 ? 100 : MANY);
                    odd_append(&odd, "a tail", tail == 2 ? 6 : 0);
                }
                const lvn_status s = decode(&odd, &top, &p);
                accepted += s == LVN_OK;
                if (s == LVN_OK ? !has_pixels(&p, NULL, whole) : s != LVN_ERR_CORRUPT) {
                    fail_msg("kind %d cut at %zu of %zu, tail %d", k, cut, base.n, tail);
                }
                if (s != LVN_OK && tail == 0 && cut > 700) {
                    assert_non_null(strstr(lvn_last_error()->message, "Premature end"));
                }
                odd_free(&odd);
            }
        }
        assert_int_in_range(accepted, 0, 6); /* the last byte or two may hold padding alone */
        free(whole);
        odd_free(&base);
    }
    odd_file base = odd_make(W, H, &kinds[1]);
    lvni_data_image p;
    odd_file odd = odd_copy(&base); /* an interval is missing */
    const size_t at = odd_find(&odd, 0xD2, 0);
    odd_remove(&odd, at, odd_find(&odd, 0xD3, 0) - at);
    assert_int_equal(decode(&odd, NULL, &p), LVN_ERR_CORRUPT);
    odd_free(&odd);
    odd = odd_copy(&base); /* one before the expected: the library drops an interval */
    odd.bytes[odd_find(&odd, 0xD4, 0) + 1] = 0xD3;
    assert_int_equal(decode(&odd, NULL, &p), LVN_ERR_CORRUPT);
    odd_free(&odd);
    odd_free(&base);
    base = odd_make(W, H, &kinds[4]); /* the scan of the last colour is missing */
    const size_t scan = odd_find(&base, 0xDA, 2);
    odd_remove(&base, scan, base.n - 2 - scan);
    assert_int_equal(decode(&base, NULL, &p), LVN_ERR_CORRUPT);
    odd_free(&base);
}

/* ---- orientation ---- */

static const uint8_t tiff[] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 0x01, 0x12, 0,
                               3,   0,   0, 0,  1, 0, 6, 0, 0, 0, 0,    0,    0};
static const uint8_t as_long[] = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 0x01, 4,
                                  0,   1,   0,  0, 0, 8, 0, 0, 0, 0, 0,    0,    0};
static const char attribute[] = "http://ns.adobe.com/xap/1.0/\0<rdf:Description tiff:Make='x' "
                                "tiff:Orientation=\"3\" tiff:XResolution=\"1\"/>",
                  element[] = "http://ns.adobe.com/xap/1.0/\0<tiff:Orientation> 8 "
                              "</tiff:Orientation>",
                  wrong[] = "http://ns.adobe.com/xap/1.0/\0 tiff:Orientation=\"33\"";

static void put_exif(odd_file *f, size_t at, const uint8_t *block, size_t n)
{
    uint8_t body[64] = "Exif\0";
    memcpy(body + 6, block, n);
    odd_insert_segment(f, at, 0xE1, body, 6 + n);
}

static void check(odd_file *f, int expected)
{
    assert_int_equal(lvni_data_jpeg_orientation(f->bytes, f->n), expected);
    lvni_data_image_info info;
    assert_int_equal(lvni_data_image_probe(lvni_data_scratch_get(), f->bytes, f->n, "x.jpg", &info),
                     LVN_OK);
    assert_int_equal(info.orientation, expected);
    for (size_t cut = 0; cut < 300 && cut < f->n; cut++) {
        uint8_t *part = malloc(cut == 0 ? 1 : cut);
        memcpy(part, f->bytes, cut);
        assert_int_in_range(lvni_data_jpeg_orientation(part, cut), 1, 8);
        free(part);
    }
    odd_free(f);
}

TEST(orientation_of_a_jpeg_wherever_it_stands)
{
    const odd_file base = odd_make(16, 8, &kinds[0]);
    odd_file f = odd_copy(&base);
    put_exif(&f, 2, tiff, sizeof tiff);
    check(&f, 6);
    f = odd_copy(&base); /* behind a packet, another block without it, and strange bytes */
    put_exif(&f, 2, tiff, sizeof tiff);
    odd_insert(&f, 2, "junk \xFF\0 junk", 12);
    put_exif(&f, 2, (const uint8_t *)"MM\0*\0\0\0\x08\0\0", 10);
    odd_insert_segment(&f, 2, 0xE1, attribute, sizeof attribute);
    check(&f, 6);
    f = odd_copy(&base); /* right before the scan */
    put_exif(&f, odd_find(&f, 0xDA, 0), as_long, sizeof as_long);
    check(&f, 8);
    f = odd_copy(&base);
    odd_insert_segment(&f, 2, 0xE1, attribute, sizeof attribute);
    odd_insert_segment(&f, 2, 0xE1, wrong, sizeof wrong);
    check(&f, 3);
    f = odd_copy(&base);
    odd_insert_segment(&f, 2, 0xE1, element, sizeof element);
    check(&f, 8);
    f = odd_copy(&base);
    odd_append(&f, attribute, sizeof attribute); /* behind the image: not its own */
    check(&f, 1);
    free(base.bytes);
}

typedef struct png_file {
    uint8_t bytes[4096];
    size_t n;
} png_file;

static void put_chunk(png_file *p, const char *type, const void *body, size_t n)
{
    const uint8_t length[4] = {0, 0, (uint8_t)(n >> 8), (uint8_t)n};
    memcpy(p->bytes + p->n, length, 4);
    memcpy(p->bytes + p->n + 4, type, 4);
    memcpy(p->bytes + p->n + 8, body, n);
    const uint32_t crc = (uint32_t)crc32(0, p->bytes + p->n + 4, (uInt)n + 4);
    for (size_t i = 0; i < 4; i++) {
        p->bytes[p->n + 8 + n + i] = (uint8_t)(crc >> (24 - 8 * i));
    }
    p->n += 12 + n;
}

/* One grey pixel, with a chunk before or behind its data. */
static void expect_png(const char *type, const void *body, size_t n, int expected)
{
    static const uint8_t header[] = {0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0};
    for (int behind = 0; behind < 2; behind++) {
        png_file p = {.bytes = "\x89PNG\r\n\x1a\n", .n = 8};
        uint8_t data[32];
        uLongf bytes = sizeof data;
        assert_int_equal(compress(data, &bytes, (const uint8_t *)"\0\x80", 2), Z_OK);
        put_chunk(&p, "IHDR", header, sizeof header);
        if (behind == 0) {
            put_chunk(&p, type, body, n);
        }
        put_chunk(&p, "IDAT", data, bytes);
        if (behind == 1) {
            put_chunk(&p, type, body, n);
        }
        put_chunk(&p, "IEND", "", 0);
        lvni_data_image_info info;
        lvni_data_image image;
        lvni_data_scratch *scratch = lvni_data_scratch_get();
        assert_int_equal(lvni_data_image_probe(scratch, p.bytes, p.n, "x.png", &info), LVN_OK);
        assert_int_equal(info.orientation, expected);
        assert_int_equal(
            lvni_data_image_decode(scratch, p.bytes, p.n, "x.png", &info, 1.0, NULL, &image),
            LVN_OK);
        for (size_t cut = 0; cut < p.n; cut++) {
            uint8_t *part = malloc(cut == 0 ? 1 : cut);
            memcpy(part, p.bytes, cut);
            const int found = lvni_data_png_orientation(part, cut);
            assert_true(found == 1 || found == expected);
            free(part);
        }
    }
}

TEST(orientation_of_a_png_wherever_it_stands)
{
    char text[256] = "Raw profile type exif", packed[256];
    expect_png("eXIf", tiff, sizeof tiff, 6);
    expect_png("eXIf", "MM", 2, 1);
    size_t n = strlen(text) + 1;
    n += (size_t)snprintf(text + n, sizeof text - n, "\nexif\n      32\n457869660000");
    for (size_t i = 0; i < sizeof tiff; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%02x%s", tiff[i], i == 7 ? "\n" : "");
    }
    expect_png("tEXt", text, n, 6);
    const size_t keyword = strlen(text) + 1;
    memcpy(packed, text, keyword);
    packed[keyword] = 0;
    uLongf bytes = sizeof packed - keyword - 1;
    assert_int_equal(compress((uint8_t *)packed + keyword + 1, &bytes,
                              (const uint8_t *)text + keyword, n - keyword),
                     Z_OK);
    expect_png("zTXt", packed, keyword + 1 + bytes, 6);
    expect_png("iTXt", "XML:com.adobe.xmp\0\0\0\0\0<x tiff:Orientation='5'/>", 47, 5);
    expect_png("iTXt", "XML:com.adobe.xmp\0\0\0\0", 21, 1);
    expect_png("tEXt", "Comment\0tiff:Orientation='5'", 28, 1);
    static const char *const types[] = {"tEXt", "zTXt", "iTXt"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) { /* no keyword, no zero behind it */
        expect_png(types[i], "", 0, 1);
        expect_png(types[i], "Raw profile type exif", 21, 1);
        expect_png(types[i], "XML:com.adobe.xmp", 17, 1);
        expect_png(types[i], "XML:com.adobe.xmp", 18, 1);
    }
}

BEFORE_ALL()
{
    uint32_t seed = 7;
    for (int i = 0; i < MANY; i++) {
        seed = seed * 1664525U + 1013904223U;
        noise[i] = (uint8_t)(seed >> 24);
    }
    return 0;
}

AFTER_ALL()
{
    lvni_data_scratch_release();
    return 0;
}

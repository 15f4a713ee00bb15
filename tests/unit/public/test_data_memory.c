/* What readers of arrays, lists and images take of memory follows from the bytes they are given and
 * not from what these claim. */
#include "parser_memory.h"

#include "data/array.h"
#include "data/image.h"
#include "data/image_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

/* ---- arrays ---- */

static lvn_status open_array(const char *path)
{
    lvni_data_array a;
    LVN_TRY(lvni_data_array_open(path, &a));
    lvni_data_array_free(&a);
    return LVN_OK;
}

static lvn_status parse_array(const input *in)
{
    return by_path(in, open_array);
}

enum { MEMBER = 4096 };

static size_t pack(const void *bytes, size_t n, char *to)
{
    z_stream z = {
        .next_in = (Bytef *)(uintptr_t)bytes, .avail_in = (uInt)n, .next_out = (Bytef *)to};
    z.avail_out = MEMBER;
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return MEMBER - z.avail_out;
}

/* Packed: the n bytes, and `zeros` MiB of zeros behind them in members of their own. */
static input packed(const void *bytes, size_t n, int zeros)
{
    static uint8_t zero[1 << 20];
    char member[MEMBER];
    const size_t n_member = pack(zero, sizeof zero, member);
    input in = {.bytes = malloc((size_t)(zeros + 1) * MEMBER)};
    assert_non_null(in.bytes);
    in.n = pack(bytes, n, in.bytes);
    for (int i = 0; i < zeros; i++, in.n += n_member) {
        memcpy(in.bytes + in.n, member, n_member);
    }
    return in;
}

TEST(arrays_take_what_their_headers_report)
{
    static const uint8_t small[] = {0, 0, 8, 1, 0, 0, 0, 8,
                                    1, 2, 3, 4, 5, 6, 7, 8}; /* eight bytes */
    static const uint8_t large[] = {0, 0, 8, 2, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 16}; /* 32 GiB */
    static const uint8_t exact[] = {0, 0, 8, 2, 0, 0, 0x10, 0, 0, 0, 0x10, 0};        /* 16 MiB */
    static const char npy[] = "\x93NUMPY\x01\x00\x46\x00{'descr': '<f4', 'fortran_order': False, "
                              "'shape': (1073741824, 64), }";
    input in = packed(small, sizeof small, 256);
    assert_int_equal(bounded(parse_array, &in, "more than its header promises").status,
                     LVN_ERR_CORRUPT);
    free(in.bytes);
    in = packed(large, sizeof large, 256);
    assert_int_equal(bounded(parse_array, &in, "32 GiB in 256 KiB").status, LVN_ERR_CORRUPT);
    free(in.bytes);
    in = packed("neither", 7, 256);
    assert_int_equal(bounded(parse_array, &in, "no array").status, LVN_ERR_CORRUPT);
    free(in.bytes);
    in = packed(npy, sizeof npy - 1, 256);
    assert_int_equal(bounded(parse_array, &in, "npy").status, LVN_ERR_CORRUPT);
    free(in.bytes);
    in = packed(exact, sizeof exact, 16);
    const outcome o = bounded(parse_array, &in, "what it promises");
    assert_string_equal(o.message, "");
    free(in.bytes);
    for (int i = 0; i < 2; i++) { /* not packed */
        in = i == 0 ? (input){(char *)(uintptr_t)large, sizeof large}
                    : (input){(char *)(uintptr_t)npy, sizeof npy - 1};
        assert_int_equal(bounded(parse_array, &in, "no elements").status, LVN_ERR_CORRUPT);
    }
}

/* ---- lists of folders ---- */

static char folder[] = "/tmp/levin-memory-XXXXXX";

static lvn_status open_list(const char *path)
{
    lvni_data_index x = {.mode = LVNI_INDEX_FILE, .file = path};
    lvni_data_image_scan *scan = NULL;
    const lvn_status s = lvni_data_image_scan_open_indexed(folder, LVNI_SCAN_FLAT, &x, &scan);
    lvni_data_image_scan_release(scan);
    lvni_data_index_free(&x);
    return s;
}

static lvn_status parse_list(const input *in)
{
    return by_path(in, open_list);
}

/* A list of the folder that is right except for so many lines of one kind. */
static outcome list(const char *unit)
{
    struct stat st = {0};
    char head[256];
    assert_int_equal(stat(folder, &st), 0);
    snprintf(head, sizeof head,
             "levin data index 4\ndata 9000000000000000000 0 %s\nfolder %lld%09ld %llu \n", folder,
             (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (unsigned long long)st.st_ino);
    /* ASan's strict_string_checks walk to the end of the text at every number in it. */
    input in = repeat(head, unit, "", MEASURED ? 3 * MIB : MIB / 16, 0);
    in.n += (size_t)sprintf(in.bytes + in.n, "end %016llx\n",
                            (unsigned long long)XXH3_64bits(in.bytes, in.n));
    const outcome o = bounded(parse_list, &in, unit);
    free(in.bytes);
    return o;
}

TEST(lists_take_what_their_bytes_allow)
{
    char path[64], unit[128];
    struct stat st = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.png", folder);
    FILE *f = fopen(path, "we");
    assert_true(f != NULL && fclose(f) == 0 && stat(path, &st) == 0);
    snprintf(unit, sizeof unit, "picture 0 %lld%09ld 4 4 0 a.png\n", (long long)st.st_mtim.tv_sec,
             st.st_mtim.tv_nsec);
    assert_string_equal(list(unit).message, ""); /* taken, however often */
    list("ignored 1 .a%d\n");
    list("folder 1 1 a\n");
    list("image 1 1 0 0 a\n");
    list("x");
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

/* ---- images ---- */

static lvn_status parse_image(const input *in)
{
    lvni_data_image_info info;
    lvni_data_image out;
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    const uint8_t *bytes = (const uint8_t *)in->bytes;
    LVN_TRY(lvni_data_image_probe(scratch, bytes, in->n, "image", &info));
    return lvni_data_image_decode(scratch, bytes, in->n, "image", &info, 1.0, NULL, &out);
}

static void put_u32(uint8_t *to, size_t value)
{
    for (int k = 0; k < 4; k++) {
        to[k] = (uint8_t)(value >> (24 - 8 * k));
    }
}

static size_t put_chunk(uint8_t *to, const char *kind, const void *data, size_t n)
{
    put_u32(to, n);
    memcpy(to + 4, kind, 4);
    memmove(to + 8, data, n);
    put_u32(to + 8 + n, crc32(0, to + 4, (uInt)n + 4));
    return n + 12;
}

/* A PNG that claims this size, has one pixel, and a text of `mib` MiB of zeros packed in front of
 * it. */
static input png(uint32_t width, uint32_t height, int mib)
{
    static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    static uint8_t head[13] = {[8] = 8, [9] = 0}, pixel[2];
    uint8_t packed_pixel[64], *text = calloc((size_t)mib + 1, MIB),
                              *small = malloc((size_t)(mib + 1) * 8192);
    uLongf n_pixel = sizeof packed_pixel, n_text = (uLongf)(mib + 1) * 8192 - 16;
    input in = {.bytes = malloc((size_t)(mib + 2) * 8192)};
    uint8_t *at = (uint8_t *)in.bytes;
    if (text == NULL || small == NULL || at == NULL) {
        abort();
    }
    memcpy(at, signature, 8);
    put_u32(head, width);
    put_u32(head + 4, height);
    in.n = 8 + put_chunk(at + 8, "IHDR", head, sizeof head);
    if (mib > 0) {
        memcpy(small, "Comment\0", 9); /* keyword, its end, the method */
        assert_int_equal(compress2(small + 9, &n_text, text, (uLong)mib * MIB, 1), Z_OK);
        in.n += put_chunk(at + in.n, "zTXt", small, n_text + 9);
    }
    assert_int_equal(compress2(packed_pixel, &n_pixel, pixel, 2, 6), Z_OK);
    in.n += put_chunk(at + in.n, "IDAT", packed_pixel, n_pixel);
    in.n += put_chunk(at + in.n, "IEND", "", 0);
    free(text);
    free(small);
    return in;
}

/* The header of a JPEG that claims this size, up to its first scan. */
static input jpeg(uint16_t width, uint16_t height, bool progressive)
{
    const uint8_t bytes[] = {0xFF,
                             0xD8,
                             0xFF,
                             progressive ? 0xC2 : 0xC0,
                             0,
                             17,
                             8,
                             (uint8_t)(height >> 8),
                             (uint8_t)height,
                             (uint8_t)(width >> 8),
                             (uint8_t)width,
                             3,
                             1,
                             0x11,
                             0,
                             2,
                             0x11,
                             0,
                             3,
                             0x11,
                             0,
                             0xFF,
                             0xDA,
                             0,
                             12,
                             3,
                             1,
                             0,
                             2,
                             0,
                             3,
                             0,
                             0,
                             0,
                             0,
                             0xFF,
                             0xD9};
    input in = {.bytes = malloc(64), .n = sizeof bytes};
    memcpy(in.bytes, bytes, sizeof bytes);
    return in;
}

TEST(images_take_what_max_pixels_allows)
{
    input in[] = {png(65000, 65000, 0), jpeg(65000, 65000, false), jpeg(65000, 65000, true),
                  png(13378, 13378, 0), jpeg(13378, 13378, true)};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        const outcome o = bounded(parse_image, &in[i], "image");
        assert_int_equal(o.status, LVN_ERR_CORRUPT);
        assert_non_null(strstr(o.message, "data.max_pixels=178956970"));
        assert_non_null(strstr(o.message, i < 3 ? "65000 x 65000" : "13378 x 13378"));
        assert_true(!MEASURED || o.peak < 4 * MIB); /* nothing for its pixels */
        free(in[i].bytes);
    }
}

TEST(the_limit_of_pixels_can_be_set)
{
    assert_int_equal(lvni_data_image_check_size("a.png", 13377, 13377), LVN_OK);
    lvni_data_image_set_max_pixels(99);
    assert_int_equal(lvni_data_image_check_size("a.png", 9, 11), LVN_OK);
    assert_int_equal(lvni_data_image_check_size("a.png", 10, 10), LVN_ERR_CORRUPT);
    assert_string_equal(lvn_last_error()->message, "a.png: an image of 10 x 10 = 100 pixels, more "
                                                   "than data.max_pixels=99; if it is meant to be "
                                                   "that large, give data.max_pixels=100");
    lvni_data_image_set_max_pixels(INT64_MAX);
    assert_int_equal(lvni_data_image_check_size("a.png", 65500, 65500), LVN_OK);
    assert_int_equal(lvni_data_image_check_size("a.png", 65501, 1), LVN_ERR_CORRUPT);
    lvni_data_image_set_max_pixels(LVNI_IMAGE_MAX_PIXELS);
}

/* Texts and profiles of an image are unpacked by its decoder. */
TEST(texts_in_images_are_bounded)
{
    input in = png(1, 1, 100);
    bounded(parse_image, &in, "a text of 100 MiB");
    free(in.bytes);
    in = png(1, 1, 8);
    assert_string_equal(bounded(parse_image, &in, "a text of 8 MiB").message, "");
    free(in.bytes);
}

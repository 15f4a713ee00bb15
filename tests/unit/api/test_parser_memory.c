/* What a parser takes of memory follows from the bytes it is given and not from what they claim: at
 * most 64 MiB and 16 times the input, measured in a process of its own, for inputs of the costliest
 * kinds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ckpt/safetensors.h"
#include "core/alloc.h"
#include "core/error_record.h"
#include "core/json_read.h"
#include "data/array.h"
#include "data/decode/picture.h"
#include "log/metrics.h"
#include "unit/core/config_rows.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MEASURED = 0 }; /* a sanitizer's own memory would be counted */
#else
enum { MEASURED = 1 };
#endif

static const size_t MIB = (size_t)1 << 20;

typedef struct input {
    char *bytes;
    size_t n;
} input;

typedef lvn_status (*parser)(const input *in);

typedef struct outcome {
    lvn_status status;
    size_t peak; /* bytes above what the process had before */
    char message[256];
} outcome;

static size_t memory_now(const char *name)
{
    char line[256];
    size_t kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            kib = strtoul(line + strlen(name), NULL, 10);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return kib * 1024;
}

static void measure(parser parse, const input *in, int fd)
{
    outcome o = {0};
    const size_t before = memory_now("VmRSS:");
    o.status = parse(in);
    o.peak = memory_now("VmHWM:") - before;
    snprintf(o.message, sizeof o.message, "%.250s",
             o.status == LVN_OK ? "" : lvn_last_error()->message);
    _exit(write(fd, &o, sizeof o) == sizeof o ? 0 : 1);
}

static outcome run(parser parse, const input *in)
{
    outcome o = {0};
    int ends[2], state = -1;
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        measure(parse, in, ends[1]);
    }
    close(ends[1]);
    const ssize_t n = read(ends[0], &o, sizeof o);
    close(ends[0]);
    assert_int_equal(waitpid(pid, &state, 0), pid);
    assert_int_equal(n, sizeof o); /* less: it died */
    assert_int_equal(state, 0);
    return o;
}

/* Of what the input may take; its own copy in the process was there before. */
static outcome bounded(parser parse, const input *in, const char *what)
{
    const outcome o = run(parse, in);
    const size_t limit = 64 * MIB + 16 * in->n;
    if (MEASURED && o.peak > limit) {
        fail_msg("%.60s: %zu bytes took %zu, at most %zu; %s", what, in->n, o.peak, limit,
                 o.message);
    }
    return o;
}

/* head, then `unit` (a %d in it counts up) until there are n bytes, then tail; `before` bytes are
 * left free in front of it. */
static input repeat(const char *head, const char *unit, const char *tail, size_t n, size_t before)
{
    const char *number = strstr(unit, "%d");
    input in = {.bytes = malloc(n + before + 256), .n = before};
    assert_non_null(in.bytes);
    in.n += (size_t)sprintf(in.bytes + in.n, "%s", head);
    for (int i = 0; in.n + strlen(unit) + strlen(tail) + 8 < n + before; i++) {
        in.n += number == NULL ? (size_t)sprintf(in.bytes + in.n, "%s", unit)
                               : (size_t)sprintf(in.bytes + in.n, "%.*s%d%s", (int)(number - unit),
                                                 unit, i, number + 2);
    }
    in.n += (size_t)sprintf(in.bytes + in.n, "%s", tail);
    return in;
}

/* Any parser that wants a path: a file without a name. */
static lvn_status by_path(const input *in, lvn_status (*open)(const char *path))
{
    char path[40];
    const int fd = memfd_create("input", 0);
    const bool written = fd >= 0 && write(fd, in->bytes, in->n) == (ssize_t)in->n;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return written ? open(path) : LVN_ERR_INTERNAL;
}

/* ---- headers of safetensors ---- */

static lvn_status open_tensors(const char *path)
{
    lvni_st_file *file;
    LVN_TRY(lvni_st_open(path, 0, &file));
    lvni_st_close(file);
    return LVN_OK;
}

static lvn_status parse_tensors(const input *in)
{
    return by_path(in, open_tensors);
}

static outcome header(const char *head, const char *unit, const char *tail, size_t n)
{
    input in = repeat(head, unit, tail, n, 8);
    for (int i = 0; i < 8; i++) {
        in.bytes[i] = (char)((in.n - 8) >> (8 * i));
    }
    const outcome o = bounded(parse_tensors, &in, unit);
    free(in.bytes);
    return o;
}

static const struct family {
    const char *head, *unit, *tail;
} families[] = {
    {"{", "\"k%d\":{},", "\"z\":0}"},
    {"{", "\"k%d\":0,", "\"z\":0}"},
    {"{", "\"k%d\":[],", "\"z\":0}"},
    {"{\"k\":[", "[],", "0]}"},
    {"{\"k\":[", "{},", "0]}"},
    {"{\"k\":[", "{\"\":{}},", "0]}"},
    {"{\"k\":[", "[[[[[[]]]]]],", "0]}"},
    {"{\"k\":[", "1,", "0]}"},
    {"{\"k\":[", ".5,", "0]}"}, /* no JSON: the first number ends it */
    {"{\"k\":[", "0.5,", "0]}"},
    {"{\"k\":[", "\"\",", "0]}"},
    {"{\"k\":[", "null,", "0]}"},
    {"{\"__metadata__\":{", "\"%d\":\"\",", "\"z\":\"\"}}"},
    {"{\"__metadata__\":{\"levin.checksums\":\"[", "[],", "0]\"}}"},
    {"{\"__metadata__\":{\"levin.checksums\":\"{", "\\\"%d\\\":{},", "\\\"z\\\":0}\"}}"},
    {"{\"__metadata__\":{\"a\":\"", "x", "\"}}"},
    {"{\"__metadata__\":{\"a\":\"", "\\u0041", "\"}}"},
    {"{", "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa%d\":{},", "\"z\":0}"},
    {"", "[", ""},
    {"", "{\"a\":", ""},
    {"{", " ", "}"},
};

static void headers_take_what_their_bytes_allow(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct family *f = &families[i];
        header(f->head, f->unit, f->tail, MIB);
        header(f->head, f->unit, f->tail, 3 * MIB);
    }
}

/* Nobody's real file comes near the limits. */
static void large_headers_are_read(void **state)
{
    (void)state;
    static const char unit[] = "\"model.layers.%d.attention.weight\":{\"dtype\":\"F32\",\"shape\":["
                               "0,4096],\"data_offsets\":[0,0]},";
    const outcome o = header(
        "{", unit, "\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 15 * MIB);
    assert_string_equal(o.message, "");
}

static void headers_over_16_mib_are_refused_before_they_are_read(void **state)
{
    (void)state;
    const outcome o = header("{", " ", "}", 17 * MIB);
    assert_int_equal(o.status, LVN_ERR_CORRUPT);
    assert_non_null(strstr(o.message, "16 MiB"));
    assert_true(!MEASURED ||
                o.peak < 20 * MIB); /* 17 of them are the file, which lies in memory here */
}

static void nesting_has_a_limit(void **state)
{
    (void)state;
    char text[2 * LVNI_JSON_MAX_DEPTH + 8];
    for (int depth = LVNI_JSON_MAX_DEPTH; depth <= LVNI_JSON_MAX_DEPTH + 1; depth++) {
        json_t *json;
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        const lvn_status s =
            lvni_json_read("f", "it", text, 2 * (size_t)depth, 0, LVNI_JSON_FILE, &json);
        assert_int_equal(s, depth > LVNI_JSON_MAX_DEPTH ? LVN_ERR_CORRUPT : LVN_OK);
        json_decref(json);
    }
    assert_string_equal(lvn_last_error()->message,
                        "f: it is nested 65 levels deep; at most 64 are read");
}

/* ---- other JSON, YAML ---- */

static lvn_status open_record(const char *path)
{
    static lvni_error_record record;
    return lvni_error_record_read(path, &record);
}

static lvn_status parse_record(const input *in)
{
    return by_path(in, open_record);
}

static lvn_status open_metrics(const char *path)
{
    return lvni_metrics_truncate(path, 1, NULL, NULL);
}

static lvn_status parse_metrics(const input *in)
{
    return by_path(in, open_metrics);
}

static lvn_status parse_config(const input *in)
{
    lvni_config *config;
    LVN_TRY(make_config(&config));
    const lvn_status s = lvni_config_load_yaml(config, LVNI_LAYER_FILE, "f.yml", in->bytes, in->n);
    lvni_config_destroy(config);
    return s;
}

static void records_and_metrics_take_what_their_bytes_allow(void **state)
{
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        input in = repeat(families[i].head, families[i].unit, families[i].tail, MIB - 64, 0);
        bounded(parse_record, &in, families[i].unit);
        free(in.bytes);
        in = repeat(families[i].head, families[i].unit, families[i].tail, 3 * MIB, 0);
        bounded(parse_metrics, &in, families[i].unit);
        free(in.bytes);
    }
}

static void configurations_take_what_their_bytes_allow(void **state)
{
    (void)state;
    static const struct family yaml[] = {
        {"", "[", ""},
        {"", "{", ""},
        {"", "- ", ""},
        {"", "? ", ""},
        {"", "{a: ", ""},
        {"a: &a [x, x, x, x, x, x, x, x]\n", "b%d: &b%d [*a, *a, *a, *a, *a, *a, *a, *a]\n", ""},
        {"", "&a%d ", "x"},
        {"names: [", "x, ", "x]"},
        {"names: [", "[], ", "x]"},
        {"title: \"", "\\u00e4", "\"\n"},
        {"title: '", "x\n\n ", "'\n"},
        {"title: |\n", " x\n", ""},
        {"", "k%d: 1\n", ""},
        {"", "---\n", ""},
        {"", "# \n", ""},
        {"", "!<x> ", ""},
        {"", "%TAG !a! b\n", ""},
        {"", "\t", ""},
        {"", "optim: {", ""},
    };
    for (size_t i = 0; i < sizeof yaml / sizeof *yaml; i++) {
        input in = repeat(yaml[i].head, yaml[i].unit, yaml[i].tail, MIB - 64, 0);
        const outcome o = bounded(parse_config, &in, yaml[i].unit);
        assert_true(o.status == LVN_OK || o.status == LVN_ERR_USAGE);
        free(in.bytes);
    }
}

/* ---- arrays ---- */

static lvn_status open_array(const char *path)
{
    lvni_array a;
    LVN_TRY(lvni_array_open(path, &a));
    lvni_array_free(&a);
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

static void arrays_take_what_their_headers_say(void **state)
{
    (void)state;
    static const uint8_t small[] = {0, 0, 8, 1, 0, 0, 0, 8,
                                    1, 2, 3, 4, 5, 6, 7, 8}; /* eight bytes */
    static const uint8_t large[] = {0, 0, 8, 2, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 16}; /* 32 GiB */
    static const uint8_t exact[] = {0, 0, 8, 2, 0, 0, 0x10, 0, 0, 0, 0x10, 0};        /* 16 MiB */
    static const char npy[] = "\x93NUMPY\x01\x00\x46\x00{'descr': '<f4', 'fortran_order': False, "
                              "'shape': (1073741824, 64), }";
    input in = packed(small, sizeof small, 256);
    assert_int_equal(bounded(parse_array, &in, "more than its header says").status,
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
    const outcome o = bounded(parse_array, &in, "what it says");
    assert_string_equal(o.message, "");
    free(in.bytes);
    for (int i = 0; i < 2; i++) { /* not packed */
        in = i == 0 ? (input){(char *)(uintptr_t)large, sizeof large}
                    : (input){(char *)(uintptr_t)npy, sizeof npy - 1};
        assert_int_equal(bounded(parse_array, &in, "no elements").status, LVN_ERR_CORRUPT);
    }
}

/* ---- images ---- */

static lvn_status parse_image(const input *in)
{
    lvni_picture_info info;
    lvni_picture out;
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    const uint8_t *bytes = (const uint8_t *)in->bytes;
    LVN_TRY(lvni_picture_probe(scratch, bytes, in->n, "image", &info));
    return lvni_picture_decode(scratch, bytes, in->n, "image", &info, 1.0, NULL, &out);
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

static void images_take_what_max_pixels_allows(void **state)
{
    (void)state;
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

static void the_limit_of_pixels_can_be_set(void **state)
{
    (void)state;
    assert_int_equal(lvni_picture_check_size("a.png", 13377, 13377), LVN_OK);
    lvni_picture_set_max_pixels(99);
    assert_int_equal(lvni_picture_check_size("a.png", 9, 11), LVN_OK);
    assert_int_equal(lvni_picture_check_size("a.png", 10, 10), LVN_ERR_CORRUPT);
    assert_string_equal(lvn_last_error()->message, "a.png: an image of 10 x 10 = 100 pixels, more "
                                                   "than data.max_pixels=99; if it is meant to be "
                                                   "that large, give data.max_pixels=100");
    lvni_picture_set_max_pixels(INT64_MAX);
    assert_int_equal(lvni_picture_check_size("a.png", 65500, 65500), LVN_OK);
    assert_int_equal(lvni_picture_check_size("a.png", 65501, 1), LVN_ERR_CORRUPT);
    lvni_picture_set_max_pixels(LVNI_PICTURE_MAX_PIXELS);
}

/* Texts and profiles of an image are unpacked by its decoder. */
static void texts_in_images_are_bounded(void **state)
{
    (void)state;
    input in = png(1, 1, 100);
    bounded(parse_image, &in, "a text of 100 MiB");
    free(in.bytes);
    in = png(1, 1, 8);
    assert_string_equal(bounded(parse_image, &in, "a text of 8 MiB").message, "");
    free(in.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_take_what_their_bytes_allow),
        cmocka_unit_test(large_headers_are_read),
        cmocka_unit_test(headers_over_16_mib_are_refused_before_they_are_read),
        cmocka_unit_test(nesting_has_a_limit),
        cmocka_unit_test(records_and_metrics_take_what_their_bytes_allow),
        cmocka_unit_test(configurations_take_what_their_bytes_allow),
        cmocka_unit_test(arrays_take_what_their_headers_say),
        cmocka_unit_test(images_take_what_max_pixels_allows),
        cmocka_unit_test(the_limit_of_pixels_can_be_set),
        cmocka_unit_test(texts_in_images_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

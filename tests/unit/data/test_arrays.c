/* .npy and IDX files: every element type, both orders, gzip, damage at every byte, writing with a
 * broken disk. */
#include "core/alloc.h"
#include "core/vfs.h"
#include "data/array.h"
#include "images_support.h"
#include "support/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <zlib.h>

/* A .npy file in memory: version, dictionary, payload. */
static size_t npy_make(uint8_t *out, int version, const char *dictionary, const void *payload,
                       size_t bytes)
{
    const size_t length = strlen(dictionary), start = version == 1 ? 10 : 12;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (uint8_t)version;
    out[7] = 0;
    memset(out + 8, 0, 4);
    out[8] = (uint8_t)(length & 255);
    out[9] = (uint8_t)(length >> 8);
    memcpy(out + start, dictionary, length);
    memcpy(out + start + length, payload, bytes);
    return start + length + bytes;
}

TEST(every_element_type_is_read_in_both_byte_orders)
{
    const struct {
        const char *descr;
        uint8_t bytes[8]; /* little endian */
        size_t n;
        float value;
    } cases[] = {
        {"b1", {1}, 1, 1.0F},
        {"u1", {200}, 1, 200.0F},
        {"i1", {0xfe}, 1, -2.0F},
        {"u2", {0x34, 0x12}, 2, 4660.0F},
        {"i2", {0xfe, 0xff}, 2, -2.0F},
        {"u4", {0, 0, 0, 0x80}, 4, 2147483648.0F},
        {"i4", {0xfd, 0xff, 0xff, 0xff}, 4, -3.0F},
        {"u8", {0, 0, 0, 0, 1}, 8, 4294967296.0F},
        {"i8", {0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 8, -4.0F},
        {"f2", {0x00, 0xc1}, 2, -2.5F},
        {"f2", {0x01, 0x00}, 2, 0x1p-24F},
        {"f4", {0, 0, 0x20, 0xc0}, 4, -2.5F},
        {"f8", {0, 0, 0, 0, 0, 0, 0x04, 0xc0}, 8, -2.5F},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int big = 0; big < 2; big++) {
            uint8_t file[256], payload[8];
            char dictionary[96];
            for (size_t k = 0; k < cases[i].n; k++) {
                payload[k] = cases[i].bytes[big ? cases[i].n - 1 - k : k];
            }
            snprintf(dictionary, sizeof dictionary,
                     "{'descr': '%c%s', 'fortran_order': False, 'shape': (1,), }\n",
                     big ? '>' : '<', cases[i].descr);
            const size_t n = npy_make(file, 1 + (int)(i % 3), dictionary, payload, cases[i].n);
            lvni_data_array a;
            float value = 0.0F;
            int64_t whole = 0;
            assert_int_equal(lvni_data_npy_parse(file, n, "x.npy", &a), LVN_OK);
            assert_int_equal(lvni_data_array_read_f32(&a, 0, 1, &value), LVN_OK);
            assert_float_equal(value, cases[i].value, 0.0F);
            const bool real = cases[i].descr[0] == 'f';
            assert_int_equal(lvni_data_array_read_i64(&a, 0, 1, &whole),
                             real ? LVN_ERR_DTYPE : LVN_OK);
            assert_true(real || (float)whole == cases[i].value);
        }
    }
}

TEST(column_order_comes_out_row_by_row)
{
    const uint8_t columns[6] = {1, 4, 2, 5, 3, 6};
    uint8_t file[256];
    const size_t n = npy_make(
        file, 1, "{\"shape\": (2, 3L), 'fortran_order': True, 'descr': '|u1'}", columns, 6);
    lvni_data_array a;
    int64_t rows[6];
    assert_int_equal(lvni_data_npy_parse(file, n, "x.npy", &a), LVN_OK);
    assert_int_equal(a.ndim, 2);
    assert_int_equal(lvni_data_array_read_i64(&a, 0, 6, rows), LVN_OK);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(rows[i], i + 1);
    }
    assert_int_equal(lvni_data_array_read_i64(&a, 2, 1, rows), LVN_OK);
    assert_int_equal(rows[0], 3);
    assert_int_equal(lvni_data_array_read_i64(&a, 5, 2, rows), LVN_ERR_INVALID);
    assert_int_equal(lvni_data_array_read_i64(&a, -1, 1, rows), LVN_ERR_INVALID);
}

TEST(complex_elements_are_read_with_their_imaginary_part)
{
    /* one row: in column order its elements have the same places */
    const float c8[4] = {1.5F, -2.0F, 3.0F, 4.0F};
    const double c16[4] = {1.5, -2.0, 3.0, 4.0};
    for (int wide = 0; wide < 2; wide++) {
        for (int big = 0; big < 2; big++) {
            uint8_t file[256], payload[32], little[32] = {0};
            char dictionary[96];
            const size_t half = wide ? 8 : 4;
            memcpy(little, wide ? (const void *)c16 : (const void *)c8, 4 * half);
            for (size_t k = 0; k < 4 * half; k++) {
                payload[k] = little[big ? k / half * half + (half - 1 - k % half) : k];
            }
            snprintf(dictionary, sizeof dictionary,
                     "{'descr': '%cc%d', 'fortran_order': %s, 'shape': (1, 2), }\n",
                     big ? '>' : '<', (int)half * 2, big ? "True" : "False");
            const size_t n = npy_make(file, 1, dictionary, payload, 4 * half);
            lvni_data_array a;
            double value[4];
            float real;
            int64_t whole;
            assert_int_equal(lvni_data_npy_parse(file, n, "x.npy", &a), LVN_OK);
            assert_int_equal(lvni_data_array_type_bytes(a.type), 2 * half);
            assert_int_equal(lvni_data_array_read_complex(&a, 0, 2, value), LVN_OK);
            assert_memory_equal(value, c16, sizeof c16);
            assert_int_equal(lvni_data_array_read_complex(&a, 1, 2, value), LVN_ERR_INVALID);
            assert_int_equal(lvni_data_array_read_f32(&a, 0, 1, &real), LVN_ERR_DTYPE);
            assert_int_equal(lvni_data_array_read_i64(&a, 0, 1, &whole), LVN_ERR_DTYPE);
        }
    }
}

TEST(real_elements_are_complex_numbers_without_rounding)
{
    const struct {
        const char *descr;
        uint8_t bytes[8];
        size_t n;
        double value;
    } cases[] = {
        {"|b1", {7}, 1, 1.0},
        {"|u1", {200}, 1, 200.0},
        {"<i4", {1, 0, 0, 0x80}, 4, -2147483647.0},
        {"<u4", {0xff, 0xff, 0xff, 0xff}, 4, 4294967295.0},
        {"<i8", {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 8, -1.0},
        {"<f4", {0, 0, 0x20, 0xc0}, 4, -2.5},
        {"<f8", {1, 0, 0, 0, 0, 0, 0xf0, 0x3f}, 8, 1.0 + 0x1p-52},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t file[256];
        char dictionary[96];
        snprintf(dictionary, sizeof dictionary,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (), }\n", cases[i].descr);
        const size_t n = npy_make(file, 1, dictionary, cases[i].bytes, cases[i].n);
        lvni_data_array a;
        double value[2] = {9.0, 9.0};
        assert_int_equal(lvni_data_npy_parse(file, n, "x.npy", &a), LVN_OK);
        assert_int_equal(lvni_data_array_read_complex(&a, 0, 1, value), LVN_OK);
        assert_true(value[0] == cases[i].value && value[1] == 0.0);
    }
}

TEST(damaged_headers_are_reported)
{
    static const char *const corrupt[] = {
        "",
        "{",
        "{}",
        "[1]",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
        "{'other': 1}",
    };
    uint8_t file[512];
    lvni_data_array a;
    for (size_t i = 0; i < sizeof corrupt / sizeof *corrupt; i++) {
        const size_t n = npy_make(file, 1, corrupt[i], "12345678", 8);
        assert_int_equal(lvni_data_npy_parse(file, n, "x.npy", &a), LVN_ERR_CORRUPT);
        assert_non_null(strstr(lvn_last_error()->message, "x.npy"));
    }
    size_t n = npy_make(file, 1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
                        "1234", 4);
    assert_int_equal(lvni_data_npy_parse(file, n, "x.npy", &a), LVN_ERR_UNSUPPORTED);
    n = npy_make(file, 1, "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "12345678", 8);
    assert_int_equal(lvni_data_npy_parse(file, n, "x.npy", &a), LVN_ERR_UNSUPPORTED);
    assert_non_null(strstr(lvn_last_error()->message, "object (Python's)"));
    n = npy_make(file, 4, "{'descr': '<f4', 'fortran_order': False, 'shape': ()}", "1234", 4);
    assert_int_equal(lvni_data_npy_parse(file, n, "x.npy", &a), LVN_ERR_UNSUPPORTED);
    file[6] = 3;
    assert_int_equal(lvni_data_npy_parse(file, n, "x.npy", &a), LVN_OK);
    for (size_t cut = 0; cut < n; cut++) {
        /* a copy of exactly that size: reading behind it is seen by the sanitizer */
        uint8_t *part = malloc(cut + 1);
        memcpy(part, file, cut);
        part = realloc(part, cut == 0 ? 1 : cut);
        assert_int_equal(lvni_data_npy_parse(part, cut, "x.npy", &a), LVN_ERR_CORRUPT);
        free(part);
    }
}

TEST(what_is_written_is_read_back)
{
    const char *folder = images_temp_folder(), *path = images_path(folder, "a.npy");
    float values[24], back[24];
    for (int i = 0; i < 24; i++) {
        values[i] = (float)i * 0.25F - 1.0F;
    }
    const int64_t shape[3] = {2, 3, 4};
    for (int ndim = 0; ndim <= 3; ndim++) {
        lvni_data_array a;
        assert_int_equal(lvni_data_npy_write_f32(path, ndim, shape, values), LVN_OK);
        assert_int_equal(lvni_data_npy_open(path, &a), LVN_OK);
        assert_int_equal(a.ndim, ndim);
        /* 128 bytes in front of the elements, as NumPy aligns them */
        assert_int_equal(((const uint8_t *)a.owned)[8], 118);
        assert_int_equal(lvni_data_array_read_f32(&a, 0, a.count, back), LVN_OK);
        assert_memory_equal(back, values, (size_t)a.count * sizeof *back);
        lvni_data_array_free(&a);
    }
    const int64_t labels[3] = {-1, 0, INT64_MAX};
    int64_t again[3];
    lvni_data_array a;
    images_write_labels(path, 3, labels);
    assert_int_equal(lvni_data_array_open(path, &a), LVN_OK);
    assert_int_equal(lvni_data_array_read_i64(&a, 0, 3, again), LVN_OK);
    assert_memory_equal(again, labels, sizeof labels);
    lvni_data_array_free(&a);
    images_remove_folder(folder);
}

TEST(a_part_of_a_file_is_read_alone)
{
    const char *folder = images_temp_folder(), *path = images_path(folder, "a.npy");
    float values[24];
    double back[8];
    for (int i = 0; i < 24; i++) {
        values[i] = (float)i;
    }
    assert_int_equal(lvni_data_npy_write(path, LVNI_ARRAY_C64, 2, (const int64_t[]){3, 4}, values),
                     LVN_OK);
    lvni_data_array a;
    size_t at;
    assert_int_equal(lvni_data_npy_peek(path, &a, &at), LVN_OK);
    assert_true(a.type == LVNI_ARRAY_C64 && a.count == 12 && at == 128 && a.data == NULL);
    assert_int_equal(lvni_data_npy_read_part(path, 4, 4, back), LVN_OK);
    for (int i = 0; i < 8; i++) {
        assert_true(back[i] == 8.0 + i);
    }
    assert_int_equal(lvni_data_npy_read_part(path, 9, 4, back), LVN_ERR_INVALID);
    assert_int_equal(lvni_data_npy_read_part(path, -1, 1, back), LVN_ERR_INVALID);
    uint8_t file[256];
    const double columns[4] = {1.0, 3.0, 2.0, 4.0};
    const size_t n = npy_make(file, 1, "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 2)}",
                              columns, sizeof columns);
    images_write_file(path, file, n);
    assert_int_equal(lvni_data_npy_read_part(path, 1, 2, back), LVN_OK);
    assert_true(back[0] == 2.0 && back[2] == 3.0);
    images_write_file(path, file, n - 1);
    assert_int_equal(lvni_data_npy_read_part(path, 0, 1, back), LVN_ERR_CORRUPT);
    assert_int_equal(lvni_data_npy_peek(images_path(folder, "absent.npy"), &a, &at),
                     LVN_ERR_NOT_FOUND);
    lvni_core_vfs_fail_at("read", 1, EIO);
    assert_int_equal(lvni_data_npy_peek(path, &a, &at), LVN_ERR_IO);
    lvni_core_vfs_fail_at("read", 0, 0);
    const double wide[2] = {0x1p-60, -1.0};
    assert_int_equal(lvni_data_npy_write(path, LVNI_ARRAY_F64, 1, (const int64_t[]){2}, wide),
                     LVN_OK);
    assert_int_equal(lvni_data_npy_read_part(path, 0, 1, back), LVN_OK);
    assert_true(back[0] == 0x1p-60);
    assert_int_equal(lvni_data_npy_write(path, LVNI_ARRAY_I32, 1, (const int64_t[]){2}, wide),
                     LVN_ERR_INVALID);
    images_remove_folder(folder);
}

TEST(numpy_reads_what_is_written)
{
    if (system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") != 0) {
        print_message("skipped: /usr/bin/python3 has no numpy\n");
        skip();
    }
    const char *folder = images_temp_folder(), *path = images_path(folder, "a.npy"),
               *theirs = images_path(folder, "b.npy");
    const float values[6] = {0.0F, 1.5F, -2.0F, 3.0F, 4.0F, 1e30F};
    assert_int_equal(lvni_data_npy_write_f32(path, 2, (const int64_t[]){2, 3}, values), LVN_OK);
    char command[1024];
    snprintf(command, sizeof command,
             "/usr/bin/python3 -c \"import numpy as n; a = n.load('%s'); assert a.shape == (2, 3) "
             "and a.dtype == n.float32 and a[0, 1] == 1.5; "
             "n.save('%s', n.asfortranarray(a.astype('>f8')))\"",
             path, theirs);
    assert_int_equal(WEXITSTATUS(system(command)), 0);
    lvni_data_array a;
    float back[6];
    assert_int_equal(lvni_data_npy_open(theirs, &a), LVN_OK);
    assert_true(a.fortran && a.big_endian);
    assert_int_equal(lvni_data_array_read_f32(&a, 0, 6, back), LVN_OK);
    assert_memory_equal(back, values, sizeof values);
    lvni_data_array_free(&a);
    images_remove_folder(folder);
}

TEST(a_failed_write_leaves_the_old_file)
{
    const char *folder = images_temp_folder(), *path = images_path(folder, "a.npy");
    const float old = 1.0F, new_one = 2.0F;
    assert_int_equal(lvni_data_npy_write_f32(path, 0, NULL, &old), LVN_OK);
    static const char *const kinds[] = {"open", "write", "fsync", "rename"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        lvni_core_vfs_fail_at(kinds[i], 1, ENOSPC);
        assert_int_equal(lvni_data_npy_write_f32(path, 0, NULL, &new_one), LVN_ERR_IO);
        lvni_core_vfs_fail_at(kinds[i], 0, 0);
        lvni_data_array a;
        float back = 0.0F;
        assert_int_equal(lvni_data_npy_open(path, &a), LVN_OK);
        assert_int_equal(lvni_data_array_read_f32(&a, 0, 1, &back), LVN_OK);
        assert_float_equal(back, old, 0.0F);
        lvni_data_array_free(&a);
    }
    images_remove_folder(folder);
}

/* ---- IDX ---- */

static const uint8_t idx_images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0,
                                     1, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6};

TEST(idx_elements_are_big_endian)
{
    const struct {
        uint8_t code, bytes[8];
        size_t n;
        float value;
    } cases[] = {
        {0x08, {255}, 1, 255.0F},
        {0x09, {255}, 1, -1.0F},
        {0x0B, {0xff, 0xfe}, 2, -2.0F},
        {0x0C, {0, 1, 0, 0}, 4, 65536.0F},
        {0x0D, {0xc0, 0x20, 0, 0}, 4, -2.5F},
        {0x0E, {0xc0, 0x04}, 8, -2.5F},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t file[16] = {0, 0, cases[i].code, 1, 0, 0, 0, 1};
        memcpy(file + 8, cases[i].bytes, cases[i].n);
        lvni_data_array a;
        float value = 0.0F;
        assert_int_equal(lvni_data_idx_parse(file, 8 + cases[i].n, "x", &a), LVN_OK);
        assert_int_equal(lvni_data_array_read_f32(&a, 0, 1, &value), LVN_OK);
        assert_float_equal(value, cases[i].value, 0.0F);
    }
}

TEST(damaged_idx_files_are_reported)
{
    lvni_data_array a;
    assert_int_equal(lvni_data_idx_parse(idx_images, sizeof idx_images, "x", &a), LVN_OK);
    for (size_t cut = 0; cut < sizeof idx_images; cut++) {
        uint8_t *part = malloc(cut == 0 ? 1 : cut);
        memcpy(part, idx_images, cut);
        assert_int_equal(lvni_data_idx_parse(part, cut, "x", &a), LVN_ERR_CORRUPT);
        free(part);
    }
    uint8_t file[sizeof idx_images + 1];
    memcpy(file, idx_images, sizeof idx_images);
    /* a byte too many */
    assert_int_equal(lvni_data_idx_parse(file, sizeof file, "x", &a), LVN_ERR_CORRUPT);
    memset(file + 4, 0xff, 12);
    /* 2^96 elements */
    assert_int_equal(lvni_data_idx_parse(file, sizeof idx_images, "x", &a), LVN_ERR_CORRUPT);
    file[2] = 0x0A;
    assert_int_equal(lvni_data_idx_parse(file, sizeof idx_images, "x", &a), LVN_ERR_CORRUPT);
}

/* n bytes as a gzip member to out. */
static size_t gzip(const void *bytes, size_t n, uint8_t *out, size_t room)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)bytes;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    const size_t used = room - z.avail_out;
    deflateEnd(&z);
    return used;
}

TEST(packed_files_are_unpacked)
{
    const char *folder = images_temp_folder(), *path = images_path(folder, "a.gz");
    enum { BIG = 300000 };
    uint8_t *file = calloc(1, BIG + 8), *packed = malloc(BIG), *back = malloc(BIG);
    memcpy(file, (const uint8_t[]){0, 0, 8, 1, 0, BIG >> 16, BIG >> 8 & 255, BIG & 255}, 8);
    for (int i = 0; i < BIG; i++) {
        file[8 + i] = (uint8_t)((unsigned)i * (unsigned)i >> 7);
    }
    size_t n = gzip(file, 1000, packed, BIG); /* two members */
    n += gzip(file + 1000, BIG + 8 - 1000, packed + n, BIG - n);
    images_write_file(path, packed, n);
    lvni_data_array a;
    assert_int_equal(lvni_data_array_open(path, &a), LVN_OK);
    assert_int_equal(a.count, BIG);
    assert_memory_equal(a.data, file + 8, BIG);
    lvni_data_array_free(&a);
    for (size_t cut = 0; cut < n; cut += n / 50) {
        images_write_file(path, packed, cut);
        assert_int_equal(lvni_data_array_open(path, &a), LVN_ERR_CORRUPT);
    }
    packed[n / 2] ^= 0x55;
    images_write_file(path, packed, n);
    assert_int_equal(lvni_data_array_open(path, &a), LVN_ERR_CORRUPT);
    assert_int_equal(lvni_data_array_open(images_path(folder, "absent"), &a), LVN_ERR_NOT_FOUND);
    free(file);
    free(packed);
    free(back);
    images_remove_folder(folder);
}

TEST(no_memory_leaves_nothing_behind)
{
    const char *folder = images_temp_folder(), *path = images_path(folder, "a.gz");
    uint8_t packed[128];
    images_write_file(path, packed, gzip(idx_images, sizeof idx_images, packed, sizeof packed));
    lvni_data_array a;
    const uint64_t before = lvni_core_alloc_get_total().live_bytes;
    lvn_status s = LVN_ERR_MEMORY;
    int64_t k = 0;
    while (s == LVN_ERR_MEMORY && k < 100) {
        lvni_core_alloc_fail_at(++k);
        s = lvni_data_array_open(path, &a);
        lvni_core_alloc_fail_at(0);
        assert_true(s == LVN_OK || lvni_core_alloc_get_total().live_bytes == before);
    }
    assert_int_equal(s, LVN_OK);
    assert_true(k > 2);
    lvni_data_array_free(&a);
    assert_int_equal(lvni_core_alloc_get_total().live_bytes, before);
    images_remove_folder(folder);
}

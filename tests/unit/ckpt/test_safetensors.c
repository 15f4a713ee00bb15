/* The safetensors file as such: what is written, byte by byte; what is read back; what the writer
 * refuses. */
#include "ckpt_support.h"

#include "ckpt/torch_file.h"

#include <levin/tensor.h>

/* Written by hand after the format's description, not by our writer: 8 bytes of length, JSON,
 * data. */
static size_t foreign_file(char *out, const char *json, const void *data, size_t data_bytes)
{
    const size_t n = strlen(json);
    memset(out, 0, 8);
    out[0] = (char)(n & 255);
    out[1] = (char)(n >> 8);
    memcpy(out + 8, json, n);
    memcpy(out + 8 + n, data, data_bytes);
    return 8 + n + data_bytes;
}

TEST_EACH(make_dir, drop_dir);

TEST(file_bytes_are_as_the_format_requires)
{
    static const unsigned char small[3] = {7, 8, 9};
    static const float pi[1] = {3.25f}; /* 0x40500000 */
    const lvni_ckpt_st_tensor tensors[] = {
        {.name = "a", .dtype = LVN_U8, .ndim = 1, .shape = {3}, .data = small},
        {.name = "b", .dtype = LVN_F32, .ndim = 1, .shape = {1}, .data = pi},
        {.name = "z", .dtype = LVN_F64, .ndim = 2, .shape = {0, 5}, .data = NULL},
    };
    const lvni_ckpt_st_meta meta = {"note", "\xc3\xa4\"x"};
    assert_int_equal(lvni_ckpt_st_save(in_dir("f"), tensors, 3, &meta, 1), LVN_OK);
    char raw[2048];
    const size_t n = get_file(in_dir("f"), raw, sizeof raw);
    const size_t length = (size_t)(unsigned char)raw[0] + ((size_t)(unsigned char)raw[1] << 8);
    for (int i = 2; i < 8; i++) {
        assert_int_equal(raw[i], 0);
    }
    assert_int_equal((8 + length) % 64, 0); /* data starts aligned */
    assert_int_equal(n, 8 + length + 7);
    /* the larger elements first, so that the float is aligned without a gap */
    assert_memory_equal(raw + 8 + length, "\x00\x00\x50\x40\x07\x08\x09", 7);
    raw[8 + length] = '\0';
    assert_non_null(
        strstr(raw + 8, "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[4,7]}"));
    assert_non_null(
        strstr(raw + 8, "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"));
    assert_non_null(
        strstr(raw + 8, "\"z\":{\"dtype\":\"F64\",\"shape\":[0,5],\"data_offsets\":[0,0]}"));
    assert_non_null(strstr(raw + 8, "\"note\":\"\xc3\xa4\\\"x\""));
    /* XXH3-64 of nothing, a published number: "z" is empty */
    assert_non_null(strstr(raw + 8, "\\\"z\\\":\\\"2d06800538d394c2\\\""));
}

TEST(all_types_come_back)
{
    static const double f64[2] = {0.1, -1e300};
    static const int32_t i32[4] = {-1, 0, 2147483647, 5};
    static const unsigned char u8[1] = {255};
    lvni_ckpt_st_tensor list[7];
    for (int i = 0; i < 4; i++) {
        list[i] = sample_tensor(i);
    }
    list[4] = (lvni_ckpt_st_tensor){
        .name = "d", .dtype = LVN_F64, .ndim = 6, .shape = {1, 1, 2, 1, 1, 1}, .data = f64};
    list[5] = (lvni_ckpt_st_tensor){
        .name = "i", .dtype = LVN_I32, .ndim = 2, .shape = {2, 2}, .data = i32};
    list[6] = (lvni_ckpt_st_tensor){.name = "u", .dtype = LVN_U8, .ndim = 0, .data = u8};
    const lvni_ckpt_st_meta meta[2] = {{"k2", ""}, {"k1", "line\nbreak \\ \xe2\x82\xac"}};
    assert_int_equal(lvni_ckpt_st_save(in_dir("f"), list, 7, meta, 2), LVN_OK);
    assert_int_equal(files_in_dir(0), 1);

    lvni_ckpt_st_file *f = NULL;
    assert_int_equal(lvni_ckpt_st_open(in_dir("f"), LVNI_ST_VERIFY, &f), LVN_OK);
    assert_int_equal(lvni_ckpt_st_count(f), 7);
    for (int i = 0; i < 7; i++) {
        const lvni_ckpt_st_tensor *t = lvni_ckpt_st_find(f, list[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, list[i].dtype);
        assert_int_equal(t->ndim, list[i].ndim);
        assert_memory_equal(t->shape, list[i].shape, sizeof t->shape);
        assert_memory_equal(t->data, list[i].data, t->bytes);
        assert_int_equal((uintptr_t)t->data % lvn_dtype_size(t->dtype), 0);
        assert_true(lvni_ckpt_st_tensor_ok(f, i));
    }
    assert_int_equal(lvni_ckpt_st_find(f, "d")->bytes, 16);
    assert_null(lvni_ckpt_st_find(f, "missing"));
    assert_string_equal(lvni_ckpt_st_at(f, 0)->name, "d"); /* by bytes of the name */
    assert_string_equal(lvni_ckpt_st_at(f, 6)->name, "u");
    assert_null(lvni_ckpt_st_at(f, 7));
    assert_string_equal(lvni_ckpt_st_meta_get(f, "k1"), "line\nbreak \\ \xe2\x82\xac");
    assert_string_equal(lvni_ckpt_st_meta_get(f, "k2"), "");
    assert_null(lvni_ckpt_st_meta_get(f, "k3"));
    lvni_ckpt_st_close(f);

    assert_int_equal(lvni_ckpt_st_open(in_dir("f"), LVNI_ST_VERIFY | LVNI_ST_HEADER_ONLY, &f),
                     LVN_OK);
    assert_int_equal(lvni_ckpt_st_find(f, "i")->bytes, 16);
    assert_null(lvni_ckpt_st_find(f, "i")->data);
    lvni_ckpt_st_close(f);
}

TEST(files_do_not_depend_on_the_order_given)
{
    const lvni_ckpt_st_meta meta[2] = {{"b", "2"}, {"a", "1"}},
                            turned[2] = {{"a", "1"}, {"b", "2"}};
    lvni_ckpt_st_tensor list[4], back[4];
    for (int i = 0; i < 4; i++) {
        list[i] = sample_tensor(i);
        back[3 - i] = list[i];
    }
    assert_int_equal(lvni_ckpt_st_save(in_dir("x"), list, 4, meta, 2), LVN_OK);
    assert_int_equal(lvni_ckpt_st_save(in_dir("y"), back, 4, turned, 2), LVN_OK);
    char x[4096], y[4096];
    const size_t n = get_file(in_dir("x"), x, sizeof x);
    assert_int_equal(get_file(in_dir("y"), y, sizeof y), n);
    assert_memory_equal(x, y, n);
}

TEST(an_entry_describes_a_tensor)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F32, 2, (int64_t[]){2, 3});
    memcpy(lvn_data(t), sample_weight, sizeof sample_weight);
    const lvni_ckpt_st_tensor e = lvni_ckpt_st_entry("w", t, lvn_const_data(t));
    assert_int_equal(lvni_ckpt_st_save(in_dir("f"), &e, 1, NULL, 0), LVN_OK);
    lvni_ckpt_st_file *f = NULL;
    assert_int_equal(lvni_ckpt_st_open(in_dir("f"), LVNI_ST_VERIFY, &f), LVN_OK);
    assert_int_equal(lvni_ckpt_st_find(f, "w")->shape[1], 3);
    assert_memory_equal(lvni_ckpt_st_find(f, "w")->data, sample_weight, sizeof sample_weight);
    lvni_ckpt_st_close(f);
    lvn_release(t);
}

/* As Python's package writes: no checksums, blanks at the end, metadata or none. */
TEST(files_of_others_are_read)
{
    const float data[3] = {1.5f, -2.0f, 8.0f};
    char raw[512];
    size_t n =
        foreign_file(raw,
                     "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F32\",\"shape\":[2],"
                     "\"data_offsets\":[4,12]},"
                     "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}    ",
                     data, sizeof data);
    put_file(in_dir("f"), raw, n);
    lvni_ckpt_st_file *f = NULL;
    assert_int_equal(lvni_ckpt_st_open(in_dir("f"), LVNI_ST_VERIFY, &f), LVN_OK);
    assert_string_equal(lvni_ckpt_st_meta_get(f, "format"), "pt");
    assert_memory_equal(lvni_ckpt_st_find(f, "a")->data, &data[0], 4);
    assert_memory_equal(lvni_ckpt_st_find(f, "b")->data, &data[1], 8);
    assert_true(lvni_ckpt_st_header_ok(f));
    lvni_ckpt_st_close(f);

    n = foreign_file(raw, "{}", "", 0);
    put_file(in_dir("f"), raw, n);
    assert_int_equal(lvni_ckpt_st_open(in_dir("f"), LVNI_ST_VERIFY, &f), LVN_OK);
    assert_int_equal(lvni_ckpt_st_count(f), 0);
    assert_null(lvni_ckpt_st_find(f, "a"));
    lvni_ckpt_st_close(f);
}

/* They lie between the tensors that are read, and belong to the bytes that are covered. */
TEST(types_levin_lacks_are_listed)
{
    static const struct {
        const char *type;
        int bytes;
    } types[] = {{"I8", 1},  {"I16", 2},     {"U16", 2},     {"U32", 4},
                 {"U64", 8}, {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"F8_E5M2FNUZ", 1},
                 {"C64", 8}, {"C128", 16},   {"F4", 1}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char raw[512], header[400], what[32];
        const int n = types[i].bytes;
        snprintf(header, sizeof header,
                 "{\"__metadata__\":null,\"b\":{\"dtype\":\"%s\",\"shape\":[1],"
                 "\"data_offsets\":[4,%d]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
                 "\"data_offsets\":[0,4]},\"deep\":{\"dtype\":\"U8\",\"shape\":"
                 "[1,1,1,1,1,1,1],\"data_offsets\":[%d,%d]}}",
                 types[i].type, 4 + n, 4 + n, 5 + n);
        const float one = 1;
        char data[32] = {0};
        memcpy(data, &one, sizeof one);
        lvni_ckpt_st_file *f = NULL;
        put_file(in_dir("f"), raw, foreign_file(raw, header, data, (size_t)n + 5));
        assert_int_equal(lvni_ckpt_st_open(in_dir("f"), LVNI_ST_VERIFY, &f), LVN_OK);
        assert_int_equal(lvni_ckpt_st_count(f), 1);
        assert_memory_equal(lvni_ckpt_st_find(f, "a")->data, &one, sizeof one);
        assert_int_equal(lvni_ckpt_st_count_others(f), 2);
        snprintf(what, sizeof what, "1 axis, type %s", types[i].type);
        assert_string_equal(lvni_ckpt_st_find_other(f, "b")->what, what);
        assert_string_equal(lvni_ckpt_st_other_at(f, 1)->what, "7 axes, type U8");
        assert_null(lvni_ckpt_st_meta_get(f, "format"));
        lvni_ckpt_st_close(f);
    }
}

/* Two files and their index, which every failing allocation leaves whole. */
TEST(several_files_are_read_as_one)
{
    static const float values[2][2] = {{1, 2}, {3, 4}};
    static const char *const files[2] = {"a-1.safetensors", "a-2.safetensors"};
    static const char index[] = "{\"metadata\":{},\"weight_map\":{\"x\":\"a-2.safetensors\","
                                "\"b\":\"a-1.safetensors\"}}";
    for (int i = 0; i < 2; i++) {
        const lvni_ckpt_st_tensor t = {.name = i == 0 ? "b" : "x",
                                       .dtype = LVN_F32,
                                       .ndim = 1,
                                       .shape = {2},
                                       .data = values[i]};
        assert_int_equal(lvni_ckpt_st_save(in_dir(files[i]), &t, 1, NULL, 0), LVN_OK);
    }
    put_file(in_dir("a.index.json"), index, sizeof index - 1);
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    const char *inner;
    lvn_status s = LVN_ERR_MEMORY;
    int64_t k = 1;
    for (; s == LVN_ERR_MEMORY; k++) {
        lvni_ckpt_st_file *f = NULL;
        lvni_core_alloc_fail_at(k);
        s = lvni_ckpt_tensors_open(in_dir("a.index.json"), LVNI_ST_VERIFY, NULL, &inner, &f);
        lvni_core_alloc_fail_at(0);
        if (s == LVN_OK) {
            assert_int_equal(lvni_ckpt_st_count(f), 2);
            assert_string_equal(lvni_ckpt_st_at(f, 0)->name, "b");
            assert_memory_equal(lvni_ckpt_st_find(f, "b")->data, values[0], sizeof values[0]);
            assert_memory_equal(lvni_ckpt_st_find(f, "x")->data, values[1], sizeof values[1]);
        }
        lvni_ckpt_st_close(f);
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
    }
    assert_int_equal(s, LVN_OK);
    assert_true(k > 10);
}

/* Of the types that levin reads and of those it does not, in either file. */
TEST(a_name_in_two_of_the_files_is_found)
{
    static const char *const types[] = {"U8", "I8"};
    for (int i = 0; i < 8; i++) {
        static const char index[] = "{\"weight_map\":{\"a\":\"t-0.safetensors\",\"w\":"
                                    "\"t-1.safetensors\"}}";
        for (int k = 0; k < 2; k++) {
            char raw[512], header[256];
            snprintf(header, sizeof header,
                     "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                     "\"%s\":{\"dtype\":\"%s\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                     k == 0 ? "a" : "z", k == 0 && i >= 4 ? "v" : "w", types[i >> k & 1]);
            put_file(in_dir(k == 0 ? "t-0.safetensors" : "t-1.safetensors"), raw,
                     foreign_file(raw, header, "ab", 2));
        }
        put_file(in_dir("t.index.json"), index, sizeof index - 1);
        lvni_ckpt_st_file *f = NULL;
        const char *inner;
        const lvn_status s = lvni_ckpt_tensors_open(in_dir("t.index.json"), 0, NULL, &inner, &f);
        assert_int_equal(s, i < 4 ? LVN_ERR_CORRUPT : LVN_OK);
        assert_true(i >= 4 || strstr(lvn_last_error()->message, "two tensors are called 'w'"));
        lvni_ckpt_st_close(f);
    }
}

TEST(the_writer_refuses)
{
    static const float one[1] = {1};
    const lvni_ckpt_st_tensor good = {
        .name = "a", .dtype = LVN_F32, .ndim = 1, .shape = {1}, .data = one};
    lvni_ckpt_st_tensor twice[2] = {good, good}, bad[9];
    for (int i = 0; i < 9; i++) {
        bad[i] = good;
    }
    bad[0].name = "";
    bad[1].name = NULL;
    bad[2].name = "\xff";
    bad[3].name = "__metadata__";
    bad[4].ndim = 7;
    bad[5].shape[0] = -1;
    bad[6].ndim = 2;
    bad[6].shape[0] = bad[6].shape[1] = INT64_MAX / 2;
    bad[7].data = NULL;
    bad[8].dtype = (lvn_dtype)99;
    for (int i = 0; i < 9; i++) {
        assert_int_equal(lvni_ckpt_st_save(in_dir("f"), &bad[i], 1, NULL, 0), LVN_ERR_INVALID);
    }
    assert_int_equal(lvni_ckpt_st_save(in_dir("f"), twice, 2, NULL, 0), LVN_ERR_INVALID);
    assert_non_null(strstr(lvn_last_error()->message, "two tensors are called 'a'"));
    const lvni_ckpt_st_meta meta[4][2] = {{{"k", "1"}, {"k", "2"}},
                                          {{"k", "\xc0\x80"}, {"l", ""}},
                                          {{"levin.checksums", "{}"}, {"l", ""}},
                                          {{"levin.header_checksum", ""}, {"l", NULL}}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(lvni_ckpt_st_save(in_dir("f"), &good, 1, meta[i], 2), LVN_ERR_INVALID);
    }
    assert_int_equal(files_in_dir(0), 0);
    assert_int_equal(lvni_ckpt_st_save(in_dir("no/such/folder/f"), &good, 1, NULL, 0),
                     LVN_ERR_NOT_FOUND);
}

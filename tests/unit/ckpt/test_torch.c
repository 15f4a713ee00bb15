/* Files of torch.save, made by tests/fuzz/make_torch_corpus.py: what is read of them, and that
 * what cannot be read is refused with the reason. */
#include "ckpt_support.h"

#include "ckpt/torch_file.h"

#include <errno.h>

static const char *corpus(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", CORPUS, name);
    return path;
}

/* With the key where it is not NULL. */
static lvni_ckpt_st_file *open_corpus_at(const char *name, const char *key, int64_t n_tensors)
{
    lvni_ckpt_st_file *f = NULL;
    const char *inner;
    const lvn_status s = lvni_ckpt_tensors_open(corpus(name), LVNI_ST_VERIFY, key, &inner, &f);
    if (s != LVN_OK) {
        print_error("%s\n", lvn_last_error()->message);
    }
    assert_int_equal(s, LVN_OK);
    assert_int_equal(lvni_ckpt_st_count(f), n_tensors);
    return f;
}

static lvni_ckpt_st_file *open_corpus(const char *name, int64_t n_tensors)
{
    return open_corpus_at(name, NULL, n_tensors);
}

static lvn_status open_file(const char *path, unsigned flags, lvni_ckpt_st_file **out)
{
    const char *inner;
    return lvni_ckpt_tensors_open(path, flags, NULL, &inner, out);
}

/* A tensor of floats, whatever their type, has this shape and these values. */
static void expect(const lvni_ckpt_st_file *f, const char *name, int ndim, const int64_t *shape,
                   const float *values, int n)
{
    const lvni_ckpt_st_tensor *t = lvni_ckpt_st_find(f, name);
    float got[64];
    assert_non_null(t);
    assert_int_equal(t->ndim, ndim);
    assert_memory_equal(t->shape, shape, (size_t)ndim * sizeof *shape);
    assert_int_equal(t->bytes, (size_t)n * lvn_dtype_size(t->dtype));
    assert_int_equal(lvni_ckpt_st_read_f32(t, got), LVN_OK);
    assert_memory_equal(got, values, (size_t)n * sizeof *values);
}

#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})
#define VALUES(...) ((const float[]){__VA_ARGS__})

TEST(all_types_are_read)
{
    lvni_ckpt_st_file *f = open_corpus("types.pt", 11);
    float w[12], eighths[12];
    for (int i = 0; i < 12; i++) {
        w[i] = (float)i;
        eighths[i] = (float)i / 8;
    }
    expect(f, "f32", 2, SHAPE(3, 4), w, 12);
    expect(f, "f64", 2, SHAPE(3, 4), eighths, 12);
    expect(f, "f16", 2, SHAPE(3, 4), w, 12);
    expect(f, "bf16", 2, SHAPE(3, 4), w, 12);
    expect(f, "parameter", 1, SHAPE(4), w, 4);
    expect(f, "empty", 2, SHAPE(0, 3), w, 0);
    static const struct {
        const char *name;
        lvn_dtype dtype;
    } types[] = {{"f64", LVN_F64}, {"f16", LVN_F16}, {"bf16", LVN_BF16}, {"bool", LVN_BOOL},
                 {"i64", LVN_I64}, {"i32", LVN_I32}, {"u8", LVN_U8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        assert_int_equal(lvni_ckpt_st_find(f, types[i].name)->dtype, types[i].dtype);
    }
    assert_memory_equal(lvni_ckpt_st_find(f, "i64")->data, SHAPE(-2, -1, 0, 1), 32);
    assert_memory_equal(lvni_ckpt_st_find(f, "i32")->data, ((const int32_t[]){-2, -1, 0, 1}), 16);
    assert_memory_equal(lvni_ckpt_st_find(f, "u8")->data, "\xfa\xfb\xfc\xfd\xfe\xff", 6);
    assert_memory_equal(lvni_ckpt_st_find(f, "bool")->data, "\1\0\1", 3);
    assert_int_equal(lvni_ckpt_st_find(f, "scalar")->ndim, 0);
    assert_memory_equal(lvni_ckpt_st_find(f, "scalar")->data, SHAPE(3), 8);
    assert_null(lvni_ckpt_st_meta_get(f, "format"));
    assert_true(lvni_ckpt_st_header_ok(f));
    lvni_ckpt_st_close(f);
}

TEST(views_of_one_storage_are_made_contiguous)
{
    lvni_ckpt_st_file *f = open_corpus("views.pt", 7);
    expect(f, "rows", 2, SHAPE(2, 4), VALUES(4, 5, 6, 7, 8, 9, 10, 11), 8);
    expect(f, "columns", 2, SHAPE(3, 2), VALUES(1, 2, 5, 6, 9, 10), 6);
    expect(f, "transposed", 2, SHAPE(4, 3), VALUES(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11), 12);
    expect(f, "one", 2, SHAPE(3, 1), VALUES(2, 6, 10), 3);
    expect(f, "repeated", 2, SHAPE(3, 4), VALUES(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3), 12);
    expect(f, "deep", 4, SHAPE(2, 1, 2, 3), VALUES(0, 4, 8, 2, 6, 10, 1, 5, 9, 3, 7, 11), 12);
    const char *all = lvni_ckpt_st_find(f, "all")->data;
    assert_ptr_equal(lvni_ckpt_st_find(f, "rows")->data, all + 16); /* nothing is copied */
    lvni_ckpt_st_close(f);
}

TEST(a_state_dict_is_found_where_it_is)
{
    static const struct {
        const char *file, *name;
    } files[] = {{"protocol4.pt", "t"}, {"lightning.ckpt", "model.t"}, {"executes.pt", "t"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        lvni_ckpt_st_file *f = open_corpus(files[i].file, 3);
        expect(f, files[i].name, 2, SHAPE(3, 2), VALUES(0, 3, 1, 4, 2, 5), 6);
        lvni_ckpt_st_close(f);
    }
    lvni_ckpt_st_close(open_corpus("module_state.pt", 5));
}

/* Views whose elements are the negative of those in the storage: an imaginary part of a conjugate.
 */
TEST(a_negated_view_is_negated)
{
    lvni_ckpt_st_file *f = open_corpus("negated.pt", 6);
    float all[12];
    for (int i = 0; i < 12; i++) {
        all[i] = -(float)(i + 1);
    }
    expect(f, "f32", 2, SHAPE(3, 4), all, 12);
    expect(f, "f64", 2, SHAPE(3, 4), all, 12);
    expect(f, "rows", 2, SHAPE(2, 4), all + 4, 8);
    assert_memory_equal(lvni_ckpt_st_find(f, "i64")->data, SHAPE(2, 1, 0, -1), 32);
    assert_memory_equal(lvni_ckpt_st_find(f, "i32")->data, ((const int32_t[]){2, 1, 0, -1}), 16);
    assert_memory_equal(lvni_ckpt_st_find(f, "u8")->data, "\x00\xff\x01", 3);
    assert_string_equal(lvni_ckpt_st_find_other(f, "conjugated")->what,
                        "2 axes, ComplexFloatStorage");
    lvni_ckpt_st_close(f);
}

/* Beside the state_dict and in it, in every protocol. */
TEST(tensors_of_other_types_are_listed)
{
    static const struct {
        const char *name, *what;
    } others[] = {
        {"complex", "2 axes, ComplexFloatStorage"},
        {"deep", "7 axes, type f32"},
        {"float8", "made by _rebuild_tensor_v3"},
        {"int16", "1 axis, ShortStorage"},
        {"int8", "1 axis, CharStorage"},
        {"quantised", "made by _rebuild_qtensor"},
        {"sparse", "made by _rebuild_sparse_tensor"},
        {"uint16", "made by _rebuild_tensor_v3"},
    };
    enum { OTHERS = sizeof others / sizeof *others };
    for (int protocol = 1; protocol <= 5; protocol++) {
        char name[32];
        snprintf(name, sizeof name, "others%d.pt", protocol);
        lvni_ckpt_st_file *f = open_corpus(name, 3);
        expect(f, "t", 2, SHAPE(3, 2), VALUES(0, 3, 1, 4, 2, 5), 6);
        assert_int_equal(lvni_ckpt_st_count_others(f), OTHERS);
        for (int i = 0; i < OTHERS; i++) {
            const lvni_ckpt_st_other *t = lvni_ckpt_st_other_at(f, i);
            assert_string_equal(t->name, others[i].name);
            assert_string_equal(t->what, others[i].what);
            assert_ptr_equal(lvni_ckpt_st_find_other(f, others[i].name), t);
            assert_null(lvni_ckpt_st_find(f, others[i].name));
        }
        lvni_ckpt_st_close(f);
    }
    lvni_ckpt_st_close(open_corpus("int8.pt", 0));
    lvni_ckpt_st_close(open_corpus("sparse.pt", 1));
}

TEST(a_key_chooses)
{
    static const struct {
        const char *key, *name, *inner; /* inner: what is left for the names */
        float value;
    } keys[] = {
        {NULL, "w", NULL, 1},           {"state_dict_ema", "w", NULL, 2},
        {"ema.model", "w", NULL, 3},    {"ema.a.b", "w", NULL, 4},
        {"both", "student.w", NULL, 5}, {"both.teacher", "teacher.w", "teacher", 6},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        lvni_ckpt_st_file *f = NULL;
        const char *inner = "?";
        assert_int_equal(
            lvni_ckpt_tensors_open(corpus("keys.pt"), LVNI_ST_VERIFY, keys[i].key, &inner, &f),
            LVN_OK);
        expect(f, keys[i].name, 1, SHAPE(1), &keys[i].value, 1);
        assert_int_equal(inner == NULL, keys[i].inner == NULL);
        assert_true(inner == NULL || keys[i].inner == NULL || strcmp(inner, keys[i].inner) == 0);
        lvni_ckpt_st_close(f);
    }
    static const char *const none[] = {"ema", "state_dict.w", "both.pupil", "w", "ema.model.x."};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        lvni_ckpt_st_file *f = NULL;
        const char *inner;
        assert_int_equal(
            lvni_ckpt_tensors_open(corpus("keys.pt"), LVNI_ST_VERIFY, none[i], &inner, &f),
            LVN_ERR_UNSUPPORTED);
        assert_null(f);
        assert_non_null(strstr(lvn_last_error()->message,
                               "weights.key=state_dict or weights.key=state_dict_ema or "
                               "weights.key=ema.model or weights.key=ema.a.b or weights.key=both"));
    }
}

/* A kilobyte that is the name of 4000 tensors, and 400 tensors that share a storage of 4 KiB. */
TEST(what_a_file_claims_is_bounded_by_what_it_holds)
{
    static const struct {
        const char *file, *reports;
    } files[] = {
        {"long_names.pt", "its tensors have names of 4004000 bytes in a pickle of"},
        {"shared_storage.pt", "views of the same storages, need more than 8 times the file"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        lvni_ckpt_st_file *f = NULL;
        assert_int_not_equal(open_file(corpus(files[i].file), LVNI_ST_VERIFY, &f), LVN_OK);
        assert_non_null(strstr(lvn_last_error()->message, files[i].reports));
        assert_true(lvni_core_alloc_get_total().peak_bytes < (uint64_t)3 << 20);
    }
}

TEST(nothing_is_executed)
{
    static const char made[] = "/tmp/levin-test-was-executed";
    unlink(made);
    lvni_ckpt_st_close(open_corpus("executes.pt", 3));
    assert_int_not_equal(access(made, F_OK), 0);
}

TEST_WITH(what_cannot_be_read_is_refused_with_the_reason, make_dir, drop_dir)
{
    static const struct {
        const char *file, *reports;
    } files[] = {
        {"old.pt", "in the format of torch.save before PyTorch 1.6; save it again"},
        {"old4.pt", "in the format of torch.save before PyTorch 1.6; save it again"},
        {"whole.pt", "holds a whole object of class Linear, not its weights"},
        {"list.pt", "has no state_dict"},
        {"other.pt", "its keys are student, epoch"},
        {"compressed.pt", "/data.pkl' is compressed"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        lvni_ckpt_st_file *f = NULL;
        assert_int_equal(open_file(corpus(files[i].file), LVNI_ST_VERIFY, &f), LVN_ERR_UNSUPPORTED);
        assert_null(f);
        if (strstr(lvn_last_error()->message, files[i].reports) == NULL) {
            print_error("%s: %s\n", files[i].file, lvn_last_error()->message);
        }
        assert_non_null(strstr(lvn_last_error()->message, files[i].reports));
    }
    lvni_ckpt_st_file *f = NULL;
    assert_int_equal(open_file(in_dir("none.pt"), 0, &f), LVN_ERR_NOT_FOUND);
    assert_int_equal(open_file(dir, 0, &f), LVN_ERR_IO);
    put_file(in_dir("text"), "hello", 5);
    assert_int_equal(open_file(in_dir("text"), 0, &f), LVN_ERR_CORRUPT);
}

/* The first place of some bytes. */
static size_t place_of(const char *raw, size_t n, const char *bytes, size_t n_bytes)
{
    const char *at = memmem(raw, n, bytes, n_bytes);
    assert_non_null(at);
    return (size_t)(at - raw);
}

TEST_WITH(damage_is_found, make_dir, drop_dir)
{
    char raw[16384];
    const size_t n = get_file(corpus("views.pt"), raw, sizeof raw);
    lvni_ckpt_st_file *f = NULL;
    put_file(in_dir("f"), raw, n);
    for (size_t keep = n; keep > 0; keep--) { /* cut anywhere */
        assert_int_equal(truncate(in_dir("f"), (off_t)keep - 1), 0);
        assert_int_equal(open_file(in_dir("f"), LVNI_ST_VERIFY, &f), LVN_ERR_CORRUPT);
    }
    const float eleven = 11;
    const size_t element = place_of(raw, n, (const char *)&eleven, sizeof eleven);
    raw[element] = (char)(raw[element] ^ 1);
    put_file(in_dir("f"), raw, n);
    assert_int_equal(open_file(in_dir("f"), LVNI_ST_VERIFY, &f), LVN_ERR_CORRUPT);
    assert_non_null(strstr(lvn_last_error()->message, "/data/0' does not match its CRC-32"));
    assert_int_equal(open_file(in_dir("f"), 0, &f), LVN_OK);
    lvni_ckpt_st_close(f);
    raw[element] = (char)(raw[element] ^ 1);
    memcpy(raw + place_of(raw, n, "little", 6), "middle", 6);
    put_file(in_dir("f"), raw, n);
    assert_int_equal(open_file(in_dir("f"), LVNI_ST_VERIFY, &f), LVN_ERR_UNSUPPORTED);
    assert_non_null(strstr(lvn_last_error()->message, "byte order 'middle'"));
}

/* Numbers in the pickle that lie; without VERIFY, as its CRC-32 would find them. */
TEST_WITH(tensors_beyond_their_storage_are_refused, make_dir, drop_dir)
{
    /* shape (3, 4) with strides (4, 1), as in the file: K3 K4 TUPLE2 BINPUT x K4 K1 */
    static const struct {
        char from[5], to[5]; /* 4 bytes and the text's own end */
        const char *reports;
    } lies[] = {
        {"K\3K\4", "K\4K\4", "reaches beyond its storage '0' of 48 bytes"},
        {"K\4K\1", "K\5K\1", "reaches beyond its storage '0' of 48 bytes"},
        {"K\3K\4", "NK\4K", "pickle is damaged"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        char raw[16384];
        const size_t n = get_file(corpus("views.pt"), raw, sizeof raw);
        memcpy(raw + place_of(raw, n, lies[i].from, 4), lies[i].to, 4);
        put_file(in_dir("f"), raw, n);
        lvni_ckpt_st_file *f = NULL;
        assert_int_equal(open_file(in_dir("f"), 0, &f), LVN_ERR_CORRUPT);
        if (strstr(lvn_last_error()->message, lies[i].reports) == NULL) {
            print_error("%s\n", lvn_last_error()->message);
        }
        assert_non_null(strstr(lvn_last_error()->message, lies[i].reports));
        assert_int_equal(open_file(in_dir("f"), LVNI_ST_VERIFY, &f), LVN_ERR_CORRUPT);
        assert_non_null(strstr(lvn_last_error()->message, "data.pkl' does not match its CRC-32"));
    }
}

TEST(headers_are_read_alone)
{
    lvni_ckpt_st_file *f = NULL;
    assert_int_equal(open_file(corpus("types.pt"), LVNI_ST_HEADER_ONLY, &f), LVN_OK);
    assert_null(lvni_ckpt_st_find(f, "f32")->data);
    assert_int_equal(lvni_ckpt_st_find(f, "f32")->bytes, 48);
    lvni_ckpt_st_close(f);
}

TEST(every_failing_allocation_and_read_is_reported)
{
    static const char *const files[] = {"views.pt", "lightning.ckpt", "other.pt"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        lvni_ckpt_st_file *f = NULL;
        const uint64_t live = lvni_core_alloc_get_total().live_bytes;
        lvn_status s = LVN_ERR_MEMORY;
        int64_t k = 1;
        for (; s == LVN_ERR_MEMORY; k++) {
            lvni_core_alloc_fail_at(k);
            s = open_file(corpus(files[i]), LVNI_ST_VERIFY, &f);
            lvni_ckpt_st_close(f);
            assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
        }
        lvni_core_alloc_fail_at(0);
        assert_true(k > 5);
        assert_int_equal(s, i == 2 ? LVN_ERR_UNSUPPORTED : LVN_OK);
        for (k = 1; k < 6; k++) {
            lvni_core_vfs_fail_at("read", k, EIO);
            assert_int_equal(open_file(corpus(files[i]), LVNI_ST_VERIFY, &f), LVN_ERR_IO);
            lvni_core_vfs_fail_at("read", 0, 0);
            assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
        }
    }
}

/* ---- written ---- */

enum { WRITTEN = 5 };

static void some_tensors(lvni_ckpt_st_tensor out[WRITTEN])
{
    static const double f64[6] = {0.5, -1, 2, 1e300, 3, 4};
    static const uint16_t half[3] = {0x3c00, 0xc000, 0x7bff};
    const lvni_ckpt_st_tensor list[WRITTEN] = {
        {.name = "w", .dtype = LVN_F32, .ndim = 2, .shape = {2, 3}, .data = sample_weight},
        {.name = "d", .dtype = LVN_F64, .ndim = 3, .shape = {1, 2, 3}, .data = f64},
        {.name = "n", .dtype = LVN_I64, .ndim = 0, .data = sample_count},
        {.name = "e", .dtype = LVN_U8, .ndim = 2, .shape = {0, 5}, .data = NULL},
        {.name = "h", .dtype = LVN_F16, .ndim = 1, .shape = {3}, .data = half},
    };
    memcpy(out, list, sizeof list);
}

TEST_WITH(what_is_written_is_read, make_dir, drop_dir)
{
    lvni_ckpt_st_tensor list[WRITTEN];
    some_tensors(list);
    assert_int_equal(lvni_ckpt_torch_save(in_dir("f.pt"), list, WRITTEN), LVN_OK);
    lvni_ckpt_st_file *f = NULL;
    assert_int_equal(open_file(in_dir("f.pt"), LVNI_ST_VERIFY, &f), LVN_OK);
    assert_int_equal(lvni_ckpt_st_count(f), WRITTEN);
    for (int i = 0; i < WRITTEN; i++) {
        const lvni_ckpt_st_tensor *t = lvni_ckpt_st_find(f, list[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, list[i].dtype);
        assert_int_equal(t->ndim, list[i].ndim);
        assert_memory_equal(t->shape, list[i].shape, sizeof t->shape);
        assert_memory_equal(t->data, t->bytes > 0 ? list[i].data : "", t->bytes);
        assert_int_equal((uintptr_t)t->data % 64, 0);
    }
    lvni_ckpt_st_close(f);
    list[1].name = "w";
    assert_int_equal(lvni_ckpt_torch_save(in_dir("g.pt"), list, WRITTEN), LVN_ERR_INVALID);
    assert_non_null(strstr(lvn_last_error()->message, "two tensors are called 'w'"));
    list[1] = (lvni_ckpt_st_tensor){
        .name = "x", .dtype = LVN_F32, .ndim = 1, .shape = {(int64_t)1 << 30}, .data = list};
    assert_int_equal(lvni_ckpt_torch_save(in_dir("g.pt"), list + 1, 1), LVN_ERR_UNSUPPORTED);
    assert_non_null(strstr(lvn_last_error()->message, "write a .safetensors file"));
    assert_int_equal(files_in_dir(0), 1);
}

TEST_WITH(a_failed_save_leaves_the_old_file, make_dir, drop_dir)
{
    lvni_ckpt_st_tensor list[WRITTEN];
    some_tensors(list);
    put_file(in_dir("f.pt"), "old", 3);
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    lvn_status s = LVN_ERR_MEMORY;
    int64_t k = 1;
    for (; s == LVN_ERR_MEMORY; k++) {
        lvni_core_alloc_fail_at(k);
        s = lvni_ckpt_torch_save(in_dir("f.pt"), list, WRITTEN);
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
        assert_int_equal(files_in_dir(0), 1);
    }
    lvni_core_alloc_fail_at(0);
    assert_true(s == LVN_OK && k > 3);
    put_file(in_dir("f.pt"), "old", 3);
    for (k = 1; k < 9; k++) {
        lvni_core_vfs_fail_at("write", k, ENOSPC);
        assert_int_equal(lvni_ckpt_torch_save(in_dir("f.pt"), list, WRITTEN), LVN_ERR_IO);
        lvni_core_vfs_fail_at("write", 0, 0);
        char raw[8];
        assert_int_equal(get_file(in_dir("f.pt"), raw, sizeof raw), 3);
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
    }
}

/* Damaged files: cut at every byte, every byte turned, headers that lie, memory that runs out.
 * Never a crash, always an error with what is wrong. */
#include "ckpt_support.h"

#include <fcntl.h>
#include <jansson.h>

TEST_EACH(make_dir, drop_dir);

TEST(a_file_cut_anywhere_is_refused)
{
    save_sample(in_dir("whole"), 10);
    char raw[8192];
    const size_t n = get_file(in_dir("whole"), raw, sizeof raw);
    for (size_t keep = 0; keep < n; keep++) {
        lvni_ckpt *c = NULL;
        put_file(in_dir("cut"), raw, keep);
        assert_int_equal(lvni_ckpt_load(in_dir("cut"), &c), LVN_ERR_CORRUPT);
        assert_null(c);
        assert_non_null(strstr(lvn_last_error()->message, "/cut"));
    }
    raw[n] = 0; /* and one byte too many */
    put_file(in_dir("cut"), raw, n + 1);
    lvni_ckpt *c = NULL;
    assert_int_equal(lvni_ckpt_load(in_dir("cut"), &c), LVN_ERR_CORRUPT);
}

TEST(every_turned_byte_is_found)
{
    /* digits, digits, case, UTF-8, all */
    static const int masks[] = {0x01, 0x04, 0x20, 0x80, 0xff};
    save_sample(in_dir("bad"), 10);
    char raw[8192];
    const size_t n = get_file(in_dir("bad"), raw, sizeof raw);
    const int fd = open(in_dir("bad"), O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    for (size_t i = 0; i < n; i++) {
        for (size_t m = 0; m < sizeof masks / sizeof masks[0]; m++) {
            const char turned = (char)(raw[i] ^ masks[m]);
            assert_int_equal(pwrite(fd, &turned, 1, (off_t)i), 1);
            lvni_ckpt *c = NULL;
            const lvn_status status = lvni_ckpt_load(in_dir("bad"), &c);
            if (status != LVN_ERR_CORRUPT) {
                print_error("byte %zu, mask %x: %s\n", i, (unsigned)masks[m],
                            lvn_status_name(status));
            }
            assert_int_equal(status, LVN_ERR_CORRUPT);
        }
        assert_int_equal(pwrite(fd, &raw[i], 1, (off_t)i), 1);
    }
    close(fd);
    lvni_ckpt *c = NULL;
    assert_int_equal(lvni_ckpt_load(in_dir("bad"), &c), LVN_OK); /* all bytes are back */
    lvni_ckpt_free(c);
}

/* Blanks before the data are the only bytes without a meaning: other white space there is no
 * damage. */
TEST(padding_is_no_content)
{
    save_sample(in_dir("f"), 10);
    char raw[8192];
    const size_t n = get_file(in_dir("f"), raw, sizeof raw);
    const size_t end = 8 + (size_t)(unsigned char)raw[0] + ((size_t)(unsigned char)raw[1] << 8);
    assert_int_equal(raw[end - 1], ' ');
    raw[end - 1] = '\n';
    put_file(in_dir("f"), raw, n);
    lvni_ckpt *c = NULL;
    assert_int_equal(lvni_ckpt_load(in_dir("f"), &c), LVN_OK);
    lvni_ckpt_free(c);
}

TEST(a_damaged_tensor_is_named)
{
    save_sample(in_dir("f"), 10);
    char raw[8192];
    const size_t n = get_file(in_dir("f"), raw, sizeof raw);
    raw[n - 4] = (char)(raw[n - 4] ^ 1); /* three mask bytes come last, the moments before them */
    put_file(in_dir("f"), raw, n);
    lvni_ckpt_st_file *f = NULL;
    assert_int_equal(lvni_ckpt_st_open(in_dir("f"), LVNI_ST_VERIFY, &f), LVN_ERR_CORRUPT);
    assert_non_null(strstr(lvn_last_error()->message,
                           "'optim/momentum/fc.weight' does not match its checksum"));
    assert_int_equal(lvni_ckpt_st_open(in_dir("f"), LVNI_ST_VERIFY | LVNI_ST_HEADER_ONLY, &f),
                     LVN_OK);
    lvni_ckpt_st_close(f);
    assert_int_equal(lvni_ckpt_st_open(in_dir("f"), 0, &f), LVN_OK);
    assert_true(lvni_ckpt_st_header_ok(f));
    for (int64_t i = 0; i < lvni_ckpt_st_count(f); i++) {
        assert_int_equal(lvni_ckpt_st_tensor_ok(f, i),
                         strcmp(lvni_ckpt_st_at(f, i)->name, "optim/momentum/fc.weight") != 0);
    }
    lvni_ckpt_st_close(f);
}

/* Headers that lie, each with eight bytes of data behind it. */
static const struct {
    const char *json, *reports;
} liars[] = {
    {"[]", "not a JSON object"},
    {"", "header is damaged"},
    {"{\"a\"", "header is damaged"},
    {"{} x", "header is damaged"},
    {"{\"\xff\":1}", "header is damaged"},
    {"{\"__metadata__\":[]}", "__metadata__ is not an object"},
    {"{\"__metadata__\":{\"k\":1}}", "'k' is not a text"},
    {"{}", "8 bytes after the last tensor"},
    {"{\"a\":1}", "'a' has no dtype"},
    {"{\"a\":{\"dtype\":\"f32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "unknown data type 'f32'"},
    {"{\"a\":{\"dtype\":\"I8\",\"shape\":[6],\"data_offsets\":[0,6]}}",
     "2 bytes after the last tensor"},
    {"{\"a\":{\"dtype\":\"I8\",\"shape\":[-8],\"data_offsets\":[0,8]}}", "axis 0 of tensor 'a'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", "'a' has no shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", "axis 0 of tensor 'a'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", "axis 0 of tensor 'a'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", "'a' has no data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", "cut off or damaged"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", "cut off or damaged"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
     "'a' lies at bytes 0 to 16 of 8"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}",
     "'a' has 8 bytes, but type and shape ask for 12"},
    {"{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}",
     "too large for any file"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775808],\"data_offsets\":[0,8]}}",
     "header is damaged"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"a\":{\"dtype\":\"F32\","
     "\"shape\":[2],"
     "\"data_offsets\":[0,8]}}",
     "uplicate"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\","
     "\"shape\":[1],"
     "\"data_offsets\":[4,8]}}",
     "'a' and 'b' overlap at byte 4"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\","
     "\"shape\":[5],"
     "\"data_offsets\":[3,8]}}",
     "bytes 2 to 3, before tensor 'b', do not belong to a tensor"},
    {"{\"__metadata__\":{\"levin.checksums\":\"{}\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_"
     "offsets\":"
     "[0,8]}}",
     "does not match its checksum"},
};

TEST(headers_that_lie_are_refused)
{
    for (size_t i = 0; i < sizeof liars / sizeof liars[0]; i++) {
        char raw[512] = {0};
        const size_t n = strlen(liars[i].json);
        raw[0] = (char)n;
        memcpy(raw + 8, liars[i].json, n);
        put_file(in_dir("f"), raw, 8 + n + 8);
        lvni_ckpt_st_file *f = NULL;
        const lvn_status status = lvni_ckpt_st_open(in_dir("f"), LVNI_ST_VERIFY, &f);
        if (status != LVN_ERR_CORRUPT ||
            strstr(lvn_last_error()->message, liars[i].reports) == NULL) {
            print_error("%s\n gave %s: %s\n", liars[i].json, lvn_status_name(status),
                        lvn_last_error()->message);
        }
        assert_int_equal(status, LVN_ERR_CORRUPT);
        assert_non_null(strstr(lvn_last_error()->message, liars[i].reports));
    }
}

TEST(a_huge_header_is_not_believed)
{
    lvni_ckpt_st_file *f = NULL;
    put_file(in_dir("f"), "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    assert_int_equal(lvni_ckpt_st_open(in_dir("f"), LVNI_ST_VERIFY, &f), LVN_ERR_CORRUPT);
    put_file(in_dir("f"), "\x03\0\0\0\0\0\0\0{}", 10);
    assert_int_equal(lvni_ckpt_st_open(in_dir("f"), LVNI_ST_VERIFY, &f), LVN_ERR_CORRUPT);
    /* over the limit of 100 MB, in a (sparse) file that is long enough */
    put_file(in_dir("f"), "\x01\xe1\xf5\x05\0\0\0\0{}", 10);
    assert_int_equal(truncate(in_dir("f"), 100000100), 0);
    assert_int_equal(lvni_ckpt_st_open(in_dir("f"), LVNI_ST_VERIFY, &f), LVN_ERR_CORRUPT);
    assert_non_null(strstr(lvn_last_error()->message, "a header of 100000001 bytes"));
}

TEST(what_is_no_file_is_refused)
{
    lvni_ckpt_st_file *f = NULL;
    assert_int_equal(lvni_ckpt_st_open(in_dir("missing"), LVNI_ST_VERIFY, &f), LVN_ERR_NOT_FOUND);
    assert_int_equal(lvni_ckpt_st_open(dir, LVNI_ST_VERIFY, &f), LVN_ERR_IO);
    assert_int_equal(lvni_ckpt_st_open("/dev/null", LVNI_ST_VERIFY, &f), LVN_ERR_IO);
}

/* While a file is written the JSON library allocates through us, so that its failures are swept
 * too. (Its parser takes a failed allocation for bad syntax, so reading sweeps our own allocations
 * only.) */
static void *json_alloc(size_t n)
{
    return lvni_core_alloc(LVNI_TAG_CKPT, n);
}

TEST(memory_may_run_out_anywhere)
{
    save_sample(in_dir("f"), 10);
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    int64_t k = 1;
    for (lvn_status status = LVN_ERR_MEMORY; status != LVN_OK; k++) { /* loading */
        lvni_ckpt *c = NULL;
        lvni_core_alloc_fail_at(k);
        status = lvni_ckpt_load(in_dir("f"), &c);
        lvni_core_alloc_fail_at(0);
        assert_true(status == LVN_OK || status == LVN_ERR_MEMORY);
        assert_true((status == LVN_OK) == (c != NULL));
        lvni_ckpt_free(c);
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
    }
    assert_true(k > 8);
    json_set_alloc_funcs(json_alloc, lvni_core_free);
    lvni_ckpt_st_tensor tensors[4];
    const lvni_ckpt_content c = sample_content(11, tensors);
    k = 1;
    for (lvn_status status = LVN_ERR_MEMORY; status != LVN_OK; k++) { /* saving over it */
        lvni_core_alloc_fail_at(k);
        status = lvni_ckpt_save(in_dir("f"), &c);
        lvni_core_alloc_fail_at(0);
        assert_true(status == LVN_OK || status == LVN_ERR_MEMORY);
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
        assert_int_equal(files_in_dir(0), 1);
        lvni_ckpt *now = NULL;
        assert_int_equal(lvni_ckpt_load(in_dir("f"), &now), LVN_OK);
        assert_int_equal(now->at.step, status == LVN_OK ? 11 : 10);
        lvni_ckpt_free(now);
    }
    json_set_alloc_funcs(malloc, free);
    assert_true(k > 100);
}

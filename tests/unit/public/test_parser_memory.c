/* What a reader of headers, cards, records and configurations takes of memory follows from the
 * bytes it is given: at most 64 MiB and 16 times the input, for inputs of the costliest kinds. */
#include "parser_memory.h"

#include "ckpt/torch_impl.h"
#include "core/error.h"
#include "core/json_read.h"
#include "images/image_data.h"
#include "log/metrics.h"
#include "unit/core/config_rows.h"

#include <stdlib.h>
#include <string.h>

/* ---- headers of safetensors ---- */

static lvn_status open_tensors(const char *path)
{
    lvni_ckpt_st_file *file;
    LVN_TRY(lvni_ckpt_st_open(path, 0, &file));
    lvni_ckpt_st_close(file);
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

TEST(headers_take_what_their_bytes_allow)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct family *f = &families[i];
        header(f->head, f->unit, f->tail, PART);
        header(f->head, f->unit, f->tail, 3 * PART);
    }
}

/* No real file comes near the limits. */
TEST(large_headers_are_read)
{
    static const char unit[] = "\"model.layers.%d.attention.weight\":{\"dtype\":\"F32\",\"shape\":["
                               "0,4096],\"data_offsets\":[0,0]},";
    const outcome o = header(
        "{", unit, "\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 15 * MIB);
    assert_string_equal(o.message, "");
}

TEST(headers_over_16_mib_are_refused_before_they_are_read)
{
    const outcome o = header("{", " ", "}", 17 * MIB);
    assert_int_equal(o.status, LVN_ERR_CORRUPT);
    assert_non_null(strstr(o.message, "16 MiB"));
    assert_true(!MEASURED ||
                o.peak < 20 * MIB); /* 17 of them are the file, which lies in memory here */
}

TEST(nesting_has_a_limit)
{
    char text[2 * LVNI_JSON_MAX_DEPTH + 8];
    for (int depth = LVNI_JSON_MAX_DEPTH; depth <= LVNI_JSON_MAX_DEPTH + 1; depth++) {
        json_t *json;
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        const lvn_status s =
            lvni_core_json_read("f", "it", text, 2 * (size_t)depth, 0, LVNI_JSON_FILE, &json);
        assert_int_equal(s, depth > LVNI_JSON_MAX_DEPTH ? LVN_ERR_CORRUPT : LVN_OK);
        json_decref(json);
    }
    assert_string_equal(lvn_last_error()->message,
                        "f: it is nested 65 levels deep; at most 64 are read");
}

/* ---- pickles ---- */

static lvn_status parse_pickle(const input *in)
{
    lvni_ckpt_pickle pickle;
    const lvn_status s = lvni_ckpt_pickle_parse("f", in->bytes, in->n, &pickle);
    lvni_ckpt_pickle_free(&pickle);
    return s;
}

TEST(pickles_take_what_their_bytes_allow)
{
    static const struct family pickles[] = {
        {"", "N", ""},      {"", "}", ""},    {"", "]2", ""},    {"](", "N", "e."},
        {"](", "(l", "e."}, {"]", "Na", ""},  {"", "(NNd2", ""}, {"", "(", ""},
        {"", "]\x94", ""},  {"(", "N", "l."}, {"", "Kx", ""},    {"", "}NNs2N", ""},
    };
    for (size_t i = 0; i < sizeof pickles / sizeof *pickles; i++) {
        for (size_t n = PART; n <= 5 * PART; n += 2 * PART) {
            input in = repeat(pickles[i].head, pickles[i].unit, pickles[i].tail, n, 0);
            bounded(parse_pickle, &in, pickles[i].unit);
            free(in.bytes);
        }
    }
}

/* ---- other JSON, YAML ---- */

static lvn_status open_record(const char *path)
{
    static lvni_core_error_record record;
    return lvni_core_error_record_read(path, &record);
}

static lvn_status parse_record(const input *in)
{
    return by_path(in, open_record);
}

static lvn_status open_metrics(const char *path)
{
    return lvni_log_metrics_truncate(path, 1, false, NULL, NULL);
}

static lvn_status parse_metrics(const input *in)
{
    return by_path(in, open_metrics);
}

static lvn_status parse_card(const input *in)
{
    lvni_images_eval eval = {0};
    char *text = strndup(in->bytes, in->n);
    const lvn_status s = lvni_images_eval_read_text(text, &eval);
    free(text);
    return s;
}

/* Of faces and of products there are this many. */
TEST(cards_of_many_classes_are_read)
{
    input in = repeat("{\"image_size\":16,\"mean\":[0,0,0],\"std\":[1,1,1],\"eval\":{\"resize\":16,"
                      "\"crop\":16,\"filter\":\"bilinear\"},\"classes\":[",
                      "\"identity_%d\",", "\"z\"]}", 3 * PART, 0); /* about 180,000 */
    assert_string_equal(bounded(parse_card, &in, "classes").message, "");
    free(in.bytes);
}

static lvn_status parse_config(const input *in)
{
    lvni_core_config *config;
    LVN_TRY(make_config(&config));
    const lvn_status s =
        lvni_core_config_load_yaml(config, LVNI_LAYER_FILE, "f.yml", in->bytes, in->n);
    lvni_core_config_destroy(config);
    return s;
}

TEST(records_metrics_and_cards_take_what_their_bytes_allow)
{
    for (size_t i = 0; i < 5; i++) {
        input in = repeat(families[i].head, families[i].unit, families[i].tail, PART - 64, 0);
        bounded(parse_record, &in, families[i].unit);
        free(in.bytes);
        in = repeat(families[i].head, families[i].unit, families[i].tail, 3 * PART, 0);
        bounded(parse_metrics, &in, families[i].unit);
        assert_int_equal(bounded(parse_card, &in, families[i].unit).status, LVN_ERR_CORRUPT);
        free(in.bytes);
    }
}

TEST(configurations_take_what_their_bytes_allow)
{
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
        input in = repeat(yaml[i].head, yaml[i].unit, yaml[i].tail, PART - 64, 0);
        const outcome o = bounded(parse_config, &in, yaml[i].unit);
        assert_true(o.status == LVN_OK || o.status == LVN_ERR_USAGE);
        free(in.bytes);
    }
}

/* levin ckpt show FILE|RUN: metadata and tensors of a file, as lines for people or one JSON
 * object. */
#include "cli/ckpt.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/json_read.h"
#include "run/error_record.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of the elements in their order, in f64. */
typedef struct numbers {
    double norm, least, most; /* NaN: no elements, or one that is NaN */
} numbers;

static numbers measure(const lvni_ckpt_st_tensor *t)
{
    const size_t n = t->bytes / lvn_dtype_size(t->dtype);
    numbers m = {.norm = 0, .least = NAN, .most = NAN};
    bool nan = false;
    for (size_t i = 0; i < n; i++) {
        const double x = lvni_ckpt_st_value(t, i);
        m.norm += x * x;
        m.least = x < m.least || i == 0 ? x : m.least;
        m.most = x > m.most || i == 0 ? x : m.most;
        nan = nan || isnan(x);
    }
    m.norm = sqrt(m.norm);
    return nan ? (numbers){.norm = NAN, .least = NAN, .most = NAN} : m;
}

/* The list of checksums is for verify. */
static bool is_shown(const char *key)
{
    return strcmp(key, LVNI_ST_CHECKSUMS) != 0 && strcmp(key, LVNI_ST_HEADER_CHECKSUM) != 0;
}

/* ---- lines ---- */

static void add_value(lvni_core_str *s, const json_t *value)
{
    if (json_is_string(value)) {
        lvni_core_str_append(s, json_string_value(value));
    } else if (json_is_integer(value)) {
        lvni_core_str_printf(s, "%lld", (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
        lvni_core_str_double(s, json_real_value(value));
    } else {
        lvni_core_str_append(s, json_is_true(value)    ? "true"
                                : json_is_false(value) ? "false"
                                : json_is_null(value)  ? "null"
                                                       : "{...}");
    }
}

/* Frees the text when it fails. */
static lvn_status print_pair(const char *key, const char *inner, lvni_core_str *text)
{
    const lvn_status s = lvni_core_str_status(text);
    if (s == LVN_OK) {
        lvni_core_print(stdout, "  %s.%s: %s\n", key, inner, lvni_core_str_text(text));
    } else {
        lvni_core_str_free(text);
    }
    return s;
}

/* A JSON object (the configuration) as a line for each of its keys. */
static lvn_status print_object(const char *key, json_t *object)
{
    const char *inner;
    json_t *value;
    lvni_core_str text = {0};
    json_object_foreach(object, inner, value)
    {
        lvni_core_str_clear(&text);
        for (size_t i = 0; i < json_array_size(value); i++) {
            lvni_core_str_append(&text, i == 0 ? "[" : ", ");
            add_value(&text, json_array_get(value, i));
        }
        if (json_is_array(value)) {
            lvni_core_str_append(&text, json_array_size(value) == 0 ? "[]" : "]");
        } else {
            add_value(&text, value);
        }
        LVN_TRY(print_pair(key, inner, &text));
    }
    lvni_core_str_free(&text);
    return LVN_OK;
}

static lvn_status print_metadata(const lvni_ckpt_st_file *f)
{
    const lvni_ckpt_st_meta *m;
    for (int64_t i = 0; (m = lvni_ckpt_st_meta_at(f, i)) != NULL; i++) {
        if (!is_shown(m->key)) {
            continue;
        }
        lvn_status s = LVN_OK;
        json_t *value = lvni_core_json_try(m->value, LVNI_JSON_INNER);
        if (json_object_size(value) > 0) {
            s = print_object(m->key, value);
        } else {
            lvni_core_print(stdout, "  %s: %s\n", m->key, m->value);
        }
        json_decref(value);
        LVN_TRY(s);
    }
    return LVN_OK;
}

static void print_tensors(const lvni_ckpt_st_file *f)
{
    char shape[96];
    lvni_cli_ckpt_place at = {.file = f};
    for (lvni_cli_ckpt_entry e; (e = lvni_cli_ckpt_next(&at)).name != NULL;) {
        const lvni_ckpt_st_tensor *t = e.tensor;
        if (t == NULL) {
            lvni_core_print(stdout, "  %s  %s, which levin does not read\n", e.name, e.other->what);
            continue;
        }
        const numbers m = measure(t);
        lvni_core_print(
            stdout, "  %s  %s %s  norm %.6g, %.6g to %.6g\n", t->name, lvn_dtype_name(t->dtype),
            lvni_tensor_shape_string(t->ndim, t->shape, shape), m.norm, m.least, m.most);
    }
}

static lvn_status print_lines(const char *name, const lvni_ckpt_st_file *f)
{
    char bytes[LVNI_BYTES_TEXT];
    const int64_t n = lvni_cli_ckpt_count(f);
    lvni_core_print(stdout, "%s: %s, %lld tensor%s, %s\n", name,
                    lvni_cli_ckpt_is_checkpoint(f) ? "checkpoint" : "weights", (long long)n,
                    lvni_core_plural(n, "", "s"),
                    lvni_core_bytes_text(lvni_cli_ckpt_bytes(f), bytes));
    puts("metadata:");
    LVN_TRY(print_metadata(f));
    puts("tensors (type, shape, Euclidean norm, range of the values):");
    print_tensors(f);
    return LVN_OK;
}

/* ---- JSON ---- */

static void add_metadata(lvni_core_str *s, const lvni_ckpt_st_file *f)
{
    const lvni_ckpt_st_meta *m;
    const char *between = "";
    for (int64_t i = 0; (m = lvni_ckpt_st_meta_at(f, i)) != NULL; i++) {
        if (is_shown(m->key)) {
            lvni_core_str_append(s, between);
            lvni_core_str_json(s, m->key);
            lvni_core_str_append(s, ": ");
            lvni_core_str_json(s, m->value);
            between = ", ";
        }
    }
}

static void add_tensor(lvni_core_str *s, const lvni_cli_ckpt_entry *e)
{
    static const numbers unread = {.norm = NAN, .least = NAN, .most = NAN};
    const lvni_ckpt_st_tensor *t = e->tensor;
    const numbers m = t == NULL ? unread : measure(t);
    lvni_core_str_append(s, "{\"name\": ");
    lvni_core_str_json(s, e->name);
    lvni_core_str_printf(s, ", \"dtype\": \"%s\", \"shape\": [",
                         t == NULL ? e->other->type : lvn_dtype_name(t->dtype));
    const int64_t ndim = t == NULL ? e->other->ndim : t->ndim;
    for (int64_t i = 0; i < ndim; i++) {
        const int64_t size = t == NULL ? lvni_ckpt_st_other_size(e->other, i) : t->shape[i];
        lvni_core_str_printf(s, "%s%lld", i > 0 ? ", " : "", (long long)size);
    }
    lvni_core_str_append(s, "], \"norm\": ");
    lvni_cli_ckpt_json_number(s, m.norm);
    lvni_core_str_append(s, ", \"min\": ");
    lvni_cli_ckpt_json_number(s, m.least);
    lvni_core_str_append(s, ", \"max\": ");
    lvni_cli_ckpt_json_number(s, m.most);
    lvni_core_str_char(s, '}');
}

static lvn_status print_json(const char *name, const lvni_ckpt_st_file *f)
{
    lvni_core_str s = {0};
    lvni_core_str_append(&s, "{\"file\": ");
    lvni_core_str_json(&s, name);
    lvni_core_str_printf(&s, ", \"kind\": \"%s\", \"bytes\": %llu, \"metadata\": {",
                         lvni_cli_ckpt_is_checkpoint(f) ? "checkpoint" : "weights",
                         (unsigned long long)lvni_cli_ckpt_bytes(f));
    add_metadata(&s, f);
    lvni_core_str_append(&s, "}, \"tensors\": [");
    lvni_cli_ckpt_place at = {.file = f};
    lvni_cli_ckpt_entry e;
    for (int64_t i = 0; (e = lvni_cli_ckpt_next(&at)).name != NULL; i++) {
        lvni_core_str_append(&s, i > 0 ? ", " : "");
        add_tensor(&s, &e);
    }
    lvni_core_str_append(&s, "]}");
    return lvni_cli_ckpt_print_line(&s);
}

int lvni_cli_ckpt_show(const lvni_cli_ckpt_args *args)
{
    char *name = NULL;
    lvni_ckpt_st_file *f;
    int64_t n_damaged = 0;
    lvn_status s = lvni_cli_ckpt_open(args->paths[0], &name, &f);
    if (s == LVN_OK) {
        s = args->json ? print_json(name, f) : print_lines(name, f);
        n_damaged = lvni_cli_ckpt_print_damage(f, name);
    }
    lvni_ckpt_st_close(f);
    lvni_core_free(name);
    return s != LVN_OK      ? lvni_run_report_status(s)
           : n_damaged == 0 ? LVNI_EXIT_OK
                            : LVNI_EXIT_FAILURE;
}

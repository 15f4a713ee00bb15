/* levin ckpt diff A B: in which tensors, and in which part of the position, do two files differ? A
 * line for each, nothing when all bits are equal. */
#include "cli/ckpt.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "run/error_record.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct sides {
    const char *name[2];
    const lvni_ckpt_st_file *file[2];
    bool json;
    int64_t n_all, n_different; /* tensors */
    bool position_differs;
} sides;

/* ---- lines ---- */

static void begin(const sides *s, lvni_core_str *line, const char *name, const char *what)
{
    if (s->json) {
        lvni_core_str_append(line, "{\"name\": ");
        lvni_core_str_json(line, name);
        lvni_core_str_printf(line, ", \"differs\": \"%s\"", what);
    } else {
        lvni_core_str_message(line, "%s: ", name);
    }
}

static lvn_status end(const sides *s, lvni_core_str *line)
{
    lvni_core_str_append(line, s->json ? "}" : "");
    return lvni_cli_ckpt_print_line(line);
}

static lvn_status print_only_in(const sides *s, const char *name, int side)
{
    lvni_core_str line = {0};
    begin(s, &line, name, "presence");
    if (s->json) {
        lvni_core_str_append(&line, ", \"only_in\": ");
        lvni_core_str_json(&line, s->name[side]);
    } else {
        lvni_core_str_message(&line, "only in %s", s->name[side]);
    }
    return end(s, &line);
}

static lvn_status print_texts(const sides *s, const char *name, const char *what, const char *a,
                              const char *b)
{
    lvni_core_str line = {0};
    begin(s, &line, name, what);
    if (s->json) {
        lvni_core_str_append(&line, ", \"a\": ");
        lvni_core_str_json(&line, a);
        lvni_core_str_append(&line, ", \"b\": ");
        lvni_core_str_json(&line, b);
    } else {
        lvni_core_str_message(&line, "%s and %s", a, b);
    }
    return end(s, &line);
}

/* ---- values ---- */

typedef struct difference {
    size_t n, first;           /* elements with other bits, and which is the first */
    double absolute, relative; /* the largest; inf: against a value that is not finite */
} difference;

static difference compare_values(const lvni_ckpt_st_tensor *a, const lvni_ckpt_st_tensor *b)
{
    const size_t size = lvn_dtype_size(a->dtype), n = a->bytes / size;
    const char *x = a->data, *y = b->data;
    difference d = {.n = 0};
    for (size_t i = 0; i < n; i++) {
        if (memcmp(x + i * size, y + i * size, size) == 0) {
            continue;
        }
        const double u = lvni_ckpt_st_value(a, i), v = lvni_ckpt_st_value(b, i);
        const double by = isnan(u) && isnan(v) ? 0 : isnan(u - v) ? (double)INFINITY : fabs(u - v);
        const double of = by == 0 || isinf(by) ? by : by / fmax(fabs(u), fabs(v));
        d.first = d.n++ == 0 ? i : d.first;
        d.absolute = fmax(d.absolute, by);
        d.relative = fmax(d.relative, of);
    }
    return d;
}

/* "3,0,1" */
static void add_index(lvni_core_str *line, const lvni_ckpt_st_tensor *t, size_t i)
{
    size_t below = lvn_dtype_size(t->dtype);
    below = t->bytes / below;
    for (int k = 0; k < t->ndim; k++) {
        below /= (size_t)t->shape[k];
        lvni_core_str_printf(line, "%s%zu", k > 0 ? ", " : "", i / below);
        i %= below;
    }
}

static void add_values_json(lvni_core_str *line, const lvni_ckpt_st_tensor *a,
                            const lvni_ckpt_st_tensor *b, const difference *d)
{
    lvni_core_str_printf(line, ", \"elements\": %zu, \"different\": %zu, \"max_abs\": ",
                         a->bytes / lvn_dtype_size(a->dtype), d->n);
    lvni_cli_ckpt_json_number(line, d->absolute);
    lvni_core_str_append(line, ", \"max_rel\": ");
    lvni_cli_ckpt_json_number(line, d->relative);
    lvni_core_str_append(line, ", \"first\": [");
    add_index(line, a, d->first);
    lvni_core_str_append(line, "], \"a\": ");
    lvni_cli_ckpt_json_number(line, lvni_ckpt_st_value(a, d->first));
    lvni_core_str_append(line, ", \"b\": ");
    lvni_cli_ckpt_json_number(line, lvni_ckpt_st_value(b, d->first));
}

static lvn_status print_values(const sides *s, const lvni_ckpt_st_tensor *a,
                               const lvni_ckpt_st_tensor *b)
{
    const difference d = compare_values(a, b);
    lvni_core_str line = {0};
    begin(s, &line, a->name, "values");
    if (s->json) {
        add_values_json(&line, a, b, &d);
        return end(s, &line);
    }
    const size_t all = a->bytes / lvn_dtype_size(a->dtype);
    lvni_core_str_printf(&line,
                         "%zu of %zu element%s differ%s, by at most %.3g (relative %.3g); the "
                         "first at (",
                         d.n, all, lvni_core_plural((int64_t)all, "", "s"),
                         lvni_core_plural((int64_t)d.n, "s", ""), d.absolute, d.relative);
    add_index(&line, a, d.first);
    lvni_core_str_append(&line, "): ");
    lvni_core_str_double(&line, lvni_ckpt_st_value(a, d.first));
    lvni_core_str_append(&line, " and ");
    lvni_core_str_double(&line, lvni_ckpt_st_value(b, d.first));
    return end(s, &line);
}

/* ---- types that levin does not have ---- */

static lvn_status compare_bytes(sides *s, const lvni_ckpt_st_other *a, const lvni_ckpt_st_other *b)
{
    const char *x = a->data, *y = b->data;
    const size_t least = a->bytes < b->bytes ? a->bytes : b->bytes;
    size_t n = a->bytes + b->bytes - 2 * least; /* none of a type whose size is known */
    for (size_t i = 0; i < least; i++) {
        n += x[i] != y[i];
    }
    if (n == 0) {
        return LVN_OK;
    }
    s->n_different++;
    lvni_core_str line = {0};
    begin(s, &line, a->name, "bytes");
    if (s->json) {
        lvni_core_str_printf(&line, ", \"bytes\": %zu, \"different\": %zu", a->bytes, n);
    } else {
        lvni_core_str_printf(&line, "%zu of %zu byte%s differ%s; levin does not read its elements",
                             n, a->bytes, lvni_core_plural((int64_t)a->bytes, "", "s"),
                             lvni_core_plural((int64_t)n, "s", ""));
    }
    return end(s, &line);
}

/* ---- files ---- */

/* "(2, 3)", of any number of axes. */
static void add_shape(lvni_core_str *out, const lvni_cli_ckpt_entry *e)
{
    const int64_t ndim = e->tensor != NULL ? e->tensor->ndim : e->other->ndim;
    lvni_core_str_char(out, '(');
    for (int64_t i = 0; i < ndim; i++) {
        const int64_t size =
            e->tensor != NULL ? e->tensor->shape[i] : lvni_ckpt_st_other_size(e->other, i);
        lvni_core_str_printf(out, "%s%lld", i > 0 ? ", " : "", (long long)size);
    }
    lvni_core_str_char(out, ')');
}

static lvn_status compare_shapes(sides *s, const lvni_cli_ckpt_entry e[2], bool *equal)
{
    lvni_core_str shapes[2] = {{0}, {0}};
    lvn_status status = LVN_OK;
    for (int i = 0; i < 2; i++) {
        add_shape(&shapes[i], &e[i]);
        LVNI_TRY_DONE(status, lvni_core_str_status(&shapes[i]));
    }
    const char *a = lvni_core_str_text(&shapes[0]), *b = lvni_core_str_text(&shapes[1]);
    *equal = strcmp(a, b) == 0;
    status = *equal ? LVN_OK : print_texts(s, e[0].name, "shape", a, b);
done:
    lvni_core_str_free(&shapes[0]);
    lvni_core_str_free(&shapes[1]);
    return status;
}

static const char *type_of(const lvni_cli_ckpt_entry *e)
{
    return e->tensor != NULL ? lvn_dtype_name(e->tensor->dtype) : e->other->type;
}

/* Two of one name. */
static lvn_status compare_entries(sides *s, const lvni_cli_ckpt_entry e[2])
{
    const lvni_ckpt_st_tensor *a = e[0].tensor, *b = e[1].tensor;
    bool equal;
    LVN_TRY(compare_shapes(s, e, &equal));
    s->n_different += !equal;
    if (!equal) {
        return LVN_OK;
    }
    if (strcmp(type_of(&e[0]), type_of(&e[1])) != 0) {
        s->n_different++;
        return print_texts(s, e[0].name, "dtype", type_of(&e[0]), type_of(&e[1]));
    }
    if (a == NULL || b == NULL) { /* neither is read: one type and one shape */
        return compare_bytes(s, e[0].other, e[1].other);
    }
    if (a->bytes > 0 && memcmp(a->data, b->data, a->bytes) != 0) {
        s->n_different++;
        return print_values(s, a, b);
    }
    return LVN_OK;
}

static lvn_status compare_tensors(sides *s)
{
    lvni_cli_ckpt_place at[2] = {{.file = s->file[0]}, {.file = s->file[1]}};
    lvni_cli_ckpt_entry e[2] = {lvni_cli_ckpt_next(&at[0]), lvni_cli_ckpt_next(&at[1])};
    for (; e[0].name != NULL || e[1].name != NULL; s->n_all++) {
        const int order = e[0].name == NULL   ? 1
                          : e[1].name == NULL ? -1
                                              : strcmp(e[0].name, e[1].name);
        if (order == 0) {
            LVN_TRY(compare_entries(s, e));
        } else {
            s->n_different++;
            LVN_TRY(print_only_in(s, e[order > 0].name, order > 0));
        }
        for (int i = 0; i < 2; i++) {
            e[i] = (i == 0 ? order <= 0 : order >= 0) ? lvni_cli_ckpt_next(&at[i]) : e[i];
        }
    }
    return LVN_OK;
}

static const char *position(const lvni_ckpt_st_file *f, const char *key)
{
    const char *value = lvni_ckpt_st_meta_get(f, key);
    return value == NULL && strcmp(key, LVNI_CKPT_EPOCHS_DONE) == 0
               ? lvni_ckpt_st_meta_get(f, LVNI_CKPT_EPOCH)
               : value;
}

/* The metadata that `levin ckpt hash` counts as state; never the configuration. */
static lvn_status compare_positions(sides *s)
{
    static const char *const keys[] = {LVNI_CKPT_STEP, LVNI_CKPT_EPOCHS_DONE,
                                       LVNI_CKPT_SAMPLES_SEEN, LVNI_CKPT_SCALER,
                                       LVNI_CKPT_SCHEDULE};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const char *a = position(s->file[0], keys[k]), *b = position(s->file[1], keys[k]);
        if (a == NULL && b == NULL) {
            continue;
        }
        if (a == NULL || b == NULL) {
            s->position_differs = true;
            LVN_TRY(print_only_in(s, keys[k], a != NULL ? 0 : 1));
        } else if (strcmp(a, b) != 0) {
            s->position_differs = true;
            LVN_TRY(print_texts(s, keys[k], "metadata", a, b));
        }
    }
    return LVN_OK;
}

static lvn_status compare(sides *s, int *code)
{
    LVN_TRY(compare_tensors(s));
    LVN_TRY(compare_positions(s));
    if (s->n_different > 0 && !s->json) {
        printf("%lld of %lld tensor%s differ%s\n", (long long)s->n_different, (long long)s->n_all,
               lvni_core_plural(s->n_all, "", "s"), lvni_core_plural(s->n_different, "s", ""));
    }
    int64_t n_damaged = 0;
    for (int i = 0; i < 2; i++) {
        n_damaged += lvni_cli_ckpt_print_damage(s->file[i], s->name[i]);
    }
    const bool equal = s->n_different == 0 && !s->position_differs && n_damaged == 0;
    *code = equal ? LVNI_EXIT_OK : LVNI_EXIT_FAILURE;
    return LVN_OK;
}

int lvni_cli_ckpt_diff(const lvni_cli_ckpt_args *args)
{
    char *names[2] = {NULL, NULL};
    lvni_ckpt_st_file *files[2] = {NULL, NULL};
    int code = LVNI_EXIT_OK;
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_cli_ckpt_open(args->paths[0], &names[0], &files[0]));
    LVNI_TRY_DONE(s, lvni_cli_ckpt_open(args->paths[1], &names[1], &files[1]));
    sides both = {.name = {names[0], names[1]}, .file = {files[0], files[1]}, .json = args->json};
    s = compare(&both, &code);
done:
    for (int i = 0; i < 2; i++) {
        lvni_ckpt_st_close(files[i]);
        lvni_core_free(names[i]);
    }
    return s == LVN_OK ? code : lvni_run_report_status(s);
}

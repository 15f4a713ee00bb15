/* Trials as rows (sweep_table.h). */
#include "sweep/sweep_table.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/json_read.h"
#include "run/output_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static lvn_status read_row(lvni_sweep_table *t, lvni_sweep_reader *reader, bool parameters,
                           int64_t i)
{
    lvni_sweep_row *row = &t->rows[i];
    if (parameters) {
        LVN_TRY(lvni_sweep_trial_read(t->plan, i, &row->trial));
    }
    row->trial.index = i;
    LVN_TRY(lvni_sweep_reader_look(reader, i, &row->look));
    t->counts[row->look.state]++;
    return LVN_OK;
}

lvn_status lvni_sweep_table_read(const lvni_sweep_plan *plan, bool parameters, lvni_sweep_ask *ask,
                                 void *user, lvni_sweep_table *out)
{
    lvni_sweep_reader *reader = NULL;
    lvn_status s;
    *out = (lvni_sweep_table){.plan = plan, .n = plan->n_trials};
    out->rows = lvni_core_calloc(LVNI_TAG_CORE, (size_t)plan->n_trials, sizeof *out->rows);
    LVNI_TRY_DONE(s, out->rows == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVNI_TRY_DONE(s, lvni_sweep_reader_create(plan, ask, user, NULL, &reader));
    for (int64_t i = 0; i < out->n; i++) {
        LVNI_TRY_DONE(s, read_row(out, reader, parameters, i));
    }
done:
    lvni_sweep_reader_destroy(reader);
    if (s != LVN_OK) {
        lvni_sweep_table_free(out);
    }
    return s;
}

void lvni_sweep_table_free(lvni_sweep_table *t)
{
    for (int64_t i = 0; t->rows != NULL && i < t->n; i++) {
        lvni_sweep_trial_free(&t->rows[i].trial);
    }
    lvni_core_free(t->rows);
    *t = (lvni_sweep_table){.plan = t->plan};
}

/* ---- order ---- */

static bool has_value(const lvni_sweep_row *row)
{
    const lvni_sweep_look *look = &row->look;
    return (look->state == LVNI_SWEEP_DONE || look->state == LVNI_SWEEP_PRUNED) &&
           look->result.has_value && isfinite(look->result.value);
}

static int compare(const void *a, const void *b, void *user)
{
    const lvni_sweep_plan *plan = user;
    const lvni_sweep_row *x = a, *y = b;
    const bool left = has_value(x), right = has_value(y);
    if (left && right && x->look.result.value != y->look.result.value) {
        return (x->look.result.value < y->look.result.value) != plan->maximize ? -1 : 1;
    }
    if (left != right) {
        return left ? -1 : 1;
    }
    return x->trial.index < y->trial.index ? -1 : x->trial.index > y->trial.index;
}

void lvni_sweep_table_sort(lvni_sweep_table *t)
{
    if (t->n > 1) {
        qsort_r(t->rows, (size_t)t->n, sizeof *t->rows, compare, (void *)(uintptr_t)t->plan);
    }
}

const lvni_sweep_row *lvni_sweep_table_best(const lvni_sweep_table *t)
{
    const lvni_sweep_row *best = NULL;
    for (int64_t i = 0; i < t->n; i++) {
        if (has_value(&t->rows[i]) &&
            (best == NULL || compare(&t->rows[i], best, (void *)(uintptr_t)t->plan) < 0)) {
            best = &t->rows[i];
        }
    }
    return best;
}

/* ---- one trial ---- */

/* Of the parameter; NULL: a condition left it out. */
static const char *value_of(const lvni_sweep_trial *trial, const char *name)
{
    for (size_t i = 0; trial->names != NULL && trial->names[i] != NULL; i++) {
        if (strcmp(trial->names[i], name) == 0) {
            return trial->values[i];
        }
    }
    return NULL;
}

/* For people. */
static void add_short(lvni_core_str *out, double value)
{
    char text[32];
    lvni_core_format(text, sizeof text, "%.6g", value);
    lvni_core_str_append(out, text);
}

void lvni_sweep_row_line(const lvni_sweep_plan *plan, const lvni_sweep_row *row, lvni_core_str *out)
{
    const lvni_sweep_trial *trial = &row->trial;
    lvni_core_str_printf(out, "trial %lld", (long long)trial->index);
    for (size_t i = 0; trial->names != NULL && trial->names[i] != NULL; i++) {
        lvni_core_str_message(out, " %s=%s", trial->names[i], trial->values[i]);
    }
    if (row->look.result.has_value) {
        lvni_core_str_message(out, " %s=", plan->metric);
        add_short(out, row->look.result.value);
    }
}

void lvni_sweep_row_checkpoint(const lvni_sweep_row *row, lvni_core_str *out)
{
    if (row->look.result.checkpoint[0] != '\0') {
        lvni_core_str_printf(out, "%s/%s", row->trial.dir, row->look.result.checkpoint);
    }
}

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *text_of(const char *text)
{
    json_t *value = json_string(text);
    if (value == NULL) { /* bytes that are not UTF-8 */
        lvni_core_str s = {0};
        lvni_core_str_escape(&s, text, strlen(text), LVNI_ESCAPE_TEXT);
        value = json_string(lvni_core_str_text(&s));
        lvni_core_str_free(&s);
    }
    return value;
}

/* 0.01 and true are a number and a switch, as in the command. */
static json_t *parameter(const char *text)
{
    json_t *value = NULL;
    if (lvni_core_json_of_yaml("value", text, strlen(text), &value) != LVN_OK) {
        lvn_clear_error();
    }
    if (value != NULL && (json_is_number(value) || json_is_boolean(value))) {
        return value;
    }
    json_decref(value);
    return text_of(text);
}

/* Takes the value. */
static void set(json_t *object, const char *key, json_t *value, bool *failed)
{
    *failed = json_object_set_new(object, key, value) != 0 || *failed;
}

static json_t *parameters(const lvni_sweep_trial *trial, bool *failed)
{
    json_t *object = json_object();
    for (size_t i = 0; trial->names != NULL && trial->names[i] != NULL; i++) {
        set(object, trial->names[i], parameter(trial->values[i]), failed);
    }
    return object;
}

json_t *lvni_sweep_row_json(const lvni_sweep_row *row)
{
    const lvni_sweep_look *look = &row->look;
    const lvni_sweep_result *r = &look->result;
    const bool end = lvni_sweep_state_is_end(look->state), value = end && r->has_value;
    bool failed = false;
    json_t *o = json_object();
    set(o, "trial", json_integer(row->trial.index), &failed);
    set(o, "state", json_string(lvni_sweep_state_name(look->state)), &failed);
    set(o, "parameters", parameters(&row->trial, &failed), &failed);
    set(o, "attempts", json_integer(look->attempt), &failed);
    set(o, "value", value ? number(r->value) : json_null(), &failed);
    set(o, "step", value ? json_integer(r->step) : json_null(), &failed);
    set(o, "epoch", value ? json_integer(r->epoch) : json_null(), &failed);
    set(o, "last", value ? number(r->last) : json_null(), &failed);
    set(o, "epochs", end ? json_integer(r->epochs) : json_null(), &failed);
    set(o, "seconds", end ? number(r->seconds) : json_null(), &failed);
    set(o, "exit_code", end ? json_integer(r->exit_code) : json_null(), &failed);
    set(o, "error", end && r->error[0] != '\0' ? text_of(r->error) : json_null(), &failed);
    set(o, "checkpoint", end && r->checkpoint[0] != '\0' ? text_of(r->checkpoint) : json_null(),
        &failed);
    if (failed) {
        json_decref(o);
        return NULL;
    }
    return o;
}

/* ---- the table ---- */

typedef enum column_kind {
    TRIAL,
    STATE,
    PARAMETER,
    VALUE,
    STEP,
    EPOCH,
    LAST,
    EPOCHS,
    TIME,
    SECONDS,
    ATTEMPTS,
    EXIT_CODE,
    ERROR,
    CHECKPOINT,
    KINDS
} column_kind;

typedef struct column {
    column_kind kind;
    const char *name;
} column;

typedef struct columns {
    column *list;
    size_t n;
    bool exact; /* numbers as they are, for other programs */
} columns;

static const char *const kind_names[KINDS] = {
    "trial",  "state", NULL,      NULL,       "step",      "epoch", "last",
    "epochs", "time",  "seconds", "attempts", "exit_code", "error", "checkpoint"};

/* Those that are asked for, with one for each parameter of the plan. */
static lvn_status choose(const lvni_sweep_plan *plan, lvni_sweep_format format, columns *out)
{
    static const column_kind shown[] = {TRIAL, STATE,  PARAMETER, VALUE,     STEP,
                                        LAST,  EPOCHS, TIME,      CHECKPOINT},
                             read[] = {TRIAL, STATE,  PARAMETER, VALUE,     STEP,
                                       LAST,  EPOCHS, SECONDS,   CHECKPOINT},
                             all[] = {TRIAL,  STATE,   PARAMETER, VALUE,     STEP,  EPOCH,     LAST,
                                      EPOCHS, SECONDS, ATTEMPTS,  EXIT_CODE, ERROR, CHECKPOINT};
    const column_kind *kinds = format == LVNI_SWEEP_CSV   ? all
                               : format == LVNI_SWEEP_TSV ? read
                                                          : shown;
    const size_t n =
        format == LVNI_SWEEP_CSV ? sizeof all / sizeof *all : sizeof shown / sizeof *shown;
    size_t n_parameters = 0;
    while (plan->parameters != NULL && plan->parameters[n_parameters] != NULL) {
        n_parameters++;
    }
    *out = (columns){.exact = format == LVNI_SWEEP_CSV || format == LVNI_SWEEP_TSV};
    out->list = lvni_core_calloc(LVNI_TAG_CORE, n + n_parameters, sizeof *out->list);
    if (out->list == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < (kinds[i] == PARAMETER ? n_parameters : 1); k++) {
            out->list[out->n++] = (column){.kind = kinds[i],
                                           .name = kinds[i] == PARAMETER ? plan->parameters[k]
                                                   : kinds[i] == VALUE   ? plan->metric
                                                                         : kind_names[kinds[i]]};
        }
    }
    return LVN_OK;
}

void lvni_sweep_time_print(double seconds, lvni_core_str *out)
{
    const long long s = isfinite(seconds) && seconds >= 0 && seconds < 1e15 ? llround(seconds) : 0;
    lvni_core_str_printf(out, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
}

/* What only the end of a trial knows. */
static void add_result(const lvni_sweep_result *r, column_kind kind, bool exact, lvni_core_str *out)
{
    switch (kind) {
    case VALUE:
    case LAST:
        if (r->has_value) {
            (exact ? lvni_core_str_double : add_short)(out, kind == VALUE ? r->value : r->last);
        }
        break;
    case STEP:
    case EPOCH:
        if (r->has_value) {
            lvni_core_str_printf(out, "%lld", (long long)(kind == STEP ? r->step : r->epoch));
        }
        break;
    case EPOCHS: lvni_core_str_printf(out, "%lld", (long long)r->epochs); break;
    case TIME: lvni_sweep_time_print(r->seconds, out); break;
    case SECONDS: lvni_core_str_double(out, r->seconds); break;
    case EXIT_CODE: lvni_core_str_printf(out, "%d", r->exit_code); break;
    case ERROR: lvni_core_str_append(out, r->error); break;
    default: break;
    }
}

/* Replaces what is in out. */
static void make_cell(const lvni_sweep_row *row, const column *c, bool exact, lvni_core_str *out)
{
    const char *text = NULL;
    lvni_core_str_clear(out);
    switch (c->kind) {
    case TRIAL: lvni_core_str_printf(out, "%lld", (long long)row->trial.index); break;
    case STATE: text = lvni_sweep_state_name(row->look.state); break;
    case PARAMETER: text = value_of(&row->trial, c->name); break;
    case ATTEMPTS: lvni_core_str_printf(out, "%lld", (long long)row->look.attempt); break;
    case CHECKPOINT:
        if (lvni_sweep_state_is_end(row->look.state)) {
            lvni_sweep_row_checkpoint(row, out);
        }
        break;
    default:
        if (lvni_sweep_state_is_end(row->look.state)) {
            add_result(&row->look.result, c->kind, exact, out);
        }
        break;
    }
    lvni_core_str_append(out, text != NULL ? text : "");
}

static size_t characters(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++) {
        n += (*text & 0xC0) != 0x80;
    }
    return n;
}

/* As it stands in the format. */
static void put_cell(lvni_sweep_format format, const char *text, size_t width, bool first,
                     bool last, lvni_core_str *out)
{
    if (format == LVNI_SWEEP_CSV) {
        lvni_core_str_append(out, first ? "" : ",");
        lvni_run_csv_field(out, text);
        return;
    }
    lvni_core_str shown = {0};
    lvni_core_str_escape(&shown, text, strlen(text), LVNI_ESCAPE_TEXT);
    text = lvni_core_str_text(&shown);
    lvni_core_str_append(out, format == LVNI_SWEEP_MD    ? "| "
                              : first                    ? ""
                              : format == LVNI_SWEEP_TSV ? "\t"
                                                         : "  ");
    for (const char *p = text; *p != '\0'; p++) {
        lvni_core_str_append(out, format == LVNI_SWEEP_MD && *p == '|' ? "\\" : "");
        lvni_core_str_char(out, *p);
    }
    for (size_t n = characters(text); format == LVNI_SWEEP_TEXT && !last && n < width; n++) {
        lvni_core_str_char(out, ' ');
    }
    lvni_core_str_append(out, format != LVNI_SWEEP_MD ? "" : last ? " |" : " ");
    out->failed = out->failed || shown.failed;
    lvni_core_str_free(&shown);
}

/* row NULL: the names. */
static void put_row(const columns *c, const size_t *widths, const lvni_sweep_row *row,
                    lvni_sweep_format format, lvni_core_str *out)
{
    lvni_core_str cell = {0};
    for (size_t k = 0; k < c->n; k++) {
        if (row != NULL) {
            make_cell(row, &c->list[k], c->exact, &cell);
            out->failed = out->failed || cell.failed;
        }
        put_cell(format, row == NULL ? c->list[k].name : lvni_core_str_text(&cell), widths[k],
                 k == 0, k + 1 == c->n, out);
    }
    while (format == LVNI_SWEEP_TEXT && out->len > 0 && out->data[out->len - 1] == ' ') {
        out->data[--out->len] = '\0'; /* the last columns of many trials are empty */
    }
    lvni_core_str_char(out, '\n');
    lvni_core_str_free(&cell);
}

/* Marks out where memory is missing. */
static void measure(const lvni_sweep_table *t, int64_t n, const columns *c, size_t *widths,
                    lvni_core_str *out)
{
    lvni_core_str cell = {0};
    for (size_t k = 0; k < c->n; k++) {
        widths[k] = characters(c->list[k].name);
        for (int64_t i = 0; i < n; i++) {
            make_cell(&t->rows[i], &c->list[k], c->exact, &cell);
            out->failed = out->failed || cell.failed;
            const size_t w = characters(lvni_core_str_text(&cell));
            widths[k] = w > widths[k] ? w : widths[k];
        }
    }
    lvni_core_str_free(&cell);
}

static lvn_status write_rows(const lvni_sweep_table *t, int64_t n, lvni_sweep_format format,
                             lvni_core_str *out)
{
    columns c;
    size_t *widths = NULL;
    lvn_status s;
    LVNI_TRY_DONE(s, choose(t->plan, format, &c));
    widths = lvni_core_calloc(LVNI_TAG_CORE, c.n, sizeof *widths);
    LVNI_TRY_DONE(s, widths == NULL ? LVN_ERR_MEMORY : LVN_OK);
    if (format == LVNI_SWEEP_TEXT) {
        measure(t, n, &c, widths, out);
    }
    put_row(&c, widths, NULL, format, out);
    for (size_t k = 0; format == LVNI_SWEEP_MD && k < c.n; k++) {
        lvni_core_str_append(out, k + 1 == c.n ? "| --- |\n" : "| --- ");
    }
    for (int64_t i = 0; i < n; i++) {
        put_row(&c, widths, &t->rows[i], format, out);
    }
    s = lvni_core_str_status(out);
done:
    lvni_core_free(widths);
    lvni_core_free(c.list);
    return s;
}

static lvn_status write_json(const lvni_sweep_table *t, int64_t n, lvni_core_str *out)
{
    const lvni_sweep_row *best = lvni_sweep_table_best(t);
    bool failed = false;
    json_t *o = json_object(), *trials = json_array();
    for (int64_t i = 0; i < n; i++) {
        failed = json_array_append_new(trials, lvni_sweep_row_json(&t->rows[i])) != 0 || failed;
    }
    set(o, "name", text_of(t->plan->name), &failed);
    set(o, "metric", text_of(t->plan->metric), &failed);
    set(o, "mode", json_string(t->plan->maximize ? "max" : "min"), &failed);
    set(o, "best", best != NULL ? json_integer(best->trial.index) : json_null(), &failed);
    set(o, "trials", trials, &failed);
    lvni_core_json_print(o, JSON_INDENT(1), out);
    lvni_core_str_char(out, '\n');
    json_decref(o);
    return failed ? LVN_ERR_MEMORY : lvni_core_str_status(out);
}

lvn_status lvni_sweep_table_write(const lvni_sweep_table *t, int64_t most, lvni_sweep_format format,
                                  lvni_core_str *out)
{
    const int64_t n = most < t->n ? most : t->n;
    return format == LVNI_SWEEP_JSON ? write_json(t, n, out) : write_rows(t, n, format, out);
}

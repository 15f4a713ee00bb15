/* Records of rungs, and the decisions that are made of them (sweep_asha.h). */
#include "sweep/sweep_asha.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/json_read.h"
#include "core/vfs.h"
#include "sweep/sweep_outcome.h"
#include "sweep/sweep_records_impl.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { RECORD_MOST = 64 << 10, METRICS_MOST = 1 << 30 };

/* ---- the rule ---- */

int64_t lvni_sweep_rung_of(const lvni_sweep_asha *asha, int64_t epoch)
{
    int64_t found = 0;
    for (int64_t rung = asha->min; rung <= epoch && rung < asha->max; rung *= asha->eta) {
        found = rung;
    }
    return found;
}

lvni_sweep_verdict lvni_sweep_asha_decide(int64_t eta, bool maximize, const double *values,
                                          int64_t n)
{
    const double own = values[n - 1];
    lvni_sweep_verdict v = {.place = 1, .kept = n < eta ? n : (n + eta - 1) / eta};
    for (int64_t i = 0; i < n - 1; i++) {
        const double other = values[i];
        const bool behind =
            isfinite(own) && (!isfinite(other) || (maximize ? other < own : other > own));
        v.place += !behind; /* an equal one that came earlier is in front */
    }
    v.stop = !isfinite(own) || v.place > v.kept;
    return v;
}

/* ---- reading ---- */

static void rung_path(const lvni_sweep_plan *plan, int64_t rung, lvni_core_str *out)
{
    lvni_core_str_printf(out, "%s/rungs/%06" PRId64, plan->dir, rung);
}

static int64_t whole(const json_t *object, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(object, key));
}

static bool take_record(const json_t *j, int64_t number, lvni_sweep_record *out)
{
    const json_t *value = json_object_get(j, "value");
    *out = (lvni_sweep_record){
        .of = {.trial = whole(j, "trial"),
               .attempt = whole(j, "attempt"),
               .epoch = whole(j, "epoch"),
               .value = json_is_number(value) ? json_number_value(value) : (double)NAN},
        .saw = whole(j, "saw"),
        .verdict = {.place = whole(j, "place"),
                    .kept = whole(j, "kept"),
                    .stop = json_is_true(json_object_get(j, "stop"))}};
    return json_is_object(j) && out->saw == number;
}

/* *there: there is one of this number. */
static lvn_status read_record(const char *dir, int64_t number, lvni_sweep_record *out, bool *there)
{
    lvni_core_str path = {0};
    char *text = NULL;
    size_t n = 0;
    const lvn_error before = *lvn_last_error();
    lvni_sweep_file(&path, dir, "record", number);
    lvn_status s = lvni_core_str_status(&path);
    if (s == LVN_OK) {
        s = lvni_core_file_read(path.data, RECORD_MOST, &text, &n);
    }
    *there = s == LVN_OK;
    if (s == LVN_ERR_NOT_FOUND) {
        lvni_core_error_restore(&before);
        s = LVN_OK;
    } else if (s == LVN_OK) {
        json_t *j = lvni_core_json_try(text, LVNI_JSON_FILE);
        if (!take_record(j, number, out)) {
            s = lvn_error_set(LVN_ERR_CORRUPT, __FILE__, __LINE__,
                              "%s: it is not a record that levin sweep report has written; "
                              "decisions of its rung rest on it, so plan another sweep",
                              path.data);
        }
        json_decref(j);
    }
    lvni_core_free(text);
    lvni_core_str_free(&path);
    return s;
}

/* Those behind the first *n, which are there already. */
static lvn_status read_more(const char *dir, lvni_sweep_record **records, int64_t *n)
{
    for (bool there = true;; ++*n) {
        lvni_sweep_record one;
        LVN_TRY(read_record(dir, *n + 1, &one, &there));
        if (!there) {
            return LVN_OK;
        }
        if ((*n & (*n + 1)) == 0) { /* room doubles */
            lvni_sweep_record *more =
                lvni_core_realloc(LVNI_TAG_CORE, *records, (size_t)(2 * *n + 1) * sizeof *more);
            if (more == NULL) {
                return LVN_ERR_MEMORY;
            }
            *records = more;
        }
        (*records)[*n] = one;
    }
}

lvn_status lvni_sweep_rung_read(const lvni_sweep_plan *plan, int64_t rung, lvni_sweep_record **out,
                                int64_t *n)
{
    lvni_core_str dir = {0};
    *out = NULL;
    *n = 0;
    rung_path(plan, rung, &dir);
    lvn_status s = lvni_core_str_status(&dir);
    s = s == LVN_OK ? read_more(dir.data, out, n) : s;
    lvni_core_str_free(&dir);
    if (s != LVN_OK) {
        lvni_core_free(*out);
        *out = NULL;
    }
    return s;
}

/* ---- reporting ---- */

static const lvni_sweep_record *find_trial(const lvni_sweep_record *records, int64_t n,
                                           int64_t trial)
{
    for (int64_t i = 0; i < n; i++) {
        if (records[i].of.trial == trial) {
            return &records[i];
        }
    }
    return NULL;
}

/* About a value that comes behind n records. */
static lvn_status decide(const lvni_sweep_plan *plan, const lvni_sweep_record *records, int64_t n,
                         double value, lvni_sweep_verdict *out)
{
    double *values = lvni_core_alloc(LVNI_TAG_CORE, (size_t)(n + 1) * sizeof *values);
    if (values == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < n; i++) {
        values[i] = records[i].of.value;
    }
    values[n] = value;
    *out = lvni_sweep_asha_decide(plan->asha.eta, plan->maximize, values, n + 1);
    lvni_core_free(values);
    return LVN_OK;
}

/* A value that is not finite is null. */
static void record_text(const lvni_sweep_record *r, lvni_core_str *out)
{
    lvni_core_str_clear(out);
    lvni_core_str_printf(
        out, "{\"trial\":%" PRId64 ",\"attempt\":%" PRId64 ",\"epoch\":%" PRId64 ",\"value\":",
        r->of.trial, r->of.attempt, r->of.epoch);
    if (isfinite(r->of.value)) {
        lvni_core_str_double(out, r->of.value);
    } else {
        lvni_core_str_append(out, "null");
    }
    lvni_core_str_printf(
        out, ",\"saw\":%" PRId64 ",\"place\":%" PRId64 ",\"kept\":%" PRId64 ",\"stop\":%s}\n",
        r->saw, r->verdict.place, r->verdict.kept, r->verdict.stop ? "true" : "false");
}

/* The trial's record at the rung: the one that is there, or a new one behind all others. A number
 * that another was first to link is read, and the decision is made again with it. */
static lvn_status settle(const lvni_sweep_plan *plan, const char *dir,
                         const lvni_sweep_report *report, const lvni_sweep_owner *by,
                         lvni_sweep_record *out)
{
    lvni_sweep_record *records = NULL;
    const lvni_sweep_record *found = NULL;
    lvni_core_str text = {0};
    int64_t n = 0;
    bool won = false;
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_mkdirs(dir));
    while (!won && found == NULL) {
        LVNI_TRY_DONE(s, read_more(dir, &records, &n));
        found = find_trial(records, n, report->trial);
        if (found != NULL) {
            *out = *found;
            break;
        }
        *out = (lvni_sweep_record){.of = *report, .saw = n + 1};
        LVNI_TRY_DONE(s, decide(plan, records, n, report->value, &out->verdict));
        record_text(out, &text);
        LVNI_TRY_DONE(s, lvni_core_str_status(&text));
        LVNI_TRY_DONE(s, lvni_sweep_publish(dir, "record", n + 1, true, by, text.data, &won));
    }
done:
    lvni_core_free(records);
    lvni_core_str_free(&text);
    return s;
}

static bool has_file(const char *dir, const char *name, int64_t attempt)
{
    lvni_core_str path = {0};
    lvni_sweep_file(&path, dir, name, attempt);
    const bool there = lvni_core_str_status(&path) == LVN_OK && lvni_core_path_exists(path.data);
    lvni_core_str_free(&path);
    return there;
}

bool lvni_sweep_was_pruned(const char *dir, int64_t attempt)
{
    return has_file(dir, "pruned", attempt);
}

/* Has an attempt since that record been pruned, and the trial been asked for by hand again? */
static bool is_resumed(const char *dir, const lvni_sweep_record *record, int64_t attempt)
{
    for (int64_t k = record->of.attempt; k < attempt; k++) {
        if (has_file(dir, "failed", k) && lvni_sweep_was_pruned(dir, k)) {
            return true;
        }
    }
    return false;
}

/* So that the attempt's end is a pruned trial. */
static lvn_status mark(const char *dir, int64_t rung, const lvni_sweep_record *record,
                       int64_t attempt, const lvni_sweep_owner *by)
{
    lvni_core_str text = {0};
    bool won;
    lvni_core_str_printf(&text, "{\"rung\":%" PRId64 ",\"record\":%" PRId64 "}\n", rung,
                         record->saw);
    lvn_status s = lvni_core_str_status(&text);
    if (s == LVN_OK) { /* another process of the trial may have been first */
        s = lvni_sweep_publish(dir, "pruned", attempt, true, by, text.data, &won);
    }
    lvni_core_str_free(&text);
    return s;
}

lvn_status lvni_sweep_asha_report(const lvni_sweep_plan *plan, const lvni_sweep_report *report,
                                  const lvni_sweep_owner *by, bool *stop)
{
    const int64_t rung = lvni_sweep_rung_of(&plan->asha, report->epoch);
    lvni_core_str dir = {0}, trial = {0};
    lvni_sweep_record record = {.saw = 0};
    lvn_status s = LVN_OK;
    *stop = report->epoch >= plan->asha.max;
    if (*stop || rung == 0) {
        return LVN_OK;
    }
    rung_path(plan, rung, &dir);
    lvni_sweep_trial_path(plan, report->trial, &trial);
    LVNI_TRY_DONE(s, lvni_core_str_status(&dir));
    LVNI_TRY_DONE(s, lvni_core_str_status(&trial));
    LVNI_TRY_DONE(s, settle(plan, dir.data, report, by, &record));
    if (record.verdict.stop && !is_resumed(trial.data, &record, report->attempt)) {
        *stop = true;
        s = mark(trial.data, rung, &record, report->attempt, by);
    }
done:
    lvni_core_str_free(&dir);
    lvni_core_str_free(&trial);
    return s;
}

/* ---- trainings ---- */

/* Of a line of metrics.jsonl: an epoch that the trial has done, and the metric. */
static bool take_line(const lvni_sweep_plan *plan, const char *text, lvni_sweep_report *out)
{
    json_t *line =
        strstr(text, plan->metric) != NULL ? lvni_core_json_try(text, LVNI_JSON_FILE) : NULL;
    const json_t *value = json_object_get(line, plan->metric);
    const bool found = value != NULL;
    out->epoch = whole(line, "epoch");
    out->value = json_is_number(value) ? json_number_value(value) : (double)NAN;
    json_decref(line);
    return found;
}

lvn_status lvni_sweep_asha_follow(const lvni_sweep_plan *plan, int64_t trial, int64_t attempt,
                                  const lvni_sweep_owner *by, int64_t *rung, bool *stop)
{
    lvni_core_str path = {0};
    char *text = NULL;
    size_t n = 0;
    const lvn_error before = *lvn_last_error();
    *stop = false;
    lvni_sweep_trial_path(plan, trial, &path);
    lvni_core_str_append(&path, "/" LVNI_SWEEP_RUN "/metrics.jsonl");
    lvn_status s = lvni_core_str_status(&path);
    if (s == LVN_OK && lvni_core_regular_read(path.data, METRICS_MOST, &text, &n) != LVN_OK) {
        lvni_core_error_restore(&before); /* there is nothing yet */
    }
    for (char *at = text, *next; s == LVN_OK && !*stop && at != NULL; at = next) {
        next = strchr(at, '\n'); /* a line without its end is still being written */
        if (next == NULL) {
            break;
        }
        *next++ = '\0';
        lvni_sweep_report report = {.trial = trial, .attempt = attempt};
        if (take_line(plan, at, &report) && report.epoch < plan->asha.max &&
            lvni_sweep_rung_of(&plan->asha, report.epoch) > *rung) {
            *rung = lvni_sweep_rung_of(&plan->asha, report.epoch);
            s = lvni_sweep_asha_report(plan, &report, by, stop);
        }
    }
    lvni_core_free(text);
    lvni_core_str_free(&path);
    return s;
}

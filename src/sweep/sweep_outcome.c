/* The result of a trial from its files (sweep_outcome.h): metrics.jsonl, the error record, the log.
 * Called by sweep_work.c when a trial's program has ended. */
#include "sweep/sweep_outcome.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/json_read.h"
#include "core/vfs.h"
#include "sweep/sweep_asha.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { METRICS_MAX = 1 << 30, LOG_MAX = 1 << 30, RECORDS = 16 };

/* NULL: there is none that can be read. */
static char *read_file(const char *dir, const char *name, size_t most, size_t *n)
{
    lvni_core_str path = {0};
    char *text = NULL;
    lvni_core_str_printf(&path, "%s/%s", dir, name);
    if (lvni_core_str_status(&path) != LVN_OK ||
        lvni_core_regular_read(path.data, most, &text, n) != LVN_OK) {
        text = NULL;
    }
    lvni_core_str_free(&path);
    return text;
}

/* ---- metrics.jsonl ---- */

/* The metric as the file has it, with its quotes: `val_loss` is another name of `val/loss`. */
static void quoted(const char *metric, bool alias, char *out, size_t room)
{
    snprintf(out, room, "\"%s\"", metric);
    char *first = alias && strchr(metric, '/') == NULL ? strchr(out, '_') : NULL;
    if (first != NULL) {
        *first = '/';
    }
}

static void take_value(const lvni_sweep_plan *plan, const json_t *line, const json_t *value,
                       lvni_sweep_result *out)
{
    const double v = json_is_number(value) ? json_number_value(value) : (double)NAN;
    const bool better = isfinite(v) && (!out->has_value || !isfinite(out->value) ||
                                        (plan->maximize ? v > out->value : v < out->value));
    if (!out->has_value || better) {
        out->value = v;
        out->step = json_integer_value(json_object_get(line, "step"));
        out->epoch = json_integer_value(json_object_get(line, "epoch"));
    }
    out->has_value = true;
    out->last = v;
}

/* Lines are parsed only where the metric stands in them, and the last one. */
static void take_lines(const lvni_sweep_plan *plan, char *text, lvni_sweep_result *out)
{
    char name[256], other[256];
    quoted(plan->metric, false, name, sizeof name);
    quoted(plan->metric, true, other, sizeof other);
    for (char *at = text, *next; at != NULL && *at != '\0'; at = next) {
        next = strchr(at, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        const bool last = next == NULL || *next == '\0';
        const char *key = strstr(at, name) != NULL    ? name
                          : strstr(at, other) != NULL ? other
                                                      : NULL;
        json_t *line = key != NULL || last ? lvni_core_json_try(at, LVNI_JSON_FILE) : NULL;
        if (key != NULL) {
            char plain[256];
            snprintf(plain, sizeof plain, "%.*s", (int)strlen(key) - 2, key + 1);
            const json_t *value = json_object_get(line, plain);
            if (value != NULL) {
                take_value(plan, line, value, out);
            }
        }
        const int64_t epoch = json_integer_value(json_object_get(line, "epoch"));
        out->epochs = epoch > out->epochs ? epoch : out->epochs;
        json_decref(line);
    }
}

int64_t lvni_sweep_steps(const char *dir)
{
    size_t n = 0;
    int64_t steps = 0;
    char *text = read_file(dir, LVNI_SWEEP_RUN "/metrics.jsonl", METRICS_MAX, &n);
    if (text != NULL) {
        while (n > 0 && text[n - 1] == '\n') {
            text[--n] = '\0';
        }
        const char *last = strrchr(text, '\n');
        json_t *line = lvni_core_json_try(last != NULL ? last + 1 : text, LVNI_JSON_FILE);
        steps = json_integer_value(json_object_get(line, "step"));
        json_decref(line);
    }
    lvni_core_free(text);
    return steps;
}

/* ---- the error ---- */

/* The first line of the text, without control characters. */
static void take_error(lvni_sweep_result *out, const char *text)
{
    lvni_core_escape(out->error, sizeof out->error, text, strcspn(text, "\n"), LVNI_ESCAPE_TEXT);
}

/* The record of the process itself, or of the first of its ranks that did not end because of
 * another. */
static bool take_record(const char *dir, lvni_sweep_result *out, bool *diverged)
{
    for (int i = -1; i < RECORDS; i++) {
        lvni_core_error_record record;
        lvni_core_str path = {0};
        lvni_core_str_printf(&path, "%s/", dir);
        if (i < 0) {
            lvni_core_str_append(&path, LVNI_SWEEP_ERROR);
        } else {
            lvni_core_str_printf(&path, LVNI_SWEEP_RUN "/errors/attempt_0_rank_%d.json", i);
        }
        const bool found = lvni_core_str_status(&path) == LVN_OK &&
                           lvni_core_error_record_read(path.data, &record) == LVN_OK &&
                           strcmp(record.kind, "peer") != 0;
        lvni_core_str_free(&path);
        if (found) {
            take_error(out, record.message);
            *diverged = strcmp(record.kind, "nan") == 0;
            return true;
        }
    }
    return false;
}

/* Of what this attempt printed: the first line that begins with "error", else the last one. */
static void take_log(const char *dir, int64_t from, lvni_sweep_result *out)
{
    size_t n = 0;
    char *text = read_file(dir, LVNI_SWEEP_LOG, LOG_MAX, &n);
    const char *line = NULL;
    if (text != NULL && (size_t)from < n) {
        char *at = text + from;
        for (char *next; at != NULL && *at != '\0'; at = next) {
            next = strchr(at, '\n');
            if (next != NULL) {
                *next++ = '\0';
            }
            if (*at != '\0') {
                line = at;
            }
            if (strncmp(at, "error: ", 7) == 0 || strncmp(at, "levin: error", 12) == 0) {
                break;
            }
        }
    }
    if (line != NULL) {
        take_error(out, line);
    }
    lvni_core_free(text);
}

/* ---- all of it ---- */

/* The checkpoint of the best value, else the last one, relative to the trial. */
static void take_checkpoint(const char *dir, lvni_sweep_result *out)
{
    static const char *const names[] = {LVNI_SWEEP_RUN "/checkpoints/best.safetensors",
                                        LVNI_SWEEP_RUN "/checkpoints/last.safetensors"};
    for (int i = 0; i < 2 && out->checkpoint[0] == '\0'; i++) {
        lvni_core_str path = {0};
        lvni_core_str_printf(&path, "%s/%s", dir, names[i]);
        if (lvni_core_str_status(&path) == LVN_OK && lvni_core_path_exists(path.data)) {
            snprintf(out->checkpoint, sizeof out->checkpoint, "%s", names[i]);
        }
        lvni_core_str_free(&path);
    }
}

void lvni_sweep_outcome(const lvni_sweep_plan *plan, const char *dir, int exit_code,
                        int64_t log_from, lvni_sweep_result *out)
{
    const lvn_error before = *lvn_last_error();
    size_t n = 0;
    bool diverged = false;
    out->exit_code = exit_code;
    char *metrics = read_file(dir, LVNI_SWEEP_RUN "/metrics.jsonl", METRICS_MAX, &n);
    if (metrics != NULL) {
        take_lines(plan, metrics, out);
    }
    lvni_core_free(metrics);
    if (exit_code != LVNI_EXIT_OK && !take_record(dir, out, &diverged)) {
        take_log(dir, log_from, out);
    }
    if (plan->training) {
        take_checkpoint(dir, out);
    }
    if (exit_code == LVNI_EXIT_OK) {
        diverged = out->has_value && !(isfinite(out->last) && isfinite(out->value));
    }
    if (exit_code == LVNI_EXIT_OK && lvni_sweep_was_pruned(dir, out->attempt)) {
        out->state = LVNI_SWEEP_PRUNED; /* also where its value is not a number */
        lvni_core_error_restore(&before);
        return;
    }
    out->state = diverged                    ? LVNI_SWEEP_DIVERGED
                 : exit_code == LVNI_EXIT_OK ? LVNI_SWEEP_DONE
                                             : LVNI_SWEEP_FAILED;
    lvni_core_error_restore(&before); /* files that are not there are not errors */
}

/* What `predict` and `eval` write where the recipe does not: a line of numbers for each sample, as
 * CSV or JSON lines, and the means of what the validation step logs (inference.h). */
#include "run/inference.h"

#include "core/escape.h"
#include "core/vfs.h"
#include "run/options.h"
#include "run/output_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- keys ---- */

static const lvni_core_option predict_rows[] = {
    {.name = "output",
     .type = LVNI_OPT_PATH,
     .fallback = "predictions.csv",
     .help = "File to write: a table (.csv) or JSON lines (.jsonl), a line for each sample; -: "
             "stdout."},
};
const lvni_core_option_table lvni_run_predict_options = LVNI_OPTION_TABLE("predict", predict_rows);

static const lvni_core_option eval_rows[] = {
    {.name = "split",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|val|train",
     .fallback = "auto",
     .help = "Dataset of the recipe to measure on; auto: that of the validation, where it has one, "
             "else that of the training."},
};
const lvni_core_option_table lvni_run_eval_options = LVNI_OPTION_TABLE("eval", eval_rows);

/* ---- the data ---- */

lvn_status lvni_run_choose_data(lvni_run_inference *u)
{
    const lvni_run_job *job = &u->exported->job;
    const char *split = lvni_core_config_has(u->config, "split")
                            ? lvni_core_config_str(u->config, "split")
                            : "auto";
    if (job->used != NULL) {
        u->data = job->used;
        u->split = "data";
        return LVN_OK;
    }
    const bool val = strcmp(split, "val") == 0 || (strcmp(split, "auto") == 0 && job->val != NULL);
    u->split = val ? "val" : "train";
    u->data = val ? job->val : job->train;
    if (u->data == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: the recipe opens no dataset for %s%s",
                 lvni_run_typed(u->recipe), val ? "validation" : "training",
                 val ? "; split=train measures on that of the training" : "");
    }
    return LVN_OK;
}

const char *lvni_run_sample_name(const lvni_run_inference *u, int64_t sample, char number[24])
{
    const lvn_dataset *d = u->data;
    snprintf(number, 24, "%lld", (long long)sample);
    const char *name = d->cls->sample_name == NULL ? NULL : d->cls->sample_name(d, sample);
    return name == NULL ? number : name;
}

/* ---- rows ---- */

static const char *column_of(const lvni_run_inference *u, int64_t i, char number[24])
{
    const char *name = u->results->column == NULL ? NULL : u->results->column(u, (int)i);
    snprintf(number, 24, "%lld", (long long)i);
    return name == NULL ? number : name;
}

static void write_head(lvni_run_inference *u, int64_t k)
{
    char number[24];
    lvni_core_str_append(&u->text, "sample");
    for (int64_t i = 0; i < k; i++) {
        lvni_core_str_append(&u->text, ",");
        lvni_run_csv_field(&u->text, column_of(u, i, number));
    }
    lvni_core_str_append(&u->text, "\n");
}

static void write_value(lvni_core_str *out, float x, bool json)
{
    if (json && !isfinite(x)) {
        lvni_core_str_append(out, "null");
    } else {
        lvni_core_str_printf(out, "%.9g", (double)x);
    }
}

lvn_status lvni_run_take_row(lvni_run_inference *u, int64_t sample, const float *value, int64_t k)
{
    char number[24];
    if (u->n++ == 0 && !u->lines) {
        write_head(u, k);
    }
    const char *name = lvni_run_sample_name(u, sample, number);
    if (u->lines) {
        lvni_core_str_append(&u->text, "{\"sample\": ");
        lvni_core_str_json(&u->text, name);
    } else {
        lvni_run_csv_field(&u->text, name);
    }
    for (int64_t i = 0; i < k; i++) {
        lvni_core_str_append(&u->text, u->lines ? ", " : ",");
        if (u->lines) {
            lvni_core_str_json(&u->text, column_of(u, i, number));
            lvni_core_str_append(&u->text, ": ");
        }
        write_value(&u->text, value[i], u->lines);
    }
    lvni_core_str_append(&u->text, u->lines ? "}\n" : "\n");
    return lvni_core_str_status(&u->text);
}

lvn_status lvni_run_check_rows(const lvni_run_inference *u)
{
    if (u->n == 0) {
        int64_t n = u->data->cls->length(u->data);
        LVN_FAIL(LVN_ERR_CORRUPT, "none of the %lld sample%s could be read: see the warning",
                 (long long)n, lvni_core_plural(n, "", "s"));
    }
    return LVN_OK;
}

lvn_status lvni_run_write_rows(lvni_run_inference *u)
{
    LVN_TRY(lvni_run_check_rows(u));
    const char *path = lvni_run_output_path(u->config);
    LVN_TRY(lvni_core_file_write(path, lvni_core_str_text(&u->text), u->text.len));
    if (!lvni_run_output_is_stdout(u->config)) {
        lvni_core_print(stdout, "%lld prediction%s in %s\n", (long long)u->n,
                        lvni_core_plural(u->n, "", "s"), path);
    }
    return LVN_OK;
}

/* ---- metrics ---- */

static void print_metrics(const lvni_run_inference *u, bool json, lvni_core_str *out)
{
    const lvni_nn_step *m = &u->metrics;
    const int64_t n = u->data->cls->length(u->data);
    if (json) {
        lvni_core_str_append(out, "{\"model\": ");
        lvni_core_str_json(out, lvni_core_config_str(u->config, "model"));
        lvni_core_str_printf(out, ", \"split\": \"%s\", \"samples\": %lld, \"metrics\": {",
                             u->split, (long long)n);
    } else {
        lvni_core_str_printf(out, "%s: %lld sample%s\n", u->split, (long long)n,
                             lvni_core_plural(n, "", "s"));
    }
    for (int i = 0; i < m->n_metrics; i++) {
        const double mean = lvni_trainer_metric_mean(m, m->metric[i].name);
        if (!json) {
            lvni_core_str_printf(out, "%s %.6g\n", m->metric[i].name, mean);
            continue;
        }
        lvni_core_str_append(out, i == 0 ? "" : ", ");
        lvni_core_str_json(out, m->metric[i].name);
        lvni_core_str_append(out, ": ");
        if (isfinite(mean)) {
            lvni_core_str_double(out, mean);
        } else {
            lvni_core_str_append(out, "null");
        }
    }
    lvni_core_str_append(out, json ? "}}\n" : "");
}

lvn_status lvni_run_print_metrics(lvni_run_inference *u)
{
    lvni_core_str text = {0};
    if (u->metrics.n_metrics == 0) {
        LVN_FAIL(LVN_ERR_INVALID,
                 "%s: the module %s logs nothing to measure: call lvn_log in its validation step",
                 lvni_run_typed(u->recipe), u->exported->job.cls->name);
    }
    print_metrics(u, lvni_core_config_bool(u->config, "json"), &text);
    lvn_status s = lvni_core_str_status(&text);
    if (s == LVN_OK) {
        s = lvni_core_file_write(LVNI_STDOUT_PATH, lvni_core_str_text(&text), text.len);
    }
    lvni_core_str_free(&text);
    return s;
}

bool lvni_run_metric_find(const lvni_nn_step *m, const char *metric, double *mean,
                          lvni_core_str *names)
{
    const char *name = strncmp(metric, "val/", 4) == 0 ? metric + 4 : metric;
    for (int i = 0; i < m->n_metrics; i++) {
        if (strcmp(name, m->metric[i].name) == 0) {
            *mean = lvni_trainer_metric_mean(m, name);
            return true;
        }
        lvni_core_str_printf(names, "%s%s", i > 0 ? ", " : "", m->metric[i].name);
    }
    return false;
}

lvn_status lvni_run_metric_score(lvni_run_inference *u, const char *metric, double *out, bool *more)
{
    lvni_core_str names = {0};
    lvn_status s = LVN_OK;
    if (lvni_run_metric_find(&u->metrics, metric, out, &names)) {
        *more = lvni_run_is_better_when_more(metric);
    } else {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "choose=%s: the validation step logs no such metric; it has %s", metric,
                          names.len > 0 ? lvni_core_str_text(&names) : "none");
    }
    lvni_core_str_free(&names);
    return s;
}

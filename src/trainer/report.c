/* What a run logs while it runs: metrics.jsonl, and the progress line or plain lines. */
#include "core/alloc.h"
#include "core/machine.h"
#include "core/math.h"
#include "core/str.h"
#include "log/metrics.h"
#include "log/run_log.h"
#include "tensor/device.h"
#include "trainer/phases.h"
#include "trainer/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { LINE = LVNI_METRICS * 2 + LVNI_PHASES + 10, NAME = 48 };

double lvni_trainer_metric_mean(const lvni_nn_step *step, const char *name)
{
    for (int i = 0; i < step->n_metrics; i++) {
        if (strcmp(step->metric[i].name, name) == 0) {
            return step->metric[i].sum / step->metric[i].weight;
        }
    }
    return (double)NAN;
}

lvn_status lvni_trainer_report_open(lvni_trainer *t)
{
    lvni_log_progress_init(&t->progress, &(lvni_log_progress_options){
                                             .fd = t->o.quiet ? -1 : lvni_log_progress_terminal(),
                                             .quiet = t->o.quiet,
                                             .plain_interval_s = 60.0});
    if (t->o.out == NULL) {
        return LVN_OK;
    }
    lvni_core_str path = {0};
    lvni_core_str_printf(&path, "%s/metrics.jsonl", t->o.out);
    lvn_status s = lvni_core_str_status(&path);
    if (s == LVN_OK && t->at.step > 0) {
        s = lvni_log_metrics_truncate(lvni_core_str_text(&path), t->at.step, NULL, &t->earlier_s);
        t->logged_at_s = t->earlier_s;
    }
    if (s == LVN_OK) {
        s = lvni_log_metrics_open(lvni_core_str_text(&path), t->at.step > 0, &t->log);
    }
    lvni_core_str_free(&path);
    return s;
}

void lvni_trainer_report_close(lvni_trainer *t)
{
    lvni_log_metrics_close(t->log);
    t->log = NULL;
}

static uint64_t peak_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024u;
}

/* "train/loss" and so on, names kept in `text`. suffix: "_step" for those of one batch */
static int metric_rows(const lvni_nn_step *step, const char *prefix, const char *suffix,
                       char text[][NAME], lvni_log_metric *row)
{
    for (int i = 0; i < step->n_metrics; i++) {
        snprintf(text[i], sizeof text[i], "%s/%s%s", prefix, step->metric[i].name, suffix);
        row[i] = (lvni_log_metric){.name = text[i],
                                   .value = step->metric[i].sum / step->metric[i].weight};
    }
    return step->n_metrics;
}

/* Optimizer steps to the end of the run; -1: unknown. */
static int64_t steps_left(const lvni_trainer *t)
{
    int64_t left = -1;
    if (t->o.max_epochs >= 0) {
        left = (t->o.max_epochs - t->at.epoch) * t->o.plan.steps_per_epoch - t->at.step_in_epoch;
    }
    if (t->o.max_steps >= 0 && (left < 0 || t->o.max_steps - t->at.step < left)) {
        left = t->o.max_steps - t->at.step;
    }
    return left;
}

static void show(lvni_trainer *t, const lvni_trainer_step_result *r, double now_s, bool logged,
                 bool last)
{
    const int64_t left = steps_left(t);
    const double per_step =
        t->rate > 0.0 ? (double)t->o.plan.effective_batch / t->rate : (double)NAN;
    const lvni_log_progress_state state = {
        .epoch = t->at.epoch,
        .max_epochs = t->o.max_epochs > 0 ? t->o.max_epochs : 0,
        .step = t->at.step_in_epoch,
        .steps = t->o.plan.steps_per_epoch,
        .loss = lvni_trainer_metric_mean(&r->metrics, "loss"),
        .accuracy = lvni_trainer_metric_mean(&r->metrics, "acc"),
        .samples_per_s = t->rate > 0.0 ? t->rate : (double)NAN,
        .lr = r->lr,
        .memory_bytes = logged || last ? peak_bytes() : lvni_core_alloc_get_total().peak_bytes,
        .left_s = left >= 0 ? (double)left * per_step : (double)NAN};
    lvni_log_progress_update(&t->progress, &state, now_s, logged, last);
}

/* Samples per second since the last measurement; one over a few milliseconds means nothing, so the
 * old rate stays then. */
static void measure_rate(lvni_trainer *t, double now_s)
{
    const double s = now_s - t->logged_at_s;
    if (s > 0.0 && (s >= 0.2 || !(t->rate > 0.0))) {
        t->rate = (double)(t->samples_this_run - t->logged_at) / s;
        t->logged_at = t->samples_this_run;
        t->logged_at_s = now_s;
    }
}

/* Of training: a resumed run goes on counting where its last line ended. */
static double seconds_of(const lvni_trainer *t)
{
    return t->earlier_s + lvni_core_seconds_since(t->start_ns);
}

lvn_status lvni_trainer_report_step(lvni_trainer *t, const lvni_trainer_step_result *r,
                                    bool last_of_epoch)
{
    const double now_s = seconds_of(t);
    const bool logged = t->at.step % t->o.log_every_n_steps == 0 || last_of_epoch;
    t->samples_this_run += r->samples;
    if (logged) {
        measure_rate(t, now_s);
    }
    show(t, r, now_s, logged, last_of_epoch);
    if (!logged || t->log == NULL) {
        return LVN_OK;
    }
    char text[LVNI_METRICS][NAME], norm[LVNI_PHASES][64];
    lvni_log_metric row[LINE];
    int n = metric_rows(&r->metrics, "train", "_step", text, row);
    row[n++] = (lvni_log_metric){.name = "lr", .value = r->lr};
    for (int i = 0; i < r->n_phases; i++) {
        const char *phase = lvni_trainer_phases_name(t->o.model, i);
        snprintf(norm[i], sizeof norm[i], "grad_norm%s%s", phase[0] != '\0' ? "/" : "", phase);
        row[n++] = (lvni_log_metric){.name = norm[i], .value = r->phase[i].grad_norm};
    }
    if (t->engine->scaler.on) {
        row[n++] = (lvni_log_metric){.name = "amp/scale", .value = t->engine->scaler.scale};
        row[n++] = (lvni_log_metric){.name = "amp/skipped_steps",
                                     .value = (double)t->engine->scaler.skipped};
    }
    row[n++] = (lvni_log_metric){.name = "throughput/samples_per_s", .value = t->rate};
    row[n++] = (lvni_log_metric){.name = "memory/peak_bytes", .value = (double)peak_bytes()};
    lvni_tensor_device *device = lvni_tensor_device_of(t->o.model->weights);
    if (device != NULL) {
        row[n++] = (lvni_log_metric){.name = "memory/device_peak_bytes",
                                     .value = (double)lvni_tensor_device_get_stats(device).peak};
    }
    return lvni_log_metrics_write(t->log, t->at.step, t->at.epoch + 1, now_s, row, n);
}

lvn_status lvni_trainer_report_epoch(lvni_trainer *t, bool validated)
{
    char text[LVNI_METRICS][NAME], val_text[LVNI_METRICS][NAME];
    lvni_log_metric row[LINE] = {0};
    int n = metric_rows(&t->epoch_sum, "train", "", text, row);
    if (validated) {
        n += metric_rows(&t->last_val, "val", "", val_text, row + n);
    }
    lvni_core_str line = {0};
    lvni_core_str_printf(&line, "epoch %lld done at step %lld:", (long long)t->at.epoch + 1,
                         (long long)t->at.step);
    for (int i = 0; i < n; i++) {
        lvni_core_str_printf(&line, " %s %.4f", row[i].name, lvni_core_unsigned_nan(row[i].value));
    }
    lvni_log_progress_finish(&t->progress); /* its numbers are older than these */
    lvni_log_line(LVNI_LOG_INFO, "%s", lvni_core_str_text(&line));
    lvni_core_str_free(&line);
    if (t->engine->scaler.in_epoch > 0) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "epoch %lld: %lld of its steps were skipped, since gradients overflowed in "
                      "f16; the loss scale is %g now",
                      (long long)t->at.epoch + 1, (long long)t->engine->scaler.in_epoch,
                      t->engine->scaler.scale);
    }
    return t->log == NULL
               ? LVN_OK
               : lvni_log_metrics_write(t->log, t->at.step, t->at.epoch + 1, seconds_of(t), row, n);
}

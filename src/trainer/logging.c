/* What a run logs while it runs (trainer.h): metrics.jsonl, the loggers that were asked for, the
 * progress line or plain lines, and the sums of an epoch's metrics, which checkpoints hold as
 * text. */
#include "core/alloc.h"
#include "core/error.h"
#include "core/json_read.h"
#include "core/machine.h"
#include "core/math.h"
#include "core/str.h"
#include "log/loggers.h"
#include "log/run_log.h"
#include "tensor/device.h"
#include "trainer/logging_impl.h"
#include "trainer/phases.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { LINE = LVNI_METRICS * 2 + LVNI_PHASES * 2 + 19, NAME = 56, GROWING = 4 };

double lvni_trainer_metric_mean(const lvni_nn_step *step, const char *name)
{
    for (int i = 0; i < step->n_metrics; i++) {
        if (strcmp(step->metric[i].name, name) == 0) {
            return step->metric[i].sum / step->metric[i].weight;
        }
    }
    return (double)NAN;
}

static lvn_status open_loggers(lvni_trainer_logging *r, int64_t step, bool ends_again)
{
    const lvni_log_loggers_options o = {.dir = r->o->out,
                                        .names = r->o->loggers,
                                        .n_names = r->o->n_loggers,
                                        .config_json = r->o->config_json,
                                        .run_id = r->o->run_id,
                                        .step = step,
                                        .resumed = r->resumed,
                                        .ends_again = ends_again};
    LVN_TRY(lvni_log_loggers_open(&o, &r->loggers));
    return r->resumed ? LVN_OK : lvni_trainer_logging_samples(r);
}

/* Of all threads of the process. */
static double cpu_seconds(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

lvn_status lvni_trainer_logging_open(lvni_trainer_logging *r, int64_t step, bool ends_again)
{
    lvni_log_progress_init(&r->progress, &(lvni_log_progress_options){
                                             .fd = r->o->quiet ? -1 : lvni_log_progress_terminal(),
                                             .quiet = r->o->quiet,
                                             .plain_interval_s = 60.0});
    if (r->o->out == NULL || r->log != NULL) {
        return LVN_OK;
    }
    r->logged_at_step = step;
    r->cpu_at_s = cpu_seconds();
    lvni_core_str path = {0};
    lvni_core_str_printf(&path, "%s/metrics.jsonl", r->o->out);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    if (r->resumed) {
        double logged_s = 0.0;
        LVNI_TRY_DONE(s, lvni_log_metrics_truncate(lvni_core_str_text(&path), step, ends_again,
                                                   NULL, &logged_s));
        r->earlier_s = fmax(r->earlier_s, logged_s);
    }
    r->logged_at_s = lvni_trainer_logging_seconds(r);
    LVNI_TRY_DONE(s, lvni_log_metrics_open(lvni_core_str_text(&path), r->resumed, &r->log));
    s = open_loggers(r, step, ends_again);
done:
    lvni_core_str_free(&path);
    return s;
}

void lvni_trainer_logging_close(lvni_trainer_logging *r)
{
    lvni_log_loggers_close(r->loggers, r->ended == LVN_OK              ? LVNI_LOG_FINISHED
                                       : r->ended == LVN_ERR_CANCELLED ? LVNI_LOG_STOPPED
                                                                       : LVNI_LOG_FAILED);
    lvni_log_metrics_close(r->log);
    r->log = NULL;
    r->loggers = NULL;
}

double lvni_trainer_logging_seconds(const lvni_trainer_logging *r)
{
    return r->earlier_s + lvni_core_seconds_since(r->start_ns);
}

void lvni_trainer_logging_halt(lvni_trainer_logging *r)
{
    r->halted_at_s = lvni_trainer_logging_seconds(r);
    r->halted_cpu_s = cpu_seconds();
}

void lvni_trainer_logging_continue(lvni_trainer_logging *r)
{
    r->logged_at_s += lvni_trainer_logging_seconds(r) - r->halted_at_s;
    r->cpu_at_s += cpu_seconds() - r->halted_cpu_s;
}

/* One line of all logs. */
static lvn_status write_row(const lvni_trainer_logging *r, const lvni_ckpt_position *at,
                            const lvni_log_metric *row, int n)
{
    const double now_s = lvni_trainer_logging_seconds(r);
    if (r->log == NULL) {
        return LVN_OK;
    }
    lvni_log_loggers_scalars(r->loggers, at->step, at->epoch + 1, now_s, row, n);
    return lvni_log_metrics_write(r->log, at->step, at->epoch + 1, now_s, row, n);
}

static uint64_t peak_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024u;
}

/* "train/loss" and so on, of those that have weight; names kept in `text`. suffix: "_step" for
 * those of one batch */
static int metric_rows(const lvni_nn_step *step, const char *prefix, const char *suffix,
                       char text[][NAME], lvni_log_metric *row)
{
    int n = 0;
    for (int i = 0; i < step->n_metrics; i++) {
        const lvni_nn_step_metric *m = &step->metric[i];
        if (m->weight != 0.0) {
            snprintf(text[n], sizeof text[n], "%s/%s%s", prefix, m->name, suffix);
            const bool counts = strcmp(m->name, LVNI_METRIC_BAD) == 0;
            row[n] =
                (lvni_log_metric){.name = text[n], .value = counts ? m->sum : m->sum / m->weight};
            n++;
        }
    }
    return n;
}

/* Optimizer steps to the end of the run; -1: unknown. */
static int64_t steps_left(const lvni_trainer_options *o, const lvni_ckpt_position *at)
{
    int64_t left = -1;
    if (o->max_epochs >= 0) {
        left = lvni_plan_steps_before(&o->plan, o->max_epochs) -
               lvni_plan_steps_before(&o->plan, at->epoch) - at->step_in_epoch;
    }
    if (o->max_steps >= 0 && (left < 0 || o->max_steps - at->step < left)) {
        left = o->max_steps - at->step;
    }
    return left;
}

static void show(lvni_trainer_logging *r, const lvni_trainer_step_result *step, double now_s,
                 bool logged, bool last)
{
    const lvni_trainer_options *o = r->o;
    const int64_t left = steps_left(o, &step->after);
    const lvni_plan plan = lvni_plan_in_epoch(&o->plan, step->after.epoch);
    const double per_step = r->rate > 0.0 ? (double)plan.effective_batch / r->rate : (double)NAN;
    const lvni_log_progress_state state = {
        .epoch = step->after.epoch,
        .max_epochs = o->max_epochs > 0 ? o->max_epochs : 0,
        .step = step->after.step_in_epoch,
        .steps = plan.steps_per_epoch,
        .loss = lvni_trainer_metric_mean(&step->metrics, "loss"),
        .accuracy = lvni_trainer_metric_mean(&step->metrics, "acc"),
        .samples_per_s = r->rate > 0.0 ? r->rate : (double)NAN,
        .wait_share = r->wait_share,
        .lr = step->lr,
        .memory_bytes = logged || last ? peak_bytes() : lvni_core_alloc_get_total().peak_bytes,
        .left_s = left >= 0 ? (double)left * per_step : (double)NAN};
    lvni_log_progress_update(&r->progress, &state, now_s, logged, last);
}

/* Speed since the last measurement; one over a few milliseconds means nothing, so the old one stays
 * then. */
static void measure_rate(lvni_trainer_logging *r, int64_t step, double now_s)
{
    const double s = now_s - r->logged_at_s, cpu_s = cpu_seconds();
    if (s > 0.0 && (s >= 0.2 || !(r->rate > 0.0))) {
        const uint64_t waited = r->waited_ns > r->waited_at_ns ? r->waited_ns - r->waited_at_ns : 0;
        r->rate = (double)(r->samples - r->logged_at) / s;
        r->step_rate = (double)(step - r->logged_at_step) / s;
        r->wait_share = fmin((double)waited * 1e-9 / s, 1.0);
        r->cpu_cores = (cpu_s - r->cpu_at_s) / s;
        r->logged_at = r->samples;
        r->logged_at_step = step;
        r->waited_at_ns = r->waited_ns;
        r->cpu_at_s = cpu_s;
        r->logged_at_s = now_s;
    }
}

/* Of all devices, and as a part of what they can do (model FLOPs utilization). */
static int flops_rows(const lvni_trainer_logging *r, lvni_log_metric *row)
{
    const double flops = r->rate * r->o->sample_flops,
                 peak = r->o->peak_flops * (double)r->o->plan.devices;
    int n = 0;
    if (flops > 0.0) {
        row[n++] = (lvni_log_metric){.name = "throughput/flops_per_s", .value = flops};
    }
    if (flops > 0.0 && peak > 0.0) {
        row[n++] = (lvni_log_metric){.name = "throughput/mfu", .value = flops / peak};
    }
    return n;
}

/* lr/backbone: of groups whose rate grows to the run's, the first ones. */
static lvn_status group_rates(const lvni_trainer_logging *r, const lvni_trainer_step_result *step,
                              char text[GROWING][LVNI_OPTIM_PATTERN + 4], lvni_log_metric *row,
                              int *n)
{
    const lvni_optim_rules *rules = &r->o->rules;
    for (size_t i = 0, k = 0; i < rules->n_lr_zero_until && k < GROWING; i++) {
        char pattern[LVNI_OPTIM_PATTERN];
        lvni_optim_hold hold;
        LVN_TRY(lvni_optim_rules_hold(rules, i, pattern, &hold));
        if (hold.first > 0.0) {
            snprintf(text[k], sizeof text[k], "lr/%s", pattern);
            row[(*n)++] =
                (lvni_log_metric){.name = text[k++],
                                  .value = step->lr * lvni_optim_hold_factor(&hold, &r->o->schedule,
                                                                             step->after.step - 1)};
        }
    }
    return LVN_OK;
}

static lvn_status write_step(const lvni_trainer_logging *r, const lvni_trainer_step_result *step)
{
    char text[LVNI_METRICS][NAME], norm[LVNI_PHASES][64], rate[LVNI_PHASES][64];
    lvni_log_metric row[LINE];
    int n = metric_rows(&step->metrics, "train", "_step", text, row);
    row[n++] = (lvni_log_metric){.name = "lr", .value = step->lr};
    for (int i = 0; i < step->n_phases; i++) {
        const char *phase = lvni_trainer_phases_name(r->o->model, i);
        if (step->phase[i].left_out) {
            continue;
        }
        snprintf(norm[i], sizeof norm[i], "grad_norm%s%s", phase[0] != '\0' ? "/" : "", phase);
        row[n++] = (lvni_log_metric){.name = norm[i], .value = step->phase[i].grad_norm};
        if (r->o->phase[i].lr > 0.0 || r->o->phase[i].has_schedule) { /* one of its own */
            snprintf(rate[i], sizeof rate[i], "lr/%s", phase);
            row[n++] = (lvni_log_metric){.name = rate[i], .value = step->phase[i].lr};
        }
    }
    char growing[GROWING][LVNI_OPTIM_PATTERN + 4];
    LVN_TRY(group_rates(r, step, growing, row, &n));
    if (step->scaler.on) {
        row[n++] = (lvni_log_metric){.name = "amp/scale", .value = step->scaler.scale};
        row[n++] =
            (lvni_log_metric){.name = "amp/skipped_steps", .value = (double)step->scaler.skipped};
    }
    row[n++] = (lvni_log_metric){.name = "throughput/samples_per_s", .value = r->rate};
    row[n++] = (lvni_log_metric){.name = "throughput/steps_per_s", .value = r->step_rate};
    n += flops_rows(r, row + n);
    row[n++] = (lvni_log_metric){.name = "throughput/wait_share", .value = r->wait_share};
    row[n++] = (lvni_log_metric){.name = "throughput/cpu_cores", .value = r->cpu_cores};
    row[n++] = (lvni_log_metric){.name = "memory/peak_bytes", .value = (double)peak_bytes()};
    lvni_tensor_device *device = lvni_tensor_device_of(r->o->model->weights);
    if (device != NULL) {
        row[n++] = (lvni_log_metric){.name = "memory/device_peak_bytes",
                                     .value = (double)lvni_tensor_device_get_stats(device).most};
    }
    return write_row(r, &step->after, row, n);
}

lvn_status lvni_trainer_logging_step(lvni_trainer_logging *r, const lvni_trainer_step_result *step,
                                     bool last_of_epoch)
{
    const double now_s = lvni_trainer_logging_seconds(r);
    const bool logged = step->after.step % r->o->log_every_n_steps == 0 || last_of_epoch;
    r->samples += step->samples;
    if (logged) {
        measure_rate(r, step->after.step, now_s);
    }
    show(r, step, now_s, logged, last_of_epoch);
    return logged && r->log != NULL ? write_step(r, step) : LVN_OK;
}

enum { COLUMNS = 120, REST = 13 /* " and 117 more" */ };

enum { RANKS = 5 };

/* "heatmap_mse_loss", "heatmap_mse_weight": what a loss is put together of. */
static bool is_part_of_loss(const char *name)
{
    static const char *const ends[] = {"_loss", "_weight", "_weighted"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t length = strlen(ends[i]);
        if (n > length && strcmp(name + n - length, ends[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_monitor(const lvni_trainer_logging *r, const char *name)
{
    return r->o->keep.monitor != NULL && strcmp(name, r->o->keep.monitor) == 0;
}

/* Which of the n metrics a line of COLUMNS has first: what the run's best is chosen by, losses,
 * what else is validated, of which parts of the loss come last, and a loss that is the monitor's
 * value once more. */
static int rank_of(const lvni_trainer_logging *r, const lvni_log_metric *row, int n, int i)
{
    const char *name = row[i].name, *slash = strrchr(name, '/');
    const bool validated = strncmp(name, "val/", 4) == 0,
               loss = slash != NULL && strcmp(slash + 1, "loss") == 0;
    bool again = false;
    for (int k = 0; k < n && loss && validated; k++) {
        again |= is_monitor(r, row[k].name) && row[k].value == row[i].value;
    }
    return is_monitor(r, name)              ? 0
           : loss && !again                 ? 1
           : !validated                     ? RANKS - 1
           : again || is_part_of_loss(name) ? 3
                                            : 2;
}

/* Where metrics.jsonl has all of them, the line ends within its columns. */
static void print_means(const lvni_trainer_logging *r, const lvni_log_metric *row, int n,
                        lvni_core_str *line)
{
    lvni_core_str one = {0};
    size_t width[LINE], all = line->len;
    bool shown[LINE];
    int left_out = 0;
    for (int i = 0; i < n; i++) {
        lvni_core_str_clear(&one);
        lvni_core_str_printf(&one, " %s %.4f", row[i].name, lvni_core_unsigned_nan(row[i].value));
        width[i] = one.len;
        all += one.len;
        shown[i] = false;
    }
    lvni_core_str_free(&one);
    const bool whole = all <= COLUMNS || r->log == NULL;
    size_t at = line->len + REST;
    for (int rank = 0; rank < RANKS; rank++) {
        for (int i = 0; i < n; i++) {
            if (rank_of(r, row, n, i) == rank && (whole || at + width[i] <= COLUMNS)) {
                shown[i] = true;
                at += width[i];
            }
        }
    }
    for (int i = 0; i < n; i++) {
        left_out += !shown[i];
        if (shown[i]) {
            lvni_core_str_printf(line, " %s %.4f", row[i].name,
                                 lvni_core_unsigned_nan(row[i].value));
        }
    }
    if (left_out > 0) {
        lvni_core_str_printf(line, " and %d more", left_out);
    }
}

lvn_status lvni_trainer_logging_validation(lvni_trainer_logging *r, const lvni_ckpt_position *at)
{
    char text[LVNI_METRICS][NAME];
    lvni_log_metric row[LINE] = {0};
    const int n = metric_rows(&r->last_val, "val", "", text, row);
    return write_row(r, at, row, n);
}

lvn_status lvni_trainer_logging_within_epoch(lvni_trainer_logging *r, const lvni_ckpt_position *at)
{
    char text[LVNI_METRICS][NAME];
    lvni_log_metric row[LINE] = {0};
    const int n = metric_rows(&r->last_val, "val", "", text, row);
    lvni_core_str line = {0};
    lvni_core_str_printf(&line, "epoch %lld, step %lld:", (long long)at->epoch + 1,
                         (long long)at->step);
    print_means(r, row, n, &line);
    lvni_log_progress_finish(&r->progress);
    lvni_log_line(LVNI_LOG_INFO, "%s", lvni_core_str_text(&line));
    lvni_core_str_free(&line);
    return lvni_trainer_logging_validation(r, at);
}

lvn_status lvni_trainer_logging_epoch(lvni_trainer_logging *r, const lvni_ckpt_position *at,
                                      const lvni_trainer_scaler *scaler, bool validated)
{
    char text[LVNI_METRICS][NAME], val_text[LVNI_METRICS][NAME];
    lvni_log_metric row[LINE] = {0};
    int n = metric_rows(&r->epoch_sum, "train", "", text, row);
    if (validated) {
        n += metric_rows(&r->last_val, "val", "", val_text, row + n);
    }
    lvni_core_str line = {0};
    lvni_core_str_printf(&line, "epoch %lld done at step %lld:", (long long)at->epoch + 1,
                         (long long)at->step);
    print_means(r, row, n, &line);
    lvni_log_progress_finish(&r->progress); /* its numbers are older than these */
    lvni_log_line(LVNI_LOG_INFO, "%s", lvni_core_str_text(&line));
    lvni_core_str_free(&line);
    if (scaler->in_epoch > 0) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "epoch %lld: %lld of its steps were skipped, since gradients overflowed in "
                      "f16; the loss scale is %g now",
                      (long long)at->epoch + 1, (long long)scaler->in_epoch, scaler->scale);
    }
    return write_row(r, at, row, n);
}

/* ---- the sums of an epoch ---- */

lvn_status lvni_trainer_logging_add(lvni_trainer_logging *r, const lvni_trainer_step_result *step)
{
    for (int i = 0; i < step->n_phases; i++) {
        if (!step->phase[i].skipped) {
            /* else its loss may be infinite, and nothing was learned from it */
            LVN_TRY(lvni_nn_metrics_add(&r->epoch_sum, &step->phase[i].metrics));
        }
    }
    return LVN_OK;
}

/* As JSON, so that names may have any characters and numbers do not follow the locale. */

/* JSON has no numbers that are not finite. */
static json_t *number(double x)
{
    return isnan(x)   ? json_string("nan")
           : isinf(x) ? json_string(x > 0.0 ? "inf" : "-inf")
                      : json_real(x);
}

static bool to_double(const json_t *value, double *out)
{
    const char *text = json_string_value(value);
    if (text == NULL) {
        *out = json_number_value(value);
        return json_is_number(value);
    }
    *out = strcmp(text, "nan") == 0   ? (double)NAN
           : strcmp(text, "inf") == 0 ? (double)INFINITY
                                      : -(double)INFINITY;
    return strcmp(text, "nan") == 0 || strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0;
}

lvn_status lvni_trainer_epoch_sums_write(const lvni_nn_step *sums, lvni_core_str *out)
{
    json_t *all = json_array();
    bool good = all != NULL;
    for (int i = 0; i < sums->n_metrics && good; i++) {
        const lvni_nn_step_metric *m = &sums->metric[i];
        good = json_array_append_new(
                   all, json_pack("[s,o,o]", m->name, number(m->sum), number(m->weight))) == 0;
    }
    if (good) {
        lvni_core_json_print(all, JSON_COMPACT | JSON_REAL_PRECISION(17), out);
    }
    json_decref(all);
    if (!good) {
        LVN_FAIL(LVN_ERR_MEMORY,
                 "no host memory (or a name that is not UTF-8) for the sums of %d metrics",
                 sums->n_metrics);
    }
    return lvni_core_str_status(out);
}

static bool read_one(const json_t *row, lvni_nn_step_metric *m)
{
    const char *name = json_string_value(json_array_get(row, 0));
    if (name == NULL || json_array_size(row) != 3 || strlen(name) >= sizeof m->name) {
        return false;
    }
    memcpy(m->name, name, strlen(name) + 1);
    return to_double(json_array_get(row, 1), &m->sum) &&
           to_double(json_array_get(row, 2), &m->weight);
}

lvn_status lvni_trainer_epoch_sums_read(const char *text, lvni_nn_step *sums)
{
    *sums = (lvni_nn_step){0};
    json_t *all = lvni_core_json_try(text, LVNI_JSON_INNER);
    const size_t n = json_array_size(all);
    bool good = json_is_array(all) && n <= LVNI_METRICS;
    for (size_t i = 0; i < n && good; i++) {
        good = read_one(json_array_get(all, i), &sums->metric[i]);
    }
    sums->n_metrics = good ? (int)n : 0;
    json_decref(all);
    if (!good) {
        LVN_FAIL(LVN_ERR_CORRUPT, "not sums of metrics: %.200s", text);
    }
    return LVN_OK;
}

/* levin tune lr: a range test (range_test.h) on the ranks of the training, whose steps are those of
 * the real thing. All ranks see the same losses, and so end at the same step; rank 0 writes. */
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/machine.h"
#include "core/option.h"
#include "core/signals.h"
#include "core/str.h"
#include "core/vfs.h"
#include "log/progress.h"
#include "log/run_log.h"
#include "report/canvas.h"
#include "report/plot.h"
#include "run/options.h"
#include "run/output_file.h"
#include "trainer/engine.h"
#include "tune/range_test.h"
#include "tune/tune.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static lvn_status check_plot(const lvni_core_option *row, const lvni_core_value *value,
                             const char *origin)
{
    return lvni_report_canvas_writes(value->text)
               ? LVN_OK
               : lvni_core_option_fail(row, value, origin,
                                       "expected a file that ends in .png or .svg, which the "
                                       "curve is");
}

static const lvni_core_option rows[] = {
    {.name = "tune.min_lr",
     .type = LVNI_OPT_FLOAT,
     .fallback = "1e-6",
     .range = LVNI_ABOVE(0),
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "Learning rate of the first step."},
    {.name = "tune.max_lr",
     .type = LVNI_OPT_FLOAT,
     .fallback = "1",
     .range = LVNI_ABOVE(0),
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "Learning rate of the last step."},
    {.name = "tune.steps",
     .type = LVNI_OPT_INT,
     .unit = "steps",
     .fallback = "300",
     .range = LVNI_BETWEEN(LVNI_RANGE_LEAST, 1000000),
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "Steps from the one to the other; more of them see smaller falls of the loss."},
    {.name = "tune.scale",
     .type = LVNI_OPT_CHOICE,
     .choices = "exponential|linear",
     .fallback = "exponential",
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "How the learning rate grows from step to step."},
    {.name = "tune.stop_above",
     .type = LVNI_OPT_FLOAT,
     .fallback = "4",
     .range = LVNI_AT_LEAST(0),
     .flags = LVNI_OPT_NOT_SAVED,
     .help =
         "Stop when the mean of the last losses is more than so many times its least; 0: make all "
         "steps."},
    {.name = "tune.csv",
     .type = LVNI_OPT_PATH,
     .fallback = "lr_find.csv",
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "File for learning rate, loss and smoothed loss of every step."},
    {.name = "tune.plot",
     .type = LVNI_OPT_PATH,
     .fallback = "lr_find.png",
     .check = check_plot,
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "File for the curve as an image, in PNG or SVG."},
};
const lvni_core_option_table lvni_tune_lr_options = LVNI_OPTION_TABLE("tune lr", rows);

typedef struct finder {
    const lvni_core_config *config;
    bool quiet;                /* given by the user; the training itself is quiet */
    lvni_tune_range_test test; /* without points */
} finder;

/* ---- the steps ---- */

/* What moves the rate or ends the run by itself has no part in the test. */
static lvn_status prepare(lvni_trainer *trainer)
{
    lvni_trainer_engine *e = trainer->engine;
    if (e->n_phases > 1) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "levin tune lr: this model has %d phases with a learning rate each; give "
                 "optim.lr of each by hand",
                 e->n_phases);
    }
    trainer->o.schedule.kind = e->o.schedule.kind = LVNI_SCHEDULE_CONSTANT;
    trainer->o.schedule.warmup_steps = e->o.schedule.warmup_steps = 0;
    trainer->o.early.monitor = NULL;
    /* a loss that is not finite is seen by all ranks when they have added their gradients, and ends
     * the test and not the run of one of them */
    e->now.scaled = true;
    return LVN_OK;
}

/* All ranks know of the signal after the same step. There is no checkpoint, so nothing may promise
 * one (exit code 85) or ask Slurm to begin again. */
static lvn_status check_stop(const lvni_trainer *trainer, const lvni_tune_range_test *test)
{
    const int number =
        trainer->o.comm == NULL ? lvni_trainer_stop_signal() : trainer->checkpointing.signal;
    if (number == 0) {
        return LVN_OK;
    }
    LVN_FAIL(number == SIGUSR1 ? LVN_ERR_ABORTED : LVN_ERR_CANCELLED,
             "%s after step %d of %d: there is no suggestion, and nothing was written",
             lvni_core_signal_name(number), test->n, test->steps);
}

/* After a step, on rank 0. */
static void show_progress(const lvni_tune_range_test *test, uint64_t start_ns,
                          lvni_log_progress *progress)
{
    const lvni_tune_range_point *last = &test->point[test->n - 1];
    const double now = lvni_core_seconds_since(start_ns);
    const lvni_log_progress_state state = {.epoch = -1,
                                           .step = test->n,
                                           .steps = test->steps,
                                           .loss = last->loss,
                                           .accuracy = (double)NAN,
                                           .samples_per_s = (double)NAN,
                                           .lr = last->lr,
                                           .left_s = now / test->n * (test->steps - test->n)};
    lvni_log_progress_update(progress, &state, now, true, false);
}

static lvn_status make_steps(lvni_trainer *trainer, bool leads, lvni_log_progress *progress,
                             lvni_tune_range_test *test)
{
    const uint64_t start_ns = lvni_core_now_ns();
    bool more = true;
    while (more && test->n < test->steps) {
        lvni_trainer_step_result r;
        trainer->engine->o.optim.lr = lvni_tune_range_lr(test, test->n);
        const lvn_status s = lvni_trainer_advance(trainer, &r);
        if (s == LVN_ERR_NON_FINITE && test->n > 0) {
            lvn_clear_error();
            trainer->report.ended = LVN_OK;
            return LVN_OK;
        }
        LVN_TRY(s);
        more = lvni_tune_range_add(test, lvni_trainer_metric_mean(&r.metrics, "loss"));
        if (leads) {
            show_progress(test, start_ns, progress);
        }
        LVN_TRY(check_stop(trainer, test));
    }
    return LVN_OK;
}

static lvn_status run(const finder *f, lvni_trainer *trainer, bool leads,
                      lvni_tune_range_test *test)
{
    lvni_log_progress progress;
    lvni_log_progress_init(
        &progress, &(lvni_log_progress_options){.fd = f->quiet ? -1 : lvni_log_progress_terminal(),
                                                .quiet = f->quiet,
                                                .plain_interval_s = 30.0,
                                                .plain = stderr});
    const lvn_status s = make_steps(trainer, leads, &progress, test);
    lvni_log_progress_finish(&progress);
    return s;
}

/* ---- the answer ---- */

/* Frees the text. */
static lvn_status write_text(const char *path, lvni_core_str *text)
{
    lvn_status s = lvni_core_str_status(text);
    if (s == LVN_OK) {
        s = lvni_core_file_write(path, lvni_core_str_text(text), text->len);
    }
    lvni_core_str_free(text);
    return s;
}

static lvn_status write_csv(const char *path, const lvni_tune_range_test *test)
{
    lvni_core_str text = {0};
    lvni_core_str_printf(&text, "lr,loss,smoothed\n");
    for (int i = 0; i < test->n; i++) {
        const lvni_tune_range_point *p = &test->point[i];
        lvni_core_str_printf(&text, "%.9g,%.9g,%.9g\n", p->lr, p->loss, p->smoothed);
    }
    return write_text(path, &text);
}

/* The losses down to the lowest point, each of which is seen; those of the rise behind it may be so
 * large that they would flatten the rest. */
static void find_range(const lvni_tune_range_test *test, double range[2])
{
    int lowest = 0;
    for (int i = 1; i < test->n; i++) {
        lowest = test->point[i].smoothed < test->point[lowest].smoothed ? i : lowest;
    }
    range[0] = INFINITY;
    range[1] = -INFINITY;
    for (int i = 0; i <= lowest && i < test->n; i++) {
        range[0] = fmin(range[0], test->point[i].loss);
        range[1] = fmax(range[1], test->point[i].loss);
    }
}

static lvn_status write_plot(const char *path, const lvni_tune_range_test *test, int suggested)
{
    const int64_t n = test->n;
    double *rate = lvni_core_alloc(LVNI_TAG_TRAINER, 3 * (size_t)(n > 0 ? n : 1) * sizeof *rate);
    if (rate == NULL) {
        return LVN_ERR_MEMORY;
    }
    double *loss = rate + n, *smoothed = loss + n;
    for (int64_t i = 0; i < n; i++) {
        rate[i] = test->point[i].lr;
        loss[i] = test->point[i].loss;
        smoothed[i] = test->point[i].smoothed;
    }
    char name[32] = "";
    lvni_report_plot plot = {
        .title = "Loss by the learning rate",
        .x_label = "learning rate (optim.lr)",
        .y_label = "loss",
        .log_x = !test->linear,
        .series = {{.name = "steps", .x = rate, .y = loss, .n = n, .scattered = true},
                   {.name = "smoothed", .x = rate, .y = smoothed, .n = n}},
        .n_series = 2};
    find_range(test, plot.y_range);
    if (suggested >= 0) {
        lvni_core_format(name, sizeof name, "suggested: %.3g", rate[suggested]);
        plot.series[plot.n_series++] = (lvni_report_plot_series){
            .name = name, .x = rate + suggested, .y = smoothed + suggested, .n = 1};
    }
    const lvn_status s = lvni_report_plot_write(path, &plot);
    lvni_core_free(rate);
    return s;
}

/* Why there is no suggestion. */
static lvn_status refuse(const lvni_tune_range_test *test, const lvni_tune_range_answer *found,
                         const char *csv, const char *plot)
{
    if (found == NULL) {
        LVN_FAIL(LVN_ERR_RESOURCE,
                 "%d step%s made, the loss being too large or not finite after, and a suggestion "
                 "needs %d: a smaller tune.max_lr, or more tune.steps (%s has the losses)",
                 test->n, lvni_core_plural(test->n, " was", "s were"), LVNI_RANGE_LEAST, csv);
    }
    LVN_FAIL(
        LVN_ERR_RESOURCE,
        "no clear descent: the smoothed loss is at most %.1f standard errors below that of the "
        "first steps, and %g are needed or it may be noise: more tune.steps (now %d), a "
        "larger batch_size, or another range between tune.min_lr and tune.max_lr (%s%s%s%s the "
        "curve)",
        fmax(found->fall, 0.0), LVNI_RANGE_CLEAR, test->steps, csv, plot != NULL ? " and " : "",
        plot != NULL ? plot : "", plot != NULL ? " have" : " has");
}

static void print_answer(const finder *f, const lvni_tune_range_test *test,
                         const lvni_tune_range_answer *found, const char *csv, const char *plot)
{
    const lvni_tune_range_point *p = test->point, *best = &p[found->suggested];
    const bool early = test->n < test->steps;
    if (lvni_core_config_bool(f->config, "tune.json")) {
        lvni_core_print(stdout, "{\"optim.lr\":%.9g,\"steps\":%d,\"stopped_early\":%s}\n", best->lr,
                        test->n, early ? "true" : "false");
        return;
    }
    lvni_core_print(
        stdout,
        "optim.lr=%.3g: the loss falls from %.4g at %.3g to %.4g at %.3g, and there to %.4g; %d "
        "step%s from %g to %g%s; %s%s%s\n",
        best->lr, p[found->begin].smoothed, p[found->begin].lr, p[found->end].smoothed,
        p[found->end].lr, best->smoothed, test->n, lvni_core_plural(test->n, "", "s"), test->min_lr,
        p[test->n - 1].lr,
        early         ? " (then it rose, and the test ended)"
        : found->open ? " (where it still falls: a larger tune.max_lr may find more)"
                      : "",
        csv, plot != NULL ? ", " : "", plot != NULL ? plot : "");
}

/* A number needs no cairo. NULL: it is missing, and no plot was asked for. */
static const char *choose_plot(const lvni_core_config *c)
{
    if (lvni_core_config_layer(c, "tune.plot") == LVNI_LAYER_DEFAULT &&
        lvni_report_canvas_check("tune.plot=") != LVN_OK) {
        lvn_clear_error();
        return NULL;
    }
    return lvni_core_config_str(c, "tune.plot");
}

static lvn_status answer(const finder *f, lvni_tune_range_test *test)
{
    const char *csv = lvni_core_config_str(f->config, "tune.csv"), *plot = choose_plot(f->config);
    const bool fits = lvni_tune_range_fit(test);
    lvni_tune_range_answer found = {.suggested = -1};
    if (fits) {
        found = lvni_tune_range_find(test);
    }
    LVN_TRY(write_csv(csv, test));
    LVN_TRY(plot != NULL ? write_plot(plot, test, found.suggested) : LVN_OK);
    if (found.suggested < 0) {
        return refuse(test, fits ? &found : NULL, csv, plot);
    }
    print_answer(f, test, &found, csv, plot);
    return LVN_OK;
}

/* On every rank. */
static lvn_status drive(void *host, const lvni_run_ranks *ranks, const lvni_run_rank *rank,
                        lvni_trainer *trainer)
{
    (void)ranks;
    const finder *f = host;
    lvni_tune_range_test test = f->test;
    LVN_TRY(prepare(trainer));
    test.point = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)test.steps, sizeof *test.point);
    lvn_status s;
    LVNI_TRY_DONE(s, test.point == NULL ? LVN_ERR_MEMORY : run(f, trainer, rank->rank == 0, &test));
    s = rank->rank == 0 ? answer(f, &test) : LVN_OK;
done:
    lvni_core_free(test.point);
    return s;
}

/* ---- the command ---- */

static lvn_status read_test(const lvni_core_config *c, lvni_tune_range_test *test)
{
    *test = (lvni_tune_range_test){.min_lr = lvni_core_config_float(c, "tune.min_lr"),
                                   .max_lr = lvni_core_config_float(c, "tune.max_lr"),
                                   .steps = (int)lvni_core_config_int(c, "tune.steps"),
                                   .linear =
                                       strcmp(lvni_core_config_str(c, "tune.scale"), "linear") == 0,
                                   .stop_above = lvni_core_config_float(c, "tune.stop_above")};
    if (test->max_lr <= test->min_lr) {
        LVN_FAIL(LVN_ERR_USAGE, "tune.max_lr=%g is not more than tune.min_lr=%g", test->max_lr,
                 test->min_lr);
    }
    if (lvni_core_config_bool(c, "resume")) {
        LVN_FAIL(LVN_ERR_USAGE, "resume=true: a finder makes its steps from the beginning; omit "
                                "it, or give weights=FILE");
    }
    const lvn_status s = lvni_report_canvas_check("tune.plot=");
    if (s == LVN_OK || choose_plot(c) != NULL) {
        return s;
    }
    (void)lvni_report_canvas_check("no plot");
    lvni_log_line(LVNI_LOG_WARNING, "%s", lvn_last_error()->message);
    lvn_clear_error();
    return LVN_OK;
}

static lvn_status set_config(lvni_core_config *c, int steps)
{
    static const char by[] = "levin tune";
    char text[32];
    snprintf(text, sizeof text, "%d", steps);
    LVN_TRY(lvni_core_config_set(c, "max_epochs", "-1", by));
    LVN_TRY(lvni_core_config_set(c, "max_steps", text, by));
    /* a loss that is not finite is the end of the test, on all ranks at the same step */
    LVN_TRY(lvni_core_config_set(c, "detect_anomaly", "false", by));
    return lvni_core_config_set(c, "quiet", "true", by);
}

lvn_status lvni_tune_lr(const lvni_tune_command *command)
{
    lvni_core_config *c;
    lvni_tune_key_list keys;
    finder f;
    LVN_TRY(lvni_run_read_config(lvni_tune_keys(command->recipe, &lvni_tune_lr_options, &keys),
                                 "levin help tune", &command->recipe->defaults,
                                 command->n - command->skip, command->args + command->skip, &c));
    f.config = c;
    f.quiet = lvni_core_config_bool(c, "quiet");
    lvn_status s;
    LVNI_TRY_DONE(s, read_test(c, &f.test));
    LVNI_TRY_DONE(s, set_config(c, f.test.steps));
    const lvni_run_driver driver = {.drive = drive, .host = &f};
    const lvni_run_ranks_command ranks = {
        .command = {"tune", "lr"}, .n = command->n, .args = command->args, .keeps_no_logs = true};
    s = lvni_run_drive(command->recipe, c, &ranks, &driver);
done:
    lvni_core_config_destroy(c);
    return s;
}

/* What the keys of schedules become: of the learning rate, and of weight decay. Their rows are in
 * optim_options.c. */
#include "run/options.h"

#include "core/json_read.h"
#include "core/math.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static int64_t horizon(int64_t epochs, int64_t steps, const lvni_plan *plan)
{
    const int64_t total = epochs >= 0 ? lvni_plan_steps_before(plan, epochs) : INT64_MAX;
    return steps >= 0 && steps < total ? steps : total;
}

int64_t lvni_run_horizon(const lvni_core_config *c, const lvni_plan *plan)
{
    return horizon(lvni_core_config_int(c, "max_epochs"), lvni_core_config_int(c, "max_steps"),
                   plan);
}

static lvn_status check_length(const char *name, const lvni_optim_schedule *s)
{
    if (!lvni_optim_schedule_ends(s)) { /* a warm-up may be longer than a short run */
        return LVN_OK;
    }
    if (s->total_steps == INT64_MAX) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "scheduler=%s ends with the run, and with max_epochs=-1 max_steps=-1 the run has "
                 "no end: give max_epochs or max_steps",
                 name);
    }
    if (s->warmup_steps > 0 && s->warmup_steps >= s->total_steps) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "scheduler.warmup_steps=%lld leaves nothing of the run's %lld step%s: give fewer, "
                 "or a larger max_epochs or max_steps",
                 (long long)s->warmup_steps, (long long)s->total_steps,
                 lvni_core_plural(s->total_steps, "", "s"));
    }
    return LVN_OK;
}

/* scheduler.warmup_steps=auto: a tenth of the epochs, ten at most. */
static int64_t usual_warmup(const lvni_core_config *c, int64_t total)
{
    const int64_t given = lvni_core_config_int(c, "max_epochs");
    const double epochs = given > 1 ? (double)given : 1.0,
                 rising = epochs / 10.0 < 10.0 ? epochs / 10.0 : 10.0;
    const bool alone = strcmp(lvni_core_config_str(c, "scheduler.name"), "onecycle") == 0;
    return alone || total == INT64_MAX ? 0 : (int64_t)((double)total / epochs * rising);
}

static lvn_status read_warmup(const lvni_core_config *c, const lvni_plan *plan, int64_t total,
                              int64_t *steps)
{
    const int64_t epochs = lvni_core_config_int(c, "scheduler.warmup_epochs");
    const bool given = lvni_core_config_is_set(c, "scheduler.warmup_steps");
    *steps = given         ? lvni_core_config_int(c, "scheduler.warmup_steps")
             : epochs == 0 ? usual_warmup(c, total)
                           : 0;
    if (*steps > 0 && epochs > 0) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "scheduler.warmup_steps=%lld and scheduler.warmup_epochs=%lld: give one of the two",
            (long long)*steps, (long long)epochs);
    }
    *steps = epochs > 0 ? lvni_plan_steps_before(plan, epochs) : *steps;
    return LVN_OK;
}

/* As the rows' choices. */
static const lvni_optim_schedule_kind schedules[] = {
    LVNI_SCHEDULE_CONSTANT,   LVNI_SCHEDULE_STEP,     LVNI_SCHEDULE_MULTISTEP,
    LVNI_SCHEDULE_COSINE,     LVNI_SCHEDULE_LINEAR,   LVNI_SCHEDULE_EXPONENTIAL,
    LVNI_SCHEDULE_POLYNOMIAL, LVNI_SCHEDULE_RESTARTS, LVNI_SCHEDULE_ONECYCLE,
    LVNI_SCHEDULE_PLATEAU};

static lvn_status read_cycle(const lvni_core_config *c, lvni_optim_cycle *o)
{
    const double start = 1.0 / lvni_core_config_float(c, "scheduler.div_factor");
    *o = (lvni_optim_cycle){.rise = lvni_core_config_float(c, "scheduler.pct_start"),
                            .start = start,
                            .end = start / lvni_core_config_float(c, "scheduler.final_div_factor"),
                            .linear = lvni_core_config_choice(c, "scheduler.anneal") == 1,
                            .three_phases = lvni_core_config_bool(c, "scheduler.three_phase"),
                            .moves_momentum = lvni_core_config_bool(c, "scheduler.cycle_momentum"),
                            .base_momentum = lvni_core_config_float(c, "scheduler.base_momentum"),
                            .max_momentum = lvni_core_config_float(c, "scheduler.max_momentum")};
    lvni_optim_options optim;
    LVN_TRY(lvni_run_read_optim(c, &optim));
    if (o->moves_momentum && optim.kind == LVNI_OPTIM_ADAFACTOR) {
        LVN_FAIL(LVN_ERR_USAGE, "scheduler=onecycle moves the momentum, and optim=adafactor has "
                                "none: give scheduler.cycle_momentum=false");
    }
    const bool sgd = lvni_optim_moves_momentum(&optim);
    if (o->moves_momentum && !((sgd ? optim.momentum : optim.beta1) > 0.0)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "scheduler=onecycle moves the momentum, and %s is 0: give it a value, or "
                 "scheduler.cycle_momentum=false",
                 sgd ? "optim.momentum" : "the first of optim.betas");
    }
    return LVN_OK;
}

/* Periods in epochs need epochs of one length. */
static lvn_status check_unit(const lvni_plan *plan, const char *name, const lvni_optim_schedule *s)
{
    if (plan->n_factors > 1 &&
        (s->kind == LVNI_SCHEDULE_STEP || s->kind == LVNI_SCHEDULE_EXPONENTIAL ||
         s->kind == LVNI_SCHEDULE_RESTARTS)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "scheduler=%s counts epochs, which have different numbers of steps where "
                 "accumulate_grad_batches changes with the epoch: give scheduler.interval=step, "
                 "or scheduler=multistep",
                 name);
    }
    return LVN_OK;
}

/* in_epochs: the numbers of the keys count epochs. */
static lvn_status fill_schedule(const lvni_core_config *c, const lvni_plan *plan, bool in_epochs,
                                lvni_optim_schedule *s)
{
    const int64_t unit = in_epochs ? plan->steps_per_epoch : 1;
    size_t n;
    const int64_t *milestones = lvni_core_config_int_list(c, "scheduler.milestones", &n);
    for (size_t i = 0; i < n; i++) {
        s->milestone[s->n_milestones++] =
            in_epochs ? lvni_plan_steps_before(plan, milestones[i]) : milestones[i];
    }
    if (s->kind == LVNI_SCHEDULE_MULTISTEP && n == 0) {
        LVN_FAIL(LVN_ERR_USAGE, "scheduler=multistep needs scheduler.milestones: the epochs after "
                                "which the learning rate falls, as in [30,60,80]");
    }
    switch (s->kind) {
    case LVNI_SCHEDULE_EXPONENTIAL: s->step_size = unit; break;
    case LVNI_SCHEDULE_RESTARTS:
        s->step_size = lvni_core_config_int(c, "scheduler.period") * unit;
        break;
    case LVNI_SCHEDULE_ONECYCLE: return read_cycle(c, &s->cycle);
    default: break;
    }
    return LVN_OK;
}

double lvni_run_rate_scale(const lvni_core_config *c, int64_t batch)
{
    if (!lvni_core_config_is_set(c, "optim.reference_batch_size")) {
        return 1.0;
    }
    const double ratio =
        (double)batch / (double)lvni_core_config_int(c, "optim.reference_batch_size");
    return lvni_core_config_choice(c, "optim.lr_scale_method") == 0 ? ratio : lvni_core_sqrt(ratio);
}

/* Of the rate, by the samples of a step. */
static lvn_status read_scale(const lvni_core_config *c, const lvni_plan *plan, double *scale)
{
    *scale = 1.0;
    if (!lvni_core_config_is_set(c, "optim.reference_batch_size")) {
        return LVN_OK;
    }
    if (plan->n_factors > 1) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "optim.reference_batch_size=%lld: the learning rate follows the samples of a "
                 "step, whose number changes with the epoch (accumulate_grad_batches=%s): give "
                 "one number of batches, or optim.reference_batch_size=null",
                 (long long)lvni_core_config_int(c, "optim.reference_batch_size"),
                 lvni_core_config_str(c, "accumulate_grad_batches"));
    }
    *scale = lvni_run_rate_scale(c, plan->effective_batch);
    return LVN_OK;
}

static lvn_status read_schedule(const lvni_core_config *c, const lvni_plan *plan,
                                lvni_optim_schedule_kind kind, const char *name,
                                lvni_optim_schedule *s)
{
    const bool in_epochs = strcmp(lvni_core_config_str(c, "scheduler.interval"), "epoch") == 0;
    const int64_t unit = in_epochs ? plan->steps_per_epoch : 1;
    *s = (lvni_optim_schedule){.kind = kind,
                               .total_steps = lvni_run_horizon(c, plan),
                               .end_factor = lvni_core_config_float(c, "scheduler.end_factor"),
                               .gamma = lvni_core_config_float(c, "scheduler.gamma"),
                               .power = lvni_core_config_float(c, "scheduler.power"),
                               .period_factor = lvni_core_config_int(c, "scheduler.period_factor"),
                               .step_size = lvni_core_config_int(c, "scheduler.step_size") * unit};
    LVN_TRY(read_scale(c, plan, &s->scale));
    LVN_TRY(in_epochs ? check_unit(plan, name, s) : LVN_OK);
    LVN_TRY(fill_schedule(c, plan, in_epochs, s));
    LVN_TRY(read_warmup(c, plan, s->total_steps, &s->warmup_steps));
    if (kind == LVNI_SCHEDULE_ONECYCLE && s->warmup_steps > 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "scheduler=onecycle warms up by itself (scheduler.pct_start): leave out "
                 "scheduler.warmup_steps and scheduler.warmup_epochs");
    }
    return check_length(name, s);
}

lvn_status lvni_run_read_schedule(const lvni_core_config *c, const lvni_plan *plan,
                                  lvni_optim_schedule *s)
{
    return read_schedule(c, plan, schedules[lvni_core_config_choice(c, "scheduler.name")],
                         lvni_core_config_str(c, "scheduler.name"), s);
}

lvn_status lvni_run_read_schedule_as(const lvni_core_config *c, const lvni_plan *plan,
                                     const char *name, lvni_optim_schedule *s)
{
    static const char *const names[] = {"constant",   "step",     "multistep",
                                        "cosine",     "linear",   "exponential",
                                        "polynomial", "restarts", "onecycle"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            return read_schedule(c, plan, schedules[i], name, s);
        }
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "optim.phases: a phase cannot have scheduler=%s: give another value of scheduler.name "
             "than plateau",
             name);
}

bool lvni_run_is_better_when_more(const char *metric)
{
    static const char *const more[] = {"acc", "accuracy", "f1", "auc", "psnr", "ssim"};
    const char *slash = strrchr(metric, '/');
    metric = slash == NULL ? metric : slash + 1;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        if (strcmp(metric, more[i]) == 0) {
            return true;
        }
    }
    return false;
}

bool lvni_run_more_is_better(const lvni_core_config *c, const char *mode, const char *monitor)
{
    const char *text = lvni_core_config_str(c, mode);
    if (strcmp(text, "auto") != 0 || !lvni_core_config_is_set(c, monitor)) {
        return strcmp(text, "max") == 0;
    }
    return lvni_run_is_better_when_more(lvni_core_config_str(c, monitor));
}

/* What gives the run a validation set, with the keys that the recipe has. */
static lvn_status fail_without_validation(const lvni_core_config *c, const char *key,
                                          const char *monitor)
{
    if (lvni_run_read_limit(c, "limit_val_batches").none) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s=%s: the run has no validation set with limit_val_batches=0; give more, or "
                 "%s=train/NAME, a metric of the training",
                 key, monitor, key);
    }
    const bool splits = lvni_core_config_has(c, "val_split");
    LVN_FAIL(LVN_ERR_USAGE, "%s=%s: the run has no validation set; give %s%s=%s", key, monitor,
             splits ? "one (val_split=0.2), or " : "", key,
             splits ? "train/loss" : "train/NAME, a metric of the training");
}

lvn_status lvni_run_check_monitor(const lvni_core_config *c, const char *key, const char *monitor,
                                  bool validates)
{
    const bool val = strncmp(monitor, "val/", 4) == 0;
    if (!val && strncmp(monitor, "train/", 6) != 0) {
        LVN_FAIL(LVN_ERR_USAGE, "%s=%s is not val/NAME or train/NAME, a metric of an epoch", key,
                 monitor);
    }
    if (val && !validates) {
        return fail_without_validation(c, key, monitor);
    }
    return LVN_OK;
}

lvn_status lvni_run_read_plateau(const lvni_core_config *c, bool validates,
                                 lvni_optim_plateau_options *o)
{
    *o = (lvni_optim_plateau_options){
        .monitor = lvni_core_config_str(c, "scheduler.monitor"),
        .larger_is_better = lvni_run_more_is_better(c, "scheduler.mode", "scheduler.monitor"),
        .absolute = lvni_core_config_choice(c, "scheduler.threshold_mode") == 1,
        .factor = lvni_core_config_float(c, "scheduler.factor"),
        .threshold = lvni_core_config_float(c, "scheduler.threshold"),
        .min_lr = lvni_core_config_float(c, "scheduler.min_lr"),
        .patience = lvni_core_config_int(c, "scheduler.patience"),
        .cooldown = lvni_core_config_int(c, "scheduler.cooldown")};
    if (schedules[lvni_core_config_choice(c, "scheduler.name")] != LVNI_SCHEDULE_PLATEAU) {
        return LVN_OK;
    }
    return lvni_run_check_monitor(c, "scheduler.monitor", o->monitor, validates);
}

/* The optimizer's weight decay becomes the larger end, so that parts of it are given. */
lvn_status lvni_run_read_decay(const lvni_core_config *c, int64_t steps, double *weight_decay,
                               lvni_optim_curve *curve)
{
    *curve = (lvni_optim_curve){.kind = LVNI_CURVE_CONSTANT, .from = *weight_decay};
    if (!lvni_core_config_is_set(c, "optim.weight_decay_end")) {
        return LVN_OK;
    }
    if (steps == INT64_MAX) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "optim.weight_decay_end is the weight decay at the end of the run, and with "
                 "max_epochs=-1 max_steps=-1 the run has no end: give max_epochs or max_steps");
    }
    curve->to = lvni_core_config_float(c, "optim.weight_decay_end");
    curve->kind = lvni_core_config_choice(c, "optim.weight_decay_schedule") == 0
                      ? LVNI_CURVE_COSINE
                      : LVNI_CURVE_LINEAR;
    curve->steps = steps;
    *weight_decay = curve->to > *weight_decay ? curve->to : *weight_decay;
    return LVN_OK;
}

static int64_t number_of(const json_t *saved, const char *name, int64_t otherwise)
{
    const json_t *value = json_object_get(saved, name);
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : otherwise;
}

/* 0: it goes by the epoch. */
static int64_t saved_accumulation(const json_t *saved)
{
    const char *text = json_string_value(json_object_get(saved, "accumulate_grad_batches"));
    return text == NULL                ? number_of(saved, "accumulate_grad_batches", 1)
           : strchr(text, ':') == NULL ? strtoll(text, NULL, 10)
                                       : 0;
}

int64_t lvni_run_saved_end(const char *config_json, const lvni_plan *plan)
{
    json_t *saved = lvni_core_json_try(config_json, LVNI_JSON_INNER);
    const int64_t batch =
        number_of(saved, "batch_size", number_of(saved, "batch_size_per_device", 0)) *
        saved_accumulation(saved);
    int64_t end = 0;
    if (batch > 0 && plan->n_factors == 0) {
        const bool drop = json_is_true(json_object_get(saved, "drop_last"));
        const int64_t n = plan->n_samples, pass = n / batch + (n % batch != 0 && !drop ? 1 : 0),
                      here = plan->cycles ? plan->steps_per_epoch : pass;
        const lvni_plan then = {.steps_per_epoch = number_of(saved, "steps_per_epoch", here)};
        end = horizon(number_of(saved, "max_epochs", -1), number_of(saved, "max_steps", -1), &then);
    }
    json_decref(saved);
    return end;
}

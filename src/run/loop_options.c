/* Rows of the loop: how much of the data, when it is validated, when the run ends early; and what
 * they become (options.h). */
#include "run/options.h"

#include "core/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A whole number counts batches; what has a point or a percent sign is a part. */
static bool parse_limit(const char *text, lvni_run_limit *out)
{
    char *end;
    *out = (lvni_run_limit){0};
    if (text[0] != '.' && (text[0] < '0' || text[0] > '9')) {
        return false;
    }
    if (text[strspn(text, "0123456789")] == '\0') {
        out->batches = strtoll(text, NULL, 10);
        out->none = out->batches == 0;
        return out->batches <= INT32_MAX;
    }
    double part = lvni_core_strtod(text, &end);
    part = *end == '%' ? part / 100.0 : part;
    end += *end == '%';
    out->part = part < 1.0 ? part : 0.0; /* 1.0 is all */
    out->none = !(part > 0.0);
    return *end == '\0' && part >= 0.0 && part <= 1.0;
}

static lvn_status check_limit(const lvni_core_option *row, const lvni_core_value *value,
                              const char *origin)
{
    lvni_run_limit limit;
    return parse_limit(value->text, &limit)
               ? LVN_OK
               : lvni_core_option_fail(
                     row, value, origin,
                     "expected a number of batches, or a part as in 0.25 or 25%%");
}

static lvn_status check_some(const lvni_core_option *row, const lvni_core_value *value,
                             const char *origin)
{
    lvni_run_limit limit;
    return parse_limit(value->text, &limit) && !limit.none
               ? LVN_OK
               : lvni_core_option_fail(row, value, origin,
                                       "expected a number of batches from 1 on, or a part as in "
                                       "0.25 or 25%%");
}

/* The next field of "DD:HH:MM:SS": digits, then ':' or the end. */
static bool parse_field(const char **at, double *out)
{
    const size_t n = strspn(*at, "0123456789");
    *out = lvni_core_strtod(*at, NULL);
    *at += n;
    return n > 0 && n <= 9;
}

/* "DD:HH:MM:SS", or a number with s, m, h or d. Seconds; NaN: it is neither. */
static double parse_duration(const char *text)
{
    static const double unit[4] = {86400.0, 3600.0, 60.0, 1.0};
    double sum = 0.0, field;
    if (strchr(text, ':') == NULL) {
        static const char letters[] = "dhms";
        char *end;
        const double n = lvni_core_strtod(text, &end);
        const char *letter = *end == '\0' ? NULL : strchr(letters, *end);
        return text[0] < '0' || text[0] > '9' || letter == NULL || end[1] != '\0'
                   ? (double)NAN
                   : n * unit[letter - letters];
    }
    for (int i = 0; i < 4; i++) {
        if (!parse_field(&text, &field) || *text != (i < 3 ? ':' : '\0')) {
            return (double)NAN;
        }
        sum += field * unit[i];
        text++;
    }
    return sum;
}

static lvn_status check_duration(const lvni_core_option *row, const lvni_core_value *value,
                                 const char *origin)
{
    return parse_duration(value->text) > 0.0
               ? LVN_OK
               : lvni_core_option_fail(row, value, origin,
                                       "expected days:hours:minutes:seconds, as in 00:12:30:00, or "
                                       "a number with s, m, h or d, as in 90m");
}

static lvn_status check_interval(const lvni_core_option *row, const lvni_core_value *value,
                                 const char *origin)
{
    return parse_duration(value->text) > 0.0 ? LVN_OK : check_some(row, value, origin);
}

static lvn_status check_dev_run(const lvni_core_option *row, const lvni_core_value *value,
                                const char *origin)
{
    return lvni_run_dev_run(value->text) >= 0
               ? LVN_OK
               : lvni_core_option_fail(row, value, origin,
                                       "expected true, false or a number of batches");
}

int64_t lvni_run_dev_run(const char *text)
{
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        return text[0] == 't';
    }
    lvni_run_limit limit;
    return parse_limit(text, &limit) && text[strspn(text, "0123456789")] == '\0' ? limit.batches
                                                                                 : -1;
}

bool lvni_run_is_dev_run(const lvni_core_config *c)
{
    return lvni_core_config_has(c, "fast_dev_run") &&
           lvni_run_dev_run(lvni_core_config_str(c, "fast_dev_run")) > 0;
}

#define WATCHES "early_stopping.monitor"

static const lvni_core_option loop_rows[] = {
    {.name = "limit_train_batches",
     .type = LVNI_OPT_STRING,
     .fallback = "1.0",
     .check = check_some,
     .help =
         "An epoch is the first batches of its order alone: so many (10), or this part (0.25)."},
    {.name = "limit_val_batches",
     .type = LVNI_OPT_STRING,
     .fallback = "1.0",
     .check = check_limit,
     .help = "Chunks of eval_batch_size that a validation measures, the first ones: so many, or "
             "this part; 0: no validation."},
    {.name = "val_drop_last",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Leave out the last chunk of a validation where it is short of eval_batch_size, and "
             "not the only one."},
    {.name = "overfit_batches",
     .type = LVNI_OPT_STRING,
     .fallback = "0",
     .check = check_limit,
     .help = "To see whether a model can learn at all: limit_train_batches and limit_val_batches "
             "in one, with samples in the order of the data; 0: off."},
    {.name = "fast_dev_run",
     .type = LVNI_OPT_STRING,
     .fallback = "false",
     .flags = LVNI_OPT_NOT_SAVED,
     .check = check_dev_run,
     .help = "Try everything once: true or a number of batches, of training and of validation, and "
             "nothing is written."},
    {.name = "recompute",
     .type = LVNI_OPT_STRING_LIST,
     .flags = LVNI_OPT_LAYOUT,
     .help = "Modules that keep only their inputs for the backward pass and run again in it, with "
             "the same bits: less memory, more time. all: the network's blocks and what is "
             "outside of them; or patterns over paths of modules ([layer1,layer2.*]), as "
             "freeze= takes them; none, or unset: none."},
    {.name = "detect_anomaly",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .flags = LVNI_OPT_NOT_SAVED,
     .help =
         "Check what every op returns, and end at the first one that makes a number that is not "
         "finite: op, module, step and micro-batch are named. Slower; bits stay the same."},
    {.name = "on_bad_batch",
     .type = LVNI_OPT_CHOICE,
     .choices = "stop|skip|zero",
     .fallback = "stop",
     .help = "What a micro-batch whose loss is not finite does: stop: the run ends; skip: its "
             "samples are left out of the step's mean; zero: they count, with a gradient of zeros. "
             "bad_batches in metrics.jsonl is how many there were."},
    {.name = "min_epochs",
     .type = LVNI_OPT_INT,
     .unit = "epochs",
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 2147483647),
     .needs = WATCHES,
     .help = "Early stopping does not end the run before."},
    {.name = "min_steps",
     .type = LVNI_OPT_INT,
     .unit = "steps",
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 2147483647),
     .needs = WATCHES,
     .help = "Early stopping does not end the run before."},
    {.name = "max_time",
     .type = LVNI_OPT_STRING,
     .check = check_duration,
     .help = "The run ends, with a checkpoint, after this time of training, as 00:12:30:00 (days, "
             "hours, minutes, seconds) or 90m; what came before resume=true counts."},
    {.name = "auto_requeue",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "In a Slurm job: after SIGUSR1 and the checkpoint rank 0 runs scontrol requeue, and "
             "the job's next start resumes the run. Either way the exit code is 85."},
    {.name = "max_requeues",
     .type = LVNI_OPT_INT,
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 1000000),
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "auto_requeue, but not more often than this: the exit code is then 86; 0: no limit."},
    {.name = "stop_before_limit",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "In a Slurm job: stop a minute before its time limit as at SIGUSR1, also where no "
             "--signal was given."},
    {.name = "check_val_every_n_epoch",
     .type = LVNI_OPT_INT,
     .unit = "epochs",
     .fallback = "1",
     .range = LVNI_AT_LEAST(1),
     .help = "Epochs from one with validation to the next."},
    {.name = "val_check_interval",
     .type = LVNI_OPT_STRING,
     .fallback = "1.0",
     .check = check_interval,
     .help =
         "In such an epoch: validation after every so many batches (100), or after this part of "
         "the epoch (0.25), or after this time (00:00:30:00 or 30m), by the clock of rank 0."},
    {.name = "num_sanity_val_steps",
     .type = LVNI_OPT_INT,
     .fallback = "2",
     .range = LVNI_AT_LEAST(-1),
     .help = "Chunks of validation before the first step, so that what fails there fails now; "
             "-1: all."},
    {.name = "early_stopping.monitor",
     .type = LVNI_OPT_STRING,
     .help = "The metric that ends the run when it does not improve: val/loss, val/acc or any "
             "other of the log, after each validation; train/loss and others after each epoch. A "
             "value that is not finite ends it, too. Unset: the run goes to its end."},
    {.name = "early_stopping.mode",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|min|max",
     .fallback = "auto",
     .needs = WATCHES,
     .help =
         "What is better, less or more; auto: more of val/acc and other accuracies (acc, accuracy, "
         "f1, auc, psnr, ssim), less of all else."},
    {.name = "early_stopping.patience",
     .type = LVNI_OPT_INT,
     .fallback = "3",
     .range = LVNI_AT_LEAST(0),
     .help = "Looks at the metric in a row without improvement that end the run, 0 as 1; given "
             "without early_stopping.monitor: of val/loss."},
    {.name = "early_stopping.min_delta",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .needs = WATCHES,
     .help = "What an improvement has to exceed."},
    {.name = "early_stopping.stopping_threshold",
     .type = LVNI_OPT_FLOAT,
     .flags = LVNI_OPT_ZERO_IS_ON,
     .needs = WATCHES,
     .help = "As good as this ends the run at once."},
    {.name = "early_stopping.divergence_threshold",
     .type = LVNI_OPT_FLOAT,
     .flags = LVNI_OPT_ZERO_IS_ON,
     .needs = WATCHES,
     .help = "As bad as this ends the run at once."},
    LVNI_OPTION_ALIAS("train_percent_check", "limit_train_batches"),
    LVNI_OPTION_ALIAS("val_percent_check", "limit_val_batches"),
    LVNI_OPTION_ALIAS("overfit_pct", "overfit_batches"),
    LVNI_OPTION_ALIAS("min_nb_epochs", "min_epochs"),
    LVNI_OPTION_ALIAS("nb_sanity_val_steps", "num_sanity_val_steps"),
};
const lvni_core_option_table lvni_run_loop_options = LVNI_OPTION_TABLE("loop", loop_rows);

/* overfit_batches stands for both limits. */
lvni_run_limit lvni_run_read_limit(const lvni_core_config *c, const char *key)
{
    lvni_run_limit limit, both;
    (void)parse_limit(lvni_core_config_str(c, "overfit_batches"), &both);
    (void)parse_limit(lvni_core_config_str(c, key), &limit);
    return both.none ? limit : both;
}

bool lvni_run_overfits(const lvni_core_config *c)
{
    lvni_run_limit limit;
    (void)parse_limit(lvni_core_config_str(c, "overfit_batches"), &limit);
    return !limit.none;
}

/* A part that is not the whole, of so many. */
static int64_t part_of(double part, int64_t all)
{
    const int64_t n = (int64_t)((double)all * part);
    return n > 0 ? n : 1;
}

static lvn_status read_validation(const lvni_core_config *c, lvni_trainer_options *o)
{
    const lvni_run_limit limit = lvni_run_read_limit(c, "limit_val_batches");
    lvni_run_limit interval;
    (void)parse_limit(lvni_core_config_str(c, "val_check_interval"), &interval);
    if (limit.none) {
        o->val = NULL;
        return LVN_OK;
    }
    const int64_t n = o->val->cls->length(o->val), all = lvni_plan_eval_chunks(&o->plan, n);
    o->val_chunks = lvni_plan_eval_limit(&o->plan, n, limit.batches, limit.part);
    if (o->val_chunks == 0 && all > 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "limit_val_batches=%g leaves nothing of the %lld chunk%s of validation; smallest "
                 "that works: %.3g, or a number of chunks",
                 limit.part, (long long)all, lvni_core_plural(all, "", "s"),
                 ceil(1e3 / (double)all) / 1e3);
    }
    const int64_t whole = n / o->plan.eval_batch_size;
    if (lvni_core_config_bool(c, "val_drop_last") && whole > 0 && o->val_chunks > whole) {
        o->val_chunks = whole;
    }
    o->val_chunks = o->val_chunks == all ? 0 : o->val_chunks;
    const double seconds = parse_duration(lvni_core_config_str(c, "val_check_interval"));
    o->val_every_s = seconds > 0.0 ? seconds : 0.0;
    interval = seconds > 0.0 ? (lvni_run_limit){0} : interval;
    const int64_t of_epoch = lvni_plan_batches_before(&o->plan, o->plan.steps_per_epoch),
                  batches =
                      interval.part > 0.0 ? part_of(interval.part, of_epoch) : interval.batches;
    if (batches > of_epoch) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "val_check_interval=%lld: an epoch has %lld batch%s, so there would be no "
                 "validation; give at most that, or check_val_every_n_epoch",
                 (long long)batches, (long long)of_epoch, lvni_core_plural(of_epoch, "", "es"));
    }
    o->val_every_n_batches = batches == of_epoch ? 0 : batches;
    o->val_every_n_epochs = lvni_core_config_int(c, "check_val_every_n_epoch");
    o->sanity_chunks = lvni_core_config_int(c, "num_sanity_val_steps");
    return LVN_OK;
}

static double number_or_none(const lvni_core_config *c, const char *key)
{
    return lvni_core_config_is_set(c, key) ? lvni_core_config_float(c, key) : (double)NAN;
}

/* "val_loss", as Lightning has it, is val/loss. */
static lvn_status respell_monitor(lvni_core_config *c, const char *key)
{
    static const char *const parts[] = {"val_", "train_"};
    char text[128];
    const char *given = lvni_core_config_has(c, key) ? lvni_core_config_str(c, key) : NULL;
    for (size_t i = 0; given != NULL && i < sizeof parts / sizeof *parts; i++) {
        const size_t n = strlen(parts[i]);
        if (strncmp(given, parts[i], n) == 0 && given[n] != '\0' && strlen(given) < sizeof text) {
            snprintf(text, sizeof text, "%s", given);
            text[n - 1] = '/';
            return lvni_core_config_set(c, key, text, lvni_core_config_origin(c, key));
        }
    }
    return LVN_OK;
}

/* A patience asks for an early end: also 3, under the name that is not that of the default. The
 * one of scheduler=plateau has a key of its own. */
static lvn_status resolve_patience(lvni_core_config *c)
{
    static const char key[] = "early_stopping.patience";
    const lvni_core_layer layer = lvni_core_config_layer(c, key);
    const bool off = lvni_core_config_layer(c, WATCHES) >= layer; /* ~early_stopping.monitor */
    const bool given = layer == LVNI_LAYER_ARGUMENTS || layer == LVNI_LAYER_FILE,
               copied = layer == LVNI_LAYER_FILE && lvni_core_config_int(c, key) == 3 &&
                        strcmp(lvni_core_config_spelled(c, key), "patience") != 0;
    if (!given || copied || off || lvni_core_config_is_set(c, WATCHES)) {
        return LVN_OK;
    }
    if (lvni_core_config_has(c, "scheduler.name") &&
        strcmp(lvni_core_config_str(c, "scheduler.name"), "plateau") == 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s=%lld beside scheduler=plateau: give scheduler.patience for that, or " WATCHES
                 "=val/loss as well for an early end  (%s)",
                 lvni_core_config_spelled(c, key), (long long)lvni_core_config_int(c, key),
                 lvni_core_config_origin(c, key));
    }
    return lvni_core_config_set(c, WATCHES, "val/loss", lvni_core_config_origin(c, key));
}

lvn_status lvni_run_resolve_monitors(lvni_core_config *c)
{
    if (!lvni_core_config_has(c, WATCHES)) {
        return LVN_OK; /* it trains nothing */
    }
    LVN_TRY(respell_monitor(c, "checkpoint.monitor"));
    LVN_TRY(respell_monitor(c, "scheduler.monitor"));
    LVN_TRY(respell_monitor(c, WATCHES));
    return resolve_patience(c);
}

static lvn_status read_early(const lvni_core_config *c, lvni_trainer_options *o)
{
    if (!lvni_core_config_is_set(c, WATCHES)) {
        return LVN_OK;
    }
    o->early = (lvni_trainer_early_options){
        .monitor = lvni_core_config_str(c, WATCHES),
        .larger_is_better = lvni_run_more_is_better(c, "early_stopping.mode", WATCHES),
        .min_delta = lvni_core_config_float(c, "early_stopping.min_delta"),
        .patience = lvni_core_config_int(c, "early_stopping.patience"),
        .stopping_threshold = number_or_none(c, "early_stopping.stopping_threshold"),
        .divergence_threshold = number_or_none(c, "early_stopping.divergence_threshold")};
    o->min_epochs = lvni_core_config_int(c, "min_epochs");
    o->min_steps = lvni_core_config_int(c, "min_steps");
    return lvni_run_check_monitor(c, WATCHES, o->early.monitor, o->val != NULL);
}

lvn_status lvni_run_read_loop(const lvni_core_config *c, lvni_trainer_options *o)
{
    LVN_TRY(o->val != NULL ? read_validation(c, o) : LVN_OK);
    if (lvni_core_config_is_set(c, "max_time")) {
        o->max_time_s = parse_duration(lvni_core_config_str(c, "max_time"));
    }
    return read_early(c, o);
}

/* That of a resumed run counts as given: "train on to max_steps" must not remove its end. */
lvn_status lvni_run_resolve_end(lvni_core_config *c)
{
    const char *by = lvni_core_config_int(c, "max_steps") >= 0 ? "max_steps"
                     : lvni_core_config_is_set(c, "max_time")  ? "max_time"
                                                               : NULL;
    return by != NULL && lvni_core_config_layer(c, "max_epochs") == LVNI_LAYER_DEFAULT
               ? lvni_core_config_set(c, "max_epochs", "-1", by)
               : LVN_OK;
}

/* Under their old names these are parts of the data, so that 1 is all of it, where a new name has
 * one batch. */
static lvn_status check_old_part(const lvni_core_config *c, const char *key, const char *old)
{
    const char *text = lvni_core_config_str(c, key);
    lvni_run_limit limit;
    if (strcmp(lvni_core_config_spelled(c, key), old) != 0 || !parse_limit(text, &limit) ||
        limit.batches == 0) {
        return LVN_OK;
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "%s=%s (%s): a part of the data under this name, and a number of batches under the "
             "name %s; give %s=1.0 for all of the data, or %s=%s for batches",
             old, text, lvni_core_config_origin(c, key), key, old, key, text);
}

/* Written over what was given: nothing of it is kept. */
lvn_status lvni_run_resolve_dev_run(lvni_core_config *c)
{
    LVN_TRY(check_old_part(c, "limit_train_batches", "train_percent_check"));
    LVN_TRY(check_old_part(c, "limit_val_batches", "val_percent_check"));
    LVN_TRY(check_old_part(c, "overfit_batches", "overfit_pct"));
    if (lvni_run_is_dev_run(c) && lvni_core_config_bool(c, "resume")) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "fast_dev_run=%s with resume=true: it tries the code from the "
                 "beginning and keeps nothing; give one of the two",
                 lvni_core_config_str(c, "fast_dev_run"));
    }
    static const char *const once[] = {"max_epochs", "check_val_every_n_epoch"};
    static const char *const limits[] = {"limit_train_batches", "limit_val_batches", "max_steps"};
    static const char *const off[][2] = {{"overfit_batches", "0"},
                                         {"num_sanity_val_steps", "0"},
                                         {"val_check_interval", "1.0"},
                                         {WATCHES, "null"}};
    const int64_t n = lvni_run_dev_run(lvni_core_config_str(c, "fast_dev_run"));
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)n);
    for (size_t i = 0; n > 0 && i < sizeof once / sizeof *once; i++) {
        LVN_TRY(lvni_core_config_set(c, once[i], "1", "fast_dev_run"));
    }
    for (size_t i = 0; n > 0 && i < sizeof limits / sizeof *limits; i++) {
        LVN_TRY(lvni_core_config_set(c, limits[i], text, "fast_dev_run"));
    }
    for (size_t i = 0; n > 0 && i < sizeof off / sizeof *off; i++) {
        LVN_TRY(lvni_core_config_set(c, off[i][0], off[i][1], "fast_dev_run"));
    }
    return LVN_OK;
}

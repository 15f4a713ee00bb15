/* What follows from metrics: the learning rate of scheduler=plateau, early stopping. Called by the
 * loop (loop.c) and by callers that drive steps (drive.c); every rank has the same sums. */
#include "core/math.h"
#include "core/str.h"
#include "log/run_log.h"
#include "trainer/loop_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool lvni_trainer_loop_is_val(const char *monitor)
{
    return strncmp(monitor, "val/", 4) == 0;
}

bool lvni_trainer_loop_is_new(const char *monitor, unsigned news)
{
    return monitor != NULL && (news & (lvni_trainer_loop_is_val(monitor) ? LVNI_NEWS_VALIDATION
                                                                         : LVNI_NEWS_EPOCH)) != 0;
}

static void list_metrics(const lvni_nn_step *of, const char *part, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < of->n_metrics && n < size; i++) {
        n += (size_t)snprintf(text + n, size - n, "%s%s/%s", i > 0 ? ", " : "", part,
                              of->metric[i].name);
    }
}

lvn_status lvni_trainer_loop_find_metric(const lvni_trainer *t, const char *key,
                                         const char *monitor, double *out)
{
    const bool val = lvni_trainer_loop_is_val(monitor);
    const lvni_nn_step *of = val ? &t->report.last_val : &t->report.epoch_sum;
    const char *name = strchr(monitor, '/') + 1;
    char list[400];
    for (int i = 0; i < of->n_metrics; i++) {
        if (strcmp(of->metric[i].name, name) == 0) {
            *out = lvni_trainer_metric_mean(of, name);
            return LVN_OK;
        }
    }
    list_metrics(of, val ? "val" : "train", list, sizeof list);
    LVN_FAIL(LVN_ERR_USAGE, "%s=%s: %s of epoch %lld has no such metric; it has %s", key, monitor,
             val ? "the validation" : "the training", (long long)t->at.epoch + 1,
             list[0] == '\0' ? "none" : list);
}

/* key: of the option, for the error. A metric without a value is none. */
static lvn_status read_metric(const lvni_trainer *t, const char *key, const char *monitor,
                              double *out)
{
    const bool val = lvni_trainer_loop_is_val(monitor);
    LVN_TRY(lvni_trainer_loop_find_metric(t, key, monitor, out));
    if (!lvni_trainer_metric_exists(val ? &t->report.last_val : &t->report.epoch_sum,
                                    strchr(monitor, '/') + 1)) {
        LVN_FAIL(LVN_ERR_USAGE, "%s=%s: nothing of it had weight in %s of epoch %lld", key, monitor,
                 val ? "the validation" : "the training", (long long)t->at.epoch + 1);
    }
    return LVN_OK;
}

static lvn_status follow_plateau(lvni_trainer *t)
{
    const lvni_optim_plateau_options *o = &t->o.plateau;
    double value;
    LVN_TRY(read_metric(t, "scheduler.monitor", o->monitor, &value));
    if (lvni_optim_plateau_follow(&t->engine->plateau, o, t->o.optim.lr, value)) {
        lvni_log_line(LVNI_LOG_INFO,
                      "%s has not improved for %lld epoch%s: the learning rate is %g", o->monitor,
                      (long long)o->patience + 1,
                      lvni_core_plural((int64_t)o->patience + 1, "", "s"),
                      t->o.optim.lr * t->engine->plateau.factor);
    }
    return LVN_OK;
}

static void print_reason(const lvni_trainer *t, double value, lvni_core_str *out)
{
    const lvni_trainer_early_options *o = &t->o.early;
    const lvni_trainer_early *e = &t->early;
    if (e->reason == LVNI_EARLY_PATIENCE) {
        const char *check = lvni_trainer_loop_is_val(o->monitor) ? "validation" : "epoch";
        lvni_core_str_printf(out, "has not improved on %g for %lld %s%s", e->best,
                             (long long)e->waited, check, lvni_core_plural(e->waited, "", "s"));
        return;
    }
    lvni_core_str_printf(out, "is %g", lvni_core_unsigned_nan(value));
    if (e->reason != LVNI_EARLY_NOT_FINITE) {
        const bool good = e->reason == LVNI_EARLY_GOOD;
        lvni_core_str_printf(out, ", %s early_stopping.%s_threshold=%g",
                             good ? "as good as" : "as bad as", good ? "stopping" : "divergence",
                             good ? o->stopping_threshold : o->divergence_threshold);
    }
}

static lvn_status follow_early(lvni_trainer *t)
{
    const lvni_trainer_early_options *o = &t->o.early;
    double value;
    LVN_TRY(read_metric(t, "early_stopping.monitor", o->monitor, &value));
    if (lvni_trainer_early_follow(&t->early, o, value)) {
        lvni_core_str text = {0};
        print_reason(t, value, &text);
        const bool waits = t->at.epoch + 1 < t->o.min_epochs || t->at.step < t->o.min_steps;
        lvni_log_line(LVNI_LOG_INFO, "early stopping: %s %s%s", o->monitor,
                      lvni_core_str_text(&text),
                      waits ? "; the run goes on to min_epochs and min_steps" : "");
        lvni_core_str_free(&text);
    }
    return LVN_OK;
}

lvn_status lvni_trainer_loop_follow(lvni_trainer *t, unsigned news)
{
    if (t->o.schedule.kind == LVNI_SCHEDULE_PLATEAU &&
        lvni_trainer_loop_is_new(t->o.plateau.monitor, news)) {
        LVN_TRY(follow_plateau(t));
    }
    return lvni_trainer_loop_is_new(t->o.early.monitor, news) ? follow_early(t) : LVN_OK;
}

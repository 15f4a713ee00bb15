/* What follows from metrics: the learning rate of scheduler=plateau, early stopping; and what of it
 * a checkpoint holds. Called by the loop (loop.c), by callers that drive steps (drive.c), save.c
 * and state.c; every rank has the same sums. */
#include "core/math.h"
#include "core/str.h"
#include "log/run_log.h"
#include "trainer/loop_impl.h"
#include "trainer/state_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool lvni_trainer_loop_is_val(const char *monitor)
{
    return strncmp(monitor, "val/", 4) == 0;
}

bool lvni_trainer_loop_is_new(const lvni_trainer *t, const char *monitor, unsigned news)
{
    if (monitor == NULL || lvni_trainer_loop_is_val(monitor)) {
        return monitor != NULL && (news & LVNI_NEWS_VALIDATION) != 0;
    }
    /* an epoch of bad batches alone (on_bad_batch=skip) has nothing new */
    return (news & LVNI_NEWS_EPOCH) != 0 &&
           lvni_trainer_metric_exists(&t->report.epoch_sum, "loss");
}

void lvni_trainer_loop_print_monitor(const char *monitor, bool larger_is_better, char *text,
                                     size_t size)
{
    text[0] = '\0';
    if (monitor != NULL) {
        snprintf(text, size, "%s %.100s", larger_is_better ? "max" : "min", monitor);
    }
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

/* The nearest name of a metric, of a monitor without its "val/"; NULL: none is near. */
static const char *find_near(const lvni_nn_step *of, const char *name)
{
    const char *near = NULL;
    size_t nearest = SIZE_MAX;
    for (int i = 0; i < of->n_metrics; i++) {
        const char *one = of->metric[i].name;
        const size_t d = lvni_core_edit_distance(name, one);
        if (d <= lvni_core_edit_limit(name, one) && d < nearest) {
            near = one;
            nearest = d;
        }
    }
    return near;
}

/* The metric that the option `key` names, among those of `of`, which are of `where`. */
static lvn_status find_in(const lvni_nn_step *of, const char *where, const char *key,
                          const char *monitor, double *out)
{
    const char *part = lvni_trainer_loop_is_val(monitor) ? "val" : "train";
    const char *name = strchr(monitor, '/') + 1;
    char list[400], meant[100] = "";
    for (int i = 0; i < of->n_metrics; i++) {
        if (strcmp(of->metric[i].name, name) == 0) {
            *out = lvni_trainer_metric_mean(of, name);
            return LVN_OK;
        }
    }
    list_metrics(of, part, list, sizeof list);
    const char *near = find_near(of, name);
    if (near != NULL) {
        snprintf(meant, sizeof meant, "; did you mean `%s/%.60s`?", part, near);
    }
    LVN_FAIL(LVN_ERR_USAGE, "%s=%s: %s has no such metric; it has %s%s", key, monitor, where,
             list[0] == '\0' ? "none" : list, meant);
}

lvn_status lvni_trainer_loop_find_metric(const lvni_trainer *t, const char *key,
                                         const char *monitor, double *out)
{
    const bool val = lvni_trainer_loop_is_val(monitor);
    char where[64];
    snprintf(where, sizeof where, "the %s of epoch %lld", val ? "validation" : "training",
             (long long)t->at.epoch + 1);
    return find_in(val ? &t->report.last_val : &t->report.epoch_sum, where, key, monitor, out);
}

/* What is decided by val/NAME, one after the other; NULL: no more. */
static const char *next_watched(const lvni_trainer *t, int *at, const char **key)
{
    const bool plateau = t->o.schedule.kind == LVNI_SCHEDULE_PLATEAU;
    const char *const watched[][2] = {{"checkpoint.monitor", t->o.keep.monitor},
                                      {"scheduler.monitor", plateau ? t->o.plateau.monitor : NULL},
                                      {"early_stopping.monitor", t->o.early.monitor}};
    for (; *at < (int)(sizeof watched / sizeof *watched); (*at)++) {
        if (watched[*at][1] != NULL && lvni_trainer_loop_is_val(watched[*at][1])) {
            *key = watched[*at][0];
            return watched[(*at)++][1];
        }
    }
    return NULL;
}

bool lvni_trainer_loop_monitors_validation(const lvni_trainer *t)
{
    int at = 0;
    const char *key;
    return next_watched(t, &at, &key) != NULL;
}

/* Those in the names of kept checkpoints. */
static lvn_status check_pattern(const lvni_trainer *t, const lvni_nn_step *validation,
                                const char *where)
{
    lvni_trainer_pattern_field f;
    const bool named = t->o.keep.save_top_k != 0 || t->o.keep.keep_every_n_epochs > 0;
    const char *at = named ? t->o.keep.filename : "";
    double value;
    for (lvni_trainer_pattern_part part = lvni_trainer_pattern_next(&at, &f);
         part == LVNI_PATTERN_TEXT || part == LVNI_PATTERN_FIELD;
         part = lvni_trainer_pattern_next(&at, &f)) {
        if (lvni_trainer_loop_is_val(f.metric)) {
            LVN_TRY(find_in(validation, where, "checkpoint.filename", f.metric, &value));
        }
    }
    return LVN_OK;
}

lvn_status lvni_trainer_loop_check_names(const lvni_trainer *t, const lvni_nn_step *validation)
{
    int at = 0;
    const char *key, *monitor;
    char where[80];
    double value;
    snprintf(where, sizeof where, "the sanity validation before step %lld",
             (long long)t->at.step + 1);
    /* no sample of it could be read; or the module adds others to a real one */
    if (validation->n_metrics == 0 || t->o.model->root->cls->validated != NULL) {
        return LVN_OK;
    }
    while ((monitor = next_watched(t, &at, &key)) != NULL) {
        LVN_TRY(find_in(validation, where, key, monitor, &value));
    }
    return check_pattern(t, validation, where);
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

static double base_rate(const lvni_trainer *t)
{
    return t->o.optim.lr * lvni_optim_schedule_scale(&t->o.schedule);
}

static lvn_status follow_plateau(lvni_trainer *t)
{
    const lvni_optim_plateau_options *o = &t->o.plateau;
    double value;
    LVN_TRY(read_metric(t, "scheduler.monitor", o->monitor, &value));
    if (lvni_optim_plateau_follow(&t->engine->plateau, o, base_rate(t), value)) {
        lvni_log_line(LVNI_LOG_INFO,
                      "%s has not improved for %lld epoch%s: the learning rate is %g", o->monitor,
                      (long long)o->patience + 1,
                      lvni_core_plural((int64_t)o->patience + 1, "", "s"),
                      base_rate(t) * t->engine->plateau.factor);
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
        lvni_trainer_loop_is_new(t, t->o.plateau.monitor, news)) {
        LVN_TRY(follow_plateau(t));
    }
    return lvni_trainer_loop_is_new(t, t->o.early.monitor, news) ? follow_early(t) : LVN_OK;
}

/* What trains on a run that has come to its end. */
static const char *longer(const lvni_trainer *t)
{
    static const char *const early[LVNI_EARLY_REASONS] = {
        [LVNI_EARLY_GOES_ON] = "a larger max_epochs",
        [LVNI_EARLY_GOOD] =
            "another early_stopping.stopping_threshold, or ~early_stopping.monitor,",
        [LVNI_EARLY_DIVERGED] =
            "another early_stopping.divergence_threshold, or ~early_stopping.monitor,",
        [LVNI_EARLY_PATIENCE] = "a larger early_stopping.patience, or ~early_stopping.monitor,",
        [LVNI_EARLY_NOT_FINITE] = "another early_stopping.monitor, or ~early_stopping.monitor,"};
    const bool steps = t->o.max_steps >= 0 && t->at.step >= t->o.max_steps,
               epochs = t->o.max_epochs >= 0 && t->at.epoch >= t->o.max_epochs;
    if (steps && epochs) {
        return "a larger max_epochs and max_steps";
    }
    return steps ? "a larger max_steps" : epochs ? "a larger max_epochs" : early[t->early.reason];
}

void lvni_trainer_loop_report_finished(const lvni_trainer *t)
{
    char reason[64];
    lvni_trainer_end_reason(t, reason, sizeof reason);
    lvni_log_line(LVNI_LOG_INFO,
                  "nothing to do: the run is at step %lld, %lld epoch%s done, and ended by %s; %s "
                  "trains on",
                  (long long)t->at.step, (long long)t->at.epoch,
                  lvni_core_plural(t->at.epoch, " is", "s are"), reason, longer(t));
}

/* ---- in a checkpoint ---- */

static unsigned long long bits_of(double x)
{
    unsigned long long bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void print_plateau_monitor(const lvni_trainer *t, char by[LVNI_STATE_BEST_BY_TEXT])
{
    lvni_trainer_loop_print_monitor(t->o.plateau.monitor, t->o.plateau.larger_is_better, by,
                                    LVNI_STATE_BEST_BY_TEXT);
}

/* Numbers as their bits: exact in every locale. */
void lvni_trainer_state_plateau_print(const lvni_trainer *t, char *text, size_t size)
{
    const lvni_optim_plateau *p = &t->engine->plateau;
    text[0] = '\0';
    if (t->o.schedule.kind == LVNI_SCHEDULE_PLATEAU) {
        char by[LVNI_STATE_BEST_BY_TEXT];
        print_plateau_monitor(t, by);
        snprintf(text, size, "factor=%016llx best=%016llx bad=%lld cooling=%lld by=%s",
                 bits_of(p->factor), bits_of(p->best), (long long)p->bad, (long long)p->cooling,
                 by);
    }
}

/* With another monitor or mode it begins, from the rate that it came to. */
static bool is_same_plateau(const lvni_trainer *t, const char *by, lvni_optim_plateau *p)
{
    char is[LVNI_STATE_BEST_BY_TEXT];
    print_plateau_monitor(t, is);
    const bool old = by[0] == '\0', same = old || strncmp(by, " by=", 4) == 0;
    if (same && !old && strcmp(by + 4, is) != 0) {
        const double factor = p->factor;
        lvni_log_line(LVNI_LOG_INFO,
                      "scheduler.monitor or its mode is another one (%s, it was %.100s): its best "
                      "value counts from now on, and the learning rate stays at %g",
                      is, by + 4, base_rate(t) * factor);
        lvni_optim_plateau_begin(p);
        p->factor = factor;
    }
    return same;
}

/* A run that takes up this schedule begins with it. */
lvn_status lvni_trainer_state_plateau_read(const lvni_trainer *t, const lvni_ckpt *ckpt,
                                           lvni_optim_plateau *out)
{
    const char *text = lvni_ckpt_st_meta_get(ckpt->file, LVNI_STATE_PLATEAU);
    unsigned long long factor = 0, best = 0;
    long long bad = 0, cooling = 0;
    int end = 0;
    lvni_optim_plateau_begin(out);
    if (text == NULL || t->o.schedule.kind != LVNI_SCHEDULE_PLATEAU) {
        return LVN_OK;
    }
    const int n = sscanf(text, "factor=%16llx best=%16llx bad=%lld cooling=%lld%n", &factor, &best,
                         &bad, &cooling, &end);
    memcpy(&out->factor, &factor, sizeof out->factor);
    memcpy(&out->best, &best, sizeof out->best);
    out->bad = bad;
    out->cooling = cooling;
    if (n != 4 || !(out->factor >= 0.0) || bad < 0 || cooling < 0 ||
        !is_same_plateau(t, text + end, out)) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: its metadata " LVNI_STATE_PLATEAU
                 " is %.200s, not factor=BITS best=BITS bad=N cooling=N by=MODE MONITOR",
                 ckpt->path, text);
    }
    return LVN_OK;
}

static void print_early_monitor(const lvni_trainer *t, char by[LVNI_STATE_BEST_BY_TEXT])
{
    lvni_trainer_loop_print_monitor(t->o.early.monitor, t->o.early.larger_is_better, by,
                                    LVNI_STATE_BEST_BY_TEXT);
}

void lvni_trainer_state_early_print(const lvni_trainer *t, char *text, size_t size)
{
    text[0] = '\0';
    if (t->o.early.monitor != NULL) {
        char by[LVNI_STATE_BEST_BY_TEXT];
        print_early_monitor(t, by);
        lvni_trainer_early_print(&t->early, by, text, size);
    }
}

/* A run that takes up early stopping begins with it. */
lvn_status lvni_trainer_state_early_read(const lvni_trainer *t, const lvni_ckpt *ckpt,
                                         lvni_trainer_early *early)
{
    const char *text = lvni_ckpt_st_meta_get(ckpt->file, LVNI_STATE_EARLY);
    char by[LVNI_STATE_BEST_BY_TEXT];
    bool same = true;
    lvni_trainer_early_begin(early);
    print_early_monitor(t, by);
    if (text != NULL && t->o.early.monitor != NULL &&
        !lvni_trainer_early_read(text, &t->o.early, by, early, &same)) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: its metadata " LVNI_STATE_EARLY
                 " is %.200s, not best=BITS waited=N reason=N last=BITS by=MODE MONITOR",
                 ckpt->path, text);
    }
    if (!same) {
        lvni_log_line(LVNI_LOG_INFO,
                      "early_stopping.monitor or its mode is another one (%s): early stopping "
                      "begins with this run",
                      by);
    }
    return LVN_OK;
}

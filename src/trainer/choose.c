/* Which checkpoints are the best and which are kept under names of their own: chosen from the
 * metrics of a finished validation or epoch, which every rank has alike; and what of it a
 * checkpoint holds. Called by the loop (loop.c), save.c and state.c. */
#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "trainer/loop_impl.h"
#include "trainer/state_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- choosing ---- */

/* By val/acc, then val/loss, then train/loss, whichever the module reports first. NaN: of a model
 * whose validation loss is not finite, as its accuracy means nothing, and of one whose training
 * loss is not. */
static double automatic_score(const lvni_trainer *t, bool validated)
{
    if (!validated && t->o.keep.newest_is_best) {
        const double loss = lvni_trainer_metric_mean(&t->report.epoch_sum, "loss");
        return isfinite(loss) ? (double)t->at.step : (double)NAN;
    }
    double score = validated ? lvni_trainer_metric_mean(&t->report.last_val, "acc") : (double)NAN;
    if (validated && lvni_trainer_metric_exists(&t->report.last_val, "loss") &&
        !isfinite(lvni_trainer_metric_mean(&t->report.last_val, "loss"))) {
        return (double)NAN;
    }
    if (isnan(score) && validated) {
        return -lvni_trainer_metric_mean(&t->report.last_val, "loss");
    }
    return isnan(score) ? -lvni_trainer_metric_mean(&t->report.epoch_sum, "loss") : score;
}

/* *looked: whether there is a score; the larger *score is the better. */
static lvn_status look(const lvni_trainer *t, unsigned news, bool validated, bool *looked,
                       double *score)
{
    const lvni_trainer_keep_options *o = &t->o.keep;
    if (o->monitor == NULL) {
        *looked = t->o.val == NULL || ((news & LVNI_NEWS_VALIDATION) != 0 &&
                                       (validated || (news & LVNI_NEWS_EPOCH) != 0));
        *score = *looked ? automatic_score(t, validated) : (double)NAN;
        return LVN_OK;
    }
    *looked = lvni_trainer_loop_is_new(t, o->monitor, news) &&
              (validated || !lvni_trainer_loop_is_val(o->monitor));
    *score = (double)NAN;
    LVN_TRY(*looked ? lvni_trainer_loop_find_metric(t, "checkpoint.monitor", o->monitor, score)
                    : LVN_OK);
    *score = o->larger_is_better ? *score : -*score;
    return LVN_OK;
}

/* Those in checkpoint.filename must be there, too. */
static lvn_status check_pattern(const lvni_trainer *t, unsigned news, bool validated)
{
    lvni_trainer_pattern_field f;
    const char *at = t->o.keep.filename;
    for (lvni_trainer_pattern_part part = lvni_trainer_pattern_next(&at, &f);
         part == LVNI_PATTERN_TEXT || part == LVNI_PATTERN_FIELD;
         part = lvni_trainer_pattern_next(&at, &f)) {
        double value;
        if (f.metric[0] != '\0' && lvni_trainer_loop_is_new(t, f.metric, news) &&
            (validated || !lvni_trainer_loop_is_val(f.metric))) {
            LVN_TRY(lvni_trainer_loop_find_metric(t, "checkpoint.filename", f.metric, &value));
        }
    }
    return LVN_OK;
}

/* Of a validation only when it was made after the newest step. */
static double value_of(const void *user, const char *metric)
{
    const lvni_trainer *t = user;
    const char *name = strchr(metric, '/') + 1;
    if (!lvni_trainer_loop_is_val(metric)) {
        return lvni_trainer_metric_mean(&t->report.epoch_sum, name);
    }
    return t->validated_step == t->at.step ? lvni_trainer_metric_mean(&t->report.last_val, name)
                                           : (double)NAN;
}

/* The next save keeps it: rank 0 alone knows the name. */
static lvn_status record_score(lvni_trainer *t, double score)
{
    const lvni_trainer_pattern_values values = {
        .epoch = t->at.epoch + 1, .step = t->at.step, .metric = value_of, .user = t};
    lvni_core_str name = {0};
    if (t->o.out == NULL) {
        return LVN_OK;
    }
    lvni_trainer_pattern_print(t->o.keep.filename, t->o.keep.names_in_filename, &values, &name);
    const lvn_status s = lvni_core_str_status(&name);
    snprintf(t->checkpointing.next_name, sizeof t->checkpointing.next_name, "%.*s",
             (int)sizeof t->checkpointing.next_name - 1, lvni_core_str_text(&name));
    t->checkpointing.next_step = t->at.step;
    t->checkpointing.next_score = score;
    lvni_core_str_free(&name);
    return s;
}

/* Rank 0 has the list; all save when one does. */
static lvn_status agree_on_name(lvni_trainer *t, double score, bool *named)
{
    int32_t wants = t->o.out != NULL &&
                    lvni_trainer_kept_wants(&t->checkpointing.files, t->o.keep.save_top_k, score);
    if (t->o.comm != NULL) {
        LVN_TRY(lvni_dist_comm_all_reduce(t->o.comm, &wants, &wants, 1, LVN_I32, LVNI_REDUCE_MAX));
    }
    *named = wants != 0;
    return LVN_OK;
}

bool lvni_trainer_choose_is_epoch(const lvni_trainer *t)
{
    const int64_t every = t->o.keep.every_n_epochs;
    return every <= 1 || (t->at.epoch + 1) % every == 0;
}

/* Behind the last step of an epoch that stays under a name of its own. */
static bool is_kept_epoch(const lvni_trainer *t, unsigned news)
{
    const int64_t every = t->o.keep.keep_every_n_epochs;
    return every > 0 && (news & LVNI_NEWS_EPOCH) != 0 && (t->at.epoch + 1) % every == 0;
}

lvn_status lvni_trainer_choose(lvni_trainer *t, unsigned news, bool validated, bool *best,
                               bool *named)
{
    const int64_t k = t->o.keep.save_top_k;
    bool looked;
    double score;
    const bool stays = is_kept_epoch(t, news);
    *best = *named = false;
    if (!lvni_trainer_choose_is_epoch(t)) { /* it does not compete */
        *named = t->checkpointing.next_stays = stays;
        LVN_TRY(stays ? check_pattern(t, news, validated) : LVN_OK);
        return stays ? record_score(t, (double)NAN) : LVN_OK;
    }
    LVN_TRY(k != 0 || stays ? check_pattern(t, news, validated) : LVN_OK);
    LVN_TRY(look(t, news, validated, &looked, &score));
    *best = looked && isfinite(score) && (isnan(t->at.best_score) || score > t->at.best_score);
    if (*best) {
        t->at.best_score = score;
        t->at.best_step = t->at.step;
    }
    *named = k < 0 && (looked || (news & LVNI_NEWS_EPOCH) != 0);
    LVN_TRY(k > 0 && looked ? agree_on_name(t, score, named) : LVN_OK);
    *named = *named || stays;
    t->checkpointing.next_stays = stays;
    return *named ? record_score(t, score) : LVN_OK;
}

lvn_status lvni_trainer_choose_periodic(lvni_trainer *t)
{
    t->checkpointing.next_stays = false;
    return t->o.keep.save_top_k < 0 ? record_score(t, (double)NAN) : LVN_OK;
}

lvn_status lvni_trainer_choose_begin_save(lvni_trainer *t)
{
    lvni_trainer_checkpointing *k = &t->checkpointing;
    lvni_trainer_kept_undo(&k->files, t->at.step);
    return k->next_name[0] != '\0' && k->next_step == t->at.step
               ? lvni_trainer_kept_add(&k->files, t->o.keep.save_top_k, k->next_name, t->at.step,
                                       k->next_score, k->next_stays)
               : LVN_OK;
}

/* ---- in a checkpoint ---- */

void lvni_trainer_choose_print_monitor(const lvni_trainer *t, char *text, size_t size)
{
    lvni_trainer_loop_print_monitor(t->o.keep.monitor, t->o.keep.larger_is_better, text, size);
}

void lvni_trainer_choose_path(const lvni_trainer *t, const char *name, lvni_core_str *out)
{
    lvni_core_str_printf(out, "%s/checkpoints/%s.safetensors", t->o.out, name);
}

/* Is it in the folder that the list is about? */
static bool is_own(const lvni_trainer *t, const char *path)
{
    static const char folder[] = "/checkpoints/";
    const size_t n = t->o.out == NULL ? 0 : strlen(t->o.out);
    return n > 0 && strncmp(path, t->o.out, n) == 0 &&
           strncmp(path + n, folder, sizeof folder - 1) == 0 &&
           strchr(path + n + sizeof folder - 1, '/') == NULL;
}

lvn_status lvni_trainer_choose_read(const lvni_trainer *t, const lvni_ckpt *ckpt,
                                    lvni_trainer_kept *out, bool *same_monitor)
{
    const char *text = lvni_ckpt_st_meta_get(ckpt->file, LVNI_STATE_KEPT),
               *was = lvni_ckpt_st_meta_get(ckpt->file, LVNI_STATE_BEST_BY);
    char is[LVNI_STATE_BEST_BY_TEXT];
    lvni_trainer_choose_print_monitor(t, is, sizeof is);
    *out = (lvni_trainer_kept){0};
    *same_monitor = strcmp(was == NULL ? "" : was, is) == 0;
    if (text == NULL || !is_own(t, ckpt->path)) {
        return LVN_OK;
    }
    const lvn_status s = lvni_trainer_kept_read(text, out);
    if (s == LVN_ERR_CORRUPT) {
        LVN_FAIL(s,
                 "%s: its metadata " LVNI_STATE_KEPT " is %.200s, not lines of kept STEP BITS "
                 "NAME",
                 ckpt->path, text);
    }
    return s;
}

/* A run that was killed while it saved has written the checkpoint, and perhaps not its name. */
static lvn_status find_file(const lvni_ckpt *ckpt, const char *path,
                            const lvni_trainer_kept_file *f, bool *there)
{
    *there = lvni_core_path_exists(path);
    if (!*there && f->step == ckpt->at.step) {
        *there = true;
        return lvni_ckpt_link(ckpt->path, path);
    }
    if (!*there) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "%s is not there: checkpoint.save_top_k does not count it any more", path);
    }
    return LVN_OK;
}

static lvn_status repair_one(const lvni_trainer *t, const lvni_ckpt *ckpt, lvni_trainer_kept *files,
                             int64_t i)
{
    const lvni_trainer_kept_state state = files->file[i].state;
    lvni_core_str path = {0};
    bool there = true;
    lvn_status s;
    lvni_trainer_choose_path(t, files->file[i].name, &path);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    if (state == LVNI_KEPT_THERE) {
        LVNI_TRY_DONE(s, find_file(ckpt, lvni_core_str_text(&path), &files->file[i], &there));
    } else if (state == LVNI_KEPT_OTHER) {
        there = lvni_core_path_exists(lvni_core_str_text(&path));
    } else {
        LVNI_TRY_DONE(s, lvni_core_file_remove(lvni_core_str_text(&path)));
        there = false;
    }
    if (!there) {
        lvni_trainer_kept_remove(files, i);
    }
done:
    lvni_core_str_free(&path);
    return s;
}

/* What stays first, then what leaves. */
static lvn_status repair(const lvni_trainer *t, const lvni_ckpt *ckpt, lvni_trainer_kept *files,
                         lvni_trainer_kept_state state)
{
    for (int64_t i = files->n - 1; i >= 0; i--) {
        LVN_TRY(files->file[i].state == state ? repair_one(t, ckpt, files, i) : LVN_OK);
    }
    return LVN_OK;
}

lvn_status lvni_trainer_choose_repair(const lvni_trainer *t, const lvni_ckpt *ckpt,
                                      lvni_trainer_kept *files)
{
    LVN_TRY(repair(t, ckpt, files, LVNI_KEPT_THERE));
    LVN_TRY(repair(t, ckpt, files, LVNI_KEPT_OTHER));
    return repair(t, ckpt, files, LVNI_KEPT_LEAVES);
}

/* Scores of two metrics cannot be compared. */
void lvni_trainer_choose_begin_again(lvni_trainer *t)
{
    char is[LVNI_STATE_BEST_BY_TEXT];
    const int64_t n = lvni_trainer_kept_set_aside(&t->checkpointing.files);
    lvni_core_str stay = {0};
    t->at.best_score = (double)NAN;
    t->at.best_step = -1;
    if (n > 0) {
        lvni_core_str_printf(&stay, "; the %lld checkpoint%s kept so far stay%s", (long long)n,
                             lvni_core_plural(n, "", "s"), lvni_core_plural(n, "s", ""));
    }
    lvni_trainer_choose_print_monitor(t, is, sizeof is);
    lvni_log_line(LVNI_LOG_INFO,
                  "checkpoint.monitor or its mode is another one (%s): the best checkpoint is "
                  "chosen from now on%s",
                  is[0] == '\0' ? "unset" : is, lvni_core_str_text(&stay));
    lvni_core_str_free(&stay);
}

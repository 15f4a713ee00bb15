/* The checkpoint that a resumed run goes on from (fit_impl.h): the newest one, or that of
 * resume_epoch, behind which nothing of the abandoned course stays. Called by fit.c. */
#include "run/fit_impl.h"

#include "ckpt/checkpoint.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "report/log_text.h"
#include "run/run_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -1: there is no checkpoint that can be read. */
static int64_t step_in(const char *path)
{
    lvni_ckpt *ckpt = NULL;
    const lvn_status s = lvni_ckpt_peek(path, &ckpt);
    const int64_t step = s == LVN_OK ? ckpt->at.step : -1;
    lvni_ckpt_free(ckpt);
    lvn_clear_error();
    return step;
}

/* The number in ".../epoch=0003-step=96.safetensors"; -1: it has none. */
static long long epoch_in(const char *path)
{
    static const char key[] = "epoch=";
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    char *end;
    if (strncmp(name, key, sizeof key - 1) != 0) {
        return -1;
    }
    const long long epoch = strtoll(name + sizeof key - 1, &end, 10);
    return end > name + sizeof key - 1 ? epoch : -1;
}

/* ---- resume_epoch ---- */

/* Of several checkpoints of the epoch the one with the highest step; NULL: there is none. The
 * epochs that are there, each once, into `have`: names of one epoch follow each other. */
static const char *find_epoch(char *const *files, int64_t n, long long wanted, lvni_core_str *have)
{
    const char *found = NULL;
    int64_t most = -1;
    long long before = -1;
    for (int64_t i = 0; i < n; i++) {
        const long long epoch = epoch_in(files[i]);
        if (epoch == wanted) {
            const int64_t step = step_in(files[i]);
            found = found == NULL || step > most ? files[i] : found;
            most = step > most ? step : most;
        }
        if (epoch >= 0 && epoch != before) {
            lvni_core_str_printf(have, "%s%lld", have->len > 0 ? ", " : "", epoch);
        }
        before = epoch;
    }
    return found;
}

static lvn_status load_epoch(const lvni_core_config *c, const char *dir, lvni_ckpt **out)
{
    const long long wanted = (long long)lvni_core_config_int(c, "resume_epoch");
    char **files = NULL;
    int64_t n = 0;
    lvni_core_str have = {0};
    lvn_status s = lvni_ckpt_files_of(dir, &files, &n);
    if (s == LVN_ERR_NOT_FOUND) {
        lvn_clear_error();
    } else if (s != LVN_OK) {
        goto done;
    }
    const char *found = find_epoch(files, n, wanted, &have);
    LVNI_TRY_DONE(s, lvni_core_str_status(&have));
    if (found != NULL) {
        s = lvni_ckpt_load(found, out);
    } else {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "resume_epoch=%lld: %s/checkpoints has no epoch=%lld%s; %s%.300s", wanted,
                          dir, wanted,
                          wanted == 0 ? ", since epochs count from 1 (0 in rcGAN is 1 here), and "
                                        "without this key the run goes on from the last checkpoint"
                                      : "",
                          have.len > 0 ? "it has " : "it keeps none: see checkpoint.save_top_k",
                          lvni_core_str_text(&have));
    }
done:
    lvni_core_str_free(&have);
    lvni_ckpt_files_free(files, n);
    return s;
}

/* ---- the best one ---- */

lvn_status lvni_run_write_chosen(const char *run, int64_t step, int64_t until)
{
    char text[48];
    char *file = lvni_run_path_join(run, "chosen");
    const int n = snprintf(text, sizeof text, "%lld %lld\n", (long long)step, (long long)until);
    const lvn_status s =
        file == NULL ? LVN_ERR_MEMORY : lvni_core_file_write(file, text, (size_t)n);
    lvni_core_free(file);
    return s;
}

/* false: nothing was chosen. */
static bool read_chosen(const char *run, int64_t *step, int64_t *until)
{
    enum { MOST = 64 };
    long long a = -1, b = -1;
    char *file = lvni_run_path_join(run, "chosen"), *text = NULL;
    size_t n;
    const bool found = file != NULL && lvni_core_path_exists(file) &&
                       lvni_core_file_read(file, MOST, &text, &n) == LVN_OK &&
                       sscanf(text, "%lld %lld", &a, &b) == 2 && a >= 0;
    lvni_core_free(text);
    lvni_core_free(file);
    lvn_clear_error();
    *step = a;
    *until = b;
    return found;
}

/* What `levin eval choose=` made the best checkpoint of the run stands in place of what its
 * training had found, and so in all checkpoints to come. */
static void take_chosen(const char *dir, lvni_ckpt *ckpt)
{
    int64_t step, until;
    char *best = lvni_run_dir_file(dir, LVNI_RUN_CHECKPOINTS, "best");
    if (best != NULL && read_chosen(dir, &step, &until) && step <= ckpt->at.step &&
        ckpt->at.best_step <= until && step_in(best) == step) {
        ckpt->at.best_step = step;
    }
    lvni_core_free(best);
}

static void warn(void *user, const char *text)
{
    (void)user;
    lvni_log_line(LVNI_LOG_WARNING, "%s", text);
}

lvn_status lvni_run_load_saved(const lvni_core_config *c, const char *dir, lvni_ckpt **out)
{
    lvn_status s;
    if (lvni_core_config_is_set(c, "resume_epoch")) {
        s = load_epoch(c, dir, out);
    } else {
        char *folder = lvni_run_path_join(dir, "checkpoints");
        s = folder == NULL ? LVN_ERR_MEMORY : lvni_ckpt_newest_valid(folder, warn, NULL, out);
        lvni_core_free(folder);
    }
    if (s == LVN_OK) {
        take_chosen(dir, *out);
    }
    return s;
}

/* ---- none left ---- */

/* Of a run, which exports one with each checkpoint; freed by the caller. NULL: there is none. */
static char *find_model(const char *dir)
{
    static const char *const names[] = {"exported_models/exported_last.safetensors",
                                        "exported_models/exported_best.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = lvni_run_path_join(dir, names[i]);
        if (path != NULL && lvni_core_path_exists(path)) {
            return path;
        }
        lvni_core_free(path);
    }
    return NULL;
}

static bool has_finished(const char *dir)
{
    char *path = lvni_run_path_join(dir, "train.log");
    lvni_report_log log = {0};
    const bool done = path != NULL && lvni_report_log_read(path, &log) == LVN_OK && log.done;
    lvn_clear_error(); /* a log that cannot be read shows nothing */
    lvni_report_log_free(&log);
    lvni_core_free(path);
    return done;
}

lvn_status lvni_run_check_gone(const char *dir)
{
    char **files;
    int64_t n;
    const lvn_status s = lvni_ckpt_files_of(dir, &files, &n);
    lvni_ckpt_files_free(files, n);
    if (s != LVN_ERR_NOT_FOUND) {
        return s;
    }
    lvn_clear_error();
    char *model = find_model(dir);
    const bool finished = has_finished(dir);
    if (!finished && model == NULL) { /* it was stopped before its first checkpoint */
        return LVN_OK;
    }
    (void)lvn_error_set(
        LVN_ERR_USAGE, __FILE__, __LINE__,
        "resume=true: the run in out=%s %s, and its checkpoints are gone: it would start from its "
        "beginning, over its files; put checkpoints/ back, train with another out%s%s, or replace "
        "the run with overwrite=true",
        dir, finished ? "has finished" : "has exported a model",
        model != NULL ? " and weights=" : "", model != NULL ? model : "");
    lvni_core_free(model);
    return LVN_ERR_USAGE;
}

/* ---- going back ---- */

/* One of a later step than `to` is not the best of the run any more: that is the one that `to`
 * names, or `to` itself where it is gone. */
static lvn_status rewind_best(const char *dir, const char *best, const lvni_ckpt *to,
                              char *const *files, int64_t n)
{
    const int64_t now = step_in(best);
    const char *from = to->path;
    int64_t step, until;
    if (now >= 0 && now <= to->at.step) {
        return read_chosen(dir, &step, &until) && step == now
                   ? lvni_run_write_chosen(dir, step, to->at.step)
                   : LVN_OK;
    }
    for (int64_t i = 0; i < n && to->at.best_step != to->at.step; i++) {
        from = epoch_in(files[i]) >= 0 && step_in(files[i]) == to->at.best_step ? files[i] : from;
    }
    LVN_TRY(lvni_ckpt_link(from, best));
    lvni_log_line(LVNI_LOG_INFO, "%s is %s now", best, from);
    return LVN_OK;
}

static lvn_status remove_later(const lvni_ckpt *to, char *const *files, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (epoch_in(files[i]) >= 0 && step_in(files[i]) > to->at.step) {
            LVN_TRY(lvni_core_file_remove(files[i]));
            lvni_log_line(LVNI_LOG_INFO, "%s: removed, since the run goes on from step %lld",
                          files[i], (long long)to->at.step);
        }
    }
    return LVN_OK;
}

static lvn_status rewind_to(const char *dir, const lvni_ckpt *to)
{
    char **files = NULL;
    int64_t n = 0;
    char *last = lvni_run_dir_file(dir, LVNI_RUN_CHECKPOINTS, "last"),
         *best = lvni_run_dir_file(dir, LVNI_RUN_CHECKPOINTS, "best");
    lvn_status s;
    LVNI_TRY_DONE(s, last == NULL || best == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVNI_TRY_DONE(s, lvni_ckpt_files_of(dir, &files, &n));
    /* what a resume needs first; then what must not be taken for it */
    LVNI_TRY_DONE(s, lvni_ckpt_link(to->path, last));
    LVNI_TRY_DONE(s, rewind_best(dir, best, to, files, n));
    LVNI_TRY_DONE(s, lvni_core_folder_sync(last));
    s = remove_later(to, files, n);
done:
    lvni_ckpt_files_free(files, n);
    lvni_core_free(last);
    lvni_core_free(best);
    return s;
}

lvn_status lvni_run_rewind(const char *dir, const lvni_ckpt *to, bool finished)
{
    if (finished) {
        lvni_log_line(LVNI_LOG_INFO,
                      "nothing is left to train behind step %lld: last and all other checkpoints "
                      "stay as they were; max_epochs or max_steps move the end",
                      (long long)to->at.step);
        return LVN_OK;
    }
    return rewind_to(dir, to);
}

/* The choice among a run's checkpoints (best_checkpoint.h). */
#include "run/best_checkpoint.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "run/fit.h"
#include "run/options.h"
#include "run/run_dir.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const lvni_core_option rows[] = {
    {.name = "choose",
     .type = LVNI_OPT_STRING,
     .help = "The best epoch of a run: each of the checkpoints in checkpoints/ is measured, on "
             "split=val unless another is given, and the one with the best value of this metric "
             "becomes the run's best. Unset: one model is measured."},
    {.name = "choose.mode",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|min|max",
     .fallback = "auto",
     .needs = "choose",
     .help = "What is better, less or more; auto: by the metric's name, as checkpoint.mode=auto "
             "has it."},
    {.name = "prune",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .needs = "choose",
     .help = "Then remove the other checkpoints, except last."},
};
const lvni_core_option_table lvni_run_choose_options = LVNI_OPTION_TABLE("choice", rows);

bool lvni_run_chooses(const lvni_run_recipe *recipe, const char *command, const lvni_core_config *c)
{
    bool has = recipe->choice != NULL;
    for (lvni_core_option_list t = recipe->eval_keys; *t != NULL; t++) {
        has = has || *t == &lvni_run_choose_options;
    }
    const char *metric =
        has && strcmp(command, "eval") == 0 ? lvni_core_config_str(c, "choose") : NULL;
    return metric != NULL && strcmp(metric, "none") != 0;
}

typedef struct choice {
    const lvni_run_recipe *recipe;
    lvni_core_config *config;
    int n_args;
    const char *const *args;
    const char *run, *score; /* directory; "cfid" */
    char **files;
    int64_t n_files;
    /* checkpoints in the order of their steps */
    const char **path;
    int64_t *step;
    lvni_run_candidate *epoch;
    int n;
    const lvni_run_choice_rules *rules;
    lvni_run_results results; /* of one: ends with its score */
    lvni_run_choice_table table;
    int now;  /* of the one that is being measured */
    bool any; /* one was measured before */
} choice;

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* ---- the run's checkpoints ---- */

/* The same step twice is one checkpoint. */
static void insert(choice *m, const char *path, int64_t step, const lvni_run_candidate *e)
{
    int at = m->n;
    while (at > 0 && m->step[at - 1] >= step) {
        at--;
    }
    if (at < m->n && m->step[at] == step) {
        return;
    }
    const size_t behind = (size_t)(m->n - at);
    memmove(m->path + at + 1, m->path + at, behind * sizeof *m->path);
    memmove(m->step + at + 1, m->step + at, behind * sizeof *m->step);
    memmove(m->epoch + at + 1, m->epoch + at, behind * sizeof *m->epoch);
    m->path[at] = path;
    m->step[at] = step;
    m->epoch[at] = *e;
    m->n++;
}

static lvn_status read_checkpoint(choice *m, const char *path)
{
    lvni_ckpt *ckpt;
    lvn_status s = lvni_ckpt_load(path, &ckpt);
    if (s == LVN_ERR_CORRUPT || s == LVN_ERR_IO) {
        lvni_log_line(LVNI_LOG_WARNING, "checkpoint passed over: %s", lvn_last_error()->message);
        lvn_clear_error();
        return LVN_OK;
    }
    LVN_TRY(s);
    lvni_run_candidate c = {.epoch = ckpt->at.epoch + (ckpt->at.step_in_epoch > 0 ? 1 : 0),
                            .score = (double)NAN,
                            .distance = (double)NAN,
                            .is_good = m->rules->measure == NULL};
    s = m->rules->measure == NULL ? LVN_OK : m->rules->measure(ckpt, &c);
    if (s == LVN_OK) {
        insert(m, path, ckpt->at.step, &c);
    }
    lvni_ckpt_free(ckpt);
    return s;
}

/* Those with names of their own; last and best are links to them. */
static lvn_status read_checkpoints(choice *m)
{
    LVN_TRY(lvni_ckpt_files_of(m->run, &m->files, &m->n_files));
    const size_t n = (size_t)m->n_files;
    m->path = lvni_core_calloc(LVNI_TAG_CKPT, n, sizeof *m->path);
    m->step = lvni_core_calloc(LVNI_TAG_CKPT, n, sizeof *m->step);
    m->epoch = lvni_core_calloc(LVNI_TAG_CKPT, n, sizeof *m->epoch);
    if (m->path == NULL || m->step == NULL || m->epoch == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < m->n_files; i++) {
        const char *name = name_of(m->files[i]);
        if (strcmp(name, "last.safetensors") != 0 && strcmp(name, "best.safetensors") != 0) {
            LVN_TRY(read_checkpoint(m, m->files[i]));
        }
    }
    if (m->n == 0) {
        LVN_FAIL(LVN_ERR_NOT_FOUND,
                 "choose=%s: %s/checkpoints has none to choose from beside last and best; train "
                 "with checkpoint.save_top_k, the number to keep, or "
                 "checkpoint.keep_every_n_epochs",
                 m->score, m->run);
    }
    return LVN_OK;
}

/* ---- the score of one ---- */

static lvn_status take_score(lvni_run_inference *u)
{
    choice *m = u->user;
    bool more = false;
    const char *mode = lvni_core_config_has(m->config, "choose.mode")
                           ? lvni_core_config_str(m->config, "choose.mode")
                           : "auto";
    LVN_TRY((m->results.score != NULL ? m->results.score : lvni_run_metric_score)(
        u, m->score, &m->epoch[m->now].score, &more));
    m->table.more_is_better = strcmp(mode, "auto") == 0 ? more : strcmp(mode, "max") == 0;
    return LVN_OK;
}

static lvn_status measure(choice *m, int i)
{
    lvni_core_config *c;
    LVN_TRY(lvni_run_inference_read(m->recipe, "eval", m->n_args, m->args, &c));
    lvn_status s = lvni_core_config_set(c, "model", m->path[i], "choose");
    s = s == LVN_OK
            ? lvni_core_config_set(c, "split", lvni_core_config_str(m->config, "split"), "choose")
            : s;
    if (s != LVN_OK) {
        lvni_core_config_destroy(c);
        return s;
    }
    m->now = i;
    const lvni_run_measurement one = {.results = &m->results,
                                      .user = m,
                                      .again = m->any,
                                      .metric = m->score,
                                      .n = m->n_args,
                                      .args = m->args};
    m->any = true;
    return lvni_run_inference_run(m->recipe, "eval", &one, c);
}

/* ---- the run's best ---- */

/* Of averaged weights where the training exported these, whatever was measured. */
static lvn_status export_best(const choice *m, const char *checkpoint)
{
    lvni_run_exported *e;
    const lvni_run_exported_place place = {.path = checkpoint, .use_ema = true};
    char *path = lvni_run_dir_file(m->run, LVNI_RUN_EXPORTS, "best"),
         *torch = lvni_run_dir_torch_file(m->run, "best");
    lvn_status s = path == NULL || torch == NULL
                       ? LVN_ERR_MEMORY
                       : lvni_run_exported_open(m->recipe, &place, LVNI_RUN_EXPORT, NULL, &e);
    if (s == LVN_OK) {
        const lvni_run_export_content content = {.model = e->model,
                                                 .values = e->model->weights,
                                                 .part = e->job.exported_part,
                                                 .recipe = m->recipe,
                                                 .card = &e->card,
                                                 .own = lvni_run_own_card(&e->job),
                                                 .step = e->step};
        s = content.part != NULL ? lvni_run_export_model(&content, torch) : LVN_OK;
        s = s == LVN_OK ? lvni_run_export_model(&content, path) : s;
        lvni_run_exported_close(e);
    }
    lvni_core_free(path);
    lvni_core_free(torch);
    return s;
}

/* The newest step of the run: up to there the choice replaces what its training found best. */
static int64_t newest_step(const choice *m)
{
    int64_t step = -1, epoch;
    const int64_t kept = m->step[m->n - 1];
    return lvni_run_dir_saved(m->run, &step, &epoch) && step > kept ? step : kept;
}

/* The choice is written first: a resumed run respects it once best is that step. Then in the
 * trainer's order, of which a resumed run completes what a kill left out. */
static lvn_status make_best(const choice *m, int i)
{
    char *best = lvni_run_dir_file(m->run, LVNI_RUN_CHECKPOINTS, "best");
    lvn_status s;
    LVNI_TRY_DONE(s, best == NULL ? LVN_ERR_MEMORY
                                  : lvni_run_write_chosen(m->run, m->step[i], newest_step(m)));
    LVNI_TRY_DONE(s, lvni_ckpt_link(m->path[i], best));
    s = export_best(m, m->path[i]);
done:
    lvni_core_free(best);
    return s;
}

static lvn_status prune(const choice *m, int best, int *removed)
{
    *removed = 0;
    for (int i = 0; i < m->n; i++) {
        if (i != best) {
            LVN_TRY(lvni_core_file_remove(m->path[i]));
            ++*removed;
        }
    }
    return LVN_OK;
}

/* ---- the answer ---- */

static void print_json(const choice *m, lvni_core_str *out)
{
    lvni_core_str_append(out, "{\"model\": ");
    lvni_core_str_json(out, m->run);
    lvni_core_str_printf(out, ", \"split\": \"%s\"", lvni_core_config_str(m->config, "split"));
    if (m->rules->print_members != NULL) {
        m->rules->print_members(m->config, out);
    }
    lvni_core_str_append(out, ", ");
    lvni_run_choice_json(m->epoch, m->n, &m->table, out);
    lvni_core_str_append(out, "}\n");
}

static lvn_status report(const choice *m)
{
    lvni_core_str table = {0}, json = {0};
    lvni_run_choice_print(m->epoch, m->n, &m->table, &table);
    print_json(m, &json);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&table));
    LVNI_TRY_DONE(s, lvni_core_str_status(&json));
    LVNI_TRY_DONE(s, m->rules->page == NULL
                         ? LVN_OK
                         : m->rules->page(m->config, m->run, lvni_core_str_text(&table)));
    const lvni_core_str *text = lvni_core_config_bool(m->config, "json") ? &json : &table;
    s = lvni_core_file_write(LVNI_STDOUT_PATH, lvni_core_str_text(text), text->len);
done:
    lvni_core_str_free(&table);
    lvni_core_str_free(&json);
    return s;
}

static lvn_status report_none(const choice *m, int closest)
{
    if (m->rules->measure == NULL) {
        LVN_FAIL(LVN_ERR_NOT_FOUND,
                 "%s is not finite for any checkpoint in %s; nothing was changed", m->score,
                 m->run);
    }
    if (closest < 0) {
        LVN_FAIL(LVN_ERR_NOT_FOUND,
                 "none of the checkpoints in %s is acceptable, and of none it is known by how much "
                 "it is not; nothing was changed",
                 m->run);
    }
    LVN_FAIL(LVN_ERR_NOT_FOUND,
             "none of the checkpoints in %s is acceptable (%s); the closest is %s, %.4f %s from "
             "its target; nothing was changed",
             m->run, m->rules->rule, name_of(m->path[closest]), fabs(m->epoch[closest].distance),
             m->rules->unit);
}

static lvn_status take_best(const choice *m, int best)
{
    int removed = 0;
    LVN_TRY(make_best(m, best));
    if (lvni_core_config_bool(m->config, "prune")) {
        LVN_TRY(prune(m, best, &removed));
    }
    lvni_log_line(LVNI_LOG_INFO,
                  "note: %s is the best of %s now, and its model exported_best.safetensors%s",
                  name_of(m->path[best]), m->run, removed > 0 ? "" : "; no checkpoint was removed");
    if (removed > 0) {
        lvni_log_line(LVNI_LOG_INFO, "note: %d other checkpoint%s removed", removed,
                      lvni_core_plural(removed, " was", "s were"));
    }
    return LVN_OK;
}

/* ---- the command ---- */

static lvn_status check(const lvni_core_config *c)
{
    LVN_TRY(lvni_run_inference_check(c));
    if (strcmp(lvni_core_config_str(c, "strategy"), "single") != 0) { /* by what was resolved */
        LVN_FAIL(LVN_ERR_USAGE,
                 "choose=%s runs on one device, which measures one checkpoint after the other: use "
                 "devices=1",
                 lvni_core_config_str(c, "choose"));
    }
    char *folder = lvni_run_path_join(lvni_core_config_str(c, "model"), "checkpoints");
    const bool is_run = folder != NULL && lvni_core_path_exists(folder);
    lvni_core_free(folder);
    if (!is_run) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "choose=%s chooses among the checkpoints of a run, and model=%s is not a run "
                 "directory",
                 lvni_core_config_str(c, "choose"), lvni_core_config_str(c, "model"));
    }
    return lvni_core_config_no_effect(c, "checkpoint", "with choose=, which looks at all of them");
}

/* Called by lvni_run_ranks_run, which has resolved the devices. */
static lvn_status start(void *user, lvni_run_ranks *ranks)
{
    (void)ranks;
    return read_checkpoints(user);
}

static lvn_status choose(choice *m)
{
    const lvni_run_ranks_command first = {.command = {"eval", m->recipe->argument},
                                          .n = m->n_args,
                                          .args = m->args,
                                          .check = check,
                                          .uses = true,
                                          .run = start,
                                          .user = m};
    LVN_TRY(lvni_run_ranks_run(m->config, &first));
    LVN_TRY(lvni_run_dir_lock(m->run));
    for (int i = 0; i < m->n; i++) {
        LVN_TRY(m->epoch[i].is_good ? measure(m, i) : LVN_OK);
    }
    const lvni_run_choice c = lvni_run_choose_best(m->epoch, m->n, m->table.more_is_better);
    LVN_TRY(report(m));
    return c.best < 0 ? report_none(m, c.closest) : take_best(m, c.best);
}

lvn_status lvni_run_choose(const lvni_run_recipe *recipe, lvni_core_config *config, int n,
                           const char *const *args)
{
    static const lvni_run_choice_rules all = {0};
    static const lvni_run_results metrics = {0};
    const lvni_run_choice_rules *rules = recipe->choice != NULL ? recipe->choice : &all;
    const char *score = lvni_core_config_str(config, "choose");
    choice m = {.recipe = recipe,
                .config = config,
                .n_args = n,
                .args = args,
                .run = lvni_core_config_str(config, "model"),
                .score = score,
                .rules = rules,
                .results = *(rules->results != NULL ? rules->results
                             : recipe->eval != NULL ? recipe->eval
                                                    : &metrics),
                .table = {.score = score, .distance = rules->distance, .unit = rules->unit}};
    m.results.finish = take_score;
    lvn_status s = lvni_core_config_layer(config, "split") == LVNI_LAYER_DEFAULT
                       ? lvni_core_config_set(config, "split", "val", "choose")
                       : LVN_OK;
    s = s == LVN_OK ? choose(&m) : s;
    const lvn_error error = *lvn_last_error();
    lvni_run_dir_release();
    lvni_ckpt_files_free(m.files, m.n_files);
    lvni_core_free(m.path);
    lvni_core_free(m.step);
    lvni_core_free(m.epoch);
    lvni_core_config_destroy(config);
    lvn_error_adopt(&error);
    return s;
}

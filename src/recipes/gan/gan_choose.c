/* `levin eval gan choose=`: which epoch of a run is the best. Checkpoints whose last validation
 * found them acceptable are measured, each as a model in use (inference.h); the best one becomes
 * the run's best, as the trainer links and exports it. */
#include "ckpt/checkpoint.h"
#include "core/alloc.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "recipes/gan/gan_control.h"
#include "recipes/gan/gan_embeddings.h"
#include "recipes/gan/gan_metrics.h"
#include "recipes/gan/gan_report.h"
#include "run/fit.h"
#include "run/run_dir.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
    lvni_gan_epoch *epoch;
    int n;
    /* of the one that is being measured */
    int now;
    lvni_gan_embeddings embeddings;
    lvni_gan_average rmse;
    bool warned; /* of too few measurements */
} choice;

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* ---- the run's checkpoints ---- */

static lvn_status read_number(const lvni_ckpt *ckpt, const char *name, double *out)
{
    float value;
    char full[64];
    snprintf(full, sizeof full, LVNI_CKPT_MODEL "%s", name);
    const lvni_ckpt_st_tensor *t = lvni_ckpt_st_find(ckpt->file, full);
    if (t == NULL || t->ndim != 1 || t->shape[0] != 1) {
        LVN_FAIL(LVN_ERR_MISMATCH, "%s is not a checkpoint of gan: it has no number %s", ckpt->path,
                 full);
    }
    LVN_TRY(lvni_ckpt_st_read_f32(t, &value));
    *out = (double)value;
    return LVN_OK;
}

/* The same step twice is one checkpoint. */
static void insert(choice *m, const char *path, int64_t step, const lvni_gan_epoch *e)
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
    double good = 0.0, d = 0.0;
    lvn_status s = lvni_ckpt_load(path, &ckpt);
    if (s == LVN_ERR_CORRUPT || s == LVN_ERR_IO) {
        lvni_log_line(LVNI_LOG_WARNING, "checkpoint passed over: %s", lvn_last_error()->message);
        lvn_clear_error();
        return LVN_OK;
    }
    LVN_TRY(s);
    s = read_number(ckpt, LVNI_GAN_IS_GOOD, &good);
    s = s == LVN_OK ? read_number(ckpt, LVNI_GAN_PSNR_DIFF, &d) : s;
    if (s == LVN_OK) {
        const lvni_gan_epoch e = {.epoch = ckpt->at.epoch + (ckpt->at.step_in_epoch > 0 ? 1 : 0),
                                  .score = (double)NAN,
                                  .is_good = good > 0.5,
                                  .d = good > 0.5 || d != 0.0 ? d : (double)NAN};
        insert(m, path, ckpt->at.step, &e);
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
                 "with checkpoint.save_top_k, the number to keep",
                 m->score, m->run);
    }
    return LVN_OK;
}

/* ---- the score of one ---- */

static lvn_status measure_item(lvni_gan_work *w, int64_t sample, const float *value)
{
    (void)sample;
    (void)value;
    choice *m = w->own;
    if (strcmp(m->score, "cfid") == 0) {
        return lvni_gan_embeddings_add(&m->embeddings, w);
    }
    const lvni_gan_masked masked =
        lvni_gan_masked_of(w->image, lvni_gan_truth(w), w->mask, w->pixels);
    lvni_gan_average_add(&m->rmse, masked.rmse);
    return LVN_OK;
}

/* For CFID one sample of each measurement is enough: it compares distributions over all of them. */
static int count_samples(const choice *m)
{
    const bool one = strcmp(m->score, "cfid") == 0 &&
                     lvni_core_config_layer(m->config, "num_samples") == LVNI_LAYER_DEFAULT;
    return one ? 1 : (int)lvni_core_config_int(m->config, "num_samples");
}

static lvn_status begin(lvni_run_inference *u)
{
    choice *m = u->user;
    lvni_gan_work *w;
    LVN_TRY(lvni_gan_work_create(u, count_samples(m), m, &w));
    w->item = measure_item;
    return strcmp(m->score, "cfid") == 0
               ? lvni_gan_embeddings_begin(&m->embeddings, w->settings->sizes.in_chans)
               : LVN_OK;
}

static void end(lvni_run_inference *u)
{
    lvni_gan_work_destroy(u->own);
}

static lvn_status take_score(lvni_run_inference *u)
{
    choice *m = u->user;
    double *score = &m->epoch[m->now].score;
    if (u->n == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "none of the measurements could be read: see the warnings");
    }
    if (strcmp(m->score, "rmse") == 0) {
        *score = m->rmse.mean;
        return LVN_OK;
    }
    lvni_gan_cfid cfid;
    if (!m->warned) {
        lvni_gan_embeddings_check(&m->embeddings);
        m->warned = true;
    }
    LVN_TRY(lvni_gan_embeddings_cfid(&m->embeddings, &cfid));
    *score = cfid.cfid;
    return LVN_OK;
}

static const lvni_run_results scores = {.begin = begin,
                                        .check = lvni_run_inference_check,
                                        .output = lvni_gan_samples,
                                        .row = lvni_gan_take_row,
                                        .finish = take_score,
                                        .end = end};

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
    m->rmse = (lvni_gan_average){0};
    s = lvni_run_inference_run(m->recipe, "eval", &scores, m, c, m->n_args, m->args);
    lvni_gan_embeddings_free(&m->embeddings);
    return s;
}

/* ---- the run's best ---- */

/* Of averaged weights where the training exported these, whatever was measured. */
static lvn_status export_best(const choice *m, const char *checkpoint)
{
    lvni_run_exported *e;
    const lvni_run_exported_place place = {.path = checkpoint, .use_ema = true};
    char *path = lvni_run_dir_file(m->run, LVNI_RUN_EXPORTS, "best");
    if (path == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status s = lvni_run_exported_open(m->recipe, &place, LVNI_RUN_EXPORT, NULL, &e);
    if (s == LVN_OK) {
        s = lvni_run_export_model(e->model, e->model->weights, m->recipe, &e->card,
                                  lvni_run_own_card(&e->job), e->step, path);
        lvni_run_exported_close(e);
    }
    lvni_core_free(path);
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
    if (best == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status s = lvni_run_write_chosen(m->run, m->step[i], newest_step(m));
    s = s == LVN_OK ? lvni_ckpt_link(m->path[i], best) : s;
    lvni_core_free(best);
    return s == LVN_OK ? export_best(m, m->path[i]) : s;
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

static lvn_status write_page(const choice *m, const char *table)
{
    const char *images[LVNI_GAN_CURVES], *folder = lvni_core_config_str(m->config, "output");
    lvni_gan_page page = {.title = m->run, .text = table, .images = images};
    if (folder == NULL) {
        return LVN_OK;
    }
    LVN_TRY(lvni_core_mkdirs(folder));
    LVN_TRY(lvni_gan_report_curves(folder, m->run, images, &page.n_images));
    return lvni_gan_report_page(folder, &page);
}

static void print_json(const choice *m, lvni_core_str *out)
{
    lvni_core_str_append(out, "{\"model\": ");
    lvni_core_str_json(out, m->run);
    lvni_core_str_printf(out, ", \"split\": \"%s\", \"samples\": %d, ",
                         lvni_core_config_str(m->config, "split"), count_samples(m));
    lvni_gan_choice_json(m->epoch, m->n, m->score, out);
    lvni_core_str_append(out, "}\n");
}

static lvn_status report(const choice *m)
{
    lvni_core_str table = {0}, json = {0};
    lvni_gan_choice_print(m->epoch, m->n, m->score, &table);
    print_json(m, &json);
    lvn_status s = lvni_core_str_status(&table);
    s = s == LVN_OK ? lvni_core_str_status(&json) : s;
    s = s == LVN_OK ? write_page(m, lvni_core_str_text(&table)) : s;
    if (s == LVN_OK) {
        const lvni_core_str *text = lvni_core_config_bool(m->config, "json") ? &json : &table;
        s = lvni_core_file_write(LVNI_STDOUT_PATH, lvni_core_str_text(text), text->len);
    }
    lvni_core_str_free(&table);
    lvni_core_str_free(&json);
    return s;
}

static lvn_status report_none(const choice *m, int closest)
{
    if (closest < 0) {
        LVN_FAIL(LVN_ERR_NOT_FOUND,
                 "none of the checkpoints in %s is acceptable, and of none it is known by how much "
                 "it is not; nothing was changed",
                 m->run);
    }
    LVN_FAIL(LVN_ERR_NOT_FOUND,
             "none of the checkpoints in %s is acceptable (psnr_gain_tol); the closest is %s, "
             "%.4f dB from its target; nothing was changed",
             m->run, name_of(m->path[closest]), fabs(m->epoch[closest].d));
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
    const lvni_gan_choice c = lvni_gan_choose(m->epoch, m->n);
    LVN_TRY(report(m));
    return c.best < 0 ? report_none(m, c.closest) : take_best(m, c.best);
}

lvn_status lvni_gan_choose_epoch(const lvni_run_recipe *recipe, lvni_core_config *config, int n,
                                 const char *const *args)
{
    choice m = {.recipe = recipe,
                .config = config,
                .n_args = n,
                .args = args,
                .run = lvni_core_config_str(config, "model"),
                .score = lvni_core_config_str(config, "choose")};
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

/* The beginning of a run (fit_impl.h): weights=, or what a resumed run checks and repairs: values
 * that differ from the saved ones, the model card, and exports that a kill left apart. Called by
 * fit.c. */
#include "run/fit_impl.h"

#include "ckpt/checkpoint.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/json_read.h"
#include "core/str.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "run/exported.h"
#include "run/options.h"
#include "run/weights.h"
#include "trainer/identity.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- weights= ---- */

/* Bytes of what a name begins with: "projection_head", or beside a part of "student"
 * "student.projection_head". 0: it lies in the part. */
static size_t front_of(const char *name, const char *part)
{
    const size_t all = strlen(part), one = strcspn(part, "."), own = strcspn(name, ".");
    if (strncmp(name, part, all) == 0 && name[all] == '.') {
        return 0;
    }
    const bool beside = one < all && own == one && strncmp(name, part, one) == 0;
    return beside && name[own] == '.' ? own + 1 + strcspn(name + own + 1, ".") : own;
}

typedef struct fresh {
    const char *part, *other; /* that are from the file */
    lvni_core_str text;       /* ", center, student.projection_head" */
    int n;                    /* tensors */
} fresh;

static bool is_listed(const fresh *f, const char *front)
{
    const size_t n = strlen(front);
    for (const char *at = lvni_core_str_text(&f->text); (at = strstr(at, front)) != NULL; at += n) {
        if (at[n] == '\0' || at[n] == ',') {
            return true;
        }
    }
    return false;
}

static void see_name(fresh *f, const char *name)
{
    const size_t a = front_of(name, f->part), b = front_of(name, f->other), n = a > b ? a : b;
    if (a == 0 || b == 0) {
        return;
    }
    lvni_core_str front = {0};
    lvni_core_str_printf(&front, ", %.*s", (int)n, name);
    if (!is_listed(f, lvni_core_str_text(&front))) {
        lvni_core_str_append(&f->text, lvni_core_str_text(&front));
    }
    lvni_core_str_free(&front);
    f->n++;
}

/* What a file of the part alone has nothing for. */
static void report_fresh(const lvni_nn_model *m, const char *part, const char *other)
{
    fresh f = {.part = part, .other = other};
    for (int i = 0; i < m->n_parameters; i++) {
        see_name(&f, m->parameters[i].name);
    }
    for (int i = 0; i < m->n_buffers; i++) {
        if (!m->buffers[i]->left_out && !m->buffers[i]->is_constant) {
            see_name(&f, m->buffers[i]->name);
        }
    }
    if (f.text.len > 2) {
        lvni_log_line(LVNI_LOG_INFO, "new in this run: %s (%d tensor%s)",
                      lvni_core_str_text(&f.text) + 2, f.n, lvni_core_plural(f.n, "", "s"));
    }
    lvni_core_str_free(&f.text);
}

lvn_status lvni_run_load_start(const lvni_run_job *job, lvni_nn_model *model)
{
    const lvni_core_config *c = job->config;
    const char *part = job->trained_part != NULL ? job->trained_part : job->exported_part;
    lvni_run_weights_source from = {
        .path = lvni_core_config_str(c, "weights"),
        .part = part,
        .or_whole = !job->exports,
        .key = lvni_core_config_str(c, lvni_run_key_name(c, "weights.key")),
        .reset_head = lvni_core_config_bool(c, "reset_head"),
        .starts = true};
    if (from.path == NULL) {
        if (from.reset_head || from.key != NULL) {
            LVN_FAIL(LVN_ERR_USAGE, "%s applies to the file of weights=, which is not given",
                     from.reset_head ? "reset_head=true" : "weights.key=");
        }
        return LVN_OK;
    }
    lvni_run_weights_report report;
    lvn_status s = lvni_run_model_load(model, &from, &report);
    if (s == LVN_ERR_MISMATCH && job->part_of_file != NULL) {
        lvni_run_weights_report_free(&report);
        from.part = job->part_of_file;
        s = lvni_run_model_load(model, &from, &report);
    }
    if (s == LVN_ERR_NOT_FOUND) {
        /* a usage error: another start would not find it either */
        lvni_core_str where = {0};
        lvni_run_source_print(from.path, lvni_run_weights_network(model, part), "weights", &where);
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__, "weights: %s%s",
                          lvn_last_error()->message, lvni_core_str_text(&where));
        lvni_core_str_free(&where);
    }
    if (s == LVN_OK) {
        lvni_run_weights_report_log(&report, from.path);
        if (from.part != NULL && report.of_part && !job->exports) {
            report_fresh(model, from.part,
                         job->exported_part != NULL ? job->exported_part : from.part);
        }
        from.part = job->exported_part; /* with running statistics of its own */
        s = job->trained_part == NULL ? LVN_OK : lvni_run_model_load(model, &from, NULL);
    }
    lvni_run_weights_report_free(&report);
    return s;
}

/* ---- what differs from the saved run ---- */

static bool moves_to_end(const lvni_nn_model *m)
{
    for (int i = 0; i < m->n_follow_rules; i++) {
        if (m->follow_rule[i].momentum != m->follow_rule[i].end) {
            return true;
        }
    }
    for (int i = 0; i < m->n_numbers; i++) {
        if (lvni_nn_number_is_curve(&m->number[i]) && m->number[i].steps == 0 &&
            m->number[i].epochs == 0) {
            return true;
        }
    }
    return false;
}

/* The same step has another value on a way that ends elsewhere. */
void lvni_run_report_moved_end(const lvni_run_fit_run *r, const lvni_ckpt *ckpt)
{
    const lvni_core_config *c = r->request->config;
    const int64_t was = lvni_run_saved_end(ckpt->config, &r->plan), is = r->schedule.total_steps;
    if (was <= 0 || was == is || was == INT64_MAX || is == INT64_MAX) {
        return;
    }
    char schedule[64];
    snprintf(schedule, sizeof schedule, "scheduler=%s", lvni_core_config_str(c, "scheduler.name"));
    const struct {
        bool moves;
        const char *what;
    } of[] = {{lvni_optim_schedule_ends(&r->schedule), schedule},
              {lvni_core_config_is_set(c, "optim.weight_decay_end"), "optim.weight_decay_end"},
              {moves_to_end(r->model), "what moves in the model"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        if (of[i].moves) {
            lvni_log_line(LVNI_LOG_INFO,
                          "%s ends at step %lld now, at step %lld in the saved run: it follows "
                          "another curve from here on",
                          of[i].what, (long long)is, (long long)was);
        }
    }
}

/* The first versions saved whole numbers for what is a text now. */
static bool is_number(const json_t *old, const char *is)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)json_integer_value(old));
    return json_is_integer(old) && is != NULL && strcmp(text, is) == 0;
}

/* The first version saved relative paths as they were given; the same command makes them absolute
 * now. */
static bool is_same(const json_t *old, const json_t *now)
{
    const char *was = json_string_value(old), *is = json_string_value(now);
    lvni_core_str path = {0};
    if (was != NULL && is != NULL && is[0] == '/' && was[0] != '/') {
        lvni_core_path_absolute(was, &path);
    }
    const bool same = json_equal(old, now) || is_number(old, is) ||
                      (path.len > 0 && strcmp(lvni_core_str_text(&path), is) == 0);
    lvni_core_str_free(&path);
    return same;
}

/* As it was given: 0.2, not 0.20000000000000001. */
static void print_value(const json_t *value, lvni_core_str *out)
{
    const size_t flags = JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15);
    if (value == NULL || json_is_null(value)) {
        lvni_core_str_append(out, "unset");
    } else {
        lvni_core_json_print(value, flags, out);
    }
}

/* Under this name, or under one that is an alias of it now. */
static bool has_key(const lvni_core_config *config, json_t *saved, const char *name)
{
    const char *key;
    json_t *value;
    json_object_foreach(saved, key, value)
    {
        const lvni_core_option *row = lvni_core_config_row(config, key);
        if (row != NULL && strcmp(row->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_one_of(const char *key, const char *const *names)
{
    while (*names != NULL && strcmp(key, *names) != 0) {
        names++;
    }
    return *names != NULL;
}

/* Another value of it changes no number of the run. */
static bool is_harmless(const lvni_core_option *row)
{
    static const char *const harmless[] = {"max_epochs",
                                           "max_steps",
                                           "checkpoint.every_n_steps",
                                           "checkpoint.every_n_epochs",
                                           "checkpoint.every_n_minutes",
                                           "checkpoint.save_top_k",
                                           "checkpoint.keep_every_n_epochs",
                                           "checkpoint.filename",
                                           "checkpoint.auto_insert_metric_name",
                                           "pins",
                                           NULL};
    static const char *const of_numbers[] = {"accelerator", "batch_size_per_device", NULL};
    return is_one_of(row->name, harmless) ||
           ((row->flags & LVNI_OPT_RUN) != 0 && !is_one_of(row->name, of_numbers));
}

/* Every key that the resumed run takes with another value: from here on it is that run. */
static void report_change(const lvni_core_option *row, const json_t *old, const json_t *value)
{
    if (is_harmless(row)) {
        return;
    }
    lvni_core_str a = {0}, b = {0};
    if (old == NULL) {
        lvni_core_str_append(&a, "none");
    } else {
        print_value(old, &a);
    }
    print_value(value, &b);
    lvni_log_line(LVNI_LOG_WARNING, "%s is %s from here on; so far this run had %s", row->name,
                  lvni_core_str_text(&b), lvni_core_str_text(&a));
    lvni_core_str_free(&a);
    lvni_core_str_free(&b);
}

/* As what the run is: by its own name, or by what follows from it. */
static bool is_reported(const lvni_run_fit_run *r, const lvni_ckpt *ckpt, const char *key)
{
    static const char *const of_batch[] = {"batch_size", "batch_size_per_device",
                                           "accumulate_grad_batches"};
    bool batch = false;
    for (size_t i = 0; i < sizeof of_batch / sizeof *of_batch; i++) {
        batch = batch || strcmp(key, of_batch[i]) == 0;
    }
    return lvni_trainer_identity_differs(r->trainer, ckpt, batch ? "effective_batch" : key);
}

void lvni_run_report_changes(const lvni_run_fit_run *r, const lvni_ckpt *ckpt)
{
    const lvni_core_config *config = r->request->config;
    json_t *was = lvni_core_json_try(ckpt->config, LVNI_JSON_INNER);
    json_t *is = lvni_core_json_try(lvni_core_str_text(&r->json), LVNI_JSON_INNER);
    const char *key;
    json_t *old;
    json_object_foreach(was, key, old)
    {
        /* a key that has been renamed since is an alias now */
        const lvni_core_option *row = lvni_core_config_row(config, key);
        const json_t *value = row == NULL ? NULL : json_object_get(is, row->name);
        if (value != NULL && !is_same(old, value) && !is_reported(r, ckpt, row->name)) {
            report_change(row, old, value);
        }
        if (value != NULL && !is_same(old, value) && strcmp(row->name, "pins") == 0 &&
            lvni_core_config_layer(config, key) == LVNI_LAYER_ARGUMENTS) {
            lvni_log_line(LVNI_LOG_WARNING,
                          "pins= is not taken: a resumed run computes with what is recorded in its "
                          "checkpoint");
        }
    }
    json_t *value;
    json_object_foreach(is, key, value)
    { /* that had no value */
        if (!has_key(config, was, key) &&
            lvni_core_config_layer(config, key) == LVNI_LAYER_ARGUMENTS &&
            !is_reported(r, ckpt, key)) {
            report_change(lvni_core_config_row(config, key), NULL, value);
        }
    }
    json_decref(was);
    json_decref(is);
}

/* The run began with this value of `key`, too: a requeued job repeats its whole command. */
static bool repeats(const lvni_core_config *config, const char *key, const lvni_ckpt *ckpt)
{
    lvni_core_str now = {0};
    json_t *was = lvni_core_json_try(ckpt->config, LVNI_JSON_INNER), *is = NULL;
    if (lvni_core_config_to_json(config, &now) == LVN_OK) {
        is = lvni_core_json_try(lvni_core_str_text(&now), LVNI_JSON_INNER);
    }
    const json_t *old = json_object_get(was, key);
    const bool same = old != NULL && is_same(old, json_object_get(is, key));
    lvni_core_str_free(&now);
    json_decref(was);
    json_decref(is);
    return same;
}

static bool is_unset(const json_t *value)
{
    return value == NULL || json_is_null(value);
}

static lvn_status check_fixed(const char *key, const json_t *old, const json_t *now,
                              const char *path)
{
    if ((is_unset(old) && is_unset(now)) ||
        (!is_unset(old) && !is_unset(now) && is_same(old, now))) {
        return LVN_OK;
    }
    lvni_core_str was = {0}, is = {0};
    print_value(is_unset(old) ? NULL : old, &was);
    print_value(is_unset(now) ? NULL : now, &is);
    const lvn_status s = lvn_error_set(
        LVN_ERR_USAGE, __FILE__, __LINE__,
        "%s is %s, and the run of %s had %s: what was computed from it is part of the checkpoint, "
        "and a resumed run keeps that; leave it as it was, or start a new run in another out (with "
        "weights= from this one)",
        key, lvni_core_str_text(&is), path, lvni_core_str_text(&was));
    lvni_core_str_free(&was);
    lvni_core_str_free(&is);
    return s;
}

lvn_status lvni_run_check_fixed(const lvni_run_job *job, const lvni_ckpt *ckpt)
{
    lvni_core_str now = {0};
    lvn_status s = lvni_core_config_to_json(job->config, &now);
    json_t *was = lvni_core_json_try(ckpt->config, LVNI_JSON_INNER),
           *is = s != LVN_OK ? NULL : lvni_core_json_try(lvni_core_str_text(&now), LVNI_JSON_INNER);
    for (int i = 0; i < job->n_fixed && s == LVN_OK; i++) {
        s = check_fixed(job->fixed[i], json_object_get(was, job->fixed[i]),
                        json_object_get(is, job->fixed[i]), ckpt->path);
    }
    lvni_core_str_free(&now);
    json_decref(was);
    json_decref(is);
    return s;
}

lvn_status lvni_run_check_start(const lvni_core_config *config, const lvni_ckpt *ckpt)
{
    static const char *const starts[] = {"weights", "weights.key", "reset_head"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        const char *key = lvni_run_key_name(config, starts[i]);
        if (lvni_core_config_layer(config, key) == LVNI_LAYER_ARGUMENTS &&
            !repeats(config, key, ckpt)) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s= on the command line and resume=true: a resumed run keeps its weights, "
                     "those of %s; omit %s=, or start "
                     "a new run in another out",
                     key, ckpt->path, key);
        }
    }
    return LVN_OK;
}

/* ---- another recipe, another card ---- */

lvn_status lvni_run_check_saved_card(const lvni_run_recipe *recipe, const lvni_ckpt *ckpt,
                                     const char *card)
{
    const char *name = lvni_ckpt_st_meta_get(ckpt->file, LVNI_CARD_RECIPE);
    if (name != NULL && recipe->card != NULL && strcmp(name, recipe->name) != 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "resume=true, and %s is of the recipe %s, not of %s: give the recipe that began "
                 "this run, or start a new run in another out",
                 ckpt->path, name, recipe->name);
    }
    if (recipe->card == NULL || recipe->card->compare == NULL) {
        return LVN_OK;
    }
    json_t *was = lvni_core_json_try(lvni_ckpt_st_meta_get(ckpt->file, recipe->card->key),
                                     LVNI_JSON_INNER),
           *is = lvni_core_json_try(card, LVNI_JSON_INNER);
    const lvn_status s = recipe->card->compare(ckpt->path, was, is);
    json_decref(was);
    json_decref(is);
    return s;
}

/* ---- exports ----
 * A save writes last, links best to it, exports last, links the exported best (trainer/save.c):
 * every file is whole at any time, and its step shows whether it is the one that belongs there. */

static lvn_status path_of(const lvni_run_repair_options *m, const char *folder, const char *name,
                          char **out)
{
    *out = lvni_run_dir_file(m->dir, folder, name);
    return *out == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

enum { NOT_THERE = -1, NOT_GIVEN = -2, NOT_READABLE = -3 }; /* instead of a step */

static int64_t step_of(const lvni_run_repair_options *m, const char *folder, const char *name)
{
    char *path;
    lvni_ckpt_st_file *file = NULL;
    int64_t step = NOT_READABLE;
    lvn_status s = path_of(m, folder, name, &path);
    if (s == LVN_OK) {
        s = lvni_ckpt_st_open(path, LVNI_ST_HEADER_ONLY, &file);
    }
    if (s == LVN_OK) {
        const char *text = lvni_ckpt_st_meta_get(file, LVNI_CKPT_STEP);
        step = text == NULL ? NOT_GIVEN : strtoll(text, NULL, 10);
    } else if (s == LVN_ERR_NOT_FOUND) {
        step = NOT_THERE;
    }
    lvn_clear_error();
    lvni_ckpt_st_close(file);
    lvni_core_free(path);
    return step;
}

/* Is the last checkpoint the best one, by its own metadata (or a choice that replaced it,
 * fit_saved.c)? One that was passed over (damaged) does not count. */
static bool last_is_best(const lvni_ckpt *loaded)
{
    const char *slash = strrchr(loaded->path, '/');
    const bool is_last = strcmp(slash == NULL ? loaded->path : slash + 1, "last.safetensors") == 0;
    return is_last &&
           (loaded->at.best_step == loaded->at.step ||
            (loaded->at.finished && isnan(loaded->at.best_score) && loaded->at.best_step < 0));
}

static lvn_status link_best(const lvni_run_repair_options *m)
{
    char *last = NULL, *best = NULL;
    lvn_status s;
    LVNI_TRY_DONE(s, path_of(m, LVNI_RUN_CHECKPOINTS, "last", &last));
    LVNI_TRY_DONE(s, path_of(m, LVNI_RUN_CHECKPOINTS, "best", &best));
    LVNI_TRY_DONE(s, lvni_ckpt_link(last, best));
    lvni_log_line(LVNI_LOG_INFO, "%s: made again, since the run was killed before it", best);
done:
    lvni_core_free(last);
    lvni_core_free(best);
    return s;
}

static lvn_status take(const lvni_ckpt *ckpt, const char *prefix, const char *name,
                       const lvn_tensor *like, float *to)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const lvni_ckpt_st_tensor *t = lvni_ckpt_st_find(ckpt->file, full);
    int64_t n = 1;
    for (int i = 0; t != NULL && i < t->ndim; i++) {
        n *= t->shape[i];
    }
    if (t == NULL || n != lvn_numel(like)) {
        LVN_FAIL(LVN_ERR_MISMATCH, "%s is of another model: it has %s %s%s", ckpt->path,
                 t == NULL ? "no" : "another shape of", prefix, name);
    }
    return lvni_ckpt_st_read_f32(t, to);
}

/* Laid out as the model's weights. */
static lvn_status take_all(const lvni_ckpt *ckpt, const lvni_nn_model *m, bool use_ema,
                           float *values)
{
    char first[512];
    snprintf(first, sizeof first, "%s%s", LVNI_CKPT_AVERAGE,
             m->n_parameters > 0 ? m->parameters[0].name : "");
    const char *prefix = use_ema && lvni_ckpt_st_find(ckpt->file, first) != NULL ? LVNI_CKPT_AVERAGE
                                                                                 : LVNI_CKPT_MODEL;
    for (int i = 0; i < m->n_parameters; i++) {
        LVN_TRY(take(ckpt, prefix, m->parameters[i].name, m->parameters[i].tensor,
                     values + m->offset[i]));
    }
    for (int i = 0; i < m->n_buffers; i++) {
        if (m->buffers[i]->left_out) {
            continue;
        }
        LVN_TRY(take(ckpt, prefix, m->buffers[i]->name, m->buffers[i]->tensor,
                     values + m->buffers[i]->value_offset));
    }
    return LVN_OK;
}

/* The weights of checkpoint `name`; *step: of it. */
static lvn_status read_values(const lvni_run_repair_options *m, const char *name, float *values,
                              int64_t *step)
{
    char *path;
    lvni_ckpt *ckpt = NULL;
    LVN_TRY(path_of(m, LVNI_RUN_CHECKPOINTS, name, &path));
    lvn_status s = lvni_ckpt_load(path, &ckpt);
    if (s == LVN_OK) {
        *step = ckpt->at.step;
        s = take_all(ckpt, m->model, m->use_ema, values);
    }
    lvni_ckpt_free(ckpt);
    lvni_core_free(path);
    return s;
}

static void report_made(const char *name, int64_t had, int64_t step)
{
    static const char *const reasons[] = {[-NOT_THERE] = "it was missing",
                                          [-NOT_GIVEN] = "it had no step",
                                          [-NOT_READABLE] = "it could not be read"};
    const char *reason = had < 0      ? reasons[-had]
                         : had < step ? "it was that of an earlier step"
                                      : "it was that of a later step";
    lvni_log_line(LVNI_LOG_INFO,
                  "exported_models/exported_%s.safetensors: %s; made again of step %" PRId64, name,
                  reason, step);
}

static lvn_status export_of(const lvni_run_repair_options *m, const char *name, int64_t had)
{
    int64_t step = 0;
    float *values = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)m->model->n_values, sizeof *values);
    lvn_status s = values == NULL ? LVN_ERR_MEMORY : read_values(m, name, values, &step);
    if (s == LVN_OK) {
        s = m->export_model(m->user, name, values, step);
        if (s == LVN_OK) {
            report_made(name, had, step);
        }
    } else if (s != LVN_ERR_MEMORY) {
        lvni_log_line(LVNI_LOG_WARNING, "exported_models/exported_%s.safetensors %s: %s", name,
                      had == NOT_THERE ? "is missing and cannot be made again" : "stays as it is",
                      lvn_last_error()->message);
        lvn_clear_error();
        s = LVN_OK;
    }
    lvni_core_free(values);
    return s;
}

lvn_status lvni_run_repair_exports(const lvni_run_repair_options *m)
{
    static const char *const names[] = {"last", "best"};
    if (last_is_best(m->loaded) && step_of(m, LVNI_RUN_CHECKPOINTS, "best") != m->loaded->at.step) {
        LVN_TRY(link_best(m));
    }
    for (int i = 0; m->export_model != NULL && i < 2; i++) {
        const int64_t is = step_of(m, LVNI_RUN_CHECKPOINTS, names[i]),
                      had = step_of(m, LVNI_RUN_EXPORTS, names[i]);
        LVN_TRY(is >= 0 && is != had ? export_of(m, names[i], had) : LVN_OK);
    }
    return LVN_OK;
}

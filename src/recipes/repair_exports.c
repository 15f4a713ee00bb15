/* Checkpoints and exported models that a kill left apart (repair_exports.h). A save writes last,
 * links best to it, exports last, links the exported best (trainer/save.c): every file is whole at
 * any time, and its step shows whether it is the one that belongs there. */
#include "recipes/repair_exports.h"

#include "ckpt/checkpoint.h"
#include "core/alloc.h"
#include "core/str.h"
#include "log/run_log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lvn_status path_of(const lvni_recipes_repair_options *m, const char *folder,
                          const char *name, char **out)
{
    lvni_core_str s = {0};
    lvni_core_str_printf(&s, "%s/%s%s.safetensors", m->dir, folder, name);
    *out = lvni_core_str_take(&s);
    return *out == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

enum { NOT_THERE = -1, NOT_GIVEN = -2, NOT_READABLE = -3 }; /* instead of a step */

static int64_t step_of(const lvni_recipes_repair_options *m, const char *folder, const char *name)
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

/* Is the last checkpoint the best one, by its own metadata? One that was passed over (damaged) does
 * not count. */
static bool last_is_best(const lvni_ckpt *loaded)
{
    const char *slash = strrchr(loaded->path, '/');
    const bool is_last = strcmp(slash == NULL ? loaded->path : slash + 1, "last.safetensors") == 0;
    return is_last && (loaded->at.best_step == loaded->at.step ||
                       (loaded->at.finished && isnan(loaded->at.best_score)));
}

static lvn_status link_best(const lvni_recipes_repair_options *m)
{
    char *last = NULL, *best = NULL;
    lvn_status s = path_of(m, "checkpoints/", "last", &last);
    if (s == LVN_OK) {
        s = path_of(m, "checkpoints/", "best", &best);
    }
    if (s == LVN_OK) {
        s = lvni_ckpt_link(last, best);
    }
    if (s == LVN_OK) {
        lvni_log_line(LVNI_LOG_INFO, "%s: made again, since the run was killed before it", best);
    }
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
        LVN_TRY(take(ckpt, prefix, m->buffers[i]->name, m->buffers[i]->tensor,
                     values + m->buffers[i]->value_offset));
    }
    return LVN_OK;
}

/* The weights of checkpoint `name`; *step: of it. */
static lvn_status read_values(const lvni_recipes_repair_options *m, const char *name, float *values,
                              int64_t *step)
{
    char *path;
    lvni_ckpt *ckpt = NULL;
    LVN_TRY(path_of(m, "checkpoints/", name, &path));
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

static lvn_status export_of(const lvni_recipes_repair_options *m, const char *name, int64_t had)
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

lvn_status lvni_recipes_repair_exports(const lvni_recipes_repair_options *m)
{
    static const char *const names[] = {"last", "best"};
    if (last_is_best(m->loaded) && step_of(m, "checkpoints/", "best") != m->loaded->at.step) {
        LVN_TRY(link_best(m));
    }
    for (int i = 0; m->export_model != NULL && i < 2; i++) {
        const int64_t is = step_of(m, "checkpoints/", names[i]),
                      had = step_of(m, "exported_models/exported_", names[i]);
        LVN_TRY(is >= 0 && is != had ? export_of(m, names[i], had) : LVN_OK);
    }
    return LVN_OK;
}

/* Checkpoints and exported models that a kill left apart (mend_exports.h). A save writes last, links best to it, exports last, links the exported
 * best (trainer/save.c): every file is whole at any time, and its step tells whether it is the one that belongs there. */
#include "recipes/mend_exports.h"

#include "ckpt/checkpoint.h"
#include "core/alloc.h"
#include "core/str.h"
#include "log/run_log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static lvn_status path_of(const lvni_mend *m, const char *folder, const char *name, char **out)
{
    lvni_str s = {0};
    lvni_str_printf(&s, "%s/%s%s.safetensors", m->dir, folder, name);
    *out = lvni_str_take(&s);
    return *out == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

/* -1: there is none, or it does not say. */
static int64_t step_of(const lvni_mend *m, const char *folder, const char *name)
{
    char *path;
    lvni_st_file *file = NULL;
    int64_t step = -1;
    if (path_of(m, folder, name, &path) == LVN_OK && lvni_st_open(path, LVNI_ST_HEADER_ONLY, &file) == LVN_OK) {
        const char *text = lvni_st_meta_get(file, LVNI_CKPT_STEP);
        step = text == NULL ? -1 : strtoll(text, NULL, 10);
    }
    lvn_clear_error();
    lvni_st_close(file);
    lvni_free(path);
    return step;
}

/* Is the last checkpoint the best one, by its own words? */
static bool last_is_best(const lvni_mend *m)
{
    char *path;
    lvni_ckpt *last = NULL;
    bool is_best = false;
    if (path_of(m, "checkpoints/", "last", &path) == LVN_OK && lvni_ckpt_peek(path, &last) == LVN_OK) {
        is_best = last->at.best_step == last->at.step || (last->at.finished && isnan(last->at.best_score));
    }
    lvn_clear_error();
    lvni_ckpt_free(last);
    lvni_free(path);
    return is_best;
}

static lvn_status link_best(const lvni_mend *m)
{
    char *last = NULL, *best = NULL;
    lvn_status s = path_of(m, "checkpoints/", "last", &last);
    s = s == LVN_OK ? path_of(m, "checkpoints/", "best", &best) : s;
    s = s == LVN_OK ? lvni_ckpt_link(last, best) : s;
    if (s == LVN_OK) {
        lvni_log_line(LVNI_LOG_INFO, "%s: made anew, since the run was killed before it", best);
    }
    lvni_free(last);
    lvni_free(best);
    return s;
}

static bool take(const lvni_ckpt *ckpt, const char *prefix, const char *name, const lvn_tensor *like, float *to)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const lvni_st_tensor *t = lvni_st_find(ckpt->file, full);
    int64_t n = 1;
    for (int i = 0; t != NULL && i < t->ndim; i++) {
        n *= t->shape[i];
    }
    return t != NULL && n == lvn_numel(like) && lvni_st_read_f32(t, to) == LVN_OK;
}

/* Laid out as the model's weights. False: the checkpoint is of another model. */
static bool take_all(const lvni_ckpt *ckpt, const lvni_model *m, bool use_ema, float *values)
{
    char first[512];
    snprintf(first, sizeof first, "%s%s", LVNI_CKPT_AVERAGE, m->n_parameters > 0 ? m->parameters[0].name : "");
    const char *prefix = use_ema && lvni_st_find(ckpt->file, first) != NULL ? LVNI_CKPT_AVERAGE : LVNI_CKPT_MODEL;
    bool good = true;
    for (int i = 0; i < m->n_parameters && good; i++) {
        good = take(ckpt, prefix, m->parameters[i].name, m->parameters[i].tensor, values + m->offset[i]);
    }
    for (int i = 0; i < m->n_buffers && good; i++) {
        good = take(ckpt, prefix, m->buffers[i]->name, m->buffers[i]->tensor, values + m->buffers[i]->value_offset);
    }
    return good;
}

static lvn_status export_of(const lvni_mend *m, const char *name, int64_t had)
{
    char *path;
    lvni_ckpt *ckpt = NULL;
    LVN_TRY(path_of(m, "checkpoints/", name, &path));
    float *values = lvni_calloc(LVNI_TAG_CKPT, (size_t)m->model->n_values, sizeof *values);
    lvn_status s = values == NULL ? LVN_ERR_MEMORY : LVN_OK;
    if (s == LVN_OK && lvni_ckpt_load(path, &ckpt) == LVN_OK && take_all(ckpt, m->model, m->use_ema, values)) {
        s = m->export_model(m->user, name, values, ckpt->at.step);
        if (s == LVN_OK) {
            lvni_log_line(LVNI_LOG_INFO, "exported_models/exported_%s.safetensors: %s; made anew of step %" PRId64, name,
                          had < 0 ? "it was missing" : "it was that of an earlier step", ckpt->at.step);
        }
    } else {
        lvn_clear_error();
    }
    lvni_ckpt_free(ckpt);
    lvni_free(values);
    lvni_free(path);
    return s;
}

lvn_status lvni_mend_exports(const lvni_mend *m)
{
    static const char *const names[] = {"last", "best"};
    if (last_is_best(m) && step_of(m, "checkpoints/", "best") != step_of(m, "checkpoints/", "last")) {
        LVN_TRY(link_best(m));
    }
    for (int i = 0; m->export_model != NULL && i < 2; i++) {
        const int64_t is = step_of(m, "checkpoints/", names[i]), had = step_of(m, "exported_models/exported_", names[i]);
        LVN_TRY(is >= 0 && is != had ? export_of(m, names[i], had) : LVN_OK);
    }
    return LVN_OK;
}

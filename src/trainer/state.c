/* What a checkpoint of a run holds: parameters, buffers, optimizer state, the position, and the epoch's metric sums. */
#include "core/alloc.h"
#include "core/str.h"
#include "trainer/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 200 };
#define EPOCH_METRICS "epoch_metrics"

typedef struct entries {
    lvni_st_tensor *tensor;
    char (*name)[NAME];
    int64_t n;
} entries;

static void add(entries *e, const char *prefix, const char *middle, const char *name, const lvn_tensor *like, const float *data)
{
    lvni_st_tensor *t = &e->tensor[e->n];
    snprintf(e->name[e->n], NAME, "%s%s%s%s", prefix, middle, middle[0] != '\0' ? "/" : "", name);
    *t = (lvni_st_tensor){.name = e->name[e->n], .dtype = like->dtype, .ndim = like->ndim, .data = data};
    memcpy(t->shape, like->shape, sizeof t->shape);
    e->n++;
}

static lvn_status gather(const lvni_trainer *t, entries *e)
{
    const lvni_model *m = t->o.model;
    const size_t n = (size_t)(m->n_parameters * (1 + t->optim->n_slots) + m->n_buffers);
    *e = (entries){.tensor = lvni_calloc(LVNI_TAG_CKPT, n, sizeof *e->tensor), .name = lvni_calloc(LVNI_TAG_CKPT, n, NAME)};
    if (e->tensor == NULL || e->name == NULL) {
        lvni_free(e->tensor);
        lvni_free(e->name);
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < m->n_parameters; i++) {
        const lvni_parameter *p = &m->parameters[i];
        add(e, LVNI_CKPT_MODEL, "", p->name, p->tensor, p->tensor->data);
        for (int k = 0; k < t->optim->n_slots; k++) {
            add(e, LVNI_CKPT_OPTIM, t->optim->slot_name[k], p->name, p->tensor, t->optim->slot[k] + m->offset[i]);
        }
    }
    for (int i = 0; i < m->n_buffers; i++) {
        add(e, LVNI_CKPT_MODEL, "", m->buffers[i]->name, m->buffers[i]->tensor, m->buffers[i]->tensor->data);
    }
    return LVN_OK;
}

static void entries_free(entries *e)
{
    lvni_free(e->tensor);
    lvni_free(e->name);
}

/* "loss 1.5 32;acc 10 32;" : name, sum, weight, exact */
static void print_metrics(const lvn_step *sum, lvni_str *out)
{
    for (int i = 0; i < sum->n_metrics; i++) {
        lvni_str_printf(out, "%s %.17g %.17g;", sum->metric[i].name, sum->metric[i].sum, sum->metric[i].weight);
    }
}

static void parse_metrics(const char *text, lvn_step *sum)
{
    *sum = (lvn_step){0};
    for (int used = 0; text != NULL && sum->n_metrics < LVNI_METRICS; text += used) {
        used = 0;
        lvni_step_metric *m = &sum->metric[sum->n_metrics];
        if (sscanf(text, "%31s %lf %lf;%n", m->name, &m->sum, &m->weight, &used) != 3 || used == 0) {
            return;
        }
        sum->n_metrics++;
    }
}

lvn_status lvni_trainer_save(lvni_trainer *t, const char *name)
{
    if (t->o.out == NULL) {
        return LVN_OK;
    }
    entries e;
    LVN_TRY(gather(t, &e));
    char schedule[48];
    snprintf(schedule, sizeof schedule, "updates=%lld", (long long)t->optim->steps);
    lvni_str metrics = {0}, path = {0};
    print_metrics(&t->epoch_sum, &metrics);
    lvni_str_printf(&path, "%s/checkpoints/%s.safetensors", t->o.out, name);
    const lvni_st_meta extra = {.key = EPOCH_METRICS, .value = lvni_str_text(&metrics)};
    const lvni_ckpt_content content = {.at = t->at,
                                       .config = t->o.config_json,
                                       .schedule = schedule,
                                       .extra = &extra,
                                       .n_extra = 1,
                                       .tensors = e.tensor,
                                       .n_tensors = e.n};
    lvn_status s = lvni_str_status(&path);
    if (s == LVN_OK) {
        s = lvni_ckpt_save(lvni_str_text(&path), &content);
    }
    lvni_str_free(&metrics);
    lvni_str_free(&path);
    entries_free(&e);
    return s;
}

lvn_status lvni_trainer_link_best(lvni_trainer *t)
{
    if (t->o.out == NULL) {
        return LVN_OK;
    }
    lvni_str last = {0}, best = {0};
    lvni_str_printf(&last, "%s/checkpoints/last.safetensors", t->o.out);
    lvni_str_printf(&best, "%s/checkpoints/best.safetensors", t->o.out);
    const lvn_status s = lvni_str_status(&best) == LVN_OK ? lvni_ckpt_link(lvni_str_text(&last), lvni_str_text(&best)) : LVN_ERR_MEMORY;
    lvni_str_free(&last);
    lvni_str_free(&best);
    return s;
}

/* Copy one tensor of the file over the run's. */
static lvn_status load_entry(const lvni_ckpt *ckpt, const lvni_st_tensor *mine)
{
    const lvni_st_tensor *theirs = lvni_st_find(ckpt->file, mine->name);
    if (theirs == NULL) {
        LVN_FAIL(LVN_ERR_MISMATCH, "%s has no tensor %s: it was written by a run with another model or optimizer", ckpt->path, mine->name);
    }
    const size_t axes = (size_t)mine->ndim * sizeof mine->shape[0];
    if (theirs->dtype != mine->dtype || theirs->ndim != mine->ndim || memcmp(theirs->shape, mine->shape, axes) != 0) {
        LVN_FAIL(LVN_ERR_MISMATCH, "%s: tensor %s has another shape or type than in this run", ckpt->path, mine->name);
    }
    void *memory;
    memcpy(&memory, &mine->data, sizeof memory);
    memcpy(memory, theirs->data, theirs->bytes);
    return LVN_OK;
}

lvn_status lvni_trainer_restore(lvni_trainer *t, const lvni_ckpt *ckpt)
{
    entries e;
    LVN_TRY(gather(t, &e));
    lvn_status s = LVN_OK;
    for (int64_t i = 0; i < e.n && s == LVN_OK; i++) {
        s = load_entry(ckpt, &e.tensor[i]);
    }
    entries_free(&e);
    LVN_TRY(s);
    t->at = ckpt->at;
    t->at.finished = false;
    t->saved_step = ckpt->at.step;
    long long updates = ckpt->at.step;
    if (ckpt->schedule != NULL) {
        sscanf(ckpt->schedule, "updates=%lld", &updates);
    }
    t->optim->steps = updates;
    parse_metrics(lvni_st_meta_get(ckpt->file, EPOCH_METRICS), &t->epoch_sum);
    lvni_model_touch(t->o.model);
    return LVN_OK;
}

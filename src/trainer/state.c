/* What a checkpoint of a run holds: parameters, buffers, optimizer state, the position, and the epoch's metric sums. */
#include "core/alloc.h"
#include "core/str.h"
#include "trainer/identity.h"

#include <stdio.h>
#include <string.h>

enum { NAME = 200 };
#define EPOCH_METRICS "epoch_metrics"
#define AVERAGE "ema"

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
    const size_t averages = t->ema == NULL ? 0 : 1;
    const size_t n = (size_t)m->n_parameters * (1 + averages + (size_t)t->optim->n_slots) + (size_t)m->n_buffers * (1 + averages);
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
        if (t->ema != NULL) {
            add(e, LVNI_CKPT_TRAINER, AVERAGE, p->name, p->tensor, t->ema->value + m->offset[i]);
        }
    }
    for (int i = 0; i < m->n_buffers; i++) {
        const lvn_tensor *b = m->buffers[i]->tensor;
        add(e, LVNI_CKPT_MODEL, "", m->buffers[i]->name, b, b->data);
        if (t->ema != NULL) {
            add(e, LVNI_CKPT_TRAINER, AVERAGE, m->buffers[i]->name, b, t->ema->value + (LVNI_CF32(b) - m->weights));
        }
    }
    return LVN_OK;
}

static void entries_free(entries *e)
{
    lvni_free(e->tensor);
    lvni_free(e->name);
}

/* What is neither tensor nor position, as text. */
typedef struct texts {
    lvni_str path, metrics, run, machine;
} texts;

static void texts_free(texts *x)
{
    lvni_str_free(&x->path);
    lvni_str_free(&x->metrics);
    lvni_str_free(&x->run);
    lvni_str_free(&x->machine);
}

static lvn_status write_texts(const lvni_trainer *t, const char *name, texts *x)
{
    lvni_str_printf(&x->path, "%s/checkpoints/%s.safetensors", t->o.out, name);
    lvni_identity_print(t, &x->run, &x->machine);
    LVN_TRY(lvni_epoch_sums_write(&t->epoch_sum, &x->metrics));
    LVN_TRY(lvni_str_status(&x->path));
    LVN_TRY(lvni_str_status(&x->run));
    return lvni_str_status(&x->machine);
}

static lvn_status write_file(const lvni_trainer *t, const entries *e, const texts *x)
{
    char schedule[48];
    snprintf(schedule, sizeof schedule, "updates=%lld", (long long)t->optim->steps);
    const lvni_st_meta extra[] = {{.key = EPOCH_METRICS, .value = lvni_str_text(&x->metrics)},
                                  {.key = LVNI_IDENTITY_RUN, .value = lvni_str_text(&x->run)},
                                  {.key = LVNI_IDENTITY_MACHINE, .value = lvni_str_text(&x->machine)}};
    const lvni_ckpt_content content = {.at = t->at,
                                       .config = t->o.config_json,
                                       .schedule = schedule,
                                       .extra = extra,
                                       .n_extra = sizeof extra / sizeof *extra,
                                       .tensors = e->tensor,
                                       .n_tensors = e->n};
    return lvni_ckpt_save(lvni_str_text(&x->path), &content);
}

lvn_status lvni_trainer_save(lvni_trainer *t, const char *name)
{
    if (t->o.out == NULL) {
        return LVN_OK;
    }
    entries e;
    texts x = {0};
    LVN_TRY(gather(t, &e));
    lvn_status s = write_texts(t, name, &x);
    if (s == LVN_OK) {
        s = write_file(t, &e, &x);
    }
    texts_free(&x);
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
    const bool named = lvni_str_status(&last) == LVN_OK && lvni_str_status(&best) == LVN_OK;
    const lvn_status s = named ? lvni_ckpt_link(lvni_str_text(&last), lvni_str_text(&best)) : LVN_ERR_MEMORY;
    lvni_str_free(&last);
    lvni_str_free(&best);
    return s;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* What a person can do about a tensor that only one side has. */
static const char *advice(const char *tensor)
{
    if (begins(tensor, LVNI_CKPT_TRAINER AVERAGE)) {
        return "it was written by a run with averaged weights where this one has none, or the other way round: give ema.decay as it was";
    }
    return begins(tensor, LVNI_CKPT_OPTIM)
               ? "it was written with another optimizer: give optim.name and optim.momentum as they were"
               : "it was written by a run with another model: give model and model.* as they were";
}

/* The run's tensor must be in the file, as it is here. */
static lvn_status check_entry(const lvni_ckpt *ckpt, const lvni_st_tensor *mine)
{
    const lvni_st_tensor *theirs = lvni_st_find(ckpt->file, mine->name);
    if (theirs == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "%s has no tensor %s: %s, or start a new run from its weights (weights=%s)", ckpt->path, mine->name,
                 advice(mine->name), ckpt->path);
    }
    const size_t axes = (size_t)mine->ndim * sizeof mine->shape[0];
    if (theirs->dtype != mine->dtype || theirs->ndim != mine->ndim || memcmp(theirs->shape, mine->shape, axes) != 0) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: tensor %s has another shape or type than in this run: give model, model.* and the data's classes as "
                 "they were", ckpt->path, mine->name);
    }
    return LVN_OK;
}

/* Does one of the run's tensors have this name? */
static bool has_entry(const entries *e, const char *name)
{
    for (int64_t i = 0; i < e->n; i++) {
        if (strcmp(e->tensor[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Both ways: state that would be left aside (momentum, ...) would change the run without a word. */
static lvn_status check_tensors(const lvni_ckpt *ckpt, const entries *e)
{
    for (int64_t i = 0; i < e->n; i++) {
        LVN_TRY(check_entry(ckpt, &e->tensor[i]));
    }
    for (int64_t i = 0; i < lvni_st_count(ckpt->file); i++) {
        const char *name = lvni_st_at(ckpt->file, i)->name;
        if (!has_entry(e, name)) {
            LVN_FAIL(LVN_ERR_USAGE, "%s has the tensor %s, which this run does not have: %s, or start a new run from its weights (weights=%s)",
                     ckpt->path, name, advice(name), ckpt->path);
        }
    }
    return LVN_OK;
}

static lvn_status read_texts(const lvni_ckpt *ckpt, lvn_step *sums, long long *updates)
{
    const char *metrics = lvni_st_meta_get(ckpt->file, EPOCH_METRICS);
    if (metrics == NULL || lvni_epoch_sums_read(metrics, sums) != LVN_OK) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: its metadata " EPOCH_METRICS " is %.200s: it cannot be resumed; remove it, and the run goes on from an "
                 "older checkpoint, or from none", ckpt->path, metrics == NULL ? "missing" : metrics);
    }
    if (ckpt->schedule == NULL || sscanf(ckpt->schedule, "updates=%lld", updates) != 1) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: its metadata " LVNI_CKPT_SCHEDULE " is %.200s, not updates=NUMBER", ckpt->path,
                 ckpt->schedule == NULL ? "missing" : ckpt->schedule);
    }
    return LVN_OK;
}

static void load(const lvni_ckpt *ckpt, const entries *e)
{
    for (int64_t i = 0; i < e->n; i++) {
        const lvni_st_tensor *theirs = lvni_st_find(ckpt->file, e->tensor[i].name);
        void *memory;
        memcpy(&memory, &e->tensor[i].data, sizeof memory);
        memcpy(memory, theirs->data, theirs->bytes);
    }
}

lvn_status lvni_trainer_restore(lvni_trainer *t, const lvni_ckpt *ckpt)
{
    entries e;
    lvn_step sums;
    long long updates = 0;
    LVN_TRY(gather(t, &e));
    lvn_status s = check_tensors(ckpt, &e);
    s = s == LVN_OK ? read_texts(ckpt, &sums, &updates) : s;
    s = s == LVN_OK ? lvni_identity_check(t, ckpt) : s;
    if (s == LVN_OK) { /* nothing was touched so far */
        load(ckpt, &e);
        t->at = ckpt->at;
        t->at.finished = false;
        t->saved_step = ckpt->at.step;
        t->optim->steps = updates;
        t->epoch_sum = sums;
        lvni_model_touch(t->o.model);
    }
    entries_free(&e);
    return s;
}

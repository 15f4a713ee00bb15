/* What a checkpoint of a run holds: parameters, buffers, optimizer state, averages (save.c adds the
 * position and the epoch's metric sums); and going on from one. */
#include "core/alloc.h"
#include "core/error.h"
#include "tensor/device.h"
#include "trainer/identity.h"
#include "trainer/loop_impl.h"
#include "trainer/phases.h"
#include "trainer/state_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void add(lvni_trainer_state_entries *e, const char *prefix, const char *middle,
                const char *name, const lvn_tensor *like, const float *data)
{
    lvni_ckpt_st_tensor *t = &e->tensor[e->n];
    snprintf(e->name[e->n], LVNI_STATE_NAME, "%s%s%s%s", prefix, middle,
             middle[0] != '\0' ? "/" : "", name);
    *t = (lvni_ckpt_st_tensor){
        .name = e->name[e->n], .dtype = like->dtype, .ndim = like->ndim, .data = data};
    memcpy(t->shape, like->shape, sizeof t->shape);
    e->held[e->n] =
        (lvni_trainer_state_held){0, (size_t)lvn_numel(like) * lvn_dtype_size(like->dtype)};
    e->n++;
}

/* Slot k of parameter i, which the checkpoint has whole, and the arrays perhaps in part. */
static void add_slot(const lvni_trainer *t, const lvni_trainer_state_arrays *a, int k, int i,
                     lvni_trainer_state_entries *e)
{
    const lvni_optim *optim = t->engine->optim;
    const lvni_nn_parameter *p = &t->o.model->parameters[i];
    int64_t shape[LVN_MAX_NDIM], n = 1;
    const int64_t at = lvni_optim_state(optim, k, i, shape);
    if (at < 0) {
        return;
    }
    for (int d = 0; d < p->tensor->ndim; d++) {
        n *= shape[d];
    }
    const bool all = a->held.begin == 0 && a->held.end == optim->n; /* also beside the flat ones */
    const int64_t from = all || at > a->held.begin ? at : a->held.begin,
                  to = all || at + n < a->held.end ? at + n : a->held.end;
    const bool some = from < to;
    add(e, LVNI_CKPT_OPTIM, optim->slot_name[optim->parameter[i].phase][k], p->name, p->tensor,
        some ? a->slot[k] + (from - a->held.begin) : NULL);
    memcpy(e->tensor[e->n - 1].shape, shape, sizeof shape);
    e->held[e->n - 1] = (lvni_trainer_state_held){some ? (size_t)(from - at) * sizeof(float) : 0,
                                                  some ? (size_t)(to - from) * sizeof(float) : 0};
}

lvni_trainer_state_arrays lvni_trainer_state_of(const lvni_trainer *t)
{
    lvni_trainer_state_arrays a = {.held = t->engine->optim->own,
                                   .values = t->o.model->weights,
                                   .average =
                                       t->engine->ema == NULL ? NULL : t->engine->ema->value};
    memcpy(a.slot, t->engine->optim->slot, sizeof a.slot);
    return a;
}

static void add_all(const lvni_trainer *t, const lvni_trainer_state_arrays *a,
                    lvni_trainer_state_entries *e)
{
    const lvni_nn_model *m = t->o.model;
    for (int i = 0; i < m->n_parameters; i++) {
        const lvni_nn_parameter *p = &m->parameters[i];
        add(e, LVNI_CKPT_MODEL, "", p->name, p->tensor, a->values + m->offset[i]);
        for (int k = 0; k < t->engine->optim->n_slots; k++) {
            add_slot(t, a, k, i, e);
        }
        if (a->average != NULL) {
            add(e, LVNI_CKPT_AVERAGE, "", p->name, p->tensor, a->average + m->offset[i]);
        }
    }
    for (int i = 0; i < m->n_buffers; i++) {
        const lvn_buffer *b = m->buffers[i];
        if (b->left_out) {
            continue;
        }
        add(e, LVNI_CKPT_MODEL, "", b->name, b->tensor, a->values + b->value_offset);
        if (a->average != NULL) {
            add(e, LVNI_CKPT_AVERAGE, "", b->name, b->tensor, a->average + b->value_offset);
        }
    }
}

lvn_status lvni_trainer_state_list(const lvni_trainer *t, const lvni_trainer_state_arrays *a,
                                   lvni_trainer_state_entries *e)
{
    const lvni_nn_model *m = t->o.model;
    const size_t averages = a->average == NULL ? 0 : 1;
    const size_t n = (size_t)m->n_parameters * (1 + averages + (size_t)t->engine->optim->n_slots) +
                     (size_t)m->n_buffers * (1 + averages);
    *e = (lvni_trainer_state_entries){.tensor =
                                          lvni_core_calloc(LVNI_TAG_CKPT, n, sizeof *e->tensor),
                                      .held = lvni_core_calloc(LVNI_TAG_CKPT, n, sizeof *e->held),
                                      .name = lvni_core_calloc(LVNI_TAG_CKPT, n, LVNI_STATE_NAME)};
    if (e->tensor == NULL || e->held == NULL || e->name == NULL) {
        lvni_trainer_state_entries_free(e);
        return LVN_ERR_MEMORY;
    }
    add_all(t, a, e);
    return LVN_OK;
}

void lvni_trainer_state_entries_free(lvni_trainer_state_entries *e)
{
    lvni_core_free(e->tensor);
    lvni_core_free(e->held);
    lvni_core_free(e->name);
    *e = (lvni_trainer_state_entries){0};
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

enum { ADVICE = 200 };

static const char *model_keys(const lvni_trainer *t)
{
    return t->o.model_keys != NULL ? t->o.model_keys : "the keys that the model follows from";
}

/* The name of the phase that trains the parameter of "optim/SLOT/NAME"; "": there is one alone. */
static const char *phase_of_state(const lvni_trainer *t, const char *tensor)
{
    const char *slot = tensor + strlen(LVNI_CKPT_OPTIM), *slash = strchr(slot, '/');
    for (int i = 0; slash != NULL && i < t->o.model->n_parameters; i++) {
        if (strcmp(t->o.model->parameters[i].name, slash + 1) == 0) {
            return lvni_trainer_phases_name(t->o.model, t->engine->optim->parameter[i].phase);
        }
    }
    return "";
}

/* What to do about a tensor that only one side has. */
static const char *advice(const lvni_trainer *t, const char *tensor, char text[ADVICE])
{
    if (begins(tensor, LVNI_CKPT_AVERAGE)) {
        return "it was written by a run with averaged weights where this one has none, or the "
               "other way round: give ema.decay as it was";
    }
    const char *phase = begins(tensor, LVNI_CKPT_OPTIM) ? phase_of_state(t, tensor) : "";
    if (phase[0] != '\0') {
        snprintf(text, ADVICE,
                 "it was written with another optimizer in the phase %.40s: give optim.name, "
                 "optim.momentum and optim.phases as they were",
                 phase);
        return text;
    }
    if (begins(tensor, LVNI_CKPT_OPTIM)) {
        return "it was written with another optimizer: give optim.name (and its momentum) as it "
               "was";
    }
    snprintf(text, ADVICE, "it was written by a run with another model: give %s as they were",
             model_keys(t));
    return text;
}

/* The run's tensor must be in the file, as it is here. */
static lvn_status check_entry(const lvni_trainer *t, const lvni_ckpt *ckpt,
                              const lvni_ckpt_st_tensor *mine)
{
    char text[ADVICE];
    const lvni_ckpt_st_tensor *theirs = lvni_ckpt_st_find(ckpt->file, mine->name);
    if (theirs == NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s has no tensor %s: %s, or start a new run from its weights (weights=%s)",
                 ckpt->path, mine->name, advice(t, mine->name, text), ckpt->path);
    }
    const size_t axes = (size_t)mine->ndim * sizeof mine->shape[0];
    if (theirs->dtype != mine->dtype || theirs->ndim != mine->ndim ||
        memcmp(theirs->shape, mine->shape, axes) != 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: tensor %s has another shape or type than in this run: give %s as they were",
                 ckpt->path, mine->name, model_keys(t));
    }
    return LVN_OK;
}

/* Does one of the run's tensors have this name? */
static bool has_entry(const lvni_trainer_state_entries *e, const char *name)
{
    for (int64_t i = 0; i < e->n; i++) {
        if (strcmp(e->tensor[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Both ways: state that would be left aside (momentum, ...) would silently change the run. */
static lvn_status check_tensors(const lvni_trainer *t, const lvni_ckpt *ckpt,
                                const lvni_trainer_state_entries *e)
{
    char text[ADVICE];
    for (int64_t i = 0; i < e->n; i++) {
        LVN_TRY(check_entry(t, ckpt, &e->tensor[i]));
    }
    for (int64_t i = 0; i < lvni_ckpt_st_count(ckpt->file); i++) {
        const char *name = lvni_ckpt_st_at(ckpt->file, i)->name;
        if (!has_entry(e, name)) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s has the tensor %s, which this run does not have: %s, or start a new run "
                     "from its weights (weights=%s)",
                     ckpt->path, name, advice(t, name, text), ckpt->path);
        }
    }
    return LVN_OK;
}

void lvni_trainer_state_updates_print(const lvni_trainer *t, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "updates=%lld", (long long)t->engine->optim->steps[0]);
    for (int i = 1; i < t->engine->n_phases && n < size; i++) {
        n += (size_t)snprintf(text + n, size - n, ",%lld", (long long)t->engine->optim->steps[i]);
    }
}

static lvn_status read_validated_step(const lvni_ckpt *ckpt, int64_t *out)
{
    const char *step = lvni_ckpt_st_meta_get(ckpt->file, LVNI_STATE_VALIDATED);
    long long at = ckpt->at.step; /* of a run that validates after epochs alone */
    int end = 0;
    if (step != NULL && (sscanf(step, "%lld%n", &at, &end) != 1 || step[end] != '\0')) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: its metadata " LVNI_STATE_VALIDATED " is %.200s, no step",
                 ckpt->path, step);
    }
    *out = at;
    return LVN_OK;
}

void lvni_trainer_state_missed_print(const lvni_trainer *t, lvni_core_str *out)
{
    for (int i = 0; i < t->engine->optim->n_parameters; i++) {
        if (t->engine->optim->missed[i] > 0) {
            lvni_core_str_printf(out, "%s %lld\n", t->o.model->parameters[i].name,
                                 (long long)t->engine->optim->missed[i]);
        }
    }
}

static int find_parameter(const lvni_nn_model *m, const char *name, size_t length)
{
    for (int i = 0; i < m->n_parameters; i++) {
        if (strlen(m->parameters[i].name) == length &&
            memcmp(m->parameters[i].name, name, length) == 0) {
            return i;
        }
    }
    return -1;
}

/* missed: zeros. Text NULL: no parameter has missed any. */
static lvn_status read_missed(const lvni_trainer *t, const lvni_ckpt *ckpt, const int64_t *updates,
                              int64_t *missed)
{
    const char *text = lvni_ckpt_st_meta_get(ckpt->file, LVNI_STATE_MISSED);
    for (const char *at = text; at != NULL && *at != '\0';) {
        const size_t name = strcspn(at, " \n");
        const int i = find_parameter(t->o.model, at, name);
        long long n = 0;
        int end = 0;
        if (i < 0 || sscanf(at + name, " %lld%n", &n, &end) != 1 ||
            at[name + (size_t)end] != '\n' || n < 1 ||
            n > updates[t->engine->optim->parameter[i].phase]) {
            LVN_FAIL(LVN_ERR_CORRUPT,
                     "%s: its metadata " LVNI_STATE_MISSED
                     " is %.200s, not a parameter and its missed updates",
                     ckpt->path, at);
        }
        missed[i] = n;
        at += name + (size_t)end + 1;
    }
    return LVN_OK;
}

/* How many numbers there were; 0: the text is something else. */
static int read_updates(const char *text, int64_t updates[LVNI_PHASES])
{
    long long value = 0;
    int n = 0, end = 0;
    bool good = text != NULL && sscanf(text, "updates=%lld%n", &value, &end) == 1;
    while (good) {
        updates[n++] = value;
        text += end;
        good = n < LVNI_PHASES && sscanf(text, ",%lld%n", &value, &end) == 1;
    }
    return n > 0 && text[0] == '\0' ? n : 0;
}

static lvn_status read_texts(const lvni_trainer *t, const lvni_ckpt *ckpt, lvni_nn_step *sums,
                             int64_t updates[LVNI_PHASES])
{
    const char *metrics = lvni_ckpt_st_meta_get(ckpt->file, LVNI_STATE_EPOCH_METRICS);
    if (metrics == NULL || lvni_trainer_epoch_sums_read(metrics, sums) != LVN_OK) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: its metadata " LVNI_STATE_EPOCH_METRICS
                 " is %.200s: it cannot be resumed; remove it, and the run goes on from an "
                 "older checkpoint, or from none",
                 ckpt->path, metrics == NULL ? "missing" : metrics);
    }
    const int n = read_updates(ckpt->schedule, updates);
    if (n == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: its metadata " LVNI_CKPT_SCHEDULE " is %.200s, not updates=NUMBER",
                 ckpt->path, ckpt->schedule == NULL ? "missing" : ckpt->schedule);
    }
    if (n != t->engine->n_phases) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s was written by a run whose steps have %d phase%s, those of this one have %d: "
                 "start a new run from its weights (weights=%s)",
                 ckpt->path, n, lvni_core_plural(n, "", "s"), t->engine->n_phases, ckpt->path);
    }
    return LVN_OK;
}

static lvn_status load(const lvni_ckpt *ckpt, const lvni_trainer_state_entries *e)
{
    for (int64_t i = 0; i < e->n; i++) {
        const lvni_ckpt_st_tensor *theirs = lvni_ckpt_st_find(ckpt->file, e->tensor[i].name);
        void *memory;
        memcpy(&memory, &e->tensor[i].data, sizeof memory);
        const lvni_trainer_state_held held = e->held[i];
        LVN_TRY(held.bytes == 0 ? LVN_OK
                                : lvni_tensor_mem_copy(
                                      memory, (const char *)theirs->data + held.from, held.bytes));
    }
    return LVN_OK;
}

/* The metadata of a checkpoint: all but its tensors. */
typedef struct texts {
    lvni_nn_step sums;
    int64_t updates[LVNI_PHASES];
    int64_t *missed;
    lvni_trainer_scaler scaler;
    lvni_optim_plateau plateau;
    lvni_trainer_early early;
    int64_t validated_step;
    lvni_trainer_clock clock;
    lvni_trainer_kept files;
    bool same_monitor;
} texts;

static lvn_status read_all(const lvni_trainer *t, const lvni_ckpt *ckpt,
                           const lvni_trainer_state_entries *e, texts *out)
{
    LVN_TRY(check_tensors(t, ckpt, e));
    LVN_TRY(read_texts(t, ckpt, &out->sums, out->updates));
    LVN_TRY(read_missed(t, ckpt, out->updates, out->missed));
    LVN_TRY(lvni_trainer_state_plateau_read(t, ckpt, &out->plateau));
    LVN_TRY(lvni_trainer_state_early_read(t, ckpt, &out->early));
    LVN_TRY(read_validated_step(ckpt, &out->validated_step));
    LVN_TRY(lvni_trainer_clock_read(ckpt, &out->clock));
    LVN_TRY(lvni_trainer_identity_check(t, ckpt));
    LVN_TRY(lvni_trainer_choose_read(t, ckpt, &out->files, &out->same_monitor));
    out->scaler = t->engine->scaler;
    LVN_TRY(lvni_trainer_scaler_read(ckpt->scaler, &out->scaler));
    return lvni_trainer_unreadable_read(t, ckpt); /* last: it takes what it reads */
}

static void take_all(lvni_trainer *t, const lvni_ckpt *ckpt, texts *from)
{
    t->at = ckpt->at;
    t->at.finished = false;
    lvni_trainer_kept_free(&t->checkpointing.files);
    t->checkpointing.files = from->files;
    from->files = (lvni_trainer_kept){0};
    if (!from->same_monitor) {
        lvni_trainer_choose_begin_again(t);
    }
    t->checkpointing.next_name[0] = '\0';
    t->checkpointing.saved_step = ckpt->at.step;
    t->report.resumed = true;
    t->checkpointing.gathered_step = -1;
    memcpy(t->engine->optim->steps, from->updates,
           (size_t)t->engine->n_phases * sizeof *from->updates);
    memcpy(t->engine->optim->missed, from->missed,
           (size_t)t->engine->optim->n_parameters * sizeof *from->missed);
    t->engine->scaler = from->scaler;
    t->engine->plateau = from->plateau;
    t->early = from->early;
    t->validated_step = from->validated_step;
    t->unvalidated_ns = from->clock.unvalidated_ns;
    t->report.earlier_s = (double)from->clock.trained_ns * 1e-9;
    t->report.epoch_sum = from->sums;
    if (t->engine->deferred != NULL) {
        t->engine->deferred->known = false;
        lvni_trainer_graph_forget(t->engine->graph);
    }
    lvni_nn_model_touch(t->o.model);
}

lvn_status lvni_trainer_restore(lvni_trainer *t, const lvni_ckpt *ckpt)
{
    lvni_trainer_state_entries e;
    const lvni_trainer_state_arrays arrays = lvni_trainer_state_of(t);
    texts read = {.missed = NULL};
    read.missed = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)t->engine->optim->n_parameters,
                                   sizeof *read.missed);
    lvn_status s = read.missed == NULL ? LVN_ERR_MEMORY : lvni_trainer_state_list(t, &arrays, &e);
    if (s != LVN_OK) {
        lvni_core_free(read.missed);
        return s;
    }
    LVNI_TRY_DONE(s, read_all(t, ckpt, &e, &read)); /* touches nothing of the trainer on failure */
    LVNI_TRY_DONE(s, load(ckpt, &e));
    LVNI_TRY_DONE(s, lvni_trainer_identity_take_pins(t, ckpt));
    LVNI_TRY_DONE(s, lvni_trainer_choose_repair(t, ckpt, &read.files));
    take_all(t, ckpt, &read);
done:
    lvni_trainer_kept_free(&read.files);
    lvni_trainer_state_entries_free(&e);
    lvni_core_free(read.missed);
    return s;
}

/* Results of steps on a device, read one step late (deferred.h). */
#include "trainer/deferred.h"

#include "core/math.h"
#include "kernels/flat.h"
#include "tensor/device.h"
#include "tensor/device_blocks.h"
#include "trainer/engine.h"
#include "trainer/phases.h"

#include <math.h>
#include <string.h>

bool lvni_trainer_deferred_possible(void)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    return ctx != NULL && ctx->device != NULL && !lvni_tensor_device_is_dry(ctx->device);
}

/* ---- memory ---- */

static size_t numbers_of(int64_t micro_batches, int n_phases)
{
    return (size_t)micro_batches * (size_t)n_phases * (2 + LVNI_METRIC_SLOTS);
}

static size_t bytes_of(int64_t micro_batches, int n_phases)
{
    return sizeof(lvn_step_block) + numbers_of(micro_batches, n_phases) * sizeof(double);
}

/* Losses and weights of all ranks lie behind the block. */
static size_t losses_of(const lvni_plan *plan)
{
    return plan->devices > 1 ? (size_t)plan->micro_batches * 2 * sizeof(double) : 0;
}

uint64_t lvni_trainer_deferred_bytes(const lvni_plan *plan, int n_phases, int64_t n_sums)
{
    return lvni_tensor_device_round((size_t)(n_sums + 1) * sizeof(double)) +
           lvni_tensor_device_round(
               bytes_of(plan->micro_batch_end - plan->micro_batch_begin, n_phases) +
               losses_of(plan));
}

lvn_status lvni_trainer_deferred_create(lvni_trainer_engine *e, lvni_trainer_deferred **out)
{
    const lvni_plan *plan = &e->o.plan;
    *out = NULL;
    lvni_trainer_deferred *l = LVNI_NEW(LVNI_TAG_TRAINER, lvni_trainer_deferred);
    if (l == NULL) {
        return LVN_ERR_MEMORY;
    }
    *out = l;
    l->device = lvni_tensor_ctx_get()->device;
    (void)lvni_tensor_device_join(l->device, 1);
    l->plan = plan;
    l->first = plan->micro_batch_begin;
    l->n = plan->micro_batch_end - plan->micro_batch_begin;
    l->n_parameters = e->o.model->n_parameters;
    l->n_sums = lvni_kernels_flat_blocks(e->o.model->n_weights);
    l->sums = lvni_tensor_device_take(l->device, LVN_STREAM_COMPUTE,
                                      (size_t)(l->n_sums + 1) * sizeof *l->sums, &l->got_sums);
    return l->sums == NULL ? lvn_last_error()->code
                           : lvni_tensor_mem_zero(l->sums, (size_t)l->n_sums * sizeof *l->sums);
}

static lvn_status make_step(lvni_trainer_deferred *l, int i)
{
    const lvn_backend *b = lvni_tensor_device_backend(l->device);
    l->step[i].landing = lvni_tensor_host_take(l->device, l->bytes);
    l->step[i].part = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)l->n_phases * (size_t)l->n,
                                       sizeof *l->step[i].part);
    l->step[i].terms = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)l->n_phases * (size_t)l->n,
                                        sizeof *l->step[i].terms);
    l->step[i].idle =
        lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)l->n_phases * (size_t)l->n_parameters + 1,
                         sizeof *l->step[i].idle);
    l->step[i].all =
        lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)l->n_phases, sizeof *l->step[i].all);
    if (l->step[i].landing == NULL || l->step[i].part == NULL || l->step[i].terms == NULL ||
        l->step[i].idle == NULL || l->step[i].all == NULL) {
        return lvn_last_error()->code;
    }
    memset(l->step[i].landing, 0, l->bytes); /* of no step: a copy into it may be left out */
    return b->event_create(lvni_tensor_device_state(l->device), &l->step[i].event);
}

lvn_status lvni_trainer_deferred_make_steps(lvni_trainer_deferred *l, lvni_trainer_engine *e)
{
    l->n_phases = e->n_phases;
    l->bytes = bytes_of(l->n, l->n_phases);
    l->block = lvni_tensor_device_take(l->device, LVN_STREAM_COMPUTE, l->bytes + losses_of(l->plan),
                                       &l->got_block);
    if (l->block == NULL) {
        return lvn_last_error()->code;
    }
    l->numbers = (double *)(void *)(l->block + 1);
    if (l->plan->devices > 1) {
        l->losses = l->numbers + numbers_of(l->n, l->n_phases);
        LVN_TRY(lvni_trainer_message_create(&l->message, l->n));
    }
    e->optim->block = l->block;
    e->now.step_on_device = &l->block->given.step;
    e->now.numbers_on_device = l->block->given.number;
    e->now.factor_on_device = e->scaler.on ? &l->block->scaler.loss_factor : NULL;
    for (int i = 0; i < LVNI_DEFERRED_STEPS; i++) {
        LVN_TRY(make_step(l, i));
    }
    return lvni_tensor_mem_zero(l->block, l->bytes);
}

void lvni_trainer_deferred_destroy(lvni_trainer_deferred *l)
{
    if (l == NULL) {
        return;
    }
    for (int i = 0; i < LVNI_DEFERRED_STEPS; i++) {
        if (l->step[i].event != NULL) { /* the landing may be on its way */
            lvni_tensor_device_backend(l->device)->event_wait(l->step[i].event);
            lvni_tensor_device_backend(l->device)->event_destroy(l->step[i].event);
        }
        lvni_tensor_host_give(l->device, l->step[i].landing, l->bytes);
        lvni_core_free(l->step[i].part);
        lvni_core_free(l->step[i].terms);
        lvni_core_free(l->step[i].idle);
        lvni_core_free(l->step[i].all);
    }
    if (l->sums != NULL) {
        lvni_tensor_device_give(l->device, LVN_STREAM_COMPUTE, false, l->sums, l->got_sums);
    }
    if (l->block != NULL) {
        lvni_tensor_device_give(l->device, LVN_STREAM_COMPUTE, false, l->block, l->got_block);
    }
    (void)lvni_tensor_device_join(l->device, -1);
    lvni_trainer_message_free(&l->message);
    lvni_core_free(l);
}

/* ---- a step ---- */

enum { OF_A_STEP = offsetof(lvn_step_block, failed) }; /* bytes of the block */
_Static_assert((int)OF_A_STEP <= (int)LVN_UPLOAD, "one upload writes what is known of a step");
_Static_assert((int)LVN_STEP_RATES == (int)LVNI_DEFERRED_STEPS,
               "a rate for each number of skipped steps under way");
_Static_assert((int)LVN_STEP_PHASES == (int)LVNI_PHASES,
               "the block counts what the optimizer does");

lvn_status lvni_trainer_deferred_begin(lvni_trainer_deferred *l, const lvni_trainer_engine *e)
{
    lvn_step_block now = {.given = {.step = e->now.step, .skipped = e->scaler.skipped}};
    lvni_trainer_follow_factors(e, now.follow);
    memcpy(now.given.number, e->now.number, sizeof now.given.number);
    for (int i = 0; i < l->n_phases * LVN_STEP_RATES; i++) {
        const int phase = i / LVN_STEP_RATES, rate = i % LVN_STEP_RATES;
        const lvni_trainer_rates r = lvni_trainer_rates_at(e, phase, e->scaler.skipped + rate);
        now.given.lr[phase][rate] = r.lr;
        now.given.decay[phase][rate] = r.decay;
        now.given.momentum[phase][rate] = r.momentum;
    }
    for (int64_t i = 0; i < l->n_phases * l->n; i++) {
        lvni_nn_step_begin(&l->step[l->next].part[i], 0.0);
    }
    for (int i = 0; i < l->n_phases; i++) {
        lvni_nn_step_begin(&l->step[l->next].all[i], 0.0);
    }
    memset(l->step[l->next].counted, 0, sizeof l->step[l->next].counted);
    l->step[l->next].weighs = false;
    l->step[l->next].job = 0;
    LVN_TRY(lvni_tensor_mem_copy(l->block, &now, OF_A_STEP));
    if (!l->known) { /* a run may be resumed after the engine was made */
        const int64_t largest = lvni_plan_largest_micro_batch(&e->o.plan);
        now.scaler = lvni_trainer_scaler_rule(&e->scaler, largest);
        LVN_TRY(lvni_tensor_mem_copy(l->block->updates, e->optim->steps, sizeof now.updates));
        LVN_TRY(lvni_tensor_mem_copy(&l->block->scaler, &now.scaler, sizeof now.scaler));
        l->known = true;
    }
    return lvni_tensor_mem_zero(l->numbers, numbers_of(l->n, l->n_phases) * sizeof(double));
}

/* Elements of `numbers` before the phase's. */
static int64_t phase_at(const lvni_trainer_deferred *l, int phase)
{
    return (int64_t)phase * l->n * (2 + LVNI_METRIC_SLOTS);
}

static int64_t slots_at(const lvni_trainer_deferred *l, int phase, int64_t micro_batch)
{
    return phase_at(l, phase) + 2 * l->n + (micro_batch - l->first) * LVNI_METRIC_SLOTS;
}

double *lvni_trainer_deferred_loss(const lvni_trainer_deferred *l, int phase, int64_t micro_batch)
{
    return l->numbers + phase_at(l, phase) + (micro_batch - l->first);
}

lvni_nn_terms *lvni_trainer_deferred_terms(const lvni_trainer_deferred *l, int phase,
                                           int64_t micro_batch)
{
    lvni_nn_terms *t = &l->step[l->next].terms[(int64_t)phase * l->n + (micro_batch - l->first)];
    lvni_nn_terms_begin(t);
    t->weight = lvni_trainer_deferred_loss(l, phase, micro_batch) + l->n;
    t->slots = l->numbers + slots_at(l, phase, micro_batch);
    return t;
}

void lvni_trainer_deferred_note(lvni_trainer_deferred *l, int phase, int64_t micro_batch,
                                const lvni_nn_step *step)
{
    lvni_nn_step_copy(&l->step[l->next].part[(int64_t)phase * l->n + (micro_batch - l->first)],
                      step);
}

/* Of blocks that the phase does not train, which the decision before left something in. */
static void zero_others(const lvni_trainer_deferred *l, const lvni_nn_model *m)
{
    const int64_t begin = m->trained_begin / LVNI_FLAT_BLOCK,
                  end = lvni_kernels_flat_blocks(m->trained_end);
    lvn_status s = LVN_OK;
    if (begin > 0) {
        s = lvni_tensor_mem_zero(l->sums, (size_t)begin * sizeof *l->sums);
    }
    if (s == LVN_OK && end < l->n_sums) {
        s = lvni_tensor_mem_zero(l->sums + end, (size_t)(l->n_sums - end) * sizeof *l->sums);
    }
    if (s != LVN_OK) {
        lvni_tensor_device_record_error(l->device);
    }
}

/* Takes back the count of an update that did not happen. */
static void uncount(lvni_trainer_deferred *l, lvni_trainer_engine *e, int index, int phase)
{
    if (l->step[index].counted[phase]) {
        lvni_optim_undo_step(e->optim, phase,
                             l->step[index].idle + (size_t)phase * (size_t)l->n_parameters);
        l->step[index].counted[phase] = false;
    }
}

/* Skipped, or without weight. */
static void uncount_idle(lvni_trainer_deferred *l, lvni_trainer_engine *e, int index)
{
    const lvn_step_block *b = l->step[index].landing;
    for (int i = 0; i < l->n_phases; i++) {
        if (!b->phase[i].updated) {
            uncount(l, e, index, i);
        }
    }
}

/* 16-mixed, weights counted on the device: parameters that missed updates have counts of their own,
 * which the host gives to kernels: it has to know which of the updates before there were. Rare, so
 * it waits. */
static void settle(lvni_trainer_deferred *l, lvni_trainer_engine *e)
{
    const int before = (l->next + LVNI_DEFERRED_STEPS - 1) % LVNI_DEFERRED_STEPS;
    const bool unknown = e->scaler.on || l->step[before].weighs;
    bool missed = false;
    for (int i = 0; i < l->n_parameters && unknown; i++) {
        missed = missed || e->optim->missed[i] > 0;
    }
    const lvn_step_block *b = l->step[before].landing;
    if (missed) {
        (void)lvni_tensor_device_backend(l->device)->event_wait(l->step[before].event);
    }
    if (missed && b->finished == e->now.step) { /* else the device has failed */
        uncount_idle(l, e, before);
        const lvni_trainer_rates rates = lvni_trainer_rates_at(e, e->now.phase, b->scaler.skipped);
        lvni_optim_set_rates(e->optim, e->now.phase, e->now.step, rates.schedule,
                             1.0, /* beta1 may move with the step */
                             rates.momentum);
    }
}

/* Of all micro-batches, in memory of the device. One rank: those that the host knows join the
 * others; where there were no samples it is 0. */
static const double *weights_on_device(lvni_trainer_deferred *l, int phase)
{
    if (l->losses != NULL) {
        return l->losses + l->plan->micro_batches;
    }
    for (int64_t i = 0; i < l->n; i++) {
        const lvni_nn_step *part = &l->step[l->next].part[(int64_t)phase * l->n + i];
        if (part->terms != NULL && !isnan(part->weight) &&
            lvni_tensor_mem_put(part->terms->weight, &part->weight, sizeof part->weight) !=
                LVN_OK) {
            lvni_tensor_device_record_error(l->device);
        }
    }
    return l->numbers + phase_at(l, phase) + l->n;
}

void lvni_trainer_deferred_decide(lvni_trainer_deferred *l, lvni_trainer_engine *e, double weight)
{
    const int phase = e->now.phase;
    lvn_step_decision d = {.phase = phase,
                           .micro_batch = l->losses != NULL ? 0 : l->first,
                           .n_losses = l->losses != NULL ? l->plan->micro_batches : (int)l->n,
                           .divisor = weight,
                           .weights = isnan(weight) ? weights_on_device(l, phase) : NULL,
                           .clip = lvni_trainer_clip_of(e, phase),
                           .ema_decay = e->o.ema.decay,
                           .ema_warmup = e->o.ema.warmup};
    lvni_optim_describe(e->optim, &d);
    settle(l, e);
    l->step[l->next].counted[phase] = true;
    l->step[l->next].weighs = l->step[l->next].weighs || isnan(weight);
    memcpy(l->step[l->next].idle + (size_t)phase * (size_t)l->n_parameters, e->optim->idle,
           (size_t)l->n_parameters * sizeof *e->optim->idle);
    zero_others(l, e->o.model);
    lvni_kernels_flat_decide(l->block, l->sums, l->n_sums,
                             l->losses != NULL ? l->losses : l->numbers + phase_at(l, phase), &d);
}

/* Nothing is under way afterwards. */
static lvn_status take_error(lvni_trainer_deferred *l, const lvni_trainer_engine *e)
{
    const lvn_status s = lvni_trainer_lanes_take_error(e->lanes);
    if (s != LVN_OK && l->error.code == LVN_OK) {
        l->error = *lvn_last_error();
    }
    return s;
}

static void undo(lvni_trainer_deferred *l, lvni_trainer_engine *e, int index)
{
    for (int i = 0; i < l->n_phases; i++) {
        uncount(l, e, index, i);
    }
}

void lvni_trainer_deferred_cancel(lvni_trainer_deferred *l, lvni_trainer_engine *e)
{
    undo(l, e, l->next);
}

lvn_status lvni_trainer_deferred_fail(lvni_trainer_deferred *l, lvni_trainer_engine *e)
{
    const lvn_error error = *lvn_last_error();
    const lvn_status device = take_error(l, e);
    undo(l, e, l->next);
    /* the communication thread gave up because the device had failed */
    return device != LVN_OK ? lvn_error_adopt(&l->error) : lvn_error_adopt(&error);
}

void lvni_trainer_deferred_finish(const lvni_trainer_deferred *l)
{
    lvni_kernels_flat_finish(l->block);
}

/* Functions of flat buffers return nothing: what could not be submitted is noted. */
lvn_status lvni_trainer_deferred_end(lvni_trainer_deferred *l, const lvni_trainer_engine *e,
                                     int *index)
{
    if (lvni_trainer_lanes_failed(e->lanes)) {
        return take_error(l, e);
    }
    const lvn_backend *b = lvni_tensor_device_backend(l->device);
    void *stream = lvni_tensor_device_stream(l->device);
    *index = l->next;
    if (stream == NULL) {
        return lvn_last_error()->code;
    }
    LVN_TRY(b->copy(stream, l->step[l->next].landing, l->block, l->bytes));
    LVN_TRY(b->event_record(l->step[l->next].event, stream));
    l->next = (l->next + 1) % LVNI_DEFERRED_STEPS;
    return LVN_OK;
}

/* ---- reading it ---- */

static lvn_status fail_number(const lvn_step_block *b, const lvni_trainer_engine *e,
                              const lvni_trainer_step_record *r)
{
    const char *name = lvni_trainer_phases_name(e->o.model, b->failed_phase);
    if (b->failed == LVN_STEP_GRADIENT) {
        return lvni_trainer_fail_norm(e, b->failed_phase, b->failed_value, &r->before);
    }
    const lvni_trainer_pass pass = {.step = b->failed_step, .epoch = r->before.epoch};
    const lvn_status s =
        b->failed == LVN_STEP_LOSS
            ? lvni_trainer_fail_loss(&pass, b->failed_value, b->failed_micro_batch, NULL)
            : lvni_nn_check_weight(b->failed_value, b->failed_micro_batch);
    lvn_error_frame("step %lld, %s%smicro-batch %lld", (long long)b->failed_step, name,
                    name[0] != '\0' ? ", " : "", (long long)b->failed_micro_batch);
    return s;
}

static lvn_status fail_on_device(lvni_trainer_deferred *l, const lvni_trainer_engine *e,
                                 const lvni_trainer_step_record *r)
{
    (void)take_error(l, e);
    const lvn_status s =
        l->error.code != LVN_OK
            ? lvn_error_adopt(&l->error)
            : lvn_error_set(LVN_ERR_INTERNAL, __FILE__, __LINE__,
                            "the device left out a part of step %lld and reported no error",
                            (long long)r->before.step);
    lvn_error_frame("step %lld", (long long)r->before.step);
    return s;
}

/* The metrics of a phase, micro-batch by micro-batch. */
static lvn_status fold(const lvni_trainer_deferred *l, const lvni_trainer_step_record *r, int phase,
                       lvni_nn_step *metrics)
{
    const double *numbers =
        (const double *)(const void *)((const lvn_step_block *)l->step[r->deferred].landing + 1);
    if (l->losses != NULL) {
        lvni_nn_step_copy(metrics, &l->step[r->deferred].all[phase]);
        return LVN_OK;
    }
    lvni_nn_step_begin(metrics, 0.0);
    for (int64_t i = 0; i < l->n; i++) {
        lvni_nn_step *part = &l->step[r->deferred].part[(int64_t)phase * l->n + i];
        if (part->terms != NULL) { /* else it had no samples */
            lvni_nn_step_fold(part, numbers + slots_at(l, phase, l->first + i));
        }
        LVN_TRY(lvni_nn_metrics_add(metrics, part));
    }
    return LVN_OK;
}

lvn_status lvni_trainer_deferred_read(lvni_trainer_deferred *l, lvni_trainer_engine *e,
                                      const lvni_trainer_step_record *r,
                                      lvni_trainer_step_result *result)
{
    const lvn_backend *backend = lvni_tensor_device_backend(l->device);
    LVN_TRY(backend->event_wait(l->step[r->deferred].event));
    const lvn_step_block *b = l->step[r->deferred].landing;
    if (b->finished != r->before.step + 1) { /* something was left out */
        return fail_on_device(l, e, r);
    }
    LVN_TRY(lvni_trainer_deferred_exchanged(l, r->deferred));
    if (b->failed != LVN_STEP_FINE && b->failed != LVN_STEP_OVERFLOWS) {
        return fail_number(b, e, r);
    }
    for (int i = 0; i < r->n_phases; i++) {
        lvni_trainer_phase_result *p = &result->phase[i];
        LVN_TRY(fold(l, r, i, &p->metrics));
        if (p->updated) { /* submitted: else no sample of the phase could be read */
            p->grad_norm = b->phase[i].grad_norm;
            p->clipped = b->phase[i].clipped;
            p->skipped = b->phase[i].skipped;
            p->updated = b->phase[i].updated;
            result->lr = p->lr = b->phase[i].lr;
        }
    }
    uncount_idle(l, e, r->deferred);
    return LVN_OK;
}

void lvni_trainer_deferred_undo(lvni_trainer_deferred *l, lvni_trainer_engine *e,
                                const lvni_trainer_step_record *r)
{
    undo(l, e, r->deferred);
}

bool lvni_trainer_deferred_torn(const lvni_trainer_deferred *l, const lvni_trainer_engine *e)
{
    int64_t updates[LVN_STEP_PHASES];
    return l->known &&
           (lvni_tensor_mem_copy(updates, l->block->updates, sizeof updates) != LVN_OK ||
            memcmp(updates, e->optim->steps, sizeof updates) != 0);
}

/* The ranks of a host program's trainer (public_trainer.h): each waits for a round, does the call,
 * and waits for the next. */
#include "api/public_trainer.h"
#include "ckpt/checkpoint.h"
#include "core/error.h"
#include "kernels/flat.h"
#include "log/run_log.h"
#include "tensor/device.h"

#include <math.h>
#include <string.h>

/* ---- reports, by the first rank ---- */

static void fill(lvn_trainer *h, const lvni_ckpt_position *at, const lvni_nn_step *metrics)
{
    const lvni_trainer *t = h->inner;
    const int64_t steps = lvni_plan_steps_of(&t->o.plan, at->epoch);
    const bool next = at->step_in_epoch == 0 && at->epoch > 0; /* the epoch is over already */
    h->report = (lvn_trainer_report){
        .step = at->step,
        .epoch = next ? at->epoch : at->epoch + 1,
        .step_in_epoch = next ? lvni_plan_steps_of(&t->o.plan, at->epoch - 1) : at->step_in_epoch,
        .loss = lvni_trainer_metric_mean(metrics, "loss"),
        .n_metrics = metrics->n_metrics,
        .metric = h->metric,
        .last_of_epoch = next || at->step_in_epoch >= steps,
        .last = lvni_trainer_ends_at(t, at)};
    for (int i = 0; i < metrics->n_metrics; i++) {
        const lvni_nn_step_metric *m = &metrics->metric[i];
        memcpy(h->name[i], m->name, sizeof h->name[i]);
        h->metric[i] = (lvn_metric){.name = h->name[i], .value = m->sum / m->weight};
    }
}

static void fill_step(lvn_trainer *h, const lvni_trainer_step_result *r)
{
    fill(h, &r->after, &r->metrics);
    h->report.samples = r->samples;
    h->report.lr = r->lr;
}

/* The program's thread calls it, and this one waits. */
static void show(lvn_trainer *h, lvn_trainer_callback callback)
{
    pthread_mutex_lock(&h->lock);
    h->at = h->inner->at;
    h->at.step = h->report.step; /* of a device the position is a step ahead */
    h->ends = h->report.last;
    h->event = callback;
    pthread_cond_broadcast(&h->changed);
    while (h->event != NULL) {
        pthread_cond_wait(&h->changed, &h->lock);
    }
    pthread_mutex_unlock(&h->lock);
}

static void step_done(void *user, const lvni_trainer_step_result *r)
{
    lvn_trainer *h = user;
    fill_step(h, r);
    show(h, h->o.on_step);
}

static void validation_done(void *user)
{
    lvn_trainer *h = user;
    fill(h, &h->inner->at, &h->inner->report.last_val);
    show(h, h->o.on_validation);
}

static void epoch_done(void *user)
{
    lvn_trainer *h = user;
    fill(h, &h->inner->at, &h->inner->report.epoch_sum);
    show(h, h->o.on_epoch);
}

static void checkpoint_done(void *user, int64_t step)
{
    lvn_trainer *h = user;
    h->report = (lvn_trainer_report){.step = step, .loss = (double)NAN, .metric = h->metric};
    show(h, h->o.on_checkpoint);
}

lvni_trainer_hooks lvni_api_host_hooks(lvn_trainer *h)
{
    return (lvni_trainer_hooks){.step = h->o.on_step != NULL ? step_done : NULL,
                                .validation = h->o.on_validation != NULL ? validation_done : NULL,
                                .epoch = h->o.on_epoch != NULL ? epoch_done : NULL,
                                .checkpoint = h->o.on_checkpoint != NULL ? checkpoint_done : NULL,
                                .user = h};
}

/* ---- calls ---- */

static lvn_status fit(lvni_trainer *t)
{
    const lvn_status s = lvni_trainer_fit(t);
    if (s == LVN_ERR_CANCELLED && t->checkpointing.signal == LVNI_STOP_ASKED) {
        lvni_log_line(LVNI_LOG_INFO, "stopped: %-s", lvn_last_error()->message);
        lvn_clear_error();
        return LVN_OK;
    }
    return s;
}

static lvn_status step(lvn_trainer *h, bool first, lvni_trainer *t)
{
    lvni_trainer_step_result r;
    LVN_TRY(lvni_trainer_advance(t, &r));
    if (first) {
        fill_step(h, &r);
    }
    return LVN_OK;
}

static lvn_status validate(lvn_trainer *h, bool first, lvni_trainer *t)
{
    LVN_TRY(lvni_trainer_validate(t));
    if (first) {
        fill(h, &t->at, &t->report.last_val);
    }
    return LVN_OK;
}

/* LVN_ERR_PEER: it is another rank that failed. */
static lvn_status agree(const lvni_run_rank *rank, lvn_status mine)
{
    const lvn_status s =
        rank->comm == NULL ? mine : lvni_dist_comm_agree_status(rank->comm, mine, "the checkpoint");
    if (mine == LVN_OK && s != LVN_OK) {
        const lvn_error other = *lvn_last_error();
        LVN_FAIL(LVN_ERR_PEER, "%s", other.message);
    }
    return s;
}

/* All ranks read it, or none takes anything of it. */
static lvn_status load(lvn_trainer *h, const lvni_run_rank *rank, lvni_trainer *t)
{
    lvni_ckpt *ckpt = NULL;
    lvn_status s = agree(rank, lvni_ckpt_load(h->path, &ckpt));
    if (s == LVN_OK) {
        const lvn_status mine = lvni_trainer_load(t, ckpt);
        s = agree(rank, mine);
        pthread_mutex_lock(&h->lock);
        h->broken = h->broken || mine != s; /* this one is elsewhere than the others */
        pthread_mutex_unlock(&h->lock);
    }
    lvni_ckpt_free(ckpt);
    return s;
}

static lvn_status write_value(const lvn_trainer *h, lvni_trainer *t)
{
    lvni_nn_model *m = t->o.model;
    const size_t bytes = (size_t)lvn_numel(h->value) * sizeof(float);
    float *to = NULL;
    for (int i = 0; i < m->n_parameters; i++) {
        to = strcmp(m->parameters[i].name, h->path) == 0 ? m->weights + m->offset[i] : to;
    }
    for (int i = 0; i < m->n_buffers; i++) {
        to = strcmp(m->buffers[i]->name, h->path) == 0 ? m->weights + m->buffers[i]->value_offset
                                                       : to;
    }
    LVN_TRY(lvni_tensor_mem_copy(to, lvn_const_data(h->value), bytes));
    if (t->o.precision == LVNI_PRECISION_BF16_TRUE) {
        lvni_kernels_flat_round_bf16(m->weights, m->n_weights);
    }
    lvni_nn_model_touch(m);
    return LVN_OK;
}

static lvn_status answer(lvn_trainer *h, const lvni_run_rank *rank, bool first, lvni_trainer *t)
{
    switch (h->call) {
    case LVNI_HOST_FIT: return fit(t);
    case LVNI_HOST_STEP: return step(h, first, t);
    case LVNI_HOST_VALIDATE: return validate(h, first, t);
    case LVNI_HOST_SAVE: return rank->rank == 0 ? lvni_trainer_save_as(t, h->path) : LVN_OK;
    case LVNI_HOST_LOAD: return load(h, rank, t);
    case LVNI_HOST_WRITE: return write_value(h, t);
    case LVNI_HOST_END: break;
    }
    return LVN_OK;
}

/* ---- rounds ---- */

/* The error of a step comes from the rank that began it; what a rank alone found (a file) may be
 * asked for again. */
static lvn_status answer_call(lvn_trainer *h, const lvni_run_rank *rank, bool first,
                              lvni_trainer *t)
{
    const lvn_status s = answer(h, rank, first, t);
    if (s != LVN_OK && (h->call == LVNI_HOST_FIT || h->call == LVNI_HOST_STEP)) {
        lvn_error_append("%-s", t->checkpointing.kept);
    }
    if (s != LVN_OK && h->call < LVNI_HOST_SAVE) {
        const lvn_error error = *lvn_last_error();
        lvni_run_rank_give_up(rank, s);
        (void)lvn_error_adopt(&error);
    }
    return s;
}

static void record_status(lvn_trainer *h, lvn_status s)
{
    if (s != LVN_OK && (h->status == LVN_OK || h->status == LVN_ERR_PEER)) {
        h->status = s;
        h->error = *lvn_last_error();
    }
}

/* Returns the failure that ended the training, so that the run ends as failed. */
static lvn_status answer_all(lvn_trainer *h, const lvni_run_rank *rank, bool first, lvni_trainer *t)
{
    lvn_status ended = LVN_OK;
    lvn_error error = {0};
    for (uint64_t seen = 0;;) {
        while (h->round == seen) {
            pthread_cond_wait(&h->changed, &h->lock);
        }
        seen = h->round;
        if (h->call == LVNI_HOST_END) {
            return ended == LVN_OK ? LVN_OK : lvni_core_error_collect(ended, &error, "a rank");
        }
        pthread_mutex_unlock(&h->lock);
        const lvn_status s = answer_call(h, rank, first, t);
        pthread_mutex_lock(&h->lock);
        record_status(h, s);
        if (s != LVN_OK && h->call < LVNI_HOST_SAVE) {
            ended = s;
            error = *lvn_last_error();
        }
        h->at = first ? t->at : h->at;
        h->ends = first ? lvni_trainer_ends_at(t, &t->at) : h->ends;
        h->working--;
        pthread_cond_broadcast(&h->changed);
    }
}

lvn_status lvni_api_host_serve(void *host, const lvni_run_ranks *ranks, const lvni_run_rank *rank,
                               lvni_trainer *t)
{
    lvn_trainer *h = host;
    const bool first = rank->rank == ranks->rank[0].rank;
    if (rank->comm != NULL) { /* none of them fails from here on before it is called */
        LVN_TRY(lvni_dist_comm_agree_status(rank->comm, LVN_OK, "the start"));
    }
    pthread_mutex_lock(&h->lock);
    if (first) {
        h->here = ranks->n;
        h->inner = t;
        h->at = t->at;
        h->ends = lvni_trainer_ends_at(t, &t->at);
    }
    h->arrived++;
    pthread_cond_broadcast(&h->changed);
    const lvn_status s = answer_all(h, rank, first, t);
    pthread_mutex_unlock(&h->lock);
    return s;
}

/* Making and taking apart a trainer (trainer.h). */
#include "trainer/loop_impl.h"

#include "core/alloc.h"
#include "core/machine.h"
#include "kernels/flat.h"
#include "trainer/identity.h"
#include "trainer/phases.h"

#include <math.h>

/* What several ranks need beside their sets. */
static lvn_status make_reducer(lvni_trainer *t, int lanes, int sets)
{
    const lvni_plan *plan = &t->o.plan;
    /* micro-batches of a rank: the first has no fewer than any other */
    const int64_t most = lvni_plan_micro_batches_of(plan, 0).count;
    const lvni_trainer_gradient_sync_options o = {.comm = t->o.comm,
                                                  .model = t->o.model,
                                                  .micro_batches = plan->micro_batches,
                                                  .sets = sets,
                                                  .lanes = lanes,
                                                  .bucket_bytes = t->o.bucket_bytes,
                                                  .message = lvni_trainer_message_limit(most) +
                                                             (size_t)t->o.model->n_parameters};
    t->leaf = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)LVNI_TREE_PENDING + (size_t)lanes,
                               sizeof *t->leaf);
    t->micro_batch_weight = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)plan->micro_batches,
                                             sizeof *t->micro_batch_weight);
    if (t->leaf == NULL || t->micro_batch_weight == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(lvni_trainer_message_create(&t->message, most));
    return lvni_trainer_gradient_sync_create(&o, &t->gradient_sync);
}

static lvn_status make_lanes_and_sets(lvni_trainer *t)
{
    const lvni_plan *plan = &t->o.plan;
    const int lanes = plan->lanes, team = plan->cores / lanes > 1 ? plan->cores / lanes : 1;
    LVN_TRY(lvni_trainer_lanes_create(lanes, team, plan->wgrad_threads, &t->lanes));
    lvni_trainer_lanes_set_low(t->lanes, lvni_trainer_precision_low(t->o.precision));
    lvni_tensor_ctx *own = lvni_tensor_ctx_get();
    if (own == NULL) {
        return LVN_ERR_MEMORY;
    }
    own->team = plan->cores; /* merges and updates run between the micro-batches, on all cores */
    own->wgrad_team = plan->wgrad_threads;
    const int n = lvni_plan_sets(plan);
    t->job = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)lanes, sizeof *t->job);
    t->slot = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)lanes, sizeof *t->slot);
    t->set = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)n, sizeof *t->set);
    t->free_set = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)n, sizeof *t->free_set);
    t->held = lvni_core_calloc(LVNI_TAG_TRAINER,
                               (size_t)(plan->micro_batch_end - plan->micro_batch_begin),
                               sizeof(const lvni_data_loader_batch *));
    if (t->held == NULL || t->job == NULL || t->slot == NULL || t->set == NULL ||
        t->free_set == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(t->o.comm != NULL && plan->devices > 1 ? make_reducer(t, lanes, n) : LVN_OK);
    for (; t->n_sets < n; t->n_sets++) {
        lvni_nn_set **set = &t->set[t->n_sets];
        LVN_TRY(t->gradient_sync != NULL
                    ? lvni_trainer_gradient_sync_make_set(t->gradient_sync, t->n_sets, set)
                    : lvni_nn_set_create(t->o.model, set));
    }
    return LVN_OK;
}

/* As many as a wave has groups, those that other ranks share among them (lvni_plan_wave). */
static lvn_status make_group_syncs(lvni_trainer *t)
{
    const lvni_plan *plan = &t->o.plan;
    const int most = plan->coupled ? plan->lanes / plan->group + 2 : 0;
    t->group_sync =
        lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)most, sizeof(lvni_trainer_group_sync *));
    if (t->group_sync == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (; t->n_group_syncs < most; t->n_group_syncs++) {
        LVN_TRY(lvni_trainer_group_sync_create(plan->group, &t->group_sync[t->n_group_syncs]));
    }
    return plan->coupled && t->o.comm != NULL && lvni_plan_shares_groups(plan)
               ? lvni_dist_group_exchange_create(t->o.comm, &t->exchange)
               : LVN_OK;
}

/* The tape records nothing for frozen parameters; their gradients are zeros. */
static lvn_status make_optim(lvni_trainer *t)
{
    lvni_nn_model *m = t->o.model;
    lvni_optim_parameter *p;
    LVN_TRY(lvni_trainer_parameters(m, &t->o.rules, &p));
    lvni_trainer_phases_assign(m, p);
    t->n_phases = lvni_trainer_phases_count(m);
    const lvn_status s =
        lvni_optim_create(&t->o.optim, m->n_weights, p, m->n_parameters, &t->optim);
    lvni_core_free(p);
    return s;
}

lvn_status lvni_trainer_create(const lvni_trainer_options *options, lvni_trainer **out)
{
    *out = NULL;
    lvni_trainer *t = LVNI_NEW(LVNI_TAG_TRAINER, lvni_trainer);
    if (t == NULL) {
        return LVN_ERR_MEMORY;
    }
    t->o = *options;
    t->start_ns = lvni_core_now_ns();
    t->at = (lvni_ckpt_position){.best_score = (double)NAN, .best_step = -1};
    t->saved_step = -1;
    lvni_trainer_scaler_init(&t->scaler, options->precision);
    if (options->precision == LVNI_PRECISION_BF16_TRUE) {
        lvni_kernels_flat_round_bf16(options->model->weights, options->model->n_weights);
        lvni_nn_model_touch(options->model);
    }
    t->data_identity = lvni_trainer_identity_of_data(options->train);
    lvn_status s = make_lanes_and_sets(t);
    if (s == LVN_OK) {
        s = make_group_syncs(t);
    }
    if (s == LVN_OK) {
        s = make_optim(t);
    }
    if (s == LVN_OK) {
        s = lvni_trainer_unused_watch(t);
    }
    if (s == LVN_OK && options->ema.decay > 0.0) {
        s = lvni_optim_ema_create(&options->ema, options->model->weights, options->model->n_values,
                                  &t->ema);
    }
    if (s != LVN_OK) {
        lvni_trainer_destroy(t);
        return s;
    }
    *out = t;
    return LVN_OK;
}

void lvni_trainer_show_average(const lvni_trainer *t, bool average)
{
    if (t->ema != NULL && t->o.use_ema) {
        lvni_nn_model_show(t->o.model, average ? t->ema->value : NULL);
    }
}

void lvni_trainer_destroy(lvni_trainer *t)
{
    if (t == NULL) {
        return;
    }
    lvni_trainer_saver_destroy(t->saver); /* first: it reads model and optimizer */
    lvni_trainer_report_close(t);
    lvni_data_loader_destroy(t->loader);
    lvni_data_loader_destroy(t->val_loader);
    lvni_trainer_lanes_destroy(t->lanes);
    for (int i = 0; i < t->n_group_syncs; i++) {
        lvni_trainer_group_sync_destroy(t->group_sync[i]);
    }
    lvni_core_free(t->group_sync);
    lvni_dist_group_exchange_destroy(t->exchange);
    lvni_optim_destroy(t->optim);
    lvni_optim_ema_destroy(t->ema);
    for (int i = 0; i < t->n_sets; i++) {
        lvni_nn_set_destroy(t->set[i]);
    }
    lvni_trainer_gradient_sync_destroy(t->gradient_sync);
    lvni_trainer_message_free(&t->message);
    lvni_core_free(t->leaf);
    lvni_core_free(t->micro_batch_weight);
    lvni_core_free(t->graded);
    lvni_core_free(t->used);
    lvni_core_free(t->set);
    lvni_core_free(t->free_set);
    lvni_core_free(t->slot);
    lvni_core_free(t->job);
    lvni_core_free((void *)t->held);
    lvni_core_free(t);
}

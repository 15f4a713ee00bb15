/* Making and taking apart a trainer (trainer.h). */
#include "trainer/loop_impl.h"

#include "core/alloc.h"
#include "core/clock.h"
#include "kernels/flat.h"
#include "trainer/identity.h"
#include "trainer/phases.h"

#include <math.h>

/* What several ranks need beside their sets. */
static lvn_status make_reducer(lvni_trainer *t, int lanes, int sets)
{
    const lvni_plan *plan = &t->o.plan;
    /* shards of a rank: the first has no fewer than any other */
    const int64_t most = lvni_plan_shards_of(plan, 0).count;
    const lvni_reducer_options o = {.comm = t->o.comm,
                                    .model = t->o.model,
                                    .shards = plan->shards,
                                    .sets = sets,
                                    .lanes = lanes,
                                    .bucket_bytes = t->o.bucket_bytes,
                                    .message = lvni_message_limit(most) +
                                               (size_t)t->o.model->n_parameters};
    t->leaf =
        lvni_calloc(LVNI_TAG_TRAINER, (size_t)LVNI_TREE_PENDING + (size_t)lanes, sizeof *t->leaf);
    t->shard_weight = lvni_calloc(LVNI_TAG_TRAINER, (size_t)plan->shards, sizeof *t->shard_weight);
    if (t->leaf == NULL || t->shard_weight == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(lvni_message_create(&t->said, most));
    return lvni_reducer_create(&o, &t->reducer);
}

static lvn_status make_lanes_and_sets(lvni_trainer *t)
{
    const lvni_plan *plan = &t->o.plan;
    const int lanes = plan->lanes, team = plan->cores / lanes > 1 ? plan->cores / lanes : 1;
    LVN_TRY(lvni_lanes_create(lanes, team, plan->wgrad_threads, &t->lanes));
    lvni_lanes_set_low(t->lanes, lvni_precision_low(t->o.precision));
    lvni_ctx *own = lvni_ctx_get();
    if (own == NULL) {
        return LVN_ERR_MEMORY;
    }
    own->team = plan->cores; /* merges and updates run between the shards, on all cores */
    own->wgrad_team = plan->wgrad_threads;
    const int n = lvni_plan_sets(plan);
    t->job = lvni_calloc(LVNI_TAG_TRAINER, (size_t)lanes, sizeof *t->job);
    t->slot = lvni_calloc(LVNI_TAG_TRAINER, (size_t)lanes, sizeof *t->slot);
    t->set = lvni_calloc(LVNI_TAG_TRAINER, (size_t)n, sizeof *t->set);
    t->free_set = lvni_calloc(LVNI_TAG_TRAINER, (size_t)n, sizeof *t->free_set);
    t->held = lvni_calloc(LVNI_TAG_TRAINER, (size_t)(plan->shard_end - plan->shard_begin),
                          sizeof(const lvni_loader_batch *));
    if (t->held == NULL || t->job == NULL || t->slot == NULL || t->set == NULL ||
        t->free_set == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(t->o.comm != NULL && plan->devices > 1 ? make_reducer(t, lanes, n) : LVN_OK);
    for (; t->n_sets < n; t->n_sets++) {
        lvni_set **set = &t->set[t->n_sets];
        LVN_TRY(t->reducer != NULL ? lvni_reducer_make_set(t->reducer, t->n_sets, set)
                                   : lvni_set_create(t->o.model, set));
    }
    return LVN_OK;
}

/* As many as a wave has groups, those that other ranks share among them (lvni_plan_wave). */
static lvn_status make_meetings(lvni_trainer *t)
{
    const lvni_plan *plan = &t->o.plan;
    const int most = plan->coupled ? plan->lanes / plan->group + 2 : 0;
    t->meeting = lvni_calloc(LVNI_TAG_TRAINER, (size_t)most, sizeof(lvni_meeting *));
    if (t->meeting == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (; t->n_meetings < most; t->n_meetings++) {
        LVN_TRY(lvni_meeting_create(plan->group, &t->meeting[t->n_meetings]));
    }
    return plan->coupled && t->o.comm != NULL && lvni_plan_shares_groups(plan)
               ? lvni_among_create(t->o.comm, &t->among)
               : LVN_OK;
}

/* The tape records nothing for frozen parameters; their gradients are zeros. */
static lvn_status make_optim(lvni_trainer *t)
{
    lvni_model *m = t->o.model;
    lvni_optim_parameter *p;
    LVN_TRY(lvni_trainer_parameters(m, &t->o.rules, &p));
    lvni_phases_assign(m, p);
    t->n_phases = lvni_phases_count(m);
    const lvn_status s =
        lvni_optim_create(&t->o.optim, m->n_weights, p, m->n_parameters, &t->optim);
    lvni_free(p);
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
    t->start_ns = lvni_now_ns();
    t->at = (lvni_ckpt_position){.best_score = (double)NAN, .best_step = -1};
    t->saved_step = -1;
    lvni_scaler_init(&t->scaler, options->precision);
    if (options->precision == LVNI_PRECISION_BF16_TRUE) {
        lvni_flat_round_bf16(options->model->weights, options->model->n_weights);
        lvni_model_touch(options->model);
    }
    t->data_identity = lvni_identity_of_data(options->train);
    lvn_status s = make_lanes_and_sets(t);
    if (s == LVN_OK) {
        s = make_meetings(t);
    }
    if (s == LVN_OK) {
        s = make_optim(t);
    }
    s = s == LVN_OK ? lvni_unused_watch(t) : s;
    if (s == LVN_OK && options->ema.decay > 0.0) {
        s = lvni_ema_create(&options->ema, options->model->weights, options->model->n_values,
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
        lvni_model_show(t->o.model, average ? t->ema->value : NULL);
    }
}

void lvni_trainer_destroy(lvni_trainer *t)
{
    if (t == NULL) {
        return;
    }
    lvni_saver_destroy(t->saver); /* first: it reads model and optimizer */
    lvni_report_close(t);
    lvni_loader_destroy(t->loader);
    lvni_loader_destroy(t->val_loader);
    lvni_lanes_destroy(t->lanes);
    for (int i = 0; i < t->n_meetings; i++) {
        lvni_meeting_destroy(t->meeting[i]);
    }
    lvni_free(t->meeting);
    lvni_among_destroy(t->among);
    lvni_optim_destroy(t->optim);
    lvni_ema_destroy(t->ema);
    for (int i = 0; i < t->n_sets; i++) {
        lvni_set_destroy(t->set[i]);
    }
    lvni_reducer_destroy(t->reducer);
    lvni_message_free(&t->said);
    lvni_free(t->leaf);
    lvni_free(t->shard_weight);
    lvni_free(t->graded);
    lvni_free(t->used);
    lvni_free(t->set);
    lvni_free(t->free_set);
    lvni_free(t->slot);
    lvni_free(t->job);
    lvni_free((void *)t->held);
    lvni_free(t);
}

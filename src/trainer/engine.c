/* Making and taking apart the step engine (engine.h). */
#include "trainer/engine.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "kernels/flat.h"
#include "log/run_log.h"
#include "tensor/device.h"
#include "trainer/phases.h"
#include "trainer/stages.h"

#include <string.h>

/* Of the module that made it: the one with the longest path in front of its name. */
static bool is_of_norm(const lvni_nn_model *m, const char *name)
{
    const lvn_module *owner = m->root;
    size_t longest = 0;
    for (int i = 0; i < m->n_modules; i++) {
        const size_t n = strlen(m->modules[i]->path);
        if (n > longest && strncmp(name, m->modules[i]->path, n) == 0 && name[n] == '.') {
            owner = m->modules[i];
            longest = n;
        }
    }
    return lvni_nn_is_norm(owner->cls);
}

lvn_status lvni_trainer_parameters(const lvni_nn_model *m, const lvni_optim_rules *rules,
                                   lvni_optim_parameter **out)
{
    *out = NULL;
    lvni_optim_parameter *p =
        lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)m->n_parameters, sizeof *p);
    if (p == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < m->n_parameters; i++) {
        const lvn_tensor *t = m->parameters[i].tensor;
        /* PyTorch's last two axes: of images here (O, H, W, I), there (O, I, H, W); what else
         * differs transposes or permutes matrices */
        const bool images = m->parameters[i].layout == LVNI_LAYOUT_CONV && t->ndim == 4;
        p[i] = (lvni_optim_parameter){.name = m->parameters[i].name,
                                      .begin = m->offset[i],
                                      .n = m->parameters[i].numel,
                                      .ndim = t->ndim,
                                      .norm = is_of_norm(m, m->parameters[i].name),
                                      .row_axis = t->ndim - (images ? 3 : 2)};
        memcpy(p[i].shape, t->shape, sizeof p[i].shape);
    }
    int block = 0; /* those without parameters, of a module that follows, do not count */
    for (int i = 0; i < m->n_blocks; i++) {
        const int end = i + 1 < m->n_blocks ? m->blocks[i + 1].first : m->n_parameters;
        for (int k = m->blocks[i].first; k < end; k++) {
            p[k].block = block;
        }
        block += end > m->blocks[i].first ? 1 : 0;
    }
    lvn_status s = lvni_optim_rules_apply(rules, p, m->n_parameters);
    if (s == LVN_OK) {
        s = lvni_optim_phases_apply(m->root->cls->phases, p, m->n_parameters);
    }
    if (s != LVN_OK) {
        lvni_core_free(p);
        return s;
    }
    *out = p;
    return LVN_OK;
}

/* 16-mixed judges whole steps, and a device's loss is read after the update. */
static lvn_status check_bad_batch(const lvni_trainer_engine_options *o)
{
    if (o->on_bad_batch == LVNI_BAD_BATCH_STOP ||
        (o->precision != LVNI_PRECISION_16_MIXED && !lvni_trainer_deferred_possible())) {
        return LVN_OK;
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "on_bad_batch=%s works on the CPU with a precision other than 16-mixed "
             "alone: leave it out",
             o->on_bad_batch == LVNI_BAD_BATCH_SKIP ? "skip" : "zero");
}

lvn_status lvni_trainer_engine_check(const lvni_trainer_engine_options *o)
{
    LVN_TRY(check_bad_batch(o));
    LVN_TRY(lvni_trainer_stages_check(o));
    return lvni_trainer_graph_check(o);
}

static lvn_status make_gradient_sync(lvni_trainer_engine *e)
{
    const lvni_plan *plan = &e->o.plan;
    const int64_t most = lvni_plan_most_micro_batches(plan); /* of a rank */
    const bool shared = plan->devices > 1 && !plan->staged;  /* a stage adds alone */
    if (lvni_trainer_deferred_possible() && !plan->staged) {
        LVN_TRY(lvni_trainer_deferred_create(e, &e->deferred));
    }
    const lvni_trainer_gradient_sync_options o = {
        .comm = shared ? e->o.comm : NULL,
        .model = e->o.model,
        .micro_batches = plan->micro_batches,
        .begin = plan->micro_batch_begin,
        .end = plan->micro_batch_end,
        .sets = lvni_plan_sets(plan),
        .lanes = plan->lanes,
        .bucket_bytes = e->o.bucket_bytes,
        .parts = e->o.sharded_stage == 2,
        .message = lvni_trainer_message_limit(most) + (size_t)e->o.model->n_parameters +
                   (size_t)most * 2 * sizeof(double),
        .marks = lvni_trainer_message_limit(0) + (size_t)most * sizeof(lvni_trainer_message_part) +
                 (size_t)e->o.model->n_parameters,
        .sums = e->deferred != NULL ? e->deferred->sums : NULL,
        .deferred = shared ? e->deferred : NULL};
    e->micro_batch_weight = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)plan->micro_batches,
                                             sizeof *e->micro_batch_weight);
    if (e->micro_batch_weight == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(lvni_trainer_message_create(&e->message, most));
    return lvni_trainer_gradient_sync_create(&o, &e->gradient_sync);
}

static lvn_status make_lanes(lvni_trainer_engine *e)
{
    const lvni_plan *plan = &e->o.plan;
    const int lanes = plan->lanes, at_once = plan->staged ? 1 : lanes,
              team = plan->cores / at_once > 1 ? plan->cores / at_once : 1;
    LVN_TRY(lvni_trainer_lanes_create(lanes, team, &plan->pins, &e->lanes));
    lvni_trainer_lanes_set_low(e->lanes, lvni_trainer_precision_low(e->o.precision));
    lvni_tensor_ctx *own = lvni_tensor_ctx_get();
    if (own == NULL) {
        return LVN_ERR_MEMORY;
    }
    own->team = plan->cores; /* merges and updates run between the micro-batches, on all cores */
    own->pins = plan->pins;
    e->job = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)lanes, sizeof *e->job);
    e->held = lvni_core_calloc(LVNI_TAG_TRAINER,
                               (size_t)(plan->micro_batch_end - plan->micro_batch_begin),
                               sizeof(const lvni_data_loader_batch *));
    e->slot = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)lanes, sizeof *e->slot);
    LVN_TRY(own->device == NULL ? LVN_OK
                                : lvni_trainer_prefetch_create(
                                      own->device, lvni_data_loader_copied(plan), &e->prefetch));
    return e->job == NULL || e->held == NULL || e->slot == NULL ? LVN_ERR_MEMORY
                                                                : make_gradient_sync(e);
}

/* As many as a wave has groups, those that other ranks share among them (lvni_plan_wave). */
static lvn_status make_group_syncs(lvni_trainer_engine *e)
{
    const lvni_plan *plan = &e->o.plan;
    const int most = plan->coupled ? plan->lanes / plan->group + 2 : 0;
    e->group_sync =
        lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)most, sizeof(lvni_trainer_group_sync *));
    if (e->group_sync == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (; e->n_group_syncs < most; e->n_group_syncs++) {
        LVN_TRY(lvni_trainer_group_sync_create(plan->group, &e->group_sync[e->n_group_syncs]));
    }
    if (!plan->coupled || e->o.comm == NULL || !lvni_plan_shares_groups(plan)) {
        return LVN_OK;
    }
    const lvni_plan_range first =
                              lvni_plan_ranks_of_group(plan, plan->micro_batch_begin / plan->group),
                          last = lvni_plan_ranks_of_group(plan, (plan->micro_batch_end - 1) /
                                                                    plan->group);
    return lvni_dist_group_exchange_create(e->o.comm, (int)first.start,
                                           (int)(last.start + last.count), &e->exchange);
}

void lvni_trainer_optim_of_phases(const lvni_optim_options *run,
                                  const lvni_trainer_phase_options phase[LVNI_PHASES],
                                  lvni_optim_options out[LVNI_PHASES])
{
    for (int i = 0; i < LVNI_PHASES; i++) {
        out[i] = phase[i].has_optim ? phase[i].optim : *run;
        out[i].weight_decay = run->weight_decay;
    }
}

/* Of parameters that freeze_until= or lr_zero_until= would train, and that stay as they are. */
static void report_frozen(const lvni_trainer_engine_options *o, const lvni_optim_parameter *p)
{
    const int64_t end = o->schedule.total_steps;
    const char *both = NULL, *deferred = NULL, *held = NULL;
    for (int i = o->model->n_parameters - 1; i >= 0; i--) {
        both = p[i].thaw > 0 && p[i].frozen ? p[i].name : both;
        deferred = p[i].thaw > 0 && !p[i].frozen && p[i].thaw >= end ? p[i].name : deferred;
        held = p[i].hold.until > 0 && !p[i].frozen && p[i].hold.until >= end ? p[i].name : held;
    }
    if (both != NULL) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "freeze= and freeze_until= both name %s, which stays frozen to the end",
                      both);
    }
    if (deferred != NULL) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "freeze_until=: %s stays frozen in all of the run's %lld step%s", deferred,
                      (long long)end, lvni_core_plural(end, "", "s"));
    }
    if (held != NULL) {
        lvni_log_line(LVNI_LOG_WARNING, "%s: %s has the rate 0 in all of the run's %lld step%s",
                      o->rules.held_by != NULL ? o->rules.held_by : "lr_zero_until", held,
                      (long long)end, lvni_core_plural(end, "", "s"));
    }
}

lvn_status lvni_trainer_sharded_check(int stage, bool on_device)
{
    if (stage > 0 && on_device) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "strategy=sharded: the optimizer's parts are updated on the CPU so far; use "
                 "accelerator=cpu or strategy=ddp");
    }
    return LVN_OK;
}

/* The tape records nothing for frozen parameters; their gradients are zeros. */
static lvn_status make_optim(lvni_trainer_engine *e)
{
    lvni_nn_model *m = e->o.model;
    lvni_optim_parameter *p;
    LVN_TRY(lvni_trainer_parameters(m, &e->o.rules, &p));
    if (e->o.plan.rank == 0) {
        report_frozen(&e->o, p);
    }
    lvni_trainer_phases_assign(m, p);
    e->n_phases = lvni_trainer_phases_count(m);
    lvni_optim_options optim[LVNI_PHASES];
    lvni_trainer_optim_of_phases(&e->o.optim, e->o.phase, optim);
    const lvni_optim_range own =
        lvni_trainer_sharded_part(m->n_weights, e->o.plan.devices, e->o.plan.rank);
    const bool sharded = e->o.sharded_stage > 0;
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_trainer_sharded_check(e->o.sharded_stage,
                                                lvni_tensor_device_of(m->weights) != NULL));
    LVNI_TRY_DONE(s, lvni_optim_create_phases(optim, m->n_weights, sharded ? &own : NULL, p,
                                              m->n_parameters, &e->optim));
    if (sharded) {
        s = lvni_trainer_sharded_create(e->o.comm, m->n_weights, &e->sharded);
    }
done:
    lvni_core_free(p);
    return s;
}

static lvn_status make_all(lvni_trainer_engine *e)
{
    lvni_nn_model_lay_records(e->o.model, e->o.plan.micro_batches,
                              lvni_plan_largest_micro_batch(&e->o.plan));
    LVN_TRY(lvni_trainer_numbers_check(e));
    LVN_TRY(make_lanes(e));
    LVN_TRY(make_group_syncs(e));
    LVN_TRY(make_optim(e));
    LVN_TRY(e->deferred != NULL ? lvni_trainer_deferred_make_steps(e->deferred, e) : LVN_OK);
    LVN_TRY(lvni_trainer_unused_begin(e));
    const lvni_nn_model *m = e->o.model;
    if (e->o.ema.decay > 0.0) {
        LVN_TRY(lvni_optim_ema_create(&e->o.ema, m->weights, m->n_values, &e->ema));
        e->ema->averaged = m->n_averaged;
    }
    LVN_TRY(e->o.plan.staged ? lvni_trainer_stages_create(e, &e->stages) : LVN_OK);
    return lvni_trainer_graph_create(e, &e->graph);
}

lvn_status lvni_trainer_engine_create(const lvni_trainer_engine_options *options,
                                      lvni_trainer_engine **out)
{
    *out = NULL;
    LVN_TRY(lvni_trainer_engine_check(options));
    lvni_trainer_engine *e = LVNI_NEW(LVNI_TAG_TRAINER, lvni_trainer_engine);
    if (e == NULL) {
        return LVN_ERR_MEMORY;
    }
    e->o = *options;
    e->o.sharded_stage = options->plan.devices > 1 ? options->sharded_stage : 0;
    lvni_trainer_scaler_init(&e->scaler, options->precision);
    lvni_optim_plateau_begin(&e->plateau);
    e->now = (lvni_trainer_pass){.model = options->model,
                                 .comm = options->comm,
                                 .seed = options->seed,
                                 .scaled = e->scaler.on,
                                 .detect_anomaly = options->detect_anomaly,
                                 .on_bad_batch = options->on_bad_batch};
    if (options->precision == LVNI_PRECISION_BF16_TRUE) {
        lvni_kernels_flat_round_bf16(options->model->weights, options->model->n_weights);
        lvni_nn_model_touch(options->model);
    }
    const lvn_status s = make_all(e);
    if (s != LVN_OK) {
        lvni_trainer_engine_destroy(e);
        return s;
    }
    *out = e;
    return LVN_OK;
}

void lvni_trainer_engine_destroy(lvni_trainer_engine *e)
{
    if (e == NULL) {
        return;
    }
    lvni_trainer_graph_destroy(e->graph); /* first: it has streams of the lanes */
    lvni_trainer_lanes_destroy(e->lanes);
    lvni_trainer_stages_destroy(e->stages);
    lvni_trainer_prefetch_destroy(e->prefetch);
    lvni_tensor_ctx *own = lvni_tensor_ctx_get();
    if (own != NULL) {
        own->pins.entries = NULL; /* which may go before the thread does */
    }
    for (int i = 0; i < e->n_group_syncs; i++) {
        lvni_trainer_group_sync_destroy(e->group_sync[i]);
    }
    lvni_core_free(e->group_sync);
    lvni_dist_group_exchange_destroy(e->exchange);
    lvni_optim_destroy(e->optim);
    lvni_trainer_sharded_destroy(e->sharded);
    lvni_optim_ema_destroy(e->ema);
    lvni_trainer_gradient_sync_destroy(e->gradient_sync);
    lvni_trainer_deferred_destroy(e->deferred);
    lvni_trainer_message_free(&e->message);
    lvni_core_free(e->micro_batch_weight);
    lvni_core_free(e->graded);
    lvni_core_free(e->used);
    lvni_core_free(e->slot);
    lvni_core_free(e->job);
    lvni_core_free((void *)e->held);
    lvni_core_free(e);
}

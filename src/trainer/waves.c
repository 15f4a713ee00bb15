/* The micro-batches of a step (engine.h): computed in waves, one per lane; their gradients and what
 * they report are added in the order of their numbers, and not in that of arrival, with those of
 * other ranks (gradient_sync.h). Called by the step (step.c). */
#include "core/signals.h"
#include "log/run_log.h"
#include "trainer/engine.h"
#include "trainer/phases.h"
#include "trainer/profile.h"
#include "trainer/stages.h"
#include "trainer/trainer.h"
#include "trainer/left_out.h"

#include <string.h>

/* ---- load ---- */

void lvni_trainer_waves_begin(lvni_trainer_engine *e)
{
    lvni_trainer_gradient_sync_begin(e->gradient_sync);
    if (e->deferred != NULL) {
        e->deferred->phase = e->now.phase;
    }
    lvni_trainer_message_begin(&e->message);
}

int64_t lvni_trainer_engine_noted(const lvni_trainer_engine *e)
{
    const lvni_data_unreadable *u = lvni_data_loader_unreadable(e->loader);
    return u == NULL ? 0 : lvni_data_unreadable_noted(u);
}

/* *held: the loader's, until the wave is done with it. */
static lvn_status next_batch(lvni_trainer_engine *e, const lvni_data_loader_batch **held,
                             const lvni_data_loader_batch **batch,
                             const lvni_data_loader_batch **on_device)
{
    if (lvni_trainer_graph_loaded(e->graph)) {
        lvni_trainer_graph_batch(e->graph, held - e->held, batch, on_device);
        return LVN_OK;
    }
    if (e->prefetch != NULL) {
        LVN_TRY(lvni_trainer_prefetch_next(e->prefetch, e->loader, held, on_device));
    } else {
        LVN_TRY(*held == NULL ? lvni_data_loader_next(e->loader, held) : LVN_OK);
    }
    if (*held == NULL) {
        LVN_FAIL(LVN_ERR_INTERNAL, "the loader ended before step %lld", (long long)e->now.step);
    }
    *batch = *held;
    return LVN_OK;
}

lvn_status lvni_trainer_wave_load_at(lvni_trainer_engine *e, int micro_batch, int lane)
{
    const lvni_data_loader_batch **held = &e->held[micro_batch - e->o.plan.micro_batch_begin];
    const lvni_data_loader_batch *batch, *on_device = NULL;
    lvni_dist_comm_at(e->o.comm, LVNI_PLACE_DATA, e->now.step);
    lvni_trainer_profile_at(LVNI_PART_DATA);
    LVN_TRY(next_batch(e, held, &batch, &on_device));
    const bool runs = batch->batch.size > 0;
    e->slot[lane] = runs ? lvni_trainer_gradient_sync_take(e->gradient_sync) : LVNI_TREE_EMPTY;
    if (runs && e->slot[lane] == LVNI_TREE_EMPTY) {
        LVN_FAIL(LVN_ERR_INTERNAL, "no gradient set is free at micro-batch %d of step %lld",
                 micro_batch, (long long)e->now.step);
    }
    e->job[lane] = (lvni_trainer_micro_batch_job){
        .batch = batch,
        .on_device = on_device,
        .set = runs ? lvni_trainer_gradient_sync_set(e->gradient_sync, e->slot[lane]) : NULL};
    if (runs && e->deferred != NULL) {
        e->job[lane].loss = lvni_trainer_deferred_loss(e->deferred, e->now.phase, micro_batch);
        e->job[lane].terms = lvni_trainer_deferred_terms(e->deferred, e->now.phase, micro_batch);
    }
    return LVN_OK;
}

lvn_status lvni_trainer_wave_load(lvni_trainer_engine *e, int micro_batch, int n)
{
    for (int i = 0; i < n; i++) {
        LVN_TRY(lvni_trainer_wave_load_at(e, micro_batch + i, i));
    }
    return LVN_OK;
}

/* The batches of the next wave, as far as they are ready, on their way to the device before the
 * kernels of this one, which leave the room for the others: its first batch is micro-batch `next`.
 */
static lvn_status load_ahead(lvni_trainer_engine *e, int64_t next)
{
    const lvni_plan *plan = &e->o.plan;
    const bool new_step = next == plan->micro_batch_end && lvni_trainer_in_last_phase(e);
    if (new_step && !e->more_steps) {
        return LVN_OK;
    }
    next = next == plan->micro_batch_end ? plan->micro_batch_begin : next;
    const int64_t n = lvni_plan_wave(plan, (int)next).count;
    const int64_t first = next - plan->micro_batch_begin;
    for (int64_t i = 0; i < n; i++) {
        bool begun;
        LVN_TRY(
            lvni_trainer_prefetch_ahead(e->prefetch, new_step ? NULL : e->held[first + i], &begun));
        if (!begun) {
            return lvni_trainer_prefetch_reserve(e->prefetch, (int)(n - i));
        }
    }
    return LVN_OK;
}

lvn_status lvni_trainer_wave_ahead(lvni_trainer_engine *e)
{
    e->now.phase = e->n_phases - 1;
    return load_ahead(e, e->o.plan.micro_batch_end);
}

/* The kernels of the wave are submitted. */
static void end_use(lvni_trainer_engine *e, int n)
{
    const bool last = lvni_trainer_in_last_phase(e);
    lvni_trainer_prefetch_done(e->prefetch, n, last);
    for (int i = 0; i < n && last; i++) {
        e->held[e->job[i].batch->micro_batch - e->o.plan.micro_batch_begin] = NULL;
    }
}

void lvni_trainer_wave_release(lvni_trainer_engine *e, int micro_batch, int n)
{
    for (int i = 0; i < n; i++) {
        const lvni_data_loader_batch **held =
            &e->held[micro_batch - e->o.plan.micro_batch_begin + i];
        lvni_data_loader_release(e->loader, *held);
        *held = NULL;
    }
}

/* ---- forward and backward ---- */

/* Coupled micro-batches: every group of the wave gets its group sync, in which its micro-batches
 * with samples take part. */
static void open_group_syncs(const lvni_trainer_engine *e, int n)
{
    const int64_t size = e->o.plan.group, first = e->job[0].batch->micro_batch / size,
                  last = e->job[n - 1].batch->micro_batch / size;
    for (int i = 0; i < e->n_group_syncs; i++) {
        const lvni_plan_range on = lvni_plan_ranks_of_group(&e->o.plan, (int)first + i);
        const lvni_trainer_group_sync_ranks ranks = {
            on.count > 1 && first + i <= last ? e->exchange : NULL, (int)on.start,
            (int)(on.start + on.count), e->o.plan.rank};
        lvni_trainer_group_sync_open(e->group_sync[i], &ranks);
    }
    for (int i = 0; i < n && e->n_group_syncs > 0; i++) {
        lvni_trainer_micro_batch_job *job = &e->job[i];
        if (job->batch->batch.size > 0) {
            job->group_sync = e->group_sync[job->batch->micro_batch / size - first];
            lvni_trainer_group_sync_expect(job->group_sync, (int)(job->batch->micro_batch % size));
        }
    }
}

/* Other ranks' micro-batches of a group may still sync when those of this rank have ended, or had
 * no samples. */
static lvn_status close_group_syncs(const lvni_trainer_engine *e)
{
    for (int i = 0; i < e->n_group_syncs; i++) {
        LVN_TRY(lvni_trainer_group_sync_close(e->group_sync[i]));
    }
    return LVN_OK;
}

/* What the wave failed with: a micro-batch that waited for others failed with theirs. */
static lvn_status first_failure(const lvni_trainer_engine *e, lvn_status s)
{
    for (int i = 0; i < e->n_group_syncs && s != LVN_OK; i++) {
        const lvn_status first = lvni_trainer_group_sync_status(e->group_sync[i]);
        if (first != LVN_OK) {
            return first;
        }
    }
    return s;
}

static lvn_status micro_batch_work(void *user, int lane)
{
    const lvni_trainer_engine *e = user;
    lvni_trainer_micro_batch_job *job = &e->job[lane];
    if (job->batch->batch.size == 0) {
        return LVN_OK;
    }
    const int index = (int)(job->batch->micro_batch % e->o.plan.group); /* in its group */
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    lvni_trainer_gradient_sync_watch(e->gradient_sync, lane, job->set);
    ctx->group =
        job->group_sync == NULL ? NULL : lvni_trainer_group_sync_group(job->group_sync, index);
    const lvn_status s = lvni_trainer_run_micro_batch(&e->now, job);
    ctx->group = NULL;
    if (s != LVN_OK) {
        const char *phase = lvni_trainer_phases_name(e->o.model, e->now.phase);
        lvn_error_frame("step %lld, %s%smicro-batch %lld", (long long)e->now.step, phase,
                        phase[0] != '\0' ? ", " : "", (long long)job->batch->micro_batch);
    } else {
        lvni_trainer_gradient_sync_micro_batch_done(e->gradient_sync, lane);
    }
    if (job->group_sync != NULL) {
        lvni_trainer_group_sync_leave(job->group_sync, index, s);
    }
    return s;
}

lvn_status lvni_trainer_wave_run(lvni_trainer_engine *e, int n)
{
    lvni_trainer_profile_at(e->prefetch != NULL ? LVNI_PART_COPY : LVNI_PART_DATA);
    LVN_TRY(e->exchange == NULL ? LVN_OK : lvni_trainer_gradient_sync_rest(e->gradient_sync));
    LVN_TRY(lvni_trainer_gradient_sync_wave(e->gradient_sync, e->slot, n));
    const bool feeds = e->prefetch != NULL && !lvni_trainer_graph_loaded(e->graph);
    LVN_TRY(feeds ? load_ahead(e, e->job[0].batch->micro_batch + n) : LVN_OK);
    open_group_syncs(e, n);
    LVN_TRY(first_failure(e, lvni_trainer_lanes_run(e->lanes, n, micro_batch_work, e)));
    if (feeds) {
        end_use(e, n);
    }
    return close_group_syncs(e);
}

/* ---- merge ---- */

static lvn_status merge(lvni_trainer_engine *e, int lane)
{
    const lvni_trainer_micro_batch_job *job = &e->job[lane];
    /* with staged sets metrics follow when the device has them (deferred_ranks.c) */
    const bool weight_only = e->deferred != NULL && e->o.plan.devices > 1;
    LVN_TRY(
        weight_only
            ? lvni_trainer_message_add_weight(&e->message, job->step.weight, job->batch->batch.size)
            : lvni_trainer_message_add(&e->message, &job->step, job->batch->batch.size));
    if (job->set != NULL) {
        lvni_trainer_unused_record(e, job->set);
    }
    if (job->set != NULL && e->deferred != NULL) {
        lvni_trainer_deferred_note(e->deferred, e->now.phase, job->batch->micro_batch, &job->step);
    }
    lvni_trainer_gradient_sync_leaf(e->gradient_sync, e->slot[lane]);
    return LVN_OK;
}

lvn_status lvni_trainer_wave_merge_at(lvni_trainer_engine *e, int lane)
{
    lvni_trainer_profile_at(LVNI_PART_MERGE);
    if (e->prefetch != NULL) {
        lvni_trainer_prefetch_done(e->prefetch, 1, true);
        e->held[e->job[lane].batch->micro_batch - e->o.plan.micro_batch_begin] = NULL;
    }
    return merge(e, lane);
}

lvn_status lvni_trainer_wave_merge(lvni_trainer_engine *e, int n)
{
    lvni_trainer_profile_at(LVNI_PART_MERGE);
    for (int i = 0; i < n; i++) {
        LVN_TRY(merge(e, i));
    }
    return LVN_OK;
}

/* ---- reduce ---- */

/* Sums over all micro-batches of all ranks, in the order of micro-batches. */
typedef struct all_micro_batches {
    const lvni_trainer_engine *engine;
    lvni_nn_step *metrics;
    int64_t samples;
    int next, rank;
} all_micro_batches;

static void report_bad(const all_micro_batches *all, const lvni_nn_step *metrics)
{
    if (metrics->n_metrics == 1 && strcmp(metrics->metric[0].name, LVNI_METRIC_BAD) == 0) {
        const lvni_trainer_pass *now = &all->engine->now;
        lvni_log_line(LVNI_LOG_WARNING,
                      "the loss is not finite at step %lld (epoch %lld), micro-batch %d (rank %d): "
                      "%s (on_bad_batch)",
                      (long long)now->step, (long long)now->epoch + 1, all->next, all->rank,
                      now->on_bad_batch == LVNI_BAD_BATCH_SKIP ? "its samples are left out"
                                                               : "its gradient is zeros");
    }
}

static lvn_status add_micro_batch(void *user, const lvni_trainer_message_part *part,
                                  const lvni_nn_step *metrics)
{
    all_micro_batches *all = user;
    report_bad(all, metrics);
    LVN_TRY(lvni_nn_metrics_add(all->metrics, metrics));
    all->samples += part->samples;
    if (all->next < all->engine->o.plan.micro_batches) {
        all->engine->micro_batch_weight[all->next++] = part->weight;
    }
    return LVN_OK;
}

/* The weight of a node of the tree, as merging its sets would add it. NAN: a device has one of
 * them. */
static double tree_weight(const double *weight, int64_t n)
{
    const int64_t left = n > 1 ? lvni_plan_tree_split(n) : 0;
    return n == 1 ? weight[0] : tree_weight(weight, left) + tree_weight(weight + left, n - left);
}

static lvn_status write_message(lvni_trainer_engine *e)
{
    lvni_trainer_message_head *mine = (void *)e->message.data;
    mine->signal = e->o.signal_in_message ? lvni_trainer_stop_signal() : 0;
    const bool asks = e->sharded != NULL && e->o.plan.rank == 0;
    mine->save = asks && (lvni_core_signals_take_save() || e->save_due) ? 1 : 0;
    mine->validate = e->o.plan.rank == 0 && e->validation_due ? 1 : 0;
    mine->n_unreadable = lvni_trainer_engine_noted(e);
    return lvni_trainer_message_add_marks(&e->message, e->graded, e->o.model->n_parameters);
}

/* Some rank has noted some: all learn which, and how many they are by now. */
static lvn_status settle_unreadable(const lvni_trainer_engine *e)
{
    const bool shared = e->o.plan.devices > 1 && !e->o.plan.staged; /* stages read the same */
    LVN_TRY(shared ? lvni_trainer_gradient_sync_rest(e->gradient_sync) : LVN_OK);
    return lvni_trainer_unreadable_settle(lvni_data_loader_unreadable(e->loader),
                                          shared ? e->o.comm : NULL, e->now.step);
}

/* Of a stage without the loss. */
static lvn_status add_nothing(void *user, const lvni_trainer_message_part *part,
                              const lvni_nn_step *metrics)
{
    (void)user;
    (void)part;
    (void)metrics;
    return LVN_OK;
}

static const void *reported(const lvni_trainer_engine *e, int rank, size_t *size)
{
    return e->stages != NULL ? lvni_trainer_stages_reported(e->stages, rank, size)
                             : lvni_trainer_gradient_sync_reported(e->gradient_sync, rank, size);
}

/* What all ranks report of their micro-batches. */
static lvn_status read_messages(lvni_trainer_engine *e, lvni_trainer_step_record *r)
{
    all_micro_batches all = {.engine = e, .metrics = &r->phase[e->now.phase].metrics};
    int64_t unreadable = 0;
    r->signal = 0;
    for (int rank = 0; rank < e->o.plan.devices; rank++) {
        size_t size;
        lvni_trainer_message_head head;
        all.rank = rank;
        const void *message = reported(e, rank, &size);
        const bool counts = e->stages == NULL || rank == e->o.plan.devices - 1;
        LVN_TRY(lvni_trainer_message_read(message, size, &head,
                                          counts ? add_micro_batch : add_nothing, &all));
        LVN_TRY(lvni_trainer_message_read_marks(message, size, &head, e->graded,
                                                e->o.model->n_parameters));
        unreadable += head.n_unreadable;
        r->signal = r->signal != 0 ? r->signal : (int)head.signal;
        r->save = r->save || head.save != 0;
        r->validate = r->validate || head.validate != 0;
    }
    lvni_trainer_stop_record(r->signal);
    r->samples = all.samples;
    return unreadable > 0 ? settle_unreadable(e) : LVN_OK;
}

lvn_status lvni_trainer_waves_reduce(lvni_trainer_engine *e, lvni_trainer_step_record *r,
                                     lvni_nn_set **total)
{
    lvni_dist_comm_at(e->o.comm, LVNI_PLACE_REDUCTION, e->now.step);
    lvni_trainer_profile_at(LVNI_PART_REDUCE);
    LVN_TRY(write_message(e));
    LVN_TRY(lvni_trainer_gradient_sync_finish(e->gradient_sync, e->message.data, e->message.size,
                                              total));
    LVN_TRY(e->stages != NULL ? lvni_trainer_stages_exchange(e, *total) : LVN_OK);
    LVN_TRY(read_messages(e, r));
    if (*total != NULL) {
        (*total)->weight = tree_weight(e->micro_batch_weight, e->o.plan.micro_batches);
    }
    return LVN_OK;
}

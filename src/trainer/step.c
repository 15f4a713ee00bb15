/* One optimizer step, phase after phase, each in the order of time: load the micro-batches (the
 * first phase; the others have the same samples), forward and backward on the lanes, merge
 * gradients in the fixed tree over micro-batch numbers (with other ranks: gradient_sync.h), then
 * update.c. */
#include "core/math.h"
#include "autograd/tape.h"
#include "kernels/flat.h"
#include "tensor/device.h"
#include "trainer/device_batch.h"
#include "trainer/loop_impl.h"
#include "trainer/phases.h"

#include <math.h>
#include <string.h>

lvn_status lvni_trainer_run_micro_batch(const lvni_trainer *t, lvni_trainer_micro_batch_job *job)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const lvni_data_loader_batch *b = job->batch;
    const double samples = (double)b->batch.size;
    ctx->at = (lvni_tensor_position){.seed = t->o.seed,
                                     .step = (uint32_t)t->at.step,
                                     .micro_batch = (uint32_t)b->micro_batch,
                                     .phase = (uint32_t)t->phase,
                                     .call = (uint32_t)t->phase << LVNI_CALL_BITS,
                                     .training = true};
    ctx->gradients = &job->set->gradients;
    ctx->records = job->set;
    lvni_nn_set_begin(job->set, samples);
    job->step = (lvni_nn_step){.now = {.step = t->at.step, .phase = t->phase}, .weight = samples};
    LVN_TRY(lvn_scope_open());
    const lvn_module *root = t->o.model->root;
    void (*const final)(void *user, int parameter) = job->set->gradients.final;
    job->set->gradients.final = NULL; /* a backward pass of the step's own ends no gradient */
    lvn_tensor *loss = root->cls->training_step(root, &b->batch, &job->step.now);
    job->set->gradients.final = final;
    job->set->weight = job->step.weight; /* lvni_nn_step_weigh */
    const double value = lvn_item(loss);
    lvn_status s = LVN_OK;
    if (loss != NULL && lvn_numel(loss) == 1 && !isfinite(value) && !t->scaler.on &&
        !lvni_tensor_device_failed()) {
        /* 16-mixed: an overflow, the step is skipped */
        s = lvn_error_set(
            LVN_ERR_NON_FINITE, __FILE__, __LINE__,
            "the loss is %g at step %lld (epoch %lld), micro-batch %lld: try a smaller "
            "optim.lr or gradient_clip_val=1",
            lvni_core_unsigned_nan(value), (long long)t->at.step, (long long)t->at.epoch + 1,
            (long long)b->micro_batch);
    } else {
        s = lvn_backward_scaled(
            loss,
            job->step.weight * lvni_trainer_loss_factor(
                                   t)); /* the gradient comes out as w_s g_s (times the factor) */
    }
    const lvn_status closed = lvn_scope_close();
    lvni_nn_set_finish(job->set);
    ctx->gradients = NULL;
    ctx->records = NULL;
    return closed != LVN_OK ? closed : s; /* what failed first */
}

/* Coupled micro-batches: every group of the wave gets its group sync, in which its micro-batches
 * with samples take part. */
static void open_group_syncs(const lvni_trainer *t, int n)
{
    const int64_t size = t->o.plan.group, first = t->job[0].batch->micro_batch / size,
                  last = t->job[n - 1].batch->micro_batch / size;
    for (int i = 0; i < t->n_group_syncs; i++) {
        const lvni_plan_range on = lvni_plan_ranks_of_group(&t->o.plan, (int)first + i);
        const lvni_trainer_group_sync_ranks ranks = {
            on.count > 1 && first + i <= last ? t->exchange : NULL, (int)on.start,
            (int)(on.start + on.count), t->o.plan.rank};
        lvni_trainer_group_sync_open(t->group_sync[i], &ranks);
    }
    for (int i = 0; i < n; i++) {
        lvni_trainer_micro_batch_job *job = &t->job[i];
        const bool comes = t->n_group_syncs > 0 && job->batch->batch.size > 0;
        job->group_sync = comes ? t->group_sync[job->batch->micro_batch / size - first] : NULL;
        if (comes) {
            lvni_trainer_group_sync_expect(job->group_sync, (int)(job->batch->micro_batch % size));
        }
    }
}

/* Other ranks' micro-batches of a group may still sync when those of this rank have ended, or had
 * no samples. */
static lvn_status close_group_syncs(const lvni_trainer *t)
{
    for (int i = 0; i < t->n_group_syncs; i++) {
        LVN_TRY(lvni_trainer_group_sync_close(t->group_sync[i]));
    }
    return LVN_OK;
}

/* What the wave failed with: a micro-batch that waited for others failed with theirs. */
static lvn_status first_failure(const lvni_trainer *t, lvn_status s)
{
    for (int i = 0; i < t->n_group_syncs && s != LVN_OK; i++) {
        const lvn_status first = lvni_trainer_group_sync_status(t->group_sync[i]);
        if (first != LVN_OK) {
            return first;
        }
    }
    return s;
}

static lvn_status micro_batch_work(void *user, int lane)
{
    lvni_trainer *t = user;
    lvni_trainer_micro_batch_job *job = &t->job[lane];
    if (job->batch->batch.size == 0) {
        job->step = (lvni_nn_step){0};
        return LVN_OK;
    }
    const int index = (int)(job->batch->micro_batch % t->o.plan.group); /* in its group */
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (t->watching) {
        lvni_trainer_gradient_sync_watch(t->gradient_sync, lane, job->set);
    }
    lvni_data_loader_batch batch;
    lvni_trainer_micro_batch_job there = {.batch = &batch, .set = job->set};
    ctx->group =
        job->group_sync == NULL ? NULL : lvni_trainer_group_sync_group(job->group_sync, index);
    lvn_status s = lvni_trainer_device_batch_make(job->batch, &batch);
    if (s == LVN_OK) {
        s = lvni_trainer_run_micro_batch(t, &there);
    }
    lvni_trainer_device_batch_free(&batch);
    ctx->group = NULL;
    job->step = there.step;
    if (s != LVN_OK) {
        const char *phase = lvni_trainer_phases_name(t->o.model, t->phase);
        lvn_error_frame("step %lld, %s%smicro-batch %lld", (long long)t->at.step, phase,
                        phase[0] != '\0' ? ", " : "", (long long)job->batch->micro_batch);
    } else if (t->watching) {
        lvni_trainer_gradient_sync_micro_batch_done(t->gradient_sync, lane);
    }
    if (job->group_sync != NULL) {
        lvni_trainer_group_sync_leave(job->group_sync, index, s);
    }
    return s;
}

/* Two sets become one: what the phase trains, and the records behind all parameters. */
static void add_set(const lvni_nn_model *m, lvni_nn_set *into, const lvni_nn_set *from)
{
    const int64_t begin = m->trained_begin, records = m->n_weights;
    lvni_kernels_flat_add(into->data + begin, from->data + begin, m->trained_end - begin);
    if (m->n_records > 0) {
        lvni_kernels_flat_add(into->data + records, from->data + records, m->n_records);
    }
    into->weight += from->weight;
}

/* One micro-batch has arrived: add in the order of the tree, give back sets that are done. */
static void merge(lvni_trainer *t, lvni_plan_tree *tree, int slot)
{
    lvni_plan_tree_merge m[LVNI_TREE_PENDING];
    const int n = lvni_plan_tree_push(tree, slot, m);
    for (int i = 0; i < n; i++) {
        add_set(t->o.model, t->set[m[i].into], t->set[m[i].from]);
        t->free_set[t->n_free++] = m[i].from;
    }
}

/* The batches of n micro-batches from `micro-batch` on; those of an earlier phase are still
 * here. */
static lvn_status load_wave(lvni_trainer *t, int micro_batch, int n)
{
    for (int i = 0; i < n; i++) {
        const lvni_data_loader_batch **held =
            &t->held[micro_batch - t->o.plan.micro_batch_begin + i];
        LVN_TRY(*held == NULL ? lvni_data_loader_next(t->loader, held) : LVN_OK);
        if (*held == NULL) {
            LVN_FAIL(LVN_ERR_INTERNAL, "the loader ended before step %lld", (long long)t->at.step);
        }
        t->slot[i] = t->free_set[--t->n_free];
        t->job[i].batch = *held;
        t->job[i].set = t->set[t->slot[i]];
    }
    return LVN_OK;
}

static void release(lvni_trainer *t, int micro_batch, int n)
{
    for (int i = 0; i < n; i++) {
        const lvni_data_loader_batch **held =
            &t->held[micro_batch - t->o.plan.micro_batch_begin + i];
        lvni_data_loader_release(t->loader, *held);
        *held = NULL;
    }
}

/* The nodes of this rank when its last n micro-batches are done: those that wait in the tree, and
 * these micro-batches as they are. */
static lvn_status open_reduction(lvni_trainer *t, const lvni_plan_tree *tree, int n)
{
    int leaves = 0, active = 0;
    for (int i = 0; i < tree->n_pending; i++) {
        if (tree->pending[i].slot != LVNI_TREE_EMPTY) {
            t->leaf[leaves++] = tree->pending[i];
        }
    }
    for (int i = 0; i < n; i++) {
        if (t->job[i].batch->batch.size > 0) {
            const int micro_batch = tree->next + i;
            t->leaf[leaves++] = (lvni_plan_tree_node){
                .begin = micro_batch, .end = micro_batch + 1, .slot = t->slot[i]};
            active++;
        }
    }
    return lvni_trainer_gradient_sync_open(t->gradient_sync, t->leaf, leaves, active);
}

/* Sums over the micro-batches of a phase, in their order. */
typedef struct phase_sums {
    lvni_nn_step metrics;
    int64_t samples;
} phase_sums;

/* Micro-batch i of a wave is done. */
static lvn_status take_micro_batch(lvni_trainer *t, int i, lvni_plan_tree *tree, phase_sums *sums)
{
    const int64_t size = t->job[i].batch->batch.size;
    if (t->gradient_sync != NULL) { /* with those of the other ranks, in finish_reduction */
        LVN_TRY(lvni_trainer_message_add(&t->message, &t->job[i].step, size));
    } else {
        lvni_nn_metrics_add(&sums->metrics, &t->job[i].step);
        sums->samples += size;
    }
    if (size > 0) {
        lvni_trainer_unused_note(t, t->job[i].set);
    }
    if (t->watching) {
        return LVN_OK; /* the reduction reads the set */
    }
    merge(t, tree, size > 0 ? t->slot[i] : LVNI_TREE_EMPTY);
    if (size == 0) {
        t->free_set[t->n_free++] = t->slot[i];
    }
    return LVN_OK;
}

/* n micro-batches from `micro-batch` on, one per lane, and their merges in ascending order. */
static lvn_status run_wave(lvni_trainer *t, int micro_batch, int n, lvni_plan_tree *tree,
                           phase_sums *sums)
{
    LVN_TRY(load_wave(t, micro_batch, n));
    t->watching = micro_batch + n >= t->o.plan.micro_batch_end && t->gradient_sync != NULL &&
                  !lvni_trainer_gradient_sync_merges(t->gradient_sync);
    LVN_TRY(t->watching ? open_reduction(t, tree, n) : LVN_OK);
    open_group_syncs(t, n);
    LVN_TRY(first_failure(t, lvni_trainer_lanes_run(t->lanes, n, micro_batch_work, t)));
    LVN_TRY(close_group_syncs(t));
    for (int i = 0; i < n; i++) {
        LVN_TRY(take_micro_batch(t, i, tree, sums));
    }
    if (t->phase == t->n_phases - 1) {
        release(t, micro_batch, n); /* the loader goes on with them */
    }
    return LVN_OK;
}

/* Sums over all micro-batches of all ranks, in the order of micro-batches. */
typedef struct all_micro_batches {
    lvni_trainer *trainer;
    phase_sums *sums;
    int next;
} all_micro_batches;

static void add_micro_batch(void *user, const lvni_trainer_message_part *part,
                            const lvni_nn_step *metrics)
{
    all_micro_batches *all = user;
    lvni_nn_metrics_add(&all->sums->metrics, metrics);
    all->sums->samples += part->samples;
    if (all->next < all->trainer->o.plan.micro_batches) {
        all->trainer->micro_batch_weight[all->next++] = part->weight;
    }
}

/* The weight of a node of the tree, as merging its sets would add it. */
static double tree_weight(const double *weight, int64_t n)
{
    const int64_t left = n > 1 ? lvni_plan_tree_split(n) : 0;
    return n == 1 ? weight[0] : tree_weight(weight, left) + tree_weight(weight + left, n - left);
}

/* The total over all ranks, their messages about their micro-batches, and, between threads, whether
 * one of them was asked to stop. */
static lvn_status finish_reduction(lvni_trainer *t, const lvni_plan_tree *tree, phase_sums *sums,
                                   lvni_nn_set **total)
{
    if (lvni_trainer_gradient_sync_merges(t->gradient_sync)) {
        LVN_TRY(lvni_trainer_gradient_sync_stage(t->gradient_sync, tree->pending, tree->n_pending,
                                                 t->set));
    }
    lvni_trainer_message_head *mine = (void *)t->message.data;
    /* else begin_step asks (loop.c) */
    mine->signal = t->o.control == NULL ? lvni_trainer_stop_signal() : 0;
    LVN_TRY(lvni_trainer_message_add_marks(&t->message, t->graded, t->o.model->n_parameters));
    LVN_TRY(t->o.plan.rank > 0 ? lvni_trainer_loop_note_unreadable(t->loader, &t->message)
                               : LVN_OK);
    LVN_TRY(lvni_trainer_gradient_sync_finish(t->gradient_sync, t->message.data, t->message.size,
                                              total));
    all_micro_batches all = {.trainer = t, .sums = sums};
    t->signal = 0;
    for (int rank = 0; rank < t->o.plan.devices; rank++) {
        size_t size;
        lvni_trainer_message_head head;
        const void *message = lvni_trainer_gradient_sync_reported(t->gradient_sync, rank, &size);
        LVN_TRY(lvni_trainer_message_read(message, size, &head, add_micro_batch, &all));
        LVN_TRY(lvni_trainer_message_read_marks(message, size, &head, t->graded,
                                                t->o.model->n_parameters));
        lvni_trainer_message_report_note(message, size, &head, rank);
        t->signal = t->signal != 0 ? t->signal : (int)head.signal;
    }
    lvni_trainer_stop_note(t->signal);
    if (*total != NULL) {
        (*total)->weight = tree_weight(t->micro_batch_weight, t->o.plan.micro_batches);
    }
    return LVN_OK;
}

/* A rank alone: what is left in the tree. */
static void take_root(lvni_trainer *t, const lvni_plan_tree *tree, lvni_nn_set **total)
{
    const int root = tree->n_pending > 0 ? tree->pending[0].slot : LVNI_TREE_EMPTY;
    *total = root != LVNI_TREE_EMPTY ? t->set[root] : NULL;
    t->signal = lvni_trainer_stop_signal();
}

static void free_sets(lvni_trainer *t)
{
    for (t->n_free = 0; t->n_free < t->n_sets; t->n_free++) {
        t->free_set[t->n_free] = t->n_free;
    }
}

/* Every micro-batch once, their gradients and what they report added up; *total: NULL when no
 * sample could be read. */
static lvn_status run_micro_batches(lvni_trainer *t, phase_sums *sums, lvni_nn_set **total)
{
    const int begin = t->o.plan.micro_batch_begin, end = t->o.plan.micro_batch_end;
    lvni_plan_tree tree;
    free_sets(t);
    lvni_plan_tree_init(&tree, t->o.plan.micro_batches, begin, end);
    if (t->gradient_sync != NULL) {
        lvni_trainer_message_begin(&t->message);
    }
    for (int micro_batch = begin; micro_batch < end;) {
        const int count = (int)lvni_plan_wave(&t->o.plan, micro_batch).count;
        LVN_TRY(run_wave(t, micro_batch, count, &tree, sums));
        micro_batch += count;
    }
    if (t->gradient_sync != NULL) {
        return finish_reduction(t, &tree, sums, total);
    }
    take_root(t, &tree, total);
    return LVN_OK;
}

static lvn_status run_phase(lvni_trainer *t, lvni_trainer_step_result *r)
{
    phase_sums sums = {0};
    lvni_nn_set *total = NULL;
    lvni_trainer_phases_begin(t->o.model, t->phase);
    memset(t->graded, 0, (size_t)t->o.model->n_parameters * sizeof *t->graded);
    if (t->gradient_sync != NULL) {
        lvni_trainer_gradient_sync_use_trained(t->gradient_sync);
    }
    LVN_TRY(run_micro_batches(t, &sums, &total));
    lvni_trainer_unused_end_phase(t);
    r->samples = sums.samples;
    if (!lvni_nn_metrics_add(&r->metrics, &sums.metrics)) {
        LVN_FAIL(LVN_ERR_INVALID, "the phases of a step report more than %d different metrics",
                 LVNI_METRICS);
    }
    if (total != NULL) { /* else no sample of the step could be read: nothing to learn from */
        LVN_TRY(lvni_trainer_update(t, total, r));
    }
    if (!r->phase[t->phase].skipped) {
        /* else its loss may be infinite, and nothing was learned from it */
        lvni_nn_metrics_add(&t->epoch_sum, &sums.metrics);
    }
    return LVN_OK;
}

static lvn_status run_step(lvni_trainer *t, lvni_trainer_step_result *r)
{
    *r = (lvni_trainer_step_result){.n_phases = t->n_phases};
    for (t->phase = 0; t->phase < t->n_phases; t->phase++) {
        LVN_TRY(run_phase(t, r));
    }
    LVN_TRY(lvni_trainer_end_updates(t, r)); /* the position stays with the weights */
    lvni_trainer_unused_report(t);
    t->at.step++;
    t->at.step_in_epoch++;
    t->at.samples_seen += r->samples;
    return LVN_OK;
}

lvn_status lvni_trainer_step(lvni_trainer *t, lvni_trainer_step_result *r)
{
    const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
    const lvn_status s = run_step(t, r);
    lvni_tensor_fp_leave(before);
    t->torn = false;
    for (int i = 0; i < t->n_phases && s != LVN_OK && t->n_phases > 1; i++) {
        t->torn = t->torn || r->phase[i].updated;
    }
    t->phase = 0;
    free_sets(t);
    release(t, t->o.plan.micro_batch_begin,
            t->o.plan.micro_batch_end - t->o.plan.micro_batch_begin);
    return s;
}

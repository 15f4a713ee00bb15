/* One optimizer step, phase after phase, each in the order of time: load the shards (the first
 * phase; the others have the same samples), forward and backward on the lanes, merge gradients in
 * the fixed tree over shard numbers (with other ranks: reducer.h), then update.c. */
#include "core/math.h"
#include "autograd/tape.h"
#include "kernels/flat.h"
#include "tensor/device.h"
#include "trainer/device_batch.h"
#include "trainer/loop_impl.h"
#include "trainer/phases.h"

#include <math.h>
#include <string.h>

lvn_status lvni_trainer_run_shard(const lvni_trainer *t, lvni_shard_job *job)
{
    lvni_ctx *ctx = lvni_ctx_get();
    const lvni_loader_batch *b = job->batch;
    const double samples = (double)b->batch.size;
    ctx->at = (lvni_position){.seed = t->o.seed,
                              .step = (uint32_t)t->at.step,
                              .shard = (uint32_t)b->shard,
                              .phase = (uint32_t)t->phase,
                              .call = (uint32_t)t->phase << LVNI_CALL_BITS,
                              .training = true};
    ctx->gradients = &job->set->gradients;
    ctx->records = job->set;
    lvni_set_begin(job->set, samples);
    job->step = (lvni_step){.now = {.step = t->at.step, .phase = t->phase}, .weight = samples};
    LVN_TRY(lvn_scope_open());
    const lvn_module *root = t->o.model->root;
    void (*const final)(void *user, int parameter) = job->set->gradients.final;
    job->set->gradients.final = NULL; /* a backward pass of the step's own ends no gradient */
    lvn_tensor *loss = root->cls->training_step(root, &b->batch, &job->step.now);
    job->set->gradients.final = final;
    job->set->weight = job->step.weight; /* lvni_step_weigh */
    const double value = lvn_item(loss);
    lvn_status s = LVN_OK;
    if (loss != NULL && lvn_numel(loss) == 1 && !isfinite(value) && !t->scaler.on &&
        !lvni_device_failed()) {
        /* 16-mixed: an overflow, the step is skipped */
        s = lvn_error_set(LVN_ERR_NON_FINITE, __FILE__, __LINE__,
                          "the loss is %g at step %lld (epoch %lld), shard %lld: try a smaller "
                          "optim.lr or gradient_clip_val=1",
                          lvni_unsigned_nan(value), (long long)t->at.step,
                          (long long)t->at.epoch + 1, (long long)b->shard);
    } else {
        s = lvn_backward_scaled(
            loss,
            job->step.weight * lvni_trainer_loss_factor(
                                   t)); /* the gradient comes out as w_s g_s (times the factor) */
    }
    const lvn_status closed = lvn_scope_close();
    lvni_set_finish(job->set);
    ctx->gradients = NULL;
    ctx->records = NULL;
    return closed != LVN_OK ? closed : s; /* what failed first */
}

/* Coupled shards: every group of the wave gets its meeting, to which its shards with samples will
 * come. */
static void open_meetings(const lvni_trainer *t, int n)
{
    const int64_t size = t->o.plan.group, first = t->job[0].batch->shard / size,
                  last = t->job[n - 1].batch->shard / size;
    for (int i = 0; i < t->n_meetings; i++) {
        const lvni_range on = lvni_plan_ranks_of_group(&t->o.plan, (int)first + i);
        const lvni_meeting_ranks ranks = {on.count > 1 && first + i <= last ? t->among : NULL,
                                          (int)on.start, (int)(on.start + on.count),
                                          t->o.plan.rank};
        lvni_meeting_open(t->meeting[i], &ranks);
    }
    for (int i = 0; i < n; i++) {
        lvni_shard_job *job = &t->job[i];
        const bool comes = t->n_meetings > 0 && job->batch->batch.size > 0;
        job->meeting = comes ? t->meeting[job->batch->shard / size - first] : NULL;
        if (comes) {
            lvni_meeting_expect(job->meeting, (int)(job->batch->shard % size));
        }
    }
}

/* Other ranks' shards of a group may still meet when those of this rank have ended, or had no
 * samples. */
static lvn_status close_meetings(const lvni_trainer *t)
{
    for (int i = 0; i < t->n_meetings; i++) {
        LVN_TRY(lvni_meeting_close(t->meeting[i]));
    }
    return LVN_OK;
}

/* What the wave failed with: a shard that waited for others failed with theirs. */
static lvn_status first_failure(const lvni_trainer *t, lvn_status s)
{
    for (int i = 0; i < t->n_meetings && s != LVN_OK; i++) {
        const lvn_status first = lvni_meeting_status(t->meeting[i]);
        if (first != LVN_OK) {
            return first;
        }
    }
    return s;
}

static lvn_status shard_work(void *user, int lane)
{
    lvni_trainer *t = user;
    lvni_shard_job *job = &t->job[lane];
    if (job->batch->batch.size == 0) {
        job->step = (lvni_step){0};
        return LVN_OK;
    }
    const int index = (int)(job->batch->shard % t->o.plan.group); /* in its group */
    lvni_ctx *ctx = lvni_ctx_get();
    if (t->watching) {
        lvni_reducer_watch(t->reducer, lane, job->set);
    }
    lvni_loader_batch batch;
    lvni_shard_job there = {.batch = &batch, .set = job->set};
    ctx->group = job->meeting == NULL ? NULL : lvni_meeting_group(job->meeting, index);
    lvn_status s = lvni_device_batch_make(job->batch, &batch);
    s = s == LVN_OK ? lvni_trainer_run_shard(t, &there) : s;
    lvni_device_batch_free(&batch);
    ctx->group = NULL;
    job->step = there.step;
    if (s != LVN_OK) {
        const char *phase = lvni_phases_name(t->o.model, t->phase);
        lvn_error_frame("step %lld, %s%sshard %lld", (long long)t->at.step, phase,
                        phase[0] != '\0' ? ", " : "", (long long)job->batch->shard);
    } else if (t->watching) {
        lvni_reducer_shard_done(t->reducer, lane);
    }
    if (job->meeting != NULL) {
        lvni_meeting_leave(job->meeting, index, s);
    }
    return s;
}

/* Two sets become one: what the phase trains, and the records behind all parameters. */
static void add_set(const lvni_model *m, lvni_set *into, const lvni_set *from)
{
    const int64_t begin = m->trained_begin, records = m->n_weights;
    lvni_flat_add(into->data + begin, from->data + begin, m->trained_end - begin);
    if (m->n_records > 0) {
        lvni_flat_add(into->data + records, from->data + records, m->n_records);
    }
    into->weight += from->weight;
}

/* One shard has arrived: add what the tree says, give sets that are done with back. */
static void merge(lvni_trainer *t, lvni_tree *tree, int slot)
{
    lvni_tree_merge m[LVNI_TREE_PENDING];
    const int n = lvni_tree_push(tree, slot, m);
    for (int i = 0; i < n; i++) {
        add_set(t->o.model, t->set[m[i].into], t->set[m[i].from]);
        t->free_set[t->n_free++] = m[i].from;
    }
}

/* The batches of n shards from `shard` on; those of an earlier phase are still here. */
static lvn_status load_wave(lvni_trainer *t, int shard, int n)
{
    for (int i = 0; i < n; i++) {
        const lvni_loader_batch **held = &t->held[shard - t->o.plan.shard_begin + i];
        LVN_TRY(*held == NULL ? lvni_loader_next(t->loader, held) : LVN_OK);
        if (*held == NULL) {
            LVN_FAIL(LVN_ERR_INTERNAL, "the loader ended before step %lld", (long long)t->at.step);
        }
        t->slot[i] = t->free_set[--t->n_free];
        t->job[i].batch = *held;
        t->job[i].set = t->set[t->slot[i]];
    }
    return LVN_OK;
}

static void release(lvni_trainer *t, int shard, int n)
{
    for (int i = 0; i < n; i++) {
        const lvni_loader_batch **held = &t->held[shard - t->o.plan.shard_begin + i];
        lvni_loader_release(t->loader, *held);
        *held = NULL;
    }
}

/* The nodes of this rank when its last n shards are done: those that wait in the tree, and these
 * shards as they are. */
static lvn_status open_reduction(lvni_trainer *t, const lvni_tree *tree, int n)
{
    int leaves = 0, active = 0;
    for (int i = 0; i < tree->n_pending; i++) {
        if (tree->pending[i].slot != LVNI_TREE_EMPTY) {
            t->leaf[leaves++] = tree->pending[i];
        }
    }
    for (int i = 0; i < n; i++) {
        if (t->job[i].batch->batch.size > 0) {
            const int shard = tree->next + i;
            t->leaf[leaves++] =
                (lvni_tree_node){.begin = shard, .end = shard + 1, .slot = t->slot[i]};
            active++;
        }
    }
    return lvni_reducer_open(t->reducer, t->leaf, leaves, active);
}

/* Sums over the shards of a phase, in their order. */
typedef struct phase_sums {
    lvni_step metrics;
    int64_t samples;
} phase_sums;

/* Shard i of a wave is done. */
static lvn_status take_shard(lvni_trainer *t, int i, lvni_tree *tree, phase_sums *sums)
{
    const int64_t size = t->job[i].batch->batch.size;
    if (t->reducer != NULL) { /* with those of the other ranks, in finish_reduction */
        LVN_TRY(lvni_message_add(&t->said, &t->job[i].step, size));
    } else {
        lvni_metrics_add(&sums->metrics, &t->job[i].step);
        sums->samples += size;
    }
    if (size > 0) {
        lvni_unused_note(t, t->job[i].set);
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

/* n shards from `shard` on, one per lane, and their merges in ascending order. */
static lvn_status run_wave(lvni_trainer *t, int shard, int n, lvni_tree *tree, phase_sums *sums)
{
    LVN_TRY(load_wave(t, shard, n));
    t->watching =
        shard + n >= t->o.plan.shard_end && t->reducer != NULL && !lvni_reducer_merges(t->reducer);
    LVN_TRY(t->watching ? open_reduction(t, tree, n) : LVN_OK);
    open_meetings(t, n);
    LVN_TRY(first_failure(t, lvni_lanes_run(t->lanes, n, shard_work, t)));
    LVN_TRY(close_meetings(t));
    for (int i = 0; i < n; i++) {
        LVN_TRY(take_shard(t, i, tree, sums));
    }
    if (t->phase == t->n_phases - 1) {
        release(t, shard, n); /* the loader goes on with them */
    }
    return LVN_OK;
}

/* Sums over all shards of all ranks, in the order of shards. */
typedef struct all_shards {
    lvni_trainer *trainer;
    phase_sums *sums;
    int next;
} all_shards;

static void add_shard(void *user, const lvni_message_part *part, const lvni_step *metrics)
{
    all_shards *all = user;
    lvni_metrics_add(&all->sums->metrics, metrics);
    all->sums->samples += part->samples;
    if (all->next < all->trainer->o.plan.shards) {
        all->trainer->shard_weight[all->next++] = part->weight;
    }
}

/* The weight of a node of the tree, as merging its sets would add it. */
static double tree_weight(const double *weight, int64_t n)
{
    const int64_t left = n > 1 ? lvni_tree_split(n) : 0;
    return n == 1 ? weight[0] : tree_weight(weight, left) + tree_weight(weight + left, n - left);
}

/* The total over all ranks, what they say of their shards, and, between threads, whether one of
 * them was asked to stop. */
static lvn_status finish_reduction(lvni_trainer *t, const lvni_tree *tree, phase_sums *sums,
                                   lvni_set **total)
{
    if (lvni_reducer_merges(t->reducer)) {
        LVN_TRY(lvni_reducer_stage(t->reducer, tree->pending, tree->n_pending, t->set));
    }
    lvni_message_head *mine = (void *)t->said.data;
    /* else begin_step asks (loop.c) */
    mine->signal = t->o.control == NULL ? lvni_stop_signal() : 0;
    LVN_TRY(lvni_message_add_marks(&t->said, t->graded, t->o.model->n_parameters));
    LVN_TRY(t->o.plan.rank > 0 ? lvni_loop_note_unreadable(t->loader, &t->said) : LVN_OK);
    LVN_TRY(lvni_reducer_finish(t->reducer, t->said.data, t->said.size, total));
    all_shards all = {.trainer = t, .sums = sums};
    t->signal = 0;
    for (int rank = 0; rank < t->o.plan.devices; rank++) {
        size_t size;
        lvni_message_head head;
        const void *said = lvni_reducer_said(t->reducer, rank, &size);
        LVN_TRY(lvni_message_read(said, size, &head, add_shard, &all));
        LVN_TRY(lvni_message_read_marks(said, size, &head, t->graded, t->o.model->n_parameters));
        lvni_message_tell_note(said, size, &head, rank);
        t->signal = t->signal != 0 ? t->signal : (int)head.signal;
    }
    lvni_stop_note(t->signal);
    if (*total != NULL) {
        (*total)->weight = tree_weight(t->shard_weight, t->o.plan.shards);
    }
    return LVN_OK;
}

/* A rank alone: what is left in the tree. */
static void take_root(lvni_trainer *t, const lvni_tree *tree, lvni_set **total)
{
    const int root = tree->n_pending > 0 ? tree->pending[0].slot : LVNI_TREE_EMPTY;
    *total = root != LVNI_TREE_EMPTY ? t->set[root] : NULL;
    t->signal = lvni_stop_signal();
}

static void free_sets(lvni_trainer *t)
{
    for (t->n_free = 0; t->n_free < t->n_sets; t->n_free++) {
        t->free_set[t->n_free] = t->n_free;
    }
}

/* Every shard once, their gradients and what they report added up; *total: NULL when no sample
 * could be read. */
static lvn_status run_shards(lvni_trainer *t, phase_sums *sums, lvni_set **total)
{
    const int begin = t->o.plan.shard_begin, end = t->o.plan.shard_end;
    lvni_tree tree;
    free_sets(t);
    lvni_tree_init(&tree, t->o.plan.shards, begin, end);
    if (t->reducer != NULL) {
        lvni_message_begin(&t->said);
    }
    for (int shard = begin; shard < end;) {
        const int count = (int)lvni_plan_wave(&t->o.plan, shard).count;
        LVN_TRY(run_wave(t, shard, count, &tree, sums));
        shard += count;
    }
    if (t->reducer != NULL) {
        return finish_reduction(t, &tree, sums, total);
    }
    take_root(t, &tree, total);
    return LVN_OK;
}

static lvn_status run_phase(lvni_trainer *t, lvni_step_result *r)
{
    phase_sums sums = {0};
    lvni_set *total = NULL;
    lvni_phases_begin(t->o.model, t->phase);
    memset(t->graded, 0, (size_t)t->o.model->n_parameters * sizeof *t->graded);
    if (t->reducer != NULL) {
        lvni_reducer_use_trained(t->reducer);
    }
    LVN_TRY(run_shards(t, &sums, &total));
    lvni_unused_end_phase(t);
    r->samples = sums.samples;
    if (!lvni_metrics_add(&r->metrics, &sums.metrics)) {
        LVN_FAIL(LVN_ERR_INVALID, "the phases of a step report more than %d different metrics",
                 LVNI_METRICS);
    }
    if (total != NULL) { /* else no sample of the step could be read: nothing to learn from */
        LVN_TRY(lvni_trainer_update(t, total, r));
    }
    if (!r->phase[t->phase].skipped) {
        /* else its loss may be infinite, and nothing was learned from it */
        lvni_metrics_add(&t->epoch_sum, &sums.metrics);
    }
    return LVN_OK;
}

static lvn_status run_step(lvni_trainer *t, lvni_step_result *r)
{
    *r = (lvni_step_result){.n_phases = t->n_phases};
    for (t->phase = 0; t->phase < t->n_phases; t->phase++) {
        LVN_TRY(run_phase(t, r));
    }
    LVN_TRY(lvni_trainer_end_updates(t, r)); /* the position stays with the weights */
    lvni_unused_tell(t);
    t->at.step++;
    t->at.step_in_epoch++;
    t->at.samples_seen += r->samples;
    return LVN_OK;
}

lvn_status lvni_trainer_step(lvni_trainer *t, lvni_step_result *r)
{
    const unsigned before = lvni_fp_enter(LVNI_FP_FLUSH);
    const lvn_status s = run_step(t, r);
    lvni_fp_leave(before);
    t->torn = false;
    for (int i = 0; i < t->n_phases && s != LVN_OK && t->n_phases > 1; i++) {
        t->torn = t->torn || r->phase[i].updated;
    }
    t->phase = 0;
    free_sets(t);
    release(t, t->o.plan.shard_begin, t->o.plan.shard_end - t->o.plan.shard_begin);
    return s;
}

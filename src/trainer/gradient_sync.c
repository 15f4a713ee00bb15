/* From "this gradient is final" to "this bucket is ready" (gradient_sync.h). A bucket is final in a
 * micro-batch when all its parameters are, and ready when it is final in all micro-batches of the
 * wave. */
#include "trainer/gradient_sync.h"

#include "kernels/flat.h"
#include "tensor/device.h"

#include <stdatomic.h>
#include <string.h>

/* One micro-batch of the last wave. */
typedef struct watch {
    lvni_trainer_gradient_sync *gradient_sync;
    lvni_nn_set *set;
    int *left; /* per bucket: parameters (and records) that are not final yet */
} watch;

struct lvni_trainer_gradient_sync {
    lvni_dist_reduction *reduction;
    const lvni_nn_model *model;
    int n_buckets, lanes;
    int *first, *last; /* per parameter: its buckets */
    /* per bucket: parameters that lie in it; one more when it has records or nothing else */
    int *members;
    watch *watch;         /* per lane */
    int *left;            /* of all watches */
    _Atomic int *missing; /* per bucket: micro-batches of the wave in which it is not final */
    bool staged;
    lvni_nn_set *device_total; /* staged */
    lvni_nn_set total;
};

static int64_t set_length(const lvni_nn_model *m)
{
    return m->n_weights + m->n_records;
}

static lvn_status allocate(lvni_trainer_gradient_sync *d, int lanes)
{
    const size_t buckets = (size_t)d->n_buckets, parameters = (size_t)d->model->n_parameters;
    d->first = lvni_core_calloc(LVNI_TAG_TRAINER, parameters, sizeof *d->first);
    d->last = lvni_core_calloc(LVNI_TAG_TRAINER, parameters, sizeof *d->last);
    d->members = lvni_core_calloc(LVNI_TAG_TRAINER, buckets, sizeof *d->members);
    d->missing = lvni_core_calloc(LVNI_TAG_TRAINER, buckets, sizeof *d->missing);
    d->watch = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)lanes, sizeof *d->watch);
    d->left = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)lanes * buckets, sizeof *d->left);
    if (d->first == NULL || d->last == NULL || d->members == NULL || d->missing == NULL ||
        d->watch == NULL || d->left == NULL) {
        return LVN_ERR_MEMORY;
    }
    d->lanes = lanes;
    for (int i = 0; i < lanes; i++) {
        d->watch[i] = (watch){.gradient_sync = d, .left = d->left + (size_t)i * buckets};
    }
    return LVN_OK;
}

/* The buckets that hold elements [begin, end). */
static void find_buckets(const lvni_trainer_gradient_sync *d, int64_t begin, int64_t end,
                         int *first, int *last)
{
    *first = -1;
    *last = -1;
    for (int b = 0; b < d->n_buckets; b++) {
        const lvni_plan_range r = lvni_dist_reduction_bucket(d->reduction, b);
        if (r.start < end && begin < r.start + r.count) {
            *first = *first < 0 ? b : *first;
            *last = b;
        }
    }
}

static void find_parameters(lvni_trainer_gradient_sync *d)
{
    const lvni_nn_model *m = d->model;
    for (int p = 0; p < m->n_parameters; p++) {
        find_buckets(d, m->offset[p], m->offset[p] + m->parameters[p].numel, &d->first[p],
                     &d->last[p]);
    }
}

/* Parameters that are not added are never reported as final. */
static void count_members(lvni_trainer_gradient_sync *d)
{
    const lvni_nn_model *m = d->model;
    memset(d->members, 0, (size_t)d->n_buckets * sizeof *d->members);
    for (int p = 0; p < m->n_parameters; p++) {
        const bool added = m->offset[p] < m->trained_end && m->offset[p + 1] > m->trained_begin;
        for (int b = d->first[p]; added && b >= 0 && b <= d->last[p]; b++) {
            d->members[b]++;
        }
    }
    for (int b = 0; b < d->n_buckets; b++) { /* records are whole when the micro-batch is done */
        const lvni_plan_range r = lvni_dist_reduction_bucket(d->reduction, b);
        d->members[b] += d->members[b] == 0 || r.start + r.count > m->n_weights ? 1 : 0;
    }
}

void lvni_trainer_gradient_sync_use_trained(lvni_trainer_gradient_sync *d)
{
    count_members(d);
    lvni_dist_reduction_use(d->reduction, d->model->trained_begin, d->model->trained_end);
}

lvn_status lvni_trainer_gradient_sync_create(const lvni_trainer_gradient_sync_options *o,
                                             lvni_trainer_gradient_sync **out)
{
    *out = NULL;
    lvni_trainer_gradient_sync *d = LVNI_NEW(LVNI_TAG_TRAINER, lvni_trainer_gradient_sync);
    if (d == NULL) {
        return LVN_ERR_MEMORY;
    }
    d->model = o->model;
    d->staged = lvni_tensor_device_of(o->model->weights) != NULL;
    const int64_t block = LVNI_REDUCTION_BLOCK, floats = o->bucket_bytes / (int64_t)sizeof(float);
    const int64_t bucket = floats < block ? block : floats / block * block;
    const lvni_dist_reduction_options r = {.micro_batches = o->micro_batches,
                                           .sets = o->sets,
                                           .n = set_length(o->model),
                                           .n_norm = o->model->n_weights,
                                           .bucket = bucket < set_length(o->model) ? bucket : 0,
                                           .message = o->message,
                                           .sumsq = lvni_kernels_flat_block_sumsq};
    lvn_status s = lvni_dist_reduction_create(o->comm, &r, &d->reduction);
    if (s == LVN_OK) {
        d->n_buckets = lvni_dist_reduction_buckets(d->reduction);
        s = allocate(d, o->lanes);
    }
    if (s == LVN_OK && d->staged) {
        s = lvni_nn_set_create(d->model, &d->device_total);
    }
    if (s != LVN_OK) {
        lvni_trainer_gradient_sync_destroy(d);
        return s;
    }
    find_parameters(d);
    lvni_trainer_gradient_sync_use_trained(d);
    *out = d;
    return LVN_OK;
}

void lvni_trainer_gradient_sync_destroy(lvni_trainer_gradient_sync *d)
{
    if (d == NULL) {
        return;
    }
    lvni_nn_set_destroy(d->device_total);
    lvni_dist_reduction_destroy(d->reduction);
    lvni_core_free(d->first);
    lvni_core_free(d->last);
    lvni_core_free(d->members);
    lvni_core_free(d->missing);
    lvni_core_free(d->watch);
    lvni_core_free(d->left);
    lvni_core_free(d);
}

lvn_status lvni_trainer_gradient_sync_make_set(lvni_trainer_gradient_sync *d, int i,
                                               lvni_nn_set **out)
{
    return d->staged
               ? lvni_nn_set_create(d->model, out)
               : lvni_nn_set_create_in(d->model, lvni_dist_reduction_set(d->reduction, i), out);
}

bool lvni_trainer_gradient_sync_merges(const lvni_trainer_gradient_sync *d)
{
    return d->staged;
}

lvn_status lvni_trainer_gradient_sync_open(lvni_trainer_gradient_sync *d,
                                           const lvni_plan_tree_node *leaf, int n_leaves,
                                           int active)
{
    for (int b = 0; b < d->n_buckets; b++) {
        atomic_store_explicit(&d->missing[b], active, memory_order_relaxed);
    }
    return lvni_dist_reduction_begin(d->reduction, leaf, n_leaves);
}

/* Final in one more micro-batch. The thread that completes a bucket adds what can be added by now:
 * the memory was touched a moment ago. */
static void bucket_final(lvni_trainer_gradient_sync *d, int b)
{
    if (atomic_fetch_sub_explicit(&d->missing[b], 1, memory_order_acq_rel) == 1) {
        lvni_dist_reduction_ready(d->reduction, b);
        while (lvni_dist_reduction_help(d->reduction)) {
        }
    }
}

static void parameter_final(void *user, int p)
{
    watch *w = user;
    const lvni_nn_model *m = w->set->model;
    if (!w->set->gradients.written[p]) { /* it is on the tape, but does not lead to the loss */
        memset(w->set->data + m->offset[p], 0,
               (size_t)m->parameters[p].numel * sizeof *w->set->data);
        w->set->gradients.written[p] = LVNI_GRADIENT_ZEROS;
    }
    for (int b = w->gradient_sync->first[p]; b >= 0 && b <= w->gradient_sync->last[p]; b++) {
        if (--w->left[b] == 0) {
            bucket_final(w->gradient_sync, b);
        }
    }
}

void lvni_trainer_gradient_sync_watch(lvni_trainer_gradient_sync *d, int lane, lvni_nn_set *set)
{
    watch *w = &d->watch[lane];
    memcpy(w->left, d->members, (size_t)d->n_buckets * sizeof *w->left);
    w->set = set;
    set->gradients.final = parameter_final;
    set->gradients.user = w;
}

void lvni_trainer_gradient_sync_micro_batch_done(lvni_trainer_gradient_sync *d, int lane)
{
    watch *w = &d->watch[lane];
    w->set->gradients.final = NULL;
    for (int b = 0; b < d->n_buckets; b++) {
        if (w->left[b] > 0) {
            w->left[b] = 0;
            bucket_final(d, b);
        }
    }
}

/* What is added of a set, from or to a device. */
static lvn_status copy_added(const lvni_nn_model *m, float *to, const float *from)
{
    LVN_TRY(lvni_tensor_mem_copy(to + m->trained_begin, from + m->trained_begin,
                                 (size_t)(m->trained_end - m->trained_begin) * sizeof *to));
    return lvni_tensor_mem_copy(to + m->n_weights, from + m->n_weights,
                                (size_t)m->n_records * sizeof *to);
}

lvn_status lvni_trainer_gradient_sync_stage(lvni_trainer_gradient_sync *d,
                                            const lvni_plan_tree_node *leaf, int n_leaves,
                                            lvni_nn_set *const *set)
{
    lvni_plan_tree_node staged[LVNI_TREE_PENDING];
    int n = 0;
    for (int i = 0; i < n_leaves; i++) {
        if (leaf[i].slot != LVNI_TREE_EMPTY) {
            staged[n] = leaf[i];
            staged[n].slot = n;
            LVN_TRY(copy_added(d->model, lvni_dist_reduction_set(d->reduction, n),
                               set[leaf[i].slot]->data));
            n++;
        }
    }
    return lvni_dist_reduction_begin(d->reduction, staged, n);
}

static void help(void *user)
{
    while (lvni_dist_reduction_help(user)) {
    }
}

lvn_status lvni_trainer_gradient_sync_finish(lvni_trainer_gradient_sync *d, const void *message,
                                             size_t bytes, lvni_nn_set **total)
{
    *total = NULL;
    lvni_kernels_flat_team(help, d->reduction);
    LVN_TRY(lvni_dist_reduction_finish(d->reduction, message, bytes));
    float *sum = lvni_dist_reduction_total(d->reduction);
    if (sum == NULL) {
        return LVN_OK;
    }
    d->total = (lvni_nn_set){.model = d->model, .data = sum, .borrowed = true};
    if (d->staged) {
        d->total.data = d->device_total->data;
        LVN_TRY(copy_added(d->model, d->total.data, sum));
    }
    *total = &d->total;
    return LVN_OK;
}

const void *lvni_trainer_gradient_sync_reported(lvni_trainer_gradient_sync *d, int rank,
                                                size_t *bytes)
{
    return lvni_dist_reduction_get_message(d->reduction, rank, bytes);
}

const double *lvni_trainer_gradient_sync_blocks(lvni_trainer_gradient_sync *d)
{
    return lvni_dist_reduction_partial(d->reduction);
}

lvni_dist_reduction_times lvni_trainer_gradient_sync_times(const lvni_trainer_gradient_sync *d)
{
    return lvni_dist_reduction_last(d->reduction);
}

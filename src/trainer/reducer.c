/* From "this gradient is final" to "this bucket is ready" (reducer.h). A bucket is final in a shard
 * when all its parameters are, and ready when it is final in all shards of the wave. */
#include "trainer/reducer.h"

#include "kernels/flat.h"
#include "tensor/device.h"

#include <stdatomic.h>
#include <string.h>

/* One shard of the last wave. */
typedef struct watch {
    lvni_reducer *reducer;
    lvni_set *set;
    int *left; /* per bucket: parameters (and records) that are not final yet */
} watch;

struct lvni_reducer {
    lvni_reduction *reduction;
    const lvni_model *model;
    int n_buckets, lanes;
    int *first, *last; /* per parameter: its buckets */
    /* per bucket: parameters that lie in it; one more when it has records or nothing else */
    int *members;
    watch *watch;         /* per lane */
    int *left;            /* of all watches */
    _Atomic int *missing; /* per bucket: shards of the wave in which it is not final */
    bool staged;
    lvni_set *device_total; /* staged */
    lvni_set total;
};

static int64_t set_length(const lvni_model *m)
{
    return m->n_weights + m->n_records;
}

static lvn_status allocate(lvni_reducer *d, int lanes)
{
    const size_t buckets = (size_t)d->n_buckets, parameters = (size_t)d->model->n_parameters;
    d->first = lvni_calloc(LVNI_TAG_TRAINER, parameters, sizeof *d->first);
    d->last = lvni_calloc(LVNI_TAG_TRAINER, parameters, sizeof *d->last);
    d->members = lvni_calloc(LVNI_TAG_TRAINER, buckets, sizeof *d->members);
    d->missing = lvni_calloc(LVNI_TAG_TRAINER, buckets, sizeof *d->missing);
    d->watch = lvni_calloc(LVNI_TAG_TRAINER, (size_t)lanes, sizeof *d->watch);
    d->left = lvni_calloc(LVNI_TAG_TRAINER, (size_t)lanes * buckets, sizeof *d->left);
    if (d->first == NULL || d->last == NULL || d->members == NULL || d->missing == NULL ||
        d->watch == NULL || d->left == NULL) {
        return LVN_ERR_MEMORY;
    }
    d->lanes = lanes;
    for (int i = 0; i < lanes; i++) {
        d->watch[i] = (watch){.reducer = d, .left = d->left + (size_t)i * buckets};
    }
    return LVN_OK;
}

/* The buckets that hold elements [begin, end). */
static void find_buckets(const lvni_reducer *d, int64_t begin, int64_t end, int *first, int *last)
{
    *first = -1;
    *last = -1;
    for (int b = 0; b < d->n_buckets; b++) {
        const lvni_range r = lvni_reduction_bucket(d->reduction, b);
        if (r.start < end && begin < r.start + r.count) {
            *first = *first < 0 ? b : *first;
            *last = b;
        }
    }
}

static void find_parameters(lvni_reducer *d)
{
    const lvni_model *m = d->model;
    for (int p = 0; p < m->n_parameters; p++) {
        find_buckets(d, m->offset[p], m->offset[p] + m->parameters[p].numel, &d->first[p],
                     &d->last[p]);
    }
}

/* Of what is not added nobody hears that it is final. */
static void count_members(lvni_reducer *d)
{
    const lvni_model *m = d->model;
    memset(d->members, 0, (size_t)d->n_buckets * sizeof *d->members);
    for (int p = 0; p < m->n_parameters; p++) {
        const bool added = m->offset[p] < m->trained_end && m->offset[p + 1] > m->trained_begin;
        for (int b = d->first[p]; added && b >= 0 && b <= d->last[p]; b++) {
            d->members[b]++;
        }
    }
    for (int b = 0; b < d->n_buckets; b++) { /* records are whole when the shard is done */
        const lvni_range r = lvni_reduction_bucket(d->reduction, b);
        d->members[b] += d->members[b] == 0 || r.start + r.count > m->n_weights ? 1 : 0;
    }
}

void lvni_reducer_use_trained(lvni_reducer *d)
{
    count_members(d);
    lvni_reduction_use(d->reduction, d->model->trained_begin, d->model->trained_end);
}

lvn_status lvni_reducer_create(const lvni_reducer_options *o, lvni_reducer **out)
{
    *out = NULL;
    lvni_reducer *d = LVNI_NEW(LVNI_TAG_TRAINER, lvni_reducer);
    if (d == NULL) {
        return LVN_ERR_MEMORY;
    }
    d->model = o->model;
    d->staged = lvni_device_of(o->model->weights) != NULL;
    const int64_t block = LVNI_REDUCTION_BLOCK, floats = o->bucket_bytes / (int64_t)sizeof(float);
    const int64_t bucket = floats < block ? block : floats / block * block;
    const lvni_reduction_options r = {.shards = o->shards,
                                      .sets = o->sets,
                                      .n = set_length(o->model),
                                      .n_norm = o->model->n_weights,
                                      .bucket = bucket < set_length(o->model) ? bucket : 0,
                                      .message = o->message,
                                      .sumsq = lvni_flat_block_sumsq};
    lvn_status s = lvni_reduction_create(o->comm, &r, &d->reduction);
    if (s == LVN_OK) {
        d->n_buckets = lvni_reduction_buckets(d->reduction);
        s = allocate(d, o->lanes);
    }
    if (s == LVN_OK && d->staged) {
        s = lvni_set_create(d->model, &d->device_total);
    }
    if (s != LVN_OK) {
        lvni_reducer_destroy(d);
        return s;
    }
    find_parameters(d);
    lvni_reducer_use_trained(d);
    *out = d;
    return LVN_OK;
}

void lvni_reducer_destroy(lvni_reducer *d)
{
    if (d == NULL) {
        return;
    }
    lvni_set_destroy(d->device_total);
    lvni_reduction_destroy(d->reduction);
    lvni_free(d->first);
    lvni_free(d->last);
    lvni_free(d->members);
    lvni_free(d->missing);
    lvni_free(d->watch);
    lvni_free(d->left);
    lvni_free(d);
}

lvn_status lvni_reducer_make_set(lvni_reducer *d, int i, lvni_set **out)
{
    return d->staged ? lvni_set_create(d->model, out)
                     : lvni_set_create_in(d->model, lvni_reduction_set(d->reduction, i), out);
}

bool lvni_reducer_merges(const lvni_reducer *d)
{
    return d->staged;
}

lvn_status lvni_reducer_open(lvni_reducer *d, const lvni_tree_node *leaf, int n_leaves, int active)
{
    for (int b = 0; b < d->n_buckets; b++) {
        atomic_store_explicit(&d->missing[b], active, memory_order_relaxed);
    }
    return lvni_reduction_begin(d->reduction, leaf, n_leaves);
}

/* Final in one more shard. Whoever completes a bucket adds what can be added by now: the memory was
 * touched a moment ago. */
static void bucket_final(lvni_reducer *d, int b)
{
    if (atomic_fetch_sub_explicit(&d->missing[b], 1, memory_order_acq_rel) == 1) {
        lvni_reduction_ready(d->reduction, b);
        while (lvni_reduction_help(d->reduction)) {
        }
    }
}

static void parameter_final(void *user, int p)
{
    watch *w = user;
    const lvni_model *m = w->set->model;
    if (!w->set->gradients.written[p]) { /* it is on the tape, but does not lead to the loss */
        memset(w->set->data + m->offset[p], 0,
               (size_t)m->parameters[p].numel * sizeof *w->set->data);
        w->set->gradients.written[p] = LVNI_GRADIENT_ZEROS;
    }
    for (int b = w->reducer->first[p]; b >= 0 && b <= w->reducer->last[p]; b++) {
        if (--w->left[b] == 0) {
            bucket_final(w->reducer, b);
        }
    }
}

void lvni_reducer_watch(lvni_reducer *d, int lane, lvni_set *set)
{
    watch *w = &d->watch[lane];
    memcpy(w->left, d->members, (size_t)d->n_buckets * sizeof *w->left);
    w->set = set;
    set->gradients.final = parameter_final;
    set->gradients.user = w;
}

void lvni_reducer_shard_done(lvni_reducer *d, int lane)
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
static lvn_status copy_added(const lvni_model *m, float *to, const float *from)
{
    LVN_TRY(lvni_mem_copy(to + m->trained_begin, from + m->trained_begin,
                          (size_t)(m->trained_end - m->trained_begin) * sizeof *to));
    return lvni_mem_copy(to + m->n_weights, from + m->n_weights, (size_t)m->n_records * sizeof *to);
}

lvn_status lvni_reducer_stage(lvni_reducer *d, const lvni_tree_node *leaf, int n_leaves,
                              lvni_set *const *set)
{
    lvni_tree_node staged[LVNI_TREE_PENDING];
    int n = 0;
    for (int i = 0; i < n_leaves; i++) {
        if (leaf[i].slot != LVNI_TREE_EMPTY) {
            staged[n] = leaf[i];
            staged[n].slot = n;
            LVN_TRY(
                copy_added(d->model, lvni_reduction_set(d->reduction, n), set[leaf[i].slot]->data));
            n++;
        }
    }
    return lvni_reduction_begin(d->reduction, staged, n);
}

static void help(void *user)
{
    while (lvni_reduction_help(user)) {
    }
}

lvn_status lvni_reducer_finish(lvni_reducer *d, const void *said, size_t bytes, lvni_set **total)
{
    *total = NULL;
    lvni_flat_team(help, d->reduction);
    LVN_TRY(lvni_reduction_finish(d->reduction, said, bytes));
    float *sum = lvni_reduction_total(d->reduction);
    if (sum == NULL) {
        return LVN_OK;
    }
    d->total = (lvni_set){.model = d->model, .data = sum, .borrowed = true};
    if (d->staged) {
        d->total.data = d->device_total->data;
        LVN_TRY(copy_added(d->model, d->total.data, sum));
    }
    *total = &d->total;
    return LVN_OK;
}

const void *lvni_reducer_said(lvni_reducer *d, int rank, size_t *bytes)
{
    return lvni_reduction_said(d->reduction, rank, bytes);
}

const double *lvni_reducer_blocks(lvni_reducer *d)
{
    return lvni_reduction_partial(d->reduction);
}

lvni_reduction_times lvni_reducer_times(const lvni_reducer *d)
{
    return lvni_reduction_last(d->reduction);
}

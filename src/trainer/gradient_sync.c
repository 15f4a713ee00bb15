/* The sets of a rank and its walk over the tree, and from "this gradient is final" to "this bucket
 * is ready" (gradient_sync.h). A bucket is final in a micro-batch when all its parameters are, and
 * ready when it is final in all micro-batches of the wave. */
#include "trainer/gradient_sync.h"

#include "kernels/flat.h"
#include "tensor/device.h"
#include "trainer/staged.h"

#include <stdatomic.h>
#include <string.h>

/* One micro-batch of a wave that the reduction reads. */
typedef struct watch {
    lvni_trainer_gradient_sync *gradient_sync;
    lvni_nn_set *set;
    int *left; /* per bucket: parameters (and records) that are not final yet */
} watch;

struct lvni_trainer_gradient_sync {
    lvni_dist_comm *own_comm; /* of one rank; NULL: the caller's */
    lvni_dist_reduction *reduction;
    const lvni_nn_model *model;
    lvni_nn_set **set;
    int n_sets;
    float **memory; /* of the sets, for a reduction that reads them where they lie */
    int *free_set;  /* stack of their numbers */
    int n_free;
    int begin, end;      /* this rank's micro-batches */
    lvni_plan_tree tree; /* of the current phase */
    lvni_plan_tree_node leaf[LVNI_TREE_PENDING];
    bool begun; /* the reduction: it has the leaves, and what is computed now is among them */
    bool open;  /* the reduction has begun, and was not finished */

    /* Buckets are added while the backward pass runs; else there is nothing of this. */
    bool early;
    int n_buckets;
    int *first, *last; /* per parameter: its buckets */
    /* per bucket: parameters that lie in it; one more when it has records or nothing else */
    int *members;
    watch *watch;         /* per lane */
    int *left;            /* of all watches */
    _Atomic int *missing; /* per bucket: micro-batches of the wave in which it is not final */

    /* Sets lie on a device, and the reduction reads copies; else NULL. */
    lvni_nn_set *device_total;
    lvni_trainer_staged *staged; /* and the step does not wait for them; else NULL */
    lvni_nn_set total;
};

/* ---- creation ---- */

static lvn_status allocate_watches(lvni_trainer_gradient_sync *d, int lanes)
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

/* The sets lie in the reduction's memory where ranks add them early. */
static lvn_status make_sets(lvni_trainer_gradient_sync *d, int n)
{
    for (; d->n_sets < n; d->n_sets++) {
        lvni_nn_set **set = &d->set[d->n_sets];
        LVN_TRY(d->early ? lvni_nn_set_create_in(
                               d->model, lvni_dist_reduction_set(d->reduction, d->n_sets), set)
                         : lvni_nn_set_create(d->model, set));
        d->memory[d->n_sets] = (*set)->data;
    }
    return LVN_OK;
}

/* A multiple of blocks; of small models all that there is. */
static int64_t bucket_floats(const lvni_trainer_gradient_sync_options *o)
{
    const int64_t block = LVNI_REDUCTION_BLOCK, floats = o->bucket_bytes / (int64_t)sizeof(float),
                  n = o->model->n_weights + o->model->n_records,
                  bucket = floats < block ? block : floats / block * block;
    return bucket < n ? bucket : n;
}

/* copied: the reduction has host memory for what the merged leaves of this rank are. */
static lvn_status make_reduction(lvni_trainer_gradient_sync *d,
                                 const lvni_trainer_gradient_sync_options *o, lvni_dist_comm *comm,
                                 bool copied)
{
    const lvni_nn_model *m = d->model;
    const int64_t n = m->n_weights + m->n_records, bucket = bucket_floats(o);
    const bool in_place = !copied && !d->early;
    double *sums = in_place ? o->sums : NULL;
    const lvni_dist_reduction_options r = {
        .micro_batches = o->micro_batches,
        .begin = o->begin,
        .end = o->end,
        .sets = copied ? lvni_plan_tree_owed(o->micro_batches, o->begin, o->end) : o->sets,
        .n = n,
        .n_norm = m->n_weights,
        .bucket = bucket < n ? bucket : 0,
        .parts = o->parts,
        .message = o->message,
        .sumsq = sums != NULL ? lvni_kernels_flat_sums_on_device : lvni_kernels_flat_block_sumsq,
        .partial = sums,
        .set = in_place ? d->memory : NULL,
        .add = lvni_kernels_flat_add};
    LVN_TRY(in_place ? make_sets(d, o->sets) : LVN_OK);
    LVN_TRY(lvni_dist_reduction_create(comm, &r, &d->reduction));
    return make_sets(d, o->sets);
}

static lvn_status make_staged(lvni_trainer_gradient_sync *d,
                              const lvni_trainer_gradient_sync_options *o, lvni_dist_comm *comm)
{
    LVN_TRY(lvni_nn_set_create(o->model, &d->device_total));
    const lvni_trainer_staged_options s = {
        .comm = comm,
        .reduction = d->reduction,
        .bucket = bucket_floats(o),
        .model = o->model,
        .deferred = o->deferred,
        .device = lvni_tensor_device_of(o->model->weights),
        .sets = lvni_plan_tree_owed(o->micro_batches, o->begin, o->end),
        .message = o->marks};
    return lvni_trainer_staged_create(&s, &d->staged);
}

static lvn_status make_all(lvni_trainer_gradient_sync *d,
                           const lvni_trainer_gradient_sync_options *o)
{
    LVN_TRY(o->comm == NULL ? lvni_dist_comm_self(&d->own_comm) : LVN_OK);
    lvni_dist_comm *comm = o->comm == NULL ? d->own_comm : o->comm;
    const bool device = lvni_tensor_device_of(o->model->weights) != NULL,
               in_place = lvni_dist_comm_reads_any(comm);
    d->early = !device && !in_place;
    d->set = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)o->sets, sizeof *d->set);
    d->memory = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)o->sets, sizeof *d->memory);
    d->free_set = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)o->sets, sizeof *d->free_set);
    if (d->set == NULL || d->memory == NULL || d->free_set == NULL) {
        return LVN_ERR_MEMORY;
    }
    const bool staged = device && !in_place;
    if (staged && lvni_dist_comm_adds_between_devices(comm)) {
        LVN_TRY(make_sets(d, o->sets));
    } else {
        LVN_TRY(make_reduction(d, o, comm, staged));
        d->n_buckets = lvni_dist_reduction_buckets(d->reduction);
    }
    LVN_TRY(staged ? make_staged(d, o, comm) : LVN_OK);
    if (d->early) {
        LVN_TRY(allocate_watches(d, o->lanes));
        find_parameters(d);
    }
    return LVN_OK;
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
    d->begin = o->begin;
    d->end = o->end;
    d->tree.n = o->micro_batches;
    const lvn_status s = make_all(d, o);
    if (s != LVN_OK) {
        lvni_trainer_gradient_sync_destroy(d);
        return s;
    }
    *out = d;
    return LVN_OK;
}

void lvni_trainer_gradient_sync_destroy(lvni_trainer_gradient_sync *d)
{
    if (d == NULL) {
        return;
    }
    for (int i = 0; i < d->n_sets; i++) {
        lvni_nn_set_destroy(d->set[i]);
    }
    lvni_nn_set_destroy(d->device_total);
    lvni_trainer_staged_destroy(d->staged);
    lvni_dist_reduction_destroy(d->reduction);
    lvni_dist_comm_destroy(d->own_comm);
    lvni_core_free(d->set);
    lvni_core_free(d->memory);
    lvni_core_free(d->free_set);
    lvni_core_free(d->first);
    lvni_core_free(d->last);
    lvni_core_free(d->members);
    lvni_core_free(d->missing);
    lvni_core_free(d->watch);
    lvni_core_free(d->left);
    lvni_core_free(d);
}

/* ---- sets and leaves ---- */

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

void lvni_trainer_gradient_sync_begin(lvni_trainer_gradient_sync *d)
{
    if (d->early) {
        count_members(d);
    }
    if (d->staged == NULL) {
        lvni_dist_reduction_use(d->reduction, d->model->trained_begin, d->model->trained_end);
    }
    lvni_plan_tree_init(&d->tree, d->tree.n, d->begin, d->end);
    for (d->n_free = 0; d->n_free < d->n_sets; d->n_free++) {
        d->free_set[d->n_free] = d->n_free;
    }
    d->begun = false;
}

int lvni_trainer_gradient_sync_take(lvni_trainer_gradient_sync *d)
{
    return d->n_free > 0 ? d->free_set[--d->n_free] : LVNI_TREE_EMPTY;
}

lvni_nn_set *lvni_trainer_gradient_sync_set(const lvni_trainer_gradient_sync *d, int slot)
{
    return d->set[slot];
}

/* The nodes that wait in the tree. */
static int list_pending(lvni_trainer_gradient_sync *d)
{
    int n = 0;
    for (int i = 0; i < d->tree.n_pending; i++) {
        if (d->tree.pending[i].slot != LVNI_TREE_EMPTY) {
            d->leaf[n++] = d->tree.pending[i];
        }
    }
    return n;
}

/* The last wave goes into the reduction as it is, unless copies of merged leaves do, or there are
 * more micro-batches at once than a step of a reduction takes leaves. */
lvn_status lvni_trainer_gradient_sync_wave(lvni_trainer_gradient_sync *d, const int *slot, int n)
{
    if (d->tree.next + n < d->end || d->device_total != NULL ||
        d->tree.n_pending + n > LVNI_TREE_PENDING) {
        return LVN_OK;
    }
    int leaves = list_pending(d);
    const int before = leaves;
    for (int i = 0; i < n; i++) {
        const int micro_batch = d->tree.next + i;
        if (slot[i] != LVNI_TREE_EMPTY) {
            d->leaf[leaves++] = (lvni_plan_tree_node){micro_batch, micro_batch + 1, slot[i]};
        }
    }
    for (int b = 0; b < d->n_buckets && d->early; b++) {
        atomic_store_explicit(&d->missing[b], leaves - before, memory_order_relaxed);
    }
    LVN_TRY(lvni_dist_reduction_begin(d->reduction, d->leaf, leaves));
    d->begun = d->open = true;
    return LVN_OK;
}

/* Two sets become one: what the phase trains, and the records behind all parameters. */
static void add_set(const lvni_nn_model *m, float *into, const float *from)
{
    const int64_t begin = m->trained_begin, records = m->n_weights;
    lvni_kernels_flat_add(into + begin, from + begin, m->trained_end - begin);
    if (m->n_records > 0) {
        lvni_kernels_flat_add(into + records, from + records, m->n_records);
    }
}

void lvni_trainer_gradient_sync_leaf(lvni_trainer_gradient_sync *d, int slot)
{
    lvni_plan_tree_merge merge[LVNI_TREE_PENDING];
    if (d->begun) {
        return; /* the reduction reads the set */
    }
    const int n = lvni_plan_tree_push(&d->tree, slot, merge);
    for (int i = 0; i < n; i++) {
        add_set(d->model, d->set[merge[i].into]->data, d->set[merge[i].from]->data);
        d->free_set[d->n_free++] = merge[i].from;
    }
}

/* ---- buckets ---- */

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
    if (!d->early || !d->begun) {
        return;
    }
    watch *w = &d->watch[lane];
    memcpy(w->left, d->members, (size_t)d->n_buckets * sizeof *w->left);
    w->set = set;
    set->gradients.final = parameter_final;
    set->gradients.user = w;
}

void lvni_trainer_gradient_sync_micro_batch_done(lvni_trainer_gradient_sync *d, int lane)
{
    if (!d->early || !d->begun) {
        return;
    }
    watch *w = &d->watch[lane];
    w->set->gradients.final = NULL;
    for (int b = 0; b < d->n_buckets; b++) {
        if (w->left[b] > 0) {
            w->left[b] = 0;
            bucket_final(d, b);
        }
    }
}

/* ---- the total ---- */

/* What this rank owes when all its leaves are merged. */
static lvn_status begin_merged(lvni_trainer_gradient_sync *d)
{
    const int n = list_pending(d);
    LVN_TRY(lvni_dist_reduction_begin(d->reduction, d->leaf, n));
    d->open = true;
    return LVN_OK;
}

static lvn_status finish_staged(lvni_trainer_gradient_sync *d, const void *message, size_t bytes,
                                lvni_nn_set **total)
{
    lvni_nn_set *owed[LVNI_TREE_PENDING];
    const int n = list_pending(d);
    for (int i = 0; i < n; i++) {
        owed[i] = d->set[d->leaf[i].slot];
    }
    LVN_TRY(lvni_trainer_staged_send(d->staged, d->leaf, owed, n));
    LVN_TRY(lvni_trainer_staged_exchange(d->staged, message, bytes));
    if (!lvni_trainer_staged_any(d->staged)) {
        return LVN_OK;
    }
    *total = d->device_total;
    return lvni_trainer_staged_receive(d->staged, d->device_total->data);
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
    if (d->staged != NULL) {
        return finish_staged(d, message, bytes, total);
    }
    LVN_TRY(d->begun ? LVN_OK : begin_merged(d));
    if (d->early) { /* else nothing is added before finish */
        lvni_kernels_flat_team(help, d->reduction);
    }
    d->open = false;
    LVN_TRY(lvni_dist_reduction_finish(d->reduction, message, bytes));
    float *sum = lvni_dist_reduction_total(d->reduction);
    if (sum == NULL) {
        return LVN_OK;
    }
    d->total = (lvni_nn_set){.model = d->model, .data = sum, .borrowed = true};
    *total = &d->total;
    return LVN_OK;
}

lvn_status lvni_trainer_gradient_sync_abandon(lvni_trainer_gradient_sync *d)
{
    const bool open = d->open;
    d->open = false;
    return open ? lvni_dist_reduction_finish(d->reduction, "", 0) : LVN_OK;
}

const void *lvni_trainer_gradient_sync_reported(lvni_trainer_gradient_sync *d, int rank,
                                                size_t *bytes)
{
    return d->staged != NULL ? lvni_trainer_staged_reported(d->staged, rank, bytes)
                             : lvni_dist_reduction_get_message(d->reduction, rank, bytes);
}

lvn_status lvni_trainer_gradient_sync_rest(lvni_trainer_gradient_sync *d)
{
    return d->staged != NULL ? lvni_trainer_staged_rest(d->staged) : LVN_OK;
}

const double *lvni_trainer_gradient_sync_blocks(lvni_trainer_gradient_sync *d)
{
    return lvni_dist_reduction_partial(d->reduction);
}

lvni_dist_reduction_times lvni_trainer_gradient_sync_times(const lvni_trainer_gradient_sync *d)
{
    return d->staged != NULL ? lvni_trainer_staged_times(d->staged)
                             : lvni_dist_reduction_last(d->reduction);
}

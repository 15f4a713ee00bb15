/* Gradients that are added between devices (staged.h, dist/device_sum.h): the step's thread submits
 * the sums bucket by bucket to the stream that computed them, and the communication thread has the
 * rest: it exchanges losses, weights and metrics, and watches over the sums. The device waits for
 * it before it updates; when something failed, nothing is updated. */
#include "core/alloc.h"
#include "trainer/staged_impl.h"

#include <math.h>
#include <string.h>

/* ---- creation ---- */

/* Sub-trees of all ranks, when no micro-batch is empty. */
static int count_leaves(const lvni_plan *plan, int world)
{
    int n = 0;
    for (int rank = 0; rank < world; rank++) {
        const lvni_plan_range of = lvni_plan_micro_batches_of(plan, rank);
        n += lvni_plan_tree_owed((int)plan->micro_batches, (int)of.start,
                                 (int)(of.start + of.count));
    }
    return n;
}

uint64_t lvni_trainer_staged_bytes(const lvni_trainer_options *o)
{
    if (o->comm == NULL || !lvni_dist_comm_adds_between_devices(o->comm)) {
        return 0;
    }
    const int world = lvni_dist_comm_world(o->comm);
    const int64_t n = o->model->n_weights + o->model->n_records,
                  bucket = o->bucket_bytes / (int64_t)sizeof(float);
    return lvni_dist_device_sum_bytes(count_leaves(&o->plan, world), bucket < n ? bucket : n,
                                      world);
}

static size_t numbers_room(const lvni_trainer_staged *s)
{
    return (lvni_trainer_deferred_numbers_room(s->o.deferred) + 7) / 8 * 8;
}

lvn_status lvni_trainer_staged_make_sum(lvni_trainer_staged *s)
{
    const lvni_trainer_staged_options *o = &s->o;
    const int world = lvni_dist_comm_world(o->comm);
    s->n_leaves = count_leaves(o->deferred->plan, world);
    s->leaves = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)s->n_leaves, sizeof *s->leaves);
    s->bytes = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)world, sizeof *s->bytes);
    s->numbers_of = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)world, numbers_room(s));
    if (s->leaves == NULL || s->bytes == NULL || s->numbers_of == NULL) {
        return LVN_ERR_MEMORY;
    }
    s->first = lvni_tensor_host_take(o->device, sizeof *s->first);
    const lvni_dist_device_sum_options sum = {.comm = o->comm,
                                              .device = o->device,
                                              .stream = lvni_tensor_device_stream(o->device),
                                              .micro_batches =
                                                  (int)o->deferred->plan->micro_batches,
                                              .leaves = s->n_leaves,
                                              .bucket = o->bucket};
    LVN_TRY(s->first != NULL && sum.stream != NULL ? LVN_OK : lvn_last_error()->code);
    return lvni_dist_device_sum_create(&sum, &s->sum);
}

void lvni_trainer_staged_end_sum(lvni_trainer_staged *s)
{
    lvni_dist_device_sum_destroy(s->sum);
    if (s->first != NULL) {
        lvni_tensor_host_give(s->o.device, s->first, sizeof *s->first);
    }
    lvni_core_free(s->leaves);
    lvni_core_free(s->bytes);
    lvni_core_free(s->numbers_of);
}

/* ---- on the communication thread ---- */

/* Losses, weights and metrics of all ranks. */
static lvn_status exchange_numbers(const lvni_trainer_staged_job *j)
{
    lvni_trainer_staged *s = j->of;
    size_t bytes = 0;
    LVN_TRY(s->backend->event_wait(j->event[0]));
    if (s->backend->stream_failed(j->stream)) {
        LVN_FAIL(LVN_ERR_ABORTED, "the device failed before its gradients were added");
    }
    LVN_TRY(lvni_trainer_deferred_write_numbers(s->o.deferred, j->place, s->numbers, &bytes));
    const uint64_t own = bytes;
    const int world = lvni_dist_comm_world(s->o.comm);
    LVN_TRY(lvni_dist_comm_all_gather(s->o.comm, &own, sizeof own, s->bytes));
    uint64_t most = 0;
    for (int rank = 0; rank < world; rank++) {
        most = s->bytes[rank] > most ? s->bytes[rank] : most;
    }
    most = (most + 7) / 8 * 8;
    if (most > numbers_room(s)) {
        LVN_FAIL(LVN_ERR_INTERNAL, "numbers of %llu bytes, room is for %zu",
                 (unsigned long long)most, numbers_room(s));
    }
    LVN_TRY(lvni_dist_comm_all_gather(s->o.comm, s->numbers, (size_t)most, s->numbers_of));
    for (int rank = 0; rank < world; rank++) {
        LVN_TRY(lvni_trainer_deferred_read_numbers(s->o.deferred, j->place, rank,
                                                   s->numbers_of + (size_t)rank * most,
                                                   (size_t)s->bytes[rank], s->losses));
    }
    return LVN_OK;
}

/* The stream waits for the end of this; what it does next reads losses and `first`. */
static lvn_status wait_for_sum(void *user)
{
    const lvni_trainer_staged_job *j = user;
    lvni_trainer_staged *s = j->of;
    lvn_status status = exchange_numbers(j);
    const lvn_error error = *lvn_last_error();
    const lvn_status summed = lvni_dist_device_sum_wait(s->sum, j->phase);
    if (status != LVN_OK) {
        (void)lvn_error_adopt(&error);
    } else {
        status = summed;
    }
    for (size_t i = 0; status != LVN_OK && i < s->losses_bytes / sizeof *s->losses; i++) {
        s->losses[i] = NAN; /* nothing is updated from here on */
        *s->first = NAN;    /* also in 16-mixed, where losses do not count */
    }
    return status;
}

/* ---- on the step's thread ---- */

lvn_status lvni_trainer_staged_keep(lvni_trainer_staged_job *j, lvni_nn_set *const *set)
{
    for (int i = 0; i < j->n_leaves; i++) {
        j->mine[i] = set[i]->data;
    }
    return j->of->backend->event_record(j->event[0], j->stream);
}

/* Ranks own runs of micro-batches in their order, so this is the order of the tree. */
static lvn_status list_leaves(const lvni_trainer_staged *s, int *n)
{
    *n = 0;
    for (int rank = 0; rank < lvni_dist_comm_world(s->o.comm); rank++) {
        const lvni_trainer_staged_head head = lvni_trainer_staged_head_of(s, rank);
        for (int i = 0; i < head.leaves && i < LVNI_TREE_PENDING; i++) {
            if (*n == s->n_leaves) {
                LVN_FAIL(LVN_ERR_INTERNAL, "more than %d sub-trees of all ranks", s->n_leaves);
            }
            s->leaves[(*n)++] = (lvni_plan_tree_node){head.leaf[i].begin, head.leaf[i].end, rank};
        }
    }
    return LVN_OK;
}

static lvn_status add_buckets(const lvni_trainer_staged_job *j, float *total)
{
    const lvni_trainer_staged *s = j->of;
    const int64_t n = s->o.model->n_weights + s->o.model->n_records;
    for (int64_t at = 0; at < n; at += s->o.bucket) {
        const lvni_plan_range bucket = {.start = at,
                                        .count = n - at < s->o.bucket ? n - at : s->o.bucket};
        lvni_plan_range piece[2];
        const int pieces = lvni_trainer_staged_cut(s->o.model, j->begin, j->end, bucket, piece);
        for (int k = 0; k < pieces; k++) {
            LVN_TRY(
                lvni_dist_device_sum_add(s->sum, j->mine, total, piece[k].start, piece[k].count));
        }
    }
    return LVN_OK;
}

/* The device goes on when the job is done. */
static void reached(void *user)
{
    const lvni_trainer_staged_job *j = user;
    lvni_dist_device_sum_reached(j->of->sum, j->phase);
    (void)lvni_trainer_comm_thread_wait(j->of->thread, j->number);
}

lvn_status lvni_trainer_staged_add(lvni_trainer_staged_job *j, float *total)
{
    lvni_trainer_staged *s = j->of;
    int n = 0;
    LVN_TRY(list_leaves(s, &n));
    LVN_TRY(lvni_dist_device_sum_begin(s->sum, s->leaves, n, &j->phase));
    LVN_TRY(add_buckets(j, total));
    /* It comes back as it is, or as NaN. */
    float *first = total + (j->begin < j->end ? j->begin : s->o.model->n_weights);
    LVN_TRY(s->backend->copy(j->stream, s->first, first, sizeof *first));
    /* written before the thread or the device can read it */
    j->number = lvni_trainer_comm_thread_give(s->thread, wait_for_sum, j);
    lvni_trainer_deferred_expect(s->o.deferred, j->place, s->thread, j->number);
    const lvn_status status = s->backend->host_call(j->stream, reached, j);
    if (status != LVN_OK) { /* the job would wait for it */
        lvni_dist_device_sum_reached(s->sum, j->phase);
        return status;
    }
    return s->backend->copy(j->stream, first, s->first, sizeof *first);
}

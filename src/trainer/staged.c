/* Gradients of a rank on a device by way of the host (staged.h). Two jobs may be under way: one is
 * reduced while the copies of the next are submitted, so there are events of both. Host memory
 * there is once: the device fills it behind what empties it, in the order of its stream. */
#include "core/error.h"
#include "kernels/flat.h"
#include "tensor/device.h"
#include "trainer/comm_thread.h"
#include "trainer/staged_impl.h"

#include <math.h>
#include <string.h>

/* ---- creation ---- */

/* Only between devices everyone has to know the leaves of all. */
static size_t head_bytes(const lvni_trainer_staged *s)
{
    return s->sum != NULL ? sizeof(lvni_trainer_staged_head)
                          : offsetof(lvni_trainer_staged_head, leaf);
}

static lvn_status make_staging(lvni_trainer_staged *s)
{
    const lvni_trainer_staged_options *o = &s->o;
    s->set_bytes = (size_t)(o->model->n_weights + o->model->n_records) * sizeof(float);
    s->staging = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)o->sets, sizeof *s->staging);
    LVN_TRY(s->staging == NULL ? LVN_ERR_MEMORY : LVN_OK);
    for (int i = 0; i < o->sets; i++) {
        s->staging[i] = lvni_tensor_host_take(o->device, s->set_bytes);
        LVN_TRY(s->staging[i] != NULL ? LVN_OK : lvn_last_error()->code);
    }
    return LVN_OK;
}

static lvn_status make_host(lvni_trainer_staged *s)
{
    const lvni_trainer_staged_options *o = &s->o;
    const size_t world = (size_t)lvni_dist_comm_world(o->comm);
    s->losses_bytes = (size_t)lvni_trainer_deferred_micro_batches(o->deferred) * 2 * sizeof(double);
    s->room = (head_bytes(s) + o->message + 7) / 8 * 8; /* records of ranks stay aligned */
    s->numbers =
        lvni_core_calloc(LVNI_TAG_TRAINER, 1, lvni_trainer_deferred_numbers_room(o->deferred));
    s->mine = lvni_core_calloc(LVNI_TAG_TRAINER, 1, s->room);
    s->all = lvni_core_calloc(LVNI_TAG_TRAINER, world, s->room);
    if (s->numbers == NULL || s->mine == NULL || s->all == NULL) {
        return LVN_ERR_MEMORY;
    }
    s->losses = lvni_tensor_host_take(o->device, s->losses_bytes);
    return s->losses != NULL ? LVN_OK : lvn_last_error()->code;
}

static lvn_status make_job(lvni_trainer_staged *s, lvni_trainer_staged_job *j)
{
    j->of = s;
    j->event = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)s->n_events, sizeof *j->event);
    LVN_TRY(j->event == NULL ? LVN_ERR_MEMORY : LVN_OK);
    for (int b = 0; b < s->n_events; b++) {
        LVN_TRY(s->backend->event_create(lvni_tensor_device_state(s->o.device), &j->event[b]));
    }
    return LVN_OK;
}

lvn_status lvni_trainer_staged_create(const lvni_trainer_staged_options *options,
                                      lvni_trainer_staged **out)
{
    *out = NULL;
    lvni_trainer_staged *s = LVNI_NEW(LVNI_TAG_TRAINER, lvni_trainer_staged);
    if (s == NULL) {
        return LVN_ERR_MEMORY;
    }
    s->o = *options;
    s->backend = lvni_tensor_device_backend(options->device);
    lvn_status status;
    if (options->reduction != NULL) {
        s->n_events = s->n_buckets = lvni_dist_reduction_buckets(options->reduction);
        LVNI_TRY_DONE(status, make_staging(s));
    } else {
        s->n_events = 1;
        LVNI_TRY_DONE(status, lvni_trainer_staged_make_sum(s));
    }
    LVNI_TRY_DONE(status, make_host(s));
    for (int i = 0; i < LVNI_STAGED_JOBS; i++) {
        LVNI_TRY_DONE(status, make_job(s, &s->job[i]));
    }
    LVNI_TRY_DONE(status, lvni_trainer_comm_thread_create(&s->thread));
    *out = s;
    return LVN_OK;
done:
    lvni_trainer_staged_destroy(s);
    return status;
}

void lvni_trainer_staged_destroy(lvni_trainer_staged *s)
{
    if (s == NULL) {
        return;
    }
    for (int i = 0; i < LVNI_STAGED_JOBS && s->thread != NULL;
         i++) { /* it may wait for a job, or copy */
        if (s->job[i].stream != NULL) {
            (void)s->backend->stream_wait(s->job[i].stream);
        }
    }
    lvni_trainer_comm_thread_destroy(s->thread);
    for (int i = 0; i < LVNI_STAGED_JOBS; i++) {
        for (int b = 0; s->job[i].event != NULL && b < s->n_events; b++) {
            if (s->job[i].event[b] != NULL) {
                s->backend->event_destroy(s->job[i].event[b]);
            }
        }
        lvni_core_free((void *)s->job[i].event);
    }
    for (int i = 0; s->staging != NULL && i < s->o.sets; i++) {
        lvni_tensor_host_give(s->o.device, s->staging[i], s->set_bytes);
    }
    if (s->losses != NULL) {
        lvni_tensor_host_give(s->o.device, s->losses, s->losses_bytes);
    }
    lvni_trainer_staged_end_sum(s);
    lvni_core_free((void *)s->staging);
    lvni_core_free(s->numbers);
    lvni_core_free(s->mine);
    lvni_core_free(s->all);
    lvni_core_free(s);
}

/* ---- on the communication thread ---- */

int lvni_trainer_staged_cut(const lvni_nn_model *m, int64_t begin, int64_t end, lvni_plan_range r,
                            lvni_plan_range piece[2])
{
    const int64_t side[2][2] = {{begin, end}, {m->n_weights, m->n_weights + m->n_records}};
    int n = 0;
    for (int i = 0; i < 2; i++) {
        const int64_t from = side[i][0] > r.start ? side[i][0] : r.start,
                      to = side[i][1] < r.start + r.count ? side[i][1] : r.start + r.count;
        if (from < to) {
            piece[n++] = (lvni_plan_range){.start = from, .count = to - from};
        }
    }
    return n;
}

static void fill_sets(const lvni_trainer_staged_job *j, int b)
{
    const lvni_trainer_staged *s = j->of;
    lvni_plan_range piece[2];
    const int n = lvni_trainer_staged_cut(s->o.model, j->begin, j->end,
                                          lvni_dist_reduction_bucket(s->o.reduction, b), piece);
    for (int i = 0; i < j->n_leaves; i++) {
        float *set = lvni_dist_reduction_set(s->o.reduction, i);
        for (int k = 0; k < n; k++) {
            memcpy(set + piece[k].start, s->staging[i] + piece[k].start,
                   (size_t)piece[k].count * sizeof *set);
        }
    }
}

/* One wait for the device per bucket. What failed on the device is found by the step's thread. */
static lvn_status send_buckets(const lvni_trainer_staged_job *j)
{
    const lvni_trainer_staged *s = j->of;
    for (int b = 0; b < s->n_buckets; b++) {
        LVN_TRY(s->backend->event_wait(j->event[b]));
        if (s->backend->stream_failed(j->stream)) {
            LVN_FAIL(LVN_ERR_ABORTED, "the device failed before its gradients were added");
        }
        fill_sets(j, b);
        lvni_dist_reduction_ready(s->o.reduction, b);
        while (lvni_dist_reduction_help(s->o.reduction)) {
        }
    }
    return LVN_OK;
}

static void help(void *user)
{
    while (lvni_dist_reduction_help(user)) {
    }
}

/* The total, and the numbers of all ranks. */
static lvn_status finish(const lvni_trainer_staged_job *j)
{
    lvni_trainer_staged *s = j->of;
    size_t bytes = 0;
    LVN_TRY(lvni_trainer_deferred_write_numbers(s->o.deferred, j->place, s->numbers, &bytes));
    lvni_kernels_flat_team(help, s->o.reduction);
    LVN_TRY(lvni_dist_reduction_finish(s->o.reduction, s->numbers, bytes));
    for (int rank = 0; rank < lvni_dist_comm_world(s->o.comm); rank++) {
        const void *message = lvni_dist_reduction_get_message(s->o.reduction, rank, &bytes);
        LVN_TRY(lvni_trainer_deferred_read_numbers(s->o.deferred, j->place, rank, message, bytes,
                                                   s->losses));
    }
    lvni_plan_range piece[2];
    const lvni_plan_range all = {.start = 0,
                                 .count = s->o.model->n_weights + s->o.model->n_records};
    const float *total = lvni_dist_reduction_total(s->o.reduction);
    for (int k = 0, n = lvni_trainer_staged_cut(s->o.model, j->begin, j->end, all, piece); k < n;
         k++) {
        memcpy(s->staging[0] + piece[k].start, total + piece[k].start,
               (size_t)piece[k].count * sizeof *total);
    }
    s->times = lvni_dist_reduction_last(s->o.reduction);
    return LVN_OK;
}

static lvn_status reduce_now(const lvni_trainer_staged_job *j)
{
    const lvni_trainer_staged *s = j->of;
    /* the device has read what came back of the job before */
    LVN_TRY(s->backend->event_wait(j->event[0]));
    lvni_dist_reduction_use(s->o.reduction, j->begin, j->end);
    LVN_TRY(lvni_dist_reduction_begin(s->o.reduction, j->leaf, j->n_leaves));
    LVN_TRY(send_buckets(j));
    return finish(j);
}

static lvn_status reduce(void *user)
{
    const lvni_trainer_staged_job *j = user;
    lvni_trainer_staged *s = j->of;
    const lvn_status status = reduce_now(j);
    for (size_t i = 0; status != LVN_OK && i < s->losses_bytes / sizeof *s->losses; i++) {
        s->losses[i] = NAN;            /* nothing is updated from here on */
        s->staging[0][j->begin] = NAN; /* also in 16-mixed, where losses do not count */
    }
    return status;
}

static lvn_status gather(void *user)
{
    const lvni_trainer_staged *s = user;
    return lvni_dist_comm_all_gather(s->o.comm, s->mine, s->room, s->all);
}

/* ---- on the step's thread ---- */

static lvn_status copy_bucket(const lvni_trainer_staged_job *j, lvni_nn_set *const *set, int b)
{
    const lvni_trainer_staged *s = j->of;
    lvni_plan_range piece[2];
    const int n = lvni_trainer_staged_cut(s->o.model, j->begin, j->end,
                                          lvni_dist_reduction_bucket(s->o.reduction, b), piece);
    for (int i = 0; i < j->n_leaves; i++) {
        for (int k = 0; k < n; k++) {
            LVN_TRY(s->backend->copy(j->stream, s->staging[i] + piece[k].start,
                                     set[i]->data + piece[k].start,
                                     (size_t)piece[k].count * sizeof(float)));
        }
    }
    return s->backend->event_record(j->event[b], j->stream);
}

lvn_status lvni_trainer_staged_send(lvni_trainer_staged *s, const lvni_plan_tree_node *leaf,
                                    lvni_nn_set *const *set, int n)
{
    const lvni_nn_model *m = s->o.model;
    lvni_trainer_staged_job *j =
        &s->job[s->n_sent % LVNI_STAGED_JOBS]; /* the last exchange came after it */
    j->n_leaves = n;
    j->begin = m->trained_begin;
    j->end = m->trained_end;
    j->place = lvni_trainer_deferred_here(s->o.deferred);
    j->stream = lvni_tensor_device_stream(s->o.device);
    if (j->stream == NULL) {
        return lvn_last_error()->code;
    }
    for (int i = 0; i < n; i++) {
        j->leaf[i] = (lvni_plan_tree_node){leaf[i].begin, leaf[i].end, i};
    }
    LVN_TRY(lvni_trainer_deferred_send_numbers(s->o.deferred, j->place, j->stream));
    if (s->sum != NULL) {
        return lvni_trainer_staged_keep(j, set);
    }
    for (int b = 0; b < s->n_buckets; b++) {
        LVN_TRY(copy_bucket(j, set, b));
    }
    return LVN_OK;
}

lvn_status lvni_trainer_staged_exchange(lvni_trainer_staged *s, const void *message, size_t bytes)
{
    const lvni_trainer_staged_job *j = &s->job[s->n_sent % LVNI_STAGED_JOBS];
    lvni_trainer_staged_head head = {.bytes = (int64_t)bytes, .leaves = j->n_leaves};
    for (int i = 0; i < j->n_leaves; i++) {
        head.leaf[i].begin = j->leaf[i].begin;
        head.leaf[i].end = j->leaf[i].end;
    }
    if (head_bytes(s) + bytes > s->room) {
        LVN_FAIL(LVN_ERR_INTERNAL, "a message of %zu bytes, room is for %zu", bytes, s->room);
    }
    memcpy(s->mine, &head, head_bytes(s));
    memcpy(s->mine + head_bytes(s), message, bytes);
    return lvni_trainer_comm_thread_wait(s->thread,
                                         lvni_trainer_comm_thread_give(s->thread, gather, s));
}

lvni_trainer_staged_head lvni_trainer_staged_head_of(const lvni_trainer_staged *s, int rank)
{
    lvni_trainer_staged_head head;
    memcpy(&head, s->all + (size_t)rank * s->room, head_bytes(s));
    return head;
}

const void *lvni_trainer_staged_reported(const lvni_trainer_staged *s, int rank, size_t *bytes)
{
    *bytes = (size_t)lvni_trainer_staged_head_of(s, rank).bytes;
    return s->all + (size_t)rank * s->room + head_bytes(s);
}

bool lvni_trainer_staged_any(const lvni_trainer_staged *s)
{
    bool any = false;
    for (int rank = 0; rank < lvni_dist_comm_world(s->o.comm); rank++) {
        any = any || lvni_trainer_staged_head_of(s, rank).leaves > 0;
    }
    return any;
}

/* The device goes on when the job is done. */
static void wait_for_job(void *user)
{
    const lvni_trainer_staged_job *j = user;
    (void)lvni_trainer_comm_thread_wait(j->of->thread, j->number);
}

static lvn_status receive_copies(lvni_trainer_staged_job *j, float *total)
{
    lvni_trainer_staged *s = j->of;
    lvni_plan_range piece[2];
    const lvni_plan_range all = {.start = 0,
                                 .count = s->o.model->n_weights + s->o.model->n_records};
    /* written before the thread or the device can read it */
    j->number = lvni_trainer_comm_thread_give(s->thread, reduce, j);
    lvni_trainer_deferred_expect(s->o.deferred, j->place, s->thread, j->number);
    LVN_TRY(s->backend->host_call(j->stream, wait_for_job, j));
    for (int k = 0, n = lvni_trainer_staged_cut(s->o.model, j->begin, j->end, all, piece); k < n;
         k++) {
        LVN_TRY(s->backend->copy(j->stream, total + piece[k].start, s->staging[0] + piece[k].start,
                                 (size_t)piece[k].count * sizeof *total));
    }
    return LVN_OK;
}

lvn_status lvni_trainer_staged_receive(lvni_trainer_staged *s, float *total)
{
    lvni_trainer_staged_job *j = &s->job[s->n_sent++ % LVNI_STAGED_JOBS];
    LVN_TRY(s->sum != NULL ? lvni_trainer_staged_add(j, total) : receive_copies(j, total));
    const int64_t begin = j->begin, n = j->end - begin; /* sums as one rank has them */
    lvni_kernels_flat_sums_on_device(total + begin, n,
                                     s->o.deferred->sums + begin / LVNI_FLAT_BLOCK);
    return lvni_trainer_deferred_receive_losses(s->o.deferred, j->stream, s->losses);
}

lvn_status lvni_trainer_staged_rest(lvni_trainer_staged *s)
{
    return s->n_sent == 0 ? LVN_OK
                          : lvni_trainer_comm_thread_wait(
                                s->thread, s->job[(s->n_sent - 1) % LVNI_STAGED_JOBS].number);
}

lvni_dist_reduction_times lvni_trainer_staged_times(lvni_trainer_staged *s)
{
    (void)lvni_trainer_staged_rest(s);
    return s->times;
}

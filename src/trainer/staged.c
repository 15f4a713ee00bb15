/* Gradients of a rank on a device by way of the host (staged.h). Two jobs may be under way: one is
 * reduced while the copies of the next are submitted, so there are events of both. Host memory
 * there is once: the device fills it behind what empties it, in the order of its stream. */
#include "trainer/staged.h"

#include "kernels/flat.h"
#include "tensor/device.h"
#include "trainer/comm_thread.h"
#include "trainer/late.h"

#include <math.h>
#include <string.h>

enum { JOBS = 2 };

typedef struct job {
    lvni_trainer_staged *of;
    void **event; /* (n_buckets): the bucket is in host memory */
    lvni_plan_tree_node leaf[LVNI_TREE_PENDING];
    int n_leaves;
    int64_t begin, end; /* what the phase trains */
    lvni_trainer_late_place place;
    void *stream;
    uint64_t number;
} job;

/* How a rank's message begins in an exchange. */
typedef struct message_head {
    int64_t bytes, leaves;
} message_head;

struct lvni_trainer_staged {
    lvni_trainer_staged_options o;
    const lvn_backend *backend;
    lvni_trainer_comm_thread *thread;
    int n_buckets, n_jobs;
    float *
        *staging; /* (o.sets): host memory of the device; the total comes back through the first */
    double *losses; /* the same, of all micro-batches of all ranks; then their weights */
    size_t set_bytes, losses_bytes;
    unsigned char *numbers; /* this rank's losses, weights and metrics, as they are sent */
    job job[JOBS];
    uint64_t n_sent;                 /* phases */
    unsigned char *mine;             /* this rank's message of an exchange */
    unsigned char *all;              /* (world) */
    size_t room;                     /* of one */
    uint64_t exchanged;              /* job that the last exchange was */
    lvni_dist_reduction_times times; /* of the last job; read when it is done */
};

/* ---- creation ---- */

static lvn_status make_host(lvni_trainer_staged *s)
{
    const lvni_trainer_staged_options *o = &s->o;
    const size_t world = (size_t)lvni_dist_comm_world(o->comm);
    s->set_bytes = (size_t)(o->model->n_weights + o->model->n_records) * sizeof(float);
    s->losses_bytes = (size_t)lvni_trainer_late_micro_batches(o->late) * 2 * sizeof(double);
    s->room = (sizeof(message_head) + o->message + 7) / 8 * 8; /* records of ranks stay aligned */
    s->staging = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)o->sets, sizeof *s->staging);
    s->numbers = lvni_core_calloc(LVNI_TAG_TRAINER, 1, lvni_trainer_late_numbers_room(o->late));
    s->mine = lvni_core_calloc(LVNI_TAG_TRAINER, 1, s->room);
    s->all = lvni_core_calloc(LVNI_TAG_TRAINER, world, s->room);
    if (s->staging == NULL || s->numbers == NULL || s->mine == NULL || s->all == NULL) {
        return LVN_ERR_MEMORY;
    }
    s->losses = lvni_tensor_host_take(o->device, s->losses_bytes);
    for (int i = 0; i < o->sets && s->losses != NULL; i++) {
        s->staging[i] = lvni_tensor_host_take(o->device, s->set_bytes);
        LVN_TRY(s->staging[i] != NULL ? LVN_OK : lvn_last_error()->code);
    }
    return s->losses != NULL ? LVN_OK : lvn_last_error()->code;
}

static lvn_status make_job(lvni_trainer_staged *s, job *j)
{
    j->of = s;
    j->event = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)s->n_buckets, sizeof *j->event);
    lvn_status status = j->event == NULL ? LVN_ERR_MEMORY : LVN_OK;
    for (int b = 0; b < s->n_buckets && status == LVN_OK; b++) {
        status = s->backend->event_create(lvni_tensor_device_state(s->o.device), &j->event[b]);
    }
    return status;
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
    s->n_buckets = lvni_dist_reduction_buckets(options->reduction);
    lvn_status status = make_host(s);
    for (int i = 0; i < JOBS && status == LVN_OK; i++) {
        status = make_job(s, &s->job[i]);
    }
    status = status == LVN_OK ? lvni_trainer_comm_thread_create(&s->thread) : status;
    if (status != LVN_OK) {
        lvni_trainer_staged_destroy(s);
        return status;
    }
    *out = s;
    return LVN_OK;
}

void lvni_trainer_staged_destroy(lvni_trainer_staged *s)
{
    if (s == NULL) {
        return;
    }
    for (int i = 0; i < JOBS && s->thread != NULL; i++) { /* it may wait for a job, or copy */
        if (s->job[i].stream != NULL) {
            (void)s->backend->stream_wait(s->job[i].stream);
        }
    }
    lvni_trainer_comm_thread_destroy(s->thread);
    for (int i = 0; i < JOBS; i++) {
        for (int b = 0; s->job[i].event != NULL && b < s->n_buckets; b++) {
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
    lvni_core_free((void *)s->staging);
    lvni_core_free(s->numbers);
    lvni_core_free(s->mine);
    lvni_core_free(s->all);
    lvni_core_free(s);
}

/* ---- on the communication thread ---- */

/* What is added of floats [at, at + n) of a set: up to two pieces, of what the phase trains and of
 * what lies behind the weights. */
static int cut(const lvni_nn_model *m, int64_t begin, int64_t end, lvni_plan_range r,
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

static void fill_sets(const job *j, int b)
{
    const lvni_trainer_staged *s = j->of;
    lvni_plan_range piece[2];
    const int n =
        cut(s->o.model, j->begin, j->end, lvni_dist_reduction_bucket(s->o.reduction, b), piece);
    for (int i = 0; i < j->n_leaves; i++) {
        float *set = lvni_dist_reduction_set(s->o.reduction, i);
        for (int k = 0; k < n; k++) {
            memcpy(set + piece[k].start, s->staging[i] + piece[k].start,
                   (size_t)piece[k].count * sizeof *set);
        }
    }
}

/* One wait for the device per bucket. What failed on the device is found by the step's thread. */
static lvn_status send_buckets(const job *j)
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
static lvn_status finish(const job *j)
{
    lvni_trainer_staged *s = j->of;
    size_t bytes = 0;
    LVN_TRY(lvni_trainer_late_write_numbers(s->o.late, j->place, s->numbers, &bytes));
    lvni_kernels_flat_team(help, s->o.reduction);
    LVN_TRY(lvni_dist_reduction_finish(s->o.reduction, s->numbers, bytes));
    for (int rank = 0; rank < lvni_dist_comm_world(s->o.comm); rank++) {
        const void *message = lvni_dist_reduction_get_message(s->o.reduction, rank, &bytes);
        LVN_TRY(
            lvni_trainer_late_read_numbers(s->o.late, j->place, rank, message, bytes, s->losses));
    }
    lvni_plan_range piece[2];
    const lvni_plan_range all = {.start = 0,
                                 .count = s->o.model->n_weights + s->o.model->n_records};
    const float *total = lvni_dist_reduction_total(s->o.reduction);
    for (int k = 0, n = cut(s->o.model, j->begin, j->end, all, piece); k < n; k++) {
        memcpy(s->staging[0] + piece[k].start, total + piece[k].start,
               (size_t)piece[k].count * sizeof *total);
    }
    s->times = lvni_dist_reduction_last(s->o.reduction);
    return LVN_OK;
}

static lvn_status reduce(void *user)
{
    const job *j = user;
    lvni_trainer_staged *s = j->of;
    /* the device has read what came back of the job before */
    lvn_status status = s->backend->event_wait(j->event[0]);
    lvni_dist_reduction_use(s->o.reduction, j->begin, j->end);
    status =
        status != LVN_OK ? status : lvni_dist_reduction_begin(s->o.reduction, j->leaf, j->n_leaves);
    status = status == LVN_OK ? send_buckets(j) : status;
    status = status == LVN_OK ? finish(j) : status;
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

static lvn_status copy_bucket(const job *j, lvni_nn_set *const *set, int b)
{
    const lvni_trainer_staged *s = j->of;
    lvni_plan_range piece[2];
    const int n =
        cut(s->o.model, j->begin, j->end, lvni_dist_reduction_bucket(s->o.reduction, b), piece);
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
    job *j = &s->job[s->n_sent % JOBS]; /* the last exchange came after it */
    j->n_leaves = n;
    j->begin = m->trained_begin;
    j->end = m->trained_end;
    j->place = lvni_trainer_late_here(s->o.late);
    j->stream = lvni_tensor_device_stream(s->o.device);
    if (j->stream == NULL) {
        return lvn_last_error()->code;
    }
    for (int i = 0; i < n; i++) {
        j->leaf[i] = (lvni_plan_tree_node){leaf[i].begin, leaf[i].end, i};
    }
    LVN_TRY(lvni_trainer_late_send_numbers(s->o.late, j->place, j->stream));
    for (int b = 0; b < s->n_buckets; b++) {
        LVN_TRY(copy_bucket(j, set, b));
    }
    return LVN_OK;
}

lvn_status lvni_trainer_staged_exchange(lvni_trainer_staged *s, const void *message, size_t bytes)
{
    const message_head head = {(int64_t)bytes, s->job[s->n_sent % JOBS].n_leaves};
    if (sizeof head + bytes > s->room) {
        LVN_FAIL(LVN_ERR_INTERNAL, "a message of %zu bytes, room is for %zu", bytes, s->room);
    }
    memcpy(s->mine, &head, sizeof head);
    memcpy(s->mine + sizeof head, message, bytes);
    return lvni_trainer_comm_thread_wait(s->thread,
                                         lvni_trainer_comm_thread_give(s->thread, gather, s));
}

static message_head head_of(const lvni_trainer_staged *s, int rank)
{
    message_head head;
    memcpy(&head, s->all + (size_t)rank * s->room, sizeof head);
    return head;
}

const void *lvni_trainer_staged_reported(const lvni_trainer_staged *s, int rank, size_t *bytes)
{
    *bytes = (size_t)head_of(s, rank).bytes;
    return s->all + (size_t)rank * s->room + sizeof(message_head);
}

bool lvni_trainer_staged_any(const lvni_trainer_staged *s)
{
    bool any = false;
    for (int rank = 0; rank < lvni_dist_comm_world(s->o.comm); rank++) {
        any = any || head_of(s, rank).leaves > 0;
    }
    return any;
}

/* The device goes on when the job is done. */
static void wait_for_job(void *user)
{
    const job *j = user;
    (void)lvni_trainer_comm_thread_wait(j->of->thread, j->number);
}

lvn_status lvni_trainer_staged_receive(lvni_trainer_staged *s, float *total)
{
    job *j = &s->job[s->n_sent++ % JOBS];
    lvni_plan_range piece[2];
    const lvni_plan_range all = {.start = 0,
                                 .count = s->o.model->n_weights + s->o.model->n_records};
    /* written before the thread or the device can read it */
    j->number = lvni_trainer_comm_thread_give(s->thread, reduce, j);
    lvni_trainer_late_expect(s->o.late, j->place, s->thread, j->number);
    LVN_TRY(s->backend->host_call(j->stream, wait_for_job, j));
    for (int k = 0, n = cut(s->o.model, j->begin, j->end, all, piece); k < n; k++) {
        LVN_TRY(s->backend->copy(j->stream, total + piece[k].start, s->staging[0] + piece[k].start,
                                 (size_t)piece[k].count * sizeof *total));
    }
    const int64_t begin = j->begin, n = j->end - begin; /* sums as one rank has them */
    lvni_kernels_flat_sums_there(total + begin, n, s->o.late->sums + begin / LVNI_FLAT_BLOCK);
    return lvni_trainer_late_receive_losses(s->o.late, j->stream, s->losses);
}

lvn_status lvni_trainer_staged_rest(lvni_trainer_staged *s)
{
    return s->n_sent == 0
               ? LVN_OK
               : lvni_trainer_comm_thread_wait(s->thread, s->job[(s->n_sent - 1) % JOBS].number);
}

lvni_dist_reduction_times lvni_trainer_staged_times(lvni_trainer_staged *s)
{
    (void)lvni_trainer_staged_rest(s);
    return s->times;
}

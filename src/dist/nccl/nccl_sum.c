/* Sums of gradients between devices (device_sum.h): slices of leaves by ncclSend and ncclRecv, all
 * pairs at once, additions by the backend in the order of the tree, and the sums back the same
 * way. */
#include "core/alloc.h"
#include "core/machine.h"
#include "core/thread.h"
#include "dist/device_sum.h"
#include "dist/nccl/nccl_impl.h"
#include "dist/sum_plan.h"
#include "dist/transport.h"
#include "tensor/device.h"

#include <string.h>

struct lvni_dist_device_sum {
    lvni_dist_device_sum_options o;
    lvni_nccl_comm nccl;
    const lvn_backend *backend;
    void *native; /* the stream as NCCL takes it */
    int rank, world;
    float *scratch; /* (leaves, slice) of the device: what others sent */
    size_t got;
    int64_t slice; /* the most floats of one */
    lvni_dist_sum_plan plan;
    lvni_plan_tree_node *leaf; /* (leaves) of the phase */
    float **at;                /* (leaves): where this rank's slice of it is */
    int n_leaves;
    pthread_mutex_t lock; /* a leaf lock, of what follows */
    pthread_cond_t change;
    uint64_t begun, reached; /* phases */
};

/* ---- creation ---- */

const char *lvni_dist_device_sum_missing(void)
{
    const char *missing;
    (void)lvni_nccl_load(&missing);
    return missing;
}

static int64_t units_of(int64_t n)
{
    return (n + LVN_FLAT_BLOCK - 1) / LVN_FLAT_BLOCK;
}

static int64_t most_of_slice(int64_t bucket, int world)
{
    return (units_of(bucket) + world - 1) / world * LVN_FLAT_BLOCK;
}

uint64_t lvni_dist_device_sum_bytes(int leaves, int64_t bucket, int world)
{
    return (uint64_t)leaves * (uint64_t)most_of_slice(bucket, world) * sizeof(float);
}

/* Where the slice of `rank` begins in a range of n floats. */
static int64_t border(int64_t n, int world, int rank)
{
    const int64_t at = units_of(n) * rank / world * LVN_FLAT_BLOCK;
    return at < n ? at : n;
}

/* Makes the device the thread's current one, as NCCL needs it. */
static lvn_status find_stream(lvni_dist_device_sum *s)
{
    const char *name = lvni_tensor_device_name(s->o.device), *missing;
    const lvni_nccl_api *api = lvni_nccl_load(&missing);
    s->native = s->backend->native_stream != NULL ? s->backend->native_stream(s->o.stream) : NULL;
    if (s->native == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "transport=nccl: %s has no streams that NCCL knows", name);
    }
    const bool sim = lvni_tensor_device_kind(s->o.device) == LVN_DEVICE_SIM;
    if (api != NULL && (api->use_sim != NULL) != sim) {
        LVN_FAIL(LVN_ERR_USAGE, "transport=nccl: this libnccl is for %s, and the rank is on %s",
                 api->use_sim != NULL ? "simulated accelerators" : "GPUs of NVIDIA", name);
    }
    if (api != NULL && sim) {
        api->use_sim(s->native);
    }
    return LVN_OK;
}

static lvn_status make(lvni_dist_device_sum *s)
{
    const size_t leaves = (size_t)s->o.leaves;
    LVN_TRY(find_stream(s));
    LVN_TRY(lvni_dist_sum_plan_init(&s->plan, s->o.leaves));
    s->leaf = lvni_core_calloc(LVNI_TAG_DIST, leaves, sizeof *s->leaf);
    s->at = lvni_core_calloc(LVNI_TAG_DIST, leaves, sizeof *s->at);
    if (s->leaf == NULL || s->at == NULL) {
        return LVN_ERR_MEMORY;
    }
    s->slice = most_of_slice(s->o.bucket, s->world);
    s->scratch = lvni_tensor_device_take(
        s->o.device, LVN_STREAM_COMPUTE,
        (size_t)lvni_dist_device_sum_bytes(s->o.leaves, s->o.bucket, s->world), &s->got);
    return s->scratch != NULL ? LVN_OK : lvn_last_error()->code;
}

lvn_status lvni_dist_device_sum_create(const lvni_dist_device_sum_options *options,
                                       lvni_dist_device_sum **out)
{
    *out = NULL;
    lvni_dist_device_sum *s = LVNI_NEW(LVNI_TAG_DIST, lvni_dist_device_sum);
    lvn_status status = s == NULL ? LVN_ERR_MEMORY : LVN_OK;
    if (s != NULL) {
        s->o = *options;
        s->backend = lvni_tensor_device_backend(options->device);
        s->rank = lvni_dist_comm_rank(options->comm);
        s->world = lvni_dist_comm_world(options->comm);
        pthread_mutex_init(&s->lock, NULL);
        lvni_core_cond_init(&s->change);
        status = make(s);
    }
    status = lvni_dist_comm_agree_status(options->comm, status, "transport=nccl");
    if (status == LVN_OK && s != NULL) {
        status = lvni_nccl_comm_init(&s->nccl, options->comm, options->timeout_s);
    }
    if (status != LVN_OK) {
        lvni_dist_device_sum_destroy(s);
        return status;
    }
    *out = s;
    return LVN_OK;
}

void lvni_dist_device_sum_destroy(lvni_dist_device_sum *s)
{
    if (s == NULL) {
        return;
    }
    lvni_nccl_comm_end(&s->nccl);
    if (s->scratch != NULL) {
        lvni_tensor_device_give(s->o.device, LVN_STREAM_COMPUTE, false, s->scratch, s->got);
    }
    pthread_cond_destroy(&s->change);
    pthread_mutex_destroy(&s->lock);
    lvni_dist_sum_plan_free(&s->plan);
    lvni_core_free(s->leaf);
    lvni_core_free((void *)s->at);
    lvni_core_free(s);
}

/* ---- a phase ---- */

lvn_status lvni_dist_device_sum_begin(lvni_dist_device_sum *s, const lvni_plan_tree_node *leaf,
                                      int n_leaves, uint64_t *number)
{
    LVN_ARG(n_leaves <= s->o.leaves, "%d sub-trees of all ranks, at most %d", n_leaves,
            s->o.leaves);
    for (int i = 0; i < n_leaves; i++) {
        LVN_ARG(lvni_dist_sum_is_node(s->o.micro_batches, leaf[i].begin, leaf[i].end) &&
                    leaf[i].slot >= 0 && leaf[i].slot < s->world &&
                    (i == 0 || leaf[i].begin >= leaf[i - 1].end),
                "micro-batches %d to %d of rank %d are not a sub-tree that follows the one before",
                leaf[i].begin, leaf[i].end - 1, leaf[i].slot);
        s->leaf[i] = leaf[i];
    }
    s->n_leaves = n_leaves;
    lvni_dist_sum_plan_make(&s->plan, s->o.micro_batches, leaf, n_leaves);
    pthread_mutex_lock(&s->lock);
    *number = ++s->begun;
    pthread_mutex_unlock(&s->lock);
    return LVN_OK;
}

/* A range that is being submitted. */
typedef struct range {
    float *const *mine;
    float *total;
    int64_t begin, n;
} range;

static int64_t start_of(const lvni_dist_device_sum *s, const range *r, int rank)
{
    return r->begin + border(r->n, s->world, rank);
}

static int64_t length_of(const lvni_dist_device_sum *s, const range *r, int rank)
{
    return border(r->n, s->world, rank + 1) - border(r->n, s->world, rank);
}

static int send(const lvni_dist_device_sum *s, const float *data, int64_t n, int peer)
{
    return n == 0 ? LVNI_NCCL_SUCCESS
                  : s->nccl.api->send(data, (size_t)n, LVNI_NCCL_FLOAT32, peer, s->nccl.handle,
                                      s->native);
}

static int receive(const lvni_dist_device_sum *s, float *data, int64_t n, int peer)
{
    return n == 0 ? LVNI_NCCL_SUCCESS
                  : s->nccl.api->receive(data, (size_t)n, LVNI_NCCL_FLOAT32, peer, s->nccl.handle,
                                         s->native);
}

static int first_error(int a, int b)
{
    return a != LVNI_NCCL_SUCCESS && a != LVNI_NCCL_IN_PROGRESS ? a : b;
}

/* Of every leaf each rank gets its slice. Between two ranks leaves go in their order. */
static int scatter(lvni_dist_device_sum *s, const range *r)
{
    int result = LVNI_NCCL_SUCCESS, own = 0, others = 0;
    const int64_t n = length_of(s, r, s->rank);
    for (int i = 0; i < s->n_leaves; i++) {
        if (s->leaf[i].slot != s->rank) {
            s->at[i] = s->scratch + others++ * s->slice;
            result = first_error(result, receive(s, s->at[i], n, s->leaf[i].slot));
            continue;
        }
        float *data = r->mine[own++];
        s->at[i] = data + start_of(s, r, s->rank);
        for (int peer = 0; peer < s->world; peer++) {
            if (peer != s->rank) {
                result = first_error(
                    result, send(s, data + start_of(s, r, peer), length_of(s, r, peer), peer));
            }
        }
    }
    return result;
}

static int gather(lvni_dist_device_sum *s, const range *r)
{
    int result = LVNI_NCCL_SUCCESS;
    const float *own = r->total + start_of(s, r, s->rank);
    for (int peer = 0; peer < s->world; peer++) {
        if (peer != s->rank) {
            result = first_error(result, send(s, own, length_of(s, r, s->rank), peer));
            result = first_error(
                result, receive(s, r->total + start_of(s, r, peer), length_of(s, r, peer), peer));
        }
    }
    return result;
}

static lvn_status exchange(lvni_dist_device_sum *s, const range *r,
                           int (*list)(lvni_dist_device_sum *s, const range *r))
{
    LVN_TRY(lvni_nccl_comm_enter(&s->nccl));
    int result = s->nccl.api->group_start();
    if (result == LVNI_NCCL_SUCCESS) {
        result = list(s, r);
        result = first_error(result, s->nccl.api->group_end()); /* it ends whatever went wrong */
    }
    lvni_nccl_comm_leave(&s->nccl);
    return lvni_nccl_comm_complete(&s->nccl, "a group of ncclSend and ncclRecv", result);
}

/* Every buffer is the left or the right side of one addition at most, so sums stay where their left
 * side was. */
static lvn_status add_slice(lvni_dist_device_sum *s, const range *r)
{
    float *reg[LVNI_SUM_REGISTERS] = {NULL}, *sum = s->at[0];
    const int64_t n = length_of(s, r, s->rank);
    for (int i = 0; i < s->plan.n_steps; i++) {
        const lvni_dist_sum_step *step = &s->plan.step[i];
        const int n_sources = s->plan.n_sources;
        float *a = step->a < n_sources ? s->at[step->a] : reg[step->a - n_sources];
        const float *b = step->b < n_sources ? s->at[step->b] : reg[step->b - n_sources];
        LVN_TRY(s->backend->flat.add(s->o.stream, a, b, n));
        if (step->into == LVNI_SUM_OUT) {
            sum = a;
        } else {
            reg[step->into - n_sources] = a;
        }
    }
    return s->backend->copy(s->o.stream, r->total + start_of(s, r, s->rank), sum,
                            (size_t)n * sizeof *sum);
}

static void count(const lvni_dist_device_sum *s, const range *r)
{
    const int64_t slice = length_of(s, r, s->rank), rest = r->n - slice;
    int64_t sent = slice * (s->world - 1), received = rest; /* of the sum */
    for (int i = 0; i < s->n_leaves; i++) {
        const bool own = s->leaf[i].slot == s->rank;
        sent += own ? rest : 0;
        received += own ? 0 : slice;
    }
    lvni_dist_comm_add_bytes(s->o.comm, (uint64_t)sent * sizeof(float),
                             (uint64_t)received * sizeof(float));
}

static lvn_status submit(lvni_dist_device_sum *s, const range *r)
{
    s->native = s->backend->native_stream(s->o.stream); /* the device is the thread's current one */
    LVN_TRY(exchange(s, r, scatter));
    LVN_TRY(length_of(s, r, s->rank) > 0 ? add_slice(s, r) : LVN_OK);
    return exchange(s, r, gather);
}

lvn_status lvni_dist_device_sum_add(lvni_dist_device_sum *s, float *const *mine, float *total,
                                    int64_t begin, int64_t n)
{
    const range r = {mine, total, begin, n};
    LVN_ARG(n <= s->o.bucket && s->n_leaves > 0, "a sum of %lld floats over %d sub-trees",
            (long long)n, s->n_leaves);
    const lvn_status status = submit(s, &r);
    if (status != LVN_OK) { /* what is on the stream may wait for what is not */
        const lvn_error error = *lvn_last_error();
        lvni_nccl_comm_abort(&s->nccl);
        return lvn_error_adopt(&error);
    }
    count(s, &r);
    return LVN_OK;
}

/* ---- waiting ---- */

void lvni_dist_device_sum_reached(lvni_dist_device_sum *s, uint64_t number)
{
    pthread_mutex_lock(&s->lock);
    s->reached = number > s->reached ? number : s->reached;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
}

/* Is it reached, now or in so long? */
static bool wait_a_while(lvni_dist_device_sum *s, uint64_t number, int ms)
{
    const struct timespec until = lvni_core_timespec(lvni_core_now_ns() + (uint64_t)ms * 1000000u);
    int error = 0;
    pthread_mutex_lock(&s->lock);
    while (s->reached < number && error == 0) {
        error = pthread_cond_timedwait(&s->change, &s->lock, &until);
    }
    const bool reached = s->reached >= number;
    pthread_mutex_unlock(&s->lock);
    return reached;
}

/* NCCL's kernels end when it is aborted. A device where they do not is lost to this process, and
 * the error is worth more than the device. */
static lvn_status give_up(lvni_dist_device_sum *s, uint64_t number)
{
    enum { MOST_MS = 10000 };
    const lvn_error error = *lvn_last_error();
    lvni_nccl_comm_abort(&s->nccl);
    (void)wait_a_while(s, number, MOST_MS);
    return lvn_error_adopt(&error);
}

lvn_status lvni_dist_device_sum_wait(lvni_dist_device_sum *s, uint64_t number)
{
    enum { LOOK_MS = 20 };
    const uint64_t begin = lvni_core_now_ns();
    bool reached;
    do {
        reached = wait_a_while(s, number, LOOK_MS);
        lvn_status status = lvni_nccl_comm_health(&s->nccl);
        const double seconds = (double)(lvni_core_now_ns() - begin) * 1e-9;
        if (status == LVN_OK && !reached && seconds > s->nccl.timeout_s) {
            status = lvn_error_set(LVN_ERR_TIMEOUT, __FILE__, __LINE__,
                                   "transport=nccl: rank %d: the sum of gradients has not ended in "
                                   "%.1f s",
                                   lvni_dist_comm_number(s->o.comm, s->rank), s->nccl.timeout_s);
        }
        if (status != LVN_OK) {
            return give_up(s, number);
        }
    } while (!reached);
    return LVN_OK;
}

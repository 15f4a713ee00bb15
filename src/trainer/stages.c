/* Passes in their order, tensors as messages, and the exchange at the end of a step (stages.h). */
#include "trainer/stages.h"

#include "core/alloc.h"
#include "core/error.h"
#include "dist/passing.h"
#include "kernels/flat.h"
#include "tensor/device_blocks.h"
#include "trainer/phases.h"

#include <string.h>

/* Messages of a micro-batch that is under way in one of the lanes. */
typedef struct line {
    lvni_trainer_stages *all;
    int64_t micro_batch;
} line;

struct lvni_trainer_stages {
    lvni_trainer_engine *engine;
    lvni_dist_passing *messages;
    lvni_tensor_device *away;
    lvni_plan_stage_order order;
    line *line;                     /* per lane */
    lvni_autograd_passing *passing; /* per lane */
    bool *recorded;                 /* per buffer: a micro-batch of the step has a record here */
    double *blocks;
    /* of the exchange: what this rank gives, and what all gave */
    unsigned char *mine, *all;
    size_t size, room, *sizes;
};

/* ---- creation ---- */

static const char *refusal(const lvni_trainer_engine_options *o)
{
    return lvni_trainer_phases_count(o->model) > 1  ? "a module with phases"
           : o->plan.coupled                        ? "micro-batches that see each other's values"
           : o->detect_anomaly                      ? "detect_anomaly"
           : o->on_bad_batch != LVNI_BAD_BATCH_STOP ? "on_bad_batch"
           : o->graph == LVNI_GRAPH_ON              ? "cuda_graph=on"
                                                    : NULL;
}

lvn_status lvni_trainer_stages_check(const lvni_trainer_engine_options *o)
{
    const char *what = o->plan.staged ? refusal(o) : NULL;
    if (what != NULL) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "strategy=balance does not do %s so far; use strategy=ddp or dp", what);
    }
    return LVN_OK;
}

static int enter(void *user, const char *path, const lvn_tensor *x)
{
    (void)x;
    const line *l = user;
    return lvni_trainer_units_stage(l->all->engine->o.units, path);
}

static lvn_status send(void *user, int to, int edge, bool backward, const lvn_tensor *t,
                       bool wants);
static lvn_status receive(void *user, int from, int edge, bool backward,
                          const lvni_tensor_desc *desc, lvn_tensor **out, bool *wants);

static lvn_status make(lvni_trainer_engine *e, lvni_trainer_stages *s)
{
    const lvni_plan *plan = &e->o.plan;
    const lvni_nn_model *m = e->o.model;
    const size_t lanes = (size_t)plan->lanes;
    s->engine = e;
    s->order =
        (lvni_plan_stage_order){.stages = plan->devices, .micro_batches = plan->micro_batches};
    s->line = lvni_core_calloc(LVNI_TAG_TRAINER, lanes, sizeof *s->line);
    s->passing = lvni_core_calloc(LVNI_TAG_TRAINER, lanes, sizeof *s->passing);
    s->recorded = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)m->n_buffers + 1, sizeof *s->recorded);
    s->blocks = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)lvni_kernels_flat_blocks(m->n_weights),
                                 sizeof *s->blocks);
    if (s->line == NULL || s->passing == NULL || s->recorded == NULL || s->blocks == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(lvni_tensor_device_create_dry(lvni_tensor_ctx_get()->device, &s->away));
    lvni_tensor_device_refuse_reads(s->away);
    for (size_t i = 0; i < lanes; i++) {
        s->line[i].all = s;
        s->passing[i] = (lvni_autograd_passing){.stage = plan->rank,
                                                .stages = plan->devices,
                                                .away = s->away,
                                                .enter = enter,
                                                .send = send,
                                                .receive = receive,
                                                .user = &s->line[i]};
    }
    return LVN_OK;
}

lvn_status lvni_trainer_stages_create(lvni_trainer_engine *e, lvni_trainer_stages **out)
{
    *out = NULL;
    lvni_trainer_stages *s = LVNI_NEW(LVNI_TAG_TRAINER, lvni_trainer_stages);
    lvn_status status = s == NULL ? LVN_ERR_MEMORY : make(e, s);
    LVNI_TRY_DONE(status, lvni_dist_comm_agree_status(e->o.comm, status, "the stages"));
    LVNI_TRY_DONE(status, lvni_dist_passing_create(e->o.comm, &s->messages));
    *out = s;
    return LVN_OK;
done:
    lvni_trainer_stages_destroy(s);
    return status;
}

void lvni_trainer_stages_destroy(lvni_trainer_stages *s)
{
    if (s == NULL) {
        return;
    }
    lvni_dist_passing_destroy(s->messages);
    lvni_tensor_device_destroy_dry(s->away);
    lvni_core_free(s->line);
    lvni_core_free(s->passing);
    lvni_core_free(s->recorded);
    lvni_core_free(s->blocks);
    lvni_core_free(s->mine);
    lvni_core_free(s->all);
    lvni_core_free(s->sizes);
    lvni_core_free(s);
}

/* ---- tensors as messages ---- */

typedef struct head {
    int32_t dtype, ndim;
    int32_t there, wants; /* 0 or 1: a tensor follows; it gets a gradient */
    int64_t shape[LVN_MAX_NDIM];
} head;

static lvni_dist_tag tag_of(const line *l, int edge, bool backward)
{
    return (lvni_dist_tag){.stream = 2 * l->micro_batch + (backward ? 1 : 0), .number = edge};
}

static lvn_status send(void *user, int to, int edge, bool backward, const lvn_tensor *t, bool wants)
{
    const line *l = user;
    head h = {.there = t != NULL, .wants = wants};
    const size_t bytes = t == NULL ? 0 : (size_t)lvn_numel(t) * lvn_dtype_size(t->dtype);
    void *copy = NULL;
    const void *data = t == NULL ? NULL : t->data;
    if (t != NULL) {
        h.dtype = (int32_t)t->dtype;
        h.ndim = t->ndim;
        memcpy(h.shape, t->shape, sizeof h.shape);
    }
    if (bytes > 0 && lvni_tensor_device_of(data) != NULL) {
        data = copy = lvni_core_alloc(LVNI_TAG_TRAINER, bytes);
        const lvn_status s =
            copy == NULL ? LVN_ERR_MEMORY : lvni_tensor_mem_copy(copy, t->data, bytes);
        if (s != LVN_OK) {
            lvni_core_free(copy);
            return s;
        }
    }
    const lvn_status s = lvni_dist_passing_send(l->all->messages, to, tag_of(l, edge, backward), &h,
                                                sizeof h, data, bytes);
    lvni_core_free(copy);
    return s;
}

/* What came is what the shapes of this rank's pass have. */
static lvn_status check_head(const line *l, const head *h, const lvni_tensor_desc *d, int from,
                             int edge)
{
    if (h->dtype == (int32_t)d->dtype && h->ndim == d->ndim &&
        memcmp(h->shape, d->shape, (size_t)d->ndim * sizeof *d->shape) == 0) {
        return LVN_OK;
    }
    char came[96], expected[96];
    LVN_FAIL(LVN_ERR_MISMATCH,
             "strategy=balance: tensor %d of micro-batch %lld came from stage %d as %s %s and is "
             "%s %s here: the model's path or shapes depend on values",
             edge, (long long)l->micro_batch, from,
             lvni_tensor_shape_string(h->ndim, h->shape, came), lvn_dtype_name((lvn_dtype)h->dtype),
             lvni_tensor_shape_string(d->ndim, d->shape, expected), lvn_dtype_name(d->dtype));
}

static lvn_status unpack(const line *l, const char *message, size_t bytes,
                         const lvni_tensor_desc *d, int from, int edge, lvn_tensor **out)
{
    head h;
    memcpy(&h, message, sizeof h);
    if (!h.there) {
        return LVN_OK;
    }
    LVN_TRY(check_head(l, &h, d, from, edge));
    *out = lvni_tensor_new(d);
    if (*out == NULL) {
        return lvn_last_error()->code;
    }
    const lvn_status s = lvni_tensor_mem_copy((*out)->data, message + sizeof h, bytes - sizeof h);
    if (s != LVN_OK) {
        lvn_release(*out);
        *out = NULL;
    }
    return s;
}

static lvn_status receive(void *user, int from, int edge, bool backward,
                          const lvni_tensor_desc *desc, lvn_tensor **out, bool *wants)
{
    const line *l = user;
    void *message;
    size_t bytes;
    head h;
    *out = NULL;
    LVN_TRY(lvni_dist_passing_receive(l->all->messages, from, tag_of(l, edge, backward), &message,
                                      &bytes));
    memcpy(&h, message, sizeof h);
    *wants = h.wants != 0;
    const lvn_status s = unpack(l, message, bytes, desc, from, edge, out);
    lvni_core_free(message);
    return s;
}

/* ---- passes ---- */

/* What a forward pass has read of another stage was not a value. */
static lvn_status check_reads(const lvni_trainer_stages *s, int stage, lvn_status status)
{
    const char *path = lvni_tensor_device_refused(s->away);
    if (path == NULL) {
        return status;
    }
    LVN_FAIL(LVN_ERR_UNSUPPORTED,
             "strategy=balance: lvn_item or another read on the host, in %s, is of a tensor that "
             "stage %d does not have: a path that depends on values goes through one device; use "
             "strategy=ddp or dp",
             path[0] != '\0' ? path : "the training step", stage);
}

static lvn_status forward(lvni_trainer_engine *e, int micro_batch, int lane)
{
    lvni_trainer_stages *s = e->stages;
    LVN_TRY(lvni_trainer_wave_load_at(e, micro_batch, lane));
    if (e->job[lane].batch->batch.size == 0) {
        return LVN_OK;
    }
    s->line[lane].micro_batch = micro_batch;
    LVN_TRY(lvni_autograd_stages_begin(&s->passing[lane], e->o.model->n_parameters));
    const lvn_status status = lvni_trainer_forward_micro_batch(&e->now, &e->job[lane]);
    return check_reads(s, e->o.plan.rank, status);
}

static void note_records(lvni_trainer_stages *s, const lvni_nn_set *set)
{
    for (int i = 0; i < set->model->n_buffers; i++) {
        s->recorded[i] = s->recorded[i] || set->recorded[i];
    }
}

static lvn_status backward(lvni_trainer_engine *e, int lane)
{
    const lvni_trainer_micro_batch_job *job = &e->job[lane];
    if (job->batch->batch.size == 0) {
        return LVN_OK;
    }
    const lvn_status s = lvni_trainer_backward_micro_batch(&e->now, &e->job[lane]);
    lvni_autograd_stages_end();
    note_records(e->stages, job->set);
    return s;
}

/* In the lane's context, which has the tape. */
static lvn_status run_work(lvni_trainer_engine *e, lvni_plan_stage_work w)
{
    const int lane = w.micro_batch % e->o.plan.lanes;
    lvni_tensor_ctx *own = lvni_tensor_ctx_get();
    lvni_tensor_ctx_set(lvni_trainer_lanes_context(e->lanes, lane));
    const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
    const lvn_status s = w.backward ? backward(e, lane) : forward(e, w.micro_batch, lane);
    if (s != LVN_OK) {
        lvni_autograd_stages_end();
        lvn_error_frame("step %lld, stage %d, %s pass of micro-batch %d", (long long)e->now.step,
                        e->o.plan.rank, w.backward ? "backward" : "forward", w.micro_batch);
    }
    lvni_tensor_fp_leave(before);
    lvni_tensor_ctx_set(own);
    return s;
}

/* Of passes that were under way when one failed. */
static void end_passes(const lvni_trainer_engine *e)
{
    lvni_tensor_ctx *own = lvni_tensor_ctx_get();
    for (int lane = 0; lane < e->o.plan.lanes; lane++) {
        lvni_tensor_ctx_set(lvni_trainer_lanes_context(e->lanes, lane));
        lvni_autograd_stages_end();
    }
    lvni_tensor_ctx_set(own);
}

static lvn_status run_works(lvni_trainer_engine *e)
{
    const lvni_trainer_stages *s = e->stages;
    const int lanes = e->o.plan.lanes;
    for (int k = 0; k < 2 * s->order.micro_batches; k++) {
        const lvni_plan_stage_work w = lvni_plan_stage_work_at(&s->order, e->o.plan.rank, k);
        LVN_TRY(run_work(e, w));
        if (w.backward) {
            LVN_TRY(lvni_trainer_wave_merge_at(e, w.micro_batch % lanes));
            lvni_trainer_wave_release(e, w.micro_batch, 1);
        }
    }
    return LVN_OK;
}

lvn_status lvni_trainer_stages_run(lvni_trainer_engine *e)
{
    lvni_trainer_stages *s = e->stages;
    memset(s->recorded, 0, (size_t)e->o.model->n_buffers * sizeof *s->recorded);
    lvni_trainer_waves_begin(e);
    const lvn_status status = run_works(e);
    if (status != LVN_OK) {
        end_passes(e);
    }
    return status;
}

/* ---- the exchange ---- */

static lvn_status append(lvni_trainer_stages *s, const void *data, size_t bytes)
{
    LVN_TRY(lvni_trainer_message_room(&s->mine, s->size, &s->room, bytes));
    if (bytes > 0) {
        LVN_TRY(lvni_tensor_mem_copy(s->mine + s->size, data, bytes));
        s->size += bytes;
    }
    return LVN_OK;
}

/* What a rank gives has at its head the bytes of its message, and behind that a byte for each
 * parameter and buffer that has a gradient or a record there. */
static size_t n_marks(const lvni_nn_model *m)
{
    return (size_t)m->n_parameters + (size_t)m->n_buffers;
}

static lvn_status pack(lvni_trainer_engine *e, const lvni_nn_set *total)
{
    lvni_trainer_stages *s = e->stages;
    const lvni_nn_model *m = e->o.model;
    const uint64_t message = e->message.size;
    s->size = 0;
    LVN_TRY(append(s, &message, sizeof message));
    LVN_TRY(append(s, e->message.data, e->message.size));
    for (int i = 0; i < m->n_parameters; i++) {
        LVN_TRY(append(s, e->graded[i] ? "\1" : "\0", 1));
    }
    for (int i = 0; i < m->n_buffers; i++) {
        LVN_TRY(append(s, s->recorded[i] ? "\1" : "\0", 1));
    }
    for (int i = 0; i < m->n_parameters && total != NULL; i++) {
        const size_t bytes = (size_t)m->parameters[i].numel * sizeof(float);
        LVN_TRY(e->graded[i] ? append(s, total->data + m->offset[i], bytes) : LVN_OK);
    }
    for (int i = 0; i < m->n_buffers && total != NULL; i++) {
        const size_t bytes = (size_t)lvni_nn_buffer_record_length(m->buffers[i]) * sizeof(float);
        const float *record = total->data + m->n_weights + m->buffers[i]->offset;
        LVN_TRY(s->recorded[i] ? append(s, record, bytes) : LVN_OK);
    }
    return LVN_OK;
}

/* Of the rank's part: the marks, and the floats behind them. */
static const unsigned char *marks_of(const lvni_trainer_stages *s, const unsigned char *part)
{
    uint64_t message;
    memcpy(&message, part, sizeof message);
    (void)s;
    return part + sizeof message + message;
}

static lvn_status unpack_rank(lvni_trainer_engine *e, const unsigned char *part,
                              const lvni_nn_set *total)
{
    const lvni_nn_model *m = e->o.model;
    const unsigned char *mark = marks_of(e->stages, part), *at = mark + n_marks(m);
    for (int i = 0; i < m->n_parameters; i++) {
        const size_t bytes = (size_t)m->parameters[i].numel * sizeof(float);
        if (mark[i] != 0) {
            LVN_TRY(lvni_tensor_mem_copy(total->data + m->offset[i], at, bytes));
            at += bytes;
        }
    }
    for (int i = 0; i < m->n_buffers; i++) {
        const size_t bytes = (size_t)lvni_nn_buffer_record_length(m->buffers[i]) * sizeof(float);
        if (mark[m->n_parameters + i] != 0) {
            LVN_TRY(lvni_tensor_mem_copy(total->data + m->n_weights + m->buffers[i]->offset, at,
                                         bytes));
            at += bytes;
        }
    }
    return LVN_OK;
}

/* A parameter has its gradient on one rank, or its sum would depend on the cut. */
static lvn_status check_owners(const lvni_trainer_engine *e, const unsigned char *part, int rank,
                               bool *seen)
{
    const lvni_nn_model *m = e->o.model;
    const unsigned char *mark = marks_of(e->stages, part);
    for (int i = 0; i < m->n_parameters; i++) {
        if (mark[i] != 0 && seen[i]) {
            LVN_FAIL(LVN_ERR_UNSUPPORTED,
                     "strategy=balance: %s gets a gradient on stage %d and on an earlier one; "
                     "another cut (balance.cuts) may have what uses it in one stage",
                     m->parameters[i].name, rank);
        }
        seen[i] = seen[i] || mark[i] != 0;
    }
    return LVN_OK;
}

static lvn_status unpack_all(lvni_trainer_engine *e, const lvni_nn_set *total, bool *seen)
{
    const lvni_trainer_stages *s = e->stages;
    const unsigned char *part = s->all;
    for (int rank = 0; rank < s->order.stages; part += s->sizes[rank], rank++) {
        LVN_TRY(check_owners(e, part, rank, seen));
        LVN_TRY(total != NULL && rank != e->o.plan.rank ? unpack_rank(e, part, total) : LVN_OK);
    }
    return LVN_OK;
}

lvn_status lvni_trainer_stages_exchange(lvni_trainer_engine *e, const lvni_nn_set *total)
{
    lvni_trainer_stages *s = e->stages;
    const lvni_nn_model *m = e->o.model;
    LVN_TRY(pack(e, total));
    lvni_core_free(s->all);
    lvni_core_free(s->sizes);
    s->all = NULL;
    void *all = NULL;
    s->sizes = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)s->order.stages, sizeof *s->sizes);
    bool *seen = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)m->n_parameters + 1, sizeof *seen);
    lvn_status status;
    LVNI_TRY_DONE(status, s->sizes == NULL || seen == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVNI_TRY_DONE(status,
                  lvni_dist_comm_all_gather_sized(e->o.comm, s->mine, s->size, &all, s->sizes));
    s->all = all;
    LVNI_TRY_DONE(status, unpack_all(e, total, seen));
    if (total != NULL) {
        lvni_kernels_flat_block_sumsq(total->data + m->trained_begin,
                                      m->trained_end - m->trained_begin,
                                      s->blocks + m->trained_begin / LVNI_FLAT_BLOCK);
    }
done:
    lvni_core_free(seen);
    return status;
}

const void *lvni_trainer_stages_reported(const lvni_trainer_stages *s, int rank, size_t *bytes)
{
    const unsigned char *part = s->all;
    for (int i = 0; i < rank; i++) {
        part += s->sizes[i];
    }
    uint64_t message;
    memcpy(&message, part, sizeof message);
    *bytes = (size_t)message;
    return part + sizeof message;
}

const double *lvni_trainer_stages_blocks(const lvni_trainer_stages *s)
{
    return s->blocks;
}

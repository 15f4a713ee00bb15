/* Evaluation and prediction: fixed chunks, dealt to ranks, and there to the lanes in waves; results
 * taken in order. On a device the chunks of the next wave are copied there while this one computes,
 * and metrics are read one wave late. */
#include "core/alloc.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "tensor/device.h"
#include "trainer/loop_impl.h"
#include "trainer/row_message.h"
#include "trainer/left_out.h"

#include <string.h>

enum { MAX_LANES = 256, WAVES = 2 };

typedef struct chunk {
    const lvni_data_loader_batch *held, *batch; /* of the loader; where it computes */
    lvni_nn_step step;
    lvni_nn_terms terms; /* on a device: what it logged */
} chunk;

typedef struct wave {
    int n;
    chunk *chunk;
    double *landing; /* host memory: what the chunks left in their slots */
    void *event;     /* it is there */
} wave;

typedef struct evaluation {
    const lvni_nn_model *model;
    wave wave[WAVES], *now;
    int lanes;  /* chunks that a wave has room for */
    int most;   /* that it gets */
    bool first; /* this one */
    /* prediction only; in host memory, kept until the rows are out */
    lvn_tensor *values[MAX_LANES];
    lvni_trainer_predict_output output; /* NULL: metrics */
    void *user;                         /* of output */
    lvni_trainer_message *message;      /* with several ranks: the chunks of this one */
    lvni_trainer_rows *rows;            /* prediction with several ranks: of this one's wave */
    lvni_data_loader *loader;
    lvni_trainer *trainer;      /* of a training; NULL: on its own */
    lvni_tensor_device *device; /* NULL: the host, and so the two below */
    lvni_trainer_prefetch *prefetch;
    double *slots; /* metrics: LVNI_EVALUATION_SLOTS for each lane */
} evaluation;

/* What the module returned, which may have failed without a message. */
static const lvn_tensor *explained(const lvn_tensor *y, uint64_t before, const char *callback,
                                   const lvn_module *root)
{
    if (y == NULL && !lvni_autograd_scope_failed()) {
        lvni_core_error_of_null(before, "%s of the module class %s", callback, root->cls->name);
        (void)lvni_autograd_op_fail(NULL);
    }
    return y;
}

/* Into host memory, beyond the scope. */
static lvn_tensor *keep_on_host(lvn_tensor *p)
{
    lvn_tensor *kept =
        p != NULL && lvni_tensor_device_of(p->data) != NULL ? lvni_tensor_to(p, NULL) : lvn_keep(p);
    if (p != NULL && kept == NULL) {
        lvni_autograd_op_fail("reading the output");
    }
    return kept;
}

static void forward_chunk(evaluation *e, int lane, const lvn_batch *batch)
{
    const lvn_module *root = e->model->root;
    const uint64_t before = lvn_last_error()->serial;
    if (e->output != NULL) {
        lvn_tensor *p = e->output(root, batch, e->user);
        (void)explained(p, before, "the output for predictions", root);
        e->values[lane] = keep_on_host(p);
        return;
    }
    lvn_tensor *(*step)(const lvn_module *, const lvn_batch *, lvn_step *) =
        root->cls->validation_step != NULL ? root->cls->validation_step : root->cls->training_step;
    (void)explained(step(root, batch, &e->now->chunk[lane].step.now), before,
                    root->cls->validation_step != NULL ? "validation_step()" : "training_step()",
                    root);
}

/* The first chunk of all: previews are of rank 0. */
static bool has_preview(const evaluation *e, int lane)
{
    return e->trainer != NULL && e->trainer->previews && e->first && lane == 0;
}

/* Copied: they may be a view of the batch, whose memory later chunks get before they are drawn; and
 * another thread frees them, so that they are not of this lane's cache. */
static void preview_chunk(evaluation *e, int lane, const lvn_batch *batch)
{
    (void)lane;
    lvni_trainer *t = e->trainer;
    const lvni_trainer_preview *preview = &t->o.preview;
    const uint64_t before = lvn_last_error()->serial;
    const lvn_tensor *y = preview->images(e->model->root, batch, preview->user);
    const size_t bytes = y == NULL ? 0 : (size_t)lvn_numel(y) * lvn_dtype_size(y->dtype);
    float *values = y == NULL ? NULL : lvni_core_alloc(LVNI_TAG_TRAINER, bytes);
    if (values != NULL && lvni_tensor_mem_copy(values, y->data, bytes) == LVN_OK) {
        memcpy(t->images.shape, y->shape, sizeof t->images.shape);
        t->images.values = values;
    } else if (lvn_last_error()->serial != before) {
        lvni_core_free(values);
        (void)lvni_autograd_op_fail("the images of samples");
    }
}

static lvn_status in_scope(evaluation *e, int lane, bool deferred,
                           void (*work)(evaluation *, int, const lvn_batch *))
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    LVN_TRY(lvn_scope_open());
    ctx->deferred = deferred;
    work(e, lane, &e->now->chunk[lane].batch->batch);
    const lvn_status s = lvn_scope_close();
    ctx->deferred = false;
    return s;
}

static size_t slots_of_wave(const evaluation *e)
{
    return (size_t)e->lanes * LVNI_METRIC_SLOTS;
}

/* What the chunk logs stays on the device, and is copied to the host behind its kernels. */
static lvn_status send_metrics(const evaluation *e, int lane)
{
    const size_t at = (size_t)lane * LVNI_METRIC_SLOTS;
    const chunk *c = &e->now->chunk[lane];
    void *stream = lvni_tensor_device_stream(e->device);
    return stream == NULL ? lvn_last_error()->code
                          : lvni_tensor_device_backend(e->device)->copy(
                                stream, e->now->landing + at, c->terms.slots,
                                (size_t)c->terms.n_slots * sizeof *c->terms.slots);
}

static lvn_status chunk_work(void *user, int lane)
{
    evaluation *e = user;
    chunk *c = &e->now->chunk[lane];
    const bool deferred = e->slots != NULL;
    lvni_nn_step_begin(&c->step, (double)c->batch->batch.size);
    c->step.host = &c->held->batch;
    lvni_nn_terms_begin(&c->terms);
    lvn_release(e->values[lane]); /* of the wave before, back to this lane's memory */
    e->values[lane] = NULL;
    if (c->batch->batch.size == 0) {
        return LVN_OK;
    }
    c->step.terms = deferred ? &c->terms : NULL;
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    /* random numbers of a sample are its own, and the same in every evaluation */
    ctx->at = (lvni_tensor_position){.micro_batch = (uint32_t)c->batch->batch.sample[0],
                                     .sample = c->batch->batch.sample,
                                     .n_samples = c->batch->batch.size};
    const bool before = lvn_set_grad_enabled(false);
    lvn_status s = in_scope(e, lane, deferred, forward_chunk);
    if (s == LVN_OK && has_preview(e, lane)) {
        s = in_scope(e, lane, false, preview_chunk);
    }
    ctx->at = (lvni_tensor_position){0};
    lvn_set_grad_enabled(before);
    LVN_TRY(s);
    return c->terms.n > 0 ? send_metrics(e, lane) : LVN_OK;
}

static lvn_status give_rows(const evaluation *e, int lane, lvni_trainer_predict_row row, void *user)
{
    const lvn_tensor *p = e->values[lane];
    const int64_t *sample = e->now->chunk[lane].held->batch.sample;
    if (e->rows != NULL) {
        return p == NULL
                   ? lvni_trainer_rows_add(e->rows, 0, 0, NULL, NULL)
                   : lvni_trainer_rows_add(e->rows, p->shape[0], p->shape[1], sample, LVNI_CF32(p));
    }
    for (int64_t i = 0; p != NULL && i < p->shape[0]; i++) {
        LVN_TRY(row(user, sample[i], LVNI_CF32(p) + i * p->shape[1], p->shape[1]));
    }
    return LVN_OK;
}

/* Training that is asked to stop does not wait for a long validation. */
static lvn_status check_stop(void)
{
    if (lvni_trainer_stop_signal() != 0) {
        LVN_FAIL(LVN_ERR_CANCELLED, "a signal stopped the evaluation");
    }
    return LVN_OK;
}

static lvn_status look_at_stop(const evaluation *e)
{
    if (e->trainer != NULL) {
        lvni_trainer_clock_look_within(e->trainer);
    }
    return e->rows == NULL ? check_stop() : LVN_OK; /* else the ranks agree after the wave */
}

static lvn_status take_chunk(const evaluation *e, const lvni_nn_step *step, lvni_nn_step *sum)
{
    if (e->message != NULL) {
        return lvni_trainer_message_add(e->message, step, 0);
    }
    return lvni_nn_metrics_add(sum, step);
}

/* In chunk order. Of a device: when it has come to the wave's end. */
static lvn_status take_wave(const evaluation *e, lvni_trainer_lanes *lanes, wave *w,
                            lvni_nn_step *sum)
{
    if (e->slots != NULL && w->n > 0) {
        LVN_TRY(lvni_tensor_device_backend(e->device)->event_wait(w->event));
        LVN_TRY(lvni_trainer_lanes_failed(lanes) ? lvni_trainer_lanes_take_error(lanes) : LVN_OK);
    }
    for (int i = 0; i < w->n; i++) {
        if (w->chunk[i].step.terms != NULL) {
            lvni_nn_step_fold(&w->chunk[i].step, w->landing + (size_t)i * LVNI_METRIC_SLOTS);
        }
        LVN_TRY(take_chunk(e, &w->chunk[i].step, sum));
    }
    w->n = 0;
    return LVN_OK;
}

/* The rank alone decides the failure that comes: the rest, perhaps of a disk that has gone away, is
 * not read. */
static bool left_out_too_many(const evaluation *e)
{
    const lvni_data_unreadable *u = lvni_data_loader_unreadable(e->loader);
    return u != NULL && lvni_data_unreadable_too_many(u, lvni_data_unreadable_counting(u));
}

/* The wave's chunks; *more: there may be others. */
static lvn_status load(evaluation *e, bool *more)
{
    wave *w = e->now;
    for (w->n = 0; w->n < e->most; w->n++) {
        chunk *c = &w->chunk[w->n];
        c->held = NULL;
        if (e->prefetch != NULL) {
            LVN_TRY(lvni_trainer_prefetch_next(e->prefetch, e->loader, &c->held, &c->batch));
        } else {
            LVN_TRY(lvni_data_loader_next(e->loader, &c->held));
            c->batch = c->held;
        }
        if (c->held == NULL) {
            break;
        }
    }
    *more = w->n == e->most;
    return LVN_OK;
}

/* As far as they are ready; there will be room for the others. */
static lvn_status load_ahead(const evaluation *e)
{
    for (int i = 0; i < e->most && e->prefetch != NULL; i++) {
        bool begun;
        LVN_TRY(lvni_trainer_prefetch_ahead(e->prefetch, NULL, &begun));
        if (!begun) {
            return lvni_trainer_prefetch_reserve(e->prefetch, e->most - i);
        }
    }
    return LVN_OK;
}

static lvn_status compute(evaluation *e, lvni_trainer_lanes *lanes)
{
    LVN_TRY(load_ahead(e));
    LVN_TRY(lvni_trainer_lanes_run(lanes, e->now->n, chunk_work, e));
    if (e->slots == NULL) {
        return LVN_OK;
    }
    void *stream = lvni_tensor_device_stream(e->device); /* behind those of all lanes */
    return stream == NULL
               ? lvn_last_error()->code
               : lvni_tensor_device_backend(e->device)->event_record(e->now->event, stream);
}

static void release(evaluation *e)
{
    if (e->prefetch != NULL) {
        lvni_trainer_prefetch_done(e->prefetch, e->now->n, true);
        return;
    }
    for (int i = 0; i < e->now->n; i++) {
        lvni_data_loader_release(e->loader, e->now->chunk[i].held);
    }
}

/* The chunks of wave k, loaded and computed; predictions are given out. */
static lvn_status run_wave(evaluation *e, lvni_trainer_lanes *lanes, int64_t k, bool *more,
                           lvni_trainer_predict_row row, void *user)
{
    LVN_TRY(load(e, more));
    if (e->now->n == 0) {
        return LVN_OK;
    }
    LVN_TRY(k > 0 ? look_at_stop(e) : LVN_OK);
    LVN_TRY(compute(e, lanes));
    for (int i = 0; row != NULL && i < e->now->n; i++) {
        LVN_TRY(give_rows(e, i, row, user));
    }
    return LVN_OK;
}

/* All chunks; in each wave results are added, or rows given out, in chunk order. Predicting ranks
 * go through as many waves, a stop is theirs together. */
static lvn_status run(evaluation *e, lvni_trainer_lanes *lanes, lvni_nn_step *sum,
                      lvni_trainer_predict_row row, void *user)
{
    bool more = true;
    for (int64_t k = 0; more; k++) {
        wave *w = e->now = &e->wave[k % WAVES], *before = &e->wave[(k + 1) % WAVES];
        e->first = k == 0;
        const lvn_status s = run_wave(e, lanes, k, &more, row, user);
        release(e);
        LVN_TRY(s);
        LVN_TRY(e->output == NULL ? take_wave(e, lanes, e->slots != NULL ? before : w, sum)
                                  : LVN_OK);
        more = more && !left_out_too_many(e);
        LVN_TRY(e->rows != NULL ? lvni_trainer_rows_exchange(e->rows, &more, row, user) : LVN_OK);
    }
    return e->slots != NULL ? take_wave(e, lanes, e->now, sum) : LVN_OK;
}

/* Nothing of the evaluation is under way afterwards, and nothing of its error is left. */
static void drain(const evaluation *e, lvni_trainer_lanes *lanes, lvn_status s)
{
    if (e->device != NULL && s != LVN_OK) {
        const lvn_error error = *lvn_last_error();
        (void)lvni_trainer_lanes_take_error(lanes);
        lvn_error_adopt(&error);
    }
}

static void destroy(evaluation *e)
{
    if (e == NULL) {
        return;
    }
    lvni_trainer_prefetch_destroy(e->prefetch);
    for (int i = 0; i < WAVES; i++) {
        wave *w = &e->wave[i];
        if (w->event != NULL) { /* the landing may be on its way */
            lvni_tensor_device_backend(e->device)->event_wait(w->event);
            lvni_tensor_device_backend(e->device)->event_destroy(w->event);
        }
        lvni_tensor_host_give(e->device, w->landing, slots_of_wave(e) * sizeof *w->landing);
        lvni_core_free(w->chunk);
    }
    for (int i = 0; i < MAX_LANES; i++) {
        lvn_release(e->values[i]);
    }
    lvni_tensor_mem_free(e->slots, (size_t)e->lanes * LVNI_EVALUATION_SLOTS, sizeof *e->slots);
    lvni_core_free(e);
}

static lvn_status make_wave(evaluation *e, int number)
{
    wave *w = &e->wave[number];
    w->chunk = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)e->lanes, sizeof *w->chunk);
    if (w->chunk == NULL || e->slots == NULL) {
        return w->chunk == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    for (int i = 0; i < e->lanes; i++) {
        w->chunk[i].terms.slots =
            e->slots + (size_t)number * slots_of_wave(e) + (size_t)i * LVNI_METRIC_SLOTS;
    }
    w->landing = lvni_tensor_host_take(e->device, slots_of_wave(e) * sizeof *w->landing);
    return w->landing == NULL ? lvn_last_error()->code
                              : lvni_tensor_device_backend(e->device)->event_create(
                                    lvni_tensor_device_state(e->device), &w->event);
}

static lvn_status make(evaluation *e)
{
    if (e->device != NULL) {
        LVN_TRY(lvni_trainer_prefetch_create(e->device, WAVES * e->lanes, &e->prefetch));
    }
    if (e->device != NULL && e->output == NULL) {
        e->slots = lvni_tensor_mem_calloc(
            LVNI_TAG_TRAINER, (size_t)e->lanes * LVNI_EVALUATION_SLOTS, sizeof *e->slots);
        LVN_TRY(e->slots == NULL ? lvn_last_error()->code : LVN_OK);
    }
    for (int i = 0; i < WAVES; i++) {
        LVN_TRY(make_wave(e, i));
    }
    return LVN_OK;
}

static lvn_status create(const lvni_nn_model *model, lvni_data_loader *loader,
                         const lvni_trainer_lanes *lanes, lvni_trainer_predict_output output,
                         evaluation **out)
{
    const int n = lvni_trainer_lanes_count(lanes);
    evaluation *e = *out = LVNI_NEW(LVNI_TAG_TRAINER, evaluation);
    if (e == NULL) {
        return LVN_ERR_MEMORY;
    }
    e->model = model;
    e->loader = loader;
    e->output = output;
    e->lanes = e->most = n < MAX_LANES ? n : MAX_LANES;
    e->device = lvni_tensor_ctx_get()->device;
    return make(e);
}

static lvn_status add_chunk(void *sum, const lvni_trainer_message_part *part,
                            const lvni_nn_step *metrics)
{
    (void)part;
    return lvni_nn_metrics_add(sum, metrics);
}

/* The chunks of a rank are a contiguous run: rank order is chunk order. */
static lvn_status add_ranks(lvni_dist_comm *comm, const lvni_trainer_message *mine,
                            lvni_nn_step *sum, int64_t *unreadable)
{
    const int world = lvni_dist_comm_world(comm);
    void *all = NULL;
    size_t *size = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)world, sizeof *size);
    lvn_status s = size == NULL
                       ? LVN_ERR_MEMORY
                       : lvni_dist_comm_all_gather_sized(comm, mine->data, mine->size, &all, size);
    const unsigned char *at = all;
    /* as exchanged: a signal that this rank got since then counts at the next step, for all */
    int signal_number = 0;
    for (int rank = 0; rank < world && s == LVN_OK; rank++) {
        lvni_trainer_message_head head = {0};
        s = lvni_trainer_message_read(at, size[rank], &head, add_chunk, sum);
        signal_number = signal_number != 0 ? signal_number : (int)head.signal;
        *unreadable += head.n_unreadable;
        at += size[rank];
    }
    lvni_core_free(all);
    lvni_core_free(size);
    lvni_trainer_stop_record(signal_number);
    LVN_TRY(s);
    return signal_number != 0 ? check_stop() : LVN_OK;
}

static int64_t noted_by(const lvni_data_unreadable *u)
{
    return u == NULL ? 0 : lvni_data_unreadable_noted(u);
}

static lvn_status evaluate(const lvni_nn_model *model, lvni_data_loader *loader,
                           lvni_trainer_lanes *lanes, lvni_dist_comm *comm, lvni_trainer *trainer,
                           lvni_nn_step *result)
{
    *result = (lvni_nn_step){0};
    lvni_trainer_message message = {0};
    lvni_data_unreadable *u = lvni_data_loader_unreadable(loader);
    int64_t unreadable = 0;
    evaluation *e;
    if (u != NULL) {
        lvni_data_unreadable_forget(u);
    }
    lvn_status s;
    LVNI_TRY_DONE(s, create(model, loader, lanes, NULL, &e));
    e->trainer = trainer;
    if (comm != NULL) {
        LVNI_TRY_DONE(s, lvni_trainer_message_create(&message, 1));
        e->message = &message;
        lvni_trainer_message_begin(&message);
    }
    s = run(e, lanes, result, NULL, NULL);
    drain(e, lanes, s);
    if (comm != NULL && (s == LVN_OK || s == LVN_ERR_CANCELLED)) {
        /* the others learn that this rank was asked to stop */
        lvni_trainer_message_head *head = (void *)message.data;
        head->signal = lvni_trainer_stop_signal();
        head->n_unreadable = noted_by(u);
        s = add_ranks(comm, &message, result, &unreadable);
    }
    unreadable = comm == NULL ? noted_by(u) : unreadable;
    s = s == LVN_OK && unreadable > 0 ? lvni_trainer_unreadable_settle(u, comm, 0) : s;
done:
    lvni_trainer_message_free(&message);
    destroy(e);
    return s;
}

lvn_status lvni_trainer_evaluate(const lvni_nn_model *model, lvni_data_loader *loader,
                                 lvni_trainer_lanes *lanes, lvni_dist_comm *comm,
                                 lvni_nn_step *result)
{
    return evaluate(model, loader, lanes, comm, NULL, result);
}

/* Ranks may have different cores; the waves of all are as long as the shortest. */
static lvn_status share_rows(lvni_dist_comm *comm, lvni_trainer_rows *rows, evaluation *e)
{
    int32_t most = e->most;
    LVN_TRY(lvni_trainer_rows_create(comm, lvni_data_loader_unreadable(e->loader), rows));
    LVN_TRY(lvni_dist_comm_all_reduce(comm, &most, &most, 1, LVN_I32, LVNI_REDUCE_MIN));
    e->most = most;
    e->rows = rows;
    return LVN_OK;
}

/* user: of output; to: of row. */
static lvn_status predict(const lvni_nn_model *model, lvni_data_loader *loader,
                          lvni_trainer_lanes *lanes, lvni_dist_comm *comm, lvni_trainer *trainer,
                          lvni_trainer_predict_output output, void *user,
                          lvni_trainer_predict_row row, void *to)
{
    lvni_trainer_rows rows = {0};
    evaluation *e;
    lvn_status s;
    LVNI_TRY_DONE(s, create(model, loader, lanes, output, &e));
    e->user = user;
    e->trainer = trainer;
    LVNI_TRY_DONE(s, comm != NULL ? share_rows(comm, &rows, e) : LVN_OK);
    s = run(e, lanes, NULL, row, to);
    drain(e, lanes, s);
done:
    lvni_trainer_rows_free(&rows);
    destroy(e);
    return s;
}

lvn_status lvni_trainer_predict(const lvni_nn_model *model, lvni_data_loader *loader,
                                lvni_trainer_lanes *lanes, lvni_dist_comm *comm,
                                lvni_trainer_predict_output output, lvni_trainer_predict_row row,
                                void *user)
{
    return predict(model, loader, lanes, comm, NULL, output, user, row, user);
}

/* ---- of a training ---- */

/* Rank 0's numbers on all ranks. */
static lvn_status share_numbers(lvni_dist_comm *comm, lvni_nn_step *numbers)
{
    struct {
        int64_t n;
        lvni_nn_step_metric metric[LVNI_METRICS];
    } sent = {.n = numbers->n_metrics};
    memcpy(sent.metric, numbers->metric, (size_t)numbers->n_metrics * sizeof *sent.metric);
    LVN_TRY(lvni_dist_comm_broadcast(comm, &sent, sizeof sent, 0));
    numbers->n_metrics = (int)sent.n;
    memcpy(numbers->metric, sent.metric, (size_t)sent.n * sizeof *sent.metric);
    return LVN_OK;
}

static lvn_status finish_numbers(const lvni_trainer_evaluation *of, void *state,
                                 lvni_nn_step *result)
{
    const uint64_t before = lvn_last_error()->serial;
    LVN_TRY(of->finish(state, &result->now));
    return lvn_last_error()->serial == before ? LVN_OK : lvn_last_error()->code;
}

static lvn_status evaluate_rows(lvni_trainer *t, lvni_data_loader *loader, lvni_nn_step *result)
{
    const lvni_trainer_evaluation *of = &t->o.evaluation;
    const bool leads = t->o.plan.rank == 0;
    lvni_data_unreadable *u = lvni_data_loader_unreadable(loader);
    void *state = NULL;
    lvn_status s = LVN_OK;
    lvni_nn_step_begin(result, 0.0);
    if (u != NULL) {
        lvni_data_unreadable_forget(u);
    }
    if (leads) {
        LVNI_TRY_DONE(s, of->begin(of->user, &state));
    }
    LVNI_TRY_DONE(s, predict(t->o.model, loader, t->engine->lanes, t->o.comm, t, of->output,
                             of->user, of->row, state));
    LVNI_TRY_DONE(s, u != NULL ? lvni_trainer_unreadable_settle(u, t->o.comm, 0) : LVN_OK);
    LVNI_TRY_DONE(s, leads ? finish_numbers(of, state, result) : LVN_OK);
    s = t->o.comm != NULL ? share_numbers(t->o.comm, result) : LVN_OK;
done:
    of->end(state);
    return s;
}

lvn_status lvni_trainer_evaluate_within(lvni_trainer *t, lvni_data_loader *loader,
                                        lvni_nn_step *result)
{
    return t->o.evaluation.output != NULL
               ? evaluate_rows(t, loader, result)
               : evaluate(t->o.model, loader, t->engine->lanes, t->o.comm, t, result);
}

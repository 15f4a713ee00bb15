/* Evaluation and prediction: fixed chunks, dealt to ranks, and there to the lanes in waves; results
 * taken in order. */
#include "core/alloc.h"
#include "autograd/tape.h"
#include "tensor/device.h"
#include "trainer/row_message.h"
#include "trainer/loop_impl.h"

#include <string.h>

enum { MAX_LANES = 256 };

typedef struct evaluation {
    const lvni_nn_model *model;
    const lvni_data_loader_batch *batch[MAX_LANES];
    lvni_nn_step step[MAX_LANES];
    /* prediction only; in host memory, kept until the rows are out */
    lvn_tensor *values[MAX_LANES];
    lvni_trainer_predict_output output; /* NULL: metrics */
    int most;                           /* chunks of a wave */
    lvni_trainer_message *message;      /* with several ranks: the chunks of this one */
    lvni_trainer_rows *rows;            /* prediction with several ranks: of this one's wave */
} evaluation;

static void forward_chunk(evaluation *e, int lane, const lvn_batch *batch)
{
    const lvn_module *root = e->model->root;
    if (e->output != NULL) {
        lvn_tensor *p = e->output(root, batch);
        e->values[lane] = p != NULL && lvni_tensor_device_of(p->data) != NULL
                              ? lvni_tensor_to(p, NULL)
                              : lvn_keep(p);
        if (p != NULL && e->values[lane] == NULL) {
            lvni_autograd_op_fail("reading the output");
        }
        return;
    }
    lvn_tensor *(*step)(const lvn_module *, const lvn_batch *, lvn_step *) =
        root->cls->validation_step != NULL ? root->cls->validation_step : root->cls->training_step;
    step(root, batch, &e->step[lane].now);
}

static lvn_status chunk_work(void *user, int lane)
{
    evaluation *e = user;
    e->step[lane] = (lvni_nn_step){.weight = (double)e->batch[lane]->batch.size};
    lvn_release(e->values[lane]); /* of the wave before, back to this lane's memory */
    e->values[lane] = NULL;
    if (e->batch[lane]->batch.size == 0) {
        return LVN_OK;
    }
    lvni_tensor_ctx_get()->at = (lvni_tensor_position){0};
    const bool before = lvn_set_grad_enabled(false);
    lvni_data_loader_batch batch;
    lvn_status s = lvni_trainer_device_batch_make(e->batch[lane], &batch);
    if (s == LVN_OK) {
        s = lvn_scope_open();
    }
    if (s == LVN_OK) {
        forward_chunk(e, lane, &batch.batch);
        s = lvn_scope_close();
    }
    lvni_trainer_device_batch_free(&batch);
    lvn_set_grad_enabled(before);
    return s;
}

static lvn_status give_rows(const evaluation *e, int lane, lvni_trainer_predict_row row, void *user)
{
    const lvn_tensor *p = e->values[lane];
    if (e->rows != NULL) {
        return p == NULL ? lvni_trainer_rows_add(e->rows, 0, 0, NULL, NULL)
                         : lvni_trainer_rows_add(e->rows, p->shape[0], p->shape[1],
                                                 e->batch[lane]->batch.sample, LVNI_CF32(p));
    }
    for (int64_t i = 0; p != NULL && i < p->shape[0]; i++) {
        LVN_TRY(row(user, e->batch[lane]->batch.sample[i], LVNI_CF32(p) + i * p->shape[1],
                    p->shape[1]));
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

static lvn_status take_chunk(const evaluation *e, int lane, lvni_nn_step *sum)
{
    if (e->message != NULL) {
        return lvni_trainer_message_add(e->message, &e->step[lane], 0);
    }
    lvni_nn_metrics_add(sum, &e->step[lane]);
    return LVN_OK;
}

/* All chunks; in each wave results are added, or rows given out, in chunk order. Predicting ranks
 * go through as many waves, a stop is theirs together. */
static lvn_status run(evaluation *e, lvni_data_loader *loader, lvni_trainer_lanes *lanes,
                      lvni_nn_step *sum, lvni_trainer_predict_row row, void *user)
{
    lvn_status s = LVN_OK;
    bool more = true;
    for (int64_t wave = 0; more && s == LVN_OK; wave++) {
        int n = 0;
        while (n < e->most && (s = lvni_data_loader_next(loader, &e->batch[n])) == LVN_OK &&
               e->batch[n] != NULL) {
            n++;
        }
        more = n == e->most;
        if (s == LVN_OK && n > 0 && wave > 0 && e->rows == NULL) {
            s = check_stop();
        }
        if (s == LVN_OK && n > 0) {
            s = lvni_trainer_lanes_run(lanes, n, chunk_work, e);
        }
        for (int i = 0; i < n; i++) {
            if (s == LVN_OK && e->output != NULL) {
                s = give_rows(e, i, row, user);
            } else if (s == LVN_OK) {
                s = take_chunk(e, i, sum);
            }
            lvni_data_loader_release(loader, e->batch[i]);
        }
        if (s == LVN_OK && e->rows != NULL) {
            s = lvni_trainer_rows_exchange(e->rows, &more, row, user);
        }
    }
    return s;
}

static evaluation *create(const lvni_nn_model *model, const lvni_trainer_lanes *lanes)
{
    evaluation *e = LVNI_NEW(LVNI_TAG_TRAINER, evaluation);
    if (e != NULL) {
        e->model = model;
        e->most = lvni_trainer_lanes_count(lanes) < MAX_LANES ? lvni_trainer_lanes_count(lanes)
                                                              : MAX_LANES;
    }
    return e;
}

static void add_chunk(void *sum, const lvni_trainer_message_part *part, const lvni_nn_step *metrics)
{
    (void)part;
    lvni_nn_metrics_add(sum, metrics);
}

/* The chunks of a rank are a contiguous run: rank order is chunk order. */
static lvn_status add_ranks(lvni_dist_comm *comm, const lvni_trainer_message *mine,
                            lvni_nn_step *sum)
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
        lvni_trainer_message_report_note(at, size[rank], &head, rank);
        at += size[rank];
    }
    lvni_core_free(all);
    lvni_core_free(size);
    lvni_trainer_stop_note(signal_number);
    return s == LVN_OK && signal_number != 0 ? check_stop() : s;
}

lvn_status lvni_trainer_evaluate(const lvni_nn_model *model, lvni_data_loader *loader,
                                 lvni_trainer_lanes *lanes, lvni_dist_comm *comm,
                                 lvni_nn_step *result)
{
    *result = (lvni_nn_step){0};
    lvni_trainer_message message = {0};
    evaluation *e = create(model, lanes);
    lvn_status s = e == NULL      ? LVN_ERR_MEMORY
                   : comm == NULL ? LVN_OK
                                  : lvni_trainer_message_create(&message, 1);
    if (s == LVN_OK && comm == NULL) {
        s = run(e, loader, lanes, result, NULL, NULL);
    } else if (s == LVN_OK) {
        e->message = &message;
        lvni_trainer_message_begin(&message);
        s = run(e, loader, lanes, result, NULL, NULL);
        if (s == LVN_OK || s == LVN_ERR_CANCELLED) {
            /* the others learn that this rank was asked to stop */
            ((lvni_trainer_message_head *)(void *)message.data)->signal =
                lvni_trainer_stop_signal();
            s = lvni_dist_comm_rank(comm) > 0
                    ? lvni_trainer_message_add_unreadable(&message, loader)
                    : LVN_OK;
            if (s == LVN_OK) {
                s = add_ranks(comm, &message, result);
            }
        }
    }
    lvni_trainer_message_free(&message);
    lvni_core_free(e);
    return s;
}

/* Ranks may have different cores; the waves of all are as long as the shortest. */
static lvn_status share_rows(lvni_dist_comm *comm, lvni_trainer_rows *rows, evaluation *e)
{
    int32_t most = e->most;
    LVN_TRY(lvni_trainer_rows_create(comm, rows));
    LVN_TRY(lvni_dist_comm_all_reduce(comm, &most, &most, 1, LVN_I32, LVNI_REDUCE_MIN));
    e->most = most;
    e->rows = rows;
    return LVN_OK;
}

lvn_status lvni_trainer_predict(const lvni_nn_model *model, lvni_data_loader *loader,
                                lvni_trainer_lanes *lanes, lvni_dist_comm *comm,
                                lvni_trainer_predict_output output, lvni_trainer_predict_row row,
                                void *user)
{
    lvni_trainer_rows rows = {0};
    evaluation *e = create(model, lanes);
    if (e == NULL) {
        return LVN_ERR_MEMORY;
    }
    e->output = output;
    lvn_status s = comm == NULL ? LVN_OK : share_rows(comm, &rows, e);
    if (s == LVN_OK) {
        s = run(e, loader, lanes, NULL, row, user);
    }
    for (int i = 0; i < MAX_LANES; i++) {
        lvn_release(e->values[i]);
    }
    lvni_trainer_rows_free(&rows);
    lvni_core_free(e);
    return s;
}

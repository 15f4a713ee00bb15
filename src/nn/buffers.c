/* Buffers: what a step changes besides parameters, and by which rule (nn.h). What a micro-batch
 * pushes is written behind its gradients, into the record part of its set, and is added up with
 * them, over micro-batches and ranks; after the last micro-batch the total becomes new values.
 *
 * A record of a mean: the value times the micro-batch's weight, then the weight. Of a queue: room
 * for the rows of every micro-batch of the step, in their order, one element, and the number of
 * rows of each. A micro-batch fills its own place and leaves zeros in the others, so that adding
 * moves rows to where they belong. */
#include "nn/builder_impl.h"

#include "autograd/placing.h"
#include "autograd/recompute.h"
#include "kernels/flat.h"
#include "tensor/device.h"

#include <stdio.h>

/* ---- building ---- */

lvn_buffer *lvn_builder_buffer(lvn_builder *b, const char *name, int ndim, const int64_t *shape,
                               double fill, double momentum)
{
    lvn_buffer *buffer = lvni_nn_builder_new_buffer(b, name, ndim, shape, LVNI_RULE_MEAN);
    if (buffer != NULL) {
        buffer->fill = fill;
        buffer->momentum = momentum;
    }
    return buffer;
}

lvn_buffer *lvni_nn_builder_constant(lvn_builder *b, const char *name, int ndim,
                                     const int64_t *shape, const double *value)
{
    lvn_buffer *buffer = lvni_nn_builder_new_buffer(b, name, ndim, shape, LVNI_RULE_FIXED);
    const size_t n = buffer == NULL ? 0 : (size_t)lvn_numel(buffer->tensor);
    if (n == 0) {
        return NULL;
    }
    buffer->is_constant = true;
    buffer->constant = lvni_core_alloc(LVNI_TAG_MODEL, n * sizeof *buffer->constant);
    if (buffer->constant == NULL) {
        return lvni_nn_builder_fail(b, LVN_ERR_MEMORY);
    }
    for (size_t i = 0; i < n; i++) {
        buffer->constant[i] = (float)value[i];
    }
    return buffer;
}

enum { MOST_ROWS = 1 << 24 }; /* the place of the next one is kept as f32 */

static bool good_queue(lvn_builder *b, const char *name, int64_t rows, int64_t width,
                       const lvn_queue_options *o)
{
    if (rows < 1 || rows > MOST_ROWS || width < 1 || o->rows_per_sample < 0) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                      "queue %s of %lld rows of %lld numbers, %lld pushed per sample: it has 1 to "
                      "%d rows, of at least 1 number, and at least 1 is pushed",
                      name, (long long)rows, (long long)width, (long long)o->rows_per_sample,
                      MOST_ROWS);
        return lvni_nn_builder_fail(b, LVN_ERR_INVALID) != NULL;
    }
    return lvni_nn_builder_good_init(b, name, o->init);
}

/* The part of a queue that `name` and `end` name. */
static lvn_buffer *new_part(lvn_builder *b, const char *name, const char *end, int64_t n)
{
    char full[256];
    snprintf(full, sizeof full, "%s_%s", name, end);
    return lvni_nn_builder_new_buffer(b, full, 1, &n, LVNI_RULE_PART);
}

lvn_buffer *lvn_builder_queue_with(lvn_builder *b, const char *name, int64_t rows, int64_t width,
                                   const lvn_queue_options *options)
{
    lvn_queue_options o;
    if (!lvni_nn_builder_options(b, "builder_queue", &o, sizeof o, options) ||
        !good_queue(b, name, rows, width, &o)) {
        return NULL;
    }
    lvn_buffer *queue =
        lvni_nn_builder_new_buffer(b, name, LVN_SHAPE(rows, width), LVNI_RULE_QUEUE);
    lvn_buffer *filled = new_part(b, name, "filled", rows), *next = new_part(b, name, "next", 1);
    if (queue == NULL || filled == NULL || next == NULL) {
        return NULL;
    }
    queue->init = o.init;
    queue->bound = o.bound;
    queue->queue = (lvni_nn_queue){.rows = rows,
                                   .width = width,
                                   .per_sample = o.rows_per_sample > 0 ? o.rows_per_sample : 1,
                                   .filled = filled,
                                   .next = next};
    return queue;
}

static lvn_status check_momentum(const lvn_builder *b, const lvn_buffer *buffer,
                                 const lvn_number *number)
{
    if (buffer == NULL || number == NULL) {
        LVN_FAIL(LVN_ERR_INVALID, "lvn_builder_momentum was given NULL as the %s",
                 buffer == NULL ? "buffer" : "number");
    }
    if (buffer->rule != LVNI_RULE_MEAN || buffer->model != b->model) {
        LVN_FAIL(LVN_ERR_INVALID,
                 "lvn_builder_momentum: %s is not a buffer of lvn_builder_buffer in this model, "
                 "and has no momentum",
                 buffer->name);
    }
    if (!(number->from >= 0.0 && number->from <= 1.0 && number->to >= 0.0 && number->to <= 1.0)) {
        LVN_FAIL(LVN_ERR_INVALID,
                 "the momentum of the buffer %s goes from %g to %g: both must be in 0 .. 1",
                 buffer->name, number->from, number->to);
    }
    return LVN_OK;
}

lvn_status lvn_builder_momentum(lvn_builder *b, lvn_buffer *buffer, const lvn_number *number)
{
    const lvn_status s = b->status != LVN_OK ? LVN_OK : check_momentum(b, buffer, number);
    if (s != LVN_OK) {
        lvni_nn_builder_fail(b, s);
    } else if (b->status == LVN_OK) {
        buffer->moved = number;
    }
    return b->status;
}

lvn_status lvn_builder_function(lvn_builder *b, lvn_buffer *buffer, lvn_buffer_function function)
{
    if (b->status == LVN_OK && (buffer == NULL || function == NULL)) {
        lvni_nn_builder_fail(b, lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                                              "lvn_builder_function was given NULL as the %s",
                                              buffer == NULL ? "buffer" : "function"));
    } else if (b->status == LVN_OK) {
        buffer->function = function;
        buffer->module = b->module;
    }
    return b->status;
}

lvn_tensor *lvn_buffer_value(const lvn_buffer *buffer)
{
    return buffer->tensor;
}

lvn_tensor *lvn_queue_filled(const lvn_buffer *queue)
{
    return queue->rule == LVNI_RULE_QUEUE ? queue->queue.filled->tensor : NULL;
}

lvn_tensor *lvni_nn_queue_next(const lvn_buffer *queue)
{
    return queue->queue.next->tensor;
}

/* ---- in a step ---- */

/* Of a queue's record, elements: the rows of all micro-batches. */
static int64_t rows_length(const lvni_nn_queue *q)
{
    return q->slots * q->slot_rows * q->width;
}

int64_t lvni_nn_buffer_record_length(const lvn_buffer *buffer)
{
    switch (buffer->rule) {
    case LVNI_RULE_MEAN: return buffer->numel + 1;
    case LVNI_RULE_QUEUE: return rows_length(&buffer->queue) + 1 + buffer->queue.slots;
    case LVNI_RULE_FOLLOW:
    case LVNI_RULE_PART:
    case LVNI_RULE_FIXED: break;
    }
    return 0;
}

/* `value` is in the memory where the record is. */
static void record_rows(const lvn_buffer *buffer, float *record, const float *value, int64_t n)
{
    const lvni_nn_queue *q = &buffer->queue;
    const int64_t slot = lvni_tensor_ctx_get()->at.micro_batch, all = rows_length(q),
                  at = slot * q->slot_rows * q->width, end = at + n * q->width;
    lvni_nn_set_zero(record, at);
    lvni_kernels_flat_record(record + at, value, n * q->width, 1.0f); /* and a 1 behind them */
    lvni_nn_set_zero(record + end, all + 1 + q->slots - end);
    lvni_kernels_flat_record(record + all + 1 + slot, value, 0, (float)n); /* their number */
}

static lvn_status check_value(const lvn_buffer *buffer, const lvn_tensor *value)
{
    const lvni_nn_queue *q = &buffer->queue;
    if (buffer->rule == LVNI_RULE_MEAN) {
        LVN_ARG(value != NULL && value->dtype == LVN_F32 && lvn_numel(value) == buffer->numel,
                "buffer %s takes %lld f32 values", buffer->name, (long long)buffer->numel);
        return LVN_OK;
    }
    LVN_ARG(buffer->rule == LVNI_RULE_QUEUE, "nothing can be pushed into %s", buffer->name);
    LVN_ARG(value != NULL && value->dtype == LVN_F32 && lvn_ndim(value) == 2 &&
                lvn_size(value, 1) == q->width,
            "queue %s takes rows of %lld f32 numbers", buffer->name, (long long)q->width);
    LVN_ARG(lvn_size(value, 0) <= q->slot_rows,
            "queue %s: %lld rows from a micro-batch, and there is room for %lld, %lld for each "
            "sample; give rows_per_sample",
            buffer->name, (long long)lvn_size(value, 0), (long long)q->slot_rows,
            (long long)q->per_sample);
    LVN_ARG(lvni_tensor_ctx_get()->at.micro_batch < q->slots,
            "queue %s: micro-batch %u of a step of %lld", buffer->name,
            lvni_tensor_ctx_get()->at.micro_batch, (long long)q->slots);
    return LVN_OK;
}

/* A record that is there gets this one added: its value and its weight, so that the mean over all
 * of them counts. */
static lvn_status record_again(const lvni_nn_set *set, const lvn_buffer *buffer, float *record,
                               const lvn_tensor *value)
{
    const int64_t n = buffer->numel + 1;
    lvn_tensor *own = lvn_zeros(LVN_F32, 1, &n); /* the scope's */
    if (own == NULL) {
        return lvn_last_error()->code;
    }
    lvni_kernels_flat_record(LVNI_F32(own), LVNI_CF32(value), buffer->numel, (float)set->weight);
    lvni_kernels_flat_add(record, LVNI_F32(own), n);
    return LVN_OK;
}

static lvn_status record(const lvni_nn_set *set, const lvn_buffer *buffer, const lvn_tensor *value)
{
    float *to = set->data + set->model->n_weights + buffer->offset;
    if (buffer->rule == LVNI_RULE_QUEUE) {
        record_rows(buffer, to, LVNI_CF32(value), lvn_size(value, 0));
    } else if (set->recorded[buffer->index]) {
        return record_again(set, buffer, to, value);
    } else {
        lvni_kernels_flat_record(to, LVNI_CF32(value), buffer->numel, (float)set->weight);
    }
    return LVN_OK;
}

lvn_status lvn_buffer_push(const lvn_buffer *buffer, const lvn_tensor *value)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    lvni_nn_set *set = ctx->records;
    if (set == NULL || !ctx->at.training || lvni_autograd_recompute_again() ||
        buffer->rule == LVNI_RULE_FOLLOW ||
        (buffer->phase >= 0 && buffer->phase != (int)ctx->at.phase)) {
        return LVN_OK;
    }
    LVN_TRY(check_value(buffer, value));
    if (lvni_autograd_stages_absent(value)) {
        return LVN_OK; /* the stage that has it records it */
    }
    LVN_ARG(buffer->model == set->model,
            "buffer %s belongs to another model than the one in training", buffer->name);
    LVN_ARG(buffer->rule != LVNI_RULE_QUEUE || !set->recorded[buffer->index],
            "queue %s takes rows once from a micro-batch of a step: push them together",
            buffer->name);
    lvni_tensor_device *device = lvni_tensor_device_of(set->data);
    lvn_tensor *copy = NULL; /* what is in host memory may go before the device's turn comes */
    if (device != NULL && lvni_tensor_device_of(value->data) == NULL) {
        copy = lvni_tensor_to(value, device);
        if (copy == NULL) {
            return lvn_last_error()->code;
        }
    }
    const lvn_status s = record(set, buffer, copy != NULL ? copy : value);
    set->recorded[buffer->index] = true;
    lvn_release(copy);
    return s;
}

lvn_status lvn_buffer_write(const lvn_buffer *buffer, const float *value, int64_t n)
{
    LVN_ARG(buffer != NULL && value != NULL && n == buffer->numel,
            "lvn_buffer_write: %lld values for the buffer %s of %lld", (long long)n,
            buffer == NULL ? "NULL" : buffer->name,
            buffer == NULL ? 0LL : (long long)buffer->numel);
    return lvni_tensor_mem_copy(buffer->tensor->data, value, (size_t)n * sizeof *value);
}

/* ---- after a step ---- */

static void append(const lvn_buffer *b, const float *record, const lvn_step_phase *step)
{
    const lvni_nn_queue *q = &b->queue;
    lvni_kernels_flat_append(LVNI_F32(b->tensor), LVNI_F32(q->filled->tensor),
                             LVNI_F32(q->next->tensor), record,
                             &(lvn_flat_append){.rows = q->rows,
                                                .width = q->width,
                                                .slots = q->slots,
                                                .slot_rows = q->slot_rows,
                                                .step = step});
}

static void move_mean(const lvn_buffer *b, const float *record, const double *numbers,
                      const lvn_step_block *block, int phase)
{
    const lvn_number *moved = b->moved;
    const lvn_flat_mean p = {
        .momentum = moved != NULL ? numbers[moved->index] : b->momentum,
        .moved = moved != NULL && block != NULL ? &block->given.number[moved->index] : NULL,
        .step = block == NULL ? NULL : &block->phase[phase]};
    lvni_kernels_flat_apply_record(LVNI_F32(b->tensor), record, b->numel, &p);
}

void lvni_nn_model_apply_records(lvni_nn_model *m, const lvni_nn_set *total, const double *numbers,
                                 const lvn_step_block *block, int phase)
{
    const lvn_step_phase *step = block == NULL ? NULL : &block->phase[phase];
    for (int i = 0; i < m->n_buffers; i++) {
        const lvn_buffer *b = m->buffers[i];
        const float *record = total->data + m->n_weights + b->offset;
        switch (b->rule) {
        case LVNI_RULE_MEAN: move_mean(b, record, numbers, block, phase); break;
        case LVNI_RULE_QUEUE: append(b, record, step); break;
        case LVNI_RULE_FOLLOW: /* lvni_nn_model_follow */
        case LVNI_RULE_PART:
        case LVNI_RULE_FIXED: break;
        }
    }
}

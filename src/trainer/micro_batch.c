/* Forward and backward of one micro-batch, and its batch on the device that computes it
 * (micro_batch.h). */
#include "trainer/micro_batch.h"
#include "core/error.h"
#include "trainer/profile.h"

#include "autograd/placing.h"
#include "core/math.h"
#include "core/str.h"
#include "kernels/flat.h"
#include "kernels/anomaly.h"
#include "tensor/device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double lvni_trainer_loss_factor(const lvni_plan *plan, const lvni_trainer_scaler *scaler)
{
    return lvni_trainer_scaler_rule(scaler, lvni_plan_largest_micro_batch(plan)).loss_factor;
}

lvni_trainer_bad_batch lvni_trainer_bad_batch_of(const char *name)
{
    return strcmp(name, "skip") == 0   ? LVNI_BAD_BATCH_SKIP
           : strcmp(name, "zero") == 0 ? LVNI_BAD_BATCH_ZERO
                                       : LVNI_BAD_BATCH_STOP;
}

enum { NAMED_SAMPLES = 8 };

/* " (samples 3, 8 and 14 more)" */
static void name_samples(const lvn_batch *b, char *text, size_t size)
{
    text[0] = '\0';
    const int64_t n = b == NULL || b->sample == NULL ? 0 : b->size;
    const int64_t named = n < NAMED_SAMPLES ? n : NAMED_SAMPLES;
    size_t at = 0;
    for (int64_t i = 0; i < named; i++) {
        const char *before = i > 0 ? ", " : n > 1 ? " (samples " : " (sample ";
        at += (size_t)snprintf(text + at, size - at, "%s%lld", before, (long long)b->sample[i]);
    }
    if (n > named) {
        at += (size_t)snprintf(text + at, size - at, " and %lld more", (long long)(n - named));
    }
    if (n > 0) {
        snprintf(text + at, size - at, ")");
    }
}

lvn_status lvni_trainer_fail_loss(const lvni_trainer_pass *pass, double value, int64_t micro_batch,
                                  const lvn_batch *batch)
{
    char samples[(NAMED_SAMPLES + 2) * 24];
    name_samples(batch, samples, sizeof samples);
    LVN_FAIL(LVN_ERR_NON_FINITE,
             "the loss is %g at step %lld (epoch %lld), micro-batch %lld%s: try a "
             "smaller optim.lr or gradient_clip_val=1; detect_anomaly=true names the op that "
             "made it",
             lvni_core_unsigned_nan(value), (long long)pass->step, (long long)pass->epoch + 1,
             (long long)micro_batch, samples);
}

/* What the watch has found, in the words of the run. */
static lvn_status fail_watched(const lvni_trainer_pass *pass, const char *found,
                               int64_t micro_batch)
{
    char text[512];
    snprintf(text, sizeof text, "%.*s", (int)lvni_core_utf8_cut(found, sizeof text - 1),
             found); /* it may be that of the error */
    LVN_FAIL(LVN_ERR_NON_FINITE, "%s: step %lld (epoch %lld), micro-batch %lld", text,
             (long long)pass->step, (long long)pass->epoch + 1, (long long)micro_batch);
}

/* The loss is infinite, and no op made a NaN. */
static lvn_status fail_infinite(const lvni_trainer_pass *pass, const lvni_kernels_anomaly *anomaly,
                                int64_t micro_batch)
{
    char text[sizeof anomaly->infinite + 64];
    snprintf(text, sizeof text, "the loss is infinite, and %s made the first infinity",
             anomaly->infinite);
    return fail_watched(pass, text, micro_batch);
}

/* Others may have its numbers already, and wait for it in the backward pass, where it is coupled.
 */
static bool may_leave_out(const lvni_trainer_pass *pass, const lvni_trainer_micro_batch_job *job)
{
    return pass->on_bad_batch != LVNI_BAD_BATCH_STOP &&
           (job->group_sync == NULL || !lvni_trainer_group_sync_met(lvni_tensor_ctx_get()->group));
}

/* Drops what the forward pass has reported, which may be as bad as the loss. */
static void leave_out(const lvni_trainer_pass *pass, lvni_trainer_micro_batch_job *job)
{
    lvni_nn_set_begin(job->set, job->step.samples);
    if (pass->on_bad_batch == LVNI_BAD_BATCH_SKIP) {
        job->step.weight = 0.0;
    }
    lvni_nn_step_be_bad(&job->step);
}

/* The backward pass refuses what is not a loss. *bad: the micro-batch is left out. */
static lvn_status check_loss(const lvni_trainer_pass *pass, const lvni_trainer_micro_batch_job *job,
                             const lvni_kernels_anomaly *anomaly, const lvn_tensor *loss, bool *bad)
{
    *bad = false;
    if (loss == NULL || lvn_numel(loss) != 1 || job->step.weight == 0.0) {
        return LVN_OK;
    }
    if (job->loss != NULL) {
        lvni_kernels_flat_number(job->loss, loss);
        return LVN_OK;
    }
    const double value = lvn_item(loss);
    if (isfinite(value) || pass->scaled || lvni_tensor_device_failed()) {
        return LVN_OK;
    }
    if (may_leave_out(pass, job)) {
        *bad = true;
        return LVN_OK;
    }
    if (isinf(value) && anomaly->infinite[0] != '\0') {
        return fail_infinite(pass, anomaly, job->batch->micro_batch);
    }
    return lvni_trainer_fail_loss(pass, value, job->batch->micro_batch, &job->batch->batch);
}

/* The gradient comes out as w_s g_s (times the factor). */
static lvni_autograd_seed seed_of(const lvni_trainer_pass *pass, const lvni_nn_step *step)
{
    const bool on_device = isnan(step->weight);
    const double factor = pass->factor_on_device == NULL ? pass->loss_factor : 1.0;
    return (lvni_autograd_seed){.number = (on_device ? 1.0 : step->weight) * factor,
                                .weight = on_device ? step->terms->weight : NULL,
                                .factor = pass->factor_on_device};
}

/* Forward and backward under the watch. 16-mixed: an overflow is expected, in the loss
 * and in the gradients, so that only the forward pass up to there is watched. */
static lvn_status run_passes(const lvni_trainer_pass *pass, lvni_trainer_micro_batch_job *job,
                             const lvn_batch *batch, lvni_kernels_anomaly *anomaly)
{
    const lvn_module *root = pass->model->root;
    void (*const final)(void *user, int parameter) = job->set->gradients.final;
    job->set->gradients.final = NULL; /* a backward pass of the step's own ends no gradient */
    (void)lvni_kernels_anomaly_set(pass->detect_anomaly ? anomaly : NULL);
    lvni_dist_comm_at(pass->comm, LVNI_PLACE_FORWARD, pass->step);
    lvni_trainer_profile_at(LVNI_PART_FORWARD);
    const uint64_t before = lvn_last_error()->serial;
    lvn_tensor *loss = root->cls->training_step(root, batch, &job->step.now);
    job->set->gradients.final = final;
    if (loss == NULL && !lvni_autograd_scope_failed()) {
        lvni_core_error_of_null(before, "training_step() of the module class %s", root->cls->name);
        (void)lvni_autograd_op_fail(NULL);
    }
    bool bad;
    lvn_status s;
    LVNI_TRY_DONE(s, check_loss(pass, job, anomaly, loss, &bad));
    if (bad) {
        leave_out(pass, job);
    } else {
        lvni_dist_comm_at(pass->comm, LVNI_PLACE_BACKWARD, pass->step);
        lvni_trainer_profile_at(LVNI_PART_BACKWARD);
        anomaly->strict = true;
        (void)lvni_kernels_anomaly_set(pass->detect_anomaly && !pass->scaled ? anomaly : NULL);
        const lvni_autograd_seed seed = seed_of(pass, &job->step);
        s = lvni_autograd_backward(loss, &seed);
    }
done:
    (void)lvni_kernels_anomaly_set(NULL);
    return s;
}

static const lvni_data_loader_batch *begin(const lvni_trainer_pass *pass,
                                           lvni_trainer_micro_batch_job *job)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const lvni_data_loader_batch *b = job->on_device != NULL ? job->on_device : job->batch;
    const double samples = (double)b->batch.size;
    ctx->at = (lvni_tensor_position){.seed = pass->seed,
                                     .step = (uint32_t)pass->step,
                                     .step_on_device = pass->step_on_device,
                                     .micro_batch = (uint32_t)b->micro_batch,
                                     .phase = (uint32_t)pass->phase,
                                     .call = (uint32_t)pass->phase << LVNI_CALL_BITS,
                                     .training = true};
    ctx->gradients = &job->set->gradients;
    ctx->records = job->set;
    lvni_nn_set_begin(job->set, samples);
    lvni_nn_step_begin(&job->step, samples);
    job->step.now = (lvn_step){.step = pass->step, .phase = pass->phase};
    job->step.step_first = b->step_first;
    job->step.numbers = pass->number;
    job->step.numbers_on_device = pass->numbers_on_device;
    job->step.host = &job->batch->batch;
    job->step.terms = job->terms;
    return b;
}

/* The status of the micro-batch: what failed first. */
static lvn_status finish(lvni_trainer_micro_batch_job *job, lvn_status s)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const lvn_status closed = lvn_scope_close();
    ctx->deferred = false;
    lvni_nn_set_finish(job->set);
    ctx->gradients = NULL;
    ctx->records = NULL;
    return closed != LVN_OK ? closed : s;
}

/* The last stage has the loss. */
static lvn_status run_forward(const lvni_trainer_pass *pass, lvni_trainer_micro_batch_job *job,
                              const lvn_batch *batch)
{
    const lvn_module *root = pass->model->root;
    const uint64_t before = lvn_last_error()->serial;
    lvn_tensor *loss = root->cls->training_step(root, batch, &job->step.now);
    if (loss == NULL && !lvni_autograd_scope_failed()) {
        lvni_core_error_of_null(before, "training_step() of the module class %s", root->cls->name);
        (void)lvni_autograd_op_fail(NULL);
    }
    bool bad = false;
    const bool here = lvni_autograd_stages_at_last("the loss", &loss);
    LVN_TRY(lvn_scope_status());
    job->result = here ? loss : NULL;
    return here ? check_loss(pass, job, &(lvni_kernels_anomaly){.strict = false}, loss, &bad)
                : LVN_OK;
}

lvn_status lvni_trainer_forward_micro_batch(const lvni_trainer_pass *pass,
                                            lvni_trainer_micro_batch_job *job)
{
    const lvni_data_loader_batch *b = begin(pass, job);
    lvni_dist_comm_at(pass->comm, LVNI_PLACE_FORWARD, pass->step);
    lvni_trainer_profile_at(LVNI_PART_FORWARD);
    LVN_TRY(lvn_scope_open());
    const lvn_status s = run_forward(pass, job, &b->batch);
    lvni_autograd_stages_forward_done();
    return s == LVN_OK ? LVN_OK : finish(job, s);
}

lvn_status lvni_trainer_backward_micro_batch(const lvni_trainer_pass *pass,
                                             lvni_trainer_micro_batch_job *job)
{
    lvni_dist_comm_at(pass->comm, LVNI_PLACE_BACKWARD, pass->step);
    lvni_trainer_profile_at(LVNI_PART_BACKWARD);
    const lvni_autograd_seed seed = seed_of(pass, &job->step);
    return finish(job, job->result != NULL ? lvni_autograd_backward(job->result, &seed)
                                           : lvni_autograd_backward_received());
}

lvn_status lvni_trainer_run_micro_batch(const lvni_trainer_pass *pass,
                                        lvni_trainer_micro_batch_job *job)
{
    const lvni_data_loader_batch *b = begin(pass, job);
    LVN_TRY(lvn_scope_open());
    lvni_tensor_ctx_get()->deferred = job->loss != NULL;
    lvni_kernels_anomaly anomaly = {.strict = false};
    const lvn_status s = finish(job, run_passes(pass, job, &b->batch, &anomaly));
    return s == LVN_ERR_NON_FINITE && anomaly.found
               ? fail_watched(pass, lvn_last_error()->message, b->micro_batch)
               : s;
}

lvn_status lvni_trainer_batch_room_make(const lvni_data_loader_shape *shape,
                                        lvni_tensor_device *device, lvni_trainer_batch_room *out)
{
    *out = (lvni_trainer_batch_room){0};
    for (int i = 0; i < shape->n_parts && shape->part[0].samples > 0; i++) {
        for (int k = 0; k < shape->part[i].n_fields && shape->part[i].samples > 0; k++) {
            const lvn_field *field = &shape->part[i].field[k];
            lvni_tensor_desc d = {
                .dtype = field->dtype, .ndim = field->ndim + 1, .shape = {shape->part[i].samples}};
            memcpy(d.shape + 1, field->shape, (size_t)field->ndim * sizeof *field->shape);
            out->field[i][k] = lvni_tensor_new_for_copy(&d, device);
            if (out->field[i][k] == NULL) {
                const int64_t n = shape->part[i].samples;
                lvn_error_frame("making room for the next batch of %lld sample%s on the device",
                                (long long)n, lvni_core_plural(n, "", "s"));
                return lvn_last_error()->code;
            }
        }
    }
    return LVN_OK;
}

void lvni_trainer_batch_room_free(lvni_trainer_batch_room *room)
{
    for (int i = 0; i <= LVN_MAX_STREAMS; i++) {
        for (int k = 0; k < LVN_MAX_FIELDS; k++) {
            lvn_release(room->field[i][k]);
        }
    }
    *room = (lvni_trainer_batch_room){0};
}

static bool same_shape(const lvn_tensor *a, const lvn_tensor *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

/* *room: NULL where there is none; else it is used up, or given back. */
static lvn_tensor *copy_field(const lvn_tensor *from, lvni_tensor_copies *copies, lvn_tensor **room)
{
    lvn_tensor *on_device = *room;
    *room = NULL;
    if (on_device != NULL && same_shape(on_device, from) &&
        lvni_tensor_copies_begin_into(copies, from, on_device) == LVN_OK) {
        return on_device;
    }
    lvn_release(on_device);
    return lvni_tensor_copies_begin(copies, from);
}

/* *b: a copy of the batch that has fields in host memory. */
static lvn_status copy_fields(lvn_batch *b, lvni_tensor_copies *copies,
                              lvn_tensor *room[LVN_MAX_FIELDS])
{
    lvn_tensor *from[LVN_MAX_FIELDS];
    memcpy(from, b->field, sizeof from);
    memset(b->field, 0, sizeof b->field);
    for (int i = 0; i < b->n_fields && b->size > 0; i++) {
        b->field[i] = copy_field(from[i], copies, &room[i]);
        if (b->field[i] == NULL) {
            lvn_error_frame("copying a batch of %lld samples to the device", (long long)b->size);
            return lvn_last_error()->code;
        }
    }
    b->image = b->field[0];
    b->label = b->n_fields > 1 ? b->field[1] : NULL;
    return LVN_OK;
}

static lvn_status make_batch(const lvni_data_loader_batch *from, lvni_tensor_copies *copies,
                             lvni_trainer_batch_room *room, lvni_data_loader_batch *out)
{
    *out = *from;
    out->batch.streams = from->batch.streams == NULL ? NULL : &out->streams;
    lvn_status s = copy_fields(&out->batch, copies, room->field[0]);
    for (int i = 0; i < out->streams.n; i++) {
        lvn_batch *b = &out->streams.batch[i];
        if (s == LVN_OK) {
            s = copy_fields(b, copies, room->field[1 + i]);
        } else { /* the loader's are not this batch's to free */
            memset(b->field, 0, sizeof b->field);
        }
    }
    return s;
}

lvn_status lvni_trainer_device_batch_begin(const lvni_data_loader_batch *from,
                                           lvni_tensor_copies *copies,
                                           lvni_trainer_batch_room *room,
                                           lvni_data_loader_batch *out)
{
    lvni_trainer_batch_room none = {0};
    room = room != NULL ? room : &none;
    if (from->batch.size == 0) {
        lvni_trainer_batch_room_free(room);
        *out = *from;
        out->batch.n_fields = 0;
        out->batch.streams = NULL;
        out->streams.n = 0;
        return LVN_OK;
    }
    const lvn_status s = make_batch(from, copies, room, out);
    lvni_trainer_batch_room_free(room);
    LVN_TRY(s);
    return lvni_tensor_copies_end(copies);
}

static void free_fields(lvn_batch *batch)
{
    for (int i = 0; i < batch->n_fields; i++) {
        lvn_release(batch->field[i]);
        batch->field[i] = NULL;
    }
}

void lvni_trainer_device_batch_free(lvni_data_loader_batch *batch)
{
    free_fields(&batch->batch);
    for (int i = 0; i < batch->streams.n; i++) {
        free_fields(&batch->streams.batch[i]);
    }
}

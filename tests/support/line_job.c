/* line_job.h */
#include "support/line_job.h"

#include <stdlib.h>

static int line_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){"x", LVN_F32, 1, {2}};
    return 1;
}

static int64_t line_length(const lvn_dataset *dataset)
{
    (void)dataset;
    return 4;
}

static lvn_status line_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                           void *const field[])
{
    (void)dataset;
    float *x = field[0];
    x[0] = (float)key->sample;
    x[1] = 1.0f;
    return LVN_OK;
}

static const lvn_dataset_class line_class = {
    .name = "line", .fields = line_fields, .length = line_length, .get = line_get};

lvn_dataset line_points = {.cls = &line_class};

/* ---- one network ---- */

typedef struct fit {
    lvn_module base;
    lvn_module *head;
} fit;

static lvn_status fit_build(lvn_module *module, lvn_builder *b)
{
    ((fit *)module)->head = lvn_nn_linear(b, "head", 2, 1);
    return lvn_builder_status(b);
}

static lvn_tensor *fit_training_step(const lvn_module *module, const lvn_batch *batch,
                                     lvn_step *step)
{
    lvn_tensor *loss = lvn_mean(lvn_square(lvn_forward(((const fit *)module)->head, batch->image)));
    lvn_log(step, "loss", loss);
    return loss;
}

const lvn_module_class line_fit_class = {
    .name = "fit", .size = sizeof(fit), .build = fit_build, .training_step = fit_training_step};

/* ---- two ---- */

bool (*line_two_fails)(const lvn_step *step);

typedef struct two {
    lvn_module base;
    lvn_module *net[2];
} two;

static lvn_status two_build(lvn_module *module, lvn_builder *b)
{
    two *m = (two *)module;
    m->net[0] = lvn_nn_linear(b, "first", 2, 1);
    m->net[1] = lvn_nn_linear(b, "second", 2, 1);
    return lvn_builder_status(b);
}

static lvn_tensor *two_training_step(const lvn_module *module, const lvn_batch *batch,
                                     lvn_step *step)
{
    if (line_two_fails != NULL && line_two_fails(step)) {
        return lvn_add(batch->image, lvn_zeros(LVN_F32, LVN_SHAPE(7, 7)));
    }
    lvn_tensor *loss =
        lvn_mean(lvn_square(lvn_forward(((const two *)module)->net[step->phase], batch->image)));
    lvn_log(step, step->phase == 0 ? "first" : "second", loss);
    return loss;
}

static const char *const two_phases[] = {"first", "second", NULL};

const lvn_module_class line_two_class = {.name = "two",
                                         .size = sizeof(two),
                                         .build = two_build,
                                         .training_step = two_training_step,
                                         .phases = two_phases};

/* ---- two streams ---- */

_Atomic int line_opened, line_closed;

static lvn_status line_worker_open(const lvn_dataset *dataset, void **state)
{
    (void)dataset;
    *state = malloc(sizeof(int64_t));
    if (*state == NULL) {
        LVN_FAIL(LVN_ERR_MEMORY, "no memory for a state");
    }
    line_opened++;
    return LVN_OK;
}

static void line_worker_close(const lvn_dataset *dataset, void *state)
{
    (void)dataset;
    line_closed++;
    free(state);
}

static lvn_status line_worker_get(const lvn_dataset *dataset, void *state,
                                  const lvn_sample_key *key, void *const field[])
{
    *(int64_t *)state = key->sample;
    return line_get(dataset, key, field);
}

static const lvn_dataset_class line_decoded_class = {.name = "line decoded",
                                                     .fields = line_fields,
                                                     .length = line_length,
                                                     .worker_open = line_worker_open,
                                                     .worker_close = line_worker_close,
                                                     .worker_get = line_worker_get};

lvn_dataset line_decoded = {.cls = &line_decoded_class};

static lvn_tensor *stream_training_step(const lvn_module *module, const lvn_batch *batch,
                                        lvn_step *step)
{
    const lvn_module *head = ((const fit *)module)->head;
    const lvn_batch *more = lvn_batch_stream(batch, "more");
    lvn_tensor *loss = lvn_mean(lvn_square(lvn_forward(head, batch->image)));
    if (more != NULL) {
        lvn_tensor *extra = lvn_mean(lvn_abs(lvn_forward(head, more->image)));
        lvn_log(step, "more", extra);
        loss = lvn_add(loss, extra);
    }
    lvn_log(step, "loss", loss);
    return loss;
}

const lvn_module_class line_stream_class = {.name = "stream",
                                            .size = sizeof(fit),
                                            .build = fit_build,
                                            .training_step = stream_training_step};

/* Training steps of a network on the simulated accelerator: weights, statistics, optimizer state
 * and averages have the bits of the cpu. */
#include "sim_support.h"

#include "kernels/flat.h"
#include "nn/model.h"
#include "nn/step_metrics.h"
#include "optim/optim.h"

#include <semaphore.h>
#include <string.h>

enum { STEPS = 2, BATCH = 4, SIZE = 16 };

/* Copies of flat buffers in host memory, for the test to free. */
typedef struct result {
    float *values, *slot[2], *average;
    int64_t n_values, n_weights;
    double loss, norm;
} result;

static float *fetch(const float *x, int64_t n)
{
    float *here = lvni_core_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *here);
    assert_int_equal(lvni_tensor_mem_copy(here, x, (size_t)n * sizeof *here), LVN_OK);
    return here;
}

static void fill(lvn_batch *b)
{
    b->size = BATCH;
    b->image = lvn_tensor_create(LVN_F32, LVN_SHAPE(BATCH, SIZE, SIZE, 3));
    b->label = lvn_tensor_create(LVN_I64, LVN_SHAPE(BATCH));
    for (int64_t i = 0; i < lvn_numel(b->image); i++) {
        LVNI_F32(b->image)[i] = (float)(i * 7919 % 101) / 50.0f - 1.0f;
    }
    for (int64_t i = 0; i < BATCH; i++) {
        ((int64_t *)b->label->data)[i] = i % 3;
    }
}

static double step(const lvni_nn_model *m, const lvn_batch *b, lvni_nn_set *set)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    lvni_nn_step s;
    lvni_nn_step_begin(&s, BATCH);
    s.host = b;
    ctx->at = (lvni_tensor_position){.seed = 1, .training = true};
    ctx->gradients = &set->gradients;
    ctx->records = set;
    lvni_nn_set_begin(set, BATCH);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *loss = m->root->cls->training_step(m->root, b, &s.now);
    const double value = lvn_item(loss);
    const lvn_status back = lvn_backward_scaled(loss, BATCH);
    if (lvn_scope_close() != LVN_OK || back != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    lvni_nn_set_finish(set);
    ctx->gradients = NULL;
    ctx->records = NULL;
    return value;
}

static lvni_optim *make_optim(const lvni_nn_model *m, lvni_optim_kind kind)
{
    lvni_optim_parameter p[256] = {{0}};
    lvni_optim *optim;
    assert_int_in_range(m->n_parameters, 1, 256);
    for (int i = 0; i < m->n_parameters; i++) {
        m->parameters[i].tensor->requires_grad = true;
        p[i] = (lvni_optim_parameter){.begin = m->offset[i],
                                      .n = m->parameters[i].numel,
                                      .ndim = m->parameters[i].tensor->ndim,
                                      .lr_scale = 1.0,
                                      .decay_scale = 1.0};
    }
    const lvni_optim_options o = {.kind = kind,
                                  .lr = 0.01,
                                  .weight_decay = 0.01,
                                  .momentum = 0.9,
                                  .beta1 = 0.9,
                                  .beta2 = 0.99,
                                  .eps = 1e-8,
                                  .trust_coefficient = 0.01};
    assert_int_equal(lvni_optim_create(&o, m->n_weights, NULL, p, m->n_parameters, &optim), LVN_OK);
    return optim;
}

static double norm_of(lvni_optim *o, const float *g)
{
    double *sums =
        lvni_core_calloc(LVNI_TAG_MODEL, (size_t)lvni_kernels_flat_blocks(o->n), sizeof *sums);
    assert_non_null(sums);
    lvni_kernels_flat_block_sumsq(g, o->n, sums);
    const double norm = lvni_optim_norm_of_blocks(o, sums, 0, o->n);
    lvni_core_free(sums);
    return norm;
}

static result train(lvn_device device, const char *model, lvni_optim_kind kind)
{
    assert_int_equal(lvn_device_use(device), LVN_OK);
    const lvni_nn_zoo_arguments arguments = {.image_size = SIZE, .n_classes = 3};
    lvni_nn_model *m;
    lvni_nn_set *set;
    lvni_optim_ema *ema;
    lvn_batch batch = {0};
    assert_int_equal(lvni_nn_model_build(lvni_nn_zoo_find(model), &arguments, 5, &m), LVN_OK);
    assert_int_equal(lvni_nn_set_create(m, &set), LVN_OK);
    lvni_optim *optim = make_optim(m, kind);
    assert_int_equal(lvni_optim_ema_create(&(lvni_optim_ema_options){.decay = 0.9}, m->weights,
                                           m->n_values, &ema),
                     LVN_OK);
    fill(&batch);
    result r = {.n_values = m->n_values, .n_weights = m->n_weights};
    for (int i = 0; i < STEPS; i++) {
        r.loss = step(m, &batch, set);
        r.norm = norm_of(optim, set->data);
        lvni_optim_step(optim, 0, m->weights, set->data, 0.01, 1.0 / BATCH);
        lvni_nn_model_apply_records(m, set, NULL, NULL, 0);
        lvni_optim_ema_update(ema, m->weights, i, NULL);
        lvni_nn_model_touch(m);
    }
    assert_int_equal(lvn_device_wait(), LVN_OK);
    r.values = fetch(m->weights, m->n_values);
    r.average = fetch(ema->value, m->n_values);
    for (int k = 0; k < optim->n_slots; k++) {
        r.slot[k] = fetch(optim->slot[k], m->n_weights);
    }
    lvn_release(batch.image);
    lvn_release(batch.label);
    lvni_optim_ema_destroy(ema);
    lvni_optim_destroy(optim);
    lvni_nn_set_destroy(set);
    lvni_nn_model_destroy(m);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    return r;
}

static void assert_equal(const float *a, const float *b, int64_t n)
{
    if (a != NULL || b != NULL) {
        assert_memory_equal(a, b, (size_t)n * sizeof *a);
    }
}

static void compare(const char *model, lvni_optim_kind kind)
{
    const result here = train(LVN_CPU, model, kind), there = train(LVN_SIM(0), model, kind);
    assert_true(here.loss == there.loss && here.loss > 0.0);
    assert_true(here.norm == there.norm && here.norm > 0.0);
    assert_equal(here.values, there.values, here.n_values);
    assert_equal(here.average, there.average, here.n_values);
    assert_equal(here.slot[0], there.slot[0], here.n_weights);
    assert_equal(here.slot[1], there.slot[1], here.n_weights);
    const result *const both[] = {&here, &there};
    for (int i = 0; i < 2; i++) {
        lvni_core_free(both[i]->values);
        lvni_core_free(both[i]->average);
        lvni_core_free(both[i]->slot[0]);
        lvni_core_free(both[i]->slot[1]);
    }
}

TEST(steps_have_the_bits_of_the_cpu)
{
    compare("cnn", LVNI_OPTIM_ADAMW);
    compare("cnn", LVNI_OPTIM_LARS);
    compare("resnet18", LVNI_OPTIM_SGD);
}

/* Holds the device's stream until the test has gone on. */
static lvn_status wait_for_gate(void *payload)
{
    sem_wait(*(sem_t **)payload);
    return LVN_OK;
}

/* A value in host memory that is gone when the device comes to it. */
TEST(buffers_take_values_of_the_host)
{
    const lvni_nn_zoo_arguments arguments = {.image_size = SIZE, .n_classes = 3};
    lvni_nn_model *m;
    lvni_nn_set *set;
    lvni_tensor_device *d;
    sem_t gate, *at = &gate;
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    assert_int_equal(lvni_tensor_device_open(LVN_DEVICE_SIM, 0, &d), LVN_OK);
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    assert_int_equal(lvni_nn_model_build(lvni_nn_zoo_find("cnn"), &arguments, 5, &m), LVN_OK);
    assert_int_equal(lvni_nn_set_create(m, &set), LVN_OK);
    const lvn_buffer *buffer = m->buffers[0];
    const int64_t n = buffer->numel;
    float record[64];
    assert_int_in_range(n, 1, 63);
    lvn_tensor *value = lvn_tensor_create(LVN_F32, LVN_SHAPE(n));
    for (int64_t i = 0; i < n; i++) {
        LVNI_F32(value)[i] = (float)i;
    }
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    ctx->at = (lvni_tensor_position){.training = true};
    ctx->records = set;
    lvni_nn_set_begin(set, 2.0);
    assert_int_equal(
        lvni_sim_submit(lvni_tensor_device_stream(d), "gate", wait_for_gate, &at, sizeof at),
        LVN_OK);
    assert_int_equal(lvn_buffer_push(buffer, value), LVN_OK);
    memset(LVNI_F32(value), 0, (size_t)n * sizeof(float));
    lvn_release(value);
    sem_post(&gate);
    ctx->records = NULL;
    assert_int_equal(lvni_tensor_mem_copy(record, set->data + m->n_weights + buffer->offset,
                                          (size_t)(n + 1) * sizeof(float)),
                     LVN_OK);
    for (int64_t i = 0; i < n; i++) {
        assert_true(record[i] == 2.0f * (float)i);
    }
    assert_true(record[n] == 2.0f);
    sem_destroy(&gate);
    lvni_nn_set_destroy(set);
    lvni_nn_model_destroy(m);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

/* Everything that a model and its training took is given back. */
TEST(nothing_is_left_on_the_device)
{
    lvni_tensor_device *d;
    assert_int_equal(lvni_tensor_device_open(LVN_DEVICE_SIM, 0, &d), LVN_OK);
    assert_true(lvni_tensor_device_get_stats(d).most > 0);
    assert_int_equal(lvni_tensor_device_get_stats(d).in_use, 0);
}

BEFORE_ALL()
{
    sim_start("1", "1GiB");
    return 0;
}

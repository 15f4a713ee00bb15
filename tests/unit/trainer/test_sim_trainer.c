/* The trainer on the simulated accelerator: the bits of the CPU with as many lanes, ranks as
 * threads on a device each, what a full device leaves behind, and the estimated memory against the
 * device's own count. */
#include "trainer_support.h"

#include "sim_support.h"

#include "core/alloc.h"
#include "tensor/device.h"
#include "trainer/memory.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum { SIDE = 16, STEPS = 3 };

/* ---- a network of coupled micro-batches, over vectors ---- */

typedef struct coupled {
    lvn_module base;
    lvn_module *head;
} coupled;

static lvn_status coupled_build(lvn_module *module, lvn_builder *b)
{
    ((coupled *)module)->head = lvn_nn_linear(b, "head", FEATURES, 4);
    lvn_builder_couple(b);
    return lvn_builder_status(b);
}

/* Every row against every row of the group, and the group's sum of all. */
static lvn_tensor *coupled_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *z = lvn_forward(((const coupled *)module)->head, batch->image);
    lvn_tensor *pairs =
        lvn_mean(lvn_square(lvn_matmul(z, lvn_transpose(lvn_group_gather(z), 0, 1))));
    lvn_tensor *loss = lvn_add(pairs, lvn_mul_scalar(lvn_square(lvn_group_sum(lvn_mean(z))), 0.1));
    lvn_log(step, "loss", loss);
    return loss;
}

static const lvn_module_class coupled_class = {.name = "coupled",
                                               .size = sizeof(coupled),
                                               .build = coupled_build,
                                               .training_step = coupled_step};

/* ---- runs ---- */

static const setting settings[] = {
    {.batch_size = 10,
     .micro_batches = 4,
     .lanes = 2,
     .workers = 1,
     .optim = {.kind = LVNI_OPTIM_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8},
     .ema = {.decay = 0.9},
     .clip = 0.5},
    {.batch_size = 10,
     .micro_batches = 3,
     .lanes = 3,
     .optim = {.kind = LVNI_OPTIM_LARS,
               .lr = 0.5,
               .weight_decay = 0.01,
               .momentum = 0.9,
               .trust_coefficient = 0.01,
               .eps = 1e-8}},
    {.batch_size = 8,
     .micro_batches = 2,
     .lanes = 1,
     .optim = {.lr = 0.1, .momentum = 0.9},
     .precision = LVNI_PRECISION_16_MIXED},
    {.batch_size = 8,
     .micro_batches = 2,
     .lanes = 1,
     .optim = {.kind = LVNI_OPTIM_RMSPROP,
               .lr = 0.01,
               .momentum = 0.9,
               .weight_decay = 0.1,
               .alpha = 0.9,
               .eps = 1e-8,
               .centered = true,
               .clip_value = 1e-3},
     .precision = LVNI_PRECISION_16_MIXED},
    {.batch_size = 8,
     .micro_batches = 2,
     .lanes = 1,
     .optim =
         {.kind = LVNI_OPTIM_LION, .lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99},
     .clip = 0.5},
    {.batch_size = 8,
     .micro_batches = 2,
     .lanes = 1,
     .optim = {.kind = LVNI_OPTIM_LAMB,
               .lr = 0.02,
               .weight_decay = 0.1,
               .beta1 = 0.9,
               .beta2 = 0.99,
               .eps = 1e-6},
     .precision = LVNI_PRECISION_16_MIXED,
     .clip = 0.5},
    {.batch_size = 8,
     .micro_batches = 2,
     .lanes = 1,
     .optim = {.kind = LVNI_OPTIM_ADAFACTOR,
               .lr = 0.02,
               .weight_decay = 0.1,
               .beta2_decay = -0.8,
               .eps = 0x1p-23,
               .eps2 = 1e-3,
               .d = 1.0},
     .precision = LVNI_PRECISION_16_MIXED,
     .clip = 0.5},
    {.cls = &coupled_class,
     .batch_size = 10,
     .micro_batches = 3,
     .lanes = 3,
     .optim = {.lr = 0.01}},
};
enum { N_SETTINGS = (int)(sizeof settings / sizeof *settings) };

typedef struct rank {
    lvn_device device;
    int setting;
    uint64_t hash;
    lvni_nn_step evaluated;
    bool good;
} rank;

static void evaluate(bench *b, lvni_nn_step *result)
{
    lvni_data_loader *loader;
    const lvni_data_loader_options o = {.dataset = b->trainer->o.train,
                                        .plan = &b->trainer->o.plan};
    assert_int_equal(lvni_data_loader_create(&o, &loader), LVN_OK);
    assert_int_equal(
        lvni_trainer_evaluate(b->model, loader, b->trainer->engine->lanes, NULL, result), LVN_OK);
    lvni_data_loader_destroy(loader);
}

static void *train(void *argument)
{
    rank *r = argument;
    memory data;
    bench b;
    setting s = settings[r->setting];
    memory_init(&data, 33, s.cls == NULL ? SIDE : 0);
    s.cls = s.cls == NULL ? lvni_nn_zoo_find("cnn") : s.cls;
    assert_int_equal(lvn_device_use(r->device), LVN_OK);
    bench_open(&b, &data, &s);
    bench_steps(&b, STEPS);
    r->hash = bench_hash(&b);
    evaluate(&b, &r->evaluated);
    /* lanes give the thread its own context back */
    r->good = lvn_device_in_use().kind == r->device.kind;
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    return NULL;
}

static void assert_same_rank(const rank *a, const rank *b)
{
    assert_true(a->good && b->good);
    assert_true(a->hash == b->hash);
    assert_int_equal(a->evaluated.n_metrics, b->evaluated.n_metrics);
    assert_true(a->evaluated.n_metrics > 0);
    for (int i = 0; i < a->evaluated.n_metrics; i++) {
        assert_memory_equal(&a->evaluated.metric[i].sum, &b->evaluated.metric[i].sum,
                            2 * sizeof(double));
    }
}

TEST(steps_have_the_bits_of_the_cpu)
{
    for (int i = 0; i < N_SETTINGS; i++) {
        rank here = {.device = LVN_CPU, .setting = i}, there = {.device = LVN_SIM(0), .setting = i};
        train(&here);
        train(&there);
        assert_same_rank(&here, &there);
    }
}

/* Each with its model, trainer, lanes and device; the host's beside them. */
TEST(ranks_are_threads)
{
    rank r[3] = {{.device = LVN_CPU}, {.device = LVN_SIM(0)}, {.device = LVN_SIM(1)}};
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, train, &r[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], NULL);
    }
    assert_same_rank(&r[0], &r[1]);
    assert_same_rank(&r[0], &r[2]);
}

/* Create, step, destroy, on a device whose k-th allocation fails. */
static lvn_status try_to_train(const memory *data, lvni_tensor_device *device, int64_t k)
{
    const lvni_nn_zoo_arguments arguments = {
        .image_size = SIDE, .n_classes = CLASSES, .dropout = 0.2};
    const lvni_plan_options plan = {.n_samples = data->n,
                                    .batch_size = 10,
                                    .micro_batches = 2,
                                    .lanes = 2,
                                    .pins.wgrad_threads = 1,
                                    .cores = 1};
    lvni_nn_model *model;
    lvni_trainer *trainer = NULL;
    lvni_trainer_step_result result;
    lvni_tensor_device_fail_at(device, k);
    LVN_TRY(lvni_nn_model_build(lvni_nn_zoo_find("cnn"), &arguments, 4, &model));
    lvni_trainer_options o = {.model = model,
                              .train = &data->base,
                              .optim = {.lr = 0.1, .momentum = 0.9},
                              .ema = {.decay = 0.9},
                              .max_epochs = -1,
                              .max_steps = -1,
                              .quiet = true,
                              .config_json = "{}"};
    lvn_status s = lvni_plan_make(&plan, &o.plan);
    if (s == LVN_OK) {
        s = lvni_trainer_create(&o, &trainer);
    }
    if (s == LVN_OK) {
        const lvni_data_loader_options l = {
            .dataset = o.train, .plan = &trainer->o.plan, .training = true};
        s = lvni_data_loader_create(&l, &trainer->loader);
    }
    for (int i = 0; i < 2 && s == LVN_OK; i++) {
        s = lvni_trainer_step(trainer, &result);
    }
    lvni_trainer_destroy(trainer);
    lvni_nn_model_destroy(model);
    return s;
}

TEST(every_allocation_of_the_device_may_fail)
{
    memory data;
    lvni_tensor_device *device;
    memory_init(&data, 20, SIDE);
    assert_int_equal(lvni_tensor_device_open(LVN_DEVICE_SIM, 0, &device), LVN_OK);
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    assert_int_equal(try_to_train(&data, device, 0), LVN_OK);
    const uint64_t before = lvni_tensor_device_get_stats(device).in_use;
    lvn_status s = LVN_ERR_DEVICE_MEMORY;
    int64_t k = 1;
    for (; s != LVN_OK; k++) {
        s = try_to_train(&data, device, k);
        if (s != LVN_OK &&
            (s != LVN_ERR_DEVICE_MEMORY ||
             strstr(lvn_last_error()->message, "sim:0: this allocation was set to fail") == NULL)) {
            fail_msg("allocation %lld: %s", (long long)k, lvn_last_error()->message);
        }
        assert_int_equal(lvni_tensor_device_get_stats(device).in_use, before);
    }
    lvni_tensor_device_fail_at(device, 0);
    assert_true(k > 100); /* two steps of a network */
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

/* One lane after the other takes what was estimated, to the byte; lanes at once may share blocks.
 */
static void check_estimate(int lanes, int index, lvni_optim_kind kind)
{
    memory data;
    bench b;
    lvni_tensor_device *device;
    lvni_trainer_memory_need need;
    lvni_nn_step result;
    memory_init(&data, 33, SIDE);
    assert_int_equal(lvn_device_use(LVN_SIM(index)), LVN_OK);
    assert_int_equal(lvni_tensor_device_open(LVN_DEVICE_SIM, index, &device), LVN_OK);
    const setting s = {.cls = lvni_nn_zoo_find("cnn"),
                       .batch_size = 10,
                       .micro_batches = 4,
                       .lanes = lanes,
                       .optim = {.kind = kind, .lr = 0.1, .weight_decay = 0.01, .momentum = 0.9},
                       .ema = {.decay = 0.9}};
    bench_open(&b, &data, &s);
    bench_steps(&b, 4); /* the last one of 3 samples */
    evaluate(&b, &result);
    lvni_trainer_options o = b.trainer->o;
    o.val = o.train;
    assert_int_equal(lvni_trainer_predict_memory(&o, &need), LVN_OK);
    const lvni_tensor_device_stats stats = lvni_tensor_device_get_stats(device);
    assert_int_equal(need.device_limit, stats.limit);
    assert_string_equal(need.device_name, lvni_tensor_device_name(device));
    if (lanes == 1) {
        assert_int_equal(need.device, stats.most);
    } else {
        assert_int_in_range(stats.most, need.device_fixed, need.device);
    }
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

TEST(device_memory_is_estimated)
{
    (void)state; /* each time a device not used before */
    check_estimate(1, 2, LVNI_OPTIM_SGD);
    check_estimate(2, 3, LVNI_OPTIM_SGD);
    check_estimate(1, 4, LVNI_OPTIM_LARS);
    check_estimate(1, 5, LVNI_OPTIM_ADAFACTOR);
}

BEFORE_ALL()
{
    sim_start("6", "64MiB");
    return 0;
}

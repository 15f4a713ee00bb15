/* A step of the engine is captured on the simulated accelerator and replayed for the steps after
 * it: with new batches where the old ones were, and what changes from step to step written into the
 * step block, the bits are those of steps that are submitted one by one. */
#include "trainer_support.h"

#include "sim_support.h"

#include "kernels/flat.h"

#include <string.h>

enum { SIDE = 8, MICRO_BATCHES = 4, FIRST = 3, STEPS = 9 };

static const char *const groups[] = {"*.bias:beta1=0.5:beta2=0.8"};
static const setting adamw = {.batch_size = 8,
                              .micro_batches = MICRO_BATCHES,
                              .lanes = 1,
                              .optim = {.kind = LVNI_OPTIM_ADAMW,
                                        .lr = 1e-2,
                                        .weight_decay = 0.1,
                                        .beta1 = 0.9,
                                        .beta2 = 0.99,
                                        .eps = 1e-8},
                              .schedule = {.kind = LVNI_SCHEDULE_COSINE,
                                           .warmup_steps = 5,
                                           .total_steps = 20,
                                           .end_factor = 0.1},
                              .rules = {.groups = groups, .n_groups = 1},
                              .ema = {.decay = 0.999, .warmup = true},
                              .clip = 0.5};
static const setting sgd = {
    .batch_size = 8,
    .micro_batches = MICRO_BATCHES,
    .lanes = 1,
    .optim = {.kind = LVNI_OPTIM_SGD, .lr = 0.05, .momentum = 0.9},
    .schedule = {.kind = LVNI_SCHEDULE_LINEAR, .total_steps = 20, .end_factor = 0.0}};

/* ---- the first micro-batch of a step begins what is captured ---- */

static struct {
    bool on; /* the step that is submitted next */
    const lvn_backend *backend;
    void *stream;
    lvn_tensor *image[MICRO_BATCHES], *label[MICRO_BATCHES]; /* they keep their addresses */
    int n;
} capture;

/* Of the model that was built last: the mean of the images, with a momentum that moves. */
static lvn_buffer *brightness;

static lvn_status build(lvn_module *module, lvn_builder *b)
{
    LVN_TRY(lvni_nn_zoo_find("cnn")->build(module, b));
    brightness = lvn_builder_buffer(b, "brightness", LVN_SHAPE(1), 0.0, 0.0);
    return lvn_builder_momentum(
        b, brightness, lvn_builder_number(b, "pace", .from = 0.9, .to = 0.1, .steps = STEPS));
}

static lvn_tensor *training_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    if (capture.on) {
        if (capture.n == 0) {
            assert_int_equal(capture.backend->capture_begin(capture.stream), LVN_OK);
        }
        capture.image[capture.n] = lvn_retain(batch->image);
        capture.label[capture.n++] = lvn_retain(batch->label);
    }
    lvn_tensor *mean = lvn_mean(batch->image);
    return mean == NULL || lvn_buffer_push(brightness, mean) != LVN_OK
               ? NULL
               : lvni_nn_zoo_find("cnn")->training_step(module, batch, step);
}

static lvn_module_class watched(void)
{
    lvn_module_class cls = *lvni_nn_zoo_find("cnn");
    cls.build = build;
    cls.training_step = training_step;
    return cls;
}

static void *capture_step(bench *b)
{
    lvni_trainer *t = b->trainer;
    lvni_trainer_step_record record;
    lvni_tensor_device *d;
    void *graph;
    assert_int_equal(lvni_tensor_device_open(LVN_DEVICE_SIM, 0, &d), LVN_OK);
    capture.on = true;
    capture.n = 0;
    capture.backend = lvni_tensor_device_backend(d);
    capture.stream = lvni_tensor_device_stream(d);
    if (lvni_trainer_engine_submit(t->engine, t->loader, &t->at, &record) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    assert_int_equal(capture.n, MICRO_BATCHES);
    assert_int_equal(capture.backend->capture_end(capture.stream, &graph), LVN_OK);
    capture.on = false;
    lvni_trainer_engine_discard(t->engine, &record); /* nothing of it ran */
    return graph;
}

/* The next step's batches where those of the captured step are. */
static void load(bench *b)
{
    lvni_trainer *t = b->trainer;
    for (int i = 0; i < MICRO_BATCHES; i++) {
        const lvni_data_loader_batch *held;
        assert_int_equal(lvni_data_loader_next(t->loader, &held), LVN_OK);
        const lvn_tensor *from[] = {held->batch.image, held->batch.label},
                         *to[] = {capture.image[i], capture.label[i]};
        for (int k = 0; k < 2; k++) {
            assert_true(lvni_tensor_same_shape(from[k], to[k]));
            assert_int_equal(
                lvni_tensor_mem_copy(to[k]->data, from[k]->data,
                                     (size_t)lvn_numel(to[k]) * lvn_dtype_size(to[k]->dtype)),
                LVN_OK);
        }
        lvni_data_loader_release(t->loader, held);
    }
}

/* The hash of weights, buffers, average and optimizer state; metrics were not collected. */
static uint64_t hash_of(bench *b)
{
    assert_int_equal(lvn_device_wait(), LVN_OK);
    b->trainer->report.epoch_sum = (lvni_nn_step){0};
    return bench_hash(b);
}

static uint64_t submit_all(const memory *data, const setting *s, lvni_trainer_step_result *last)
{
    bench b;
    bench_open(&b, data, s);
    bench_steps(&b, STEPS - 1);
    assert_int_equal(lvni_trainer_step(b.trainer, last), LVN_OK);
    const uint64_t hash = hash_of(&b);
    bench_close(&b);
    return hash;
}

static uint64_t replay(const memory *data, const setting *s, lvn_step_block *last)
{
    bench b;
    bench_open(&b, data, s);
    bench_steps(&b, FIRST);
    lvni_trainer_engine *e = b.trainer->engine;
    assert_non_null(e->deferred);
    const uint64_t before = hash_of(&b);
    void *graph = capture_step(&b);
    assert_true(hash_of(&b) == before);
    for (int step = FIRST; step < STEPS; step++) {
        e->now.step = step;
        if (step > FIRST) { /* the first one's is there */
            load(&b);
            lvni_trainer_numbers_begin(e);
            assert_int_equal(lvni_trainer_deferred_begin(e->deferred, e), LVN_OK);
        }
        assert_int_equal(capture.backend->graph_replay(graph, capture.stream), LVN_OK);
    }
    const uint64_t hash = hash_of(&b);
    assert_int_equal(lvni_tensor_mem_copy(last, e->deferred->block, sizeof *last), LVN_OK);
    capture.backend->graph_destroy(graph);
    for (int i = 0; i < MICRO_BATCHES; i++) {
        lvn_release(capture.image[i]);
        lvn_release(capture.label[i]);
    }
    bench_close(&b);
    return hash;
}

TEST(replayed_steps_have_the_bits_of_submitted_ones)
{
    const lvn_module_class cls = watched();
    const setting settings[] = {adamw, sgd};
    memory data;
    memory_init(&data, 200, SIDE);
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    for (int i = 0; i < 2; i++) {
        setting s = settings[i];
        lvni_trainer_step_result want;
        lvn_step_block got;
        s.cls = &cls;
        const uint64_t hash = submit_all(&data, &s, &want);
        assert_true(replay(&data, &s, &got) == hash);
        assert_true(got.finished == STEPS && got.updates[0] == STEPS &&
                    got.failed == LVN_STEP_FINE);
        assert_true(got.phase[0].lr == want.lr && want.lr != s.optim.lr);
        assert_true(got.phase[0].grad_norm == want.phase[0].grad_norm);
        assert_true(got.phase[0].clipped == want.phase[0].clipped);
    }
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

BEFORE_ALL()
{
    sim_start("1", "64MiB");
    return 0;
}

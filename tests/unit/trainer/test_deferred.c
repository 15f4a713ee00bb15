/* Steps on a device are read one step late: the host never waits for the newest command, a value
 * that is not finite and an error of the device are named with their step, and neither that step
 * nor the one after it has changed anything. */
#include "trainer_support.h"

#include "sim_support.h"

#include "tensor/device.h"

#include <stdlib.h>
#include <string.h>

enum { SIDE = 8 };

static const setting adamw = {
    .batch_size = 8,
    .micro_batches = 4,
    .lanes = 1,
    .optim = {.kind = LVNI_OPTIM_ADAMW, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8},
    .ema = {.decay = 0.9},
    .clip = 0.5};
static const setting lars = {.batch_size = 8,
                             .micro_batches = 4,
                             .lanes = 1,
                             .optim = {.kind = LVNI_OPTIM_LARS,
                                       .lr = 0.5,
                                       .weight_decay = 0.01,
                                       .momentum = 0.9,
                                       .trust_coefficient = 0.02,
                                       .eps = 1e-8},
                             .ema = {.decay = 0.9},
                             .clip = 0.5};

/* Two steps under way at once, as the loop has them. */
typedef struct pair {
    lvni_trainer *t;
    lvni_trainer_step_record record[2];
    int n; /* submitted */
} pair;

static void submit(pair *p)
{
    lvni_trainer_step_record *r = &p->record[p->n++ % 2];
    if (lvni_trainer_engine_submit(p->t->engine, p->t->loader, &p->t->at, r) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    p->t->at.step++;
    p->t->at.step_in_epoch++;
    p->t->at.samples_seen += r->samples;
}

/* The step before the last one that was submitted. */
static lvn_status collect(const pair *p, lvni_trainer_step_result *result)
{
    return lvni_trainer_engine_collect(p->t->engine, &p->record[p->n % 2], result);
}

static void check_waits(setting s)
{
    memory data;
    bench b;
    lvni_trainer_step_result result;
    s.cls = lvni_nn_zoo_find("cnn");
    memory_init(&data, 200, SIDE);
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    bench_open(&b, &data, &s);
    assert_non_null(b.trainer->engine->deferred);
    b.trainer->engine->more_steps = true;
    pair p = {.t = b.trainer};
    submit(&p);
    for (int i = 0; i < 3; i++) { /* memory is taken, oneDNN's primitives are made */
        submit(&p);
        assert_int_equal(collect(&p, &result), LVN_OK);
    }
    const lvni_sim_counters before = lvni_sim_get_counters(0);
    for (int i = 0; i < 20; i++) {
        submit(&p);
        assert_int_equal(collect(&p, &result), LVN_OK);
        assert_int_equal(result.after.step, p.n - 1);
    }
    const lvni_sim_counters after = lvni_sim_get_counters(0);
    assert_true(after.commands > before.commands + 20 * 4 * 20); /* there was work */
    assert_int_equal(after.drained, before.drained);
    /* once per step, for the one before, unless that has ended by then */
    assert_true(after.throttled <= before.throttled + 20);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

TEST(the_host_waits_for_nothing_new)
{
    check_waits(adamw);
    check_waits(lars);
}

/* Weights, buffers, the average and the optimizer's state. */
static void assert_same_state(const bench *a, const bench *b)
{
    const lvni_nn_model *m = a->model;
    const size_t values = (size_t)m->n_values, weights = (size_t)m->n_weights;
    const struct {
        const float *of_a, *of_b;
        size_t n;
    } part[] = {
        {m->weights, b->model->weights, values},
        {a->trainer->engine->ema->value, b->trainer->engine->ema->value, values},
        {a->trainer->engine->optim->slot[0], b->trainer->engine->optim->slot[0], weights},
        {a->trainer->engine->optim->slot[1], b->trainer->engine->optim->slot[1], weights},
    };
    const size_t n = 2 + (size_t)a->trainer->engine->optim->n_slots;
    for (size_t i = 0; i < n; i++) {
        float *x = test_malloc(part[i].n * sizeof *x), *y = test_malloc(part[i].n * sizeof *y);
        assert_int_equal(lvni_tensor_mem_copy(x, part[i].of_a, part[i].n * sizeof *x), LVN_OK);
        assert_int_equal(lvni_tensor_mem_copy(y, part[i].of_b, part[i].n * sizeof *y), LVN_OK);
        assert_memory_equal(x, y, part[i].n * sizeof *x);
        test_free(x);
        test_free(y);
    }
    assert_int_equal(a->trainer->engine->optim->steps[0], b->trainer->engine->optim->steps[0]);
}

/* Runs on the device until step `bad` fails when it is read; what is left has to be what the CPU
 * has after `bad` steps. */
static lvn_status run_into(const memory *broken, const memory *fine, const setting *s, int bad,
                           lvn_error *error)
{
    bench there, here;
    lvni_trainer_step_result result;
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    bench_open(&there, broken, s);
    pair p = {.t = there.trainer};
    submit(&p);
    for (int i = 0; i < bad; i++) {
        submit(&p);
        assert_int_equal(collect(&p, &result), LVN_OK);
    }
    submit(&p); /* the one after it is under way, too */
    const lvn_status status = collect(&p, &result);
    *error = *lvn_last_error();
    lvni_trainer_engine_discard(p.t->engine, &p.record[(p.n + 1) % 2]);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    bench_open(&here, fine, s);
    bench_steps(&here, bad);
    assert_same_state(&there, &here);
    bench_close(&here);
    bench_close(&there);
    return status;
}

static void check_bad_loss(const setting *s)
{
    enum { BAD = 3 };
    memory fine, broken;
    bench b;
    lvn_error error;
    memory_init(&fine, 200, 0);
    broken = fine;
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    bench_open(&b, &fine, s); /* which samples step 3 has */
    bench_steps(&b, BAD + 1);
    bench_close(&b);
    broken.nan[seen[BAD].sample[5]] = true; /* two in a micro-batch: it is in the third */
    assert_int_equal(run_into(&broken, &fine, s, BAD, &error), LVN_ERR_NON_FINITE);
    assert_non_null(strstr(error.message, "the loss is nan at step 3 (epoch 1), micro-batch 2"));
}

TEST(a_loss_that_is_not_finite_is_named_with_its_step)
{
    check_bad_loss(&adamw);
    check_bad_loss(&lars);
}

/* ---- an error of the device ---- */

enum { WRONG_STEP = 4 };
static bool goes_wrong;

static lvn_status picking_build(lvn_module *module, lvn_builder *b)
{
    *(lvn_module **)(void *)(module + 1) = lvn_nn_linear(b, "head", FEATURES, CLASSES);
    return lvn_builder_status(b);
}

/* In step 4, micro-batch 2, an index is outside of the tensor: a kernel finds that. */
static lvn_tensor *picking_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const lvn_module *head = *(lvn_module *const *)(const void *)(module + 1);
    lvn_tensor *logits = lvn_forward(head, batch->image);
    static int64_t index; /* the backward pass reads it, too */
    index = goes_wrong && step->step == WRONG_STEP ? 99 : 0;
    lvn_tensor *at = lvn_tensor_wrap(&index, LVN_I64, LVN_SHAPE(1));
    lvn_tensor *loss = lvn_mean(lvn_square(lvn_index_select(logits, 0, at)));
    lvn_release(at);
    lvn_log(step, "loss", loss);
    return loss;
}

/* In the last chunk of an evaluation. */
static int evaluated;

static lvn_tensor *picking_validation(const lvn_module *module, const lvn_batch *batch,
                                      lvn_step *step)
{
    const lvn_module *head = *(lvn_module *const *)(const void *)(module + 1);
    int64_t index = evaluated++ == 9 ? 99 : 0;
    lvn_tensor *at = lvn_tensor_wrap(&index, LVN_I64, LVN_SHAPE(1));
    lvn_tensor *loss =
        lvn_mean(lvn_square(lvn_index_select(lvn_forward(head, batch->image), 0, at)));
    lvn_release(at);
    lvn_log(step, "loss", loss);
    return loss;
}

static const lvn_module_class picking = {.name = "picking",
                                         .size = sizeof(lvn_module) + sizeof(lvn_module *),
                                         .build = picking_build,
                                         .training_step = picking_step,
                                         .validation_step = picking_validation};

TEST(an_error_of_the_device_stops_before_the_update)
{
    memory data;
    lvn_error error;
    setting s = adamw;
    s.cls = &picking;
    memory_init(&data, 200, 0);
    bench there, here;
    lvni_trainer_step_result result;
    goes_wrong = true;
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    bench_open(&there, &data, &s);
    pair p = {.t = there.trainer};
    submit(&p);
    lvn_status status = LVN_OK;
    while (status == LVN_OK && p.n < 20) {
        lvni_trainer_step_record *r = &p.record[p.n % 2];
        status = lvni_trainer_engine_submit(p.t->engine, p.t->loader, &p.t->at, r);
        if (status == LVN_OK) { /* else the error was there before all was submitted */
            p.n++;
            p.t->at.step++;
            p.t->at.step_in_epoch++;
            status = lvni_trainer_engine_collect(p.t->engine, &p.record[p.n % 2], &result);
            error = *lvn_last_error();
            if (status != LVN_OK) {
                lvni_trainer_engine_discard(p.t->engine, &p.record[(p.n + 1) % 2]);
            }
        } else {
            status = lvni_trainer_engine_collect(p.t->engine, &p.record[(p.n + 1) % 2], &result);
            error = *lvn_last_error();
            status = status == LVN_OK ? LVN_ERR_INVALID : status;
        }
    }
    goes_wrong = false;
    assert_int_equal(status, LVN_ERR_INVALID);
    assert_non_null(strstr(error.message, "index 99"));
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    bench_open(&here, &data, &s);
    bench_steps(&here, WRONG_STEP);
    assert_same_state(&there, &here);
    assert_false(lvni_trainer_engine_torn(there.trainer->engine));
    bench_close(&here);
    bench_close(&there);
}

/* Once; the device goes on afterwards. */
TEST(an_error_of_the_device_ends_an_evaluation)
{
    memory data;
    bench b;
    setting s = adamw;
    s.cls = &picking;
    memory_init(&data, 200, 0);
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    bench_open(&b, &data, &s);
    lvni_plan plan = b.trainer->o.plan;
    plan.eval_batch_size = 20;
    evaluated = 0;
    for (int i = 0; i < 2; i++) {
        lvni_nn_step sum;
        lvni_data_loader *loader;
        const lvni_data_loader_options o = {.dataset = &data.base, .plan = &plan, .workers = 1};
        assert_int_equal(lvni_data_loader_create(&o, &loader), LVN_OK);
        const lvn_status status =
            lvni_trainer_evaluate(b.model, loader, b.trainer->engine->lanes, NULL, &sum);
        assert_int_equal(status, i == 0 ? LVN_ERR_INVALID : LVN_OK);
        assert_true(i == 1 || strstr(lvn_last_error()->message, "index 99") != NULL);
        assert_true(i == 0 || (sum.n_metrics == 1 && sum.metric[0].weight == 200.0));
        lvni_data_loader_destroy(loader);
    }
    bench_steps(&b, 2);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

/* ---- an error of the copy stream ---- */

static lvn_status break_down(void *payload)
{
    (void)payload;
    LVN_FAIL(LVN_ERR_INTERNAL, "this copy was made to fail");
}

/* A batch that never came to the device: neither its step nor a later one updates. */
TEST(a_copy_that_fails_stops_before_the_update)
{
    memory data;
    bench there, here;
    lvni_trainer_step_result result;
    lvni_tensor_device *device;
    void *copies;
    lvn_status status = LVN_OK;
    int done = 0;
    memory_init(&data, 200, 0);
    assert_int_equal(lvni_tensor_device_open(LVN_DEVICE_SIM, 0, &device), LVN_OK);
    const lvn_backend *b = lvni_tensor_device_backend(device);
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    bench_open(&there, &data, &adamw);
    assert_int_equal(b->stream_create(lvni_tensor_device_state(device), LVN_STREAM_COPY, &copies),
                     LVN_OK);
    pair p = {.t = there.trainer};
    there.trainer->engine->more_steps = true;
    submit(&p);
    while (status == LVN_OK && p.n < 20) {
        if (p.n == 4) {
            assert_int_equal(lvni_sim_submit(copies, "a copy", break_down, "", 1), LVN_OK);
        }
        lvni_trainer_step_record *r = &p.record[p.n % 2];
        status = lvni_trainer_engine_submit(p.t->engine, p.t->loader, &p.t->at, r);
        const bool submitted = status == LVN_OK;
        p.n += submitted ? 1 : 0;
        p.t->at.step++;
        p.t->at.step_in_epoch++;
        const lvn_status read = lvni_trainer_engine_collect(
            p.t->engine, &p.record[(p.n + (submitted ? 0 : 1)) % 2], &result);
        done += read == LVN_OK ? 1 : 0;
        status = read != LVN_OK ? read : status;
        if (read != LVN_OK && submitted) {
            lvni_trainer_engine_discard(p.t->engine, &p.record[(p.n + 1) % 2]);
        }
    }
    assert_int_equal(status, LVN_ERR_INTERNAL);
    b->stream_destroy(copies);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    bench_open(&here, &data, &adamw);
    bench_steps(&here, done);
    assert_same_state(&there, &here);
    assert_false(lvni_trainer_engine_torn(there.trainer->engine));
    bench_close(&here);
    bench_close(&there);
}

/* ---- between two phases ---- */

static int wrong_phase;

typedef struct two_heads {
    lvn_module base;
    lvn_module *head[2];
} two_heads;

static lvn_status two_heads_build(lvn_module *module, lvn_builder *b)
{
    two_heads *m = (two_heads *)module;
    m->head[0] = lvn_nn_linear(b, "first", FEATURES, CLASSES);
    m->head[1] = lvn_nn_linear(b, "second", FEATURES, CLASSES);
    return lvn_builder_status(b);
}

static lvn_tensor *two_heads_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const two_heads *m = (const two_heads *)module;
    static int64_t index;
    index = step->step == WRONG_STEP && step->phase == wrong_phase ? 99 : 0;
    lvn_tensor *at = lvn_tensor_wrap(&index, LVN_I64, LVN_SHAPE(1));
    lvn_tensor *logits = lvn_forward(m->head[step->phase], batch->image);
    lvn_tensor *loss = lvn_mean(lvn_square(lvn_index_select(logits, 0, at)));
    lvn_release(at);
    return loss;
}

static const char *const two_phases[] = {"first", "second", NULL};
static const lvn_module_class two_heads_class = {.name = "two_heads",
                                                 .size = sizeof(two_heads),
                                                 .build = two_heads_build,
                                                 .training_step = two_heads_step,
                                                 .phases = two_phases};

/* Steps as the loop has them, until one fails in the given phase. */
static bool tears(const memory *data, int phase)
{
    bench b;
    lvni_trainer_step_result result;
    setting s = adamw;
    s.cls = &two_heads_class;
    wrong_phase = phase;
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    bench_open(&b, data, &s);
    pair p = {.t = b.trainer};
    lvn_status status = LVN_OK;
    submit(&p);
    while (status == LVN_OK && p.n < 20) {
        lvni_trainer_step_record *r = &p.record[p.n % 2];
        status = lvni_trainer_engine_submit(p.t->engine, p.t->loader, &p.t->at, r);
        const bool submitted = status == LVN_OK;
        p.n += submitted ? 1 : 0;
        p.t->at.step++;
        const lvn_status read = lvni_trainer_engine_collect(
            p.t->engine, &p.record[(p.n + (submitted ? 0 : 1)) % 2], &result);
        status = read != LVN_OK ? read : status;
        if (read != LVN_OK && submitted) {
            lvni_trainer_engine_discard(p.t->engine, &p.record[(p.n + 1) % 2]);
        }
    }
    assert_int_equal(status, LVN_ERR_INVALID);
    for (int i = 0; i < 2; i++) { /* whatever the device did of the step */
        assert_int_equal(b.trainer->engine->optim->steps[i], WRONG_STEP);
    }
    const bool torn = lvni_trainer_engine_torn(b.trainer->engine);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    return torn;
}

TEST(between_two_phases_the_weights_are_of_no_step)
{
    memory data;
    memory_init(&data, 200, 0);
    assert_false(tears(&data, 0));
    assert_true(tears(&data, 1));
}

/* ---- taking an error ---- */

static lvn_status select_outside(void *user, int lane)
{
    (void)lane;
    int64_t index = 99;
    lvni_tensor_ctx_get()->deferred = true;
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *at = lvn_tensor_wrap(&index, LVN_I64, LVN_SHAPE(1));
    lvn_index_select(user, 0, at);
    lvn_release(at);
    (void)lvn_scope_close();
    lvni_tensor_ctx_get()->deferred = false;
    return LVN_OK;
}

/* What another context submitted behind the failure does not run when the error is taken. */
TEST(what_was_left_out_stays_left_out)
{
    enum { BEHIND = 900 };
    static float value[BEHIND], after[BEHIND];
    lvni_trainer_lanes *lanes;
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    assert_int_equal(lvni_trainer_lanes_create(1, 1, NULL, &lanes), LVN_OK);
    for (int i = 0; i < BEHIND; i++) {
        value[i] = 1.0f;
    }
    float *there = lvni_tensor_mem_calloc(LVNI_TAG_TRAINER, BEHIND, sizeof *there);
    assert_non_null(there);
    assert_int_equal(lvni_tensor_mem_copy(there, value, sizeof value), LVN_OK);
    lvn_tensor *here = lvn_tensor_wrap(value, LVN_F32, LVN_SHAPE(4));
    lvn_tensor *x = lvn_to_device(here, LVN_SIM(0));
    lvn_release(here);
    assert_non_null(x);
    assert_int_equal(lvni_trainer_lanes_run(lanes, 1, select_outside, x), LVN_OK);
    for (int i = 0; i < BEHIND; i++) {
        assert_int_equal(lvni_tensor_mem_zero(there + i, sizeof *there), LVN_OK);
    }
    assert_int_equal(lvni_trainer_lanes_take_error(lanes), LVN_ERR_INVALID);
    assert_int_equal(lvni_tensor_mem_copy(after, there, sizeof after), LVN_OK);
    assert_memory_equal(after, value, sizeof value);
    lvn_release(x);
    lvni_tensor_mem_free(there, BEHIND, sizeof *there);
    lvni_trainer_lanes_destroy(lanes);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

BEFORE_ALL()
{
    setenv("LEVIN_SIM_KERNEL_US", "50", 1); /* the host is ahead of the device */
    sim_start("1", "64MiB");
    return 0;
}

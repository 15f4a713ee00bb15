/* cuda_graph: the trainer captures a step on the simulated accelerator and replays it: the bits are
 * those of steps that are submitted call by call, on whatever comes between, and steps that a
 * replay would not do again are submitted. */
#include "trainer_support.h"

#include "kernels/flat.h"
#include "sim_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SIDE = 8, STEPS = 12, HELD = 4096 };

static char out[] = "/tmp/levin-graph-XXXXXX";
static char last[128];

static const setting sgd = {
    .batch_size = 8,
    .micro_batches = 4,
    .lanes = 2,
    .optim = {.kind = LVNI_OPTIM_SGD, .lr = 0.05, .momentum = 0.9},
    .schedule = {.kind = LVNI_SCHEDULE_LINEAR, .total_steps = 20, .end_factor = 0.0}};

static setting adamw(void)
{
    setting s = sgd;
    s.optim = (lvni_optim_options){.kind = LVNI_OPTIM_ADAMW,
                                   .lr = 1e-2,
                                   .weight_decay = 0.1,
                                   .beta1 = 0.9,
                                   .beta2 = 0.99,
                                   .eps = 1e-8};
    s.ema = (lvni_optim_ema_options){.decay = 0.999, .warmup = true};
    s.clip = 0.5;
    return s;
}

/* ---- the network: cnn, with a buffer whose momentum moves, and what breaks a capture ---- */

static _Atomic int calls; /* of its training step */
static enum { NOTHING, DRAWS, WAITS, READS } breaks;
static int breaks_at; /* the step; -1: all */
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
    calls++;
    lvn_tensor *mean = lvn_mean(batch->image);
    if (mean == NULL || lvn_buffer_push(brightness, mean) != LVN_OK) {
        return NULL;
    }
    lvn_tensor *loss = lvni_nn_zoo_find("cnn")->training_step(module, batch, step);
    const bool now = loss != NULL && (breaks_at < 0 || step->step == breaks_at);
    if (now && breaks == DRAWS) {
        return lvn_add(loss, lvn_mean(lvn_random_uniform(step, "noise", 4)));
    }
    if (now && breaks == WAITS) {
        return lvn_item(loss) > 1e9 ? NULL : loss;
    }
    if (now && breaks == READS) {
        return lvn_step_host(step)->size > 0 ? loss : NULL;
    }
    return loss;
}

static lvn_module_class counted(void)
{
    lvn_module_class cls = *lvni_nn_zoo_find("cnn");
    cls.build = build;
    cls.training_step = training_step;
    return cls;
}

/* ---- runs ---- */

typedef struct outcome {
    uint64_t hash;
    int calls;
    int64_t replays, left_out; /* samples that count as unreadable */
    lvni_trainer_step_result last;
} outcome;

static void must(lvn_status s)
{
    if (s != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
}

/* As the loop: a step is collected when the next one is submitted. */
static lvn_status take_steps(bench *b, int n, lvni_trainer_step_result *result)
{
    lvni_trainer *t = b->trainer;
    lvni_trainer_step_record record[2];
    for (int i = 0; i <= n; i++) {
        t->engine->more_steps = i + 1 < n;
        if (i < n) {
            LVN_TRY(lvni_trainer_engine_submit(t->engine, t->loader, &t->at, &record[i % 2]));
            t->at.step++;
            t->at.samples_seen += record[i % 2].samples;
            t->at.step_in_epoch = (t->at.step_in_epoch + 1) % t->o.plan.steps_per_epoch;
            t->at.epoch += t->at.step_in_epoch == 0 ? 1 : 0;
        }
        if (i > 0) {
            LVN_TRY(lvni_trainer_engine_collect(t->engine, &record[(i + 1) % 2], result));
            must(lvni_trainer_logging_add(&t->report, result));
        }
    }
    return LVN_OK;
}

static outcome run_on(lvn_device device, const memory *data, setting s,
                      lvni_trainer_graph_mode mode)
{
    static const lvn_module_class *cls;
    static lvn_module_class own;
    bench b;
    outcome o;
    own = counted();
    cls = &own;
    s.cls = s.cls == NULL ? cls : s.cls;
    s.graph = mode;
    calls = 0;
    assert_int_equal(lvn_device_use(device), LVN_OK);
    bench_open(&b, data, &s);
    must(take_steps(&b, STEPS, &o.last));
    must(lvn_device_wait());
    o.hash = bench_hash(&b);
    o.calls = calls;
    o.replays = lvni_trainer_graph_replays(b.trainer->engine->graph);
    const lvni_data_unreadable *u = b.trainer->unreadable;
    o.left_out = u == NULL ? 0 : lvni_data_unreadable_count(u);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    return o;
}

static void assert_same(const outcome *a, const outcome *b)
{
    assert_true(a->hash == b->hash);
    assert_true(a->last.lr == b->last.lr && a->last.samples == b->last.samples);
    assert_true(a->last.phase[0].grad_norm == b->last.phase[0].grad_norm);
    assert_true(a->last.phase[0].clipped == b->last.phase[0].clipped);
    assert_int_equal(a->last.metrics.n_metrics, b->last.metrics.n_metrics);
    for (int i = 0; i < a->last.metrics.n_metrics; i++) {
        assert_string_equal(a->last.metrics.metric[i].name, b->last.metrics.metric[i].name);
        assert_true(a->last.metrics.metric[i].sum == b->last.metrics.metric[i].sum);
    }
}

/* Modules are called in so many of the steps, and in no others. */
static void compare(const memory *data, const setting *s, int submitted)
{
    const outcome off = run_on(LVN_SIM(0), data, *s, LVNI_GRAPH_OFF),
                  on = run_on(LVN_SIM(0), data, *s, LVNI_GRAPH_ON);
    assert_same(&off, &on);
    assert_int_equal(off.calls, STEPS * s->micro_batches);
    assert_int_equal(on.calls, submitted * s->micro_batches);
    assert_int_equal(off.replays, 0);
    assert_int_equal(on.replays, STEPS - submitted + 1); /* one is submitted to be captured */
}

/* As many are replayed; networks that count no calls. */
static void compare_replays(const memory *data, const setting *s, int replays)
{
    const outcome off = run_on(LVN_SIM(0), data, *s, LVNI_GRAPH_OFF),
                  on = run_on(LVN_SIM(0), data, *s, LVNI_GRAPH_ON);
    assert_same(&off, &on);
    assert_int_equal(on.replays, replays);
}

TEST(replayed_steps_have_the_bits_of_submitted_ones)
{
    memory data;
    memory_init(&data, 200, SIDE);
    const setting a = adamw();
    compare(&data, &sgd, 4);
    compare(&data, &a, 4);
    setting alone = a;
    alone.micro_batches = alone.lanes = 1;
    compare(&data, &alone, 4);
    setting waves = sgd;
    waves.lanes = 1;
    waves.workers = 2;
    compare(&data, &waves, 4);
}

TEST(mixed_precision_replays)
{
    memory data;
    memory_init(&data, 200, SIDE);
    setting s = adamw();
    s.precision = LVNI_PRECISION_16_MIXED;
    compare(&data, &s, 4);
    s.precision = LVNI_PRECISION_BF16_MIXED;
    compare(&data, &s, 4);
}

/* 7 steps of 8 in an epoch, the last of them of 4. */
TEST(smaller_steps_are_submitted)
{
    memory data;
    memory_init(&data, 52, SIDE);
    const setting s = adamw();
    compare(&data, &s, 5);
}

/* As where accumulation changes with the epoch: other batches for good are captured again. */
TEST(other_batches_are_captured_again)
{
    memory data;
    bench b;
    lvni_trainer_step_result r;
    uint64_t hash[2];
    memory_init(&data, 200, SIDE);
    const lvn_module_class cls = counted();
    setting s = adamw();
    s.cls = &cls;
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    for (int on = 0; on <= 1; on++) {
        s.graph = on ? LVNI_GRAPH_ON : LVNI_GRAPH_OFF;
        bench_open(&b, &data, &s);
        must(take_steps(&b, 6, &r));
        b.trainer->o.plan.effective_batch = 4;
        b.trainer->engine->o.plan.effective_batch = 4;
        b.trainer->at.step_in_epoch = 0;
        bench_start_loader(&b);
        must(take_steps(&b, STEPS, &r));
        must(lvn_device_wait());
        hash[on] = bench_hash(&b);
        /* 3 of 6; 3 are submitted and 3 watched before one is captured */
        assert_int_equal(lvni_trainer_graph_replays(b.trainer->engine->graph),
                         on ? 3 + STEPS - 6 : 0);
        bench_close(&b);
    }
    assert_true(hash[0] == hash[1]);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

/* Each phase trains one of two layers, on labels and on what the other gives. */
typedef struct pair {
    lvn_module base;
    lvn_module *first, *second;
} pair;

static lvn_status build_pair(lvn_module *module, lvn_builder *b)
{
    pair *m = (pair *)module;
    m->first = lvn_nn_linear(b, "first", FEATURES, CLASSES);
    m->second = lvn_nn_linear(b, "second", FEATURES, CLASSES);
    return lvn_builder_status(b);
}

static lvn_tensor *pair_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const pair *m = (const pair *)module;
    lvn_tensor *first = lvn_forward(m->first, batch->image),
               *second = lvn_forward(m->second, batch->image);
    lvn_tensor *loss = step->phase == 0 ? lvn_cross_entropy(first, batch->label)
                                        : lvn_mean(lvn_square(lvn_sub(first, second)));
    lvn_log(step, step->phase == 0 ? "first" : "second", loss);
    return loss;
}

static const lvn_module_class pair_class = {.name = "pair",
                                            .size = sizeof(pair),
                                            .build = build_pair,
                                            .training_step = pair_step,
                                            .phases =
                                                (const char *const[]){"first", "second", NULL}};

TEST(phases_replay)
{
    memory data;
    memory_init(&data, 200, 0);
    setting s = adamw();
    s.cls = &pair_class;
    compare_replays(&data, &s, STEPS - 3);
    s.precision = LVNI_PRECISION_16_MIXED;
    compare_replays(&data, &s, STEPS - 3);
}

/* Replays of a run with these rules, whose bits are those of one without. */
static int64_t replays_with(lvni_optim_rules rules)
{
    memory data;
    memory_init(&data, 200, SIDE);
    setting s = adamw();
    s.rules = rules;
    const outcome off = run_on(LVN_SIM(0), &data, s, LVNI_GRAPH_OFF),
                  on = run_on(LVN_SIM(0), &data, s, LVNI_GRAPH_AUTO);
    assert_same(&off, &on);
    return on.replays;
}

/* Frozen for 6 steps: it has a count of its own then, which is an argument of kernels. */
TEST(thawed_parameters_end_replays)
{
    static const char *const until[] = {"head.*=6"};
    const int64_t replays =
        replays_with((lvni_optim_rules){.freeze_until = until, .n_freeze_until = 1});
    assert_int_equal(replays, 3); /* steps 3, 4 and 5 */
}

/* The rate of a group is an argument of kernels: it is captured again when it is not 0 any more. */
TEST(held_parameters_end_replays)
{
    static const char *const until[] = {"head.*=5"};
    const int64_t replays =
        replays_with((lvni_optim_rules){.lr_zero_until = until, .n_lr_zero_until = 1});
    assert_true(replays >= 2); /* steps 3 and 4 */
}

/* It is captured again for each rate of those that a growing group has, and then no more. */
TEST(growing_rates_end_replays)
{
    static const char *const until[] = {"head.*=3:0.25:2"};
    const int64_t replays =
        replays_with((lvni_optim_rules){.lr_zero_until = until, .n_lr_zero_until = 1});
    assert_in_range(replays, 1, STEPS - 4); /* fewer than of a rate that stays */
}

TEST(unreadable_samples_are_submitted)
{
    memory data;
    memory_init(&data, 200, SIDE);
    setting s = sgd;
    s.skip = true;
    for (int i = 0; i < 200; i += 40) {
        data.unreadable[i] = true;
    }
    const outcome off = run_on(LVN_SIM(0), &data, s, LVNI_GRAPH_OFF),
                  on = run_on(LVN_SIM(0), &data, s, LVNI_GRAPH_ON);
    assert_same(&off, &on);
    assert_true(on.calls < off.calls);
    assert_true(off.left_out > 0);
    assert_int_equal(on.left_out, off.left_out);
}

/* Steps that lack as many samples have batches of the same shapes: each is counted all the same. */
TEST(alike_batches_that_lack_samples_are_counted)
{
    memory data;
    bench b;
    setting s = sgd;
    s.skip = true;
    s.lanes = 1;
    memory_init(&data, 200, 0);
    bench_open(&b, &data,
               &(setting){.batch_size = 8, .micro_batches = 4, .lanes = 1, .optim = {.lr = 0.1}});
    bench_steps(&b, STEPS);
    bench_close(&b);
    memory_init(&data, 200, SIDE);
    for (int i = 0; i < STEPS; i++) {
        data.unreadable[seen[i].sample[3]] = true;
    }
    const outcome off = run_on(LVN_SIM(0), &data, s, LVNI_GRAPH_OFF),
                  on = run_on(LVN_SIM(0), &data, s, LVNI_GRAPH_AUTO);
    assert_same(&off, &on);
    assert_int_equal(off.left_out, STEPS);
    assert_int_equal(on.left_out, STEPS);
}

/* ---- what cannot be captured ---- */

TEST(broken_steps_are_submitted)
{
    memory data;
    memory_init(&data, 200, SIDE);
    for (breaks = DRAWS; breaks <= READS; breaks++) {
        for (breaks_at = -1; breaks_at <= 3; breaks_at += 4) { /* watched, or being captured */
            const outcome off = run_on(LVN_SIM(0), &data, sgd, LVNI_GRAPH_OFF),
                          on = run_on(LVN_SIM(0), &data, sgd, LVNI_GRAPH_AUTO);
            assert_same(&off, &on);
            /* the step that could not be captured is submitted again */
            assert_true(on.calls >= off.calls && on.calls <= off.calls + sgd.micro_batches);
        }
    }
    breaks = NOTHING;
}

TEST(broken_steps_are_errors_when_asked_for)
{
    static const char *const expected[] = {"", "copies numbers of the host", "lvn_item",
                                           "lvn_step_host"};
    memory data;
    memory_init(&data, 200, SIDE);
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    for (breaks = DRAWS; breaks <= READS; breaks++) {
        bench b;
        lvni_trainer_step_result r;
        const lvn_module_class cls = counted();
        setting s = sgd;
        s.cls = &cls;
        s.graph = LVNI_GRAPH_ON;
        breaks_at = -1;
        bench_open(&b, &data, &s);
        assert_int_equal(take_steps(&b, STEPS, &r), LVN_ERR_UNSUPPORTED);
        assert_non_null(strstr(lvn_last_error()->message, "cuda_graph=on"));
        assert_non_null(strstr(lvn_last_error()->message, expected[breaks]));
        bench_close(&b);
    }
    breaks = NOTHING;
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

/* ---- between steps ---- */

static double evaluate(bench *b)
{
    lvni_data_loader *loader;
    lvni_nn_step result;
    const lvni_data_loader_options o = {.dataset = b->trainer->o.train,
                                        .plan = &b->trainer->o.plan};
    must(lvni_data_loader_create(&o, &loader));
    must(lvni_trainer_evaluate(b->model, loader, b->trainer->engine->lanes, NULL, &result));
    lvni_data_loader_destroy(loader);
    return result.metric[0].sum;
}

/* Evaluation and saving between steps, another bench that resumes; memory that others hold while
 * steps are replayed. */
static uint64_t run_with_breaks(const memory *data, setting s, double loss[2])
{
    bench b;
    lvni_trainer_step_result r;
    lvni_ckpt *ckpt;
    s.out = out;
    bench_open(&b, data, &s);
    must(take_steps(&b, 6, &r));
    loss[0] = evaluate(&b);
    bench_start_loader(&b);
    must(lvni_trainer_save_start(b.trainer, false));
    float *held = lvni_tensor_mem_calloc(LVNI_TAG_MODEL, HELD, sizeof *held), host[HELD];
    assert_non_null(held);
    must(take_steps(&b, 6, &r));
    must(lvni_trainer_save_wait(b.trainer));
    loss[1] = evaluate(&b);
    must(bench_save(b.trainer, false));
    must(lvni_tensor_mem_copy(host, held, sizeof host));
    for (int i = 0; i < HELD; i++) {
        assert_true(host[i] == 0.0f);
    }
    lvni_tensor_mem_free(held, HELD, sizeof *held);
    bench_close(&b);
    assert_int_equal(lvni_ckpt_load(last, &ckpt), LVN_OK);
    bench_open(&b, data, &s);
    must(lvni_trainer_restore(b.trainer, ckpt));
    bench_start_loader(&b);
    must(take_steps(&b, 7, &r));
    must(lvni_trainer_load(b.trainer, ckpt));
    bench_start_loader(&b);
    must(take_steps(&b, 7, &r));
    must(lvn_device_wait());
    const uint64_t hash = bench_hash(&b);
    lvni_ckpt_free(ckpt);
    bench_close(&b);
    return hash;
}

TEST(what_comes_between_changes_nothing)
{
    memory data;
    memory_init(&data, 200, SIDE);
    const lvn_module_class cls = counted();
    setting s = adamw();
    s.cls = &cls;
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    double loss[2][2];
    const uint64_t off = run_with_breaks(&data, s, loss[0]);
    s.graph = LVNI_GRAPH_ON;
    assert_true(run_with_breaks(&data, s, loss[1]) == off);
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
    assert_true(loss[0][0] != loss[0][1]);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

/* Blocks of the captured step go to others when the device is full, and it is captured again. */
TEST(a_full_device_takes_the_memory_back)
{
    enum { BLOCKS = 64, BYTES = 1 << 20 };
    memory data;
    memory_init(&data, 200, SIDE);
    const lvn_module_class cls = counted();
    setting s = sgd;
    s.cls = &cls;
    s.graph = LVNI_GRAPH_ON;
    const outcome off = run_on(LVN_SIM(0), &data, sgd, LVNI_GRAPH_OFF);
    void *block[BLOCKS];
    lvni_trainer_step_result r;
    bench b;
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    bench_open(&b, &data, &s);
    must(take_steps(&b, 6, &r));
    int n = 0;
    while (n < BLOCKS && (block[n] = lvni_tensor_mem_calloc(LVNI_TAG_MODEL, 1, BYTES)) != NULL) {
        n++;
    }
    assert_true(n < BLOCKS);
    lvn_clear_error();
    for (int i = 0; i < n; i++) {
        lvni_tensor_mem_free(block[i], 1, BYTES);
    }
    bench_start_loader(&b);
    calls = 0;
    must(take_steps(&b, 6, &r));
    assert_int_equal(calls, 5 * s.micro_batches); /* one is lost, three are watched, one captured */
    must(lvn_device_wait());
    assert_true(bench_hash(&b) == off.hash);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

int main(int argc, char **argv)
{
    sim_start("1", "64MiB");
    if (mkdtemp(out) == NULL) {
        return 1;
    }
    snprintf(last, sizeof last, "%s/checkpoints", out);
    assert_int_equal(mkdir(last, 0777), 0);
    snprintf(last, sizeof last, "%s/checkpoints/last.safetensors", out);
    const int failed = test_main(argc, argv);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", out);
    return system(command) != 0 ? 1 : failed;
}

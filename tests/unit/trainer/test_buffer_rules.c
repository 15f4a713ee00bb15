/* Runs with buffers that are more than means: the bits of one rank with one lane, on any number of
 * lanes, ranks (as threads), loader threads, buckets, on the simulated accelerator, and after a
 * resume; a step that is skipped moves nothing, and none allocates. */
#include "rank_support.h"
#include "student_support.h"

#include "sim_support.h"

#include "core/alloc.h"
#include "log/run_log.h"
#include "trainer/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 45, STEPS = 7 };

static char out[] = "/tmp/levin-buffers-XXXXXX";

/* Steps of 20, 20 and 5 samples: the last one has a micro-batch without any. */
static setting settings(lvni_trainer_precision precision)
{
    return (setting){.cls = &student_class,
                     .batch_size = 20,
                     .micro_batches = 6,
                     .lanes = 1,
                     .optim = {.kind = LVNI_OPTIM_ADAMW,
                               .lr = 1e-2,
                               .weight_decay = 0.01,
                               .beta1 = 0.5,
                               .beta2 = 0.9,
                               .eps = 1e-8},
                     .schedule = {.total_steps = 10},
                     .ema = {.decay = 0.9},
                     .clip = 0.5,
                     .precision = precision,
                     .bucket_bytes = 1};
}

TEST(bits_do_not_depend_on_the_layout)
{
    static const lvni_trainer_precision precisions[] = {
        LVNI_PRECISION_32, LVNI_PRECISION_BF16_MIXED, LVNI_PRECISION_16_MIXED};
    memory data;
    memory_init(&data, N, 0);
    data.unreadable[3] = true;
    for (int i = 0; i < 3; i++) {
        setting s = settings(precisions[i]);
        s.skip = true;
        student_overflows_at = precisions[i] == LVNI_PRECISION_16_MIXED ? 2 : -1;
        const uint64_t want = ranks_hash_of_one(&data, &s, STEPS, LVN_CPU);
        s.workers = 2;
        for (s.lanes = 2; s.lanes <= 6; s.lanes += 2) {
            assert_true(ranks_hash_of_one(&data, &s, STEPS, LVN_CPU) == want);
        }
        s.lanes = 2;
        assert_true(ranks_hash_of_one(&data, &s, STEPS, LVN_SIM(0)) == want);
        ranks_agree("queues", &data, &s, 2, STEPS, want);
        s.lanes = 1;
        s.bucket_bytes = INT64_C(1) << 40;
        ranks_agree("queues", &data, &s, 4, STEPS, want);
    }
    student_overflows_at = -1;
}

static const lvn_buffer *find(const bench *b, const char *name)
{
    for (int i = 0; i < b->model->n_buffers; i++) {
        if (strcmp(b->model->buffers[i]->name, name) == 0) {
            return b->model->buffers[i];
        }
    }
    fail_msg("no buffer %s", name);
    return NULL;
}

static int64_t next_row(const bench *b)
{
    float next;
    assert_int_equal(lvni_tensor_mem_copy(&next, find(b, "bank_next")->tensor->data, sizeof next),
                     LVN_OK);
    return (int64_t)next;
}

/* The queue goes on by the rows that the micro-batches of a step pushed; a skipped step adds
 * none. */
TEST(queues_count_what_was_pushed)
{
    const lvn_device devices[] = {LVN_CPU, LVN_SIM(0)};
    memory data;
    memory_init(&data, N, 0);
    student_overflows_at = 1;
    for (int i = 0; i < 2; i++) {
        bench b;
        const setting s = settings(LVNI_PRECISION_16_MIXED);
        assert_int_equal(lvn_device_use(devices[i]), LVN_OK);
        bench_open(&b, &data, &s);
        b.trainer->engine->scaler.scale = 1024.0; /* no other overflows */
        bench_steps(&b, 1);
        const int64_t first = next_row(&b);
        assert_true(first > 0);
        bench_steps(&b, 1);
        assert_int_equal(next_row(&b), first);
        bench_steps(&b, 1);
        assert_true(next_row(&b) != first);
        bench_close(&b);
        assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    }
    student_overflows_at = -1;
}

enum { MOST_VALUES = KEY * FEATURES };

static void read_values(const lvn_tensor *t, float values[MOST_VALUES])
{
    assert_int_equal(lvni_tensor_mem_copy(values, t->data, (size_t)lvn_numel(t) * sizeof *values),
                     LVN_OK);
}

static void assert_number(double got, double want)
{
    if (!(fabs(got - want) < 1e-15)) {
        fail_msg("%.17g, not %.17g", got, want);
    }
}

/* By the step's number, from the beginning and from a later step on; skipped steps count. */
TEST(numbers_go_with_the_steps)
{
    const double pi = acos(-1.0);
    const lvn_device devices[] = {LVN_CPU, LVN_SIM(0)};
    memory data;
    memory_init(&data, N, 0);
    student_overflows_at = 1;
    for (int i = 0; i < 4; i++) {
        bench b;
        const setting s = settings(LVNI_PRECISION_16_MIXED);
        const int first = i < 2 ? 0 : 3;
        assert_int_equal(lvn_device_use(devices[i % 2]), LVN_OK);
        bench_open(&b, &data, &s);
        b.trainer->at.step = first; /* as a resume has it */
        for (int step = 0; step < STUDENT_STEPS; step++) {
            student_factor[step] = student_extra[step] = -1.0;
        }
        bench_steps(&b, 12 - first);
        for (int step = 0; step < 12; step++) {
            const double cosine = step < 9 ? 0.125 * (1.0 + cos(pi * step / 9.0)) : 0.0;
            assert_number(student_factor[step], step < first ? -1.0
                                                : step < 4   ? 1.0 - 0.125 * step
                                                             : 0.5);
            assert_number(student_extra[step], step < first ? -1.0 : cosine);
        }
        bench_close(&b);
        assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    }
    student_overflows_at = -1;
}

static lvn_status stairs_build(lvn_module *module, lvn_builder *b)
{
    lvn_stair stair[] = {{2, 0.5}, {5, 0.25}, {90, 8.0}};
    (void)module;
    (void)lvn_builder_number(b, "weight", .from = 4.0, .curve = LVN_CURVE_STAIRS, .stair = stair,
                             .n_stairs = 3);
    stair[0].value = 7.0; /* they were copied */
    return lvn_builder_status(b);
}

/* By the epoch, wherever in it a run goes on; in a run without an end, too. */
TEST(stairs_go_with_the_epochs)
{
    static const lvn_module_class cls = {
        .name = "stairs", .size = sizeof(lvn_module), .build = stairs_build};
    lvni_nn_model *model;
    assert_int_equal(lvni_nn_model_build(&cls, NULL, 1, &model), LVN_OK);
    lvni_trainer_engine e = {.o = {.model = model, .schedule = {.total_steps = INT64_MAX}}};
    assert_int_equal(lvni_trainer_numbers_check(&e), LVN_OK);
    e.o.plan.steps_per_epoch = 3;
    for (int64_t step = 23; step >= 0; step--) {
        e.now.step = step;
        lvni_trainer_numbers_begin(&e);
        assert_number(e.now.number[0], step < 6 ? 4.0 : step < 15 ? 0.5 : 0.25);
    }
    /* outside of a run: the last one */
    assert_number(lvn_number_value(&model->number[0], NULL), 8.0);
    assert_true(lvni_nn_number_moves(&model->number[0]));
    lvni_nn_model_destroy(model);
}

/* As the weight of Lightning Pose's losses of clips: nothing through epoch 60, and all of it from
 * the 100th after it on. */
static lvn_status ramp_build(lvn_module *module, lvn_builder *b)
{
    (void)module;
    (void)lvn_builder_number(b, "up", .from = 0.0, .to = 1.0, .curve = LVN_CURVE_RAMP, .begin = 60,
                             .rise = 0.01);
    (void)lvn_builder_number(b, "down", .from = 2.0, .to = 0.5, .curve = LVN_CURVE_RAMP,
                             .rise = -1.0);
    return lvn_builder_status(b);
}

TEST(a_ramp_goes_with_the_epochs)
{
    static const lvn_module_class cls = {
        .name = "ramp", .size = sizeof(lvn_module), .build = ramp_build};
    lvni_nn_model *model;
    assert_int_equal(lvni_nn_model_build(&cls, NULL, 1, &model), LVN_OK);
    lvni_trainer_engine e = {.o = {.model = model, .schedule = {.total_steps = INT64_MAX}}};
    assert_int_equal(lvni_trainer_numbers_check(&e), LVN_OK);
    e.o.plan.steps_per_epoch = 3;
    for (int64_t step = 0; step < 3 * 300; step++) {
        const int64_t epoch = step / 3;
        e.now.step = step;
        lvni_trainer_numbers_begin(&e);
        assert_number(e.now.number[0], epoch <= 60    ? 0.0
                                       : epoch >= 160 ? 1.0
                                                      : (double)(epoch - 60) * 0.01);
        assert_number(e.now.number[1], epoch == 0 ? 2.0 : epoch == 1 ? 1.0 : 0.5);
    }
    assert_number(lvn_number_value(&model->number[0], NULL), 1.0);
    assert_true(lvni_nn_number_moves(&model->number[0]));
    lvni_nn_model_destroy(model);
}

/* By the step's number: one that is skipped moves nothing, and counts. */
TEST(momentum_goes_with_the_steps)
{
    static const double pace[] = {0.5, 0.375, 0.25, 0.125, 0.125, 0.125};
    const lvn_device devices[] = {LVN_CPU, LVN_SIM(0)};
    memory data;
    memory_init(&data, N, 0);
    student_overflows_at = 1;
    for (int i = 0; i < 4; i++) {
        bench b;
        setting s = settings(LVNI_PRECISION_16_MIXED);
        s.cls = i < 2 ? &student_class : &phased_student_class;
        double want = 0.0;
        assert_int_equal(lvn_device_use(devices[i % 2]), LVN_OK);
        bench_open(&b, &data, &s);
        b.trainer->engine->scaler.scale = 1024.0; /* no other overflows */
        for (int step = 0; step < 6; step++) {
            float ones;
            bench_steps(&b, 1);
            want += step == 1 ? 0.0 : pace[step] * (1.0 - want);
            assert_int_equal(lvni_tensor_mem_copy(&ones, find(&b, "ones")->tensor->data, 4),
                             LVN_OK);
            assert_true(fabs((double)ones - want) < 1e-6);
        }
        bench_close(&b);
        assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    }
    student_overflows_at = -1;
}

/* A run without an end has no step in which the number is there. */
TEST(a_number_needs_an_end)
{
    lvni_nn_model *model;
    assert_int_equal(lvni_nn_model_build(&student_class, NULL, 1, &model), LVN_OK);
    lvni_trainer_engine e = {.o = {.model = model, .schedule = {.total_steps = INT64_MAX}}};
    assert_int_equal(lvni_trainer_numbers_check(&e), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message,
                           "the number extra of the model goes from 0.25 to 0 until the run's end, "
                           "and the run has none"));
    model->number[1].epochs = 2;
    assert_int_equal(lvni_trainer_numbers_check(&e), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "the momentum of a module that follows"));
    for (int i = 0; i < model->n_follow_rules; i++) {
        model->follow_rule[i].end = model->follow_rule[i].momentum;
    }
    assert_int_equal(lvni_trainer_numbers_check(&e), LVN_OK);
    e.o.plan.steps_per_epoch = 4;
    e.now.step = 7;
    lvni_trainer_numbers_begin(&e);
    assert_number(e.now.number[1], 0.0);
    e.now.step = 6;
    lvni_trainer_numbers_begin(&e);
    assert_true(e.now.number[1] > 0.0);
    lvni_nn_model_destroy(model);
}

static const lvn_tensor *weight(const bench *b, const char *name)
{
    for (int i = 0; i < b->model->n_parameters; i++) {
        if (strcmp(b->model->parameters[i].name, name) == 0) {
            return b->model->parameters[i].tensor;
        }
    }
    return find(b, name)->tensor;
}

/* What `follower` must be after step `t` of 10: by the formula, from what it was. */
static void expect_moved(const bench *b, const char *follower, const char *leader, double momentum,
                         const float was[MOST_VALUES])
{
    float is[MOST_VALUES], to[MOST_VALUES];
    const lvn_tensor *t = weight(b, follower);
    read_values(t, is);
    read_values(weight(b, leader), to);
    for (int64_t i = 0; i < lvn_numel(t); i++) {
        const double want = momentum * (double)was[i] + (1.0 - momentum) * (double)to[i];
        if (fabs((double)is[i] - want) > 1e-6 * (1.0 + fabs(want))) {
            fail_msg("%s %d is %.9g, must be %.9g", follower, (int)i, (double)is[i], want);
        }
    }
}

static const struct {
    const char *follower, *leader;
    bool scheduled;
} pairs[] = {{"teacher.linear.weight", "encoder.linear.weight", true},
             {"teacher.linear.bias", "encoder.linear.bias", true},
             {"teacher.mean", "encoder.mean", true},
             {"target.linear.weight", "encoder.linear.weight", false},
             {"target.linear.bias", "encoder.linear.bias", false}};
enum { PAIRS = sizeof pairs / sizeof *pairs };

static void check_steps(bench *b, bool skips)
{
    float was[PAIRS][MOST_VALUES], is[MOST_VALUES], mean[MOST_VALUES], now[MOST_VALUES];
    for (int step = 0; step < 6; step++) {
        for (int i = 0; i < PAIRS; i++) {
            read_values(weight(b, pairs[i].follower), was[i]);
        }
        read_values(weight(b, "target.mean"), mean);
        bench_steps(b, 1);
        const bool skipped = skips && step == student_overflows_at;
        const double cosine = 1.0 - 0.1 * 0.5 * (1.0 + cos(3.14159265358979 * step / 9.0));
        for (int i = 0; i < PAIRS; i++) {
            const double momentum = skipped ? 1.0 : pairs[i].scheduled ? cosine : 0.5;
            expect_moved(b, pairs[i].follower, pairs[i].leader, momentum, was[i]);
            read_values(weight(b, pairs[i].follower), is);
            assert_true((memcmp(is, was[i], 4 * sizeof *is) == 0) == skipped);
        }
        read_values(weight(b, "target.mean"), now); /* of its own */
        assert_true((memcmp(now, mean, KEY * sizeof *now) == 0) == skipped);
    }
}

TEST(teachers_follow)
{
    const lvn_device devices[] = {LVN_CPU, LVN_SIM(0)};
    memory data;
    memory_init(&data, N, 0);
    student_overflows_at = 2;
    for (int i = 0; i < 4; i++) {
        bench b;
        setting s = settings(i < 2 ? LVNI_PRECISION_16_MIXED : LVNI_PRECISION_32);
        student_overflows_at = i < 2 ? 2 : -1;
        assert_int_equal(lvn_device_use(devices[i % 2]), LVN_OK);
        bench_open(&b, &data, &s);
        b.trainer->engine->scaler.scale = i < 2 ? 1024.0 : b.trainer->engine->scaler.scale;
        float teacher[MOST_VALUES], encoder[MOST_VALUES]; /* begin as copies */
        read_values(weight(&b, "teacher.linear.weight"), teacher);
        read_values(weight(&b, "encoder.linear.weight"), encoder);
        assert_memory_equal(teacher, encoder, sizeof teacher);
        check_steps(&b, i < 2);
        bench_close(&b);
        assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    }
    student_overflows_at = -1;
}

/* In steps of several phases they move once, with the phase that trains their leader. */
TEST(teachers_follow_in_one_phase)
{
    const lvn_device devices[] = {LVN_CPU, LVN_SIM(0)};
    memory data;
    memory_init(&data, N, 0);
    for (int i = 0; i < 2; i++) {
        bench b;
        setting s = settings(LVNI_PRECISION_32);
        s.cls = &phased_student_class;
        assert_int_equal(lvn_device_use(devices[i]), LVN_OK);
        bench_open(&b, &data, &s);
        check_steps(&b, false);
        bench_close(&b);
        assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    }
}

/* No gradient, optimizer state or count of parameters has them; checkpoints do. */
TEST(followers_are_not_trained)
{
    memory data;
    bench b;
    char last[96];
    memory_init(&data, N, 0);
    setting s = settings(LVNI_PRECISION_32);
    s.out = out;
    bench_open(&b, &data, &s);
    assert_int_equal(b.model->n_parameters, 2);
    assert_int_equal(lvni_nn_model_count(b.model), KEY * FEATURES + KEY);
    bench_steps(&b, 2);
    assert_int_equal(bench_save(b.trainer, false), LVN_OK);
    snprintf(last, sizeof last, "%s/checkpoints/last.safetensors", out);
    lvni_ckpt *ckpt;
    assert_int_equal(lvni_ckpt_load(last, &ckpt), LVN_OK);
    const lvni_ckpt_st_tensor *saved = lvni_ckpt_st_find(ckpt->file, "model/teacher.linear.weight");
    assert_non_null(saved);
    assert_memory_equal(saved->data, weight(&b, "teacher.linear.weight")->data, saved->bytes);
    assert_non_null(lvni_ckpt_st_find(ckpt->file, "optim/exp_avg/encoder.linear.weight"));
    assert_null(lvni_ckpt_st_find(ckpt->file, "optim/exp_avg/teacher.linear.weight"));
    lvni_ckpt_free(ckpt);
    bench_close(&b);
}

/* Once after each step, over all rows; in a step that is skipped nothing changes. */
TEST(functions_are_called_once)
{
    const lvn_device devices[] = {LVN_CPU, LVN_SIM(0)};
    memory data;
    memory_init(&data, N, 0);
    student_overflows_at = 1;
    for (int i = 0; i < 2; i++) {
        bench b;
        float bank[BANK_ROWS * KEY], before[BANK_ROWS * KEY];
        const setting s = settings(LVNI_PRECISION_16_MIXED);
        assert_int_equal(lvn_device_use(devices[i]), LVN_OK);
        bench_open(&b, &data, &s);
        b.trainer->engine->scaler.scale = 1024.0;
        const lvn_tensor *t = find(&b, "bank")->tensor;
        for (int step = 0; step < 4; step++) {
            const int calls = student_calls;
            assert_int_equal(lvni_tensor_mem_copy(before, t->data, sizeof before), LVN_OK);
            bench_steps(&b, 1);
            assert_int_equal(lvni_tensor_mem_copy(bank, t->data, sizeof bank), LVN_OK);
            assert_int_equal(student_calls - calls, step == 1 && i == 0 ? 0 : 1);
            assert_true((memcmp(bank, before, sizeof bank) == 0) == (step == 1));
            for (int row = 0; row < BANK_ROWS; row++) {
                double length = 0.0;
                for (int c = 0; c < KEY; c++) {
                    length += pow((double)bank[row * KEY + c], 2);
                }
                assert_true(fabs(length - 1.0) < 1e-5);
            }
        }
        bench_close(&b);
        assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    }
    student_overflows_at = -1;
}

TEST(resumed_runs_go_on)
{
    memory data;
    setting s = settings(LVNI_PRECISION_32);
    char last[96];
    memory_init(&data, N, 0);
    s.out = out;
    snprintf(last, sizeof last, "%s/checkpoints/last.safetensors", out);
    for (int stop = 1; stop <= 4; stop++) { /* within an epoch, and between two */
        bench b, c;
        bench_open(&b, &data, &s);
        bench_steps(&b, stop);
        assert_int_equal(bench_save(b.trainer, false), LVN_OK);
        setting two = s;
        two.lanes = 3;
        bench_open(&c, &data, &two);
        lvni_ckpt *ckpt;
        assert_int_equal(lvni_ckpt_load(last, &ckpt), LVN_OK);
        assert_int_equal(lvni_trainer_restore(c.trainer, ckpt), LVN_OK);
        lvni_ckpt_free(ckpt);
        assert_true(bench_hash(&c) == bench_hash(&b));
        bench_start_loader(&c);
        bench_steps(&b, 4);
        bench_steps(&c, 4);
        assert_true(bench_hash(&c) == bench_hash(&b));
        bench_close(&b);
        bench_close(&c);
    }
}

/* The average of weights has no average of rows: it has them as they are. */
TEST(queues_are_not_averaged)
{
    memory data;
    bench b;
    memory_init(&data, N, 0);
    const setting s = settings(LVNI_PRECISION_32);
    bench_open(&b, &data, &s);
    bench_steps(&b, 5);
    const lvn_buffer *bank = find(&b, "bank"), *mean = find(&b, "encoder.mean");
    const float *average = b.trainer->engine->ema->value;
    assert_memory_equal(average + bank->value_offset, bank->tensor->data,
                        (size_t)bank->numel * sizeof *average);
    assert_memory_not_equal(average + mean->value_offset, mean->tensor->data,
                            (size_t)mean->numel * sizeof *average);
    bench_close(&b);
}

TEST(steps_allocate_nothing)
{
    memory data;
    memory_init(&data, N, 0);
    for (int lanes = 1; lanes <= 3; lanes++) {
        setting s = settings(LVNI_PRECISION_32);
        uint64_t before[LVNI_TAG_COUNT];
        bench b;
        s.lanes = lanes;
        bench_open(&b, &data, &s);
        bench_steps(&b, 9);
        for (int tag = 0; tag < LVNI_TAG_COUNT; tag++) {
            before[tag] = lvni_core_alloc_get_stats((lvni_core_tag)tag).calls;
        }
        bench_steps(&b, 12);
        for (int tag = 0; tag < LVNI_TAG_COUNT; tag++) {
            assert_int_equal(lvni_core_alloc_get_stats((lvni_core_tag)tag).calls, before[tag]);
        }
        bench_close(&b);
    }
}

/* Except blocks of a few numbers, as for other models. */
TEST(device_memory_is_estimated)
{
    memory data;
    bench b;
    lvni_tensor_device *device;
    lvni_trainer_memory_need need;
    memory_init(&data, N, 0);
    const setting s = settings(LVNI_PRECISION_32);
    assert_int_equal(lvn_device_use(LVN_SIM(1)), LVN_OK);
    assert_int_equal(lvni_tensor_device_open(LVN_DEVICE_SIM, 1, &device), LVN_OK);
    bench_open(&b, &data, &s);
    bench_steps(&b, 4);
    const lvni_trainer_options o = b.trainer->o;
    assert_int_equal(lvni_trainer_predict_memory(&o, &need), LVN_OK);
    const uint64_t most = lvni_tensor_device_get_stats(device).most;
    assert_int_in_range(need.device, most - 1024, most + 1024);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

int main(int argc, char **argv)
{
    char command[128];
    sim_start("2", "64MiB");
    if (mkdtemp(out) == NULL) {
        return 1;
    }
    lvni_log_set_quiet(true);
    snprintf(command, sizeof command, "mkdir %s/checkpoints", out);
    if (system(command) != 0) {
        return 1;
    }
    const int failed = test_main(argc, argv);
    snprintf(command, sizeof command, "rm -r %s", out);
    return system(command) != 0 ? 1 : failed;
}

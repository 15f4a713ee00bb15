/* Runs with buffers that are more than means: the bits of one rank with one lane, on any number of
 * lanes, ranks (as threads), loader threads, buckets, on the simulated accelerator, and after a
 * resume; a step that is skipped moves nothing, and none allocates. */
#include "rank_support.h"
#include "student_support.h"

#include "sim_support.h"

#include "core/alloc.h"
#include "log/run_log.h"
#include "trainer/memory.h"

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

static void bits_do_not_depend_on_the_layout(void **state)
{
    (void)state;
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
static void queues_count_what_was_pushed(void **state)
{
    (void)state;
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

static void resumed_runs_go_on(void **state)
{
    (void)state;
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
static void queues_are_not_averaged(void **state)
{
    (void)state;
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

static void steps_allocate_nothing(void **state)
{
    (void)state;
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

/* To the byte, as for other models. */
static void device_memory_is_estimated(void **state)
{
    (void)state;
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
    assert_int_equal(need.device, lvni_tensor_device_get_stats(device).peak);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

int main(void)
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits_do_not_depend_on_the_layout),
                                       cmocka_unit_test(queues_count_what_was_pushed),
                                       cmocka_unit_test(resumed_runs_go_on),
                                       cmocka_unit_test(queues_are_not_averaged),
                                       cmocka_unit_test(steps_allocate_nothing),
                                       cmocka_unit_test(device_memory_is_estimated)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -r %s", out);
    return system(command) != 0 ? 1 : failed;
}

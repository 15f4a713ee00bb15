/* Reproducibility of steps of several phases: the bits of one rank with one lane, on any number of
 * lanes, ranks (as threads), loader threads, buckets, on the simulated accelerator, and after a
 * resume. */
#include "duel_support.h"
#include "rank_support.h"

#include "sim_support.h"

#include "kernels/kernels.h"
#include "log/run_log.h"
#include "tensor/device.h"
#include "trainer/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 45, STEPS = 5 };

static char out[] = "/tmp/levin-phases-XXXXXX";

/* Steps of 20, 20 and 5 samples: the last one has a micro-batch without any. */
static setting settings(lvni_trainer_precision precision)
{
    return (setting){.cls = &wide_duel_class,
                     .batch_size = 20,
                     .micro_batches = 6,
                     .lanes = 1,
                     .optim = {.kind = LVNI_OPTIM_ADAMW,
                               .lr = 1e-2,
                               .weight_decay = 0.01,
                               .beta1 = 0.5,
                               .beta2 = 0.9,
                               .eps = 1e-8},
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
    duel_overflow = 1;
    for (int i = 0; i < 3; i++) {
        setting s = settings(precisions[i]);
        duel_overflows_at = precisions[i] == LVNI_PRECISION_16_MIXED ? 2 : -1;
        const uint64_t want = ranks_hash_of_one(&data, &s, STEPS, LVN_CPU);
        s.workers = 2;
        for (s.lanes = 2; s.lanes <= 6; s.lanes += 2) {
            assert_true(ranks_hash_of_one(&data, &s, STEPS, LVN_CPU) == want);
        }
        s.lanes = 2;
        assert_true(ranks_hash_of_one(&data, &s, STEPS, LVN_SIM(0)) == want);
        ranks_agree("phases", &data, &s, 2, STEPS, want);
        s.lanes = 1;
        s.bucket_bytes = INT64_C(1) << 40;
        ranks_agree("phases", &data, &s, 4, STEPS, want);
    }
    duel_overflows_at = -1;
}

/* Coupled micro-batches in each phase, on any ranks. */
static void groups_sync_in_every_phase(void **state)
{
    (void)state;
    memory data;
    setting s = settings(LVNI_PRECISION_32);
    memory_init(&data, N, 0);
    s.cls = &duel_class;
    const uint64_t apart = ranks_hash_of_one(&data, &s, STEPS, LVN_CPU);
    s.cls = &coupled_duel_class;
    s.group = 3;
    const uint64_t want = ranks_hash_of_one(&data, &s, STEPS, LVN_CPU);
    assert_true(want != apart);
    s.lanes = 6;
    assert_true(ranks_hash_of_one(&data, &s, STEPS, LVN_CPU) == want);
    assert_true(ranks_hash_of_one(&data, &s, STEPS, LVN_SIM(0)) == want);
    s.lanes = 1;
    ranks_agree("coupled phases", &data, &s, 2, STEPS, want);
    ranks_agree("coupled phases", &data, &s, 4, STEPS, want); /* groups on several ranks */
}

static void resumed_runs_go_on(void **state)
{
    (void)state;
    memory data;
    setting s = settings(LVNI_PRECISION_16_MIXED);
    char last[96];
    memory_init(&data, N, 0);
    s.cls = &duel_class; /* small scores: nothing overflows except on request */
    s.out = out;
    snprintf(last, sizeof last, "%s/checkpoints/last.safetensors", out);
    duel_overflow = 2;
    duel_overflows_at = 1; /* the phases have different numbers of updates */
    for (int stop = 2; stop <= 3; stop++) {
        bench b, c;
        bench_open(&b, &data, &s);
        b.trainer->engine->scaler.scale = 1024.0; /* no other overflows */
        bench_steps(&b, stop);
        assert_int_equal(bench_save(b.trainer, false), LVN_OK);
        setting two = s;
        two.lanes = 3;
        bench_open(&c, &data, &two);
        lvni_ckpt *ckpt;
        assert_int_equal(lvni_ckpt_load(last, &ckpt), LVN_OK);
        assert_int_equal(lvni_trainer_restore(c.trainer, ckpt), LVN_OK);
        lvni_ckpt_free(ckpt);
        assert_true(c.trainer->engine->optim->steps[0] == stop &&
                    c.trainer->engine->optim->steps[1] == stop - 1);
        bench_start_loader(&c);
        bench_steps(&b, 3);
        bench_steps(&c, 3);
        assert_true(bench_hash(&c) == bench_hash(&b));
        bench_close(&b);
        bench_close(&c);
    }
    duel_overflows_at = -1;
}

/* To the byte, as for steps of one phase. */
static void device_memory_is_estimated(void **state)
{
    (void)state;
    memory data;
    bench b;
    lvni_tensor_device *device;
    lvni_trainer_memory_need need;
    memory_init(&data, N, 0);
    setting s = settings(LVNI_PRECISION_32);
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
                                       cmocka_unit_test(groups_sync_in_every_phase),
                                       cmocka_unit_test(resumed_runs_go_on),
                                       cmocka_unit_test(device_memory_is_estimated)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -r %s", out);
    return system(command) != 0 ? 1 : failed;
}

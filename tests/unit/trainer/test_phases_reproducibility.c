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

/* An optimizer for each phase, and groups with numbers of their own. */
static setting mixed_settings(lvni_trainer_precision precision, lvni_optim_kind generator)
{
    static const char *const groups[] = {"critic.*.bias:momentum=0.25",
                                         "generator.*.bias:beta1=0.3:beta2=0.8"};
    setting s = settings(precision);
    s.rules.groups = groups;
    s.rules.n_groups = generator == LVNI_OPTIM_ADAFACTOR ? 1 : 2;
    s.phase[0].has_optim = s.phase[1].has_optim = true;
    s.phase[0].optim = (lvni_optim_options){
        .kind = LVNI_OPTIM_RMSPROP, .momentum = 0.5, .eps = 1e-6, .alpha = 0.9, .centered = true};
    s.phase[1].optim = (lvni_optim_options){.kind = generator,
                                            .beta1 = 0.9,
                                            .beta2 = 0.99,
                                            .eps = 1e-6,
                                            .beta2_decay = -0.8,
                                            .eps2 = 1e-3,
                                            .d = 1.0};
    return s;
}

static void layouts_agree_on(const memory *data, setting s, int64_t overflows_at)
{
    duel_overflows_at = overflows_at;
    const uint64_t want = ranks_hash_of_one(data, &s, STEPS, LVN_CPU);
    s.lanes = 3;
    assert_true(ranks_hash_of_one(data, &s, STEPS, LVN_CPU) == want);
    s.lanes = 2;
    assert_true(ranks_hash_of_one(data, &s, STEPS, LVN_SIM(0)) == want);
    ranks_agree("optimizers of phases", data, &s, 2, STEPS, want);
    ranks_agree_on("optimizers of phases", data, &s, 2, STEPS, want, LVN_DEVICE_SIM);
    duel_overflows_at = -1;
}

TEST(optimizers_of_phases_do_not_either)
{
    memory data;
    memory_init(&data, N, 0);
    for (duel_overflow = 1; duel_overflow <= 2; duel_overflow++) {
        layouts_agree_on(&data, mixed_settings(LVNI_PRECISION_16_MIXED, LVNI_OPTIM_LAMB), 2);
    }
    layouts_agree_on(&data, mixed_settings(LVNI_PRECISION_32, LVNI_OPTIM_ADAMW), -1);
    layouts_agree_on(&data, mixed_settings(LVNI_PRECISION_32, LVNI_OPTIM_ADAFACTOR), -1);
}

TEST(bits_do_not_depend_on_the_layout)
{
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
TEST(groups_sync_in_every_phase)
{
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

TEST(resumed_runs_go_on)
{
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

/* Three steps in which one phase alone moves; returns its weights. */
static float *run_one_phase(const memory *data, setting s, int phase, int64_t *n)
{
    bench b;
    s.phase[1 - phase].lr = 1e-30;
    bench_open(&b, data, &s);
    bench_steps(&b, 3);
    const lvni_nn_model *m = b.model;
    float *w = malloc((size_t)m->n_weights * sizeof *w);
    assert_non_null(w);
    assert_int_equal(lvni_tensor_mem_copy(w, m->weights, (size_t)m->n_weights * sizeof *w), LVN_OK);
    for (int i = 0; i < m->n_parameters; i++) {
        if (m->parameters[i].phase != phase) {
            memset(w + m->offset[i], 0, (size_t)m->parameters[i].numel * sizeof *w);
        }
    }
    *n = m->n_weights;
    bench_close(&b);
    return w;
}

static const lvni_optim_options rmsprop = {.kind = LVNI_OPTIM_RMSPROP,
                                           .lr = 0.05,
                                           .momentum = 0.5,
                                           .eps = 1e-6,
                                           .alpha = 0.9,
                                           .centered = true};
static const lvni_optim_options lamb = {
    .kind = LVNI_OPTIM_LAMB, .lr = 0.05, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6};
static const lvni_optim_options adafactor = {.kind = LVNI_OPTIM_ADAFACTOR,
                                             .lr = 0.05,
                                             .eps = 1e-7,
                                             .beta2_decay = -0.8,
                                             .eps2 = 1e-3,
                                             .d = 1};

/* Each phase does what a run with its optimizer alone does there. */
TEST(phases_have_optimizers_of_their_own)
{
    static const lvni_optim_options *const pairs[][2] = {
        {&rmsprop, &lamb}, {&adafactor, &rmsprop}, {&lamb, &adafactor}};
    const lvn_device devices[] = {LVN_CPU, LVN_SIM(0)};
    memory data;
    memory_init(&data, N, 0);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(lvn_device_use(devices[i % 2]), LVN_OK);
        for (int phase = 0; phase < 2; phase++) {
            setting both = settings(LVNI_PRECISION_32), alone = both;
            int64_t n, of, same = 0;
            alone.optim = *pairs[i / 2][phase];
            alone.optim.lr = both.optim.lr;
            alone.optim.weight_decay = both.optim.weight_decay;
            both.optim.beta1 = 0.3; /* of no phase */
            for (int k = 0; k < 2; k++) {
                both.phase[k] =
                    (lvni_trainer_phase_options){.has_optim = true, .optim = *pairs[i / 2][k]};
            }
            float *have = run_one_phase(&data, both, phase, &n),
                  *want = run_one_phase(&data, alone, phase, &of);
            while (same < n && have[same] == want[same]) {
                same++;
            }
            assert_true(n == of && same == n);
            free(have);
            free(want);
        }
        assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    }
}

/* State is saved under the names that the phase's optimizer has for it. */
TEST(optimizers_of_phases_are_saved)
{
    static const lvni_optim_kind kinds[] = {LVNI_OPTIM_LAMB, LVNI_OPTIM_ADAFACTOR};
    static const char *const saved[][3] = {
        {"optim/square_avg/critic.out.weight", "optim/grad_avg/critic.out.weight",
         "optim/momentum_buffer/critic.out.weight"},
        {"optim/exp_avg/generator.out.weight", "optim/exp_avg_sq/generator.out.weight",
         "optim/exp_avg/generator.out.bias"},
        {"optim/row_var/generator.out.weight", "optim/col_var/generator.out.weight",
         "optim/variance/generator.out.bias"}};
    memory data;
    char last[96];
    memory_init(&data, N, 0);
    snprintf(last, sizeof last, "%s/checkpoints/last.safetensors", out);
    for (int i = 0; i < 2; i++) {
        bench b, c;
        setting s = mixed_settings(LVNI_PRECISION_32, kinds[i]);
        s.out = out;
        bench_open(&b, &data, &s);
        bench_steps(&b, 2); /* within an epoch */
        assert_int_equal(bench_save(b.trainer, false), LVN_OK);
        s.lanes = 3;
        bench_open(&c, &data, &s);
        lvni_ckpt *ckpt;
        assert_int_equal(lvni_ckpt_load(last, &ckpt), LVN_OK);
        assert_int_equal(lvni_trainer_restore(c.trainer, ckpt), LVN_OK);
        for (int k = 0; k < 3; k++) {
            assert_non_null(lvni_ckpt_st_find(ckpt->file, saved[0][k]));
            assert_non_null(lvni_ckpt_st_find(ckpt->file, saved[1 + i][k]));
        }
        assert_null(lvni_ckpt_st_find(ckpt->file, "optim/square_avg/generator.out.weight"));
        assert_null(lvni_ckpt_st_find(ckpt->file, "optim/exp_avg/critic.out.weight"));
        bench_start_loader(&c);
        bench_steps(&b, 3);
        bench_steps(&c, 3);
        assert_true(bench_hash(&c) == bench_hash(&b));
        bench_close(&b);
        bench_close(&c);
        s.phase[0].has_optim = false;
        s.rules.n_groups = 0;
        bench_open(&c, &data, &s);
        assert_int_equal(lvni_trainer_restore(c.trainer, ckpt), LVN_ERR_USAGE);
        assert_non_null(
            strstr(lvn_last_error()->message, "with another optimizer in the phase critic"));
        bench_close(&c);
        lvni_ckpt_free(ckpt);
    }
}

/* Except blocks of a few numbers, as for steps of one phase; on a device that nothing else was on.
 */
static void check_estimate(setting s, int index)
{
    memory data;
    bench b;
    lvni_tensor_device *device;
    lvni_trainer_memory_need need;
    memory_init(&data, N, 0);
    assert_int_equal(lvn_device_use(LVN_SIM(index)), LVN_OK);
    assert_int_equal(lvni_tensor_device_open(LVN_DEVICE_SIM, index, &device), LVN_OK);
    bench_open(&b, &data, &s);
    bench_steps(&b, 4);
    const lvni_trainer_options o = b.trainer->o;
    assert_int_equal(lvni_trainer_predict_memory(&o, &need), LVN_OK);
    const uint64_t most = lvni_tensor_device_get_stats(device).most;
    assert_int_in_range(need.device, most - 1024, most + 1024);
    uint64_t state_bytes = 0;
    for (int k = 0; k < b.trainer->engine->optim->n_slots; k++) {
        state_bytes += (uint64_t)b.trainer->engine->optim->slot_length[k] * sizeof(float);
    }
    assert_true(need.optimizer == state_bytes && state_bytes > 0);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

TEST(device_memory_is_estimated)
{
    check_estimate(settings(LVNI_PRECISION_32), 2);
    check_estimate(mixed_settings(LVNI_PRECISION_32, LVNI_OPTIM_LAMB), 3);
    check_estimate(mixed_settings(LVNI_PRECISION_32, LVNI_OPTIM_ADAFACTOR), 4);
}

int main(int argc, char **argv)
{
    char command[128];
    sim_start("5", "64MiB");
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

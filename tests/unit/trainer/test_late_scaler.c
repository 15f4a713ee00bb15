/* 16-mixed on a device: overflow, loss scale, skipped steps and what counts without them are
 * decided there, and the host, which reads a step late, has every number of a run that reads at
 * once. */
#include "duel_support.h"
#include "trainer_support.h"

#include "sim_support.h"
#include "support/sanitized.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Under sanitizers a softmax regression stands for the cnn: steps, scales and skips are as many. */
enum { SIDE = SANITIZED ? 0 : 8, STEPS = 51 };

static char out[] = "/tmp/levin-scaler-XXXXXX";
static char last[96];

static setting mixed(void)
{
    return (setting){.cls = SANITIZED ? NULL : lvni_nn_zoo_find("cnn"),
                     .batch_size = 8,
                     .micro_batches = 4,
                     .lanes = 1,
                     .optim = {.kind = LVNI_OPTIM_ADAMW,
                               .lr = 1e-2,
                               .weight_decay = 0.1,
                               .beta1 = 0.9,
                               .beta2 = 0.99,
                               .eps = 1e-8},
                     .schedule = {.kind = LVNI_SCHEDULE_ONECYCLE,
                                  .warmup_steps = 5,
                                  .total_steps = 50,
                                  .cycle = {.rise = 0.3,
                                            .start = 0.04,
                                            .end = 0.001,
                                            .moves_momentum = true,
                                            .base_momentum = 0.85,
                                            .max_momentum = 0.95}},
                     .weight_decay = {LVNI_CURVE_COSINE, 0.01, 0.1, 50},
                     .ema = {.decay = 0.999, .warmup = true},
                     .clip = 0.5,
                     .precision = LVNI_PRECISION_16_MIXED,
                     .out = out};
}

/* ---- a run, with as many steps under way as the loop has ---- */

typedef struct trace {
    lvni_trainer_step_result step[STEPS];
    int n;
    lvn_status status;
    lvn_error error;
    uint64_t hash;
    lvni_trainer_scaler scaler;
    int64_t updates[2];
    bool torn;
} trace;

static trace here, there;

static void go_on(bench *b, int steps, trace *t)
{
    lvni_trainer *trainer = b->trainer;
    lvni_trainer_engine *e = trainer->engine;
    lvni_trainer_step_record record[LVNI_DEFERRED_STEPS];
    const int most = e->deferred != NULL ? LVNI_DEFERRED_STEPS : 1, end = t->n + steps;
    int submitted = t->n;
    t->status = LVN_OK;
    while (t->n < end && t->status == LVN_OK) {
        if (submitted < end && submitted - t->n < most) {
            t->status = lvni_trainer_engine_submit(e, trainer->loader, &trainer->at,
                                                   &record[submitted++ % LVNI_DEFERRED_STEPS]);
            trainer->at.step++;
            trainer->at.step_in_epoch++;
            if (trainer->at.step_in_epoch == trainer->o.plan.steps_per_epoch) {
                trainer->at.epoch++;
                trainer->at.step_in_epoch = 0;
            }
        } else {
            t->status =
                lvni_trainer_engine_collect(e, &record[t->n % LVNI_DEFERRED_STEPS], &t->step[t->n]);
            if (t->status == LVN_OK) {
                lvni_trainer_logging_add(&trainer->report, &t->step[t->n++]);
            }
        }
        t->error = *lvn_last_error();
    }
    for (; t->status != LVN_OK && submitted > t->n + 1; submitted--) {
        lvni_trainer_engine_discard(e, &record[(submitted - 1) % LVNI_DEFERRED_STEPS]);
    }
    t->hash = bench_hash(b);
    t->scaler = e->scaler;
    if (e->deferred != NULL) { /* what the device has by itself */
        lvn_step_scaler of_device;
        assert_int_equal(
            lvni_tensor_mem_copy(&of_device, &e->deferred->block->scaler, sizeof of_device),
            LVN_OK);
        assert_true(of_device.scale == t->scaler.scale && of_device.clean == t->scaler.clean);
        assert_true(of_device.skipped == t->scaler.skipped &&
                    of_device.in_a_row == t->scaler.in_a_row);
    }
    t->updates[0] = e->optim->steps[0];
    t->updates[1] = e->optim->steps[1];
    t->torn = t->status != LVN_OK && lvni_trainer_engine_torn(e);
}

/* It grows soon. */
static void begin_with(bench *b, double scale)
{
    b->trainer->engine->scaler.scale = scale;
    b->trainer->engine->scaler.clean = LVN_SCALER_GROWTH - 10;
}

static void run_on(lvn_device device, const memory *data, const setting *s, double scale, int steps,
                   trace *t)
{
    bench b;
    t->n = 0;
    assert_int_equal(lvn_device_use(device), LVN_OK);
    bench_open(&b, data, s);
    assert_true((b.trainer->engine->deferred != NULL) == (device.kind == LVN_DEVICE_SIM));
    begin_with(&b, scale);
    go_on(&b, steps, t);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

/* To the bit, whatever is not finite. */
static bool same(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

static void assert_same_scaler(const lvni_trainer_scaler *a, const lvni_trainer_scaler *b)
{
    assert_true(a->on == b->on && a->scale == b->scale && a->clean == b->clean);
    assert_true(a->skipped == b->skipped && a->in_epoch == b->in_epoch &&
                a->in_a_row == b->in_a_row);
}

static void assert_same_step(const lvni_trainer_step_result *a, const lvni_trainer_step_result *b)
{
    assert_int_equal(a->after.step, b->after.step);
    assert_true(a->lr == b->lr && a->samples == b->samples && a->n_phases == b->n_phases);
    assert_same_scaler(&a->scaler, &b->scaler);
    for (int i = 0; i < a->n_phases; i++) {
        const lvni_trainer_phase_result *p = &a->phase[i], *q = &b->phase[i];
        assert_true(same(p->grad_norm, q->grad_norm) && p->clipped == q->clipped);
        assert_true(p->skipped == q->skipped && p->updated == q->updated);
    }
    assert_int_equal(a->metrics.n_metrics, b->metrics.n_metrics);
    for (int i = 0; i < a->metrics.n_metrics; i++) {
        assert_true(same(a->metrics.metric[i].sum, b->metrics.metric[i].sum));
    }
}

static void assert_same_run(const trace *a, const trace *b)
{
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        assert_same_step(&a->step[i], &b->step[i]);
    }
    assert_int_equal(a->status, b->status);
    assert_same_scaler(&a->scaler, &b->scaler);
    assert_true(a->updates[0] == b->updates[0] && a->updates[1] == b->updates[1]);
    assert_true(a->hash == b->hash && !a->torn && !b->torn);
}

/* Of all phases. */
static int count_skipped(const trace *t)
{
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        n += t->step[i].phase[0].skipped ? 1 : 0;
    }
    return n;
}

/* ---- tests ---- */

/* A scale that many steps have to halve; one sample in the middle that is not finite; a scale that
 * grows. */
TEST(overflows_are_those_of_a_run_that_reads_at_once)
{
    static const double scales[] = {0x1p40, 0x1p16, 0x1p6};
    static const int least[] = {10, 2, 0}, most[] = {40, 10, 0};
    for (int i = 0; i < 3; i++) {
        setting s = mixed();
        memory data;
        memory_init(&data, 200, SIDE);
        data.nan[77] = i == 1;
        run_on(LVN_CPU, &data, &s, scales[i], STEPS, &here);
        run_on(LVN_SIM(0), &data, &s, scales[i], STEPS, &there);
        assert_same_run(&here, &there);
        assert_int_equal(here.n, STEPS);
        assert_int_in_range(count_skipped(&here), least[i], most[i]);
        assert_true(i < 2 || here.scaler.scale == 0x1p7);
        assert_true(here.updates[0] == STEPS - count_skipped(&here));
        assert_true(here.scaler.skipped == count_skipped(&here));
    }
}

/* The momentum buffer becomes the gradient in the first step that is not skipped. */
TEST(sgd_begins_with_its_first_update)
{
    setting s = mixed();
    memory data;
    s.optim =
        (lvni_optim_options){.kind = LVNI_OPTIM_SGD, .lr = 0.01, .momentum = 0.9, .dampening = 0.5};
    memory_init(&data, 200, SIDE);
    run_on(LVN_CPU, &data, &s, 0x1p22, 12, &here);
    run_on(LVN_SIM(0), &data, &s, 0x1p22, 12, &there);
    assert_true(here.step[0].phase[0].skipped && !here.step[11].phase[0].skipped);
    assert_same_run(&here, &there);
}

TEST(a_phase_that_overflows_is_skipped_alone)
{
    setting s = mixed();
    memory data;
    s.cls = &duel_class;
    memory_init(&data, 40, 0);
    for (duel_overflow = 1; duel_overflow <= 3; duel_overflow++) {
        duel_overflows_at = 2;
        run_on(LVN_CPU, &data, &s, 1024.0, 12, &here);
        run_on(LVN_SIM(0), &data, &s, 1024.0, 12, &there);
        duel_overflows_at = -1;
        assert_same_run(&here, &there);
        assert_true(here.step[2].phase[0].skipped == ((duel_overflow & 1) != 0));
        assert_true(here.step[2].phase[1].skipped == ((duel_overflow & 2) != 0));
        assert_int_equal(here.scaler.skipped, duel_overflow == 3);
    }
}

/* ---- parameters that miss updates ---- */

typedef struct turns {
    lvn_module base;
    lvn_module *head[2];
} turns;

static lvn_status turns_build(lvn_module *module, lvn_builder *b)
{
    turns *m = (turns *)module;
    m->head[0] = lvn_nn_linear(b, "even", FEATURES, CLASSES);
    m->head[1] = lvn_nn_linear(b, "odd", FEATURES, CLASSES);
    return lvn_builder_status(b);
}

/* Two steps with each head. */
static lvn_tensor *turns_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const turns *m = (const turns *)module;
    lvn_tensor *logits = lvn_forward(m->head[step->step / 2 % 2], batch->image);
    lvn_tensor *loss = lvn_cross_entropy(logits, batch->label);
    lvn_log(step, "loss", loss);
    return loss;
}

static const lvn_module_class turns_class = {
    .name = "turns", .size = sizeof(turns), .build = turns_build, .training_step = turns_step};

TEST(parameters_have_counts_of_their_own)
{
    setting s = mixed();
    memory data;
    s.cls = &turns_class;
    memory_init(&data, 200, 0);
    for (int i = 0; i < 200; i += 24) { /* about every third step */
        data.nan[i] = true;
    }
    run_on(LVN_CPU, &data, &s, 1024.0, STEPS, &here);
    run_on(LVN_SIM(0), &data, &s, 1024.0, STEPS, &there);
    assert_same_run(&here, &there);
    assert_int_in_range(count_skipped(&here), 5, STEPS - 20);
}

/* ---- the end of a run, and the beginning ---- */

TEST(fifty_in_a_row_end_the_run)
{
    const setting s = mixed();
    memory data;
    memory_init(&data, 200, SIDE);
    for (int i = 0; i < 200; i++) {
        data.nan[i] = true;
    }
    run_on(LVN_CPU, &data, &s, 0x1p40, STEPS, &here);
    run_on(LVN_SIM(0), &data, &s, 0x1p40, STEPS, &there);
    assert_int_equal(here.status, LVN_ERR_NON_FINITE);
    assert_int_equal(here.n, 49);
    assert_same_run(&here, &there);
    assert_string_equal(here.error.message, there.error.message);
}

/* The step after the last of them would have been finite, and is under way. */
TEST(the_device_ends_the_run_by_itself)
{
    setting s = mixed();
    memory data;
    s.cls = NULL;
    memory_init(&data, 200, 0);
    double scale = 0x1p16;
    do { /* the first that 49 steps halve in vain */
        scale *= 2.0;
        run_on(LVN_CPU, &data, &s, scale * 0x1p30, STEPS, &here);
    } while (here.status == LVN_OK);
    assert_int_equal(here.n, 49);
    run_on(LVN_CPU, &data, &s, scale * 0x1p29, STEPS, &there);
    assert_false(there.step[49].phase[0].skipped);
    run_on(LVN_SIM(0), &data, &s, scale * 0x1p30, STEPS, &there);
    assert_same_run(&here, &there);
    assert_true(there.updates[0] == 0);
}

TEST(a_resumed_run_goes_on)
{
    const setting s = mixed();
    memory data;
    bench b;
    lvni_ckpt *ckpt;
    memory_init(&data, 200, SIDE);
    data.nan[77] = true;
    run_on(LVN_CPU, &data, &s, 0x1p32, STEPS, &here);
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    there.n = 0;
    static const int parts[] = {7, 20, 24}; /* the first ends between two skipped steps */
    for (int i = 0; i < 3; i++) {
        bench_open(&b, &data, &s);
        begin_with(&b, 0x1p32);
        if (i > 0) {
            assert_int_equal(lvni_ckpt_load(last, &ckpt), LVN_OK);
            assert_int_equal(lvni_trainer_restore(b.trainer, ckpt), LVN_OK);
            lvni_ckpt_free(ckpt);
            bench_start_loader(&b);
        }
        go_on(&b, parts[i], &there);
        assert_int_equal(there.status, LVN_OK);
        assert_int_equal(bench_save(b.trainer, false), LVN_OK);
        bench_close(&b);
    }
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    assert_true(here.step[6].phase[0].skipped && here.step[7].phase[0].skipped);
    assert_same_run(&here, &there);
}

TEST(the_host_waits_for_nothing_new)
{
    const setting s = mixed();
    memory data;
    bench b;
    memory_init(&data, 200, SIDE);
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    bench_open(&b, &data, &s);
    b.trainer->engine->scaler.scale = 0x1p24;
    b.trainer->engine->more_steps = true;
    lvni_trainer_step_record record[2];
    lvni_trainer_step_result result;
    lvni_sim_counters before = {0};
    for (int i = 0; i < 30; i++) {
        before = i == 4 ? lvni_sim_get_counters(0) : before;
        assert_int_equal(lvni_trainer_engine_submit(b.trainer->engine, b.trainer->loader,
                                                    &b.trainer->at, &record[i % 2]),
                         LVN_OK);
        b.trainer->at.step++;
        if (i > 0) {
            assert_int_equal(
                lvni_trainer_engine_collect(b.trainer->engine, &record[(i + 1) % 2], &result),
                LVN_OK);
        }
    }
    assert_int_in_range(result.scaler.skipped, 1, 20);
    assert_int_equal(lvni_sim_get_counters(0).drained, before.drained);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

int main(int argc, char **argv)
{
    setenv("LEVIN_SIM_KERNEL_US", "20", 1); /* the host is ahead of the device */
    sim_start("1", "64MiB");
    if (mkdtemp(out) == NULL) {
        return 1;
    }
    char folder[64];
    snprintf(folder, sizeof folder, "%s/checkpoints", out);
    snprintf(last, sizeof last, "%s/last.safetensors", folder);
    mkdir(folder, 0777);
    const int failed = test_main(argc, argv);
    unlink(last);
    rmdir(folder);
    rmdir(out);
    return failed;
}

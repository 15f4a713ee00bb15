/* Batches copied beside the kernels of a slow simulated accelerator: time by the device's own
 * clock, waits of the host, bits, and what is left behind when a run ends early. */
#include "trainer_support.h"

#include "sim_support.h"

#include <stdlib.h>

/* The part of the copies that is seen to be hidden: all of it except what the machine does
 * beside, which TSan makes long. */
#ifdef __SANITIZE_THREAD__
enum { HIDDEN = 8 };
#else
enum { HIDDEN = 2 };
#endif

enum { SIDE = 16, STEPS = 8 };

static const setting step_of_waves = {.batch_size = 32,
                                      .micro_batches = 2,
                                      .lanes = 1,
                                      .workers = 2,
                                      .optim = {.lr = 0.1, .momentum = 0.9}};

typedef struct taken {
    uint64_t clock_ns, kernels_ns, copies_ns, waits, hash, most;
} taken;

static void must(lvn_status s)
{
    if (s != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
}

/* As the training loop does: each step is collected when the next one is submitted; `more`: with
 * the batches of the next one on their way. */
static void take_steps(bench *b, int n, bool more)
{
    lvni_trainer *t = b->trainer;
    lvni_trainer_step_record record[2];
    lvni_trainer_step_result result;
    for (int i = 0; i < n; i++) {
        t->engine->more_steps = more;
        must(lvni_trainer_engine_submit(t->engine, t->loader, &t->at, &record[i % 2]));
        t->at.step++;
        t->at.step_in_epoch = (t->at.step_in_epoch + 1) % t->o.plan.steps_per_epoch;
        t->at.epoch += t->at.step_in_epoch == 0 ? 1 : 0;
        if (i > 0) {
            must(lvni_trainer_engine_collect(t->engine, &record[(i + 1) % 2], &result));
        }
    }
    must(lvni_trainer_engine_collect(t->engine, &record[(n + 1) % 2], &result));
}

/* Of STEPS steps after a few others. */
static taken run(const memory *data, setting s, lvn_device device, bool more)
{
    bench b;
    s.cls = lvni_nn_zoo_find("cnn");
    assert_int_equal(lvn_device_use(device), LVN_OK);
    lvni_tensor_device *sim;
    must(lvni_tensor_device_open(LVN_DEVICE_SIM, 0, &sim));
    lvni_tensor_device_forget_most(sim);
    bench_open(&b, data, &s);
    take_steps(&b, 2, more);
    const lvni_sim_counters from = lvni_sim_get_counters(0);
    take_steps(&b, STEPS, more);
    const lvni_sim_counters to = lvni_sim_get_counters(0);
    const taken r = {.clock_ns = to.clock_ns - from.clock_ns,
                     .kernels_ns = to.device_ns - from.device_ns,
                     .copies_ns = to.copy_ns - from.copy_ns,
                     .waits = to.drained + to.throttled - from.drained - from.throttled,
                     .hash = bench_hash(&b),
                     .most = lvni_tensor_device_get_stats(sim).most};
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    return r;
}

/* At least half of the copies' time is hidden behind kernels; a machine that stops the host between
 * two commands leaves the device idle, so the best of a few counts. The host waits for what steps
 * found, and never for a copy. */
TEST(copies_run_beside_kernels)
{
    memory data;
    bool beside = false;
    memory_init(&data, 200, SIDE);
    for (int i = 0; i < 5 && !beside; i++) {
        const taken r = run(&data, step_of_waves, LVN_SIM(0), true);
        const uint64_t shorter = r.kernels_ns < r.copies_ns ? r.kernels_ns : r.copies_ns;
        print_message("kernels %.1f ms, copies %.1f ms, together %.1f ms, %d waits\n",
                      (double)r.kernels_ns * 1e-6, (double)r.copies_ns * 1e-6,
                      (double)r.clock_ns * 1e-6, (int)r.waits);
        assert_true(r.copies_ns > 0 && r.waits <= STEPS + 1);
        beside = r.clock_ns < r.kernels_ns + r.copies_ns - shorter / HIDDEN;
    }
    assert_true(beside);
}

/* Waves of a step, several lanes, accumulation, steps of two sizes over several epochs; the copy of
 * one step's batches alone, and with those of the next. */
TEST(bits_are_those_of_the_cpu)
{
    const setting settings[] = {
        {.batch_size = 10, .micro_batches = 4, .lanes = 2, .workers = 2},
        {.batch_size = 9, .micro_batches = 3, .lanes = 3, .workers = 1},
        {.batch_size = 8, .micro_batches = 5, .lanes = 2, .workers = 0},
        {.batch_size = 4, .micro_batches = 1, .lanes = 1, .workers = 3},
        {.batch_size = 10, .micro_batches = 4, .lanes = 1, .workers = 2, .skip = true},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        memory data;
        memory_init(&data, 33, SIDE);
        for (int k = 3; settings[i].skip && k < 33; k += 7) {
            data.unreadable[k] = true;
        }
        const uint64_t here = run(&data, settings[i], LVN_CPU, true).hash;
        assert_true(run(&data, settings[i], LVN_SIM(0), true).hash == here);
        assert_true(run(&data, settings[i], LVN_SIM(0), false).hash == here);
    }
}

/* A run takes the memory of the next batches whether the loader has them in time or not. */
TEST(memory_does_not_depend_on_time)
{
    for (int lanes = 1; lanes <= 2; lanes++) {
        memory data;
        memory_init(&data, 72, SIDE);
        const setting s = {.batch_size = 32, .micro_batches = lanes, .lanes = lanes, .workers = 2};
        data.late_us = 2000;
        const taken deferred = run(&data, s, LVN_SIM(0), true),
                    none = run(&data, s, LVN_SIM(0), false);
        const uint64_t batch = 16 * SIDE * SIDE * sizeof(float);
        if (lanes == 1) { /* of two lanes tensors may be there at once, or not */
            data.late_us = 0;
            assert_int_equal(run(&data, s, LVN_SIM(0), true).most, deferred.most);
            assert_true(deferred.most >= none.most + batch);
        }
        assert_true(deferred.hash == none.hash);
    }
}

/* A sample that fails stops the run at its own step, with and without batches on their way, and
 * nothing stays on the device. */
TEST(errors_come_with_their_step)
{
    memory data;
    bench b;
    lvni_tensor_device *device;
    setting s = step_of_waves;
    memory_init(&data, 64, SIDE);
    s.batch_size = 8;
    s.cls = lvni_nn_zoo_find("cnn");
    assert_int_equal(lvni_tensor_device_open(LVN_DEVICE_SIM, 0, &device), LVN_OK);
    int64_t at[2];
    for (int more = 0; more < 2; more++) {
        const uint64_t before = lvni_tensor_device_get_stats(device).in_use;
        data.unreadable[40] = true;
        assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
        bench_open(&b, &data, &s);
        lvn_status status = LVN_OK;
        while (status == LVN_OK && b.trainer->at.step < 8) {
            lvni_trainer_step_result result;
            b.trainer->engine->more_steps = more == 1;
            status = lvni_trainer_step(b.trainer, &result);
        }
        assert_int_equal(status, LVN_ERR_CORRUPT);
        at[more] = b.trainer->at.step;
        bench_close(&b);
        assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
        assert_int_equal(lvni_tensor_device_get_stats(device).in_use, before);
    }
    assert_int_equal(at[0], at[1]);
}

/* ---- evaluation ---- */

enum { CHUNK = 16, CHUNKS = 13 }; /* the last one of 8 */

/* Counts for the second pass: memory is taken then. */
static taken evaluate(const memory *data, int lanes, int workers, lvn_device device,
                      lvni_nn_step *sum)
{
    bench b;
    const setting s = {
        .batch_size = 8, .micro_batches = lanes, .lanes = lanes, .cls = lvni_nn_zoo_find("cnn")};
    assert_int_equal(lvn_device_use(device), LVN_OK);
    bench_open(&b, data, &s);
    lvni_plan plan = b.trainer->o.plan;
    plan.eval_batch_size = CHUNK;
    lvni_data_loader *loader;
    const lvni_data_loader_options o = {
        .dataset = &data->base, .plan = &plan, .workers = workers, .ahead = CHUNKS};
    must(lvni_data_loader_create(&o, &loader));
    lvni_trainer_lanes *all = b.trainer->engine->lanes;
    must(lvni_trainer_evaluate(b.model, loader, all, NULL, sum));
    must(lvni_data_loader_rewind(loader));
    const lvni_sim_counters from = lvni_sim_get_counters(0);
    must(lvni_trainer_evaluate(b.model, loader, all, NULL, sum));
    const lvni_sim_counters to = lvni_sim_get_counters(0);
    const taken r = {.clock_ns = to.clock_ns - from.clock_ns,
                     .kernels_ns = to.device_ns - from.device_ns,
                     .copies_ns = to.copy_ns - from.copy_ns,
                     .waits = to.drained - from.drained};
    lvni_data_loader_destroy(loader);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    return r;
}

/* The host waits for the newest commands at the end alone, unless the loader is late; and copies
 * are hidden as above. */
TEST(metrics_are_read_one_wave_late)
{
    memory data;
    lvni_nn_step sum;
    bool beside = false;
    memory_init(&data, (CHUNKS - 1) * CHUNK + 8, SIDE);
    for (int i = 0; i < 10 && !beside; i++) {
        const taken r = evaluate(&data, 1, 2, LVN_SIM(0), &sum);
        const uint64_t shorter = r.kernels_ns < r.copies_ns ? r.kernels_ns : r.copies_ns;
        print_message("kernels %.1f ms, copies %.1f ms, together %.1f ms, %d waits\n",
                      (double)r.kernels_ns * 1e-6, (double)r.copies_ns * 1e-6,
                      (double)r.clock_ns * 1e-6, (int)r.waits);
        assert_true(r.kernels_ns > 0 && r.copies_ns > 0 && r.waits < CHUNKS / 2);
        beside = r.waits <= 2 && r.clock_ns < r.kernels_ns + r.copies_ns - shorter / HIDDEN;
    }
    assert_true(beside);
}

TEST(metrics_are_those_of_the_cpu)
{
    memory data;
    lvni_nn_step here, there;
    memory_init(&data, (CHUNKS - 1) * CHUNK + 8, SIDE);
    (void)evaluate(&data, 1, 0, LVN_CPU, &here);
    assert_true(here.n_metrics == 2 && here.metric[0].weight == (CHUNKS - 1) * CHUNK + 8);
    for (int lanes = 1; lanes <= 3; lanes++) {
        for (int workers = 0; workers <= 2; workers += 2) {
            (void)evaluate(&data, lanes, workers, LVN_SIM(0), &there);
            assert_int_equal(there.n_metrics, here.n_metrics);
            assert_memory_equal(there.metric, here.metric, 2 * sizeof here.metric[0]);
        }
    }
}

/* Half of the set is read when a sample fails; the next evaluation begins without it. */
TEST(an_evaluation_that_fails_leaves_nothing)
{
    memory data;
    bench b;
    lvni_tensor_device *device;
    lvni_data_loader *loader;
    lvni_nn_step sum;
    const setting s = {
        .batch_size = 8, .micro_batches = 1, .lanes = 1, .cls = lvni_nn_zoo_find("cnn")};
    memory_init(&data, 64, SIDE);
    data.unreadable[40] = true;
    assert_int_equal(lvni_tensor_device_open(LVN_DEVICE_SIM, 0, &device), LVN_OK);
    const uint64_t before = lvni_tensor_device_get_stats(device).in_use;
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    bench_open(&b, &data, &s);
    lvni_plan plan = b.trainer->o.plan;
    plan.eval_batch_size = 8;
    for (int workers = 0; workers < 2; workers++) {
        const lvni_data_loader_options o = {
            .dataset = &data.base, .plan = &plan, .workers = workers};
        must(lvni_data_loader_create(&o, &loader));
        assert_int_equal(
            lvni_trainer_evaluate(b.model, loader, b.trainer->engine->lanes, NULL, &sum),
            LVN_ERR_CORRUPT);
        lvni_data_loader_destroy(loader);
    }
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    assert_int_equal(lvni_tensor_device_get_stats(device).in_use, before);
}

BEFORE_ALL()
{
    setenv("LEVIN_SIM_KERNEL_US", "100", 1);
    setenv("LEVIN_SIM_COPY_GBPS", "0.01", 1);
    sim_start("1", "64MiB");
    return 0;
}

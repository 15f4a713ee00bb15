/* Steps that take samples of a stream beside those of the set: nothing is allocated after warm-up,
 * on a device the host waits no more than without, and the bits are those of the CPU. */
#include "trainer_support.h"

#include "core/alloc.h"
#include "sim_support.h"
#include "tensor/device.h"
#include "tensor/tensor.h"
#include "trainer/memory.h"

#include <math.h>
#include <stdio.h>

enum { SIDE = 8, SET = 45, CLIPS = 14 };

/* Cross entropy of the set's images, and the square of the logits of the stream's, where there are
 * some. */
typedef struct regression {
    lvn_module base;
    lvn_module *head;
} regression;

static _Atomic int elsewhere; /* streams that do not lie where the set does */

static lvn_status regression_build(lvn_module *module, lvn_builder *b)
{
    ((regression *)module)->head = lvn_nn_linear(b, "head", SIDE * SIDE * 3, CLASSES);
    return lvn_builder_status(b);
}

static lvn_tensor *regression_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const lvn_module *head = ((const regression *)module)->head;
    const lvn_batch *clips = lvn_batch_stream(batch, "clips");
    lvn_tensor *loss =
        lvn_cross_entropy(lvn_forward(head, lvn_flatten(batch->image, 1)), batch->label);
    if (clips != NULL) {
        elsewhere +=
            lvni_tensor_device_of(clips->image->data) != lvni_tensor_device_of(batch->image->data);
        lvn_tensor *x = lvn_forward(head, lvn_flatten(clips->image, 1));
        loss = lvn_add(loss, lvn_mean(lvn_square(x)));
    }
    lvn_log(step, "loss", loss);
    return loss;
}

static const lvn_module_class regression_class = {.name = "regression",
                                                  .size = sizeof(regression),
                                                  .build = regression_build,
                                                  .training_step = regression_step};

/* The same without a stream. */
static lvn_tensor *alone_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const lvn_module *head = ((const regression *)module)->head;
    lvn_tensor *loss =
        lvn_cross_entropy(lvn_forward(head, lvn_flatten(batch->image, 1)), batch->label);
    lvn_log(step, "loss", loss);
    return loss;
}

static const lvn_module_class alone_class = {.name = "alone",
                                             .size = sizeof(regression),
                                             .build = regression_build,
                                             .training_step = alone_step};

static setting setting_of(const lvn_stream *clips, int lanes, int workers)
{
    return (setting){.cls = &regression_class,
                     .batch_size = 20,
                     .micro_batches = 6,
                     .lanes = lanes,
                     .workers = workers,
                     .optim = {.lr = 0.01, .momentum = 0.9},
                     .stream = clips};
}

/* As the loop: each step is collected when the next one is submitted. */
static void take_steps(bench *b, int n)
{
    lvni_trainer *t = b->trainer;
    lvni_trainer_step_record record[2];
    lvni_trainer_step_result result;
    t->engine->more_steps = true;
    for (int i = 0; i <= n; i++) {
        if (i < n &&
            lvni_trainer_engine_submit(t->engine, t->loader, &t->at, &record[i % 2]) != LVN_OK) {
            fail_msg("%s", lvn_last_error()->message);
        }
        if (i < n) {
            t->at.step++;
            t->at.step_in_epoch = (t->at.step_in_epoch + 1) % t->o.plan.steps_per_epoch;
            t->at.epoch += t->at.step_in_epoch == 0 ? 1 : 0;
        }
        if (i > 0 &&
            lvni_trainer_engine_collect(t->engine, &record[(i + 1) % 2], &result) != LVN_OK) {
            fail_msg("%s", lvn_last_error()->message);
        }
    }
}

static uint64_t hash_after(const memory *set, const lvn_stream *clips, int lanes, int workers,
                           lvn_device device)
{
    bench b;
    const setting s = setting_of(clips, lanes, workers);
    assert_int_equal(lvn_device_use(device), LVN_OK);
    bench_open(&b, set, &s);
    take_steps(&b, 11);
    const uint64_t hash = bench_hash(&b);
    assert_int_equal(elsewhere, 0);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    return hash;
}

TEST(bits_are_those_of_the_cpu)
{
    memory set, more;
    memory_init(&set, SET, SIDE);
    memory_init(&more, CLIPS, SIDE);
    const lvn_stream seven = {.name = "clips", .dataset = &more.base, .batch = 7};
    uint64_t before = hash_after(&set, &seven, 1, 0, LVN_CPU);
    /* three steps of the set in an epoch; passes of 3, 3, 2 and 7 steps */
    static const int64_t length[] = {CLIPS, CLIPS, 8, 40};
    for (int rule = LVN_STREAM_CYCLE; rule <= LVN_STREAM_LENGTHENS; rule++) {
        memory_init(&more, length[rule], SIDE);
        const lvn_stream clips = {
            .name = "clips", .dataset = &more.base, .batch = 6, .rule = (lvn_stream_rule)rule};
        const uint64_t here = hash_after(&set, &clips, 1, 0, LVN_CPU);
        assert_true(here != before); /* the stream's samples count */
        assert_true(hash_after(&set, &clips, 3, 2, LVN_CPU) == here);
        assert_true(hash_after(&set, &clips, 1, 0, LVN_SIM(0)) == here);
        assert_true(hash_after(&set, &clips, 2, 2, LVN_SIM(0)) == here);
        before = here;
    }
}

static uint64_t allocations(void)
{
    uint64_t calls = 0;
    for (int tag = 0; tag < LVNI_TAG_COUNT; tag++) {
        calls += lvni_core_alloc_get_stats((lvni_core_tag)tag).calls;
    }
    return calls;
}

TEST(nothing_is_allocated)
{
    memory set, more;
    memory_init(&set, SET, SIDE);
    memory_init(&more, CLIPS, SIDE);
    const lvn_stream clips = {.name = "clips", .dataset = &more.base, .batch = 10};
    for (int lanes = 1; lanes <= 3; lanes += 2) {
        for (int workers = 0; workers <= 2; workers++) {
            bench b;
            const setting s = setting_of(&clips, lanes, workers);
            bench_open(&b, &set, &s);
            bench_steps(&b, 9);
            const uint64_t before = allocations();
            bench_steps(&b, 12);
            assert_int_equal(allocations(), before);
            bench_close(&b);
        }
    }
}

/* Batches of the set and of the stream are copied ahead as one. */
TEST(the_host_waits_for_nothing_new)
{
    memory set, more;
    memory_init(&set, 60, SIDE);
    memory_init(&more, CLIPS, SIDE);
    const lvn_stream clips = {.name = "clips", .dataset = &more.base, .batch = 10};
    const setting s = setting_of(&clips, 2, 2);
    bench b;
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    bench_open(&b, &set, &s);
    assert_non_null(b.trainer->engine->deferred);
    take_steps(&b, 4);
    uint64_t least = UINT64_MAX;
    for (int turn = 0; turn < 5 && least > 1; turn++) { /* the last step is read at once */
        const lvni_sim_counters from = lvni_sim_get_counters(0);
        take_steps(&b, 20);
        const lvni_sim_counters to = lvni_sim_get_counters(0);
        const uint64_t drained = to.drained - from.drained;
        least = drained < least ? drained : least;
        assert_true(to.copy_ns > from.copy_ns);
    }
    assert_true(least <= 1);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

/* Batches as they are, and lanes as they grow. */
TEST(the_estimate_counts_the_stream)
{
    memory set, more;
    memory_init(&set, SET, SIDE);
    memory_init(&more, 200, SIDE);
    const lvn_stream clips = {.name = "clips", .dataset = &more.base, .batch = 180};
    double lanes[2];
    for (int with = 0; with < 2; with++) {
        const double before = (double)lvni_core_alloc_get_stats(LVNI_TAG_DATA).live_bytes;
        bench b;
        lvni_trainer_memory_need need;
        setting s = setting_of(with == 0 ? NULL : &clips, 2, 2);
        s.cls = with == 0 ? &alone_class : &regression_class;
        bench_open(&b, &set, &s);
        const double is = (double)lvni_core_alloc_get_stats(LVNI_TAG_DATA).live_bytes - before;
        assert_int_equal(lvni_trainer_predict_memory(&b.trainer->o, &need), LVN_OK);
        assert_true(fabs((double)need.batches - is) < 0.02 * is + 4096.0);
        lanes[with] = (double)need.lanes;
        bench_close(&b);
    }
    assert_true(lanes[1] > lanes[0]);
}

BEFORE_ALL()
{
    sim_start("1", "64MiB");
    return 0;
}

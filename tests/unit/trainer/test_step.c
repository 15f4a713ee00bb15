/* One optimizer step: its gradient is the mean over the step's samples however it is cut, the same
 * bits on any number of lanes; micro-batches without samples, values that are not finite, clipping,
 * schedules; the engine alone. */
#include "trainer_support.h"

#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the reference: softmax regression in double precision ---- */

typedef struct truth {
    double w[CLASSES][FEATURES], b[CLASSES];
    double gw[CLASSES][FEATURES], gb[CLASSES]; /* of the last step */
    double loss;
} truth;

static void copy_weights(const bench *b, truth *t)
{
    const float *w = LVNI_CF32(b->model->parameters[0].tensor),
                *bias = LVNI_CF32(b->model->parameters[1].tensor);
    for (int c = 0; c < CLASSES; c++) {
        t->b[c] = (double)bias[c];
        for (int k = 0; k < FEATURES; k++) {
            t->w[c][k] = (double)w[c * FEATURES + k];
        }
    }
}

static void add_sample(truth *t, int64_t sample, double share)
{
    double x[FEATURES], p[CLASSES], sum = 0.0;
    memory_features(sample, x);
    for (int c = 0; c < CLASSES; c++) {
        double z = t->b[c];
        for (int k = 0; k < FEATURES; k++) {
            z += t->w[c][k] * x[k];
        }
        p[c] = exp(z);
        sum += p[c];
    }
    t->loss -= share * log(p[sample % CLASSES] / sum);
    for (int c = 0; c < CLASSES; c++) {
        const double d = share * (p[c] / sum - (sample % CLASSES == c ? 1.0 : 0.0));
        t->gb[c] += d;
        for (int k = 0; k < FEATURES; k++) {
            t->gw[c][k] += d * x[k];
        }
    }
}

static double norm_of(const truth *t)
{
    double sum = 0.0;
    for (int c = 0; c < CLASSES; c++) {
        sum += t->gb[c] * t->gb[c];
        for (int k = 0; k < FEATURES; k++) {
            sum += t->gw[c][k] * t->gw[c][k];
        }
    }
    return sqrt(sum);
}

/* The mean gradient over the samples of step `step`, and plain descent with it. */
static void reference_step(truth *t, int step, double lr)
{
    memset(t->gw, 0, sizeof t->gw);
    memset(t->gb, 0, sizeof t->gb);
    t->loss = 0.0;
    for (int i = 0; i < seen[step].n; i++) {
        add_sample(t, seen[step].sample[i], 1.0 / seen[step].n);
    }
    for (int c = 0; c < CLASSES; c++) {
        t->b[c] -= lr * t->gb[c];
        for (int k = 0; k < FEATURES; k++) {
            t->w[c][k] -= lr * t->gw[c][k];
        }
    }
}

static void assert_close(const char *what, double have, double want, double room)
{
    if (!(fabs(have - want) <= room)) {
        fail_msg("%s: %.9g, expected %.9g", what, have, want);
    }
}

static void assert_weights(const bench *b, const truth *t)
{
    truth have;
    copy_weights(b, &have);
    for (int c = 0; c < CLASSES; c++) {
        assert_close("bias", have.b[c], t->b[c], 2e-6);
        for (int k = 0; k < FEATURES; k++) {
            assert_close("weight", have.w[c][k], t->w[c][k], 2e-6);
        }
    }
}

/* ---- tests ---- */

/* 50 samples, E = 22: steps of 22, 22 and 6; with 7 micro-batches one of the last is empty. Every
 * sample once an epoch. */
TEST(gradient_is_the_mean_over_the_samples)
{
    memory data;
    memory_init(&data, 50, 0);
    const int micro_batches[] = {1, 2, 3, 5, 7};
    for (int i = 0; i < 10; i++) {
        const setting s = {.batch_size = 22,
                           .micro_batches = micro_batches[i % 5],
                           .lanes = i < 5 || micro_batches[i % 5] == 1 ? 1 : 2};
        bench b;
        truth t;
        bench_open(&b, &data, &s);
        copy_weights(&b, &t);
        bool found[2][50] = {{false}};
        for (int step = 0; step < 6; step++) {
            lvni_trainer_step_result r;
            assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_OK);
            assert_int_equal(r.samples, step % 3 == 2 ? 6 : 22);
            assert_int_equal(seen[step].n, r.samples);
            reference_step(&t, step, 1.0);
            assert_weights(&b, &t);
            assert_close("loss", lvni_trainer_metric_mean(&r.metrics, "loss"), t.loss, 1e-6);
            assert_close("norm", r.phase[0].grad_norm, norm_of(&t), 1e-6);
            for (int k = 0; k < seen[step].n; k++) {
                assert_false(found[step / 3][seen[step].sample[k]]);
                found[step / 3][seen[step].sample[k]] = true;
            }
        }
        assert_int_equal(b.trainer->at.step, 6);
        assert_int_equal(b.trainer->at.samples_seen, 100);
        bench_close(&b);
    }
}

/* A network with batch norm and dropout, AdamW, clipping, an epoch border, a short last step. */
TEST(bits_do_not_depend_on_lanes_and_workers)
{
    memory data;
    memory_init(&data, 45, 8);
    const struct {
        int lanes, workers;
    } layouts[] = {{1, 0}, {2, 0}, {3, 1}, {4, 2}, {2, 3}, {6, 1}};
    uint64_t first = 0;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const setting s = {.cls = lvni_nn_zoo_find("cnn"),
                           .batch_size = 20,
                           .micro_batches = 6,
                           .lanes = layouts[i].lanes,
                           .workers = layouts[i].workers,
                           .optim = {.kind = LVNI_OPTIM_ADAMW,
                                     .lr = 1e-3,
                                     .weight_decay = 0.01,
                                     .beta1 = 0.9,
                                     .beta2 = 0.999,
                                     .eps = 1e-8},
                           .clip = 0.5};
        bench b;
        bench_open(&b, &data, &s);
        bench_steps(&b, 5); /* 20, 20, 5 (one micro-batch empty), 20, 20 */
        const uint64_t hash = bench_hash(&b);
        first = i == 0 ? hash : first;
        if (hash != first) {
            fail_msg("%d lanes and %d workers give other bits than one lane", layouts[i].lanes,
                     layouts[i].workers);
        }
        bench_close(&b);
    }
    const setting s = {.cls = lvni_nn_zoo_find("cnn"),
                       .batch_size = 20,
                       .micro_batches = 5,
                       .lanes = 1,
                       .optim = {.lr = 1e-3}};
    bench b;
    bench_open(&b, &data, &s);
    bench_steps(&b, 5);
    assert_true(bench_hash(&b) != first); /* another plan is another run: the hash sees it */
    bench_close(&b);
}

TEST(unreadable_samples_have_no_weight)
{
    memory data;
    memory_init(&data, 24, 0);
    setting s = {.batch_size = 8, .micro_batches = 4, .lanes = 2, .skip = true};
    bench b;
    bench_open(&b, &data, &s); /* to learn the order */
    bench_steps(&b, 3);
    struct seen order[3];
    memcpy(order, seen, sizeof order);
    bench_close(&b);
    /* step 0: three samples are gone; step 1: all */
    for (int k = 0; k < 3; k++) {
        data.unreadable[order[0].sample[k]] = true;
    }
    for (int k = 0; k < 8; k++) {
        data.unreadable[order[1].sample[k]] = true;
    }
    truth t;
    bench_open(&b, &data, &s);
    copy_weights(&b, &t);
    for (int step = 0; step < 3; step++) {
        lvni_trainer_step_result r;
        assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_OK);
        assert_int_equal(r.samples, step == 0 ? 5 : step == 1 ? 0 : 8);
        if (step != 1) {
            reference_step(&t, step, 1.0);
        }
        assert_weights(&b, &t);
    }
    assert_int_equal(b.trainer->engine->optim->steps[0], 2); /* nothing was learned in step 1 */
    assert_int_equal(b.trainer->at.step, 3);
    bench_close(&b);
    s.skip = false;
    bench_open(&b, &data, &s);
    lvni_trainer_step_result r;
    assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_ERR_CORRUPT);
    bench_close(&b);
}

TEST(loss_that_is_not_finite_keeps_the_weights)
{
    memory data;
    memory_init(&data, 24, 0);
    for (int lanes = 1; lanes <= 3; lanes++) {
        const setting s = {.batch_size = 8, .micro_batches = 4, .lanes = lanes};
        bench b;
        bench_open(&b, &data, &s);
        bench_steps(&b, 2);
        data.nan[seen[1].sample[0]] = true; /* the next run meets it in step 1 */
        bench_close(&b);
        bench_open(&b, &data, &s);
        bench_steps(&b, 1);
        const uint64_t before = bench_hash(&b);
        lvni_trainer_step_result r;
        assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_ERR_NON_FINITE);
        assert_int_equal(bench_hash(&b), before);
        assert_int_equal(b.trainer->at.step, 1);
        assert_non_null(strstr(lvn_last_error()->message, "the loss is "));
        assert_non_null(strstr(lvn_last_error()->message, "at step 1"));
        bench_close(&b);
        memset(data.nan, 0, sizeof data.nan);
    }
}

/* ---- training steps that do something else ---- */

static lvn_tensor *(*step_now)(const lvn_module *m, const lvn_batch *batch, lvn_step *step);

static lvn_tensor *odd_step(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    return step_now(m, batch, step);
}

static lvn_tensor *vector_loss(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    (void)step;
    return lvn_forward(m, batch->image);
}

static lvn_tensor *no_loss(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    (void)m;
    (void)batch;
    (void)step;
    return NULL;
}

static lvn_tensor *constant_loss(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    (void)m;
    (void)step;
    return lvn_mean(batch->image);
}

static lvn_tensor *infinite_gradient(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    (void)step;
    return lvn_mean(lvn_sqrt(lvn_mul_scalar(lvn_forward(m, batch->image), 0.0)));
}

static lvn_tensor *wrong_metric(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *logits = lvn_forward(m, batch->image);
    lvn_log(step, "acc", lvn_accuracy(logits, batch->image)); /* the labels are forgotten */
    return lvn_cross_entropy(logits, batch->label);
}

TEST(impossible_steps_are_explained)
{
    static const struct {
        lvn_tensor *(*step)(const lvn_module *m, const lvn_batch *batch, lvn_step *step);
        lvn_status status;
        const char *reports;
    } cases[] = {
        {vector_loss, LVN_ERR_INVALID, "needs a loss of one element, not 12"},
        {no_loss, LVN_ERR_INVALID,
         "training_step() of the module class softmax_regression returned NULL"},
        {constant_loss, LVN_ERR_INVALID, "does not depend on anything that requires a gradient"},
        {infinite_gradient, LVN_ERR_NON_FINITE, "the gradient's norm is"},
        {wrong_metric, LVN_ERR_DTYPE, "accuracy"},
    };
    memory data;
    memory_init(&data, 8, 0);
    lvn_module_class odd = softmax_regression;
    odd.training_step = odd_step;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        step_now = cases[i].step;
        const setting s = {
            .cls = &odd, .batch_size = 8, .micro_batches = 2, .lanes = 1 + (int)(i % 2)};
        bench b;
        bench_open(&b, &data, &s);
        const uint64_t before = bench_hash(&b);
        lvni_trainer_step_result r;
        lvn_clear_error();
        const lvn_status status = lvni_trainer_step(b.trainer, &r);
        if (strstr(lvn_last_error()->message, cases[i].reports) == NULL) {
            fail_msg("the error should contain \"%s\": %s", cases[i].reports,
                     lvn_last_error()->message);
        }
        assert_int_equal(status, cases[i].status);
        assert_int_equal(bench_hash(&b), before);
        bench_close(&b);
    }
}

/* ---- clipping, schedule ---- */

TEST(long_gradients_are_cut_to_length)
{
    memory data;
    memory_init(&data, 24, 0);
    const setting s = {.batch_size = 8, .micro_batches = 4, .lanes = 2, .clip = 0.125};
    bench b;
    truth t;
    bench_open(&b, &data, &s);
    copy_weights(&b, &t);
    for (int step = 0; step < 3; step++) {
        lvni_trainer_step_result r;
        assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_OK);
        truth look = t;
        reference_step(&look, step, 0.0);
        const double norm = norm_of(&look);
        assert_true(norm > 0.125 && r.phase[0].clipped);
        assert_close("norm before clipping", r.phase[0].grad_norm, norm, 1e-6);
        reference_step(&t, step, 0.125 / (norm + 1e-6));
        assert_weights(&b, &t);
    }
    bench_close(&b);
    const setting wide = {.batch_size = 8, .micro_batches = 4, .lanes = 1, .clip = 100};
    bench_open(&b, &data, &wide);
    lvni_trainer_step_result r;
    assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_OK);
    assert_false(r.phase[0].clipped);
    bench_close(&b);
}

TEST(learning_rate_follows_the_schedule)
{
    memory data;
    memory_init(&data, 24, 0);
    const setting s = {
        .batch_size = 8,
        .micro_batches = 2,
        .lanes = 1,
        .optim = {.lr = 0.5},
        .schedule = {.kind = LVNI_SCHEDULE_COSINE, .warmup_steps = 2, .total_steps = 7}};
    const double want[] = {
        0.25, 0.5, 0.5, 0.25 * (1 + 0.70710678118654757), 0.25, 0.25 * (1 - 0.70710678118654757),
        0.0};
    bench b;
    truth t;
    bench_open(&b, &data, &s);
    copy_weights(&b, &t);
    for (int step = 0; step < 7; step++) {
        lvni_trainer_step_result r;
        assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_OK);
        assert_close("lr", r.lr, want[step], 1e-15);
        reference_step(&t, step, want[step]);
        assert_weights(&b, &t);
    }
    bench_close(&b);
}

/* ---- the engine without a trainer ---- */

enum { LATE = 6 };

/* The trainer's engine without the trainer, each step collected after the next is submitted. */
static void submit_and_collect_late(const lvni_trainer *like, lvni_nn_model *model,
                                    lvni_trainer_step_result result[LATE])
{
    const lvni_trainer_options *o = &like->o;
    lvni_trainer_engine_options options = like->engine->o;
    lvni_trainer_engine *engine;
    lvni_data_loader *loader;
    lvni_trainer_step_record record[2];
    lvni_ckpt_position at = {0};
    options.model = model;
    assert_int_equal(lvni_trainer_engine_create(&options, &engine), LVN_OK);
    const lvni_data_loader_options l = {
        .dataset = o->train, .plan = &o->plan, .training = true, .seed = o->seed};
    assert_int_equal(lvni_data_loader_create(&l, &loader), LVN_OK);
    for (int i = 0; i <= LATE; i++) {
        if (i < LATE) {
            assert_int_equal(lvni_trainer_engine_submit(engine, loader, &at, &record[i % 2]),
                             LVN_OK);
            at.step++;
            at.step_in_epoch = (at.step_in_epoch + 1) % o->plan.steps_per_epoch;
            at.epoch += at.step_in_epoch == 0 ? 1 : 0;
            at.samples_seen += record[i % 2].samples;
        }
        if (i > 0) {
            assert_int_equal(
                lvni_trainer_engine_collect(engine, &record[(i - 1) % 2], &result[i - 1]), LVN_OK);
        }
    }
    lvni_data_loader_destroy(loader);
    lvni_trainer_engine_destroy(engine);
}

TEST(steps_may_be_collected_late)
{
    memory data;
    memory_init(&data, 50, 0);
    const setting s = {.batch_size = 22,
                       .micro_batches = 3,
                       .lanes = 2,
                       .clip = 0.5,
                       .optim = {.kind = LVNI_OPTIM_ADAMW, .lr = 0.01, .eps = 1e-8}};
    bench b;
    lvni_nn_model *model;
    lvni_trainer_step_result want[LATE], have[LATE];
    bench_open(&b, &data, &s);
    assert_int_equal(lvni_nn_model_build(&softmax_regression, NULL, 4, &model), LVN_OK);
    submit_and_collect_late(b.trainer, model, have);
    for (int i = 0; i < LATE; i++) {
        assert_int_equal(lvni_trainer_step(b.trainer, &want[i]), LVN_OK);
        assert_int_equal(have[i].after.step, i + 1);
        assert_int_equal(have[i].after.samples_seen, want[i].after.samples_seen);
        assert_int_equal(have[i].samples, i % 3 == 2 ? 6 : 22);
        assert_true(have[i].lr == want[i].lr && want[i].phase[0].updated);
        assert_true(have[i].phase[0].grad_norm == want[i].phase[0].grad_norm);
        assert_true(lvni_trainer_metric_mean(&have[i].metrics, "loss") ==
                    lvni_trainer_metric_mean(&want[i].metrics, "loss"));
        assert_true(i == 0 || have[i].phase[0].grad_norm != have[i - 1].phase[0].grad_norm);
    }
    assert_memory_equal(model->weights, b.model->weights,
                        (size_t)model->n_weights * sizeof *model->weights);
    lvni_nn_model_destroy(model);
    bench_close(&b);
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}

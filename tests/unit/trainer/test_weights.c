/* The weight that modules give a micro-batch and its metrics: the step's gradient is that of the
 * whole batch however it is cut; the same bits by a number and by a tensor, on every layout and on
 * a device that counts it, without a wait; weights of 0; what cannot be a weight; 64 metrics, and
 * one of a single micro-batch. */
#include "rank_support.h"

#include "sim_support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 24, LATE_STEPS = 2, MANY = 64 };

/* ---- a regression over the samples whose first feature is above a threshold ---- */

typedef struct counted {
    lvn_module base;
    lvn_module *head, *rare;
} counted;

/* How the weight is given; what goes wrong, at step 3 and micro-batch 1. */
static enum { BY_NUMBER, BY_TENSOR, BY_BOTH } way;
static double wrong;
static bool not_a_number; /* the losses of what has no weight are none */
static bool phases;

/* Nothing counts in steps 2, 5 and 6. */
static double threshold(const lvn_step *step)
{
    return step->step == 2 || step->step == 5 || step->step == 6 ? 100.0 : 0.5;
}

static double count(const lvn_batch *host, double above)
{
    const float *x = LVNI_CF32(host->image);
    double n = 0.0;
    for (int64_t i = 0; i < host->size; i++) {
        n += (double)x[i * FEATURES] > above ? 1.0 : 0.0;
    }
    return n;
}

static lvn_status counted_build(lvn_module *module, lvn_builder *b)
{
    counted *m = (counted *)module;
    m->head = lvn_nn_linear(b, "head", FEATURES, CLASSES);
    m->rare = lvn_nn_linear(b, "rare", FEATURES, CLASSES);
    return lvn_builder_status(b);
}

/* 1 where a sample counts, on the device. */
static lvn_tensor *mask_of(const lvn_batch *batch, double above)
{
    lvn_tensor *x = lvn_reshape(lvn_slice(batch->image, 1, 0, 1), LVN_SHAPE(batch->size));
    return lvn_masked_fill(lvn_mul_scalar(x, 0.0), lvn_gt_scalar(x, above), 1.0);
}

static bool goes_wrong(const lvn_step *step)
{
    return wrong != 0.0 && step->step == 3 && lvni_tensor_ctx_get()->at.micro_batch == 1;
}

static lvn_tensor *counted_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const counted *m = (const counted *)module;
    const double above = threshold(step);
    lvn_tensor *mask = mask_of(batch, above), *logits = lvn_forward(m->head, batch->image);
    if (phases ? step->phase == 1 : step->step % 3 == 1) { /* else it misses updates */
        logits = lvn_add(logits, lvn_forward(m->rare, batch->image));
    }
    lvn_tensor *loss = lvn_cross_entropy(logits, batch->label, .sample_weight = mask);
    double weight = count(lvn_step_host(step), above);
    lvn_tensor *weight_on_device = lvn_sum(mask);
    if (goes_wrong(step)) {
        weight_on_device =
            lvn_mul_scalar(lvn_add_scalar(lvn_mul_scalar(weight_on_device, 0.0), 1.0), wrong);
        weight = wrong;
    }
    if (not_a_number && weight == 0.0) {
        loss = lvn_add_scalar(loss, (double)NAN);
    }
    lvn_log(step, "acc", lvn_accuracy(logits, batch->label));
    const bool by_tensor =
        way == BY_TENSOR || (way == BY_BOTH && lvni_tensor_ctx_get()->at.micro_batch % 2 == 1);
    if (by_tensor) {
        lvn_log_weighted_by(step, "loss", loss, weight_on_device);
        lvn_step_weigh_by(step, weight_on_device);
    } else {
        lvn_log_weighted(step, "loss", loss, goes_wrong(step) ? 1.0 : weight);
        lvn_step_weigh(step, weight);
    }
    return loss;
}

static const char *const two_phases[] = {"head", "rare", NULL};
static const lvn_module_class counted_class = {.name = "counted",
                                               .size = sizeof(counted),
                                               .build = counted_build,
                                               .training_step = counted_step},
                              phased_class = {.name = "phased",
                                              .size = sizeof(counted),
                                              .build = counted_build,
                                              .training_step = counted_step,
                                              .phases = two_phases};

static const setting adamw = {
    .cls = &counted_class,
    .batch_size = 8,
    .micro_batches = 4,
    .lanes = 1,
    .optim = {.kind = LVNI_OPTIM_ADAMW, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8},
    .ema = {.decay = 0.9},
    .clip = 0.5};

/* ---- the reference, in double precision ---- */

typedef struct truth {
    double w[CLASSES][FEATURES], b[CLASSES], loss;
} truth;

static void read_head(const bench *b, truth *t)
{
    float w[CLASSES * FEATURES], bias[CLASSES];
    assert_int_equal(lvni_tensor_mem_copy(w, b->model->parameters[0].tensor->data, sizeof w),
                     LVN_OK);
    assert_int_equal(lvni_tensor_mem_copy(bias, b->model->parameters[1].tensor->data, sizeof bias),
                     LVN_OK);
    for (int c = 0; c < CLASSES; c++) {
        t->b[c] = (double)bias[c];
        for (int k = 0; k < FEATURES; k++) {
            t->w[c][k] = (double)w[c * FEATURES + k];
        }
    }
}

/* A step of descent with rate 1 from the mean over all samples that count. */
static void descend(const truth *from, truth *to)
{
    double n = 0.0;
    for (int64_t i = 0; i < N; i++) {
        double x[FEATURES];
        memory_features(i, x);
        n += x[0] > 0.5 ? 1.0 : 0.0;
    }
    *to = *from;
    to->loss = 0.0;
    for (int64_t i = 0; i < N; i++) {
        double x[FEATURES], z[CLASSES], sum = 0.0;
        memory_features(i, x);
        for (int c = 0; c < CLASSES; c++) {
            z[c] = from->b[c];
            for (int k = 0; k < FEATURES; k++) {
                z[c] += from->w[c][k] * x[k];
            }
            sum += exp(z[c]);
        }
        for (int c = 0; c < CLASSES && x[0] > 0.5; c++) {
            const double d = (exp(z[c]) / sum - (i % CLASSES == c ? 1.0 : 0.0)) / n;
            to->b[c] -= d;
            for (int k = 0; k < FEATURES; k++) {
                to->w[c][k] -= d * x[k];
            }
            to->loss -= i % CLASSES == c ? (z[c] - log(sum)) / n : 0.0;
        }
    }
}

TEST(the_gradient_is_that_of_the_whole_batch)
{
    static const int cuts[] = {1, 2, 3, 5, 7, 24};
    memory data;
    memory_init(&data, N, 0);
    for (int i = 0; i < 36; i++) {
        const setting s = {
            .cls = &counted_class, .batch_size = N, .micro_batches = cuts[i % 6], .lanes = 1};
        bench b;
        truth before, want, have;
        lvni_trainer_step_result r;
        way = i / 12;
        assert_int_equal(lvn_device_use(i / 6 % 2 == 0 ? LVN_CPU : LVN_SIM(0)), LVN_OK);
        bench_open(&b, &data, &s);
        read_head(&b, &before);
        descend(&before, &want);
        assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_OK);
        read_head(&b, &have);
        for (int c = 0; c < CLASSES; c++) {
            assert_true(fabs(have.b[c] - want.b[c]) <= 1e-6);
            for (int k = 0; k < FEATURES; k++) {
                assert_true(fabs(have.w[c][k] - want.w[c][k]) <= 1e-6);
            }
        }
        assert_true(fabs(lvni_trainer_metric_mean(&r.metrics, "loss") - want.loss) <= 1e-6);
        assert_string_equal(r.metrics.metric[0].name, "acc");
        assert_true(r.metrics.metric[0].weight == N); /* lvn_log counts samples */
        bench_close(&b);
    }
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

/* ---- bits ---- */

/* With two steps under way, as the loop has them. */
static uint64_t hash_of_pairs(const memory *data, const setting *s, int steps, lvn_device device)
{
    lvni_trainer_step_record record[LATE_STEPS];
    lvni_trainer_step_result result;
    bench b;
    assert_int_equal(lvn_device_use(device), LVN_OK);
    bench_open(&b, data, s);
    lvni_trainer *t = b.trainer;
    for (int submitted = 0, read = 0; read < steps;) {
        if (submitted < steps && submitted - read < LATE_STEPS) {
            t->engine->more_steps = submitted + 1 < steps;
            if (lvni_trainer_engine_submit(t->engine, t->loader, &t->at,
                                           &record[submitted++ % LATE_STEPS]) != LVN_OK) {
                fail_msg("%s", lvn_last_error()->message);
            }
            t->at.step++;
            t->at.step_in_epoch++;
        } else {
            if (lvni_trainer_engine_collect(t->engine, &record[read++ % LATE_STEPS], &result) !=
                LVN_OK) {
                fail_msg("%s", lvn_last_error()->message);
            }
            assert_int_equal(lvni_trainer_logging_add(&t->report, &result), LVN_OK);
        }
    }
    const uint64_t hash = bench_hash(&b);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    return hash;
}

static void check_bits(const char *what, setting s)
{
    enum { STEPS = 12 };
    memory data;
    memory_init(&data, 200, 0);
    way = BY_NUMBER;
    const uint64_t want = ranks_hash_of_one(&data, &s, STEPS, LVN_CPU);
    for (int i = 0; i < 3; i++) {
        way = i;
        s.lanes = 1;
        uint64_t have[] = {ranks_hash_of_one(&data, &s, STEPS, LVN_CPU),
                           ranks_hash_of_one(&data, &s, STEPS, LVN_SIM(0)),
                           hash_of_pairs(&data, &s, STEPS, LVN_SIM(0)), 0};
        s.lanes = 2;
        have[3] = hash_of_pairs(&data, &s, STEPS, LVN_SIM(0));
        for (int k = 0; k < 4; k++) {
            if (have[k] != want) {
                fail_msg("%s, way %d: layout %d has other bits", what, i, k);
            }
        }
        s.lanes = 1;
        ranks_agree(what, &data, &s, 3, STEPS, want);
        ranks_agree_on(what, &data, &s, 3, STEPS, want, LVN_DEVICE_SIM);
    }
}

TEST(numbers_and_tensors_have_the_same_bits_everywhere)
{
    setting s = adamw;
    check_bits("adamw", s);
    s.optim = (lvni_optim_options){.kind = LVNI_OPTIM_LARS,
                                   .lr = 0.5,
                                   .weight_decay = 0.01,
                                   .momentum = 0.9,
                                   .trust_coefficient = 0.02,
                                   .eps = 1e-8};
    check_bits("lars", s);
    s = adamw;
    s.precision = LVNI_PRECISION_16_MIXED;
    check_bits("16-mixed", s);
    s = adamw;
    s.cls = &phased_class;
    phases = true;
    check_bits("phases", s);
    phases = false;
    s = adamw;
    not_a_number = true;
    check_bits("losses without weight are not looked at", s);
    not_a_number = false;
}

/* ---- weights of 0 ---- */

TEST(a_step_without_weight_learns_nothing)
{
    memory data;
    memory_init(&data, 200, 0);
    for (int i = 0; i < 6; i++) {
        bench b;
        lvni_trainer_step_result r;
        setting s = adamw;
        s.schedule = (lvni_optim_schedule){
            .kind = LVNI_SCHEDULE_COSINE, .warmup_steps = 8, .total_steps = 50};
        way = i / 2;
        assert_int_equal(lvn_device_use(i % 2 == 0 ? LVN_CPU : LVN_SIM(0)), LVN_OK);
        bench_open(&b, &data, &s);
        bench_steps(&b, 2);
        b.trainer->report.epoch_sum = (lvni_nn_step){0};
        const uint64_t before = bench_hash(&b);
        const int64_t updates = b.trainer->engine->optim->steps[0];
        assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_OK);
        assert_int_equal(b.trainer->at.step, 3);
        assert_int_equal(r.samples, 8);
        assert_false(r.phase[0].updated || r.phase[0].skipped || r.phase[0].clipped);
        assert_true(r.phase[0].grad_norm == 0.0);
        assert_true(fabs(r.lr - 1e-2 * 3.0 / 8.0) < 1e-9); /* the schedule goes on */
        assert_true(isnan(lvni_trainer_metric_mean(&r.metrics, "loss")) != 0);
        assert_true(lvni_trainer_metric_mean(&r.metrics, "acc") >= 0.0);
        assert_int_equal(b.trainer->engine->optim->steps[0], updates);
        b.trainer->report.epoch_sum = (lvni_nn_step){0};
        assert_true(bench_hash(&b) == before);
        bench_steps(&b, 1);
        assert_int_equal(b.trainer->engine->optim->steps[0], updates + 1);
        assert_true(bench_hash(&b) != before);
        bench_close(&b);
    }
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

/* ---- what cannot be a weight ---- */

TEST(what_cannot_be_a_weight_ends_the_run)
{
    static const double cases[] = {-1.0, NAN, INFINITY};
    memory data;
    memory_init(&data, 200, 0);
    for (int i = 0; i < 12; i++) {
        bench b;
        lvni_trainer_step_result r;
        way = i / 3 % 2;
        wrong = 0.0;
        assert_int_equal(lvn_device_use(i < 6 ? LVN_CPU : LVN_SIM(0)), LVN_OK);
        bench_open(&b, &data, &adamw);
        wrong = cases[i % 3];
        bench_steps(&b, 3);
        const uint64_t before = bench_hash(&b);
        assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_ERR_INVALID);
        const lvn_error *e = lvn_last_error();
        if (strstr(e->message, "it must be 0 or more, and finite") == NULL) {
            fail_msg("case %d: %s", i, e->message);
        }
        bool named = false;
        for (int k = 0; k < e->n_frames; k++) {
            named = named || strstr(e->frames[k], "step 3, micro-batch 1") != NULL;
        }
        assert_true(named);
        assert_true(bench_hash(&b) == before);
        bench_close(&b);
    }
    wrong = 0.0;
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

TEST(weights_are_one_number)
{
    lvn_tensor *one = lvn_tensor_create(LVN_F32, 0, NULL),
               *two = lvn_tensor_create(LVN_F32, LVN_SHAPE(2));
    lvni_nn_step step;
    lvni_nn_step_begin(&step, 5.0);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_step_weigh_by(&step.now, NULL);
    lvn_log_weighted_by(&step.now, "a", NULL, one);
    lvn_log_weighted_by(&step.now, "a", one, NULL);
    lvn_log_weighted(&step.now, "a", NULL, 1.0);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    assert_true(step.n_metrics == 0 && step.weight == 5.0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(lvn_scope_open(), LVN_OK);
        if (i == 0) {
            lvn_step_weigh_by(&step.now, two);
        } else if (i == 1) {
            lvn_log_weighted_by(&step.now, "a", one, two);
        } else if (i == 2) {
            lvn_log_weighted(&step.now, "a", one, -0.5);
        } else {
            lvn_step_weigh(&step.now, (double)INFINITY);
        }
        assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
        assert_non_null(strstr(lvn_last_error()->message, "the weight"));
    }
    lvn_release(one);
    lvn_release(two);
}

/* ---- the host waits for nothing; 64 metrics, each with its own weight ---- */

static int logged = MANY;

static lvn_tensor *many_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *logits = lvn_forward(((const counted *)module)->head, batch->image);
    lvn_tensor *loss = lvn_cross_entropy(logits, batch->label), *mask = mask_of(batch, 0.5);
    for (int i = 0; i < logged; i++) {
        char name[32];
        snprintf(name, sizeof name, "a_metric_with_a_name_%d", i);
        lvn_log_weighted_by(step, name, lvn_add_scalar(loss, i),
                            lvn_add_scalar(lvn_mul_scalar(lvn_sum(mask), i), 1.0));
    }
    lvn_step_weigh_by(step, lvn_sum(mask));
    return loss;
}

static const lvn_module_class many_class = {
    .name = "many", .size = sizeof(counted), .build = counted_build, .training_step = many_step};

TEST(sixty_four_metrics_and_no_wait)
{
    memory data;
    bench b;
    setting s = adamw;
    lvni_trainer_step_record record[LATE_STEPS];
    lvni_trainer_step_result r;
    memory_init(&data, 200, 0);
    s.cls = &many_class;
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    bench_open(&b, &data, &s);
    lvni_trainer *t = b.trainer;
    t->engine->more_steps = true;
    lvni_sim_counters before = {0};
    for (int i = 0; i < 20; i++) {
        before = i == 4 ? lvni_sim_get_counters(0) : before;
        assert_int_equal(lvni_trainer_engine_submit(t->engine, t->loader, &t->at, &record[i % 2]),
                         LVN_OK);
        t->at.step++;
        t->at.step_in_epoch++;
        if (i > 0) {
            assert_int_equal(lvni_trainer_engine_collect(t->engine, &record[(i + 1) % 2], &r),
                             LVN_OK);
            assert_int_equal(r.metrics.n_metrics, MANY);
        }
    }
    const lvni_sim_counters after = lvni_sim_get_counters(0);
    assert_int_equal(after.drained, before.drained);
    assert_int_equal(lvni_trainer_engine_collect(t->engine, &record[1], &r), LVN_OK);
    /* value + i, with weights 1 + i valid of 4 micro-batches */
    const lvni_nn_step_metric *first = &r.metrics.metric[0], *last = &r.metrics.metric[MANY - 1];
    assert_true(first->weight == 4.0 && fmod(last->weight - 4.0, 63.0) == 0.0);
    assert_true(last->sum / last->weight > 63.0 && first->sum / first->weight < 10.0);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    s.batch_size = 80;
    s.micro_batches = 40; /* a message for each rank */
    const uint64_t want = ranks_hash_of_one(&data, &s, 4, LVN_CPU);
    ranks_agree("64 metrics", &data, &s, 3, 4, want);
    ranks_agree_on("64 metrics", &data, &s, 3, 4, want, LVN_DEVICE_SIM);
}

TEST(the_65th_is_an_error)
{
    memory data;
    setting s = adamw;
    memory_init(&data, 200, 0);
    s.cls = &many_class;
    for (int i = 0; i < 2; i++) {
        bench b;
        lvni_trainer_step_result r;
        assert_int_equal(lvn_device_use(i == 0 ? LVN_CPU : LVN_SIM(0)), LVN_OK);
        logged = MANY;
        bench_open(&b, &data, &s);
        bench_steps(&b, 1);
        logged = MANY + 1;
        assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_ERR_INVALID);
        assert_non_null(strstr(lvn_last_error()->message, "a_metric_with_a_name_64"));
        bench_close(&b);
    }
    logged = MANY;
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

TEST(sums_of_more_names_are_an_error)
{
    lvni_nn_step total, part;
    lvni_nn_step_begin(&total, 0.0);
    for (int i = 0; i < MANY + 1; i++) {
        lvni_nn_step_begin(&part, 1.0);
        part.n_metrics = 1;
        part.metric[0] = (lvni_nn_step_metric){.sum = 2.0 * i, .weight = 2.0};
        snprintf(part.metric[0].name, sizeof part.metric[0].name, "of_micro_batch_%d", i);
        assert_int_equal(lvni_nn_metrics_add(&total, &part), i < MANY ? LVN_OK : LVN_ERR_INVALID);
    }
    assert_non_null(strstr(lvn_last_error()->message, "of_micro_batch_64"));
    for (int i = 0; i < MANY; i++) {
        assert_true(total.metric[i].sum == 2.0 * i && total.metric[i].weight == 2.0);
    }
}

/* ---- a metric that one micro-batch alone reports ---- */

static lvn_tensor *rare_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *logits = lvn_forward(((const counted *)module)->head, batch->image);
    lvn_tensor *loss = lvn_cross_entropy(logits, batch->label);
    lvn_log(step, "loss", loss);
    if (lvni_tensor_ctx_get()->at.micro_batch == 2) {
        lvn_log(step, "rare", lvn_add_scalar(lvn_mul_scalar(loss, 0.0), 7.0));
    }
    return loss;
}

static const lvn_module_class rare_class = {
    .name = "rare", .size = sizeof(counted), .build = counted_build, .training_step = rare_step};

/* Its value is that micro-batch's, on all ranks, and no rank waits for others to report it. */
TEST(one_micro_batch_may_report_alone)
{
    memory data;
    bench b;
    setting s = adamw;
    lvni_trainer_step_result r;
    memory_init(&data, 24, 0);
    s.cls = &rare_class;
    bench_open(&b, &data, &s);
    assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_OK);
    assert_int_equal(r.metrics.n_metrics, 2);
    assert_string_equal(r.metrics.metric[1].name, "rare");
    assert_true(r.metrics.metric[0].weight == 8.0 && r.metrics.metric[1].weight == 2.0);
    assert_true(r.metrics.metric[1].sum == 14.0);
    bench_close(&b);
    const uint64_t want = ranks_hash_of_one(&data, &s, 4, LVN_CPU);
    for (int world = 2; world <= 4; world++) {
        ranks_agree("a metric of one micro-batch", &data, &s, world, 4, want);
    }
    ranks_agree_on("a metric of one micro-batch", &data, &s, 3, 4, want, LVN_DEVICE_SIM);
}

/* ---- evaluation ---- */

/* In chunks of 7, some without a sample that counts. */
TEST(validation_honours_weights)
{
    memory data;
    bench b;
    memory_init(&data, 61, 0);
    double mean[6];
    for (int i = 0; i < 6; i++) {
        lvni_data_loader *loader;
        lvni_nn_step sum;
        way = i / 2;
        assert_int_equal(lvn_device_use(i % 2 == 0 ? LVN_CPU : LVN_SIM(0)), LVN_OK);
        bench_open(&b, &data, &adamw);
        const lvni_data_loader_options o = {.dataset = &data.base, .plan = &b.trainer->o.plan};
        assert_int_equal(lvni_data_loader_create(&o, &loader), LVN_OK);
        assert_int_equal(
            lvni_trainer_evaluate(b.model, loader, b.trainer->engine->lanes, NULL, &sum), LVN_OK);
        double n = 0.0;
        for (int64_t k = 0; k < 61; k++) {
            double x[FEATURES];
            memory_features(k, x);
            n += x[0] > 0.5 ? 1.0 : 0.0;
        }
        assert_int_equal(sum.n_metrics, 2);
        assert_true(sum.metric[0].weight == 61.0 && sum.metric[1].weight == n);
        mean[i] = lvni_trainer_metric_mean(&sum, "loss");
        assert_true(mean[i] == mean[0]);
        lvni_data_loader_destroy(loader);
        bench_close(&b);
    }
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
}

BEFORE_ALL()
{
    sim_start("3", "64MiB");
    return 0;
}

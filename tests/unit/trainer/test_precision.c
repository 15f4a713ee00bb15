/* The four precisions on a small network: the loss scale by its rule, skipped steps, bf16 weights,
 * equal results over lanes, resuming. */
#include "core/math.h"
#include "trainer_support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

TEST(the_scale_follows_its_rule)
{
    lvni_trainer_scaler s;
    lvni_trainer_scaler_init(&s, LVNI_PRECISION_16_MIXED);
    assert_true(s.on && s.scale == 65536.0);
    assert_int_equal(lvni_trainer_scaler_update(&s, true, true), LVN_OK);
    assert_true(s.scale == 32768.0 && s.skipped == 1 && s.in_a_row == 1);
    for (int i = 0; i < 1999; i++) {
        assert_int_equal(lvni_trainer_scaler_update(&s, false, false), LVN_OK);
    }
    assert_true(s.scale == 32768.0 && s.clean == 1999 && s.in_a_row == 0);
    assert_int_equal(lvni_trainer_scaler_update(&s, false, false), LVN_OK);
    assert_true(s.scale == 65536.0 && s.clean == 0);
    for (int i = 0; i < 49; i++) {
        assert_int_equal(lvni_trainer_scaler_update(&s, true, true), LVN_OK);
    }
    assert_true(s.scale == 0x1p-14); /* the floor: 2^16 halved 49 times would be less */
    assert_int_equal(lvni_trainer_scaler_update(&s, true, true), LVN_ERR_NON_FINITE);
    assert_non_null(strstr(lvn_last_error()->message, "50 steps in a row"));
    lvni_trainer_scaler_init(&s, LVNI_PRECISION_BF16_MIXED);
    assert_true(!s.on && s.scale == 1.0);
}

TEST(its_state_is_text)
{
    char text[128];
    lvni_trainer_scaler a = {.on = true,
                             .scale = 1024.0,
                             .clean = 77,
                             .skipped = 5,
                             .in_a_row = 2,
                             .in_epoch = 3},
                        b;
    lvni_trainer_scaler_print(&a, text, sizeof text);
    lvni_trainer_scaler_init(&b, LVNI_PRECISION_16_MIXED);
    assert_int_equal(lvni_trainer_scaler_read(text, &b), LVN_OK);
    assert_true(b.scale == 1024.0 && b.clean == 77 && b.skipped == 5 && b.in_a_row == 2 &&
                b.in_epoch == 3);
    /* of an early version */
    assert_int_equal(lvni_trainer_scaler_read("scale=1024 clean=77 skipped=5 in_a_row=2", &b),
                     LVN_OK);
    assert_true(b.skipped == 5 && b.in_epoch == 0);
    static const char *const bad[] = {"",
                                      "scale=1024",
                                      "scale=nan clean=0 skipped=0 in_a_row=0",
                                      "scale=-1 clean=0 skipped=0 in_a_row=0",
                                      "scale=1 clean=2000 skipped=0 in_a_row=0",
                                      "scale=1 clean=0 skipped=0 in_a_row=0 x",
                                      "scale=1 clean=0 skipped=1 in_a_row=0 in_epoch=2",
                                      "scale=1 clean=0 skipped=1 in_a_row=0 in_epoch=1x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(lvni_trainer_scaler_read(bad[i], &b), LVN_ERR_CORRUPT);
        assert_true(b.scale == 1024.0); /* untouched */
    }
    lvni_trainer_scaler_init(&a, LVNI_PRECISION_32);
    lvni_trainer_scaler_print(&a, text, sizeof text);
    assert_string_equal(text, "");
    assert_int_equal(lvni_trainer_scaler_read(NULL, &b), LVN_OK);
    /* the schedule still counts without them */
    assert_int_equal(lvni_trainer_scaler_read("scale=1024 clean=77 skipped=5 in_a_row=2", &a),
                     LVN_OK);
    assert_true(!a.on && a.scale == 1.0 && a.skipped == 5);
    lvni_trainer_scaler_print(&a, text, sizeof text);
    assert_string_equal(text, "skipped=5");
    lvni_trainer_scaler_init(&b, LVNI_PRECISION_16_MIXED);
    assert_int_equal(lvni_trainer_scaler_read(text, &b), LVN_OK);
    assert_true(b.scale == 65536.0 && b.skipped == 5); /* a fresh scale */
}

static setting cnn_setting(lvni_trainer_precision precision, int lanes)
{
    return (setting){.cls = lvni_nn_zoo_find("cnn"),
                     .batch_size = 8,
                     .micro_batches = 4,
                     .lanes = lanes,
                     .precision = precision,
                     .optim = {.kind = LVNI_OPTIM_SGD, .lr = 0.05, .momentum = 0.9}};
}

/* One hash over lanes for each; another one for each precision. */
TEST(every_precision_is_reproducible)
{
    memory m;
    memory_init(&m, 24, 8);
    uint64_t hash[4];
    for (int p = 0; p < 4; p++) {
        hash[p] = (uint64_t)p;
        if (lvni_trainer_precision_low((lvni_trainer_precision)p) == LVN_BF16 &&
            !lvni_cpu_has_bf16()) {
            print_message("skipped: no bf16 products on %s\n", lvni_cpu_describe());
            continue;
        }
        for (int lanes = 1; lanes <= 4; lanes++) {
            bench b;
            const setting s = cnn_setting((lvni_trainer_precision)p, lanes);
            bench_open(&b, &m, &s);
            bench_steps(&b, 6);
            if (lanes == 1) {
                hash[p] = bench_hash(&b);
            }
            assert_true(hash[p] == bench_hash(&b));
            bench_close(&b);
        }
        for (int q = 0; q < p; q++) {
            assert_true(hash[p] != hash[q]);
        }
    }
}

/* What plain sgd moves after `before` steps: the gradient. */
static float *gradient_after(int before, const char *net, lvni_trainer_precision precision,
                             const memory *m, bench *b)
{
    const setting s = {.cls = lvni_nn_zoo_find(net),
                       .batch_size = 8,
                       .micro_batches = 1,
                       .lanes = 1,
                       .precision = precision,
                       .optim = {.kind = LVNI_OPTIM_SGD, .lr = 0.01}};
    bench_open(b, m, &s);
    float *moved = malloc((size_t)b->model->n_values * sizeof *moved);
    if (moved == NULL) {
        fail();
        return NULL;
    }
    bench_steps(b, before);
    memcpy(moved, b->model->weights, (size_t)b->model->n_values * sizeof *moved);
    bench_steps(b, 1);
    for (int64_t i = 0; i < b->model->n_values; i++) {
        moved[i] -= b->model->weights[i];
    }
    return moved;
}

/* Rounding to 8 bits may turn a gradient (batch norm over noise: by 22 degrees on its way down), a
 * wrong product turns it by ninety. Each weight matrix of networks whose square layers and few
 * pixels take ways of their own. */
TEST(gradients_in_bf16_point_where_those_in_f32_do)
{
    static const struct {
        const char *name;
        int side, before; /* ViT's head starts as zero: nothing goes below it in the first step */
    } nets[] = {{"vit_s_16", 32, 1}, {"resnet18", 64, 0}};
    for (size_t n = 0; n < 2 && lvni_cpu_has_bf16(); n++) {
        bench full, mixed;
        memory m;
        memory_init(&m, 8, nets[n].side);
        float *x = gradient_after(nets[n].before, nets[n].name, LVNI_PRECISION_32, &m, &full);
        float *y =
            gradient_after(nets[n].before, nets[n].name, LVNI_PRECISION_BF16_MIXED, &m, &mixed);
        double least = 1;
        for (int i = 0; i < full.model->n_parameters && x != NULL && y != NULL; i++) {
            const lvni_nn_parameter *p = &full.model->parameters[i];
            double xy = 0, xx = 0, yy = 0;
            for (int64_t k = full.model->offset[i];
                 p->tensor->ndim > 1 && k < full.model->offset[i] + p->numel; k++) {
                xy += (double)x[k] * (double)y[k];
                xx += (double)x[k] * (double)x[k];
                yy += (double)y[k] * (double)y[k];
            }
            const double cosine = xx > 0 ? xy / sqrt(xx * yy) : 1.0;
            least = cosine < least ? cosine : least;
            if (!(cosine > 0.85)) {
                fail_msg("%s: the gradients of %s in f32 and bf16-mixed have a cosine of %.3f",
                         nets[n].name, p->name, cosine);
            }
        }
        print_message("%s: least cosine of a weight's gradients %.4f\n", nets[n].name, least);
        free(x);
        free(y);
        bench_close(&full);
        bench_close(&mixed);
    }
}

/* A scale that f16 cannot carry: the step moves nothing but the counters, and the schedule
 * waits. */
TEST(an_overflow_skips_the_step)
{
    memory m;
    memory_init(&m, 24, 8);
    bench b;
    const setting s = cnn_setting(LVNI_PRECISION_16_MIXED, 1);
    bench_open(&b, &m, &s);
    lvni_trainer *t = b.trainer;
    const size_t bytes = (size_t)b.model->n_values * sizeof(float);
    float *before = malloc(bytes);
    assert_non_null(before);
    memcpy(before, b.model->weights, bytes);
    t->engine->scaler.scale = 0x1p60;
    lvni_trainer_step_result r;
    assert_int_equal(lvni_trainer_step(t, &r), LVN_OK);
    assert_true(r.phase[0].skipped && t->engine->scaler.skipped == 1 &&
                t->engine->scaler.scale == 0x1p59);
    assert_int_equal(t->at.step, 1);
    assert_int_equal(t->engine->optim->steps[0], 0);
    assert_memory_equal(before, b.model->weights, bytes);
    assert_int_equal(t->report.epoch_sum.n_metrics, 0); /* its loss may be infinite */
    assert_int_equal(t->engine->scaler.in_epoch, 1);
    t->engine->scaler.scale = 64.0;
    assert_int_equal(lvni_trainer_step(t, &r), LVN_OK);
    assert_true(!r.phase[0].skipped && isfinite(r.phase[0].grad_norm));
    assert_memory_not_equal(before, b.model->weights, bytes);
    free(before);
    bench_close(&b);
}

/* The scale cancels: powers of two leave the gradient's norm as it is, up to what f16 rounds. */
TEST(the_scale_leaves_no_trace)
{
    memory m;
    memory_init(&m, 24, 8);
    double norm[2];
    for (int i = 0; i < 2; i++) {
        bench b;
        const setting s = cnn_setting(LVNI_PRECISION_16_MIXED, 1);
        bench_open(&b, &m, &s);
        b.trainer->engine->scaler.scale = i == 0 ? 1.0 : 256.0;
        lvni_trainer_step_result r;
        assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_OK);
        norm[i] = r.phase[0].grad_norm;
        bench_close(&b);
    }
    assert_true(fabs(norm[0] / norm[1] - 1.0) < 1e-2);
}

/* What goes backward is the mean loss times the scale, however many samples a micro-batch has: the
 * first scale of 65536 loses no step. */
TEST(no_step_is_lost_to_the_size_of_a_micro_batch)
{
    static const struct {
        int64_t batch;
        int micro_batches;
    } cut[] = {{16, 1}, {96, 1}, {96, 4}, {50, 4}, {96, 2}};
    memory m;
    memory_init(&m, 96, 8);
    for (size_t i = 0; i < 2 * sizeof cut / sizeof *cut; i++) {
        bench b;
        const setting s = {.cls = lvni_nn_zoo_find(i % 2 == 0 ? "cnn" : "mlp"),
                           .batch_size = cut[i / 2].batch,
                           .micro_batches = cut[i / 2].micro_batches,
                           .lanes = 1,
                           .precision = LVNI_PRECISION_16_MIXED,
                           .optim = {.kind = LVNI_OPTIM_SGD, .lr = 0.01}};
        bench_open(&b, &m, &s);
        bench_steps(&b, 4);
        assert_int_equal(b.trainer->engine->scaler.skipped, 0);
        assert_true(b.trainer->engine->scaler.scale == 65536.0);
        bench_close(&b);
    }
}

/* The gradient of a step is the weighted mean over micro-batches of unequal size, in f16 as in f32;
 * with sync_batchnorm, too, where a micro-batch's gradient comes from all losses of the group. */
TEST(unequal_micro_batches_count_by_their_samples)
{
    memory m;
    memory_init(&m, 24, 8);
    for (int i = 0; i < 24; i++) {
        m.unreadable[i] = i % 3 > 0; /* micro-batches of 8 planned samples have 1 to 5 */
    }
    for (int sync = 0; sync < 2; sync++) {
        float *moved[2];
        int64_t n = 0;
        for (int i = 0; i < 2; i++) {
            bench b;
            const setting s = {.cls = lvni_nn_zoo_find(sync ? "cnn" : "mlp"),
                               .batch_size = 24,
                               .micro_batches = 3,
                               .lanes = sync ? 3 : 1,
                               .sync = sync != 0,
                               .precision = i == 0 ? LVNI_PRECISION_32 : LVNI_PRECISION_16_MIXED,
                               .skip = true,
                               .optim = {.kind = LVNI_OPTIM_SGD, .lr = 1.0}};
            bench_open(&b, &m, &s);
            n = b.model->n_weights;
            moved[i] = malloc((size_t)n * sizeof(float));
            assert_non_null(moved[i]);
            memcpy(moved[i], b.model->weights, (size_t)n * sizeof(float));
            bench_steps(&b, 1);
            for (int64_t k = 0; k < n; k++) {
                moved[i][k] -= b.model->weights[k];
            }
            bench_close(&b);
        }
        double difference = 0.0, norm = 0.0;
        for (int64_t k = 0; k < n; k++) {
            difference += pow((double)moved[0][k] - (double)moved[1][k], 2.0);
            norm += pow((double)moved[0][k], 2.0);
        }
        print_message("sync %d: gradients in f16 and f32 differ by %.4f of their norm\n", sync,
                      sqrt(difference / norm));
        assert_true(sqrt(difference / norm) < (sync ? 0.1 : 0.01));
        free(moved[0]);
        free(moved[1]);
    }
}

/* Where the first step with SGD and a rate of 1 moves the weights. */
static float *first_move(const memory *m, setting s, lvni_trainer_precision precision, int64_t *n)
{
    bench b;
    s.precision = precision;
    bench_open(&b, m, &s);
    *n = b.model->n_weights;
    float *moved = malloc((size_t)*n * sizeof(float));
    assert_non_null(moved);
    memcpy(moved, b.model->weights, (size_t)*n * sizeof(float));
    bench_steps(&b, 1);
    for (int64_t k = 0; k < *n; k++) {
        moved[k] -= b.model->weights[k];
    }
    bench_close(&b);
    return moved;
}

/* By norm and by value, the clipped gradient is that of f32: the loss scale is taken out before. */
TEST(gradients_are_clipped_without_the_scale)
{
    memory m;
    memory_init(&m, 24, 8);
    for (int by_value = 0; by_value < 2; by_value++) {
        const double limit = by_value ? 1e-3 : 0.1;
        const setting s = {.cls = lvni_nn_zoo_find("mlp"),
                           .batch_size = 24,
                           .micro_batches = 3,
                           .lanes = 1,
                           .clip = by_value ? 0.0 : limit,
                           .optim = {.lr = 1.0, .clip_value = by_value ? limit : 0.0}};
        int64_t n;
        float *full = first_move(&m, s, LVNI_PRECISION_32, &n),
              *half = first_move(&m, s, LVNI_PRECISION_16_MIXED, &n);
        double difference = 0.0, norm = 0.0, largest = 0.0;
        for (int64_t k = 0; k < n; k++) {
            difference += pow((double)full[k] - (double)half[k], 2.0);
            norm += pow((double)half[k], 2.0);
            largest = fmax(largest, fabs((double)half[k]));
        }
        assert_true(sqrt(difference / norm) < 0.01);
        assert_true(fabs((by_value ? largest : sqrt(norm)) / limit - 1.0) < 1e-3);
        free(full);
        free(half);
    }
}

/* A skipped step leaves everything that a step moves, except the count of steps and the sample
 * order: weights, running statistics, the average, moments and Adam's t, the schedule. (PyTorch's
 * GradScaler skips optimizer.step() alone: there running statistics have moved.) */
TEST(a_skipped_step_leaves_all_state)
{
    memory m;
    memory_init(&m, 24, 8);
    setting s = cnn_setting(LVNI_PRECISION_16_MIXED, 1);
    s.optim = (lvni_optim_options){.kind = LVNI_OPTIM_ADAMW,
                                   .lr = 0.01,
                                   .beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .eps = 1e-8,
                                   .weight_decay = 0.1};
    s.ema = (lvni_optim_ema_options){.decay = 0.9};
    s.schedule = (lvni_optim_schedule){
        .kind = LVNI_SCHEDULE_LINEAR, .warmup_steps = 4, .total_steps = 20, .end_factor = 0.1};
    bench b;
    bench_open(&b, &m, &s);
    lvni_trainer *t = b.trainer;
    lvni_trainer_step_result r;
    t->engine->scaler.scale = 64.0;
    assert_int_equal(lvni_trainer_step(t, &r), LVN_OK);
    assert_true(!r.phase[0].skipped && r.lr == 0.01 * 0.25);
    const uint64_t before = bench_hash(&b);
    t->engine->scaler.scale = 0x1p60;
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(lvni_trainer_step(t, &r), LVN_OK);
        assert_true(r.phase[0].skipped && bench_hash(&b) == before &&
                    t->engine->optim->steps[0] == 1 && t->at.step == 1 + i);
    }
    t->engine->scaler.scale = 64.0;
    assert_int_equal(lvni_trainer_step(t, &r), LVN_OK);
    assert_true(!r.phase[0].skipped && r.lr == 0.01 * 0.5 && t->engine->optim->steps[0] == 2 &&
                t->at.step == 4);
    assert_true(bench_hash(&b) != before);
    bench_close(&b);
}

/* torch._amp_update_scale_ of PyTorch 2.15, init 65536, interval 2000: scale and clean steps after
 * n steps, `overflow` those that had one. */
TEST(the_scale_moves_as_in_pytorch)
{
    static const int overflow[] = {0, 1, 2, 2003, 2004, 4010, 8100};
    static const struct {
        int after;
        double scale;
        int clean;
    } golden[] = {{1, 32768, 0},     {3, 8192, 0},     {2002, 8192, 1999}, {2003, 16384, 0},
                  {2004, 8192, 0},   {2005, 4096, 0},  {4005, 8192, 0},    {4010, 8192, 5},
                  {4011, 4096, 0},   {6011, 8192, 0},  {8011, 16384, 0},   {8101, 8192, 0},
                  {10101, 16384, 0}, {12101, 32768, 0}};
    lvni_trainer_scaler s;
    lvni_trainer_scaler_init(&s, LVNI_PRECISION_16_MIXED);
    size_t o = 0, g = 0;
    for (int step = 0; g < sizeof golden / sizeof *golden; step++) {
        const bool over = o < sizeof overflow / sizeof *overflow && overflow[o] == step;
        o += over ? 1 : 0;
        assert_int_equal(lvni_trainer_scaler_update(&s, over, over), LVN_OK);
        if (step + 1 == golden[g].after) {
            assert_true(s.scale == golden[g].scale && s.clean == golden[g].clean);
            g++;
        }
    }
}

TEST(bf16_true_weights_are_bf16)
{
    if (!lvni_cpu_has_bf16()) {
        skip();
    }
    memory m;
    memory_init(&m, 24, 8);
    bench b;
    const setting s = cnn_setting(LVNI_PRECISION_BF16_TRUE, 1);
    bench_open(&b, &m, &s);
    for (int step = 0; step < 3; step++) {
        for (int64_t i = 0; i < b.model->n_weights; i++) {
            const float w = b.model->weights[i];
            assert_true(lvni_core_bf16_to_f32(lvni_core_f32_to_bf16(w)) == w);
        }
        bench_steps(&b, 1);
    }
    bench_close(&b);
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}

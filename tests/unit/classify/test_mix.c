/* mixup and CutMix: the distribution of lambda, boxes, partners, pixels, and the loss and gradient
 * of a mixed step. */
#include "core/math.h"
#include "kernels/kernels.h"
#include "nn/model.h"
#include "nn/step_metrics.h"
#include "recipes/classify/classify_mix.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static lvni_classify_mix mix_of(double mixup, double cutmix)
{
    return (lvni_classify_mix){.mixup_alpha = mixup, .cutmix_alpha = cutmix};
}

/* Beta(a, a): mean 1/2, variance 1 / (4 (2a + 1)), fourth central moment 3 / (16 (2a + 1)(2a +
 * 3)). */
TEST(lambda_has_the_moments_of_beta)
{
    static const double alphas[] = {0.1, 0.2, 0.4, 1.0, 2.0, 8.0};
    enum { N = 20000 };
    for (size_t k = 0; k < sizeof alphas / sizeof *alphas; k++) {
        const double a = alphas[k];
        const lvni_classify_mix m = mix_of(a, 0.0);
        double mean = 0.0, variance = 0.0, fourth = 0.0;
        for (uint32_t i = 0; i < N; i++) {
            const lvn_mix_attr d = lvni_classify_mix_draw_one(&m, 11, i, i % 7, 32, 32);
            assert_true(!d.cut && d.lambda >= 0.0 && d.lambda <= 1.0);
            mean += d.lambda / N;
            variance += (d.lambda - 0.5) * (d.lambda - 0.5) / N;
            fourth += pow(d.lambda - 0.5, 4.0) / N;
        }
        assert_true(fabs(mean - 0.5) < 0.012);
        assert_true(fabs(variance * 4.0 * (2.0 * a + 1.0) - 1.0) < 0.04);
        assert_true(fabs(fourth * 16.0 * (2.0 * a + 1.0) * (2.0 * a + 3.0) / 3.0 - 1.0) < 0.08);
    }
}

TEST(boxes_have_the_area_that_lambda_gives)
{
    const lvni_classify_mix m = mix_of(0.0, 1.0);
    double mean = 0.0;
    for (uint32_t i = 0; i < 2000; i++) {
        const lvn_mix_attr d = lvni_classify_mix_draw_one(&m, 5, i, 0, 20, 12);
        assert_true(d.cut && d.x0 >= 0 && d.x0 <= d.x1 && d.x1 <= 20 && d.y0 >= 0 && d.y0 <= d.y1 &&
                    d.y1 <= 12);
        assert_true(fabs(d.lambda - (1.0 - (d.x1 - d.x0) * (d.y1 - d.y0) / 240.0)) < 1e-12);
        mean += d.lambda / 2000;
    }
    /* 0.679 for pixels without size: boxes lose what lies outside; sides are rounded down */
    assert_true(fabs(mean - 0.69) < 0.02);
}

TEST(both_kinds_take_turns_by_chance)
{
    const lvni_classify_mix m = mix_of(0.2, 1.0);
    int cut = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        cut += lvni_classify_mix_draw_one(&m, 5, i, 3, 8, 8).cut;
    }
    assert_int_in_range(cut, 440, 560);
}

TEST(draws_depend_on_seed_step_and_micro_batch_alone)
{
    const lvni_classify_mix m = mix_of(1.0, 0.0);
    const double lambda = lvni_classify_mix_draw_one(&m, 1, 2, 3, 8, 8).lambda;
    assert_true(lambda == lvni_classify_mix_draw_one(&m, 1, 2, 3, 50, 50).lambda);
    assert_true(lambda != lvni_classify_mix_draw_one(&m, 2, 2, 3, 8, 8).lambda);
    assert_true(lambda != lvni_classify_mix_draw_one(&m, 1, 3, 3, 8, 8).lambda);
    assert_true(lambda != lvni_classify_mix_draw_one(&m, 1, 2, 4, 8, 8).lambda);
    int64_t partner[17], seen[17] = {0};
    lvni_classify_mix_partners(1, 2, 3, 17, partner);
    for (int i = 0; i < 17; i++) {
        assert_int_in_range(partner[i], 0, 16);
        seen[partner[i]]++;
    }
    for (int i = 0; i < 17; i++) {
        assert_int_equal(seen[i], 1);
    }
    lvni_classify_mix_partners(1, 2, 3, 1, partner);
    assert_int_equal(partner[0], 0);
}

/* The draws are frozen (docs/reproducibility.md): these numbers never change. */
TEST(draws_are_these)
{
    const lvni_classify_mix blend = mix_of(0.4, 0.0), paste = mix_of(0.0, 1.0);
    static const int64_t want[8] = {6, 4, 2, 1, 5, 3, 0, 7};
    int64_t partner[8];
    assert_true(lvni_classify_mix_draw_one(&blend, 1, 2, 3, 8, 8).lambda == 0x1.45570bca8ed1cp-1);
    const lvn_mix_attr d = lvni_classify_mix_draw_one(&paste, 1, 2, 3, 40, 30);
    assert_true(d.cut && d.x0 == 5 && d.x1 == 38 && d.y0 == 8 && d.y1 == 30);
    lvni_classify_mix_partners(1, 2, 3, 8, partner);
    assert_memory_equal(partner, want, sizeof want);
}

/* The op, on host memory. */
static void mix_images(const lvn_mix_attr *attr, const int64_t *partner, const float *in, int n,
                       int height, int width, int channels, float *out)
{
    lvn_tensor *x = lvn_tensor_wrap((float *)(uintptr_t)in, LVN_F32,
                                    LVN_SHAPE(n, height, width, channels)),
               *index = lvn_tensor_wrap((int64_t *)(uintptr_t)partner, LVN_I64, LVN_SHAPE(n)),
               *y = lvn_tensor_wrap(out, LVN_F32, LVN_SHAPE(n, height, width, channels));
    lvn_kernel_args args = {.in = {x, index}, .out = {y}, .attr = attr};
    assert_int_equal(lvni_kernels_run(LVNI_OP_mix_images, &args, 1), LVN_OK);
    lvn_release(x);
    lvn_release(index);
    lvn_release(y);
}

TEST(images_are_blended_or_pasted)
{
    enum { N = 3, H = 4, W = 5, C = 3, SIZE = H * W * C };
    float in[N * SIZE], out[N * SIZE];
    const int64_t partner[N] = {2, 1, 0};
    for (int i = 0; i < N * SIZE; i++) {
        in[i] = (float)i;
    }
    const lvn_mix_attr blend = {.lambda = 0.75};
    mix_images(&blend, partner, in, N, H, W, C, out);
    for (int i = 0; i < N * SIZE; i++) {
        assert_float_equal(out[i], 0.75F * in[i] + 0.25F * in[partner[i / SIZE] * SIZE + i % SIZE],
                           1e-4F);
    }
    const lvn_mix_attr paste = {.cut = true, .x0 = 1, .x1 = 3, .y0 = 2, .y1 = 4};
    mix_images(&paste, partner, in, N, H, W, C, out);
    for (int i = 0; i < N * SIZE; i++) {
        const int x = i / C % W, y = i / C / W % H;
        const bool inside = x >= 1 && x < 3 && y >= 2 && y < 4;
        assert_true(out[i] == (inside ? in[partner[i / SIZE] * SIZE + i % SIZE] : in[i]));
    }
}

/* ---- a step ---- */

enum { S = 4, CLASSES = 3, BATCH = 5 };

typedef struct flat {
    lvn_module base;
    lvn_module *head;
} flat;

static lvn_status flat_build(lvn_module *module, lvn_builder *b)
{
    ((flat *)module)->head = lvn_nn_linear(b, "head", S * S * 3, CLASSES);
    return lvn_builder_status(b);
}

static lvn_tensor *flat_forward(const lvn_module *module, lvn_tensor *x)
{
    return lvn_forward(((const flat *)module)->head, lvn_flatten(x, 1));
}

static lvn_tensor *flat_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    (void)step;
    return lvn_cross_entropy(lvn_forward(module, batch->image), batch->label);
}

static const lvn_module_class flat_class = {.name = "flat",
                                            .size = sizeof(flat),
                                            .build = flat_build,
                                            .forward = flat_forward,
                                            .training_step = flat_step};

/* Mean cross entropy of soft targets lambda e_a + (1 - lambda) e_b, in double precision. */
static double soft_loss(const float *w, const float *bias, const float *x, const int64_t *a,
                        const int64_t *b, double lambda)
{
    double loss = 0.0;
    for (int i = 0; i < BATCH; i++) {
        double logit[CLASSES], total = 0.0;
        for (int k = 0; k < CLASSES; k++) {
            logit[k] = (double)bias[k];
            for (int j = 0; j < S * S * 3; j++) {
                logit[k] += (double)w[k * S * S * 3 + j] * (double)x[i * S * S * 3 + j];
            }
            total += exp(logit[k]);
        }
        loss -= (lambda * logit[a[i]] + (1.0 - lambda) * logit[b[i]] - log(total)) / BATCH;
    }
    return loss;
}

TEST(a_step_has_the_loss_of_soft_targets)
{
    lvni_classify_mix m;
    lvni_classify_mix_init(&m, &flat_class, 0.8, 0.0);
    assert_ptr_equal(m.cls.validation_step, flat_step);
    lvni_nn_model *model;
    assert_int_equal(lvni_nn_model_build(&m.cls, NULL, 1, &model), LVN_OK);
    float images[BATCH * S * S * 3], mixed[BATCH * S * S * 3];
    int64_t labels[BATCH] = {0, 1, 2, 1, 0}, partner[BATCH], other[BATCH];
    for (int i = 0; i < BATCH * S * S * 3; i++) {
        images[i] = (float)(i * 7919 % 101) / 50.0F - 1.0F;
    }
    lvn_batch batch = {.size = BATCH,
                       .image = lvn_tensor_wrap(images, LVN_F32, LVN_SHAPE(BATCH, S, S, 3)),
                       .label = lvn_tensor_wrap(labels, LVN_I64, LVN_SHAPE(BATCH))};
    lvni_nn_step step;
    lvni_nn_step_begin(&step, BATCH);
    step.host = &batch;
    lvni_tensor_ctx_get()->at =
        (lvni_tensor_position){.seed = 9, .step = 4, .micro_batch = 1, .training = true};
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const double loss = lvn_item(model->root->cls->training_step(model->root, &batch, &step.now));
    assert_int_equal(lvn_scope_close(), LVN_OK);
    const lvn_mix_attr d = lvni_classify_mix_draw_one(&m, 9, 4, 1, S, S);
    assert_true(d.lambda > 0.02 && d.lambda < 0.98); /* else the test would not see much */
    lvni_classify_mix_partners(9, 4, 1, BATCH, partner);
    for (int i = 0; i < BATCH; i++) {
        other[i] = labels[partner[i]];
    }
    mix_images(&d, partner, images, BATCH, S, S, 3, mixed);
    const float *w = model->parameters[0].tensor->data, *bias = model->parameters[1].tensor->data;
    assert_true(fabs(loss - soft_loss(w, bias, mixed, labels, other, d.lambda)) < 1e-5);
    assert_int_equal(step.n_metrics, 2);
    assert_string_equal(step.metric[0].name, "loss");
    assert_string_equal(step.metric[1].name, "acc");
    lvn_release(batch.image);
    lvn_release(batch.label);
    lvni_nn_model_destroy(model);
}

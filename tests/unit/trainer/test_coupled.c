/* Training with coupled micro-batches: a contrastive loss over the group is that of one large
 * micro-batch, has the same bits on any number of lanes, with short steps, micro-batches without
 * samples, clipping, averages and in bf16; failures are reported as they happened. */
#include "contrast_support.h"

#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

/* ---- a network with batch norm ---- */

/* A convolution, batch norm with a residual and relu, a linear layer: nothing random. */
typedef struct norms {
    lvn_module base;
    lvn_module *conv, *norm, *head;
} norms;

static lvn_status norms_build(lvn_module *module, lvn_builder *b)
{
    norms *m = (norms *)module;
    m->conv = lvn_nn_conv2d(b, "conv", 3, 4, 3, .padding = 1);
    m->norm = lvn_nn_batch_norm(b, "norm", 4, 0.1, .relu = true);
    m->head = lvn_nn_linear(b, "head", 4, CLASSES);
    return lvn_builder_status(b);
}

static lvn_tensor *norms_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const norms *m = (const norms *)module;
    lvn_tensor *x = lvn_forward(m->conv, batch->image);
    x = lvn_global_avg_pool2d(lvn_forward_residual(m->norm, x, lvn_mul_scalar(x, 0.5)));
    lvn_tensor *loss = lvn_cross_entropy(lvn_forward(m->head, x), batch->label);
    lvn_log(step, "loss", loss);
    return loss;
}

static const lvn_module_class norms_class = {
    .name = "norms", .size = sizeof(norms), .build = norms_build, .training_step = norms_step};

/* ---- tests ---- */

static uint64_t hash_of(const memory *data, const setting *s, int steps)
{
    bench b;
    bench_open(&b, data, s);
    bench_steps(&b, steps);
    const uint64_t hash = bench_hash(&b);
    bench_close(&b);
    return hash;
}

/* Steps of 22, 22 and 6 samples; weights of one micro-batch against those of several coupled
 * ones. */
TEST(a_group_is_like_one_micro_batch)
{
    memory data;
    memory_init(&data, 50, 0);
    const int micro_batches[] = {2, 3, 7, 8}; /* in the short step 7 and 8 have empty ones */
    bench one, several;
    for (int i = 0; i < 4; i++) {
        const setting alone = {
            .cls = &contrast_class, .batch_size = 22, .micro_batches = 1, .lanes = 1};
        const setting cut = {.cls = &contrast_class,
                             .batch_size = 22,
                             .micro_batches = micro_batches[i],
                             .lanes = micro_batches[i]};
        bench_open(&one, &data, &alone);
        bench_open(&several, &data, &cut);
        for (int step = 0; step < 6; step++) {
            lvni_trainer_step_result a, b;
            assert_int_equal(lvni_trainer_step(one.trainer, &a), LVN_OK);
            assert_int_equal(lvni_trainer_step(several.trainer, &b), LVN_OK);
            assert_true(fabs(lvni_trainer_metric_mean(&a.metrics, "loss") -
                             lvni_trainer_metric_mean(&b.metrics, "loss")) < 1e-5);
            assert_true(fabs(lvni_trainer_metric_mean(&b.metrics, "rows") - (double)b.samples) <
                        1e-4);
            assert_true(fabs(a.phase[0].grad_norm - b.phase[0].grad_norm) < 1e-5);
        }
        for (int64_t k = 0; k < one.model->n_weights; k++) {
            assert_true(fabsf(one.model->weights[k] - several.model->weights[k]) < 1e-5f);
        }
        bench_close(&one);
        bench_close(&several);
    }
}

TEST(bits_do_not_depend_on_lanes)
{
    memory data;
    memory_init(&data, 45, 0);
    data.unreadable[3] = data.unreadable[17] = true;
    const int groups[] = {1, 2, 3, 6};
    uint64_t of_group[4];
    for (int precision = 0; precision < 2; precision++) {
        if (precision == 1 && !lvni_cpu_has_bf16()) {
            print_message("this CPU has no bf16 products: only f32 is compared\n");
            break;
        }
        for (int g = 0; g < 4; g++) {
            for (int lanes = 1; lanes <= 6; lanes++) {
                const setting s = {.cls = &contrast_class,
                                   .batch_size = 20,
                                   .micro_batches = 6,
                                   .group = groups[g],
                                   .lanes = lanes,
                                   .workers = lanes % 3,
                                   .skip = true,
                                   .clip = 0.5,
                                   .ema = {.decay = 0.9},
                                   .precision = precision == 1 ? LVNI_PRECISION_BF16_MIXED
                                                               : LVNI_PRECISION_32,
                                   .optim = {.kind = LVNI_OPTIM_ADAMW,
                                             .lr = 1e-2,
                                             .weight_decay = 0.01,
                                             .beta1 = 0.9,
                                             .beta2 = 0.999,
                                             .eps = 1e-8}};
                /* 20, 20, 5 (an empty micro-batch), 20, 20 */
                const uint64_t hash = hash_of(&data, &s, 5);
                of_group[g] = lanes == 1 ? hash : of_group[g];
                if (hash != of_group[g]) {
                    fail_msg("group=%d: %d lanes give other bits than one", groups[g], lanes);
                }
            }
            for (int other = 0; other < g; other++) {
                assert_true(of_group[g] != of_group[other]); /* another group is another run */
            }
        }
    }
}

/* Weights and running statistics after some steps of a network with batch norm over the group,
 * against those of one large micro-batch. */
TEST(sync_batch_norm_is_that_of_one_micro_batch)
{
    memory data;
    memory_init(&data, 45, 8);
    const lvni_optim_options optim = {.lr = 0.05};
    bench one, several;
    for (int micro_batches = 2; micro_batches <= 5; micro_batches++) {
        const setting alone = {
            .cls = &norms_class, .batch_size = 20, .micro_batches = 1, .lanes = 1, .optim = optim};
        const setting cut = {.cls = &norms_class,
                             .batch_size = 20,
                             .micro_batches = micro_batches,
                             .lanes = micro_batches,
                             .optim = optim,
                             .sync = true};
        bench_open(&one, &data, &alone);
        bench_open(&several, &data, &cut);
        bench_steps(&one, 5);
        bench_steps(&several, 5);
        for (int64_t k = 0; k < one.model->n_values; k++) {
            if (!(fabsf(one.model->weights[k] - several.model->weights[k]) < 2e-5f)) {
                fail_msg("%d micro-batches, value %d: %.9g, one micro-batch has %.9g",
                         micro_batches, (int)k, (double)several.model->weights[k],
                         (double)one.model->weights[k]);
            }
        }
        bench_close(&one);
        bench_close(&several);
    }
    const setting group = {.cls = &norms_class,
                           .batch_size = 20,
                           .micro_batches = 5,
                           .group = 1,
                           .lanes = 2,
                           .optim = optim,
                           .sync = true};
    const setting plain = {
        .cls = &norms_class, .batch_size = 20, .micro_batches = 5, .lanes = 2, .optim = optim};
    /* groups of one: the plain batch norm, to the bit */
    assert_true(hash_of(&data, &group, 4) == hash_of(&data, &plain, 4));
}

TEST(sync_batch_norm_has_one_hash)
{
    memory data;
    memory_init(&data, 45, 8);
    data.unreadable[3] = data.unreadable[17] = true;
    for (int precision = 0; precision < 2; precision++) {
        if (precision == 1 && !lvni_cpu_has_bf16()) {
            print_message("this CPU has no bf16 products: only f32 is compared\n");
            break;
        }
        for (int group = 2; group <= 6; group += 4) {
            uint64_t first = 0;
            for (int lanes = 1; lanes <= 6; lanes++) {
                const setting s = {.cls = lvni_nn_zoo_find("cnn"),
                                   .batch_size = 20,
                                   .micro_batches = 6,
                                   .group = group,
                                   .lanes = lanes,
                                   .skip = true,
                                   .clip = 0.5,
                                   .sync = true,
                                   .ema = {.decay = 0.9},
                                   .precision = precision == 1 ? LVNI_PRECISION_BF16_MIXED
                                                               : LVNI_PRECISION_32,
                                   .optim = {.kind = LVNI_OPTIM_ADAMW,
                                             .lr = 1e-2,
                                             .weight_decay = 0.01,
                                             .beta1 = 0.9,
                                             .beta2 = 0.999,
                                             .eps = 1e-8}};
                const uint64_t hash = hash_of(&data, &s, 4);
                first = lanes == 1 ? hash : first;
                if (hash != first) {
                    fail_msg("group=%d: %d lanes give other bits than one", group, lanes);
                }
            }
        }
    }
}

/* All samples of some micro-batches, and of a whole step, are unreadable. */
TEST(micro_batches_without_samples_stay_away)
{
    memory data;
    memory_init(&data, 24, 0);
    const setting s = {.cls = &contrast_class,
                       .batch_size = 8,
                       .micro_batches = 8,
                       .group = 4,
                       .lanes = 2,
                       .skip = true};
    bench b;
    for (int i = 0; i < 24; i++) {
        data.unreadable[i] = i % 3 != 0;
    }
    bench_open(&b, &data, &s);
    bench_steps(&b, 3);
    assert_int_equal(b.trainer->at.samples_seen, 8);
    bench_close(&b);
    memset(data.unreadable, true, sizeof data.unreadable);
    bench_open(&b, &data, &s);
    bench_steps(&b, 3);
    assert_int_equal(b.trainer->engine->optim->steps[0], 0);
    bench_close(&b);
}

static void assert_text_has(const char *text)
{
    const lvn_error *e = lvn_last_error();
    bool found = strstr(e->message, text) != NULL;
    for (int i = 0; i < e->n_frames; i++) {
        found = found || strstr(e->frames[i], text) != NULL;
    }
    if (!found) {
        fail_msg("the error should contain \"%s\": %s", text, e->message);
    }
}

/* Of four coupled micro-batches one has a value that is not finite; the next step, without it, goes
 * on. */
TEST(a_failing_micro_batch_is_named)
{
    memory data;
    memory_init(&data, 16, 0);
    const setting s = {.cls = &contrast_class, .batch_size = 16, .micro_batches = 4, .lanes = 4};
    bench b;
    lvni_trainer_step_result r;
    bench_open(&b, &data, &s);
    for (int i = 0; i < 16; i++) {
        data.nan[i] = true; /* all: whichever is the first, the error is its own */
    }
    assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_ERR_NON_FINITE);
    assert_text_has("step 0, micro-batch ");
    bench_close(&b);
    bench_open(&b, &data,
               &(setting){.cls = &silent_class, .batch_size = 16, .micro_batches = 4, .lanes = 4});
    assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_ERR_INVALID);
    assert_text_has("lvn_builder_couple");
    bench_close(&b);
}

/* Evaluation looks at a chunk alone: the result does not depend on how many run at once. */
TEST(a_chunk_is_alone)
{
    memory data;
    memory_init(&data, 50, 0);
    double loss[2];
    for (int i = 0; i < 2; i++) {
        const setting s = {.cls = &contrast_class,
                           .batch_size = 20,
                           .micro_batches = 4,
                           .lanes = i == 0 ? 1 : 4,
                           .group = i == 0 ? 1 : 4};
        bench b;
        bench_open(&b, &data, &s);
        lvni_trainer *t = b.trainer;
        const lvni_data_loader_options o = {.dataset = &data.base, .plan = &t->o.plan};
        lvni_nn_step sum;
        assert_int_equal(lvni_data_loader_create(&o, &t->val_loader), LVN_OK);
        assert_int_equal(
            lvni_trainer_evaluate(b.model, t->val_loader, t->engine->lanes, NULL, &sum), LVN_OK);
        loss[i] = lvni_trainer_metric_mean(&sum, "loss");
        assert_true(lvni_trainer_metric_mean(&sum, "rows") < 7.001);
        bench_close(&b);
    }
    assert_true(loss[0] == loss[1]);
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}

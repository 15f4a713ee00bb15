/* The losses of rcGAN's step worked out by hand: with a generator whose result is its last bias,
 * whatever the noise is, and a critic whose score is its own. (All terms and gradients of whole
 * networks are compared with PyTorch in tests/golden.) */
#include "core/alloc.h"
#include "kernels/kernels.h"
#include "recipes/gan/gan.h"
#include "trainer/engine.h"
#include "trainer/micro_batch.h"
#include "trainer/phases.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIDE = 16, CHANNELS = 2, CRITIC = 0, GENERATOR = 1 };

typedef struct problem {
    lvni_gan_settings settings;
    lvni_nn_model *model;
    lvni_nn_set *set;
    lvni_nn_step step; /* of the last micro-batch */
} problem;

static problem *make(bool adv_mean, double gp_weight)
{
    problem *p = LVNI_NEW(LVNI_TAG_MODEL, problem);
    lvni_optim_parameter *parameters;
    assert_non_null(p);
    p->settings = (lvni_gan_settings){.sizes = {.in_chans = CHANNELS,
                                                .out_chans = CHANNELS,
                                                .im_size = SIDE,
                                                .gen_channels = 2,
                                                .gen_levels = 2,
                                                .disc_channels = 2,
                                                .disc_stages = 2},
                                      .n_train = 2,
                                      .n_valid = 2,
                                      .gp_weight = gp_weight,
                                      .drift_weight = 0.5,
                                      .adv = {{0, 0.25}},
                                      .n_adv = 1,
                                      .adv_mean = adv_mean,
                                      .std_mult_init = 1.0};
    assert_int_equal(lvni_nn_model_build(&lvni_gan_class, &p->settings, 7, &p->model), LVN_OK);
    assert_int_equal(lvni_nn_set_create(p->model, &p->set), LVN_OK);
    assert_int_equal(lvni_trainer_parameters(p->model, &(lvni_optim_rules){.lr = 1.0}, &parameters),
                     LVN_OK);
    lvni_trainer_phases_assign(p->model, parameters);
    lvni_core_free(parameters);
    return p;
}

static void unmake(problem *p)
{
    lvni_nn_set_destroy(p->set);
    lvni_nn_model_destroy(p->model);
    lvni_core_free(p);
}

static lvni_nn_parameter *find(const problem *p, const char *name)
{
    for (int i = 0; i < p->model->n_parameters; i++) {
        if (strcmp(p->model->parameters[i].name, name) == 0) {
            return &p->model->parameters[i];
        }
    }
    fail_msg("no parameter %s", name);
    return NULL;
}

static void set_all(const problem *p, const char *name, float value)
{
    const lvni_nn_parameter *q = find(p, name);
    for (int64_t i = 0; i < q->numel; i++) {
        LVNI_F32(q->tensor)[i] = value;
    }
    lvni_nn_model_touch(p->model);
}

/* Samples are `value`, whatever measurement and noise are. */
static void make_constant(const problem *p, float value)
{
    set_all(p, "generator.head2.weight", 0.0f);
    set_all(p, "generator.head2.bias", value);
}

/* So is the critic's score. */
static void make_indifferent(const problem *p, float value)
{
    set_all(p, "critic.output.weight", 0.0f);
    set_all(p, "critic.output.bias", value);
}

/* Item i of a field: numbers of its own, or all of them `value`. */
static lvn_tensor *field(const int *item, int n, uint64_t purpose, const float *value)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F32, LVN_SHAPE(n, SIDE, SIDE, CHANNELS));
    assert_non_null(t);
    const int64_t each = lvn_numel(t) / n;
    for (int i = 0; i < n; i++) {
        const lvni_core_rng rng = {.key = lvni_core_rng_make_key(9, purpose),
                                   .b = (uint32_t)item[i]};
        for (int64_t k = 0; k < each; k++) {
            LVNI_F32(t)
            [i * each + k] =
                value != NULL ? value[i] : (float)lvni_core_rng_normal(&rng, (uint64_t)k);
        }
    }
    return t;
}

/* The phase of a step over these items; the truth is `truth` of each, or random. */
static void run(problem *p, int phase, const int *item, int n, const float *truth)
{
    lvni_trainer_micro_batch_job *job = LVNI_NEW(LVNI_TAG_MODEL, lvni_trainer_micro_batch_job);
    lvni_data_loader_batch b = {.batch = {.size = n, .n_fields = 2}};
    b.batch.field[LVNI_GAN_Y] = field(item, n, 1, NULL);
    b.batch.field[LVNI_GAN_X] = field(item, n, 2, truth);
    const lvni_trainer_pass pass = {.model = p->model,
                                    .seed = 11,
                                    .phase = phase,
                                    .loss_factor = 1.0,
                                    .number = {p->settings.adv[0].value}};
    assert_non_null(job);
    job->batch = &b;
    job->set = p->set;
    lvni_trainer_phases_begin(p->model, phase, 0);
    if (lvni_trainer_run_micro_batch(&pass, job) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    p->step = job->step;
    lvn_release(b.batch.field[LVNI_GAN_Y]);
    lvn_release(b.batch.field[LVNI_GAN_X]);
    lvni_core_free(job);
}

static double reported(const problem *p, const char *name)
{
    return lvn_step_mean(&p->step.now, name);
}

static void assert_near(double have, double want, double tolerance)
{
    if (!(fabs(have - want) <= tolerance)) {
        fail_msg("%.9g, not %.9g", have, want);
    }
}

static const int items[] = {0, 1, 2, 3}, doubled[] = {0, 0, 1, 1};

TEST(weights_of_the_reward)
{
    static const struct {
        int samples;
        double weight;
    } row[] = {{2, 0.325735}, {3, 0.230329}, {4, 0.178412}, {8, 0.094032}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_near(lvni_gan_std_weight(row[i].samples), row[i].weight, 1e-6);
    }
}

/* Samples 0.5 of truths 2 and -1: |0.5 - 2| and |0.5 + 1| have the mean 1.5. Each of two scores is
 * 3: their sum over the batch counts, -0.25 * 6. Samples are all the same. */
TEST(generator_by_hand)
{
    for (int mean = 0; mean < 2; mean++) {
        problem *p = make(mean == 1, 10.0);
        make_constant(p, 0.5f);
        make_indifferent(p, 3.0f);
        run(p, GENERATOR, items, 2, (const float[]){2.0f, -1.0f});
        const double adv = mean == 1 ? -0.25 * 3.0 : -0.25 * 6.0;
        assert_near(reported(p, "g_adv"), adv, 1e-6);
        assert_near(reported(p, "g_l1"), 1.5, 1e-6);
        assert_near(reported(p, "g_std"), 0.0, 0.0);
        assert_near(reported(p, "g_loss"), 1.5 + adv, 1e-6);
        assert_near(reported(p, "w_adv"), 0.25, 0.0);
        assert_near(reported(p, "std_mult"), 1.0, 0.0);
        unmake(p);
    }
}

/* A critic without a slope: the penalty is (0 - 1)^2, and its gradient 0 and not NaN. */
TEST(critic_by_hand)
{
    problem *p = make(false, 10.0);
    make_constant(p, 0.5f);
    make_indifferent(p, 3.0f);
    run(p, CRITIC, items, 2, NULL);
    assert_near(reported(p, "d_wass"), 0.0, 0.0);
    assert_near(reported(p, "d_gp"), 1.0, 0.0);
    assert_near(reported(p, "gp_norm_mean"), 0.0, 0.0);
    assert_near(reported(p, "d_drift"), 9.0, 1e-6);
    assert_near(reported(p, "d_loss"), 10.0 + 0.5 * 9.0, 1e-6);
    /* of the drift alone: 2 items times 0.5 * 2 * 3 */
    const lvni_nn_parameter *bias = find(p, "critic.output.bias");
    const int64_t at = p->model->offset[bias - p->model->parameters];
    assert_near((double)p->set->data[at], 2.0 * 3.0, 1e-5);
    for (int64_t i = p->model->trained_begin; i < p->model->trained_end; i++) {
        assert_true(isfinite(p->set->data[i]));
    }
    unmake(p);
}

/* Each item twice: the sum over the micro-batch doubles, means stay. */
TEST(doubled_items)
{
    for (int mean = 0; mean < 2; mean++) {
        problem *p = make(mean == 1, 10.0);
        make_constant(p, 0.5f);
        run(p, GENERATOR, items, 2, NULL);
        const double adv = reported(p, "g_adv"), l1 = reported(p, "g_l1");
        run(p, GENERATOR, doubled, 4, NULL);
        assert_true(fabs(adv) > 1e-4);
        assert_near(reported(p, "g_adv") / adv, mean == 1 ? 1.0 : 2.0, 1e-5);
        assert_near(reported(p, "g_l1") / l1, 1.0, 1e-5);
        unmake(p);
    }
}

/* The gradient of one parameter, or of all in training, is the sum of two halves' (each weighted by
 * its items). */
static void assert_adds_up(problem *p, int phase, const float *truth, const char *name)
{
    const int64_t n = p->model->n_weights;
    float *sum = lvni_core_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *sum);
    assert_non_null(sum);
    for (int half = 0; half < 2; half++) {
        run(p, phase, items + 2 * half, 2, truth);
        for (int64_t i = p->model->trained_begin; i < p->model->trained_end; i++) {
            sum[i] += p->set->data[i];
        }
    }
    run(p, phase, items, 4, truth);
    const int one = name == NULL ? -1 : (int)(find(p, name) - p->model->parameters);
    const int64_t begin = one < 0 ? p->model->trained_begin : p->model->offset[one],
                  end = one < 0 ? p->model->trained_end : p->model->offset[one + 1];
    double largest = 0.0, apart = 0.0;
    for (int64_t i = begin; i < end; i++) {
        largest = fmax(largest, fabs((double)p->set->data[i]));
        apart = fmax(apart, fabs((double)p->set->data[i] - (double)sum[i]));
    }
    lvni_core_free(sum);
    assert_true(largest > 0.0 && apart <= 1e-5 * largest);
}

/* The critic has nothing that couples items; of the generator, whose norms do, the last bias. The
 * penalty counts where truths are what samples are, so that its random point is the same. */
TEST(cut_into_micro_batches)
{
    static const float same[] = {0.5f, 0.5f, 0.5f, 0.5f};
    problem *p = make(true, 0.0);
    make_constant(p, 0.5f);
    assert_adds_up(p, CRITIC, NULL, NULL);
    assert_adds_up(p, GENERATOR, NULL, "generator.head2.bias");
    unmake(p);
    p = make(true, 10.0);
    make_constant(p, 0.5f);
    assert_adds_up(p, CRITIC, same, NULL);
    unmake(p);
}

/* ---- MRI: the measured columns of k-space ---- */

/* (N, H, W, 2 C) -> (N, C, H, W, 2), transformed. */
static lvn_tensor *k_space(lvn_tensor *x)
{
    const int64_t n = lvn_size(x, 0), coils = CHANNELS / 2;
    lvn_tensor *z = lvn_permute(lvn_reshape(x, LVN_SHAPE(n, SIDE, SIDE, 2, coils)),
                                (const int[]){0, 4, 1, 2, 3}, 5);
    return lvn_fft2(z, .norm = LVN_FFT_ORTHO, .centered = true);
}

/* Samples have the columns that were measured, and their own ones elsewhere. */
TEST(samples_keep_what_was_measured)
{
    problem *p = make(false, 10.0);
    p->settings.experience = LVNI_INVERSE_MRI;
    lvn_batch batch = {.size = 2, .n_fields = 6};
    batch.field[LVNI_GAN_Y] = field(items, 2, 1, NULL);
    batch.field[LVNI_GAN_MASK] = lvn_tensor_create(LVN_F32, LVN_SHAPE(2, SIDE));
    for (int i = 0; i < 2 * SIDE; i++) {
        LVNI_F32(batch.field[LVNI_GAN_MASK])[i] = i % 3 == 0 ? 1.0f : 0.0f;
    }
    lvni_tensor_ctx_get()->at = (lvni_tensor_position){.seed = 5};
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *sample = lvni_gan_sample(p->model->root, &batch, "z");
    lvn_tensor *have = k_space(sample), *want = k_space(batch.field[LVNI_GAN_Y]);
    assert_non_null(have);
    assert_non_null(want);
    double others = 0.0;
    for (int64_t i = 0; i < lvn_numel(have); i++) {
        const int64_t image = i / (SIDE * SIDE * 2), column = i / 2 % SIDE;
        const double d = fabs((double)LVNI_F32(have)[i] - (double)LVNI_F32(want)[i]);
        if (LVNI_F32(batch.field[LVNI_GAN_MASK])[image * SIDE + column] > 0.5f) {
            assert_near(d, 0.0, 1e-5);
        } else {
            others += d;
        }
    }
    assert_true(others > 1.0);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(batch.field[LVNI_GAN_Y]);
    lvn_release(batch.field[LVNI_GAN_MASK]);
    unmake(p);
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}

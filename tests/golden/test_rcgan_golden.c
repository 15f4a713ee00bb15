/* test_rcgan_golden FILE: the networks of rcGAN and both phases of its training step with the
 * weights, images and noise of make_rcgan_golden.py: results, losses, gradients and running
 * statistics are those of PyTorch in double precision. */
#include "golden_support.h"
#include "support/test.h"

#include "core/alloc.h"
#include "kernels/kernels.h"
#include "recipes/gan/gan.h"
#include "trainer/engine.h"
#include "trainer/micro_batch.h"
#include "trainer/phases.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHANNELS = 2, SIDE = 50, BATCH = 2, CRITIC = 0, GENERATOR = 1 };
static const double NUMBERS = 1e-5, /* relative */
    LEAST = 1e-2;                   /* biases in front of norms have no gradient except rounding */

static lvni_ckpt_st_file *file;

/* ---- a model of both networks ---- */

typedef struct problem {
    lvni_gan_settings settings;
    lvni_nn_model *model;
    lvni_nn_set *set;
    uint64_t seed;
    char prefix[32]; /* of the case's names in the file */
    double worst;
} problem;

static void make(problem *p, const char *name, const lvni_gan_settings *settings)
{
    char key[48];
    lvni_optim_parameter *rules;
    *p = (problem){.settings = *settings};
    snprintf(p->prefix, sizeof p->prefix, "%s/", name);
    snprintf(key, sizeof key, "%s_seed", name);
    p->seed = (uint64_t)golden_number(file, key);
    assert_int_equal(lvni_nn_model_build_empty(&lvni_gan_class, &p->settings, &p->model), LVN_OK);
    golden_fill(p->model, p->seed, "act");
    assert_int_equal(lvni_nn_set_create(p->model, &p->set), LVN_OK);
    assert_int_equal(lvni_trainer_parameters(p->model, &(lvni_optim_rules){.lr = 1.0}, &rules),
                     LVN_OK);
    lvni_trainer_phases_assign(p->model, rules);
    lvni_core_free(rules);
}

static void unmake(problem *p)
{
    lvni_nn_set_destroy(p->set);
    lvni_nn_model_destroy(p->model);
}

static const lvn_module *part(const problem *p, const char *path)
{
    for (int i = 0; i < p->model->n_modules; i++) {
        if (strcmp(p->model->modules[i]->path, path) == 0) {
            return p->model->modules[i];
        }
    }
    fail_msg("no module %s", path);
    return NULL;
}

/* How many parameters have names that begin like this, and, with `written`, a gradient. */
static int count(const problem *p, const char *start, bool written)
{
    int n = 0;
    for (int i = 0; i < p->model->n_parameters; i++) {
        n += strncmp(p->model->parameters[i].name, start, strlen(start)) == 0 &&
             (!written || p->set->gradients.written[i]);
    }
    return n;
}

static void compare_number(problem *p, const char *name, double have)
{
    int64_t n;
    const double want = *golden_values(file, p->prefix, name, &n),
                 d = fabs(have - want) / fmax(fabs(want), 1e-3);
    if (!(d <= NUMBERS)) {
        fail_msg("%s%s is %.9g, PyTorch has %.9g", p->prefix, name, have, want);
    }
}

static void compare_gradients(problem *p, const char *network)
{
    char prefix[48];
    snprintf(prefix, sizeof prefix, "%sgrad/", p->prefix);
    assert_int_equal(golden_compare_gradients(file, prefix, p->set, LEAST, &p->worst),
                     count(p, network, false));
    print_message("  %s: largest relative difference of gradients %.1e\n", p->prefix, p->worst);
}

/* Two of each norm of the generator. */
static void compare_statistics(problem *p)
{
    char prefix[48];
    snprintf(prefix, sizeof prefix, "%sbuffer/", p->prefix);
    assert_int_equal(golden_compare_buffers(file, prefix, p->model, NUMBERS),
                     p->model->n_buffers - 5); /* the control of std_mult */
}

/* ---- the networks alone ---- */

/* The gradients of the mean of the result times fixed numbers. */
static void run_network(problem *p, const char *network, bool training)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    lvn_tensor *image =
        golden_tensor(p->seed, "image", 4, (const int64_t[]){BATCH, SIDE, SIDE, 2 * CHANNELS});
    lvni_trainer_phases_begin(p->model, strcmp(network, "critic") == 0 ? CRITIC : GENERATOR, 0);
    ctx->at = (lvni_tensor_position){.training = training, .phase = GENERATOR};
    ctx->gradients = &p->set->gradients;
    ctx->records = p->set;
    lvni_nn_set_begin(p->set, BATCH);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *result = lvn_forward(part(p, network), image);
    if (result == NULL) {
        fail_msg("%s", lvn_last_error()->message);
        return;
    }
    int64_t n;
    golden_compare_row(golden_values(file, p->prefix, "result", &n), LVNI_F32(result),
                       lvn_numel(result), "result", 0.0, &p->worst);
    lvn_tensor *cotangent = golden_tensor(p->seed, "cotangent", result->ndim, result->shape);
    assert_int_equal(lvn_backward(lvn_mean(lvn_mul(result, cotangent))), LVN_OK);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvni_nn_set_finish(p->set);
    ctx->gradients = NULL;
    ctx->records = NULL;
    ctx->at = (lvni_tensor_position){0};
    lvn_release(cotangent);
    lvn_release(image);
    compare_gradients(p, network);
}

static lvni_gan_settings networks(bool nearest)
{
    static const lvn_stair none = {0, 1.0};
    return (lvni_gan_settings){.sizes = {.in_chans = CHANNELS,
                                         .out_chans = CHANNELS,
                                         .im_size = SIDE,
                                         .gen_channels = 4,
                                         .gen_levels = 3,
                                         .disc_channels = 4,
                                         .disc_stages = 3,
                                         .alt_upsample = nearest},
                               .n_train = 2,
                               .n_valid = 2,
                               .adv = {none},
                               .n_adv = 1};
}

TEST(generator_of_odd_sides)
{
    static const struct {
        const char *name;
        bool training, nearest;
    } row[] = {{"generator/train", true, false},
               {"generator/eval", false, false},
               {"generator/nearest", true, true}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        problem p;
        const lvni_gan_settings s = networks(row[i].nearest);
        make(&p, row[i].name, &s);
        run_network(&p, "generator", row[i].training);
        if (row[i].training) {
            lvni_nn_model_apply_records(p.model, p.set, NULL, NULL, GENERATOR);
            compare_statistics(&p);
        }
        unmake(&p);
    }
}

TEST(critic_of_odd_sides)
{
    problem p;
    const lvni_gan_settings s = networks(false);
    make(&p, "critic/train", &s);
    run_network(&p, "critic", true);
    unmake(&p);
}

/* ---- the phases of a step ---- */

static double setting(const char *key)
{
    return strtod(lvni_ckpt_st_meta_get(file, key), NULL);
}

static void make_step(problem *p, const char *name)
{
    const lvni_gan_settings s = {.sizes = {.in_chans = CHANNELS,
                                           .out_chans = CHANNELS,
                                           .im_size = golden_number(file, "side"),
                                           .gen_channels = 4,
                                           .gen_levels = 2,
                                           .disc_channels = 4,
                                           .disc_stages = 3},
                                 .n_train = golden_number(file, "samples"),
                                 .n_valid = 2,
                                 .gp_weight = setting("gp"),
                                 .drift_weight = setting("drift"),
                                 .adv = {{0, setting("w_adv")}},
                                 .n_adv = 1};
    make(p, name, &s);
    const float std_mult = (float)setting("std_mult");
    for (int i = 0; i < p->model->n_buffers; i++) {
        if (strcmp(p->model->buffers[i]->name, "std_mult") == 0) {
            assert_int_equal(lvn_buffer_write(p->model->buffers[i], &std_mult, 1), LVN_OK);
        }
    }
}

/* Forward and backward as the trainer runs them. */
static void run_phase(problem *p, int phase, lvni_nn_step *reported)
{
    const int n = golden_number(file, "batch"), side = p->settings.sizes.im_size;
    const int64_t shape[] = {n, side, side, CHANNELS}, ones[] = {n, 1};
    static lvni_trainer_micro_batch_job job; /* too large for a stack */
    lvni_data_loader_batch b = {.batch = {.size = n, .n_fields = 4}};
    b.batch.field[LVNI_GAN_Y] = b.batch.image = golden_tensor(p->seed, "y", 4, shape);
    b.batch.field[LVNI_GAN_X] = b.batch.label = golden_tensor(p->seed, "x", 4, shape);
    b.batch.field[LVNI_GAN_MEAN] = golden_tensor(p->seed, "mean", 2, ones);
    b.batch.field[LVNI_GAN_STD] = golden_tensor(p->seed, "std", 2, ones);
    const lvni_trainer_pass pass = {.model = p->model,
                                    .seed = p->seed,
                                    .phase = phase,
                                    .loss_factor = 1.0,
                                    .number = {p->settings.adv[0].value}};
    job = (lvni_trainer_micro_batch_job){.batch = &b, .set = p->set};
    lvni_trainer_phases_begin(p->model, phase, 0);
    if (lvni_trainer_run_micro_batch(&pass, &job) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    *reported = job.step;
    /* a gradient comes with the micro-batch's weight */
    assert_true(job.step.weight == (double)n);
    for (int64_t i = 0; i < p->model->n_weights; i++) {
        p->set->data[i] = i >= p->model->trained_begin && i < p->model->trained_end
                              ? p->set->data[i] / (float)n
                              : 0.0f;
    }
    for (int f = 0; f < b.batch.n_fields; f++) {
        lvn_release(b.batch.field[f]);
    }
}

static void compare_numbers(problem *p, const lvni_nn_step *reported, const char *const *names)
{
    for (; *names != NULL; names++) {
        compare_number(p, *names, lvn_step_mean(&reported->now, *names));
    }
}

TEST(critic_phase)
{
    static const char *const names[] = {"d_wass",       "d_gp",   "d_drift",
                                        "gp_norm_mean", "d_loss", NULL};
    static lvni_nn_step reported;
    problem p;
    make_step(&p, "step/critic");
    const size_t bytes = (size_t)p.model->n_values * sizeof(float);
    float *before = lvni_core_alloc(LVNI_TAG_MODEL, bytes);
    assert_non_null(before);
    memcpy(before, p.model->weights, bytes);
    run_phase(&p, CRITIC, &reported);
    compare_numbers(&p, &reported, names);
    compare_gradients(&p, "critic.");
    assert_int_equal(count(&p, "critic.", true), count(&p, "critic.", false));
    assert_int_equal(count(&p, "generator.", true), 0);
    lvni_nn_model_apply_records(p.model, p.set, NULL, NULL, CRITIC);
    assert_memory_equal(before, p.model->weights, bytes); /* running statistics, too */
    lvni_core_free(before);
    unmake(&p);
}

TEST(generator_phase)
{
    static const char *const names[] = {"g_adv", "g_l1", "g_std", "g_loss", NULL};
    static lvni_nn_step reported;
    problem p;
    make_step(&p, "step/generator");
    run_phase(&p, GENERATOR, &reported);
    compare_numbers(&p, &reported, names);
    compare_gradients(&p, "generator.");
    assert_int_equal(count(&p, "generator.", true), count(&p, "generator.", false));
    assert_int_equal(count(&p, "critic.", true), 0);
    lvni_nn_model_apply_records(p.model, p.set, NULL, NULL, GENERATOR);
    compare_statistics(&p);
    unmake(&p);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_rcgan_golden FILE\n");
        return 2;
    }
    if (lvni_cpu_start() != LVN_OK || lvni_ckpt_st_open(argv[1], LVNI_ST_VERIFY, &file) != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
        return 1;
    }
    const int failed = test_main(1, argv);
    lvni_ckpt_st_close(file);
    return failed;
}

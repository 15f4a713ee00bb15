/* The networks of rcGAN: counts of parameters, sides, widths, results' shapes, what has no
 * gradient, and what is refused. Values are compared with PyTorch in tests/golden. */
#include "core/alloc.h"
#include "kernels/kernels.h"
#include "nn/builder_impl.h"
#include "nn/model.h"
#include "nn/rcgan.h"
#include "tensor/ctx.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct pair {
    lvn_module base;
    lvn_module *generator, *critic;
} pair;

static lvn_status pair_build(lvn_module *module, lvn_builder *b)
{
    pair *m = (pair *)module;
    const lvni_nn_rcgan_sizes *sizes = lvn_builder_arguments(b);
    m->generator = lvni_nn_rcgan_generator(b, "generator", sizes);
    m->critic = lvni_nn_rcgan_critic(b, "critic", sizes);
    return lvn_builder_status(b);
}

static const lvn_module_class pair_class = {
    .name = "pair", .size = sizeof(pair), .build = pair_build};

static lvni_nn_model *make(const lvni_nn_rcgan_sizes *sizes)
{
    lvni_nn_model *m;
    if (lvni_nn_model_build_empty(&pair_class, sizes, &m) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    return m;
}

/* The modules and their parameters without memory for weights, of which the largest have 800 MB. */
static lvni_nn_model *make_bare(const lvni_nn_rcgan_sizes *sizes)
{
    lvni_nn_model *m = LVNI_NEW(LVNI_TAG_MODEL, lvni_nn_model);
    assert_non_null(m);
    lvn_builder b = {.model = m, .path = "", .arguments = sizes};
    m->root = lvn_builder_child(&b, &pair_class, "");
    assert_int_equal(lvn_builder_status(&b), LVN_OK);
    return m;
}

static int64_t count(const lvni_nn_model *m, const char *network)
{
    int64_t n = 0;
    for (int i = 0; i < m->n_parameters; i++) {
        const bool own = strncmp(m->parameters[i].name, network, strlen(network)) == 0;
        n += own ? m->parameters[i].numel : 0;
    }
    return n;
}

/* Of the configurations of the original, and of a small one. */
TEST(counts_of_parameters)
{
    static const struct {
        int in, out, size, gen_channels, disc_channels, disc_stages;
        int64_t generator, used, critic;
    } row[] = {{2, 2, 300, 128, 32, 6, 195831786, 86740703, 6296673},
               {4, 1, 300, 128, 32, 6, 195834025, 86742942, 6296961},
               {2, 2, 384, 128, 32, 6, 195831786, 86740703, 6306913},
               {16, 16, 384, 128, 32, 6, 195848824, 86757741, 6314977},
               {3, 2, 256, 128, 32, 6, 195832938, 86741855, 6296961},
               {3, 2, 360, 128, 32, 6, 195832938, 86741855, 6301569},
               {2, 1, 360, 128, 32, 6, 195831721, 86740638, 6300993},
               {2, 2, 1024, 128, 32, 8, 195831786, 86740703, 11016289},
               {2, 2, 64, 16, 8, 4, 3069090, 1360247, 100505}};
    for (size_t i = 0; i < 2 * sizeof row / sizeof *row; i++) {
        const bool unused = i % 2 != 0;
        const lvni_nn_rcgan_sizes sizes = {.in_chans = row[i / 2].in,
                                           .out_chans = row[i / 2].out,
                                           .im_size = row[i / 2].size,
                                           .gen_channels = row[i / 2].gen_channels,
                                           .gen_levels = 4,
                                           .disc_channels = row[i / 2].disc_channels,
                                           .disc_stages = row[i / 2].disc_stages,
                                           .unused = unused};
        lvni_nn_model *m = make_bare(&sizes);
        assert_int_equal(count(m, "generator."), unused ? row[i / 2].generator : row[i / 2].used);
        assert_int_equal(count(m, "critic."), row[i / 2].critic);
        lvni_nn_model_destroy(m);
        assert_int_equal(lvni_nn_rcgan_unused(&sizes), row[i / 2].generator - row[i / 2].used);
    }
}

TEST(sides_of_levels_and_stages)
{
    static const int size[] = {300, 384, 360, 256},
                     levels[4][5] = {{300, 150, 75, 38, 19},
                                     {384, 192, 96, 48, 24},
                                     {360, 180, 90, 45, 23},
                                     {256, 128, 64, 32, 16}},
                     stages[4][7] = {{300, 150, 75, 37, 18, 9, 4},
                                     {384, 192, 96, 48, 24, 12, 6},
                                     {360, 180, 90, 45, 22, 11, 5},
                                     {256, 128, 64, 32, 16, 8, 4}};
    for (int k = 0; k < 4; k++) {
        const lvni_nn_rcgan_sizes sizes = {.im_size = size[k], .gen_levels = 4, .disc_stages = 6};
        for (int i = 0; i < 5; i++) {
            assert_int_equal(lvni_nn_rcgan_level_side(&sizes, i), levels[k][i]);
        }
        for (int i = 0; i < 7; i++) {
            assert_int_equal(lvni_nn_rcgan_stage_side(&sizes, i), stages[k][i]);
        }
    }
}

/* Levels and stages of odd sides, too, both ways up. */
TEST(results_have_the_images_size)
{
    static const int size[] = {300, 360, 256, 384, 197};
    enum { BATCH = 2, IN = 3, OUT = 2 };
    for (int i = 0; i < 10; i++) {
        const int64_t n = size[i / 2];
        lvni_nn_model *m = make(&(lvni_nn_rcgan_sizes){.in_chans = IN,
                                                       .out_chans = OUT,
                                                       .im_size = size[i / 2],
                                                       .gen_channels = 2,
                                                       .gen_levels = 4,
                                                       .disc_channels = 1,
                                                       .disc_stages = 6,
                                                       .alt_upsample = i % 2 != 0});
        const pair *root = (const pair *)m->root;
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *x = lvn_zeros(LVN_F32, LVN_SHAPE(BATCH, n, n, IN + LVNI_RCGAN_NOISE)),
                   *y = lvn_zeros(LVN_F32, LVN_SHAPE(BATCH, n, n, IN)),
                   *sample = lvn_forward(root->generator, x);
        assert_int_equal(lvn_ndim(sample), 4);
        assert_memory_equal(sample->shape, ((const int64_t[]){BATCH, n, n, OUT}),
                            4 * sizeof(int64_t));
        lvn_tensor *both[] = {sample, y},
                   *score = lvn_forward(root->critic, lvn_concat(both, 2, 3));
        assert_int_equal(lvn_ndim(score), 2);
        assert_memory_equal(score->shape, ((const int64_t[]){BATCH, 1}), 2 * sizeof(int64_t));
        assert_int_equal(lvn_scope_close(), LVN_OK);
        lvni_nn_model_destroy(m);
    }
}

static const lvni_nn_parameter *find(const lvni_nn_model *m, const char *name)
{
    for (int i = 0; i < m->n_parameters; i++) {
        if (strcmp(m->parameters[i].name, name) == 0) {
            return &m->parameters[i];
        }
    }
    fail_msg("no parameter %s", name);
    return NULL;
}

static const lvni_nn_rcgan_sizes small = {.in_chans = 2,
                                          .out_chans = 2,
                                          .im_size = 64,
                                          .gen_channels = 4,
                                          .gen_levels = 6,
                                          .disc_channels = 2,
                                          .disc_stages = 5};

/* Doubled three and four times, then no more; and how weights begin. */
TEST(widths_and_first_weights)
{
    lvni_nn_model *m = make(&small);
    static const int down[] = {4, 8, 16, 32, 32, 32}, up[] = {4, 4, 8, 16, 32, 32},
                     stage[] = {4, 8, 16, 32, 32};
    char name[64];
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "generator.down%d.half.weight", i);
        assert_int_equal(find(m, name)->tensor->shape[0], down[i]);
        snprintf(name, sizeof name, "generator.up%d.merge.conv.weight", i);
        assert_int_equal(find(m, name)->tensor->shape[0], up[i]);
        snprintf(name, sizeof name, "critic.stage%d.weight", i + 1);
        if (i < 5) {
            assert_int_equal(find(m, name)->tensor->shape[0], stage[i]);
        }
    }
    static const struct {
        const char *name;
        double fan_in;
    } row[] = {
        {"generator.down1.unit.conv.weight", 4 * 9}, {"generator.down1.unit.conv.bias", 4 * 9},
        {"generator.up1.up.conv.weight", 8 * 9},     {"critic.stage2.bias", 4 * 9},
        {"critic.output.weight", 2 * 2 * 32},        {"critic.output.bias", 2 * 2 * 32}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const lvni_nn_parameter *p = find(m, row[i].name);
        assert_int_equal(p->init, LVN_INIT_UNIFORM);
        assert_true(fabs(p->bound - 1.0 / sqrt(row[i].fan_in)) < 1e-12);
    }
    const lvni_nn_parameter *slope = find(m, "generator.middle.act.weight");
    assert_true(slope->numel == 1 && slope->init == LVN_INIT_CONSTANT && slope->bound == 0.25);
    lvni_nn_model_destroy(m);
}

static double norm_of_gradient(const lvni_nn_set *set, const lvni_nn_parameter *p)
{
    const float *g = set->data + set->model->offset[p - set->model->parameters];
    double squares = 0.0;
    for (int64_t i = 0; i < p->numel; i++) {
        squares += (double)g[i] * (double)g[i];
    }
    return sqrt(squares);
}

/* Instance norm takes the biases in front of it away; with the penalty's gradient, too. */
TEST(biases_in_front_of_a_norm_have_no_gradient)
{
    lvni_nn_model *m;
    lvni_nn_set *set;
    assert_int_equal(lvni_nn_model_build(&pair_class, &small, 3, &m), LVN_OK);
    assert_int_equal(lvni_nn_set_create(m, &set), LVN_OK);
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    ctx->at = (lvni_tensor_position){.seed = 5, .training = true};
    ctx->gradients = &set->gradients;
    lvni_nn_set_begin(set, 2.0);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const int64_t side = small.im_size;
    lvn_tensor *u = lvn_require_grad(lvn_random_normal(NULL, "u", 2, side, side, 4)),
               *score = lvn_forward(((const pair *)m->root)->critic, u),
               *slope = lvn_grad(lvn_sum(score), u, .create_graph = true),
               *penalty = lvn_square(lvn_add_scalar(lvn_norm_axis(lvn_flatten(slope, 1), 1), -1.0)),
               *loss = lvn_add(lvn_mean(penalty), lvn_mean(lvn_square(score)));
    if (lvn_backward(loss) != LVN_OK || lvn_scope_close() != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    lvni_nn_set_finish(set);
    for (int i = 1; i <= small.disc_stages; i++) {
        char weight[32], bias[32];
        snprintf(weight, sizeof weight, "critic.stage%d.weight", i);
        snprintf(bias, sizeof bias, "critic.stage%d.bias", i);
        const double of_weight = norm_of_gradient(set, find(m, weight));
        assert_true(of_weight > 0.0);
        assert_true(norm_of_gradient(set, find(m, bias)) < 1e-4 * of_weight);
    }
    assert_true(norm_of_gradient(set, find(m, "critic.input.bias")) > 0.0);
    ctx->gradients = NULL;
    ctx->at = (lvni_tensor_position){0};
    lvni_nn_set_destroy(set);
    lvni_nn_model_destroy(m);
}

TEST(what_is_refused)
{
    lvni_nn_rcgan_sizes wrong[6];
    for (int i = 0; i < 6; i++) {
        wrong[i] = small;
    }
    wrong[0].in_chans = 0;
    wrong[1].gen_levels = LVNI_RCGAN_LEVELS + 1;
    wrong[2].gen_channels = 1;
    wrong[3].disc_stages = 0;
    wrong[4].disc_stages = 6; /* one pixel is left, which has no variance */
    wrong[5].im_size = 63;
    for (int i = 0; i < 6; i++) {
        lvni_nn_model *m;
        assert_int_equal(lvni_nn_model_build_empty(&pair_class, &wrong[i], &m), LVN_ERR_INVALID);
        assert_non_null(strstr(lvn_last_error()->message,
                               i < 4    ? "generator: "
                               : i == 4 ? "generator: an image of 64 pixels cannot be halved 6 "
                                          "times: at least 128 pixels"
                                        : "generator: an image of 63 pixels cannot be halved 5 "
                                          "times: at least 64 pixels"));
    }
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}

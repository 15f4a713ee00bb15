/* The networks of the zoo: names and shapes; loss and gradients of model=cnn (f32) against the same
 * network written with ops in f64, and those against differences. */
#include "core/alloc.h"
#include "kernels/kernels.h"
#include "nn/model.h"
#include "nn/step_metrics.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIZE = 8, CLASSES = 3, SAMPLES = 4, PARAMETERS = 11 };

static lvni_nn_model *make(const char *name, int size, int classes)
{
    lvni_nn_model *m;
    const lvni_nn_zoo_arguments arguments = {
        .image_size = size, .n_classes = classes, .dropout = 0.1};
    assert_non_null(lvni_nn_zoo_find(name));
    assert_int_equal(lvni_nn_model_build(lvni_nn_zoo_find(name), &arguments, 3, &m), LVN_OK);
    return m;
}

typedef struct expectation {
    const char *name, *shape;
} expectation;

static void assert_parameters(const lvni_nn_model *m, const expectation *want, int n)
{
    assert_int_equal(m->n_parameters, n);
    for (int i = 0; i < n; i++) {
        char shape[96];
        assert_string_equal(m->parameters[i].name, want[i].name);
        lvni_tensor_shape_string(m->parameters[i].tensor->ndim, m->parameters[i].tensor->shape,
                                 shape);
        assert_string_equal(shape, want[i].shape);
        assert_true(m->parameters[i].tensor->requires_grad);
    }
}

TEST(names_and_shapes)
{
    static const expectation cnn[] = {
        {"conv1.weight", "(32, 3, 3, 3)"},   {"norm1.weight", "(32)"},  {"norm1.bias", "(32)"},
        {"conv2.weight", "(64, 3, 3, 32)"},  {"norm2.weight", "(64)"},  {"norm2.bias", "(64)"},
        {"conv3.weight", "(128, 3, 3, 64)"}, {"norm3.weight", "(128)"}, {"norm3.bias", "(128)"},
        {"head.weight", "(10, 128)"},        {"head.bias", "(10)"}};
    static const expectation mlp[] = {{"fc1.weight", "(256, 3072)"}, {"fc1.bias", "(256)"},
                                      {"fc2.weight", "(256, 256)"},  {"fc2.bias", "(256)"},
                                      {"head.weight", "(6, 256)"},   {"head.bias", "(6)"}};
    static const char *const buffers[] = {"norm1.running_mean", "norm1.running_var",
                                          "norm2.running_mean", "norm2.running_var",
                                          "norm3.running_mean", "norm3.running_var"};
    lvni_nn_model *m = make("cnn", 64, 10);
    assert_parameters(m, cnn, 11);
    assert_int_equal(m->n_buffers, 6);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(m->buffers[i]->name, buffers[i]);
        assert_int_equal(m->buffers[i]->numel, 32 << i / 2);
    }
    assert_int_equal(m->parameters[0].layout, LVNI_LAYOUT_CONV);
    assert_int_equal(m->parameters[9].layout, LVNI_LAYOUT_PLAIN);
    lvni_nn_model_destroy(m);
    m = make("mlp", 32, 6);
    assert_parameters(m, mlp, 6);
    assert_int_equal(m->n_buffers, 0);
    lvni_nn_model_destroy(m);
    assert_null(lvni_nn_zoo_find("resnet19"));
}

/* Names of the blocks, each with the first parameter that it begins with. */
static const struct {
    const char *model, *blocks;
} block_rows[] = {
    {"cnn", "stage1:conv1.weight stage2:conv2.weight stage3:conv3.weight head:head.weight"},
    {"mlp", "fc1:fc1.weight fc2:fc2.weight head:head.weight"},
    {"resnet18", "stem:conv1.weight layer1.0:layer1.0.conv1.weight layer1.1:layer1.1.conv1.weight "
                 "layer2.0:layer2.0.conv1.weight layer2.1:layer2.1.conv1.weight "
                 "layer3.0:layer3.0.conv1.weight layer3.1:layer3.1.conv1.weight "
                 "layer4.0:layer4.0.conv1.weight layer4.1:layer4.1.conv1.weight head:fc.weight"},
};

TEST(networks_name_their_blocks)
{
    for (size_t i = 0; i < sizeof block_rows / sizeof *block_rows; i++) {
        lvni_nn_model *m = make(block_rows[i].model, 32, 10);
        char names[1024] = "";
        for (int k = 0; k < m->n_blocks; k++) {
            const size_t at = strlen(names);
            snprintf(names + at, sizeof names - at, "%s%s:%s", k == 0 ? "" : " ", m->blocks[k].name,
                     m->parameters[m->blocks[k].first].name);
            assert_int_equal(m->offset[m->blocks[k].first], m->blocks[k].begin);
        }
        assert_string_equal(names, block_rows[i].blocks);
        lvni_nn_model_destroy(m);
    }
    lvni_nn_model *m = make("vit_s_16", 32, 10);
    assert_int_equal(m->n_blocks, 14);
    assert_string_equal(m->blocks[0].name, "embeddings");
    assert_string_equal(m->blocks[12].name, "encoder.layers.encoder_layer_11");
    assert_string_equal(m->parameters[m->blocks[13].first].name, "encoder.ln.weight");
    lvni_nn_model_destroy(m);
    m = make("resnet50", 32, 10);
    assert_int_equal(m->n_blocks, 18);
    lvni_nn_model_destroy(m);
}

/* Weights as torchvision counts them for 1000 classes; names and values are compared in
 * tests/golden. */
TEST(networks_have_their_sizes)
{
    static const struct {
        const char *name;
        int size, tensors, buffers;
        int64_t weights;
        const char *first, *head;
    } nets[] = {
        {"resnet18", 64, 62, 40, 11689512, "conv1.weight", "fc.weight"},
        {"resnet34", 64, 110, 72, 21797672, "conv1.weight", "fc.weight"},
        {"resnet50", 64, 161, 106, 25557032, "conv1.weight", "fc.weight"},
        {"resnet101", 64, 314, 208, 44549160, "conv1.weight", "fc.weight"},
        {"resnet152", 64, 467, 310, 60192808, "conv1.weight", "fc.weight"},
        {"convnext_tiny", 64, 182, 0, 28589128, "features.0.0.weight", "classifier.2.weight"},
        {"efficientnet_b0", 64, 213, 98, 5288548, "features.0.0.weight", "classifier.1.weight"},
        {"efficientnet_b1", 64, 301, 138, 7794184, "features.0.0.weight", "classifier.1.weight"},
        {"efficientnet_b2", 64, 301, 138, 9109994, "features.0.0.weight", "classifier.1.weight"},
        {"vit_s_16", 224, 152, 0, 22050664, "class_token", "heads.head.weight"},
        {"vit_b_16", 224, 152, 0, 86567656, "class_token", "heads.head.weight"}};
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        lvni_nn_model *m;
        const lvni_nn_zoo_arguments arguments = {.image_size = nets[i].size, .n_classes = 1000};
        assert_int_equal(lvni_nn_model_build_empty(lvni_nn_zoo_find(nets[i].name), &arguments, &m),
                         LVN_OK);
        assert_int_equal(m->n_parameters, nets[i].tensors);
        assert_int_equal(m->n_buffers, nets[i].buffers);
        assert_true(lvni_nn_model_count(m) == nets[i].weights);
        assert_string_equal(m->parameters[0].name, nets[i].first);
        assert_string_equal(m->parameters[m->n_parameters - 2].name, nets[i].head);
        assert_true(lvni_nn_zoo_dropout(nets[i].name) ==
                    (strcmp(nets[i].name, "efficientnet_b2") == 0     ? 0.3
                     : strncmp(nets[i].name, "efficientnet", 12) == 0 ? 0.2
                                                                      : 0.0));
        lvni_nn_model_destroy(m);
    }
    assert_true(lvni_nn_zoo_dropout("cnn") == 0.1);
    assert_true(lvni_nn_zoo_drop_path("convnext_small") == 0.4 &&
                lvni_nn_zoo_has_paths("vit_b_16"));
    assert_true(lvni_nn_zoo_drop_path("efficientnet_b1") == 0.2);
    assert_false(lvni_nn_zoo_has_paths("resnet18"));
}

static double mean_square(const lvni_nn_model *m, const char *name)
{
    for (int i = 0; i < m->n_parameters; i++) {
        if (strcmp(m->parameters[i].name, name) == 0) {
            double squares = 0.0;
            for (int64_t k = 0; k < m->parameters[i].numel; k++) {
                squares += pow((double)LVNI_F32(m->parameters[i].tensor)[k], 2);
            }
            return squares / (double)m->parameters[i].numel;
        }
    }
    fail_msg("no parameter %s", name);
    return 0.0;
}

TEST(initial_values_are_those_of_torchvision)
{
    lvni_nn_model *m = make("resnet18", 32, 5);
    /* variance 2 / fan out */
    assert_true(fabs(mean_square(m, "conv1.weight") * 64 * 49 / 2 - 1) < 0.05);
    assert_true(fabs(mean_square(m, "layer2.0.downsample.0.weight") * 128 / 2 - 1) < 0.1);
    assert_true(mean_square(m, "layer1.0.bn2.weight") == 1.0);
    /* uniform within 1 / sqrt(512) */
    assert_true(fabs(mean_square(m, "fc.weight") * 512 * 3 - 1) < 0.1);
    lvni_nn_model_destroy(m);
    m = make("vit_s_16", 32, 5);
    const char *const layer = "encoder.layers.encoder_layer_3.";
    static const struct {
        const char *name;
        double square, tolerance;
    } want[] = {{"self_attention.in_proj_weight", 2.0 / (4 * 384), 0.05},
                {"self_attention.out_proj.weight", 1.0 / (3 * 384), 0.05},
                {"self_attention.in_proj_bias", 0, 0},
                {"self_attention.out_proj.bias", 0, 0},
                {"mlp.0.weight", 2.0 / (5 * 384), 0.05},
                {"mlp.3.weight", 2.0 / (5 * 384), 0.05},
                {"mlp.0.bias", 1e-12, 0.1},
                {"ln_2.weight", 1, 0}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s%s", layer, want[i].name);
        assert_true(fabs(mean_square(m, name) - want[i].square) <=
                    want[i].tolerance * want[i].square);
    }
    assert_true(fabs(mean_square(m, "conv_proj.weight") * 768 - 1) < 0.05);
    /* 5 x 384 numbers */
    assert_true(fabs(mean_square(m, "encoder.pos_embedding") / 4e-4 - 1) < 0.2);
    assert_true(mean_square(m, "conv_proj.bias") == 0.0 && mean_square(m, "class_token") == 0.0 &&
                mean_square(m, "heads.head.weight") == 0.0);
    lvni_nn_model_destroy(m);
    m = make("convnext_tiny", 32, 5);
    assert_true(fabs(mean_square(m, "features.3.1.block.0.weight") / 4e-4 - 1) < 0.1);
    assert_true(fabs(mean_square(m, "features.2.1.weight") / 4e-4 - 1) < 0.1);
    assert_true(fabs(mean_square(m, "features.5.8.block.3.weight") / 4e-4 - 1) < 0.1);
    assert_true(mean_square(m, "features.5.8.block.3.bias") == 0.0 &&
                mean_square(m, "features.1.0.block.2.weight") == 1.0);
    assert_true(fabs(mean_square(m, "features.7.2.layer_scale") / 1e-12 - 1) < 1e-3);
    lvni_nn_model_destroy(m);
}

/* PyTorch counts all outputs of a depthwise convolution. */
TEST(initial_values_of_an_efficientnet)
{
    lvni_nn_model *m = make("efficientnet_b0", 32, 5);
    assert_true(fabs(mean_square(m, "features.0.0.weight") * 32 * 9 / 2 - 1) < 0.1);
    assert_true(fabs(mean_square(m, "features.6.2.block.1.0.weight") * 1152 * 25 / 2 - 1) < 0.1);
    assert_true(fabs(mean_square(m, "features.6.2.block.2.fc1.weight") * 48 / 2 - 1) < 0.1);
    assert_true(mean_square(m, "features.6.2.block.2.fc1.bias") == 0.0 &&
                mean_square(m, "features.6.2.block.3.1.weight") == 1.0 &&
                mean_square(m, "classifier.1.bias") == 0.0);
    /* uniform within 1 / sqrt(5) */
    assert_true(fabs(mean_square(m, "classifier.1.weight") * 5 * 3 - 1) < 0.1);
    lvni_nn_model_destroy(m);
}

/* In every place while its modules are built, the last block of it too. */
TEST(memory_may_fail_in_an_efficientnet)
{
    const lvni_nn_zoo_arguments arguments = {.image_size = 32, .n_classes = 5, .drop_path = 0.2};
    enum { FIRST = 600, MOST = 2000 }; /* earlier ones are those of its first blocks */
    lvn_status s = LVN_ERR_MEMORY;
    int64_t k = FIRST;
    for (; s != LVN_OK && k < MOST; k++) {
        lvni_nn_model *m;
        (void)lvni_core_alloc_fail_at(k);
        s = lvni_nn_model_build_empty(lvni_nn_zoo_find("efficientnet_b0"), &arguments, &m);
        (void)lvni_core_alloc_fail_at(0);
        assert_true(s == LVN_OK || s == LVN_ERR_MEMORY);
        if (s == LVN_OK) {
            lvni_nn_model_destroy(m);
        }
    }
    assert_int_in_range(k, FIRST + 100, MOST - 1);
}

TEST(patches_must_fit)
{
    lvni_nn_model *m;
    const lvni_nn_zoo_arguments arguments = {.image_size = 40, .n_classes = 2};
    assert_int_equal(lvni_nn_model_build(lvni_nn_zoo_find("vit_s_16"), &arguments, 1, &m),
                     LVN_ERR_INVALID);
    assert_non_null(
        strstr(lvn_last_error()->message, "image_size must be a multiple of it, not 40"));
}

TEST(too_small_an_image_is_refused)
{
    lvni_nn_model *m;
    const lvni_nn_zoo_arguments arguments = {.image_size = 3, .n_classes = 2};
    assert_int_equal(lvni_nn_model_build(lvni_nn_zoo_find("cnn"), &arguments, 1, &m),
                     LVN_ERR_INVALID);
    assert_non_null(strstr(lvn_last_error()->message, "image_size of at least 4, not 3"));
}

/* ---- the cnn against itself in f64 ---- */

static lvn_tensor *wide(lvn_tensor *t) /* a copy in f64 */
{
    lvn_tensor *d = lvn_tensor_create(LVN_F64, t->ndim, t->shape);
    assert_non_null(d);
    for (int64_t i = 0; i < lvn_numel(t); i++) {
        ((double *)d->data)[i] = (double)LVNI_F32(t)[i];
    }
    return d;
}

static void at_step(void)
{
    lvni_tensor_ctx_get()->at =
        (lvni_tensor_position){.seed = 3, .step = 7, .micro_batch = 1, .training = true};
}

static lvn_tensor *cnn_by_ops(lvn_tensor *x, lvn_tensor *labels, lvn_tensor *const *p)
{
    at_step();
    for (int i = 0; i < 3; i++) {
        x = lvn_conv2d(x, p[3 * i], NULL, .padding = 1);
        x = lvn_relu(lvn_batch_norm_train(x, p[3 * i + 1], p[3 * i + 2], 1e-5, NULL, NULL));
        x = i < 2 ? lvn_max_pool2d(x, 2) : x;
    }
    /* the random numbers are those of the module of this path */
    lvni_tensor_ctx_get()->module_path = "dropout";
    x = lvn_dropout(lvn_global_avg_pool2d(x), 0.1);
    lvni_tensor_ctx_get()->module_path = "";
    return lvn_cross_entropy(lvn_linear(x, p[9], p[10]), labels);
}

typedef struct problem {
    lvni_nn_model *model;
    lvn_tensor *image, *labels, *wide_image;
    lvn_tensor *wide_parameter[PARAMETERS];
} problem;

static void set_up(problem *p)
{
    p->model = make("cnn", SIZE, CLASSES);
    p->image = lvn_tensor_create(LVN_F32, 4, (const int64_t[]){SAMPLES, SIZE, SIZE, 3});
    p->labels = lvn_tensor_create(LVN_I64, 1, (const int64_t[]){SAMPLES});
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(8, 8)};
    for (int64_t i = 0; i < lvn_numel(p->image); i++) {
        LVNI_F32(p->image)[i] = (float)lvni_core_rng_normal(&rng, (uint64_t)i);
    }
    for (int i = 0; i < SAMPLES; i++) {
        ((int64_t *)p->labels->data)[i] = i % CLASSES;
    }
    p->wide_image = wide(p->image);
    assert_int_equal(p->model->n_parameters, PARAMETERS);
    for (int i = 0; i < PARAMETERS; i++) {
        p->wide_parameter[i] = lvn_require_grad(wide(p->model->parameters[i].tensor));
    }
}

static void tear_down(problem *p)
{
    for (int i = 0; i < PARAMETERS; i++) {
        lvn_release(p->wide_parameter[i]);
    }
    lvn_release(p->image);
    lvn_release(p->wide_image);
    lvn_release(p->labels);
    lvni_nn_model_destroy(p->model);
}

/* The module's training step, gradients into the set. */
static double step_of_the_module(const problem *p, lvni_nn_set *set, lvni_nn_step *step)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const lvn_batch batch = {.size = SAMPLES, .image = p->image, .label = p->labels};
    at_step();
    ctx->gradients = &set->gradients;
    ctx->records = set;
    lvni_nn_set_begin(set, SAMPLES);
    lvni_nn_step_begin(step, SAMPLES);
    step->host = &batch;
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *loss = p->model->root->cls->training_step(p->model->root, &batch, &step->now);
    const double value = lvn_item(loss);
    assert_int_equal(lvn_backward(loss), LVN_OK);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvni_nn_set_finish(set);
    ctx->gradients = NULL;
    ctx->records = NULL;
    return value;
}

static double loss_in_f64(const problem *p, bool backward)
{
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *loss = cnn_by_ops(p->wide_image, p->labels, p->wide_parameter);
    const double value = lvn_item(loss);
    if (backward) {
        assert_int_equal(lvn_backward(loss), LVN_OK);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvni_tensor_ctx_get()->at = (lvni_tensor_position){0};
    return value;
}

TEST(cnn_agrees_with_f64)
{
    problem p;
    set_up(&p);
    lvni_nn_set *set;
    lvni_nn_step step;
    assert_int_equal(lvni_nn_set_create(p.model, &set), LVN_OK);
    const double have = step_of_the_module(&p, set, &step), want = loss_in_f64(&p, true);
    assert_true(fabs(have - want) <= 1e-6 * want);
    assert_int_equal(step.n_metrics, 2);
    assert_string_equal(step.metric[0].name, "loss");
    assert_true(step.metric[0].sum == have * SAMPLES && step.metric[0].weight == SAMPLES);
    assert_string_equal(step.metric[1].name, "acc");
    for (int i = 0; i < PARAMETERS; i++) {
        const double *g = p.wide_parameter[i]->grad->data;
        const int64_t n = lvn_numel(p.wide_parameter[i]);
        double most = 0.0;
        for (int64_t k = 0; k < n; k++) {
            most = fmax(most, fabs(g[k]));
        }
        assert_true(most > 1e-4);
        for (int64_t k = 0; k < n; k++) {
            const double mine = (double)set->data[p.model->offset[i] + k];
            if (!(fabs(mine - g[k]) <= 3e-5 * most)) { /* f32 through twelve ops */
                fail_msg("%s, element %d: %.9g, in f64 %.9g", p.model->parameters[i].name, (int)k,
                         mine, g[k]);
            }
        }
    }
    lvni_nn_set_destroy(set);
    tear_down(&p);
}

/* Every parameter moved along a random direction d: (L(p + h d) - L(p - h d)) / 2h = g d. */
TEST(f64_agrees_with_differences)
{
    problem p;
    set_up(&p);
    loss_in_f64(&p, true);
    lvn_set_grad_enabled(false);
    for (int i = 0; i < PARAMETERS; i++) {
        const lvni_core_rng rng = {.key = lvni_core_rng_make_key(99, (uint64_t)i)};
        const int64_t n = lvn_numel(p.wide_parameter[i]);
        double *w = p.wide_parameter[i]->data, value[2], claimed = 0.0;
        const double *g = p.wide_parameter[i]->grad->data, h = 1e-6 / sqrt((double)n);
        for (int side = 0; side < 2; side++) {
            for (int64_t k = 0; k < n; k++) {
                w[k] += (side == 0 ? h : -2 * h) * lvni_core_rng_normal(&rng, (uint64_t)k);
            }
            value[side] = loss_in_f64(&p, false);
        }
        for (int64_t k = 0; k < n; k++) {
            const double d = lvni_core_rng_normal(&rng, (uint64_t)k);
            w[k] += h * d;
            claimed += g[k] * d;
        }
        const double numeric = (value[0] - value[1]) / (2 * h);
        if (!(fabs(numeric - claimed) <= 1e-5 * fabs(claimed) + 1e-15 / h)) {
            fail_msg("%s: differences give %.9g, lvn_backward %.9g", p.model->parameters[i].name,
                     numeric, claimed);
        }
    }
    lvn_set_grad_enabled(true);
    tear_down(&p);
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}

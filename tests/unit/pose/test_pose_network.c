/* The network of the recipe pose: sizes, names and initial values of its head, and what a map is.
 * (Its numbers from PyTorch: tests/golden.) */
#include "core/alloc.h"
#include "kernels/kernels.h"
#include "recipes/pose/pose_network.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct pose {
    lvn_module base;
    lvni_pose_network net;
} pose;

static lvn_status build(lvn_module *module, lvn_builder *b)
{
    lvni_pose_network_build(b, lvn_builder_arguments(b), &((pose *)module)->net);
    return lvn_builder_status(b);
}

static lvn_tensor *forward(const lvn_module *module, lvn_tensor *x)
{
    return lvni_pose_network_maps(&((const pose *)module)->net, x);
}

static const lvn_module_class pose_class = {
    .name = "pose", .size = sizeof(pose), .build = build, .forward = forward};

static lvni_nn_model *make(const char *model, int keypoints, int downsample, uint64_t seed)
{
    lvni_nn_model *m;
    const lvni_pose_network_settings s = {
        .model = model, .keypoints = keypoints, .downsample = downsample};
    assert_int_equal(lvni_nn_model_build(&pose_class, &s, seed, &m), LVN_OK);
    return m;
}

/* Elements of the parameters whose names begin so. */
static int64_t count(const lvni_nn_model *m, const char *front)
{
    int64_t n = 0;
    for (int i = 0; i < m->n_parameters; i++) {
        n += strncmp(m->parameters[i].name, front, strlen(front)) == 0 ? m->parameters[i].numel : 0;
    }
    return n;
}

static const lvn_tensor *find(const lvni_nn_model *m, const char *name)
{
    for (int i = 0; i < m->n_parameters; i++) {
        if (strcmp(m->parameters[i].name, name) == 0) {
            return m->parameters[i].tensor;
        }
    }
    fail_msg("the model has no %s", name);
    return NULL;
}

/* Parameters as Lightning Pose 2.4.3 counts them; levin has no classifier behind the backbone. */
TEST(parameters_of_the_head_and_the_backbone)
{
    static const struct {
        const char *model;
        int downsample;
        int64_t head, backbone;
    } row[] = {{"resnet50", 2, 80971, 23508032},
               {"resnet50", 3, 512 * 17 * 9 + 17, 23508032},
               {"resnet50", 1, 80971 + 17 * 17 * 9 + 17, 23508032},
               {"resnet18", 2, 128 * 17 * 9 + 17 + 17 * 17 * 9 + 17, 11176512},
               {"efficientnet_b0", 2, 320 * 17 * 9 + 17 + 17 * 17 * 9 + 17, 4007548},
               {"efficientnet_b2", 3, 352 * 17 * 9 + 17, 7700994},
               {"dino_vits16", 2, 96 * 17 * 9 + 17, 21665664},
               {"dino_vits16", 1, 96 * 17 * 9 + 17 + 17 * 17 * 9 + 17, 21665664}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        lvni_nn_model *m = make(row[i].model, 17, row[i].downsample, 0);
        assert_int_equal(count(m, "head."), row[i].head);
        assert_int_equal(count(m, "backbone."), row[i].backbone);
        assert_int_equal(count(m, ""), row[i].head + row[i].backbone);
        lvni_nn_model_destroy(m);
    }
}

static void check_uniform(const lvn_tensor *w, int in, int out)
{
    const double bound = 0.01 * sqrt(6.0 / ((in + out) * 9.0));
    double sum = 0.0, most = 0.0;
    const int64_t n = lvn_numel(w);
    assert_int_equal(n, in * out * 9);
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)LVNI_CF32(w)[i];
        sum += v * v;
        most = fmax(most, fabs(v));
    }
    assert_true(most <= bound && most > 0.99 * bound);
    assert_true(fabs(sum / (double)n / (bound * bound / 3.0) - 1.0) < 0.1);
}

TEST(initial_values_of_the_head_follow_from_seed_and_name)
{
    lvni_nn_model *a = make("resnet18", 17, 2, 5), *b = make("resnet18", 17, 2, 5),
                  *c = make("resnet18", 17, 2, 6);
    static const char first[] = "head.upsampling_layers.1.weight",
                      second[] = "head.upsampling_layers.2.weight";
    check_uniform(find(a, first), 128, 17);
    check_uniform(find(a, second), 17, 17);
    for (int64_t i = 0; i < 17; i++) {
        assert_true(LVNI_CF32(find(a, "head.upsampling_layers.1.bias"))[i] == 0.0f);
        assert_true(LVNI_CF32(find(a, "head.upsampling_layers.2.bias"))[i] == 0.0f);
    }
    const size_t bytes = (size_t)lvn_numel(find(a, first)) * sizeof(float);
    assert_memory_equal(find(a, first)->data, find(b, first)->data, bytes);
    assert_memory_not_equal(find(a, first)->data, find(c, first)->data, bytes);
    lvni_nn_model_destroy(a);
    lvni_nn_model_destroy(b);
    lvni_nn_model_destroy(c);
}

/* Oblong images, each factor: sizes, and a distribution over the pixels of each map. */
TEST(maps_are_distributions)
{
    enum { KEYPOINTS = 3, H = 64, W = 128 };
    lvn_tensor *x = lvn_tensor_create(LVN_F32, LVN_SHAPE(2, H, W, 3));
    for (int64_t i = 0; i < lvn_numel(x); i++) {
        LVNI_F32(x)[i] = (float)sin(0.37 * (double)i);
    }
    for (int d = LVNI_POSE_LEAST_DOWNSAMPLE; d <= LVNI_POSE_MOST_DOWNSAMPLE; d++) {
        const int h = H >> d, w = W >> d;
        lvni_nn_model *m = make("resnet18", KEYPOINTS, d, 1);
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *y = lvn_forward(m->root, x);
        assert_non_null(y);
        const int64_t want[] = {2, h, w, KEYPOINTS};
        assert_int_equal(y->ndim, 4);
        assert_memory_equal(y->shape, want, sizeof want);
        for (int n = 0; n < 2 * KEYPOINTS; n++) {
            double sum = 0.0;
            for (int p = 0; p < h * w; p++) {
                sum +=
                    (double)LVNI_CF32(y)[(n / KEYPOINTS * h * w + p) * KEYPOINTS + n % KEYPOINTS];
            }
            assert_true(fabs(sum - 1.0) < 1e-5);
        }
        assert_int_equal(lvn_scope_close(), LVN_OK);
        lvni_nn_model_destroy(m);
    }
    lvn_release(x);
}

/* ---- coordinates without maps ---- */

typedef struct regression {
    lvn_module base;
    lvni_pose_regression net;
} regression;

static lvn_status build_regression(lvn_module *module, lvn_builder *b)
{
    lvni_pose_regression_build(b, lvn_builder_arguments(b), &((regression *)module)->net);
    return lvn_builder_status(b);
}

static lvn_tensor *run_regression(const lvn_module *module, lvn_tensor *x)
{
    return lvni_pose_regression_points(&((const regression *)module)->net, x);
}

/* One linear layer on the mean of the last map, with PyTorch's initial values; x and y take
 * turns. */
TEST(coordinates_are_linear_in_pooled_features)
{
    enum { KEYPOINTS = 5, CHANNELS = 512 };
    static const lvn_module_class cls = {.name = "regression",
                                         .size = sizeof(regression),
                                         .build = build_regression,
                                         .forward = run_regression};
    const lvni_pose_network_settings s = {.model = "resnet18", .keypoints = KEYPOINTS};
    lvni_nn_model *m;
    assert_int_equal(lvni_nn_model_build(&cls, &s, 2, &m), LVN_OK);
    const lvn_tensor *w = find(m, "head.linear_layer.weight"),
                     *bias = find(m, "head.linear_layer.bias");
    const double bound = 1.0 / sqrt(CHANNELS);
    double most = 0.0, least = 0.0;
    assert_int_equal(lvn_numel(w), 2 * KEYPOINTS * CHANNELS);
    for (int64_t i = 0; i < lvn_numel(w); i++) {
        most = fmax(most, fabs((double)LVNI_CF32(w)[i]));
    }
    for (int i = 0; i < 2 * KEYPOINTS; i++) {
        least = fmax(least, fabs((double)LVNI_CF32(bias)[i]));
    }
    assert_true(most <= bound && most > 0.99 * bound && least <= bound && least > 0.0);
    lvn_tensor *x = lvn_tensor_create(LVN_F32, LVN_SHAPE(2, 64, 32, 3));
    for (int64_t i = 0; i < lvn_numel(x); i++) {
        LVNI_F32(x)[i] = (float)sin(0.37 * (double)i);
    }
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const lvn_tensor *y = lvn_forward(m->root, x),
                     *pooled = lvni_nn_zoo_pooled(((const regression *)m->root)->net.backbone, x);
    const int64_t want[] = {2, KEYPOINTS, 2};
    assert_memory_equal(y->shape, want, sizeof want);
    for (int i = 0; i < 4 * KEYPOINTS; i++) {
        const int row = i % (2 * KEYPOINTS);
        double sum = (double)LVNI_CF32(bias)[row];
        for (int c = 0; c < CHANNELS; c++) {
            sum += (double)LVNI_CF32(w)[row * CHANNELS + c] *
                   (double)LVNI_CF32(pooled)[i / (2 * KEYPOINTS) * CHANNELS + c];
        }
        assert_true(fabs((double)LVNI_CF32(y)[i] - sum) < 1e-5);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
    lvni_nn_model_destroy(m);
}

/* Backbone and head of the recipe pose (pose_network.h). */
#include "recipes/pose/pose_network.h"

#include "autograd/tape.h"
#include "core/math.h"

#include <stdio.h>

enum { KERNEL = 3, SHUFFLE = 2 };

int lvni_pose_network_halvings(const char *model)
{
    enum { SIDE = 128 }; /* pixels, which all strides divide */
    int n = 0;
    for (int side = lvni_nn_zoo_map_side(model, SIDE); side < SIDE; side *= 2) {
        n++;
    }
    return n;
}

/* Paths are dropped as the network's authors do. */
static lvn_module *make_backbone(lvn_builder *b, const char *model)
{
    const lvni_nn_zoo_arguments a = {.drop_path = lvni_nn_zoo_drop_path(model)};
    return lvni_nn_zoo_backbone(b, "backbone", model, &a);
}

/* Xavier uniform (Glorot and Bengio 2010, eq. 16) times 0.01: the first maps are nearly uniform. */
static void make_layer(lvn_builder *b, const char *head, int at, int in, int out, lvn_module **made)
{
    char name[64], parameter[80];
    snprintf(name, sizeof name, "%s.upsampling_layers.%d", head, at);
    *made = lvn_nn_conv_transpose2d(b, name, in, out, KERNEL, .stride = 2, .padding = 1,
                                    .output_padding = 1);
    snprintf(parameter, sizeof parameter, "%s.weight", name);
    lvn_builder_set_init(b, parameter, LVN_INIT_UNIFORM,
                         0.01 * lvni_core_sqrt(6.0 / ((double)(in + out) * KERNEL * KERNEL)));
    snprintf(parameter, sizeof parameter, "%s.bias", name);
    lvn_builder_set_init(b, parameter, LVN_INIT_ZEROS, 0.0);
}

void lvni_pose_network_build(lvn_builder *b, const lvni_pose_network_settings *settings,
                             lvni_pose_network *out)
{
    const char *head = settings->head == NULL ? "head" : settings->head;
    /* the pixel shuffle doubles maps once */
    *out = (lvni_pose_network){.layers = lvni_pose_network_halvings(settings->model) - 1 -
                                         settings->downsample};
    out->backbone = make_backbone(b, settings->model);
    lvn_builder_block(b, head);
    int in = lvni_nn_zoo_feature_dim(settings->model) / (SHUFFLE * SHUFFLE);
    for (int i = 0; i < out->layers; i++) { /* number 0 is the pixel shuffle */
        make_layer(b, head, i + 1, in, settings->keypoints, &out->layer[i]);
        in = settings->keypoints;
    }
}

lvn_tensor *lvni_pose_network_features(const lvni_pose_network *net, lvn_tensor *image)
{
    return lvni_nn_zoo_map(net->backbone, image);
}

lvn_tensor *lvni_pose_softmax(lvn_tensor *x)
{
    if (x == NULL) {
        return NULL;
    }
    const int64_t n = lvn_size(x, 0), h = lvn_size(x, 1), w = lvn_size(x, 2), k = lvn_size(x, 3);
    x = lvn_transpose(lvn_reshape(x, 3, (const int64_t[]){n, h * w, k}), 1, 2); /* (N, K, h w) */
    x = lvn_transpose(lvn_softmax(x), 1, 2);
    return lvn_reshape(x, 4, (const int64_t[]){n, h, w, k});
}

static lvn_tensor *run_head(const lvni_pose_network *net, lvn_tensor *features)
{
    lvn_tensor *x = lvn_pixel_shuffle(features, SHUFFLE);
    for (int i = 0; i < net->layers; i++) {
        x = lvn_forward(net->layer[i], x);
    }
    return lvni_pose_softmax(x);
}

/* The maps before the softmax go with a scope of its own: nothing behind it needs them. */
lvn_tensor *lvni_pose_network_head(const lvni_pose_network *net, lvn_tensor *features)
{
    if (lvni_autograd_scope_depth() == 0) { /* closing the outermost scope would drop the tape */
        return run_head(net, features);
    }
    if (lvn_scope_open() != LVN_OK) {
        return lvni_autograd_op_fail("the head");
    }
    lvn_tensor *x = lvn_keep(run_head(net, features));
    lvn_scope_close(); /* a failure has marked the scope outside */
    return x == NULL ? NULL : lvni_autograd_adopt(x);
}

lvn_tensor *lvni_pose_network_maps(const lvni_pose_network *net, lvn_tensor *image)
{
    return lvni_pose_network_head(net, lvni_pose_network_features(net, image));
}

void lvni_pose_regression_build(lvn_builder *b, const lvni_pose_network_settings *settings,
                                lvni_pose_regression *out)
{
    out->backbone = make_backbone(b, settings->model);
    lvn_builder_block(b, "head");
    out->linear = lvn_nn_linear(b, "head.linear_layer", lvni_nn_zoo_feature_dim(settings->model),
                                2 * (int64_t)settings->keypoints);
}

lvn_tensor *lvni_pose_regression_points(const lvni_pose_regression *net, lvn_tensor *image)
{
    lvn_tensor *x = lvn_forward(net->linear, lvni_nn_zoo_pooled(net->backbone, image));
    return x == NULL ? NULL
                     : lvn_reshape(x, 3, (const int64_t[]){lvn_size(x, 0), lvn_size(x, 1) / 2, 2});
}

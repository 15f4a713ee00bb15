/* Residual networks (He et al. 2016, "Deep residual learning for image recognition", table 1) with
 * the names, shapes and initial values of torchvision; the bottleneck halves the image in its 3x3
 * convolution, as there. */
#include "nn/zoo_impl.h"

#include "core/math.h"

#include <stdio.h>

enum { STAGES = 4, EXPANSION = 4 }; /* a bottleneck gives out four times its width */

/* Convolution and batch norm (relu: with its activation) of one name pair; weights normal with
 * variance 2 / fan out (He et al. 2015, eq. 14). */
static void conv_norm(lvn_builder *b, const char *conv, const char *norm, int in, int out,
                      int kernel, int stride, bool relu, lvn_module *made[2])
{
    char weight[64];
    made[0] = lvn_nn_conv2d(b, conv, in, out, kernel, .stride = stride, .padding = kernel / 2,
                            .no_bias = true);
    made[1] = lvn_nn_batch_norm(b, norm, out, 0.1, .relu = relu);
    snprintf(weight, sizeof weight, "%s.weight", conv);
    lvn_builder_set_init(b, weight, LVN_INIT_NORMAL,
                         lvni_core_sqrt(2.0 / ((double)out * kernel * kernel)));
}

static lvn_tensor *run_conv_norm(lvn_module *const pair[2], lvn_tensor *x)
{
    return lvn_forward(pair[1], lvn_forward(pair[0], x));
}

/* Two 3x3 convolutions, or 1x1, 3x3, 1x1; added to the input. */
typedef struct block {
    lvn_module base;
    int in, width, stride;
    bool bottleneck;
    lvn_module *body[3][2], *downsample[2]; /* the latter NULL where the input fits as it is */
} block;

static lvn_status block_build(lvn_module *module, lvn_builder *b)
{
    block *m = (block *)module;
    const int out = m->width * (m->bottleneck ? EXPANSION : 1);
    if (m->bottleneck) {
        conv_norm(b, "conv1", "bn1", m->in, m->width, 1, 1, true, m->body[0]);
        conv_norm(b, "conv2", "bn2", m->width, m->width, 3, m->stride, true, m->body[1]);
        conv_norm(b, "conv3", "bn3", m->width, out, 1, 1, true, m->body[2]);
    } else {
        conv_norm(b, "conv1", "bn1", m->in, m->width, 3, m->stride, true, m->body[0]);
        conv_norm(b, "conv2", "bn2", m->width, m->width, 3, 1, true, m->body[1]);
    }
    if (m->stride != 1 || m->in != out) {
        conv_norm(b, "downsample.0", "downsample.1", m->in, out, 1, m->stride, false,
                  m->downsample);
    }
    return lvn_builder_status(b);
}

static lvn_tensor *block_forward(const lvn_module *module, lvn_tensor *x)
{
    const block *m = (const block *)module;
    const int last = m->bottleneck ? 2 : 1;
    lvn_tensor *y = x, *residual = m->downsample[0] == NULL ? x : run_conv_norm(m->downsample, x);
    for (int i = 0; i < last; i++) {
        y = run_conv_norm(m->body[i], y);
    }
    return lvn_forward_residual(m->body[last][1], lvn_forward(m->body[last][0], y), residual);
}

static const lvn_module_class block_class = {
    .name = "resnet_block", .size = sizeof(block), .build = block_build, .forward = block_forward};

enum { MOST_BLOCKS = 6 }; /* in a stage */

typedef struct resnet {
    lvn_module base;
    lvn_module *stem[2], *block[STAGES][MOST_BLOCKS], *dropout, *fc;
    int n_blocks[STAGES];
} resnet;

static lvn_status resnet_build(resnet *m, lvn_builder *b, const int n_blocks[STAGES],
                               bool bottleneck)
{
    const lvni_nn_zoo_arguments *a = lvni_nn_builder_arguments(b);
    conv_norm(b, "conv1", "bn1", 3, 64, 7, 2, true, m->stem);
    int in = 64;
    for (int s = 0; s < STAGES; s++) {
        m->n_blocks[s] = n_blocks[s];
        for (int i = 0; i < n_blocks[s]; i++) {
            char name[32];
            snprintf(name, sizeof name, "layer%d.%d", s + 1, i);
            block *k = (block *)(void *)lvni_nn_builder_new_module(b, &block_class, name);
            if (k == NULL) {
                return lvn_builder_status(b);
            }
            k->in = in;
            k->width = 64 << s;
            k->stride = s > 0 && i == 0 ? 2 : 1;
            k->bottleneck = bottleneck;
            m->block[s][i] = lvni_nn_builder_build(b, &k->base);
            in = k->width * (bottleneck ? EXPANSION : 1);
        }
    }
    m->dropout = lvn_nn_dropout(b, "dropout", a->dropout);
    m->fc = lvn_nn_linear(b, "fc", in, a->n_classes);
    return lvn_builder_status(b);
}

static lvn_tensor *resnet_forward(const lvn_module *module, lvn_tensor *x) /* x: (N, S, S, 3) */
{
    const resnet *m = (const resnet *)module;
    x = run_conv_norm(m->stem, x);                       /* (N, S/2, S/2, 64) */
    x = lvn_max_pool2d(x, 3, .stride = 2, .padding = 1); /* (N, S/4, S/4, 64) */
    for (int s = 0; s < STAGES; s++) { /* (N, S/32, S/32, 512 or 2048) in the end */
        for (int i = 0; i < m->n_blocks[s]; i++) {
            x = lvn_forward(m->block[s][i], x);
        }
    }
    return lvn_forward(m->fc, lvn_forward(m->dropout, lvn_global_avg_pool2d(x)));
}

static lvn_status resnet18_build(lvn_module *module, lvn_builder *b)
{
    return resnet_build((resnet *)module, b, (const int[]){2, 2, 2, 2}, false);
}

static lvn_status resnet34_build(lvn_module *module, lvn_builder *b)
{
    return resnet_build((resnet *)module, b, (const int[]){3, 4, 6, 3}, false);
}

static lvn_status resnet50_build(lvn_module *module, lvn_builder *b)
{
    return resnet_build((resnet *)module, b, (const int[]){3, 4, 6, 3}, true);
}

#define RESNET(depth)                                                                              \
    const lvn_module_class lvni_nn_zoo_resnet##depth = {.name = "resnet" #depth,                   \
                                                        .size = sizeof(resnet),                    \
                                                        .build = resnet##depth##_build,            \
                                                        .forward = resnet_forward,                 \
                                                        .training_step =                           \
                                                            lvni_nn_zoo_classifier_step}
RESNET(18);
RESNET(34);
RESNET(50);

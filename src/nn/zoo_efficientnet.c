/* EfficientNet (Tan and Le 2019, "EfficientNet: rethinking model scaling for convolutional neural
 * networks", table 1 and section 5.2) with the names, shapes and initial values of torchvision:
 * seven stages of inverted residual blocks with squeeze and excitation, of which b1 and b2 have
 * more, and wider ones; zoo.c has the table. */
#include "nn/zoo_impl.h"

#include "core/math.h"

#include <stdio.h>

enum { STAGES = 7, MOST_BLOCKS = 23, STEM = 32, SQUEEZE = 4, TOP = 4 };

typedef struct stage {
    int ratio, kernel, stride, out, blocks; /* ratio: channels within a block, of those before it */
} stage;
static const stage stages[STAGES] = {{1, 3, 1, 16, 1}, {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2},
                                     {6, 3, 2, 80, 3}, {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4},
                                     {6, 3, 1, 320, 1}};

/* Times the factor, to a multiple of 8 that is not below 9/10 of it. */
static int scale_width(int channels, double factor)
{
    enum { STEP = 8 };
    const double wanted = channels * factor;
    const int near = (int)(wanted + STEP / 2.0) / STEP * STEP, out = near > STEP ? near : STEP;
    return out < 0.9 * wanted ? out + STEP : out;
}

static int scale_depth(int blocks, double factor)
{
    const int whole = (int)(blocks * factor);
    return whole < blocks * factor ? whole + 1 : whole;
}

/* ---- layers ---- */

/* Normal with variance 2 / fan out (He et al. 2015, eq. 14), for which torchvision counts all
 * channels whatever the groups. */
static void set_init(lvn_builder *b, const char *name, int out, int kernel)
{
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    lvn_builder_set_init(b, full, LVN_INIT_NORMAL,
                         lvni_core_sqrt(2.0 / ((double)out * kernel * kernel)));
}

/* `name`.0 and `name`.1: convolution and batch norm. */
static void conv_norm(lvn_builder *b, const char *name, int in, int out, int kernel, int stride,
                      int groups, lvn_module *made[2])
{
    char full[48];
    snprintf(full, sizeof full, "%s.0", name);
    made[0] = lvn_nn_conv2d(b, full, in, out, kernel, .stride = stride, .padding = kernel / 2,
                            .groups = groups, .no_bias = true);
    set_init(b, full, out, kernel);
    snprintf(full, sizeof full, "%s.1", name);
    made[1] = lvn_nn_batch_norm(b, full, out, 0.1);
}

static lvn_tensor *run_conv_norm(lvn_module *const pair[2], lvn_tensor *x)
{
    return lvn_forward(pair[1], lvn_forward(pair[0], x));
}

static lvn_module *conv_of_one(lvn_builder *b, const char *name, int in, int out)
{
    char full[64];
    lvn_module *m = lvn_nn_conv2d(b, name, in, out, 1);
    set_init(b, name, out, 1);
    snprintf(full, sizeof full, "%s.bias", name);
    lvn_builder_set_init(b, full, LVN_INIT_ZEROS, 0.0);
    return m;
}

/* ---- a block ---- */

/* To more channels, a depthwise convolution, channels weighed by what the whole image has in them
 * (Hu et al. 2018, "Squeeze-and-excitation networks"), and to fewer channels; added to the input
 * where that fits. */
typedef struct mb_block {
    lvn_module base;
    int in, wide, out, kernel, stride;
    double drop;                                    /* probability that an image is without it */
    lvn_module *expand[2], *depthwise[2], *back[2]; /* expand NULL where the input is as wide */
    lvn_module *squeeze, *excite;
} mb_block;

static lvn_status block_build(lvn_module *module, lvn_builder *b)
{
    mb_block *m = (mb_block *)module;
    const int narrow = m->in / SQUEEZE > 1 ? m->in / SQUEEZE : 1;
    int at = 0;
    char name[32];
    if (m->wide != m->in) {
        conv_norm(b, "block.0", m->in, m->wide, 1, 1, 1, m->expand);
        at++;
    }
    snprintf(name, sizeof name, "block.%d", at);
    conv_norm(b, name, m->wide, m->wide, m->kernel, m->stride, m->wide, m->depthwise);
    snprintf(name, sizeof name, "block.%d.fc1", at + 1);
    m->squeeze = conv_of_one(b, name, m->wide, narrow);
    snprintf(name, sizeof name, "block.%d.fc2", at + 1);
    m->excite = conv_of_one(b, name, narrow, m->wide);
    snprintf(name, sizeof name, "block.%d", at + 2);
    conv_norm(b, name, m->wide, m->out, 1, 1, 1, m->back);
    return lvn_builder_status(b);
}

/* (N, 1, 1, wide): between 0 and 1. */
static lvn_tensor *channel_weights(const mb_block *m, lvn_tensor *x)
{
    lvn_tensor *mean =
        lvn_reshape(lvn_global_avg_pool2d(x), 4, (const int64_t[]){-1, 1, 1, m->wide});
    return lvn_sigmoid(lvn_forward(m->excite, lvn_silu(lvn_forward(m->squeeze, mean))));
}

static lvn_tensor *block_forward(const lvn_module *module, lvn_tensor *x) /* (N, h, w, in) */
{
    const mb_block *m = (const mb_block *)module;
    lvn_tensor *y = m->expand[0] == NULL ? x : lvn_silu(run_conv_norm(m->expand, x));
    y = lvn_silu(run_conv_norm(m->depthwise, y));
    y = run_conv_norm(m->back, lvn_mul(y, channel_weights(m, y)));
    return m->stride == 1 && m->in == m->out
               ? lvn_add(x, lvni_nn_zoo_branch(module, y, NULL, m->drop))
               : y;
}

static const lvn_module_class block_class = {.name = "efficientnet_block",
                                             .size = sizeof(mb_block),
                                             .build = block_build,
                                             .forward = block_forward};

/* ---- the network ---- */

typedef struct efficientnet {
    lvni_nn_zoo_network base;
    int blocks;
    lvn_module *stem[2], *block[MOST_BLOCKS], *top[2];
} efficientnet;

static const lvni_nn_zoo_efficientnet *kind_of(const efficientnet *m)
{
    return (const lvni_nn_zoo_efficientnet *)(const void *)m->base.base.cls;
}

static lvn_tensor *efficientnet_forward(const lvn_module *module, lvn_tensor *x) /* (N, S, S, 3) */
{
    const efficientnet *m = (const efficientnet *)module;
    x = lvn_silu(run_conv_norm(m->stem, x));
    for (int i = 0; i < m->blocks; i++) {
        x = lvn_forward(m->block[i], x);
    }
    return lvn_silu(run_conv_norm(m->top, x)); /* (N, S/32, S/32, 1280) of b0 */
}

static const lvni_nn_zoo_body efficientnet_body = {
    .forward = efficientnet_forward, .pooled = lvni_nn_zoo_mean, .map = lvni_nn_zoo_last_map};

/* Block i of stage s; in: channels before it, then behind it. */
static lvn_status one_block(efficientnet *m, lvn_builder *b, int s, int i, int *in)
{
    char name[32];
    snprintf(name, sizeof name, "features.%d.%d", s + 1, i);
    lvn_builder_block(b, name);
    mb_block *k = (mb_block *)(void *)lvni_nn_builder_new_module(b, &block_class, name);
    if (k == NULL) {
        return lvn_builder_status(b);
    }
    k->in = *in;
    k->wide = scale_width(k->in, stages[s].ratio);
    k->out = scale_width(stages[s].out, kind_of(m)->width);
    k->kernel = stages[s].kernel;
    k->stride = i == 0 ? stages[s].stride : 1;
    *in = k->out;
    m->block[m->blocks++] = lvni_nn_builder_build(b, &k->base);
    return LVN_OK;
}

/* Drops of paths grow with the depth, from 0 to nearly that of the arguments. */
static void set_drops(efficientnet *m, double drop)
{
    for (int i = 0; i < m->blocks; i++) {
        ((mb_block *)(void *)m->block[i])->drop = drop * i / m->blocks;
    }
}

static void make_classifier(efficientnet *m, lvn_builder *b, int features)
{
    static const char name[] = "classifier.1";
    const lvni_nn_zoo_arguments *a = lvn_builder_arguments(b);
    lvn_builder_block(b, "head");
    lvni_nn_zoo_make_head(&m->base, b, name, features);
    if (a->n_classes > 0) {
        char full[32];
        snprintf(full, sizeof full, "%s.weight", name);
        lvn_builder_set_init(b, full, LVN_INIT_UNIFORM, 1.0 / lvni_core_sqrt(a->n_classes));
        snprintf(full, sizeof full, "%s.bias", name);
        lvn_builder_set_init(b, full, LVN_INIT_ZEROS, 0.0);
    }
}

static lvn_status efficientnet_build(lvn_module *module, lvn_builder *b)
{
    efficientnet *m = (efficientnet *)module;
    const lvni_nn_zoo_arguments *a = lvn_builder_arguments(b);
    const lvni_nn_zoo_efficientnet *k = kind_of(m);
    int in = scale_width(STEM, k->width);
    char top[32];
    m->base.body = &efficientnet_body;
    lvn_builder_block(b, "stem");
    conv_norm(b, "features.0", lvni_nn_zoo_channels(b), in, 3, 2, 1, m->stem);
    for (int s = 0; s < STAGES; s++) {
        const int blocks = scale_depth(stages[s].blocks, k->depth);
        for (int i = 0; i < blocks; i++) {
            LVN_TRY(one_block(m, b, s, i, &in));
        }
    }
    LVN_TRY(lvn_builder_status(b)); /* else a block may be NULL */
    set_drops(m, a->drop_path);
    snprintf(top, sizeof top, "features.%d", STAGES + 1);
    lvn_builder_block(b, top);
    conv_norm(b, top, in, TOP * in, 1, 1, 1, m->top);
    make_classifier(m, b, TOP * in);
    return lvn_builder_status(b);
}

/* ---- the classes ---- */

#define EFFICIENTNET(label, w, d)                                                                  \
    {                                                                                              \
        .base = {.name = "efficientnet_" label,                                                    \
                 .size = sizeof(efficientnet),                                                     \
                 .build = efficientnet_build,                                                      \
                 .forward = lvni_nn_zoo_forward,                                                   \
                 .training_step = lvni_nn_zoo_step},                                               \
        .width = (w), .depth = (d)                                                                 \
    }

const lvni_nn_zoo_efficientnet lvni_nn_zoo_efficientnets[LVNI_EFFICIENTNETS] = {
    EFFICIENTNET("b0", 1.0, 1.0),
    EFFICIENTNET("b1", 1.0, 1.1),
    EFFICIENTNET("b2", 1.1, 1.2),
};

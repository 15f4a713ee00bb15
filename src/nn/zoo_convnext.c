/* ConvNeXt (Liu et al. 2022, "A ConvNet for the 2020s", section 2 and appendix A) with the names,
 * shapes and initial values of torchvision: four stages of blocks, each a depthwise 7x7 convolution
 * and a two-layer network of every position, behind layer norms; zoo.c has the table. */
#include "nn/zoo_impl.h"

#include <stdio.h>

enum { MLP_RATIO = 4, MOST_BLOCKS = 27 }; /* in a stage */
static const double EPS = 1e-6;

/* Of PyTorch's trunc_normal_ and zeros. */
static void set_init(lvn_builder *b, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    lvn_builder_set_init(b, full, LVN_INIT_NORMAL, 0.02);
    snprintf(full, sizeof full, "%s.bias", name);
    lvn_builder_set_init(b, full, LVN_INIT_ZEROS, 0.0);
}

/* ---- a block ---- */

/* x + scale * mlp(norm(depthwise(x))) */
typedef struct cn_block {
    lvn_module base;
    int width;
    double drop; /* probability that an image is without the second term */
    lvn_module *depthwise, *norm, *mlp_in, *mlp_out;
    lvn_tensor *scale; /* (width, 1, 1), as in files */
} cn_block;

static lvn_status block_build(lvn_module *module, lvn_builder *b)
{
    cn_block *m = (cn_block *)module;
    const int w = m->width;
    m->depthwise = lvn_nn_conv2d(b, "block.0", w, w, 7, .padding = 3, .groups = w);
    m->norm = lvn_nn_layer_norm(b, "block.2", w, .eps = EPS);
    m->mlp_in = lvn_nn_linear(b, "block.3", w, MLP_RATIO * (int64_t)w);
    m->mlp_out = lvn_nn_linear(b, "block.5", MLP_RATIO * (int64_t)w, w);
    m->scale = lvn_builder_parameter(b, "layer_scale", 3, (const int64_t[]){w, 1, 1},
                                     LVN_INIT_CONSTANT, 1e-6);
    set_init(b, "block.0");
    set_init(b, "block.3");
    set_init(b, "block.5");
    return lvn_builder_status(b);
}

static lvn_tensor *block_forward(const lvn_module *module, lvn_tensor *x) /* (N, h, w, width) */
{
    const cn_block *m = (const cn_block *)module;
    lvn_tensor *y = lvn_forward(m->norm, lvn_forward(m->depthwise, x));
    y = lvn_forward(m->mlp_out, lvn_gelu(lvn_forward(m->mlp_in, y)));
    lvn_tensor *scale = lvn_reshape(m->scale, 4, (const int64_t[]){1, 1, 1, m->width});
    return lvn_add(x, lvni_nn_zoo_branch(module, y, scale, m->drop));
}

static const lvn_module_class block_class = {.name = "convnext_block",
                                             .size = sizeof(cn_block),
                                             .build = block_build,
                                             .forward = block_forward};

/* ---- the network ---- */

typedef struct convnext {
    lvni_nn_zoo_network base;
    lvn_module *smaller[LVNI_CONVNEXT_STAGES], *norm[LVNI_CONVNEXT_STAGES]; /* stem first */
    lvn_module *block[LVNI_CONVNEXT_STAGES][MOST_BLOCKS];
} convnext;

static const lvni_nn_zoo_convnext *kind_of(const convnext *m)
{
    return (const lvni_nn_zoo_convnext *)(const void *)m->base.base.cls;
}

/* The stem cuts the image into patches and normalises them; in front of the other stages the norm
 * comes first. */
static lvn_tensor *convnext_forward(const lvn_module *module, lvn_tensor *x) /* x: (N, S, S, 3) */
{
    const convnext *m = (const convnext *)module;
    for (int s = 0; s < LVNI_CONVNEXT_STAGES; s++) { /* (N, S/32, S/32, 8 width) in the end */
        x = s == 0 ? lvn_forward(m->norm[s], lvn_forward(m->smaller[s], x))
                   : lvn_forward(m->smaller[s], lvn_forward(m->norm[s], x));
        for (int i = 0; i < kind_of(m)->blocks[s]; i++) {
            x = lvn_forward(m->block[s][i], x);
        }
    }
    return x;
}

static const lvni_nn_zoo_body convnext_body = {
    .forward = convnext_forward, .pooled = lvni_nn_zoo_mean, .map = lvni_nn_zoo_last_map};

/* features.{2 s}: what makes the image smaller. */
static void smaller_build(convnext *m, lvn_builder *b, int s, int in, int out)
{
    char conv[32], norm[32];
    const int side = s == 0 ? 4 : 2;
    snprintf(conv, sizeof conv, "features.%d.%d", 2 * s, s == 0 ? 0 : 1);
    snprintf(norm, sizeof norm, "features.%d.%d", 2 * s, s == 0 ? 1 : 0);
    lvn_builder_block(b, s == 0 ? "stem" : conv);
    if (s > 0) {
        m->norm[s] = lvn_nn_layer_norm(b, norm, in, .eps = EPS);
    }
    m->smaller[s] = lvn_nn_conv2d(b, conv, in, out, side, .stride = side);
    set_init(b, conv);
    if (s == 0) {
        m->norm[s] = lvn_nn_layer_norm(b, norm, out, .eps = EPS);
    }
}

/* Block `index` of all `total`: drops of paths grow with the depth. */
static lvn_status one_block(convnext *m, lvn_builder *b, int s, int i, double depth)
{
    const lvni_nn_zoo_arguments *a = lvn_builder_arguments(b);
    char name[32];
    snprintf(name, sizeof name, "features.%d.%d", 2 * s + 1, i);
    lvn_builder_block(b, name);
    cn_block *k = (cn_block *)(void *)lvni_nn_builder_new_module(b, &block_class, name);
    if (k == NULL) {
        return lvn_builder_status(b);
    }
    k->width = kind_of(m)->width << s;
    k->drop = a->drop_path * depth;
    m->block[s][i] = lvni_nn_builder_build(b, &k->base);
    return LVN_OK;
}

static lvn_status convnext_build(lvn_module *module, lvn_builder *b)
{
    convnext *m = (convnext *)module;
    const lvni_nn_zoo_arguments *a = lvn_builder_arguments(b);
    const lvni_nn_zoo_convnext *k = kind_of(m);
    LVN_ARG(a->image_size >= LVNI_CONVNEXT_LEAST,
            "model=%s needs image_size of at least %d, not %d", module->cls->name,
            LVNI_CONVNEXT_LEAST, a->image_size);
    m->base.body = &convnext_body;
    int total = 0, index = 0, in = lvni_nn_zoo_channels(b);
    for (int s = 0; s < LVNI_CONVNEXT_STAGES; s++) {
        total += k->blocks[s];
    }
    for (int s = 0; s < LVNI_CONVNEXT_STAGES; s++) {
        const int out = k->width << s;
        smaller_build(m, b, s, in, out);
        for (int i = 0; i < k->blocks[s]; i++, index++) {
            LVN_TRY(one_block(m, b, s, i, (double)index / (double)(total - 1)));
        }
        in = out;
    }
    if (a->n_classes > 0) {
        lvn_builder_block(b, "head");
        m->base.head_norm = lvn_nn_layer_norm(b, "classifier.0", in, .eps = EPS);
        lvni_nn_zoo_make_head(&m->base, b, "classifier.2", in);
        set_init(b, "classifier.2");
    }
    return lvn_builder_status(b);
}

/* ---- the classes ---- */

#define CONVNEXT(label, drop, w, ...)                                                              \
    {                                                                                              \
        .base = {.name = "convnext_" label,                                                        \
                 .size = sizeof(convnext),                                                         \
                 .build = convnext_build,                                                          \
                 .forward = lvni_nn_zoo_forward,                                                   \
                 .training_step = lvni_nn_zoo_step},                                               \
        .width = (w), .blocks = {__VA_ARGS__}, .drop_path = (drop)                                 \
    }

const lvni_nn_zoo_convnext lvni_nn_zoo_convnexts[LVNI_CONVNEXTS] = {
    CONVNEXT("tiny", 0.1, 96, 3, 3, 9, 3),
    CONVNEXT("small", 0.4, 96, 3, 3, 27, 3),
    CONVNEXT("base", 0.5, 128, 3, 3, 27, 3),
    CONVNEXT("large", 0.5, 192, 3, 3, 27, 3),
};

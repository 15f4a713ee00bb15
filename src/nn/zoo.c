/* The models of `model=NAME`: classifiers of images (N, S, S, 3) -> logits (N, classes). cnn, mlp,
 * residual networks, vision transformers, and at the end the table of them. Each is a body, what is
 * pooled of it, and a linear layer: features of a backbone and logits come from the same code. */
#include "nn/builder_impl.h"

#include "core/math.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A network in front of its classifier. */
typedef struct body {
    lvn_tensor *(*forward)(const lvn_module *m, lvn_tensor *x);
    /* of what forward returned: (N, C), and (N, h, w, C); map NULL: there is none */
    lvn_tensor *(*pooled)(const lvn_module *m, lvn_tensor *y);
    lvn_tensor *(*map)(const lvn_module *m, lvn_tensor *y);
} body;

/* What every network begins with. */
typedef struct network {
    lvn_module base;
    const body *body;
    lvn_module *dropout, *head;
} network;

static void make_head(network *m, lvn_builder *b, const char *name, int64_t features)
{
    const lvni_nn_zoo_arguments *a = lvn_builder_arguments(b);
    m->dropout = lvn_nn_dropout(b, "dropout", a->dropout);
    m->head = lvn_nn_linear(b, name, features, a->n_classes);
}

static lvn_tensor *classifier_forward(const lvn_module *module, lvn_tensor *x) /* (N, S, S, 3) */
{
    const network *m = (const network *)module;
    x = m->body->pooled(module, m->body->forward(module, x));
    return lvn_forward(m->head, lvn_forward(m->dropout, x));
}

static lvn_tensor *mean_of_positions(const lvn_module *module, lvn_tensor *y)
{
    (void)module;
    return lvn_global_avg_pool2d(y);
}

static lvn_tensor *as_it_is(const lvn_module *module, lvn_tensor *y)
{
    (void)module;
    return y;
}

/* Every classifier trains on the mean cross entropy. */
static lvn_tensor *classifier_step(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *logits = lvn_forward(m, batch->image);
    lvn_tensor *loss = lvn_cross_entropy(logits, batch->label);
    lvn_log(step, "loss", loss);
    lvn_log(step, "acc", lvn_accuracy(logits, batch->label));
    return loss;
}

/* ---- the small ones: cnn and mlp ---- */

/* Three stages of 3x3 convolution, batch norm, relu; halved twice; averaged. 94 k weights. */
typedef struct cnn {
    network base;
    lvn_module *conv[3], *norm[3];
} cnn;

static lvn_tensor *cnn_forward(const lvn_module *module, lvn_tensor *x) /* x: (N, S, S, 3) */
{
    const cnn *m = (const cnn *)module;
    for (int i = 0; i < 3; i++) {
        x = lvn_forward(m->norm[i], lvn_forward(m->conv[i], x));
        if (i < 2) {
            x = lvn_max_pool2d(x, 2); /* (N, S/2, S/2, 32), (N, S/4, S/4, 64) */
        }
    }
    return x; /* (N, S/4, S/4, 128) */
}

static const body cnn_body = {.forward = cnn_forward, .pooled = mean_of_positions, .map = as_it_is};

static lvn_status cnn_build(lvn_module *module, lvn_builder *b)
{
    cnn *m = (cnn *)module;
    const lvni_nn_zoo_arguments *a = lvn_builder_arguments(b);
    LVN_ARG(a->image_size >= 4, "model=cnn needs image_size of at least 4, not %d", a->image_size);
    m->base.body = &cnn_body;
    lvn_builder_block(b, "stage1");
    m->conv[0] = lvn_nn_conv2d(b, "conv1", 3, 32, 3, .padding = 1, .no_bias = true);
    m->norm[0] = lvn_nn_batch_norm(b, "norm1", 32, 0.1, .relu = true);
    lvn_builder_block(b, "stage2");
    m->conv[1] = lvn_nn_conv2d(b, "conv2", 32, 64, 3, .padding = 1, .no_bias = true);
    m->norm[1] = lvn_nn_batch_norm(b, "norm2", 64, 0.1, .relu = true);
    lvn_builder_block(b, "stage3");
    m->conv[2] = lvn_nn_conv2d(b, "conv3", 64, 128, 3, .padding = 1, .no_bias = true);
    m->norm[2] = lvn_nn_batch_norm(b, "norm3", 128, 0.1, .relu = true);
    lvn_builder_block(b, "head");
    make_head(&m->base, b, "head", 128);
    return lvn_builder_status(b);
}

/* Two hidden layers of 256. */
typedef struct mlp {
    network base;
    lvn_module *fc1, *fc2;
} mlp;

static lvn_tensor *mlp_forward(const lvn_module *module, lvn_tensor *x)
{
    const mlp *m = (const mlp *)module;
    x = lvn_relu(lvn_forward(m->fc1, lvn_flatten(x, 1)));
    return lvn_relu(lvn_forward(m->fc2, x));
}

static const body mlp_body = {.forward = mlp_forward, .pooled = as_it_is};

static lvn_status mlp_build(lvn_module *module, lvn_builder *b)
{
    mlp *m = (mlp *)module;
    const lvni_nn_zoo_arguments *a = lvn_builder_arguments(b);
    const int64_t s = a->image_size;
    m->base.body = &mlp_body;
    lvn_builder_block(b, "fc1");
    m->fc1 = lvn_nn_linear(b, "fc1", s * s * 3, 256, .image = {s, s, 3});
    lvn_builder_block(b, "fc2");
    m->fc2 = lvn_nn_linear(b, "fc2", 256, 256);
    lvn_builder_block(b, "head");
    make_head(&m->base, b, "head", 256);
    return lvn_builder_status(b);
}

static const lvn_module_class cnn_class = {.name = "cnn",
                                           .size = sizeof(cnn),
                                           .build = cnn_build,
                                           .forward = classifier_forward,
                                           .training_step = classifier_step};
static const lvn_module_class mlp_class = {.name = "mlp",
                                           .size = sizeof(mlp),
                                           .build = mlp_build,
                                           .forward = classifier_forward,
                                           .training_step = classifier_step};

/* ---- residual networks ----
 * He et al. 2016, "Deep residual learning for image recognition", table 1, with the names, shapes
 * and initial values of torchvision; the bottleneck halves the image in its 3x3 convolution, as
 * there. */

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

enum { MOST_BLOCKS = 36 }; /* in a stage */

typedef struct resnet {
    network base;
    lvn_module *stem[2], *block[STAGES][MOST_BLOCKS];
    int n_blocks[STAGES];
} resnet;

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
    return x;
}

static const body resnet_body = {
    .forward = resnet_forward, .pooled = mean_of_positions, .map = as_it_is};

static lvn_status resnet_build(resnet *m, lvn_builder *b, const int n_blocks[STAGES],
                               bool bottleneck)
{
    m->base.body = &resnet_body;
    lvn_builder_block(b, "stem");
    conv_norm(b, "conv1", "bn1", 3, 64, 7, 2, true, m->stem);
    int in = 64;
    for (int s = 0; s < STAGES; s++) {
        m->n_blocks[s] = n_blocks[s];
        for (int i = 0; i < n_blocks[s]; i++) {
            char name[32];
            snprintf(name, sizeof name, "layer%d.%d", s + 1, i);
            lvn_builder_block(b, name);
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
    lvn_builder_block(b, "head");
    make_head(&m->base, b, "fc", in);
    return lvn_builder_status(b);
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

static lvn_status resnet101_build(lvn_module *module, lvn_builder *b)
{
    return resnet_build((resnet *)module, b, (const int[]){3, 4, 23, 3}, true);
}

static lvn_status resnet152_build(lvn_module *module, lvn_builder *b)
{
    return resnet_build((resnet *)module, b, (const int[]){3, 8, 36, 3}, true);
}

#define RESNET(depth)                                                                              \
    static const lvn_module_class resnet##depth##_class = {.name = "resnet" #depth,                \
                                                           .size = sizeof(resnet),                 \
                                                           .build = resnet##depth##_build,         \
                                                           .forward = classifier_forward,          \
                                                           .training_step = classifier_step}
RESNET(18);
RESNET(34);
RESNET(50);
RESNET(101);
RESNET(152);

/* ---- vision transformers ----
 * Dosovitskiy et al. 2021, "An image is worth 16x16 words", table 1, with the names, shapes and
 * initial values of torchvision; the small one (Touvron et al. 2021, table 1) likewise. Images of
 * another size than the one that it is built for, such as small crops beside large ones, have its
 * position embeddings interpolated (Caron et al. 2021, "Emerging properties in self-supervised
 * vision transformers"). */

enum { PATCH = 16, MLP_RATIO = 4, LAYERS = 12 };
static const double EPS = 1e-6;

/* x + attention(ln_1(x)), then x + mlp(ln_2(x)). */
typedef struct encoder_block {
    lvn_module base;
    int width, heads;
    lvn_module *ln_1, *ln_2, *out_proj, *mlp_in, *mlp_out;
    /* (3 width, width), (3 width): q, k, v one after the other */
    lvn_tensor *in_proj_weight, *in_proj_bias;
} encoder_block;

/* Uniform with variance 2 / (fan in + fan out) (Glorot & Bengio 2010, eq. 16). */
static double glorot(int in, int out)
{
    return lvni_core_sqrt(6.0 / (double)(in + out));
}

static lvn_status encoder_build(lvn_module *module, lvn_builder *b)
{
    encoder_block *m = (encoder_block *)module;
    const int w = m->width;
    m->ln_1 = lvn_nn_layer_norm(b, "ln_1", w, .eps = EPS);
    m->in_proj_weight = lvn_builder_parameter(b, "self_attention.in_proj_weight", 2,
                                              (const int64_t[]){3 * (int64_t)w, w},
                                              LVN_INIT_UNIFORM, glorot(w, 3 * w));
    m->in_proj_bias = lvn_builder_parameter(b, "self_attention.in_proj_bias", 1,
                                            (const int64_t[]){3 * (int64_t)w}, LVN_INIT_ZEROS, 0.0);
    m->out_proj = lvn_nn_linear(b, "self_attention.out_proj", w, w);
    m->ln_2 = lvn_nn_layer_norm(b, "ln_2", w, .eps = EPS);
    m->mlp_in = lvn_nn_linear(b, "mlp.0", w, MLP_RATIO * (int64_t)w);
    m->mlp_out = lvn_nn_linear(b, "mlp.3", MLP_RATIO * (int64_t)w, w);
    lvn_builder_set_init(b, "self_attention.out_proj.bias", LVN_INIT_ZEROS, 0.0);
    static const char *const linear[] = {"mlp.0", "mlp.3"};
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.weight", linear[i]);
        lvn_builder_set_init(b, name, LVN_INIT_UNIFORM, glorot(w, MLP_RATIO * w));
        snprintf(name, sizeof name, "%s.bias", linear[i]);
        lvn_builder_set_init(b, name, LVN_INIT_NORMAL, 1e-6);
    }
    return lvn_builder_status(b);
}

static lvn_tensor *encoder_forward(const lvn_module *module, lvn_tensor *x) /* (N, T, width) */
{
    const encoder_block *m = (const encoder_block *)module;
    if (x == NULL) {
        return NULL;
    }
    const int64_t n = lvn_size(x, 0), t = lvn_size(x, 1), w = m->width;
    lvn_tensor *qkv = lvn_linear(lvn_forward(m->ln_1, x), m->in_proj_weight, m->in_proj_bias);
    qkv = lvn_reshape(qkv, 5, (const int64_t[]){n, t, 3, m->heads, w / m->heads});
    lvn_tensor *y = lvn_reshape(lvn_attention_qkv(qkv), 3, (const int64_t[]){n, t, w});
    x = lvn_add(x, lvn_forward(m->out_proj, y));
    y = lvn_gelu(lvn_forward(m->mlp_in, lvn_forward(m->ln_2, x)));
    return lvn_add(x, lvn_forward(m->mlp_out, y));
}

static const lvn_module_class encoder_class = {.name = "vit_block",
                                               .size = sizeof(encoder_block),
                                               .build = encoder_build,
                                               .forward = encoder_forward};

typedef struct vit {
    network base;
    int64_t width, grid, tokens; /* tokens: 1 + grid^2 */
    lvn_module *conv_proj, *layer[LAYERS], *ln;
    lvn_tensor *class_token, *pos_embedding; /* (1, 1, width), (1, T, width) */
} vit;

/* (1, 1 + grid^2, width) */
static lvn_tensor *positions(const vit *m, int64_t grid)
{
    if (grid == m->grid) {
        return m->pos_embedding;
    }
    lvn_tensor *patches = lvn_reshape(lvn_slice(m->pos_embedding, 1, 1, m->tokens), 4,
                                      (const int64_t[]){1, m->grid, m->grid, m->width});
    patches = lvn_resize2d(patches, grid, grid, .mode = LVN_RESIZE_BICUBIC);
    lvn_tensor *all[] = {lvn_slice(m->pos_embedding, 1, 0, 1),
                         lvn_reshape(patches, 3, (const int64_t[]){1, grid * grid, m->width})};
    return lvn_concat(all, 2, 1);
}

/* (N, 1 + grid^2, width) of square images */
static lvn_tensor *vit_forward(const lvn_module *module, lvn_tensor *x) /* x: (N, S, S, 3) */
{
    const vit *m = (const vit *)module;
    const int64_t n = lvn_size(x, 0), side = lvn_size(x, 1), grid = side / PATCH, w = m->width;
    if (side % PATCH != 0 || lvn_size(x, 2) != side) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                      "model=%s cuts square images into patches of %d pixels: %lld x %lld is not a "
                      "multiple of it",
                      module->cls->name, PATCH, (long long)side, (long long)lvn_size(x, 2));
        return NULL;
    }
    x = lvn_reshape(lvn_forward(m->conv_proj, x), 3, (const int64_t[]){n, grid * grid, w});
    lvn_tensor *all[] = {lvn_expand(m->class_token, 3, (const int64_t[]){n, 1, w}), x};
    x = lvn_add(lvn_concat(all, 2, 1), positions(m, grid));
    for (int i = 0; i < LAYERS; i++) {
        x = lvn_forward(m->layer[i], x);
    }
    return x;
}

/* Tokens first .. end - 1, normalised, as (N (end - first), width). */
static lvn_tensor *normalised_tokens(const vit *m, lvn_tensor *y, int64_t first, int64_t end)
{
    y = lvn_reshape(lvn_slice(y, 1, first, end), 2, (const int64_t[]){-1, m->width});
    return lvn_forward(m->ln, y);
}

/* The class token; the others are not used. */
static lvn_tensor *class_token(const lvn_module *module, lvn_tensor *y)
{
    return normalised_tokens((const vit *)module, y, 0, 1);
}

static lvn_tensor *patch_tokens(const lvn_module *module, lvn_tensor *y)
{
    const vit *m = (const vit *)module;
    const int64_t tokens = lvn_size(y, 1);
    int64_t grid = 1;
    while (grid * grid < tokens - 1) {
        grid++;
    }
    return lvn_reshape(normalised_tokens(m, y, 1, tokens), 4,
                       (const int64_t[]){-1, grid, grid, m->width});
}

static const body vit_body = {.forward = vit_forward, .pooled = class_token, .map = patch_tokens};

static lvn_status vit_build(vit *m, lvn_builder *b, int width, int heads)
{
    const lvni_nn_zoo_arguments *a = lvn_builder_arguments(b);
    LVN_ARG(a->image_size % PATCH == 0,
            "model=%s cuts images into patches of %d pixels: image_size must be a multiple of "
            "it, not %d",
            m->base.base.cls->name, PATCH, a->image_size);
    m->base.body = &vit_body;
    m->width = width;
    m->grid = a->image_size / PATCH;
    m->tokens = m->grid * m->grid + 1;
    lvn_builder_block(b, "embeddings");
    m->class_token = lvn_builder_parameter(b, "class_token", 3, (const int64_t[]){1, 1, width},
                                           LVN_INIT_ZEROS, 0.0);
    m->conv_proj = lvn_nn_conv2d(b, "conv_proj", 3, width, PATCH, .stride = PATCH);
    lvn_builder_set_init(b, "conv_proj.weight", LVN_INIT_NORMAL,
                         lvni_core_sqrt(1.0 / (3.0 * PATCH * PATCH)));
    lvn_builder_set_init(b, "conv_proj.bias", LVN_INIT_ZEROS, 0.0);
    m->pos_embedding =
        lvn_builder_parameter(b, "encoder.pos_embedding", 3, (const int64_t[]){1, m->tokens, width},
                              LVN_INIT_NORMAL, 0.02);
    for (int i = 0; i < LAYERS; i++) {
        char name[48];
        snprintf(name, sizeof name, "encoder.layers.encoder_layer_%d", i);
        lvn_builder_block(b, name);
        encoder_block *k =
            (encoder_block *)(void *)lvni_nn_builder_new_module(b, &encoder_class, name);
        if (k == NULL) {
            return lvn_builder_status(b);
        }
        k->width = width;
        k->heads = heads;
        m->layer[i] = lvni_nn_builder_build(b, &k->base);
    }
    lvn_builder_block(b, "head");
    m->ln = lvn_nn_layer_norm(b, "encoder.ln", width, .eps = EPS);
    make_head(&m->base, b, "heads.head", width);
    lvn_builder_set_init(b, "heads.head.weight", LVN_INIT_ZEROS, 0.0);
    lvn_builder_set_init(b, "heads.head.bias", LVN_INIT_ZEROS, 0.0);
    return lvn_builder_status(b);
}

static lvn_status vit_s_16_build(lvn_module *module, lvn_builder *b)
{
    return vit_build((vit *)module, b, 384, 6);
}

static lvn_status vit_b_16_build(lvn_module *module, lvn_builder *b)
{
    return vit_build((vit *)module, b, 768, 12);
}

#define VIT(letter)                                                                                \
    static const lvn_module_class vit_##letter##_16_class = {.name = "vit_" #letter "_16",         \
                                                             .size = sizeof(vit),                  \
                                                             .build = vit_##letter##_16_build,     \
                                                             .forward = classifier_forward,        \
                                                             .training_step = classifier_step}
VIT(s);
VIT(b);

/* ---- the table ---- */

static const struct {
    const lvn_module_class *cls;
    int features;
    double dropout;
    bool any_size;
} zoo[] = {
    {&cnn_class, .features = 128, .dropout = 0.1, .any_size = true},
    {&mlp_class, .features = 256, .dropout = 0.1},
    {&resnet18_class, .features = 512, .any_size = true},
    {&resnet34_class, .features = 512, .any_size = true},
    {&resnet50_class, .features = 2048, .any_size = true},
    {&resnet101_class, .features = 2048, .any_size = true},
    {&resnet152_class, .features = 2048, .any_size = true},
    {&vit_s_16_class, .features = 384},
    {&vit_b_16_class, .features = 768},
};

static int index_of(const char *name)
{
    for (int i = 0; i < (int)(sizeof zoo / sizeof *zoo); i++) {
        if (strcmp(zoo[i].cls->name, name) == 0) {
            return i;
        }
    }
    return -1;
}

const char *lvni_nn_zoo_respell(const char *text)
{
    static const char *const libraries[] = {"torchvision/", "torchvision.models.", "timm/",
                                            "hf-hub:timm/", "hf_hub:timm/"};
    static const char *const others[][2] = {{"resnet18", "resnet18"},
                                            {"resnet34", "resnet34"},
                                            {"resnet50", "resnet50"},
                                            {"resnet101", "resnet101"},
                                            {"resnet152", "resnet152"},
                                            {"vit_s_16", "vit_s_16"},
                                            {"vit_b_16", "vit_b_16"},
                                            {"vit_small_patch16_224", "vit_s_16"},
                                            {"vit_base_patch16_224", "vit_b_16"}};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        const size_t n = strlen(libraries[i]);
        if (strncasecmp(text, libraries[i], n) == 0) {
            text += n;
            break;
        }
    }
    const size_t n = strcspn(text, "."); /* what follows names the weights: .a1_in1k */
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strlen(others[i][0]) == n && strncasecmp(text, others[i][0], n) == 0) {
            return others[i][1];
        }
    }
    return NULL;
}

const lvn_module_class *lvni_nn_zoo_find(const char *name)
{
    const char *here = lvni_nn_zoo_respell(name);
    const int i = index_of(here != NULL ? here : name);
    return i < 0 ? NULL : zoo[i].cls;
}

bool lvni_nn_zoo_any_size(const char *name)
{
    const int i = index_of(name);
    return i >= 0 && zoo[i].any_size;
}

double lvni_nn_zoo_dropout(const char *name)
{
    const int i = index_of(name);
    return i < 0 ? 0.0 : zoo[i].dropout;
}

/* ---- as the backbone of another model ---- */

int lvni_nn_zoo_feature_dim(const char *name)
{
    const lvn_module_class *cls = lvni_nn_zoo_find(name);
    return cls == NULL ? 0 : zoo[index_of(cls->name)].features;
}

lvn_module *lvni_nn_zoo_backbone(lvn_builder *b, const char *name, const char *model,
                                 const lvni_nn_zoo_arguments *arguments)
{
    const void *outside = b->arguments;
    b->arguments = arguments;
    lvn_module *m = lvn_builder_child(b, lvni_nn_zoo_find(model), name);
    b->arguments = outside;
    if (m != NULL && lvni_nn_builder_fix(b, ((const network *)m)->head) != LVN_OK) {
        return NULL;
    }
    return m;
}

lvn_tensor *lvni_nn_zoo_pooled(const lvn_module *module, lvn_tensor *x)
{
    const network *m = (const network *)module;
    lvn_tensor *y = lvni_nn_module_run(module, x, m->body->forward);
    return y == NULL ? NULL : m->body->pooled(module, y);
}

lvni_nn_features lvni_nn_zoo_features(const lvn_module *module, lvn_tensor *x)
{
    const network *m = (const network *)module;
    lvn_tensor *y = lvni_nn_module_run(module, x, m->body->forward);
    if (y == NULL) {
        return (lvni_nn_features){0};
    }
    return (lvni_nn_features){.map = m->body->map == NULL ? NULL : m->body->map(module, y),
                              .pooled = m->body->pooled(module, y)};
}

/* Vision transformers (Dosovitskiy et al. 2021, "An image is worth 16x16 words", table 1) with the
 * names, shapes and initial values of torchvision; the small one (Touvron et al. 2021, table 1)
 * likewise. Tokens are kept as rows (N T, width). */
#include "nn/zoo_impl.h"

#include "core/math.h"

#include <stdio.h>

enum { PATCH = 16, MLP_RATIO = 4, LAYERS = 12 };
static const double EPS = 1e-6;

/* x + attention(ln_1(x)), then x + mlp(ln_2(x)). */
typedef struct encoder_block {
    lvn_module base;
    int width, heads;
    int64_t tokens;
    lvn_module *ln_1, *ln_2, *out_proj, *mlp_in, *mlp_out;
    /* (3 width, width), (3 width): q, k, v one after the other */
    lvn_tensor *in_proj_weight, *in_proj_bias;
} encoder_block;

/* Uniform with variance 2 / (fan in + fan out) (Glorot & Bengio 2010, eq. 16). */
static double glorot(int in, int out)
{
    return lvni_core_sqrt(6.0 / (double)(in + out));
}

static lvn_status block_build(lvn_module *module, lvn_builder *b)
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
    static const char *const mlp[] = {"mlp.0", "mlp.3"};
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.weight", mlp[i]);
        lvn_builder_set_init(b, name, LVN_INIT_UNIFORM, glorot(w, MLP_RATIO * w));
        snprintf(name, sizeof name, "%s.bias", mlp[i]);
        lvn_builder_set_init(b, name, LVN_INIT_NORMAL, 1e-6);
    }
    return lvn_builder_status(b);
}

static lvn_tensor *block_forward(const lvn_module *module, lvn_tensor *x) /* (N T, width) */
{
    const encoder_block *m = (const encoder_block *)module;
    lvn_tensor *qkv = lvn_linear(lvn_forward(m->ln_1, x), m->in_proj_weight, m->in_proj_bias);
    qkv = lvn_reshape(qkv, 5, (const int64_t[]){-1, m->tokens, 3, m->heads, m->width / m->heads});
    lvn_tensor *y = lvn_reshape(lvn_attention_qkv(qkv), 2, (const int64_t[]){-1, m->width});
    x = lvn_add(x, lvn_forward(m->out_proj, y));
    y = lvn_gelu(lvn_forward(m->mlp_in, lvn_forward(m->ln_2, x)));
    return lvn_add(x, lvn_forward(m->mlp_out, y));
}

static const lvn_module_class block_class = {.name = "vit_block",
                                             .size = sizeof(encoder_block),
                                             .build = block_build,
                                             .forward = block_forward};

typedef struct vit {
    lvn_module base;
    int64_t width, tokens;
    lvn_module *conv_proj, *layer[LAYERS], *ln, *dropout, *head;
    lvn_tensor *class_token, *pos_embedding; /* (1, 1, width), (1, T, width) */
} vit;

static lvn_status vit_build(vit *m, lvn_builder *b, int width, int heads)
{
    const lvni_nn_zoo_arguments *a = lvni_nn_builder_arguments(b);
    LVN_ARG(a->image_size % PATCH == 0,
            "model=%s cuts images into patches of %d pixels: image_size must be a multiple of "
            "it, not %d",
            m->base.cls->name, PATCH, a->image_size);
    const int64_t grid = a->image_size / PATCH;
    m->width = width;
    m->tokens = grid * grid + 1;
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
        encoder_block *k =
            (encoder_block *)(void *)lvni_nn_builder_new_module(b, &block_class, name);
        if (k == NULL) {
            return lvn_builder_status(b);
        }
        k->width = width;
        k->heads = heads;
        k->tokens = m->tokens;
        m->layer[i] = lvni_nn_builder_build(b, &k->base);
    }
    m->ln = lvn_nn_layer_norm(b, "encoder.ln", width, .eps = EPS);
    m->dropout = lvn_nn_dropout(b, "dropout", a->dropout);
    m->head = lvn_nn_linear(b, "heads.head", width, a->n_classes);
    lvn_builder_set_init(b, "heads.head.weight", LVN_INIT_ZEROS, 0.0);
    lvn_builder_set_init(b, "heads.head.bias", LVN_INIT_ZEROS, 0.0);
    return lvn_builder_status(b);
}

static lvn_tensor *vit_forward(const lvn_module *module, lvn_tensor *x) /* x: (N, S, S, 3) */
{
    const vit *m = (const vit *)module;
    const int64_t n = lvn_size(x, 0), w = m->width;
    x = lvn_reshape(lvn_forward(m->conv_proj, x), 3, (const int64_t[]){n, m->tokens - 1, w});
    lvn_tensor *all[] = {lvn_expand(m->class_token, 3, (const int64_t[]){n, 1, w}), x};
    x = lvn_add(lvn_concat(all, 2, 1), m->pos_embedding); /* (N, T, width) */
    x = lvn_reshape(x, 2, (const int64_t[]){n * m->tokens, w});
    for (int i = 0; i < LAYERS; i++) {
        x = lvn_forward(m->layer[i], x);
    }
    /* the class token: nobody looks at the others */
    x = lvn_slice(lvn_reshape(x, 3, (const int64_t[]){n, m->tokens, w}), 1, 0, 1);
    x = lvn_forward(m->ln, lvn_reshape(x, 2, (const int64_t[]){n, w}));
    return lvn_forward(m->head, lvn_forward(m->dropout, x));
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
    const lvn_module_class lvni_nn_zoo_vit_##letter##_16 = {.name = "vit_" #letter "_16",          \
                                                            .size = sizeof(vit),                   \
                                                            .build = vit_##letter##_16_build,      \
                                                            .forward = vit_forward,                \
                                                            .training_step =                       \
                                                                lvni_nn_zoo_classifier_step}
VIT(s);
VIT(b);

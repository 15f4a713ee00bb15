/* The vision transformers of the zoo (zoo.c has its table): Dosovitskiy et al. 2021, "An image is
 * worth 16x16 words", table 1, and the small ones (Touvron et al. 2021, table 1), with the names,
 * shapes and initial values of torchvision, of timm, and of DINOv2 (Oquab et al. 2023), which adds
 * layer scale, register tokens (Darcet et al. 2023) and stochastic depth (Huang et al. 2016).
 *
 * Images of another size than the one that positions are for, such as small crops beside large
 * ones, have them interpolated (Caron et al. 2021, "Emerging properties in self-supervised vision
 * transformers"), as the family does it. Those of that paper are here, too, as Hugging Face runs
 * them: with patches of 16 pixels and a filter without antialiasing. */
#include "nn/zoo_impl.h"

#include "core/math.h"

#include <stdio.h>
#include <string.h>

enum { LAYERS = LVNI_ZOO_LAYERS }; /* at most */
enum { MLP_RATIO = 4 };            /* where a network has none of its own */
static const double EPS = 1e-6;    /* of norms, where a family has none of its own */

typedef lvni_nn_vit_family family;

/* ---- the families ---- */

static const family torchvision = {.class_token = "class_token",
                                   .positions = "encoder.pos_embedding",
                                   .patches = "conv_proj",
                                   .layer = "encoder.layers.encoder_layer_",
                                   .norm_1 = "ln_1",
                                   .qkv_weight = "self_attention.in_proj_weight",
                                   .qkv_bias = "self_attention.in_proj_bias",
                                   .out = "self_attention.out_proj",
                                   .norm_2 = "ln_2",
                                   .mlp_in = "mlp.0",
                                   .mlp_out = "mlp.3",
                                   .norm = "encoder.ln",
                                   .head = "heads.head",
                                   .patch = 16,
                                   .glorot = true};

#define NAMES_OF_TIMM                                                                              \
    .class_token = "cls_token", .positions = "pos_embed", .patches = "patch_embed.proj",           \
    .layer = "blocks.", .norm_1 = "norm1", .qkv_weight = "attn.qkv.weight",                        \
    .qkv_bias = "attn.qkv.bias", .out = "attn.proj", .norm_2 = "norm2", .mlp_in = "mlp.fc1",       \
    .mlp_out = "mlp.fc2", .norm = "norm", .head = "head"
static const family timm = {NAMES_OF_TIMM, .patch = 16};
static const family dino = {NAMES_OF_TIMM, .patch = 16, .eps = 1e-12, .token = 0.02,
                            .no_classifier = true};
static const family dinov2 = {NAMES_OF_TIMM,      .patch = 14,          .layer_scale = true,
                              .mask_token = true, .uniform_drop = true, .no_classifier = true};

/* ---- a layer ---- */

/* x + attention(norm_1(x)), then x + mlp(norm_2(x)); the second terms times a scale. */
typedef struct encoder_block {
    lvn_module base;
    const family *of;
    int width, heads, mlp; /* mlp: width of its hidden layer */
    double drop;           /* probability that an image is without the second term */
    lvn_module *norm_1, *norm_2, *out, *mlp_in, *mlp_out;
    /* (3 width, width), (3 width): q, k, v one after the other */
    lvn_tensor *qkv_weight, *qkv_bias;
    lvn_tensor *scale[2]; /* (width); NULL: 1 */
} encoder_block;

static lvn_module *new_norm(lvn_builder *b, const family *f, const char *name, int64_t width)
{
    return lvn_nn_layer_norm(b, name, width, .eps = f->eps > 0.0 ? f->eps : EPS);
}

/* Uniform with variance 2 / (fan in + fan out) (Glorot & Bengio 2010, eq. 16). */
static double glorot(int in, int out)
{
    return lvni_core_sqrt(6.0 / (double)(in + out));
}

/* `name`.weight and `name`.bias; bias: its deviation. */
static void set_init(lvn_builder *b, const family *f, const char *name, double bound, double bias)
{
    char full[64];
    if (bound > 0.0 || !f->glorot) {
        snprintf(full, sizeof full, "%s.weight", name);
        lvn_builder_set_init(b, full, f->glorot ? LVN_INIT_UNIFORM : LVN_INIT_NORMAL,
                             f->glorot ? bound : 0.02);
    }
    snprintf(full, sizeof full, "%s.bias", name);
    lvn_builder_set_init(b, full, f->glorot && bias > 0.0 ? LVN_INIT_NORMAL : LVN_INIT_ZEROS, bias);
}

static lvn_tensor *new_scale(lvn_builder *b, const family *f, const char *name, int64_t width)
{
    return f->layer_scale ? lvn_builder_parameter(b, name, 1, &width, LVN_INIT_CONSTANT, 1e-5)
                          : NULL;
}

static lvn_status encoder_build(lvn_module *module, lvn_builder *b)
{
    encoder_block *m = (encoder_block *)module;
    const family *f = m->of;
    const int w = m->width;
    m->norm_1 = new_norm(b, f, f->norm_1, w);
    m->qkv_weight = lvn_builder_parameter(b, f->qkv_weight, 2, (const int64_t[]){3 * (int64_t)w, w},
                                          f->glorot ? LVN_INIT_UNIFORM : LVN_INIT_NORMAL,
                                          f->glorot ? glorot(w, 3 * w) : 0.02);
    m->qkv_bias = lvn_builder_parameter(b, f->qkv_bias, 1, (const int64_t[]){3 * (int64_t)w},
                                        LVN_INIT_ZEROS, 0.0);
    m->out = lvn_nn_linear(b, f->out, w, w);
    m->scale[0] = new_scale(b, f, "ls1.gamma", w);
    m->norm_2 = new_norm(b, f, f->norm_2, w);
    m->mlp_in = lvn_nn_linear(b, f->mlp_in, w, m->mlp);
    m->mlp_out = lvn_nn_linear(b, f->mlp_out, m->mlp, w);
    m->scale[1] = new_scale(b, f, "ls2.gamma", w);
    set_init(b, f, f->out, 0.0, 0.0);
    set_init(b, f, f->mlp_in, glorot(w, m->mlp), 1e-6);
    set_init(b, f, f->mlp_out, glorot(w, m->mlp), 1e-6);
    return lvn_builder_status(b);
}

static lvn_tensor *encoder_forward(const lvn_module *module, lvn_tensor *x) /* (N, T, width) */
{
    const encoder_block *m = (const encoder_block *)module;
    if (x == NULL) {
        return NULL;
    }
    const int64_t n = lvn_size(x, 0), t = lvn_size(x, 1), w = m->width;
    lvn_tensor *qkv = lvn_linear(lvn_forward(m->norm_1, x), m->qkv_weight, m->qkv_bias);
    qkv = lvn_reshape(qkv, 5, (const int64_t[]){n, t, 3, m->heads, w / m->heads});
    lvn_tensor *y = lvn_reshape(lvn_attention_qkv(qkv), 3, (const int64_t[]){n, t, w});
    x = lvn_add(x, lvni_nn_zoo_branch(module, lvn_forward(m->out, y), m->scale[0], m->drop));
    y = lvn_gelu(lvn_forward(m->mlp_in, lvn_forward(m->norm_2, x)));
    return lvn_add(x, lvni_nn_zoo_branch(module, lvn_forward(m->mlp_out, y), m->scale[1], m->drop));
}

static const lvn_module_class encoder_class = {.name = "vit_block",
                                               .size = sizeof(encoder_block),
                                               .build = encoder_build,
                                               .forward = encoder_forward};

/* ---- the network ---- */

typedef struct vit {
    lvni_nn_zoo_network base;
    int64_t width, grid, tokens; /* tokens: 1 + grid^2 */
    int layers;
    lvn_module *patches, *layer[LAYERS], *norm;
    /* (1, 1, width), (1, T, width), (1, registers, width) or NULL, (1, width) or NULL */
    lvn_tensor *class_token, *positions, *registers, *mask_token;
} vit;

static const lvni_nn_zoo_vit *kind_of(const vit *m)
{
    return (const lvni_nn_zoo_vit *)(const void *)m->base.base.cls;
}

/* Those of patches, (1, h w, width), for h x w of them. */
static lvn_tensor *patch_positions(const vit *m, int64_t h, int64_t w)
{
    const lvni_nn_zoo_vit *k = kind_of(m);
    lvn_tensor *own = lvn_slice(m->positions, 1, 1, m->tokens);
    if (h == m->grid && w == m->grid) {
        return own;
    }
    own = lvn_reshape(own, 4, (const int64_t[]){1, m->grid, m->grid, m->width});
    const double grid = (double)m->grid, offset = k->offset,
                 down = offset > 0.0 ? ((double)h + offset) / grid : 0.0,
                 across = offset > 0.0 ? ((double)w + offset) / grid : 0.0;
    own = lvn_resize2d(own, h, w, .mode = LVN_RESIZE_BICUBIC, .antialias = k->antialias,
                       .scale = {down, across});
    return lvn_reshape(own, 3, (const int64_t[]){1, h * w, m->width});
}

/* (1, 1 + h w, width) */
static lvn_tensor *positions(const vit *m, int64_t h, int64_t w)
{
    if (h == m->grid && w == m->grid) {
        return m->positions;
    }
    lvn_tensor *all[] = {lvn_slice(m->positions, 1, 0, 1), patch_positions(m, h, w)};
    return lvn_concat(all, 2, 1);
}

/* Registers have no position: class token, registers, patches. */
static lvn_tensor *with_registers(const vit *m, lvn_tensor *x, int64_t h, int64_t w)
{
    const int64_t n = lvn_size(x, 0), r = lvn_size(m->registers, 1);
    lvn_tensor *first = lvn_add(m->class_token, lvn_slice(m->positions, 1, 0, 1));
    lvn_tensor *all[] = {lvn_expand(first, 3, (const int64_t[]){n, 1, m->width}),
                         lvn_expand(m->registers, 3, (const int64_t[]){n, r, m->width}),
                         lvn_add(x, patch_positions(m, h, w))};
    return lvn_concat(all, 3, 1);
}

/* (N, 1 + registers + h w, width) in front of the first layer, of images (N, H, W, C). mask (N, h
 * w, 1): patches that have the mask token in place of their own; NULL: none. */
static lvn_tensor *tokens(const lvn_module *module, lvn_tensor *x, lvn_tensor *mask)
{
    const vit *m = (const vit *)module;
    const int patch = kind_of(m)->family->patch;
    const int64_t n = lvn_size(x, 0), h = lvn_size(x, 1) / patch, w = lvn_size(x, 2) / patch;
    if (h * patch != lvn_size(x, 1) || w * patch != lvn_size(x, 2)) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                      "model=%s cuts images into patches of %d pixels: %lld x %lld is not a "
                      "multiple of it",
                      module->cls->name, patch, (long long)lvn_size(x, 1),
                      (long long)lvn_size(x, 2));
        return NULL;
    }
    x = lvn_reshape(lvn_forward(m->patches, x), 3, (const int64_t[]){n, h * w, m->width});
    if (x == NULL) {
        return NULL;
    }
    x = mask == NULL ? x : lvn_where(mask, m->mask_token, x);
    if (m->registers != NULL) {
        x = with_registers(m, x, h, w);
    } else {
        lvn_tensor *all[] = {lvn_expand(m->class_token, 3, (const int64_t[]){n, 1, m->width}), x};
        x = lvn_add(lvn_concat(all, 2, 1), positions(m, h, w));
    }
    return x;
}

static lvn_tensor *run_layers(const lvn_module *module, lvn_tensor *x)
{
    const vit *m = (const vit *)module;
    for (int i = 0; i < m->layers && x != NULL; i++) {
        x = lvn_forward(m->layer[i], x);
    }
    return x;
}

static lvn_tensor *vit_forward(const lvn_module *module, lvn_tensor *x)
{
    return run_layers(module, tokens(module, x, NULL));
}

/* Tokens outside of the scope, which has room for one input. */
static lvn_tensor *vit_masked(const lvn_module *module, lvn_tensor *x, lvn_tensor *mask)
{
    return lvni_nn_module_run(module, tokens(module, x, mask), run_layers);
}

/* Tokens first .. end - 1, normalised, as (N (end - first), width). */
static lvn_tensor *normalised_tokens(const vit *m, lvn_tensor *y, int64_t first, int64_t end)
{
    y = lvn_reshape(lvn_slice(y, 1, first, end), 2, (const int64_t[]){-1, m->width});
    return lvn_forward(m->norm, y);
}

/* The class token; the others are not used. */
static lvn_tensor *class_token(const lvn_module *module, lvn_tensor *y)
{
    return normalised_tokens((const vit *)module, y, 0, 1);
}

static lvn_tensor *patch_tokens(const lvn_module *module, lvn_tensor *y, const lvn_tensor *image)
{
    const vit *m = (const vit *)module;
    const int patch = kind_of(m)->family->patch;
    const int64_t tokens = lvn_size(y, 1), h = lvn_size(image, 1) / patch,
                  w = lvn_size(image, 2) / patch;
    return lvn_reshape(normalised_tokens(m, y, tokens - h * w, tokens), 4,
                       (const int64_t[]){-1, h, w, m->width});
}

/* Of the last n layers, side by side. */
static lvn_tensor *deep_map(const lvn_module *module, lvn_tensor *image, int n)
{
    const vit *m = (const vit *)module;
    lvn_tensor *x = tokens(module, image, NULL), *map[LAYERS];
    for (int i = 0; i < m->layers; i++) {
        x = x == NULL ? NULL : lvn_forward(m->layer[i], x);
        map[i] = x == NULL || i < m->layers - n ? NULL : patch_tokens(module, x, image);
    }
    return x == NULL ? NULL : lvn_concat(map + m->layers - n, n, 3);
}

static const lvni_nn_zoo_body vit_body = {.forward = vit_forward,
                                          .masked = vit_masked,
                                          .pooled = class_token,
                                          .map = patch_tokens,
                                          .deep_map = deep_map};

/* Tokens and positions, in front of the first layer. */
static void embeddings_build(vit *m, lvn_builder *b)
{
    const lvni_nn_zoo_vit *k = kind_of(m);
    const family *f = k->family;
    const lvni_nn_zoo_arguments *a = lvn_builder_arguments(b);
    const int64_t token[] = {1, 1, k->width};
    lvn_builder_block(b, "embeddings");
    m->class_token = lvn_builder_parameter(b, f->class_token, 3, token,
                                           f->glorot ? LVN_INIT_ZEROS : LVN_INIT_NORMAL,
                                           f->glorot      ? 0.0
                                           : f->token > 0 ? f->token
                                                          : 1e-6);
    m->patches = lvn_nn_conv2d(b, f->patches, lvni_nn_zoo_channels(b), k->width, f->patch,
                               .stride = f->patch);
    if (f->glorot) {
        lvn_builder_set_init(
            b, "conv_proj.weight", LVN_INIT_NORMAL,
            lvni_core_sqrt(1.0 / ((double)lvni_nn_zoo_channels(b) * f->patch * f->patch)));
        lvn_builder_set_init(b, "conv_proj.bias", LVN_INIT_ZEROS, 0.0);
    }
    m->positions = lvn_builder_parameter(
        b, f->positions, 3, (const int64_t[]){1, m->tokens, k->width}, LVN_INIT_NORMAL, 0.02);
    if (k->registers > 0) {
        m->registers = lvn_builder_parameter(b, "register_tokens", 3,
                                             (const int64_t[]){1, k->registers, k->width},
                                             LVN_INIT_NORMAL, 1e-6);
    }
    if (f->mask_token) { /* files have it, also where nothing is masked */
        m->mask_token = lvn_builder_parameter(b, "mask_token", 2, token + 1, LVN_INIT_ZEROS, 0.0);
    }
    if (f->mask_token && !a->masked) {
        lvni_nn_builder_fix_parameter(b, "mask_token");
    }
}

static lvn_status layers_build(vit *m, lvn_builder *b)
{
    const lvni_nn_zoo_arguments *a = lvn_builder_arguments(b);
    const lvni_nn_zoo_vit *k = kind_of(m);
    for (int i = 0; i < m->layers; i++) {
        char name[48];
        snprintf(name, sizeof name, "%s%d", k->family->layer, i);
        lvn_builder_block(b, name);
        encoder_block *layer =
            (encoder_block *)(void *)lvni_nn_builder_new_module(b, &encoder_class, name);
        if (layer == NULL) {
            return lvn_builder_status(b);
        }
        layer->of = k->family;
        layer->width = k->width;
        layer->heads = k->heads;
        layer->mlp = (k->mlp_ratio > 0 ? k->mlp_ratio : MLP_RATIO) * k->width;
        layer->drop = k->family->uniform_drop ? a->drop_path : a->drop_path * i / (m->layers - 1);
        m->layer[i] = lvni_nn_builder_build(b, &layer->base);
    }
    return lvn_builder_status(b);
}

static lvn_status vit_build(lvn_module *module, lvn_builder *b)
{
    vit *m = (vit *)module;
    const lvni_nn_zoo_arguments *a = lvn_builder_arguments(b);
    const lvni_nn_zoo_vit *k = kind_of(m);
    const family *f = k->family;
    LVN_ARG(a->image_size % f->patch == 0,
            "model=%s cuts images into patches of %d pixels: image_size must be a multiple of "
            "it, not %d",
            module->cls->name, f->patch, a->image_size);
    m->base.body = &vit_body;
    m->width = k->width;
    m->layers = k->layers > 0 ? k->layers : LAYERS;
    m->grid = k->grid > 0 ? k->grid : a->image_size / f->patch;
    m->tokens = m->grid * m->grid + 1;
    embeddings_build(m, b);
    LVN_TRY(layers_build(m, b));
    lvn_builder_block(b, "head");
    m->norm = new_norm(b, f, f->norm, k->width);
    lvni_nn_zoo_make_head(&m->base, b, f->head, k->width);
    if (m->base.head != NULL && f->glorot) {
        lvn_builder_set_init(b, "heads.head.weight", LVN_INIT_ZEROS, 0.0);
        lvn_builder_set_init(b, "heads.head.bias", LVN_INIT_ZEROS, 0.0);
    } else if (m->base.head != NULL) {
        set_init(b, f, f->head, 0.0, 0.0);
    }
    return lvn_builder_status(b);
}

/* ---- the classes ---- */

#define CLASS(label)                                                                               \
    .base = {.name = label,                                                                        \
             .size = sizeof(vit),                                                                  \
             .build = vit_build,                                                                   \
             .forward = lvni_nn_zoo_forward,                                                       \
             .training_step = lvni_nn_zoo_step}
#define TIMM(label, w, h)                                                                          \
    {                                                                                              \
        CLASS(label), .family = &timm, .width = (w), .heads = (h), .grid = 14, .antialias = true   \
    }
/* With and without registers, and LightlyTrain's stochastic depth; published ones, which ended with
 * images of 518 pixels, and those that begin with 224. */
#define DINOV2(name, w, h, drop)                                                                   \
    REGISTERS(name, w, h, 0.3, .grid = 37, .published = true),                                     \
        REGISTERS(name "-notpretrained", w, h, drop, .grid = 16),                                  \
        NONE(name "-noreg", w, h, 0.3, .grid = 37, .published = true),                             \
        NONE(name "-noreg-notpretrained", w, h, drop, .grid = 16)
#define REGISTERS(label, w, h, drop, ...)                                                          \
    {                                                                                              \
        CLASS(label), .family = &dinov2, .width = (w), .heads = (h), .drop_path = (drop),          \
                      .registers = 4, .antialias = true, __VA_ARGS__                               \
    }
#define NONE(label, w, h, drop, ...)                                                               \
    {                                                                                              \
        CLASS(label), .family = &dinov2, .width = (w), .heads = (h), .drop_path = (drop),          \
                      .offset = 0.1, __VA_ARGS__                                                   \
    }

const lvni_nn_zoo_vit lvni_nn_zoo_vits[] = {
    {CLASS("vit_s_16"), .family = &torchvision, .width = 384, .heads = 6},
    {CLASS("vit_b_16"), .family = &torchvision, .width = 768, .heads = 12},
    TIMM("vit_tiny_patch16_224", 192, 3),
    TIMM("vit_small_patch16_224", 384, 6),
    TIMM("vit_base_patch16_224", 768, 12),
    {CLASS("dino_vits16"), .family = &dino, .width = 384, .heads = 6, .grid = 14},
    {CLASS("dino_vitb16"), .family = &dino, .width = 768, .heads = 12, .grid = 14},
    DINOV2("vits14", 384, 6, 0.1),
    DINOV2("vitb14", 768, 12, 0.2),
    /* LightlyTrain's, which trains in seconds */
    NONE("_vittest14", 8, 2, 0.3, .grid = 16, .layers = 3, .mlp_ratio = 1),
    {.family = NULL},
};

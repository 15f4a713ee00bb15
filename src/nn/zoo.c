/* The models of `model=NAME`: classifiers of images (N, S, S, 3) -> logits (N, classes). cnn, mlp,
 * residual networks, and at the end the table of them, with those of zoo_vit.c, zoo_convnext.c and
 * zoo_efficientnet.c.
 * Each is a body, what is pooled of it, and a linear layer: features of a backbone and logits come
 * from the same code. */
#include "nn/zoo_impl.h"

#include "core/math.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef lvni_nn_zoo_body body;
typedef lvni_nn_zoo_network network;

void lvni_nn_zoo_make_head(network *m, lvn_builder *b, const char *name, int64_t features)
{
    const lvni_nn_zoo_arguments *a = lvn_builder_arguments(b);
    if (a->n_classes > 0) {
        m->dropout = lvn_nn_dropout(b, "dropout", a->dropout);
        m->head = lvn_nn_linear(b, name, features, a->n_classes);
    }
}

lvn_tensor *lvni_nn_zoo_forward(const lvn_module *module, lvn_tensor *x)
{
    const network *m = (const network *)module;
    x = m->body->pooled(module, m->body->forward(module, x));
    x = m->head_norm == NULL ? x : lvn_forward(m->head_norm, x);
    return lvn_forward(m->head, lvn_forward(m->dropout, x));
}

int lvni_nn_zoo_channels(const lvn_builder *b)
{
    const lvni_nn_zoo_arguments *a = lvn_builder_arguments(b);
    return a->channels > 0 ? a->channels : 3;
}

lvn_tensor *lvni_nn_zoo_mean(const lvn_module *module, lvn_tensor *y)
{
    (void)module;
    return lvn_global_avg_pool2d(y);
}

static lvn_tensor *as_it_is(const lvn_module *module, lvn_tensor *y)
{
    (void)module;
    return y;
}

lvn_tensor *lvni_nn_zoo_last_map(const lvn_module *module, lvn_tensor *y, const lvn_tensor *image)
{
    (void)module;
    (void)image;
    return y;
}

lvn_tensor *lvni_nn_zoo_branch(const lvn_module *layer, lvn_tensor *y, lvn_tensor *scale,
                               double drop)
{
    if (y != NULL && drop > 0.0 && lvn_is_training() && !lvni_nn_module_follows(layer)) {
        int64_t shape[LVN_MAX_NDIM];
        for (int i = 0; i < lvn_ndim(y); i++) {
            shape[i] = i == 0 ? lvn_size(y, 0) : 1;
        }
        lvn_tensor *ones = lvn_add_scalar(lvn_zeros(LVN_F32, lvn_ndim(y), shape), 1.0),
                   *kept = lvn_dropout(ones, drop);
        scale = scale == NULL ? kept : lvn_mul(kept, scale);
    }
    return scale == NULL ? y : lvn_mul(y, scale);
}

lvn_tensor *lvni_nn_zoo_step(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
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

static const body cnn_body = {
    .forward = cnn_forward, .pooled = lvni_nn_zoo_mean, .map = lvni_nn_zoo_last_map};

enum { CNN_LEAST = 4 }; /* two poolings of 2 */

static lvn_status cnn_build(lvn_module *module, lvn_builder *b)
{
    cnn *m = (cnn *)module;
    const lvni_nn_zoo_arguments *a = lvn_builder_arguments(b);
    LVN_ARG(a->image_size >= CNN_LEAST, "model=cnn needs image_size of at least %d, not %d",
            CNN_LEAST, a->image_size);
    m->base.body = &cnn_body;
    lvn_builder_block(b, "stage1");
    m->conv[0] =
        lvn_nn_conv2d(b, "conv1", lvni_nn_zoo_channels(b), 32, 3, .padding = 1, .no_bias = true);
    m->norm[0] = lvn_nn_batch_norm(b, "norm1", 32, 0.1, .relu = true);
    lvn_builder_block(b, "stage2");
    m->conv[1] = lvn_nn_conv2d(b, "conv2", 32, 64, 3, .padding = 1, .no_bias = true);
    m->norm[1] = lvn_nn_batch_norm(b, "norm2", 64, 0.1, .relu = true);
    lvn_builder_block(b, "stage3");
    m->conv[2] = lvn_nn_conv2d(b, "conv3", 64, 128, 3, .padding = 1, .no_bias = true);
    m->norm[2] = lvn_nn_batch_norm(b, "norm3", 128, 0.1, .relu = true);
    lvn_builder_block(b, "head");
    lvni_nn_zoo_make_head(&m->base, b, "head", 128);
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
    lvni_nn_zoo_make_head(&m->base, b, "head", 256);
    return lvn_builder_status(b);
}

static const lvn_module_class cnn_class = {.name = "cnn",
                                           .size = sizeof(cnn),
                                           .build = cnn_build,
                                           .forward = lvni_nn_zoo_forward,
                                           .training_step = lvni_nn_zoo_step};
static const lvn_module_class mlp_class = {.name = "mlp",
                                           .size = sizeof(mlp),
                                           .build = mlp_build,
                                           .forward = lvni_nn_zoo_forward,
                                           .training_step = lvni_nn_zoo_step};

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

static lvn_tensor *resnet_stem(const lvn_module *module, lvn_tensor *x) /* x: (N, S, S, 3) */
{
    x = run_conv_norm(((const resnet *)module)->stem, x);   /* (N, S/2, S/2, 64) */
    return lvn_max_pool2d(x, 3, .stride = 2, .padding = 1); /* (N, S/4, S/4, 64) */
}

static lvn_tensor *resnet_forward(const lvn_module *module, lvn_tensor *x)
{
    const resnet *m = (const resnet *)module;
    /* what is pooled is the largest of all: gone */
    x = lvni_nn_module_run_part(module, m->stem[0], x, resnet_stem);
    for (int s = 0; s < STAGES; s++) { /* (N, S/32, S/32, 512 or 2048) in the end */
        for (int i = 0; i < m->n_blocks[s]; i++) {
            x = lvn_forward(m->block[s][i], x);
        }
    }
    return x;
}

static const body resnet_body = {
    .forward = resnet_forward, .pooled = lvni_nn_zoo_mean, .map = lvni_nn_zoo_last_map};

static lvn_status resnet_build(resnet *m, lvn_builder *b, const int n_blocks[STAGES],
                               bool bottleneck)
{
    m->base.body = &resnet_body;
    lvn_builder_block(b, "stem");
    conv_norm(b, "conv1", "bn1", lvni_nn_zoo_channels(b), 64, 7, 2, true, m->stem);
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
    lvni_nn_zoo_make_head(&m->base, b, "fc", in);
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
                                                           .forward = lvni_nn_zoo_forward,         \
                                                           .training_step = lvni_nn_zoo_step}
RESNET(18);
RESNET(34);
RESNET(50);
RESNET(101);
RESNET(152);

/* ---- the table ---- */

static const struct {
    const lvn_module_class *cls;
    int features;
    double dropout, drop_path;
    bool any_size;
} zoo[] = {
    {&cnn_class, .features = 128, .dropout = 0.1, .any_size = true},
    {&mlp_class, .features = 256, .dropout = 0.1},
    {&resnet18_class, .features = 512, .any_size = true},
    {&resnet34_class, .features = 512, .any_size = true},
    {&resnet50_class, .features = 2048, .any_size = true},
    {&resnet101_class, .features = 2048, .any_size = true},
    {&resnet152_class, .features = 2048, .any_size = true},
    {&lvni_nn_zoo_convnexts[0].base, .features = 768, .drop_path = 0.1, .any_size = true},
    {&lvni_nn_zoo_convnexts[1].base, .features = 768, .drop_path = 0.4, .any_size = true},
    {&lvni_nn_zoo_convnexts[2].base, .features = 1024, .drop_path = 0.5, .any_size = true},
    {&lvni_nn_zoo_convnexts[3].base, .features = 1536, .drop_path = 0.5, .any_size = true},
    {&lvni_nn_zoo_efficientnets[0].base, 1280, .dropout = 0.2, .drop_path = 0.2, .any_size = true},
    {&lvni_nn_zoo_efficientnets[1].base, 1280, .dropout = 0.2, .drop_path = 0.2, .any_size = true},
    {&lvni_nn_zoo_efficientnets[2].base, 1408, .dropout = 0.3, .drop_path = 0.2, .any_size = true},
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

static const lvni_nn_zoo_vit *find_vit(const char *name)
{
    for (const lvni_nn_zoo_vit *v = lvni_nn_zoo_vits; v->base.name != NULL; v++) {
        if (strcmp(v->base.name, name) == 0) {
            return v;
        }
    }
    return NULL;
}

static const struct {
    const char *theirs, *ours;
} others[] = {{"resnet18", "resnet18"},
              {"resnet34", "resnet34"},
              {"resnet50", "resnet50"},
              {"resnet101", "resnet101"},
              {"resnet152", "resnet152"},
              {"convnext_tiny", "convnext_tiny"},
              {"convnext_small", "convnext_small"},
              {"convnext_base", "convnext_base"},
              {"convnext_large", "convnext_large"},
              {"efficientnet_b0", "efficientnet_b0"},
              {"efficientnet_b1", "efficientnet_b1"},
              {"efficientnet_b2", "efficientnet_b2"},
              {"vit_s_16", "vit_s_16"},
              {"vit_b_16", "vit_b_16"},
              {"vit_tiny_patch16_224", "vit_tiny_patch16_224"},
              {"vit_small_patch16_224", "vit_small_patch16_224"},
              {"vit_base_patch16_224", "vit_base_patch16_224"},
              {"dino_vits16", "dino_vits16"},
              {"dino_vitb16", "dino_vitb16"},
              {"vits14", "vits14"},
              {"vitb14", "vitb14"},
              {"vits14-noreg", "vits14-noreg"},
              {"vitb14-noreg", "vitb14-noreg"},
              {"vits14-notpretrained", "vits14-notpretrained"},
              {"vitb14-notpretrained", "vitb14-notpretrained"},
              {"vits14-noreg-notpretrained", "vits14-noreg-notpretrained"},
              {"vitb14-noreg-notpretrained", "vitb14-noreg-notpretrained"},
              {"_vittest14", "_vittest14"},
              /* of their hub, whose plain names are without registers */
              {"dinov2_vits14_reg", "vits14"},
              {"dinov2_vitb14_reg", "vitb14"},
              {"dinov2_vits14", "vits14-noreg"},
              {"dinov2_vitb14", "vitb14-noreg"}};

const char *lvni_nn_zoo_respell(const char *text)
{
    static const char *const libraries[] = {"torchvision/", "torchvision.models.", "timm/",
                                            "hf-hub:timm/", "hf_hub:timm/",        "dinov2/"};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        const size_t n = strlen(libraries[i]);
        if (strncasecmp(text, libraries[i], n) == 0) {
            text += n;
            break;
        }
    }
    const size_t n = strcspn(text, "."); /* what follows names the weights: .a1_in1k */
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strlen(others[i].theirs) == n && strncasecmp(text, others[i].theirs, n) == 0) {
            return others[i].ours;
        }
    }
    return NULL;
}

const lvn_module_class *lvni_nn_zoo_find(const char *name)
{
    const char *here = lvni_nn_zoo_respell(name);
    const int i = index_of(here != NULL ? here : name);
    const lvni_nn_zoo_vit *v = i >= 0 ? NULL : find_vit(here != NULL ? here : name);
    return i >= 0 ? zoo[i].cls : v != NULL ? &v->base : NULL;
}

static bool is_efficientnet(const char *name)
{
    return strncmp(name, "efficientnet", 12) == 0;
}

bool lvni_nn_zoo_any_channels(const char *name)
{
    const lvni_nn_zoo_vit *v = find_vit(name); /* of those with torchvision's names: 3 */
    return strcmp(name, "cnn") == 0 || strncmp(name, "resnet", 6) == 0 ||
           strncmp(name, "convnext", 8) == 0 || is_efficientnet(name) || (v != NULL && v->grid > 0);
}

bool lvni_nn_zoo_any_size(const char *name)
{
    const int i = index_of(name);
    const lvni_nn_zoo_vit *v = find_vit(name);
    return i >= 0 ? zoo[i].any_size : v != NULL && v->grid > 0;
}

double lvni_nn_zoo_dropout(const char *name)
{
    const int i = index_of(name);
    return i < 0 ? 0.0 : zoo[i].dropout;
}

double lvni_nn_zoo_drop_path(const char *name)
{
    const int i = index_of(name);
    const lvni_nn_zoo_vit *v = find_vit(name);
    return i >= 0 ? zoo[i].drop_path : v == NULL ? 0.0 : v->drop_path;
}

bool lvni_nn_zoo_has_paths(const char *name)
{
    return find_vit(name) != NULL || lvni_nn_zoo_drop_path(name) > 0.0;
}

bool lvni_nn_zoo_is_transformer(const char *name)
{
    return find_vit(name) != NULL;
}

int lvni_nn_zoo_patch(const char *name)
{
    const lvni_nn_zoo_vit *v = find_vit(name);
    return v == NULL ? 1 : v->family->patch;
}

int lvni_nn_zoo_least_side(const char *name)
{
    return strncmp(name, "convnext", 8) == 0 ? LVNI_CONVNEXT_LEAST
           : strcmp(name, "cnn") == 0        ? CNN_LEAST
                                             : lvni_nn_zoo_patch(name);
}

int lvni_nn_zoo_map_side(const char *name, int side)
{
    const lvni_nn_zoo_vit *v = find_vit(name);
    if (v != NULL) {
        return side / v->family->patch;
    }
    /* five convolutions or poolings with a stride of 2, of which each rounds up; one of 4 and three
     * of 2, or two of 2, that round down */
    return strncmp(name, "resnet", 6) == 0 || is_efficientnet(name) ? (side + 31) / 32
           : strncmp(name, "convnext", 8) == 0                      ? side / 32
           : strcmp(name, "cnn") == 0                               ? side / 4
                                                                    : 0;
}

bool lvni_nn_zoo_has_masks(const char *name)
{
    const lvni_nn_zoo_vit *v = find_vit(name);
    return v != NULL && v->family->mask_token;
}

bool lvni_nn_zoo_needs_weights(const char *name)
{
    const lvni_nn_zoo_vit *v = find_vit(name);
    return v != NULL && v->published;
}

bool lvni_nn_zoo_has_classifier(const char *name)
{
    const lvni_nn_zoo_vit *v = find_vit(name);
    return v == NULL || !v->family->no_classifier;
}

/* ---- as the backbone of another model ---- */

int lvni_nn_zoo_feature_dim(const char *name)
{
    const lvn_module_class *cls = lvni_nn_zoo_find(name);
    const int i = cls == NULL ? -1 : index_of(cls->name);
    return cls == NULL ? 0 : i >= 0 ? zoo[i].features : find_vit(cls->name)->width;
}

lvn_module *lvni_nn_zoo_backbone(lvn_builder *b, const char *name, const char *model,
                                 const lvni_nn_zoo_arguments *arguments)
{
    const void *outside = b->arguments;
    lvni_nn_zoo_arguments own = *arguments;
    own.n_classes = lvni_nn_zoo_has_classifier(model) ? own.n_classes : 0;
    b->arguments = &own;
    lvn_module *m = lvn_builder_child(b, lvni_nn_zoo_find(model), name);
    b->arguments = outside;
    const network *made = (const network *)m;
    const lvn_module *behind[] = {made == NULL ? NULL : made->head_norm,
                                  made == NULL ? NULL : made->head};
    for (int i = 0; i < 2; i++) {
        if (behind[i] != NULL && lvni_nn_builder_fix(b, behind[i]) != LVN_OK) {
            return NULL;
        }
    }
    return m;
}

lvn_module *lvni_nn_zoo_teacher(lvn_builder *b, const char *name, const char *model,
                                const lvni_nn_zoo_arguments *arguments)
{
    lvn_module *m = lvni_nn_zoo_backbone(b, name, model, arguments);
    const int before = b->model->n_buffers;
    if (m == NULL || lvni_nn_builder_fix(b, m) != LVN_OK) {
        return NULL;
    }
    for (int i = 0; i < b->model->n_buffers; i++) {
        lvn_buffer *buffer = b->model->buffers[i];
        const size_t n = strlen(m->path);
        if (strncmp(buffer->name, m->path, n) == 0 && buffer->name[n] == '.') {
            buffer->left_out = true;
            buffer->needed = i >= before;
        }
    }
    return m;
}

lvn_tensor *lvni_nn_zoo_pooled(const lvn_module *module, lvn_tensor *x)
{
    const network *m = (const network *)module;
    lvn_tensor *y = lvni_nn_module_run(module, x, m->body->forward);
    return y == NULL ? NULL : m->body->pooled(module, y);
}

lvn_tensor *lvni_nn_zoo_map(const lvn_module *module, lvn_tensor *x)
{
    const network *m = (const network *)module;
    lvn_tensor *y = lvni_nn_module_run(module, x, m->body->forward);
    return y == NULL || m->body->map == NULL ? NULL : m->body->map(module, y, x);
}

lvn_tensor *lvni_nn_zoo_deep_map(const lvn_module *module, lvn_tensor *x, int layers)
{
    const network *m = (const network *)module;
    return layers == 1 || m->body->deep_map == NULL ? lvni_nn_zoo_map(module, x)
                                                    : m->body->deep_map(module, x, layers);
}

/* Of what forward returned. */
static lvni_nn_features features_of(const lvn_module *module, lvn_tensor *y, const lvn_tensor *x)
{
    const network *m = (const network *)module;
    if (y == NULL) {
        return (lvni_nn_features){0};
    }
    return (lvni_nn_features){.map = m->body->map == NULL ? NULL : m->body->map(module, y, x),
                              .pooled = m->body->pooled(module, y)};
}

lvni_nn_features lvni_nn_zoo_features(const lvn_module *module, lvn_tensor *x)
{
    const network *m = (const network *)module;
    return features_of(module, lvni_nn_module_run(module, x, m->body->forward), x);
}

lvni_nn_features lvni_nn_zoo_masked_features(const lvn_module *module, lvn_tensor *x,
                                             lvn_tensor *mask)
{
    const network *m = (const network *)module;
    return features_of(module, m->body->masked(module, x, mask), x);
}

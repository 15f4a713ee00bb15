/* Networks of the zoo as backbones: feature map and pooled vector are what the classifier's logits
 * are made of; inside another model the classifier is there and is not trained. (The same numbers
 * from PyTorch: tests/golden.) */
#include "autograd/tape.h"
#include "kernels/kernels.h"
#include "nn/model.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SAMPLES = 2, CLASSES = 5 };

static lvn_tensor *draw_images(int64_t n, int64_t size)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F32, 4, (const int64_t[]){n, size, size, 3});
    assert_non_null(t);
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(4, 9)};
    for (int64_t i = 0; i < lvn_numel(t); i++) {
        LVNI_F32(t)[i] = (float)lvni_core_rng_normal(&rng, (uint64_t)i);
    }
    return t;
}

static lvn_tensor *find(const lvni_nn_model *m, const char *name)
{
    for (int i = 0; i < m->n_parameters; i++) {
        if (strcmp(m->parameters[i].name, name) == 0) {
            return m->parameters[i].tensor;
        }
    }
    for (int i = 0; i < m->n_buffers; i++) {
        if (strcmp(m->buffers[i]->name, name) == 0) {
            return m->buffers[i]->tensor;
        }
    }
    fail_msg("the model has no %s", name);
    return NULL;
}

static void assert_shape(const lvn_tensor *t, int ndim, const int64_t *shape)
{
    assert_non_null(t);
    assert_int_equal(t->ndim, ndim);
    assert_memory_equal(t->shape, shape, (size_t)ndim * sizeof *shape);
}

static void assert_near(const lvn_tensor *a, const lvn_tensor *b, double tolerance)
{
    assert_int_equal(lvn_numel(a), lvn_numel(b));
    for (int64_t i = 0; i < lvn_numel(a); i++) {
        const double x = (double)LVNI_CF32(a)[i], y = (double)LVNI_CF32(b)[i];
        if (!(fabs(x - y) <= tolerance * fmax(1.0, fabs(y)))) {
            fail_msg("element %d: %.9g and %.9g", (int)i, x, y);
        }
    }
}

static const struct {
    const char *model;
    int size, grid, features; /* grid 0: no map */
    const char *head;
} nets[] = {{"cnn", 12, 3, 128, "head"},
            {"mlp", 8, 0, 256, "head"},
            {"resnet18", 64, 2, 512, "fc"},
            {"resnet50", 33, 2, 2048, "fc"},
            {"convnext_tiny", 70, 2, 768, "classifier.2"},
            {"efficientnet_b0", 33, 2, 1280, "classifier.1"},
            {"vit_s_16", 48, 3, 384, "heads.head"},
            {"vit_tiny_patch16_224", 48, 3, 192, "head"},
            {"dino_vits16", 48, 3, 384, "head"},
            {"vits14-notpretrained", 42, 3, 384, "head"},
            {"vits14-noreg", 28, 2, 384, "head"}};
enum { NETS = sizeof nets / sizeof *nets };

/* Random values where the network has zeros: a head of zeros would hide what goes in. */
static void fill_head(const lvni_nn_model *m, const char *head)
{
    char name[64];
    snprintf(name, sizeof name, "%s.weight", head);
    lvn_tensor *w = find(m, name);
    for (int64_t i = 0; i < lvn_numel(w); i++) {
        LVNI_F32(w)[i] = (float)(i % 7) / 7.0f - 0.4f;
    }
    lvni_nn_model_touch((lvni_nn_model *)(uintptr_t)m);
}

TEST(logits_are_the_head_of_the_pooled_features)
{
    for (int k = 0; k < NETS; k++) {
        const lvni_nn_zoo_arguments a = {.image_size = nets[k].size, .n_classes = CLASSES};
        lvni_nn_model *m;
        char weight[64], bias[64];
        assert_int_equal(lvni_nn_model_build(lvni_nn_zoo_find(nets[k].model), &a, 3, &m), LVN_OK);
        fill_head(m, nets[k].head);
        snprintf(weight, sizeof weight, "%s.weight", nets[k].head);
        snprintf(bias, sizeof bias, "%s.bias", nets[k].head);
        lvn_tensor *x = draw_images(SAMPLES, nets[k].size);
        assert_int_equal(lvn_scope_open(), LVN_OK);
        const lvni_nn_features f = lvni_nn_zoo_features(m->root, x);
        const int64_t grid = nets[k].grid, c = nets[k].features;
        assert_int_equal(lvni_nn_zoo_feature_dim(nets[k].model), c);
        assert_shape(f.pooled, 2, (const int64_t[]){SAMPLES, c});
        if (grid == 0) {
            assert_null(f.map);
        } else {
            assert_shape(f.map, 4, (const int64_t[]){SAMPLES, grid, grid, c});
        }
        if (strchr("cre", nets[k].model[0]) != NULL) {
            assert_near(f.pooled, lvn_global_avg_pool2d(f.map), 0.0);
        }
        lvn_tensor *logits = lvn_forward(m->root, x);
        const bool norm = strcmp(nets[k].head, "classifier.2") == 0; /* in front of it */
        lvn_tensor *last = norm ? lvn_layer_norm(f.pooled, find(m, "classifier.0.weight"),
                                                 find(m, "classifier.0.bias"), 1e-6)
                                : f.pooled;
        assert_near(lvn_linear(last, find(m, weight), find(m, bias)), logits, 0.0);
        assert_near(lvni_nn_zoo_pooled(m->root, x), f.pooled, 0.0);
        assert_int_equal(lvn_scope_close(), LVN_OK);
        lvn_release(x);
        lvni_nn_model_destroy(m);
    }
    assert_int_equal(lvni_nn_zoo_feature_dim("torchvision/resnet101"), 2048);
    assert_int_equal(lvni_nn_zoo_feature_dim("resnet152"), 2048);
    assert_int_equal(lvni_nn_zoo_feature_dim("vit_b_16"), 768);
    assert_int_equal(lvni_nn_zoo_feature_dim("torchvision/convnext_large"), 1536);
    assert_int_equal(lvni_nn_zoo_feature_dim("timm/vit_tiny_patch16_224.augreg_in21k"), 192);
    assert_int_equal(lvni_nn_zoo_feature_dim("dinov2/vitb14"), 768);
    assert_int_equal(lvni_nn_zoo_feature_dim("resnet19"), 0);
}

/* Row i of the map is what the norm makes of patch i: with weights of the norm alone behind the
 * tokens, class token and patches have mean 0 and variance 1. */
TEST(patch_tokens_are_normalised)
{
    const lvni_nn_zoo_arguments a = {.image_size = 32, .n_classes = CLASSES};
    lvni_nn_model *m;
    assert_int_equal(lvni_nn_model_build(lvni_nn_zoo_find("vit_s_16"), &a, 3, &m), LVN_OK);
    lvn_tensor *x = draw_images(SAMPLES, 32);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const lvni_nn_features f = lvni_nn_zoo_features(m->root, x);
    const float *row = LVNI_CF32(f.map);
    for (int64_t i = 0; i < lvn_numel(f.map) / 384; i++, row += 384) {
        double sum = 0.0, squares = 0.0;
        for (int k = 0; k < 384; k++) {
            sum += (double)row[k];
            squares += (double)row[k] * (double)row[k];
        }
        assert_true(fabs(sum / 384) < 1e-5 && fabs(squares / 384 - 1.0) < 1e-3);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
    lvni_nn_model_destroy(m);
}

/* ---- a transformer on images of another size ---- */

/* Weights of pixel `at` of the four around position x (Keys 1981, a = -3/4). */
static double keys(double distance)
{
    const double d = fabs(distance), a = -0.75;
    return d <= 1  ? ((a + 2) * d - (a + 3)) * d * d + 1
           : d < 2 ? a * (((d - 5) * d + 8) * d - 4)
                   : 0;
}

/* Channel k of a grid of `from` pixels a side, at pixel (i, j) of one of `to`. */
static double bicubic(const float *grid, int from, int to, int i, int j, int k, int width)
{
    const double y = (i + 0.5) * from / to - 0.5, x = (j + 0.5) * from / to - 0.5;
    double sum = 0.0;
    for (int r = (int)floor(y) - 1; r <= (int)floor(y) + 2; r++) {
        for (int c = (int)floor(x) - 1; c <= (int)floor(x) + 2; c++) {
            const int row = r < 0       ? 0
                            : r >= from ? from - 1
                                        : r,
                      column = c < 0       ? 0
                               : c >= from ? from - 1
                                           : c;
            sum += keys(y - r) * keys(x - c) * (double)grid[(row * from + column) * width + k];
        }
    }
    return sum;
}

/* As the network that is built for this size, with position embeddings that are interpolated by
 * hand. */
TEST(other_sizes_interpolate_the_positions)
{
    enum { LARGE = 4, SMALL = 2, WIDTH = 384 };
    lvni_nn_model *large, *small;
    const lvni_nn_zoo_arguments a = {.image_size = 16 * LARGE, .n_classes = CLASSES},
                                b = {.image_size = 16 * SMALL, .n_classes = CLASSES};
    const lvn_module_class *cls = lvni_nn_zoo_find("vit_s_16");
    assert_int_equal(lvni_nn_model_build(cls, &a, 3, &large), LVN_OK);
    assert_int_equal(lvni_nn_model_build(cls, &b, 4, &small), LVN_OK);
    for (int i = 0; i < small->n_parameters; i++) {
        const lvn_tensor *from = large->parameters[i].tensor;
        lvn_tensor *to = small->parameters[i].tensor;
        if (lvn_numel(to) == lvn_numel(from)) {
            memcpy(to->data, from->data, (size_t)lvn_numel(to) * sizeof(float));
        }
    }
    const float *from = LVNI_CF32(find(large, "encoder.pos_embedding"));
    float *to = LVNI_F32(find(small, "encoder.pos_embedding"));
    memcpy(to, from, WIDTH * sizeof(float)); /* of the class token */
    for (int i = 0; i < SMALL * SMALL * WIDTH; i++) {
        const int at = i / WIDTH;
        to[WIDTH + i] =
            (float)bicubic(from + WIDTH, LARGE, SMALL, at / SMALL, at % SMALL, i % WIDTH, WIDTH);
    }
    lvni_nn_model_touch(small);
    lvn_tensor *x = draw_images(SAMPLES, 16 * SMALL), *odd = draw_images(1, 40);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const lvni_nn_features have = lvni_nn_zoo_features(large->root, x),
                           want = lvni_nn_zoo_features(small->root, x);
    assert_shape(have.map, 4, (const int64_t[]){SAMPLES, SMALL, SMALL, WIDTH});
    assert_near(have.map, want.map, 1e-5);
    assert_near(have.pooled, want.pooled, 1e-5);
    assert_null(lvni_nn_zoo_pooled(large->root, odd));
    assert_non_null(strstr(lvn_last_error()->message, "40 x 40 is not a multiple"));
    (void)lvn_scope_close();
    lvn_clear_error();
    lvn_release(x);
    lvn_release(odd);
    lvni_nn_model_destroy(large);
    lvni_nn_model_destroy(small);
}

/* ---- timm's and DINOv2's ---- */

/* Shapes of state_dict() of timm 1.0, of DINOv2's program and of torchvision 0.29. */
TEST(shapes_are_those_of_the_authors)
{
    static const struct {
        const char *model, *name;
        int ndim;
        int64_t shape[4];
        int n; /* tensors, with a classifier */
    } row[] = {{"vit_tiny_patch16_224", "pos_embed", 3, {1, 197, 192}, 152},
               {"vit_tiny_patch16_224", "patch_embed.proj.weight", 4, {192, 16, 16, 3}, 152},
               {"vit_small_patch16_224", "blocks.11.attn.qkv.weight", 2, {1152, 384}, 152},
               {"vit_base_patch16_224", "blocks.0.mlp.fc1.bias", 1, {3072}, 152},
               {"dino_vits16", "pos_embed", 3, {1, 197, 384}, 152},
               {"dino_vitb16", "blocks.11.mlp.fc2.weight", 2, {768, 3072}, 152},
               {"vits14", "pos_embed", 3, {1, 1370, 384}, 178},
               {"vits14", "register_tokens", 3, {1, 4, 384}, 178},
               {"vits14-notpretrained", "pos_embed", 3, {1, 257, 384}, 178},
               {"vits14-noreg", "mask_token", 2, {1, 384}, 177},
               {"vitb14-noreg-notpretrained", "pos_embed", 3, {1, 257, 768}, 177},
               {"vitb14", "blocks.11.ls2.gamma", 1, {768}, 178},
               {"efficientnet_b0", "features.2.0.block.1.0.weight", 4, {96, 3, 3, 1}, 311},
               {"efficientnet_b1", "features.7.1.block.2.fc1.weight", 4, {80, 1, 1, 1920}, 439},
               {"efficientnet_b2", "features.8.0.weight", 4, {1408, 1, 1, 352}, 439},
               {"convnext_tiny", "features.1.0.block.0.weight", 4, {96, 7, 7, 1}, 182},
               {"convnext_small", "features.5.26.layer_scale", 3, {384, 1, 1}, 344},
               {"convnext_base", "features.6.1.weight", 4, {1024, 2, 2, 512}, 344},
               {"convnext_large", "classifier.2.weight", 2, {CLASSES, 1536}, 344}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const lvni_nn_zoo_arguments a = {.image_size = 112, .n_classes = CLASSES};
        lvni_nn_model *m;
        assert_int_equal(lvni_nn_model_build_empty(lvni_nn_zoo_find(row[i].model), &a, &m), LVN_OK);
        assert_shape(find(m, row[i].name), row[i].ndim, row[i].shape);
        assert_int_equal(m->n_parameters + m->n_buffers, row[i].n);
        lvni_nn_model_destroy(m);
    }
    assert_true(lvni_nn_zoo_needs_weights("vits14-noreg"));
    assert_false(lvni_nn_zoo_needs_weights("dino_vits16"));
    assert_false(lvni_nn_zoo_has_classifier("dino_vitb16"));
    assert_false(lvni_nn_zoo_needs_weights("vits14-noreg-notpretrained"));
    assert_ptr_equal(lvni_nn_zoo_find("dinov2_vits14"), lvni_nn_zoo_find("dinov2/vits14-noreg"));
}

/* A block's weights are zero, and its two terms 1 and 10 times the layer scale, which is 1. */
static void set_terms(lvni_nn_model *m, const char *block)
{
    static const struct {
        const char *name;
        float value;
    } set[] = {{"attn.proj.weight", 0}, {"attn.proj.bias", 1}, {"ls1.gamma", 1},
               {"mlp.fc2.weight", 0},   {"mlp.fc2.bias", 10},  {"ls2.gamma", 1}};
    for (size_t k = 0; k < sizeof set / sizeof *set; k++) {
        char name[96];
        snprintf(name, sizeof name, "%s.%s", block, set[k].name);
        lvn_tensor *t = find(m, name);
        for (int64_t i = 0; i < lvn_numel(t); i++) {
            LVNI_F32(t)[i] = set[k].value;
        }
    }
    lvni_nn_model_touch(m);
}

static const lvn_module *module_at(const lvni_nn_model *m, const char *path)
{
    for (int i = 0; i < m->n_modules; i++) {
        if (strcmp(m->modules[i]->path, path) == 0) {
            return m->modules[i];
        }
    }
    fail_msg("the model has no module %s", path);
    return NULL;
}

/* Is the term of this call there for image i? Draws of micro-batch 5 in step 7. */
static bool is_kept(const char *path, uint32_t call, int64_t i, double drop)
{
    const lvni_core_rng rng = {
        .key = lvni_core_rng_make_key(11, lvni_core_rng_purpose(path)), .a = 7, .b = 5, .c = call};
    return lvni_core_rng_uniform(&rng, (uint64_t)i) >= (float)drop;
}

/* Every token of an image has both, one or none of the terms, by a draw that follows from seed,
 * step, micro-batch, layer and row. */
static void check_drops(const lvni_nn_model *m, const char *path, double drop)
{
    enum { IMAGES = 200, TOKENS = 3, WIDTH = 384 };
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    int dropped = 0;
    ctx->at = (lvni_tensor_position){.seed = 11, .step = 7, .micro_batch = 5, .training = true};
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *x = lvn_zeros(LVN_F32, LVN_SHAPE(IMAGES, TOKENS, WIDTH)),
               *y = lvn_forward(module_at(m, path), x);
    assert_non_null(y);
    for (int64_t i = 0; i < IMAGES; i++) {
        const bool first = is_kept(path, 0, i, drop), second = is_kept(path, 1, i, drop);
        const double want = ((first ? 1.0 : 0.0) + (second ? 10.0 : 0.0)) / (1.0 - drop);
        for (int64_t k = 0; k < TOKENS * WIDTH; k++) {
            const double have = (double)LVNI_CF32(y)[i * TOKENS * WIDTH + k];
            if (fabs(have - want) > 1e-5) {
                fail_msg("image %d, element %d: %g, not %g", (int)i, (int)k, have, want);
            }
        }
        dropped += !first + !second;
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    ctx->at = (lvni_tensor_position){0};
    const double mean = 2 * IMAGES * drop;
    assert_true(fabs(dropped - mean) <= 4 * sqrt(mean * (1 - drop)));
}

TEST(an_image_passes_layers_by)
{
    const lvni_nn_zoo_arguments a = {.image_size = 28, .n_classes = CLASSES, .drop_path = 0.3};
    lvni_nn_model *m;
    assert_int_equal(lvni_nn_model_build(lvni_nn_zoo_find("vits14-notpretrained"), &a, 3, &m),
                     LVN_OK);
    set_terms(m, "blocks.0");
    set_terms(m, "blocks.11");
    check_drops(m, "blocks.0", 0.3);
    check_drops(m, "blocks.11", 0.3);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *y = lvn_forward(module_at(m, "blocks.0"), lvn_zeros(LVN_F32, LVN_SHAPE(2, 3, 384)));
    for (int64_t i = 0; i < lvn_numel(y); i++) {
        assert_true(LVNI_CF32(y)[i] == 11.0f); /* not in evaluation */
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvni_nn_model_destroy(m);
}

/* timm's: more in deeper layers, none in the first one; in training images that are equal differ in
 * the end. */
TEST(deeper_layers_drop_more)
{
    enum { IMAGES = 16, WIDTH = 192 };
    for (int k = 0; k < 2; k++) {
        const lvni_nn_zoo_arguments a = {.image_size = 32, .drop_path = k == 0 ? 0.0 : 0.5};
        lvni_nn_model *m;
        lvn_tensor *one = draw_images(1, 32);
        assert_int_equal(lvni_nn_model_build(lvni_nn_zoo_find("vit_tiny_patch16_224"), &a, 3, &m),
                         LVN_OK);
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvni_tensor_ctx_get()->at = (lvni_tensor_position){.seed = 1, .training = true};
        lvn_tensor *x = lvn_expand(one, 4, (const int64_t[]){IMAGES, 32, 32, 3});
        lvn_tensor *y = lvni_nn_zoo_pooled(m->root, x);
        assert_shape(y, 2, (const int64_t[]){IMAGES, WIDTH});
        int differ = 0;
        for (int64_t i = 1; i < IMAGES; i++) {
            differ += memcmp(LVNI_CF32(y), LVNI_CF32(y) + i * WIDTH, WIDTH * sizeof(float)) != 0;
        }
        assert_int_equal(differ, k == 0 ? 0 : IMAGES - 1);
        x = draw_images(SAMPLES, 16);
        lvn_tensor *tokens = lvn_reshape(x, 3, (const int64_t[]){SAMPLES, 4, WIDTH});
        lvn_tensor *first = lvn_forward(module_at(m, "blocks.0"), tokens);
        lvni_tensor_ctx_get()->at = (lvni_tensor_position){0};
        assert_near(lvn_forward(module_at(m, "blocks.0"), tokens), first, 0.0);
        assert_int_equal(lvn_scope_close(), LVN_OK);
        lvn_release(x);
        lvn_release(one);
        lvni_nn_model_destroy(m);
    }
}

TEST(maps_have_the_side_that_is_predicted)
{
    static const char *const models[] = {"cnn", "resnet18", "vit_tiny_patch16_224", "convnext_tiny",
                                         "efficientnet_b0"};
    for (int i = 0; i < 15; i++) {
        const char *model = models[i / 3];
        const int side = i < 6 || i >= 12 ? (int[]){30, 32, 34}[i % 3]
                         : i < 9          ? 16 * (1 + i % 3)
                                          : (int[]){32, 63, 64}[i % 3],
                  n = lvni_nn_zoo_map_side(model, side);
        const lvni_nn_zoo_arguments a = {.image_size = side};
        lvni_nn_model *m;
        assert_int_equal(lvni_nn_model_build(lvni_nn_zoo_find(model), &a, 3, &m), LVN_OK);
        lvn_tensor *x = draw_images(1, side);
        assert_int_equal(lvn_scope_open(), LVN_OK);
        assert_shape(lvni_nn_zoo_features(m->root, x).map, 4,
                     (const int64_t[]){1, n, n, lvni_nn_zoo_feature_dim(model)});
        assert_int_equal(lvn_scope_close(), LVN_OK);
        lvn_release(x);
        lvni_nn_model_destroy(m);
    }
    assert_int_equal(lvni_nn_zoo_map_side("mlp", 32), 0);
}

/* Views of several sizes, oblong ones among them, pass one network in a step. */
TEST(views_of_several_sizes_in_a_step)
{
    static const char *const models[] = {"vit_tiny_patch16_224", "vits14-notpretrained",
                                         "vits14-noreg-notpretrained"};
    for (size_t k = 0; k < 3; k++) {
        const int patch = k == 0 ? 16 : 14;
        const int64_t width = k == 0 ? 192 : 384;
        const lvni_nn_zoo_arguments a = {.image_size = 4 * patch};
        lvni_nn_model *m;
        assert_int_equal(lvni_nn_model_build(lvni_nn_zoo_find(models[k]), &a, 3, &m), LVN_OK);
        lvn_tensor *large = draw_images(SAMPLES, 4 * patch), *small = draw_images(4, 2 * patch);
        assert_int_equal(lvn_scope_open(), LVN_OK);
        assert_shape(lvni_nn_zoo_pooled(m->root, large), 2, (const int64_t[]){SAMPLES, width});
        assert_shape(lvni_nn_zoo_features(m->root, small).map, 4,
                     (const int64_t[]){4, 2, 2, width});
        lvn_tensor *oblong = lvn_slice(large, 1, 0, 3 * patch);
        const lvni_nn_features f = lvni_nn_zoo_features(m->root, oblong);
        assert_shape(f.map, 4, (const int64_t[]){SAMPLES, 3, 4, width});
        /* turned, an image has its positions turned, too: another result */
        static const int turn[] = {0, 2, 1, 3};
        const lvni_nn_features g = lvni_nn_zoo_features(m->root, lvn_permute(oblong, turn, 4));
        assert_shape(g.map, 4, (const int64_t[]){SAMPLES, 4, 3, width});
        assert_true(memcmp(LVNI_CF32(f.pooled), LVNI_CF32(g.pooled), sizeof(float)) != 0);
        assert_int_equal(lvn_scope_close(), LVN_OK);
        lvn_release(large);
        lvn_release(small);
        lvni_nn_model_destroy(m);
    }
}

/* ---- inside another model ---- */

typedef struct pretrained {
    lvn_module base;
    lvn_module *student, *teacher, *head;
} pretrained;

static lvn_status pretrained_build(lvn_module *module, lvn_builder *b)
{
    pretrained *m = (pretrained *)module;
    const char *model = lvn_builder_arguments(b);
    const lvni_nn_zoo_arguments a = {.image_size = 32, .n_classes = 1000, .drop_path = 0.5};
    m->student = lvni_nn_zoo_backbone(b, "student.backbone", model, &a);
    m->teacher = lvni_nn_zoo_backbone(b, "teacher.backbone", model, &a);
    lvn_builder_follow(b, m->teacher, m->student, .own_statistics = true);
    assert_ptr_equal(lvn_builder_arguments(b), model);
    m->head = lvn_nn_linear(b, "head", lvni_nn_zoo_feature_dim(model), 3);
    return lvn_builder_status(b);
}

static lvn_tensor *pretrained_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const pretrained *m = (const pretrained *)module;
    (void)step;
    lvn_tensor *aim = lvni_nn_zoo_pooled(m->teacher, batch->image);
    lvn_tensor *x = lvni_nn_zoo_pooled(m->student, batch->image);
    return lvn_mean(lvn_square(lvn_forward(m->head, lvn_sub(x, aim))));
}

static const lvn_module_class pretrained_class = {.name = "pretrained",
                                                  .size = sizeof(pretrained),
                                                  .build = pretrained_build,
                                                  .training_step = pretrained_step};

static lvni_nn_model *build_pretrained(const char *model)
{
    lvni_nn_model *m;
    if (lvni_nn_model_build(&pretrained_class, model, 3, &m) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    return m;
}

TEST(the_classifier_is_there_and_not_trained)
{
    lvni_nn_model *m = build_pretrained("resnet18");
    /* torchvision's resnet18 without fc, and the head */
    assert_int_equal(lvni_nn_model_count(m), 11176512 + 3 * 512 + 3);
    for (int i = 0; i < m->n_parameters; i++) {
        assert_null(strstr(m->parameters[i].name, ".fc."));
        assert_int_equal(m->parameters[i].tensor->param, i);
    }
    double squares = 0.0;
    const lvn_tensor *fc = find(m, "student.backbone.fc.weight");
    assert_shape(fc, 2, (const int64_t[]){1000, 512});
    assert_false(fc->requires_grad);
    for (int64_t i = 0; i < lvn_numel(fc); i++) {
        squares += pow((double)LVNI_CF32(fc)[i], 2);
    }
    /* uniform within 1 / sqrt(512) */
    assert_true(fabs(squares / (double)lvn_numel(fc) * 512 * 3 - 1) < 0.02);
    assert_int_equal(lvni_nn_buffer_record_length(m->buffers[m->n_buffers - 1]), 0);
    lvni_nn_model_destroy(m);
}

/* The values of `name` from here on in the network alone, which has them under its own names. */
static void copy_backbone(const lvni_nn_model *from, const char *prefix, lvni_nn_model *to)
{
    char name[160];
    for (int i = 0; i < to->n_parameters + to->n_buffers; i++) {
        const bool parameter = i < to->n_parameters;
        const char *own =
            parameter ? to->parameters[i].name : to->buffers[i - to->n_parameters]->name;
        lvn_tensor *t =
            parameter ? to->parameters[i].tensor : to->buffers[i - to->n_parameters]->tensor;
        snprintf(name, sizeof name, "%s.%s", prefix, own);
        memcpy(t->data, find(from, name)->data, (size_t)lvn_numel(t) * sizeof(float));
    }
    lvni_nn_model_touch(to);
}

TEST(a_backbone_is_the_network_under_a_name)
{
    static const char *const models[] = {"cnn", "resnet18", "vit_s_16", "vit_tiny_patch16_224"};
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        lvni_nn_model *m = build_pretrained(models[k]), *alone;
        const lvni_nn_zoo_arguments a = {.image_size = 32, .n_classes = 1000};
        assert_int_equal(lvni_nn_model_build_empty(lvni_nn_zoo_find(models[k]), &a, &alone),
                         LVN_OK);
        copy_backbone(m, "teacher.backbone", alone);
        lvn_tensor *x = draw_images(SAMPLES, 32);
        assert_int_equal(lvn_scope_open(), LVN_OK);
        const pretrained *p = (const pretrained *)m->root;
        assert_near(lvni_nn_zoo_pooled(p->teacher, x), lvni_nn_zoo_pooled(alone->root, x), 0.0);
        assert_near(lvni_nn_zoo_features(p->student, x).map,
                    lvni_nn_zoo_features(alone->root, x).map, 0.0);
        assert_int_equal(lvn_scope_close(), LVN_OK);
        lvn_release(x);
        lvni_nn_model_destroy(alone);
        lvni_nn_model_destroy(m);
    }
}

TEST(a_teacher_drops_no_paths)
{
    enum { IMAGES = 4, WIDTH = 192 };
    lvni_nn_model *m = build_pretrained("vit_tiny_patch16_224");
    const pretrained *p = (const pretrained *)m->root;
    lvn_tensor *one = draw_images(1, 32);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvni_tensor_ctx_get()->at = (lvni_tensor_position){.seed = 1, .training = true};
    lvn_tensor *x = lvn_expand(one, 4, (const int64_t[]){IMAGES, 32, 32, 3});
    lvn_tensor *student = lvni_nn_zoo_pooled(p->student, x),
               *teacher = lvni_nn_zoo_pooled(p->teacher, x);
    lvni_tensor_ctx_get()->at = (lvni_tensor_position){0};
    assert_near(teacher, lvni_nn_zoo_pooled(p->teacher, x), 0.0);
    assert_near(lvni_nn_zoo_pooled(p->student, x), teacher, 0.0); /* it begins as a copy */
    assert_memory_not_equal(LVNI_CF32(student), LVNI_CF32(teacher), WIDTH * sizeof(float));
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(one);
    lvni_nn_model_destroy(m);
}

TEST(a_step_gives_the_backbone_gradients)
{
    lvni_nn_model *m = build_pretrained("cnn");
    lvni_nn_set *set;
    lvn_tensor *x = draw_images(SAMPLES, 32);
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    assert_int_equal(lvni_nn_set_create(m, &set), LVN_OK);
    LVNI_F32(find(m, "student.backbone.norm3.bias"))[0] += 1.0f; /* not the teacher's any more */
    lvni_nn_model_touch(m);
    ctx->at = (lvni_tensor_position){.training = true};
    ctx->gradients = &set->gradients;
    ctx->records = set;
    lvni_nn_set_begin(set, SAMPLES);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const lvn_batch batch = {.size = SAMPLES, .image = x};
    assert_int_equal(lvn_backward(pretrained_step(m->root, &batch, NULL)), LVN_OK);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    for (int i = 0; i < m->n_parameters; i++) {
        assert_int_equal(set->gradients.written[i], LVNI_GRADIENT_THERE);
    }
    lvni_nn_set_finish(set);
    float before[1000];
    lvn_tensor *bias = find(m, "student.backbone.head.bias");
    memcpy(before, bias->data, sizeof before);
    lvni_nn_model_apply_records(m, set, NULL, NULL, 0);
    assert_memory_equal(before, bias->data, sizeof before);
    ctx->gradients = NULL;
    ctx->records = NULL;
    ctx->at = (lvni_tensor_position){0};
    lvn_release(x);
    lvni_nn_set_destroy(set);
    lvni_nn_model_destroy(m);
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}

/* Half `of` the features of a map of two layers. */
static lvn_tensor *half(lvn_tensor *map, int of)
{
    return lvn_slice(map, 3, of * 192, (of + 1) * 192);
}

TEST(maps_of_the_last_layers)
{
    static const char *const branches[] = {"blocks.11.attn.proj.weight", "blocks.11.attn.proj.bias",
                                           "blocks.11.mlp.fc2.weight", "blocks.11.mlp.fc2.bias"};
    const lvni_nn_zoo_arguments a = {.image_size = 32, .n_classes = 4};
    lvni_nn_model *m;
    assert_int_equal(lvni_nn_model_build(lvni_nn_zoo_find("vit_tiny_patch16_224"), &a, 1, &m),
                     LVN_OK);
    lvn_tensor *x = draw_images(2, 32);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *map = lvni_nn_zoo_features(m->root, x).map;
    lvn_tensor *two = lvni_nn_zoo_deep_map(m->root, x, 2);
    assert_near(half(two, 1), map, 0.0);
    assert_memory_not_equal(LVNI_CF32(half(two, 0)), LVNI_CF32(map), 192 * sizeof(float));
    for (int i = 0; i < 4; i++) { /* the last layer adds nothing */
        lvn_tensor *t = find(m, branches[i]);
        memset(t->data, 0, (size_t)lvn_numel(t) * sizeof(float));
    }
    lvni_nn_model_touch(m);
    two = lvni_nn_zoo_deep_map(m->root, x, 2);
    assert_near(half(two, 0), half(two, 1), 0.0);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
    lvni_nn_model_destroy(m);
}

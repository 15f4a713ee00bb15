/* Options structs of the public calls: one without its size, and enums with values that they do not
 * have, are errors. */
#include "nn/model.h"
#include "support/test.h"

#include <glob.h>
#include <levin/data.h>
#include <levin/device.h>
#include <levin/trainer.h>
#include <stdio.h>
#include <string.h>

static lvn_tensor *x;      /* (1, 4, 4, 2) */
static lvn_tensor *labels; /* (1, 4, 4) */

/* ---- ops ---- */

#define WITHOUT_SIZE(name, type, ...)                                                              \
    static bool name(void)                                                                         \
    {                                                                                              \
        static const lvn_##type##_options o = {0};                                                 \
        return lvn_##name##_with(__VA_ARGS__, &o) != NULL;                                         \
    }
WITHOUT_SIZE(conv2d, conv2d, x, x, NULL)
WITHOUT_SIZE(conv_transpose2d, conv_transpose2d, x, x, NULL)
WITHOUT_SIZE(conv1d, conv1d, x, x, NULL)
WITHOUT_SIZE(unfold, window, x, 2)
WITHOUT_SIZE(fold, window, x, 4, 4, 2)
WITHOUT_SIZE(affine_grid, affine_grid, x, 2, 2)
WITHOUT_SIZE(grid_sample, grid_sample, x, x)
WITHOUT_SIZE(soft_argmax2d, soft_argmax2d, x, 1)
WITHOUT_SIZE(max_pool2d, pool2d, x, 2)
WITHOUT_SIZE(avg_pool2d, avg_pool2d, x, 2)
WITHOUT_SIZE(resize2d, resize2d, x, 8, 8)
WITHOUT_SIZE(fft, fft, x)
WITHOUT_SIZE(ifft, fft, x)
WITHOUT_SIZE(fft2, fft, x)
WITHOUT_SIZE(ifft2, fft, x)
WITHOUT_SIZE(matmul, matmul, x, x)
WITHOUT_SIZE(pad, pad, x, ((const int64_t[4]){0}), ((const int64_t[4]){0}))
WITHOUT_SIZE(pad2d, pad, x, 0, 0, 0, 0)
WITHOUT_SIZE(cross_entropy, class_loss, x, labels)
WITHOUT_SIZE(nll_loss, class_loss, x, labels)
WITHOUT_SIZE(mse_loss, point_loss, x, x)
WITHOUT_SIZE(l1_loss, point_loss, x, x)
WITHOUT_SIZE(smooth_l1_loss, point_loss, x, x, 1.0)
WITHOUT_SIZE(bce_with_logits, point_loss, x, x)
WITHOUT_SIZE(soft_cross_entropy, soft_loss, x, x)
WITHOUT_SIZE(kl_div, kl_div, x, x)
WITHOUT_SIZE(batch_norm_train, batch_norm, x, x, x, 1e-5, NULL, NULL)
WITHOUT_SIZE(batch_norm_eval, batch_norm, x, x, x, x, x, 1e-5)
WITHOUT_SIZE(attention, attention, x, x, x)
WITHOUT_SIZE(attention_qkv, attention, x)
WITHOUT_SIZE(embedding, embedding, x, labels)
WITHOUT_SIZE(grad, grad, x, x)
WITHOUT_SIZE(image_folder_open, image_folder, "nowhere")

static bool grads(void)
{
    static const lvn_grad_options o = {0};
    lvn_tensor *dx;
    return lvn_grads_with(x, &x, 1, &dx, &o) == LVN_OK;
}

static bool trainer_create(void)
{
    static const lvn_trainer_options o = {0};
    static const lvn_job job = {0};
    lvn_trainer *trainer;
    return lvn_trainer_create_with(&job, &trainer, &o) == LVN_OK;
}

/* ---- layers ---- */

typedef lvn_module *(*layer)(lvn_builder *b);
#define LAYER(name, ...)                                                                           \
    static lvn_module *layer_##name(lvn_builder *b)                                                \
    {                                                                                              \
        static const lvn_##name##_options o = {0};                                                 \
        return lvn_##name##_with(b, "part", __VA_ARGS__, &o);                                      \
    }
LAYER(nn_conv2d, 2, 2, 3)
LAYER(nn_conv_transpose2d, 2, 2, 3)
LAYER(nn_conv1d, 2, 2, 3)
LAYER(nn_linear, 2, 2)
LAYER(nn_batch_norm, 2, 0.1)
LAYER(nn_layer_norm, 2)
#define lvn_nn_gru_cell_options lvn_nn_cell_options
#define lvn_nn_lstm_cell_options lvn_nn_cell_options
LAYER(nn_gru_cell, 2, 2)
LAYER(nn_lstm_cell, 2, 2)
LAYER(nn_unet, 2, 2)

static lvn_module *layer_builder_queue(lvn_builder *b)
{
    static const lvn_queue_options o = {0};
    return lvn_builder_queue_with(b, "queue", 2, 2, &o) == NULL ? NULL : layer_nn_linear(b);
}

static lvn_module *layer_builder_follow(lvn_builder *b)
{
    static const lvn_follow_options o = {0};
    lvn_module *leader = lvn_nn_linear(b, "leader", 2, 2), *m = lvn_nn_linear(b, "part", 2, 2);
    return lvn_builder_follow_with(b, m, leader, &o) == LVN_OK ? m : NULL;
}

static lvn_module *layer_builder_number(lvn_builder *b)
{
    static const lvn_number_options o = {0};
    return lvn_builder_number_with(b, "number", &o) == NULL ? NULL : layer_nn_linear(b);
}

static lvn_module *unknown_init(lvn_builder *b)
{
    return lvn_builder_parameter(b, "weight", 1, (const int64_t[]){2}, (lvn_init)5, 0.0) == NULL
               ? NULL
               : lvn_nn_linear(b, "part", 2, 2);
}

static lvn_module *unknown_set_init(lvn_builder *b)
{
    lvn_module *m = lvn_nn_linear(b, "part", 2, 2);
    return lvn_builder_set_init(b, "part.weight", (lvn_init)5, 0.0) == LVN_OK ? m : NULL;
}

static layer made_by;

static lvn_status net_build(lvn_module *module, lvn_builder *b)
{
    (void)module;
    made_by(b);
    return lvn_builder_status(b);
}

static lvn_status build(layer by)
{
    static const lvn_module_class net_class = {
        .name = "net", .size = sizeof(lvn_module), .build = net_build};
    lvni_nn_model *m = NULL;
    made_by = by;
    const lvn_status s = lvni_nn_model_build(&net_class, NULL, 1, &m);
    lvni_nn_model_destroy(m);
    return s;
}

/* ---- sizes ---- */

static const struct {
    const char *name;
    bool (*call)(void);
    layer part;
} all[] = {
#define OP(name)                                                                                   \
    {                                                                                              \
#name, name, NULL                                                                          \
    }
#define PART(name)                                                                                 \
    {                                                                                              \
#name, NULL, layer_##name                                                                  \
    }
    OP(conv2d),
    OP(conv_transpose2d),
    OP(conv1d),
    OP(unfold),
    OP(fold),
    OP(affine_grid),
    OP(grid_sample),
    OP(soft_argmax2d),
    OP(max_pool2d),
    OP(avg_pool2d),
    OP(resize2d),
    OP(fft),
    OP(ifft),
    OP(fft2),
    OP(ifft2),
    OP(matmul),
    OP(pad),
    OP(pad2d),
    OP(cross_entropy),
    OP(nll_loss),
    OP(mse_loss),
    OP(l1_loss),
    OP(smooth_l1_loss),
    OP(bce_with_logits),
    OP(soft_cross_entropy),
    OP(kl_div),
    OP(batch_norm_train),
    OP(batch_norm_eval),
    OP(attention),
    OP(attention_qkv),
    OP(embedding),
    OP(grad),
    OP(grads),
    OP(image_folder_open),
    OP(trainer_create),
    PART(nn_conv2d),
    PART(nn_conv_transpose2d),
    PART(nn_conv1d),
    PART(nn_linear),
    PART(nn_batch_norm),
    PART(nn_layer_norm),
    PART(nn_gru_cell),
    PART(nn_lstm_cell),
    PART(nn_unet),
    PART(builder_queue),
    PART(builder_follow),
    PART(builder_number),
};
enum { N_ALL = sizeof all / sizeof *all };

TEST(options_without_a_size_are_errors)
{
    for (size_t i = 0; i < N_ALL; i++) {
        assert_int_equal(lvn_scope_open(), LVN_OK);
        const bool worked = all[i].call != NULL ? all[i].call() : build(all[i].part) == LVN_OK;
        const char *message = lvn_last_error()->message;
        const char *called = strcmp(all[i].name, "pad2d") == 0   ? "pad"
                             : strcmp(all[i].name, "grads") == 0 ? "grad"
                                                                 : all[i].name;
        char want[128];
        snprintf(want, sizeof want,
                 "lvn_%s_with: struct_size of the options is 0, but must be sizeof of their struct",
                 called);
        if (worked || lvn_last_error()->code != LVN_ERR_INVALID ||
            strncmp(message, want, strlen(want)) != 0) {
            fail_msg("lvn_%s_with: %s", all[i].name, worked ? "works" : message);
        }
        lvn_scope_close();
    }
}

static bool has_row(const char *name, size_t n)
{
    for (size_t i = 0; i < N_ALL; i++) {
        if (strlen(all[i].name) == n && memcmp(all[i].name, name, n) == 0) {
            return true;
        }
    }
    return false;
}

/* How many lvn_NAME_with(... const lvn_..._options *) a header declares; each has a row. */
static int check_header(const char *path)
{
    static char text[65536];
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        fail_msg("cannot open %s", path);
        return 0;
    }
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    int n = 0;
    for (const char *with = strstr(text, "_with("); with != NULL;
         with = strstr(with + 1, "_with(")) {
        const char *name = with, *end = strchr(with, ';'), *options = strstr(with, "_options *");
        const char *first = with + 6; /* behind the bracket; a macro may go on in the next line */
        first += strspn(first, " \\\n");
        if (*first == '(' || end == NULL || options == NULL || options > end) {
            /* a macro; a call without options */
            continue;
        }
        while (strncmp(name, "lvn_", 4) != 0) {
            name--;
        }
        if (!has_row(name + 4, (size_t)(with - name) - 4)) {
            fail_msg("%s: %.*s has no row here", path, (int)(with - name) + 5, name);
        }
        n++;
    }
    return n;
}

TEST(every_call_with_options_is_here)
{
    glob_t headers;
    int n = 0;
    assert_int_equal(glob(LEVIN_HEADERS, 0, NULL, &headers), 0);
    for (size_t i = 0; i < headers.gl_pathc; i++) {
        n += check_header(headers.gl_pathv[i]);
    }
    globfree(&headers);
    assert_int_equal(n, N_ALL);
}

/* ---- enums ---- */

static void expect(const lvn_tensor *y, const char *want)
{
    assert_null(y);
    assert_int_equal(lvn_last_error()->code, LVN_ERR_INVALID);
    assert_string_equal(lvn_last_error()->message, want);
    lvn_scope_close();
    lvn_scope_open();
}

TEST(unknown_values_of_enums_are_errors)
{
    lvn_scope_open();
    expect(lvn_resize2d(x, 8, 8, .mode = (lvn_resize_mode)3),
           "resize2d: mode is 3, which is none of its values (0 to 2)");
    expect(lvn_resize2d(x, 8, 8, .align_corners = true),
           "resize2d: align_corners is for bilinear and bicubic; nearest has no corners to align");
    expect(lvn_resize2d(x, 8, 8, .antialias = true),
           "resize2d: antialias is for bilinear and bicubic without align_corners");
    expect(lvn_resize2d(x, 8, 8, .mode = LVN_RESIZE_BICUBIC, .align_corners = true, .scale = {2.0}),
           "resize2d: scale is for bilinear and bicubic without align_corners");
    expect(lvn_resize2d(x, 8, 8, .mode = LVN_RESIZE_BICUBIC, .scale = {0.0, 0.5}),
           "resize2d: scale 0.5 of the width is not possible: it must be positive, and 8 pixels of "
           "the result, each of 1 / scale, must lie within 4 of the image");
    expect(lvn_grid_sample(x, x, .mode = (lvn_sample_mode)2),
           "grid_sample: mode is 2, which is none of its values (0 to 1)");
    expect(lvn_grid_sample(x, x, .padding = (lvn_sample_padding)-1),
           "grid_sample: padding is -1, which is none of its values (0 to 2)");
    expect(lvn_fft(x, .norm = (lvn_fft_norm)-1),
           "fft: norm is -1, which is none of its values (0 to 2)");
    expect(lvn_ifft2(x, .norm = (lvn_fft_norm)3),
           "ifft2: norm is 3, which is none of its values (0 to 2)");
    expect(lvn_cross_entropy(x, labels, .reduction = (lvn_reduction)2),
           "cross_entropy: reduction is 2, which is none of its values (0 to 1)");
    expect(lvn_nll_loss(x, labels, .reduction = (lvn_reduction)2),
           "nll_loss: reduction is 2, which is none of its values (0 to 1)");
    expect(lvn_soft_cross_entropy(x, x, .reduction = (lvn_reduction)2),
           "soft_cross_entropy: reduction is 2, which is none of its values (0 to 1)");
    expect(lvn_kl_div(x, x, .reduction = (lvn_reduction)2),
           "kl_div: reduction is 2, which is none of its values (0 to 1)");
    expect(lvn_mse_loss(x, x, .reduction = (lvn_reduction)7),
           "mse_loss: reduction is 7, which is none of its values (0 to 1)");
    expect(lvn_bce_with_logits(x, x, .reduction = (lvn_reduction)-2),
           "bce_with_logits: reduction is -2, which is none of its values (0 to 1)");
    expect(lvn_cast(x, (lvn_dtype)20), "cast: unknown data type 20");
    expect(lvn_zeros((lvn_dtype)20, LVN_SHAPE(2)), "unknown data type 20");
    lvn_scope_close();
    assert_int_equal(lvn_device_use((lvn_device){.kind = (lvn_device_kind)9}), LVN_ERR_NOT_FOUND);
    assert_int_equal(build(unknown_init), LVN_ERR_INVALID);
    assert_string_equal(lvn_last_error()->message,
                        "weight: init is 5, which is none of its values (0 to 4)");
    assert_int_equal(build(unknown_set_init), LVN_ERR_INVALID);
    assert_string_equal(lvn_last_error()->message,
                        "part.weight: init is 5, which is none of its values (0 to 4)");
}

BEFORE_ALL()
{
    x = lvn_tensor_create(LVN_F32, LVN_SHAPE(1, 4, 4, 2));
    labels = lvn_tensor_create(LVN_I64, LVN_SHAPE(1, 4, 4));
    return x == NULL || labels == NULL ? -1 : 0;
}

AFTER_ALL()
{
    lvn_release(x);
    lvn_release(labels);
    return 0;
}

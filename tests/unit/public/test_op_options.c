/* Options of the ops: another value of each field changes the result. The fields are read from the
 * headers, and one without a case fails. */
#include "option_fields.h"
#include "tensor/ctx.h"
#include "tensor/tensor.h"
#include "support/test.h"

#include <levin/levin.h>
#include <string.h>

static lvn_tensor *x, *w;           /* (2, 6, 6, 2), (2, 3, 3, 2) */
static lvn_tensor *line, *w1;       /* (2, 6, 2), (2, 3, 2) */
static lvn_tensor *m, *theta;       /* (4, 4), (1, 2, 3) */
static lvn_tensor *grid;            /* (2, 3, 3, 2), in part outside of the image */
static lvn_tensor *logits, *target; /* (3, 4); sums to 1 in each row */
static lvn_tensor *labels, *tokens; /* (3), (1, 4) */
static lvn_tensor *of_class, *of_row, *two, *qkv, *positions, *mask;

static lvn_tensor *slope(bool twice)
{
    lvn_tensor *dy = twice ? lvn_grad(lvn_sum(lvn_square(two)), two, .create_graph = true)
                           : lvn_grad(lvn_sum(lvn_square(two)), two);
    return lvn_grad(lvn_sum(lvn_square(dy)), two);
}

#define BCE(...) lvn_bce_with_logits(logits, target, __VA_ARGS__)
#define NORM(...)                                                                                  \
    lvn_batch_norm_train_with(                                                                     \
        x, two, two, 1e-5, NULL, NULL,                                                             \
        &(lvn_batch_norm_options){.struct_size = sizeof(lvn_batch_norm_options), __VA_ARGS__})

/* Of the options `group`, the field, the op without it and with it. */
#define CASES(X)                                                                                   \
    X(grad, grad_output, lvn_grad(lvn_sum(lvn_square(two)), two),                                  \
      lvn_grad(lvn_square(two), two, .grad_output = two))                                          \
    X(grad, create_graph, slope(false), slope(true))                                               \
    X(conv2d, stride, lvn_conv2d(x, w, NULL), lvn_conv2d(x, w, NULL, .stride = 2))                 \
    X(conv2d, padding, lvn_conv2d(x, w, NULL), lvn_conv2d(x, w, NULL, .padding = 1))               \
    X(conv2d, dilation, lvn_conv2d(x, w, NULL), lvn_conv2d(x, w, NULL, .dilation = 2))             \
    X(conv2d, groups, lvn_conv2d(x, w, NULL),                                                      \
      lvn_conv2d(x, lvn_slice(w, 3, 0, 1), NULL, .groups = 2))                                     \
    X(conv2d, stride_hw, lvn_conv2d(x, w, NULL), lvn_conv2d(x, w, NULL, .stride_hw = {1, 2}))      \
    X(conv2d, padding_hw, lvn_conv2d(x, w, NULL), lvn_conv2d(x, w, NULL, .padding_hw = {0, 1}))    \
    X(conv2d, dilation_hw, lvn_conv2d(x, w, NULL), lvn_conv2d(x, w, NULL, .dilation_hw = {1, 2}))  \
    X(conv_transpose2d, stride, lvn_conv_transpose2d(x, w, NULL),                                  \
      lvn_conv_transpose2d(x, w, NULL, .stride = 2))                                               \
    X(conv_transpose2d, padding, lvn_conv_transpose2d(x, w, NULL),                                 \
      lvn_conv_transpose2d(x, w, NULL, .padding = 1))                                              \
    X(conv_transpose2d, output_padding, lvn_conv_transpose2d(x, w, NULL, .stride = 2),             \
      lvn_conv_transpose2d(x, w, NULL, .stride = 2, .output_padding = 1))                          \
    X(conv_transpose2d, groups, lvn_conv_transpose2d(x, w, NULL),                                  \
      lvn_conv_transpose2d(x, w, NULL, .groups = 2))                                               \
    X(conv_transpose2d, dilation, lvn_conv_transpose2d(x, w, NULL),                                \
      lvn_conv_transpose2d(x, w, NULL, .dilation = 2))                                             \
    X(conv_transpose2d, stride_hw, lvn_conv_transpose2d(x, w, NULL),                               \
      lvn_conv_transpose2d(x, w, NULL, .stride_hw = {1, 2}))                                       \
    X(conv_transpose2d, padding_hw, lvn_conv_transpose2d(x, w, NULL),                              \
      lvn_conv_transpose2d(x, w, NULL, .padding_hw = {0, 1}))                                      \
    X(conv_transpose2d, output_padding_hw, lvn_conv_transpose2d(x, w, NULL, .stride = 2),          \
      lvn_conv_transpose2d(x, w, NULL, .stride = 2, .output_padding_hw = {0, 1}))                  \
    X(conv_transpose2d, dilation_hw, lvn_conv_transpose2d(x, w, NULL),                             \
      lvn_conv_transpose2d(x, w, NULL, .dilation_hw = {1, 2}))                                     \
    X(conv1d, stride, lvn_conv1d(line, w1, NULL), lvn_conv1d(line, w1, NULL, .stride = 2))         \
    X(conv1d, padding, lvn_conv1d(line, w1, NULL), lvn_conv1d(line, w1, NULL, .padding = 1))       \
    X(conv1d, dilation, lvn_conv1d(line, w1, NULL), lvn_conv1d(line, w1, NULL, .dilation = 2))     \
    X(conv1d, groups, lvn_conv1d(line, w1, NULL),                                                  \
      lvn_conv1d(line, lvn_slice(w1, 2, 0, 1), NULL, .groups = 2))                                 \
    X(window, stride, lvn_unfold(x, 3), lvn_unfold(x, 3, .stride = 2))                             \
    X(window, padding, lvn_unfold(x, 3), lvn_unfold(x, 3, .padding = 1))                           \
    X(window, dilation, lvn_unfold(x, 3), lvn_unfold(x, 3, .dilation = 2))                         \
    X(window, kernel_hw, lvn_unfold(x, 3), lvn_unfold(x, 3, .kernel_hw = {0, 2}))                  \
    X(window, stride_hw, lvn_unfold(x, 3), lvn_unfold(x, 3, .stride_hw = {0, 2}))                  \
    X(window, padding_hw, lvn_unfold(x, 3), lvn_unfold(x, 3, .padding_hw = {0, 1}))                \
    X(window, dilation_hw, lvn_unfold(x, 3), lvn_unfold(x, 3, .dilation_hw = {0, 2}))              \
    X(pool2d, stride, lvn_max_pool2d(x, 3), lvn_max_pool2d(x, 3, .stride = 1))                     \
    X(pool2d, padding, lvn_max_pool2d(x, 3), lvn_max_pool2d(x, 3, .padding = 1))                   \
    X(pool2d, kernel_hw, lvn_max_pool2d(x, 3), lvn_max_pool2d(x, 3, .kernel_hw = {0, 2}))          \
    X(pool2d, stride_hw, lvn_max_pool2d(x, 3), lvn_max_pool2d(x, 3, .stride_hw = {0, 1}))          \
    X(pool2d, padding_hw, lvn_max_pool2d(x, 3), lvn_max_pool2d(x, 3, .padding_hw = {0, 1}))        \
    X(avg_pool2d, stride, lvn_avg_pool2d(x, 3), lvn_avg_pool2d(x, 3, .stride = 1))                 \
    X(avg_pool2d, padding, lvn_avg_pool2d(x, 3), lvn_avg_pool2d(x, 3, .padding = 1))               \
    X(avg_pool2d, exclude_padding, lvn_avg_pool2d(x, 3, .padding = 1),                             \
      lvn_avg_pool2d(x, 3, .padding = 1, .exclude_padding = true))                                 \
    X(avg_pool2d, kernel_hw, lvn_avg_pool2d(x, 3), lvn_avg_pool2d(x, 3, .kernel_hw = {0, 2}))      \
    X(avg_pool2d, stride_hw, lvn_avg_pool2d(x, 3), lvn_avg_pool2d(x, 3, .stride_hw = {0, 1}))      \
    X(avg_pool2d, padding_hw, lvn_avg_pool2d(x, 3), lvn_avg_pool2d(x, 3, .padding_hw = {0, 1}))    \
    X(resize2d, mode, lvn_resize2d(x, 9, 9), lvn_resize2d(x, 9, 9, .mode = LVN_RESIZE_BICUBIC))    \
    X(resize2d, align_corners, lvn_resize2d(x, 9, 9, .mode = LVN_RESIZE_BILINEAR),                 \
      lvn_resize2d(x, 9, 9, .mode = LVN_RESIZE_BILINEAR, .align_corners = true))                   \
    X(resize2d, antialias, lvn_resize2d(x, 2, 2, .mode = LVN_RESIZE_BICUBIC),                      \
      lvn_resize2d(x, 2, 2, .mode = LVN_RESIZE_BICUBIC, .antialias = true))                        \
    X(resize2d, scale, lvn_resize2d(x, 2, 2, .mode = LVN_RESIZE_BICUBIC),                          \
      lvn_resize2d(x, 2, 2, .mode = LVN_RESIZE_BICUBIC, .scale = {0.6, 0.6}))                      \
    X(affine_grid, align_corners, lvn_affine_grid(theta, 3, 3),                                    \
      lvn_affine_grid(theta, 3, 3, .align_corners = true))                                         \
    X(grid_sample, mode, lvn_grid_sample(x, grid),                                                 \
      lvn_grid_sample(x, grid, .mode = LVN_SAMPLE_NEAREST))                                        \
    X(grid_sample, padding, lvn_grid_sample(x, grid),                                              \
      lvn_grid_sample(x, grid, .padding = LVN_SAMPLE_BORDER))                                      \
    X(grid_sample, align_corners, lvn_grid_sample(x, grid),                                        \
      lvn_grid_sample(x, grid, .align_corners = true))                                             \
    X(soft_argmax2d, temperature, lvn_soft_argmax2d(x, 1),                                         \
      lvn_soft_argmax2d(x, 1, .temperature = 2.0))                                                 \
    X(fft, norm, lvn_fft(x), lvn_fft(x, .norm = LVN_FFT_ORTHO))                                    \
    X(fft, centered, lvn_fft(x), lvn_fft(x, .centered = true))                                     \
    X(matmul, trans_a, lvn_matmul(m, m), lvn_matmul(m, m, .trans_a = true))                        \
    X(matmul, trans_b, lvn_matmul(m, m), lvn_matmul(m, m, .trans_b = true))                        \
    X(class_loss, class_weight, lvn_cross_entropy(logits, labels),                                 \
      lvn_cross_entropy(logits, labels, .class_weight = of_class))                                 \
    X(class_loss, ignores, lvn_cross_entropy(logits, labels),                                      \
      lvn_cross_entropy(logits, labels, .ignores = true))                                          \
    X(class_loss, ignore_index, lvn_cross_entropy(logits, labels, .ignores = true),                \
      lvn_cross_entropy(logits, labels, .ignores = true, .ignore_index = 1))                       \
    X(class_loss, reduction, lvn_cross_entropy(logits, labels),                                    \
      lvn_cross_entropy(logits, labels, .reduction = LVN_REDUCTION_SUM))                           \
    X(class_loss, label_smoothing, lvn_cross_entropy(logits, labels),                              \
      lvn_cross_entropy(logits, labels, .label_smoothing = 0.1))                                   \
    X(class_loss, sample_weight, lvn_cross_entropy(logits, labels),                                \
      lvn_cross_entropy(logits, labels, .sample_weight = of_row))                                  \
    X(soft_loss, class_weight, lvn_soft_cross_entropy(logits, target),                             \
      lvn_soft_cross_entropy(logits, target, .class_weight = of_class))                            \
    X(soft_loss, reduction, lvn_soft_cross_entropy(logits, target),                                \
      lvn_soft_cross_entropy(logits, target, .reduction = LVN_REDUCTION_SUM))                      \
    X(kl_div, log_target, lvn_kl_div(logits, target),                                              \
      lvn_kl_div(logits, target, .log_target = true))                                              \
    X(kl_div, reduction, lvn_kl_div(logits, target),                                               \
      lvn_kl_div(logits, target, .reduction = LVN_REDUCTION_SUM))                                  \
    X(point_loss, weight, BCE(.weight = NULL), BCE(.weight = target))                              \
    X(point_loss, reduction, BCE(.weight = NULL), BCE(.reduction = LVN_REDUCTION_SUM))             \
    X(point_loss, pos_weight, BCE(.weight = NULL), BCE(.pos_weight = of_class))                    \
    X(batch_norm, residual, NORM(.relu = false), NORM(.residual = x))                              \
    X(batch_norm, relu, NORM(.relu = false), NORM(.relu = true))                                   \
    X(attention, causal, lvn_attention_qkv(qkv), lvn_attention_qkv(qkv, .causal = true))           \
    X(attention, scale, lvn_attention_qkv(qkv), lvn_attention_qkv(qkv, .scale = 3.0))              \
    X(attention, mask, lvn_attention_qkv(qkv), lvn_attention_qkv(qkv, .mask = mask))               \
    X(attention, dropout, lvn_attention_qkv(qkv), lvn_attention_qkv(qkv, .dropout = 0.5))          \
    X(embedding, positions, lvn_embedding(m, tokens),                                              \
      lvn_embedding(m, tokens, .positions = positions))                                            \
    X(pad, value, lvn_pad2d(x, 1, 1, 1, 1), lvn_pad2d(x, 1, 1, 1, 1, .value = 2.0))                \
    X(pad, reflect, lvn_pad2d(x, 1, 1, 1, 1), lvn_pad2d(x, 1, 1, 1, 1, .reflect = true))

#define FUNCTIONS(group, field, without, with)                                                     \
    static lvn_tensor *without_##group##_##field(void)                                             \
    {                                                                                              \
        return without;                                                                            \
    }                                                                                              \
    static lvn_tensor *with_##group##_##field(void)                                                \
    {                                                                                              \
        return with;                                                                               \
    }
CASES(FUNCTIONS)

typedef lvn_tensor *(*call)(void);
static const struct {
    const char *group, *field;
    call without, with;
} cases[] = {
#define ROW(group, field, without, with)                                                           \
    {#group, #field, without_##group##_##field, with_##group##_##field},
    CASES(ROW)};
enum { N_CASES = sizeof cases / sizeof *cases };

/* The result, the caller's; NULL: the op failed. */
static lvn_tensor *result_of(call f)
{
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *y = f();
    y = y == NULL ? NULL : lvn_keep(y);
    lvn_scope_close();
    return y;
}

static bool differ(const lvn_tensor *a, const lvn_tensor *b)
{
    return a == NULL || !lvni_tensor_same_shape(a, b) ||
           memcmp(a->data, b->data, (size_t)lvn_numel(a) * lvn_dtype_size(a->dtype)) != 0;
}

TEST(every_field_changes_the_result)
{
    lvni_tensor_ctx_get()->at = (lvni_tensor_position){.seed = 3, .training = true};
    for (int i = 0; i < N_CASES; i++) {
        lvn_tensor *without = result_of(cases[i].without), *with = result_of(cases[i].with);
        if (with == NULL || !differ(without, with)) {
            fail_msg("lvn_%s_options.%s: %s", cases[i].group, cases[i].field,
                     with == NULL ? lvn_last_error()->message : "the result stays");
        }
        lvn_release(without);
        lvn_release(with);
    }
    lvni_tensor_ctx_get()->at = (lvni_tensor_position){0};
}

/* ---- the fields ---- */

/* sync needs other micro-batches: tests/unit/trainer/test_coupled.c */
static bool has_case(const char *group, const char *field)
{
    bool found = strcmp(field, "struct_size") == 0 ||
                 (strcmp(group, "batch_norm") == 0 && strcmp(field, "sync") == 0);
    for (int i = 0; i < N_CASES; i++) {
        found = found || (strcmp(cases[i].group, group) == 0 && strcmp(cases[i].field, field) == 0);
    }
    return found;
}

static void check_field(const char *group, const char *field)
{
    if (!has_case(group, field)) {
        fail_msg("lvn_%s_options.%s has no case", group, field);
    }
}

TEST(every_field_has_a_case)
{
    assert_true(option_fields(LEVIN_HEADERS, check_field) > N_CASES); /* and the sizes */
}

/* ---- tensors ---- */

static lvn_tensor *numbers(int ndim, const int64_t *shape, float scale)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F32, ndim, shape);
    assert_non_null(t);
    for (int64_t i = 0; i < lvn_numel(t); i++) {
        ((float *)t->data)[i] = scale * ((float)((i * 7919 + 13) % 101) / 101.0f - 0.3f);
    }
    return t;
}

static lvn_tensor *wholes(int ndim, const int64_t *shape)
{
    lvn_tensor *t = lvn_tensor_create(LVN_I64, ndim, shape);
    assert_non_null(t);
    for (int64_t i = 0; i < lvn_numel(t); i++) {
        ((int64_t *)t->data)[i] = i % 4;
    }
    return t;
}

BEFORE_ALL()
{
    x = numbers(LVN_SHAPE(2, 6, 6, 2), 1.0f);
    w = numbers(LVN_SHAPE(2, 3, 3, 2), 1.0f);
    line = numbers(LVN_SHAPE(2, 6, 2), 1.0f);
    w1 = numbers(LVN_SHAPE(2, 3, 2), 1.0f);
    m = numbers(LVN_SHAPE(4, 4), 1.0f);
    theta = numbers(LVN_SHAPE(1, 2, 3), 1.0f);
    grid = numbers(LVN_SHAPE(2, 3, 3, 2), 3.0f);
    logits = numbers(LVN_SHAPE(3, 4), 2.0f);
    target = lvn_tensor_create(LVN_F32, LVN_SHAPE(3, 4));
    for (int i = 0; i < 12; i++) {
        ((float *)target->data)[i] = (float)(i % 4 + 1) / 10.0f;
    }
    labels = wholes(LVN_SHAPE(3));
    tokens = wholes(LVN_SHAPE(1, 4));
    of_class = numbers(LVN_SHAPE(4), 3.0f);
    of_row = numbers(LVN_SHAPE(3), 3.0f);
    for (int i = 0; i < 4; i++) {
        ((float *)of_class->data)[i] = (float)(i + 1);
        ((float *)of_row->data)[i % 3] = (float)(i + 1);
    }
    two = lvn_require_grad(numbers(LVN_SHAPE(2), 1.0f));
    qkv = numbers(LVN_SHAPE(1, 4, 3, 2, 2), 2.0f);
    positions = numbers(LVN_SHAPE(4, 4), 1.0f);
    mask = lvn_tensor_create(LVN_BOOL, LVN_SHAPE(4, 4));
    for (int i = 0; i < 16; i++) {
        ((uint8_t *)mask->data)[i] = i % 3 != 0;
    }
    return 0;
}

AFTER_ALL()
{
    lvn_tensor *const all[] = {x,      w,      line,   w1,        m,      theta,
                               grid,   logits, target, labels,    tokens, of_class,
                               of_row, two,    qkv,    positions, mask};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        lvn_release(all[i]);
    }
    return 0;
}

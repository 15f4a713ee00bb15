/* The cases and inputs of the vector kernel tests (vec_support.h). */
#include "vec_support.h"

#include <stdlib.h>
#include <string.h>

static const lvn_scale_attr SCALE = {.mul = 1.7, .add = -0.3};
static const lvn_axes_attr AXES_ALL = {.mask = 0xfu}, AXES_12 = {.mask = 6u}, AXIS_0 = {.mask = 1u};
static const lvn_axes_attr AXIS_1 = {.mask = 2u, .keepdim = true}, AXIS_2 = {.mask = 4u},
                           AXES_02 = {.mask = 5u};
static const lvn_axes_attr AXES_135 = {.mask = 0x2au};
static const lvn_shape_attr TO_17 = {.ndim = 1, .shape = {17}},
                            TO_COLUMN = {.ndim = 2, .shape = {300, 1}};
static const lvn_shape_attr TO_MIXED = {.ndim = 3, .shape = {1, 40, 1}},
                            TO_4D = {.ndim = 4, .shape = {6, 5, 9, 33}};
static const lvn_shape_attr TO_SCALAR = {.ndim = 0};
static const lvn_shape_attr GRAD_ROWS = {.ndim = 2, .shape = {70, 19}},
                            GRAD_MIDDLE = {.ndim = 3, .shape = {4, 7, 37}};
static const lvn_pool_attr POOL_22 = {.kernel = {2, 2}, .stride = {2, 2}, .in_h = 16, .in_w = 16};
static const lvn_pool_attr POOL_ODD = {.kernel = {2, 2}, .stride = {2, 2}, .in_h = 15, .in_w = 13};
static const lvn_pool_attr POOL_33 = {
    .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .in_h = 17, .in_w = 14};
static const lvn_pool_attr POOL_32 = {
    .kernel = {3, 2}, .stride = {1, 2}, .padding = {0, 1}, .in_h = 9, .in_w = 8};
static const lvn_norm_attr EPS = {.eps = 1e-5};
static const lvn_norm_attr EPS_RELU = {.eps = 1e-5, .relu = true};
static const lvn_class_loss_attr LOSS = {.ignore = -100};
static const lvn_dropout_attr DROP = {
    .p = 0.3, .rng = {.key = {0x12345678u, 0x9abcdef0u}, .a = 7, .b = 3, .c = 1}};

#define N(...)                                                                                     \
    {                                                                                              \
        .kind = 'n', .ndim = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .shape = {        \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define P(...)                                                                                     \
    {                                                                                              \
        .kind = 'p', .ndim = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .shape = {        \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define L(below, ...)                                                                              \
    {                                                                                              \
        .kind = 'l', .ndim = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                   \
        .shape = {__VA_ARGS__}, .limit = (below)                                                   \
    }
#define W(...)                                                                                     \
    {                                                                                              \
        .kind = 'w', .ndim = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .shape = {        \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define SCALAR                                                                                     \
    {                                                                                              \
        .kind = 'n', .ndim = 0                                                                     \
    }

const vec_case vec_cases[] = {
    {"add, same shape", LVNI_OP_add, {N(7, 5, 1001), N(7, 5, 1001)}, NULL, 1e-6, 0},
    {"add, bias over 3 channels", LVNI_OP_add, {N(2, 50, 61, 3), N(3)}, NULL, 1e-6, 0},
    {"add, bias over 100 channels", LVNI_OP_add, {N(400, 100), N(100)}, NULL, 1e-6, 0},
    {"sub, value from the left", LVNI_OP_sub, {SCALAR, N(40000)}, NULL, 1e-6, 0},
    {"sub, vector from the left", LVNI_OP_sub, {N(33), N(1100, 33)}, NULL, 1e-6, 0},
    {"mul, column", LVNI_OP_mul, {N(300, 70, 5), N(300, 1, 1)}, NULL, 1e-6, 0},
    {"mul, both broadcast", LVNI_OP_mul, {N(6, 1, 9, 1), N(5, 1, 33)}, NULL, 1e-6, 0},
    {"mul, one element", LVNI_OP_mul, {N(1, 1), N(1)}, NULL, 1e-6, 0},
    {"div, value from the right", LVNI_OP_div, {N(90, 401), P(1)}, NULL, 1e-6, 0},
    {"div, middle axis", LVNI_OP_div, {N(9, 60, 71), P(60, 1)}, NULL, 1e-6, 0},
    {"scale", LVNI_OP_scale, {N(50003)}, &SCALE, 1e-6, 0},
    {"exp", LVNI_OP_exp, {N(50003)}, NULL, 1e-6, 0},
    {"log", LVNI_OP_log, {P(50003)}, NULL, 1e-6, 0},
    {"square", LVNI_OP_square, {N(50003)}, NULL, 1e-6, 0},
    {"square_grad", LVNI_OP_square_grad, {N(50003), N(50003)}, NULL, 1e-6, 0},
    {"sqrt", LVNI_OP_sqrt, {P(50003)}, NULL, 1e-6, 0},
    {"sqrt_grad", LVNI_OP_sqrt_grad, {N(50003), P(50003)}, NULL, 1e-6, 0},
    {"relu", LVNI_OP_relu, {N(50003)}, NULL, 1e-6, 0},
    {"relu_grad", LVNI_OP_relu_grad, {N(50003), N(50003)}, NULL, 1e-6, 0},
    {"sum_to a bias", LVNI_OP_sum_to, {N(5, 601, 17)}, &TO_17, 2e-6, 0},
    {"sum_to a column", LVNI_OP_sum_to, {N(300, 217)}, &TO_COLUMN, 2e-6, 0},
    {"sum_to the middle", LVNI_OP_sum_to, {N(30, 40, 50)}, &TO_MIXED, 2e-6, 0},
    {"sum_to a value", LVNI_OP_sum_to, {N(30, 40, 50)}, &TO_SCALAR, 2e-6, 2},
    {"expand inside", LVNI_OP_expand, {N(6, 1, 9, 1)}, &TO_4D, 1e-6, 0},
    {"expand outside", LVNI_OP_expand, {N(5, 1, 33)}, &TO_4D, 1e-6, 0},
    {"sum of all", LVNI_OP_sum, {N(11, 13, 17, 40)}, &AXES_ALL, 2e-6, 2},
    {"sum over rows, 64 columns", LVNI_OP_sum, {N(3001, 64)}, &AXIS_0, 2e-6, 0},
    {"sum over rows, 3 columns", LVNI_OP_sum, {N(30001, 3)}, &AXIS_0, 2e-6, 0},
    {"sum over rows, many columns", LVNI_OP_sum, {N(9, 9001)}, &AXIS_0, 2e-6, 0},
    {"sum over long rows", LVNI_OP_sum, {N(5, 40000)}, &AXIS_1, 2e-6, 0},
    {"sum over short rows", LVNI_OP_sum, {N(10, 4000, 3)}, &AXIS_2, 2e-6, 0},
    {"sum, first and last", LVNI_OP_sum, {N(30, 41, 50)}, &AXES_02, 2e-6, 0},
    {"sum, every other axis", LVNI_OP_sum, {N(3, 4, 5, 6, 7, 8)}, &AXES_135, 2e-6, 0},
    {"mean, global average pool", LVNI_OP_mean, {N(8, 7, 9, 130)}, &AXES_12, 2e-6, 0},
    {"mean, large images", LVNI_OP_mean, {N(2, 40, 40, 16)}, &AXES_12, 2e-6, 1},
    {"mean of all", LVNI_OP_mean, {N(11, 13, 17, 40)}, &AXES_ALL, 2e-6, 100},
    {"max, last axis", LVNI_OP_max, {N(30, 41, 501)}, &AXIS_2, 0, 0},
    {"max, middle axis", LVNI_OP_max, {N(30, 41, 51)}, &AXIS_1, 0, 0},
    {"max_grad, last axis", LVNI_OP_max_grad, {N(70, 1), L(19, 70, 1)}, &GRAD_ROWS, 0, 0},
    {"max_grad, middle axis", LVNI_OP_max_grad, {N(4, 1, 37), L(7, 4, 1, 37)}, &GRAD_MIDDLE, 0, 0},
    {"max_pool2d 2x2, 64 channels", LVNI_OP_max_pool2d, {N(3, 16, 16, 64)}, &POOL_22, 0, 0},
    {"max_pool2d 2x2, 21 channels", LVNI_OP_max_pool2d, {N(3, 15, 13, 21)}, &POOL_ODD, 0, 0},
    {"max_pool2d 3x3 with padding", LVNI_OP_max_pool2d, {N(3, 17, 14, 37)}, &POOL_33, 0, 0},
    {"max_pool2d 3x2, 3 channels", LVNI_OP_max_pool2d, {N(3, 9, 8, 3)}, &POOL_32, 0, 0},
    {"max_pool2d_grad 2x2, 64 channels",
     LVNI_OP_max_pool2d_grad,
     {N(3, 8, 8, 64), W(3, 8, 8, 64)},
     &POOL_22,
     1e-6,
     0},
    {"max_pool2d_grad 2x2, 21 channels",
     LVNI_OP_max_pool2d_grad,
     {N(3, 7, 6, 21), W(3, 7, 6, 21)},
     &POOL_ODD,
     1e-6,
     0},
    {"max_pool2d_grad 3x3",
     LVNI_OP_max_pool2d_grad,
     {N(3, 9, 7, 37), W(3, 9, 7, 37)},
     &POOL_33,
     1e-6,
     0},
    {"max_pool2d_grad 3x2",
     LVNI_OP_max_pool2d_grad,
     {N(3, 7, 5, 3), W(3, 7, 5, 3)},
     &POOL_32,
     1e-6,
     0},
    {"batch_norm_train, 64 channels",
     LVNI_OP_batch_norm_train,
     {N(4, 15, 15, 64), P(64), N(64)},
     &EPS,
     5e-6,
     0},
    {"batch_norm_train, 3 channels",
     LVNI_OP_batch_norm_train,
     {N(4, 55, 55, 3), P(3), N(3)},
     &EPS,
     5e-6,
     0},
    {"batch_norm_train, 17 channels",
     LVNI_OP_batch_norm_train,
     {N(1021, 17), P(17), N(17)},
     &EPS,
     5e-6,
     0},
    {"batch_norm_train, 600 channels",
     LVNI_OP_batch_norm_train,
     {N(70, 600), P(600), N(600)},
     &EPS,
     5e-6,
     0},
    {"batch_norm_train, far mean",
     LVNI_OP_batch_norm_train,
     {N(4, 33, 33, 20), P(20), N(20)},
     &EPS,
     2e-4,
     1000},
    {"batch_norm_train_grad, 64 channels",
     LVNI_OP_batch_norm_train_grad,
     {N(4, 15, 15, 64), N(4, 15, 15, 64), P(64), N(64), P(64), N(64)},
     &EPS,
     1e-5,
     0},
    {"batch_norm_train_grad, 3 channels",
     LVNI_OP_batch_norm_train_grad,
     {N(4, 55, 55, 3), N(4, 55, 55, 3), P(3), N(3), P(3), N(3)},
     &EPS,
     1e-5,
     0},
    {"batch_norm_train_grad, 17 channels",
     LVNI_OP_batch_norm_train_grad,
     {N(1021, 17), N(1021, 17), P(17), N(17), P(17), N(17)},
     &EPS,
     1e-5,
     0},
    {"batch_norm_eval",
     LVNI_OP_batch_norm_eval,
     {N(4, 33, 33, 20), P(20), N(20), N(20), P(20)},
     &EPS,
     2e-6,
     0},
    {"batch_norm_eval_grad",
     LVNI_OP_batch_norm_eval_grad,
     {N(4, 33, 33, 20), N(4, 33, 33, 20), P(20), N(20), P(20), N(20)},
     &EPS,
     1e-5,
     0},
    {"batch_norm_train, relu",
     LVNI_OP_batch_norm_train,
     {N(4, 15, 15, 64), P(64), N(64)},
     &EPS_RELU,
     5e-6,
     0},
    {"batch_norm_train, residual, relu, 100 channels",
     LVNI_OP_batch_norm_train,
     {N(4, 15, 15, 100), P(100), N(100), N(4, 15, 15, 100)},
     &EPS_RELU,
     5e-6,
     0},
    {"batch_norm_train_grad, relu",
     LVNI_OP_batch_norm_train_grad,
     {N(4, 15, 15, 64), N(4, 15, 15, 64), P(64), N(64), P(64), N(64)},
     &EPS_RELU,
     1e-5,
     0},
    {"batch_norm_train_grad, residual, relu, 600 channels",
     LVNI_OP_batch_norm_train_grad,
     {N(70, 600), N(70, 600), P(600), N(600), P(600), N(600), N(70, 600)},
     &EPS_RELU,
     1e-5,
     0},
    {"batch_norm_train_grad, residual, relu, 5 channels",
     LVNI_OP_batch_norm_train_grad,
     {N(3000, 5), N(3000, 5), P(5), N(5), P(5), N(5), N(3000, 5)},
     &EPS_RELU,
     1e-5,
     0},
    {"batch_norm_eval_grad, relu",
     LVNI_OP_batch_norm_eval_grad,
     {N(4, 33, 33, 20), N(4, 33, 33, 20), P(20), N(20), P(20), N(20)},
     &EPS_RELU,
     1e-5,
     0},
    {"softmax, 10 classes", LVNI_OP_softmax, {N(1203, 10)}, NULL, 2e-6, 0},
    {"softmax, long rows", LVNI_OP_softmax, {N(7, 5003)}, NULL, 2e-6, 0},
    {"softmax_grad", LVNI_OP_softmax_grad, {N(31, 1203), P(31, 1203)}, NULL, 2e-6, 0},
    {"log_softmax", LVNI_OP_log_softmax, {N(21, 1203)}, NULL, 2e-6, 0},
    {"log_softmax_grad", LVNI_OP_log_softmax_grad, {N(51, 203), N(51, 203)}, NULL, 3e-6, 0},
    {"cross_entropy", LVNI_OP_cross_entropy, {N(1000, 37), L(37, 1000)}, &LOSS, 2e-6, 5},
    {"cross_entropy_grad",
     LVNI_OP_cross_entropy_grad,
     {SCALAR, N(1000, 37), N(1000, 2), L(37, 1000)},
     &LOSS,
     2e-6,
     0},
    {"dropout", LVNI_OP_dropout, {N(50003)}, &DROP, 1e-6, 0},
    {"accuracy", LVNI_OP_accuracy, {N(1000, 4), L(4, 1000)}, NULL, 1e-7, 0},
};
const int vec_case_count = (int)(sizeof vec_cases / sizeof *vec_cases);

/* Values are floats in both types, so that both backends see the same numbers. */
static double value_of(const vec_case *c, int input, char kind, uint64_t e)
{
    const lvni_core_rng rng = {
        .key = {{(uint32_t)(c - vec_cases), (uint32_t)input}}, .a = 1, .b = 2, .c = 3};
    if (kind == 'p') {
        return (double)(0.5f + lvni_core_rng_uniform(&rng, e));
    }
    const bool shifted = input == 0 || (input == 1 && c->op == LVNI_OP_batch_norm_train_grad);
    return (double)(float)(lvni_core_rng_normal(&rng, e) + (shifted ? c->mean : 0.0));
}

static lvn_tensor *make_numbers(const vec_case *c, int input, lvn_dtype dtype)
{
    const vec_input *in = &c->in[input];
    lvn_tensor *t = lvn_tensor_create(dtype, in->ndim, in->shape);
    for (int64_t e = 0; t != NULL && e < lvn_numel(t); e++) {
        const double v = value_of(c, input, in->kind, (uint64_t)e);
        if (dtype == LVN_F64) {
            ((double *)t->data)[e] = v;
        } else {
            ((float *)t->data)[e] = (float)v;
        }
    }
    return t;
}

static lvn_tensor *make_labels(const vec_case *c, int input)
{
    const vec_input *in = &c->in[input];
    lvn_tensor *t = lvn_tensor_create(LVN_I64, in->ndim, in->shape);
    const lvni_core_rng rng = {.key = {{99, (uint32_t)(c - vec_cases)}}};
    for (int64_t e = 0; t != NULL && e < lvn_numel(t); e++) {
        ((int64_t *)t->data)[e] = lvni_core_rng_u32(&rng, (uint64_t)e) % in->limit;
    }
    return t;
}

/* Any place of a window that lies inside the image. */
static lvn_tensor *make_places(const vec_case *c, int input)
{
    const vec_input *in = &c->in[input];
    const lvn_pool_attr *p = c->attr;
    const lvni_core_rng rng = {.key = {{98, (uint32_t)(c - vec_cases)}}};
    lvn_tensor *t = lvn_tensor_create(LVN_U8, in->ndim, in->shape);
    uint64_t draw = 0;
    for (int64_t e = 0; t != NULL && e < lvn_numel(t);) {
        const int64_t pixel = e / in->shape[3] % (in->shape[1] * in->shape[2]);
        const uint32_t k =
            lvni_core_rng_u32(&rng, draw++) % (uint32_t)(p->kernel[0] * p->kernel[1]);
        const int64_t h =
            pixel / in->shape[2] * p->stride[0] - p->padding[0] + k / (uint32_t)p->kernel[1];
        const int64_t w =
            pixel % in->shape[2] * p->stride[1] - p->padding[1] + k % (uint32_t)p->kernel[1];
        if (h >= 0 && h < p->in_h && w >= 0 && w < p->in_w) {
            ((uint8_t *)t->data)[e++] = (uint8_t)k;
        }
    }
    return t;
}

void vec_make_inputs(const vec_case *c, lvn_dtype dtype, lvn_kernel_args *args)
{
    memset(args, 0, sizeof *args);
    args->attr = c->attr;
    for (int i = 0; i < LVN_KERNEL_INPUTS && c->in[i].kind != 0; i++) {
        switch (c->in[i].kind) {
        case 'l': args->in[i] = make_labels(c, i); break;
        case 'w': args->in[i] = make_places(c, i); break;
        default: args->in[i] = make_numbers(c, i, dtype); break;
        }
        if (args->in[i] == NULL) {
            abort();
        }
    }
}

static lvn_tensor *borrowed(const lvn_tensor *t)
{
    return (lvn_tensor *)(uintptr_t)t;
}

void vec_release(lvn_kernel_args *args)
{
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        lvn_release(borrowed(args->in[i]));
        args->in[i] = NULL;
    }
    for (int i = 0; i < LVN_KERNEL_OUTPUTS; i++) {
        lvn_release(args->out[i]);
        args->out[i] = NULL;
    }
}

void vec_misalign(lvn_kernel_args *args)
{
    for (int i = 0; i < LVN_KERNEL_INPUTS && args->in[i] != NULL; i++) {
        const lvn_tensor *t = args->in[i];
        if (t->dtype != LVN_F32) {
            continue;
        }
        const int64_t n = lvn_numel(t);
        lvn_tensor *longer = lvn_tensor_create(LVN_F32, 1, (int64_t[]){n + 1});
        const lvni_tensor_desc desc = lvni_tensor_get_desc(t);
        lvn_tensor *behind = longer == NULL ? NULL : lvni_tensor_slice(longer, 1, &desc);
        if (behind == NULL) {
            abort();
        }
        memcpy(behind->data, t->data, (size_t)n * sizeof(float));
        lvn_release(longer);
        lvn_release(borrowed(t));
        args->in[i] = behind;
    }
}

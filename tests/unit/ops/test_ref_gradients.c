/* Every *_grad reference kernel against central differences of its forward reference kernel: the
 * scalar sum(dy * y) is moved by each element of each input. */
#include "op_support.h"

#include <math.h>
#include <string.h>

#define DIFFERENCES 1e-6 /* of the largest gradient */

/* sum(dy * y), y the first output. */
static double objective(lvni_kernels_op op, const void *attr, lvn_tensor *const *in,
                        lvn_tensor *const *out, const lvn_tensor *dy)
{
    lvn_kernel_args args = {.attr = attr};
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        args.in[i] = i < ref_ops[op].n_in ? in[i] : NULL;
    }
    memcpy(args.out, out, sizeof args.out);
    assert_int_equal(ref_ops[op].ref(&args), LVN_OK);
    double sum = 0.0;
    for (int64_t e = 0; e < lvn_numel(dy); e++) {
        sum += lvni_check_value(dy, e) * lvni_check_value(out[0], e);
    }
    return sum;
}

/* `computed` is the claimed gradient of sum(dy * y) with respect to in[k]. */
static void check_gradient(lvni_kernels_op op, const void *attr, lvn_tensor *const *in, int k,
                           const lvn_tensor *dy, const lvn_tensor *computed)
{
    const double h = 1e-5;
    const lvn_kernel_args forward = support_ref(op, attr, in);
    assert_int_equal(lvn_numel(forward.out[0]), lvn_numel(dy));
    assert_true(lvni_tensor_same_shape(computed, in[k]));
    double *x = in[k]->data, largest = 0.0;
    for (int64_t e = 0; e < lvn_numel(in[k]); e++) {
        largest = fmax(largest, fabs(lvni_check_value(computed, e)));
    }
    assert_true(largest > 0.0);
    for (int64_t e = 0; e < lvn_numel(in[k]); e++) {
        const double kept = x[e];
        x[e] = kept + h;
        const double up = objective(op, attr, in, forward.out, dy);
        x[e] = kept - h;
        const double down = objective(op, attr, in, forward.out, dy);
        x[e] = kept;
        const double numeric = (up - down) / (2 * h), claimed = lvni_check_value(computed, e);
        if (!(fabs(numeric - claimed) <= DIFFERENCES * largest)) {
            fail_msg("%s, input %d, element %d: differences give %.9g, the kernel %.9g",
                     ref_ops[op].name, k, (int)e, numeric, claimed);
        }
    }
}

#define RANDOM(name, ...) support_random(name, DIMS(__VA_ARGS__))

/* |x| + 0.5: away from zero, positive. */
static lvn_tensor *positive(lvn_tensor *t)
{
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        ((double *)t->data)[e] = fabs(((double *)t->data)[e]) + 0.5;
    }
    return t;
}

/* Same signs, but no value within 0.1 of zero and no two within 1e-3: no kink within reach of the
 * differences. */
static lvn_tensor *spread(lvn_tensor *t)
{
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        double *v = (double *)t->data + e;
        *v += *v < 0 ? -0.1 : 0.1;
        for (int64_t f = 0; f < e; f++) {
            assert_true(fabs(*v - ((double *)t->data)[f]) > 1e-4);
        }
    }
    return t;
}

/* ---- element-wise ---- */

/* Of one input; `saved`: what the gradient is computed from, x or y. */
#define ELEMENT(op, values, attr, saved)                                                           \
    TEST(op##_grad)                                                                                \
    {                                                                                              \
        lvn_tensor *x = values(RANDOM("x", 4, 5)), *dy = RANDOM("dy", 4, 5),                       \
                   *y = REF(op, attr, x).out[0];                                                   \
        check_gradient(LVNI_OP_##op, attr, IN(x), 0, dy, REF(op##_grad, attr, dy, saved).out[0]);  \
        assert_true(lvni_tensor_same_shape(y, x));                                                 \
    }

static const lvn_range_attr between = {.min = -0.5, .max = 1.25};
static const lvn_number_attr power = {.value = 2.5}, slope = {.value = 0.2};

ELEMENT(square, spread, NULL, x)
ELEMENT(sqrt, positive, NULL, y)
ELEMENT(rsqrt, positive, NULL, y)
ELEMENT(reciprocal, positive, NULL, y)
ELEMENT(relu, spread, NULL, y)
ELEMENT(abs, spread, NULL, x)
ELEMENT(clamp, spread, &between, x)
ELEMENT(pow_scalar, positive, &power, x)
ELEMENT(leaky_relu, spread, &slope, x)
ELEMENT(gelu, spread, NULL, x)
ELEMENT(gelu_tanh, spread, NULL, x)
ELEMENT(silu, spread, NULL, x)
ELEMENT(sigmoid, spread, NULL, y)
ELEMENT(tanh, spread, NULL, y)
ELEMENT(softplus, spread, NULL, x)
ELEMENT(erf, spread, NULL, x)
ELEMENT(sin, spread, NULL, x)
ELEMENT(cos, spread, NULL, x)

TEST_EACH(NULL, support_release);

TEST(prelu_grad)
{
    for (int64_t slopes = 1; slopes <= 5; slopes += 4) {
        lvn_tensor *x = spread(RANDOM("x", 2, 3, 5)), *dy = RANDOM("dy", 2, 3, 5);
        lvn_tensor *learned = RANDOM("slope", slopes);
        const lvn_kernel_args g = REF(prelu_grad, NULL, dy, x, learned);
        for (int k = 0; k < 2; k++) {
            check_gradient(LVNI_OP_prelu, NULL, IN(x, learned), k, dy, g.out[k]);
        }
    }
}

/* The kernels give db^e/db and db^e/de alone; the rule multiplies by dy. */
static void pow_gradients(void)
{
    lvn_tensor *b = positive(RANDOM("b", 3, 4)), *e = RANDOM("e", 3, 4), *dy = RANDOM("dy", 3, 4);
    check_gradient(LVNI_OP_pow, NULL, IN(b, e), 0, dy,
                   REF(mul, NULL, dy, REF(pow_grad_base, NULL, b, e).out[0]).out[0]);
    check_gradient(LVNI_OP_pow, NULL, IN(b, e), 1, dy,
                   REF(mul, NULL, dy, REF(pow_grad_exponent, NULL, b, e).out[0]).out[0]);
}

TEST(pow_grad_base)
{
    pow_gradients();
}

TEST(pow_grad_exponent)
{
    pow_gradients();
}

TEST(dropout_is_its_own_gradient)
{
    const lvn_dropout_attr attr = {.p = 0.3,
                                   .rng = {.key = {0x5f3759dfu, 6}, .a = 1, .b = 2, .c = 3}};
    lvn_tensor *x = RANDOM("x", 5, 7), *dy = RANDOM("dy", 5, 7);
    check_gradient(LVNI_OP_dropout, &attr, IN(x), 0, dy, REF(dropout, &attr, dy).out[0]);
}

/* ---- reductions: expand and sum_to are each other's gradient ---- */

TEST(sum_to_and_expand_are_adjoint)
{
    const lvn_shape_attr small = {.ndim = 2, .shape = {3, 1}},
                         big = {.ndim = 3, .shape = {2, 3, 4}};
    lvn_tensor *x = RANDOM("x", 2, 3, 4), *dy = RANDOM("dy", 3, 1);
    check_gradient(LVNI_OP_sum_to, &small, IN(x), 0, dy, REF(expand, &big, dy).out[0]);
    check_gradient(LVNI_OP_expand, &big, IN(dy), 0, x, REF(sum_to, &small, x).out[0]);
}

TEST(max_grad)
{
    lvn_tensor *x = spread(RANDOM("x", 3, 4, 5));
    for (uint32_t axis = 0; axis < 3; axis++) {
        const lvn_axes_attr axes = {.mask = 1u << axis, .keepdim = true};
        const lvn_shape_attr shape = {.ndim = 3, .shape = {3, 4, 5}};
        lvn_kernel_args forward = REF(max, &axes, x);
        lvn_tensor *dy = support_random("dy", forward.out[0]->ndim, forward.out[0]->shape);
        check_gradient(LVNI_OP_max, &axes, IN(x), 0, dy,
                       REF(max_grad, &shape, dy, forward.out[1]).out[0]);
    }
}

/* ---- products ---- */

TEST(matmul_by_matmul)
{
    const lvn_matmul_attr plain = {false, false}, nt = {false, true}, tn = {true, false};
    lvn_tensor *a = RANDOM("a", 3, 4), *b = RANDOM("b", 4, 5), *dy = RANDOM("dy", 3, 5);
    check_gradient(LVNI_OP_matmul, &plain, IN(a, b), 0, dy, REF(matmul, &nt, dy, b).out[0]);
    check_gradient(LVNI_OP_matmul, &plain, IN(a, b), 1, dy, REF(matmul, &tn, a, dy).out[0]);
}

TEST(linear_grad_input)
{
    lvn_tensor *x = RANDOM("x", 4, 3), *w = RANDOM("w", 5, 3), *b = RANDOM("b", 5),
               *dy = RANDOM("dy", 4, 5);
    check_gradient(LVNI_OP_linear, NULL, IN(x, w, b), 0, dy,
                   REF(linear_grad_input, NULL, dy, w).out[0]);
}

TEST(linear_grad_weight)
{
    const lvn_matmul_attr plain = {false, false};
    lvn_tensor *x = RANDOM("x", 4, 3), *w = RANDOM("w", 5, 3), *b = RANDOM("b", 5),
               *dy = RANDOM("dy", 4, 5);
    const lvn_kernel_args g = REF(linear_grad_weight, NULL, dy, x);
    check_gradient(LVNI_OP_linear, NULL, IN(x, w, b), 0, dy, REF(matmul, &plain, dy, w).out[0]);
    check_gradient(LVNI_OP_linear, NULL, IN(x, w, b), 1, dy, g.out[0]);
    check_gradient(LVNI_OP_linear, NULL, IN(x, w, b), 2, dy, g.out[1]);
}

/* Shapes with every attribute in use; the same for both gradients. */
static const struct conv_row {
    int64_t x[4], w[4];
    lvn_conv_attr attr;
} conv_rows[] = {
    {{2, 4, 5, 3},
     {4, 3, 3, 3},
     {.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .groups = 1}},
    {{1, 7, 6, 2},
     {3, 3, 2, 2},
     {.stride = {2, 3}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 1}},
    {{1, 5, 5, 4},
     {6, 3, 3, 2},
     {.stride = {2, 1}, .padding = {2, 1}, .dilation = {2, 1}, .groups = 2}},
    {{2, 3, 3, 3},
     {3, 1, 1, 1},
     {.stride = {1, 1}, .padding = {0, 0}, .dilation = {1, 1}, .groups = 3}},
};

static void conv_row_check(const struct conv_row *row, bool of_input)
{
    lvn_conv_attr attr = row->attr;
    attr.in_h = row->x[1];
    attr.in_w = row->x[2];
    attr.kernel[0] = row->w[1];
    attr.kernel[1] = row->w[2];
    lvn_tensor *x = support_random("x", 4, row->x), *w = support_random("w", 4, row->w),
               *b = support_random("b", 1, row->w);
    const lvn_tensor *y = REF(conv2d, &attr, x, w, b).out[0];
    lvn_tensor *dy = support_random("dy", 4, y->shape);
    if (of_input) {
        check_gradient(LVNI_OP_conv2d, &attr, IN(x, w, b), 0, dy,
                       REF(conv2d_grad_input, &attr, dy, w).out[0]);
    } else {
        const lvn_kernel_args g = REF(conv2d_grad_weight, &attr, dy, x);
        check_gradient(LVNI_OP_conv2d, &attr, IN(x, w, b), 1, dy, g.out[0]);
        check_gradient(LVNI_OP_conv2d, &attr, IN(x, w, b), 2, dy, g.out[1]);
    }
}

TEST(conv2d_grad_input)
{
    for (size_t i = 0; i < sizeof conv_rows / sizeof *conv_rows; i++) {
        conv_row_check(&conv_rows[i], true);
    }
}

TEST(conv2d_grad_weight)
{
    for (size_t i = 0; i < sizeof conv_rows / sizeof *conv_rows; i++) {
        conv_row_check(&conv_rows[i], false);
    }
}

/* Bilinear with each rule for what is outside, and nearest, which has no gradient of the grid;
 * input 0 is the image, 1 the grid. */
static void grid_sample_check(int k)
{
    for (int i = 0; i < (k == 0 ? 8 : 6); i++) {
        const lvn_sample_attr attr = {.nearest = i >= 6,
                                      .align_corners = i % 2 != 0,
                                      .outside = (lvn_outside_kind)(i / 2 % 3),
                                      .in_h = 4,
                                      .in_w = 5};
        lvn_tensor *x = RANDOM("x", 2, 4, 5, 3), *grid = RANDOM("grid", 2, 3, 4, 2),
                   *dy = RANDOM("dy", 2, 3, 4, 3);
        const lvn_kernel_args g = k == 0 ? REF(grid_sample_grad_input, &attr, dy, grid)
                                         : REF(grid_sample_grad_grid, &attr, dy, x, grid);
        check_gradient(LVNI_OP_grid_sample, &attr, IN(x, grid), k, dy, g.out[0]);
    }
}

TEST(grid_sample_grad_input)
{
    grid_sample_check(0);
}

TEST(grid_sample_grad_grid)
{
    grid_sample_check(1);
}

TEST(soft_argmax2d_grad)
{
    for (int doublings = 0; doublings <= 3; doublings++) {
        const lvn_soft_argmax_attr attr = {.doublings = doublings, .temperature = 1.5};
        lvn_tensor *x = RANDOM("x", 2, 4, 3, 2), *dy = RANDOM("dy", 2, 2, 3);
        const lvn_kernel_args forward = REF(soft_argmax2d, &attr, x);
        const lvn_kernel_args g = REF(soft_argmax2d_grad, &attr, dy, x, forward.out[1]);
        check_gradient(LVNI_OP_soft_argmax2d, &attr, IN(x), 0, dy, g.out[0]);
    }
}

TEST(max_pool2d_grad)
{
    const lvn_pool_attr rows[] = {
        {.kernel = {2, 2}, .stride = {2, 2}, .in_h = 5, .in_w = 6},
        {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .in_h = 5, .in_w = 6},
        {.kernel = {3, 2}, .stride = {1, 2}, .padding = {0, 1}, .in_h = 5, .in_w = 6},
    };
    for (size_t i = 0; i < 3; i++) {
        lvn_tensor *x = spread(RANDOM("x", 2, 5, 6, 3));
        const lvn_kernel_args forward = REF(max_pool2d, &rows[i], x);
        lvn_tensor *dy = support_random("dy", 4, forward.out[0]->shape);
        check_gradient(LVNI_OP_max_pool2d, &rows[i], IN(x), 0, dy,
                       REF(max_pool2d_grad, &rows[i], dy, forward.out[1]).out[0]);
    }
}

/* ---- copies: what was read twice is added ---- */

TEST(pad_reflect_grad)
{
    lvn_tensor *x = RANDOM("x", 2, 3, 4), *dy = RANDOM("dy", 2, 5, 7);
    const lvn_box_attr out = {.ndim = 3, .start = {0, 1, 2}, .size = {2, 5, 7}, .reflect = true};
    const lvn_box_attr back = {.ndim = 3, .start = {0, 1, 2}, .size = {2, 3, 4}, .reflect = true};
    check_gradient(LVNI_OP_pad, &out, IN(x), 0, dy, REF(pad_reflect_grad, &back, dy).out[0]);
}

TEST(index_select_grad)
{
    lvn_tensor *x = RANDOM("x", 2, 4, 3), *index = I64(DIMS(5), 3, 0, 3, 1, 3),
               *dy = RANDOM("dy", 2, 5, 3);
    const lvn_axis_attr attr = {.axis = 1, .size = 4};
    check_gradient(LVNI_OP_index_select, &attr, IN(x, index), 0, dy,
                   REF(index_select_grad, &attr, dy, index).out[0]);
}

TEST(gather_grad)
{
    lvn_tensor *x = RANDOM("x", 2, 4), *index = I64(DIMS(2, 3), 3, 0, 3, 1, 1, 1),
               *dy = RANDOM("dy", 2, 3);
    const lvn_axis_attr attr = {.axis = 1, .size = 4};
    check_gradient(LVNI_OP_gather, &attr, IN(x, index), 0, dy,
                   REF(gather_grad, &attr, dy, index).out[0]);
}

/* ---- norms, softmax, losses ---- */

/* Residual and relu: none, one, both. With both the sign comes from y, with relu alone it is
 * computed again. */
TEST(batch_norm_train_grad)
{
    lvn_tensor *x = RANDOM("x", 2, 3, 3, 4), *gamma = RANDOM("gamma", 4), *beta = RANDOM("beta", 4);
    lvn_tensor *dy = RANDOM("dy", 2, 3, 3, 4), *residual = RANDOM("residual", 2, 3, 3, 4);
    for (int i = 0; i < 4; i++) {
        const lvn_norm_attr attr = {.eps = 1e-3, .relu = i >= 2};
        lvn_tensor *added = i % 2 == 1 ? residual : NULL;
        const lvn_kernel_args f = REF(batch_norm_train, &attr, x, gamma, beta, added);
        const lvn_kernel_args g = REF(batch_norm_train_grad, &attr, dy, x, gamma, f.out[1],
                                      f.out[2], beta, i == 3 ? f.out[0] : NULL);
        for (int k = 0; k < (added != NULL ? 4 : 3); k++) {
            check_gradient(LVNI_OP_batch_norm_train, &attr, IN(x, gamma, beta, added), k, dy,
                           g.out[k]);
        }
    }
}

TEST(batch_norm_eval_grad)
{
    lvn_tensor *x = RANDOM("x", 6, 4), *gamma = RANDOM("gamma", 4), *beta = RANDOM("beta", 4),
               *dy = RANDOM("dy", 6, 4), *residual = RANDOM("residual", 6, 4);
    lvn_tensor *mean = RANDOM("mean", 4), *variance = positive(RANDOM("variance", 4));
    for (int i = 0; i < 4; i++) {
        const lvn_norm_attr attr = {.eps = 1e-3, .relu = i >= 2};
        lvn_tensor *added = i % 2 == 1 ? residual : NULL;
        const lvn_kernel_args f =
            REF(batch_norm_eval, &attr, x, gamma, beta, mean, variance, added);
        const lvn_kernel_args g = REF(batch_norm_eval_grad, &attr, dy, x, gamma, mean, variance,
                                      beta, i == 3 ? f.out[0] : NULL);
        for (int k = 0; k < 3; k++) {
            check_gradient(LVNI_OP_batch_norm_eval, &attr,
                           IN(x, gamma, beta, mean, variance, added), k, dy, g.out[k]);
        }
        if (added != NULL) {
            check_gradient(LVNI_OP_batch_norm_eval, &attr,
                           IN(x, gamma, beta, mean, variance, added), 5, dy, g.out[3]);
        }
    }
}

/* A group of one micro-batch: moments, sums, and the gradient from them are those of the batch norm
 * in one. */
TEST(batch_norm_group_grad)
{
    lvn_tensor *x = RANDOM("x", 2, 3, 3, 4), *gamma = RANDOM("gamma", 4), *beta = RANDOM("beta", 4);
    lvn_tensor *dy = RANDOM("dy", 2, 3, 3, 4), *residual = RANDOM("residual", 2, 3, 3, 4);
    for (int i = 0; i < 4; i++) {
        const lvn_norm_attr attr = {.eps = 1e-3, .relu = i >= 2};
        lvn_tensor *added = i % 2 == 1 ? residual : NULL;
        const lvn_kernel_args f = REF(batch_norm_train, &attr, x, gamma, beta, added);
        lvn_tensor *y = i == 3 ? f.out[0] : NULL,
                   *moments = REF(batch_norm_moments, NULL, x).out[0];
        const double *m = moments->data;
        lvn_tensor *mean = F64(DIMS(4), m[0], m[1], m[2], m[3]),
                   *variance = F64(DIMS(4), m[4], m[5], m[6], m[7]);
        const lvn_kernel_args sums =
            REF(batch_norm_sums, &attr, dy, x, gamma, mean, variance, beta, y);
        double *s = sums.out[0]->data;
        check_gradient(LVNI_OP_batch_norm_train, &attr, IN(x, gamma, beta, added), 1, dy,
                       F64(DIMS(4), s[4], s[5], s[6], s[7]));
        check_gradient(LVNI_OP_batch_norm_train, &attr, IN(x, gamma, beta, added), 2, dy,
                       F64(DIMS(4), s[0], s[1], s[2], s[3]));
        if (added != NULL) {
            check_gradient(LVNI_OP_batch_norm_train, &attr, IN(x, gamma, beta, added), 3, dy,
                           sums.out[1]);
        }
        for (int c = 0; c < 8; c++) {
            s[c] /= 18.0; /* values of a channel */
        }
        const lvn_kernel_args g =
            REF(batch_norm_group_grad, &attr, dy, x, gamma, mean, variance, beta, sums.out[0], y);
        check_gradient(LVNI_OP_batch_norm_train, &attr, IN(x, gamma, beta, added), 0, dy, g.out[0]);
    }
}

TEST(softmax_grad)
{
    lvn_tensor *x = RANDOM("x", 2, 3, 5), *dy = RANDOM("dy", 2, 3, 5);
    lvn_tensor *y = REF(softmax, NULL, x).out[0];
    check_gradient(LVNI_OP_softmax, NULL, IN(x), 0, dy, REF(softmax_grad, NULL, dy, y).out[0]);
}

TEST(log_softmax_grad)
{
    lvn_tensor *x = RANDOM("x", 2, 3, 5), *dy = RANDOM("dy", 2, 3, 5);
    lvn_tensor *y = REF(log_softmax, NULL, x).out[0];
    check_gradient(LVNI_OP_log_softmax, NULL, IN(x), 0, dy,
                   REF(log_softmax_grad, NULL, dy, y).out[0]);
}

TEST(cross_entropy_grad)
{
    lvn_tensor *x = RANDOM("x", 4, 3), *labels = I64(DIMS(4), 2, 0, 1, 2),
               *dloss = F64(SCALAR, -1.5);
    lvn_tensor *of_class = positive(RANDOM("class", 3)), *of_row = positive(RANDOM("row", 4));
    for (int i = 0; i < 8; i++) {
        const lvn_class_loss_attr attr = {.smoothing = i % 2 == 0 ? 0.0 : 0.3,
                                          .ignore = i / 2 % 2 == 0 ? -100 : 0,
                                          .sum = i == 3};
        lvn_tensor *cw = i >= 4 ? of_class : NULL, *sw = i >= 4 ? of_row : NULL;
        lvn_tensor *kept = REF(cross_entropy, &attr, x, labels, cw, sw).out[1];
        check_gradient(LVNI_OP_cross_entropy, &attr, IN(x, labels, cw, sw), 0, dloss,
                       REF(cross_entropy_grad, &attr, dloss, x, kept, labels, cw, sw).out[0]);
    }
}

TEST(nll_grad)
{
    const lvn_class_loss_attr attr = {.ignore = 1};
    lvn_tensor *x = RANDOM("x", 4, 3), *labels = I64(DIMS(4), 2, 0, 1, 2),
               *dloss = F64(SCALAR, -1.5);
    lvn_tensor *cw = positive(RANDOM("class", 3)), *sw = positive(RANDOM("row", 4));
    check_gradient(LVNI_OP_nll, &attr, IN(x, labels, cw, sw), 0, dloss,
                   REF(nll_grad, &attr, dloss, x, labels, cw, sw).out[0]);
}

TEST(point_loss_grad)
{
    lvn_tensor *x = RANDOM("x", 4, 3), *t = RANDOM("t", 4, 3), *w = positive(RANDOM("w", 4, 3)),
               *p = positive(RANDOM("p", 3));
    lvn_tensor *dloss = F64(SCALAR, -1.5);
    for (int kind = LVN_LOSS_SQUARE; kind <= LVN_LOSS_BINARY; kind++) {
        const lvn_point_loss_attr attr = {.kind = (lvn_point_loss_kind)kind, .beta = 0.7};
        lvn_tensor *positive_weight = kind == LVN_LOSS_BINARY ? p : NULL;
        lvn_tensor *by = REF(point_loss, &attr, x, t, w, positive_weight).out[1];
        const lvn_kernel_args g = REF(point_loss_grad, &attr, dloss, by, x, t, w, positive_weight);
        for (int k = 0; k < (kind == LVN_LOSS_BINARY ? 1 : 2); k++) {
            check_gradient(LVNI_OP_point_loss, &attr, IN(x, t, w, positive_weight), k, dloss,
                           g.out[k]);
        }
    }
}

TEST(embedding_grad)
{
    lvn_tensor *weight = RANDOM("weight", 5, 3), *positions = RANDOM("positions", 4, 3),
               *dy = RANDOM("dy", 2, 3, 3);
    lvn_tensor *ids = I64(DIMS(2, 3), 4, 0, 4, 1, 4, 0);
    const lvn_lookup_attr attr = {.rows = 5, .positions = 4},
                          add = {.rows = 5, .positions = 4, .add = true};
    const lvn_kernel_args g = REF(embedding_grad, &attr, dy, ids);
    check_gradient(LVNI_OP_embedding, NULL, IN(weight, ids, positions), 0, dy, g.out[0]);
    check_gradient(LVNI_OP_embedding, NULL, IN(weight, ids, positions), 2, dy, g.out[1]);
    /* on top of the weight's */
    lvn_kernel_args twice = {.in = {dy, ids}, .out = {g.out[0], g.out[1]}, .attr = &add};
    const double once = lvni_check_value(g.out[0], 0);
    assert_int_equal(lvni_ref_embedding_grad(&twice), LVN_OK);
    assert_true(once != 0.0 && lvni_check_value(g.out[0], 0) == 2 * once);
}

/* ---- norms of parts of a sample, attention ---- */

TEST(layer_norm_grad)
{
    lvn_tensor *x = RANDOM("x", 3, 4, 5), *dy = RANDOM("dy", 3, 4, 5),
               *gamma = RANDOM("gamma", 4, 5), *beta = RANDOM("beta", 4, 5);
    const lvn_layer_norm_attr two = {.eps = 1e-3, .axes = 2}, one = {.eps = 1e-3, .axes = 1};
    const lvn_kernel_args f = REF(layer_norm, &two, x, gamma, beta),
                          g = REF(layer_norm_grad, &two, dy, x, f.out[1], f.out[2], gamma);
    for (int k = 0; k < 3; k++) {
        check_gradient(LVNI_OP_layer_norm, &two, IN(x, gamma, beta), k, dy, g.out[k]);
    }
    const lvn_kernel_args plain = REF(layer_norm, &one, x);
    check_gradient(LVNI_OP_layer_norm, &one, IN(x), 0, dy,
                   REF(layer_norm_grad, &one, dy, x, plain.out[1], plain.out[2]).out[0]);
}

TEST(group_norm_grad)
{
    lvn_tensor *x = RANDOM("x", 2, 2, 3, 6), *dy = RANDOM("dy", 2, 2, 3, 6),
               *gamma = RANDOM("gamma", 6), *beta = RANDOM("beta", 6);
    for (int groups = 1; groups <= 6; groups *= 2 + (groups == 2)) { /* 1, 2, 6 */
        const lvn_group_norm_attr attr = {.eps = 1e-3, .groups = groups};
        const lvn_kernel_args f = REF(group_norm, &attr, x, gamma, beta),
                              g = REF(group_norm_grad, &attr, dy, x, f.out[1], f.out[2], gamma);
        for (int k = 0; k < 3; k++) {
            check_gradient(LVNI_OP_group_norm, &attr, IN(x, gamma, beta), k, dy, g.out[k]);
        }
    }
}

TEST(attention_grad)
{
    const lvn_attention_attr all = {.scale = 0.7}, causal = {.scale = 0.7, .causal = true};
    lvn_tensor *q = RANDOM("q", 2, 3, 2, 4), *v = RANDOM("v", 2, 5, 2, 3),
               *k = RANDOM("k", 2, 5, 2, 4), *dy = RANDOM("dy", 2, 3, 2, 3);
    lvn_kernel_args f = REF(attention, &all, q, k, v),
                    g = REF(attention_grad, &all, dy, q, k, v, f.out[0], f.out[1]);
    for (int i = 0; i < 3; i++) {
        check_gradient(LVNI_OP_attention, &all, IN(q, k, v), i, dy, g.out[i]);
    }
    q = RANDOM("q", 2, 5, 2, 4);
    dy = RANDOM("dy", 2, 5, 2, 3);
    f = REF(attention, &causal, q, k, v);
    g = REF(attention_grad, &causal, dy, q, k, v, f.out[0], f.out[1]);
    for (int i = 0; i < 3; i++) {
        check_gradient(LVNI_OP_attention, &causal, IN(q, k, v), i, dy, g.out[i]);
    }
}

TEST(attention_qkv_grad)
{
    const lvn_attention_attr causal = {.scale = 0.7, .causal = true};
    lvn_tensor *qkv = RANDOM("qkv", 2, 4, 3, 2, 3), *dy = RANDOM("dy", 2, 4, 2, 3);
    const lvn_kernel_args f = REF(attention_qkv, &causal, qkv);
    check_gradient(LVNI_OP_attention_qkv, &causal, IN(qkv), 0, dy,
                   REF(attention_qkv_grad, &causal, dy, qkv, f.out[0], f.out[1]).out[0]);
}

/* Tests are named like the ops. */
TEST(every_gradient_kernel_has_a_test)
{
    for (int op = 0; op < LVNI_OP_COUNT; op++) {
        if (strstr(ref_ops[op].name, "_grad") != NULL && !test_exists(ref_ops[op].name)) {
            fail_msg("%s has no test in test_ref_gradients.c", ref_ops[op].name);
        }
    }
}

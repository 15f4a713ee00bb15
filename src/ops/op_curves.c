/* Functions of one element: a table with the kernel, the kernel of the gradient, and the slope
 * written with ops for create_graph. */
#include "autograd/tape.h"

/* dy/dx from what the forward kept (x or y); NULL: the function is made of straight pieces, its
 * slope is a constant of each piece. */
typedef lvn_tensor *(*slope_rule)(lvn_tensor *kept, const lvn_number_attr *attr);

typedef struct curve {
    lvni_kernels_op op, grad;
    bool keeps_output;
    slope_rule slope;
} curve;

static lvn_status curve_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    const curve *c = n->attr.curve.curve;
    lvn_kernel_args a = {.in = {dy, n->saved[0]}, .attr = &n->attr.curve.attr};
    LVN_TRY(lvni_kernels_run(c->grad, &a, 1));
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

static lvn_status curve_backward_ops(lvni_autograd_node *n, lvn_tensor *dy);

/* dx = slope dy of a function made of pieces: linear in dy, flat in x, so it is its own
 * gradient. */
static lvn_tensor *pieces(const lvni_autograd_node *n, lvn_tensor *dy)
{
    const curve *c = n->attr.curve.curve;
    lvn_kernel_args a = {.in = {dy, n->saved[0]}, .attr = &n->attr.curve.attr};
    lvn_tensor *dx = lvni_autograd_op_run(c->grad, &a, 1);
    lvni_autograd_node *node =
        lvni_autograd_record(lvni_kernels_ops[c->grad].name, curve_backward, dx, &dy, 1);
    if (node != NULL) {
        node->backward_ops = curve_backward_ops;
        node->attr.curve = n->attr.curve;
        lvni_autograd_save(node, 0, n->saved[0]);
    }
    return dx;
}

static lvn_status curve_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    const curve *c = n->attr.curve.curve;
    if (c->slope == NULL) {
        return lvni_autograd_grad_give_op(n, 0, pieces(n, dy));
    }
    return lvni_autograd_grad_give_op(
        n, 0, lvn_mul(dy, c->slope(n->saved[0], &n->attr.curve.attr.number)));
}

static lvn_tensor *apply(const curve *c, lvn_tensor *x, lvn_number_attr number,
                         lvn_range_attr range)
{
    const char *name = lvni_kernels_ops[c->op].name;
    if (!lvni_autograd_op_begin(c->op, &x, 1, 0)) {
        return lvni_autograd_op_fail(name);
    }
    const bool ranged = c->op == LVNI_OP_clamp;
    lvn_kernel_args args = {.in = {x},
                            .attr = ranged ? (const void *)&range : (const void *)&number};
    lvn_tensor *y = lvni_autograd_op_run(c->op, &args, 1);
    lvni_autograd_node *node = lvni_autograd_record(name, curve_backward, y, &x, 1);
    if (node != NULL) {
        node->backward_ops = curve_backward_ops;
        node->attr.curve.curve = c;
        if (ranged) {
            node->attr.curve.attr.range = range;
        } else {
            node->attr.curve.attr.number = number;
        }
        lvni_autograd_save(node, 0, c->keeps_output ? y : x);
    }
    return y;
}

/* ---- slopes ---- */

static lvn_tensor *one_minus(lvn_tensor *x)
{
    return lvn_add_scalar(lvn_neg(x), 1.0);
}

static lvn_tensor *rsqrt_slope(lvn_tensor *y, const lvn_number_attr *attr)
{
    (void)attr;
    return lvn_mul_scalar(lvn_mul(y, lvn_square(y)), -0.5);
}

static lvn_tensor *reciprocal_slope(lvn_tensor *y, const lvn_number_attr *attr)
{
    (void)attr;
    return lvn_neg(lvn_square(y));
}

static lvn_tensor *pow_scalar_slope(lvn_tensor *x, const lvn_number_attr *attr)
{
    return lvn_mul_scalar(lvn_pow_scalar(x, attr->value == 0.0 ? 0.0 : attr->value - 1.0),
                          attr->value);
}

/* Phi(x) + x phi(x) */
static lvn_tensor *gelu_slope(lvn_tensor *x, const lvn_number_attr *attr)
{
    (void)attr;
    lvn_tensor *distribution = lvn_mul_scalar(
        lvn_add_scalar(lvn_erf(lvn_mul_scalar(x, 0.70710678118654752440)), 1.0), 0.5);
    lvn_tensor *density =
        lvn_mul_scalar(lvn_exp(lvn_mul_scalar(lvn_square(x), -0.5)), 0.39894228040143267794);
    return lvn_add(distribution, lvn_mul(x, density));
}

/* With t = tanh(u(x)): (1 + t) / 2 + x (1 - t^2) u' / 2 */
static lvn_tensor *gelu_tanh_slope(lvn_tensor *x, const lvn_number_attr *attr)
{
    (void)attr;
    const double root = 0.79788456080286535588; /* sqrt(2 / pi) */
    lvn_tensor *square = lvn_square(x);
    lvn_tensor *t = lvn_tanh(
        lvn_mul_scalar(lvn_mul(x, lvn_add_scalar(lvn_mul_scalar(square, 0.044715), 1.0)), root));
    lvn_tensor *du =
        lvn_mul_scalar(lvn_add_scalar(lvn_mul_scalar(square, 3.0 * 0.044715), 1.0), root);
    lvn_tensor *bend = lvn_mul(lvn_mul(x, one_minus(lvn_square(t))), du);
    return lvn_mul_scalar(lvn_add(lvn_add_scalar(t, 1.0), bend), 0.5);
}

static lvn_tensor *silu_slope(lvn_tensor *x, const lvn_number_attr *attr)
{
    (void)attr;
    lvn_tensor *s = lvn_sigmoid(x);
    return lvn_mul(s, lvn_add_scalar(lvn_mul(x, one_minus(s)), 1.0));
}

static lvn_tensor *sigmoid_slope(lvn_tensor *y, const lvn_number_attr *attr)
{
    (void)attr;
    return lvn_mul(y, one_minus(y));
}

static lvn_tensor *tanh_slope(lvn_tensor *y, const lvn_number_attr *attr)
{
    (void)attr;
    return one_minus(lvn_square(y));
}

static lvn_tensor *softplus_slope(lvn_tensor *x, const lvn_number_attr *attr)
{
    (void)attr;
    return lvn_sigmoid(x);
}

static lvn_tensor *erf_slope(lvn_tensor *x, const lvn_number_attr *attr)
{
    (void)attr;
    /* 2 / sqrt(pi) */
    return lvn_mul_scalar(lvn_exp(lvn_neg(lvn_square(x))), 1.12837916709551257390);
}

static lvn_tensor *sin_slope(lvn_tensor *x, const lvn_number_attr *attr)
{
    (void)attr;
    return lvn_cos(x);
}

static lvn_tensor *cos_slope(lvn_tensor *x, const lvn_number_attr *attr)
{
    (void)attr;
    return lvn_neg(lvn_sin(x));
}

/* ---- the ops ---- */

#define KEEPS_X false
#define KEEPS_Y true
#define CURVE(name, keeps, slope)                                                                  \
    lvn_tensor *lvn_##name(lvn_tensor *x)                                                          \
    {                                                                                              \
        static const curve c = {LVNI_OP_##name, LVNI_OP_##name##_grad, keeps, slope};              \
        return apply(&c, x, (lvn_number_attr){0.0}, (lvn_range_attr){0.0, 0.0});                   \
    }

CURVE(rsqrt, KEEPS_Y, rsqrt_slope)
CURVE(reciprocal, KEEPS_Y, reciprocal_slope)
CURVE(abs, KEEPS_X, NULL)
CURVE(relu, KEEPS_Y, NULL)
CURVE(gelu, KEEPS_X, gelu_slope)
CURVE(gelu_tanh, KEEPS_X, gelu_tanh_slope)
CURVE(silu, KEEPS_X, silu_slope)
CURVE(sigmoid, KEEPS_Y, sigmoid_slope)
CURVE(tanh, KEEPS_Y, tanh_slope)
CURVE(softplus, KEEPS_X, softplus_slope)
CURVE(erf, KEEPS_X, erf_slope)
CURVE(sin, KEEPS_X, sin_slope)
CURVE(cos, KEEPS_X, cos_slope)

lvn_tensor *lvn_leaky_relu(lvn_tensor *x, double slope)
{
    static const curve c = {LVNI_OP_leaky_relu, LVNI_OP_leaky_relu_grad, KEEPS_X, NULL};
    return apply(&c, x, (lvn_number_attr){slope}, (lvn_range_attr){0.0, 0.0});
}

lvn_tensor *lvn_pow_scalar(lvn_tensor *x, double exponent)
{
    static const curve c = {LVNI_OP_pow_scalar, LVNI_OP_pow_scalar_grad, KEEPS_X, pow_scalar_slope};
    return apply(&c, x, (lvn_number_attr){exponent}, (lvn_range_attr){0.0, 0.0});
}

lvn_tensor *lvn_clamp(lvn_tensor *x, double min, double max)
{
    static const curve c = {LVNI_OP_clamp, LVNI_OP_clamp_grad, KEEPS_X, NULL};
    return apply(&c, x, (lvn_number_attr){0.0}, (lvn_range_attr){min, max});
}

/* ---- a slope that is learned ---- */

enum { X, SLOPE, N_IN }; /* inputs of a node, and what it saves */

static lvn_status prelu_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_kernel_args a = {.in = {dy, n->saved[X], n->saved[SLOPE]}};
    unsigned want = 1; /* the kernel always writes dx */
    for (int i = X; i < N_IN; i++) {
        a.out[i] = lvni_autograd_grad_wanted(n, i) ? lvni_autograd_grad_dest(n, i) : NULL;
        want |= lvni_autograd_grad_wanted(n, i) ? 1u << i : 0u;
    }
    LVN_TRY(lvni_autograd_grad_run(LVNI_OP_prelu_grad, &a, want));
    return lvni_autograd_grad_give_all(n, a.out, N_IN, want);
}

static lvn_status prelu_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_tensor *x = n->saved[X], *slope = n->saved[SLOPE], *above = lvn_gt_scalar(x, 0.0);
    if (lvni_autograd_grad_wanted(n, X)) {
        LVN_TRY(lvni_autograd_grad_give_op(n, X, lvn_where(above, dy, lvn_mul(dy, slope))));
    }
    if (lvni_autograd_grad_wanted(n, SLOPE)) {
        lvn_tensor *terms = lvn_masked_fill(lvn_mul(dy, x), above, 0.0);
        LVN_TRY(lvni_autograd_grad_give_op(n, SLOPE, lvn_sum_to(terms, slope->ndim, slope->shape)));
    }
    return LVN_OK;
}

lvn_tensor *lvn_prelu(lvn_tensor *x, lvn_tensor *slope)
{
    lvn_tensor *in[N_IN] = {x, slope};
    if (!lvni_autograd_op_begin(LVNI_OP_prelu, in, N_IN, 0)) {
        return lvni_autograd_op_fail("prelu");
    }
    lvn_kernel_args args = {.in = {in[X], in[SLOPE]}};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_prelu, &args, 1);
    lvni_autograd_node *node = lvni_autograd_record("prelu", prelu_backward, y, in, N_IN);
    if (node != NULL) {
        node->backward_ops = prelu_backward_ops;
        lvni_autograd_save(node, X, in[X]);
        lvni_autograd_save(node, SLOPE, in[SLOPE]);
    }
    return y;
}

/* Flat wherever they have a slope: nothing is recorded. */
#define STEPS(name)                                                                                \
    lvn_tensor *lvn_##name(lvn_tensor *x)                                                          \
    {                                                                                              \
        if (!lvni_autograd_op_begin(LVNI_OP_##name, &x, 1, 0)) {                                   \
            return lvni_autograd_op_fail(#name);                                                   \
        }                                                                                          \
        lvn_kernel_args args = {.in = {x}};                                                        \
        return lvni_autograd_op_run(LVNI_OP_##name, &args, 1);                                     \
    }
STEPS(sign)
STEPS(round)
STEPS(floor)
STEPS(ceil)

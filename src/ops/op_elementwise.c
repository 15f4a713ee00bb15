/* Element-wise ops: arithmetic with broadcasting, scalar forms, exp, log, square, sqrt. More
 * functions of one element: op_curves.c. */
#include "ops/binary.h"

static bool same_shape_as_desc(const lvn_tensor *t, const lvni_tensor_desc *d)
{
    bool same = t->ndim == d->ndim;
    for (int i = 0; same && i < d->ndim; i++) {
        same = t->shape[i] == d->shape[i];
    }
    return same;
}

lvn_status lvni_ops_give_summed(lvni_autograd_node *node, int i, lvn_tensor *g,
                                const lvni_tensor_desc *in)
{
    if (g == NULL || same_shape_as_desc(g, in)) {
        return lvni_autograd_grad_give(node, i, g);
    }
    lvn_shape_attr attr = {.ndim = in->ndim};
    for (int k = 0; k < in->ndim; k++) {
        attr.shape[k] = in->shape[k];
    }
    lvn_kernel_args a = {.in = {g}, .attr = &attr};
    a.out[0] = lvni_autograd_grad_dest(node, i);
    const lvn_status s = lvni_autograd_grad_run(LVNI_OP_sum_to, &a, 1);
    lvn_release(g);
    LVN_TRY(s);
    return lvni_autograd_grad_give(node, i, a.out[0]);
}

lvn_tensor *lvni_ops_new(lvni_kernels_op op, const lvn_tensor *a, const lvn_tensor *b)
{
    lvn_kernel_args args = {.in = {a, b}};
    return a != NULL && b != NULL && lvni_kernels_run(op, &args, 1) == LVN_OK ? args.out[0] : NULL;
}

lvn_tensor *lvni_ops_scaled(const lvn_tensor *x, double mul)
{
    const lvn_scale_attr attr = {.mul = mul};
    lvn_kernel_args args = {.in = {x}, .attr = &attr};
    return lvni_kernels_run(LVNI_OP_scale, &args, 1) == LVN_OK ? args.out[0] : NULL;
}

lvn_tensor *lvni_ops_binary(lvni_kernels_op op, lvni_autograd_backward_rule rule,
                            lvni_autograd_backward_rule rule_ops, lvn_tensor *a, lvn_tensor *b,
                            bool save)
{
    lvn_tensor *in[] = {a, b};
    if (!lvni_autograd_op_begin(op, in, 2, 0)) {
        return lvni_autograd_op_fail(lvni_kernels_ops[op].name);
    }
    lvn_kernel_args args = {.in = {in[0], in[1]}};
    lvn_tensor *y = lvni_autograd_op_run(op, &args, 1);
    lvni_autograd_node *node = lvni_autograd_record(lvni_kernels_ops[op].name, rule, y, in, 2);
    if (node != NULL) {
        node->backward_ops = rule_ops;
        node->attr.desc = lvni_tensor_get_desc(in[1]);
        if (save) {
            lvni_autograd_save(node, 0, in[0]);
            lvni_autograd_save(node, 1, in[1]);
        }
    }
    return y;
}

static lvn_status add_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    if (lvni_autograd_grad_wanted(n, 0)) {
        LVN_TRY(lvni_ops_give_summed(n, 0, lvn_retain(dy), &n->in_desc));
    }
    return lvni_autograd_grad_wanted(n, 1)
               ? lvni_ops_give_summed(n, 1, lvn_retain(dy), &n->attr.desc)
               : LVN_OK;
}

static lvn_status sub_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    if (lvni_autograd_grad_wanted(n, 0)) {
        LVN_TRY(lvni_ops_give_summed(n, 0, lvn_retain(dy), &n->in_desc));
    }
    return lvni_autograd_grad_wanted(n, 1)
               ? lvni_ops_give_summed(n, 1, lvni_ops_scaled(dy, -1.0), &n->attr.desc)
               : LVN_OK;
}

static lvn_status mul_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    if (lvni_autograd_grad_wanted(n, 0)) {
        LVN_TRY(
            lvni_ops_give_summed(n, 0, lvni_ops_new(LVNI_OP_mul, dy, n->saved[1]), &n->in_desc));
    }
    return lvni_autograd_grad_wanted(n, 1)
               ? lvni_ops_give_summed(n, 1, lvni_ops_new(LVNI_OP_mul, dy, n->saved[0]),
                                      &n->attr.desc)
               : LVN_OK;
}

/* y = a / b: da = dy / b, db = -dy a / b^2 = -(dy / b) (a / b) */
static lvn_status div_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_tensor *da = lvni_ops_new(LVNI_OP_div, dy, n->saved[1]);
    if (da == NULL) {
        return lvn_last_error()->code;
    }
    lvn_status s = LVN_OK;
    if (lvni_autograd_grad_wanted(n, 1)) {
        lvn_tensor *y = lvni_ops_new(LVNI_OP_div, n->saved[0], n->saved[1]);
        lvn_tensor *product = y == NULL ? NULL : lvni_ops_new(LVNI_OP_mul, da, y);
        lvn_tensor *db = product == NULL ? NULL : lvni_ops_scaled(product, -1.0);
        lvn_release(product);
        lvn_release(y);
        s = lvni_ops_give_summed(n, 1, db, &n->attr.desc);
    }
    if (s == LVN_OK && lvni_autograd_grad_wanted(n, 0)) {
        return lvni_ops_give_summed(n, 0, da, &n->in_desc);
    }
    lvn_release(da);
    return s;
}

/* ---- the same rules written with ops ---- */

lvn_tensor *lvni_ops_summed(lvn_tensor *g, const lvni_tensor_desc *in)
{
    return lvn_sum_to(g, in->ndim, in->shape);
}

static lvn_status add_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    if (lvni_autograd_grad_wanted(n, 0)) {
        LVN_TRY(lvni_autograd_grad_give_op(n, 0, lvni_ops_summed(dy, &n->in_desc)));
    }
    return lvni_autograd_grad_wanted(n, 1)
               ? lvni_autograd_grad_give_op(n, 1, lvni_ops_summed(dy, &n->attr.desc))
               : LVN_OK;
}

static lvn_status sub_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    if (lvni_autograd_grad_wanted(n, 0)) {
        LVN_TRY(lvni_autograd_grad_give_op(n, 0, lvni_ops_summed(dy, &n->in_desc)));
    }
    return lvni_autograd_grad_wanted(n, 1)
               ? lvni_autograd_grad_give_op(n, 1, lvni_ops_summed(lvn_neg(dy), &n->attr.desc))
               : LVN_OK;
}

static lvn_status mul_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    if (lvni_autograd_grad_wanted(n, 0)) {
        LVN_TRY(lvni_autograd_grad_give_op(n, 0,
                                           lvni_ops_summed(lvn_mul(dy, n->saved[1]), &n->in_desc)));
    }
    return lvni_autograd_grad_wanted(n, 1)
               ? lvni_autograd_grad_give_op(
                     n, 1, lvni_ops_summed(lvn_mul(dy, n->saved[0]), &n->attr.desc))
               : LVN_OK;
}

static lvn_status div_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_tensor *a = n->saved[0], *b = n->saved[1], *da = lvn_div(dy, b);
    if (lvni_autograd_grad_wanted(n, 0)) {
        LVN_TRY(lvni_autograd_grad_give_op(n, 0, lvni_ops_summed(da, &n->in_desc)));
    }
    return lvni_autograd_grad_wanted(n, 1)
               ? lvni_autograd_grad_give_op(
                     n, 1, lvni_ops_summed(lvn_neg(lvn_mul(da, lvn_div(a, b))), &n->attr.desc))
               : LVN_OK;
}

lvn_tensor *lvn_add(lvn_tensor *a, lvn_tensor *b)
{
    return lvni_ops_binary(LVNI_OP_add, add_backward, add_backward_ops, a, b, false);
}

lvn_tensor *lvn_sub(lvn_tensor *a, lvn_tensor *b)
{
    return lvni_ops_binary(LVNI_OP_sub, sub_backward, sub_backward_ops, a, b, false);
}

lvn_tensor *lvn_mul(lvn_tensor *a, lvn_tensor *b)
{
    return lvni_ops_binary(LVNI_OP_mul, mul_backward, mul_backward_ops, a, b, true);
}

lvn_tensor *lvn_div(lvn_tensor *a, lvn_tensor *b)
{
    return lvni_ops_binary(LVNI_OP_div, div_backward, div_backward_ops, a, b, true);
}

/* ---- one input ---- */

static lvn_status scale_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give(
        n, 0, n->attr.scale.mul == 1.0 ? lvn_retain(dy) : lvni_ops_scaled(dy, n->attr.scale.mul));
}

static lvn_status scale_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give_op(n, 0, lvn_mul_scalar(dy, n->attr.scale.mul));
}

static lvn_tensor *scale(const char *name, lvn_tensor *x, double mul, double add)
{
    if (!lvni_autograd_op_begin(LVNI_OP_scale, &x, 1, 0)) {
        return lvni_autograd_op_fail(name);
    }
    const lvn_scale_attr attr = {.mul = mul, .add = add};
    lvn_kernel_args args = {.in = {x}, .attr = &attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_scale, &args, 1);
    lvni_autograd_node *node =
        lvni_autograd_record(name, scale_backward, y, (lvn_tensor *[]){x}, 1);
    if (node != NULL) {
        node->backward_ops = scale_backward_ops;
        node->attr.scale = attr;
    }
    return y;
}

lvn_tensor *lvn_add_scalar(lvn_tensor *x, double c)
{
    return scale("add_scalar", x, 1.0, c);
}

lvn_tensor *lvn_mul_scalar(lvn_tensor *x, double c)
{
    return scale("mul_scalar", x, c, 0.0);
}

lvn_tensor *lvn_neg(lvn_tensor *x)
{
    return scale("neg", x, -1.0, 0.0);
}

/* dx = kernel(dy, saved[0]) */
static lvn_status saved_backward(lvni_autograd_node *n, lvn_tensor *dy, lvni_kernels_op op)
{
    return lvni_autograd_grad_give(n, 0, lvni_ops_new(op, dy, n->saved[0]));
}

static lvn_status exp_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return saved_backward(n, dy, LVNI_OP_mul); /* saved: y */
}

static lvn_status log_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return saved_backward(n, dy, LVNI_OP_div); /* saved: x */
}

static lvn_status square_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return saved_backward(n, dy, LVNI_OP_square_grad); /* saved: x */
}

static lvn_status sqrt_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return saved_backward(n, dy, LVNI_OP_sqrt_grad); /* saved: y */
}

static lvn_status exp_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give_op(n, 0, lvn_mul(dy, n->saved[0]));
}

static lvn_status log_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give_op(n, 0, lvn_div(dy, n->saved[0]));
}

static lvn_status square_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give_op(n, 0, lvn_mul_scalar(lvn_mul(dy, n->saved[0]), 2.0));
}

static lvn_status sqrt_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give_op(n, 0, lvn_mul_scalar(lvn_div(dy, n->saved[0]), 0.5));
}

lvn_tensor *lvni_ops_unary(lvni_kernels_op op, lvni_autograd_backward_rule rule,
                           lvni_autograd_backward_rule rule_ops, lvn_tensor *x, bool save_output)
{
    if (!lvni_autograd_op_begin(op, &x, 1, 0)) {
        return lvni_autograd_op_fail(lvni_kernels_ops[op].name);
    }
    lvn_kernel_args args = {.in = {x}};
    lvn_tensor *y = lvni_autograd_op_run(op, &args, 1);
    lvni_autograd_node *node =
        lvni_autograd_record(lvni_kernels_ops[op].name, rule, y, (lvn_tensor *[]){x}, 1);
    if (node != NULL) {
        node->backward_ops = rule_ops;
        lvni_autograd_save(node, 0, save_output ? y : x);
    }
    return y;
}

lvn_tensor *lvn_exp(lvn_tensor *x)
{
    return lvni_ops_unary(LVNI_OP_exp, exp_backward, exp_backward_ops, x, true);
}

lvn_tensor *lvn_log_e(lvn_tensor *x)
{
    return lvni_ops_unary(LVNI_OP_log, log_backward, log_backward_ops, x, false);
}

lvn_tensor *lvn_square(lvn_tensor *x)
{
    return lvni_ops_unary(LVNI_OP_square, square_backward, square_backward_ops, x, false);
}

lvn_tensor *lvn_sqrt(lvn_tensor *x)
{
    return lvni_ops_unary(LVNI_OP_sqrt, sqrt_backward, sqrt_backward_ops, x, true);
}

/* Variance and norm over axes, and the least element. */
#include "ops/axes.h"
#include "ops/binary.h"

/* dy with the reduced axes as size 1: a view. Owned by the caller. */
static lvn_tensor *with_ones(const lvni_tensor_desc *in, uint32_t mask, lvn_tensor *dy)
{
    int64_t shape[LVN_MAX_NDIM];
    lvni_ops_axes_ones(in, mask, shape);
    return lvni_tensor_view(dy, in->ndim, shape);
}

/* ---- variance: dx = dy 2 (x - mean) / (terms - correction); saved[0]: x ---- */

static double var_factor(const lvni_autograd_node *n)
{
    return 2.0 / (lvni_ops_axes_terms(&n->in_desc, n->attr.var.mask) - n->attr.var.correction);
}

static lvn_status var_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvni_kernels_axes_attr over = {.mask = n->attr.var.mask, .keepdim = true};
    lvni_kernels_args mean = {.in = {n->saved[0]}, .attr = &over};
    LVN_TRY(lvni_kernels_run(LVNI_OP_mean, &mean, 1));
    lvn_tensor *far = lvni_ops_new(LVNI_OP_sub, n->saved[0], mean.out[0]);
    lvn_tensor *view = far == NULL ? NULL : with_ones(&n->in_desc, over.mask, dy),
               *by = view == NULL ? NULL : lvni_ops_scaled(view, var_factor(n));
    lvn_tensor *dx = lvni_ops_new(LVNI_OP_mul, far, by);
    lvn_release(by);
    lvn_release(view);
    lvn_release(far);
    lvn_release(mean.out[0]);
    return lvni_autograd_grad_give(n, 0, dx);
}

static lvn_status var_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    int axes[LVN_MAX_NDIM], count = 0;
    int64_t shape[LVN_MAX_NDIM];
    for (int i = 0; i < n->in_desc.ndim; i++) {
        if ((n->attr.var.mask >> i & 1u) != 0) {
            axes[count++] = i;
        }
    }
    lvni_ops_axes_ones(&n->in_desc, n->attr.var.mask, shape);
    lvn_tensor *x = n->saved[0], *far = lvn_sub(x, lvn_mean_axes(x, axes, count, true));
    return lvni_autograd_grad_give_op(
        n, 0, lvn_mul(far, lvn_mul_scalar(lvn_reshape(dy, n->in_desc.ndim, shape), var_factor(n))));
}

lvn_tensor *lvn_var_axes(lvn_tensor *x, const int *axes, int n_axes, bool keepdim, int correction)
{
    lvni_kernels_var_attr attr = {.keepdim = keepdim, .correction = correction};
    if (!lvni_autograd_op_begin(LVNI_OP_var, &x, 1, 0) ||
        !lvni_ops_axes_mask("var", x, axes, n_axes, &attr.mask)) {
        return lvni_autograd_op_fail("var");
    }
    lvni_kernels_args args = {.in = {x}, .attr = &attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_var, &args, 1);
    lvni_autograd_node *node = lvni_autograd_record("var", var_backward, y, &x, 1);
    if (node != NULL) {
        node->backward_ops = var_backward_ops;
        node->attr.var = attr;
        lvni_autograd_save(node, 0, x);
    }
    return y;
}

/* ---- norm: dx = x dy / y, 0 where y is 0; saved: x, y ---- */

static lvn_status norm_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_tensor *ratio = lvni_ops_new(LVNI_OP_div_or_zero, dy, n->saved[1]);
    lvn_tensor *view = ratio == NULL ? NULL : with_ones(&n->in_desc, n->attr.axes.mask, ratio);
    lvn_tensor *dx = lvni_ops_new(LVNI_OP_mul, n->saved[0], view);
    lvn_release(view);
    lvn_release(ratio);
    return lvni_autograd_grad_give(n, 0, dx);
}

static lvn_tensor *div_or_zero(lvn_tensor *a, lvn_tensor *b);

/* q = a / b: da = dq / b, db = -q dq / b; 0 where b is 0. saved: b, q */
static lvn_status div_or_zero_backward(lvni_autograd_node *n, lvn_tensor *dq)
{
    lvn_tensor *da = lvni_ops_new(LVNI_OP_div_or_zero, dq, n->saved[0]);
    if (lvni_autograd_grad_wanted(n, 1)) {
        lvn_tensor *product = lvni_ops_new(LVNI_OP_mul, n->saved[1], da);
        lvn_tensor *db = product == NULL ? NULL : lvni_ops_scaled(product, -1.0);
        lvn_release(product);
        const lvn_status s = lvni_autograd_grad_give(n, 1, db);
        if (s != LVN_OK) {
            lvn_release(da);
            return s;
        }
    }
    if (lvni_autograd_grad_wanted(n, 0)) {
        return lvni_autograd_grad_give(n, 0, da);
    }
    lvn_release(da);
    return LVN_OK;
}

static lvn_status div_or_zero_backward_ops(lvni_autograd_node *n, lvn_tensor *dq)
{
    lvn_tensor *da = div_or_zero(dq, n->saved[0]);
    if (lvni_autograd_grad_wanted(n, 1)) {
        LVN_TRY(lvni_autograd_grad_give_op(n, 1, lvn_neg(lvn_mul(n->saved[1], da))));
    }
    return lvni_autograd_grad_wanted(n, 0) ? lvni_autograd_grad_give_op(n, 0, da) : LVN_OK;
}

static lvn_tensor *div_or_zero(lvn_tensor *a, lvn_tensor *b)
{
    lvn_tensor *in[] = {a, b};
    if (!lvni_autograd_op_begin(LVNI_OP_div_or_zero, in, 2, 0)) {
        return lvni_autograd_op_fail("div_or_zero");
    }
    lvni_kernels_args args = {.in = {a, b}};
    lvn_tensor *q = lvni_autograd_op_run(LVNI_OP_div_or_zero, &args, 1);
    lvni_autograd_node *node = lvni_autograd_record("div_or_zero", div_or_zero_backward, q, in, 2);
    if (node != NULL) {
        node->backward_ops = div_or_zero_backward_ops;
        lvni_autograd_save(node, 0, b);
        lvni_autograd_save(node, 1, q);
    }
    return q;
}

static lvn_status norm_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    int64_t shape[LVN_MAX_NDIM];
    lvni_ops_axes_ones(&n->in_desc, n->attr.axes.mask, shape);
    return lvni_autograd_grad_give_op(
        n, 0,
        lvn_mul(n->saved[0], lvn_reshape(div_or_zero(dy, n->saved[1]), n->in_desc.ndim, shape)));
}

lvn_tensor *lvn_norm_axes(lvn_tensor *x, const int *axes, int n_axes, bool keepdim)
{
    lvni_kernels_axes_attr attr = {.keepdim = keepdim};
    if (!lvni_autograd_op_begin(LVNI_OP_norm, &x, 1, 0) ||
        !lvni_ops_axes_mask("norm", x, axes, n_axes, &attr.mask)) {
        return lvni_autograd_op_fail("norm");
    }
    lvni_kernels_args args = {.in = {x}, .attr = &attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_norm, &args, 1);
    lvni_autograd_node *node = lvni_autograd_record("norm", norm_backward, y, &x, 1);
    if (node != NULL) {
        node->backward_ops = norm_backward_ops;
        node->attr.axes = attr;
        lvni_autograd_save(node, 0, x);
        lvni_autograd_save(node, 1, y);
    }
    return y;
}

lvn_tensor *lvn_norm_axis(lvn_tensor *x, int axis)
{
    return lvn_norm_axes(x, &axis, 1, false);
}

/* ---- the least is minus the greatest of -x; a NaN still wins ---- */

lvn_tensor *lvn_min_axis(lvn_tensor *x, int axis, bool keepdim)
{
    uint32_t mask;
    return lvni_ops_axes_extreme("min_axis", x, axis, &mask)
               ? lvn_neg(lvn_max_axis(lvn_neg(x), axis, keepdim))
               : NULL;
}

lvn_tensor *lvn_argmin(lvn_tensor *x, int axis, bool keepdim)
{
    uint32_t mask;
    return lvni_ops_axes_extreme("argmin", x, axis, &mask) ? lvn_argmax(lvn_neg(x), axis, keepdim)
                                                           : NULL;
}

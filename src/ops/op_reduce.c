/* Reductions over axes: sum, mean, max, argmax, the global average pool, which is a mean; variance,
 * norm and the least element. */
#include "autograd/tape.h"
#include "ops/binary.h"

/* Axes (negative ones from the end) to a mask; false with an error when one is out of range or
 * twice. */
static bool axes_mask(const char *op, const lvn_tensor *x, const int *axes, int n, uint32_t *mask)
{
    *mask = 0;
    for (int i = 0; i < n; i++) {
        const int axis = axes[i] < 0 ? axes[i] + x->ndim : axes[i];
        char shape[96];
        if (axis < 0 || axis >= x->ndim || (*mask >> axis & 1u) != 0) {
            lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                          "%s: axis %d does not exist or is named twice in a tensor of shape %s",
                          op, axes[i], lvni_tensor_shape_string(x->ndim, x->shape, shape));
            return false;
        }
        *mask |= 1u << axis;
    }
    return true;
}

/* The shape of x with the masked axes as size 1. */
static void axes_ones(const lvni_tensor_desc *x, uint32_t mask, int64_t shape[LVN_MAX_NDIM])
{
    for (int i = 0; i < x->ndim; i++) {
        shape[i] = (mask >> i & 1u) != 0 ? 1 : x->shape[i];
    }
}

/* Elements behind one result. */
static double axes_terms(const lvni_tensor_desc *x, uint32_t mask)
{
    double terms = 1.0;
    for (int i = 0; i < x->ndim; i++) {
        terms *= (mask >> i & 1u) != 0 ? (double)x->shape[i] : 1.0;
    }
    return terms;
}

/* dx = dy spread over the reduced axes; for the mean divided by how many were averaged. */
static lvn_status spread(lvni_autograd_node *n, lvn_tensor *dy, bool mean)
{
    const lvni_tensor_desc *in = &n->in_desc;
    lvn_shape_attr attr = {.ndim = in->ndim};
    int64_t with_ones[LVN_MAX_NDIM];
    const double count = axes_terms(in, n->attr.axes.mask);
    axes_ones(in, n->attr.axes.mask, with_ones);
    for (int i = 0; i < in->ndim; i++) {
        attr.shape[i] = in->shape[i];
    }
    lvn_tensor *small = lvni_tensor_view(dy, in->ndim, with_ones);
    if (small != NULL && mean) {
        const lvn_scale_attr by = {.mul = 1.0 / count};
        lvn_kernel_args scale = {.in = {small}, .attr = &by};
        const lvn_status s = lvni_kernels_run(LVNI_OP_scale, &scale, 1);
        lvn_release(small);
        small = s == LVN_OK ? scale.out[0] : NULL;
    }
    if (small == NULL) {
        return lvn_last_error()->code;
    }
    lvn_kernel_args a = {.in = {small}, .attr = &attr};
    const lvn_status s = lvni_kernels_run(LVNI_OP_expand, &a, 1);
    lvn_release(small);
    LVN_TRY(s);
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

static lvn_status sum_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return spread(n, dy, false);
}

static lvn_status mean_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return spread(n, dy, true);
}

static lvn_status reduce_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvni_tensor_desc *in = &n->in_desc;
    int64_t with_ones[LVN_MAX_NDIM];
    const double count = axes_terms(in, n->attr.axes.mask);
    axes_ones(in, n->attr.axes.mask, with_ones);
    lvn_tensor *small = lvn_reshape(dy, in->ndim, with_ones);
    if (n->backward == mean_backward) {
        small = lvn_mul_scalar(small, 1.0 / count);
    }
    return lvni_autograd_grad_give_op(n, 0, lvn_expand(small, in->ndim, in->shape));
}

static lvn_tensor *reduce(lvni_kernels_op op, lvni_autograd_backward_rule rule, lvn_tensor *x,
                          lvn_axes_attr attr)
{
    lvn_kernel_args args = {.in = {x}, .attr = &attr};
    lvn_tensor *y = lvni_autograd_op_run(op, &args, 1);
    lvni_autograd_node *node =
        lvni_autograd_record(lvni_kernels_ops[op].name, rule, y, (lvn_tensor *[]){x}, 1);
    if (node != NULL) {
        node->backward_ops = reduce_backward_ops;
        node->attr.axes = attr;
    }
    return y;
}

static lvn_tensor *reduce_axes(lvni_kernels_op op, lvni_autograd_backward_rule rule, lvn_tensor *x,
                               const int *axes, int n, bool keepdim)
{
    lvn_axes_attr attr = {.keepdim = keepdim};
    if (!lvni_autograd_op_begin(op, &x, 1, 0) ||
        !axes_mask(lvni_kernels_ops[op].name, x, axes, n, &attr.mask)) {
        return lvni_autograd_op_fail(lvni_kernels_ops[op].name);
    }
    return reduce(op, rule, x, attr);
}

static lvn_tensor *reduce_all(lvni_kernels_op op, lvni_autograd_backward_rule rule, lvn_tensor *x)
{
    if (!lvni_autograd_op_begin(op, &x, 1, 0)) {
        return lvni_autograd_op_fail(lvni_kernels_ops[op].name);
    }
    return reduce(op, rule, x, (lvn_axes_attr){.mask = (1u << x->ndim) - 1u});
}

lvn_tensor *lvn_sum(lvn_tensor *x)
{
    return reduce_all(LVNI_OP_sum, sum_backward, x);
}

lvn_tensor *lvn_mean(lvn_tensor *x)
{
    return reduce_all(LVNI_OP_mean, mean_backward, x);
}

lvn_tensor *lvn_sum_axes(lvn_tensor *x, const int *axes, int n_axes, bool keepdim)
{
    return reduce_axes(LVNI_OP_sum, sum_backward, x, axes, n_axes, keepdim);
}

lvn_tensor *lvn_mean_axes(lvn_tensor *x, const int *axes, int n_axes, bool keepdim)
{
    return reduce_axes(LVNI_OP_mean, mean_backward, x, axes, n_axes, keepdim);
}

/* ---- broadcasting and its counterpart: each is the other's gradient ---- */

static lvn_shape_attr shape_of(const lvni_tensor_desc *d)
{
    lvn_shape_attr attr = {.ndim = d->ndim};
    for (int i = 0; i < d->ndim; i++) {
        attr.shape[i] = d->shape[i];
    }
    return attr;
}

static lvn_status run_to_input(lvni_autograd_node *n, lvn_tensor *dy, lvni_kernels_op op)
{
    const lvn_shape_attr attr = shape_of(&n->in_desc);
    lvn_kernel_args a = {.in = {dy}, .attr = &attr};
    LVN_TRY(lvni_kernels_run(op, &a, 1));
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

static lvn_status sum_to_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return run_to_input(n, dy, LVNI_OP_expand);
}

static lvn_status sum_to_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give_op(n, 0, lvn_expand(dy, n->in_desc.ndim, n->in_desc.shape));
}

static lvn_status expand_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return run_to_input(n, dy, LVNI_OP_sum_to);
}

static lvn_status expand_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give_op(n, 0, lvn_sum_to(dy, n->in_desc.ndim, n->in_desc.shape));
}

static lvn_tensor *to_shape(lvni_kernels_op op, lvn_tensor *x, int ndim, const int64_t *shape)
{
    if (!lvni_autograd_op_begin(op, &x, 1, 0)) {
        return lvni_autograd_op_fail(lvni_kernels_ops[op].name);
    }
    if (ndim < 0 || ndim > LVN_MAX_NDIM) {
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__, "%s: a tensor has 0 to %d axes, not %d",
                      lvni_kernels_ops[op].name, LVN_MAX_NDIM, ndim);
        return lvni_autograd_op_fail(lvni_kernels_ops[op].name);
    }
    lvn_shape_attr attr = {.ndim = ndim};
    bool same = ndim == x->ndim;
    for (int i = 0; i < ndim; i++) {
        attr.shape[i] = shape[i];
        same = same && shape[i] == x->shape[i];
    }
    if (same) {
        return x;
    }
    lvn_kernel_args args = {.in = {x}, .attr = &attr};
    lvn_tensor *y = lvni_autograd_op_run(op, &args, 1);
    const bool sums = op == LVNI_OP_sum_to;
    lvni_autograd_node *node = lvni_autograd_record(
        lvni_kernels_ops[op].name, sums ? sum_to_backward : expand_backward, y, &x, 1);
    if (node != NULL) {
        node->backward_ops = sums ? sum_to_backward_ops : expand_backward_ops;
    }
    return y;
}

lvn_tensor *lvn_sum_to(lvn_tensor *x, int ndim, const int64_t *shape)
{
    return to_shape(LVNI_OP_sum_to, x, ndim, shape);
}

lvn_tensor *lvn_expand(lvn_tensor *x, int ndim, const int64_t *shape)
{
    return to_shape(LVNI_OP_expand, x, ndim, shape);
}

lvn_tensor *lvn_global_avg_pool2d(lvn_tensor *x)
{
    if (x != NULL && x->ndim != 4) {
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                      "global_avg_pool2d takes (N, H, W, C), not a tensor of %d axes", x->ndim);
        return lvni_autograd_op_fail("global_avg_pool2d");
    }
    return lvn_mean_axes(x, (const int[]){1, 2}, 2, false);
}

/* saved[0]: index of the first maximum, with the reduced axis of size 1 */
static lvn_status max_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_shape_attr attr = {.ndim = n->in_desc.ndim};
    for (int i = 0; i < attr.ndim; i++) {
        attr.shape[i] = n->in_desc.shape[i];
    }
    lvn_tensor *index = n->saved[0];
    int64_t with_one[LVN_MAX_NDIM];
    for (int i = 0; i < attr.ndim; i++) {
        with_one[i] = (n->attr.axes.mask >> i & 1u) != 0 ? 1 : attr.shape[i];
    }
    lvn_tensor *dy_one = lvni_tensor_view(dy, attr.ndim, with_one);
    lvn_tensor *index_one = lvni_tensor_view(index, attr.ndim, with_one);
    lvn_kernel_args a = {.in = {dy_one, index_one}, .attr = &attr};
    const lvn_status s = dy_one == NULL || index_one == NULL
                             ? LVN_ERR_MEMORY
                             : lvni_kernels_run(LVNI_OP_max_grad, &a, 1);
    lvn_release(dy_one);
    lvn_release(index_one);
    LVN_TRY(s);
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

static lvn_status check_extreme(const char *op, const lvn_tensor *x, int axis, uint32_t *mask)
{
    char shape[96];
    if (x->dtype != LVN_F32 && x->dtype != LVN_F64 && !lvni_tensor_is_low(x->dtype)) {
        LVN_FAIL(LVN_ERR_DTYPE, "%s: x is %s, it must be f32, f64, bf16 or f16", op,
                 lvn_dtype_name(x->dtype));
    }
    if (!axes_mask(op, x, &axis, 1, mask)) {
        return LVN_ERR_SHAPE;
    }
    if (lvn_size(x, axis) == 0) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: x is %s, and its axis %d has no elements", op,
                 lvni_tensor_shape_string(x->ndim, x->shape, shape), axis);
    }
    return LVN_OK;
}

/* The axis of the greatest or least element, to a mask; false with the op failed under the name
 * that was called. */
static bool axes_extreme(const char *op, lvn_tensor *x, int axis, uint32_t *mask)
{
    if (!lvni_autograd_op_begin(LVNI_OP_max, &x, 1, 0) ||
        check_extreme(op, x, axis, mask) != LVN_OK) {
        lvni_autograd_op_fail(op);
        return false;
    }
    return true;
}

static bool max_both(const char *op, lvn_tensor *x, int axis, bool keepdim, lvn_kernel_args *args,
                     lvn_axes_attr *attr)
{
    *attr = (lvn_axes_attr){.keepdim = keepdim};
    if (!axes_extreme(op, x, axis, &attr->mask)) {
        return false;
    }
    *args = (lvn_kernel_args){.in = {x}, .attr = attr};
    return lvni_autograd_op_run(LVNI_OP_max, args, 3) != NULL;
}

lvn_tensor *lvn_max_axis(lvn_tensor *x, int axis, bool keepdim)
{
    lvn_kernel_args args;
    lvn_axes_attr attr;
    if (!max_both("max_axis", x, axis, keepdim, &args, &attr)) {
        return NULL;
    }
    lvni_autograd_node *node =
        lvni_autograd_record("max", max_backward, args.out[0], (lvn_tensor *[]){x}, 1);
    if (node != NULL) {
        node->attr.axes = attr;
        lvni_autograd_save(node, 0, args.out[1]);
    }
    return args.out[0];
}

lvn_tensor *lvn_argmax(lvn_tensor *x, int axis, bool keepdim)
{
    lvn_kernel_args args;
    lvn_axes_attr attr;
    return max_both("argmax", x, axis, keepdim, &args, &attr) ? args.out[1] : NULL;
}

/* ---- variance, norm, the least element ---- */

/* dy with the reduced axes as size 1: a view. Owned by the caller. */
static lvn_tensor *with_ones(const lvni_tensor_desc *in, uint32_t mask, lvn_tensor *dy)
{
    int64_t shape[LVN_MAX_NDIM];
    axes_ones(in, mask, shape);
    return lvni_tensor_view(dy, in->ndim, shape);
}

/* ---- variance: dx = dy 2 (x - mean) / (terms - correction); saved[0]: x ---- */

static double var_factor(const lvni_autograd_node *n)
{
    return 2.0 / (axes_terms(&n->in_desc, n->attr.var.mask) - n->attr.var.correction);
}

/* (x - mean) factor dy: both also of the standard deviation */
static lvn_status distances_times(lvni_autograd_node *n, double factor, lvn_tensor *dy)
{
    const lvn_axes_attr over = {.mask = n->attr.var.mask, .keepdim = true};
    lvn_kernel_args mean = {.in = {n->saved[0]}, .attr = &over};
    LVN_TRY(lvni_kernels_run(LVNI_OP_mean, &mean, 1));
    lvn_tensor *far = lvni_ops_new(LVNI_OP_sub, n->saved[0], mean.out[0]);
    lvn_tensor *view = far == NULL ? NULL : with_ones(&n->in_desc, over.mask, dy),
               *by = view == NULL ? NULL : lvni_ops_scaled(view, factor);
    lvn_tensor *dx = lvni_ops_new(LVNI_OP_mul, far, by);
    lvn_release(by);
    lvn_release(view);
    lvn_release(far);
    lvn_release(mean.out[0]);
    return lvni_autograd_grad_give(n, 0, dx);
}

static lvn_status distances_times_ops(lvni_autograd_node *n, double factor, lvn_tensor *dy)
{
    int axes[LVN_MAX_NDIM], count = 0;
    int64_t shape[LVN_MAX_NDIM];
    for (int i = 0; i < n->in_desc.ndim; i++) {
        if ((n->attr.var.mask >> i & 1u) != 0) {
            axes[count++] = i;
        }
    }
    axes_ones(&n->in_desc, n->attr.var.mask, shape);
    lvn_tensor *x = n->saved[0], *far = lvn_sub(x, lvn_mean_axes(x, axes, count, true));
    return lvni_autograd_grad_give_op(
        n, 0, lvn_mul(far, lvn_mul_scalar(lvn_reshape(dy, n->in_desc.ndim, shape), factor)));
}

static lvn_status var_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return distances_times(n, var_factor(n), dy);
}

static lvn_status var_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return distances_times_ops(n, var_factor(n), dy);
}

lvn_tensor *lvn_var_axes(lvn_tensor *x, const int *axes, int n_axes, bool keepdim, int correction)
{
    lvn_var_attr attr = {.keepdim = keepdim, .correction = correction};
    if (!lvni_autograd_op_begin(LVNI_OP_var, &x, 1, 0) ||
        !axes_mask("var", x, axes, n_axes, &attr.mask)) {
        return lvni_autograd_op_fail("var");
    }
    lvn_kernel_args args = {.in = {x}, .attr = &attr};
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
    lvn_kernel_args args = {.in = {a, b}};
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
    axes_ones(&n->in_desc, n->attr.axes.mask, shape);
    return lvni_autograd_grad_give_op(
        n, 0,
        lvn_mul(n->saved[0], lvn_reshape(div_or_zero(dy, n->saved[1]), n->in_desc.ndim, shape)));
}

lvn_tensor *lvn_norm_axes(lvn_tensor *x, const int *axes, int n_axes, bool keepdim)
{
    lvn_axes_attr attr = {.keepdim = keepdim};
    if (!lvni_autograd_op_begin(LVNI_OP_norm, &x, 1, 0) ||
        !axes_mask("norm", x, axes, n_axes, &attr.mask)) {
        return lvni_autograd_op_fail("norm");
    }
    lvn_kernel_args args = {.in = {x}, .attr = &attr};
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

/* ---- standard deviation: dx = dy (x - mean) / (y (terms - correction)), 0 where y is 0; saved: x,
 * y
 * ---- */

static lvn_status std_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_tensor *ratio = lvni_ops_new(LVNI_OP_div_or_zero, dy, n->saved[1]);
    const lvn_status s =
        ratio == NULL ? lvn_last_error()->code : distances_times(n, 0.5 * var_factor(n), ratio);
    lvn_release(ratio);
    return s;
}

static lvn_status std_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return distances_times_ops(n, 0.5 * var_factor(n), div_or_zero(dy, n->saved[1]));
}

lvn_tensor *lvn_std_axes(lvn_tensor *x, const int *axes, int n_axes, bool keepdim, int correction)
{
    lvn_var_attr attr = {.keepdim = keepdim, .correction = correction};
    if (!lvni_autograd_op_begin(LVNI_OP_var, &x, 1, 0) ||
        !axes_mask("std", x, axes, n_axes, &attr.mask)) {
        return lvni_autograd_op_fail("std");
    }
    lvn_kernel_args variance = {.in = {x}, .attr = &attr};
    if (lvni_kernels_run(LVNI_OP_var, &variance, 1) != LVN_OK) {
        return lvni_autograd_op_fail("std");
    }
    lvn_kernel_args root = {.in = {variance.out[0]}};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_sqrt, &root, 1);
    lvn_release(variance.out[0]);
    lvni_autograd_node *node = lvni_autograd_record("std", std_backward, y, &x, 1);
    if (node != NULL) {
        node->backward_ops = std_backward_ops;
        node->attr.var = attr;
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
    return axes_extreme("min_axis", x, axis, &mask)
               ? lvn_neg(lvn_max_axis(lvn_neg(x), axis, keepdim))
               : NULL;
}

lvn_tensor *lvn_argmin(lvn_tensor *x, int axis, bool keepdim)
{
    uint32_t mask;
    return axes_extreme("argmin", x, axis, &mask) ? lvn_argmax(lvn_neg(x), axis, keepdim) : NULL;
}

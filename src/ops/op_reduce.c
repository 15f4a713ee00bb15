/* Reductions over axes: sum, mean, max, argmax, and the global average pool, which is a mean. */
#include "autograd/tape.h"
#include "ops/axes.h"

bool lvni_ops_axes_mask(const char *op, const lvn_tensor *x, const int *axes, int n, uint32_t *mask)
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

void lvni_ops_axes_ones(const lvni_tensor_desc *x, uint32_t mask, int64_t shape[LVN_MAX_NDIM])
{
    for (int i = 0; i < x->ndim; i++) {
        shape[i] = (mask >> i & 1u) != 0 ? 1 : x->shape[i];
    }
}

double lvni_ops_axes_terms(const lvni_tensor_desc *x, uint32_t mask)
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
    lvni_kernels_shape_attr attr = {.ndim = in->ndim};
    int64_t with_ones[LVN_MAX_NDIM];
    const double count = lvni_ops_axes_terms(in, n->attr.axes.mask);
    lvni_ops_axes_ones(in, n->attr.axes.mask, with_ones);
    for (int i = 0; i < in->ndim; i++) {
        attr.shape[i] = in->shape[i];
    }
    lvn_tensor *small = lvni_tensor_view(dy, in->ndim, with_ones);
    if (small != NULL && mean) {
        const lvni_kernels_scale_attr by = {.mul = 1.0 / count};
        lvni_kernels_args scale = {.in = {small}, .attr = &by};
        const lvn_status s = lvni_kernels_run(LVNI_OP_scale, &scale, 1);
        lvn_release(small);
        small = s == LVN_OK ? scale.out[0] : NULL;
    }
    if (small == NULL) {
        return lvn_last_error()->code;
    }
    lvni_kernels_args a = {.in = {small}, .attr = &attr};
    const lvn_status s = lvni_kernels_run(LVNI_OP_expand, &a, 1);
    lvn_release(small);
    return s == LVN_OK ? lvni_autograd_grad_give(n, 0, a.out[0]) : s;
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
    const double count = lvni_ops_axes_terms(in, n->attr.axes.mask);
    lvni_ops_axes_ones(in, n->attr.axes.mask, with_ones);
    lvn_tensor *small = lvn_reshape(dy, in->ndim, with_ones);
    if (n->backward == mean_backward) {
        small = lvn_mul_scalar(small, 1.0 / count);
    }
    return lvni_autograd_grad_give_op(n, 0, lvn_expand(small, in->ndim, in->shape));
}

static lvn_tensor *reduce(lvni_kernels_op op, lvni_autograd_backward_rule rule, lvn_tensor *x,
                          lvni_kernels_axes_attr attr)
{
    lvni_kernels_args args = {.in = {x}, .attr = &attr};
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
    lvni_kernels_axes_attr attr = {.keepdim = keepdim};
    if (!lvni_autograd_op_begin(op, &x, 1, 0) ||
        !lvni_ops_axes_mask(lvni_kernels_ops[op].name, x, axes, n, &attr.mask)) {
        return lvni_autograd_op_fail(lvni_kernels_ops[op].name);
    }
    return reduce(op, rule, x, attr);
}

static lvn_tensor *reduce_all(lvni_kernels_op op, lvni_autograd_backward_rule rule, lvn_tensor *x)
{
    if (!lvni_autograd_op_begin(op, &x, 1, 0)) {
        return lvni_autograd_op_fail(lvni_kernels_ops[op].name);
    }
    return reduce(op, rule, x, (lvni_kernels_axes_attr){.mask = (1u << x->ndim) - 1u});
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

static lvni_kernels_shape_attr shape_of(const lvni_tensor_desc *d)
{
    lvni_kernels_shape_attr attr = {.ndim = d->ndim};
    for (int i = 0; i < d->ndim; i++) {
        attr.shape[i] = d->shape[i];
    }
    return attr;
}

static lvn_status run_to_input(lvni_autograd_node *n, lvn_tensor *dy, lvni_kernels_op op)
{
    const lvni_kernels_shape_attr attr = shape_of(&n->in_desc);
    lvni_kernels_args a = {.in = {dy}, .attr = &attr};
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
    lvni_kernels_shape_attr attr = {.ndim = ndim};
    bool same = ndim == x->ndim;
    for (int i = 0; i < ndim; i++) {
        attr.shape[i] = shape[i];
        same = same && shape[i] == x->shape[i];
    }
    if (same) {
        return x;
    }
    lvni_kernels_args args = {.in = {x}, .attr = &attr};
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
    lvni_kernels_shape_attr attr = {.ndim = n->in_desc.ndim};
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
    lvni_kernels_args a = {.in = {dy_one, index_one}, .attr = &attr};
    const lvn_status s = dy_one == NULL || index_one == NULL
                             ? LVN_ERR_MEMORY
                             : lvni_kernels_run(LVNI_OP_max_grad, &a, 1);
    lvn_release(dy_one);
    lvn_release(index_one);
    return s == LVN_OK ? lvni_autograd_grad_give(n, 0, a.out[0]) : s;
}

static lvn_status check_extreme(const char *op, const lvn_tensor *x, int axis, uint32_t *mask)
{
    char shape[96];
    if (x->dtype != LVN_F32 && x->dtype != LVN_F64 && !lvni_tensor_is_low(x->dtype)) {
        LVN_FAIL(LVN_ERR_DTYPE, "%s: x is %s, it must be f32, f64, bf16 or f16", op,
                 lvn_dtype_name(x->dtype));
    }
    if (!lvni_ops_axes_mask(op, x, &axis, 1, mask)) {
        return LVN_ERR_SHAPE;
    }
    if (lvn_size(x, axis) == 0) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: x is %s, and its axis %d has no elements", op,
                 lvni_tensor_shape_string(x->ndim, x->shape, shape), axis);
    }
    return LVN_OK;
}

bool lvni_ops_axes_extreme(const char *op, lvn_tensor *x, int axis, uint32_t *mask)
{
    if (!lvni_autograd_op_begin(LVNI_OP_max, &x, 1, 0) ||
        check_extreme(op, x, axis, mask) != LVN_OK) {
        lvni_autograd_op_fail(op);
        return false;
    }
    return true;
}

static bool max_both(const char *op, lvn_tensor *x, int axis, bool keepdim, lvni_kernels_args *args,
                     lvni_kernels_axes_attr *attr)
{
    *attr = (lvni_kernels_axes_attr){.keepdim = keepdim};
    if (!lvni_ops_axes_extreme(op, x, axis, &attr->mask)) {
        return false;
    }
    *args = (lvni_kernels_args){.in = {x}, .attr = attr};
    return lvni_autograd_op_run(LVNI_OP_max, args, 3) != NULL;
}

lvn_tensor *lvn_max_axis(lvn_tensor *x, int axis, bool keepdim)
{
    lvni_kernels_args args;
    lvni_kernels_axes_attr attr;
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
    lvni_kernels_args args;
    lvni_kernels_axes_attr attr;
    return max_both("argmax", x, axis, keepdim, &args, &attr) ? args.out[1] : NULL;
}

/* The order of elements along an axis, and what is put in places: sorting, the largest few, sums by
 * index, classes as rows of zeros and a one. */
#include "ops/move.h"
#include "tensor/device.h"

#include <string.h>

static lvn_tensor *order(const char *op, lvn_tensor *x, int *axis, int64_t keep, bool descending)
{
    if (!lvni_autograd_op_begin(LVNI_OP_argsort, &x, 1, 0) ||
        !lvni_ops_own_axis(op, x, axis, x->ndim)) {
        return lvni_autograd_op_fail(op);
    }
    const lvn_sort_attr attr = {
        .axis = *axis, .keep = keep < 0 ? x->shape[*axis] : keep, .descending = descending};
    lvn_kernel_args args = {.in = {x}, .attr = &attr};
    return lvni_autograd_op_run(LVNI_OP_argsort, &args, 1);
}

/* The elements at the first `keep` places of the order, which have the gradient of lvn_gather. */
static lvn_tensor *sorted(const char *op, lvn_tensor *x, int axis, int64_t keep, bool descending,
                          lvn_tensor **index)
{
    lvn_tensor *places = order(op, x, &axis, keep, descending);
    lvn_tensor *y = places == NULL ? NULL : lvn_gather(x, axis, places);
    if (index != NULL) {
        *index = y == NULL ? NULL : places;
    }
    return y;
}

lvn_tensor *lvn_argsort(lvn_tensor *x, int axis, bool descending)
{
    return order("argsort", x, &axis, -1, descending);
}

lvn_tensor *lvn_sort(lvn_tensor *x, int axis, bool descending, lvn_tensor **index)
{
    return sorted("sort", x, axis, -1, descending, index);
}

lvn_tensor *lvn_topk(lvn_tensor *x, int64_t k, int axis, bool largest, lvn_tensor **index)
{
    if (k < 0) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__, "topk: k is %lld, it must be at least 0",
                      (long long)k);
        lvni_autograd_op_fail("topk");
        x = NULL;
    }
    return sorted("topk", x, axis, k, largest, index);
}

/* Whether the source fits x but along the axis, which is counted from 0 afterwards; an error if
 * not. */
static bool scatter_begin(const char *op, const lvn_tensor *x, int *axis, const lvn_tensor *index,
                          const lvn_tensor *source)
{
    if (x == NULL || index == NULL || source == NULL || lvni_autograd_scope_failed() ||
        !lvni_ops_own_axis(op, x, axis, x->ndim)) {
        return false;
    }
    bool agree = source->ndim == x->ndim;
    for (int i = 0; agree && i < x->ndim; i++) {
        agree = i == *axis || source->shape[i] == x->shape[i];
    }
    if (!agree) {
        char a[96], b[96];
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                      "%s: x is %s but the source is %s; sizes must be equal in all axes but %d",
                      op, lvni_tensor_shape_string(x->ndim, x->shape, a),
                      lvni_tensor_shape_string(source->ndim, source->shape, b), *axis);
    }
    return agree;
}

lvn_tensor *lvn_scatter_add(lvn_tensor *x, int axis, lvn_tensor *index, lvn_tensor *source)
{
    if (!scatter_begin("scatter_add", x, &axis, index, source)) {
        return lvni_autograd_op_fail("scatter_add");
    }
    return lvn_add(x, lvni_ops_put_back(source, axis, x->shape[axis], index));
}

/* An element of the result is chosen from x and the source behind it: so gradients of any order are
 * those of lvn_gather and lvn_concat. */
lvn_tensor *lvn_scatter(lvn_tensor *x, int axis, lvn_tensor *index, lvn_tensor *source)
{
    if (!scatter_begin("scatter", x, &axis, index, source) ||
        !lvni_autograd_op_begin(LVNI_OP_scatter_places, &index, 1, 0)) {
        return lvni_autograd_op_fail("scatter");
    }
    if (!lvni_tensor_same_shape(index, source)) {
        char a[96], b[96];
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                      "scatter: the index is %s but the source is %s; both must have one shape",
                      lvni_tensor_shape_string(index->ndim, index->shape, a),
                      lvni_tensor_shape_string(source->ndim, source->shape, b));
        return lvni_autograd_op_fail("scatter");
    }
    const lvn_axis_attr attr = {.axis = axis, .size = x->shape[axis]};
    lvn_kernel_args args = {.in = {index}, .attr = &attr};
    lvn_tensor *places = lvni_autograd_op_run(LVNI_OP_scatter_places, &args, 1);
    lvn_tensor *both = lvn_concat((lvn_tensor *[]){x, source}, 2, axis);
    return places == NULL || both == NULL ? lvni_autograd_op_fail("scatter")
                                          : lvn_gather(both, axis, places);
}

lvn_tensor *lvn_one_hot(lvn_tensor *labels, int64_t classes, lvn_dtype dtype)
{
    if (labels == NULL || lvni_autograd_scope_failed()) {
        return lvni_autograd_op_fail("one_hot");
    }
    if (labels->ndim == LVN_MAX_NDIM || classes < 1) {
        char shape[96];
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                      "one_hot: labels %s and %lld classes; at most %d axes and at least one class",
                      lvni_tensor_shape_string(labels->ndim, labels->shape, shape),
                      (long long)classes, LVN_MAX_NDIM - 1);
        return lvni_autograd_op_fail("one_hot");
    }
    int64_t column[LVN_MAX_NDIM] = {0};
    memcpy(column, labels->shape, (size_t)labels->ndim * sizeof *column);
    column[labels->ndim] = 1;
    const lvni_tensor_desc d = {.dtype = dtype};
    lvn_tensor *one = lvni_tensor_number(&d, 1.0, lvni_tensor_device_of(labels->data));
    if (one == NULL) {
        return lvni_autograd_op_fail("one_hot");
    }
    lvn_tensor *ones = lvn_expand(lvni_autograd_adopt(one), labels->ndim + 1, column);
    return lvni_ops_put_back(ones, labels->ndim, classes,
                             lvn_reshape(labels, labels->ndim + 1, column));
}

/* Other shapes over the same memory: reshape, flatten. */
#include "autograd/tape.h"

#include <string.h>

static lvn_status reshape_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give(n, 0, lvni_tensor_view(dy, n->in_desc.ndim, n->in_desc.shape));
}

static lvn_status reshape_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give_op(n, 0, lvn_reshape(dy, n->in_desc.ndim, n->in_desc.shape));
}

lvn_tensor *lvn_detach(lvn_tensor *x)
{
    if (x == NULL || lvni_autograd_scope_failed()) {
        return lvni_autograd_op_fail("detach");
    }
    return lvni_autograd_adopt(lvni_tensor_view(x, x->ndim, x->shape));
}

/* Fill in the size given as -1; false with an error when the numbers do not fit. */
static bool complete_shape(const lvn_tensor *x, int ndim, const int64_t *shape,
                           int64_t out[LVN_MAX_NDIM])
{
    int64_t known = 1, total = lvn_numel(x);
    int unknown = -1;
    bool good = ndim >= 0 && ndim <= LVN_MAX_NDIM;
    for (int i = 0; good && i < ndim; i++) {
        out[i] = shape[i];
        if (shape[i] == -1 && unknown < 0) {
            unknown = i;
        } else {
            good = shape[i] >= 0 && (shape[i] == 0 || known <= INT64_MAX / shape[i]);
            known *= good ? shape[i] : 1;
        }
    }
    if (good && unknown >= 0) {
        good = known > 0 && total % known == 0;
        out[unknown] = good ? total / known : 0;
        known = total;
    }
    if (!good || known != total) {
        char a[96], b[96];
        lvn_error_set(
            LVN_ERR_SHAPE, __FILE__, __LINE__,
            "reshape: %s has %lld elements, which do not fit into %s",
            lvni_tensor_shape_string(x->ndim, x->shape, a), (long long)total,
            lvni_tensor_shape_string(ndim < 0 || ndim > LVN_MAX_NDIM ? 0 : ndim, shape, b));
        return false;
    }
    return true;
}

lvn_tensor *lvn_reshape(lvn_tensor *x, int ndim, const int64_t *shape)
{
    int64_t full[LVN_MAX_NDIM];
    if (x == NULL || lvni_autograd_scope_failed() || !complete_shape(x, ndim, shape, full)) {
        return lvni_autograd_op_fail("reshape");
    }
    lvn_tensor *y = lvni_autograd_adopt(lvni_tensor_view(x, ndim, full));
    lvni_autograd_node *node =
        lvni_autograd_record("reshape", reshape_backward, y, (lvn_tensor *[]){x}, 1);
    if (node != NULL) {
        node->backward_ops = reshape_backward_ops;
    }
    return y;
}

lvn_tensor *lvn_flatten(lvn_tensor *x, int start_axis)
{
    if (x == NULL) {
        return lvni_autograd_op_fail("flatten");
    }
    const int start = start_axis < 0 ? start_axis + x->ndim : start_axis;
    if (start < 0 || start >= x->ndim) {
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__, "flatten: axis %d of a tensor of %d axes",
                      start_axis, x->ndim);
        return lvni_autograd_op_fail("flatten");
    }
    int64_t shape[LVN_MAX_NDIM], rest = 1;
    memcpy(shape, x->shape, sizeof shape);
    for (int i = start; i < x->ndim; i++) {
        rest *= x->shape[i];
    }
    shape[start] = rest;
    return lvn_reshape(x, start + 1, shape);
}

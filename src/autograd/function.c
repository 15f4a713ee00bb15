/* A user's own op (lvn_function): the user's forward runs unrecorded, one node carries the user's
 * backward. */
#include "autograd/placing.h"
#include "autograd/tape_impl.h"

#include "core/error.h"

#include <string.h>

static lvn_function_call call_of(lvni_autograd_node *n)
{
    lvn_function_call call = {.attr = n->attr.function.attr};
    for (int i = 0; i < LVN_FUNCTION_SAVED; i++) {
        call.saved[i] = n->saved[i];
    }
    for (int i = 0; i < LVNI_NODE_IN; i++) {
        call.wanted[i] = lvni_autograd_grad_wanted(n, i);
    }
    return call;
}

/* A gradient of another shape would be written beyond the input's own. */
static lvn_status check_shape(const lvni_autograd_node *n, int i, const lvn_tensor *dx)
{
    const lvni_autograd_function_record *r = &n->attr.function;
    if (dx == NULL ||
        (dx->ndim == r->ndim[i] &&
         memcmp(dx->shape, r->shape[i], (size_t)dx->ndim * sizeof dx->shape[0]) == 0)) {
        return LVN_OK;
    }
    char have[96], need[96];
    LVN_FAIL(LVN_ERR_SHAPE,
             "%s: its backward gave a gradient of shape %s for input %d, which is %s (a broadcast "
             "input wants lvn_sum_to)",
             n->name, lvni_tensor_shape_string(dx->ndim, dx->shape, have), i,
             lvni_tensor_shape_string(r->ndim[i], r->shape[i], need));
}

/* The gradients that the user's rule made belong to the scope; lvn_grad's and lvn_backward's walks
 * hold them on. */
static lvn_status hand_over(lvni_autograd_node *n, lvn_tensor *const dx[LVNI_NODE_IN])
{
    for (int i = 0; i < LVNI_NODE_IN; i++) {
        if (!lvni_autograd_grad_wanted(n, i)) {
            continue;
        }
        LVN_ARG(dx[i] != NULL || lvn_scope_status() != LVN_OK,
                "%s: its backward gave no gradient for input %d, which wants one", n->name, i);
        LVN_TRY(check_shape(n, i, dx[i]));
        LVN_TRY(lvni_autograd_grad_give_op(n, i, dx[i]));
    }
    return LVN_OK;
}

static lvn_status call_backward(const lvni_autograd_node *n, lvn_function_call *call,
                                lvn_tensor *dy, lvn_tensor **dx)
{
    const uint64_t before = lvn_last_error()->serial;
    return lvni_core_error_of_callback(n->attr.function.f->backward(call, dy, dx), before,
                                       "backward() of the function %s", n->name);
}

static lvn_status function_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_function_call call = call_of(n);
    lvn_tensor *dx[LVNI_NODE_IN] = {NULL};
    LVN_TRY(lvn_scope_open());
    lvn_status s = call_backward(n, &call, dy, dx);
    if (s == LVN_OK) {
        s = hand_over(n, dx);
    }
    const lvn_status closed = lvn_scope_close();
    return s != LVN_OK ? s : closed;
}

/* Under create_graph the results stay with the caller's scope: later nodes save them. */
static lvn_status function_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_function_call call = call_of(n);
    lvn_tensor *dx[LVNI_NODE_IN] = {NULL};
    LVN_TRY(call_backward(n, &call, dy, dx));
    return hand_over(n, dx);
}

static lvn_tensor *refuse(const lvn_function *f, const char *why)
{
    lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__, "lvn_apply(%s): %s", f->name, why);
    return lvni_autograd_op_fail(f->name);
}

lvn_tensor *lvn_apply(const lvn_function *f, lvn_tensor *const *given, int n_in, const void *attr)
{
    lvn_tensor *in[LVN_FUNCTION_INPUTS];
    if (f == NULL || f->forward == NULL || f->backward == NULL) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                      "lvn_apply(%s): a function needs a name, a forward and a backward",
                      f == NULL || f->name == NULL ? "NULL" : f->name);
        return lvni_autograd_op_fail("apply");
    }
    if (n_in < 1 || n_in > LVN_FUNCTION_INPUTS) {
        return refuse(f, "a function has 1 to 8 inputs");
    }
    if (f->attr_size > LVNI_FUNCTION_ATTR || (f->attr_size > 0 && attr == NULL)) {
        return refuse(f,
                      "attributes are at most 64 bytes, and must be given when attr_size is not 0");
    }
    for (int i = 0; i < n_in; i++) {
        in[i] = given[i];
        if (in[i] == NULL) {
            return lvni_autograd_op_fail(f->name);
        }
    }
    if (lvni_autograd_scope_failed() || !lvni_autograd_stages_op(f->name, in, n_in)) {
        return lvni_autograd_op_fail(f->name);
    }
    alignas(16) unsigned char copy[LVNI_FUNCTION_ATTR];
    memcpy(copy, f->attr_size > 0 ? attr : "", f->attr_size);
    lvn_function_call call = {.attr = copy};
    const bool recording = lvn_set_grad_enabled(false);
    const uint64_t before = lvn_last_error()->serial;
    lvn_tensor *y = f->forward(&call, in);
    lvn_set_grad_enabled(recording);
    if (y == NULL) {
        if (!lvni_autograd_scope_failed()) {
            lvni_core_error_of_null(before, "forward() of the function %s", f->name);
        }
        return lvni_autograd_op_fail(f->name);
    }
    bool own = y->node == NULL && !y->requires_grad;
    for (int i = 0; i < n_in; i++) {
        own = own && y != in[i];
    }
    if (!own) {
        return refuse(f, "its forward returned one of its inputs; return a new tensor");
    }
    lvni_autograd_node *node = lvni_autograd_record(f->name, function_backward, y, in, n_in);
    if (node != NULL) {
        node->backward_ops = f->differentiable ? function_backward_ops : NULL;
        node->attr.function.f = f;
        for (int i = 0; i < n_in; i++) {
            node->attr.function.ndim[i] = in[i]->ndim;
            memcpy(node->attr.function.shape[i], in[i]->shape, sizeof in[i]->shape);
        }
        memcpy(node->attr.function.attr, copy, sizeof copy);
        for (int i = 0; i < LVN_FUNCTION_SAVED; i++) {
            lvni_autograd_save(node, i, call.saved[i]);
        }
    }
    return y;
}

lvn_tensor *lvn_zeros(lvn_dtype dtype, int ndim, const int64_t *shape)
{
    return lvni_autograd_scope_failed()
               ? lvni_autograd_op_fail("zeros")
               : lvni_autograd_adopt(lvni_tensor_zeros(dtype, ndim, shape));
}

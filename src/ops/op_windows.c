/* Windows over images as rows of numbers and back (unfold, fold), and convolution of sequences. */
#include "autograd/tape.h"
#include "core/options_struct.h"

/* ---- unfold and fold: both are linear, and the gradient of one is the other ---- */

static lvn_tensor *unfold(lvn_tensor *x, const lvn_window_attr *attr);
static lvn_tensor *fold(lvn_tensor *x, const lvn_window_attr *attr);

static lvn_status unfold_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_kernel_args a = {.in = {dy}, .attr = &n->attr.window};
    LVN_TRY(lvni_kernels_run(LVNI_OP_fold, &a, 1));
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

static lvn_status unfold_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give_op(n, 0, fold(dy, &n->attr.window));
}

static lvn_tensor *unfold(lvn_tensor *x, const lvn_window_attr *attr)
{
    if (!lvni_autograd_op_begin(LVNI_OP_unfold, &x, 1, 0)) {
        return lvni_autograd_op_fail("unfold");
    }
    lvn_kernel_args args = {.in = {x}, .attr = attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_unfold, &args, 1);
    lvni_autograd_node *node = lvni_autograd_record("unfold", unfold_backward, y, &x, 1);
    if (node != NULL) {
        node->backward_ops = unfold_backward_ops;
        node->attr.window = *attr;
        node->attr.window.in_h = x->shape[1];
        node->attr.window.in_w = x->shape[2];
    }
    return y;
}

static lvn_status fold_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_kernel_args a = {.in = {dy}, .attr = &n->attr.window};
    LVN_TRY(lvni_kernels_run(LVNI_OP_unfold, &a, 1));
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

static lvn_status fold_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give_op(n, 0, unfold(dy, &n->attr.window));
}

static lvn_tensor *fold(lvn_tensor *x, const lvn_window_attr *attr)
{
    if (!lvni_autograd_op_begin(LVNI_OP_fold, &x, 1, 0)) {
        return lvni_autograd_op_fail("fold");
    }
    lvn_kernel_args args = {.in = {x}, .attr = attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_fold, &args, 1);
    lvni_autograd_node *node = lvni_autograd_record("fold", fold_backward, y, &x, 1);
    if (node != NULL) {
        node->backward_ops = fold_backward_ops;
        node->attr.window = *attr;
    }
    return y;
}

static lvn_status read_window(const char *op, int kernel, const lvn_window_options *given,
                              lvn_window_attr *attr)
{
    lvn_window_options o;
    LVN_TRY(lvni_core_options_copy(op, &o, sizeof o, given));
    *attr = (lvn_window_attr){.in_h = 0};
    lvni_core_options_per_axis(attr->kernel, o.kernel_hw, kernel, 0, 0);
    lvni_core_options_per_axis(attr->stride, o.stride_hw, o.stride, 1, 1);
    lvni_core_options_per_axis(attr->padding, o.padding_hw, o.padding, 0, 0);
    lvni_core_options_per_axis(attr->dilation, o.dilation_hw, o.dilation, 1, 1);
    return LVN_OK;
}

lvn_tensor *lvn_unfold_with(lvn_tensor *x, int kernel, const lvn_window_options *o)
{
    lvn_window_attr attr;
    return read_window("unfold", kernel, o, &attr) == LVN_OK ? unfold(x, &attr)
                                                             : lvni_autograd_op_fail("unfold");
}

lvn_tensor *lvn_fold_with(lvn_tensor *x, int64_t height, int64_t width, int kernel,
                          const lvn_window_options *o)
{
    lvn_window_attr attr;
    if (read_window("fold", kernel, o, &attr) != LVN_OK) {
        return lvni_autograd_op_fail("fold");
    }
    attr.in_h = height;
    attr.in_w = width;
    return fold(x, &attr);
}

/* ---- sequences: images of one row ---- */

static bool are_sequences(const lvn_tensor *x, const lvn_tensor *w)
{
    if (x->ndim == 3 && w->ndim == 3) {
        return true;
    }
    char a[96], b[96];
    lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                  "conv1d: x is %s and w %s; they must have 3 axes each: (batch, length, channels) "
                  "and (out, kernel, in / groups)",
                  lvni_tensor_shape_string(x->ndim, x->shape, a),
                  lvni_tensor_shape_string(w->ndim, w->shape, b));
    return false;
}

lvn_tensor *lvn_conv1d_with(lvn_tensor *x, lvn_tensor *w, lvn_tensor *b,
                            const lvn_conv1d_options *options)
{
    lvn_conv1d_options o;
    if (lvni_core_options_copy("conv1d", &o, sizeof o, options) != LVN_OK || x == NULL ||
        w == NULL || lvni_autograd_scope_failed() || !are_sequences(x, w)) {
        return lvni_autograd_op_fail("conv1d");
    }
    const int64_t *s = x->shape, *k = w->shape;
    lvn_tensor *y = lvn_conv2d(lvn_reshape(x, 4, (const int64_t[]){s[0], 1, s[1], s[2]}),
                               lvn_reshape(w, 4, (const int64_t[]){k[0], 1, k[1], k[2]}), b,
                               .groups = o.groups, .stride_hw = {1, o.stride},
                               .padding_hw = {0, o.padding}, .dilation_hw = {1, o.dilation});
    return y == NULL ? NULL
                     : lvn_reshape(y, 3, (const int64_t[]){y->shape[0], y->shape[2], y->shape[3]});
}

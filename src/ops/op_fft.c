/* Fourier transforms over the last one or two axes of complex numbers (..., 2). The transform is a
 * linear map whose adjoint is the transform in the other direction with the same factor: that is
 * its gradient, and the gradient's gradient is the map itself. */
#include "autograd/tape.h"
#include "core/options_struct.h"

#include <math.h>

static lvn_tensor *transform(const char *name, lvn_tensor *x, const lvni_kernels_fft_attr *attr);

static lvni_kernels_fft_attr back(const lvni_autograd_node *n)
{
    lvni_kernels_fft_attr attr = n->attr.fft;
    attr.inverse = !attr.inverse;
    return attr;
}

static lvn_status fft_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvni_kernels_fft_attr attr = back(n);
    lvni_kernels_args a = {.in = {dy}, .attr = &attr};
    LVN_TRY(lvni_kernels_run(LVNI_OP_fft, &a, 1));
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

static lvn_status fft_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvni_kernels_fft_attr attr = back(n);
    return lvni_autograd_grad_give_op(n, 0, transform(n->name, dy, &attr));
}

static lvn_tensor *transform(const char *name, lvn_tensor *x, const lvni_kernels_fft_attr *attr)
{
    if (!lvni_autograd_op_begin(LVNI_OP_fft, &x, 1, 0)) {
        return lvni_autograd_op_fail(name);
    }
    lvni_kernels_args args = {.in = {x}, .attr = attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_fft, &args, 1);
    lvni_autograd_node *node = lvni_autograd_record("fft", fft_backward, y, &x, 1);
    if (node != NULL) {
        node->backward_ops = fft_backward_ops;
        node->attr.fft = *attr;
    }
    return y;
}

/* Numbers that one result sums over; 1 where the shape is wrong, which the rule refuses. */
static double length(const lvn_tensor *x, int axes)
{
    double n = 1.0;
    for (int i = 0; x != NULL && i < axes && x->ndim > axes; i++) {
        n *= (double)x->shape[x->ndim - 2 - i];
    }
    return n;
}

static lvn_tensor *with(const char *name, lvn_tensor *x, int axes, bool inverse,
                        const lvn_fft_options *options)
{
    lvn_fft_options o;
    if (lvni_core_options_copy(name, &o, sizeof o, options) != LVN_OK ||
        lvni_core_options_enum(name, "norm", (int)o.norm, LVN_FFT_FORWARD) != LVN_OK) {
        return lvni_autograd_op_fail(name);
    }
    const double n = length(x, axes);
    /* this direction is divided by n */
    const lvn_fft_norm divided = inverse ? LVN_FFT_BACKWARD : LVN_FFT_FORWARD;
    const double scale = o.norm == LVN_FFT_ORTHO ? 1.0 / sqrt(n)
                         : o.norm == divided     ? 1.0 / n
                                                 : 1.0;
    return transform(name, x,
                     &(lvni_kernels_fft_attr){
                         .axes = axes, .inverse = inverse, .centered = o.centered, .scale = scale});
}

lvn_tensor *lvn_fft_with(lvn_tensor *x, const lvn_fft_options *o)
{
    return with("fft", x, 1, false, o);
}

lvn_tensor *lvn_ifft_with(lvn_tensor *x, const lvn_fft_options *o)
{
    return with("ifft", x, 1, true, o);
}

lvn_tensor *lvn_fft2_with(lvn_tensor *x, const lvn_fft_options *o)
{
    return with("fft2", x, 2, false, o);
}

lvn_tensor *lvn_ifft2_with(lvn_tensor *x, const lvn_fft_options *o)
{
    return with("ifft2", x, 2, true, o);
}

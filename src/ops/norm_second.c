/* The gradients of all norms written with ops (norm_second.h). */
#include "ops/norm_second.h"

static lvn_tensor *mean_of(lvn_tensor *x, const lvni_ops_norm_view *view)
{
    return lvn_mean_axes(x, view->axes, view->n_axes, true);
}

/* normal = (x - mean) / deviation, h = dy gamma: dx = (h - mean(h) - normal mean(h normal)) /
 * deviation. */
lvn_status lvni_ops_norm_backward_ops(lvni_autograd_node *n, lvn_tensor *dy,
                                      const lvni_ops_norm_view *view, lvn_tensor *x,
                                      lvn_tensor *gamma, const lvni_tensor_desc *params)
{
    lvn_tensor *wide = lvn_reshape(x, view->ndim, view->shape),
               *slope = lvn_reshape(dy, view->ndim, view->shape);
    lvn_tensor *centred = lvn_sub(wide, mean_of(wide, view));
    lvn_tensor *deviation = lvn_sqrt(lvn_add_scalar(mean_of(lvn_square(centred), view), view->eps));
    lvn_tensor *normal = lvn_div(centred, deviation);
    if (lvni_autograd_grad_wanted(n, 0)) {
        lvn_tensor *h =
            gamma == NULL ? slope : lvn_mul(slope, lvn_reshape(gamma, view->ndim, view->params));
        lvn_tensor *along = lvn_mul(normal, mean_of(lvn_mul(h, normal), view));
        lvn_tensor *dx = lvn_div(lvn_sub(lvn_sub(h, mean_of(h, view)), along), deviation);
        LVN_TRY(lvni_autograd_grad_give_op(n, 0, lvn_reshape(dx, x->ndim, x->shape)));
    }
    if (lvni_autograd_grad_wanted(n, 1)) {
        lvn_tensor *sum = lvn_sum_to(lvn_mul(slope, normal), view->ndim, view->params);
        LVN_TRY(lvni_autograd_grad_give_op(n, 1, lvn_reshape(sum, params->ndim, params->shape)));
    }
    if (lvni_autograd_grad_wanted(n, 2)) {
        lvn_tensor *sum = lvn_sum_to(slope, view->ndim, view->params);
        LVN_TRY(lvni_autograd_grad_give_op(n, 2, lvn_reshape(sum, params->ndim, params->shape)));
    }
    return LVN_OK;
}

/* Layer norm, group norm and instance norm: mean and variance of parts of a sample, the same in
 * training and evaluation. First the gradients of all norms written with ops (norm_second.h). */
#include "autograd/tape.h"
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

/* ---- the norms of a sample ---- */

enum { X, GAMMA, BETA, N_IN };             /* inputs of a node */
enum { OF_X, OF_MEAN, OF_RSTD, OF_GAMMA }; /* what it saves; gamma may be NULL */

/* The kernel's outputs are the gradients of the node's inputs: dx, dgamma, dbeta. */
static lvn_status norm_gradient(lvni_autograd_node *n, lvni_kernels_op op, const void *attr,
                                lvn_tensor *dy)
{
    lvn_kernel_args a = {
        .in = {dy, n->saved[OF_X], n->saved[OF_MEAN], n->saved[OF_RSTD], n->saved[OF_GAMMA]},
        .attr = attr};
    unsigned want = 1;
    for (int i = X; i < N_IN; i++) {
        a.out[i] = lvni_autograd_grad_wanted(n, i) ? lvni_autograd_grad_dest(n, i) : NULL;
        want |= lvni_autograd_grad_wanted(n, i) ? 1u << i : 0u;
    }
    LVN_TRY(lvni_autograd_grad_run(op, &a, want));
    return lvni_autograd_grad_give_all(n, a.out, N_IN, want);
}

static lvn_tensor *norm(lvni_kernels_op op, lvni_autograd_backward_rule rule,
                        lvni_autograd_backward_rule rule_ops, lvn_tensor *in[N_IN],
                        const void *attr, lvni_autograd_node **node)
{
    lvn_kernel_args args = {.in = {in[X], in[GAMMA], in[BETA]}, .attr = attr};
    lvn_tensor *y = lvni_autograd_op_run(op, &args, 7);
    *node = lvni_autograd_record(lvni_kernels_ops[op].name, rule, y, in, N_IN);
    if (*node != NULL) {
        (*node)->backward_ops = rule_ops;
        lvni_autograd_save(*node, OF_X, in[X]);
        lvni_autograd_save(*node, OF_MEAN, args.out[1]);
        lvni_autograd_save(*node, OF_RSTD, args.out[2]);
        lvni_autograd_save(*node, OF_GAMMA, in[GAMMA]);
    }
    return y;
}

/* ---- layer norm ---- */

static lvn_status layer_norm_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return norm_gradient(n, LVNI_OP_layer_norm_grad, &n->attr.layer_norm, dy);
}

static lvn_status layer_norm_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvni_tensor_desc *x = &n->in_desc;
    const int rows = x->ndim - n->attr.layer_norm.axes;
    lvni_ops_norm_view view = {.ndim = 2,
                               .n_axes = 1,
                               .shape = {1, 1},
                               .params = {1, 1},
                               .axes = {1},
                               .eps = n->attr.layer_norm.eps};
    lvni_tensor_desc params = {.dtype = x->dtype, .ndim = n->attr.layer_norm.axes};
    for (int i = 0; i < x->ndim; i++) {
        view.shape[i < rows ? 0 : 1] *= x->shape[i];
        if (i >= rows) {
            params.shape[i - rows] = x->shape[i];
        }
    }
    view.params[1] = view.shape[1];
    return lvni_ops_norm_backward_ops(n, dy, &view, n->saved[OF_X], n->saved[OF_GAMMA], &params);
}

lvn_tensor *lvn_layer_norm(lvn_tensor *x, lvn_tensor *gamma, lvn_tensor *beta, double eps)
{
    lvn_tensor *in[N_IN] = {x, gamma, beta};
    if (!lvni_autograd_op_begin(LVNI_OP_layer_norm, in, N_IN, 1u << GAMMA | 1u << BETA)) {
        return lvni_autograd_op_fail("layer_norm");
    }
    const lvn_tensor *params = gamma != NULL ? gamma : beta;
    const lvn_layer_norm_attr attr = {.eps = eps, .axes = params != NULL ? params->ndim : 1};
    lvni_autograd_node *node;
    lvn_tensor *y =
        norm(LVNI_OP_layer_norm, layer_norm_backward, layer_norm_backward_ops, in, &attr, &node);
    if (node != NULL) {
        node->attr.layer_norm = attr;
    }
    return y;
}

/* ---- group norm, and instance norm, which is the one with a group per channel ---- */

static lvn_status group_norm_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return norm_gradient(n, LVNI_OP_group_norm_grad, &n->attr.group_norm, dy);
}

/* x as (samples, pixels, groups, channels of a group) */
static lvn_status group_norm_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvni_tensor_desc *x = &n->in_desc;
    const int64_t channels = x->shape[x->ndim - 1], groups = n->attr.group_norm.groups,
                  width = channels / groups;
    lvni_ops_norm_view view = {.ndim = 4,
                               .n_axes = 2,
                               .shape = {x->shape[0], 1, groups, width},
                               .params = {1, 1, groups, width},
                               .axes = {1, 3},
                               .eps = n->attr.group_norm.eps};
    for (int i = 1; i < x->ndim - 1; i++) {
        view.shape[1] *= x->shape[i];
    }
    const lvni_tensor_desc params = {.dtype = x->dtype, .ndim = 1, .shape = {channels}};
    return lvni_ops_norm_backward_ops(n, dy, &view, n->saved[OF_X], n->saved[OF_GAMMA], &params);
}

static lvn_tensor *grouped(const char *name, lvn_tensor *x, int64_t groups, lvn_tensor *gamma,
                           lvn_tensor *beta, double eps)
{
    lvn_tensor *in[N_IN] = {x, gamma, beta};
    if (!lvni_autograd_op_begin(LVNI_OP_group_norm, in, N_IN, 1u << GAMMA | 1u << BETA)) {
        return lvni_autograd_op_fail(name);
    }
    const lvn_group_norm_attr attr = {.eps = eps, .groups = (int)groups};
    lvni_autograd_node *node;
    lvn_tensor *y =
        norm(LVNI_OP_group_norm, group_norm_backward, group_norm_backward_ops, in, &attr, &node);
    if (node != NULL) {
        node->name = name;
        node->attr.group_norm = attr;
    }
    return y;
}

lvn_tensor *lvn_group_norm(lvn_tensor *x, int groups, lvn_tensor *gamma, lvn_tensor *beta,
                           double eps)
{
    return grouped("group_norm", x, groups, gamma, beta, eps);
}

lvn_tensor *lvn_instance_norm(lvn_tensor *x, lvn_tensor *gamma, lvn_tensor *beta, double eps)
{
    return grouped("instance_norm", x, x == NULL || x->ndim == 0 ? 1 : x->shape[x->ndim - 1], gamma,
                   beta, eps);
}

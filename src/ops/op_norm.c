/* Batch normalisation. */
#include "autograd/tape.h"
#include "core/options_struct.h"
#include "ops/norm_second.h"
#include "ops/group_parts.h"

enum { X, GAMMA, BETA, RESIDUAL, N_IN }; /* inputs of a node */
/* what it saves; y: with relu behind a residual only */
enum { OF_X, OF_GAMMA, OF_MEAN, OF_STATISTIC, OF_BETA, OF_Y };

/* Of a node's inputs the kernel's outputs are: dx, dgamma, dbeta, dresidual. */
static lvn_status norm_gradient(lvni_autograd_node *n, lvni_kernels_op op, lvn_tensor *dy)
{
    lvn_tensor *const *saved = n->saved;
    lvn_kernel_args a = {.in = {dy, saved[OF_X], saved[OF_GAMMA], saved[OF_MEAN],
                                saved[OF_STATISTIC], saved[OF_BETA], saved[OF_Y]},
                         .attr = &n->attr.norm};
    const bool same = !n->attr.norm.relu; /* then the residual's gradient is dy itself */
    unsigned want = 1;
    for (int i = X; i < N_IN; i++) {
        const bool wanted = lvni_autograd_grad_wanted(n, i) && !(same && i == RESIDUAL);
        a.out[i] = wanted ? lvni_autograd_grad_dest(n, i) : NULL;
        want |= wanted ? 1u << i : 0u;
    }
    LVN_TRY(lvni_autograd_grad_run(op, &a, want));
    LVN_TRY(lvni_autograd_grad_give_all(n, a.out, N_IN, want));
    return same && lvni_autograd_grad_wanted(n, RESIDUAL)
               ? lvni_autograd_grad_give(n, RESIDUAL, lvn_retain(dy))
               : LVN_OK;
}

static lvn_status batch_norm_train_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return norm_gradient(n, LVNI_OP_batch_norm_train_grad, dy);
}

static lvn_status batch_norm_eval_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return norm_gradient(n, LVNI_OP_batch_norm_eval_grad, dy);
}

/* ---- the same written with ops ---- */

/* What of dy passed relu, where y > 0; `y` is NULL without relu. The residual's gradient is handed
 * over. */
static lvn_status passed(lvni_autograd_node *n, lvn_tensor *y, lvn_tensor **dy)
{
    if (n->attr.norm.relu) {
        *dy = lvn_where(lvn_gt_scalar(y, 0.0), *dy, lvn_mul_scalar(*dy, 0.0));
    }
    return lvni_autograd_grad_wanted(n, RESIDUAL) ? lvni_autograd_grad_give_op(n, RESIDUAL, *dy)
                                                  : LVN_OK;
}

static lvn_status batch_norm_train_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_tensor *x = n->saved[OF_X], *gamma = n->saved[OF_GAMMA], *y = n->saved[OF_Y];
    const int64_t channels = gamma->shape[0], rows = lvn_numel(x) / channels;
    if (n->attr.norm.relu && y == NULL) { /* it was not kept: computed again */
        y = lvn_batch_norm_train(x, gamma, n->saved[OF_BETA], n->attr.norm.eps, NULL, NULL);
    }
    LVN_TRY(passed(n, y, &dy));
    const lvni_ops_norm_view view = {.ndim = 2,
                                     .n_axes = 1,
                                     .shape = {rows, channels},
                                     .params = {1, channels},
                                     .axes = {0},
                                     .eps = n->attr.norm.eps};
    const lvni_tensor_desc params = lvni_tensor_get_desc(gamma);
    return lvni_ops_norm_backward_ops(n, dy, &view, x, gamma, &params);
}

/* Mean and variance are constants. */
static lvn_status batch_norm_eval_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_tensor *x = n->saved[OF_X], *gamma = n->saved[OF_GAMMA], *y = n->saved[OF_Y];
    lvn_tensor *mean = lvn_detach(n->saved[OF_MEAN]),
               *variance = lvn_detach(n->saved[OF_STATISTIC]);
    lvn_tensor *deviation = lvn_sqrt(lvn_add_scalar(variance, n->attr.norm.eps));
    lvn_tensor *normal = lvn_div(lvn_sub(x, mean), deviation);
    if (n->attr.norm.relu && y == NULL) {
        y = lvn_add(lvn_mul(normal, gamma), n->saved[OF_BETA]);
    }
    LVN_TRY(passed(n, y, &dy));
    if (lvni_autograd_grad_wanted(n, X)) {
        LVN_TRY(lvni_autograd_grad_give_op(n, X, lvn_mul(dy, lvn_div(gamma, deviation))));
    }
    if (lvni_autograd_grad_wanted(n, GAMMA)) {
        LVN_TRY(
            lvni_autograd_grad_give_op(n, GAMMA, lvn_sum_to(lvn_mul(dy, normal), 1, gamma->shape)));
    }
    return lvni_autograd_grad_wanted(n, BETA)
               ? lvni_autograd_grad_give_op(n, BETA, lvn_sum_to(dy, 1, gamma->shape))
               : LVN_OK;
}

/* in: x, gamma, beta, residual or NULL */
static void record(const char *name, lvni_autograd_backward_rule rule,
                   lvni_autograd_backward_rule rule_ops, lvn_tensor *y, lvn_tensor *const in[N_IN],
                   lvn_tensor *mean, lvn_tensor *statistic, const lvn_norm_attr *attr)
{
    lvni_autograd_node *node = lvni_autograd_record(name, rule, y, in, N_IN);
    if (node == NULL) {
        return;
    }
    node->backward_ops = rule_ops;
    node->attr.norm = *attr;
    lvni_autograd_save(node, OF_X, in[X]);
    lvni_autograd_save(node, OF_GAMMA, in[GAMMA]);
    lvni_autograd_save(node, OF_MEAN, mean);
    lvni_autograd_save(node, OF_STATISTIC, statistic);
    lvni_autograd_save(node, OF_BETA, in[BETA]);
    lvni_autograd_save(node, OF_Y, attr->relu && in[RESIDUAL] != NULL ? y : NULL);
}

lvn_tensor *lvn_batch_norm_train_with(lvn_tensor *x, lvn_tensor *gamma, lvn_tensor *beta,
                                      double eps, lvn_tensor **mean, lvn_tensor **variance,
                                      const lvn_batch_norm_options *options)
{
    lvn_batch_norm_options o;
    if (lvni_core_options_copy("batch_norm_train", &o, sizeof o, options) != LVN_OK) {
        return lvni_autograd_op_fail("batch_norm_train");
    }
    lvn_tensor *in[N_IN] = {x, gamma, beta, o.residual};
    if (!lvni_autograd_op_begin(LVNI_OP_batch_norm_train, in, N_IN, 1u << RESIDUAL)) {
        return lvni_autograd_op_fail("batch_norm_train");
    }
    const lvni_tensor_group *group = NULL;
    if (o.sync && lvni_ops_group_current("batch_norm_train", &group) != LVN_OK) {
        return lvni_autograd_op_fail("batch_norm_train");
    }
    const lvn_norm_attr attr = {.eps = eps, .relu = o.relu};
    if (group != NULL) {
        return lvni_ops_sync_batch_norm(group, in, &attr, mean, variance);
    }
    lvn_kernel_args args = {.in = {x, gamma, beta, o.residual}, .attr = &attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_batch_norm_train, &args, 15);
    if (y == NULL) {
        return NULL;
    }
    if (mean != NULL) {
        *mean = args.out[1];
    }
    if (variance != NULL) {
        *variance = args.out[3];
    }
    record("batch_norm_train", batch_norm_train_backward, batch_norm_train_backward_ops, y,
           (lvn_tensor *[N_IN]){x, gamma, beta, o.residual}, args.out[1], args.out[2], &attr);
    return y;
}

lvn_tensor *lvn_batch_norm_eval_with(lvn_tensor *x, lvn_tensor *gamma, lvn_tensor *beta,
                                     lvn_tensor *mean, lvn_tensor *variance, double eps,
                                     const lvn_batch_norm_options *options)
{
    lvn_batch_norm_options o;
    if (lvni_core_options_copy("batch_norm_eval", &o, sizeof o, options) != LVN_OK) {
        return lvni_autograd_op_fail("batch_norm_eval");
    }
    lvn_tensor *in[] = {x, gamma, beta, o.residual, mean, variance};
    if (!lvni_autograd_op_begin(LVNI_OP_batch_norm_eval, in, 6, 1u << RESIDUAL)) {
        return lvni_autograd_op_fail("batch_norm_eval");
    }
    const lvn_norm_attr attr = {.eps = eps, .relu = o.relu};
    lvn_kernel_args args = {.in = {x, gamma, beta, mean, variance, o.residual}, .attr = &attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_batch_norm_eval, &args, 1);
    if (y != NULL) {
        record("batch_norm_eval", batch_norm_eval_backward, batch_norm_eval_backward_ops, y,
               (lvn_tensor *[N_IN]){x, gamma, beta, o.residual}, mean, variance, &attr);
    }
    return y;
}

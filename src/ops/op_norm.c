/* Batch normalisation and dropout: the ops that behave differently in training and evaluation. */
#include "autograd/tape.h"

/* Run a five-input gradient kernel with outputs dx, dgamma, dbeta and hand them out. */
static lvn_status norm_gradient(lvni_node *n, lvni_op op, lvni_args *a)
{
    for (int i = 0; i < 3; i++) {
        a->out[i] = lvni_grad_wanted(n, i) ? lvni_grad_dest(n, i) : NULL;
    }
    LVN_TRY(lvni_grad_run(op, a, 7));
    lvn_status s = LVN_OK;
    for (int i = 0; i < 3; i++) {
        if (s == LVN_OK && lvni_grad_wanted(n, i)) {
            s = lvni_grad_give(n, i, a->out[i]);
        } else {
            lvn_release(a->out[i]);
        }
    }
    return s;
}

/* saved: x, gamma, mean, rstd */
static lvn_status batch_norm_train_backward(lvni_node *n, lvn_tensor *dy)
{
    lvni_args a = {.in = {dy, n->saved[0], n->saved[1], n->saved[2], n->saved[3]}};
    return norm_gradient(n, LVNI_OP_batch_norm_train_grad, &a);
}

lvn_tensor *lvn_batch_norm_train(lvn_tensor *x, lvn_tensor *gamma, lvn_tensor *beta, double eps, lvn_tensor **mean,
                                 lvn_tensor **variance)
{
    if (x == NULL || gamma == NULL || beta == NULL || lvni_scope_failed()) {
        return lvni_op_fail("batch_norm_train");
    }
    const lvni_norm_attr attr = {.eps = eps};
    lvni_args args = {.in = {x, gamma, beta}, .attr = &attr};
    lvn_tensor *y = lvni_op_run(LVNI_OP_batch_norm_train, &args, 15);
    if (y == NULL) {
        return NULL;
    }
    if (mean != NULL) {
        *mean = args.out[1];
    }
    if (variance != NULL) {
        *variance = args.out[3];
    }
    lvni_node *node = lvni_record("batch_norm_train", batch_norm_train_backward, y, (lvn_tensor *[]){x, gamma, beta}, 3);
    if (node != NULL) {
        lvni_save(node, 0, x);
        lvni_save(node, 1, gamma);
        lvni_save(node, 2, args.out[1]);
        lvni_save(node, 3, args.out[2]);
    }
    return y;
}

/* saved: x, gamma, mean, variance */
static lvn_status batch_norm_eval_backward(lvni_node *n, lvn_tensor *dy)
{
    lvni_args a = {.in = {dy, n->saved[0], n->saved[1], n->saved[2], n->saved[3]}, .attr = &n->attr.norm};
    return norm_gradient(n, LVNI_OP_batch_norm_eval_grad, &a);
}

lvn_tensor *lvn_batch_norm_eval(lvn_tensor *x, lvn_tensor *gamma, lvn_tensor *beta, lvn_tensor *mean, lvn_tensor *variance,
                                double eps)
{
    if (x == NULL || gamma == NULL || beta == NULL || mean == NULL || variance == NULL || lvni_scope_failed()) {
        return lvni_op_fail("batch_norm_eval");
    }
    const lvni_norm_attr attr = {.eps = eps};
    lvni_args args = {.in = {x, gamma, beta, mean, variance}, .attr = &attr};
    lvn_tensor *y = lvni_op_run(LVNI_OP_batch_norm_eval, &args, 1);
    lvni_node *node = lvni_record("batch_norm_eval", batch_norm_eval_backward, y, (lvn_tensor *[]){x, gamma, beta}, 3);
    if (node != NULL) {
        node->attr.norm = attr;
        lvni_save(node, 0, x);
        lvni_save(node, 1, gamma);
        lvni_save(node, 2, mean);
        lvni_save(node, 3, variance);
    }
    return y;
}

static lvn_status dropout_backward(lvni_node *n, lvn_tensor *dy)
{
    lvni_args a = {.in = {dy}, .attr = &n->attr.dropout}; /* the same numbers again: nothing was stored */
    LVN_TRY(lvni_run(LVNI_OP_dropout, &a, 1));
    return lvni_grad_give(n, 0, a.out[0]);
}

lvn_tensor *lvn_dropout(lvn_tensor *x, double p)
{
    lvni_ctx *ctx = lvni_ctx_get();
    if (x == NULL || ctx == NULL || lvni_scope_failed()) {
        return lvni_op_fail("dropout");
    }
    if (!(p >= 0.0 && p < 1.0)) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__, "dropout: p is %g; it must be at least 0 and below 1", p);
        return lvni_op_fail("dropout");
    }
    if (!ctx->at.training || p == 0.0) {
        return x;
    }
    const lvni_dropout_attr attr = {
        .p = p,
        .rng = {.key = lvni_rng_make_key(ctx->at.seed, lvni_rng_purpose(ctx->module_path)),
                .a = ctx->at.step,
                .b = ctx->at.shard,
                .c = ctx->at.call++}};
    lvni_args args = {.in = {x}, .attr = &attr};
    lvn_tensor *y = lvni_op_run(LVNI_OP_dropout, &args, 1);
    lvni_node *node = lvni_record("dropout", dropout_backward, y, (lvn_tensor *[]){x}, 1);
    if (node != NULL) {
        node->attr.dropout = attr;
    }
    return y;
}

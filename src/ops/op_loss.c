/* Soft-max, its logarithm, cross entropy, accuracy. */
#include "autograd/tape.h"

static lvn_status by_output(lvni_node *n, lvn_tensor *dy, lvni_op op)
{
    lvni_args a = {.in = {dy, n->saved[0]}};
    LVN_TRY(lvni_run(op, &a, 1));
    return lvni_grad_give(n, 0, a.out[0]);
}

static lvn_status softmax_backward(lvni_node *n, lvn_tensor *dy)
{
    return by_output(n, dy, LVNI_OP_softmax_grad);
}

static lvn_status log_softmax_backward(lvni_node *n, lvn_tensor *dy)
{
    return by_output(n, dy, LVNI_OP_log_softmax_grad);
}

static lvn_tensor *row_op(lvni_op op, lvni_backward_rule rule, lvn_tensor *x)
{
    if (!lvni_op_begin(op, &x, 1, 0)) {
        return lvni_op_fail(lvni_ops[op].name);
    }
    lvni_args args = {.in = {x}};
    lvn_tensor *y = lvni_op_run(op, &args, 1);
    lvni_node *node = lvni_record(lvni_ops[op].name, rule, y, (lvn_tensor *[]){x}, 1);
    if (node != NULL) {
        lvni_save(node, 0, y);
    }
    return y;
}

lvn_tensor *lvn_softmax(lvn_tensor *x)
{
    return row_op(LVNI_OP_softmax, softmax_backward, x);
}

lvn_tensor *lvn_log_softmax(lvn_tensor *x)
{
    return row_op(LVNI_OP_log_softmax, log_softmax_backward, x);
}

/* saved: log-softmax, labels */
static lvn_status cross_entropy_backward(lvni_node *n, lvn_tensor *dloss)
{
    lvni_args a = {.in = {dloss, n->saved[0], n->saved[1]}};
    LVN_TRY(lvni_run(LVNI_OP_cross_entropy_grad, &a, 1));
    return lvni_grad_give(n, 0, a.out[0]);
}

lvn_tensor *lvn_cross_entropy(lvn_tensor *logits, lvn_tensor *labels)
{
    lvn_tensor *in[] = {logits, labels};
    if (!lvni_op_begin(LVNI_OP_cross_entropy, in, 2, 0)) {
        return lvni_op_fail("cross_entropy");
    }
    lvni_args args = {.in = {in[0], in[1]}};
    lvn_tensor *loss = lvni_op_run(LVNI_OP_cross_entropy, &args, 3);
    lvni_node *node = lvni_record("cross_entropy", cross_entropy_backward, loss, in, 1);
    if (node != NULL) {
        lvni_save(node, 0, args.out[1]);
        lvni_save(node, 1, labels);
    }
    return loss;
}

lvn_tensor *lvn_accuracy(lvn_tensor *logits, lvn_tensor *labels)
{
    lvn_tensor *in[] = {logits, labels};
    if (!lvni_op_begin(LVNI_OP_accuracy, in, 2, 0)) {
        return lvni_op_fail("accuracy");
    }
    lvni_args args = {.in = {in[0], in[1]}};
    return lvni_op_run(LVNI_OP_accuracy, &args, 1);
}

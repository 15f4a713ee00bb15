/* Matrix products: matmul and the linear layer. */
#include "autograd/tape.h"
#include "core/options_struct.h"

/* matmul of two tensors with transposes, owned by the caller. */
static lvn_tensor *product(const lvn_tensor *a, bool ta, const lvn_tensor *b, bool tb, lvn_tensor *dest)
{
    const lvni_matmul_attr attr = {.trans_a = ta, .trans_b = tb};
    lvni_args args = {.in = {a, b}, .out = {dest}, .attr = &attr};
    if (lvni_run(LVNI_OP_matmul, &args, 1) == LVN_OK) {
        return args.out[0];
    }
    lvn_release(dest);
    return NULL;
}

/* With op(.) the transpose asked for, Y = op(A) op(B): dop(A) = dY op(B)^T, dop(B) = op(A)^T dY. */
static lvn_status matmul_backward(lvni_node *n, lvn_tensor *dy)
{
    const lvni_matmul_attr t = n->attr.matmul;
    const lvn_tensor *a = n->saved[0], *b = n->saved[1];
    if (lvni_grad_wanted(n, 0)) {
        lvn_tensor *dest = lvni_grad_dest(n, 0);
        LVN_TRY(lvni_grad_give(n, 0, t.trans_a ? product(b, t.trans_b, dy, true, dest) : product(dy, false, b, !t.trans_b, dest)));
    }
    if (lvni_grad_wanted(n, 1)) {
        lvn_tensor *dest = lvni_grad_dest(n, 1);
        LVN_TRY(lvni_grad_give(n, 1, t.trans_b ? product(dy, true, a, t.trans_a, dest) : product(a, !t.trans_a, dy, false, dest)));
    }
    return LVN_OK;
}

lvn_tensor *lvn_matmul_with(lvn_tensor *a, lvn_tensor *b, const lvn_matmul_options *options)
{
    lvn_matmul_options o;
    lvni_options_copy(&o, sizeof o, options);
    lvn_tensor *in[] = {a, b};
    if (!lvni_op_begin(LVNI_OP_matmul, in, 2, 0)) {
        return lvni_op_fail("matmul");
    }
    const lvni_matmul_attr attr = {.trans_a = o.trans_a, .trans_b = o.trans_b};
    lvni_args args = {.in = {in[0], in[1]}, .attr = &attr};
    lvn_tensor *y = lvni_op_run(LVNI_OP_matmul, &args, 1);
    lvni_node *node = lvni_record("matmul", matmul_backward, y, in, 2);
    if (node != NULL) {
        node->attr.matmul = attr;
        lvni_save(node, 0, in[0]);
        lvni_save(node, 1, in[1]);
    }
    return y;
}

/* y = x w^T + b: dx = dy w, dw = dy^T x, db = column sums of dy */
static lvn_status linear_backward(lvni_node *n, lvn_tensor *dy)
{
    if (lvni_grad_wanted(n, 0)) {
        LVN_TRY(lvni_grad_give(n, 0, product(dy, false, n->saved[1], false, NULL)));
    }
    return lvni_grad_weight_and_bias(n, LVNI_OP_linear_grad_weight, &(lvni_args){.in = {dy, n->saved[0]}});
}

lvn_tensor *lvn_linear(lvn_tensor *x, lvn_tensor *w, lvn_tensor *b)
{
    lvn_tensor *in[] = {x, w, b};
    if (!lvni_op_begin(LVNI_OP_linear, in, 3, 4)) {
        return lvni_op_fail("linear");
    }
    lvni_args args = {.in = {in[0], in[1], in[2]}};
    lvn_tensor *y = lvni_op_run(LVNI_OP_linear, &args, 1);
    lvni_node *node = lvni_record("linear", linear_backward, y, in, 3);
    if (node != NULL) {
        lvni_save(node, 0, in[0]);
        lvni_save(node, 1, in[1]);
    }
    return y;
}

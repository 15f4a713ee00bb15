/* What ops of two operands with broadcasting share (op_elementwise.c has them; other ops use them,
 * too). */
#ifndef LEVIN_OPS_BINARY_H
#define LEVIN_OPS_BINARY_H

#include "autograd/tape.h"

/* y = op(a, b), recorded with both rules. save: a and b become saved[0] and saved[1]. The shape of
 * b is in attr.desc. */
lvn_tensor *lvni_ops_binary(lvni_kernels_op op, lvni_autograd_backward_rule rule,
                            lvni_autograd_backward_rule rule_ops, lvn_tensor *a, lvn_tensor *b,
                            bool save);
/* y = op(x), recorded with both rules; saved[0] is x or y. */
lvn_tensor *lvni_ops_unary(lvni_kernels_op op, lvni_autograd_backward_rule rule,
                           lvni_autograd_backward_rule rule_ops, lvn_tensor *x, bool save_output);
/* out = op(a, b) without record; the caller owns it. NULL when it fails or one of them is NULL. */
lvn_tensor *lvni_ops_new(lvni_kernels_op op, const lvn_tensor *a, const lvn_tensor *b);
/* Hand dL/d(input i) to its input, summed over the axes along which the input was broadcast. Moves
 * g. */
lvn_status lvni_ops_give_summed(lvni_autograd_node *node, int i, lvn_tensor *g,
                                const lvni_tensor_desc *in);
/* g summed down to the shape of an input that was broadcast, recorded. */
lvn_tensor *lvni_ops_summed(lvn_tensor *g, const lvni_tensor_desc *in);
/* x times a number, without record; the caller owns it. */
lvn_tensor *lvni_ops_scaled(const lvn_tensor *x, double mul);

#endif

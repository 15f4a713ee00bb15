/* Ops element by element.
 * Rules for all ops, scopes and gradients: ops.h. */
#ifndef LEVIN_OPS_ELEMENTWISE_H
#define LEVIN_OPS_ELEMENTWISE_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* a and b broadcast as in NumPy. */
LVN_API lvn_tensor *lvn_add(lvn_tensor *a, lvn_tensor *b);
LVN_API lvn_tensor *lvn_sub(lvn_tensor *a, lvn_tensor *b);
LVN_API lvn_tensor *lvn_mul(lvn_tensor *a, lvn_tensor *b);
LVN_API lvn_tensor *lvn_div(lvn_tensor *a, lvn_tensor *b);
LVN_API lvn_tensor *lvn_add_scalar(lvn_tensor *x, double c);
LVN_API lvn_tensor *lvn_mul_scalar(lvn_tensor *x, double c);
LVN_API lvn_tensor *lvn_neg(lvn_tensor *x);
LVN_API lvn_tensor *lvn_exp(lvn_tensor *x);
LVN_API lvn_tensor *lvn_log_e(lvn_tensor *x); /* natural logarithm (lvn_log is the trainer's metric call) */
LVN_API lvn_tensor *lvn_square(lvn_tensor *x);
LVN_API lvn_tensor *lvn_sqrt(lvn_tensor *x);
LVN_API lvn_tensor *lvn_relu(lvn_tensor *x);

#ifdef __cplusplus
}
#endif
#endif

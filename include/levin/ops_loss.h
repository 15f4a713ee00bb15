/* Soft-max and losses.
 * Rules for all ops, scopes and gradients: ops.h. */
#ifndef LEVIN_OPS_LOSS_H
#define LEVIN_OPS_LOSS_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- classification ---- */
LVN_API lvn_tensor *lvn_softmax(lvn_tensor *x);     /* over the last axis */
LVN_API lvn_tensor *lvn_log_softmax(lvn_tensor *x); /* over the last axis */
/* logits (N, K), labels (N) i64 in [0, K) -> mean over the N samples, shape () */
LVN_API lvn_tensor *lvn_cross_entropy(lvn_tensor *logits, lvn_tensor *labels);
LVN_API lvn_tensor *lvn_accuracy(lvn_tensor *logits, lvn_tensor *labels); /* share of right rows, shape (), no gradient */

#ifdef __cplusplus
}
#endif
#endif

/* Normalisation and dropout.
 * Rules for all ops, scopes and gradients: ops.h. */
#ifndef LEVIN_OPS_NORM_H
#define LEVIN_OPS_NORM_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What may follow a batch norm in the same pass over memory: y = relu(norm(x) + residual), each part optional. */
typedef struct lvn_batch_norm_options {
    size_t struct_size;
    lvn_tensor *residual; /* of x's shape, or NULL */
    bool relu;
} lvn_batch_norm_options;
/* Batch statistics over all axes but the last. x (..., C); gamma, beta (C). *mean and *variance (both may be NULL) receive the
 * batch's mean and unbiased variance (C), without gradient. Ioffe & Szegedy 2015, algorithm 1. */
LVN_API lvn_tensor *lvn_batch_norm_train_with(lvn_tensor *x, lvn_tensor *gamma, lvn_tensor *beta, double eps, lvn_tensor **mean,
                                              lvn_tensor **variance, const lvn_batch_norm_options *o);
#define lvn_batch_norm_train(x, gamma, beta, eps, mean, variance, ...)         \
    lvn_batch_norm_train_with((x), (gamma), (beta), (eps), (mean), (variance), \
                              &(lvn_batch_norm_options){.struct_size = sizeof(lvn_batch_norm_options), __VA_ARGS__})
/* (x - mean) / sqrt(variance + eps) * gamma + beta with given statistics; no gradient for mean and variance. Shapes as above. */
LVN_API lvn_tensor *lvn_batch_norm_eval_with(lvn_tensor *x, lvn_tensor *gamma, lvn_tensor *beta, lvn_tensor *mean,
                                             lvn_tensor *variance, double eps, const lvn_batch_norm_options *o);
#define lvn_batch_norm_eval(x, gamma, beta, mean, variance, eps, ...)         \
    lvn_batch_norm_eval_with((x), (gamma), (beta), (mean), (variance), (eps), \
                             &(lvn_batch_norm_options){.struct_size = sizeof(lvn_batch_norm_options), __VA_ARGS__})

/* In training: 0 with probability p, else x / (1 - p); random numbers from the position in training (the law). In evaluation: x. */
LVN_API lvn_tensor *lvn_dropout(lvn_tensor *x, double p);

#ifdef __cplusplus
}
#endif
#endif

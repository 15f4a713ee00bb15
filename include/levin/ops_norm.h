/* Normalisation and dropout.
 * Rules for all ops, scopes and gradients: ops.h. */
#ifndef LEVIN_OPS_NORM_H
#define LEVIN_OPS_NORM_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What may follow a batch norm in the same pass over memory: y = relu(norm(x) + residual), each
 * part optional. */
typedef struct lvn_batch_norm_options {
    size_t struct_size;
    lvn_tensor *residual; /* of x's shape, or NULL */
    bool relu;
    /* lvn_batch_norm_train: over the x of all micro-batches of the group (ops_group.h), which must
     * then come here together, with the same gamma */
    bool sync;
} lvn_batch_norm_options;
/* Batch statistics over all axes but the last. x (..., C); gamma, beta (C). *mean and *variance
 * (both may be NULL) receive the batch's mean and unbiased variance (C), without gradient. Ioffe &
 * Szegedy 2015, algorithm 1. */
LVN_API lvn_tensor *lvn_batch_norm_train_with(lvn_tensor *x, lvn_tensor *gamma, lvn_tensor *beta,
                                              double eps, lvn_tensor **mean, lvn_tensor **variance,
                                              const lvn_batch_norm_options *o);
#define lvn_batch_norm_train(x, gamma, beta, eps, mean, variance, ...)                             \
    lvn_batch_norm_train_with(                                                                     \
        (x), (gamma), (beta), (eps), (mean), (variance),                                           \
        &(lvn_batch_norm_options){.struct_size = sizeof(lvn_batch_norm_options), __VA_ARGS__})
/* (x - mean) / sqrt(variance + eps) * gamma + beta with given statistics; no gradient for mean and
 * variance. Shapes as above. */
LVN_API lvn_tensor *lvn_batch_norm_eval_with(lvn_tensor *x, lvn_tensor *gamma, lvn_tensor *beta,
                                             lvn_tensor *mean, lvn_tensor *variance, double eps,
                                             const lvn_batch_norm_options *o);
#define lvn_batch_norm_eval(x, gamma, beta, mean, variance, eps, ...)                              \
    lvn_batch_norm_eval_with(                                                                      \
        (x), (gamma), (beta), (mean), (variance), (eps),                                           \
        &(lvn_batch_norm_options){.struct_size = sizeof(lvn_batch_norm_options), __VA_ARGS__})

/* (x - mean) / sqrt(variance + eps) * gamma + beta with the mean and (biased) variance of each row.
 * A row is the last axes of x, as many as gamma and beta have: x (..., C) with gamma, beta (C)
 * normalises the last one. gamma, beta: NULL for ones, zeros (of the last axis). Ba, Kiros & Hinton
 * 2016, eq. 4. */
LVN_API lvn_tensor *lvn_layer_norm(lvn_tensor *x, lvn_tensor *gamma, lvn_tensor *beta, double eps);
/* x (N, ..., C): the same with the mean and variance of each sample's group of C / groups channels
 * over all pixels. gamma, beta (C) or NULL. Wu & He 2018. */
LVN_API lvn_tensor *lvn_group_norm(lvn_tensor *x, int groups, lvn_tensor *gamma, lvn_tensor *beta,
                                   double eps);
/* A group per channel: Ulyanov, Vedaldi & Lempitsky 2016. */
LVN_API lvn_tensor *lvn_instance_norm(lvn_tensor *x, lvn_tensor *gamma, lvn_tensor *beta,
                                      double eps);

/* In training: 0 with probability p, else x / (1 - p); random numbers from the position in training
 * (docs/reproducibility.md). In evaluation: x. */
LVN_API lvn_tensor *lvn_dropout(lvn_tensor *x, double p);

#ifdef __cplusplus
}
#endif
#endif

/* Ops on tensors, scopes, gradients.
 *
 * An op returns its result, which belongs to the innermost open scope. On failure it returns NULL, keeps the thread's first
 * error and marks the scope: from then on every op in that scope returns NULL, as does an op that is given NULL. So formulas are
 * written as formulas and checked once, at lvn_scope_close() or lvn_backward().
 * Outside of all scopes a tensor lives until its thread ends: open one.
 * Types: f32 runs on the cpu backend, f64 on the reference backend. All inputs of an op have the same type, labels are i64.
 * Named options stand behind the positional arguments: lvn_conv2d(x, w, b, .stride = 2); leaving one out, or 0, gives
 * PyTorch's default. */
#ifndef LEVIN_OPS_H
#define LEVIN_OPS_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- scopes ---- */
LVN_API lvn_status lvn_scope_open(void);
/* Releases the scope's tensors. Returns the status of the first op that failed in it (and lvn_last_error() is that error again); a
 * failure passes on to the scope outside. Closing the outermost scope also drops the tape. */
LVN_API lvn_status lvn_scope_close(void);
LVN_API lvn_status lvn_scope_status(void); /* of the innermost scope, without closing it */
/* Hand an op's result to the caller, who lvn_release()s it. NULL passes through. */
LVN_API lvn_tensor *lvn_keep(lvn_tensor *t);

/* ---- gradients ---- */
LVN_API lvn_tensor *lvn_require_grad(lvn_tensor *t); /* marks a leaf; returns t */
/* dL/d(leaf) for every leaf that requires a gradient, added to what it has. loss: one element. The tape is gone afterwards. */
LVN_API lvn_status lvn_backward(lvn_tensor *loss);
/* The same with dL/d(loss) = seed. */
LVN_API lvn_status lvn_backward_scaled(lvn_tensor *loss, double seed);
/* The gradient of a leaf after lvn_backward(), same shape; borrowed from t; NULL when it has none. */
LVN_API lvn_tensor *lvn_gradient(lvn_tensor *t);
LVN_API void lvn_zero_grad(lvn_tensor *t);
/* Switch recording off or on in this thread; returns what it was. */
LVN_API bool lvn_set_grad_enabled(bool enabled);

/* ---- element-wise; a and b broadcast as in NumPy ---- */
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

/* ---- reductions; axes may be negative ---- */
/* Sums and means of f32 are added in fixed blocks: the same bits on any number of threads. An empty axis: sum 0, mean an error. */
LVN_API lvn_tensor *lvn_sum(lvn_tensor *x);  /* over everything: shape () */
LVN_API lvn_tensor *lvn_mean(lvn_tensor *x); /* over everything: shape () */
LVN_API lvn_tensor *lvn_sum_axes(lvn_tensor *x, const int *axes, int n_axes, bool keepdim);
LVN_API lvn_tensor *lvn_mean_axes(lvn_tensor *x, const int *axes, int n_axes, bool keepdim);
/* The gradient goes to the first maximum; NaN counts as the largest. */
LVN_API lvn_tensor *lvn_max_axis(lvn_tensor *x, int axis, bool keepdim);
LVN_API lvn_tensor *lvn_argmax(lvn_tensor *x, int axis, bool keepdim); /* i64; the first maximum */

/* ---- shapes ---- */
/* Both share the memory of x; nothing is copied. */
LVN_API lvn_tensor *lvn_reshape(lvn_tensor *x, int ndim, const int64_t *shape); /* one size may be -1 */
LVN_API lvn_tensor *lvn_flatten(lvn_tensor *x, int start_axis);                 /* axes from start_axis on become one */

/* ---- linear algebra ---- */
typedef struct lvn_matmul_options {
    size_t struct_size;
    bool trans_a, trans_b;
} lvn_matmul_options;
LVN_API lvn_tensor *lvn_matmul_with(lvn_tensor *a, lvn_tensor *b, const lvn_matmul_options *o);
/* (M, K) x (K, N) -> (M, N) */
#define lvn_matmul(a, b, ...) \
    lvn_matmul_with((a), (b), &(lvn_matmul_options){.struct_size = sizeof(lvn_matmul_options), __VA_ARGS__})
/* x (N, I), w (O, I), b (O) or NULL -> x w^T + b (N, O) */
LVN_API lvn_tensor *lvn_linear(lvn_tensor *x, lvn_tensor *w, lvn_tensor *b);

/* ---- images: (N, H, W, C) ---- */
typedef struct lvn_conv2d_options {
    size_t struct_size;
    int stride, padding, dilation, groups; /* 0: 1, 0, 1, 1 */
} lvn_conv2d_options;
/* x (N, H, W, I), w (O, KH, KW, I / groups), b (O) or NULL -> (N, H', W', O), H' = (H + 2 padding - dilation (KH - 1) - 1) / stride + 1 */
LVN_API lvn_tensor *lvn_conv2d_with(lvn_tensor *x, lvn_tensor *w, lvn_tensor *b, const lvn_conv2d_options *o);
#define lvn_conv2d(x, w, b, ...) \
    lvn_conv2d_with((x), (w), (b), &(lvn_conv2d_options){.struct_size = sizeof(lvn_conv2d_options), __VA_ARGS__})

typedef struct lvn_pool2d_options {
    size_t struct_size;
    int stride, padding; /* 0: the kernel, 0 */
} lvn_pool2d_options;
/* (N, H, W, C) -> (N, H', W', C), H' = (H + 2 padding - kernel) / stride + 1; padding at most half the kernel. */
LVN_API lvn_tensor *lvn_max_pool2d_with(lvn_tensor *x, int kernel, const lvn_pool2d_options *o);
#define lvn_max_pool2d(x, kernel, ...) \
    lvn_max_pool2d_with((x), (kernel), &(lvn_pool2d_options){.struct_size = sizeof(lvn_pool2d_options), __VA_ARGS__})
LVN_API lvn_tensor *lvn_global_avg_pool2d(lvn_tensor *x); /* (N, H, W, C) -> (N, C) */

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

/* ---- classification ---- */
LVN_API lvn_tensor *lvn_softmax(lvn_tensor *x);     /* over the last axis */
LVN_API lvn_tensor *lvn_log_softmax(lvn_tensor *x); /* over the last axis */
/* logits (N, K), labels (N) i64 in [0, K) -> mean over the N samples, shape () */
LVN_API lvn_tensor *lvn_cross_entropy(lvn_tensor *logits, lvn_tensor *labels);
LVN_API lvn_tensor *lvn_accuracy(lvn_tensor *logits, lvn_tensor *labels); /* share of right rows, shape (), no gradient */

/* In training: 0 with probability p, else x / (1 - p); random numbers from the position in training (the law). In evaluation: x. */
LVN_API lvn_tensor *lvn_dropout(lvn_tensor *x, double p);

#ifdef __cplusplus
}
#endif
#endif

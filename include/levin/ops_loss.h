/* Soft-max and losses.
 * Rules for all ops, scopes and gradients: ops.h. */
#ifndef LEVIN_OPS_LOSS_H
#define LEVIN_OPS_LOSS_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- soft-max ---- */
LVN_API lvn_tensor *lvn_softmax(lvn_tensor *x);     /* over the last axis */
LVN_API lvn_tensor *lvn_log_softmax(lvn_tensor *x); /* over the last axis */

/* log(sum of e^x) along an axis, which goes; the sum is of e^(x - maximum). Gradient: softmax. */
LVN_API lvn_tensor *lvn_logsumexp(lvn_tensor *x, int axis);

/* What becomes of the losses of rows or elements. */
typedef enum lvn_reduction {
    LVN_REDUCTION_MEAN, /* divided by the sum of the weights (0 when that is 0) */
    LVN_REDUCTION_SUM
} lvn_reduction;

/* ---- losses over classes: x (..., K) and labels (...) i64 in [0, K) -> () ---- */
typedef struct lvn_class_loss_options {
    size_t struct_size;
    /* (K) or NULL; weighs rows by their label, and the mean is a weighted one, as in PyTorch */
    lvn_tensor *class_weight;
    bool ignores;         /* labels equal to ignore_index count for nothing; */
    int64_t ignore_index; /* without `ignores` those equal to -100 do */
    lvn_reduction reduction;
    /* cross_entropy: this share of the target goes to all classes alike. Szegedy et al. 2016,
     * section 7 */
    double label_smoothing;
    lvn_tensor *sample_weight; /* (...) or NULL: weighs rows and the mean, too */
} lvn_class_loss_options;
LVN_API lvn_tensor *lvn_cross_entropy_with(lvn_tensor *logits, lvn_tensor *labels,
                                           const lvn_class_loss_options *o);
/* -log softmax(logits)[label]. Weights get no gradient: ones that require it are
 * LVN_ERR_UNSUPPORTED. */
#define lvn_cross_entropy(logits, labels, ...)                                                     \
    lvn_cross_entropy_with(                                                                        \
        (logits), (labels),                                                                        \
        &(lvn_class_loss_options){.struct_size = sizeof(lvn_class_loss_options), __VA_ARGS__})
LVN_API lvn_tensor *lvn_nll_loss_with(lvn_tensor *log_probabilities, lvn_tensor *labels,
                                      const lvn_class_loss_options *o);
/* -log_probabilities[label] */
#define lvn_nll_loss(log_probabilities, labels, ...)                                               \
    lvn_nll_loss_with(                                                                             \
        (log_probabilities), (labels),                                                             \
        &(lvn_class_loss_options){.struct_size = sizeof(lvn_class_loss_options), __VA_ARGS__})
/* The same against probabilities (..., K), such as mixed or smoothed labels or those of a teacher:
 * -sum over classes of class_weight target log softmax(logits). The mean is over the rows, whatever
 * the weights, as in PyTorch. Gradients for both; second derivatives, too. */
typedef struct lvn_soft_loss_options {
    size_t struct_size;
    lvn_tensor *class_weight; /* (K) or NULL, without gradient */
    lvn_reduction reduction;
} lvn_soft_loss_options;
LVN_API lvn_tensor *lvn_soft_cross_entropy_with(lvn_tensor *logits, lvn_tensor *target,
                                                const lvn_soft_loss_options *o);
#define lvn_soft_cross_entropy(logits, target, ...)                                                \
    lvn_soft_cross_entropy_with(                                                                   \
        (logits), (target),                                                                        \
        &(lvn_soft_loss_options){.struct_size = sizeof(lvn_soft_loss_options), __VA_ARGS__})
/* Kullback & Leibler 1951: target (log target - x), 0 where the target is 0; x: logarithms of
 * probabilities, of the target's shape. Gradients for both. */
typedef struct lvn_kl_div_options {
    size_t struct_size;
    bool log_target; /* the target is given as logarithms, too */
    /* the mean is that of rows, the sum divided by the size of axis 0: PyTorch's "batchmean" */
    lvn_reduction reduction;
} lvn_kl_div_options;
LVN_API lvn_tensor *lvn_kl_div_with(lvn_tensor *x, lvn_tensor *target, const lvn_kl_div_options *o);
#define lvn_kl_div(x, target, ...)                                                                 \
    lvn_kl_div_with((x), (target),                                                                 \
                    &(lvn_kl_div_options){.struct_size = sizeof(lvn_kl_div_options), __VA_ARGS__})
/* share of right rows, shape (), no gradient */
LVN_API lvn_tensor *lvn_accuracy(lvn_tensor *logits, lvn_tensor *labels);

/* ---- losses element by element: x and target of one shape -> () ---- Gradients for x and target,
 * but the target of bce_with_logits; none for weights. What gets none and requires it is
 * LVN_ERR_UNSUPPORTED: lvn_detach of it is a constant. */
typedef struct lvn_point_loss_options {
    size_t struct_size;
    /* of x's shape, or NULL: a factor on each loss; the mean is divided by the sum of the
     * weights */
    lvn_tensor *weight;
    lvn_reduction reduction;
    /* bce_with_logits: (size of the last axis) or NULL, a factor on the losses of positive
     * targets */
    lvn_tensor *pos_weight;
} lvn_point_loss_options;
#define LVN_POINT_LOSS_OPTIONS(...)                                                                \
    (&(lvn_point_loss_options){.struct_size = sizeof(lvn_point_loss_options), __VA_ARGS__})
LVN_API lvn_tensor *lvn_mse_loss_with(lvn_tensor *x, lvn_tensor *target,
                                      const lvn_point_loss_options *o);
#define lvn_mse_loss(x, target, ...)                                                               \
    lvn_mse_loss_with((x), (target), LVN_POINT_LOSS_OPTIONS(__VA_ARGS__)) /* (x - target)^2 */
LVN_API lvn_tensor *lvn_l1_loss_with(lvn_tensor *x, lvn_tensor *target,
                                     const lvn_point_loss_options *o);
#define lvn_l1_loss(x, target, ...)                                                                \
    lvn_l1_loss_with((x), (target), LVN_POINT_LOSS_OPTIONS(__VA_ARGS__)) /* |x - target| */
LVN_API lvn_tensor *lvn_smooth_l1_loss_with(lvn_tensor *x, lvn_tensor *target, double beta,
                                            const lvn_point_loss_options *o);
/* (x - target)^2 / (2 beta) below beta (1 is usual), else |x - target| - beta / 2. Girshick 2015,
 * eq. 3 */
#define lvn_smooth_l1_loss(x, target, beta, ...)                                                   \
    lvn_smooth_l1_loss_with((x), (target), (beta), LVN_POINT_LOSS_OPTIONS(__VA_ARGS__))
LVN_API lvn_tensor *lvn_bce_with_logits_with(lvn_tensor *logits, lvn_tensor *target,
                                             const lvn_point_loss_options *o);
/* -pos_weight target log s - (1 - target) log(1 - s), s = sigmoid(logits). As in PyTorch the mean
 * is divided by the number of elements, whatever the weights. */
#define lvn_bce_with_logits(logits, target, ...)                                                   \
    lvn_bce_with_logits_with((logits), (target), LVN_POINT_LOSS_OPTIONS(__VA_ARGS__))

#ifdef __cplusplus
}
#endif
#endif

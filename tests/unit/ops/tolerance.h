/* How far a kernel may be from the truth: the one table of tolerances. An error is measured
 *   OF_VALUE    relative to the true value itself (0 must be 0),
 *   OF_TERMS    relative to the same op on the absolute values of its inputs: the size of what was
 *     added up,
 *   OF_LARGEST  relative to the largest true value of that output.
 * Columns: one per type of the kernel. f32 rounds to 2^-24 of a value; "a few" is 8 of those. */
#ifndef LEVIN_TESTS_TOLERANCE_H
#define LEVIN_TESTS_TOLERANCE_H

#include "kernels/kernels.h"

typedef enum measure { OF_VALUE, OF_TERMS, OF_LARGEST } measure;

typedef struct tolerance {
    measure of;
    double f32;
} tolerance;

#define EXACTLY 0.0
#define ONE_ROUNDING 0x1p-24
#define A_FEW 0x1p-21

static const tolerance tolerances[LVNI_OP_COUNT] = {
    [LVNI_OP_add] = {OF_VALUE, ONE_ROUNDING},
    [LVNI_OP_sub] = {OF_VALUE, ONE_ROUNDING},
    [LVNI_OP_mul] = {OF_VALUE, ONE_ROUNDING},
    [LVNI_OP_div] = {OF_VALUE, ONE_ROUNDING},
    [LVNI_OP_scale] = {OF_TERMS, A_FEW}, /* attributes are rounded to f32, too */
    [LVNI_OP_exp] = {OF_VALUE, A_FEW},
    [LVNI_OP_log] = {OF_VALUE, A_FEW},
    [LVNI_OP_square] = {OF_VALUE, ONE_ROUNDING},
    [LVNI_OP_square_grad] = {OF_VALUE, A_FEW},
    [LVNI_OP_sqrt] = {OF_VALUE, ONE_ROUNDING},
    [LVNI_OP_sqrt_grad] = {OF_VALUE, A_FEW},
    [LVNI_OP_relu] = {OF_VALUE, EXACTLY},
    [LVNI_OP_relu_grad] = {OF_VALUE, EXACTLY},
    [LVNI_OP_cast] = {OF_VALUE, EXACTLY},
    [LVNI_OP_mix_images] = {OF_LARGEST, A_FEW},
    [LVNI_OP_pow] = {OF_VALUE, A_FEW},
    [LVNI_OP_pow_grad_base] = {OF_VALUE, 1e-6}, /* b - 1 is rounded */
    [LVNI_OP_pow_grad_exponent] = {OF_VALUE, A_FEW},
    [LVNI_OP_minimum] = {OF_VALUE, EXACTLY},
    [LVNI_OP_maximum] = {OF_VALUE, EXACTLY},
    [LVNI_OP_share] = {OF_VALUE, EXACTLY},
    [LVNI_OP_eq] = {OF_VALUE, EXACTLY},
    [LVNI_OP_ne] = {OF_VALUE, EXACTLY},
    [LVNI_OP_lt] = {OF_VALUE, EXACTLY},
    [LVNI_OP_le] = {OF_VALUE, EXACTLY},
    [LVNI_OP_gt] = {OF_VALUE, EXACTLY},
    [LVNI_OP_ge] = {OF_VALUE, EXACTLY},
    [LVNI_OP_where] = {OF_VALUE, EXACTLY},
    [LVNI_OP_div_or_zero] = {OF_VALUE, ONE_ROUNDING},
    [LVNI_OP_var] = {OF_LARGEST, 1e-6},
    [LVNI_OP_norm] = {OF_VALUE, A_FEW},
    [LVNI_OP_rsqrt] = {OF_VALUE, A_FEW},
    [LVNI_OP_rsqrt_grad] = {OF_VALUE, A_FEW},
    [LVNI_OP_reciprocal] = {OF_VALUE, ONE_ROUNDING},
    [LVNI_OP_reciprocal_grad] = {OF_VALUE, A_FEW},
    [LVNI_OP_abs] = {OF_VALUE, EXACTLY},
    [LVNI_OP_abs_grad] = {OF_VALUE, EXACTLY},
    [LVNI_OP_sign] = {OF_VALUE, EXACTLY},
    [LVNI_OP_clamp] = {OF_VALUE, EXACTLY},
    [LVNI_OP_clamp_grad] = {OF_VALUE, EXACTLY},
    [LVNI_OP_pow_scalar] = {OF_VALUE, A_FEW},
    [LVNI_OP_pow_scalar_grad] = {OF_VALUE, A_FEW},
    [LVNI_OP_leaky_relu] = {OF_VALUE, A_FEW},
    [LVNI_OP_leaky_relu_grad] = {OF_VALUE, A_FEW},
    /* the tail is e^(-x^2/2): the rounding of x^2 counts x^2 times */
    [LVNI_OP_gelu] = {OF_VALUE, 1e-6},
    [LVNI_OP_gelu_grad] = {OF_LARGEST, A_FEW},
    [LVNI_OP_gelu_tanh] = {OF_VALUE, 2e-6},
    [LVNI_OP_gelu_tanh_grad] = {OF_LARGEST, A_FEW},
    [LVNI_OP_silu] = {OF_VALUE, A_FEW},
    [LVNI_OP_silu_grad] = {OF_LARGEST, A_FEW},
    [LVNI_OP_sigmoid] = {OF_VALUE, A_FEW},
    [LVNI_OP_sigmoid_grad] = {OF_LARGEST, A_FEW}, /* 1 - y */
    [LVNI_OP_tanh] = {OF_VALUE, A_FEW},
    [LVNI_OP_tanh_grad] = {OF_LARGEST, A_FEW},
    [LVNI_OP_softplus] = {OF_VALUE, A_FEW},
    [LVNI_OP_softplus_grad] = {OF_VALUE, A_FEW},
    [LVNI_OP_erf] = {OF_VALUE, A_FEW},
    [LVNI_OP_erf_grad] = {OF_VALUE, 1e-6},
    [LVNI_OP_permute] = {OF_VALUE, EXACTLY},
    [LVNI_OP_concat] = {OF_VALUE, EXACTLY},
    [LVNI_OP_crop] = {OF_VALUE, EXACTLY},
    [LVNI_OP_pad] = {OF_VALUE, EXACTLY},
    [LVNI_OP_pad_reflect_grad] = {OF_TERMS, A_FEW},
    [LVNI_OP_index_select] = {OF_VALUE, EXACTLY},
    [LVNI_OP_index_select_grad] = {OF_TERMS, A_FEW},
    [LVNI_OP_gather] = {OF_VALUE, EXACTLY},
    [LVNI_OP_gather_grad] = {OF_TERMS, A_FEW},
    [LVNI_OP_sum_to] = {OF_TERMS, A_FEW},
    [LVNI_OP_expand] = {OF_VALUE, EXACTLY},
    [LVNI_OP_sum] = {OF_TERMS, A_FEW},
    [LVNI_OP_mean] = {OF_TERMS, A_FEW},
    [LVNI_OP_max] = {OF_VALUE, EXACTLY},
    [LVNI_OP_max_grad] = {OF_VALUE, EXACTLY},
    [LVNI_OP_matmul] = {OF_TERMS, 1e-6},
    [LVNI_OP_linear] = {OF_TERMS, 1e-6},
    [LVNI_OP_linear_grad_input] = {OF_TERMS, 1e-6},
    [LVNI_OP_linear_grad_weight] = {OF_TERMS, 1e-6},
    [LVNI_OP_conv2d] = {OF_TERMS, 1e-6},
    [LVNI_OP_conv2d_grad_input] = {OF_TERMS, 1e-6},
    [LVNI_OP_conv2d_grad_weight] = {OF_TERMS, 1e-6},
    [LVNI_OP_conv_transpose2d] = {OF_TERMS, 1e-6},
    [LVNI_OP_resample2d] = {OF_LARGEST, 1e-6}, /* weights are rounded, too */
    [LVNI_OP_fft] = {OF_LARGEST, 2e-6},
    [LVNI_OP_max_pool2d] = {OF_VALUE, EXACTLY},
    [LVNI_OP_max_pool2d_grad] = {OF_TERMS, A_FEW}, /* overlapping windows add up */
    [LVNI_OP_batch_norm_train] = {OF_LARGEST, 2e-6},
    [LVNI_OP_batch_norm_train_grad] = {OF_LARGEST, 4e-6},
    [LVNI_OP_batch_norm_eval] = {OF_LARGEST, 1e-6},
    [LVNI_OP_batch_norm_eval_grad] = {OF_LARGEST, 2e-6},
    [LVNI_OP_batch_norm_moments] = {OF_LARGEST, 2e-6},
    [LVNI_OP_batch_norm_sums] = {OF_LARGEST, 4e-6},
    [LVNI_OP_batch_norm_group_grad] = {OF_LARGEST, 2e-6},
    /* e^(x - top): the rounding of x - top counts |x - top| times */
    [LVNI_OP_softmax] = {OF_VALUE, 2e-6},
    [LVNI_OP_softmax_grad] = {OF_LARGEST, 1e-6},
    [LVNI_OP_log_softmax] = {OF_LARGEST, A_FEW},
    [LVNI_OP_log_softmax_grad] = {OF_LARGEST, 1e-6},
    [LVNI_OP_cross_entropy] = {OF_LARGEST, A_FEW},
    [LVNI_OP_cross_entropy_grad] = {OF_LARGEST, 1e-6},
    [LVNI_OP_dropout] = {OF_VALUE, A_FEW}, /* the kept set must agree: 0 must be 0 */
    [LVNI_OP_accuracy] = {OF_VALUE, ONE_ROUNDING},
    [LVNI_OP_layer_norm] = {OF_LARGEST, 2e-6},
    [LVNI_OP_layer_norm_grad] = {OF_LARGEST, 4e-6},
    [LVNI_OP_group_norm] = {OF_LARGEST, 2e-6},
    [LVNI_OP_group_norm_grad] = {OF_LARGEST, 4e-6},
    [LVNI_OP_nll] = {OF_LARGEST, A_FEW},
    [LVNI_OP_nll_grad] = {OF_LARGEST, A_FEW},
    [LVNI_OP_point_loss] = {OF_LARGEST, A_FEW},
    [LVNI_OP_point_loss_grad] = {OF_LARGEST, 1e-6},
    [LVNI_OP_embedding] = {OF_TERMS, ONE_ROUNDING},
    [LVNI_OP_embedding_grad] = {OF_TERMS, A_FEW},
    [LVNI_OP_attention] = {OF_LARGEST, 2e-6},
    [LVNI_OP_attention_grad] = {OF_LARGEST, 4e-6},
    [LVNI_OP_attention_qkv] = {OF_LARGEST, 2e-6},
    [LVNI_OP_attention_qkv_grad] = {OF_LARGEST, 4e-6},
};

/* f64: reference gradients against central differences, relative to the largest gradient. */
#define TOLERANCE_DIFFERENCES 1e-6

#endif

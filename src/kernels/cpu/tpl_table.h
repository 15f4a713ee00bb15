/* The template of the own kernels: included once by each of isa_v2.c, isa_v3.c and isa_v4.c, which
 * set LVNI_VEC_TABLE (name of the table), LVNI_VEC_NAME and LVNI_W (floats in a register).
 * Everything else here is static, so that no function compiled for a larger instruction set can be
 * linked in place of a smaller one's. */
#ifndef LEVIN_KERNELS_CPU_TPL_TABLE_H
#define LEVIN_KERNELS_CPU_TPL_TABLE_H

#include "kernels/cpu/tpl_cast.h"
#include "kernels/cpu/tpl_attention.h"
#include "kernels/cpu/tpl_depthwise.h"
#include "kernels/cpu/tpl_flat.h"
#include "kernels/cpu/tpl_optim.h"
#include "kernels/cpu/tpl_heatmap.h"
#include "kernels/cpu/tpl_loss.h"
#include "kernels/cpu/tpl_map.h"
#include "kernels/cpu/tpl_norm.h"
#include "kernels/cpu/tpl_pool.h"
#include "kernels/cpu/tpl_prelu.h"
#include "kernels/cpu/tpl_random.h"
#include "kernels/cpu/tpl_reduce.h"
#include "kernels/cpu/tpl_rows.h"
#include "kernels/cpu/tpl_windows.h"

/* What is compiled once per element type: memory holds ELEM, GET reads it as f32, PUT rounds f32 to
 * it. */
#define ELEM float
#define NAMED(function) function##_f32
#define GET(value) (value)
#define PUT(value) (value)
#include "kernels/cpu/tpl_attention.def"
#include "kernels/cpu/tpl_layer_norm.def"
#include "kernels/cpu/tpl_norm.def"
#include "kernels/cpu/tpl_pool.def"
#include "kernels/cpu/tpl_taps.def"
#undef ELEM
#undef NAMED
#undef GET
#undef PUT

#define ELEM uint16_t
#define NAMED(function) function##_bf16
#define GET(value) lvni_core_bf16_to_f32(value)
#define PUT(value) lvni_core_f32_to_bf16(value)
#include "kernels/cpu/tpl_attention.def"
#include "kernels/cpu/tpl_layer_norm.def"
#include "kernels/cpu/tpl_norm.def"
#include "kernels/cpu/tpl_pool.def"
#include "kernels/cpu/tpl_taps.def"
#undef ELEM
#undef NAMED
#undef GET
#undef PUT

#define NORM_LOOPS(type)                                                                           \
    {                                                                                              \
        norm_sums_##type, norm_apply_##type, norm_grad_sums_##type, norm_grad_apply_##type         \
    }
#define EACH(function)                                                                             \
    {                                                                                              \
        [LVNI_ELEM_F32] = function##_f32, [LVNI_ELEM_BF16] = function##_bf16                       \
    }
#define MODES(function)                                                                            \
    {                                                                                              \
        [LVNI_VV] = function##_vv, [LVNI_VS] = function##_vs, [LVNI_SV] = function##_sv            \
    }

const lvni_cpu_vec LVNI_VEC_TABLE = {
    .name = LVNI_VEC_NAME,
    .unary =
        {
#define LVNI_UNARY(op, expression) [LVNI_UNARY_##op] = unary_##op,
#define LVNI_UNARY_ATTR(op, attr_type, first, second, expression) [LVNI_UNARY_##op] = unary_##op,
#include "kernels/map.def"
        },
    .pair =
        {
#define LVNI_PAIR(op, expression) [LVNI_PAIR_##op] = pair_##op,
#define LVNI_PAIR_ATTR(op, attr_type, first, second, expression) [LVNI_PAIR_##op] = pair_##op,
#include "kernels/map.def"
        },
    .binary[LVNI_ELEM_F32] =
        {
#define LVNI_BINARY(op, expression) [LVNI_BINARY_##op] = MODES(binary_##op),
#include "kernels/map.def"
        },
    .binary[LVNI_ELEM_BF16] =
        {
#define LVNI_BINARY(op, expression) [LVNI_BINARY_##op] = MODES(binary_bf16_##op),
#include "kernels/map.def"
        },
    .compare =
        {
#define LVNI_COMPARE(op, condition) [LVNI_COMPARE_##op] = MODES(compare_##op),
#include "kernels/map.def"
        },
    .from_bf16 = from_bf16,
    .to_bf16 = to_bf16,
    .from_f16 = from_f16,
    .to_f16 = to_f16,
    .prelu = prelu,
    .prelu_grad = prelu_grad,
    .row_sums = row_sums,
    .col_sums = col_sums,
    .combine = combine,
    .row_max = row_max,
    .col_max = col_max,
    .softmax = softmax,
    .softmax_grad = softmax_grad,
    .log_softmax = log_softmax,
    .log_softmax_grad = log_softmax_grad,
    .norm = {[LVNI_ELEM_F32] = NORM_LOOPS(f32), [LVNI_ELEM_BF16] = NORM_LOOPS(bf16)},
    .norm_combine = norm_combine,
    .layer_norm = EACH(layer_norm),
    .layer_norm_grad = EACH(layer_norm_grad),
    .group_grad_apply = EACH(group_grad_apply),
    .row_log_sums = row_log_sums,
    .row_smooth = row_smooth,
    .row_slopes = row_slopes,
    .point_loss = point_loss,
    .point_loss_grad = point_loss_grad,
    .attention = EACH(attention),
    .attention_grad = EACH(attention_grad),
    .pool_row = EACH(pool_row),
    .pool_pixel_grad = EACH(pool_pixel_grad),
    .mix = EACH(mix),
    .mix_row = EACH(mix_row),
    .mix_f64 = mix_f64,
    .spread_f64 = spread_f64,
    .max_f64 = max_f64,
    .exp_f64 = exp_f64,
    .add_exp_row = add_exp_row,
    .tilt_row = tilt_row,
    .add_windows = add_windows,
    .depthwise_row = depthwise_row,
    .dropout = dropout,
    .uniform = uniform,
    .normal = normal,
    .block_sumsq = block_sumsq,
    .sgd = sgd,
    .adamw = adamw,
    .rmsprop = rmsprop,
    .lion = lion,
    .lamb_moments = lamb_moments,
    .lamb = lamb,
    .add_squares = add_squares,
    .adafactor_estimate = adafactor_estimate,
    .adafactor_direction = adafactor_direction,
    .adafactor_step = adafactor_step,
    .accumulate = accumulate,
    .accumulate_bf16 = accumulate_bf16,
    .lerp = lerp,
};

#endif

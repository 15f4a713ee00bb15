/* The rows of cases.def as data, and the inputs made for them. Used by test_kernels (cpu against
 * ref), test_kernel_bits (sameness) and nothing else. */
#ifndef LEVIN_TESTS_OP_CASES_H
#define LEVIN_TESTS_OP_CASES_H

#include "op_support.h"

typedef struct case_dims {
    bool given; /* false: no such input (NULL) */
    int ndim;
    int64_t shape[LVN_MAX_NDIM];
} case_dims;

typedef union case_attr {
    lvn_scale_attr scale;
    lvn_axes_attr axes;
    lvn_shape_attr shape;
    lvn_matmul_attr matmul;
    lvn_conv_attr conv;
    lvn_pool_attr pool;
    lvn_resample_attr resample;
    lvn_fft_attr fft;
    lvn_norm_attr norm;
    lvn_cast_attr cast;
    lvn_dropout_attr dropout;
    lvn_layer_norm_attr layer_norm;
    lvn_group_norm_attr group_norm;
    lvn_attention_attr attention;
    lvn_class_loss_attr class_loss;
    lvn_point_loss_attr point_loss;
    lvn_lookup_attr lookup;
    lvn_number_attr number;
    lvn_range_attr range;
    lvn_permute_attr permute;
    lvn_var_attr var;
    lvn_axis_attr axis;
    lvn_box_attr box;
    lvn_mix_attr mix;
} case_attr;

typedef struct op_case {
    const char *name;
    case_dims in[LVN_KERNEL_INPUTS];
    case_attr attr;
    bool special; /* sprinkle NaN and infinities over the first input */
} op_case;

typedef struct op_cases {
    const op_case *rows;
    int n;
} op_cases;

extern const op_cases all_cases[LVNI_OP_COUNT];

/* Inputs of a row: seeded by op and row, rounded to f32. in64 holds them as f64, in32 as f32;
 * integer inputs are shared. */
void case_inputs(lvni_kernels_op op, const op_case *row, lvn_tensor *in64[LVN_KERNEL_INPUTS],
                 lvn_tensor *in32[LVN_KERNEL_INPUTS]);
/* The same in bf16 or f16: in64 is rounded to numbers of that type, too. */
void case_inputs_low(lvni_kernels_op op, const op_case *row, lvn_dtype dtype,
                     lvn_tensor *in64[LVN_KERNEL_INPUTS], lvn_tensor *low[LVN_KERNEL_INPUTS]);
/* The attribute of a row, NULL for ops without. */
const void *case_attribute(lvni_kernels_op op, const op_case *row);

#endif

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
    lvni_kernels_scale_attr scale;
    lvni_kernels_axes_attr axes;
    lvni_kernels_shape_attr shape;
    lvni_kernels_matmul_attr matmul;
    lvni_kernels_conv_attr conv;
    lvni_kernels_pool_attr pool;
    lvni_kernels_resample_attr resample;
    lvni_kernels_fft_attr fft;
    lvni_kernels_norm_attr norm;
    lvni_kernels_cast_attr cast;
    lvni_kernels_dropout_attr dropout;
    lvni_kernels_layer_norm_attr layer_norm;
    lvni_kernels_group_norm_attr group_norm;
    lvni_kernels_attention_attr attention;
    lvni_kernels_class_loss_attr class_loss;
    lvni_kernels_point_loss_attr point_loss;
    lvni_kernels_lookup_attr lookup;
    lvni_kernels_number_attr number;
    lvni_kernels_range_attr range;
    lvni_kernels_permute_attr permute;
    lvni_kernels_var_attr var;
    lvni_kernels_axis_attr axis;
    lvni_kernels_box_attr box;
} case_attr;

typedef struct op_case {
    const char *name;
    case_dims in[LVNI_MAX_IN];
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
void case_inputs(lvni_kernels_op op, const op_case *row, lvn_tensor *in64[LVNI_MAX_IN],
                 lvn_tensor *in32[LVNI_MAX_IN]);
/* The same in bf16 or f16: in64 is rounded to numbers of that type, too. */
void case_inputs_low(lvni_kernels_op op, const op_case *row, lvn_dtype dtype,
                     lvn_tensor *in64[LVNI_MAX_IN], lvn_tensor *low[LVNI_MAX_IN]);
/* The attribute of a row, NULL for ops without. */
const void *case_attribute(lvni_kernels_op op, const op_case *row);

#endif

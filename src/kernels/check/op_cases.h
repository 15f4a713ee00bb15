/* The cases of every op (cases.def) as data, the inputs made for them, and how close a result must
 * be. Used by check_op.c and by the tests of kernels. */
#ifndef LEVIN_KERNELS_CHECK_OP_CASES_H
#define LEVIN_KERNELS_CHECK_OP_CASES_H

#include "kernels/check/check.h"

/* Small, and without pointers: there are over a thousand rows. */
typedef struct lvni_check_dims {
    bool given; /* false: no such input (NULL) */
    int8_t ndim;
    int32_t shape[LVN_MAX_NDIM];
} lvni_check_dims;

typedef union lvni_check_attr {
    lvn_scale_attr scale;
    lvn_axes_attr axes;
    lvn_shape_attr shape;
    lvn_matmul_attr matmul;
    lvn_conv_attr conv;
    lvn_pool_attr pool;
    lvn_resample_attr resample;
    lvn_window_attr window;
    lvn_affine_attr affine;
    lvn_sample_attr sample;
    lvn_soft_argmax_attr soft_argmax;
    lvn_heatmap_attr heatmap;
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
    lvn_scan_attr scan;
    lvn_sort_attr sort;
    lvn_box_attr box;
    lvn_mix_attr mix;
} lvni_check_attr;

typedef struct lvni_check_case {
    char name[40];
    lvni_check_dims in[LVN_KERNEL_INPUTS];
    lvni_check_attr attr;
    bool special; /* sprinkle NaN and infinities over the first input */
    uint8_t full; /* bit i: input i stays f32 beside 16 bits (a parameter in mixed precision) */
} lvni_check_case;

typedef struct lvni_check_cases {
    const lvni_check_case *rows;
    int n;
} lvni_check_cases;

extern const lvni_check_cases lvni_check_all[LVNI_OP_COUNT];

/* Inputs of a case: drawn by op and case, rounded to a type. */
typedef struct lvni_check_inputs {
    lvn_tensor *truth[LVN_KERNEL_INPUTS]; /* these numbers as f64, for ref */
    /* in the type; integer inputs are the same tensors as above, with references of their own */
    lvn_tensor *own[LVN_KERNEL_INPUTS];
} lvni_check_inputs;
/* In host memory, with the context on the host. dtype: LVN_F32, LVN_BF16, LVN_F16, or LVN_F64 for
 * the numbers that f32 has. On failure nothing is left. */
lvn_status lvni_check_inputs_make(lvni_kernels_op op, const lvni_check_case *row, lvn_dtype dtype,
                                  lvni_check_inputs *out);
void lvni_check_inputs_free(lvni_check_inputs *in);
/* One case (check.h, lvni_check_op) in one type, counted in `out`; nothing when the device has no
 * kernel for it. */
lvn_status lvni_check_case_run(lvni_kernels_op op, const lvni_check_case *row, lvn_dtype dtype,
                               lvni_tensor_device *device, lvni_check_result *out);
/* The attribute of a case, NULL for ops without. */
const void *lvni_check_attribute(lvni_kernels_op op, const lvni_check_case *row);

/* ---- how close ---- */

typedef enum lvni_check_measure {
    LVNI_CHECK_OF_VALUE, /* relative to the true value itself (0 must be 0) */
    /* relative to the same op on the absolute values of its inputs: the size of what was added
     * up */
    LVNI_CHECK_OF_TERMS,
    LVNI_CHECK_OF_LARGEST /* relative to the largest true value of that output */
} lvni_check_measure;

typedef struct lvni_check_tolerance {
    lvni_check_measure of;
    double f32; /* of a kernel that computes in f32 */
} lvni_check_tolerance;
extern const lvni_check_tolerance lvni_check_tolerances[LVNI_OP_COUNT];

/* Element e of any type as a double; the tensor lies in host memory. */
double lvni_check_value(const lvn_tensor *t, int64_t e);
/* Results of a case with inputs of type dtype against the truth, ref's results on the same numbers
 * as f64; all in host memory. Outputs that `have` lacks are not looked at. *worst, unless NULL: the
 * largest error so far, as a part of what is allowed. LVN_ERR_MISMATCH names output, error and
 * first wrong element. */
lvn_status lvni_check_compare(lvni_kernels_op op, const lvni_check_case *row, lvn_dtype dtype,
                              const lvn_kernel_args *have, const lvni_check_inputs *in,
                              double *worst);

#endif

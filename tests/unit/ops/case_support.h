/* The cases of ops (kernels/check/op_cases.h) for cmocka tests: inputs that live until the
 * teardown. */
#ifndef LEVIN_TESTS_CASE_SUPPORT_H
#define LEVIN_TESTS_CASE_SUPPORT_H

#include "op_support.h"

/* Inputs of a case as f64 and as f32; integer inputs are shared. */
void case_inputs(lvni_kernels_op op, const lvni_check_case *row,
                 lvn_tensor *in64[LVN_KERNEL_INPUTS], lvn_tensor *in32[LVN_KERNEL_INPUTS]);
/* The same in bf16 or f16: in64 is rounded to numbers of that type, too. */
void case_inputs_low(lvni_kernels_op op, const lvni_check_case *row, lvn_dtype dtype,
                     lvn_tensor *in64[LVN_KERNEL_INPUTS], lvn_tensor *low[LVN_KERNEL_INPUTS]);
/* Runs the op with all outputs, kept for the teardown; the test fails when the op does. */
lvn_kernel_args case_run(lvni_kernels_op op, const lvni_check_case *row, lvn_tensor *const *in);

#endif

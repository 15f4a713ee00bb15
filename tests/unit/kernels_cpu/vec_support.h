/* Shared by the tests of the own vector kernels: a list of cases (op, shapes, attributes) that
 * covers every path of src/kernels/cpu, with inputs made from the case's number alone. */
#ifndef LEVIN_TESTS_VEC_SUPPORT_H
#define LEVIN_TESTS_VEC_SUPPORT_H

#include "kernels/kernels.h"

typedef struct vec_input {
    /* n: normal values, p: positive, l: labels (i64) below `limit`, w: places of a pooling
     * window */
    char kind;
    int ndim;
    int64_t shape[LVN_MAX_NDIM];
    int64_t limit;
} vec_input;

typedef struct vec_case {
    const char *name;
    lvni_kernels_op op;
    vec_input in[LVN_KERNEL_INPUTS];
    const void *attr;
    double tolerance; /* relative to the largest value of the output */
    /* added to input 0 (and 1 of batch norm's gradient): a mean far above the deviation */
    double mean;
} vec_case;

extern const vec_case vec_cases[];
extern const int vec_case_count;

/* The inputs of a case as f32 (dtype LVN_F32) or as the same values in f64. Labels stay i64, places
 * u8. */
void vec_make_inputs(const vec_case *c, lvn_dtype dtype, lvn_kernel_args *args);
void vec_release(lvn_kernel_args *args);
/* Inputs again, but in memory that starts 4 bytes behind a 64-byte boundary. */
void vec_misalign(lvn_kernel_args *args);

#endif

/* Gradient of a bias: the sum over the rows of dy. Used by onednn_conv.c and onednn_matmul.c. */
#ifndef LEVIN_KERNELS_CPU_COLUMN_SUM_H
#define LEVIN_KERNELS_CPU_COLUMN_SUM_H

#include <levin/status.h>

/* out[c] = sum over r of x[r * columns + c]. The order of additions is fixed by the shape; `team` only shares the work. */
lvn_status lvni_column_sum(const float *x, int64_t rows, int64_t columns, float *out, int team);

#endif

/* Matrix products.
 * Rules for all ops, scopes and gradients: ops.h. */
#ifndef LEVIN_OPS_LINEAR_H
#define LEVIN_OPS_LINEAR_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- linear algebra ---- */
typedef struct lvn_matmul_options {
    size_t struct_size;
    bool trans_a, trans_b;
} lvn_matmul_options;
LVN_API lvn_tensor *lvn_matmul_with(lvn_tensor *a, lvn_tensor *b, const lvn_matmul_options *o);
/* (.., M, K) x (.., K, N) -> (.., M, N); trans_a, trans_b: the matrices are given as (.., K, M),
 * (.., N, K). The axes in front are stacks of matrices and broadcast against each other; a (.., M,
 * K) with b (K, N) is one product of all rows. */
#define lvn_matmul(a, b, ...)                                                                      \
    lvn_matmul_with((a), (b),                                                                      \
                    &(lvn_matmul_options){.struct_size = sizeof(lvn_matmul_options), __VA_ARGS__})
/* x (.., I), w (O, I), b (O) or NULL -> x w^T + b (.., O); x (I) is one row, and the result is
 * (O) */
LVN_API lvn_tensor *lvn_linear(lvn_tensor *x, lvn_tensor *w, lvn_tensor *b);

#ifdef __cplusplus
}
#endif
#endif

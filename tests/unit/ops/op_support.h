/* What the op tests share: short ways to make tensors, to run a reference kernel behind its shape
 * rule, and to compare with numbers. Tensors made here live until support_release(), the teardown
 * of every test. */
#ifndef LEVIN_TESTS_OP_SUPPORT_H
#define LEVIN_TESTS_OP_SUPPORT_H

#include "kernels/check/op_cases.h"
#include "kernels/kernels_decl.h"
#include "support/test.h"

/* A row of ops.def without the cpu kernels: for tests of the truth alone. */
typedef struct ref_op {
    const char *name;
    int n_in, n_out;
    lvni_kernels_shape_rule shape;
    lvn_kernel ref;
} ref_op;
extern const ref_op ref_ops[LVNI_OP_COUNT];

#define DIMS(...)                                                                                  \
    ((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))), ((const int64_t[]){__VA_ARGS__})
#define SCALAR 0, NULL
/* F64(DIMS(2, 2), 1, 2, 3, 4) */
#define F64(dims, ...)                                                                             \
    support_f64(dims, (int64_t)(sizeof((double[]){__VA_ARGS__}) / 8), (const double[]){__VA_ARGS__})
#define I64(dims, ...)                                                                             \
    support_i64(dims, (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / 8),                             \
                (const int64_t[]){__VA_ARGS__})

/* All inputs in a row; unused ones are NULL. */
#define IN(...) ((lvn_tensor *[LVN_KERNEL_INPUTS]){__VA_ARGS__})
/* Run the ref kernel with all outputs; the test fails when the rule or the kernel does. */
#define REF(op, attr, ...) support_ref(LVNI_OP_##op, attr, IN(__VA_ARGS__))

lvn_tensor *support_tensor(lvn_dtype dtype, int ndim, const int64_t *shape);
lvn_tensor *support_f64(int ndim, const int64_t *shape, int64_t n, const double *values);
lvn_tensor *support_i64(int ndim, const int64_t *shape, int64_t n, const int64_t *values);
/* Standard normal values of the stream `purpose`. */
lvn_tensor *support_random(const char *purpose, int ndim, const int64_t *shape);
lvn_kernel_args support_ref(lvni_kernels_op op, const void *attr, lvn_tensor *const *in);
/* Register an own tensor for the teardown. */
lvn_tensor *support_keep(lvn_tensor *t);
int support_release(void **state);

/* EXPECT(t, 1e-15, DIMS(2), 3, 4): type f64, this shape, these numbers within `tol` (relative to
 * max(1, |number|)). */
#define EXPECT(t, tol, dims, ...)                                                                  \
    support_expect(__FILE__, __LINE__, t, tol, dims,                                               \
                   (int64_t)(sizeof((double[]){__VA_ARGS__}) / 8), (const double[]){__VA_ARGS__})
void support_expect(const char *file, int line, const lvn_tensor *t, double tol, int ndim,
                    const int64_t *shape, int64_t n, const double *values);

#endif

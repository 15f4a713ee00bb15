/* What the tests of gradients share: leaves with random values, and lvn_backward against central
 * differences. */
#ifndef LEVIN_TESTS_GRADIENT_SUPPORT_H
#define LEVIN_TESTS_GRADIENT_SUPPORT_H

#include "support/test.h"

#include <levin/ops.h>

/* Where the values of an input may lie. */
typedef enum domain {
    NORMAL,   /* standard normal */
    POSITIVE, /* |normal| + 0.5 */
    APART /* any two 0.1 apart, none nearer to 0 than 0.02: no kink within reach of a difference */
} domain;

typedef struct dims {
    int ndim;
    int64_t size[LVN_MAX_NDIM];
} dims;
#define S(...)                                                                                     \
    {                                                                                              \
        (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                                 \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* A leaf that wants a gradient, owned by the caller. The same (seed, shape) gives the same values
 * in every type: they are rounded to f32. */
lvn_tensor *make_leaf(lvn_dtype dtype, uint64_t seed, const dims *shape, domain from);
/* A constant of the same kind. */
lvn_tensor *make_constant(lvn_dtype dtype, uint64_t seed, int ndim, const int64_t *shape);
lvn_tensor *make_labels(int64_t n, int64_t n_classes); /* 0, 1, .. n_classes - 1, 0, .. */
double element(const lvn_tensor *t, int64_t e);
double largest(const lvn_tensor *t); /* absolute value */

/* The test fails unless |a - b| <= tolerance * (largest value of b, at least floor) for all
 * elements. */
void assert_near(const char *what, const lvn_tensor *a, const lvn_tensor *b, double tolerance,
                 double floor);

typedef lvn_tensor *(*formula)(lvn_tensor *const *in);
/* sum(r y), y = f(in), r random: the gradient of lvn_backward for each of the n inputs (f64 leaves)
 * against central differences, relative to the largest one. */
void check_gradients(const char *name, formula f, lvn_tensor *const *in, int n, double tolerance);

/* lvn_grad with create_graph gives what it gives without; and the gradient of sum_k(q_k dz/dx_k), z
 * = sum(r y^2 + r y), q random, against central differences of it. */
void check_second_gradients(const char *name, formula f, lvn_tensor *const *in, int n,
                            double tolerance);

/* The last error and its frames hold this text somewhere. */
void assert_error_has(const char *text);

#endif

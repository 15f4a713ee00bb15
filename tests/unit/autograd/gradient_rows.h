/* The rows of test_gradients: one file per ops header (rows_*.c). A row is checked by lvn_backward
 * against central differences in f64; with .second also through lvn_grad(.create_graph): the rule
 * written with ops against the fused one, and its own gradient against differences. */
#ifndef LEVIN_TESTS_GRADIENT_ROWS_H
#define LEVIN_TESTS_GRADIENT_ROWS_H

#include "gradient_support.h"

/* -Wmissing-field-initializers: a row names what it has, the rest is zero by intent. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* The one table of tolerances, relative to the largest gradient of an input: h = 1e-5, so
 * differences are good to about 1e-10 of values near 1; functions of large third derivative lose
 * more. Second gradients: 100 times that. */
#define SMOOTH 1e-8
#define CURVED 1e-7 /* quotients, roots, batch statistics */

#define FN(name, formula)                                                                          \
    static lvn_tensor *fn_##name(lvn_tensor *const *in)                                            \
    {                                                                                              \
        return formula;                                                                            \
    }

typedef struct row {
    const char *op; /* as in the header, without lvn_ */
    formula f;
    double tolerance;
    int n;
    dims shape[4];
    domain from;
    bool second; /* create_graph works */
} row;

typedef struct row_table {
    const row *rows;
    size_t n;
} row_table;

extern const row_table rows_elementwise, rows_reduce, rows_shape, rows_linear, rows_image,
    rows_norm, rows_loss, rows_seq, rows_group;

#endif

/* Shapes drawn at random for the ops that libraries compute: convolutions, products, attention,
 * pooling, Fourier transforms. For `levin ops check seconds=` (cmd_ops_check.c) and
 * for the tests of oneDNN's kernels, which draw the same convolutions and products. */
#ifndef LEVIN_KERNELS_CHECK_DRAWN_H
#define LEVIN_KERNELS_CHECK_DRAWN_H

#include "kernels/check/op_cases.h"

/* A stream of shapes; the caller fills it in. */
typedef struct lvni_check_generator {
    uint64_t state;
    double most; /* products that a shape may have */
    /* also narrow images, larger strides, odd channels, many pixels: where most that is wrong has
     * been found */
    bool narrow;
} lvni_check_generator;

/* x (n, h, w, i), a window of k x k, o outputs. */
typedef struct lvni_check_conv {
    int n, h, w, i, o, k, stride, padding, dilation, groups;
} lvni_check_conv;

/* (m, k) x (k, n) */
typedef struct lvni_check_product {
    int64_t m, n, k;
    bool trans_a, trans_b;
} lvni_check_product;

int lvni_check_draw_below(lvni_check_generator *d, int n); /* 0 .. n - 1 */
lvni_check_conv lvni_check_draw_conv(lvni_check_generator *d);
lvni_check_product lvni_check_draw_product(lvni_check_generator *d);

/* Shapes come in rounds of ops; most rounds are small ones, one in sixteen is large. */
enum { LVNI_CHECK_ROUND = 22 };
typedef enum lvni_check_drawn_size {
    LVNI_CHECK_SMALL,  /* at most 2e6 products */
    LVNI_CHECK_MIDDLE, /* 2e7 */
    LVNI_CHECK_LARGE   /* 2e8 */
} lvni_check_drawn_size;
bool lvni_check_is_drawn(lvni_kernels_op op); /* there are shapes for it */
/* Shape `number` >= 0 of a seed: its op, and a case whose inputs hold numbers of its own. */
lvni_check_drawn_size lvni_check_draw_case(uint64_t seed, int64_t number, lvni_kernels_op *op,
                                           lvni_check_case *row);
/* "x (1, 30, 30, 12), ..., stride 1 2": the inputs and the attribute of a drawn case. */
void lvni_check_case_print(lvni_kernels_op op, const lvni_check_case *row, char *text, size_t size);

#endif

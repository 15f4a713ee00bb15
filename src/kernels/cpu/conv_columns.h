/* Windows over images as rows of a matrix, and back. Used by conv_product.c.
 *
 * Columns (N OH OW, KH KW I): row (n, oh, ow) holds the pixels of image n under that window, top
 * left first, zero outside of the image. */
#ifndef LEVIN_KERNELS_CPU_CONV_COLUMNS_H
#define LEVIN_KERNELS_CPU_CONV_COLUMNS_H

#include "kernels/kernels.h"

typedef struct lvni_cpu_conv_columns {
    const lvn_conv_attr *attr;
    int64_t h, w, c; /* of an image */
    int64_t oh, ow, kh, kw;
} lvni_cpu_conv_columns;

/* columns = the windows over `images` images x; elements of `bytes` bytes. */
void lvni_cpu_conv_columns_cut(const lvni_cpu_conv_columns *c, const void *x, void *columns,
                               int64_t images, int64_t bytes);
/* x = each pixel's sum over the windows it lies under, in an order that depends on the shape alone.
 * x is f32 or bf16 (`low`); then `wide` takes the f32 sums of all pixels before they are
 * rounded. */
void lvni_cpu_conv_columns_add(const lvni_cpu_conv_columns *c, const float *columns, void *x,
                               int64_t images, bool low, float *wide);

#endif

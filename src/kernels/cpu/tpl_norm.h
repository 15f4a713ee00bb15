/* Template (included by tpl_table.h only): what the loops of batch norm over a (rows, channels)
 * table (tpl_norm.def) have in common for all element types. */
#ifndef LEVIN_KERNELS_CPU_TPL_NORM_H
#define LEVIN_KERNELS_CPU_TPL_NORM_H

#include "kernels/cpu/tpl_types.h"

static inline int64_t block_rows(const lvni_cpu_norm_sums *s, int64_t block)
{
    const int64_t left = s->rows - block * LVNI_ROW_BLOCK;
    return left < LVNI_ROW_BLOCK ? left : LVNI_ROW_BLOCK;
}

/* Blocks are joined in f64, in their order: mean first, then squared distances from it (Chan,
 * Golub, LeVeque 1983). */
static void norm_combine(const lvni_cpu_norm_sums *s, int64_t c0, int64_t c1, double *restrict mean,
                         double *restrict m2)
{
    const int64_t blocks = lvni_cpu_div_up(s->rows, LVNI_ROW_BLOCK), m = c1 - c0;
    memset(mean, 0, (size_t)m * sizeof *mean);
    memset(m2, 0, (size_t)m * sizeof *m2);
    for (int64_t b = 0; b < blocks; b++) {
        const float *restrict k = s->shift + b * s->cols + c0, *restrict s1 =
                                                                   s->s1 + b * s->cols + c0;
        const double n = (double)block_rows(s, b);
        for (int64_t j = 0; j < m; j++) {
            mean[j] += n * (double)k[j] + (double)s1[j];
        }
    }
    const double all = (double)s->rows;
    for (int64_t j = 0; j < m; j++) {
        mean[j] = mean[j] / all;
    }
    for (int64_t b = 0; b < blocks; b++) {
        const float *restrict k = s->shift + b * s->cols + c0, *restrict s1 =
                                                                   s->s1 + b * s->cols + c0;
        const float *restrict s2 = s->s2 + b * s->cols + c0;
        const double n = (double)block_rows(s, b), inverse = 1.0 / n;
        for (int64_t j = 0; j < m; j++) {
            const double part = (double)s1[j] * inverse; /* mean of the block - k */
            const double far = ((double)k[j] - mean[j]) + part;
            m2[j] += ((double)s2[j] - (double)s1[j] * part) + n * far * far;
        }
    }
}

/* What the gradient of y hands on: all, or where relu let the value through; the forward's own
 * expression decides. */
static inline float gated(lvni_cpu_norm_gate gate, float dy, float y, float x, float mean,
                          float scale, float shift)
{
    if (gate == LVNI_GATE_OUTPUT) {
        return y > 0.0f ? dy : 0.0f;
    }
    return gate == LVNI_GATE_AGAIN ? ((x - mean) * scale + shift > 0.0f ? dy : 0.0f) : dy;
}

/* Per-channel vectors, repeated for packed rows. */
typedef struct packed_vectors {
    float mean[PACKED_ROWS * PACK_LIMIT], scale[PACKED_ROWS * PACK_LIMIT],
        shift[PACKED_ROWS * PACK_LIMIT], b[PACKED_ROWS * PACK_LIMIT], d[PACKED_ROWS * PACK_LIMIT];
} packed_vectors;

static lvni_cpu_norm_vectors pack_vectors(const lvni_cpu_norm_vectors *v, int64_t cols,
                                          packed_vectors *p)
{
    repeat_row(v->mean, cols, p->mean);
    repeat_row(v->scale, cols, p->scale);
    repeat_row(v->shift, cols, p->shift);
    if (v->b != NULL) {
        repeat_row(v->b, cols, p->b);
        repeat_row(v->d, cols, p->d);
    }
    return (lvni_cpu_norm_vectors){p->mean, p->scale, p->shift, p->b, p->d};
}

#endif

/* Template (included by tpl_table.h only): layer norm of rows, forward and gradient side by side; a row is read again while it
 * is in the first cache. And the last pass of group norm's gradient. */
#ifndef LEVIN_KERNELS_CPU_TPL_LAYER_NORM_H
#define LEVIN_KERNELS_CPU_TPL_LAYER_NORM_H

#include "kernels/cpu/tpl_reduce.h"

/* Sum of (x - m)^2 over a row: blocks of virtual accumulators, joined in f64. */
static inline double squares_long(const float *restrict x, float m, int64_t n)
{
    float square[LVNI_SUM_BLOCK];
    double total = 0.0;
    for (int64_t i = 0; i < n; i += LVNI_SUM_BLOCK) {
        const int64_t part = n - i < LVNI_SUM_BLOCK ? n - i : LVNI_SUM_BLOCK;
        for (int64_t j = 0; j < part; j++) {
            const float d = x[i + j] - m;
            square[j] = d * d;
        }
        total += (double)sum_block(square, part);
    }
    return total;
}

static void layer_norm(const lvni_layer_rows *t, int64_t rows, int64_t n)
{
    const float *restrict gamma = t->gamma, *restrict beta = t->beta;
    for (int64_t r = 0; r < rows; r++) {
        const float *x = t->x + r * n;
        float *restrict y = t->y + r * n;
        const float mean = sum_long(x, n) / (float)n;
        const float rstd = (float)(1.0 / __builtin_sqrt(squares_long(x, mean, n) / (double)n + t->eps));
        for (int64_t j = 0; j < n; j++) {
            y[j] = (x[j] - mean) * rstd * gamma[j] + beta[j];
        }
        t->mean[r] = mean;
        t->rstd[r] = rstd;
    }
}

/* h = dy gamma, c = x - mean: the sums over the row of h and h c; what dgamma and dbeta get is added to s1 and s2. */
static inline void layer_grad_sums(const lvni_layer_grad *t, int64_t r, int64_t n, double *sum_h, double *sum_hc)
{
    const float *restrict dy = t->dy + r * n, *restrict x = t->x + r * n, *restrict gamma = t->gamma;
    const float mean = t->mean[r], rstd = t->rstd[r];
    float h[LVNI_SUM_BLOCK], hc[LVNI_SUM_BLOCK];
    *sum_h = *sum_hc = 0.0;
    for (int64_t i = 0; i < n; i += LVNI_SUM_BLOCK) {
        const int64_t part = n - i < LVNI_SUM_BLOCK ? n - i : LVNI_SUM_BLOCK;
        float *restrict s1 = t->s1 + i, *restrict s2 = t->s2 + i;
        for (int64_t j = 0; j < part; j++) {
            const float d = dy[i + j], c = x[i + j] - mean;
            h[j] = d * gamma[i + j];
            hc[j] = h[j] * c;
            s1[j] += d;
            s2[j] += d * (c * rstd);
        }
        *sum_h += (double)sum_block(h, part);
        *sum_hc += (double)sum_block(hc, part);
    }
}

static void layer_norm_grad(const lvni_layer_grad *t, int64_t rows, int64_t n)
{
    memset(t->s1, 0, (size_t)n * sizeof *t->s1);
    memset(t->s2, 0, (size_t)n * sizeof *t->s2);
    for (int64_t r = 0; r < rows; r++) {
        double sum_h, sum_hc;
        layer_grad_sums(t, r, n, &sum_h, &sum_hc);
        const float mean = t->mean[r], rstd = t->rstd[r];
        const float b = (float)(sum_h / (double)n);
        const float d = (float)(sum_hc / (double)n * (double)rstd * (double)rstd);
        const float *restrict dy = t->dy + r * n, *restrict x = t->x + r * n, *restrict gamma = t->gamma;
        float *restrict dx = t->dx + r * n;
        for (int64_t j = 0; j < n; j++) {
            dx[j] = ((dy[j] * gamma[j] - b) - (x[j] - mean) * d) * rstd;
        }
    }
}

/* dx = dy scale + shift - (x - mean) d */
static void group_grad_apply(const float *restrict dy, const float *restrict x, const lvni_norm_vectors *v, float *restrict dx, int64_t rows,
                             int64_t cols)
{
    const float *restrict m = v->mean, *restrict a = v->scale, *restrict b = v->shift, *restrict d = v->d;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < cols; j++) {
            dx[r * cols + j] = (dy[r * cols + j] * a[j] + b[j]) - (x[r * cols + j] - m[j]) * d[j];
        }
    }
}

#endif

/* Template (included by tpl_table.h only): softmax and log-softmax of rows, forward and gradient side by side. */
#ifndef LEVIN_KERNELS_CPU_TPL_ROWS_H
#define LEVIN_KERNELS_CPU_TPL_ROWS_H

#include "kernels/cpu/tpl_math.h"
#include "kernels/cpu/tpl_reduce.h"

static void softmax(const float *restrict x, float *restrict y, int64_t rows, int64_t k)
{
    for (int64_t r = 0; r < rows; r++) {
        const float *restrict in = x + r * k;
        float *restrict out = y + r * k;
        const float top = max_any(in, k);
        for (int64_t i = 0; i < k; i++) {
            out[i] = exp_one(in[i] - top);
        }
        const float sum = sum_long(out, k);
        for (int64_t i = 0; i < k; i++) {
            out[i] = out[i] / sum;
        }
    }
}

/* Products are summed in pieces, so that any row fits a buffer on the stack. */
static inline double dot_long(const float *restrict a, const float *restrict b, int64_t n)
{
    float product[LVNI_SUM_BLOCK];
    double total = 0.0;
    for (int64_t i = 0; i < n; i += LVNI_SUM_BLOCK) {
        const int64_t m = n - i < LVNI_SUM_BLOCK ? n - i : LVNI_SUM_BLOCK;
        for (int64_t j = 0; j < m; j++) {
            product[j] = a[i + j] * b[i + j];
        }
        total += (double)sum_block(product, m);
    }
    return total;
}

static void softmax_grad(const float *restrict dy, const float *restrict y, float *restrict dx, int64_t rows, int64_t k)
{
    for (int64_t r = 0; r < rows; r++) {
        const float *restrict d = dy + r * k, *restrict p = y + r * k;
        float *restrict out = dx + r * k;
        const float dot = (float)dot_long(d, p, k);
        for (int64_t i = 0; i < k; i++) {
            out[i] = p[i] * (d[i] - dot);
        }
    }
}

static inline double exp_sum_long(const float *restrict x, float top, int64_t n)
{
    float e[LVNI_SUM_BLOCK];
    double total = 0.0;
    for (int64_t i = 0; i < n; i += LVNI_SUM_BLOCK) {
        const int64_t m = n - i < LVNI_SUM_BLOCK ? n - i : LVNI_SUM_BLOCK;
        for (int64_t j = 0; j < m; j++) {
            e[j] = exp_one(x[i + j] - top);
        }
        total += (double)sum_block(e, m);
    }
    return total;
}

static void log_softmax(const float *restrict x, float *restrict y, int64_t rows, int64_t k)
{
    for (int64_t r = 0; r < rows; r++) {
        const float *restrict in = x + r * k;
        float *restrict out = y + r * k;
        const float top = max_any(in, k);
        const float log_sum = log_one((float)exp_sum_long(in, top, k));
        for (int64_t i = 0; i < k; i++) {
            out[i] = (in[i] - top) - log_sum;
        }
    }
}

static void log_softmax_grad(const float *restrict dy, const float *restrict y, float *restrict dx, int64_t rows, int64_t k)
{
    for (int64_t r = 0; r < rows; r++) {
        const float *restrict d = dy + r * k, *restrict p = y + r * k;
        float *restrict out = dx + r * k;
        const float sum = sum_long(d, k);
        for (int64_t i = 0; i < k; i++) {
            out[i] = d[i] - exp_one(p[i]) * sum;
        }
    }
}

static void exp_scaled(const float *restrict y, float *restrict dx, int64_t n, float s)
{
    for (int64_t i = 0; i < n; i++) {
        dx[i] = exp_one(y[i]) * s;
    }
}

#endif

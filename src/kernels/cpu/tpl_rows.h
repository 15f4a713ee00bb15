/* Template (included by tpl_table.h only): softmax and log-softmax of rows, forward and gradient
 * side by side. */
#ifndef LEVIN_KERNELS_CPU_TPL_ROWS_H
#define LEVIN_KERNELS_CPU_TPL_ROWS_H

#include "kernels/cpu/tpl_math.h"
#include "kernels/cpu/tpl_reduce.h"

/* Rows up to SHORT_ROW classes are worked on in a buffer filled up to whole vectors with -inf,
 * whose e^x is 0: loops without tails. Returns the length. */
static inline int64_t pad_row(const float *restrict row, int64_t k, float *restrict buffer)
{
    const int64_t whole = (k + LANES - 1) / LANES * LANES;
    memcpy(buffer, row, (size_t)k * sizeof *row);
    for (int64_t i = k; i < whole; i++) {
        buffer[i] = -__builtin_inff();
    }
    return whole;
}

/* y = e^(x - top), any length; returns the sum. */
static inline float exp_row(const float *restrict x, float top, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = exp_one(x[i] - top);
    }
    return sum_long(y, n);
}

static inline void divide_row(const float *restrict x, float sum, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] / sum;
    }
}

static void softmax(const float *restrict x, float *restrict y, int64_t rows, int64_t k)
{
    float buffer[SHORT_ROW], e[SHORT_ROW];
    for (int64_t r = 0; r < rows; r++) {
        const float *in = x + r * k;
        float *out = y + r * k;
        if (k <= SHORT_ROW) {
            const int64_t whole = pad_row(in, k, buffer);
            const float sum = exp_row(buffer, max_any(buffer, whole), e, whole);
            divide_row(e, sum, buffer, whole);
            memcpy(out, buffer, (size_t)k * sizeof *out);
        } else {
            const float sum = exp_row(in, max_any(in, k), out, k);
            for (int64_t i = 0; i < k; i++) {
                out[i] = out[i] / sum;
            }
        }
    }
}

/* Products are summed in pieces, so that any row fits a buffer on the stack. */
static inline double dot_long(const float *restrict a, const float *restrict b, int64_t n)
{
    float product[LVNI_CPU_SUM_BLOCK];
    double total = 0.0;
    for (int64_t i = 0; i < n; i += LVNI_CPU_SUM_BLOCK) {
        const int64_t m = n - i < LVNI_CPU_SUM_BLOCK ? n - i : LVNI_CPU_SUM_BLOCK;
        for (int64_t j = 0; j < m; j++) {
            product[j] = a[i + j] * b[i + j];
        }
        total += (double)sum_block(product, m);
    }
    return total;
}

static void softmax_grad(const float *restrict dy, const float *restrict y, float *restrict dx,
                         int64_t rows, int64_t k)
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
    float e[LVNI_CPU_SUM_BLOCK];
    double total = 0.0;
    for (int64_t i = 0; i < n; i += LVNI_CPU_SUM_BLOCK) {
        const int64_t m = n - i < LVNI_CPU_SUM_BLOCK ? n - i : LVNI_CPU_SUM_BLOCK;
        for (int64_t j = 0; j < m; j++) {
            e[j] = exp_one(x[i + j] - top);
        }
        total += (double)sum_block(e, m);
    }
    return total;
}

static inline void subtract_row(const float *restrict x, float top, float log_sum,
                                float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = (x[i] - top) - log_sum;
    }
}

static void log_softmax(const float *restrict x, float *restrict y, int64_t rows, int64_t k)
{
    float buffer[SHORT_ROW], e[SHORT_ROW];
    for (int64_t r = 0; r < rows; r++) {
        const float *in = x + r * k;
        float *out = y + r * k;
        if (k <= SHORT_ROW) {
            const int64_t whole = pad_row(in, k, buffer);
            const float top = max_any(buffer, whole);
            const float sum = exp_row(buffer, top, e, whole);
            subtract_row(buffer, top, log_one(sum), e, whole);
            memcpy(out, e, (size_t)k * sizeof *out);
        } else {
            const float top = max_any(in, k);
            subtract_row(in, top, log_one((float)exp_sum_long(in, top, k)), out, k);
        }
    }
}

static void log_softmax_grad(const float *restrict dy, const float *restrict y, float *restrict dx,
                             int64_t rows, int64_t k)
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

#endif

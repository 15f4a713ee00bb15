/* Template (included by tpl_table.h only): rows of cross entropy, forward and gradient, and losses
 * element by element. */
#ifndef LEVIN_KERNELS_CPU_TPL_LOSS_H
#define LEVIN_KERNELS_CPU_TPL_LOSS_H

#include "kernels/cpu/tpl_rows.h"

/* kept[2 r] = the largest element of row r, kept[2 r + 1] = log of the sum of e^(x - largest). */
static void row_log_sums(const float *restrict x, int64_t rows, int64_t k, float *restrict kept)
{
    float buffer[SHORT_ROW], e[SHORT_ROW];
    for (int64_t r = 0; r < rows; r++) {
        const float *in = x + r * k;
        float sum, top;
        if (k <= SHORT_ROW) {
            const int64_t whole = pad_row(in, k, buffer);
            top = max_any(buffer, whole);
            sum = exp_row(buffer, top, e, whole);
        } else {
            top = max_any(in, k);
            sum = (float)exp_sum_long(in, top, k);
        }
        kept[2 * r] = top;
        kept[2 * r + 1] = log_one(sum);
    }
}

/* sum w (top - x + log_sum) over a row; w NULL for ones. */
static double row_smooth(const float *restrict x, const float *restrict w, int64_t k, float top,
                         float log_sum)
{
    float term[LVNI_CPU_SUM_BLOCK];
    double total = 0.0;
    for (int64_t i = 0; i < k; i += LVNI_CPU_SUM_BLOCK) {
        const int64_t m = k - i < LVNI_CPU_SUM_BLOCK ? k - i : LVNI_CPU_SUM_BLOCK;
        for (int64_t j = 0; j < m; j++) {
            term[j] = log_sum - (x[i + j] - top);
        }
        for (int64_t j = 0; w != NULL && j < m; j++) {
            term[j] = term[j] * w[i + j];
        }
        total += (double)sum_block(term, m);
    }
    return total;
}

/* dx = a e^(x - top - log_sum) - c w; w NULL for ones. */
static void row_slopes(const float *restrict x, const float *restrict w, int64_t k,
                       const float kept[2], float a, float c, float *restrict dx)
{
    const float top = kept[0], log_sum = kept[1];
    for (int64_t i = 0; i < k; i++) {
        dx[i] = exp_one((x[i] - top) - log_sum) * a;
    }
    for (int64_t i = 0; c != 0.0f && i < k; i++) {
        dx[i] = dx[i] - c * (w == NULL ? 1.0f : w[i]);
    }
}

/* ---- element by element ---- */

/* log(1 + e) for 0 <= e <= 1; what 1 + e rounded away is added back. */
static inline float log_one_plus(float e)
{
    const float u = 1.0f + e;
    return log_one(u) - ((u - 1.0f) - e) / u;
}

static inline float size_of(float x)
{
    return bits_float(float_bits(x) & 0x7fffffffu);
}

/* `kind` and `beta` are constants of the loops below. */
static inline __attribute__((always_inline)) float point_value(lvn_point_loss_kind kind, float beta,
                                                               float x, float t, float positive)
{
    const float d = x - t, size = size_of(d);
    switch (kind) {
    case LVN_LOSS_SQUARE: return d * d;
    case LVN_LOSS_ABSOLUTE: return size;
    case LVN_LOSS_SMOOTH_L1: return size < beta ? 0.5f * d * d / beta : size - 0.5f * beta;
    case LVN_LOSS_BINARY:
        return (1.0f - t) * x + (1.0f + (positive - 1.0f) * t) *
                                    (log_one_plus(exp_one(-size_of(x))) + (x < 0.0f ? -x : 0.0f));
    }
    return 0.0f;
}

static inline __attribute__((always_inline)) float point_slope(lvn_point_loss_kind kind, float beta,
                                                               float x, float t, float positive)
{
    const float d = x - t;
    switch (kind) {
    case LVN_LOSS_SQUARE: return d + d;
    case LVN_LOSS_ABSOLUTE: return (d > 0.0f ? 1.0f : 0.0f) - (d < 0.0f ? 1.0f : 0.0f);
    case LVN_LOSS_SMOOTH_L1: {
        const float high = d >= beta ? 1.0f : d / beta;
        return d <= -beta ? -1.0f : high;
    }
    case LVN_LOSS_BINARY: {
        /* 1 - sigmoid(x) */
        const float e = exp_one(-size_of(x)), part = (x < 0.0f ? 1.0f : e) / (1.0f + e);
        return (1.0f - t) - (1.0f + (positive - 1.0f) * t) * part;
    }
    }
    return 0.0f;
}

/* At most LVNI_CPU_SUM_BLOCK elements: the values, weighted, are summed. */
static inline __attribute__((always_inline)) float point_sum(const lvni_cpu_point_rows *p,
                                                             lvn_point_loss_kind kind, int64_t n)
{
    float value[LVNI_CPU_SUM_BLOCK];
    const float *restrict x = p->x, *restrict t = p->t, *restrict positive = p->positive;
    const float beta = p->beta;
    for (int64_t i = 0; i < n; i++) {
        value[i] =
            point_value(kind, beta, x[i], t[i], kind == LVN_LOSS_BINARY ? positive[i] : 1.0f);
    }
    for (int64_t i = 0; p->weight != NULL && i < n; i++) {
        value[i] = value[i] * p->weight[i];
    }
    return sum_block(value, n);
}

static float point_loss(const lvni_cpu_point_rows *p, int64_t n)
{
    switch (p->kind) {
    case LVN_LOSS_SQUARE: return point_sum(p, LVN_LOSS_SQUARE, n);
    case LVN_LOSS_ABSOLUTE: return point_sum(p, LVN_LOSS_ABSOLUTE, n);
    case LVN_LOSS_SMOOTH_L1: return point_sum(p, LVN_LOSS_SMOOTH_L1, n);
    case LVN_LOSS_BINARY: return point_sum(p, LVN_LOSS_BINARY, n);
    }
    return 0.0f;
}

static inline __attribute__((always_inline)) void point_slopes(const lvni_cpu_point_rows *p,
                                                               lvn_point_loss_kind kind,
                                                               float factor, float *restrict dx,
                                                               int64_t n)
{
    const float *restrict x = p->x, *restrict t = p->t, *restrict positive = p->positive;
    const float beta = p->beta;
    for (int64_t i = 0; i < n; i++) {
        dx[i] = point_slope(kind, beta, x[i], t[i], kind == LVN_LOSS_BINARY ? positive[i] : 1.0f) *
                factor;
    }
    for (int64_t i = 0; p->weight != NULL && i < n; i++) {
        dx[i] = dx[i] * p->weight[i];
    }
}

static void point_loss_grad(const lvni_cpu_point_rows *p, float factor, float *dx, int64_t n)
{
    switch (p->kind) {
    case LVN_LOSS_SQUARE: point_slopes(p, LVN_LOSS_SQUARE, factor, dx, n); break;
    case LVN_LOSS_ABSOLUTE: point_slopes(p, LVN_LOSS_ABSOLUTE, factor, dx, n); break;
    case LVN_LOSS_SMOOTH_L1: point_slopes(p, LVN_LOSS_SMOOTH_L1, factor, dx, n); break;
    case LVN_LOSS_BINARY: point_slopes(p, LVN_LOSS_BINARY, factor, dx, n); break;
    }
}

#endif

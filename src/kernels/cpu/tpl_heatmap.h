/* Template (included by tpl_table.h only): rows of doubled maps and of their soft-max. Elements are
 * computed alone; the one sum is that of a row, in 16 virtual accumulators. */
#ifndef LEVIN_KERNELS_CPU_TPL_HEATMAP_H
#define LEVIN_KERNELS_CPU_TPL_HEATMAP_H

#include "kernels/cpu/tpl_math.h"
#include "kernels/cpu/tpl_reduce.h"

enum { WIDE_LANES = LVNI_W / 2 };
typedef double vd __attribute__((vector_size(LVNI_W * 4)));
typedef double vd_mem __attribute__((vector_size(LVNI_W * 4), aligned(8), may_alias));

static inline vd load_f64(const double *p)
{
    return *(const vd_mem *)p;
}

static void mix_f64(const double *x, int64_t step, const double *w, int64_t taps, double *y,
                    int64_t n)
{
    int64_t e = 0;
    for (; e + 2 * WIDE_LANES <= n; e += 2 * WIDE_LANES) {
        vd first = w[0] * load_f64(x + e), second = w[0] * load_f64(x + e + WIDE_LANES);
        for (int64_t k = 1; k < taps; k++) {
            first += w[k] * load_f64(x + k * step + e);
            second += w[k] * load_f64(x + k * step + e + WIDE_LANES);
        }
        *(vd_mem *)(y + e) = first;
        *(vd_mem *)(y + e + WIDE_LANES) = second;
    }
    for (; e < n; e++) {
        double sum = w[0] * x[e];
        for (int64_t k = 1; k < taps; k++) {
            sum += w[k] * x[k * step + e];
        }
        y[e] = sum;
    }
}

static void spread_f64(const double *restrict x, const double *w, int64_t taps, double *restrict y,
                       int64_t step, int64_t n)
{
    for (int64_t k = 0; k < taps; k++) {
        const double weight = w[k];
        double *restrict to = y + k * step;
        for (int64_t e = 0; e < n; e++) {
            to[e] += weight * x[e];
        }
    }
}

/* A NaN is passed over. */
static double max_f64(const double *x, int64_t n, double most)
{
    double lane[LANES];
    for (int j = 0; j < LANES; j++) {
        lane[j] = most;
    }
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
        }
    }
    for (; i < n; i++) {
        lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    }
    for (int j = 0; j < LANES; j++) {
        most = lane[j] > most ? lane[j] : most;
    }
    return most;
}

static void exp_f64(const double *restrict u, double top, double factor, float *restrict e,
                    int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        e[i] = exp_one((float)(factor * (u[i] - top)));
    }
}

static double add_exp_row(const float *restrict e, double *restrict column, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        column[i] += (double)e[i];
    }
    return (double)sum_long(e, n);
}

static void tilt_row(const float *restrict e, float slope, float from, float level,
                     double *restrict g, int64_t n)
{
    for (int32_t i = 0; i < (int32_t)n; i++) {
        g[i] = (double)(e[i] * (slope * ((float)i - from) + level));
    }
}

#endif

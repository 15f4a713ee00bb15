/* Template (included by tpl_table.h only): the loops of batch norm over a (rows, channels) table. Few channels are packed
 * (tpl_types.h); many are taken in chunks, so that sums stay in the first cache. */
#ifndef LEVIN_KERNELS_CPU_TPL_NORM_H
#define LEVIN_KERNELS_CPU_TPL_NORM_H

#include "kernels/cpu/tpl_types.h"

/* s1 += x - k, s2 += (x - k)^2 over rows; four at a time in a small tree. */
static inline void add_moments(const float *restrict x, int64_t rows, int64_t cols, int64_t stride,
                               const float *restrict k, float *restrict s1, float *restrict s2)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const float *x0 = x + r * stride, *x1 = x0 + stride, *x2 = x1 + stride, *x3 = x2 + stride;
        for (int64_t j = 0; j < cols; j++) {
            const float d0 = x0[j] - k[j], d1 = x1[j] - k[j], d2 = x2[j] - k[j], d3 = x3[j] - k[j];
            s1[j] += (d0 + d1) + (d2 + d3);
            s2[j] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
        }
    }
    for (; r < rows; r++) {
        for (int64_t j = 0; j < cols; j++) {
            const float d = x[r * stride + j] - k[j];
            s1[j] += d;
            s2[j] += d * d;
        }
    }
}

static void norm_sums(const float *x, int64_t rows, int64_t cols, float *shift, float *s1, float *s2)
{
    memcpy(shift, x, (size_t)cols * sizeof *shift);
    if (packs(cols)) {
        enum { SIZE = PACKED_ROWS * PACK_LIMIT };
        float k[SIZE], a1[SIZE], a2[SIZE];
        const int64_t wide = PACKED_ROWS * cols, full = rows / PACKED_ROWS;
        repeat_row(x, cols, k);
        memset(a1, 0, (size_t)wide * sizeof *a1);
        memset(a2, 0, (size_t)wide * sizeof *a2);
        add_moments(x, full, wide, wide, k, a1, a2);
        add_moments(x + full * wide, 1, rows * cols - full * wide, 0, k, a1, a2);
        unpack_sums(a1, cols);
        unpack_sums(a2, cols);
        memcpy(s1, a1, (size_t)cols * sizeof *s1);
        memcpy(s2, a2, (size_t)cols * sizeof *s2);
        return;
    }
    memset(s1, 0, (size_t)cols * sizeof *s1);
    memset(s2, 0, (size_t)cols * sizeof *s2);
    for (int64_t c = 0; c < cols; c += COLUMN_CHUNK) {
        const int64_t m = cols - c < COLUMN_CHUNK ? cols - c : COLUMN_CHUNK;
        add_moments(x + c, rows, m, cols, shift + c, s1 + c, s2 + c);
    }
}

static inline int64_t block_rows(const lvni_norm_sums *s, int64_t block)
{
    const int64_t left = s->rows - block * LVNI_ROW_BLOCK;
    return left < LVNI_ROW_BLOCK ? left : LVNI_ROW_BLOCK;
}

/* Blocks are joined in f64, in their order: mean first, then squared distances from it (Chan, Golub, LeVeque 1983). */
static void norm_combine(const lvni_norm_sums *s, int64_t c0, int64_t c1, double *restrict mean, double *restrict m2)
{
    const int64_t blocks = lvni_div_up(s->rows, LVNI_ROW_BLOCK), m = c1 - c0;
    memset(mean, 0, (size_t)m * sizeof *mean);
    memset(m2, 0, (size_t)m * sizeof *m2);
    for (int64_t b = 0; b < blocks; b++) {
        const float *restrict k = s->shift + b * s->cols + c0, *restrict s1 = s->s1 + b * s->cols + c0;
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
        const float *restrict k = s->shift + b * s->cols + c0, *restrict s1 = s->s1 + b * s->cols + c0;
        const float *restrict s2 = s->s2 + b * s->cols + c0;
        const double n = (double)block_rows(s, b), inverse = 1.0 / n;
        for (int64_t j = 0; j < m; j++) {
            const double part = (double)s1[j] * inverse; /* mean of the block - k */
            const double far = ((double)k[j] - mean[j]) + part;
            m2[j] += ((double)s2[j] - (double)s1[j] * part) + n * far * far;
        }
    }
}

static inline void add_grad_sums(const float *restrict dy, const float *restrict x, int64_t rows, int64_t cols,
                                 int64_t stride, const float *restrict mean, float *restrict s1, float *restrict s2)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const float *x0 = x + r * stride, *x1 = x0 + stride, *x2 = x1 + stride, *x3 = x2 + stride;
        const float *d0 = dy + r * stride, *d1 = d0 + stride, *d2 = d1 + stride, *d3 = d2 + stride;
        for (int64_t j = 0; j < cols; j++) {
            s1[j] += (d0[j] + d1[j]) + (d2[j] + d3[j]);
            s2[j] += (d0[j] * (x0[j] - mean[j]) + d1[j] * (x1[j] - mean[j])) +
                     (d2[j] * (x2[j] - mean[j]) + d3[j] * (x3[j] - mean[j]));
        }
    }
    for (; r < rows; r++) {
        for (int64_t j = 0; j < cols; j++) {
            s1[j] += dy[r * stride + j];
            s2[j] += dy[r * stride + j] * (x[r * stride + j] - mean[j]);
        }
    }
}

static void norm_grad_sums(const float *dy, const float *x, const float *mean, int64_t rows, int64_t cols, float *s1,
                           float *s2)
{
    if (packs(cols)) {
        enum { SIZE = PACKED_ROWS * PACK_LIMIT };
        float k[SIZE], a1[SIZE], a2[SIZE];
        const int64_t wide = PACKED_ROWS * cols, full = rows / PACKED_ROWS;
        repeat_row(mean, cols, k);
        memset(a1, 0, (size_t)wide * sizeof *a1);
        memset(a2, 0, (size_t)wide * sizeof *a2);
        add_grad_sums(dy, x, full, wide, wide, k, a1, a2);
        add_grad_sums(dy + full * wide, x + full * wide, 1, rows * cols - full * wide, 0, k, a1, a2);
        unpack_sums(a1, cols);
        unpack_sums(a2, cols);
        memcpy(s1, a1, (size_t)cols * sizeof *s1);
        memcpy(s2, a2, (size_t)cols * sizeof *s2);
        return;
    }
    memset(s1, 0, (size_t)cols * sizeof *s1);
    memset(s2, 0, (size_t)cols * sizeof *s2);
    for (int64_t c = 0; c < cols; c += COLUMN_CHUNK) {
        const int64_t m = cols - c < COLUMN_CHUNK ? cols - c : COLUMN_CHUNK;
        add_grad_sums(dy + c, x + c, rows, m, cols, mean + c, s1 + c, s2 + c);
    }
}

static inline void apply_rows(const float *restrict x, float *restrict y, int64_t rows, int64_t cols,
                              const float *restrict mean, const float *restrict scale, const float *restrict shift)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < cols; j++) {
            y[r * cols + j] = (x[r * cols + j] - mean[j]) * scale[j] + shift[j];
        }
    }
}

static void norm_apply(const float *x, float *y, int64_t rows, int64_t cols, const float *mean, const float *scale,
                       const float *shift)
{
    if (packs(cols)) {
        enum { SIZE = PACKED_ROWS * PACK_LIMIT };
        float m[SIZE], a[SIZE], b[SIZE];
        const int64_t wide = PACKED_ROWS * cols, full = rows / PACKED_ROWS;
        repeat_row(mean, cols, m);
        repeat_row(scale, cols, a);
        repeat_row(shift, cols, b);
        apply_rows(x, y, full, wide, m, a, b);
        apply_rows(x + full * wide, y + full * wide, 1, rows * cols - full * wide, m, a, b);
        return;
    }
    apply_rows(x, y, rows, cols, mean, scale, shift);
}

static inline void grad_rows(const float *restrict dy, const float *restrict x, float *restrict dx, int64_t rows,
                             int64_t cols, const float *restrict mean, const float *restrict a, const float *restrict b,
                             const float *restrict d)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < cols; j++) {
            const int64_t e = r * cols + j;
            dx[e] = ((dy[e] - b[j]) - (x[e] - mean[j]) * d[j]) * a[j];
        }
    }
}

static void norm_grad_apply(const float *dy, const float *x, float *dx, int64_t rows, int64_t cols, const float *mean,
                            const float *a, const float *b, const float *d)
{
    if (packs(cols)) {
        enum { SIZE = PACKED_ROWS * PACK_LIMIT };
        float pm[SIZE], pa[SIZE], pb[SIZE], pd[SIZE];
        const int64_t wide = PACKED_ROWS * cols, full = rows / PACKED_ROWS, done = full * wide;
        repeat_row(mean, cols, pm);
        repeat_row(a, cols, pa);
        repeat_row(b, cols, pb);
        repeat_row(d, cols, pd);
        grad_rows(dy, x, dx, full, wide, pm, pa, pb, pd);
        grad_rows(dy + done, x + done, dx + done, 1, rows * cols - done, pm, pa, pb, pd);
        return;
    }
    grad_rows(dy, x, dx, rows, cols, mean, a, b, d);
}

#endif

/* Template (included by tpl_table.h only): sums and maxima of rows and columns in fixed orders. */
#ifndef LEVIN_KERNELS_CPU_TPL_REDUCE_H
#define LEVIN_KERNELS_CPU_TPL_REDUCE_H

#include "kernels/cpu/tpl_types.h"

/* Up to LVNI_CPU_SUM_BLOCK elements in 16 virtual accumulators. */
static inline float sum_block(const float *x, int64_t n)
{
    vf acc[PARTS] = {{0.0f}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma GCC unroll 4
        for (int q = 0; q < PARTS; q++) {
            acc[q] += load(x + i + q * LVNI_W);
        }
    }
    float lane[LANES];
    for (int q = 0; q < PARTS; q++) {
        store(lane + q * LVNI_W, acc[q]);
    }
    for (int j = 0; i + j < n; j++) {
        lane[j] += x[i + j];
    }
    return add_lanes(lane);
}

/* Any number of elements: blocks, added in f64 in their order. */
static inline float sum_long(const float *x, int64_t n)
{
    if (n <= LVNI_CPU_SUM_BLOCK) {
        return sum_block(x, n);
    }
    double total = 0.0;
    for (int64_t i = 0; i < n; i += LVNI_CPU_SUM_BLOCK) {
        total += (double)sum_block(x + i, n - i < LVNI_CPU_SUM_BLOCK ? n - i : LVNI_CPU_SUM_BLOCK);
    }
    return (float)total;
}

static void row_sums(const float *x, int64_t rows, int64_t n, float *y)
{
    for (int64_t r = 0; r < rows; r++) {
        y[r] = sum_block(x + r * n, n);
    }
}

/* acc[j] += rows of x: four rows at a time (two additions of two), so that acc is touched once per
 * four. */
static inline void add_rows(const float *restrict x, int64_t rows, int64_t cols, int64_t stride,
                            float *restrict acc)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const float *x0 = x + r * stride, *x1 = x0 + stride, *x2 = x1 + stride, *x3 = x2 + stride;
        for (int64_t j = 0; j < cols; j++) {
            acc[j] += (x0[j] + x1[j]) + (x2[j] + x3[j]);
        }
    }
    for (; r < rows; r++) {
        for (int64_t j = 0; j < cols; j++) {
            acc[j] += x[r * stride + j];
        }
    }
}

static void col_sums(const float *x, int64_t rows, int64_t cols, int64_t stride, float *y)
{
    float acc[PACKED_ROWS * PACK_LIMIT]; /* also holds COLUMN_CHUNK values */
    if (packs(cols) && stride == cols) {
        const int64_t full = rows / PACKED_ROWS;
        memset(acc, 0, (size_t)(PACKED_ROWS * cols) * sizeof *acc);
        add_rows(x, full, PACKED_ROWS * cols, PACKED_ROWS * cols, acc);
        add_rows(x + full * PACKED_ROWS * cols, 1, (rows - full * PACKED_ROWS) * cols, 0, acc);
        unpack_sums(acc, cols);
        memcpy(y, acc, (size_t)cols * sizeof *y);
        return;
    }
    for (int64_t c = 0; c < cols; c += COLUMN_CHUNK) {
        const int64_t m = cols - c < COLUMN_CHUNK ? cols - c : COLUMN_CHUNK;
        memset(acc, 0, (size_t)m * sizeof *acc);
        add_rows(x + c, rows, m, stride, acc);
        memcpy(y + c, acc, (size_t)m * sizeof *y);
    }
}

static void combine(const float *restrict partial, int64_t blocks, int64_t cols, double divisor,
                    float *restrict y)
{
    double total[COLUMN_CHUNK];
    for (int64_t c = 0; c < cols; c += COLUMN_CHUNK) {
        const int64_t m = cols - c < COLUMN_CHUNK ? cols - c : COLUMN_CHUNK;
        memset(total, 0, (size_t)m * sizeof *total);
        for (int64_t b = 0; b < blocks; b++) {
            const float *restrict p = partial + b * cols + c;
            for (int64_t j = 0; j < m; j++) {
                total[j] += (double)p[j];
            }
        }
        for (int64_t j = 0; j < m; j++) {
            y[c + j] = (float)(total[j] / divisor);
        }
    }
}

static inline float larger(float a, float b)
{
    const uint32_t take = 0u - (uint32_t)((b > a) | (b != b));
    return bits_float((float_bits(b) & take) | (float_bits(a) & ~take));
}

/* The same tree as add_lanes: short chains, no branches. */
static inline float max_lanes(const float lane[LANES])
{
    float s[LANES / 2];
    for (int j = 0; j < 8; j++) {
        s[j] = larger(lane[j], lane[j + 8]);
    }
    return larger(larger(larger(s[0], s[4]), larger(s[2], s[6])),
                  larger(larger(s[1], s[5]), larger(s[3], s[7])));
}

/* The largest of n >= 1 elements; a NaN counts as the largest. Which of equal values (0 and -0) is
 * open. */
static inline float max_any(const float *x, int64_t n)
{
    float lane[LANES];
    int64_t i = 0;
    for (int j = 0; j < LANES; j++) {
        lane[j] = x[0];
    }
    vf acc[PARTS];
    for (int q = 0; q < PARTS; q++) {
        acc[q] = load(lane + q * LVNI_W);
    }
    for (; i + LANES <= n; i += LANES) {
#pragma GCC unroll 4
        for (int q = 0; q < PARTS; q++) {
            const vf v = load(x + i + q * LVNI_W);
            acc[q] = select_vf((v > acc[q]) | (v != v), v, acc[q]);
        }
    }
    for (int q = 0; q < PARTS; q++) {
        store(lane + q * LVNI_W, acc[q]);
    }
    float best = max_lanes(lane);
    for (; i < n; i++) {
        best = x[i] > best || x[i] != x[i] ? x[i] : best;
    }
    return best;
}

static void row_max(const float *x, int64_t rows, int64_t n, float *value, int64_t *index)
{
    for (int64_t r = 0; r < rows; r++) {
        const float *row = x + r * n;
        const float best = max_any(row, n);
        int64_t at = 0;
        while (!(row[at] == best || (row[at] != row[at] && best != best))) {
            at++;
        }
        if (value != NULL) {
            value[r] = row[at];
        }
        if (index != NULL) {
            index[r] = at;
        }
    }
}

static void col_max(const float *restrict x, int64_t rows, int64_t cols, float *restrict value,
                    int64_t *restrict index)
{
    float best[COLUMN_CHUNK];
    int32_t at[COLUMN_CHUNK];
    for (int64_t c = 0; c < cols; c += COLUMN_CHUNK) {
        const int64_t m = cols - c < COLUMN_CHUNK ? cols - c : COLUMN_CHUNK;
        memcpy(best, x + c, (size_t)m * sizeof *best);
        memset(at, 0, (size_t)m * sizeof *at);
        for (int64_t r = 1; r < rows; r++) {
            const float *restrict row = x + r * cols + c;
            for (int64_t j = 0; j < m; j++) {
                const float t = best[j], v = row[j];
                const uint32_t take = 0u - (uint32_t)(!(v <= t) & (t == t));
                best[j] = bits_float((float_bits(v) & take) | (float_bits(t) & ~take));
                at[j] = (int32_t)(((uint32_t)r & take) | ((uint32_t)at[j] & ~take));
            }
        }
        for (int64_t j = 0; j < m && value != NULL; j++) {
            value[c + j] = best[j];
        }
        for (int64_t j = 0; j < m && index != NULL; j++) {
            index[c + j] = at[j];
        }
    }
}

#endif

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

/* ---- behind the statistics. `gate` is a constant wherever these are called, so each has its own loop. ---- */

/* What the gradient of y hands on: all, or where relu let the value through; the forward's own expression decides. */
static inline float gated(lvni_norm_gate gate, float dy, float y, float x, float mean, float scale, float shift)
{
    if (gate == LVNI_GATE_OUTPUT) {
        return y > 0.0f ? dy : 0.0f;
    }
    return gate == LVNI_GATE_AGAIN ? ((x - mean) * scale + shift > 0.0f ? dy : 0.0f) : dy;
}

/* Rows of one gradient pass, all with the same stride. */
typedef struct grad_rows {
    const float *dy, *x, *y; /* y: of LVNI_GATE_OUTPUT only */
    float *g;                /* what passed the gate, or NULL */
    int64_t rows, cols, stride;
} grad_rows;

/* s1 += g, s2 += g (x - mean) over rows, four at a time in a small tree. */
static inline void add_grad_sums(const grad_rows *t, const lvni_norm_vectors *v, lvni_norm_gate gate, bool keep,
                                 float *restrict s1, float *restrict s2)
{
    const int64_t step = t->stride;
    const float *restrict m = v->mean, *restrict a = v->scale, *restrict b = v->shift;
    int64_t r = 0;
#define GATED(i) gated(gate, d##i[j], gate == LVNI_GATE_OUTPUT ? y##i[j] : 0.0f, x##i[j], m[j], a[j], b[j])
    for (; r + 4 <= t->rows; r += 4) {
        const float *x0 = t->x + r * step, *x1 = x0 + step, *x2 = x1 + step, *x3 = x2 + step;
        const float *d0 = t->dy + r * step, *d1 = d0 + step, *d2 = d1 + step, *d3 = d2 + step;
        const float *y0 = gate == LVNI_GATE_OUTPUT ? t->y + r * step : x0, *y1 = y0 + step, *y2 = y1 + step, *y3 = y2 + step;
        float *restrict k0 = keep ? t->g + r * step : s1, *restrict k1 = k0 + step, *restrict k2 = k1 + step, *restrict k3 = k2 + step;
        for (int64_t j = 0; j < t->cols; j++) {
            const float g0 = GATED(0), g1 = GATED(1), g2 = GATED(2), g3 = GATED(3);
            if (keep) {
                k0[j] = g0;
                k1[j] = g1;
                k2[j] = g2;
                k3[j] = g3;
            }
            s1[j] += (g0 + g1) + (g2 + g3);
            s2[j] += (g0 * (x0[j] - m[j]) + g1 * (x1[j] - m[j])) + (g2 * (x2[j] - m[j]) + g3 * (x3[j] - m[j]));
        }
    }
    for (; r < t->rows; r++) {
        const float *x0 = t->x + r * step, *d0 = t->dy + r * step, *y0 = gate == LVNI_GATE_OUTPUT ? t->y + r * step : x0;
        for (int64_t j = 0; j < t->cols; j++) {
            const float g0 = GATED(0);
            if (keep) {
                t->g[r * step + j] = g0;
            }
            s1[j] += g0;
            s2[j] += g0 * (x0[j] - m[j]);
        }
    }
#undef GATED
}

/* One loop per gate. */
static void grad_sums_gate(const grad_rows *t, const lvni_norm_vectors *v, lvni_norm_gate gate, float *s1, float *s2)
{
    const bool keep = t->g != NULL;
    if (gate == LVNI_GATE_OUTPUT) {
        keep ? add_grad_sums(t, v, LVNI_GATE_OUTPUT, true, s1, s2) : add_grad_sums(t, v, LVNI_GATE_OUTPUT, false, s1, s2);
    } else if (gate == LVNI_GATE_AGAIN) {
        keep ? add_grad_sums(t, v, LVNI_GATE_AGAIN, true, s1, s2) : add_grad_sums(t, v, LVNI_GATE_AGAIN, false, s1, s2);
    } else {
        keep ? add_grad_sums(t, v, LVNI_GATE_OPEN, true, s1, s2) : add_grad_sums(t, v, LVNI_GATE_OPEN, false, s1, s2);
    }
}

static inline const float *further(const float *p, int64_t n)
{
    return p == NULL ? NULL : p + n;
}

static inline grad_rows part_of(const lvni_norm_grad *n, int64_t at, int64_t rows, int64_t cols, int64_t stride)
{
    return (grad_rows){.dy = n->dy + at, .x = n->x + at, .y = further(n->y, at), .g = n->g == NULL ? NULL : n->g + at,
                       .rows = rows, .cols = cols, .stride = stride};
}

/* Per-channel vectors, repeated for packed rows. */
typedef struct packed_vectors {
    float mean[PACKED_ROWS * PACK_LIMIT], scale[PACKED_ROWS * PACK_LIMIT], shift[PACKED_ROWS * PACK_LIMIT],
        b[PACKED_ROWS * PACK_LIMIT], d[PACKED_ROWS * PACK_LIMIT];
} packed_vectors;

static lvni_norm_vectors pack_vectors(const lvni_norm_vectors *v, int64_t cols, packed_vectors *p)
{
    repeat_row(v->mean, cols, p->mean);
    repeat_row(v->scale, cols, p->scale);
    repeat_row(v->shift, cols, p->shift);
    if (v->b != NULL) {
        repeat_row(v->b, cols, p->b);
        repeat_row(v->d, cols, p->d);
    }
    return (lvni_norm_vectors){p->mean, p->scale, p->shift, p->b, p->d};
}

static void norm_grad_sums(const lvni_norm_grad *n, const lvni_norm_vectors *v, int64_t rows, int64_t cols, float *s1, float *s2)
{
    if (packs(cols)) {
        float a1[PACKED_ROWS * PACK_LIMIT], a2[PACKED_ROWS * PACK_LIMIT];
        packed_vectors memory;
        const lvni_norm_vectors p = pack_vectors(v, cols, &memory);
        const int64_t wide = PACKED_ROWS * cols, full = rows / PACKED_ROWS;
        memset(a1, 0, (size_t)wide * sizeof *a1);
        memset(a2, 0, (size_t)wide * sizeof *a2);
        const grad_rows all = part_of(n, 0, full, wide, wide), rest = part_of(n, full * wide, 1, rows * cols - full * wide, 0);
        grad_sums_gate(&all, &p, n->gate, a1, a2);
        grad_sums_gate(&rest, &p, n->gate, a1, a2);
        unpack_sums(a1, cols);
        unpack_sums(a2, cols);
        memcpy(s1, a1, (size_t)cols * sizeof *s1);
        memcpy(s2, a2, (size_t)cols * sizeof *s2);
        return;
    }
    memset(s1, 0, (size_t)cols * sizeof *s1);
    memset(s2, 0, (size_t)cols * sizeof *s2);
    for (int64_t c = 0; c < cols; c += COLUMN_CHUNK) {
        const lvni_norm_vectors part = {.mean = v->mean + c, .scale = v->scale + c, .shift = v->shift + c};
        const grad_rows t = part_of(n, c, rows, cols - c < COLUMN_CHUNK ? cols - c : COLUMN_CHUNK, cols);
        grad_sums_gate(&t, &part, n->gate, s1 + c, s2 + c);
    }
}

static inline void grad_apply_gate(const lvni_norm_grad *n, const lvni_norm_vectors *v, lvni_norm_gate gate,
                                   float *restrict dx, int64_t rows, int64_t cols)
{
    const float *restrict m = v->mean, *restrict a = v->scale, *restrict s = v->shift, *restrict b = v->b, *restrict d = v->d;
    for (int64_t r = 0; r < rows; r++) {
        const float *x = n->x + r * cols, *dy = n->dy + r * cols, *y = gate == LVNI_GATE_OUTPUT ? n->y + r * cols : x;
        for (int64_t j = 0; j < cols; j++) {
            const float g = gated(gate, dy[j], y[j], x[j], m[j], a[j], s[j]);
            dx[r * cols + j] = ((g - b[j]) - (x[j] - m[j]) * d[j]) * a[j];
        }
    }
}

static void grad_apply_rows(const lvni_norm_grad *n, const lvni_norm_vectors *v, float *dx, int64_t rows, int64_t cols)
{
    switch (n->gate) {
    case LVNI_GATE_OPEN: grad_apply_gate(n, v, LVNI_GATE_OPEN, dx, rows, cols); break;
    case LVNI_GATE_OUTPUT: grad_apply_gate(n, v, LVNI_GATE_OUTPUT, dx, rows, cols); break;
    case LVNI_GATE_AGAIN: grad_apply_gate(n, v, LVNI_GATE_AGAIN, dx, rows, cols); break;
    }
}

static void norm_grad_apply(const lvni_norm_grad *n, const lvni_norm_vectors *v, float *dx, int64_t rows, int64_t cols)
{
    if (packs(cols)) {
        packed_vectors memory;
        const lvni_norm_vectors p = pack_vectors(v, cols, &memory);
        const int64_t wide = PACKED_ROWS * cols, full = rows / PACKED_ROWS, done = full * wide;
        const lvni_norm_grad rest = {.dy = n->dy + done, .x = n->x + done, .y = further(n->y, done), .gate = n->gate};
        grad_apply_rows(n, &p, dx, full, wide);
        grad_apply_rows(&rest, &p, dx + done, 1, rows * cols - done);
        return;
    }
    grad_apply_rows(n, v, dx, rows, cols);
}

static inline void apply_gate(const float *x, const float *residual, bool adds, bool relu, const lvni_norm_vectors *v,
                              float *restrict y, int64_t rows, int64_t cols)
{
    const float *restrict m = v->mean, *restrict a = v->scale, *restrict b = v->shift;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < cols; j++) {
            const int64_t e = r * cols + j;
            float value = (x[e] - m[j]) * a[j] + b[j];
            value = adds ? value + residual[e] : value;
            y[e] = relu && value < 0.0f ? 0.0f : value; /* a NaN is not below 0 and stays */
        }
    }
}

static void apply_rows(const float *x, const float *residual, bool relu, const lvni_norm_vectors *v, float *y, int64_t rows,
                       int64_t cols)
{
    if (residual != NULL) {
        relu ? apply_gate(x, residual, true, true, v, y, rows, cols) : apply_gate(x, residual, true, false, v, y, rows, cols);
    } else {
        relu ? apply_gate(x, x, false, true, v, y, rows, cols) : apply_gate(x, x, false, false, v, y, rows, cols);
    }
}

static void norm_apply(const float *x, const float *residual, bool relu, const lvni_norm_vectors *v, float *y, int64_t rows,
                       int64_t cols)
{
    if (packs(cols)) {
        packed_vectors memory;
        const lvni_norm_vectors p = pack_vectors(v, cols, &memory);
        const int64_t wide = PACKED_ROWS * cols, full = rows / PACKED_ROWS, done = full * wide;
        apply_rows(x, residual, relu, &p, y, full, wide);
        apply_rows(x + done, further(residual, done), relu, &p, y + done, 1, rows * cols - done);
        return;
    }
    apply_rows(x, residual, relu, v, y, rows, cols);
}

#endif

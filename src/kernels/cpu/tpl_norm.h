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

/* s1 += g, s2 += g (x - mean) over rows, four at a time in a small tree. `passed` keeps g, if keep. */
static inline void add_grad_sums(const grad_rows *t, const float *restrict dy, const float *restrict x, const float *restrict y,
                                 float *restrict passed, const lvni_norm_vectors *v, lvni_norm_gate gate, bool keep,
                                 float *restrict s1, float *restrict s2)
{
    const int64_t step = t->stride, cols = t->cols;
    const float *restrict m = v->mean, *restrict a = v->scale, *restrict b = v->shift;
    int64_t r = 0;
#define GATED(e) gated(gate, dy[e], gate == LVNI_GATE_OUTPUT ? y[e] : 0.0f, x[e], m[j], a[j], b[j])
    for (; r + 4 <= t->rows; r += 4) {
        const int64_t e0 = r * step, e1 = e0 + step, e2 = e1 + step, e3 = e2 + step;
        for (int64_t j = 0; j < cols; j++) {
            const float g0 = GATED(e0 + j), g1 = GATED(e1 + j), g2 = GATED(e2 + j), g3 = GATED(e3 + j);
            s1[j] += (g0 + g1) + (g2 + g3);
            s2[j] += (g0 * (x[e0 + j] - m[j]) + g1 * (x[e1 + j] - m[j])) + (g2 * (x[e2 + j] - m[j]) + g3 * (x[e3 + j] - m[j]));
            if (keep) {
                passed[e0 + j] = g0;
                passed[e1 + j] = g1;
                passed[e2 + j] = g2;
                passed[e3 + j] = g3;
            }
        }
    }
    for (; r < t->rows; r++) {
        for (int64_t j = 0; j < cols; j++) {
            const int64_t e = r * step + j;
            const float g = GATED(e);
            s1[j] += g;
            s2[j] += g * (x[e] - m[j]);
            if (keep) {
                passed[e] = g;
            }
        }
    }
#undef GATED
}

/* One loop for each gate, with and without keeping. */
static void grad_sums_gate(const grad_rows *t, const lvni_norm_vectors *v, lvni_norm_gate gate, float *s1, float *s2)
{
#define LOOP(gate)                                                                                                          \
    case gate:                                                                                                              \
        if (t->g != NULL) {                                                                                                 \
            add_grad_sums(t, t->dy, t->x, t->y, t->g, v, gate, true, s1, s2);                                               \
        } else {                                                                                                            \
            add_grad_sums(t, t->dy, t->x, t->y, t->g, v, gate, false, s1, s2);                                              \
        }                                                                                                                   \
        break;
    switch (gate) {
        LOOP(LVNI_GATE_OPEN)
        LOOP(LVNI_GATE_OUTPUT)
        LOOP(LVNI_GATE_AGAIN)
    }
#undef LOOP
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

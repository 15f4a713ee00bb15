/* Template (included by tpl_table.h only): attention of one head. The tables behind the products are packed with rows of whole
 * vectors; the products are sums over k in order, one element at a time, so no bit depends on how tiles are cut. */
#ifndef LEVIN_KERNELS_CPU_TPL_ATTENTION_H
#define LEVIN_KERNELS_CPU_TPL_ATTENTION_H

#include "kernels/cpu/tpl_rows.h"

/* ---- small products ---- */

/* a (m, k): element (i, j) at a[i * row + j * col]. b (k, n) and c (m, n): rows of whole vectors, n a multiple of LANES. */
typedef struct small_product {
    const float *a;
    int64_t row, col;
    const float *b;
    int64_t b_step;
    float *c;
    int64_t c_step, m, n, k;
} small_product;

/* Rows and vectors of a tile, so that it fits the registers; terms added before the tile goes back to memory, so that b's part
 * stays in the first cache. */
enum { TILE_ROWS = 4, TILE_VECTORS = LVNI_W == 16 ? 4 : 2, TILE_TERMS = 128 };

static inline __attribute__((always_inline)) void add_tile(const small_product *p, int64_t i, int64_t j, int64_t k0, int64_t k1,
                                                           const int rows, const int vectors)
{
    vf acc[TILE_ROWS][TILE_VECTORS];
    const float *restrict a = p->a + i * p->row, *restrict b = p->b + j;
    float *restrict c = p->c + i * p->c_step + j;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            acc[r][v] = load(c + r * p->c_step + v * LVNI_W);
        }
    }
    for (int64_t k = k0; k < k1; k++) {
        vf term[TILE_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            term[v] = load(b + k * p->b_step + v * LVNI_W);
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const float factor = a[r * p->row + k * p->col];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                acc[r][v] += factor * term[v];
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            store(c + r * p->c_step + v * LVNI_W, acc[r][v]);
        }
    }
}

/* Columns [j, n) in steps of `vectors`; returns where they end. */
static inline __attribute__((always_inline)) int64_t add_columns(const small_product *p, int64_t j, int64_t k0, int64_t k1, const int vectors)
{
    for (; j + vectors * LVNI_W <= p->n; j += vectors * LVNI_W) {
        int64_t i = 0;
        for (; i + TILE_ROWS <= p->m; i += TILE_ROWS) {
            add_tile(p, i, j, k0, k1, TILE_ROWS, vectors);
        }
        for (; i < p->m; i++) {
            add_tile(p, i, j, k0, k1, 1, vectors);
        }
    }
    return j;
}

/* c += a b */
static void add_product(const small_product *p)
{
    for (int64_t k0 = 0; k0 < p->k; k0 += TILE_TERMS) {
        const int64_t k1 = p->k - k0 < TILE_TERMS ? p->k : k0 + TILE_TERMS;
        add_columns(p, add_columns(p, 0, k0, k1, TILE_VECTORS), k0, k1, 1);
    }
}

/* ---- tables ---- */

/* out (n, width padded) = rows of x, zeros behind them; returns what follows `out`. */
static inline float *pack_rows(const float *restrict x, int64_t step, int64_t n, int64_t width, float *restrict out)
{
    const int64_t padded = lvni_padded(width);
    for (int64_t i = 0; i < n; i++) {
        memcpy(out + i * padded, x + i * step, (size_t)width * sizeof *out);
        memset(out + i * padded + width, 0, (size_t)(padded - width) * sizeof *out);
    }
    return out + n * padded;
}

/* out (width, n padded) = the same transposed. */
static inline float *pack_columns(const float *restrict x, int64_t step, int64_t n, int64_t width, float *restrict out)
{
    const int64_t padded = lvni_padded(n);
    for (int64_t j = 0; j < width; j++) {
        for (int64_t i = 0; i < n; i++) {
            out[j * padded + i] = x[i * step + j];
        }
        memset(out + j * padded + n, 0, (size_t)(padded - n) * sizeof *out);
    }
    return out + width * padded;
}

static inline void unpack_rows(const float *restrict table, int64_t n, int64_t width, float *restrict y, int64_t step)
{
    for (int64_t i = 0; i < n; i++) {
        memcpy(y + i * step, table + i * lvni_padded(width), (size_t)width * sizeof *y);
    }
}

static inline void clear(float *x, int64_t n)
{
    memset(x, 0, (size_t)n * sizeof *x);
}

/* Keys that the queries before `end` see at most. */
static inline int64_t seen_before(const lvni_attention_head *h, int64_t end)
{
    return h->causal ? end : h->keys;
}

/* s (queries, keys padded) = q k^T of queries [first, end), over the columns that count. */
static inline void scores(const lvni_attention_head *h, const float *kt, int64_t first, int64_t end, float *s)
{
    const int64_t step = lvni_padded(h->keys), columns = lvni_padded(seen_before(h, end));
    for (int64_t i = 0; i < end - first; i++) {
        clear(s + i * step, columns);
    }
    add_product(&(small_product){.a = h->q + first * h->q_step, .row = h->q_step, .col = 1, .b = kt, .b_step = step, .c = s, .c_step = step,
                                 .m = end - first, .n = columns, .k = h->d});
}

/* ---- forward ---- */

/* Row of scores to e^(scale s - top), zeros behind what is seen; returns the sum and sets top. */
static inline float weigh(float *restrict s, float scale, int64_t seen, int64_t columns, float *top)
{
    for (int64_t j = 0; j < seen; j++) {
        s[j] = s[j] * scale;
    }
    const float high = max_any(s, seen);
    for (int64_t j = 0; j < seen; j++) {
        s[j] = exp_one(s[j] - high);
    }
    clear(s + seen, columns - seen);
    *top = high;
    return sum_long(s, seen);
}

static void attention(const lvni_attention_head *h)
{
    const int64_t step = lvni_padded(h->keys), wide = lvni_padded(h->e);
    float *kt = h->work, *v = pack_columns(h->k, h->k_step, h->keys, h->d, kt), *s = pack_rows(h->v, h->v_step, h->keys, h->e, v);
    float *y = s + LVNI_QUERY_BLOCK * step;
    for (int64_t first = 0; first < h->queries; first += LVNI_QUERY_BLOCK) {
        const int64_t end = h->queries - first < LVNI_QUERY_BLOCK ? h->queries : first + LVNI_QUERY_BLOCK, n = end - first;
        const int64_t limit = seen_before(h, end);
        float sum[LVNI_QUERY_BLOCK];
        scores(h, kt, first, end, s);
        for (int64_t i = 0; i < n; i++) {
            float top;
            sum[i] = weigh(s + i * step, h->scale, seen_before(h, first + i + 1), lvni_padded(limit), &top);
            h->log_sums[first + i] = top + log_one(sum[i]);
        }
        clear(y, n * wide);
        add_product(&(small_product){.a = s, .row = step, .col = 1, .b = v, .b_step = wide, .c = y, .c_step = wide, .m = n, .n = wide, .k = limit});
        for (int64_t i = 0; i < n; i++) {
            divide_row(y + i * wide, sum[i], h->y + (first + i) * h->y_step, h->e);
        }
    }
}

/* ---- gradient ---- */

/* The packed tables of a head: q, k, dy and its transposed partners, sums, and the block in work. */
typedef struct attention_tables {
    float *kt, *vt, *k, *q, *dy, *dk, *dv; /* (d, keys) (e, keys) (keys, d) (queries, d) (queries, e) (keys, d) (keys, e), padded */
    float *p, *ds, *dq;                    /* (block, keys) (block, keys) (block, d), padded */
} attention_tables;

static inline attention_tables lay_out(const lvni_attention_head *h)
{
    attention_tables t;
    t.kt = h->work;
    t.vt = pack_columns(h->k, h->k_step, h->keys, h->d, t.kt);
    t.k = pack_columns(h->v, h->v_step, h->keys, h->e, t.vt);
    t.q = pack_rows(h->k, h->k_step, h->keys, h->d, t.k);
    t.dy = pack_rows(h->q, h->q_step, h->queries, h->d, t.q);
    t.dk = pack_rows(h->dy, h->y_step, h->queries, h->e, t.dy);
    t.dv = t.dk + h->keys * lvni_padded(h->d);
    t.p = t.dv + h->keys * lvni_padded(h->e);
    t.ds = t.p + LVNI_QUERY_BLOCK * lvni_padded(h->keys);
    t.dq = t.ds + LVNI_QUERY_BLOCK * lvni_padded(h->keys);
    clear(t.dk, h->keys * lvni_padded(h->d));
    clear(t.dv, h->keys * lvni_padded(h->e));
    return t;
}

/* p = e^(scale s - log sum), ds = scale p (dp - mean), zeros behind what is seen. */
static inline void slopes(float *restrict p, float *restrict ds, float scale, float log_sum, float mean, int64_t seen, int64_t columns)
{
    for (int64_t j = 0; j < seen; j++) {
        p[j] = exp_one(p[j] * scale - log_sum);
        ds[j] = p[j] * (ds[j] - mean) * scale;
    }
    clear(p + seen, columns - seen);
    clear(ds + seen, columns - seen);
}

/* Probabilities and slopes of queries [first, end). */
static inline void block_slopes(const lvni_attention_head *h, const attention_tables *t, int64_t first, int64_t end)
{
    const int64_t step = lvni_padded(h->keys), wide = lvni_padded(h->e), columns = lvni_padded(seen_before(h, end));
    scores(h, t->kt, first, end, t->p);
    for (int64_t i = 0; i < end - first; i++) {
        clear(t->ds + i * step, columns);
    }
    add_product(&(small_product){.a = t->dy + first * wide, .row = wide, .col = 1, .b = t->vt, .b_step = step, .c = t->ds, .c_step = step,
                                 .m = end - first, .n = columns, .k = h->e});
    for (int64_t i = 0; i < end - first; i++) {
        const float mean = (float)dot_long(t->dy + (first + i) * wide, h->y + (first + i) * h->y_step, h->e);
        slopes(t->p + i * step, t->ds + i * step, h->scale, h->log_sums[first + i], mean, seen_before(h, first + i + 1), columns);
    }
}

static void attention_grad(const lvni_attention_head *h)
{
    const attention_tables t = lay_out(h);
    const int64_t step = lvni_padded(h->keys), wide = lvni_padded(h->e), narrow = lvni_padded(h->d);
    for (int64_t first = 0; first < h->queries; first += LVNI_QUERY_BLOCK) {
        const int64_t end = h->queries - first < LVNI_QUERY_BLOCK ? h->queries : first + LVNI_QUERY_BLOCK, n = end - first;
        const int64_t limit = seen_before(h, end);
        block_slopes(h, &t, first, end);
        clear(t.dq, n * narrow);
        add_product(&(small_product){.a = t.ds, .row = step, .col = 1, .b = t.k, .b_step = narrow, .c = t.dq, .c_step = narrow, .m = n,
                                     .n = narrow, .k = limit});
        unpack_rows(t.dq, n, h->d, h->dq + first * h->q_step, h->q_step);
        if (h->dv != NULL) { /* p^T dy */
            add_product(&(small_product){.a = t.p, .row = 1, .col = step, .b = t.dy + first * wide, .b_step = wide, .c = t.dv,
                                         .c_step = wide, .m = limit, .n = wide, .k = n});
        }
        if (h->dk != NULL) { /* ds^T q */
            add_product(&(small_product){.a = t.ds, .row = 1, .col = step, .b = t.q + first * narrow, .b_step = narrow, .c = t.dk,
                                         .c_step = narrow, .m = limit, .n = narrow, .k = n});
        }
    }
    if (h->dk != NULL) {
        unpack_rows(t.dk, h->keys, h->d, h->dk, h->k_step);
    }
    if (h->dv != NULL) {
        unpack_rows(t.dv, h->keys, h->e, h->dv, h->v_step);
    }
}

#endif

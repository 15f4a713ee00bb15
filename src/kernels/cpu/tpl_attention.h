/* Template (included by tpl_table.h only): what attention of one head (tpl_attention.def) does in
 * f32 for all element types. The tables behind the products are packed with rows of whole vectors;
 * the products are sums over k in order, one element at a time, so no bit depends on how tiles are
 * cut. */
#ifndef LEVIN_KERNELS_CPU_TPL_ATTENTION_H
#define LEVIN_KERNELS_CPU_TPL_ATTENTION_H

#include "kernels/cpu/tpl_rows.h"

/* ---- small products ---- */

/* a (m, k): element (i, j) at a[i * row + j * col]. b (k, n) and c (m, n): rows of whole vectors, n
 * a multiple of LANES. */
typedef struct small_product {
    const float *a;
    int64_t row, col;
    const float *b;
    int64_t b_step;
    float *c;
    int64_t c_step, m, n, k;
} small_product;

/* Rows and vectors of a tile, so that it fits the registers; terms added before the tile goes back
 * to memory, so that b's part stays in the first cache. */
enum { TILE_ROWS = 4, TILE_VECTORS = LVNI_W == 16 ? 4 : 2, TILE_TERMS = 128 };

static inline __attribute__((always_inline)) void add_tile(const small_product *p, int64_t i,
                                                           int64_t j, int64_t k0, int64_t k1,
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
static inline __attribute__((always_inline)) int64_t
add_columns(const small_product *p, int64_t j, int64_t k0, int64_t k1, const int vectors)
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

/* ---- scores ---- */

static inline void clear(float *x, int64_t n)
{
    memset(x, 0, (size_t)n * sizeof *x);
}

/* Keys that the queries before `end` see at most. */
static inline int64_t seen_before(const lvni_cpu_attention_head *h, int64_t end)
{
    return h->causal ? end : h->keys;
}

/* s (queries, keys padded) = q k^T of queries [first, end), over the columns that count; q: their
 * packed rows. */
static inline void scores(const lvni_cpu_attention_head *h, const float *q, const float *kt,
                          int64_t first, int64_t end, float *s)
{
    const int64_t step = lvni_cpu_padded(h->keys), columns = lvni_cpu_padded(seen_before(h, end));
    for (int64_t i = 0; i < end - first; i++) {
        clear(s + i * step, columns);
    }
    add_product(&(small_product){.a = q,
                                 .row = lvni_cpu_padded(h->d),
                                 .col = 1,
                                 .b = kt,
                                 .b_step = step,
                                 .c = s,
                                 .c_step = step,
                                 .m = end - first,
                                 .n = columns,
                                 .k = h->d});
}

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

/* p = e^(scale s - log sum), ds = scale p (dp - mean), zeros behind what is seen. */
static inline void slopes(float *restrict p, float *restrict ds, float scale, float log_sum,
                          float mean, int64_t seen, int64_t columns)
{
    for (int64_t j = 0; j < seen; j++) {
        p[j] = exp_one(p[j] * scale - log_sum);
        ds[j] = p[j] * (ds[j] - mean) * scale;
    }
    clear(p + seen, columns - seen);
    clear(ds + seen, columns - seen);
}

/* The packed tables of a head: q, k, dy and its transposed partners, sums, and the block in
 * work. */
typedef struct attention_tables {
    /* (d, keys) (e, keys) (keys, d) (queries, d) (queries, e) (keys, d) (keys, e), padded */
    float *kt, *vt, *k, *q, *dy, *dk, *dv;
    float *p, *ds, *dq; /* (block, keys) (block, keys) (block, d), padded */
} attention_tables;

#endif

/* The gradient of attention by products of matrices (attention_products.cuh; attention_grad.cu has
 * the formulas). Each block of keys has its dk and dv at once, and adds its part of dq in f32. */
#include "attention_products.cuh"

enum { SLOPE_THREADS = 256 };

/* A table of some queries and keys. */
struct slope_table {
    const float *scores, *growths; /* (heads, rows, pitch): q k^T, dy v^T */
    int rows, pitch, columns;
    int query, key; /* of row 0, of column 0 */
    bool causal;
    float scale;
    const float *log_sums, *means; /* of the first head's query 0 */
    int queries;
};

/* 8 columns: p = e^(score - log-sum), slope = p (growth - mean) scale; 0 for keys that the mask
 * hides. */
template <typename T> static __global__ void find_slopes(slope_table t, T *p, T *slopes)
{
    const unsigned i = blockIdx.x * SLOPE_THREADS + threadIdx.x, packs = (unsigned)t.pitch / 8,
                   row = i / packs, c = (i - row * packs) * 8;
    if (row >= (unsigned)t.rows) {
        return;
    }
    const int query = t.query + (int)row, seen = t.causal ? query + 1 - t.key : t.columns,
              first = (int)c;
    const int64_t at = ((int64_t)blockIdx.y * t.rows + row) * t.pitch + c,
                  of_query = (int64_t)blockIdx.y * t.queries + query;
    pack<float, 8> score = {}, growth = {};
    float log_sum = 0.0f, mean = 0.0f;
    if (first < seen) {
        score = load<float, 8>(t.scores + at);
        growth = load<float, 8>(t.growths + at);
        log_sum = t.log_sums[of_query];
        mean = t.means[of_query];
    }
    pack<T, 8> weight, slope;
    UNROLL
    for (int j = 0; j < 8; j++) {
        const bool sees = first + j < seen;
        const float w = sees ? expf(score.v[j] * t.scale - log_sum) : 0.0f;
        weight.v[j] = from_float<T>(w);
        slope.v[j] = from_float<T>(sees ? w * (growth.v[j] - mean) * t.scale : 0.0f);
    }
    store<T, 8>(p + at, weight);
    store<T, 8>(slopes + at, slope);
}

/* Keys [key, key + columns) of n heads, for the queries that see any of them. */
struct key_block {
    int first, n; /* heads */
    int key, columns, query, rows, pitch;
    lvn_dtype type;
};

template <typename T>
static lvn_status slopes_of_block(const lvn_kernel_args *args, const attention_heads &h,
                                  const attention_work &w, const key_block &b)
{
    heads_product scores = product_of_heads(b.n, b.type, LVN_F32, b.rows, b.columns, h.d);
    scores.a = rows_of<T>(w.q, b.query, h.queries, h.d);
    scores.b = transposed(rows_of<T>(w.k, b.key, h.keys, h.d));
    scores.y = matrix_of(w.scores, b.pitch, b.rows);
    LVN_TRY(lvnc_multiply_heads(args, scores, w.product));
    heads_product growths = product_of_heads(b.n, b.type, LVN_F32, b.rows, b.columns, h.e);
    growths.a = rows_of<T>(w.dy, b.query, h.queries, h.e);
    growths.b = transposed(rows_of<T>(w.v, b.key, h.keys, h.e));
    growths.y = matrix_of(w.growths, b.pitch, b.rows);
    LVN_TRY(lvnc_multiply_heads(args, growths, w.product));
    const int64_t before = (int64_t)b.first * h.queries;
    const slope_table t = {w.scores,         w.growths, b.rows,   b.pitch, b.columns,
                           b.query,          b.key,     h.causal, h.scale, h.log_sums + before,
                           w.means + before, h.queries};
    const int64_t packs = (int64_t)b.rows * (b.pitch / 8);
    return launch(args->stream, args->op->name, find_slopes<T>,
                  dim3(blocks_for(packs, SLOPE_THREADS), (unsigned)b.n), SLOPE_THREADS, 0, t,
                  static_cast<T *>(w.p), static_cast<T *>(w.slopes));
}

template <typename T>
static lvn_status grad_block(const lvn_kernel_args *args, const attention_heads &h,
                             const attention_work &w, const key_block &b)
{
    LVN_TRY(slopes_of_block<T>(args, h, w, b));
    const heads_matrix slopes = matrix_of(w.slopes, b.pitch, b.rows),
                       weights = matrix_of(w.p, b.pitch, b.rows);
    heads_product dq = product_of_heads(b.n, b.type, LVN_F32, b.rows, h.d, b.columns);
    dq.adds = b.key > 0;
    dq.a = slopes;
    dq.b = rows_of<T>(w.k, b.key, h.keys, h.d);
    dq.y = rows_of<float>(w.dq, b.query, h.queries, h.d);
    LVN_TRY(lvnc_multiply_heads(args, dq, w.product));
    if (h.dk.data != NULL) {
        heads_product dk = product_of_heads(b.n, b.type, b.type, b.columns, h.d, b.rows);
        dk.a = transposed(slopes);
        dk.b = rows_of<T>(w.q, b.query, h.queries, h.d);
        dk.y = rows_of<T>(w.dk, b.key, h.keys, h.d);
        LVN_TRY(lvnc_multiply_heads(args, dk, w.product));
    }
    if (h.dv.data == NULL) {
        return LVN_OK;
    }
    heads_product dv = product_of_heads(b.n, b.type, b.type, b.columns, h.e, b.rows);
    dv.a = transposed(weights);
    dv.b = rows_of<T>(w.dy, b.query, h.queries, h.e);
    dv.y = rows_of<T>(w.dv, b.key, h.keys, h.e);
    return lvnc_multiply_heads(args, dv, w.product);
}

template <typename T>
static lvn_status grad_heads(const lvn_kernel_args *args, const attention_heads &h,
                             const attention_work &w, int first, int n, int block)
{
    LVN_TRY(lvnc_gather_heads<T>(args, h, h.q, first, n, h.queries, h.d, w.q));
    LVN_TRY(lvnc_gather_heads<T>(args, h, h.k, first, n, h.keys, h.d, w.k));
    LVN_TRY(lvnc_gather_heads<T>(args, h, h.v, first, n, h.keys, h.e, w.v));
    LVN_TRY(lvnc_gather_heads<T>(args, h, h.dy, first, n, h.queries, h.e, w.dy));
    for (int key = 0; key < h.keys; key += block) {
        key_block b;
        b.first = first;
        b.n = n;
        b.key = key;
        b.columns = h.keys - key < block ? h.keys - key : block;
        b.query = h.causal ? key : 0;
        b.rows = h.queries - b.query;
        b.pitch = table_pitch(b.columns);
        b.type = lvn_tensor_dtype(args->in[0]);
        LVN_TRY(grad_block<T>(args, h, w, b));
    }
    LVN_TRY((lvnc_scatter_heads<float, T>(args, h, w.dq, h.dq, first, n, h.queries, h.d)));
    if (h.dk.data != NULL) {
        LVN_TRY((lvnc_scatter_heads<T, T>(args, h, w.dk, h.dk, first, n, h.keys, h.d)));
    }
    return h.dv.data == NULL ? LVN_OK
                             : lvnc_scatter_heads<T, T>(args, h, w.dv, h.dv, first, n, h.keys, h.e);
}

template <typename T> static lvn_status backward(const lvn_kernel_args *args, attention_heads h)
{
    const attention_plan plan = lvnc_plan_attention(h, lvn_tensor_dtype(args->in[0]), true);
    lvnc_scratch s = lvnc_scratch_of(args);
    const attention_work w = lvnc_attention_work(h, plan, true, &s);
    h.means = w.means;
    const int all = (int)(h.samples * h.heads);
    LVN_TRY(find_means<T>(args, h));
    for (int first = 0; first < all; first += plan.heads) {
        const int n = all - first < plan.heads ? all - first : plan.heads;
        LVN_TRY(grad_heads<T>(args, h, w, first, n, plan.block));
    }
    return LVN_OK;
}

lvn_status lvnc_attention_products_grad(const lvn_kernel_args *args, attention_heads h)
{
    return lvn_tensor_dtype(args->in[0]) == LVN_BF16 ? backward<bf16>(args, h)
                                                     : backward<f16>(args, h);
}

/* Attention by products of matrices (attention_products.cuh): the plan, copies, forward. */
#include "attention_products.cuh"

/* ---- plan ---- */

/* On the host small, so that little cases have several blocks, turns, and pieces of a row. */
enum {
    LEAST_POSITIONS = 128,
    ROW_WARPS = 8, /* of a block; each has a row of scores */
#ifdef LEVIN_CUDA_ON_HOST
    HELD = 1,
    BLOCK = 64,
    ENOUGH_ROWS = 0,
    MOST_BYTES = 9 << 19
#else
    HELD = 8, /* packs of 4 scores that a thread keeps in registers */
    BLOCK = 256,
    ENOUGH_ROWS = 16384, /* of all heads in a block: fill a device in tiles of 128 */
    MOST_BYTES = 256 << 20
#endif
};

attention_work lvnc_attention_work(const attention_heads &h, const attention_plan &plan,
                                   bool gradient, lvnc_scratch *s)
{
    const size_t n = (size_t)plan.heads, of_d = n * (size_t)h.d * 2, of_e = n * (size_t)h.e * 2,
                 queries = (size_t)h.queries, keys = (size_t)h.keys,
                 table = n * (gradient ? queries * (size_t)table_pitch(plan.block)
                                       : (size_t)plan.block * (size_t)table_pitch(h.keys));
    attention_work w = attention_work();
    w.product = lvnc_piece(s, lvnc_product_most_bytes());
    w.q = lvnc_piece(s, queries * of_d);
    w.k = lvnc_piece(s, keys * of_d);
    w.v = lvnc_piece(s, keys * of_e);
    w.scores = static_cast<float *>(lvnc_piece(s, table * sizeof(float)));
    w.p = lvnc_piece(s, table * 2);
    if (!gradient) {
        w.y = lvnc_piece(s, queries * of_e);
        return w;
    }
    w.dy = lvnc_piece(s, queries * of_e);
    w.dk = lvnc_piece(s, keys * of_d);
    w.dv = lvnc_piece(s, keys * of_e);
    w.dq = static_cast<float *>(lvnc_piece(s, queries * of_d * 2));
    w.growths = static_cast<float *>(lvnc_piece(s, table * sizeof(float)));
    w.slopes = lvnc_piece(s, table * 2);
    w.means = static_cast<float *>(
        lvnc_piece(s, (size_t)(h.samples * h.heads) * queries * sizeof(float)));
    return w;
}

static size_t bytes_of(const attention_heads &h, attention_plan plan, int heads, bool gradient)
{
    lvnc_scratch none = {NULL, 0};
    plan.heads = heads;
    (void)lvnc_attention_work(h, plan, gradient, &none);
    return lvnc_scratch_bytes(none.used);
}

/* As many heads at a time as there is memory for, in turns of about as many; heads 0: not one. */
static attention_plan fit_heads(const attention_heads &h, int block, bool gradient)
{
    attention_plan plan = {0, block, 0};
    const int64_t all = h.samples * h.heads;
    const size_t fixed = bytes_of(h, plan, 0, gradient),
                 each = bytes_of(h, plan, 1, gradient) - fixed;
    if (fixed + each > (size_t)MOST_BYTES) {
        return plan;
    }
    const int64_t most = (int64_t)(((size_t)MOST_BYTES - fixed) / each),
                  turns = (all + most - 1) / most;
    plan.heads = (int)((all + turns - 1) / turns);
    plan.bytes = bytes_of(h, plan, plan.heads, gradient);
    return plan;
}

attention_plan lvnc_plan_attention(const attention_heads &h, lvn_dtype type, bool gradient)
{
    attention_plan plan = {0, 0, 0};
    if (type == LVN_F32 || h.queries < LEAST_POSITIONS || h.keys < LEAST_POSITIONS || h.d % 8 > 0 ||
        h.e % 8 > 0 || h.d == 0 || h.e == 0 || h.samples * h.heads == 0) {
        return plan;
    }
    const int length = gradient ? h.keys : h.queries;
    int block = length < BLOCK ? length : (int)BLOCK;
    plan = fit_heads(h, block, gradient);
    /* few heads: longer blocks, as long as they do not cost turns */
    while (block < length && (int64_t)plan.heads * block < ENOUGH_ROWS) {
        block = block > length / 2 ? length : 2 * block;
        const attention_plan longer = fit_heads(h, block, gradient);
        if (longer.heads < plan.heads || plan.heads == 0) {
            break;
        }
        plan = longer;
    }
    return plan;
}

/* ---- copies ---- */

enum { COPY_THREADS = 256 };

struct packed_at {
    int64_t view, packed; /* elements */
};

/* Pack i of a head: 8 elements, in the view and in (heads, positions, width). */
__device__ __forceinline__ packed_at find_pack(const head_view &v, int64_t heads, int first, int i,
                                               int positions, int width)
{
    const unsigned packs = (unsigned)width / 8, position = (unsigned)i / packs,
                   c = ((unsigned)i - position * packs) * 8;
    const int64_t both = first + (int64_t)blockIdx.y;
    packed_at at;
    at.view = both / heads * v.sample + both % heads * v.head + position * v.step + c;
    at.packed = ((int64_t)blockIdx.y * positions + position) * width + c;
    return at;
}

template <typename T>
static __global__ void gather_heads(head_view from, int64_t heads, int first, int positions,
                                    int width, T *to)
{
    const int i = (int)(blockIdx.x * COPY_THREADS + threadIdx.x);
    if (i < positions * (width / 8)) {
        const packed_at at = find_pack(from, heads, first, i, positions, width);
        store<T, 8>(to + at.packed, load<T, 8>(static_cast<const T *>(from.data) + at.view));
    }
}

template <typename From, typename T>
static __global__ void scatter_heads(const From *from, head_view to, int64_t heads, int first,
                                     int positions, int width)
{
    const int i = (int)(blockIdx.x * COPY_THREADS + threadIdx.x);
    if (i < positions * (width / 8)) {
        const packed_at at = find_pack(to, heads, first, i, positions, width);
        const pack<From, 8> x = load<From, 8>(from + at.packed);
        pack<T, 8> y;
        UNROLL
        for (int j = 0; j < 8; j++) {
            y.v[j] = from_float<T>(to_float(x.v[j]));
        }
        store<T, 8>(static_cast<T *>(to.data) + at.view, y);
    }
}

static dim3 copy_grid(int n, int positions, int width)
{
    return dim3(blocks_for((int64_t)positions * (width / 8), COPY_THREADS), (unsigned)n);
}

template <typename T>
lvn_status lvnc_gather_heads(const lvn_kernel_args *args, const attention_heads &h,
                             const head_view &from, int first, int n, int positions, int width,
                             void *to)
{
    return launch(args->stream, args->op->name, gather_heads<T>, copy_grid(n, positions, width),
                  COPY_THREADS, 0, from, h.heads, first, positions, width, static_cast<T *>(to));
}

template <typename From, typename T>
lvn_status lvnc_scatter_heads(const lvn_kernel_args *args, const attention_heads &h,
                              const void *from, const head_view &to, int first, int n,
                              int positions, int width)
{
    return launch(args->stream, args->op->name, scatter_heads<From, T>,
                  copy_grid(n, positions, width), COPY_THREADS, 0, static_cast<const From *>(from),
                  to, h.heads, first, positions, width);
}

#define COPIES(T)                                                                                  \
    template lvn_status lvnc_gather_heads<T>(const lvn_kernel_args *, const attention_heads &,     \
                                             const head_view &, int, int, int, int, void *);       \
    template lvn_status lvnc_scatter_heads<T, T>(const lvn_kernel_args *, const attention_heads &, \
                                                 const void *, const head_view &, int, int, int,   \
                                                 int);                                             \
    template lvn_status lvnc_scatter_heads<float, T>(const lvn_kernel_args *,                      \
                                                     const attention_heads &, const void *,        \
                                                     const head_view &, int, int, int, int);
COPIES(bf16)
COPIES(f16)

lvn_status lvnc_multiply_heads(const lvn_kernel_args *args, const heads_product &p, void *scratch)
{
    lvnc_product q = {};
    q.batches = p.n_heads;
    q.m = p.m;
    q.n = p.n;
    q.k = p.k;
    q.trans_a = p.a.trans;
    q.trans_b = p.b.trans;
    q.adds = p.adds;
    q.a_type = q.b_type = p.type;
    q.y_type = q.bias_type = p.y_type;
    q.a_at = p.a.at;
    q.b_at = p.b.at;
    q.y_at = p.y.at;
    const lvnc_scratch s = {static_cast<char *>(scratch), 0};
    return lvnc_product_run(args, &q, p.a.p, p.b.p, NULL, const_cast<void *>(p.y.p), s);
}

/* ---- soft-max of the scores ---- */

/* A warp has a row, of which it keeps PIECE scores in registers. */
enum { PIECE = HELD * 4 * 32 };

struct score_rows {
    const float *scores; /* (heads, rows, pitch) */
    int rows, pitch;
    int first, keys; /* row 0 is that of query `first` */
    bool causal;
    float scale;
    float *log_sums; /* of the first head's query 0 */
    int queries;
};

/* Scores of a piece of the row, those of keys from `seen` on as -inf; their maximum, where NaN
 * counts for nothing. */
__device__ __forceinline__ float load_scores(const float *row, int piece, int seen, float scale,
                                             float score[HELD][4])
{
    float top = -INFINITY;
    UNROLL
    for (int i = 0; i < HELD; i++) {
        const int c = piece * PIECE + (i * 32 + (int)threadIdx.x % 32) * 4;
        four x = {{0.0f, 0.0f, 0.0f, 0.0f}};
        if (c < seen) {
            x = *reinterpret_cast<const four *>(row + c);
        }
        UNROLL
        for (int j = 0; j < 4; j++) {
            score[i][j] = c + j < seen ? x.v[j] * scale : -INFINITY;
            top = fmaxf(top, score[i][j]);
        }
    }
    return top;
}

/* They become e^(score - base); their sum. */
__device__ __forceinline__ float raise_scores(float base, float score[HELD][4])
{
    float sum = 0.0f;
    UNROLL
    for (int i = 0; i < HELD; i++) {
        UNROLL
        for (int j = 0; j < 4; j++) {
            score[i][j] = expf(score[i][j] - base);
            sum += score[i][j];
        }
    }
    return sum;
}

template <typename T>
__device__ __forceinline__ void store_weights(T *row, int piece, int pitch,
                                              const float weight[HELD][4], float divisor)
{
    const float factor = 1.0f / divisor;
    UNROLL
    for (int i = 0; i < HELD; i++) {
        const int c = piece * PIECE + (i * 32 + (int)threadIdx.x % 32) * 4;
        pack<T, 4> p;
        UNROLL
        for (int j = 0; j < 4; j++) {
            p.v[j] = from_float<T>(weight[i][j] * factor);
        }
        if (c < pitch) {
            store<T, 4>(row + c, p);
        }
    }
}

/* p = soft-max of the scores, 0 for keys that the mask hides. A score of NaN makes its row NaN. */
template <typename T>
static __global__ void __launch_bounds__(ROW_WARPS * 32, 3) weigh_rows(score_rows s, T *p)
{
    const int row = (int)(blockIdx.x * ROW_WARPS + threadIdx.x / 32), query = s.first + row;
    if (row >= s.rows) {
        return; /* the whole warp */
    }
    const int64_t at = ((int64_t)blockIdx.y * s.rows + row) * s.pitch;
    const int seen = s.causal ? query + 1 : s.keys, last = (s.pitch - 1) / PIECE;
    float score[HELD][4], top = -INFINITY, base = 0.0f, share = 0.0f;
    for (int piece = 0; piece <= last; piece++) {
        const float before = top;
        top = fmaxf(top, warp_max(load_scores(s.scores + at, piece, seen, s.scale, score)));
        base = top == -INFINITY ? 0.0f : top;
        share = share * expf(before - base) + raise_scores(base, score);
    }
    const float sum = warp_sum(share);
    store_weights(p + at, last, s.pitch, score, sum); /* still there */
    for (int piece = 0; piece < last; piece++) {
        (void)load_scores(s.scores + at, piece, seen, s.scale, score);
        (void)raise_scores(base, score);
        store_weights(p + at, piece, s.pitch, score, sum);
    }
    if (threadIdx.x % 32 == 0) {
        s.log_sums[(int64_t)blockIdx.y * s.queries + query] = top + logf(sum);
    }
}

/* ---- forward ---- */

/* Queries from `query` on of n heads, whose copies are in `w`. */
template <typename T>
static lvn_status attend_block(const lvn_kernel_args *args, const attention_heads &h,
                               const attention_work &w, int first, int n, int query, int rows)
{
    const lvn_dtype type = lvn_tensor_dtype(args->in[0]);
    const int columns = h.causal ? query + rows : h.keys, pitch = table_pitch(columns);
    heads_product scores = product_of_heads(n, type, LVN_F32, rows, columns, h.d);
    scores.a = rows_of<T>(w.q, query, h.queries, h.d);
    scores.b = transposed(rows_of<T>(w.k, 0, h.keys, h.d));
    scores.y = matrix_of(w.scores, pitch, rows);
    LVN_TRY(lvnc_multiply_heads(args, scores, w.product));
    const score_rows s = {w.scores, rows,     pitch,   query,
                          h.keys,   h.causal, h.scale, h.log_sums + (int64_t)first * h.queries,
                          h.queries};
    LVN_TRY(launch(args->stream, args->op->name, weigh_rows<T>,
                   dim3(blocks_for(rows, ROW_WARPS), (unsigned)n), ROW_WARPS * 32, 0, s,
                   static_cast<T *>(w.p)));
    heads_product y = product_of_heads(n, type, type, rows, h.e, columns);
    y.a = matrix_of(w.p, pitch, rows);
    y.b = rows_of<T>(w.v, 0, h.keys, h.e);
    y.y = rows_of<T>(w.y, query, h.queries, h.e);
    return lvnc_multiply_heads(args, y, w.product);
}

template <typename T>
static lvn_status forward(const lvn_kernel_args *args, const attention_heads &h)
{
    const attention_plan plan = lvnc_plan_attention(h, lvn_tensor_dtype(args->in[0]), false);
    lvnc_scratch s = lvnc_scratch_of(args);
    const attention_work w = lvnc_attention_work(h, plan, false, &s);
    const int all = (int)(h.samples * h.heads);
    for (int first = 0; first < all; first += plan.heads) {
        const int n = all - first < plan.heads ? all - first : plan.heads;
        LVN_TRY(lvnc_gather_heads<T>(args, h, h.q, first, n, h.queries, h.d, w.q));
        LVN_TRY(lvnc_gather_heads<T>(args, h, h.k, first, n, h.keys, h.d, w.k));
        LVN_TRY(lvnc_gather_heads<T>(args, h, h.v, first, n, h.keys, h.e, w.v));
        for (int query = 0; query < h.queries; query += plan.block) {
            const int left = h.queries - query, rows = left < plan.block ? left : plan.block;
            LVN_TRY(attend_block<T>(args, h, w, first, n, query, rows));
        }
        LVN_TRY((lvnc_scatter_heads<T, T>(args, h, w.y, h.y, first, n, h.queries, h.e)));
    }
    return LVN_OK;
}

lvn_status lvnc_attention_products(const lvn_kernel_args *args, attention_heads h)
{
    return lvn_tensor_dtype(args->in[0]) == LVN_BF16 ? forward<bf16>(args, h)
                                                     : forward<f16>(args, h);
}

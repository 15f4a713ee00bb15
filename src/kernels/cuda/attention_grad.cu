/* The gradient of attention (attention.cuh): with p the probabilities, s the scores,
 *     dv = p^T dy,   ds = p (dy v^T - dy . y) scale,   dq = ds k,   dk = ds^T q.
 * One pass has a tile of queries and goes over the keys for dq, another one a tile of keys and goes
 * over the queries for dk and dv; so every sum has its order. */
#include "attention_products.cuh"
#include "attention_wide.cuh"

/* ---- dq ---- */

/* A block: HEIGHT queries of one head. */
template <typename T, int WIDTH, int HEIGHT>
static __global__ void __launch_bounds__(THREADS) slopes_of_queries(attention_heads h, int tiles)
{
    enum { R = HEIGHT / LINES };
    SHARED_BYTES(four, q);
    const auto dy = q + HEIGHT * WIDTH / 4, k = dy + HEIGHT * WIDTH / 4, v = k + TILE * WIDTH / 4,
               p = v + TILE * WIDTH / 4;
    const head_tile at = find_head(h, tiles);
    const int first = (tiles - 1 - at.tile) * HEIGHT, line = (int)threadIdx.x / LANES,
              lane = (int)threadIdx.x % LANES;
    const int end = h.causal ? min(first + HEIGHT, h.keys) : h.keys;
    float log_sum[R], mean[R], sum[R][WIDTH / LANES];
    int seen[R];
    UNROLL
    for (int r = 0; r < R; r++) {
        const int row = first + line * R + r;
        const bool there = row < h.queries;
        seen[r] = !there ? 0 : h.causal ? row + 1 : h.keys;
        log_sum[r] = there ? h.log_sums[at.both * h.queries + row] : 0.0f;
        mean[r] = there ? h.means[at.both * h.queries + row] : 0.0f;
        UNROLL
        for (int c = 0; c < WIDTH / LANES; c++) {
            sum[r][c] = 0.0f;
        }
    }
    load_tile<WIDTH, HEIGHT>(q, R, head_data<const T>(h.q, at), h.q.step, first, h.queries, h.d);
    load_tile<WIDTH, HEIGHT>(dy, R, head_data<const T>(h.dy, at), h.dy.step, first, h.queries, h.e);
    for (int key = 0; key < end; key += TILE) {
        load_tile<WIDTH, TILE>(k, EACH, head_data<const T>(h.k, at), h.k.step, key, h.keys, h.d);
        load_tile<WIDTH, TILE>(v, EACH, head_data<const T>(h.v, at), h.v.step, key, h.keys, h.e);
        __syncthreads();
        float score[R][EACH], slope[R][EACH];
        dot_rows<WIDTH, R>(q, k, score);
        dot_rows<WIDTH, R>(dy, v, slope);
        UNROLL
        for (int r = 0; r < R; r++) {
            UNROLL
            for (int j = 0; j < EACH; j++) {
                const bool sees = key + lane * EACH + j < seen[r];
                const float weight = sees ? expf(score[r][j] * h.scale - log_sum[r]) : 0.0f;
                slope[r][j] = sees ? weight * (slope[r][j] - mean[r]) * h.scale : 0.0f;
            }
        }
        put_weights<R>(p, slope);
        __syncwarp(); /* which has all slopes of its rows */
        add_rows<WIDTH, R>(p, k, sum);
        __syncthreads(); /* all have read k and v */
    }
    store_rows<WIDTH, R>(head_data<T>(h.dq, at), h.dq.step, first, h.queries, h.d, sum);
}

/* ---- dk, dv ---- */

/* Of R keys and a tile of queries: scores become probabilities, growths (dy . v) become slopes. */
template <int R>
__device__ __forceinline__ void probabilities(const attention_heads &h, const head_tile &at,
                                              int first, int query, float score[R][EACH],
                                              float growth[R][EACH])
{
    const int line = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;
    UNROLL
    for (int j = 0; j < EACH; j++) {
        const int t = query + lane * EACH + j;
        const bool there = t < h.queries;
        const float log_sum = there ? h.log_sums[at.both * h.queries + t] : 0.0f,
                    mean = there ? h.means[at.both * h.queries + t] : 0.0f;
        UNROLL
        for (int r = 0; r < R; r++) {
            const int key = first + line * R + r;
            const bool sees = there && key < h.keys && (!h.causal || key <= t);
            score[r][j] = sees ? expf(score[r][j] * h.scale - log_sum) : 0.0f;
            growth[r][j] = sees ? score[r][j] * (growth[r][j] - mean) * h.scale : 0.0f;
        }
    }
}

/* A block: HEIGHT keys of one head. */
template <typename T, int WIDTH, int HEIGHT>
static __global__ void __launch_bounds__(THREADS) slopes_of_keys(attention_heads h, int tiles)
{
    enum { R = HEIGHT / LINES };
    SHARED_BYTES(four, k);
    const auto v = k + HEIGHT * WIDTH / 4, q = v + HEIGHT * WIDTH / 4, dy = q + TILE * WIDTH / 4,
               p = dy + TILE * WIDTH / 4;
    const head_tile at = find_head(h, tiles);
    const int first = at.tile * HEIGHT;
    float dk[R][WIDTH / LANES], dv[R][WIDTH / LANES];
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int c = 0; c < WIDTH / LANES; c++) {
            dk[r][c] = dv[r][c] = 0.0f;
        }
    }
    load_tile<WIDTH, HEIGHT>(k, R, head_data<const T>(h.k, at), h.k.step, first, h.keys, h.d);
    load_tile<WIDTH, HEIGHT>(v, R, head_data<const T>(h.v, at), h.v.step, first, h.keys, h.e);
    for (int query = h.causal ? first / TILE * TILE : 0; query < h.queries; query += TILE) {
        load_tile<WIDTH, TILE>(q, EACH, head_data<const T>(h.q, at), h.q.step, query, h.queries,
                               h.d);
        load_tile<WIDTH, TILE>(dy, EACH, head_data<const T>(h.dy, at), h.dy.step, query, h.queries,
                               h.e);
        __syncthreads();
        float score[R][EACH], slope[R][EACH];
        dot_rows<WIDTH, R>(k, q, score);
        dot_rows<WIDTH, R>(v, dy, slope);
        probabilities<R>(h, at, first, query, score, slope);
        put_weights<R>(p, score);
        __syncwarp();
        add_rows<WIDTH, R>(p, dy, dv);
        __syncwarp();
        put_weights<R>(p, slope);
        __syncwarp();
        add_rows<WIDTH, R>(p, q, dk);
        __syncthreads(); /* all have read q and dy */
    }
    if (h.dk.data != NULL) {
        store_rows<WIDTH, R>(head_data<T>(h.dk, at), h.dk.step, first, h.keys, h.d, dk);
    }
    if (h.dv.data != NULL) {
        store_rows<WIDTH, R>(head_data<T>(h.dv, at), h.dv.step, first, h.keys, h.e, dv);
    }
}

/* ---- launching ---- */

template <typename T>
static lvn_status narrow_slopes(const lvn_kernel_args *args, attention_heads h)
{
    const int64_t all = h.samples * h.heads;
    WITH_WIDTH(h, 64, 32, {
        const size_t shared =
            (2 * HEIGHT * WIDTH + 2 * TILE * WIDTH + HEIGHT * TILE) * sizeof(float);
        const int of_queries = (h.queries + HEIGHT - 1) / HEIGHT,
                  of_keys = (h.keys + HEIGHT - 1) / HEIGHT;
        LVN_TRY(check_blocks(args, h, of_queries > of_keys ? of_queries : of_keys));
        LVN_TRY(launch(args->stream, "attention_grad", slopes_of_queries<T, WIDTH, HEIGHT>,
                       (unsigned)(all * of_queries), THREADS, shared, h, of_queries));
        return h.dk.data == NULL && h.dv.data == NULL
                   ? LVN_OK
                   : launch(args->stream, "attention_grad", slopes_of_keys<T, WIDTH, HEIGHT>,
                            (unsigned)(all * of_keys), THREADS, shared, h, of_keys);
    });
}

template <typename T> static lvn_status backward(const lvn_kernel_args *args, attention_heads h)
{
    LVN_TRY(find_means<T>(args, h));
    return h.d > MOST_WIDTH || h.e > MOST_WIDTH ? wide_slopes<T>(args, h)
                                                : narrow_slopes<T>(args, h);
}

/* dy, then the inputs of the forward pass, y and the log-sums at `kept`. */
static lvn_status run(const lvn_kernel_args *args, attention_heads h, int kept)
{
    h.dy = plain_view(args->in[0]);
    h.y = plain_view(args->in[kept]);
    h.log_sums = const_cast<float *>(in<float>(args, kept + 1));
    const lvn_dtype type = lvn_tensor_dtype(args->in[0]);
    lvn_status s = LVN_OK;
    if (lvnc_cudnn_attention(args, h, type, true, &s)) {
        return s;
    }
    if (lvnc_plan_attention(h, type, true).heads > 0) {
        return lvnc_attention_products_grad(args, h);
    }
    h.means = static_cast<float *>(args->workspace);
    WITH_FLOAT(type, T, return backward<T>(args, h));
}

static attention_heads heads_apart(const lvn_kernel_args *args)
{
    attention_heads h = heads_of(args, 1, false);
    h.dq = plain_view(args->out[0]);
    h.dk = plain_view(args->out[1]);
    h.dv = plain_view(args->out[2]);
    return h;
}

static attention_heads heads_packed(const lvn_kernel_args *args)
{
    attention_heads h = heads_of(args, 1, true);
    h.dq = part_view(args->out[0], 0);
    h.dk = part_view(args->out[0], 1);
    h.dv = part_view(args->out[0], 2);
    return h;
}

static lvn_status run_attention_grad(const lvn_kernel_args *args)
{
    return run(args, heads_apart(args), 4);
}

static lvn_status run_attention_qkv_grad(const lvn_kernel_args *args)
{
    return run(args, heads_packed(args), 2);
}

static size_t bytes_of(const lvn_kernel_args *args, const attention_heads &h)
{
    const lvn_dtype type = lvn_tensor_dtype(args->in[0]);
    const attention_plan plan = lvnc_plan_attention(h, type, true);
    const size_t own =
        plan.heads > 0 ? plan.bytes : (size_t)(h.samples * h.heads * h.queries) * sizeof(float);
    return larger_of(own, lvnc_cudnn_attention_bytes(h, type, true));
}

static size_t bytes_of_attention(const lvn_kernel_args *args)
{
    return bytes_of(args, heads_apart(args));
}

static size_t bytes_of_attention_qkv(const lvn_kernel_args *args)
{
    return bytes_of(args, heads_packed(args));
}

/* f32 also beside 16-bit tensors: the log-sums */
static const lvn_backend_kernel kernels[] = {
    {"attention_grad", run_attention_grad, FLOATS, 1u << 5, bytes_of_attention},
    {"attention_qkv_grad", run_attention_qkv_grad, FLOATS, 1u << 3, bytes_of_attention_qkv},
};
extern const kernel_rows rows_attention_grad;
const kernel_rows rows_attention_grad = ROWS(kernels);

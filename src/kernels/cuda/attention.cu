/* Attention, forward (attention.cuh). */
#include "attention_products.cuh"
#include "attention_wide.cuh"

/* A running soft-max of R rows: maximum of the scores so far, the thread's share of the sum of
 * e^(score - maximum), and the weighted sum of v. */
template <int WIDTH, int R> struct running {
    float top[R], share[R], sum[R][WIDTH / LANES];
};

template <int WIDTH, int R> __device__ __forceinline__ void start(running<WIDTH, R> &s)
{
    UNROLL
    for (int r = 0; r < R; r++) {
        s.top[r] = -INFINITY;
        s.share[r] = 0.0f;
        UNROLL
        for (int c = 0; c < WIDTH / LANES; c++) {
            s.sum[r][c] = 0.0f;
        }
    }
}

/* Scores of keys from `first` on become weights under the new maxima; what was added before is
 * scaled to these. Keys from seen[r] on have no weight. A score of NaN makes its row NaN. */
template <int WIDTH, int R>
__device__ __forceinline__ void weigh(running<WIDTH, R> &s, float score[R][EACH], float scale,
                                      int first, const int seen[R])
{
    const int column = first + (int)threadIdx.x % LANES * EACH;
    UNROLL
    for (int r = 0; r < R; r++) {
        float top = s.top[r];
        UNROLL
        for (int j = 0; j < EACH; j++) {
            score[r][j] = column + j < seen[r] ? score[r][j] * scale : -INFINITY;
            top = fmaxf(top, score[r][j]);
        }
        top = lanes_max(top);
        const float base = top == -INFINITY ? 0.0f : top, shrink = expf(s.top[r] - base);
        s.top[r] = top;
        s.share[r] *= shrink;
        UNROLL
        for (int j = 0; j < EACH; j++) {
            score[r][j] = expf(score[r][j] - base);
            s.share[r] += score[r][j];
        }
        UNROLL
        for (int c = 0; c < WIDTH / LANES; c++) {
            s.sum[r][c] *= shrink;
        }
    }
}

template <int WIDTH, int R, typename T>
__device__ __forceinline__ void finish(const attention_heads &h, const head_tile &at,
                                       running<WIDTH, R> &s, int first)
{
    const int lane = (int)threadIdx.x % LANES, line = (int)threadIdx.x / LANES;
    UNROLL
    for (int r = 0; r < R; r++) {
        const float all = lanes_sum(s.share[r]);
        UNROLL
        for (int c = 0; c < WIDTH / LANES; c++) {
            s.sum[r][c] /= all;
        }
        const int row = first + line * R + r;
        if (lane == 0 && row < h.queries) {
            h.log_sums[at.both * h.queries + row] = s.top[r] + logf(all);
        }
    }
    store_rows<WIDTH, R>(head_data<T>(h.y, at), h.y.step, first, h.queries, h.e, s.sum);
}

/* A block: HEIGHT queries of one head; those with the most keys first. */
template <typename T, int WIDTH, int HEIGHT>
static __global__ void __launch_bounds__(THREADS) attend(attention_heads h, int tiles)
{
    enum { R = HEIGHT / LINES };
    SHARED_BYTES(four, q);
    const auto k = q + HEIGHT * WIDTH / 4, v = k + TILE * WIDTH / 4, p = v + TILE * WIDTH / 4;
    const head_tile at = find_head(h, tiles);
    const int first = (tiles - 1 - at.tile) * HEIGHT, line = (int)threadIdx.x / LANES;
    const int end = h.causal ? min(first + HEIGHT, h.keys) : h.keys;
    int seen[R];
    UNROLL
    for (int r = 0; r < R; r++) {
        seen[r] = h.causal ? min(first + line * R + r + 1, h.keys) : h.keys;
    }
    running<WIDTH, R> state;
    start(state);
    load_tile<WIDTH, HEIGHT>(q, R, head_data<const T>(h.q, at), h.q.step, first, h.queries, h.d);
    for (int key = 0; key < end; key += TILE) {
        load_tile<WIDTH, TILE>(k, EACH, head_data<const T>(h.k, at), h.k.step, key, h.keys, h.d);
        load_tile<WIDTH, TILE>(v, EACH, head_data<const T>(h.v, at), h.v.step, key, h.keys, h.e);
        __syncthreads();
        float score[R][EACH];
        dot_rows<WIDTH, R>(q, k, score);
        weigh(state, score, h.scale, key, seen);
        put_weights<R>(p, score);
        __syncwarp(); /* which has all weights of its rows */
        add_rows<WIDTH, R>(p, v, state.sum);
        __syncthreads(); /* all have read k and v */
    }
    finish<WIDTH, R, T>(h, at, state, first);
}

template <typename T> static lvn_status forward(const lvn_kernel_args *args, attention_heads h)
{
    if (h.d > MOST_WIDTH || h.e > MOST_WIDTH) {
        return wide_attend<T>(args, h);
    }
    WITH_WIDTH(h, 64, 64, {
        const int tiles = (h.queries + HEIGHT - 1) / HEIGHT;
        LVN_TRY(check_blocks(args, h, tiles));
        return launch(args->stream, "attention", attend<T, WIDTH, HEIGHT>,
                      (unsigned)(h.samples * h.heads * tiles), THREADS,
                      (HEIGHT * WIDTH + 2 * TILE * WIDTH + HEIGHT * TILE) * sizeof(float), h,
                      tiles);
    });
}

static lvn_status run(const lvn_kernel_args *args, bool packed)
{
    attention_heads h = heads_of(args, 0, packed);
    h.y = plain_view(args->out[0]);
    h.log_sums = out<float>(args, 1);
    const lvn_dtype type = lvn_tensor_dtype(args->in[0]);
    lvn_status s = LVN_OK;
    if (lvnc_cudnn_attention(args, h, type, false, &s)) {
        return s;
    }
    if (lvnc_plan_attention(h, type, false).heads > 0) {
        return lvnc_attention_products(args, h);
    }
    WITH_FLOAT(type, T, return forward<T>(args, h));
}

static lvn_status run_attention(const lvn_kernel_args *args)
{
    return run(args, false);
}

static lvn_status run_attention_qkv(const lvn_kernel_args *args)
{
    return run(args, true);
}

static size_t bytes_of(const lvn_kernel_args *args, bool packed)
{
    const attention_heads h = heads_of(args, 0, packed);
    const lvn_dtype type = lvn_tensor_dtype(args->in[0]);
    return larger_of(lvnc_plan_attention(h, type, false).bytes,
                     lvnc_cudnn_attention_bytes(h, type, false));
}

static size_t bytes_of_attention(const lvn_kernel_args *args)
{
    return bytes_of(args, false);
}

static size_t bytes_of_attention_qkv(const lvn_kernel_args *args)
{
    return bytes_of(args, true);
}

static const lvn_backend_kernel kernels[] = {
    {"attention", run_attention, FLOATS, 0, bytes_of_attention},
    {"attention_qkv", run_attention_qkv, FLOATS, 0, bytes_of_attention_qkv},
};
extern const kernel_rows rows_attention;
const kernel_rows rows_attention = ROWS(kernels);

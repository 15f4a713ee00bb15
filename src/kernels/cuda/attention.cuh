/* Scaled dot-product attention (Vaswani et al. 2017, eq. 1), tile by tile with running maxima and
 * sums, so that no table of all scores exists (Dao et al. 2022, "FlashAttention"); the gradient
 * finds the probabilities again from the logarithms of their sums. Everything between loading and
 * storing is f32.
 *
 *   attention.cu         forward
 *   attention_grad.cu    gradient
 *   attention_wide.cuh   both for heads of more than 128 features
 *   attention_products*  both in 16 bits for long sequences, by products of matrices instead
 *   cudnn_attention.cu   both in 16 bits by the library's fused engines, where it has the problem
 *
 * A block of THREADS threads works on HEIGHT positions, the rows, and goes over tiles of TILE other
 * ones, the columns. Its threads form LINES x LANES; each has R = HEIGHT / LINES rows by EACH
 * columns of the scores, and of R rows of features those packs that are LANES apart. Features are
 * padded with zeros to WIDTH. */
#ifndef LEVIN_KERNELS_CUDA_ATTENTION_CUH
#define LEVIN_KERNELS_CUDA_ATTENTION_CUH

#include "cuda.cuh"

enum { THREADS = 128, LANES = 8, LINES = THREADS / LANES };
enum { TILE = 32, EACH = TILE / LANES, MOST_WIDTH = 128 };

typedef pack<float, 4> four;

/* A tensor seen head by head: rows of positions, elements from one sample or head to the next. */
struct head_view {
    void *data; /* NULL: not wanted */
    int64_t step, sample, head;
};

struct attention_heads {
    int64_t samples, heads;
    int queries, keys, d, e; /* d: features of q and k; e: of v, y */
    float scale;
    bool causal;
    head_view q, k, v, y, dy, dq, dk, dv;
    float *log_sums; /* (samples, heads, queries) */
    float *means;    /* of the gradient: dy . y of each query */
};

/* ---- arguments ---- */

static inline head_view plain_view(const lvn_tensor *t)
{
    head_view v = {NULL, 0, 0, 0};
    if (t != NULL) {
        v.data = const_cast<void *>(lvn_const_data(t));
        v.head = lvn_size(t, 3);
        v.step = lvn_size(t, 2) * v.head;
        v.sample = lvn_size(t, 1) * v.step;
    }
    return v;
}

/* Part 0, 1, 2 of a packed tensor (N, T, 3, H, D): q, k, v. */
static inline head_view part_view(const lvn_tensor *t, int which)
{
    const int64_t width = lvn_size(t, 3) * lvn_size(t, 4);
    head_view v;
    v.data = static_cast<char *>(const_cast<void *>(lvn_const_data(t))) +
             (size_t)(which * width) * lvn_dtype_size(lvn_tensor_dtype(t));
    v.head = lvn_size(t, 4);
    v.step = 3 * width;
    v.sample = lvn_size(t, 1) * v.step;
    return v;
}

/* q, k, v are inputs first to first + 2, or parts of input `first`. */
static inline attention_heads heads_of(const lvn_kernel_args *args, int first, bool packed)
{
    const lvn_attention_attr &a = attr_of<lvn_attention_attr>(args);
    const lvn_tensor *q = args->in[first], *k = args->in[first + (packed ? 0 : 1)],
                     *v = args->in[first + (packed ? 0 : 2)];
    const int last = packed ? 4 : 3;
    attention_heads h = attention_heads();
    h.samples = lvn_size(q, 0);
    h.heads = lvn_size(q, last - 1);
    h.queries = (int)lvn_size(q, 1);
    h.keys = (int)lvn_size(k, 1);
    h.d = (int)lvn_size(q, last);
    h.e = (int)lvn_size(v, last);
    h.scale = (float)a.scale;
    h.causal = a.causal;
    h.q = packed ? part_view(q, 0) : plain_view(q);
    h.k = packed ? part_view(q, 1) : plain_view(k);
    h.v = packed ? part_view(q, 2) : plain_view(v);
    return h;
}

/* The head that a block works on, and its tile of so many. */
struct head_tile {
    int64_t sample, head, both; /* both: of all heads of all samples */
    int tile;
};

__device__ __forceinline__ head_tile find_head(const attention_heads &h, int tiles)
{
    head_tile at;
    at.both = blockIdx.x / (unsigned)tiles;
    at.tile = (int)(blockIdx.x % (unsigned)tiles);
    at.sample = at.both / h.heads;
    at.head = at.both % h.heads;
    return at;
}

template <typename T>
__device__ __forceinline__ T *head_data(const head_view &v, const head_tile &at)
{
    return static_cast<T *>(v.data) + at.sample * v.sample + at.head * v.head;
}

/* A launch takes so many blocks of a head. */
static inline lvn_status check_blocks(const lvn_kernel_args *args, const attention_heads &h,
                                      int64_t blocks)
{
    if (h.samples * h.heads * blocks > INT32_MAX) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: %lld samples of %lld heads with %d positions are too many", args->op->name,
                 (long long)h.samples, (long long)h.heads, h.queries);
    }
    return LVN_OK;
}

/* ---- cuDNN's (cudnn_attention.cu) ---- */

/* Scratch memory, from shapes and type alone. 0: never computed there. */
size_t lvnc_cudnn_attention_bytes(const attention_heads &h, lvn_dtype type, bool gradient);
/* False: it was not computed, the caller does. */
bool lvnc_cudnn_attention(const lvn_kernel_args *args, const attention_heads &h, lvn_dtype type,
                          bool gradient, lvn_status *status);
static inline size_t larger_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- of the gradient ---- */

/* A warp: dy . y of one query. */
template <typename T> static __global__ void row_means(attention_heads h, int64_t rows)
{
    const int64_t row = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 32;
    if (row >= rows) {
        return; /* the whole warp */
    }
    head_tile at;
    at.both = row / h.queries;
    at.tile = (int)(row % h.queries);
    at.sample = at.both / h.heads;
    at.head = at.both % h.heads;
    const T *dy = head_data<const T>(h.dy, at) + at.tile * h.dy.step,
            *y = head_data<const T>(h.y, at) + at.tile * h.y.step;
    float sum = 0.0f;
    for (int i = (int)threadIdx.x % 32; i < h.e; i += 32) {
        sum = fmaf(to_float(dy[i]), to_float(y[i]), sum);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) {
        h.means[row] = sum;
    }
}

template <typename T>
static lvn_status find_means(const lvn_kernel_args *args, const attention_heads &h)
{
    const int64_t rows = h.samples * h.heads * h.queries;
    return launch(args->stream, "attention_grad", row_means<T>, blocks_for(rows, THREADS / 32),
                  THREADS, 0, h, rows);
}

/* ---- tiles in shared memory: rows of WIDTH / 4 packs ----
 * Pack c of row r lies at c ^ (r / group mod 8), so that threads that read the same pack of rows
 * `group` apart read different banks. */

template <int WIDTH> __device__ __forceinline__ int pack_at(int row, int c, int group)
{
    return row * (WIDTH / 4) + (c ^ (row / group & 7));
}

/* Packs of 4 features from memory; `width` of them are there. */
template <typename T> __device__ __forceinline__ four load_four(const T *row, int first, int width)
{
    four x = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (width % 4 == 0) { /* then every row starts at a whole pack */
        if (first < width) {
            const pack<T, 4> v = load<T, 4>(row + first);
            UNROLL
            for (int i = 0; i < 4; i++) {
                x.v[i] = to_float(v.v[i]);
            }
        }
        return x;
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        x.v[i] = first + i < width ? to_float(row[first + i]) : 0.0f;
    }
    return x;
}

template <typename T>
__device__ __forceinline__ void store_four(T *row, int first, int width, const float x[4])
{
    if (width % 4 == 0) {
        if (first < width) {
            pack<T, 4> v;
            UNROLL
            for (int i = 0; i < 4; i++) {
                v.v[i] = from_float<T>(x[i]);
            }
            store<T, 4>(row + first, v);
        }
        return;
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        if (first + i < width) {
            row[first + i] = from_float<T>(x[i]);
        }
    }
}

/* Rows [first, first + N) of a head, zeros from row `end` on; by the whole block. */
template <int WIDTH, int N, typename T, typename A>
__device__ __forceinline__ void load_tile(A to, int group, const T *from, int64_t step, int first,
                                          int end, int width)
{
    UNROLL
    for (int i = (int)threadIdx.x; i < N * WIDTH / 4; i += THREADS) {
        const int row = i / (WIDTH / 4), c = i % (WIDTH / 4);
        four x = {{0.0f, 0.0f, 0.0f, 0.0f}};
        if (first + row < end) {
            x = load_four(from + (first + row) * step, 4 * c, width);
        }
        to[pack_at<WIDTH>(row, c, group)] = x;
    }
}

/* score[r][j] = row r of a . row j of b, over the features */
template <int WIDTH, int R, typename A, typename B>
__device__ __forceinline__ void dot_rows(A a, B b, float score[R][EACH])
{
    const int lane = (int)threadIdx.x % LANES, line = (int)threadIdx.x / LANES;
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int j = 0; j < EACH; j++) {
            score[r][j] = 0.0f;
        }
    }
    for (int c = 0; c < WIDTH / 4; c++) {
        four column[EACH];
        UNROLL
        for (int j = 0; j < EACH; j++) {
            column[j] = b[pack_at<WIDTH>(lane * EACH + j, c, EACH)];
        }
        UNROLL
        for (int r = 0; r < R; r++) {
            const four row = a[pack_at<WIDTH>(line * R + r, c, R)];
            UNROLL
            for (int j = 0; j < EACH; j++) {
                UNROLL
                for (int i = 0; i < 4; i++) {
                    score[r][j] = fmaf(row.v[i], column[j].v[i], score[r][j]);
                }
            }
        }
    }
}

/* sum[r][.] += weights p (HEIGHT x TILE) of row r times the rows of b; packs lane + m LANES */
template <int WIDTH, int R, typename P, typename B>
__device__ __forceinline__ void add_rows(P p, B b, float sum[R][WIDTH / LANES])
{
    enum { PACKS = WIDTH / 4 / LANES };
    const int lane = (int)threadIdx.x % LANES, line = (int)threadIdx.x / LANES;
    for (int k = 0; k < TILE / 4; k++) {
        four weight[R];
        UNROLL
        for (int r = 0; r < R; r++) {
            weight[r] = p[(line * R + r) * (TILE / 4) + k];
        }
        UNROLL
        for (int i = 0; i < 4; i++) {
            UNROLL
            for (int m = 0; m < PACKS; m++) {
                const four x = b[pack_at<WIDTH>(4 * k + i, lane + m * LANES, EACH)];
                UNROLL
                for (int r = 0; r < R; r++) {
                    UNROLL
                    for (int f = 0; f < 4; f++) {
                        sum[r][4 * m + f] = fmaf(weight[r].v[i], x.v[f], sum[r][4 * m + f]);
                    }
                }
            }
        }
    }
}

/* The thread's weights, for add_rows. */
template <int R, typename P>
__device__ __forceinline__ void put_weights(P p, const float weight[R][EACH])
{
    static_assert(EACH == 4, "a thread's columns are a pack");
    const int lane = (int)threadIdx.x % LANES, line = (int)threadIdx.x / LANES;
    UNROLL
    for (int r = 0; r < R; r++) {
        p[(line * R + r) * (TILE / 4) + lane] =
            four{{weight[r][0], weight[r][1], weight[r][2], weight[r][3]}};
    }
}

/* The thread's sums, as rows of a head. */
template <int WIDTH, int R, typename T>
__device__ __forceinline__ void store_rows(T *to, int64_t step, int first, int end, int width,
                                           const float sum[R][WIDTH / LANES])
{
    const int lane = (int)threadIdx.x % LANES, line = (int)threadIdx.x / LANES;
    UNROLL
    for (int r = 0; r < R; r++) {
        const int row = first + line * R + r;
        UNROLL
        for (int m = 0; m < WIDTH / 4 / LANES; m++) {
            if (row < end) {
                store_four(to + row * step, 4 * (lane + m * LANES), width, sum[r] + 4 * m);
            }
        }
    }
}

/* Over the LANES threads that share rows; in all of them. */
__device__ __forceinline__ float lanes_sum(float x)
{
    UNROLL
    for (int apart = LANES / 2; apart > 0; apart /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, apart);
    }
    return x;
}
__device__ __forceinline__ float lanes_max(float x)
{
    UNROLL
    for (int apart = LANES / 2; apart > 0; apart /= 2) {
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, apart));
    }
    return x;
}

/* ... with constants WIDTH and HEIGHT for heads of up to 128 features */
#define WITH_WIDTH(h, height, height_128, ...)                                                     \
    do {                                                                                           \
        const int lvnc_most = (h).d > (h).e ? (h).d : (h).e;                                       \
        if (lvnc_most <= 32) {                                                                     \
            enum { WIDTH = 32, HEIGHT = height };                                                  \
            __VA_ARGS__                                                                            \
        } else if (lvnc_most <= 64) {                                                              \
            enum { WIDTH = 64, HEIGHT = height };                                                  \
            __VA_ARGS__                                                                            \
        } else {                                                                                   \
            enum { WIDTH = 128, HEIGHT = height_128 };                                             \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    } while (0)

#endif

/* Attention of heads of any width, a query or a key to a block: for more than 128 features, which
 * are rare. */
#ifndef LEVIN_KERNELS_CUDA_ATTENTION_WIDE_CUH
#define LEVIN_KERNELS_CUDA_ATTENTION_WIDE_CUH

#include "attention.cuh"

/* A thread holds HELD features of a result, THREADS apart; more take further passes. */
enum { HELD = 8, PASS = HELD * THREADS };

template <typename T> __device__ __forceinline__ float dot_features(const T *a, const T *b, int n)
{
    float sum = 0.0f;
    for (int i = 0; i < n; i++) {
        sum = fmaf(to_float(a[i]), to_float(b[i]), sum);
    }
    return sum;
}

__device__ __forceinline__ float block_max(float x) /* NaN counts for nothing */
{
    SHARED(float, part, THREADS / 32);
    x = warp_max(x);
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x / 32] = x;
    }
    __syncthreads();
    for (int i = 0; i < THREADS / 32; i++) {
        x = fmaxf(x, (float)part[i]);
    }
    __syncthreads(); /* the next call writes `part` */
    return x;
}

/* sum[m] += weight[j] * feature first + m THREADS of row j, for n rows */
template <typename T, typename A>
__device__ __forceinline__ void add_features(A weight, int n, const T *rows, int64_t step,
                                             int first, int width, float sum[HELD])
{
    for (int j = 0; j < n; j++) {
        const float w = weight[j];
        UNROLL
        for (int m = 0; m < HELD; m++) {
            const int f = first + m * THREADS;
            sum[m] = f < width ? fmaf(w, to_float(rows[j * step + f]), sum[m]) : 0.0f;
        }
    }
}

template <typename T>
__device__ __forceinline__ void store_features(T *row, int first, int width, const float sum[HELD],
                                               float divisor)
{
    UNROLL
    for (int m = 0; m < HELD; m++) {
        const int f = first + m * THREADS;
        if (f < width) {
            row[f] = from_float<T>(sum[m] / divisor);
        }
    }
}

/* ---- forward ---- */

/* A block: one query of one head. */
template <typename T> static __global__ void attend_wide(attention_heads h)
{
    SHARED(float, weight, THREADS);
    const head_tile at = find_head(h, h.queries);
    const int t = at.tile, seen = h.causal ? min(t + 1, h.keys) : h.keys, me = (int)threadIdx.x;
    const T *q = head_data<const T>(h.q, at) + t * h.q.step, *k = head_data<const T>(h.k, at),
            *v = head_data<const T>(h.v, at);
    for (int pass = 0; pass < max(h.e, 1); pass += PASS) {
        float top = -INFINITY, share = 0.0f, sum[HELD] = {0.0f};
        for (int key = 0; key < seen; key += THREADS) {
            const bool mine = key + me < seen;
            const float score =
                mine ? h.scale * dot_features(q, k + (key + me) * h.k.step, h.d) : -INFINITY;
            const float before = top;
            top = fmaxf(top, block_max(score));
            const float base = top == -INFINITY ? 0.0f : top, shrink = expf(before - base),
                        w = expf(score - base);
            share = share * shrink + w;
            weight[me] = w;
            for (int m = 0; m < HELD; m++) {
                sum[m] *= shrink;
            }
            __syncthreads();
            add_features(weight, min((int)THREADS, seen - key), v + key * h.v.step, h.v.step,
                         pass + me, h.e, sum);
            __syncthreads();
        }
        const float all = block_sum(share);
        store_features(head_data<T>(h.y, at) + t * h.y.step, pass + me, h.e, sum, all);
        if (pass == 0 && me == 0) {
            h.log_sums[at.both * h.queries + t] = top + logf(all);
        }
    }
}

template <typename T>
static lvn_status wide_attend(const lvn_kernel_args *args, const attention_heads &h)
{
    LVN_TRY(check_blocks(args, h, h.queries));
    return launch(args->stream, "attention", attend_wide<T>,
                  (unsigned)(h.samples * h.heads * h.queries), THREADS, 0, h);
}

/* ---- gradient ---- */

/* The probability p of a key for a query, and the slope of their score (times scale). */
template <typename T>
__device__ __forceinline__ void one_slope(const attention_heads &h, const head_tile &at, int t,
                                          int key, float *p, float *slope)
{
    const float score = dot_features(head_data<const T>(h.q, at) + t * h.q.step,
                                     head_data<const T>(h.k, at) + key * h.k.step, h.d),
                grown = dot_features(head_data<const T>(h.dy, at) + t * h.dy.step,
                                     head_data<const T>(h.v, at) + key * h.v.step, h.e);
    const int64_t row = at.both * h.queries + t;
    *p = expf(h.scale * score - h.log_sums[row]);
    *slope = *p * (grown - h.means[row]) * h.scale;
}

/* A block: dq of one query. */
template <typename T> static __global__ void slopes_of_query_wide(attention_heads h)
{
    SHARED(float, weight, THREADS);
    const head_tile at = find_head(h, h.queries);
    const int t = at.tile, seen = h.causal ? min(t + 1, h.keys) : h.keys, me = (int)threadIdx.x;
    for (int pass = 0; pass < h.d; pass += PASS) {
        float sum[HELD] = {0.0f};
        for (int key = 0; key < seen; key += THREADS) {
            float p = 0.0f, slope = 0.0f;
            if (key + me < seen) {
                one_slope<T>(h, at, t, key + me, &p, &slope);
            }
            weight[me] = slope;
            __syncthreads();
            add_features(weight, min((int)THREADS, seen - key),
                         head_data<const T>(h.k, at) + key * h.k.step, h.k.step, pass + me, h.d,
                         sum);
            __syncthreads();
        }
        store_features(head_data<T>(h.dq, at) + t * h.dq.step, pass + me, h.d, sum, 1.0f);
    }
}

/* A block: dk and dv of one key. */
template <typename T> static __global__ void slopes_of_key_wide(attention_heads h)
{
    SHARED(float, weight, THREADS);
    SHARED(float, steep, THREADS);
    const head_tile at = find_head(h, h.keys);
    const int key = at.tile, me = (int)threadIdx.x, begin = h.causal ? key : 0;
    for (int pass = 0; pass < max(h.d, h.e); pass += PASS) {
        float dk[HELD] = {0.0f}, dv[HELD] = {0.0f};
        for (int t = begin; t < h.queries; t += THREADS) {
            float p = 0.0f, slope = 0.0f;
            if (t + me < h.queries) {
                one_slope<T>(h, at, t + me, key, &p, &slope);
            }
            weight[me] = p;
            steep[me] = slope;
            __syncthreads();
            const int n = min((int)THREADS, h.queries - t);
            add_features(weight, n, head_data<const T>(h.dy, at) + t * h.dy.step, h.dy.step,
                         pass + me, h.e, dv);
            add_features(steep, n, head_data<const T>(h.q, at) + t * h.q.step, h.q.step, pass + me,
                         h.d, dk);
            __syncthreads();
        }
        if (h.dk.data != NULL) {
            store_features(head_data<T>(h.dk, at) + key * h.dk.step, pass + me, h.d, dk, 1.0f);
        }
        if (h.dv.data != NULL) {
            store_features(head_data<T>(h.dv, at) + key * h.dv.step, pass + me, h.e, dv, 1.0f);
        }
    }
}

template <typename T>
static lvn_status wide_slopes(const lvn_kernel_args *args, const attention_heads &h)
{
    const int64_t all = h.samples * h.heads;
    LVN_TRY(check_blocks(args, h, h.queries > h.keys ? h.queries : h.keys));
    LVN_TRY(launch(args->stream, "attention_grad", slopes_of_query_wide<T>,
                   (unsigned)(all * h.queries), THREADS, 0, h));
    return h.dk.data == NULL && h.dv.data == NULL
               ? LVN_OK
               : launch(args->stream, "attention_grad", slopes_of_key_wide<T>,
                        (unsigned)(all * h.keys), THREADS, 0, h);
}

#endif

/* Batch norm's values per channel, as forward and gradient kernels both compute them: where relu's
 * gate is computed again, it opens for the values that the forward pass gave. */
#ifndef LEVIN_KERNELS_CUDA_BATCH_NORM_CUH
#define LEVIN_KERNELS_CUDA_BATCH_NORM_CUH

#include "columns.cuh"

struct channel_vectors {
    const float *gamma, *beta, *mean;
    const float *rstd; /* 1 / sqrt(variance + eps), or NULL: from `variance` */
    const float *variance;
    float eps;
};

template <int V> struct channel_values {
    float mean[V], rstd[V], scale[V], beta[V];
};

template <int V>
__device__ __forceinline__ void load_channels(channel_values<V> &to, const channel_vectors &from,
                                              int64_t column)
{
    load_floats<V>(from.mean, column, to.mean);
    load_floats<V>(from.beta, column, to.beta);
    load_floats<V>(from.gamma, column, to.scale);
    load_floats<V>(from.rstd != NULL ? from.rstd : from.variance, column, to.rstd);
    UNROLL
    for (int v = 0; v < V; v++) {
        to.rstd[v] = from.rstd != NULL ? to.rstd[v] : 1.0f / sqrtf(to.rstd[v] + from.eps);
        to.scale[v] *= to.rstd[v];
    }
}

template <int V>
__device__ __forceinline__ float normalised(const channel_values<V> &c, int v, float x)
{
    return fmaf(x - c.mean[v], c.scale[v], c.beta[v]);
}

/* The table of a tensor whose last axis are channels. */
static inline int64_t channels_of(const lvn_tensor *x)
{
    return lvn_size(x, lvn_ndim(x) - 1);
}
static inline int64_t rows_of(const lvn_tensor *x)
{
    const int64_t channels = channels_of(x);
    return channels == 0 ? 0 : lvn_numel(x) / channels;
}

/* For sums, and for passes that load and store. */
template <typename T, int V> static inline column_grid sums_grid(const lvn_tensor *x)
{
    return walk_columns(1, rows_of(x), channels_of(x), V, 4, 128);
}
template <typename T, int V> static inline column_grid pass_grid(const lvn_tensor *x)
{
    return walk_columns(1, rows_of(x), channels_of(x), V, 4, 16);
}
/* Bytes of the partial sums over x. */
static inline size_t sums_bytes(const lvn_tensor *x)
{
    const int64_t size = (int64_t)lvn_dtype_size(lvn_tensor_dtype(x)), wide = 16 / size;
    return partial_bytes(walk_columns(1, rows_of(x), channels_of(x),
                                      channels_of(x) % wide == 0 ? (int)wide : 1, 4, 128));
}

#endif

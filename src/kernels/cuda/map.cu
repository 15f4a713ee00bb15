/* Ops of one shape, each element by itself: the unary ops and the gradients of kernels/map.def,
 * whose formulas hold here with the functions below; cast; dropout. All but the powers and the
 * sines take as long as their tensors take to be read and written, so a thread moves packs of 16
 * bytes. */
#include "cuda.cuh"

/* A thread has PACKS packs, THREADS packs apart, which it reads before it writes the first. */
enum { THREADS = 128, PACKS = 2 };

/* ---- the functions of map.def ---- */

#define exp_one expf
#define log_one logf
#define tanh_one tanhf
#define erf_one erff
#define normal_cdf normcdff
#define pow_one powf
#define __builtin_sqrtf sqrtf
#define __builtin_fabsf fabsf
#define __builtin_rintf rintf
#define __builtin_floorf floorf
#define __builtin_ceilf ceilf
#define at_element(p, i) (p)
#define sin_near(x, ahead) sin_or_cos<ahead>(x)
#define sin_far(x, ahead) sin_or_cos<ahead>(x)

/* CUDA's own take any finite x: what is near and far is the same to them. */
template <int ahead> __device__ __forceinline__ float sin_or_cos(float x)
{
    return ahead == 0 ? sinf(x) : cosf(x);
}

__device__ __forceinline__ float sigmoid_one(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* d(x cdf(x)) = cdf(x) + x pdf(x) */
__device__ __forceinline__ float gelu_slope(float x)
{
    return normcdff(x) + x * (expf(-0.5f * (x * x)) * 0x1.988454p-2f);
}

/* sqrt(2 / pi) (x + 0.044715 x^3) */
__device__ __forceinline__ float gelu_inner(float x)
{
    return 0x1.988454p-1f * (x + 0.044715f * (x * x * x));
}

/* With s = 1 / (1 + e^-2u): s + x s (1 - s) 2 u'; beyond +-16 the second term is 0, and its factors
 * overflow. */
__device__ __forceinline__ float gelu_tanh_slope(float x)
{
    const float s = sigmoid_one(2.0f * gelu_inner(x));
    const float slope = 0x1.988454p0f * (1.0f + 0.134145f * (x * x));
    const float bend = x * (s * (1.0f - s)) * slope;
    return s + (fabsf(x) > 16.0f ? 0.0f : bend);
}

__device__ __forceinline__ float silu_slope(float x)
{
    const float s = sigmoid_one(x);
    return s * (1.0f + x * (1.0f - s));
}

__device__ __forceinline__ float softplus_one(float x)
{
    return (x < 0.0f ? 0.0f : x) + log1pf(expf(-fabsf(x)));
}

__device__ __forceinline__ float clamp_between(float x, float low, float high)
{
    const float above = x < low ? low : x; /* a NaN stays */
    return above > high ? high : above;
}

__device__ __forceinline__ float pow_slope_scalar(float dy, float x, float e)
{
    return e == 0.0f ? 0.0f : dy * (e * powf(x, e - 1.0f));
}

/* ---- kernels ---- */

/* Elements in a pack, of the larger type 16 bytes. */
template <typename X, typename Y> struct lanes {
    enum { N = 16 / (sizeof(X) > sizeof(Y) ? sizeof(X) : sizeof(Y)) };
};

/* The first element of pack p of a thread; `each`: elements in a pack. */
__device__ __forceinline__ int64_t place_of(int p, int each)
{
    return ((int64_t)blockIdx.x * (THREADS * PACKS) + p * THREADS + (int)threadIdx.x) * each;
}

/* y = f(x); `whole`: the addresses are multiples of 16 bytes. */
template <typename F, typename X, typename Y>
static __global__ void __launch_bounds__(THREADS)
    map(const X *__restrict__ x, Y *__restrict__ y, int64_t n, F f, bool whole)
{
    const int V = lanes<X, Y>::N;
    pack<X, V> in[PACKS];
    UNROLL
    for (int p = 0; p < PACKS; p++) {
        const int64_t at = place_of(p, V);
        if (whole && at + V <= n) {
            in[p] = load<X, V>(x + at);
        }
    }
    UNROLL
    for (int p = 0; p < PACKS; p++) {
        const int64_t at = place_of(p, V);
        if (whole && at + V <= n) {
            pack<Y, V> out;
            UNROLL
            for (int i = 0; i < V; i++) {
                out.v[i] = from_float<Y>(f(to_float(in[p].v[i])));
            }
            store<Y, V>(y + at, out);
        } else {
            for (int64_t i = at; i < n && i < at + V; i++) {
                y[i] = from_float<Y>(f(to_float(x[i])));
            }
        }
    }
}

/* y = f(a, b) of one shape */
template <typename F, typename T>
static __global__ void __launch_bounds__(THREADS)
    map_pair(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ y, int64_t n, F f,
             bool whole)
{
    const int V = lanes<T, T>::N;
    pack<T, V> left[PACKS], right[PACKS];
    UNROLL
    for (int p = 0; p < PACKS; p++) {
        const int64_t at = place_of(p, V);
        if (whole && at + V <= n) {
            left[p] = load<T, V>(a + at);
            right[p] = load<T, V>(b + at);
        }
    }
    UNROLL
    for (int p = 0; p < PACKS; p++) {
        const int64_t at = place_of(p, V);
        if (whole && at + V <= n) {
            pack<T, V> out;
            UNROLL
            for (int i = 0; i < V; i++) {
                out.v[i] = from_float<T>(f(to_float(left[p].v[i]), to_float(right[p].v[i])));
            }
            store<T, V>(y + at, out);
        } else {
            for (int64_t i = at; i < n && i < at + V; i++) {
                y[i] = from_float<T>(f(to_float(a[i]), to_float(b[i])));
            }
        }
    }
}

/* A part of another tensor may begin anywhere. */
static bool is_whole(const void *p)
{
    return (reinterpret_cast<uintptr_t>(p) & 15) == 0;
}

template <typename X, typename Y, typename F>
static lvn_status map_of(const lvn_kernel_args *args, F f)
{
    const int64_t n = lvn_numel(args->out[0]);
    const X *x = in<X>(args, 0);
    Y *y = out<Y>(args, 0);
    return launch(args->stream, args->op->name, map<F, X, Y>,
                  blocks_for(n, THREADS * PACKS * lanes<X, Y>::N), THREADS, 0, x, y, n, f,
                  is_whole(x) && is_whole(y));
}

template <typename F> static lvn_status run_unary(const lvn_kernel_args *args, F f)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return (map_of<T, T>(args, f)));
}

template <typename T, typename F> static lvn_status map_pair_of(const lvn_kernel_args *args, F f)
{
    const int64_t n = lvn_numel(args->out[0]);
    const T *a = in<T>(args, 0), *b = in<T>(args, 1);
    T *y = out<T>(args, 0);
    return launch(args->stream, args->op->name, map_pair<F, T>,
                  blocks_for(n, THREADS * PACKS * lanes<T, T>::N), THREADS, 0, a, b, y, n, f,
                  is_whole(a) && is_whole(b) && is_whole(y));
}

template <typename F> static lvn_status run_pair(const lvn_kernel_args *args, F f)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return map_pair_of<T>(args, f));
}

/* ---- one function per row of map.def; attributes are rounded to f32 ---- */

#define UNARY_OF(op, first, second, expression)                                                    \
    struct unary_##op {                                                                            \
        float p0, p1;                                                                              \
        __device__ __forceinline__ float operator()(float x) const                                 \
        {                                                                                          \
            return expression;                                                                     \
        }                                                                                          \
    };                                                                                             \
    static lvn_status run_##op(const lvn_kernel_args *args)                                        \
    {                                                                                              \
        return run_unary(args, unary_##op{(float)(first), (float)(second)});                       \
    }
#define PAIR_OF(op, first, second, expression)                                                     \
    struct pair_##op {                                                                             \
        float p0, p1;                                                                              \
        __device__ __forceinline__ float operator()(float dy, float k) const                       \
        {                                                                                          \
            return expression;                                                                     \
        }                                                                                          \
    };                                                                                             \
    static lvn_status run_##op(const lvn_kernel_args *args)                                        \
    {                                                                                              \
        return run_pair(args, pair_##op{(float)(first), (float)(second)});                         \
    }
#define LVNI_UNARY(op, expression) UNARY_OF(op, 0, 0, expression)
#define LVNI_UNARY_ATTR(op, type, first, second, expression)                                       \
    UNARY_OF(op, attr_of<type>(args).first, attr_of<type>(args).second, expression)
#define LVNI_PAIR(op, expression) PAIR_OF(op, 0, 0, expression)
#define LVNI_PAIR_ATTR(op, type, first, second, expression)                                        \
    PAIR_OF(op, attr_of<type>(args).first, attr_of<type>(args).second, expression)
#include "../map.def"

/* ---- cast ---- */

struct unchanged {
    __device__ __forceinline__ float operator()(float x) const
    {
        return x;
    }
};

/* Nothing here computes in f64. */
template <typename X> static __global__ void to_f64(const X *x, double *y, int64_t n)
{
    FOR_GRID (i, n) {
        y[i] = (double)to_float(x[i]);
    }
}

template <typename Y> static __global__ void from_f64(const double *x, Y *y, int64_t n)
{
    FOR_GRID (i, n) {
        y[i] = from_float<Y>((float)x[i]);
    }
}

template <typename Y> static lvn_status cast_f64(const lvn_kernel_args *args)
{
    const int64_t n = lvn_numel(args->out[0]);
    return launch(args->stream, "cast", from_f64<Y>, blocks_for(n, 256), 256, 0,
                  in<double>(args, 0), out<Y>(args, 0), n);
}

template <typename X> static lvn_status cast_from(const lvn_kernel_args *args)
{
    if (lvn_tensor_dtype(args->out[0]) == LVN_F64) {
        const int64_t n = lvn_numel(args->out[0]);
        return launch(args->stream, "cast", to_f64<X>, blocks_for(n, 256), 256, 0, in<X>(args, 0),
                      out<double>(args, 0), n);
    }
    WITH_FLOAT(lvn_tensor_dtype(args->out[0]), Y, return (map_of<X, Y>(args, unchanged())));
}

static lvn_status run_cast(const lvn_kernel_args *args)
{
    if (lvn_tensor_dtype(args->in[0]) == LVN_F64) {
        WITH_FLOAT(lvn_tensor_dtype(args->out[0]), Y, return cast_f64<Y>(args));
    }
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), X, return cast_from<X>(args));
}

/* ---- dropout ---- */

/* Four words for the elements 4 * number, ... (lvn_philox) */
__device__ __forceinline__ pack<uint32_t, 4> draw(const lvn_philox &rng, uint32_t number)
{
    uint32_t c0 = number, c1 = rng.c, c2 = rng.b, c3 = rng.a, k0 = rng.key[0], k1 = rng.key[1];
    UNROLL
    for (int round = 0; round < 10; round++) {
        const uint64_t product0 = (uint64_t)0xD2511F53u * c0;
        const uint64_t product1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(product1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(product0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)product1;
        c3 = (uint32_t)product0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return pack<uint32_t, 4>{{c0, c1, c2, c3}};
}

/* A pack of elements is 4 or 8, the words of one number or two. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    dropout(const T *__restrict__ x, T *__restrict__ y, int64_t n, lvn_philox rng, float p,
            float scale, bool whole)
{
    const int V = lanes<T, T>::N;
    lvn_philox_resolve(&rng);
    UNROLL
    for (int k = 0; k < PACKS; k++) {
        const int64_t at = place_of(k, V);
        const bool full = whole && at + V <= n;
        pack<T, V> in, out;
        if (at >= n) {
            return;
        }
        if (full) {
            in = load<T, V>(x + at);
        }
        UNROLL
        for (int i = 0; i < V; i += 4) {
            const pack<uint32_t, 4> words = draw(rng, (uint32_t)((uint64_t)(at + i) / 4));
            UNROLL
            for (int j = 0; j < 4; j++) {
                const bool kept = (float)(int)(words.v[j] >> 8) * 0x1p-24f >= p;
                if (full) {
                    out.v[i + j] = from_float<T>(kept ? to_float(in.v[i + j]) * scale : 0.0f);
                } else if (at + i + j < n) {
                    y[at + i + j] = from_float<T>(kept ? to_float(x[at + i + j]) * scale : 0.0f);
                }
            }
        }
        if (full) {
            store<T, V>(y + at, out);
        }
    }
}

template <typename T> static lvn_status dropout_of(const lvn_kernel_args *args)
{
    const lvn_dropout_attr &attr = attr_of<lvn_dropout_attr>(args);
    const int64_t n = lvn_numel(args->out[0]);
    const T *x = in<T>(args, 0);
    T *y = out<T>(args, 0);
    return launch(args->stream, "dropout", dropout<T>,
                  blocks_for(n, THREADS * PACKS * lanes<T, T>::N), THREADS, 0, x, y, n, attr.rng,
                  (float)attr.p, (float)(1.0 / (1.0 - attr.p)), is_whole(x) && is_whole(y));
}

static lvn_status run_dropout(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return dropout_of<T>(args));
}

static const lvn_backend_kernel kernels[] = {
#define LVNI_UNARY(op, expression) {#op, run_##op, FLOATS, 0, NULL},
#define LVNI_UNARY_ATTR(op, type, first, second, expression) LVNI_UNARY(op, expression)
#define LVNI_PAIR(op, expression) {#op, run_##op, FLOATS, 0, NULL},
#define LVNI_PAIR_ATTR(op, type, first, second, expression) LVNI_PAIR(op, expression)
#include "../map.def"
    {"cast", run_cast, FLOATS, 0, NULL},
    {"dropout", run_dropout, FLOATS, 0, NULL},
};
extern const kernel_rows rows_map;
const kernel_rows rows_map = ROWS(kernels);

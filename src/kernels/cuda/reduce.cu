/* Sums, means, variances, norms and maxima over axes, and the two directions of broadcasting. */
#include "device.cuh"
#include "reduce.cuh"
#include "walk.cuh"

namespace
{

/* ---- sums, means, norms ---- */

/* X is the type of x, or float: what a step before has left. */
template <typename X, typename Y> struct sums {
    typedef float acc;
    typedef X from;
    const X *x;
    Y *y;
    float divisor;
    bool square, root;
    __device__ static __forceinline__ acc none()
    {
        return 0.0f;
    }
    __device__ __forceinline__ acc term(X v, int64_t) const
    {
        const float t = to_float(v);
        return square ? t * t : t;
    }
    __device__ __forceinline__ void put(int64_t i, acc a) const
    {
        y[i] = from_float<Y>(root ? sqrtf(a) : a / divisor);
    }
};

template <typename T> struct make_sums {
    typedef float acc;
    const T *x;
    T *y;
    float divisor;
    bool square, root;
    sums<T, T> only() const
    {
        return sums<T, T>{x, y, divisor, square, root};
    }
    sums<T, float> first(float *to) const
    {
        return sums<T, float>{x, to, 1.0f, square, false};
    }
    sums<float, float> middle(const float *from, float *to) const
    {
        return sums<float, float>{from, to, 1.0f, false, false};
    }
    sums<float, T> last(const float *from) const
    {
        return sums<float, T>{from, y, divisor, false, root};
    }
};

template <typename T>
static lvn_status run_sums(const lvn_kernel_args *args, const plan &p, float divisor)
{
    return run_plan(args, p, make_sums<T>{in<T>(args, 0), out<T>(args, 0), divisor, false, false});
}

static uint32_t axes_mask(const lvn_kernel_args *args)
{
    return attr_of<lvn_axes_attr>(args).mask;
}

/* Axes that sum_to sums over: leading ones, and those that become 1. */
static uint32_t sum_to_mask(const lvn_kernel_args *args)
{
    const lvn_shape_attr &to = attr_of<lvn_shape_attr>(args);
    const lvn_tensor *x = args->in[0];
    const int lead = lvn_ndim(x) - to.ndim;
    uint32_t mask = 0;
    for (int i = 0; i < lvn_ndim(x); i++) {
        mask |= i < lead || to.shape[i - lead] != lvn_size(x, i) ? 1u << i : 0u;
    }
    return mask;
}

static lvn_status run_sum(const lvn_kernel_args *args)
{
    const plan p = plan_for(args->in[0], axes_mask(args), sizeof(float));
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return run_sums<T>(args, p, 1.0f));
}

static lvn_status run_sum_to(const lvn_kernel_args *args)
{
    const plan p = plan_for(args->in[0], sum_to_mask(args), sizeof(float));
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return run_sums<T>(args, p, 1.0f));
}

static lvn_status run_mean(const lvn_kernel_args *args)
{
    const plan p = plan_for(args->in[0], axes_mask(args), sizeof(float));
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return run_sums<T>(args, p, (float)p.terms));
}

static lvn_status run_norm(const lvn_kernel_args *args)
{
    const plan p = plan_for(args->in[0], axes_mask(args), sizeof(float));
    return run_plan(args, p,
                    make_sums<float>{in<float>(args, 0), out<float>(args, 0), 1.0f, true, true});
}

static size_t sum_bytes(const lvn_kernel_args *args)
{
    return plan_bytes(plan_for(args->in[0], axes_mask(args), sizeof(float)), sizeof(float));
}

static size_t sum_to_bytes(const lvn_kernel_args *args)
{
    return plan_bytes(plan_for(args->in[0], sum_to_mask(args), sizeof(float)), sizeof(float));
}

/* ---- variances ---- */

/* In one pass, in f64: squares of f32 are exact there, and the difference keeps seven digits up to
 * a mean of 10^4 deviations. */
template <typename X, bool LAST> struct spread {
    typedef moments acc;
    typedef X from;
    const X *x;
    moments *part;
    float *y;
    double terms, divisor;
    __device__ static __forceinline__ acc none()
    {
        return moments{0.0, 0.0};
    }
    __device__ __forceinline__ acc term(float v, int64_t) const
    {
        return moments{(double)v, (double)v * (double)v};
    }
    __device__ __forceinline__ acc term(moments m, int64_t) const
    {
        return m;
    }
    __device__ __forceinline__ void put(int64_t i, acc a) const
    {
        if (!LAST) {
            part[i] = a;
            return;
        }
        const double far = a.squares - a.sum * a.sum / terms;
        y[i] = (float)((far < 0.0 ? 0.0 : far) / divisor);
    }
};

struct make_spread {
    typedef moments acc;
    const float *x;
    float *y;
    double terms, divisor;
    spread<float, true> only() const
    {
        return spread<float, true>{x, NULL, y, terms, divisor};
    }
    spread<float, false> first(moments *to) const
    {
        return spread<float, false>{x, to, NULL, terms, divisor};
    }
    spread<moments, false> middle(const moments *from, moments *to) const
    {
        return spread<moments, false>{from, to, NULL, terms, divisor};
    }
    spread<moments, true> last(const moments *from) const
    {
        return spread<moments, true>{from, NULL, y, terms, divisor};
    }
};

static plan plan_var(const lvn_kernel_args *args)
{
    return plan_for(args->in[0], attr_of<lvn_var_attr>(args).mask, sizeof(moments));
}

static lvn_status run_var(const lvn_kernel_args *args)
{
    const plan p = plan_var(args);
    const double terms = (double)p.terms, correction = attr_of<lvn_var_attr>(args).correction;
    return run_plan(
        args, p, make_spread{in<float>(args, 0), out<float>(args, 0), terms, terms - correction});
}

static size_t var_bytes(const lvn_kernel_args *args)
{
    return plan_bytes(plan_var(args), sizeof(moments));
}

/* ---- maxima ---- */

template <typename X, typename Y, bool LAST> struct largest {
    typedef best acc;
    typedef X from;
    const X *x;
    best *part;
    Y *y;
    int64_t *index; /* or NULL */
    __device__ static __forceinline__ acc none()
    {
        return best{-INFINITY, INT64_MAX};
    }
    __device__ __forceinline__ acc term(best b, int64_t) const
    {
        return b;
    }
    template <typename V> __device__ __forceinline__ acc term(V v, int64_t at) const
    {
        return best{to_float(v), at};
    }
    __device__ __forceinline__ void put(int64_t i, acc a) const
    {
        if (!LAST) {
            part[i] = a;
            return;
        }
        y[i] = from_float<Y>(a.value);
        if (index != NULL) {
            index[i] = a.at;
        }
    }
};

template <typename T> struct make_largest {
    typedef best acc;
    const T *x;
    T *y;
    int64_t *index;
    largest<T, T, true> only() const
    {
        return largest<T, T, true>{x, NULL, y, index};
    }
    largest<T, T, false> first(best *to) const
    {
        return largest<T, T, false>{x, to, NULL, NULL};
    }
    largest<best, T, false> middle(const best *from, best *to) const
    {
        return largest<best, T, false>{from, to, NULL, NULL};
    }
    largest<best, T, true> last(const best *from) const
    {
        return largest<best, T, true>{from, NULL, y, index};
    }
};

static lvn_status run_max(const lvn_kernel_args *args)
{
    const plan p = plan_for(args->in[0], axes_mask(args), sizeof(best));
    int64_t *index = args->out[1] == NULL ? NULL : out<int64_t>(args, 1);
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T,
               return run_plan(args, p, make_largest<T>{in<T>(args, 0), out<T>(args, 0), index}));
}

static size_t max_bytes(const lvn_kernel_args *args)
{
    return plan_bytes(plan_for(args->in[0], axes_mask(args), sizeof(best)), sizeof(best));
}

/* Every element of dx asks whether it was the maximum. */
template <typename T, typename I>
static __global__ void max_grad(const T *dy, const int64_t *index, T *dx, int64_t n, divisor size,
                                divisor inner, lvnc_alarm alarm)
{
    FOR_GRID (e, n) {
        const I row = divide((I)e, inner), i = (I)e - row * (I)inner.by, o = divide(row, size);
        const int64_t s = (int64_t)(row - o * (I)size.by), at = (int64_t)o * inner.by + (int64_t)i,
                      top = index[at];
        T d = from_float<T>(0.0f);
        if (top == s) {
            d = dy[at];
        }
        dx[e] = d;
        if (s == 0 && (top < 0 || top >= size.by)) {
            raise(alarm, LVNC_FAULT_INDEX, top, size.by, at);
        }
    }
}

template <typename T> static lvn_status run_max_grad_of(const lvn_kernel_args *args, int axis)
{
    const lvn_tensor *dx = args->out[0];
    const int64_t n = lvn_numel(dx);
    const divisor size = make_divisor(lvn_size(dx, axis)),
                  inner = make_divisor(sizes_after(dx, axis));
    WITH_INDEX(n, I,
               return launch(args->stream, "max_grad", max_grad<T, I>, blocks_for(n, THREADS),
                             THREADS, 0, in<T>(args, 0), in<int64_t>(args, 1), out<T>(args, 0), n,
                             size, inner, lvnc_alarm_of(args)));
}

static lvn_status run_max_grad(const lvn_kernel_args *args)
{
    const lvn_tensor *dy = args->in[0], *dx = args->out[0];
    const lvn_dtype dtype = lvn_tensor_dtype(dy);
    int axis = -1;
    for (int i = 0; i < lvn_ndim(dy); i++) {
        axis = lvn_size(dy, i) != lvn_size(dx, i) ? i : axis;
    }
    if (axis < 0) { /* the reduced axis has size 1: each element is its own maximum */
        return lvnc_copy(args->stream, lvn_data(args->out[0]), lvn_const_data(dy),
                         (size_t)lvn_numel(dy) * lvn_dtype_size(dtype));
    }
    WITH_FLOAT(dtype, T, return run_max_grad_of<T>(args, axis));
}

/* ---- broadcasting ---- */

/* Accesses of V equal elements. */
template <typename U, int V, typename I>
static __global__ void repeat(const U *x, U *y, int64_t n, walk w)
{
    FOR_GRID (i, n) {
        const U v = x[source_of(w, (I)i)];
        pack<U, V> all;
        for (int j = 0; j < V; j++) {
            all.v[j] = v;
        }
        reinterpret_cast<pack<U, V> *>(y)[i] = all;
    }
}

template <typename U, int V>
static lvn_status launch_repeat(const lvn_kernel_args *args, axes a, int64_t n)
{
    a.size[a.n - 1] /= V;
    const walk w = walk_of(a);
    WITH_INDEX(n, I,
               return launch(args->stream, "expand", repeat<U, V, I>, blocks_for(n / V, THREADS),
                             THREADS, 0, static_cast<const U *>(lvn_const_data(args->in[0])),
                             static_cast<U *>(lvn_data(args->out[0])), n / V, w));
}

static axes expand_axes(const lvn_tensor *x, const lvn_tensor *y)
{
    axes a = {};
    int64_t run = 1;
    a.n = lvn_ndim(y);
    for (int i = a.n - 1, k = lvn_ndim(x) - 1; i >= 0; i--, k--) {
        const int64_t own = k >= 0 ? lvn_size(x, k) : 1;
        a.size[i] = lvn_size(y, i);
        a.from[i] = own == 1 ? 0 : run;
        run *= own;
    }
    return a;
}

static lvn_status run_expand(const lvn_kernel_args *args)
{
    const lvn_tensor *x = args->in[0], *y = args->out[0];
    const int64_t n = lvn_numel(y);
    const int bytes = (int)lvn_dtype_size(lvn_tensor_dtype(x));
    axes a = expand_axes(x, y);
    if (n == 0) {
        return LVN_OK;
    }
    axes_join(&a);
    const int64_t last = a.n > 0 ? a.size[a.n - 1] : 1;
    if (a.n > 0 && a.from[a.n - 1] == 0 && last * bytes % 16 == 0) {
        return bytes == 4 ? launch_repeat<uint32_t, 4>(args, a, n)
                          : launch_repeat<uint16_t, 8>(args, a, n);
    }
    return launch_copy(args, a, bytes, lvn_const_data(x), 0, lvn_data(args->out[0]), n);
}

} // namespace

static const lvn_backend_kernel kernels[] = {
    {"sum_to", run_sum_to, FLOATS, 0, sum_to_bytes},
    {"expand", run_expand, FLOATS, 0, NULL},
    {"sum", run_sum, FLOATS, 0, sum_bytes},
    {"mean", run_mean, FLOATS, 0, sum_bytes},
    {"max", run_max, FLOATS, 0, max_bytes},
    {"max_grad", run_max_grad, FLOATS, 0, NULL},
    {"var", run_var, F32, 0, var_bytes},
    {"norm", run_norm, F32, 0, sum_bytes},
};
extern const kernel_rows rows_reduce;
const kernel_rows rows_reduce = ROWS(kernels);

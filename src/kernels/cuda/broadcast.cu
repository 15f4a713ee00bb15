/* Ops of two operands with broadcasting (the rows LVNI_BINARY and LVNI_COMPARE of
 * kernels/map.def, whose formulas hold here with the functions below), and where.
 *
 * Neighbouring axes that all operands walk alike become one: most shapes become one axis (one
 * shape, or a number on a side) or two (a row, a column). The innermost axis is cut into packs of
 * 16 bytes where it is a multiple of them. */
#include "cuda.cuh"
#include "division.cuh"

/* A thread has PACKS packs, THREADS packs apart, which it reads before it writes the first. */
enum { THREADS = 128, PACKS = 2, OPERANDS = 3 };

/* ---- the functions of map.def ---- */

#define pow_one powf

__device__ __forceinline__ float pow_slope_base(float a, float b)
{
    return b == 0.0f ? 0.0f : b * powf(a, b - 1.0f);
}

__device__ __forceinline__ float pow_slope_exponent(float a, float b)
{
    return a == 0.0f && b >= 0.0f ? 0.0f : powf(a, b) * logf(a);
}

/* A NaN on either side stays. */
__device__ __forceinline__ float smaller_of(float a, float b)
{
    return a < b || a != a ? a : b;
}

__device__ __forceinline__ float larger_of(float a, float b)
{
    return a > b || a != a ? a : b;
}

/* ---- which element of an operand belongs to an element of the result ---- */

/* The joined axes, the innermost one first; its items are packs, those of the others are places. */
struct walk {
    int axes;
    bool large;           /* 2^31 elements or more */
    bool moves[OPERANDS]; /* along the innermost axis; else one element stands for it */
    divisor axis[LVN_MAX_NDIM];
    int64_t step[OPERANDS][LVN_MAX_NDIM]; /* elements; 0 where broadcast */
};

/* from[k]: the element of operand k where item `item` begins. */
template <int N>
__device__ __forceinline__ void locate(const walk &w, int64_t item, int64_t from[N])
{
    UNROLL
    for (int k = 0; k < N; k++) {
        from[k] = 0;
    }
    UNROLL
    for (int i = 0; i < LVN_MAX_NDIM; i++) {
        if (i >= w.axes) {
            break;
        }
        const divisor &d = w.axis[i];
        int64_t next, place;
        if (w.large) {
            next = divide(item, d);
            place = item - next * d.by;
        } else {
            uint32_t rest;
            next = divide((uint32_t)item, d, &rest);
            place = rest;
        }
        UNROLL
        for (int k = 0; k < N; k++) {
            from[k] += place * w.step[k][i];
        }
        item = next;
    }
}

/* ---- ops: what a thread reads for V elements, and what it makes of them ---- */

template <int V, typename T> __device__ __forceinline__ pack<T, V> fetch(const T *p, bool moves)
{
    if (moves) {
        return load<T, V>(p);
    }
    pack<T, V> x;
    const T one = *p;
    UNROLL
    for (int i = 0; i < V; i++) {
        x.v[i] = one;
    }
    return x;
}

__device__ __forceinline__ int64_t number_of(int64_t x)
{
    return x;
}
template <typename T> __device__ __forceinline__ float number_of(T x)
{
    return to_float(x);
}

template <typename Y> __device__ __forceinline__ Y result_of(float x)
{
    return from_float<Y>(x);
}
template <typename Y> __device__ __forceinline__ Y result_of(bool x)
{
    return (Y)x;
}

template <typename F, typename A, typename Y> struct binary_op {
    enum { N = 2, LANES = 16 / sizeof(A) };
    const A *a, *b;
    Y *y; /* may be a */

    template <int V> struct operands {
        pack<A, V> a, b;
    };
    template <int V>
    __device__ __forceinline__ operands<V> read(const int64_t from[N], const walk &w) const
    {
        return operands<V>{fetch<V>(a + from[0], w.moves[0]), fetch<V>(b + from[1], w.moves[1])};
    }
    template <int V> __device__ __forceinline__ void write(int64_t at, const operands<V> &x) const
    {
        pack<Y, V> out;
        UNROLL
        for (int i = 0; i < V; i++) {
            out.v[i] = result_of<Y>(F::of(number_of(x.a.v[i]), number_of(x.b.v[i])));
        }
        store<Y, V>(y + at, out);
    }
};

/* T: bits of the size of an element */
template <typename T> struct where_op {
    enum { N = 3, LANES = 16 / sizeof(T) };
    const uint8_t *condition;
    const T *a, *b;
    T *y;

    template <int V> struct operands {
        pack<uint8_t, V> condition;
        pack<T, V> a, b;
    };
    template <int V>
    __device__ __forceinline__ operands<V> read(const int64_t from[N], const walk &w) const
    {
        return operands<V>{fetch<V>(condition + from[0], w.moves[0]),
                           fetch<V>(a + from[1], w.moves[1]), fetch<V>(b + from[2], w.moves[2])};
    }
    template <int V> __device__ __forceinline__ void write(int64_t at, const operands<V> &x) const
    {
        pack<T, V> out;
        UNROLL
        for (int i = 0; i < V; i++) {
            out.v[i] = x.condition.v[i] != 0 ? x.a.v[i] : x.b.v[i];
        }
        store<T, V>(y + at, out);
    }
};

/* ---- kernels ---- */

/* Of one axis: as many elements as there are, the last ones without a pack. */
template <typename Op>
static __global__ void __launch_bounds__(THREADS) flat(Op op, walk w, int64_t n)
{
    const int V = Op::LANES;
    const int64_t first = (int64_t)blockIdx.x * (THREADS * PACKS) + (int)threadIdx.x;
    int64_t from[Op::N];
    typename Op::template operands<V> x[PACKS];
    UNROLL
    for (int p = 0; p < PACKS; p++) {
        const int64_t at = (first + p * THREADS) * V;
        UNROLL
        for (int k = 0; k < Op::N; k++) {
            from[k] = w.moves[k] ? at : 0;
        }
        if (at + V <= n) {
            x[p] = op.template read<V>(from, w);
        }
    }
    UNROLL
    for (int p = 0; p < PACKS; p++) {
        const int64_t at = (first + p * THREADS) * V;
        if (at + V <= n) {
            op.template write<V>(at, x[p]);
            continue;
        }
        for (int64_t i = at; i < n; i++) {
            UNROLL
            for (int k = 0; k < Op::N; k++) {
                from[k] = w.moves[k] ? i : 0;
            }
            op.template write<1>(i, op.template read<1>(from, w));
        }
    }
}

/* Of any axes; `items`: of V elements each. */
template <int V, typename Op>
static __global__ void __launch_bounds__(THREADS) over_axes(Op op, walk w, int64_t items)
{
    const int64_t first = (int64_t)blockIdx.x * (THREADS * PACKS) + (int)threadIdx.x;
    typename Op::template operands<V> x[PACKS];
    UNROLL
    for (int p = 0; p < PACKS; p++) {
        const int64_t item = first + p * THREADS;
        if (item < items) {
            int64_t from[Op::N];
            locate<Op::N>(w, item, from);
            x[p] = op.template read<V>(from, w);
        }
    }
    UNROLL
    for (int p = 0; p < PACKS; p++) {
        const int64_t item = first + p * THREADS;
        if (item < items) {
            op.template write<V>(item * V, x[p]);
        }
    }
}

/* ---- on the host ---- */

/* In items of one element; divisors have their numbers alone. */
static walk join_axes(const lvn_tensor *const *t, int n, const lvn_tensor *y)
{
    walk w = walk();
    int64_t run[OPERANDS] = {1, 1, 1}, size[LVN_MAX_NDIM] = {1};
    for (int i = lvn_ndim(y) - 1; i >= 0; i--) {
        int64_t step[OPERANDS];
        bool alike = w.axes > 0;
        if (lvn_size(y, i) == 1) {
            continue;
        }
        for (int k = 0; k < n; k++) {
            const int own = i - (lvn_ndim(y) - lvn_ndim(t[k]));
            const int64_t own_size = own < 0 ? 1 : lvn_size(t[k], own);
            step[k] = own_size == 1 ? 0 : run[k];
            run[k] *= own_size;
            alike = alike && (step[k] == 0) == (w.step[k][w.axes - 1] == 0);
        }
        if (alike) {
            size[w.axes - 1] *= lvn_size(y, i);
            continue;
        }
        for (int k = 0; k < n; k++) {
            w.step[k][w.axes] = step[k];
        }
        size[w.axes++] = lvn_size(y, i);
    }
    w.axes = w.axes == 0 ? 1 : w.axes; /* one element */
    for (int i = 0; i < w.axes; i++) {
        w.axis[i].by = size[i];
    }
    for (int k = 0; k < n; k++) {
        w.moves[k] = w.step[k][0] != 0;
    }
    return w;
}

/* A part of another tensor may begin anywhere. */
static bool is_whole(const void *p)
{
    return (reinterpret_cast<uintptr_t>(p) & 15) == 0;
}

/* The same walk in items of V elements, for a result of n elements. */
static walk in_items(const walk &of, int64_t n, int V)
{
    walk w = of;
    w.large = n > 0x7fffffff;
    for (int k = 0; k < OPERANDS; k++) {
        w.step[k][0] *= V;
    }
    w.axis[0].by /= V;
    for (int i = 0; i < w.axes && !w.large; i++) {
        w.axis[i] = make_divisor(w.axis[i].by);
    }
    return w;
}

template <typename Op> static lvn_status run(const lvn_kernel_args *args, Op op)
{
    const lvn_tensor *y = args->out[0];
    const char *what = args->op->name;
    const int64_t n = lvn_numel(y);
    const int V = Op::LANES;
    if (n == 0) {
        return LVN_OK;
    }
    const walk w = join_axes(args->in, Op::N, y);
    bool whole = is_whole(lvn_const_data(y));
    for (int k = 0; k < Op::N; k++) {
        whole = whole && (!w.moves[k] || is_whole(lvn_const_data(args->in[k])));
    }
    if (whole && w.axes == 1) {
        return launch(args->stream, what, flat<Op>, blocks_for(n, THREADS * PACKS * V), THREADS, 0,
                      op, w, n);
    }
    if (whole && w.axis[0].by % V == 0) {
        return launch(args->stream, what, over_axes<Op::LANES, Op>,
                      blocks_for(n / V, THREADS * PACKS), THREADS, 0, op, in_items(w, n, V), n / V);
    }
    return launch(args->stream, what, over_axes<1, Op>, blocks_for(n, THREADS * PACKS), THREADS, 0,
                  op, in_items(w, n, 1), n);
}

template <typename F, typename A, typename Y>
static lvn_status run_types(const lvn_kernel_args *args)
{
    return run(args, binary_op<F, A, Y>{in<A>(args, 0), in<A>(args, 1), out<Y>(args, 0)});
}

template <typename F> static lvn_status run_binary(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return (run_types<F, T, T>(args)));
}

template <typename F> static lvn_status run_compare(const lvn_kernel_args *args)
{
    if (lvn_tensor_dtype(args->in[0]) == LVN_I64) {
        return run_types<F, int64_t, uint8_t>(args);
    }
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return (run_types<F, T, uint8_t>(args)));
}

/* ---- one function per row of map.def ---- */

#define LVNI_BINARY(op, expression)                                                                \
    struct binary_##op {                                                                           \
        __device__ static __forceinline__ float of(float a, float b)                               \
        {                                                                                          \
            return expression;                                                                     \
        }                                                                                          \
    };                                                                                             \
    static lvn_status run_##op(const lvn_kernel_args *args)                                        \
    {                                                                                              \
        return run_binary<binary_##op>(args);                                                      \
    }
#define LVNI_COMPARE(op, condition)                                                                \
    struct compare_##op {                                                                          \
        template <typename T> __device__ static __forceinline__ bool of(T a, T b)                  \
        {                                                                                          \
            return condition;                                                                      \
        }                                                                                          \
    };                                                                                             \
    static lvn_status run_##op(const lvn_kernel_args *args)                                        \
    {                                                                                              \
        return run_compare<compare_##op>(args);                                                    \
    }
#include "../map.def"

template <typename T> static lvn_status where_of(const lvn_kernel_args *args)
{
    return run(args,
               where_op<T>{in<uint8_t>(args, 0), in<T>(args, 1), in<T>(args, 2), out<T>(args, 0)});
}

static lvn_status run_where(const lvn_kernel_args *args)
{
    switch (lvn_dtype_size(lvn_tensor_dtype(args->out[0]))) {
    case 1: return where_of<uint8_t>(args);
    case 2: return where_of<uint16_t>(args);
    case 4: return where_of<uint32_t>(args);
    default: return where_of<uint64_t>(args);
    }
}

static const lvn_backend_kernel kernels[] = {
#define LVNI_BINARY(op, expression) {#op, run_##op, FLOATS, 0, NULL},
#define LVNI_COMPARE(op, condition) {#op, run_##op, FLOATS, 0, NULL},
#include "../map.def"
    {"where", run_where, FLOATS, 0, NULL},
};
extern const kernel_rows rows_broadcast;
const kernel_rows rows_broadcast = ROWS(kernels);

/* PReLU and its gradients, a pass each over tables of the numbers of the last axis as columns. The
 * gradient writes dx and adds the terms of dslope by columns (columns.cuh); one slope for all is
 * their sum over the columns, in a launch of one block. */
#include "columns.cuh"

/* launch() and others are instantiated with these types. */
namespace
{

/* The slopes of a thread's columns. */
template <int V>
__device__ __forceinline__ void load_slopes(const float *slope, bool one, int64_t column,
                                            float (&to)[V])
{
    if (one) {
        UNROLL
        for (int v = 0; v < V; v++) {
            to[v] = slope[0];
        }
    } else {
        load_floats<V>(slope, column, to);
    }
}

template <typename T, int V> struct forward_pass {
    const T *x;
    const float *slope;
    bool one; /* slope for all columns */
    T *y;
    struct item {
        pack<T, V> x;
    };
    struct state {
        float slope[V];
    };
    __device__ void begin(state &s, const column_place &p, const column_grid &) const
    {
        load_slopes<V>(slope, one, p.column, s.slope);
    }
    __device__ void load(item &i, int64_t e, int64_t) const
    {
        i.x = ::load<T, V>(x + e);
    }
    __device__ void use(state &s, const item &i, int64_t e) const
    {
        pack<T, V> to;
        UNROLL
        for (int k = 0; k < V; k++) {
            const float value = to_float(i.x.v[k]);
            to.v[k] = from_float<T>(value < 0.0f ? value * s.slope[k] : value);
        }
        store(y + e, to);
    }
};

/* s1: of x dy where x is not above 0; s2 is not used. */
template <typename T, int V> struct gradient_sums {
    const T *dy, *x;
    const float *slope;
    bool one;
    T *dx;
    struct item {
        pack<T, V> dy, x;
    };
    struct state {
        float s1[V], s2[V], slope[V];
    };
    __device__ void begin(state &s, const column_place &p, const column_grid &) const
    {
        load_slopes<V>(slope, one, p.column, s.slope);
    }
    __device__ void load(item &i, int64_t e, int64_t) const
    {
        i.dy = ::load<T, V>(dy + e);
        i.x = ::load<T, V>(x + e);
    }
    __device__ void use(state &s, const item &i, int64_t e) const
    {
        pack<T, V> to;
        UNROLL
        for (int k = 0; k < V; k++) {
            const float g = to_float(i.dy.v[k]), value = to_float(i.x.v[k]);
            const bool above = value > 0.0f;
            s.s1[k] += above ? 0.0f : g * value;
            to.v[k] = from_float<T>(above ? g : g * s.slope[k]);
        }
        store(dx + e, to);
    }
    __device__ float2 partial(double s1, double, int64_t, int64_t) const
    {
        return make_float2((float)s1, 0.0f);
    }
};

struct gradient_totals {
    float *dslope;   /* a column each, or NULL */
    double *columns; /* their sums, where one slope is for all */
    __device__ void add(double &a, double &, float2 part, int64_t, float2) const
    {
        a += (double)part.x;
    }
    __device__ void finish(int64_t, int64_t column, double a, double, float2) const
    {
        if (dslope != NULL) {
            dslope[column] = (float)a;
        } else {
            columns[column] = a;
        }
    }
};

__global__ void __launch_bounds__(COLUMN_THREADS)
    sum_columns(const double *columns, int64_t n, float *sum)
{
    double a = 0.0;
    for (int64_t i = (int)threadIdx.x; i < n; i += COLUMN_THREADS) {
        a += columns[i];
    }
    a = block_sum(a);
    if (threadIdx.x == 0) {
        *sum = (float)a;
    }
}

/* ---- launches ---- */

static int64_t columns_of(const lvn_tensor *x)
{
    return lvn_ndim(x) == 0 ? 1 : lvn_size(x, lvn_ndim(x) - 1);
}
static column_grid grid_of(const lvn_tensor *x, int wide, int most)
{
    const int64_t columns = columns_of(x);
    return walk_columns(1, columns == 0 ? 0 : lvn_numel(x) / columns, columns, wide, 4, most);
}
/* For sums. */
static column_grid sums_grid(const lvn_tensor *x)
{
    const int64_t wide = 16 / (int64_t)lvn_dtype_size(lvn_tensor_dtype(x));
    return grid_of(x, columns_of(x) % wide == 0 ? (int)wide : 1, 128);
}

template <typename T, int V> static lvn_status launch_forward(const lvn_kernel_args *args)
{
    typedef forward_pass<T, V> pass;
    const column_grid g = grid_of(args->in[0], V, 16);
    const pass f = {in<T>(args, 0), in<float>(args, 1), lvn_numel(args->in[1]) == 1,
                    out<T>(args, 0)};
    return launch(args->stream, args->op->name, column_pass<V, pass>, column_blocks(g),
                  COLUMN_THREADS, 0, f, g);
}
static lvn_status run_prelu(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T,
               WITH_PACKS(T, columns_of(args->in[0]), V, return (launch_forward<T, V>(args))));
}

template <typename T, int V> static lvn_status launch_sums(const lvn_kernel_args *args)
{
    typedef gradient_sums<T, V> sums;
    const column_grid g = sums_grid(args->in[1]);
    const sums f = {in<T>(args, 0), in<T>(args, 1), in<float>(args, 2), lvn_numel(args->in[2]) == 1,
                    out<T>(args, 0)};
    return launch(args->stream, args->op->name, column_sums<V, sums>, column_blocks(g),
                  COLUMN_THREADS, 0, f, g, static_cast<float2 *>(args->workspace));
}
static lvn_status write_dx(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[1]), T,
               WITH_PACKS(T, columns_of(args->in[1]), V, return (launch_sums<T, V>(args))));
}

/* Partial sums, then those of the columns. */
static size_t workspace(const lvn_kernel_args *args)
{
    return partial_bytes(sums_grid(args->in[1])) + (size_t)columns_of(args->in[1]) * sizeof(double);
}

static lvn_status run_prelu_grad(const lvn_kernel_args *args)
{
    const char *name = args->op->name;
    LVN_TRY(write_dx(args));
    float *dslope = out<float>(args, 1);
    if (dslope == NULL) {
        return LVN_OK;
    }
    const bool one = lvn_numel(args->in[2]) == 1;
    const column_grid g = sums_grid(args->in[1]);
    double *columns =
        reinterpret_cast<double *>(static_cast<char *>(args->workspace) + partial_bytes(g));
    const gradient_totals totals = {one ? NULL : dslope, columns};
    LVN_TRY(launch(args->stream, name, column_totals<gradient_totals>, total_blocks(g),
                   COLUMN_THREADS, 0, totals, g, static_cast<const float2 *>(args->workspace)));
    return one ? launch(args->stream, name, sum_columns, 1, COLUMN_THREADS, 0, columns, g.columns,
                        dslope)
               : LVN_OK;
}

} // namespace

static const lvn_backend_kernel kernels[] = {
    {"prelu", run_prelu, FLOATS, 2, NULL},
    {"prelu_grad", run_prelu_grad, FLOATS, 4, workspace},
};
extern const kernel_rows rows_prelu;
const kernel_rows rows_prelu = ROWS(kernels);

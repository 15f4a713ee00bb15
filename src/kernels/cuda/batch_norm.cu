/* Batch norm over all axes but the last, forward: statistics by one pass over x, then one pass that
 * writes y = relu?((x - mean) scale + beta + residual?), scale = gamma / sqrt(variance + eps). */
#include "batch_norm.cuh"

/* launch() and others are instantiated with these types. */
namespace
{

/* ---- statistics ---- */

struct train_totals {
    double n, eps;
    float *mean, *rstd, *unbiased;
    __device__ void add(double &a, double &b, float2 part, int64_t rows, float2 first) const
    {
        add_moments(a, b, part, (double)rows, first);
    }
    __device__ void finish(int64_t, int64_t column, double a, double b, float2 first) const
    {
        const moments m = join_moments(a, b, n, first);
        mean[column] = (float)m.mean;
        rstd[column] = (float)(1.0 / sqrt(m.m2 / n + eps));
        unbiased[column] = (float)(m.m2 / (n - 1.0));
    }
};

struct moments_totals {
    double n;
    float *mean, *variance;
    __device__ void add(double &a, double &b, float2 part, int64_t rows, float2 first) const
    {
        add_moments(a, b, part, (double)rows, first);
    }
    __device__ void finish(int64_t, int64_t column, double a, double b, float2 first) const
    {
        const moments m = join_moments(a, b, n, first);
        mean[column] = (float)m.mean;
        variance[column] = (float)(m.m2 / n);
    }
};

/* The statistics of x go where `totals` writes them. */
template <typename T, int V, typename F>
static lvn_status find_moments(const lvn_kernel_args *args, const F &totals)
{
    const column_grid g = sums_grid<T, V>(args->in[0]);
    const moment_sums<T, V> sums = {in<T>(args, 0)};
    float2 *partial = static_cast<float2 *>(args->workspace);
    const char *name = args->op->name;
    LVN_TRY(launch(args->stream, name, column_sums<V, moment_sums<T, V>>, column_blocks(g),
                   COLUMN_THREADS, 0, sums, g, partial));
    return launch(args->stream, name, column_totals<F>, total_blocks(g), COLUMN_THREADS, 0, totals,
                  g, partial);
}

static size_t workspace_of_x(const lvn_kernel_args *args)
{
    return sums_bytes(args->in[0]);
}

/* ---- y ---- */

template <typename T, int V, bool ADDS> struct normalise {
    const T *x, *residual;
    T *y;
    channel_vectors v;
    bool relu;
    struct item {
        pack<T, V> x, residual;
    };
    struct state {
        channel_values<V> c;
    };
    __device__ void begin(state &s, const column_place &p, const column_grid &) const
    {
        load_channels<V>(s.c, v, p.column);
    }
    __device__ void load(item &i, int64_t e, int64_t) const
    {
        i.x = ::load<T, V>(x + e);
        if (ADDS) {
            i.residual = ::load<T, V>(residual + e);
        }
    }
    __device__ void use(state &s, const item &i, int64_t e) const
    {
        pack<T, V> to;
        UNROLL
        for (int k = 0; k < V; k++) {
            float value = normalised(s.c, k, to_float(i.x.v[k]));
            if (ADDS) {
                value += to_float(i.residual.v[k]);
            }
            to.v[k] = from_float<T>(relu && value < 0.0f ? 0.0f : value); /* a NaN stays */
        }
        store_whole(y + e, to);
    }
};

template <typename T, int V>
static lvn_status write_y(const lvn_kernel_args *args, const channel_vectors &v, int residual)
{
    const column_grid g = pass_grid<T, V>(args->in[0]);
    const bool relu = attr_of<lvn_norm_attr>(args).relu;
    const T *x = in<T>(args, 0), *added = in<T>(args, residual);
    T *y = out<T>(args, 0);
    const char *name = args->op->name;
    if (added != NULL) {
        const normalise<T, V, true> pass = {x, added, y, v, relu};
        return launch(args->stream, name, column_pass<V, normalise<T, V, true>>, column_blocks(g),
                      COLUMN_THREADS, 0, pass, g);
    }
    const normalise<T, V, false> pass = {x, NULL, y, v, relu};
    return launch(args->stream, name, column_pass<V, normalise<T, V, false>>, column_blocks(g),
                  COLUMN_THREADS, 0, pass, g);
}

/* ---- ops ---- */

template <typename T, int V> static lvn_status train(const lvn_kernel_args *args)
{
    const train_totals totals = {(double)rows_of(args->in[0]), attr_of<lvn_norm_attr>(args).eps,
                                 out<float>(args, 1), out<float>(args, 2), out<float>(args, 3)};
    LVN_TRY((find_moments<T, V>(args, totals)));
    const channel_vectors v = {
        in<float>(args, 1), in<float>(args, 2), totals.mean, totals.rstd, NULL, 0.0f};
    return write_y<T, V>(args, v, 3);
}

static lvn_status run_train(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T,
               WITH_PACKS(T, channels_of(args->in[0]), V, return (train<T, V>(args))));
}

static lvn_status run_eval(const lvn_kernel_args *args)
{
    const channel_vectors v = {in<float>(args, 1), in<float>(args, 2),
                               in<float>(args, 3), NULL,
                               in<float>(args, 4), (float)attr_of<lvn_norm_attr>(args).eps};
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T,
               WITH_PACKS(T, channels_of(args->in[0]), V, return (write_y<T, V>(args, v, 5))));
}

static lvn_status run_moments(const lvn_kernel_args *args)
{
    const moments_totals totals = {(double)rows_of(args->in[0]), out<float>(args, 0),
                                   out<float>(args, 0) + channels_of(args->in[0])};
    WITH_FLOAT(
        lvn_tensor_dtype(args->in[0]), T,
        WITH_PACKS(T, channels_of(args->in[0]), V, return (find_moments<T, V>(args, totals))));
}

} // namespace

static const lvn_backend_kernel kernels[] = {
    {"batch_norm_train", run_train, FLOATS, 6, workspace_of_x},
    {"batch_norm_eval", run_eval, FLOATS, 30, NULL},
    {"batch_norm_moments", run_moments, FLOATS, 0, workspace_of_x},
};
extern const kernel_rows rows_batch_norm;
const kernel_rows rows_batch_norm = ROWS(kernels);

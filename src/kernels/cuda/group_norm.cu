/* Group norm (Wu & He 2018, eq. 1 to 7) of (samples, pixels, channels), forward and gradient. Each
 * sample is a table whose columns are summed (columns.cuh); a group's statistics come from those of
 * its channels. */
#include "columns.cuh"

/* launch() and others are instantiated with these types. */
namespace
{

enum { GROUP_THREADS = 128 };

struct group_job {
    int64_t samples, pixels, channels, groups, width; /* channels of a group */
    double eps;
    const float *gamma, *beta; /* NULL: ones, zeros */
    float *mean, *rstd;        /* (samples, groups) */
};

static group_job describe(const lvn_kernel_args *args, const lvn_tensor *x)
{
    const lvn_group_norm_attr &attr = attr_of<lvn_group_norm_attr>(args);
    group_job j;
    memset(&j, 0, sizeof j);
    j.samples = lvn_size(x, 0);
    j.channels = lvn_size(x, lvn_ndim(x) - 1);
    j.pixels = 1;
    for (int i = 1; i < lvn_ndim(x) - 1; i++) {
        j.pixels *= lvn_size(x, i);
    }
    j.groups = attr.groups;
    j.width = j.channels / j.groups;
    j.eps = attr.eps;
    return j;
}

static column_grid sums_grid(const group_job &j, int wide)
{
    return walk_columns(j.samples, j.pixels, j.channels, wide, 4, 128);
}
static column_grid pass_grid(const group_job &j, int wide)
{
    return walk_columns(j.samples, j.pixels, j.channels, wide, 4, 16);
}
static size_t sums_bytes(const group_job &j, const lvn_tensor *x)
{
    const int64_t wide = 16 / (int64_t)lvn_dtype_size(lvn_tensor_dtype(x));
    return partial_bytes(sums_grid(j, j.channels % wide == 0 ? (int)wide : 1));
}

/* Of V channels of a sample. */
template <int V> struct group_values {
    float mean[V], rstd[V], scale[V];

    __device__ __forceinline__ void load_from(const group_job &j, int64_t sample, int64_t column)
    {
        load_floats<V>(j.gamma, column, scale, 1.0f);
        for (int v = 0; v < V; v++) {
            const int64_t at = sample * j.groups + (column + v) / j.width;
            mean[v] = j.mean[at];
            rstd[v] = j.rstd[at];
            scale[v] *= rstd[v];
        }
    }
};

/* ---- forward ---- */

/* A block joins the parts of a group: `blocks` of each of its channels. */
static __global__ void group_moments(group_job j, column_grid g, const float2 *partial)
{
    const int64_t sample = blockIdx.x / j.groups, group = blockIdx.x - sample * j.groups;
    const float2 *from = partial + sample * g.blocks * j.channels + group * j.width;
    const float2 first = from[0];
    double a = 0.0, b = 0.0;
    for (int64_t i = threadIdx.x; i < g.blocks * j.width; i += blockDim.x) {
        const int64_t block = i / j.width, left = g.rows - block * g.each;
        add_moments(a, b, from[block * j.channels + (i - block * j.width)],
                    (double)(left < g.each ? left : g.each), first);
    }
    a = block_sum(a);
    b = block_sum(b);
    if (threadIdx.x == 0) {
        const double n = (double)(j.pixels * j.width);
        const moments m = join_moments(a, b, n, first);
        j.mean[blockIdx.x] = (float)m.mean;
        j.rstd[blockIdx.x] = (float)(1.0 / sqrt(m.m2 / n + j.eps));
    }
}

template <typename T, int V> struct group_normalise {
    group_job j;
    const T *x;
    T *y;
    struct item {
        pack<T, V> x;
    };
    struct state {
        group_values<V> c;
        float beta[V];
    };
    __device__ void begin(state &s, const column_place &p, const column_grid &) const
    {
        s.c.load_from(j, p.table, p.column);
        load_floats<V>(j.beta, p.column, s.beta);
    }
    __device__ void load(item &i, int64_t e, int64_t) const
    {
        i.x = ::load<T, V>(x + e);
    }
    __device__ void use(state &s, const item &i, int64_t e) const
    {
        pack<T, V> to;
        UNROLL
        for (int v = 0; v < V; v++) {
            const float d = to_float(i.x.v[v]) - s.c.mean[v];
            to.v[v] = from_float<T>(fmaf(d, s.c.scale[v], s.beta[v]));
        }
        store_whole(y + e, to);
    }
};

template <typename T, int V> static lvn_status forward(const lvn_kernel_args *args)
{
    group_job j = describe(args, args->in[0]);
    j.gamma = in<float>(args, 1);
    j.beta = in<float>(args, 2);
    j.mean = out<float>(args, 1);
    j.rstd = out<float>(args, 2);
    const column_grid g = sums_grid(j, V), of_pass = pass_grid(j, V);
    const moment_sums<T, V> sums = {in<T>(args, 0)};
    const group_normalise<T, V> pass = {j, in<T>(args, 0), out<T>(args, 0)};
    float2 *partial = static_cast<float2 *>(args->workspace);
    LVN_TRY(launch(args->stream, "group_norm", column_sums<V, moment_sums<T, V>>, column_blocks(g),
                   COLUMN_THREADS, 0, sums, g, partial));
    LVN_TRY(launch(args->stream, "group_norm", group_moments,
                   g.blocks == 0 ? 0 : (unsigned)(j.samples * j.groups), GROUP_THREADS, 0, j, g,
                   partial));
    return launch(args->stream, "group_norm", column_pass<V, group_normalise<T, V>>,
                  column_blocks(of_pass), COLUMN_THREADS, 0, pass, of_pass);
}

/* ---- gradient ----
 * With h = dy gamma and c = x - mean over the n values of a group:
 * dx = rstd (h - sum(h) / n - c rstd^2 sum(h c) / n). */

/* Of dy and of dy c, of a sample's channel. */
template <typename T, int V> struct group_sums {
    group_job j;
    const T *dy, *x;
    struct item {
        pack<T, V> dy, x;
    };
    struct state {
        float s1[V], s2[V];
        group_values<V> c;
    };
    __device__ void begin(state &s, const column_place &p, const column_grid &) const
    {
        s.c.load_from(j, p.table, p.column);
    }
    __device__ void load(item &i, int64_t e, int64_t) const
    {
        i.dy = ::load<T, V>(dy + e);
        i.x = ::load<T, V>(x + e);
    }
    __device__ void use(state &s, const item &i, int64_t) const
    {
        UNROLL
        for (int v = 0; v < V; v++) {
            const float d = to_float(i.dy.v[v]);
            s.s1[v] += d;
            s.s2[v] = fmaf(d, to_float(i.x.v[v]) - s.c.mean[v], s.s2[v]);
        }
    }
    __device__ float2 partial(double s1, double s2, int64_t, int64_t) const
    {
        return make_float2((float)s1, (float)s2);
    }
};

struct group_totals {
    float2 *of_column; /* (samples, channels) */
    int64_t channels;
    __device__ void add(double &a, double &b, float2 part, int64_t, float2) const
    {
        a += (double)part.x;
        b += (double)part.y;
    }
    __device__ void finish(int64_t table, int64_t column, double a, double b, float2) const
    {
        of_column[table * channels + column] = make_float2((float)a, (float)b);
    }
};

/* Of each group: rstd sum(h) / n and rstd^3 sum(h c) / n. */
static __global__ void group_shares(group_job j, const float2 *of_column, float2 *share)
{
    const int64_t sample = blockIdx.x / j.groups, group = blockIdx.x - sample * j.groups;
    double h = 0.0, hc = 0.0;
    for (int64_t i = threadIdx.x; i < j.width; i += blockDim.x) {
        const int64_t c = group * j.width + i;
        const float2 sums = of_column[sample * j.channels + c];
        const double gamma = j.gamma == NULL ? 1.0 : (double)j.gamma[c];
        h += gamma * (double)sums.x;
        hc += gamma * (double)sums.y;
    }
    h = block_sum(h);
    hc = block_sum(hc);
    if (threadIdx.x == 0) {
        const double n = (double)(j.pixels * j.width), rstd = (double)j.rstd[blockIdx.x];
        share[blockIdx.x] =
            make_float2((float)(rstd * h / n), (float)(rstd * rstd * rstd * hc / n));
    }
}

/* dgamma = sum over samples of rstd sum(dy c), dbeta = sum of dy; either may be NULL. */
static __global__ void group_parameters(group_job j, const float2 *of_column, float *dgamma,
                                        float *dbeta)
{
    FOR_GRID (c, j.channels) {
        double of_gamma = 0.0, of_beta = 0.0;
        for (int64_t n = 0; n < j.samples; n++) {
            const float2 sums = of_column[n * j.channels + c];
            of_gamma += (double)j.rstd[n * j.groups + c / j.width] * (double)sums.y;
            of_beta += (double)sums.x;
        }
        if (dgamma != NULL) {
            dgamma[c] = (float)of_gamma;
        }
        if (dbeta != NULL) {
            dbeta[c] = (float)of_beta;
        }
    }
}

template <typename T, int V> struct group_pass {
    group_job j;
    const T *dy, *x;
    const float2 *share;
    T *dx;
    typedef typename group_sums<T, V>::item item;
    struct state {
        group_values<V> c;
        float b[V], d[V];
    };
    __device__ void begin(state &s, const column_place &p, const column_grid &) const
    {
        s.c.load_from(j, p.table, p.column);
        for (int v = 0; v < V; v++) {
            const float2 both = share[p.table * j.groups + (p.column + v) / j.width];
            s.b[v] = both.x;
            s.d[v] = both.y;
        }
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
        for (int v = 0; v < V; v++) {
            const float c = to_float(i.x.v[v]) - s.c.mean[v];
            to.v[v] = from_float<T>((to_float(i.dy.v[v]) * s.c.scale[v] - s.b[v]) - c * s.d[v]);
        }
        store_whole(dx + e, to);
    }
};

/* Behind the partial sums: sums of columns, shares of groups. */
static size_t grad_workspace(const lvn_kernel_args *args)
{
    const group_job j = describe(args, args->in[1]);
    return sums_bytes(j, args->in[1]) +
           (size_t)(j.samples * (j.channels + j.groups)) * sizeof(float2);
}

template <typename T, int V> static lvn_status backward(const lvn_kernel_args *args)
{
    group_job j = describe(args, args->in[1]);
    j.mean = const_cast<float *>(in<float>(args, 2));
    j.rstd = const_cast<float *>(in<float>(args, 3));
    j.gamma = in<float>(args, 4);
    const column_grid g = sums_grid(j, V), of_pass = pass_grid(j, V);
    float2 *partial = static_cast<float2 *>(args->workspace),
           *of_column = partial + partial_bytes(g) / sizeof(float2),
           *share = of_column + j.samples * j.channels;
    const T *dy = in<T>(args, 0), *x = in<T>(args, 1);
    const group_sums<T, V> sums = {j, dy, x};
    const group_totals totals = {of_column, j.channels};
    const group_pass<T, V> pass = {j, dy, x, share, out<T>(args, 0)};
    const char *name = args->op->name;
    LVN_TRY(launch(args->stream, name, column_sums<V, group_sums<T, V>>, column_blocks(g),
                   COLUMN_THREADS, 0, sums, g, partial));
    LVN_TRY(launch(args->stream, name, column_totals<group_totals>, total_blocks(g), COLUMN_THREADS,
                   0, totals, g, partial));
    LVN_TRY(launch(args->stream, name, group_shares, (unsigned)(j.samples * j.groups),
                   GROUP_THREADS, 0, j, of_column, share));
    LVN_TRY(launch(args->stream, name, group_parameters, blocks_for(j.channels, 32), 32, 0, j,
                   of_column, out<float>(args, 1), out<float>(args, 2)));
    return launch(args->stream, name, column_pass<V, group_pass<T, V>>, column_blocks(of_pass),
                  COLUMN_THREADS, 0, pass, of_pass);
}

static size_t workspace(const lvn_kernel_args *args)
{
    return sums_bytes(describe(args, args->in[0]), args->in[0]);
}

static lvn_status run_group_norm(const lvn_kernel_args *args)
{
    const lvn_tensor *x = args->in[0];
    WITH_FLOAT(lvn_tensor_dtype(x), T,
               WITH_PACKS(T, lvn_size(x, lvn_ndim(x) - 1), V, return (forward<T, V>(args))));
}
static lvn_status run_group_norm_grad(const lvn_kernel_args *args)
{
    const lvn_tensor *x = args->in[1];
    WITH_FLOAT(lvn_tensor_dtype(x), T,
               WITH_PACKS(T, lvn_size(x, lvn_ndim(x) - 1), V, return (backward<T, V>(args))));
}

} // namespace

static const lvn_backend_kernel kernels[] = {
    {"group_norm", run_group_norm, FLOATS, 6, workspace},
    {"group_norm_grad", run_group_norm_grad, FLOATS, 28, grad_workspace},
};
extern const kernel_rows rows_group_norm;
const kernel_rows rows_group_norm = ROWS(kernels);

/* Gradients of batch norm. With g what of dy passed relu and xhat = (x - mean) rstd: dbeta = sum g,
 * dgamma = sum g xhat, and with the statistics of x (Ioffe & Szegedy 2015, section 3)
 *
 *     dx = gamma rstd (g - dbeta / n - xhat dgamma / n)
 *
 * One pass for the sums, which also writes g where a residual gets it, and one for dx. With
 * constant statistics dx = gamma rstd g comes out of the first pass. */
#include "batch_norm.cuh"

/* launch() and others are instantiated with these types. */
namespace
{

/* Where relu's gate is read: nowhere, from y, or from y computed again. */
enum gate { OPEN, OUTPUT, AGAIN };

template <typename T, int V> struct gradient_item {
    pack<T, V> dy, x, y;
};

template <typename T, int V, int GATE> struct gated_table {
    const T *dy, *x, *y;
    __device__ void load(gradient_item<T, V> &i, int64_t e) const
    {
        i.dy = ::load<T, V>(dy + e);
        i.x = ::load<T, V>(x + e);
        if (GATE == OUTPUT) {
            i.y = ::load<T, V>(y + e);
        }
    }
    /* g of element k */
    __device__ float passed(const channel_values<V> &c, const gradient_item<T, V> &i, int k) const
    {
        const float value = GATE == OUTPUT  ? to_float(i.y.v[k])
                            : GATE == AGAIN ? normalised(c, k, to_float(i.x.v[k]))
                                            : 1.0f;
        return value > 0.0f ? to_float(i.dy.v[k]) : 0.0f;
    }
};

/* ---- sums ---- */

/* Of g and of g (x - mean). */
template <typename T, int V, int GATE> struct gradient_sums {
    gated_table<T, V, GATE> table;
    channel_vectors v;
    T *kept, *constant_dx; /* g, and dx with constant statistics; NULL: not wanted */
    typedef gradient_item<T, V> item;
    struct state {
        float s1[V], s2[V];
        channel_values<V> c;
    };
    __device__ void begin(state &s, const column_place &p, const column_grid &) const
    {
        load_channels<V>(s.c, v, p.column);
    }
    __device__ void load(item &i, int64_t e, int64_t) const
    {
        table.load(i, e);
    }
    __device__ void use(state &s, const item &i, int64_t e) const
    {
        pack<T, V> g, dx;
        UNROLL
        for (int k = 0; k < V; k++) {
            const float value = table.passed(s.c, i, k);
            s.s1[k] += value;
            s.s2[k] = fmaf(value, to_float(i.x.v[k]) - s.c.mean[k], s.s2[k]);
            g.v[k] = from_float<T>(value);
            dx.v[k] = from_float<T>(value * s.c.scale[k]);
        }
        if (kept != NULL) {
            store_whole(kept + e, g);
        }
        if (constant_dx != NULL) {
            store_whole(constant_dx + e, dx);
        }
    }
    __device__ float2 partial(double s1, double s2, int64_t, int64_t) const
    {
        return make_float2((float)s1, (float)s2);
    }
};

struct gradient_totals {
    const float *rstd, *variance; /* the first, or NULL */
    double eps;
    float *of_g[2], *of_gx[2]; /* sums of g and g xhat, to as many places as are not NULL */
    __device__ void add(double &a, double &b, float2 part, int64_t, float2) const
    {
        a += (double)part.x;
        b += (double)part.y;
    }
    __device__ void finish(int64_t, int64_t column, double a, double b, float2) const
    {
        const double by =
            rstd != NULL ? (double)rstd[column] : 1.0 / sqrt((double)variance[column] + eps);
        for (int i = 0; i < 2; i++) {
            if (of_g[i] != NULL) {
                of_g[i][column] = (float)a;
            }
            if (of_gx[i] != NULL) {
                of_gx[i][column] = (float)(b * by);
            }
        }
    }
};

/* ---- dx ---- */

/* dx = scale (g - sums[c] / by - (x - mean) rstd sums[channels + c] / by) */
template <typename T, int V, int GATE> struct gradient_pass {
    gated_table<T, V, GATE> table;
    channel_vectors v;
    const float *sums;
    int64_t channels;
    float by;
    T *dx;
    typedef gradient_item<T, V> item;
    struct state {
        channel_values<V> c;
        float b[V], d[V];
    };
    __device__ void begin(state &s, const column_place &p, const column_grid &) const
    {
        load_channels<V>(s.c, v, p.column);
        load_floats<V>(sums, p.column, s.b);
        load_floats<V>(sums + channels, p.column, s.d);
        UNROLL
        for (int k = 0; k < V; k++) {
            s.b[k] /= by;
            s.d[k] = s.c.rstd[k] * (s.d[k] / by);
        }
    }
    __device__ void load(item &i, int64_t e, int64_t) const
    {
        table.load(i, e);
    }
    __device__ void use(state &s, const item &i, int64_t e) const
    {
        pack<T, V> to;
        UNROLL
        for (int k = 0; k < V; k++) {
            const float g = table.passed(s.c, i, k), x = to_float(i.x.v[k]) - s.c.mean[k];
            to.v[k] = from_float<T>(fmaf(-x, s.d[k], g - s.b[k]) * s.c.scale[k]);
        }
        store_whole(dx + e, to);
    }
};

/* ---- launches ---- */

/* What the ops have in common; types of the tables are erased. */
struct gradient_job {
    const void *dy, *x, *y; /* y: of OUTPUT */
    void *kept, *constant_dx, *dx;
    channel_vectors v;
    const float *sums;
    float by;
    gate from;
};

template <typename T, int V, int GATE>
static gated_table<T, V, GATE> table_of(const gradient_job &j)
{
    return {static_cast<const T *>(j.dy), static_cast<const T *>(j.x), static_cast<const T *>(j.y)};
}

template <typename T, int V, int GATE>
static lvn_status launch_sums(const lvn_kernel_args *args, const gradient_job &j)
{
    typedef gradient_sums<T, V, GATE> sums;
    const column_grid g = sums_grid<T, V>(args->in[1]);
    const sums f = {table_of<T, V, GATE>(j), j.v, static_cast<T *>(j.kept),
                    static_cast<T *>(j.constant_dx)};
    return launch(args->stream, args->op->name, column_sums<V, sums>, column_blocks(g),
                  COLUMN_THREADS, 0, f, g, static_cast<float2 *>(args->workspace));
}

template <typename T, int V, int GATE>
static lvn_status launch_pass(const lvn_kernel_args *args, const gradient_job &j)
{
    typedef gradient_pass<T, V, GATE> pass;
    const column_grid g = pass_grid<T, V>(args->in[1]);
    const pass f = {table_of<T, V, GATE>(j), j.v, j.sums, g.columns, j.by, static_cast<T *>(j.dx)};
    return launch(args->stream, args->op->name, column_pass<V, pass>, column_blocks(g),
                  COLUMN_THREADS, 0, f, g);
}

#define WITH_GATE(function, T, V, args, job)                                                       \
    return (job).from == OUTPUT  ? function<T, V, OUTPUT>(args, job)                               \
           : (job).from == AGAIN ? function<T, V, AGAIN>(args, job)                                \
                                 : function<T, V, OPEN>(args, job)

static lvn_status find_sums(const lvn_kernel_args *args, const gradient_job &j)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[1]), T,
               WITH_PACKS(T, channels_of(args->in[1]), V, WITH_GATE(launch_sums, T, V, args, j)));
}
static lvn_status write_dx(const lvn_kernel_args *args, const gradient_job &j)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[1]), T,
               WITH_PACKS(T, channels_of(args->in[1]), V, WITH_GATE(launch_pass, T, V, args, j)));
}
static lvn_status add_partials(const lvn_kernel_args *args, const gradient_totals &totals)
{
    column_grid g;
    memset(&g, 0, sizeof g);
    const lvn_tensor *x = args->in[1];
    switch (lvn_dtype_size(lvn_tensor_dtype(x))) {
    case 2:
        g = in_packs<bf16>(channels_of(x)) ? sums_grid<bf16, 8>(x) : sums_grid<bf16, 1>(x);
        break;
    default:
        g = in_packs<float>(channels_of(x)) ? sums_grid<float, 4>(x) : sums_grid<float, 1>(x);
        break;
    }
    return launch(args->stream, args->op->name, column_totals<gradient_totals>, total_blocks(g),
                  COLUMN_THREADS, 0, totals, g, static_cast<const float2 *>(args->workspace));
}

/* Inputs: dy, x, gamma, mean, a statistic, beta; y at place_of_y. */
static gradient_job describe(const lvn_kernel_args *args, bool has_rstd, int place_of_y)
{
    const lvn_norm_attr &attr = attr_of<lvn_norm_attr>(args);
    const float *statistic = in<float>(args, 4);
    gradient_job j;
    memset(&j, 0, sizeof j);
    j.dy = in<void>(args, 0);
    j.x = in<void>(args, 1);
    j.y = in<void>(args, place_of_y);
    j.v.gamma = in<float>(args, 2);
    j.v.mean = in<float>(args, 3);
    j.v.rstd = has_rstd ? statistic : NULL;
    j.v.variance = has_rstd ? NULL : statistic;
    j.v.beta = in<float>(args, 5);
    j.v.eps = (float)attr.eps;
    j.from = !attr.relu ? OPEN : j.y != NULL ? OUTPUT : AGAIN;
    return j;
}

static gradient_totals totals_of(const lvn_kernel_args *args, const gradient_job &j, float *of_g,
                                 float *of_gx)
{
    gradient_totals t;
    memset(&t, 0, sizeof t);
    t.rstd = j.v.rstd;
    t.variance = j.v.variance;
    t.eps = attr_of<lvn_norm_attr>(args).eps;
    t.of_g[0] = of_g;
    t.of_gx[0] = of_gx;
    return t;
}

/* ---- ops ---- */

/* Partial sums, then the sums (2, channels). */
static size_t workspace(const lvn_kernel_args *args)
{
    return sums_bytes(args->in[1]) + (size_t)(2 * channels_of(args->in[1])) * sizeof(float);
}
static float *sums_behind_partials(const lvn_kernel_args *args)
{
    return reinterpret_cast<float *>(static_cast<char *>(args->workspace) +
                                     sums_bytes(args->in[1]));
}

static lvn_status run_train_grad(const lvn_kernel_args *args)
{
    gradient_job j = describe(args, true, 6);
    j.dx = out<void>(args, 0);
    j.kept = out<void>(args, 3);
    LVN_TRY(find_sums(args, j));
    float *sums = sums_behind_partials(args);
    gradient_totals t = totals_of(args, j, sums, sums + channels_of(args->in[1]));
    t.of_gx[1] = out<float>(args, 1);
    t.of_g[1] = out<float>(args, 2);
    LVN_TRY(add_partials(args, t));
    if (j.kept != NULL) { /* what passed the gate is there */
        j.dy = j.kept;
        j.from = OPEN;
    }
    j.sums = sums;
    j.by = (float)rows_of(args->in[1]);
    return write_dx(args, j);
}

static lvn_status run_eval_grad(const lvn_kernel_args *args)
{
    gradient_job j = describe(args, false, 6);
    j.constant_dx = out<void>(args, 0);
    j.kept = out<void>(args, 3);
    LVN_TRY(find_sums(args, j));
    return add_partials(args, totals_of(args, j, out<float>(args, 2), out<float>(args, 1)));
}

static lvn_status run_sums(const lvn_kernel_args *args)
{
    gradient_job j = describe(args, false, 6);
    j.kept = out<void>(args, 1);
    LVN_TRY(find_sums(args, j));
    float *sums = out<float>(args, 0);
    return add_partials(args, totals_of(args, j, sums, sums + channels_of(args->in[1])));
}

static lvn_status run_group_grad(const lvn_kernel_args *args)
{
    gradient_job j = describe(args, false, 7);
    j.dx = out<void>(args, 0);
    j.sums = in<float>(args, 6);
    j.by = 1.0f;
    return write_dx(args, j);
}

} // namespace

static const lvn_backend_kernel kernels[] = {
    {"batch_norm_train_grad", run_train_grad, FLOATS, 60, workspace},
    {"batch_norm_eval_grad", run_eval_grad, FLOATS, 60, workspace},
    {"batch_norm_sums", run_sums, FLOATS, 60, workspace},
    {"batch_norm_group_grad", run_group_grad, FLOATS, 124, NULL},
};
extern const kernel_rows rows_batch_norm_grad;
const kernel_rows rows_batch_norm_grad = ROWS(kernels);

/* Layer norm over rows (Ba, Kiros, Hinton 2016, eq. 4), forward and gradient. A warp keeps a row of
 * up to 256 packs of 16 bytes in registers; other rows have a block, which reads them again from
 * the first cache. dgamma and dbeta are sums over rows in two levels (columns.cuh): of rows of up
 * to 1024 elements the pass that writes dx adds them up, of others a pass of its own. */
#include "columns.cuh"

/* launch() and others are instantiated with these types. */
namespace
{

enum { ROW_THREADS = 256, WARP_ROWS = ROW_THREADS / 32, MOST_KEPT = 8 };

struct layer_job {
    const float *gamma, *beta; /* NULL: ones, zeros */
    int64_t rows, n;
    float eps;
    float *mean, *rstd;
};

struct row_moments {
    float mean, rstd;
};

/* ---- forward ---- */

/* K packs per lane. */
template <typename T, int V, int K>
static __global__ void __launch_bounds__(ROW_THREADS) layer_norm_kept(layer_job j, const T *x, T *y)
{
    const int lane = (int)threadIdx.x & 31, packs = (int)(j.n / V);
    const int64_t row = (int64_t)blockIdx.x * WARP_ROWS + ((int)threadIdx.x >> 5);
    if (row >= j.rows) { /* a whole warp */
        return;
    }
    x += row * j.n;
    y += row * j.n;
    pack<T, V> kept[K];
    float sum = 0.0f, squares = 0.0f;
    UNROLL
    for (int k = 0; k < K; k++) {
        const int p = k * 32 + lane;
        if (p < packs) {
            kept[k] = load<T, V>(x + p * V);
            for (int v = 0; v < V; v++) {
                sum += to_float(kept[k].v[v]);
            }
        }
    }
    const float mean = warp_sum(sum) / (float)j.n;
    UNROLL
    for (int k = 0; k < K; k++) {
        if (k * 32 + lane < packs) {
            for (int v = 0; v < V; v++) {
                const float d = to_float(kept[k].v[v]) - mean;
                squares = fmaf(d, d, squares);
            }
        }
    }
    const float rstd = 1.0f / sqrtf(warp_sum(squares) / (float)j.n + j.eps);
    UNROLL
    for (int k = 0; k < K; k++) {
        const int p = k * 32 + lane;
        if (p < packs) {
            float gamma[V], beta[V];
            load_floats<V>(j.gamma, p * V, gamma, 1.0f);
            load_floats<V>(j.beta, p * V, beta);
            for (int v = 0; v < V; v++) {
                const float normal = (to_float(kept[k].v[v]) - mean) * rstd;
                kept[k].v[v] = from_float<T>(fmaf(normal, gamma[v], beta[v]));
            }
            store_whole(y + p * V, kept[k]);
        }
    }
    if (lane == 0) {
        j.mean[row] = mean;
        j.rstd[row] = rstd;
    }
}

template <typename T, int V>
static __global__ void __launch_bounds__(ROW_THREADS) layer_norm_long(layer_job j, const T *x, T *y)
{
    const int64_t row = blockIdx.x, step = (int64_t)blockDim.x * V;
    x += row * j.n;
    y += row * j.n;
    float sum = 0.0f, squares = 0.0f;
    for (int64_t i = (int64_t)threadIdx.x * V; i < j.n; i += step) {
        const pack<T, V> a = load<T, V>(x + i);
        for (int v = 0; v < V; v++) {
            sum += to_float(a.v[v]);
        }
    }
    const float mean = block_sum(sum) / (float)j.n;
    for (int64_t i = (int64_t)threadIdx.x * V; i < j.n; i += step) {
        const pack<T, V> a = load<T, V>(x + i);
        for (int v = 0; v < V; v++) {
            const float d = to_float(a.v[v]) - mean;
            squares = fmaf(d, d, squares);
        }
    }
    const float rstd = 1.0f / sqrtf(block_sum(squares) / (float)j.n + j.eps);
    for (int64_t i = (int64_t)threadIdx.x * V; i < j.n; i += step) {
        pack<T, V> a = load<T, V>(x + i);
        float gamma[V], beta[V];
        load_floats<V>(j.gamma, i, gamma, 1.0f);
        load_floats<V>(j.beta, i, beta);
        for (int v = 0; v < V; v++) {
            const float normal = (to_float(a.v[v]) - mean) * rstd;
            a.v[v] = from_float<T>(fmaf(normal, gamma[v], beta[v]));
        }
        store_whole(y + i, a);
    }
    if (threadIdx.x == 0) {
        j.mean[row] = mean;
        j.rstd[row] = rstd;
    }
}

/* ---- dx ----
 * With h = dy gamma and c = x - mean: dx = rstd (h - mean(h) - c rstd^2 mean(h c)). */

template <typename T, int V> struct gradient_packs {
    pack<T, V> dy, x;

    __device__ __forceinline__ void load_from(const T *dy_, const T *x_, int64_t i)
    {
        dy = load<T, V>(dy_ + i);
        x = load<T, V>(x_ + i);
    }
    __device__ __forceinline__ void add(const layer_job &j, float mean, int64_t i, float &h,
                                        float &hc) const
    {
        float gamma[V];
        load_floats<V>(j.gamma, i, gamma, 1.0f);
        for (int v = 0; v < V; v++) {
            const float of_h = to_float(dy.v[v]) * gamma[v];
            h += of_h;
            hc = fmaf(of_h, to_float(x.v[v]) - mean, hc);
        }
    }
    __device__ __forceinline__ void add_parameters(row_moments m, float (&s1)[V],
                                                   float (&s2)[V]) const
    {
        for (int v = 0; v < V; v++) {
            const float d = to_float(dy.v[v]);
            s1[v] += d;
            s2[v] = fmaf(d, (to_float(x.v[v]) - m.mean) * m.rstd, s2[v]);
        }
    }
    /* b = mean(h), d = rstd^2 mean(h c) */
    __device__ __forceinline__ void write(const layer_job &j, row_moments m, float b, float d,
                                          int64_t i, T *dx) const
    {
        pack<T, V> to;
        float gamma[V];
        load_floats<V>(j.gamma, i, gamma, 1.0f);
        for (int v = 0; v < V; v++) {
            const float h = to_float(dy.v[v]) * gamma[v];
            to.v[v] = from_float<T>(((h - b) - (to_float(x.v[v]) - m.mean) * d) * m.rstd);
        }
        store_whole(dx + i, to);
    }
};

/* The sums over the block's warps, whose lanes have packs k * 32 + lane of a row of n. */
template <int V, int K>
__device__ __forceinline__ void write_partials(const float (&s1)[K][V], const float (&s2)[K][V],
                                               int64_t n, float2 *partial)
{
    enum { ALL = K * V * 32, EACH = (ALL + ROW_THREADS - 1) / ROW_THREADS };
    SHARED(float, part, WARP_ROWS, ALL);
    const int t = (int)threadIdx.x, lane = t & 31, warp = t >> 5;
    double sum[2][EACH] = {};
    for (int which = 0; which < 2; which++) {
        UNROLL
        for (int k = 0; k < K; k++) {
            for (int v = 0; v < V; v++) {
                part[warp][(k * V + v) * 32 + lane] = which == 0 ? s1[k][v] : s2[k][v];
            }
        }
        __syncthreads();
        UNROLL
        for (int i = 0; i < EACH; i++) {
            const int at = i * ROW_THREADS + t;
            for (int w = 0; w < WARP_ROWS && at < ALL; w++) {
                sum[which][i] += (double)(float)part[w][at];
            }
        }
        __syncthreads();
    }
    UNROLL
    for (int i = 0; i < EACH; i++) {
        const int at = i * ROW_THREADS + t, slot = at / 32; /* k V + v */
        const int column = (slot / V * 32 + at % 32) * V + slot % V;
        if (at < ALL && column < n) {
            partial[column] = make_float2((float)sum[0][i], (float)sum[1][i]);
        }
    }
}

/* A warp goes through rows of the block's part and keeps what its columns add to dbeta (s1) and
 * dgamma (s2); the block writes the sums of its part as column_sums does. */
template <typename T, int V, int K>
static __global__ void __launch_bounds__(ROW_THREADS)
    layer_norm_grad_kept(layer_job j, column_grid g, const T *dy, const T *x, T *dx,
                         float2 *partial)
{
    const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, packs = (int)(j.n / V);
    const int64_t first = blockIdx.x * g.each,
                  end = first + g.each < j.rows ? first + g.each : j.rows;
    float s1[K][V] = {}, s2[K][V] = {};
    for (int64_t row = first + warp; row < end; row += WARP_ROWS) {
        const int64_t at = row * j.n;
        const row_moments m = {j.mean[row], j.rstd[row]};
        gradient_packs<T, V> kept[K];
        float h = 0.0f, hc = 0.0f;
        UNROLL
        for (int k = 0; k < K; k++) {
            if (k * 32 + lane < packs) {
                kept[k].load_from(dy + at, x + at, (k * 32 + lane) * V);
            }
        }
        UNROLL
        for (int k = 0; k < K; k++) {
            if (k * 32 + lane < packs) {
                kept[k].add(j, m.mean, (k * 32 + lane) * V, h, hc);
                kept[k].add_parameters(m, s1[k], s2[k]);
            }
        }
        const float b = warp_sum(h) / (float)j.n, d = warp_sum(hc) / (float)j.n * m.rstd * m.rstd;
        UNROLL
        for (int k = 0; k < K; k++) {
            if (k * 32 + lane < packs) {
                kept[k].write(j, m, b, d, (k * 32 + lane) * V, dx + at);
            }
        }
    }
    write_partials<V, K>(s1, s2, j.n, partial + blockIdx.x * j.n);
}

template <typename T, int V>
static __global__ void __launch_bounds__(ROW_THREADS)
    layer_norm_grad_long(layer_job j, const T *dy, const T *x, T *dx)
{
    const int64_t row = blockIdx.x, at = row * j.n, step = (int64_t)blockDim.x * V;
    const row_moments m = {j.mean[row], j.rstd[row]};
    gradient_packs<T, V> now;
    float h = 0.0f, hc = 0.0f;
    for (int64_t i = (int64_t)threadIdx.x * V; i < j.n; i += step) {
        now.load_from(dy + at, x + at, i);
        now.add(j, m.mean, i, h, hc);
    }
    const float b = block_sum(h) / (float)j.n, d = block_sum(hc) / (float)j.n * m.rstd * m.rstd;
    for (int64_t i = (int64_t)threadIdx.x * V; i < j.n; i += step) {
        now.load_from(dy + at, x + at, i);
        now.write(j, m, b, d, i, dx + at);
    }
}

/* ---- dgamma, dbeta: sums over rows of dy (x - mean) rstd and of dy ---- */

template <typename T, int V> struct parameter_sums {
    const T *dy, *x;
    const float *mean, *rstd;
    struct item {
        pack<T, V> dy, x;
        row_moments m;
    };
    struct state {
        float s1[V], s2[V];
    };
    __device__ void begin(state &, const column_place &, const column_grid &) const
    {
    }
    __device__ void load(item &i, int64_t e, int64_t row) const
    {
        i.dy = ::load<T, V>(dy + e);
        i.x = ::load<T, V>(x + e);
        i.m.mean = mean[row];
        i.m.rstd = rstd[row];
    }
    __device__ void use(state &s, const item &i, int64_t) const
    {
        UNROLL
        for (int v = 0; v < V; v++) {
            const float d = to_float(i.dy.v[v]);
            s.s1[v] += d;
            s.s2[v] = fmaf(d, (to_float(i.x.v[v]) - i.m.mean) * i.m.rstd, s.s2[v]);
        }
    }
    __device__ float2 partial(double s1, double s2, int64_t, int64_t) const
    {
        return make_float2((float)s1, (float)s2);
    }
};

struct parameter_totals {
    float *dgamma, *dbeta; /* either may be NULL */
    __device__ void add(double &a, double &b, float2 part, int64_t, float2) const
    {
        a += (double)part.x;
        b += (double)part.y;
    }
    __device__ void finish(int64_t, int64_t column, double a, double b, float2) const
    {
        if (dgamma != NULL) {
            dgamma[column] = (float)b;
        }
        if (dbeta != NULL) {
            dbeta[column] = (float)a;
        }
    }
};

/* ---- launches ---- */

static layer_job describe(const lvn_kernel_args *args, const lvn_tensor *x)
{
    const lvn_layer_norm_attr &attr = attr_of<lvn_layer_norm_attr>(args);
    layer_job j;
    memset(&j, 0, sizeof j);
    j.n = 1;
    for (int i = lvn_ndim(x) - attr.axes; i < lvn_ndim(x); i++) {
        j.n *= lvn_size(x, i);
    }
    j.rows = lvn_numel(x) / j.n;
    j.eps = (float)attr.eps;
    return j;
}

/* K of a row of so many packs, at most `most`; 0: too long for a warp. */
static int kept_packs(int64_t packs, int most)
{
    int k = 1;
    while (k < most && k * 32 < packs) {
        k *= 2;
    }
    return k * 32 < packs ? 0 : k;
}

/* kernel(job, tables...) with `threads` of a block for a row, or a warp. */
template <typename... P, typename... A>
static lvn_status launch_rows(const lvn_kernel_args *args, void (*kernel)(layer_job, P...),
                              const layer_job &j, bool warps, int64_t wide, A... tables)
{
    const int64_t threads = (j.n / wide + 31) / 32 * 32;
    const unsigned block =
        warps || threads > ROW_THREADS ? (unsigned)ROW_THREADS : (unsigned)threads;
    return launch(args->stream, args->op->name, kernel, blocks_for(j.rows, warps ? WARP_ROWS : 1),
                  block, 0, j, tables...);
}

template <typename T, int V> static lvn_status forward(const lvn_kernel_args *args)
{
    layer_job j = describe(args, args->in[0]);
    j.gamma = in<float>(args, 1);
    j.beta = in<float>(args, 2);
    j.mean = out<float>(args, 1);
    j.rstd = out<float>(args, 2);
    const T *x = in<T>(args, 0);
    T *y = out<T>(args, 0);
    if constexpr (V > 1) {
        switch (kept_packs(j.n / V, MOST_KEPT)) {
        case 1: return launch_rows(args, layer_norm_kept<T, V, 1>, j, true, V, x, y);
        case 2: return launch_rows(args, layer_norm_kept<T, V, 2>, j, true, V, x, y);
        case 4: return launch_rows(args, layer_norm_kept<T, V, 4>, j, true, V, x, y);
        case 8: return launch_rows(args, layer_norm_kept<T, V, 8>, j, true, V, x, y);
        default: break;
        }
    }
    return launch_rows(args, layer_norm_long<T, V>, j, false, V, x, y);
}

/* Registers for the sums of so many columns per lane, beside the packs. */
enum { MOST_SUMS = 32, GRAD_BLOCKS = 256 };

/* Whether the pass that writes dx adds up dgamma and dbeta, too. */
static bool is_fused(const layer_job &j, int wide)
{
    return wide > 1 && kept_packs(j.n / wide, MOST_SUMS / wide) != 0;
}

/* How the partial sums of dgamma and dbeta are split. */
static column_grid parameter_grid(const layer_job &j, int wide)
{
    if (!is_fused(j, wide)) {
        return walk_columns(1, j.rows, j.n, wide, 4, 128);
    }
    column_grid g;
    memset(&g, 0, sizeof g);
    const int64_t turns = (j.rows + GRAD_BLOCKS * WARP_ROWS - 1) / (GRAD_BLOCKS * WARP_ROWS);
    g.tables = g.tiles = 1;
    g.rows = j.rows;
    g.columns = j.n;
    g.each = WARP_ROWS * (turns < 1 ? 1 : turns);
    g.blocks = (j.rows + g.each - 1) / g.each;
    return g;
}

template <typename T, int V, int K>
static lvn_status launch_fused(const lvn_kernel_args *args, const layer_job &j,
                               const column_grid &g)
{
    return launch(args->stream, "layer_norm_grad", layer_norm_grad_kept<T, V, K>,
                  (unsigned)g.blocks, ROW_THREADS, 0, j, g, in<T>(args, 0), in<T>(args, 1),
                  out<T>(args, 0), static_cast<float2 *>(args->workspace));
}

/* dx and partial sums. */
template <typename T, int V>
static lvn_status write_dx(const lvn_kernel_args *args, const layer_job &j, const column_grid &g)
{
    if constexpr (V > 1) {
        switch (kept_packs(j.n / V, MOST_SUMS / V)) {
        case 1: return launch_fused<T, V, 1>(args, j, g);
        case 2: return launch_fused<T, V, 2>(args, j, g);
        case 4: return launch_fused<T, V, 4>(args, j, g);
        case 8:
            if constexpr (MOST_SUMS / V >= 8) {
                return launch_fused<T, V, 8>(args, j, g);
            }
            break;
        default: break;
        }
    }
    LVN_TRY(launch_rows(args, layer_norm_grad_long<T, V>, j, false, V, in<T>(args, 0),
                        in<T>(args, 1), out<T>(args, 0)));
    if (out<float>(args, 1) == NULL && out<float>(args, 2) == NULL) {
        return LVN_OK;
    }
    const parameter_sums<T, V> sums = {in<T>(args, 0), in<T>(args, 1), j.mean, j.rstd};
    return launch(args->stream, "layer_norm_grad", column_sums<V, parameter_sums<T, V>>,
                  column_blocks(g), COLUMN_THREADS, 0, sums, g,
                  static_cast<float2 *>(args->workspace));
}

template <typename T, int V> static lvn_status backward(const lvn_kernel_args *args)
{
    layer_job j = describe(args, args->in[1]);
    j.mean = const_cast<float *>(in<float>(args, 2));
    j.rstd = const_cast<float *>(in<float>(args, 3));
    j.gamma = in<float>(args, 4);
    const column_grid g = parameter_grid(j, V);
    LVN_TRY((write_dx<T, V>(args, j, g)));
    const parameter_totals totals = {out<float>(args, 1), out<float>(args, 2)};
    return totals.dgamma == NULL && totals.dbeta == NULL
               ? LVN_OK
               : launch(args->stream, "layer_norm_grad", column_totals<parameter_totals>,
                        total_blocks(g), COLUMN_THREADS, 0, totals, g,
                        static_cast<const float2 *>(args->workspace));
}

static size_t workspace(const lvn_kernel_args *args)
{
    const layer_job j = describe(args, args->in[1]);
    const int64_t wide = 16 / (int64_t)lvn_dtype_size(lvn_tensor_dtype(args->in[1]));
    return partial_bytes(parameter_grid(j, j.n % wide == 0 ? (int)wide : 1));
}

static lvn_status run_layer_norm(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T,
               WITH_PACKS(T, describe(args, args->in[0]).n, V, return (forward<T, V>(args))));
}
static lvn_status run_layer_norm_grad(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[1]), T,
               WITH_PACKS(T, describe(args, args->in[1]).n, V, return (backward<T, V>(args))));
}

} // namespace

static const lvn_backend_kernel kernels[] = {
    {"layer_norm", run_layer_norm, FLOATS, 6, NULL},
    {"layer_norm_grad", run_layer_norm_grad, FLOATS, 28, workspace},
};
extern const kernel_rows rows_layer_norm;
const kernel_rows rows_layer_norm = ROWS(kernels);

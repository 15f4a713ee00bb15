/* Discrete Fourier transforms of any length along one or two axes,
 *     y[k] = scale sum_j x[j] e^(-+ 2 pi i j k / n),
 * after Stockham (Cochran et al. 1967, "What is the fast Fourier transform?"): a stage for each
 * factor p of n makes transforms of p times the length, and its result lies in order. Before a
 * stage with transforms of length l, number k of that of the numbers r, r + n / l, ... is at r l +
 * k; with m = n / (l p) the stage is y[b l p + K] = sum_j w^(j K) x[(j m + b) l + K mod l],   w =
 * e^(-+ 2 pi i / (l p)). Lines that fit are transformed in shared memory, longer ones stage by
 * stage in the workspace. A prime factor costs its own number of terms for each value. */
#include "fft.cuh"

enum { MOST_STAGES = 32, MOST_SHARED = 4096, FFT_THREADS = 256 }; /* MOST_SHARED: numbers */

struct fft_stage {
    int p, l, m;
    divisor by_l, by_span; /* span: l p */
};

struct fft_plan {
    int n, stages;
    fft_stage stage[MOST_STAGES];
    float2 *roots; /* e^(-+ 2 pi i j / n) */
};

/* Lines of a tensor (outer, n, inner). A block takes `width` of them: neighbours in `inner`, or, if
 * that is 1, in `outer`. Its number i is number i / width of line i mod width, or i mod n of line
 * i / n. */
struct fft_lines {
    int64_t inner, lines; /* lines: in `inner`, or in `outer` */
    int64_t groups;       /* of `width` lines in `lines` */
    int width, shift;     /* number k of a line is (k + shift) mod n in memory */
    divisor by_fast;      /* width, or n */
    float scale;
};

static __global__ void make_roots(float2 *roots, int n, double turn)
{
    FOR_GRID (i, n) {
        const double angle = turn * (double)i / (double)n;
        roots[i] = make_float2((float)cos(angle), (float)sin(angle));
    }
}

/* Number `out` of a line after the stage; number i before it is x[base + i step]. */
template <typename A>
__device__ __forceinline__ float2 combine(const fft_stage &s, const float2 *roots, int out, A x,
                                          int64_t base, int64_t step)
{
    unsigned turn, k;
    const unsigned b = divide((unsigned)out, s.by_span, &turn);
    divide(turn, s.by_l, &k);
    const unsigned span = s.by_span.by;
    const int64_t next = (int64_t)s.m * s.l * step;
    int64_t from = base + ((int64_t)b * s.l + k) * step;
    unsigned at = 0; /* j turn mod span */
    float2 sum = make_float2(0.0f, 0.0f);
    if (s.p <= 16) {
        for (int j = 0; j < s.p; j++, from += next) {
            const float2 v = x[from], w = roots[(int64_t)at * s.m];
            sum.x = fmaf(v.x, w.x, fmaf(-v.y, w.y, sum.x));
            sum.y = fmaf(v.x, w.y, fmaf(v.y, w.x, sum.y));
            at += turn;
            at -= at >= span ? span : 0;
        }
        return sum;
    }
    double re = 0.0, im = 0.0; /* many terms */
    for (int j = 0; j < s.p; j++, from += next) {
        const float2 v = x[from], w = roots[(int64_t)at * s.m];
        re += (double)v.x * (double)w.x - (double)v.y * (double)w.y;
        im += (double)v.x * (double)w.y + (double)v.y * (double)w.x;
        at += turn;
        at -= at >= span ? span : 0;
    }
    return make_float2((float)re, (float)im);
}

/* Where number k of line b of a group lies in memory. */
__device__ __forceinline__ int64_t place_in_memory(const fft_lines &g, int n, int64_t group, int k,
                                                   int b)
{
    const int64_t at = k + g.shift < n ? k + g.shift : k + g.shift - n;
    if (g.inner == 1) {
        return (group * g.width + b) * n + at;
    }
    const int64_t outer = group / g.groups, first = group % g.groups * g.width;
    return (outer * n + at) * g.inner + first + b;
}

/* Whether the group has a line b. */
__device__ __forceinline__ bool has_line(const fft_lines &g, int64_t group, int b)
{
    return group % g.groups * g.width + b < g.lines;
}

/* ---- in shared memory ---- */

/* A block: a group of lines. y may be x. */
static __global__ void transform_lines(const float2 *x, float2 *y, fft_plan plan, fft_lines g)
{
    SHARED_BYTES(float2, memory);
    const int n = plan.n, count = n * g.width;
    const bool side = g.inner != 1; /* lines side by side */
    auto from = memory, to = memory + count;
    for (int i = (int)threadIdx.x; i < count; i += FFT_THREADS) {
        unsigned r;
        const int q = (int)divide((unsigned)i, g.by_fast, &r), k = side ? q : (int)r,
                  b = side ? (int)r : q;
        from[i] = has_line(g, blockIdx.x, b) ? x[place_in_memory(g, n, blockIdx.x, k, b)]
                                             : make_float2(0.0f, 0.0f);
    }
    for (int s = 0; s < plan.stages; s++) {
        __syncthreads();
        for (int i = (int)threadIdx.x; i < count; i += FFT_THREADS) {
            unsigned r;
            const int q = (int)divide((unsigned)i, g.by_fast, &r);
            to[i] = side ? combine(plan.stage[s], plan.roots, q, from, r, g.width)
                         : combine(plan.stage[s], plan.roots, (int)r, from, q * n, 1);
        }
        const auto swap = from;
        from = to;
        to = swap;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < count; i += FFT_THREADS) {
        unsigned r;
        const int q = (int)divide((unsigned)i, g.by_fast, &r), k = side ? q : (int)r,
                  b = side ? (int)r : q;
        if (has_line(g, blockIdx.x, b)) {
            const float2 v = from[i];
            y[place_in_memory(g, n, blockIdx.x, k, b)] = make_float2(v.x * g.scale, v.y * g.scale);
        }
    }
}

/* ---- long lines: groups of one ---- */

static __global__ void gather_lines(const float2 *x, float2 *line, int n, fft_lines g, int64_t all)
{
    FOR_GRID (i, all) {
        line[i] = x[place_in_memory(g, n, i / n, (int)(i % n), 0)];
    }
}

static __global__ void transform_stage(const float2 *from, float2 *to, fft_stage stage,
                                       const float2 *roots, int n, int64_t all)
{
    FOR_GRID (i, all) {
        const int64_t line = i / n * n;
        to[i] = combine(stage, roots, (int)(i - line), from, line, 1);
    }
}

static __global__ void scatter_lines(const float2 *line, float2 *y, int n, fft_lines g, int64_t all)
{
    FOR_GRID (i, all) {
        const float2 v = line[i];
        y[place_in_memory(g, n, i / n, (int)(i % n), 0)] =
            make_float2(v.x * g.scale, v.y * g.scale);
    }
}

/* ---- launching ---- */

static void add_stage(fft_plan *plan, int p, int *l)
{
    fft_stage *s = &plan->stage[plan->stages++];
    s->p = p;
    s->l = *l;
    s->m = plan->n / *l / p;
    s->by_l = make_divisor(*l);
    *l *= p;
    s->by_span = make_divisor(*l);
}

/* Factors 4 first, then primes. */
static fft_plan make_plan(int64_t n)
{
    fft_plan plan;
    int l = 1;
    int64_t rest = n;
    plan.n = (int)n;
    plan.stages = 0;
    plan.roots = NULL;
    for (; rest % 4 == 0; rest /= 4) {
        add_stage(&plan, 4, &l);
    }
    for (int64_t p = 2; rest > 1; p++) {
        p = p * p > rest ? rest : p;
        for (; rest % p == 0; rest /= p) {
            add_stage(&plan, (int)p, &l);
        }
    }
    return plan;
}

static size_t rounded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t roots_bytes(int64_t n)
{
    return rounded((size_t)n * sizeof(float2));
}

static lvnc_fft describe(const lvn_kernel_args *args)
{
    const lvn_fft_attr &a = attr_of<lvn_fft_attr>(args);
    const lvn_tensor *x = args->in[0];
    const int last = lvn_ndim(x) - 2;
    lvnc_fft f = {};
    f.n = lvn_size(x, last);
    f.m = a.axes == 2 ? lvn_size(x, last - 1) : 1;
    f.batches = sizes_before(x, a.axes == 2 ? last - 1 : last);
    f.inverse = a.inverse;
    f.centered = a.centered;
    f.scale = (float)a.scale;
    return f;
}

/* Shared by own kernels and the library. */
static size_t fft_bytes(const lvn_kernel_args *args)
{
    const lvnc_fft f = describe(args);
    const bool large = f.n > MOST_SHARED || f.m > MOST_SHARED;
    const size_t line = (size_t)lvnc_fft_numbers(f) * sizeof(float2),
                 own = roots_bytes(f.n) + roots_bytes(f.m) + (large ? 2 * rounded(line) : 0),
                 library = lvnc_scratch_bytes(lvnc_cufft_bytes(f));
    return own > library ? own : library;
}

static fft_lines make_lines(int64_t outer, int64_t n, int64_t inner)
{
    fft_lines g;
    const int64_t fit = MOST_SHARED / n, few = FFT_THREADS * 2 / n;
    g.inner = inner;
    g.lines = inner == 1 ? outer : inner;
    g.width = (int)(n > MOST_SHARED ? 1 : inner > 1 ? (fit < 16 ? fit : 16) : few > 1 ? few : 1);
    g.width = (int)(g.lines < g.width ? g.lines : g.width);
    g.groups = (g.lines + g.width - 1) / g.width;
    g.by_fast = make_divisor(inner == 1 ? n : g.width);
    return g;
}

static lvn_status transform_long(const lvn_kernel_args *args, const float2 *x, const fft_plan &plan,
                                 const fft_lines &g, int64_t all, float2 *line)
{
    float2 *other = line + rounded((size_t)all * sizeof(float2)) / sizeof(float2);
    const unsigned blocks = blocks_for(all, FFT_THREADS);
    LVN_TRY(
        launch(args->stream, "fft", gather_lines, blocks, FFT_THREADS, 0, x, line, plan.n, g, all));
    for (int s = 0; s < plan.stages; s++) {
        LVN_TRY(launch(args->stream, "fft", transform_stage, blocks, FFT_THREADS, 0, line, other,
                       plan.stage[s], plan.roots, plan.n, all));
        float2 *swap = line;
        line = other;
        other = swap;
    }
    return launch(args->stream, "fft", scatter_lines, blocks, FFT_THREADS, 0, line,
                  out<float2>(args, 0), plan.n, g, all);
}

/* Along the axis of length n of (outer, n, inner), to the result. */
static lvn_status transform(const lvn_kernel_args *args, const float2 *x, int64_t n, int64_t inner,
                            float scale, float2 *roots, float2 *memory)
{
    const lvn_fft_attr &a = attr_of<lvn_fft_attr>(args);
    const int64_t all = lvn_numel(args->in[0]) / 2, outer = all / n / inner;
    fft_plan plan = make_plan(n);
    fft_lines g = make_lines(outer, n, inner);
    plan.roots = roots;
    g.shift = a.centered ? (int)(n / 2) : 0;
    g.scale = scale;
    LVN_TRY(launch(args->stream, "fft", make_roots, blocks_for(n, FFT_THREADS), FFT_THREADS, 0,
                   roots, (int)n, (a.inverse ? 2.0 : -2.0) * 3.14159265358979323846));
    if (n > MOST_SHARED) {
        return transform_long(args, x, plan, g, all, memory);
    }
    const int64_t blocks = inner == 1 ? g.groups : outer * g.groups;
    if (blocks > INT32_MAX) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "fft: %lld lines are too many", (long long)(all / n));
    }
    return launch(args->stream, "fft", transform_lines, (unsigned)blocks, FFT_THREADS,
                  2 * sizeof(float2) * (size_t)(n * g.width), x, out<float2>(args, 0), plan, g);
}

static lvn_status run_own(const lvn_kernel_args *args, const lvnc_fft &f)
{
    const int axes = attr_of<lvn_fft_attr>(args).axes;
    char *memory = static_cast<char *>(args->workspace);
    float2 *roots = reinterpret_cast<float2 *>(memory),
           *more = reinterpret_cast<float2 *>(memory + roots_bytes(f.n)),
           *lines = reinterpret_cast<float2 *>(memory + roots_bytes(f.n) + roots_bytes(f.m));
    LVN_TRY(transform(args, in<float2>(args, 0), f.n, 1, axes == 1 ? f.scale : 1.0f, roots, lines));
    return axes == 1 ? LVN_OK
                     : transform(args, out<float2>(args, 0), f.m, f.n, f.scale, more, lines);
}

static lvn_status run_fft(const lvn_kernel_args *args)
{
    const lvnc_fft f = describe(args);
    if (lvnc_fft_numbers(f) == 0) {
        return LVN_OK;
    }
    lvn_status s = LVN_OK;
    lvnc_scratch scratch = lvnc_scratch_of(args);
    return lvnc_cufft_transform(args, f, lvnc_piece(&scratch, lvnc_cufft_bytes(f)), &s)
               ? s
               : run_own(args, f);
}

static const lvn_backend_kernel kernels[] = {
    {"fft", run_fft, F32, 0, fft_bytes},
};
extern const kernel_rows rows_fft;
const kernel_rows rows_fft = ROWS(kernels);

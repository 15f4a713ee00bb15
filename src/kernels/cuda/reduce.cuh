/* Reductions over any axes. Neighbouring axes that are all kept or all reduced are joined. One
 * joined axis after the other is reduced, the last first: each step turns (a, r, b) into (a, b),
 * over rows where b is 1, else over columns. A step of many terms splits r into parts of a fixed
 * size, whose results are the terms of another step. What a step writes for the next one lies in
 * the workspace.
 *
 * A policy P defines terms and results: P::from, the type of a term in memory;
 * P::acc, of what is added up; x, where the terms are; none(), of no terms; term(v, at), of term
 * number `at` of r; put(i, acc), what is written as result i. */
#ifndef LEVIN_KERNELS_CUDA_REDUCE_CUH
#define LEVIN_KERNELS_CUDA_REDUCE_CUH

#include "cuda.cuh"

namespace
{

/* ---- what terms become: both(a, b), and that of another lane ---- */

struct moments {
    double sum, squares;
};
struct best {
    float value;
    int64_t at;
};

__device__ __forceinline__ float both(float a, float b)
{
    return a + b;
}
__device__ __forceinline__ moments both(moments a, moments b)
{
    a.sum += b.sum;
    a.squares += b.squares;
    return a;
}
/* NaN is the greatest; the first of equals. */
__device__ __forceinline__ bool beats(float v, float top)
{
    return v > top || (v != v && top == top);
}
__device__ __forceinline__ best both(best a, best b)
{
    return beats(b.value, a.value) || (!beats(a.value, b.value) && b.at < a.at) ? b : a;
}

__device__ __forceinline__ float across(float a, int apart)
{
    return __shfl_xor_sync(0xffffffffu, a, apart);
}
__device__ __forceinline__ moments across(moments a, int apart)
{
    a.sum = __shfl_xor_sync(0xffffffffu, a.sum, apart);
    a.squares = __shfl_xor_sync(0xffffffffu, a.squares, apart);
    return a;
}
__device__ __forceinline__ best across(best a, int apart)
{
    a.value = __shfl_xor_sync(0xffffffffu, a.value, apart);
    a.at = __shfl_xor_sync(0xffffffffu, a.at, apart);
    return a;
}

/* ---- steps of a plan ---- */

enum { THREADS = 256, TERMS = 64, SHORT_ROW = 1024, LONG_ROW = 16384, PART_OF_ROW = 4096 };
enum { FEW_BLOCKS = 512, MOST_STEPS = 16 };

enum step_kind {
    ROWS_OF_LANES, /* 1 to 32 lanes each */
    ROWS_OF_BLOCKS,
    COLUMNS_OF_THREADS,
    COLUMNS_OF_BLOCKS
};

struct step {
    step_kind kind;
    int64_t a, r, b;
    int64_t chunk, parts; /* of r */
    int v;                /* elements of an access */
    int lanes;            /* a power of two: lanes of a row, or accesses side by side in a block */
};

struct plan {
    int n;
    step s[MOST_STEPS];
    int64_t terms;
};

/* The smallest power of two that is not below n, at most `most`. */
static int power_for(int64_t n, int most)
{
    int p = 1;
    while (p < n && p < most) {
        p *= 2;
    }
    return p;
}

static int64_t up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Of rows: n / v accesses. */
static void split_rows(step *s)
{
    s->kind = s->r <= SHORT_ROW ? ROWS_OF_LANES : ROWS_OF_BLOCKS;
    s->lanes = power_for(up(s->r / s->v, 2), 32);
    if (s->r > LONG_ROW) {
        s->chunk = s->a * up(s->r, LONG_ROW) < FEW_BLOCKS ? PART_OF_ROW : LONG_ROW;
        s->parts = up(s->r, s->chunk);
    }
}

static void split_columns(step *s)
{
    const int64_t wide = s->b / s->v;
    s->lanes = power_for(wide, s->v > 1 ? 8 : 32);
    if (s->r <= 16 || (s->r <= TERMS && s->a * wide >= 65536)) {
        s->kind = COLUMNS_OF_THREADS;
        return;
    }
    s->kind = COLUMNS_OF_BLOCKS;
    const int64_t most = (int64_t)TERMS * (THREADS / s->lanes);
    if (s->r > most) {
        const int64_t blocks = s->a * up(wide, s->lanes) * up(s->r, most);
        s->chunk = blocks < FEW_BLOCKS ? most / 4 : most;
        s->parts = up(s->r, s->chunk);
    }
}

/* `bytes` of a term; acc_bytes of one of a step after. */
static void add_step(plan *p, int64_t a, int64_t r, int64_t b, int bytes, int acc_bytes)
{
    const int whole = 16 / bytes;
    step *s = &p->s[p->n++];
    *s = step();
    s->a = a;
    s->r = s->chunk = r;
    s->b = b;
    s->parts = 1;
    s->v = (b == 1 ? r : b) % whole == 0 ? whole : 1;
    if (b == 1) {
        split_rows(s);
    } else {
        split_columns(s);
    }
    if (s->parts > 1) {
        add_step(p, a, s->parts, b, acc_bytes, acc_bytes);
    }
}

static plan plan_for(const lvn_tensor *x, uint32_t mask, int acc_bytes)
{
    int64_t size[LVN_MAX_NDIM];
    bool reduced[LVN_MAX_NDIM];
    int groups = 0;
    plan p = {};
    p.terms = 1;
    for (int i = 0; i < lvn_ndim(x); i++) {
        const bool r = (mask >> i & 1u) != 0;
        const int64_t n = lvn_size(x, i);
        p.terms *= r ? n : 1;
        if (n == 1) {
            continue;
        }
        if (groups > 0 && reduced[groups - 1] == r) {
            size[groups - 1] *= n;
        } else {
            size[groups] = n;
            reduced[groups++] = r;
        }
    }
    int64_t after = 1;
    for (int g = groups - 1; g >= 0; g--) {
        int64_t before = 1;
        for (int i = 0; i < g; i++) {
            before *= size[i];
        }
        if (reduced[g]) {
            const int bytes = p.n > 0 ? acc_bytes : (int)lvn_dtype_size(lvn_tensor_dtype(x));
            add_step(&p, before, size[g], after, bytes, acc_bytes);
        } else {
            after *= size[g];
        }
    }
    if (p.n == 0) { /* each element is a sum */
        add_step(&p, 1, 1, after, (int)lvn_dtype_size(lvn_tensor_dtype(x)), acc_bytes);
    }
    return p;
}

/* What step k leaves in the workspace. */
static size_t step_bytes(const plan &p, int k, int acc_bytes)
{
    const step &s = p.s[k];
    const size_t bytes = (size_t)(s.a * s.parts * s.b * acc_bytes);
    return k == p.n - 1 ? 0 : (bytes + 255) / 256 * 256;
}

static size_t plan_bytes(const plan &p, int acc_bytes)
{
    size_t bytes = 0;
    for (int k = 0; k < p.n; k++) {
        bytes += step_bytes(p, k, acc_bytes);
    }
    return bytes;
}

/* ---- rows ---- */

template <typename P, int V>
static __global__ void rows_of_lanes(P p, int64_t rows, int n, int lanes)
{
    const int lane = (int)threadIdx.x & (lanes - 1), each = THREADS / lanes,
              mine = (int)threadIdx.x / lanes;
    for (int64_t first = (int64_t)blockIdx.x * each; first < rows;
         first += (int64_t)gridDim.x * each) {
        const int64_t row = first + mine;
        typename P::acc a = P::none();
        if (row < rows) {
            const auto *x = reinterpret_cast<const pack<typename P::from, V> *>(p.x + row * n);
            for (int k = lane; k < n / V; k += lanes) {
                const pack<typename P::from, V> v = x[k];
                for (int j = 0; j < V; j++) {
                    a = both(a, p.term(v.v[j], k * V + j));
                }
            }
        }
        for (int apart = lanes / 2; apart > 0; apart /= 2) {
            a = both(a, across(a, apart));
        }
        if (row < rows && lane == 0) {
            p.put(row, a);
        }
    }
}

/* A block for each part of each row. */
template <typename P, int V>
static __global__ void rows_of_blocks(P p, int64_t n, int chunk, int parts)
{
    SHARED(typename P::acc, of_warp, THREADS / 32);
    const int64_t row = blockIdx.x / (unsigned)parts,
                  begin = blockIdx.x % (unsigned)parts * (int64_t)chunk;
    const int here = (int)(n - begin < chunk ? n - begin : chunk), lane = (int)threadIdx.x & 31;
    const auto *x = reinterpret_cast<const pack<typename P::from, V> *>(p.x + row * n + begin);
    typename P::acc a[V];
    for (int j = 0; j < V; j++) {
        a[j] = P::none();
    }
    for (int k = (int)threadIdx.x; k < here / V; k += THREADS) {
        const pack<typename P::from, V> v = x[k];
        for (int j = 0; j < V; j++) {
            a[j] = both(a[j], p.term(v.v[j], begin + k * V + j));
        }
    }
    for (int j = 1; j < V; j++) {
        a[0] = both(a[0], a[j]);
    }
    for (int apart = 16; apart > 0; apart /= 2) {
        a[0] = both(a[0], across(a[0], apart));
    }
    if (lane == 0) {
        of_warp[threadIdx.x / 32] = a[0];
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        typename P::acc all = P::none();
        if (lane < THREADS / 32) {
            all = of_warp[lane];
        }
        for (int apart = THREADS / 64; apart > 0; apart /= 2) {
            all = both(all, across(all, apart));
        }
        if (lane == 0) {
            p.put(blockIdx.x, all);
        }
    }
}

/* ---- columns ---- */

template <typename P, int V>
static __global__ void columns_of_threads(P p, int64_t n, int r, int64_t wide)
{
    FOR_GRID (i, n) {
        const int64_t a = i <= 0x7fffffff && wide <= 0x7fffffff
                              ? (int64_t)((uint32_t)i / (uint32_t)wide)
                              : i / wide;
        const auto *x =
            reinterpret_cast<const pack<typename P::from, V> *>(p.x) + a * (r - 1) * wide + i;
        typename P::acc sum[V];
        for (int j = 0; j < V; j++) {
            sum[j] = P::none();
        }
        for (int k = 0; k < r; k++, x += wide) {
            const pack<typename P::from, V> v = *x;
            for (int j = 0; j < V; j++) {
                sum[j] = both(sum[j], p.term(v.v[j], k));
            }
        }
        for (int j = 0; j < V; j++) {
            p.put(i * V + j, sum[j]);
        }
    }
}

/* A block has `lanes` neighbouring accesses of THREADS / lanes rows at a time, in one part of r. */
template <typename P, int V>
static __global__ void columns_of_blocks(P p, int64_t r, int64_t wide, int chunk, int parts,
                                         int lanes)
{
    SHARED(typename P::acc, tile, THREADS * V);
    const int me = (int)threadIdx.x, lane = me & (lanes - 1), mine = me / lanes,
              rows = THREADS / lanes;
    const int64_t tiles = (wide + lanes - 1) / lanes, group = blockIdx.x / tiles, a = group / parts,
                  begin = group % parts * chunk;
    const int64_t column = blockIdx.x % tiles * lanes + lane;
    const int here = (int)(r - begin < chunk ? r - begin : chunk);
    typename P::acc sum[V];
    for (int j = 0; j < V; j++) {
        sum[j] = P::none();
    }
    if (column < wide) {
        const auto *x = reinterpret_cast<const pack<typename P::from, V> *>(p.x) +
                        (a * r + begin) * wide + column;
        for (int k = mine; k < here; k += rows) {
            const pack<typename P::from, V> v = x[k * wide];
            for (int j = 0; j < V; j++) {
                sum[j] = both(sum[j], p.term(v.v[j], begin + k));
            }
        }
    }
    for (int half = rows / 2; half > 0; half /= 2) {
        if (mine >= half && mine < 2 * half) {
            for (int j = 0; j < V; j++) {
                tile[j * THREADS + me] = sum[j];
            }
        }
        __syncthreads();
        if (mine < half) {
            for (int j = 0; j < V; j++) {
                const typename P::acc other = tile[j * THREADS + me + half * lanes];
                sum[j] = both(sum[j], other);
            }
        }
    }
    if (mine == 0 && column < wide) {
        for (int j = 0; j < V; j++) {
            p.put((group * wide + column) * V + j, sum[j]);
        }
    }
}

/* ---- launching ---- */

template <int V, typename P>
static lvn_status launch_step_of(const lvn_kernel_args *args, const step &s, const P &p)
{
    const char *what = args->op->name;
    const int64_t wide = s.b / V;
    switch (s.kind) {
    case ROWS_OF_LANES:
        return launch(args->stream, what, rows_of_lanes<P, V>, blocks_for(s.a, THREADS / s.lanes),
                      THREADS, 0, p, s.a, (int)s.r, s.lanes);
    case ROWS_OF_BLOCKS:
        return launch(args->stream, what, rows_of_blocks<P, V>, (unsigned)(s.a * s.parts), THREADS,
                      0, p, s.r, (int)s.chunk, (int)s.parts);
    case COLUMNS_OF_THREADS:
        return launch(args->stream, what, columns_of_threads<P, V>, blocks_for(s.a * wide, THREADS),
                      THREADS, 0, p, s.a * wide, (int)s.r, wide);
    default:
        return launch(args->stream, what, columns_of_blocks<P, V>,
                      (unsigned)(s.a * s.parts * up(wide, s.lanes)), THREADS, 0, p, s.r, wide,
                      (int)s.chunk, (int)s.parts, s.lanes);
    }
}

template <typename P>
static lvn_status launch_step(const lvn_kernel_args *args, const step &s, const P &p)
{
    const int whole = 16 / (int)sizeof(typename P::from);
    return s.v > 1 ? launch_step_of<whole, P>(args, s, p) : launch_step_of<1, P>(args, s, p);
}

/* F makes what the steps do: only(x) of one step; first(x, to), middle(from, to), last(from). */
template <typename F>
static lvn_status run_plan(const lvn_kernel_args *args, const plan &p, const F &f)
{
    typedef typename F::acc acc;
    char *room = static_cast<char *>(args->workspace);
    const acc *from = NULL;
    if (lvn_numel(args->out[0]) == 0) {
        return LVN_OK;
    }
    if (p.n == 1) {
        return launch_step(args, p.s[0], f.only());
    }
    for (int k = 0; k < p.n - 1; k++) {
        acc *to = reinterpret_cast<acc *>(room);
        LVN_TRY(k == 0 ? launch_step(args, p.s[k], f.first(to))
                       : launch_step(args, p.s[k], f.middle(from, to)));
        room += step_bytes(p, k, (int)sizeof(acc));
        from = to;
    }
    return launch_step(args, p.s[p.n - 1], f.last(from));
}

} // namespace

#endif

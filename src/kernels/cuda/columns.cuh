/* Walks over tables (rows, columns) in which a thread keeps its columns: sums of each column in
 * two levels, and element-wise passes that need values of the column. Normalisations use them with
 * channels as columns.
 *
 *   level 1   a block adds up its part of the rows for some columns: f32 in a thread, f64 from
 *             there on; a pair of sums per column goes to `partial` (tables, blocks, columns)
 *   level 2   the pairs of a column are added in f64
 *
 * How rows are split follows from the shape alone. */
#ifndef LEVIN_KERNELS_CUDA_COLUMNS_CUH
#define LEVIN_KERNELS_CUDA_COLUMNS_CUH

#include "cuda.cuh"

enum {
    COLUMN_THREADS = 256,
    COLUMN_BLOCKS = 512, /* about so many fill a device */
    TOTAL_COLUMNS = 8,   /* of a block of level 2 */
};

/* How a grid walks over `tables` tables of (rows, columns). */
struct column_grid {
    int64_t tables, rows, columns;
    int64_t each, blocks, tiles; /* rows of a block; blocks along rows, along columns */
    int across, down;            /* threads along columns (at most 32) and rows */
};

/* `wide` columns per thread; at least `least` and, unless that makes too few blocks, more rows per
 * thread, but at most `most`. */
static inline column_grid walk_columns(int64_t tables, int64_t rows, int64_t columns, int wide,
                                       int least, int most)
{
    column_grid g;
    g.tables = tables;
    g.rows = rows;
    g.columns = columns;
    g.across = 1;
    while (g.across < 32 && g.across * wide < columns) {
        g.across *= 2;
    }
    g.down = COLUMN_THREADS / g.across;
    g.tiles = (columns + g.across * wide - 1) / (g.across * wide);
    const int64_t others = g.tiles * tables;
    const int64_t blocks = others == 0 || others > COLUMN_BLOCKS ? 1 : COLUMN_BLOCKS / others;
    int64_t turns = (rows + blocks * g.down - 1) / (blocks * g.down);
    turns = turns < least ? least : turns > most ? most : turns;
    g.each = turns * g.down;
    g.blocks = (rows + g.each - 1) / g.each;
    return g;
}
static inline unsigned column_blocks(const column_grid &g)
{
    return (unsigned)(g.tables * g.tiles * g.blocks);
}
static inline size_t partial_bytes(const column_grid &g)
{
    return (size_t)(g.tables * g.blocks * g.columns) * sizeof(float2);
}

/* Whole packs of 16 bytes, or single elements. */
template <typename T> static inline bool in_packs(int64_t columns)
{
    return columns % (16 / (int64_t)sizeof(T)) == 0;
}
/* statement with V elements per access. */
#define WITH_PACKS(T, columns, V, statement)                                                       \
    if (in_packs<T>(columns)) {                                                                    \
        enum { V = 16 / (int)sizeof(T) };                                                          \
        statement;                                                                                 \
    } else {                                                                                       \
        enum { V = 1 };                                                                            \
        statement;                                                                                 \
    }

__device__ __forceinline__ uint32_t word_of(const pack<float, 4> &x, int i)
{
    return __float_as_uint(x.v[i]);
}
template <typename T> __device__ __forceinline__ uint32_t word_of(const pack<T, 8> &x, int i)
{
    return x.v[2 * i].bits | (uint32_t)x.v[2 * i + 1].bits << 16;
}
/* Left to itself the compiler stores the elements of an unrolled loop's packs one by one. */
template <typename T, int V> __device__ __forceinline__ void store_whole(T *p, const pack<T, V> &x)
{
    if constexpr (sizeof(T) * V == 16) {
        uint4 words;
        words.x = word_of(x, 0);
        words.y = word_of(x, 1);
        words.z = word_of(x, 2);
        words.w = word_of(x, 3);
#ifdef LEVIN_CUDA_ON_HOST
        memcpy(p, &words, sizeof words);
#else
        __stwb(reinterpret_cast<uint4 *>(p), words);
#endif
    } else {
        store<T, V>(p, x);
    }
}
/* V floats of a vector over columns from `column` on; p NULL: all are `otherwise`. */
template <int V>
__device__ __forceinline__ void load_floats(const float *p, int64_t column, float (&to)[V],
                                            float otherwise = 0.0f)
{
    enum { N = V >= 4 ? 4 : 1 };
    if (p == NULL) {
        for (int v = 0; v < V; v++) {
            to[v] = otherwise;
        }
        return;
    }
    UNROLL
    for (int v = 0; v < V; v += N) {
        const pack<float, N> part = load<float, N>(p + column + v);
        for (int i = 0; i < N; i++) {
            to[v + i] = part.v[i];
        }
    }
}

/* Where a thread is: its columns from `column` on, its rows row, row + down, ... below `end`. */
struct column_place {
    int64_t table, block, tile, column, row, end;
    int64_t first; /* row of the block */
};

template <int V> __device__ __forceinline__ column_place place_of(const column_grid &g)
{
    column_place p;
    const int64_t b = blockIdx.x, at = b / g.tiles;
    p.tile = b - at * g.tiles;
    p.table = at / g.blocks;
    p.block = at - p.table * g.blocks;
    p.column = (p.tile * g.across + ((int)threadIdx.x & (g.across - 1))) * V;
    p.first = p.block * g.each;
    p.row = p.first + (int)threadIdx.x / g.across;
    p.end = p.first + g.each < g.rows ? p.first + g.each : g.rows;
    return p;
}

/* f.load(&item, e, row) and f.use(&state, item, e) for each row of the thread, e its element of
 * the thread's first column; four loads go ahead. */
template <int V, typename F>
__device__ __forceinline__ void walk_rows(const F &f, typename F::state &s, const column_grid &g,
                                          const column_place &p)
{
    enum { AHEAD = 4 };
    typename F::item items[AHEAD];
    const int64_t step = g.down * g.columns;
    int64_t row = p.row, e = (p.table * g.rows + p.row) * g.columns + p.column;
    for (; row + (AHEAD - 1) * g.down < p.end; row += AHEAD * g.down, e += AHEAD * step) {
        UNROLL
        for (int i = 0; i < AHEAD; i++) {
            f.load(items[i], e + i * step, row + i * g.down);
        }
        UNROLL
        for (int i = 0; i < AHEAD; i++) {
            f.use(s, items[i], e + i * step);
        }
    }
    for (; row < p.end; row += g.down, e += step) {
        f.load(items[0], e, row);
        f.use(s, items[0], e);
    }
}

/* ---- level 1 ----
 * F: item, state with float s1[V], s2[V]; begin(&state, place, grid), load, use as above;
 * partial(s1, s2, rows of the block, element of the block's first row) -> float2. */
template <int V, typename F>
__global__ void __launch_bounds__(COLUMN_THREADS) column_sums(F f, column_grid g, float2 *partial)
{
    enum { WARPS = COLUMN_THREADS / 32, WIDTH = 33 * V };
    SHARED(float, part, 2 * WARPS, WIDTH);
    const column_place p = place_of<V>(g);
    typename F::state s;
    UNROLL
    for (int v = 0; v < V; v++) {
        s.s1[v] = s.s2[v] = 0.0f;
    }
    if (p.column < g.columns) {
        f.begin(s, p, g);
        walk_rows<V>(f, s, g, p);
    }
    const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    UNROLL
    for (int v = 0; v < V; v++) {
        for (int apart = g.across; apart < 32; apart *= 2) {
            s.s1[v] += __shfl_xor_sync(0xffffffffu, s.s1[v], apart);
            s.s2[v] += __shfl_xor_sync(0xffffffffu, s.s2[v], apart);
        }
        if (lane < g.across) {
            part[warp][v * 33 + lane] = s.s1[v];
            part[WARPS + warp][v * 33 + lane] = s.s2[v];
        }
    }
    __syncthreads();
    const int t = (int)threadIdx.x;
    const int64_t column = p.tile * g.across * V + t;
    if (t < g.across * V && column < g.columns) {
        double s1 = 0.0, s2 = 0.0;
        for (int w = 0; w < WARPS; w++) {
            const int at = t % V * 33 + t / V;
            s1 += (double)(float)part[w][at];
            s2 += (double)(float)part[WARPS + w][at];
        }
        const int64_t e = (p.table * g.rows + p.first) * g.columns + column;
        partial[(p.table * g.blocks + p.block) * g.columns + column] =
            f.partial(s1, s2, p.end - p.first, e);
    }
}

/* ---- level 2 ----
 * F: add(&a, &b, partial, rows of its block, the column's first partial) in f64;
 * finish(table, column, a, b, first partial). */
template <typename F>
__global__ void __launch_bounds__(COLUMN_THREADS)
    column_totals(F f, column_grid g, const float2 *partial)
{
    enum { WARPS = COLUMN_THREADS / 32, DOWN = COLUMN_THREADS / TOTAL_COLUMNS };
    SHARED(double, part, 2 * WARPS, TOTAL_COLUMNS);
    const int64_t tiles = (g.columns + TOTAL_COLUMNS - 1) / TOTAL_COLUMNS,
                  table = blockIdx.x / tiles;
    const int x = (int)threadIdx.x % TOTAL_COLUMNS, warp = (int)threadIdx.x >> 5;
    const int64_t column = (blockIdx.x - table * tiles) * TOTAL_COLUMNS + x;
    const float2 *from = partial + table * g.blocks * g.columns + column;
    double a = 0.0, b = 0.0;
    float2 first = make_float2(0.0f, 0.0f);
    if (column < g.columns && g.blocks > 0) {
        first = from[0];
        for (int64_t i = (int)threadIdx.x / TOTAL_COLUMNS; i < g.blocks; i += DOWN) {
            const int64_t left = g.rows - i * g.each;
            f.add(a, b, from[i * g.columns], left < g.each ? left : g.each, first);
        }
    }
    for (int apart = TOTAL_COLUMNS; apart < 32; apart *= 2) {
        a += __shfl_xor_sync(0xffffffffu, a, apart);
        b += __shfl_xor_sync(0xffffffffu, b, apart);
    }
    if (((int)threadIdx.x & 31) < TOTAL_COLUMNS) {
        part[warp][x] = a;
        part[WARPS + warp][x] = b;
    }
    __syncthreads();
    if ((int)threadIdx.x < TOTAL_COLUMNS && column < g.columns) {
        a = b = 0.0;
        for (int w = 0; w < WARPS; w++) {
            a += (double)part[w][x];
            b += (double)part[WARPS + w][x];
        }
        f.finish(table, column, a, b, first);
    }
}
static inline unsigned total_blocks(const column_grid &g)
{
    return (unsigned)(g.tables * ((g.columns + TOTAL_COLUMNS - 1) / TOTAL_COLUMNS));
}

/* ---- passes ---- F: item, state; begin, load, use. */
template <int V, typename F>
__global__ void __launch_bounds__(COLUMN_THREADS) column_pass(F f, column_grid g)
{
    const column_place p = place_of<V>(g);
    typename F::state s;
    if (p.column < g.columns) {
        f.begin(s, p, g);
        walk_rows<V>(f, s, g, p);
    }
}

/* ---- statistics: mean and squared distances ----
 * Level 1 adds up x - k and its square, k the column's value in the block's first row, so that a
 * mean far above the deviation costs nothing; partials are mean and squared distances of a block.
 * Level 2 joins them (Chan, Golub, LeVeque 1983) around the first block's mean. */
template <typename T, int V> struct moment_sums {
    const T *x;
    struct item {
        pack<T, V> x;
    };
    struct state {
        float s1[V], s2[V], k[V];
    };
    __device__ void begin(state &s, const column_place &p, const column_grid &g) const
    {
        const pack<T, V> first =
            ::load<T, V>(x + (p.table * g.rows + p.first) * g.columns + p.column);
        for (int v = 0; v < V; v++) {
            s.k[v] = to_float(first.v[v]);
        }
    }
    __device__ void load(item &i, int64_t e, int64_t) const
    {
        i.x = ::load<T, V>(x + e);
    }
    __device__ void use(state &s, const item &i, int64_t) const
    {
        UNROLL
        for (int v = 0; v < V; v++) {
            const float d = to_float(i.x.v[v]) - s.k[v];
            s.s1[v] += d;
            s.s2[v] = fmaf(d, d, s.s2[v]);
        }
    }
    __device__ float2 partial(double s1, double s2, int64_t n, int64_t e) const
    {
        const double m2 = s2 - s1 * s1 / (double)n;
        return make_float2((float)((double)to_float(x[e]) + s1 / (double)n),
                           (float)(m2 < 0.0 ? 0.0 : m2)); /* rounding; a NaN stays */
    }
};

/* Of the totals of a column with n values: a = sum of n_b (mean_b - m), b = squared distances to m,
 * the first block's mean. */
struct moments {
    double mean, m2;
};
__device__ static inline void add_moments(double &a, double &b, float2 part, double n, float2 first)
{
    const double d = (double)part.x - (double)first.x;
    a += n * d;
    b += (double)part.y + n * d * d;
}
__device__ static inline moments join_moments(double a, double b, double n, float2 first)
{
    moments m;
    m.mean = (double)first.x + a / n;
    m.m2 = b - a * a / n;
    m.m2 = m.m2 < 0.0 ? 0.0 : m.m2;
    return m;
}

#endif

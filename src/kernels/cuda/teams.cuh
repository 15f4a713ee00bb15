/* Rows that a team of threads takes together: 1 to 32 lanes of a warp for short rows, a block for
 * long ones. Sums and maxima over the team have a fixed tree. Long rows in 16-byte accesses. */
#ifndef LEVIN_KERNELS_CUDA_TEAMS_CUH
#define LEVIN_KERNELS_CUDA_TEAMS_CUH

#include "cuda.cuh"

enum {
    TEAM_THREADS = 256, /* of a block */
    LONG_ROW = 1024,    /* longer rows have a block each */
};

/* How rows are spread over a grid: `each` rows per block. */
struct team_grid {
    int64_t rows, k, each;
    int lanes; /* of a team: a power of two, or TEAM_THREADS */
};

/* At least one row per team and at most about `blocks` blocks; `work` elements count as a short
 * row's length. */
static inline team_grid share_rows(int64_t rows, int64_t k, int64_t work, int64_t blocks)
{
    team_grid g;
    g.rows = rows;
    g.k = k;
    g.lanes = 1;
    while (g.lanes < 32 && g.lanes < work) {
        g.lanes *= 2;
    }
    g.lanes = k > LONG_ROW ? (int)TEAM_THREADS : g.lanes;
    const int64_t teams = TEAM_THREADS / g.lanes,
                  turns = (rows + blocks * teams - 1) / (blocks * teams);
    g.each = teams * (turns < 1 ? 1 : turns);
    return g;
}
static inline unsigned team_blocks(const team_grid &g)
{
    return blocks_for(g.rows, g.each);
}

/* The larger one; NaN counts as the largest. */
__device__ __forceinline__ float larger(float a, float b)
{
    return b > a || b != b ? b : a;
}

/* BLOCK: the team is the block. */
template <bool BLOCK> struct team {
    int lane, lanes;
    int64_t first, step, end; /* its rows: first, first + step, ... below end */
    int turns;                /* of the team with the most rows: all take part in sums so often */

    __device__ __forceinline__ explicit team(const team_grid &g)
    {
        const int t = (int)threadIdx.x;
        lanes = BLOCK ? (int)TEAM_THREADS : g.lanes;
        lane = t & (lanes - 1);
        step = TEAM_THREADS / lanes;
        first = blockIdx.x * g.each + t / lanes;
        end = (blockIdx.x + 1) * g.each;
        end = end < g.rows ? end : g.rows;
        turns = (int)(g.each / step);
    }
    template <typename S> __device__ __forceinline__ S sum(S x) const
    {
        if constexpr (BLOCK) {
            x = block_sum(x);
        } else {
            for (int apart = lanes / 2; apart > 0; apart /= 2) {
                x += __shfl_xor_sync(0xffffffffu, x, apart);
            }
        }
        return x;
    }
    __device__ __forceinline__ float max(float x) const /* see larger() */
    {
        for (int apart = (BLOCK ? 32 : lanes) / 2; apart > 0; apart /= 2) {
            x = larger(x, __shfl_xor_sync(0xffffffffu, x, apart));
        }
        if constexpr (BLOCK) {
            SHARED(float, part, TEAM_THREADS / 32);
            if ((lane & 31) == 0) {
                part[lane >> 5] = x;
            }
            __syncthreads();
            for (int w = 0; w < TEAM_THREADS / 32; w++) {
                x = larger(x, (float)part[w]);
            }
            __syncthreads();
        }
        return x;
    }
};

/* ---- long rows ---- */

/* k elements from element `start` of a tensor on. A block takes them in packs of 16 bytes, which
 * begin at the first element that lies at a multiple of 16 bytes, and each of the few in front of
 * the packs and behind them by a thread of its own. Tensors begin at multiples of 16 bytes: what a
 * thread takes, and in which order, follows from start and k. */
template <typename T> struct long_row {
    enum { N = 16 / sizeof(T), AHEAD = 4 }; /* AHEAD: packs that a thread waits for at a time */
    typedef pack<T, N> packed;
    const T *x; /* the first element */
    int64_t k, head, packs;

    __device__ __forceinline__ long_row(const T *tensor, int64_t start, int64_t elements)
    {
        x = tensor + start;
        k = elements;
        head = (N - start % N) % N;
        head = head < k ? head : k;
        packs = (k - head) / N;
    }
    /* The element outside of the packs that is the lane's; -1: none. */
    __device__ __forceinline__ int64_t edge(int lane) const
    {
        return lane < head ? lane : lane < k - packs * N ? lane + packs * N : -1;
    }
    __device__ __forceinline__ int64_t first_of(int64_t p) const /* element of pack p */
    {
        return head + p * N;
    }
    /* take(p, x, n) for all packs of the lane: n packs from p on, TEAM_THREADS apart. All AHEAD
     * are loaded, the last one again where there are fewer: loads behind branches would wait for
     * each other. */
    template <typename F> __device__ __forceinline__ void in_packs(int lane, const F &take) const
    {
        for (int64_t p = lane; p < packs; p += AHEAD * TEAM_THREADS) {
            packed ahead[AHEAD];
            int n = 0;
            UNROLL
            for (int j = 0; j < AHEAD; j++) {
                const int64_t next = p + j * TEAM_THREADS;
                n += next < packs ? 1 : 0;
                ahead[j] = load<T, N>(x + first_of(next < packs ? next : packs - 1));
            }
            take(p, ahead, n);
        }
    }
};

/* take(i, x[i]) for all elements i of the team's row that are this thread's. */
template <bool BLOCK, typename T, typename F>
__device__ __forceinline__ void each_of_row(const team<BLOCK> &t, const long_row<T> &row,
                                            const F &take)
{
    if constexpr (BLOCK) {
        const int64_t edge = row.edge(t.lane);
        if (edge >= 0) {
            take(edge, to_float(row.x[edge]));
        }
        row.in_packs(t.lane, [&](int64_t p, const typename long_row<T>::packed *ahead, int n) {
            UNROLL
            for (int j = 0; j < long_row<T>::AHEAD; j++) {
                UNROLL
                for (int e = 0; j < n && e < long_row<T>::N; e++) {
                    take(row.first_of(p + j * TEAM_THREADS) + e, to_float(ahead[j].v[e]));
                }
            }
        });
    } else {
        for (int64_t i = t.lane; i < row.k; i += t.lanes) {
            take(i, to_float(row.x[i]));
        }
    }
}

/* team_kernel<true or false>, as the rows need it; of elements of type T. */
#define LAUNCH_TEAMS(args, kernel, g, ...)                                                         \
    ((g).lanes == TEAM_THREADS ? launch((args)->stream, (args)->op->name, kernel<true>,            \
                                        team_blocks(g), TEAM_THREADS, 0, g, __VA_ARGS__)           \
                               : launch((args)->stream, (args)->op->name, kernel<false>,           \
                                        team_blocks(g), TEAM_THREADS, 0, g, __VA_ARGS__))
#define LAUNCH_TEAMS_OF(T, args, kernel, g, ...)                                                   \
    ((g).lanes == TEAM_THREADS ? launch((args)->stream, (args)->op->name, kernel<true, T>,         \
                                        team_blocks(g), TEAM_THREADS, 0, g, __VA_ARGS__)           \
                               : launch((args)->stream, (args)->op->name, kernel<false, T>,        \
                                        team_blocks(g), TEAM_THREADS, 0, g, __VA_ARGS__))

#endif

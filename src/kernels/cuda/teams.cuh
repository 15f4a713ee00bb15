/* Rows that a team of threads takes together: 1 to 32 lanes of a warp for short rows, a block for
 * long ones. Sums and maxima over the team have a fixed tree. */
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

/* team_kernel<true or false>, as the rows need it. */
#define LAUNCH_TEAMS(args, kernel, g, ...)                                                         \
    ((g).lanes == TEAM_THREADS ? launch((args)->stream, (args)->op->name, kernel<true>,            \
                                        team_blocks(g), TEAM_THREADS, 0, g, __VA_ARGS__)           \
                               : launch((args)->stream, (args)->op->name, kernel<false>,           \
                                        team_blocks(g), TEAM_THREADS, 0, g, __VA_ARGS__))

#endif

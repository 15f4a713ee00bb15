/* Running sums, and the order of elements, along an axis. */
#include "sort.cuh"

namespace
{

enum { BLOCK = 256 };

/* ---- cumsum: in f64 ---- */

/* x as (outer, size, inner); line l is (l / inner, l % inner). */
struct lines {
    int64_t size, inner;
    bool reverse;
};

__device__ __forceinline__ int64_t first_of(const lines &l, int64_t line)
{
    return line / l.inner * l.size * l.inner + line % l.inner;
}

static __global__ void scan_by_threads(const float *x, float *y, int64_t n, lines l)
{
    FOR_GRID (line, n) {
        const int64_t step = l.reverse ? -l.inner : l.inner;
        int64_t at = first_of(l, line) + (l.reverse ? (l.size - 1) * l.inner : 0);
        double sum = 0.0;
        for (int64_t s = 0; s < l.size; s++, at += step) {
            sum += (double)x[at];
            y[at] = (float)sum;
        }
    }
}

/* The sum of the lanes before this one: not as a difference, which infinities would spoil. */
__device__ __forceinline__ double sum_before(double mine, double *all_of_warp)
{
    const int lane = (int)threadIdx.x & 31;
    double sum = mine;
    for (unsigned apart = 1; apart < 32; apart *= 2) {
        const double other = __shfl_up_sync(0xffffffffu, sum, apart);
        sum += lane >= (int)apart ? other : 0.0;
    }
    *all_of_warp = __shfl_sync(0xffffffffu, sum, 31);
    const double before = __shfl_up_sync(0xffffffffu, sum, 1);
    return lane > 0 ? before : 0.0;
}

/* A block for each line; a thread adds EACH neighbours. */
static __global__ void scan_by_blocks(const float *x, float *y, int64_t n, lines l)
{
    enum { EACH = 4 };
    SHARED(double, of_warp, 32);
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32;
    for (int64_t line = blockIdx.x; line < n; line += gridDim.x) {
        const int64_t first = first_of(l, line);
        double carry = 0.0;
        for (int64_t begin = 0; begin < l.size; begin += (int64_t)blockDim.x * EACH) {
            const int64_t s = begin + (int64_t)threadIdx.x * EACH;
            double sum[EACH], all, mine = 0.0;
            for (int k = 0; k < EACH; k++) {
                const int64_t at = l.reverse ? l.size - 1 - (s + k) : s + k;
                mine += s + k < l.size ? (double)x[first + at * l.inner] : 0.0;
                sum[k] = mine;
            }
            double before = carry + sum_before(mine, &all);
            if (((int)threadIdx.x & 31) == 0) {
                of_warp[warp] = all;
            }
            __syncthreads();
            for (int w = 0; w < warps; w++) {
                const double part = of_warp[w];
                before += w < warp ? part : 0.0;
                carry += part;
            }
            __syncthreads(); /* the next round writes of_warp */
            for (int k = 0; k < EACH; k++) {
                const int64_t at = l.reverse ? l.size - 1 - (s + k) : s + k;
                if (s + k < l.size) {
                    y[first + at * l.inner] = (float)(before + sum[k]);
                }
            }
        }
    }
}

static lvn_status run_cumsum(const lvn_kernel_args *args)
{
    const lvn_scan_attr &attr = attr_of<lvn_scan_attr>(args);
    const lvn_tensor *x = args->in[0];
    const lines l = {lvn_size(x, attr.axis), sizes_after(x, attr.axis), attr.reverse};
    const int64_t n = lvn_numel(x) == 0 ? 0 : sizes_before(x, attr.axis) * l.inner;
    const bool threads = l.size <= 16 || (l.inner > 1 && (l.size <= 128 || n >= 8192));
    if (threads) {
        return launch(args->stream, "cumsum", scan_by_threads, blocks_for(n, BLOCK), BLOCK, 0,
                      in<float>(args, 0), out<float>(args, 0), n, l);
    }
    const unsigned block = l.size <= 128 ? 32 : l.size <= 512 ? 128 : l.size <= 4096 ? 256 : 1024;
    return launch(args->stream, "cumsum", scan_by_blocks, blocks_for(n, 1), block, 0,
                  in<float>(args, 0), out<float>(args, 0), n, l);
}

/* ---- sorting: the bitonic network (Batcher 1968, "Sorting networks and their applications"),
 * whose steps between keys that are less than a tile apart are done in shared memory ---- */

enum { TILE = 2048 };

/* Sequences of `run` keys, in turn ascending and descending, come from sequences of half as many:
 * places i and i + apart, of pair q. */
__device__ __forceinline__ int64_t place_of_pair(int64_t q, int64_t apart)
{
    return (q & ~(apart - 1)) << 1 | (q & (apart - 1));
}

static __global__ void sort_far(uint64_t *keys, int64_t pairs, int64_t size, int64_t run,
                                int64_t apart)
{
    FOR_GRID (q, pairs) {
        const int64_t i = place_of_pair(q, apart);
        const uint64_t a = keys[i], b = keys[i + apart];
        if ((a > b) == (((i & (size - 1)) & run) == 0)) {
            keys[i] = b;
            keys[i + apart] = a;
        }
    }
}

/* All steps of the sequences from `first` to `last` keys that stay in a tile. */
static __global__ void sort_near(uint64_t *keys, int64_t n, int64_t size, int64_t first,
                                 int64_t last)
{
    SHARED(uint64_t, tile, TILE);
    const int me = (int)threadIdx.x;
    for (int64_t begin = (int64_t)blockIdx.x * TILE; begin < n;
         begin += (int64_t)gridDim.x * TILE) {
        const int here = (int)(n - begin < TILE ? n - begin : (int64_t)TILE);
        for (int i = me; i < here; i += BLOCK) {
            tile[i] = keys[begin + i];
        }
        __syncthreads();
        for (int64_t run = first; run <= last; run *= 2) {
            for (int apart = run > TILE ? TILE / 2 : (int)(run / 2); apart > 0; apart /= 2) {
                for (int q = me; q < here / 2; q += BLOCK) {
                    const int i = (int)place_of_pair(q, apart);
                    const uint64_t a = tile[i], b = tile[i + apart];
                    if ((a > b) == ((((begin + i) & (size - 1)) & run) == 0)) {
                        tile[i] = b;
                        tile[i + apart] = a;
                    }
                }
                __syncthreads();
            }
        }
        for (int i = me; i < here; i += BLOCK) {
            keys[begin + i] = tile[i];
        }
        __syncthreads();
    }
}

} // namespace

lvn_status lvnc_sort(const lvn_kernel_args *args, uint64_t *keys, int64_t lines, int64_t size)
{
    const char *what = args->op->name;
    const int64_t n = lines * size, near = size < TILE ? size : (int64_t)TILE;
    if (size > 1) {
        LVN_TRY(launch(args->stream, what, sort_near, blocks_for(n, TILE), BLOCK, 0, keys, n, size,
                       2, near));
    }
    for (int64_t run = 2 * TILE; run <= size; run *= 2) {
        for (int64_t apart = run / 2; apart >= TILE; apart /= 2) {
            LVN_TRY(launch(args->stream, what, sort_far, blocks_for(n / 2, BLOCK), BLOCK, 0, keys,
                           n / 2, size, run, apart));
        }
        LVN_TRY(launch(args->stream, what, sort_near, blocks_for(n, TILE), BLOCK, 0, keys, n, size,
                       run, run));
    }
    return LVN_OK;
}

namespace
{

/* ---- argsort ---- */

struct sort_job {
    int64_t size, inner, keep, room; /* room: keys of a line */
    int64_t first;                   /* line */
    bool descending;
};

/* The order of floats as the order of numbers: -0 is 0, every NaN the largest. */
__device__ __forceinline__ uint64_t key_of(float x, int64_t place, bool descending)
{
    const uint32_t some = __float_as_uint(x + 0.0f);
    const uint32_t bits = x != x ? UINT32_MAX : (some >> 31) != 0 ? ~some : some | 0x80000000u;
    return (uint64_t)(descending ? ~bits : bits) << 32 | (uint64_t)place;
}

static __global__ void make_keys(const float *x, uint64_t *keys, int64_t n, sort_job j)
{
    FOR_GRID (e, n) {
        const int64_t line = j.first + e / j.room, s = e & (j.room - 1);
        uint64_t key = SORT_NO_KEY;
        if (s < j.size) {
            const int64_t o = line / j.inner, i = line % j.inner;
            key = key_of(x[(o * j.size + s) * j.inner + i], s, j.descending);
        }
        keys[e] = key;
    }
}

static __global__ void keep_places(const uint64_t *keys, int64_t *y, int64_t n, sort_job j)
{
    FOR_GRID (e, n) {
        const int64_t here = e / j.keep, s = e % j.keep, line = j.first + here;
        const int64_t o = line / j.inner, i = line % j.inner;
        y[(o * j.keep + s) * j.inner + i] = (int64_t)(keys[here * j.room + s] & UINT32_MAX);
    }
}

static sort_room argsort_room(const lvn_kernel_args *args)
{
    const int axis = attr_of<lvn_sort_attr>(args).axis;
    const lvn_tensor *x = args->in[0];
    return sort_room_for(sizes_before(x, axis) * sizes_after(x, axis), lvn_size(x, axis));
}

static lvn_status run_argsort(const lvn_kernel_args *args)
{
    const lvn_sort_attr &attr = attr_of<lvn_sort_attr>(args);
    const lvn_tensor *x = args->in[0];
    const sort_room room = argsort_room(args);
    const int64_t inner = sizes_after(x, attr.axis), all = sizes_before(x, attr.axis) * inner;
    uint64_t *keys = static_cast<uint64_t *>(args->workspace);
    sort_job j = {lvn_size(x, attr.axis), inner, attr.keep, room.size, 0, attr.descending};
    if (lvn_numel(args->out[0]) == 0) {
        return LVN_OK;
    }
    for (; j.first < all; j.first += room.lines) {
        const int64_t lines = all - j.first < room.lines ? all - j.first : room.lines,
                      n = lines * room.size, kept = lines * j.keep;
        LVN_TRY(launch(args->stream, "argsort", make_keys, blocks_for(n, BLOCK), BLOCK, 0,
                       in<float>(args, 0), keys, n, j));
        LVN_TRY(lvnc_sort(args, keys, lines, room.size));
        LVN_TRY(launch(args->stream, "argsort", keep_places, blocks_for(kept, BLOCK), BLOCK, 0,
                       keys, out<int64_t>(args, 0), kept, j));
    }
    return LVN_OK;
}

static size_t argsort_bytes(const lvn_kernel_args *args)
{
    return argsort_room(args).bytes;
}

} // namespace

static const lvn_backend_kernel kernels[] = {
    {"cumsum", run_cumsum, F32, 0, NULL},
    {"argsort", run_argsort, F32, 0, argsort_bytes},
};
extern const kernel_rows rows_order;
const kernel_rows rows_order = ROWS(kernels);

/* Accuracy: the share of rows whose first maximum is the label, counted per block, then by one
 * block. A label out of range is raised. */
#include "teams.cuh"

/* launch() and others are instantiated with these types. */
namespace
{

enum { MOST_PARTS = 4096, FINISH_THREADS = 1024 };

static team_grid grid_of(const lvn_tensor *x)
{
    const int64_t k = lvn_size(x, lvn_ndim(x) - 1);
    return share_rows(lvn_numel(x) / k, k, k, MOST_PARTS);
}

/* Whether (b, j) comes before (a, i) as first maximum; NaN is the greatest. */
__device__ __forceinline__ bool comes_first(float b, int64_t j, float a, int64_t i)
{
    const bool a_nan = a != a, b_nan = b != b;
    return b > a || (b_nan && !a_nan) || ((b == a || (a_nan && b_nan)) && j < i);
}

/* Of lanes [0, lanes): the first maximum, in all of them. */
__device__ __forceinline__ void first_max(float &top, int64_t &at, int lanes)
{
    for (int apart = lanes / 2; apart > 0; apart /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, top, apart);
        const int64_t place = __shfl_xor_sync(0xffffffffu, at, apart);
        if (comes_first(other, place, top, at)) {
            top = other;
            at = place;
        }
    }
}

template <bool BLOCK, typename T>
static __global__ void __launch_bounds__(TEAM_THREADS)
    accuracy(team_grid g, const T *logits, const int64_t *labels, lvnc_alarm alarm, int64_t *part)
{
    SHARED(float, tops, TEAM_THREADS / 32);
    SHARED(int64_t, places, TEAM_THREADS / 32);
    const team<BLOCK> t(g);
    int64_t right = 0, row = t.first;
    for (int i = 0; i < t.turns; i++, row += t.step) {
        const bool mine = row < t.end;
        const long_row<T> x(logits, mine ? row * g.k : 0, mine ? g.k : 0);
        float top = -INFINITY;
        int64_t at = g.k; /* of no element: any comes first */
        each_of_row(t, x, [&](int64_t k, float v) {
            if (comes_first(v, k, top, at)) {
                top = v;
                at = k;
            }
        });
        first_max(top, at, BLOCK ? 32 : t.lanes);
        if (BLOCK) {
            if ((t.lane & 31) == 0) {
                tops[t.lane >> 5] = top;
                places[t.lane >> 5] = at;
            }
            __syncthreads();
            for (int w = 0; w < TEAM_THREADS / 32; w++) {
                if (comes_first(tops[w], places[w], top, at)) {
                    top = tops[w];
                    at = places[w];
                }
            }
            __syncthreads();
        }
        if (mine && t.lane == 0) {
            const int64_t label = labels[row];
            right += label == at ? 1 : 0;
            if (label < 0 || label >= g.k) {
                raise(alarm, LVNC_FAULT_LABEL, label, g.k, row);
            }
        }
    }
    right = block_sum(right);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = right;
    }
}

static __global__ void finish_accuracy(const int64_t *part, int64_t n, int64_t rows, float *share)
{
    int64_t right = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        right += part[i];
    }
    right = block_sum(right);
    if (threadIdx.x == 0) {
        *share = (float)((double)right / (double)rows);
    }
}

static size_t parts_workspace(const lvn_kernel_args *args)
{
    return team_blocks(grid_of(args->in[0])) * sizeof(int64_t);
}

template <typename T> static lvn_status accuracy_of(const lvn_kernel_args *args)
{
    const team_grid g = grid_of(args->in[0]);
    int64_t *part = static_cast<int64_t *>(args->workspace);
    LVN_TRY(LAUNCH_TEAMS_OF(T, args, accuracy, g, in<T>(args, 0), in<int64_t>(args, 1),
                            lvnc_alarm_of(args), part));
    return launch(args->stream, "accuracy", finish_accuracy, 1, FINISH_THREADS, 0, part,
                  team_blocks(g), g.rows, out<float>(args, 0));
}
static lvn_status run_accuracy(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return accuracy_of<T>(args));
}

} // namespace

static const lvn_backend_kernel kernels[] = {
    {"accuracy", run_accuracy, FLOATS, 0, parts_workspace},
};
extern const kernel_rows rows_accuracy;
const kernel_rows rows_accuracy = ROWS(kernels);

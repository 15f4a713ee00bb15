/* softmax and log-softmax over the last axis, forward and gradient. A row that its team reads again
 * is in the first or second cache. */
#include "teams.cuh"

/* launch() and others are instantiated with these types. */
namespace
{

static team_grid grid_of(const lvn_tensor *t)
{
    const int64_t k = lvn_size(t, lvn_ndim(t) - 1), rows = k == 0 ? 0 : lvn_numel(t) / k;
    return share_rows(rows, k, k, 0x7fffffff);
}

/* ---- forward ---- */

template <bool BLOCK, bool LOG>
__device__ __forceinline__ void forward_row(const team<BLOCK> &t, const float *x, float *y,
                                            int64_t k, bool mine)
{
    float top = -INFINITY, sum = 0.0f;
    for (int64_t i = t.lane; mine && i < k; i += t.lanes) {
        top = larger(top, x[i]);
    }
    top = t.max(top);
    for (int64_t i = t.lane; mine && i < k; i += t.lanes) {
        const float e = expf(x[i] - top);
        sum += e;
        if (!LOG) {
            y[i] = e; /* read by the same thread */
        }
    }
    sum = t.sum(sum);
    const float log_sum = LOG ? logf(sum) : 0.0f;
    for (int64_t i = t.lane; mine && i < k; i += t.lanes) {
        y[i] = LOG ? (x[i] - top) - log_sum : y[i] / sum;
    }
}

template <bool BLOCK, bool LOG>
__device__ __forceinline__ void forward(const team_grid &g, const float *x, float *y)
{
    const team<BLOCK> t(g);
    int64_t row = t.first;
    for (int i = 0; i < t.turns; i++, row += t.step) {
        const int64_t at = row < t.end ? row * g.k : 0;
        forward_row<BLOCK, LOG>(t, x + at, y + at, g.k, row < t.end);
    }
}

template <bool BLOCK>
static __global__ void __launch_bounds__(TEAM_THREADS)
    softmax(team_grid g, const float *x, float *y)
{
    forward<BLOCK, false>(g, x, y);
}
template <bool BLOCK>
static __global__ void __launch_bounds__(TEAM_THREADS)
    log_softmax(team_grid g, const float *x, float *y)
{
    forward<BLOCK, true>(g, x, y);
}

/* ---- gradients: y (dy - sum(dy y)), dy - e^y sum(dy) ---- */

template <bool BLOCK, bool LOG>
__device__ __forceinline__ void backward(const team_grid &g, const float *dy, const float *y,
                                         float *dx)
{
    const team<BLOCK> t(g);
    int64_t row = t.first;
    for (int i = 0; i < t.turns; i++, row += t.step) {
        const int64_t at = row < t.end ? row * g.k : 0, n = row < t.end ? g.k : 0;
        float sum = 0.0f;
        for (int64_t j = t.lane; j < n; j += t.lanes) {
            sum = LOG ? sum + dy[at + j] : fmaf(dy[at + j], y[at + j], sum);
        }
        sum = t.sum(sum);
        for (int64_t j = t.lane; j < n; j += t.lanes) {
            const float d = dy[at + j], v = y[at + j];
            dx[at + j] = LOG ? d - expf(v) * sum : v * (d - sum);
        }
    }
}

template <bool BLOCK>
static __global__ void __launch_bounds__(TEAM_THREADS)
    softmax_grad(team_grid g, const float *dy, const float *y, float *dx)
{
    backward<BLOCK, false>(g, dy, y, dx);
}
template <bool BLOCK>
static __global__ void __launch_bounds__(TEAM_THREADS)
    log_softmax_grad(team_grid g, const float *dy, const float *y, float *dx)
{
    backward<BLOCK, true>(g, dy, y, dx);
}

/* ---- rows ---- */

static lvn_status run_softmax(const lvn_kernel_args *args)
{
    const team_grid g = grid_of(args->in[0]);
    return LAUNCH_TEAMS(args, softmax, g, in<float>(args, 0), out<float>(args, 0));
}
static lvn_status run_log_softmax(const lvn_kernel_args *args)
{
    const team_grid g = grid_of(args->in[0]);
    return LAUNCH_TEAMS(args, log_softmax, g, in<float>(args, 0), out<float>(args, 0));
}
static lvn_status run_softmax_grad(const lvn_kernel_args *args)
{
    const team_grid g = grid_of(args->in[0]);
    return LAUNCH_TEAMS(args, softmax_grad, g, in<float>(args, 0), in<float>(args, 1),
                        out<float>(args, 0));
}
static lvn_status run_log_softmax_grad(const lvn_kernel_args *args)
{
    const team_grid g = grid_of(args->in[0]);
    return LAUNCH_TEAMS(args, log_softmax_grad, g, in<float>(args, 0), in<float>(args, 1),
                        out<float>(args, 0));
}

} // namespace

static const lvn_backend_kernel kernels[] = {
    {"softmax", run_softmax, F32, 0, NULL},
    {"softmax_grad", run_softmax_grad, F32, 0, NULL},
    {"log_softmax", run_log_softmax, F32, 0, NULL},
    {"log_softmax_grad", run_log_softmax_grad, F32, 0, NULL},
};
extern const kernel_rows rows_softmax;
const kernel_rows rows_softmax = ROWS(kernels);

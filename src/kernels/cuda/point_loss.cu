/* Losses element by element: squares, absolute values, smooth ones (Girshick 2015, "Fast R-CNN",
 * eq. 3), binary cross entropy of logits. Sums are f64, a part per block; one block adds those. */
#include "cuda.cuh"

/* launch() and others are instantiated with these types. */
namespace
{

enum { THREADS = 256, MOST_BLOCKS = 1024, FINISH_THREADS = 1024 };

struct point_job {
    const float *x, *t, *weight, *positive; /* the last two: NULL for ones */
    int64_t n, classes;
    float beta;
    bool sum;

    __device__ __forceinline__ float weight_of(int64_t e) const
    {
        return weight == NULL ? 1.0f : weight[e];
    }
    __device__ __forceinline__ float positive_of(int64_t e) const
    {
        return positive == NULL ? 1.0f : positive[e % classes];
    }
};

static point_job describe(const lvn_kernel_args *args, int first)
{
    const lvn_point_loss_attr &attr = attr_of<lvn_point_loss_attr>(args);
    const lvn_tensor *x = args->in[first];
    point_job j;
    j.x = in<float>(args, first);
    j.t = in<float>(args, first + 1);
    j.weight = in<float>(args, first + 2);
    j.positive = in<float>(args, first + 3);
    j.n = lvn_numel(x);
    j.classes = lvn_ndim(x) == 0 ? 1 : lvn_size(x, lvn_ndim(x) - 1);
    j.beta = (float)attr.beta;
    j.sum = attr.sum;
    return j;
}

template <int KIND>
__device__ __forceinline__ float value(float beta, float x, float t, float positive)
{
    const float d = x - t, size = fabsf(d);
    switch (KIND) {
    case LVN_LOSS_SQUARE: return d * d;
    case LVN_LOSS_ABSOLUTE: return size;
    case LVN_LOSS_SMOOTH_L1: return size < beta ? 0.5f * d * d / beta : size - 0.5f * beta;
    default: /* -positive t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)) */
        return (1.0f - t) * x +
               (1.0f + (positive - 1.0f) * t) * (log1pf(expf(-fabsf(x))) + (x < 0.0f ? -x : 0.0f));
    }
}

/* d value / dx */
template <int KIND>
__device__ __forceinline__ float slope(float beta, float x, float t, float positive)
{
    const float d = x - t;
    switch (KIND) {
    case LVN_LOSS_SQUARE: return d + d;
    case LVN_LOSS_ABSOLUTE: return (d > 0.0f ? 1.0f : 0.0f) - (d < 0.0f ? 1.0f : 0.0f);
    case LVN_LOSS_SMOOTH_L1: return d <= -beta ? -1.0f : d >= beta ? 1.0f : d / beta;
    default: { /* 1 - sigmoid(x) */
        const float e = expf(-fabsf(x)), part = (x < 0.0f ? 1.0f : e) / (1.0f + e);
        return (1.0f - t) - (1.0f + (positive - 1.0f) * t) * part;
    }
    }
}

template <int KIND> static __global__ void point_loss(point_job j, double2 *part)
{
    double2 both;
    both.x = both.y = 0.0;
    FOR_GRID (e, j.n) {
        const float w = j.weight_of(e);
        both.x += (double)(w * value<KIND>(j.beta, j.x[e], j.t[e], j.positive_of(e)));
        both.y += KIND == LVN_LOSS_BINARY ? 1.0 : (double)w;
    }
    both.x = block_sum(both.x);
    both.y = block_sum(both.y);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = both;
    }
}

static __global__ void finish(const double2 *part, int n, bool sum, float *loss, float *divisor)
{
    double losses = 0.0, weights = 0.0;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        losses += part[i].x;
        weights += part[i].y;
    }
    losses = block_sum(losses);
    weights = block_sum(weights);
    if (threadIdx.x == 0) {
        const double by = sum || weights == 0.0 ? 1.0 : weights;
        *loss = (float)(losses / by);
        *divisor = (float)by;
    }
}

template <int KIND>
static __global__ void point_loss_grad(point_job j, const float *dloss, const float *divisor,
                                       float *dx, float *dt)
{
    const float factor = *dloss / *divisor;
    FOR_GRID (e, j.n) {
        const float d = slope<KIND>(j.beta, j.x[e], j.t[e], j.positive_of(e)) * factor,
                    weighted = j.weight == NULL ? d : d * j.weight[e];
        dx[e] = weighted;
        if (dt != NULL) {
            dt[e] = -weighted;
        }
    }
}

static unsigned parts_of(int64_t n)
{
    const unsigned blocks = blocks_for(n, 4 * THREADS);
    return blocks < MOST_BLOCKS ? blocks : (unsigned)MOST_BLOCKS;
}
static size_t workspace(const lvn_kernel_args *args)
{
    return parts_of(lvn_numel(args->in[0])) * sizeof(double2);
}

#define WITH_KIND(kind, KIND, statement)                                                           \
    switch (kind) {                                                                                \
    case LVN_LOSS_SQUARE: {                                                                        \
        enum { KIND = LVN_LOSS_SQUARE };                                                           \
        statement;                                                                                 \
    } break;                                                                                       \
    case LVN_LOSS_ABSOLUTE: {                                                                      \
        enum { KIND = LVN_LOSS_ABSOLUTE };                                                         \
        statement;                                                                                 \
    } break;                                                                                       \
    case LVN_LOSS_SMOOTH_L1: {                                                                     \
        enum { KIND = LVN_LOSS_SMOOTH_L1 };                                                        \
        statement;                                                                                 \
    } break;                                                                                       \
    case LVN_LOSS_BINARY: {                                                                        \
        enum { KIND = LVN_LOSS_BINARY };                                                           \
        statement;                                                                                 \
    } break;                                                                                       \
    }

static lvn_status run_point_loss(const lvn_kernel_args *args)
{
    const point_job j = describe(args, 0);
    const unsigned parts = parts_of(j.n);
    double2 *part = static_cast<double2 *>(args->workspace);
    WITH_KIND(
        attr_of<lvn_point_loss_attr>(args).kind, KIND,
        LVN_TRY(launch(args->stream, "point_loss", point_loss<KIND>, parts, THREADS, 0, j, part)));
    return launch(args->stream, "point_loss", finish, 1, FINISH_THREADS, 0, part, (int)parts, j.sum,
                  out<float>(args, 0), out<float>(args, 1));
}

static lvn_status run_point_loss_grad(const lvn_kernel_args *args)
{
    const point_job j = describe(args, 2);
    WITH_KIND(attr_of<lvn_point_loss_attr>(args).kind, KIND,
              return launch(args->stream, "point_loss_grad", point_loss_grad<KIND>,
                            blocks_for(j.n, 4 * THREADS), THREADS, 0, j, in<float>(args, 0),
                            in<float>(args, 1), out<float>(args, 0), out<float>(args, 1)));
    LVN_FAIL(LVN_ERR_INTERNAL, "point_loss_grad: there is no loss %d",
             (int)attr_of<lvn_point_loss_attr>(args).kind);
}

} // namespace

static const lvn_backend_kernel kernels[] = {
    {"point_loss", run_point_loss, F32, 0, workspace},
    {"point_loss_grad", run_point_loss_grad, F32, 0, NULL},
};
extern const kernel_rows rows_point_loss;
const kernel_rows rows_point_loss = ROWS(kernels);

/* Grids of positions from affine maps, and images sampled at positions, as PyTorch's affine_grid
 * and grid_sample define them (Jaderberg et al. 2015, "Spatial transformer networks", eq. 1 and 5).
 */
#include "sample.cuh"

/* ---- affine maps ---- */

__device__ __forceinline__ double coordinate(int i, int n, bool align_corners)
{
    if (align_corners) {
        return n > 1 ? 2.0 * i / (double)(n - 1) - 1.0 : 0.0;
    }
    return (2.0 * i + 1.0) / (double)n - 1.0;
}

static __global__ void affine_grid(const float *theta, float2 *grid, int height, int width,
                                   bool align_corners, int64_t n)
{
    FOR_GRID (i, n) {
        const int64_t row = i / width;
        const float *t = theta + row / height * 6;
        const double x = coordinate((int)(i - row * width), width, align_corners),
                     y = coordinate((int)(row % height), height, align_corners);
        grid[i] = make_float2((float)((double)t[0] * x + (double)t[1] * y + (double)t[2]),
                              (float)((double)t[3] * x + (double)t[4] * y + (double)t[5]));
    }
}

/* A block: the sums over the grid of one image. */
static __global__ void affine_grid_grad(const float2 *grid, float *theta, int height, int width,
                                        bool align_corners)
{
    const int64_t pixels = (int64_t)height * width;
    const float2 *g = grid + blockIdx.x * pixels;
    double sum[6] = {0.0};
    for (int64_t p = threadIdx.x; p < pixels; p += blockDim.x) {
        const double x = coordinate((int)(p % width), width, align_corners),
                     y = coordinate((int)(p / width), height, align_corners);
        const float2 v = g[p];
        sum[0] += (double)v.x * x;
        sum[1] += (double)v.x * y;
        sum[2] += (double)v.x;
        sum[3] += (double)v.y * x;
        sum[4] += (double)v.y * y;
        sum[5] += (double)v.y;
    }
    for (int k = 0; k < 6; k++) {
        const double all = block_sum(sum[k]);
        if (threadIdx.x == 0) {
            theta[blockIdx.x * 6 + k] = (float)all;
        }
    }
}

static lvn_status run_affine_grid(const lvn_kernel_args *args)
{
    const lvn_affine_attr &a = attr_of<lvn_affine_attr>(args);
    const int64_t images = lvn_size(args->out[0], 0);
    if (a.height > INT32_MAX || a.width > INT32_MAX) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "affine_grid: a grid of %lld x %lld positions",
                 (long long)a.height, (long long)a.width);
    }
    if (a.transposed) {
        return launch(args->stream, "affine_grid", affine_grid_grad, (unsigned)images, 256, 0,
                      in<float2>(args, 0), out<float>(args, 0), (int)a.height, (int)a.width,
                      a.align_corners);
    }
    const int64_t n = images * a.height * a.width;
    return launch(args->stream, "affine_grid", affine_grid, blocks_for(n, 256), 256, 0,
                  in<float>(args, 0), out<float2>(args, 0), (int)a.height, (int)a.width,
                  a.align_corners, n);
}

/* ---- sampling ---- */

/* N channels at one position. */
template <int N>
static __global__ void sample(const pack<float, N> *x, const float *grid, pack<float, N> *y,
                              sample_shape s, int64_t n)
{
    const int packs = s.c / N;
    FOR_GRID (i, n) {
        const int64_t o = i / packs;
        const int c = (int)(i - o * packs);
        const pack<float, N> *image = x + o / s.positions * s.h * s.w * packs + c;
        const corners at = find_corners(s, grid + 2 * o);
        pack<float, N> sum;
        for (int j = 0; j < N; j++) {
            sum.v[j] = 0.0f;
        }
        for (int k = 0; k < CORNERS; k++) {
            const int64_t pixel = corner_pixel(s, at, k);
            const float weight = (float)corner_weight(at, k);
            if (pixel >= 0 && weight != 0.0f) {
                const pack<float, N> v = image[pixel * packs];
                for (int j = 0; j < N; j++) {
                    sum.v[j] = fmaf(weight, v.v[j], sum.v[j]);
                }
            }
        }
        y[i] = sum;
    }
}

template <int N>
static lvn_status sample_packs(const lvn_kernel_args *args, const sample_shape &s, int64_t images)
{
    const int64_t n = images * s.positions * (s.c / N);
    return launch(args->stream, "grid_sample", sample<N>, blocks_for(n, 128), 128, 0,
                  in<pack<float, N>>(args, 0), in<float>(args, 1), out<pack<float, N>>(args, 0), s,
                  n);
}

static lvn_status run_sample(const lvn_kernel_args *args)
{
    const int64_t images = lvn_size(args->in[0], 0);
    sample_shape s;
    LVN_TRY(make_sample_shape(args, args->in[0], args->in[1], &s));
    return s.c % 4 == 0 ? sample_packs<4>(args, s, images) : sample_packs<1>(args, s, images);
}

static const lvn_backend_kernel kernels[] = {
    {"affine_grid", run_affine_grid, F32, 0, NULL},
    {"grid_sample", run_sample, F32, 0, NULL},
};
extern const kernel_rows rows_sample;
const kernel_rows rows_sample = ROWS(kernels);

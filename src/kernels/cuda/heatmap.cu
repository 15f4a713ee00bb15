/* Maps of keypoints: soft-argmax, its gradient, and maps to train with (ref_heatmap.c has the
 * formulas, cpu/heatmap.c the order of work). Columns of maps are doubled into the workspace, (h,
 * W) for each map; of the map doubled both ways a thread has one pixel at a time. */
#include "image.cuh"

namespace
{

enum { OF_MAP = 3, KEPT = 5, TOP = 0, SUM, AT_X, AT_Y, CONFIDENCE };
enum { RADIUS = 2, LINE = 5, CUBIC = 4, THREADS = 256 };
/* Pixels of the small map under one of the large one: 11 for 4 doublings. */
enum { MOST_TAPS = 12 };

/* ---- doublings along one axis ---- */

/* A row of the result is the sum over k < n of weight[k] times row first + k. */
struct taps {
    int first, n;
    double weight[MOST_TAPS];
};

/* While it is made: before and behind one step of a transposed map. */
struct row_weights {
    int first, n;
    double weight[2 * MOST_TAPS];
};

__device__ __forceinline__ void begin_weights(row_weights &r, int first)
{
    r.first = first;
    r.n = 0;
    for (int k = 0; k < 2 * MOST_TAPS; k++) {
        r.weight[k] = 0.0;
    }
}

__device__ __forceinline__ void add_weight(row_weights &r, int at, double weight)
{
    r.weight[at - r.first] += weight;
    r.n = max(r.n, at - r.first + 1);
}

/* Back through the filter of a line of n pixels. */
__device__ __forceinline__ row_weights through_filter(const row_weights &r, int n)
{
    row_weights out;
    begin_weights(out, max(r.first - RADIUS, 0));
    for (int i = 0; i < r.n; i++) {
        for (int k = -RADIUS; k <= RADIUS; k++) {
            const int at = r.first + i + k;
            if (at >= 0 && at < n) {
                add_weight(out, at, r.weight[i] * (k == 0 ? 6.0 : k * k == 1 ? 4.0 : 1.0) / 16.0);
            }
        }
    }
    return out;
}

/* Back through the interpolation of n pixels to 2 n: an even pixel lies at 3/4, an odd one at 1/4
 * between two (Keys 1981, a = -3/4). */
__device__ __forceinline__ row_weights through_cubic(const row_weights &r, int n)
{
    const double odd[CUBIC] = {-27.0 / 256, 225.0 / 256, 67.0 / 256, -9.0 / 256};
    row_weights out;
    begin_weights(out, min(max((r.first + 1) / 2 - CUBIC / 2, 0), n - 1));
    for (int i = 0; i < r.n; i++) {
        const int at = r.first + i, left = (at + 1) / 2 - CUBIC / 2;
        for (int k = 0; k < CUBIC; k++) {
            add_weight(out, min(max(left + k, 0), n - 1),
                       r.weight[i] * odd[at % 2 != 0 ? k : CUBIC - 1 - k]);
        }
    }
    return out;
}

/* Rows and columns: those of a map first. */
struct axes {
    int h, w, large_h, large_w;
    taps *rows, *columns;
};

static __global__ void make_taps(axes a)
{
    FOR_GRID (i, a.large_h + a.large_w) {
        const bool row = i < a.large_h;
        const int o = row ? (int)i : (int)i - a.large_h, n = row ? a.h : a.w;
        row_weights r;
        begin_weights(r, o);
        add_weight(r, o, 1.0);
        for (int size = row ? a.large_h : a.large_w; size > n; size /= 2) {
            r = through_filter(r, size);
            r = through_cubic(r, size / 2);
        }
        taps &t = row ? a.rows[o] : a.columns[o];
        t.first = r.first;
        t.n = r.n;
        for (int k = 0; k < MOST_TAPS; k++) {
            t.weight[k] = k < r.n ? r.weight[k] : 0.0;
        }
    }
}

/* (maps, h, W): maps lie in (N, h, w, K). */
static __global__ void double_columns(axes a, const float *maps, float *wide, int keypoints,
                                      int64_t n)
{
    FOR_GRID (i, n) {
        const int o = (int)(i % a.large_w), r = (int)(i / a.large_w % a.h);
        const int64_t map = i / a.large_w / a.h;
        const taps &t = a.columns[o];
        const float *x =
            maps + ((map / keypoints * a.h + r) * a.w + t.first) * keypoints + map % keypoints;
        double sum = 0.0;
        for (int k = 0; k < t.n; k++) {
            sum += t.weight[k] * (double)x[(int64_t)k * keypoints];
        }
        wide[i] = (float)sum;
    }
}

/* Pixel (i, j) of the large map; wide: of the map. */
__device__ __forceinline__ double pixel_at(const axes &a, const float *wide, int i, int j)
{
    const taps &t = a.rows[i];
    const float *x = wide + (int64_t)t.first * a.large_w + j;
    double sum = 0.0;
    for (int k = 0; k < t.n; k++) {
        sum += t.weight[k] * (double)x[(int64_t)k * a.large_w];
    }
    return sum;
}

/* ---- soft-argmax: a block has a map ---- */

__device__ __forceinline__ double block_max(double x)
{
    SHARED(double, part, 33);
    const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5,
              warps = (int)blockDim.x >> 5;
    x = warp_max(x);
    if (lane == 0) {
        part[warp] = x;
    }
    __syncthreads();
    for (int i = 0; i < warps; i++) {
        x = part[i] > x ? (double)part[i] : x;
    }
    __syncthreads();
    return x;
}

/* Is the pixel of an axis in the window around a position? */
__device__ __forceinline__ bool is_near(int i, float at)
{
    return fabsf((float)i - truncf(at)) <= (float)RADIUS;
}

static __global__ void __launch_bounds__(THREADS)
    find_positions(axes a, const float *all_wide, double temperature, float shift, float *y,
                   float *keep)
{
    const int64_t map = blockIdx.x;
    const float *wide = all_wide + map * a.h * a.large_w;
    const int pixels = a.large_h * a.large_w;
    double top = -(double)INFINITY, sum = 0.0, rows = 0.0, columns = 0.0;
    for (int p = (int)threadIdx.x; p < pixels; p += THREADS) {
        const int i = p / a.large_w, j = p - i * a.large_w;
        const double u = pixel_at(a, wide, i, j);
        if (u > top) {
            const double less = exp(temperature * (top - u));
            sum *= less;
            rows *= less;
            columns *= less;
            top = u;
        }
        const double e = (double)expf((float)(temperature * (u - top)));
        sum += e;
        rows += e * i;
        columns += e * j;
    }
    const double highest = block_max(top), by = exp(temperature * (top - highest));
    sum = block_sum(sum * by);
    const float found_x = (float)(block_sum(columns * by) / sum),
                found_y = (float)(block_sum(rows * by) / sum), kept_top = (float)highest;
    const double kept_sum = sum * exp(temperature * (highest - (double)kept_top));
    double window = found_x + found_y; /* a NaN stays one */
    window = window != window ? window : 0.0;
    if (threadIdx.x < LINE * LINE && window == 0.0) {
        const double row = trunc((double)found_y) + (int)threadIdx.x / LINE - RADIUS,
                     column = trunc((double)found_x) + (int)threadIdx.x % LINE - RADIUS;
        if (row >= 0.0 && row < a.large_h && column >= 0.0 && column < a.large_w) {
            const double u = pixel_at(a, wide, (int)row, (int)column);
            window = (double)expf((float)(temperature * (u - (double)kept_top)));
        }
    }
    const float confidence = (float)(block_sum(window) / kept_sum);
    if (threadIdx.x == 0) {
        y[OF_MAP * map] = found_x - shift;
        y[OF_MAP * map + 1] = found_y - shift;
        y[OF_MAP * map + 2] = confidence;
        if (keep != NULL) {
            float *k = keep + KEPT * map;
            k[TOP] = kept_top;
            k[SUM] = (float)kept_sum;
            k[AT_X] = found_x;
            k[AT_Y] = found_y;
            k[CONFIDENCE] = confidence;
        }
    }
}

/* A thread has columns of the large map: their gradients go to the rows of `back`, (maps, h, W). */
static __global__ void __launch_bounds__(THREADS)
    spread_rows(axes a, const float *all_wide, const float *all_dy, const float *all_kept,
                double temperature, float *all_back)
{
    const int64_t map = blockIdx.x;
    const float *wide = all_wide + map * a.h * a.large_w, *dy = all_dy + OF_MAP * map,
                *kept = all_kept + KEPT * map;
    float *back = all_back + map * a.h * a.large_w;
    const double by = temperature / (double)kept[SUM];
    for (int j = (int)threadIdx.x; j < a.large_w; j += THREADS) {
        const bool near_column = is_near(j, kept[AT_X]);
        for (int r = 0; r < a.h; r++) {
            back[(int64_t)r * a.large_w + j] = 0.0f;
        }
        for (int i = 0; i < a.large_h; i++) {
            const taps &t = a.rows[i];
            const double u = pixel_at(a, wide, i, j);
            const double e = (double)expf((float)(temperature * (u - (double)kept[TOP])));
            const double near = near_column && is_near(i, kept[AT_Y]) ? 1.0 : 0.0;
            const double g = by * e *
                             ((double)dy[0] * (j - (double)kept[AT_X]) +
                              (double)dy[1] * (i - (double)kept[AT_Y]) +
                              (double)dy[2] * (near - (double)kept[CONFIDENCE]));
            for (int k = 0; k < t.n; k++) {
                float &to = back[(int64_t)(t.first + k) * a.large_w + j];
                to = (float)((double)to + t.weight[k] * g);
            }
        }
    }
}

/* The transpose of double_columns; a pixel gathers from the columns that it has been a tap of. */
static __global__ void gather_columns(axes a, const float *back, float *dx, int keypoints,
                                      int64_t n)
{
    const int factor = a.large_w / a.w;
    FOR_GRID (i, n) {
        const int c = (int)(i % a.w), r = (int)(i / a.w % a.h);
        const int64_t map = i / a.w / a.h;
        const float *g = back + (map * a.h + r) * a.large_w;
        const int end = min((c + MOST_TAPS) * factor, a.large_w);
        double sum = 0.0;
        for (int o = max((c - MOST_TAPS) * factor, 0); o < end; o++) {
            const taps &t = a.columns[o];
            if (c >= t.first && c < t.first + t.n) {
                sum += t.weight[c - t.first] * (double)g[o];
            }
        }
        dx[((map / keypoints * a.h + r) * a.w + c) * keypoints + map % keypoints] = (float)sum;
    }
}

/* ---- launching ---- */

struct call {
    axes a;
    int keypoints;
    int64_t maps;
    float *wide, *back;
};

static size_t rounded(size_t bytes)
{
    return (bytes + 63) / 64 * 64; /* tables begin at 64 bytes */
}

/* Bytes of the workspace; where things lie in `memory`, unless NULL. */
static size_t lay_out(const lvn_tensor *maps, const lvn_soft_argmax_attr &attr, bool gradient,
                      char *memory, call *c)
{
    c->a.h = (int)lvn_size(maps, 1);
    c->a.w = (int)lvn_size(maps, 2);
    c->a.large_h = c->a.h << attr.doublings;
    c->a.large_w = c->a.w << attr.doublings;
    c->keypoints = (int)lvn_size(maps, 3);
    c->maps = lvn_size(maps, 0) * lvn_size(maps, 3);
    const size_t rows = rounded((size_t)c->a.large_h * sizeof(taps)),
                 columns = rounded((size_t)c->a.large_w * sizeof(taps)),
                 wide = rounded((size_t)(c->maps * c->a.h * c->a.large_w) * sizeof(float));
    if (memory != NULL) {
        c->a.rows = reinterpret_cast<taps *>(memory);
        c->a.columns = reinterpret_cast<taps *>(memory + rows);
        c->wide = reinterpret_cast<float *>(memory + rows + columns);
        c->back = reinterpret_cast<float *>(memory + rows + columns + wide);
    }
    return rows + columns + (gradient ? 2 : 1) * wide;
}

static size_t forward_bytes(const lvn_kernel_args *args)
{
    call c;
    return lay_out(args->in[0], attr_of<lvn_soft_argmax_attr>(args), false, NULL, &c);
}

static size_t gradient_bytes(const lvn_kernel_args *args)
{
    call c;
    return lay_out(args->in[1], attr_of<lvn_soft_argmax_attr>(args), true, NULL, &c);
}

/* Taps and columns. */
static lvn_status begin(const lvn_kernel_args *args, int maps, bool gradient, call *c)
{
    const char *op = args->op->name;
    const lvn_soft_argmax_attr &attr = attr_of<lvn_soft_argmax_attr>(args);
    LVN_TRY(check_pixels(op, args->in[maps]));
    lay_out(args->in[maps], attr, gradient, static_cast<char *>(args->workspace), c);
    if ((int64_t)c->a.large_h * c->a.large_w > INT32_MAX || c->maps > INT32_MAX) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: %lld maps of %d x %d pixels: at most %d maps, and pixels", op,
                 (long long)c->maps, c->a.large_h, c->a.large_w, INT32_MAX);
    }
    const int64_t n = c->maps * c->a.h * c->a.large_w;
    LVN_TRY(launch(args->stream, op, make_taps, blocks_for(c->a.large_h + c->a.large_w, 64), 64, 0,
                   c->a));
    return launch(args->stream, op, double_columns, blocks_for(n, THREADS), THREADS, 0, c->a,
                  in<float>(args, maps), c->wide, c->keypoints, n);
}

static lvn_status run_soft_argmax(const lvn_kernel_args *args)
{
    const lvn_soft_argmax_attr &attr = attr_of<lvn_soft_argmax_attr>(args);
    call c;
    LVN_TRY(begin(args, 0, false, &c));
    return launch(args->stream, "soft_argmax2d", find_positions, (unsigned)c.maps, THREADS, 0, c.a,
                  static_cast<const float *>(c.wide), attr.temperature,
                  (float)(((1 << attr.doublings) - 1) / 2.0), out<float>(args, 0),
                  args->out[1] == NULL ? NULL : out<float>(args, 1));
}

static lvn_status run_gradient(const lvn_kernel_args *args)
{
    static const char op[] = "soft_argmax2d_grad";
    call c;
    LVN_TRY(begin(args, 1, true, &c));
    LVN_TRY(launch(args->stream, op, spread_rows, (unsigned)c.maps, THREADS, 0, c.a,
                   static_cast<const float *>(c.wide), in<float>(args, 0), in<float>(args, 2),
                   attr_of<lvn_soft_argmax_attr>(args).temperature, c.back));
    const int64_t n = c.maps * c.a.h * c.a.w;
    return launch(args->stream, op, gather_columns, blocks_for(n, THREADS), THREADS, 0, c.a,
                  static_cast<const float *>(c.back), out<float>(args, 0), c.keypoints, n);
}

/* ---- maps to train with: a block has a map ---- */

static __global__ void __launch_bounds__(THREADS)
    draw_maps(const float *points, const float *kinds, float *y, int keypoints, int height,
              int width, double scale, double sigma)
{
    const int64_t map = blockIdx.x;
    const double px = (double)points[2 * map] * scale, py = (double)points[2 * map + 1] * scale,
                 by = -1.0 / (2.0 * sigma * sigma);
    const bool even = kinds[map] == 1.0f, there = kinds[map] == 2.0f && px >= -1.0 &&
                                                  px <= width + 1.0 && py >= -1.0 &&
                                                  py <= height + 1.0;
    double wide = 0.0, high = 0.0;
    for (int i = (int)threadIdx.x; i < width; i += THREADS) {
        wide += even ? 1.0 : exp((i - px) * (i - px) * by);
    }
    for (int i = (int)threadIdx.x; i < height; i += THREADS) {
        high += even ? 1.0 : exp((i - py) * (i - py) * by);
    }
    const double sum = block_sum(wide) * block_sum(high);
    float *to = y + map / keypoints * height * width * keypoints + map % keypoints;
    for (int p = (int)threadIdx.x; p < height * width; p += THREADS) {
        const int i = p / width, j = p - i * width;
        const double far = ((i - py) * (i - py) + (j - px) * (j - px)) * by;
        to[(int64_t)p * keypoints] = even                 ? (float)(1.0 / sum)
                                     : there && sum > 0.0 ? (float)(exp(far) / sum)
                                                          : 0.0f;
    }
}

static lvn_status run_heatmap(const lvn_kernel_args *args)
{
    const lvn_heatmap_attr &a = attr_of<lvn_heatmap_attr>(args);
    const int64_t maps = lvn_numel(args->in[1]);
    LVN_TRY(check_pixels("heatmap2d", args->out[0]));
    LVN_ARG(maps <= INT32_MAX, "heatmap2d: %lld maps: the limit is %d", (long long)maps, INT32_MAX);
    return launch(args->stream, "heatmap2d", draw_maps, (unsigned)maps, THREADS, 0,
                  in<float>(args, 0), in<float>(args, 1), out<float>(args, 0),
                  (int)lvn_size(args->in[1], 1), (int)a.height, (int)a.width, a.scale, a.sigma);
}

} // namespace

static const lvn_backend_kernel kernels[] = {
    {"soft_argmax2d", run_soft_argmax, F32, 0, forward_bytes},
    {"soft_argmax2d_grad", run_gradient, F32, 0, gradient_bytes},
    {"heatmap2d", run_heatmap, F32, 0, NULL},
};
extern const kernel_rows rows_heatmap;
const kernel_rows rows_heatmap = ROWS(kernels);

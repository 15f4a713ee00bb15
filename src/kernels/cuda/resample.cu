/* Average pooling and resizing of images (N, H, W, C), and their gradients: linear maps along the
 * height and the width. Small kernels write the taps of both axes to the workspace: which pixels of
 * the input an output sees, and their weights. The gradient gathers: an input's outputs are
 * neighbours, since windows move in one direction, and add up in their order. */
#include "image.cuh"

enum { CUBIC_TAPS = 4 };

/* One axis of the map (not of its gradient). */
struct map_axis {
    int kind; /* lvn_resample_kind */
    bool align_corners, exclude_padding;
    int kernel, stride, padding; /* of average pooling */
    bool antialias, scaled;
    double step; /* pixels of the input for each of the output */
    int64_t in, out;
};

/* Output o sees pixels first[o] to first[o] + count[o] - 1, with weights from weight[o most] on.
 * Input i is seen by outputs above[i] to above[i] + seen[i] - 1. */
struct map_taps {
    int *first, *count, *above, *seen;
    float *weight;
    int most;
};

/* ---- taps ---- */

__device__ static int64_t clamped(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* Where output o lies in the input: pixel `whole` and a fraction of the way to the next; fractions
 * of integers, so no rounding moves a tap. */
__device__ static void find_position(const map_axis &a, int64_t o, int64_t *whole, double *fraction)
{
    if (a.scaled) {
        double at = ((double)o + 0.5) * a.step - 0.5;
        at = at < 0.0 && a.kind == LVN_RESAMPLE_BILINEAR ? 0.0 : at;
        *whole = (int64_t)(at + 1.0) - 1; /* at >= -1/2 */
        *fraction = at - (double)*whole;
        return;
    }
    int64_t above = (2 * o + 1) * a.in - a.out, below = 2 * a.out; /* (o + 1/2) in / out - 1/2 */
    if (a.align_corners) {
        above = a.out > 1 ? o * (a.in - 1) : 0;
        below = a.out > 1 ? a.out - 1 : 1;
    }
    if (above < 0 && a.kind == LVN_RESAMPLE_BILINEAR) {
        above = 0;
    }
    *whole = above >= 0 ? above / below : -((below - 1 - above) / below);
    *fraction = (double)(above - *whole * below) / (double)below;
}

/* Keys, Cubic convolution interpolation (1981), at a distance of at most 2. */
__device__ static double cubic(double d, double a = -0.75)
{
    return d <= 1.0 ? ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
                    : ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
}

/* Two or four taps from pixel `from` on; those outside of the image fall on its border. */
__device__ static void fold_taps(const map_axis &a, int64_t from, int n, const double *w,
                                 const map_taps &t, int64_t o)
{
    const int64_t first = clamped(from, a.in), count = clamped(from + n - 1, a.in) - first + 1;
    for (int64_t k = 0; k < count; k++) {
        double sum = 0.0;
        for (int j = 0; j < n; j++) {
            sum += clamped(from + j, a.in) - first == k ? w[j] : 0.0;
        }
        t.weight[o * t.most + k] = (float)sum;
    }
    t.first[o] = (int)first;
    t.count[o] = (int)count;
}

__device__ static void interpolate(const map_axis &a, const map_taps &t, int64_t o)
{
    int64_t whole;
    double fraction;
    find_position(a, o, &whole, &fraction);
    if (a.kind == LVN_RESAMPLE_BILINEAR) {
        const double w[2] = {1.0 - fraction, fraction};
        fold_taps(a, whole, fraction > 0.0 ? 2 : 1, w, t, o);
        return;
    }
    const double w[CUBIC_TAPS] = {cubic(1.0 + fraction), cubic(fraction), cubic(1.0 - fraction),
                                  cubic(2.0 - fraction)};
    fold_taps(a, whole - 1, CUBIC_TAPS, w, t, o);
}

/* Pixels that a filter without aliases reaches in one direction. */
__host__ __device__ static double support_of(const map_axis &a)
{
    const double pixels = a.kind == LVN_RESAMPLE_BICUBIC ? 2.0 : 1.0;
    return a.step > 1.0 ? pixels * a.step : pixels;
}

__device__ static double filter_at(const map_axis &a, double d)
{
    d = d < 0.0 ? -d : d;
    return a.kind == LVN_RESAMPLE_BICUBIC ? (d < 2.0 ? cubic(d, -0.5) : 0.0)
           : d < 1.0                      ? 1.0 - d
                                          : 0.0;
}

/* Pixels whose middle is within the filter share a weight of 1. */
__device__ static void filter_taps(const map_axis &a, const map_taps &t, int64_t o)
{
    const double wide = a.step > 1.0 ? a.step : 1.0, support = support_of(a),
                 centre = ((double)o + 0.5) * a.step, from = centre - support + 0.5,
                 to = centre + support + 0.5;
    const int64_t first = from > 0.0 ? (int64_t)from : 0,
                  n = (to < (double)a.in ? (int64_t)to : a.in) - first;
    double sum = 0.0;
    for (int64_t k = 0; k < n; k++) {
        sum += filter_at(a, ((double)(first + k) - centre + 0.5) / wide);
    }
    for (int64_t k = 0; k < n; k++) {
        t.weight[o * t.most + k] =
            (float)(filter_at(a, ((double)(first + k) - centre + 0.5) / wide) / sum);
    }
    t.first[o] = (int)first;
    t.count[o] = (int)n;
}

/* n pixels of equal weights */
__device__ static void average(const map_taps &t, int64_t o, int64_t first, int64_t n,
                               int64_t divisor)
{
    t.first[o] = (int)first;
    t.count[o] = (int)n;
    for (int64_t k = 0; k < n; k++) {
        t.weight[o * t.most + k] = (float)(1.0 / (double)divisor);
    }
}

/* Of both axes: blockIdx.y. */
static __global__ void make_taps(map_axis height, map_taps rows, map_axis width, map_taps columns)
{
    const map_axis a = blockIdx.y == 0 ? height : width;
    const map_taps t = blockIdx.y == 0 ? rows : columns;
    const int64_t o = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (o >= a.out) {
        return;
    }
    if (a.kind == LVN_RESAMPLE_AVG_POOL) {
        const int64_t start = o * a.stride - a.padding, end = start + a.kernel,
                      first = start < 0 ? 0 : start, n = (end < a.in ? end : a.in) - first;
        average(t, o, first, n, a.exclude_padding ? n : a.kernel);
    } else if (a.kind == LVN_RESAMPLE_ADAPTIVE_POOL) {
        const int64_t first = o * a.in / a.out, n = ((o + 1) * a.in + a.out - 1) / a.out - first;
        average(t, o, first, n, n);
    } else if (a.kind == LVN_RESAMPLE_NEAREST) {
        average(t, o, o * a.in / a.out, 1, 1);
    } else if (a.antialias) {
        filter_taps(a, t, o);
    } else {
        interpolate(a, t, o);
    }
}

/* Which outputs see an input: first pixels and last ones grow with the output. */
static __global__ void turn_taps(map_axis height, map_taps rows, map_axis width, map_taps columns)
{
    const map_axis a = blockIdx.y == 0 ? height : width;
    const map_taps t = blockIdx.y == 0 ? rows : columns;
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.in) {
        return;
    }
    int64_t low = 0, high = a.out; /* the first output whose last pixel is i or behind it */
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (t.first[middle] + t.count[middle] - 1 >= i) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    const int64_t begin = low;
    high = a.out; /* the first output whose first pixel is behind i */
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (t.first[middle] > i) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    t.above[i] = (int)begin;
    t.seen[i] = (int)(low - begin);
}

/* ---- images ---- */

struct resample_shape {
    pixels items; /* of the result */
    int in_h, in_w, c;
    map_taps rows, columns;
};

/* Pixels of the source from `first` on that a result's pixel takes along one axis. */
template <bool TURNED> __device__ __forceinline__ int taps_of(const map_taps &t, int at, int *first)
{
    *first = TURNED ? t.above[at] : t.first[at];
    return TURNED ? t.seen[at] : t.count[at];
}

template <bool TURNED>
__device__ __forceinline__ float weight_of(const map_taps &t, int at, int first, int k)
{
    return TURNED ? t.weight[(int64_t)(first + k) * t.most + at - t.first[first + k]]
                  : t.weight[(int64_t)at * t.most + k];
}

/* N channels of one pixel. */
template <typename T, int N, bool TURNED>
static __global__ void resample(const pack<T, N> *x, pack<T, N> *y, resample_shape s, unsigned n)
{
    const unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= n) {
        return;
    }
    const item_place at = place_of(item, s.items);
    int top, left;
    const int down = taps_of<TURNED>(s.rows, at.h, &top),
              across = taps_of<TURNED>(s.columns, at.w, &left);
    const pack<T, N> *corner = x + (((int64_t)at.n * s.in_h + top) * s.in_w + left) * s.c + at.c;
    float sum[N];
    for (int i = 0; i < N; i++) {
        sum[i] = 0.0f;
    }
    for (int row = 0; row < down; row++) {
        const float high = weight_of<TURNED>(s.rows, at.h, top, row);
        float mixed[N];
        for (int i = 0; i < N; i++) {
            mixed[i] = 0.0f;
        }
        for (int column = 0; column < across; column++) {
            const float wide = weight_of<TURNED>(s.columns, at.w, left, column);
            const pack<T, N> v = corner[((int64_t)row * s.in_w + column) * s.c];
            for (int i = 0; i < N; i++) {
                mixed[i] = fmaf(wide, to_float(v.v[i]), mixed[i]);
            }
        }
        for (int i = 0; i < N; i++) {
            sum[i] = fmaf(high, mixed[i], sum[i]);
        }
    }
    pack<T, N> result;
    for (int i = 0; i < N; i++) {
        result.v[i] = from_float<T>(sum[i]);
    }
    y[item] = result;
}

/* ---- launching ---- */

static map_axis axis_of(const lvn_kernel_args *args, int side)
{
    const lvn_resample_attr &r = attr_of<lvn_resample_attr>(args);
    const int64_t from = lvn_size(args->in[0], 1 + side), to = lvn_size(args->out[0], 1 + side);
    map_axis a;
    a.kind = (int)r.kind;
    a.align_corners = r.align_corners;
    a.exclude_padding = r.exclude_padding;
    a.kernel = r.pool.kernel[side];
    a.stride = r.pool.stride[side];
    a.padding = r.pool.padding[side];
    a.in = r.transposed ? to : from;
    a.out = r.transposed ? from : to;
    a.antialias = r.antialias;
    a.scaled = r.scale[side] > 0.0;
    a.step = a.scaled ? 1.0 / r.scale[side] : (double)a.in / (double)a.out;
    return a;
}

static int64_t most_taps(const map_axis &a)
{
    if (a.antialias) {
        return 2 * ((int64_t)support_of(a) + 1) + 1;
    }
    switch (a.kind) {
    case LVN_RESAMPLE_AVG_POOL: return a.kernel;
    case LVN_RESAMPLE_ADAPTIVE_POOL: return a.in / a.out + 2;
    default: return CUBIC_TAPS;
    }
}

/* Words of memory that the taps of an axis take. */
static int64_t taps_words(const map_axis &a)
{
    return a.out * (2 + most_taps(a)) + 2 * a.in;
}

static map_taps place_taps(const map_axis &a, int *memory)
{
    map_taps t;
    t.most = (int)most_taps(a);
    t.first = memory;
    t.count = t.first + a.out;
    t.above = t.count + a.out;
    t.seen = t.above + a.in;
    t.weight = reinterpret_cast<float *>(t.seen + a.in);
    return t;
}

static size_t taps_bytes(const lvn_kernel_args *args)
{
    return (size_t)(taps_words(axis_of(args, 0)) + taps_words(axis_of(args, 1))) * sizeof(int);
}

static lvn_status launch_taps(const lvn_kernel_args *args, const map_axis &height,
                              const map_axis &width, const resample_shape &s)
{
    const int64_t out = height.out > width.out ? height.out : width.out,
                  in = height.in > width.in ? height.in : width.in;
    LVN_TRY(launch(args->stream, "resample2d", make_taps, dim3(blocks_for(out, 128), 2), 128, 0,
                   height, s.rows, width, s.columns));
    return attr_of<lvn_resample_attr>(args).transposed
               ? launch(args->stream, "resample2d", turn_taps, dim3(blocks_for(in, 128), 2), 128, 0,
                        height, s.rows, width, s.columns)
               : LVN_OK;
}

template <typename T, int N>
static lvn_status resample_packs(const lvn_kernel_args *args, resample_shape s)
{
    typedef pack<T, N> values;
    s.items = make_pixels(args->out[0], N);
    s.c = s.items.c;
    const int64_t in_size = (int64_t)s.in_h * s.in_w * s.c,
                  out_size = (int64_t)s.items.h * s.items.w * s.c, all = lvn_size(args->in[0], 0);
    const auto kernel =
        attr_of<lvn_resample_attr>(args).transposed ? resample<T, N, true> : resample<T, N, false>;
    for (int64_t n = 0; n < all; n += s.items.images) {
        const int64_t items = (all - n < s.items.images ? all - n : s.items.images) * out_size;
        LVN_TRY(launch(args->stream, "resample2d", kernel, blocks_for(items, 128), 128, 0,
                       in<values>(args, 0) + n * in_size, out<values>(args, 0) + n * out_size, s,
                       (unsigned)items));
    }
    return LVN_OK;
}

template <typename T>
static lvn_status resample_type(const lvn_kernel_args *args, const resample_shape &s)
{
    enum { N = 16 / sizeof(T) };
    return lvn_size(args->in[0], 3) % N == 0 ? resample_packs<T, N>(args, s)
                                             : resample_packs<T, 1>(args, s);
}

static lvn_status run_resample(const lvn_kernel_args *args)
{
    const map_axis height = axis_of(args, 0), width = axis_of(args, 1);
    resample_shape s;
    LVN_TRY(check_pixels(args->op->name, args->in[0]));
    LVN_TRY(check_pixels(args->op->name, args->out[0]));
    if (lvn_numel(args->out[0]) == 0) {
        return LVN_OK;
    }
    s.in_h = (int)lvn_size(args->in[0], 1);
    s.in_w = (int)lvn_size(args->in[0], 2);
    s.rows = place_taps(height, static_cast<int *>(args->workspace));
    s.columns = place_taps(width, static_cast<int *>(args->workspace) + taps_words(height));
    LVN_TRY(launch_taps(args, height, width, s));
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return resample_type<T>(args, s));
}

static const lvn_backend_kernel kernels[] = {
    {"resample2d", run_resample, FLOATS, 0, taps_bytes},
};
extern const kernel_rows rows_resample;
const kernel_rows rows_resample = ROWS(kernels);

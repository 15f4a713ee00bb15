/* Max pooling of images (N, H, W, C) and its gradient. The gradient gathers: a pixel adds up what
 * the windows over it send, in their order. The first maximum of a window wins; a NaN counts as the
 * largest. */
#include "image.cuh"

struct pool_shape {
    pixels items;         /* of the result */
    int large_h, large_w; /* of the image that windows slide over */
    int small_h, small_w; /* windows */
    int kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w;
    int c; /* packs of channels */
};

static pool_shape describe(const lvn_pool_attr &a, const lvn_tensor *large, const lvn_tensor *small,
                           const pixels &items)
{
    pool_shape s;
    s.items = items;
    s.large_h = (int)lvn_size(large, 1);
    s.large_w = (int)lvn_size(large, 2);
    s.small_h = (int)lvn_size(small, 1);
    s.small_w = (int)lvn_size(small, 2);
    s.kernel_h = a.kernel[0];
    s.kernel_w = a.kernel[1];
    s.stride_h = a.stride[0];
    s.stride_w = a.stride[1];
    s.padding_h = a.padding[0];
    s.padding_w = a.padding[1];
    s.c = s.items.c;
    return s;
}

/* ---- forward ---- */

/* N channels of one window. */
template <typename T, int N>
static __global__ void max_pool(const pack<T, N> *x, pack<T, N> *y, pack<uint8_t, N> *place,
                                pool_shape s, unsigned n)
{
    const unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= n) {
        return;
    }
    const item_place at = place_of(item, s.items);
    const int top = at.h * s.stride_h - s.padding_h, left = at.w * s.stride_w - s.padding_w;
    const int first_row = max(top, 0), first_column = max(left, 0),
              rows_end = min(top + s.kernel_h, s.large_h),
              columns_end = min(left + s.kernel_w, s.large_w);
    const pack<T, N> *image = x + (int64_t)at.n * s.large_h * s.large_w * s.c + at.c;
    pack<T, N> best = image[((int64_t)first_row * s.large_w + first_column) * s.c];
    pack<uint8_t, N> where;
    for (int i = 0; i < N; i++) {
        where.v[i] = (uint8_t)((first_row - top) * s.kernel_w + first_column - left);
    }
    for (int row = first_row; row < rows_end; row++) {
        for (int column = first_column; column < columns_end; column++) {
            const pack<T, N> next = image[((int64_t)row * s.large_w + column) * s.c];
            for (int i = 0; i < N; i++) {
                const float have = to_float(best.v[i]), v = to_float(next.v[i]);
                if (!(v <= have) && have == have) {
                    best.v[i] = next.v[i];
                    where.v[i] = (uint8_t)((row - top) * s.kernel_w + column - left);
                }
            }
        }
    }
    y[item] = best;
    if (place != NULL) {
        place[item] = where;
    }
}

/* ---- gradient ---- */

enum { SIDE = 2 /* of the pixels of a thread: neighbours are in the same windows */ };

/* Windows over pixels [first, last] along an axis: row + padding - kernel < window * stride <= row
 * + padding. */
struct window_range {
    int first, last;
};
__device__ __forceinline__ window_range windows_over(int first, int last, int kernel, int stride,
                                                     int padding, int windows)
{
    window_range r;
    r.first = max(first + padding - kernel + stride, 0) / stride;
    r.last = min((last + padding) / stride, windows - 1);
    return r;
}

/* N channels of SIDE x SIDE pixels; each adds up its windows in their order. */
template <typename T, int N>
static __global__ void max_pool_grad(const pack<T, N> *dy, const pack<uint8_t, N> *place,
                                     pack<T, N> *dx, pool_shape s, unsigned n)
{
    const unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= n) {
        return;
    }
    const item_place at = place_of(item, s.items);
    const int top = at.h * SIDE, left = at.w * SIDE;
    const window_range rows = windows_over(top, min(top + SIDE, s.large_h) - 1, s.kernel_h,
                                           s.stride_h, s.padding_h, s.small_h),
                       columns = windows_over(left, min(left + SIDE, s.large_w) - 1, s.kernel_w,
                                              s.stride_w, s.padding_w, s.small_w);
    const int64_t image = (int64_t)at.n * s.small_h * s.small_w;
    float sum[SIDE][SIDE][N] = {};
    for (int row = rows.first; row <= rows.last; row++) {
        for (int column = columns.first; column <= columns.last; column++) {
            const int64_t e = (image + (int64_t)row * s.small_w + column) * s.c + at.c;
            const pack<uint8_t, N> chosen = place[e];
            const pack<T, N> sent = dy[e];
            const int down = top + s.padding_h - row * s.stride_h,
                      right = left + s.padding_w - column * s.stride_w;
            UNROLL
            for (int p = 0; p < SIDE * SIDE; p++) {
                const int y = down + p / SIDE, x = right + p % SIDE;
                const bool inside = y >= 0 && y < s.kernel_h && x >= 0 && x < s.kernel_w;
                const int tap = inside ? y * s.kernel_w + x : -1;
                UNROLL
                for (int i = 0; i < N; i++) {
                    sum[p / SIDE][p % SIDE][i] += chosen.v[i] == tap ? to_float(sent.v[i]) : 0.0f;
                }
            }
        }
    }
    UNROLL
    for (int p = 0; p < SIDE * SIDE; p++) {
        const int y = top + p / SIDE, x = left + p % SIDE;
        pack<T, N> result;
        UNROLL
        for (int i = 0; i < N; i++) {
            result.v[i] = from_float<T>(sum[p / SIDE][p % SIDE][i]);
        }
        if (y < s.large_h && x < s.large_w) {
            dx[(((int64_t)at.n * s.large_h + y) * s.large_w + x) * s.c + at.c] = result;
        }
    }
}

/* ---- launching ---- */

template <typename T, int N> static lvn_status pool_packs(const lvn_kernel_args *args, bool forward)
{
    const lvn_tensor *in0 = args->in[0], *result = args->out[0];
    const lvn_pool_attr &a = attr_of<lvn_pool_attr>(args);
    const pool_shape s = forward ? describe(a, in0, result, make_pixels(result, N))
                                 : describe(a, result, in0, make_pixels(result, N, SIDE, SIDE));
    const int64_t large = (int64_t)s.large_h * s.large_w * s.c,
                  small = (int64_t)s.small_h * s.small_w * s.c, all = lvn_size(in0, 0),
                  each = (int64_t)s.items.h * s.items.w * s.items.c;
    typedef pack<T, N> values;
    typedef pack<uint8_t, N> places;
    for (int64_t n = 0; n < all; n += s.items.images) {
        const int64_t images = all - n < s.items.images ? all - n : s.items.images,
                      items = images * each;
        const unsigned blocks = blocks_for(items, 256);
        if (forward) {
            places *place = args->out[1] == NULL ? NULL : out<places>(args, 1) + n * small;
            LVN_TRY(launch(args->stream, "max_pool2d", max_pool<T, N>, blocks, 256, 0,
                           in<values>(args, 0) + n * large, out<values>(args, 0) + n * small, place,
                           s, (unsigned)items));
        } else {
            LVN_TRY(launch(args->stream, "max_pool2d_grad", max_pool_grad<T, N>, blocks, 256, 0,
                           in<values>(args, 0) + n * small, in<places>(args, 1) + n * small,
                           out<values>(args, 0) + n * large, s, (unsigned)items));
        }
    }
    return LVN_OK;
}

template <typename T> static lvn_status pool(const lvn_kernel_args *args, bool forward)
{
    enum { N = 16 / sizeof(T) };
    LVN_TRY(check_pixels(args->op->name, args->in[0]));
    LVN_TRY(check_pixels(args->op->name, args->out[0]));
    return lvn_size(args->in[0], 3) % N == 0 ? pool_packs<T, N>(args, forward)
                                             : pool_packs<T, 1>(args, forward);
}

static lvn_status run_pool(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return pool<T>(args, true));
}

static lvn_status run_pool_grad(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return pool<T>(args, false));
}

static const lvn_backend_kernel kernels[] = {
    {"max_pool2d", run_pool, FLOATS, 0, NULL},
    {"max_pool2d_grad", run_pool_grad, FLOATS, 0, NULL},
};
extern const kernel_rows rows_pool;
const kernel_rows rows_pool = ROWS(kernels);

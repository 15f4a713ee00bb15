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
                           const lvn_tensor *result, int channels)
{
    pool_shape s;
    s.items = make_pixels(result, channels);
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

/* N channels of one pixel: row + padding - kernel < window * stride <= row + padding. */
template <typename T, int N>
static __global__ void max_pool_grad(const pack<T, N> *dy, const pack<uint8_t, N> *place,
                                     pack<T, N> *dx, pool_shape s, unsigned n)
{
    const unsigned item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= n) {
        return;
    }
    const item_place at = place_of(item, s.items);
    const int down = at.h + s.padding_h, right = at.w + s.padding_w;
    const int first_row = max(down - s.kernel_h + s.stride_h, 0) / s.stride_h,
              first_column = max(right - s.kernel_w + s.stride_w, 0) / s.stride_w,
              last_row = min(down / s.stride_h, s.small_h - 1),
              last_column = min(right / s.stride_w, s.small_w - 1);
    const int64_t image = (int64_t)at.n * s.small_h * s.small_w;
    float sum[N];
    for (int i = 0; i < N; i++) {
        sum[i] = 0.0f;
    }
    for (int row = first_row; row <= last_row; row++) {
        for (int column = first_column; column <= last_column; column++) {
            const int64_t e = (image + (int64_t)row * s.small_w + column) * s.c + at.c;
            const pack<uint8_t, N> chosen = place[e];
            const pack<T, N> sent = dy[e];
            const int tap = (down - row * s.stride_h) * s.kernel_w + right - column * s.stride_w;
            for (int i = 0; i < N; i++) {
                sum[i] += chosen.v[i] == tap ? to_float(sent.v[i]) : 0.0f;
            }
        }
    }
    pack<T, N> result;
    for (int i = 0; i < N; i++) {
        result.v[i] = from_float<T>(sum[i]);
    }
    dx[item] = result;
}

/* ---- launching ---- */

template <typename T, int N> static lvn_status pool_packs(const lvn_kernel_args *args, bool forward)
{
    const lvn_tensor *in0 = args->in[0], *result = args->out[0];
    const pool_shape s = forward ? describe(attr_of<lvn_pool_attr>(args), in0, result, result, N)
                                 : describe(attr_of<lvn_pool_attr>(args), result, in0, result, N);
    const int64_t large = (int64_t)s.large_h * s.large_w * s.c,
                  small = (int64_t)s.small_h * s.small_w * s.c, all = lvn_size(in0, 0);
    typedef pack<T, N> values;
    typedef pack<uint8_t, N> places;
    for (int64_t n = 0; n < all; n += s.items.images) {
        const int64_t images = all - n < s.items.images ? all - n : s.items.images,
                      items = images * (forward ? small : large);
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

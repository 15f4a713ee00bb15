/* The windows of images (N, H, W, C) as rows of numbers (unfold), and each pixel's sum over the
 * windows in which it lies (fold), gathered by pixel in the order of the window's places. */
#include "cuda.cuh"

struct window_sizes {
    lvn_window_attr a;
    int h, w, oh, ow;
    int64_t packs; /* accesses per pixel */
};

static window_sizes sizes_of(const lvn_kernel_args *args, const lvn_tensor *image,
                             const lvn_tensor *windows, int pack_size)
{
    window_sizes s;
    s.a = attr_of<lvn_window_attr>(args);
    s.h = (int)lvn_size(image, 1);
    s.w = (int)lvn_size(image, 2);
    s.oh = (int)lvn_size(windows, 1);
    s.ow = (int)lvn_size(windows, 2);
    s.packs = lvn_size(image, 3) / pack_size;
    return s;
}

/* An element is a pack of channels of one place of one window. */
template <typename P>
static __global__ void unfold(const P *x, P *y, window_sizes s, int64_t n, P zero)
{
    FOR_GRID (e, n) {
        const int64_t c = e % s.packs, place = e / s.packs;
        const int places = s.a.kernel[0] * s.a.kernel[1], tap = (int)(place % places);
        const int64_t window = place / places;
        const int ow = (int)(window % s.ow);
        const int64_t row = window / s.ow, image = row / s.oh;
        const int h = (int)(row % s.oh) * s.a.stride[0] - s.a.padding[0] +
                      tap / s.a.kernel[1] * s.a.dilation[0],
                  w = ow * s.a.stride[1] - s.a.padding[1] + tap % s.a.kernel[1] * s.a.dilation[1];
        const bool inside = h >= 0 && h < s.h && w >= 0 && w < s.w;
        y[e] = inside ? x[((image * s.h + h) * s.w + w) * s.packs + c] : zero;
    }
}

/* Packs of 16 bytes where whole ones are a pixel's channels. */
template <typename P> static lvn_status start_unfold(const lvn_kernel_args *args, int pack_size)
{
    const int64_t n = lvn_numel(args->out[0]) / pack_size;
    return launch(args->stream, "unfold", unfold<P>, blocks_for(n, 256), 256, 0, in<P>(args, 0),
                  out<P>(args, 0), sizes_of(args, args->in[0], args->out[0], pack_size), n, P());
}

static lvn_status run_unfold(const lvn_kernel_args *args)
{
    const int64_t channels = lvn_size(args->in[0], 3);
    const size_t size = lvn_dtype_size(lvn_tensor_dtype(args->in[0]));
    const int per_pack = (int)(16 / size);
    if (channels % per_pack == 0) {
        return start_unfold<pack<uint32_t, 4>>(args, per_pack);
    }
    return size == 2 ? start_unfold<uint16_t>(args, 1) : start_unfold<uint32_t>(args, 1);
}

/* An element is N channels of one pixel. */
template <typename T, int N>
static __global__ void fold(const T *y, T *x, window_sizes s, int64_t n)
{
    FOR_GRID (e, n) {
        const int64_t c = e % s.packs, pixel = e / s.packs, row = pixel / s.w, image = row / s.h;
        const int h = (int)(row % s.h) + s.a.padding[0], w = (int)(pixel % s.w) + s.a.padding[1];
        float sum[N] = {};
        for (int kh = 0; kh < s.a.kernel[0]; kh++) {
            const int top = h - kh * s.a.dilation[0], oh = top / s.a.stride[0];
            if (top < 0 || oh * s.a.stride[0] != top || oh >= s.oh) {
                continue;
            }
            for (int kw = 0; kw < s.a.kernel[1]; kw++) {
                const int left = w - kw * s.a.dilation[1], ow = left / s.a.stride[1];
                if (left < 0 || ow * s.a.stride[1] != left || ow >= s.ow) {
                    continue;
                }
                const int64_t window = (image * s.oh + oh) * s.ow + ow,
                              place = (window * s.a.kernel[0] + kh) * s.a.kernel[1] + kw;
                const pack<T, N> v = reinterpret_cast<const pack<T, N> *>(y)[place * s.packs + c];
                for (int i = 0; i < N; i++) {
                    sum[i] += to_float(v.v[i]);
                }
            }
        }
        pack<T, N> v;
        for (int i = 0; i < N; i++) {
            v.v[i] = from_float<T>(sum[i]);
        }
        reinterpret_cast<pack<T, N> *>(x)[e] = v;
    }
}

template <typename T, int N> static lvn_status start_fold(const lvn_kernel_args *args)
{
    const int64_t n = lvn_numel(args->out[0]) / N;
    return launch(args->stream, "fold", fold<T, N>, blocks_for(n, 256), 256, 0, in<T>(args, 0),
                  out<T>(args, 0), sizes_of(args, args->out[0], args->in[0], N), n);
}

template <typename T> static lvn_status choose_fold(const lvn_kernel_args *args)
{
    enum { N = 16 / sizeof(T) };
    return lvn_size(args->out[0], 3) % N == 0 ? start_fold<T, N>(args) : start_fold<T, 1>(args);
}

static lvn_status run_fold(const lvn_kernel_args *args)
{
    WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T, return choose_fold<T>(args));
}

static const lvn_backend_kernel kernels[] = {
    {"unfold", run_unfold, FLOATS, 0, NULL},
    {"fold", run_fold, FLOATS, 0, NULL},
};
extern const kernel_rows rows_windows;
const kernel_rows rows_windows = ROWS(kernels);

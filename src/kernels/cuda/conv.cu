/* Convolutions of images (N, H, W, C) with weights (O, KH, KW, I / groups). A 1 x 1 window is a
 * matrix product; others are cuDNN's or, where it refuses, levin's own: the product kernel of
 * gemm.cuh over windows that are read in place. */
#include "conv.cuh"

#include <stdio.h>

/* ---- operands of the own kernel; z is the group ---- */

/* Row: a pixel of y; k: place in its window and channel of x. */
template <typename T> struct windows_of_x {
    const T *x;
    lvnc_conv c;
    int per_group; /* channels of x */
    __device__ bool along_k() const
    {
        return true;
    }
    __device__ float at(int z, int pixel, int k) const
    {
        const int tap = k / per_group, image = pixel / c.ow / c.oh,
                  h = pixel / c.ow % c.oh * c.stride[0] - c.padding[0] + tap / c.kw * c.dilation[0],
                  w = pixel % c.ow * c.stride[1] - c.padding[1] + tap % c.kw * c.dilation[1];
        if (h < 0 || h >= c.h || w < 0 || w >= c.w) {
            return 0.0f;
        }
        return to_float(
            x[(((int64_t)image * c.h + h) * c.w + w) * c.i + z * per_group + k % per_group]);
    }
};

/* The same with both swapped. */
template <typename T> struct places_of_x {
    windows_of_x<T> windows;
    __device__ bool along_k() const
    {
        return false;
    }
    __device__ float at(int z, int place, int pixel) const
    {
        return windows.at(z, pixel, place);
    }
};

/* Row: a pixel of x; k: place of the window in which it lies there, and channel of y. */
template <typename T> struct windows_over_x {
    const T *y;
    lvnc_conv c;
    int per_group; /* channels of y */
    __device__ bool along_k() const
    {
        return true;
    }
    __device__ float at(int z, int pixel, int k) const
    {
        const int tap = k / per_group, image = pixel / c.w / c.h,
                  h = pixel / c.w % c.h + c.padding[0] - tap / c.kw * c.dilation[0],
                  w = pixel % c.w + c.padding[1] - tap % c.kw * c.dilation[1], oh = h / c.stride[0],
                  ow = w / c.stride[1];
        if (h < 0 || w < 0 || oh * c.stride[0] != h || ow * c.stride[1] != w || oh >= c.oh ||
            ow >= c.ow) {
            return 0.0f;
        }
        return to_float(
            y[(((int64_t)image * c.oh + oh) * c.ow + ow) * c.o + z * per_group + k % per_group]);
    }
};

/* Row: a channel of x in its group; k as above. */
template <typename T> struct weights_by_input {
    const T *w;
    int taps, inputs, outputs; /* of a group */
    __device__ bool along_k() const
    {
        return false;
    }
    __device__ float at(int z, int channel, int k) const
    {
        const int64_t o = (int64_t)z * outputs + k % outputs;
        return to_float(w[(o * taps + k / outputs) * inputs + channel]);
    }
};

/* ---- the own kernel ---- */

struct tensors {
    void *x, *w, *y;  /* one is written */
    const void *bias; /* of the result's channels; NULL: none */
    lvn_dtype bias_type;
};

static gemm::sizes own_sizes(const lvnc_conv &c)
{
    const int taps = c.kh * c.kw, inputs = c.i / c.groups, outputs = c.o / c.groups;
    switch (c.kind) {
    case LVNC_CONV_Y: return gemm::sizes_of(c.groups, c.n * c.oh * c.ow, outputs, taps * inputs);
    case LVNC_CONV_X: return gemm::sizes_of(c.groups, c.n * c.h * c.w, inputs, taps * outputs);
    default: return gemm::sizes_of(c.groups, outputs, taps * inputs, c.n * c.oh * c.ow);
    }
}

static gemm::result own_result(const lvnc_conv &c, const tensors &t, float *partial)
{
    const int64_t window = (int64_t)c.kh * c.kw * (c.i / c.groups);
    gemm::result r = {};
    r.type = c.result_type;
    r.y = c.kind == LVNC_CONV_Y ? t.y : c.kind == LVNC_CONV_X ? t.x : t.w;
    r.pitch = c.kind == LVNC_CONV_Y ? c.o : c.kind == LVNC_CONV_X ? c.i : window;
    r.batch = c.kind == LVNC_CONV_Y   ? c.o / c.groups
              : c.kind == LVNC_CONV_X ? c.i / c.groups
                                      : c.o / c.groups * window;
    r.bias = t.bias;
    r.bias_type = t.bias_type;
    r.bias_batch = r.batch;
    r.partial = partial;
    return r;
}

template <typename T> static windows_of_x<T> make_windows(const lvnc_conv &c, const void *x)
{
    windows_of_x<T> a;
    a.x = static_cast<const T *>(x);
    a.c = c;
    a.per_group = c.i / c.groups;
    return a;
}

template <typename T>
static lvn_status run_own_as(const lvn_kernel_args *args, const lvnc_conv &c, const tensors &t,
                             const gemm::result &r, const gemm::sizes &s)
{
    const char *what = args->op->name;
    const int taps = c.kh * c.kw, inputs = c.i / c.groups, outputs = c.o / c.groups;
    const int64_t window = (int64_t)taps * inputs;
    if (c.kind == LVNC_CONV_Y) {
        return gemm::run(args->stream, what, make_windows<T>(c, t.x),
                         gemm::make_strided<T>(t.w, outputs * window, window, 1), r, s);
    }
    if (c.kind == LVNC_CONV_X) {
        windows_over_x<T> a;
        a.y = static_cast<const T *>(t.y);
        a.c = c;
        a.per_group = outputs;
        weights_by_input<T> b;
        b.w = static_cast<const T *>(t.w);
        b.taps = taps;
        b.inputs = inputs;
        b.outputs = outputs;
        return gemm::run(args->stream, what, a, b, r, s);
    }
    places_of_x<T> b;
    b.windows = make_windows<T>(c, t.x);
    return gemm::run(args->stream, what, gemm::make_strided<T>(t.y, outputs, 1, c.o), b, r, s);
}

static lvn_status run_own(const lvn_kernel_args *args, const lvnc_conv &c, const tensors &t,
                          float *partial)
{
    const gemm::sizes s = own_sizes(c);
    const gemm::result r = own_result(c, t, partial);
    WITH_FLOAT(c.type, T, return run_own_as<T>(args, c, t, r, s));
}

/* ---- one call ---- */

/* 1 x 1, stride 1, no border: rows of x and y are pixels. */
static bool is_product(const lvnc_conv &c)
{
    return c.kh == 1 && c.kw == 1 && c.groups == 1 && c.stride[0] == 1 && c.stride[1] == 1 &&
           c.padding[0] == 0 && c.padding[1] == 0;
}

static lvnc_product product_of(const lvnc_conv &c, lvn_dtype w_type, const lvn_tensor *bias)
{
    const int64_t pixels = (int64_t)c.n * c.h * c.w;
    lvnc_product p = {};
    p.batches = 1;
    p.m = c.kind == LVNC_CONV_W ? c.o : pixels;
    p.n = c.kind == LVNC_CONV_Y ? c.o : c.i;
    p.k = c.kind == LVNC_CONV_Y ? c.i : c.kind == LVNC_CONV_X ? c.o : pixels;
    p.trans_a = c.kind == LVNC_CONV_W;
    p.trans_b = c.kind == LVNC_CONV_Y;
    p.has_bias = bias != NULL;
    p.bias_type = bias == NULL ? c.result_type : lvn_tensor_dtype(bias);
    p.a_type = c.type;
    p.b_type = c.kind == LVNC_CONV_W ? c.type : w_type;
    p.y_type = c.result_type;
    return p;
}

#ifndef LEVIN_CUDA_ON_HOST
/* Scratch memory that cuDNN's algorithms may take: from the sizes alone. f32 engines copy their
 * tensors into another order of axes. 16-bit ones take them as they are, except channels that are
 * not a multiple of 8, which they pad, and have partial sums. */
size_t lvnc_cudnn_bytes(const lvnc_conv &c)
{
    const int64_t part = (int64_t)32 << 20, most = (int64_t)2 << 30;
    const bool full = c.type == LVN_F32, pads_i = c.i % 8 != 0, pads_o = c.o % 8 != 0;
    const int64_t i = (c.i + 7) / 8 * 8, o = (c.o + 7) / 8 * 8, size = full ? 4 : 2,
                  x = (int64_t)c.n * c.h * c.w * i, y = (int64_t)c.n * c.oh * c.ow * o,
                  weights = (int64_t)c.kh * c.kw * i * o / c.groups;
    if (x == 0 || y == 0 || weights == 0) {
        return 0;
    }
    const int64_t copied = (full || pads_i ? x : 0) + (full || pads_o ? y : 0) +
                           (full || pads_i || pads_o ? weights : 0),
                  bytes = part + copied * size;
    return (size_t)(bytes < most ? bytes : most);
}

void lvnc_conv_print(const lvnc_conv &c)
{
    static const char *const kinds[] = {"y", "dx", "dw"};
    fprintf(stderr,
            "  %s: x (%d, %d, %d, %d) w (%d, %d, %d, /%d) y (%d, %d, %d, %d) stride %d %d "
            "padding %d %d dilation %d %d types %d -> %d\n",
            kinds[c.kind], c.n, c.h, c.w, c.i, c.o, c.kh, c.kw, c.groups, c.n, c.oh, c.ow, c.o,
            c.stride[0], c.stride[1], c.padding[0], c.padding[1], c.dilation[0], c.dilation[1],
            (int)c.type, (int)c.result_type);
}
#endif

struct pieces {
    void *w;      /* weights in the type of the images */
    void *narrow; /* their gradient, likewise */
    void *library;
    float *partial;
};

static pieces cut(const lvnc_conv &c, lvn_dtype w_type, lvnc_scratch *s)
{
    const size_t weights = (size_t)lvnc_conv_weights(c);
    pieces at;
    at.w = lvnc_piece(s, c.kind != LVNC_CONV_W && w_type != c.type ? weights * 2 : 0);
    at.narrow = NULL;
    const size_t partial = gemm::partial_bytes(own_sizes(c));
    size_t shared = partial;
#ifndef LEVIN_CUDA_ON_HOST
    at.narrow = lvnc_piece(s, c.kind == LVNC_CONV_W && c.result_type != c.type ? weights * 2 : 0);
    const size_t library = lvnc_cudnn_bytes(c);
    shared = partial > library ? partial : library;
#endif
    at.library = lvnc_piece(s, shared);
    at.partial = partial == 0 ? NULL : static_cast<float *>(at.library);
    return at;
}

/* Pixels are counted in 32 bits. */
static bool is_too_large(const lvnc_conv &c)
{
    const int64_t most = 0x7fffffff - gemm::TILE;
    return (int64_t)c.n * c.h * c.w > most || (int64_t)c.n * c.oh * c.ow > most;
}

static size_t bytes_of(const lvnc_conv &c, lvn_dtype w_type, const lvn_tensor *bias)
{
    if (is_too_large(c)) {
        return 0; /* run_conv refuses it */
    }
    if (is_product(c)) {
        const lvnc_product p = product_of(c, w_type, bias);
        return lvnc_product_bytes(&p);
    }
    lvnc_scratch none = {NULL, 0};
    (void)cut(c, w_type, &none);
    return none.used;
}

static lvn_status add_bias(const lvn_kernel_args *args, const lvnc_conv &c, const tensors &t)
{
    if (t.bias == NULL) {
        return LVN_OK;
    }
    const bool forward = c.kind == LVNC_CONV_Y;
    return lvnc_add_bias(args->stream, args->op->name, forward ? t.y : t.x, c.result_type,
                         forward ? (int64_t)c.n * c.oh * c.ow : (int64_t)c.n * c.h * c.w,
                         forward ? c.o : c.i, t.bias, t.bias_type);
}

static lvn_status run_product(const lvn_kernel_args *args, const lvnc_conv &c, lvn_dtype w_type,
                              const lvn_tensor *bias, const tensors &t)
{
    const lvnc_product p = product_of(c, w_type, bias);
    const void *a = c.kind == LVNC_CONV_Y ? t.x : t.y, *b = c.kind == LVNC_CONV_W ? t.x : t.w;
    return lvnc_product_run(args, &p, a, b, t.bias,
                            c.kind == LVNC_CONV_Y   ? t.y
                            : c.kind == LVNC_CONV_X ? t.x
                                                    : t.w,
                            lvnc_scratch_of(args));
}

static lvn_status run_conv(const lvn_kernel_args *args, const lvnc_conv &c, lvn_dtype w_type,
                           const lvn_tensor *bias, tensors t)
{
    if (is_too_large(c)) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "%s: images of more than 2^31 pixels in all", args->op->name);
    }
    t.bias = bias == NULL ? NULL : lvn_const_data(bias);
    t.bias_type = bias == NULL ? LVN_F32 : lvn_tensor_dtype(bias);
    if (is_product(c)) {
        return run_product(args, c, w_type, bias, t);
    }
    lvnc_scratch scratch = lvnc_scratch_of(args);
    const pieces at = cut(c, w_type, &scratch);
    if (c.kind != LVNC_CONV_W && w_type != c.type) {
        lvnc_casts cast = {};
        cast.from[0] = t.w;
        cast.from_type = w_type;
        cast.to[0] = at.w;
        cast.to_type = c.type;
        cast.n[0] = lvnc_conv_weights(c);
        LVN_TRY(lvnc_cast(args->stream, args->op->name, cast));
        t.w = at.w;
    }
    lvn_status s = LVN_OK;
    if (lvnc_uses_libraries() &&
        lvnc_cudnn_conv(args, c, t.x, t.w, t.y, at.narrow, at.library, &s)) {
        return s == LVN_OK ? add_bias(args, c, t) : s;
    }
    return run_own(args, c, t, at.partial);
}

/* ---- the ops ---- */

static lvnc_conv describe(const lvn_kernel_args *args, lvnc_conv_kind kind, const lvn_tensor *x,
                          const lvn_tensor *w, const lvn_tensor *y, lvn_dtype type,
                          lvn_dtype result)
{
    const lvn_conv_attr &attr = attr_of<lvn_conv_attr>(args);
    lvnc_conv c = {};
    c.kind = kind;
    c.type = type;
    c.result_type = result;
    c.n = (int)lvn_size(x, 0);
    c.h = (int)lvn_size(x, 1);
    c.w = (int)lvn_size(x, 2);
    c.i = (int)lvn_size(x, 3);
    c.oh = (int)lvn_size(y, 1);
    c.ow = (int)lvn_size(y, 2);
    c.o = (int)lvn_size(y, 3);
    c.kh = (int)lvn_size(w, 1);
    c.kw = (int)lvn_size(w, 2);
    c.groups = attr.groups;
    for (int i = 0; i < 2; i++) {
        c.stride[i] = attr.stride[i];
        c.padding[i] = attr.padding[i];
        c.dilation[i] = attr.dilation[i];
    }
    return c;
}

static lvnc_conv forward_of(const lvn_kernel_args *args)
{
    return describe(args, LVNC_CONV_Y, args->in[0], args->in[1], args->out[0],
                    lvn_tensor_dtype(args->in[0]), lvn_tensor_dtype(args->out[0]));
}
static size_t conv2d_bytes(const lvn_kernel_args *args)
{
    return lvnc_scratch_bytes(
        bytes_of(forward_of(args), lvn_tensor_dtype(args->in[1]), args->in[2]));
}
static lvn_status conv2d(const lvn_kernel_args *args)
{
    tensors t = {};
    t.x = const_cast<void *>(in<void>(args, 0));
    t.w = const_cast<void *>(in<void>(args, 1));
    t.y = out<void>(args, 0);
    return run_conv(args, forward_of(args), lvn_tensor_dtype(args->in[1]), args->in[2], t);
}

/* conv2d_grad_input, and conv_transpose2d with its bias. */
static lvnc_conv input_of(const lvn_kernel_args *args)
{
    return describe(args, LVNC_CONV_X, args->out[0], args->in[1], args->in[0],
                    lvn_tensor_dtype(args->in[0]), lvn_tensor_dtype(args->out[0]));
}
static const lvn_tensor *bias_of(const lvn_kernel_args *args)
{
    return args->op->n_in > 2 ? args->in[2] : NULL;
}
static size_t input_bytes(const lvn_kernel_args *args)
{
    return lvnc_scratch_bytes(
        bytes_of(input_of(args), lvn_tensor_dtype(args->in[1]), bias_of(args)));
}
static lvn_status conv2d_grad_input(const lvn_kernel_args *args)
{
    tensors t = {};
    t.x = out<void>(args, 0);
    t.w = const_cast<void *>(in<void>(args, 1));
    t.y = const_cast<void *>(in<void>(args, 0));
    return run_conv(args, input_of(args), lvn_tensor_dtype(args->in[1]), bias_of(args), t);
}

static lvnc_conv weight_of(const lvn_kernel_args *args)
{
    return describe(args, LVNC_CONV_W, args->in[1], args->out[0], args->in[0],
                    lvn_tensor_dtype(args->in[0]), lvn_tensor_dtype(args->out[0]));
}
static size_t weight_bytes(const lvn_kernel_args *args)
{
    const lvnc_conv c = weight_of(args);
    const size_t conv = bytes_of(c, c.type, NULL),
                 sums = lvnc_column_sums_bytes((int64_t)c.n * c.oh * c.ow, c.o);
    return lvnc_scratch_bytes(conv > sums ? conv : sums);
}
static lvn_status conv2d_grad_weight(const lvn_kernel_args *args)
{
    const lvnc_conv c = weight_of(args);
    tensors t = {};
    t.x = const_cast<void *>(in<void>(args, 1));
    t.w = out<void>(args, 0);
    t.y = const_cast<void *>(in<void>(args, 0));
    LVN_TRY(run_conv(args, c, c.type, NULL, t));
    if (args->out[1] == NULL) {
        return LVN_OK;
    }
    return lvnc_column_sums(args->stream, args->op->name, t.y, c.type, (int64_t)c.n * c.oh * c.ow,
                            c.o, out<void>(args, 1), lvn_tensor_dtype(args->out[1]),
                            lvnc_scratch_of(args));
}

static const lvn_backend_kernel kernels[] = {
    {"conv2d", conv2d, FLOATS, 0, conv2d_bytes},
    {"conv2d_grad_input", conv2d_grad_input, FLOATS, 0, input_bytes},
    {"conv_transpose2d", conv2d_grad_input, FLOATS, 0, input_bytes},
    {"conv2d_grad_weight", conv2d_grad_weight, FLOATS, 0, weight_bytes},
};
extern const kernel_rows rows_conv;
const kernel_rows rows_conv = ROWS(kernels);

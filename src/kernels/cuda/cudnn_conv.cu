/* Convolutions by cuDNN (cudnn.cuh). Images and weights lie as levin has them; to cuDNN they are
 * (N, C, H, W) and (O, I / groups, KH, KW) with other strides. Engines that round what they read
 * are refused. */
#include "conv.cuh"

#ifdef LEVIN_CUDA_ON_HOST

bool lvnc_cudnn_conv(const lvn_kernel_args *args, const lvnc_conv &c, const void *x, const void *w,
                     const void *y, void *narrow, void *workspace, lvn_status *status)
{
    (void)args, (void)c, (void)x, (void)w, (void)y, (void)narrow, (void)workspace, (void)status;
    return false;
}

#else

#include "cudnn.cuh"

namespace dnn
{
static void set_pair(builder *b, descriptor to, cudnnBackendAttributeName_t name, const int pair[2])
{
    const int64_t values[2] = {pair[0], pair[1]};
    set(b, to, name, CUDNN_TYPE_INT64, 2, values);
}

/* (n, h, w, c) in memory, known by `name`. */
static descriptor add_image(builder *b, char name, lvn_dtype type, int align, int64_t n, int64_t h,
                            int64_t w, int64_t c)
{
    const int64_t dims[4] = {n, c, h, w}, strides[4] = {h * w * c, 1, w * c, c};
    return add_tensor(b, name, IN_MEMORY, type_of(type), align, dims, strides);
}

static descriptor add_convolution(builder *b, const lvnc_conv &c)
{
    descriptor d = make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    set_type(b, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    set(b, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set_int(b, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
    set_pair(b, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, c.stride);
    set_pair(b, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, c.padding);
    set_pair(b, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, c.padding);
    set_pair(b, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, c.dilation);
    finish(b, d);
    return d;
}

/* The attributes of an operation that computes y, dx or dw. */
struct operation {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
};
static const operation operations[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static descriptor add_conv_graph(builder *b, const target &to, const void *problem)
{
    const conv_problem &q = *static_cast<const conv_problem *>(problem);
    const lvnc_conv &c = q.c;
    const operation &o = operations[c.kind];
    const float one = 1.0f, zero = 0.0f;
    descriptor x = add_image(b, 'x', c.type, q.align_x, c.n, c.h, c.w, c.i),
               w = add_image(b, 'w', c.type, q.align_w, c.o, c.kh, c.kw, c.i / c.groups),
               y = add_image(b, 'y', c.type, q.align_y, c.n, c.oh, c.ow, c.o),
               conv = add_convolution(b, c), op = make(b, o.type);
    refer(b, op, o.x, x);
    refer(b, op, o.w, w);
    refer(b, op, o.y, y);
    refer(b, op, o.conv, conv);
    set(b, op, o.alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(b, op, o.beta, CUDNN_TYPE_FLOAT, 1, &zero);
    finish(b, op);
    return add_graph(b, to, &op, 1);
}

/* At first neither kernels that are compiled now nor Winograd's transform, which rounds more. */
static request request_of(const lvnc_conv &c, bool strict)
{
    request r;
    r.refused = 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC |
                1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION |
                1u << CUDNN_NUMERICAL_NOTE_FFT | 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 |
                1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 |
                1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;
    if (c.type != LVN_F32 || !lvnc_allows_tf32()) {
        r.refused |= 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    }
    if (c.type == LVN_F32 && !lvnc_allows_tf32()) { /* whose tensor cores take TF32 */
        r.refused |= 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    }
    r.refused |= strict ? 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD : 0u;
    r.compiles = !strict;
    r.bytes = lvnc_cudnn_bytes(c);
    r.least = 0;
    return r;
}

static bool search_conv(const target &to, const conv_problem &q, plan *p, cudnnStatus_t *status)
{
    return search(to, add_conv_graph, &q, request_of(q.c, true), p, status) ||
           (!is_failure(*status) &&
            search(to, add_conv_graph, &q, request_of(q.c, false), p, status));
}

bool has_conv(const target &to, const lvnc_conv &c, cudnnStatus_t *why)
{
    conv_problem q;
    memset(&q, 0, sizeof q);
    q.c = c;
    q.align_x = q.align_w = q.align_y = 16;
    plan p = {};
    const bool found = search_conv(to, q, &p, why);
    end(&p.of);
    return found;
}

/* NULL: the library refuses the problem, or *status is a failure. */
static plan *plan_conv(state *s, const conv_problem &q, cudnnStatus_t *status)
{
    plan *p = s->convs.get(q);
    if (p == NULL) {
        *status = CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    } else if (!p->tried) {
        p->refused = !search_conv(s->to, q, p, status);
        p->tried = !p->refused || !is_failure(*status);
        if (p->refused && p->tried && report_refusal("a plan", *status)) {
            lvnc_conv_print(q.c);
        }
    }
    return p == NULL || p->refused ? NULL : p;
}

/* False: refused, or *status is a failure. */
static bool run_conv(const lvn_kernel_args *args, const conv_problem &q, const void *const at[3],
                     void *workspace, cudnnStatus_t *status)
{
    static const int64_t names[3] = {'x', 'w', 'y'};
    state *s = enter(args, status);
    if (s == NULL) {
        return false;
    }
    plan *p = plan_conv(s, q, status);
    const bool done = p != NULL && submit(s, p, 3, names, at, workspace, status);
    if (p != NULL && !done && !is_failure(*status) && report_refusal("to run", *status)) {
        lvnc_conv_print(q.c);
    }
    leave(s);
    return done;
}
} // namespace dnn

bool lvnc_cudnn_conv(const lvn_kernel_args *args, const lvnc_conv &c, const void *x, const void *w,
                     const void *y, void *narrow, void *workspace, lvn_status *status)
{
    if (lvnc_cudnn_bytes(c) == 0 || workspace == NULL) {
        return false; /* of nothing */
    }
    const bool casts = c.kind == LVNC_CONV_W && c.result_type != c.type;
    const void *weights = casts ? narrow : w; /* no engine writes f32 beside 16-bit images */
    dnn::conv_problem q;
    memset(&q, 0, sizeof q);
    q.c = c;
    q.align_x = lvnc_alignment(x);
    q.align_w = lvnc_alignment(weights);
    q.align_y = lvnc_alignment(y);
    q.tf32 = lvnc_allows_tf32();
    cudnnStatus_t e = CUDNN_STATUS_SUCCESS;
    const void *const at[3] = {x, weights, y};
    const bool done = dnn::run_conv(args, q, at, workspace, &e);
    if (!done && dnn::is_failure(e)) {
        *status = dnn::fail(args, e);
        return true;
    }
    if (!done) {
        return false;
    }
    *status = lvnc_submitted(args->stream, args->op->name, cudaSuccess);
    if (casts) {
        lvnc_casts cast = {};
        cast.from[0] = narrow;
        cast.from_type = c.type;
        cast.to[0] = const_cast<void *>(w);
        cast.to_type = c.result_type;
        cast.n[0] = lvnc_conv_weights(c);
        *status = lvnc_cast(args->stream, args->op->name, cast);
    }
    return true;
}

#endif

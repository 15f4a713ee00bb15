/* What a kernel gets: its tensors, and the attributes of its op. For backends;
 * marked experimental with it. `levin ops NAME` prints what an op takes; a struct below is the
 * attribute of the ops that name it there. */
#ifndef LEVIN_BACKEND_OPS_H
#define LEVIN_BACKEND_OPS_H

#include <levin/tensor.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LVN_KERNEL_INPUTS = 8, LVN_KERNEL_OUTPUTS = 4 };

/* Functions of these headers that kernels call, too. */
#if defined(__CUDACC__) || defined(__HIPCC__)
#define LVN_ON_DEVICE static __host__ __device__ inline
#else
#define LVN_ON_DEVICE static inline
#endif

/* An op as `levin ops` lists it. */
typedef struct lvn_op {
    const char *name;
    int number; /* in this process's table of ops, from 0 */
    int n_in, n_out;
    size_t attr_size; /* bytes behind lvn_kernel_args.attr; 0: it is NULL */
} lvn_op;

/* Shapes were checked by the op's rule, outputs are allocated and never overlap inputs unless the
 * op's sentence allows it. Read tensors with lvn_data, lvn_size and so on: a kernel of a device
 * gets addresses of that device. */
typedef struct lvn_kernel_args {
    const lvn_tensor *in[LVN_KERNEL_INPUTS]; /* NULL: an optional input that was not given */
    lvn_tensor *out[LVN_KERNEL_OUTPUTS];     /* NULL: an optional output that is not wanted */
    const void *attr;                        /* the op's struct below, or NULL */
    const lvn_op *op;
    void *device; /* the backend's own state; NULL on the host */
    void *stream; /* that the kernel belongs to; NULL on the host */
    /* Scratch memory of the device, of as many bytes as the row's `workspace` wanted: the kernel's
     * until what it submits has run. NULL: it wanted none */
    void *workspace;
    size_t workspace_bytes;
} lvn_kernel_args;
typedef lvn_status (*lvn_kernel)(const lvn_kernel_args *args);

/* A stream of random numbers: Philox 4x32-10 (Salmon et al. 2011). Element e is output e % 4 of the
 * block with counter (e / 4, c, b, a); uniform in [0, 1): its top 24 bits times 2^-24. */
typedef struct lvn_philox {
    uint32_t key[2], a, b, c;
    /* in memory of the device: the number whose low half is a (of the step, so that work which is
     * replayed draws other ones); NULL: a as it is. lvn_philox_resolve reads it there */
    const int64_t *a_there;
} lvn_philox;

/* In the kernel. */
LVN_ON_DEVICE void lvn_philox_resolve(lvn_philox *p)
{
    p->a = p->a_there != NULL ? (uint32_t)*p->a_there : p->a;
}

/* ---- attributes ---- */
/* attr is NULL; attr_size in the table is 0 */
typedef struct lvn_no_attr {
    char unused;
} lvn_no_attr;
/* y = x * mul + add */
typedef struct lvn_scale_attr {
    double mul, add;
} lvn_scale_attr;
/* bit i: axis i is reduced */
typedef struct lvn_axes_attr {
    uint32_t mask;
    bool keepdim;
} lvn_axes_attr;
/* of the result */
typedef struct lvn_shape_attr {
    int ndim;
    int64_t shape[LVN_MAX_NDIM];
} lvn_shape_attr;
typedef struct lvn_matmul_attr {
    bool trans_a, trans_b;
} lvn_matmul_attr;
typedef struct lvn_conv_attr {
    int stride[2], padding[2], dilation[2]; /* height, width */
    int groups;
    /* grad_input: height and width of the input; conv_transpose2d: of the result */
    int64_t in_h, in_w;
    int64_t kernel[2]; /* grad_weight only */
} lvn_conv_attr;
typedef struct lvn_pool_attr {
    int kernel[2], stride[2], padding[2];
    int64_t in_h, in_w; /* gradient only */
} lvn_pool_attr;
typedef struct lvn_window_attr {
    int kernel[2], stride[2], padding[2], dilation[2]; /* height, width */
    int64_t in_h, in_w;                                /* fold only: of the image */
} lvn_window_attr;
typedef enum lvn_resample_kind {
    LVN_RESAMPLE_AVG_POOL,
    LVN_RESAMPLE_ADAPTIVE_POOL,
    LVN_RESAMPLE_NEAREST,
    LVN_RESAMPLE_BILINEAR,
    LVN_RESAMPLE_BICUBIC
} lvn_resample_kind;
typedef struct lvn_resample_attr {
    /* a linear map of (height, width); avg_pool alone has a window, all others a size */
    lvn_resample_kind kind;
    /* bilinear, bicubic: corner pixels lie on corner pixels, else corners on corners */
    bool align_corners;
    bool exclude_padding; /* avg_pool: divides by the pixels in the image */
    bool transposed;      /* the gradient */
    lvn_pool_attr pool;
    /* height, width of the result; not read for avg_pool, unless transposed */
    int64_t size[2];
    /* bilinear, bicubic (a = -1/2): weights of pixels within the filter, as wide as a pixel of a
     * smaller result, that add up to 1 */
    bool antialias;
    /* bilinear, bicubic: pixels of the result for each of the image, along the height and the
     * width; 0: the quotient of the sizes */
    double scale[2];
} lvn_resample_attr;
/* positions of a grid of height x width; transposed: the gradient, sums over the grid */
typedef struct lvn_affine_attr {
    int64_t height, width;
    bool align_corners, transposed;
} lvn_affine_attr;
typedef enum lvn_outside_kind {
    LVN_OUTSIDE_ZEROS,
    LVN_OUTSIDE_BORDER,
    LVN_OUTSIDE_REFLECTION
} lvn_outside_kind;
typedef struct lvn_sample_attr {
    bool nearest, align_corners;
    lvn_outside_kind outside; /* what positions outside of the image show */
    int64_t in_h, in_w;       /* gradient of the input only: its size */
} lvn_sample_attr;
/* U: maps doubled `doublings` times; S: soft-max over all pixels of temperature U */
typedef struct lvn_soft_argmax_attr {
    int doublings;
    double temperature;
} lvn_soft_argmax_attr;
typedef struct lvn_heatmap_attr {
    int64_t height, width;
    double scale, sigma; /* pixels of a map per unit of a point; of the bump, in pixels of a map */
} lvn_heatmap_attr;
typedef struct lvn_fft_attr {
    int axes; /* 1 or 2, before the last */
    bool inverse, centered;
    double scale;
} lvn_fft_attr;
typedef struct lvn_cast_attr {
    lvn_dtype dtype;
} lvn_cast_attr; /* of the result: a float type */
typedef struct lvn_norm_attr {
    double eps;
    bool relu;
} lvn_norm_attr;
/* the last `axes` axes form a row */
typedef struct lvn_layer_norm_attr {
    double eps;
    int axes;
} lvn_layer_norm_attr;
/* groups of channels */
typedef struct lvn_group_norm_attr {
    double eps;
    int groups;
} lvn_group_norm_attr;
typedef struct lvn_attention_attr {
    double scale;
    bool causal;
} lvn_attention_attr;
/* ignore: the label that counts for nothing */
typedef struct lvn_class_loss_attr {
    double smoothing;
    int64_t ignore;
    bool sum;
} lvn_class_loss_attr;
typedef enum lvn_point_loss_kind {
    LVN_LOSS_SQUARE,
    LVN_LOSS_ABSOLUTE,
    LVN_LOSS_SMOOTH_L1,
    LVN_LOSS_BINARY
} lvn_point_loss_kind;
/* beta: of smooth l1 */
typedef struct lvn_point_loss_attr {
    lvn_point_loss_kind kind;
    double beta;
    bool sum;
} lvn_point_loss_attr;
/* of the tables; add: to what dweight holds */
typedef struct lvn_lookup_attr {
    int64_t rows, positions;
    bool add;
} lvn_lookup_attr;
typedef struct lvn_number_attr {
    double value;
} lvn_number_attr; /* a slope, an exponent */
typedef struct lvn_range_attr {
    double min, max;
} lvn_range_attr;
/* divisor: terms - correction */
typedef struct lvn_var_attr {
    uint32_t mask;
    bool keepdim;
    int correction;
} lvn_var_attr;
/* axis i of the result is axis[i] of x */
typedef struct lvn_permute_attr {
    int ndim, axis[LVN_MAX_NDIM];
} lvn_permute_attr;
/* size: of the axis in the gradient, else unused */
typedef struct lvn_axis_attr {
    int axis;
    int64_t size;
} lvn_axis_attr;
/* reverse: from the end of the axis to its start */
typedef struct lvn_scan_attr {
    int axis;
    bool reverse;
} lvn_scan_attr;
/* keep: the first so many places of the order */
typedef struct lvn_sort_attr {
    int axis;
    int64_t keep;
    bool descending;
} lvn_sort_attr;
/* crop: the part [start, start + size) of x. pad and its gradients: x lies at `start` in a result
 * of `size`. Per axis of x. */
typedef struct lvn_box_attr {
    int ndim;
    int64_t start[LVN_MAX_NDIM], size[LVN_MAX_NDIM];
    double value;
    bool reflect;
} lvn_box_attr;
/* y = lambda x + (1 - lambda) x[partner], or with `cut` x with the partner's pixels where x0 <=
 * column < x1 and y0 <= row < y1 */
typedef struct lvn_mix_attr {
    bool cut;
    double lambda;
    int x0, x1, y0, y1;
} lvn_mix_attr;
typedef struct lvn_dropout_attr {
    double p;
    lvn_philox rng;
} lvn_dropout_attr;

#ifdef __cplusplus
}
#endif
#endif

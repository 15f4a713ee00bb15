/* A convolution as the kernels of conv.cu and cudnn.cu see it. */
#ifndef LEVIN_KERNELS_CUDA_CONV_CUH
#define LEVIN_KERNELS_CUDA_CONV_CUH

#include "gemm.cuh"

/* Which of the three tensors of y = conv(x, w) is computed from the other two. */
enum lvnc_conv_kind { LVNC_CONV_Y, LVNC_CONV_X, LVNC_CONV_W };

struct lvnc_conv {
    lvnc_conv_kind kind;
    lvn_dtype type, result_type; /* of what is read; of what is computed */
    int n, h, w, i;              /* x */
    int oh, ow, o;               /* y */
    int kh, kw, groups;          /* w: (o, kh, kw, i / groups) */
    int stride[2], padding[2], dilation[2];
};
static inline int64_t lvnc_conv_weights(const lvnc_conv &c)
{
    return (int64_t)c.o * c.kh * c.kw * (c.i / c.groups);
}

/* conv.cu. Scratch memory that cuDNN's algorithms may take, from the sizes alone; to stderr. */
size_t lvnc_cudnn_bytes(const lvnc_conv &c);
void lvnc_conv_print(const lvnc_conv &c);

/* cudnn.cu. False: it was not computed, the caller does. One of the tensors is written; `narrow` is
 * memory for the weights in `type`, where their gradient is f32 beside a 16-bit type. */
bool lvnc_cudnn_conv(const lvn_kernel_args *args, const lvnc_conv &c, const void *x, const void *w,
                     const void *y, void *narrow, void *workspace, lvn_status *status);

#endif

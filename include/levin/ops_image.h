/* Ops on images (N, H, W, C), and Fourier transforms.
 * Rules for all ops, scopes and gradients: ops.h. */
#ifndef LEVIN_OPS_IMAGE_H
#define LEVIN_OPS_IMAGE_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- images: (N, H, W, C) ---- */
/* One number counts for both axes. Where height and width differ, the fields that end in _hw have
 * one for each, in this order; an entry that is not 0 replaces the one number along its axis. */
typedef struct lvn_conv2d_options {
    size_t struct_size;
    int stride, padding, dilation, groups; /* 0: 1, 0, 1, 1 */
    int stride_hw[2], padding_hw[2], dilation_hw[2];
} lvn_conv2d_options;
/* x (N, H, W, I), w (O, KH, KW, I / groups), b (O) or NULL -> (N, H', W', O), H' = (H + 2 padding -
 * dilation (KH - 1) - 1) / stride + 1, W' likewise */
LVN_API lvn_tensor *lvn_conv2d_with(lvn_tensor *x, lvn_tensor *w, lvn_tensor *b,
                                    const lvn_conv2d_options *o);
#define lvn_conv2d(x, w, b, ...)                                                                   \
    lvn_conv2d_with((x), (w), (b),                                                                 \
                    &(lvn_conv2d_options){.struct_size = sizeof(lvn_conv2d_options), __VA_ARGS__})

/* The gradient of conv2d's input as a layer (Dumoulin and Visin 2016, section 4): x (N, H, W, I), w
 * (I, KH, KW, O / groups), b (O) or NULL -> (N, H', W', O), H' = (H - 1) stride - 2 padding +
 * dilation (KH - 1) + 1 + output_padding. The weight lies in memory as that of the convolution (N,
 * H', W', O) -> (N, H, W, I) whose transpose this is; PyTorch's (I, O / groups, KH, KW) is made at
 * the file border. output_padding adds rows and columns at the end, fewer than stride. */
typedef struct lvn_conv_transpose2d_options {
    size_t struct_size;
    int stride, padding, output_padding, groups, dilation; /* 0: 1, 0, 0, 1, 1 */
    int stride_hw[2], padding_hw[2], output_padding_hw[2], dilation_hw[2];
} lvn_conv_transpose2d_options;
LVN_API lvn_tensor *lvn_conv_transpose2d_with(lvn_tensor *x, lvn_tensor *w, lvn_tensor *b,
                                              const lvn_conv_transpose2d_options *o);
#define lvn_conv_transpose2d(x, w, b, ...)                                                         \
    lvn_conv_transpose2d_with(                                                                     \
        (x), (w), (b),                                                                             \
        &(lvn_conv_transpose2d_options){.struct_size = sizeof(lvn_conv_transpose2d_options),       \
                                        __VA_ARGS__})

/* x (N, L, I), w (O, K, I / groups), b (O) or NULL -> (N, L', O), L' = (L + 2 padding - dilation (K
 * - 1) - 1) / stride + 1: conv2d of images with one row. PyTorch's weight is (O, I / groups, K). */
typedef struct lvn_conv1d_options {
    size_t struct_size;
    int stride, padding, dilation, groups; /* 0: 1, 0, 1, 1 */
} lvn_conv1d_options;
LVN_API lvn_tensor *lvn_conv1d_with(lvn_tensor *x, lvn_tensor *w, lvn_tensor *b,
                                    const lvn_conv1d_options *o);
#define lvn_conv1d(x, w, b, ...)                                                                   \
    lvn_conv1d_with((x), (w), (b),                                                                 \
                    &(lvn_conv1d_options){.struct_size = sizeof(lvn_conv1d_options), __VA_ARGS__})

/* The windows of images as rows of numbers, as a convolution sees them (im2col): x (N, H, W, C) ->
 * (N, H', W', KH KW C), sizes as those of conv2d, zeros outside of the image. Number (kh KW + kw) C
 * + c of a window is channel c of its pixel (kh, kw), in the order of a convolution's weight;
 * PyTorch's unfold has (N, C KH KW, H' W') with number (c KH + kh) KW + kw. */
typedef struct lvn_window_options {
    size_t struct_size;
    int stride, padding, dilation; /* 0: 1, 0, 1 */
    int kernel_hw[2], stride_hw[2], padding_hw[2], dilation_hw[2];
} lvn_window_options;
LVN_API lvn_tensor *lvn_unfold_with(lvn_tensor *x, int kernel, const lvn_window_options *o);
#define lvn_unfold(x, kernel, ...)                                                                 \
    lvn_unfold_with((x), (kernel),                                                                 \
                    &(lvn_window_options){.struct_size = sizeof(lvn_window_options), __VA_ARGS__})
/* Back (col2im): (N, H', W', KH KW C) -> (N, height, width, C), each pixel the sum of its places in
 * all windows, 0 where it lies in none; the gradient of unfold. */
LVN_API lvn_tensor *lvn_fold_with(lvn_tensor *x, int64_t height, int64_t width, int kernel,
                                  const lvn_window_options *o);
#define lvn_fold(x, height, width, kernel, ...)                                                    \
    lvn_fold_with((x), (height), (width), (kernel),                                                \
                  &(lvn_window_options){.struct_size = sizeof(lvn_window_options), __VA_ARGS__})

typedef struct lvn_pool2d_options {
    size_t struct_size;
    int stride, padding; /* 0: the kernel, 0 */
    int kernel_hw[2], stride_hw[2], padding_hw[2];
} lvn_pool2d_options;
/* (N, H, W, C) -> (N, H', W', C), H' = (H + 2 padding - kernel) / stride + 1, W' likewise; padding
 * at most half the kernel, which is at most 256 for lvn_max_pool2d. The gradient goes to the first
 * maximum of a window, in the order of rows; NaN counts as the largest. */
LVN_API lvn_tensor *lvn_max_pool2d_with(lvn_tensor *x, int kernel, const lvn_pool2d_options *o);
#define lvn_max_pool2d(x, kernel, ...)                                                             \
    lvn_max_pool2d_with(                                                                           \
        (x), (kernel),                                                                             \
        &(lvn_pool2d_options){.struct_size = sizeof(lvn_pool2d_options), __VA_ARGS__})
/* Mean over windows, which padding (zeros) counts in, as in PyTorch; same shapes as
 * lvn_max_pool2d. */
typedef struct lvn_avg_pool2d_options {
    size_t struct_size;
    int stride, padding;  /* 0: the kernel, 0 */
    bool exclude_padding; /* divide by the number of pixels of the window that lie in the image */
    int kernel_hw[2], stride_hw[2], padding_hw[2];
} lvn_avg_pool2d_options;
LVN_API lvn_tensor *lvn_avg_pool2d_with(lvn_tensor *x, int kernel, const lvn_avg_pool2d_options *o);
#define lvn_avg_pool2d(x, kernel, ...)                                                             \
    lvn_avg_pool2d_with(                                                                           \
        (x), (kernel),                                                                             \
        &(lvn_avg_pool2d_options){.struct_size = sizeof(lvn_avg_pool2d_options), __VA_ARGS__})
/* (N, H, W, C) -> (N, height, width, C): pixel i of the result is the mean over rows floor(i H /
 * height) to ceil((i + 1) H / height) - 1, and columns likewise. */
LVN_API lvn_tensor *lvn_adaptive_avg_pool2d(lvn_tensor *x, int64_t height, int64_t width);
LVN_API lvn_tensor *lvn_global_avg_pool2d(lvn_tensor *x); /* (N, H, W, C) -> (N, C) */

typedef enum lvn_resize_mode {
    LVN_RESIZE_NEAREST,  /* pixel floor(i H / height) */
    LVN_RESIZE_BILINEAR, /* between the two nearest pixels of each axis */
    LVN_RESIZE_BICUBIC   /* between the four nearest (Keys 1981, a = -3/4) */
} lvn_resize_mode;
/* (N, H, W, C) -> (N, height, width, C), any sizes. Pixel i of the result lies at (i + 1/2) H /
 * height - 1/2 of the image, with align_corners (an error for nearest) at i (H - 1) / (height - 1);
 * beyond the border the border repeats. The formulas of torch.nn.functional.interpolate for given
 * sizes, with positions that are exact fractions.
 *
 * antialias (bilinear, bicubic without align_corners): a smaller result is filtered; the filter is
 * as much wider, its a is -1/2, and beyond the border is nothing.
 * scale (the same): pixel i lies at (i + 1/2) / scale - 1/2, as of interpolate(scale_factor=...);
 * the result must lie within the image. For height and width; 0: by the sizes. */
typedef struct lvn_resize2d_options {
    size_t struct_size;
    lvn_resize_mode mode;
    bool align_corners;
    bool antialias;
    double scale[2];
} lvn_resize2d_options;
LVN_API lvn_tensor *lvn_resize2d_with(lvn_tensor *x, int64_t height, int64_t width,
                                      const lvn_resize2d_options *o);
#define lvn_resize2d(x, height, width, ...)                                                        \
    lvn_resize2d_with(                                                                             \
        (x), (height), (width),                                                                    \
        &(lvn_resize2d_options){.struct_size = sizeof(lvn_resize2d_options), __VA_ARGS__})

/* ---- sampling at positions (Jaderberg et al. 2015) ---- */
/* A position is (x, y): -1 is the left (top) border of the image, 1 the right (bottom) one. The
 * border is the outer edge of the first and last pixel, with align_corners its centre. */

/* theta (N, 2, 3) -> (N, height, width, 2): theta (x, y, 1)^T of each pixel's position. As
 * torch.nn.functional.affine_grid. */
typedef struct lvn_affine_grid_options {
    size_t struct_size;
    bool align_corners;
} lvn_affine_grid_options;
LVN_API lvn_tensor *lvn_affine_grid_with(lvn_tensor *theta, int64_t height, int64_t width,
                                         const lvn_affine_grid_options *o);
#define lvn_affine_grid(theta, height, width, ...)                                                 \
    lvn_affine_grid_with(                                                                          \
        (theta), (height), (width),                                                                \
        &(lvn_affine_grid_options){.struct_size = sizeof(lvn_affine_grid_options), __VA_ARGS__})

typedef enum lvn_sample_mode {
    LVN_SAMPLE_BILINEAR, /* between the four pixels around the position */
    LVN_SAMPLE_NEAREST   /* the nearest one; half way between two: the even one */
} lvn_sample_mode;
typedef enum lvn_sample_padding {
    LVN_SAMPLE_ZEROS,     /* outside of the image is 0 */
    LVN_SAMPLE_BORDER,    /* the nearest position on the border */
    LVN_SAMPLE_REFLECTION /* mirrored at the borders until it is inside */
} lvn_sample_padding;
/* x (N, H, W, C), grid (N, H', W', 2) -> (N, H', W', C): x at the positions of the grid. As
 * torch.nn.functional.grid_sample, with positions computed in f64. Gradients of x and of the grid
 * (zeros with nearest, and where a position was moved to the border), no second ones. A position
 * that is NaN shows 0, with the other two the first pixel. In f32 under mixed precision. */
typedef struct lvn_grid_sample_options {
    size_t struct_size;
    lvn_sample_mode mode;
    lvn_sample_padding padding;
    bool align_corners;
} lvn_grid_sample_options;
LVN_API lvn_tensor *lvn_grid_sample_with(lvn_tensor *x, lvn_tensor *grid,
                                         const lvn_grid_sample_options *o);
#define lvn_grid_sample(x, grid, ...)                                                              \
    lvn_grid_sample_with(                                                                          \
        (x), (grid),                                                                               \
        &(lvn_grid_sample_options){.struct_size = sizeof(lvn_grid_sample_options), __VA_ARGS__})

/* ---- keypoints on maps (Biswas et al. 2024, "Lightning Pose") ---- */
/* maps (N, h, w, K) -> (N, K, 3): x, y and confidence of each map. It is doubled `doublings` times
 * (0 to 4): bicubic interpolation, then the filter [1 4 6 4 1] / 16 along both axes with zeros
 * outside. Of the soft-max S of temperature times that over all its pixels, x and y are the means
 * of column and row, less the (2^doublings - 1) / 2 by which the larger grid is shifted; the
 * confidence is the sum of S over the 5 x 5 pixels around them (column and row rounded down), zeros
 * outside. Positions are pixels of the larger map. Gradient of the maps, no second one; the larger
 * map is never kept. In f32 under mixed precision. */
typedef struct lvn_soft_argmax2d_options {
    size_t struct_size;
    double temperature; /* 0: 1000 */
} lvn_soft_argmax2d_options;
LVN_API lvn_tensor *lvn_soft_argmax2d_with(lvn_tensor *maps, int doublings,
                                           const lvn_soft_argmax2d_options *o);
#define lvn_soft_argmax2d(maps, doublings, ...)                                                    \
    lvn_soft_argmax2d_with((maps), (doublings),                                                    \
                           &(lvn_soft_argmax2d_options){                                           \
                               .struct_size = sizeof(lvn_soft_argmax2d_options), __VA_ARGS__})
/* points (N, K, 2), x and y, and kind (N, K) -> (N, height, width, K), maps to train with, no
 * gradient. kind 2: e^(-d^2 / (2 sigma^2)), d the distance in pixels of the map from (scale x,
 * scale y), divided by its sum; zeros where that is NaN or more than a pixel outside of [0, width]
 * x [0, height]. kind 1: the same everywhere, 1 / (height width). Any other: zeros. */
LVN_API lvn_tensor *lvn_heatmap2d(lvn_tensor *points, lvn_tensor *kind, int64_t height,
                                  int64_t width, double scale, double sigma);

/* (N, H, W, C f f) -> (N, H f, W f, C): channel c of pixel (h f + i, w f + j) was channel (c f + i)
 * f + j of pixel (h, w), PyTorch's order; and back. Shi et al. 2016, eq. 4. */
LVN_API lvn_tensor *lvn_pixel_shuffle(lvn_tensor *x, int factor);
LVN_API lvn_tensor *lvn_pixel_unshuffle(lvn_tensor *x, int factor);

/* ---- Fourier transforms ---- */
/* Complex numbers are pairs in a last axis of size 2: (..., L, 2), and (..., H, W, 2) for fft2; any
 * lengths, those with small prime factors are fast. y[k] = sum_j x[j] e^(-2 pi i j k / n), ifft
 * with the other sign. */
typedef enum lvn_fft_norm {
    LVN_FFT_BACKWARD, /* ifft divides by n: the default of NumPy and PyTorch */
    LVN_FFT_ORTHO,    /* both directions divide by sqrt(n): lengths are kept */
    LVN_FFT_FORWARD   /* fft divides by n */
} lvn_fft_norm;
typedef struct lvn_fft_options {
    size_t struct_size;
    lvn_fft_norm norm;
    /* number 0 of both sides is in the middle, at n / 2: fftshift(fft(ifftshift(x))), as MRI data
     * are */
    bool centered;
} lvn_fft_options;
LVN_API lvn_tensor *lvn_fft_with(lvn_tensor *x, const lvn_fft_options *o);
LVN_API lvn_tensor *lvn_ifft_with(lvn_tensor *x, const lvn_fft_options *o);
LVN_API lvn_tensor *lvn_fft2_with(lvn_tensor *x, const lvn_fft_options *o);
LVN_API lvn_tensor *lvn_ifft2_with(lvn_tensor *x, const lvn_fft_options *o);
#define lvn_fft(x, ...)                                                                            \
    lvn_fft_with((x), &(lvn_fft_options){.struct_size = sizeof(lvn_fft_options), __VA_ARGS__})
#define lvn_ifft(x, ...)                                                                           \
    lvn_ifft_with((x), &(lvn_fft_options){.struct_size = sizeof(lvn_fft_options), __VA_ARGS__})
#define lvn_fft2(x, ...)                                                                           \
    lvn_fft2_with((x), &(lvn_fft_options){.struct_size = sizeof(lvn_fft_options), __VA_ARGS__})
#define lvn_ifft2(x, ...)                                                                          \
    lvn_ifft2_with((x), &(lvn_fft_options){.struct_size = sizeof(lvn_fft_options), __VA_ARGS__})

#ifdef __cplusplus
}
#endif
#endif

/* Positions of grid_sample and the pixels around them (sample.cu, sample_grad.cu). They are found
 * in f64, so that the nearest pixel is that of the exact position. */
#ifndef LEVIN_KERNELS_CUDA_SAMPLE_CUH
#define LEVIN_KERNELS_CUDA_SAMPLE_CUH

#include "image.cuh"

enum { CORNERS = 4 };

struct sample_shape {
    bool nearest, align_corners;
    int outside;   /* lvn_outside_kind */
    int h, w, c;   /* of the image */
    int positions; /* of an image */
};

/* Up to four pixels around a position: top left, top right, bottom left, bottom right; of the
 * nearest pixel the first alone. */
struct corners {
    bool there;         /* else no pixel of the image is near */
    int row, column;    /* of the top left one; from -1 on */
    double right, down; /* how far the position is from it */
    double slope[2];    /* pixels per coordinate x, y */
};

/* A coordinate in pixels, where the rule for what is outside has moved it; *slope: the derivative
 * by the coordinate, 0 where it was moved to the border. */
__device__ __forceinline__ double find_pixel(const sample_shape &s, double g, int size,
                                             double *slope)
{
    const double half = s.align_corners ? (size - 1) / 2.0 : size / 2.0,
                 first = s.align_corners ? 0.0 : -0.5;
    double at = (g + 1.0) * half + first;
    *slope = half;
    if (s.outside == LVN_OUTSIDE_ZEROS) {
        return at;
    }
    if (s.outside == LVN_OUTSIDE_REFLECTION) {
        const double distance = fabs(at - first), span = 2.0 * half,
                     flips = span > 0.0 ? floor(distance / span) : 0.0,
                     rest = span > 0.0 ? fmod(distance, span) : 0.0;
        const bool turned = fmod(flips, 2.0) != 0.0;
        *slope = (at < first) != turned ? -half : half;
        at = first + (turned ? span - rest : rest);
    }
    if (at > 0.0 && at < (double)(size - 1)) {
        return at;
    }
    *slope = 0.0;
    return at > 0.0 ? (double)(size - 1) : 0.0; /* NaN too */
}

__device__ __forceinline__ corners find_corners(const sample_shape &s, const float *g)
{
    corners a;
    const double x = find_pixel(s, (double)g[0], s.w, &a.slope[0]),
                 y = find_pixel(s, (double)g[1], s.h, &a.slope[1]);
    a.there = x >= -1.0 && x < (double)s.w && y >= -1.0 && y < (double)s.h;
    a.row = a.column = 0;
    a.right = a.down = 0.0;
    if (a.there) {
        const double left = s.nearest ? rint(x) : floor(x), top = s.nearest ? rint(y) : floor(y);
        a.row = (int)top;
        a.column = (int)left;
        a.right = s.nearest ? 0.0 : x - left;
        a.down = s.nearest ? 0.0 : y - top;
    }
    return a;
}

__device__ __forceinline__ double corner_weight(const corners &a, int k)
{
    return (k % 2 == 0 ? 1.0 - a.right : a.right) * (k / 2 == 0 ? 1.0 - a.down : a.down);
}

/* The corner's pixel of the image; -1: outside, or without weight. */
__device__ __forceinline__ int64_t corner_pixel(const sample_shape &s, const corners &a, int k)
{
    const int row = a.row + k / 2, column = a.column + k % 2;
    return a.there && row >= 0 && row < s.h && column >= 0 && column < s.w
               ? (int64_t)row * s.w + column
               : -1;
}

/* `image` has the sizes, `grid` the positions. */
static inline lvn_status make_sample_shape(const lvn_kernel_args *args, const lvn_tensor *image,
                                           const lvn_tensor *grid, sample_shape *s)
{
    const lvn_sample_attr &a = attr_of<lvn_sample_attr>(args);
    LVN_TRY(check_pixels(args->op->name, image));
    LVN_TRY(check_pixels(args->op->name, grid));
    s->nearest = a.nearest;
    s->align_corners = a.align_corners;
    s->outside = (int)a.outside;
    s->h = (int)lvn_size(image, 1);
    s->w = (int)lvn_size(image, 2);
    s->c = (int)lvn_size(image, 3);
    s->positions = (int)(lvn_size(grid, 1) * lvn_size(grid, 2));
    return LVN_OK;
}

#endif

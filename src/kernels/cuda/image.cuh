/* Kernels of images (N, H, W, C): an item of work is a few neighbouring channels of one pixel of
 * the result, and counts in 32 bits. */
#ifndef LEVIN_KERNELS_CUDA_IMAGE_CUH
#define LEVIN_KERNELS_CUDA_IMAGE_CUH

#include "cuda.cuh"
#include "division.cuh"

/* Of a result. */
struct pixels {
    int h, w, c; /* c: packs of channels */
    divisor by_h, by_w, by_c;
    int images; /* that one launch takes */
};

/* Where an item lies: image, row, column, pack of channels. */
struct item_place {
    int n, h, w, c;
};

/* An item of `tall` x `wide` pixels, of which those beyond the image's border are not there. */
static inline pixels make_pixels(const lvn_tensor *t, int channels, int tall = 1, int wide = 1)
{
    pixels p;
    p.h = ((int)lvn_size(t, 1) + tall - 1) / tall;
    p.w = ((int)lvn_size(t, 2) + wide - 1) / wide;
    p.c = (int)(lvn_size(t, 3) / channels);
    p.by_h = make_divisor(p.h > 0 ? p.h : 1);
    p.by_w = make_divisor(p.w > 0 ? p.w : 1);
    p.by_c = make_divisor(p.c > 0 ? p.c : 1);
    const int64_t each = (int64_t)p.h * p.w * p.c, most = each > 0 ? INT32_MAX / each : 1;
    p.images = (int)(most < 1 ? 1 : most > INT32_MAX ? INT32_MAX : most);
    return p;
}

__device__ __forceinline__ item_place place_of(unsigned item, const pixels &p)
{
    unsigned c, w, h;
    const unsigned pixel = divide(item, p.by_c, &c), row = divide(pixel, p.by_w, &w),
                   n = divide(row, p.by_h, &h);
    return item_place{(int)n, (int)h, (int)w, (int)c};
}

/* An image has fewer items than 32 bits count. */
static inline lvn_status check_pixels(const char *op, const lvn_tensor *t)
{
    const int64_t each = lvn_size(t, 1) * lvn_size(t, 2) * lvn_size(t, 3);
    if (each > INT32_MAX) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "%s: an image of %lld values: the limit is %d", op,
                 (long long)each, INT32_MAX);
    }
    return LVN_OK;
}

#endif

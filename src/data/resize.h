/* Resizing as Pillow's Image.resize does it on 8-bit RGB: first along the rows, then down the
 * columns, each with antialiasing, weights of 22 bits and a rounding to 8 bits. Integer sums, so
 * every instruction set gives the same bytes. (Pillow 13 takes the columns first where the height
 * shrinks by more than twice the pixels that the width does: one level of difference at most.) What
 * evaluation and prediction see; random crops of the training take resample.h, which is faster.
 * Called by augment.c. */
#ifndef LEVIN_DATA_RESIZE_H
#define LEVIN_DATA_RESIZE_H

#include "data/resample.h"

/* Pillow's filters; `nearest` has no antialiasing. */
typedef enum lvni_data_filter {
    LVNI_FILTER_NEAREST,
    LVNI_FILTER_BOX,
    LVNI_FILTER_BILINEAR,
    LVNI_FILTER_HAMMING,
    LVNI_FILTER_BICUBIC,
    LVNI_FILTER_LANCZOS,
} lvni_data_filter;
#define LVNI_FILTERS "nearest|box|bilinear|hamming|bicubic|lanczos" /* in this order */
const char *lvni_data_filter_name(lvni_data_filter filter);

/* The whole image resized to width x height, and the square of it that is wanted. left and top may
 * be negative: what lies outside of the resized image is black. */
typedef struct lvni_data_resize_plan {
    int width, height, left, top, crop;
    lvni_data_filter filter;
} lvni_data_resize_plan;

/* torchvision's Resize(shorter) and CenterCrop(crop) of an image of width x height pixels: the
 * longer side is rounded down, the crop's corner to even, and an image smaller than the crop lies
 * in the middle of it. LVN_ERR_USAGE when the longer side would have more than 2^31 - 1 pixels. */
lvn_status lvni_data_resize_centre(int shorter, int crop, lvni_data_filter filter, int width,
                                   int height, lvni_data_resize_plan *out);
/* The pixels of an image of width x height that the plan reads. */
lvni_data_box lvni_data_resize_wanted(const lvni_data_resize_plan *plan, int width, int height);

/* image: in full scale; what lvni_data_resize_wanted names must be there. Writes crop x crop
 * pixels: integers of 0..255, times scale, plus bias. Fails only for want of memory. */
lvn_status lvni_data_resize(lvni_data_scratch *scratch, const lvni_data_image *image,
                            const lvni_data_resize_plan *plan,
                            const lvni_data_resample_target *target);

/* false: plain C alone, which the vector code must equal (tests). */
void lvni_data_resize_use_vector(bool use);

#endif

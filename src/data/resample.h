/* A part of an image to the pixels that a network sees. Random crops of training take
 * lvni_data_resample (resample.c); evaluation and prediction resize as Pillow does (resize.c),
 * which is slower. Weights and sums are integers, so every machine and every instruction set gives
 * the same bits. Called by augment.c. */
#ifndef LEVIN_DATA_RESAMPLE_H
#define LEVIN_DATA_RESAMPLE_H

#include "data/image.h"

/* ---- a box of an image to a small image of any turn ----
 *
 * Bilinear with antialiasing: each output pixel is a triangle-weighted mean over the pixels it
 * covers, at least two. */

/* Where output pixel (x, y) goes: a float for each channel of the image at data + x * step_x + y *
 * step_y. Turns and mirrors are steps. Channel k becomes value * scale[k] + bias[k], value in
 * 0..255. */
typedef struct lvni_data_resample_target {
    float *data;
    ptrdiff_t step_x, step_y; /* floats */
    float scale[4], bias[4];
} lvni_data_resample_target;

/* `box` in pixels of the image and inside it; the part of the image that is there must reach
 * max(1, box side / output side) pixels farther. width x height output pixels (1 to
 * LVNI_RESAMPLE_MAX_SIDE each). Fails only for want of memory. */
enum { LVNI_RESAMPLE_MAX_SIDE = 8192 };
lvn_status lvni_data_resample(lvni_data_scratch *scratch, const lvni_data_image *image,
                              const lvni_data_box *box, int width, int height,
                              const lvni_data_resample_target *target);
/* The same as OpenCV's INTER_AREA does it: the mean over the area that an output pixel covers where
 * both sides shrink or stay; else, of the two pixels at the first border that it covers, by where
 * the border divides it. Nothing outside the box is read, and less than a pixel where it ends
 * inside of one. */
lvn_status lvni_data_resample_area(lvni_data_scratch *scratch, const lvni_data_image *image,
                                   const lvni_data_box *box, int width, int height,
                                   const lvni_data_resample_target *target);

/* The same sums in plain C, which the vector code must equal (tests). count a multiple of 16, taps
 * of 2; out has 7 bits after the point. */
void lvni_data_resample_column_plain(const uint8_t *const *rows, const int16_t *weights, int taps,
                                     int64_t count, int16_t *out);
void lvni_data_resample_column(const uint8_t *const *rows, const int16_t *weights, int taps,
                               int64_t count, int16_t *out);

/* ---- resizing as Pillow's Image.resize does it on 8-bit RGB ----
 *
 * First along the rows, then down the columns, each with antialiasing, weights of 22 bits and a
 * rounding to 8 bits. (Pillow 13 takes the columns first where the height shrinks by more than
 * twice the pixels that the width does: one level of difference at most.) */

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

/* image: RGB in full scale; what lvni_data_resize_wanted names must be there. Writes crop x crop
 * pixels: integers of 0..255, times scale, plus bias. Fails only for want of memory. */
lvn_status lvni_data_resize(lvni_data_scratch *scratch, const lvni_data_image *image,
                            const lvni_data_resize_plan *plan,
                            const lvni_data_resample_target *target);

/* false: plain C alone, which the vector code must equal (tests). */
void lvni_data_resize_use_vector(bool use);

#endif

/* The effects of augmentation that work on float pixels, in place: colour jitter, solarisation,
 * blur, rotation. Called by augment.c. */
#ifndef LEVIN_DATA_EFFECTS_H
#define LEVIN_DATA_EFFECTS_H

#include "data/image.h"

/* ---- colour: (n, 3) pixels in 0..255; each result is clamped to 0..255 ---- */

void lvni_data_colour_brightness(float *rgb, int64_t n, float factor); /* x * factor */
/* away from the image's mean grey */
void lvni_data_colour_contrast(float *rgb, int64_t n, float factor);
/* away from the pixel's own grey */
void lvni_data_colour_saturation(float *rgb, int64_t n, float factor);
void lvni_data_colour_hue(float *rgb, int64_t n, float turns); /* around the HSV circle */

/* Values of `from` and above become 255 - value. */
void lvni_data_colour_solarize(float *rgb, int64_t n, float from);

/* ---- Gaussian blur ---- */

enum { LVNI_BLUR_MAX_SIGMA = 20, LVNI_BLUR_MAX_KERNEL = 141 /* 2 * 3.5 * 20 + 1 */ };

/* (height, width, channels) in place, down the columns and then along the rows, with weights
 * exp(-x^2 / (2 sigma^2)) that add up to 1. kernel: odd, or 0: 2 floor(3.5 sigma) + 1. Beyond an
 * edge the image is mirrored without repeating the edge (as often as needed). The sums run over the
 * kernel from left to right, so every instruction set gives the same bits. Fails only for want of
 * memory. */
lvn_status lvni_data_blur(lvni_data_scratch *scratch, float *values, int width, int height,
                          int channels, double sigma, int kernel);

/* (height, width, channels) in place, about its centre by `turns` of a circle, bilinear; what comes
 * from beyond an edge is mirrored as for the blur. Fails only for want of memory. */
lvn_status lvni_data_rotate(lvni_data_scratch *scratch, float *values, int width, int height,
                            int channels, double turns);

#endif

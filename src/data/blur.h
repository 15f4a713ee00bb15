/* Gaussian blur of an augmented image. Called by augment.c. */
#ifndef LEVIN_DATA_BLUR_H
#define LEVIN_DATA_BLUR_H

#include "data/image.h"

enum { LVNI_BLUR_MAX_SIGMA = 20, LVNI_BLUR_MAX_KERNEL = 141 /* 2 * 3.5 * 20 + 1 */ };

/* rgb (height, width, 3) in place, down the columns and then along the rows, with weights exp(-x^2
 * / (2 sigma^2)) that add up to 1. kernel: odd, or 0: 2 floor(3.5 sigma) + 1. Beyond an edge the
 * image is mirrored without repeating the edge (as often as needed). The sums run over the kernel
 * from left to right, so every instruction set gives the same bits. Fails only for want of
 * memory. */
lvn_status lvni_data_blur(lvni_data_scratch *scratch, float *rgb, int width, int height,
                          double sigma, int kernel);

#endif

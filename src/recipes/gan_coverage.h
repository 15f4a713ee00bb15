/* How often the truth lies where samples predict it: coverage of intervals made of samples, and
 * the calibration of intervals so that they miss no more than a given share (Angelopoulos et al.
 * 2022, "Image-to-Image Regression with Distribution-Free Uncertainty Quantification", algorithm
 * 2). Pure. */
#ifndef LEVIN_RECIPES_GAN_COVERAGE_H
#define LEVIN_RECIPES_GAN_COVERAGE_H

#include <levin/status.h>

enum { LVNI_GAN_LEVELS = 10 };

/* The levels of a report: level i of LVNI_GAN_LEVELS, from 0.01 to 0.99 in equal steps. */
double lvni_recipes_gan_level(int i);

/* share[l] (n_levels): of the elements within the mask (NULL: all) the part whose truth lies
 * between the quantiles (1 - level) / 2 and (1 + level) / 2 of its samples (n_samples, n).
 * Quantile q stands at position (n_samples + 1) q of the sorted samples from 1 on, between two of
 * them by linear interpolation, and never outside of them: so samples of the true posterior cover
 * their level on average, up to (n_samples - 1) / (n_samples + 1). (numpy's default positions fall
 * short of every level by that factor.) LVN_ERR_MEMORY. */
lvn_status lvni_recipes_gan_coverage(const float *samples, int n_samples, const float *truth,
                                     const uint8_t *mask, int64_t n, const double *levels,
                                     int n_levels, double *share);

/* ---- mean +- (std + lambda) ---- */

typedef struct lvni_recipes_gan_interval {
    const float *truth, *mean, *std; /* (n) */
    const uint8_t *mask;             /* (n); NULL: all */
    int64_t n;
} lvni_recipes_gan_interval;

/* The part of the elements whose truth lies within mean +- (std + lambda). */
double lvni_recipes_gan_interval_coverage(const lvni_recipes_gan_interval *item, double lambda);

typedef struct lvni_recipes_gan_calibration {
    double start, step; /* lambda starts here and decreases by this, in units of the data */
    double error;       /* probability that the guarantee does not hold */
} lvni_recipes_gan_calibration;

#define LVNI_GAN_CALIBRATION ((lvni_recipes_gan_calibration){3.0, 0.01, 0.1})

/* The least lambda = start - k step for which still
 *   mean over items of (1 - coverage) + sqrt(ln(1 / error) / (2 n_items)) <= 1 - level.
 * It may be negative, as std may be too large. NaN: not even `start` is enough, which is so for
 * every level above 1 - sqrt(ln(1 / error) / (2 n_items)). */
double lvni_recipes_gan_calibrate(const lvni_recipes_gan_interval *items, int n_items, double level,
                                  const lvni_recipes_gan_calibration *options);

#endif

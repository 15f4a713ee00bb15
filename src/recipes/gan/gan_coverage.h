/* How often the truth lies where samples predict it: coverage of intervals made of samples, and
 * the calibration of intervals so that they miss no more than a given share (Angelopoulos et al.
 * 2022, "Image-to-Image Regression with Distribution-Free Uncertainty Quantification", algorithm
 * 2). Pure. */
#ifndef LEVIN_RECIPES_GAN_GAN_COVERAGE_H
#define LEVIN_RECIPES_GAN_GAN_COVERAGE_H

#include <levin/status.h>

enum { LVNI_GAN_LEVELS = 10 };

/* The levels of a report: level i of LVNI_GAN_LEVELS, from 0.01 to 0.99 in equal steps. */
double lvni_gan_level(int i);

/* share[l] (n_levels): of the elements within the mask (NULL: all) the part whose truth lies
 * between the quantiles (1 - level) / 2 and (1 + level) / 2 of its samples (n_samples, n).
 * Quantile q stands at position (n_samples + 1) q of the sorted samples from 1 on, between two of
 * them by linear interpolation, and never outside of them: so samples of the true posterior cover
 * their level on average, up to (n_samples - 1) / (n_samples + 1). (numpy's default positions fall
 * short of every level by that factor.) LVN_ERR_MEMORY. */
lvn_status lvni_gan_coverage(const float *samples, int n_samples, const float *truth,
                             const uint8_t *mask, int64_t n, const double *levels, int n_levels,
                             double *share);

/* ---- mean +- (std + lambda) ---- */

/* lambda goes from 3 down by 0.01, in units of each item's `scale`. */
#define LVNI_GAN_LAMBDA_START 3.0
#define LVNI_GAN_LAMBDA_STEP 0.01
enum { LVNI_GAN_LAMBDAS = 1024 };

/* Of all items, in the order in which they are added. A zeroed one is empty. */
typedef struct lvni_gan_intervals {
    int64_t items;
    /* sum over items of the share of elements within the mask whose truth lies inside of the
     * interval up to the k-th lambda and not of the next one */
    double last_inside[LVNI_GAN_LAMBDAS];
} lvni_gan_intervals;

/* n elements of an item; mask (NULL: all). */
void lvni_gan_intervals_add(lvni_gan_intervals *intervals, const float *mean, const float *std,
                            const float *truth, const uint8_t *mask, int64_t n, double scale);

/* The least lambda up to which
 *   mean over items of (1 - share inside) + sqrt(ln(10) / (2 items)) <= 1 - level,
 * so that with a probability of 0.9 (Hoeffding) other items miss no more than 1 - level on average.
 * It may be negative, as std may be too large. share: the mean share inside. NaN: not even the
 * first is enough, as for every level above 1 - sqrt(ln(10) / (2 items)). */
double lvni_gan_calibrate(const lvni_gan_intervals *intervals, double level, double *share);

#endif

/* Metrics of reconstructed images and of samples of a posterior: pure functions in double precision
 * over arrays of float. Called by the validation and the evaluation of the gan recipe.
 *
 * n is the number of elements; an image of several channels is one array. `truth` comes second. A
 * quotient 0 / 0 gives NaN, a constant truth has neither PSNR nor SNR (NaN), and an image equal to
 * the truth a PSNR of +inf. */
#ifndef LEVIN_RECIPES_GAN_GAN_METRICS_H
#define LEVIN_RECIPES_GAN_GAN_METRICS_H

#include "core/str.h"

/* ---- one image ---- */

/* 10 log10(max(truth)^2 / MSE) dB */
double lvni_gan_psnr(const float *image, const float *truth, int64_t n);
/* Structural similarity (Wang et al. 2004): uniform windows of 7 x 7, K1 0.01, K2 0.03, variances
 * with divisor 48, data range max(truth), mean over the windows that lie within the image. NaN for
 * an image with a side below 7. */
double lvni_gan_ssim(const float *image, const float *truth, int height, int width);

/* Over the elements where mask is not 0 (NULL: all). */
typedef struct lvni_gan_masked {
    double rmse;
    double pearson;     /* correlation of image and truth */
    double snr;         /* 10 log10(mean(truth^2) / MSE) dB */
    double psnr;        /* 10 log10(max(truth)^2 / MSE) dB */
    double psnr_legacy; /* 10 log10(max(truth) / MSE): of rcGAN, which does not square it */
} lvni_gan_masked;

lvni_gan_masked lvni_gan_masked_of(const float *image, const float *truth, const uint8_t *mask,
                                   int64_t n);

/* ---- samples (n_samples, n) of one item ---- */

/* Of each element the mean and the standard deviation (divisor n_samples) over the samples; NULL:
 * not wanted. */
void lvni_gan_mean_std(const float *samples, int n_samples, int64_t n, float *mean, float *std);
/* Average pixel-wise standard deviation: the mean of `std` above, without rounding it. */
double lvni_gan_apsd(const float *samples, int n_samples, int64_t n);
/* Is the spread of samples a measure of the error? Over the mask (NULL: all). */
typedef struct lvni_gan_uncertainty {
    double r_std_error, r_error_truth, r_std_truth; /* correlations; error: |mean - truth| */
    double ratio_mean, ratio_std; /* of (mean - truth) / std; 0 and 1 for a posterior */
    double within;                /* share of elements whose ratio is ratio_mean +- ratio_std */
} lvni_gan_uncertainty;

/* Elements with a std of 0 have no ratio and are not counted in the last three. */
lvni_gan_uncertainty lvni_gan_uncertainty_of(const float *mean, const float *std,
                                             const float *truth, const uint8_t *mask, int64_t n);

/* ---- a mean over items ---- */

/* A zeroed one is empty. Values are added in the order of the items. */
typedef struct lvni_gan_average {
    int64_t n;            /* finite values */
    int64_t skipped;      /* others: a PSNR is infinite for an image equal to the truth */
    double mean, squares; /* squares: sum of squared distances from the mean */
} lvni_gan_average;

void lvni_gan_average_add(lvni_gan_average *average, double value);
/* Divisor n, as in numpy.std; NaN without a value. */
double lvni_gan_average_std(const lvni_gan_average *average);
/* std / sqrt(n) */
double lvni_gan_average_stderr(const lvni_gan_average *average);
/* "PSNR: 21.37 ± 0.12\n"; skipped values are reported behind it. */
void lvni_gan_average_print(const lvni_gan_average *average, const char *name, int decimals,
                            lvni_core_str *out);
/* A JSON value: {"mean": 21.37, "stderr": 0.12, "std": 1.2, "n": 100, "skipped": 0}; the first
 * three are null without a value. */
void lvni_gan_average_json(const lvni_gan_average *average, lvni_core_str *out);

#endif

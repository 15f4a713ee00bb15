/* Coverage of intervals made of samples (gan_coverage.h). */
#include "recipes/gan/gan_coverage.h"

#include "core/alloc.h"

#include <math.h>
#include <stdlib.h>

double lvni_gan_level(int i)
{
    return 0.01 + 0.98 * i / (LVNI_GAN_LEVELS - 1);
}

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double quantile(const float *sorted, int n, double q)
{
    const double at = fmin(fmax((n + 1) * q - 1.0, 0.0), n - 1.0), whole = floor(at);
    const int i = (int)whole, next = i + 1 < n ? i + 1 : i;
    return (double)sorted[i] + (at - whole) * ((double)sorted[next] - (double)sorted[i]);
}

lvn_status lvni_gan_coverage(const float *samples, int n_samples, const float *truth,
                             const uint8_t *mask, int64_t n, const double *levels, int n_levels,
                             double *share)
{
    LVN_ARG(n_samples > 0, "coverage is undefined for n_samples = %d", n_samples);
    float *sorted = lvni_core_alloc(LVNI_TAG_DATA, (size_t)n_samples * sizeof *sorted);
    if (sorted == NULL) {
        return LVN_ERR_MEMORY;
    }
    int64_t counted = 0;
    for (int l = 0; l < n_levels; l++) {
        share[l] = 0.0;
    }
    for (int64_t i = 0; i < n; i++) {
        if (mask != NULL && mask[i] == 0) {
            continue;
        }
        for (int k = 0; k < n_samples; k++) {
            sorted[k] = samples[k * n + i];
        }
        qsort(sorted, (size_t)n_samples, sizeof *sorted, ascending);
        counted++;
        for (int l = 0; l < n_levels; l++) {
            share[l] += (double)truth[i] >= quantile(sorted, n_samples, 0.5 - 0.5 * levels[l]) &&
                        (double)truth[i] <= quantile(sorted, n_samples, 0.5 + 0.5 * levels[l]);
        }
    }
    for (int l = 0; l < n_levels; l++) {
        share[l] /= (double)counted;
    }
    lvni_core_free(sorted);
    return LVN_OK;
}

/* ---- mean +- (std + lambda) ---- */

/* The last lambda whose interval has the element; -1: none has. */
static int last_inside(double mean, double std, double truth, double scale)
{
    const double needed = (fabs(truth - mean) - std) / scale,
                 step = floor((LVNI_GAN_LAMBDA_START - needed) / LVNI_GAN_LAMBDA_STEP);
    return step >= 0.0 ? (int)fmin(step, LVNI_GAN_LAMBDAS - 1) : -1;
}

void lvni_gan_intervals_add(lvni_gan_intervals *v, const float *mean, const float *std,
                            const float *truth, const uint8_t *mask, int64_t n, double scale)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < n; i++) {
        counted += mask == NULL || mask[i] != 0;
    }
    for (int64_t i = 0; i < n; i++) {
        const int k = mask == NULL || mask[i] != 0
                          ? last_inside((double)mean[i], (double)std[i], (double)truth[i], scale)
                          : -1;
        if (k >= 0) {
            v->last_inside[k] += 1.0 / (double)counted;
        }
    }
    v->items++;
}

double lvni_gan_calibrate(const lvni_gan_intervals *v, double level, double *share)
{
    const double bound = sqrt(log(10.0) / (2.0 * (double)v->items));
    double inside = 0.0;
    for (int k = LVNI_GAN_LAMBDAS - 1; k >= 0; k--) {
        inside += v->last_inside[k];
        *share = inside / (double)v->items;
        if (1.0 - *share + bound <= 1.0 - level) {
            return LVNI_GAN_LAMBDA_START - k * LVNI_GAN_LAMBDA_STEP;
        }
    }
    return NAN;
}

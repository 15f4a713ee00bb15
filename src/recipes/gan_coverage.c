/* Coverage of intervals made of samples (gan_coverage.h). */
#include "recipes/gan_coverage.h"

#include "core/alloc.h"

#include <math.h>
#include <stdlib.h>

double lvni_recipes_gan_level(int i)
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

lvn_status lvni_recipes_gan_coverage(const float *samples, int n_samples, const float *truth,
                                     const uint8_t *mask, int64_t n, const double *levels,
                                     int n_levels, double *share)
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

double lvni_recipes_gan_interval_coverage(const lvni_recipes_gan_interval *item, double lambda)
{
    int64_t inside = 0, counted = 0;
    for (int64_t i = 0; i < item->n; i++) {
        if (item->mask == NULL || item->mask[i] != 0) {
            counted++;
            inside += fabs((double)item->truth[i] - (double)item->mean[i]) <=
                      (double)item->std[i] + lambda;
        }
    }
    return (double)inside / (double)counted;
}

/* Of all items, with Hoeffding's bound for the chance that the mean of others is larger. */
static double risk(const lvni_recipes_gan_interval *items, int n_items, double lambda, double error)
{
    double missed = 0.0;
    for (int i = 0; i < n_items; i++) {
        missed += 1.0 - lvni_recipes_gan_interval_coverage(&items[i], lambda);
    }
    return missed / n_items + sqrt(log(1.0 / error) / (2.0 * n_items));
}

double lvni_recipes_gan_calibrate(const lvni_recipes_gan_interval *items, int n_items, double level,
                                  const lvni_recipes_gan_calibration *o)
{
    if (!(n_items > 0 && o->step > 0.0 &&
          risk(items, n_items, o->start, o->error) <= 1.0 - level)) {
        return NAN;
    }
    /* The risk falls with lambda, so the first k that is too far is found by doubling and then
     * halving: beyond start + max(std) every interval is empty and the risk above 1. */
    int64_t good = 0, bad = 1;
    while (bad < INT64_MAX / 4 && /* an infinite std */
           risk(items, n_items, o->start - (double)bad * o->step, o->error) <= 1.0 - level) {
        good = bad;
        bad *= 2;
    }
    while (bad - good > 1) {
        const int64_t middle = good + (bad - good) / 2;
        const double lambda = o->start - (double)middle * o->step;
        *(risk(items, n_items, lambda, o->error) <= 1.0 - level ? &good : &bad) = middle;
    }
    return o->start - (double)good * o->step;
}

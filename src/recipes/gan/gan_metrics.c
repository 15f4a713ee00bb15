/* Metrics of images and samples (gan_metrics.h). */
#include "recipes/gan/gan_metrics.h"

#include <math.h>

/* ---- one image ---- */

/* Of the elements within the mask; moments of the truth a and the image b. */
typedef struct sums {
    double n, a, b, aa, squared_error; /* aa: sum of a^2 */
    double low, high;                  /* of the truth */
} sums;

static bool counts(const uint8_t *mask, int64_t i)
{
    return mask == NULL || mask[i] != 0;
}

static sums sums_of(const float *image, const float *truth, const uint8_t *mask, int64_t n)
{
    sums s = {.low = INFINITY, .high = -INFINITY};
    for (int64_t i = 0; i < n; i++) {
        if (counts(mask, i)) {
            const double a = (double)truth[i], b = (double)image[i];
            s.n++;
            s.a += a;
            s.b += b;
            s.aa += a * a;
            s.squared_error += (a - b) * (a - b);
            s.low = fmin(s.low, a);
            s.high = fmax(s.high, a);
        }
    }
    return s;
}

/* Of a constant truth none: its maximum may be what rounding left of 0. */
static double decibel(const sums *s, double signal)
{
    return s->high > s->low ? 10.0 * log10(signal / (s->squared_error / s->n)) : (double)NAN;
}

double lvni_gan_psnr(const float *image, const float *truth, int64_t n)
{
    const sums s = sums_of(image, truth, NULL, n);
    return decibel(&s, s.high * s.high);
}

/* Welford's update of means, squares and products: values may lie far from 0 and close together. */
typedef struct pairs {
    double n, mean_a, mean_b, aa, bb, ab;
} pairs;

static void pairs_add(pairs *p, double a, double b)
{
    const double da = a - p->mean_a, db = b - p->mean_b;
    p->n++;
    p->mean_a += da / p->n;
    p->mean_b += db / p->n;
    p->aa += da * (a - p->mean_a);
    p->bb += db * (b - p->mean_b);
    p->ab += da * (b - p->mean_b);
}

static double correlation(const pairs *p)
{
    return p->ab / sqrt(p->aa * p->bb);
}

lvni_gan_masked lvni_gan_masked_of(const float *image, const float *truth, const uint8_t *mask,
                                   int64_t n)
{
    const sums s = sums_of(image, truth, mask, n);
    pairs p = {0};
    for (int64_t i = 0; i < n; i++) {
        if (counts(mask, i)) {
            pairs_add(&p, (double)truth[i], (double)image[i]);
        }
    }
    return (lvni_gan_masked){.rmse = sqrt(s.squared_error / s.n),
                             .pearson = correlation(&p),
                             .snr = decibel(&s, s.aa / s.n),
                             .psnr = decibel(&s, s.high * s.high),
                             .psnr_legacy = decibel(&s, s.high)};
}

/* ---- structural similarity ---- */

enum { WINDOW = 7 };

/* One window with its upper left corner at a and b, rows `width` apart. */
static double similarity(const float *a, const float *b, int width, double c1, double c2)
{
    pairs p = {0};
    for (int i = 0; i < WINDOW; i++) {
        for (int j = 0; j < WINDOW; j++) {
            const int64_t at = (int64_t)i * width + j;
            pairs_add(&p, (double)a[at], (double)b[at]);
        }
    }
    const double m = p.n - 1.0, ab = p.ab / m, aa = p.aa / m, bb = p.bb / m;
    return (2.0 * p.mean_a * p.mean_b + c1) * (2.0 * ab + c2) /
           ((p.mean_a * p.mean_a + p.mean_b * p.mean_b + c1) * (aa + bb + c2));
}

double lvni_gan_ssim(const float *image, const float *truth, int height, int width)
{
    const int rows = height - WINDOW + 1, columns = width - WINDOW + 1;
    const int64_t n = (int64_t)height * width;
    double range = -INFINITY, sum = 0.0;
    if (rows < 1 || columns < 1) {
        return NAN;
    }
    for (int64_t i = 0; i < n; i++) {
        range = fmax(range, (double)truth[i]);
    }
    const double c1 = 0.01 * range * 0.01 * range, c2 = 0.03 * range * 0.03 * range;
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++) {
            const int64_t at = (int64_t)i * width + j;
            sum += similarity(truth + at, image + at, width, c1, c2);
        }
    }
    return sum / ((double)rows * (double)columns);
}

/* ---- samples ---- */

/* Element i of all samples: mean, and variance with divisor n_samples. */
static void moments(const float *samples, int n_samples, int64_t n, int64_t i, double *mean,
                    double *variance)
{
    double m = 0.0, squares = 0.0;
    for (int k = 0; k < n_samples; k++) {
        const double x = (double)samples[k * n + i], d = x - m;
        m += d / (k + 1.0);
        squares += d * (x - m);
    }
    *mean = m;
    *variance = squares / n_samples;
}

void lvni_gan_mean_std(const float *samples, int n_samples, int64_t n, float *mean, float *std)
{
    for (int64_t i = 0; i < n; i++) {
        double m, variance;
        moments(samples, n_samples, n, i, &m, &variance);
        if (mean != NULL) {
            mean[i] = (float)m;
        }
        if (std != NULL) {
            std[i] = (float)sqrt(variance);
        }
    }
}

double lvni_gan_apsd(const float *samples, int n_samples, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double m, variance;
        moments(samples, n_samples, n, i, &m, &variance);
        sum += sqrt(variance);
    }
    return sum / (double)n;
}

/* ---- uncertainty ---- */

static bool has_ratio(const float *std, const uint8_t *mask, int64_t i)
{
    return counts(mask, i) && std[i] > 0.0F;
}

static double ratio(const float *mean, const float *std, const float *truth, int64_t i)
{
    return ((double)mean[i] - (double)truth[i]) / (double)std[i];
}

lvni_gan_uncertainty lvni_gan_uncertainty_of(const float *mean, const float *std,
                                             const float *truth, const uint8_t *mask, int64_t n)
{
    pairs std_error = {0}, error_truth = {0}, std_truth = {0}, r = {0};
    for (int64_t i = 0; i < n; i++) {
        if (counts(mask, i)) {
            const double t = (double)truth[i], s = (double)std[i], e = fabs((double)mean[i] - t);
            pairs_add(&std_error, s, e);
            pairs_add(&error_truth, e, t);
            pairs_add(&std_truth, s, t);
        }
        if (has_ratio(std, mask, i)) {
            pairs_add(&r, ratio(mean, std, truth, i), 0.0);
        }
    }
    const double deviation = sqrt(r.aa / r.n);
    double inside = 0.0;
    for (int64_t i = 0; i < n; i++) {
        inside +=
            has_ratio(std, mask, i) && fabs(ratio(mean, std, truth, i) - r.mean_a) <= deviation;
    }
    return (lvni_gan_uncertainty){.r_std_error = correlation(&std_error),
                                  .r_error_truth = correlation(&error_truth),
                                  .r_std_truth = correlation(&std_truth),
                                  .ratio_mean = r.n > 0.0 ? r.mean_a : (double)NAN,
                                  .ratio_std = deviation,
                                  .within = inside / r.n};
}

/* ---- a mean over items ---- */

void lvni_gan_average_add(lvni_gan_average *a, double value)
{
    if (!isfinite(value)) {
        a->skipped++;
        return;
    }
    const double d = value - a->mean;
    a->n++;
    a->mean += d / (double)a->n;
    a->squares += d * (value - a->mean);
}

double lvni_gan_average_std(const lvni_gan_average *a)
{
    return a->n > 0 ? sqrt(a->squares / (double)a->n) : (double)NAN;
}

double lvni_gan_average_stderr(const lvni_gan_average *a)
{
    return lvni_gan_average_std(a) / sqrt((double)a->n);
}

void lvni_gan_average_print(const lvni_gan_average *a, const char *name, int decimals,
                            lvni_core_str *out)
{
    if (a->n == 0) {
        lvni_core_str_printf(out, "%s: -", name);
    } else {
        lvni_core_str_printf(out, "%s: %.*f ± %.*f", name, decimals, a->mean, decimals,
                             lvni_gan_average_stderr(a));
    }
    if (a->skipped > 0) {
        lvni_core_str_printf(out, " (without %lld value%s not finite)", (long long)a->skipped,
                             lvni_core_plural(a->skipped, " that is", "s that are"));
    }
    lvni_core_str_char(out, '\n');
}

static void json_member(lvni_core_str *out, const char *key, double value)
{
    lvni_core_str_printf(out, "\"%s\": ", key);
    if (isfinite(value)) {
        lvni_core_str_double(out, value);
    } else {
        lvni_core_str_append(out, "null");
    }
    lvni_core_str_append(out, ", ");
}

void lvni_gan_average_json(const lvni_gan_average *a, lvni_core_str *out)
{
    lvni_core_str_char(out, '{');
    json_member(out, "mean", a->n > 0 ? a->mean : (double)NAN);
    json_member(out, "stderr", lvni_gan_average_stderr(a));
    json_member(out, "std", lvni_gan_average_std(a));
    lvni_core_str_printf(out, "\"n\": %lld, \"skipped\": %lld}", (long long)a->n,
                         (long long)a->skipped);
}

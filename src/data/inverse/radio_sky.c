/* Radio skies and the array of antennas that looks at them. */
#include "core/math.h"
#include "radio.h"

#include <string.h>

static double uniform(const lvni_core_rng *rng, uint64_t *element, double from, double to)
{
    return from + (double)lvni_core_rng_uniform(rng, (*element)++) * (to - from);
}

/* ---- sky ---- */

static void add_gaussian(const lvni_core_rng *rng, uint64_t *element, int n, double *out)
{
    const double cx = uniform(rng, element, 0.25, 0.75) * n,
                 cy = uniform(rng, element, 0.25, 0.75) * n,
                 major = uniform(rng, element, 0.02, 0.1) * n,
                 minor = major * uniform(rng, element, 0.4, 1.0),
                 turn = uniform(rng, element, 0.0, 0.5), peak = uniform(rng, element, 0.2, 1.0);
    const double c = lvni_core_cos2pi(turn), s = lvni_core_cos2pi(turn - 0.25);
    for (int i = 0; i < n * n; i++) {
        const int row = i / n, column = i % n;
        const double dx = column + 0.5 - cx, dy = row + 0.5 - cy;
        const double u = (c * dx + s * dy) / major, v = (c * dy - s * dx) / minor;
        out[i] += peak * lvni_core_exp(-0.5 * (u * u + v * v));
    }
}

void lvni_inverse_radio_sky(const lvni_inverse_random *random, int n, double *out)
{
    const lvni_core_rng rng = lvni_inverse_rng(random);
    uint64_t element = 0;
    const int gaussians = 1 + (int)uniform(&rng, &element, 0.0, 4.0),
              points = (int)uniform(&rng, &element, 0.0, 21.0);
    memset(out, 0, (size_t)n * (size_t)n * sizeof *out);
    for (int i = 0; i < gaussians; i++) {
        add_gaussian(&rng, &element, n, out);
    }
    for (int i = 0; i < points; i++) {
        const int x = (int)(uniform(&rng, &element, 0.1, 0.9) * n),
                  y = (int)(uniform(&rng, &element, 0.1, 0.9) * n);
        out[y * n + x] += uniform(&rng, &element, 0.1, 1.0);
    }
    double peak = 0.0;
    for (int i = 0; i < n * n; i++) {
        peak = out[i] > peak ? out[i] : peak;
    }
    for (int i = 0; i < n * n; i++) {
        out[i] /= peak;
    }
}

/* ---- antennas ---- */

enum { ANTENNAS = 16, TIMES = 60 };

/* In the disc of diameter 1, by rejection. */
static void place_antennas(const lvni_core_rng *rng, uint64_t *element, double at[ANTENNAS][2])
{
    for (int i = 0; i < ANTENNAS;) {
        at[i][0] = uniform(rng, element, -0.5, 0.5);
        at[i][1] = uniform(rng, element, -0.5, 0.5);
        i += at[i][0] * at[i][0] + at[i][1] * at[i][1] <= 0.25;
    }
}

static int nearest(double v)
{
    return v < 0.0 ? -(int)(0.5 - v) : (int)(v + 0.5);
}

static void sample_frequency(int n, int u, int v, double *out)
{
    if (u != 0 || v != 0) {
        out[(v + n) % n * n + (u + n) % n] = 1.0;
        out[(n - v) % n * n + (n - u) % n] = 1.0;
    }
}

void lvni_inverse_radio_sampling(const lvni_inverse_random *random, int n, double *out)
{
    const lvni_core_rng rng = lvni_inverse_rng(random);
    const double longest = 0.9 * (0.5 * n - 1.0); /* baseline, in frequencies */
    uint64_t element = 0;
    double at[ANTENNAS][2] = {{0.0}};
    place_antennas(&rng, &element, at);
    const double declination = uniform(&rng, &element, 0.5, 1.0); /* its sine */
    memset(out, 0, (size_t)n * (size_t)n * sizeof *out);
    for (int t = 0; t < TIMES; t++) {
        /* a third of a turn of the Earth */
        const double turn = ((double)t / (TIMES - 1) - 0.5) / 3.0;
        const double c = lvni_core_cos2pi(turn), s = lvni_core_cos2pi(turn - 0.25);
        for (int a = 0; a < ANTENNAS; a++) {
            for (int b = a + 1; b < ANTENNAS; b++) {
                const double x = (at[b][0] - at[a][0]) * longest,
                             y = (at[b][1] - at[a][1]) * longest;
                sample_frequency(n, nearest(c * x + s * y), nearest(declination * (c * y - s * x)),
                                 out);
            }
        }
    }
}

/* ---- what they see ---- */

void lvni_inverse_radio_observe(const lvni_data_fourier *f, int n, const double *sampling,
                                double sigma, const lvni_data_complex *sky,
                                const lvni_data_complex *noise, lvni_data_complex *dirty,
                                lvni_data_complex *psf, lvni_data_complex *scratch)
{
    const size_t all = (size_t)n * (size_t)n;
    double sampled = 0.0;
    for (size_t i = 0; i < all; i++) {
        sampled += sampling[i];
    }
    const double share = sampled / (double)all; /* peak of the image of a point */
    const double loud = sigma * lvni_core_sqrt(share);
    for (size_t i = 0; i < all; i++) {
        dirty[i] = (lvni_data_complex){sky[i].re + loud * noise[i].re, 0.0};
    }
    lvni_data_fourier_forward(f, dirty, scratch);
    for (size_t i = 0; i < all; i++) {
        const int row = (int)(i / (size_t)n), col = (int)(i % (size_t)n);
        /* half an image farther: another sign of every other frequency, as n is even */
        const double sign = (row + col) % 2 == 0 ? 1.0 : -1.0;
        dirty[i] = (lvni_data_complex){dirty[i].re * sampling[i], dirty[i].im * sampling[i]};
        psf[i] = (lvni_data_complex){sampling[i] * sign, 0.0};
    }
    lvni_data_fourier_inverse(f, dirty, scratch);
    lvni_data_fourier_inverse(f, psf, scratch);
    for (size_t i = 0; i < all; i++) {
        dirty[i] = (lvni_data_complex){dirty[i].re / share, 0.0};
        psf[i] = (lvni_data_complex){psf[i].re / share, 0.0};
    }
}

/* Estimates of mass maps that need no network (inverse_truth.h). */
#include "data/inverse_truth.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/math.h"
#include "inverse/mass.h"

#include <string.h>

/* Buffers of one estimate. */
typedef struct estimate {
    const lvni_inverse_mass *m;
    lvni_data_complex *work;                            /* owned: the four below */
    lvni_data_complex *kappa, *gamma, *other, *scratch; /* n each */
    lvni_data_complex *from_white; /* n, kernel times root of the prior, while solving */
} estimate;

static lvn_status begin(const lvn_dataset *mass, const lvn_sample_key *key, estimate *e)
{
    *e = (estimate){.m = lvni_inverse_mass_of(mass)};
    LVN_ARG(e->m != NULL, "%s: not a dataset of mass maps", mass->cls->name);
    LVN_TRY(lvni_inverse_check_sample(&e->m->b, key));
    e->work = lvni_inverse_mass_work(e->m);
    if (e->work == NULL) {
        return LVN_ERR_MEMORY;
    }
    e->kappa = e->work;
    e->gamma = e->work + e->m->n;
    e->other = e->work + 2 * e->m->n;
    e->scratch = e->work + 3 * e->m->n;
    return lvni_inverse_mass_measure(e->m, key, e->kappa, e->gamma, e->scratch);
}

const double *lvni_data_inverse_mask(const lvn_dataset *dataset)
{
    const lvni_inverse_mass *m = lvni_inverse_mass_of(dataset);
    return m == NULL ? NULL : m->mask;
}

static void end(estimate *e)
{
    lvni_core_free(e->work);
}

static bool varies(const lvni_inverse_mass *m)
{
    return m->mask != NULL || m->noise[0] != NULL;
}

static lvn_status check_known(const lvn_dataset *mass, bool uniform)
{
    const lvni_inverse_mass *m = lvni_inverse_mass_of(mass);
    LVN_ARG(m != NULL, "%s: not a dataset of mass maps", mass->cls->name);
    if (m->prior == NULL) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: the posterior is known for builtin:mass alone, whose maps have a known "
                 "distribution",
                 m->b.o.path);
    }
    if (uniform && varies(m)) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s with a mask or noise maps: the variance differs from pixel to pixel",
                 m->b.o.path);
    }
    return LVN_OK;
}

/* ---- Kaiser and Squires ---- */

/* By frequency: exp(-(2 pi k sigma / N)^2 / 2). */
static void smooth(const lvni_inverse_mass *m, double sigma, lvni_data_complex *x,
                   lvni_data_complex *scratch)
{
    static const double two_pi = 6.283185307179586476925;
    const int n = m->b.o.im_size;
    const double unit = two_pi * sigma / n;
    lvni_data_fourier_forward(m->b.fourier, x, scratch);
    for (int r = 0, i = 0; r < n; r++) {
        for (int c = 0; c < n; c++, i++) {
            const double kr = (r < n / 2 ? r : r - n) * unit, kc = (c < n / 2 ? c : c - n) * unit;
            const double w = lvni_core_exp(-0.5 * (kr * kr + kc * kc));
            x[i] = (lvni_data_complex){x[i].re * w, x[i].im * w};
        }
    }
    lvni_data_fourier_inverse(m->b.fourier, x, scratch);
}

lvn_status lvni_data_inverse_kaiser_squires(const lvn_dataset *mass, const lvn_sample_key *key,
                                            double smoothing, double *out)
{
    LVN_ARG(smoothing >= 0.0, "a smoothing of %g pixels: it must not be negative", smoothing);
    estimate e;
    const lvn_status s = begin(mass, key, &e);
    if (s == LVN_OK) {
        for (size_t i = 0; i < e.m->n; i++) {
            const double seen = e.m->mask != NULL ? e.m->mask[i] : 1.0;
            e.gamma[i] = (lvni_data_complex){e.gamma[i].re * seen, e.gamma[i].im * seen};
        }
        lvni_inverse_mass_invert(e.m, e.gamma, e.scratch);
        if (smoothing > 0.0) {
            smooth(e.m, smoothing, e.gamma, e.scratch);
        }
        for (size_t i = 0; i < e.m->n; i++) {
            out[i] = e.gamma[i].re;
        }
    }
    end(&e);
    return s;
}

/* ---- posterior ---- */

/* x times f(prior) by frequency, of real maps. */
static void colour(const estimate *e, lvni_data_complex *x,
                   double (*f)(const estimate *e, double p))
{
    lvni_data_fourier_forward(e->m->b.fourier, x, e->scratch);
    for (size_t i = 0; i < e->m->n; i++) {
        const double w = f(e, e->m->prior[i]);
        x[i] = (lvni_data_complex){x[i].re * w, x[i].im * w};
    }
    lvni_data_fourier_inverse(e->m->b.fourier, x, e->scratch);
    for (size_t i = 0; i < e->m->n; i++) {
        x[i].im = 0.0;
    }
}

static double wiener(const estimate *e, double p)
{
    return p / (p + e->m->sigma * e->m->sigma);
}

static double root(const estimate *e, double p)
{
    (void)e;
    return lvni_core_sqrt(p);
}

/* Shear divided by its variance, 0 where nothing is measured. */
static void weigh(const lvni_inverse_mass *m, lvni_data_complex *gamma)
{
    for (size_t i = 0; i < m->n; i++) {
        const double a = m->noise[0] != NULL ? m->noise[0][i] : m->sigma,
                     b = m->noise[1] != NULL ? m->noise[1][i] : m->sigma;
        const bool seen = (m->mask == NULL || m->mask[i] != 0.0) && a > 0.0 && b > 0.0;
        gamma[i] = seen ? (lvni_data_complex){gamma[i].re / (a * a), gamma[i].im / (b * b)}
                        : (lvni_data_complex){0.0, 0.0};
    }
}

/* x by frequency times the kernel from white noise to shear, or its conjugate. */
static void pass(const estimate *e, double sign, lvni_data_complex *x)
{
    lvni_data_fourier_forward(e->m->b.fourier, x, e->scratch);
    for (size_t i = 0; i < e->m->n; i++) {
        const lvni_data_complex k = {e->from_white[i].re, sign * e->from_white[i].im};
        x[i] = lvni_data_complex_mul(x[i], k);
    }
    lvni_data_fourier_inverse(e->m->b.fourier, x, e->scratch);
}

/* Shear to the gradient of its likelihood with respect to u, the white noise that a map is made of
 * by the root of the prior. */
static void adjoint(const estimate *e, lvni_data_complex *x)
{
    weigh(e->m, x);
    pass(e, -1.0, x);
    for (size_t i = 0; i < e->m->n; i++) {
        x[i].im = 0.0;
    }
}

/* u times the inverse covariance of its posterior: 1 + A' W A. */
static void precision(const estimate *e, const lvni_data_complex *u, lvni_data_complex *out)
{
    const size_t n = e->m->n;
    memcpy(out, u, n * sizeof *out);
    pass(e, 1.0, out);
    adjoint(e, out);
    for (size_t i = 0; i < n; i++) {
        out[i].re += u[i].re;
    }
}

static double dot(const lvni_data_complex *a, const lvni_data_complex *b, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += a[i].re * b[i].re;
    }
    return sum;
}

/* r (the right side) becomes u; p and q are scratch. Conjugate gradients; u starts at 0. */
static void solve(const estimate *e, lvni_data_complex *r, lvni_data_complex *u,
                  lvni_data_complex *p, lvni_data_complex *q)
{
    enum { MOST = 2000 };
    const size_t n = e->m->n;
    double square = dot(r, r, n);
    const double goal = square * 1e-16;
    memset(u, 0, n * sizeof *u);
    memcpy(p, r, n * sizeof *p);
    for (int step = 0; step < MOST && square > goal; step++) {
        precision(e, p, q);
        const double along = square / dot(p, q, n), before = square;
        for (size_t i = 0; i < n; i++) {
            u[i].re += along * p[i].re;
            r[i].re -= along * q[i].re;
        }
        square = dot(r, r, n);
        const double keep = square / before;
        for (size_t i = 0; i < n; i++) {
            p[i].re = r[i].re + keep * p[i].re;
        }
    }
}

/* e->gamma to the mean of the posterior for it, in e->gamma. */
static lvn_status mean_of(estimate *e)
{
    const size_t n = e->m->n;
    if (!varies(e->m)) {
        lvni_inverse_mass_invert(e->m, e->gamma, e->scratch);
        for (size_t i = 0; i < n; i++) {
            e->gamma[i].im = 0.0;
        }
        colour(e, e->gamma, wiener);
        return LVN_OK;
    }
    lvni_data_complex *more = lvni_core_alloc(LVNI_TAG_DATA, 4 * n * sizeof *more);
    if (more == NULL) {
        return LVN_ERR_MEMORY;
    }
    e->from_white = more + 3 * n;
    for (size_t i = 0; i < n; i++) {
        const double w = lvni_core_sqrt(e->m->prior[i]);
        e->from_white[i] = (lvni_data_complex){e->m->kernel[i].re * w, e->m->kernel[i].im * w};
    }
    adjoint(e, e->gamma);
    solve(e, e->gamma, more, more + n, more + 2 * n);
    memcpy(e->gamma, more, n * sizeof *more);
    lvni_core_free(more);
    colour(e, e->gamma, root);
    return LVN_OK;
}

lvn_status lvni_data_inverse_posterior_mean(const lvn_dataset *mass, const lvn_sample_key *key,
                                            double *out)
{
    LVN_TRY(check_known(mass, false));
    estimate e;
    lvn_status s;
    LVNI_TRY_DONE(s, begin(mass, key, &e));
    LVNI_TRY_DONE(s, mean_of(&e));
    for (size_t i = 0; i < e.m->n; i++) {
        out[i] = e.gamma[i].re;
    }
done:
    end(&e);
    return s;
}

lvn_status lvni_data_inverse_posterior_sample(const lvn_dataset *mass, const lvn_sample_key *key,
                                              uint32_t number, double *out)
{
    LVN_TRY(check_known(mass, false));
    estimate e;
    lvn_status s;
    LVNI_TRY_DONE(s, begin(mass, key, &e));
    const lvni_data_inverse_options *o = &e.m->b.o;
    const uint32_t sample = (uint32_t)key->sample;
    const lvni_inverse_random truth = {o->seed, o->split, number, sample, LVNI_INVERSE_DRAW_TRUTH},
                              noise = {o->seed, o->split, number, sample, LVNI_INVERSE_DRAW_NOISE};
    lvni_inverse_mass_draw(e.m, &truth, &noise, e.kappa, e.other, e.scratch);
    for (size_t i = 0; i < e.m->n; i++) {
        e.gamma[i].re -= e.other[i].re;
        e.gamma[i].im -= e.other[i].im;
    }
    LVNI_TRY_DONE(s, mean_of(&e));
    for (size_t i = 0; i < e.m->n; i++) {
        out[i] = e.kappa[i].re + e.gamma[i].re;
    }
done:
    end(&e);
    return s;
}

lvn_status lvni_data_inverse_posterior_variance(const lvn_dataset *mass, double *out)
{
    LVN_TRY(check_known(mass, true));
    const lvni_inverse_mass *m = lvni_inverse_mass_of(mass);
    const double noise = m->sigma * m->sigma;
    double sum = 0.0;
    for (size_t i = 0; i < m->n; i++) {
        sum += m->prior[i] * noise / (m->prior[i] + noise);
    }
    *out = sum / (double)m->n;
    return LVN_OK;
}

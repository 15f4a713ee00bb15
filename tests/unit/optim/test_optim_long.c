/* 60 steps of RMSprop and Adafactor against numbers of PyTorch in double precision (golden_long.py
 * wrote them and defines the tensors), and of Lion and LAMB against their papers' algorithms,
 * written out here in double precision. The parameters lie in one flat buffer with gaps, as a
 * model's do. */
#include "kernels/kernels.h"
#include "optim/optim.h"
#include "support/test.h"

#include "golden_long.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FLAT = 176, TENSORS = 5 };
static const int64_t begin[] = {0, 48, 64, 128, 144}, size[] = {35, 5, 54, 6, 24};
static const int axes[] = {2, 1, 4, 1, 3}, row_axis[] = {0, 0, 1, 0, 1};
static const int64_t shape[][LVN_MAX_NDIM] = {{5, 7}, {5}, {3, 3, 2, 3}, {6}, {2, 3, 4}};

static double start(int64_t n, int64_t k)
{
    return ((double)((29 * k + n) % 48) - 23.5) / 32.0;
}

static double gradient(int64_t n, int64_t k, int64_t t)
{
    return ((double)((37 * k + 101 * t + n) % 64) - 31.5) / 64.0;
}

static bool is_idle(bool idle, int tensor, int64_t t)
{
    return idle && (t + tensor) % 5 == 0;
}

static double rate(const lvni_optim_options *o, int64_t t)
{
    return t > 30 ? 0.5 * o->lr : o->lr;
}

/* A gradient of four samples, of which the step takes the mean. */
static void run(const lvni_optim_options *options, bool idle, float *w)
{
    float g[FLAT] = {0};
    lvni_optim_parameter p[TENSORS];
    lvni_optim *o;
    memset(w, 0, FLAT * sizeof *w);
    for (int i = 0; i < TENSORS; i++) {
        p[i] = (lvni_optim_parameter){.name = "x",
                                      .begin = begin[i],
                                      .n = size[i],
                                      .ndim = axes[i],
                                      .row_axis = row_axis[i],
                                      .lr_scale = 1.0,
                                      .decay_scale = 1.0};
        memcpy(p[i].shape, shape[i], sizeof p[i].shape);
        for (int64_t k = 0; k < size[i]; k++) {
            w[begin[i] + k] = (float)start(size[i], k);
        }
    }
    assert_int_equal(lvni_optim_create(options, FLAT, NULL, p, TENSORS, &o), LVN_OK);
    for (int64_t t = 1; t <= LONG_STEPS; t++) {
        for (int i = 0; i < TENSORS; i++) {
            o->idle[i] = is_idle(idle, i, t);
            for (int64_t k = 0; k < size[i]; k++) {
                g[begin[i] + k] = (float)(4.0 * gradient(size[i], k, t));
            }
        }
        lvni_optim_step(o, 0, w, g, rate(options, t), 0.25);
    }
    lvni_optim_destroy(o);
}

/* f32 rounds each of a step's few operations to 6e-8 of terms of about 1. */
static void expect(const char *name, const float *w, const double *want)
{
    for (int i = 0; i < TENSORS; i++) {
        for (int64_t k = 0; k < size[i]; k++, want++) {
            const double got = (double)w[begin[i] + k];
            if (!(fabs(got - *want) <= 1e-7 * LONG_STEPS * fmax(1.0, fabs(*want)))) {
                fail_msg("%s, tensor %d, element %d: %.9g, expected %.9g", name, i, (int)k, got,
                         *want);
            }
        }
        for (int64_t k = begin[i] + size[i]; k < (i < TENSORS - 1 ? begin[i + 1] : FLAT); k++) {
            assert_true(w[k] == 0.0f);
        }
    }
}

TEST(steps_are_those_of_pytorch)
{
    float w[FLAT];
    for (size_t c = 0; c < sizeof long_cases / sizeof *long_cases; c++) {
        run(&long_cases[c].options, long_cases[c].idle, w);
        expect(long_cases[c].name, w, long_cases[c].w);
    }
}

/* ---- papers ---- */

/* Algorithm 2 of Chen et al. 2023. */
static void lion_paper(const lvni_optim_options *o, bool idle, int tensor, double *w)
{
    const int64_t n = size[tensor];
    double m[64] = {0.0};
    for (int64_t k = 0; k < n; k++) {
        w[k] = start(n, k);
    }
    for (int64_t t = 1; t <= LONG_STEPS; t++) {
        for (int64_t k = 0; k < n && !is_idle(idle, tensor, t); k++) {
            const double g = gradient(n, k, t), c = o->beta1 * m[k] + (1.0 - o->beta1) * g;
            assert_true(fabs(c) > 1e-6); /* f32 has the same sign */
            w[k] -= rate(o, t) * (copysign(1.0, c) + o->weight_decay * w[k]);
            m[k] = o->beta2 * m[k] + (1.0 - o->beta2) * g;
        }
    }
}

/* Algorithm 2 of You et al. 2020 with phi(z) = z; tensors of one axis have no ratio. */
static void lamb_paper(const lvni_optim_options *o, bool idle, int tensor, double *w)
{
    const int64_t n = size[tensor];
    double m[64] = {0.0}, v[64] = {0.0}, r[64], updates = 0.0;
    for (int64_t k = 0; k < n; k++) {
        w[k] = start(n, k);
    }
    for (int64_t t = 1; t <= LONG_STEPS; t++) {
        double of_w = 0.0, of_r = 0.0;
        if (is_idle(idle, tensor, t)) {
            continue;
        }
        updates += 1.0;
        for (int64_t k = 0; k < n; k++) {
            const double g = gradient(n, k, t);
            m[k] = o->beta1 * m[k] + (1.0 - o->beta1) * g;
            v[k] = o->beta2 * v[k] + (1.0 - o->beta2) * g * g;
            r[k] = m[k] / (1.0 - pow(o->beta1, updates)) /
                       (sqrt(v[k] / (1.0 - pow(o->beta2, updates))) + o->eps) +
                   o->weight_decay * w[k];
            of_w += w[k] * w[k];
            of_r += r[k] * r[k];
        }
        const double ratio = axes[tensor] > 1 ? sqrt(of_w) / sqrt(of_r) : 1.0;
        for (int64_t k = 0; k < n; k++) {
            w[k] -= rate(o, t) * ratio * r[k];
        }
    }
}

typedef void (*paper)(const lvni_optim_options *o, bool idle, int tensor, double *w);

static void follow(const char *name, const lvni_optim_options *o, bool idle, paper algorithm)
{
    float w[FLAT];
    double want[LONG_N];
    int64_t at = 0;
    for (int i = 0; i < TENSORS; i++) {
        algorithm(o, idle, i, want + at);
        at += size[i];
    }
    run(o, idle, w);
    expect(name, w, want);
}

TEST(lion_is_that_of_its_paper)
{
    lvni_optim_options o = {.kind = LVNI_OPTIM_LION, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99};
    follow("lion", &o, false, lion_paper);
    o.weight_decay = 0.3;
    o.beta1 = 0.85;
    follow("lion, decay", &o, true, lion_paper);
}

TEST(lamb_is_that_of_its_paper)
{
    lvni_optim_options o = {
        .kind = LVNI_OPTIM_LAMB, .lr = 0.02, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6};
    follow("lamb", &o, false, lamb_paper);
    o.weight_decay = 0.1;
    o.beta1 = 0.8;
    o.beta2 = 0.95;
    follow("lamb, decay", &o, true, lamb_paper);
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}

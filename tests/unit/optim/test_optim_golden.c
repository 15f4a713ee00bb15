/* Steps, schedules and averages against numbers of PyTorch (LARS: of numpy) in double precision;
 * golden.py wrote them and defines the tensors. The parameters lie in one flat buffer with gaps, as
 * a model's do. */
#include "kernels/kernels.h"
#include "optim/optim.h"
#include "support/test.h"

#include "golden.h"

#include <math.h>
#include <stdio.h>

enum { FLAT = 80 };
static const int64_t begin[] = {0, 48, 64}, size[] = {35, 5, 6};
static const int axes[] = {2, 1, 1};

static void start(float *w)
{
    for (int i = 0; i < 3; i++) {
        for (int64_t k = 0; k < size[i]; k++) {
            w[begin[i] + k] = ((float)((29 * k + size[i]) % 48) - 23.5f) / 32.0f;
        }
    }
}

static float gradient(int64_t n, int64_t k, int64_t t)
{
    return ((float)((37 * k + 101 * t + n) % 64) - 31.5f) / 64.0f;
}

/* The steps in which a tensor has no gradient, of golden.py. */
static bool is_idle(int tensor, int64_t t)
{
    return tensor == 0 ? t == 1 || t == 5 : tensor == 1 ? t >= 2 && t <= 4 : t == 8;
}

static void run_case(const golden_steps *c, float *w)
{
    float g[FLAT] = {0};
    lvni_optim_parameter parameter[3];
    for (int i = 0; i < 3; i++) {
        parameter[i] =
            (lvni_optim_parameter){.name = "x", .begin = begin[i], .n = size[i], .ndim = axes[i]};
    }
    assert_int_equal(
        lvni_optim_rules_apply(
            &(lvni_optim_rules){.decay_of = c->no_decay_1d ? LVNI_DECAY_MATRICES : LVNI_DECAY_ALL},
            parameter, 3),
        LVN_OK);
    lvni_optim *o;
    assert_int_equal(lvni_optim_create(&c->options, FLAT, NULL, parameter, 3, &o), LVN_OK);
    start(w);
    for (int64_t t = 1; t <= GOLDEN_STEPS; t++) {
        for (int i = 0; i < 3; i++) {
            o->idle[i] = c->idle && is_idle(i, t);
            for (int64_t k = 0; k < size[i]; k++) {
                g[begin[i] + k] = 4.0f * gradient(size[i], k, t);
            }
        }
        lvni_optim_step(o, 0, w, g, c->options.lr, 0.25);
    }
    lvni_optim_destroy(o);
}

/* f32 rounds each of a step's few operations to 6e-8 of terms of about 1. */
TEST(steps)
{
    for (size_t c = 0; c < sizeof steps_cases / sizeof *steps_cases; c++) {
        float w[FLAT] = {0};
        run_case(&steps_cases[c], w);
        const double *want = steps_cases[c].w;
        for (int i = 0; i < 3; i++) {
            for (int64_t k = 0; k < size[i]; k++, want++) {
                const double got = (double)w[begin[i] + k];
                if (!(fabs(got - *want) <= 1e-7 * GOLDEN_STEPS * fmax(1.0, fabs(*want)))) {
                    fail_msg("%s, tensor %d, element %d: %.9g, expected %.9g", steps_cases[c].name,
                             i, (int)k, got, *want);
                }
            }
        }
        for (int k = 0; k < FLAT; k++) {
            const bool gap = (k >= 35 && k < 48) || (k >= 53 && k < 64) || k >= 70;
            assert_true(!gap || w[k] == 0.0f);
        }
    }
}

TEST(schedules)
{
    for (size_t c = 0; c < sizeof schedule_cases / sizeof *schedule_cases; c++) {
        for (int t = 0; t < GOLDEN_FACTORS; t++) {
            const double got = lvni_optim_schedule_factor(&schedule_cases[c].schedule, t),
                         want = schedule_cases[c].factor[t];
            if (!(fabs(got - want) <= 1e-11)) {
                fail_msg("%s, step %d: %.15g, expected %.12g", schedule_cases[c].name, t, got,
                         want);
            }
        }
    }
}

TEST(averages)
{
    for (int warm = 0; warm < 2; warm++) {
        float w[7] = {0};
        lvni_optim_ema *e;
        assert_int_equal(
            lvni_optim_ema_create(&(lvni_optim_ema_options){.decay = 0.9, .warmup = warm == 1}, w,
                                  7, &e),
            LVN_OK);
        for (int64_t t = 1; t <= GOLDEN_STEPS; t++) {
            for (int64_t k = 0; k < 7; k++) {
                w[k] = gradient(7, k, t);
            }
            lvni_optim_ema_update(e, w, t - 1, NULL);
        }
        for (int k = 0; k < 7; k++) {
            assert_true(fabs((double)e->value[k] - (warm == 1 ? average_warm : average_plain)[k]) <=
                        2e-7);
        }
        lvni_optim_ema_destroy(e);
    }
}

/* What does not move has an average that does not either. */
TEST(average_of_what_rests)
{
    float w[3] = {0.1f, -1e-20f, 3.3333333f};
    lvni_optim_ema *e;
    assert_int_equal(
        lvni_optim_ema_create(&(lvni_optim_ema_options){.decay = 0.999, .warmup = true}, w, 3, &e),
        LVN_OK);
    for (int64_t t = 0; t < 1000; t++) {
        lvni_optim_ema_update(e, w, t, NULL);
    }
    assert_memory_equal(e->value, w, sizeof w);
    lvni_optim_ema_destroy(e);
    lvni_optim_ema_destroy(NULL);
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}

/* Flat-buffer kernels of the optimizer: against the formulas of SGD and AdamW in double precision
 * over several steps, and against numbers worked out by hand. */
#include "core/math.h"
#include "core/rng.h"
#include "kernels/flat.h"
#include "support/test.h"

#include <math.h>

enum { N = 1003, STEPS = 5 };

static void fill(float *x, uint32_t key)
{
    const lvni_core_rng rng = {.key = {{key, 0}}};
    for (int i = 0; i < N; i++) {
        x[i] = (float)lvni_core_rng_normal(&rng, (uint64_t)i);
    }
}

static double clamp(double g, double limit)
{
    return limit > 0.0 ? fmin(fmax(g, -limit), limit) : g;
}

static void check_sgd(lvn_flat_sgd p, bool with_momentum)
{
    float w[N], g[N], buffer[N];
    double truth[N], b[N];
    fill(w, 1);
    for (int i = 0; i < N; i++) {
        truth[i] = (double)w[i];
        buffer[i] = NAN; /* the first step must not read it */
    }
    for (int step = 0; step < STEPS; step++) {
        fill(g, (uint32_t)(10 + step));
        p.first_step = step == 0;
        lvni_kernels_flat_sgd(w, g, with_momentum ? buffer : NULL, N, &p);
        for (int i = 0; i < N; i++) {
            double d = clamp((double)g[i] * p.grad_scale, p.clip_value) + p.weight_decay * truth[i];
            d *= p.trust != NULL ? *p.trust : 1.0;
            if (with_momentum) {
                b[i] = step == 0 ? d : p.momentum * b[i] + (1.0 - p.dampening) * d;
                d = p.nesterov ? d + p.momentum * b[i] : b[i];
            }
            truth[i] -= p.lr * d;
        }
    }
    for (int i = 0; i < N; i++) {
        assert_true(fabs((double)w[i] - truth[i]) < 2e-6 * (1.0 + fabs(truth[i])));
    }
}

TEST(sgd_follows_the_formula)
{
    check_sgd((lvn_flat_sgd){.lr = 0.1, .grad_scale = 1}, false);
    check_sgd(
        (lvn_flat_sgd){.lr = 0.1, .weight_decay = 0.01, .grad_scale = 0.125, .clip_value = 0.1},
        false);
    check_sgd((lvn_flat_sgd){.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4, .grad_scale = 1},
              true);
    check_sgd((lvn_flat_sgd){.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .grad_scale = 2}, true);
    check_sgd((lvn_flat_sgd){.lr = 0.1, .momentum = 0.9, .grad_scale = 1, .nesterov = true}, true);
    const double trust = 0.03;
    check_sgd((lvn_flat_sgd){.lr = 0.5, .weight_decay = 0.1, .grad_scale = 1, .trust = &trust},
              false);
    check_sgd(
        (lvn_flat_sgd){
            .lr = 0.5, .momentum = 0.9, .weight_decay = 0.1, .grad_scale = 1, .trust = &trust},
        true);
}

/* w 1, g 0.5, lr 0.1, momentum 0.9, decay 0.1: g' 0.6, buf 0.6, w 0.94; then g' 0.594, buf 1.134, w
 * 0.8266. */
TEST(sgd_by_hand)
{
    float w = 1.0f, buffer = 7.0f;
    const float g = 0.5f;
    lvn_flat_sgd p = {
        .lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .grad_scale = 1, .first_step = true};
    lvni_kernels_flat_sgd(&w, &g, &buffer, 1, &p);
    assert_true(fabs((double)w - 0.94) < 1e-7 && fabs((double)buffer - 0.6) < 1e-7);
    p.first_step = false;
    lvni_kernels_flat_sgd(&w, &g, &buffer, 1, &p);
    assert_true(fabs((double)w - 0.8266) < 2e-7 && fabs((double)buffer - 1.134) < 2e-7);
}

static void check_adamw(lvn_flat_adamw p)
{
    float w[N], g[N], m[N] = {0}, v[N] = {0};
    double truth[N], tm[N] = {0}, tv[N] = {0};
    fill(w, 1);
    for (int i = 0; i < N; i++) {
        truth[i] = (double)w[i];
    }
    for (int step = 1; step <= STEPS; step++) {
        fill(g, (uint32_t)(10 + step));
        p.correction1 = 1.0 - lvni_core_pow(p.beta1, step);
        p.correction2 = 1.0 - lvni_core_pow(p.beta2, step);
        lvni_kernels_flat_adamw(w, g, m, v, N, &p);
        for (int i = 0; i < N; i++) {
            double d = clamp((double)g[i] * p.grad_scale, p.clip_value);
            if (p.decoupled) {
                truth[i] -= p.lr * p.weight_decay * truth[i];
            } else {
                d += p.weight_decay * truth[i];
            }
            tm[i] = p.beta1 * tm[i] + (1.0 - p.beta1) * d;
            tv[i] = p.beta2 * tv[i] + (1.0 - p.beta2) * d * d;
            truth[i] -= p.lr / p.correction1 * tm[i] / (sqrt(tv[i]) / sqrt(p.correction2) + p.eps);
        }
    }
    for (int i = 0; i < N; i++) {
        assert_true(fabs((double)w[i] - truth[i]) < 2e-6 * (1.0 + fabs(truth[i])));
    }
}

TEST(adamw_follows_the_formula)
{
    const lvn_flat_adamw base = {.lr = 0.01,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-8,
                                 .weight_decay = 0.1,
                                 .grad_scale = 1,
                                 .decoupled = true};
    check_adamw(base);
    lvn_flat_adamw p = base;
    p.decoupled = false;
    check_adamw(p);
    p.grad_scale = 0.25;
    p.clip_value = 0.2;
    p.beta2 = 0.95;
    check_adamw(p);
}

/* First step of AdamW: m / correction1 = g, sqrt(v / correction2) = |g|, so w = w (1 - lr decay) -
 * lr sign(g): 2 (1 - 0.1 * 0.5) - 0.1 = 1.8, m 0.3, v 0.009. */
TEST(adamw_by_hand)
{
    float w = 2.0f, m = 0.0f, v = 0.0f;
    const float g = 3.0f;
    const lvn_flat_adamw p = {.lr = 0.1,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .eps = 1e-8,
                              .weight_decay = 0.5,
                              .correction1 = 1.0 - 0.9,
                              .correction2 = 1.0 - 0.999,
                              .grad_scale = 1,
                              .decoupled = true};
    lvni_kernels_flat_adamw(&w, &g, &m, &v, 1, &p);
    assert_true(fabs((double)w - 1.8) < 3e-7);
    assert_true(fabs((double)m - 0.3) < 1e-7 && fabs((double)v - 0.009) < 1e-9);
}

TEST(sums_of_squares)
{
    static float g[2 * LVNI_FLAT_BLOCK + 3];
    double partial[3];
    for (int i = 0; i < 2 * LVNI_FLAT_BLOCK + 3; i++) {
        g[i] = i < LVNI_FLAT_BLOCK ? 1.0f : 2.0f;
    }
    lvni_kernels_flat_block_sumsq(g, 2 * LVNI_FLAT_BLOCK + 3, partial);
    assert_true(partial[0] == 4096.0 && partial[1] == 16384.0 && partial[2] == 12.0);
    assert_true(lvni_kernels_flat_sum_tree(partial, 3) == 20492.0);
    assert_true(lvni_kernels_flat_sum_tree(partial, 0) == 0.0);
    g[5000] = NAN;
    g[8194] = INFINITY;
    lvni_kernels_flat_block_sumsq(g, 2 * LVNI_FLAT_BLOCK + 3, partial);
    assert_true(partial[0] == 4096.0 && isnan(partial[1]) && isinf(partial[2]));
    g[0] = 1e30f; /* its square overflows f32, but its sum of squares is finite in f64 */
    lvni_kernels_flat_block_sumsq(g, LVNI_FLAT_BLOCK, partial);
    assert_true(isfinite(partial[0]) && partial[0] > 9e59);
}

/* The tree is ((0 1) (2 3)) 4: here it gives 1 + 3, while one after the other would give 0 + 3. */
TEST(the_tree_is_the_tree)
{
    double p[] = {0x1p53, 1.0, 1.0, -0x1p53, 3.0};
    assert_true(lvni_kernels_flat_sum_tree(p, 5) == 4.0);
}

TEST(add_is_added_element_by_element)
{
    float a[N], b[N], before[N];
    fill(a, 1);
    fill(before, 1);
    fill(b, 2);
    lvni_kernels_flat_add(a, b, N);
    for (int i = 0; i < N; i++) {
        assert_true(a[i] == before[i] + b[i]);
    }
}

TEST(lerp_moves_towards_the_other)
{
    float a[N], b[N], before[N];
    fill(a, 1);
    fill(before, 1);
    fill(b, 2);
    before[5] = b[5] = a[5] = 0.1f;
    lvni_kernels_flat_lerp(a, b, 0.001f, N, NULL);
    for (int i = 0; i < N; i++) {
        assert_true(a[i] == before[i] + 0.001f * (b[i] - before[i]));
    }
    assert_true(a[5] == 0.1f);
}

/* The steps of optimizers of a backend against their formulas in double precision (check_flat.c).
 */
#include "kernels/check/flat_job.h"
#include "kernels/flat.h"

#include <math.h>
#include <string.h>

static void to_double(const lvni_check_job *j, const float *x, double *out)
{
    for (int64_t i = 0; i <= j->n; i++) {
        out[i] = (double)x[i];
    }
}

static double clamp(double g, double limit)
{
    return limit > 0.0 ? fmin(fmax(g, -limit), limit) : g;
}

/* Two steps, so that what the first leaves is read. */
static void sgd_truth(lvni_check_job *j, const lvn_flat_sgd *given, bool momentum, bool first)
{
    lvn_flat_sgd p = *given;
    (void)lvn_flat_sgd_resolve(&p);
    for (int64_t i = 0; i < j->n; i++) {
        double *w = &j->truth[0][i], *b = &j->truth[1][i];
        double d = clamp((double)j->x[1][i] * p.grad_scale, p.clip_value) + p.weight_decay * *w;
        d *= p.trust != NULL ? *p.trust : 1.0;
        if (momentum) {
            *b = first ? d : p.momentum * *b + (1.0 - p.dampening) * d;
            d = p.nesterov ? d + p.momentum * *b : *b;
        }
        *w -= p.lr * d;
    }
}

static lvn_status sgd_with(lvni_check_job *j, lvn_flat_sgd p, bool momentum,
                           lvni_check_step_kind kind)
{
    const lvn_step_block *step;
    lvni_check_draw(j, 1, j->x[0]);
    lvni_check_draw(j, 2, j->x[1]);
    to_double(j, j->x[0], j->truth[0]);
    float *w = lvni_check_put_floats(j, j->x[0], j->n),
          *g = lvni_check_put_floats(j, j->x[1], j->n),
          *m = lvni_check_put(j, NULL, (size_t)j->n * sizeof *m,
                              j->shift); /* the first step does not read it */
    const double *trust = p.trust,
                 *on_device = trust == NULL ? NULL : lvni_check_put(j, trust, sizeof *trust, 0);
    LVNI_CHECK_NEED(w);
    LVNI_CHECK_NEED(g);
    LVNI_CHECK_NEED(m);
    LVN_TRY(trust != NULL && on_device == NULL ? lvn_last_error()->code : LVN_OK);
    LVN_TRY(lvni_check_put_step(j, kind, &step));
    for (int k = 0; k < 2; k++) {
        p.first_step = k == 0;
        p.own_count = k > 0; /* the block has the first step */
        p.step = kind == LVNI_CHECK_NO_STEP ? NULL : &lvni_check_step.phase[LVNI_CHECK_PHASE];
        p.trust = trust;
        if (kind != LVNI_CHECK_UPDATES_NOT) {
            sgd_truth(j, &p, momentum, k == 0);
        }
        p.step = lvni_check_phase_of(step);
        p.trust = on_device;
        lvni_kernels_flat_sgd(w, g, momentum ? m : NULL, j->n, &p);
    }
    LVN_TRY(lvni_check_get(j, w, j->back));
    if (kind == LVNI_CHECK_UPDATES_NOT) {
        return lvni_check_expect_same(j, "w without an update", j->back, j->x[0], j->n);
    }
    LVN_TRY(lvni_check_expect(j, "w", j->back, j->truth[0], j->n, LVNI_CHECK_CLOSE));
    LVN_TRY(lvni_check_get(j, m, j->back));
    return momentum ? lvni_check_expect(j, "momentum", j->back, j->truth[1], j->n, LVNI_CHECK_CLOSE)
                    : LVN_OK;
}

lvn_status lvni_check_sgd(lvni_check_job *j)
{
    static const double trust = 0.03;
    static const struct {
        lvn_flat_sgd p;
        bool momentum;
    } settings[] = {
        {{.lr = 0.1, .grad_scale = 1}, false},
        {{.lr = 0.1, .weight_decay = 0.01, .grad_scale = 0.125, .clip_value = 0.1}, false},
        {{.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4, .grad_scale = 1}, true},
        {{.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .grad_scale = 2}, true},
        {{.lr = 0.1, .momentum = 0.9, .grad_scale = 1, .nesterov = true}, true},
        {{.lr = 0.5, .weight_decay = 0.1, .grad_scale = 1, .trust = &trust}, false},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        for (int kind = 0; kind < LVNI_CHECK_STEP_KINDS; kind++) {
            LVN_TRY(sgd_with(j, settings[i].p, settings[i].momentum, (lvni_check_step_kind)kind));
            lvni_check_free_rooms(j);
        }
    }
    return LVN_OK;
}

static void adamw_truth(lvni_check_job *j, const lvn_flat_adamw *given)
{
    lvn_flat_adamw p = *given;
    (void)lvn_flat_adamw_resolve(&p);
    for (int64_t i = 0; i < j->n; i++) {
        double *w = &j->truth[0][i], *m = &j->truth[1][i], *v = &j->truth[2][i];
        double d = clamp((double)j->x[1][i] * p.grad_scale, p.clip_value);
        d += p.decoupled ? 0.0 : p.weight_decay * *w;
        *w -= p.decoupled ? p.lr * p.weight_decay * *w : 0.0;
        *m = p.beta1 * *m + (1.0 - p.beta1) * d;
        *v = p.beta2 * *v + (1.0 - p.beta2) * d * d;
        *w -= p.lr / p.correction1 * *m / (sqrt(*v) / sqrt(p.correction2) + p.eps);
    }
}

static lvn_status adamw_with(lvni_check_job *j, lvn_flat_adamw p, lvni_check_step_kind kind)
{
    const lvn_step_block *step;
    for (int k = 0; k < 4; k++) {
        lvni_check_draw(j, (uint32_t)k, j->x[k]);
        for (int64_t i = 0; k == 3 && i <= j->n; i++) {
            j->x[3][i] = fabsf(j->x[3][i]); /* v */
        }
    }
    to_double(j, j->x[0], j->truth[0]);
    to_double(j, j->x[2], j->truth[1]);
    to_double(j, j->x[3], j->truth[2]);
    float *w = lvni_check_put_floats(j, j->x[0], j->n),
          *g = lvni_check_put_floats(j, j->x[1], j->n),
          *m = lvni_check_put_floats(j, j->x[2], j->n),
          *v = lvni_check_put_floats(j, j->x[3], j->n);
    LVNI_CHECK_NEED(w);
    LVNI_CHECK_NEED(g);
    LVNI_CHECK_NEED(m);
    LVNI_CHECK_NEED(v);
    LVN_TRY(lvni_check_put_step(j, kind, &step));
    p.step = kind == LVNI_CHECK_NO_STEP ? NULL : &lvni_check_step.phase[LVNI_CHECK_PHASE];
    adamw_truth(j, &p);
    p.step = lvni_check_phase_of(step);
    lvni_kernels_flat_adamw(w, g, m, v, j->n, &p);
    LVN_TRY(lvni_check_get(j, w, j->back));
    if (kind == LVNI_CHECK_UPDATES_NOT) {
        LVN_TRY(lvni_check_expect_same(j, "w without an update", j->back, j->x[0], j->n));
        LVN_TRY(lvni_check_get(j, m, j->back));
        LVN_TRY(lvni_check_expect_same(j, "m without an update", j->back, j->x[2], j->n));
        LVN_TRY(lvni_check_get(j, v, j->back));
        return lvni_check_expect_same(j, "v without an update", j->back, j->x[3], j->n);
    }
    LVN_TRY(lvni_check_expect(j, "w", j->back, j->truth[0], j->n, LVNI_CHECK_CLOSE));
    LVN_TRY(lvni_check_get(j, m, j->back));
    LVN_TRY(lvni_check_expect(j, "m", j->back, j->truth[1], j->n, LVNI_CHECK_CLOSE));
    LVN_TRY(lvni_check_get(j, v, j->back));
    return lvni_check_expect(j, "v", j->back, j->truth[2], j->n, LVNI_CHECK_CLOSE);
}

lvn_status lvni_check_adamw(lvni_check_job *j)
{
    const lvn_flat_adamw base = {.lr = 0.01,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-8,
                                 .weight_decay = 0.1,
                                 .correction1 = 0.19,
                                 .correction2 = 0.001999,
                                 .grad_scale = 1,
                                 .decoupled = true};
    for (int i = 0; i < 5; i++) {
        lvn_flat_adamw p = base;
        p.decoupled = i % 2 == 0;
        p.own_count = i == 1;
        p.own_betas = i == 4;
        p.clip_value = i > 1 ? 0.2 : 0.0;
        for (int kind = 0; kind < LVNI_CHECK_STEP_KINDS; kind++) {
            LVN_TRY(adamw_with(j, p, (lvni_check_step_kind)kind));
            lvni_check_free_rooms(j);
        }
    }
    return LVN_OK;
}

/* ---- the others: w, the gradient, then their state ---- */

/* Weights and gradients of both signs, state from 0.5 on. */
static void draw_all(lvni_check_job *j)
{
    for (int k = 0; k < LVNI_CHECK_ARRAYS; k++) {
        lvni_check_draw(j, (uint32_t)k, j->x[k]);
        for (int64_t i = 0; k > 1 && i <= j->n; i++) {
            j->x[k][i] = 0.5f + fabsf(j->x[k][i]);
        }
    }
}

static lvn_status put_all(lvni_check_job *j, int n, float *on_device[LVNI_CHECK_ARRAYS])
{
    for (int k = 0; k < n; k++) {
        to_double(j, j->x[k], j->truth[k]);
        on_device[k] = lvni_check_put_floats(j, j->x[k], j->n);
        LVNI_CHECK_NEED(on_device[k]);
    }
    return LVN_OK;
}

/* The gradient is never changed. */
static lvn_status expect_all(lvni_check_job *j, const char *const *name, int n,
                             float *const on_device[LVNI_CHECK_ARRAYS], lvni_check_step_kind kind)
{
    for (int k = 0; k < n; k++) {
        LVN_TRY(lvni_check_get(j, on_device[k], j->back));
        LVN_TRY(k == 1 || kind == LVNI_CHECK_UPDATES_NOT
                    ? lvni_check_expect_same(j, name[k], j->back, j->x[k], j->n)
                    : lvni_check_expect(j, name[k], j->back, j->truth[k], j->n, LVNI_CHECK_CLOSE));
    }
    return LVN_OK;
}

static const lvn_step_phase *phase_of_host(lvni_check_step_kind kind)
{
    return kind == LVNI_CHECK_NO_STEP ? NULL : &lvni_check_step.phase[LVNI_CHECK_PHASE];
}

static void rmsprop_truth(const lvni_check_job *j, lvn_flat_rmsprop p, bool centered, bool moving)
{
    (void)lvn_flat_rmsprop_resolve(&p);
    for (int64_t i = 0; i < j->n; i++) {
        double *w = &j->truth[0][i], *v = &j->truth[2][i], *mean = &j->truth[3][i],
               *momentum = &j->truth[4][i];
        const double g =
            clamp((double)j->x[1][i] * p.grad_scale, p.clip_value) + p.weight_decay * *w;
        *v = p.alpha * *v + (1.0 - p.alpha) * g * g;
        *mean = centered ? p.alpha * *mean + (1.0 - p.alpha) * g : *mean;
        const double root = sqrt(centered ? fmax(*v - *mean * *mean, 0.0) : *v);
        *momentum = moving ? p.momentum * *momentum + g / (root + p.eps) : *momentum;
        *w -= p.lr * (moving ? *momentum : g / (root + p.eps));
    }
}

static lvn_status rmsprop_with(lvni_check_job *j, lvn_flat_rmsprop p, bool centered, bool moving,
                               lvni_check_step_kind kind)
{
    static const char *const name[] = {"w", "g", "v", "mean", "momentum"};
    float *b[LVNI_CHECK_ARRAYS];
    const lvn_step_block *step;
    draw_all(j);
    for (int64_t i = 0; i <= j->n; i++) { /* its square is below v, or far above */
        j->x[3][i] = i % 5 == 2 ? 30.0f : j->x[3][i] / (1.0f + 2.0f * j->x[3][i]);
    }
    LVN_TRY(put_all(j, 5, b));
    LVN_TRY(lvni_check_put_step(j, kind, &step));
    p.step = phase_of_host(kind);
    rmsprop_truth(j, p, centered, moving);
    p.step = lvni_check_phase_of(step);
    lvni_kernels_flat_rmsprop(b[0], b[1], b[2], centered ? b[3] : NULL, moving ? b[4] : NULL, j->n,
                              &p);
    return expect_all(j, name, 5, b, kind);
}

lvn_status lvni_check_rmsprop(lvni_check_job *j)
{
    for (int i = 0; i < 4; i++) {
        const bool centered = i % 2 == 1, moving = i > 1;
        const lvn_flat_rmsprop p = {.lr = 0.01,
                                    .alpha = 0.9,
                                    .eps = centered ? 0.01 : 1e-8,
                                    .momentum = 0.8,
                                    .weight_decay = i == 0 ? 0.0 : 0.1,
                                    .grad_scale = 0.5,
                                    .clip_value = i == 2 ? 0.2 : 0.0};
        for (int kind = 0; kind < LVNI_CHECK_STEP_KINDS; kind++) {
            LVN_TRY(rmsprop_with(j, p, centered, moving, (lvni_check_step_kind)kind));
            lvni_check_free_rooms(j);
        }
    }
    return LVN_OK;
}

static void lion_truth(const lvni_check_job *j, lvn_flat_lion p)
{
    (void)lvn_flat_lion_resolve(&p);
    for (int64_t i = 0; i < j->n; i++) {
        double *w = &j->truth[0][i], *m = &j->truth[2][i];
        const double g = clamp((double)j->x[1][i] * p.grad_scale, p.clip_value),
                     c = p.beta1 * *m + (1.0 - p.beta1) * g;
        *w -= p.lr * ((c > 0.0) - (c < 0.0) + p.weight_decay * *w);
        *m = p.beta2 * *m + (1.0 - p.beta2) * g;
    }
}

static lvn_status lion_with(lvni_check_job *j, lvn_flat_lion p, lvni_check_step_kind kind)
{
    static const char *const name[] = {"w", "g", "m"};
    float *b[LVNI_CHECK_ARRAYS];
    const lvn_step_block *step;
    draw_all(j);
    for (int64_t i = 0; i <= j->n; i++) {
        /* both signs, and none; rounding decides none: 0.95 of at least 0.45 against 0.05 of at
         * most 4 */
        static const float sign[] = {0.9f, -1.1f, 0.0f};
        j->x[2][i] *= sign[i % 3];
        j->x[1][i] = i % 3 == 2 ? 0.0f : fmaxf(-4.0f, fminf(j->x[1][i], 4.0f));
    }
    LVN_TRY(put_all(j, 3, b));
    LVN_TRY(lvni_check_put_step(j, kind, &step));
    p.step = phase_of_host(kind);
    lion_truth(j, p);
    p.step = lvni_check_phase_of(step);
    lvni_kernels_flat_lion(b[0], b[1], b[2], j->n, &p);
    return expect_all(j, name, 3, b, kind);
}

lvn_status lvni_check_lion(lvni_check_job *j)
{
    for (int i = 0; i < 3; i++) {
        const lvn_flat_lion p = {.lr = 0.01,
                                 .beta1 = i == 1 ? 0.0 : 0.95,
                                 .beta2 = 0.98,
                                 .weight_decay = i == 0 ? 0.0 : 0.1,
                                 .grad_scale = 0.5,
                                 .clip_value = i == 2 ? 0.2 : 0.0};
        for (int kind = 0; kind < LVNI_CHECK_STEP_KINDS; kind++) {
            LVN_TRY(lion_with(j, p, (lvni_check_step_kind)kind));
            lvni_check_free_rooms(j);
        }
    }
    return LVN_OK;
}

/* ---- lamb ---- */

static const lvn_flat_lamb lamb_base = {.lr = 0.01,
                                        .beta1 = 0.9,
                                        .beta2 = 0.99,
                                        .eps = 1e-6,
                                        .weight_decay = 0.1,
                                        .correction1 = 0.19,
                                        .correction2 = 0.0199,
                                        .grad_scale = 0.5};

static double lamb_direction(double w, double m, double v, const lvn_flat_lamb *p)
{
    return m / p->correction1 / (sqrt(v / p->correction2) + p->eps) + p->weight_decay * w;
}

/* The truth of m and v; w stays. *sums: over blocks. */
static void moments_truth(const lvni_check_job *j, lvn_flat_lamb p, double *sums)
{
    (void)lvn_flat_lamb_resolve(&p);
    memset(sums, 0, (size_t)lvni_kernels_flat_blocks(j->n) * sizeof *sums);
    for (int64_t i = 0; i < j->n; i++) {
        double *m = &j->truth[2][i], *v = &j->truth[3][i];
        const double g = clamp((double)j->x[1][i] * p.grad_scale, p.clip_value);
        *m = p.beta1 * *m + (1.0 - p.beta1) * g;
        *v = p.beta2 * *v + (1.0 - p.beta2) * g * g;
        const double u = lamb_direction(j->truth[0][i], *m, *v, &p);
        sums[i / LVN_FLAT_BLOCK] += u * u;
    }
}

static lvn_status lamb_moments_with(lvni_check_job *j, lvn_flat_lamb p, bool summed,
                                    lvni_check_step_kind kind)
{
    enum { BLOCKS = LVNI_CHECK_MOST / LVN_FLAT_BLOCK + 1 };
    static const char *const name[] = {"w", "g", "m", "v"};
    float *b[LVNI_CHECK_ARRAYS];
    double want[BLOCKS], have[BLOCKS];
    const int64_t blocks = lvni_kernels_flat_blocks(j->n);
    const lvn_step_block *step;
    draw_all(j);
    LVN_TRY(put_all(j, 4, b));
    LVN_TRY(lvni_check_put_step(j, kind, &step));
    double *sums = lvni_check_put(j, NULL, (size_t)blocks * sizeof *sums, 0);
    LVNI_CHECK_NEED(sums);
    p.step = phase_of_host(kind);
    moments_truth(j, p, want);
    p.step = lvni_check_phase_of(step);
    lvni_kernels_flat_lamb_moments(b[0], b[1], b[2], b[3], j->n, summed ? sums : NULL, &p);
    LVN_TRY(expect_all(j, name, 4, b, kind));
    LVN_TRY(lvni_check_get(j, sums, have));
    for (int64_t i = 0; i < blocks && summed && kind != LVNI_CHECK_UPDATES_NOT; i++) {
        if (!(fabs(have[i] - want[i]) <= 1e-5 * want[i])) {
            return lvni_check_fail_at(j, "block", i, have[i], want[i]);
        }
    }
    return LVN_OK;
}

lvn_status lvni_check_lamb_moments(lvni_check_job *j)
{
    for (int i = 0; i < 3; i++) {
        lvn_flat_lamb p = lamb_base;
        p.own_count = i == 1;
        p.clip_value = i == 2 ? 0.2 : 0.0;
        for (int kind = 0; kind < LVNI_CHECK_STEP_KINDS; kind++) {
            LVN_TRY(lamb_moments_with(j, p, i < 2, (lvni_check_step_kind)kind));
            lvni_check_free_rooms(j);
        }
    }
    return LVN_OK;
}

/* b: w, then m and v, which it only reads. */
static lvn_status lamb_with(lvni_check_job *j, lvn_flat_lamb p, const double *trust,
                            lvni_check_step_kind kind)
{
    float *b[LVNI_CHECK_ARRAYS] = {0};
    const lvn_step_block *step;
    draw_all(j);
    LVN_TRY(put_all(j, 4, b));
    LVN_TRY(lvni_check_put_step(j, kind, &step));
    const double *on_device = trust == NULL ? NULL : lvni_check_put(j, trust, sizeof *trust, 0);
    LVN_TRY(trust != NULL && on_device == NULL ? lvn_last_error()->code : LVN_OK);
    lvn_flat_lamb q = p;
    q.step = phase_of_host(kind);
    (void)lvn_flat_lamb_resolve(&q);
    for (int64_t i = 0; i < j->n; i++) {
        const double u = lamb_direction(j->truth[0][i], j->truth[2][i], j->truth[3][i], &q);
        j->truth[0][i] -= q.lr * (trust != NULL ? *trust : 1.0) * u;
    }
    p.step = lvni_check_phase_of(step);
    p.trust = on_device;
    lvni_kernels_flat_lamb(b[0], b[2], b[3], j->n, &p);
    static const char *const name[] = {"w", "g"};
    LVN_TRY(expect_all(j, name, 1, b, kind));
    for (int k = 2; k < 4; k++) {
        LVN_TRY(lvni_check_get(j, b[k], j->back));
        LVN_TRY(lvni_check_expect_same(j, k == 2 ? "m" : "v", j->back, j->x[k], j->n));
    }
    return LVN_OK;
}

lvn_status lvni_check_lamb(lvni_check_job *j)
{
    static const double trust = 0.03;
    for (int i = 0; i < 3; i++) {
        lvn_flat_lamb p = lamb_base;
        p.own_count = i == 1;
        for (int kind = 0; kind < LVNI_CHECK_STEP_KINDS; kind++) {
            LVN_TRY(lamb_with(j, p, i == 2 ? NULL : &trust, (lvni_check_step_kind)kind));
            lvni_check_free_rooms(j);
        }
    }
    return LVN_OK;
}

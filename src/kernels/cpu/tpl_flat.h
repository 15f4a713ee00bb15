/* Template (included by tpl_table.h only): optimizer steps and norms over flat buffers (flat.h has
 * the formulas). */
#ifndef LEVIN_KERNELS_CPU_TPL_FLAT_H
#define LEVIN_KERNELS_CPU_TPL_FLAT_H

#include "kernels/cpu/tpl_types.h"

/* One block in f64: 16 virtual accumulators, then the same tree as for f32. Squares of floats are
 * exact in f64. */
static void block_sumsq(const float *g, int64_t n, double *sum)
{
    double lane[LANES] = {0.0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            const double v = (double)g[i + j];
            lane[j] += v * v;
        }
    }
    for (int j = 0; i + j < n; j++) {
        const double v = (double)g[i + j];
        lane[j] += v * v;
    }
    for (int half = LANES / 2; half >= 1; half /= 2) {
        for (int j = 0; j < half; j++) {
            lane[j] += lane[j + half];
        }
    }
    *sum = lane[0];
}

static inline float clamp_one(float g, float limit)
{
    const float low = g < -limit ? -limit : g; /* a NaN stays */
    return low > limit ? limit : low;
}

static inline float clip_limit(double clip_value)
{
    return clip_value > 0.0 ? (float)clip_value : __builtin_inff();
}

/* A factor of 1 changes no bit. */
static inline float trust_factor(const double *trust)
{
    return trust != NULL ? (float)*trust : 1.0f;
}

static void sgd_plain(float *restrict w, const float *restrict grad, int64_t n,
                      const lvn_flat_sgd *p)
{
    const float scale = (float)p->grad_scale, limit = clip_limit(p->clip_value);
    const float decay = (float)p->weight_decay, lr = (float)p->lr, trust = trust_factor(p->trust);
    for (int64_t i = 0; i < n; i++) {
        const float g = trust * (clamp_one(grad[i] * scale, limit) + decay * w[i]);
        w[i] = w[i] - lr * g;
    }
}

static void sgd(float *restrict w, const float *restrict grad, float *restrict momentum, int64_t n,
                const lvn_flat_sgd *p)
{
    if (momentum == NULL) {
        sgd_plain(w, grad, n, p);
        return;
    }
    const float scale = (float)p->grad_scale, limit = clip_limit(p->clip_value);
    const float decay = (float)p->weight_decay, lr = (float)p->lr, mu = (float)p->momentum;
    const float trust = trust_factor(p->trust);
    const float fresh = p->first_step ? 1.0f : (float)(1.0 - p->dampening);
    const float own = p->nesterov ? 1.0f : 0.0f, ahead = p->nesterov ? mu : 1.0f;
    if (p->first_step) { /* whatever the buffer holds, NaN too, is not momentum */
        memset(momentum, 0, (size_t)n * sizeof *momentum);
    }
    for (int64_t i = 0; i < n; i++) {
        const float g = trust * (clamp_one(grad[i] * scale, limit) + decay * w[i]);
        const float m = mu * momentum[i] + fresh * g;
        momentum[i] = m;
        w[i] = w[i] - lr * (own * g + ahead * m);
    }
}

static void adamw(float *restrict w, const float *restrict grad, float *restrict m,
                  float *restrict v, int64_t n, const lvn_flat_adamw *p)
{
    const float scale = (float)p->grad_scale, limit = clip_limit(p->clip_value);
    const float keep = p->decoupled ? (float)(1.0 - p->lr * p->weight_decay) : 1.0f;
    const float decay = p->decoupled ? 0.0f : (float)p->weight_decay;
    const float b1 = (float)p->beta1, c1 = (float)(1.0 - p->beta1), b2 = (float)p->beta2,
                c2 = (float)(1.0 - p->beta2);
    const float step = (float)(p->lr / p->correction1),
                root = (float)__builtin_sqrt(p->correction2), eps = (float)p->eps;
    for (int64_t i = 0; i < n; i++) {
        const float g = clamp_one(grad[i] * scale, limit) + decay * w[i];
        const float first = b1 * m[i] + c1 * g;
        const float second = b2 * v[i] + c2 * (g * g);
        m[i] = first;
        v[i] = second;
        w[i] = w[i] * keep - step * (first / (__builtin_sqrtf(second) / root + eps));
    }
}

static void lerp(float *restrict a, const float *restrict b, float t, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        a[i] = a[i] + t * (b[i] - a[i]);
    }
}

#endif

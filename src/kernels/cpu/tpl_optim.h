/* Template (included by tpl_table.h only): RMSprop, Lion, LAMB and Adafactor over flat buffers
 * (levin/backend.h has the formulas). */
#ifndef LEVIN_KERNELS_CPU_TPL_OPTIM_H
#define LEVIN_KERNELS_CPU_TPL_OPTIM_H

#include "kernels/cpu/tpl_flat.h"

static inline float above_zero(float x)
{
    return x < 0.0f ? 0.0f : x; /* a NaN stays */
}

/* One of the four loops: the two conditions are constants where it is called. */
static inline __attribute__((always_inline)) void
rmsprop_loop(float *restrict w, const float *restrict grad, float *restrict v, float *restrict mean,
             float *restrict momentum, int64_t n, const lvn_flat_rmsprop *p, bool centered,
             bool moving)
{
    const float scale = (float)p->grad_scale, limit = clip_limit(p->clip_value);
    const float decay = (float)p->weight_decay, lr = (float)p->lr, mu = (float)p->momentum;
    const float keep = (float)p->alpha, fresh = (float)(1.0 - p->alpha), eps = (float)p->eps;
    for (int64_t i = 0; i < n; i++) {
        const float g = clamp_one(grad[i] * scale, limit) + decay * w[i];
        const float square = keep * v[i] + fresh * (g * g);
        float spread = square, u;
        v[i] = square;
        if (centered) {
            const float m = keep * mean[i] + fresh * g;
            mean[i] = m;
            spread = above_zero(square - m * m);
        }
        u = g / (__builtin_sqrtf(spread) + eps);
        if (moving) {
            u = mu * momentum[i] + u;
            momentum[i] = u;
        }
        w[i] = w[i] - lr * u;
    }
}

static void rmsprop(float *restrict w, const float *restrict grad, float *restrict v,
                    float *restrict mean, float *restrict momentum, int64_t n,
                    const lvn_flat_rmsprop *p)
{
    if (mean != NULL && momentum != NULL) {
        rmsprop_loop(w, grad, v, mean, momentum, n, p, true, true);
    } else if (mean != NULL) {
        rmsprop_loop(w, grad, v, mean, momentum, n, p, true, false);
    } else if (momentum != NULL) {
        rmsprop_loop(w, grad, v, mean, momentum, n, p, false, true);
    } else {
        rmsprop_loop(w, grad, v, mean, momentum, n, p, false, false);
    }
}

static inline float sign_of(float x)
{
    return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; /* 0 and NaN stay */
}

static void lion(float *restrict w, const float *restrict grad, float *restrict m, int64_t n,
                 const lvn_flat_lion *p)
{
    const float scale = (float)p->grad_scale, limit = clip_limit(p->clip_value);
    const float keep = (float)(1.0 - p->lr * p->weight_decay), lr = (float)p->lr;
    const float b1 = (float)p->beta1, c1 = (float)(1.0 - p->beta1), b2 = (float)p->beta2,
                c2 = (float)(1.0 - p->beta2);
    for (int64_t i = 0; i < n; i++) {
        const float g = clamp_one(grad[i] * scale, limit);
        const float u = sign_of(b1 * m[i] + c1 * g);
        m[i] = b2 * m[i] + c2 * g;
        w[i] = w[i] * keep - lr * u;
    }
}

/* u of n weights, in f32: both calls of a step have the same ones. */
static inline void lamb_direction(const float *restrict w, const float *restrict m,
                                  const float *restrict v, float *restrict u, int64_t n,
                                  const lvn_flat_lamb *p)
{
    const float one = (float)(1.0 / p->correction1), two = (float)__builtin_sqrt(p->correction2),
                eps = (float)p->eps, decay = (float)p->weight_decay;
    for (int64_t i = 0; i < n; i++) {
        u[i] = (m[i] * one) / (__builtin_sqrtf(v[i]) / two + eps) + decay * w[i];
    }
}

static void lamb_moments(const float *restrict w, const float *restrict grad, float *restrict m,
                         float *restrict v, int64_t n, double *sum, const lvn_flat_lamb *p)
{
    const float scale = (float)p->grad_scale, limit = clip_limit(p->clip_value);
    const float b1 = (float)p->beta1, c1 = (float)(1.0 - p->beta1), b2 = (float)p->beta2,
                c2 = (float)(1.0 - p->beta2);
    float u[LVNI_FLAT_BLOCK];
    for (int64_t i = 0; i < n; i++) {
        const float g = clamp_one(grad[i] * scale, limit);
        m[i] = b1 * m[i] + c1 * g;
        v[i] = b2 * v[i] + c2 * (g * g);
    }
    if (sum != NULL) {
        lamb_direction(w, m, v, u, n, p);
        block_sumsq(u, n, sum);
    }
}

static void lamb(float *restrict w, const float *restrict m, const float *restrict v, int64_t n,
                 const lvn_flat_lamb *p)
{
    const float lr = (float)(p->trust != NULL ? p->lr * *p->trust : p->lr);
    float u[LVNI_FLAT_BLOCK];
    for (int64_t at = 0; at < n; at += LVNI_FLAT_BLOCK) {
        const int64_t some = n - at < LVNI_FLAT_BLOCK ? n - at : LVNI_FLAT_BLOCK;
        lamb_direction(w + at, m + at, v + at, u, some, p);
        for (int64_t i = 0; i < some; i++) {
            w[at + i] = w[at + i] - lr * u[i];
        }
    }
}

static void add_squares(const float *restrict x, double *restrict sum, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        sum[i] += (double)x[i] * (double)x[i];
    }
}

static void adafactor_estimate(const float *restrict row, const float *restrict col,
                               const double *restrict mean, float *restrict v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        v[i] = (float)((double)row[i] / mean[i]) * col[i];
    }
}

static void adafactor_direction(const float *restrict g, float *restrict u, int64_t n, float scale,
                                float least)
{
    for (int64_t i = 0; i < n; i++) {
        u[i] = g[i] * scale / __builtin_sqrtf(u[i] < least ? least : u[i]);
    }
}

static void adafactor_step(float *restrict w, const float *restrict u, int64_t n, float keep,
                           float rate)
{
    for (int64_t i = 0; i < n; i++) {
        w[i] = w[i] * keep - rate * u[i];
    }
}

#endif

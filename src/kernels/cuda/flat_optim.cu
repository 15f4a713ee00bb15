/* Flat buffers: steps of optimizers, by the formulas in levin/backend.h. The members of a struct
 * are what f64 settings become in f32, once per block. */
#include "flat.cuh"

namespace
{

/* ---- what all do to a gradient first ---- */

struct gradient {
    float scale, limit;
    __device__ void set(double grad_scale, double clip_value)
    {
        scale = (float)grad_scale;
        limit = clip_value > 0.0 ? (float)clip_value : INFINITY;
    }
    __device__ float of(float g) const
    {
        g *= scale;
        g = g < -limit ? -limit : g; /* a NaN stays */
        return g > limit ? limit : g;
    }
};

/* ---- sgd ---- */

template <bool MOMENTUM> struct sgd {
    enum { BUFFERS = MOMENTUM ? 3 : 2, WRITTEN = MOMENTUM ? 5 : 1, SUMMED = 0 }; /* w, g, buffer */
    typedef lvn_flat_sgd settings;
    gradient grad;
    float decay, lr, mu, trust, fresh;
    bool first, nesterov;
    __device__ bool begin(settings p)
    {
        const bool goes = lvn_flat_sgd_resolve(&p);
        grad.set(p.grad_scale, p.clip_value);
        decay = (float)p.weight_decay;
        lr = (float)p.lr;
        mu = (float)p.momentum;
        trust = p.trust != NULL ? (float)*p.trust : 1.0f; /* 1 changes no bit */
        first = p.first_step;
        fresh = first ? 1.0f : (float)(1.0 - p.dampening);
        nesterov = p.nesterov;
        return goes;
    }
    __device__ float one(float *x) const
    {
        const float g = trust * (grad.of(x[1]) + decay * x[0]);
        float step = g;
        if (MOMENTUM) { /* whatever it holds before the first step, NaN too, is not momentum */
            const float m = mu * (first ? 0.0f : x[BUFFERS - 1]) + fresh * g;
            x[BUFFERS - 1] = m;
            step = nesterov ? g + mu * m : m;
        }
        x[0] -= lr * step;
        return 0.0f;
    }
};

/* ---- adam, adamw ---- */

struct adamw {
    enum { BUFFERS = 4, WRITTEN = 13, SUMMED = 0 }; /* w, g, m, v */
    typedef lvn_flat_adamw settings;
    gradient grad;
    float keep, decay, b1, c1, b2, c2, step, root, eps;
    __device__ bool begin(settings p)
    {
        const bool goes = lvn_flat_adamw_resolve(&p);
        grad.set(p.grad_scale, p.clip_value);
        keep = p.decoupled ? (float)(1.0 - p.lr * p.weight_decay) : 1.0f;
        decay = p.decoupled ? 0.0f : (float)p.weight_decay;
        b1 = (float)p.beta1;
        c1 = (float)(1.0 - p.beta1);
        b2 = (float)p.beta2;
        c2 = (float)(1.0 - p.beta2);
        step = (float)(p.lr / p.correction1);
        root = (float)sqrt(p.correction2);
        eps = (float)p.eps;
        return goes;
    }
    __device__ float one(float x[4]) const
    {
        const float g = grad.of(x[1]) + decay * x[0];
        x[2] = b1 * x[2] + c1 * g;
        x[3] = b2 * x[3] + c2 * (g * g);
        x[0] = x[0] * keep - step * (x[2] / (sqrtf(x[3]) / root + eps));
        return 0.0f;
    }
};

/* ---- rmsprop ---- */

template <bool CENTERED, bool MOVING> struct rmsprop {
    enum { /* w, g, v, the mean, the momentum */
           BUFFERS = 3 + CENTERED + MOVING,
           WRITTEN = CENTERED && MOVING   ? 29
                     : CENTERED || MOVING ? 13
                                          : 5,
           SUMMED = 0
    };
    typedef lvn_flat_rmsprop settings;
    gradient grad;
    float decay, lr, mu, keep, fresh, eps;
    __device__ bool begin(settings p)
    {
        const bool goes = lvn_flat_rmsprop_resolve(&p);
        grad.set(p.grad_scale, p.clip_value);
        decay = (float)p.weight_decay;
        lr = (float)p.lr;
        mu = (float)p.momentum;
        keep = (float)p.alpha;
        fresh = (float)(1.0 - p.alpha);
        eps = (float)p.eps;
        return goes;
    }
    __device__ float one(float *x) const
    {
        const float g = grad.of(x[1]) + decay * x[0];
        float spread = x[2] = keep * x[2] + fresh * (g * g);
        if (CENTERED) {
            float &mean = x[BUFFERS - 1 - MOVING];
            mean = keep * mean + fresh * g;
            spread -= mean * mean;
            spread = spread < 0.0f ? 0.0f : spread; /* a NaN stays */
        }
        float u = g / (sqrtf(spread) + eps);
        if (MOVING) {
            float &momentum = x[BUFFERS - 1];
            u = momentum = mu * momentum + u;
        }
        x[0] -= lr * u;
        return 0.0f;
    }
};

/* ---- lion ---- */

struct lion {
    enum { BUFFERS = 3, WRITTEN = 5, SUMMED = 0 }; /* w, g, m */
    typedef lvn_flat_lion settings;
    gradient grad;
    float keep, lr, b1, c1, b2, c2;
    __device__ bool begin(settings p)
    {
        const bool goes = lvn_flat_lion_resolve(&p);
        grad.set(p.grad_scale, p.clip_value);
        keep = (float)(1.0 - p.lr * p.weight_decay);
        lr = (float)p.lr;
        b1 = (float)p.beta1;
        c1 = (float)(1.0 - p.beta1);
        b2 = (float)p.beta2;
        c2 = (float)(1.0 - p.beta2);
        return goes;
    }
    __device__ float one(float x[3]) const
    {
        const float g = grad.of(x[1]), c = b1 * x[2] + c1 * g;
        const float sign = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : c; /* 0 and NaN stay */
        x[2] = b2 * x[2] + c2 * g;
        x[0] = x[0] * keep - lr * sign;
        return 0.0f;
    }
};

/* ---- lamb ---- */

/* What both calls of a step share. */
struct lamb_numbers {
    float one, root, eps, decay;
    __device__ void set(const lvn_flat_lamb &p)
    {
        one = (float)(1.0 / p.correction1);
        root = (float)sqrt(p.correction2);
        eps = (float)p.eps;
        decay = (float)p.weight_decay;
    }
    __device__ float direction(float w, float m, float v) const
    {
        return (m * one) / (sqrtf(v) / root + eps) + decay * w;
    }
};

template <bool SUMS> struct moments {
    enum { BUFFERS = 4, WRITTEN = 12, SUMMED = SUMS }; /* w, g, m, v */
    typedef lvn_flat_lamb settings;
    gradient grad;
    lamb_numbers numbers;
    float b1, c1, b2, c2;
    __device__ bool begin(settings p)
    {
        const bool goes = lvn_flat_lamb_resolve(&p);
        grad.set(p.grad_scale, p.clip_value);
        numbers.set(p);
        b1 = (float)p.beta1;
        c1 = (float)(1.0 - p.beta1);
        b2 = (float)p.beta2;
        c2 = (float)(1.0 - p.beta2);
        return goes;
    }
    __device__ float one(float x[4]) const
    {
        const float g = grad.of(x[1]);
        x[2] = b1 * x[2] + c1 * g;
        x[3] = b2 * x[3] + c2 * (g * g);
        return SUMS ? numbers.direction(x[0], x[2], x[3]) : 0.0f;
    }
};

struct lamb {
    enum { BUFFERS = 3, WRITTEN = 1, SUMMED = 0 }; /* w, m, v */
    typedef lvn_flat_lamb settings;
    lamb_numbers numbers;
    float lr;
    __device__ bool begin(settings p)
    {
        const bool goes = lvn_flat_lamb_resolve(&p);
        numbers.set(p);
        lr = (float)(p.trust != NULL ? p.lr * *p.trust : p.lr);
        return goes;
    }
    __device__ float one(float x[3]) const
    {
        x[0] -= lr * numbers.direction(x[0], x[1], x[2]);
        return 0.0f;
    }
};

} // namespace

lvn_status lvnc_flat_sgd(void *stream, float *w, const float *g, float *momentum, int64_t n,
                         const lvn_flat_sgd *p)
{
    return momentum == NULL
               ? flat_run<sgd<false>>(stream, "flat.sgd", *p, {{w, flat_read(g)}}, n)
               : flat_run<sgd<true>>(stream, "flat.sgd", *p, {{w, flat_read(g), momentum}}, n);
}

lvn_status lvnc_flat_adamw(void *stream, float *w, const float *g, float *m, float *v, int64_t n,
                           const lvn_flat_adamw *p)
{
    return flat_run<adamw>(stream, "flat.adamw", *p, {{w, flat_read(g), m, v}}, n);
}

lvn_status lvnc_flat_rmsprop(void *stream, float *w, const float *g, float *v, float *mean,
                             float *momentum, int64_t n, const lvn_flat_rmsprop *p)
{
    static const char *const what = "flat.rmsprop";
    float *const grad = flat_read(g);
    if (mean != NULL && momentum != NULL) {
        return flat_run<rmsprop<true, true>>(stream, what, *p, {{w, grad, v, mean, momentum}}, n);
    }
    if (mean != NULL) {
        return flat_run<rmsprop<true, false>>(stream, what, *p, {{w, grad, v, mean}}, n);
    }
    return momentum != NULL
               ? flat_run<rmsprop<false, true>>(stream, what, *p, {{w, grad, v, momentum}}, n)
               : flat_run<rmsprop<false, false>>(stream, what, *p, {{w, grad, v}}, n);
}

lvn_status lvnc_flat_lion(void *stream, float *w, const float *g, float *m, int64_t n,
                          const lvn_flat_lion *p)
{
    return flat_run<lion>(stream, "flat.lion", *p, {{w, flat_read(g), m}}, n);
}

lvn_status lvnc_flat_lamb_moments(void *stream, const float *w, const float *g, float *m, float *v,
                                  int64_t n, double *sums, const lvn_flat_lamb *p)
{
    static const char *const what = "flat.lamb_moments";
    const flat_buffers<4> buffers = {{flat_read(w), flat_read(g), m, v}};
    return sums == NULL ? flat_run<moments<false>>(stream, what, *p, buffers, n)
                        : flat_run<moments<true>>(stream, what, *p, buffers, n, sums);
}

lvn_status lvnc_flat_lamb(void *stream, float *w, const float *m, const float *v, int64_t n,
                          const lvn_flat_lamb *p)
{
    return flat_run<lamb>(stream, "flat.lamb", *p, {{w, flat_read(m), flat_read(v)}}, n);
}

/* ---- the trust ratio of a tensor ---- */

static __global__ void __launch_bounds__(1024, 1)
    find_trust(double *trust, double *of_w, double *of_g, int64_t n, lvn_flat_trust p)
{
    const double w = flat_sum_pairs(of_w, n), g = flat_sum_pairs(of_g, n);
    if (threadIdx.x == 0) {
        *trust = lvn_flat_trust_ratio(sqrt(w), sqrt(g), &p);
    }
}

lvn_status lvnc_flat_trust(void *stream, double *trust, double *of_w, double *of_g, int64_t n,
                           const lvn_flat_trust *p)
{
    return launch(stream, "flat.trust", find_trust, 1, flat_adders(n), 0, trust, of_w, of_g, n, *p);
}

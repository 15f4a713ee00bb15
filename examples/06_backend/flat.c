/* Flat buffers of the example backend: parameters, gradients and optimizer state, all f32, by the
 * formulas in levin/backend.h. */
#include "example.h"

#include <math.h>
#include <string.h>

/* Neighbours first, then sums of two, and so on; an odd last one moves up alone. */
static double sum_pairs(double *sums, int64_t n)
{
    for (int64_t apart = 1; apart < n; apart *= 2) {
        for (int64_t i = 0; i + apart < n; i += 2 * apart) {
            sums[i] += sums[i + apart];
        }
    }
    return n > 0 ? sums[0] : 0.0;
}

static lvn_status add(void *stream, float *a, const float *b, int64_t n)
{
    if (example_begin(stream)) {
        float *to = example_mine(a);
        const float *from = example_mine(b);
        for (int64_t i = 0; i < n; i++) {
            to[i] += from[i];
        }
    }
    return example_end(stream, "add", LVN_OK);
}

/* Whether the phase of the step updates anything, read when the stream gets there. */
static bool updates(const lvn_step_phase *step)
{
    return step == NULL || ((const lvn_step_phase *)example_mine(step))->updated != 0;
}

static lvn_status lerp(void *stream, float *a, const float *b, float t, int64_t n,
                       const lvn_step_average *step_)
{
    if (example_begin(stream)) {
        float *to = example_mine(a);
        const float *from = example_mine(b);
        const lvn_step_average *step = example_mine(step_);
        t = step == NULL ? t : (float)step->factor;
        for (int64_t i = 0; i < n && (step == NULL || step->updated); i++) {
            to[i] = step != NULL && step->copies ? from[i] : to[i] + t * (from[i] - to[i]);
        }
    }
    return example_end(stream, "lerp", LVN_OK);
}

static lvn_status block_sumsq(void *stream, const float *g, int64_t n, double *partial)
{
    if (example_begin(stream)) {
        const float *from = example_mine(g);
        double *sum = example_mine(partial);
        memset(sum, 0, (size_t)((n + LVN_FLAT_BLOCK - 1) / LVN_FLAT_BLOCK) * sizeof *sum);
        for (int64_t i = 0; i < n; i++) {
            sum[i / LVN_FLAT_BLOCK] += (double)from[i] * (double)from[i];
        }
    }
    return example_end(stream, "block_sumsq", LVN_OK);
}

static float clamp(float g, double limit) /* 0: no limit; a NaN stays */
{
    const float most = (float)limit;
    return limit <= 0.0 || isnan(g) ? g : fmaxf(-most, fminf(most, g));
}

static lvn_status sgd(void *stream, float *w_, const float *g_, float *momentum_, int64_t n,
                      const lvn_flat_sgd *given)
{
    lvn_flat_sgd own = *given, *p = &own;
    own.step = example_mine(given->step);
    own.trust = example_mine(given->trust);
    if (example_begin(stream) && lvn_flat_sgd_resolve(p)) {
        float *w = example_mine(w_), *momentum = example_mine(momentum_);
        const float *grad = example_mine(g_);
        const float trust = p->trust != NULL ? (float)*p->trust : 1.0f, mu = (float)p->momentum;
        for (int64_t i = 0; i < n; i++) {
            const float clamped = clamp(grad[i] * (float)p->grad_scale, p->clip_value);
            const float g = trust * (clamped + (float)p->weight_decay * w[i]);
            float step = g;
            if (momentum != NULL) {
                momentum[i] = p->first_step ? g : mu * momentum[i] + (float)(1 - p->dampening) * g;
                step = p->nesterov ? g + mu * momentum[i] : momentum[i];
            }
            w[i] -= (float)p->lr * step;
        }
    }
    return example_end(stream, "sgd", LVN_OK);
}

static lvn_status trust(void *stream, double *to, double *of_w, double *of_g, int64_t n,
                        const lvn_flat_trust *given)
{
    lvn_flat_trust own = *given;
    own.step = example_mine(given->step);
    if (example_begin(stream)) {
        *(double *)example_mine(to) = lvn_flat_trust_ratio(
            sqrt(sum_pairs(example_mine(of_w), n)), sqrt(sum_pairs(example_mine(of_g), n)), &own);
    }
    return example_end(stream, "trust", LVN_OK);
}

static lvn_status adamw(void *stream, float *w_, const float *g_, float *m_, float *v_, int64_t n,
                        const lvn_flat_adamw *given)
{
    lvn_flat_adamw own = *given, *p = &own;
    own.step = example_mine(given->step);
    if (example_begin(stream) && lvn_flat_adamw_resolve(p)) {
        float *w = example_mine(w_), *m = example_mine(m_), *v = example_mine(v_);
        const float *grad = example_mine(g_);
        const float b1 = (float)p->beta1, b2 = (float)p->beta2, decay = (float)p->weight_decay;
        for (int64_t i = 0; i < n; i++) {
            float g = clamp(grad[i] * (float)p->grad_scale, p->clip_value);
            g += p->decoupled ? 0.0f : decay * w[i];
            w[i] -= p->decoupled ? (float)p->lr * decay * w[i] : 0.0f;
            m[i] = b1 * m[i] + (1.0f - b1) * g;
            v[i] = b2 * v[i] + (1.0f - b2) * g * g;
            w[i] -= (float)(p->lr / p->correction1) * m[i] /
                    (sqrtf(v[i] / (float)p->correction2) + (float)p->eps);
        }
    }
    return example_end(stream, "adamw", LVN_OK);
}

static lvn_status rmsprop(void *stream, float *w_, const float *g_, float *v_, float *mean_,
                          float *momentum_, int64_t n, const lvn_flat_rmsprop *given)
{
    lvn_flat_rmsprop own = *given, *p = &own;
    own.step = example_mine(given->step);
    if (example_begin(stream) && lvn_flat_rmsprop_resolve(p)) {
        float *w = example_mine(w_), *v = example_mine(v_), *mean = example_mine(mean_),
              *momentum = example_mine(momentum_);
        const float *grad = example_mine(g_);
        const float keep = (float)p->alpha, decay = (float)p->weight_decay;
        for (int64_t i = 0; i < n; i++) {
            const float g = clamp(grad[i] * (float)p->grad_scale, p->clip_value) + decay * w[i];
            float square = v[i] = keep * v[i] + (1.0f - keep) * g * g;
            if (mean != NULL) {
                mean[i] = keep * mean[i] + (1.0f - keep) * g;
                square = fmaxf(square - mean[i] * mean[i], 0.0f);
            }
            float u = g / (sqrtf(square) + (float)p->eps);
            if (momentum != NULL) {
                u = momentum[i] = (float)p->momentum * momentum[i] + u;
            }
            w[i] -= (float)p->lr * u;
        }
    }
    return example_end(stream, "rmsprop", LVN_OK);
}

static lvn_status lion(void *stream, float *w_, const float *g_, float *m_, int64_t n,
                       const lvn_flat_lion *given)
{
    lvn_flat_lion own = *given, *p = &own;
    own.step = example_mine(given->step);
    if (example_begin(stream) && lvn_flat_lion_resolve(p)) {
        float *w = example_mine(w_), *m = example_mine(m_);
        const float *grad = example_mine(g_);
        const float b1 = (float)p->beta1, b2 = (float)p->beta2, decay = (float)p->weight_decay;
        for (int64_t i = 0; i < n; i++) {
            const float g = clamp(grad[i] * (float)p->grad_scale, p->clip_value),
                        c = b1 * m[i] + (1.0f - b1) * g;
            w[i] -= (float)p->lr * ((float)((c > 0.0f) - (c < 0.0f)) + decay * w[i]);
            m[i] = b2 * m[i] + (1.0f - b2) * g;
        }
    }
    return example_end(stream, "lion", LVN_OK);
}

static float lamb_direction(float w, float m, float v, const lvn_flat_lamb *p)
{
    return m / (float)p->correction1 / (sqrtf(v / (float)p->correction2) + (float)p->eps) +
           (float)p->weight_decay * w;
}

static lvn_status lamb_moments(void *stream, const float *w_, const float *g_, float *m_, float *v_,
                               int64_t n, double *sums_, const lvn_flat_lamb *given)
{
    lvn_flat_lamb own = *given, *p = &own;
    own.step = example_mine(given->step);
    if (example_begin(stream) && lvn_flat_lamb_resolve(p)) {
        float *m = example_mine(m_), *v = example_mine(v_);
        const float *w = example_mine(w_), *grad = example_mine(g_);
        double *sums = example_mine(sums_);
        const float b1 = (float)p->beta1, b2 = (float)p->beta2;
        for (int64_t i = 0; i < n; i++) {
            const float g = clamp(grad[i] * (float)p->grad_scale, p->clip_value);
            m[i] = b1 * m[i] + (1.0f - b1) * g;
            v[i] = b2 * v[i] + (1.0f - b2) * (g * g);
            if (sums != NULL) {
                const double u = (double)lamb_direction(w[i], m[i], v[i], p);
                double *sum = &sums[i / LVN_FLAT_BLOCK];
                *sum = u * u + (i % LVN_FLAT_BLOCK == 0 ? 0.0 : *sum);
            }
        }
    }
    return example_end(stream, "lamb_moments", LVN_OK);
}

static lvn_status lamb(void *stream, float *w_, const float *m_, const float *v_, int64_t n,
                       const lvn_flat_lamb *given)
{
    lvn_flat_lamb own = *given, *p = &own;
    own.step = example_mine(given->step);
    own.trust = example_mine(given->trust);
    if (example_begin(stream) && lvn_flat_lamb_resolve(p)) {
        float *w = example_mine(w_);
        const float *m = example_mine(m_), *v = example_mine(v_);
        const float lr = (float)(p->trust != NULL ? p->lr * *p->trust : p->lr);
        for (int64_t i = 0; i < n; i++) {
            w[i] -= lr * lamb_direction(w[i], m[i], v[i], p);
        }
    }
    return example_end(stream, "lamb", LVN_OK);
}

/* A share of the squares of a tensor goes into the averages of its rows and columns; mean: of the
 * rows of each matrix. */
static void adafactor_averages(const float *g, float *row_var, float *col_var, double *mean,
                               int64_t n, const lvn_flat_adafactor *p)
{
    const double share = pow(p->t, p->beta2_decay), scale = p->grad_scale * p->grad_scale;
    for (int64_t i = 0; i < p->outer * p->inner; i++) {
        mean[i] = 0.0;
    }
    for (int64_t i = 0; i < n / p->cols; i++) { /* entry i of row_var */
        const int64_t k = i % p->inner, row = i / p->inner;
        double sum = 0.0;
        for (int64_t c = 0; c < p->cols; c++) {
            const double x = (double)g[(row * p->cols + c) * p->inner + k];
            sum += x * x;
        }
        row_var[i] += (float)(share * (sum * scale / (double)p->cols - (double)row_var[i]));
        mean[row / p->rows * p->inner + k] += (double)row_var[i] / (double)p->rows;
    }
    for (int64_t i = 0; i < n / p->rows; i++) { /* entry i of col_var */
        const int64_t apart = p->cols * p->inner, first = i / apart * p->rows * apart + i % apart;
        double sum = 0.0;
        for (int64_t r = 0; r < p->rows; r++) {
            sum += (double)g[first + r * apart] * (double)g[first + r * apart];
        }
        col_var[i] += (float)(share * (sum * scale / (double)p->rows - (double)col_var[i]));
    }
}

/* Of element i. */
static double adafactor_direction(double g, const float *row_var, const float *col_var,
                                  const double *mean, int64_t i, const lvn_flat_adafactor *p)
{
    double v = (double)row_var[col_var == NULL ? i : 0];
    if (col_var != NULL) {
        const int64_t k = i % p->inner, c = i / p->inner % p->cols, row = i / p->inner / p->cols,
                      outer = row / p->rows;
        v = (double)row_var[row * p->inner + k] *
            (double)col_var[(outer * p->cols + c) * p->inner + k] /
            fmax(mean[outer * p->inner + k], p->eps1);
    }
    return g * p->grad_scale / sqrt(fmax(v, (double)lvn_flat_adafactor_least(p)));
}

static lvn_status adafactor(void *stream, float *w_, const float *g_, float *row_var_,
                            float *col_var_, int64_t n, const lvn_flat_adafactor *given)
{
    lvn_flat_adafactor own = *given, *p = &own;
    own.step = example_mine(given->step);
    if (example_begin(stream) && lvn_flat_adafactor_resolve(p)) {
        float *w = example_mine(w_), *row_var = example_mine(row_var_),
              *col_var = example_mine(col_var_);
        const float *g = example_mine(g_);
        const int64_t blocks = (n + LVN_FLAT_BLOCK - 1) / LVN_FLAT_BLOCK;
        double *of_w = example_mine(p->scratch), *of_u = of_w + blocks, *mean = of_u + blocks;
        if (col_var != NULL) {
            adafactor_averages(g, row_var, col_var, mean, n, p);
        }
        memset(of_w, 0, 2 * (size_t)blocks * sizeof *of_w);
        for (int64_t i = 0; i < n; i++) {
            if (col_var == NULL) {
                const double x = (double)g[i] * p->grad_scale;
                row_var[i] += (float)(pow(p->t, p->beta2_decay) * (x * x - (double)row_var[i]));
            }
            const double u = adafactor_direction((double)g[i], row_var, col_var, mean, i, p);
            of_w[i / LVN_FLAT_BLOCK] += (double)w[i] * (double)w[i];
            of_u[i / LVN_FLAT_BLOCK] += u * u;
        }
        const double rate =
            lvn_flat_adafactor_rate(sqrt(sum_pairs(of_w, blocks)), sqrt(sum_pairs(of_u, blocks)),
                                    sqrt((double)n), sqrt(p->t), p);
        for (int64_t i = 0; i < n; i++) {
            const double u = adafactor_direction((double)g[i], row_var, col_var, mean, i, p);
            w[i] = (float)((1.0 - p->lr * p->weight_decay) * (double)w[i] - rate * u);
        }
    }
    return example_end(stream, "adafactor", LVN_OK);
}

/* precision=bf16-true: the upper half of an f32 is a bf16; ties go to the even one. */
static lvn_status round_bf16(void *stream, float *w_, int64_t n)
{
    if (example_begin(stream)) {
        float *w = example_mine(w_);
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &w[i], sizeof bits);
            bits = isnan(w[i]) ? bits : (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
            memcpy(&w[i], &bits, sizeof bits);
        }
    }
    return example_end(stream, "round_bf16", LVN_OK);
}

static lvn_status record(void *stream, float *record_, const float *value, int64_t n, float weight)
{
    if (example_begin(stream)) {
        float *to = example_mine(record_);
        const float *from = example_mine(value);
        for (int64_t i = 0; i < n; i++) {
            to[i] = weight * from[i];
        }
        to[n] = weight;
    }
    return example_end(stream, "record", LVN_OK);
}

static lvn_status apply_record(void *stream, float *buffer, const float *record_, int64_t n,
                               const lvn_flat_mean *given)
{
    lvn_flat_mean own = *given, *p = &own;
    own.step = example_mine(given->step);
    own.moved = example_mine(given->moved);
    if (example_begin(stream) && lvn_flat_mean_resolve(p)) {
        float *to = example_mine(buffer);
        const float *sum = example_mine(record_);
        const float momentum = (float)p->momentum, keep = (float)(1.0 - p->momentum);
        for (int64_t i = 0; i < n && sum[n] != 0.0f; i++) {
            to[i] = keep * to[i] + momentum * (sum[i] / sum[n]);
        }
    }
    return example_end(stream, "apply_record", LVN_OK);
}

static lvn_status append(void *stream, float *queue, float *filled, float *next,
                         const float *record_, const lvn_flat_append *p)
{
    if (example_begin(stream)) {
        const float *row = example_mine(record_),
                    *count = row + p->slots * p->slot_rows * p->width + 1;
        float *at = example_mine(next), *to = example_mine(queue), *there = example_mine(filled);
        for (int64_t i = 0; i < p->slots && updates(p->step); i++) {
            for (int64_t k = 0; k < (int64_t)count[i]; k++) {
                const int64_t place = (int64_t)*at;
                memcpy(to + place * p->width, row + (i * p->slot_rows + k) * p->width,
                       (size_t)p->width * sizeof *to);
                there[place] = 1.0f;
                *at = (float)((place + 1) % p->rows);
            }
        }
    }
    return example_end(stream, "append", LVN_OK);
}

static lvn_status number(void *stream, double *slot, const void *value, lvn_dtype dtype)
{
    lvn_status s = LVN_OK;
    if (example_begin(stream)) {
        const void *from = example_mine(value);
        double *to = example_mine(slot);
        if (dtype == LVN_F32) {
            *to = (double)*(const float *)from;
        } else {
            s = lvn_error_set(LVN_ERR_UNSUPPORTED, __FILE__, __LINE__,
                              "the backend example has no numbers of type %s",
                              lvn_dtype_name(dtype));
        }
    }
    return example_end(stream, "number", s);
}

static lvn_status seed(void *stream, void *value, lvn_dtype dtype, double number_,
                       const double *weight, const double *factor)
{
    lvn_status s = LVN_OK;
    if (example_begin(stream)) {
        if (dtype == LVN_F32) {
            number_ *= weight != NULL ? *(const double *)example_mine(weight) : 1.0;
            number_ *= factor != NULL ? *(const double *)example_mine(factor) : 1.0;
            *(float *)example_mine(value) = (float)number_;
        } else {
            s = lvn_error_set(LVN_ERR_UNSUPPORTED, __FILE__, __LINE__,
                              "the backend example begins no backward pass in %s",
                              lvn_dtype_name(dtype));
        }
    }
    return example_end(stream, "seed", s);
}

static lvn_status decide(void *stream, lvn_step_block *block, double *sums, int64_t n,
                         const double *losses, const lvn_step_decision *decision)
{
    if (example_begin(stream)) {
        lvn_step_block *b = example_mine(block);
        const double t = lvn_step_t(b, decision->phase);
        lvn_step_decision d = *decision;
        d.weights = d.weights == NULL ? NULL : example_mine(d.weights);
        lvn_step_decide(b, sqrt(sum_pairs(example_mine(sums), n)), pow(lvn_step_beta1(b, &d), t),
                        pow(d.beta2, t), example_mine(losses), &d);
    }
    return example_end(stream, "decide", LVN_OK);
}

static lvn_status finish(void *stream, lvn_step_block *block)
{
    if (example_begin(stream)) {
        lvn_step_finish(example_mine(block));
    }
    return example_end(stream, "finish", LVN_OK);
}

const lvn_backend_flat example_flat = {.add = add,
                                       .lerp = lerp,
                                       .block_sumsq = block_sumsq,
                                       .sgd = sgd,
                                       .trust = trust,
                                       .adamw = adamw,
                                       .rmsprop = rmsprop,
                                       .lion = lion,
                                       .lamb_moments = lamb_moments,
                                       .lamb = lamb,
                                       .adafactor = adafactor,
                                       .round_bf16 = round_bf16,
                                       .record = record,
                                       .apply_record = apply_record,
                                       .append = append,
                                       .number = number,
                                       .seed = seed,
                                       .decide = decide,
                                       .finish = finish};

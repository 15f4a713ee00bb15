/* The step block, which kernels of flat buffers and of averages read, and the settings of steps of
 * optimizers. For backends; marked experimental with levin/backend.h, which includes it and has
 * the functions. */
#ifndef LEVIN_BACKEND_STEP_H
#define LEVIN_BACKEND_STEP_H

#include <levin/backend_ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the step block: what changes from step to step ----
 * It lies in memory of the device. The host writes what it knows of a step with one upload before
 * the step's first kernel; what the step finds out stays there, and the host looks one step later.
 * Kernels read it when the stream gets to them, so their arguments are the same in all steps whose
 * micro-batches are full, and such a step can be captured and replayed. Arguments by value that may
 * differ: weights (of a step with missing samples, or whose losses have weights of their own), the
 * counts of parameters that missed updates, and uploads of what a module draws on the host (mixup,
 * lvn_random_uniform). */

enum { LVN_STEP_PHASES = 8, LVN_STEP_RATES = 2, LVN_STEP_FOLLOWS = 8, LVN_STEP_NUMBERS = 16 };

typedef struct lvn_step_given {
    int64_t step; /* its number, from 0; random numbers read it (lvn_philox) */
    /* 16-mixed: skipped steps, as far as the host knows. Schedules count without them: the device
     * takes number i of what follows when there are i more by now */
    int64_t skipped;
    double lr[LVN_STEP_PHASES][LVN_STEP_RATES];       /* without the factors of parameters */
    double decay[LVN_STEP_PHASES][LVN_STEP_RATES];    /* a factor on all weight decay */
    double momentum[LVN_STEP_PHASES][LVN_STEP_RATES]; /* as in lvn_step_phase */
    double number[LVN_STEP_NUMBERS];                  /* of the model (lvn_builder_number) */
} lvn_step_given;

typedef struct lvn_step_phase {
    double grad_norm;  /* before clipping */
    double grad_scale; /* what gradients are multiplied by, clipping included */
    double lr;         /* of the step, without the factors of parameters */
    double decay;      /* a factor on the weight decay of the arguments */
    double momentum;   /* in place of momentum or beta1 of the arguments; 0: it is theirs */
    double correction1, correction2; /* 1 - beta^t, t from 1: the updates that were done */
    double t;                        /* that number */
    int32_t updated;                 /* 0: nothing of the phase is updated */
    int32_t first;                   /* it never was before */
    int32_t clipped;
    int32_t skipped; /* 16-mixed: the gradient overflowed */
} lvn_step_phase;

/* How the average of weights follows the step. */
typedef struct lvn_step_average {
    double factor;   /* of the way to the weights */
    int32_t copies;  /* it becomes the weights */
    int32_t updated; /* 0: it stays as it is */
} lvn_step_average;

/* The loss scale of 16-mixed: a loss that is not finite is an overflow of its step. */
typedef struct lvn_step_scaler {
    double scale;
    double largest;     /* samples of the largest micro-batch */
    double loss_factor; /* scale / largest: losses go into the backward pass times it; off: 1 */
    int64_t clean;      /* steps without overflow since the scale last moved */
    int64_t skipped;    /* steps of the run in which nothing was updated */
    int32_t in_a_row;   /* steps with an overflow since the last one without */
    int32_t on;
} lvn_step_scaler;

enum { LVN_SCALER_GROWTH = 2000, LVN_SCALER_MOST = 50 };
#define LVN_SCALER_LEAST 0x1p-14

/* After a step. overflow: of a phase, which was skipped; skipped: so were all. False: the last of
 * LVN_SCALER_MOST steps with an overflow in a row. */
LVN_ON_DEVICE bool lvn_step_scaler_follow(lvn_step_scaler *s, bool overflow, bool skipped)
{
    if (overflow) {
        s->clean = 0;
        s->skipped += skipped ? 1 : 0;
        s->in_a_row++;
        s->scale = s->scale * 0.5 > LVN_SCALER_LEAST ? s->scale * 0.5 : LVN_SCALER_LEAST;
    } else {
        s->in_a_row = 0;
        if (++s->clean == LVN_SCALER_GROWTH) {
            const float next = (float)(2.0 * s->scale);
            s->clean = 0;
            s->scale *= next - next == 0.0f ? 2.0 : 1.0;
        }
    }
    s->loss_factor = s->scale / s->largest;
    return !overflow || s->in_a_row != LVN_SCALER_MOST;
}

typedef enum lvn_step_failure {
    LVN_STEP_FINE,
    LVN_STEP_LOSS,     /* the loss of a micro-batch is not finite */
    LVN_STEP_WEIGHT,   /* the weight of a micro-batch is below 0 or not finite */
    LVN_STEP_GRADIENT, /* the norm of the gradient is not finite */
    LVN_STEP_OVERFLOWS /* as lvn_step_scaler_follow has it */
} lvn_step_failure;

typedef struct lvn_step_block {
    /* Of one step: zeros in the upload, except for what is given. */
    lvn_step_given given;
    lvn_step_phase phase[LVN_STEP_PHASES];
    lvn_step_average average;
    /* What weights that follow others do (a teacher), by rule: the factor is given, and whether
     * they move is what the last phase decided. */
    lvn_step_average follow[LVN_STEP_FOLLOWS];
    lvn_step_average renewed; /* values that are replaced, if the last phase updated */
    /* Of the run. After the first failure no phase is updated any more, and this stays. */
    int32_t failed, failed_phase;
    int64_t failed_step, failed_micro_batch;
    double failed_value;
    /* The host writes both before the first step of a process. */
    int64_t updates[LVN_STEP_PHASES]; /* that were done */
    lvn_step_scaler scaler;
    int64_t finished; /* steps whose commands all ran, written after the last of them */
} lvn_step_block;

typedef struct lvn_step_decision {
    int phase;
    int64_t micro_batch; /* number of the first loss */
    int n_losses;        /* empty micro-batches have a 0 */
    double divisor;      /* of the summed gradient, with the loss factor: the weight of the step */
    /* Where modules count it on the device: n_losses weights in its memory, of which the weight of
     * the step is the sum. NULL: the number above */
    const double *weights;
    double clip;         /* largest norm; 0: none */
    double beta1, beta2; /* adam, adamw; else 0 */
    double ema_decay;    /* of the average of weights; 0: there is none */
    bool ema_warmup;     /* it is at most (1 + t) / (10 + t) after t updates */
} lvn_step_decision;

/* t of the phase's next update, from 1. */
LVN_ON_DEVICE double lvn_step_t(const lvn_step_block *block, int phase)
{
    return (double)(block->updates[phase] + 1);
}

/* After each phase: the last one counts. Phases that were skipped do not hold the others back. */
LVN_ON_DEVICE void lvn_step_average_after(lvn_step_block *block, const lvn_step_decision *d)
{
    lvn_step_average *a = &block->average;
    int64_t most = 0;
    for (int i = 0; i < LVN_STEP_PHASES; i++) {
        most = block->updates[i] > most ? block->updates[i] : most;
    }
    const double t = (double)(most - 1), limit = d->ema_warmup ? (1.0 + t) / (10.0 + t) : 1.0;
    a->updated = block->failed == LVN_STEP_FINE && (a->updated || block->phase[d->phase].updated);
    a->copies = most == 1;
    a->factor = 1.0 - (d->ema_decay < limit ? d->ema_decay : limit);
}

/* Which of the given rates. */
LVN_ON_DEVICE int lvn_step_rate(const lvn_step_block *block)
{
    const int64_t more = block->scaler.skipped - block->given.skipped;
    return more < 0 ? 0 : more < LVN_STEP_RATES ? (int)more : LVN_STEP_RATES - 1;
}

/* The weight of the step: of n micro-batches in the order in which their gradients are added,
 * neighbours first, an odd last one moves up alone. */
LVN_ON_DEVICE double lvn_step_weight(const lvn_step_decision *d)
{
    double part[32];
    int n = 0;
    for (int i = 0; d->weights != NULL && i < d->n_losses; i++) {
        part[n++] = d->weights[i];
        for (int pairs = i + 1; pairs % 2 == 0; pairs /= 2) {
            n--;
            part[n - 1] += part[n];
        }
    }
    for (; n > 1; n--) {
        part[n - 2] += part[n - 1];
    }
    return n == 1 ? part[0] : d->divisor;
}

/* x - x is not 0 where x is not finite. */
LVN_ON_DEVICE void lvn_step_fail(lvn_step_block *block, const lvn_step_decision *d,
                                 lvn_step_failure what, double value, int64_t micro_batch)
{
    block->failed = (int32_t)what;
    block->failed_value = value;
    block->failed_micro_batch = micro_batch;
    block->failed_step = block->given.step;
    block->failed_phase = d->phase;
}

/* Weights, and the losses of what has weight. */
LVN_ON_DEVICE void lvn_step_check(lvn_step_block *block, const double *losses,
                                  const lvn_step_decision *d)
{
    for (int i = 0; i < d->n_losses && block->failed == LVN_STEP_FINE; i++) {
        const double weight = d->weights != NULL ? d->weights[i] : 1.0;
        if (!(weight >= 0.0) || weight - weight != 0.0) {
            lvn_step_fail(block, d, LVN_STEP_WEIGHT, weight, d->micro_batch + i);
        } else if (!block->scaler.on && weight > 0.0 && losses[i] - losses[i] != 0.0) {
            lvn_step_fail(block, d, LVN_STEP_LOSS, losses[i], d->micro_batch + i);
        }
    }
}

/* beta1 of the phase's update: a schedule may move it. */
LVN_ON_DEVICE double lvn_step_beta1(const lvn_step_block *block, const lvn_step_decision *d)
{
    const double moved = block->given.momentum[d->phase][lvn_step_rate(block)];
    return d->beta1 > 0.0 && moved > 0.0 ? moved : d->beta1;
}

/* What `decide` computes, once on one thread of the device: `root` is the square root of the sum of
 * squares of the gradient, power1 and power2 are lvn_step_beta1 and beta2 to the power lvn_step_t,
 * losses are n_losses numbers. A phase without weight updates nothing. */
LVN_ON_DEVICE void lvn_step_decide(lvn_step_block *block, double root, double power1, double power2,
                                   const double *losses, const lvn_step_decision *d)
{
    lvn_step_phase *p = &block->phase[d->phase];
    const double weight = lvn_step_weight(d), divisor = weight * block->scaler.loss_factor,
                 norm = weight != 0.0 ? root / divisor : 0.0;
    const bool scaled = block->scaler.on != 0;
    lvn_step_check(block, losses, d);
    if (block->failed == LVN_STEP_FINE && !scaled && norm - norm != 0.0) {
        lvn_step_fail(block, d, LVN_STEP_GRADIENT, norm, 0);
    }
    p->grad_norm = norm;
    p->lr = block->given.lr[d->phase][lvn_step_rate(block)];
    p->decay = block->given.decay[d->phase][lvn_step_rate(block)];
    p->momentum = block->given.momentum[d->phase][lvn_step_rate(block)];
    p->correction1 = 1.0 - power1;
    p->correction2 = 1.0 - power2;
    p->t = lvn_step_t(block, d->phase);
    p->skipped = block->failed == LVN_STEP_FINE && scaled && norm - norm != 0.0;
    p->updated = block->failed == LVN_STEP_FINE && !p->skipped && weight != 0.0;
    p->first = block->updates[d->phase] == 0;
    p->clipped = p->updated && d->clip > 0.0 && norm > d->clip;
    p->grad_scale = weight != 0.0 ? 1.0 / divisor : 0.0;
    if (p->clipped) {
        p->grad_scale *= d->clip / (norm + 1e-6);
    }
    block->updates[d->phase] += p->updated;
    for (int i = 0; i < LVN_STEP_FOLLOWS; i++) {
        block->follow[i].updated = p->updated;
    }
    block->renewed.copies = 1;
    block->renewed.updated = p->updated;
    lvn_step_average_after(block, d);
}

/* What `finish` computes. */
LVN_ON_DEVICE void lvn_step_finish(lvn_step_block *block)
{
    bool overflow = false, updated = false;
    for (int i = 0; i < LVN_STEP_PHASES; i++) {
        overflow = overflow || block->phase[i].skipped;
        updated = updated || block->phase[i].updated;
    }
    if (block->scaler.on && block->failed == LVN_STEP_FINE && (overflow || updated) &&
        !lvn_step_scaler_follow(&block->scaler, overflow, !updated)) {
        block->failed = LVN_STEP_OVERFLOWS;
        block->failed_step = block->given.step;
    }
    block->finished = block->given.step + 1;
}

/* ---- settings of steps over flat buffers: arguments of functions of lvn_backend_flat ---- */

/* What every optimizer does to a gradient first: g = clamp(g * grad_scale, -clip_value,
 * clip_value). */
typedef struct lvn_flat_sgd {
    double lr, momentum, dampening, weight_decay;
    double grad_scale; /* 1 / (loss scale * weight of the step) times the clipping factor */
    double clip_value; /* 0: no clamp */
    /* in memory of the device: factor on gradient and decay (LARS); NULL: none */
    const double *trust;
    bool nesterov;
    bool first_step; /* the momentum buffer holds nothing yet: it becomes the gradient */
    /* in memory of the device; NULL: the numbers above. lvn_flat_sgd_resolve reads it there */
    const lvn_step_phase *step;
    /* the parameters missed updates (they had no gradient): first_step is theirs, and not the
     * step's */
    bool own_count;
} lvn_flat_sgd;

/* In the kernel: with a step its learning rate and decay (lr and weight_decay are factors on them),
 * momentum where it moves, grad_scale and first_step.
 * False: nothing is updated. */
LVN_ON_DEVICE bool lvn_flat_sgd_resolve(lvn_flat_sgd *p)
{
    if (p->step == NULL) {
        return true;
    }
    p->lr *= p->step->lr;
    p->weight_decay *= p->step->decay;
    p->momentum = p->step->momentum > 0.0 ? p->step->momentum : p->momentum;
    p->grad_scale = p->step->grad_scale;
    p->first_step = p->own_count ? p->first_step : p->step->first != 0;
    return p->step->updated != 0;
}

/* LARS: the trust ratio of a tensor (You, Gitman & Ginsburg 2017), as implementations for PyTorch
 * have it: coefficient |w| / (|g| + weight_decay |w| + eps). */
typedef struct lvn_flat_trust {
    double coefficient, weight_decay;
    double grad_scale;
    const lvn_step_phase
        *step; /* in memory of the device: its grad_scale and decay; NULL: the numbers above */
    double eps;
    /* lars: a tensor without decay in this step has no ratio, and one without a gradient no decay;
     * else, as of lamb, whose step has decay in it, the ratio is 1 only where a norm is 0 */
    bool of_decayed;
} lvn_flat_trust;

/* What `trust` computes from the square roots of both sums. Of lars a tensor without decay or
 * without a norm keeps its gradient, and no decay joins it: 1, as decay of a tensor of zeros is 0,
 * and for a gradient of zeros 0, which leaves out decay. Times a gradient near 0 it must stay a
 * number. */
LVN_ON_DEVICE double lvn_flat_trust_ratio(double of_w, double root_g, const lvn_flat_trust *p)
{
    const double of_g = root_g * (p->step != NULL ? p->step->grad_scale : p->grad_scale);
    const double decay = p->weight_decay * (p->step != NULL ? p->step->decay : 1.0);
    if (!(of_w > 0.0 && of_g > 0.0) || (p->of_decayed && !(decay > 0.0))) {
        return p->of_decayed && decay > 0.0 && of_g == 0.0 ? 0.0 : 1.0; /* NaN stays in g */
    }
    const double trust = p->coefficient * of_w / (of_g + decay * of_w + p->eps);
    return trust < 1e30 ? trust : 1e30;
}

typedef struct lvn_flat_adamw {
    double lr, beta1, beta2, eps, weight_decay;
    double correction1, correction2; /* 1 - beta^t, t from 1 */
    double grad_scale, clip_value;   /* as above */
    /* true: AdamW (w shrinks by lr * weight_decay); false: Adam (decay joins g) */
    bool decoupled;
    const lvn_step_phase *step; /* as above */
    bool own_count;             /* as above: the corrections are these, and not the step's */
    bool own_betas; /* of a group: the corrections are of these betas and the step's t */
} lvn_flat_adamw;

/* base^t, of a whole t. */
LVN_ON_DEVICE double lvn_step_power(double base, double t)
{
    double power = 1.0;
    for (int64_t n = (int64_t)t; n > 0; n /= 2) {
        power *= n % 2 == 1 ? base : 1.0;
        base *= base;
    }
    return power;
}

LVN_ON_DEVICE bool lvn_flat_adamw_resolve(lvn_flat_adamw *p)
{
    if (p->step == NULL) {
        return true;
    }
    p->lr *= p->step->lr;
    p->weight_decay *= p->step->decay;
    p->beta1 = p->step->momentum > 0.0 ? p->step->momentum : p->beta1;
    p->grad_scale = p->step->grad_scale;
    if (!p->own_count) {
        p->correction1 =
            p->own_betas ? 1.0 - lvn_step_power(p->beta1, p->step->t) : p->step->correction1;
        p->correction2 =
            p->own_betas ? 1.0 - lvn_step_power(p->beta2, p->step->t) : p->step->correction2;
    }
    return p->step->updated != 0;
}

/* LAMB */
typedef struct lvn_flat_lamb {
    double lr, beta1, beta2, eps, weight_decay;
    double correction1, correction2; /* as above */
    double grad_scale, clip_value;   /* as above */
    /* in memory of the device: the tensor's ratio; NULL: 1. Not read by lamb_moments */
    const double *trust;
    const lvn_step_phase *step; /* as above */
    bool own_count;             /* as above: of the corrections */
    bool own_betas;             /* as above */
} lvn_flat_lamb;

LVN_ON_DEVICE bool lvn_flat_lamb_resolve(lvn_flat_lamb *p)
{
    if (p->step == NULL) {
        return true;
    }
    p->lr *= p->step->lr;
    p->weight_decay *= p->step->decay;
    p->beta1 = p->step->momentum > 0.0 ? p->step->momentum : p->beta1;
    p->grad_scale = p->step->grad_scale;
    if (!p->own_count) {
        p->correction1 =
            p->own_betas ? 1.0 - lvn_step_power(p->beta1, p->step->t) : p->step->correction1;
        p->correction2 =
            p->own_betas ? 1.0 - lvn_step_power(p->beta2, p->step->t) : p->step->correction2;
    }
    return p->step->updated != 0;
}

typedef struct lvn_flat_rmsprop {
    double lr, alpha, eps, momentum, weight_decay;
    double grad_scale, clip_value; /* as above */
    const lvn_step_phase *step;    /* as above */
} lvn_flat_rmsprop;

LVN_ON_DEVICE bool lvn_flat_rmsprop_resolve(lvn_flat_rmsprop *p)
{
    if (p->step == NULL) {
        return true;
    }
    p->lr *= p->step->lr;
    p->weight_decay *= p->step->decay;
    p->momentum = p->step->momentum > 0.0 ? p->step->momentum : p->momentum;
    p->grad_scale = p->step->grad_scale;
    return p->step->updated != 0;
}

typedef struct lvn_flat_lion {
    double lr, beta1, beta2, weight_decay;
    double grad_scale, clip_value; /* as above */
    const lvn_step_phase *step;    /* as above */
} lvn_flat_lion;

LVN_ON_DEVICE bool lvn_flat_lion_resolve(lvn_flat_lion *p)
{
    if (p->step == NULL) {
        return true;
    }
    p->lr *= p->step->lr;
    p->weight_decay *= p->step->decay;
    p->beta1 = p->step->momentum > 0.0 ? p->step->momentum : p->beta1;
    p->grad_scale = p->step->grad_scale;
    return p->step->updated != 0;
}

/* Adafactor, of one tensor */
typedef struct lvn_flat_adafactor {
    double lr, beta2_decay, eps1, eps2, d, weight_decay;
    double grad_scale; /* as above; g is not clamped */
    double t;          /* number of the update, from 1 */
    /* element (i, r, c, k) is entry (r, c) of matrix (i, k); their product is n. Of one axis:
     * unused */
    int64_t outer, rows, cols, inner;
    /* in memory of the device: 2 ceil(n / LVN_FLAT_BLOCK) + outer * inner numbers for the call's
     * own use */
    double *scratch;
    const lvn_step_phase *step; /* as above */
    bool own_count;             /* as above: of t */
} lvn_flat_adafactor;

LVN_ON_DEVICE bool lvn_flat_adafactor_resolve(lvn_flat_adafactor *p)
{
    if (p->step == NULL) {
        return true;
    }
    p->lr *= p->step->lr;
    p->weight_decay *= p->step->decay;
    p->grad_scale = p->step->grad_scale;
    p->t = p->own_count ? p->t : p->step->t;
    return p->step->updated != 0;
}

/* The factor of u, from square roots: of the sums of squares of w and of u, of n, and of t. */
LVN_ON_DEVICE double lvn_flat_adafactor_rate(double of_w, double of_u, double root_n, double root_t,
                                             const lvn_flat_adafactor *p)
{
    const double rms_w = of_w / root_n, rms_u = of_u / root_n,
                 rate = p->lr * root_t < 1.0 ? p->lr : 1.0 / root_t;
    return (rms_w > p->eps2 ? rms_w : p->eps2) * rate / (rms_u > p->d ? rms_u / p->d : 1.0);
}

/* The least v: eps1^2, and so large that a gradient of 0 makes u 0. */
LVN_ON_DEVICE float lvn_flat_adafactor_least(const lvn_flat_adafactor *p)
{
    const double least = p->eps1 * p->eps1;
    return least > 0x1p-126 ? (float)least : 0x1p-126f;
}

/* What `apply_record` does to a mean. */
typedef struct lvn_flat_mean {
    double momentum;            /* of the way to the record's mean */
    const double *moved;        /* in memory of the device: in place of it; NULL: it stays */
    const lvn_step_phase *step; /* as above */
} lvn_flat_mean;

LVN_ON_DEVICE bool lvn_flat_mean_resolve(lvn_flat_mean *p)
{
    p->momentum = p->moved != NULL ? *p->moved : p->momentum;
    return p->step == NULL || p->step->updated != 0;
}

/* What `append` adds to a queue: rows that the micro-batches of a step pushed. */
typedef struct lvn_flat_append {
    int64_t rows, width;        /* of the queue */
    int64_t slots, slot_rows;   /* micro-batches, and the rows that there is room for of each */
    const lvn_step_phase *step; /* as above */
} lvn_flat_append;

#ifdef __cplusplus
}
#endif
#endif

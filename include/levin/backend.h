/* Backends: what levin asks of a kind of device. A backend is one table of functions; everything
 * above it (tape, trainer, recipes) knows devices through this table alone. EXPERIMENTAL: the
 * version is counted up with every change, and a table of another version is refused.
 *
 * levin's own are cpu and ref (host memory, compute at once), sim (a simulated accelerator) and dry
 * (shapes without memory). Another one lies in a shared object `levin_backend_NAME.so` in one of
 * the folders of LEVIN_BACKEND_PATH (separated by ':') and exports
 *
 *     const lvn_backend *lvn_backend_table(void);
 *
 * It is loaded when its name is first asked for. docs/backends.md explains how to write one, along
 * examples/06_backend.
 *
 * Rules for all functions:
 *   - Any thread may call them; two calls for the same device may come at once unless stated.
 *   - Errors are returned and described with lvn_error_set (LVN_FAIL of levin/status.h). A device
 *     computes later than a call returns: an error found by then belongs to its stream.
 *   - Addresses are the device's own. levin adds offsets to them and compares them, nothing else;
 *     no two devices of a process may give out the same addresses, nor ones of host memory.
 *   - What a backend chooses by measuring, and results depend on, it records for the run with
 *     lvn_pin_record (levin/pins.h).
 *   - "In stream order": after everything submitted to that stream before.
 *   - What an argument points to in host memory (arguments of kernels, tensors, attributes,
 *     settings, decisions) is read before the call returns; only memory of host_take is read and
 *     written later, by copy. Memory of the device may be taken for something else as soon as a
 *     call returned: by what comes later in the same order. */
#ifndef LEVIN_BACKEND_H
#define LEVIN_BACKEND_H

#include <levin/backend_ops.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LVN_BACKEND_VERSION = 8 };

typedef struct lvn_device_info {
    char name[64]; /* of the model: "NVIDIA H200" */
    /* What the bits of results depend on beside the program: model and versions of libraries.
     * Runs on devices with equal fingerprints have equal bits. */
    char fingerprint[160];
    uint64_t memory;  /* bytes that may be taken in all */
    uint64_t segment; /* levin takes at least this much at once and cuts it itself; 0: 32 MiB */
} lvn_device_info;

typedef enum lvn_stream_kind {
    /* Kernels. A context of levin has one stream of this kind per device. Whatever is submitted to
     * streams of this kind of one device runs in the order of submission over all of them; what a
     * stream adds is an error of its own. */
    LVN_STREAM_COMPUTE,
    LVN_STREAM_COPY, /* copies beside the kernels, in an order of its own */
    LVN_STREAM_KINDS
} lvn_stream_kind;

/* ---- ops ---- */

/* The kernel of an op (`levin ops` lists all with what they take). An op without a row, or with
 * inputs of a type that no bit names and that cannot become f32, fails by name: it never runs on
 * the host instead. */
typedef struct lvn_backend_kernel {
    const char *op;
    lvn_kernel run;
    /* Bit 1u << dtype: float types of tensors that it computes with by itself. bf16 and f16 become
     * f32 copies for a kernel that names LVN_F32 only. */
    unsigned dtypes;
    /* Bit i: input i (a vector, statistics) is f32 also when the others are bf16 or f16. */
    unsigned f32_inputs;
    /* How many bytes of scratch memory the kernel needs with these arguments (types, shapes,
     * attributes; also asked when memory is estimated, with addresses that mean nothing). levin's
     * allocator lends them for the call, in stream order. NULL: none. */
    size_t (*workspace)(const lvn_kernel_args *args);
} lvn_backend_kernel;

/* ---- the step block: what changes from step to step ----
 * It lies in memory of the device. The host writes what it knows of a step with one upload before
 * the step's first kernel; what the step finds out stays there, and the host looks one step later.
 * Kernels read it when the stream gets to them, so their arguments are the same in all steps whose
 * micro-batches are full, and such a step can be captured and replayed. Arguments by value that may
 * differ: weights (of a step with missing samples, or whose losses have weights of their own), the
 * counts of parameters that missed updates, and uploads of what a module draws on the host (mixup,
 * lvn_random_uniform). */

enum { LVN_STEP_PHASES = 8, LVN_STEP_RATES = 2, LVN_STEP_FOLLOWS = 8 };

typedef struct lvn_step_given {
    int64_t step; /* its number, from 0; random numbers read it (lvn_philox) */
    /* 16-mixed: skipped steps, as far as the host knows. Schedules count without them: the device
     * takes number i of what follows when there are i more by now */
    int64_t skipped;
    double lr[LVN_STEP_PHASES][LVN_STEP_RATES];       /* without the factors of parameters */
    double decay[LVN_STEP_PHASES][LVN_STEP_RATES];    /* a factor on all weight decay */
    double momentum[LVN_STEP_PHASES][LVN_STEP_RATES]; /* as in lvn_step_phase */
} lvn_step_given;

typedef struct lvn_step_phase {
    double grad_norm;  /* before clipping */
    double grad_scale; /* what gradients are multiplied by, clipping included */
    double lr;         /* of the step, without the factors of parameters */
    double decay;      /* a factor on the weight decay of the arguments */
    double momentum;   /* in place of momentum or beta1 of the arguments; 0: it is theirs */
    double correction1, correction2; /* 1 - beta^t, t from 1: the updates that were done */
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
    block->failed = what;
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

/* ---- flat buffers: parameters, gradients, optimizer state ----
 * f32 in memory of the device, in the order of the stream that is given. All of them are needed: a
 * table without one is refused, as an update that stops half-way leaves no weights to go on from.
 * Kernels add over blocks of
 * LVN_FLAT_BLOCK floats; bits do not depend on how many threads share the work. */

enum { LVN_FLAT_BLOCK = 4096 };

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

/* LARS: the trust ratio of a tensor (You, Gitman & Ginsburg 2017). */
typedef struct lvn_flat_trust {
    double coefficient, weight_decay;
    double grad_scale;
    const lvn_step_phase
        *step; /* in memory of the device: its grad_scale and decay; NULL: the numbers above */
} lvn_flat_trust;

/* What `trust` computes from the square roots of both sums. Where a norm is 0 nothing determines
 * the ratio; times a gradient near 0 it must stay a number. */
LVN_ON_DEVICE double lvn_flat_trust_ratio(double of_w, double root_g, const lvn_flat_trust *p)
{
    const double of_g = root_g * (p->step != NULL ? p->step->grad_scale : p->grad_scale);
    if (!(of_w > 0.0 && of_g > 0.0)) {
        return 1.0;
    }
    const double decay = p->weight_decay * (p->step != NULL ? p->step->decay : 1.0);
    const double trust = p->coefficient * of_w / (of_g + decay * of_w);
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
} lvn_flat_adamw;

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
        p->correction1 = p->step->correction1;
        p->correction2 = p->step->correction2;
    }
    return p->step->updated != 0;
}

/* What `append` adds to a queue: rows that the micro-batches of a step pushed. */
typedef struct lvn_flat_append {
    int64_t rows, width;        /* of the queue */
    int64_t slots, slot_rows;   /* micro-batches, and the rows that there is room for of each */
    const lvn_step_phase *step; /* as above */
} lvn_flat_append;

typedef struct lvn_backend_flat {
    /* a += b: two gradient sets become one (a node of the tree). */
    lvn_status (*add)(void *stream, float *a, const float *b, int64_t n);
    /* a += t * (b - a): where the two are equal, a stays as it is to the bit. With an average of
     * the step block: t is its factor, or a becomes b; nothing unless it updated. */
    lvn_status (*lerp)(void *stream, float *a, const float *b, float t, int64_t n,
                       const lvn_step_average *step);
    /* partial[i] = sum of g^2 over block i, in f64; ceil(n / LVN_FLAT_BLOCK) entries in memory of
     * the device. A value that is not finite makes its block's sum inf or NaN. */
    lvn_status (*block_sumsq)(void *stream, const float *g, int64_t n, double *partial);
    /* g = trust * (g + weight_decay * w); buf = momentum * buf + (1 - dampening) * g; w -= lr *
     * (nesterov ? g + momentum * buf : buf). momentum NULL: plain descent. */
    lvn_status (*sgd)(void *stream, float *w, const float *g, float *momentum, int64_t n,
                      const lvn_flat_sgd *p);
    /* *trust = lvn_flat_trust_ratio of a tensor, from n partial sums of squares of its weights and
     * n of its gradient, each added as `decide` does. Overwrites them. */
    lvn_status (*trust)(void *stream, double *trust, double *of_w, double *of_g, int64_t n,
                        const lvn_flat_trust *p);
    /* Loshchilov & Hutter 2019, "Decoupled weight decay regularization", algorithm 2 (Adam: Kingma
     * & Ba 2015): w -= lr weight_decay w; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2)
     * g^2; w -= (lr / correction1) m / (sqrt(v) / sqrt(correction2) + eps). */
    lvn_status (*adamw)(void *stream, float *w, const float *g, float *m, float *v, int64_t n,
                        const lvn_flat_adamw *p);
    /* Each of the n numbers becomes the nearest bf16 (ties to even), kept as f32. */
    lvn_status (*round_bf16)(void *stream, float *w, int64_t n);
    /* A micro-batch's contribution to a running statistic: record[i] = weight * value[i] for i < n,
     * record[n] = weight. */
    lvn_status (*record)(void *stream, float *record, const float *value, int64_t n, float weight);
    /* The statistic after a step: unless record[n] is 0, buffer[i] = keep * buffer[i] + momentum *
     * (record[i] / record[n]). With a step: nothing unless it updated. */
    lvn_status (*apply_record)(void *stream, float *buffer, const float *record, int64_t n,
                               float momentum, float keep, const lvn_step_phase *step);
    /* A queue (rows, width) after a step. record: slots * slot_rows rows, one float, then of each
     * slot how many of its rows there are. These rows, in their order, go one by one to row *next
     * of the queue, filled[*next] = 1, *next = (*next + 1) mod rows; so of more than `rows` the
     * last ones stay. With a step: nothing unless it updated. */
    lvn_status (*append)(void *stream, float *queue, float *filled, float *next,
                         const float *record, const lvn_flat_append *p);
    /* *slot = the one number of this type at `value`. */
    lvn_status (*number)(void *stream, double *slot, const void *value, lvn_dtype dtype);
    /* Where a backward pass begins: the one number of this type at `value` = number * *weight *
     * *factor, the product in f64 from left to right, rounded once (16 bits: first to f32). NULL
     * for a pointer: without it. */
    lvn_status (*seed)(void *stream, void *value, lvn_dtype dtype, double number,
                       const double *weight, const double *factor);
    /* lvn_step_decide with the sum of n partial sums: neighbours are added first, an odd last one
     * moves up alone (pairs i, i + 1; then i, i + 2; and so on). Overwrites sums. */
    lvn_status (*decide)(void *stream, lvn_step_block *block, double *sums, int64_t n,
                         const double *losses, const lvn_step_decision *decision);
    /* lvn_step_finish: the step's last command. */
    lvn_status (*finish)(void *stream, lvn_step_block *block);
} lvn_backend_flat;

/* ---- the table ---- */

typedef struct lvn_backend {
    uint32_t version;    /* LVN_BACKEND_VERSION */
    uint32_t table_size; /* sizeof(lvn_backend) */
    const char *name;    /* of the kind: lower case, digits; its devices are NAME:0, NAME:1, ... */
    /* Its memory is the host's, and a call returns when its work is done: of the functions below
     * it has those of ops and flat buffers alone, and their stream is NULL. */
    bool on_host;

    /* How many devices this process may use. */
    lvn_status (*count)(int *n);
    /* Open device `index` (0 .. count - 1), once in a process until it is closed. */
    lvn_status (*open)(int index, void **device, lvn_device_info *info);
    /* All memory was given back and all streams are gone. */
    void (*close)(void *device);

    /* Memory. LVN_ERR_DEVICE_MEMORY when there is none; everything else goes on as before. levin
     * caches and cuts what it takes (tensor/device_memory.c): calls are rare. */
    lvn_status (*take)(void *device, size_t bytes, void **address); /* 4,096-byte aligned */
    /* What was submitted may still use it: wait, or let it go later. */
    void (*give)(void *device, void *address, size_t bytes);
    /* Memory of the host that `copy` reads and writes while the host goes on. */
    lvn_status (*host_take)(void *device, size_t bytes, void **p);
    /* No command uses it any more. */
    void (*host_give)(void *device, void *p, size_t bytes);

    /* Streams. */
    lvn_status (*stream_create)(void *device, lvn_stream_kind kind, void **stream);
    void (*stream_destroy)(void *stream); /* after all that was submitted ran */
    /* Wait until all that was submitted to this stream ran. Its first error, until it is cleared:
     * from it on this stream, and all of its kind and device, leave out what is submitted: what
     * comes later may depend on it. A stream that left something out has failed with that error.
     * Where kernels cannot be left out, it is enough that `decide` and `finish` are, which keeps
     * the step from updating and from counting as finished. */
    lvn_status (*stream_wait)(void *stream);
    /* As far as is known now; never waits. What failed before an event is known when event_wait has
     * returned for it. */
    bool (*stream_failed)(void *stream);
    /* After stream_wait of all streams whose commands may depend on the error: forget it, run
     * again. */
    void (*stream_clear)(void *stream);

    /* Events: a point in the order of a stream. */
    lvn_status (*event_create)(void *device, void **event);
    void (*event_destroy)(void *event);
    lvn_status (*event_record)(void *event, void *stream);
    /* What is submitted to `stream` from now on runs after the event. Streams may be of different
     * devices of the backend. One that was never recorded has passed. When the stream that recorded
     * the event had failed there, this one fails, too: a kernel may need the copy. */
    lvn_status (*event_follow)(void *stream, void *event);
    lvn_status (*event_wait)(void *event); /* on the host */

    /* In stream order: fn(user), once, on a thread of the backend's choice, also when the stream
     * has failed. What is submitted to the stream later runs after it returned, what was submitted
     * to others does not wait. fn waits for threads of the host, which may wait for other devices,
     * and calls nothing of the table. Where host functions of a driver must not (CUDA's), let the
     * stream wait for a number in memory, which a thread of the backend writes when fn has
     * returned. Not while the stream is captured. */
    lvn_status (*host_call)(void *stream, void (*fn)(void *user), void *user);

    /* Copies, in stream order. Of host memory only what host_take gave, until the copy has run.
     * From another device of the backend: `stream` is the target's. */
    lvn_status (*copy)(void *stream, void *to, const void *from, size_t bytes);
    /* From any host memory, which may change when this returns; at most LVN_UPLOAD bytes. */
    lvn_status (*upload)(void *stream, void *to, const void *from, size_t bytes);
    lvn_status (*zero)(void *stream, void *p, size_t bytes);

    /* Ops and flat buffers. */
    const lvn_backend_kernel *kernels;
    int n_kernels;
    /* Does the row's kernel run with these arguments (types, shapes, attributes)? Asked in every
     * call. NULL: all that the rows name. */
    bool (*supports)(void *device, const lvn_kernel_args *args);
    lvn_backend_flat flat;

    /* A captured step: what any thread submits to streams of this one's kind and device between
     * begin and end is recorded instead of run; replay submits it to `stream`, with the same
     * addresses and arguments. Events are recorded and followed in each replay, as they are then.
     * The step block's upload comes before what is captured, and before each replay. NULL, all
     * four: not supported. levin does not call them yet. */
    lvn_status (*capture_begin)(void *stream);
    lvn_status (*capture_end)(void *stream, void **graph);
    lvn_status (*graph_replay)(void *graph, void *stream);
    void (*graph_destroy)(void *graph);
} lvn_backend;

enum { LVN_UPLOAD = 2048 };

/* The symbol that a shared object exports. */
typedef const lvn_backend *(*lvn_backend_table_fn)(void);
#define LVN_BACKEND_SYMBOL "lvn_backend_table"

#ifdef __cplusplus
}
#endif
#endif

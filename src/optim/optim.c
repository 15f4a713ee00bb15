/* SGD with momentum, Adam, AdamW and LARS over flat buffers (optim.h); the arithmetic is in
 * kernels/flat.h. */
#include "optim/optim.h"

#include "core/math.h"
#include "kernels/flat.h"
#include "tensor/device.h"

#include <string.h>

#define TRUST_LIMIT 1e30

static bool is_adam(const lvni_optim_options *p)
{
    return p->kind == LVNI_OPTIM_ADAM || p->kind == LVNI_OPTIM_ADAMW;
}

/* Does the parameter go on in the run? Zeros between two parameters stay zeros under every
 * formula. */
static bool goes_on(const lvni_optim_run *run, const lvni_optim_run *next, bool neighbours)
{
    return neighbours && !run->trusted && !next->trusted && run->phase == next->phase &&
           run->lr_scale == next->lr_scale && run->weight_decay == next->weight_decay;
}

static lvn_status make_runs(lvni_optim *o, const lvni_optim_parameter *parameter, int n)
{
    o->run = lvni_core_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *o->run);
    if (o->run == NULL) {
        return LVN_ERR_MEMORY;
    }
    bool neighbours = false;
    for (int i = 0; i < n; i++) {
        const lvni_optim_parameter *p = &parameter[i];
        const lvni_optim_run next = {.begin = p->begin,
                                     .n = p->n,
                                     .lr_scale = p->lr_scale,
                                     .weight_decay = o->options.weight_decay * p->decay_scale,
                                     .trusted = o->options.kind == LVNI_OPTIM_LARS && p->ndim > 1,
                                     .phase = p->phase,
                                     .first = i,
                                     .count = 1};
        lvni_optim_run *run = o->n_runs > 0 ? &o->run[o->n_runs - 1] : NULL;
        if (p->frozen) {
            neighbours = false;
        } else if (run != NULL && goes_on(run, &next, neighbours)) {
            run->n = p->begin + p->n - run->begin;
            run->count++;
        } else {
            o->run[o->n_runs++] = next;
            neighbours = true;
        }
    }
    return LVN_OK;
}

static lvn_status keep_parameters(lvni_optim *o, const lvni_optim_parameter *parameter, int n)
{
    o->n_parameters = n;
    o->parameter = lvni_core_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *o->parameter);
    o->idle = lvni_core_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *o->idle);
    o->missed = lvni_core_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *o->missed);
    if (o->parameter == NULL || o->idle == NULL || o->missed == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < n; i++) {
        o->parameter[i] = parameter[i];
        o->parameter[i].name = NULL; /* borrowed */
    }
    return LVN_OK;
}

static void name_slots(lvni_optim *o)
{
    if (is_adam(&o->options)) {
        o->n_slots = 2;
        o->slot_name[0] = "exp_avg";
        o->slot_name[1] = "exp_avg_sq";
    } else if (o->options.momentum > 0.0) {
        o->n_slots = 1;
        o->slot_name[0] = "momentum";
    }
}

int lvni_optim_slots(const lvni_optim_options *options)
{
    lvni_optim o = {.options = *options};
    name_slots(&o);
    return o.n_slots;
}

lvn_status lvni_optim_create(const lvni_optim_options *options, int64_t n,
                             const lvni_optim_parameter *parameter, int n_parameters,
                             lvni_optim **out)
{
    *out = NULL;
    lvni_optim *o = LVNI_NEW(LVNI_TAG_MODEL, lvni_optim);
    if (o == NULL) {
        return LVN_ERR_MEMORY;
    }
    o->options = *options;
    o->n = n;
    name_slots(o);
    o->partial =
        lvni_core_calloc(LVNI_TAG_MODEL, (size_t)lvni_kernels_flat_blocks(n), sizeof *o->partial);
    bool good = o->partial != NULL && make_runs(o, parameter, n_parameters) == LVN_OK &&
                keep_parameters(o, parameter, n_parameters) == LVN_OK;
    for (int i = 0; i < o->n_slots && good; i++) {
        o->slot[i] = lvni_tensor_mem_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *o->slot[i]);
        good = o->slot[i] != NULL;
    }
    if (!good) {
        lvni_optim_destroy(o);
        return lvn_last_error()->code;
    }
    *out = o;
    return LVN_OK;
}

void lvni_optim_destroy(lvni_optim *o)
{
    if (o == NULL) {
        return;
    }
    for (int i = 0; i < LVNI_OPTIM_SLOTS; i++) {
        lvni_tensor_mem_free(o->slot[i], (size_t)o->n, sizeof *o->slot[i]);
    }
    lvni_core_free(o->run);
    lvni_core_free(o->parameter);
    lvni_core_free(o->idle);
    lvni_core_free(o->missed);
    lvni_core_free(o->partial);
    lvni_core_free(o);
}

/* Blocks are counted from x: a tensor's norm does not depend on where it lies in the flat
 * buffer. */
static double norm(lvni_optim *o, const float *x, int64_t n)
{
    lvni_kernels_flat_block_sumsq(x, n, o->partial);
    return lvni_core_sqrt(lvni_kernels_flat_sum_tree(o->partial, lvni_kernels_flat_blocks(n)));
}

/* Of a whole tensor; a weight or a gradient of zeros says nothing about the rate. */
static double trust_ratio(lvni_optim *o, const lvni_optim_run *run, const float *w, const float *g,
                          double grad_scale)
{
    const double of_w = norm(o, w, run->n), of_g = norm(o, g, run->n) * grad_scale;
    if (!(of_w > 0.0 && of_g > 0.0)) {
        return 1.0;
    }
    const double trust = o->options.trust_coefficient * of_w / (of_g + run->weight_decay * of_w);
    /* times a gradient near 0 it must stay a number */
    return trust < TRUST_LIMIT ? trust : TRUST_LIMIT;
}

/* The piece of a run that is stepped at once; `updates` before this one. */
static void step_adam(lvni_optim *o, const lvni_optim_run *run, int64_t updates, float *w,
                      const float *g, double lr, double grad_scale)
{
    const lvni_optim_options *p = &o->options;
    const double t = (double)(updates + 1);
    const lvni_kernels_flat_adamw_params a = {
        .lr = lr * run->lr_scale,
        .beta1 = p->beta1,
        .beta2 = p->beta2,
        .eps = p->eps,
        .weight_decay = run->weight_decay,
        .correction1 = p->beta1 > 0.0 ? 1.0 - lvni_core_pow(p->beta1, t) : 1.0,
        .correction2 = p->beta2 > 0.0 ? 1.0 - lvni_core_pow(p->beta2, t) : 1.0,
        .grad_scale = grad_scale,
        .decoupled = p->kind == LVNI_OPTIM_ADAMW};
    lvni_kernels_flat_adamw(w, g, o->slot[0] + run->begin, o->slot[1] + run->begin, run->n, &a);
}

static void step_sgd(lvni_optim *o, const lvni_optim_run *run, int64_t updates, float *w,
                     const float *g, double lr, double grad_scale)
{
    const lvni_optim_options *p = &o->options;
    const lvni_kernels_flat_sgd_params s = {
        .lr = lr * run->lr_scale,
        .momentum = p->momentum,
        .dampening = p->dampening,
        .weight_decay = run->weight_decay,
        .grad_scale = grad_scale,
        .trust = run->trusted ? trust_ratio(o, run, w, g, grad_scale) : 0.0,
        .nesterov = p->nesterov,
        .first_step = updates == 0};
    lvni_kernels_flat_sgd(w, g, o->n_slots > 0 ? o->slot[0] + run->begin : NULL, run->n, &s);
}

/* Neighbours in a run that have the same part in this step, from parameter i on: the piece's
 * end. */
static int piece_end(const lvni_optim *o, const lvni_optim_run *run, int i)
{
    int end = i + 1;
    while (end < run->first + run->count && o->idle[end] == o->idle[i] &&
           o->missed[end] == o->missed[i]) {
        end++;
    }
    return end;
}

static void step_run(lvni_optim *o, const lvni_optim_run *run, float *w, const float *g, double lr,
                     double grad_scale)
{
    for (int i = run->first, end; i < run->first + run->count; i = end) {
        end = piece_end(o, run, i);
        if (o->idle[i]) {
            for (int k = i; k < end; k++) {
                o->missed[k]++;
            }
            continue;
        }
        lvni_optim_run piece = *run;
        piece.begin = o->parameter[i].begin;
        piece.n = o->parameter[end - 1].begin + o->parameter[end - 1].n - piece.begin;
        const int64_t updates = o->steps[run->phase] - o->missed[i];
        (is_adam(&o->options) ? step_adam : step_sgd)(o, &piece, updates, w + piece.begin,
                                                      g + piece.begin, lr, grad_scale);
    }
}

void lvni_optim_step(lvni_optim *o, int phase, float *w, const float *g, double lr,
                     double grad_scale)
{
    for (int i = 0; i < o->n_runs; i++) {
        const lvni_optim_run *run = &o->run[i];
        if (run->phase != phase) {
            continue;
        }
        step_run(o, run, w, g, lr, grad_scale);
    }
    o->steps[phase]++;
}

double lvni_optim_gradient_norm(lvni_optim *o, const float *g, int64_t begin, int64_t end)
{
    const int64_t blocks = lvni_kernels_flat_blocks(o->n);
    memset(o->partial, 0, (size_t)blocks * sizeof *o->partial);
    lvni_kernels_flat_block_sumsq(g + begin, end - begin, o->partial + begin / LVNI_FLAT_BLOCK);
    return lvni_core_sqrt(lvni_kernels_flat_sum_tree(o->partial, blocks));
}

double lvni_optim_norm_of_blocks(lvni_optim *o, const double *sums, int64_t begin, int64_t end)
{
    const int64_t blocks = lvni_kernels_flat_blocks(o->n), first = begin / LVNI_FLAT_BLOCK;
    memset(o->partial, 0, (size_t)blocks * sizeof *sums);
    memcpy(o->partial + first, sums + first,
           (size_t)lvni_kernels_flat_blocks(end - begin) * sizeof *sums);
    return lvni_core_sqrt(lvni_kernels_flat_sum_tree(o->partial, blocks));
}

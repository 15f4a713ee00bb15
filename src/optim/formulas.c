/* The optimizers (formula.h): the arguments of their kernels (kernels/flat.h), whose formulas are
 * stated in levin/backend.h and computed in kernels/cpu/tpl_flat.h. */
#include "optim/formula.h"

#include "core/math.h"
#include "kernels/flat.h"

#include <string.h>

/* Of a slot, where the part begins; NULL: there is no such slot. */
static float *state(const lvni_optim *o, const lvni_optim_call *c, int slot, lvni_optim_range part)
{
    return slot < o->slots[c->run->phase] ? o->slot[slot] + (part.begin - o->own.begin) : NULL;
}

static const lvni_optim_options *options(const lvni_optim *o, const lvni_optim_call *c)
{
    return &o->options[c->run->phase];
}

static double rate(const lvni_optim_call *c)
{
    return c->step != NULL ? c->run->lr_scale : c->lr * c->run->lr_scale;
}

/* The parameters missed updates, and a device counts those of the phase. */
static bool has_own_count(const lvni_optim *o, const lvni_optim_call *c)
{
    return c->step != NULL && c->updates != o->steps[c->run->phase];
}

/* Of the group, else of its phase. */
static lvni_optim_decays decays(const lvni_optim *o, const lvni_optim_call *c)
{
    const lvni_optim_own *own = &c->run->own;
    lvni_optim_decays d = o->decays[c->run->phase];
    d.momentum = own->has_momentum ? own->momentum : d.momentum;
    d.beta1 = own->has_beta1 ? own->beta1 : d.beta1;
    d.beta2 = own->has_beta2 ? own->beta2 : d.beta2;
    return d;
}

static bool has_own_betas(const lvni_optim_call *c)
{
    return c->run->own.has_beta1 || c->run->own.has_beta2;
}

/* The slot of the momentum; NULL: none, and none of a group whose own is 0. */
static float *momentum_state(const lvni_optim *o, const lvni_optim_call *c, int slot,
                             lvni_optim_range part)
{
    const lvni_optim_own *own = &c->run->own;
    return own->has_momentum && !(own->momentum > 0.0) ? NULL : state(o, c, slot, part);
}

/* ---- sgd, lars ---- */

static int sgd_slots(const lvni_optim_options *p, const char *name[LVNI_OPTIM_SLOTS])
{
    name[0] = "momentum";
    return p->momentum > 0.0 ? 1 : 0;
}

static void sgd_step(lvni_optim *o, const lvni_optim_call *c, lvni_optim_range part, float *w,
                     const float *g)
{
    const lvni_optim_options *p = options(o, c);
    const lvn_flat_sgd s = {.lr = rate(c),
                            .momentum = decays(o, c).momentum,
                            .dampening = p->dampening,
                            .weight_decay = c->run->weight_decay,
                            .grad_scale = c->grad_scale,
                            .clip_value = p->clip_value,
                            .trust = c->run->trusted ? o->ratio + c->run->ratio : NULL,
                            .nesterov = p->nesterov,
                            .first_step = c->updates == 0,
                            .step = c->step,
                            .own_count = has_own_count(o, c)};
    lvni_kernels_flat_sgd(w, g, momentum_state(o, c, 0, part), part.end - part.begin, &s);
}

static void lars_prepare(lvni_optim *o, const lvni_optim_call *c, lvni_optim_range part, float *w,
                         const float *g)
{
    if (c->run->trusted) {
        double *sums = lvni_optim_first_sum(o, c->run, part);
        lvni_kernels_flat_sums_on_device(w, part.end - part.begin, sums);
        lvni_kernels_flat_sums_on_device(g, part.end - part.begin, sums + o->n_sums);
    }
}

static void lars_ratio(lvni_optim *o, const lvni_optim_call *c, double *of_w, double *of_g,
                       int64_t n)
{
    const lvn_flat_trust t = {.coefficient = options(o, c)->trust_coefficient,
                              .weight_decay = c->run->weight_decay,
                              .grad_scale = c->grad_scale,
                              .step = c->step,
                              .eps = options(o, c)->eps,
                              .of_decayed = true};
    lvni_kernels_flat_trust(o->ratio + c->run->ratio, of_w, of_g, n, &t);
}

/* ---- adam, adamw ---- */

static int adam_slots(const lvni_optim_options *p, const char *name[LVNI_OPTIM_SLOTS])
{
    (void)p;
    name[0] = "exp_avg";
    name[1] = "exp_avg_sq";
    return 2;
}

/* 1 - beta^t; own: as devices compute it of a group's. */
static double correction_of(double beta, double t, bool own)
{
    return beta > 0.0 ? 1.0 - (own ? lvn_step_power(beta, t) : lvni_core_pow(beta, t)) : 1.0;
}

/* Of the update after c->updates. */
static void get_corrections(const lvni_optim *o, const lvni_optim_call *c, double *one, double *two)
{
    const double t = (double)(c->updates + 1);
    const lvni_optim_decays p = decays(o, c);
    *one = correction_of(p.beta1, t, has_own_betas(c));
    *two = correction_of(p.beta2, t, has_own_betas(c));
}

static void adam_step(lvni_optim *o, const lvni_optim_call *c, lvni_optim_range part, float *w,
                      const float *g)
{
    const lvni_optim_options *p = options(o, c);
    const bool own = has_own_count(o, c);
    double correction1 = 0.0, correction2 = 0.0; /* of the step */
    if (c->step == NULL || own) {
        get_corrections(o, c, &correction1, &correction2);
    }
    const lvn_flat_adamw a = {.lr = rate(c),
                              .beta1 = decays(o, c).beta1,
                              .beta2 = decays(o, c).beta2,
                              .eps = p->eps,
                              .weight_decay = c->run->weight_decay,
                              .correction1 = correction1,
                              .correction2 = correction2,
                              .grad_scale = c->grad_scale,
                              .clip_value = p->clip_value,
                              .decoupled = p->kind == LVNI_OPTIM_ADAMW,
                              .step = c->step,
                              .own_count = own,
                              .own_betas = has_own_betas(c)};
    lvni_kernels_flat_adamw(w, g, state(o, c, 0, part), state(o, c, 1, part), part.end - part.begin,
                            &a);
}

/* ---- lamb ---- */

static lvn_flat_lamb lamb_of(const lvni_optim *o, const lvni_optim_call *c)
{
    const lvni_optim_options *p = options(o, c);
    lvn_flat_lamb l = {.lr = rate(c),
                       .beta1 = decays(o, c).beta1,
                       .beta2 = decays(o, c).beta2,
                       .eps = p->eps,
                       .weight_decay = c->run->weight_decay,
                       .grad_scale = c->grad_scale,
                       .clip_value = p->clip_value,
                       .trust = c->run->trusted ? o->ratio + c->run->ratio : NULL,
                       .step = c->step,
                       .own_count = has_own_count(o, c),
                       .own_betas = has_own_betas(c)};
    if (c->step == NULL || l.own_count) {
        get_corrections(o, c, &l.correction1, &l.correction2);
    }
    return l;
}

/* The step is known when the moments are. */
static void lamb_prepare(lvni_optim *o, const lvni_optim_call *c, lvni_optim_range part, float *w,
                         const float *g)
{
    const lvn_flat_lamb l = lamb_of(o, c);
    const int64_t n = part.end - part.begin;
    double *sums = c->run->trusted ? lvni_optim_first_sum(o, c->run, part) : NULL;
    if (sums != NULL) {
        lvni_kernels_flat_sums_on_device(w, n, sums);
    }
    lvni_kernels_flat_lamb_moments(w, g, state(o, c, 0, part), state(o, c, 1, part), n,
                                   sums == NULL ? NULL : sums + o->n_sums, &l);
}

static void lamb_ratio(lvni_optim *o, const lvni_optim_call *c, double *of_w, double *of_u,
                       int64_t n)
{
    const lvn_flat_trust t = {.coefficient = 1.0, .grad_scale = 1.0};
    lvni_kernels_flat_trust(o->ratio + c->run->ratio, of_w, of_u, n, &t);
}

static void lamb_step(lvni_optim *o, const lvni_optim_call *c, lvni_optim_range part, float *w,
                      const float *g)
{
    const lvn_flat_lamb l = lamb_of(o, c);
    (void)g;
    lvni_kernels_flat_lamb(w, state(o, c, 0, part), state(o, c, 1, part), part.end - part.begin,
                           &l);
}

/* ---- rmsprop, lion ---- */

static int rmsprop_slots(const lvni_optim_options *p, const char *name[LVNI_OPTIM_SLOTS])
{
    int n = 1;
    name[0] = "square_avg";
    if (p->centered) {
        name[n++] = "grad_avg";
    }
    if (p->momentum > 0.0) {
        name[n++] = "momentum_buffer";
    }
    return n;
}

static void rmsprop_step(lvni_optim *o, const lvni_optim_call *c, lvni_optim_range part, float *w,
                         const float *g)
{
    const lvni_optim_options *p = options(o, c);
    const lvn_flat_rmsprop r = {.lr = rate(c),
                                .alpha = p->alpha,
                                .eps = p->eps,
                                .momentum = decays(o, c).momentum,
                                .weight_decay = c->run->weight_decay,
                                .grad_scale = c->grad_scale,
                                .clip_value = p->clip_value,
                                .step = c->step};
    lvni_kernels_flat_rmsprop(w, g, state(o, c, 0, part), p->centered ? state(o, c, 1, part) : NULL,
                              momentum_state(o, c, p->centered ? 2 : 1, part),
                              part.end - part.begin, &r);
}

static int lion_slots(const lvni_optim_options *p, const char *name[LVNI_OPTIM_SLOTS])
{
    (void)p;
    name[0] = "exp_avg";
    return 1;
}

static void lion_step(lvni_optim *o, const lvni_optim_call *c, lvni_optim_range part, float *w,
                      const float *g)
{
    const lvn_flat_lion l = {.lr = rate(c),
                             .beta1 = decays(o, c).beta1,
                             .beta2 = decays(o, c).beta2,
                             .weight_decay = c->run->weight_decay,
                             .grad_scale = c->grad_scale,
                             .clip_value = options(o, c)->clip_value,
                             .step = c->step};
    lvni_kernels_flat_lion(w, g, state(o, c, 0, part), part.end - part.begin, &l);
}

/* ---- adafactor ---- */

enum { ROW_VAR, COL_VAR, VARIANCE };

static int adafactor_slots(const lvni_optim_options *p, const char *name[LVNI_OPTIM_SLOTS])
{
    (void)p;
    name[ROW_VAR] = "row_var";
    name[COL_VAR] = "col_var";
    name[VARIANCE] = "variance";
    return 3;
}

static bool adafactor_shape(const lvni_optim_parameter *p, int slot, int64_t shape[LVN_MAX_NDIM])
{
    memcpy(shape, p->shape, sizeof p->shape);
    if (slot != VARIANCE && p->ndim > 1) {
        shape[p->row_axis + (slot == ROW_VAR ? 1 : 0)] = 1;
    }
    return (slot == VARIANCE) == (p->ndim < 2);
}

/* Of the axes from `first` to before `end`. */
static int64_t product(const lvni_optim_parameter *p, int first, int end)
{
    int64_t n = 1;
    for (int i = first; i < end; i++) {
        n *= p->shape[i];
    }
    return n;
}

static int64_t adafactor_scratch(const lvni_optim_parameter *p)
{
    const int64_t matrices =
        p->ndim < 2 ? 0 : product(p, 0, p->row_axis) * product(p, p->row_axis + 2, p->ndim);
    return 2 * lvni_kernels_flat_blocks(p->n) + matrices;
}

/* Of parameter i. */
static float *state_of(const lvni_optim *o, int slot, int i)
{
    int64_t shape[LVN_MAX_NDIM];
    return o->slot[slot] + lvni_optim_state(o, slot, i, shape);
}

/* The part is the whole tensor. */
static void adafactor_step(lvni_optim *o, const lvni_optim_call *c, lvni_optim_range part, float *w,
                           const float *g)
{
    (void)part;
    const lvni_optim_options *p = options(o, c);
    const int at = c->run->first;
    const lvni_optim_parameter *of = &o->parameter[at];
    lvn_flat_adafactor a = {.lr = rate(c),
                            .beta2_decay = p->beta2_decay,
                            .eps1 = p->eps,
                            .eps2 = p->eps2,
                            .d = p->d,
                            .weight_decay = c->run->weight_decay,
                            .grad_scale = c->grad_scale,
                            .t = (double)(c->updates + 1),
                            .scratch = o->sums,
                            .step = c->step,
                            .own_count = has_own_count(o, c)};
    if (of->ndim < 2) {
        lvni_kernels_flat_adafactor(w, g, state_of(o, VARIANCE, at), NULL, of->n, &a);
        return;
    }
    a.outer = product(of, 0, of->row_axis);
    a.rows = of->shape[of->row_axis];
    a.cols = of->shape[of->row_axis + 1];
    a.inner = product(of, of->row_axis + 2, of->ndim);
    lvni_kernels_flat_adafactor(w, g, state_of(o, ROW_VAR, at), state_of(o, COL_VAR, at), of->n,
                                &a);
}

/* ---- all of them ---- */

const lvni_optim_formula *lvni_optim_formula_of(const lvni_optim_options *options)
{
    static const lvni_optim_formula formulas[] = {
        [LVNI_OPTIM_SGD] = {.name = "sgd", .slots = sgd_slots, .step = sgd_step},
        [LVNI_OPTIM_ADAM] = {.name = "adam",
                             .betas = true,
                             .slots = adam_slots,
                             .step = adam_step,
                             .corrected = true},
        [LVNI_OPTIM_ADAMW] = {.name = "adamw",
                              .betas = true,
                              .slots = adam_slots,
                              .step = adam_step,
                              .corrected = true},
        [LVNI_OPTIM_LARS] = {.name = "lars",
                             .unclamped = true, /* so is the norm in its ratio */
                             .ratio_of_decayed = true,
                             .slots = sgd_slots,
                             .prepare = lars_prepare,
                             .ratio = lars_ratio,
                             .step = sgd_step},
        [LVNI_OPTIM_RMSPROP] = {.name = "rmsprop", .slots = rmsprop_slots, .step = rmsprop_step},
        [LVNI_OPTIM_LAMB] = {.name = "lamb",
                             .betas = true,
                             .slots = adam_slots,
                             .prepare = lamb_prepare,
                             .ratio = lamb_ratio,
                             .step = lamb_step,
                             .corrected = true},
        [LVNI_OPTIM_LION] = {.name = "lion", .betas = true, .slots = lion_slots, .step = lion_step},
        [LVNI_OPTIM_ADAFACTOR] = {.name = "adafactor",
                                  .unclamped = true,
                                  .slots = adafactor_slots,
                                  .step = adafactor_step,
                                  .state_shape = adafactor_shape,
                                  .scratch = adafactor_scratch},
    };
    return &formulas[options->kind];
}

const char *lvni_optim_name(lvni_optim_kind kind)
{
    return lvni_optim_formula_of(&(lvni_optim_options){.kind = kind})->name;
}

bool lvni_optim_moves_momentum(const lvni_optim_options *p)
{
    return p->kind == LVNI_OPTIM_SGD || p->kind == LVNI_OPTIM_LARS || p->kind == LVNI_OPTIM_RMSPROP;
}

bool lvni_optim_has_betas(const lvni_optim_options *p)
{
    return lvni_optim_formula_of(p)->betas;
}

static lvn_status check_own(const lvni_optim_options *o, const char *name,
                            const lvni_optim_own *own)
{
    if (o->clip_value > 0.0 && lvni_optim_formula_of(o)->unclamped) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "gradient_clip_algorithm=value with optim=%s: its step depends on norms of whole "
                 "gradients; use gradient_clip_algorithm=norm or another optimizer",
                 lvni_optim_name(o->kind));
    }
    if ((own->has_beta1 || own->has_beta2) && !lvni_optim_has_betas(o)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "optim.groups gives %s its own %s, and its optimizer, %s, has none: adam, adamw, "
                 "lion and lamb have",
                 name, own->has_beta1 ? "beta1" : "beta2", lvni_optim_name(o->kind));
    }
    if (own->has_momentum && !lvni_optim_moves_momentum(o)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "optim.groups gives %s its own momentum, and its optimizer, %s, has none: sgd, "
                 "lars and rmsprop have",
                 name, lvni_optim_name(o->kind));
    }
    if (own->momentum > 0.0 && !(o->momentum > 0.0)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "optim.groups gives %s its own momentum, and that of its optimizer, %s, is 0: "
                 "give that a value, and momentum=0 to other groups",
                 name, lvni_optim_name(o->kind));
    }
    return LVN_OK;
}

lvn_status lvni_optim_check_groups(const lvni_optim_options o[LVNI_PHASES],
                                   const lvni_optim_parameter *parameter, int n)
{
    for (int i = 0; i < n; i++) {
        const lvni_optim_parameter *p = &parameter[i];
        LVN_TRY(p->frozen ? LVN_OK : check_own(&o[p->phase], p->name, &p->own));
    }
    return LVN_OK;
}

void lvni_optim_describe(const lvni_optim *o, lvn_step_decision *d)
{
    const bool corrected = lvni_optim_formula_of(&o->options[d->phase])->corrected;
    d->beta1 = corrected ? o->decays[d->phase].beta1 : 0.0;
    d->beta2 = corrected ? o->decays[d->phase].beta2 : 0.0;
}

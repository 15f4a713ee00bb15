/* An optimizer as optim.c sees it: what its state is called, and its calls of kernels over a part
 * of the flat buffers. The rows are in formulas.c; nothing else knows the kinds. */
#ifndef LEVIN_OPTIM_FORMULA_H
#define LEVIN_OPTIM_FORMULA_H

#include "optim/optim.h"

/* What is the same for all elements that are stepped at once; `updates` before this one. */
typedef struct lvni_optim_call {
    const lvni_optim_run *run;
    int64_t updates;
    double lr, grad_scale;
    const lvn_step_phase *step; /* where both lie instead, NULL: nowhere */
} lvni_optim_call;

typedef struct lvni_optim_formula {
    /* Of its buffers of state; returns how many. */
    int (*slots)(const lvni_optim_options *options, const char *name[LVNI_OPTIM_SLOTS]);
    /* Before the ratios; NULL: nothing. The part of a tensor with a ratio begins a block or lies
     * within one, and its partial sums are those from lvni_optim_first_sum on. w and g begin where
     * the part does, here and below. */
    void (*prepare)(lvni_optim *o, const lvni_optim_call *c, lvni_optim_range part, float *w,
                    const float *g);
    /* Of a tensor, from n partial sums each; NULL: no tensor has a ratio. */
    void (*ratio)(lvni_optim *o, const lvni_optim_call *c, double *of_w, double *of_g, int64_t n);
    void (*step)(lvni_optim *o, const lvni_optim_call *c, lvni_optim_range part, float *w,
                 const float *g);
    /* The shape that state `slot` of a parameter has, or false: it has none. NULL: state lies as
     * weights do. With it, steps are of one whole tensor each. */
    bool (*state_shape)(const lvni_optim_parameter *p, int slot, int64_t shape[LVN_MAX_NDIM]);
    /* Numbers that the step of a tensor needs in o->sums; NULL: none. */
    int64_t (*scratch)(const lvni_optim_parameter *p);
    const char *name;
    bool ratio_of_decayed; /* a tensor without decay has none */
    bool betas;            /* has beta1 and beta2 */
    bool unclamped;        /* takes gradients as they are: no clip_value */
    bool corrected;        /* has Adam's corrections of beta1 and beta2 */
} lvni_optim_formula;

const lvni_optim_formula *lvni_optim_formula_of(const lvni_optim_options *options);

/* Of the weights; those of the gradient lie n_sums further on. */
static inline double *lvni_optim_first_sum(const lvni_optim *o, const lvni_optim_run *run,
                                           lvni_optim_range part)
{
    return o->sums + run->first_sum + part.begin / LVN_FLAT_BLOCK - run->begin / LVN_FLAT_BLOCK;
}

#endif

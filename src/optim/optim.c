/* SGD with momentum and AdamW over flat buffers (optim.h); the arithmetic is in kernels/flat.h. */
#include "optim/optim.h"

#include "core/alloc.h"
#include "core/math.h"
#include "kernels/flat.h"

lvn_status lvni_optim_create(const lvni_optim_options *options, int64_t n, lvni_optim **out)
{
    *out = NULL;
    lvni_optim *o = LVNI_NEW(LVNI_TAG_MODEL, lvni_optim);
    if (o == NULL) {
        return LVN_ERR_MEMORY;
    }
    o->options = *options;
    o->n = n;
    if (options->kind == LVNI_OPTIM_ADAMW) {
        o->n_slots = 2;
        o->slot_name[0] = "exp_avg";
        o->slot_name[1] = "exp_avg_sq";
    } else if (options->momentum > 0.0) {
        o->n_slots = 1;
        o->slot_name[0] = "momentum";
    }
    o->partial = lvni_calloc(LVNI_TAG_MODEL, (size_t)lvni_flat_blocks(n), sizeof *o->partial);
    bool good = o->partial != NULL;
    for (int i = 0; i < o->n_slots && good; i++) {
        o->slot[i] = lvni_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *o->slot[i]);
        good = o->slot[i] != NULL;
    }
    if (!good) {
        lvni_optim_destroy(o);
        return LVN_ERR_MEMORY;
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
        lvni_free(o->slot[i]);
    }
    lvni_free(o->partial);
    lvni_free(o);
}

void lvni_optim_step(lvni_optim *o, float *w, const float *g, double lr, double grad_scale)
{
    const lvni_optim_options *p = &o->options;
    const double t = (double)(o->steps + 1);
    if (p->kind == LVNI_OPTIM_ADAMW) {
        const lvni_flat_adamw_params a = {.lr = lr,
                                          .beta1 = p->beta1,
                                          .beta2 = p->beta2,
                                          .eps = p->eps,
                                          .weight_decay = p->weight_decay,
                                          .correction1 = p->beta1 > 0.0 ? 1.0 - lvni_pow(p->beta1, t) : 1.0,
                                          .correction2 = p->beta2 > 0.0 ? 1.0 - lvni_pow(p->beta2, t) : 1.0,
                                          .grad_scale = grad_scale,
                                          .decoupled = true};
        lvni_flat_adamw(w, g, o->slot[0], o->slot[1], o->n, &a);
    } else {
        const lvni_flat_sgd_params s = {.lr = lr,
                                        .momentum = p->momentum,
                                        .weight_decay = p->weight_decay,
                                        .grad_scale = grad_scale,
                                        .first_step = o->steps == 0};
        lvni_flat_sgd(w, g, o->slot[0], o->n, &s);
    }
    o->steps++;
}

double lvni_optim_gradient_norm(lvni_optim *o, const float *g)
{
    lvni_flat_block_sumsq(g, o->n, o->partial);
    return lvni_sqrt(lvni_flat_sum_tree(o->partial, lvni_flat_blocks(o->n)));
}

/* Two samples in one image: mixup (Zhang et al. 2017, "mixup: Beyond Empirical Risk Minimization")
 * blends them, CutMix (Yun et al. 2019, "CutMix: Regularization Strategy to Train Strong
 * Classifiers with Localizable Features") pastes a box of one into the other. The loss is lambda
 * CE(y_a) + (1 - lambda) CE(y_b). Partners come from the same micro-batch, so nothing depends on
 * the layout. Called by classify.c.
 *
 * THE DRAWS (docs/reproducibility.md). Key (seed, "mix"), a = step, b = micro-batch, c as follows.
 *   0  element 0: with both kinds on, CutMix when u < 1/2
 *   1  the partners: Fisher-Yates over 0 .. n-1, i = n-1 .. 1, swap with lvni_core_rng_below(i + 1)
 *   2  the box: element 0 column, element 1 row of its centre, each floor(u * side)
 *   3, 4, 5  the first gamma variate of lambda: normals, uniforms, the boost of alpha < 1;  6, 7, 8
 *     the second
 * u = u32 * 2^-32; inside a logarithm (u32 + 1/2) * 2^-32. */
#ifndef LEVIN_RECIPES_CLASSIFY_CLASSIFY_MIX_H
#define LEVIN_RECIPES_CLASSIFY_CLASSIFY_MIX_H

#include "recipes/classify/classify_criterion.h"

#include <levin/backend_ops.h>

typedef struct lvni_classify_mix {
    lvn_module_class cls; /* first: the network's class, with a training step that mixes */
    double mixup_alpha, cutmix_alpha; /* lambda ~ Beta(alpha, alpha); 0: off */
    /* the loss that is trained on; validation takes the network's own */
    lvni_classify_criterion criterion;
} lvni_classify_mix;

/* The criterion is plain cross entropy, until it is set. The network must be built with &mix->cls,
 * and *mix live as long as the model. */
void lvni_classify_mix_init(lvni_classify_mix *mix, const lvn_module_class *network,
                            double mixup_alpha, double cutmix_alpha);

/* What one micro-batch of one step draws: lambda is the part of the sample itself, with a box 1 -
 * its area over the image's. */
lvn_mix_attr lvni_classify_mix_draw_one(const lvni_classify_mix *mix, uint64_t seed, uint32_t step,
                                        uint32_t micro_batch, int width, int height);
/* partner[0 .. n-1]: a permutation. */
void lvni_classify_mix_partners(uint64_t seed, uint32_t step, uint32_t micro_batch, int64_t n,
                                int64_t *partner);

#endif

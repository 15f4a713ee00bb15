/* Buffers of random numbers (core/rng.h), called by ops/ and for a model's first weights. Bits do
 * not depend on the team. */
#ifndef LEVIN_KERNELS_RANDOM_H
#define LEVIN_KERNELS_RANDOM_H

#include "core/rng.h"

/* y[e] = lvni_core_rng_uniform(rng, e) for n elements. */
void lvni_kernels_random_uniform(float *y, int64_t n, const lvni_core_rng *rng);
/* y[e] = lvni_core_rng_normal(rng, e) * deviation, rounded once */
void lvni_kernels_random_normal(float *y, int64_t n, double deviation, const lvni_core_rng *rng);

#endif

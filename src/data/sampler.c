/* The order of an epoch (sampler.h). */
#include "data/sampler.h"

#include "core/rng.h"

void lvni_sampler_order(uint64_t seed, uint32_t epoch, uint32_t n, uint32_t *order)
{
    const lvni_rng rng = {.key = lvni_rng_make_key(seed, lvni_rng_purpose("order")), .a = epoch};
    uint64_t element = 0;
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
    }
    for (uint32_t i = n; i-- > 1;) {
        const uint32_t j = lvni_rng_below(&rng, i + 1, &element);
        const uint32_t swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
}

/* The order of an epoch (sampler.h). */
#include "data/sampler.h"

#include "core/rng.h"

#include <string.h>

void lvni_data_sampler_order(uint64_t seed, uint32_t epoch, uint32_t n, uint32_t *order)
{
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(seed, lvni_core_rng_purpose("order")),
                               .a = epoch};
    uint64_t element = 0;
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
    }
    for (uint32_t i = n; i-- > 1;) {
        const uint32_t j = lvni_core_rng_below(&rng, i + 1, &element);
        const uint32_t swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
}

void lvni_data_sampler_balanced(uint64_t seed, uint32_t epoch, const lvni_data_class_lists *lists,
                                uint32_t *order, uint32_t *repeat, uint32_t *drawn)
{
    const lvni_core_rng rng = {
        .key = lvni_core_rng_make_key(seed, lvni_core_rng_purpose("balanced")), .a = epoch};
    uint64_t element = 0;
    memset(drawn, 0, (size_t)lists->n * sizeof *drawn);
    for (int64_t p = 0; p < lists->n; p++) {
        const int k = lists->filled[lvni_core_rng_below(&rng, (uint32_t)lists->n_filled, &element)];
        const uint32_t i =
            lvni_core_rng_below(&rng, (uint32_t)lvni_data_class_count(lists, k), &element);
        order[p] = lists->position[lists->begin[k] + i];
        repeat[p] = drawn[order[p]]++;
    }
}

/* What every dataset has, whoever made it (dataset.h, levin/data.h). */
#include "data/dataset.h"

#include "core/rng.h"

int64_t lvni_data_dataset_index(const lvn_dataset *dataset, int64_t position)
{
    return dataset->cls->index != NULL ? dataset->cls->index(dataset, position) : position;
}

double lvn_sample_uniform(const lvn_sample_key *key, uint32_t operation, uint64_t element)
{
    /* A purpose of its own: a user's dataset around a built-in one draws other numbers than the
     * augmentation inside. */
    const lvni_core_rng rng = {lvni_core_rng_make_key(key->seed, lvni_core_rng_purpose("data/own")),
                               key->epoch, (uint32_t)key->sample, operation};
    return (double)lvni_core_rng_uniform(&rng, element);
}

void lvn_dataset_destroy(lvn_dataset *dataset)
{
    if (dataset != NULL && dataset->cls->destroy != NULL) {
        dataset->cls->destroy(dataset);
    }
}

/* What every dataset has, whoever made it (dataset.h, levin/data.h). */
#include "data/dataset.h"

int64_t lvni_dataset_index(const lvn_dataset *dataset, int64_t position)
{
    return dataset->cls->index != NULL ? dataset->cls->index(dataset, position) : position;
}

void lvn_dataset_destroy(lvn_dataset *dataset)
{
    if (dataset != NULL && dataset->cls->destroy != NULL) {
        dataset->cls->destroy(dataset);
    }
}

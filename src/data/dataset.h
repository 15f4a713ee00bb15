/* What every dataset has, whoever made it. Called by the loader, the recipes and the command. */
#ifndef LEVIN_DATA_DATASET_H
#define LEVIN_DATA_DATASET_H

#include <levin/data.h>

/* The whole-list index of position 0 <= position < length. */
int64_t lvni_data_dataset_index(const lvn_dataset *dataset, int64_t position);

#endif

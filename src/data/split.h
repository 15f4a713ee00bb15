/* The seeded per-class cut of a list into training and validation part (`val_split`). Called by the
 * recipes. */
#ifndef LEVIN_DATA_SPLIT_H
#define LEVIN_DATA_SPLIT_H

#include <levin/data.h>

/* Of each class, floor(count * val_split + 1/2) samples (at least 1, at most count - 1, for a class
 * of two or more; 0 for val_split = 0) go to validation: the last ones after a Fisher-Yates shuffle
 * of the class's samples in list order, i = count - 1 .. 1, swap with lvni_core_rng_below(i + 1),
 * stream key (seed, "split"), a = class, b = c = 0, elements from 0 on. labels[i] in 0 .. n_classes
 * - 1. Both lists ascend and hold indices of the whole list; they are the caller's
 * (lvni_core_free). 0 <= val_split < 1, else LVN_ERR_USAGE. */
lvn_status lvni_data_split(const int64_t *labels, int64_t n, int n_classes, double val_split,
                           uint64_t seed, int64_t **train, int64_t *n_train, int64_t **val,
                           int64_t *n_val);
/* The same over all samples of a dataset that knows its labels. */
lvn_status lvni_data_split_dataset(const lvn_dataset *dataset, double val_split, uint64_t seed,
                                   int64_t **train, int64_t *n_train, int64_t **val,
                                   int64_t *n_val);

#endif

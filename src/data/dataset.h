/* What all datasets share: the place of a sample in the whole list, subsets of it, and its split
 * into training and validation part (val_split). Called by the loader, the datasets and the
 * recipes. */
#ifndef LEVIN_DATA_DATASET_H
#define LEVIN_DATA_DATASET_H

#include <levin/data.h>

/* The whole-list index of position 0 <= position < length. */
int64_t lvni_data_dataset_index(const lvn_dataset *dataset, int64_t position);
/* "cat/7.jpg", or "sample 7" where the dataset has no names. Returns name or buffer. */
const char *lvni_data_dataset_sample_name(const lvn_dataset *dataset, int64_t sample,
                                          char buffer[32]);
/* The fields of its class; LVN_ERR_INVALID: a number of them that none has. */
lvn_status lvni_data_dataset_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS],
                                    int *n);
/* LVN_ERR_INVALID: a length that none has. */
lvn_status lvni_data_dataset_check_length(const lvn_dataset *dataset);

/* Which samples of a list a dataset shows: all of them, or chosen ones in a chosen order. */
typedef struct lvni_data_subset {
    int64_t *indices; /* NULL: all */
    int64_t n;
} lvni_data_subset;

/* Of a list of `total` samples; the n indices are copied, NULL: all. LVN_ERR_INVALID when one lies
 * outside; *out is then empty. */
lvn_status lvni_data_subset_create(const int64_t *indices, int64_t n, int64_t total,
                                   lvni_data_subset *out);
void lvni_data_subset_free(lvni_data_subset *subset);

static inline int64_t lvni_data_subset_at(const lvni_data_subset *subset, int64_t position)
{
    return subset->indices == NULL ? position : subset->indices[position];
}

/* Of each class, floor(count * val_split + 1/2) samples (at least 1, at most count - 1, for a class
 * of two or more; 0 for val_split = 0) go to validation: the last ones after a Fisher-Yates shuffle
 * of the class's samples in list order, i = count - 1 .. 1, swap with lvni_core_rng_below(i + 1),
 * stream key (seed, "split"), a = class, b = c = 0, elements from 0 on. labels[i] in 0 .. n_classes
 * - 1. Both lists ascend and hold indices of the whole list; they are the caller's
 * (lvni_core_free). 0 <= val_split < 1, else LVN_ERR_USAGE. */
lvn_status lvni_data_split(const int64_t *labels, int64_t n, int n_classes, double val_split,
                           uint64_t seed, int64_t **train, int64_t *n_train, int64_t **val,
                           int64_t *n_val);
/* Whether this machine has the memory for it; else what is missing, in one line (LVN_ERR_USAGE).
 * Otherwise the kernel ends the process after minutes. */
lvn_status lvni_data_split_fits(int64_t n);
/* The same over all samples of a dataset that knows its labels; without classes all are of one. */
lvn_status lvni_data_split_dataset(const lvn_dataset *dataset, double val_split, uint64_t seed,
                                   int64_t **train, int64_t *n_train, int64_t **val,
                                   int64_t *n_val);

#endif

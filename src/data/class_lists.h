/* The samples of each class, from the labels that a dataset knows without decoding. For the
 * balanced sampler (sampler.h, loader.c) and weights per class (recipes). */
#ifndef LEVIN_DATA_CLASS_LISTS_H
#define LEVIN_DATA_CLASS_LISTS_H

#include <levin/data.h>

typedef struct lvni_data_class_lists {
    int n_classes;
    int64_t n;
    int64_t *begin;     /* n_classes + 1: class k has positions begin[k] .. begin[k + 1] - 1 of */
    uint32_t *position; /* n positions in the dataset, ascending within a class */
    int *filled;        /* the n_filled classes that have samples, ascending */
    int n_filled;
} lvni_data_class_lists;

/* LVN_ERR_UNSUPPORTED: the dataset has no classes, or does not know its labels. LVN_ERR_INVALID: a
 * label is none of its classes. */
lvn_status lvni_data_class_lists_create(const lvn_dataset *dataset, lvni_data_class_lists **out);
void lvni_data_class_lists_destroy(lvni_data_class_lists *lists); /* NULL is fine */

static inline int64_t lvni_data_class_count(const lvni_data_class_lists *lists, int k)
{
    return lists->begin[k + 1] - lists->begin[k];
}

#endif

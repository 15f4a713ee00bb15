/* Which samples of a list a dataset shows: all of them, or chosen ones in a chosen order. Used by
 * the datasets of images. */
#ifndef LEVIN_DATA_SUBSET_H
#define LEVIN_DATA_SUBSET_H

#include <levin/status.h>

#include <stdint.h>

typedef struct lvni_data_subset {
    int64_t *indices; /* NULL: all */
    int64_t n;
} lvni_data_subset;

/* Of a list of `total` samples; the n indices are copied, NULL: all. LVN_ERR_ARG when one lies
 * outside; *out is then empty. */
lvn_status lvni_data_subset_create(const int64_t *indices, int64_t n, int64_t total,
                                   lvni_data_subset *out);
void lvni_data_subset_free(lvni_data_subset *subset);

static inline int64_t lvni_data_subset_at(const lvni_data_subset *subset, int64_t position)
{
    return subset->indices == NULL ? position : subset->indices[position];
}

#endif

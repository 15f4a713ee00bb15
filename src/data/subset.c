/* Chosen samples (subset.h). */
#include "data/subset.h"

#include "core/alloc.h"

#include <string.h>

lvn_status lvni_data_subset_create(const int64_t *indices, int64_t n, int64_t total,
                                   lvni_data_subset *out)
{
    *out = (lvni_data_subset){.n = 0};
    if (indices == NULL) {
        out->n = total;
        return LVN_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        LVN_ARG(indices[i] >= 0 && indices[i] < total,
                "index %lld lies outside the list of %lld samples", (long long)indices[i],
                (long long)total);
    }
    out->indices = lvni_core_alloc(LVNI_TAG_DATA, (size_t)n * sizeof *indices);
    if (out->indices == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(out->indices, indices, (size_t)n * sizeof *indices);
    out->n = n;
    return LVN_OK;
}

void lvni_data_subset_free(lvni_data_subset *subset)
{
    lvni_core_free(subset->indices);
    *subset = (lvni_data_subset){.n = 0};
}

/* Rows of features as ranks give them, in the order of the data: of which image each is, and
 * whether it can be used (pretrain.h). For votes of neighbours and for a linear classifier. */
#include "recipes/pretrain/pretrain.h"

#include "core/error.h"
#include "core/math.h"
#include "data/dataset.h"

#include <math.h>
#include <stdio.h>

static lvn_status fail_number(const lvn_dataset *data, int64_t sample, float value)
{
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)sample);
    const char *name = data->cls->sample_name == NULL ? NULL : data->cls->sample_name(data, sample);
    LVN_FAIL(LVN_ERR_NON_FINITE, "the network gives %g as a feature of image %s",
             lvni_core_unsigned_nan((double)value), name == NULL ? number : name);
}

lvn_status lvni_pretrain_check_row(const lvn_dataset *data, int64_t sample, const float *value,
                                   int64_t dim)
{
    for (int64_t d = 0; d < dim; d++) {
        if (!isfinite(value[d])) {
            return fail_number(data, sample, value[d]);
        }
    }
    return LVN_OK;
}

double lvni_pretrain_row_length(const float *value, int64_t n)
{
    double squares = 0.0;
    for (int64_t d = 0; d < n; d++) {
        squares += (double)value[d] * (double)value[d];
    }
    return squares > 1e-24 ? lvni_core_sqrt(squares) : 1e-12;
}

lvn_status lvni_pretrain_images_place(const lvni_pretrain_images_used *of, int64_t *at,
                                      int64_t sample, const float *value, int64_t dim,
                                      lvni_pretrain_place *out)
{
    LVN_TRY(lvni_pretrain_check_row(of->data, sample, value, dim));
    while (lvni_data_dataset_index(of->data, *at) != sample) {
        ++*at; /* images that cannot be read have no row */
    }
    *out = (lvni_pretrain_place){.label = of->data->cls->label(of->data, sample),
                                 .is_reference = (*at)++ < of->references};
    return LVN_OK;
}

bool lvni_pretrain_is_among(const double *value, int64_t n, int64_t label, int k)
{
    int64_t before = 0;
    for (int64_t c = 0; c < n; c++) {
        before += value[c] > value[label] || (value[c] == value[label] && c < label);
    }
    return before < k && !isnan(value[label]);
}

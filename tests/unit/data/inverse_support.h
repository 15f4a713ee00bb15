/* Samples of inverse problems, for their tests. */
#ifndef LEVIN_TESTS_INVERSE_SUPPORT_H
#define LEVIN_TESTS_INVERSE_SUPPORT_H

#include "data/inverse.h"

/* Memory for one sample of a dataset. */
typedef struct inverse_sample {
    int n_fields;
    lvn_field fields[LVN_MAX_FIELDS];
    float *field[LVN_MAX_FIELDS];
    size_t size[LVN_MAX_FIELDS];
} inverse_sample;

static inline double inverse_at(const inverse_sample *s, int field, size_t i)
{
    return (double)s->field[field][i];
}

lvn_dataset *inverse_open(const lvni_data_inverse_options *options); /* asserts that it opens */
/* The error of opening it. */
lvn_status inverse_refuses(const lvni_data_inverse_options *options, const char *message);
inverse_sample inverse_sample_make(const lvn_dataset *dataset);
void inverse_sample_free(inverse_sample *s);
void inverse_get(const lvn_dataset *dataset, int64_t sample, uint64_t seed, uint32_t epoch,
                 bool training, inverse_sample *out);
bool inverse_equal(const inverse_sample *a, const inverse_sample *b);
/* Samples of a training set: equal from several threads in another order, other noise in another
 * epoch and with another seed, the same noise without training. */
void inverse_check_keys(const lvni_data_inverse_options *options);
/* Samples 0 and 1 of a set have the bits of this hash, on every machine and for ever. */
void inverse_check_bits(const lvni_data_inverse_options *options, uint64_t hash);
/* Whichever allocation fails while it opens and reads a sample, nothing is left behind. */
void inverse_check_memory(const lvni_data_inverse_options *options);

#endif

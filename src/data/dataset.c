/* Positions and samples of datasets: whole lists, chosen subsets, the split into training and
 * validation (dataset.h, levin/data.h). */
#include "data/dataset.h"

#include "core/alloc.h"
#include "core/machine.h"
#include "core/rng.h"
#include "data/sampler.h"

#include <stdio.h>
#include <string.h>

int64_t lvni_data_dataset_index(const lvn_dataset *dataset, int64_t position)
{
    return dataset->cls->index != NULL ? dataset->cls->index(dataset, position) : position;
}

const char *lvni_data_dataset_sample_name(const lvn_dataset *d, int64_t sample, char buffer[32])
{
    const char *name = d->cls->sample_name != NULL ? d->cls->sample_name(d, sample) : NULL;
    if (name == NULL) {
        snprintf(buffer, 32, "sample %lld", (long long)sample);
        name = buffer;
    }
    return name;
}

lvn_status lvni_data_dataset_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS],
                                    int *n)
{
    *n = dataset->cls->fields(dataset, out);
    LVN_ARG(*n >= 1 && *n <= LVN_MAX_FIELDS, "dataset %s has %d fields; 1 to %d are possible",
            dataset->cls->name, *n, LVN_MAX_FIELDS);
    return LVN_OK;
}

lvn_status lvni_data_dataset_check_length(const lvn_dataset *dataset)
{
    const int64_t n = dataset->cls->length(dataset);
    LVN_ARG(n >= 0 || n == LVN_ENDLESS,
            "length() of the dataset %s returned %lld; it is 0 or more, or LVN_ENDLESS (-1)",
            dataset->cls->name, (long long)n);
    return LVN_OK;
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
        const lvn_error error = *lvn_last_error(); /* a user's may set one */
        dataset->cls->destroy(dataset);
        lvn_error_adopt(&error);
    }
}

/* ---- subsets ---- */

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

/* ---- training and validation part ---- */

static int64_t val_count(int64_t count, double val_split)
{
    if (count < 2 || !(val_split > 0.0)) {
        return 0;
    }
    const int64_t k = (int64_t)((double)count * val_split + 0.5);
    return k < 1 ? 1 : k > count - 1 ? count - 1 : k;
}

/* Mark the validation samples of one class; members: its samples in list order. */
static void mark_class(int64_t *members, int64_t count, int label, double val_split, uint64_t seed,
                       bool *is_val)
{
    const lvni_core_rng rng = {lvni_core_rng_make_key(seed, lvni_core_rng_purpose("split")),
                               (uint32_t)label, 0, 0};
    uint64_t element = 0;
    for (int64_t i = count - 1; i > 0; i--) {
        const int64_t j = lvni_core_rng_below(&rng, (uint32_t)i + 1, &element);
        const int64_t swapped = members[i];
        members[i] = members[j];
        members[j] = swapped;
    }
    for (int64_t i = count - val_count(count, val_split); i < count; i++) {
        is_val[members[i]] = true;
    }
}

static void split_fill(const bool *is_val, int64_t n, int64_t *train, int64_t *n_train,
                       int64_t *val, int64_t *n_val)
{
    *n_train = *n_val = 0;
    for (int64_t i = 0; i < n; i++) {
        if (is_val[i]) {
            val[(*n_val)++] = i;
        } else {
            train[(*n_train)++] = i;
        }
    }
}

static lvn_status check(const int64_t *labels, int64_t n, int n_classes, double val_split)
{
    if (!(val_split >= 0.0 && val_split < 1.0)) {
        LVN_FAIL(LVN_ERR_USAGE, "val_split is %g; it must be at least 0 and less than 1",
                 val_split);
    }
    for (int64_t i = 0; i < n; i++) {
        LVN_ARG(labels[i] >= 0 && labels[i] < n_classes, "sample %lld has label %lld of %d classes",
                (long long)i, (long long)labels[i], n_classes);
    }
    return LVN_OK;
}

lvn_status lvni_data_split(const int64_t *labels, int64_t n, int n_classes, double val_split,
                           uint64_t seed, int64_t **train, int64_t *n_train, int64_t **val,
                           int64_t *n_val)
{
    *train = *val = NULL;
    LVN_TRY(check(labels, n, n_classes, val_split));
    bool *is_val = lvni_core_calloc(LVNI_TAG_DATA, (size_t)n, sizeof *is_val);
    int64_t *members = lvni_core_alloc(LVNI_TAG_DATA, (size_t)n * sizeof *members);
    *train = lvni_core_alloc(LVNI_TAG_DATA, (size_t)n * sizeof **train);
    *val = lvni_core_alloc(LVNI_TAG_DATA, (size_t)n * sizeof **val);
    lvn_status status = LVN_ERR_MEMORY;
    if (is_val != NULL && members != NULL && *train != NULL && *val != NULL) {
        for (int label = 0; label < n_classes; label++) {
            int64_t count = 0;
            for (int64_t i = 0; i < n; i++) {
                if (labels[i] == label) {
                    members[count++] = i;
                }
            }
            mark_class(members, count, label, val_split, seed, is_val);
        }
        split_fill(is_val, n, *train, n_train, *val, n_val);
        status = LVN_OK;
    } else {
        lvni_core_free(*train);
        lvni_core_free(*val);
        *train = *val = NULL;
    }
    lvni_core_free(members);
    lvni_core_free(is_val);
    return status;
}

lvn_status lvni_data_split_fits(int64_t n)
{
    enum { SAMPLE = 4 * sizeof(int64_t) + sizeof(bool) }; /* labels, members, both parts, a mark */
    if (n > (int64_t)UINT32_MAX) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%lld samples are more than can be divided into training and validation (2^32 - "
                 "1); use fewer (data.count)",
                 (long long)n);
    }
    const uint64_t available = lvni_core_machine_memory("");
    if (n > LVNI_DATA_SHUFFLED_MAX && (uint64_t)n * SAMPLE > available) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "dividing %lld samples into training and validation takes %.1f GiB of memory (%d "
                 "bytes a sample), and %.1f GiB are available; use fewer (data.count), or a "
                 "machine with more memory",
                 (long long)n, (double)n * SAMPLE / 0x1p30, (int)SAMPLE,
                 (double)available / 0x1p30);
    }
    return LVN_OK;
}

lvn_status lvni_data_split_dataset(const lvn_dataset *dataset, double val_split, uint64_t seed,
                                   int64_t **train, int64_t *n_train, int64_t **val, int64_t *n_val)
{
    *train = *val = NULL;
    const bool labelled = dataset->n_classes > 0;
    LVN_ARG(dataset->cls->label != NULL || !labelled, "the dataset %s has no labels to split by",
            dataset->cls->name);
    const int64_t n = dataset->cls->length(dataset);
    LVN_TRY(lvni_data_split_fits(n));
    int64_t *labels = lvni_core_alloc(LVNI_TAG_DATA, (size_t)n * sizeof *labels);
    if (labels == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < n; i++) {
        labels[i] = labelled ? dataset->cls->label(dataset, i) : 0;
    }
    const lvn_status status = lvni_data_split(labels, n, labelled ? dataset->n_classes : 1,
                                              val_split, seed, train, n_train, val, n_val);
    lvni_core_free(labels);
    return status;
}

/* The samples of each class, and the order of an epoch (sampler.h). */
#include "data/sampler.h"

#include "core/alloc.h"
#include "core/rng.h"
#include "data/dataset.h"

#include <string.h>

/* ---- samples of each class ---- */

static int64_t label_of(const lvn_dataset *d, int64_t position)
{
    return d->cls->label(d, lvni_data_dataset_index(d, position));
}

static lvn_status count(const lvn_dataset *d, lvni_data_class_lists *c)
{
    for (int64_t i = 0; i < c->n; i++) {
        const int64_t label = label_of(d, i);
        LVN_ARG(label >= 0 && label < c->n_classes,
                "sample %lld of the dataset %s has label %lld, but there are %d classes",
                (long long)lvni_data_dataset_index(d, i), d->cls->name, (long long)label,
                c->n_classes);
        c->begin[label + 1]++;
    }
    for (int k = 0; k < c->n_classes; k++) {
        c->begin[k + 1] += c->begin[k];
    }
    return LVN_OK;
}

/* begin[k] moves to the end of its class, which is the beginning of the next one. */
static void fill(const lvn_dataset *d, lvni_data_class_lists *c)
{
    for (int64_t i = 0; i < c->n; i++) {
        c->position[c->begin[label_of(d, i)]++] = (uint32_t)i;
    }
    for (int k = c->n_classes; k > 0; k--) {
        c->begin[k] = c->begin[k - 1];
    }
    c->begin[0] = 0;
    for (int k = 0; k < c->n_classes; k++) {
        if (lvni_data_class_count(c, k) > 0) {
            c->filled[c->n_filled++] = k;
        }
    }
}

lvn_status lvni_data_class_lists_create(const lvn_dataset *d, lvni_data_class_lists **out)
{
    *out = NULL;
    const int64_t n = d->cls->length(d);
    if (d->n_classes < 1 || d->cls->label == NULL || n > (int64_t)UINT32_MAX) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "the dataset %s does not list the classes of its samples",
                 d->cls->name);
    }
    lvni_data_class_lists *c = LVNI_NEW(LVNI_TAG_DATA, lvni_data_class_lists);
    if (c == NULL) {
        return LVN_ERR_MEMORY;
    }
    c->n_classes = d->n_classes;
    c->n = n;
    c->begin = lvni_core_calloc(LVNI_TAG_DATA, (size_t)c->n_classes + 1, sizeof *c->begin);
    c->position = lvni_core_calloc(LVNI_TAG_DATA, (size_t)n, sizeof *c->position);
    c->filled = lvni_core_calloc(LVNI_TAG_DATA, (size_t)c->n_classes, sizeof *c->filled);
    const bool room = c->begin != NULL && c->position != NULL && c->filled != NULL;
    const lvn_status s = room ? count(d, c) : LVN_ERR_MEMORY;
    if (s != LVN_OK) {
        lvni_data_class_lists_destroy(c);
        return s;
    }
    fill(d, c);
    *out = c;
    return LVN_OK;
}

void lvni_data_class_lists_destroy(lvni_data_class_lists *c)
{
    if (c != NULL) {
        lvni_core_free(c->begin);
        lvni_core_free(c->position);
        lvni_core_free(c->filled);
        lvni_core_free(c);
    }
}

/* ---- orders ---- */

void lvni_data_sampler_order(uint64_t seed, uint32_t epoch, uint32_t n, uint32_t *order)
{
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(seed, lvni_core_rng_purpose("order")),
                               .a = epoch};
    uint64_t element = 0;
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
    }
    for (uint32_t i = n; i-- > 1;) {
        const uint32_t j = lvni_core_rng_below(&rng, i + 1, &element);
        const uint32_t swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
}

uint32_t lvni_data_sampler_at(uint64_t seed, uint32_t epoch, uint32_t n, uint32_t position)
{
    enum { ROUNDS = 6 };
    const lvni_core_rng rng = {
        .key = lvni_core_rng_make_key(seed, lvni_core_rng_purpose("order/large")), .a = epoch};
    int half = 1; /* bits */
    while (half < 16 && n > (uint32_t)1 << 2 * half) {
        half++;
    }
    const uint32_t mask = ((uint32_t)1 << half) - 1;
    uint32_t at = position;
    do {
        uint32_t left = at >> half, right = at & mask;
        for (uint64_t r = 0; r < ROUNDS; r++) {
            const uint32_t next = left ^ (lvni_core_rng_u32(&rng, r << 16 | right) & mask);
            left = right;
            right = next;
        }
        at = left << half | right;
    } while (at >= n);
    return at;
}

void lvni_data_sampler_balanced(uint64_t seed, uint32_t epoch, const lvni_data_class_lists *lists,
                                uint32_t *order, uint32_t *repeat, uint32_t *drawn)
{
    const lvni_core_rng rng = {
        .key = lvni_core_rng_make_key(seed, lvni_core_rng_purpose("balanced")), .a = epoch};
    uint64_t element = 0;
    memset(drawn, 0, (size_t)lists->n * sizeof *drawn);
    for (int64_t p = 0; p < lists->n; p++) {
        const int k = lists->filled[lvni_core_rng_below(&rng, (uint32_t)lists->n_filled, &element)];
        const uint32_t i =
            lvni_core_rng_below(&rng, (uint32_t)lvni_data_class_count(lists, k), &element);
        order[p] = lists->position[lists->begin[k] + i];
        repeat[p] = drawn[order[p]]++;
    }
}

void lvni_data_sampler_replacement(uint64_t seed, uint32_t epoch, uint32_t n, uint32_t *order,
                                   uint32_t *repeat, uint32_t *drawn)
{
    const lvni_core_rng rng = {
        .key = lvni_core_rng_make_key(seed, lvni_core_rng_purpose("replacement")), .a = epoch};
    uint64_t element = 0;
    memset(drawn, 0, (size_t)n * sizeof *drawn);
    for (uint32_t p = 0; p < n; p++) {
        order[p] = lvni_core_rng_below(&rng, n, &element);
        repeat[p] = drawn[order[p]]++;
    }
}

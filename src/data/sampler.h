/* The order of an epoch, from (seed, epoch) alone: the Fisher-Yates shuffle of
 * docs/reproducibility.md, a permutation without memory, or draws balanced over the classes. Called
 * by the loader; the lists of each class also serve the recipes' class weights.
 * tests/unit/data/order.py is the same in Python. */
#ifndef LEVIN_DATA_SAMPLER_H
#define LEVIN_DATA_SAMPLER_H

#include <levin/data.h>

/* The samples of each class, from the labels that a dataset knows without decoding. */
typedef struct lvni_data_class_lists {
    int n_classes;
    int64_t n;
    int64_t *begin;     /* n_classes + 1: class k has positions begin[k] .. begin[k + 1] - 1 of */
    uint32_t *position; /* n positions in the dataset, ascending within a class */
    int *filled;        /* the n_filled classes that have samples, ascending */
    int n_filled;
} lvni_data_class_lists;

/* LVN_ERR_UNSUPPORTED: the dataset has no classes, or does not know its labels. LVN_ERR_INVALID: a
 * label is out of range. */
lvn_status lvni_data_class_lists_create(const lvn_dataset *dataset, lvni_data_class_lists **out);
void lvni_data_class_lists_destroy(lvni_data_class_lists *lists); /* NULL is fine */

static inline int64_t lvni_data_class_count(const lvni_data_class_lists *lists, int k)
{
    return lists->begin[k + 1] - lists->begin[k];
}

/* order[0 .. n-1] becomes a permutation of 0 .. n-1: order[p] is the sample at position p of the
 * epoch. n < 2^32. For i = n-1 down to 1 entries i and j are swapped, j drawn below i+1 from the
 * stream of purpose "order" with a = epoch; the element counter starts at 0 and runs on. */
void lvni_data_sampler_order(uint64_t seed, uint32_t epoch, uint32_t n, uint32_t *order);

/* The shuffle of more samples takes longer than a start may, and their order too much memory. */
#define LVNI_DATA_SHUFFLED_MAX ((int64_t)1 << 27)

/* The sample at one position of an epoch of more than LVNI_DATA_SHUFFLED_MAX samples; works for any
 * 1 <= n < 2^32. A Feistel network of six rounds on 2h bits, the least with n <= 2^2h, applied
 * until the result is below n. Round r replaces (left, right), h bits each, by (right, left ^ the
 * lowest h bits of element r * 2^16 + right) of the stream of purpose "order/large" with a = epoch.
 */
uint32_t lvni_data_sampler_at(uint64_t seed, uint32_t epoch, uint32_t n, uint32_t position);

/* With replacement, every class that has samples equally often: torch's WeightedRandomSampler with
 * weights 1 / samples of the class. Position p of the epoch, p = 0 .. lists->n - 1 in turn: a class
 * drawn below their number, in ascending order, then one of its samples drawn below its count, from
 * the stream of purpose "balanced" with a = epoch; the element counter runs on. repeat[p]: how
 * often order[p] was drawn before in this epoch. All three arrays have lists->n entries; drawn[i]
 * becomes the draws of position i. */
void lvni_data_sampler_balanced(uint64_t seed, uint32_t epoch, const lvni_data_class_lists *lists,
                                uint32_t *order, uint32_t *repeat, uint32_t *drawn);
/* With replacement, every sample equally likely: order[p] is drawn below n for p = 0 .. n - 1 in
 * turn, from the stream of purpose "replacement" with a = epoch; the element counter runs on.
 * Arrays as above. */
void lvni_data_sampler_replacement(uint64_t seed, uint32_t epoch, uint32_t n, uint32_t *order,
                                   uint32_t *repeat, uint32_t *drawn);
/* The seed of a sample's data key, so that repeats within an epoch are augmented differently: seed
 * + repeat x 2^40. */
static inline uint64_t lvni_data_sampler_data_seed(uint64_t seed, uint32_t repeat)
{
    return seed + ((uint64_t)repeat << 40);
}

#endif

/* The order of an epoch, from (seed, epoch) alone: the Fisher-Yates shuffle of the law (design.md 2). The
 * loader asks; tests/unit/data/order.py is the same in Python. */
#ifndef LEVIN_DATA_SAMPLER_H
#define LEVIN_DATA_SAMPLER_H

#include <stdint.h>

/* order[0 .. n-1] becomes a permutation of 0 .. n-1: order[p] is the sample at position p of the epoch. n <
 * 2^32. For i = n-1 down to 1 entries i and j are swapped, j drawn below i+1 from the stream of purpose
 * "order" with a = epoch; the element counter starts at 0 and runs on. */
void lvni_sampler_order(uint64_t seed, uint32_t epoch, uint32_t n, uint32_t *order);

#endif

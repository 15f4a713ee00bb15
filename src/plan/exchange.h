/* Who adds what when the gradients of several ranks become one: the flat set is cut into buckets, a
 * bucket into one slice per rank, all on borders of the norm's blocks (docs/reproducibility.md). */
#ifndef LEVIN_PLAN_EXCHANGE_H
#define LEVIN_PLAN_EXCHANGE_H

#include "plan/plan.h"

enum { LVNI_EXCHANGE_BLOCK = 4096 }; /* floats */

/* A set of n floats in buckets of `bucket` floats (a multiple of the block; 0: one bucket), for
 * `world` ranks. parts > 0: its first `parts` floats are weights, and the slices of a rank are what
 * buckets have of its part of them: [border[rank], border[rank + 1]), ascending, on borders of
 * blocks except for the last, which is `parts`, the caller's memory; border NULL:
 * lvni_plan_exchange_part. What is behind is the last rank's. */
typedef struct lvni_plan_exchange {
    int64_t n, bucket;
    int world;
    int64_t parts;
    const int64_t *border;
} lvni_plan_exchange;

int64_t lvni_plan_exchange_buckets(const lvni_plan_exchange *e); /* 0 for n = 0 */
lvni_plan_range lvni_plan_exchange_bucket(const lvni_plan_exchange *e, int64_t b);
/* The part of bucket b that `rank` adds; count may be 0. Slices of a bucket differ by at most one
 * block; the rank that begins changes from bucket to bucket, so that odd blocks do not all fall to
 * the same one. */
lvni_plan_range lvni_plan_exchange_slice(const lvni_plan_exchange *e, int64_t b, int rank);
/* The contiguous part of n floats that `rank` of `world` has: on borders of blocks, parts differ by
 * at most one block; count may be 0. */
lvni_plan_range lvni_plan_exchange_part(int64_t n, int world, int rank);

#endif

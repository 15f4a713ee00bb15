/* Buckets, slices and their bytes (exchange.h). */
#include "plan/exchange.h"

static int64_t bucket_size(const lvni_plan_exchange *e)
{
    return e->bucket > 0 ? e->bucket : e->n;
}

int64_t lvni_plan_exchange_buckets(const lvni_plan_exchange *e)
{
    return e->n > 0 ? (e->n + bucket_size(e) - 1) / bucket_size(e) : 0;
}

lvni_plan_range lvni_plan_exchange_bucket(const lvni_plan_exchange *e, int64_t b)
{
    const int64_t start = b * bucket_size(e), left = e->n - start;
    return (lvni_plan_range){start, left < bucket_size(e) ? left : bucket_size(e)};
}

lvni_plan_range lvni_plan_exchange_part(int64_t n, int world, int rank)
{
    const int64_t blocks = (n + LVNI_EXCHANGE_BLOCK - 1) / LVNI_EXCHANGE_BLOCK;
    const int64_t from = blocks * rank / world * LVNI_EXCHANGE_BLOCK,
                  to = blocks * (rank + 1) / world * LVNI_EXCHANGE_BLOCK,
                  begin = from < n ? from : n;
    return (lvni_plan_range){begin, (to < n ? to : n) - begin};
}

static lvni_plan_range part_of(const lvni_plan_exchange *e, int rank)
{
    return e->border != NULL
               ? (lvni_plan_range){e->border[rank], e->border[rank + 1] - e->border[rank]}
               : lvni_plan_exchange_part(e->parts, e->world, rank);
}

/* What the bucket has of the rank's part. */
static lvni_plan_range slice_of_part(const lvni_plan_exchange *e, lvni_plan_range bucket, int rank)
{
    const lvni_plan_range part = part_of(e, rank);
    const int64_t end = rank == e->world - 1 ? e->n : part.start + part.count;
    const int64_t from = part.start > bucket.start ? part.start : bucket.start,
                  to = end < bucket.start + bucket.count ? end : bucket.start + bucket.count;
    return from < to ? (lvni_plan_range){from, to - from} : (lvni_plan_range){bucket.start, 0};
}

lvni_plan_range lvni_plan_exchange_slice(const lvni_plan_exchange *e, int64_t b, int rank)
{
    const lvni_plan_range bucket = lvni_plan_exchange_bucket(e, b);
    if (e->parts > 0) {
        return slice_of_part(e, bucket, rank);
    }
    const int64_t blocks = (bucket.count + LVNI_EXCHANGE_BLOCK - 1) / LVNI_EXCHANGE_BLOCK;
    const int64_t part = (rank + b) % e->world;
    const int64_t from = blocks * part / e->world * LVNI_EXCHANGE_BLOCK;
    const int64_t to = blocks * (part + 1) / e->world * LVNI_EXCHANGE_BLOCK;
    return (lvni_plan_range){bucket.start + from, (to < bucket.count ? to : bucket.count) - from};
}

/* Buckets and slices: every float once, on block borders, evenly. */
#include "plan/exchange.h"
#include "support/test.h"

enum { BLOCK = LVNI_EXCHANGE_BLOCK };

/* Floats of all its slices. */
static int64_t owned_by(const lvni_plan_exchange *e, int rank)
{
    int64_t owned = 0;
    for (int64_t b = 0; b < lvni_plan_exchange_buckets(e); b++) {
        owned += lvni_plan_exchange_slice(e, b, rank).count;
    }
    return owned;
}

TEST(every_float_has_one_owner)
{
    static const int64_t sizes[] = {0, 1, BLOCK, 5 * BLOCK + 3, 100 * BLOCK + 1};
    static const int64_t buckets[] = {0, BLOCK, 7 * BLOCK};
    for (int i = 0; i < 5 * 3 * 13; i++) {
        const lvni_plan_exchange e = {sizes[i % 5], buckets[i / 5 % 3], 1 + i / 15, 0, NULL};
        int64_t at = 0, owned = 0;
        for (int64_t b = 0; b < lvni_plan_exchange_buckets(&e); b++) {
            const lvni_plan_range bucket = lvni_plan_exchange_bucket(&e, b);
            assert_int_equal(bucket.start, at);
            int64_t least = bucket.count, most = 0, covered = 0;
            for (int r = 0; r < e.world; r++) {
                const lvni_plan_range slice = lvni_plan_exchange_slice(&e, b, r);
                assert_true(slice.count >= 0 && slice.start >= bucket.start &&
                            slice.start + slice.count <= bucket.start + bucket.count);
                assert_true(slice.count == 0 || slice.start % BLOCK == 0);
                covered += slice.count;
                least = slice.count < least ? slice.count : least;
                most = slice.count > most ? slice.count : most;
            }
            assert_int_equal(covered, bucket.count);
            assert_true(most - least <= BLOCK);
            at += bucket.count;
        }
        assert_int_equal(at, e.n);
        for (int r = 0; r < e.world; r++) {
            owned += owned_by(&e, r);
        }
        assert_int_equal(owned, e.n);
    }
}

TEST(blocks_left_over_go_round)
{
    const lvni_plan_exchange e = {8 * BLOCK, BLOCK, 4, 0,
                                  NULL}; /* one block per bucket, four ranks */
    for (int r = 0; r < 4; r++) {
        assert_int_equal(owned_by(&e, r), 2 * BLOCK);
    }
}

/* One contiguous part of the weights each, cut at the buckets; what is behind is the last one's. */
TEST(parts_are_contiguous)
{
    static const int64_t weights[] = {1, BLOCK, 5 * BLOCK + 3, 100 * BLOCK + 1};
    static const int64_t buckets[] = {0, BLOCK, 7 * BLOCK};
    for (int i = 0; i < 4 * 3 * 13 * 2; i++) {
        const int64_t n = weights[i % 4], records = i % 2 == 0 ? 0 : BLOCK + 9;
        const lvni_plan_exchange e = {n + records, buckets[i / 4 % 3], 1 + i / 24, n, NULL};
        int64_t at = 0;
        for (int r = 0; r < e.world; r++) {
            const lvni_plan_range part = lvni_plan_exchange_part(n, e.world, r);
            int64_t next = part.start;
            assert_int_equal(part.start, at);
            assert_true(part.start % BLOCK == 0 && part.count >= 0);
            assert_true(part.count <= (n / BLOCK / e.world + 2) * BLOCK);
            for (int64_t b = 0; b < lvni_plan_exchange_buckets(&e); b++) {
                const lvni_plan_range slice = lvni_plan_exchange_slice(&e, b, r);
                assert_true(slice.count == 0 || slice.start == next);
                next += slice.count;
            }
            at += part.count;
            assert_int_equal(next, at + (r == e.world - 1 ? records : 0));
            assert_int_equal(owned_by(&e, r), next - part.start);
        }
        assert_int_equal(at, n);
    }
}

/* Borders of the caller's: parts of 0, 3, 4 blocks and of a little more than one. */
TEST(parts_end_at_the_borders_of_the_caller)
{
    const int64_t n = 8 * BLOCK + 3, records = 7, border[] = {0, 0, 3 * BLOCK, 7 * BLOCK, n},
                  owned[] = {0, 3, 4, 1};
    const lvni_plan_exchange e = {n + records, 2 * BLOCK, 4, n, border};
    for (int r = 0; r < e.world; r++) {
        for (int64_t b = 0; b < lvni_plan_exchange_buckets(&e); b++) {
            const lvni_plan_range slice = lvni_plan_exchange_slice(&e, b, r);
            assert_true(slice.count == 0 ||
                        (slice.start >= border[r] &&
                         slice.start + slice.count <= border[r + 1] + (r == 3 ? records : 0)));
        }
        assert_int_equal(owned_by(&e, r), owned[r] * BLOCK + (r == 3 ? 3 + records : 0));
    }
}

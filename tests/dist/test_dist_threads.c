/* The conformance suite on one rank and on ranks that are threads of this process: what TSan can
 * look at. */
#include "dist_cases.h"
#include "support/sanitized.h"
#include "support/test.h"

#include "core/alloc.h"
#include "core/machine.h"
#include "dist/transport.h"

#include <stdatomic.h>
#include <string.h>

static void on_threads(dist_body body, bool check, int arg)
{
    const dist_case c = {"", body, check, 0};
    static const int worlds[] = {1, 2, 3, 5};
    assert_true(dist_run_self(&c, arg));
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        assert_true(dist_run_threads(&c, worlds[i], arg));
    }
}

TEST(collectives_add_in_the_tree)
{
    on_threads(dist_case_reduce, false, 0);
}

TEST(collectives_move_bytes)
{
    on_threads(dist_case_move, false, 0);
    on_threads(dist_case_move, true, 0);
}

TEST(shared_memory_is_given_and_refused)
{
    on_threads(dist_case_memory, false, 0);
}

TEST(ranks_send_to_each_other)
{
    on_threads(dist_case_passing, false, 0);
}

TEST(bytes_are_counted)
{
    on_threads(dist_case_count, false, 0);
}

TEST(different_calls_are_named)
{
    on_threads(dist_case_mismatch, true, 0);
}

TEST(abort_reaches_every_rank)
{
    on_threads(dist_case_abort, false, 0);
    on_threads(dist_case_abort_for, false, 0);
}

TEST(one_rank_claims)
{
    on_threads(dist_case_claim, false, 0);
}

TEST(a_rank_that_leaves_is_missed)
{
    on_threads(dist_case_left, false, 0);
}

TEST(reductions_give_one_sum)
{
    const dist_case c = {"", dist_case_reduction, false, 0};
    for (int micro_batches = 1; micro_batches <= 13; micro_batches += SANITIZED ? 4 : 1) {
        assert_true(dist_run_self(&c, micro_batches));
        for (int world = 1; world <= micro_batches; world++) {
            assert_true(dist_run_threads(&c, world, micro_batches));
        }
    }
}

TEST(reductions_stand_delays)
{
    on_threads(dist_case_reduction_race, false, 12);
    on_threads(dist_case_reduction_race, true, 3);
}

TEST(reductions_refuse_what_cannot_be)
{
    on_threads(dist_case_reduction_options, false, 0);
    on_threads(dist_case_reduction_memory, false, 0);
}

/* One rank's way through all that allocates. */
static lvn_status allocate(bool threads)
{
    lvni_dist_comm *comm = NULL;
    lvn_status status =
        threads ? lvni_dist_comm_threads(1, false, &comm) : lvni_dist_comm_self(&comm);
    if (status == LVN_OK) {
        status = dist_allocate(comm);
    }
    lvni_dist_comm_destroy(comm);
    return status;
}

TEST(every_allocation_may_fail)
{
    for (int threads = 0; threads < 2; threads++) {
        const uint64_t before = lvni_core_alloc_get_stats(LVNI_TAG_DIST).live_bytes;
        lvn_status status = LVN_ERR_MEMORY;
        int64_t k = 0;
        while (status != LVN_OK) {
            k++;
            assert_true(k < 100);
            lvni_core_alloc_fail_at(k);
            status = allocate(threads != 0);
            lvni_core_alloc_fail_at(0);
            assert_true(status == LVN_OK || status == LVN_ERR_MEMORY);
            assert_int_equal(lvni_core_alloc_get_stats(LVNI_TAG_DIST).live_bytes, before);
        }
        assert_true(k > 5);
    }
}

static _Atomic int failed_ranks;

/* The allocation number `arg` of all ranks together fails, on any of them; the others do not wait
 * for it, and get the reason. */
static bool one_allocation_fails(dist_rank *me)
{
    RANK_CHECK(me, lvni_dist_comm_barrier(me->comm) == LVN_OK, "begin");
    if (me->rank == 0) {
        lvni_core_alloc_fail_at(me->arg);
    }
    RANK_CHECK(me, lvni_dist_comm_barrier(me->comm) == LVN_OK, "begin");
    const lvn_status status = dist_allocate(me->comm);
    failed_ranks += status != LVN_OK;
    RANK_CHECK(me, status == LVN_OK || status == LVN_ERR_MEMORY || status == LVN_ERR_PEER,
               "status %d", (int)status);
    RANK_CHECK(me, status == LVN_OK || strstr(lvn_last_error()->message, "memory") != NULL,
               "the error does not name it");
    return true;
}

TEST(a_failed_allocation_ends_all_ranks)
{
    enum { WORLD = 3 };
    const dist_case c = {"", one_allocation_fails, false, 0};
    int k = 0;
    for (bool done = false; !done;) {
        const uint64_t start = lvni_core_now_ns(),
                       before = lvni_core_alloc_get_stats(LVNI_TAG_DIST).live_bytes;
        k++;
        failed_ranks = 0;
        assert_true(dist_run_threads(&c, WORLD, k));
        done = lvni_core_alloc_fail_at(0) > 0;
        assert_int_equal(failed_ranks, done ? 0 : WORLD);
        assert_true(lvni_core_seconds_since(start) < 2.0);
        assert_int_equal(lvni_core_alloc_get_stats(LVNI_TAG_DIST).live_bytes, before);
    }
    assert_true(k > 10 * WORLD);
}

TEST(regions_are_for_all_or_none)
{
    on_threads(dist_case_regions_refused, false, 0);
}

/* A transport that is right except for one element on one rank. */
static const lvni_dist_transport *right;
static lvni_dist_transport wrong;

static lvn_status wrong_all_reduce(lvni_dist_comm *comm, const void *in, void *out, int64_t n,
                                   lvn_dtype dtype, lvni_dist_reduce how)
{
    LVN_TRY(right->all_reduce(comm, in, out, n, dtype, how));
    if (dtype == LVN_F32 && comm->rank == 1) {
        ((float *)out)[n - 1] += 1.0f;
    }
    return LVN_OK;
}

static bool try_wrong(dist_rank *me)
{
    uint64_t ns;
    me->comm->ops = &wrong;
    RANK_CHECK(me, lvni_dist_comm_try(me->comm, &ns) == LVN_ERR_INTERNAL,
               "one element is wrong on rank 1");
    const char *reports =
        me->rank == 1 ? "element 262143 is " : "rank 1 cannot do its part of the first sum";
    RANK_CHECK(me, strstr(lvn_last_error()->message, reports) != NULL, "the error names it");
    return true;
}

TEST(a_wrong_sum_is_found_before_the_first_step)
{
    lvni_dist_comm *comm[3];
    on_threads(dist_case_agree, false, 0);
    assert_int_equal(lvni_dist_comm_threads(3, false, comm), LVN_OK);
    right = comm[0]->ops;
    wrong = *right;
    wrong.all_reduce = wrong_all_reduce;
    for (int i = 0; i < 3; i++) {
        lvni_dist_comm_destroy(comm[i]);
    }
    const dist_case c = {"", try_wrong, false, 0};
    assert_true(dist_run_threads(&c, 3, 0));
}

TEST(neighbours_talk)
{
    on_threads(dist_case_group_exchange, false, 0);
    on_threads(dist_case_group_exchange, true, 0);
    on_threads(dist_case_group_exchange_abort, false, 0);
}

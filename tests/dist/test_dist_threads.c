/* The conformance suite on one rank and on ranks that are threads of this process: what TSan can look at. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "dist_cases.h"

#include "core/alloc.h"
#include "dist/among.h"
#include "dist/reduction.h"

static void on_threads(dist_body body, bool check, int arg)
{
    const dist_case c = {"", body, check};
    static const int worlds[] = {1, 2, 3, 5};
    assert_true(dist_run_self(&c, arg));
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        assert_true(dist_run_threads(&c, worlds[i], arg));
    }
}

static void collectives_add_in_the_tree(void **state)
{
    (void)state;
    on_threads(dist_case_reduce, false, 0);
}

static void collectives_move_bytes(void **state)
{
    (void)state;
    on_threads(dist_case_move, false, 0);
    on_threads(dist_case_move, true, 0);
}

static void shared_memory_is_given_and_refused(void **state)
{
    (void)state;
    on_threads(dist_case_memory, false, 0);
}

static void bytes_are_counted(void **state)
{
    (void)state;
    on_threads(dist_case_count, false, 0);
}

static void different_calls_are_named(void **state)
{
    (void)state;
    on_threads(dist_case_mismatch, true, 0);
}

static void abort_reaches_everyone(void **state)
{
    (void)state;
    on_threads(dist_case_abort, false, 0);
}

static void a_rank_that_leaves_is_missed(void **state)
{
    (void)state;
    on_threads(dist_case_left, false, 0);
}

static void reductions_give_one_sum(void **state)
{
    (void)state;
    for (int shards = 1; shards <= 13; shards++) {
        const dist_case c = {"", dist_case_reduction, false};
        assert_true(dist_run_self(&c, shards));
        for (int world = 1; world <= shards; world++) {
            assert_true(dist_run_threads(&c, world, shards));
        }
    }
}

static void reductions_stand_delays(void **state)
{
    (void)state;
    on_threads(dist_case_reduction_race, false, 12);
    on_threads(dist_case_reduction_race, true, 3);
}

static void reductions_refuse_what_cannot_be(void **state)
{
    (void)state;
    on_threads(dist_case_reduction_options, false, 0);
}

static void sums_of_nothing(const float *g, int64_t n, double *partial)
{
    (void)g, (void)n, (void)partial;
}

/* One rank's way through all that allocates. */
static lvn_status allocate(bool threads)
{
    lvni_comm *comm = NULL;
    lvni_reduction *r = NULL;
    lvni_among *among = NULL;
    const lvni_said *said;
    void *block = NULL, *gathered = NULL;
    size_t size;
    const lvni_reduction_options o = {.shards = 4, .sets = 1, .n = 9000, .n_norm = 9000, .bucket = 4096, .message = 8, .sumsq = sums_of_nothing};
    lvn_status status = threads ? lvni_comm_threads(1, false, &comm) : lvni_comm_self(&comm);
    if (status == LVN_OK) {
        status = lvni_comm_alloc(comm, 1000, &block);
    }
    if (status == LVN_OK) {
        status = lvni_reduction_create(comm, &o, &r);
    }
    if (status == LVN_OK) {
        status = lvni_comm_all_gather_sized(comm, "1234", 4, &gathered, &size);
    }
    if (status == LVN_OK) {
        status = lvni_among_create(comm, &among);
    }
    if (status == LVN_OK) {
        status = lvni_among_exchange(among, 0, 1, "1234", 4, &said);
    }
    lvni_among_destroy(among);
    lvni_free(gathered);
    lvni_reduction_destroy(r);
    lvni_comm_destroy(comm);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        const uint64_t before = lvni_alloc_get_stats(LVNI_TAG_DIST).live_bytes;
        lvn_status status = LVN_ERR_MEMORY;
        int64_t k = 0;
        while (status != LVN_OK) {
            k++;
            assert_true(k < 100);
            lvni_alloc_fail_at(k);
            status = allocate(threads != 0);
            lvni_alloc_fail_at(0);
            assert_true(status == LVN_OK || status == LVN_ERR_MEMORY);
            assert_int_equal(lvni_alloc_get_stats(LVNI_TAG_DIST).live_bytes, before);
        }
        assert_true(k > 5);
    }
}

static void neighbours_talk(void **state)
{
    (void)state;
    on_threads(dist_case_among, false, 0);
    on_threads(dist_case_among, true, 0);
    on_threads(dist_case_among_abort, false, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_add_in_the_tree),       cmocka_unit_test(collectives_move_bytes),
        cmocka_unit_test(shared_memory_is_given_and_refused), cmocka_unit_test(bytes_are_counted),
        cmocka_unit_test(different_calls_are_named),         cmocka_unit_test(abort_reaches_everyone),
        cmocka_unit_test(a_rank_that_leaves_is_missed),      cmocka_unit_test(reductions_give_one_sum),
        cmocka_unit_test(reductions_stand_delays),           cmocka_unit_test(reductions_refuse_what_cannot_be),
        cmocka_unit_test(every_allocation_may_fail),         cmocka_unit_test(neighbours_talk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

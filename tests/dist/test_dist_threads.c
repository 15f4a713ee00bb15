/* The conformance suite on one rank and on ranks that are threads of this process: what TSan can look at. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "dist_cases.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_add_in_the_tree),       cmocka_unit_test(collectives_move_bytes),
        cmocka_unit_test(shared_memory_is_given_and_refused), cmocka_unit_test(bytes_are_counted),
        cmocka_unit_test(different_calls_are_named),         cmocka_unit_test(abort_reaches_everyone),
        cmocka_unit_test(a_rank_that_leaves_is_missed),      cmocka_unit_test(reductions_give_one_sum),
        cmocka_unit_test(reductions_stand_delays),           cmocka_unit_test(reductions_refuse_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

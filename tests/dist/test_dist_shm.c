/* The conformance suite on ranks that are processes, and what they do when one of them is
 * killed. */
#include "dist_cases.h"
#include "support/test.h"

static const dist_case cases[] = {
    {"reduce", dist_case_reduce, false},
    {"move", dist_case_move, false},
    {"move_checked", dist_case_move, true},
    {"memory", dist_case_memory, false},
    {"count", dist_case_count, false},
    {"mismatch", dist_case_mismatch, true},
    {"agree", dist_case_agree, false},
    {"abort", dist_case_abort, false},
    {"abort_for", dist_case_abort_for, false},
    {"claim", dist_case_claim, false},
    {"left", dist_case_left, false},
    {"reduction", dist_case_reduction, false},
    {"reduction_race", dist_case_reduction_race, false},
    {"reduction_options", dist_case_reduction_options, true},
    {"among", dist_case_group_exchange, true},
    {"group_exchange_abort", dist_case_group_exchange_abort, false},
    {"regions_refused", dist_case_regions_refused, false},
    {"large", dist_case_large, false},
    {"endless", dist_case_endless, false},
    {"starved", NULL, false},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static const dist_case *named(dist_body body, bool check)
{
    for (int i = 0; i < N_CASES; i++) {
        if (cases[i].body == body && cases[i].check == check) {
            return &cases[i];
        }
    }
    fail_msg("no such case");
    return NULL;
}

TEST(every_case_holds)
{
    for (int i = 0; i < N_CASES; i++) {
        if (cases[i].body != dist_case_large && cases[i].body != dist_case_endless &&
            cases[i].body != dist_case_reduction) {
            for (int world = 2; world <= 3; world++) {
                assert_true(dist_run_processes(&cases[i], world, 6, NULL));
            }
        }
    }
    assert_true(dist_run_processes(named(dist_case_move, false), 1, 0, NULL));
}

TEST(reductions_give_one_sum)
{
    /* ranks, micro-batches */
    static const int layouts[][2] = {{1, 2}, {2, 2}, {2, 5}, {3, 7}, {4, 8}, {5, 13}, {13, 13}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        assert_true(dist_run_processes(named(dist_case_reduction, false), layouts[i][0],
                                       layouts[i][1], NULL));
    }
}

TEST(a_quarter_of_a_gigabyte)
{
    assert_true(dist_run_processes(named(dist_case_large, false), 2, 0, NULL));
}

TEST(a_killed_rank_is_named_by_all_others)
{
    for (int call = 0; call < DIST_ENDLESS_COUNT; call++) {
        /* the first while memory is still being shared */
        dist_kill victim = {.victim = 2, .kill_ms = 7 * call};
        assert_true(dist_run_processes(named(dist_case_endless, false), 3, call, &victim));
        assert_true(victim.seconds < 2.0);
    }
}

int main(int argc, char **argv)
{
    dist_rank_main(argc, argv, cases, N_CASES);
    return test_main(argc, argv);
}

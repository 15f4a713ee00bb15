/* dist_cases.h: the table, and what every test does with it. */
#include "dist_cases.h"

#include "support/test.h"

static const dist_case cases[] = {
    {"reduce", dist_case_reduce, false, DIST_ALL},
    {"move", dist_case_move, false, DIST_ALL},
    {"move_checked", dist_case_move, true, DIST_ALL},
    {"memory", dist_case_memory, false, DIST_ALL},
    {"count", dist_case_count, false, DIST_SHM | DIST_MESSAGES},
    {"mismatch", dist_case_mismatch, true, DIST_ALL},
    {"sizes", dist_case_sizes, false, DIST_MESSAGES},
    {"agree", dist_case_agree, false, DIST_ALL},
    {"abort", dist_case_abort, false, DIST_ALL},
    {"abort_for", dist_case_abort_for, false, DIST_ALL},
    {"claim", dist_case_claim, false, DIST_ALL},
    {"claim_left", dist_case_claim_left, false, DIST_MESSAGES | DIST_LEVELS},
    {"left", dist_case_left, false, DIST_ALL},
    {"reduction_race", dist_case_reduction_race, false, DIST_ALL},
    {"reduction_abort", dist_case_reduction_abort, false, DIST_MESSAGES | DIST_LEVELS},
    {"reduction_options", dist_case_reduction_options, false, DIST_MESSAGES | DIST_LEVELS},
    {"reduction_options_checked", dist_case_reduction_options, true, DIST_SHM},
    {"reduction_memory", dist_case_reduction_memory, false, DIST_MESSAGES | DIST_LEVELS},
    {"group_exchange", dist_case_group_exchange, true, DIST_ALL},
    {"group_exchange_abort", dist_case_group_exchange_abort, false, DIST_ALL},
    {"regions_refused", dist_case_regions_refused, false, DIST_SHM},
    {"starved", NULL, false, DIST_SHM},
    /* by tests of their own */
    {"reduction", dist_case_reduction, false, 0},
    {"link_bytes", dist_case_link_bytes, false, 0},
    {"link_bytes_of_parts", dist_case_link_bytes_of_parts, false, 0},
    {"large", dist_case_large, false, 0},
    {"endless", dist_case_endless, false, 0},
};
enum { N_CASES = sizeof cases / sizeof *cases };

const dist_case *dist_next(const dist_case *before, unsigned on)
{
    const dist_case *c = before == NULL ? cases : before + 1;
    while (c < cases + N_CASES && (c->on & on) == 0) {
        c++;
    }
    return c < cases + N_CASES ? c : NULL;
}

const dist_case *dist_case_named(const char *name)
{
    const dist_case *c = dist_find(cases, N_CASES, name);
    assert_non_null(c);
    return c;
}

void dist_kills_are_named(int world)
{
    for (int call = 0; call < DIST_ENDLESS_COUNT; call++) {
        /* the first while memory is still being shared */
        dist_kill victim = {.victim = world - 1, .kill_ms = 7 * call};
        assert_true(dist_run_processes(dist_case_named("endless"), world, call, &victim));
        assert_true(victim.seconds < 2.0);
    }
}

int dist_main(int argc, char **argv)
{
    dist_rank_main(argc, argv, cases, N_CASES);
    return test_main(argc, argv);
}

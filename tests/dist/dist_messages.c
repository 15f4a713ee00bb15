/* dist_messages.h: the cases and the tests that run them. */
#include "dist_messages.h"

#include <stdlib.h>
#include "dist_cases.h"
#include "support/test.h"

#include <string.h>

static const dist_case cases[] = {
    {"reduce", dist_case_reduce, false},
    {"move", dist_case_move, false},
    {"move_checked", dist_case_move, true},
    {"memory", dist_case_memory, false},
    {"count", dist_case_count, false},
    {"mismatch", dist_case_mismatch, true},
    {"sizes", dist_case_sizes, false},
    {"agree", dist_case_agree, false},
    {"abort", dist_case_abort, false},
    {"abort_for", dist_case_abort_for, false},
    {"claim", dist_case_claim, false},
    {"claim_left", dist_case_claim_left, false},
    {"left", dist_case_left, false},
    {"reduction", dist_case_reduction, false},
    {"reduction_race", dist_case_reduction_race, false},
    {"reduction_abort", dist_case_reduction_abort, false},
    {"reduction_options", dist_case_reduction_options, false},
    {"reduction_memory", dist_case_reduction_memory, false},
    {"group_exchange", dist_case_group_exchange, true},
    {"group_exchange_abort", dist_case_group_exchange_abort, false},
    {"large", dist_case_large, false},
    {"endless", dist_case_endless, false},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static const dist_case *named(dist_body body)
{
    for (int i = 0; i < N_CASES; i++) {
        if (cases[i].body == body) {
            return &cases[i];
        }
    }
    fail_msg("no such case");
    return NULL;
}

static bool is_short(const dist_case *c)
{
    return c->body != dist_case_large && c->body != dist_case_endless &&
           c->body != dist_case_reduction;
}

TEST(every_case_holds_on_threads)
{
    static const int worlds[] = {3, 1, 2, 5};
    const char *link = getenv(DIST_LINK);
    const size_t n = link != NULL && strcmp(link, "ucx") == 0 ? 2 : 4; /* it is slow to start */
    for (int i = 0; i < N_CASES; i++) {
        for (size_t k = 0; k < n && is_short(&cases[i]); k++) {
            if (!dist_run_net_threads(&cases[i], worlds[k], 6)) {
                fail_msg("%s on %d threads", cases[i].name, worlds[k]);
            }
        }
    }
}

TEST(reductions_give_one_sum)
{
    /* ranks, micro-batches */
    static const int layouts[][2] = {{1, 2}, {2, 2}, {2, 5}, {3, 7}, {4, 8}, {5, 13}, {13, 13}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        assert_true(dist_run_net_threads(named(dist_case_reduction), layouts[i][0], layouts[i][1]));
    }
    assert_true(dist_run_processes(named(dist_case_reduction), 3, 8, NULL));
}

TEST(every_case_holds_on_processes)
{
    for (int i = 0; i < N_CASES; i++) {
        if (is_short(&cases[i]) && !dist_run_processes(&cases[i], 3, 6, NULL)) {
            fail_msg("%s", cases[i].name);
        }
    }
}

TEST(different_sizes_are_noticed)
{
    for (int arg = 0; arg < 6; arg++) {
        assert_true(dist_run_net_threads(named(dist_case_sizes), 3, arg));
    }
}

TEST(a_quarter_of_a_gigabyte)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* minutes of copies that the other cases make, too */
#endif
    assert_true(dist_run_processes(named(dist_case_large), 2, 0, NULL));
}

TEST(a_killed_rank_is_named_by_all_others)
{
    for (int call = 0; call < DIST_ENDLESS_COUNT; call++) {
        dist_kill victim = {.victim = 2, .kill_ms = 7 * call};
        assert_true(dist_run_processes(named(dist_case_endless), 3, call, &victim));
        assert_true(victim.seconds < 2.0);
    }
}

/* Whether its process has ended is not known on this one. */
TEST(a_lost_connection_to_another_host_is_named)
{
    setenv(DIST_HOSTS, "1", 1);
    dist_kill victim = {.victim = 2, .kill_ms = 5};
    const bool good = dist_run_processes(named(dist_case_endless), 3, 0, &victim);
    unsetenv(DIST_HOSTS);
    assert_true(good);
    assert_true(victim.seconds < 2.0);
}

int dist_messages_main(int argc, char **argv, const char *link)
{
    setenv(DIST_LINK, link, 1);
    dist_rank_main(argc, argv, cases, N_CASES);
    return test_main(argc, argv);
}

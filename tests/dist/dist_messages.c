/* dist_messages.h: the cases and the tests that run them. */
#include "dist_messages.h"

#include <stdlib.h>
#include "dist_cases.h"
#include "support/test.h"

#include <string.h>

TEST(every_case_holds_on_threads)
{
    static const int worlds[] = {3, 1, 2, 5};
    const char *link = getenv(DIST_LINK);
    const size_t n = link != NULL && strcmp(link, "ucx") == 0 ? 2 : 4; /* it is slow to start */
    for (const dist_case *c = NULL; (c = dist_next(c, DIST_MESSAGES)) != NULL;) {
        for (size_t k = 0; k < n; k++) {
            if (!dist_run_net_threads(c, worlds[k], 6)) {
                fail_msg("%s on %d threads", c->name, worlds[k]);
            }
        }
    }
}

TEST(reductions_give_one_sum)
{
    /* ranks, micro-batches */
    static const int layouts[][2] = {{1, 2}, {2, 2}, {2, 5}, {3, 7}, {4, 8}, {5, 13}, {13, 13}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        assert_true(
            dist_run_net_threads(dist_case_named("reduction"), layouts[i][0], layouts[i][1]));
    }
    assert_true(dist_run_processes(dist_case_named("reduction"), 3, 8, NULL));
}

TEST(every_case_holds_on_processes)
{
    for (const dist_case *c = NULL; (c = dist_next(c, DIST_MESSAGES)) != NULL;) {
        if (!dist_run_processes(c, 3, 6, NULL)) {
            fail_msg("%s", c->name);
        }
    }
}

TEST(different_sizes_are_noticed)
{
    for (int arg = 0; arg < 6; arg++) {
        assert_true(dist_run_net_threads(dist_case_named("sizes"), 3, arg));
    }
}

TEST(a_quarter_of_a_gigabyte)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* minutes of copies that the other cases make, too */
#endif
    assert_true(dist_run_processes(dist_case_named("large"), 2, 0, NULL));
}

TEST(a_killed_rank_is_named_by_all_others)
{
    dist_kills_are_named(3);
}

/* Whether its process has ended is not known on this one. */
TEST(a_lost_connection_to_another_host_is_named)
{
    setenv(DIST_HOSTS, "1", 1);
    dist_kill victim = {.victim = 2, .kill_ms = 5};
    const bool good = dist_run_processes(dist_case_named("endless"), 3, 0, &victim);
    unsetenv(DIST_HOSTS);
    assert_true(good);
    assert_true(victim.seconds < 2.0);
}

int dist_messages_main(int argc, char **argv, const char *link)
{
    setenv(DIST_LINK, link, 1);
    return dist_main(argc, argv);
}

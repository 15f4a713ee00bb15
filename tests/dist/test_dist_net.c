/* The conformance suite on ranks that exchange messages: threads of this process, each with
 * connections of its own (what TSan can look at), and processes, of which one is killed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "dist_cases.h"

#include "core/machine.h"

#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

static void every_case_holds_on_threads(void **state)
{
    (void)state;
    static const int worlds[] = {1, 2, 3, 5};
    for (int i = 0; i < N_CASES; i++) {
        for (size_t k = 0; k < sizeof worlds / sizeof *worlds && is_short(&cases[i]); k++) {
            if (!dist_run_net_threads(&cases[i], worlds[k], 6)) {
                fail_msg("%s on %d threads", cases[i].name, worlds[k]);
            }
        }
    }
}

static void reductions_give_one_sum(void **state)
{
    (void)state;
    /* ranks, micro-batches */
    static const int layouts[][2] = {{1, 2}, {2, 2}, {2, 5}, {3, 7}, {4, 8}, {5, 13}, {13, 13}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        assert_true(dist_run_net_threads(named(dist_case_reduction), layouts[i][0], layouts[i][1]));
    }
    assert_true(dist_run_processes(named(dist_case_reduction), 3, 8, NULL));
}

static void every_case_holds_on_processes(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        if (is_short(&cases[i]) && !dist_run_processes(&cases[i], 3, 6, NULL)) {
            fail_msg("%s", cases[i].name);
        }
    }
}

static void different_sizes_are_noticed(void **state)
{
    (void)state;
    for (int arg = 0; arg < 8; arg++) {
        assert_true(dist_run_net_threads(named(dist_case_sizes), 3, arg));
    }
}

static void a_quarter_of_a_gigabyte(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* minutes of copies that the other cases make, too */
#endif
    assert_true(dist_run_processes(named(dist_case_large), 2, 0, NULL));
}

static void a_killed_rank_is_named_by_all_others(void **state)
{
    (void)state;
    for (int call = 0; call < DIST_ENDLESS_COUNT; call++) {
        dist_kill victim = {.victim = 2, .kill_ms = 7 * call};
        assert_true(dist_run_processes(named(dist_case_endless), 3, call, &victim));
        assert_true(victim.seconds < 2.0);
    }
}

/* Whether its process has ended is not known on this one. */
static void a_lost_connection_to_another_host_is_named(void **state)
{
    (void)state;
    setenv(DIST_HOSTS, "1", 1);
    dist_kill victim = {.victim = 2, .kill_ms = 5};
    const bool good = dist_run_processes(named(dist_case_endless), 3, 0, &victim);
    unsetenv(DIST_HOSTS);
    assert_true(good);
    assert_true(victim.seconds < 2.0);
}

/* ---- connections that are not the ranks' ---- */

enum { STRANGERS = 70, CARD = 256 };
static pthread_barrier_t both;
static char cards[2][CARD];
static int stranger[STRANGERS];

/* Rank 0's address, the first bytes of which are two numbers, is known before rank 1 connects: the
 * strangers come first, and send nothing. */
static lvn_status exchange_with_strangers(void *user, const void *mine, size_t bytes, void *all)
{
    const int rank = *(const int *)user;
    memcpy(cards[rank], mine, bytes);
    pthread_barrier_wait(&both);
    for (int i = 0; i < 2; i++) {
        memcpy((char *)all + (size_t)i * bytes, cards[i], bytes);
    }
    struct sockaddr_in at;
    memcpy(&at, cards[0] + 2 * sizeof(int32_t), sizeof at);
    for (int i = 0; i < STRANGERS && rank == 0 && stranger[i] < 0; i++) {
        stranger[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        (void)connect(stranger[i], (const struct sockaddr *)&at, sizeof at);
    }
    pthread_barrier_wait(&both);
    return LVN_OK;
}

static void *among_strangers(void *p)
{
    int *rank = p;
    const lvni_dist_comm_options o = {.rank = *rank,
                                      .world = 2,
                                      .exchange = exchange_with_strangers,
                                      .address = "127.0.0.1",
                                      .user = rank};
    lvni_dist_comm *comm = NULL;
    bool good = lvni_dist_comm_net(&o, &comm) == LVN_OK;
    good = good && lvni_dist_comm_barrier(comm) == LVN_OK;
    lvni_dist_comm_destroy(comm);
    return good ? p : NULL;
}

static void strangers_keep_no_rank_waiting(void **state)
{
    (void)state;
    int rank[2] = {0, 1};
    pthread_t thread;
    void *other = NULL;
    for (int i = 0; i < STRANGERS; i++) {
        stranger[i] = -1;
    }
    pthread_barrier_init(&both, NULL, 2);
    const uint64_t start = lvni_core_now_ns();
    assert_int_equal(pthread_create(&thread, NULL, among_strangers, &rank[1]), 0);
    assert_non_null(among_strangers(&rank[0]));
    pthread_join(thread, &other);
    assert_non_null(other);
    assert_true(lvni_core_seconds_since(start) < 1.5); /* each might be heard for 2 s */
    for (int i = 0; i < STRANGERS; i++) {
        close(stranger[i]);
    }
    pthread_barrier_destroy(&both);
}

int main(int argc, char **argv)
{
    setenv(DIST_NET, "1", 1);
    dist_rank_main(argc, argv, cases, N_CASES);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_holds_on_threads),
        cmocka_unit_test(reductions_give_one_sum),
        cmocka_unit_test(every_case_holds_on_processes),
        cmocka_unit_test(strangers_keep_no_rank_waiting),
        cmocka_unit_test(different_sizes_are_noticed),
        cmocka_unit_test(a_quarter_of_a_gigabyte),
        cmocka_unit_test(a_killed_rank_is_named_by_all_others),
        cmocka_unit_test(a_lost_connection_to_another_host_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The conformance suite on ranks of several nodes in two levels: threads of this process, each as
 * if it were a process or as one of those of its node, and processes, of which one is killed. */
#include <stdlib.h>
#include "dist_cases.h"
#include "support/sanitized.h"
#include "support/test.h"

static const dist_case cases[] = {
    {"reduce", dist_case_reduce, false},
    {"move", dist_case_move, false},
    {"move_checked", dist_case_move, true},
    {"memory", dist_case_memory, false},
    {"mismatch", dist_case_mismatch, true},
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
    {"link_bytes", dist_case_link_bytes, false},
    {"link_bytes_of_parts", dist_case_link_bytes_of_parts, false},
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
    return c->body != dist_case_endless && c->body != dist_case_reduction &&
           c->body != dist_case_link_bytes && c->body != dist_case_link_bytes_of_parts;
}

/* The first rank of each node, and the number of all. */
typedef struct layout {
    int nodes, first[5];
} layout;

TEST(every_case_holds_on_threads)
{
    static const layout layouts[] = {{2, {0, 2, 4}}, {2, {0, 1, 3}}, {3, {0, 2, 3, 6}}};
    for (int i = 0; i < N_CASES; i++) {
        for (size_t k = 0; k < 2 * sizeof layouts / sizeof *layouts && is_short(&cases[i]); k++) {
            const layout *l = &layouts[k / 2];
            if (SANITIZED && (k == 2 || k == 5)) { /* each layout and each way once */
                continue;
            }
            if (!dist_run_levels(&cases[i], l->first, l->nodes, k % 2 == 1, 6)) {
                fail_msg("%s on %d nodes with %d ranks", cases[i].name, l->nodes,
                         l->first[l->nodes]);
            }
        }
    }
}

TEST(reductions_give_one_sum)
{
    /* micro-batches; nodes whose run is a sub-tree, and others */
    static const struct {
        int micro_batches;
        layout l;
    } layouts[] = {{4, {2, {0, 2, 4}}},     {8, {2, {0, 2, 4}}},      {7, {2, {0, 2, 4}}},
                   {5, {2, {0, 1, 3}}},     {6, {3, {0, 2, 4, 6}}},   {13, {3, {0, 1, 4, 6}}},
                   {12, {3, {0, 3, 5, 6}}}, {9, {4, {0, 1, 3, 4, 8}}}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const layout *l = &layouts[i].l;
        assert_true(dist_run_levels(named(dist_case_reduction), l->first, l->nodes, i % 2 == 1,
                                    layouts[i].micro_batches));
    }
}

TEST(a_node_sends_its_part)
{
    static const struct {
        int micro_batches;
        layout l;
    } layouts[] = {{4, {2, {0, 2, 4}}},       {8, {2, {0, 2, 4}}},    {4, {2, {0, 3, 4}}},
                   {6, {3, {0, 2, 4, 6}}},    {9, {3, {0, 3, 6, 9}}}, {8, {4, {0, 2, 4, 6, 8}}},
                   {16, {4, {0, 2, 4, 5, 8}}}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const layout *l = &layouts[i].l;
        for (int parts = 0; parts < 2; parts++) {
            assert_true(
                dist_run_levels(named(parts ? dist_case_link_bytes_of_parts : dist_case_link_bytes),
                                l->first, l->nodes, i % 2 == 1, layouts[i].micro_batches));
        }
    }
}

TEST(every_case_holds_on_processes)
{
    for (int i = 0; i < N_CASES; i++) {
        if (is_short(&cases[i]) && !dist_run_processes(&cases[i], 4, 6, NULL)) {
            fail_msg("%s", cases[i].name);
        }
    }
    assert_true(dist_run_processes(named(dist_case_reduction), 4, 9, NULL));
}

TEST(a_killed_rank_is_named_by_all_others)
{
    for (int call = 0; call < DIST_ENDLESS_COUNT; call++) {
        dist_kill victim = {.victim = 3, .kill_ms = 7 * call};
        assert_true(dist_run_processes(named(dist_case_endless), 4, call, &victim));
        assert_true(victim.seconds < 2.0);
    }
}

int main(int argc, char **argv)
{
    setenv(DIST_LINK, "net", 0); /* or "ucx", as the caller has it */
    setenv(DIST_LEVELS, "2", 1);
    dist_rank_main(argc, argv, cases, N_CASES);
    return test_main(argc, argv);
}

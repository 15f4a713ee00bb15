/* The conformance suite on ranks of several nodes in two levels: threads of this process, each as
 * if it were a process or as one of those of its node, and processes, of which one is killed. */
#include <stdlib.h>
#include "dist_cases.h"
#include "support/sanitized.h"
#include "support/test.h"

/* The first rank of each node, and the number of all. */
typedef struct layout {
    int nodes, first[5];
} layout;

TEST(every_case_holds_on_threads)
{
    static const layout layouts[] = {{2, {0, 2, 4}}, {2, {0, 1, 3}}, {3, {0, 2, 3, 6}}};
    for (const dist_case *c = NULL; (c = dist_next(c, DIST_LEVELS)) != NULL;) {
        for (size_t k = 0; k < 2 * sizeof layouts / sizeof *layouts; k++) {
            const layout *l = &layouts[k / 2];
            if (SANITIZED && (k == 2 || k == 5)) { /* each layout and each way once */
                continue;
            }
            if (!dist_run_levels(c, l->first, l->nodes, k % 2 == 1, 6)) {
                fail_msg("%s on %d nodes with %d ranks", c->name, l->nodes, l->first[l->nodes]);
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
        assert_true(dist_run_levels(dist_case_named("reduction"), l->first, l->nodes, i % 2 == 1,
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
                dist_run_levels(dist_case_named(parts ? "link_bytes_of_parts" : "link_bytes"),
                                l->first, l->nodes, i % 2 == 1, layouts[i].micro_batches));
        }
    }
}

TEST(every_case_holds_on_processes)
{
    for (const dist_case *c = NULL; (c = dist_next(c, DIST_LEVELS)) != NULL;) {
        if (!dist_run_processes(c, 4, 6, NULL)) {
            fail_msg("%s", c->name);
        }
    }
    assert_true(dist_run_processes(dist_case_named("reduction"), 4, 9, NULL));
}

TEST(a_killed_rank_is_named_by_all_others)
{
    dist_kills_are_named(4);
}

int main(int argc, char **argv)
{
    setenv(DIST_LINK, "net", 0); /* or "ucx", as the caller has it */
    setenv(DIST_TWO_LEVELS, "2", 1);
    return dist_main(argc, argv);
}

/* The conformance suite on ranks that are processes, and what they do when one of them is
 * killed. */
#include "dist_cases.h"
#include "support/test.h"

TEST(every_case_holds)
{
    for (const dist_case *c = NULL; (c = dist_next(c, DIST_SHM)) != NULL;) {
        for (int world = 2; world <= 3; world++) {
            assert_true(dist_run_processes(c, world, 6, NULL));
        }
    }
    assert_true(dist_run_processes(dist_case_named("move"), 1, 0, NULL));
}

TEST(reductions_give_one_sum)
{
    /* ranks, micro-batches */
    static const int layouts[][2] = {{1, 2}, {2, 2}, {2, 5}, {3, 7}, {4, 8}, {5, 13}, {13, 13}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        assert_true(
            dist_run_processes(dist_case_named("reduction"), layouts[i][0], layouts[i][1], NULL));
    }
}

TEST(a_quarter_of_a_gigabyte)
{
    assert_true(dist_run_processes(dist_case_named("large"), 2, 0, NULL));
}

TEST(a_killed_rank_is_named_by_all_others)
{
    dist_kills_are_named(3);
}

int main(int argc, char **argv)
{
    return dist_main(argc, argv);
}

/* The fixed tree against its definition, written down directly as a recursion, with and without
 * empty micro-batches. */
#include "core/rng.h"
#include "plan/tree.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { MAX_N = 200 };

typedef struct part {
    double sum;
    bool some;
} part;

/* The rule of plan/tree.h, literally. */
static part define(const double *values, const bool *present, int lo, int hi)
{
    if (hi - lo == 1) {
        return (part){values[lo], present[lo]};
    }
    int p = 1;
    while (2 * p < hi - lo) {
        p = 2 * p;
    }
    const part a = define(values, present, lo, lo + p), b = define(values, present, lo + p, hi);
    if (!a.some || !b.some) {
        return a.some ? a : b;
    }
    return (part){a.sum + b.sum, true};
}

/* Values of very different size, so that another order of additions gives other bits. */
static void draw(int n, uint32_t round, double *values, bool *present)
{
    const lvni_core_rng rng = {.key = {{7, 11}}, .a = (uint32_t)n, .b = round, .c = 0};
    for (int i = 0; i < n; i++) {
        const uint64_t e = (uint64_t)i;
        values[i] = ((double)lvni_core_rng_uniform(&rng, 3 * e) - 0.5) *
                    ldexp(1.0, (int)(lvni_core_rng_u32(&rng, 3 * e + 1) % 40));
        present[i] = round == 0 || lvni_core_rng_u32(&rng, 3 * e + 2) % (round + 1) != 0;
    }
}

static bool same(double a, double b)
{
    uint64_t bits_a, bits_b; /* == would take 0 for -0 */
    memcpy(&bits_a, &a, sizeof a);
    memcpy(&bits_b, &b, sizeof b);
    return bits_a == bits_b;
}

static int log2_up(int n)
{
    int k = 0;
    while ((1 << k) < n) {
        k++;
    }
    return k;
}

/* As the trainer does: buffers, merged where the tree merges. Returns what is left in the last
 * pending node. */
static part walk(const double *values, const bool *present, int n)
{
    lvni_plan_tree tree;
    lvni_plan_tree_merge merges[LVNI_TREE_PENDING];
    double buffer[MAX_N];
    bool in_use[MAX_N] = {false};
    lvni_plan_tree_init(&tree, n, 0, n);
    for (int s = 0; s < n; s++) {
        assert_int_equal(tree.next, s);
        assert_true(tree.n_pending <= log2_up(n));
        buffer[s] = values[s];
        in_use[s] = present[s];
        const int k = lvni_plan_tree_push(&tree, present[s] ? s : LVNI_TREE_EMPTY, merges);
        for (int i = 0; i < k; i++) {
            assert_true(in_use[merges[i].into] && in_use[merges[i].from]);
            buffer[merges[i].into] += buffer[merges[i].from];
            in_use[merges[i].from] = false;
        }
    }
    assert_int_equal(tree.n_pending, 1);
    assert_int_equal(tree.pending[0].begin, 0);
    assert_int_equal(tree.pending[0].end, n);
    const int slot = tree.pending[0].slot;
    for (int s = 0; s < n; s++) {
        assert_true(in_use[s] == (s == slot)); /* nothing forgotten */
    }
    return (part){slot == LVNI_TREE_EMPTY ? 0.0 : buffer[slot], slot != LVNI_TREE_EMPTY};
}

TEST(sums_are_the_definition)
{
    double values[MAX_N];
    bool present[MAX_N];
    for (int n = 1; n <= MAX_N; n++) {
        for (uint32_t round = 0; round < 8; round++) {
            draw(n, round, values, present);
            const part want = define(values, present, 0, n);
            const part got = walk(values, present, n);
            assert_true(got.some == want.some);
            assert_true(!want.some || same(got.sum, want.sum));
        }
    }
}

TEST(known_shapes)
{
    /* ((1 + 1e16) + -1e16) loses the one, 1 + (1e16 + -1e16) keeps it: three are (0 1) 2 */
    const bool all[6] = {true, true, true, true, true, true};
    const double three[] = {1.0, 1e16, -1e16};
    assert_true(same(walk(three, all, 3).sum, 0.0));
    const bool without_first[] = {false, true, true};
    assert_true(same(walk(three, without_first, 3).sum, 0.0));
    /* six are ((0 1) (2 3)) (4 5) */
    const double six[] = {1.0, 0.0, 0.0, 0.0, 1e16, -1e16};
    assert_true(same(walk(six, all, 6).sum, 1.0));
    const bool none[6] = {false};
    assert_false(walk(six, none, 6).some);
    /* an absent half is skipped, not added as a zero: -0 stays -0 */
    const double minus_zero[] = {0.0, -0.0};
    const bool second[] = {false, true};
    assert_true(same(walk(minus_zero, second, 2).sum, -0.0));
    assert_int_equal(lvni_plan_tree_split(2), 1);
    assert_int_equal(lvni_plan_tree_split(3), 2);
    assert_int_equal(lvni_plan_tree_split(8), 4);
    assert_int_equal(lvni_plan_tree_split(9), 8);
}

TEST(ranks_owe_sub_trees)
{
    for (int rank = 0; rank < 12; rank++) { /* 96 = 12 x 8: one each */
        assert_int_equal(lvni_plan_tree_owed(96, 8 * rank, 8 * rank + 8), 1);
        assert_int_equal(lvni_plan_tree_waiting(96, 8 * rank, 8 * rank + 8), 3);
    }
    assert_int_equal(lvni_plan_tree_owed(6, 0, 3), 2); /* (0 1) and 2 */
    assert_int_equal(lvni_plan_tree_owed(6, 3, 6), 2); /* 3 and (4 5) */
    assert_int_equal(lvni_plan_tree_owed(6, 0, 6), 1);
    assert_int_equal(lvni_plan_tree_owed(8, 1, 7), 4); /* 1 (2 3) (4 5) 6 */
    assert_int_equal(lvni_plan_tree_owed(5, 4, 5), 1);
    assert_int_equal(lvni_plan_tree_owed(5, 5, 5), 0);
    assert_int_equal(lvni_plan_tree_waiting(1, 0, 1), 0);
    assert_int_equal(lvni_plan_tree_waiting(2, 0, 2), 1);
    assert_int_equal(lvni_plan_tree_waiting(6, 0, 6), 2);
    assert_int_equal(lvni_plan_tree_waiting(8, 0, 8), 3);
    assert_true(lvni_plan_tree_owed(65536, 1, 65535) <= LVNI_TREE_PENDING);
}

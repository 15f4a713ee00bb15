/* lvn_random_uniform and lvn_random_normal: the numbers that core/rng.h prescribes, whatever the
 * team. */
#include "core/rng.h"
#include "tensor/ctx.h"
#include "support/test.h"

#include <levin/ops.h>
#include <string.h>

enum { N = 40003 }; /* more than one thread's share, and a tail */

static lvni_core_rng expected(const char *name, uint32_t call)
{
    return (lvni_core_rng){
        .key = lvni_core_rng_make_key(7, lvni_core_rng_purpose("generator") +
                                             0x9e3779b97f4a7c15u * lvni_core_rng_purpose(name)),
        .a = 3,
        .b = 2,
        .c = call};
}

static int setup(void **state)
{
    (void)state;
    lvni_tensor_ctx_get()->at = (lvni_tensor_position){.seed = 7, .step = 3, .micro_batch = 2};
    lvni_tensor_ctx_get()->module_path = "generator";
    return lvn_scope_open() == LVN_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    lvni_tensor_ctx_get()->at = (lvni_tensor_position){0};
    lvni_tensor_ctx_get()->module_path = "";
    lvni_tensor_ctx_get()->team = 1;
    return lvn_scope_close() == LVN_OK ? 0 : -1;
}

TEST_EACH(setup, teardown);

TEST(numbers_follow_from_the_position)
{
    const lvni_core_rng uniform = expected("penalty", 0), normal = expected("noise", 1);
    const float *u = lvn_const_data(lvn_random_uniform(NULL, "penalty", N, 1)),
                *n = lvn_const_data(lvn_random_normal(NULL, "noise", N));
    for (int64_t e = 0; e < N; e += 7) {
        assert_true(u[e] == lvni_core_rng_uniform(&uniform, (uint64_t)e));
        assert_true(n[e] == (float)lvni_core_rng_normal(&normal, (uint64_t)e));
    }
}

TEST(names_and_calls_differ_teams_do_not)
{
    lvn_tensor *a = lvn_random_normal(NULL, "a", N), *again = lvn_random_normal(NULL, "a", N);
    lvni_tensor_ctx_get()->at.call = 0;
    lvn_tensor *b = lvn_random_normal(NULL, "b", N);
    lvni_tensor_ctx_get()->at.call = 0;
    lvni_tensor_ctx_get()->team = 3;
    lvn_tensor *same = lvn_random_normal(NULL, "a", N);
    const size_t bytes = N * sizeof(float);
    assert_memory_equal(lvn_data(a), lvn_data(same), bytes);
    assert_memory_not_equal(lvn_data(a), lvn_data(again), bytes);
    assert_memory_not_equal(lvn_data(a), lvn_data(b), bytes);
}

TEST(an_order_has_every_number_once)
{
    enum { MANY = 100 };
    const int64_t *a = lvn_const_data(lvn_random_permutation("a", MANY)),
                  *again = lvn_const_data(lvn_random_permutation("a", MANY));
    bool seen[MANY] = {false};
    for (int i = 0; i < MANY; i++) {
        assert_true(a[i] >= 0 && a[i] < MANY && !seen[a[i]]);
        seen[a[i]] = true;
    }
    assert_memory_not_equal(a, again, MANY * sizeof *a);
    lvni_tensor_ctx_get()->at.call = 0;
    const int64_t *first = lvn_const_data(lvn_random_permutation("a", MANY));
    assert_memory_equal(a, first, MANY * sizeof *a);
    lvni_tensor_ctx_get()->at.call = 0;
    assert_memory_not_equal(lvn_const_data(lvn_random_permutation("b", MANY)), a, MANY * sizeof *a);
    lvni_tensor_ctx_get()->at.call = 0;
    lvni_tensor_ctx_get()->at.step++;
    assert_memory_not_equal(lvn_const_data(lvn_random_permutation("a", MANY)), a, MANY * sizeof *a);
    assert_non_null(lvn_random_permutation("a", 0));
}

/* Each number comes to each place as often: chi squared of 24 orders has 23 degrees of freedom, and
 * is above 49.7 once in a thousand sets of draws. */
TEST(all_orders_are_as_probable)
{
    enum { N_ORDERS = 24, EACH = 100, DRAWS = N_ORDERS * EACH };
    int count[256] = {0}, n = 0;
    for (int i = 0; i < DRAWS; i++) {
        const int64_t *a = lvn_const_data(lvn_random_permutation("orders", 4));
        count[a[0] * 64 + a[1] * 16 + a[2] * 4 + a[3]]++;
    }
    double chi = 0.0;
    for (int i = 0; i < 256; i++) {
        const double off = count[i] - EACH;
        chi += count[i] > 0 ? off * off / EACH : 0.0;
        n += count[i] > 0;
    }
    assert_int_equal(n, N_ORDERS);
    assert_true(chi < 49.7);
}

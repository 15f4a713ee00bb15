/* The order of an epoch: a permutation, the same as the independent Python program's, and the
 * numbers of one seed. */
#include "core/alloc.h"
#include "data/sampler.h"
#include "support/test.h"

#include <levin/data.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TEST(an_order_is_a_permutation)
{
    enum { N = 1000 };
    uint32_t order[N];
    uint8_t seen[N] = {0};
    int moved = 0;
    lvni_data_sampler_order(5, 3, N, order);
    for (uint32_t i = 0; i < N; i++) {
        assert_true(order[i] < N && seen[order[i]]++ == 0);
        moved += order[i] != i ? 1 : 0;
    }
    assert_true(moved > 900);
    lvni_data_sampler_order(5, 3, 1, order);
    assert_int_equal(order[0], 0);
    lvni_data_sampler_order(5, 3, 0, order); /* touches nothing */
    assert_int_equal(order[0], 0);
}

TEST(a_large_order_is_a_permutation)
{
    enum { N = 5000 }; /* it works for any number, and is used for those that are not shuffled */
    for (uint32_t n = 1; n < N; n = n < 70 ? n + 1 : n * 3 - 1) {
        uint8_t seen[N] = {0};
        uint32_t moved = 0, other = 0;
        for (uint32_t p = 0; p < n; p++) {
            const uint32_t i = lvni_data_sampler_at(5, 3, n, p);
            assert_true(i < n && seen[i]++ == 0);
            moved += i != p;
            other += i != lvni_data_sampler_at(5, 4, n, p);
        }
        assert_true(n < 50 || (moved > n * 9 / 10 && other > n * 9 / 10));
    }
}

TEST(known_numbers)
{
    static const uint32_t want[21] = {276, 256, 29,  200, 288, 211, 277, 181, 134, 257, 141,
                                      297, 317, 215, 310, 152, 172, 112, 259, 64,  85};
    uint32_t order[341];
    lvni_data_sampler_order(7, 2, 341, order);
    assert_memory_equal(order + 320, want, sizeof want); /* the last step for E = 32 */
    uint32_t other[341];
    lvni_data_sampler_order(7, 3, 341, other);
    assert_memory_not_equal(order, other, sizeof order);
    lvni_data_sampler_order(8, 2, 341, other);
    assert_memory_not_equal(order, other, sizeof order);
}

static void compare_with_python(uint32_t n, uint32_t batch, uint64_t seed, uint32_t epoch,
                                uint32_t step)
{
    char command[512];
    snprintf(command, sizeof command, "python3 '%s' %u %u %llu %u %u", LEVIN_ORDER_PY, n, batch,
             (unsigned long long)seed, epoch, step);
    uint32_t *order = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *order);
    assert_non_null(order);
    lvni_data_sampler_order(seed, epoch, n, order);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    uint32_t count = 0;
    for (unsigned id; fscanf(pipe, "%u", &id) == 1; count++) {
        assert_true(step * batch + count < n);
        assert_int_equal(id, order[step * batch + count]);
    }
    assert_int_equal(pclose(pipe), 0);
    assert_int_equal(count, n - step * batch < batch ? n - step * batch : batch);
    lvni_core_free(order);
}

/* The same of an order that is not held in memory. */
static void compare_large_with_python(uint32_t n, uint64_t seed, uint32_t epoch, uint32_t step)
{
    enum { BATCH = 40 };
    char command[512];
    snprintf(command, sizeof command, "python3 '%s' %u %d %llu %u %u", LEVIN_ORDER_PY, n, BATCH,
             (unsigned long long)seed, epoch, step);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    uint32_t at = step * BATCH;
    for (unsigned id; fscanf(pipe, "%u", &id) == 1; at++) {
        assert_int_equal(id, lvni_data_sampler_at(seed, epoch, n, at));
    }
    assert_int_equal(pclose(pipe), 0);
    assert_int_equal(at, n - step * BATCH < BATCH ? n : (step + 1) * BATCH);
}

TEST(an_independent_program_agrees)
{
    if (system("python3 -c pass") != 0) {
        print_message("no python3 on this machine\n");
        skip();
    }
    compare_with_python(341, 32, 1, 0, 10);
    compare_with_python(341, 32, 1, 1, 0);
    compare_with_python(341, 32, 0, 2, 7);
    compare_with_python(1, 8, 42, 0, 0);
    compare_with_python(2, 2, 42, 9, 0);
    compare_with_python(1500, 1500, UINT64_MAX, UINT32_MAX, 0);
    compare_large_with_python(((uint32_t)1 << 27) + 1, 1, 0, 0);
    compare_large_with_python((uint32_t)1 << 31, 7, 2, 53687091); /* the last step */
    compare_large_with_python(UINT32_MAX, UINT64_MAX, UINT32_MAX, 1000);
}

/* Numbers of users' datasets: figures of an independent program; each part of the key and the
 * operation count. */
TEST(own_numbers_of_a_sample)
{
    const lvn_sample_key key = {.seed = 1, .epoch = 2, .sample = 3};
    assert_true(lvn_sample_uniform(&key, 4, 0) == 2161479 * 0x1p-24);
    assert_true(lvn_sample_uniform(&key, 4, 5) == 13505627 * 0x1p-24);
    const lvn_sample_key others[] = {{2, 2, 3, false}, {1, 3, 3, false}, {1, 2, 4, false}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_true(lvn_sample_uniform(&others[i], 4, 0) != 2161479 * 0x1p-24);
    }
    assert_true(lvn_sample_uniform(&key, 5, 0) != 2161479 * 0x1p-24);
}

/* Large blocks of host memory (tensor/large_blocks.h): free ones join, so that they reach hardly
 * further than what is in use; they come back from any thread and outlive their context. */
#include "core/alloc.h"
#include "core/range.h"
#include "tensor/ctx.h"
#include "tensor/large_blocks.h"
#include "tensor/tensor.h"
#include "support/test.h"

#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

enum { KIB = 1 << 10, MIB = 1 << 20 };

static lvni_tensor_large *make(void)
{
    lvni_tensor_large *large;
    assert_int_equal(lvni_tensor_large_create(false, &large), LVN_OK);
    assert_non_null(large);
    return large;
}

static char *take(lvni_tensor_large *large, size_t bytes)
{
    char *p = lvni_tensor_large_take(large, bytes);
    assert_non_null(p);
    memset(p, 1, bytes);
    return p;
}

TEST(free_blocks_become_one)
{
    lvni_tensor_large *large = make();
    char *one = take(large, 3 * MIB), *two = take(large, 2 * MIB), *last = take(large, MIB);
    assert_ptr_equal(two, one + 3 * MIB);
    lvni_tensor_large_give(large, one);
    lvni_tensor_large_give(large, two);
    assert_ptr_equal(take(large, 5 * MIB), one);
    lvni_tensor_large_give(large, one);
    assert_ptr_equal(take(large, 300 * KIB), one); /* a hole before what was never used */
    assert_ptr_equal(take(large, 6 * MIB), last + MIB);
    assert_int_equal(lvni_tensor_large_bytes(large), 12 * MIB);
    lvni_tensor_large_give(large, last + MIB);
    lvni_tensor_large_give(large, last);
    lvni_tensor_large_give(large, one);
    assert_ptr_equal(take(large, 12 * MIB), one);
    assert_int_equal(lvni_tensor_large_bytes(large), 12 * MIB);
    lvni_tensor_large_give(large, one);
    lvni_tensor_large_destroy(large);
}

/* Only what was reached is counted, and all of it is gone in the end. */
TEST(what_is_reached_is_counted)
{
    const uint64_t before = lvni_core_alloc_get_stats(LVNI_TAG_TENSOR).live_bytes;
    lvni_tensor_large *large = make();
    const uint64_t empty = lvni_core_alloc_get_stats(LVNI_TAG_TENSOR).live_bytes;
    char *p = take(large, 10 * MIB + 1);
    assert_int_equal(lvni_core_alloc_get_stats(LVNI_TAG_TENSOR).live_bytes,
                     empty + 10 * MIB + 4 * KIB);
    lvni_tensor_large_give(large, p);
    lvni_tensor_large_destroy(large);
    assert_int_equal(lvni_core_alloc_get_stats(LVNI_TAG_TENSOR).live_bytes, before);
}

/* Without memory nothing changes, and the next try has it. */
TEST(memory_runs_out)
{
    lvni_tensor_large *large = NULL;
    for (int k = 1; k <= 4; k++) {
        lvni_core_alloc_fail_at(k);
        const lvn_status s = lvni_tensor_large_create(false, &large);
        if (lvni_core_alloc_fail_at(0) > 0) {
            assert_int_equal(s, LVN_OK);
            lvni_tensor_large_destroy(large);
        } else {
            assert_int_equal(s, LVN_ERR_MEMORY);
            assert_null(large);
        }
    }
    large = make();
    lvni_core_alloc_fail_at(1);
    assert_null(lvni_tensor_large_take(large, MIB));
    assert_int_equal(lvn_last_error()->code, LVN_ERR_MEMORY);
    assert_int_equal(lvni_tensor_large_bytes(large), 0);
    lvni_tensor_large_give(large, take(large, MIB));
    assert_null(lvni_tensor_large_take(large, (size_t)1 << 45)); /* more than a range has */
    assert_int_equal(lvn_last_error()->code, LVN_ERR_MEMORY);
    lvni_tensor_large_destroy(large);
}

static lvn_tensor *new_tensor(int64_t bytes)
{
    return lvn_tensor_create(LVN_U8, 1, &bytes);
}

static void *release(void *t)
{
    lvn_release(t);
    return NULL;
}

/* From a thread with a context of its own, and after the context that made it. */
TEST(a_tensor_goes_back_to_where_it_came_from)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_create(1, NULL);
    assert_non_null(ctx);
    lvni_tensor_ctx_set(ctx);
    lvn_tensor *t = new_tensor(MIB);
    const char *p = t->data;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, release, t), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    t = new_tensor(MIB);
    assert_ptr_equal(t->data, p);
    lvn_tensor *more = new_tensor(2 * MIB);
    assert_true(lvni_tensor_cache_bytes(ctx->cache) >= 3 * MIB);
    lvni_tensor_ctx_destroy(ctx);
    lvni_tensor_ctx_set(NULL);
    memset(t->data, 3, MIB);
    memset(more->data, 3, 2 * MIB);
    lvn_release(t);
    lvn_release(more);
}

/* A process that may have only so many addresses keeps large blocks by size class. */
TEST(without_a_range_there_are_size_classes)
{
    struct rlimit limit, less;
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    less = limit;
    less.rlim_cur = (rlim_t)1 << 46;
    assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
    lvni_tensor_large *large;
    assert_int_equal(lvni_tensor_large_create(false, &large), LVN_OK);
    assert_null(large);
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_create(1, NULL);
    assert_non_null(ctx);
    lvni_tensor_ctx_set(ctx);
    lvn_tensor *t = new_tensor(MIB);
    const char *p = t->data;
    lvn_release(t);
    t = new_tensor(MIB);
    assert_ptr_equal(t->data, p);
    lvn_release(t);
    lvni_tensor_ctx_destroy(ctx);
    lvni_tensor_ctx_set(NULL);
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}

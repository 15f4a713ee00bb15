/* States of backends in a context: one per class and context, made once, ended with the context in
 * reverse order, and whole or absent when memory is out. */
#include "core/alloc.h"
#include "tensor/ctx.h"
#include "support/test.h"

#include <pthread.h>
#include <string.h>

enum { LOG = 16 };

/* What happened, in order: B and b begin the lower and the upper state, E and e end them. */
static _Thread_local char happened[LOG];

static void note(char what)
{
    const size_t n = strlen(happened);
    assert_int_in_range(n, 0, LOG - 2);
    happened[n] = what;
}

static uint64_t bytes_held(void)
{
    return lvni_core_alloc_get_total().live_bytes;
}

typedef struct lower {
    void *memory;
    int value;
} lower;

static lvn_status begin_lower(void *state)
{
    lower *l = state;
    assert_null(l->memory);
    assert_int_equal((uintptr_t)state % 64, 0);
    l->memory = lvni_core_alloc(LVNI_TAG_KERNEL, 100);
    if (l->memory == NULL) {
        return LVN_ERR_MEMORY;
    }
    note('B');
    return LVN_OK;
}

static void end_lower(void *state)
{
    lvni_core_free(((lower *)state)->memory);
    note('E');
}

static const lvni_tensor_state_class lower_class = {
    .bytes = sizeof(lower), .begin = begin_lower, .end = end_lower};

/* As the primitives of a library use its engine. */
typedef struct upper {
    lower *of;
} upper;

static lvn_status begin_upper(void *state)
{
    upper *u = state;
    u->of = lvni_tensor_ctx_state(&lower_class);
    if (u->of == NULL) {
        return LVN_ERR_MEMORY;
    }
    note('b');
    return LVN_OK;
}

static void end_upper(void *state)
{
    assert_int_equal(((upper *)state)->of->value, 7); /* still there */
    note('e');
}

static const lvni_tensor_state_class upper_class = {
    .bytes = sizeof(upper), .begin = begin_upper, .end = end_upper};

TEST(states_are_made_once_and_end_in_reverse)
{
    memset(happened, 0, sizeof happened);
    const uint64_t before = bytes_held();
    lvni_tensor_ctx *a = lvni_tensor_ctx_create(1, NULL), *b = lvni_tensor_ctx_create(1, NULL);
    lvni_tensor_ctx_set(a);
    upper *u = lvni_tensor_ctx_state(&upper_class);
    lower *l = lvni_tensor_ctx_state(&lower_class);
    assert_ptr_equal(u->of, l);
    assert_ptr_equal(lvni_tensor_ctx_state(&upper_class), u);
    l->value = 7;
    lvni_tensor_ctx_set(b);
    lower *other = lvni_tensor_ctx_state(&lower_class);
    assert_ptr_not_equal(other, l);
    assert_int_equal(other->value, 0);
    lvni_tensor_ctx_destroy(a); /* b is the thread's */
    lvni_tensor_ctx_destroy(b);
    lvni_tensor_ctx_set(NULL);
    assert_string_equal(happened, "BbBeEE");
    assert_int_equal(bytes_held(), before);
}

TEST(running_out_of_memory_leaves_no_half_state)
{
    int failures = 0;
    for (int k = 1; k < 10; k++) {
        memset(happened, 0, sizeof happened);
        const uint64_t before = bytes_held();
        lvni_tensor_ctx *ctx = lvni_tensor_ctx_create(1, NULL);
        lvni_tensor_ctx_set(ctx);
        lvni_core_alloc_fail_at(k);
        const bool failed = lvni_tensor_ctx_state(&upper_class) == NULL;
        lvni_core_alloc_fail_at(0);
        if (failed) {
            assert_int_equal(lvn_last_error()->code, LVN_ERR_MEMORY);
            failures++;
        }
        upper *u = lvni_tensor_ctx_state(&upper_class); /* now there is memory */
        assert_non_null(u);
        u->of->value = 7;
        lvni_tensor_ctx_set(NULL);
        lvni_tensor_ctx_destroy(ctx);
        assert_string_equal(happened, "BbeE");
        assert_int_equal(bytes_held(), before);
        if (!failed) {
            break;
        }
    }
    assert_int_equal(failures, 3); /* upper, lower, and the memory of lower */
}

static void *use_thread(void *argument)
{
    memset(happened, 0, sizeof happened);
    lower *l = lvni_tensor_ctx_state(&lower_class); /* in the thread's default context */
    *(lower **)argument = l;
    return NULL;
}

TEST(default_contexts_have_their_own)
{
    memset(happened, 0, sizeof happened);
    const uint64_t before = bytes_held();
    pthread_t thread;
    lower *theirs = NULL;
    assert_int_equal(pthread_create(&thread, NULL, use_thread, &theirs), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_non_null(theirs);
    assert_int_equal(bytes_held(), before); /* ended with the thread */
    assert_string_equal(happened, "");
}

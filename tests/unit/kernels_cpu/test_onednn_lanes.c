/* Lanes, and the copies of weights they share: right sums from two threads at once, one reorder per
 * change of a parameter, no allocation after warm-up, nothing left behind. */
#include "core/alloc.h"
#include "kernels/cpu/weights_cache.h"
#include "onednn_support.h"
#include "support/test.h"

#include <pthread.h>

static const conv_case middle = {4, 16, 16, 32, 64, 3, 1, 1, 1, 1};

/* ---- two lanes ---- */

typedef struct lane {
    pthread_t thread;
    uint64_t seed;
    lvn_tensor *w; /* shared parameter */
    uint64_t first, wrong;
    bool failed;
} lane;

static uint64_t one_round(conv_data *d, lane *l)
{
    l->failed = l->failed || run_forward(d, 2, true) != LVN_OK || run_grad_input(d, 2) != LVN_OK ||
                run_grad_weight(d, 2, 2) != LVN_OK;
    return hash_of(d->y) ^ hash_of(d->dx) * 3 ^ hash_of(d->dw) * 5 ^ hash_of(d->db) * 7;
}

static conv_data lane_data(const lane *l)
{
    conv_data d = conv_data_make(&middle);
    fill(d.x, l->seed);
    fill(d.dy, l->seed + 1);
    lvn_release(d.w);
    d.w = lvn_retain(l->w);
    return d;
}

static void *run_lane(void *p)
{
    lane *l = p;
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_create(2, &(lvni_core_pins){.wgrad_threads = 2});
    lvni_tensor_ctx_set(ctx);
    conv_data d = lane_data(l);
    l->first = one_round(&d, l);
    for (int i = 0; i < 100; i++) {
        l->wrong += one_round(&d, l) != l->first;
    }
    conv_data_free(&d);
    lvni_tensor_ctx_set(NULL);
    lvni_tensor_ctx_destroy(ctx);
    return NULL;
}

static lvn_tensor *parameter(uint64_t seed)
{
    const int64_t shape[] = {64, 3, 3, 32};
    lvn_tensor *w = filled(seed, 4, shape);
    w->param = 0;
    return w;
}

TEST(two_lanes_at_once_give_what_one_gives)
{
    lvn_tensor *w = parameter(5);
    lane lanes[2] = {{.seed = 10, .w = w}, {.seed = 20, .w = w}};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&lanes[i].thread, NULL, run_lane, &lanes[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(lanes[i].thread, NULL);
    }
    for (int i = 0; i < 2; i++) {
        assert_false(lanes[i].failed);
        assert_int_equal(lanes[i].wrong, 0);
        conv_data d = lane_data(&lanes[i]);
        assert_true(one_round(&d, &lanes[i]) == lanes[i].first); /* alone, in this thread */
        conv_data_free(&d);
    }
    assert_true(lanes[0].first != lanes[1].first);
    lvni_cpu_weights_forget(w->id, w->id);
    lvn_release(w);
}

/* ---- copies of weights ---- */

TEST(a_parameter_is_reordered_once_per_version)
{
    conv_data d = conv_data_make(&middle);
    const uint64_t id = d.w->id;
    assert_int_equal(run_forward(&d, 1, false), LVN_OK); /* no parameter: not kept */
    const lvni_cpu_weights_stats start = lvni_cpu_weights_get_stats();
    const uint64_t before = hash_of(d.y);
    d.w->param = 3;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(run_forward(&d, 1, false), LVN_OK);
        assert_int_equal(run_grad_input(&d, 1), LVN_OK);
    }
    assert_true(hash_of(d.y) == before);
    lvni_cpu_weights_stats now = lvni_cpu_weights_get_stats();
    assert_int_equal(now.copies - start.copies, 2);
    assert_int_equal(now.bytes - start.bytes, 2 * 64 * 3 * 3 * 32 * 4);
    assert_int_equal(now.reorders - start.reorders, 2);

    fill(d.w, 77);
    assert_int_equal(run_forward(&d, 1, false), LVN_OK);
    assert_true(hash_of(d.y) == before); /* the weights changed without a new version */
    d.w->version++;
    assert_int_equal(run_forward(&d, 1, false), LVN_OK);
    const uint64_t after = hash_of(d.y);
    assert_true(after != before);
    d.w->param = -1;
    assert_int_equal(run_forward(&d, 1, false), LVN_OK);
    assert_true(hash_of(d.y) == after);
    now = lvni_cpu_weights_get_stats();
    assert_int_equal(now.copies - start.copies, 2);
    assert_int_equal(now.reorders - start.reorders, 3);

    lvni_cpu_weights_forget(id, id);
    assert_int_equal(lvni_cpu_weights_get_stats().copies, start.copies);
    assert_int_equal(lvni_cpu_weights_get_stats().bytes, start.bytes);
    conv_data_free(&d);
}

/* A hundred models that are never forgotten stay within the limit, and the newest stays in use. */
TEST(forgotten_models_do_not_pile_up)
{
    lvni_cpu_weights_forget(0, UINT64_MAX);
    lvni_cpu_weights_set_limit(8, (uint64_t)1 << 30);
    for (int i = 0; i < 100; i++) {
        conv_data d = conv_data_make(&middle);
        d.w->param = 0;
        assert_int_equal(run_forward(&d, 1, false), LVN_OK);
        conv_data_free(&d);
    }
    assert_int_equal(lvni_cpu_weights_get_stats().copies, 8);
    assert_int_equal(lvni_cpu_weights_get_stats().bytes, 8 * 64 * 3 * 3 * 32 * 4);
    lvni_cpu_weights_set_limit(1024, (uint64_t)4 << 30);
    lvni_cpu_weights_forget(0, UINT64_MAX);
    assert_int_equal(lvni_cpu_weights_get_stats().bytes, 0);
}

TEST(a_step_allocates_nothing_after_warm_up)
{
    conv_data d = conv_data_make(&middle);
    d.w->param = 0;
    uint64_t calls = 0, primitives = 0;
    for (int step = 0; step < 4; step++) {
        assert_int_equal(run_forward(&d, 2, true), LVN_OK);
        assert_int_equal(run_grad_input(&d, 2), LVN_OK);
        assert_int_equal(run_grad_weight(&d, 2, 1), LVN_OK);
        d.w->version++; /* the optimizer */
        if (step == 0) {
            calls = lvni_core_alloc_get_total().calls;
            primitives = lvni_cpu_get_stats().primitives_created;
        }
    }
    assert_int_equal(lvni_core_alloc_get_total().calls, calls);
    assert_int_equal(lvni_cpu_get_stats().primitives_created, primitives);
    lvni_cpu_weights_forget(d.w->id, d.w->id);
    conv_data_free(&d);
}

/* Every allocation fails once: an error each time, right values afterwards, nothing lost. */
TEST(running_out_of_memory_is_an_error)
{
    conv_data d = conv_data_make(&middle);
    d.w->param = 0;
    assert_int_equal(run_forward(&d, 1, true), LVN_OK);
    const uint64_t expected = hash_of(d.y);
    lvni_cpu_weights_forget(0, UINT64_MAX);
    int failures = 0;
    for (int k = 1; k < 50; k++) {
        lvni_tensor_ctx *ctx = lvni_tensor_ctx_create(1, NULL);
        lvni_tensor_ctx_set(ctx);
        lvni_core_alloc_fail_at(k);
        const lvn_status s = run_forward(&d, 1, true);
        lvni_core_alloc_fail_at(0);
        if (s != LVN_OK) {
            assert_int_equal(s, LVN_ERR_MEMORY);
            failures++;
            assert_int_equal(run_forward(&d, 1, true), LVN_OK);
        }
        assert_true(hash_of(d.y) == expected);
        lvni_tensor_ctx_set(NULL);
        lvni_tensor_ctx_destroy(ctx);
        lvni_cpu_weights_forget(0, UINT64_MAX);
        if (s == LVN_OK) {
            break;
        }
    }
    assert_int_in_range(failures, 4, 40);
    conv_data_free(&d);
}

TEST(each_context_has_its_own_stream)
{
    enum { N = 2 };
    lvni_tensor_ctx *ctx[N];
    dnnl_stream_t stream[N] = {NULL}, again = NULL;
    for (int i = 0; i < N; i++) {
        ctx[i] = lvni_tensor_ctx_create(1, NULL);
        lvni_tensor_ctx_set(ctx[i]);
        assert_int_equal(lvni_cpu_dnn_stream(&stream[i]), LVN_OK);
    }
    assert_ptr_not_equal(stream[0], stream[1]);
    lvni_tensor_ctx_set(ctx[0]);
    assert_int_equal(lvni_cpu_dnn_stream(&again), LVN_OK);
    assert_ptr_equal(again, stream[0]);
    lvni_tensor_ctx_set(NULL);
    for (int i = 0; i < N; i++) {
        lvni_tensor_ctx_destroy(ctx[i]);
    }
}

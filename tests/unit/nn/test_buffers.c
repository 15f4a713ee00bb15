/* State that a step changes: running statistics move once per step by the weighted tree mean over
 * micro-batches. And dropout's random numbers, which follow from the position in training and the
 * module's path alone. */
#include "kernels/flat.h"
#include "kernels/kernels.h"
#include "nn/model.h"
#include "plan/tree.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { C = 3, MICRO_BATCHES = 5, MOST = 8 };

typedef struct net {
    lvn_module base;
    lvn_module *norm, *drop, *drop2;
} net;

static lvn_status net_build(lvn_module *module, lvn_builder *b)
{
    net *m = (net *)module;
    m->norm = lvn_nn_batch_norm(b, "norm", C, 0.25);
    m->drop = lvn_nn_dropout(b, "drop", 0.5);
    m->drop2 = lvn_nn_dropout(b, "other", 0.5);
    return lvn_builder_status(b);
}

static const lvn_module_class net_class = {.name = "net", .size = sizeof(net), .build = net_build};

static lvni_nn_model *make(void)
{
    lvni_nn_model *m;
    assert_int_equal(lvni_nn_model_build(&net_class, NULL, 1, &m), LVN_OK);
    return m;
}

static const int64_t rows[MICRO_BATCHES] = {8, 7, 4, 0, 2}; /* micro-batch 3 has no samples */

static float input(int micro_batch, int64_t row, int c)
{
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(4, 4), .b = (uint32_t)micro_batch};
    return (float)(lvni_core_rng_normal(&rng, (uint64_t)(row * C + c)) * (c + 1) + micro_batch);
}

/* The micro-batch's forward in training; its set is filled. */
static void run_micro_batch(const lvni_nn_model *m, lvni_nn_set *set, int micro_batch)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const int64_t shape[] = {rows[micro_batch], C};
    lvn_tensor *x = lvn_tensor_create(LVN_F32, 2, shape);
    for (int64_t r = 0; r < rows[micro_batch]; r++) {
        for (int c = 0; c < C; c++) {
            LVNI_F32(x)[r * C + c] = input(micro_batch, r, c);
        }
    }
    ctx->at = (lvni_tensor_position){.training = true};
    ctx->records = set;
    lvni_nn_set_begin(set, (double)rows[micro_batch]);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_non_null(lvn_forward(((const net *)m->root)->norm, x));
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvni_nn_set_finish(set);
    ctx->records = NULL;
    ctx->at.training = false;
    lvn_release(x);
}

/* All micro-batches of a step, merged as the trainer does. */
static void run_step(lvni_nn_model *m)
{
    lvni_nn_set *set[MICRO_BATCHES];
    lvni_plan_tree tree;
    lvni_plan_tree_init(&tree, MICRO_BATCHES, 0, MICRO_BATCHES);
    for (int s = 0; s < MICRO_BATCHES; s++) {
        assert_int_equal(lvni_nn_set_create(m, &set[s]), LVN_OK);
        if (rows[s] > 0) {
            run_micro_batch(m, set[s], s);
        }
        lvni_plan_tree_merge merge[LVNI_TREE_PENDING];
        const int n = lvni_plan_tree_push(&tree, rows[s] > 0 ? s : LVNI_TREE_EMPTY, merge);
        for (int i = 0; i < n; i++) {
            lvni_kernels_flat_add(set[merge[i].into]->data, set[merge[i].from]->data,
                                  m->n_weights + m->n_records);
            set[merge[i].into]->weight += set[merge[i].from]->weight;
        }
    }
    assert_true(set[tree.pending[0].slot]->weight == 21.0);
    lvni_nn_model_apply_records(m, set[tree.pending[0].slot], NULL, NULL, 0);
    for (int s = 0; s < MICRO_BATCHES; s++) {
        lvni_nn_set_destroy(set[s]);
    }
}

/* Weighted means over micro-batches of the micro-batches' means and unbiased variances, in
 * double. */
static void expected(double mean[C], double variance[C])
{
    for (int c = 0; c < C; c++) {
        mean[c] = variance[c] = 0.0;
        for (int s = 0; s < MICRO_BATCHES; s++) {
            const double n = (double)rows[s];
            double sum = 0.0, squares = 0.0;
            for (int64_t r = 0; r < rows[s]; r++) {
                sum += (double)input(s, r, c);
            }
            for (int64_t r = 0; r < rows[s]; r++) {
                squares += pow((double)input(s, r, c) - sum / n, 2);
            }
            mean[c] += rows[s] > 0 ? sum / 21 : 0.0;
            variance[c] += rows[s] > 0 ? n * squares / (n - 1) / 21 : 0.0;
        }
    }
}

static const float *buffer(const lvni_nn_model *m, const char *name)
{
    for (int i = 0; i < m->n_buffers; i++) {
        if (strcmp(m->buffers[i]->name, name) == 0) {
            return LVNI_CF32(lvn_buffer_value(m->buffers[i]));
        }
    }
    fail_msg("no buffer %s", name);
    return NULL;
}

TEST(running_statistics_move_once_per_step)
{
    lvni_nn_model *m = make();
    double mean[C], variance[C], running_mean[C] = {0, 0, 0}, running_var[C] = {1, 1, 1};
    expected(mean, variance);
    for (int step = 0; step < 3; step++) {
        run_step(m);
        for (int c = 0; c < C; c++) {
            running_mean[c] = 0.75 * running_mean[c] + 0.25 * mean[c];
            running_var[c] = 0.75 * running_var[c] + 0.25 * variance[c];
            assert_true(fabs((double)buffer(m, "norm.running_mean")[c] - running_mean[c]) <=
                        1e-6 * fabs(running_mean[c]) + 1e-6);
            assert_true(fabs((double)buffer(m, "norm.running_var")[c] - running_var[c]) <=
                        1e-6 * running_var[c]);
        }
    }
    lvni_nn_model_destroy(m);
}

TEST(statistics_of_before_are_used_in_evaluation)
{
    lvni_nn_model *m = make();
    run_step(m);
    lvn_tensor *x = lvn_tensor_create(LVN_F32, 2, (const int64_t[]){1, C});
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *y = lvn_forward(((const net *)m->root)->norm, x);
    for (int c = 0; c < C; c++) {
        const double want = -(double)buffer(m, "norm.running_mean")[c] /
                            sqrt((double)buffer(m, "norm.running_var")[c] + 1e-5);
        assert_true(fabs((double)LVNI_F32(y)[c] - want) <= 1e-6 * fabs(want));
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
    lvni_nn_model_destroy(m);
}

TEST(a_step_without_pushes_changes_nothing)
{
    lvni_nn_model *m = make();
    lvni_nn_set *set;
    assert_int_equal(lvni_nn_set_create(m, &set), LVN_OK);
    for (int64_t i = 0; i < m->n_weights + m->n_records; i++) {
        set->data[i] = 99.0f; /* left over from the step before */
    }
    lvni_nn_set_begin(set, 4.0);
    lvni_nn_set_finish(set);
    for (int i = 0; i < m->n_parameters; i++) {
        for (int64_t k = 0; k < m->parameters[i].numel; k++) {
            assert_true(set->data[m->offset[i] + k] == 0.0f);
        }
    }
    lvni_nn_model_apply_records(m, set, NULL, NULL, 0);
    assert_true(buffer(m, "norm.running_mean")[0] == 0.0f);
    assert_true(buffer(m, "norm.running_var")[C - 1] == 1.0f);
    lvni_nn_set_destroy(set);
    lvni_nn_model_destroy(m);
}

/* What two runs of a module push counts as their mean. */
TEST(pushing_twice_gives_the_mean)
{
    lvni_nn_model *m = make();
    lvni_nn_set *set;
    assert_int_equal(lvni_nn_set_create(m, &set), LVN_OK);
    lvn_buffer *mean = m->buffers[0];
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    float start[C];
    memcpy(start, lvn_buffer_value(mean)->data, sizeof start);
    for (int runs = 1; runs <= 2; runs++) {
        lvn_tensor *x[2] = {lvn_tensor_create(LVN_F32, 2, (const int64_t[]){4, C}),
                            lvn_tensor_create(LVN_F32, 2, (const int64_t[]){4, C})};
        for (int64_t i = 0; i < 4 * C; i++) {
            LVNI_F32(x[0])[i] = 1.0f + (float)(i % C);
            LVNI_F32(x[1])[i] = 3.0f + (float)(i % C);
        }
        memcpy(LVNI_F32(lvn_buffer_value(mean)), start, sizeof start);
        ctx->at = (lvni_tensor_position){.training = true};
        ctx->records = set;
        lvni_nn_set_begin(set, 4.0);
        assert_int_equal(lvn_scope_open(), LVN_OK);
        const lvn_module *norm = ((const net *)m->root)->norm;
        for (int i = 0; i < runs; i++) {
            assert_non_null(lvn_forward(norm, x[i]));
        }
        assert_int_equal(lvn_scope_close(), LVN_OK);
        lvni_nn_set_finish(set);
        ctx->records = NULL;
        lvni_nn_model_apply_records(m, set, NULL, NULL, 0);
        for (int c = 0; c < C; c++) { /* momentum 0.25; means 1 + c and, in the second run, 3 + c */
            const float now = LVNI_F32(lvn_buffer_value(mean))[c];
            assert_float_equal(now, 0.75f * start[c] + 0.25f * ((float)runs + (float)c), 1e-6);
        }
        lvn_release(x[0]);
        lvn_release(x[1]);
    }
    lvn_tensor *two = lvn_tensor_create(LVN_F32, 1, (const int64_t[]){2});
    ctx->records = set;
    assert_int_equal(lvn_buffer_push(mean, two), LVN_ERR_INVALID);
    ctx->records = NULL;
    /* outside of training: nothing happens */
    assert_int_equal(lvn_buffer_push(mean, two), LVN_OK);
    ctx->at.training = false;
    lvn_release(two);
    lvni_nn_set_destroy(set);
    lvni_nn_model_destroy(m);
}

TEST(written_values_are_the_buffers)
{
    lvni_nn_model *m = make();
    float value[C];
    for (int i = 0; i < C; i++) {
        value[i] = 0.5f * (float)i;
    }
    assert_int_equal(lvn_buffer_write(m->buffers[0], value, C), LVN_OK);
    assert_memory_equal(LVNI_F32(lvn_buffer_value(m->buffers[0])), value, sizeof value);
    assert_int_equal(lvn_buffer_write(m->buffers[0], value, C - 1), LVN_ERR_INVALID);
    lvni_nn_model_destroy(m);
}

/* ---- dropout ---- */

enum { WIDE = 1000 };

/* What module `which` makes of ones at this position: 0 or 2 (p = 0.5). */
static void drop(const lvn_module *which, lvni_tensor_position at, int calls, float out[WIDE])
{
    lvni_tensor_ctx_get()->at = at;
    lvn_tensor *x = lvn_tensor_create(LVN_F32, 1, (const int64_t[]){WIDE});
    for (int i = 0; i < WIDE; i++) {
        LVNI_F32(x)[i] = 1.0f;
    }
    assert_int_equal(lvn_scope_open(), LVN_OK);
    for (int i = 0; i < calls; i++) {
        lvn_tensor *y = lvn_forward(which, x);
        assert_non_null(y);
        memcpy(out, y->data, WIDE * sizeof *out);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvni_tensor_ctx_get()->at = (lvni_tensor_position){0};
    lvn_release(x);
}

TEST(dropout_follows_from_the_position)
{
    lvni_nn_model *m = make();
    const net *n = (const net *)m->root;
    const lvni_tensor_position at = {.seed = 11, .step = 5, .micro_batch = 2, .training = true};
    float first[WIDE], other[WIDE];
    drop(n->drop, at, 1, first);
    const lvni_core_rng rng = {
        .key = lvni_core_rng_make_key(11, lvni_core_rng_purpose("drop")), .a = 5, .b = 2, .c = 0};
    int kept = 0;
    for (int i = 0; i < WIDE; i++) { /* by the rule, element by element */
        assert_true(first[i] == (lvni_core_rng_uniform(&rng, (uint64_t)i) >= 0.5f ? 2.0f : 0.0f));
        kept += first[i] > 0.0f;
    }
    assert_int_in_range(kept, 430, 570);
    drop(n->drop, at, 1, other);
    assert_memory_equal(first, other, sizeof first);
    const lvni_tensor_position elsewhere[] = {
        {.seed = 12, .step = 5, .micro_batch = 2, .training = true},
        {.seed = 11, .step = 6, .micro_batch = 2, .training = true},
        {.seed = 11, .step = 5, .micro_batch = 3, .training = true}};
    for (int i = 0; i < 3; i++) {
        drop(n->drop, elsewhere[i], 1, other);
        assert_memory_not_equal(first, other, sizeof first);
    }
    drop(n->drop2, at, 1, other); /* another path */
    assert_memory_not_equal(first, other, sizeof first);
    drop(n->drop, at, 2, other); /* the second call of the micro-batch's forward */
    assert_memory_not_equal(first, other, sizeof first);
    lvni_tensor_position evaluation = at;
    evaluation.training = false;
    drop(n->drop, evaluation, 1, other);
    for (int i = 0; i < WIDE; i++) {
        assert_true(other[i] == 1.0f);
    }
    lvni_nn_model_destroy(m);
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}

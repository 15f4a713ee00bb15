/* Queues: the rows of all micro-batches of a step, in their order, take the place of the oldest;
 * against a list of rows that is kept one by one. */
#include "kernels/flat.h"
#include "kernels/kernels.h"
#include "nn/model.h"
#include "plan/tree.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

enum { ROWS = 7, WIDTH = 3, MICRO_BATCHES = 5, SAMPLES = 4, STEPS = 9, MOST = 400 };

typedef struct net {
    lvn_module base;
    lvn_buffer *queue, *other, *mean;
} net;

static lvn_status net_build(lvn_module *module, lvn_builder *b)
{
    net *m = (net *)module;
    m->queue = lvn_builder_queue(b, "queue", ROWS, WIDTH, .init = LVN_INIT_NORMAL, .bound = 2.0);
    m->mean = lvn_builder_buffer(b, "mean", LVN_SHAPE(1), 0.0, 0.5);
    m->other = lvn_builder_queue(b, "other", 5, 1, .rows_per_sample = 2);
    return lvn_builder_status(b);
}

static const lvn_module_class net_class = {.name = "net", .size = sizeof(net), .build = net_build};

static lvni_nn_model *make(void)
{
    lvni_nn_model *m;
    assert_int_equal(lvni_nn_model_build(&net_class, NULL, 1, &m), LVN_OK);
    lvni_nn_model_lay_records(m, MICRO_BATCHES, SAMPLES);
    return m;
}

/* Rows that a micro-batch pushes; -1: it has no samples. In step 5 none pushes any, and in step 6
 * more than the queue has. */
static int pushes(int step, int micro_batch)
{
    static const int few[MICRO_BATCHES] = {2, 0, 3, -1, 1};
    return step == 5 ? 0 : step == 6 ? SAMPLES : few[(micro_batch + step) % MICRO_BATCHES];
}

/* Numbers of all rows that were pushed so far. */
typedef struct list {
    float row[MOST];
    int n;
} list;

static float number(int step, int micro_batch, int row)
{
    return (float)(step * 100 + micro_batch * 10 + row) - 0.5f;
}

static void push(const lvn_buffer *buffer, int64_t rows, int64_t width, float first)
{
    lvn_tensor *x = lvn_tensor_create(LVN_F32, LVN_SHAPE(rows > 0 ? rows : 1, width));
    for (int64_t i = 0; i < rows * width; i++) {
        const int64_t row = i / width, column = i % width;
        LVNI_F32(x)[i] = first + (float)row + (float)column * 0.125f;
    }
    if (rows > 0) {
        assert_int_equal(lvn_buffer_push(buffer, x), LVN_OK);
    }
    lvn_release(x);
}

static void run_micro_batch(const lvni_nn_model *m, lvni_nn_set *set, int step, int micro_batch)
{
    const net *n = (const net *)m->root;
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const int rows = pushes(step, micro_batch);
    for (int64_t i = 0; i < m->n_weights + m->n_records; i++) {
        set->data[i] = 99.0f; /* left over from the step before */
    }
    ctx->at = (lvni_tensor_position){.training = true, .micro_batch = (uint32_t)micro_batch};
    ctx->records = set;
    lvni_nn_set_begin(set, 4.0);
    push(n->queue, rows, WIDTH, number(step, micro_batch, 0));
    push(n->other, 2 * rows, 1, number(step, micro_batch, 0));
    push(n->mean, 1, 1, 4.0f);
    lvni_nn_set_finish(set);
    ctx->records = NULL;
    ctx->at = (lvni_tensor_position){0};
}

/* As the trainer merges what several micro-batches have. */
static void run_step(lvni_nn_model *m, int step)
{
    lvni_nn_set *set[MICRO_BATCHES];
    lvni_plan_tree tree;
    lvni_plan_tree_init(&tree, MICRO_BATCHES, 0, MICRO_BATCHES);
    for (int i = 0; i < MICRO_BATCHES; i++) {
        lvni_plan_tree_merge merge[LVNI_TREE_PENDING];
        const bool runs = pushes(step, i) >= 0;
        assert_int_equal(lvni_nn_set_create(m, &set[i]), LVN_OK);
        if (runs) {
            run_micro_batch(m, set[i], step, i);
        }
        const int n = lvni_plan_tree_push(&tree, runs ? i : LVNI_TREE_EMPTY, merge);
        for (int k = 0; k < n; k++) {
            lvni_kernels_flat_add(set[merge[k].into]->data, set[merge[k].from]->data,
                                  m->n_weights + m->n_records);
        }
    }
    lvni_nn_model_apply_records(m, set[tree.pending[0].slot], NULL, NULL, 0);
    for (int i = 0; i < MICRO_BATCHES; i++) {
        lvni_nn_set_destroy(set[i]);
    }
}

static void note_step(list *l, int step, int per_sample)
{
    for (int i = 0; i < MICRO_BATCHES; i++) {
        for (int k = 0; k < per_sample * pushes(step, i); k++) {
            l->row[l->n++] = number(step, i, k);
        }
    }
}

/* Place i has the last row with a number that is i modulo the size. */
static void expect(const lvn_buffer *buffer, const list *l, const float *start)
{
    const lvni_nn_queue *q = &buffer->queue;
    const float *value = LVNI_CF32(lvn_buffer_value(buffer)),
                *filled = LVNI_CF32(lvn_queue_filled(buffer));
    for (int64_t i = 0; i < q->rows; i++) {
        int64_t last = -1;
        for (int64_t k = i; k < l->n; k += q->rows) {
            last = k;
        }
        assert_true(filled[i] == (last < 0 ? 0.0f : 1.0f));
        for (int64_t c = 0; c < q->width; c++) {
            assert_true(value[i * q->width + c] ==
                        (last < 0 ? start[i * q->width + c] : l->row[last] + (float)c * 0.125f));
        }
    }
    assert_true(*LVNI_CF32(q->next->tensor) == (float)(l->n % q->rows));
}

TEST(rows_come_in_the_order_of_micro_batches)
{
    static list rows, others;
    lvni_nn_model *m = make();
    const net *n = (const net *)m->root;
    float start[ROWS * WIDTH];
    memcpy(start, lvn_const_data(lvn_buffer_value(n->queue)), sizeof start);
    assert_true(start[0] != 0.0f && start[ROWS * WIDTH - 1] != start[0]); /* drawn */
    for (int step = 0; step < STEPS; step++) {
        run_step(m, step);
        note_step(&rows, step, 1);
        note_step(&others, step, 2);
        expect(n->queue, &rows, start);
        expect(n->other, &others, (const float[5]){0});
    }
    assert_true(rows.n > 3 * ROWS);
    lvni_nn_model_destroy(m);
}

/* What there is for the first time is a function of seed and name. */
TEST(rows_at_the_start_follow_from_the_seed)
{
    lvni_nn_model *m[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(lvni_nn_model_build(&net_class, NULL, i < 2 ? 1 : 2, &m[i]), LVN_OK);
    }
    const size_t bytes = ROWS * WIDTH * sizeof(float);
    const float *value[3];
    for (int i = 0; i < 3; i++) {
        value[i] = LVNI_CF32(lvn_buffer_value(((const net *)m[i]->root)->queue));
    }
    assert_memory_equal(value[0], value[1], bytes);
    assert_memory_not_equal(value[0], value[2], bytes);
    for (int i = 0; i < 3; i++) {
        lvni_nn_model_destroy(m[i]);
    }
}

static void expect_refused(const lvn_buffer *buffer, int ndim, const int64_t *shape,
                           const char *part)
{
    lvn_tensor *x = lvn_tensor_create(LVN_F32, ndim, shape);
    lvn_clear_error();
    assert_int_equal(lvn_buffer_push(buffer, x), LVN_ERR_INVALID);
    if (strstr(lvn_last_error()->message, part) == NULL) {
        fail_msg("%s", lvn_last_error()->message);
    }
    lvn_release(x);
}

TEST(what_does_not_fit_is_refused)
{
    lvni_nn_model *m = make();
    const net *n = (const net *)m->root;
    lvni_nn_set *set;
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    assert_int_equal(lvni_nn_set_create(m, &set), LVN_OK);
    lvni_nn_set_begin(set, 4.0);
    ctx->records = set;
    ctx->at.training = true;
    expect_refused(n->queue, LVN_SHAPE(SAMPLES + 1, WIDTH), "there is room for 4, 1 for each");
    expect_refused(n->queue, LVN_SHAPE(2, WIDTH + 1), "rows of 3 f32 numbers");
    expect_refused(n->queue, LVN_SHAPE(WIDTH), "rows of 3 f32 numbers");
    expect_refused(n->queue->queue.filled, LVN_SHAPE(ROWS), "nothing can be pushed into");
    lvn_tensor *x = lvn_tensor_create(LVN_F32, LVN_SHAPE(1, WIDTH));
    assert_int_equal(lvn_buffer_push(n->queue, x), LVN_OK);
    assert_int_equal(lvn_buffer_push(n->queue, x), LVN_ERR_INVALID); /* once in a step */
    ctx->at.training = false;
    assert_int_equal(lvn_buffer_push(n->queue, x), LVN_OK); /* in evaluation nothing happens */
    lvn_release(x);
    ctx->records = NULL;
    assert_null(lvn_queue_filled(n->mean));
    lvni_nn_set_destroy(set);
    lvni_nn_model_destroy(m);
}

static lvn_status bad_build(lvn_module *module, lvn_builder *b)
{
    (void)module;
    lvn_builder_queue(b, "queue", 0, 3);
    return lvn_builder_status(b);
}

TEST(a_queue_has_rows)
{
    static const lvn_module_class bad = {
        .name = "bad", .size = sizeof(lvn_module), .build = bad_build};
    lvni_nn_model *m;
    assert_int_equal(lvni_nn_model_build(&bad, NULL, 1, &m), LVN_ERR_INVALID);
    assert_non_null(strstr(lvn_last_error()->message, "queue of 0 rows of 3 numbers"));
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}

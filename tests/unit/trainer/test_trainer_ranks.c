/* Several ranks as threads of this process: to the bit what one rank does, whatever their number,
 * lanes and buckets; parameters without a gradient, micro-batches without samples, a rank that
 * fails. */
#include "trainer_support.h"

#include "log/run_log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 12, STEPS = 7, MOST = 6 };

/* ---- a network whose parameters become final in all possible ways ---- */

typedef struct odd {
    lvn_module base;
    lvn_module *first, *twice, *beside, *never;
} odd;

static lvn_status odd_build(lvn_module *module, lvn_builder *b)
{
    odd *m = (odd *)module;
    m->first = lvn_nn_linear(b, "first", FEATURES, 700);
    m->twice = lvn_nn_linear(b, "twice", 700, 700);
    m->beside = lvn_nn_linear(b, "beside", 700, 600);
    m->never = lvn_nn_linear(b, "never", 700, 500);
    return lvn_builder_status(b);
}

static lvn_tensor *odd_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const odd *m = (const odd *)module;
    lvn_tensor *x = lvn_relu(lvn_forward(m->first, batch->image));
    x = lvn_relu(lvn_forward(m->twice, x));
    /* on the tape, and not in the loss */
    lvn_log(step, "beside", lvn_mean(lvn_forward(m->beside, x)));
    /* its gradient is final at the older use */
    x = lvn_forward(m->twice, x);
    lvn_tensor *loss = lvn_mean(lvn_square(x));
    lvn_log(step, "loss", loss);
    return loss;
}

static const lvn_module_class odd_class = {
    .name = "odd", .size = sizeof(odd), .build = odd_build, .training_step = odd_step};

/* ---- ranks on threads ---- */

typedef struct world {
    setting s;
    int n, steps;
    memory data;
} world;

typedef struct member {
    const world *w;
    lvni_dist_comm *comm;
    int rank;
    uint64_t hash;
    lvni_nn_step sum; /* metrics of the last step */
    lvn_status status;
    char message[1024];
    int64_t early;
    uint64_t sent; /* bytes, in all steps */
    int64_t set_bytes;
} member;

static lvn_status run_steps(member *m, bench *b)
{
    const uint64_t before = m->comm == NULL ? 0 : lvni_dist_comm_count(m->comm).sent;
    m->set_bytes = (b->model->n_weights + b->model->n_records) * (int64_t)sizeof(float);
    for (int i = 0; i < m->w->steps; i++) {
        lvni_trainer_step_result r;
        const lvn_status s = lvni_trainer_step(b->trainer, &r);
        if (s != LVN_OK) {
            return s;
        }
        m->sum = r.metrics;
        m->early +=
            lvni_trainer_gradient_sync_times(b->trainer->engine->gradient_sync).pieces_early;
        if (b->trainer->at.step_in_epoch == b->trainer->o.plan.steps_per_epoch) {
            b->trainer->at.epoch++;
            b->trainer->at.step_in_epoch = 0;
        }
    }
    m->sent = m->comm == NULL ? 0 : lvni_dist_comm_count(m->comm).sent - before;
    return LVN_OK;
}

static void *member_main(void *argument)
{
    member *m = argument;
    bench b;
    setting s = m->w->s;
    s.comm = m->comm;
    s.devices = m->w->n;
    s.rank = m->rank;
    bench_open(&b, &m->w->data, &s);
    m->status = run_steps(m, &b);
    if (m->status != LVN_OK) {
        snprintf(m->message, sizeof m->message, "%s", lvn_last_error()->message);
        if (m->comm != NULL) {
            lvni_dist_comm_abort(m->comm, m->message);
        }
    }
    m->hash = bench_hash(&b);
    bench_close(&b);
    return NULL;
}

static void run_world(const world *w, member m[MOST])
{
    lvni_dist_comm *comm[MOST] = {0};
    pthread_t thread[MOST];
    if (w->n > 1) {
        assert_int_equal(lvni_dist_comm_threads(w->n, true, comm), LVN_OK);
    }
    for (int i = 0; i < w->n; i++) {
        m[i] = (member){.w = w, .comm = comm[i], .rank = i};
        assert_int_equal(pthread_create(&thread[i], NULL, member_main, &m[i]), 0);
    }
    for (int i = 0; i < w->n; i++) {
        pthread_join(thread[i], NULL);
    }
    for (int i = 0; i < w->n; i++) {
        lvni_dist_comm_destroy(comm[i]);
    }
}

static void same_as_alone(const world *w)
{
    member alone[MOST], m[MOST];
    world one = *w;
    one.n = 1;
    one.s.lanes = 1;
    run_world(&one, alone);
    assert_int_equal(alone->status, LVN_OK);
    run_world(w, m);
    for (int i = 0; i < w->n; i++) {
        assert_int_equal(m[i].status, LVN_OK);
        assert_true(m[i].hash == alone->hash);
        assert_int_equal(m[i].sum.n_metrics, alone->sum.n_metrics);
        assert_memory_equal(m[i].sum.metric, alone->sum.metric,
                            (size_t)m[i].sum.n_metrics * sizeof *m[i].sum.metric);
    }
}

static const setting cnn_setting = {
    .batch_size = 13,
    .micro_batches = 6,
    .lanes = 1,
    .workers = 1,
    .clip = 0.5,
    .ema = {.decay = 0.9},
    .optim = {.kind = LVNI_OPTIM_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}};

TEST(bits_do_not_depend_on_ranks)
{
    static const int64_t buckets[] = {1, 100000, INT64_C(1) << 40};
    world w = {.s = cnn_setting, .steps = STEPS};
    memory_init(&w.data, 33, SIDE);
    w.s.cls = lvni_nn_zoo_find("cnn");
    for (int i = 0; i < 3; i++) {
        static const int ranks[] = {2, 3, 6};
        w.n = ranks[i];
        w.s.lanes = i == 0 ? 2 : 1;
        w.s.bucket_bytes = buckets[i];
        same_as_alone(&w);
    }
    w.n = 4; /* 2, 2, 1, 1 micro-batches: sub-trees that do not fit the ranks */
    w.s.precision = LVNI_PRECISION_16_MIXED;
    same_as_alone(&w);
}

/* A rank's last wave and what waits in its tree are more than a reduction takes leaves of it. */
TEST(more_micro_batches_at_once_than_leaves)
{
    world w = {.s = cnn_setting, .n = 2, .steps = 1};
    memory_init(&w.data, 4 * LVNI_TREE_PENDING, SIDE);
    w.s.cls = lvni_nn_zoo_find("cnn");
    w.s.batch_size = w.s.micro_batches = 4 * LVNI_TREE_PENDING;
    w.s.lanes = LVNI_TREE_PENDING;
    same_as_alone(&w);
}

/* Buckets are ready while the backward pass runs, and not before a gradient is whole. */
TEST(gradients_become_final_one_by_one)
{
    world w = {.s = {.cls = &odd_class,
                     .batch_size = 8,
                     .micro_batches = 4,
                     .lanes = 2,
                     .optim = {.lr = 0.1},
                     .bucket_bytes = 1},
               .n = 2,
               .steps = STEPS};
    memory_init(&w.data, 32, 0);
    same_as_alone(&w);
    member m[MOST];
    run_world(&w, m);
    assert_true(m[0].early + m[1].early > 0);
}

/* A hundred steps of two ranks with a micro-batch each: every gradient goes to the other and its
 * sum back, in parts; beside that one message. */
TEST(a_step_sends_buckets_and_one_message)
{
    enum { MANY = 100 };
    world w = {.s = cnn_setting, .n = 2, .steps = MANY};
    memory_init(&w.data, 24, SIDE);
    w.s.cls = lvni_nn_zoo_find("cnn");
    w.s.micro_batches = 2;
    w.s.batch_size = 4;
    w.s.bucket_bytes = 65536;
    member m[MOST];
    run_world(&w, m);
    assert_int_equal(m[0].status, LVN_OK);
    const uint64_t sent = m[0].sent + m[1].sent, buckets = MANY * 2 * (uint64_t)m[0].set_bytes;
    assert_int_in_range(sent, buckets + 1,
                        buckets + MANY * 2 * (uint64_t)lvni_trainer_message_limit(1));
}

/* Rank 0 names what the first step gave no gradient, once. */
TEST(parameters_without_a_gradient_are_reported)
{
    char path[] = "/tmp/levin-unused-XXXXXX", text[4096] = "";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    world w = {.s = {.cls = &odd_class,
                     .batch_size = 8,
                     .micro_batches = 4,
                     .lanes = 2,
                     .optim = {.lr = 0.1},
                     .bucket_bytes = 1},
               .n = 2,
               .steps = STEPS};
    memory_init(&w.data, 32, 0);
    assert_int_equal(lvni_log_open(path, false), LVN_OK);
    member m[MOST];
    run_world(&w, m);
    lvni_log_close();
    assert_true(read(fd, text, sizeof text - 1) > 0);
    close(fd);
    unlink(path);
    const char *reported = strstr(
        text, "the loss does not depend on beside.weight, beside.bias, never.weight and 1 more: ");
    assert_non_null(reported);
    assert_null(reported == NULL ? NULL : strstr(reported + 1, "the loss does not depend"));
}

TEST(micro_batches_without_samples_are_left_out)
{
    world w = {.s = cnn_setting, .n = 3, .steps = STEPS};
    memory_init(&w.data, 26, SIDE);
    w.s.cls = lvni_nn_zoo_find("cnn");
    w.s.skip = true;
    w.s.batch_size = 6; /* a sample each */
    w.s.bucket_bytes = 65536;
    for (int64_t i = 0; i < 26; i += 2) {
        w.data.unreadable[i] = true;
    }
    same_as_alone(&w);
    for (int64_t i = 0; i < 26; i++) { /* some steps have nothing at all */
        w.data.unreadable[i] = i != 3;
    }
    same_as_alone(&w);
}

/* One rank cannot read a sample: it reports that, and the others stop with its message instead
 * of waiting. */
TEST(a_rank_that_fails_stops_the_others)
{
    world w = {.s = cnn_setting, .n = 3, .steps = 100};
    member m[MOST];
    memory_init(&w.data, 33, SIDE);
    w.s.cls = lvni_nn_zoo_find("cnn");
    w.s.bucket_bytes = 65536;
    w.data.unreadable[17] = true;
    run_world(&w, m);
    int own = 0;
    for (int i = 0; i < w.n; i++) {
        own += m[i].status == LVN_ERR_CORRUPT;
    }
    assert_int_equal(own, 1);
    for (int i = 0; i < w.n; i++) {
        if (m[i].status != LVN_ERR_CORRUPT) {
            assert_int_equal(m[i].status, LVN_ERR_PEER);
            assert_non_null(strstr(m[i].message, "17"));
        }
    }
}

/* Evaluation and prediction: fixed chunks, results in the order of the set, the same bits on any
 * number of lanes. */
#include "trainer_support.h"

#include "core/signals.h"
#include "dist/transport.h"
#include "kernels/kernels.h"
#include "trainer/left_out.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { N = 40, CHUNK = 7 }; /* 5 full chunks and one of 5 */

/* Where loaders of the test's thread note what they leave out; of ranks each its own. */
static lvni_data_unreadable *left_out[8];
static int64_t limit = -1; /* how many they may leave out */
static bool measures;      /* chunks of ranks are runs, not in turn */

static lvni_data_loader *open_loader_of(const memory *data, int lanes, int workers, int rank,
                                        int world)
{
    lvni_plan plan;
    const lvni_plan_options o = {.n_samples = N,
                                 .batch_size = 20,
                                 .micro_batches = 20,
                                 .cores = 2,
                                 .eval_batch_size = CHUNK,
                                 .rank = rank,
                                 .devices = world};
    assert_int_equal(lvni_plan_make(&o, &plan), LVN_OK);
    plan.lanes = lanes;
    const lvni_data_unreadable_options u = {.dataset = &data->base, .what = "", .limit = limit};
    lvni_data_unreadable_destroy(left_out[rank]);
    assert_int_equal(lvni_data_unreadable_create(&u, &left_out[rank]), LVN_OK);
    const lvni_data_loader_options options = {.dataset = &data->base,
                                              .plan = &plan,
                                              .workers = workers,
                                              .unreadable = left_out[rank],
                                              .in_turn = world > 1 && !measures};
    lvni_data_loader *loader;
    assert_int_equal(lvni_data_loader_create(&options, &loader), LVN_OK);
    return loader;
}

static lvni_data_loader *open_loader(const memory *data, int lanes, int workers)
{
    return open_loader_of(data, lanes, workers, 0, 1);
}

static lvni_nn_model *make(const char *name)
{
    lvni_nn_model *m;
    const lvni_nn_zoo_arguments arguments = {.image_size = 8, .n_classes = CLASSES, .dropout = 0.5};
    const lvn_module_class *cls = name == NULL ? &softmax_regression : lvni_nn_zoo_find(name);
    assert_int_equal(lvni_nn_model_build(cls, &arguments, 2, &m), LVN_OK);
    return m;
}

/* Mean loss and share of right answers of the whole set, in double. */
static void reference(const lvni_nn_model *m, double *loss, double *right)
{
    const float *w = LVNI_CF32(m->parameters[0].tensor), *b = LVNI_CF32(m->parameters[1].tensor);
    *loss = *right = 0.0;
    for (int64_t i = 0; i < N; i++) {
        double x[FEATURES], z[CLASSES], sum = 0.0;
        int top = 0;
        memory_features(i, x);
        for (int c = 0; c < CLASSES; c++) {
            z[c] = (double)b[c];
            for (int k = 0; k < FEATURES; k++) {
                z[c] += (double)w[c * FEATURES + k] * x[k];
            }
            sum += exp(z[c]);
            top = z[c] > z[top] ? c : top;
        }
        *loss -= (z[i % CLASSES] - log(sum)) / N;
        *right += (top == i % CLASSES ? 1.0 : 0.0) / N;
    }
}

TEST(metrics_are_means_over_the_set)
{
    memory data;
    memory_init(&data, N, 0);
    lvni_nn_model *m = make(NULL);
    double loss, right;
    reference(m, &loss, &right);
    lvni_nn_step first = {0};
    for (int lanes = 1; lanes <= 4; lanes++) {
        lvni_data_loader *loader = open_loader(&data, lanes, lanes - 1);
        lvni_trainer_lanes *all;
        assert_int_equal(lvni_trainer_lanes_create(lanes, 1, NULL, &all), LVN_OK);
        for (int again = 0; again < 2; again++) {
            lvni_nn_step result;
            assert_int_equal(lvni_trainer_evaluate(m, loader, all, NULL, &result), LVN_OK);
            assert_int_equal(result.n_metrics, 2);
            assert_true(result.metric[0].weight == N);
            assert_true(fabs(lvni_trainer_metric_mean(&result, "loss") - loss) <= 1e-6);
            assert_true(fabs(lvni_trainer_metric_mean(&result, "acc") - right) <= 1e-6);
            assert_true(isnan(lvni_trainer_metric_mean(&result, "nothing")) != 0);
            first = lanes == 1 && again == 0 ? result : first;
            assert_memory_equal(first.metric, result.metric, 2 * sizeof first.metric[0]);
            assert_int_equal(lvni_data_loader_rewind(loader), LVN_OK);
        }
        lvni_trainer_lanes_destroy(all);
        lvni_data_loader_destroy(loader);
    }
    lvni_nn_model_destroy(m);
}

typedef struct rows {
    int64_t n, stop_at;
    int64_t sample[N];
    float probability[N][CLASSES];
} rows;

static lvn_status take_row(void *user, int64_t sample, const float *probability, int64_t n_classes)
{
    rows *r = user;
    assert_int_equal(n_classes, CLASSES);
    assert_true(r->n < N);
    if (r->n == r->stop_at) {
        LVN_FAIL(LVN_ERR_IO, "the table is full");
    }
    r->sample[r->n] = sample;
    memcpy(r->probability[r->n++], probability, sizeof r->probability[0]);
    return LVN_OK;
}

static lvn_tensor *probabilities(const lvn_module *root, const lvn_batch *batch, void *user)
{
    (void)user;
    return lvn_softmax(lvn_forward(root, batch->image));
}

static void predict(const memory *data, const lvni_nn_model *m, int lanes, rows *r, lvn_status want)
{
    lvni_data_loader *loader = open_loader(data, lanes, 1);
    lvni_trainer_lanes *all;
    assert_int_equal(lvni_trainer_lanes_create(lanes, 1, NULL, &all), LVN_OK);
    r->n = 0;
    assert_int_equal(lvni_trainer_predict(m, loader, all, NULL, probabilities, take_row, r), want);
    lvni_trainer_lanes_destroy(all);
    lvni_data_loader_destroy(loader);
}

TEST(rows_come_in_order_with_the_same_bits)
{
    memory data;
    memory_init(&data, N, 8);
    lvni_nn_model *m = make("cnn");
    rows *first = test_malloc(sizeof *first), *r = test_malloc(sizeof *r);
    first->stop_at = r->stop_at = -1;
    predict(&data, m, 1, first, LVN_OK);
    assert_int_equal(first->n, N);
    for (int64_t i = 0; i < N; i++) {
        double sum = 0.0;
        assert_int_equal(first->sample[i], i);
        for (int c = 0; c < CLASSES; c++) {
            assert_true(first->probability[i][c] > 0.0f);
            sum += (double)first->probability[i][c];
        }
        assert_true(fabs(sum - 1.0) <= 1e-6);
    }
    for (int lanes = 2; lanes <= 4; lanes++) {
        predict(&data, m, lanes, r, LVN_OK);
        assert_int_equal(r->n, N);
        assert_memory_equal(r->sample, first->sample, sizeof r->sample);
        assert_memory_equal(r->probability, first->probability, sizeof r->probability);
    }
    test_free(first);
    test_free(r);
    lvni_nn_model_destroy(m);
}

TEST(unreadable_samples_have_no_row)
{
    memory data;
    memory_init(&data, N, 8);
    for (int i = 7; i < 14; i++) {
        data.unreadable[i] = true; /* the whole second chunk */
    }
    data.unreadable[39] = true;
    lvni_nn_model *m = make("mlp");
    rows *r = test_malloc(sizeof *r);
    r->stop_at = -1;
    predict(&data, m, 2, r, LVN_OK);
    assert_int_equal(r->n, N - 8);
    assert_int_equal(r->sample[6], 6);
    assert_int_equal(r->sample[7], 14);
    assert_int_equal(r->sample[31], 38);
    test_free(r);
    lvni_nn_model_destroy(m);
}

TEST(error_of_the_taker_ends_the_prediction)
{
    memory data;
    memory_init(&data, N, 8);
    lvni_nn_model *m = make("mlp");
    rows *r = test_malloc(sizeof *r);
    r->stop_at = 17;
    predict(&data, m, 2, r, LVN_ERR_IO);
    assert_int_equal(r->n, 17);
    assert_string_equal(lvn_last_error()->message, "the table is full");
    test_free(r);
    lvni_nn_model_destroy(m);
}

TEST(wrong_images_are_an_error_that_names_the_layer)
{
    memory data;
    memory_init(&data, N, 9);
    lvni_nn_model *m = make("mlp"); /* made for 8 x 8 */
    rows *r = test_malloc(sizeof *r);
    r->stop_at = -1;
    predict(&data, m, 2, r, LVN_ERR_SHAPE);
    assert_int_equal(r->n, 0);
    assert_string_equal(lvn_last_error()->frames[0], "linear in fc1");
    assert_true(lvn_set_grad_enabled(true)); /* recording is on again in this thread */
    test_free(r);
    lvni_nn_model_destroy(m);
}

/* ---- several ranks, each a thread ---- */

enum { MOST_RANKS = 8 };

typedef struct predicting {
    const memory *data;
    lvni_nn_model *model;
    lvni_dist_comm *comm;
    int lanes;
    rows *r; /* rank 0 */
    lvn_status status;
    char message[1024];
    pthread_t thread;
} predicting;

static void *predict_rank(void *argument)
{
    predicting *p = argument;
    lvni_tensor_thread_set_ftz();
    lvni_data_loader *loader = open_loader_of(p->data, p->lanes, 1, lvni_dist_comm_rank(p->comm),
                                              lvni_dist_comm_world(p->comm));
    lvni_trainer_lanes *all;
    assert_int_equal(lvni_trainer_lanes_create(p->lanes, 1, NULL, &all), LVN_OK);
    p->status = lvni_trainer_predict(p->model, loader, all, p->comm, probabilities, take_row, p->r);
    if (p->status != LVN_OK) {
        snprintf(p->message, sizeof p->message, "%s", lvn_last_error()->message);
        lvni_dist_comm_abort(p->comm, p->message);
    }
    lvni_trainer_lanes_destroy(all);
    lvni_data_loader_destroy(loader);
    return NULL;
}

/* Ranks with 1, 2, 3, 1, ... lanes when `lanes` is 0. Each has a model of its own, as on devices of
 * its own. */
static void predict_ranks(const memory *data, int world, int lanes, rows *r,
                          predicting out[MOST_RANKS])
{
    lvni_dist_comm *comm[MOST_RANKS];
    r->n = 0;
    assert_int_equal(lvni_dist_comm_threads(world, true, comm), LVN_OK);
    for (int i = 0; i < world; i++) {
        out[i] = (predicting){.data = data,
                              .model = make("cnn"),
                              .comm = comm[i],
                              .lanes = lanes > 0 ? lanes : 1 + i % 3,
                              .r = i == 0 ? r : NULL};
    }
    for (int i = 0; i < world; i++) {
        assert_int_equal(pthread_create(&out[i].thread, NULL, predict_rank, &out[i]), 0);
    }
    for (int i = 0; i < world; i++) {
        pthread_join(out[i].thread, NULL);
        lvni_nn_model_destroy(out[i].model);
    }
    for (int i = 0; i < world; i++) {
        lvni_dist_comm_destroy(comm[i]);
    }
}

TEST(ranks_give_the_rows_of_one)
{
    memory data;
    memory_init(&data, N, 8);
    data.unreadable[3] = true;
    for (int i = 21; i < 28; i++) {
        data.unreadable[i] = true; /* a whole chunk: it has its turn, and no rows */
    }
    lvni_nn_model *m = make("cnn");
    rows *one = test_malloc(sizeof *one), *r = test_malloc(sizeof *r);
    predicting p[MOST_RANKS];
    one->stop_at = r->stop_at = -1;
    predict(&data, m, 1, one, LVN_OK);
    assert_int_equal(one->n, N - 8);
    for (int world = 2; world <= MOST_RANKS; world++) {
        /* 6 chunks: from whole rounds to ranks without any */
        for (int lanes = 0; lanes <= 2; lanes++) {
            predict_ranks(&data, world, lanes, r, p);
            for (int i = 0; i < world; i++) {
                assert_int_equal(p[i].status, LVN_OK);
            }
            assert_int_equal(r->n, one->n);
            assert_memory_equal(r->sample, one->sample, (size_t)one->n * sizeof r->sample[0]);
            assert_memory_equal(r->probability, one->probability,
                                (size_t)one->n * sizeof r->probability[0]);
        }
    }
    test_free(one);
    test_free(r);
    lvni_nn_model_destroy(m);
}

/* Where ranks have runs of chunks, as for a video, rows come in another order. */
TEST(ranks_with_runs_of_chunks_give_all_rows)
{
    memory data;
    memory_init(&data, N, 8);
    data.unreadable[3] = true;
    lvni_nn_model *m = make("cnn");
    rows *one = test_malloc(sizeof *one), *r = test_malloc(sizeof *r);
    predicting p[MOST_RANKS];
    one->stop_at = r->stop_at = -1;
    predict(&data, m, 1, one, LVN_OK);
    measures = true;
    for (int world = 2; world <= MOST_RANKS; world += 3) {
        predict_ranks(&data, world, 0, r, p);
        assert_int_equal(r->n, one->n);
        int64_t at[N] = {0};
        for (int64_t i = 0; i < r->n; i++) {
            at[r->sample[i]] = i + 1;
        }
        for (int64_t i = 0; i < one->n; i++) {
            const int64_t row = at[one->sample[i]] - 1;
            assert_true(row >= 0);
            assert_memory_equal(r->probability[row], one->probability[i],
                                sizeof one->probability[i]);
        }
    }
    measures = false;
    test_free(one);
    test_free(r);
    lvni_nn_model_destroy(m);
}

/* Rank 0 cannot take a row: it reports why, and so do the others. */
TEST(error_of_the_taker_ends_all_ranks)
{
    memory data;
    memory_init(&data, N, 8);
    rows *r = test_malloc(sizeof *r);
    predicting p[MOST_RANKS];
    r->stop_at = 9;
    predict_ranks(&data, 3, 1, r, p);
    assert_int_equal(p[0].status, LVN_ERR_IO);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(p[i].status, LVN_ERR_PEER);
        assert_non_null(strstr(p[i].message, "the table is full"));
    }
    assert_int_equal(r->n, 9);
    test_free(r);
}

/* A signal that any of them was sent stops all after the same wave. */
TEST(signal_stops_all_ranks)
{
    memory data;
    memory_init(&data, N, 8);
    rows *r = test_malloc(sizeof *r);
    predicting p[MOST_RANKS];
    r->stop_at = -1;
    lvni_trainer_stop_install();
    raise(SIGTERM);
    predict_ranks(&data, 3, 1, r, p);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(p[i].status, LVN_ERR_CANCELLED);
    }
    assert_int_equal(r->n, 0);
    lvni_trainer_stop_install(); /* forgets the signal */
    lvni_core_signals_remove();
    test_free(r);
}

static const lvni_dist_transport *real;

/* The last thing that ranks do together when they have evaluated; the signal comes right behind it,
 * to this one. */
static lvn_status broadcast_and_signal(lvni_dist_comm *comm, void *data, size_t bytes, int root)
{
    const lvn_status s = real->broadcast(comm, data, bytes, root);
    raise(SIGTERM);
    return s;
}

/* The others do not have it yet, and go on: so must this rank, up to the next step, where all get
 * it. */
TEST(signal_behind_the_exchange_stops_no_single_rank)
{
    memory data;
    memory_init(&data, N, 0);
    lvni_nn_model *m = make(NULL);
    lvni_data_loader *loader = open_loader(&data, 1, 0);
    lvni_trainer_lanes *lanes;
    lvni_dist_comm *comm;
    lvni_nn_step result;
    assert_int_equal(lvni_trainer_lanes_create(1, 1, NULL, &lanes), LVN_OK);
    assert_int_equal(lvni_dist_comm_self(&comm), LVN_OK);
    real = comm->ops;
    lvni_dist_transport deferred = *real;
    deferred.broadcast = broadcast_and_signal;
    comm->ops = &deferred;
    lvni_trainer_stop_install();
    assert_int_equal(lvni_trainer_evaluate(m, loader, lanes, comm, &result), LVN_OK);
    assert_int_equal(lvni_trainer_stop_signal(), SIGTERM);
    assert_true(result.metric[0].weight == N);
    assert_int_equal(lvni_data_loader_rewind(loader), LVN_OK);
    /* all ranks get it */
    assert_int_equal(lvni_trainer_evaluate(m, loader, lanes, comm, &result), LVN_ERR_CANCELLED);
    lvni_trainer_stop_install(); /* forgets the signal */
    lvni_core_signals_remove();
    comm->ops = real;
    lvni_dist_comm_destroy(comm);
    lvni_trainer_lanes_destroy(lanes);
    lvni_data_loader_destroy(loader);
    lvni_nn_model_destroy(m);
}

/* ---- a disk that goes away ---- */

enum { GONE = 10, LIMIT = 3 }; /* from this sample on nothing can be read */
static atomic_int reads;
static lvn_status (*plain_get)(const lvn_dataset *dataset, const lvn_sample_key *key,
                               void *const field[]);

static lvn_status counted_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                              void *const field[])
{
    reads++;
    return plain_get(dataset, key, field);
}

/* As `eval` and `predict` end: all that was noted counts. */
static void *end_rank(void *argument)
{
    predicting *p = argument;
    const int rank = p->comm == NULL ? 0 : lvni_dist_comm_rank(p->comm),
              world = p->comm == NULL ? 1 : lvni_dist_comm_world(p->comm);
    lvni_nn_step result;
    lvni_trainer_lanes *all;
    lvni_tensor_thread_set_ftz();
    lvni_data_loader *loader = open_loader_of(p->data, p->lanes, 0, rank, world);
    assert_int_equal(lvni_trainer_lanes_create(p->lanes, 1, NULL, &all), LVN_OK);
    p->status = measures ? lvni_trainer_evaluate(p->model, loader, all, p->comm, &result)
                         : lvni_trainer_predict(p->model, loader, all, p->comm, probabilities,
                                                take_row, p->r);
    if (!measures) {
        assert_int_equal(p->status, LVN_OK);
        p->status = lvni_trainer_unreadable_settle(left_out[rank], p->comm, 0);
    }
    snprintf(p->message, sizeof p->message, "%s", lvn_last_error()->message);
    if (p->comm != NULL && p->status != LVN_OK) {
        lvni_dist_comm_abort(p->comm, p->message);
    }
    lvni_trainer_lanes_destroy(all);
    lvni_data_loader_destroy(loader);
    return NULL;
}

/* Reads no more than the chunks that show it, of each rank; the error is that of the end. */
static void end_early(const memory *data, rows *r, int world, int lanes, int most)
{
    lvni_dist_comm *comm[MOST_RANKS] = {NULL};
    predicting p[MOST_RANKS];
    assert_int_equal(world == 1 ? LVN_OK : lvni_dist_comm_threads(world, true, comm), LVN_OK);
    r->n = 0;
    reads = 0;
    for (int i = 0; i < world; i++) {
        p[i] = (predicting){
            .data = data, .model = make(NULL), .comm = comm[i], .lanes = lanes, .r = r};
        assert_int_equal(pthread_create(&p[i].thread, NULL, end_rank, &p[i]), 0);
    }
    for (int i = 0; i < world; i++) {
        pthread_join(p[i].thread, NULL);
        lvni_nn_model_destroy(p[i].model);
        assert_true(p[i].status == LVN_ERR_CORRUPT || p[i].status == LVN_ERR_PEER);
        assert_non_null(strstr(p[i].message,
                               "4 of 40 samples could not be read, and a run leaves out 3 at most "
                               "(on_error=skip: any number): sample 13 is damaged; before it "
                               "sample 10 is damaged; sample 11 is damaged; sample 12"));
    }
    assert_int_equal(reads, most);
    for (int i = 0; i < world; i++) {
        lvni_dist_comm_destroy(comm[i]);
    }
}

TEST(too_many_unreadable_samples_end_it_at_once)
{
    memory data;
    memory_init(&data, N, 0);
    lvn_dataset_class counted = *data.base.cls;
    plain_get = counted.get;
    counted.get = counted_get;
    data.base.cls = &counted;
    for (int i = GONE; i < N; i++) {
        data.unreadable[i] = true;
    }
    rows *r = test_malloc(sizeof *r);
    r->stop_at = -1;
    limit = LIMIT;
    end_early(&data, r, 1, 1, 2 * CHUNK);
    end_early(&data, r, 1, 3, 3 * CHUNK);
    end_early(&data, r, 2, 1, 2 * CHUNK);
    end_early(&data, r, 3, 1, 3 * CHUNK);
    measures = true;
    end_early(&data, r, 1, 1, 2 * CHUNK);
    end_early(&data, r, 2, 1, 3 * CHUNK); /* the second begins behind the first's chunks */
    measures = false;
    limit = -1;
    for (int i = 0; i < MOST_RANKS; i++) {
        lvni_data_unreadable_destroy(left_out[i]);
        left_out[i] = NULL;
    }
    test_free(r);
    lvn_clear_error();
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}

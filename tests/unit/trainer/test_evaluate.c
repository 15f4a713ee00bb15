/* Evaluation and prediction: fixed chunks, results in the order of the set, the same bits on any number of
 * lanes. */
#include "trainer_support.h"

#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 40, CHUNK = 7 }; /* 5 full chunks and one of 5 */

static lvni_loader *open_loader(const memory *data, int lanes, int workers)
{
    lvni_plan plan;
    const lvni_plan_options o = {
        .n_samples = N, .batch_size = 20, .shards = 4, .lanes = lanes, .cores = 2, .eval_batch_size = CHUNK};
    assert_int_equal(lvni_plan_make(&o, &plan), LVN_OK);
    const lvni_loader_options options = {
        .dataset = &data->base, .plan = &plan, .workers = workers, .skip_unreadable = true};
    lvni_loader *loader;
    assert_int_equal(lvni_loader_create(&options, &loader), LVN_OK);
    return loader;
}

static lvni_model *make(const char *name)
{
    lvni_model *m;
    const lvni_zoo_arguments arguments = {.image_size = 8, .n_classes = CLASSES, .dropout = 0.5};
    const lvn_module_class *cls = name == NULL ? &softmax_regression : lvni_zoo_find(name);
    assert_int_equal(lvni_model_build(cls, &arguments, 2, &m), LVN_OK);
    return m;
}

/* Mean loss and share of right answers of the whole set, in double. */
static void reference(const lvni_model *m, double *loss, double *right)
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

static void metrics_are_means_over_the_set(void **state)
{
    (void)state;
    memory data;
    memory_init(&data, N, 0);
    lvni_model *m = make(NULL);
    double loss, right;
    reference(m, &loss, &right);
    lvn_step first = {0};
    for (int lanes = 1; lanes <= 4; lanes++) {
        lvni_loader *loader = open_loader(&data, lanes, lanes - 1);
        lvni_lanes *all;
        assert_int_equal(lvni_lanes_create(lanes, 1, 1, &all), LVN_OK);
        for (int again = 0; again < 2; again++) {
            lvn_step result;
            assert_int_equal(lvni_evaluate(m, loader, all, NULL, &result), LVN_OK);
            assert_int_equal(result.n_metrics, 2);
            assert_true(result.metric[0].weight == N);
            assert_true(fabs(lvni_metric_mean(&result, "loss") - loss) <= 1e-6);
            assert_true(fabs(lvni_metric_mean(&result, "acc") - right) <= 1e-6);
            assert_true(isnan(lvni_metric_mean(&result, "nothing")) != 0);
            first = lanes == 1 && again == 0 ? result : first;
            assert_memory_equal(first.metric, result.metric, 2 * sizeof first.metric[0]);
            assert_int_equal(lvni_loader_rewind(loader), LVN_OK);
        }
        lvni_lanes_destroy(all);
        lvni_loader_destroy(loader);
    }
    lvni_model_destroy(m);
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

static void predict(const memory *data, const lvni_model *m, int lanes, rows *r, lvn_status want)
{
    lvni_loader *loader = open_loader(data, lanes, 1);
    lvni_lanes *all;
    assert_int_equal(lvni_lanes_create(lanes, 1, 1, &all), LVN_OK);
    r->n = 0;
    assert_int_equal(lvni_predict(m, loader, all, take_row, r), want);
    lvni_lanes_destroy(all);
    lvni_loader_destroy(loader);
}

static void rows_come_in_order_with_the_same_bits(void **state)
{
    (void)state;
    memory data;
    memory_init(&data, N, 8);
    lvni_model *m = make("cnn");
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
    lvni_model_destroy(m);
}

static void unreadable_samples_have_no_row(void **state)
{
    (void)state;
    memory data;
    memory_init(&data, N, 8);
    for (int i = 7; i < 14; i++) {
        data.unreadable[i] = true; /* the whole second chunk */
    }
    data.unreadable[39] = true;
    lvni_model *m = make("mlp");
    rows *r = test_malloc(sizeof *r);
    r->stop_at = -1;
    predict(&data, m, 2, r, LVN_OK);
    assert_int_equal(r->n, N - 8);
    assert_int_equal(r->sample[6], 6);
    assert_int_equal(r->sample[7], 14);
    assert_int_equal(r->sample[31], 38);
    test_free(r);
    lvni_model_destroy(m);
}

static void error_of_the_taker_ends_the_prediction(void **state)
{
    (void)state;
    memory data;
    memory_init(&data, N, 8);
    lvni_model *m = make("mlp");
    rows *r = test_malloc(sizeof *r);
    r->stop_at = 17;
    predict(&data, m, 2, r, LVN_ERR_IO);
    assert_int_equal(r->n, 17);
    assert_string_equal(lvn_last_error()->message, "the table is full");
    test_free(r);
    lvni_model_destroy(m);
}

static void wrong_pictures_are_an_error_that_names_the_layer(void **state)
{
    (void)state;
    memory data;
    memory_init(&data, N, 9);
    lvni_model *m = make("mlp"); /* made for 8 x 8 */
    rows *r = test_malloc(sizeof *r);
    r->stop_at = -1;
    predict(&data, m, 2, r, LVN_ERR_SHAPE);
    assert_int_equal(r->n, 0);
    assert_string_equal(lvn_last_error()->frames[0], "linear in fc1");
    assert_true(lvn_set_grad_enabled(true)); /* recording is on again in this thread */
    test_free(r);
    lvni_model_destroy(m);
}

int main(void)
{
    if (lvni_cpu_start() != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_are_means_over_the_set),
        cmocka_unit_test(rows_come_in_order_with_the_same_bits),
        cmocka_unit_test(unreadable_samples_have_no_row),
        cmocka_unit_test(error_of_the_taker_ends_the_prediction),
        cmocka_unit_test(wrong_pictures_are_an_error_that_names_the_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

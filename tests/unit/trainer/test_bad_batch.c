/* on_bad_batch: a micro-batch whose loss is not finite ends the run, or is left out with its weight
 * or without; ranks as threads, to the bit what one rank does. */
#include "trainer_support.h"

#include "nn/step_metrics.h"
#include "trainer/loop_impl.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 9, MOST = 4, SIDE = 12, MOST_VALUES = 1 << 20 };

typedef struct member {
    const setting *s;
    const memory *data;
    lvni_dist_comm *comm;
    int rank, devices;
    uint64_t hash;
    double bad;
    float value[MOST_VALUES];
} member;

static double count_bad(const lvni_trainer_step_result *r)
{
    for (int i = 0; i < r->metrics.n_metrics; i++) {
        if (strcmp(r->metrics.metric[i].name, LVNI_METRIC_BAD) == 0) {
            return r->metrics.metric[i].sum;
        }
    }
    return 0.0;
}

static void *member_main(void *argument)
{
    member *m = argument;
    setting s = *m->s;
    s.comm = m->comm;
    s.devices = m->devices;
    s.rank = m->rank;
    bench b;
    bench_open(&b, m->data, &s);
    lvni_trainer *t = b.trainer;
    for (int i = 0; i < STEPS; i++) {
        lvni_trainer_step_result r = {0};
        assert_int_equal(lvni_trainer_step(t, &r), LVN_OK);
        m->bad += count_bad(&r);
        if (t->at.step_in_epoch == t->o.plan.steps_per_epoch) {
            t->at.epoch++;
            t->at.step_in_epoch = 0;
        }
    }
    m->hash = bench_hash(&b);
    assert_true(b.model->n_values <= MOST_VALUES);
    memcpy(m->value, b.model->weights, (size_t)b.model->n_values * sizeof *m->value);
    if (m->comm != NULL) {
        assert_int_equal(lvni_dist_comm_barrier(m->comm), LVN_OK);
    }
    bench_close(&b);
    return NULL;
}

static member run[MOST];

static const member *run_ranks(const setting *s, const memory *data, int devices)
{
    lvni_dist_comm *comm[MOST] = {0};
    pthread_t thread[MOST];
    if (devices > 1) {
        assert_int_equal(lvni_dist_comm_threads(devices, true, comm), LVN_OK);
    }
    memset(run, 0, sizeof run);
    for (int i = 0; i < devices; i++) {
        run[i].s = s;
        run[i].data = data;
        run[i].comm = comm[i];
        run[i].rank = i;
        run[i].devices = devices;
        assert_int_equal(pthread_create(&thread[i], NULL, member_main, &run[i]), 0);
    }
    for (int i = 0; i < devices; i++) {
        pthread_join(thread[i], NULL);
    }
    for (int i = 0; i < devices; i++) {
        lvni_dist_comm_destroy(comm[i]);
        assert_true(run[i].hash == run[0].hash);
        assert_true(run[i].bad == run[0].bad);
    }
    return &run[0];
}

static setting make_setting(lvni_trainer_bad_batch what)
{
    return (setting){.cls = lvni_nn_zoo_find("cnn"),
                     .batch_size = 8,
                     .micro_batches = 4,
                     .lanes = 1,
                     .optim = {.kind = LVNI_OPTIM_SGD, .lr = 0.05, .momentum = 0.9},
                     .on_bad_batch = what};
}

/* 24 samples: three steps an epoch, one of which meets the bad one. */
TEST(bits_are_those_of_one_rank)
{
    uint64_t hash[LVNI_BAD_BATCH_ZERO + 1] = {0};
    memory data;
    memory_init(&data, 24, SIDE);
    data.nan[5] = true;
    for (int what = LVNI_BAD_BATCH_SKIP; what <= LVNI_BAD_BATCH_ZERO; what++) {
        const setting s = make_setting((lvni_trainer_bad_batch)what);
        for (int devices = 1; devices <= MOST; devices++) {
            const member *m = run_ranks(&s, &data, devices);
            hash[what] = devices == 1 ? m->hash : hash[what];
            assert_true(m->hash == hash[what]);
            assert_true(m->bad == STEPS / 3.0);
        }
    }
    assert_true(hash[LVNI_BAD_BATCH_SKIP] != hash[LVNI_BAD_BATCH_ZERO]);
}

/* Every sample is bad: nothing is learned, and the run goes on. */
TEST(all_are_bad)
{
    static float before[MOST_VALUES];
    memory data;
    memory_init(&data, 24, SIDE);
    memset(data.nan, true, sizeof data.nan);
    const setting s = make_setting(LVNI_BAD_BATCH_SKIP);
    bench b;
    bench_open(&b, &data, &s);
    const size_t bytes = (size_t)b.model->n_values * sizeof *before;
    assert_true(bytes <= sizeof before);
    memcpy(before, b.model->weights, bytes);
    bench_close(&b);
    const member *m = run_ranks(&s, &data, 2);
    assert_true(m->bad == 4.0 * STEPS);
    assert_memory_equal(m->value, before, bytes);
}

static struct seen order[3]; /* of the first three steps */

/* Skipped is what samples that cannot be read are. */
TEST(skipped_is_not_there)
{
    memory data;
    memory_init(&data, 24, 0);
    setting s = make_setting(LVNI_BAD_BATCH_SKIP);
    s.cls = NULL;
    s.skip = true;
    static float value[MOST_VALUES];
    for (int i = 0; i < 3; i++) {
        bench b;
        memset(seen, 0, sizeof seen);
        bench_open(&b, &data, &s);
        bench_steps(&b, 3);
        const size_t bytes = (size_t)b.model->n_values * sizeof *value;
        if (i == 0) {
            memcpy(order, seen, sizeof order);
            data.nan[order[1].sample[2]] = true;
        } else if (i == 1) {
            memcpy(value, b.model->weights, bytes);
            data.unreadable[order[1].sample[2]] = data.unreadable[order[1].sample[3]] = true;
        } else {
            assert_memory_equal(value, b.model->weights, bytes);
        }
        bench_close(&b);
    }
}

TEST(stop_names_the_samples)
{
    memory data;
    memory_init(&data, 24, 0);
    memset(data.nan, true, sizeof data.nan);
    setting s = make_setting(LVNI_BAD_BATCH_STOP);
    s.cls = NULL;
    bench b;
    bench_open(&b, &data, &s);
    lvni_trainer_step_result r;
    memset(seen, 0, sizeof seen);
    assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_ERR_NON_FINITE);
    char text[64];
    snprintf(text, sizeof text, "micro-batch 0 (samples %lld, %lld): try",
             (long long)seen[0].sample[0], (long long)seen[0].sample[1]);
    assert_non_null(strstr(lvn_last_error()->message, text));
    bench_close(&b);
}

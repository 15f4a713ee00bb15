/* Groups of shards that lie on several ranks: the bits of one rank, ranks without samples, and failures, which no rank waits for. */
#include "contrast_support.h"

#include "kernels/kernels.h"

#include <pthread.h>
#include <string.h>

enum { MOST_RANKS = 6 };

typedef struct rank_run {
    const memory *data;
    setting s;
    int steps;
    pthread_t thread;
    lvn_status status;
    lvn_error error;
    uint64_t hash;
} rank_run;

/* As the trainer's loop: what fails here ends the others. */
static void *rank_main(void *argument)
{
    rank_run *r = argument;
    bench b;
    bench_open(&b, r->data, &r->s);
    lvni_trainer *t = b.trainer;
    for (int i = 0; i < r->steps && r->status == LVN_OK; i++) {
        lvni_step_result result;
        r->status = lvni_trainer_step(t, &result);
        if (t->at.step_in_epoch == t->o.plan.steps_per_epoch) {
            t->at.epoch++;
            t->at.step_in_epoch = 0;
        }
    }
    if (r->status != LVN_OK) {
        r->error = *lvn_last_error();
        lvni_comm_abort(r->s.comm, r->error.message);
    }
    r->hash = bench_hash(&b);
    bench_close(&b);
    return NULL;
}

static void run_ranks(const memory *data, const setting *s, int world, int steps, rank_run run[MOST_RANKS])
{
    lvni_comm *comm[MOST_RANKS];
    assert_int_equal(lvni_comm_threads(world, true, comm), LVN_OK);
    for (int i = 0; i < world; i++) {
        run[i] = (rank_run){.data = data, .s = *s, .steps = steps};
        run[i].s.devices = world;
        run[i].s.rank = i;
        run[i].s.comm = comm[i];
        assert_int_equal(pthread_create(&run[i].thread, NULL, rank_main, &run[i]), 0);
    }
    for (int i = 0; i < world; i++) {
        pthread_join(run[i].thread, NULL);
    }
    for (int i = 0; i < world; i++) {
        lvni_comm_destroy(comm[i]);
    }
}

static uint64_t hash_of_one(const memory *data, const setting *s, int steps)
{
    bench b;
    bench_open(&b, data, s);
    bench_steps(&b, steps);
    const uint64_t hash = bench_hash(&b);
    bench_close(&b);
    return hash;
}

static void compare_with_one(const memory *data, const setting *s, const char *what)
{
    const uint64_t want = hash_of_one(data, s, 5);
    for (int world = 2; world <= MOST_RANKS; world++) {
        rank_run run[MOST_RANKS];
        run_ranks(data, s, world, 5, run);
        for (int i = 0; i < world; i++) {
            if (run[i].status != LVN_OK || run[i].hash != want) {
                fail_msg("%s, group=%d, rank %d of %d: other bits than one rank (%s)", what, s->group, i, world, run[i].error.message);
            }
        }
    }
}

/* Groups of 2, 3 and 6 shards of 6, on 2 to 6 ranks: within ranks, across two of them, across all. Steps of 20, 20 and 5 samples (an empty
 * shard), unreadable samples, clipping, an average. */
static void bits_do_not_depend_on_ranks(void **state)
{
    (void)state;
    memory vectors, pictures;
    memory_init(&vectors, 45, 0);
    memory_init(&pictures, 45, 8);
    for (int i = 0; i < 45; i += 7) {
        vectors.unreadable[i] = true;
    }
    const int groups[] = {2, 3, 6};
    for (int i = 0; i < 3; i++) {
        setting s = {.batch_size = 20,
                     .shards = 6,
                     .group = groups[i],
                     .lanes = 1,
                     .skip = true,
                     .clip = 0.5,
                     .ema = {.decay = 0.9},
                     .optim = {.kind = LVNI_OPTIM_ADAMW, .lr = 1e-2, .weight_decay = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}};
        s.cls = &contrast_class;
        compare_with_one(&vectors, &s, "contrast");
        s.cls = lvni_zoo_find("cnn");
        s.sync = true;
        compare_with_one(&pictures, &s, "sync_batchnorm");
    }
}

/* Most samples are unreadable: ranks whose shards have none take part without them. */
static void ranks_without_samples_take_part(void **state)
{
    (void)state;
    memory data;
    memory_init(&data, 48, 0);
    for (int i = 0; i < 48; i++) {
        data.unreadable[i] = i % 5 != 0;
    }
    const setting s = {.cls = &contrast_class, .batch_size = 12, .shards = 6, .group = 6, .lanes = 1, .skip = true};
    compare_with_one(&data, &s, "few samples");
    memset(data.unreadable, true, sizeof data.unreadable);
    compare_with_one(&data, &s, "no samples");
}

static void failures_end_all_ranks(void **state)
{
    (void)state;
    memory data;
    memory_init(&data, 24, 0);
    const setting s = {.cls = &contrast_class, .batch_size = 24, .shards = 6, .group = 6, .lanes = 1};
    rank_run run[MOST_RANKS];
    for (int world = 2; world <= 3; world++) {
        for (int i = 0; i < 10; i++) {
            contrast_bad_sample = i;
            contrast_bad = CONTRAST_FAILS;
            run_ranks(&data, &s, world, 1, run);
            int own = 0;
            for (int k = 0; k < world; k++) {
                assert_non_null(strstr(run[k].error.message, "cannot be broadcast"));
                own += run[k].status == LVN_ERR_SHAPE;
                assert_true(run[k].status == LVN_ERR_SHAPE || run[k].status == LVN_ERR_PEER);
            }
            assert_int_equal(own, 1);
            contrast_bad = CONTRAST_STAYS_AWAY;
            run_ranks(&data, &s, world, 1, run);
            for (int k = 0; k < world; k++) {
                assert_true(run[k].status == LVN_ERR_MISMATCH || run[k].status == LVN_ERR_PEER);
                assert_non_null(strstr(run[k].error.message, "the shards of a group must make the same calls"));
            }
        }
    }
    contrast_bad_sample = -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_ranks),
        cmocka_unit_test(ranks_without_samples_take_part),
        cmocka_unit_test(failures_end_all_ranks),
    };
    if (lvni_cpu_start() != LVN_OK) {
        return 1;
    }
    return cmocka_run_group_tests_name("coupled ranks", tests, NULL, NULL);
}

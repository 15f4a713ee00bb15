/* rank_support.h */
#include "rank_support.h"

#include <pthread.h>

typedef struct member {
    const memory *data;
    setting s;
    int steps;
    lvn_device_kind kind;
    pthread_t thread;
    rank_run *run;
} member;

static void *member_main(void *argument)
{
    const member *m = argument;
    bench b;
    assert_int_equal(
        lvn_device_use((lvn_device){m->kind, m->kind == LVN_DEVICE_CPU ? 0 : m->s.rank}), LVN_OK);
    bench_open(&b, m->data, &m->s);
    lvni_trainer *t = b.trainer;
    for (int i = 0; i < m->steps && m->run->status == LVN_OK; i++) {
        lvni_trainer_step_result result;
        m->run->status = lvni_trainer_step(t, &result);
        if (t->at.step_in_epoch == t->o.plan.steps_per_epoch) {
            t->at.epoch++;
            t->at.step_in_epoch = 0;
        }
    }
    if (m->run->status != LVN_OK) {
        m->run->error = *lvn_last_error();
        lvni_dist_comm_abort(m->s.comm, m->run->error.message);
    }
    m->run->hash = bench_hash(&b);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    return NULL;
}

void ranks_run_on(const memory *data, const setting *s, int world, int steps, lvn_device_kind kind,
                  rank_run run[MOST_RANKS])
{
    lvni_dist_comm *comm[MOST_RANKS];
    member m[MOST_RANKS];
    assert_int_equal(lvni_dist_comm_threads(world, true, comm), LVN_OK);
    for (int i = 0; i < world; i++) {
        run[i] = (rank_run){.status = LVN_OK};
        m[i] = (member){.data = data, .s = *s, .steps = steps, .kind = kind, .run = &run[i]};
        m[i].s.devices = world;
        m[i].s.rank = i;
        m[i].s.comm = comm[i];
        assert_int_equal(pthread_create(&m[i].thread, NULL, member_main, &m[i]), 0);
    }
    for (int i = 0; i < world; i++) {
        pthread_join(m[i].thread, NULL);
    }
    for (int i = 0; i < world; i++) {
        lvni_dist_comm_destroy(comm[i]);
    }
}

void ranks_run(const memory *data, const setting *s, int world, int steps, rank_run run[MOST_RANKS])
{
    ranks_run_on(data, s, world, steps, LVN_DEVICE_CPU, run);
}

uint64_t ranks_hash_of_one(const memory *data, const setting *s, int steps, lvn_device device)
{
    bench b;
    assert_int_equal(lvn_device_use(device), LVN_OK);
    bench_open(&b, data, s);
    bench_steps(&b, steps);
    const uint64_t hash = bench_hash(&b);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    return hash;
}

void ranks_agree(const char *what, const memory *data, const setting *s, int world, int steps,
                 uint64_t want)
{
    ranks_agree_on(what, data, s, world, steps, want, LVN_DEVICE_CPU);
}

void ranks_agree_on(const char *what, const memory *data, const setting *s, int world, int steps,
                    uint64_t want, lvn_device_kind kind)
{
    rank_run run[MOST_RANKS];
    ranks_run_on(data, s, world, steps, kind, run);
    for (int i = 0; i < world; i++) {
        if (run[i].status != LVN_OK || run[i].hash != want) {
            fail_msg("%s, group=%d, rank %d of %d: other bits than one rank (%s)", what, s->group,
                     i, world, run[i].error.message);
        }
    }
}

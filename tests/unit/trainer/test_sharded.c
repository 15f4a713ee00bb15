/* strategy=sharded: ranks as threads, each with a part of the optimizer. To the bit what one rank
 * does; state of 1/W; the bytes of ddp; a checkpoint of all goes on on any number of ranks. */
#include "trainer_support.h"

#include "kernels/kernels.h"
#include "plan/exchange.h"
#include "trainer/loop_impl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 12, STEPS = 4, MOST = 5, MICRO_BATCHES = 5, BLOCK = LVNI_EXCHANGE_BLOCK };

static const lvni_optim_options kinds[] = {
    {.kind = LVNI_OPTIM_SGD, .lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3},
    {.kind = LVNI_OPTIM_ADAMW,
     .lr = 1e-3,
     .weight_decay = 0.01,
     .beta1 = 0.9,
     .beta2 = 0.99,
     .eps = 1e-8},
    {.kind = LVNI_OPTIM_LAMB,
     .lr = 1e-3,
     .weight_decay = 0.01,
     .beta1 = 0.9,
     .beta2 = 0.99,
     .eps = 1e-6},
    {.kind = LVNI_OPTIM_LARS,
     .lr = 0.5,
     .momentum = 0.9,
     .weight_decay = 1e-3,
     .trust_coefficient = 0.001},
};

/* What a run leaves: weights with buffers, slots, the norm of the last step. */
typedef struct whole {
    float *values, *slot[LVNI_OPTIM_SLOTS];
    int64_t n, n_values;
    int n_slots;
    double norm;
} whole;

typedef struct world {
    setting s;
    int n, steps;
    memory data;
    const char *saves, *loads; /* run directory to write at the end, checkpoint to begin with */
    whole *out;
} world;

typedef struct member {
    const world *w;
    lvni_dist_comm *comm;
    int rank;
    int64_t state; /* elements */
    lvni_dist_comm_bytes moved;
} member;

static void whole_free(whole *x)
{
    free(x->values);
    for (int k = 0; k < LVNI_OPTIM_SLOTS; k++) {
        free(x->slot[k]);
    }
    *x = (whole){0};
}

static void whole_init(const bench *b, whole *x)
{
    const lvni_optim *o = b->trainer->engine->optim;
    *x = (whole){.n = o->n, .n_values = b->model->n_values, .n_slots = o->n_slots};
    x->values = calloc((size_t)x->n_values, sizeof *x->values);
    for (int k = 0; k < x->n_slots; k++) {
        x->slot[k] = calloc((size_t)x->n, sizeof **x->slot);
    }
}

/* Each rank writes its part of the slots, the last one the values. */
static void whole_take(const member *m, const bench *b)
{
    const lvni_optim *o = b->trainer->engine->optim;
    whole *x = m->w->out;
    for (int k = 0; k < o->n_slots; k++) {
        assert_int_equal(o->slot_length[k], o->own.end - o->own.begin);
        if (o->slot_length[k] > 0) {
            memcpy(x->slot[k] + o->own.begin, o->slot[k],
                   (size_t)o->slot_length[k] * sizeof **x->slot);
        }
    }
    if (m->rank == m->w->n - 1) {
        memcpy(x->values, b->model->weights, (size_t)x->n_values * sizeof *x->values);
    }
}

static void run_steps(member *m, bench *b)
{
    lvni_trainer *t = b->trainer;
    lvni_trainer_step_result r = {0};
    for (int i = 0; i < m->w->steps; i++) {
        const lvni_dist_comm_bytes before =
            m->comm == NULL ? (lvni_dist_comm_bytes){0} : lvni_dist_comm_count(m->comm);
        assert_int_equal(lvni_trainer_step(t, &r), LVN_OK);
        const lvni_dist_comm_bytes after =
            m->comm == NULL ? (lvni_dist_comm_bytes){0} : lvni_dist_comm_count(m->comm);
        m->moved.sent += after.sent - before.sent;
        m->moved.received += after.received - before.received;
        if (t->at.step_in_epoch == t->o.plan.steps_per_epoch) {
            t->at.epoch++;
            t->at.step_in_epoch = 0;
        }
    }
    if (m->rank == 0) {
        m->w->out->norm = r.phase[0].grad_norm;
    }
}

static void *member_main(void *argument)
{
    member *m = argument;
    bench b;
    setting s = m->w->s;
    s.comm = m->comm;
    s.devices = m->w->n;
    s.rank = m->rank;
    s.out = m->rank == 0 ? m->w->saves : NULL;
    bench_open(&b, &m->w->data, &s);
    if (m->w->loads != NULL) {
        lvni_ckpt *ckpt;
        assert_int_equal(lvni_ckpt_load(m->w->loads, &ckpt), LVN_OK);
        assert_int_equal(lvni_trainer_restore(b.trainer, ckpt), LVN_OK);
        lvni_ckpt_free(ckpt);
        bench_start_loader(&b);
    }
    if (m->rank == 0) {
        whole_init(&b, m->w->out);
    }
    if (m->comm != NULL) {
        assert_int_equal(lvni_dist_comm_barrier(m->comm), LVN_OK);
    }
    run_steps(m, &b);
    whole_take(m, &b);
    for (int k = 0; k < b.trainer->engine->optim->n_slots; k++) {
        m->state += b.trainer->engine->optim->slot_length[k];
    }
    if (m->w->saves != NULL) {
        assert_int_equal(lvni_trainer_checkpointing_save(b.trainer, false), LVN_OK);
        assert_int_equal(lvni_trainer_save_wait(b.trainer), LVN_OK);
    }
    if (m->comm != NULL) { /* no rank ends while another one writes */
        assert_int_equal(lvni_dist_comm_barrier(m->comm), LVN_OK);
    }
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

static void assert_same(const whole *a, const whole *b, const char *what, int ranks)
{
    assert_int_equal(a->n_slots, b->n_slots);
    if (a->values == NULL || b->values == NULL) {
        fail_msg("%s: a run of %d ranks has left nothing", what, ranks);
        return;
    }
    if (memcmp(a->values, b->values, (size_t)a->n_values * sizeof *a->values) != 0) {
        fail_msg("%s: %d ranks have other weights than one", what, ranks);
    }
    for (int k = 0; k < a->n_slots; k++) {
        if (a->slot[k] == NULL || b->slot[k] == NULL ||
            memcmp(a->slot[k], b->slot[k], (size_t)a->n * sizeof **a->slot) != 0) {
            fail_msg("%s: %d ranks have another state %d than one", what, ranks, k);
        }
    }
    assert_memory_equal(&a->norm, &b->norm, sizeof a->norm);
}

static world make_world(int kind, int ranks)
{
    world w = {.s = {.cls = lvni_nn_zoo_find("cnn"),
                     .batch_size = 13,
                     .micro_batches = MICRO_BATCHES,
                     .lanes = 1,
                     .clip = 0.5,
                     .ema = {.decay = 0.9},
                     .optim = kinds[kind],
                     .bucket_bytes = 40000},
               .n = ranks,
               .steps = STEPS};
    memory_init(&w.data, 33, SIDE);
    return w;
}

TEST(bits_are_those_of_one_rank)
{
    for (int kind = 0; kind < (int)(sizeof kinds / sizeof *kinds); kind++) {
        whole one = {0}, all = {0};
        member m[MOST];
        world w = make_world(kind, 1);
        w.s.precision = kind == 1   ? LVNI_PRECISION_16_MIXED
                        : kind == 2 ? LVNI_PRECISION_BF16_TRUE
                                    : LVNI_PRECISION_32;
        if (kind == 2 && !lvni_cpu_has_bf16()) {
            w.s.precision = LVNI_PRECISION_32;
        }
        w.out = &one;
        run_world(&w, m);
        for (w.n = 2; w.n <= MOST; w.n++) {
            w.s.sharded_stage = 1 + (w.n + kind) % 2;
            w.out = &all;
            run_world(&w, m);
            assert_same(&all, &one, lvni_optim_name(kinds[kind].kind), w.n);
            whole_free(&all);
        }
        whole_free(&one);
    }
}

/* The state of a rank is that of its part; all together have it once. The cnn has more than two
 * blocks for each rank. */
TEST(state_is_divided)
{
    whole all = {0};
    member m[MOST];
    world w = make_world(1, 3);
    w.s.sharded_stage = 2;
    w.out = &all;
    run_world(&w, m);
    int64_t sum = 0;
    for (int i = 0; i < 3; i++) {
        assert_true(m[i].state > 0 && m[i].state <= 2 * (all.n / 3 + BLOCK));
        sum += m[i].state;
    }
    assert_int_equal(sum, 2 * all.n);
    whole_free(&all);
}

/* Of all ranks: weights come back in whole blocks, equally many of each rank, and the block that
 * the gradient shares with the records goes to all; stage 1 moves the total of the gradient, too.
 */
TEST(bytes_are_those_of_ddp)
{
    uint64_t sum[3] = {0};
    int64_t n = 0;
    for (int stage = 0; stage <= 2; stage++) {
        whole all = {0};
        member m[MOST];
        world w = make_world(1, MOST);
        w.s.sharded_stage = stage;
        w.out = &all;
        if (stage == 0) { /* every rank would write all slots */
            w.s.optim = (lvni_optim_options){.kind = LVNI_OPTIM_SGD, .lr = 0.1};
        }
        run_world(&w, m);
        for (int i = 0; i < MOST; i++) {
            sum[stage] += m[i].moved.received;
        }
        n = all.n;
        whole_free(&all);
    }
    const int64_t blocks = (n + BLOCK - 1) / BLOCK,
                  even = (blocks + MOST - 1) / MOST * MOST * BLOCK;
    const uint64_t each = STEPS * (MOST - 1) * sizeof(float);
    assert_true(n > 2 * (int64_t)MOST * BLOCK);
    assert_int_equal(sum[2], sum[0] + each * (uint64_t)(even - n + n % BLOCK));
    assert_int_equal(sum[1], sum[0] + each * (uint64_t)even);
}

TEST(saved_by_three_goes_on_anywhere)
{
    char dir[] = "/tmp/levin-sharded-XXXXXX", path[128], command[128];
    whole want = {0}, half = {0}, all = {0};
    member m[MOST];
    world w = make_world(2, 1);
    assert_non_null(mkdtemp(dir));
    snprintf(command, sizeof command, "mkdir %s/checkpoints", dir);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/checkpoints/last.safetensors", dir);
    w.out = &want;
    run_world(&w, m);
    w.n = 3;
    w.steps = STEPS / 2;
    w.s.sharded_stage = 2;
    w.saves = dir;
    w.out = &half;
    run_world(&w, m);
    w.saves = NULL;
    w.loads = path;
    w.out = &all;
    for (w.n = 1; w.n <= 4; w.n += 3) {
        run_world(&w, m);
        assert_same(&all, &want, "resumed", w.n);
        whole_free(&all);
    }
    whole_free(&half);
    whole_free(&want);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

/* Several ranks on devices, over a transport of the host: the bits of one rank on the CPU; no
 * step's thread waits for its device, the communication thread waits once per bucket; what one rank
 * finds wrong is known to all before they update. */
#include "trainer_support.h"

#include "sim_support.h"

#include "trainer/lanes.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 8, MOST = 3, WARM = 3 };

static const setting adamw = {
    .batch_size = 8,
    .micro_batches = 4,
    .lanes = 1,
    .optim = {.kind = LVNI_OPTIM_ADAMW, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8},
    .ema = {.decay = 0.9},
    .clip = 0.5,
    .bucket_bytes = 64 << 10};

typedef struct rank {
    const memory *data;
    setting s;
    int steps;
    pthread_t thread;
    /* when it has ended */
    lvn_status status;
    lvn_error error;
    int64_t done;           /* steps that were read */
    uint64_t hash, drained; /* drained: by the step's thread, between the first and the last */
    bool torn;
} rank;

/* Steps as the loop has them, two under way. */
static void run_steps(rank *r, lvni_trainer *t)
{
    lvni_trainer_step_record record[LVNI_DEFERRED_STEPS];
    lvni_trainer_step_result result;
    int64_t submitted = 0;
    uint64_t before = 0;
    bool read = false; /* what failed was reading the step */
    while (r->status == LVN_OK && r->done < r->steps) {
        const int64_t ahead = submitted - r->done;
        if (submitted < r->steps && ahead < LVNI_DEFERRED_STEPS) {
            t->engine->more_steps = submitted + 1 < r->steps;
            r->status = lvni_trainer_engine_submit(t->engine, t->loader, &t->at,
                                                   &record[submitted % LVNI_DEFERRED_STEPS]);
            r->error = *lvn_last_error();
            submitted += r->status == LVN_OK ? 1 : 0;
            t->at.step++;
            t->at.step_in_epoch++;
            r->drained = lvni_sim_drained_here() + 1 - before;
        } else {
            r->status = lvni_trainer_engine_collect(
                t->engine, &record[r->done % LVNI_DEFERRED_STEPS], &result);
            r->error = *lvn_last_error();
            read = r->status != LVN_OK;
            r->done += r->status == LVN_OK ? 1 : 0;
            if (r->status == LVN_OK) {
                lvni_trainer_logging_add(&t->report, &result);
            }
        }
        if (r->done == WARM && before == 0) {
            before = lvni_sim_drained_here() + 1;
        }
    }
    for (; r->status != LVN_OK && submitted > r->done; submitted--) {
        const lvni_trainer_step_record *last = &record[(submitted - 1) % LVNI_DEFERRED_STEPS];
        if (submitted - 1 > r->done) {
            lvni_trainer_engine_discard(t->engine, last);
        } else if (read) {
            break;
        } else if (lvni_trainer_engine_collect(t->engine, last, &result) != LVN_OK) {
            r->error = *lvn_last_error(); /* of the earlier step */
        } else {
            r->done++;
            lvni_trainer_logging_add(&t->report, &result);
        }
    }
}

static void *rank_main(void *argument)
{
    rank *r = argument;
    bench b;
    assert_int_equal(lvn_device_use(LVN_SIM(r->s.rank)), LVN_OK);
    bench_open(&b, r->data, &r->s);
    run_steps(r, b.trainer);
    if (r->status != LVN_OK) {
        lvni_dist_comm_abort(r->s.comm, r->error.message);
    }
    r->torn = r->status != LVN_OK && lvni_trainer_engine_torn(b.trainer->engine);
    r->hash = bench_hash(&b);
    bench_close(&b);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    return NULL;
}

static void run(const memory *data, const setting *s, int world, int steps, rank r[MOST])
{
    lvni_dist_comm *comm[MOST];
    assert_int_equal(lvni_dist_comm_threads(world, true, comm), LVN_OK);
    for (int i = 0; i < world; i++) {
        r[i] = (rank){.data = data, .s = *s, .steps = steps};
        r[i].s.devices = world;
        r[i].s.rank = i;
        r[i].s.comm = comm[i];
        assert_int_equal(pthread_create(&r[i].thread, NULL, rank_main, &r[i]), 0);
    }
    for (int i = 0; i < world; i++) {
        pthread_join(r[i].thread, NULL);
    }
    for (int i = 0; i < world; i++) {
        lvni_dist_comm_destroy(comm[i]);
    }
}

/* What one rank makes of it on the CPU. */
static uint64_t hash_of_one(const memory *data, const setting *s, int steps)
{
    bench b;
    bench_open(&b, data, s);
    bench_steps(&b, steps);
    const uint64_t hash = bench_hash(&b);
    bench_close(&b);
    return hash;
}

static void assert_bits(const char *what, const memory *data, const setting *s, int world,
                        int steps)
{
    rank r[MOST];
    run(data, s, world, steps, r);
    const uint64_t want = hash_of_one(data, s, steps);
    for (int i = 0; i < world; i++) {
        if (r[i].status != LVN_OK || r[i].hash != want) {
            fail_msg("%s: rank %d of %d: other bits than one rank (%s)", what, i, world,
                     r[i].error.message);
        }
    }
}

typedef struct plain {
    lvn_module base;
    lvn_module *head;
} plain;

static lvn_status plain_build(lvn_module *module, lvn_builder *b)
{
    ((plain *)module)->head = lvn_nn_linear(b, "head", FEATURES, CLASSES);
    return lvn_builder_status(b);
}

static lvn_tensor *plain_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *logits = lvn_forward(((const plain *)module)->head, batch->image);
    lvn_tensor *loss = lvn_cross_entropy(logits, batch->label);
    lvn_log(step, "loss", loss);
    return loss;
}

static const lvn_module_class plain_class = {
    .name = "plain", .size = sizeof(plain), .build = plain_build, .training_step = plain_step};

/* ---- waits ---- */

static int buckets_of(const memory *data, const setting *s)
{
    bench b;
    bench_open(&b, data, s);
    const int64_t n = b.model->n_weights + b.model->n_records,
                  floats = s->bucket_bytes / (int64_t)sizeof(float);
    bench_close(&b);
    return (int)((n + floats - 1) / floats);
}

static uint64_t waits_of(const lvni_sim_counters *c)
{
    return c->drained + c->throttled;
}

TEST(only_the_communication_thread_waits)
{
    enum { STEPS = 20 };
    memory data;
    setting s = adamw;
    rank r[MOST];
    s.cls = lvni_nn_zoo_find("cnn");
    memory_init(&data, 200, SIDE);
    const int buckets = buckets_of(&data, &s);
    assert_true(buckets >= 2);
    const lvni_sim_counters before[2] = {lvni_sim_get_counters(0), lvni_sim_get_counters(1)};
    run(&data, &s, 2, 0, r); /* making all of it, and reading what came out */
    const lvni_sim_counters made[2] = {lvni_sim_get_counters(0), lvni_sim_get_counters(1)};
    run(&data, &s, 2, STEPS, r);
    const uint64_t want = hash_of_one(&data, &s, STEPS);
    for (int i = 0; i < 2; i++) {
        const lvni_sim_counters after = lvni_sim_get_counters(i);
        assert_int_equal(r[i].status, LVN_OK);
        assert_true(r[i].hash == want);
        assert_int_equal(r[i].drained, 0);
        /* of all threads: for each bucket, and for the step before */
        const uint64_t waits = waits_of(&after) - waits_of(&made[i]),
                       other = waits_of(&made[i]) - waits_of(&before[i]);
        assert_true(waits <= other + (uint64_t)STEPS * (uint64_t)(buckets + 1));
    }
}

/* ---- bits ---- */

typedef struct two_heads {
    lvn_module base;
    lvn_module *head[2];
} two_heads;

static lvn_status two_heads_build(lvn_module *module, lvn_builder *b)
{
    two_heads *m = (two_heads *)module;
    m->head[0] = lvn_nn_linear(b, "first", FEATURES, CLASSES);
    m->head[1] = lvn_nn_linear(b, "second", FEATURES, CLASSES);
    return lvn_builder_status(b);
}

static lvn_tensor *two_heads_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const two_heads *m = (const two_heads *)module;
    lvn_tensor *loss = lvn_mean(lvn_square(lvn_forward(m->head[step->phase], batch->image)));
    lvn_log(step, step->phase == 0 ? "first_loss" : "second_loss", loss);
    return loss;
}

static const char *const two_phases[] = {"first", "second", NULL};
static const lvn_module_class two_heads_class = {.name = "two_heads",
                                                 .size = sizeof(two_heads),
                                                 .build = two_heads_build,
                                                 .training_step = two_heads_step,
                                                 .phases = two_phases};

typedef struct coupled {
    lvn_module base;
    lvn_module *head;
} coupled;

static lvn_status coupled_build(lvn_module *module, lvn_builder *b)
{
    ((coupled *)module)->head = lvn_nn_linear(b, "head", FEATURES, 4);
    lvn_builder_couple(b);
    return lvn_builder_status(b);
}

static lvn_tensor *coupled_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *z = lvn_forward(((const coupled *)module)->head, batch->image);
    lvn_tensor *loss =
        lvn_mean(lvn_square(lvn_matmul(z, lvn_transpose(lvn_group_gather(z), 0, 1))));
    lvn_log(step, "loss", loss);
    return loss;
}

static const lvn_module_class coupled_class = {.name = "coupled",
                                               .size = sizeof(coupled),
                                               .build = coupled_build,
                                               .training_step = coupled_step};

TEST(ranks_have_the_bits_of_one)
{
    memory vectors, images;
    setting s = adamw;
    memory_init(&vectors, 61, 0);
    memory_init(&images, 61, SIDE);
    s.cls = lvni_nn_zoo_find("cnn");
    assert_bits("three ranks, dropout", &images, &s, 3, 7);
    s.precision = LVNI_PRECISION_16_MIXED;
    images.nan[7] = true; /* the step with it is skipped */
    assert_bits("16-mixed, an overflow", &images, &s, 3, 9);
    images.nan[7] = false;
    s.precision = LVNI_PRECISION_32;
    s.lanes = 2;
    s.batch_size = 12;
    s.micro_batches = 6;
    assert_bits("two lanes", &images, &s, 2, 5);
    s.batch_size = 60;
    s.micro_batches = 40;
    assert_bits("many micro-batches", &images, &s, 3, 3);
    s = adamw;
    s.cls = &two_heads_class;
    assert_bits("two phases", &vectors, &s, 2, 6);
    s = adamw;
    s.cls = &coupled_class;
    s.lanes = 2;
    assert_bits("coupled micro-batches", &vectors, &s, 2, 6);
    s = adamw;
    s.cls = &plain_class;
    s.skip = true;
    for (int i = 0; i < 61; i++) {
        vectors.unreadable[i] = i % 3 != 0;
    }
    assert_bits("micro-batches without samples", &vectors, &s, 3, 7);
}

/* ---- what goes wrong ---- */

TEST(all_ranks_know_a_loss_that_is_not_finite)
{
    enum { BAD = 3 };
    memory fine, broken;
    bench b;
    rank r[MOST];
    setting s = adamw;
    memory_init(&fine, 200, 0);
    broken = fine;
    bench_open(&b, &fine, &adamw); /* which samples step 3 has */
    bench_steps(&b, BAD + 1);
    bench_close(&b);
    broken.nan[seen[BAD].sample[5]] = true; /* two in a micro-batch: it is in the third */
    s.cls = &plain_class;
    run(&broken, &s, 2, 10, r);
    const uint64_t want = hash_of_one(&fine, &s, BAD);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(r[i].status, LVN_ERR_NON_FINITE);
        assert_non_null(
            strstr(r[i].error.message, "the loss is nan at step 3 (epoch 1), micro-batch 2"));
        assert_int_equal(r[i].done, BAD);
        assert_false(r[i].torn);
        assert_true(r[i].hash == want);
    }
}

/* Which they are is exchanged before the step is added up, and none of it is updated. */
TEST(too_many_unreadable_samples_end_all_before_the_update)
{
    enum { FIRST = 2, LAST = 4 }; /* the third step with four of them */
    memory data;
    bench b;
    rank r[MOST];
    setting s = adamw;
    memory_init(&data, 200, 0);
    bench_open(&b, &data, &adamw);
    bench_steps(&b, LAST + 1);
    bench_close(&b);
    for (int i = FIRST; i <= LAST; i++) {
        for (int k = 0; k < 4; k++) {
            data.unreadable[seen[i].sample[k]] = true;
        }
    }
    s.cls = &plain_class;
    s.headers_read = true;
    run(&data, &s, 2, 10, r);
    const uint64_t want = hash_of_one(&data, &s, LAST);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(r[i].status, i == 0 ? LVN_ERR_CORRUPT : LVN_ERR_PEER);
        assert_non_null(strstr(r[i].error.message, "11 of 200 training samples could not be read"));
        assert_int_equal(r[i].done, LAST);
        assert_false(r[i].torn);
        assert_true(r[i].hash == want);
    }
}

enum { WRONG_STEP = 4, WRONG_MICRO_BATCH = 2 };

static lvn_status picking_build(lvn_module *module, lvn_builder *b)
{
    *(lvn_module **)(void *)(module + 1) = lvn_nn_linear(b, "head", FEATURES, CLASSES);
    return lvn_builder_status(b);
}

/* An index outside of the tensor: a kernel finds that. */
static lvn_tensor *picking_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const lvn_module *head = *(lvn_module *const *)(const void *)(module + 1);
    static const int64_t fine = 0, wrong = 99;
    const bool now =
        step->step == WRONG_STEP && lvni_tensor_ctx_get()->at.micro_batch == WRONG_MICRO_BATCH;
    lvn_tensor *logits = lvn_forward(head, batch->image);
    lvn_tensor *at =
        lvn_tensor_wrap((void *)(uintptr_t)(now ? &wrong : &fine), LVN_I64, LVN_SHAPE(1));
    lvn_tensor *loss = lvn_mean(lvn_square(lvn_index_select(logits, 0, at)));
    lvn_release(at);
    return loss;
}

static const lvn_module_class picking = {.name = "picking",
                                         .size = sizeof(lvn_module) + sizeof(lvn_module *),
                                         .build = picking_build,
                                         .training_step = picking_step};

/* The other rank waits for gradients that never come, and learns why. */
TEST(an_error_of_one_device_ends_all_before_the_update)
{
    memory data;
    rank r[MOST];
    setting s = adamw;
    s.cls = &picking;
    memory_init(&data, 200, 0);
    run(&data, &s, 2, 10, r);
    assert_int_equal(r[1].status, LVN_ERR_INVALID);
    assert_non_null(strstr(r[1].error.message, "index 99"));
    assert_int_equal(r[0].status, LVN_ERR_PEER);
    assert_non_null(strstr(r[0].error.message, "index 99"));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(r[i].done, WRONG_STEP);
        assert_false(r[i].torn);
        assert_true(r[i].hash == r[0].hash);
    }
}

BEFORE_ALL()
{
    sim_start("3", "64MiB");
    return 0;
}

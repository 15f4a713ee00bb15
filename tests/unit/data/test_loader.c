/* The loader with made-up datasets: the same bytes for any number of threads, batches in order,
 * resume, unreadable samples, the first error in order whatever the timing, destruction at any
 * time, nothing allocated once it runs. */
#include "core/alloc.h"
#include "core/rng.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "tensor/tensor.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Sample i: image 3 x 2 of random numbers from the key, label i. Samples of `broken` cannot be
 * read. */
typedef struct fake {
    lvn_dataset base;
    int64_t length;
    int64_t stride;        /* > 1: position p is sample stride * p of the whole list */
    useconds_t delay_us;   /* at most, different per sample */
    lvn_status status;     /* of broken samples */
    bool silent;           /* broken samples leave no record */
    const int64_t *broken; /* n_broken whole-list indices */
    int n_broken;
    _Atomic int calls;
} fake;

static const fake *fake_of(const lvn_dataset *d)
{
    return (const fake *)d;
}

static int fake_fields(const lvn_dataset *d, lvn_field out[LVN_MAX_FIELDS])
{
    (void)d;
    out[0] = (lvn_field){.name = "image", .dtype = LVN_F32, .ndim = 2, .shape = {3, 2}};
    out[1] = (lvn_field){.name = "label", .dtype = LVN_I64, .ndim = 0};
    return 2;
}

static int64_t fake_length(const lvn_dataset *d)
{
    return fake_of(d)->length;
}

static int64_t fake_index(const lvn_dataset *d, int64_t position)
{
    return position * fake_of(d)->stride;
}

static const char *fake_name(const lvn_dataset *d, int64_t sample)
{
    (void)d;
    static const char *const names[8] = {"a.jpg", "b.jpg", "c.jpg", "d.jpg",
                                         "e.jpg", "f.jpg", "g.jpg", "h.jpg"};
    return sample < 8 ? names[sample] : NULL;
}

static lvn_status fake_get(const lvn_dataset *d, const lvn_sample_key *key, void *const field[])
{
    const fake *f = fake_of(d);
    const lvni_core_rng rng = {.key =
                                   lvni_core_rng_make_key(key->seed, lvni_core_rng_purpose("data")),
                               .a = key->epoch,
                               .b = (uint32_t)key->sample,
                               .c = key->training ? 1 : 0};
    /* counting does not change the data */
    _Atomic int *calls = (_Atomic int *)(uintptr_t)&f->calls;
    atomic_fetch_add(calls, 1);
    if (f->delay_us > 0) {
        usleep(lvni_core_rng_u32(&rng, 100) % f->delay_us);
    }
    float *image = field[0];
    for (uint64_t i = 0; i < 6; i++) {
        image[i] = lvni_core_rng_uniform(&rng, i);
    }
    memcpy(field[1], &key->sample, sizeof key->sample);
    for (int i = 0; i < f->n_broken; i++) {
        if (f->broken[i] == key->sample && !f->silent) {
            LVN_FAIL(f->status, "no end of image");
        }
        if (f->broken[i] == key->sample) {
            return f->status;
        }
    }
    return LVN_OK;
}

static const lvn_dataset_class fake_class = {.name = "fake",
                                             .fields = fake_fields,
                                             .length = fake_length,
                                             .get = fake_get,
                                             .sample_name = fake_name};
static const lvn_dataset_class part_class = {.name = "part",
                                             .fields = fake_fields,
                                             .length = fake_length,
                                             .get = fake_get,
                                             .sample_name = fake_name,
                                             .index = fake_index};

#define FAKE(n, ...)                                                                               \
    {                                                                                              \
        .base = {.cls = &fake_class}, .length = (n), .status = LVN_ERR_CORRUPT, __VA_ARGS__        \
    }

static lvni_plan make_plan(const lvni_plan_options *o)
{
    lvni_plan p;
    memset(&p, 0, sizeof p);
    assert_int_equal(lvni_plan_make(o, &p), LVN_OK);
    return p;
}

#define PLAN(n, ...) make_plan(&(lvni_plan_options){.n_samples = (n), __VA_ARGS__})

static lvni_data_loader *make_loader(const lvni_data_loader_options *o)
{
    lvni_data_loader *l = NULL;
    if (lvni_data_loader_create(o, &l) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    return l;
}

#define LOADER(...) make_loader(&(lvni_data_loader_options){__VA_ARGS__})

static const lvni_data_loader_batch *next(lvni_data_loader *l)
{
    const lvni_data_loader_batch *b = NULL;
    if (lvni_data_loader_next(l, &b) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    return b;
}

/* What the newest loader with it leaves out. */
static lvni_data_unreadable *left_out;

static lvni_data_unreadable *leave_out(const lvn_dataset *d, int64_t limit)
{
    const lvni_data_unreadable_options o = {.dataset = d, .what = "training", .limit = limit};
    lvni_data_unreadable_destroy(left_out);
    assert_int_equal(lvni_data_unreadable_create(&o, &left_out), LVN_OK);
    return left_out;
}

static lvn_status settle(void)
{
    lvni_core_str packed = {0};
    size_t at;
    lvni_data_unreadable_pack(left_out, &packed);
    const lvn_status s =
        lvni_data_unreadable_settle(left_out, lvni_core_str_text(&packed), packed.len, 0, &at);
    lvni_core_str_free(&packed);
    return s;
}

/* FNV-1a over everything in a batch. */
static uint64_t mix(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) {
        h = (h ^ p[i]) * 0x100000001b3u;
    }
    return h;
}

static uint64_t mix_batch(uint64_t h, const lvni_data_loader_batch *b)
{
    const int64_t facts[] = {b->epoch, b->step_in_epoch, b->micro_batch, b->planned, b->batch.size};
    const size_t size = (size_t)b->batch.size;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        h = (h ^ (uint64_t)facts[i]) * 0x100000001b3u;
    }
    h = mix(h, b->batch.sample, size * sizeof *b->batch.sample);
    h = mix(h, lvn_const_data(b->batch.image), size * 6 * sizeof(float));
    return mix(h, lvn_const_data(b->batch.label), size * sizeof(int64_t));
}

/* The hash of all batches of three epochs. */
static uint64_t hash_run(const lvn_dataset *d, const lvni_plan *plan, int workers, bool skip,
                         int *n_batches)
{
    lvni_data_loader *l =
        LOADER(.dataset = d, .plan = plan, .training = true, .seed = 9, .workers = workers,
               .max_epochs = 3, .unreadable = skip ? leave_out(d, -1) : NULL);
    uint64_t h = 0xcbf29ce484222325u;
    *n_batches = 0;
    for (const lvni_data_loader_batch *b = next(l); b != NULL; b = next(l)) {
        h = mix_batch(h, b);
        ++*n_batches;
        lvni_data_loader_release(l, b);
    }
    lvni_data_loader_destroy(l);
    return h;
}

TEST(any_number_of_threads_gives_the_same_bytes)
{
    const int64_t broken[] = {3, 17, 18, 60};
    fake plain = FAKE(61, .delay_us = 200),
         some = FAKE(61, .delay_us = 200, .broken = broken, .n_broken = 4);
    const lvni_plan plan = PLAN(61, .batch_size = 16, .micro_batches = 3, .cores = 2);
    int n;
    const uint64_t h = hash_run(&plain.base, &plan, 0, false, &n);
    const uint64_t h_some = hash_run(&some.base, &plan, 0, true, &n);
    assert_int_equal(n, 3 * 4 * 3);
    assert_true(h != h_some);
    for (int workers = 1; workers <= 4; workers++) {
        assert_true(hash_run(&plain.base, &plan, workers, false, &n) == h);
        assert_true(hash_run(&some.base, &plan, workers, true, &n) == h_some);
    }
}

/* More micro-batches without samples in a row than there are slots: they all fill at once, and
 * no thread decodes. */
TEST(micro_batches_without_samples_are_ready)
{
    fake f = FAKE(17);
    const lvni_plan plan = PLAN(17, .batch_size = 16, .micro_batches = 8, .cores = 1);
    uint64_t h[2];
    int n;
    for (int workers = 0; workers < 2; workers++) {
        h[workers] = hash_run(&f.base, &plan, workers, false, &n);
        assert_int_equal(n, 3 * 2 * 8);
    }
    assert_true(h[0] == h[1]);
}

TEST(batches_follow_the_plan)
{
    fake f = FAKE(61);
    const lvni_plan plan = PLAN(61, .batch_size = 16, .micro_batches = 3);
    lvni_data_loader *l = LOADER(.dataset = &f.base, .plan = &plan, .training = true, .seed = 4,
                                 .workers = 2, .epoch = 5, .step_in_epoch = 2, .max_epochs = 7);
    uint32_t order[61];
    int64_t step = 2;
    for (uint32_t epoch = 5; epoch < 7; epoch++, step = 0) {
        lvni_data_sampler_order(4, epoch, 61, order);
        for (; step < 4; step++) {
            for (int micro_batch = 0; micro_batch < 3; micro_batch++) {
                const lvni_plan_range r = lvni_plan_micro_batch(&plan, step, micro_batch);
                const lvni_data_loader_batch *b = next(l);
                assert_non_null(b);
                assert_int_equal(b->epoch, epoch);
                assert_int_equal(b->step_in_epoch, step);
                assert_int_equal(b->micro_batch, micro_batch);
                assert_int_equal(b->planned, r.count);
                assert_int_equal(b->batch.size, r.count);
                assert_int_equal(lvn_size(b->batch.image, 0), r.count);
                assert_int_equal(lvn_size(b->batch.image, 2), 2);
                assert_int_equal(lvn_ndim(b->batch.label), 1);
                const int64_t *label = lvn_const_data(b->batch.label);
                for (int64_t i = 0; i < r.count; i++) {
                    assert_int_equal(b->batch.sample[i], order[r.start + i]);
                    assert_int_equal(label[i], order[r.start + i]);
                }
                lvni_data_loader_release(l, b);
            }
        }
    }
    assert_null(next(l));
    assert_null(next(l));
    assert_int_equal(lvni_data_loader_get_stats(l).decoded, 61 + 61 - 32);
    lvni_data_loader_destroy(l);
    /* resumed at the very end of an epoch: the next one begins */
    l = LOADER(.dataset = &f.base, .plan = &plan, .training = true, .epoch = 1, .step_in_epoch = 4);
    assert_int_equal(next(l)->epoch, 2);
    lvni_data_loader_destroy(l);
    /* a rank decodes its own micro-batches only */
    const lvni_plan second =
        PLAN(61, .batch_size = 16, .micro_batches = 3, .devices = 2, .rank = 1);
    l = LOADER(.dataset = &f.base, .plan = &second, .training = true, .workers = 1,
               .max_epochs = 1);
    for (int i = 0; i < 4; i++) {
        const lvni_data_loader_batch *b = next(l);
        assert_int_equal(b->micro_batch, 2);
        assert_int_equal(b->step_in_epoch, i);
        lvni_data_loader_release(l, b);
    }
    assert_null(next(l));
    lvni_data_loader_destroy(l);
}

TEST(evaluation_goes_through_in_order)
{
    fake f = FAKE(10, .stride = 3);
    f.base.cls = &part_class;
    const lvni_plan plan = PLAN(100, .batch_size = 8, .eval_batch_size = 4);
    for (int workers = 0; workers < 3; workers++) {
        lvni_data_loader *l = LOADER(.dataset = &f.base, .plan = &plan, .workers = workers);
        for (int round = 0; round < 3; round++) {
            int64_t at = 0;
            for (int64_t chunk = 0; chunk < 3; chunk++) {
                const lvni_data_loader_batch *b = next(l);
                assert_int_equal(b->micro_batch, chunk);
                assert_int_equal(b->batch.size, chunk == 2 ? 2 : 4);
                for (int64_t i = 0; i < b->batch.size; i++) {
                    /* the index in the whole list */
                    assert_int_equal(b->batch.sample[i], 3 * at++);
                }
                if (chunk == 1) {
                    assert_int_equal(lvni_data_loader_rewind(l), LVN_ERR_INVALID);
                }
                lvni_data_loader_release(l, b);
            }
            assert_null(next(l));
            assert_int_equal(lvni_data_loader_rewind(l), LVN_OK);
        }
        lvni_data_loader_destroy(l);
    }
    fake empty = FAKE(0);
    lvni_data_loader *l = LOADER(.dataset = &empty.base, .plan = &plan, .workers = 1);
    assert_null(next(l));
    lvni_data_loader_destroy(l);
}

TEST(unreadable_samples_are_left_out)
{
    const int64_t broken[] = {1, 4, 5, 6, 7, 9};
    for (int workers = 0; workers < 4; workers++) {
        fake f = FAKE(10, .broken = broken, .n_broken = 6, .delay_us = 300, .silent = workers == 2);
        f.status = workers == 3 ? LVN_ERR_UNSUPPORTED /* a JPEG in CMYK */ : LVN_ERR_CORRUPT;
        const lvni_plan plan = PLAN(10, .batch_size = 4, .eval_batch_size = 4);
        lvni_data_loader *l = LOADER(.dataset = &f.base, .plan = &plan, .workers = workers,
                                     .unreadable = leave_out(&f.base, -1));
        static const int64_t want[3][3] = {{0, 2, 3}, {0}, {8}};
        static const int64_t sizes[3] = {3, 0, 1};
        for (int round = 0; round < 2; round++) {
            for (int chunk = 0; chunk < 3; chunk++) {
                const lvni_data_loader_batch *b = next(l);
                assert_int_equal(b->planned, chunk == 2 ? 2 : 4);
                assert_int_equal(b->batch.size, sizes[chunk]);
                assert_int_equal(lvn_size(b->batch.image, 0), sizes[chunk]);
                const int64_t *label = lvn_const_data(b->batch.label);
                for (int64_t i = 0; i < sizes[chunk]; i++) {
                    assert_int_equal(b->batch.sample[i], want[chunk][i]);
                    assert_int_equal(label[i], want[chunk][i]); /* the data moved along */
                }
                lvni_data_loader_release(l, b);
            }
            assert_null(next(l));
            assert_int_equal(lvn_last_error()->code, LVN_OK);
            lvni_core_str text = {0};
            char want_text[512];
            const char *why = f.silent ? lvn_status_text(f.status) : "no end of image";
            snprintf(
                want_text, sizeof want_text,
                "6 unreadable training samples left out (on_error=skip): b.jpg: %s; e.jpg: %s; "
                "f.jpg: %s; g.jpg: %s; h.jpg: %s; sample 9: %s",
                why, why, why, why, why, why);
            assert_int_equal(lvni_data_unreadable_noted(left_out), round == 0 ? 6 : 0);
            assert_int_equal(settle(), LVN_OK);
            assert_true(lvni_data_unreadable_report(left_out, &text) == (round == 0)); /* once */
            assert_string_equal(lvni_core_str_text(&text), round > 0 ? "" : want_text);
            lvni_core_str_free(&text);
            assert_int_equal(lvni_data_unreadable_count(left_out), 6); /* each once */
            assert_int_equal(lvni_data_loader_rewind(l), LVN_OK);
        }
        lvni_data_loader_destroy(l);
    }
}

/* Two broken samples far apart in time: the later one in order fails at once, the earlier one
 * late. */
TEST(the_first_error_in_order_is_reported)
{
    const int64_t broken[] = {5, 6, 7, 2};
    const lvni_plan plan = PLAN(8, .batch_size = 8, .eval_batch_size = 4);
    for (int round = 0; round < 40; round++) {
        fake f = FAKE(8, .broken = broken, .n_broken = round % 2 == 0 ? 3 : 4, .delay_us = 500,
                      .silent = round % 3 == 0);
        const bool fatal = round % 4 == 3; /* not a question of on_error */
        f.status = fatal ? LVN_ERR_MEMORY : LVN_ERR_IO;
        lvni_data_loader *l =
            LOADER(.dataset = &f.base, .plan = &plan, .workers = round % 5, .seed = (uint64_t)round,
                   .unreadable = fatal ? leave_out(&f.base, -1) : NULL);
        const lvni_data_loader_batch *b = NULL;
        if (f.n_broken == 3) {
            b = next(l); /* the batch before it is whole */
            assert_int_equal(b->batch.size, 4);
            lvni_data_loader_release(l, b);
        }
        const char *silent = fatal ? "get() of the dataset fake returned LVN_ERR_MEMORY (-4) "
                                     "without a message: lvn_error_set gives it one"
                                   : lvn_status_text(f.status);
        char want[160];
        snprintf(want, sizeof want, "%s: %s%s", f.n_broken == 3 ? "f.jpg" : "c.jpg",
                 f.silent ? silent : "no end of image",
                 fatal ? "" : "; on_error=skip leaves out what cannot be read");
        for (int again = 0; again < 2; again++) {
            assert_int_equal(lvni_data_loader_next(l, &b), f.status);
            assert_null(b);
            assert_string_equal(lvn_last_error()->message, want);
            lvn_clear_error();
        }
        lvni_data_loader_destroy(l);
    }
}

TEST(batches_can_be_held_and_released_in_any_order)
{
    fake f = FAKE(100, .delay_us = 50);
    const lvni_plan plan = PLAN(100, .batch_size = 12, .micro_batches = 4, .lanes = 3);
    for (int workers = 0; workers < 3; workers++) {
        lvni_data_loader *l = LOADER(.dataset = &f.base, .plan = &plan, .training = true, .seed = 2,
                                     .workers = workers);
        const int slots = lvni_data_loader_get_stats(l).slots;
        assert_true(slots >= 4 && slots < 20);
        const lvni_data_loader_batch *held[20] = {NULL};
        uint64_t h[20] = {0};
        for (int i = 0; i < slots; i++) {
            held[i] = next(l);
            h[i] = mix_batch(1, held[i]);
        }
        const lvni_data_loader_batch *b = NULL;
        /* instead of waiting for ever */
        assert_int_equal(lvni_data_loader_next(l, &b), LVN_ERR_INVALID);
        lvni_data_loader_release(l, held[1]);
        for (int i = 0; i < 30; i++) { /* one slot is enough to go on */
            b = next(l);
            assert_int_equal(b->step_in_epoch * 4 + b->micro_batch,
                             (slots + i) % (4 * plan.steps_per_epoch));
            lvni_data_loader_release(l, b);
        }
        for (int i = slots - 1; i >= 0; i--) {
            if (i != 1) {
                assert_true(mix_batch(1, held[i]) == h[i]); /* unchanged */
                lvni_data_loader_release(l, held[i]);
            }
        }
        b = next(l);
        assert_non_null(b);
        lvni_data_loader_destroy(l); /* while it is held */
    }
}

/* Lanes take batches themselves: each batch goes to one of them, and each gets its own in ascending
 * order. */
typedef struct lane {
    lvni_data_loader *loader;
    pthread_t thread;
    _Atomic int *taken; /* per batch of the epoch */
    bool ordered;
    lvn_status status;
} lane;

static void *run_lane(void *argument)
{
    lane *a = argument;
    const lvni_data_loader_batch *b = NULL;
    int64_t last = -1;
    a->ordered = true;
    while ((a->status = lvni_data_loader_next(a->loader, &b)) == LVN_OK && b != NULL) {
        const int64_t number = b->step_in_epoch * 4 + b->micro_batch;
        a->ordered = a->ordered && number > last;
        last = number;
        atomic_fetch_add(&a->taken[number], 1);
        lvni_data_loader_release(a->loader, b);
    }
    return NULL;
}

TEST(several_lanes_may_ask_at_once)
{
    fake f = FAKE(200, .delay_us = 100);
    const lvni_plan plan = PLAN(200, .batch_size = 16, .micro_batches = 4, .lanes = 3);
    for (int workers = 0; workers < 3; workers++) {
        _Atomic int taken[52] = {0};
        lane lanes[3];
        lvni_data_loader *l = LOADER(.dataset = &f.base, .plan = &plan, .training = true,
                                     .workers = workers, .max_epochs = 1);
        for (int i = 0; i < 3; i++) {
            lanes[i] = (lane){.loader = l, .taken = taken};
            assert_int_equal(pthread_create(&lanes[i].thread, NULL, run_lane, &lanes[i]), 0);
        }
        for (int i = 0; i < 3; i++) {
            pthread_join(lanes[i].thread, NULL);
            assert_int_equal(lanes[i].status, LVN_OK);
            assert_true(lanes[i].ordered);
        }
        for (int i = 0; i < 52; i++) {
            assert_int_equal(taken[i], 1);
        }
        assert_int_equal(f.calls, 200 * (workers + 1)); /* every sample decoded once */
        lvni_data_loader_destroy(l);
    }
}

TEST(it_can_be_destroyed_at_any_time)
{
    fake f = FAKE(500, .delay_us = 400);
    const lvni_plan plan = PLAN(500, .batch_size = 20, .micro_batches = 2);
    const uint64_t live = lvni_core_alloc_get_stats(LVNI_TAG_DATA).live_bytes;
    for (int round = 0; round < 12; round++) {
        lvni_data_loader *l =
            LOADER(.dataset = &f.base, .plan = &plan, .training = true, .workers = round % 4);
        for (int i = 0; i < round / 4; i++) {
            lvni_data_loader_release(l, next(l));
        }
        lvni_data_loader_destroy(l);
    }
    assert_int_equal(lvni_core_alloc_get_stats(LVNI_TAG_DATA).live_bytes, live);
    lvni_data_loader_destroy(NULL);
}

TEST(a_running_loader_allocates_nothing)
{
    fake f = FAKE(100);
    const lvni_plan plan = PLAN(100, .batch_size = 16, .micro_batches = 4);
    lvni_data_loader *l = LOADER(.dataset = &f.base, .plan = &plan, .training = true, .workers = 2);
    for (int i = 0; i < 8; i++) {
        lvni_data_loader_release(l, next(l));
    }
    const uint64_t calls = lvni_core_alloc_get_total().calls;
    for (int i = 0; i < 200; i++) { /* through several epochs */
        lvni_data_loader_release(l, next(l));
    }
    assert_int_equal(lvni_core_alloc_get_total().calls, calls);
    lvni_data_loader_destroy(l);
}

TEST(memory_is_bounded_and_its_lack_is_survived)
{
    fake f = FAKE(100);
    const lvni_plan plan = PLAN(100, .batch_size = 20, .micro_batches = 5, .lanes = 2);
    lvni_data_loader *l =
        LOADER(.dataset = &f.base, .plan = &plan, .training = true, .workers = 2, .ahead = 10);
    assert_int_equal(lvni_data_loader_get_stats(l).slots, 2 + 50);
    assert_int_equal(lvni_data_loader_get_stats(l).slot_bytes, 4 * (6 * 4 + 8));
    lvni_data_loader_destroy(l);
    l = LOADER(.dataset = &f.base, .plan = &plan, .training = true, .workers = 2, .ahead = 10,
               .max_bytes = 10 * 128);
    assert_int_equal(lvni_data_loader_get_stats(l).slots, 10);
    lvni_data_loader_destroy(l);
    l = LOADER(.dataset = &f.base, .plan = &plan, .training = true, .workers = 2, .max_bytes = 1);
    assert_int_equal(lvni_data_loader_get_stats(l).slots, 3);
    lvni_data_loader_destroy(l);
    l = LOADER(.dataset = &f.base, .plan = &plan, .training = true, .whole_steps = true,
               .workers = 2, .max_bytes = 1);
    assert_int_equal(lvni_data_loader_get_stats(l).slots, 6); /* a whole step's, and one more */
    lvni_data_loader_destroy(l);
    l = LOADER(.dataset = &f.base, .plan = &plan, .training = true, .whole_steps = true);
    assert_int_equal(lvni_data_loader_get_stats(l).slots, 6);
    lvni_data_loader_destroy(l);
    const uint64_t live = lvni_core_alloc_get_stats(LVNI_TAG_DATA).live_bytes;
    lvn_status status = LVN_ERR_MEMORY;
    int64_t k = 0;
    while (status == LVN_ERR_MEMORY) {
        lvni_core_alloc_fail_at(++k);
        status = lvni_data_loader_create(
            &(lvni_data_loader_options){
                .dataset = &f.base, .plan = &plan, .training = true, .workers = 1},
            &l);
        lvni_core_alloc_fail_at(0);
        assert_true(status == LVN_OK || l == NULL);
        lvni_data_loader_destroy(l);
        assert_int_equal(lvni_core_alloc_get_stats(LVNI_TAG_DATA).live_bytes, live);
    }
    assert_int_equal(status, LVN_OK);
    assert_true(k > 20);
}

TEST(wrong_options_are_refused)
{
    fake f = FAKE(100);
    const lvni_plan plan = PLAN(90, .batch_size = 20);
    lvni_data_loader *l = (lvni_data_loader *)&f;
    lvni_data_loader_options o = {.dataset = &f.base, .plan = &plan, .training = true};
    assert_int_equal(lvni_data_loader_create(&o, &l), LVN_ERR_INVALID);
    assert_null(l);
    assert_string_equal(lvn_last_error()->message,
                        "dataset fake has 100 samples, the plan was made for 90");
    f.length = 90;
    o.workers = -1;
    assert_int_equal(lvni_data_loader_create(&o, &l), LVN_ERR_USAGE);
    assert_string_equal(lvn_last_error()->message, "num_workers=-1 is not a number from 0 to 1024");
    o.workers = 0;
    o.step_in_epoch = 6;
    assert_int_equal(lvni_data_loader_create(&o, &l), LVN_ERR_INVALID);
    assert_string_equal(lvn_last_error()->message, "cannot start at step 6 of an epoch of 5 steps");
}

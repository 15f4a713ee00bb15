/* Streams beside a loader's set: which samples a step takes by order and epoch rule, from any
 * layout, thread count and start; datasets without length; states of workers; unreadable samples of
 * a stream. */
#include "core/rng.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "tensor/tensor.h"
#include "support/test.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 40, ROOM = 4096 };

/* Field 0: number of the sample, epoch of its key, and a random number of its key. */
typedef struct counted {
    lvn_dataset base;
    int64_t length, broken;
    bool fails; /* worker_open */
    _Atomic int opened, closed, together;
} counted;

static counted *counted_of(const lvn_dataset *d)
{
    return (counted *)(uintptr_t)d;
}

static int fields(const lvn_dataset *d, lvn_field out[LVN_MAX_FIELDS])
{
    (void)d;
    out[0] = (lvn_field){.name = "value", .dtype = LVN_F64, .ndim = 1, .shape = {3}};
    return 1;
}

static int64_t length(const lvn_dataset *d)
{
    return counted_of(d)->length;
}

static lvn_status get(const lvn_dataset *d, const lvn_sample_key *key, void *const field[])
{
    double *value = field[0];
    value[0] = (double)key->sample;
    value[1] = (double)key->epoch;
    value[2] = lvn_sample_uniform(key, 1, 0);
    if (key->sample == counted_of(d)->broken) {
        LVN_FAIL(LVN_ERR_CORRUPT, "no end of clip");
    }
    return LVN_OK;
}

/* A state that notices whether two threads have it. */
typedef struct decoder {
    _Atomic int users;
    int64_t last;
} decoder;

static lvn_status worker_open(const lvn_dataset *d, void **state)
{
    if (counted_of(d)->fails && counted_of(d)->opened == 1) {
        LVN_FAIL(LVN_ERR_IO, "no decoder left");
    }
    counted_of(d)->opened++;
    *state = calloc(1, sizeof(decoder));
    return *state == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static void worker_close(const lvn_dataset *d, void *state)
{
    counted_of(d)->closed++;
    free(state);
}

static lvn_status worker_get(const lvn_dataset *d, void *state, const lvn_sample_key *key,
                             void *const field[])
{
    decoder *own = state;
    counted_of(d)->together += atomic_fetch_add(&own->users, 1) > 0;
    own->last = key->sample; /* a data race where two threads have it: TSan */
    usleep(50);
    const lvn_status s = get(d, key, field);
    atomic_fetch_sub(&own->users, 1);
    return s;
}

static const lvn_dataset_class plain_class = {
    .name = "plain", .fields = fields, .length = length, .get = get};
static const lvn_dataset_class decoded_class = {.name = "decoded",
                                                .fields = fields,
                                                .length = length,
                                                .worker_open = worker_open,
                                                .worker_close = worker_close,
                                                .worker_get = worker_get};

#define COUNTED(n)                                                                                 \
    {                                                                                              \
        .base = {.cls = &plain_class}, .length = (n), .broken = -1                                 \
    }

/* What a test trains on: a set, and one stream. */
typedef struct setting {
    counted *set, *clips;
    int64_t batch, stream_batch, steps_per_epoch;
    lvn_order order, set_order;
    lvn_stream_rule rule;
    int micro_batches;
    bool skip;
} setting;

static lvni_plan plan_of(const setting *s, int devices, int rank)
{
    const lvni_plan_stream clips = {.name = "clips",
                                    .n_samples = s->clips->length,
                                    .batch = s->stream_batch,
                                    .rule = (lvni_plan_rule)s->rule};
    const lvni_plan_options o = {.n_samples = s->set->length,
                                 .steps_per_epoch = s->steps_per_epoch,
                                 .effective_batch = s->batch,
                                 .micro_batches = s->micro_batches,
                                 .devices = devices,
                                 .rank = rank,
                                 .stream = &clips,
                                 .n_streams = 1};
    lvni_plan p;
    if (lvni_plan_make(&o, &p) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    return p;
}

/* Samples, epochs and random numbers as a whole step has them, step after step. */
typedef struct seen {
    int n[STEPS];
    double value[STEPS][ROOM / STEPS][3];
} seen;

static lvni_data_unreadable *left_out; /* by the newest loader that skips */

static lvni_data_loader *loader_of(const setting *s, const lvni_plan *plan, int workers,
                                   int64_t first)
{
    const lvn_stream clips = {
        .name = "clips", .dataset = &s->clips->base, .order = s->order, .rule = s->rule};
    const lvni_data_unreadable_options u = {.dataset = &s->set->base,
                                            .stream = &clips,
                                            .n_streams = 1,
                                            .what = "training",
                                            .limit = -1};
    lvni_data_unreadable_destroy(left_out);
    assert_int_equal(lvni_data_unreadable_create(&u, &left_out), LVN_OK);
    const lvni_data_loader_options o = {.dataset = &s->set->base,
                                        .plan = plan,
                                        .training = true,
                                        .seed = 5,
                                        .order = s->set_order,
                                        .stream = &clips,
                                        .workers = workers,
                                        .unreadable = s->skip ? left_out : NULL,
                                        .step = first,
                                        .epoch = (uint32_t)(first / plan->steps_per_epoch),
                                        .step_in_epoch = first % plan->steps_per_epoch};
    lvni_data_loader *l = NULL;
    if (lvni_data_loader_create(&o, &l) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    return l;
}

static void take(const lvn_batch *b, seen *out, int64_t step)
{
    for (int64_t i = 0; i < b->size; i++) {
        const double *value = (const double *)b->field[0]->data + 3 * i;
        assert_true(out->n[step] < ROOM / STEPS);
        assert_true(value[0] == (double)b->sample[i]);
        memcpy(out->value[step][out->n[step]++], value, 3 * sizeof *value);
    }
}

/* Of all ranks in micro-batch order; the loaders begin at step `first`. */
static void read_steps(const setting *s, int devices, int workers, int64_t first, seen *set,
                       seen *clips)
{
    memset(set, 0, sizeof *set);
    memset(clips, 0, sizeof *clips);
    for (int rank = 0; rank < devices; rank++) {
        const lvni_plan plan = plan_of(s, devices, rank);
        lvni_data_loader *l = loader_of(s, &plan, workers, first);
        for (int64_t step = first; step < STEPS; step++) {
            for (int m = plan.micro_batch_begin; m < plan.micro_batch_end; m++) {
                const lvni_data_loader_batch *b = NULL;
                if (lvni_data_loader_next(l, &b) != LVN_OK) {
                    fail_msg("%s", lvn_last_error()->message);
                }
                assert_int_equal(b->micro_batch, m);
                assert_int_equal(b->streams.n, 1);
                assert_string_equal(b->streams.name[0], "clips");
                take(&b->batch, set, step);
                take(&b->streams.batch[0], clips, step);
                lvni_data_loader_release(l, b);
            }
        }
        lvni_data_loader_destroy(l);
    }
}

static void same_for_any_layout(const setting *s, const seen *set, const seen *clips)
{
    static seen other_set, other_clips;
    const struct {
        int devices, workers;
        int64_t first;
    } how[] = {{1, 3, 0}, {2, 0, 0}, {3, 2, 0}, {1, 0, 1}, {1, 2, 7}, {3, 1, 18}, {2, 2, 23}};
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        const int64_t first = how[i].first;
        read_steps(s, how[i].devices, how[i].workers, first, &other_set, &other_clips);
        const size_t left = (size_t)(STEPS - first);
        if (memcmp(set->n + first, other_set.n + first, left * sizeof *set->n) != 0 ||
            memcmp(clips->n + first, other_clips.n + first, left * sizeof *clips->n) != 0 ||
            memcmp(set->value + first, other_set.value + first, left * sizeof *set->value) != 0 ||
            memcmp(clips->value + first, other_clips.value + first, left * sizeof *clips->value) !=
                0) {
            fail_msg("%d devices, %d workers, from step %d: other samples", how[i].devices,
                     how[i].workers, (int)first);
        }
    }
}

/* The seed of the stream's order and keys (docs/reproducibility.md). */
static uint64_t clips_seed(void)
{
    const lvni_core_rng_key k = lvni_core_rng_make_key(5, lvni_core_rng_purpose("stream/clips"));
    return (uint64_t)k.k[1] << 32 | k.k[0];
}

TEST(a_stream_goes_on_pass_after_pass)
{
    counted set = COUNTED(20), clips = COUNTED(7);
    const setting s = {
        .set = &set, .clips = &clips, .batch = 8, .stream_batch = 5, .micro_batches = 3};
    static seen a, b;
    read_steps(&s, 1, 0, 0, &a, &b);
    uint32_t order[7];
    for (int64_t step = 0; step < STEPS; step++) {
        assert_int_equal(a.n[step], step % 3 == 2 ? 4 : 8); /* 20 = 8 + 8 + 4 */
        assert_int_equal(b.n[step], 5);
        for (int64_t i = 0; i < 5; i++) {
            const int64_t p = 5 * step + i;
            lvni_data_sampler_order(clips_seed(), (uint32_t)(p / 7), 7, order);
            assert_true(b.value[step][i][0] == (double)order[p % 7]);
            const int64_t epoch = p / 7;
            assert_true(b.value[step][i][1] == (double)epoch);
        }
    }
    same_for_any_layout(&s, &a, &b);
}

TEST(once_is_a_pass_in_each_epoch)
{
    counted set = COUNTED(20), clips = COUNTED(7);
    const setting s = {.set = &set,
                       .clips = &clips,
                       .batch = 4,
                       .stream_batch = 4,
                       .micro_batches = 4,
                       .rule = LVN_STREAM_ONCE};
    static seen a, b;
    read_steps(&s, 1, 0, 0, &a, &b);
    uint32_t order[7];
    for (int64_t step = 0; step < STEPS; step++) {
        const int64_t in_epoch = step % 5;
        lvni_data_sampler_order(clips_seed(), (uint32_t)(step / 5), 7, order);
        assert_int_equal(b.n[step], in_epoch == 0 ? 4 : in_epoch == 1 ? 3 : 0);
        for (int64_t i = 0; i < b.n[step]; i++) {
            assert_true(b.value[step][i][0] == (double)order[4 * in_epoch + i]);
            const int64_t epoch = step / 5;
            assert_true(b.value[step][i][1] == (double)epoch);
        }
    }
    same_for_any_layout(&s, &a, &b);
}

TEST(in_sequence_and_with_replacement)
{
    counted set = COUNTED(20), clips = COUNTED(7);
    setting s = {.set = &set,
                 .clips = &clips,
                 .batch = 4,
                 .stream_batch = 6,
                 .micro_batches = 3,
                 .order = LVN_ORDER_SEQUENCE,
                 .set_order = LVN_ORDER_SEQUENCE};
    static seen a, b;
    read_steps(&s, 1, 0, 0, &a, &b);
    for (int64_t p = 0; p < (int64_t)4 * STEPS; p++) {
        assert_true(a.value[p / 4][p % 4][0] == (double)(p % 20));
        const int64_t epoch = p / 20;
        assert_true(a.value[p / 4][p % 4][1] == (double)epoch);
    }
    for (int64_t p = 0; p < (int64_t)6 * STEPS; p++) {
        assert_true(b.value[p / 6][p % 6][0] == (double)(p % 7));
    }
    same_for_any_layout(&s, &a, &b);
    s.order = s.set_order = LVN_ORDER_REPLACEMENT;
    read_steps(&s, 1, 0, 0, &a, &b);
    uint32_t order[20], repeat[20], count[20];
    for (int64_t p = 0; p < (int64_t)4 * STEPS; p++) {
        lvni_data_sampler_replacement(5, (uint32_t)(p / 20), 20, order, repeat, count);
        assert_true(a.value[p / 4][p % 4][0] == (double)order[p % 20]);
    }
    int drawn[7] = {0}, twice = 0;
    for (int64_t p = 0; p < (int64_t)6 * STEPS; p++) {
        const double *now = b.value[p / 6][p % 6];
        drawn[(int)now[0]]++;
        for (int64_t q = p / 7 * 7; q < p; q++) { /* the same sample again in this pass */
            const double *was = b.value[q / 6][q % 6];
            twice += was[0] == now[0];
            assert_true(was[0] != now[0] || was[2] != now[2]); /* augmented differently */
        }
    }
    assert_true(twice > 50);
    for (int i = 0; i < 7; i++) { /* 34 expected, s = 5.4 */
        assert_int_in_range(drawn[i], 15, 55);
    }
    same_for_any_layout(&s, &a, &b);
}

TEST(without_length)
{
    counted set = COUNTED(LVN_ENDLESS), clips = COUNTED(LVN_ENDLESS);
    const setting s = {.set = &set,
                       .clips = &clips,
                       .batch = 5,
                       .stream_batch = 4,
                       .micro_batches = 3,
                       .steps_per_epoch = 6};
    static seen a, b;
    read_steps(&s, 1, 0, 0, &a, &b);
    for (int64_t p = 0; p < (int64_t)4 * STEPS; p++) {
        assert_true(b.value[p / 4][p % 4][0] == (double)p);
        assert_true(a.value[p / 5][p % 5][0] == (double)p);
    }
    same_for_any_layout(&s, &a, &b);
}

/* Longer or shorter than a pass through the set. */
TEST(a_given_length_of_the_epoch)
{
    counted set = COUNTED(9), clips = COUNTED(30);
    for (int64_t steps = 1; steps <= 13; steps += 6) {
        const setting s = {.set = &set,
                           .clips = &clips,
                           .batch = 4,
                           .stream_batch = 3,
                           .micro_batches = 3,
                           .steps_per_epoch = steps};
        static seen a, b;
        uint32_t order[9];
        read_steps(&s, 1, 0, 0, &a, &b);
        for (int64_t p = 0; p < (int64_t)4 * STEPS; p++) {
            lvni_data_sampler_order(5, (uint32_t)(p / 9), 9, order);
            assert_int_equal(a.n[p / 4], 4);
            assert_true(a.value[p / 4][p % 4][0] == (double)order[p % 9]);
        }
        same_for_any_layout(&s, &a, &b);
    }
}

TEST(workers_have_states_of_their_own)
{
    counted set = COUNTED(20), clips = COUNTED(11);
    setting s = {.set = &set, .clips = &clips, .batch = 8, .stream_batch = 6, .micro_batches = 2};
    static seen a, b, c;
    read_steps(&s, 1, 0, 0, &a, &b);
    clips.base.cls = &decoded_class;
    for (int workers = 0; workers <= 3; workers++) {
        clips.opened = clips.closed = 0;
        read_steps(&s, 1, workers, 0, &a, &c);
        assert_memory_equal(&b, &c, sizeof b);
        assert_int_equal(clips.opened, workers > 0 ? workers : 1);
        assert_int_equal(clips.closed, clips.opened);
        assert_int_equal(clips.together, 0);
    }
}

TEST(a_state_that_cannot_be_opened_is_named)
{
    counted set = COUNTED(20), clips = COUNTED(11);
    clips.base.cls = &decoded_class;
    clips.fails = true;
    const setting s = {
        .set = &set, .clips = &clips, .batch = 8, .stream_batch = 6, .micro_batches = 2};
    const lvni_plan plan = plan_of(&s, 1, 0);
    const lvn_stream stream = {.name = "clips", .dataset = &clips.base};
    const lvni_data_loader_options o = {
        .dataset = &set.base, .plan = &plan, .training = true, .stream = &stream, .workers = 3};
    lvni_data_loader *l;
    assert_int_equal(lvni_data_loader_create(&o, &l), LVN_ERR_IO);
    assert_string_equal(lvn_last_error()->message, "no decoder left");
    assert_non_null(strstr(lvn_last_error()->frames[0], "worker 1 of 3 of the dataset decoded"));
    assert_int_equal(clips.opened, 1);
    assert_int_equal(clips.closed, 1);
    lvn_clear_error();
}

TEST(unreadable_samples_name_their_stream)
{
    counted set = COUNTED(8), clips = COUNTED(4);
    clips.broken = 2;
    setting s = {.set = &set, .clips = &clips, .batch = 8, .stream_batch = 4, .micro_batches = 3};
    const lvni_plan plan = plan_of(&s, 1, 0);
    for (int workers = 0; workers <= 2; workers++) {
        lvni_data_loader *l = loader_of(&s, &plan, workers, 0);
        const lvni_data_loader_batch *b = NULL;
        lvn_status status = LVN_OK;
        for (int i = 0; i < 3 && status == LVN_OK; i++) {
            status = lvni_data_loader_next(l, &b);
            lvni_data_loader_release(l, b);
        }
        assert_int_equal(status, LVN_ERR_CORRUPT);
        assert_string_equal(lvn_last_error()->message,
                            "stream clips: sample 2: no end of clip; on_error=skip leaves out what "
                            "cannot be read");
        lvni_data_loader_destroy(l);
        lvn_clear_error();
    }
    s.skip = true;
    static seen a, c;
    read_steps(&s, 1, 2, 0, &a, &c);
    for (int step = 0; step < STEPS; step++) {
        assert_int_equal(c.n[step], 3);
        assert_int_equal(a.n[step], 8);
    }
    same_for_any_layout(&s, &a, &c);
    lvni_data_loader *l = loader_of(&s, &plan, 0, 0);
    for (int i = 0; i < 6; i++) {
        const lvni_data_loader_batch *b;
        assert_int_equal(lvni_data_loader_next(l, &b), LVN_OK);
        lvni_data_loader_release(l, b);
    }
    lvni_core_str packed = {0}, text = {0};
    size_t at;
    assert_int_equal(lvni_data_unreadable_noted(left_out), 2); /* a pass each; of one, once */
    lvni_data_unreadable_pack(left_out, &packed);
    assert_int_equal(
        lvni_data_unreadable_settle(left_out, lvni_core_str_text(&packed), packed.len, 0, &at),
        LVN_OK);
    lvni_core_str_free(&packed);
    assert_true(lvni_data_unreadable_report(left_out, &text));
    assert_string_equal(
        lvni_core_str_text(&text),
        "1 unreadable training sample of the stream clips left out (on_error=skip): "
        "sample 2: no end of clip");
    lvni_core_str_free(&text);
    assert_int_equal(lvni_data_unreadable_count(left_out), 0); /* of the set itself */
    lvni_data_loader_destroy(l);
}

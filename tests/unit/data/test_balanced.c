/* sampler=balanced: draws of an independent program, classes equally often, repeats with draws of
 * their own, the same batches for any number of threads and ranks and from the middle of an
 * epoch. */
#include "core/alloc.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "tensor/tensor.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Samples 2 p of a list; labels 0 to 3 of 5 classes with 700, 200, 99 and 1 of 1000 samples, 3 is
 * not there. */
enum { N = 1000, CLASSES = 5 };

static int64_t count_of(int k)
{
    static const int64_t counts[CLASSES] = {700, 200, 99, 0, 1};
    return counts[k];
}

static int uneven_fields(const lvn_dataset *d, lvn_field out[LVN_MAX_FIELDS])
{
    (void)d;
    out[0] = (lvn_field){.name = "image", .dtype = LVN_F32, .ndim = 0};
    out[1] = (lvn_field){.name = "label", .dtype = LVN_I64, .ndim = 0};
    return 2;
}

static int64_t uneven_length(const lvn_dataset *d)
{
    (void)d;
    return N;
}

static int64_t uneven_index(const lvn_dataset *d, int64_t position)
{
    (void)d;
    return 2 * position;
}

/* Mixed: position 7 p mod N belongs to the first classes first. */
static int64_t uneven_label(const lvn_dataset *d, int64_t sample)
{
    (void)d;
    int64_t place = sample / 2 * 7 % N;
    int k = 0;
    while (place >= count_of(k)) {
        place -= count_of(k++);
    }
    return k;
}

static lvn_status uneven_get(const lvn_dataset *d, const lvn_sample_key *key, void *const field[])
{
    *(float *)field[0] = (float)lvn_sample_uniform(key, 0, 0);
    *(int64_t *)field[1] = uneven_label(d, key->sample);
    return LVN_OK;
}

static const lvn_dataset_class uneven_class = {.name = "uneven",
                                               .fields = uneven_fields,
                                               .length = uneven_length,
                                               .get = uneven_get,
                                               .label = uneven_label,
                                               .index = uneven_index};
static const char *const names[CLASSES] = {"a", "b", "c", "d", "e"};
static const lvn_dataset uneven = {
    .cls = &uneven_class, .n_classes = CLASSES, .class_names = names};

TEST(draws_are_those_of_an_independent_program)
{
    if (system("python3 -c pass") != 0) {
        print_message("no python3 on this machine\n");
        skip();
    }
    lvni_data_class_lists *lists;
    uint32_t order[N], repeat[N], drawn[N];
    assert_int_equal(lvni_data_class_lists_create(&uneven, &lists), LVN_OK);
    lvni_data_sampler_balanced(7, 3, lists, order, repeat, drawn);
    char command[4096];
    int used = snprintf(command, sizeof command, "python3 '%s' 7 3", LEVIN_BALANCED_PY);
    for (int64_t i = 0; i < N; i++) {
        used += snprintf(command + used, sizeof command - (size_t)used, " %d",
                         (int)uneven_label(&uneven, 2 * i));
    }
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    int n = 0;
    for (unsigned position, before; fscanf(pipe, "%u %u", &position, &before) == 2; n++) {
        assert_true(n < N && order[n] == position && repeat[n] == before);
    }
    assert_int_equal(pclose(pipe), 0);
    assert_int_equal(n, N);
    lvni_data_class_lists_destroy(lists);
}

/* As PyTorch's WeightedRandomSampler with 1 / count: a class that has samples in a quarter of the
 * draws, whatever their number. */
TEST(classes_are_drawn_equally_often)
{
    lvni_data_class_lists *lists;
    uint32_t order[N], repeat[N], drawn[N];
    int64_t of_class[CLASSES] = {0}, of_sample[N] = {0};
    assert_int_equal(lvni_data_class_lists_create(&uneven, &lists), LVN_OK);
    for (uint32_t epoch = 0; epoch < 40; epoch++) {
        lvni_data_sampler_balanced(1, epoch, lists, order, repeat, drawn);
        for (int i = 0; i < N; i++) {
            of_class[uneven_label(&uneven, 2 * (int64_t)order[i])]++;
            of_sample[order[i]]++;
        }
    }
    assert_int_equal(of_class[3], 0);
    for (int k = 0; k < CLASSES; k++) {
        if (k != 3) {
            assert_int_in_range(of_class[k], 9650, 10350); /* 10000, four deviations of 87 */
        }
    }
    for (int64_t i = 0; i < N;
         i++) { /* within a class equally often: 14.3, 50, 101 and 10000 times */
        const double want = 10000.0 / (double)count_of((int)uneven_label(&uneven, 2 * i));
        assert_true((double)of_sample[i] < 2.5 * want && (double)of_sample[i] > 0.1 * want);
    }
    lvni_data_class_lists_destroy(lists);
}

/* ---- the loader ---- */

typedef struct seen {
    int64_t sample[2 * N];
    float value[2 * N];
    int64_t n;
} seen;

/* What the loader of one rank of `ranks` gives in epochs 0 and 1, from a step of epoch 0 on, in the
 * order of micro-batches. */
static void read_all(seen *s, int ranks, int workers, int64_t from)
{
    lvni_data_loader *l[3];
    lvni_plan plan[3];
    s->n = 0;
    for (int rank = 0; rank < ranks; rank++) {
        const lvni_plan_options p = {.n_samples = N,
                                     .batch_size = 64,
                                     .micro_batches = 6,
                                     .devices = ranks,
                                     .rank = rank,
                                     .lanes = 1,
                                     .cores = 1};
        assert_int_equal(lvni_plan_make(&p, &plan[rank]), LVN_OK);
        const lvni_data_loader_options o = {.dataset = &uneven,
                                            .plan = &plan[rank],
                                            .training = true,
                                            .seed = 5,
                                            .balanced = true,
                                            .workers = workers,
                                            .step_in_epoch = from,
                                            .max_epochs = 2};
        assert_int_equal(lvni_data_loader_create(&o, &l[rank]), LVN_OK);
    }
    for (int64_t batch = 0; batch < (2 * plan[0].steps_per_epoch - from) * 6; batch++) {
        const int rank = (int)(batch % 6) / (6 / ranks);
        const lvni_data_loader_batch *b;
        assert_int_equal(lvni_data_loader_next(l[rank], &b), LVN_OK);
        assert_non_null(b);
        memcpy(s->sample + s->n, b->batch.sample, (size_t)b->batch.size * sizeof *s->sample);
        memcpy(s->value + s->n, b->batch.image->data, (size_t)b->batch.size * sizeof *s->value);
        s->n += b->batch.size;
        lvni_data_loader_release(l[rank], b);
    }
    for (int rank = 0; rank < ranks; rank++) {
        lvni_data_loader_destroy(l[rank]);
    }
}

TEST(batches_do_not_depend_on_the_layout)
{
    static seen first, other;
    read_all(&first, 1, 0, 0);
    assert_int_equal(first.n, 2 * N);
    for (int ranks = 1; ranks <= 3; ranks++) {
        read_all(&other, ranks, 3, 0);
        assert_memory_equal(&first, &other, sizeof first);
    }
    read_all(&other, 2, 1, 9); /* a resumed run */
    assert_int_equal(other.n, 2 * N - (int64_t)9 * 64);
    assert_memory_equal(first.sample + 9 * 64, other.sample,
                        (size_t)other.n * sizeof *other.sample);
    assert_memory_equal(first.value + 9 * 64, other.value, (size_t)other.n * sizeof *other.value);
}

/* The one sample of class e is drawn 250 times: a sample drawn again is augmented differently;
 * drawn first, as without balancing. */
TEST(repeats_have_random_numbers_of_their_own)
{
    static seen s;
    int different = 0, n = 0;
    float values[N];
    read_all(&s, 1, 0, 0);
    for (int i = 0; i < N; i++) {
        if (uneven_label(&uneven, s.sample[i]) != 4) {
            continue;
        }
        const lvn_sample_key key = {.seed = 5, .epoch = 0, .sample = s.sample[i], .training = true};
        assert_true(n > 0 || s.value[i] == (float)lvn_sample_uniform(&key, 0, 0));
        bool again = false;
        for (int k = 0; k < n; k++) {
            again = again || values[k] == s.value[i];
        }
        different += again ? 0 : 1;
        values[n++] = s.value[i];
    }
    assert_int_in_range(n, 180, 320);
    assert_true(different >= n - 1); /* 24 bits: two may agree by chance */
}

TEST(labels_must_be_known)
{
    lvni_data_class_lists *lists;
    lvn_dataset_class blind = uneven_class;
    blind.label = NULL;
    const lvn_dataset without = {.cls = &blind, .n_classes = CLASSES},
                      few = {.cls = &uneven_class, .n_classes = 2};
    assert_int_equal(lvni_data_class_lists_create(&without, &lists), LVN_ERR_UNSUPPORTED);
    assert_int_equal(lvni_data_class_lists_create(&few, &lists), LVN_ERR_INVALID);
    assert_null(lists);
}

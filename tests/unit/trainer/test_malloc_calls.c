/* Whole training loops with every malloc counted: in steps 10 to 20 levin calls none on the
 * trainer's and the lanes' threads (loading, forward, backward, merging, update, loggers),
 * and oneDNN the same number in every step. */
#include "core/alloc.h"
#include "data/shapes.h"
#include "kernels/kernels.h"
#include "support/malloc_count.h"
#include "trainer/trainer.h"
#include "support/test.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST = 10, LAST = 20, STEPS = 23, LANES = 4 };

static char out[] = "/tmp/levin-malloc-XXXXXX";
static const char *const loggers[] = {"csv", "tensorboard", "exec:cat >/dev/null"};

/* Counters at the beginning of each step, taken by the first lane that gets there; per micro-batch
 * those of its thread. */
static _Atomic int64_t newest;
static uint64_t own_counter[STEPS];
static uint64_t of_thread[STEPS][LANES];

static const lvn_module_class *inside;

static lvn_tensor *noting_step(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    int64_t before = step->step - 1;
    if (atomic_compare_exchange_strong(&newest, &before, step->step)) {
        own_counter[step->step] = lvni_core_alloc_get_total().calls;
        malloc_count_switch(step->step >= FIRST && step->step < LAST);
    }
    of_thread[step->step][lvni_tensor_ctx_get()->at.micro_batch] = malloc_count_of_thread();
    return inside->training_step(m, batch, step);
}

static void run(int lanes, int micro_batches, int workers)
{
    lvni_data_transform transform;
    lvn_dataset *data;
    lvni_nn_model *model;
    lvni_trainer *trainer;
    lvni_data_shapes_transform_init(&transform, 16);
    const lvni_data_views views = lvni_data_views_make(&transform, 1);
    assert_int_equal(
        lvni_data_shapes_create(&(lvni_data_shapes_options){.count = 600}, NULL, 0, &views, &data),
        LVN_OK);
    inside = lvni_nn_zoo_find("cnn");
    lvn_module_class cls = *inside;
    cls.training_step = noting_step;
    const lvni_nn_zoo_arguments arguments = {
        .image_size = 16, .n_classes = data->n_classes, .dropout = 0.1};
    assert_int_equal(lvni_nn_model_build(&cls, &arguments, 1, &model), LVN_OK);
    lvni_trainer_options o = {
        .model = model,
        .train = data,
        .optim = {.kind = LVNI_OPTIM_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
        .gradient_clip_val = 1.0,
        .seed = 1,
        .max_epochs = -1,
        .max_steps = STEPS,
        .workers = workers,
        .out = out,
        .log_every_n_steps = 1,
        .loggers = loggers,
        .n_loggers = 3,
        .quiet = true,
        .config_json = "{}"};
    const lvni_plan_options plan = {.n_samples = 600,
                                    .batch_size = 16,
                                    .micro_batches = micro_batches,
                                    .lanes = lanes,
                                    .pins.wgrad_threads = 1,
                                    .cores = 2};
    assert_int_equal(lvni_plan_make(&plan, &o.plan), LVN_OK);
    assert_int_equal(lvni_trainer_create(&o, &trainer), LVN_OK);
    atomic_store(&newest, -1);
    if (lvni_trainer_fit(trainer) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    lvni_trainer_destroy(trainer);
    lvni_nn_model_destroy(model);
    lvn_dataset_destroy(data);
}

/* Calls from step to step, summed over the threads of the micro-batches: which lane reorders the
 * weights that all of them use depends on which comes first. */
static uint64_t library_calls(int step, int micro_batches)
{
    uint64_t sum = 0;
    for (int s = 0; s < micro_batches; s++) {
        sum += of_thread[step + 1][s] - of_thread[step][s];
    }
    return sum;
}

static void check(const char *layout, int micro_batches, malloc_counts before)
{
    const malloc_counts after = malloc_count_get();
    const uint64_t own = after.own - before.own, library = after.library - before.library;
    print_message("%s, steps %d to %d: levin %llu, oneDNN and libgomp %llu calls of malloc\n",
                  layout, FIRST, LAST, (unsigned long long)own, (unsigned long long)library);
    if (own != 0) {
        malloc_count_print(stderr);
    }
    assert_int_equal(own, 0);
    assert_int_equal(own_counter[LAST], own_counter[FIRST]);
    for (int step = FIRST + 1; step + 1 < LAST; step++) {
        assert_int_equal(library_calls(step, micro_batches),
                         library_calls(FIRST + 1, micro_batches));
    }
}

TEST(one_lane_on_two_cores)
{
    const malloc_counts before = malloc_count_get();
    run(1, 2, 1);
    check("one lane", 2, before);
}

TEST(two_lanes)
{
    const malloc_counts before = malloc_count_get();
    run(2, 2, 1);
    check("two lanes", 2, before);
}

TEST(no_workers)
{
    const malloc_counts before = malloc_count_get();
    run(2, 4, 0);
    check("two lanes, four micro-batches, decoding in the trainer's thread", 4, before);
}

/* The counter counts: else its zeros would mean nothing. */
TEST(the_counter_counts)
{
    const malloc_counts before = malloc_count_get();
    const uint64_t mine = malloc_count_of_thread();
    malloc_count_switch(true);
    void *volatile p = malloc(100);
    void *volatile q = lvni_core_alloc(LVNI_TAG_CORE, 100);
    malloc_count_switch(false);
    free(p);
    lvni_core_free(q);
    assert_int_equal(malloc_count_get().own - before.own, 2);
    assert_int_equal(malloc_count_of_thread() - mine, 2);
    assert_int_equal(malloc_count_get().library, before.library);
}

int main(int argc, char **argv)
{
    if (lvni_cpu_start() != LVN_OK || mkdtemp(out) == NULL) {
        fprintf(stderr, "%s %s\n", lvn_last_error()->message, out);
        return 1;
    }
    char folder[64], path[512];
    snprintf(folder, sizeof folder, "%s/checkpoints", out);
    mkdir(folder, 0777);
    const int failed = test_main(argc, argv);
    snprintf(path, sizeof path, "%s/last.safetensors", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/best.safetensors", folder);
    unlink(path);
    rmdir(folder);
    DIR *d = opendir(out);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", out, e->d_name);
        unlink(path);
    }
    closedir(d);
    rmdir(out);
    return failed;
}

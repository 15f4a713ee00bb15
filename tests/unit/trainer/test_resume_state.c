/* What is kept when something goes wrong between two steps or in a validation, and which runs a
 * checkpoint is for. */
#include "trainer_support.h"

#include "core/signals.h"
#include "core/str.h"
#include "kernels/kernels.h"
#include "log/run_log.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char out[] = "/tmp/levin-resume-XXXXXX";
static char last[96];

static setting settings(void)
{
    return (setting){
        .batch_size = 16,
        .micro_batches = 4,
        .lanes = 1,
        .optim = {.kind = LVNI_OPTIM_ADAMW, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
        .out = out};
}

/* A bench for lvni_trainer_fit: it makes the loader itself. */
static void open_for_fit(bench *b, const memory *data, const lvn_dataset *val)
{
    const setting s = settings();
    bench_open(b, data, &s);
    lvni_data_loader_destroy(b->trainer->loader);
    b->trainer->loader = NULL;
    b->trainer->o.val = val;
    b->trainer->o.max_epochs = 2;
}

static void restore(bench *b)
{
    lvni_ckpt *ckpt;
    assert_int_equal(lvni_ckpt_load(last, &ckpt), LVN_OK);
    if (lvni_trainer_restore(b->trainer, ckpt) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    lvni_ckpt_free(ckpt);
}

/* The run's end without any trouble. */
static uint64_t undisturbed(const memory *data, const lvn_dataset *val, lvni_ckpt_position *at)
{
    bench b;
    open_for_fit(&b, data, val);
    assert_int_equal(lvni_trainer_fit(b.trainer), LVN_OK);
    const uint64_t hash = bench_hash(&b);
    *at = b.trainer->at;
    bench_close(&b);
    return hash;
}

/* Goes on from `last` to the same end. */
static void finish(const memory *data, const lvn_dataset *val)
{
    lvni_ckpt_position want;
    bench b;
    open_for_fit(&b, data, val);
    restore(&b);
    assert_int_equal(lvni_trainer_fit(b.trainer), LVN_OK);
    const uint64_t hash = bench_hash(&b);
    const lvni_ckpt_position at = b.trainer->at;
    bench_close(&b);
    assert_true(hash == undisturbed(data, val, &want));
    assert_true(at.best_score == want.best_score && at.best_step == want.best_step);
    assert_true(at.step == 6 && want.step == 6 && at.epoch == 2 && at.finished);
}

static void assert_saved(int64_t step, int64_t step_in_epoch)
{
    lvni_ckpt *ckpt;
    assert_int_equal(lvni_ckpt_load(last, &ckpt), LVN_OK);
    assert_int_equal(ckpt->at.step, step);
    assert_int_equal(ckpt->at.step_in_epoch, step_in_epoch);
    assert_int_equal(ckpt->at.epoch, 0);
    lvni_ckpt_free(ckpt);
}

TEST(error_in_validation_keeps_the_epoch)
{
    memory data, val;
    memory_init(&data, 40, 0); /* steps of 16, 16, 8 */
    memory_init(&val, 12, 0);
    val.unreadable[9] = true;
    bench b;
    open_for_fit(&b, &data, &val.base);
    assert_int_equal(lvni_trainer_fit(b.trainer), LVN_ERR_CORRUPT);
    assert_non_null(strstr(lvn_last_error()->message, "sample 9 is damaged"));
    assert_non_null(
        strstr(b.trainer->checkpointing.kept, "; step 3 (epoch 1) is saved: resume=true"));
    bench_close(&b);
    assert_saved(3, 3);
    open_for_fit(&b, &data, &val.base); /* still unreadable: nothing is lost by trying */
    restore(&b);
    assert_int_equal(lvni_trainer_fit(b.trainer), LVN_ERR_CORRUPT);
    bench_close(&b);
    assert_saved(3, 3);
    val.unreadable[9] = false;
    finish(&data, &val.base);
}

TEST(unreadable_sample_keeps_the_steps_before)
{
    memory data;
    memory_init(&data, 40, 0);
    bench b;
    const setting s = settings();
    bench_open(&b, &data, &s);
    bench_steps(&b, 3); /* which samples come when */
    const int64_t victim = seen[1].sample[0];
    bench_close(&b);
    data.unreadable[victim] = true;
    open_for_fit(&b, &data, NULL);
    assert_int_equal(lvni_trainer_fit(b.trainer), LVN_ERR_CORRUPT);
    assert_non_null(
        strstr(b.trainer->checkpointing.kept, "; step 1 (epoch 1) is saved: resume=true"));
    bench_close(&b);
    assert_saved(1, 1);
    data.unreadable[victim] = false;
    finish(&data, NULL);
}

/* ---- a stop during validation ---- */

static int asked_for; /* samples */
static bool stop_at_first;
static lvn_dataset_class stopping_class;
static lvn_status (*memory_get)(const lvn_dataset *, const lvn_sample_key *, void *const[]);

static lvn_status stopping_get(const lvn_dataset *d, const lvn_sample_key *key, void *const field[])
{
    if (asked_for++ == 0 && stop_at_first) {
        raise(SIGTERM);
    }
    return memory_get(d, key, field);
}

TEST(stop_signal_ends_a_long_validation)
{
    memory data, val;
    memory_init(&data, 40, 0);
    memory_init(&val, 200, 0); /* 29 chunks of 7 */
    stopping_class = *val.base.cls;
    memory_get = stopping_class.get;
    stopping_class.get = stopping_get;
    val.base.cls = &stopping_class;
    stop_at_first = true;
    bench b;
    open_for_fit(&b, &data, &val.base);
    lvni_trainer_stop_install();
    assert_int_equal(lvni_trainer_fit(b.trainer), LVN_ERR_CANCELLED);
    assert_non_null(strstr(lvn_last_error()->message,
                           "SIGTERM after step 3 (epoch 1); the checkpoint is saved"));
    assert_true(asked_for <= 14);
    bench_close(&b);
    assert_saved(3, 3);
    stop_at_first = false;
    lvni_trainer_stop_install(); /* forgets the signal */
    finish(&data, &val.base);
    lvni_core_signals_remove();
}

/* Threads that decode for a validation far away would take time from training. */
TEST(validation_decodes_when_it_is_its_turn)
{
    memory data, val;
    memory_init(&data, 40, 0);
    memory_init(&val, 30, 0);
    stopping_class = *val.base.cls;
    memory_get = stopping_class.get;
    stopping_class.get = stopping_get;
    val.base.cls = &stopping_class;
    asked_for = 0;
    bench b;
    open_for_fit(&b, &data, NULL);
    lvni_trainer_options o = b.trainer->o;
    o.val = &val.base;
    o.workers = 1; /* the only one that counts */
    o.max_epochs = 1;
    lvni_trainer *t;
    assert_int_equal(lvni_trainer_create(&o, &t), LVN_OK);
    usleep(20000);
    assert_int_equal(asked_for, 0);
    assert_int_equal(lvni_trainer_fit(t), LVN_OK);
    usleep(20000);
    assert_int_equal(asked_for, 30);
    t->o.max_epochs = 2;
    lvni_data_loader_destroy(t->loader);
    t->loader = NULL;
    lvni_trainer_logging_close(&t->report);
    assert_int_equal(lvni_trainer_fit(t), LVN_OK);
    assert_int_equal(asked_for, 60);
    lvni_trainer_destroy(t);
    bench_close(&b);
}

/* ---- a step that fails moves nothing ---- */

static lvn_status huge_get(const lvn_dataset *d, const lvn_sample_key *key, void *const field[])
{
    LVN_TRY(memory_get(d, key, field));
    for (int k = 0; k < FEATURES; k++) {
        /* finite, and so is each micro-batch's gradient; their sum is not */
        ((float *)field[0])[k] = 3e38f;
    }
    *(int64_t *)field[1] = 0;
    return LVN_OK;
}

TEST(failed_update_does_not_move_the_position)
{
    memory data;
    memory_init(&data, 40, 0);
    static lvn_dataset_class huge_class;
    huge_class = *data.base.cls;
    memory_get = huge_class.get;
    huge_class.get = huge_get;
    data.base.cls = &huge_class;
    const setting s = settings();
    bench b;
    bench_open(&b, &data, &s);
    for (int64_t i = 0; i < b.model->n_weights; i++) {
        b.model->weights[i] = 0.0f;
    }
    lvni_nn_model_touch(b.model);
    const uint64_t before = bench_hash(&b);
    lvni_trainer_step_result r;
    assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_ERR_NON_FINITE);
    assert_non_null(strstr(lvn_last_error()->message, "the gradient's norm is"));
    assert_true(b.trainer->at.step == 0 && b.trainer->at.step_in_epoch == 0 &&
                b.trainer->at.samples_seen == 0);
    assert_true(b.trainer->report.epoch_sum.n_metrics == 0 && bench_hash(&b) == before);
    bench_close(&b);
}

/* ---- whose checkpoint is it ---- */

/* The status of restoring `last` into a run of these settings; `reports` is in the message. */
static void try_restore(const memory *data, const setting *s, uint64_t seed, lvn_status want,
                        const char *reports)
{
    bench b;
    bench_open(&b, data, s);
    b.trainer->o.seed = seed;
    lvni_ckpt *ckpt;
    assert_int_equal(lvni_ckpt_load(last, &ckpt), LVN_OK);
    const uint64_t before = bench_hash(&b);
    if (lvni_trainer_restore(b.trainer, ckpt) != want ||
        (want != LVN_OK && strstr(lvn_last_error()->message, reports) == NULL)) {
        fail_msg("%s: %s", reports, lvn_last_error()->message);
    }
    assert_int_equal(bench_hash(&b) == before, want != LVN_OK); /* refused: nothing was touched */
    lvni_ckpt_free(ckpt);
    bench_close(&b);
}

static int64_t backwards_index(const lvn_dataset *d, int64_t position)
{
    return d->cls->length(d) - 1 - position;
}

static void try_others(const memory *data, lvn_status want)
{
    setting s = settings();
    try_restore(data, &s, 4, LVN_OK, "the same run");
    try_restore(
        data, &s, 5, want,
        "with seed=4 (seed of the run), and this one has seed=5: give seed=4, or start a new run");
    s.micro_batches = 8;
    try_restore(data, &s, 4, want,
                "with micro_batches=4 (parts of an effective batch), and this one has "
                "micro_batches=8: give micro_batches=4");
    s = settings();
    s.batch_size = 20;
    try_restore(
        data, &s, 4, want,
        "effective_batch=16 (samples of an optimizer step), and this one has effective_batch=20");
    s = settings();
    memory other = *data;
    other.n = 39;
    try_restore(&other, &s, 4, want,
                "n_samples=40 (training samples), and this one has n_samples=39");
    other = *data;
    static lvn_dataset_class backwards;
    backwards = *data->base.cls;
    backwards.index = backwards_index;
    other.base.cls = &backwards;
    try_restore(&other, &s, 4, want, "(names and order of the training samples)");
}

TEST(within_an_epoch_only_the_same_run_goes_on)
{
    memory data;
    memory_init(&data, 40, 0);
    const setting s = settings();
    bench b;
    bench_open(&b, &data, &s);
    bench_steps(&b, 2);
    assert_int_equal(bench_save(b.trainer, false), LVN_OK);
    try_others(&data, LVN_ERR_USAGE);
    bench_steps(&b, 1); /* the epoch is done: any run may go on from here */
    assert_int_equal(bench_save(b.trainer, false), LVN_OK);
    try_others(&data, LVN_OK);
    bench_close(&b);
}

/* ---- metric sums as text ---- */

TEST(metric_sums_keep_names_and_bits)
{
    const lvni_nn_step sums = {
        .n_metrics = 4,
        .metric = {{.name = "top 5; acc", .sum = 0.1, .weight = 3.0},
                   {.name = "\"quoted\"", .sum = 1.0 / 3.0, .weight = 1e300},
                   {.name = "loss", .sum = -(double)INFINITY, .weight = 32.0},
                   {.name = "a", .sum = (double)NAN, .weight = 5e-324}}};
    lvni_core_str text = {0};
    lvni_nn_step back;
    assert_int_equal(lvni_trainer_epoch_sums_write(&sums, &text), LVN_OK);
    assert_int_equal(lvni_trainer_epoch_sums_read(lvni_core_str_text(&text), &back), LVN_OK);
    assert_int_equal(back.n_metrics, 4);
    for (int i = 0; i < 4; i++) {
        const lvni_nn_step_metric *a = &sums.metric[i], *c = &back.metric[i];
        assert_string_equal(c->name, a->name);
        assert_true((isnan(a->sum) && isnan(c->sum)) ||
                    memcmp(&a->sum, &c->sum, sizeof(double)) == 0);
        assert_true(memcmp(&a->weight, &c->weight, sizeof(double)) == 0);
    }
    lvni_core_str_free(&text);
    assert_int_equal(lvni_trainer_epoch_sums_read("[]", &back), LVN_OK);
    assert_int_equal(back.n_metrics, 0);
}

TEST(other_text_is_no_sums)
{
    static const char *const wrong[] = {"",
                                        "loss 1 2;",
                                        "{}",
                                        "[[\"loss\",1]]",
                                        "[[\"loss\",1,2,3]]",
                                        "[[\"loss\",\"x\",2]]",
                                        "[[1,1,2]]",
                                        "[[\"loss\",1,2]",
                                        "[[\"a_name_of_forty_characters_is_1_too_long\",1,2]]"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        lvni_nn_step back;
        assert_int_equal(lvni_trainer_epoch_sums_read(wrong[i], &back), LVN_ERR_CORRUPT);
        assert_int_equal(back.n_metrics, 0);
    }
}

int main(int argc, char **argv)
{
    if (lvni_cpu_start() != LVN_OK || mkdtemp(out) == NULL) {
        fprintf(stderr, "%s %s\n", lvn_last_error()->message, out);
        return 1;
    }
    lvni_log_set_quiet(true);
    char command[128];
    snprintf(last, sizeof last, "%s/checkpoints/last.safetensors", out);
    snprintf(command, sizeof command, "mkdir %s/checkpoints", out);
    if (system(command) != 0) {
        return 1;
    }
    const int failed = test_main(argc, argv);
    snprintf(command, sizeof command, "rm -r %s", out);
    return system(command) != 0 ? 1 : failed;
}

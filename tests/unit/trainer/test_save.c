/* Writing beside the training: what is written is the state of the moment it was started, whatever
 * training does meanwhile; errors are reported once, at the next occasion. */
#include "trainer_support.h"

#include "core/alloc.h"
#include "core/vfs.h"
#include "kernels/kernels.h"
#include "log/run_log.h"
#include "trainer/loop_impl.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char out[] = "/tmp/levin-save-XXXXXX";
static char last[96], best[96];

static setting settings(void)
{
    return (setting){
        .cls = lvni_nn_zoo_find("cnn"),
        .batch_size = 16,
        .micro_batches = 2,
        .lanes = 1,
        .optim = {.kind = LVNI_OPTIM_ADAMW, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
        .ema = {.decay = 0.5},
        .out = out};
}

/* ---- an export that takes as long as the test wants ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool inside, may_leave;
static float exported;

static lvn_status slow_export(void *user, const char *name, const float *values, int64_t step)
{
    (void)user;
    assert_true(step > 0);
    (void)name;
    pthread_mutex_lock(&lock);
    inside = true;
    pthread_cond_broadcast(&changed);
    while (!may_leave) {
        pthread_cond_wait(&changed, &lock);
    }
    exported = values[0];
    pthread_mutex_unlock(&lock);
    return LVN_OK;
}

static void wait_until_inside(void)
{
    pthread_mutex_lock(&lock);
    while (!inside) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

static void let_go(void)
{
    pthread_mutex_lock(&lock);
    may_leave = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void must_be(lvn_status got, lvn_status want)
{
    if (got != want) {
        fail_msg("%s", lvn_last_error()->message);
    }
}

TEST(steps_meanwhile_change_nothing)
{
    memory data;
    memory_init(&data, 40, 8);
    const setting s = settings();
    bench b;
    bench_open(&b, &data, &s);
    bench_steps(&b, 2);
    must_be(bench_save(b.trainer, false), LVN_OK);
    char *want, *got;
    size_t want_bytes, got_bytes;
    must_be(lvni_core_file_read(last, 1 << 24, &want, &want_bytes), LVN_OK);
    bench_close(&b);
    bench_open(&b, &data, &s);
    lvni_trainer *t = b.trainer;
    t->o.export_model = slow_export;
    t->o.use_ema = true;
    inside = may_leave = false;
    bench_steps(&b, 2);
    const float average = t->engine->ema->value[0];
    must_be(lvni_trainer_save_start(t, true), LVN_OK);
    bench_steps(&b, 1);
    wait_until_inside();
    must_be(lvni_trainer_save_poll(t), LVN_OK);
    assert_int_equal(t->checkpointing.saved_step, -1); /* not all of it is done */
    bench_steps(&b, 2);
    assert_true(t->engine->ema->value[0] != average);
    let_go();
    must_be(lvni_trainer_save_wait(t), LVN_OK);
    assert_int_equal(t->checkpointing.saved_step, 2);
    assert_true(exported == average);
    must_be(lvni_core_file_read(last, 1 << 24, &got, &got_bytes), LVN_OK);
    assert_int_equal(got_bytes, want_bytes);
    assert_memory_equal(got, want, want_bytes);
    lvni_core_free(got);
    must_be(lvni_core_file_read(best, 1 << 24, &got, &got_bytes), LVN_OK);
    assert_int_equal(got_bytes, want_bytes);
    lvni_core_free(got);
    lvni_core_free(want);
    bench_close(&b);
}

TEST(errors_are_reported_once)
{
    memory data;
    memory_init(&data, 40, 8);
    const setting s = settings();
    bench b;
    bench_open(&b, &data, &s);
    bench_steps(&b, 1);
    for (int how = 0; how < 3; how++) { /* by waiting, by the next save, by looking */
        lvni_core_vfs_fail_at("write", 1, ENOSPC);
        must_be(lvni_trainer_save_start(b.trainer, false), LVN_OK);
        lvn_status reported = LVN_OK;
        if (how == 0) {
            reported = lvni_trainer_save_wait(b.trainer);
        } else if (how == 1) {
            reported = lvni_trainer_save_start(b.trainer, false);
        } else {
            while ((reported = lvni_trainer_save_poll(b.trainer)) == LVN_OK) {
                usleep(1000);
            }
        }
        lvni_core_vfs_fail_at("write", 0, 0);
        assert_int_equal(reported, LVN_ERR_IO);
        assert_non_null(strstr(lvn_last_error()->message, last));
        must_be(lvni_trainer_save_wait(b.trainer), LVN_OK);
        assert_int_equal(b.trainer->checkpointing.saved_step, -1);
    }
    must_be(bench_save(b.trainer, false), LVN_OK);
    assert_int_equal(b.trainer->checkpointing.saved_step, 1);
    bench_close(&b);
}

TEST(a_training_ends_with_its_error)
{
    memory data;
    memory_init(&data, 40, 8);
    const setting s = settings();
    bench b;
    bench_open(&b, &data, &s);
    lvni_data_loader_destroy(b.trainer->loader);
    b.trainer->loader = NULL;
    b.trainer->o.max_epochs = 1;
    b.trainer->o.val = NULL;
    lvni_core_vfs_fail_at("rename", 1, EACCES);
    assert_int_equal(lvni_trainer_fit(b.trainer), LVN_ERR_IO);
    lvni_core_vfs_fail_at("rename", 0, 0);
    assert_int_equal(b.trainer->checkpointing.saved_step, -1);
    bench_close(&b);
}

/* A stop waits for the running save; when that failed, the state is saved once more. */
TEST(a_stop_saves_once_more)
{
    memory data;
    memory_init(&data, 40, 8);
    const setting s = settings();
    bench b;
    bench_open(&b, &data, &s);
    for (int started = 0; started < 2; started++) {
        bench_steps(&b, 1);
        lvni_core_vfs_fail_at("rename", 1, EIO);
        must_be(lvni_trainer_save_start(b.trainer, false), LVN_OK);
        assert_int_equal(lvni_trainer_checkpointing_stop(b.trainer, SIGTERM, started == 1),
                         LVN_ERR_CANCELLED);
        lvni_core_vfs_fail_at("rename", 0, 0);
        assert_non_null(strstr(lvn_last_error()->message, "the checkpoint is saved"));
        assert_int_equal(b.trainer->checkpointing.saved_step, started + 1);
    }
    bench_close(&b);
}

/* What failed between two steps is tried again; the error reports the step to go on from. */
TEST(an_error_reports_the_last_saved_step)
{
    memory data;
    memory_init(&data, 40, 8);
    const setting s = settings();
    bench b;
    bench_open(&b, &data, &s);
    bench_steps(&b, 1);
    must_be(bench_save(b.trainer, false), LVN_OK);
    bench_steps(&b, 1);
    const lvn_status failed = lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__, "it failed");
    lvni_core_vfs_fail_at("rename", 1, EIO);
    assert_int_equal(lvni_trainer_checkpointing_save_on_error(b.trainer, failed), LVN_ERR_IO);
    assert_non_null(strstr(b.trainer->checkpointing.kept, "; the last saved step is 1"));
    assert_string_equal(lvn_last_error()->message, "it failed");
    lvni_core_vfs_fail_at("rename", 0, 0);
    lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__, "it failed");
    assert_int_equal(lvni_trainer_checkpointing_save_on_error(b.trainer, failed), LVN_ERR_IO);
    assert_non_null(strstr(b.trainer->checkpointing.kept, "; step 2 (epoch 1) is saved"));
    assert_string_equal(lvn_last_error()->message, "it failed");
    bench_close(&b);
}

/* ---- checkpoints under names of their own ---- */

static bool loads(const char *name)
{
    char path[160];
    lvni_ckpt *c = NULL;
    snprintf(path, sizeof path, "%s/checkpoints/%s.safetensors", out, name);
    const bool good = lvni_ckpt_load(path, &c) == LVN_OK;
    lvni_ckpt_free(c);
    return good;
}

static lvn_status save_named(lvni_trainer *t, const char *name, double score)
{
    snprintf(t->checkpointing.next_name, sizeof t->checkpointing.next_name, "%s", name);
    t->checkpointing.next_step = t->at.step;
    t->checkpointing.next_score = score;
    return bench_save(t, false);
}

/* Whichever call fails, the file that was there stays until the new one is; tried again, the save
 * leaves the new one alone. */
TEST(no_failure_leaves_fewer_files)
{
    static const char *const kinds[] = {"open",  "write",  "short", "fsync",
                                        "close", "rename", "link"};
    memory data;
    memory_init(&data, 40, 8);
    const setting s = settings();
    bench b;
    bench_open(&b, &data, &s);
    b.trainer->o.keep.save_top_k = 1;
    int n_failed = 0;
    bench_steps(&b, 1);
    must_be(save_named(b.trainer, "a", 0), LVN_OK);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bool reached = true;
        for (int64_t k = 1; reached; k++) {
            const char *old = b.trainer->at.step % 2 == 1 ? "a" : "b",
                       *new = b.trainer->at.step % 2 == 1 ? "b" : "a";
            bench_steps(&b, 1);
            lvni_core_vfs_fail_at(kinds[i], k, EIO);
            const lvn_status first = save_named(b.trainer, new, (double)b.trainer->at.step);
            reached = lvni_core_vfs_calls(kinds[i]) >= k;
            lvni_core_vfs_fail_at(kinds[i], 0, 0);
            n_failed += first != LVN_OK;
            assert_true(loads("last"));
            assert_true(loads(first == LVN_OK ? new : old));
            must_be(first == LVN_OK ? LVN_OK : bench_save(b.trainer, false), LVN_OK);
            assert_true(loads(new));
            assert_false(loads(old));
        }
    }
    assert_true(n_failed >= 8);
    bench_close(&b);
}

/* A step that is not that of the failed save takes up the list as it was. */
TEST(a_later_save_knows_what_is_there)
{
    memory data;
    memory_init(&data, 40, 8);
    const setting s = settings();
    bench b;
    bench_open(&b, &data, &s);
    b.trainer->o.keep.save_top_k = 1;
    bench_steps(&b, 1);
    must_be(save_named(b.trainer, "c", 0), LVN_OK);
    bench_steps(&b, 1);
    lvni_core_vfs_fail_at("rename", 1, ENOSPC);
    must_be(save_named(b.trainer, "d", 1), LVN_ERR_IO);
    lvni_core_vfs_fail_at("rename", 0, 0);
    bench_steps(&b, 1);
    must_be(bench_save(b.trainer, false), LVN_OK);
    assert_true(loads("c"));
    assert_false(loads("d"));
    assert_int_equal(b.trainer->checkpointing.files.n, 1);
    assert_string_equal(b.trainer->checkpointing.files.file[0].name, "c");
    bench_close(&b);
}

/* resume=true is not what such a message advises. */
TEST(what_the_configuration_causes_comes_again)
{
    static const lvn_status again[] = {LVN_ERR_SHAPE, LVN_ERR_DTYPE, LVN_ERR_UNSUPPORTED,
                                       LVN_ERR_USAGE, LVN_ERR_DEVICE_MEMORY},
                            may_not[] = {LVN_ERR_IO,   LVN_ERR_MEMORY,    LVN_ERR_CORRUPT,
                                         LVN_ERR_PEER, LVN_ERR_CANCELLED, LVN_ERR_TIMEOUT};
    for (size_t i = 0; i < sizeof again / sizeof *again; i++) {
        assert_true(lvni_trainer_checkpointing_comes_again(again[i]));
    }
    for (size_t i = 0; i < sizeof may_not / sizeof *may_not; i++) {
        assert_false(lvni_trainer_checkpointing_comes_again(may_not[i]));
    }
}

int main(int argc, char **argv)
{
    lvni_log_set_quiet(true);
    if (lvni_cpu_start() != LVN_OK || mkdtemp(out) == NULL) {
        fprintf(stderr, "%s %s\n", lvn_last_error()->message, out);
        return 1;
    }
    char folder[64], metrics[64];
    snprintf(folder, sizeof folder, "%s/checkpoints", out);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", out);
    snprintf(last, sizeof last, "%s/last.safetensors", folder);
    snprintf(best, sizeof best, "%s/best.safetensors", folder);
    mkdir(folder, 0777);
    const int failed = test_main(argc, argv);
    unlink(metrics);
    unlink(last);
    unlink(best);
    rmdir(folder);
    rmdir(out);
    return failed;
}

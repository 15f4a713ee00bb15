/* A run goes on from its checkpoint as if it had never stopped; checkpoints of other runs are
 * refused. */
#include "trainer_support.h"

#include "core/alloc.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char out[] = "/tmp/levin-state-XXXXXX";
static char last[96], best[96];

static setting settings(int lanes, lvni_optim_kind kind)
{
    return (setting){
        .cls = lvni_nn_zoo_find("cnn"),
        .batch_size = 16,
        .micro_batches = 4,
        .lanes = lanes,
        .optim = {.kind = kind,
                  .lr = 1e-3,
                  .momentum = 0.9,
                  .weight_decay = 0.01,
                  .beta1 = 0.9,
                  .beta2 = 0.999,
                  .eps = 1e-8},
        .schedule = {.kind = LVNI_SCHEDULE_COSINE, .warmup_steps = 3, .total_steps = 20},
        .out = out};
}

TEST(restored_run_goes_on_with_the_same_bits)
{
    memory data;
    memory_init(&data, 40, 8); /* steps of 16, 16, 8 */
    for (int kind = LVNI_OPTIM_SGD; kind <= LVNI_OPTIM_ADAMW; kind++) {
        for (int stop = 2; stop <= 4; stop++) { /* within an epoch, at its end, after it */
            bench b, c;
            const setting one = settings(1, (lvni_optim_kind)kind),
                          two = settings(2, (lvni_optim_kind)kind);
            bench_open(&b, &data, &one);
            bench_steps(&b, stop);
            b.trainer->at.best_score = 0.625;
            b.trainer->at.best_step = 1;
            assert_int_equal(bench_save(b.trainer, false), LVN_OK);
            const lvni_ckpt_position at = b.trainer->at;
            bench_open(&c, &data, &two);
            lvni_ckpt *ckpt;
            assert_int_equal(lvni_ckpt_load(last, &ckpt), LVN_OK);
            assert_int_equal(lvni_trainer_restore(c.trainer, ckpt), LVN_OK);
            lvni_ckpt_free(ckpt);
            assert_int_equal(c.trainer->at.step, stop);
            assert_int_equal(c.trainer->at.epoch, at.epoch);
            assert_int_equal(c.trainer->at.step_in_epoch, at.step_in_epoch);
            assert_int_equal(c.trainer->at.samples_seen, at.samples_seen);
            assert_true(c.trainer->at.best_score == 0.625 && c.trainer->at.best_step == 1);
            assert_int_equal(c.trainer->engine->optim->steps[0], stop);
            assert_true(bench_hash(&c) == bench_hash(&b)); /* metric sums of the epoch included */
            bench_start_loader(&c);
            bench_steps(&b, 3);
            bench_steps(&c, 3);
            assert_true(bench_hash(&c) == bench_hash(&b));
            bench_close(&b);
            bench_close(&c);
        }
    }
}

TEST(checkpoints_of_other_runs_are_refused)
{
    memory data;
    memory_init(&data, 40, 8);
    setting s = settings(1, LVNI_OPTIM_SGD);
    bench b;
    bench_open(&b, &data, &s);
    bench_steps(&b, 1);
    assert_int_equal(bench_save(b.trainer, true), LVN_OK);
    bench_close(&b);
    struct stat a, c;
    assert_int_equal(stat(last, &a), 0);
    assert_int_equal(stat(best, &c), 0);
    assert_int_equal(a.st_size, c.st_size);
    lvni_ckpt *ckpt;
    assert_int_equal(lvni_ckpt_load(last, &ckpt), LVN_OK);
    s.optim.kind = LVNI_OPTIM_ADAMW;
    bench_open(&b, &data, &s);
    assert_int_equal(lvni_trainer_restore(b.trainer, ckpt), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "no tensor optim/exp_avg/conv1.weight"));
    assert_non_null(strstr(lvn_last_error()->message, "optim.name (and its momentum)"));
    bench_close(&b);
    /* no momentum: the file's would be left aside */
    s.optim = (lvni_optim_options){.kind = LVNI_OPTIM_SGD, .lr = 1e-3};
    bench_open(&b, &data, &s);
    assert_int_equal(lvni_trainer_restore(b.trainer, ckpt), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "the tensor optim/momentum/"));
    assert_non_null(strstr(lvn_last_error()->message, "optim.name (and its momentum)"));
    bench_close(&b);
    memory other;
    memory_init(&other, 40, 4);
    s = settings(1, LVNI_OPTIM_SGD);
    s.cls = lvni_nn_zoo_find("mlp");
    bench_open(&b, &other, &s);
    assert_int_equal(lvni_trainer_restore(b.trainer, ckpt), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "fc1.weight"));
    assert_non_null(strstr(lvn_last_error()->message, "another model"));
    bench_close(&b);
    lvni_ckpt_free(ckpt);
}

/* Making a trainer and saving, with the k-th allocation failing: an error, nothing left behind. */
TEST(memory_may_fail)
{
    memory data;
    memory_init(&data, 12, 0);
    lvni_nn_model *model;
    assert_int_equal(lvni_nn_model_build(&softmax_regression, NULL, 1, &model), LVN_OK);
    lvni_trainer_options o = {.model = model,
                              .train = &data.base,
                              .val = &data.base,
                              .optim = {.kind = LVNI_OPTIM_ADAMW, .lr = 1},
                              .out = out,
                              .config_json = "{}",
                              .quiet = true,
                              .log_every_n_steps = 1};
    const lvni_plan_options plan = {
        .n_samples = 12, .batch_size = 6, .micro_batches = 3, .lanes = 1, .cores = 1};
    assert_int_equal(lvni_plan_make(&plan, &o.plan), LVN_OK);
    lvni_trainer *t = NULL;
    /* what the thread and the process keep */
    assert_int_equal(lvni_trainer_create(&o, &t), LVN_OK);
    lvni_trainer_destroy(t);
    const uint64_t before = lvni_core_alloc_get_total().live_bytes;
    int64_t k = 1;
    for (;; k++) {
        lvni_core_alloc_fail_at(k);
        lvn_status s = lvni_trainer_create(&o, &t);
        const bool made = s == LVN_OK;
        if (made) {
            s = bench_save(t, false);
        }
        lvni_core_alloc_fail_at(0);
        assert_int_equal(t != NULL, made);
        lvni_trainer_destroy(t);
        t = NULL;
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, before);
        if (s == LVN_OK) {
            break;
        }
        assert_int_equal(s, LVN_ERR_MEMORY);
    }
    assert_true(k > 20);
    lvni_nn_model_destroy(model);
}

int main(int argc, char **argv)
{
    if (lvni_cpu_start() != LVN_OK || mkdtemp(out) == NULL) {
        fprintf(stderr, "%s %s\n", lvn_last_error()->message, out);
        return 1;
    }
    char folder[64];
    snprintf(folder, sizeof folder, "%s/checkpoints", out);
    snprintf(last, sizeof last, "%s/last.safetensors", folder);
    snprintf(best, sizeof best, "%s/best.safetensors", folder);
    mkdir(folder, 0777);
    const int failed = test_main(argc, argv);
    unlink(last);
    unlink(best);
    rmdir(folder);
    rmdir(out);
    return failed;
}

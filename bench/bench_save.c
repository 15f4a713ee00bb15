/* What a save costs the steps beside it: ResNet-18 with AdamW in steps of more than 100 ms, on a
 * disk that takes 5 MB/s (through the vfs table). Timed are steps without a save, the step with the
 * copy of the state before it, and those that follow while the copy is written. Then, on the disk
 * as it is, all that a save adds to the steps from its beginning to its end: as a part of 100
 * steps.
 *
 * usage: bench_save [BATCH], run by `make bench`; writes out/bench/save.json. Exit 1 when the line
 * is missed, which is not judged when other programs used more than 5 % of the cores meanwhile. */
#include "bench_resnet.h"
#include "bench_support.h"

#include "core/machine.h"
#include "core/vfs.h"
#include "kernels/kernels.h"
#include "trainer/loop_impl.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TURNS = 7, STEPS = 10, SIDE = 64, BATCH = 24, MAX_STEPS = TURNS * STEPS };
static const double line = 1.1, line_of_100 = 0.02, bytes_per_s = 5e6;

static volatile bool hurry; /* the rest of a file that is not timed any more */

static ssize_t slow_write(int fd, const void *data, size_t n)
{
    const size_t most = 1 << 16, part = n < most ? n : most;
    const ssize_t done = write(fd, data, part);
    if (!hurry && done > 0) {
        usleep((useconds_t)((double)done / bytes_per_s * 1e6));
    }
    return done;
}

static int open_file(const char *path, int flags, mode_t mode)
{
    return open(path, flags, mode);
}

/* Of an open file without a name: link() itself refuses those, and the file would be copied. */
static int link_file(const char *from, const char *to)
{
    return linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW);
}

static const lvni_core_vfs slow = {.open = open_file,
                                   .write = slow_write,
                                   .read = read,
                                   .fsync = fsync,
                                   .close = close,
                                   .rename = rename,
                                   .unlink = unlink,
                                   .link = link_file,
                                   .mkdir = mkdir};

typedef struct times {
    double alone[MAX_STEPS], beside[MAX_STEPS], first[TURNS], copy[TURNS]; /* in seconds */
    double added[TURNS];                                                   /* by a whole save */
    int n_alone, n_beside;
} times;

static lvn_status step(lvni_trainer *t, double *seconds)
{
    lvni_trainer_step_result r;
    const uint64_t start = lvni_core_now_ns();
    LVN_TRY(lvni_trainer_step(t, &r));
    *seconds = lvni_core_seconds_since(start);
    return LVN_OK;
}

/* The first save makes the memory of the copies, and the first steps theirs. */
static lvn_status warm_up(lvni_trainer *t)
{
    double unused;
    for (int i = 0; i < 3; i++) {
        LVN_TRY(step(t, &unused));
    }
    hurry = true;
    LVN_TRY(lvni_trainer_checkpointing_save(t, false));
    return lvni_trainer_save_wait(t);
}

/* Alternating, so that both see the same machine. */
static lvn_status turn(lvni_trainer *t, times *x, int i)
{
    for (int k = 0; k < STEPS; k++) {
        LVN_TRY(step(t, &x->alone[x->n_alone++]));
    }
    hurry = false;
    const uint64_t start = lvni_core_now_ns();
    double rest;
    LVN_TRY(lvni_trainer_checkpointing_save(t, false));
    const double copied = lvni_core_seconds_since(start);
    LVN_TRY(step(t, &rest));
    x->copy[i] = copied;
    x->first[i] = copied + rest;
    for (int k = 0; k < STEPS; k++) {
        LVN_TRY(step(t, &x->beside[x->n_beside++]));
    }
    LVN_TRY(lvni_trainer_save_poll(t));
    if (t->checkpointing.saved_step == t->at.step - STEPS - 1) {
        LVN_FAIL(LVN_ERR_INTERNAL, "the save was over before the steps beside it");
    }
    hurry = true;
    return lvni_trainer_save_wait(t);
}

/* Half of the steps without a save before it, half after: what the machine did meanwhile is the
 * same for both. */
static lvn_status whole_save(lvni_trainer *t, double *added)
{
    double alone[2 * STEPS], one, all = 0.0;
    int n = 0;
    for (int k = 0; k < STEPS; k++) {
        LVN_TRY(step(t, &alone[k]));
    }
    hurry = true;
    const int64_t at = t->at.step;
    const uint64_t start = lvni_core_now_ns();
    LVN_TRY(lvni_trainer_checkpointing_save(t, false));
    all = lvni_core_seconds_since(start);
    for (; t->checkpointing.saved_step != at; n++) {
        LVN_TRY(step(t, &one));
        LVN_TRY(lvni_trainer_save_poll(t));
        all += one;
    }
    for (int k = STEPS; k < 2 * STEPS; k++) {
        LVN_TRY(step(t, &alone[k]));
    }
    *added = all - n * bench_median(alone, 2 * STEPS);
    return LVN_OK;
}

static lvn_status train(const lvn_dataset *data, lvni_nn_model *model, int batch, const char *dir,
                        times *x)
{
    lvni_trainer *t = NULL;
    lvni_trainer_options o = {
        .model = model,
        .train = data,
        .optim = {.kind = LVNI_OPTIM_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
        .seed = 1,
        .max_epochs = -1,
        .max_steps = -1,
        .log_every_n_steps = 1000,
        .quiet = true,
        .out = dir,
        .config_json = "{}"};
    const lvni_plan_options plan = {.n_samples = batch,
                                    .batch_size = batch,
                                    .micro_batches = 1,
                                    .cores = bench_cores(),
                                    .pins.wgrad_threads = bench_cores()};
    LVN_TRY(lvni_plan_make(&plan, &o.plan));
    LVN_TRY(lvni_trainer_create(&o, &t));
    const lvni_data_loader_options loader = {
        .dataset = data, .plan = &o.plan, .training = true, .seed = 1};
    lvn_status s = lvni_data_loader_create(&loader, &t->loader);
    s = s == LVN_OK ? warm_up(t) : s;
    for (int i = 0; i < TURNS && s == LVN_OK; i++) {
        s = turn(t, x, i);
    }
    for (int i = 0; i < TURNS && s == LVN_OK; i++) {
        s = whole_save(t, &x->added[i]);
    }
    hurry = true;
    lvni_trainer_destroy(t);
    return s;
}

static lvn_status run(int batch, const char *dir, times *x)
{
    bench_noise noise;
    lvni_nn_model *model = NULL;
    char folder[256];
    snprintf(folder, sizeof folder, "%s/checkpoints", dir);
    LVN_TRY(lvni_core_mkdirs(folder));
    LVN_TRY(bench_noise_open(&noise, SIDE, batch, BENCH_CLASSES));
    lvn_status s = bench_resnet_build("resnet18", SIDE, &model);
    s = s == LVN_OK ? train(&noise.base, model, batch, dir, x) : s;
    lvni_nn_model_destroy(model);
    bench_noise_close(&noise);
    return s;
}

static int report(times *x, bool alone)
{
    const double median = bench_median(x->alone, x->n_alone),
                 beside = bench_median(x->beside, x->n_beside) / median,
                 first = bench_median(x->first, TURNS) / median;
    const double part = bench_median(x->added, TURNS) / (100.0 * median);
    const bool met = beside <= line && first <= line && part <= line_of_100 && median >= 0.1;
    mkdir("out", 0777);
    mkdir("out/bench", 0777);
    FILE *json = fopen("out/bench/save.json", "w");
    if (json == NULL) {
        perror("out/bench/save.json");
        return 2;
    }
    bench_describe(stdout, json);
    printf("a step without a save             %.0f ms  [%.0f, %.0f]\n", median * 1e3,
           x->alone[0] * 1e3, x->alone[x->n_alone - 1] * 1e3);
    printf("a step and the copy of the state  %.3f times as long  [%.3f, %.3f]\n", first,
           x->first[0] / median, x->first[TURNS - 1] / median);
    printf("  of it the copy                  %.0f ms\n", bench_median(x->copy, TURNS) * 1e3);
    printf("a step while it is written        %.3f times as long  [%.3f, %.3f]\n", beside,
           x->beside[0] / median, x->beside[x->n_beside - 1] / median);
    printf("line %.2f: %s\n", line, met ? "met" : "MISSED");
    printf("saving every 100 steps adds       %.2f %%  [%.2f, %.2f]  line %.0f %%\n", 100.0 * part,
           x->added[0] / median, x->added[TURNS - 1] / median, 100.0 * line_of_100);
    fprintf(json,
            ",\n  \"step_s\": %.4f, \"copy\": %.4f, \"beside\": %.4f, \"line\": %.2f, "
            "\"of_100_steps\": %.5f\n}\n",
            median, first, beside, line, part);
    const bool written = fclose(json) == 0;
    if (!alone) {
        printf("other programs were running: the line is not judged\n");
    }
    return !written ? 2 : met || !alone ? 0 : 1;
}

int main(int argc, char **argv)
{
    static times x;
    char dir[] = "/tmp/levin-bench-save-XXXXXX", command[64];
    lvni_core_vfs_set(&slow);
    bench_used_by_others_s();
    const uint64_t start = lvni_core_now_ns();
    const int batch = argc > 1 ? atoi(argv[1]) : BATCH;
    lvn_status s = mkdtemp(dir) == NULL ? LVN_ERR_IO : lvni_cpu_start();
    s = s == LVN_OK ? run(batch, dir, &x) : s;
    lvni_core_vfs_set(NULL);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    if (system(command) != 0 || s != LVN_OK) {
        fprintf(stderr, "error: %s\n", lvn_last_error()->message);
        return 2;
    }
    const bool alone =
        bench_used_by_others_s() <= 0.05 * lvni_core_seconds_since(start) * bench_cores();
    return report(&x, alone);
}

/* What the trainer itself costs per optimizer step: a model of one number over samples of one
 * number, a step of one sample. Loader, tape, merge, clipping, optimizer and counting are all in
 * it, and the model's own work, three ops on one number. Then the same as a user has it: a program
 * (overhead_run) that logs 20 values in every step, writes metrics.jsonl, and moves its progress
 * line on a terminal; the difference of a long run and a short one, by their difference in steps.
 *
 * usage: bench_overhead, run by `make bench`; writes out/bench/overhead.json. Exit 1 when a line
 * is missed, which is not judged when other programs used more than 5 % of the cores meanwhile. */
#include "bench_support.h"

#include "core/machine.h"
#include "kernels/kernels.h"
#include "trainer/trainer.h"

#include <errno.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TURNS = 21, STEPS = 2000, SAMPLES = 100000 };
enum { RUNS = 7, SHORT_STEPS = 2000, LONG_STEPS = 42000 };
static const double line_us = 20.0;

static int one_field(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){.name = "image", .dtype = LVN_F32, .ndim = 1, .shape = {1}};
    return 1;
}

static int64_t length(const lvn_dataset *dataset)
{
    (void)dataset;
    return SAMPLES;
}

static lvn_status get(const lvn_dataset *dataset, const lvn_sample_key *key, void *const field[])
{
    (void)dataset;
    *(float *)field[0] = (float)(key->sample % 2);
    return LVN_OK;
}

static const lvn_dataset_class numbers = {
    .name = "numbers", .fields = one_field, .length = length, .get = get};

typedef struct number {
    lvn_module base;
    lvn_tensor *w;
} number;

static lvn_status number_build(lvn_module *module, lvn_builder *b)
{
    ((number *)module)->w = lvn_builder_parameter(b, "w", LVN_SHAPE(1), LVN_INIT_ZEROS, 0.0);
    return lvn_builder_status(b);
}

static lvn_tensor *number_step(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *loss = lvn_sum(lvn_square(lvn_sub(batch->image, ((const number *)m)->w)));
    lvn_log(step, "loss", loss);
    return loss;
}

static const lvn_module_class number_class = {
    .name = "number", .size = sizeof(number), .build = number_build, .training_step = number_step};

static lvn_status measure(lvni_trainer *t, double us[TURNS])
{
    for (int turn = -1; turn < TURNS; turn++) {
        const uint64_t start = lvni_core_now_ns();
        for (int i = 0; i < STEPS; i++) {
            lvni_trainer_step_result r;
            LVN_TRY(lvni_trainer_step(t, &r));
        }
        if (turn >= 0) {
            us[turn] = lvni_core_seconds_since(start) * 1e6 / STEPS;
        }
    }
    return LVN_OK;
}

static lvn_status run(double us[TURNS])
{
    const lvn_dataset data = {.cls = &numbers};
    lvni_nn_model *model = NULL;
    lvni_trainer *t = NULL;
    LVN_TRY(lvni_nn_model_build(&number_class, NULL, 1, &model));
    lvni_trainer_options o = {
        .model = model,
        .train = &data,
        .optim = {.kind = LVNI_OPTIM_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
        .gradient_clip_val = 1.0,
        .seed = 1,
        .max_epochs = -1,
        .max_steps = -1,
        .log_every_n_steps = 1000,
        .quiet = true,
        .config_json = "{}"};
    const lvni_plan_options plan = {.n_samples = SAMPLES,
                                    .batch_size = 1,
                                    .micro_batches = 1,
                                    .lanes = 1,
                                    .cores = 1,
                                    .pins.wgrad_threads = 1};
    lvn_status s = lvni_plan_make(&plan, &o.plan);
    if (s == LVN_OK) {
        s = lvni_trainer_create(&o, &t);
    }
    if (s == LVN_OK) {
        const lvni_data_loader_options loader = {
            .dataset = &data, .plan = &o.plan, .training = true, .seed = 1};
        s = lvni_data_loader_create(&loader, &t->loader);
        if (s == LVN_OK) {
            s = measure(t, us);
        }
    }
    lvni_trainer_destroy(t);
    lvni_nn_model_destroy(model);
    return s;
}

/* ---- the program on a terminal ---- */

/* In the child of forkpty. */
static void become_run(const char *program, const char *folder, int steps)
{
    char max_steps[32], out[300];
    snprintf(max_steps, sizeof max_steps, "max_steps=%d", steps);
    snprintf(out, sizeof out, "out=%s/run", folder);
    setenv("TERM", "xterm", 1);
    execl(program, program, max_steps, out, "overwrite=true", (char *)NULL);
    _exit(127);
}

/* Reads all that the terminal is to show. *shown: bytes. False: the program failed. */
static bool time_run(const char *program, const char *folder, int steps, double *seconds,
                     size_t *shown)
{
    const struct winsize size = {.ws_row = 24, .ws_col = 100};
    char bytes[4096], last[256] = "";
    int terminal, status = -1;
    const uint64_t start = lvni_core_now_ns();
    const pid_t pid = forkpty(&terminal, NULL, NULL, &size);
    if (pid == 0) {
        become_run(program, folder, steps);
    }
    if (pid < 0) {
        perror("forkpty");
        return false;
    }
    *shown = 0;
    for (ssize_t n; (n = read(terminal, bytes, sizeof bytes)) > 0 || (n < 0 && errno == EINTR);) {
        const size_t keep = n < 0 ? 0 : n < 255 ? (size_t)n : 255;
        memcpy(last, bytes + (n > 0 ? n : 0) - keep, keep);
        last[keep] = '\0';
        *shown += n > 0 ? (size_t)n : 0;
    }
    waitpid(pid, &status, 0);
    *seconds = lvni_core_seconds_since(start);
    close(terminal);
    if (status != 0) {
        fprintf(stderr, "error: overhead_run failed: %s\n", last);
    }
    return status == 0;
}

/* Per step; *shown: bytes on the screen per second of the long run. */
static bool measure_run(double us[RUNS], double *shown)
{
    char folder[] = "/tmp/levin-bench-overhead-XXXXXX", self[4096], program[4200], command[64];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    bool done = mkdtemp(folder) != NULL && n > 0;
    self[n > 0 ? n : 0] = '\0';
    snprintf(program, sizeof program, "%.*soverhead_run",
             (int)(done ? strrchr(self, '/') + 1 - self : 0), self);
    for (int i = 0; i < RUNS && done; i++) {
        double brief = 0.0, whole = 1.0;
        size_t bytes = 0;
        done = time_run(program, folder, SHORT_STEPS, &brief, &bytes) &&
               time_run(program, folder, LONG_STEPS, &whole, &bytes);
        us[i] = (whole - brief) * 1e6 / (LONG_STEPS - SHORT_STEPS);
        *shown = (double)bytes / whole;
    }
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command) == 0 && done;
}

/* ---- both ---- */

static bool report(FILE *json, const char *what, const char *key, double *us, int n)
{
    const double median = bench_median(us, n);
    const bool met = median <= line_us;
    printf("%-44s %.2f us  [%.2f, %.2f]  line %.0f: %s\n", what, median, us[0], us[n - 1], line_us,
           met ? "met" : "MISSED");
    fprintf(json, ",\n  \"%s\": {\"median\": %.3f, \"min\": %.3f, \"max\": %.3f, \"line\": %.0f}",
            key, median, us[0], us[n - 1], line_us);
    return met;
}

int main(void)
{
    double us[TURNS], run_us[RUNS], shown = 0.0;
    bench_used_by_others_s();
    const uint64_t start = lvni_core_now_ns();
    if (lvni_cpu_start() != LVN_OK || run(us) != LVN_OK) {
        fprintf(stderr, "error: %s\n", lvn_last_error()->message);
        return 2;
    }
    const bool alone =
        bench_used_by_others_s() <= 0.05 * lvni_core_seconds_since(start) * bench_cores();
    if (!measure_run(run_us, &shown)) {
        return 2;
    }
    mkdir("out", 0777);
    mkdir("out/bench", 0777);
    FILE *json = fopen("out/bench/overhead.json", "w");
    if (json == NULL) {
        perror("out/bench/overhead.json");
        return 2;
    }
    bench_describe(stdout, json);
    bool met = report(json, "trainer, per step", "overhead_us", us, TURNS);
    met =
        report(json, "a run with 20 values on a terminal, per step", "run_us", run_us, RUNS) && met;
    printf("%-44s %.0f bytes/s\n", "  which is shown", shown);
    fprintf(json, "\n}\n");
    const bool written = fclose(json) == 0;
    if (!alone) {
        printf("other programs were running: the lines are not judged\n");
    }
    return !written ? 2 : met || !alone ? 0 : 1;
}

/* What lanes bring: steps of model=cnn with micro_batches=2 on two lanes of one thread each,
 * against one lane of one thread. Both runs step in turns, so that what else the machine does hits
 * both. Prints ms per step and the factor as median [least, largest] of the turns, checks that both
 * runs have the same bits, and writes out/bench/lanes.json.
 *
 * usage: bench_lanes, run by `make bench`; wants two idle cores. Exit 1 when a line is missed,
 * which is not judged when other programs used more than 5 % of the cores meanwhile. */
#include "bench_support.h"

#include "core/machine.h"
#include "kernels/kernels.h"
#include "trainer/trainer.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TURNS = 15, STEPS = 8, CLASSES = 10, SAMPLES = 1024 };
static const double line_to_beat = 1.7;

typedef struct bench {
    const char *name;
    int side;
    int64_t batch; /* E, two micro-batches */
} bench;

static const bench benches[] = {{"cnn_32x32_64", 32, 64}, {"cnn_64x64_32", 64, 32}};

typedef struct run {
    lvni_nn_model *model;
    lvni_trainer *trainer;
} run;

static lvn_status open_run(const bench *b, const lvn_dataset *data, int lanes, run *r)
{
    const lvni_nn_zoo_arguments arguments = {
        .image_size = b->side, .n_classes = CLASSES, .dropout = 0.1};
    LVN_TRY(lvni_nn_model_build(lvni_nn_zoo_find("cnn"), &arguments, 1, &r->model));
    lvni_trainer_options o = {
        .model = r->model,
        .train = data,
        .optim = {.kind = LVNI_OPTIM_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
        .seed = 1,
        .max_epochs = -1,
        .max_steps = -1,
        .log_every_n_steps = 1000,
        .quiet = true,
        .config_json = "{}"};
    const lvni_plan_options plan = {.n_samples = SAMPLES,
                                    .batch_size = b->batch,
                                    .micro_batches = 2,
                                    .lanes = lanes,
                                    .cores = lanes,
                                    .pins.wgrad_threads = 1};
    LVN_TRY(lvni_plan_make(&plan, &o.plan));
    LVN_TRY(lvni_trainer_create(&o, &r->trainer));
    const lvni_data_loader_options loader = {
        .dataset = data, .plan = &o.plan, .training = true, .seed = 1};
    return lvni_data_loader_create(&loader, &r->trainer->loader);
}

/* Milliseconds per step. */
static lvn_status turn(run *r, double *ms)
{
    const uint64_t start = lvni_core_now_ns();
    for (int i = 0; i < STEPS; i++) {
        lvni_trainer_step_result result;
        LVN_TRY(lvni_trainer_step(r->trainer, &result));
    }
    *ms = lvni_core_seconds_since(start) * 1e3 / STEPS;
    return LVN_OK;
}

static void report(FILE *json, const char *name, const char *what, const char *unit, double *values,
                   double line)
{
    const double median = bench_median(values, TURNS);
    printf("%-14s %-10s %8.2f %s  [%.2f, %.2f]", name, what, median, unit, values[0],
           values[TURNS - 1]);
    if (line > 0) {
        printf("  line %.1f: %s", line, median >= line ? "met" : "MISSED");
    }
    printf("\n");
    fprintf(json,
            ",\n  \"%s/%s\": {\"median\": %.4f, \"min\": %.4f, \"max\": %.4f, \"line\": %.1f}",
            name, what, median, values[0], values[TURNS - 1], line);
}

static lvn_status measure(const bench *b, run r[2], FILE *json, bool *met)
{
    double one[TURNS], two[TURNS], factor[TURNS], warm_up;
    LVN_TRY(turn(&r[0], &warm_up));
    LVN_TRY(turn(&r[1], &warm_up));
    for (int i = 0; i < TURNS; i++) {
        LVN_TRY(turn(&r[0], &one[i]));
        LVN_TRY(turn(&r[1], &two[i]));
        factor[i] = one[i] / two[i];
    }
    if (memcmp(r[0].model->weights, r[1].model->weights,
               (size_t)r[0].model->n_weights * sizeof(float)) != 0) {
        LVN_FAIL(LVN_ERR_MISMATCH, "one lane and two lanes came to different weights");
    }
    report(json, b->name, "one_lane", "ms", one, 0);
    report(json, b->name, "two_lanes", "ms", two, 0);
    report(json, b->name, "factor", "x ", factor, line_to_beat);
    *met = *met && factor[TURNS / 2] >= line_to_beat;
    return LVN_OK;
}

static lvn_status run_bench(const bench *b, FILE *json, bool *met)
{
    bench_noise data;
    run r[2] = {{NULL, NULL}, {NULL, NULL}};
    LVN_TRY(bench_noise_open(&data, b->side, SAMPLES, CLASSES));
    lvn_status s = open_run(b, &data.base, 1, &r[0]);
    if (s == LVN_OK) {
        s = open_run(b, &data.base, 2, &r[1]);
    }
    if (s == LVN_OK) {
        s = measure(b, r, json, met);
    }
    for (int i = 0; i < 2; i++) {
        lvni_trainer_destroy(r[i].trainer);
        lvni_nn_model_destroy(r[i].model);
    }
    bench_noise_close(&data);
    return s;
}

int main(int argc, char **argv)
{
    (void)argc;
    lvni_cpu_clean_environment(
        argv); /* as the command does: threads that wait must not hold a core for long */
    if (bench_cores() < 2) {
        printf("bench_lanes needs two cores, this process may use %d: skipped\n", bench_cores());
        return 0;
    }
    mkdir("out", 0777);
    mkdir("out/bench", 0777);
    FILE *json = fopen("out/bench/lanes.json", "w");
    if (json == NULL || lvni_cpu_start() != LVN_OK) {
        fprintf(stderr, "bench_lanes: cannot write out/bench/lanes.json, or: %s\n",
                lvn_last_error()->message);
        return 1;
    }
    bench_describe(stdout, json);
    printf("median [least, largest] of %d turns of %d steps\n", TURNS, STEPS);
    fprintf(json, ",\n  \"turns\": %d", TURNS);
    bool met = true;
    bench_used_by_others_s();
    const uint64_t start = lvni_core_now_ns();
    lvn_status s = LVN_OK;
    for (size_t i = 0; i < sizeof benches / sizeof *benches && s == LVN_OK; i++) {
        s = run_bench(&benches[i], json, &met);
    }
    if (s != LVN_OK) {
        fprintf(stderr, "bench_lanes: %s\n", lvn_last_error()->message);
    }
    const double cores_s = lvni_core_seconds_since(start) * (double)sysconf(_SC_NPROCESSORS_ONLN);
    const double others = bench_used_by_others_s() / cores_s;
    printf("other programs used %.0f %% of the cores%s\n", others * 100,
           others > 0.05 && !met ? ": the line is not judged" : "");
    fprintf(json, ",\n  \"others\": %.3f\n}\n", others);
    return fclose(json) == 0 && s == LVN_OK && (met || others > 0.05) ? 0 : 1;
}

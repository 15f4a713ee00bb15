/* The frame of the duels with PyTorch (bench_duel.h). */
#include "bench_duel.h"

#include "bench_support.h"
#include "bench_torch.h"

#include "ckpt/safetensors.h"
#include "core/machine.h"
#include "kernels/kernels.h"
#include "trainer/trainer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    EQUAL_STEPS = BENCH_EQUAL_STEPS,
    TURN_STEPS = BENCH_TURN_STEPS,
    MOST_TURNS = 64,
    MOST_TENSORS = 256
};
static const char weights_file[] = "out/bench/duel.safetensors";

typedef struct run {
    lvn_dataset *data;
    lvni_nn_model *model;
    lvni_trainer *trainer;
    int wgrad_threads;
    bench_torch torch; /* the quickest variant */
    const char *variant;
} run;

/* ---- levin ---- */

static lvn_status open_levin(const bench_duel *d, run *r)
{
    LVN_TRY(d->open(d, &r->model, &r->data));
    lvni_trainer_options o = {.model = r->model,
                              .train = r->data,
                              .optim = d->optim,
                              .precision = lvni_trainer_precision_of(d->precision),
                              .seed = 1,
                              .max_epochs = -1,
                              .max_steps = -1,
                              .log_every_n_steps = 1000,
                              .quiet = true,
                              .config_json = "{}"};
    const lvni_plan_options plan = {.n_samples = d->batch,
                                    .batch_size = d->batch,
                                    .micro_batches = 1,
                                    .cores = bench_cores(),
                                    .pins.wgrad_threads = r->wgrad_threads};
    LVN_TRY(lvni_plan_make(&plan, &o.plan));
    LVN_TRY(lvni_trainer_create(&o, &r->trainer));
    const lvni_data_loader_options loader = {
        .dataset = r->data, .plan = &o.plan, .training = true, .seed = 1};
    return lvni_data_loader_create(&loader, &r->trainer->loader);
}

/* The batch's fields, one behind the other in `field`. */
static lvn_status make_batch(const bench_duel *d, const lvn_dataset *data, const lvn_field *fields,
                             int n, lvn_tensor *field[])
{
    for (int f = 0; f < n; f++) {
        int64_t shape[LVN_MAX_NDIM] = {d->batch};
        for (int i = 0; i < fields[f].ndim; i++) {
            shape[i + 1] = fields[f].shape[i];
        }
        field[f] = lvn_tensor_create(fields[f].dtype, fields[f].ndim + 1, shape);
        if (field[f] == NULL) {
            return lvn_last_error()->code;
        }
    }
    for (int64_t i = 0; i < d->batch; i++) {
        const lvn_sample_key key = {.sample = i};
        void *place[LVN_MAX_FIELDS];
        for (int f = 0; f < n; f++) {
            const size_t bytes =
                (size_t)(lvn_numel(field[f]) / d->batch) * lvn_dtype_size(fields[f].dtype);
            place[f] = (char *)lvn_data(field[f]) + (size_t)i * bytes;
        }
        LVN_TRY(data->cls->get(data, &key, place));
    }
    return LVN_OK;
}

/* Weights and the one batch, for PyTorch. */
static lvn_status save_weights(const bench_duel *d, const run *r)
{
    static lvni_ckpt_st_tensor entry[MOST_TENSORS];
    lvn_field fields[LVN_MAX_FIELDS];
    lvn_tensor *field[LVN_MAX_FIELDS] = {NULL};
    const int n_fields = r->data->cls->fields(r->data, fields);
    lvn_status s = r->model->n_parameters + n_fields > MOST_TENSORS
                       ? LVN_ERR_MEMORY
                       : make_batch(d, r->data, fields, n_fields, field);
    int n = 0;
    for (; n < r->model->n_parameters && s == LVN_OK; n++) {
        const lvni_nn_parameter *p = &r->model->parameters[n];
        entry[n] = lvni_ckpt_st_entry(p->name, p->tensor, p->tensor->data);
    }
    for (int f = 0; f < n_fields && s == LVN_OK; f++) {
        entry[n++] = lvni_ckpt_st_entry(fields[f].name, field[f], lvn_data(field[f]));
    }
    if (s == LVN_OK) {
        s = lvni_ckpt_st_save(weights_file, entry, n, NULL, 0);
    }
    for (int f = 0; f < n_fields; f++) {
        lvn_release(field[f]);
    }
    return s;
}

static double loss_of(const bench_duel *d, const lvni_nn_step *metrics)
{
    double sum = 0;
    for (int i = 0; i < 2 && d->losses[i] != NULL; i++) {
        sum += lvni_trainer_metric_mean(metrics, d->losses[i]);
    }
    return d->losses[0] == NULL ? lvni_trainer_metric_mean(metrics, "loss") : sum;
}

static lvn_status levin_steps(const bench_duel *d, run *r, int n, double *seconds, double *core_s,
                              double *losses)
{
    const uint64_t start = lvni_core_now_ns();
    const double used = bench_used_by_us_s();
    for (int i = 0; i < n; i++) {
        lvni_trainer_step_result result;
        LVN_TRY(lvni_trainer_step(r->trainer, &result));
        losses[i] = loss_of(d, &result.metrics);
    }
    *seconds = lvni_core_seconds_since(start) / n;
    *core_s = (bench_used_by_us_s() - used) / n;
    return LVN_OK;
}

static int by_time(const void *a, const void *b)
{
    const uint64_t x = lvni_kernels_run_time(*(const lvni_kernels_op *)a).ns,
                   y = lvni_kernels_run_time(*(const lvni_kernels_op *)b).ns;
    return (x < y) - (x > y);
}

/* Where a step's time goes: kernels by op; the rest is optimizer, tape, loader. */
static lvn_status profile(const bench_duel *d, run *r)
{
    double seconds, core_s, losses[TURN_STEPS], sum = 0;
    lvni_kernels_run_measure(true);
    LVN_TRY(levin_steps(d, r, TURN_STEPS, &seconds, &core_s, losses));
    lvni_kernels_op order[LVNI_OP_COUNT];
    for (int op = 0; op < LVNI_OP_COUNT; op++) {
        order[op] = (lvni_kernels_op)op;
    }
    qsort(order, LVNI_OP_COUNT, sizeof *order, by_time);
    for (int i = 0; i < LVNI_OP_COUNT && lvni_kernels_run_time(order[i]).calls > 0; i++) {
        const lvni_kernels_op_time t = lvni_kernels_run_time(order[i]);
        const double ms = (double)t.ns * 1e-6 / TURN_STEPS;
        sum += ms;
        printf("  %-24s %5.0f calls %9.2f ms %5.1f %%\n", lvni_kernels_ops[order[i]].name,
               (double)t.calls / TURN_STEPS, ms, ms * 0.1 / seconds);
    }
    printf("  %-24s             %9.2f ms %5.1f %%\n", "rest", seconds * 1e3 - sum,
           100 - sum * 0.1 / seconds);
    lvni_kernels_run_measure(false);
    return LVN_OK;
}

/* ---- PyTorch ---- */

/* The quickest variant stays. True when its losses agree with ours, or there is none. */
static bool choose_torch(const bench_duel *d, run *r, const double *ours)
{
    const bench_torch_job job = {d->script,    d->arg,      weights_file,
                                 d->precision, d->variants, bench_cores()};
    double losses[EQUAL_STEPS];
    r->variant = bench_torch_choose(&r->torch, &job, losses);
    return r->variant == NULL || bench_close_losses(losses, ours, d->loss_tolerance);
}

/* ---- the comparison ---- */

/* Of the processes so far, in MB, and whether levin's is as small as the line asks. */
static bool report_memory(FILE *json, const bench_duel *d, const run *r)
{
    const double ours = bench_peak_mb(0),
                 theirs = r->torch.child.pid == 0 ? 0 : bench_peak_mb(r->torch.child.pid);
    printf("  peak memory    levin %.0f MB", ours);
    fprintf(json, ",\n  \"%s/%s/levin/peak_mb\": %.1f", d->net, d->precision, ours);
    if (theirs <= 0) {
        printf("\n");
        return true;
    }
    const bool small = d->memory_line <= 0 || ours <= d->memory_line * theirs;
    printf(", pytorch %.0f MB: %.3f", theirs, ours / theirs);
    if (d->memory_line > 0) {
        printf(" of it; line %.2f: %s", d->memory_line, small ? "met" : "MISSED");
    }
    printf("\n");
    fprintf(json, ",\n  \"%s/%s/pytorch/peak_mb\": %.1f", d->net, d->precision, theirs);
    return small;
}

static void report(FILE *json, const bench_duel *d, const char *what, const char *unit,
                   double *values, int n)
{
    const double median = bench_median(values, n);
    printf("  %-14s %8.4f %s [%.4f, %.4f]\n", what, median, unit, values[0], values[n - 1]);
    fprintf(json, ",\n  \"%s/%s/%s\": {\"median\": %.5f, \"min\": %.5f, \"max\": %.5f}", d->net,
            d->precision, what, median, values[0], values[n - 1]);
}

static lvn_status compare(const bench_duel *d, run *r, int turns, FILE *json, bool *met)
{
    enum { WALL, CORES, KINDS };
    static const char *const name[KINDS][3] = {{"levin", "pytorch", "ratio"},
                                               {"levin/cores", "pytorch/cores", "ratio/cores"}};
    double ours[KINDS][MOST_TURNS], theirs[KINDS][MOST_TURNS], ratio[KINDS][MOST_TURNS],
        losses[EQUAL_STEPS], seconds, core_s;
    LVN_TRY(levin_steps(d, r, EQUAL_STEPS, &seconds, &core_s, losses));
    bench_print_losses("levin", losses);
    const bool equal = choose_torch(d, r, losses);
    if (!equal) {
        printf("  the losses differ by more than %g\n", d->loss_tolerance);
    }
    *met = *met && equal;
    const bool present = r->torch.child.pid != 0;
    bool answers = present;
    for (int i = 0; i < turns; i++) {
        LVN_TRY(levin_steps(d, r, TURN_STEPS, &ours[WALL][i], &ours[CORES][i], losses));
        answers = answers && bench_torch_steps(&r->torch, TURN_STEPS, &theirs[WALL][i],
                                               &theirs[CORES][i], losses);
        for (int k = 0; k < KINDS && answers; k++) {
            ratio[k][i] = theirs[k][i] / ours[k][i];
        }
    }
    for (int k = 0; k < KINDS; k++) {
        report(json, d, name[k][0], "s", ours[k], turns);
        if (answers) {
            report(json, d, name[k][1], "s", theirs[k], turns);
            report(json, d, name[k][2], "x", ratio[k], turns);
        }
    }
    if (present && !answers) {
        printf("  PyTorch stopped answering\n");
        *met = false;
    }
    if (answers) {
        const bool reached = bench_median(ratio[WALL], turns) >= d->line;
        printf("  against PyTorch, %s; line %.2f: %s\n", r->variant, d->line,
               reached ? "met" : "MISSED");
        *met = *met && reached;
    }
    *met = report_memory(json, d, r) && *met;
    return profile(d, r);
}

static lvn_status run_duel(const bench_duel *d, int turns, int wgrad_threads, FILE *json, bool *met)
{
    run r = {.wgrad_threads = wgrad_threads};
    bench_forget_peak();
    printf("%s, %s, %s, %d threads, wgrad_threads=%d\n", d->net, d->about, d->precision,
           bench_cores(), wgrad_threads);
    lvn_status s = open_levin(d, &r);
    if (s == LVN_OK) {
        s = save_weights(d, &r);
    }
    if (s == LVN_OK) {
        s = compare(d, &r, turns, json, met);
    }
    bench_torch_stop(&r.torch);
    lvni_trainer_destroy(r.trainer);
    lvni_nn_model_destroy(r.model);
    if (r.data != NULL) {
        d->close(r.data);
    }
    unlink(weights_file);
    return s;
}

int bench_duel_main(int argc, char **argv, const char *name, const bench_duel *duels, int n)
{
    lvni_cpu_clean_environment(argv);
    const int turns = argc > 3 ? atoi(argv[3]) : 5;
    const int wgrad_threads = argc > 4 && atoi(argv[4]) > 0 ? atoi(argv[4]) : bench_cores();
    char path[64];
    snprintf(path, sizeof path, "out/bench/%s.json", name);
    mkdir("out", 0777);
    mkdir("out/bench", 0777);
    FILE *json = fopen(path, "w");
    if (json == NULL || lvni_cpu_start() != LVN_OK || turns < 1 || turns > MOST_TURNS) {
        fprintf(stderr, "bench_%s: cannot write %s, or not 1 to %d turns, or: %s\n", name, path,
                MOST_TURNS, lvn_last_error()->message);
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    bench_describe(stdout, json);
    bool met = true;
    bench_used_by_others_s();
    const uint64_t start = lvni_core_now_ns();
    lvn_status s = LVN_OK;
    for (int i = 0; i < n && s == LVN_OK; i++) {
        if ((argc < 2 || strcmp(argv[1], duels[i].net) == 0) &&
            (argc < 3 || strcmp(argv[2], duels[i].precision) == 0)) {
            s = run_duel(&duels[i], turns, wgrad_threads, json, &met);
        }
    }
    if (s != LVN_OK) {
        fprintf(stderr, "bench_%s: %s\n", name, lvn_last_error()->message);
    }
    const double others =
        bench_used_by_others_s() / (lvni_core_seconds_since(start) * bench_cores());
    printf("other programs used %.0f %% of the cores%s\n", others * 100,
           others > 0.05 && !met ? ": the lines are not judged" : "");
    fprintf(json, ",\n  \"others\": %.3f\n}\n", others);
    return fclose(json) == 0 && s == LVN_OK && (met || others > 0.05) ? 0 : 1;
}

/* A training step of ResNet-50 (batch 16, 224 x 224) and ResNet-18 (batch 64, 64 x 64) against PyTorch's on the same
 * machine: equal weights, equal batch, sgd with momentum. PyTorch runs as installed and with the settings that help it, in
 * both of its layouts; the quickest of the four is the one to beat, in turns with levin. Prints the losses of the first
 * steps, seconds per step and the ratio as median [least, largest] of the turns (and the same in seconds of all cores, which mean
 * something on a busy machine too), and where levin's time goes; writes out/bench/resnet_step.json.
 *
 * usage: bench_resnet_step [NET [PRECISION [TURNS]]], run by `make bench`. Exit 1 when losses differ or a line is missed, which is not
 * judged when other programs used more than 5 % of the cores meanwhile. Without PyTorch levin runs alone. */
#include "bench_support.h"
#include "bench_torch.h"

#include "ckpt/safetensors.h"
#include "core/clock.h"
#include "kernels/kernels.h"
#include "trainer/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EQUAL_STEPS = 5, TURN_STEPS = 2, MOST_TURNS = 64, VARIANTS = 4, MOST_TENSORS = 256 };
static const char weights_file[] = "out/bench/resnet_step.safetensors";

typedef struct bench {
    const char *net, *precision;
    int side;
    int64_t batch;
    double line, loss_tolerance; /* of the losses of equal steps */
} bench;

/* In bf16 the two sides round at different places: their losses are printed, and only far ones are a fault. */
static const bench benches[] = {{"resnet50", "32-true", 224, 16, 1.15, 1e-3},
                                {"resnet50", "bf16-mixed", 224, 16, 1.3, 0.1},
                                {"resnet18", "32-true", 64, 64, 1.15, 1e-3},
                                {"resnet18", "bf16-mixed", 64, 64, 1.3, 0.1}};
enum { CLASSES = 1000 };

static const struct variant {
    const char *name, *layout;
    bool tuned;
} variants[VARIANTS] = {{"channels_last, as installed", "channels_last", false},
                        {"contiguous, as installed", "contiguous", false},
                        {"channels_last, tuned", "channels_last", true},
                        {"contiguous, tuned", "contiguous", true}};

typedef struct run {
    bench_noise data;
    lvni_model *model;
    lvni_trainer *trainer;
    bench_torch torch; /* the quickest variant */
    const char *variant;
} run;

/* The last norm of each block starts at 0, so that blocks start as identities (Goyal et al. 2017, section 5.1). Without, rounding
 * grows so quickly over noise that not even PyTorch's two layouts agree: after two steps their losses are 0.04 apart. */
static void start_calm(lvni_model *m)
{
    for (int i = 0; i < m->n_parameters; i++) {
        const char *name = m->parameters[i].name;
        const char *last = strstr(name, m->root->cls == lvni_zoo_find("resnet50") ? ".bn3.weight" : ".bn2.weight");
        if (strncmp(name, "layer", 5) == 0 && last != NULL) {
            memset(m->parameters[i].tensor->data, 0, (size_t)m->parameters[i].numel * sizeof(float));
        }
    }
    lvni_model_touch(m);
}

static lvn_status open_levin(const bench *b, run *r)
{
    const lvni_zoo_arguments arguments = {.image_size = b->side, .n_classes = CLASSES};
    LVN_TRY(bench_noise_open(&r->data, b->side, b->batch, CLASSES));
    LVN_TRY(lvni_model_build(lvni_zoo_find(b->net), &arguments, 1, &r->model));
    start_calm(r->model);
    lvni_trainer_options o = {.model = r->model,
                              .train = &r->data.base,
                              .optim = {.kind = LVNI_OPTIM_SGD, .lr = 0.001, .momentum = 0.9},
                              .precision = lvni_precision_of(b->precision),
                              .seed = 1,
                              .max_epochs = -1,
                              .max_steps = -1,
                              .log_every_n_steps = 1000,
                              .quiet = true,
                              .config_json = "{}"};
    const lvni_plan_options plan = {.n_samples = b->batch, .batch_size = b->batch, .shards = 1, .cores = bench_cores(), .wgrad_threads = bench_cores()};
    LVN_TRY(lvni_plan_make(&plan, &o.plan));
    LVN_TRY(lvni_trainer_create(&o, &r->trainer));
    const lvni_loader_options loader = {.dataset = &r->data.base, .plan = &o.plan, .training = true, .seed = 1};
    return lvni_loader_create(&loader, &r->trainer->loader);
}

/* Weights and the one batch, for PyTorch. */
static lvn_status save_weights(const bench *b, const run *r)
{
    static lvni_st_tensor entry[MOST_TENSORS];
    const int64_t shape[] = {b->batch, b->side, b->side, 3};
    lvn_tensor *image = lvn_tensor_create(LVN_F32, 4, shape), *label = lvn_tensor_create(LVN_I64, 1, shape);
    lvn_status s = image == NULL || label == NULL || r->model->n_parameters + 2 > MOST_TENSORS ? LVN_ERR_MEMORY : LVN_OK;
    for (int64_t i = 0; i < b->batch && s == LVN_OK; i++) {
        const lvn_sample_key key = {.sample = i};
        void *const field[] = {(float *)lvn_data(image) + i * b->side * b->side * 3, (int64_t *)lvn_data(label) + i};
        s = r->data.base.cls->get(&r->data.base, &key, field);
    }
    int n = 0;
    for (; n < r->model->n_parameters && s == LVN_OK; n++) {
        const lvni_parameter *p = &r->model->parameters[n];
        entry[n] = lvni_st_entry(p->name, p->tensor, p->tensor->data);
    }
    if (s == LVN_OK) {
        entry[n++] = lvni_st_entry("image", image, image->data);
        entry[n++] = lvni_st_entry("label", label, label->data);
        s = lvni_st_save(weights_file, entry, n, NULL, 0);
    }
    lvn_release(image);
    lvn_release(label);
    return s;
}

static lvn_status levin_steps(run *r, int n, double *seconds, double *core_s, double *losses)
{
    const uint64_t start = lvni_now_ns();
    const double used = bench_used_by_us_s();
    for (int i = 0; i < n; i++) {
        lvni_step_result result;
        LVN_TRY(lvni_trainer_step(r->trainer, &result));
        losses[i] = lvni_metric_mean(&result.metrics, "loss");
    }
    *seconds = lvni_seconds_since(start) / n;
    *core_s = (bench_used_by_us_s() - used) / n;
    return LVN_OK;
}

static void print_losses(const char *who, const double *losses)
{
    printf("  losses of %-28s", who);
    for (int i = 0; i < EQUAL_STEPS; i++) {
        printf(" %.6f", losses[i]);
    }
    printf("\n");
}

/* Equal steps in all variants; the quickest stays. True when the losses agree. */
static bool choose_torch(const bench *b, run *r, const double *ours)
{
    double best = 0, seconds, core_s, losses[EQUAL_STEPS];
    bool equal = true;
    for (int v = 0; v < VARIANTS; v++) {
        bench_torch t;
        if (!bench_torch_start(&t, "resnet_step.py", b->net, weights_file, variants[v].layout, b->precision, bench_cores(), variants[v].tuned)) {
            printf("  PyTorch: %s\n", t.about);
            return true;
        }
        if (!bench_torch_steps(&t, EQUAL_STEPS, &seconds, &core_s, losses) ||
            !bench_torch_steps(&t, TURN_STEPS, &seconds, &core_s, (double[TURN_STEPS]){0})) {
            printf("  PyTorch, %s: no answer\n", variants[v].name);
            bench_torch_stop(&t);
            continue;
        }
        if (v == 0) {
            printf("  PyTorch: %s\n", t.about);
        }
        printf("  PyTorch, %-28s %8.4f s\n", variants[v].name, seconds);
        if (best == 0 || seconds < best) {
            bench_torch_stop(&r->torch);
            r->torch = t;
            r->variant = variants[v].name;
            best = seconds;
            equal = true;
            for (int i = 0; i < EQUAL_STEPS; i++) {
                equal = equal && fabs(losses[i] - ours[i]) <= b->loss_tolerance;
            }
            print_losses(variants[v].name, losses);
        } else {
            bench_torch_stop(&t);
        }
    }
    return equal;
}

static int by_time(const void *a, const void *b)
{
    const uint64_t x = lvni_run_time(*(const lvni_op *)a).ns, y = lvni_run_time(*(const lvni_op *)b).ns;
    return (x < y) - (x > y);
}

/* Where a step's time goes: kernels by op; the rest is optimizer, tape, loader. */
static lvn_status profile(run *r)
{
    double seconds, core_s, losses[TURN_STEPS], sum = 0;
    lvni_run_measure(true);
    LVN_TRY(levin_steps(r, TURN_STEPS, &seconds, &core_s, losses));
    lvni_op order[LVNI_OP_COUNT];
    for (int op = 0; op < LVNI_OP_COUNT; op++) {
        order[op] = (lvni_op)op;
    }
    qsort(order, LVNI_OP_COUNT, sizeof *order, by_time);
    for (int i = 0; i < LVNI_OP_COUNT && lvni_run_time(order[i]).calls > 0; i++) {
        const lvni_op_time t = lvni_run_time(order[i]);
        const double ms = (double)t.ns * 1e-6 / TURN_STEPS;
        sum += ms;
        printf("  %-24s %5.0f calls %9.2f ms %5.1f %%\n", lvni_ops[order[i]].name, (double)t.calls / TURN_STEPS, ms, ms * 0.1 / seconds);
    }
    printf("  %-24s             %9.2f ms %5.1f %%\n", "rest", seconds * 1e3 - sum, 100 - sum * 0.1 / seconds);
    lvni_run_measure(false);
    return LVN_OK;
}

static void report(FILE *json, const bench *b, const char *what, const char *unit, double *values, int n)
{
    const double median = bench_median(values, n);
    printf("  %-14s %8.4f %s [%.4f, %.4f]\n", what, median, unit, values[0], values[n - 1]);
    fprintf(json, ",\n  \"%s/%s/%s\": {\"median\": %.5f, \"min\": %.5f, \"max\": %.5f}", b->net, b->precision, what, median, values[0],
            values[n - 1]);
}

static lvn_status compare(const bench *b, run *r, int turns, FILE *json, bool *met)
{
    enum { WALL, CORES, KINDS };
    static const char *const name[KINDS][3] = {{"levin", "pytorch", "ratio"}, {"levin/cores", "pytorch/cores", "ratio/cores"}};
    double ours[KINDS][MOST_TURNS], theirs[KINDS][MOST_TURNS], ratio[KINDS][MOST_TURNS], losses[EQUAL_STEPS], seconds, core_s;
    LVN_TRY(levin_steps(r, EQUAL_STEPS, &seconds, &core_s, losses));
    print_losses("levin", losses);
    const bool equal = choose_torch(b, r, losses);
    if (!equal) {
        printf("  the losses differ by more than %g\n", b->loss_tolerance);
    }
    *met = *met && equal;
    bool answers = r->torch.pid != 0;
    for (int i = 0; i < turns; i++) {
        LVN_TRY(levin_steps(r, TURN_STEPS, &ours[WALL][i], &ours[CORES][i], losses));
        answers = answers && bench_torch_steps(&r->torch, TURN_STEPS, &theirs[WALL][i], &theirs[CORES][i], losses);
        for (int k = 0; k < KINDS && answers; k++) {
            ratio[k][i] = theirs[k][i] / ours[k][i];
        }
    }
    for (int k = 0; k < KINDS; k++) {
        report(json, b, name[k][0], "s", ours[k], turns);
        if (answers) {
            report(json, b, name[k][1], "s", theirs[k], turns);
            report(json, b, name[k][2], "x", ratio[k], turns);
        }
    }
    if (answers) {
        const bool reached = ratio[WALL][turns / 2] >= b->line;
        printf("  against PyTorch, %s; line %.2f: %s\n", r->variant, b->line, reached ? "met" : "MISSED");
        *met = *met && reached;
    }
    return profile(r);
}

static lvn_status run_bench(const bench *b, int turns, FILE *json, bool *met)
{
    run r = {.model = NULL};
    printf("%s, batch %lld of %d x %d, %s, %d threads\n", b->net, (long long)b->batch, b->side, b->side, b->precision, bench_cores());
    lvn_status s = open_levin(b, &r);
    if (s == LVN_OK) {
        s = save_weights(b, &r);
    }
    if (s == LVN_OK) {
        s = compare(b, &r, turns, json, met);
    }
    bench_torch_stop(&r.torch);
    lvni_trainer_destroy(r.trainer);
    lvni_model_destroy(r.model);
    bench_noise_close(&r.data);
    unlink(weights_file);
    return s;
}

int main(int argc, char **argv)
{
    lvni_cpu_clean_environment(argv);
    const int turns = argc > 3 ? atoi(argv[3]) : 5;
    mkdir("out", 0777);
    mkdir("out/bench", 0777);
    FILE *json = fopen("out/bench/resnet_step.json", "w");
    if (json == NULL || lvni_cpu_start() != LVN_OK || turns < 1 || turns > MOST_TURNS) {
        fprintf(stderr, "bench_resnet_step: cannot write out/bench/resnet_step.json, or not 1 to %d turns, or: %s\n", MOST_TURNS,
                lvn_last_error()->message);
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    bench_describe(stdout, json);
    bool met = true;
    bench_used_by_others_s();
    const uint64_t start = lvni_now_ns();
    lvn_status s = LVN_OK;
    for (size_t i = 0; i < sizeof benches / sizeof *benches && s == LVN_OK; i++) {
        if ((argc < 2 || strcmp(argv[1], benches[i].net) == 0) && (argc < 3 || strcmp(argv[2], benches[i].precision) == 0)) {
            s = run_bench(&benches[i], turns, json, &met);
        }
    }
    if (s != LVN_OK) {
        fprintf(stderr, "bench_resnet_step: %s\n", lvn_last_error()->message);
    }
    const double others = bench_used_by_others_s() / (lvni_seconds_since(start) * bench_cores());
    printf("other programs used %.0f %% of the cores%s\n", others * 100, others > 0.05 && !met ? ": the lines are not judged" : "");
    fprintf(json, ",\n  \"others\": %.3f\n}\n", others);
    return fclose(json) == 0 && s == LVN_OK && (met || others > 0.05) ? 0 : 1;
}

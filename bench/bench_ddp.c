/* Training steps of two ranks with one core each, against others of the same samples, in turns: one
 * process on both cores (with the same two micro-batches: the same bits; and with one), the two
 * ranks with a reduction in a free order (ddp_rank_free), two processes that do not add anything
 * up, and PyTorch's DistributedDataParallel over Gloo (ddp_step.py), where /usr/bin/python3 has it.
 * All run at the same time and are idle except the one whose turn it is.
 *
 * usage: bench_ddp [NET [TURNS [BATCH [SIDE [BUCKET_BYTES]]]]], run by `make bench`; wants two idle
 * cores. Writes out/bench/ddp.json. Exit 1 when bits or losses differ, or a line is missed, which
 * is not judged when other programs used more than 5 % of the cores meanwhile. */
#include "bench_resnet.h"
#include "bench_support.h"
#include "bench_torch.h"
#include "ddp_layout.h"
#include "ddp_rank.h"

#include "ckpt/safetensors.h"
#include "core/alloc.h"
#include "core/machine.h"
#include "data/sampler.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    EQUAL_STEPS = BENCH_EQUAL_STEPS,
    TURN_STEPS = BENCH_TURN_STEPS,
    MOST_TURNS = 64,
    MOST_TENSORS = 256,
    TORCH = DDP_LEVINS,
    SIDES
};
static const char weights_file[] = "out/bench/ddp.safetensors";
static const double loss_tolerance = 1e-3;

static const ddp_duel duels[] = {{"resnet50", 224, 16, 4 << 20}, {"resnet18", 64, 64, 4 << 20}};

typedef struct bench {
    const ddp_duel *d;
    bench_child child[DDP_LEVINS][BENCH_DDP_RANKS];
    bench_torch torch;
    const char *variant; /* NULL: there is no PyTorch */
    int turns;
    double seconds[SIDES][MOST_TURNS], core_s[SIDES][MOST_TURNS];
    /* of DDP_TOGETHER: share of its pieces, of its step */
    double early[MOST_TURNS], adding[MOST_TURNS], waiting[MOST_TURNS];
} bench;

/* ---- PyTorch ---- */

/* Which samples each of the first steps has: levin's order of these epochs. */
static lvn_tensor *make_order(int64_t batch)
{
    enum { EPOCHS = 16 };
    lvn_tensor *order = lvn_tensor_create(LVN_I64, 2, (int64_t[]){EPOCHS, batch});
    uint32_t *one = lvni_core_calloc(LVNI_TAG_DATA, (size_t)batch, sizeof *one);
    for (uint32_t e = 0; e < EPOCHS && order != NULL && one != NULL; e++) {
        lvni_data_sampler_order(BENCH_DDP_SEED, e, (uint32_t)batch, one);
        for (int64_t i = 0; i < batch; i++) {
            ((int64_t *)lvn_data(order))[e * batch + i] = one[i];
        }
    }
    lvni_core_free(one);
    return order;
}

static lvn_status fill_samples(const lvn_dataset *data, lvn_tensor *image, lvn_tensor *label,
                               int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const lvn_sample_key key = {.sample = i};
        float *pixels = (float *)lvn_data(image) + i * (lvn_numel(image) / n);
        LVN_TRY(data->cls->get(data, &key, (void *[]){pixels, (int64_t *)lvn_data(label) + i}));
    }
    return LVN_OK;
}

static lvn_status save_all(const lvni_nn_model *model, lvn_tensor *const extra[3])
{
    static const char *const names[] = {"image", "label", "order"};
    static lvni_ckpt_st_tensor entry[MOST_TENSORS];
    int n = 0;
    LVN_ARG(model->n_parameters + 3 <= MOST_TENSORS, "a model of %d tensors, at most %d",
            model->n_parameters, MOST_TENSORS - 3);
    for (; n < model->n_parameters; n++) {
        const lvni_nn_parameter *p = &model->parameters[n];
        entry[n] = lvni_ckpt_st_entry(p->name, p->tensor, p->tensor->data);
    }
    for (int i = 0; i < 3; i++) {
        entry[n++] = lvni_ckpt_st_entry(names[i], extra[i], lvn_data(extra[i]));
    }
    return lvni_ckpt_st_save(weights_file, entry, n, NULL, 0);
}

static lvn_status build_and_save(const ddp_duel *d, bench_noise *noise, lvn_tensor *const *extra,
                                 lvni_nn_model **model)
{
    if (extra[0] == NULL || extra[1] == NULL || extra[2] == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(fill_samples(&noise->base, extra[0], extra[1], d->batch));
    LVN_TRY(bench_resnet_build(d->net, d->side, model));
    return save_all(*model, extra);
}

/* Weights and samples, for PyTorch. */
static lvn_status save_weights(const ddp_duel *d)
{
    bench_noise noise;
    lvni_nn_model *model = NULL;
    LVN_TRY(bench_noise_open(&noise, d->side, d->batch, BENCH_CLASSES));
    lvn_tensor *extra[3] = {
        lvn_tensor_create(LVN_F32, 4, (int64_t[]){d->batch, d->side, d->side, 3}),
        lvn_tensor_create(LVN_I64, 1, &d->batch), make_order(d->batch)};
    const lvn_status s = build_and_save(d, &noise, extra, &model);
    for (int i = 0; i < 3; i++) {
        lvn_release(extra[i]);
    }
    lvni_nn_model_destroy(model);
    bench_noise_close(&noise);
    return s;
}

/* ---- the comparison ---- */

static lvn_status no_answer(const ddp_layout *l)
{
    LVN_FAIL(LVN_ERR_IO, "%s: a process of ddp_rank gave no answer", l->name);
}

/* Equal steps of all sides: are the losses PyTorch's, the bits those of the two ranks? */
static lvn_status begin(bench *b, bool *met)
{
    ddp_turn turn[DDP_LEVINS];
    double losses[EQUAL_STEPS];
    for (int i = 0; i < DDP_LEVINS; i++) {
        const ddp_layout *l = &ddp_layouts[i];
        if (!ddp_layout_start(l, b->d, b->child[i]) ||
            !ddp_layout_steps(l, b->child[i], EQUAL_STEPS, &turn[i])) {
            return no_answer(l);
        }
        if (l->same_bits && strcmp(turn[i].hash, turn[DDP_TOGETHER].hash) != 0) {
            printf("  %s came to other weights\n", l->name);
            *met = false;
        }
    }
    bench_print_losses("levin", turn[DDP_TOGETHER].loss);
    LVN_TRY(save_weights(b->d));
    const bench_torch_job job = {"ddp_step.py", b->d->net,     weights_file,
                                 "32-true",     bench_layouts, 1};
    b->variant = bench_torch_choose(&b->torch, &job, losses);
    if (b->variant != NULL &&
        !bench_close_losses(losses, turn[DDP_TOGETHER].loss, loss_tolerance)) {
        printf("  the losses differ by more than %g\n", loss_tolerance);
        *met = false;
    }
    return LVN_OK;
}

static lvn_status take_turn(bench *b, int turn)
{
    for (int i = 0; i < DDP_LEVINS; i++) {
        ddp_turn t;
        if (!ddp_layout_steps(&ddp_layouts[i], b->child[i], TURN_STEPS, &t)) {
            return no_answer(&ddp_layouts[i]);
        }
        b->seconds[i][turn] = t.seconds;
        b->core_s[i][turn] = t.core_s;
        if (i == DDP_TOGETHER) {
            b->early[turn] = t.early / t.pieces;
            b->adding[turn] = t.adding_s / t.seconds;
            b->waiting[turn] = t.waiting_s / t.seconds;
        }
    }
    double losses[TURN_STEPS];
    if (b->variant != NULL && !bench_torch_steps(&b->torch, TURN_STEPS, &b->seconds[TORCH][turn],
                                                 &b->core_s[TORCH][turn], losses)) {
        LVN_FAIL(LVN_ERR_IO, "PyTorch stopped answering");
    }
    return LVN_OK;
}

/* line > 0: at least; < 0: at most; 0: none. */
static void report(const bench *b, FILE *json, const char *what, const char *key, const char *unit,
                   const double *values, double line, bool *met)
{
    double v[MOST_TURNS];
    memcpy(v, values, (size_t)b->turns * sizeof *v);
    const double median = bench_median(v, b->turns);
    printf("  %-56s %8.4f %s [%.4f, %.4f]", what, median, unit, v[0], v[b->turns - 1]);
    if (line != 0) {
        const bool reached = line > 0 ? median >= line : median <= -line;
        printf("  line %.2f: %s", line > 0 ? line : -line, reached ? "met" : "MISSED");
        *met = *met && reached;
    }
    printf("\n");
    fprintf(json, ",\n  \"%s/%s\": {\"median\": %.5f, \"min\": %.5f, \"max\": %.5f}", b->d->net,
            key, median, v[0], v[b->turns - 1]);
}

/* How many times as long as `under` the side `over` takes, turn by turn. */
static void report_ratio(const bench *b, FILE *json, const char *what, const char *key, int over,
                         int under, double line, bool *met)
{
    double r[MOST_TURNS], cores[MOST_TURNS];
    char name[80];
    for (int i = 0; i < b->turns; i++) {
        r[i] = b->seconds[over][i] / b->seconds[under][i];
        cores[i] = b->core_s[over][i] / b->core_s[under][i];
    }
    report(b, json, what, key, "x", r, line, met);
    snprintf(name, sizeof name, "%s/cores", key);
    report(b, json, "  in seconds of all cores", name, "x", cores, 0, met);
}

static void report_all(const bench *b, FILE *json, bool *met)
{
    for (int i = 0; i < DDP_LEVINS; i++) {
        report(b, json, ddp_layouts[i].name, ddp_layouts[i].key, "s", b->seconds[i], 0, met);
    }
    report_ratio(b, json, "throughput against one process, 2 micro-batches", "against_process",
                 DDP_WHOLE, DDP_TOGETHER, 0.97, met);
    report_ratio(b, json, "throughput against one process, 1 micro-batch",
                 "against_process_one_micro_batch", DDP_WHOLE_ONE, DDP_TOGETHER, 0, met);
    report_ratio(b, json, "step in the fixed order against a free one", "against_free",
                 DDP_TOGETHER, DDP_FREE, -1.10, met);
    report_ratio(b, json, "step against one in which nothing is added", "against_apart",
                 DDP_TOGETHER, DDP_APART, 0, met);
    report(b, json, "share of the pieces added while backward ran", "early", " ", b->early, 0, met);
    report(b, json, "adding, share of the step", "adding", " ", b->adding, 0, met);
    report(b, json, "waiting for another rank, share of the step", "waiting", " ", b->waiting, 0,
           met);
    if (b->variant != NULL) {
        report(b, json, "PyTorch DDP, Gloo", "pytorch", "s", b->seconds[TORCH], 0, met);
        report_ratio(b, json, b->variant, "against_pytorch", TORCH, DDP_TOGETHER, 1.4, met);
    }
}

static lvn_status run_duel(const ddp_duel *d, int turns, FILE *json, bool *met)
{
    static bench b;
    b = (bench){.d = d, .turns = turns};
    printf("%s, batch %lld of %d x %d, buckets of %lld bytes\n", d->net, (long long)d->batch,
           d->side, d->side, (long long)d->bucket_bytes);
    lvn_status s = begin(&b, met);
    for (int i = 0; i < turns && s == LVN_OK; i++) {
        s = take_turn(&b, i);
    }
    if (s == LVN_OK) {
        report_all(&b, json, met);
    }
    for (int i = 0; i < DDP_LEVINS; i++) {
        for (int k = 0; k < BENCH_DDP_RANKS; k++) {
            bench_child_stop(&b.child[i][k]);
        }
    }
    bench_torch_stop(&b.torch);
    unlink(weights_file);
    return s;
}

/* The duel of the command line: sizes that are given stand for those of the table. */
static ddp_duel asked(const ddp_duel *d, int argc, char **argv)
{
    ddp_duel one = *d;
    one.batch = argc > 3 ? atol(argv[3]) : d->batch;
    one.side = argc > 4 ? atoi(argv[4]) : d->side;
    one.bucket_bytes = argc > 5 ? atol(argv[5]) : d->bucket_bytes;
    return one;
}

static lvn_status run_all(int argc, char **argv, int turns, FILE *json, bool *met)
{
    LVN_TRY(lvni_cpu_start());
    for (size_t i = 0; i < sizeof duels / sizeof *duels; i++) {
        const ddp_duel d = asked(&duels[i], argc, argv);
        if (argc < 2 || strcmp(argv[1], d.net) == 0) {
            LVN_ARG(d.batch > 0 && d.batch % BENCH_DDP_RANKS == 0,
                    "a batch of %lld is not cut evenly between two ranks", (long long)d.batch);
            LVN_TRY(run_duel(&d, turns, json, met));
        }
    }
    return LVN_OK;
}

int main(int argc, char **argv)
{
    lvni_cpu_clean_environment(argv);
    const int turns = argc > 2 ? atoi(argv[2]) : 7;
    if (bench_cores() < BENCH_DDP_RANKS) {
        printf("bench_ddp needs two cores, this process may use %d: skipped\n", bench_cores());
        return 0;
    }
    mkdir("out", 0777);
    mkdir("out/bench", 0777);
    FILE *json = fopen("out/bench/ddp.json", "w");
    if (json == NULL || turns < 1 || turns > MOST_TURNS) {
        fprintf(stderr, "bench_ddp: cannot write out/bench/ddp.json, or not 1 to %d turns\n",
                MOST_TURNS);
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    bench_describe(stdout, json);
    bool met = true;
    bench_used_by_others_s();
    const uint64_t start = lvni_core_now_ns();
    const lvn_status s = run_all(argc, argv, turns, json, &met);
    if (s != LVN_OK) {
        fprintf(stderr, "bench_ddp: %s\n", lvn_last_error()->message);
    }
    const double others =
        bench_used_by_others_s() / (lvni_core_seconds_since(start) * bench_cores());
    printf("other programs used %.0f %% of the cores%s\n", others * 100,
           others > 0.05 && !met ? ": the lines are not judged" : "");
    fprintf(json, ",\n  \"others\": %.3f\n}\n", others);
    return fclose(json) == 0 && s == LVN_OK && (met || others > 0.05) ? 0 : 1;
}

/* The estimated memory of a run against what its allocators count after steps and a validation. */
#include "trainer_support.h"

#include "core/alloc.h"
#include "kernels/kernels.h"
#include "tensor/device.h"
#include "trainer/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool verbose;

/* Bytes in /proc/self/status, of this row. */
static double resident(const char *row)
{
    char line[256];
    double kib = 0.0;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, row, strlen(row)) == 0) {
            sscanf(line + strlen(row), " %lf", &kib);
        }
    }
    fclose(f);
    return kib * 1024.0;
}

typedef struct trial {
    const char *model;
    int side, batch, micro_batches, lanes;
    lvni_optim_kind optim;
    lvni_trainer_precision precision;
    double ema;
    bool validates;
} trial;

/* A validation set of the training data, in chunks of 7; the loader stays. */
static void validate(lvni_trainer *t)
{
    lvni_nn_step result;
    const lvni_data_loader_options o = {.dataset = t->o.train, .plan = &t->o.plan};
    t->o.val = t->o.train;
    assert_int_equal(lvni_data_loader_create(&o, &t->val_loader), LVN_OK);
    assert_int_equal(
        lvni_trainer_evaluate(t->o.model, t->val_loader, t->engine->lanes, NULL, &result), LVN_OK);
}

static void check(const trial *c)
{
    memory data;
    memory_init(&data, 3 * c->batch < MEMORY_MAX ? 3 * c->batch : MEMORY_MAX, c->side);
    const setting s = {.cls = lvni_nn_zoo_find(c->model),
                       .batch_size = c->batch,
                       .micro_batches = c->micro_batches,
                       .lanes = c->lanes,
                       .optim = {.kind = c->optim,
                                 .lr = 1e-3,
                                 .momentum = 0.9,
                                 .beta1 = 0.9,
                                 .beta2 = 0.99,
                                 .eps = 1e-8},
                       .precision = c->precision,
                       .ema = {.decay = c->ema}};
    const double live = (double)lvni_core_alloc_get_total().live_bytes, before = resident("VmRSS:");
    bench b;
    bench_open(&b, &data, &s);
    bench_steps(&b, c->side == 64 ? 1 : 3);
    if (c->validates) {
        validate(b.trainer);
    }
    const double measured = (double)lvni_core_alloc_get_total().live_bytes - live,
                 grown = resident("VmRSS:") - before;
    const lvni_trainer_options o = b.trainer->o;
    lvni_trainer_memory_need need;
    if (lvni_trainer_predict_memory(&o, &need) != LVN_OK) {
        fail_msg("%s: %s", c->model, lvn_last_error()->message);
    }
    const double ratio = (double)need.total / measured;
    if (verbose || !(fabs(ratio - 1.0) <= 0.05)) {
        lvni_core_str line = {0};
        lvni_trainer_memory_print(&need, c->lanes, &line);
        print_message(
            "%s, batch %d, %d micro-batches, %d lanes: %s\n  counted %.1f MiB, estimated / "
            "counted %.3f, resident %.1f MiB\n",
            c->model, c->batch, c->micro_batches, c->lanes, lvni_core_str_text(&line),
            measured / 1048576.0, ratio, grown / 1048576.0);
        lvni_core_str_free(&line);
    }
    assert_true(fabs(ratio - 1.0) <= 0.05);
    bench_close(&b);
}

TEST(the_prediction_is_within_five_percent)
{
    static const trial trials[] = {
        {"resnet18", 64, 32, 2, 1, LVNI_OPTIM_SGD, LVNI_PRECISION_32, 0.0, false},
        {"resnet18", 64, 32, 2, 2, LVNI_OPTIM_ADAMW, LVNI_PRECISION_32, 0.9, false},
        {"resnet50", 64, 8, 2, 2, LVNI_OPTIM_SGD, LVNI_PRECISION_32, 0.0, false},
        /* micro-batches of two sizes */
        {"cnn", 32, 25, 4, 2, LVNI_OPTIM_SGD, LVNI_PRECISION_32, 0.0, false},
        {"cnn", 32, 24, 3, 2, LVNI_OPTIM_SGD, LVNI_PRECISION_32, 0.0, true},
        {"cnn", 32, 24, 3, 1, LVNI_OPTIM_SGD, LVNI_PRECISION_16_MIXED, 0.0, true},
        {"cnn", 32, 24, 2, 2, LVNI_OPTIM_SGD, LVNI_PRECISION_BF16_MIXED, 0.0, false},
    };
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        if (trials[i].precision != LVNI_PRECISION_BF16_MIXED || lvni_cpu_has_bf16()) {
            check(&trials[i]);
        }
    }
}

/* A step of ResNet-18 keeps the input and the result of each convolution, and of the first one the
 * places of maxima behind its norm. Free memory of one size serves another. */
TEST(a_network_keeps_what_its_backward_needs)
{
    enum { SIDE = 64, BATCH = 64 };
    /* floats of a sample, in maps of (SIDE / 4)^2 x 64: the first result, the pooled maps with
     * their places; blocks of each stage keep four maps, the convolution beside the first a fifth
     */
    const double map = (double)SIDE * SIDE / 16 * 64,
                 kept = 4 * map + 1.25 * map + 8 * map + 9 * map / 2 + 9 * map / 4 + 9 * map / 8;
    memory data;
    memory_init(&data, BATCH, SIDE);
    const setting s = {.cls = lvni_nn_zoo_find("resnet18"),
                       .batch_size = BATCH,
                       .micro_batches = 1,
                       .lanes = 1,
                       .optim = {.kind = LVNI_OPTIM_SGD, .lr = 1e-3}};
    bench b;
    bench_open(&b, &data, &s);
    const lvni_trainer_options o = b.trainer->o;
    lvni_trainer_memory_need need;
    assert_int_equal(lvni_trainer_predict_memory(&o, &need), LVN_OK);
    const double ratio = (double)need.lane / (kept * BATCH * sizeof(float));
    /* kernels and gradients on their way take some, too; with one map more it is 1.35 */
    if (ratio > 1.2) {
        fail_msg("it takes %.3f times what it must keep", ratio);
    }
    bench_close(&b);
}

/* Memory of the host that decides whether a run begins. */
TEST(a_device_has_its_own_memory_unless_it_is_simulated)
{
    const lvni_trainer_memory_need on_gpu = {.total = 100, .device = 70}, on_cpu = {.total = 100},
                                   rounded = {.total = 60, .device = 64};
    assert_int_equal(lvni_trainer_memory_on_host(&on_gpu, false), 30);
    assert_int_equal(lvni_trainer_memory_on_host(&on_gpu, true), 100);
    assert_int_equal(lvni_trainer_memory_on_host(&on_cpu, false), 100);
    assert_int_equal(lvni_trainer_memory_on_host(&rounded, false), 0);
}

int main(int argc, char **argv)
{
    verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
    if (lvni_cpu_start() != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
        return 1;
    }
    return test_main(verbose ? 1 : argc, argv);
}

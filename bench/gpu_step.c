/* levin's side of gpu_duel.py: training steps of a network on a device, submitted one ahead as the
 * training loop does. For every number n on a line of its input it runs n steps and answers with
 * one line: seconds per step, seconds of this thread per step, bytes of the device at their peak,
 * the last loss. Before that it answers "ready", the device, and the floating-point operations of
 * the products of a step, forward and backward.
 *
 * usage: gpu_step resnet18|resnet50 PRECISION BATCH SIDE DEVICE [auto|on|off]
 *        gpu_step gpt2 PRECISION BATCH TOKENS DEVICE [auto|on|off]     as cuda_graph= */
#include "bench_resnet.h"
#include "bench_support.h"

#include "core/machine.h"
#include "tensor/ctx.h"
#include "tensor/device.h"
#include "trainer/memory.h"
#include "trainer/trainer.h"

#include <levin/device.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const lvni_nn_gpt2_arguments gpt2_124m = {
    .layers = 12, .heads = 12, .width = 768, .vocabulary = 50257, .positions = 1024};

/* ---- texts: words that repeat in an order ---- */

typedef struct texts {
    lvn_dataset base;
    int64_t n, tokens;
} texts;

static int text_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    const int64_t tokens = ((const texts *)(const void *)dataset)->tokens;
    out[0] = (lvn_field){.name = "ids", .dtype = LVN_I64, .ndim = 1, .shape = {tokens}};
    out[1] = (lvn_field){.name = "label", .dtype = LVN_I64, .ndim = 1, .shape = {tokens}};
    return 2;
}

static int64_t text_length(const lvn_dataset *dataset)
{
    return ((const texts *)(const void *)dataset)->n;
}

static lvn_status text_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                           void *const field[])
{
    for (int64_t t = 0; t < ((const texts *)(const void *)dataset)->tokens; t++) {
        for (int64_t k = 0; k < 2; k++) {
            const int64_t at = t + k;
            ((int64_t *)field[k])[t] = (key->sample * 7919 + at * (at + 3) * 31) % 50257;
        }
    }
    return LVN_OK;
}

static const lvn_dataset_class text_class = {
    .name = "text", .fields = text_fields, .length = text_length, .get = text_get};

/* ---- the trainer ---- */

typedef struct run {
    const char *net, *precision, *graph;
    int64_t batch;
    int size;
    bench_noise noise;
    texts texts;
    lvni_nn_model *model;
    lvni_trainer *trainer;
    double flops; /* of a step's products */
} run;

static lvn_status open_net(run *r, lvn_dataset **data)
{
    const int64_t samples = 64 * r->batch;
    if (strcmp(r->net, "gpt2") == 0) {
        r->texts = (texts){.base = {.cls = &text_class}, .n = samples, .tokens = r->size};
        *data = &r->texts.base;
        return lvni_nn_model_build(&lvni_nn_gpt2, &gpt2_124m, 1, &r->model);
    }
    LVN_TRY(bench_noise_open(&r->noise, r->size, samples, BENCH_CLASSES));
    *data = &r->noise.base;
    return bench_resnet_build(r->net, r->size, &r->model);
}

static lvn_status open_trainer(run *r)
{
    lvn_dataset *data;
    LVN_TRY(open_net(r, &data));
    const bool text = strcmp(r->net, "gpt2") == 0;
    lvni_trainer_options o = {.model = r->model,
                              .train = data,
                              .optim = {.kind = text ? LVNI_OPTIM_ADAMW : LVNI_OPTIM_SGD,
                                        .lr = text ? 1e-4 : 1e-3,
                                        .momentum = 0.9,
                                        .beta1 = 0.9,
                                        .beta2 = 0.999,
                                        .eps = 1e-8,
                                        .weight_decay = text ? 0.01 : 0.0},
                              .precision = lvni_trainer_precision_of(r->precision),
                              .graph = lvni_trainer_graph_mode_of(r->graph),
                              .seed = 1,
                              .max_epochs = -1,
                              .max_steps = -1,
                              .log_every_n_steps = 1000,
                              .quiet = true,
                              .config_json = "{}"};
    const lvni_plan_options plan = {.n_samples = 64 * r->batch,
                                    .batch_size = r->batch,
                                    .micro_batches = 1,
                                    .devices = 1,
                                    .lanes = 1,
                                    .cores = bench_cores(),
                                    .pins.wgrad_threads = 1};
    lvni_trainer_memory_need need = {0};
    LVN_TRY(lvni_plan_make(&plan, &o.plan));
    LVN_TRY(lvni_trainer_predict_memory(&o, &need));
    r->flops = need.sample_flops * (double)r->batch;
    LVN_TRY(lvni_trainer_create(&o, &r->trainer));
    const lvni_data_loader_options loader = {.dataset = data,
                                             .plan = &o.plan,
                                             .training = true,
                                             .seed = 1,
                                             .workers = bench_cores() - 1};
    LVN_TRY(lvni_data_loader_create(&loader, &r->trainer->loader));
    r->trainer->engine->more_steps = true;
    return LVN_OK;
}

static double thread_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Each is collected when the next one was submitted. */
static lvn_status take_steps(lvni_trainer *t, int n, double *loss)
{
    lvni_trainer_step_record record[2];
    lvni_trainer_step_result result;
    for (int i = 0; i < n; i++) {
        LVN_TRY(lvni_trainer_engine_submit(t->engine, t->loader, &t->at, &record[i % 2]));
        t->at.step++;
        t->at.step_in_epoch++;
        if (i > 0) {
            LVN_TRY(lvni_trainer_engine_collect(t->engine, &record[(i + 1) % 2], &result));
        }
    }
    LVN_TRY(lvni_trainer_engine_collect(t->engine, &record[(n + 1) % 2], &result));
    *loss = lvni_trainer_metric_mean(&result.metrics, "loss");
    return LVN_OK;
}

static lvn_status answer(run *r)
{
    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL) {
        const int n = atoi(line);
        double loss = 0.0;
        if (n < 1) {
            break;
        }
        const double host = thread_s();
        const uint64_t start = lvni_core_now_ns();
        LVN_TRY(take_steps(r->trainer, n, &loss));
        const double seconds = lvni_core_seconds_since(start) / n, own = (thread_s() - host) / n;
        printf("%.9f %.9f %.0f %.9g\n", seconds, own,
               (double)lvni_tensor_device_get_stats(lvni_tensor_ctx_get()->device).most, loss);
        fflush(stdout);
    }
    return LVN_OK;
}

static lvn_status run_all(run *r, const char *name)
{
    lvn_device device;
    LVN_TRY(lvni_cpu_start());
    LVN_TRY(lvn_device_find(name, &device));
    LVN_TRY(lvn_device_use(device));
    LVN_TRY(open_trainer(r));
    printf("ready %s %.0f\n", name, r->flops);
    fflush(stdout);
    return answer(r);
}

int main(int argc, char **argv)
{
    lvni_cpu_clean_environment(argv);
    if (argc != 6 && argc != 7) {
        fprintf(stderr, "usage: gpu_step resnet18|resnet50|gpt2 PRECISION BATCH SIDE|TOKENS DEVICE "
                        "[auto|on|off]\n");
        return 64;
    }
    run r = {.net = argv[1],
             .precision = argv[2],
             .batch = atoi(argv[3]),
             .size = atoi(argv[4]),
             .graph = argc == 7 ? argv[6] : "on"};
    const lvn_status s = run_all(&r, argv[5]);
    if (s != LVN_OK) {
        const lvn_error *e = lvn_last_error();
        fprintf(stderr, "gpu_step: %s\n", e->message);
        for (int i = 0; i < e->n_frames; i++) {
            fprintf(stderr, "  %s\n", e->frames[i]);
        }
    }
    lvni_trainer_destroy(r.trainer);
    lvni_nn_model_destroy(r.model);
    bench_noise_close(&r.noise);
    return s == LVN_OK ? 0 : 1;
}

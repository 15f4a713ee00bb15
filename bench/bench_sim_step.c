/* Does the host keep a slow device busy? A training step of about 60 ops on the simulated
 * accelerator, every kernel of which takes 50 us and whose copies run at 1 GB/s
 * (LEVIN_SIM_KERNEL_US, LEVIN_SIM_COPY_GBPS; kernels/sim/sim.h). Printed, for one micro-batch and
 * four, and for two ranks that share four (threads, a device each; figures of rank 0, copies of the
 * gradient among its kernels): the time of a step, what the device's kernels and copies alone take,
 * the host's own work (processor time of the thread that takes the steps), the sum of the three,
 * how many times the kernels' time a step takes, and commands and waits of the host per step.
 * Nothing is judged.
 *
 * usage: bench_sim_step [STEPS]     200; writes out/bench/sim_step.json. LEVIN_SIM_KERNEL_US and
 *   LEVIN_SIM_COPY_GBPS of the environment take precedence */
#include "bench_support.h"

#include "core/machine.h"
#include "kernels/kernels.h"
#include "kernels/sim/sim.h"
#include "trainer/trainer.h"

#include <levin/device.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

enum {
    SIDE = 8,
    WIDTH = 64,
    DEPTH = 8,
    CLASSES = 10,
    BATCH = 32,
    WARM_UP = 20,
    MOST_STEPS = 10000,
    RANKS = 2
};

/* ---- the network: linear and relu in turns ---- */

typedef struct chain {
    lvn_module base;
    lvn_module *layer[DEPTH], *head;
} chain;

static lvn_status chain_build(lvn_module *module, lvn_builder *b)
{
    static const char *const name[DEPTH] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    chain *m = (chain *)module;
    for (int i = 0; i < DEPTH; i++) {
        m->layer[i] = lvn_nn_linear(b, name[i], i == 0 ? SIDE * SIDE * 3 : WIDTH, WIDTH);
    }
    m->head = lvn_nn_linear(b, "head", WIDTH, CLASSES);
    return lvn_builder_status(b);
}

static lvn_tensor *chain_forward(const lvn_module *module, lvn_tensor *x)
{
    const chain *m = (const chain *)module;
    x = lvn_flatten(x, 1); /* (N, SIDE * SIDE * 3) */
    for (int i = 0; i < DEPTH; i++) {
        x = lvn_relu(lvn_forward(m->layer[i], x)); /* (N, WIDTH) */
    }
    return lvn_forward(m->head, x); /* (N, CLASSES) */
}

static lvn_tensor *chain_step(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *loss = lvn_cross_entropy(lvn_forward(m, batch->image), batch->label);
    lvn_log(step, "loss", loss);
    return loss;
}

static const lvn_module_class chain_class = {.name = "chain",
                                             .size = sizeof(chain),
                                             .build = chain_build,
                                             .forward = chain_forward,
                                             .training_step = chain_step};

/* ---- measuring ---- */

/* Of one step. */
typedef struct figures {
    double wall_s, kernels_s, copies_s, host_s, commands, drained, throttled;
} figures;

static double thread_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* As the training loop does: each is collected when the next one was submitted. */
static lvn_status take_steps(lvni_trainer *t, int n)
{
    lvni_trainer_step_record record[2];
    lvni_trainer_step_result r;
    for (int i = 0; i < n; i++) {
        LVN_TRY(lvni_trainer_engine_submit(t->engine, t->loader, &t->at, &record[i % 2]));
        t->at.step++;
        t->at.step_in_epoch++;
        if (i > 0) {
            LVN_TRY(lvni_trainer_engine_collect(t->engine, &record[(i + 1) % 2], &r));
        }
    }
    return lvni_trainer_engine_collect(t->engine, &record[(n + 1) % 2], &r);
}

static lvn_status measure(lvni_trainer *t, int steps, figures *f)
{
    LVN_TRY(take_steps(t, WARM_UP));
    const lvni_sim_counters a = lvni_sim_get_counters(0);
    const double host = thread_s();
    const uint64_t start = lvni_core_now_ns();
    LVN_TRY(take_steps(t, steps));
    f->wall_s = lvni_core_seconds_since(start) / steps;
    f->host_s = (thread_s() - host) / steps;
    const lvni_sim_counters b = lvni_sim_get_counters(0);
    f->kernels_s = (double)(b.device_ns - a.device_ns) * 1e-9 / steps;
    f->copies_s = (double)(b.copy_ns - a.copy_ns) * 1e-9 / steps;
    f->commands = (double)(b.commands - a.commands) / steps;
    f->drained = (double)(b.drained - a.drained) / steps;
    f->throttled = (double)(b.throttled - a.throttled) / steps;
    return LVN_OK;
}

static lvn_status measure_trainer(lvni_trainer_options *o, int steps, figures *f)
{
    lvni_trainer *t = NULL;
    lvn_status s = lvni_trainer_create(o, &t);
    if (s == LVN_OK) {
        const lvni_data_loader_options loader = {
            .dataset = o->train, .plan = &o->plan, .training = true, .seed = 1};
        s = lvni_data_loader_create(&loader, &t->loader);
    }
    if (s == LVN_OK) {
        t->engine->more_steps = true;
        s = measure(t, steps, f);
    }
    lvni_trainer_destroy(t);
    return s;
}

typedef struct member {
    int ranks, rank, micro_batches, steps;
    lvni_dist_comm *comm; /* NULL: one rank */
    pthread_t thread;
    lvn_status status;
    lvn_error error;
    figures figures;
} member;

static lvn_status take_part(member *m)
{
    bench_noise noise;
    lvni_nn_model *model = NULL;
    LVN_TRY(lvn_device_use(LVN_SIM(m->rank)));
    LVN_TRY(bench_noise_open(&noise, SIDE, 100 * BATCH, CLASSES));
    lvn_status s = lvni_nn_model_build(&chain_class, NULL, 1, &model);
    lvni_trainer_options o = {
        .model = model,
        .train = &noise.base,
        .optim = {.kind = LVNI_OPTIM_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
        .gradient_clip_val = 1.0,
        .seed = 1,
        .comm = m->comm,
        .max_epochs = -1,
        .max_steps = -1,
        .log_every_n_steps = 50,
        .quiet = true,
        .config_json = "{}"};
    const lvni_plan_options plan = {.n_samples = 100 * BATCH,
                                    .batch_size = BATCH,
                                    .micro_batches = m->micro_batches,
                                    .devices = m->ranks,
                                    .rank = m->rank,
                                    .lanes = 1,
                                    .cores = 1,
                                    .pins.wgrad_threads = 1};
    s = s == LVN_OK ? lvni_plan_make(&plan, &o.plan) : s;
    s = s == LVN_OK ? measure_trainer(&o, m->steps, &m->figures) : s;
    lvni_nn_model_destroy(model);
    bench_noise_close(&noise);
    return s;
}

static void *member_main(void *argument)
{
    member *m = argument;
    m->status = take_part(m);
    if (m->status != LVN_OK) {
        m->error = *lvn_last_error();
        lvni_dist_comm_abort(m->comm, m->error.message);
    }
    return NULL;
}

static lvn_status run_ranks(member m[RANKS])
{
    lvni_dist_comm *comm[RANKS];
    LVN_TRY(lvni_dist_comm_threads(RANKS, false, comm));
    for (int i = 0; i < RANKS; i++) {
        m[i] = (member){.ranks = RANKS,
                        .rank = i,
                        .micro_batches = m[0].micro_batches,
                        .steps = m[0].steps,
                        .comm = comm[i]};
        if (pthread_create(&m[i].thread, NULL, member_main, &m[i]) != 0) {
            LVN_FAIL(LVN_ERR_MEMORY, "no thread");
        }
    }
    lvn_status s = LVN_OK;
    for (int i = 0; i < RANKS; i++) {
        pthread_join(m[i].thread, NULL);
        s = s == LVN_OK && m[i].status != LVN_OK ? lvn_error_adopt(&m[i].error) : s;
    }
    for (int i = 0; i < RANKS; i++) {
        lvni_dist_comm_destroy(comm[i]);
    }
    return s;
}

static lvn_status run(int ranks, int micro_batches, int steps, figures *f)
{
    member m[RANKS] = {{.ranks = ranks, .micro_batches = micro_batches, .steps = steps}};
    const lvn_status s = ranks == 1 ? take_part(m) : run_ranks(m);
    *f = m[0].figures;
    return s;
}

static void report(FILE *json, int ranks, int micro_batches, const figures *f)
{
    const double sum = f->kernels_s + f->copies_s + f->host_s;
    printf("%5d %13d %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f %9.1f %9.2f %9.2f\n", ranks, micro_batches,
           f->wall_s * 1e3, f->kernels_s * 1e3, f->copies_s * 1e3, f->host_s * 1e3, sum * 1e3,
           f->wall_s / f->kernels_s, f->commands, f->drained, f->throttled);
    fprintf(json,
            ",\n  \"ranks_%d_micro_batches_%d\": {\"step_ms\": %.4f, \"kernels_ms\": %.4f, "
            "\"copies_ms\": "
            "%.4f, \"host_ms\": %.4f, \"ratio\": %.4f, \"commands\": %.1f, \"drained\": %.3f, "
            "\"throttled\": %.3f}",
            ranks, micro_batches, f->wall_s * 1e3, f->kernels_s * 1e3, f->copies_s * 1e3,
            f->host_s * 1e3, f->wall_s / f->kernels_s, f->commands, f->drained, f->throttled);
}

static lvn_status run_all(int steps, FILE *json)
{
    LVN_TRY(lvni_cpu_start());
    bench_describe(stdout, json);
    printf("sim: kernels of %s us, copies at %s GB/s, %d steps; milliseconds, counts per step\n",
           getenv("LEVIN_SIM_KERNEL_US"), getenv("LEVIN_SIM_COPY_GBPS"), steps);
    printf("%5s %13s %9s %9s %9s %9s %9s %9s %9s %9s %9s\n", "ranks", "micro-batches", "step",
           "kernels", "copies", "host", "sum", "step/kern", "commands", "drained", "throttled");
    static const int layout[][2] = {{1, 1}, {1, 4}, {RANKS, 4}};
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
        figures f;
        LVN_TRY(run(layout[i][0], layout[i][1], steps, &f));
        report(json, layout[i][0], layout[i][1], &f);
    }
    return LVN_OK;
}

int main(int argc, char **argv)
{
    lvni_cpu_clean_environment(argv);
    const int steps = argc > 1 ? atoi(argv[1]) : 200;
    setenv("LEVIN_SIM_DEVICES", "2", 1);
    setenv("LEVIN_SIM_MEMORY", "256MiB", 1);
    setenv("LEVIN_SIM_KERNEL_US", "50", 0);
    setenv("LEVIN_SIM_COPY_GBPS", "1", 0);
    mkdir("out", 0777);
    mkdir("out/bench", 0777);
    FILE *json = fopen("out/bench/sim_step.json", "w");
    if (json == NULL || steps < 1 || steps > MOST_STEPS) {
        fprintf(stderr,
                "bench_sim_step: cannot write out/bench/sim_step.json, or not 1 to %d steps\n",
                MOST_STEPS);
        return 1;
    }
    const lvn_status s = run_all(steps, json);
    if (s != LVN_OK) {
        fprintf(stderr, "bench_sim_step: %s\n", lvn_last_error()->message);
    }
    fprintf(json, "\n}\n");
    return fclose(json) == 0 && s == LVN_OK ? 0 : 1;
}

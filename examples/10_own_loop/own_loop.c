/* A program that drives its training itself: two trainers with different learning rates take turns,
 * the better one goes on, and the program decides when it has learned enough.
 *
 *   cc -Iinclude examples/10_own_loop/own_loop.c -Lbuild -llevin -lm \
 *      -Wl,-rpath,$PWD/build -o own_loop
 *   ./own_loop                  leaves best.safetensors and nothing else
 *   ./own_loop devices=2        the keys of `levin train` are those of the trainers, too
 *
 * What a trainer does with the process (no signals, nothing printed) stands in levin/trainer.h. */
#include <levin/levin.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ARMS = 3, ARGUMENTS = 32, STEPS = 20, TRIALS = 4, PATIENCE = 5 };

/* ---- the data: points on the arms of a spiral, which overlap ---- */

typedef struct spiral {
    lvn_dataset base;
    int64_t count;
    uint64_t seed;
} spiral;

static int spiral_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){"point", LVN_F32, 1, {2}};
    out[1] = (lvn_field){"arm", LVN_I64, 0, {0}};
    return 2;
}

static int64_t spiral_length(const lvn_dataset *dataset)
{
    return ((const spiral *)dataset)->count;
}

static lvn_status spiral_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                             void *const field[])
{
    const lvn_sample_key own = {.seed = ((const spiral *)dataset)->seed, .sample = key->sample};
    const int64_t arm = key->sample % ARMS;
    const double r = 0.1 + 0.9 * lvn_sample_uniform(&own, 0, 0),
                 angle = 4.0 * r + 2.1 * (double)arm + 2.6 * lvn_sample_uniform(&own, 0, 1);
    float *point = field[0];
    point[0] = (float)(r * cos(angle));
    point[1] = (float)(r * sin(angle));
    memcpy(field[1], &arm, sizeof arm);
    return LVN_OK;
}

static const lvn_dataset_class spiral_class = {
    .name = "spiral", .fields = spiral_fields, .length = spiral_length, .get = spiral_get};

/* ---- the network ---- */

typedef struct net {
    lvn_module base;
    lvn_module *first, *second, *head;
} net;

static lvn_status net_build(lvn_module *module, lvn_builder *b)
{
    net *m = (net *)module;
    m->first = lvn_nn_linear(b, "first", 2, 32);
    m->second = lvn_nn_linear(b, "second", 32, 32);
    m->head = lvn_nn_linear(b, "head", 32, ARMS);
    return lvn_builder_status(b);
}

static lvn_tensor *net_forward(const lvn_module *module, lvn_tensor *x)
{
    const net *m = (const net *)module;
    x = lvn_relu(lvn_forward(m->second, lvn_relu(lvn_forward(m->first, x))));
    return lvn_forward(m->head, x);
}

static lvn_tensor *net_training_step(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *logits = lvn_forward(m, batch->image);
    lvn_tensor *loss = lvn_cross_entropy(logits, batch->label);
    lvn_log(step, "loss", loss);
    lvn_log(step, "acc", lvn_accuracy(logits, batch->label));
    return loss;
}

static const lvn_module_class net_class = {.name = "net",
                                           .size = sizeof(net),
                                           .build = net_build,
                                           .forward = net_forward,
                                           .training_step = net_training_step};

/* ---- the loop ---- */

static void show_line(void *user, lvn_log_level level, const char *text)
{
    (void)user;
    if (level >= LVN_LOG_WARNING) {
        fprintf(stderr, "levin: %s\n", text);
    }
}

/* The program's arguments win over its own. */
static lvn_status create(const lvn_job *job, const char *rate, int argc, char **argv,
                         lvn_trainer **out)
{
    const char *args[ARGUMENTS] = {rate};
    int n = 1;
    for (int i = 1; i < argc && n < ARGUMENTS; i++) {
        args[n++] = argv[i];
    }
    return lvn_trainer_create(job, out, .n_args = n, .args = args, .log = show_line);
}

static double metric(const lvn_trainer_report *report, const char *name)
{
    for (int i = 0; i < report->n_metrics; i++) {
        if (strcmp(report->metric[i].name, name) == 0) {
            return report->metric[i].value;
        }
    }
    return -1.0;
}

/* Some steps, then the loss on points that are not trained on. */
static lvn_status advance(lvn_trainer *trainer, const char *name, double *loss)
{
    const lvn_trainer_report *report;
    for (int i = 0; i < STEPS && !lvn_trainer_finished(trainer); i++) {
        LVN_TRY(lvn_trainer_step(trainer, NULL));
    }
    LVN_TRY(lvn_trainer_validate(trainer, &report));
    *loss = report->loss;
    printf("%s: step %lld  loss %.4f  acc %.3f\n", name, (long long)report->step, report->loss,
           metric(report, "acc"));
    return LVN_OK;
}

/* Until the loss has not improved for some time; the best state is kept in a file. */
static lvn_status train_on(lvn_trainer *trainer, const char *name, const char *file)
{
    double best = INFINITY, loss;
    for (int worse = 0; worse < PATIENCE && !lvn_trainer_finished(trainer);) {
        LVN_TRY(advance(trainer, name, &loss));
        worse = loss < best ? 0 : worse + 1;
        if (loss < best) {
            best = loss;
            LVN_TRY(lvn_trainer_save(trainer, file));
        }
    }
    const int64_t stopped = lvn_trainer_steps(trainer);
    const lvn_trainer_report *report;
    LVN_TRY(lvn_trainer_load(trainer, file));
    LVN_TRY(lvn_trainer_validate(trainer, &report));
    printf("stopped at step %lld; best: step %lld  loss %.4f  acc %.3f\n", (long long)stopped,
           (long long)report->step, report->loss, metric(report, "acc"));
    return LVN_OK;
}

static lvn_status run(const lvn_job *job, int argc, char **argv, lvn_trainer *trainer[2])
{
    static const char *const rate[2] = {"optim.lr=3e-4", "optim.lr=1e-2"};
    double loss[2];
    for (int i = 0; i < 2; i++) {
        LVN_TRY(create(job, rate[i], argc, argv, &trainer[i]));
    }
    for (int k = 0; k < TRIALS; k++) { /* in turn: neither changes what the other computes */
        LVN_TRY(advance(trainer[0], rate[0], &loss[0]));
        LVN_TRY(advance(trainer[1], rate[1], &loss[1]));
    }
    const int better = loss[1] < loss[0];
    printf("%s goes on\n", rate[better]);
    lvn_trainer_destroy(trainer[!better]);
    trainer[!better] = NULL;
    return train_on(trainer[better], rate[better], "best.safetensors");
}

int main(int argc, char **argv)
{
    /* no destroy: both trainers use them */
    spiral train = {.base = {.cls = &spiral_class}, .count = 600, .seed = 1},
           val = {.base = {.cls = &spiral_class}, .count = 300, .seed = 2};
    const lvn_job job = {.module = &net_class,
                         .train = &train.base,
                         .val = &val.base,
                         .options = "max_epochs=100 batch_size=50 optim=adamw num_workers=1"};
    lvn_trainer *trainer[2] = {NULL, NULL};
    const lvn_status status = run(&job, argc, argv, trainer);
    if (status != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
    }
    lvn_trainer_destroy(trainer[0]);
    lvn_trainer_destroy(trainer[1]);
    return status == LVN_OK ? 0 : 1;
}

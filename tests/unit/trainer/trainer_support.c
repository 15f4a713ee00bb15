/* A dataset, a network and a trainer for tests (trainer_support.h). */
#include "trainer_support.h"

#include "core/alloc.h"
#include "kernels/kernels.h"
#include "tensor/device.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <xxhash.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__ /* TSan does not understand the threads of OpenMP: lanes and savers are \
                              left */
enum { CORES = 1 };
#else
enum { CORES = 2 };
#endif

/* ---- data ---- */

static int memory_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    const memory *m = (const memory *)(const void *)dataset;
    out[0] = m->side > 0
                 ? (lvn_field){.name = "image",
                               .dtype = LVN_F32,
                               .ndim = 3,
                               .shape = {m->side, m->side, 3}}
                 : (lvn_field){.name = "image", .dtype = LVN_F32, .ndim = 1, .shape = {FEATURES}};
    out[1] = (lvn_field){.name = "label", .dtype = LVN_I64, .ndim = 0};
    return 2;
}

static int64_t memory_length(const lvn_dataset *dataset)
{
    return ((const memory *)(const void *)dataset)->n;
}

static float feature(int64_t sample, int64_t k)
{
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(21, lvni_core_rng_purpose("memory")),
                               .a = (uint32_t)sample};
    return (float)lvni_core_rng_normal(&rng, (uint64_t)k);
}

void memory_features(int64_t sample, double out[FEATURES])
{
    for (int k = 0; k < FEATURES; k++) {
        out[k] = (double)feature(sample, k);
    }
}

static lvn_status memory_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                             void *const field[])
{
    const memory *m = (const memory *)(const void *)dataset;
    if (m->late_us > 0) {
        usleep(m->late_us);
    }
    const int64_t i = key->sample, n = m->side > 0 ? (int64_t)m->side * m->side * 3 : FEATURES;
    if (m->unreadable[i]) {
        LVN_FAIL(LVN_ERR_CORRUPT, "sample %lld is damaged", (long long)i);
    }
    float *x = field[0];
    for (int64_t k = 0; k < n; k++) {
        x[k] = feature(i, k);
    }
    if (m->nan[i]) {
        x[0] = NAN;
    }
    *(int64_t *)field[1] = i % CLASSES;
    return LVN_OK;
}

static const lvn_dataset_class memory_class = {
    .name = "memory", .fields = memory_fields, .length = memory_length, .get = memory_get};

void memory_init(memory *m, int64_t n, int side)
{
    static const char *const names[CLASSES] = {"a", "b", "c"};
    assert_true(n <= MEMORY_MAX);
    *m = (memory){.base = {.cls = &memory_class, .n_classes = CLASSES, .class_names = names},
                  .n = n,
                  .side = side};
}

/* ---- the network ---- */

struct seen seen[SEEN_STEPS];

typedef struct regression {
    lvn_module base;
    lvn_module *head;
} regression;

static lvn_status regression_build(lvn_module *module, lvn_builder *b)
{
    ((regression *)module)->head = lvn_nn_linear(b, "head", FEATURES, CLASSES);
    return lvn_builder_status(b);
}

static lvn_tensor *regression_forward(const lvn_module *module, lvn_tensor *x)
{
    return lvn_forward(((const regression *)module)->head, x);
}

static lvn_tensor *regression_step(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (lvn_is_training() && step->step < SEEN_STEPS) {
        struct seen *s = &seen[step->step];
        pthread_mutex_lock(&lock);
        memcpy(s->sample + s->n, batch->sample, (size_t)batch->size * sizeof *s->sample);
        s->n += (int)batch->size;
        pthread_mutex_unlock(&lock);
    }
    lvn_tensor *logits = lvn_forward(m, batch->image);
    lvn_tensor *loss = lvn_cross_entropy(logits, batch->label);
    lvn_log(step, "loss", loss);
    lvn_log(step, "acc", lvn_accuracy(logits, batch->label));
    return loss;
}

const lvn_module_class softmax_regression = {.name = "softmax_regression",
                                             .size = sizeof(regression),
                                             .build = regression_build,
                                             .forward = regression_forward,
                                             .training_step = regression_step};

/* ---- the trainer ---- */

static void must(lvn_status s, const char *what)
{
    if (s != LVN_OK) {
        fail_msg("%s: %s", what, lvn_last_error()->message);
    }
}

void bench_start_loader(bench *b)
{
    lvni_trainer *t = b->trainer;
    const lvni_data_loader_options o = {.dataset = t->o.train,
                                        .plan = &t->o.plan,
                                        .training = true,
                                        .whole_steps = t->engine->n_phases > 1,
                                        .seed = t->o.seed,
                                        .workers = t->o.workers,
                                        .unreadable = t->unreadable,
                                        .stream = t->o.stream,
                                        .step = t->at.step,
                                        .epoch = (uint32_t)t->at.epoch,
                                        .step_in_epoch = t->at.step_in_epoch};
    lvni_data_loader_destroy(t->loader);
    must(lvni_data_loader_create(&o, &t->loader), "loader");
}

void bench_open(bench *b, const memory *data, const setting *s)
{
    const lvni_nn_zoo_arguments arguments = {
        .image_size = data->side, .n_classes = CLASSES, .dropout = 0.2};
    must((s->sync ? lvni_nn_model_build_sync : lvni_nn_model_build)(
             s->cls == NULL ? &softmax_regression : s->cls,
             s->arguments == NULL ? &arguments : s->arguments, 4, &b->model),
         "model");
    lvni_trainer_options o = {.model = b->model,
                              .train = &data->base,
                              .optim = s->optim,
                              .schedule = s->schedule,
                              .plateau = s->plateau,
                              .weight_decay = s->weight_decay,
                              .rules = s->rules,
                              .ema = s->ema,
                              .gradient_clip_val = s->clip,
                              .precision = s->precision,
                              .graph = s->graph,
                              .seed = 4,
                              .max_epochs = -1,
                              .max_steps = -1,
                              .workers = s->workers,
                              .skip_unreadable = s->skip,
                              .headers_read = s->headers_read,
                              .val = s->val,
                              .on_bad_batch = s->on_bad_batch,
                              .stream = s->stream,
                              .comm = s->comm,
                              .bucket_bytes = s->bucket_bytes,
                              .sharded_stage = s->sharded_stage,
                              .out = s->out,
                              .log_every_n_steps = 1,
                              .quiet = true,
                              .config_json = "{}"};
    memcpy(o.phase, s->phase, sizeof o.phase);
    if (o.optim.kind == LVNI_OPTIM_SGD && !(o.optim.lr > 0.0)) {
        o.optim.lr = 1.0;
    }
    lvni_plan_stream stream = {0};
    if (s->stream != NULL) {
        stream =
            (lvni_plan_stream){.name = s->stream->name,
                               .n_samples = s->stream->dataset->cls->length(s->stream->dataset),
                               .batch = s->stream->batch,
                               .rule = (lvni_plan_rule)s->stream->rule};
    }
    const lvni_plan_options plan = {.n_samples = data->n,
                                    .batch_size = s->batch_size,
                                    .micro_batches = s->micro_batches,
                                    .group = s->group,
                                    .stream = &stream,
                                    .n_streams = s->stream != NULL ? 1 : 0,
                                    .devices = s->devices,
                                    .rank = s->rank,
                                    .coupled = b->model->coupled,
                                    .lanes = s->lanes,
                                    .pins.wgrad_threads = 1,
                                    .eval_batch_size = 7,
                                    .cores = CORES};
    must(lvni_plan_make(&plan, &o.plan), "plan");
    must(lvni_trainer_create(&o, &b->trainer), "trainer");
    assert_true(s->comm != NULL || o.plan.lanes_raised ||
                lvni_trainer_lanes_count(b->trainer->engine->lanes) == s->lanes);
    if (s->cls == NULL) { /* the others write nothing down, and may run in several threads */
        memset(seen, 0, sizeof seen);
    }
    bench_start_loader(b);
}

void bench_close(bench *b)
{
    lvni_trainer_destroy(b->trainer);
    lvni_nn_model_destroy(b->model);
}

/* Steps, and the loop's counting of epochs. */
void bench_steps(bench *b, int n)
{
    lvni_trainer *t = b->trainer;
    for (int i = 0; i < n; i++) {
        lvni_trainer_step_result r;
        must(lvni_trainer_step(t, &r), "step");
        if (t->at.step_in_epoch == t->o.plan.steps_per_epoch) {
            t->at.epoch++;
            t->at.step_in_epoch = 0;
        }
    }
}

lvn_status bench_save(lvni_trainer *trainer, bool best)
{
    LVN_TRY(lvni_trainer_save_start(trainer, best));
    return lvni_trainer_save_wait(trainer);
}

/* n floats, wherever they lie. */
static void hash_floats(XXH3_state_t *h, const float *x, int64_t n)
{
    float *here = lvni_core_alloc(LVNI_TAG_MODEL, (size_t)n * sizeof *here);
    if (here == NULL) {
        fail();
        return;
    }
    must(lvni_tensor_mem_copy(here, x, (size_t)n * sizeof *here), "copy");
    XXH3_64bits_update(h, here, (size_t)n * sizeof *here);
    lvni_core_free(here);
}

uint64_t bench_hash(const bench *b)
{
    XXH3_state_t *h = XXH3_createState();
    const lvni_trainer *t = b->trainer;
    const lvni_nn_model *m = b->model;
    XXH3_64bits_reset(h);
    hash_floats(h, m->weights, m->n_weights);
    for (int i = 0; i < m->n_buffers; i++) {
        hash_floats(h, m->buffers[i]->tensor->data, m->buffers[i]->numel);
    }
    for (int i = 0; i < t->engine->optim->n_slots; i++) {
        hash_floats(h, t->engine->optim->slot[i], t->engine->optim->slot_length[i]);
    }
    if (t->engine->ema != NULL) {
        hash_floats(h, t->engine->ema->value, t->engine->ema->n);
    }
    for (int i = 0; i < t->report.epoch_sum.n_metrics; i++) {
        XXH3_64bits_update(h, &t->report.epoch_sum.metric[i].sum, 2 * sizeof(double));
    }
    const uint64_t hash = XXH3_64bits_digest(h);
    XXH3_freeState(h);
    return hash;
}

/* A recipe whose steps have two phases, a critic's and a generator's, with a buffer whose momentum
 * moves: for test_random_configs.py, which gives the phases optimizers of their own. */
#include <levin/levin.h>

#include <math.h>
#include <stdlib.h>

enum { COUNT = 60, NOISE = 3, WIDTH = 8 };

/* ---- points of a ring ---- */

static int ring_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){"point", LVN_F32, 1, {2}};
    return 1;
}

static int64_t ring_length(const lvn_dataset *dataset)
{
    (void)dataset;
    return COUNT;
}

static lvn_status ring_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                           void *const field[])
{
    (void)dataset;
    const lvn_sample_key own = {.seed = 5, .sample = key->sample};
    const double angle = 6.283185307 * lvn_sample_uniform(&own, 0, 0);
    float *point = field[0];
    point[0] = (float)cos(angle);
    point[1] = (float)sin(angle);
    return LVN_OK;
}

static void ring_destroy(lvn_dataset *dataset)
{
    free(dataset);
}

static const lvn_dataset_class ring_class = {.name = "ring",
                                             .fields = ring_fields,
                                             .length = ring_length,
                                             .get = ring_get,
                                             .destroy = ring_destroy};

static lvn_dataset *ring_open(void)
{
    lvn_dataset *d = calloc(1, sizeof *d);
    if (d != NULL) {
        d->cls = &ring_class;
    }
    return d;
}

/* ---- two networks ---- */

typedef struct part {
    lvn_module base;
    lvn_module *hidden, *head;
} part;

static lvn_status critic_build(lvn_module *module, lvn_builder *b)
{
    part *m = (part *)module;
    m->hidden = lvn_nn_linear(b, "hidden", 2, WIDTH);
    m->head = lvn_nn_linear(b, "head", WIDTH, 1);
    return lvn_builder_status(b);
}

static lvn_status generator_build(lvn_module *module, lvn_builder *b)
{
    part *m = (part *)module;
    m->hidden = lvn_nn_linear(b, "hidden", NOISE, WIDTH);
    m->head = lvn_nn_linear(b, "head", WIDTH, 2);
    return lvn_builder_status(b);
}

static lvn_tensor *part_forward(const lvn_module *module, lvn_tensor *x)
{
    const part *m = (const part *)module;
    return lvn_forward(m->head, lvn_relu(lvn_forward(m->hidden, x)));
}

static const lvn_module_class critic_class = {
    .name = "critic", .size = sizeof(part), .build = critic_build, .forward = part_forward};
static const lvn_module_class generator_class = {
    .name = "generator", .size = sizeof(part), .build = generator_build, .forward = part_forward};

typedef struct pair {
    lvn_module base;
    lvn_module *critic, *generator;
    lvn_buffer *mean; /* (2): of what the generator makes */
} pair;

static lvn_status pair_build(lvn_module *module, lvn_builder *b)
{
    pair *m = (pair *)module;
    m->critic = lvn_builder_child(b, &critic_class, "critic");
    m->generator = lvn_builder_child(b, &generator_class, "generator");
    m->mean = lvn_builder_buffer(b, "mean", LVN_SHAPE(2), 0.0, 0.0);
    return lvn_builder_momentum(b, m->mean,
                                lvn_builder_number(b, "pace", .from = 0.9, .to = 0.1, .steps = 4));
}

/* Least squares: real points are 1, others 0 (Mao et al. 2017). */
static lvn_tensor *pair_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const pair *m = (const pair *)module;
    const int rows = 0;
    lvn_tensor *fake = lvn_forward(m->generator, lvn_random_normal(step, "z", batch->size, NOISE)),
               *score = lvn_forward(m->critic, fake),
               *mean = lvn_cast(lvn_mean_axes(lvn_detach(fake), &rows, 1, false), LVN_F32), *loss;
    if (mean == NULL || lvn_buffer_push(m->mean, mean) != LVN_OK) {
        return NULL;
    }
    if (step->phase == 0) {
        lvn_tensor *real = lvn_forward(m->critic, batch->field[0]);
        loss =
            lvn_add(lvn_mean(lvn_square(lvn_add_scalar(real, -1.0))), lvn_mean(lvn_square(score)));
    } else {
        loss = lvn_mean(lvn_square(lvn_add_scalar(score, -1.0)));
    }
    lvn_log(step, step->phase == 0 ? "critic" : "generator", loss);
    lvn_log(step, "loss", loss);
    return loss;
}

static lvn_tensor *pair_validation(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const pair *m = (const pair *)module;
    lvn_tensor *centred = lvn_sub(batch->field[0], lvn_buffer_value(m->mean)),
               *loss = lvn_mean(lvn_forward(m->critic, centred));
    lvn_log(step, "loss", loss);
    return loss;
}

static const char *const phases[] = {"critic", "generator", NULL};
static const lvn_module_class pair_class = {.name = "pair",
                                            .size = sizeof(pair),
                                            .build = pair_build,
                                            .training_step = pair_step,
                                            .validation_step = pair_validation,
                                            .phases = phases};

static lvn_status open_pair(const lvn_keys *keys, lvn_job *job)
{
    (void)keys;
    job->module = &pair_class;
    job->train = ring_open();
    job->val = ring_open();
    if (job->train == NULL || job->val == NULL) {
        LVN_FAIL(LVN_ERR_MEMORY, "no memory for the data");
    }
    return LVN_OK;
}

static const lvn_recipe recipe = {.abi = LVN_RECIPE_ABI,
                                  .name = "two_phases",
                                  .help = "two networks against each other",
                                  .open = open_pair};

LVN_RECIPE_EXPORT const lvn_recipe *lvn_recipe_table(void)
{
    return &recipe;
}

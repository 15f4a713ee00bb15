/* A layer with state of its own: it learns the mean and the spread of every input column while the
 * network trains.
 *
 * Measurements come in the units of their instruments: kelvin, pascal, metre. A network wants all
 * of them near 0 with a spread of 1, and the usual way is a pass over the whole data before
 * training, whose numbers then have to travel with the model. Here the layer finds them itself.
 * What a step changes beside parameters must be a registered buffer: a module is read-only in a
 * step, because the micro-batches of a batch run side by side. So every micro-batch pushes what it
 * sees, and after the last one
 *     value = (1 - momentum) value + momentum (mean of what was pushed, weighted by samples, added
 *       in the order of the micro-batches).
 * That is why the result is the same, to the bit, however many lanes worked on the step, and why a
 * resumed run goes on as if nothing had happened: buffers are in the checkpoint.
 *
 * The third buffer is a little trick: all values start at 0 and would need many steps to come up; 1
 * is pushed into `seen`, so it lags behind in the same way, and the quotient is right from the
 * second step on. Compare:
 *
 *   cc -Iinclude examples/03_buffer/standardise.c -Lbuild -llevin -lm \
 *      -Wl,-rpath,$PWD/build -o standardise
 *   ./standardise out=out/one lanes=1 && ./standardise out=out/two lanes=2
 *   build/levin ckpt hash out/one && build/levin ckpt hash out/two */
#include <levin/levin.h>

#include <math.h>
#include <string.h>

/* ---- the layer: (N, columns) -> the same, every column with mean 0 and spread 1 ---- */

enum { COLUMNS = 4, CLASSES = 4 };

typedef struct standardise {
    lvn_module base;
    lvn_buffer *mean, *variance, *seen; /* (columns), (columns), (1) */
    lvn_tensor *one;
} standardise;

static lvn_status standardise_build(lvn_module *module, lvn_builder *b)
{
    standardise *m = (standardise *)module;
    const double momentum = 0.02; /* looks back over about 50 steps */
    m->mean = lvn_builder_buffer(b, "mean", LVN_SHAPE(COLUMNS), 0.0, momentum);
    m->variance = lvn_builder_buffer(b, "variance", LVN_SHAPE(COLUMNS), 0.0, momentum);
    m->seen = lvn_builder_buffer(b, "seen", LVN_SHAPE(1), 0.0, momentum);
    m->one = lvn_tensor_create(LVN_F32, LVN_SHAPE(1));
    if (m->one == NULL) {
        return lvn_last_error()->code;
    }
    *(float *)lvn_data(m->one) = 1.0f;
    return lvn_builder_status(b);
}

static void standardise_destroy(lvn_module *module)
{
    lvn_release(((standardise *)module)->one); /* buffers belong to the model */
}

/* Pushes the statistics of the micro-batch's own samples. The mean of the micro-batches' unbiased
 * variances is one itself. */
static lvn_status look(const standardise *m, lvn_tensor *x)
{
    const int samples = 0;
    const double n = (double)lvn_size(x, 0);
    lvn_tensor *mean = lvn_mean_axes(x, &samples, 1, false); /* (columns) */
    lvn_tensor *square = lvn_mean_axes(lvn_square(lvn_sub(x, mean)), &samples, 1, false);
    LVN_TRY(lvn_buffer_push(m->mean, mean));
    LVN_TRY(lvn_buffer_push(m->variance, lvn_mul_scalar(square, n > 1.0 ? n / (n - 1.0) : 0.0)));
    return lvn_buffer_push(m->seen, m->one);
}

static lvn_tensor *standardise_forward(const lvn_module *module, lvn_tensor *x)
{
    const standardise *m = (const standardise *)module;
    if (lvn_is_training()) {
        const bool recording = lvn_set_grad_enabled(false); /* statistics have no gradient */
        const lvn_status status = look(m, x);
        lvn_set_grad_enabled(recording);
        if (status != LVN_OK) {
            return NULL;
        }
    }
    /* as it was before this step, on every micro-batch */
    const double seen = lvn_item(lvn_buffer_value(m->seen));
    if (seen == 0.0) {
        return lvn_mul_scalar(x, 0.0); /* the first step only looks */
    }
    lvn_tensor *mean = lvn_mul_scalar(lvn_buffer_value(m->mean), 1.0 / seen);
    lvn_tensor *spread = lvn_sqrt(lvn_mul_scalar(lvn_buffer_value(m->variance), 1.0 / seen));
    /* a column that never changes becomes 0 */
    return lvn_div(lvn_sub(x, mean), lvn_add_scalar(spread, 1e-12));
}

static const lvn_module_class standardise_class = {
    .name = "standardise",
    .size = sizeof(standardise),
    .build = standardise_build,
    .forward = standardise_forward,
    .destroy = standardise_destroy,
};

/* ---- the network around it ---- */

typedef struct net {
    lvn_module base;
    lvn_module *input, *hidden, *head;
} net;

static lvn_status net_build(lvn_module *module, lvn_builder *b)
{
    net *m = (net *)module;
    m->input = lvn_builder_child(b, &standardise_class, "input");
    m->hidden = lvn_nn_linear(b, "hidden", COLUMNS, 32);
    m->head = lvn_nn_linear(b, "head", 32, CLASSES);
    return lvn_builder_status(b);
}

static lvn_tensor *net_forward(const lvn_module *module, lvn_tensor *x) /* (N, 4) -> (N, 4) */
{
    const net *m = (const net *)module;
    return lvn_forward(m->head, lvn_relu(lvn_forward(m->hidden, lvn_forward(m->input, x))));
}

static lvn_tensor *net_training_step(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *logits = lvn_forward(m, batch->image); /* field 0, whatever it is */
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

/* ---- the data: a pump with four instruments; does it run hot for its pressure, and does it shake?
 * ---- */

typedef struct pump {
    lvn_dataset base;
    int64_t count;
    uint64_t seed;
} pump;

static const struct {
    double mean, spread;
} instruments[COLUMNS] = {
    {300.0, 5.0},      /* K: temperature */
    {101325.0, 400.0}, /* Pa: pressure */
    {1e-4, 3e-5},      /* m: how far it shakes */
    {12.0, 2.0},       /* A: current, which carries no information */
};

static int pump_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){"reading", LVN_F32, 1, {COLUMNS}};
    out[1] = (lvn_field){"label", LVN_I64, 0, {0}};
    return 2;
}

static int64_t pump_length(const lvn_dataset *dataset)
{
    return ((const pump *)dataset)->count;
}

static lvn_status pump_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                           void *const field[])
{
    const lvn_sample_key own = {.seed = ((const pump *)dataset)->seed, .sample = key->sample};
    float *reading = field[0];
    double z[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) {
        z[c] = sqrt(12.0) * (lvn_sample_uniform(&own, 0, (uint64_t)c) - 0.5); /* mean 0, spread 1 */
        reading[c] = (float)(instruments[c].mean + instruments[c].spread * z[c]);
    }
    const int64_t label = 2 * (z[2] > 0.0) + (z[0] > z[1]);
    memcpy(field[1], &label, sizeof label);
    return LVN_OK;
}

static const lvn_dataset_class pump_class = {
    .name = "pump", .fields = pump_fields, .length = pump_length, .get = pump_get};

int main(int argc, char **argv)
{
    pump train = {.base = {.cls = &pump_class}, .count = 2000, .seed = 1};
    pump val = {.base = {.cls = &pump_class}, .count = 500, .seed = 2};
    return lvn_main(argc, argv,
                    &(lvn_job){
                        .module = &net_class,
                        .train = &train.base,
                        .val = &val.base,
                        .options = "max_epochs=6 batch_size=32 optim=adamw optim.lr=1e-2 "
                                   "micro_batches=4 wgrad_threads=1",
                    });
}

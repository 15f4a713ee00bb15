/* A recipe of three layers that does what a model in stages cannot do, or that fails on one stage
 * alone: for test_stages.py. The environment names what (STAGED). */
#include <levin/levin.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COUNT = 64, WIDTH = 4 };

typedef struct net {
    lvn_module base;
    lvn_module *first, *second, *third;
    lvn_tensor *scale; /* of the root: used wherever */
} net;

static bool does(const char *what)
{
    const char *name = getenv("STAGED");
    return name != NULL && strcmp(name, what) == 0;
}

/* True in one of the ranks, which are threads. */
static bool is_chosen(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_t chosen;
    static bool any;
    pthread_mutex_lock(&lock);
    chosen = any ? chosen : pthread_self();
    any = true;
    const bool is = pthread_equal(chosen, pthread_self()) != 0;
    pthread_mutex_unlock(&lock);
    return is;
}

/* ---- a function whose backward is of one stage ---- */

static lvn_tensor *own_forward(lvn_function_call *call, lvn_tensor *const *in)
{
    (void)call;
    lvn_tensor *twice = lvn_mul_scalar(in[0], 2.0);
    return does("skip") ? twice : lvn_add(twice, in[1]);
}

/* attr: the step; what is found out before a run has none */
static lvn_status own_backward(lvn_function_call *call, lvn_tensor *dy, lvn_tensor **dx)
{
    const int64_t step = *(const int64_t *)call->attr;
    if (step > 0 && (does("fail_first") || does("fail_last"))) {
        LVN_FAIL(LVN_ERR_IO, "the planted failure");
    }
    for (int left = step > 0 && does("hang") ? 30 : 0; left > 0; left--) {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    dx[0] = lvn_mul_scalar(dy, 2.0);
    dx[1] = lvn_mul_scalar(dy, does("skip") ? 0.0 : 1.0);
    return LVN_OK;
}

static const lvn_function own = {
    .name = "own", .attr_size = sizeof(int64_t), .forward = own_forward, .backward = own_backward};

static lvn_tensor *apply_own(lvn_tensor *x, lvn_tensor *y, const lvn_step *step)
{
    return lvn_apply(&own, (lvn_tensor *[]){x, y}, 2, &step->step);
}

/* ---- the network ---- */

static lvn_tensor *net_forward(const lvn_module *module, lvn_tensor *x)
{
    const net *m = (const net *)module;
    return lvn_forward(m->third, lvn_forward(m->second, lvn_forward(m->first, x)));
}

/* A gradient inside of the step. */
static lvn_tensor *with_slope(const net *m, lvn_tensor *x)
{
    lvn_tensor *y = lvn_forward(m->second, lvn_forward(m->first, x));
    return lvn_forward(m->third, lvn_add(y, lvn_grad(lvn_sum(lvn_square(y)), y)));
}

static lvn_tensor *logits_of(const net *m, const lvn_batch *batch, const lvn_step *step)
{
    lvn_tensor *x = batch->field[0], *y;
    if (does("turn") && step->step > 0) {
        return lvn_forward(m->third, lvn_forward(m->first, lvn_forward(m->second, x)));
    }
    y = lvn_forward(m->first, x);
    if (does("item") && lvn_item(lvn_mean(lvn_forward(m->second, y))) > 1e9) {
        return NULL;
    }
    if (does("fail_first") || does("hang")) {
        y = apply_own(y, y, step);
    }
    if (does("shape") && step->step > 0 && is_chosen()) {
        y = lvn_reshape(y, LVN_SHAPE(batch->size, 1, WIDTH));
    }
    lvn_tensor *twice = does("sharing") ? lvn_mul_scalar(m->scale, 2.0) : m->scale;
    y = does("parameter") || does("sharing") || (does("sometimes") && batch->sample[0] % 2 == 0)
            ? lvn_mul(y, twice)
            : y;
    lvn_tensor *z = lvn_forward(m->second, y);
    z = does("skip") ? apply_own(y, z, step) : z; /* of two stages */
    y = lvn_forward(m->third, z);
    y = does("parameter") || does("sharing") || (does("sometimes") && batch->sample[0] % 2 != 0)
            ? lvn_mul(y, twice)
            : y;
    return does("fail_last") ? apply_own(y, y, step) : y;
}

static lvn_tensor *net_training_step(const lvn_module *module, const lvn_batch *batch,
                                     lvn_step *step)
{
    const net *m = (const net *)module;
    lvn_tensor *y = does("grad") ? with_slope(m, batch->field[0]) : logits_of(m, batch, step);
    lvn_tensor *loss =
        lvn_cross_entropy(lvn_reshape(y, LVN_SHAPE(batch->size, WIDTH)), batch->field[1]);
    if (does("backward") && lvn_backward(loss) != LVN_OK) {
        return NULL;
    }
    lvn_log(step, "loss", loss);
    return loss;
}

static lvn_status net_build(lvn_module *module, lvn_builder *b)
{
    net *m = (net *)module;
    m->first = lvn_nn_linear(b, "first", WIDTH, WIDTH);
    m->second = lvn_nn_linear(b, "second", WIDTH, WIDTH);
    m->third = lvn_nn_linear(b, "third", WIDTH, WIDTH);
    m->scale = lvn_builder_parameter(b, "scale", LVN_SHAPE(WIDTH), LVN_INIT_ONES, 1.0);
    return lvn_builder_status(b);
}

static const lvn_module_class net_class = {.name = "net",
                                           .size = sizeof(net),
                                           .build = net_build,
                                           .forward = net_forward,
                                           .training_step = net_training_step};
static int points_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){"x", LVN_F32, 1, {WIDTH}};
    out[1] = (lvn_field){"label", LVN_I64, 0, {0}};
    return 2;
}

static int64_t points_length(const lvn_dataset *dataset)
{
    (void)dataset;
    return COUNT;
}

static lvn_status points_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                             void *const field[])
{
    (void)dataset;
    const int64_t label = key->sample % 2;
    float *x = field[0];
    for (int i = 0; i < WIDTH; i++) {
        x[i] = (float)(label + lvn_sample_uniform(key, 0, (uint64_t)i));
    }
    memcpy(field[1], &label, sizeof label);
    return LVN_OK;
}

static void points_destroy(lvn_dataset *dataset)
{
    free(dataset);
}

static const lvn_dataset_class points_class = {.name = "points",
                                               .fields = points_fields,
                                               .length = points_length,
                                               .get = points_get,
                                               .destroy = points_destroy};

static lvn_status open_staged(const lvn_keys *keys, lvn_job *job)
{
    (void)keys;
    job->module = &net_class;
    job->train = calloc(1, sizeof *job->train);
    if (job->train == NULL) {
        LVN_FAIL(LVN_ERR_MEMORY, "no memory for the data");
    }
    job->train->cls = &points_class;
    return LVN_OK;
}

static const lvn_recipe recipe = {
    .abi = LVN_RECIPE_ABI, .name = "staged", .help = "layers in stages", .open = open_staged};

LVN_RECIPE_EXPORT const lvn_recipe *lvn_recipe_table(void)
{
    return &recipe;
}

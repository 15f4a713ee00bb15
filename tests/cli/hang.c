/* A recipe one of whose ranks hangs, or is slow, in a forward pass: for test_watchdog.py. The
 * environment names the rank (HANG_RANK), the step (HANG_STEP, else 2) and for how many seconds
 * (HANG_S). Where ranks are threads the one that comes there first does. */
#include <levin/levin.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 64, WIDTH = 4 };

typedef struct net {
    lvn_module base;
    lvn_module *head;
} net;

static _Atomic int hung;

static int number(const char *name, int fallback)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : fallback;
}

static int tenths(const char *name, int fallback)
{
    const char *text = getenv(name);
    return text != NULL ? (int)(atof(text) * 10) : fallback;
}

static void maybe_hang(int64_t step)
{
    const char *rank = getenv("RANK");
    const int which = number("HANG_RANK", -1);
    if (which < 0 || step != number("HANG_STEP", 2) || (rank != NULL && atoi(rank) != which) ||
        atomic_exchange(&hung, 1) != 0) {
        return;
    }
    for (int left = tenths("HANG_S", 10000); left > 0; left--) {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
}

static lvn_tensor *net_forward(const lvn_module *module, lvn_tensor *x)
{
    return lvn_forward(((const net *)module)->head, x);
}

static lvn_tensor *net_training_step(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    maybe_hang(step->step);
    lvn_tensor *loss = lvn_cross_entropy(lvn_forward(m, batch->field[0]), batch->field[1]);
    lvn_log(step, "loss", loss);
    return loss;
}

static lvn_status net_build(lvn_module *module, lvn_builder *b)
{
    ((net *)module)->head = lvn_nn_linear(b, "head", WIDTH, 2);
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

static lvn_status open_hang(const lvn_keys *keys, lvn_job *job)
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
    .abi = LVN_RECIPE_ABI, .name = "hang", .help = "a rank that hangs", .open = open_hang};

LVN_RECIPE_EXPORT const lvn_recipe *lvn_recipe_table(void)
{
    return &recipe;
}

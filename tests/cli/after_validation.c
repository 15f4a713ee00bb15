/* A recipe whose module follows up on each validation: a buffer moves by a metric of it, and a
 * weight of the loss has a value for each range of epochs. For test_after_validation.py. */
#include <levin/levin.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 46 };

/* ---- points of a line ---- */

static int line_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){"x", LVN_F32, 1, {2}};
    return 1;
}

static int64_t line_length(const lvn_dataset *dataset)
{
    (void)dataset;
    return COUNT;
}

static lvn_status line_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                           void *const field[])
{
    (void)dataset;
    const lvn_sample_key own = {.seed = 3, .sample = key->sample};
    float *x = field[0];
    x[0] = (float)lvn_sample_uniform(&own, 0, 0);
    x[1] = (float)(0.5 * (double)x[0] - 0.25);
    return LVN_OK;
}

static void line_destroy(lvn_dataset *dataset)
{
    free(dataset);
}

static const lvn_dataset_class line_class = {.name = "line",
                                             .fields = line_fields,
                                             .length = line_length,
                                             .get = line_get,
                                             .destroy = line_destroy};

static lvn_dataset *line_open(void)
{
    lvn_dataset *d = calloc(1, sizeof *d);
    if (d != NULL) {
        d->cls = &line_class;
    }
    return d;
}

/* ---- a line with a margin, which validations move ---- */

typedef struct settings {
    int64_t fails_at;
    const char *trouble;
} settings;

typedef struct net {
    lvn_module base;
    const settings *s;
    lvn_module *head;
    lvn_buffer *margin, *calls; /* (1) each */
    const lvn_number *pull;
} net;

static lvn_status net_build(lvn_module *module, lvn_builder *b)
{
    net *m = (net *)module;
    m->s = lvn_builder_arguments(b);
    m->head = lvn_nn_linear(b, "head", 1, 1);
    m->margin = lvn_builder_buffer(b, "margin", LVN_SHAPE(1), 1.0, 0.0);
    m->calls = lvn_builder_buffer(b, "calls", LVN_SHAPE(1), 0.0, 0.0);
    m->pull = lvn_builder_number(b, "pull", .from = 0.5, .curve = LVN_CURVE_STAIRS,
                                 .stair = (const lvn_stair[]){{1, 0.25}, {3, 2.0}}, .n_stairs = 2);
    return lvn_builder_status(b);
}

/* (N, 1): how far the line is from the points. */
static lvn_tensor *gap_of(const net *m, const lvn_batch *batch)
{
    lvn_tensor *x = lvn_slice(batch->field[0], 1, 0, 1), *y = lvn_slice(batch->field[0], 1, 1, 2);
    return lvn_sub(lvn_forward(m->head, x), y);
}

static lvn_tensor *net_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const net *m = (const net *)module;
    const double pull = lvn_number_value(m->pull, step);
    lvn_tensor *gap = gap_of(m, batch), *margin = lvn_buffer_value(m->margin),
               *loss = lvn_add(lvn_mean(lvn_square(lvn_sub(gap, margin))),
                               lvn_mul_scalar(lvn_mean(lvn_square(gap)), pull));
    lvn_log(step, "loss", loss);
    lvn_log(step, "margin", margin);
    lvn_log(step, "pull", lvn_add_scalar(lvn_zeros(LVN_F32, LVN_SHAPE(1)), pull));
    return loss;
}

static lvn_tensor *net_validation(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *gap = gap_of((const net *)module, batch), *loss = lvn_mean(lvn_square(gap));
    lvn_log(step, "loss", loss);
    lvn_log(step, "gap", lvn_mean(gap));
    return loss;
}

static lvn_status net_validated(const lvn_module *module, lvn_step *step)
{
    const net *m = (const net *)module;
    float calls, margin;
    lvn_tensor *host[] = {lvn_to_device(lvn_buffer_value(m->calls), LVN_CPU),
                          lvn_to_device(lvn_buffer_value(m->margin), LVN_CPU)};
    if (host[0] == NULL || host[1] == NULL) {
        return lvn_last_error()->code;
    }
    calls = *(const float *)lvn_data(host[0]) + 1.0f;
    margin = *(const float *)lvn_data(host[1]) + (float)(0.25 * lvn_step_mean(step, "gap"));
    lvn_release(host[0]);
    lvn_release(host[1]);
    if ((int64_t)calls == m->s->fails_at) {
        LVN_FAIL(LVN_ERR_INVALID, "validation %d of the test has no margin", (int)calls);
    }
    LVN_TRY(lvn_buffer_write(m->margin, &margin, 1));
    LVN_TRY(lvn_buffer_write(m->calls, &calls, 1));
    lvn_log_number(step, "calls", (double)calls);
    lvn_log_number(step, "margin", (double)margin);
    lvn_log_number(step, "unknown", isnan(lvn_step_mean(step, "nothing")) ? 1.0 : 0.0);
    if (strcmp(m->s->trouble, "size") == 0) {
        return lvn_buffer_write(m->margin, (const float[]){1.0f, 2.0f}, 2);
    }
    if (strcmp(m->s->trouble, "name") == 0) {
        lvn_log_number(step, "a_name_of_more_than_39_characters_in_all", 1.0);
    }
    return LVN_OK;
}

static const lvn_module_class net_class = {.name = "net",
                                           .size = sizeof(net),
                                           .build = net_build,
                                           .training_step = net_step,
                                           .validation_step = net_validation,
                                           .validated = net_validated};

static const lvn_key keys[] = {
    {"fails_at", LVN_KEY_INT, "0", "The validation after which the run fails."},
    {"trouble", LVN_KEY_TEXT, "none", "What is wrong after each one: none, size or name."}};

static lvn_status open_net(const lvn_keys *k, lvn_job *job)
{
    static settings s; /* read when the network is built, in every rank of the process */
    s = (settings){lvn_key_int(k, "fails_at"), lvn_key_text(k, "trouble")};
    job->module = &net_class;
    job->arguments = &s;
    job->train = line_open();
    job->val = line_open();
    if (job->train == NULL || job->val == NULL) {
        LVN_FAIL(LVN_ERR_MEMORY, "no memory for the data");
    }
    return LVN_OK;
}

static const lvn_recipe recipe = {.abi = LVN_RECIPE_ABI,
                                  .name = "after_validation",
                                  .help = "a line with a margin that validations move",
                                  .keys = keys,
                                  .n_keys = sizeof keys / sizeof *keys,
                                  .open = open_net};

LVN_RECIPE_EXPORT const lvn_recipe *lvn_recipe_table(void)
{
    return &recipe;
}

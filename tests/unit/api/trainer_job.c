/* trainer_job.h */
#include "trainer_job.h"

#include <string.h>

_Atomic int points_destroyed;
_Atomic int64_t points_end = -1;

static int fields_of(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){"x", LVN_F32, 1, {4}};
    out[1] = (lvn_field){"label", LVN_I64, 0, {0}};
    return 2;
}

static int64_t length_of(const lvn_dataset *dataset)
{
    return dataset == &points ? 24 : 8;
}

static lvn_status get_point(const lvn_dataset *dataset, const lvn_sample_key *key,
                            void *const field[])
{
    const lvn_sample_key own = {.seed = dataset == &points ? 1 : 2, .sample = key->sample};
    const int64_t label = key->sample % 3;
    float *x = field[0];
    if (dataset == &points && points_end >= 0 && key->sample >= points_end) {
        LVN_FAIL(LVN_ERR_CORRUPT, "point %lld is damaged", (long long)key->sample);
    }
    for (int i = 0; i < 4; i++) {
        x[i] = (float)(lvn_sample_uniform(&own, 0, (uint64_t)i) + (i == label ? 1.0 : 0.0));
    }
    memcpy(field[1], &label, sizeof label);
    return LVN_OK;
}

static void count_destroyed(lvn_dataset *dataset)
{
    (void)dataset;
    points_destroyed++;
}

static const lvn_dataset_class class_of_points = {.name = "points",
                                                  .fields = fields_of,
                                                  .length = length_of,
                                                  .get = get_point,
                                                  .destroy = count_destroyed};
lvn_dataset points = {.cls = &class_of_points}, few_points = {.cls = &class_of_points};

typedef struct net {
    lvn_module base;
    lvn_module *hidden, *norm, *drop, *head;
} net;

static lvn_status build(lvn_module *module, lvn_builder *b, int width)
{
    net *m = (net *)module;
    m->hidden = lvn_nn_linear(b, "hidden", 4, width);
    m->norm = lvn_nn_batch_norm(b, "norm", width, 0.1);
    m->drop = lvn_nn_dropout(b, "drop", 0.25);
    m->head = lvn_nn_linear(b, "head", width, 3);
    return lvn_builder_status(b);
}

static lvn_status build_narrow(lvn_module *module, lvn_builder *b)
{
    return build(module, b, 16);
}

static lvn_status build_wide(lvn_module *module, lvn_builder *b)
{
    return build(module, b, 24);
}

static lvn_tensor *forward(const lvn_module *module, lvn_tensor *x)
{
    const net *m = (const net *)module;
    x = lvn_relu(lvn_forward(m->norm, lvn_forward(m->hidden, x)));
    return lvn_forward(m->head, lvn_forward(m->drop, x));
}

static lvn_tensor *training_step(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *logits = lvn_forward(m, batch->image);
    lvn_tensor *loss = lvn_cross_entropy(logits, batch->label);
    lvn_log(step, "loss", loss);
    lvn_log(step, "acc", lvn_accuracy(logits, batch->label));
    return loss;
}

const lvn_module_class point_net = {.name = "point_net",
                                    .size = sizeof(net),
                                    .build = build_narrow,
                                    .forward = forward,
                                    .training_step = training_step};
const lvn_module_class other_net = {.name = "other_net",
                                    .size = sizeof(net),
                                    .build = build_wide,
                                    .forward = forward,
                                    .training_step = training_step};

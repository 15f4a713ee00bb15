/* A training as a user would write it, of a model that has next to nothing to do: one number and
 * VALUES logged values in every step. bench_overhead runs it on a pseudo terminal.
 *
 * usage: overhead_run key=value...     as `levin train` */
#include <levin/levin.h>

#include <stdio.h>

enum { VALUES = 20, SAMPLES = 100000, NAME = 16 };

typedef struct number {
    lvn_module base;
    lvn_tensor *w;
    char name[VALUES][NAME];
} number;

static lvn_status number_build(lvn_module *module, lvn_builder *b)
{
    number *m = (number *)module;
    m->w = lvn_builder_parameter(b, "w", LVN_SHAPE(1), LVN_INIT_ZEROS, 0.0);
    for (int i = 0; i < VALUES; i++) {
        snprintf(m->name[i], NAME, i == 0 ? "loss" : "value%d", i);
    }
    return lvn_builder_status(b);
}

static lvn_tensor *number_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const number *m = (const number *)module;
    lvn_tensor *loss = lvn_sum(lvn_square(lvn_sub(batch->field[0], m->w)));
    for (int i = 0; i < VALUES; i++) {
        lvn_log(step, m->name[i], loss);
    }
    return loss;
}

static const lvn_module_class number_class = {
    .name = "number", .size = sizeof(number), .build = number_build, .training_step = number_step};

static int one_field(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){.name = "number", .dtype = LVN_F32, .ndim = 1, .shape = {1}};
    return 1;
}

static int64_t length(const lvn_dataset *dataset)
{
    (void)dataset;
    return SAMPLES;
}

static lvn_status get(const lvn_dataset *dataset, const lvn_sample_key *key, void *const field[])
{
    (void)dataset;
    *(float *)field[0] = (float)(key->sample % 2);
    return LVN_OK;
}

static const lvn_dataset_class numbers = {
    .name = "numbers", .fields = one_field, .length = length, .get = get};

int main(int argc, char **argv)
{
    static lvn_dataset data = {.cls = &numbers};
    const lvn_job job = {.module = &number_class,
                         .train = &data,
                         .options = "batch_size=1 micro_batches=1 wgrad_threads=1 num_workers=1 "
                                    "max_epochs=-1 gradient_clip_val=1"};
    return lvn_main(argc, argv, &job);
}

/* Options of layers, buffers, datasets, streams and trainers: another value of each field changes
 * what is observed of a short run, or of the samples. The fields are read from the headers, and one
 * without a case fails. */
#include "nn/model.h"
#include "option_fields.h"
#include "support/test.h"

#include <levin/levin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t mix(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3U;
    }
    return hash;
}

/* ---- the data: 24 small images, or 8 ---- */

enum { SIDE = 8, CHANNELS = 2, NUMEL = SIDE * SIDE * CHANNELS };
static lvn_dataset images, few;

static int fields_of(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    (void)dataset;
    out[0] = (lvn_field){"image", LVN_F32, 3, {SIDE, SIDE, CHANNELS}};
    return 1;
}

static int64_t length_of(const lvn_dataset *dataset)
{
    return dataset == &few ? 8 : 24;
}

static lvn_status get_image(const lvn_dataset *dataset, const lvn_sample_key *key,
                            void *const field[])
{
    const lvn_sample_key own = {.seed = dataset == &few ? 2 : 1, .sample = key->sample};
    for (int i = 0; i < NUMEL; i++) {
        ((float *)field[0])[i] = (float)lvn_sample_uniform(&own, 0, (uint64_t)i) - 0.4f;
    }
    return LVN_OK;
}

static const lvn_dataset_class class_of_images = {
    .name = "images", .fields = fields_of, .length = length_of, .get = get_image};
static lvn_dataset images = {.cls = &class_of_images}, few = {.cls = &class_of_images};

/* ---- the module: what a case makes of it ---- */

typedef enum input {
    IMAGE, /* (N, 8, 8, 2) */
    LINE,  /* (N, 64, 2) */
    FLAT,  /* (N, 128) */
    CELL   /* the same, into a cell */
} input;

typedef struct probe {
    lvn_module base;
    lvn_module *layer, *follower;
    lvn_buffer *queue;
    const lvn_number *number;
    input input;
} probe;

/* Makes the parts of the module. */
typedef void (*maker)(lvn_builder *b, probe *m);
typedef struct arguments {
    maker make;
} arguments;

static lvn_status build(lvn_module *module, lvn_builder *b)
{
    ((const arguments *)lvn_builder_arguments(b))->make(b, (probe *)module);
    return lvn_builder_status(b);
}

static lvn_tensor *output(const lvn_module *layer, input kind, lvn_tensor *x)
{
    const int64_t n = lvn_size(x, 0);
    switch (kind) {
    case LINE: return lvn_forward(layer, lvn_reshape(x, LVN_SHAPE(n, SIDE * SIDE, CHANNELS)));
    case FLAT: return lvn_forward(layer, lvn_flatten(x, 1));
    case CELL:
        return lvn_nn_gru_cell_step(layer, lvn_flatten(x, 1), lvn_zeros(LVN_F32, LVN_SHAPE(n, 3)));
    default: return lvn_forward(layer, x);
    }
}

static lvn_tensor *training_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const probe *m = (const probe *)module;
    const int64_t n = batch->size;
    lvn_tensor *y = output(m->layer, m->input, batch->image);
    lvn_tensor *loss = lvn_mean(lvn_square(y));
    if (m->follower != NULL) {
        loss = lvn_add(loss, lvn_mean(lvn_mul(y, output(m->follower, m->input, batch->image))));
    }
    if (m->queue != NULL) { /* two rows of each sample */
        loss = lvn_add(loss, lvn_mul(lvn_mean(y), lvn_mean(lvn_buffer_value(m->queue))));
        lvn_tensor *rows = lvn_reshape(batch->image, LVN_SHAPE(2 * n, NUMEL / 2));
        if (lvn_buffer_push(m->queue, rows) != LVN_OK) {
            return NULL;
        }
    }
    if (m->number != NULL) {
        loss = lvn_mul_scalar(loss, lvn_number_value(m->number, step));
    }
    lvn_log(step, "loss", loss);
    return loss;
}

/* With a stream "more" of images. */
static lvn_tensor *stream_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const probe *m = (const probe *)module;
    const lvn_batch *more = lvn_batch_stream(batch, "more");
    lvn_tensor *loss = training_step(module, batch, step);
    return more == NULL ? loss
                        : lvn_add(loss, lvn_mean(lvn_abs(output(m->layer, m->input, more->image))));
}

static const lvn_module_class probe_class = {
    .name = "probe", .size = sizeof(probe), .build = build, .training_step = training_step};
static const lvn_module_class stream_class = {
    .name = "streams", .size = sizeof(probe), .build = build, .training_step = stream_step};

/* ---- what is observed; 0: it failed ---- */

static uint64_t hash_of_trainer(lvn_trainer *t)
{
    uint64_t hash = 1;
    const char *name;
    for (int i = 0; (name = lvn_trainer_tensor_name(t, i)) != NULL; i++) {
        const lvn_tensor *tensor = lvn_trainer_tensor(t, name);
        hash = mix(hash, name, strlen(name));
        hash = mix(hash, lvn_const_data(tensor), (size_t)lvn_numel(tensor) * sizeof(float));
    }
    return hash;
}

/* Of a job's weights and buffers after its steps. */
static uint64_t train(const lvn_job *job, const lvn_trainer_options *o)
{
    lvn_trainer *t = NULL;
    if (lvn_trainer_create_with(job, &t, o) != LVN_OK) {
        return 0;
    }
    const uint64_t hash = lvn_trainer_fit(t) == LVN_OK ? hash_of_trainer(t) : 0;
    lvn_trainer_destroy(t);
    return hash;
}

#define JOB(...)                                                                                   \
    ((lvn_job){.train = &images,                                                                   \
               .options = "max_epochs=2 batch_size=8 micro_batches=4 wgrad_threads=1 "             \
                          "optim.lr=1e-2 num_workers=0",                                           \
               __VA_ARGS__})
static const lvn_trainer_options plain = {.struct_size = sizeof(lvn_trainer_options)};

/* Of a module: its run, and its weights as they are written for others. */
static uint64_t run(maker make)
{
    const arguments a = {make};
    uint64_t hash = train(&JOB(.module = &probe_class, .arguments = &a), &plain);
    lvni_nn_model *m = NULL;
    if (hash == 0 || lvni_nn_model_build(&probe_class, &a, 1, &m) != LVN_OK) {
        return 0;
    }
    for (int i = 0; i < m->n_parameters; i++) {
        static float file[1 << 16];
        const lvni_nn_parameter *p = &m->parameters[i];
        assert_true(p->numel <= 1 << 16);
        lvni_nn_parameter_to_file(p, lvn_const_data(p->tensor), file);
        hash = mix(hash, file, (size_t)p->numel * sizeof *file);
    }
    lvni_nn_model_destroy(m);
    return hash;
}

/* Of the first samples of a folder of images. */
static uint64_t samples(const char *path, const lvn_image_folder_options *o)
{
    static _Alignas(16) float data[4][224 * 224 * 3];
    lvn_dataset *d = lvn_image_folder_open_with(path, o);
    if (d == NULL) {
        return 0;
    }
    lvn_field fields[LVN_MAX_FIELDS];
    const int n_fields = d->cls->fields(d, fields);
    const int64_t length = d->cls->length(d);
    uint64_t hash = mix(mix(1, &n_fields, sizeof n_fields), &length, sizeof length);
    for (int64_t i = 0; i < 12 && i < length; i++) {
        void *const field[] = {data[0], data[1], data[2], data[3]};
        const lvn_sample_key key = {
            .seed = 1, .sample = d->cls->index == NULL ? i : d->cls->index(d, i), .training = true};
        memset(data, 0, sizeof data);
        assert_int_equal(d->cls->get(d, &key, field), LVN_OK);
        hash = mix(hash, data, sizeof data);
    }
    lvn_dataset_destroy(d);
    return hash;
}

/* ---- layers: group, field, input, the call without the field and with it ---- */

#define CONV2D(...) lvn_nn_conv2d(b, "net", CHANNELS, 2, 3, __VA_ARGS__)
#define CONV1D(...) lvn_nn_conv1d(b, "net", CHANNELS, 2, 3, __VA_ARGS__)
#define UP(...) lvn_nn_conv_transpose2d(b, "net", CHANNELS, 2, 3, __VA_ARGS__)
#define LINEAR(...) lvn_nn_linear(b, "net", NUMEL, 3, __VA_ARGS__)
#define BATCH_NORM(...) lvn_nn_batch_norm(b, "net", CHANNELS, 0.1, __VA_ARGS__)

#define LAYERS(X)                                                                                  \
    X(nn_conv2d, stride, IMAGE, CONV2D(.stride = 1), CONV2D(.stride = 2))                          \
    X(nn_conv2d, padding, IMAGE, CONV2D(.padding = 0), CONV2D(.padding = 1))                       \
    X(nn_conv2d, dilation, IMAGE, CONV2D(.dilation = 1), CONV2D(.dilation = 2))                    \
    X(nn_conv2d, groups, IMAGE, CONV2D(.groups = 1), CONV2D(.groups = 2))                          \
    X(nn_conv2d, no_bias, IMAGE, CONV2D(.no_bias = false), CONV2D(.no_bias = true))                \
    X(nn_conv2d, kernel_hw, IMAGE, CONV2D(.stride = 1), CONV2D(.kernel_hw = {0, 2}))               \
    X(nn_conv2d, stride_hw, IMAGE, CONV2D(.stride = 1), CONV2D(.stride_hw = {0, 2}))               \
    X(nn_conv2d, padding_hw, IMAGE, CONV2D(.stride = 1), CONV2D(.padding_hw = {0, 1}))             \
    X(nn_conv2d, dilation_hw, IMAGE, CONV2D(.stride = 1), CONV2D(.dilation_hw = {0, 2}))           \
    X(nn_conv1d, stride, LINE, CONV1D(.stride = 1), CONV1D(.stride = 2))                           \
    X(nn_conv1d, padding, LINE, CONV1D(.padding = 0), CONV1D(.padding = 1))                        \
    X(nn_conv1d, dilation, LINE, CONV1D(.dilation = 1), CONV1D(.dilation = 2))                     \
    X(nn_conv1d, groups, LINE, CONV1D(.groups = 1), CONV1D(.groups = 2))                           \
    X(nn_conv1d, no_bias, LINE, CONV1D(.no_bias = false), CONV1D(.no_bias = true))                 \
    X(nn_conv_transpose2d, stride, IMAGE, UP(.stride = 1), UP(.stride = 2))                        \
    X(nn_conv_transpose2d, padding, IMAGE, UP(.padding = 0), UP(.padding = 1))                     \
    X(nn_conv_transpose2d, output_padding, IMAGE, UP(.stride = 2),                                 \
      UP(.stride = 2, .output_padding = 1))                                                        \
    X(nn_conv_transpose2d, groups, IMAGE, UP(.groups = 1), UP(.groups = 2))                        \
    X(nn_conv_transpose2d, dilation, IMAGE, UP(.dilation = 1), UP(.dilation = 2))                  \
    X(nn_conv_transpose2d, no_bias, IMAGE, UP(.no_bias = false), UP(.no_bias = true))              \
    X(nn_conv_transpose2d, kernel_hw, IMAGE, UP(.stride = 1), UP(.kernel_hw = {0, 2}))             \
    X(nn_conv_transpose2d, stride_hw, IMAGE, UP(.stride = 1), UP(.stride_hw = {0, 2}))             \
    X(nn_conv_transpose2d, padding_hw, IMAGE, UP(.stride = 1), UP(.padding_hw = {0, 1}))           \
    X(nn_conv_transpose2d, output_padding_hw, IMAGE, UP(.stride = 2),                              \
      UP(.stride = 2, .output_padding_hw = {0, 1}))                                                \
    X(nn_conv_transpose2d, dilation_hw, IMAGE, UP(.stride = 1), UP(.dilation_hw = {0, 2}))         \
    X(nn_linear, no_bias, FLAT, LINEAR(.no_bias = false), LINEAR(.no_bias = true))                 \
    X(nn_linear, image, FLAT, LINEAR(.no_bias = false), LINEAR(.image = {SIDE, SIDE, CHANNELS}))   \
    X(nn_linear, conv1d, FLAT, LINEAR(.conv1d = false), LINEAR(.conv1d = true))                    \
    X(nn_batch_norm, eps, IMAGE, BATCH_NORM(.eps = 0.0), BATCH_NORM(.eps = 0.5))                   \
    X(nn_batch_norm, relu, IMAGE, BATCH_NORM(.relu = false), BATCH_NORM(.relu = true))             \
    X(nn_batch_norm, sync, IMAGE, BATCH_NORM(.sync = false), BATCH_NORM(.sync = true))             \
    X(nn_batch_norm, momentum, IMAGE, BATCH_NORM(.momentum = NULL),                                \
      BATCH_NORM(.momentum = lvn_builder_number(b, "pace", .from = 1.0, .to = 0.5)))               \
    X(nn_layer_norm, eps, IMAGE, lvn_nn_layer_norm(b, "net", CHANNELS, .eps = 0.0),                \
      lvn_nn_layer_norm(b, "net", CHANNELS, .eps = 0.5))                                           \
    X(nn_cell, no_bias, CELL, lvn_nn_gru_cell(b, "net", NUMEL, 3, .no_bias = false),               \
      lvn_nn_gru_cell(b, "net", NUMEL, 3, .no_bias = true))                                        \
    X(nn_unet, width, IMAGE, lvn_nn_unet(b, "net", CHANNELS, 1, .width = 2, .depth = 1),           \
      lvn_nn_unet(b, "net", CHANNELS, 1, .width = 3, .depth = 1))                                  \
    X(nn_unet, depth, IMAGE, lvn_nn_unet(b, "net", CHANNELS, 1, .width = 2, .depth = 1),           \
      lvn_nn_unet(b, "net", CHANNELS, 1, .width = 2, .depth = 2))                                  \
    X(nn_unet, bilinear, IMAGE, lvn_nn_unet(b, "net", CHANNELS, 1, .width = 2, .depth = 1),        \
      lvn_nn_unet(b, "net", CHANNELS, 1, .width = 2, .depth = 1, .bilinear = true))

#define MAKERS(group, field, kind, without, with)                                                  \
    static void make_without_##group##_##field(lvn_builder *b, probe *m)                           \
    {                                                                                              \
        m->layer = without;                                                                        \
        m->input = kind;                                                                           \
    }                                                                                              \
    static void make_with_##group##_##field(lvn_builder *b, probe *m)                              \
    {                                                                                              \
        m->layer = with;                                                                           \
        m->input = kind;                                                                           \
    }
LAYERS(MAKERS)

/* ---- buffers ---- */

#define QUEUE(name, ...)                                                                           \
    static void name(lvn_builder *b, probe *m)                                                     \
    {                                                                                              \
        m->layer = lvn_nn_linear(b, "net", NUMEL, 3);                                              \
        m->input = FLAT;                                                                           \
        m->queue = lvn_builder_queue(b, "queue", 64, NUMEL / 2, __VA_ARGS__);                      \
    }
QUEUE(queue_of_one, .rows_per_sample = 1)
QUEUE(queue_of_two, .rows_per_sample = 2)
QUEUE(queue_of_ones, .rows_per_sample = 2, .init = LVN_INIT_ONES)
QUEUE(queue_drawn, .rows_per_sample = 2, .init = LVN_INIT_NORMAL, .bound = 1.0)
QUEUE(queue_drawn_wide, .rows_per_sample = 2, .init = LVN_INIT_NORMAL, .bound = 2.0)

#define FOLLOWER(name, ...)                                                                        \
    static void name(lvn_builder *b, probe *m)                                                     \
    {                                                                                              \
        m->layer = lvn_nn_batch_norm(b, "net", CHANNELS, 0.1);                                     \
        m->follower = lvn_nn_batch_norm(b, "teacher", CHANNELS, 0.1);                              \
        lvn_builder_follow(b, m->follower, m->layer, __VA_ARGS__);                                 \
    }
FOLLOWER(follower, .momentum = 0.9)
FOLLOWER(follower_fast, .momentum = 0.5)
FOLLOWER(follower_to_end, .momentum = 0.9, .end = 1.0)
FOLLOWER(follower_own, .momentum = 0.9, .own_statistics = true)

#define NUMBER(name, ...)                                                                          \
    static void name(lvn_builder *b, probe *m)                                                     \
    {                                                                                              \
        m->layer = lvn_nn_linear(b, "net", NUMEL, 3);                                              \
        m->input = FLAT;                                                                           \
        m->number = lvn_builder_number(b, "scale", __VA_ARGS__);                                   \
    }
NUMBER(number, .from = 1.0, .to = 3.0)
NUMBER(number_from, .from = 0.5, .to = 3.0)
NUMBER(number_to, .from = 1.0, .to = 2.0)
NUMBER(number_cosine, .from = 1.0, .to = 3.0, .curve = LVN_CURVE_COSINE)
NUMBER(number_of_steps, .from = 1.0, .to = 3.0, .steps = 2)
NUMBER(number_of_epochs, .from = 1.0, .to = 3.0, .epochs = 1)
static const lvn_stair stairs[] = {{0, 2.0}, {1, 3.0}};
NUMBER(number_one_stair, .curve = LVN_CURVE_STAIRS, .from = 1.0, .stair = stairs, .n_stairs = 1)
NUMBER(number_stairs, .curve = LVN_CURVE_STAIRS, .from = 1.0, .stair = stairs, .n_stairs = 2)
NUMBER(number_ramp, .curve = LVN_CURVE_RAMP, .to = 3.0, .rise = 0.25)
NUMBER(number_late_ramp, .curve = LVN_CURVE_RAMP, .to = 3.0, .rise = 0.25, .begin = 1)
NUMBER(number_steep_ramp, .curve = LVN_CURVE_RAMP, .to = 3.0, .rise = 0.5)
NUMBER(number_late_stair, .curve = LVN_CURVE_STAIRS, .from = 1.0, .stair = stairs + 1,
       .n_stairs = 1)

/* ---- a folder: two classes of one image ---- */

static char folder[64];

/* One pixel. */
static const uint8_t png[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48,
    0x44, 0x52, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00,
    0x00, 0x90, 0x77, 0x53, 0xde, 0x00, 0x00, 0x00, 0x0c, 0x49, 0x44, 0x41, 0x54, 0x78,
    0x9c, 0x63, 0x70, 0x68, 0x38, 0x00, 0x00, 0x02, 0x84, 0x01, 0x81, 0x26, 0x97, 0xa7,
    0x2b, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};

static void write_folder(const char *parent)
{
    snprintf(folder, sizeof folder, "%s/images", parent);
    assert_int_equal(mkdir(folder, 0700), 0);
    for (int i = 0; i < 2; i++) {
        char path[96];
        snprintf(path, sizeof path, "%s/%s", folder, i == 0 ? "cats" : "dogs");
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof path, "%s/%s/one.png", folder, i == 0 ? "cats" : "dogs");
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        assert_int_equal(fwrite(png, sizeof png, 1, f), 1);
        fclose(f);
    }
}

/* ---- streams ---- */

static void plain_layer(lvn_builder *b, probe *m)
{
    m->layer = lvn_nn_linear(b, "net", NUMEL, 3);
    m->input = FLAT;
}

static uint64_t run_stream(lvn_stream stream)
{
    const arguments a = {plain_layer};
    stream.name = stream.name == NULL ? "more" : stream.name;
    stream.dataset = stream.dataset == NULL ? &few : stream.dataset;
    return train(&JOB(.module = &stream_class, .arguments = &a, .streams = &stream, .n_streams = 1),
                 &plain);
}

/* ---- trainers ---- */

static char dir[] = "/tmp/levin-options-XXXXXX";
typedef struct seen {
    uint64_t lines, steps, validations, epochs, checkpoints;
} seen;

static void count_line(void *user, lvn_log_level level, const char *text)
{
    (void)level;
    (void)text;
    ((seen *)user)->lines++;
}

#define COUNTER(name, field)                                                                       \
    static bool name(void *user, const lvn_trainer_report *report)                                 \
    {                                                                                              \
        (void)report;                                                                              \
        ((seen *)user)->field++;                                                                   \
        return false;                                                                              \
    }
COUNTER(count_step, steps)
COUNTER(count_validation, validations)
COUNTER(count_epoch, epochs)
COUNTER(count_checkpoint, checkpoints)

/* Of a run with a checkpoint and a validation after each epoch: what the first of the two users,
 * {0}, has seen, and the weights. */
static seen first, second;
static uint64_t run_trainer(lvn_trainer_options o)
{
    const arguments a = {plain_layer};
    static int runs;
    char out[64];
    const char *args[] = {out};
    snprintf(out, sizeof out, "out=%s/run%d", dir, runs++);
    first = second = (seen){0};
    o.struct_size = sizeof o;
    o.user = o.user == NULL ? &first : o.user;
    if (o.args == NULL) {
        o.args = args;
        o.n_args = 1;
    }
    const uint64_t hash = train(&JOB(.module = &probe_class, .arguments = &a, .val = &few), &o);
    return hash == 0 ? 0 : mix(hash, &first, sizeof first);
}
#define TRAINER(...) run_trainer((lvn_trainer_options){__VA_ARGS__})
#define ARGUMENTS(n, ...)                                                                          \
    .n_args = (n), .args = (const char *[])                                                        \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* This process in the environment of a rank that cannot be: only .launched looks at it. */
static uint64_t run_launched(bool launched)
{
    setenv("RANK", "7", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LOCAL_RANK", "7", 1);
    const uint64_t hash = TRAINER(.launched = launched);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    unsetenv("LOCAL_RANK");
    return launched && hash == 0 ? 1 : hash;
}

/* ---- all others: group, field, without, with ---- */

#define STREAM(...) run_stream((lvn_stream){__VA_ARGS__})
#define SAMPLES(...)                                                                               \
    samples("builtin:shapes",                                                                      \
            &(lvn_image_folder_options){                                                           \
                .struct_size = sizeof(lvn_image_folder_options), .resize = 32, __VA_ARGS__})
#define OTHERS(X)                                                                                  \
    X(queue, rows_per_sample, run(queue_of_one), run(queue_of_two))                                \
    X(queue, init, run(queue_of_two), run(queue_of_ones))                                          \
    X(queue, bound, run(queue_drawn), run(queue_drawn_wide))                                       \
    X(follow, momentum, run(follower), run(follower_fast))                                         \
    X(follow, end, run(follower), run(follower_to_end))                                            \
    X(follow, own_statistics, run(follower), run(follower_own))                                    \
    X(number, from, run(number), run(number_from))                                                 \
    X(number, to, run(number), run(number_to))                                                     \
    X(number, curve, run(number), run(number_cosine))                                              \
    X(number, steps, run(number), run(number_of_steps))                                            \
    X(number, epochs, run(number), run(number_of_epochs))                                          \
    X(number, stair, run(number_one_stair), run(number_late_stair))                                \
    X(number, n_stairs, run(number_one_stair), run(number_stairs))                                 \
    X(number, begin, run(number_ramp), run(number_late_ramp))                                      \
    X(number, rise, run(number_ramp), run(number_steep_ramp))                                      \
    X(image_folder, resize, SAMPLES(.views = 1),                                                   \
      samples("builtin:shapes",                                                                    \
              &(lvn_image_folder_options){.struct_size = sizeof(lvn_image_folder_options),         \
                                          .resize = 24}))                                          \
    X(image_folder, flat,                                                                          \
      samples(folder,                                                                              \
              &(lvn_image_folder_options){.struct_size = sizeof(lvn_image_folder_options)}),       \
      samples(folder, &(lvn_image_folder_options){.struct_size = sizeof(lvn_image_folder_options), \
                                                  .flat = true}))                                  \
    X(image_folder, no_augment, SAMPLES(.views = 1), SAMPLES(.no_augment = true))                  \
    X(image_folder, min_scale, SAMPLES(.views = 1), SAMPLES(.min_scale = 0.5))                     \
    X(image_folder, color_jitter, SAMPLES(.views = 1), SAMPLES(.color_jitter = 0.4))               \
    X(image_folder, hue, SAMPLES(.views = 1), SAMPLES(.hue = 0.3))                                 \
    X(image_folder, jitter, SAMPLES(.color_jitter = 0.4),                                          \
      SAMPLES(.color_jitter = 0.4, .jitter = 0.5))                                                 \
    X(image_folder, grey, SAMPLES(.views = 1), SAMPLES(.grey = 1.0))                               \
    X(image_folder, blur, SAMPLES(.views = 1), SAMPLES(.blur = 1.0))                               \
    X(image_folder, solarize, SAMPLES(.views = 1), SAMPLES(.solarize = 1.0))                       \
    X(image_folder, views, SAMPLES(.views = 1), SAMPLES(.views = 2))                               \
    X(image_folder, part, SAMPLES(.views = 1), SAMPLES(.part = LVN_IMAGES_VAL))                    \
    X(stream, name, STREAM(.name = "other"), STREAM(.name = "more"))                               \
    X(stream, dataset, STREAM(.dataset = &few), STREAM(.dataset = &images))                        \
    X(stream, batch, STREAM(.batch = 8), STREAM(.batch = 12))                                      \
    X(stream, ratio, STREAM(.ratio = 1.0), STREAM(.ratio = 2.0))                                   \
    X(stream, order, STREAM(.ratio = 1.0), STREAM(.order = LVN_ORDER_SEQUENCE))                    \
    X(stream, rule, STREAM(.ratio = 1.0), STREAM(.rule = LVN_STREAM_ONCE))                         \
    X(trainer, n_args, TRAINER(ARGUMENTS(1, "optim.lr=1e-2", "optim.lr=1e-1")),                    \
      TRAINER(ARGUMENTS(2, "optim.lr=1e-2", "optim.lr=1e-1")))                                     \
    X(trainer, args, TRAINER(ARGUMENTS(1, "optim.lr=1e-2")),                                       \
      TRAINER(ARGUMENTS(1, "optim.lr=1e-1")))                                                      \
    X(trainer, log, TRAINER(.log = NULL), TRAINER(.log = count_line))                              \
    X(trainer, on_step, TRAINER(.log = NULL), TRAINER(.on_step = count_step))                      \
    X(trainer, on_validation, TRAINER(.log = NULL), TRAINER(.on_validation = count_validation))    \
    X(trainer, on_epoch, TRAINER(.log = NULL), TRAINER(.on_epoch = count_epoch))                   \
    X(trainer, on_checkpoint, TRAINER(.log = NULL), TRAINER(.on_checkpoint = count_checkpoint))    \
    X(trainer, user, TRAINER(.on_step = count_step, .user = &second),                              \
      TRAINER(.on_step = count_step, .user = &first))                                              \
    X(trainer, launched, run_launched(false), run_launched(true))

#define OF_LAYER(group, field, kind, without, with)                                                \
    static uint64_t without_##group##_##field(void)                                                \
    {                                                                                              \
        return run(make_without_##group##_##field);                                                \
    }                                                                                              \
    static uint64_t with_##group##_##field(void)                                                   \
    {                                                                                              \
        return run(make_with_##group##_##field);                                                   \
    }
#define OF_OTHER(group, field, without, with)                                                      \
    static uint64_t without_##group##_##field(void)                                                \
    {                                                                                              \
        return without;                                                                            \
    }                                                                                              \
    static uint64_t with_##group##_##field(void)                                                   \
    {                                                                                              \
        return with;                                                                               \
    }
LAYERS(OF_LAYER)
OTHERS(OF_OTHER)

static const struct {
    const char *group, *field;
    uint64_t (*without)(void), (*with)(void);
} cases[] = {
#define ROW(group, field, ...) {#group, #field, without_##group##_##field, with_##group##_##field},
    LAYERS(ROW) OTHERS(ROW)};
enum { N_CASES = sizeof cases / sizeof *cases };

TEST(every_field_changes_the_result)
{
    for (int i = 0; i < N_CASES; i++) {
        const uint64_t without = cases[i].without(), again = cases[i].without();
        assert_true(without == again); /* else any two runs differ */
        const uint64_t with = cases[i].with();
        if (with == 0 || with == without) {
            fail_msg("%s.%s: %s", cases[i].group, cases[i].field,
                     with == 0 ? lvn_last_error()->message : "the result stays");
        }
    }
}

static void check_field(const char *group, const char *field)
{
    bool found = strcmp(field, "struct_size") == 0 || strcmp(field, "reserved") == 0;
    for (int i = 0; i < N_CASES; i++) {
        found = found || (strcmp(cases[i].group, group) == 0 && strcmp(cases[i].field, field) == 0);
    }
    if (!found) {
        fail_msg("%s.%s has no case", group, field);
    }
}

TEST(every_field_has_a_case)
{
    assert_true(option_fields(LEVIN_HEADERS, check_field) > N_CASES); /* and the sizes */
}

int main(int argc, char **argv)
{
    char command[64];
    if (mkdtemp(dir) == NULL) {
        return 1;
    }
    write_folder(dir);
    const int failed = test_main(argc, argv);
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command) != 0 || failed;
}

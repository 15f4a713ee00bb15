/* Scenarios of the sweep: nn.h and data.h. */
#include "sweep.h"

#include "core/vfs.h"
#include "data/image.h"
#include "nn/model.h"
#include "nn/step_metrics.h"
#include "tensor/ctx.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- a module with everything a builder offers ---- */

typedef struct part {
    lvn_module base;
    lvn_tensor *scale;
    lvn_buffer *seen, *bank;
} part;

static lvn_tensor *twice(const lvn_module *module, lvn_tensor *value)
{
    (void)module;
    return lvn_mul_scalar(value, 2.0);
}

static lvn_status part_build(lvn_module *module, lvn_builder *b)
{
    part *m = (part *)module;
    m->scale = lvn_builder_parameter(b, "scale", LVN_SHAPE(4), LVN_INIT_ONES, 0);
    m->seen = lvn_builder_buffer(b, "seen", LVN_SHAPE(4), 0.0, 0.5);
    m->bank = lvn_builder_queue(b, "bank", 5, 4, .init = LVN_INIT_NORMAL, .bound = 1.0);
    lvn_builder_function(b, m->bank, twice);
    return lvn_builder_status(b);
}

static lvn_tensor *part_forward(const lvn_module *module, lvn_tensor *x) /* (N, 4) */
{
    const part *m = (const part *)module;
    x = lvn_mul(x, m->scale);
    lvn_tensor *mean = lvn_mean_axes(x, (const int[]){0}, 1, false);
    if (lvn_is_training() && (lvn_buffer_push(m->seen, mean) != LVN_OK ||
                              lvn_buffer_push(m->bank, lvn_detach(x)) != LVN_OK)) {
        return NULL;
    }
    lvn_tensor *rows =
        lvn_mul(lvn_buffer_value(m->bank), lvn_reshape(lvn_queue_filled(m->bank), LVN_SHAPE(5, 1)));
    return lvn_sub(lvn_sub(x, lvn_buffer_value(m->seen)),
                   lvn_mean_axes(rows, (const int[]){0}, 1, false));
}

static const lvn_module_class part_class = {
    .name = "part", .size = sizeof(part), .build = part_build, .forward = part_forward};

typedef struct net {
    lvn_module base;
    lvn_module *conv, *norm, *unet, *calm, *up, *drop, *head, *part, *gru, *lstm, *line, *teacher,
        *prelu;
    const lvn_number *number;
} net;

static lvn_status net_build(lvn_module *module, lvn_builder *b)
{
    net *m = (net *)module;
    assert_null(lvn_builder_arguments(b)); /* none were given */
    lvn_builder_block(b, "stem");
    m->conv = lvn_nn_conv2d(b, "conv", 3, 4, 3, .padding = 1);
    m->norm = lvn_nn_batch_norm(b, "norm", 4, 0.1);
    m->unet = lvn_nn_unet(b, "unet", 4, 4, .width = 2, .depth = 1);
    m->up = lvn_nn_conv_transpose2d(b, "up", 4, 4, 2, .stride = 2);
    m->calm = lvn_nn_layer_norm(b, "calm", 4);
    m->drop = lvn_nn_dropout(b, "drop", 0.5);
    m->head = lvn_nn_linear(b, "head", 4, 4);
    m->part = lvn_builder_child(b, &part_class, "part");
    m->teacher = lvn_builder_child(b, &part_class, "teacher");
    lvn_builder_follow(b, m->teacher, m->part, .momentum = 0.9, .end = 1.0);
    m->number = lvn_builder_number(b, "number", .from = 1.0, .to = 0.5);
    lvn_builder_momentum(b, lvn_builder_buffer(b, "pace", LVN_SHAPE(1), 0.0, 0.5), m->number);
    m->line = lvn_nn_conv1d(b, "line", 1, 1, 3, .padding = 1);
    m->prelu = lvn_nn_prelu(b, "prelu", 1);
    m->gru = lvn_nn_gru_cell(b, "gru", 4, 4);
    m->lstm = lvn_nn_lstm_cell(b, "lstm", 4, 4);
    lvn_builder_couple(b);
    return lvn_builder_set_init(b, "head.weight", LVN_INIT_NORMAL, 0.1);
}

static lvn_tensor *net_forward(const lvn_module *module, lvn_tensor *x)
{
    const net *m = (const net *)module;
    x = lvn_forward(
        m->drop, lvn_forward_residual(m->norm, lvn_forward(m->conv, x), lvn_forward(m->conv, x)));
    x = lvn_forward(m->calm, lvn_forward(m->up, lvn_forward(m->unet, x)));
    x = lvn_forward(m->head, lvn_global_avg_pool2d(x));
    lvn_tensor *line = lvn_forward(m->line, lvn_reshape(x, LVN_SHAPE(2, 4, 1)));
    x = lvn_reshape(line, LVN_SHAPE(2, 4));
    lvn_tensor *c, *h = lvn_nn_lstm_cell_step(m->lstm, x, x, x, &c);
    lvn_tensor *state = lvn_nn_gru_cell_step(m->gru, h, c);
    const bool training = lvn_set_training(false);
    lvn_tensor *taught = lvn_forward(m->prelu, lvn_forward(m->teacher, state));
    (void)lvn_set_training(training);
    return lvn_sub(lvn_forward(m->part, state), taught);
}

static const lvn_module_class net_class = {
    .name = "net", .size = sizeof(net), .build = net_build, .forward = net_forward};

static lvn_status one_micro_batch(const lvni_nn_model *model, lvni_nn_set *set, lvn_tensor *x)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const lvn_batch batch = {.size = 2, .image = x};
    lvni_nn_step step;
    lvni_nn_step_begin(&step, 2.0);
    step.host = &batch;
    ctx->at = (lvni_tensor_position){.training = true};
    ctx->records = set;
    ctx->gradients = &set->gradients;
    lvni_nn_set_begin(set, 2.0);
    lvn_status status = lvn_scope_open();
    if (status == LVN_OK) {
        lvn_tensor *loss = lvn_sum(lvn_square(lvn_forward(model->root, x)));
        loss = lvn_mul_scalar(loss, lvn_number_value(((const net *)model->root)->number, NULL));
        loss = lvn_mul(loss, lvn_number_tensor(((const net *)model->root)->number, NULL));
        lvn_tensor *rows = lvn_sum(lvn_step_host(&step.now)->image);
        lvn_log(&step.now, "loss", loss);
        lvn_log_weighted(&step.now, "loss", loss, 3.0);
        lvn_log_weighted_by(&step.now, "loss", loss, rows);
        lvn_step_weigh(&step.now, 3.0);
        lvn_step_weigh_by(&step.now, rows);
        const lvn_status back = loss == NULL ? LVN_OK : lvn_backward(loss);
        status = lvn_scope_close();
        if (status == LVN_OK) {
            status = back;
        }
    }
    ctx->records = ctx->gradients = NULL;
    return status;
}

/* As after a validation. */
static lvn_status follow_up(const lvni_nn_model *model)
{
    lvni_nn_step step;
    float value[8];
    const lvn_buffer *buffer = model->buffers[0];
    assert_true(buffer->numel <= 8);
    lvni_nn_step_begin(&step, 2.0);
    lvn_log_number(&step.now, "gain", 0.5);
    for (int i = 0; i < 8; i++) {
        value[i] = (float)lvn_step_mean(&step.now, "gain");
    }
    return lvn_buffer_write(buffer, value, buffer->numel);
}

static lvn_status build_and_step(const void *argument)
{
    (void)argument;
    if (lvni_tensor_ctx_get() == NULL) {
        return lvn_last_error()->code;
    }
    lvni_nn_model *model = NULL;
    lvni_nn_set *set = NULL;
    lvn_tensor *x = NULL;
    lvn_status status = lvni_nn_model_build(&net_class, NULL, 1, &model);
    if (status == LVN_OK) {
        lvni_nn_model_lay_records(model, 1, 2);
        status = lvni_nn_set_create(model, &set);
    }
    if (status == LVN_OK) {
        x = lvn_tensor_create(LVN_F32, LVN_SHAPE(2, 6, 6, 3));
        status = x == NULL ? lvn_last_error()->code : one_micro_batch(model, set, x);
    }
    status = status == LVN_OK ? follow_up(model) : status;
    lvn_release(x);
    lvni_nn_set_destroy(set);
    lvni_nn_model_destroy(model);
    return status;
}

/* ---- a folder of images ---- */

static char folder[32];

static void make_folder(const void *argument)
{
    (void)argument;
    static const uint8_t grey[8 * 8 * 3] = {99};
    char path[80];
    snprintf(folder, sizeof folder, "/tmp/levin-sweep-XXXXXX");
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%c", folder, 'a' + i);
        assert_int_equal(lvni_core_mkdirs(path), LVN_OK);
        snprintf(path, sizeof path, "%s/%c/1.png", folder, 'a' + i);
        assert_int_equal(lvni_data_png_write(path, grey, 8, 8), LVN_OK);
    }
}

static void drop_folder(const void *argument)
{
    (void)argument;
    char path[80];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%c/1.png", folder, 'a' + i);
        (void)unlink(path);
        snprintf(path, sizeof path, "%s/%c", folder, 'a' + i);
        (void)rmdir(path);
    }
    (void)rmdir(folder);
}

static lvn_status read_one(const lvn_dataset *data)
{
    static _Thread_local float image[6 * 6 * 3], other[6 * 6 * 3];
    int64_t label;
    const lvn_sample_key key = {.seed = 1, .sample = 1, .training = true};
    LVN_ARG(lvn_sample_uniform(&key, 0, 0) < 1.0, "not in [0, 1)");
    return data->cls->get(data, &key, (void *const[]){image, &label, other});
}

static lvn_status open_and_read(const void *argument)
{
    (void)argument;
    lvn_dataset *data =
        LVN_IMAGE_FOLDER(folder, .resize = 6, .views = 2, .blur = 1.0, .part = LVN_IMAGES_TRAIN);
    const lvn_status status = data == NULL ? lvn_last_error()->code : read_one(data);
    lvn_dataset_destroy(data);
    return status;
}

static const scenario rows[] = {
    {.calls =
         "builder_status builder_arguments builder_child builder_parameter builder_set_init "
         "builder_couple "
         "builder_block builder_buffer builder_queue_with builder_follow_with "
         "builder_function builder_momentum builder_number_with number_value number_tensor "
         "queue_filled "
         "buffer_value "
         "buffer_push is_training set_training forward log "
         "nn_conv2d_with nn_conv_transpose2d_with nn_conv1d_with nn_unet_with nn_linear_with "
         "nn_batch_norm_with nn_layer_norm_with nn_dropout forward_residual nn_gru_cell_with "
         "nn_gru_cell_step nn_lstm_cell_with nn_lstm_cell_step step_host step_weigh "
         "step_weigh_by log_weighted log_weighted_by step_mean log_number buffer_write nn_prelu",
     .run = build_and_step,
     .goes_on = true},
    {.calls = "image_folder_open_with dataset_destroy sample_uniform",
     .run = open_and_read,
     .before = make_folder,
     .after = drop_folder},
};

const scenario_table sweep_modules = {rows, sizeof rows / sizeof *rows};

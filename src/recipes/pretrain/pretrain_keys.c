/* Keys of the recipe pretrain (pretrain.h), under the names of LightlyTrain's, and the defaults of
 * its methods. */
#include "recipes/pretrain/pretrain.h"

#include "core/error.h"
#include "core/str.h"
#include "images/image_data.h"
#include "run/options.h"
#include "run/run_dir.h"

#include <stdio.h>
#include <string.h>

enum { CLASSES = 1000 }; /* of the classifier that files of backbones have, not trained */

/* What LightlyTrain's optimizers begin from, where it is not what the keys have. */
static const lvni_pretrain_optim usual[] = {
    {"sgd", "optim.weight_decay=1e-4"},
    {"lars", "optim.lr=0.3 optim.momentum=0 optim.weight_decay=0"},
};

static const lvni_core_option pretrain_rows[] = {
    {.name = "method",
     .type = LVNI_OPT_CHOICE,
     .choices = "simclr|dino|dinov2|distillation|distillationv3|distillationv2|distillationv1",
     .fallback = "simclr",
     .help = "What is learned from images alone; simclr: to find the other view of an image among "
             "all views of the batch; dino: to predict from a view the output that a slower copy "
             "of the network has for another; dinov2: beside it, of patches that are masked; "
             "distillation: what a larger "
             "network, method_args.teacher, sees."},
    {.name = "model.name",
     .type = LVNI_OPT_CHOICE,
     .choices = "cnn|" LVNI_ZOO_BACKBONES "|_vittest14",
     .respell = lvni_nn_zoo_respell,
     .help =
         "Backbone, also as torchvision/resnet50, timm/vit_tiny_patch16_224, "
         "dino_vits16, dinov2/vits14-notpretrained, or dinov2/vits14 with its weights=; needed."},
    LVNI_OPTION_ALIAS("model", "model.name"),
    {.name = "model.drop_path",
     .type = LVNI_OPT_FLOAT,
     .range = LVNI_FROM_TO_BELOW(0, 1),
     .flags = LVNI_OPT_AUTO,
     .help = "Probability that an image passes a half of a transformer's layer, or a block of a "
             "ConvNeXt or EfficientNet, by in training (stochastic depth): of all layers for "
             "DINOv2's, else of the "
             "last one, less in front of it; auto: 0.3 for published weights of DINOv2, else 0.1 "
             "(vits14, convnext_tiny), 0.2 (vitb14, EfficientNets), 0.4 (convnext_small), 0.5 (its "
             "larger ones), or "
             "0."},
    LVNI_OPTION_ALIAS("model_args.drop_path_rate", "model.drop_path"),
    {.name = "embed_dim",
     .type = LVNI_OPT_INT,
     .range = LVNI_BETWEEN(1, 65536),
     .flags = LVNI_OPT_AUTO,
     .help = "Numbers that a layer behind the backbone's pooling gives, which is not exported; "
             "null: no such layer."},
    LVNI_OPTION_ALIAS("optim_args.lr", "optim.lr"),
    LVNI_OPTION_ALIAS("optim_args.momentum", "optim.momentum"),
    LVNI_OPTION_ALIAS("optim_args.dampening", "optim.dampening"),
    LVNI_OPTION_ALIAS("optim_args.nesterov", "optim.nesterov"),
    LVNI_OPTION_ALIAS("optim_args.weight_decay", "optim.weight_decay"),
    LVNI_OPTION_ALIAS("optim_args.betas", "optim.betas"),
    LVNI_OPTION_ALIAS("optim_args.eps", "optim.eps"),
    LVNI_OPTION_ALIAS("optim_args.trust_coefficient", "optim.trust_coefficient"),
    LVNI_OPTION_ALIAS("resume_interrupted", "resume"),
    LVNI_OPTION_ALIAS("checkpoint", "weights"),
    LVNI_OPTION_ALIAS("loader_args.batch_size", "batch_size_per_device"),
    LVNI_OPTION_ALIAS("loader_args.on_error", "on_error"),
    LVNI_OPTION_ALIAS("loader_args.num_workers", "num_workers"),
    LVNI_OPTION_ALIAS("trainer_args.accelerator", "accelerator"),
    LVNI_OPTION_ALIAS("trainer_args.devices", "devices"),
    LVNI_OPTION_ALIAS("trainer_args.precision", "precision"),
    LVNI_OPTION_ALIAS("trainer_args.max_steps", "max_steps"),
    LVNI_OPTION_ALIAS("trainer_args.max_epochs", "max_epochs"),
    LVNI_OPTION_ALIAS("trainer_args.max_time", "max_time"),
    LVNI_OPTION_ALIAS("trainer_args.log_every_n_steps", "log_every_n_steps"),
    LVNI_OPTION_ALIAS("trainer_args.limit_train_batches", "limit_train_batches"),
    LVNI_OPTION_ALIAS("trainer_args.gradient_clip_val", "gradient_clip_val"),
    LVNI_OPTION_ALIAS("trainer_args.accumulate_grad_batches", "accumulate_grad_batches"),
    LVNI_OPTION_ALIAS("callbacks.early_stopping.monitor", "early_stopping.monitor"),
    LVNI_OPTION_ALIAS("callbacks.early_stopping.mode", "early_stopping.mode"),
    LVNI_OPTION_ALIAS("callbacks.early_stopping.patience", "early_stopping.patience"),
    LVNI_OPTION_ALIAS("callbacks.model_checkpoint.every_n_epochs", "checkpoint.every_n_epochs"),
    LVNI_OPTION_ALIAS("callbacks.model_checkpoint.monitor", "checkpoint.monitor"),
    LVNI_OPTION_ALIAS("callbacks.model_checkpoint.mode", "checkpoint.mode"),
    LVNI_OPTION_ALIAS("callbacks.model_checkpoint.save_top_k", "checkpoint.save_top_k"),
};
static const lvni_core_option_table pretrain_options = LVNI_OPTION_TABLE("pretrain", pretrain_rows);

const lvni_core_option_table *const lvni_pretrain_train_keys[] = {&pretrain_options,
                                                                  &lvni_pretrain_method_options,
                                                                  &lvni_images_options,
                                                                  &lvni_pretrain_transform_options,
                                                                  &lvni_pretrain_held_options,
                                                                  &lvni_run_options,
                                                                  &lvni_run_batch_options,
                                                                  &lvni_run_optim_table,
                                                                  &lvni_run_loop_options,
                                                                  &lvni_run_checkpoint_options,
                                                                  NULL};

/* What a saved run has need not be given again. */
static void need(lvni_core_config *c, const char *key, const char *name, const char *what)
{
    if (!lvni_core_config_is_set(c, key) && !lvni_core_config_is_mistaken(c, key) &&
        !lvni_core_config_is_on(c, "resume")) {
        lvni_core_config_add_mistake(c, "`%s` is missing: %s", name, what);
    }
}

static lvn_status load_optim(lvni_core_config *c, const lvni_pretrain_optim *row, size_t n)
{
    const char *name = lvni_core_config_str(c, "optim.name");
    for (size_t i = 0; i < n && row[i].name != NULL; i++) {
        LVN_TRY(strcmp(row[i].name, name) == 0 ? lvni_core_config_load_job(c, row[i].defaults)
                                               : LVN_OK);
    }
    return LVN_OK;
}

/* LightlyTrain's resume_interrupted=true stands in scripts that begin a run, too. */
static lvn_status begin_or_resume(lvni_core_config *c)
{
    const char *out = lvni_core_config_str(c, "out"), *weights = lvni_core_config_str(c, "weights");
    if (!lvni_core_config_is_on(c, "resume") ||
        strcmp(lvni_core_config_spelled(c, "resume"), "resume_interrupted") != 0) {
        return LVN_OK;
    }
    if (weights != NULL) {
        lvni_core_config_add_mistake(c,
                                     "`resume_interrupted` (true) and `checkpoint` (%s): the first "
                                     "continues a run, the second begins one; give one of the two",
                                     weights);
    }
    return out == NULL || !lvni_run_dir_is_unused(out)
               ? LVN_OK
               : lvni_core_config_set(c, "resume", "false", LVNI_PRETRAIN_BEGINS);
}

lvn_status lvni_pretrain_prepare_export(lvni_core_config *c)
{
    LVN_TRY(begin_or_resume(c));
    const char *name = lvni_core_config_str(c, "method");
    const lvni_pretrain_method *m = name == NULL ? NULL : lvni_pretrain_method_find(name);
    const char *model = lvni_core_config_str(c, "model.name");
    const bool transformer = model != NULL && lvni_nn_zoo_is_transformer(model);
    if (model != NULL && lvni_nn_zoo_has_paths(model)) { /* tokens and scales have axes */
        char text[64];
        lvni_core_format(text, sizeof text, "optim.decay_of=weights model.drop_path=%g",
                         lvni_nn_zoo_drop_path(model));
        LVN_TRY(lvni_core_config_load_job(c, text));
    }
    if (m != NULL) {
        char optimizer[32];
        snprintf(optimizer, sizeof optimizer, "optim=%s", m->optimizer);
        LVN_TRY(lvni_core_config_load_job(c, optimizer));
        LVN_TRY(lvni_core_config_load_job(c, m->defaults));
        LVN_TRY(load_optim(c, usual, sizeof usual / sizeof *usual));
        LVN_TRY(load_optim(c, m->optim, sizeof m->optim / sizeof *m->optim));
        LVN_TRY(transformer && m->transformer_adamw != NULL &&
                        strcmp(lvni_core_config_str(c, "optim.name"), "adamw") == 0
                    ? lvni_core_config_load_job(c, m->transformer_adamw)
                    : LVN_OK);
        lvni_pretrain_method_check(c, m);
    }
    if (lvni_core_config_is_set(c, "batch_size_per_device")) {
        LVN_TRY(lvni_core_config_load_job(c, "batch_size=null"));
    }
    if (lvni_core_config_is_set(c, "knn.data") &&
        lvni_core_config_layer(c, "checkpoint.monitor") <= LVNI_LAYER_JOB) {
        LVN_TRY(lvni_core_config_load_job(c, "checkpoint.monitor=val/knn checkpoint.mode=max"));
    }
    need(c, "model.name", "model", "the backbone, as in model=torchvision/resnet18");
    return LVN_OK;
}

lvn_status lvni_pretrain_prepare(lvni_core_config *c)
{
    need(c, "data", "data", "a folder with images anywhere below it, or builtin:shapes");
    return lvni_pretrain_prepare_export(c);
}

/* 0: a trained model of a method that has no such number, or one that is resolved later. */
static double number_or_zero(const lvni_core_config *c, const char *key)
{
    return lvni_core_config_is_set(c, key) ? lvni_core_config_float(c, key) : 0.0;
}

static lvni_pretrain_dino_settings read_dino(const lvni_core_config *c)
{
    static const char steps[] = "method_args.warmup_teacher_temp_steps";
    lvni_pretrain_dino_settings d = {
        .bottleneck_dim = lvni_core_config_int(c, "method_args.bottleneck_dim"),
        .norm_last_layer = lvni_core_config_bool(c, "method_args.norm_last_layer"),
        .student_temp = lvni_core_config_float(c, "method_args.student_temp"),
        .teacher_temp = number_or_zero(c, "method_args.teacher_temp"),
        .warmup_teacher_temp = number_or_zero(c, "method_args.warmup_teacher_temp"),
        .center_momentum = lvni_core_config_float(c, "method_args.center_momentum"),
        .momentum_start = number_or_zero(c, "method_args.momentum_start"),
        .momentum_end = lvni_core_config_float(c, "method_args.momentum_end"),
        .warmup_teacher_temp_steps =
            lvni_core_config_is_set(c, steps) ? lvni_core_config_int(c, steps) : 0};
    if (d.warmup_teacher_temp_steps == 0) {
        d.warmup_teacher_temp = d.teacher_temp;
    }
    return d;
}

/* The digit at the end of the method's name; none: 3. */
static lvni_pretrain_distill_settings read_distill(const lvni_core_config *c)
{
    const char *method = lvni_core_config_str(c, "method"), *v = strstr(method, "ionv");
    const bool first = v != NULL && v[4] == '1';
    return (lvni_pretrain_distill_settings){
        .version = v != NULL ? v[4] - '0' : 3,
        .teacher = lvni_core_config_str(c, "method_args.teacher"),
        .queue_size = (int64_t)number_or_zero(c, "method_args.queue_size"),
        .temperature_global = lvni_core_config_float(c, first ? "method_args.temperature"
                                                              : "method_args.temperature_global"),
        .temperature_local = lvni_core_config_float(c, "method_args.temperature_local"),
        .loss_local_weight = lvni_core_config_float(c, "method_args.loss_local_weight"),
        .n_teacher_blocks = (int64_t)number_or_zero(c, "method_args.n_teacher_blocks"),
        .n_projection_layers = lvni_core_config_int(c, "method_args.n_projection_layers"),
        .projection_hidden_dim = lvni_core_config_int(c, "method_args.projection_hidden_dim")};
}

void lvni_pretrain_read_settings(const lvni_core_config *c, lvni_pretrain_settings *s)
{
    size_t n;
    const int64_t *size = lvni_core_config_int_list(c, "transform_args.image_size", &n);
    *s = (lvni_pretrain_settings){
        .model = lvni_core_config_str(c, "model.name"),
        .backbone = {.image_size = n > 0 ? (int)size[0] : 0,
                     .n_classes = CLASSES,
                     .drop_path = lvni_core_config_is_set(c, "model.drop_path")
                                      ? lvni_core_config_float(c, "model.drop_path")
                                      : 0.0,
                     .channels = lvni_pretrain_channels(c),
                     .masked = strcmp(lvni_core_config_str(c, "method"), "dinov2") == 0},
        .embed_dim =
            lvni_core_config_is_set(c, "embed_dim") ? (int)lvni_core_config_int(c, "embed_dim") : 0,
        .hidden_dim = lvni_core_config_int(c, "method_args.hidden_dim"),
        .output_dim = (int64_t)number_or_zero(c, "method_args.output_dim"),
        .num_layers = lvni_core_config_int(c, "method_args.num_layers"),
        .batch_norm = lvni_core_config_bool(c, "method_args.batch_norm"),
        .temperature = lvni_core_config_float(c, "method_args.temperature"),
        .dino = read_dino(c),
        .dinov2 = lvni_pretrain_read_dinov2(c),
        .distill = read_distill(c)};
}

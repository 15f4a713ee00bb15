/* The methods of pretraining as rows (pretrain.h): their keys, numbers to begin from, modules that
 * are exported. */
#include "recipes/pretrain/pretrain.h"

#include <string.h>

#define RATES "reference_batch_size lr_scale_method "

#define DISTILLATION                                                                               \
    .views = "distillation", .cls = &lvni_pretrain_distill, .exported_part = "backbone",           \
    .advice = "a teacher of another network", .check = lvni_pretrain_check_distillation,           \
    .resolve = lvni_pretrain_resolve_distillation
#define DISTILLATION_RATES                                                                         \
    "optim.reference_batch_size=1536 optim.lr_scale_method=sqrt gradient_clip_val=1"
#define DISTILLATION_V3                                                                            \
    .args = "teacher teacher_weights teacher_sha256 queue_size temperature_global "                \
            "temperature_local loss_local_weight " RATES,                                          \
    .optimizer = "adamw", .defaults = DISTILLATION_RATES,                                          \
    .optim = {{"adamw", "optim.lr=0.0005 optim.weight_decay=1e-6"},                                \
              {"lars", "optim.lr=1.8 optim.momentum=0.9 optim.weight_decay=1e-6"}},                \
    .transformer_adamw = "optim.weight_decay=0.04", DISTILLATION

#define TEACHER_TEMP "a method_args.teacher_temp near 0.04, a method_args.center_momentum near 0.9"

static const lvni_pretrain_method methods[] = {
    {.name = "simclr",
     .views = "simclr",
     .cls = &lvni_pretrain_simclr,
     .args = "hidden_dim output_dim num_layers batch_norm temperature " RATES,
     .optimizer = "sgd",
     .defaults = "optim.reference_batch_size=256",
     .optim = {{"sgd", "optim.lr=0.3"}},
     .exported_part = "backbone",
     .advice = "a method_args.temperature near 0.1",
     .resolve = lvni_pretrain_resolve_simclr},
    {.name = "dino",
     .views = "dino",
     .cls = &lvni_pretrain_dino,
     .args = "hidden_dim output_dim batch_norm bottleneck_dim norm_last_layer student_temp "
             "teacher_temp warmup_teacher_temp warmup_teacher_temp_steps "
             "warmup_teacher_temp_max_steps_fraction center_momentum momentum_start momentum_end "
             "student_freeze_last_layer_steps warmup_steps warmup_max_steps_fraction "
             "weight_decay_start weight_decay_end " RATES,
     .optimizer = "sgd",
     .defaults = "optim.reference_batch_size=256 optim.decay_of=not_norm_bias gradient_clip_val=3 "
                 "method_args.batch_norm=false",
     .optim = {{"sgd", "optim.lr=0.03"}, {"adamw", "optim.lr=0.0005 optim.weight_decay=0.04"}},
     .of_these = true,
     .limits_steps = true,
     .exported_part = "teacher.backbone",
     .trained_part = "student.backbone",
     .advice = TEACHER_TEMP,
     .resolve = lvni_pretrain_resolve_dino},
    {.name = "dinov2",
     .views = "dinov2",
     .cls = &lvni_pretrain_dinov2,
     .args = "hidden_dim output_dim bottleneck_dim dino_bottleneck_dim ibot_separate_head "
             "ibot_bottleneck_dim dino_loss_weight ibot_loss_weight koleo_loss_weight "
             "center_method center_momentum student_temp teacher_temp_start teacher_temp_end "
             "teacher_temp_warmup_steps warmup_teacher_temp teacher_temp "
             "warmup_teacher_temp_steps warmup_teacher_temp_max_steps_fraction momentum_start "
             "momentum_end mask_probability mask_ratio_min mask_ratio_max "
             "student_freeze_last_layer_steps student_freeze_backbone_steps layerwise_decay "
             "patch_embed_lr_multiplier min_lr warmup_steps weight_decay_start weight_decay_end "
             "gradient_clip_val " RATES,
     .optimizer = "adamw",
     .defaults = "optim.reference_batch_size=1024 optim.lr_scale_method=sqrt "
                 "optim.decay_of=not_norm_bias_scale optim.layer_decay=0.9 "
                 "optim.weight_decay_end=0.4 gradient_clip_val=3",
     .optim = {{"adamw", "optim.lr=0.004 optim.weight_decay=0.04"}},
     .of_these = true,
     .limits_steps = true,
     .usual_steps = 125000,
     .exported_part = "teacher.backbone",
     .trained_part = "student.backbone",
     .advice = TEACHER_TEMP,
     .check = lvni_pretrain_check_dinov2,
     .resolve = lvni_pretrain_resolve_dinov2},
    /* the first one is the third, as there */
    {.name = "distillation", DISTILLATION_V3},
    {.name = "distillationv3", DISTILLATION_V3},
    {.name = "distillationv2",
     .args = "teacher teacher_weights teacher_sha256 n_teacher_blocks n_projection_layers "
             "projection_hidden_dim " RATES,
     .optimizer = "lars",
     .defaults = DISTILLATION_RATES,
     .optim = {{"lars", "optim.lr=9 optim.momentum=0.9 optim.weight_decay=1e-6"}},
     DISTILLATION},
    {.name = "distillationv1",
     .args = "teacher teacher_weights teacher_sha256 queue_size temperature " RATES,
     .optimizer = "lars",
     .defaults = DISTILLATION_RATES " method_args.temperature=0.07",
     .optim = {{"lars", "optim.lr=1.8 optim.momentum=0.9 optim.weight_decay=1e-6"},
               {"adamw", "optim.lr=0.0005 optim.weight_decay=0"}},
     DISTILLATION},
};

const lvni_pretrain_method *lvni_pretrain_method_find(const char *name)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (strcmp(methods[i].name, name) == 0) {
            return &methods[i];
        }
    }
    return NULL;
}

/* The methods of pretraining as rows, their keys method_args.*, and what of these follows from the
 * data and the run's length (pretrain.h). */
#include "recipes/pretrain/pretrain.h"

#include "core/error.h"
#include "core/math.h"
#include "core/str.h"
#include "log/run_log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char FRONT[] = "method_args.";

/* Where the value that is not given depends on the method. */
#define OF_METHOD .flags = LVNI_OPT_AUTO

static const lvni_core_option rows[] = {
    {.name = "method_args.hidden_dim",
     .type = LVNI_OPT_INT,
     .fallback = "2048",
     .range = LVNI_BETWEEN(1, 65536),
     .help = "Width of the head's hidden layers."},
    {.name = "method_args.output_dim",
     .type = LVNI_OPT_INT,
     .range = LVNI_BETWEEN(1, 1048576),
     OF_METHOD,
     .help = "Numbers in which two views are compared; auto: 128, of dino 1024 to 65536 by the "
             "number of images, of dinov2 65536."},
    {.name = "method_args.num_layers",
     .type = LVNI_OPT_INT,
     .fallback = "2",
     .range = LVNI_BETWEEN(1, 8),
     .help = "Linear layers of the head (simclr)."},
    {.name = "method_args.batch_norm",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .help = "The head's layers have batch norm, and no bias; of dino false, where not given."},
    {.name = "method_args.temperature",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.1",
     .range = LVNI_ABOVE(0),
     .help = "What cosines are divided by in the loss (simclr, distillationv1: 0.07)."},
    {.name = "method_args.bottleneck_dim",
     .type = LVNI_OPT_INT,
     .fallback = "256",
     .range = LVNI_BETWEEN(1, 65536),
     .help = "Width in front of the head's last layer (dino, dinov2)."},
    {.name = "method_args.norm_last_layer",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .help = "The rows of the head's last layer have length 1; false: they learn a length (dino)."},
    {.name = "method_args.student_temp",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.1",
     .range = LVNI_ABOVE(0),
     .help = "What the student's outputs are divided by (dino, dinov2)."},
    {.name = "method_args.teacher_temp",
     .type = LVNI_OPT_FLOAT,
     .range = LVNI_ABOVE(0),
     OF_METHOD,
     .help = "What the teacher's centred outputs are divided by; auto: 0.02 to 0.07 by the number "
             "of images (dino), 0.07 (dinov2)."},
    {.name = "method_args.warmup_teacher_temp",
     .type = LVNI_OPT_FLOAT,
     .range = LVNI_ABOVE(0),
     OF_METHOD,
     .help =
         "The same in the first step; auto: 0.02 to 0.04 by teacher_temp (dino), 0.04 (dinov2)."},
    {.name = "method_args.warmup_teacher_temp_steps",
     .type = LVNI_OPT_INT,
     .unit = "steps",
     .range = LVNI_AT_LEAST(0),
     OF_METHOD,
     .help = "On the way from the first to teacher_temp; auto: 37500, at most the part below of "
             "the run (dino, dinov2)."},
    {.name = "method_args.warmup_teacher_temp_max_steps_fraction",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.3",
     .range = LVNI_BETWEEN(0, 1),
     .help = "Part of the run that an automatic warmup_teacher_temp_steps has at most (dino, "
             "dinov2)."},
    {.name = "method_args.center_momentum",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.9",
     .range = LVNI_BETWEEN(0, 1),
     .help = "What the centre of the teacher's outputs keeps of itself in a step (dino, dinov2)."},
    {.name = "method_args.momentum_start",
     .type = LVNI_OPT_FLOAT,
     .range = LVNI_BETWEEN(1e-6, 1),
     OF_METHOD,
     .help = "What the teacher keeps of itself in the first step; auto: 0.99 to 0.996 by the "
             "number of images (dino), 0.992 (dinov2)."},
    {.name = "method_args.momentum_end",
     .type = LVNI_OPT_FLOAT,
     .fallback = "1",
     .range = LVNI_BETWEEN(1e-6, 1),
     .help = "The same in the last step (dino, dinov2)."},
    {.name = "method_args.student_freeze_last_layer_steps",
     .type = LVNI_OPT_INT,
     .unit = "steps",
     .range = LVNI_AT_LEAST(0),
     OF_METHOD,
     .help = "Steps in which the head's last layer has the learning rate 0; auto: 1250, at most 30 "
             "% of the run (dino, dinov2)."},
    {.name = "method_args.warmup_steps",
     .type = LVNI_OPT_INT,
     .unit = "steps",
     .fallback = "12500",
     .range = LVNI_AT_LEAST(0),
     .help = "Steps in which the learning rate rises, where scheduler.warmup_steps is not given "
             "(dino, dinov2)."},
    {.name = "method_args.warmup_max_steps_fraction",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.1",
     .range = LVNI_BETWEEN(0, 1),
     .help = "Part of the run that they have at most (dino)."},
    {.name = "method_args.teacher",
     .type = LVNI_OPT_CHOICE,
     .choices = "cnn|" LVNI_ZOO_BACKBONES,
     .respell = lvni_nn_zoo_respell,
     .help = "The network that is learned from (distillation); needed."},
    {.name = "method_args.teacher_weights",
     .type = LVNI_OPT_PATH,
     .help = "Its file, read at every start (distillation): what weights= takes; needed."},
    {.name = "method_args.teacher_sha256",
     .type = LVNI_OPT_STRING,
     .flags = LVNI_OPT_AUTO,
     .help =
         "SHA-256 of that file, or its first digits; auto: that of the file at the first start, "
         "which a resumed run compares (distillation)."},
    {.name = "method_args.queue_size",
     .type = LVNI_OPT_INT,
     .unit = "images",
     .range = LVNI_BETWEEN(1, 1048576),
     OF_METHOD,
     .help = "Images whose features each one is compared with; auto: 16 to 8192 by the number of "
             "images (distillation, distillationv1)."},
    {.name = "method_args.temperature_global",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.07",
     .range = LVNI_ABOVE(0),
     .help = "What cosines with other images are divided by (distillation)."},
    {.name = "method_args.temperature_local",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.07",
     .range = LVNI_ABOVE(0),
     .help = "What cosines within an image are divided by (distillation)."},
    {.name = "method_args.loss_local_weight",
     .type = LVNI_OPT_FLOAT,
     .fallback = "1",
     .range = LVNI_AT_LEAST(0),
     .help = "Factor of the loss within an image (distillation)."},
    {.name = "method_args.n_teacher_blocks",
     .type = LVNI_OPT_INT,
     .range = LVNI_BETWEEN(1, LVNI_ZOO_LAYERS),
     OF_METHOD,
     .help = "Last layers of the teacher whose maps are learned; auto: 2 of a transformer, else 1 "
             "(distillationv2)."},
    {.name = "method_args.n_projection_layers",
     .type = LVNI_OPT_INT,
     .fallback = "1",
     .range = LVNI_BETWEEN(1, 8),
     .help = "Linear layers of the head (distillationv2)."},
    {.name = "method_args.projection_hidden_dim",
     .type = LVNI_OPT_INT,
     .fallback = "2048",
     .range = LVNI_BETWEEN(1, 65536),
     .help = "Width between them (distillationv2)."},
    {.name = "method_args.ibot_separate_head",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Patches have a head of their own, else that of class tokens (dinov2)."},
    {.name = "method_args.ibot_bottleneck_dim",
     .type = LVNI_OPT_INT,
     .fallback = "256",
     .range = LVNI_BETWEEN(1, 65536),
     .needs = "method_args.ibot_separate_head",
     .help = "bottleneck_dim of that head (dinov2)."},
    {.name = "method_args.dino_loss_weight",
     .type = LVNI_OPT_FLOAT,
     .fallback = "1",
     .range = LVNI_AT_LEAST(0),
     .help = "Factor of the loss of class tokens (dinov2)."},
    {.name = "method_args.ibot_loss_weight",
     .type = LVNI_OPT_FLOAT,
     .fallback = "1",
     .range = LVNI_AT_LEAST(0),
     .help = "Factor of the loss of masked patches (dinov2)."},
    {.name = "method_args.koleo_loss_weight",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.1",
     .range = LVNI_AT_LEAST(0),
     .help = "Factor of the loss that keeps the class tokens of a micro-batch apart (dinov2)."},
    {.name = "method_args.center_method",
     .type = LVNI_OPT_CHOICE,
     .choices = "softmax|sinkhorn_knopp",
     .fallback = "softmax",
     .help = "How the teacher's answers are kept from being all alike: a centre of earlier steps "
             "is taken off (softmax), or those of the step are spread evenly (dinov2)."},
    {.name = "method_args.mask_probability",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.5",
     .range = LVNI_BETWEEN(0, 1),
     .help = "Part of the large views of a step that the student sees with masks (dinov2)."},
    {.name = "method_args.mask_ratio_min",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.1",
     .range = LVNI_BETWEEN(0, 1),
     .help = "Least part of the patches that a mask hides (dinov2)."},
    {.name = "method_args.mask_ratio_max",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.5",
     .range = LVNI_BETWEEN(0, 1),
     .help = "Largest part of the patches that a mask hides (dinov2)."},
    {.name = "method_args.student_freeze_backbone_steps",
     .type = LVNI_OPT_INT,
     .unit = "steps",
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .help = "Steps in which the backbone has the learning rate 0: for weights= without heads "
             "(dinov2)."},
    {.name = "method_args.patch_embed_lr_multiplier",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.2",
     .range = LVNI_AT_LEAST(0),
     .help = "Factor on the learning rate of the layer that makes tokens of patches (dinov2)."},
    {.name = "method_args.min_lr",
     .type = LVNI_OPT_FLOAT,
     .fallback = "1e-6",
     .range = LVNI_AT_LEAST(0),
     .needs = "scheduler.name=cosine|linear|polynomial|restarts",
     .help = "Learning rate at the end of the run, where scheduler.end_factor is not given "
             "(dinov2)."},
    {.name = "exact",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Automatic numbers of steps as LightlyTrain has them: not limited to a part of a "
             "short run (dino, dinov2)."},
    LVNI_OPTION_ALIAS("method_args.dino_bottleneck_dim", "method_args.bottleneck_dim"),
    LVNI_OPTION_ALIAS("method_args.teacher_temp_start", "method_args.warmup_teacher_temp"),
    LVNI_OPTION_ALIAS("method_args.teacher_temp_end", "method_args.teacher_temp"),
    LVNI_OPTION_ALIAS("method_args.teacher_temp_warmup_steps",
                      "method_args.warmup_teacher_temp_steps"),
    LVNI_OPTION_ALIAS("method_args.layerwise_decay", "optim.layer_decay"),
    LVNI_OPTION_ALIAS("method_args.gradient_clip_val", "gradient_clip_val"),
    LVNI_OPTION_ALIAS("method_args.reference_batch_size", "optim.reference_batch_size"),
    LVNI_OPTION_ALIAS("method_args.lr_scale_method", "optim.lr_scale_method"),
    LVNI_OPTION_ALIAS("method_args.weight_decay_start", "optim.weight_decay"),
    LVNI_OPTION_ALIAS("method_args.weight_decay_end", "optim.weight_decay_end"),
};
const lvni_core_option_table lvni_pretrain_method_options = LVNI_OPTION_TABLE("method", rows);

/* ---- automatic values ---- */

lvn_status lvni_pretrain_set_number(lvni_core_config *c, const char *key, double value)
{
    lvni_core_str text = {0};
    lvni_core_str_double(&text, value);
    lvn_status s = lvni_core_str_status(&text);
    if (s == LVN_OK) {
        s = lvni_core_config_set(c, key, lvni_core_str_text(&text), "method's default");
    }
    lvni_core_str_free(&text);
    return s;
}

/* Where it is not given. */
lvn_status lvni_pretrain_resolve(lvni_core_config *c, const char *key, double value)
{
    return lvni_core_config_is_set(c, key) ? LVN_OK : lvni_pretrain_set_number(c, key, value);
}

static lvn_status resolve_simclr(lvni_core_config *c, const lvni_pretrain_scale *scale)
{
    (void)scale;
    return lvni_pretrain_resolve(c, "method_args.output_dim", 128.0);
}

/* Along a line from (0, from) to (1, to), not beyond its ends, with so many digits. */
static double between(double part, double from, double to, double digits)
{
    const double t = part < 0.0 ? 0.0 : part > 1.0 ? 1.0 : part;
    return rint((from + (to - from) * t) * digits) / digits;
}

static int64_t dino_outputs(int64_t images)
{
    static const struct {
        int64_t images, outputs;
    } below[] = {{20000, 1024}, {50000, 2048}, {100000, 4096}, {200000, 16384}, {500000, 32768}};
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        if (images < below[i].images) {
            return below[i].outputs;
        }
    }
    return 65536;
}

/* `usual` steps, and at most a part of the run. */
static int64_t limited(const lvni_core_config *c, int64_t usual, int64_t steps, double part)
{
    const bool whole = lvni_core_config_bool(c, "exact") || steps == INT64_MAX;
    const double most = part * (double)steps;
    return whole || (double)usual <= most ? usual : (int64_t)most;
}

/* Between the sizes of a small set and of ImageNet, as LightlyTrain has them. */
static lvn_status resolve_by_images(lvni_core_config *c, int64_t images)
{
    const double part = ((double)images - 20000.0) / 980000.0;
    LVN_TRY(lvni_pretrain_resolve(c, "method_args.output_dim", (double)dino_outputs(images)));
    LVN_TRY(lvni_pretrain_resolve(c, "method_args.teacher_temp", between(part, 0.02, 0.07, 100.0)));
    const double temp = lvni_core_config_float(c, "method_args.teacher_temp"),
                 first = between((temp - 0.02) / 0.05, 0.02, 0.04, 100.0);
    LVN_TRY(
        lvni_pretrain_resolve(c, "method_args.warmup_teacher_temp", first < temp ? first : temp));
    return lvni_pretrain_resolve(c, "method_args.momentum_start",
                                 between(part, 0.99, 0.996, 1000.0));
}

static void report_limited(const lvni_core_config *c, const char *key, int64_t usual, double part)
{
    const int64_t is = lvni_core_config_int(c, key);
    if (is < usual) {
        lvni_log_line(LVNI_LOG_INFO,
                      "%s=%lld: %g %% of the run, which is too short for the usual %lld "
                      "(exact=true: those)",
                      key, (long long)is, 100.0 * part, (long long)usual);
    }
}

lvn_status lvni_pretrain_resolve_limited(lvni_core_config *c, const char *key, int64_t usual,
                                         const lvni_pretrain_scale *scale, double part)
{
    if (lvni_core_config_is_set(c, key)) {
        return LVN_OK;
    }
    LVN_TRY(lvni_pretrain_set_number(c, key, (double)limited(c, usual, scale->steps, part)));
    report_limited(c, key, usual, part);
    return LVN_OK;
}

lvn_status lvni_pretrain_add_rule(lvni_core_config *c, const char *list, const char *pattern,
                                  double number, const char *of)
{
    const size_t length = strlen(pattern);
    lvni_core_str text = {0};
    lvn_status s = LVN_OK;
    size_t n;
    const char *const *given = lvni_core_config_str_list(c, list, &n);
    lvni_core_str_append(&text, "[");
    for (size_t i = 0; i < n; i++) {
        if (strncmp(given[i], pattern, length) == 0 && given[i][length] == '=') {
            goto done;
        }
        lvni_core_str_printf(&text, "%s,", given[i]);
    }
    lvni_core_str_printf(&text, "%s=", pattern);
    lvni_core_str_double(&text, number);
    lvni_core_str_append(&text, "]");
    s = lvni_core_str_status(&text);
    if (s == LVN_OK) {
        s = lvni_core_config_set(c, list, lvni_core_str_text(&text), of);
    }
done:
    lvni_core_str_free(&text);
    return s;
}

/* The last layer's rate is 0 at first. */
static lvn_status hold_last_layer(lvni_core_config *c)
{
    static const char key[] = "method_args.student_freeze_last_layer_steps";
    const int64_t steps = lvni_core_config_int(c, key);
    return steps == 0 ? LVN_OK
                      : lvni_pretrain_add_rule(c, "lr_zero_until", LVNI_PRETRAIN_LAST_LAYER,
                                               (double)steps, key);
}

static lvn_status resolve_dino(lvni_core_config *c, const lvni_pretrain_scale *scale)
{
    static const char rise[] = "scheduler.warmup_steps";
    LVN_TRY(resolve_by_images(c, scale->images));
    LVN_TRY(lvni_pretrain_resolve_limited(
        c, "method_args.warmup_teacher_temp_steps", 37500, scale,
        lvni_core_config_float(c, "method_args.warmup_teacher_temp_max_steps_fraction")));
    LVN_TRY(lvni_pretrain_resolve_limited(c, "method_args.student_freeze_last_layer_steps", 1250,
                                          scale, 0.3));
    LVN_TRY(hold_last_layer(c));
    if (!lvni_core_config_is_set(c, rise) &&
        lvni_core_config_int(c, "scheduler.warmup_epochs") == 0) {
        const double part = lvni_core_config_float(c, "method_args.warmup_max_steps_fraction"),
                     most = part * (double)scale->steps;
        const int64_t usual = lvni_core_config_int(c, "method_args.warmup_steps");
        LVN_TRY(lvni_pretrain_set_number(
            c, rise,
            scale->steps == INT64_MAX || (double)usual <= most ? (double)usual : floor(most)));
    }
    return LVN_OK;
}

/* ---- distillation ---- */

static lvn_status resolve_distillation(lvni_core_config *c, const lvni_pretrain_scale *scale)
{
    static const struct {
        int64_t images, queue;
    } below[] = {{50, 16},    {100, 32},    {250, 64},     {500, 128},   {1000, 256},
                 {2000, 512}, {4000, 1024}, {10000, 2048}, {20000, 4096}};
    static const char key[] = "method_args.queue_size", blocks[] = "method_args.n_teacher_blocks";
    const char *teacher = lvni_core_config_str(c, "method_args.teacher");
    /* only what the method has: config.yaml is read again, where other keys are mistakes */
    if (strcmp(lvni_core_config_str(c, "method"), "distillationv2") == 0) {
        return lvni_pretrain_resolve(
            c, blocks, teacher != NULL && lvni_nn_zoo_is_transformer(teacher) ? 2.0 : 1.0);
    }
    if (lvni_core_config_is_set(c, key) && lvni_core_config_int(c, key) >= scale->images) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s=%lld: the queue must be smaller than the set of images, which has %lld  (%s)",
                 key, (long long)lvni_core_config_int(c, key), (long long)scale->images,
                 lvni_core_config_origin(c, key));
    }
    double queue = 8192.0;
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        if (scale->images < below[i].images) {
            queue = (double)below[i].queue;
            break;
        }
    }
    return lvni_pretrain_resolve(c, key, queue);
}

static void check_distillation(lvni_core_config *c)
{
    if (lvni_core_config_is_on(c, "resume")) {
        return;
    }
    if (!lvni_core_config_is_set(c, "method_args.teacher") &&
        !lvni_core_config_is_mistaken(c, "method_args.teacher")) {
        lvni_core_config_add_mistake(
            c, "`method_args.teacher` is missing: the network to learn from, as in "
               "method_args.teacher=torchvision/resnet50");
    }
    const char *teacher = lvni_core_config_str(c, "method_args.teacher");
    if (teacher != NULL && lvni_core_config_is_set(c, "method_args.n_teacher_blocks") &&
        lvni_core_config_int(c, "method_args.n_teacher_blocks") > 1 &&
        !lvni_nn_zoo_is_transformer(teacher)) {
        lvni_core_config_add_mistake(
            c,
            "method_args.n_teacher_blocks=%lld: the layers of %s have maps of different sizes; "
            "only transformers have more than one to give",
            (long long)lvni_core_config_int(c, "method_args.n_teacher_blocks"), teacher);
    }
    if (!lvni_core_config_is_set(c, "method_args.teacher_weights")) {
        lvni_core_config_add_mistake(
            c, "`method_args.teacher_weights` is missing: a file with the teacher's weights, as "
               "torchvision, timm, DINOv2 or levin write it; docs/weights.md has where pretrained "
               "ones come from");
    }
}

/* ---- the rows ---- */

#define RATES "reference_batch_size lr_scale_method "

#define DISTILLATION                                                                               \
    .views = "distillation", .cls = &lvni_pretrain_distill, .exported_part = "backbone",           \
    .advice = "a teacher of another network", .check = check_distillation,                         \
    .resolve = resolve_distillation
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
     .resolve = resolve_simclr},
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
     .resolve = resolve_dino},
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

/* ---- mistakes ---- */

/* Does the text of a row's fallback mean what the key has? */
static bool is_fallback(const lvni_core_config *c, const lvni_core_option *row)
{
    const char *text = row->fallback;
    switch (row->type) {
    case LVNI_OPT_INT: return text != NULL && lvni_core_config_int(c, row->name) == atoll(text);
    case LVNI_OPT_FLOAT:
        return text != NULL &&
               !(lvni_core_config_float(c, row->name) != lvni_core_strtod(text, NULL));
    case LVNI_OPT_CHOICE:
        return text != NULL && strcmp(lvni_core_config_str(c, row->name), text) == 0;
    case LVNI_OPT_BOOL:
        return text != NULL && lvni_core_config_bool(c, row->name) == (strcmp(text, "true") == 0);
    default: return false;
    }
}

bool lvni_pretrain_is_given(const lvni_core_config *c, const lvni_core_option *row)
{
    const char *key = row->alias_of != NULL ? row->alias_of : row->name;
    const lvni_core_layer layer = lvni_core_config_layer(c, key);
    if (row->alias_of != NULL && strcmp(lvni_core_config_spelled(c, key), row->name) != 0) {
        return false;
    }
    /* the config.yaml of a run has all keys */
    return layer == LVNI_LAYER_ARGUMENTS ||
           (layer == LVNI_LAYER_FILE && lvni_core_config_is_set(c, key) &&
            (row->alias_of != NULL || !is_fallback(c, row)));
}

static bool has(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = strstr(words, word); at != NULL; at = strstr(at + 1, word)) {
        if ((at == words || at[-1] == ' ') && at[n] == ' ') {
            return true;
        }
    }
    return false;
}

static bool trains_with(const lvni_pretrain_method *m, const char *optimizer)
{
    bool found = !m->of_these;
    for (size_t i = 0; i < sizeof m->optim / sizeof *m->optim && m->optim[i].name != NULL; i++) {
        found = found || strcmp(m->optim[i].name, optimizer) == 0;
    }
    return found;
}

/* key: as it is written; of: the row that it sets. A message has room for a few names. */
static void add_foreign(lvni_core_config *c, const lvni_pretrain_method *m, const char *key,
                        const char *of)
{
    enum { MOST = 400 };
    const int n = (int)strlen(m->args) - 1;
    lvni_core_config_add_mistake(c, "%s: method=%s has no such number; %s%.*s  (%s)", key, m->name,
                                 n > MOST ? "`levin help train.pretrain` shows what it has"
                                          : "it has ",
                                 n > MOST ? 0 : n, m->args, lvni_core_config_origin(c, of));
}

void lvni_pretrain_method_check(lvni_core_config *c, const lvni_pretrain_method *m)
{
    if (lvni_core_config_is_on(c, "resume")) { /* the saved run has it */
        return;
    }
    if (lvni_core_config_bool(c, "exact") && !m->limits_steps) {
        lvni_core_config_add_mistake(c,
                                     "exact=true: method=%s has no limited number of steps  (%s)",
                                     m->name, lvni_core_config_origin(c, "exact"));
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *key = rows[i].name;
        if (strncmp(key, FRONT, sizeof FRONT - 1) != 0 || has(m->args, key + sizeof FRONT - 1)) {
            continue;
        }
        if (lvni_pretrain_is_given(c, &rows[i])) {
            add_foreign(c, m, key, rows[i].alias_of != NULL ? rows[i].alias_of : key);
        }
    }
    if (m->check != NULL) {
        m->check(c);
    }
    const char *optimizer = lvni_core_config_str(c, "optim.name");
    if (optimizer != NULL && !trains_with(m, optimizer)) {
        const char *second = m->optim[1].name;
        lvni_core_config_add_mistake(c, "optim=%s: method=%s trains with optim=%s%s%s  (%s)",
                                     optimizer, m->name, m->optim[0].name,
                                     second == NULL ? "" : " or ", second == NULL ? "" : second,
                                     lvni_core_config_origin(c, "optim.name"));
    }
}

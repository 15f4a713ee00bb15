/* What method=dinov2 makes of its keys (pretrain.h): automatic values, mistakes, settings. */
#include "recipes/pretrain/pretrain.h"

#include "run/options.h"

#include <string.h>

#define KEY(name) "method_args." name
#define END "scheduler.end_factor"

/* The rates of the student's parts. */
static lvn_status add_rules(lvni_core_config *c)
{
    static const char backbone[] = KEY("student_freeze_backbone_steps"),
                      last[] = KEY("student_freeze_last_layer_steps"),
                      patches[] = KEY("patch_embed_lr_multiplier");
    const double hold_backbone = (double)lvni_core_config_int(c, backbone),
                 hold_last = (double)lvni_core_config_int(c, last),
                 factor = lvni_core_config_float(c, patches);
    if (hold_backbone > 0.0) {
        LVN_TRY(lvni_pretrain_add_rule(c, "lr_zero_until", "student.backbone", hold_backbone,
                                       backbone));
    }
    if (hold_last > 0.0) {
        LVN_TRY(
            lvni_pretrain_add_rule(c, "lr_zero_until", LVNI_PRETRAIN_LAST_LAYER, hold_last, last));
    }
    if (hold_last > 0.0 && lvni_core_config_bool(c, KEY("ibot_separate_head"))) {
        LVN_TRY(lvni_pretrain_add_rule(
            c, "lr_zero_until", "student.ibot_projection_head.last_layer.*", hold_last, last));
    }
    return factor != 1.0 ? lvni_pretrain_add_rule(c, "lr_scale", "student.backbone.patch_embed",
                                                  factor, patches)
                         : LVN_OK;
}

/* batch 0: of weights that are only exported, which have no rate. */
static lvn_status check_least(const lvni_core_config *c, double least, double peak, int64_t batch)
{
    static const char key[] = KEY("min_lr");
    if (batch > 0 && least > peak && lvni_core_config_layer(c, key) > LVNI_LAYER_JOB) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s=%g is above the largest learning rate, %.4g, which is optim.lr=%g for batches "
                 "of %lld: give a smaller min_lr, or a larger optim.lr  (%s)",
                 key, least, peak, lvni_core_config_float(c, "optim.lr"), (long long)batch,
                 lvni_core_config_origin(c, key));
    }
    return LVN_OK;
}

/* The rate rises, at most up to the last step but one, and falls to min_lr. */
static lvn_status resolve_schedule(lvni_core_config *c, const lvni_pretrain_scale *scale)
{
    const int64_t usual = lvni_core_config_int(c, KEY("warmup_steps")),
                  most = scale->steps > 0 ? scale->steps - 1 : 0;
    LVN_TRY(lvni_pretrain_resolve_warmup(c, (double)(usual < most ? usual : most)));
    const double peak =
        lvni_core_config_float(c, "optim.lr") * lvni_run_rate_scale(c, scale->batch);
    const double least = lvni_core_config_float(c, KEY("min_lr"));
    const lvni_core_layer layer = lvni_core_config_layer(c, END);
    if (layer > LVNI_LAYER_JOB && layer >= lvni_core_config_layer(c, KEY("min_lr"))) {
        return LVN_OK; /* config.yaml has both */
    }
    LVN_TRY(check_least(c, least, peak, scale->batch));
    return lvni_pretrain_set_number(c, END, least < peak ? least / peak : 1.0);
}

lvn_status lvni_pretrain_resolve_dinov2(lvni_core_config *c, const lvni_pretrain_scale *scale)
{
    LVN_TRY(lvni_pretrain_resolve(c, KEY("output_dim"), 65536.0));
    LVN_TRY(lvni_pretrain_resolve(c, KEY("teacher_temp"), 0.07));
    LVN_TRY(lvni_pretrain_resolve(c, KEY("warmup_teacher_temp"), 0.04));
    LVN_TRY(lvni_pretrain_resolve(c, KEY("momentum_start"), 0.992));
    LVN_TRY(lvni_pretrain_resolve_limited(
        c, KEY("warmup_teacher_temp_steps"), 37500, scale,
        lvni_core_config_float(c, KEY("warmup_teacher_temp_max_steps_fraction"))));
    LVN_TRY(
        lvni_pretrain_resolve_limited(c, KEY("student_freeze_last_layer_steps"), 1250, scale, 0.3));
    LVN_TRY(add_rules(c));
    return resolve_schedule(c, scale);
}

void lvni_pretrain_check_dinov2(lvni_core_config *c)
{
    static const char least[] = KEY("mask_ratio_min"), most[] = KEY("mask_ratio_max");
    const char *model = lvni_core_config_str(c, "model.name");
    if (model != NULL && !lvni_nn_zoo_has_masks(model)) {
        lvni_core_config_add_mistake(
            c,
            "model=%s: method=dinov2 masks patches, which networks of DINOv2 alone can have: give "
            "model=dinov2/vits14-notpretrained, or method=dino, which trains any network  (%s)",
            model, lvni_core_config_origin(c, "model.name"));
    }
    if (lvni_core_config_is_set(c, "embed_dim")) {
        lvni_core_config_add_mistake(c,
                                     "embed_dim=%lld: method=dinov2 has its heads right behind the "
                                     "backbone; leave it out  (%s)",
                                     (long long)lvni_core_config_int(c, "embed_dim"),
                                     lvni_core_config_origin(c, "embed_dim"));
    }
    if (lvni_core_config_layer(c, KEY("min_lr")) == LVNI_LAYER_ARGUMENTS &&
        lvni_core_config_layer(c, END) == LVNI_LAYER_ARGUMENTS) {
        lvni_core_config_add_mistake(
            c,
            KEY("min_lr") "=%g and " END "=%g: both are the learning rate at the end of the run, "
                          "the second as a part of the largest; give one of the two  (%s)",
            lvni_core_config_float(c, KEY("min_lr")), lvni_core_config_float(c, END),
            lvni_core_config_origin(c, END));
    }
    if (lvni_core_config_float(c, least) > lvni_core_config_float(c, most)) {
        lvni_core_config_add_mistake(c, "%s=%g is above %s=%g: exchange the two  (%s)", least,
                                     lvni_core_config_float(c, least), most,
                                     lvni_core_config_float(c, most),
                                     lvni_core_config_origin(c, least));
    }
}

lvni_pretrain_dinov2_settings lvni_pretrain_read_dinov2(const lvni_core_config *c)
{
    return (lvni_pretrain_dinov2_settings){
        .ibot_separate_head = lvni_core_config_bool(c, KEY("ibot_separate_head")),
        .sinkhorn_knopp =
            strcmp(lvni_core_config_str(c, KEY("center_method")), "sinkhorn_knopp") == 0,
        .ibot_bottleneck_dim = lvni_core_config_int(c, KEY("ibot_bottleneck_dim")),
        .dino_loss_weight = lvni_core_config_float(c, KEY("dino_loss_weight")),
        .ibot_loss_weight = lvni_core_config_float(c, KEY("ibot_loss_weight")),
        .koleo_loss_weight = lvni_core_config_float(c, KEY("koleo_loss_weight")),
        .mask_probability = lvni_core_config_float(c, KEY("mask_probability")),
        .mask_ratio_min = lvni_core_config_float(c, KEY("mask_ratio_min")),
        .mask_ratio_max = lvni_core_config_float(c, KEY("mask_ratio_max"))};
}

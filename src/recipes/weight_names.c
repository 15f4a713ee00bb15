/* Names of weights (weight_names.h). Residual networks are called the same everywhere; vision
 * transformers are not. Sources: the keys of state_dict() of timm 1.0 and of torchvision 0.12 and
 * 0.29. */
#include "recipes/weight_names.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Names begin so here, and there. */
typedef struct rule {
    const char *ours, *theirs;
} rule;

static const char layer[] = "encoder.layers.encoder_layer_";

static const rule timm_top[] = {
    {"class_token", "cls_token"},
    {"encoder.pos_embedding", "pos_embed"},
    {"conv_proj.", "patch_embed.proj."},
    {"encoder.ln.", "norm."},
    {"heads.head.", "head."},
    {NULL, NULL},
};
static const rule timm_layer[] = {
    {"ln_1.", "norm1."},
    {"ln_2.", "norm2."},
    {"self_attention.in_proj_",
     "attn.qkv."}, /* queries, keys, values one after the other, as here */
    {"self_attention.out_proj.", "attn.proj."},
    {"mlp.0.", "mlp.fc1."},
    {"mlp.3.", "mlp.fc2."},
    {NULL, NULL},
};
static const rule none[] = {{NULL, NULL}};
static const rule old_layer[] = {
    {"mlp.0.", "mlp.linear_1."}, {"mlp.3.", "mlp.linear_2."}, {NULL, NULL}};

static const struct {
    const char *label, *layer;
    const rule *top, *in_layer;
} namings[LVNI_NAMINGS] = {
    [LVNI_NAMING_OWN] = {"", layer, none, none},
    [LVNI_NAMING_TIMM] = {"timm", "blocks.", timm_top, timm_layer},
    [LVNI_NAMING_OLD] = {"torchvision before 0.13", layer, none, old_layer},
};

const char *lvni_recipes_naming_label(int naming)
{
    return namings[naming].label;
}

/* The rule's name for what `name` begins with, and what is left of the name. */
static const char *apply(const rule *rules, const char *name, const char **rest)
{
    for (; rules->ours != NULL; rules++) {
        const size_t n = strlen(rules->ours);
        if (strncmp(name, rules->ours, n) == 0) {
            *rest = name + n;
            return rules->theirs;
        }
    }
    *rest = name;
    return "";
}

void lvni_recipes_naming_translate(int naming, const char *name, char out[LVNI_WEIGHT_NAME])
{
    const char *rest, *begin;
    const size_t n = sizeof layer - 1;
    if (strncmp(name, layer, n) != 0) {
        begin = apply(namings[naming].top, name, &rest);
        snprintf(out, LVNI_WEIGHT_NAME, "%s%s", begin, rest);
        return;
    }
    size_t digits = 0;
    while (isdigit((unsigned char)name[n + digits])) {
        digits++;
    }
    const char *dot = name[n + digits] == '.' ? "." : "";
    begin = apply(namings[naming].in_layer, name + n + digits + strlen(dot), &rest);
    snprintf(out, LVNI_WEIGHT_NAME, "%s%.*s%s%s%s", namings[naming].layer, (int)digits, name + n,
             dot, begin, rest);
}

const char *lvni_recipes_naming_foreign(const char *name)
{
    static const struct {
        const char *part, *what;
    } known[] = {
        {"reg_token", "register tokens"},
        {"register_tokens", "register tokens"},
        {"dist_token", "a distillation token"},
        {"head_dist.", "a distillation token"},
        {"norm_pre.", "a norm before its layers"},
        {"fc_norm.", "the mean of all tokens, not the class token"},
        {"pre_logits.", "a layer before the last"},
        {"attn_pool.", "attention pooling"},
        {".ls1.", "layer scale"},
        {".gamma_1", "layer scale"},
        {".q_norm.", "normalised queries"},
        {".se.", "squeeze and excitation"},
        {"conv1.0.", "a stem of three convolutions, as timm's resnet50d"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *at = strstr(name, known[i].part);
        if (at != NULL && (known[i].part[0] == '.' || at == name)) {
            return known[i].what;
        }
    }
    return NULL;
}

bool lvni_recipes_naming_is_network(const char *model, const char *architecture)
{
    if (strncmp(model, "vit_", 4) == 0) {
        return strncmp(architecture, "vit_", 4) == 0 || strncmp(architecture, "deit_", 5) == 0;
    }
    if (strncmp(model, "resnet", 6) == 0) {
        return strcmp(architecture, model) == 0 ||
               (strncmp(architecture, "tv_", 3) == 0 && strcmp(architecture + 3, model) == 0);
    }
    return true;
}

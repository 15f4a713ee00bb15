/* Files that weights= takes: which one it is, and what its tensors are called. weights.c loads
 * them.
 *
 * Residual networks are called the same everywhere but in Lightning Pose; vision transformers are
 * not. Sources: the keys of state_dict() of timm 1.0, of torchvision 0.12 and 0.29, of Hugging
 * Face's ViTModel and ViTMAEForPreTraining, and of Lightning Pose 2.4.3. */
#include "run/weights.h"

#include "ckpt/checkpoint.h"
#include "ckpt/torch_file.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/json_read.h"
#include "core/vfs.h"
#include "run/run_dir.h"

#include <ctype.h>
#include <fcntl.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- names ---- */

/* Names begin so here, and there. */
typedef struct rule {
    const char *ours, *theirs;
} rule;

static const char layer[] = "encoder.layers.encoder_layer_", timm_layers[] = "blocks.";

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
static const rule hugging_face_top[] = {
    {"cls_token", "embeddings.cls_token"},
    {"pos_embed", "embeddings.position_embeddings"},
    {"patch_embed.proj.", "embeddings.patch_embeddings.projection."},
    {"norm.", "layernorm."},
    {NULL, NULL},
};
static const rule hugging_face_layer[] = {
    {"norm1.", "layernorm_before."},
    {"norm2.", "layernorm_after."},
    {"attn.qkv.", "attention.attention.query."}, /* the first of the parts */
    {"attn.q.", "attention.attention.query."},
    {"attn.k.", "attention.attention.key."},
    {"attn.v.", "attention.attention.value."},
    {"attn.proj.", "attention.output.dense."},
    {"mlp.fc1.", "intermediate.dense."},
    {"mlp.fc2.", "output.dense."},
    {NULL, NULL},
};
/* Within a model that has it as its backbone. */
#define OF_BACKBONE "backbone.vision_encoder."
static const rule vision_encoder_top[] = {
    {"backbone.cls_token", OF_BACKBONE "embeddings.cls_token"},
    {"backbone.pos_embed", OF_BACKBONE "embeddings.position_embeddings"},
    {"backbone.patch_embed.proj.", OF_BACKBONE "embeddings.patch_embeddings.projection."},
    {"backbone.norm.", OF_BACKBONE "layernorm."},
    {NULL, NULL},
};
static const rule none[] = {{NULL, NULL}};
static const rule old_layer[] = {
    {"mlp.0.", "mlp.linear_1."}, {"mlp.3.", "mlp.linear_2."}, {NULL, NULL}};
/* The backbone is a sequence there, of the parts of torchvision's network in their order; alone,
 * and within a model that has it as its backbone. */
static const rule lightning_pose[] = {
    {"backbone.features.", "backbone.0."},
    {"features.", "0."},
    {"backbone.conv1.", "backbone.0."},
    {"backbone.bn1.", "backbone.1."},
    {"backbone.layer1.", "backbone.4."},
    {"backbone.layer2.", "backbone.5."},
    {"backbone.layer3.", "backbone.6."},
    {"backbone.layer4.", "backbone.7."},
    {"conv1.", "0."},
    {"bn1.", "1."},
    {"layer1.", "4."},
    {"layer2.", "5."},
    {"layer3.", "6."},
    {"layer4.", "7."},
    {NULL, NULL},
};

static const struct {
    const char *label, *ours, *theirs; /* what layers are called in front of their numbers */
    const rule *top, *in_layer;
    bool back; /* the rules are read from right to left */
} namings[LVNI_NAMINGS] = {
    [LVNI_NAMING_OWN] = {"", layer, layer, none, none},
    [LVNI_NAMING_TIMM] = {"timm", layer, timm_layers, timm_top, timm_layer},
    [LVNI_NAMING_OLD] = {"torchvision before 0.13", layer, layer, none, old_layer},
    [LVNI_NAMING_TORCHVISION] = {"torchvision", timm_layers, layer, timm_top, timm_layer, true},
    [LVNI_NAMING_LIGHTNING_POSE] = {"Lightning Pose", layer, layer, lightning_pose, none},
    [LVNI_NAMING_HUGGING_FACE] = {"Hugging Face", timm_layers, "encoder.layer.", hugging_face_top,
                                  hugging_face_layer},
    [LVNI_NAMING_VISION_ENCODER] = {"Lightning Pose", "backbone.blocks.",
                                    OF_BACKBONE "encoder.layer.", vision_encoder_top,
                                    hugging_face_layer},
    [LVNI_NAMING_RCGAN] = {"rcGAN", layer, layer, none, none},
};

const char *lvni_run_naming_label(int naming)
{
    return namings[naming].label;
}

/* The rule's name for what `name` begins with, and what is left of the name. */
static const char *apply(const rule *rules, bool back, const char *name, const char **rest)
{
    for (; rules->ours != NULL; rules++) {
        const char *from = back ? rules->theirs : rules->ours;
        const size_t n = strlen(from);
        if (strncmp(name, from, n) == 0) {
            *rest = name + n;
            return back ? rules->ours : rules->theirs;
        }
    }
    *rest = name;
    return "";
}

void lvni_run_naming_translate(int naming, const char *name, char out[LVNI_WEIGHT_NAME])
{
    const char *rest, *begin;
    const size_t n = strlen(namings[naming].ours);
    const bool back = namings[naming].back;
    if (naming == LVNI_NAMING_RCGAN) {
        lvni_run_rcgan_name(name, out);
        return;
    }
    if (strncmp(name, namings[naming].ours, n) != 0) {
        begin = apply(namings[naming].top, back, name, &rest);
        snprintf(out, LVNI_WEIGHT_NAME, "%s%s", begin, rest);
        return;
    }
    size_t digits = 0;
    while (isdigit((unsigned char)name[n + digits])) {
        digits++;
    }
    const char *dot = name[n + digits] == '.' ? "." : "";
    begin = apply(namings[naming].in_layer, back, name + n + digits + strlen(dot), &rest);
    snprintf(out, LVNI_WEIGHT_NAME, "%s%.*s%s%s%s", namings[naming].theirs, (int)digits, name + n,
             dot, begin, rest);
}

int lvni_run_naming_part(int naming, const char *name, int i, char out[LVNI_WEIGHT_NAME])
{
    static const char *const parts[] = {"q", "k", "v"};
    enum { PARTS = sizeof parts / sizeof *parts };
    static const char joint[] = "attn.qkv.";
    const bool apart = naming == LVNI_NAMING_HUGGING_FACE || naming == LVNI_NAMING_VISION_ENCODER;
    const char *at = apart ? strstr(name, joint) : NULL;
    if (at == NULL || i >= PARTS) {
        snprintf(out, LVNI_WEIGHT_NAME, "%s", name);
        return 1;
    }
    snprintf(out, LVNI_WEIGHT_NAME, "%.*sattn.%s.%s", (int)(at - name), name, parts[i],
             at + sizeof joint - 1);
    return PARTS;
}

bool lvni_run_naming_lacks(int naming, const char *buffer)
{
    return naming == LVNI_NAMING_RCGAN && strchr(buffer, '.') == NULL;
}

const char *lvni_run_naming_foreign(const char *name)
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

/* timm's config.json calls the network so; can its tensors fit `model` by name and be another
 * network all the same (anti-aliasing has no weights)? */
static bool is_network(const char *model, const char *architecture)
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

/* ---- files ---- */

/* What a folder of Hugging Face has, the best first. */
static const char *const in_folder[] = {"model.safetensors", "model.safetensors.index.json",
                                        "pytorch_model.bin", "pytorch_model.bin.index.json"};
enum { IN_FOLDER = sizeof in_folder / sizeof *in_folder };

lvn_status lvni_run_weights_find(const char *path, char **name)
{
    for (int i = 0; i < IN_FOLDER; i++) {
        *name = lvni_run_path_join(path, in_folder[i]);
        if (*name == NULL) {
            return LVN_ERR_MEMORY;
        }
        if (lvni_core_path_exists(*name)) {
            return LVN_OK;
        }
        lvni_core_free(*name);
        *name = NULL;
    }
    return lvni_ckpt_file_of(path, name);
}

/* The bytes before the name in a path to one of these files; -1: to another. */
static int folder_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    for (int i = 0; i < IN_FOLDER; i++) {
        if (strcmp(name, in_folder[i]) == 0) {
            return (int)(name - path);
        }
    }
    return -1;
}

/* By timm's configuration beside the file, where there is one; another file of that name is
 * ignored. */
static lvn_status check_network(const char *name, const char *model)
{
    char path[4096];
    const int n = folder_bytes(name);
    if (n < 0 || snprintf(path, sizeof path, "%.*sconfig.json", n, name) >= (int)sizeof path ||
        !lvni_core_path_exists(path)) {
        return LVN_OK;
    }
    char *text;
    size_t bytes;
    LVN_TRY(lvni_core_regular_read(path, (size_t)1 << 20, &text, &bytes));
    json_t *config = lvni_core_json_try(text, LVNI_JSON_FILE);
    const char *architecture = json_string_value(json_object_get(config, "architecture"));
    lvn_status s = LVN_OK;
    if (architecture != NULL && !is_network(model, architecture)) {
        s = lvn_error_set(
            LVN_ERR_MISMATCH, __FILE__, __LINE__,
            "%s is of another network than model=%s: %s beside it has architecture=%s", name, model,
            path, architecture);
    }
    json_decref(config);
    lvni_core_free(text);
    return s;
}

lvn_status lvni_run_weights_open(const lvni_run_weights_source *from, const char *model,
                                 char **name, const char **inner, lvni_ckpt_st_file **file)
{
    if (lvni_run_source_is_address(from->path)) {
        return lvni_run_source_refuse(from->path, model);
    }
    LVN_TRY(lvni_run_weights_find(from->path, name));
    lvn_status s;
    LVNI_TRY_DONE(s, check_network(*name, model));
    LVNI_TRY_DONE(s, lvni_run_source_check(*name));
    s = lvni_ckpt_tensors_open(*name, LVNI_ST_VERIFY, from->key, inner, file);
done:
    if (s != LVN_OK) {
        lvni_core_free(*name);
        *name = NULL;
    }
    return s;
}

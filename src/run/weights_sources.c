/* Where pretrained weights of the built-in networks come from, for messages, and whether a file of
 * such a name is what was published (weights.h). The addresses are those of torchvision's
 * WeightsEnum classes, of timm's default_cfgs, of DINO's and DINOv2's hubconf, of MAE's
 * demonstration, which Hugging Face's vit-mae-base was made of, and those of MMPose that Lightning
 * Pose 2.4.3 has; behind the last '-' most names hold the first digits of the file's
 * SHA-256. levin itself downloads nothing. */
#include "run/weights.h"

#include "core/alloc.h"
#include "core/sha256.h"
#include "core/vfs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct source {
    const char *model, *folder, *file, *more; /* more: keys beside weights= */
} source;

static const char torchvision[] = "https://download.pytorch.org/models/";

#define MMPOSE "https://download.openmmlab.com/mmpose/"
#define DINO "https://dl.fbaipublicfiles.com/dino/"
#define MAE "https://dl.fbaipublicfiles.com/mae/"
#define DINOV2 "https://dl.fbaipublicfiles.com/dinov2/"

static const source sources[] = {
    {"resnet18", torchvision, "resnet18-f37072fd.pth", ""},
    {"resnet34", torchvision, "resnet34-b627a593.pth", ""},
    {"resnet50", torchvision, "resnet50-11ad3fa6.pth", " eval.preset=torchvision_v2"},
    {"resnet50", torchvision, "resnet50-0676ba61.pth", ""},
    {"resnet101", torchvision, "resnet101-cd907fc2.pth", " eval.preset=torchvision_v2"},
    {"resnet101", torchvision, "resnet101-63fe2227.pth", ""},
    {"resnet152", torchvision, "resnet152-f82ba261.pth", " eval.preset=torchvision_v2"},
    {"resnet152", torchvision, "resnet152-394f9c45.pth", ""},
    {"convnext_tiny", torchvision, "convnext_tiny-983f1562.pth", " eval.resize=236"},
    {"convnext_small", torchvision, "convnext_small-0c510722.pth", " eval.resize=230"},
    {"convnext_base", torchvision, "convnext_base-6075fbad.pth", " eval.resize=232"},
    {"convnext_large", torchvision, "convnext_large-ea097f82.pth", " eval.resize=232"},
    {"efficientnet_b0", torchvision, "efficientnet_b0_rwightman-7f5810bc.pth",
     " eval.resize=256 eval.filter=bicubic"},
    {"efficientnet_b1", torchvision, "efficientnet_b1-c27df63c.pth",
     " eval.crop=240 eval.resize=255"},
    {"efficientnet_b2", torchvision, "efficientnet_b2_rwightman-c35c1473.pth",
     " eval.crop=288 eval.resize=288 eval.filter=bicubic"},
    {"vit_b_16", torchvision, "vit_b_16-c867db91.pth", ""},
    {"vit_s_16", "https://dl.fbaipublicfiles.com/deit/", "deit_small_patch16_224-cd65a155.pth",
     " eval.preset=deit"},
    {"dino_vits16", DINO "dino_deitsmall16_pretrain/", "dino_deitsmall16_pretrain.pth", ""},
    {"dino_vitb16", DINO "dino_vitbase16_pretrain/", "dino_vitbase16_pretrain.pth", ""},
    {"vits_dino", DINO "dino_deitsmall16_pretrain/", "dino_deitsmall16_pretrain.pth", ""},
    {"vitb_dino", DINO "dino_vitbase16_pretrain/", "dino_vitbase16_pretrain.pth", ""},
    {"vitb_imagenet", MAE "visualize/", "mae_visualize_vit_base.pth", ""},
    {"vits14", DINOV2 "dinov2_vits14/", "dinov2_vits14_reg4_pretrain.pth", ""},
    {"vitb14", DINOV2 "dinov2_vitb14/", "dinov2_vitb14_reg4_pretrain.pth", ""},
    {"vits14-noreg", DINOV2 "dinov2_vits14/", "dinov2_vits14_pretrain.pth", ""},
    {"vitb14-noreg", DINOV2 "dinov2_vitb14/", "dinov2_vitb14_pretrain.pth", ""},
    {"resnet50_animal_apose", MMPOSE "animal/resnet/",
     "res50_animalpose_256x256-e1f30bff_20210426.pth", ""},
    {"resnet50_animal_ap10k", MMPOSE "animal/resnet/", "res50_ap10k_256x256-35760eb8_20211029.pth",
     ""},
    {"resnet50_human_jhmdb", MMPOSE "top_down/resnet/",
     "res50_jhmdb_sub3_256x256-c4ec1a0b_20201122.pth", ""},
    {"resnet50_human_res_rle", MMPOSE "top_down/deeppose/",
     "deeppose_res50_mpii_256x256_rle-5f92a619_20220504.pth", ""},
    {"resnet50_human_top_res", MMPOSE "top_down/resnet/",
     "res50_mpii_256x256-418ffc88_20200812.pth", ""},
    {"resnet50_human_hand", MMPOSE "hand/resnet/", "res50_onehand10k_256x256-739c8639_20210330.pth",
     ""},
};
enum { SOURCES = sizeof sources / sizeof *sources };

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* By the name of the file, else the first of the model; NULL: none. */
static const source *find_source(const char *path, const char *model)
{
    for (int i = 0; i < SOURCES; i++) {
        if (path != NULL && strcmp(base_name(path), sources[i].file) == 0) {
            return &sources[i];
        }
    }
    for (int i = 0; i < SOURCES; i++) {
        if (model != NULL && strcmp(model, sources[i].model) == 0) {
            return &sources[i];
        }
    }
    return NULL;
}

void lvni_run_source_print(const char *path, const char *model, const char *key, lvni_core_str *out)
{
    const source *s = find_source(path, model);
    if (s != NULL) {
        lvni_core_str_printf(out, "; pretrained weights of %s: curl -LO %s%s, then %s=%s%s",
                             s->model, s->folder, s->file, key, s->file, s->more);
    }
}

lvni_run_source_place lvni_run_source_of(const char *model)
{
    const source *s = find_source(NULL, model);
    return s == NULL ? (lvni_run_source_place){0} : (lvni_run_source_place){s->folder, s->file};
}

lvn_status lvni_run_source_cached(const char *model, char **path)
{
    const lvni_run_source_place at = lvni_run_source_of(model);
    const char *own = getenv("TORCH_HOME"), *caches = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    lvni_core_str file = {0};
    *path = NULL;
    if (at.file == NULL || (own == NULL && caches == NULL && home == NULL)) {
        return LVN_OK;
    }
    if (own != NULL) {
        lvni_core_str_append(&file, own);
    } else {
        lvni_core_str_printf(&file, "%s%s/torch", caches != NULL ? caches : home,
                             caches != NULL ? "" : "/.cache");
    }
    lvni_core_str_printf(&file, "/hub/checkpoints/%s", at.file);
    const lvn_status s = lvni_core_str_status(&file);
    if (s == LVN_OK && lvni_core_path_exists(lvni_core_str_text(&file))) {
        *path = lvni_core_str_take(&file);
    }
    lvni_core_str_free(&file);
    return s;
}

bool lvni_run_source_is_address(const char *path)
{
    const size_t n =
        strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+");
    return n > 1 && strncmp(path + n, "://", 3) == 0;
}

lvn_status lvni_run_source_refuse(const char *path, const char *model)
{
    lvni_core_str advice = {0};
    const source *known = find_source(path, NULL);
    if (known == NULL) { /* of another place: fetched the same way */
        const char *name = base_name(path);
        lvni_core_str_printf(&advice, "; curl -LO %s, then weights=%s", path, name);
    }
    lvni_run_source_print(path, model, "weights", &advice);
    lvn_status s = lvni_core_str_status(&advice);
    if (s == LVN_OK) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "weights=%s: levin downloads nothing, it takes a file%s", path,
                          lvni_core_str_text(&advice));
    }
    lvni_core_str_free(&advice);
    return s;
}

static lvn_status hash_file(int fd, const char *path, char hex[LVNI_SHA256_HEX])
{
    enum { ROOM = 1 << 20 };
    lvni_core_sha256 hash;
    lvni_core_sha256_begin(&hash);
    char *room = lvni_core_alloc(LVNI_TAG_CKPT, ROOM);
    if (room == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status s = LVN_OK;
    for (ssize_t n = 1; n != 0;) {
        n = lvni_core_vfs_get()->read(fd, room, ROOM);
        if (n > 0) {
            lvni_core_sha256_add(&hash, room, (size_t)n);
        } else if (n < 0 && errno != EINTR) {
            s = lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__, "%s: cannot read: %s", path,
                              strerror(errno));
            break;
        }
    }
    lvni_core_free(room);
    lvni_core_sha256_end(&hash, hex);
    return s;
}

lvn_status lvni_run_source_check_model(const lvni_core_config *c)
{
    const char *model = lvni_core_config_str(c, "model.name");
    if (model != NULL && !lvni_nn_zoo_has_paths(model) &&
        lvni_core_config_is_set(c, "model.drop_path") &&
        lvni_core_config_float(c, "model.drop_path") > 0.0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "model.drop_path=%g (%s): model=%s has no layers that images can pass by, as "
                 "transformers, ConvNeXts and EfficientNets have; omit it",
                 lvni_core_config_float(c, "model.drop_path"),
                 lvni_core_config_origin(c, "model.drop_path"), model);
    }
    if (model == NULL || !lvni_nn_zoo_needs_weights(model) ||
        lvni_core_config_is_set(c, "weights") || lvni_core_config_is_on(c, "resume")) {
        return LVN_OK;
    }
    lvni_core_str advice = {0};
    lvni_run_source_print(NULL, model, "weights", &advice);
    lvn_status s = lvni_core_str_status(&advice);
    if (s == LVN_OK) {
        s = lvn_error_set(
            LVN_ERR_USAGE, __FILE__, __LINE__,
            "model=dinov2/%s is a pretrained network, weights= is not given, and levin "
            "downloads nothing%s; model=dinov2/%s-notpretrained begins with random "
            "weights",
            model, lvni_core_str_text(&advice), model);
    }
    lvni_core_str_free(&advice);
    return s;
}

lvn_status lvni_run_file_sha256(const char *path, char hex[LVNI_SHA256_HEX])
{
    int fd;
    uint64_t bytes;
    LVN_TRY(lvni_core_regular_open(path, &fd, &bytes));
    const lvn_status s = hash_file(fd, path, hex);
    lvni_core_vfs_get()->close(fd);
    return s;
}

lvn_status lvni_run_source_check(const char *path)
{
    const source *s = find_source(path, NULL);
    const char *dash = s == NULL ? NULL : strrchr(s->file, '-');
    if (dash == NULL) {
        return LVN_OK;
    }
    char hex[LVNI_SHA256_HEX];
    const char *digits = dash + 1;
    const int n = (int)strcspn(digits, "._");
    if (digits[n] == '_') {
        return LVN_OK; /* MMPose's: digits and a date, and what the digits are of is not published
                        */
    }
    LVN_TRY(lvni_run_file_sha256(path, hex));
    if (strncmp(hex, digits, (size_t)n) != 0) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: its SHA-256 begins with %.*s, and %.*s is what the published file of this "
                 "name has: it was not downloaded whole, or is another file; fetch it again: curl "
                 "-LO %s%s, or give it another name",
                 path, n, hex, n, digits, s->folder, s->file);
    }
    return LVN_OK;
}

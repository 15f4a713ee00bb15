/* Preprocessing of images in evaluation (image_data.h). */
#include "images/image_data.h"

#include "ckpt/checkpoint.h"
#include "ckpt/torch_file.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/json_read.h"
#include "core/str.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "run/weights.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys ---- */

#define LEAST_PCT 0.05 /* of eval.crop_pct */

static const lvni_core_option preprocess_rows[] = {
    {.name = "eval.preset",
     .type = LVNI_OPT_CHOICE,
     .choices = "torchvision|torchvision_v2|timm|deit|augreg",
     .flags = LVNI_OPT_AUTO,
     .spellings = "torchvision_v1=torchvision",
     .help = "Whose preprocessing the keys below follow; auto: that of the weights or the "
             "model in use (docs/data.md), else torchvision."},
    {.name = "eval.resize",
     .type = LVNI_OPT_INT,
     .unit = "pixels",
     .range = LVNI_BETWEEN(1, LVNI_RESAMPLE_MAX_SIDE),
     .flags = LVNI_OPT_AUTO,
     .help = "Shorter side of the resized image in evaluation; auto: of photos eval.crop / 0.875, "
             "rounded, else eval.crop."},
    LVNI_OPTION_ALIAS("val_resize_size", "eval.resize"),
    {.name = "eval.crop",
     .type = LVNI_OPT_INT,
     .unit = "pixels",
     .range = LVNI_BETWEEN(4, 2048),
     .flags = LVNI_OPT_AUTO,
     .help = "Side of the square in the middle of it that the network sees; auto: image_size."},
    LVNI_OPTION_ALIAS("val_crop_size", "eval.crop"),
    LVNI_OPTION_ALIAS("test_input_size", "eval.crop"),
    {.name = "eval.crop_pct",
     .type = LVNI_OPT_FLOAT,
     .range = {.used = true, .min = LEAST_PCT, .max = 1},
     .flags = LVNI_OPT_AUTO,
     .help = "The same as eval.resize in timm's way: eval.crop over eval.resize, which is rounded "
             "down."},
    LVNI_OPTION_ALIAS("crop_pct", "eval.crop_pct"),
    {.name = "eval.filter",
     .type = LVNI_OPT_CHOICE,
     .choices = LVNI_FILTERS,
     .flags = LVNI_OPT_AUTO,
     .help = "Filter of that resizing, as in Pillow; auto: bilinear. Random crops are bilinear."},
    LVNI_OPTION_ALIAS("interpolation", "eval.filter"),
    {.name = "normalize.mean",
     .type = LVNI_OPT_FLOAT_LIST,
     .range = LVNI_BETWEEN(-1000, 1000),
     .count = 3,
     .flags = LVNI_OPT_AUTO,
     .help = "Subtracted from red, green and blue in 0..1, in training, too; auto: "
             "[0.485,0.456,0.406]."},
    LVNI_OPTION_ALIAS("mean", "normalize.mean"),
    {.name = "normalize.std",
     .type = LVNI_OPT_FLOAT_LIST,
     .range = LVNI_BETWEEN(1e-6, 1000),
     .count = 3,
     .flags = LVNI_OPT_AUTO,
     .help = "Then they are divided by this; auto: [0.229,0.224,0.225]."},
    LVNI_OPTION_ALIAS("std", "normalize.std"),
};
const lvni_core_option_table lvni_images_preprocess_options =
    LVNI_OPTION_TABLE("evaluation of images", preprocess_rows);

#define IMAGENET .mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}
#define HALVES .mean = {0.5f, 0.5f, 0.5f}, .std = {0.5f, 0.5f, 0.5f}

enum { TORCHVISION, TORCHVISION_V2, TIMM, DEIT, AUGREG };
static const lvni_images_preprocess presets[] = {
    [TORCHVISION] = {.filter = LVNI_FILTER_BILINEAR, IMAGENET},
    [TORCHVISION_V2] = {.crop_pct = 224.0 / 232.0, .filter = LVNI_FILTER_BILINEAR, IMAGENET},
    [TIMM] = {.crop_pct = 0.95, .filter = LVNI_FILTER_BICUBIC, IMAGENET},
    [DEIT] = {.crop_pct = 0.9, .filter = LVNI_FILTER_BICUBIC, IMAGENET},
    [AUGREG] = {.crop_pct = 0.9, .filter = LVNI_FILTER_BICUBIC, HALVES},
};

static bool read_three(const json_t *array, float out[3])
{
    for (size_t i = 0; i < 3; i++) {
        out[i] = (float)json_number_value(json_array_get(array, i));
    }
    return json_array_size(array) == 3;
}

/* ---- what evaluation does, in a model card ---- */

void lvni_images_eval_write(const lvni_images_eval *e, lvni_core_str *out)
{
    lvni_core_str_printf(out, ",\"eval\":{\"resize\":%d,\"crop\":%d,\"filter\":\"%s\"", e->resize,
                         e->crop, lvni_data_filter_name(e->filter));
    lvni_core_str_printf(out, ",\"exif\":\"%s\"}", e->as_stored ? "ignore" : "apply");
    lvni_core_str_printf(out, ",\"mean\":[%.9g,%.9g,%.9g],\"std\":[%.9g,%.9g,%.9g]",
                         (double)e->mean[0], (double)e->mean[1], (double)e->mean[2],
                         (double)e->std[0], (double)e->std[1], (double)e->std[2]);
}

static lvn_status check_eval(const lvni_images_eval *e)
{
    if (e->crop < 4 || e->crop > 2048 || e->resize < 1 || e->resize > LVNI_RESAMPLE_MAX_SIDE) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "its model card has eval resize=%d and crop=%d: must be 1 to %d and 4 to 2048",
                 e->resize, e->crop, LVNI_RESAMPLE_MAX_SIDE);
    }
    for (int i = 0; i < 3; i++) {
        if (!isfinite(e->mean[i]) || !(e->std[i] >= 1e-6f && e->std[i] <= 1000.0f)) {
            LVN_FAIL(
                LVN_ERR_CORRUPT,
                "its model card has mean=%g and std=%g for colour %d: must be finite, std 1e-06 "
                "to 1000",
                (double)e->mean[i], (double)e->std[i], i);
        }
    }
    return LVN_OK;
}

lvn_status lvni_images_eval_read(const json_t *j, lvni_images_eval *e)
{
    const json_t *eval = json_object_get(j, "eval"), *part = json_object_get(j, "eval_crop");
    const char *filter = json_string_value(json_object_get(eval, "filter")),
               *exif = json_string_value(json_object_get(eval, "exif")); /* NULL: of 0.1 */
    e->as_stored = exif != NULL && strcmp(exif, "ignore") == 0;
    e->image_size = lvni_run_card_int(json_object_get(j, "image_size"));
    if (!read_three(json_object_get(j, "mean"), e->mean) ||
        !read_three(json_object_get(j, "std"), e->std)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "its model card is not complete");
    }
    if (!json_is_object(eval) && part != NULL) { /* early */
        const double crop = json_number_value(part);
        if (!(crop >= 0.01 && crop <= 1)) {
            LVN_FAIL(LVN_ERR_CORRUPT, "its model card has eval_crop=%g: must be 0.01 to 1", crop);
        }
        e->crop = e->image_size;
        e->resize = (int)floor(e->image_size / crop + 0.5);
        e->filter = LVNI_FILTER_BILINEAR;
        return check_eval(e);
    }
    const int choice =
        filter == NULL ? -1 : lvni_core_option_choice_index(LVNI_FILTERS, filter, strlen(filter));
    if (choice < 0) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "its model card has eval filter=%s%s: must be one of " LVNI_FILTERS,
                 filter == NULL ? "nothing" : "", filter == NULL ? "" : filter);
    }
    e->filter = (lvni_data_filter)choice;
    e->resize = lvni_run_card_int(json_object_get(eval, "resize"));
    e->crop = lvni_run_card_int(json_object_get(eval, "crop"));
    return check_eval(e);
}

lvn_status lvni_images_eval_read_text(const char *text, lvni_images_eval *out)
{
    json_t *j = lvni_core_json_try(text, LVNI_JSON_INNER);
    const lvn_status s = lvni_images_eval_read(j, out);
    json_decref(j);
    return s;
}

/* ---- preprocessing of weights= ---- */

/* timm's "pretrained_cfg". Nothing without its filter, mean and deviation: the file is another
 * program's. */
static lvn_status read_timm(const json_t *j, const char *path, lvni_images_preprocess *p)
{
    lvni_images_preprocess message = {.crop_pct = 0.875, .from_weights = true};
    const json_t *pct = json_object_get(j, "crop_pct");
    const char *filter = json_string_value(json_object_get(j, "interpolation"));
    const char *mode = json_string_value(json_object_get(j, "crop_mode"));
    const int choice =
        filter == NULL ? -1 : lvni_core_option_choice_index(LVNI_FILTERS, filter, strlen(filter));
    if (choice < 0 || !read_three(json_object_get(j, "mean"), message.mean) ||
        !read_three(json_object_get(j, "std"), message.std)) {
        return LVN_OK;
    }
    if (json_is_number(pct)) {
        message.crop_pct = json_number_value(pct);
    }
    if (mode != NULL && strcmp(mode, "center") != 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s has crop_mode=%s, and levin takes the centre alone: give eval.preset= to "
                 "evaluate in another "
                 "way than these weights were made for",
                 path, mode);
    }
    bool fits = message.crop_pct >= LEAST_PCT && message.crop_pct <= 1.0;
    for (int i = 0; i < 3; i++) {
        fits = fits && fabsf(message.mean[i]) <= 1000.0f && message.std[i] >= 1e-6f &&
               message.std[i] <= 1000.0f;
    }
    if (!fits) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: crop_pct, mean or std is out of range; eval.preset= takes its place", path);
    }
    message.filter = (lvni_data_filter)choice;
    *p = message;
    return LVN_OK;
}

/* The config.json that lies beside a file of timm's. */
static lvn_status read_beside(const char *file, lvni_images_preprocess *p)
{
    enum { MOST = 1 << 20 };
    const char *slash = strrchr(file, '/');
    char *text = NULL;
    size_t bytes;
    lvni_core_str path = {0};
    lvni_core_str_append_n(&path, file, slash == NULL ? 0 : (size_t)(slash - file) + 1);
    lvni_core_str_append(&path, "config.json");
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    if (lvni_core_path_exists(lvni_core_str_text(&path)) &&
        lvni_core_regular_read(lvni_core_str_text(&path), MOST, &text, &bytes) == LVN_OK) {
        json_t *j = lvni_core_json_try(text, LVNI_JSON_FILE);
        const json_t *cfg = json_object_get(j, "pretrained_cfg");
        s = cfg == NULL ? LVN_OK : read_timm(cfg, lvni_core_str_text(&path), p);
        json_decref(j);
    }
done:
    lvni_core_free(text);
    lvni_core_str_free(&path);
    return s;
}

static bool has_tensor(const lvni_ckpt_st_file *file, const char *name)
{
    const size_t end = strlen(name);
    for (int64_t i = 0; i < lvni_ckpt_st_count(file); i++) {
        const char *at = lvni_ckpt_st_at(file, i)->name;
        const size_t n = strlen(at);
        if (n >= end && strcmp(at + n - end, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Which a recipe has trained. */
static bool is_of_levin(const lvni_ckpt_st_file *file)
{
    return lvni_ckpt_st_meta_get(file, LVNI_CARD_RECIPE) != NULL ||
           lvni_ckpt_st_meta_get(file, LVNI_CKPT_FORMAT) != NULL;
}

/* Not DINOv2's, nor one of levin's own. */
static bool is_timm_vit(const lvni_ckpt_st_file *file)
{
    return has_tensor(file, "blocks.0.attn.qkv.weight") && !has_tensor(file, "ls1.gamma") &&
           !is_of_levin(file);
}

static lvn_status read_file(const lvni_ckpt_st_file *file, const char *path,
                            lvni_images_preprocess *p)
{
    const char *card = lvni_ckpt_st_meta_get(file, LVNI_CARD_CLASSIFIER);
    lvni_images_eval c = {0};
    if (card != NULL) {
        LVN_TRY(lvni_images_eval_read_text(card, &c));
        *p = (lvni_images_preprocess){
            .crop_pct = (double)c.crop / c.resize, .filter = c.filter, .from_weights = true};
        memcpy(p->mean, c.mean, sizeof p->mean);
        memcpy(p->std, c.std, sizeof p->std);
        return LVN_OK;
    }
    LVN_TRY(read_beside(path, p));
    if (!p->from_weights && is_timm_vit(file)) {
        *p = presets[AUGREG];
        p->from_weights = true;
    }
    return LVN_OK;
}

/* Six digits where they are exact: 0.485, not 0.485000014. */
static void print_three(lvni_core_str *out, const float x[3])
{
    for (int i = 0; i < 3; i++) {
        char text[32];
        lvni_core_format(text, sizeof text, "%.6g", (double)x[i]);
        const bool exact = (float)lvni_core_strtod(text, NULL) == x[i];
        lvni_core_str_append(out, i == 0 ? "[" : ",");
        lvni_core_str_printf(out, "%.*g", exact ? 6 : 9, (double)x[i]);
    }
    lvni_core_str_append(out, "]");
}

static void print_colours(const lvni_core_config *c, const char *key, const float x[3],
                          lvni_core_str *out)
{
    if (!lvni_core_config_is_set(c, key)) {
        lvni_core_str_printf(out, " %s=", key);
        print_three(out, x);
    }
}

/* Keys that are given take precedence, and only photos are resized and cropped. */
static void report(const lvni_core_config *c, bool photos, const lvni_images_preprocess *p)
{
    lvni_core_str text = {0};
    const bool resized =
        lvni_core_config_is_set(c, "eval.resize") || lvni_core_config_is_set(c, "eval.crop_pct");
    if (photos && !resized) {
        lvni_core_str_printf(&text, " eval.crop_pct=%.4g", p->crop_pct);
    }
    if (photos && !lvni_core_config_is_set(c, "eval.filter")) {
        lvni_core_str_printf(&text, " eval.filter=%s", lvni_data_filter_name(p->filter));
    }
    print_colours(c, "normalize.mean", p->mean, &text);
    print_colours(c, "normalize.std", p->std, &text);
    if (text.len > 0) {
        lvni_log_line(LVNI_LOG_INFO, "weights=%s: images as they were for it:%s",
                      lvni_core_config_str(c, "weights"), lvni_core_str_text(&text));
    }
    lvni_core_str_free(&text);
}

lvn_status lvni_images_preprocess_of_file(const char *weights, lvni_images_preprocess *p,
                                          bool *known)
{
    char *path = NULL;
    const char *inner;
    lvni_ckpt_st_file *file = NULL;
    lvn_status s = LVN_OK, opened = lvni_run_weights_find(weights, &path);
    if (opened == LVN_OK) {
        opened = lvni_ckpt_is_index(path)
                     ? lvni_ckpt_tensors_open(path, LVNI_ST_HEADER_ONLY, NULL, &inner, &file)
                     : lvni_ckpt_st_open(path, LVNI_ST_HEADER_ONLY, &file);
    }
    *p = presets[TORCHVISION];
    *known = true;
    if (opened == LVN_OK) {
        s = read_file(file, path, p);
        *known = p->from_weights || !is_of_levin(file);
    } else {
        lvn_clear_error();
    }
    lvni_ckpt_st_close(file);
    lvni_core_free(path);
    return s;
}

/* ---- transforms ---- */

/* The file of weights= is read at the first start alone: a resumed run has the values in its
 * configuration. */
static lvn_status find_preprocess(const lvni_core_config *c, lvni_images_preprocess *p)
{
    const char *weights = lvni_core_config_str(c, "weights");
    *p = presets[TORCHVISION];
    if (lvni_core_config_is_set(c, "eval.preset")) {
        *p = presets[lvni_core_config_choice(c, "eval.preset")];
    } else if (weights != NULL && !lvni_core_config_bool(c, "resume")) {
        bool known;
        return lvni_images_preprocess_of_file(weights, p, &known);
    }
    return LVN_OK;
}

static void read_floats(const lvni_core_config *c, const char *key, float out[3])
{
    size_t n;
    const double *given =
        lvni_core_config_is_set(c, key) ? lvni_core_config_float_list(c, key, &n) : NULL;
    for (int i = 0; given != NULL && i < 3; i++) {
        out[i] = (float)given[i];
    }
}

static void set_colours(const lvni_core_config *c, const lvni_images_preprocess *p,
                        lvni_data_transform *t)
{
    memcpy(t->mean, p->mean, sizeof p->mean);
    memcpy(t->std, p->std, sizeof p->std);
    read_floats(c, "normalize.mean", t->mean);
    read_floats(c, "normalize.std", t->std);
    t->eval_filter = lvni_core_config_is_set(c, "eval.filter")
                         ? (lvni_data_filter)lvni_core_config_choice(c, "eval.filter")
                         : p->filter;
}

/* Rounded down as timm does, except for a quotient that is whole. */
static int resize_of(int crop, double crop_pct)
{
    return (int)floor(crop / crop_pct + 1e-6);
}

/* eval.resize= and eval.crop_pct=, for t->size; 0: neither is given. */
static lvn_status given_resize(const lvni_core_config *c, int crop, int *out)
{
    const bool pixels = lvni_core_config_is_set(c, "eval.resize"),
               part = lvni_core_config_is_set(c, "eval.crop_pct");
    const double crop_pct = part ? lvni_core_config_float(c, "eval.crop_pct") : 1.0;
    *out = pixels ? (int)lvni_core_config_int(c, "eval.resize")
           : part ? resize_of(crop, crop_pct)
                  : 0;
    if (pixels && part && *out != resize_of(crop, crop_pct)) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "eval.resize=%d (%s) and eval.crop_pct=%g (%s), which makes it %d: give one of them",
            *out, lvni_core_config_origin(c, "eval.resize"), crop_pct,
            lvni_core_config_origin(c, "eval.crop_pct"), resize_of(crop, crop_pct));
    }
    return LVN_OK;
}

static int given_crop(const lvni_core_config *c, int otherwise)
{
    return lvni_core_config_is_set(c, "eval.crop") ? (int)lvni_core_config_int(c, "eval.crop")
                                                   : otherwise;
}

lvn_status lvni_images_preprocess_train(const lvni_core_config *c, bool photos,
                                        lvni_images_preprocess *found, lvni_data_transform *train,
                                        lvni_data_transform *eval)
{
    LVN_TRY(find_preprocess(c, found));
    if (found->from_weights) {
        report(c, photos, found);
    }
    set_colours(c, found, train);
    *eval = *train;
    eval->size = given_crop(c, train->size);
    LVN_TRY(given_resize(c, eval->size, &eval->eval_resize));
    if (eval->eval_resize == 0) {
        const int usual = found->crop_pct > 0.0 ? resize_of(eval->size, found->crop_pct)
                                                : lvni_data_transform_resize(eval->size);
        eval->eval_resize = photos ? usual : eval->size;
    }
    const double scale =
        (double)train->size / eval->size; /* without random crops, training sees the same part */
    train->eval_resize = (int)floor(eval->eval_resize * scale + 0.5);
    train->eval_resize = train->eval_resize < 1 ? 1 : train->eval_resize;
    LVN_TRY(lvni_data_transform_check(train));
    return lvni_data_transform_check(eval);
}

static lvn_status resolve(lvni_core_config *c, const char *name, const char *text)
{
    return lvni_core_config_is_set(c, name)
               ? LVN_OK
               : lvni_core_config_set(c, name, text, "the file of weights=");
}

/* eval.crop_pct goes along with another image_size; pixels where it is none that the key takes, or
 * was not followed, as of array files. */
static lvn_status resolve_resize(lvni_core_config *c, const lvni_images_preprocess *p,
                                 const lvni_data_transform *t)
{
    char text[32];
    const bool followed = resize_of(t->size, p->crop_pct) == t->eval_resize;
    if (lvni_core_config_is_set(c, "eval.resize") || lvni_core_config_is_set(c, "eval.crop_pct")) {
        return LVN_OK;
    }
    if (followed && p->crop_pct >= LEAST_PCT && p->crop_pct <= 1.0) {
        lvni_core_format(text, sizeof text, "%.17g", p->crop_pct);
        return resolve(c, "eval.crop_pct", text);
    }
    snprintf(text, sizeof text, "%d", t->eval_resize);
    return resolve(c, "eval.resize", text);
}

static lvn_status resolve_all(lvni_core_config *c, const lvni_images_preprocess *p,
                              const lvni_data_transform *eval, const lvni_core_str *mean,
                              const lvni_core_str *std)
{
    LVN_TRY(lvni_core_str_status(mean));
    LVN_TRY(lvni_core_str_status(std));
    LVN_TRY(resolve(c, "normalize.mean", lvni_core_str_text(mean)));
    LVN_TRY(resolve(c, "normalize.std", lvni_core_str_text(std)));
    LVN_TRY(resolve(c, "eval.filter", lvni_data_filter_name(p->filter)));
    return resolve_resize(c, p, eval);
}

lvn_status lvni_images_preprocess_resolve(lvni_core_config *c, const lvni_images_preprocess *p,
                                          const lvni_data_transform *eval)
{
    lvni_core_str mean = {0}, std = {0};
    if (!p->from_weights) {
        return LVN_OK;
    }
    print_three(&mean, p->mean);
    print_three(&std, p->std);
    const lvn_status s = resolve_all(c, p, eval, &mean, &std);
    lvni_core_str_free(&mean);
    lvni_core_str_free(&std);
    return s;
}

lvn_status lvni_images_preprocess_use(const lvni_core_config *c, const lvni_images_trained *card,
                                      lvni_data_transform *t)
{
    const lvni_images_eval *of = &card->eval;
    lvni_images_preprocess p = {.filter = of->filter};
    memcpy(p.mean, of->mean, sizeof p.mean);
    memcpy(p.std, of->std, sizeof p.std);
    const bool preset = lvni_core_config_is_set(c, "eval.preset");
    p = preset ? presets[lvni_core_config_choice(c, "eval.preset")] : p;
    lvni_data_transform_init(t, given_crop(c, of->crop));
    lvni_data_transform_no_augment(t);
    set_colours(c, &p, t);
    t->as_stored = lvni_images_source_as_stored(c, &of->as_stored);
    LVN_TRY(lvni_images_preprocess_check_size(c, card->general.model, of->image_size, t->size));
    int resize;
    LVN_TRY(given_resize(c, t->size, &resize));
    if (resize == 0 && preset) {
        resize =
            p.crop_pct > 0.0 ? resize_of(t->size, p.crop_pct) : lvni_data_transform_resize(t->size);
    } else if (resize == 0) {
        resize = (int)floor((double)of->resize * t->size / of->crop + 0.5);
    }
    t->eval_resize = resize < 1 ? 1 : resize;
    return lvni_data_transform_check(t);
}

lvn_status lvni_images_preprocess_check_size(const lvni_core_config *c, const char *model,
                                             int image_size, int crop)
{
    if (crop != image_size && !lvni_nn_zoo_any_size(model)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "eval.crop=%d (%s): model=%s takes images of its own size alone, which is %d; "
                 "omit eval.crop",
                 crop, lvni_core_config_origin(c, "eval.crop"), model, image_size);
    }
    return LVN_OK;
}

lvn_status lvni_images_preprocess_no_effect(const lvni_core_config *c, const char *why)
{
    for (size_t i = 0; i < sizeof preprocess_rows / sizeof *preprocess_rows; i++) {
        if (preprocess_rows[i].alias_of == NULL) {
            LVN_TRY(lvni_core_config_no_effect(c, preprocess_rows[i].name, why));
        }
    }
    return LVN_OK;
}

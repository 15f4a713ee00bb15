/* The views of pretraining: a method's preset (images/view_presets.h), changed by
 * transform_args.*. */
#include "recipes/pretrain/pretrain.h"

#include "core/error.h"
#include "core/str.h"
#include "images/image_data.h"
#include "images/view_presets.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Not given: the method's, of the preset, as the help has it. */
#define PROBABILITY(key, text)                                                                     \
    {                                                                                              \
        .name = "transform_args." key, .type = LVNI_OPT_FLOAT, .range = LVNI_BETWEEN(0, 1),        \
        .flags = LVNI_OPT_AUTO, .help = (text)                                                     \
    }
#define AMOUNT(key, lo, hi, text)                                                                  \
    {                                                                                              \
        .name = "transform_args." key, .type = LVNI_OPT_FLOAT, .range = LVNI_BETWEEN(lo, hi),      \
        .flags = LVNI_OPT_AUTO, .help = (text)                                                     \
    }
#define SWITCH(key, text)                                                                          \
    {                                                                                              \
        .name = "transform_args." key, .type = LVNI_OPT_BOOL, .fallback = "true",                  \
        .flags = LVNI_OPT_AUTO, .help = (text)                                                     \
    }
#define SIGMAS(key, usual)                                                                         \
    {                                                                                              \
        .name = "transform_args." key, .type = LVNI_OPT_FLOAT_LIST, .unit = "pixels",              \
        .range = LVNI_AT_LEAST(0), .count = 2, .flags = LVNI_OPT_AUTO,                             \
        .help = "Smallest and largest deviation of a blur; auto: " usual "."                       \
    }
#define LIMIT(key)                                                                                 \
    {                                                                                              \
        .name = "transform_args." key, .type = LVNI_OPT_INT, .unit = "pixels",                     \
        .range = LVNI_BETWEEN(0, 4096), .flags = LVNI_OPT_AUTO,                                    \
        .help =                                                                                    \
            "Largest width of a blur, which is drawn; 0: it follows from the deviation; auto: 0."  \
    }

static const lvni_core_option transform_rows[] = {
    {.name = "transform_args.image_size",
     .type = LVNI_OPT_INT_LIST,
     .unit = "pixels",
     .range = LVNI_BETWEEN(1, 4096),
     .flags = LVNI_OPT_AUTO,
     .help = "Side of a view, or [height,width]; auto: 224, of builtin:shapes and arrays of small "
             "images their own."},
    LVNI_OPTION_ALIAS("image_size", "transform_args.image_size"),
    {.name = "transform_args.num_channels",
     .type = LVNI_OPT_INT,
     .range = LVNI_BETWEEN(1, 4),
     .flags = LVNI_OPT_AUTO,
     .help = "Channels of a view: 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha; auto: those "
             "that channel_drop keeps, else as many as normalize.mean has. With others than RGB "
             "colours are left alone."},
    SWITCH("channel_drop", "null or false: no channel is dropped."),
    {.name = "transform_args.channel_drop.num_channels_keep",
     .type = LVNI_OPT_INT,
     .range = LVNI_BETWEEN(1, 4),
     .flags = LVNI_OPT_AUTO,
     .help = "Channels that are left of an image when the others are dropped at random."},
    {.name = "transform_args.channel_drop.weight_drop",
     .type = LVNI_OPT_FLOAT_LIST,
     .range = LVNI_AT_LEAST(0),
     .flags = LVNI_OPT_AUTO,
     .help = "For each channel of an image, 1 to 4 of them, how readily it is dropped; 0: never."},
    SWITCH("random_resize", "null or false: the whole image is resized, without a crop."),
    AMOUNT("random_resize.min_scale", 0, 1,
           "Smallest part of the area that a crop keeps; auto: 0.08 (simclr), 0.14 (dino, "
           "distillation), 0.32 (dinov2)."),
    AMOUNT("random_resize.max_scale", 0, 1, "Largest part of the area that a crop keeps; auto: 1."),
    AMOUNT("random_resize.min_ratio", 0.01, 100,
           "Smallest width over height of a crop; auto: 3/4."),
    AMOUNT("random_resize.max_ratio", 0.01, 100, "Largest width over height of a crop; auto: 4/3."),
    SWITCH("random_flip", "null or false: nothing is flipped."),
    PROBABILITY("random_flip.horizontal_prob",
                "Probability that left and right change places; auto: 0.5."),
    PROBABILITY("random_flip.vertical_prob",
                "Probability that top and bottom change places; auto: 0."),
    SWITCH("random_rotation", "null or false: nothing is rotated."),
    PROBABILITY("random_rotation.prob", "Probability of a rotation; auto: 0."),
    AMOUNT("random_rotation.degrees", 0, 360, "A rotation's angle is between -x and x; auto: 0."),
    SWITCH("color_jitter", "null or false: colours are left alone."),
    PROBABILITY("color_jitter.prob", "Probability that colours change; auto: 0.8."),
    AMOUNT("color_jitter.strength", 0, 10,
           "Factor on the four amounts below; auto: 1 (simclr), 0.5 (dino, dinov2, distillation)."),
    AMOUNT("color_jitter.brightness", 0, 10, "Factor in 1 - x to 1 + x; auto: 0.8."),
    AMOUNT("color_jitter.contrast", 0, 10, "Factor in 1 - x to 1 + x; auto: 0.8."),
    AMOUNT("color_jitter.saturation", 0, 10,
           "Factor in 1 - x to 1 + x; auto: 0.8 (simclr), 0.4 (dino, dinov2, distillation)."),
    AMOUNT("color_jitter.hue", 0, 0.5, "Turns of the colour circle, -x to x; auto: 0.2."),
    PROBABILITY("random_gray_scale", "Probability of a view without colours; auto: 0.2."),
    SWITCH("gaussian_blur", "null or false: nothing is blurred."),
    PROBABILITY("gaussian_blur.prob",
                "Probability of a blur; auto: 0.5 (simclr), 1 (dino, dinov2, distillation)."),
    SIGMAS("gaussian_blur.sigmas", "[0.1,2] (simclr, dino, dinov2), [0,0.1] (distillation)"),
    LIMIT("gaussian_blur.blur_limit"),
    SWITCH("solarize", "null or false: nothing is solarized."),
    PROBABILITY("solarize.prob", "Probability that bright values are inverted; auto: 0."),
    PROBABILITY("solarize.threshold",
                "Values that are inverted begin here; black is 0, white 1; auto: 0.5."),
    SWITCH("global_view_1.gaussian_blur", "The second large view (dino); null: it has no blur."),
    PROBABILITY("global_view_1.gaussian_blur.prob",
                "Probability of a blur of that view; auto: 0.1."),
    SIGMAS("global_view_1.gaussian_blur.sigmas", "[0.1,2]"),
    LIMIT("global_view_1.gaussian_blur.blur_limit"),
    SWITCH("global_view_1.solarize", "The second large view (dino); null: it is not solarized."),
    PROBABILITY("global_view_1.solarize.prob",
                "Probability that its bright values are inverted; auto: 0.2."),
    PROBABILITY("global_view_1.solarize.threshold",
                "Values of it that are inverted begin here; auto: 0.5."),
    SWITCH("local_view", "null or false: there are no small views (dino)."),
    {.name = "transform_args.local_view.num_views",
     .type = LVNI_OPT_INT,
     .range = LVNI_BETWEEN(0, LVNI_MAX_VIEWS - 2),
     .flags = LVNI_OPT_AUTO,
     .help = "Small views of an image; auto: 6 (dino), 8 (dinov2)."},
    {.name = "transform_args.local_view.view_size",
     .type = LVNI_OPT_INT_LIST,
     .unit = "pixels",
     .range = LVNI_BETWEEN(1, 4096),
     .flags = LVNI_OPT_AUTO,
     .help = "Side of a small view, or [height,width]; auto: 96 (dino), 98 (dinov2), and of images "
             "below 224 pixels as "
             "much smaller."},
    SWITCH("local_view.random_resize", "null or false: they are the whole image, resized."),
    AMOUNT("local_view.random_resize.min_scale", 0, 1,
           "Smallest part of the area they keep; auto: 0.05."),
    AMOUNT("local_view.random_resize.max_scale", 0, 1,
           "Largest part of the area they keep; auto: 0.14 (dino), 0.32 (dinov2)."),
    AMOUNT("local_view.random_resize.min_ratio", 0.01, 100,
           "Smallest width over height; auto: 3/4."),
    AMOUNT("local_view.random_resize.max_ratio", 0.01, 100,
           "Largest width over height; auto: 4/3."),
    SWITCH("local_view.gaussian_blur", "null or false: small views are not blurred."),
    PROBABILITY("local_view.gaussian_blur.prob",
                "Probability of a blur of a small view; auto: 0.5."),
    SIGMAS("local_view.gaussian_blur.sigmas", "[0.1,2]"),
    LIMIT("local_view.gaussian_blur.blur_limit"),
    {.name = "transform_args.normalize.mean",
     .type = LVNI_OPT_FLOAT_LIST,
     .flags = LVNI_OPT_AUTO,
     .help = "Mean of each channel in 0 to 1, repeated where there are more channels; auto: that "
             "of ImageNet, [0.485,0.456,0.406]."},
    {.name = "transform_args.normalize.std",
     .type = LVNI_OPT_FLOAT_LIST,
     .range = LVNI_ABOVE(0),
     .flags = LVNI_OPT_AUTO,
     .help = "Deviation of each channel, repeated as the mean; auto: that of ImageNet, "
             "[0.229,0.224,0.225]."},
};
const lvni_core_option_table lvni_pretrain_transform_options =
    LVNI_OPTION_TABLE("transform", transform_rows);

/* ---- the keys over a preset ---- */

#define NUMBER(key, member)                                                                        \
    {                                                                                              \
        "transform_args." key, offsetof(lvni_images_view_args, member)                             \
    }
/* Of type double; for each key where its number lies. */
static const struct number {
    const char *key;
    size_t at;
} numbers[] = {
    NUMBER("random_resize.min_scale", resize.scale[0]),
    NUMBER("random_resize.max_scale", resize.scale[1]),
    NUMBER("random_resize.min_ratio", resize.ratio[0]),
    NUMBER("random_resize.max_ratio", resize.ratio[1]),
    NUMBER("random_flip.horizontal_prob", horizontal_flip),
    NUMBER("random_flip.vertical_prob", vertical_flip),
    NUMBER("random_rotation.prob", rotate),
    NUMBER("random_rotation.degrees", degrees),
    NUMBER("color_jitter.prob", jitter.prob),
    NUMBER("color_jitter.strength", jitter.strength),
    NUMBER("color_jitter.brightness", jitter.brightness),
    NUMBER("color_jitter.contrast", jitter.contrast),
    NUMBER("color_jitter.saturation", jitter.saturation),
    NUMBER("color_jitter.hue", jitter.hue),
    NUMBER("random_gray_scale", grey),
    NUMBER("gaussian_blur.prob", blur.prob),
    NUMBER("solarize.prob", solarize.prob),
    NUMBER("solarize.threshold", solarize.threshold),
    NUMBER("global_view_1.gaussian_blur.prob", second.blur.prob),
    NUMBER("global_view_1.solarize.prob", second.solarize.prob),
    NUMBER("global_view_1.solarize.threshold", second.solarize.threshold),
    NUMBER("local_view.random_resize.min_scale", local.resize.scale[0]),
    NUMBER("local_view.random_resize.max_scale", local.resize.scale[1]),
    NUMBER("local_view.random_resize.min_ratio", local.resize.ratio[0]),
    NUMBER("local_view.random_resize.max_ratio", local.resize.ratio[1]),
    NUMBER("local_view.gaussian_blur.prob", local.blur.prob),
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static double *number_in(lvni_images_view_args *a, int i)
{
    return (double *)(void *)((char *)a + numbers[i].at);
}

/* Numbers as they read back; with brackets where there are several. */
static lvn_status resolve(lvni_core_config *c, const char *key, const double *value, int n)
{
    lvni_core_str text = {0};
    lvn_status s = LVN_OK;
    if (lvni_core_config_is_set(c, key)) {
        return LVN_OK;
    }
    lvni_core_str_append(&text, n > 1 ? "[" : "");
    for (int i = 0; i < n; i++) {
        lvni_core_str_append(&text, i > 0 ? "," : "");
        lvni_core_str_double(&text, value[i]);
    }
    lvni_core_str_append(&text, n > 1 ? "]" : "");
    LVNI_TRY_DONE(s, lvni_core_str_status(&text));
    s = lvni_core_config_set(c, key, lvni_core_str_text(&text), "method's default");
done:
    lvni_core_str_free(&text);
    return s;
}

static const char SECOND[] = "transform_args.global_view_1.", LOCAL[] = "transform_args.local_view",
                  LOCAL_SIZE[] = "transform_args.local_view.view_size";

static bool starts_with(const char *text, const char *front)
{
    return strncmp(text, front, strlen(front)) == 0;
}

/* Is the key of views that the method has not? */
static bool is_foreign(const lvni_images_view_args *a, const char *key)
{
    return (!a->second.own && starts_with(key, SECOND)) ||
           (a->local.n == 0 && starts_with(key, LOCAL));
}

static lvn_status refuse_foreign(const lvni_core_config *c, const lvni_images_view_args *a)
{
    for (size_t i = 0; i < sizeof transform_rows / sizeof *transform_rows; i++) {
        const char *key = transform_rows[i].name;
        if (is_foreign(a, key) && lvni_pretrain_is_given(c, &transform_rows[i])) {
            LVN_FAIL(LVN_ERR_USAGE, "%s: the views of method=%s are all of one kind  (%s)", key,
                     a->method, lvni_core_config_origin(c, key));
        }
    }
    return LVN_OK;
}

/* What is not given is written down as the method has it. */
static lvn_status take_numbers(lvni_core_config *c, lvni_images_view_args *a)
{
    for (int i = 0; i < NUMBERS; i++) {
        if (is_foreign(a, numbers[i].key)) {
            continue;
        }
        double *value = number_in(a, i);
        *value = lvni_core_config_is_set(c, numbers[i].key)
                     ? lvni_core_config_float(c, numbers[i].key)
                     : *value;
        LVN_TRY(resolve(c, numbers[i].key, value, 1));
    }
    return LVN_OK;
}

/* For each of four channels, again from the first where fewer are given. */
static void take_repeated(const lvni_core_config *c, const char *key, float value[4])
{
    size_t n;
    const double *given = lvni_core_config_float_list(c, key, &n);
    for (size_t i = 0; n > 0 && i < 4; i++) {
        value[i] = (float)given[i % n];
    }
}

static lvn_status resolve_repeated(lvni_core_config *c, const char *key, float value[4])
{
    take_repeated(c, key, value);
    const double taken[] = {(double)value[0], (double)value[1], (double)value[2]};
    return resolve(c, key, taken, 3);
}

/* ---- channels ---- */

#define DROP "transform_args.channel_drop"
static const char mean_key[] = "transform_args.normalize.mean",
                  std_key[] = "transform_args.normalize.std",
                  channels_key[] = "transform_args.num_channels",
                  keep_key[] = DROP ".num_channels_keep", weight_key[] = DROP ".weight_drop";

static bool is_off(const lvni_core_config *c, const char *key)
{
    return !lvni_core_config_is_set(c, key) || !lvni_core_config_bool(c, key);
}

static bool drops(const lvni_core_config *c)
{
    return !is_off(c, DROP) && lvni_core_config_is_set(c, keep_key);
}

int lvni_pretrain_channels(const lvni_core_config *c)
{
    size_t n;
    (void)lvni_core_config_float_list(c, mean_key, &n);
    return lvni_core_config_is_set(c, channels_key) ? (int)lvni_core_config_int(c, channels_key)
           : drops(c)                               ? (int)lvni_core_config_int(c, keep_key)
           : n > 0                                  ? (int)n
                                                    : 3;
}

static lvn_status check_count(const lvni_core_config *c, const char *key)
{
    size_t n;
    (void)lvni_core_config_float_list(c, key, &n);
    if (n > 4) {
        LVN_FAIL(LVN_ERR_USAGE, "%s has %zu numbers: images have 1 to 4 channels  (%s)", key, n,
                 lvni_core_config_origin(c, key));
    }
    return LVN_OK;
}

/* torchvision's networks are known by their weights, whose first layer has 3 channels. */
static lvn_status check_backbone(const lvni_core_config *c, int channels)
{
    static const char torchvision[] = "torchvision";
    const char *model = lvni_core_config_str(c, "model.name"),
               *given = lvni_core_config_given(c, "model.name");
    const bool theirs = strncasecmp(given, torchvision, sizeof torchvision - 1) == 0;
    if (channels == 3 || (!theirs && lvni_nn_zoo_any_channels(model))) {
        return LVN_OK;
    }
    if (theirs && lvni_nn_zoo_any_channels(model)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "model=%s takes images of 3 channels, and "
                 "transform_args.num_channels is %d: "
                 "give model=%s, the same network with another first layer, or num_channels=3",
                 given, channels, model);
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "model=%s takes images of 3 channels, and transform_args.num_channels is %d: give "
             "model=resnet18 or cnn, or num_channels=3",
             given, channels);
}

/* With `drops`: an image has as many channels as there are weights. */
static lvn_status check_drop(const lvni_core_config *c)
{
    size_t n;
    (void)lvni_core_config_float_list(c, weight_key, &n);
    const bool keep = lvni_core_config_is_set(c, keep_key);
    if (is_off(c, DROP) || (!keep && n == 0)) {
        return LVN_OK;
    }
    if (!keep || n == 0) {
        LVN_FAIL(LVN_ERR_USAGE, "%s is given without %s: both are needed",
                 keep ? keep_key : weight_key, keep ? weight_key : keep_key);
    }
    if (lvni_pretrain_channels(c) != lvni_core_config_int(c, keep_key)) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "%s=%d differs from %s=%lld: a view has the channels that are kept; omit the first",
            channels_key, lvni_pretrain_channels(c), keep_key,
            (long long)lvni_core_config_int(c, keep_key));
    }
    return LVN_OK;
}

/* As the transform has them: those of an image, and how many of them are kept. */
static void take_channels(const lvni_core_config *c, int *channels, int *keep, double weight[4])
{
    size_t n;
    const double *given = lvni_core_config_float_list(c, weight_key, &n);
    *channels = lvni_pretrain_channels(c);
    *keep = 0;
    if (drops(c) && n > 0) {
        *keep = *channels;
        *channels = (int)n;
        memcpy(weight, given, n * sizeof *weight);
    }
}

lvn_status lvni_pretrain_check_channels(const lvni_core_config *c)
{
    LVN_TRY(check_count(c, mean_key));
    LVN_TRY(check_count(c, std_key));
    LVN_TRY(check_count(c, weight_key));
    LVN_TRY(check_drop(c));
    return check_backbone(c, lvni_pretrain_channels(c));
}

/* The nearest side that a network takes, and a transformer's patches divide. */
static int whole_patches(const lvni_core_config *c, int side)
{
    const char *model = lvni_core_config_str(c, "model.name");
    const int patch = model == NULL ? 1 : lvni_nn_zoo_patch(model), n = (side + patch / 2) / patch;
    const int whole = (n > 0 ? n : 1) * patch,
              least = model == NULL ? 1 : lvni_nn_zoo_least_side(model);
    return whole < least ? least : whole;
}

static lvn_status take_size(lvni_core_config *c, const char *key, int side, int size[2])
{
    size_t n;
    const int64_t *given = lvni_core_config_int_list(c, key, &n);
    if (n > 2) {
        LVN_FAIL(LVN_ERR_USAGE, "%s has %zu numbers: give a side, or [height,width]  (%s)", key, n,
                 lvni_core_config_origin(c, key));
    }
    size[0] = n > 0 ? (int)given[0] : whole_patches(c, side);
    size[1] = n > 1 ? (int)given[1] : size[0];
    return resolve(c, key, (const double[]){size[0], size[1]}, 2);
}

/* view: "", or a view's keys. */
static lvn_status take_blur(lvni_core_config *c, const char *view, lvni_images_view_blur *b)
{
    char sigmas[64], limit[64];
    size_t n;
    snprintf(sigmas, sizeof sigmas, "transform_args.%sgaussian_blur.sigmas", view);
    snprintf(limit, sizeof limit, "transform_args.%sgaussian_blur.blur_limit", view);
    const double *given = lvni_core_config_float_list(c, sigmas, &n);
    if (n == 2) {
        memcpy(b->sigmas, given, sizeof b->sigmas);
    }
    LVN_TRY(resolve(c, sigmas, b->sigmas, 2));
    b->limit = lvni_core_config_is_set(c, limit) ? (int)lvni_core_config_int(c, limit) : b->limit;
    return resolve(c, limit, (const double[]){b->limit}, 1);
}

/* Small views, of a side that has the same part of the large ones' as 96 of 224. */
static lvn_status take_local(lvni_core_config *c, lvni_images_view_args *a)
{
    static const char count[] = "transform_args.local_view.num_views";
    const int large = a->size[0] < a->size[1] ? a->size[0] : a->size[1],
              side = large >= 224 ? a->local.size[0] : (large * a->local.size[0] + 112) / 224;
    LVN_TRY(resolve(c, count, (const double[]){a->local.n}, 1));
    LVN_TRY(take_size(c, LOCAL_SIZE, side, a->local.size));
    LVN_TRY(take_blur(c, "local_view.", &a->local.blur));
    a->local.n = is_off(c, LOCAL) ? 0 : (int)lvni_core_config_int(c, count);
    return LVN_OK;
}

/* Of the network that `key` names. */
static lvn_status check_patches(const lvni_core_config *c, const char *key,
                                const lvni_images_view_args *a)
{
    const char *model = lvni_core_config_str(c, key);
    const int patch = model == NULL ? 1 : lvni_nn_zoo_patch(model);
    const int *const size[] = {a->size, a->local.n > 0 ? a->local.size : a->size};
    for (int i = 0; i < 4; i++) {
        const int side = size[i / 2][i % 2];
        if (side % patch != 0) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s=%s cuts images into patches of %d pixels, and views have sides of %d: "
                     "transform_args.%s must be a multiple of it",
                     key, model, patch, side, i < 2 ? "image_size" : "local_view.view_size");
        }
    }
    return LVN_OK;
}

/* method=dinov2 hides some patches of a large view and shows the others. */
static lvn_status check_least(const lvni_core_config *c, const char *key,
                              const lvni_images_view_args *a)
{
    const char *model = lvni_core_config_str(c, key);
    const bool masks = strcmp(lvni_core_config_str(c, "method"), "dinov2") == 0;
    const int alone = model == NULL ? 1 : lvni_nn_zoo_least_side(model);
    const int *const size[] = {a->size, a->local.n > 0 ? a->local.size : a->size};
    for (int i = 0; i < 4; i++) {
        const int side = size[i / 2][i % 2], least = masks && i < 2 ? 2 * alone : alone;
        if (side < least) {
            const char *of = i < 2 ? "transform_args.image_size" : LOCAL_SIZE,
                       *typed = lvni_core_config_spelled(c, of);
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s=%d: %s=%s%s needs views with sides of at least %d; give a larger %s",
                     typed, side, strcmp(key, "model.name") == 0 ? "model" : key,
                     lvni_core_config_given(c, key),
                     least > alone ? ", of which method=dinov2 masks some patches," : "", least,
                     typed);
        }
    }
    return LVN_OK;
}

/* Groups that are null. */
static void switch_off(const lvni_core_config *c, lvni_images_view_args *a)
{
    a->resize.off = is_off(c, "transform_args.random_resize");
    a->local.resize.off = is_off(c, "transform_args.local_view.random_resize");
    if (is_off(c, "transform_args.random_flip")) {
        a->horizontal_flip = a->vertical_flip = 0.0;
    }
    const struct {
        const char *key;
        double *prob;
    } groups[] = {{"transform_args.random_rotation", &a->rotate},
                  {"transform_args.color_jitter", &a->jitter.prob},
                  {"transform_args.gaussian_blur", &a->blur.prob},
                  {"transform_args.solarize", &a->solarize.prob},
                  {"transform_args.global_view_1.gaussian_blur", &a->second.blur.prob},
                  {"transform_args.global_view_1.solarize", &a->second.solarize.prob},
                  {"transform_args.local_view.gaussian_blur", &a->local.blur.prob}};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        *groups[i].prob = is_off(c, groups[i].key) ? 0.0 : *groups[i].prob;
    }
}

lvn_status lvni_pretrain_read_views(lvni_core_config *c, int side, lvni_data_views *out)
{
    lvni_images_view_args a = *lvni_images_view_preset(
        lvni_pretrain_method_find(lvni_core_config_str(c, "method"))->views);
    LVN_TRY(refuse_foreign(c, &a));
    LVN_TRY(take_size(c, "transform_args.image_size", side, a.size));
    LVN_TRY(take_numbers(c, &a));
    LVN_TRY(take_blur(c, "", &a.blur));
    LVN_TRY(a.second.own ? take_blur(c, "global_view_1.", &a.second.blur) : LVN_OK);
    LVN_TRY(a.local.n > 0 ? take_local(c, &a) : LVN_OK);
    LVN_TRY(lvni_pretrain_check_channels(c));
    take_channels(c, &a.channels, &a.keep, a.drop_weight);
    a.deep = true;
    a.as_stored = lvni_images_source_as_stored(c, NULL);
    const int channels = lvni_pretrain_channels(c);
    LVN_TRY(resolve_repeated(c, mean_key, a.mean));
    LVN_TRY(resolve_repeated(c, std_key, a.std));
    LVN_TRY(resolve(c, channels_key, (const double[]){channels}, 1));
    switch_off(c, &a);
    static const char *const networks[] = {"model.name", "method_args.teacher"};
    for (int i = 0; i < 2; i++) {
        LVN_TRY(check_patches(c, networks[i], &a));
        LVN_TRY(check_least(c, networks[i], &a));
    }
    lvni_images_views_make(&a, out);
    return lvni_data_views_check(out, false);
}

/* Shorter side 256 of a crop of 224, as ImageNet is evaluated. */
void lvni_pretrain_eval_view(const lvni_core_config *keys, bool photos, int side,
                             lvni_data_transform *out)
{
    size_t n;
    const int64_t *size = lvni_core_config_int_list(keys, "transform_args.image_size", &n);
    const int trained = n > 1 && size[1] < size[0] ? (int)size[1] : n > 0 ? (int)size[0] : 224;
    side = side > 0 ? side : trained;
    lvni_data_transform_init(out, side);
    out->eval_resize = photos ? lvni_data_transform_resize(side) : side;
    take_repeated(keys, mean_key, out->mean);
    take_repeated(keys, std_key, out->std);
    take_channels(keys, &out->channels, &out->keep, out->drop_weight);
    out->deep = true;
    out->as_stored = lvni_images_source_as_stored(keys, NULL);
}

/* Transforms and augmentation (augment.h). Turns and mirrors cost nothing: they are the steps with
 * which the resampler writes. */
#include "data/augment.h"

#include "core/math.h"
#include "core/rng.h"
#include "data/effects.h"

#include <math.h>
#include <string.h>

/* ---- settings ---- */

int lvni_data_transform_resize(int size)
{
    /* no size is at a tie: an odd number of sevenths is never a half */
    return (16 * size + 7) / 14;
}

void lvni_data_transform_init(lvni_data_transform *t, int size)
{
    *t = (lvni_data_transform){
        .size = size,
        .random_crop = true,
        .scale = {0.08, 1.0},
        .ratio = {3.0 / 4.0, 4.0 / 3.0},
        .hflip = 0.5,
        .jitter = 1.0,
        .blur_sigma = {0.1, 2.0},
        .solarize_from = 0.5,
        .eval_resize = lvni_data_transform_resize(size),
        .eval_filter = LVNI_FILTER_BILINEAR,
        .mean = {0.485f, 0.456f, 0.406f, 0.485f},
        .std = {0.229f, 0.224f, 0.225f, 0.229f},
    };
}

void lvni_data_transform_no_augment(lvni_data_transform *t)
{
    t->random_crop = false;
    t->hflip = t->vflip = 0.0;
    t->brightness = t->contrast = t->saturation = t->hue = 0.0;
    t->grey = t->blur = t->solarize = t->rotate = 0.0;
}

static lvn_status check_range(const char *name, double value, double low, double high)
{
    if (!(value >= low && value <= high)) {
        LVN_FAIL(LVN_ERR_USAGE, "%s is %g; it must lie between %g and %g", name, value, low, high);
    }
    return LVN_OK;
}

static lvn_status check_blur(const lvni_data_transform *t)
{
    LVN_TRY(check_range("augment.blur", t->blur, 0.0, 1.0));
    LVN_TRY(check_range("augment.blur_sigma, first value,", t->blur_sigma[0], 0.0,
                        LVNI_BLUR_MAX_SIGMA));
    LVN_TRY(check_range("augment.blur_sigma, second value,", t->blur_sigma[1], t->blur_sigma[0],
                        LVNI_BLUR_MAX_SIGMA));
    LVN_TRY(check_range("augment.blur_kernel", t->blur_kernel, 0, LVNI_BLUR_MAX_KERNEL));
    if (t->blur_kernel != 0 && t->blur_kernel % 2 == 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "augment.blur_kernel is %d; a kernel with a middle has an odd width, 0 lets sigma "
                 "decide",
                 t->blur_kernel);
    }
    return check_range("gaussian_blur.blur_limit", t->blur_limit, 0, LVNI_BLUR_MAX_KERNEL - 1);
}

static lvn_status check_channels(const lvni_data_transform *t)
{
    const int channels = lvni_data_transform_channels(t);
    LVN_TRY(check_range("num_channels", t->channels, 0, 4));
    LVN_TRY(check_range("channel_drop.num_channels_keep", t->keep, 0, channels));
    const int drop = channels - lvni_data_transform_depth(t);
    int candidates = 0;
    for (int c = 0; c < 4; c++) {
        LVN_TRY(check_range("channel_drop.weight_drop", t->drop_weight[c], 0.0, 1e6));
        candidates += c < channels && t->drop_weight[c] > 0.0;
    }
    if (candidates < drop) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "channel_drop.weight_drop is above 0 for %d of %d channels, and "
                 "num_channels_keep=%d drops %d: give as many weights above 0",
                 candidates, channels, t->keep, drop);
    }
    return LVN_OK;
}

lvn_status lvni_data_transform_check(const lvni_data_transform *t)
{
    LVN_TRY(check_range("image_size", t->size, 1, LVNI_RESAMPLE_MAX_SIDE));
    LVN_TRY(check_range("image_size, width,", t->width, 0, LVNI_RESAMPLE_MAX_SIDE));
    LVN_TRY(check_range("augment.scale, first value,", t->scale[0], 1e-4, 1.0));
    LVN_TRY(check_range("augment.scale, second value,", t->scale[1], t->scale[0], 1.0));
    LVN_TRY(check_range("augment.ratio, first value,", t->ratio[0], 0.01, 100.0));
    LVN_TRY(check_range("augment.ratio, second value,", t->ratio[1], t->ratio[0], 100.0));
    LVN_TRY(check_range("augment.hflip", t->hflip, 0.0, 1.0));
    LVN_TRY(check_range("augment.vflip", t->vflip, 0.0, 1.0));
    LVN_TRY(check_range("augment.brightness", t->brightness, 0.0, 10.0));
    LVN_TRY(check_range("augment.contrast", t->contrast, 0.0, 10.0));
    LVN_TRY(check_range("augment.saturation", t->saturation, 0.0, 10.0));
    LVN_TRY(check_range("augment.hue", t->hue, 0.0, 0.5));
    LVN_TRY(check_range("augment.jitter", t->jitter, 0.0, 1.0));
    LVN_TRY(check_range("augment.grey", t->grey, 0.0, 1.0));
    LVN_TRY(check_blur(t));
    LVN_TRY(check_range("augment.solarize", t->solarize, 0.0, 1.0));
    LVN_TRY(check_range("augment.solarize_from", t->solarize_from, 0.0, 1.0));
    LVN_TRY(check_range("random_rotation.prob", t->rotate, 0.0, 1.0));
    LVN_TRY(check_range("random_rotation.degrees", t->rotate_degrees, 0.0, 180.0));
    LVN_TRY(check_channels(t));
    LVN_TRY(check_range("eval.resize", t->eval_resize, 1, LVNI_RESAMPLE_MAX_SIDE));
    for (int c = 0; c < lvni_data_transform_depth(t); c++) {
        LVN_TRY(check_range("normalize.mean", (double)t->mean[c], -1e3, 1e3));
        LVN_TRY(check_range("normalize.std", (double)t->std[c], 1e-6, 1e3));
    }
    return LVN_OK;
}

/* ---- draws ---- */

static lvni_core_rng stream(const lvn_sample_key *key, lvni_data_augment_op op)
{
    return (lvni_core_rng){lvni_core_rng_make_key(key->seed, lvni_core_rng_purpose("data")),
                           key->epoch, (uint32_t)key->sample, (uint32_t)op};
}

static double draw(const lvni_core_rng *rng, uint64_t element)
{
    return (double)lvni_core_rng_u32(rng, element) * 0x1p-32;
}

/* The largest central box of an allowed ratio: what is left when ten tries found no crop that
 * fits. */
static lvni_data_box crop_fallback(const lvni_data_transform *t, int width, int height)
{
    const double ratio = (double)width / height;
    double w = width, h = height;
    if (ratio < t->ratio[0]) {
        h = floor(width / t->ratio[0] + 0.5);
    } else if (ratio > t->ratio[1]) {
        w = floor(height * t->ratio[1] + 0.5);
    }
    h = h < 1.0 ? 1.0 : h > height ? height : h;
    w = w < 1.0 ? 1.0 : w > width ? width : w;
    return (lvni_data_box){floor((width - w) / 2.0), floor((height - h) / 2.0), w, h};
}

static lvni_data_box crop_random(const lvni_data_transform *t, const lvn_sample_key *key, int width,
                                 int height)
{
    const lvni_core_rng rng = stream(key, LVNI_AUGMENT_CROP);
    const double area = (double)width * height;
    const double log_from = lvni_core_log(t->ratio[0]), log_to = lvni_core_log(t->ratio[1]);
    for (uint64_t attempt = 0; attempt < 10; attempt++) {
        const double target =
            area * (t->scale[0] + draw(&rng, 4 * attempt) * (t->scale[1] - t->scale[0]));
        const double aspect =
            lvni_core_exp(log_from + draw(&rng, 4 * attempt + 1) * (log_to - log_from));
        const double w = floor(lvni_core_sqrt(target * aspect) + 0.5),
                     h = floor(lvni_core_sqrt(target / aspect) + 0.5);
        if (w >= 1.0 && w <= width && h >= 1.0 && h <= height) {
            const double y = floor(draw(&rng, 4 * attempt + 2) * (height - h + 1.0));
            const double x = floor(draw(&rng, 4 * attempt + 3) * (width - w + 1.0));
            return (lvni_data_box){x, y, w, h};
        }
    }
    return crop_fallback(t, width, height);
}

static bool draw_whether(const lvn_sample_key *key, lvni_data_augment_op op, double p)
{
    const lvni_core_rng rng = stream(key, op);
    return p > 0.0 && draw(&rng, 0) < p;
}

static float draw_factor(const lvn_sample_key *key, lvni_data_augment_op op, double x)
{
    const lvni_core_rng rng = stream(key, op);
    const double low = x < 1.0 ? 1.0 - x : 0.0, high = 1.0 + x;
    return (float)(low + draw(&rng, 0) * (high - low));
}

static void draw_colour(const lvni_data_transform *t, const lvn_sample_key *key,
                        lvni_data_augment *out)
{
    const lvni_core_rng order = stream(key, LVNI_AUGMENT_ORDER),
                        hue = stream(key, LVNI_AUGMENT_HUE);
    uint64_t element = 0;
    for (uint32_t i = 3; i > 0; i--) {
        const uint32_t j = lvni_core_rng_below(&order, i + 1, &element);
        const int swapped = out->order[i];
        out->order[i] = out->order[j];
        out->order[j] = swapped;
    }
    out->colour = true;
    out->brightness = draw_factor(key, LVNI_AUGMENT_BRIGHTNESS, t->brightness);
    out->contrast = draw_factor(key, LVNI_AUGMENT_CONTRAST, t->contrast);
    out->saturation = draw_factor(key, LVNI_AUGMENT_SATURATION, t->saturation);
    out->hue = (float)((2.0 * draw(&hue, 0) - 1.0) * t->hue);
}

static lvn_status draw_crop(const lvni_data_transform *t, const lvn_sample_key *key, int width,
                            int height, lvni_data_augment *out)
{
    lvni_data_resize_plan *p = &out->plan;
    if (key->training && t->random_crop && !t->whole) {
        out->box = crop_random(t, key, width, height);
        return LVN_OK;
    }
    if (t->whole || lvni_data_transform_width(t) != t->size) {
        out->box = (lvni_data_box){0.0, 0.0, width, height};
        return LVN_OK;
    }
    out->centre = true;
    LVN_TRY(lvni_data_resize_centre(t->eval_resize, t->size, t->eval_filter, width, height, p));
    out->box = lvni_data_resize_wanted(p, width, height);
    return LVN_OK;
}

static void draw_blur(const lvni_data_transform *t, const lvn_sample_key *key,
                      lvni_data_augment *out)
{
    const lvni_core_rng rng = stream(key, LVNI_AUGMENT_BLUR);
    out->blur_sigma = t->blur_sigma[0] + draw(&rng, 1) * (t->blur_sigma[1] - t->blur_sigma[0]);
    out->blur_kernel = t->blur_kernel;
    if (t->blur_limit > 0) {
        const int width = (int)(draw(&rng, 2) * (t->blur_limit + 1));
        out->blur_kernel = width > 0 ? width | 1 : 0;
    }
}

/* The channel to drop of those that are left, by their weights. */
static int draw_dropped(const double weight[4], double u)
{
    const double end = u * (weight[0] + weight[1] + weight[2] + weight[3]);
    double sum = 0.0;
    int last = 0;
    for (int c = 0; c < 4; c++) {
        sum += weight[c];
        last = weight[c] > 0.0 ? c : last;
        if (sum > end) {
            return c;
        }
    }
    return last;
}

static void draw_channels(const lvni_data_transform *t, const lvn_sample_key *key,
                          lvni_data_augment *out)
{
    const lvni_core_rng rng = stream(key, LVNI_AUGMENT_CHANNELS);
    const int channels = lvni_data_transform_channels(t);
    double weight[4] = {0.0, 0.0, 0.0, 0.0};
    bool dropped[4] = {false, false, false, false};
    memcpy(weight, t->drop_weight, (size_t)channels * sizeof *weight);
    for (int d = 0; d < channels - lvni_data_transform_depth(t); d++) {
        const int c = draw_dropped(weight, draw(&rng, (uint64_t)d));
        dropped[c] = true;
        weight[c] = 0.0;
    }
    for (int c = 0, n = 0; c < channels; c++) {
        if (!dropped[c]) {
            out->channel[n++] = c;
        }
    }
}

/* RGB, of which nothing is dropped. */
static bool is_colour(const lvni_data_transform *t)
{
    return lvni_data_transform_channels(t) == 3 && lvni_data_transform_depth(t) == 3;
}

static void draw_colours(const lvni_data_transform *t, const lvn_sample_key *key,
                         lvni_data_augment *out)
{
    const bool jitter =
        t->brightness > 0.0 || t->contrast > 0.0 || t->saturation > 0.0 || t->hue > 0.0;
    if (jitter && draw_whether(key, LVNI_AUGMENT_JITTER, t->jitter)) {
        draw_colour(t, key, out);
    }
    out->grey = draw_whether(key, LVNI_AUGMENT_GREY, t->grey);
    out->solarize = draw_whether(key, LVNI_AUGMENT_SOLARIZE, t->solarize);
}

lvn_status lvni_data_augment_draw(const lvni_data_transform *t, const lvn_sample_key *key,
                                  int width, int height, lvni_data_augment *out)
{
    *out = (lvni_data_augment){.order = {LVNI_AUGMENT_BRIGHTNESS, LVNI_AUGMENT_CONTRAST,
                                         LVNI_AUGMENT_SATURATION, LVNI_AUGMENT_HUE},
                               .channel = {0, 1, 2, 3},
                               .brightness = 1.0f,
                               .contrast = 1.0f,
                               .saturation = 1.0f};
    LVN_TRY(draw_crop(t, key, width, height, out));
    if (!key->training) {
        return LVN_OK;
    }
    out->hflip = draw_whether(key, LVNI_AUGMENT_HFLIP, t->hflip);
    out->vflip = draw_whether(key, LVNI_AUGMENT_VFLIP, t->vflip);
    if (draw_whether(key, LVNI_AUGMENT_ROTATE, t->rotate)) {
        const lvni_core_rng rng = stream(key, LVNI_AUGMENT_ROTATE);
        out->turns = (2.0 * draw(&rng, 1) - 1.0) * t->rotate_degrees / 360.0;
    }
    if (is_colour(t)) {
        draw_colours(t, key, out);
    } else {
        draw_channels(t, key, out);
    }
    if (draw_whether(key, LVNI_AUGMENT_BLUR, t->blur)) {
        draw_blur(t, key, out);
    }
    return LVN_OK;
}

/* ---- rendering ---- */

/* How a stored image is turned: first x and y are exchanged, then the axes of the result
 * mirrored. */
typedef struct turn {
    bool swap, mirror_x, mirror_y;
} turn;

static turn turn_of(int orientation)
{
    static const turn turns[9] = {
        [1] = {false, false, false}, [2] = {false, true, false}, [3] = {false, true, true},
        [4] = {false, false, true},  [5] = {true, false, false}, [6] = {true, true, false},
        [7] = {true, true, true},    [8] = {true, false, true},
    };
    return turns[orientation];
}

/* The box on the stored, perhaps shrunk image. */
static lvni_data_box box_stored(const lvni_data_box *box, const turn *turned, double s,
                                const lvni_data_image_info *info)
{
    const double width = turned->swap ? info->height : info->width,
                 height = turned->swap ? info->width : info->height;
    const double x = turned->mirror_x ? width - box->x - box->width : box->x;
    const double y = turned->mirror_y ? height - box->y - box->height : box->y;
    if (turned->swap) {
        return (lvni_data_box){y * s, x * s, box->height * s, box->width * s};
    }
    return (lvni_data_box){x * s, y * s, box->width * s, box->height * s};
}

/* Output pixel (x, y) of the stored orientation lies at data + x * step_x + y * step_y of the
 * turned and flipped one. */
static void target_steps(lvni_data_resample_target *target, float *out,
                         const lvni_data_transform *t, const turn *turned,
                         const lvni_data_augment *a)
{
    const int width = lvni_data_transform_width(t);
    const bool mirror_x = turned->mirror_x != a->hflip, mirror_y = turned->mirror_y != a->vflip;
    const ptrdiff_t pixel = lvni_data_transform_channels(t), row = pixel * width;
    const ptrdiff_t along = mirror_x ? -pixel : pixel, down = mirror_y ? -row : row;
    target->data = out + (mirror_x ? row - pixel : 0) + (mirror_y ? row * (t->size - 1) : 0);
    target->step_x = turned->swap ? down : along;
    target->step_y = turned->swap ? along : down;
}

static void jitter_apply(const lvni_data_transform *t, const lvni_data_augment *a, float *rgb,
                         int64_t n)
{
    for (int i = 0; i < 4; i++) {
        if (a->order[i] == LVNI_AUGMENT_BRIGHTNESS && t->brightness > 0.0) {
            lvni_data_colour_brightness(rgb, n, a->brightness);
        } else if (a->order[i] == LVNI_AUGMENT_CONTRAST && t->contrast > 0.0) {
            lvni_data_colour_contrast(rgb, n, a->contrast);
        } else if (a->order[i] == LVNI_AUGMENT_SATURATION && t->saturation > 0.0) {
            lvni_data_colour_saturation(rgb, n, a->saturation);
        } else if (a->order[i] == LVNI_AUGMENT_HUE && t->hue > 0.0) {
            lvni_data_colour_hue(rgb, n, a->hue);
        }
    }
}

/* Whatever works on pixels between crop and normalisation; values in 0..255. */
static lvn_status colour_apply(lvni_data_scratch *scratch, const lvni_data_transform *t,
                               const lvni_data_augment *a, float *rgb)
{
    const int width = lvni_data_transform_width(t), channels = lvni_data_transform_channels(t);
    const int64_t n = (int64_t)t->size * width;
    if (a->turns != 0.0) {
        LVN_TRY(lvni_data_rotate(scratch, rgb, width, t->size, channels, a->turns));
    }
    if (a->colour) {
        jitter_apply(t, a, rgb, n);
    }
    if (a->grey) {
        lvni_data_colour_saturation(rgb, n, 0.0f);
    }
    if (a->blur_sigma > 0.0) {
        LVN_TRY(
            lvni_data_blur(scratch, rgb, width, t->size, channels, a->blur_sigma, a->blur_kernel));
    }
    if (a->solarize) {
        lvni_data_colour_solarize(rgb, n, (float)(t->solarize_from * 255.0));
    }
    return LVN_OK;
}

/* (x / 255 - mean) / std as x * scale + bias. */
static void normal_factors(const lvni_data_transform *t, float scale[4], float bias[4])
{
    for (int c = 0; c < 4; c++) {
        scale[c] = 1.0f / (255.0f * t->std[c]);
        bias[c] = -t->mean[c] / t->std[c];
    }
}

static void normalise(const lvni_data_transform *t, float *rgb, int64_t n)
{
    float scale[4], bias[4];
    normal_factors(t, scale, bias);
    for (int64_t i = 0; i < n; i++, rgb += 3) {
        rgb[0] = rgb[0] * scale[0] + bias[0];
        rgb[1] = rgb[1] * scale[1] + bias[1];
        rgb[2] = rgb[2] * scale[2] + bias[2];
    }
}

/* The same of any channels of n pixels, those that are kept. */
static void keep_channels(const lvni_data_transform *t, const lvni_data_augment *a,
                          const float *values, int64_t n, float *out)
{
    const int channels = lvni_data_transform_channels(t), keep = lvni_data_transform_depth(t);
    float scale[4], bias[4];
    normal_factors(t, scale, bias);
    for (int64_t i = 0; i < n; i++, values += channels) {
        for (int c = 0; c < 4 && c < keep; c++) {
            *out++ = values[a->channel[c]] * scale[c] + bias[c];
        }
    }
}

double lvni_data_augment_need(const lvni_data_transform *t, const lvni_data_augment *a)
{
    const double across = lvni_data_transform_width(t) / a->box.width,
                 down = t->size / a->box.height, need = across > down ? across : down;
    return !a->centre && need < 1.0 ? need : 1.0;
}

/* Where it is the middle of an image of three channels; of others the same part is resized as those
 * of training are. */
static bool resizes_as_pillow(const lvni_data_transform *t, const lvni_data_augment *a)
{
    return a->centre && lvni_data_transform_channels(t) == 3;
}

lvni_data_box lvni_data_augment_wanted(const lvni_data_transform *t, const lvni_data_augment *a,
                                       const lvni_data_image_info *info)
{
    const turn turned = turn_of(info->orientation);
    const lvni_data_box box = box_stored(&a->box, &turned, 1.0, info);
    if (resizes_as_pillow(t, a)) { /* with its reach */
        return box;
    }
    /* The reach of an output pixel, then the rounding to pixels, which the decoder may have made as
     * large as an output pixel. */
    const int width = turned.swap ? t->size : lvni_data_transform_width(t),
              height = turned.swap ? lvni_data_transform_width(t) : t->size;
    const double x = 2.0 * (box.width > width ? box.width / width : 1.0) + 1.0;
    const double y = 2.0 * (box.height > height ? box.height / height : 1.0) + 1.0;
    return (lvni_data_box){box.x - x, box.y - y, box.width + 2.0 * x, box.height + 2.0 * y};
}

/* The part of the image that is there, turned upright. It lies in scratch->turned. */
static lvn_status image_turn(lvni_data_scratch *scratch, const lvni_data_image *p,
                             const turn *turned, lvni_data_image *out)
{
    const bool whole = p->columns == 0, swap = turned->swap;
    const int columns = whole ? p->width : p->columns, rows = whole ? p->height : p->rows;
    const ptrdiff_t along = swap ? 3 * (ptrdiff_t)columns : 3,
                    down = swap ? 3 : 3 * (ptrdiff_t)columns;
    *out = (lvni_data_image){.scale = p->scale,
                             .width = swap ? p->height : p->width,
                             .height = swap ? p->width : p->height,
                             .left = swap ? p->top : p->left,
                             .top = swap ? p->left : p->top,
                             .columns = swap ? rows : columns,
                             .rows = swap ? columns : rows};
    LVN_TRY(lvni_data_buffer_reserve(&scratch->turned, 3 * (size_t)columns * (size_t)rows));
    uint8_t *to = scratch->turned.data;
    out->rgb = to;
    const uint8_t *corner = p->rgb + (turned->mirror_x ? (out->columns - 1) * along : 0) +
                            (turned->mirror_y ? (out->rows - 1) * down : 0);
    for (int y = 0; y < out->rows; y++) {
        const uint8_t *from = corner + (turned->mirror_y ? -y : y) * down;
        for (int x = 0; x < out->columns; x++, from += turned->mirror_x ? -along : along, to += 3) {
            memcpy(to, from, 3);
        }
    }
    out->left = turned->mirror_x ? out->width - out->left - out->columns : out->left;
    out->top = turned->mirror_y ? out->height - out->top - out->rows : out->top;
    return LVN_OK;
}

/* As Pillow: turned, then resized. */
static lvn_status centre_render(lvni_data_scratch *scratch, const lvni_data_augment *a,
                                const lvni_data_image *image, const turn *turned,
                                const lvni_data_resample_target *target)
{
    lvni_data_image upright = *image;
    if (turned->swap || turned->mirror_x || turned->mirror_y) {
        LVN_TRY(image_turn(scratch, image, turned, &upright));
    }
    return lvni_data_resize(scratch, &upright, &a->plan, target);
}

/* The square that the plan takes out of the resized image, in pixels of the upright image itself.
 */
static lvni_data_box centre_box(const lvni_data_resize_plan *p, int width, int height)
{
    const double x = (double)width / p->width, y = (double)height / p->height;
    lvni_data_box box = {p->left * x, p->top * y, p->crop * x, p->crop * y};
    if (p->left < 0 || p->crop > p->width) {
        box.x = 0.0;
        box.width = width;
    }
    if (p->top < 0 || p->crop > p->height) {
        box.y = 0.0;
        box.height = height;
    }
    return box;
}

/* The pixels of the output, before colours are changed: times target->scale, plus target->bias. */
static lvn_status crop_render(lvni_data_scratch *scratch, const lvni_data_transform *t,
                              const lvni_data_augment *a, const lvni_data_image *image,
                              const lvni_data_image_info *info, lvni_data_resample_target *target,
                              float *out)
{
    const turn turned = turn_of(info->orientation), upright = {false, false, false};
    const bool centre = resizes_as_pillow(t, a) && image->deep == NULL;
    target_steps(target, out, t, centre ? &upright : &turned, a);
    if (centre) {
        return centre_render(scratch, a, image, &turned, target);
    }
    const lvni_data_box wanted =
        a->centre ? centre_box(&a->plan, turned.swap ? info->height : info->width,
                               turned.swap ? info->width : info->height)
                  : a->box;
    const lvni_data_box box = box_stored(&wanted, &turned, image->scale, info);
    const int width = turned.swap ? t->size : lvni_data_transform_width(t),
              height = turned.swap ? lvni_data_transform_width(t) : t->size;
    return t->area && !a->centre
               ? lvni_data_resample_area(scratch, image, &box, width, height, target)
               : lvni_data_resample(scratch, image, &box, width, height, target);
}

lvn_status lvni_data_augment_render(lvni_data_scratch *scratch, const lvni_data_transform *t,
                                    const lvni_data_augment *a, const lvni_data_image *image,
                                    const lvni_data_image_info *info, float *out)
{
    lvni_data_resample_target target = {.scale = {1.0f, 1.0f, 1.0f, 1.0f}};
    const int64_t n = (int64_t)t->size * lvni_data_transform_width(t);
    const bool all = is_colour(t);
    const bool plain = !a->colour && !a->grey && !a->solarize && a->blur_sigma == 0.0;
    if (all && plain && a->turns == 0.0) {
        normal_factors(t, target.scale, target.bias);
        return crop_render(scratch, t, a, image, info, &target, out);
    }
    if (!all) {
        const size_t values = (size_t)n * (size_t)lvni_data_transform_channels(t);
        LVN_TRY(lvni_data_buffer_reserve(&scratch->view, values * sizeof *out));
    }
    float *rgb = all ? out : scratch->view.data;
    LVN_TRY(crop_render(scratch, t, a, image, info, &target, rgb));
    LVN_TRY(colour_apply(scratch, t, a, rgb));
    if (all) {
        normalise(t, rgb, n);
    } else {
        keep_channels(t, a, rgb, n, out);
    }
    return LVN_OK;
}

void lvni_data_transform_to_rgb(const lvni_data_transform *t, const float *image, uint8_t *rgb)
{
    for (int64_t i = 0; i < (int64_t)t->size * lvni_data_transform_width(t) * 3; i++) {
        const float x = (image[i] * t->std[i % 3] + t->mean[i % 3]) * 255.0f + 0.5f;
        rgb[i] = (uint8_t)(x < 0.0f ? 0.0f : x > 255.0f ? 255.0f : x);
    }
}

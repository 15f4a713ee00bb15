/* Presets of views (view_presets.h), those of LightlyTrain 0.18. The crops of dino are the ones
 * that its authors trained a resnet50 with. */
#include "images/view_presets.h"

#include <string.h>

#define IMAGENET .mean = {0.485F, 0.456F, 0.406F, 0.485F}, .std = {0.229F, 0.224F, 0.225F, 0.229F}
#define CROP(from, to)                                                                             \
    {                                                                                              \
        .scale = {from, to}, .ratio = { 3.0 / 4.0, 4.0 / 3.0 }                                     \
    }
#define BLUR(p)                                                                                    \
    {                                                                                              \
        .prob = (p), .sigmas = { 0.1, 2.0 }                                                        \
    }
/* Everything that dino, dinov2 and distillation share. */
#define HALF_STRENGTH                                                                              \
    .size = {224, 224}, .horizontal_flip = 0.5, .grey = 0.2, IMAGENET,                             \
    .jitter = {0.8, 0.5, 0.8, 0.8, 0.4, 0.2}, .solarize.threshold = 0.5
#define SECOND .second = {true, BLUR(0.1), {0.2, 0.5}}

static const lvni_images_view_args presets[] = {
    {.method = "simclr",
     .n_global = 2,
     .size = {224, 224},
     .resize = CROP(0.08, 1.0),
     .horizontal_flip = 0.5,
     .jitter = {0.8, 1.0, 0.8, 0.8, 0.8, 0.2},
     .grey = 0.2,
     .blur = BLUR(0.5),
     .solarize.threshold = 0.5,
     IMAGENET},
    {.method = "dino",
     .n_global = 2,
     .resize = CROP(0.14, 1.0),
     .blur = BLUR(1.0),
     HALF_STRENGTH,
     SECOND,
     .local = {6, {96, 96}, CROP(0.05, 0.14), BLUR(0.5)}},
    {.method = "dinov2",
     .n_global = 2,
     .resize = CROP(0.32, 1.0),
     .blur = BLUR(1.0),
     HALF_STRENGTH,
     SECOND,
     .local = {8, {98, 98}, CROP(0.05, 0.32), BLUR(0.5)}},
    {.method = "distillation",
     .n_global = 1,
     .resize = CROP(0.14, 1.0),
     /* kept as it is there: a width of one pixel, which changes nothing */
     .blur = {.prob = 1.0, .sigmas = {0.0, 0.1}},
     HALF_STRENGTH},
};

const lvni_images_view_args *lvni_images_view_preset(const char *method)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(presets[i].method, method) == 0) {
            return &presets[i];
        }
    }
    return NULL;
}

static void set_blur(lvni_data_transform *t, const lvni_images_view_blur *b)
{
    t->blur = b->prob;
    t->blur_sigma[0] = b->sigmas[0];
    t->blur_sigma[1] = b->sigmas[1];
    t->blur_limit = b->limit;
}

static void set_resize(lvni_data_transform *t, const int size[2], const lvni_images_view_resize *r)
{
    t->size = size[0];
    t->width = size[1];
    t->whole = r->off;
    memcpy(t->scale, r->scale, sizeof t->scale);
    memcpy(t->ratio, r->ratio, sizeof t->ratio);
}

static void set_solarize(lvni_data_transform *t, const lvni_images_view_solarize *s)
{
    t->solarize = s->prob;
    t->solarize_from = s->threshold;
}

/* What all views have alike, and the crop, blur and solarization of the first. */
static void set_common(const lvni_images_view_args *a, lvni_data_transform *t)
{
    lvni_data_transform_init(t, a->size[0]);
    t->area = true;
    set_resize(t, a->size, &a->resize);
    t->hflip = a->horizontal_flip;
    t->vflip = a->vertical_flip;
    t->rotate = a->rotate;
    t->rotate_degrees = a->degrees;
    t->jitter = a->jitter.prob;
    t->brightness = a->jitter.strength * a->jitter.brightness;
    t->contrast = a->jitter.strength * a->jitter.contrast;
    t->saturation = a->jitter.strength * a->jitter.saturation;
    t->hue = a->jitter.strength * a->jitter.hue;
    t->grey = a->grey;
    set_blur(t, &a->blur);
    set_solarize(t, &a->solarize);
    memcpy(t->mean, a->mean, sizeof t->mean);
    memcpy(t->std, a->std, sizeof t->std);
    t->channels = a->channels;
    t->keep = a->keep;
    t->deep = a->deep;
    t->as_stored = a->as_stored;
    memcpy(t->drop_weight, a->drop_weight, sizeof t->drop_weight);
}

void lvni_images_views_make(const lvni_images_view_args *a, lvni_data_views *out)
{
    *out = (lvni_data_views){.n = a->n_global + a->local.n, .stacked = true};
    for (int v = 0; v < out->n && v < LVNI_MAX_VIEWS; v++) {
        lvni_data_transform *t = &out->view[v];
        set_common(a, t);
        if (v == 1 && a->n_global > 1 && a->second.own) {
            set_blur(t, &a->second.blur);
            set_solarize(t, &a->second.solarize);
        }
        if (v >= a->n_global) {
            set_resize(t, a->local.size, &a->local.resize);
            set_blur(t, &a->local.blur);
            t->solarize = 0.0;
        }
    }
}

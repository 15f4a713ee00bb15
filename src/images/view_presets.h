/* The views of an image that methods of self-supervised training ask for: for each method what its
 * authors and their followers give. A recipe copies a preset, changes what its keys ask for, and
 * makes the views:
 *
 *     lvni_images_view_args a = *lvni_images_view_preset("dino");
 *     a.size[0] = a.size[1] = 160;
 *     a.local.n = 4;
 *     lvni_images_views_make(&a, &views);
 *     LVN_TRY(lvni_images_source_views(&source, NULL, 0, &views, &dataset)); checks them
 */
#ifndef LEVIN_IMAGES_VIEW_PRESETS_H
#define LEVIN_IMAGES_VIEW_PRESETS_H

#include "data/views.h"

typedef struct lvni_images_view_blur {
    double prob, sigmas[2]; /* pixels */
    int limit;              /* of the drawn width; 0: as sigma has it */
} lvni_images_view_blur;

typedef struct lvni_images_view_solarize {
    double prob, threshold;
} lvni_images_view_solarize;

typedef struct lvni_images_view_resize {
    bool off; /* no crop: the whole image */
    double scale[2], ratio[2];
} lvni_images_view_resize;

/* Named as the keys transform_args.*. A probability of 0 is off. */
typedef struct lvni_images_view_args {
    const char *method;
    int n_global; /* views before the local ones */
    int size[2];  /* height, width */
    lvni_images_view_resize resize;
    double horizontal_flip, vertical_flip;
    double rotate, degrees;
    struct {
        double prob, strength; /* the amounts below are times strength */
        double brightness, contrast, saturation, hue;
    } jitter;
    double grey;
    lvni_images_view_blur blur;
    lvni_images_view_solarize solarize;
    float mean[4], std[4]; /* by their place in the output */
    int channels, keep;    /* as lvni_data_transform has them */
    double drop_weight[4];
    bool deep, as_stored; /* as lvni_data_transform has them */
    struct {
        bool own; /* the second global view has these instead */
        lvni_images_view_blur blur;
        lvni_images_view_solarize solarize;
    } second;
    struct {
        int n; /* 0: none */
        int size[2];
        lvni_images_view_resize resize;
        lvni_images_view_blur blur;
    } local;
} lvni_images_view_args;

/* simclr, dino, dinov2, distillation; NULL: another method. */
const lvni_images_view_args *lvni_images_view_preset(const char *method);
/* "simclr|dino|dinov2|distillation" */
#define LVNI_VIEW_PRESETS "simclr|dino|dinov2|distillation"

/* Global views, then local ones, stacked. More than LVNI_MAX_VIEWS, and what is out of range, is
 * left to the dataset's check. */
void lvni_images_views_make(const lvni_images_view_args *args, lvni_data_views *out);

#endif

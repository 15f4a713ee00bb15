/* From a decoded image to the input of a network: which part of it, how it is turned and
 * coloured, and its normalisation.
 *
 * THE DRAWS (docs/reproducibility.md). All random numbers come from lvni_core_rng with key
 * (key->seed, "data"), a = epoch, b = sample, c = one of the operation numbers below, element =
 * draw. Numbers and meaning never change; new operations get new numbers.
 *   crop        try t = 0..9 draws elements 4t (area), 4t + 1 (aspect), 4t + 2 (top), 4t + 3
 *     (left), each u in [0, 1) = u32 * 2^-32
 *   hflip vflip element 0: flipped when u < p
 *   order       elements 0..: Fisher-Yates over brightness, contrast, saturation, hue (for i =
 *     3..1: swap with lvni_core_rng_below(i + 1))
 *   brightness contrast saturation   element 0: factor = lo + u (hi - lo), lo = max(0, 1 - x), hi =
 *     1 + x
 *   hue         element 0: shift in turns = (2u - 1) x
 *   jitter grey solarize   element 0: done when u < p
 *   blur        element 0: done when u < p; element 1: sigma = from + u (to - from); element 2
 *     (blur_limit): width = floor(u (limit + 1)), made odd upwards; 0: as sigma has it
 *   rotate      element 0: done when u < p; element 1: degrees = (2u - 1) x
 *   channels    element d = 0, 1, ...: which one is dropped next: the first of those left up to
 *     which their weights add up to more than u times the sum of all
 * Views have seeds of their own (views.h).
 * In this order: crop, flips, rotation, jitter (the four colour operations), grey, blur, solarize,
 * normalisation, channels. Called by views.c; the recipes fill the transform. */
#ifndef LEVIN_DATA_AUGMENT_H
#define LEVIN_DATA_AUGMENT_H

#include "data/resample.h"

#include <levin/data.h>

typedef enum lvni_data_augment_op {
    LVNI_AUGMENT_CROP = 1,
    LVNI_AUGMENT_HFLIP = 2,
    LVNI_AUGMENT_VFLIP = 3,
    LVNI_AUGMENT_ORDER = 4,
    LVNI_AUGMENT_BRIGHTNESS = 5,
    LVNI_AUGMENT_CONTRAST = 6,
    LVNI_AUGMENT_SATURATION = 7,
    LVNI_AUGMENT_HUE = 8,
    LVNI_AUGMENT_JITTER = 9,
    LVNI_AUGMENT_GREY = 10,
    LVNI_AUGMENT_BLUR = 11,
    LVNI_AUGMENT_SOLARIZE = 12,
    LVNI_AUGMENT_ROTATE = 13,
    LVNI_AUGMENT_CHANNELS = 14,
} lvni_data_augment_op;

/* What a dataset view does with its images. The training part is used where key->training is
 * set. */
typedef struct lvni_data_transform {
    int size;         /* output (size, width, channels) */
    int width;        /* 0: size */
    bool random_crop; /* random resized crop; else resized and cropped as for evaluation */
    bool whole;       /* no crop at all: every image is stretched to the output */
    bool area;        /* what is not cropped as for evaluation is resized by area, not bilinear */
    double scale[2];  /* part of the area that a random crop keeps, from .. to */
    double ratio[2];  /* width / height of a random crop, from .. to */
    double hflip, vflip;                     /* probabilities */
    double brightness, contrast, saturation; /* 0: off; x: factor in 1 - x .. 1 + x */
    double hue;                              /* 0: off; x <= 0.5: shift in -x .. x turns */
    double jitter;         /* probability of the colour jitter of the lines above */
    double grey;           /* probability of grey in all three channels */
    double blur;           /* probability of a Gaussian blur */
    double blur_sigma[2];  /* its standard deviation in pixels of the output, from .. to */
    int blur_kernel;       /* its width in pixels, odd; 0: 2 floor(3.5 sigma) + 1 */
    int blur_limit;        /* instead a drawn width: 0 to this, made odd; 0 as above */
    double rotate;         /* probability of a rotation about the centre; the border is mirrored */
    double rotate_degrees; /* its angle, in -x .. x */
    /* probability of turning values from the threshold on into 255 - value */
    double solarize;
    double solarize_from; /* the threshold, in 0..1 */
    int eval_resize; /* shorter side of the resized image, from which evaluation takes the central
                        size x size; an oblong output gets the whole image */
    lvni_data_filter eval_filter; /* of this resizing */
    /* Of channels in 0..1, by their place in the output. */
    float mean[4], std[4];
    /* Channels that images are decoded to: 1 grey, 2 grey and alpha, 3 or 0 RGB, 4 RGB and alpha.
     * keep: how many of them the output has, 0: all; training drops the others at random, by
     * weight (0: never), evaluation the last. Jitter, grey and solarize are for RGB with all its
     * channels. */
    int channels, keep;
    double drop_weight[4];
    /* Files of 16 bits per channel have all of them; else the high 8. Evaluation resamples such an
     * image as training does, not with eval_filter. */
    bool deep;
    bool as_stored; /* images are not turned as Exif asks for */
} lvni_data_transform;

/* Photos: random crop with scale 0.08..1 and ratio 3/4..4/3, hflip 0.5, no colour jitter,
 * eval_resize lvni_data_transform_resize(size), bilinear, mean and deviation of ImageNet. */
void lvni_data_transform_init(lvni_data_transform *t, int size);
/* Of the decoded image. */
static inline int lvni_data_transform_channels(const lvni_data_transform *t)
{
    return t->channels > 0 ? t->channels : 3;
}
/* Width and channels of the output. */
static inline int lvni_data_transform_width(const lvni_data_transform *t)
{
    return t->width > 0 ? t->width : t->size;
}
static inline int lvni_data_transform_depth(const lvni_data_transform *t)
{
    return t->keep > 0 ? t->keep : lvni_data_transform_channels(t);
}
/* round(size / 0.875): torchvision's 256 for 224. */
int lvni_data_transform_resize(int size);
/* No randomness at all: the evaluation transform for training samples too. */
void lvni_data_transform_no_augment(lvni_data_transform *t);
/* LVN_ERR_USAGE that names the setting by its configuration key, its value and the range. */
lvn_status lvni_data_transform_check(const lvni_data_transform *t);

/* Everything drawn for one sample: the same for equal (key, size of image, transform). */
typedef struct lvni_data_augment {
    bool centre;                /* resized and cropped by `plan`; else `box` is resampled */
    lvni_data_resize_plan plan; /* of the upright image */
    lvni_data_box box;          /* the same, in pixels of the upright image */
    bool hflip, vflip;          /* after the crop */
    bool colour;                /* some of the four below, in this order */
    int order[4];               /* operation numbers, first to last */
    float brightness, contrast, saturation, hue;
    bool grey, solarize;
    double blur_sigma; /* 0: no blur */
    int blur_kernel;
    double turns;   /* of the rotation; 0: none */
    int channel[4]; /* those of the output, ascending */
} lvni_data_augment;

/* LVN_ERR_USAGE for an image that is too long to be resized. */
lvn_status lvni_data_augment_draw(const lvni_data_transform *t, const lvn_sample_key *key,
                                  int width, int height, lvni_data_augment *out);

/* Render a decoded image (stored orientation, perhaps shrunk where lvni_data_augment_need allows
 * it) into out (size, width, channels). `orientation` as in Exif. */
lvn_status lvni_data_augment_render(lvni_data_scratch *scratch, const lvni_data_transform *t,
                                    const lvni_data_augment *a, const lvni_data_image *image,
                                    const lvni_data_image_info *info, float *out);
/* How large the decoded image must be for `a`, as a part of the stored one: 0 < need <= 1. */
double lvni_data_augment_need(const lvni_data_transform *t, const lvni_data_augment *a);
/* The part of the stored image that `a` needs, with what resampling reads around the box; its
 * edges may lie outside. */
lvni_data_box lvni_data_augment_wanted(const lvni_data_transform *t, const lvni_data_augment *a,
                                       const lvni_data_image_info *info);

/* (size, width, 3) f32 as the network sees it, back to RGB bytes. */
void lvni_data_transform_to_rgb(const lvni_data_transform *t, const float *image, uint8_t *rgb);

#endif

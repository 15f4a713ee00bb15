/* What happens to the frames of a training clip: one turn and scale, one brightness and contrast
 * for all of its frames, and noise for each pixel. Called by pose_clips.c.
 *
 * THE DRAWS (docs/reproducibility.md). All random numbers come from lvni_core_rng with key (seed,
 * "data/clips"), b = the lowest 32 bits of the clip's number. Numbers and meaning never change. u
 * in [0, 1) is u32 * 2^-32 of an element:
 *   c = 0, a = 0      element 0: angle -10 + 20 u degrees, 1 and 2: scale 0.8 + 0.4 u of x and of y
 *   c = 1, a = 0      element 0: brightness, 1: contrast, 0.75 + 0.5 u; 2: strength 10 u of noise
 *   c = 2, a = frame  elements 2 i and 2 i + 1: noise of i = (row, column, channel) of the clip's
 *                     frame */
#ifndef LEVIN_RECIPES_POSE_POSE_CLIP_AUGMENT_H
#define LEVIN_RECIPES_POSE_POSE_CLIP_AUGMENT_H

#include "core/rng.h"
#include "recipes/pose/pose_poisson.h"

#include <stdbool.h>

/* Are clips changed where labelled frames are by this training.imgaug? */
bool lvni_pose_clip_augments(const char *imgaug);

typedef struct lvni_pose_clip_draw {
    int height, width;
    double to[2][3];   /* from (x, y, 1) in pixels to where it is, a pixel's centre at .5 */
    double from[2][3]; /* and back */
    double brightness, contrast, noise;
    lvni_core_rng rng; /* of the noise, without its frame */
} lvni_pose_clip_draw;

/* Of the clip with this number. It turns about (width / 2, height / 2), then its axes are scaled
 * about it. */
void lvni_pose_clip_draw_make(uint64_t seed, uint64_t clip, int height, int width,
                              lvni_pose_clip_draw *out);
/* image, out (height, width, 3), values from 0 to 255: bilinear, 0 outside of the image, then
 * v' = brightness (1/2 + contrast (v - 1/2)), then noise Poisson(v' / noise). frame: of the clip.
 * Not in place. */
void lvni_pose_clip_render(const lvni_pose_clip_draw *draw, const lvni_pose_poisson *poisson,
                           uint32_t frame, const float *image, float *out);

#endif

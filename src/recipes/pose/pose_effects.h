/* The operations of augmentation, one function each: the frame becomes another one in memory of
 * `work`, its points move along. `d->value` has the arguments in the order of the operation's table
 * (pose_pipeline.c). Each fails only for want of memory. Called by pose_pipeline.c. */
#ifndef LEVIN_RECIPES_POSE_POSE_EFFECTS_H
#define LEVIN_RECIPES_POSE_POSE_EFFECTS_H

#include "recipes/pose/pose_augment.h"

typedef lvn_status lvni_pose_effect(lvni_pose_work *work, lvni_pose_frame *frame,
                                    const lvni_pose_drawn *d);

/* pose_geometry.c: points move */
lvni_pose_effect lvni_pose_rot90;        /* k quarter turns clockwise, size kept */
lvni_pose_effect lvni_pose_affine;       /* rotate (degrees, clockwise), scale: about the centre */
lvni_pose_effect lvni_pose_elastic;      /* alpha, sigma */
lvni_pose_effect lvni_pose_crop_and_pad; /* top, right, bottom, left (parts; above 0 pads), keep */
lvni_pose_effect lvni_pose_fliplr;       /* done */

/* pose_pixels.c */
lvni_pose_effect lvni_pose_motion_blur; /* k, angle, direction */
lvni_pose_effect lvni_pose_emboss;      /* alpha, strength */
lvni_pose_effect lvni_pose_dropout;     /* p, part of the height, of the width (NaN: cells), cells
                                           down, across, a mask per channel */
lvni_pose_effect lvni_pose_salt;        /* the same */
lvni_pose_effect lvni_pose_pepper;

/* pose_histograms.c */
lvni_pose_effect lvni_pose_equalize;
lvni_pose_effect lvni_pose_clahe; /* clip limit, tiles of a side */

/* Four elements of noise, from LVNI_POSE_NOISE + 4 * block on. */
static inline void lvni_pose_noise(const lvni_core_rng *rng, uint32_t block, uint32_t out[4])
{
    const uint32_t counter[4] = {block + LVNI_POSE_NOISE / 4, rng->c, rng->b, rng->a};
    lvni_core_philox(counter, rng->key.k, out);
}

#endif

/* What frames and their keypoints go through on their way to the network: 8-bit RGB of any size,
 * resized to its input. Called by pose_frames.c. */
#ifndef LEVIN_RECIPES_POSE_POSE_AUGMENT_H
#define LEVIN_RECIPES_POSE_POSE_AUGMENT_H

#include "data/image.h"

#include <levin/data.h>

/* ---- a frame, and the memory that its thread reuses ---- */

typedef struct lvni_pose_frame {
    const uint8_t *rgb; /* (height, width, 3): the decoder's, or work->pixels */
    int width, height;
    double *xy; /* (k, 2) pixels, a pixel's centre at .5; NaN: no point */
    int k;
} lvni_pose_frame;

typedef struct lvni_pose_work {
    lvni_data_buffer pixels[2]; /* the frame, and what it becomes */
    lvni_data_buffer field, tables;
} lvni_pose_work;
void lvni_pose_work_free(lvni_pose_work *work);
/* Room for the next image: of both buffers the one that the frame is not in. NULL: no memory. */
uint8_t *lvni_pose_work_next(lvni_pose_work *work, const lvni_pose_frame *frame, int width,
                             int height);

/* OpenCV's INTER_CUBIC of 8 bits: a = -0.75, pixel centres at .5, the border repeated, no
 * antialiasing; weights of 11 bits, along the rows and then down the columns. Points move along. */
lvn_status lvni_pose_resize(lvni_pose_work *work, lvni_pose_frame *frame, int width, int height);
/* Left to right; points move along, names stay. */
lvn_status lvni_pose_mirror(lvni_pose_work *work, lvni_pose_frame *frame);

#endif

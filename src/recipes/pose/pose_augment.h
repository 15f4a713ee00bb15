/* What frames and their keypoints go through on their way to the network: operations in the order
 * given, each with a probability of its own, the resize to the network's input, then hflip
 * (pose_pipeline.c has names, presets and arguments). Frames are 8-bit RGB. Called by
 * pose_frames.c.
 *
 * THE DRAWS (docs/reproducibility.md). All random numbers come from lvni_core_rng with key
 * (key->seed, "data/pose"), a = epoch, b = sample, c = lvni_pose_kind + 256 * how many operations
 * of the kind stand before it in the pipeline. Numbers and meaning never change. u in [0, 1) is
 * u32 * 2^-32 of an element:
 *   0        the operation is done when u < p
 *   1 .. 31  its arguments, in the order of their table (pose_pipeline.c): lo + u (hi - lo); of
 *            whole numbers lo + floor(u (hi - lo + 1)); of a list the one at floor(u n); of
 *            chances 1 when u < p
 *   32 ..    its noise: of a mask cell (channel, row, column) is hit when u < p; of an elastic
 * field pixel i has 2i (dx) and 2i + 1 (dy): 2u - 1 and what a hit pixel becomes is element i of c
 * + 128, i = (row, column, channel). */
#ifndef LEVIN_RECIPES_POSE_POSE_AUGMENT_H
#define LEVIN_RECIPES_POSE_POSE_AUGMENT_H

#include "core/rng.h"
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

/* ---- operations ---- */

/* The numbers feed the draws. Rotate is an affine; Fliplr is mirrored before the resize, and no
 * names change places, which hflip does. */
typedef enum lvni_pose_kind {
    LVNI_POSE_ROT90 = 1,
    LVNI_POSE_AFFINE = 2,
    LVNI_POSE_MOTION_BLUR = 3,
    LVNI_POSE_DROPOUT = 4,
    LVNI_POSE_SALT = 5,
    LVNI_POSE_PEPPER = 6,
    LVNI_POSE_ELASTIC = 7,
    LVNI_POSE_EQUALIZE = 8,
    LVNI_POSE_CLAHE = 9,
    LVNI_POSE_EMBOSS = 10,
    LVNI_POSE_CROP_AND_PAD = 11,
    LVNI_POSE_FLIPLR = 12,
    LVNI_POSE_HFLIP = 13
} lvni_pose_kind;
enum { LVNI_POSE_VALUES = 8, LVNI_POSE_OPERATIONS = 32, LVNI_POSE_NOISE = 32 };

/* One operation, with all that was drawn for it. */
typedef struct lvni_pose_drawn {
    lvni_pose_kind kind;
    bool fires;
    lvni_core_rng rng; /* of its noise */
    double value[LVNI_POSE_VALUES];
} lvni_pose_drawn;

typedef struct lvni_pose_draw {
    int n;
    lvni_pose_drawn step[LVNI_POSE_OPERATIONS];
    bool hflip;
} lvni_pose_draw;

typedef struct lvni_pose_pipeline lvni_pose_pipeline;
/* imgaug: the name of a preset, or a map of operations as JSON text. LVN_ERR_USAGE names the
 * operation and the argument. */
lvn_status lvni_pose_pipeline_make(const char *imgaug, int height, int width, bool hflip,
                                   lvni_pose_pipeline **out);
void lvni_pose_pipeline_free(lvni_pose_pipeline *pipeline);
/* Whether frames may be mirrored with their names. */
bool lvni_pose_pipeline_flips(const lvni_pose_pipeline *pipeline);
void lvni_pose_pipeline_draw(const lvni_pose_pipeline *pipeline, const lvn_sample_key *key,
                             lvni_pose_draw *out);
/* The frame becomes (height, width, 3), in memory of `work`. Names are the caller's to exchange,
 * with draw->hflip. Fails only for want of memory. */
lvn_status lvni_pose_pipeline_render(const lvni_pose_pipeline *pipeline, const lvni_pose_draw *draw,
                                     lvni_pose_work *work, lvni_pose_frame *frame);

#endif

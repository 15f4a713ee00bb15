/* What a step takes of frames without labels: the stream "clips". A micro-batch's samples of it are
 * one clip, frames that follow each other in a video. */
#ifndef LEVIN_RECIPES_POSE_POSE_CLIPS_H
#define LEVIN_RECIPES_POSE_POSE_CLIPS_H

#define LVNI_POSE_CLIPS "clips" /* the name of the stream */

/* Fields of a sample: `image` f32 (height, width, 3), with mean and deviation of ImageNet; `matrix`
 * f32 (2, 3): from (x, y, 1) in pixels of the image before it was turned and scaled to where they
 * are, the same for all frames of a clip; `frame` f32 (2): width and height of the video's frame in
 * pixels. */
enum { LVNI_POSE_CLIP_IMAGE, LVNI_POSE_CLIP_MATRIX, LVNI_POSE_CLIP_FRAME, LVNI_POSE_CLIP_FIELDS };

#endif

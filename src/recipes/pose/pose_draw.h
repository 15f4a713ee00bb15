/* Draws what was found in a frame of a video: a dot for each keypoint, and the frame's number. */
#ifndef LEVIN_RECIPES_POSE_POSE_DRAW_H
#define LEVIN_RECIPES_POSE_POSE_DRAW_H

#include "report/colour_map.h"

enum { LVNI_POSE_DOT = 4 /* pixels: radius of a dot */ };

typedef struct lvni_pose_drawing {
    int width, height; /* of a frame */
    int keypoints;
    lvni_report_colour_map colours; /* of keypoint k at k / (keypoints - 1) */
    double threshold;               /* what is not likelier is not drawn */
} lvni_pose_drawing;

/* Small frames are enlarged: 2.5 times where a side has up to 100 pixels, twice up to 192. */
void lvni_pose_draw_size(int width, int height, int *drawn_width, int *drawn_height);
/* frame (height, width, 3) to `out` of the size above. point (keypoints, 3): x, y in pixels of the
 * frame, likelihood; one that is not finite is not drawn. seconds: of the frame, for the text
 * "t=HH:MM:SS, frame=N" in the upper left corner. */
void lvni_pose_draw_frame(const lvni_pose_drawing *d, const uint8_t *frame, const float *point,
                          double seconds, int64_t number, uint8_t *out);

#endif

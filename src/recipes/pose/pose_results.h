/* The tables of results of the recipe pose, in the form in which Lightning Pose has them and pandas
 * writes them: predictions with three header rows, errors with one. Called after training, and by
 * predict. Each file is there as a whole or as it was before. */
#ifndef LEVIN_RECIPES_POSE_POSE_RESULTS_H
#define LEVIN_RECIPES_POSE_POSE_RESULTS_H

#include <levin/status.h>
#include <stdbool.h>

/* Borrowed. */
typedef struct lvni_pose_predictions {
    int64_t n; /* frames */
    int k;     /* keypoints */
    const char *const *keypoint;
    const char *scorer;      /* "heatmap_tracker" */
    const char *const *name; /* of rows; NULL: 0 .. n - 1, the frames of a video */
    const float *value;      /* (n, k, 3): x, y in pixels of the frame, likelihood */
    const int8_t *set;       /* (n) lvni_pose_set, in a last column; NULL: no such column */
} lvni_pose_predictions;

/* Numbers have the fewest digits that give the same float back. LVN_ERR_IO, LVN_ERR_MEMORY. */
lvn_status lvni_pose_write_predictions(const char *path, const lvni_pose_predictions *p);
/* error (n, k), NaN: an empty cell. Of p the names and sets alone are read. */
lvn_status lvni_pose_write_errors(const char *path, const lvni_pose_predictions *p,
                                  const double *error);

/* Is there a table (or another file), which was not written before the exported models of the run
 * directory, nor before the file `data`? */
bool lvni_pose_is_written(const char *path, const char *run, const char *data);

/* error (n, k): how far a point lies from its label xy (n, k, 2); NaN: it has none. */
void lvni_pose_pixel_error(const lvni_pose_predictions *p, const double *xy, double *error);
/* How far it lies from where it was a frame earlier; NaN in the first frame. */
void lvni_pose_temporal_norm(const lvni_pose_predictions *p, double *error);

#endif

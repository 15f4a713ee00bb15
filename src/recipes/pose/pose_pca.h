/* Principal components of the keypoints of a pose: of all in one image (singleview), or of one body
 * part in the views of a mirror (multiview). What they cannot put together is the reprojection
 * error, of predictions a metric and, above epsilon, a loss. Fitted once before training on the
 * labels of the training frames, in pixels of the frame (Biswas et al. 2024, "Lightning Pose"). */
#ifndef LEVIN_RECIPES_POSE_POSE_PCA_H
#define LEVIN_RECIPES_POSE_POSE_PCA_H

#include "core/str.h"

enum { LVNI_POSE_PCA_MOST = 256 }; /* points of a row; all of their components fit into a card */

typedef enum lvni_pose_centring {
    LVNI_POSE_CENTRING_NONE,
    LVNI_POSE_CENTRING_MEAN,
    LVNI_POSE_CENTRING_MEDIAN
} lvni_pose_centring;

typedef struct lvni_pose_pca_options {
    /* singleview: data.columns_for_singleview_pca, NULL being all keypoints; multiview:
     * data.mirrored_column_matches, one view behind the other */
    const int *column;
    int n_columns;
    int views;                   /* 0: singleview */
    lvni_pose_centring centring; /* of each frame's points, singleview only */
    /* components_to_keep, whose type matters: an integer is `components`; for a share of the
     * variance that is 0, and `variance` the share, 1.0 being all. Multiview keeps 3. */
    int components;
    double variance;
    /* NaN: this percentile of the errors of the labels, times the multiplier */
    double epsilon, percentile, multiplier;
    const char *const *keypoint; /* names, for messages */
} lvni_pose_pca_options;

/* A row is `points` points: all of a frame, or one of `parts` body parts of it in each view. Point
 * j of part i is keypoint column[j * parts + i]. */
typedef struct lvni_pose_pca {
    int k; /* keypoints of a frame */
    int points, parts, kept;
    lvni_pose_centring centring;
    int *column;       /* (points, parts) */
    double *mean;      /* (2 points): x, y, x, y, ... */
    double *vector;    /* (kept, 2 points) */
    double *explained; /* (2 points) share of the variance, largest first */
    double epsilon;    /* NaN: no label row was complete, so there is no error to take it of */
} lvni_pose_pca;

/* xy (n, k, 2): labels of the training frames, NaN where there is none; such rows count with the
 * points that they have. The same labels give the same bits on one machine; ranks on several share
 * what one has fitted. On failure *out is empty. LVN_ERR_INVALID: these labels are too few.
 * LVN_ERR_USAGE: too many components. LVN_ERR_NOT_FOUND: there is no LAPACK. */
lvn_status lvni_pose_pca_fit(const lvni_pose_pca_options *o, const double *xy, int64_t n, int k,
                             lvni_pose_pca *out);
void lvni_pose_pca_free(lvni_pose_pca *pca); /* empty again */
/* value (n, k, 3): predictions in pixels of the frame, with a likelihood. error (n, k): how far a
 * point lies from where the kept components put it; NaN for keypoints that have no part in it. */
void lvni_pose_pca_error(const lvni_pose_pca *pca, const float *value, int64_t n, double *error);

/* For the card of a model: all of it, to the bit. LVN_ERR_CORRUPT: the text is none of these. */
void lvni_pose_pca_print(const lvni_pose_pca *pca, lvni_core_str *json);
lvn_status lvni_pose_pca_read(const char *json, lvni_pose_pca *out);

#endif

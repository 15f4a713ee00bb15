/* The losses of clips, whose frames have no labels (Biswas et al. 2024, "Lightning Pose"): steps
 * between frames that are too long, and poses that the principal components of the labels cannot
 * put together. Each is a mean over its own terms, without its factor, of f32 or f64, in pixels of
 * the frame; a term below epsilon counts as 0. */
#ifndef LEVIN_RECIPES_POSE_POSE_UNSUPERVISED_H
#define LEVIN_RECIPES_POSE_POSE_UNSUPERVISED_H

#include "nn/model.h"
#include "recipes/pose/pose_pca.h"

/* found (N, K, 2 or more), points in pixels of clips that were moved by matrix (2, 3), or by one of
 * (N, 2, 3) each, from (x, y, 1) to where they are: (N, K, 2), where they were. No gradient goes to
 * the matrix. */
lvn_tensor *lvni_pose_undo(lvn_tensor *found, lvn_tensor *matrix);

/* What two neighbours of a clip are compared by. */
typedef struct lvni_pose_temporal {
    lvn_tensor *epsilon; /* (1), or (K) one for each keypoint */
    double threshold;    /* a term is 0 where either frame's confidence is lower */
    /* clips behind each other in the first axis, of equal lengths: of two heads; what lies between
     * two of them is not a step */
    int clips;
} lvni_pose_temporal;

typedef enum lvni_pose_map_distance {
    LVNI_POSE_MAP_MSE, /* mean over the pixels of (next - map)^2 */
    LVNI_POSE_MAP_KL   /* sum over them of next log(next / map), 1e-10 added to both */
} lvni_pose_map_distance;

/* found (clips T, K, 2 or more) and confidence (clips T, K; NULL: nothing is masked; no gradient)
 * -> (), the mean over the clips (T - 1) K steps of their length above epsilon. *terms: how many
 * these are; 0, and a loss of 0, of clips of one frame. */
lvn_tensor *lvni_pose_temporal_loss(const lvni_pose_temporal *t, lvn_tensor *found,
                                    lvn_tensor *confidence, int64_t *terms);
/* The same of maps (clips T, h, w, K), by their distance. */
lvn_tensor *lvni_pose_temporal_map_loss(const lvni_pose_temporal *t, lvni_pose_map_distance kind,
                                        lvn_tensor *maps, lvn_tensor *confidence, int64_t *terms);

/* In build(): `epsilon` of n numbers of the configuration, one or one for each keypoint.
 * Checkpoints do not have it: a resumed run takes it from its keys. */
void lvni_pose_epsilon_build(lvn_builder *b, const char *name, const double *value, int n,
                             lvn_tensor **out);

/* What of a fit the graph reads. */
typedef struct lvni_pose_subspace {
    const lvni_pose_pca *pca; /* its columns and centring */
    lvn_tensor *mean;         /* (2 points) */
    lvn_tensor *vector;       /* (kept, 2 points) */
    lvn_tensor *epsilon;      /* (1) */
} lvni_pose_subspace;

/* In build(): buffers NAME.mean, NAME.vector and NAME.epsilon, which no step moves; checkpoints
 * have them, so a resumed run goes on with the same. pca lives as long as the model. */
void lvni_pose_subspace_build(lvn_builder *b, const char *name, const lvni_pose_pca *pca,
                              lvni_pose_subspace *out);
/* found (N, K, 2 or more) -> (), the mean over all points of the rows of their reprojection error
 * above epsilon. *terms: N parts points. */
lvn_tensor *lvni_pose_pca_loss(const lvni_pose_subspace *s, lvn_tensor *found, int64_t *terms);

#endif

/* Which labelled frames train, which validate and which test. */
#ifndef LEVIN_RECIPES_POSE_POSE_SPLIT_H
#define LEVIN_RECIPES_POSE_POSE_SPLIT_H

#include "recipes/pose/pose_labels.h"

typedef enum lvni_pose_set {
    LVNI_POSE_TRAIN,
    LVNI_POSE_VALIDATION,
    LVNI_POSE_TEST,
    LVNI_POSE_UNUSED
} lvni_pose_set;
enum { LVNI_POSE_SETS = 4 };

/* "train", "validation", "test", "unused": as in the column `set` of predictions.csv */
const char *lvni_pose_set_name(lvni_pose_set set);
/* "val" counts, too; -1: none of them */
int lvni_pose_set_of(const char *name);

/* Sets of n frames, at least 2, drawn with the seed: floor(train_prob * n) train and floor(val_prob
 * * n) validate, at least one; the rest tests, or trains where it is fewer than 5. train_frames
 * then keeps of the training frames the first ones: 1 and at least their number are all, above 1 a
 * number, below 1 a part. The frames cut away are unused. */
lvn_status lvni_pose_split(int64_t n, double train_prob, double val_prob, double train_frames,
                           uint64_t seed, int8_t *set);
/* From a CSV of images and sets (with a header that names them or without), or from a
 * predictions.csv with a column `set`. Every frame of the labels must be in it. */
lvn_status lvni_pose_split_read(const char *path, const lvni_pose_labels *labels, int8_t *set);
/* Whether a label is among the training frames, and another among those that validate: without one
 * there is nothing to learn, or no checkpoint to choose. */
lvn_status lvni_pose_split_check(const lvni_pose_labels *labels, const int8_t *set);
void lvni_pose_split_count(const int8_t *set, int64_t n, int64_t count[LVNI_POSE_SETS]);

#endif

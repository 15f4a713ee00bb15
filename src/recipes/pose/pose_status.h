/* train_status.json in the run directory: how far a training is, for programs that watch it. Called
 * by the rank that writes, at the start, as epochs or steps end, and at the end. */
#ifndef LEVIN_RECIPES_POSE_POSE_STATUS_H
#define LEVIN_RECIPES_POSE_POSE_STATUS_H

#include <levin/status.h>

/* status: "TRAINING", "EVALUATING" or "COMPLETED"; completed of total epochs, or of steps where the
 * run is counted in steps; below 0: as many as the file has. What else the file holds stays; a
 * reader sees the old file or the new one. LVN_ERR_IO, LVN_ERR_MEMORY. */
lvn_status lvni_pose_status_write(const char *dir, const char *status, int64_t completed,
                                  int64_t total);

#endif

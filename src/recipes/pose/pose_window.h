/* Which files are the frames before and after a labelled one: those whose names have the numbers
 * before and after. Called by the dataset of labelled frames, for networks that look at five. */
#ifndef LEVIN_RECIPES_POSE_POSE_WINDOW_H
#define LEVIN_RECIPES_POSE_POSE_WINDOW_H

#include "core/str.h"

/* *out becomes the path of the frame `offset` after that of `path`: the last run of digits of its
 * file's name, before the ending, is the number, 0 or more and with as many digits, padded with
 * zeros; all else stays. LVN_ERR_USAGE: there is no number, or one of more than 18 digits. */
lvn_status lvni_pose_window_path(const char *path, int offset, lvni_core_str *out);

#endif

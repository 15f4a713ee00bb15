/* Predictions of a clip of a video by the network of five frames (pose_step.h): each frame passes
 * the backbone once, whatever the number of windows that it is in. */
#include "recipes/pose/pose_step.h"
#include "recipes/pose/pose_video.h"

#include <levin/ops.h>

/* (results, 1): 1 where all five frames of a window could be read, else 0. */
static lvn_tensor *whole_windows(lvn_tensor *read, int64_t results)
{
    lvn_tensor *whole = NULL;
    for (int i = 0; i < LVNI_POSE_WINDOW; i++) {
        lvn_tensor *frame = lvn_slice(read, 0, i, i + results);
        whole = i == 0 ? frame : lvn_mul(whole, frame);
    }
    return lvn_reshape(whole, 2, (const int64_t[]){results, 1});
}

lvn_tensor *lvni_pose_predict_clip(const lvni_pose_root *m, const lvn_batch *batch)
{
    const int64_t side = m->net.around, results = batch->size - 2 * side;
    lvn_tensor *found = lvni_pose_model_points(
        &m->net, lvni_pose_model_run_clip(&m->net, batch->field[LVNI_POSE_FIELD_IMAGE]));
    lvn_tensor *rows =
        lvni_pose_rows(m, lvni_pose_model_choose(&m->net, found),
                       lvn_slice(batch->field[LVNI_POSE_FIELD_FRAME], 0, side, side + results));
    if (rows == NULL) {
        return NULL;
    }
    lvn_tensor *whole = whole_windows(batch->field[LVNI_POSE_FIELD_READ], results);
    rows = lvn_div(lvn_mul(rows, whole), whole); /* 0 / 0: not a number */
    lvn_tensor *none = lvn_zeros(LVN_F32, LVN_SHAPE(side, lvn_size(rows, 1)));
    return lvn_concat((lvn_tensor *[]){none, rows, none}, 3, 0);
}

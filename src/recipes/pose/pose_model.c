/* What differs between the model types (pose_model.h). */
#include "recipes/pose/pose_model.h"

void lvni_pose_model_build(lvn_builder *b, lvni_pose_model_type type,
                           const lvni_pose_network_settings *settings, lvni_pose_model *out)
{
    *out = (lvni_pose_model){.type = type,
                             .keypoints = settings->keypoints,
                             .downsample = settings->downsample,
                             .heads = 1};
    if (type == LVNI_POSE_REGRESSION) {
        lvni_pose_regression_build(b, settings, &out->regression);
    } else if (type == LVNI_POSE_CONTEXT) {
        lvni_pose_context_build(b, settings, &out->context);
        out->downsample = LVNI_POSE_CONTEXT_DOWNSAMPLE;
        out->heads = 2;
        out->around = LVNI_POSE_WINDOW_SIDE;
    } else {
        lvni_pose_network_build(b, settings, &out->single);
    }
}

lvn_tensor *lvni_pose_model_run(const lvni_pose_model *m, lvn_tensor *images)
{
    if (m->type == LVNI_POSE_CONTEXT) {
        return lvni_pose_context_join(lvni_pose_context_of_windows(&m->context, images));
    }
    return lvni_pose_model_run_clip(m, images);
}

lvn_tensor *lvni_pose_model_run_clip(const lvni_pose_model *m, lvn_tensor *clip)
{
    if (m->type == LVNI_POSE_CONTEXT) {
        return lvni_pose_context_join(lvni_pose_context_of_clip(&m->context, clip));
    }
    return m->type == LVNI_POSE_REGRESSION ? lvni_pose_regression_points(&m->regression, clip)
                                           : lvni_pose_network_maps(&m->single, clip);
}

lvn_tensor *lvni_pose_model_points(const lvni_pose_model *m, lvn_tensor *found)
{
    return m->type == LVNI_POSE_REGRESSION ? found : lvn_soft_argmax2d(found, m->downsample);
}

lvn_tensor *lvni_pose_model_choose(const lvni_pose_model *m, lvn_tensor *points)
{
    if (points == NULL) {
        return NULL;
    }
    const int64_t n = lvn_size(points, 0), half = n / 2;
    if (m->heads == 2) {
        return lvni_pose_context_choose((lvni_pose_both){.single = lvn_slice(points, 0, 0, half),
                                                         .multi = lvn_slice(points, 0, half, n)});
    }
    if (m->type != LVNI_POSE_REGRESSION) {
        return points;
    }
    lvn_tensor *with[] = {points, lvn_zeros(LVN_F32, LVN_SHAPE(n, m->keypoints, 1))};
    return lvn_concat(with, 2, 2);
}

lvn_tensor *lvni_pose_model_repeat(const lvni_pose_model *m, lvn_tensor *x)
{
    return m->heads == 1 ? x : lvn_concat((lvn_tensor *[]){x, x}, 2, 0);
}

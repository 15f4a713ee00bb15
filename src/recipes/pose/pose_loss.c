/* Losses of maps and of coordinates (pose_loss.h). */
#include "recipes/pose/pose_loss.h"

#include "core/math.h"

#include <math.h>

double lvni_pose_loss_weight(double log_weight)
{
    return 1.0 / (2.0 * lvni_core_exp(log_weight));
}

lvn_tensor *lvni_pose_number(double value)
{
    return lvn_add_scalar(lvn_zeros(LVN_F32, 0, NULL), value);
}

/* The mean of (N, K) over what is valid. */
static lvn_tensor *mean_of_valid(lvn_tensor *value, lvn_tensor *valid, lvn_tensor **count)
{
    *count = lvn_sum(valid);
    return lvn_div(lvn_sum(lvn_mul(value, valid)), lvn_clamp(*count, 1.0, (double)INFINITY));
}

/* Over the pixels: (N, h, w, K) -> (N, K). */
static lvn_tensor *sum_of_maps(lvn_tensor *x)
{
    return lvn_sum_axes(x, (const int[]){1, 2}, 2, false);
}

/* p log(p / q) */
static lvn_tensor *divergence(lvn_tensor *p, lvn_tensor *q)
{
    return lvn_mul(p, lvn_sub(lvn_log_e(p), lvn_log_e(q)));
}

lvn_tensor *lvni_pose_heatmap_loss(lvni_pose_loss kind, lvn_tensor *target, lvn_tensor *map,
                                   lvn_tensor *valid, lvn_tensor **count)
{
    static const double least = 1e-10; /* a logarithm of 0 would be without end */
    lvn_tensor *loss;
    if (kind == LVNI_POSE_MSE) {
        loss = lvn_square(lvn_sub(target, map));
    } else {
        lvn_tensor *t = lvn_add_scalar(target, least), *p = lvn_add_scalar(map, least);
        if (kind == LVNI_POSE_KL) {
            loss = divergence(t, p);
        } else {
            lvn_tensor *m = lvn_mul_scalar(lvn_add(t, p), 0.5);
            loss = lvn_mul_scalar(lvn_add(divergence(t, m), divergence(p, m)), 0.5);
        }
    }
    return mean_of_valid(sum_of_maps(loss), valid, count);
}

lvn_tensor *lvni_pose_to_frame(lvn_tensor *found, const lvni_pose_scale *scale)
{
    lvn_tensor *wide = lvn_mul_scalar(lvn_slice(scale->frame, 1, 0, 1), 1.0 / scale->width),
               *high = lvn_mul_scalar(lvn_slice(scale->frame, 1, 1, 2), 1.0 / scale->height),
               *by = lvn_stack((lvn_tensor *[]){wide, high}, 2, 2); /* (N, 1, 2) */
    return lvn_mul(lvn_slice(found, 2, 0, 2), by);
}

/* (N, K): the mean of the two squared differences, in pixels of the frame. */
static lvn_tensor *squares(lvn_tensor *found, lvn_tensor *label, const lvni_pose_scale *scale)
{
    static const int last = 2;
    lvn_tensor *apart = lvn_sub(lvn_slice(found, 2, 0, 2), lvn_slice(label, 2, 0, 2));
    return lvn_mean_axes(lvn_square(lvni_pose_to_frame(apart, scale)), &last, 1, false);
}

lvn_tensor *lvni_pose_regression_loss(lvn_tensor *found, lvn_tensor *label, lvn_tensor *valid,
                                      const lvni_pose_scale *scale, lvn_tensor **count)
{
    return mean_of_valid(squares(found, label, scale), valid, count);
}

lvn_tensor *lvni_pose_errors(lvn_tensor *found, lvn_tensor *label, const lvni_pose_scale *scale)
{
    return lvn_sqrt(squares(lvn_detach(found), label, scale));
}

lvn_tensor *lvni_pose_rmse(lvn_tensor *found, lvn_tensor *label, lvn_tensor *valid,
                           const lvni_pose_scale *scale, lvn_tensor **count)
{
    return mean_of_valid(lvni_pose_errors(found, label, scale), valid, count);
}

/* What a step of the recipe pose does with a batch of frames (pose.h): maps of the network against
 * those of the labels, and, as a diagnosis, coordinates against coordinates. */
#include "recipes/pose/pose.h"

#include "recipes/pose/pose_frames.h"

#include <stdio.h>

typedef struct pose {
    lvn_module base;
    lvni_pose_network net;
    lvni_pose_arguments of;
} pose;

/* Deviation of a target's bump, in pixels of the map whatever their size. */
static const double SIGMA = 1.25;

static lvn_status pose_build(lvn_module *module, lvn_builder *b)
{
    pose *m = (pose *)module;
    m->of = *(const lvni_pose_arguments *)lvn_builder_arguments(b);
    lvni_pose_network_build(b, &m->of.network, &m->net);
    return lvn_builder_status(b);
}

/* Columns of the field `points` (N, K, 4). */
enum { X, LABELLED = 2, TARGET };

static lvn_tensor *column(const lvn_batch *batch, int64_t at)
{
    lvn_tensor *points = batch->field[LVNI_POSE_FIELD_POINTS];
    return lvn_reshape(lvn_slice(points, 2, at, at + 1), 2,
                       (const int64_t[]){batch->size, lvn_size(points, 1)});
}

static lvn_tensor *find(const pose *m, lvn_tensor *maps)
{
    return lvn_soft_argmax2d(maps, m->of.network.downsample);
}

static lvni_pose_scale scale_of(const pose *m, const lvn_batch *batch)
{
    return (lvni_pose_scale){
        .height = m->of.height, .width = m->of.width, .frame = batch->field[LVNI_POSE_FIELD_FRAME]};
}

/* supervised_rmse: of all keypoints that have a label inside the image. */
static void log_error(const pose *m, const lvn_batch *batch, lvn_tensor *maps, lvn_step *step)
{
    lvn_tensor *count;
    const lvni_pose_scale scale = scale_of(m, batch);
    lvn_tensor *rmse =
        lvni_pose_rmse(find(m, lvn_detach(maps)), batch->field[LVNI_POSE_FIELD_POINTS],
                       column(batch, LABELLED), &scale, &count);
    lvn_log_weighted_by(step, "supervised_rmse", rmse, count);
}

/* Names are Lightning Pose's. Supervised losses have log_weight 0. */
static void log_loss(const pose *m, lvn_tensor *loss, lvn_tensor *whole, lvn_tensor *count,
                     lvn_step *step)
{
    static const char *const names[] = {[LVNI_POSE_MSE] = "heatmap_mse",
                                        [LVNI_POSE_KL] = "heatmap_kl",
                                        [LVNI_POSE_JS] = "heatmap_js"};
    char name[32];
    const char *of = names[m->of.loss];
    lvn_log_weighted_by(step, "supervised_loss", whole, count);
    snprintf(name, sizeof name, "%s_loss", of);
    lvn_log_weighted_by(step, name, loss, count);
    snprintf(name, sizeof name, "%s_loss_weighted", of);
    lvn_log_weighted_by(step, name, whole, count);
}

/* A mean over the maps that have a target, so a micro-batch weighs as many as it has. */
static lvn_tensor *pose_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const pose *m = (const pose *)module;
    lvn_tensor *maps = lvni_pose_network_maps(&m->net, batch->field[LVNI_POSE_FIELD_IMAGE]), *count;
    const int64_t side = INT64_C(1) << m->of.network.downsample;
    lvn_tensor *kind = column(batch, TARGET);
    lvn_tensor *xy = lvn_slice(batch->field[LVNI_POSE_FIELD_POINTS], 2, X, X + 2);
    lvn_tensor *target =
        lvn_heatmap2d(xy, kind, m->of.height / side, m->of.width / side, 1.0 / (double)side, SIGMA);
    lvn_tensor *valid = lvn_clamp(kind, 0.0, 1.0);
    lvn_tensor *loss = lvni_pose_heatmap_loss(m->of.loss, target, maps, valid, &count);
    lvn_tensor *whole = lvn_mul_scalar(loss, lvni_pose_loss_weight(0.0));
    lvn_step_weigh_by(step, count);
    log_loss(m, loss, whole, count, step);
    lvn_log_weighted_by(step, "loss", whole, count);
    log_error(m, batch, maps, step);
    return whole;
}

lvn_tensor *lvni_pose_predict(const lvn_module *root, const lvn_batch *batch, void *user)
{
    (void)user;
    const pose *m = (const pose *)root;
    const int64_t n = batch->size, k = m->of.network.keypoints;
    lvn_tensor *found =
        find(m, lvni_pose_network_maps(&m->net, batch->field[LVNI_POSE_FIELD_IMAGE]));
    lvn_tensor *frame =
        lvn_reshape(batch->field[LVNI_POSE_FIELD_FRAME], 3, (const int64_t[]){n, 1, 2});
    lvn_tensor *x = lvn_mul(lvn_mul_scalar(lvn_slice(found, 2, 0, 1), 1.0 / m->of.width),
                            lvn_slice(frame, 2, 0, 1)),
               *y = lvn_mul(lvn_mul_scalar(lvn_slice(found, 2, 1, 2), 1.0 / m->of.height),
                            lvn_slice(frame, 2, 1, 2));
    lvn_tensor *row[] = {x, y, lvn_slice(found, 2, 2, 3)};
    return lvn_reshape(lvn_concat(row, 3, 2), 2, (const int64_t[]){n, 3 * k});
}

const lvn_module_class lvni_pose_module = {
    .name = "pose", .size = sizeof(pose), .build = pose_build, .training_step = pose_step};

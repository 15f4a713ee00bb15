/* What a step of the recipe pose does with a batch of frames (pose.h): maps of the network against
 * those of the labels, or coordinates against coordinates, which of maps are a diagnosis; beside
 * it, where frames without labels train, with a clip (pose_clip_step.h). */
#include "recipes/pose/pose_clips.h"
#include "recipes/pose/pose_frames.h"
#include "recipes/pose/pose_step.h"

#include <stdio.h>

/* Deviation of a target's bump, in pixels of the map whatever their size. */
static const double SIGMA = 1.25;

static lvn_status pose_build(lvn_module *module, lvn_builder *b)
{
    lvni_pose_root *m = (lvni_pose_root *)module;
    m->of = *(const lvni_pose_arguments *)lvn_builder_arguments(b);
    lvni_pose_model_build(b, m->of.type, &m->of.network, &m->net);
    if (m->of.clips) {
        LVN_TRY(lvni_pose_clip_losses_build(b, &m->of, &m->net, &m->clips));
    }
    return lvn_builder_status(b);
}

/* ---- labels, for every head of the network ---- */

/* Columns of the field `points` (N, K, 4). */
enum { X, LABELLED = 2, TARGET };

static lvn_tensor *points_of(const lvni_pose_root *m, const lvn_batch *batch)
{
    return lvni_pose_model_repeat(&m->net, batch->field[LVNI_POSE_FIELD_POINTS]);
}

static lvn_tensor *column(lvn_tensor *points, int64_t at)
{
    return points == NULL
               ? NULL
               : lvn_reshape(lvn_slice(points, 2, at, at + 1), 2,
                             (const int64_t[]){lvn_size(points, 0), lvn_size(points, 1)});
}

static lvni_pose_scale scale_of(const lvni_pose_root *m, const lvn_batch *batch)
{
    return (lvni_pose_scale){
        .height = m->of.height,
        .width = m->of.width,
        .frame = lvni_pose_model_repeat(&m->net, batch->field[LVNI_POSE_FIELD_FRAME])};
}

static lvn_tensor *targets_of(const lvni_pose_root *m, lvn_tensor *points)
{
    const int64_t side = INT64_C(1) << m->net.downsample;
    return lvn_heatmap2d(lvn_slice(points, 2, X, X + 2), column(points, TARGET),
                         m->of.height / side, m->of.width / side, 1.0 / (double)side, SIGMA);
}

/* ---- the loss of labelled frames ---- */

/* Of one micro-batch. */
typedef struct supervised {
    lvn_tensor *loss, *whole; /* without and with its factor */
    lvn_tensor *count;        /* what they are means over: maps with a target, points */
} supervised;

static lvn_tensor *measure(const lvni_pose_root *m, lvn_tensor *found, lvn_tensor *points,
                           const lvni_pose_scale *scale, lvn_tensor **count)
{
    if (m->net.type == LVNI_POSE_REGRESSION) {
        return lvni_pose_regression_loss(found, points, column(points, LABELLED), scale, count);
    }
    lvn_tensor *valid = lvn_clamp(column(points, TARGET), 0.0, 1.0);
    return lvni_pose_heatmap_loss(m->of.loss, targets_of(m, points), found, valid, count);
}

/* Names are Lightning Pose's. Supervised losses have log_weight 0. */
static const char *loss_name(const lvni_pose_root *m)
{
    static const char *const names[] = {[LVNI_POSE_MSE] = "heatmap_mse",
                                        [LVNI_POSE_KL] = "heatmap_kl",
                                        [LVNI_POSE_JS] = "heatmap_js"};
    return m->net.type == LVNI_POSE_REGRESSION ? "regression" : names[m->of.loss];
}

static void log_loss(const lvni_pose_root *m, const supervised *s, lvn_step *step)
{
    char name[32];
    lvn_log_weighted_by(step, "supervised_loss", s->whole, s->count);
    snprintf(name, sizeof name, "%s_loss", loss_name(m));
    lvn_log_weighted_by(step, name, s->loss, s->count);
    snprintf(name, sizeof name, "%s_loss_weighted", loss_name(m));
    lvn_log_weighted_by(step, name, s->whole, s->count);
    snprintf(name, sizeof name, "%s_weight", loss_name(m));
    lvn_log(step, name, lvni_pose_number(lvni_pose_loss_weight(0.0)));
}

/* supervised_rmse: of all keypoints that have a label inside the image, of every head. */
static void log_error(const lvni_pose_root *m, lvn_tensor *found, lvn_tensor *points,
                      const lvni_pose_scale *scale, lvn_step *step)
{
    lvn_tensor *count;
    lvn_tensor *rmse = lvni_pose_rmse(lvni_pose_model_points(&m->net, lvn_detach(found)), points,
                                      column(points, LABELLED), scale, &count);
    lvn_log_weighted_by(step, "supervised_rmse", rmse, count);
}

static supervised look_at_labels(const lvni_pose_root *m, const lvn_batch *batch, lvn_step *step)
{
    supervised s;
    lvn_tensor *found = lvni_pose_model_run(&m->net, batch->field[LVNI_POSE_FIELD_IMAGE]);
    lvn_tensor *points = points_of(m, batch);
    const lvni_pose_scale scale = scale_of(m, batch);
    s.loss = measure(m, found, points, &scale, &s.count);
    s.whole = lvn_mul_scalar(s.loss, lvni_pose_loss_weight(0.0));
    log_loss(m, &s, step);
    log_error(m, found, points, &scale, step);
    return s;
}

/* ---- the step ---- */

/* Every micro-batch has a whole clip (pose_clips.h), as a part of the step as its labels are: the
 * others of its group wait for it in the batch norm of both. */
static lvn_tensor *step_with_clip(const lvni_pose_root *m, const lvn_batch *batch, lvn_step *step)
{
    const lvn_batch *clip = lvn_batch_stream(batch, LVNI_POSE_CLIPS);
    const supervised s = look_at_labels(m, batch, step);
    const int64_t frames = clip->size - 2 * (int64_t)m->net.around;
    lvn_tensor *importance = lvn_reshape(lvn_number_tensor(m->clips.importance, step), 0, NULL);
    lvn_tensor *annealed =
        lvn_mul(lvni_pose_clip_losses_run(&m->clips, &m->net, clip, step), importance);
    lvn_tensor *total = lvni_pose_clip_join(s.whole, s.count, annealed, frames, step);
    lvn_log(step, "total_unsupervised_importance", importance);
    lvn_log_weighted(step, "total_loss", total, (double)frames);
    lvn_log_weighted(step, "loss", total, (double)frames);
    return total;
}

/* A mean over what has a label, so a micro-batch weighs as many as it has. */
static lvn_tensor *pose_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const lvni_pose_root *m = (const lvni_pose_root *)module;
    if (m->of.clips && lvn_is_training()) {
        return step_with_clip(m, batch, step);
    }
    const supervised s = look_at_labels(m, batch, step);
    lvn_step_weigh_by(step, s.count);
    lvn_log_weighted_by(step, "loss", s.whole, s.count);
    return s.whole;
}

/* ---- predictions ---- */

lvn_tensor *lvni_pose_rows(const lvni_pose_root *m, lvn_tensor *points, lvn_tensor *frame)
{
    if (points == NULL) {
        return NULL;
    }
    const lvni_pose_scale scale = {.height = m->of.height, .width = m->of.width, .frame = frame};
    lvn_tensor *row[] = {lvni_pose_to_frame(points, &scale), lvn_slice(points, 2, 2, 3)};
    return lvn_reshape(
        lvn_concat(row, 2, 2), 2,
        (const int64_t[]){lvn_size(points, 0), 3 * (int64_t)m->of.network.keypoints});
}

lvn_tensor *lvni_pose_predict(const lvn_module *root, const lvn_batch *batch, void *user)
{
    (void)user;
    const lvni_pose_root *m = (const lvni_pose_root *)root;
    enum { FRAMES = 4 }; /* axes, where windows have five */
    if (m->net.around > 0 && batch->field[LVNI_POSE_FIELD_IMAGE]->ndim == FRAMES) {
        return lvni_pose_predict_clip(m, batch);
    }
    lvn_tensor *found = lvni_pose_model_run(&m->net, batch->field[LVNI_POSE_FIELD_IMAGE]);
    return lvni_pose_rows(m,
                          lvni_pose_model_choose(&m->net, lvni_pose_model_points(&m->net, found)),
                          batch->field[LVNI_POSE_FIELD_FRAME]);
}

const lvn_module_class lvni_pose_module = {.name = "pose",
                                           .size = sizeof(lvni_pose_root),
                                           .build = pose_build,
                                           .training_step = pose_step};

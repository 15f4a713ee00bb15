/* Losses of frames without labels in a step (pose_clip_step.h). */
#include "recipes/pose/pose_clip_step.h"

#include "recipes/pose/pose_clips.h"
#include "recipes/pose/pose_loss.h"

#include <math.h>
#include <stdio.h>

/* ---- building ---- */

static bool is_pca(int loss)
{
    return loss == LVNI_POSE_PCA_SINGLEVIEW || loss == LVNI_POSE_PCA_MULTIVIEW;
}

/* A fit of labels that are too few is left out, or has no epsilon. */
static lvn_status build_subspace(lvn_builder *b, const lvni_pose_fits *fits, int loss,
                                 lvni_pose_subspace *out)
{
    const bool multiview = loss == LVNI_POSE_PCA_MULTIVIEW,
               has = fits != NULL && (multiview ? fits->has_multiview : fits->has_singleview);
    const lvni_pose_pca *pca = !has ? NULL : multiview ? &fits->multiview : &fits->singleview;
    const char *name = lvni_pose_unsupervised_names[loss];
    if (pca == NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "model.losses_to_use %s: there are no principal components of the labels of the "
                 "training frames; label more frames, or leave the loss out",
                 name);
    }
    if (isnan(pca->epsilon)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "model.losses_to_use %s: no training frame has all of its keypoints, so there are "
                 "no distances to take losses.%s.epsilon from; give a number",
                 name, name);
    }
    lvni_pose_subspace_build(b, name, pca, out);
    return LVN_OK;
}

static void build_temporal(lvn_builder *b, const lvni_pose_unsupervised_settings *u, int loss,
                           int heads, lvni_pose_temporal *out)
{
    static const double none = 0.0;
    char name[48];
    snprintf(name, sizeof name, "%s.epsilon", lvni_pose_unsupervised_names[loss]);
    *out = (lvni_pose_temporal){.threshold = u->prob_threshold, .clips = heads};
    lvni_pose_epsilon_build(b, name, u->n_epsilon > 0 ? u->epsilon : &none,
                            u->n_epsilon > 0 ? (int)u->n_epsilon : 1, &out->epsilon);
}

lvn_status lvni_pose_clip_losses_build(lvn_builder *b, const lvni_pose_arguments *of,
                                       const lvni_pose_model *net, lvni_pose_clip_losses *out)
{
    const lvni_pose_settings *s = of->settings;
    *out = (lvni_pose_clip_losses){.height = of->height, .width = of->width};
    lvn_builder_couple(b);
    for (int i = 0; i < LVNI_POSE_UNSUPERVISED; i++) {
        const lvni_pose_unsupervised_settings *u = &s->unsupervised[i];
        lvni_pose_clip_loss *loss = &out->loss[i];
        if (!u->used) {
            continue;
        }
        *loss = (lvni_pose_clip_loss){.used = true, .factor = lvni_pose_loss_weight(u->log_weight)};
        if (is_pca(i)) {
            LVN_TRY(build_subspace(b, of->fits, i, &loss->subspace));
        } else {
            build_temporal(b, u, i, net->heads, &loss->temporal);
        }
    }
    out->importance = lvn_builder_number(
        b, "total_unsupervised_importance", .curve = LVN_CURVE_RAMP, .from = s->anneal_init,
        .to = s->anneal_final, .begin = s->anneal_from_epoch, .rise = s->anneal_increase);
    return LVN_OK;
}

/* ---- running ---- */

/* What the network finds in a clip. */
typedef struct found {
    lvn_tensor *maps;       /* NULL: it has none */
    lvn_tensor *points;     /* (heads N, K, 2), in pixels of the frame */
    lvn_tensor *confidence; /* (heads N, K); NULL: it has none */
} found;

static lvn_tensor *first_row(const lvn_batch *clip, int field)
{
    return lvn_slice(clip->field[field], 0, 0, 1);
}

/* Matrix and size are those of all frames of a clip. */
static found look(const lvni_pose_clip_losses *l, const lvni_pose_model *net, const lvn_batch *clip)
{
    const bool maps = net->type != LVNI_POSE_REGRESSION;
    const lvni_pose_scale scale = {
        .height = l->height, .width = l->width, .frame = first_row(clip, LVNI_POSE_CLIP_FRAME)};
    lvn_tensor *out = lvni_pose_model_run_clip(net, clip->field[LVNI_POSE_CLIP_IMAGE]),
               *points = lvni_pose_model_points(net, out),
               *undone = lvni_pose_undo(points, first_row(clip, LVNI_POSE_CLIP_MATRIX));
    if (undone == NULL) {
        return (found){NULL, NULL, NULL};
    }
    const int64_t rows[] = {lvn_size(points, 0), net->keypoints};
    return (found){.maps = maps ? out : NULL,
                   .points = lvni_pose_to_frame(undone, &scale),
                   .confidence = maps ? lvn_reshape(lvn_slice(points, 2, 2, 3), 2, rows) : NULL};
}

static lvn_tensor *measure(const lvni_pose_clip_loss *l, int loss, const found *f)
{
    int64_t terms;
    if (is_pca(loss)) {
        return lvni_pose_pca_loss(&l->subspace, f->points, &terms);
    }
    if (loss == LVNI_POSE_TEMPORAL) {
        return lvni_pose_temporal_loss(&l->temporal, f->points, f->confidence, &terms);
    }
    return lvni_pose_temporal_map_loss(
        &l->temporal, loss == LVNI_POSE_TEMPORAL_MSE ? LVNI_POSE_MAP_MSE : LVNI_POSE_MAP_KL,
        f->maps, f->confidence, &terms);
}

/* Names are Lightning Pose's. */
static void log_loss(int loss, const lvn_tensor *value, const lvn_tensor *weighted, double factor,
                     double frames, lvn_step *step)
{
    char name[48];
    const char *of = lvni_pose_unsupervised_names[loss];
    snprintf(name, sizeof name, "%s_loss", of);
    lvn_log_weighted(step, name, value, frames);
    snprintf(name, sizeof name, "%s_loss_weighted", of);
    lvn_log_weighted(step, name, weighted, frames);
    snprintf(name, sizeof name, "%s_weight", of);
    lvn_log(step, name, lvni_pose_number(factor));
}

lvn_tensor *lvni_pose_clip_losses_run(const lvni_pose_clip_losses *l, const lvni_pose_model *net,
                                      const lvn_batch *clip, lvn_step *step)
{
    const double frames = (double)(clip->size - 2 * (int64_t)net->around);
    const found f = look(l, net, clip);
    lvn_tensor *sum = NULL;
    for (int i = 0; i < LVNI_POSE_UNSUPERVISED; i++) {
        if (l->loss[i].used) {
            lvn_tensor *value = measure(&l->loss[i], i, &f),
                       *weighted = lvn_mul_scalar(value, l->loss[i].factor);
            log_loss(i, value, weighted, l->loss[i].factor, frames, step);
            sum = sum == NULL ? weighted : lvn_add(sum, weighted);
        }
    }
    return sum;
}

/* ---- two means in one step ---- */

/* With V labels and u frames here, and sums of both over the group, the step adds up what the
 * micro-batches return, weighed by u / sum of u: so the labels' part is multiplied by V / (sum of
 * V) and divided by that. */
lvn_tensor *lvni_pose_clip_join(lvn_tensor *supervised, lvn_tensor *count, lvn_tensor *unsupervised,
                                int64_t frames, lvn_step *step)
{
    static const int64_t one[] = {1};
    lvn_tensor *labels = lvn_reshape(lvn_detach(count), 1, one),
               *here[] = {labels, lvn_reshape(lvni_pose_number((double)frames), 1, one)},
               *all = lvn_group_sum(lvn_concat(here, 2, 0)),
               *share = lvn_div(labels, lvn_clamp(lvn_slice(all, 0, 0, 1), 1.0, (double)INFINITY)),
               *less = lvn_mul_scalar(lvn_slice(all, 0, 1, 2), 1.0 / (double)frames);
    lvn_step_weigh(step, (double)frames);
    return lvn_add(unsupervised, lvn_mul(supervised, lvn_reshape(lvn_mul(share, less), 0, NULL)));
}

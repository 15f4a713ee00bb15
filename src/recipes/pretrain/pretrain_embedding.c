/* What every method of pretraining has: a backbone with features, their spread, and a warning when
 * it is gone. */
#include "recipes/pretrain/pretrain.h"

#include "log/run_log.h"

#include <math.h>
#include <stdio.h>

void lvni_pretrain_embedding_build(lvn_builder *b, const char *of, bool blocks,
                                   const lvni_pretrain_settings *s, lvni_pretrain_embedding *out)
{
    const int features = lvni_nn_zoo_feature_dim(s->model);
    const char *front = of == NULL ? "" : of, *dot = of == NULL ? "" : ".";
    char name[64];
    *out = (lvni_pretrain_embedding){.features = s->embed_dim > 0 ? s->embed_dim : features};
    snprintf(name, sizeof name, "%s%sbackbone", front, dot);
    if (blocks) {
        lvn_builder_block(b, name);
    }
    out->backbone = lvni_nn_zoo_backbone(b, name, s->model, &s->backbone);
    if (s->embed_dim > 0) { /* a convolution of one position is a linear layer */
        snprintf(name, sizeof name, "%s%sembedding", front, dot);
        if (blocks) {
            lvn_builder_block(b, name);
        }
        out->layer = lvn_nn_linear(b, name, features, s->embed_dim);
    }
}

lvn_tensor *lvni_pretrain_embed(const lvni_pretrain_embedding *e, lvn_tensor *images)
{
    lvn_tensor *pooled = lvni_nn_zoo_pooled(e->backbone, images);
    return e->layer == NULL || pooled == NULL ? pooled : lvn_forward(e->layer, pooled);
}

lvni_nn_features lvni_pretrain_embed_map(const lvni_pretrain_embedding *e, lvn_tensor *images)
{
    lvni_nn_features f = lvni_nn_zoo_features(e->backbone, images);
    if (e->layer != NULL) {
        f.map = lvn_forward(e->layer, f.map);
        f.pooled = lvn_forward(e->layer, f.pooled);
    }
    return f;
}

lvn_tensor *lvni_pretrain_images(lvn_tensor *views)
{
    return lvn_reshape(
        views, 4,
        (const int64_t[]){-1, lvn_size(views, 2), lvn_size(views, 3), lvn_size(views, 4)});
}

lvn_tensor *lvni_pretrain_count_up(int64_t first, int64_t n, int axis)
{
    const int64_t shape[] = {axis == 0 ? n : 1, axis == 0 ? 1 : n};
    lvn_tensor *ones = lvn_add_scalar(lvn_zeros(LVN_F32, 2, shape), 1.0);
    return lvn_add_scalar(lvn_cumsum(ones, axis), (double)first - 1.0);
}

lvn_tensor *lvni_pretrain_unit_rows(lvn_tensor *x)
{
    static const int last = 1;
    lvn_tensor *squares = lvn_sum_axes(lvn_square(x), &last, 1, true);
    return lvn_div(x, lvn_sqrt(lvn_clamp(squares, 1e-24, (double)INFINITY)));
}

void lvni_pretrain_log_spread(lvn_step *step, lvn_tensor *features, int64_t images)
{
    static const int rows = 0;
    lvn_tensor *unit = lvni_pretrain_unit_rows(lvn_detach(features)),
               *deviation = lvn_sqrt(lvn_var_axes(unit, &rows, 1, false, 0));
    lvn_log_weighted(step, "feature_std",
                     lvn_mul_scalar(lvn_mean(deviation), sqrt((double)lvn_size(features, 1))),
                     images > 1 ? (double)images : 0.0);
}

/* ---- collapse ---- */

/* Was that the second record in a row below the bound? Once. */
static bool is_gone(double value, double bound, int *below)
{
    enum { RECORDS = 2 };
    *below = value < bound ? *below + 1 : *below < RECORDS ? 0 : *below;
    if (*below != RECORDS) {
        return false;
    }
    *below = RECORDS + 1;
    return true;
}

static void look(lvni_pretrain_watch *w)
{
    if (w->step < w->from) {
        return;
    }
    if (is_gone(w->spread, LVNI_PRETRAIN_COLLAPSED, &w->below)) {
        lvni_log_line(
            LVNI_LOG_WARNING,
            "the features of all images have become alike: feature_std is %.3g at step "
            "%lld, below %g, where spread features are near 1; the network has collapsed, "
            "or the images are copies of a few. Try a smaller optim.lr, %s, or a larger "
            "batch_size, and look at the images",
            w->spread, (long long)w->step, LVNI_PRETRAIN_COLLAPSED, w->advice);
    }
    if (is_gone(w->information, LVNI_PRETRAIN_COLLAPSED, &w->uninformed)) {
        lvni_log_line(
            LVNI_LOG_WARNING,
            "the teacher's answer has become the same for all images: teacher_information is %.3g "
            "at step %lld, below %g, where it is above 1 for images that differ; the network has "
            "collapsed. Try a smaller optim.lr, a method_args.teacher_temp near 0.04, or a "
            "method_args.center_momentum near 0.9, and look at the images",
            w->information, (long long)w->step, LVNI_PRETRAIN_COLLAPSED);
    }
}

static void see_step(void *user, const lvni_trainer_step_result *r)
{
    lvni_pretrain_watch *w = user;
    w->step = r->after.step;
    w->spread = lvni_trainer_metric_mean(&r->metrics, "feature_std");
    w->information = lvni_trainer_metric_mean(&r->metrics, "teacher_information");
    if (w->step % w->every == 0) {
        look(w);
    }
}

/* Its last step has a record, too. */
static void see_epoch(void *user)
{
    lvni_pretrain_watch *w = user;
    if (w->step % w->every != 0) {
        look(w);
    }
}

lvni_trainer_hooks lvni_pretrain_watch_hooks(lvni_pretrain_watch *w)
{
    return (lvni_trainer_hooks){.step = see_step, .epoch = see_epoch, .user = w};
}

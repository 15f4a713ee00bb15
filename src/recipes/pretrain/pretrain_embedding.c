/* What every method of pretraining has: a backbone with features, and their spread. */
#include "recipes/pretrain/pretrain.h"

#include <math.h>

void lvni_pretrain_embedding_build(lvn_builder *b, const lvni_pretrain_settings *s,
                                   lvni_pretrain_embedding *out)
{
    const int features = lvni_nn_zoo_feature_dim(s->model);
    *out = (lvni_pretrain_embedding){.features = s->embed_dim > 0 ? s->embed_dim : features};
    lvn_builder_block(b, "backbone");
    out->backbone = lvni_nn_zoo_backbone(b, "backbone", s->model, &s->backbone);
    if (s->embed_dim > 0) { /* a convolution of one position is a linear layer */
        lvn_builder_block(b, "embedding");
        out->layer = lvn_nn_linear(b, "embedding", features, s->embed_dim);
    }
}

lvn_tensor *lvni_pretrain_embed(const lvni_pretrain_embedding *e, lvn_tensor *images)
{
    lvn_tensor *pooled = lvni_nn_zoo_pooled(e->backbone, images);
    return e->layer == NULL || pooled == NULL ? pooled : lvn_forward(e->layer, pooled);
}

lvn_tensor *lvni_pretrain_images(lvn_tensor *views)
{
    return lvn_reshape(
        views, 4,
        (const int64_t[]){-1, lvn_size(views, 2), lvn_size(views, 3), lvn_size(views, 4)});
}

lvn_tensor *lvni_pretrain_unit_rows(lvn_tensor *x)
{
    static const int last = 1;
    lvn_tensor *squares = lvn_sum_axes(lvn_square(x), &last, 1, true);
    return lvn_div(x, lvn_sqrt(lvn_clamp(squares, 1e-24, (double)INFINITY)));
}

void lvni_pretrain_log_spread(lvn_step *step, lvn_tensor *features)
{
    static const int rows = 0;
    lvn_tensor *unit = lvni_pretrain_unit_rows(lvn_detach(features)),
               *deviation = lvn_sqrt(lvn_var_axes(unit, &rows, 1, false, 0));
    lvn_log(step, "feature_std",
            lvn_mul_scalar(lvn_mean(deviation), sqrt((double)lvn_size(features, 1))));
}

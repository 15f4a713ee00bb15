/* What method=dino and method=dinov2 share (pretrain_dino.h): the projection head, the views, and
 * the loss of class tokens. */
#include "recipes/pretrain/pretrain_dino.h"

#include "core/math.h"

#include <stdio.h>

enum { LINEARS = LVNI_PRETRAIN_HEAD_LAYERS, GLOBAL = LVNI_PRETRAIN_GLOBAL };

/* ---- the networks ---- */

static lvn_status nothing(lvn_module *module, lvn_builder *b)
{
    (void)module;
    return lvn_builder_status(b);
}

static const lvn_module_class part_class = {
    .name = "part", .size = sizeof(lvn_module), .build = nothing};

lvn_module *lvni_pretrain_part(lvn_builder *b, const char *name)
{
    return lvn_builder_child(b, &part_class, name);
}

/* Of PyTorch's trunc_normal_ and zeros. */
static lvn_module *narrow_linear(lvn_builder *b, const char *name, int64_t in, int64_t out,
                                 bool no_bias)
{
    char parameter[96];
    lvn_module *m = lvn_nn_linear(b, name, in, out, .no_bias = no_bias);
    snprintf(parameter, sizeof parameter, "%s.weight", name);
    lvn_builder_set_init(b, parameter, LVN_INIT_NORMAL, 0.02);
    if (!no_bias) {
        snprintf(parameter, sizeof parameter, "%s.bias", name);
        lvn_builder_set_init(b, parameter, LVN_INIT_ZEROS, 0.0);
    }
    return m;
}

/* Layers have the numbers of the sequence that the head is in other programs, activations
 * included. */
void lvni_pretrain_head_build(lvn_builder *b, const char *of, const char *name,
                              const lvni_pretrain_head_form *form, lvni_pretrain_head *h)
{
    int64_t in = form->in;
    char full[80];
    for (int i = 0, at = 0; i < LINEARS; i++, at++) {
        const bool last = i == LINEARS - 1, norm = form->batch_norm && !last;
        const int64_t out = last ? form->bottleneck : form->hidden;
        snprintf(full, sizeof full, "%s.%s.layers.%d", of, name, at++);
        h->linear[i] = narrow_linear(b, full, in, out, norm);
        if (norm) {
            snprintf(full, sizeof full, "%s.%s.layers.%d", of, name, at++);
            h->norm[i] = lvn_nn_batch_norm(b, full, (int)out, 0.1);
        }
        in = out;
    }
    snprintf(full, sizeof full, "%s.%s.last_layer.weight_v", of, name);
    h->direction = lvn_builder_parameter(b, full, 2, (const int64_t[]){form->out, in},
                                         LVN_INIT_UNIFORM, 1.0 / lvni_core_sqrt((double)in));
    if (form->gain) {
        snprintf(full, sizeof full, "%s.%s.last_layer.weight_g", of, name);
        h->gain =
            lvn_builder_parameter(b, full, 2, (const int64_t[]){form->out, 1}, LVN_INIT_ONES, 0.0);
    }
}

lvn_tensor *lvni_pretrain_project(const lvni_pretrain_head *h, lvn_tensor *x)
{
    for (int i = 0; i < LINEARS; i++) {
        x = lvn_forward(h->linear[i], x);
        x = h->norm[i] != NULL ? lvn_forward(h->norm[i], x) : x;
        x = i < LINEARS - 1 ? lvn_gelu(x) : x;
    }
    lvn_tensor *rows = lvni_pretrain_unit_rows(h->direction);
    rows = h->gain != NULL ? lvn_mul(rows, h->gain) : rows;
    return lvn_matmul(lvni_pretrain_unit_rows(x), rows, .trans_b = true);
}

/* Unit rows times rows of the length of their gain. */
lvn_tensor *lvni_pretrain_project_bound(const lvni_pretrain_head *h)
{
    lvn_tensor *most = lvn_max_axis(lvn_abs(lvn_detach(h->gain)), 0, false);
    return lvn_reshape(most, 1, (const int64_t[]){1});
}

/* ---- a step ---- */

/* Views of one size share the first field; else local ones are the last, and a field in between may
 * have classes, which are not looked at. */
lvn_tensor *lvni_pretrain_split_views(const lvn_batch *batch, lvn_tensor **local)
{
    lvn_tensor *first = batch->field[0], *last = batch->field[batch->n_fields - 1];
    const int64_t n = lvn_size(first, 1);
    *local = n > GLOBAL                                   ? lvn_slice(first, 1, GLOBAL, n)
             : batch->n_fields > 1 && lvn_ndim(last) == 5 ? last
                                                          : NULL;
    return n > GLOBAL ? lvn_slice(first, 1, 0, GLOBAL) : first;
}

lvn_tensor *lvni_pretrain_by_sample(lvn_tensor *rows, int64_t samples)
{
    return lvn_reshape(rows, 3, (const int64_t[]){samples, -1, lvn_size(rows, 1)});
}

lvn_tensor *lvni_pretrain_information(lvn_tensor *logits)
{
    static const int rows = 0;
    lvn_tensor *p = lvn_softmax(logits), *mean = lvn_mean_axes(p, &rows, 1, false);
    lvn_tensor *own = lvn_mul(p, lvn_log_softmax(logits)),
               *of_mean = lvn_mul(mean, lvn_log_e(lvn_clamp(mean, 1e-30, 1.0)));
    return lvn_sub(lvn_mul_scalar(lvn_mean(own), (double)lvn_size(logits, 1)), lvn_sum(of_mean));
}

/* ---- the loss ---- */

/* The sum over rows of target times x. */
static lvn_tensor *meet(lvn_tensor *target, lvn_tensor *x)
{
    return lvn_sum(lvn_mul(target, x));
}

/* Each large view against the other one. */
static lvn_tensor *swapped(lvn_tensor *teacher, lvn_tensor *global)
{
    lvn_tensor *first = lvn_slice(teacher, 1, 0, 1), *second = lvn_slice(teacher, 1, 1, 2);
    return lvn_add(meet(first, lvn_slice(global, 1, 1, 2)),
                   meet(second, lvn_slice(global, 1, 0, 1)));
}

/* Both large views against each small one. */
static lvn_tensor *against_small(lvn_tensor *teacher, lvn_tensor *local)
{
    static const int views = 1;
    lvn_tensor *both = lvn_add(lvn_slice(teacher, 1, 0, 1), lvn_slice(teacher, 1, 1, 2));
    return meet(both, lvn_sum_axes(local, &views, 1, true));
}

lvn_tensor *lvni_pretrain_dino_loss(lvn_tensor *teacher, lvn_tensor *global, lvn_tensor *local)
{
    const int64_t n = lvn_size(teacher, 0), n_local = local == NULL ? 0 : lvn_size(local, 1),
                  terms = 2 * (2 + n_local) - 2;
    lvn_tensor *sum = swapped(teacher, global);
    if (n_local > 0) {
        sum = lvn_add(sum, against_small(teacher, local));
    }
    return lvn_mul_scalar(sum, -1.0 / (double)(terms * n));
}

void lvni_pretrain_dino_losses(lvn_tensor *teacher, lvn_tensor *global, lvn_tensor *local,
                               lvn_tensor *out[2])
{
    const int64_t n = lvn_size(teacher, 0), with_small = local == NULL ? 1 : 2 * lvn_size(local, 1);
    const double factor = -1.0 / (double)((2 + with_small) * n);
    out[0] = lvn_mul_scalar(swapped(teacher, global), factor);
    out[1] = local == NULL ? NULL : lvn_mul_scalar(against_small(teacher, local), factor);
}

/* Losses of clips (pose_unsupervised.h). Products with the components are written as products and
 * sums of elements: a matrix product would lose the pixels' digits under mixed precision. */
#include "recipes/pose/pose_unsupervised.h"

#include <stdio.h>

static const int LAST = -1;

/* ---- back to the clip as it was ---- */

/* Element `at` of matrices (n, 6): (n, 1). */
static lvn_tensor *element(lvn_tensor *m, int64_t at)
{
    return lvn_slice(m, 1, at, at + 1);
}

/* a x + b y, of factors (n, 1) and coordinates (N, K). */
static lvn_tensor *combine(lvn_tensor *a, lvn_tensor *x, lvn_tensor *b, lvn_tensor *y)
{
    return lvn_add(lvn_mul(a, x), lvn_mul(b, y));
}

static lvn_tensor *coordinate(lvn_tensor *found, int64_t at)
{
    return lvn_reshape(lvn_slice(found, 2, at, at + 1), 2,
                       (const int64_t[]){lvn_size(found, 0), lvn_size(found, 1)});
}

/* With the matrix (a b p; c d q): x = (d (x' - p) - b (y' - q)) / (a d - b c), y likewise. */
lvn_tensor *lvni_pose_undo(lvn_tensor *found, lvn_tensor *matrix)
{
    if (found == NULL || matrix == NULL) {
        return NULL;
    }
    lvn_tensor *m = lvn_reshape(lvn_detach(matrix), 2, (const int64_t[]){-1, 6});
    lvn_tensor *a = element(m, 0), *b = element(m, 1), *c = element(m, 3), *d = element(m, 4),
               *area = lvn_sub(lvn_mul(a, d), lvn_mul(b, c)),
               *x = lvn_sub(coordinate(found, 0), element(m, 2)),
               *y = lvn_sub(coordinate(found, 1), element(m, 5));
    lvn_tensor *was[] = {lvn_div(combine(d, x, lvn_neg(b), y), area),
                         lvn_div(combine(a, y, lvn_neg(c), x), area)};
    return lvn_stack(was, 2, 2);
}

/* ---- steps between neighbours ---- */

/* (clips T, ...) -> (clips, T, ...) */
static lvn_tensor *per_clip(const lvni_pose_temporal *t, lvn_tensor *x)
{
    if (x == NULL) {
        return NULL;
    }
    int64_t shape[LVN_MAX_NDIM] = {t->clips, -1};
    for (int i = 1; i < x->ndim; i++) {
        shape[i + 1] = lvn_size(x, i);
    }
    return lvn_reshape(x, x->ndim + 1, shape);
}

/* Of (clips, T, ...) all frames but the last, and all but the first. */
static lvn_tensor *before(lvn_tensor *x)
{
    return x == NULL ? NULL : lvn_slice(x, 1, 0, lvn_size(x, 1) - 1);
}

static lvn_tensor *after(lvn_tensor *x)
{
    return x == NULL ? NULL : lvn_slice(x, 1, 1, lvn_size(x, 1));
}

/* step (clips, T - 1, K), 0 where one of the two frames is not sure enough. */
static lvn_tensor *mask(const lvni_pose_temporal *t, lvn_tensor *step, lvn_tensor *confidence)
{
    lvn_tensor *sure = per_clip(t, lvn_detach(confidence));
    return lvn_masked_fill(
        step, lvn_lt_scalar(lvn_minimum(before(sure), after(sure)), t->threshold), 0.0);
}

/* The mean of what is above epsilon, and its terms. */
static lvn_tensor *mean_above(lvn_tensor *value, lvn_tensor *epsilon, int64_t *terms)
{
    *terms = value == NULL ? 0 : lvn_numel(value);
    lvn_tensor *above = lvn_relu(lvn_sub(value, epsilon));
    return *terms == 0 ? lvn_sum(above) : lvn_mean(above);
}

static lvn_tensor *mean_of_steps(const lvni_pose_temporal *t, lvn_tensor *step,
                                 lvn_tensor *confidence, int64_t *terms)
{
    return mean_above(confidence == NULL ? step : mask(t, step, confidence), t->epsilon, terms);
}

lvn_tensor *lvni_pose_temporal_loss(const lvni_pose_temporal *t, lvn_tensor *found,
                                    lvn_tensor *confidence, int64_t *terms)
{
    *terms = 0;
    if (found == NULL) {
        return NULL;
    }
    lvn_tensor *at = per_clip(t, lvn_slice(found, 2, 0, 2));
    lvn_tensor *step = lvn_norm_axes(lvn_sub(after(at), before(at)), &LAST, 1, false);
    return mean_of_steps(t, step, confidence, terms);
}

lvn_tensor *lvni_pose_temporal_map_loss(const lvni_pose_temporal *t, lvni_pose_map_distance kind,
                                        lvn_tensor *maps, lvn_tensor *confidence, int64_t *terms)
{
    static const double least = 1e-10; /* a logarithm of 0 would be without end */
    static const int pixels[] = {2, 3};
    *terms = 0;
    if (maps == NULL) {
        return NULL;
    }
    lvn_tensor *all = per_clip(t, maps), *step;
    if (kind == LVNI_POSE_MAP_MSE) {
        step = lvn_mean_axes(lvn_square(lvn_sub(after(all), before(all))), pixels, 2, false);
    } else {
        lvn_tensor *some = lvn_add_scalar(all, least), *log = lvn_log_e(some);
        step =
            lvn_sum_axes(lvn_mul(after(some), lvn_sub(after(log), before(log))), pixels, 2, false);
    }
    return mean_of_steps(t, step, confidence, terms);
}

/* ---- principal components ---- */

static lvn_tensor *constant(lvn_builder *b, const char *name, const char *part, int ndim,
                            const int64_t *shape, const double *value)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", name, part);
    const lvn_buffer *buffer = lvni_nn_builder_constant(b, full, ndim, shape, value);
    return buffer == NULL ? NULL : lvn_buffer_value(buffer);
}

void lvni_pose_subspace_build(lvn_builder *b, const char *name, const lvni_pose_pca *pca,
                              lvni_pose_subspace *out)
{
    const int64_t dim = 2 * (int64_t)pca->points;
    *out = (lvni_pose_subspace){
        .pca = pca,
        .mean = constant(b, name, "mean", LVN_SHAPE(dim), pca->mean),
        .vector = constant(b, name, "vector", LVN_SHAPE(pca->kept, dim), pca->vector),
        .epsilon = constant(b, name, "epsilon", LVN_SHAPE(1), &pca->epsilon)};
}

void lvni_pose_epsilon_build(lvn_builder *b, const char *name, const double *value, int n,
                             lvn_tensor **out)
{
    lvn_buffer *buffer = lvni_nn_builder_constant(b, name, LVN_SHAPE(n), value);
    if (buffer != NULL) {
        buffer->left_out = true;
    }
    *out = buffer == NULL ? NULL : lvn_buffer_value(buffer);
}

/* The columns' points, (N, points parts, 2): runs of columns that follow each other are one
 * slice. */
static lvn_tensor *take_columns(const lvni_pose_pca *p, lvn_tensor *found)
{
    const int n = p->points * p->parts;
    lvn_tensor *part[LVN_KERNEL_INPUTS];
    int parts = 0;
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && p->column[end] == p->column[end - 1] + 1;) {
            end++;
        }
        if (parts == LVN_KERNEL_INPUTS) {
            part[0] = lvn_concat(part, parts, 1);
            parts = 1;
        }
        part[parts++] = lvn_slice(found, 1, p->column[i], p->column[end - 1] + 1);
    }
    return lvn_concat(part, parts, 1);
}

/* x (rows, points, 2), less the mean or median of each row's points. */
static lvn_tensor *centre(const lvni_pose_pca *p, lvn_tensor *x)
{
    static const int points = 1;
    if (p->centring == LVNI_POSE_CENTRING_NONE) {
        return x;
    }
    if (p->centring == LVNI_POSE_CENTRING_MEAN) {
        return lvn_sub(x, lvn_mean_axes(x, &points, 1, true));
    }
    const int low = (p->points - 1) / 2, high = p->points / 2; /* two of an even number */
    return lvn_sub(x,
                   lvn_mean_axes(lvn_slice(lvn_sort(x, points, false, NULL), points, low, high + 1),
                                 &points, 1, true));
}

/* (N, K, 2 or more) -> (rows, 2 points), frame by frame. */
static lvn_tensor *rows_of(const lvni_pose_pca *p, lvn_tensor *found)
{
    const int64_t n = lvn_size(found, 0);
    lvn_tensor *x = take_columns(p, lvn_slice(found, 2, 0, 2));
    x = lvn_transpose(lvn_reshape(x, 4, (const int64_t[]){n, p->points, p->parts, 2}), 1, 2);
    x = centre(p, lvn_reshape(x, 3, (const int64_t[]){n * p->parts, p->points, 2}));
    return lvn_reshape(x, 2, (const int64_t[]){n * p->parts, 2 * (int64_t)p->points});
}

lvn_tensor *lvni_pose_pca_loss(const lvni_pose_subspace *s, lvn_tensor *found, int64_t *terms)
{
    const lvni_pose_pca *p = s->pca;
    const int middle = 1;
    *terms = 0;
    if (found == NULL) {
        return NULL;
    }
    const int64_t rows = lvn_size(found, 0) * p->parts, dim = 2 * (int64_t)p->points;
    lvn_tensor *x = lvn_sub(rows_of(p, found), s->mean);
    lvn_tensor *along = lvn_sum_axes(
        lvn_mul(lvn_reshape(x, 3, (const int64_t[]){rows, 1, dim}), s->vector), &LAST, 1, true);
    lvn_tensor *rest = lvn_sub(x, lvn_sum_axes(lvn_mul(along, s->vector), &middle, 1, false));
    lvn_tensor *error =
        lvn_norm_axes(lvn_reshape(rest, 3, (const int64_t[]){rows, p->points, 2}), &LAST, 1, false);
    return mean_above(error, s->epsilon, terms);
}

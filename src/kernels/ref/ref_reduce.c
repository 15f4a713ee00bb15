/* Reference kernels: sums, means and maxima over axes, and the two directions of broadcasting. */
#include "kernels/ref/ref_impl.h"

#include "core/error.h"
#include "core/math.h"

/* ---- broadcasting ---- */

lvn_status lvni_ref_expand(const lvn_kernel_args *args)
{
    const double *x = lvni_ref_in(args, 0);
    double *y = lvni_ref_out(args, 0);
    const int64_t n = lvn_numel(args->out[0]);
    for (int64_t e = 0; e < n; e++) {
        int64_t at[LVN_MAX_NDIM];
        lvni_ref_coordinates(e, args->out[0], at);
        y[e] = x[lvni_ref_broadcast_index(args->in[0], args->out[0]->ndim, at)];
    }
    return LVN_OK;
}

lvn_status lvni_ref_sum_to(const lvn_kernel_args *args)
{
    const double *x = lvni_ref_in(args, 0);
    double *y = lvni_ref_out(args, 0);
    const int64_t n = lvn_numel(args->in[0]), n_out = lvn_numel(args->out[0]);
    for (int64_t e = 0; e < n_out; e++) {
        y[e] = 0.0;
    }
    for (int64_t e = 0; e < n; e++) {
        int64_t at[LVN_MAX_NDIM];
        lvni_ref_coordinates(e, args->in[0], at);
        y[lvni_ref_broadcast_index(args->out[0], args->in[0]->ndim, at)] += x[e];
    }
    return LVN_OK;
}

/* ---- over axes ---- */

/* The element of the result that element e of x belongs to: reduced axes count as size 1 (keepdim
 * changes no order). */
static int64_t reduced_index(int64_t e, const lvn_tensor *x, uint32_t mask)
{
    int64_t at[LVN_MAX_NDIM], r = 0;
    lvni_ref_coordinates(e, x, at);
    for (int i = 0; i < x->ndim; i++) {
        if ((mask >> i & 1) == 0) {
            r = r * x->shape[i] + at[i];
        }
    }
    return r;
}

lvn_status lvni_ref_sum(const lvn_kernel_args *args)
{
    const lvn_axes_attr *attr = args->attr;
    const double *x = lvni_ref_in(args, 0);
    double *y = lvni_ref_out(args, 0);
    const int64_t n = lvn_numel(args->in[0]), n_out = lvn_numel(args->out[0]);
    for (int64_t r = 0; r < n_out; r++) {
        y[r] = 0.0;
    }
    for (int64_t e = 0; e < n; e++) {
        y[reduced_index(e, args->in[0], attr->mask)] += x[e];
    }
    return LVN_OK;
}

lvn_status lvni_ref_mean(const lvn_kernel_args *args)
{
    const lvn_axes_attr *attr = args->attr;
    double *y = lvni_ref_out(args, 0);
    const int64_t n_out = lvn_numel(args->out[0]);
    int64_t terms = 1;
    for (int i = 0; i < args->in[0]->ndim; i++) {
        terms *= (attr->mask >> i & 1) != 0 ? args->in[0]->shape[i] : 1;
    }
    LVN_TRY(lvni_ref_sum(args));
    for (int64_t r = 0; r < n_out; r++) {
        y[r] /= (double)terms;
    }
    return LVN_OK;
}

static double terms_of(const lvn_tensor *x, uint32_t mask)
{
    double terms = 1.0;
    for (int i = 0; i < x->ndim; i++) {
        terms *= (mask >> i & 1) != 0 ? (double)x->shape[i] : 1.0;
    }
    return terms;
}

/* sum of (x - mean)^2 / (terms - correction): the mean first, then the distances from it */
lvn_status lvni_ref_var(const lvn_kernel_args *args)
{
    const lvn_var_attr *attr = args->attr;
    const lvni_tensor_desc d = lvni_tensor_get_desc(args->out[0]);
    const double *x = lvni_ref_in(args, 0);
    double *y = lvni_ref_out(args, 0);
    const double terms = terms_of(args->in[0], attr->mask);
    lvn_tensor *mean = lvni_tensor_new(&d);
    if (mean == NULL) {
        return lvn_last_error()->code;
    }
    const lvn_axes_attr over = {.mask = attr->mask, .keepdim = attr->keepdim};
    lvn_status s;
    for (int64_t r = 0; r < lvn_numel(mean); r++) {
        y[r] = 0.0;
    }
    LVNI_TRY_DONE(
        s, lvni_ref_mean(&(lvn_kernel_args){.in = {args->in[0]}, .out = {mean}, .attr = &over}));
    for (int64_t e = 0; e < lvn_numel(args->in[0]); e++) {
        const int64_t r = reduced_index(e, args->in[0], attr->mask);
        const double far = x[e] - ((const double *)mean->data)[r];
        y[r] += far * far / (terms - attr->correction);
    }
done:
    lvn_release(mean);
    return s;
}

lvn_status lvni_ref_norm(const lvn_kernel_args *args)
{
    const lvn_axes_attr *attr = args->attr;
    const double *x = lvni_ref_in(args, 0);
    double *y = lvni_ref_out(args, 0);
    const int64_t n = lvn_numel(args->in[0]), n_out = lvn_numel(args->out[0]);
    for (int64_t r = 0; r < n_out; r++) {
        y[r] = 0.0;
    }
    for (int64_t e = 0; e < n; e++) {
        y[reduced_index(e, args->in[0], attr->mask)] += x[e] * x[e];
    }
    for (int64_t r = 0; r < n_out; r++) {
        y[r] = lvni_core_sqrt(y[r]);
    }
    return LVN_OK;
}

lvn_status lvni_ref_max(const lvn_kernel_args *args)
{
    const lvn_axes_attr *attr = args->attr;
    const double *x = lvni_ref_in(args, 0);
    double *y = lvni_ref_out(args, 0);
    int64_t *index = args->out[1] == NULL ? NULL : args->out[1]->data;
    int axis = 0;
    while ((attr->mask >> axis & 1) == 0) {
        axis++;
    }
    const lvni_ref_around m = lvni_ref_split(args->in[0]->ndim, args->in[0]->shape, axis);
    for (int64_t r = 0; r < m.outer * m.inner; r++) {
        const double *column = x + r / m.inner * m.size * m.inner + r % m.inner;
        int64_t best = 0;
        for (int64_t k = 1; k < m.size; k++) {
            const double v = column[k * m.inner], top = column[best * m.inner];
            if (v > top || (v != v && top == top)) { /* NaN is the greatest, the first one wins */
                best = k;
            }
        }
        y[r] = column[best * m.inner];
        if (index != NULL) {
            index[r] = best;
        }
    }
    return LVN_OK;
}

lvn_status lvni_ref_max_grad(const lvn_kernel_args *args)
{
    const lvn_shape_attr *attr = args->attr;
    const double *dy = lvni_ref_in(args, 0);
    const int64_t *index = args->in[1]->data;
    double *dx = lvni_ref_out(args, 0);
    const int64_t n = lvn_numel(args->out[0]);
    for (int64_t e = 0; e < n; e++) {
        dx[e] = 0.0;
    }
    int axis = -1;
    for (int i = 0; i < attr->ndim; i++) {
        if (args->in[0]->shape[i] != attr->shape[i]) {
            axis = i;
        }
    }
    if (axis < 0) { /* the reduced axis has size 1: each element is its own maximum */
        for (int64_t e = 0; e < n; e++) {
            dx[e] = dy[e];
        }
        return LVN_OK;
    }
    const lvni_ref_around m = lvni_ref_split(attr->ndim, attr->shape, axis);
    for (int64_t r = 0; r < m.outer * m.inner; r++) {
        LVN_ARG(index[r] >= 0 && index[r] < m.size,
                "max_grad: index %lld of element %lld is outside axis %d of size %lld",
                (long long)index[r], (long long)r, axis, (long long)m.size);
        dx[(r / m.inner * m.size + index[r]) * m.inner + r % m.inner] = dy[r];
    }
    return LVN_OK;
}

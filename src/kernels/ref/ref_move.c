/* Reference kernels: axes in another order, joined, cut, padded. */
#include "kernels/ref/ref_impl.h"

/* The element at these coordinates. */
static int64_t element_at(const lvn_tensor *t, const int64_t *at)
{
    int64_t e = 0;
    for (int i = 0; i < t->ndim; i++) {
        e = e * t->shape[i] + at[i];
    }
    return e;
}

lvn_status lvni_ref_permute(const lvn_kernel_args *args)
{
    const lvn_permute_attr *attr = args->attr;
    const double *x = lvni_ref_in(args, 0);
    double *y = lvni_ref_out(args, 0);
    const int64_t n = lvn_numel(args->out[0]);
    for (int64_t e = 0; e < n; e++) {
        int64_t at[LVN_MAX_NDIM] = {0}, from[LVN_MAX_NDIM] = {0};
        lvni_ref_coordinates(e, args->out[0], at);
        for (int i = 0; i < attr->ndim; i++) {
            from[attr->axis[i]] = at[i];
        }
        y[e] = x[element_at(args->in[0], from)];
    }
    return LVN_OK;
}

lvn_status lvni_ref_concat(const lvn_kernel_args *args)
{
    const lvn_axis_attr *attr = args->attr;
    double *y = lvni_ref_out(args, 0);
    int64_t before = 0;
    for (int i = 0; i < LVN_KERNEL_INPUTS && args->in[i] != NULL; i++) {
        const lvn_tensor *t = args->in[i];
        const double *x = t->data;
        for (int64_t e = 0; e < lvn_numel(t); e++) {
            int64_t at[LVN_MAX_NDIM] = {0};
            lvni_ref_coordinates(e, t, at);
            at[attr->axis] += before;
            y[element_at(args->out[0], at)] = x[e];
        }
        before += t->shape[attr->axis];
    }
    return LVN_OK;
}

lvn_status lvni_ref_crop(const lvn_kernel_args *args)
{
    const lvn_box_attr *box = args->attr;
    const double *x = lvni_ref_in(args, 0);
    double *y = lvni_ref_out(args, 0);
    const int64_t n = lvn_numel(args->out[0]);
    for (int64_t e = 0; e < n; e++) {
        int64_t at[LVN_MAX_NDIM] = {0};
        lvni_ref_coordinates(e, args->out[0], at);
        for (int i = 0; i < box->ndim; i++) {
            at[i] += box->start[i];
        }
        y[e] = x[element_at(args->in[0], at)];
    }
    return LVN_OK;
}

/* Where the mirror shows an element that lies outside of [0, n): edges are not repeated. */
static int64_t mirrored(int64_t i, int64_t n)
{
    return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

/* Moves coordinates in the padded tensor to those in the inner one; false: in the border of a
 * constant. */
static bool to_inner(const lvn_box_attr *box, const int64_t *inner, bool reflect,
                     int64_t at[LVN_MAX_NDIM])
{
    bool inside = true;
    for (int i = 0; i < box->ndim; i++) {
        at[i] -= box->start[i];
        if (reflect) {
            at[i] = mirrored(at[i], inner[i]);
        }
        inside = inside && at[i] >= 0 && at[i] < inner[i];
    }
    return inside;
}

lvn_status lvni_ref_pad(const lvn_kernel_args *args)
{
    const lvn_box_attr *box = args->attr;
    const double *x = lvni_ref_in(args, 0);
    double *y = lvni_ref_out(args, 0);
    const int64_t n = lvn_numel(args->out[0]);
    for (int64_t e = 0; e < n; e++) {
        int64_t at[LVN_MAX_NDIM] = {0};
        lvni_ref_coordinates(e, args->out[0], at);
        y[e] = to_inner(box, args->in[0]->shape, box->reflect, at) ? x[element_at(args->in[0], at)]
                                                                   : box->value;
    }
    return LVN_OK;
}

lvn_status lvni_ref_pad_reflect_grad(const lvn_kernel_args *args)
{
    const lvn_box_attr *box = args->attr;
    const double *dy = lvni_ref_in(args, 0);
    double *dx = lvni_ref_out(args, 0);
    const int64_t n = lvn_numel(args->in[0]), n_out = lvn_numel(args->out[0]);
    for (int64_t e = 0; e < n_out; e++) {
        dx[e] = 0.0;
    }
    for (int64_t e = 0; e < n; e++) {
        int64_t at[LVN_MAX_NDIM] = {0};
        lvni_ref_coordinates(e, args->in[0], at);
        to_inner(box, args->out[0]->shape, true, at);
        dx[element_at(args->out[0], at)] += dy[e];
    }
    return LVN_OK;
}

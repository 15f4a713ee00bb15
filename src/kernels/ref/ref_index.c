/* Reference kernels: elements chosen by an index along an axis, and their gradients; places that an
 * index writes to. */
#include "kernels/ref/ref_impl.h"

static lvn_status check_index(const char *op, const lvn_tensor *index, int64_t size)
{
    const int64_t *at = index->data;
    for (int64_t e = 0; e < lvn_numel(index); e++) {
        LVN_ARG(at[e] >= 0 && at[e] < size,
                "%s: index %lld of element %lld is outside the axis of size %lld", op,
                (long long)at[e], (long long)e, (long long)size);
    }
    return LVN_OK;
}

/* The place in (outer, size, inner) that the index gives element e of (outer, m, inner). */
static int64_t place(int64_t e, const lvni_ref_around *many, int64_t size, const int64_t *index,
                     bool per_element)
{
    const int64_t o = e / many->inner / many->size, m = e / many->inner % many->size,
                  i = e % many->inner;
    return (o * size + index[per_element ? e : m]) * many->inner + i;
}

static lvn_status choose(const char *op, const lvn_kernel_args *args, bool per_element)
{
    const int axis = ((const lvn_axis_attr *)args->attr)->axis;
    const lvni_ref_around many = lvni_ref_split(args->out[0]->ndim, args->out[0]->shape, axis);
    const int64_t size = args->in[0]->shape[axis];
    const double *x = lvni_ref_in(args, 0);
    double *y = lvni_ref_out(args, 0);
    LVN_TRY(check_index(op, args->in[1], size));
    for (int64_t e = 0; e < many.outer * many.size * many.inner; e++) {
        y[e] = x[place(e, &many, size, args->in[1]->data, per_element)];
    }
    return LVN_OK;
}

static lvn_status put_back(const char *op, const lvn_kernel_args *args, bool per_element)
{
    const int axis = ((const lvn_axis_attr *)args->attr)->axis;
    const lvni_ref_around many = lvni_ref_split(args->in[0]->ndim, args->in[0]->shape, axis);
    const int64_t size = args->out[0]->shape[axis];
    const double *dy = lvni_ref_in(args, 0);
    double *dx = lvni_ref_out(args, 0);
    LVN_TRY(check_index(op, args->in[1], size));
    for (int64_t e = 0; e < many.outer * size * many.inner; e++) {
        dx[e] = 0.0;
    }
    for (int64_t e = 0; e < many.outer * many.size * many.inner; e++) {
        dx[place(e, &many, size, args->in[1]->data, per_element)] += dy[e];
    }
    return LVN_OK;
}

lvn_status lvni_ref_index_select(const lvn_kernel_args *args)
{
    return choose("index_select", args, false);
}

lvn_status lvni_ref_index_select_grad(const lvn_kernel_args *args)
{
    return put_back("index_select_grad", args, false);
}

lvn_status lvni_ref_gather(const lvn_kernel_args *args)
{
    return choose("gather", args, true);
}

lvn_status lvni_ref_gather_grad(const lvn_kernel_args *args)
{
    return put_back("gather_grad", args, true);
}

lvn_status lvni_ref_scatter_places(const lvn_kernel_args *args)
{
    const lvn_axis_attr *attr = args->attr;
    const lvni_ref_around many = lvni_ref_split(args->in[0]->ndim, args->in[0]->shape, attr->axis);
    int64_t *y = args->out[0]->data;
    LVN_TRY(check_index("scatter_places", args->in[0], attr->size));
    for (int64_t e = 0; e < many.outer * attr->size * many.inner; e++) {
        y[e] = e / many.inner % attr->size;
    }
    for (int64_t e = 0; e < many.outer * many.size * many.inner; e++) {
        y[place(e, &many, attr->size, args->in[0]->data, true)] =
            attr->size + e / many.inner % many.size;
    }
    return LVN_OK;
}

lvn_status lvni_ref_mix_images(const lvn_kernel_args *args)
{
    const lvn_mix_attr *m = args->attr;
    const lvn_tensor *x = args->in[0];
    const int64_t *partner = args->in[1]->data;
    const double *from = lvni_ref_in(args, 0);
    double *y = lvni_ref_out(args, 0);
    LVN_TRY(check_index("mix_images", args->in[1], x->shape[0]));
    for (int64_t e = 0; e < lvn_numel(x); e++) {
        int64_t at[LVN_MAX_NDIM] = {0};
        lvni_ref_coordinates(e, x, at);
        const int64_t other = e + (partner[at[0]] - at[0]) * (lvn_numel(x) / x->shape[0]);
        const bool inside = at[1] >= m->y0 && at[1] < m->y1 && at[2] >= m->x0 && at[2] < m->x1;
        y[e] = !m->cut  ? m->lambda * from[e] + (1.0 - m->lambda) * from[other]
               : inside ? from[other]
                        : from[e];
    }
    return LVN_OK;
}

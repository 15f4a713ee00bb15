/* Shape rules of ops that move elements without computing: permute, concat, crop, pad,
 * index_select, gather, scatter, argsort, mix_images; cumsum. Called by lvni_kernels_run before
 * each op. */
#include "kernels/shape_rules_impl.h"

lvn_status lvni_kernels_shape_permute(const lvn_kernel_args *args,
                                      lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0];
    const lvn_permute_attr *attr = args->attr;
    unsigned seen = 0;
    LVN_ARG(attr->ndim == x->ndim, "permute: x is %s, so the order must name %d axes, not %d",
            LVNI_SHAPE_TEXT(x), x->ndim, attr->ndim);
    out[0] = (lvni_tensor_desc){.dtype = x->dtype, .ndim = x->ndim};
    for (int i = 0; i < x->ndim; i++) {
        const int axis = attr->axis[i];
        LVN_ARG(axis >= 0 && axis < x->ndim && (seen >> axis & 1u) == 0,
                "permute: axis %d in place %d does not exist or is named twice; x is %s: name each "
                "of 0 to %d once",
                axis, i, LVNI_SHAPE_TEXT(x), x->ndim - 1);
        seen |= 1u << axis;
        out[0].shape[i] = x->shape[axis];
    }
    return LVN_OK;
}

static lvn_status check_axis(const char *op, const lvn_tensor *x, int axis)
{
    LVN_ARG(axis >= 0 && axis < x->ndim, "%s: x is %s, it has no axis %d", op, LVNI_SHAPE_TEXT(x),
            axis);
    return LVN_OK;
}

/* Sizes agree everywhere but in `axis`. */
static bool agree_but(const lvn_tensor *a, const lvn_tensor *b, int axis)
{
    bool agree = a->ndim == b->ndim;
    for (int i = 0; agree && i < a->ndim; i++) {
        agree = i == axis || a->shape[i] == b->shape[i];
    }
    return agree;
}

lvn_status lvni_kernels_shape_concat(const lvn_kernel_args *args,
                                     lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_axis_attr *attr = args->attr;
    const lvn_tensor *first = args->in[0];
    LVN_TRY(check_axis("concat", first, attr->axis));
    out[0] = lvni_tensor_get_desc(first);
    for (int i = 1; i < LVN_KERNEL_INPUTS && args->in[i] != NULL; i++) {
        const lvn_tensor *t = args->in[i];
        if (t->dtype != first->dtype) {
            LVN_FAIL(LVN_ERR_DTYPE, "concat: input 0 is %s but input %d is %s; convert one of them",
                     lvn_dtype_name(first->dtype), i, lvn_dtype_name(t->dtype));
        }
        if (!agree_but(first, t, attr->axis)) {
            LVN_FAIL(
                LVN_ERR_SHAPE,
                "concat: input 0 is %s but input %d is %s; sizes must be equal in all axes but %d",
                LVNI_SHAPE_TEXT(first), i, LVNI_SHAPE_TEXT(t), attr->axis);
        }
        out[0].shape[attr->axis] += t->shape[attr->axis];
    }
    return LVN_OK;
}

lvn_status lvni_kernels_shape_crop(const lvn_kernel_args *args,
                                   lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0];
    const lvn_box_attr *box = args->attr;
    LVN_ARG(box->ndim == x->ndim, "crop: x is %s, the box has %d axes", LVNI_SHAPE_TEXT(x),
            box->ndim);
    for (int i = 0; i < x->ndim; i++) {
        if (box->start[i] < 0 || box->size[i] < 0 || box->start[i] > x->shape[i] - box->size[i]) {
            LVN_FAIL(LVN_ERR_SHAPE, "crop: x is %s: axis %d has no part from %lld to %lld",
                     LVNI_SHAPE_TEXT(x), i, (long long)box->start[i],
                     (long long)(box->start[i] + box->size[i]));
        }
    }
    out[0] = lvni_kernels_rule_make(x->dtype, x->ndim, box->size);
    return LVN_OK;
}

/* A mirrored border needs an element beyond the edge for each of its own. */
static lvn_status check_reflection(const char *op, const lvn_tensor *t, int i, int64_t before,
                                   int64_t after, int64_t n)
{
    if (before >= (n > 0 ? n : 1) || after >= (n > 0 ? n : 1)) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: %s: a mirrored border of %lld and %lld elements does not fit axis %d of size "
                 "%lld; it must be smaller than the axis",
                 op, LVNI_SHAPE_TEXT(t), (long long)before, (long long)after, i, (long long)n);
    }
    return LVN_OK;
}

lvn_status lvni_kernels_shape_pad(const lvn_kernel_args *args,
                                  lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0];
    const lvn_box_attr *box = args->attr;
    LVN_TRY(lvni_kernels_rule_float("pad", args, 1));
    LVN_ARG(box->ndim == x->ndim, "pad: x is %s, the border has %d axes", LVNI_SHAPE_TEXT(x),
            box->ndim);
    for (int i = 0; i < x->ndim; i++) {
        const int64_t after = box->size[i] - box->start[i] - x->shape[i];
        LVN_ARG(box->start[i] >= 0 && after >= 0,
                "pad: x is %s: axis %d would get %lld elements before and %lld behind it; crop "
                "with lvn_slice instead",
                LVNI_SHAPE_TEXT(x), i, (long long)box->start[i], (long long)after);
        if (box->reflect) {
            LVN_TRY(check_reflection("pad", x, i, box->start[i], after, x->shape[i]));
        }
    }
    out[0] = lvni_kernels_rule_make(x->dtype, x->ndim, box->size);
    return LVN_OK;
}

/* The box is that of dx here: dx lies at `start` in dy and has `size`. */
lvn_status lvni_kernels_shape_pad_reflect_grad(const lvn_kernel_args *args,
                                               lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *dy = args->in[0];
    const lvn_box_attr *box = args->attr;
    LVN_TRY(lvni_kernels_rule_float("pad_reflect_grad", args, 1));
    LVN_ARG(box->ndim == dy->ndim, "pad_reflect_grad: dy is %s, the border has %d axes",
            LVNI_SHAPE_TEXT(dy), box->ndim);
    for (int i = 0; i < dy->ndim; i++) {
        const int64_t after = dy->shape[i] - box->start[i] - box->size[i];
        LVN_ARG(box->start[i] >= 0 && after >= 0,
                "pad_reflect_grad: dy is %s: axis %d holds no %lld elements behind %lld",
                LVNI_SHAPE_TEXT(dy), i, (long long)box->size[i], (long long)box->start[i]);
        LVN_TRY(check_reflection("pad_reflect_grad", dy, i, box->start[i], after, box->size[i]));
    }
    out[0] = lvni_kernels_rule_make(dy->dtype, dy->ndim, box->size);
    return LVN_OK;
}

/* ---- by index ---- */

lvn_status lvni_kernels_shape_index_select(const lvn_kernel_args *args,
                                           lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0], *index = args->in[1];
    const lvn_axis_attr *attr = args->attr;
    LVN_TRY(check_axis("index_select", x, attr->axis));
    LVN_TRY(lvni_kernels_rule_dtype("index_select", "the index", index, LVN_I64));
    if (index->ndim != 1) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "index_select: the index is %s, it must have one axis (lvn_gather takes one per "
                 "element)",
                 LVNI_SHAPE_TEXT(index));
    }
    out[0] = lvni_tensor_get_desc(x);
    out[0].shape[attr->axis] = index->shape[0];
    return LVN_OK;
}

lvn_status lvni_kernels_shape_index_select_grad(const lvn_kernel_args *args,
                                                lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *dy = args->in[0], *index = args->in[1];
    const lvn_axis_attr *attr = args->attr;
    LVN_TRY(lvni_kernels_rule_float("index_select_grad", args, 1));
    LVN_TRY(check_axis("index_select_grad", dy, attr->axis));
    LVN_TRY(lvni_kernels_rule_dtype("index_select_grad", "the index", index, LVN_I64));
    if (index->ndim != 1 || index->shape[0] != dy->shape[attr->axis]) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "index_select_grad: the index is %s, but axis %d of dy %s needs (%lld)",
                 LVNI_SHAPE_TEXT(index), attr->axis, LVNI_SHAPE_TEXT(dy),
                 (long long)dy->shape[attr->axis]);
    }
    out[0] = lvni_tensor_get_desc(dy);
    out[0].shape[attr->axis] = attr->size;
    return LVN_OK;
}

lvn_status lvni_kernels_shape_gather(const lvn_kernel_args *args,
                                     lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0], *index = args->in[1];
    const lvn_axis_attr *attr = args->attr;
    LVN_TRY(check_axis("gather", x, attr->axis));
    LVN_TRY(lvni_kernels_rule_dtype("gather", "the index", index, LVN_I64));
    if (!agree_but(x, index, attr->axis)) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "gather: x is %s but the index is %s; sizes must be equal in all axes but %d",
                 LVNI_SHAPE_TEXT(x), LVNI_SHAPE_TEXT(index), attr->axis);
    }
    out[0] = lvni_tensor_get_desc(index);
    out[0].dtype = x->dtype;
    return LVN_OK;
}

lvn_status lvni_kernels_shape_gather_grad(const lvn_kernel_args *args,
                                          lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *dy = args->in[0], *index = args->in[1];
    const lvn_axis_attr *attr = args->attr;
    LVN_TRY(lvni_kernels_rule_float("gather_grad", args, 1));
    LVN_TRY(check_axis("gather_grad", dy, attr->axis));
    LVN_TRY(lvni_kernels_rule_dtype("gather_grad", "the index", index, LVN_I64));
    LVN_TRY(lvni_kernels_rule_same("gather_grad", "dy", dy, "the index", index));
    out[0] = lvni_tensor_get_desc(dy);
    out[0].shape[attr->axis] = attr->size;
    return LVN_OK;
}

lvn_status lvni_kernels_shape_scatter_places(const lvn_kernel_args *args,
                                             lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *index = args->in[0];
    const lvn_axis_attr *attr = args->attr;
    LVN_TRY(check_axis("scatter_places", index, attr->axis));
    LVN_TRY(lvni_kernels_rule_dtype("scatter_places", "the index", index, LVN_I64));
    LVN_ARG(attr->size >= 0, "scatter_places: %lld places; there must be at least 0",
            (long long)attr->size);
    out[0] = lvni_tensor_get_desc(index);
    out[0].shape[attr->axis] = attr->size;
    return LVN_OK;
}

lvn_status lvni_kernels_shape_cumsum(const lvn_kernel_args *args,
                                     lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    LVN_TRY(check_axis("cumsum", args->in[0], ((const lvn_scan_attr *)args->attr)->axis));
    return lvni_kernels_rule_like_input("cumsum", args, out);
}

lvn_status lvni_kernels_shape_argsort(const lvn_kernel_args *args,
                                      lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0];
    const lvn_sort_attr *attr = args->attr;
    LVN_TRY(lvni_kernels_rule_like_input("argsort", args, out));
    LVN_TRY(check_axis("argsort", x, attr->axis));
    const int64_t size = x->shape[attr->axis];
    LVN_ARG(attr->keep >= 0 && attr->keep <= size && size <= UINT32_MAX,
            "argsort: x is %s, so %lld places of axis %d cannot be kept; take 0 to %lld",
            LVNI_SHAPE_TEXT(x), (long long)attr->keep, attr->axis, (long long)size);
    out[0].dtype = LVN_I64;
    out[0].shape[attr->axis] = attr->keep;
    return LVN_OK;
}

lvn_status lvni_kernels_shape_mix_images(const lvn_kernel_args *args,
                                         lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0], *partner = args->in[1];
    const lvn_mix_attr *attr = args->attr;
    LVN_TRY(lvni_kernels_rule_float("mix_images", args, 1));
    LVN_TRY(lvni_kernels_rule_image("mix_images", "x", x));
    LVN_TRY(lvni_kernels_rule_dtype("mix_images", "the partners", partner, LVN_I64));
    if (partner->ndim != 1 || partner->shape[0] != x->shape[0]) {
        LVN_FAIL(LVN_ERR_SHAPE, "mix_images: the partners are %s, but x %s has %lld images",
                 LVNI_SHAPE_TEXT(partner), LVNI_SHAPE_TEXT(x), (long long)x->shape[0]);
    }
    LVN_ARG(0 <= attr->x0 && attr->x0 <= attr->x1 && attr->x1 <= x->shape[2] && 0 <= attr->y0 &&
                attr->y0 <= attr->y1 && attr->y1 <= x->shape[1],
            "mix_images: the box of columns %d to %d and rows %d to %d is not inside of x %s",
            attr->x0, attr->x1, attr->y0, attr->y1, LVNI_SHAPE_TEXT(x));
    out[0] = lvni_tensor_get_desc(x);
    return LVN_OK;
}

/* Operations as oneDNN describes them: layouts, attributes, operations (onednn_plan.h). */
#include "kernels/cpu/onednn_plan.h"

#include <stdio.h>
#include <string.h>

static dnnl_data_type_t type_of(int64_t low)
{
    return low != 0 ? dnnl_bf16 : dnnl_f32;
}

static lvn_status image_desc(dnnl_memory_desc_t *d, int64_t n, int64_t h, int64_t w, int64_t c,
                             int64_t low)
{
    const dnnl_dims_t dims = {n, c, h, w};
    LVNI_DNN(dnnl_memory_desc_init_by_tag(d, 4, dims, type_of(low), dnnl_nhwc),
             "describe an image");
    return LVN_OK;
}

/* The plain master copy (O, KH, KW, I / groups) and the same shape in a layout of oneDNN's
 * choice. */
static lvn_status weight_descs(const lvni_cpu_dnn_conv_shape *s, dnnl_data_type_t plain_type,
                               dnnl_data_type_t type, dnnl_memory_desc_t *plain,
                               dnnl_memory_desc_t *any)
{
    const int64_t g = s->groups, i = s->ic / g, o = s->oc / g, row = s->kw * i, out = s->kh * row;
    const dnnl_dims_t dims = {g, o, i, s->kh, s->kw};
    const dnnl_dims_t strides = {o * out, out, 1, row, i};
    const int lead = g == 1 ? 1 : 0; /* without groups the first axis is absent */
    dnnl_dims_t d = {0}, st = {0};
    memcpy(d, dims + lead, (size_t)(5 - lead) * sizeof *d);
    memcpy(st, strides + lead, (size_t)(5 - lead) * sizeof *st);
    LVNI_DNN(dnnl_memory_desc_init_by_strides(plain, 5 - lead, d, plain_type, st),
             "describe weights");
    LVNI_DNN(dnnl_memory_desc_init_by_tag(any, 5 - lead, d, type, dnnl_format_tag_any),
             "describe weights");
    return LVN_OK;
}

/* User scratchpads (two lanes in one library-owned scratchpad give wrong sums) and f32 that stays
 * f32. */
lvn_status lvni_cpu_dnn_make_attr(dnnl_primitive_attr_t *attr)
{
    LVNI_DNN(dnnl_primitive_attr_create(attr), "make attributes");
    dnnl_status_t s = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (s == dnnl_success) {
        s = dnnl_primitive_attr_set_fpmath_mode(*attr, dnnl_fpmath_mode_strict);
    }
    if (s != dnnl_success) {
        dnnl_primitive_attr_destroy(*attr);
    }
    return lvni_cpu_dnn_check(s, "set attributes", __LINE__);
}

static lvn_status make_pd(dnnl_primitive_desc_t *pd, const_dnnl_op_desc_t desc,
                          const_dnnl_primitive_desc_t hint, const char *what)
{
    dnnl_engine_t e;
    dnnl_primitive_attr_t attr;
    LVN_TRY(lvni_cpu_dnn_engine(&e));
    LVN_TRY(lvni_cpu_dnn_make_attr(&attr));
    const dnnl_status_t s = dnnl_primitive_desc_create(pd, desc, attr, e, hint);
    dnnl_primitive_attr_destroy(attr);
    return lvni_cpu_dnn_check(s, what, __LINE__);
}

const char *lvni_cpu_dnn_pd_name(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success ||
        name == NULL) {
        return "ref: implementation without a name";
    }
    return name;
}

typedef struct conv_descs {
    dnnl_memory_desc_t x, y, bias, plain, any, dw;
    dnnl_dims_t stride, padding, dilation; /* dilation as oneDNN counts: 0 is dense */
} conv_descs;

static lvn_status describe_conv(const lvni_cpu_dnn_work *work, conv_descs *d)
{
    const lvni_cpu_dnn_conv_shape *s = &work->shape.conv;
    const bool gradient = work->op == LVNI_DNN_CONV_GRAD_WEIGHT;
    memset(d, 0, sizeof *d);
    const dnnl_dims_t oc = {s->oc};
    LVN_TRY(image_desc(&d->x, s->n, s->ih, s->iw, s->ic, work->low));
    LVN_TRY(image_desc(&d->y, s->n, s->oh, s->ow, s->oc, work->low));
    LVN_TRY(weight_descs(s, gradient ? dnnl_f32 : type_of(work->low != 0 && work->wide_w == 0),
                         type_of(work->low), &d->plain, &d->any));
    d->dw = d->any; /* sums stay f32 */
    d->dw.data_type = gradient ? dnnl_f32 : d->any.data_type;
    LVNI_DNN(dnnl_memory_desc_init_by_tag(&d->bias, 1, oc, dnnl_f32, dnnl_a), "describe a bias");
    for (int i = 0; i < 2; i++) {
        d->stride[i] = s->stride[i];
        d->padding[i] = s->padding[i];
        d->dilation[i] = s->dilation[i] - 1;
    }
    return LVN_OK;
}

/* Training and evaluation use the same primitive: forward_training, which is also the hint the
 * gradients need. */
static lvn_status forward_pd(const conv_descs *d, bool bias, dnnl_primitive_desc_t *pd)
{
    dnnl_convolution_desc_t c;
    LVNI_DNN(dnnl_dilated_convolution_forward_desc_init(
                 &c, dnnl_forward_training, dnnl_convolution_direct, &d->x, &d->any,
                 bias ? &d->bias : NULL, &d->y, d->stride, d->dilation, d->padding, d->padding),
             "describe a convolution");
    return make_pd(pd, &c, NULL, "plan a convolution");
}

static lvn_status conv_pd(lvni_cpu_dnn_op op, const conv_descs *d, bool bias,
                          dnnl_primitive_desc_t *pd)
{
    dnnl_convolution_desc_t c;
    dnnl_primitive_desc_t hint;
    if (op == LVNI_DNN_CONV_FORWARD) {
        return forward_pd(d, bias, pd);
    }
    if (op == LVNI_DNN_CONV_GRAD_INPUT) {
        LVNI_DNN(dnnl_dilated_convolution_backward_data_desc_init(
                     &c, dnnl_convolution_direct, &d->x, &d->any, &d->y, d->stride, d->dilation,
                     d->padding, d->padding),
                 "describe the input gradient of a convolution");
    } else {
        LVNI_DNN(dnnl_dilated_convolution_backward_weights_desc_init(
                     &c, dnnl_convolution_direct, &d->x, &d->dw, NULL, &d->y, d->stride,
                     d->dilation, d->padding, d->padding),
                 "describe the weight gradient of a convolution");
    }
    LVN_TRY(forward_pd(d, false, &hint));
    const lvn_status s = make_pd(pd, &c, hint, "plan the gradient of a convolution");
    dnnl_primitive_desc_destroy(hint);
    return s;
}

/* Row-major matrices (rows, columns), or the transposes of some that lie in memory as (columns,
 * rows). */
static lvn_status matrix_desc(dnnl_memory_desc_t *d, int64_t batch, int64_t rows, int64_t columns,
                              bool trans, int64_t low)
{
    if (batch > 1) {
        const dnnl_dims_t dims = {batch, rows, columns};
        LVNI_DNN(
            dnnl_memory_desc_init_by_tag(d, 3, dims, type_of(low), trans ? dnnl_acb : dnnl_abc),
            "describe matrices");
        return LVN_OK;
    }
    const dnnl_dims_t dims = {rows, columns};
    LVNI_DNN(dnnl_memory_desc_init_by_tag(d, 2, dims, type_of(low), trans ? dnnl_ba : dnnl_ab),
             "describe a matrix");
    return LVN_OK;
}

/* *plain: b as it comes. With wide_w it is carried to bf16 and a layout of oneDNN's choice. */
static lvn_status matmul_pd(const lvni_cpu_dnn_work *w, dnnl_memory_desc_t *plain,
                            dnnl_primitive_desc_t *pd)
{
    const lvni_cpu_dnn_matmul_shape *s = &w->shape.matmul;
    dnnl_memory_desc_t a, b, y, row;
    dnnl_matmul_desc_t desc;
    LVN_TRY(matrix_desc(&a, s->batch, s->m, s->k, s->trans_a != 0, w->low));
    LVN_TRY(
        matrix_desc(plain, s->batch, s->k, s->n, s->trans_b != 0, w->low != 0 && w->wide_w == 0));
    LVN_TRY(matrix_desc(&y, s->batch, s->m, s->n, false, w->low != 0 && w->wide_y == 0));
    LVN_TRY(matrix_desc(&row, 1, 1, s->n, false, 0));
    b = *plain;
    if (w->wide_w != 0) {
        LVNI_DNN(dnnl_memory_desc_init_by_tag(&b, plain->ndims, plain->dims, dnnl_bf16,
                                              dnnl_format_tag_any),
                 "describe a matrix");
    }
    LVNI_DNN(dnnl_matmul_desc_init(&desc, &a, &b, w->bias != 0 ? &row : NULL, &y),
             "describe a matrix product");
    return make_pd(pd, &desc, NULL, "plan a matrix product");
}

/* *d is filled for convolutions; of it d->plain for matrix products, too. */
lvn_status lvni_cpu_dnn_plan(const lvni_cpu_dnn_work *work, dnnl_primitive_desc_t *pd,
                             dnnl_memory_desc_t *plain)
{
    if (work->op == LVNI_DNN_MATMUL) {
        return matmul_pd(work, plain, pd);
    }
    conv_descs d;
    LVN_TRY(describe_conv(work, &d));
    *plain = d.plain;
    return conv_pd((lvni_cpu_dnn_op)work->op, &d, work->bias != 0, pd);
}

lvn_status lvni_cpu_dnn_implementation(const lvni_cpu_dnn_work *work, char name[64])
{
    dnnl_memory_desc_t plain;
    dnnl_primitive_desc_t pd = NULL;
    LVN_TRY(lvni_cpu_dnn_plan(work, &pd, &plain));
    snprintf(name, 64, "%s", lvni_cpu_dnn_pd_name(pd));
    dnnl_primitive_desc_destroy(pd);
    return LVN_OK;
}

/* Operations as oneDNN describes them: layouts, attributes, operations (onednn_plan.h). */
#include "kernels/cpu/onednn_plan.h"

#include "core/error.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <string.h>

static dnnl_data_type_t type_of(int64_t low)
{
    return low != 0 ? dnnl_bf16 : dnnl_f32;
}

static lvn_status image_desc(lvni_cpu_dnn_desc *d, int64_t n, int64_t h, int64_t w, int64_t c,
                             int64_t low)
{
    const dnnl_dims_t dims = {n, c, h, w};
    return lvni_cpu_dnn_desc_tagged(d, 4, dims, type_of(low), dnnl_nhwc);
}

typedef struct conv_descs {
    lvni_cpu_dnn_desc x, y, bias;
    lvni_cpu_dnn_desc plain, any;          /* the weights as they come; in a layout of its choice */
    lvni_cpu_dnn_desc any_low;             /* NULL; of a gradient: what the forward hint has */
    dnnl_dims_t stride, padding, dilation; /* dilation as oneDNN counts: 0 is dense */
} conv_descs;

static void destroy_descs(conv_descs *d)
{
    lvni_cpu_dnn_desc *all[] = {&d->x, &d->y, &d->bias, &d->plain, &d->any, &d->any_low};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        lvni_cpu_dnn_desc_destroy(*all[i]);
        *all[i] = NULL;
    }
}

/* The plain master copy (O, KH, KW, I / groups) and the same shape in a layout of oneDNN's choice.
 * Sums of gradients stay f32, whatever the weights of the forward convolution are. */
static lvn_status weight_descs(const lvni_cpu_dnn_work *work, conv_descs *all)
{
    const lvni_cpu_dnn_conv_shape *s = &work->shape.conv;
    const bool gradient = work->op == LVNI_DNN_CONV_GRAD_WEIGHT;
    const dnnl_data_type_t type = type_of(work->low);
    const int64_t g = s->groups, i = s->ic / g, o = s->oc / g, row = s->kw * i, out = s->kh * row;
    const dnnl_dims_t dims = {g, o, i, s->kh, s->kw};
    const dnnl_dims_t strides = {o * out, out, 1, row, i};
    const int lead = g == 1 ? 1 : 0; /* without groups the first axis is absent */
    const int n = 5 - lead;
    dnnl_dims_t d = {0}, st = {0};
    memcpy(d, dims + lead, (size_t)n * sizeof *d);
    memcpy(st, strides + lead, (size_t)n * sizeof *st);
    LVN_TRY(lvni_cpu_dnn_desc_strided(
        &all->plain, n, d, gradient ? dnnl_f32 : type_of(work->low != 0 && work->wide_w == 0), st));
    LVN_TRY(
        lvni_cpu_dnn_desc_tagged(&all->any, n, d, gradient ? dnnl_f32 : type, dnnl_format_tag_any));
    if (gradient && type != dnnl_f32) {
        LVN_TRY(lvni_cpu_dnn_desc_tagged(&all->any_low, n, d, type, dnnl_format_tag_any));
    }
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

const char *lvni_cpu_dnn_pd_name(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success ||
        name == NULL) {
        return "ref: implementation without a name";
    }
    return name;
}

static lvn_status describe_conv(const lvni_cpu_dnn_work *work, conv_descs *d)
{
    const lvni_cpu_dnn_conv_shape *s = &work->shape.conv;
    const dnnl_dims_t oc = {s->oc};
    for (int i = 0; i < 2; i++) {
        d->stride[i] = s->stride[i];
        d->padding[i] = s->padding[i];
        d->dilation[i] = s->dilation[i] - 1;
    }
    LVN_TRY(image_desc(&d->x, s->n, s->ih, s->iw, s->ic, work->low));
    LVN_TRY(image_desc(&d->y, s->n, s->oh, s->ow, s->oc, work->low));
    LVN_TRY(weight_descs(work, d));
    LVN_TRY(lvni_cpu_dnn_desc_tagged(&d->bias, 1, oc, dnnl_f32, dnnl_a));
    return LVN_OK;
}

/* Training and evaluation use the same primitive: forward_training, which is also the hint the
 * gradients need. */
static lvn_status conv_pd(const lvni_cpu_dnn_work *work, const conv_descs *d, dnnl_engine_t engine,
                          dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *pd)
{
    lvni_cpu_dnn_conv c = {.x = d->x,
                           .w = d->any,
                           .y = d->y,
                           .bias = work->bias != 0 ? d->bias : NULL,
                           .stride = d->stride,
                           .dilation = d->dilation,
                           .padding = d->padding};
    if (work->op == LVNI_DNN_CONV_FORWARD) {
        LVNI_DNN(lvni_cpu_dnn_conv_pd(pd, LVNI_DNN_CONV_FORWARD, &c, engine, attr, NULL),
                 "plan a convolution");
        return LVN_OK;
    }
    dnnl_primitive_desc_t hint = NULL;
    lvni_cpu_dnn_conv forward = c;
    forward.bias = NULL;
    forward.w = d->any_low != NULL ? d->any_low : d->any;
    LVNI_DNN(lvni_cpu_dnn_conv_pd(&hint, LVNI_DNN_CONV_FORWARD, &forward, engine, attr, NULL),
             "plan a convolution");
    const dnnl_status_t s =
        lvni_cpu_dnn_conv_pd(pd, (lvni_cpu_dnn_op)work->op, &c, engine, attr, hint);
    dnnl_primitive_desc_destroy(hint);
    return lvni_cpu_dnn_check(s, "plan the gradient of a convolution", __LINE__);
}

/* Row-major matrices (rows, columns), or the transposes of some that lie in memory as (columns,
 * rows); oneDNN's choice of a layout where `any`. */
static lvn_status matrix_desc(lvni_cpu_dnn_desc *d, int64_t batch, int64_t rows, int64_t columns,
                              bool trans, bool any, int64_t low)
{
    const dnnl_dims_t many = {batch, rows, columns}, one = {rows, columns};
    dnnl_format_tag_t tag = batch > 1 ? dnnl_abc : dnnl_ab;
    if (any) {
        tag = dnnl_format_tag_any;
    } else if (trans) {
        tag = batch > 1 ? dnnl_acb : dnnl_ba;
    }
    return lvni_cpu_dnn_desc_tagged(d, batch > 1 ? 3 : 2, batch > 1 ? many : one, type_of(low),
                                    tag);
}

typedef struct product_descs {
    lvni_cpu_dnn_desc a, b, y, row;
    lvni_cpu_dnn_desc any; /* NULL; with wide_w: b carried to bf16 and a layout of its choice */
} product_descs;

static lvn_status describe_product(const lvni_cpu_dnn_work *w, product_descs *d)
{
    const lvni_cpu_dnn_matmul_shape *s = &w->shape.matmul;
    const bool low = w->low != 0;
    LVN_TRY(matrix_desc(&d->a, s->batch, s->m, s->k, s->trans_a != 0, false, w->low));
    LVN_TRY(matrix_desc(&d->b, s->batch, s->k, s->n, s->trans_b != 0, false, low && !w->wide_w));
    LVN_TRY(matrix_desc(&d->y, s->batch, s->m, s->n, false, false, low && !w->wide_y));
    LVN_TRY(matrix_desc(&d->row, 1, 1, s->n, false, false, 0));
    return w->wide_w == 0 ? LVN_OK : matrix_desc(&d->any, s->batch, s->k, s->n, false, true, 1);
}

static lvn_status plan_conv(const lvni_cpu_dnn_work *work, dnnl_engine_t engine,
                            dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *pd,
                            lvni_cpu_dnn_desc *plain)
{
    conv_descs d;
    memset(&d, 0, sizeof d);
    lvn_status s;
    LVNI_TRY_DONE(s, describe_conv(work, &d));
    LVNI_TRY_DONE(s, conv_pd(work, &d, engine, attr, pd));
    if (plain != NULL) {
        *plain = d.plain;
        d.plain = NULL;
    }
done:
    destroy_descs(&d);
    return s;
}

static lvn_status plan_product(const lvni_cpu_dnn_work *work, dnnl_engine_t engine,
                               dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *pd,
                               lvni_cpu_dnn_desc *plain)
{
    product_descs d = {NULL};
    lvni_cpu_dnn_desc *all[] = {&d.a, &d.b, &d.y, &d.row, &d.any};
    lvn_status s;
    LVNI_TRY_DONE(s, describe_product(work, &d));
    const lvni_cpu_dnn_product p = {.a = d.a,
                                    .b = d.any != NULL ? d.any : d.b,
                                    .y = d.y,
                                    .bias = work->bias != 0 ? d.row : NULL};
    LVNI_TRY_DONE(s, lvni_cpu_dnn_check(lvni_cpu_dnn_product_pd(pd, &p, engine, attr),
                                        "plan a matrix product", __LINE__));
    if (plain != NULL) {
        *plain = d.b;
        d.b = NULL;
    }
done:
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        lvni_cpu_dnn_desc_destroy(*all[i]);
    }
    return s;
}

lvn_status lvni_cpu_dnn_plan(const lvni_cpu_dnn_work *work, dnnl_primitive_desc_t *pd,
                             lvni_cpu_dnn_desc *plain)
{
    dnnl_engine_t engine;
    dnnl_primitive_attr_t attr;
    if (work->low != 0 && !lvni_cpu_has_bf16()) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "this CPU (%s) has no bf16 products",
                 lvni_cpu_dnn_describe());
    }
    LVN_TRY(lvni_cpu_dnn_engine(&engine));
    LVN_TRY(lvni_cpu_dnn_make_attr(&attr));
    const lvn_status s = work->op == LVNI_DNN_MATMUL ? plan_product(work, engine, attr, pd, plain)
                                                     : plan_conv(work, engine, attr, pd, plain);
    dnnl_primitive_attr_destroy(attr);
    return s;
}

lvn_status lvni_cpu_dnn_implementation(const lvni_cpu_dnn_work *work, char name[128])
{
    dnnl_primitive_desc_t pd = NULL;
    LVN_TRY(lvni_cpu_dnn_plan(work, &pd, NULL));
    snprintf(name, 128, "%s", lvni_cpu_dnn_pd_name(pd));
    dnnl_primitive_desc_destroy(pd);
    return LVN_OK;
}

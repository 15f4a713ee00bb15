/* The calls that oneDNN 2 and 3 have under other names or in other forms, and what was measured of
 * each version (onednn_version.h). */
#include "kernels/cpu/onednn_plan.h"

#include "kernels/kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#if DNNL_VERSION_MAJOR >= 3

lvn_status lvni_cpu_dnn_desc_tagged(lvni_cpu_dnn_desc *out, int ndims, const dnnl_dims_t dims,
                                    dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    LVNI_DNN(dnnl_memory_desc_create_with_tag(out, ndims, dims, type, tag), "describe a tensor");
    return LVN_OK;
}

lvn_status lvni_cpu_dnn_desc_strided(lvni_cpu_dnn_desc *out, int ndims, const dnnl_dims_t dims,
                                     dnnl_data_type_t type, const dnnl_dims_t strides)
{
    LVNI_DNN(dnnl_memory_desc_create_with_strides(out, ndims, dims, type, strides),
             "describe a tensor");
    return LVN_OK;
}

void lvni_cpu_dnn_desc_destroy(lvni_cpu_dnn_desc d)
{
    if (d != NULL) {
        dnnl_memory_desc_destroy(d);
    }
}

/* A layout's numbers are the library's; an answer of none leaves them 0. */
static bool copy_dims(lvni_cpu_dnn_desc_view d, dnnl_query_t what, int n, dnnl_dims_t out)
{
    dnnl_dims_t *there = NULL;
    if (n == 0) {
        return true;
    }
    if (dnnl_memory_desc_query(d, what, &there) != dnnl_success || there == NULL) {
        return false;
    }
    memcpy(out, *there, (size_t)n * sizeof *out);
    return true;
}

/* Compensation beside the numbers exists for int8 alone, which levin does not use. */
bool lvni_cpu_dnn_layout_of(lvni_cpu_dnn_desc_view d, lvni_cpu_dnn_layout *out)
{
    dnnl_format_kind_t kind = dnnl_format_kind_undef;
    memset(out, 0, sizeof *out);
    return dnnl_memory_desc_query(d, dnnl_query_format_kind, &kind) == dnnl_success &&
           kind == dnnl_blocked &&
           dnnl_memory_desc_query(d, dnnl_query_ndims_s32, &out->ndims) == dnnl_success &&
           dnnl_memory_desc_query(d, dnnl_query_data_type, &out->type) == dnnl_success &&
           dnnl_memory_desc_query(d, dnnl_query_inner_nblks_s32, &out->inner_nblks) ==
               dnnl_success &&
           copy_dims(d, dnnl_query_dims, out->ndims, out->dims) &&
           copy_dims(d, dnnl_query_padded_dims, out->ndims, out->padded_dims) &&
           copy_dims(d, dnnl_query_strides, out->ndims, out->strides) &&
           copy_dims(d, dnnl_query_inner_blks, out->inner_nblks, out->inner_blks) &&
           copy_dims(d, dnnl_query_inner_idxs, out->inner_nblks, out->inner_idxs);
}

dnnl_status_t lvni_cpu_dnn_conv_pd(dnnl_primitive_desc_t *pd, lvni_cpu_dnn_op op,
                                   const lvni_cpu_dnn_conv *c, dnnl_engine_t engine,
                                   const_dnnl_primitive_attr_t attr,
                                   const_dnnl_primitive_desc_t hint)
{
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    switch (op) {
    case LVNI_DNN_CONV_FORWARD:
        return dnnl_convolution_forward_primitive_desc_create(
            pd, engine, dnnl_forward_training, direct, c->x, c->w, c->bias, c->y, c->stride,
            c->dilation, c->padding, c->padding, attr);
    case LVNI_DNN_CONV_GRAD_INPUT:
        return dnnl_convolution_backward_data_primitive_desc_create(
            pd, engine, direct, c->x, c->w, c->y, c->stride, c->dilation, c->padding, c->padding,
            hint, attr);
    case LVNI_DNN_CONV_GRAD_WEIGHT:
        return dnnl_convolution_backward_weights_primitive_desc_create(
            pd, engine, direct, c->x, c->w, NULL, c->y, c->stride, c->dilation, c->padding,
            c->padding, hint, attr);
    case LVNI_DNN_MATMUL: break;
    }
    return dnnl_invalid_arguments;
}

dnnl_status_t lvni_cpu_dnn_product_pd(dnnl_primitive_desc_t *pd, const lvni_cpu_dnn_product *p,
                                      dnnl_engine_t engine, const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, engine, p->a, p->b, p->bias, p->y, attr);
}

#else

static lvn_status copy_of(const dnnl_memory_desc_t *d, lvni_cpu_dnn_desc *out)
{
    lvni_cpu_dnn_desc copy = LVNI_NEW(LVNI_TAG_KERNEL, dnnl_memory_desc_t);
    if (copy == NULL) {
        return lvn_last_error()->code;
    }
    *copy = *d;
    *out = copy;
    return LVN_OK;
}

lvn_status lvni_cpu_dnn_desc_tagged(lvni_cpu_dnn_desc *out, int ndims, const dnnl_dims_t dims,
                                    dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t d;
    LVNI_DNN(dnnl_memory_desc_init_by_tag(&d, ndims, dims, type, tag), "describe a tensor");
    return copy_of(&d, out);
}

lvn_status lvni_cpu_dnn_desc_strided(lvni_cpu_dnn_desc *out, int ndims, const dnnl_dims_t dims,
                                     dnnl_data_type_t type, const dnnl_dims_t strides)
{
    dnnl_memory_desc_t d;
    LVNI_DNN(dnnl_memory_desc_init_by_strides(&d, ndims, dims, type, strides), "describe a tensor");
    return copy_of(&d, out);
}

void lvni_cpu_dnn_desc_destroy(lvni_cpu_dnn_desc d)
{
    lvni_core_free(d);
}

bool lvni_cpu_dnn_layout_of(lvni_cpu_dnn_desc_view d, lvni_cpu_dnn_layout *out)
{
    const dnnl_blocking_desc_t *b = &d->format_desc.blocking;
    if (d->format_kind != dnnl_blocked || d->extra.flags != 0) {
        return false;
    }
    memset(out, 0, sizeof *out);
    out->ndims = d->ndims;
    out->type = d->data_type;
    out->inner_nblks = b->inner_nblks;
    memcpy(out->dims, d->dims, sizeof out->dims);
    memcpy(out->padded_dims, d->padded_dims, sizeof out->padded_dims);
    memcpy(out->strides, b->strides, sizeof out->strides);
    memcpy(out->inner_blks, b->inner_blks, sizeof out->inner_blks);
    memcpy(out->inner_idxs, b->inner_idxs, sizeof out->inner_idxs);
    return true;
}

dnnl_status_t lvni_cpu_dnn_conv_pd(dnnl_primitive_desc_t *pd, lvni_cpu_dnn_op op,
                                   const lvni_cpu_dnn_conv *c, dnnl_engine_t engine,
                                   const_dnnl_primitive_attr_t attr,
                                   const_dnnl_primitive_desc_t hint)
{
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    dnnl_convolution_desc_t d;
    dnnl_status_t s = dnnl_invalid_arguments;
    if (op == LVNI_DNN_CONV_FORWARD) {
        s = dnnl_dilated_convolution_forward_desc_init(&d, dnnl_forward_training, direct, c->x,
                                                       c->w, c->bias, c->y, c->stride, c->dilation,
                                                       c->padding, c->padding);
    } else if (op == LVNI_DNN_CONV_GRAD_INPUT) {
        s = dnnl_dilated_convolution_backward_data_desc_init(
            &d, direct, c->x, c->w, c->y, c->stride, c->dilation, c->padding, c->padding);
    } else if (op == LVNI_DNN_CONV_GRAD_WEIGHT) {
        s = dnnl_dilated_convolution_backward_weights_desc_init(
            &d, direct, c->x, c->w, NULL, c->y, c->stride, c->dilation, c->padding, c->padding);
    }
    return s == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, engine, hint) : s;
}

dnnl_status_t lvni_cpu_dnn_product_pd(dnnl_primitive_desc_t *pd, const lvni_cpu_dnn_product *p,
                                      dnnl_engine_t engine, const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t d;
    const dnnl_status_t s = dnnl_matmul_desc_init(&d, p->a, p->b, p->bias, p->y);
    return s == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, engine, NULL) : s;
}

#endif

/* ---- teams ---- */

/* The versions of which was measured what depends on the team: 300 to 1,500 drawn convolutions and
 * products each with teams of 1, 2, 3, 4, 8 and 16 (test_onednn_teams --survey), and the shapes of
 * the model zoo. */
static const struct {
    int major, minor;
} measured[] = {{2, 6}, {3, 2}, {3, 7}, {3, 12}};

static bool is_measured(const dnnl_version_t *v)
{
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        if (measured[i].major == v->major && measured[i].minor == v->minor) {
            return true;
        }
    }
    return false;
}

/* Implementations without a shape that depends on the team. Of the others:
 * brgconv, brg_conv_fwd, brg_conv_bwd, brgconv_strided (windows of more than a pixel) cut rows of
 * pixels by the team, and a block at the border of the image adds in another order: 3 to 12 % of
 * shapes, even kernels and strides foremost ({1, 17, 33, 1024, 3, 7, 2, 3, 1, 1}); what is below
 * AVX-512 and gemm, too. */
static const char *const same[] = {"jit", "brgconv_1x1:", "brdgmm_dw:"};

static bool same_convolution(const char *name)
{
    if (strstr(name, "avx512") == NULL && strstr(name, "avx10_1_512") == NULL) {
        return false;
    }
    /* a gradient of the input as a forward convolution: "brg_conv_bwd:avx512_core+brgconv_1x1:..."
     */
    const char *plus = strchr(name, '+');
    const char *does = plus == NULL ? name : plus + 1;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        if (strncmp(does, same[i], strlen(same[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* Long sums of few results are split over the team: in bf16 always (AMX: 8 x 512 x 3072), in f32
 * from version 3 on (1 x 256 x 3072). */
static bool same_product(const dnnl_version_t *v, const lvni_cpu_dnn_work *work, const char *name)
{
    return v->major == 2 && work->low == 0 && strstr(name, "avx512") != NULL;
}

bool lvni_cpu_dnn_same_for_every_team(const lvni_cpu_dnn_work *work, const char *implementation)
{
    const dnnl_version_t *v = dnnl_version();
    if (!is_measured(v)) {
        return false;
    }
    return work->op == LVNI_DNN_MATMUL ? same_product(v, work, implementation)
                                       : same_convolution(implementation);
}

const char *lvni_cpu_unmeasured(void)
{
    static char text[240]; /* the same for every writer */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const dnnl_version_t *v = dnnl_version();
    if (is_measured(v)) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    if (text[0] == '\0') {
        int n = snprintf(text, sizeof text,
                         "oneDNN %d.%d.%d is a version that levin was not measured with: all its "
                         "operations run with wgrad_threads threads, whatever the number of cores; "
                         "measured:",
                         v->major, v->minor, v->patch);
        for (size_t i = 0; i < sizeof measured / sizeof *measured && n < (int)sizeof text; i++) {
            n += snprintf(text + n, sizeof text - (size_t)n, "%s %d.%d", i > 0 ? "," : "",
                          measured[i].major, measured[i].minor);
        }
    }
    pthread_mutex_unlock(&lock);
    return text;
}

/* ---- wrong results ---- */

/* With strides or dilation (2.6 to 3.12) kernels read scratch memory that they have not written, or
 * leave results unwritten, so that old contents enter, NaN included:
 *   weight gradients with dilation, x (2, 13, 38, 41), w (18, 3, 3, 41), padding and dilation 2;
 *   those of jit_bf16 with strides, of which results of one column are wrong;
 *   AMX, windows of more than a pixel and results of one column: x (3, 31, 1, 53), w (16, 7, 7,
 * 53), stride 2, padding 3; in 2.6 narrow results of channels that do not fill its tiles, too: x
 * (8, 61, 7, 53), w (21, 2, 2, 53), stride 3; and windows smaller than their stride, whose last row
 * was NaN: x (6, 38, 5, 256), w (96, 2, 2, 256), stride 3. A version that was not measured is not
 * trusted with any. */
enum { NARROW = 16, TILE = 32 };

static bool reads_old_memory(const lvni_cpu_dnn_work *work, const char *name)
{
    const lvni_cpu_dnn_conv_shape *s = &work->shape.conv;
    const bool weights = work->op == LVNI_DNN_CONV_GRAD_WEIGHT;
    const bool strides = s->stride[0] > 1 || s->stride[1] > 1;
    const bool dilated = s->dilation[0] > 1 || s->dilation[1] > 1;
    if (!strides && !dilated) {
        return false;
    }
    if (!is_measured(dnnl_version()) || (weights && dilated) ||
        (weights && strncmp(name, "jit_bf16:", 9) == 0)) {
        return true;
    }
    const bool gaps = s->kh < s->stride[0] || s->kw < s->stride[1];
    const bool odd = dnnl_version()->major == 2 && s->ic / s->groups % TILE != 0;
    return strstr(name, "amx") != NULL && s->kh * s->kw > 1 && (gaps || s->ow < (odd ? NARROW : 2));
}

/* Weight gradients of jit_bf16 (2.6) leave rows of the window unwritten that lie outside of the
 * image wherever it stands, when there are two and more on a side: x (1, 1, 28, 256), w (3, 5, 5,
 * 256), padding 2. */
static bool leaves_rows(const lvni_cpu_dnn_work *work, const char *name)
{
    const lvni_cpu_dnn_conv_shape *s = &work->shape.conv;
    const int64_t above = s->padding[0] - (s->oh - 1) * s->stride[0],
                  below = s->kh - s->padding[0] - s->ih;
    return work->op == LVNI_DNN_CONV_GRAD_WEIGHT && strncmp(name, "jit_bf16:", 9) == 0 &&
           (above > 1 || below > 1);
}

/* Windows of one pixel and an odd number of outputs (2.6): wrong at some numbers of pixels,
 * x (1, 12, 5, 1), w (1, 1, 1, 1). */
static bool loses_outputs(const lvni_cpu_dnn_conv_shape *s)
{
    return dnnl_version()->major == 2 && s->kh * s->kw == 1 && s->oc / s->groups % 2 == 1;
}

/* Weight gradients of windows of one pixel with strides (jit_1x1 of 2.6 to 3.7, f32): threads write
 * into each other's memory, x (7, 6, 12, 6), w (1024, 1, 1, 6), stride 2, on AVX2 in 4 of 10 runs
 * of two threads. */
static bool is_race(const lvni_cpu_dnn_work *work)
{
    const lvni_cpu_dnn_conv_shape *s = &work->shape.conv;
    return work->op == LVNI_DNN_CONV_GRAD_WEIGHT && s->kh * s->kw == 1 &&
           (s->stride[0] > 1 || s->stride[1] > 1);
}

bool lvni_cpu_dnn_is_wrong(const lvni_cpu_dnn_work *work, const char *implementation)
{
    if (work->op == LVNI_DNN_MATMUL) {
        return false;
    }
    if (is_race(work) || work->low == 0) {
        return is_race(work);
    }
    return work->op == LVNI_DNN_CONV_GRAD_INPUT
               ? loses_outputs(&work->shape.conv)
               : reads_old_memory(work, implementation) || leaves_rows(work, implementation);
}

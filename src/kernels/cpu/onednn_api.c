/* oneDNN 2.6 behind onednn_api.h. Primitives are made here and nowhere else. */
#include "kernels/cpu/onednn_api.h"

#include "kernels/kernels.h"
#include "tensor/device.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* engine and statistics; a leaf lock */
static dnnl_engine_t engine;
static lvni_cpu_stats stats;

static lvn_status check(dnnl_status_t s, const char *what, int line)
{
    static const char *const names[] = {"success", "out of memory", "invalid arguments", "unimplemented",
                                        "iterator ends", "runtime error", "not required"};
    if (s == dnnl_success) {
        return LVN_OK;
    }
    const char *name = (size_t)s < sizeof names / sizeof *names ? names[s] : "unknown status";
    return lvn_error_set(s == dnnl_out_of_memory ? LVN_ERR_MEMORY : LVN_ERR_INTERNAL, __FILE__, line,
                         "oneDNN refused to %s: %s (%d)", what, name, (int)s);
}

#define DNN(call, what)                                       \
    do {                                                      \
        const lvn_status dnn_s_ = check((call), what, __LINE__); \
        if (dnn_s_ != LVN_OK) {                               \
            return dnn_s_;                                    \
        }                                                     \
    } while (0)

/* The process has one CPU engine, made at first use and kept. */
static lvn_status get_engine(dnnl_engine_t *out)
{
    pthread_mutex_lock(&lock);
    const dnnl_status_t s = engine != NULL ? dnnl_success : dnnl_engine_create(&engine, dnnl_cpu, 0);
    *out = engine;
    pthread_mutex_unlock(&lock);
    return check(s, "make the CPU engine", __LINE__);
}

lvn_status lvni_dnn_sgemm(const lvni_dnn_matmul_shape *s, const float *a, const float *b, float *y)
{
    if (lvni_device_dry_run()) {
        return LVN_OK;
    }
    DNN(dnnl_sgemm('N', 'N', s->m, s->n, s->k, 1.0f, a, s->k, b, s->n, 0.0f, y, s->n), "multiply matrices");
    return LVN_OK;
}

lvn_status lvni_dnn_stream_create(dnnl_stream_t *out)
{
    dnnl_engine_t e;
    LVN_TRY(get_engine(&e));
    DNN(dnnl_stream_create(out, e, dnnl_stream_default_flags), "make a stream");
    return LVN_OK;
}

void lvni_dnn_stream_destroy(dnnl_stream_t stream)
{
    if (stream != NULL) {
        dnnl_stream_destroy(stream);
    }
}

/* ---- descriptors ---- */

static dnnl_data_type_t type_of(int64_t low)
{
    return low != 0 ? dnnl_bf16 : dnnl_f32;
}

static lvn_status image_desc(dnnl_memory_desc_t *d, int64_t n, int64_t h, int64_t w, int64_t c, int64_t low)
{
    const dnnl_dims_t dims = {n, c, h, w};
    DNN(dnnl_memory_desc_init_by_tag(d, 4, dims, type_of(low), dnnl_nhwc), "describe an image");
    return LVN_OK;
}

/* The plain master copy (O, KH, KW, I / groups) and the same shape in a layout of oneDNN's choice. */
static lvn_status weight_descs(const lvni_dnn_conv_shape *s, dnnl_data_type_t plain_type, dnnl_data_type_t type,
                               dnnl_memory_desc_t *plain, dnnl_memory_desc_t *any)
{
    const int64_t g = s->groups, i = s->ic / g, o = s->oc / g, row = s->kw * i, out = s->kh * row;
    const dnnl_dims_t dims = {g, o, i, s->kh, s->kw};
    const dnnl_dims_t strides = {o * out, out, 1, row, i};
    const int lead = g == 1 ? 1 : 0; /* without groups the first axis is absent */
    dnnl_dims_t d = {0}, st = {0};
    memcpy(d, dims + lead, (size_t)(5 - lead) * sizeof *d);
    memcpy(st, strides + lead, (size_t)(5 - lead) * sizeof *st);
    DNN(dnnl_memory_desc_init_by_strides(plain, 5 - lead, d, plain_type, st), "describe weights");
    DNN(dnnl_memory_desc_init_by_tag(any, 5 - lead, d, type, dnnl_format_tag_any), "describe weights");
    return LVN_OK;
}

/* User scratchpads (two lanes in one library-owned scratchpad give wrong sums) and f32 that stays f32. */
static lvn_status make_attr(dnnl_primitive_attr_t *attr)
{
    DNN(dnnl_primitive_attr_create(attr), "make attributes");
    dnnl_status_t s = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (s == dnnl_success) {
        s = dnnl_primitive_attr_set_fpmath_mode(*attr, dnnl_fpmath_mode_strict);
    }
    if (s != dnnl_success) {
        dnnl_primitive_attr_destroy(*attr);
    }
    return check(s, "set attributes", __LINE__);
}

static lvn_status make_pd(dnnl_primitive_desc_t *pd, const_dnnl_op_desc_t desc, const_dnnl_primitive_desc_t hint,
                          const char *what)
{
    dnnl_engine_t e;
    dnnl_primitive_attr_t attr;
    LVN_TRY(get_engine(&e));
    LVN_TRY(make_attr(&attr));
    const dnnl_status_t s = dnnl_primitive_desc_create(pd, desc, attr, e, hint);
    dnnl_primitive_attr_destroy(attr);
    return check(s, what, __LINE__);
}

static const char *impl_name(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success || name == NULL) {
        return "ref: implementation without a name";
    }
    return name;
}

static void describe_work(const lvni_dnn_work *w, char *text, size_t size)
{
    static const char *const names[] = {"conv2d", "conv2d_grad_input", "conv2d_grad_weight", "matmul"};
    const lvni_dnn_matmul_shape *m = &w->shape.matmul;
    const lvni_dnn_conv_shape *c = &w->shape.conv;
    if (w->op == LVNI_DNN_MATMUL) {
        snprintf(text, size, "matmul of (%lld, %lld)%s and (%lld, %lld)%s, %lld times", (long long)m->m, (long long)m->k,
                 m->trans_a != 0 ? " transposed" : "", (long long)m->k, (long long)m->n, m->trans_b != 0 ? " transposed" : "",
                 (long long)m->batch);
        return;
    }
    snprintf(text, size, "%s of x (%lld, %lld, %lld, %lld), w (%lld, %lld, %lld, %lld), stride %lld %lld, padding %lld %lld, "
             "dilation %lld %lld, groups %lld", names[w->op], (long long)c->n, (long long)c->ih, (long long)c->iw,
             (long long)c->ic, (long long)c->oc, (long long)c->kh, (long long)c->kw, (long long)(c->ic / c->groups),
             (long long)c->stride[0], (long long)c->stride[1], (long long)c->padding[0], (long long)c->padding[1],
             (long long)c->dilation[0], (long long)c->dilation[1], (long long)c->groups);
}

/* A reference implementation can be thousands of times slower: better no run than one that seems to hang. */
static lvn_status count_or_refuse(const lvni_dnn_work *work, const char *name)
{
    const bool slow = strncmp(name, "ref", 3) == 0;
    pthread_mutex_lock(&lock);
    stats.primitives_created += slow ? 0 : 1;
    if (slow) {
        stats.slow_primitives++;
        snprintf(stats.last_slow, sizeof stats.last_slow, "%s", name);
    }
    pthread_mutex_unlock(&lock);
    if (slow) {
        char text[320];
        describe_work(work, text, sizeof text);
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "%s: oneDNN has only its slow reference implementation (%s) for this shape on this CPU (%s); "
                 "change the layer's shape", text, name, lvni_dnn_describe());
    }
    return LVN_OK;
}

struct lvni_cpu_stats lvni_dnn_stats(void)
{
    pthread_mutex_lock(&lock);
    const lvni_cpu_stats s = stats;
    pthread_mutex_unlock(&lock);
    return s;
}

/* ---- primitives ---- */

static lvn_status add_arg(lvni_dnn_prim *p, int *at, int id, const dnnl_memory_desc_t *desc)
{
    dnnl_engine_t e;
    LVN_TRY(get_engine(&e));
    DNN(dnnl_memory_create(&p->args[*at].memory, desc, e, DNNL_MEMORY_NONE), "make a memory");
    p->args[(*at)++].arg = id;
    return LVN_OK;
}

/* Names the chosen layout. Only the fields that define a blocked layout count: the rest of the struct may hold anything. */
static uint64_t format_of(const dnnl_memory_desc_t *d)
{
    if (d->format_kind != dnnl_blocked || d->extra.flags != 0) {
        return 0;
    }
    const dnnl_blocking_desc_t *b = &d->format_desc.blocking;
    uint64_t words[5 * DNNL_MAX_NDIMS + 3], h = 14695981039346656037u;
    size_t n = 0;
    words[n++] = (uint64_t)d->ndims;
    words[n++] = (uint64_t)d->data_type;
    words[n++] = (uint64_t)b->inner_nblks;
    for (int i = 0; i < d->ndims; i++) {
        words[n++] = (uint64_t)d->dims[i];
        words[n++] = (uint64_t)d->padded_dims[i];
        words[n++] = (uint64_t)b->strides[i];
    }
    for (int i = 0; i < b->inner_nblks; i++) {
        words[n++] = (uint64_t)b->inner_blks[i];
        words[n++] = (uint64_t)b->inner_idxs[i];
    }
    for (size_t i = 0; i < n; i++) {
        h = (h ^ words[i]) * 1099511628211u;
        h ^= h >> 29;
    }
    return h == 0 ? 1 : h;
}

/* The carrier between the plain and the chosen layout, in the direction the op needs. */
static lvn_status make_reorder(lvni_dnn_prim *p, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to)
{
    dnnl_engine_t e;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd;
    LVN_TRY(get_engine(&e));
    LVN_TRY(make_attr(&attr));
    dnnl_status_t s = dnnl_reorder_primitive_desc_create(&pd, from, e, to, e, attr);
    dnnl_primitive_attr_destroy(attr);
    DNN(s, "reorder weights");
    const dnnl_memory_desc_t *pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    p->reorder_scratch_bytes = pad == NULL ? 0 : dnnl_memory_desc_get_size(pad);
    s = dnnl_primitive_create(&p->reorder, pd);
    const dnnl_memory_desc_t *descs[3] = {from, to, pad};
    const int ids[3] = {DNNL_ARG_FROM, DNNL_ARG_TO, DNNL_ARG_SCRATCHPAD};
    for (int i = 0; i < 3 && s == dnnl_success; i++) {
        p->reorder_args[i].arg = ids[i];
        s = dnnl_memory_create(&p->reorder_args[i].memory, descs[i], e, DNNL_MEMORY_NONE);
    }
    dnnl_primitive_desc_destroy(pd);
    return check(s, "reorder weights", __LINE__);
}

typedef struct arg_query {
    int id;             /* of the execution argument */
    dnnl_query_t query; /* of its descriptor */
    int index;          /* which of several (weights: 1 is the bias) */
} arg_query;

/* The primitive of `pd` and its memories. `plain` (or NULL): the master layout of argument LVNI_DNN_WEIGHTS. */
static lvn_status fill(lvni_dnn_prim *p, dnnl_primitive_desc_t pd, int n_args, const arg_query *args,
                       const dnnl_memory_desc_t *plain, bool gradient)
{
    DNN(dnnl_primitive_create(&p->primitive, pd), "make a primitive");
    int at = 0;
    for (int i = 0; i < n_args; i++) {
        LVN_TRY(add_arg(p, &at, args[i].id, dnnl_primitive_desc_query_md(pd, args[i].query, args[i].index)));
    }
    p->n_args = n_args;
    const dnnl_memory_desc_t *pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    p->scratch_bytes = pad == NULL ? 0 : dnnl_memory_desc_get_size(pad);
    if (p->scratch_bytes > 0) {
        LVN_TRY(add_arg(p, &at, DNNL_ARG_SCRATCHPAD, pad));
    }
    if (plain != NULL) {
        const dnnl_memory_desc_t *chosen = dnnl_primitive_desc_query_md(pd, args[LVNI_DNN_WEIGHTS].query, 0);
        if (!dnnl_memory_desc_equal(plain, chosen)) {
            p->chosen_bytes = dnnl_memory_desc_get_size(chosen);
            p->format = format_of(chosen);
            LVN_TRY(gradient ? make_reorder(p, chosen, plain) : make_reorder(p, plain, chosen));
        }
    }
    return LVN_OK;
}

typedef struct conv_descs {
    dnnl_memory_desc_t x, y, bias, plain, any, dw;
    dnnl_dims_t stride, padding, dilation; /* dilation as oneDNN counts: 0 is dense */
} conv_descs;

static lvn_status describe_conv(const lvni_dnn_work *work, conv_descs *d)
{
    const lvni_dnn_conv_shape *s = &work->shape.conv;
    const bool gradient = work->op == LVNI_DNN_CONV_GRAD_WEIGHT;
    memset(d, 0, sizeof *d);
    const dnnl_dims_t oc = {s->oc};
    LVN_TRY(image_desc(&d->x, s->n, s->ih, s->iw, s->ic, work->low));
    LVN_TRY(image_desc(&d->y, s->n, s->oh, s->ow, s->oc, work->low));
    LVN_TRY(weight_descs(s, gradient ? dnnl_f32 : type_of(work->low != 0 && work->wide_w == 0), type_of(work->low), &d->plain, &d->any));
    d->dw = d->any; /* sums stay f32 */
    d->dw.data_type = gradient ? dnnl_f32 : d->any.data_type;
    DNN(dnnl_memory_desc_init_by_tag(&d->bias, 1, oc, dnnl_f32, dnnl_a), "describe a bias");
    for (int i = 0; i < 2; i++) {
        d->stride[i] = s->stride[i];
        d->padding[i] = s->padding[i];
        d->dilation[i] = s->dilation[i] - 1;
    }
    return LVN_OK;
}

/* Training and evaluation use the same primitive: forward_training, which is also the hint the gradients need. */
static lvn_status forward_pd(const conv_descs *d, bool bias, dnnl_primitive_desc_t *pd)
{
    dnnl_convolution_desc_t c;
    DNN(dnnl_dilated_convolution_forward_desc_init(&c, dnnl_forward_training, dnnl_convolution_direct, &d->x, &d->any,
                                                   bias ? &d->bias : NULL, &d->y, d->stride, d->dilation,
                                                   d->padding, d->padding),
        "describe a convolution");
    return make_pd(pd, &c, NULL, "plan a convolution");
}

static lvn_status conv_pd(lvni_dnn_op op, const conv_descs *d, bool bias, dnnl_primitive_desc_t *pd)
{
    dnnl_convolution_desc_t c;
    dnnl_primitive_desc_t hint;
    if (op == LVNI_DNN_CONV_FORWARD) {
        return forward_pd(d, bias, pd);
    }
    if (op == LVNI_DNN_CONV_GRAD_INPUT) {
        DNN(dnnl_dilated_convolution_backward_data_desc_init(&c, dnnl_convolution_direct, &d->x, &d->any, &d->y,
                                                             d->stride, d->dilation, d->padding, d->padding),
            "describe the input gradient of a convolution");
    } else {
        DNN(dnnl_dilated_convolution_backward_weights_desc_init(&c, dnnl_convolution_direct, &d->x, &d->dw, NULL,
                                                                &d->y, d->stride, d->dilation, d->padding,
                                                                d->padding),
            "describe the weight gradient of a convolution");
    }
    LVN_TRY(forward_pd(d, false, &hint));
    const lvn_status s = make_pd(pd, &c, hint, "plan the gradient of a convolution");
    dnnl_primitive_desc_destroy(hint);
    return s;
}

/* Row-major matrices (rows, columns), or the transposes of some that lie in memory as (columns, rows). */
static lvn_status matrix_desc(dnnl_memory_desc_t *d, int64_t batch, int64_t rows, int64_t columns, bool trans, int64_t low)
{
    if (batch > 1) {
        const dnnl_dims_t dims = {batch, rows, columns};
        DNN(dnnl_memory_desc_init_by_tag(d, 3, dims, type_of(low), trans ? dnnl_acb : dnnl_abc), "describe matrices");
        return LVN_OK;
    }
    const dnnl_dims_t dims = {rows, columns};
    DNN(dnnl_memory_desc_init_by_tag(d, 2, dims, type_of(low), trans ? dnnl_ba : dnnl_ab), "describe a matrix");
    return LVN_OK;
}

/* *plain: b as it comes. With wide_w it is carried to bf16 and a layout of oneDNN's choice. */
static lvn_status matmul_pd(const lvni_dnn_work *w, dnnl_memory_desc_t *plain, dnnl_primitive_desc_t *pd)
{
    const lvni_dnn_matmul_shape *s = &w->shape.matmul;
    dnnl_memory_desc_t a, b, y, row;
    dnnl_matmul_desc_t desc;
    LVN_TRY(matrix_desc(&a, s->batch, s->m, s->k, s->trans_a != 0, w->low));
    LVN_TRY(matrix_desc(plain, s->batch, s->k, s->n, s->trans_b != 0, w->low != 0 && w->wide_w == 0));
    LVN_TRY(matrix_desc(&y, s->batch, s->m, s->n, false, w->low != 0 && w->wide_y == 0));
    LVN_TRY(matrix_desc(&row, 1, 1, s->n, false, 0));
    b = *plain;
    if (w->wide_w != 0) {
        DNN(dnnl_memory_desc_init_by_tag(&b, plain->ndims, plain->dims, dnnl_bf16, dnnl_format_tag_any), "describe a matrix");
    }
    DNN(dnnl_matmul_desc_init(&desc, &a, &b, w->bias != 0 ? &row : NULL, &y), "describe a matrix product");
    return make_pd(pd, &desc, NULL, "plan a matrix product");
}

/* *d is filled for convolutions; of it d->plain for matrix products, too. */
static lvn_status work_pd(const lvni_dnn_work *w, conv_descs *d, dnnl_primitive_desc_t *pd)
{
    if (w->op == LVNI_DNN_MATMUL) {
        return matmul_pd(w, &d->plain, pd);
    }
    LVN_TRY(describe_conv(w, d));
    return conv_pd((lvni_dnn_op)w->op, d, w->bias != 0, pd);
}

lvn_status lvni_dnn_implementation(const lvni_dnn_work *work, char name[64])
{
    conv_descs d;
    dnnl_primitive_desc_t pd = NULL;
    LVN_TRY(work_pd(work, &d, &pd));
    snprintf(name, 64, "%s", impl_name(pd));
    dnnl_primitive_desc_destroy(pd);
    return LVN_OK;
}

static const arg_query work_args[][LVNI_DNN_MAX_ARGS] = {
    [LVNI_DNN_CONV_FORWARD] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0},
                               {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                               {DNNL_ARG_DST, dnnl_query_dst_md, 0},
                               {DNNL_ARG_BIAS, dnnl_query_weights_md, 1}},
    [LVNI_DNN_CONV_GRAD_INPUT] = {{DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0},
                                  {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                                  {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0}},
    [LVNI_DNN_CONV_GRAD_WEIGHT] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0},
                                   {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 0},
                                   {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0}},
    [LVNI_DNN_MATMUL] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0},
                         {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                         {DNNL_ARG_DST, dnnl_query_dst_md, 0},
                         {DNNL_ARG_BIAS, dnnl_query_weights_md, 1}},
};

lvn_status lvni_dnn_create(const lvni_dnn_work *work, lvni_dnn_prim *out)
{
    conv_descs d;
    dnnl_primitive_desc_t pd = NULL;
    lvni_dnn_prim p = {0};
    LVN_TRY(work_pd(work, &d, &pd));
    const bool gradient = work->op == LVNI_DNN_CONV_GRAD_WEIGHT;
    lvn_status s = count_or_refuse(work, impl_name(pd));
    if (s == LVN_OK) {
        s = fill(&p, pd, work->bias != 0 ? 4 : 3, work_args[work->op], &d.plain, gradient);
    }
    dnnl_primitive_desc_destroy(pd);
    if (s != LVN_OK) {
        lvni_dnn_prim_destroy(&p);
        return s;
    }
    p.output = gradient ? LVNI_DNN_WEIGHTS : 2;
    *out = p;
    return LVN_OK;
}

void lvni_dnn_prim_destroy(lvni_dnn_prim *p)
{
    for (int i = 0; i <= LVNI_DNN_MAX_ARGS; i++) {
        if (p->args[i].memory != NULL) {
            dnnl_memory_destroy(p->args[i].memory);
        }
    }
    for (int i = 0; i < 3; i++) {
        if (p->reorder_args[i].memory != NULL) {
            dnnl_memory_destroy(p->reorder_args[i].memory);
        }
    }
    if (p->primitive != NULL) {
        dnnl_primitive_destroy(p->primitive);
    }
    if (p->reorder != NULL) {
        dnnl_primitive_destroy(p->reorder);
    }
    memset(p, 0, sizeof *p);
}

/* ---- execution ---- */

/* oneDNN reads through pointers that are not const. */
static void *unconst(const void *p)
{
    return (void *)(uintptr_t)p;
}

static lvn_status run_aligned(lvni_dnn_prim *p, dnnl_stream_t stream, const void *const *data, void *scratch)
{
    const int n = p->n_args + (p->scratch_bytes > 0 ? 1 : 0);
    for (int i = 0; i < n; i++) {
        void *handle = i < p->n_args ? unconst(data[i]) : scratch;
        if (handle != p->handles[i]) {
            p->handles[i] = NULL;
            DNN(dnnl_memory_set_data_handle(p->args[i].memory, handle), "set an argument");
            p->handles[i] = handle;
        }
    }
    DNN(dnnl_primitive_execute(p->primitive, stream, n, p->args), "run a primitive");
    DNN(dnnl_stream_wait(stream), "finish a primitive");
    return LVN_OK;
}

/* The SSE4.1 kernels of oneDNN die of operands that are not 16-byte aligned, as slices of flat buffers may be. Such machines
 * are old and LEVIN_CPU_ISA=v2 is for tests, so whole copies are good enough. */
static bool needs_copy(const lvni_dnn_prim *p, const void *const *data)
{
    if (dnnl_get_effective_cpu_isa() != dnnl_cpu_isa_sse41) {
        return false;
    }
    for (int i = 0; i < p->n_args; i++) {
        if ((uintptr_t)data[i] % 16 != 0) {
            return true;
        }
    }
    return false;
}

static lvn_status run_on_copies(lvni_dnn_prim *p, dnnl_stream_t stream, const void *const *data, void *scratch)
{
    const void *aligned[LVNI_DNN_MAX_ARGS] = {NULL};
    void *copies[LVNI_DNN_MAX_ARGS] = {NULL};
    size_t bytes[LVNI_DNN_MAX_ARGS] = {0};
    lvn_status s = LVN_OK;
    for (int i = 0; i < p->n_args && s == LVN_OK; i++) {
        const dnnl_memory_desc_t *desc = NULL;
        aligned[i] = data[i];
        if ((uintptr_t)data[i] % 16 != 0) {
            s = check(dnnl_memory_get_memory_desc(p->args[i].memory, &desc), "describe an argument", __LINE__);
            bytes[i] = s == LVN_OK ? dnnl_memory_desc_get_size(desc) : 0;
            aligned[i] = copies[i] = s == LVN_OK ? lvni_alloc(LVNI_TAG_KERNEL, bytes[i]) : NULL;
            if (copies[i] != NULL) {
                memcpy(copies[i], data[i], bytes[i]);
            } else if (s == LVN_OK) {
                s = lvn_last_error()->code;
            }
        }
    }
    s = s == LVN_OK ? run_aligned(p, stream, aligned, scratch) : s;
    if (s == LVN_OK && copies[p->output] != NULL) {
        memcpy(unconst(data[p->output]), copies[p->output], bytes[p->output]);
    }
    for (int i = 0; i < p->n_args; i++) {
        lvni_free(copies[i]);
    }
    return s;
}

lvn_status lvni_dnn_run(lvni_dnn_prim *p, dnnl_stream_t stream, const void *const *data, void *scratch)
{
    if (lvni_device_dry_run()) {
        return LVN_OK;
    }
    return needs_copy(p, data) ? run_on_copies(p, stream, data, scratch) : run_aligned(p, stream, data, scratch);
}

lvn_status lvni_dnn_reorder(lvni_dnn_prim *p, dnnl_stream_t stream, const void *from, void *to, void *scratch)
{
    if (lvni_device_dry_run()) {
        return LVN_OK;
    }
    void *const handles[3] = {unconst(from), to, scratch};
    const int n = p->reorder_scratch_bytes > 0 ? 3 : 2;
    for (int i = 0; i < n; i++) {
        DNN(dnnl_memory_set_data_handle(p->reorder_args[i].memory, handles[i]), "set an argument of a reorder");
    }
    DNN(dnnl_primitive_execute(p->reorder, stream, n, p->reorder_args), "reorder weights");
    DNN(dnnl_stream_wait(stream), "finish a reorder");
    return LVN_OK;
}

/* ---- process-wide settings ---- */

static const struct {
    const char *level, *words;
    dnnl_cpu_isa_t isa;
} levels[] = {{"v2", "sse4.1 v2", dnnl_cpu_isa_sse41},
              {"v3", "avx2 v3", dnnl_cpu_isa_avx2},
              {"v4", "avx512 v4", dnnl_cpu_isa_avx512_core}};

lvn_status lvni_dnn_setup(const char *isa)
{
    /* The environment may ask for products in bf16 or for narrow registers: both change bits. */
    DNN(dnnl_set_default_fpmath_mode(dnnl_fpmath_mode_strict), "keep f32 products exact");
    dnnl_set_cpu_isa_hints(dnnl_cpu_isa_no_hints); /* refused only after the first primitive: then it is settled */
    if (isa == NULL || *isa == '\0') {
        return LVN_OK;
    }
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (strcmp(isa, levels[i].level) == 0) {
            const dnnl_status_t s = dnnl_set_max_cpu_isa(levels[i].isa);
            if (s != dnnl_success && dnnl_get_effective_cpu_isa() > levels[i].isa) {
                LVN_FAIL(LVN_ERR_UNSUPPORTED, "LEVIN_CPU_ISA=%s comes too late: oneDNN has already chosen %s; call "
                         "lvni_cpu_start before the first op", isa, lvni_dnn_describe());
            }
            return LVN_OK;
        }
    }
    LVN_FAIL(LVN_ERR_USAGE, "LEVIN_CPU_ISA=%s is no instruction set: use v2, v3 or v4", isa);
}

const char *lvni_dnn_describe(void)
{
    static char text[64]; /* the same for every writer */
    const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    const dnnl_version_t *v = dnnl_version();
    const char *words = "generic";
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (((unsigned)isa & (unsigned)levels[i].isa) == (unsigned)levels[i].isa) {
            words = levels[i].words;
        }
    }
    pthread_mutex_lock(&lock);
    if (text[0] == '\0') {
        snprintf(text, sizeof text, "%s, oneDNN %d.%d.%d", words, v->major, v->minor, v->patch);
    }
    pthread_mutex_unlock(&lock);
    return text;
}

bool lvni_cpu_has_bf16(void)
{
    return ((unsigned)dnnl_get_effective_cpu_isa() & (unsigned)dnnl_cpu_isa_avx512_core) == (unsigned)dnnl_cpu_isa_avx512_core;
}

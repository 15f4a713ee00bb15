/* oneDNN behind onednn_api.h. Primitives are made here and nowhere else; onednn_plan.c
 * describes them, onednn_run.c runs them. */
#include "kernels/cpu/onednn_plan.h"

#include "core/error.h"
#include "kernels/kernels.h"
#include "tensor/device.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The process counts, for tests, and describes itself once; a leaf lock. Nothing here is of a
 * device: engine and stream are the context's. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static lvni_cpu_stats stats;

lvn_status lvni_cpu_dnn_check(dnnl_status_t s, const char *what, int line)
{
    static const char *const names[] = {"success",       "out of memory", "invalid arguments",
                                        "unimplemented", "iterator ends", "runtime error",
                                        "not required"};
    if (s == dnnl_success) {
        return LVN_OK;
    }
    const char *name = (size_t)s < sizeof names / sizeof *names ? names[s] : "unknown status";
    return lvn_error_set(s == dnnl_out_of_memory ? LVN_ERR_MEMORY : LVN_ERR_INTERNAL, __FILE__,
                         line, "oneDNN refused to %s: %s (%d)", what, name, (int)s);
}

/* ---- engine and stream of a context ---- */

typedef struct handles {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
} handles;

static lvn_status begin_handles(void *state)
{
    handles *h = state;
    LVNI_DNN(dnnl_engine_create(&h->engine, dnnl_cpu, 0), "make the CPU engine");
    const dnnl_status_t s = dnnl_stream_create(&h->stream, h->engine, dnnl_stream_default_flags);
    if (s != dnnl_success) {
        dnnl_engine_destroy(h->engine);
    }
    return lvni_cpu_dnn_check(s, "make a stream", __LINE__);
}

static void end_handles(void *state)
{
    const handles *h = state;
    dnnl_stream_destroy(h->stream);
    dnnl_engine_destroy(h->engine);
}

static const lvni_tensor_state_class handles_class = {
    .bytes = sizeof(handles), .begin = begin_handles, .end = end_handles};

lvn_status lvni_cpu_dnn_engine(dnnl_engine_t *out)
{
    const handles *h = lvni_tensor_ctx_state(&handles_class);
    *out = h == NULL ? NULL : h->engine;
    return h == NULL ? lvn_last_error()->code : LVN_OK;
}

lvn_status lvni_cpu_dnn_stream(dnnl_stream_t *out)
{
    const handles *h = lvni_tensor_ctx_state(&handles_class);
    *out = h == NULL ? NULL : h->stream;
    return h == NULL ? lvn_last_error()->code : LVN_OK;
}

lvn_status lvni_cpu_dnn_sgemm(const lvni_cpu_dnn_matmul_shape *s, const float *a, const float *b,
                              float *y)
{
    if (lvni_tensor_device_dry_run()) {
        return LVN_OK;
    }
    LVNI_DNN(dnnl_sgemm('N', 'N', s->m, s->n, s->k, 1.0f, a, s->k, b, s->n, 0.0f, y, s->n),
             "multiply matrices");
    return LVN_OK;
}

/* A reference implementation can be thousands of times slower. Of a convolution it is not made:
 * there is another way (conv_groups.c). A product has none: better no run than one that seems to
 * hang. */
static lvn_status count(const lvni_cpu_dnn_work *work, const char *name, bool *slow)
{
    *slow = strncmp(name, "ref", 3) == 0;
    pthread_mutex_lock(&lock);
    stats.primitives_created += *slow ? 0 : 1;
    if (*slow) {
        stats.slow_primitives++;
        snprintf(stats.last_slow, sizeof stats.last_slow, "%s", name);
    }
    pthread_mutex_unlock(&lock);
    if (*slow && work->op == LVNI_DNN_MATMUL) {
        const lvni_cpu_dnn_matmul_shape *m = &work->shape.matmul;
        LVN_FAIL(
            LVN_ERR_UNSUPPORTED,
            "matmul of (%lld, %lld)%s and (%lld, %lld)%s, %lld times: oneDNN has only its slow "
            "reference implementation (%s) for this shape on this CPU (%s); change the layer's "
            "shape",
            (long long)m->m, (long long)m->k, m->trans_a != 0 ? " transposed" : "", (long long)m->k,
            (long long)m->n, m->trans_b != 0 ? " transposed" : "", (long long)m->batch, name,
            lvni_cpu_dnn_describe());
    }
    return LVN_OK;
}

struct lvni_cpu_stats lvni_cpu_dnn_stats(void)
{
    pthread_mutex_lock(&lock);
    const lvni_cpu_stats s = stats;
    pthread_mutex_unlock(&lock);
    return s;
}

/* ---- primitives ---- */

static lvn_status add_arg(lvni_cpu_dnn_prim *p, int *at, int id, lvni_cpu_dnn_desc_view desc)
{
    dnnl_engine_t e;
    LVN_TRY(lvni_cpu_dnn_engine(&e));
    LVNI_DNN(dnnl_memory_create(&p->args[*at].memory, desc, e, DNNL_MEMORY_NONE), "make a memory");
    p->args[(*at)++].arg = id;
    return LVN_OK;
}

static uint64_t add_layout(uint64_t h, const lvni_cpu_dnn_layout *d)
{
    uint64_t words[5 * DNNL_MAX_NDIMS + 3];
    size_t n = 0;
    words[n++] = (uint64_t)d->ndims;
    words[n++] = (uint64_t)d->type;
    words[n++] = (uint64_t)d->inner_nblks;
    for (int i = 0; i < d->ndims; i++) {
        words[n++] = (uint64_t)d->dims[i];
        words[n++] = (uint64_t)d->padded_dims[i];
        words[n++] = (uint64_t)d->strides[i];
    }
    for (int i = 0; i < d->inner_nblks; i++) {
        words[n++] = (uint64_t)d->inner_blks[i];
        words[n++] = (uint64_t)d->inner_idxs[i];
    }
    for (size_t i = 0; i < n; i++) {
        h = (h ^ words[i]) * 1099511628211u;
        h ^= h >> 29;
    }
    return h;
}

/* Names the copy of weights that lie as `plain` in the layout `chosen`. Both count: the two
 * products of a square matrix, with it and with its transpose, choose the same layout for different
 * numbers. */
static uint64_t format_of(lvni_cpu_dnn_desc_view plain, lvni_cpu_dnn_desc_view chosen)
{
    lvni_cpu_dnn_layout from, to;
    if (!lvni_cpu_dnn_layout_of(plain, &from) || !lvni_cpu_dnn_layout_of(chosen, &to)) {
        return 0;
    }
    const uint64_t h = add_layout(add_layout(14695981039346656037u, &from), &to);
    return h == 0 ? 1 : h;
}

/* The carrier between the plain and the chosen layout, in the direction the op needs. */
static lvn_status make_reorder(lvni_cpu_dnn_prim *p, lvni_cpu_dnn_desc_view from,
                               lvni_cpu_dnn_desc_view to)
{
    dnnl_engine_t e;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd;
    LVN_TRY(lvni_cpu_dnn_engine(&e));
    LVN_TRY(lvni_cpu_dnn_make_attr(&attr));
    dnnl_status_t s = dnnl_reorder_primitive_desc_create(&pd, from, e, to, e, attr);
    dnnl_primitive_attr_destroy(attr);
    LVNI_DNN(s, "reorder weights");
    lvni_cpu_dnn_desc_view pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    p->reorder_scratch_bytes = pad == NULL ? 0 : dnnl_memory_desc_get_size(pad);
    s = dnnl_primitive_create(&p->reorder, pd);
    const lvni_cpu_dnn_desc_view descs[3] = {from, to, pad};
    const int ids[3] = {DNNL_ARG_FROM, DNNL_ARG_TO, DNNL_ARG_SCRATCHPAD};
    const int n = p->reorder_scratch_bytes > 0 ? 3 : 2;
    for (int i = 0; i < n && s == dnnl_success; i++) {
        p->reorder_args[i].arg = ids[i];
        s = dnnl_memory_create(&p->reorder_args[i].memory, descs[i], e, DNNL_MEMORY_NONE);
    }
    dnnl_primitive_desc_destroy(pd);
    return lvni_cpu_dnn_check(s, "reorder weights", __LINE__);
}

typedef struct arg_query {
    int id;             /* of the execution argument */
    dnnl_query_t query; /* of its descriptor */
    int index;          /* which of several (weights: 1 is the bias) */
} arg_query;

/* The primitive of `pd` and its memories. `plain`: the master layout of argument
 * LVNI_DNN_WEIGHTS. */
static lvn_status fill(lvni_cpu_dnn_prim *p, dnnl_primitive_desc_t pd, int n_args,
                       const arg_query *args, lvni_cpu_dnn_desc_view plain, bool gradient)
{
    LVNI_DNN(dnnl_primitive_create(&p->primitive, pd), "make a primitive");
    int at = 0;
    for (int i = 0; i < n_args; i++) {
        LVN_TRY(add_arg(p, &at, args[i].id,
                        dnnl_primitive_desc_query_md(pd, args[i].query, args[i].index)));
    }
    p->n_args = n_args;
    lvni_cpu_dnn_desc_view pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    p->scratch_bytes = pad == NULL ? 0 : dnnl_memory_desc_get_size(pad);
    if (p->scratch_bytes > 0) {
        LVN_TRY(add_arg(p, &at, DNNL_ARG_SCRATCHPAD, pad));
    }
    lvni_cpu_dnn_desc_view chosen =
        dnnl_primitive_desc_query_md(pd, args[LVNI_DNN_WEIGHTS].query, 0);
    if (dnnl_memory_desc_equal(plain, chosen)) {
        return LVN_OK;
    }
    p->chosen_bytes = dnnl_memory_desc_get_size(chosen);
    p->format = format_of(plain, chosen);
    return gradient ? make_reorder(p, chosen, plain) : make_reorder(p, plain, chosen);
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

lvn_status lvni_cpu_dnn_create(const lvni_cpu_dnn_work *work, lvni_cpu_dnn_prim *out)
{
    lvni_cpu_dnn_desc plain = NULL;
    dnnl_primitive_desc_t pd = NULL;
    lvni_cpu_dnn_prim p = {0};
    LVN_TRY(lvni_cpu_dnn_plan(work, &pd, &plain));
    const bool gradient = work->op == LVNI_DNN_CONV_GRAD_WEIGHT;
    bool slow = false;
    lvn_status s;
    LVNI_TRY_DONE(s, count(work, lvni_cpu_dnn_pd_name(pd), &slow));
    if (!slow) {
        s = fill(&p, pd, work->bias != 0 ? 4 : 3, work_args[work->op], plain, gradient);
    }
done:
    dnnl_primitive_desc_destroy(pd);
    lvni_cpu_dnn_desc_destroy(plain);
    if (s != LVN_OK) {
        lvni_cpu_dnn_prim_destroy(&p);
        return s;
    }
    p.output = gradient ? LVNI_DNN_WEIGHTS : 2;
    *out = p;
    return LVN_OK;
}

void lvni_cpu_dnn_prim_destroy(lvni_cpu_dnn_prim *p)
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

/* ---- process-wide settings ---- */

static const struct {
    const char *level, *words;
    dnnl_cpu_isa_t isa;
} levels[] = {{"v2", "sse4.1 v2", dnnl_cpu_isa_sse41},
              {"v3", "avx2 v3", dnnl_cpu_isa_avx2},
              {"v4", "avx512 v4", dnnl_cpu_isa_avx512_core}};

lvn_status lvni_cpu_dnn_setup(const char *isa)
{
    /* The environment may ask for products in bf16 or for narrow registers: both change bits. */
    LVNI_DNN(dnnl_set_default_fpmath_mode(dnnl_fpmath_mode_strict), "keep f32 products exact");
    /* refused only after the first primitive: then it is settled */
    dnnl_set_cpu_isa_hints(dnnl_cpu_isa_no_hints);
    if (isa == NULL || *isa == '\0') {
        return LVN_OK;
    }
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (strcmp(isa, levels[i].level) == 0) {
            const dnnl_status_t s = dnnl_set_max_cpu_isa(levels[i].isa);
            if (s != dnnl_success && dnnl_get_effective_cpu_isa() > levels[i].isa) {
                LVN_FAIL(LVN_ERR_UNSUPPORTED,
                         "LEVIN_CPU_ISA=%s comes too late: oneDNN has already chosen %s; call "
                         "lvni_cpu_start before the first op",
                         isa, lvni_cpu_dnn_describe());
            }
            return LVN_OK;
        }
    }
    LVN_FAIL(LVN_ERR_USAGE, "LEVIN_CPU_ISA=%s is not an instruction set: use v2, v3 or v4", isa);
}

const char *lvni_cpu_dnn_describe(void)
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
    return ((unsigned)dnnl_get_effective_cpu_isa() & (unsigned)dnnl_cpu_isa_avx512_core) ==
           (unsigned)dnnl_cpu_isa_avx512_core;
}

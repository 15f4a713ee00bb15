/* Convolutions by cuDNN (cudnn.cuh). Images and weights lie as levin has them; to cuDNN they are
 * (N, C, H, W) and (O, I / groups, KH, KW) with other strides. Engines that round what they read
 * are refused. */
#include "conv.cuh"

#ifdef LEVIN_CUDA_ON_HOST

bool lvnc_cudnn_conv(const lvn_kernel_args *args, const lvnc_conv &c, const void *x, const void *w,
                     const void *y, void *narrow, void *workspace, lvn_status *status)
{
    (void)args, (void)c, (void)x, (void)w, (void)y, (void)narrow, (void)workspace, (void)status;
    return false;
}

#else

#include "cudnn.cuh"

namespace dnn
{
static void set_pair(builder *b, descriptor to, cudnnBackendAttributeName_t name, const int pair[2])
{
    const int64_t values[2] = {pair[0], pair[1]};
    set(b, to, name, CUDNN_TYPE_INT64, 2, values);
}

/* (n, h, w, c) in memory, known by `name`. */
static descriptor add_image(builder *b, char name, lvn_dtype type, int align, int64_t n, int64_t h,
                            int64_t w, int64_t c)
{
    const int64_t dims[4] = {n, c, h, w}, strides[4] = {h * w * c, 1, w * c, c};
    return add_tensor(b, name, IN_MEMORY, type_of(type), align, dims, strides);
}

static descriptor add_convolution(builder *b, const lvnc_conv &c)
{
    descriptor d = make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    set_type(b, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    set(b, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set_int(b, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
    set_pair(b, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, c.stride);
    set_pair(b, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, c.padding);
    set_pair(b, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, c.padding);
    set_pair(b, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, c.dilation);
    finish(b, d);
    return d;
}

/* The attributes of an operation that computes y, dx or dw. */
struct operation {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
};
static const operation operations[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static descriptor add_conv_graph(builder *b, const target &to, const void *problem)
{
    const conv_problem &q = *static_cast<const conv_problem *>(problem);
    const lvnc_conv &c = q.c;
    const operation &o = operations[c.kind];
    const float one = 1.0f, zero = 0.0f;
    descriptor x = add_image(b, 'x', c.type, q.align_x, c.n, c.h, c.w, c.i),
               w = add_image(b, 'w', c.type, q.align_w, c.o, c.kh, c.kw, c.i / c.groups),
               y = add_image(b, 'y', c.type, q.align_y, c.n, c.oh, c.ow, c.o),
               conv = add_convolution(b, c), op = make(b, o.type);
    refer(b, op, o.x, x);
    refer(b, op, o.w, w);
    refer(b, op, o.y, y);
    refer(b, op, o.conv, conv);
    set(b, op, o.alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(b, op, o.beta, CUDNN_TYPE_FLOAT, 1, &zero);
    finish(b, op);
    return add_graph(b, to, &op, 1);
}

/* At first neither kernels that are compiled now nor Winograd's transform, which rounds more. */
static request request_of(const lvnc_conv &c, bool strict)
{
    request r;
    r.refused = 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC |
                1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION |
                1u << CUDNN_NUMERICAL_NOTE_FFT | 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 |
                1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 |
                1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;
    if (c.type != LVN_F32 || !lvnc_allows_tf32()) {
        r.refused |= 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    }
    if (c.type == LVN_F32 && !lvnc_allows_tf32()) { /* whose tensor cores take TF32 */
        r.refused |= 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    }
    r.refused |= strict ? 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD : 0u;
    r.compiles = !strict;
    r.bytes = lvnc_cudnn_bytes(c);
    r.least = 0;
    return r;
}

/* ---- plans ---- */

/* Candidates of strict requests have numbers from 1 on, of others from LOOSE + 1 on. */
enum { LOOSE = 2 * HEURISTIC_CHOICES };

static int number_of(int at, bool loose)
{
    return 1 + (loose ? (int)LOOSE : 0) + at;
}

static bool search_conv(const target &to, const conv_problem &q, plan *p, cudnnStatus_t *status)
{
    if (q.candidate > 0) {
        const int at = q.candidate - 1;
        p->loose = at >= LOOSE;
        return search_at(to, add_conv_graph, &q, request_of(q.c, !p->loose), at % LOOSE, p, status);
    }
    p->loose = !search(to, add_conv_graph, &q, request_of(q.c, true), p, status);
    return !p->loose || (!is_failure(*status) &&
                         search(to, add_conv_graph, &q, request_of(q.c, false), p, status));
}

static conv_problem problem_of(const lvnc_conv &c)
{
    conv_problem q;
    memset(&q, 0, sizeof q);
    q.c = c;
    q.align_x = q.align_w = q.align_y = 16;
    return q;
}

bool has_conv(const target &to, const lvnc_conv &c, cudnnStatus_t *why)
{
    const conv_problem q = problem_of(c);
    plan p = {};
    const bool found = search_conv(to, q, &p, why);
    end(&p.of);
    return found;
}

int count_conv_candidates(const target &to, const lvnc_conv &c)
{
    conv_problem q = problem_of(c);
    plan first = {};
    cudnnStatus_t status;
    int at[HEURISTIC_CHOICES], found = 0;
    if (!search_conv(to, q, &first, &status)) {
        return 0;
    }
    int n = list_from(to, add_conv_graph, &q, request_of(c, !first.loose), first, at, &status);
    for (int i = 0; i < n; i++) {
        plan p = {};
        q.candidate = number_of(at[i], first.loose);
        const bool has = search_conv(to, q, &p, &status);
        end(&p.of);
        if (has ? p.at != at[i] : i == 0) {
            n = found = 0;
        }
        found += has;
    }
    end(&first.of);
    return found;
}

/* NULL: the library refuses the problem, or *status is a failure. */
static plan *plan_conv(state *s, const conv_problem &q, cudnnStatus_t *status)
{
    plan *p = s->convs.get(q);
    if (p == NULL) {
        *status = CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    } else if (!p->tried) {
        p->refused = !search_conv(s->to, q, p, status);
        p->tried = !p->refused || !is_failure(*status);
        if (p->refused && p->tried && report_refusal("a plan", *status)) {
            lvnc_conv_print(q.c);
        }
    }
    return p == NULL || p->refused ? NULL : p;
}

/* ---- which one ---- */

/* What a convolution is computed with. */
struct conv_call {
    const lvn_kernel_args *args;
    state *s;
    conv_problem q; /* of the first candidate */
    const void *at[3];
    void *workspace;
    /* while it is measured */
    int n, number[LVNC_CANDIDATES];
    plan *candidate[LVNC_CANDIDATES];
};

static bool run_plan(const conv_call &c, plan *p, cudnnStatus_t *status)
{
    static const int64_t names[3] = {'x', 'w', 'y'};
    return submit(c.s, p, 3, names, c.at, c.workspace, status);
}

static bool try_candidate(void *user, int i)
{
    const conv_call &c = *static_cast<const conv_call *>(user);
    cudnnStatus_t status;
    return !c.candidate[i]->refused && run_plan(c, c.candidate[i], &status);
}

/* The first, and those behind it. False: *status is a failure. */
static bool list_candidates(conv_call *c, plan *first, cudnnStatus_t *status)
{
    int at[HEURISTIC_CHOICES];
    const int n = list_from(c->s->to, add_conv_graph, &c->q, request_of(c->q.c, !first->loose),
                            *first, at, status);
    c->candidate[0] = first;
    c->number[0] = 0;
    c->n = 1;
    for (int i = 0; i < n && c->n < (int)LVNC_CANDIDATES && !is_failure(*status); i++) {
        conv_problem q = c->q;
        q.candidate = number_of(at[i], first->loose);
        plan *p = at[i] == first->at ? NULL : plan_conv(c->s, q, status);
        if (p != NULL) {
            c->candidate[c->n] = p;
            c->number[c->n++] = q.candidate;
        }
    }
    return !is_failure(*status);
}

/* The plans of those that were not taken are made again if another run asks for them. */
static void forget_others(const conv_call &c, int taken)
{
    for (int i = 1; i < c.n; i++) {
        if (i != taken) {
            end(&c.candidate[i]->of);
            *c.candidate[i] = plan();
        }
    }
}

static lvn_status choose(conv_call *c, plan *first)
{
    static const char library[] = "cudnn"; /* in the run's choices */
    const lvn_autotune now = lvn_autotune_now();
    if (first->choice.run == now.run) {
        return LVN_OK;
    }
    const uint64_t hash = lvnc_problem_hash(&c->q, sizeof c->q);
    int number = now.measures ? 0 : lvn_autotune_choice(library, hash);
    if (lvnc_measures(c->s->stream, now)) {
        cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
        if (!list_candidates(c, first, &status)) {
            return fail(c->args, status);
        }
        const int taken = lvnc_quickest(c->s->stream, c->n, try_candidate, c, library, hash);
        number = c->number[taken];
        forget_others(*c, taken);
        LVN_TRY(lvn_autotune_record(library, hash, &number));
    }
    first->choice.candidate = number;
    first->choice.run = now.run;
    return LVN_OK;
}

/* NULL: as plan_conv, or *chosen is an error. */
static plan *chosen_plan(conv_call *c, cudnnStatus_t *status, lvn_status *chosen)
{
    plan *first = plan_conv(c->s, c->q, status);
    *chosen = first != NULL ? choose(c, first) : LVN_OK;
    if (first == NULL || *chosen != LVN_OK || first->choice.candidate == 0) {
        return *chosen == LVN_OK ? first : NULL;
    }
    conv_problem q = c->q;
    q.candidate = first->choice.candidate;
    plan *p = plan_conv(c->s, q, status);
    if (p == NULL && !is_failure(*status)) {
        *chosen = lvnc_chosen_failed(c->args, "cuDNN");
    }
    return p;
}

/* False: refused, or *status is a failure, or *chosen an error. */
static bool run_conv(conv_call *c, cudnnStatus_t *status, lvn_status *chosen)
{
    c->s = enter(c->args, status);
    if (c->s == NULL) {
        return false;
    }
    plan *p = chosen_plan(c, status, chosen);
    const bool done = p != NULL && run_plan(*c, p, status);
    if (p != NULL && !done && !is_failure(*status)) {
        p->refused = true;
        if (report_refusal("to run", *status)) {
            lvnc_conv_print(c->q.c);
        }
        plan *first = c->s->convs.get(c->q);
        *chosen = p == first ? LVN_OK : lvnc_chosen_failed(c->args, "cuDNN");
    }
    leave(c->s);
    return done;
}
} // namespace dnn

bool lvnc_cudnn_conv(const lvn_kernel_args *args, const lvnc_conv &c, const void *x, const void *w,
                     const void *y, void *narrow, void *workspace, lvn_status *status)
{
    if (lvnc_cudnn_bytes(c) == 0 || workspace == NULL) {
        return false; /* of nothing */
    }
    const bool casts = c.kind == LVNC_CONV_W && c.result_type != c.type;
    const void *weights = casts ? narrow : w; /* no engine writes f32 beside 16-bit images */
    dnn::conv_call call;
    memset(&call, 0, sizeof call);
    call.args = args;
    call.q.c = c;
    call.q.align_x = lvnc_alignment(x);
    call.q.align_w = lvnc_alignment(weights);
    call.q.align_y = lvnc_alignment(y);
    call.q.tf32 = lvnc_allows_tf32();
    call.at[0] = x;
    call.at[1] = weights;
    call.at[2] = y;
    call.workspace = workspace;
    cudnnStatus_t e = CUDNN_STATUS_SUCCESS;
    lvn_status chosen = LVN_OK;
    const bool done = dnn::run_conv(&call, &e, &chosen);
    if (!done && (chosen != LVN_OK || dnn::is_failure(e))) {
        *status = chosen != LVN_OK ? chosen : dnn::fail(args, e);
        return true;
    }
    if (!done) {
        return false;
    }
    *status = lvnc_submitted(args->stream, args->op->name, cudaSuccess);
    if (casts) {
        lvnc_casts cast = {};
        cast.from[0] = narrow;
        cast.from_type = c.type;
        cast.to[0] = const_cast<void *>(w);
        cast.to_type = c.result_type;
        cast.n[0] = lvnc_conv_weights(c);
        *status = lvnc_cast(args->stream, args->op->name, cast);
    }
    return true;
}

#endif

/* Convolutions by cuDNN's backend API. Images and weights lie as levin has them; to cuDNN they are
 * (N, C, H, W) and (O, I / groups, KH, KW) with other strides. A plan per problem holds the first
 * of the library's engines, in the order of its heuristic, that gives the same bits in every run,
 * does not round what it reads, and gets by with the scratch memory; no search, no measuring. */
#include "conv.cuh"

#ifdef LEVIN_CUDA_ON_HOST

lvn_status lvnc_cudnn_open(lvnc_device *d, size_t *version)
{
    (void)d;
    *version = 0;
    return LVN_OK;
}

bool lvnc_cudnn_conv(const lvn_kernel_args *args, const lvnc_conv &c, const void *x, const void *w,
                     const void *y, void *narrow, void *workspace, lvn_status *status)
{
    (void)args, (void)c, (void)x, (void)w, (void)y, (void)narrow, (void)workspace, (void)status;
    return false;
}

#else

#include <cudnn.h>
#include <stdio.h>

namespace
{
struct problem {
    lvnc_conv c;
    int align_x, align_w, align_y; /* bytes */
    int tf32;
};

enum { MOST_MADE = 16, MOST_CHOICES = 128 };

/* Descriptors that were made for a plan; after the first failure nothing more happens to them. */
struct builder {
    cudnnBackendDescriptor_t made[MOST_MADE];
    int n;
    cudnnStatus_t status;
};

struct plan {
    bool tried, refused;
    builder of;
    cudnnBackendDescriptor_t run;
};

struct state {
    pthread_mutex_t lock;
    cudnnHandle_t handle;
    cudaStream_t stream; /* the handle's */
    lvnc_plans<problem, plan> plans;
};

void report_refusal(const lvnc_conv *c, const char *what, cudnnStatus_t status)
{
    if (!lvnc_debugs()) {
        return;
    }
    char text[512] = "";
    cudnnGetLastErrorString(text, sizeof text);
    fprintf(stderr, "levin cuda: cuDNN refuses %s, the own kernel computes: %s: %s\n", what,
            cudnnGetErrorString(status), text);
    if (c != NULL) {
        lvnc_conv_print(*c);
    }
}

/* ---- descriptors ---- */

void end(builder *b)
{
    while (b->n > 0) { /* what was made later refers to what was made before */
        (void)cudnnBackendDestroyDescriptor(b->made[--b->n]);
    }
}

cudnnBackendDescriptor_t make(builder *b, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;
    if (b->status == CUDNN_STATUS_SUCCESS) {
        b->status = b->n == MOST_MADE ? CUDNN_STATUS_INTERNAL_ERROR
                                      : cudnnBackendCreateDescriptor(type, &d);
    }
    if (b->status == CUDNN_STATUS_SUCCESS) {
        b->made[b->n++] = d;
    }
    return d;
}

void set(builder *b, cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
         cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    if (b->status == CUDNN_STATUS_SUCCESS) {
        b->status = cudnnBackendSetAttribute(to, name, type, n, values);
    }
}
void set_int(builder *b, cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
             int64_t value)
{
    set(b, to, name, CUDNN_TYPE_INT64, 1, &value);
}
void set_pair(builder *b, cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
              const int pair[2])
{
    const int64_t values[2] = {pair[0], pair[1]};
    set(b, to, name, CUDNN_TYPE_INT64, 2, values);
}
void set_type(builder *b, cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
              cudnnDataType_t type)
{
    set(b, to, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}
void refer(builder *b, cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
           cudnnBackendDescriptor_t other)
{
    set(b, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
}
void finish(builder *b, cudnnBackendDescriptor_t d)
{
    if (b->status == CUDNN_STATUS_SUCCESS) {
        b->status = cudnnBackendFinalize(d);
    }
}

/* ---- the graph of one operation ---- */

cudnnDataType_t type_of(lvn_dtype type)
{
    return type == LVN_BF16  ? CUDNN_DATA_BFLOAT16
           : type == LVN_F16 ? CUDNN_DATA_HALF
                             : CUDNN_DATA_FLOAT;
}

/* (n, h, w, c) in memory, known by `name`. */
cudnnBackendDescriptor_t add_tensor(builder *b, char name, lvn_dtype type, int align, int64_t n,
                                    int64_t h, int64_t w, int64_t c)
{
    const int64_t dims[4] = {n, c, h, w}, strides[4] = {h * w * c, 1, w * c, c};
    cudnnBackendDescriptor_t t = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set_type(b, t, CUDNN_ATTR_TENSOR_DATA_TYPE, type_of(type));
    set(b, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(b, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set_int(b, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, name);
    set_int(b, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, align);
    finish(b, t);
    return t;
}

cudnnBackendDescriptor_t add_convolution(builder *b, const lvnc_conv &c)
{
    cudnnBackendDescriptor_t d = make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
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
const operation operations[] = {
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

cudnnBackendDescriptor_t add_graph(builder *b, cudnnHandle_t handle, const problem &q)
{
    const lvnc_conv &c = q.c;
    const operation &o = operations[c.kind];
    const float one = 1.0f, zero = 0.0f;
    cudnnBackendDescriptor_t x = add_tensor(b, 'x', c.type, q.align_x, c.n, c.h, c.w, c.i),
                             w = add_tensor(b, 'w', c.type, q.align_w, c.o, c.kh, c.kw,
                                            c.i / c.groups),
                             y = add_tensor(b, 'y', c.type, q.align_y, c.n, c.oh, c.ow, c.o),
                             conv = add_convolution(b, c), op = make(b, o.type);
    refer(b, op, o.x, x);
    refer(b, op, o.w, w);
    refer(b, op, o.y, y);
    refer(b, op, o.conv, conv);
    set(b, op, o.alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(b, op, o.beta, CUDNN_TYPE_FLOAT, 1, &zero);
    finish(b, op);
    cudnnBackendDescriptor_t graph = make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    refer(b, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, op);
    finish(b, graph);
    return graph;
}

/* ---- which engine ---- */

/* Bit i: note i of the engine of a choice. ~0: not known. */
uint32_t notes_of(cudnnBackendDescriptor_t choice, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type)
{
    enum { MOST = 32 };
    static_assert(sizeof(cudnnBackendNumericalNote_t) == sizeof(int32_t) &&
                      sizeof(cudnnBackendBehaviorNote_t) == sizeof(int32_t),
                  "notes are read as numbers");
    int32_t note[MOST];
    int64_t n = 0;
    uint32_t all = 0;
    cudnnBackendDescriptor_t engine = NULL;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) !=
        CUDNN_STATUS_SUCCESS) {
        return ~0u;
    }
    const int64_t most = type == CUDNN_TYPE_NUMERICAL_NOTE
                             ? (int64_t)CUDNN_NUMERICAL_NOTE_TYPE_COUNT
                             : (int64_t)CUDNN_BEHAVIOR_NOTE_TYPE_COUNT;
    if (cudnnBackendGetAttribute(choice, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 1, &n, &engine) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(engine, name, type, most, &n, note) != CUDNN_STATUS_SUCCESS) {
        all = ~0u;
    }
    for (int64_t i = 0; i < n && i < most && all != ~0u; i++) {
        all |= note[i] >= 0 && note[i] < 31 ? 1u << note[i] : 0u;
    }
    (void)cudnnBackendDestroyDescriptor(engine);
    return all;
}

/* At first neither kernels that are compiled now nor Winograd's transform, which rounds more. */
bool is_wanted(cudnnBackendDescriptor_t choice, const lvnc_conv &c, bool strict)
{
    const uint32_t notes =
        notes_of(choice, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
    const uint32_t winograd = 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD;
    uint32_t not_these = 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC |
                         1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION |
                         1u << CUDNN_NUMERICAL_NOTE_FFT |
                         1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 |
                         1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 |
                         1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;
    if (c.type != LVN_F32 || !lvnc_allows_tf32()) {
        not_these |= 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    }
    if (c.type == LVN_F32 && !lvnc_allows_tf32()) { /* whose tensor cores take TF32 */
        not_these |= 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    }
    if ((notes & (strict ? not_these | winograd : not_these)) != 0) {
        return false;
    }
    const uint32_t behavior =
        strict ? notes_of(choice, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE) : 0;
    return (behavior & 1u << CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) == 0;
}

/* Of memory. The next choice, or the own kernel, would have other bits than a run with more. */
bool is_memory(cudnnStatus_t s)
{
    return s == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
           s == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

/* The plan of a choice; NULL: it does not run, or needs too much scratch memory. */
cudnnBackendDescriptor_t plan_choice(cudnnHandle_t handle, cudnnBackendDescriptor_t choice,
                                     size_t limit, cudnnStatus_t *status)
{
    builder b = {};
    int64_t bytes = 0, n = 0;
    cudnnBackendDescriptor_t p = make(&b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(&b, p, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    refer(&b, p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, choice);
    finish(&b, p);
    if (b.status == CUDNN_STATUS_SUCCESS) {
        b.status = cudnnBackendGetAttribute(p, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                            CUDNN_TYPE_INT64, 1, &n, &bytes);
    }
    if (b.status == CUDNN_STATUS_SUCCESS && bytes >= 0 && (uint64_t)bytes <= limit) {
        return p;
    }
    *status = is_memory(b.status) ? b.status : *status;
    end(&b);
    return NULL;
}

/* The first choice that is wanted, out of those of one heuristic. Its descriptors join b. */
cudnnBackendDescriptor_t choose(builder *b, cudnnHandle_t handle, const problem &q,
                                cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode,
                                bool strict)
{
    cudnnBackendDescriptor_t choices[MOST_CHOICES],
        chosen = NULL, heuristic = make(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int64_t n = 0, got = 0;
    refer(b, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(b, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finish(b, heuristic);
    if (b->status == CUDNN_STATUS_SUCCESS) {
        b->status = cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n, NULL);
    }
    n = b->status != CUDNN_STATUS_SUCCESS ? 0 : n < MOST_CHOICES ? n : (int64_t)MOST_CHOICES;
    int made = 0;
    while (made < n && cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                                    &choices[made]) == CUDNN_STATUS_SUCCESS) {
        made++;
    }
    if (made > 0) {
        b->status = cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &got, choices);
    }
    int which = -1;
    for (int i = 0; i < made && i < got && chosen == NULL; i++) {
        if (b->status == CUDNN_STATUS_SUCCESS && is_wanted(choices[i], q.c, strict)) {
            chosen = plan_choice(handle, choices[i], lvnc_cudnn_bytes(q.c), &b->status);
            which = i;
        }
    }
    for (int i = 0; i < made; i++) {
        if (chosen != NULL && i == which) {
            b->made[b->n++] = choices[i];
            b->made[b->n++] = chosen;
        } else {
            (void)cudnnBackendDestroyDescriptor(choices[i]);
        }
    }
    return chosen;
}

/* ---- plans ---- */

/* *memory: there was none for it. */
bool search(cudnnHandle_t handle, const problem &q, bool strict, plan *p, bool *memory)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    cudnnStatus_t status = CUDNN_STATUS_NOT_SUPPORTED;
    for (cudnnBackendHeurMode_t mode : modes) {
        p->of = builder();
        cudnnBackendDescriptor_t graph = add_graph(&p->of, handle, q);
        p->run = choose(&p->of, handle, q, graph, mode, strict);
        if (p->run != NULL) {
            return true;
        }
        status = p->of.status == CUDNN_STATUS_SUCCESS ? status : p->of.status;
        *memory = is_memory(p->of.status);
        end(&p->of);
        if (*memory) {
            return false;
        }
    }
    (void)cudaGetLastError();
    if (!strict) {
        report_refusal(&q.c, "a plan", status);
    }
    return false;
}

/* NULL: the library refuses the problem, or has no memory for it. */
plan *plan_of(state *s, const problem &q, bool *memory)
{
    plan *p = s->plans.get(q);
    *memory = p == NULL;
    if (p != NULL && !p->tried) {
        p->refused = !search(s->handle, q, true, p, memory) &&
                     (*memory || !search(s->handle, q, false, p, memory));
        p->tried = !*memory;
    }
    return p == NULL || p->refused ? NULL : p;
}

/* With the lock. */
bool submit(state *s, plan *p, const problem &q, const void *x, const void *w, const void *y,
            void *workspace, bool *memory)
{
    builder b = {};
    const int64_t names[3] = {'x', 'w', 'y'};
    const void *at[3] = {x, w, y};
    cudnnBackendDescriptor_t pack = make(&b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, names);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, at);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finish(&b, pack);
    if (b.status == CUDNN_STATUS_SUCCESS) {
        b.status = cudnnBackendExecute(s->handle, p->run, pack);
    }
    *memory = is_memory(b.status);
    if (b.status != CUDNN_STATUS_SUCCESS && !*memory) {
        p->refused = true;
        report_refusal(&q.c, "to run", b.status);
        (void)cudaGetLastError();
    }
    const bool done = b.status == CUDNN_STATUS_SUCCESS;
    end(&b);
    return done;
}

/* ---- the library's state on a device ---- */

void end_plan(plan *p)
{
    end(&p->of);
}

void end_state(void *library)
{
    state *s = static_cast<state *>(library);
    s->plans.free_all(end_plan);
    if (s->handle != NULL) {
        (void)cudnnDestroy(s->handle);
    }
    pthread_mutex_destroy(&s->lock);
    free(s);
}

bool set_stream(state *s, cudaStream_t stream)
{
    const bool set =
        s->stream == stream || cudnnSetStream(s->handle, stream) == CUDNN_STATUS_SUCCESS;
    s->stream = set ? stream : s->stream;
    return set;
}
} // namespace

lvn_status lvnc_cudnn_open(lvnc_device *d, size_t *version)
{
    *version = cudnnGetVersion();
    state *s = static_cast<state *>(calloc(1, sizeof *s));
    const cudnnStatus_t e =
        s == NULL ? CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED : cudnnCreate(&s->handle);
    if (e != CUDNN_STATUS_SUCCESS) {
        free(s);
        LVN_FAIL(LVN_ERR_RESOURCE, LVNC_NAME ":%d: cuDNN does not start: %s", d->index,
                 cudnnGetErrorString(e));
    }
    pthread_mutex_init(&s->lock, NULL);
    d->library[LVNC_CUDNN] = s;
    d->free_library[LVNC_CUDNN] = end_state;
    return LVN_OK;
}

bool lvnc_cudnn_conv(const lvn_kernel_args *args, const lvnc_conv &c, const void *x, const void *w,
                     const void *y, void *narrow, void *workspace, lvn_status *status)
{
    if (lvnc_cudnn_bytes(c) == 0 || workspace == NULL) {
        return false; /* of nothing */
    }
    cudaStream_t stream = lvnc_enter(args->stream);
    state *s = static_cast<state *>(lvnc_device_of(args->stream)->library[LVNC_CUDNN]);
    const bool casts = c.kind == LVNC_CONV_W && c.result_type != c.type;
    const void *weights = casts ? narrow : w; /* no engine writes f32 beside 16-bit images */
    problem q;
    memset(&q, 0, sizeof q);
    q.c = c;
    q.align_x = lvnc_alignment(x);
    q.align_w = lvnc_alignment(weights);
    q.align_y = lvnc_alignment(y);
    q.tf32 = lvnc_allows_tf32();
    bool memory = false;
    pthread_mutex_lock(&s->lock);
    plan *p = set_stream(s, stream) ? plan_of(s, q, &memory) : NULL;
    const bool done = p != NULL && submit(s, p, q, x, weights, y, workspace, &memory);
    pthread_mutex_unlock(&s->lock);
    if (memory) {
        *status = lvnc_library_failed(args, "cuDNN", "there is no memory for it", true);
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

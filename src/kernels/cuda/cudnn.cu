/* cuDNN's descriptors, the choice of an engine, and the library's state on a device (cudnn.cuh). */
#ifdef LEVIN_CUDA_ON_HOST

#include "library.cuh"

int lvnc_nvrtc_version(void)
{
    return 0;
}

lvn_status lvnc_cudnn_open(lvnc_device *d, size_t *version)
{
    (void)d;
    *version = 0;
    return LVN_OK;
}

#else

#include "cudnn.cuh"

#include <dlfcn.h>
#include <stdio.h>

namespace dnn
{
bool report_refusal(const char *what, cudnnStatus_t status)
{
    if (lvnc_debugs()) {
        char text[512] = "";
        cudnnGetLastErrorString(text, sizeof text);
        fprintf(stderr, "levin cuda: cuDNN refuses %s, levin computes without it: %s: %s\n", what,
                cudnnGetErrorString(status), text);
    }
    return lvnc_debugs();
}

/* What the driver cannot load has no status of its own; there is too little memory then. */
static bool lacks_memory(cudnnStatus_t status)
{
    const size_t enough = (size_t)128 << 20;
    size_t available = 0, all = 0;
    return status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
           status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
           (cudaMemGetInfo(&available, &all) == cudaSuccess && available < enough);
}

lvn_status fail(const lvn_kernel_args *args, cudnnStatus_t status)
{
    char text[512] = "", why[640];
    cudnnGetLastErrorString(text, sizeof text);
    const bool memory = lacks_memory(status);
    snprintf(why, sizeof why, "%s: %s%s", cudnnGetErrorString(status), text,
             memory ? "; smaller batches leave it more memory" : "");
    (void)cudaGetLastError();
    return lvnc_library_failed(args, "cuDNN", why, memory);
}

/* ---- descriptors ---- */

void end(builder *b)
{
    while (b->n > 0) { /* what was made later refers to what was made before */
        (void)cudnnBackendDestroyDescriptor(b->made[--b->n]);
    }
}

descriptor make(builder *b, cudnnBackendDescriptorType_t type)
{
    descriptor d = NULL;
    if (b->status == CUDNN_STATUS_SUCCESS) {
        b->status = b->n == MOST_MADE ? CUDNN_STATUS_INTERNAL_ERROR
                                      : cudnnBackendCreateDescriptor(type, &d);
    }
    if (b->status == CUDNN_STATUS_SUCCESS) {
        b->made[b->n++] = d;
    }
    return d;
}

void set(builder *b, descriptor to, cudnnBackendAttributeName_t name,
         cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    if (b->status == CUDNN_STATUS_SUCCESS) {
        b->status = cudnnBackendSetAttribute(to, name, type, n, values);
    }
}
void set_int(builder *b, descriptor to, cudnnBackendAttributeName_t name, int64_t value)
{
    set(b, to, name, CUDNN_TYPE_INT64, 1, &value);
}
void set_type(builder *b, descriptor to, cudnnBackendAttributeName_t name, cudnnDataType_t type)
{
    set(b, to, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}
void refer(builder *b, descriptor to, cudnnBackendAttributeName_t name, descriptor other)
{
    set(b, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
}
void finish(builder *b, descriptor d)
{
    if (b->status == CUDNN_STATUS_SUCCESS) {
        b->status = cudnnBackendFinalize(d);
    }
}

descriptor add_tensor(builder *b, int64_t name, place p, cudnnDataType_t type, int align,
                      const int64_t dims[4], const int64_t strides[4])
{
    const bool yes = true;
    descriptor t = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set_type(b, t, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    set(b, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(b, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set_int(b, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, name);
    set_int(b, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, align);
    if (p != IN_MEMORY) {
        set(b, t, p == BETWEEN ? CUDNN_ATTR_TENSOR_IS_VIRTUAL : CUDNN_ATTR_TENSOR_IS_BY_VALUE,
            CUDNN_TYPE_BOOLEAN, 1, &yes);
    }
    finish(b, t);
    return t;
}

descriptor add_graph(builder *b, const target &to, const descriptor *operations, int n)
{
    descriptor graph = make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (to.handle != NULL) {
        set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &to.handle);
    }
    set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, operations);
    finish(b, graph);
    return graph;
}

/* ---- which engine ---- */

/* Bit i: note i of the engine of a choice. */
static cudnnStatus_t notes_of(descriptor choice, cudnnBackendAttributeName_t name,
                              cudnnBackendAttributeType_t type, uint32_t *all)
{
    enum { MOST = 32 };
    static_assert(sizeof(cudnnBackendNumericalNote_t) == sizeof(int32_t) &&
                      sizeof(cudnnBackendBehaviorNote_t) == sizeof(int32_t),
                  "notes are read as numbers");
    int32_t note[MOST];
    int64_t n = 0;
    *all = 0;
    descriptor engine = NULL;
    cudnnStatus_t s = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
    if (s != CUDNN_STATUS_SUCCESS) {
        return s;
    }
    const int64_t most = type == CUDNN_TYPE_NUMERICAL_NOTE
                             ? (int64_t)CUDNN_NUMERICAL_NOTE_TYPE_COUNT
                             : (int64_t)CUDNN_BEHAVIOR_NOTE_TYPE_COUNT;
    s = cudnnBackendGetAttribute(choice, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 1, &n, &engine);
    if (s == CUDNN_STATUS_SUCCESS) {
        s = cudnnBackendGetAttribute(engine, name, type, most, &n, note);
    }
    for (int64_t i = 0; i < n && i < most && s == CUDNN_STATUS_SUCCESS; i++) {
        *all |= note[i] >= 0 && note[i] < 31 ? 1u << note[i] : 0u;
    }
    (void)cudnnBackendDestroyDescriptor(engine);
    return s;
}

/* *status: a failure, or as it was. An engine whose notes the library does not give is not wanted.
 */
static bool is_wanted(descriptor choice, const request &r, cudnnStatus_t *status)
{
    uint32_t notes = 0, behavior = 0;
    cudnnStatus_t s =
        notes_of(choice, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, &notes);
    if (s == CUDNN_STATUS_SUCCESS && !r.compiles) {
        s = notes_of(choice, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, &behavior);
    }
    *status = is_failure(s) ? s : *status;
    return s == CUDNN_STATUS_SUCCESS && (notes & r.refused) == 0 &&
           (behavior & 1u << CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) == 0;
}

#if CUDNN_VERSION >= 90800
#define OF_PROPERTIES(name) name
#else
#define OF_PROPERTIES(name)                                                                        \
    ((cudnnBackendAttributeName_t)-1) /* unknown to it: tests need a newer one */
#endif

/* The plan of a choice; NULL: it does not run, or not with such scratch memory; or *status is a
 * failure. */
static descriptor plan_choice(const target &to, descriptor choice, const request &r,
                              cudnnStatus_t *status)
{
    builder b = {};
    int64_t bytes = 0, n = 0;
    descriptor p = make(&b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (to.handle != NULL) {
        set(&b, p, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &to.handle);
    } else {
        refer(&b, p, OF_PROPERTIES(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP), to.properties);
    }
    refer(&b, p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, choice);
    finish(&b, p);
    if (b.status == CUDNN_STATUS_SUCCESS) {
        b.status = cudnnBackendGetAttribute(p, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                            CUDNN_TYPE_INT64, 1, &n, &bytes);
    }
    if (b.status == CUDNN_STATUS_SUCCESS && bytes >= 0 && (uint64_t)bytes <= r.bytes &&
        (uint64_t)bytes >= r.least) {
        return p;
    }
    *status = is_failure(b.status) ? b.status : *status;
    end(&b);
    return NULL;
}

/* The choices of one heuristic, in its order; returns how many. The caller destroys them. */
static int find_choices(builder *b, const target &to, descriptor graph, cudnnBackendHeurMode_t mode,
                        descriptor choices[HEURISTIC_CHOICES])
{
    descriptor heuristic = make(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int64_t n = 0, got = 0;
    refer(b, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(b, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (to.handle == NULL) {
        refer(b, heuristic, OF_PROPERTIES(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP), to.properties);
    }
    finish(b, heuristic);
    if (b->status == CUDNN_STATUS_SUCCESS) {
        b->status = cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n, NULL);
    }
    n = b->status != CUDNN_STATUS_SUCCESS ? 0
        : n < HEURISTIC_CHOICES           ? n
                                          : (int64_t)HEURISTIC_CHOICES;
    int made = 0;
    while (made < n && b->status == CUDNN_STATUS_SUCCESS) {
        b->status =
            cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &choices[made]);
        made += b->status == CUDNN_STATUS_SUCCESS ? 1 : 0;
    }
    if (made > 0 && b->status == CUDNN_STATUS_SUCCESS) {
        b->status = cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &got, choices);
    }
    /* those that it has no support for are not among the results */
    while (made > 0 && (b->status != CUDNN_STATUS_SUCCESS || made > got)) {
        (void)cudnnBackendDestroyDescriptor(choices[--made]);
    }
    return made;
}

/* The plan of the first choice that is wanted, or of number `only` if it is. Both join b. */
static descriptor choose(builder *b, const target &to, descriptor graph,
                         cudnnBackendHeurMode_t mode, const request &r, int only, int *at)
{
    descriptor choices[HEURISTIC_CHOICES], chosen = NULL;
    const int n = find_choices(b, to, graph, mode, choices);
    for (int i = 0; i < n; i++) {
        if (chosen == NULL && b->status == CUDNN_STATUS_SUCCESS && (only < 0 || only == i) &&
            is_wanted(choices[i], r, &b->status)) {
            chosen = plan_choice(to, choices[i], r, &b->status);
            if (chosen != NULL) {
                b->made[b->n++] = choices[i];
                b->made[b->n++] = chosen;
                *at = i;
                continue;
            }
        }
        (void)cudnnBackendDestroyDescriptor(choices[i]);
    }
    return chosen;
}

/* ---- plans ---- */

static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
enum { MODES = 2 };

/* Of one heuristic. False: there is none, and nothing is left; *status where it is a failure. */
static bool search_mode(const target &to, graph_of graph, const void *problem, const request &r,
                        int mode, int only, plan *p, cudnnStatus_t *status)
{
    int at = 0;
    p->of = builder();
    descriptor g = graph(&p->of, to, problem);
    p->run = p->of.n > MOST_MADE - 3 ? NULL : choose(&p->of, to, g, modes[mode], r, only, &at);
    p->at = mode * HEURISTIC_CHOICES + at;
    if (p->run == NULL) {
        *status = p->of.status == CUDNN_STATUS_SUCCESS ? *status : p->of.status;
        end(&p->of);
    }
    return p->run != NULL;
}

bool search(const target &to, graph_of graph, const void *problem, const request &r, plan *p,
            cudnnStatus_t *status)
{
    *status = CUDNN_STATUS_NOT_SUPPORTED;
    for (int mode = 0; mode < MODES; mode++) {
        if (search_mode(to, graph, problem, r, mode, -1, p, status)) {
            return true;
        }
        if (is_failure(*status)) {
            return false;
        }
    }
    (void)cudaGetLastError();
    return false;
}

bool search_at(const target &to, graph_of graph, const void *problem, const request &r, int at,
               plan *p, cudnnStatus_t *status)
{
    *status = CUDNN_STATUS_NOT_SUPPORTED;
    const bool found = at >= 0 && at < MODES * HEURISTIC_CHOICES &&
                       search_mode(to, graph, problem, r, at / HEURISTIC_CHOICES,
                                   at % HEURISTIC_CHOICES, p, status);
    if (!found) {
        (void)cudaGetLastError();
    }
    return found;
}

int list_from(const target &to, graph_of graph, const void *problem, const request &r,
              const plan &p, int at[HEURISTIC_CHOICES], cudnnStatus_t *status)
{
    const int mode = p.at / HEURISTIC_CHOICES, first = p.at % HEURISTIC_CHOICES;
    descriptor choices[HEURISTIC_CHOICES];
    builder b = {};
    int listed = 0;
    descriptor g = graph(&b, to, problem);
    const int n = find_choices(&b, to, g, modes[mode], choices);
    for (int i = 0; i < n; i++) {
        if (i >= first && b.status == CUDNN_STATUS_SUCCESS && is_wanted(choices[i], r, &b.status)) {
            at[listed++] = mode * HEURISTIC_CHOICES + i;
        }
        (void)cudnnBackendDestroyDescriptor(choices[i]);
    }
    *status = b.status;
    end(&b);
    return listed;
}

bool submit(state *s, plan *p, int n, const int64_t *names, const void *const *at, void *workspace,
            cudnnStatus_t *status)
{
    builder b = {};
    descriptor pack = make(&b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, names);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finish(&b, pack);
    if (b.status == CUDNN_STATUS_SUCCESS) {
        b.status = cudnnBackendExecute(s->to.handle, p->run, pack);
    }
    *status = b.status;
    const bool done = b.status == CUDNN_STATUS_SUCCESS;
    const int category = CUDNN_STATUS_CATEGORY((int)b.status);
    const bool refusal =
        !p->ran && (category == CUDNN_STATUS_NOT_SUPPORTED || category == CUDNN_STATUS_BAD_PARAM);
    if (!done && !refusal && !is_failure(b.status)) {
        *status = CUDNN_STATUS_EXECUTION_FAILED; /* a plan that has run is supported */
    }
    if (!done) {
        (void)cudaGetLastError();
    }
    p->ran = p->ran || done;
    end(&b);
    return *status == CUDNN_STATUS_SUCCESS;
}

/* ---- the library's state on a device ---- */

static void end_plan(plan *p)
{
    end(&p->of);
}

static void end_state(void *library)
{
    state *s = static_cast<state *>(library);
    s->convs.free_all(end_plan);
    s->attentions.free_all(end_plan);
    if (s->to.handle != NULL) {
        (void)cudnnDestroy(s->to.handle);
    }
    pthread_mutex_destroy(&s->lock);
    free(s);
}

state *enter(const lvn_kernel_args *args, cudnnStatus_t *status)
{
    cudaStream_t stream = lvnc_enter(args->stream);
    state *s = static_cast<state *>(lvnc_device_of(args->stream)->library[LVNC_CUDNN]);
    pthread_mutex_lock(&s->lock);
    *status = s->stream == stream ? CUDNN_STATUS_SUCCESS : cudnnSetStream(s->to.handle, stream);
    if (*status != CUDNN_STATUS_SUCCESS) {
        pthread_mutex_unlock(&s->lock);
        *status = is_failure(*status) ? *status : CUDNN_STATUS_EXECUTION_FAILED;
        return NULL;
    }
    s->stream = stream;
    return s;
}

void leave(state *s)
{
    pthread_mutex_unlock(&s->lock);
}
} // namespace dnn

/* The list of folders in `folders`, or NULL. */
static void *load_from_list(const char *folders, const char *name)
{
    void *library = NULL;
    while (folders != NULL && *folders != '\0' && library == NULL) {
        char path[4096];
        const size_t n = strcspn(folders, ":");
        const int all = snprintf(path, sizeof path, "%.*s/%s", (int)n, folders, name);
        if (n > 0 && all < (int)sizeof path) {
            library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
        }
        folders += n + (folders[n] == ':' ? 1 : 0);
    }
    return library;
}

/* Beside cuDNN, or where the wheels of the Python index have it: the folders of its RUNPATH. */
static void *load_beside_cudnn(const char *name)
{
    static const char *const places[] = {".", "../../cublas/lib", "../../cuda_nvrtc/lib",
                                         "../../cu13/lib"};
    Dl_info cudnn;
    void *library = NULL;
    if (dladdr(reinterpret_cast<void *>(cudnnGetVersion), &cudnn) == 0 ||
        strrchr(cudnn.dli_fname, '/') == NULL) {
        return NULL;
    }
    const int n = (int)(strrchr(cudnn.dli_fname, '/') - cudnn.dli_fname);
    for (size_t i = 0; i < sizeof places / sizeof *places && library == NULL; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%.*s/%s/%s", n, cudnn.dli_fname, places[i], name);
        library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    }
    return library;
}

/* Where cuDNN would look, in that order, so that the one which it finds loaded later is the one
 * that it would have taken; then in the folders of this file's RUNPATH. Never closed. */
static int load_nvrtc(void)
{
    char name[32];
    int major = 0, minor = 0;
    snprintf(name, sizeof name, "libnvrtc.so.%d", (int)(cudnnGetCudartVersion() / 1000));
    void *library = load_from_list(getenv("LD_LIBRARY_PATH"), name);
    library = library == NULL ? load_beside_cudnn(name) : library;
    library = library == NULL ? dlopen(name, RTLD_LAZY | RTLD_LOCAL) : library;
    const auto version = reinterpret_cast<int (*)(int *, int *)>(
        library == NULL ? NULL : dlsym(library, "nvrtcVersion"));
    if (version == NULL || version(&major, &minor) != 0) {
        const char *why = dlerror();
        if (lvnc_debugs()) {
            fprintf(stderr,
                    "levin cuda: no NVRTC, own kernels and cuBLASLt compute attention: %s\n",
                    why == NULL ? name : why);
        }
        return 0;
    }
    return 1000 * major + 10 * minor;
}

int lvnc_nvrtc_version(void)
{
    static const int version = load_nvrtc();
    return version;
}

lvn_status lvnc_cudnn_open(lvnc_device *d, size_t *version)
{
    *version = cudnnGetVersion();
    dnn::state *s = static_cast<dnn::state *>(calloc(1, sizeof *s));
    const cudnnStatus_t e =
        s == NULL ? CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED : cudnnCreate(&s->to.handle);
    if (e != CUDNN_STATUS_SUCCESS) {
        free(s);
        LVN_FAIL(LVN_ERR_RESOURCE, LVNC_NAME ":%d: cuDNN does not start: %s", d->index,
                 cudnnGetErrorString(e));
    }
    pthread_mutex_init(&s->lock, NULL);
    d->library[LVNC_CUDNN] = s;
    d->free_library[LVNC_CUDNN] = dnn::end_state;
    return LVN_OK;
}

#endif

/* Products by cuBLASLt. It knows matrices by columns: a row-major (r, c) matrix is its (c, r) one,
 * so y = a b is asked for as y^T = b^T a^T. A plan per problem holds the descriptions and the
 * algorithm that the library's heuristic puts first, so that the choice is the same in every run;
 * and, of runs that measured (autotune=true), those behind it. */
#include "gemm.cuh"

#ifdef LEVIN_CUDA_ON_HOST

lvn_status lvnc_cublas_open(lvnc_device *d, size_t *version)
{
    (void)d;
    *version = 0;
    return LVN_OK;
}

bool lvnc_cublas_product(const lvn_kernel_args *args, const lvnc_product *p, const void *a,
                         const void *b, const void *bias, void *y, void *workspace,
                         lvn_status *status)
{
    (void)args, (void)p, (void)a, (void)b, (void)bias, (void)y, (void)workspace, (void)status;
    return false;
}

#else

#include <cublasLt.h>
#include <stdio.h>

namespace
{
const char LIBRARY[] = "cublas"; /* in the run's choices */

struct problem {
    int64_t batches, m, n, k;
    lvnc_layout a, b, y;
    int32_t trans_a, trans_b, bias, type, y_type, adds;
    int32_t align_a, align_b, align_y, align_bias; /* bytes */
    int32_t tf32;
};

struct plan {
    bool tried, refused;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, y;
    int n; /* candidates that are known */
    bool runs[LVNC_CANDIDATES];
    cublasLtMatmulAlgo_t algo[LVNC_CANDIDATES];
    lvnc_choice choice;
};

struct state {
    pthread_mutex_t lock;
    cublasLtHandle_t handle;
    lvnc_plans<problem, plan> plans;
};

cudaDataType_t type_of(lvn_dtype type)
{
    return type == LVN_BF16 ? CUDA_R_16BF : type == LVN_F16 ? CUDA_R_16F : CUDA_R_32F;
}

void report_refusal(const problem &q, const char *what, cublasStatus_t s)
{
    if (lvnc_debugs()) {
        fprintf(stderr,
                "levin cuda: cuBLASLt refuses %s, the own kernel computes: %s; %lld x (%lld, %lld, "
                "%lld) types %d -> %d trans %d %d bias %d\n",
                what, cublasLtGetStatusString(s), (long long)q.batches, (long long)q.m,
                (long long)q.n, (long long)q.k, q.type, q.y_type, q.trans_a, q.trans_b, q.bias);
    }
}

/* ---- the library's state on a device ---- */

void end_plan(plan *p)
{
    if (p->product != NULL) {
        (void)cublasLtMatmulDescDestroy(p->product);
    }
    cublasLtMatrixLayout_t layouts[] = {p->a, p->b, p->y};
    for (cublasLtMatrixLayout_t layout : layouts) {
        if (layout != NULL) {
            (void)cublasLtMatrixLayoutDestroy(layout);
        }
    }
}

void end_state(void *library)
{
    state *s = static_cast<state *>(library);
    s->plans.free_all(end_plan);
    if (s->handle != NULL) {
        (void)cublasLtDestroy(s->handle);
    }
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Of the problem alone: the own kernel computes it in every run. Whatever else goes wrong must not
 * choose another algorithm, and with it other bits. */
bool is_refusal(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_NOT_SUPPORTED || s == CUBLAS_STATUS_ARCH_MISMATCH ||
           s == CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- plans ---- */

#define LT_TRY(call)                                                                               \
    do {                                                                                           \
        const cublasStatus_t status_ = (call);                                                     \
        if (status_ != CUBLAS_STATUS_SUCCESS) {                                                    \
            return status_;                                                                        \
        }                                                                                          \
    } while (0)

/* `batches` row-major (rows, columns) matrices. */
cublasStatus_t describe(cublasLtMatrixLayout_t *out, cudaDataType_t type, int64_t rows,
                        int64_t columns, int64_t batches, const lvnc_layout &at)
{
    LT_TRY(cublasLtMatrixLayoutCreate(out, type, (uint64_t)columns, (uint64_t)rows, at.pitch));
    if (batches > 1) {
        const int32_t count = (int32_t)batches;
        LT_TRY(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                sizeof count));
        LT_TRY(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &at.batch, sizeof at.batch));
    }
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T>
cublasStatus_t set(cublasLtMatmulDesc_t to, cublasLtMatmulDescAttributes_t what, T value)
{
    return cublasLtMatmulDescSetAttribute(to, what, &value, sizeof value);
}

cublasStatus_t describe_product(const problem &q, plan *p, const void *bias)
{
    const cublasComputeType_t compute =
        q.type == LVN_F32 && lvnc_allows_tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    LT_TRY(cublasLtMatmulDescCreate(&p->product, compute, CUDA_R_32F));
    const cublasOperation_t first = q.trans_b != 0 ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = q.trans_a != 0 ? CUBLAS_OP_T : CUBLAS_OP_N;
    LT_TRY(set(p->product, CUBLASLT_MATMUL_DESC_TRANSA, first));
    LT_TRY(set(p->product, CUBLASLT_MATMUL_DESC_TRANSB, second));
    if (q.bias != 0) { /* one number per row of y^T */
        LT_TRY(set(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
        LT_TRY(set(p->product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of((lvn_dtype)q.y_type)));
        LT_TRY(set(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
    }
    const cudaDataType_t type = type_of((lvn_dtype)q.type), y = type_of((lvn_dtype)q.y_type);
    LT_TRY(describe(&p->a, type, q.trans_a != 0 ? q.k : q.m, q.trans_a != 0 ? q.m : q.k, q.batches,
                    q.a));
    LT_TRY(describe(&p->b, type, q.trans_b != 0 ? q.n : q.k, q.trans_b != 0 ? q.k : q.n, q.batches,
                    q.b));
    return describe(&p->y, y, q.m, q.n, q.batches, q.y);
}

template <typename T>
cublasStatus_t prefer(cublasLtMatmulPreference_t to, cublasLtMatmulPreferenceAttributes_t what,
                      T value)
{
    return cublasLtMatmulPreferenceSetAttribute(to, what, &value, sizeof value);
}

/* Parts of k are added in f32 in an order of their own: never in place, where y's type rounds. */
cublasStatus_t set_preferences(const problem &q, cublasLtMatmulPreference_t to)
{
    LT_TRY(prefer(to, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (uint64_t)LVNC_CUBLAS_BYTES));
    LT_TRY(prefer(to, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                  (uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    LT_TRY(prefer(to, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)q.align_b));
    LT_TRY(prefer(to, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)q.align_a));
    LT_TRY(prefer(to, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)q.align_y));
    return prefer(to, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)q.align_y);
}

/* Candidates from number `from` on, of the n that are asked for. */
cublasStatus_t find(cublasLtHandle_t handle, const problem &q, plan *p, int from, int n)
{
    cublasLtMatmulPreference_t preference;
    LT_TRY(cublasLtMatmulPreferenceCreate(&preference));
    cublasLtMatmulHeuristicResult_t found[LVNC_CANDIDATES];
    memset(found, 0, sizeof found);
    int got = 0;
    cublasStatus_t s = set_preferences(q, preference);
    if (s == CUBLAS_STATUS_SUCCESS) {
        s = cublasLtMatmulAlgoGetHeuristic(handle, p->product, p->b, p->a, p->y, p->y, preference,
                                           n, found, &got);
    }
    (void)cublasLtMatmulPreferenceDestroy(preference);
    if (s == CUBLAS_STATUS_SUCCESS) {
        s = got <= from ? CUBLAS_STATUS_NOT_SUPPORTED : found[from].state;
    }
    for (int i = from; i < got && i < n; i++) {
        p->algo[i] = found[i].algo;
        p->runs[i] = found[i].state == CUBLAS_STATUS_SUCCESS;
        p->n = i + 1;
    }
    return s;
}

/* The first is that of a run that asks for one alone, whatever the others are. */
cublasStatus_t find_others(cublasLtHandle_t handle, const problem &q, plan *p)
{
    const cublasStatus_t s =
        p->n > 1 ? CUBLAS_STATUS_SUCCESS : find(handle, q, p, 1, LVNC_CANDIDATES);
    return is_refusal(s) ? CUBLAS_STATUS_SUCCESS : s;
}

/* NULL: the library refuses the problem, or *status is an error. */
plan *plan_of(state *s, const problem &q, const void *bias, cublasStatus_t *status)
{
    plan *p = s->plans.get(q);
    *status = p == NULL ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_SUCCESS;
    if (p != NULL && !p->tried) {
        cublasStatus_t e = describe_product(q, p, bias);
        e = e == CUBLAS_STATUS_SUCCESS ? find(s->handle, q, p, 0, 1) : e;
        p->refused = is_refusal(e);
        p->tried = e == CUBLAS_STATUS_SUCCESS || p->refused;
        if (p->refused) {
            report_refusal(q, "a plan", e);
        } else if (e != CUBLAS_STATUS_SUCCESS) {
            *status = e;
            end_plan(p);
            *p = plan();
            return NULL;
        }
    }
    return p == NULL || p->refused ? NULL : p;
}

/* What a product is computed with. */
struct call {
    const lvn_kernel_args *args;
    state *s;
    const problem *q;
    plan *p;
    const void *a, *b, *bias;
    void *y, *workspace;
    cudaStream_t stream;
};

cublasStatus_t run(const call &c, int candidate)
{
    const float one = 1.0f, kept = c.q->adds != 0 ? 1.0f : 0.0f; /* of y */
    const plan &p = *c.p;
    if (c.q->bias != 0) {
        LT_TRY(set(p.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, c.bias));
    }
    return cublasLtMatmul(c.s->handle, p.product, &one, c.b, p.b, c.a, p.a, &kept, c.y, p.y, c.y,
                          p.y, &p.algo[candidate], c.workspace, LVNC_CUBLAS_BYTES, c.stream);
}

bool try_candidate(void *user, int i)
{
    const call &c = *static_cast<const call *>(user);
    return c.p->runs[i] && run(c, i) == CUBLAS_STATUS_SUCCESS;
}

lvn_status fail(const lvn_kernel_args *args, cublasStatus_t e)
{
    return lvnc_library_failed(args, "cuBLASLt", cublasLtGetStatusString(e),
                               e == CUBLAS_STATUS_ALLOC_FAILED);
}

/* One that adds to y would add as often as it is measured. */
lvn_status choose(call *c, const lvn_autotune &now)
{
    plan *p = c->p;
    const uint64_t hash = lvnc_problem_hash(c->q, sizeof *c->q);
    const bool measures = c->q->adds == 0 && lvnc_measures(c->stream, now);
    int candidate = now.measures ? 0 : lvn_autotune_choice(LIBRARY, hash);
    if (measures || candidate > 0) {
        const cublasStatus_t e = find_others(c->s->handle, *c->q, p);
        LVN_TRY(e == CUBLAS_STATUS_SUCCESS ? LVN_OK : fail(c->args, e));
    }
    if (measures) {
        candidate = lvnc_quickest(c->stream, p->n, try_candidate, c, LIBRARY, hash);
        LVN_TRY(lvn_autotune_record(LIBRARY, hash, &candidate));
    }
    if (candidate > 0 && (candidate >= p->n || !p->runs[candidate])) {
        return lvnc_chosen_failed(c->args, "cuBLASLt");
    }
    p->choice.candidate = candidate;
    p->choice.run = now.run;
    return LVN_OK;
}

/* With the lock. CUBLAS_STATUS_NOT_SUPPORTED: the library refuses the problem. *status: an
 * error of the run's choices. */
cublasStatus_t submit(call *c, lvn_status *status)
{
    cublasStatus_t e;
    c->p = plan_of(c->s, *c->q, c->bias, &e);
    *status = LVN_OK;
    if (c->p == NULL) {
        return e == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : e;
    }
    const lvn_autotune now = lvn_autotune_now();
    if (now.run != c->p->choice.run) {
        *status = choose(c, now);
    }
    e = *status == LVN_OK ? run(*c, c->p->choice.candidate) : CUBLAS_STATUS_SUCCESS;
    if (is_refusal(e) && c->p->choice.candidate > 0) {
        *status = lvnc_chosen_failed(c->args, "cuBLASLt");
        return CUBLAS_STATUS_SUCCESS;
    }
    if (is_refusal(e)) {
        c->p->refused = true;
        report_refusal(*c->q, "to start a product", e);
        e = CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return e;
}
} // namespace

lvn_status lvnc_cublas_open(lvnc_device *d, size_t *version)
{
    *version = cublasLtGetVersion();
    state *s = static_cast<state *>(calloc(1, sizeof *s));
    const cublasStatus_t e = s == NULL ? CUBLAS_STATUS_ALLOC_FAILED : cublasLtCreate(&s->handle);
    if (e != CUBLAS_STATUS_SUCCESS) {
        free(s);
        LVN_FAIL(LVN_ERR_RESOURCE, LVNC_NAME ":%d: cuBLASLt does not start: %s", d->index,
                 cublasLtGetStatusString(e));
    }
    pthread_mutex_init(&s->lock, NULL);
    d->library[LVNC_CUBLAS] = s;
    d->free_library[LVNC_CUBLAS] = end_state;
    return LVN_OK;
}

bool lvnc_cublas_product(const lvn_kernel_args *args, const lvnc_product *p, const void *a,
                         const void *b, const void *bias, void *y, void *workspace,
                         lvn_status *status)
{
    if (p->batches > 0x7fffffff || workspace == NULL) {
        return false;
    }
    cudaStream_t stream = lvnc_enter(args->stream);
    state *s = static_cast<state *>(lvnc_device_of(args->stream)->library[LVNC_CUBLAS]);
    problem q;
    memset(&q, 0, sizeof q);
    q.batches = p->batches;
    q.m = p->m;
    q.n = p->n;
    q.k = p->k;
    q.trans_a = p->trans_a;
    q.trans_b = p->trans_b;
    q.a = lvnc_layout_of(p->a_at, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k);
    q.b = lvnc_layout_of(p->b_at, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n);
    q.y = lvnc_layout_of(p->y_at, p->m, p->n);
    q.adds = p->adds;
    q.bias = bias != NULL;
    q.type = p->a_type;
    q.y_type = p->y_type;
    q.align_a = lvnc_alignment(a);
    q.align_b = lvnc_alignment(b);
    q.align_y = lvnc_alignment(y);
    q.align_bias = lvnc_alignment(bias);
    q.tf32 = lvnc_allows_tf32();
    call c = {args, s, &q, NULL, a, b, bias, y, workspace, stream};
    lvn_status chosen;
    pthread_mutex_lock(&s->lock);
    const cublasStatus_t e = submit(&c, &chosen);
    pthread_mutex_unlock(&s->lock);
    if (e == CUBLAS_STATUS_NOT_SUPPORTED) {
        return false;
    }
    *status = chosen != LVN_OK ? chosen
              : e == CUBLAS_STATUS_SUCCESS
                  ? lvnc_submitted(args->stream, args->op->name, cudaSuccess)
                  : fail(args, e);
    return true;
}

#endif

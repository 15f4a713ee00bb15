/* Attention by cuDNN's fused engines (cudnn.cuh), whose tables of scores stay on the chip: which
 * problems they take, some samples at a time, and the call. */
#include "attention.cuh"
#include "library.cuh"

#ifdef LEVIN_CUDA_ON_HOST

size_t lvnc_cudnn_attention_bytes(const attention_heads &h, lvn_dtype type, bool gradient)
{
    (void)h, (void)type, (void)gradient;
    return 0;
}

bool lvnc_cudnn_attention(const lvn_kernel_args *args, const attention_heads &h, lvn_dtype type,
                          bool gradient, lvn_status *status)
{
    (void)args, (void)h, (void)type, (void)gradient, (void)status;
    return false;
}

#else

#include "cudnn.cuh"

#include <float.h>
#include <stdio.h>

namespace dnn
{
/* ---- which problems ---- */

/* The gradient's engines have had wrong results where a tile of POSITIONS is not full (NaN in
 * rows whose log-sum is negative), and other GPUs than Hopper's other engines, of which it is not
 * known that their sums have one order. */
enum { POSITIONS = 128, WIDEST = 128, CAPABILITY = 9, MOST_SLOPES = 256 << 20, SPARE = 1 << 20 };

static bool is_taken(const attention_heads &h, lvn_dtype type)
{
    return type != LVN_F32 && h.samples > 0 && h.heads > 0 && h.queries > 0 && h.keys > 0 &&
           h.d > 0 && h.e > 0 && h.queries % POSITIONS == 0 && h.keys % POSITIONS == 0 &&
           h.d % 8 == 0 && h.e % 8 == 0 && h.d <= WIDEST && h.e <= WIDEST;
}

/* Of one sample: the table ds in 16 bits. */
static size_t slopes_bytes(const attention_heads &h)
{
    return (size_t)h.heads * (size_t)h.queries * (size_t)h.keys * 2;
}

/* How many samples at a time; 0: not even one fits. */
static int64_t samples_at_a_time(const attention_heads &h, bool gradient)
{
    if (!gradient) {
        return h.samples;
    }
    const int64_t most = (int64_t)((size_t)MOST_SLOPES / slopes_bytes(h));
    if (most == 0) {
        return 0;
    }
    const int64_t turns = (h.samples + most - 1) / most;
    return (h.samples + turns - 1) / turns;
}

struct attention_scratch {
    attention_heads h; /* with all of dq, dk, dv */
    float *means;
    void *library;
    size_t library_bytes;
};

/* A gradient that is not wanted has to be computed all the same, so that the others keep their
 * bits.
 */
static head_view wanted_or_piece(const attention_heads &h, const head_view &v, int positions,
                                 int width, lvnc_scratch *s)
{
    head_view own = v;
    if (v.step == 0) {
        own.head = width;
        own.step = h.heads * width;
        own.sample = positions * own.step;
        own.data = lvnc_piece(s, (size_t)(h.samples * own.sample) * 2);
    }
    return own;
}

static attention_scratch cut(const attention_heads &h, bool gradient, lvnc_scratch *s)
{
    const int64_t n = samples_at_a_time(h, gradient);
    attention_scratch at;
    at.h = h;
    if (gradient) {
        at.h.dq = wanted_or_piece(h, h.dq, h.queries, h.d, s);
        at.h.dk = wanted_or_piece(h, h.dk, h.keys, h.d, s);
        at.h.dv = wanted_or_piece(h, h.dv, h.keys, h.e, s);
    }
    at.library_bytes = (gradient ? (size_t)n * slopes_bytes(h) : 0) + SPARE;
    at.means = static_cast<float *>(
        lvnc_piece(s, gradient ? (size_t)(n * h.heads * h.queries) * sizeof(float) : 0));
    at.library = lvnc_piece(s, at.library_bytes);
    return at;
}

/* ---- running ---- */

static view_strides strides_of(const head_view &v)
{
    return view_strides{v.sample, v.head, v.step};
}

static attention_problem problem_of(const attention_heads &h, lvn_dtype type, bool gradient,
                                    int64_t samples)
{
    attention_problem a;
    memset(&a, 0, sizeof a);
    a.samples = samples;
    a.heads = h.heads;
    a.queries = h.queries;
    a.keys = h.keys;
    a.d = h.d;
    a.e = h.e;
    a.gradient = gradient;
    a.causal = h.causal;
    a.align = 16;
    a.type = type;
    a.q = strides_of(h.q);
    a.k = strides_of(h.k);
    a.v = strides_of(h.v);
    a.y = strides_of(h.y);
    if (gradient) {
        a.dy = strides_of(h.dy);
        a.dq = strides_of(h.dq);
        a.dk = strides_of(h.dk);
        a.dv = strides_of(h.dv);
    }
    return a;
}

static void print(const attention_problem &a)
{
    fprintf(stderr, "  attention%s: %lld samples, %lld heads, %d queries, %d keys, %d and %d %s\n",
            a.gradient ? "_grad" : "", (long long)a.samples, (long long)a.heads, a.queries, a.keys,
            a.d, a.e, a.causal ? "features, causal" : "features");
}

static bool search_attention(const target &to, const attention_problem &a, size_t bytes, plan *p,
                             cudnnStatus_t *status)
{
    request r;
    r.refused = 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    r.compiles = true; /* all of them are */
    r.bytes = bytes;
    return search(to, add_attention_graph, &a, r, p, status);
}

bool has_attention(const target &to, const attention_heads &h, lvn_dtype type, bool gradient,
                   cudnnStatus_t *why)
{
    if (lvnc_cudnn_attention_bytes(h, type, gradient) == 0) {
        return false;
    }
    lvnc_scratch none = {NULL, 0};
    const attention_problem a = problem_of(h, type, gradient, samples_at_a_time(h, gradient));
    plan p = {};
    const bool found = search_attention(to, a, cut(h, gradient, &none).library_bytes, &p, why);
    end(&p.of);
    return found;
}

/* NULL: the library refuses the problem, or, with *memory, has no memory for it. */
static plan *plan_attention(state *s, const attention_problem &a, size_t bytes, bool *memory)
{
    plan *p = s->attentions.get(a);
    *memory = p == NULL;
    if (p != NULL && !p->tried) {
        cudnnStatus_t status;
        p->refused = !search_attention(s->to, a, bytes, p, &status);
        *memory = p->refused && is_memory(status);
        p->tried = !*memory;
        if (p->refused && !*memory && report_refusal("a plan", status)) {
            print(a);
        }
    }
    return p == NULL || p->refused ? NULL : p;
}

/* From sample `first` on. */
static void *part_of(const head_view &v, int64_t first)
{
    return static_cast<char *>(v.data) + first * v.sample * 2;
}

/* Some samples. With the lock. */
static bool run_samples(state *s, plan *p, const attention_scratch &scratch, bool gradient,
                        int64_t first, cudnnStatus_t *status)
{
    const attention_heads &h = scratch.h;
    float scale = h.scale, one = 1.0f, hidden = -INFINITY;
    if (cudnnGetVersion() < 91000) { /* whose tables of maxima begin with a finite number */
        hidden = -FLT_MAX;
    }
    int64_t names[NAMES];
    const void *at[NAMES];
    int n = 0;
    const auto give = [&](attention_name which, const void *p) {
        names[n] = which;
        at[n++] = p;
    };
    give(NAME_Q, part_of(h.q, first));
    give(NAME_K, part_of(h.k, first));
    give(NAME_V, part_of(h.v, first));
    give(NAME_Y, part_of(h.y, first));
    give(NAME_LOG_SUMS, h.log_sums + first * h.heads * h.queries);
    give(NAME_SCALE, &scale);
    if (h.causal) {
        give(NAME_HIDDEN, &hidden);
    }
    if (gradient) {
        give(NAME_DY, part_of(h.dy, first));
        give(NAME_DQ, part_of(h.dq, first));
        give(NAME_DK, part_of(h.dk, first));
        give(NAME_DV, part_of(h.dv, first));
        give(NAME_MEANS, scratch.means);
        give(NAME_ONE, &one);
    }
    return submit(s, p, n, names, at, scratch.library, status);
}

static bool is_aligned(const attention_heads &h, bool gradient)
{
    const head_view *const views[] = {&h.q, &h.k, &h.v, &h.y, &h.dy, &h.dq, &h.dk, &h.dv};
    for (int i = 0; i < (gradient ? 8 : 4); i++) {
        if (views[i]->data == NULL || lvnc_alignment(views[i]->data) < 16) {
            return false;
        }
    }
    return lvnc_alignment(h.log_sums) == 16;
}

/* False: refused before anything ran, or *memory. */
static bool run_attention(const lvn_kernel_args *args, const attention_scratch &scratch,
                          lvn_dtype type, bool gradient, cudnnStatus_t *status)
{
    const attention_heads &h = scratch.h;
    const int64_t n = samples_at_a_time(h, gradient);
    state *s = enter(args);
    bool done = s != NULL, memory = false;
    for (int64_t first = 0; first < h.samples && done; first += n) {
        const int64_t left = h.samples - first;
        const attention_problem a = problem_of(h, type, gradient, left < n ? left : n);
        plan *p = plan_attention(s, a, scratch.library_bytes, &memory);
        *status = memory ? CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED : *status;
        done = p != NULL && run_samples(s, p, scratch, gradient, first, status);
        if (p != NULL && !done && !is_memory(*status) && report_refusal("to run", *status)) {
            print(a);
        }
    }
    if (s != NULL) {
        leave(s);
    }
    return done;
}
} // namespace dnn

size_t lvnc_cudnn_attention_bytes(const attention_heads &h, lvn_dtype type, bool gradient)
{
    if (!dnn::is_taken(h, type) || dnn::samples_at_a_time(h, gradient) == 0) {
        return 0;
    }
    lvnc_scratch none = {NULL, 0};
    (void)dnn::cut(h, gradient, &none);
    return lvnc_scratch_bytes(none.used);
}

bool lvnc_cudnn_attention(const lvn_kernel_args *args, const attention_heads &h, lvn_dtype type,
                          bool gradient, lvn_status *status)
{
    if (!lvnc_uses_libraries() || lvnc_cudnn_attention_bytes(h, type, gradient) == 0 ||
        lvnc_device_of(args->stream)->major != dnn::CAPABILITY) {
        return false;
    }
    lvnc_scratch scratch = lvnc_scratch_of(args);
    const dnn::attention_scratch at = dnn::cut(h, gradient, &scratch);
    if (!dnn::is_aligned(at.h, gradient)) {
        return false;
    }
    cudnnStatus_t e = CUDNN_STATUS_SUCCESS;
    if (dnn::run_attention(args, at, type, gradient, &e)) {
        *status = lvnc_submitted(args->stream, args->op->name, cudaSuccess);
        return true;
    }
    if (dnn::is_memory(e)) {
        *status = lvnc_library_failed(args, "cuDNN", "there is no memory for it", true);
        return true;
    }
    return false;
}

#endif

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

#include <stdio.h>

namespace dnn
{
/* ---- which problems ---- */

/* The gradient's engines have had wrong results where a tile of POSITIONS is not full (NaN in
 * rows whose log-sum is negative), and other GPUs than Hopper's other engines, of which it is not
 * known that their sums have one order. */
enum { POSITIONS = 128, WIDEST = 128, CAPABILITY = 9, MOST_SLOPES = 256 << 20, SPARE = 1 << 20 };
enum { OLDEST = 91200 /* version whose engines were looked at */ };

/* A scale below 0: the engines take the maximum of the products before they are scaled. */
static bool is_taken(const attention_heads &h, lvn_dtype type)
{
    return h.scale > 0.0f && type != LVN_F32 && h.samples > 0 && h.heads > 0 && h.queries > 0 &&
           h.keys > 0 && h.d > 0 && h.e > 0 && h.queries % POSITIONS == 0 &&
           h.keys % POSITIONS == 0 && h.d % 8 == 0 && h.e % 8 == 0 && h.d <= WIDEST &&
           h.e <= WIDEST;
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
};

/* For so many samples. */
static size_t library_bytes(const attention_heads &h, bool gradient, int64_t samples)
{
    return (gradient ? (size_t)samples * slopes_bytes(h) : 0) + SPARE;
}

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
    at.means = static_cast<float *>(
        lvnc_piece(s, gradient ? (size_t)(n * h.heads * h.queries) * sizeof(float) : 0));
    at.library = lvnc_piece(s, library_bytes(h, gradient, n));
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

/* An engine that gets by without the table of slopes adds to dq in an order that changes. */
static bool search_attention(const target &to, const attention_heads &h, const attention_problem &a,
                             plan *p, cudnnStatus_t *status)
{
    request r;
    r.refused = 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    r.compiles = true; /* all of them are */
    r.bytes = library_bytes(h, a.gradient != 0, a.samples);
    r.least = r.bytes - SPARE;
    return search(to, add_attention_graph, &a, r, p, status);
}

bool has_attention(const target &to, const attention_heads &h, lvn_dtype type, bool gradient,
                   cudnnStatus_t *why)
{
    if (lvnc_cudnn_attention_bytes(h, type, gradient) == 0) {
        return false;
    }
    const attention_problem a = problem_of(h, type, gradient, samples_at_a_time(h, gradient));
    plan p = {};
    const bool found = search_attention(to, h, a, &p, why);
    end(&p.of);
    return found;
}

/* NULL: the library refuses the problem, or *status is a failure. */
static plan *plan_attention(state *s, const attention_heads &h, const attention_problem &a,
                            cudnnStatus_t *status)
{
    plan *p = s->attentions.get(a);
    if (p == NULL) {
        *status = CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    } else if (!p->tried) {
        p->refused = !search_attention(s->to, h, a, p, status);
        p->tried = !p->refused || !is_failure(*status);
        if (p->refused && p->tried && report_refusal("a plan", *status)) {
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

/* False: refused before anything ran, or *status is a failure. */
static bool run_turns(state *s, const attention_scratch &scratch, lvn_dtype type, bool gradient,
                      cudnnStatus_t *status)
{
    const attention_heads &h = scratch.h;
    const int64_t n = samples_at_a_time(h, gradient), rest = h.samples % n;
    const attention_problem all = problem_of(h, type, gradient, n),
                            last = problem_of(h, type, gradient, rest == 0 ? n : rest);
    plan *const of_all = plan_attention(s, h, all, status), *const of_last =
                                                                of_all == NULL
                                                                    ? NULL
                                                                    : plan_attention(s, h, last,
                                                                                     status);
    bool done = of_last != NULL;
    for (int64_t first = 0; first < h.samples && done; first += n) {
        plan *const p = h.samples - first < n ? of_last : of_all;
        done = run_samples(s, p, scratch, gradient, first, status);
        if (!done && !is_failure(*status)) {
            p->refused = true;
            if (report_refusal("to run", *status)) {
                print(all);
            }
        }
    }
    return done;
}

static bool run_attention(const lvn_kernel_args *args, const attention_scratch &scratch,
                          lvn_dtype type, bool gradient, cudnnStatus_t *status)
{
    state *s = enter(args, status);
    const bool done = s != NULL && run_turns(s, scratch, type, gradient, status);
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
        lvnc_device_of(args->stream)->major != dnn::CAPABILITY || cudnnGetVersion() < dnn::OLDEST) {
        return false;
    }
    lvnc_scratch scratch = lvnc_scratch_of(args);
    const dnn::attention_scratch at = dnn::cut(h, gradient, &scratch);
    if (!dnn::is_aligned(at.h, gradient)) { /* bits never follow from an address */
        *status = lvn_error_set(LVN_ERR_INTERNAL, __FILE__, __LINE__,
                                "%s: a tensor begins within 16 bytes", args->op->name);
        return true;
    }
    cudnnStatus_t e = CUDNN_STATUS_SUCCESS;
    if (dnn::run_attention(args, at, type, gradient, &e)) {
        *status = lvnc_submitted(args->stream, args->op->name, cudaSuccess);
        return true;
    }
    if (dnn::is_failure(e)) {
        *status = dnn::fail(args, e);
        return true;
    }
    return false;
}

#endif

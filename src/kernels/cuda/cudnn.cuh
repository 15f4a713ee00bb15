/* cuDNN's backend API, for the files that compute with it (never on the host):
 *
 *   cudnn.cu             descriptors, the choice of an engine, plans, the state on a device
 *   cudnn_conv.cu        convolutions
 *   cudnn_attention.cu   attention; its graph: cudnn_attention_graph.cu
 *
 * A plan per problem holds the first of the library's engines, in the order of its heuristic, that
 * gives the same bits in every run and gets by with the scratch memory; of convolutions of a run
 * that measured (autotune=true), the quickest of the first few. */
#ifndef LEVIN_KERNELS_CUDA_CUDNN_CUH
#define LEVIN_KERNELS_CUDA_CUDNN_CUH

#include "attention.cuh"
#include "conv.cuh"
#include "library.cuh"

#include <cudnn.h>

namespace dnn
{
typedef cudnnBackendDescriptor_t descriptor;

/* ---- descriptors ---- */

enum { MOST_MADE = 96 };

/* Descriptors that were made for a plan; after the first failure nothing more happens to them. */
struct builder {
    descriptor made[MOST_MADE];
    int n;
    cudnnStatus_t status;
};
void end(builder *b);
descriptor make(builder *b, cudnnBackendDescriptorType_t type);
void set(builder *b, descriptor to, cudnnBackendAttributeName_t name,
         cudnnBackendAttributeType_t type, int64_t n, const void *values);
void set_int(builder *b, descriptor to, cudnnBackendAttributeName_t name, int64_t value);
void set_type(builder *b, descriptor to, cudnnBackendAttributeName_t name, cudnnDataType_t type);
void refer(builder *b, descriptor to, cudnnBackendAttributeName_t name, descriptor other);
void finish(builder *b, descriptor d);

static inline cudnnDataType_t type_of(lvn_dtype type)
{
    return type == LVN_BF16  ? CUDNN_DATA_BFLOAT16
           : type == LVN_F16 ? CUDNN_DATA_HALF
                             : CUDNN_DATA_FLOAT;
}

/* What a tensor is: memory that is given by its name when the plan runs, a number that is read from
 * the host then, or what lies between two operations of the graph. */
enum place { IN_MEMORY, ON_HOST, BETWEEN };
descriptor add_tensor(builder *b, int64_t name, place p, cudnnDataType_t type, int align,
                      const int64_t dims[4], const int64_t strides[4]);

/* ---- plans ---- */

/* What plans are made for: a device that was opened, or, in tests without one, the properties of a
 * device (cuDNN 9.8). */
struct target {
    cudnnHandle_t handle;
    descriptor properties;
};
descriptor add_graph(builder *b, const target &to, const descriptor *operations, int n);

/* Of an engine. Bit i of `refused`: it may not have numerical note i. */
struct request {
    uint32_t refused;
    bool compiles;       /* it may be compiled now */
    size_t bytes, least; /* scratch memory: at most, and at least */
};

struct plan {
    bool tried, refused, ran;
    bool loose; /* of convolutions: no choice was wanted at first, and more are allowed */
    int at;     /* which choice it is of: those of the first heuristic, then those of the second */
    builder of;
    descriptor run;
    lvnc_choice choice; /* of a run: whether this plan, or another one, computes its problem */
};

/* Adds the descriptors of the operations of a problem; returns its graph. */
typedef descriptor (*graph_of)(builder *b, const target &to, const void *problem);

/* False: there is no such engine, *status gives the reason; or it is_failure(). Then nothing is
 * left in p. */
bool search(const target &to, graph_of graph, const void *problem, const request &r, plan *p,
            cudnnStatus_t *status);
/* The same of one choice (plan.at), and of no other. */
bool search_at(const target &to, graph_of graph, const void *problem, const request &r, int at,
               plan *p, cudnnStatus_t *status);
/* The wanted choices of the heuristic of p, from that of p on; returns how many, up to a failure.
 */
enum { HEURISTIC_CHOICES = 128 };
int list_from(const target &to, graph_of graph, const void *problem, const request &r,
              const plan &p, int at[HEURISTIC_CHOICES], cudnnStatus_t *status);

/* Not of the problem, but of this moment: memory, the driver. Another engine, or another way to
 * compute, would have other bits than a run in which it does not happen. */
static inline bool is_failure(cudnnStatus_t s)
{
    switch (CUDNN_STATUS_CATEGORY((int)s)) {
    case CUDNN_STATUS_SUCCESS:
    case CUDNN_STATUS_NOT_SUPPORTED:
    case CUDNN_STATUS_BAD_PARAM: return false;
    case CUDNN_STATUS_INTERNAL_ERROR:
        return s == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
               s == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    default: return true;
    }
}
/* The error of a failure. */
lvn_status fail(const lvn_kernel_args *args, cudnnStatus_t status);

/* To stderr if LEVIN_CUDA_DEBUG=1. True: it was reported. */
bool report_refusal(const char *what, cudnnStatus_t status);

/* ---- the library's state on a device ---- */

/* Keys of plans: gaps are zeros. */
struct conv_problem {
    lvnc_conv c;
    int align_x, align_w, align_y; /* bytes */
    int tf32;
    int candidate; /* 0: the first; else 1 and, of loose requests, 2 x HEURISTIC_CHOICES, + plan.at
                    */
};

/* A view of (samples, heads, positions, features): elements between neighbours. */
struct view_strides {
    int64_t sample, head, step;
};

struct attention_problem {
    int64_t samples, heads;
    int queries, keys, d, e;
    int gradient, causal, align; /* align: bytes, of all */
    int type;                    /* lvn_dtype */
    view_strides q, k, v, y, dy, dq, dk, dv;
};

/* Of what is given when a plan runs. What lies between operations counts on from BETWEEN_THEM. */
enum attention_name {
    NAME_Q = 1,
    NAME_K,
    NAME_V,
    NAME_Y,
    NAME_DY,
    NAME_DQ,
    NAME_DK,
    NAME_DV,
    NAME_LOG_SUMS,
    NAME_MEANS,
    NAME_SCALE,
    NAME_ONE,
    NAME_HIDDEN, /* the score of a key that a query does not see */
    NAMES = NAME_HIDDEN,
    BETWEEN_THEM = 100
};

/* cudnn_attention_graph.cu */
descriptor add_attention_graph(builder *b, const target &to, const void *problem);

struct state {
    pthread_mutex_t lock;
    target to;
    cudaStream_t stream; /* the handle's */
    lvnc_plans<conv_problem, plan> convs;
    lvnc_plans<attention_problem, plan> attentions;
};

/* With the lock from here on; NULL: *status is a failure. */
state *enter(const lvn_kernel_args *args, cudnnStatus_t *status);
void leave(state *s);

/* With the lock. False: it does not run, which the caller keeps in p, or *status is a failure. */
bool submit(state *s, plan *p, int n, const int64_t *names, const void *const *at, void *workspace,
            cudnnStatus_t *status);

/* ---- for tests ---- */

/* Whether a plan is found, with the scratch memory that the problem is given. */
bool has_attention(const target &to, const attention_heads &h, lvn_dtype type, bool gradient,
                   cudnnStatus_t *why);
bool has_conv(const target &to, const lvnc_conv &c, cudnnStatus_t *why);
/* How many candidates have plans, the first included; 0: one of them has none by its number, or
 * another one. */
int count_conv_candidates(const target &to, const lvnc_conv &c);
} // namespace dnn

#endif

/* The one door to oneDNN: descriptors, primitives, memories, execution. Nothing else includes
 * dnnl.h, and what its versions call otherwise is in onednn_version.c alone. Used by the onednn_*
 * files and omp_start.c.
 *
 * A primitive belongs to one context (its memories are set per call) and to one team: the team it
 * was created with is the team it runs with (omp_team.h). Weights of convolutions have the layout
 * oneDNN likes (plain weights beside NHWC images fall to a reference implementation thousands of
 * times slower); `reorder` carries them from or to the plain master copy. */
#ifndef LEVIN_KERNELS_CPU_ONEDNN_API_H
#define LEVIN_KERNELS_CPU_ONEDNN_API_H

#include "core/alloc.h"

#include <dnnl.h>

typedef struct lvni_cpu_dnn_conv_shape {
    int64_t n, ih, iw, ic;      /* x (n, ih, iw, ic) */
    int64_t oh, ow, oc, kh, kw; /* y (n, oh, ow, oc), w (oc, kh, kw, ic / groups) */
    int64_t stride[2], padding[2], dilation[2], groups;
} lvni_cpu_dnn_conv_shape;

typedef struct lvni_cpu_dnn_matmul_shape {
    int64_t batch; /* so many products, one behind the other in memory; with a bias 1 */
    int64_t m, n, k;
    int64_t trans_a, trans_b; /* 0 or 1: the matrix lies in memory as (k, m), (n, k) */
} lvni_cpu_dnn_matmul_shape;

typedef enum lvni_cpu_dnn_op {
    LVNI_DNN_CONV_FORWARD,     /* x, w, y, b */
    LVNI_DNN_CONV_GRAD_INPUT,  /* dy, w, dx */
    LVNI_DNN_CONV_GRAD_WEIGHT, /* x, dw, dy */
    LVNI_DNN_MATMUL            /* a, b, y, bias */
} lvni_cpu_dnn_op;

enum { LVNI_DNN_MAX_ARGS = 4 };

/* Place of the weights (or their gradient) among the arguments. */
enum { LVNI_DNN_WEIGHTS = 1 };

typedef struct lvni_cpu_dnn_prim {
    dnnl_primitive_t primitive;
    int n_args, output;                          /* which of the arguments is written */
    dnnl_exec_arg_t args[LVNI_DNN_MAX_ARGS + 1]; /* the last in use is the scratchpad */
    /* what the memories point to now: setting one costs a zero fill of padding */
    void *handles[LVNI_DNN_MAX_ARGS + 1];
    size_t scratch_bytes;

    /* plain -> chosen for weights, chosen -> plain for their gradient; NULL when both are one */
    dnnl_primitive_t reorder;
    dnnl_exec_arg_t reorder_args[3];
    size_t reorder_scratch_bytes;
    size_t chosen_bytes; /* of the weights in the chosen layout */
    /* stands for the plain and the chosen layout and the shape; 0: has no name, do not share the
     * copy */
    uint64_t format;
} lvni_cpu_dnn_prim;

typedef struct lvni_cpu_dnn_work {
    int64_t op;   /* lvni_cpu_dnn_op */
    int64_t bias; /* 0 or 1; always f32 */
    /* 0: all is f32. 1: images, matrices and weights are bf16; gradients of weights stay f32 */
    int64_t low;
    int64_t wide_w; /* with low: weights (b of a product) come in f32 and are carried to bf16 */
    int64_t wide_y; /* with low: the result of a product is f32 */
    union {
        lvni_cpu_dnn_conv_shape conv;
        lvni_cpu_dnn_matmul_shape matmul;
    } shape;
} lvni_cpu_dnn_work;

/* The name of the implementation that the current OpenMP setting of the thread gets. */
lvn_status lvni_cpu_dnn_implementation(const lvni_cpu_dnn_work *work, char name[128]);
/* Make a primitive with the current OpenMP setting. *out is untouched on failure. Where oneDNN has
 * only its reference implementation: of a convolution none is made (NULL), for a product
 * LVN_ERR_UNSUPPORTED. */
lvn_status lvni_cpu_dnn_create(const lvni_cpu_dnn_work *work, lvni_cpu_dnn_prim *out);
void lvni_cpu_dnn_prim_destroy(lvni_cpu_dnn_prim *p);

/* Run on data[0 .. n_args), in the order given at lvni_cpu_dnn_op; a plain weight tensor must have
 * been reordered by the caller. `scratch` has scratch_bytes. Waits for the end. */
lvn_status lvni_cpu_dnn_run(lvni_cpu_dnn_prim *p, dnnl_stream_t stream, const void *const *data,
                            void *scratch);
lvn_status lvni_cpu_dnn_reorder(lvni_cpu_dnn_prim *p, dnnl_stream_t stream, const void *from,
                                void *to, void *scratch);

/* y (m, n) = a (m, k) b (k, n) in f32, neither transposed; the bits depend on the team. */
lvn_status lvni_cpu_dnn_sgemm(const lvni_cpu_dnn_matmul_shape *s, const float *a, const float *b,
                              float *y);

/* The stream of the calling thread's context, which owns it: what is kept in a state of the context
 * (tensor/ctx.h) and was made after this call goes before it. */
lvn_status lvni_cpu_dnn_stream(dnnl_stream_t *out);

/* Lower the instruction set ("v2", "v3", "v4"; NULL: what the CPU has) and switch off what the
 * environment may have chosen (reduced precision, narrow registers). Before the first primitive. */
lvn_status lvni_cpu_dnn_setup(const char *isa);
/* "avx512 v4, oneDNN 2.6.3" */
const char *lvni_cpu_dnn_describe(void);

/* Counts of lvni_cpu_get_stats. */
struct lvni_cpu_stats lvni_cpu_dnn_stats(void);

#endif

/* The op-table machinery: ops.def lists every kernel op with inputs, outputs and attributes; each
 * has a shape rule (shape_rules.c) and a kernel per backend (ref/: f64 loops, the truth; cpu/:
 * f32). This folder knows no tape.
 *
 * A kernel gets tensors whose shapes were checked by the rule, outputs allocated, never overlapping
 * inputs unless the table allows it (add: a += b of one shape). It may use the thread's context
 * (lvni_tensor_ctx_get) for team size and scratch memory. */
#ifndef LEVIN_KERNELS_KERNELS_H
#define LEVIN_KERNELS_KERNELS_H

#include "tensor/tensor.h"

enum { LVNI_MAX_IN = 8, LVNI_MAX_OUT = 4 };

/* ---- attributes (one struct per op that has any; as text: attrs.def) ---- */
/* attr is NULL; attr_size in the table is 0 */
typedef struct lvni_kernels_no_attr {
    char unused;
} lvni_kernels_no_attr;
/* y = x * mul + add */
typedef struct lvni_kernels_scale_attr {
    double mul, add;
} lvni_kernels_scale_attr;
/* bit i: axis i is reduced */
typedef struct lvni_kernels_axes_attr {
    uint32_t mask;
    bool keepdim;
} lvni_kernels_axes_attr;
/* of the result */
typedef struct lvni_kernels_shape_attr {
    int ndim;
    int64_t shape[LVN_MAX_NDIM];
} lvni_kernels_shape_attr;
typedef struct lvni_kernels_matmul_attr {
    bool trans_a, trans_b;
} lvni_kernels_matmul_attr;
typedef struct lvni_kernels_conv_attr {
    int stride[2], padding[2], dilation[2]; /* height, width */
    int groups;
    /* grad_input: height and width of the input; conv_transpose2d: of the result */
    int64_t in_h, in_w;
    int64_t kernel[2]; /* grad_weight only */
} lvni_kernels_conv_attr;
typedef struct lvni_kernels_pool_attr {
    int kernel[2], stride[2], padding[2];
    int64_t in_h, in_w; /* gradient only */
} lvni_kernels_pool_attr;
typedef enum lvni_kernels_resample_kind {
    LVNI_AVG_POOL,
    LVNI_ADAPTIVE_POOL,
    LVNI_NEAREST,
    LVNI_BILINEAR,
    LVNI_BICUBIC
} lvni_kernels_resample_kind;
typedef struct lvni_kernels_resample_attr {
    /* a linear map of (height, width); avg_pool alone has a window, all others a size */
    lvni_kernels_resample_kind kind;
    /* bilinear, bicubic: corner pixels lie on corner pixels, else corners on corners */
    bool align_corners;
    bool exclude_padding; /* avg_pool: divides by the pixels in the image */
    bool transposed;      /* the gradient */
    lvni_kernels_pool_attr pool;
    /* height, width of the result; not read for avg_pool, unless transposed */
    int64_t size[2];
} lvni_kernels_resample_attr;
typedef struct lvni_kernels_fft_attr {
    int axes; /* 1 or 2, before the last */
    bool inverse, centered;
    double scale;
} lvni_kernels_fft_attr;
typedef struct lvni_kernels_cast_attr {
    lvn_dtype dtype;
} lvni_kernels_cast_attr; /* of the result: a float type */
typedef struct lvni_kernels_norm_attr {
    double eps;
    bool relu;
} lvni_kernels_norm_attr;
/* the last `axes` axes form a row */
typedef struct lvni_kernels_layer_norm_attr {
    double eps;
    int axes;
} lvni_kernels_layer_norm_attr;
/* groups of channels */
typedef struct lvni_kernels_group_norm_attr {
    double eps;
    int groups;
} lvni_kernels_group_norm_attr;
typedef struct lvni_kernels_attention_attr {
    double scale;
    bool causal;
} lvni_kernels_attention_attr;
/* ignore: the label that counts for nothing */
typedef struct lvni_kernels_class_loss_attr {
    double smoothing;
    int64_t ignore;
    bool sum;
} lvni_kernels_class_loss_attr;
typedef enum lvni_kernels_point_loss {
    LVNI_LOSS_SQUARE,
    LVNI_LOSS_ABSOLUTE,
    LVNI_LOSS_SMOOTH_L1,
    LVNI_LOSS_BINARY
} lvni_kernels_point_loss;
/* beta: of smooth l1 */
typedef struct lvni_kernels_point_loss_attr {
    lvni_kernels_point_loss kind;
    double beta;
    bool sum;
} lvni_kernels_point_loss_attr;
/* of the tables; add: to what dweight holds */
typedef struct lvni_kernels_lookup_attr {
    int64_t rows, positions;
    bool add;
} lvni_kernels_lookup_attr;
typedef struct lvni_kernels_number_attr {
    double value;
} lvni_kernels_number_attr; /* a slope, an exponent */
typedef struct lvni_kernels_range_attr {
    double min, max;
} lvni_kernels_range_attr;
/* divisor: terms - correction */
typedef struct lvni_kernels_var_attr {
    uint32_t mask;
    bool keepdim;
    int correction;
} lvni_kernels_var_attr;
/* axis i of the result is axis[i] of x */
typedef struct lvni_kernels_permute_attr {
    int ndim, axis[LVN_MAX_NDIM];
} lvni_kernels_permute_attr;
/* size: of the axis in the gradient, else unused */
typedef struct lvni_kernels_axis_attr {
    int axis;
    int64_t size;
} lvni_kernels_axis_attr;
/* crop: the part [start, start + size) of x. pad and its gradients: x lies at `start` in a result
 * of `size`. Per axis of x. */
typedef struct lvni_kernels_box_attr {
    int ndim;
    int64_t start[LVN_MAX_NDIM], size[LVN_MAX_NDIM];
    double value;
    bool reflect;
} lvni_kernels_box_attr;
typedef struct lvni_kernels_dropout_attr {
    double p;
    lvni_core_rng rng;
} lvni_kernels_dropout_attr;

typedef enum lvni_kernels_op {
#define LVNI_OP(name, n_in, n_out, attr_type, flags, sentence) LVNI_OP_##name,
#include "kernels/ops.def"
#undef LVNI_OP
    LVNI_OP_COUNT
} lvni_kernels_op;

/* flags */
enum {
    LVNI_OPTIONAL_LAST = 1, /* the last input may be NULL (a bias) */
    /* outputs after the first may be refused by the caller (see want in lvni_kernels_run) */
    LVNI_OPTIONAL_OUT = 2,
    LVNI_REDUCING = 4, /* bits depend on wgrad_team: the kernel runs with just that team */
    /* Types. What public ops do with their inputs before the kernel (lvni_autograd_op_begin): */
    LVNI_LOW = 8,   /* f32 becomes the type of the precision (bf16-mixed, 16-mixed) */
    LVNI_FULL = 16, /* bf16 and f16 become f32 */
    /* inputs of different float types become f32; without any of these an op runs in the type it is
     * given */
    LVNI_WIDEST = 32,
    /* with LVNI_LOW: bf16 products read parameters in f32 and keep a reordered bf16 copy; no
     * cast */
    LVNI_PARAMS = 256,
    /* What the cpu kernel computes with by itself; all others get f32 copies of bf16 and f16
     * (lvni_kernels_run). */
    LVNI_BF16 = 64,
    LVNI_F16 = 128,
    /* Called in a dry run the cpu kernel reports its scratch memory, and touches nothing: its loops
     * are lvni_cpu_par's and oneDNN's, or it returns as soon as it has that memory. */
    LVNI_DRY = 8192,
    /* with LVNI_BF16, times a mask of inputs: those (vectors, statistics) it takes in f32 only */
    LVNI_BESIDE = 1 << 16,
    LVNI_OPTIONAL_TWO = 4096, /* the last two inputs may be NULL (gamma and beta) */
    LVNI_SEVERAL = 512, /* inputs after the first may be NULL: the op takes as many as are given */
};

typedef struct lvni_kernels_args {
    const lvn_tensor *in[LVNI_MAX_IN];
    lvn_tensor *out[LVNI_MAX_OUT]; /* NULL where the caller wants none (LVNI_OPTIONAL_OUT) */
    const void *attr;
} lvni_kernels_args;

typedef lvn_status (*lvni_kernels_kernel)(const lvni_kernels_args *args);
typedef lvn_status (*lvni_kernels_shape_rule)(const lvni_kernels_args *args,
                                              lvni_tensor_desc out[LVNI_MAX_OUT]);

typedef struct lvni_kernels_op_info {
    const char *name;
    int n_in, n_out;
    unsigned flags;
    const char *sentence;
    size_t attr_size;
    const char *attributes; /* as text, from attrs.def */
    lvni_kernels_shape_rule shape;
    lvni_kernels_kernel ref, cpu;
} lvni_kernels_op_info;

extern const lvni_kernels_op_info lvni_kernels_ops[LVNI_OP_COUNT];

/* How many inputs, counted from the last, may be NULL. */
static inline int lvni_kernels_op_optional(const lvni_kernels_op_info *op)
{
    return (op->flags & LVNI_SEVERAL) != 0         ? op->n_in - 1
           : (op->flags & LVNI_OPTIONAL_TWO) != 0  ? 2
           : (op->flags & LVNI_OPTIONAL_LAST) != 0 ? 1
                                                   : 0;
}

/* Where: on the device of the context or of an input (inputs in host memory are copied there), else
 * on the host. A device computes after lvni_kernels_run returned (tensor/device.h: how its
 * errors show). Check shapes, allocate the outputs that are NULL and wanted (bit i of `want`),
 * choose the backend by the type of in[0] (f64: ref, else cpu; bf16 and f16 through f32 copies
 * where the cpu kernel does not take them) and run. New outputs are owned by the caller. An output
 * given in args->out is written in place; its shape must be the rule's. On failure every output
 * made here is released and args->out[i] is NULL again. */
lvn_status lvni_kernels_run(lvni_kernels_op op, lvni_kernels_args *args, unsigned want);

/* Wall time of lvni_kernels_run per op, summed over the threads of the process; for benchmarks. Off
 * costs nothing worth measuring. */
typedef struct lvni_kernels_op_time {
    uint64_t calls, ns;
} lvni_kernels_op_time;
void lvni_kernels_run_measure(bool on); /* clears all sums */
lvni_kernels_op_time lvni_kernels_run_time(lvni_kernels_op op);

/* sim/: let `kernel` run on the stream of a simulated accelerator, where all tensors of args lie;
 * they may be released, and the attribute may go, as soon as this returns. */
typedef lvn_status (*lvni_kernels_backend)(const lvni_kernels_op_info *info,
                                           const lvni_kernels_args *args);
lvn_status lvni_sim_run(struct lvni_tensor_device *device, const lvni_kernels_op_info *info,
                        const lvni_kernels_args *args, lvni_kernels_backend kernel);

/* After dry runs in the calling thread's context (tensor/device.h): what the cpu kernels would
 * hold. */
typedef struct lvni_cpu_need {
    uint64_t scratch; /* bytes, of a lane */
    uint64_t weights; /* bytes of reordered copies of parameters, which all lanes share */
} lvni_cpu_need;
lvni_cpu_need lvni_cpu_get_need(void);

/* Which implementation oneDNN chose, for tests of reproducibility. */
typedef struct lvni_cpu_stats {
    uint64_t primitives_created;
    uint64_t slow_primitives; /* implementation name starts with "ref": refused */
    char last_slow[128];
} lvni_cpu_stats;
lvni_cpu_stats lvni_cpu_get_stats(void);

/* First call in main of a program that computes, before any thread: start the program again (once;
 * argv as main got it) without the variables that spoil OpenMP teams, and with a short spin of
 * waiting threads; libgomp reads both when it is loaded. Returns when all is well. */
void lvni_cpu_clean_environment(char **argv);
/* Start-up of the cpu backend, once per process before the first op, in the main thread: removes
 * hostile OMP_* settings, picks the instruction set (LEVIN_CPU_ISA=v2|v3|v4 lowers it), proves that
 * a team of T has T members. */
lvn_status lvni_cpu_start(void);
/* "avx512 v4, oneDNN 2.6.3" for the banner and the fingerprint. */
const char *lvni_cpu_describe(void);
/* bf16 products have kernels here (AVX-512); without them they are refused. After
 * lvni_cpu_start. */
bool lvni_cpu_has_bf16(void);
/* Weights that are parameters (param >= 0) have reordered copies keyed by (id, version). The
 * caller that frees parameters drops the copies of their ids, first to last included. Thread-safe;
 * a copy in use goes when its user is done. */
void lvni_cpu_weights_forget(uint64_t first_id, uint64_t last_id);

#endif

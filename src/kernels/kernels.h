/* The op-table machinery: ops.def lists every kernel op with inputs, outputs and attributes; each
 * has a shape rule (shape_rules.c) and kernels in the tables of backends (levin/backend.h; ref/:
 * f64 loops, the truth; cpu/: f32). This folder knows no tape.
 *
 * A kernel gets tensors whose shapes were checked by the rule, outputs allocated, never overlapping
 * inputs unless the table allows it (add: a += b of one shape). It may use the thread's context
 * (lvni_tensor_ctx_get) for team size and scratch memory. */
#ifndef LEVIN_KERNELS_KERNELS_H
#define LEVIN_KERNELS_KERNELS_H

#include "tensor/tensor.h"

#include <levin/backend.h>

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
    LVNI_REDUCING =
        4, /* bits depend on fields of the pins (core/pins.def) that the backend reads */
    /* Types. What public ops do with their inputs before the kernel (lvni_autograd_op_begin): */
    LVNI_LOW = 8,   /* f32 becomes the type of the precision (bf16-mixed, 16-mixed) */
    LVNI_FULL = 16, /* bf16 and f16 become f32; with LVNI_BESIDE in the inputs of its mask only */
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
    /* times a mask of inputs: those (vectors, statistics) are f32 beside bf16 and f16, and a kernel
     * that takes these takes those in f32 only */
    LVNI_BESIDE = 1 << 16,
    LVNI_OPTIONAL_TWO = 4096, /* the last two inputs may be NULL (gamma and beta) */
    LVNI_SEVERAL = 512, /* inputs after the first may be NULL: the op takes as many as are given */
};

typedef lvn_status (*lvni_kernels_shape_rule)(const lvn_kernel_args *args,
                                              lvni_tensor_desc out[LVN_KERNEL_OUTPUTS]);

typedef struct lvni_kernels_op_info {
    union {
        lvn_op op;
        struct { /* the same */
            const char *name;
            int number, n_in, n_out;
            size_t attr_size;
        };
    };
    unsigned flags;
    const char *sentence;
    const char *attributes; /* as text, from attrs.def */
    lvni_kernels_shape_rule shape;
} lvni_kernels_op_info;

extern const lvni_kernels_op_info lvni_kernels_ops[LVNI_OP_COUNT];

/* The stream of an attribute, for core/rng.h; in a kernel. */
static inline lvni_core_rng lvni_kernels_rng(const lvn_philox *stream)
{
    lvn_philox p = *stream;
    lvn_philox_resolve(&p);
    return (lvni_core_rng){.key = {{p.key[0], p.key[1]}}, .a = p.a, .b = p.b, .c = p.c};
}

/* How many inputs, counted from the last, may be NULL. */
static inline int lvni_kernels_op_optional(const lvni_kernels_op_info *op)
{
    return (op->flags & LVNI_SEVERAL) != 0         ? op->n_in - 1
           : (op->flags & LVNI_OPTIONAL_TWO) != 0  ? 2
           : (op->flags & LVNI_OPTIONAL_LAST) != 0 ? 1
                                                   : 0;
}

/* ---- backends ---- */

/* Its kernel of an op; NULL: it has none. */
const lvn_backend_kernel *lvni_kernels_row(int kind, lvni_kernels_op op);
/* The host's two: vector code and oneDNN, and loops in double precision (f64, and the truth that
 * the others are tested against). Any thread may call a kernel of theirs directly. */
extern const lvn_backend lvni_cpu_backend, lvni_ref_backend;
/* A simulated accelerator (kernels/sim/sim.h) and shapes without memory. */
extern const lvn_backend lvni_sim_backend, lvni_dry_backend;
/* The op of arguments that a kernel was given. */
static inline const lvni_kernels_op_info *lvni_kernels_info(const lvn_kernel_args *args)
{
    return &lvni_kernels_ops[args->op->number];
}

/* Where: on the device of the context or of an input (inputs in host memory are copied there), else
 * on the host. A device computes after lvni_kernels_run returned (tensor/device.h: how its
 * errors show). Check shapes, allocate the outputs that are NULL and wanted (bit i of `want`),
 * choose the backend (the device's; on the host ref for f64 and else cpu) and run its kernel, with
 * f32 copies of bf16 and f16 where the kernel does not take them. LVN_ERR_UNSUPPORTED, with the
 * names of op and backend, when it has none for these inputs. New outputs are owned by the caller.
 * An output given in args->out is written in place; its shape must be the rule's. On failure every
 * output made here is released and args->out[i] is NULL again. */
lvn_status lvni_kernels_run(lvni_kernels_op op, lvn_kernel_args *args, unsigned want);

/* After dry runs in the calling thread's context (tensor/device.h): LVN_ERR_UNSUPPORTED with the
 * ops for which the backend that they stood for has no kernel. */
lvn_status lvni_kernels_check_missing(void);

/* Floating-point operations of the products (matrices, convolutions, attention) of all dry runs in
 * the calling thread's context. */
double lvni_kernels_dry_flops(void);

/* Wall time of lvni_kernels_run per op, summed over the threads of the process; for benchmarks. Off
 * costs nothing worth measuring. */
typedef struct lvni_kernels_op_time {
    uint64_t calls, ns;
} lvni_kernels_op_time;
void lvni_kernels_run_measure(bool on); /* clears all sums */
lvni_kernels_op_time lvni_kernels_run_time(lvni_kernels_op op);

/* After dry runs in the calling thread's context (tensor/device.h): what the cpu kernels would
 * hold. */
typedef struct lvni_cpu_need {
    uint64_t scratch; /* bytes, of a lane */
    uint64_t weights; /* bytes of reordered copies of parameters, which all lanes share */
} lvni_cpu_need;
lvni_cpu_need lvni_cpu_get_need(void);

/* For checks: from now on each request of a cpu kernel for scratch memory, in any thread, finds it
 * full of this number; 0: as it was left. */
void lvni_kernels_scratch_spoil(float with);

/* Which implementation oneDNN chose, for tests of reproducibility. */
typedef struct lvni_cpu_stats {
    uint64_t primitives_created;
    uint64_t slow_primitives; /* the implementation's name begins with "ref": not used */
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
/* One sentence when this version of oneDNN was not measured for what depends on the number of
 * threads (then nothing is taken for independent of it), else NULL. */
const char *lvni_cpu_unmeasured(void);
/* What the bits of the calling context's ops come from: the fingerprint of its device, or the
 * above, also for sim, which has the bits of cpu. Valid as long as the device is open. */
const char *lvni_kernels_describe(void);
bool lvni_kernels_are_of_cpu(void); /* the calling context's, as far as bits go: cpu, ref, sim */
/* bf16 products have kernels here (AVX-512); without them they are refused. After
 * lvni_cpu_start. */
bool lvni_cpu_has_bf16(void);
/* Weights that are parameters (param >= 0) have reordered copies keyed by (id, version). The
 * caller that frees parameters drops the copies of their ids, first to last included. Thread-safe;
 * a copy in use goes when its user is done. */
void lvni_cpu_weights_forget(uint64_t first_id, uint64_t last_id);

#endif

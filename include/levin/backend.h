/* Backends: what levin asks of a kind of device. A backend is one table of functions; everything
 * above it (tape, trainer, recipes) knows devices through this table alone. EXPERIMENTAL: the
 * version is counted up with every change, and a table of another version is refused.
 *
 * levin's own are cpu and ref (host memory, compute at once), sim (a simulated accelerator) and dry
 * (shapes without memory). Another one lies in a shared object `levin_backend_NAME.so` in one of
 * the folders of LEVIN_BACKEND_PATH (separated by ':') and exports
 *
 *     const lvn_backend *lvn_backend_table(void);
 *
 * It is loaded when its name is first asked for. docs/backends.md explains how to write one, along
 * examples/06_backend.
 *
 * Rules for all functions:
 *   - Any thread may call them; two calls for the same device may come at once unless stated.
 *   - Errors are returned and described with lvn_error_set (LVN_FAIL of levin/status.h). A device
 *     computes later than a call returns: an error found by then belongs to its stream.
 *   - Addresses are the device's own. levin adds offsets to them and compares them, nothing else;
 *     no two devices of a process may give out the same addresses, nor ones of host memory.
 *   - Tensors in memory of the device begin at multiples of LVN_TENSOR_ALIGNMENT bytes, so that
 *     kernels may read vectors; a call with another one is refused before it gets to the kernel.
 *     Flat buffers may begin at any float, scratch memory as `take` gives it or at a multiple
 * of 64.
 *   - What a backend chooses by measuring, and results depend on, it records for the run with
 *     lvn_autotune_record or lvn_pin_record (levin/pins.h).
 *   - "In stream order": after everything submitted to that stream before.
 *   - What an argument points to in host memory (arguments of kernels, tensors, attributes,
 *     settings, decisions) is read before the call returns; only memory of host_take is read and
 *     written later, by copy. Memory of the device may be taken for something else as soon as a
 *     call returned: by what comes later in the same order. */
#ifndef LEVIN_BACKEND_H
#define LEVIN_BACKEND_H

#include <levin/backend_ops.h>
#include <levin/backend_step.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LVN_BACKEND_VERSION = 18, LVN_TENSOR_ALIGNMENT = 16 };

typedef struct lvn_device_info {
    char name[64]; /* of the model: "NVIDIA H200" */
    /* What the bits of results depend on beside the program: model and versions of libraries.
     * Runs on devices with equal fingerprints have equal bits. */
    char fingerprint[160];
    uint64_t memory;  /* bytes that may be taken in all */
    uint64_t segment; /* levin takes at least this much at once and cuts it itself; 0: 32 MiB */
} lvn_device_info;

typedef enum lvn_stream_kind {
    /* Kernels. A context of levin has one stream of this kind per device. Whatever is submitted to
     * streams of this kind of one device runs in the order of submission over all of them; what a
     * stream adds is an error of its own. */
    LVN_STREAM_COMPUTE,
    LVN_STREAM_COPY, /* copies beside the kernels, in an order of its own */
    LVN_STREAM_KINDS
} lvn_stream_kind;

/* ---- ops ---- */

/* The kernel of an op (`levin ops` lists all with what they take). An op without a row, or with
 * inputs of a type that no bit names and that cannot become f32, fails by name: it never runs on
 * the host instead. */
typedef struct lvn_backend_kernel {
    const char *op;
    lvn_kernel run;
    /* Bit 1u << dtype: float types of tensors that it computes with by itself. bf16 and f16 become
     * f32 copies for a kernel that names LVN_F32 only. */
    unsigned dtypes;
    /* Bit i: input i (a vector, statistics) is f32 also when the others are bf16 or f16. */
    unsigned f32_inputs;
    /* How many bytes of scratch memory the kernel needs with these arguments (types, shapes,
     * attributes; also asked when memory is estimated, with addresses that mean nothing). levin's
     * allocator lends them for the call, in stream order. NULL: none. */
    size_t (*workspace)(const lvn_kernel_args *args);
} lvn_backend_kernel;

/* ---- flat buffers: parameters, gradients, optimizer state ----
 * f32 in memory of the device, in the order of the stream that is given. All of them are needed: a
 * table without one is refused, as an update that stops half-way leaves no weights to go on from.
 * Kernels add over blocks of
 * LVN_FLAT_BLOCK floats; bits do not depend on how many threads share the work. */

enum { LVN_FLAT_BLOCK = 4096 };

typedef struct lvn_backend_flat {
    /* a += b: two gradient sets become one (a node of the tree). */
    lvn_status (*add)(void *stream, float *a, const float *b, int64_t n);
    /* a += t * (b - a): where the two are equal, a stays as it is to the bit. With an average of
     * the step block: t is its factor, or a becomes b; nothing unless it updated. */
    lvn_status (*lerp)(void *stream, float *a, const float *b, float t, int64_t n,
                       const lvn_step_average *step);
    /* partial[i] = sum of g^2 over block i, in f64; ceil(n / LVN_FLAT_BLOCK) entries in memory of
     * the device. A value that is not finite makes its block's sum inf or NaN. */
    lvn_status (*block_sumsq)(void *stream, const float *g, int64_t n, double *partial);
    /* g = trust * (g + weight_decay * w); buf = momentum * buf + (1 - dampening) * g; w -= lr *
     * (nesterov ? g + momentum * buf : buf). momentum NULL: plain descent. */
    lvn_status (*sgd)(void *stream, float *w, const float *g, float *momentum, int64_t n,
                      const lvn_flat_sgd *p);
    /* *trust = lvn_flat_trust_ratio of a tensor, from n partial sums of squares of its weights and
     * n of its gradient, each added as `decide` does. Overwrites them. */
    lvn_status (*trust)(void *stream, double *trust, double *of_w, double *of_g, int64_t n,
                        const lvn_flat_trust *p);
    /* Loshchilov & Hutter 2019, "Decoupled weight decay regularization", algorithm 2 (Adam: Kingma
     * & Ba 2015): w -= lr weight_decay w; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2)
     * g^2; w -= (lr / correction1) m / (sqrt(v) / sqrt(correction2) + eps). */
    lvn_status (*adamw)(void *stream, float *w, const float *g, float *m, float *v, int64_t n,
                        const lvn_flat_adamw *p);
    /* RMSprop as PyTorch has it: g += weight_decay w; v = alpha v + (1 - alpha) g^2; u = g /
     * (sqrt(v) + eps); b = momentum b + u; w -= lr b. mean (of gradients), unless NULL: mean =
     * alpha mean + (1 - alpha) g, and max(v - mean^2, 0) under the root (Graves 2013, "Generating
     * sequences with recurrent neural networks"). momentum NULL: w -= lr u. */
    lvn_status (*rmsprop)(void *stream, float *w, const float *g, float *v, float *mean,
                          float *momentum, int64_t n, const lvn_flat_rmsprop *p);
    /* Chen et al. 2023, "Symbolic discovery of optimization algorithms", algorithm 2: w -= lr
     * (sign(beta1 m + (1 - beta1) g) + weight_decay w); m = beta2 m + (1 - beta2) g. sign(0) is
     * 0. */
    lvn_status (*lion)(void *stream, float *w, const float *g, float *m, int64_t n,
                       const lvn_flat_lion *p);
    /* You et al. 2020, "Large batch optimization for deep learning: training BERT in 76 minutes",
     * algorithm 2, in two calls with `trust` between them. First m and v as in adamw, of u = (m /
     * correction1) / (sqrt(v) / sqrt(correction2) + eps) + weight_decay w the sums of squares over
     * blocks as in block_sumsq (sums NULL: none), and w as it was. */
    lvn_status (*lamb_moments)(void *stream, const float *w, const float *g, float *m, float *v,
                               int64_t n, double *sums, const lvn_flat_lamb *p);
    /* Then w -= lr trust u, with these m and v. */
    lvn_status (*lamb)(void *stream, float *w, const float *m, const float *v, int64_t n,
                       const lvn_flat_lamb *p);
    /* Adafactor as PyTorch has it (Shazeer & Stern 2018, "Adafactor: adaptive learning rates with
     * sublinear memory cost", algorithms 4 and 5), of one whole tensor, with s = t^beta2_decay. Of
     * each of its matrices row_var += s (mean of g^2 over the row - row_var), col_var likewise over
     * columns, and of an element v = row_var col_var / max(mean of the matrix's row_var, eps1) of
     * its row and column. One axis: col_var NULL, row_var has n elements, += s (g^2 - row_var), and
     * is v. Then u = g / sqrt(max(v, lvn_flat_adafactor_least)) and w = (1 - lr weight_decay) w -
     * lvn_flat_adafactor_rate u, the sums of squares over blocks of the tensor, added as `decide`
     * does. row_var is (outer, rows, inner), col_var (outer, cols, inner). */
    lvn_status (*adafactor)(void *stream, float *w, const float *g, float *row_var, float *col_var,
                            int64_t n, const lvn_flat_adafactor *p);
    /* Each of the n numbers becomes the nearest bf16 (ties to even), kept as f32. */
    lvn_status (*round_bf16)(void *stream, float *w, int64_t n);
    /* A micro-batch's contribution to a running statistic: record[i] = weight * value[i] for i < n,
     * record[n] = weight. */
    lvn_status (*record)(void *stream, float *record, const float *value, int64_t n, float weight);
    /* The statistic after a step: unless record[n] is 0, buffer[i] = (1 - momentum) * buffer[i] +
     * momentum * (record[i] / record[n]). With a step: nothing unless it updated. */
    lvn_status (*apply_record)(void *stream, float *buffer, const float *record, int64_t n,
                               const lvn_flat_mean *p);
    /* A queue (rows, width) after a step. record: slots * slot_rows rows, one float, then of each
     * slot how many of its rows there are. These rows, in their order, go one by one to row *next
     * of the queue, filled[*next] = 1, *next = (*next + 1) mod rows; so of more than `rows` the
     * last ones stay. With a step: nothing unless it updated. */
    lvn_status (*append)(void *stream, float *queue, float *filled, float *next,
                         const float *record, const lvn_flat_append *p);
    /* *slot = the one number of this type at `value`. */
    lvn_status (*number)(void *stream, double *slot, const void *value, lvn_dtype dtype);
    /* Where a backward pass begins: the one number of this type at `value` = number * *weight *
     * *factor, the product in f64 from left to right, rounded once (16 bits: first to f32). NULL
     * for a pointer: without it. */
    lvn_status (*seed)(void *stream, void *value, lvn_dtype dtype, double number,
                       const double *weight, const double *factor);
    /* lvn_step_decide with the sum of n partial sums: neighbours are added first, an odd last one
     * moves up alone (pairs i, i + 1; then i, i + 2; and so on). Overwrites sums. */
    lvn_status (*decide)(void *stream, lvn_step_block *block, double *sums, int64_t n,
                         const double *losses, const lvn_step_decision *decision);
    /* lvn_step_finish: the step's last command. */
    lvn_status (*finish)(void *stream, lvn_step_block *block);
} lvn_backend_flat;

/* ---- the table ---- */

typedef struct lvn_backend {
    uint32_t version;    /* LVN_BACKEND_VERSION */
    uint32_t table_size; /* sizeof(lvn_backend) */
    const char *name;    /* of the kind: lower case, digits; its devices are NAME:0, NAME:1, ... */
    /* Its memory is the host's, and a call returns when its work is done: of the functions below
     * it has those of ops and flat buffers alone, and their stream is NULL. */
    bool on_host;

    /* How many devices this process may use. */
    lvn_status (*count)(int *n);
    /* Open device `index` (0 .. count - 1), once in a process until it is closed. */
    lvn_status (*open)(int index, void **device, lvn_device_info *info);
    /* All memory was given back and all streams are gone. */
    void (*close)(void *device);

    /* Memory. LVN_ERR_DEVICE_MEMORY when there is none; everything else goes on as before. levin
     * caches and cuts what it takes (tensor/device_memory.c): calls are rare. */
    lvn_status (*take)(void *device, size_t bytes, void **address); /* 4,096-byte aligned */
    /* What was submitted may still use it: wait, or let it go later. */
    void (*give)(void *device, void *address, size_t bytes);
    /* Memory of the host that `copy` reads and writes while the host goes on. */
    lvn_status (*host_take)(void *device, size_t bytes, void **p);
    /* No command uses it any more. */
    void (*host_give)(void *device, void *p, size_t bytes);

    /* Streams. */
    lvn_status (*stream_create)(void *device, lvn_stream_kind kind, void **stream);
    void (*stream_destroy)(void *stream); /* after all that was submitted ran */
    /* Wait until all that was submitted to this stream ran. Its first error, until it is cleared:
     * from it on this stream, and all of its kind and device, leave out what is submitted: what
     * comes later may depend on it. A stream that left something out has failed with that error.
     * Where kernels cannot be left out, it is enough that `decide` and `finish` are, which keeps
     * the step from updating and from counting as finished. */
    lvn_status (*stream_wait)(void *stream);
    /* As far as is known now; never waits. What failed before an event is known when event_wait has
     * returned for it. */
    bool (*stream_failed)(void *stream);
    /* After stream_wait of all streams whose commands may depend on the error: forget it, run
     * again. */
    void (*stream_clear)(void *stream);

    /* Events: a point in the order of a stream. */
    lvn_status (*event_create)(void *device, void **event);
    void (*event_destroy)(void *event);
    lvn_status (*event_record)(void *event, void *stream);
    /* What is submitted to `stream` from now on runs after the event. Streams may be of different
     * devices of the backend. One that was never recorded has passed. When the stream that recorded
     * the event had failed there, this one fails, too: a kernel may need the copy. */
    lvn_status (*event_follow)(void *stream, void *event);
    lvn_status (*event_wait)(void *event); /* on the host */

    /* In stream order: fn(user), once, on a thread of the backend's choice, also when the stream
     * has failed. What is submitted to the stream later runs after it returned, what was submitted
     * to others does not wait. fn waits for threads of the host, which may wait for other devices,
     * and calls nothing of the table. Where host functions of a driver must not (CUDA's), let the
     * stream wait for a number in memory, which a thread of the backend writes when fn has
     * returned. Not while the stream is captured. */
    lvn_status (*host_call)(void *stream, void (*fn)(void *user), void *user);

    /* Copies, in stream order. Of host memory only what host_take gave, until the copy has run.
     * From another device of the backend: `stream` is the target's. */
    lvn_status (*copy)(void *stream, void *to, const void *from, size_t bytes);
    /* From any host memory, which may change when this returns; at most LVN_UPLOAD bytes. */
    lvn_status (*upload)(void *stream, void *to, const void *from, size_t bytes);
    lvn_status (*zero)(void *stream, void *p, size_t bytes);

    /* Ops and flat buffers. */
    const lvn_backend_kernel *kernels;
    int n_kernels;
    /* Does the row's kernel run with these arguments (types, shapes, attributes)? Asked in every
     * call. NULL: all that the rows name. */
    bool (*supports)(void *device, const lvn_kernel_args *args);
    lvn_backend_flat flat;

    /* A captured step: what any thread submits to streams of this one's kind and device between
     * begin and end is recorded instead of run; replay submits it to `stream`, with the same
     * addresses and arguments. Events are recorded and followed in each replay, as they are then.
     * The step block's upload comes before what is captured, and before each replay. NULL, all
     * four: not supported. */
    lvn_status (*capture_begin)(void *stream);
    lvn_status (*capture_end)(void *stream, void **graph);
    lvn_status (*graph_replay)(void *graph, void *stream);
    void (*graph_destroy)(void *graph);

    /* What the run's configuration asks of all kernels, before any of them runs: "tf32" "true": f32
     * products may round their factors to TF32 (10 bits of fraction). A name that the backend does
     * not know has no meaning for it: LVN_OK. NULL: it knows none. */
    lvn_status (*set)(const char *name, const char *value);

    /* The stream as libraries take it that submit to it themselves: of CUDA's devices a
     * cudaStream_t, for NCCL. The device becomes the calling thread's current one, where there is
     * such a thing. What is submitted in this way is in the stream's order. NULL: there is none. */
    void *(*native_stream)(void *stream);
} lvn_backend;

enum { LVN_UPLOAD = 2048 };

/* The symbol that a shared object exports. */
typedef const lvn_backend *(*lvn_backend_table_fn)(void);
#define LVN_BACKEND_SYMBOL "lvn_backend_table"

#ifdef __cplusplus
}
#endif
#endif

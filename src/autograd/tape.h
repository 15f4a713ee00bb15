/* Scopes and the eager tape of a thread. An op runs its kernel and records one node; lvn_backward
 * walks the nodes in reverse. Called by ops/ (record), nn/ and trainer/ (scopes, gradient sets).
 * One tape per context, made at first use. */
#ifndef LEVIN_AUTOGRAD_TAPE_H
#define LEVIN_AUTOGRAD_TAPE_H

#include "kernels/kernels.h"

#include <levin/ops.h>
#include <stdalign.h>

enum { LVNI_NODE_IN = 8, LVNI_NODE_SAVED = 8, LVNI_FUNCTION_ATTR = 64 };

typedef struct lvni_autograd_node lvni_autograd_node;
/* Given dL/d(output), hand dL/d(input i) to lvni_autograd_grad_give for every input i that
 * lvni_autograd_grad_wanted. */
typedef lvn_status (*lvni_autograd_backward_rule)(lvni_autograd_node *node, lvn_tensor *dy);

/* Of a call of a user's op: the op, its attributes, the shapes of its inputs. */
typedef struct lvni_autograd_function_record {
    const lvn_function *f;
    alignas(16) unsigned char attr[LVNI_FUNCTION_ATTR];
    int ndim[LVN_FUNCTION_INPUTS];
    int64_t shape[LVN_FUNCTION_INPUTS][LVN_MAX_NDIM];
} lvni_autograd_function_record;

struct lvni_autograd_node {
    lvni_tensor_node_head head; /* first: the weak link to the output */
    const char *name;           /* of the op, for errors */
    const char *module_path;    /* that ran it, under a watch (kernels/anomaly.h); or NULL */
    lvni_autograd_backward_rule backward; /* fused kernels */
    /* the same written with recorded ops, for create_graph; NULL: no second derivative */
    lvni_autograd_backward_rule backward_ops;
    lvni_autograd_node *previous, *next; /* recorded before and after this one */
    /* its rule syncs with the other micro-batches of the group: it runs in lvn_backward also
     * without a gradient (dy NULL) */
    bool syncs;
    unsigned wanted;                          /* bit i: the walk wants the gradient of input i */
    lvn_dtype dtype;                          /* of the output, and so of its gradient */
    lvni_autograd_node *source[LVNI_NODE_IN]; /* node that made input i, or NULL */
    /* input i when it is a leaf that wants a gradient (held), or NULL */
    lvn_tensor *leaf[LVNI_NODE_IN];
    lvn_tensor *saved[LVNI_NODE_SAVED]; /* what the backward rule needs (held) */
    lvn_tensor *grad;                   /* dL/d(output) gathered so far (held) */
    lvni_tensor_desc in_desc;           /* of input 0 */
    union {
        lvn_scale_attr scale;
        lvn_axes_attr axes;
        lvn_var_attr var;
        lvn_matmul_attr matmul;
        lvn_conv_attr conv;
        lvn_pool_attr pool;
        lvn_resample_attr resample;
        lvn_window_attr window;
        lvn_affine_attr affine;
        lvn_sample_attr sample;
        lvn_soft_argmax_attr soft_argmax;
        lvn_heatmap_attr heatmap;
        lvn_fft_attr fft;
        lvn_norm_attr norm;
        lvn_layer_norm_attr layer_norm;
        lvn_group_norm_attr group_norm;
        lvn_attention_attr attention;
        lvn_class_loss_attr class_loss;
        lvn_point_loss_attr point_loss;
        lvn_lookup_attr lookup;
        lvn_dropout_attr dropout;
        lvni_tensor_desc desc; /* of input 1 */
        struct {
            const void *curve; /* row of op_curves.c */
            union {
                lvn_number_attr number;
                lvn_range_attr range;
            } attr;
        } curve;
        struct {
            lvni_kernels_op op;
            union {
                lvn_permute_attr permute;
                lvn_box_attr box;
                lvn_axis_attr axis;
                lvn_scan_attr scan;
            } attr;
        } move; /* what op_move.c did */
        struct {
            int axis;
            int64_t size[LVNI_NODE_IN]; /* of each input along it */
        } concat;
        struct {
            int64_t first; /* row of the result at which this micro-batch's own begin */
        } micro_batch;
        struct {
            lvn_norm_attr norm; /* of the kernels */
            int64_t values;     /* of a channel in the whole group */
        } micro_batch_norm;
        struct {
            int stage, edge; /* of the other end (placing.h) */
        } passing;
        lvni_autograd_function_record function;
    } attr;
};

/* A micro-batch's gradients: slices of one flat f32 buffer, in the order of the model's
 * parameters. */
enum { LVNI_GRADIENT_THERE = 1, LVNI_GRADIENT_ZEROS = 2 };
typedef struct lvni_autograd_gradients {
    float *data;
    const int64_t *offset; /* of parameter i, in elements */
    /* parameter i has its gradient, LVNI_GRADIENT_ZEROS when it is none (0: its slice is
     * undefined) */
    unsigned char *written;
    int n;
    /* Called (NULL: not) as soon as nothing can be added to the gradient of a parameter any more,
     * while lvn_backward goes on with older nodes. Not called for parameters that the tape does
     * not mention. */
    void (*final)(void *user, int parameter);
    void *user;
    /* n entries, the walk's own: the last node that can add to parameter i; needed by `final`
     * alone */
    const lvni_autograd_node **oldest;
} lvni_autograd_gradients;

/* ---- recording ---- */
/* True when one of the n inputs leads to something that wants a gradient and the thread records. */
bool lvni_autograd_records(lvn_tensor *const *in, int n);
/* A node for `out`; NULL without error when nothing needs to be recorded, NULL with the scope
 * failed when memory is out (*failed is set then). Inputs beyond n_in and absent inputs are
 * NULL. */
lvni_autograd_node *lvni_autograd_record(const char *name, lvni_autograd_backward_rule backward,
                                         lvn_tensor *out, lvn_tensor *const *in, int n_in);
void lvni_autograd_save(lvni_autograd_node *node, int i, lvn_tensor *t); /* retains */

/* ---- in backward rules ---- */
static inline bool lvni_autograd_grad_wanted(const lvni_autograd_node *node, int i)
{
    return (node->wanted >> i & 1u) != 0;
}
/* Where the gradient of input i is best written: the parameter's own slice, or NULL (let
 * lvni_kernels_run make a tensor). Owned by the caller, who passes it on to
 * lvni_autograd_grad_give. */
lvn_tensor *lvni_autograd_grad_dest(lvni_autograd_node *node, int i);
/* The gradient that input i, a parameter, has already got in this walk, for a rule that can add to
 * it in place; NULL when there is none. Owned by the caller like that of
 * lvni_autograd_grad_dest. */
lvn_tensor *lvni_autograd_grad_written(lvni_autograd_node *node, int i);
/* lvni_kernels_run for backward rules: on failure the outputs that lvni_autograd_grad_dest gave are
 * released as well. */
lvn_status lvni_autograd_grad_run(lvni_kernels_op op, lvn_kernel_args *args, unsigned want);
/* Hand over (moves t, also on failure). A gradient of another float type than its input is cast. */
lvn_status lvni_autograd_grad_give(lvni_autograd_node *node, int i, lvn_tensor *t);
/* The same for what a kernel has made for inputs [0, n), a bit each: to those that want it, and the
 * rest is released. Moves all of out. */
lvn_status lvni_autograd_grad_give_all(lvni_autograd_node *node, lvn_tensor *const *out, int n,
                                       unsigned made);
/* lvni_autograd_grad_give for rules written with ops: t belongs to the scope. NULL: the ops
 * failed. */
lvn_status lvni_autograd_grad_give_op(lvni_autograd_node *node, int i, lvn_tensor *t);
/* Run a kernel whose outputs are the gradients of inputs 1 (weight) and 2 (bias), where wanted, and
 * hand them over. */
lvn_status lvni_autograd_grad_weight_and_bias(lvni_autograd_node *node, lvni_kernels_op op,
                                              lvn_kernel_args *args);

/* ---- what ops do ---- */
/* The first thing in a public op: false when an input is NULL (`optional`: bit i allows it) or the
 * scope has failed; the op then returns lvni_autograd_op_fail(name). Gives the inputs the types
 * that the table asks for (ops.def), by recorded casts. */
bool lvni_autograd_op_begin(lvni_kernels_op op, lvn_tensor **in, int n, unsigned optional);
/* For an input that gets no gradient from the op: LVN_ERR_UNSUPPORTED when it would have to. NULL
 * is fine. */
lvn_status lvni_autograd_op_constant(const char *op, const char *what, lvn_tensor *t);
/* A recorded cast; x itself when it has the type. NULL when it fails. */
lvn_tensor *lvni_autograd_cast(lvn_tensor *x, lvn_dtype dtype);
/* The innermost scope has failed, or an input is NULL: the op must return NULL. */
bool lvni_autograd_scope_failed(void);
int lvni_autograd_scope_depth(void); /* open scopes; 0: outside of all */
/* Mark the scope as failed with the thread's last error (first one wins); returns NULL for the op
 * to return. */
lvn_tensor *lvni_autograd_op_fail(const char *op);
/* Give an op's result to the innermost scope; returns it. NULL passes through as a failure. */
lvn_tensor *lvni_autograd_adopt(lvn_tensor *t);
/* Run a kernel and adopt all its outputs. The first one; NULL on failure. */
lvn_tensor *lvni_autograd_op_run(lvni_kernels_op op, lvn_kernel_args *args, unsigned want);

/* Where a backward pass begins: the product of the three; NULL, or in memory of the device where
 * the loss lies. */
typedef struct lvni_autograd_seed {
    double number;
    const double *weight, *factor;
} lvni_autograd_seed;
/* lvn_backward_scaled by it. */
lvn_status lvni_autograd_backward(lvn_tensor *loss, const lvni_autograd_seed *seed);
/* The backward pass of a stage without the loss (placing.h): from what others send. */
lvn_status lvni_autograd_backward_received(void);

#endif

/* Ops on tensors, scopes, gradients.
 *
 * An op returns its result, which belongs to the innermost open scope. On failure it returns NULL,
 * keeps the thread's first error and marks the scope: from then on every op in that scope returns
 * NULL, as does an op that is given NULL. So formulas are written as formulas and checked once, at
 * lvn_scope_close() or lvn_backward(). Outside of all scopes a tensor lives until its thread ends:
 * open one. Types: f32 runs on the cpu backend, f64 on the reference backend. All inputs of an op
 * have the same type, labels are i64. bf16 and f16 are stored and rounded as such and computed in
 * f32, or natively where the CPU can; `levin ops` shows in which type an op runs under mixed
 * precision: `low` ones cast f32 to 16 bits there and nothing outside of it, the others cast 16
 * bits to f32 (`f32` ones always, so lvn_softmax, lvn_sum or lvn_exp of bf16 is f32; `widest` ones
 * beside f32) in and outside of it, and `given` ones keep the type. Weights and statistics may be
 * f32 beside bf16 or f16 images. Denormals: arithmetic takes them for 0 and gives 0 for them; what
 * compares and chooses (lvn_sign, lvn_gt, lvn_maximum,
 * ...) sees them. A call leaves the calling thread's floating-point state (rounding, flush to zero)
 * as it was. Named options stand behind the positional arguments: lvn_conv2d(x, w, b, .stride = 2);
 * leaving one out, or 0, gives PyTorch's default. The macro fills a struct and calls the function
 * that ends in _with, which may be called by itself: with NULL, or with a struct whose struct_size
 * is its sizeof (else LVN_ERR_INVALID). An enum that has no such value is LVN_ERR_INVALID, too. */
#ifndef LEVIN_OPS_H
#define LEVIN_OPS_H

#include <levin/ops_elementwise.h>
#include <levin/ops_image.h>
#include <levin/ops_linear.h>
#include <levin/ops_loss.h>
#include <levin/ops_norm.h>
#include <levin/ops_reduce.h>
#include <levin/ops_seq.h>
#include <levin/ops_shape.h>
#include <levin/ops_group.h>
#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- scopes ---- */
LVN_API lvn_status lvn_scope_open(void);
/* Releases the scope's tensors. Returns the status of the first op that failed in it (and
 * lvn_last_error() is that error again); a failure passes on to the scope outside. Closing the
 * outermost scope also drops the tape. */
LVN_API lvn_status lvn_scope_close(void);
LVN_API lvn_status lvn_scope_status(void); /* of the innermost scope, without closing it */
/* Hand an op's result to the caller, who lvn_release()s it. NULL passes through. */
LVN_API lvn_tensor *lvn_keep(lvn_tensor *t);

/* ---- gradients ---- */
LVN_API lvn_tensor *lvn_require_grad(lvn_tensor *t); /* marks a leaf; returns t */
/* dL/d(leaf) for every leaf that requires a gradient, added to what it has. loss: one element. The
 * tape is gone afterwards: a second gradient needs the forward pass again, or lvn_grad() before
 * this. */
LVN_API lvn_status lvn_backward(lvn_tensor *loss);
/* The same with dL/d(loss) = seed. */
LVN_API lvn_status lvn_backward_scaled(lvn_tensor *loss, double seed);
/* The gradient of a leaf after lvn_backward(), same shape; borrowed from t; NULL when it has
 * none. */
LVN_API lvn_tensor *lvn_gradient(lvn_tensor *t);
LVN_API void lvn_zero_grad(lvn_tensor *t);
/* dy/dx of one tensor, a leaf or a result, which belongs to the scope. The tape stays, and
 * gradients of leaves are left alone. With .create_graph the gradient is itself recorded and can be
 * differentiated (a gradient penalty); `levin ops` lists the ops that can. */
typedef struct lvn_grad_options {
    size_t struct_size;
    lvn_tensor *grad_output; /* dL/dy, as y; NULL: y has one element, 1 */
    bool create_graph;
} lvn_grad_options;
LVN_API lvn_tensor *lvn_grad_with(lvn_tensor *y, lvn_tensor *x, const lvn_grad_options *o);
#define lvn_grad(y, x, ...)                                                                        \
    lvn_grad_with((y), (x),                                                                        \
                  &(lvn_grad_options){.struct_size = sizeof(lvn_grad_options), __VA_ARGS__})
/* The same for n tensors at once: grads[k] = dy/dx[k]. On failure all are NULL. */
LVN_API lvn_status lvn_grads_with(lvn_tensor *y, lvn_tensor *const *x, int n, lvn_tensor **grads,
                                  const lvn_grad_options *o);
/* Switch recording off or on in this thread; returns what it was. */
LVN_API bool lvn_set_grad_enabled(bool enabled);
/* The same values without a past: nothing is recorded behind it. Shares the memory of x. */
LVN_API lvn_tensor *lvn_detach(lvn_tensor *x);

/* ---- a user's own op ---- */
enum { LVN_FUNCTION_INPUTS = 8, LVN_FUNCTION_SAVED = 4 };
typedef struct lvn_function_call {
    const void *attr; /* the call's own copy */
    /* forward puts here what backward needs; kept by the tape. With `differentiable` inputs alone:
     * what forward computed has no past, and a second derivative would miss what runs through
     * it. */
    lvn_tensor *saved[LVN_FUNCTION_SAVED];
    bool wanted[LVN_FUNCTION_INPUTS]; /* in backward: input i wants its gradient */
} lvn_function_call;
typedef struct lvn_function {
    const char *name;
    size_t attr_size; /* at most 64 */
    /* Returns a new tensor: made with ops (nothing is recorded) or with lvn_zeros() and filled by
     * hand. NULL: failed. */
    lvn_tensor *(*forward)(lvn_function_call *call, lvn_tensor *const *in);
    /* dx[i] = dL/d(input i), made with ops or lvn_zeros(), for every input that is wanted. */
    lvn_status (*backward)(lvn_function_call *call, lvn_tensor *dy, lvn_tensor **dx);
    bool differentiable; /* backward uses ops alone, so create_graph can record it */
} lvn_function;
LVN_API lvn_tensor *lvn_apply(const lvn_function *f, lvn_tensor *const *in, int n_in,
                              const void *attr);

/* ---- new tensors that belong to the scope ---- */
LVN_API lvn_tensor *lvn_zeros(lvn_dtype dtype, int ndim, const int64_t *shape);
/* Random f32 numbers, uniform in [0, 1) or standard normal, without gradient. They follow from
 * seed, step, micro-batch, module, name and the call's number alone (docs/reproducibility.md), so
 * nothing is stored; another name, other numbers. In evaluation, with a row for each sample of the
 * batch, a row follows from its sample. In a step: lvn_random_uniform(step, "penalty", n, 1, 1,
 * 1). */
LVN_API lvn_tensor *lvn_random_uniform_with(const char *name, int ndim, const int64_t *shape);
LVN_API lvn_tensor *lvn_random_normal_with(const char *name, int ndim, const int64_t *shape);
/* An order of 0 to n - 1 as i64 (n), such as that of a micro-batch's partners in mixup; drawn where
 * the step is computed, so that it can be captured. */
LVN_API lvn_tensor *lvn_random_permutation(const char *name, int64_t n);
#define lvn_random_uniform(step, name, ...)                                                        \
    ((void)(step), lvn_random_uniform_with((name), LVN_SHAPE(__VA_ARGS__)))
#define lvn_random_normal(step, name, ...)                                                         \
    ((void)(step), lvn_random_normal_with((name), LVN_SHAPE(__VA_ARGS__)))
/* To another float type, rounded to nearest even; x itself when it has the type. */
LVN_API lvn_tensor *lvn_cast(lvn_tensor *x, lvn_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif

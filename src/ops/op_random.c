/* Random numbers inside a forward, at the position in training (core/rng.h has the packing): named
 * draws, and dropout. */
#include "autograd/placing.h"
#include "kernels/random.h"
#include "tensor/device.h"

/* Of the next draw with this name. */
static lvni_core_rng stream(lvni_tensor_ctx *ctx, const char *name)
{
    const uint64_t purpose =
        lvni_core_rng_purpose(ctx->module_path) + 0x9e3779b97f4a7c15u * lvni_core_rng_purpose(name);
    return (lvni_core_rng){.key = lvni_core_rng_make_key(ctx->at.seed, purpose),
                           .a = ctx->at.step,
                           .b = ctx->at.micro_batch,
                           .c = ctx->at.call++};
}

static lvn_tensor *draw(const char *op, const char *name, int ndim, const int64_t *shape,
                        void (*fill)(float *y, int64_t n, const lvni_core_rng *rng))
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx == NULL || lvni_autograd_scope_failed()) {
        return lvni_autograd_op_fail(op);
    }
    lvn_tensor *y = lvn_zeros(LVN_F32, ndim, shape);
    const lvni_tensor_desc d = y == NULL ? (lvni_tensor_desc){0} : lvni_tensor_get_desc(y);
    lvn_tensor *host = y == NULL ? NULL : lvni_tensor_new_on(&d, NULL); /* a device gets a copy */
    if (host == NULL) {
        return lvni_autograd_op_fail(op);
    }
    lvni_core_rng rng = stream(ctx, name);
    const bool by_sample = ctx->at.sample != NULL && ndim > 0 && shape[0] == ctx->at.n_samples;
    const int64_t rows = by_sample ? shape[0] : 1, each = lvn_numel(host) / (rows > 0 ? rows : 1);
    for (int64_t i = 0; i < rows; i++) {
        rng.b = by_sample ? (uint32_t)ctx->at.sample[i] : rng.b;
        fill(LVNI_F32(host) + i * each, each, &rng);
    }
    const lvn_status s =
        lvni_tensor_mem_copy(y->data, host->data, (size_t)lvn_numel(host) * sizeof(float));
    lvn_release(host);
    return s == LVN_OK ? y : lvni_autograd_op_fail(op);
}

lvn_tensor *lvn_random_uniform_with(const char *name, int ndim, const int64_t *shape)
{
    return draw("random_uniform", name, ndim, shape, lvni_kernels_random_uniform);
}

static void standard_normal(float *y, int64_t n, const lvni_core_rng *rng)
{
    lvni_kernels_random_normal(y, n, 1.0, rng);
}

lvn_tensor *lvn_random_normal_with(const char *name, int ndim, const int64_t *shape)
{
    return draw("random_normal", name, ndim, shape, standard_normal);
}

/* ---- dropout ---- */

static lvn_status dropout_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    /* the same numbers again: nothing was stored */
    lvn_kernel_args a = {.in = {dy}, .attr = &n->attr.dropout};
    LVN_TRY(lvni_kernels_run(LVNI_OP_dropout, &a, 1));
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

static lvn_tensor *dropout_with(lvn_tensor *x, const lvn_dropout_attr *attr);

static lvn_status dropout_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give_op(n, 0, dropout_with(dy, &n->attr.dropout));
}

static lvn_tensor *dropout_with(lvn_tensor *x, const lvn_dropout_attr *attr)
{
    lvn_kernel_args args = {.in = {x}, .attr = attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_dropout, &args, 1);
    lvni_autograd_node *node =
        lvni_autograd_record("dropout", dropout_backward, y, (lvn_tensor *[]){x}, 1);
    if (node != NULL) {
        node->backward_ops = dropout_backward_ops;
        node->attr.dropout = *attr;
    }
    return y;
}

/* Half of all elements, as the stream has it. */
static lvn_dropout_attr half(lvni_tensor_ctx *ctx, const char *name)
{
    const lvni_core_rng rng = stream(ctx, name);
    return (lvn_dropout_attr){.p = 0.5,
                              .rng = {.key = {rng.key.k[0], rng.key.k[1]},
                                      .a = rng.a,
                                      .b = rng.b,
                                      .c = rng.c,
                                      .a_there = ctx->at.step_on_device}};
}

/* The order of n random numbers of 16 bits, all of which are drawn where the step is computed, so
 * that it can be captured; equal ones by place. */
lvn_tensor *lvn_random_permutation(const char *name, int64_t n)
{
    enum { BITS = 16 };
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx == NULL || lvni_autograd_scope_failed()) {
        return lvni_autograd_op_fail("random_permutation");
    }
    if (n == 0) {
        return lvn_zeros(LVN_I64, LVN_SHAPE(0));
    }
    const lvn_dropout_attr attr = half(ctx, name);
    /* what is kept becomes 1 */
    lvn_tensor *bits =
        dropout_with(lvn_add_scalar(lvn_zeros(LVN_F32, LVN_SHAPE(n, BITS)), 0.5), &attr);
    for (int64_t left = BITS / 2; left > 0; left /= 2) {
        bits = lvn_add(lvn_mul_scalar(lvn_slice(bits, 1, 0, left), (double)(1 << left)),
                       lvn_slice(bits, 1, left, 2 * left));
    }
    return lvn_argsort(lvn_reshape(bits, LVN_SHAPE(n)), 0, false);
}

lvn_tensor *lvn_dropout(lvn_tensor *x, double p)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (x == NULL || ctx == NULL || lvni_autograd_scope_failed() ||
        !lvni_autograd_stages_op("dropout", &x, 1)) {
        return lvni_autograd_op_fail("dropout");
    }
    if (!(p >= 0.0 && p < 1.0)) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                      "dropout: p is %g; it must be at least 0 and below 1", p);
        return lvni_autograd_op_fail("dropout");
    }
    if (!ctx->at.training || p == 0.0) {
        return x;
    }
    const lvni_core_rng_key key =
        lvni_core_rng_make_key(ctx->at.seed, lvni_core_rng_purpose(ctx->module_path));
    const lvn_dropout_attr attr = {.p = p,
                                   .rng = {.key = {key.k[0], key.k[1]},
                                           .a = ctx->at.step,
                                           .b = ctx->at.micro_batch,
                                           .c = ctx->at.call++,
                                           .a_there = ctx->at.step_on_device}};
    return dropout_with(x, &attr);
}

/* What public ops do before anything else (lvni_autograd_op_begin): look for failed inputs, and
 * give inputs the types that the op table asks for under the precision of the context. Casts are
 * recorded, so gradients come back in the type of the original. */
#include "autograd/tape_impl.h"

#include "autograd/placing.h"

static lvn_status cast_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give(n, 0, lvn_retain(dy)); /* which casts it back */
}

lvn_tensor *lvni_autograd_cast(lvn_tensor *x, lvn_dtype dtype)
{
    if (x->dtype == dtype) {
        return x;
    }
    const lvn_cast_attr attr = {.dtype = dtype};
    lvn_kernel_args args = {.in = {x}, .attr = &attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_cast, &args, 1);
    lvni_autograd_node *node =
        lvni_autograd_record("cast", cast_backward, y, (lvn_tensor *[]){x}, 1);
    if (node != NULL) {
        node->backward_ops = cast_backward;
    }
    return y;
}

lvn_tensor *lvn_cast(lvn_tensor *x, lvn_dtype dtype)
{
    if (x == NULL || lvni_autograd_scope_failed() || !lvni_autograd_stages_op("cast", &x, 1)) {
        return lvni_autograd_op_fail("cast");
    }
    return lvni_autograd_cast(x, dtype);
}

static bool several_float_types(lvn_tensor *const *in, int n)
{
    lvn_dtype first = LVN_DTYPE_COUNT;
    for (int i = 0; i < n; i++) {
        if (in[i] == NULL || (in[i]->dtype != LVN_F32 && !lvni_tensor_is_low(in[i]->dtype))) {
            continue;
        }
        if (first != LVN_DTYPE_COUNT && in[i]->dtype != first) {
            return true;
        }
        first = in[i]->dtype;
    }
    return false;
}

/* The type that input i, t, takes; its own when the table asks for nothing. */
static lvn_dtype type_for(unsigned flags, int i, const lvn_tensor *t, bool mixed)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const bool low = lvni_tensor_is_low(t->dtype), full = t->dtype == LVN_F32;
    if ((flags & LVNI_LOW) != 0 && full && lvni_tensor_is_low(ctx->low)) {
        return ctx->low == LVN_BF16 && t->param >= 0 && (flags & LVNI_PARAMS) != 0 ? t->dtype
                                                                                   : ctx->low;
    }
    const unsigned beside = flags / LVNI_BESIDE;
    if ((flags & LVNI_FULL) != 0 && low && (beside == 0 || (beside >> i & 1u) != 0)) {
        return LVN_F32;
    }
    return (flags & LVNI_WIDEST) != 0 && low && mixed ? LVN_F32 : t->dtype;
}

lvn_status lvni_autograd_op_constant(const char *op, const char *what, lvn_tensor *t)
{
    if (lvni_autograd_records(&t, 1)) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: %s requires a gradient, but gets none here; lvn_detach of it is a constant",
                 op, what);
    }
    return LVN_OK;
}

bool lvni_autograd_op_begin(lvni_kernels_op op, lvn_tensor **in, int n, unsigned optional)
{
    const unsigned flags = lvni_kernels_ops[op].flags;
    for (int i = 0; i < n; i++) {
        if (in[i] == NULL && (optional >> i & 1u) == 0) {
            return false;
        }
    }
    if (lvni_autograd_scope_failed() ||
        !lvni_autograd_stages_op(lvni_kernels_ops[op].name, in, n)) {
        return false;
    }
    if ((flags & (LVNI_LOW | LVNI_FULL | LVNI_WIDEST)) == 0) {
        return true;
    }
    const bool mixed = several_float_types(in, n);
    for (int i = 0; i < n; i++) {
        if (in[i] != NULL) {
            in[i] = lvni_autograd_cast(in[i], type_for(flags, i, in[i], mixed));
            if (in[i] == NULL) {
                return false;
            }
        }
    }
    return true;
}

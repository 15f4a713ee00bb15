/* Attention with a mask or dropout, made of products and a softmax (ops/attention.h). */
#include "ops/attention.h"
#include "tensor/device.h"

/* A number of the type of x, where x lies. */
static lvn_tensor *number_like(const lvn_tensor *x, lvn_dtype dtype, double value)
{
    const lvni_tensor_desc d = {.dtype = dtype};
    lvn_tensor *t = lvni_tensor_number(&d, value, lvni_tensor_device_of(x->data));
    return t == NULL ? lvni_autograd_op_fail("attention") : lvni_autograd_adopt(t);
}

/* (T, S): true where s <= t; made where x lies, of sums of ones. */
static lvn_tensor *past(const lvn_tensor *x, int64_t queries, int64_t keys)
{
    lvn_tensor *ones =
        lvn_expand(number_like(x, LVN_F32, 1.0), 2, (const int64_t[]){queries, keys});
    return lvn_le(lvn_cumsum(ones, 1), lvn_cumsum(ones, 0));
}

static lvn_status check_mask(const lvn_tensor *mask, const int64_t scores[4])
{
    char have[96], need[96];
    bool fits = mask->ndim <= 4;
    for (int i = 0; fits && i < mask->ndim; i++) {
        fits = mask->shape[i] == 1 || mask->shape[i] == scores[4 - mask->ndim + i];
    }
    if (!fits) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "attention: the mask is %s, which cannot be broadcast to (N, H, T, S) = %s",
                 lvni_tensor_shape_string(mask->ndim, mask->shape, have),
                 lvni_tensor_shape_string(4, scores, need));
    }
    if (mask->dtype != LVN_BOOL) {
        LVN_FAIL(LVN_ERR_DTYPE, "attention: the mask is %s, it must be bool",
                 lvn_dtype_name(mask->dtype));
    }
    return LVN_OK;
}

/* x (N, H, T, S) where all masks are true, else a number. */
static lvn_tensor *show(lvn_tensor *x, lvn_tensor *const masks[2], double hidden)
{
    for (int i = 0; x != NULL && i < 2; i++) {
        x = masks[i] == NULL ? x : lvn_where(masks[i], x, number_like(x, x->dtype, hidden));
    }
    return x;
}

/* Hidden keys get a number whose e^x is 0 beside any other: -inf would give a row without keys NaN,
 * and so its gradient; here its probabilities are put to 0 in the end. */
static lvn_tensor *probabilities(lvn_tensor *scores, lvn_tensor *const masks[2])
{
    if (scores == NULL) {
        return NULL;
    }
    lvn_tensor *p = lvn_softmax(show(scores, masks, scores->dtype == LVN_F16 ? -65504.0 : -1e30));
    return masks[1] == NULL ? p : show(p, masks, 0.0);
}

static lvn_tensor *heads_first(lvn_tensor *x)
{
    return lvn_permute(x, (const int[]){0, 2, 1, 3}, 4);
}

lvn_tensor *lvni_ops_attention_of_products(lvn_tensor *const in[3], const lvn_attention_attr *attr,
                                           lvn_tensor *mask, double dropout)
{
    const lvn_kernel_args args = {.in = {in[0], in[1], in[2]}, .attr = attr};
    lvni_tensor_desc out[LVN_KERNEL_OUTPUTS];
    if (lvni_kernels_ops[LVNI_OP_attention].shape(&args, out) != LVN_OK) {
        return lvni_autograd_op_fail("attention");
    }
    const int64_t queries = in[0]->shape[1], keys = in[1]->shape[1];
    if (mask != NULL && check_mask(mask, (const int64_t[]){in[0]->shape[0], in[0]->shape[2],
                                                           queries, keys}) != LVN_OK) {
        return lvni_autograd_op_fail("attention");
    }
    lvn_tensor *const masks[2] = {attr->causal ? past(in[0], queries, keys) : NULL, mask};
    lvn_tensor *q = lvn_mul_scalar(heads_first(in[0]), attr->scale);
    lvn_tensor *scores = lvn_matmul(q, heads_first(in[1]), .trans_b = true);
    lvn_tensor *p = lvn_dropout(probabilities(scores, masks), dropout); /* f32 of 16-bit scores */
    return p == NULL ? NULL
                     : heads_first(lvn_matmul(lvn_cast(p, in[2]->dtype), heads_first(in[2])));
}

lvn_tensor *lvni_ops_attention_qkv_of_products(lvn_tensor *qkv, const lvn_attention_attr *attr,
                                               lvn_tensor *mask, double dropout)
{
    const lvn_kernel_args args = {.in = {qkv}, .attr = attr};
    lvni_tensor_desc out[LVN_KERNEL_OUTPUTS];
    if (lvni_kernels_ops[LVNI_OP_attention_qkv].shape(&args, out) != LVN_OK) {
        return lvni_autograd_op_fail("attention_qkv");
    }
    lvn_tensor *in[3];
    for (int i = 0; i < 3; i++) {
        in[i] = lvn_reshape(lvn_slice(qkv, 2, i, i + 1), out[0].ndim, out[0].shape);
        if (in[i] == NULL) {
            return NULL;
        }
    }
    return lvni_ops_attention_of_products(in, attr, mask, dropout);
}

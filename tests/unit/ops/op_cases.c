/* The table of cases and their inputs (op_cases.h). */
#include "op_cases.h"

#include "core/math.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* -Wmissing-field-initializers: a row names what it has, the rest is zero by intent. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#define S(...)                                                                                     \
    {                                                                                              \
        true, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                           \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define S0                                                                                         \
    {                                                                                              \
        true, 0,                                                                                   \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

#define CASES(op, ...) static const op_case cases_##op[] = {__VA_ARGS__};
#include "cases.def"
#undef CASES

enum {
    N_ENTRIES = 0
#define CASES(op, ...) +1
#include "cases.def"
#undef CASES
};
_Static_assert((int)N_ENTRIES == (int)LVNI_OP_COUNT,
               "each op of ops.def needs exactly one CASES entry in cases.def");

const op_cases all_cases[LVNI_OP_COUNT] = {
#define LVNI_OP(op, inputs, outputs, attr_type, flags, sentence)                                   \
    [LVNI_OP_##op] = {cases_##op, (int)(sizeof cases_##op / sizeof *cases_##op)},
#include "kernels/ops.def"
#undef LVNI_OP
};

/* What the inputs of an op hold, a letter each (default: n):
 *   n normal   o normal around 3   z normal, |x| >= 0.5   p positive, >= 0.5   e up to +-85 (the
 *     range of
 * exp) s softmax of normal   g log-softmax of normal   l labels   i index along the reduced axis
 *   w place in
 * a pooling window m, r mean and 1/sqrt(var + eps) of input 1
 *   j index below the size in the attribute, k below the number of images   b bool   M, R the same
 * of the rows or groups of a norm   y, Y result and log-sums of attention */
static const char *const fills[LVNI_OP_COUNT] = {
    [LVNI_OP_div] = "nz",
    [LVNI_OP_exp] = "e",
    [LVNI_OP_log] = "p",
    [LVNI_OP_sqrt] = "p",
    [LVNI_OP_sqrt_grad] = "np",
    [LVNI_OP_rsqrt] = "p",
    [LVNI_OP_pow] = "pn",
    [LVNI_OP_pow_grad_base] = "pn",
    [LVNI_OP_pow_grad_exponent] = "pn",
    [LVNI_OP_div_or_zero] = "nz",
    [LVNI_OP_where] = "bnn",
    [LVNI_OP_reciprocal] = "z",
    [LVNI_OP_pow_scalar] = "p",
    [LVNI_OP_pow_scalar_grad] = "np",
    [LVNI_OP_index_select] = "nj",
    [LVNI_OP_mix_images] = "nk",
    [LVNI_OP_index_select_grad] = "nj",
    [LVNI_OP_gather] = "nj",
    [LVNI_OP_gather_grad] = "nj",
    [LVNI_OP_max_grad] = "ni",
    [LVNI_OP_max_pool2d_grad] = "nw",
    [LVNI_OP_batch_norm_train] = "onnn",
    [LVNI_OP_batch_norm_train_grad] = "nonmrnn",
    [LVNI_OP_batch_norm_eval] = "onnnpn",
    [LVNI_OP_batch_norm_eval_grad] = "nonnpnn",
    [LVNI_OP_batch_norm_moments] = "o",
    [LVNI_OP_batch_norm_sums] = "nonnpnn",
    [LVNI_OP_batch_norm_group_grad] = "nonnpnnn",
    [LVNI_OP_softmax_grad] = "ns",
    [LVNI_OP_log_softmax_grad] = "ng",
    [LVNI_OP_cross_entropy] = "nlpp",
    [LVNI_OP_cross_entropy_grad] = "nnYlpp",
    [LVNI_OP_nll] = "glpp",
    [LVNI_OP_nll_grad] = "nglpp",
    [LVNI_OP_point_loss] = "nnpp",
    [LVNI_OP_point_loss_grad] = "npnnpp",
    [LVNI_OP_embedding] = "nln",
    [LVNI_OP_embedding_grad] = "nl",
    [LVNI_OP_accuracy] = "nl",
    [LVNI_OP_layer_norm] = "onn",
    [LVNI_OP_layer_norm_grad] = "noMRn",
    [LVNI_OP_group_norm] = "onn",
    [LVNI_OP_group_norm_grad] = "noMRn",
    [LVNI_OP_attention_grad] = "nnnnyY",
    [LVNI_OP_attention_qkv_grad] = "nnyY",
};

static double real_value(char letter, double normal)
{
    switch (letter) {
    case 'o': return normal + 3.0;
    case 'z': return normal < 0 ? normal - 0.5 : normal + 0.5;
    case 'p': return fabs(normal) + 0.5;
    case 'e': return normal * 35.0;
    default: return normal;
    }
}

/* Two uniform halves of a word added: close enough to normal (deviation 1, up to 2.45), and
 * quick. */
static void fill_real(lvn_tensor *t, char letter, const lvni_core_rng *rng)
{
    double *x = t->data;
    const int64_t n = lvn_numel(t);
    for (int64_t e = 0; e < n; e += 4) {
        const uint32_t counter[4] = {(uint32_t)(e / 4)};
        uint32_t words[4];
        lvni_core_philox(counter, rng->key.k, words);
        for (int64_t i = e; i < n && i < e + 4; i++) {
            const uint32_t word = words[i - e];
            x[i] = real_value(letter, ((word >> 16) + (word & 0xffff) - 65535.0) * 3.7377e-5);
        }
    }
}

/* NaN and infinities at every third place or so, and whole runs of -inf. */
static void sprinkle(lvn_tensor *t, const lvni_core_rng *rng)
{
    double *x = t->data;
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        switch (lvni_core_rng_u32(rng, (uint64_t)e + 1000000) % 12) {
        case 0: x[e] = (double)NAN; break;
        case 1: x[e] = INFINITY; break;
        case 2:
        case 3: x[e] = -INFINITY; break;
        case 4: x[e] = -0.0; break;
        default: break;
        }
    }
}

static void fill_int(lvn_tensor *t, int64_t below, const lvni_core_rng *rng)
{
    uint64_t element = 0;
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        ((int64_t *)t->data)[e] = lvni_core_rng_below(rng, (uint32_t)below, &element);
    }
}

static void fill_bool(lvn_tensor *t, const lvni_core_rng *rng)
{
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        ((uint8_t *)t->data)[e] = (uint8_t)(lvni_core_rng_u32(rng, (uint64_t)e) & 1u);
    }
}

/* A random place of the window that lies in the image. */
static void fill_places(lvn_tensor *t, const lvn_pool_attr *a, const lvni_core_rng *rng)
{
    uint64_t element = 0;
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        const int64_t ow = e / t->shape[3] % t->shape[2],
                      oh = e / t->shape[3] / t->shape[2] % t->shape[1];
        int64_t h, w;
        uint32_t k;
        do {
            k = lvni_core_rng_below(rng, (uint32_t)(a->kernel[0] * a->kernel[1]), &element);
            h = oh * a->stride[0] - a->padding[0] + k / (uint32_t)a->kernel[1];
            w = ow * a->stride[1] - a->padding[1] + k % (uint32_t)a->kernel[1];
        } while (h < 0 || h >= a->in_h || w < 0 || w >= a->in_w);
        ((uint8_t *)t->data)[e] = (uint8_t)k;
    }
}

/* The size that `index` points along: that of the axis in which dy and x differ, or 1. */
static int64_t reduced_size(const case_dims *dy, const lvn_shape_attr *x)
{
    int64_t size = 1;
    for (int i = 0; i < x->ndim; i++) {
        size = dy->shape[i] != x->shape[i] ? x->shape[i] : size;
    }
    return size;
}

/* Labels 0 for the rows of x: what cross entropy keeps does not depend on them. */
static lvn_tensor *no_labels(const lvn_tensor *x)
{
    lvn_tensor *t = support_tensor(LVN_I64, x->ndim - 1, x->shape);
    memset(t->data, 0, (size_t)lvn_numel(t) * sizeof(int64_t));
    return t;
}

/* What the forward op keeps for gradient `op`, whose other inputs are there: output k. */
static lvn_tensor *kept_by_forward(lvni_kernels_op op, const op_case *row, lvn_tensor *const *in,
                                   int k)
{
    switch (op) {
    case LVNI_OP_layer_norm_grad: return REF(layer_norm, &row->attr, in[1]).out[k];
    case LVNI_OP_group_norm_grad: return REF(group_norm, &row->attr, in[1]).out[k];
    case LVNI_OP_attention_grad: return REF(attention, &row->attr, in[1], in[2], in[3]).out[k];
    case LVNI_OP_attention_qkv_grad: return REF(attention_qkv, &row->attr, in[1]).out[k];
    case LVNI_OP_cross_entropy_grad:
        return REF(cross_entropy, &row->attr, in[1], no_labels(in[1])).out[k];
    default: fail_msg("%s has no forward op here", ref_ops[op].name); return NULL;
    }
}

/* Labels count the last axis of the logits, ids the rows of a table. */
static int64_t labels_below(lvni_kernels_op op, const op_case *row, int i)
{
    switch (op) {
    case LVNI_OP_embedding: return row->in[0].shape[0];
    case LVNI_OP_embedding_grad: return row->attr.lookup.rows;
    default: break;
    }
    const case_dims *logits = &row->in[op == LVNI_OP_cross_entropy_grad ? 1 : i - 1];
    return logits->shape[logits->ndim - 1];
}

/* Input i of a row in f64 (or its integer type); earlier inputs are there already. */
static lvn_tensor *make_input(lvni_kernels_op op, const op_case *row, int i, char letter,
                              lvn_tensor *const *in, const lvni_core_rng *rng)
{
    const case_dims *d = &row->in[i];
    if (letter == 'm' || letter == 'r') {
        const lvn_norm_attr attr = {.eps = 1e-5};
        return REF(batch_norm_train, &attr, in[1], in[2], in[2]).out[letter == 'm' ? 1 : 2];
    }
    if (letter == 'M' || letter == 'R' || letter == 'y' || letter == 'Y') {
        return kept_by_forward(op, row, in, letter == 'y' ? 0 : letter == 'R' ? 2 : 1);
    }
    const lvn_dtype dtype = letter == 'l' || letter == 'i' || letter == 'j' || letter == 'k'
                                ? LVN_I64
                            : letter == 'w' ? LVN_U8
                            : letter == 'b' ? LVN_BOOL
                                            : LVN_F64;
    lvn_tensor *t = support_tensor(dtype, d->ndim, d->shape);
    switch (letter) {
    case 'l': fill_int(t, labels_below(op, row, i), rng); return t;
    case 'i': fill_int(t, reduced_size(&row->in[0], &row->attr.shape), rng); return t;
    case 'b': fill_bool(t, rng); return t;
    case 'j': fill_int(t, row->attr.axis.size, rng); return t;
    case 'k': fill_int(t, row->in[0].shape[0], rng); return t;
    case 'w': fill_places(t, &row->attr.pool, rng); return t;
    default: fill_real(t, letter, rng); break;
    }
    if (i == 0 && row->special) {
        sprinkle(t, rng);
    }
    return letter == 's'   ? REF(softmax, NULL, t).out[0]
           : letter == 'g' ? REF(log_softmax, NULL, t).out[0]
                           : t;
}

/* The same numbers in f32; the f64 tensor is rounded to them. */
static lvn_tensor *round_to_f32(lvn_tensor *t)
{
    if (t->dtype != LVN_F64) {
        return t;
    }
    lvn_tensor *f = support_tensor(LVN_F32, t->ndim, t->shape);
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        LVNI_F32(f)[e] = (float)((double *)t->data)[e];
        ((double *)t->data)[e] = (double)LVNI_F32(f)[e];
    }
    return f;
}

void case_inputs(lvni_kernels_op op, const op_case *row, lvn_tensor *in64[LVN_KERNEL_INPUTS],
                 lvn_tensor *in32[LVN_KERNEL_INPUTS])
{
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        in64[i] = in32[i] = NULL;
        if (i >= ref_ops[op].n_in || !row->in[i].given) {
            continue;
        }
        char purpose[96];
        snprintf(purpose, sizeof purpose, "%s/%s/%d", ref_ops[op].name, row->name, i);
        const lvni_core_rng rng = {.key =
                                       lvni_core_rng_make_key(1, lvni_core_rng_purpose(purpose))};
        in64[i] = make_input(op, row, i, fills[op] == NULL ? 'n' : fills[op][i], in64, &rng);
        in32[i] = round_to_f32(in64[i]);
    }
}

static lvn_tensor *round_to_low(lvn_tensor *t, lvn_dtype dtype)
{
    if (t->dtype != LVN_F64) {
        return t;
    }
    lvn_tensor *low = support_tensor(dtype, t->ndim, t->shape);
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        const float value = (float)((double *)t->data)[e];
        ((uint16_t *)low->data)[e] =
            dtype == LVN_BF16 ? lvni_core_f32_to_bf16(value) : lvni_core_f32_to_f16(value);
        ((double *)t->data)[e] = support_value(low, e);
    }
    return low;
}

void case_inputs_low(lvni_kernels_op op, const op_case *row, lvn_dtype dtype,
                     lvn_tensor *in64[LVN_KERNEL_INPUTS], lvn_tensor *low[LVN_KERNEL_INPUTS])
{
    case_inputs(op, row, in64, low);
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        low[i] = in64[i] == NULL ? NULL : round_to_low(in64[i], dtype);
    }
}

const void *case_attribute(lvni_kernels_op op, const op_case *row)
{
    return lvni_kernels_ops[op].attr_size > 0 ? &row->attr : NULL;
}

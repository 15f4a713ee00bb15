/* The table of cases and the inputs that are drawn for them (op_cases.h). */
#include "kernels/check/op_cases.h"

#include "core/math.h"
#include "tensor/tensor.h"

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

#define CASES(op, ...) static const lvni_check_case cases_##op[] = {__VA_ARGS__};
#include "kernels/check/cases.def"
#undef CASES

enum {
    N_ENTRIES = 0
#define CASES(op, ...) +1
#include "kernels/check/cases.def"
#undef CASES
};
_Static_assert((int)N_ENTRIES == (int)LVNI_OP_COUNT,
               "each op of ops.def needs exactly one CASES entry in cases.def");

const lvni_check_cases lvni_check_all[LVNI_OP_COUNT] = {
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
 *   t 0, 1 or 2, mostly 2
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
    [LVNI_OP_round] = "e",
    [LVNI_OP_floor] = "e",
    [LVNI_OP_ceil] = "e",
    [LVNI_OP_sin] = "e",
    [LVNI_OP_sin_grad] = "ne",
    [LVNI_OP_cos] = "e",
    [LVNI_OP_cos_grad] = "ne",
    [LVNI_OP_pow_scalar] = "p",
    [LVNI_OP_pow_scalar_grad] = "np",
    [LVNI_OP_index_select] = "nj",
    [LVNI_OP_mix_images] = "nk",
    [LVNI_OP_index_select_grad] = "nj",
    [LVNI_OP_gather] = "nj",
    [LVNI_OP_gather_grad] = "nj",
    [LVNI_OP_scatter_places] = "j",
    [LVNI_OP_max_grad] = "ni",
    [LVNI_OP_max_pool2d_grad] = "nw",
    [LVNI_OP_soft_argmax2d_grad] = "nnM",
    [LVNI_OP_heatmap2d] = "pt",
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
    case 't': return normal < -1.0 ? 0.0 : normal < -0.5 ? 1.0 : 2.0;
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
static int64_t reduced_size(const lvni_check_dims *dy, const lvn_shape_attr *x)
{
    int64_t size = 1;
    for (int i = 0; i < x->ndim; i++) {
        size = dy->shape[i] != x->shape[i] ? x->shape[i] : size;
    }
    return size;
}

/* Output k of the reference kernel; owned. */
static lvn_tensor *output_of_ref(lvni_kernels_op op, const void *attr, lvn_tensor *const *in,
                                 int n_in, int k)
{
    lvn_kernel_args args = {.attr = attr};
    memcpy(args.in, in, (size_t)n_in * sizeof *in);
    if (lvni_kernels_run(op, &args, ~0u) != LVN_OK) {
        return NULL;
    }
    for (int i = 0; i < lvni_kernels_ops[op].n_out; i++) {
        if (i != k) {
            lvn_release(args.out[i]);
        }
    }
    return args.out[k];
}

/* What cross entropy keeps of the rows of x does not depend on the labels: zeros. */
static lvn_tensor *kept_by_cross_entropy(const void *attr, lvn_tensor *x, int k)
{
    lvn_tensor *labels = lvn_tensor_create(LVN_I64, x->ndim - 1, x->shape), *kept = NULL;
    if (labels != NULL) {
        kept = output_of_ref(LVNI_OP_cross_entropy, attr, (lvn_tensor *[]){x, labels}, 2, k);
    }
    lvn_release(labels);
    return kept;
}

/* What the forward op keeps for gradient `op`, whose other inputs are there: output k. */
static lvn_tensor *kept_by_forward(lvni_kernels_op op, const lvni_check_case *row,
                                   lvn_tensor *const *in, int k)
{
    const void *attr = &row->attr;
    switch (op) {
    case LVNI_OP_layer_norm_grad: return output_of_ref(LVNI_OP_layer_norm, attr, in + 1, 1, k);
    case LVNI_OP_group_norm_grad: return output_of_ref(LVNI_OP_group_norm, attr, in + 1, 1, k);
    case LVNI_OP_attention_grad: return output_of_ref(LVNI_OP_attention, attr, in + 1, 3, k);
    case LVNI_OP_attention_qkv_grad:
        return output_of_ref(LVNI_OP_attention_qkv, attr, in + 1, 1, k);
    case LVNI_OP_soft_argmax2d_grad:
        return output_of_ref(LVNI_OP_soft_argmax2d, attr, in + 1, 1, k);
    case LVNI_OP_cross_entropy_grad: return kept_by_cross_entropy(attr, in[1], k);
    default:
        lvn_error_set(LVN_ERR_INTERNAL, __FILE__, __LINE__, "%s has no forward op in op_cases.c",
                      lvni_kernels_ops[op].name);
        return NULL;
    }
}

/* Mean (k 1) and 1/sqrt(var + eps) (k 2) of x. */
static lvn_tensor *statistics(lvn_tensor *x, lvn_tensor *gamma, int k)
{
    const lvn_norm_attr attr = {.eps = 1e-5};
    return output_of_ref(LVNI_OP_batch_norm_train, &attr, (lvn_tensor *[]){x, gamma, gamma}, 3, k);
}

/* Labels count the last axis of the logits, ids the rows of a table. */
static int64_t labels_below(lvni_kernels_op op, const lvni_check_case *row, int i)
{
    switch (op) {
    case LVNI_OP_embedding: return row->in[0].shape[0];
    case LVNI_OP_embedding_grad: return row->attr.lookup.rows;
    default: break;
    }
    const lvni_check_dims *logits = &row->in[op == LVNI_OP_cross_entropy_grad ? 1 : i - 1];
    return logits->shape[logits->ndim - 1];
}

static lvn_dtype dtype_of(char letter)
{
    switch (letter) {
    case 'l':
    case 'i':
    case 'j':
    case 'k': return LVN_I64;
    case 'w': return LVN_U8;
    case 'b': return LVN_BOOL;
    default: return LVN_F64;
    }
}

static void fill(lvn_tensor *t, lvni_kernels_op op, const lvni_check_case *row, int i, char letter,
                 const lvni_core_rng *rng)
{
    switch (letter) {
    case 'l': fill_int(t, labels_below(op, row, i), rng); break;
    case 'i': fill_int(t, reduced_size(&row->in[0], &row->attr.shape), rng); break;
    case 'b': fill_bool(t, rng); break;
    case 'j': fill_int(t, row->attr.axis.size, rng); break;
    case 'k': fill_int(t, row->in[0].shape[0], rng); break;
    case 'w': fill_places(t, &row->attr.pool, rng); break;
    default:
        fill_real(t, letter, rng);
        if (i == 0 && row->special) {
            sprinkle(t, rng);
        }
    }
}

/* Input i of a case in f64 (or its integer type), owned; earlier inputs are there already. */
static lvn_tensor *make_input(lvni_kernels_op op, const lvni_check_case *row, int i, char letter,
                              lvn_tensor *const *in, const lvni_core_rng *rng)
{
    switch (letter) {
    case 'm': return statistics(in[1], in[2], 1);
    case 'r': return statistics(in[1], in[2], 2);
    case 'M':
    case 'Y': return kept_by_forward(op, row, in, 1);
    case 'R': return kept_by_forward(op, row, in, 2);
    case 'y': return kept_by_forward(op, row, in, 0);
    default: break;
    }
    int64_t shape[LVN_MAX_NDIM];
    for (int k = 0; k < LVN_MAX_NDIM; k++) {
        shape[k] = row->in[i].shape[k];
    }
    lvn_tensor *t = lvn_tensor_create(dtype_of(letter), row->in[i].ndim, shape);
    if (t == NULL) {
        return NULL;
    }
    fill(t, op, row, i, letter, rng);
    if (letter == 's' || letter == 'g') {
        lvn_tensor *logits = t;
        t = output_of_ref(letter == 's' ? LVNI_OP_softmax : LVNI_OP_log_softmax, NULL, &logits, 1,
                          0);
        lvn_release(logits);
    }
    return t;
}

/* A f64 tensor rounded to numbers of the type, and these in the type; integers are not copied. */
static lvn_tensor *round_to(lvn_tensor *t, lvn_dtype dtype)
{
    if (t->dtype != LVN_F64) {
        return lvn_retain(t);
    }
    double *truth = t->data;
    lvn_tensor *own =
        dtype == LVN_F64 ? lvn_retain(t) : lvn_tensor_create(dtype, t->ndim, t->shape);
    for (int64_t e = 0; own != NULL && e < lvn_numel(t); e++) {
        const float value = (float)truth[e];
        truth[e] = (double)value;
        if (dtype == LVN_F32) {
            LVNI_F32(own)[e] = value;
        } else if (dtype != LVN_F64) {
            ((uint16_t *)own->data)[e] =
                dtype == LVN_BF16 ? lvni_core_f32_to_bf16(value) : lvni_core_f32_to_f16(value);
            truth[e] = lvni_check_value(own, e);
        }
    }
    return own;
}

/* Statistics and vectors beside 16-bit tensors stay f32, as mixed precision has them. */
static lvn_dtype type_beside(lvni_kernels_op op, const lvni_check_case *row, int i, lvn_dtype dtype)
{
    const bool beside = ((lvni_kernels_ops[op].flags / LVNI_BESIDE | row->full) & 1u << i) != 0;
    return beside && (dtype == LVN_BF16 || dtype == LVN_F16) ? LVN_F32 : dtype;
}

/* Every input is drawn from those before it as f32 has them, whatever the type. */
lvn_status lvni_check_inputs_make(lvni_kernels_op op, const lvni_check_case *row, lvn_dtype dtype,
                                  lvni_check_inputs *out)
{
    *out = (lvni_check_inputs){.truth = {NULL}};
    for (int i = 0; i < lvni_kernels_ops[op].n_in; i++) {
        if (!row->in[i].given) {
            continue;
        }
        char name[96]; /* of no training */
        snprintf(name, sizeof name, "%s/%s/%d", lvni_kernels_ops[op].name, row->name, i);
        const lvni_core_rng rng = {.key = lvni_core_rng_make_key(1, lvni_core_rng_purpose(name))};
        out->truth[i] =
            make_input(op, row, i, fills[op] == NULL ? 'n' : fills[op][i], out->truth, &rng);
        lvn_tensor *f32 = out->truth[i] == NULL ? NULL : round_to(out->truth[i], LVN_F32);
        if (f32 == NULL) {
            const lvn_error error = *lvn_last_error();
            lvni_check_inputs_free(out);
            return lvn_error_adopt(&error);
        }
        out->own[i] = f32;
    }
    for (int i = 0; i < LVN_KERNEL_INPUTS && dtype != LVN_F32; i++) {
        lvn_tensor *own =
            out->truth[i] == NULL ? NULL : round_to(out->truth[i], type_beside(op, row, i, dtype));
        if (own == NULL && out->truth[i] != NULL) {
            lvni_check_inputs_free(out);
            return LVN_ERR_MEMORY;
        }
        lvn_release(out->own[i]);
        out->own[i] = own;
    }
    return LVN_OK;
}

void lvni_check_inputs_free(lvni_check_inputs *in)
{
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        lvn_release(in->truth[i]);
        lvn_release(in->own[i]);
    }
    *in = (lvni_check_inputs){.truth = {NULL}};
}

const void *lvni_check_attribute(lvni_kernels_op op, const lvni_check_case *row)
{
    return lvni_kernels_ops[op].attr_size > 0 ? &row->attr : NULL;
}

double lvni_check_value(const lvn_tensor *t, int64_t e)
{
    switch (t->dtype) {
    case LVN_F32: return (double)((const float *)t->data)[e];
    case LVN_F64: return ((const double *)t->data)[e];
    case LVN_I64: return (double)((const int64_t *)t->data)[e];
    case LVN_U8:
    case LVN_BOOL: return ((const uint8_t *)t->data)[e];
    case LVN_BF16: return (double)lvni_core_bf16_to_f32(((const uint16_t *)t->data)[e]);
    case LVN_F16: return (double)lvni_core_f16_to_f32(((const uint16_t *)t->data)[e]);
    default: return (double)NAN; /* no op gives it */
    }
}

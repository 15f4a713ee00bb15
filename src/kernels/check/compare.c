/* Results of kernels against the truth (op_cases.h). */
#include "kernels/check/op_cases.h"
#include "core/error.h"
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

#define OF_VALUE LVNI_CHECK_OF_VALUE
#define OF_TERMS LVNI_CHECK_OF_TERMS
#define OF_LARGEST LVNI_CHECK_OF_LARGEST
#define EXACTLY 0.0
#define ONE_ROUNDING 0x1p-24
#define A_FEW 0x1p-21

const lvni_check_tolerance lvni_check_tolerances[LVNI_OP_COUNT] = {
#include "kernels/check/tolerance.def"
};

/* ---- the truth ---- */

static void release_outputs(lvn_kernel_args *args)
{
    for (int i = 0; i < LVN_KERNEL_OUTPUTS; i++) {
        lvn_release(args->out[i]);
        args->out[i] = NULL;
    }
}

static lvn_status run_ref(lvni_kernels_op op, const lvni_check_case *row, lvn_tensor *const *in,
                          lvn_kernel_args *out)
{
    *out = (lvn_kernel_args){.attr = lvni_check_attribute(op, row)};
    memcpy(out->in, in, sizeof out->in);
    return lvni_kernels_run(op, out, ~0u);
}

static lvn_tensor *make_absolute(const lvn_tensor *t)
{
    lvn_tensor *a = lvn_tensor_create(LVN_F64, t->ndim, t->shape);
    for (int64_t e = 0; a != NULL && e < lvn_numel(t); e++) {
        ((double *)a->data)[e] = fabs(lvni_check_value(t, e));
    }
    return a;
}

/* The op on absolute values (inputs and numbers of the attribute): the size of the terms behind
 * each result. */
static lvn_status run_on_absolutes(lvni_kernels_op op, const lvni_check_case *row,
                                   lvn_tensor *const *in, lvn_kernel_args *out)
{
    lvn_tensor *absolute[LVN_KERNEL_INPUTS] = {NULL};
    lvn_status s;
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        if (in[i] != NULL) {
            absolute[i] = in[i]->dtype == LVN_F64 ? make_absolute(in[i]) : lvn_retain(in[i]);
            LVNI_TRY_DONE(s, absolute[i] == NULL ? LVN_ERR_MEMORY : LVN_OK);
        }
    }
    lvni_check_case copy = *row;
    if (op == LVNI_OP_scale) {
        copy.attr.scale.mul = fabs(copy.attr.scale.mul);
        copy.attr.scale.add = fabs(copy.attr.scale.add);
    }
    s = run_ref(op, &copy, absolute, out);
done:
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        lvn_release(absolute[i]);
    }
    return s;
}

/* ---- one output ---- */

static double largest_value(const lvn_tensor *t)
{
    double largest = 0.0;
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        const double v = fabs(lvni_check_value(t, e));
        largest = v > largest && v < HUGE_VAL ? v : largest;
    }
    return largest;
}

/* Error of one element in units of its measure; infinite when it must be exact and is not. */
static double error_of(double have, double want, double unit)
{
    if (have == want || (have != have && want != want)) {
        return 0.0;
    }
    const double difference = fabs(have - want);
    return unit > 0.0 && difference == difference ? difference / unit : HUGE_VAL;
}

static const char *coordinates(const lvn_tensor *t, int64_t e, char out[96])
{
    int64_t at[LVN_MAX_NDIM];
    for (int i = t->ndim - 1; i >= 0; i--) {
        at[i] = e % t->shape[i];
        e /= t->shape[i];
    }
    return lvni_tensor_shape_string(t->ndim, at, out);
}

/* What is allowed of a kernel with inputs of this type. A result in 16 bits is rounded, with as
 * much again for what the kernel rounds on its way; f64 is as much closer as it has more digits. */
static double allowed_for(double f32, lvn_dtype dtype)
{
    switch (dtype) {
    case LVN_BF16: return f32 + 0x1p-7;
    case LVN_F16: return f32 + 0x1p-10;
    case LVN_F64: return f32 * 0x1p-29;
    default: return f32;
    }
}

/* Two steps between the smallest numbers of f16; beyond its largest. */
static bool f16_has_no_better(double have, double want)
{
    return fabs(have - want) <= 0x1p-23 || (fabs(want) > 65000.0 && isinf(have));
}

typedef struct output {
    lvn_dtype dtype; /* of the inputs */
    int k;
    const lvn_tensor *have, *want, *terms;
    bool narrowed; /* an f32 input beside 16 bits was rounded to them */
    double *worst;
} output;

static lvn_status check_type(const output *o)
{
    const bool integer = o->want->dtype != LVN_F64;
    char have[96], want[96];
    const bool good = o->have->dtype == (integer ? o->want->dtype : o->dtype) ||
                      (!integer && o->have->dtype == LVN_F32); /* sums may stay f32 */
    if (!good || !lvni_tensor_same_shape(o->have, o->want)) {
        LVN_FAIL(LVN_ERR_MISMATCH, "output %d is %s %s, must be %s %s", o->k,
                 lvn_dtype_name(o->have->dtype),
                 lvni_tensor_shape_string(o->have->ndim, o->have->shape, have),
                 lvn_dtype_name(integer ? o->want->dtype : o->dtype),
                 lvni_tensor_shape_string(o->want->ndim, o->want->shape, want));
    }
    return LVN_OK;
}

static double narrowing_of(const output *o)
{
    return !o->narrowed || !lvni_tensor_is_low(o->dtype) ? 0.0
           : o->dtype == LVN_BF16                        ? 0x1p-8
                                                         : 0x1p-11;
}

static lvn_status compare_output(lvni_kernels_op op, const output *o)
{
    const lvni_check_tolerance tol = lvni_check_tolerances[op];
    const bool integer = o->want->dtype != LVN_F64;
    const double allowed = integer || !(tol.f32 > 0.0)
                               ? 0.0
                               : allowed_for(tol.f32, o->dtype) + narrowing_of(o),
                 largest = largest_value(o->want);
    double worst = 0.0;
    int64_t n_wrong = 0, first = -1;
    LVN_TRY(check_type(o));
    for (int64_t e = 0; e < lvn_numel(o->want); e++) {
        const double want = lvni_check_value(o->want, e), have = lvni_check_value(o->have, e);
        const double unit = tol.of == LVNI_CHECK_OF_LARGEST
                                ? largest
                                : fabs(o->terms == NULL ? want : lvni_check_value(o->terms, e));
        if (o->have->dtype == LVN_F16 && f16_has_no_better(have, want)) {
            continue;
        }
        const double error = error_of(have, want, unit);
        worst = fmax(worst, error);
        if (error > allowed) {
            first = n_wrong++ == 0 ? e : first;
        }
    }
    if (o->worst != NULL && allowed > 0.0) {
        *o->worst = fmax(*o->worst, worst / allowed);
    }
    if (n_wrong > 0) {
        char at[96];
        LVN_FAIL(LVN_ERR_MISMATCH,
                 "output %d: %lld of %lld elements are wrong, largest error %.3g of %.3g allowed; "
                 "first at %s: %.9g, must be %.9g",
                 o->k, (long long)n_wrong, (long long)lvn_numel(o->want), worst, allowed,
                 coordinates(o->want, first, at), lvni_check_value(o->have, first),
                 lvni_check_value(o->want, first));
    }
    return LVN_OK;
}

lvn_status lvni_check_compare(lvni_kernels_op op, const lvni_check_case *row, lvn_dtype dtype,
                              const lvn_kernel_args *have, const lvni_check_inputs *in,
                              double *worst)
{
    lvn_kernel_args want, terms = {.attr = NULL};
    lvn_status s;
    LVNI_TRY_DONE(s, run_ref(op, row, in->truth, &want));
    LVNI_TRY_DONE(s, lvni_check_tolerances[op].of == LVNI_CHECK_OF_TERMS
                         ? run_on_absolutes(op, row, in->truth, &terms)
                         : LVN_OK);
    for (int k = 0; k < lvni_kernels_ops[op].n_out; k++) {
        if (have->out[k] != NULL) {
            const output o = {.dtype = dtype,
                              .k = k,
                              .have = have->out[k],
                              .want = want.out[k],
                              .terms = terms.out[k],
                              .narrowed = row->full != 0,
                              .worst = worst};
            LVNI_TRY_DONE(s, compare_output(op, &o));
        }
    }
done:
    release_outputs(&want);
    release_outputs(&terms);
    return s;
}

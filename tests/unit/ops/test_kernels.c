/* Every cpu kernel (f32) against the truth (ref, f64) on the same inputs, for every row of
 * cases.def; tolerance.h has how close. With -v: the largest error of every case. */
#include "op_cases.h"
#include "tolerance.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool verbose;

/* Both backends through the table; every output kept for the teardown. */
static lvn_kernel_args run(lvni_kernels_op op, const op_case *row, lvn_tensor *const *in)
{
    lvn_kernel_args args = {.attr = case_attribute(op, row)};
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        args.in[i] = in[i];
    }
    if (lvni_kernels_run(op, &args, ~0u) != LVN_OK) {
        fail_msg("%s, case \"%s\": %s", lvni_kernels_ops[op].name, row->name,
                 lvn_last_error()->message);
    }
    for (int i = 0; i < lvni_kernels_ops[op].n_out; i++) {
        support_keep(args.out[i]);
    }
    return args;
}

/* The op on absolute values (inputs and numbers of the attribute): the size of the terms behind
 * each result. */
static lvn_kernel_args run_on_absolutes(lvni_kernels_op op, const op_case *row,
                                        lvn_tensor *const *in)
{
    lvn_tensor *absolute[LVN_KERNEL_INPUTS] = {NULL};
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        absolute[i] = in[i];
        if (in[i] != NULL && in[i]->dtype == LVN_F64) {
            absolute[i] = support_tensor(LVN_F64, in[i]->ndim, in[i]->shape);
            for (int64_t e = 0; e < lvn_numel(in[i]); e++) {
                ((double *)absolute[i]->data)[e] = fabs(support_value(in[i], e));
            }
        }
    }
    op_case copy = *row;
    if (op == LVNI_OP_scale) {
        copy.attr.scale.mul = fabs(copy.attr.scale.mul);
        copy.attr.scale.add = fabs(copy.attr.scale.add);
    }
    return run(op, &copy, absolute);
}

static double largest_value(const lvn_tensor *t)
{
    double largest = 0.0;
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        const double v = fabs(support_value(t, e));
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

/* What a result of this type is rounded by, with as much again for what the kernel rounds on its
 * way. */
static double rounding_of(lvn_dtype type)
{
    return type == LVN_BF16 ? 0x1p-7 : type == LVN_F16 ? 0x1p-10 : 0.0;
}

/* Output k. Fails naming op, case, largest error and the first wrong element. */
static void compare(lvni_kernels_op op, const op_case *row, int k, lvn_dtype type,
                    const lvn_tensor *have, const lvn_tensor *want, const lvn_tensor *terms)
{
    const tolerance tol = tolerances[op];
    const bool integer = want->dtype != LVN_F64;
    const double allowed = integer || !(tol.f32 > 0.0) ? 0.0 : tol.f32 + rounding_of(type),
                 largest = largest_value(want);
    double worst = 0.0;
    int64_t n_wrong = 0, first = -1;
    assert_true(lvni_tensor_same_shape(have, want));
    /* sums may stay f32 */
    assert_true(have->dtype == (integer ? want->dtype : type) ||
                (!integer && have->dtype == LVN_F32));
    for (int64_t e = 0; e < lvn_numel(want); e++) {
        const double w = support_value(want, e);
        const double unit =
            tol.of == OF_LARGEST ? largest : fabs(terms == NULL ? w : support_value(terms, e));
        const double got = support_value(have, e);
        if (type == LVN_F16 && have->dtype == LVN_F16 &&
            (fabs(got - w) <= 0x1p-23 || (fabs(w) > 65000.0 && isinf(got)))) {
            continue; /* two steps between its smallest numbers; beyond its largest */
        }
        const double error = error_of(got, w, unit);
        worst = fmax(worst, error);
        if (error > allowed) {
            first = n_wrong++ == 0 ? e : first;
        }
    }
    if (verbose) {
        print_message("%s, case \"%s\", output %d: error %.2g of %.2g\n", lvni_kernels_ops[op].name,
                      row->name, k, worst, allowed);
    }
    if (n_wrong > 0) {
        char at[96];
        fail_msg(
            "%s, case \"%s\", output %d: %d of %d elements are wrong, largest error %.3g of %.3g "
            "allowed; first at %s: "
            "%.9g, must be %.9g",
            lvni_kernels_ops[op].name, row->name, k, (int)n_wrong, (int)lvn_numel(want), worst,
            allowed, coordinates(want, first, at), support_value(have, first),
            support_value(want, first));
    }
}

static void cpu_agrees_with_ref(void **state)
{
    const lvni_kernels_op op = (lvni_kernels_op)(uintptr_t)*state;
    assert_true(all_cases[op].n > 0);
    for (int c = 0; c < all_cases[op].n; c++) {
        const op_case *row = &all_cases[op].rows[c];
        lvn_tensor *in64[LVN_KERNEL_INPUTS], *in32[LVN_KERNEL_INPUTS];
        case_inputs(op, row, in64, in32);
        const lvn_kernel_args want = run(op, row, in64), have = run(op, row, in32);
        lvn_kernel_args terms = {.attr = NULL};
        if (tolerances[op].of == OF_TERMS) {
            terms = run_on_absolutes(op, row, in64);
        }
        for (int k = 0; k < lvni_kernels_ops[op].n_out; k++) {
            compare(op, row, k, LVN_F32, have.out[k], want.out[k], terms.out[k]);
        }
        support_release(NULL);
    }
}

/* bf16 and f16: natively or through f32, as in the table. */
static void low_types_agree_with_ref(void **state)
{
    const lvni_kernels_op op = (lvni_kernels_op)(uintptr_t)*state;
    for (int c = 0; c < 2 * all_cases[op].n; c++) {
        const op_case *row = &all_cases[op].rows[c / 2];
        const lvn_dtype type = c % 2 == 0 ? LVN_BF16 : LVN_F16;
        if (type == LVN_BF16 && (lvni_kernels_ops[op].flags & LVNI_BF16) != 0 &&
            !lvni_cpu_has_bf16()) {
            continue;
        }
        lvn_tensor *in64[LVN_KERNEL_INPUTS], *low[LVN_KERNEL_INPUTS];
        case_inputs_low(op, row, type, in64, low);
        const lvn_kernel_args want = run(op, row, in64), have = run(op, row, low);
        lvn_kernel_args terms = {.attr = NULL};
        if (tolerances[op].of == OF_TERMS) {
            terms = run_on_absolutes(op, row, in64);
        }
        for (int k = 0; k < lvni_kernels_ops[op].n_out; k++) {
            compare(op, row, k, type, have.out[k], want.out[k], terms.out[k]);
        }
        support_release(NULL);
    }
}

/* Outputs that may be refused: the others come out the same. */
static void refused_outputs_change_nothing(void **state)
{
    (void)state;
    for (int op = 0; op < LVNI_OP_COUNT; op++) {
        if ((lvni_kernels_ops[op].flags & LVNI_OPTIONAL_OUT) == 0) {
            continue;
        }
        const op_case *row = &all_cases[op].rows[1];
        lvn_tensor *in64[LVN_KERNEL_INPUTS], *in32[LVN_KERNEL_INPUTS];
        case_inputs((lvni_kernels_op)op, row, in64, in32);
        const lvn_kernel_args all = run((lvni_kernels_op)op, row, in32);
        lvn_kernel_args one = all;
        memset(one.out, 0, sizeof one.out);
        assert_int_equal(lvni_kernels_run((lvni_kernels_op)op, &one, 1), LVN_OK);
        support_keep(one.out[0]);
        assert_null(one.out[1]);
        assert_memory_equal(one.out[0]->data, all.out[0]->data,
                            (size_t)lvn_numel(all.out[0]) * sizeof(float));
        support_release(NULL);
    }
}

/* The same sentence from both backends. */
static void bad_labels_are_refused(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        lvn_tensor *labels = I64(DIMS(3), 0, bad == 0 ? 4 : -1, 1);
        lvn_tensor *y = support_tensor(LVN_F32, DIMS(3, 4)), *one = support_tensor(LVN_F32, SCALAR),
                   *kept = support_tensor(LVN_F32, DIMS(3, 2));
        char expected[160];
        snprintf(expected, sizeof expected,
                 "cross_entropy: the label of row 1 is %d, but there are 4 classes (0 to 3)",
                 bad == 0 ? 4 : -1);
        const lvn_class_loss_attr mean = {.ignore = -100};
        lvn_kernel_args loss = {.in = {y, labels}, .attr = &mean};
        assert_int_equal(lvni_kernels_run(LVNI_OP_cross_entropy, &loss, 3), LVN_ERR_INVALID);
        assert_string_equal(lvn_last_error()->message, expected);
        assert_null(loss.out[0]);
        lvn_kernel_args gradient = {.in = {one, y, kept, labels}, .attr = &mean};
        assert_int_equal(lvni_kernels_run(LVNI_OP_cross_entropy_grad, &gradient, 1),
                         LVN_ERR_INVALID);
        assert_null(gradient.out[0]);
    }
}

/* Reproducibility: nothing in the cases falls to oneDNN's reference path. */
static void no_slow_primitive_was_chosen(void **state)
{
    (void)state;
    const lvni_cpu_stats stats = lvni_cpu_get_stats();
    assert_true(stats.primitives_created > 0);
    if (stats.slow_primitives > 0) {
        fail_msg("%d slow primitives, the last one: %s", (int)stats.slow_primitives,
                 stats.last_slow);
    }
}

int main(int argc, char **argv)
{
    verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
    if (lvni_cpu_start() != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
        return 1;
    }
    struct CMUnitTest tests[2 * LVNI_OP_COUNT + 3];
    for (int op = 0; op < LVNI_OP_COUNT; op++) {
        tests[op] = (struct CMUnitTest){lvni_kernels_ops[op].name, cpu_agrees_with_ref, NULL,
                                        support_release, (void *)(uintptr_t)op};
        tests[LVNI_OP_COUNT + 3 + op] =
            (struct CMUnitTest){lvni_kernels_ops[op].name, low_types_agree_with_ref, NULL,
                                support_release, (void *)(uintptr_t)op};
    }
    const struct CMUnitTest others[3] = {
        cmocka_unit_test_teardown(refused_outputs_change_nothing, support_release),
        cmocka_unit_test_teardown(bad_labels_are_refused, support_release),
        cmocka_unit_test_teardown(no_slow_primitive_was_chosen, support_release),
    };
    memcpy(tests + LVNI_OP_COUNT, others, sizeof others);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

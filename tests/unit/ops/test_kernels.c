/* Every cpu kernel (f32) against the truth (ref, f64) on the same inputs, for every row of
 * cases.def; tolerance.def has how close. With -v: the largest error of every case. */
#include "case_support.h"

#include <stdio.h>
#include <string.h>

static bool verbose;

static void compare(lvni_kernels_op op, const lvni_check_case *row, lvn_dtype dtype)
{
    lvni_check_inputs in;
    double worst = 0.0;
    assert_int_equal(lvni_check_inputs_make(op, row, dtype, &in), LVN_OK);
    const lvn_kernel_args have = case_run(op, row, in.own);
    const lvn_status s = lvni_check_compare(op, row, dtype, &have, &in, &worst);
    lvni_check_inputs_free(&in);
    if (verbose) {
        print_message("%s, case \"%s\", %s: error %.2g of what is allowed\n",
                      lvni_kernels_ops[op].name, row->name, lvn_dtype_name(dtype), worst);
    }
    if (s != LVN_OK) {
        fail_msg("%s, case \"%s\" in %s: %s", lvni_kernels_ops[op].name, row->name,
                 lvn_dtype_name(dtype), lvn_last_error()->message);
    }
    support_release(NULL);
}

static void cpu_agrees_with_ref(void **state)
{
    const lvni_kernels_op op = (lvni_kernels_op)(uintptr_t)*state;
    assert_true(lvni_check_all[op].n > 0);
    for (int c = 0; c < lvni_check_all[op].n; c++) {
        compare(op, &lvni_check_all[op].rows[c], LVN_F32);
    }
}

/* bf16 and f16: natively or through f32, as in the table. */
static void low_types_agree_with_ref(void **state)
{
    const lvni_kernels_op op = (lvni_kernels_op)(uintptr_t)*state;
    for (int c = 0; c < lvni_check_all[op].n; c++) {
        if ((lvni_kernels_ops[op].flags & LVNI_BF16) == 0 || lvni_cpu_has_bf16()) {
            compare(op, &lvni_check_all[op].rows[c], LVN_BF16);
        }
        compare(op, &lvni_check_all[op].rows[c], LVN_F16);
    }
}

TEST_EACH(NULL, support_release);

/* Outputs that may be refused: the others come out the same. */
TEST(refused_outputs_change_nothing)
{
    for (int op = 0; op < LVNI_OP_COUNT; op++) {
        if ((lvni_kernels_ops[op].flags & LVNI_OPTIONAL_OUT) == 0) {
            continue;
        }
        const lvni_check_case *row = &lvni_check_all[op].rows[1];
        lvn_tensor *in64[LVN_KERNEL_INPUTS], *in32[LVN_KERNEL_INPUTS];
        case_inputs((lvni_kernels_op)op, row, in64, in32);
        const lvn_kernel_args all = case_run((lvni_kernels_op)op, row, in32);
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
TEST(bad_labels_are_refused)
{
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
TEST(no_slow_primitive_was_chosen)
{
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
    for (uintptr_t op = 0; op < LVNI_OP_COUNT; op++) {
        test_add((test_case){__FILE__, 0, lvni_kernels_ops[op].name, cpu_agrees_with_ref, NULL,
                             support_release, (void *)op});
        test_add((test_case){__FILE__, __LINE__, lvni_kernels_ops[op].name,
                             low_types_agree_with_ref, NULL, support_release, (void *)op});
    }
    return test_main(verbose ? 1 : argc, argv);
}

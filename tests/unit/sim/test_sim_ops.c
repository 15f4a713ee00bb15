/* Every row of cases.def on the simulated accelerator: the bits of the cpu kernel in f32, those of
 * the reference in f64. */
#include "case_support.h"
#include "sim_support.h"

#include <stdio.h>
#include <string.h>

static void compare(lvni_kernels_op op, const lvni_check_case *row, lvn_tensor *const *in)
{
    lvn_tensor *there[LVN_KERNEL_INPUTS];
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        there[i] = in[i] == NULL ? NULL : support_keep(sim_put(in[i]));
    }
    const lvn_kernel_args want = case_run(op, row, in), have = case_run(op, row, there);
    for (int k = 0; k < lvni_kernels_ops[op].n_out; k++) {
        char what[160];
        snprintf(what, sizeof what, "%s, case \"%s\", output %d", lvni_kernels_ops[op].name,
                 row->name, k);
        assert_same_bits(what, want.out[k], have.out[k]);
    }
}

static void sim_has_the_bits_of_the_cpu(void **state)
{
    const lvni_kernels_op op = (lvni_kernels_op)(uintptr_t)*state;
    for (int c = 0; c < lvni_check_all[op].n; c++) {
        lvn_tensor *in64[LVN_KERNEL_INPUTS], *in32[LVN_KERNEL_INPUTS];
        case_inputs(op, &lvni_check_all[op].rows[c], in64, in32);
        compare(op, &lvni_check_all[op].rows[c], in32);
        compare(op, &lvni_check_all[op].rows[c], in64);
        support_release(NULL);
    }
}

/* Inputs in host memory are copied to where the op runs. */
TEST_WITH(inputs_in_host_memory_are_copied, NULL, support_release)
{
    const lvni_check_case *row = &lvni_check_all[LVNI_OP_linear].rows[0];
    lvn_tensor *in64[LVN_KERNEL_INPUTS], *in32[LVN_KERNEL_INPUTS], *mixed[LVN_KERNEL_INPUTS];
    case_inputs(LVNI_OP_linear, row, in64, in32);
    memcpy(mixed, in32, sizeof mixed);
    const lvn_kernel_args want = case_run(LVNI_OP_linear, row, in32);
    assert_int_equal(lvn_device_use(LVN_SIM(0)), LVN_OK);
    const lvn_kernel_args all = case_run(LVNI_OP_linear, row, in32);
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    mixed[1] = support_keep(sim_put(in32[1]));
    const lvn_kernel_args some = case_run(LVNI_OP_linear, row, mixed);
    assert_same_bits("all inputs in host memory", want.out[0], all.out[0]);
    assert_same_bits("some inputs in host memory", want.out[0], some.out[0]);
    lvn_kernel_args other = {.in = {mixed[1], mixed[1]}};
    lvn_tensor *far = support_keep(lvn_to_device(in32[1], LVN_SIM(1)));
    other.in[1] = far;
    assert_int_equal(lvni_kernels_run(LVNI_OP_add, &other, 1), LVN_ERR_INVALID);
    assert_string_equal(
        lvn_last_error()->message,
        "add: a tensor lies on sim:1, but the op runs on sim:0; lvn_to_device copies it");
}

int main(int argc, char **argv)
{
    sim_start("2", "256MiB");
    for (uintptr_t op = 0; op < LVNI_OP_COUNT; op++) {
        test_add((test_case){__FILE__, 0, lvni_kernels_ops[op].name, sim_has_the_bits_of_the_cpu,
                             NULL, support_release, (void *)op});
    }
    return test_main(argc, argv);
}

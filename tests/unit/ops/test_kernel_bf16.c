/* The rule of bf16: a cpu kernel that takes bf16 itself gives, bit for bit, what the f32 kernel
 * gives on f32 copies, rounded once at the end. For every row of cases.def of every own kernel with
 * LVNI_BF16; oneDNN's products (which sum in their own order) are in test_kernels. */
#include "case_support.h"

#include "core/math.h"

#include <string.h>

static bool by_onednn(int op)
{
    static const char *const prefixes[] = {"conv", "matmul", "linear"};
    for (size_t i = 0; i < 3; i++) {
        if (strncmp(lvni_kernels_ops[op].name, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

static lvn_tensor *to_f32(lvn_tensor *t)
{
    if (t == NULL || t->dtype != LVN_BF16) {
        return t;
    }
    lvn_tensor *f = support_tensor(LVN_F32, t->ndim, t->shape);
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        LVNI_F32(f)[e] = lvni_core_bf16_to_f32(((const uint16_t *)t->data)[e]);
    }
    return f;
}

static lvn_kernel_args run(lvni_kernels_op op, const lvni_check_case *row, lvn_tensor *const *in,
                           int team)
{
    lvni_tensor_ctx_get()->team = team;
    lvn_kernel_args args = {.attr = lvni_check_attribute(op, row)};
    memcpy(args.in, in, sizeof args.in);
    if (lvni_kernels_run(op, &args, ~0u) != LVN_OK) {
        fail_msg("%s, case \"%s\": %s", lvni_kernels_ops[op].name, row->name,
                 lvn_last_error()->message);
    }
    for (int k = 0; k < lvni_kernels_ops[op].n_out; k++) {
        support_keep(args.out[k]);
    }
    return args;
}

static void need_rounded(lvni_kernels_op op, const lvni_check_case *row, int k,
                         const lvn_tensor *have, const lvn_tensor *wide)
{
    const size_t size = lvn_dtype_size(have->dtype);
    for (int64_t e = 0; e < lvn_numel(have); e++) {
        const char *a = (const char *)have->data + (size_t)e * size,
                   *b = (const char *)wide->data + (size_t)e * size;
        uint16_t rounded;
        if (have->dtype == LVN_BF16 && wide->dtype == LVN_F32) {
            rounded = lvni_core_f32_to_bf16(LVNI_CF32(wide)[e]);
            b = (const char *)&rounded;
        }
        if (memcmp(a, b, size) != 0) {
            fail_msg("%s, case \"%s\": element %lld of output %d is %.9g, of f32 copies %.9g",
                     lvni_kernels_ops[op].name, row->name, (long long)e, k,
                     lvni_check_value(have, e), lvni_check_value(wide, e));
        }
    }
}

/* Inputs that are f32 beside bf16 in the table come as such. */
static void bf16_inputs(lvni_kernels_op op, const lvni_check_case *row,
                        lvn_tensor *low[LVN_KERNEL_INPUTS], lvn_tensor *wide[LVN_KERNEL_INPUTS])
{
    lvn_tensor *in64[LVN_KERNEL_INPUTS];
    case_inputs_low(op, row, LVN_BF16, in64, low);
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        wide[i] = to_f32(low[i]);
        low[i] = (lvni_kernels_ops[op].flags / LVNI_BESIDE & 1u << i) != 0 ? wide[i] : low[i];
    }
}

static void compare_rows(lvni_kernels_op op)
{
    for (int c = 0; c < lvni_check_all[op].n; c++) {
        const lvni_check_case *row = &lvni_check_all[op].rows[c];
        lvn_tensor *low[LVN_KERNEL_INPUTS], *wide[LVN_KERNEL_INPUTS];
        bf16_inputs(op, row, low, wide);
        const lvn_kernel_args have = run(op, row, low, 3), want = run(op, row, wide, 1);
        for (int k = 0; k < lvni_kernels_ops[op].n_out; k++) {
            need_rounded(op, row, k, have.out[k], want.out[k]);
        }
        support_release(NULL);
    }
}

TEST_EACH(NULL, support_release);

TEST(bf16_is_f32_rounded_once)
{
    for (int op = 0; op < LVNI_OP_COUNT; op++) {
        if ((lvni_kernels_ops[op].flags & LVNI_BF16) != 0 && op != LVNI_OP_cast && !by_onednn(op)) {
            compare_rows((lvni_kernels_op)op);
        }
    }
}

/* Gradients at a fork: a += b. */
TEST(bf16_adds_in_place)
{
    const lvni_check_case *row = &lvni_check_all[LVNI_OP_add].rows[8];
    assert_string_equal(row->name, "blocks");
    lvn_tensor *low[LVN_KERNEL_INPUTS], *wide[LVN_KERNEL_INPUTS];
    bf16_inputs(LVNI_OP_add, row, low, wide);
    const lvn_kernel_args want = run(LVNI_OP_add, row, wide, 1);
    lvn_kernel_args args = {.in = {low[0], low[1]}, .out = {low[0]}};
    assert_int_equal(lvni_kernels_run(LVNI_OP_add, &args, 1), LVN_OK);
    need_rounded(LVNI_OP_add, row, 0, low[0], want.out[0]);
}

/* ---- curves that are looked up: every bf16 number ---- */

enum { NUMBERS = 65536 };

static lvn_tensor *all_numbers(void)
{
    lvn_tensor *t = support_tensor(LVN_BF16, DIMS(NUMBERS));
    for (int64_t i = 0; i < NUMBERS; i++) {
        ((uint16_t *)t->data)[i] = (uint16_t)i;
    }
    return t;
}

static void need_same_curve(lvni_kernels_op op, lvn_tensor *const *low)
{
    const lvni_check_case row = {.name = "every number"};
    lvn_tensor *wide[LVN_KERNEL_INPUTS] = {to_f32(low[0]), to_f32(low[1])};
    const lvn_kernel_args have = run(op, &row, low, 2), want = run(op, &row, wide, 1);
    need_rounded(op, &row, 0, have.out[0], want.out[0]);
}

TEST(curves_of_every_number)
{
    static const lvni_kernels_op unary[] = {LVNI_OP_gelu, LVNI_OP_gelu_tanh, LVNI_OP_silu,
                                            LVNI_OP_sigmoid, LVNI_OP_tanh};
    static const lvni_kernels_op pair[] = {LVNI_OP_gelu_grad, LVNI_OP_gelu_tanh_grad,
                                           LVNI_OP_silu_grad};
    lvn_tensor *x = all_numbers(), *dy = all_numbers();
    for (int64_t i = 0; i < NUMBERS; i++) { /* no NaN: which of two would stay is open */
        ((uint16_t *)dy->data)[i] = (uint16_t)((i * 40503 & 0x80ff) | 0x3f00);
    }
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++) {
        need_same_curve(unary[i], (lvn_tensor *[LVN_KERNEL_INPUTS]){x});
    }
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        need_same_curve(pair[i], (lvn_tensor *[LVN_KERNEL_INPUTS]){dy, x});
    }
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}

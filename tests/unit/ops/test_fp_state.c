/* The calling thread's floating-point state: as before after every op, whether it works or fails,
 * whatever it was; and what a denormal is to ops that compare and choose (a number), and to
 * arithmetic (0), in cpu kernels and in the truth. */
#include "case_support.h"

#include "tensor/ctx.h"

#include <levin/ops.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define DENORMAL 1e-38f /* the least normal number is 1.18e-38 */

#if defined(__x86_64__)
/* Default; flushing; flushing and denormals are zero; rounding to zero; an exception that is not
 * masked. */
static const unsigned states[] = {0x1f80u, 0x9f80u, 0x9fc0u, 0x7f80u, 0x1d80u};

static unsigned control(void)
{
    return _mm_getcsr() & ~0x3fu;
}

/* Every row of cases.def, and the op without its inputs; from the default state, or from the others
 * in turn. */
static void run_all(bool others)
{
    int turn = 0;
    for (int op = 0; op < LVNI_OP_COUNT; op++) {
        for (int c = 0; c < lvni_check_all[op].n; c++) {
            const lvni_check_case *row = &lvni_check_all[op].rows[c];
            const unsigned state = states[others ? 1 + turn++ % 4 : 0];
            lvn_tensor *in64[LVN_KERNEL_INPUTS], *in32[LVN_KERNEL_INPUTS];
            _mm_setcsr(0x1f80u);
            case_inputs((lvni_kernels_op)op, row, in64, in32);
            lvn_kernel_args args = {.attr = lvni_check_attribute((lvni_kernels_op)op, row)},
                            none = args;
            memcpy(args.in, in32, sizeof args.in);
            _mm_setcsr(state);
            const lvn_status s = lvni_kernels_run((lvni_kernels_op)op, &args, ~0u);
            const unsigned after = control();
            const lvn_status failed = lvni_kernels_run((lvni_kernels_op)op, &none, ~0u);
            const unsigned after_failure = control();
            _mm_setcsr(0x1f80u);
            if (s != LVN_OK || failed == LVN_OK || after != state || after_failure != state) {
                fail_msg("%s, case \"%s\": MXCSR %x became %x, %x after a failure",
                         lvni_kernels_ops[op].name, row->name, state, after, after_failure);
            }
            for (int i = 0; i < lvni_kernels_ops[op].n_out; i++) {
                lvn_release(args.out[i]);
            }
            support_release(NULL);
            lvn_clear_error();
        }
    }
}

TEST(every_op_leaves_the_state)
{
    run_all(false);
    run_all(true);
}

/* Gradients, second ones too, scopes, failures: the public functions around the ops. On a thread of
 * the caller's with its own default. */
static void *differentiate(void *user)
{
    bool *good = user;
    float value[6] = {1.0f, DENORMAL, -2.0f, 0.5f, 0.25f, 3.0f};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        _mm_setcsr(states[i]);
        lvn_scope_open();
        *good = *good && control() == states[i];
        lvn_tensor *x = lvn_tensor_wrap(value, LVN_F32, 2, (const int64_t[]){2, 3});
        lvn_require_grad(x);
        lvn_tensor *loss = lvn_mean(lvn_square(lvn_softmax(lvn_matmul(x, lvn_transpose(x, 0, 1)))));
        lvn_tensor *g = lvn_grad(loss, x, .create_graph = true);
        *good = *good && g != NULL && control() == states[i];
        *good = *good && lvn_backward(lvn_sum(lvn_mul(g, g))) == LVN_OK && control() == states[i];
        *good = *good && lvn_add(x, lvn_sum_axes(x, (const int[]){7}, 1, false)) == NULL &&
                control() == states[i];
        *good = *good && lvn_backward(NULL) != LVN_OK && control() == states[i];
        lvn_scope_close();
        lvn_release(x);
        lvn_clear_error();
        *good = *good && control() == states[i];
    }
    _mm_setcsr(0x1f80u);
    return NULL;
}

TEST(gradients_leave_the_state)
{
    bool here = true, there = true;
    pthread_t thread;
    differentiate(&here);
    assert_true(here);
    assert_int_equal(pthread_create(&thread, NULL, differentiate, &there), 0);
    pthread_join(thread, NULL);
    assert_true(there);
}
#endif

/* ---- denormals ---- */

enum { N = 12 };
static const float numbers[N] = {DENORMAL, -DENORMAL, 0.0f, -0.0f, 1e-45f,    -1e-45f,
                                 2e-38f,   -2e-38f,   1.0f, -1.0f, 1.17e-38f, 3e-39f};

/* numbers as a tensor of each type, and turned by `by` places; in bf16 rounded first. */
static void make(lvn_dtype dtype, int by, lvn_tensor **low, lvn_tensor **truth)
{
    *low = support_tensor(dtype, 1, (const int64_t[]){N});
    *truth = support_tensor(LVN_F64, 1, (const int64_t[]){N});
    for (int i = 0; i < N; i++) {
        const float x = numbers[(i + by) % N];
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        bits = dtype == LVN_BF16 ? bits & 0xffff0000u : bits;
        float rounded;
        memcpy(&rounded, &bits, sizeof rounded);
        ((double *)(*truth)->data)[i] = (double)rounded;
        if (dtype == LVN_BF16) {
            ((uint16_t *)(*low)->data)[i] = (uint16_t)(bits >> 16);
        } else {
            ((float *)(*low)->data)[i] = rounded;
        }
    }
}

/* With so many of: the numbers, turned by `by` places, and the numbers again. */
static void compare(lvni_kernels_op op, lvn_dtype dtype, const void *attr, int by, int inputs)
{
    lvn_tensor *a, *b, *a64, *b64;
    make(dtype, 0, &a, &a64);
    make(dtype, by, &b, &b64);
    lvn_kernel_args have = {.in = {a, inputs > 1 ? b : NULL, inputs > 2 ? a : NULL}, .attr = attr};
    assert_int_equal(lvni_kernels_run(op, &have, ~0u), LVN_OK);
    const lvn_kernel_args want = support_ref(
        op, attr,
        (lvn_tensor *[LVN_KERNEL_INPUTS]){a64, inputs > 1 ? b64 : NULL, inputs > 2 ? a64 : NULL});
    for (int64_t e = 0; e < lvn_numel(have.out[0]); e++) {
        const double h = lvni_check_value(have.out[0], e), w = lvni_check_value(want.out[0], e);
        const double difference = h < w ? w - h : h - w;
        if (difference >
            1e-37 + 1e-6 * (w < 0.0 ? -w : w)) { /* results that are denormal may be 0 */
            fail_msg("%s of %g (and %g) in %s is %g, not %g", lvni_kernels_ops[op].name,
                     lvni_check_value(a64, e), lvni_check_value(b64, e), lvn_dtype_name(dtype), h,
                     w);
        }
    }
    for (int i = 0; i < lvni_kernels_ops[op].n_out; i++) {
        lvn_release(have.out[i]);
    }
    support_release(NULL);
}

TEST_WITH(what_chooses_sees_denormals, NULL, support_release)
{
    static const lvni_kernels_op one[] = {LVNI_OP_sign, LVNI_OP_abs, LVNI_OP_relu};
    static const lvni_kernels_op two[] = {LVNI_OP_eq,        LVNI_OP_ne,      LVNI_OP_lt,
                                          LVNI_OP_le,        LVNI_OP_gt,      LVNI_OP_ge,
                                          LVNI_OP_minimum,   LVNI_OP_maximum, LVNI_OP_share,
                                          LVNI_OP_relu_grad, LVNI_OP_abs_grad};
    const lvn_range_attr range = {.min = 2e-38, .max = 1.0};
    const lvn_number_attr slope = {.value = 0.125};
    for (int low = 0; low < 2; low++) {
        const lvn_dtype dtype = low ? LVN_BF16 : LVN_F32;
        for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
            compare(one[i], dtype, NULL, 0, 1);
        }
        for (size_t i = 0; i < sizeof two / sizeof *two; i++) {
            for (int by = 0; by < N; by++) {
                compare(two[i], dtype, NULL, by, 2);
            }
        }
        compare(LVNI_OP_clamp, dtype, &range, 0, 1);
        compare(LVNI_OP_clamp_grad, dtype, &range, 5, 2);
        compare(LVNI_OP_leaky_relu, dtype, &slope, 0, 1);
        compare(LVNI_OP_leaky_relu_grad, dtype, &slope, 5, 2);
        for (int by = 0; by < N; by++) {
            compare(LVNI_OP_prelu, dtype, NULL, by, 2);
            compare(LVNI_OP_prelu_grad, dtype, NULL, by, 3);
        }
    }
}

TEST(the_sign_of_a_denormal_is_its_sign)
{
    float value[4] = {DENORMAL, -DENORMAL, 0.0f, 1e-45f};
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *x = lvn_tensor_wrap(value, LVN_F32, 1, (const int64_t[]){4});
    const float *sign = lvn_const_data(lvn_sign(x));
    assert_true(sign[0] == 1.0f && sign[1] == -1.0f && sign[2] == 0.0f && sign[3] == 1.0f);
    const uint8_t *above = lvn_const_data(lvn_gt_scalar(x, 0.0));
    assert_true(above[0] == 1 && above[1] == 0 && above[2] == 0 && above[3] == 1);
    assert_true(lvn_item(lvn_max_axis(x, 0, false)) == (double)DENORMAL);
    assert_int_equal(*(const int64_t *)lvn_const_data(lvn_argmax(x, 0, false)), 0);
    const float *sum = lvn_const_data(lvn_add(x, x)),
                *times = lvn_const_data(lvn_mul_scalar(x, 1e10));
    for (int i = 0; i < 4; i++) {
        assert_true(sum[i] == 0.0f && times[i] == 0.0f); /* arithmetic: 0 in, 0 out */
    }
    lvn_release(x);
    assert_int_equal(lvn_scope_close(), LVN_OK);
}

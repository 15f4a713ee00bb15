/* The own vector kernels against the f64 loops of the ref backend, case by case, and what the ops
 * promise about NaN, ties and bad labels, with numbers worked out by hand. */
#include "core/alloc.h"
#include "kernels/kernels_decl.h"
#include "vec_support.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static double at(const lvn_tensor *t, int64_t e)
{
    switch (t->dtype) {
    case LVN_F32: return (double)((const float *)t->data)[e];
    case LVN_F64: return ((const double *)t->data)[e];
    case LVN_I64: return (double)((const int64_t *)t->data)[e];
    default: return (double)((const uint8_t *)t->data)[e];
    }
}

/* Largest difference over an output, relative to its largest value. */
static double distance(const lvn_tensor *got, const lvn_tensor *want)
{
    double scale = 1e-30, worst = 0.0;
    assert_int_equal(lvn_numel(got), lvn_numel(want));
    for (int64_t e = 0; e < lvn_numel(want); e++) {
        scale = fmax(scale, fabs(at(want, e)));
        const double d = fabs(at(got, e) - at(want, e));
        worst = d > worst || d != d ? d : worst;
    }
    return worst / scale;
}

TEST(cases_match_the_reference)
{
    int bad = 0;
    for (int i = 0; i < vec_case_count; i++) {
        const vec_case *c = &vec_cases[i];
        lvn_kernel_args fast, truth;
        vec_make_inputs(c, LVN_F32, &fast);
        vec_make_inputs(c, LVN_F64, &truth);
        if (lvni_kernels_run(c->op, &truth, 0xf) != LVN_OK ||
            lvni_kernels_run(c->op, &fast, 0xf) != LVN_OK) {
            fail_msg("%s: %s", c->name, lvn_last_error()->message);
        }
        for (int o = 0; o < LVN_KERNEL_OUTPUTS && truth.out[o] != NULL; o++) {
            const double d = distance(fast.out[o], truth.out[o]);
            if (!(d <= c->tolerance)) {
                print_error("%s, output %d: off by %g, allowed %g\n", c->name, o, d, c->tolerance);
                bad++;
            }
        }
        vec_release(&fast);
        vec_release(&truth);
    }
    assert_int_equal(bad, 0);
}

/* After one round over all cases nothing more is allocated by kernels. */
TEST(kernels_allocate_nothing_after_warm_up)
{
    for (int i = 0; i < vec_case_count; i++) {
        lvn_kernel_args args;
        vec_make_inputs(&vec_cases[i], LVN_F32, &args);
        assert_int_equal(lvni_kernels_run(vec_cases[i].op, &args, 0xf), LVN_OK);
        const uint64_t before = lvni_core_alloc_get_total().calls;
        assert_int_equal(lvni_kernels_row(0, vec_cases[i].op)->run(&args), LVN_OK);
        assert_int_equal(lvni_core_alloc_get_total().calls, before);
        vec_release(&args);
    }
}

static lvn_tensor *floats(int ndim, const int64_t *shape, const float *values)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F32, ndim, shape);
    assert_non_null(t);
    memcpy(t->data, values, (size_t)lvn_numel(t) * sizeof *values);
    return t;
}

TEST(nan_is_the_largest_and_the_first_maximum_wins)
{
    const float x[] = {1, 5, 5, 2, 3, NAN, 9, NAN, -4, -INFINITY, -4, -7};
    lvn_kernel_args args = {.in = {floats(2, (int64_t[]){3, 4}, x)},
                            .attr = &(lvn_axes_attr){.mask = 2}};
    assert_int_equal(lvni_kernels_run(LVNI_OP_max, &args, 3), LVN_OK);
    assert_true(at(args.out[0], 0) == 5.0 && at(args.out[1], 0) == 1.0);
    assert_true(isnan(at(args.out[0], 1)) && at(args.out[1], 1) == 1.0);
    assert_true(at(args.out[0], 2) == -4.0 && at(args.out[1], 2) == 0.0);
    vec_release(&args);
    lvn_kernel_args columns = {.in = {floats(2, (int64_t[]){3, 4}, x)},
                               .attr = &(lvn_axes_attr){.mask = 1}};
    assert_int_equal(lvni_kernels_run(LVNI_OP_max, &columns, 3), LVN_OK);
    assert_true(at(columns.out[0], 0) == 3.0 && at(columns.out[1], 0) == 1.0);
    assert_true(isnan(at(columns.out[0], 1)) && at(columns.out[1], 1) == 1.0);
    assert_true(at(columns.out[0], 2) == 9.0 && at(columns.out[1], 2) == 1.0);
    vec_release(&columns);
}

/* Channel c of 20: the same image, so that vector and tail are both seen. 2x2 windows of a 2 x 4
 * image. */
TEST(pooling_of_nan_and_ties)
{
    const float image[] = {1, NAN, 7, 7, 4, 4, NAN, 7};
    float x[8 * 20];
    for (int i = 0; i < 8 * 20; i++) {
        x[i] = image[i / 20];
    }
    const lvn_pool_attr attr = {.kernel = {2, 2}, .stride = {2, 2}};
    lvn_kernel_args args = {.in = {floats(4, (int64_t[]){1, 2, 4, 20}, x)}, .attr = &attr};
    assert_int_equal(lvni_kernels_run(LVNI_OP_max_pool2d, &args, 3), LVN_OK);
    for (int c = 0; c < 20; c++) {
        assert_true(isnan(at(args.out[0], c)) && at(args.out[1], c) == 1.0);
        assert_true(isnan(at(args.out[0], 20 + c)) && at(args.out[1], 20 + c) == 2.0);
    }
    vec_release(&args);
    x[20] = 0.0f; /* channel 0: 1 0 / 4 4: the first 4 is place 2 */
    lvn_kernel_args ties = {.in = {floats(4, (int64_t[]){1, 2, 4, 20}, x)}, .attr = &attr};
    assert_int_equal(lvni_kernels_run(LVNI_OP_max_pool2d, &ties, 3), LVN_OK);
    assert_true(at(ties.out[0], 0) == 4.0 && at(ties.out[1], 0) == 2.0);
    vec_release(&ties);
}

TEST(bad_labels_are_named)
{
    lvn_kernel_args args = {.in = {floats(2, (int64_t[]){2, 3}, (const float[]){1, 2, 3, 4, 5, 6}),
                                   lvn_tensor_create(LVN_I64, 1, (int64_t[]){2})},
                            .attr = &(lvn_class_loss_attr){.ignore = -100}};
    ((int64_t *)args.in[1]->data)[1] = 3;
    assert_int_equal(lvni_kernels_run(LVNI_OP_cross_entropy, &args, 3), LVN_ERR_INVALID);
    assert_non_null(strstr(lvn_last_error()->message, "row 1 is 3"));
    assert_null(args.out[0]);
    vec_release(&args);
}

/* softmax of (0, ln 3) is (1/4, 3/4); a row of huge values does not overflow; a NaN fills its row
 * only. */
TEST(softmax_by_hand)
{
    const float x[] = {0, 1.0986123f, 3e38f, 3e38f, NAN, 1};
    lvn_kernel_args args = {.in = {floats(2, (int64_t[]){3, 2}, x)}};
    assert_int_equal(lvni_kernels_run(LVNI_OP_softmax, &args, 1), LVN_OK);
    assert_true(fabs(at(args.out[0], 0) - 0.25) < 1e-7 && fabs(at(args.out[0], 1) - 0.75) < 1e-7);
    assert_true(at(args.out[0], 2) == 0.5 && at(args.out[0], 3) == 0.5);
    assert_true(isnan(at(args.out[0], 4)) && isnan(at(args.out[0], 5)));
    vec_release(&args);
}

TEST(dropout_is_the_stream_of_core)
{
    const lvni_core_rng rng = {.key = {{5, 6}}, .a = 1, .b = 2, .c = 3};
    const lvn_dropout_attr attr = {.p = 0.25, .rng = {.key = {5, 6}, .a = 1, .b = 2, .c = 3}};
    float ones[1001];
    for (int i = 0; i < 1001; i++) {
        ones[i] = 3.0f;
    }
    lvn_kernel_args args = {.in = {floats(1, (int64_t[]){1001}, ones)}, .attr = &attr};
    assert_int_equal(lvni_kernels_run(LVNI_OP_dropout, &args, 1), LVN_OK);
    int kept = 0;
    for (int64_t e = 0; e < 1001; e++) {
        const bool keep = lvni_core_rng_uniform(&rng, (uint64_t)e) >= 0.25f;
        assert_true(at(args.out[0], e) == (keep ? 4.0 : 0.0)); /* 3 / 0.75 */
        kept += keep ? 1 : 0;
    }
    assert_int_in_range(kept, 690, 810); /* 751 expected, deviation 13.7 */
    vec_release(&args);
}

/* What ops.h promises about scopes, errors, leaves and the tape, in numbers small enough to work
 * out by hand. */
#include "gradient_support.h"

#include "autograd/tape_impl.h"

#include <math.h>

static lvn_tensor *vector(int64_t n, const double *values)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F64, 1, &n);
    assert_non_null(t);
    for (int64_t i = 0; i < n; i++) {
        ((double *)lvn_data(t))[i] = values[i];
    }
    return t;
}
#define VECTOR(...)                                                                                \
    vector((int64_t)(sizeof((double[]){__VA_ARGS__}) / 8), (const double[]){__VA_ARGS__})

static void assert_close(double have, double want)
{
    if (!(fabs(have - want) <= 1e-12 * fabs(want))) {
        fail_msg("%.17g, expected %.17g", have, want);
    }
}

static void open_scope(void)
{
    lvn_clear_error();
    assert_int_equal(lvn_scope_open(), LVN_OK);
}

/* ---- failures ---- */

TEST(failed_op_marks_its_scope_and_names_itself)
{
    lvn_tensor *a = VECTOR(1, 2, 3), *b = VECTOR(1, 2);
    open_scope();
    assert_non_null(lvn_square(a));
    assert_null(lvn_mul(a, b));
    assert_error_has("mul");
    assert_error_has("(3)");
    assert_error_has("(2)");
    assert_int_equal(lvn_scope_status(), LVN_ERR_SHAPE);
    assert_null(lvn_square(a));                       /* nothing runs any more */
    assert_null(lvn_matmul(b, a));                    /* and the first error stays */
    assert_int_equal(lvn_backward(a), LVN_ERR_SHAPE); /* backward reports the same */
    lvn_clear_error();
    assert_int_equal(lvn_scope_close(), LVN_ERR_SHAPE);
    assert_error_has("mul");
    open_scope(); /* a new scope knows nothing of it */
    assert_non_null(lvn_square(a));
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(a);
    lvn_release(b);
}

TEST(null_goes_through_ops_and_is_a_failure)
{
    lvn_tensor *a = VECTOR(1, 2, 3);
    open_scope();
    assert_null(lvn_relu(lvn_add(a, lvn_neg(NULL))));
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    assert_error_has("neg");
    assert_error_has("NULL");
    lvn_release(a);
}

TEST(failure_of_something_else_is_the_error_of_the_op_given_its_null)
{
    open_scope();
    assert_null(lvn_exp(lvn_tensor_create(LVN_F64, 1, (const int64_t[]){-4})));
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    assert_error_has("-4");
    assert_error_has("exp");
}

TEST(every_wrong_argument_is_an_error)
{
    lvn_tensor *a = VECTOR(1, 2, 3), *labels = make_labels(3, 3);
    const int twice[] = {0, 0};
    const int64_t two_unknown[] = {-1, -1};
    for (int i = 0; i < 12; i++) {
        open_scope();
        lvn_tensor *y = NULL;
        switch (i) {
        case 0: y = lvn_sum_axes(a, (const int[]){1}, 1, false); break;
        case 1: y = lvn_mean_axes(a, twice, 2, false); break;
        case 2: y = lvn_max_axis(a, -2, false); break;
        case 3: y = lvn_reshape(a, 1, (const int64_t[]){4}); break;
        case 4: y = lvn_reshape(a, 2, two_unknown); break;
        case 5: y = lvn_reshape(a, 7, two_unknown); break;
        case 6: y = lvn_flatten(a, 1); break;
        case 7: y = lvn_matmul(a, a); break;
        case 8: y = lvn_dropout(a, 1.0); break;
        case 9: y = lvn_global_avg_pool2d(a); break;
        case 10: y = lvn_add(a, labels); break;
        case 11: y = lvn_cross_entropy(a, labels); break;
        default: break;
        }
        if (y != NULL) {
            fail_msg("case %d was accepted", i);
        }
        assert_int_not_equal(lvn_scope_close(), LVN_OK);
        assert_true(lvn_last_error()->message[0] != '\0');
    }
    lvn_release(a);
    lvn_release(labels);
}

TEST(failure_passes_on_to_the_scope_outside)
{
    lvn_tensor *a = VECTOR(1, 2, 3), *b = VECTOR(1, 2);
    open_scope();
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_null(lvn_sub(a, b));
    assert_int_equal(lvn_scope_close(), LVN_ERR_SHAPE);
    assert_null(lvn_square(a));
    assert_int_equal(lvn_scope_open(), LVN_OK); /* a scope inside a failed one has failed as well */
    assert_null(lvn_square(a));
    assert_int_equal(lvn_scope_close(), LVN_ERR_SHAPE);
    assert_int_equal(lvn_scope_close(), LVN_ERR_SHAPE);
    assert_error_has("sub");
    lvn_release(a);
    lvn_release(b);
}

TEST(scopes_are_counted)
{
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    assert_error_has("no scope is open");
    for (int i = 0; i < LVNI_SCOPES; i++) {
        open_scope();
    }
    assert_int_equal(lvn_scope_open(), LVN_ERR_INVALID);
    assert_error_has("64");
    for (int i = 0; i < LVNI_SCOPES; i++) {
        assert_int_equal(lvn_scope_close(), LVN_OK);
    }
}

/* ---- ownership ---- */

TEST(kept_result_outlives_its_scope)
{
    lvn_tensor *a = VECTOR(1, 2, 3);
    open_scope();
    lvn_tensor *y = lvn_keep(lvn_square(a));
    assert_int_equal(lvn_scope_close(), LVN_OK);
    assert_true(element(y, 2) == 9.0);
    lvn_release(y);
    assert_null(lvn_keep(NULL));
    assert_ptr_equal(lvn_keep(a), a); /* of no scope: one reference more */
    lvn_release(a);
    assert_true(element(a, 0) == 1.0);
    lvn_release(a);
}

TEST(keeping_in_an_inner_scope_takes_nothing_from_the_outer_one)
{
    lvn_tensor *a = VECTOR(1, 2, 3);
    open_scope();
    lvn_tensor *y = lvn_square(a);
    open_scope();
    lvn_release(lvn_keep(y));
    assert_int_equal(lvn_scope_close(), LVN_OK);
    assert_int_equal(atomic_load(&y->refs), 1); /* still the outer scope's */
    lvn_tensor *other = lvn_neg(a);
    assert_ptr_not_equal(other, y);
    assert_true(element(y, 2) == 9.0);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(a);
}

TEST(gradient_flows_out_of_a_closed_inner_scope)
{
    lvn_tensor *a = lvn_require_grad(VECTOR(1, 2, 3));
    open_scope();
    open_scope();
    lvn_tensor *y = lvn_keep(lvn_sum(lvn_square(lvn_exp(a)))); /* e^2a */
    assert_int_equal(lvn_scope_close(), LVN_OK);
    assert_int_equal(lvn_backward(y), LVN_OK);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    assert_close(element(lvn_gradient(a), 1), 2 * exp(4));
    assert_null(y->node); /* the tape is gone, the value stays */
    assert_close(lvn_item(y), exp(2) + exp(4) + exp(6));
    lvn_release(y);
    lvn_release(a);
}

/* ---- leaves ---- */

TEST(leaf_used_twice_gathers_both)
{
    lvn_tensor *a = lvn_require_grad(VECTOR(1, -2, 3));
    for (int run = 1; run <= 2; run++) { /* and a second backward adds to the first */
        open_scope();
        assert_int_equal(lvn_backward(lvn_sum(lvn_add(lvn_mul(a, a), lvn_mul_scalar(a, 5)))),
                         LVN_OK);
        assert_int_equal(lvn_scope_close(), LVN_OK);
        for (int64_t e = 0; e < 3; e++) {
            assert_true(element(lvn_gradient(a), e) == run * (2 * element(a, e) + 5));
        }
    }
    lvn_zero_grad(a);
    assert_null(lvn_gradient(a));
    open_scope();
    assert_int_equal(lvn_backward_scaled(lvn_sum(a), -0.5), LVN_OK);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    assert_true(element(lvn_gradient(a), 0) == -0.5);
    lvn_zero_grad(NULL);
    lvn_release(a);
}

TEST(gradient_handed_out_stays_as_it_was)
{
    lvn_tensor *a = lvn_require_grad(VECTOR(1, 2)), *b = lvn_require_grad(VECTOR(3, 4));
    open_scope();
    lvn_tensor *sum = lvn_add(a, b); /* a and b get one and the same gradient tensor */
    assert_int_equal(lvn_backward(lvn_add(lvn_sum(sum), lvn_sum(lvn_mul_scalar(a, 10)))), LVN_OK);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    assert_true(element(lvn_gradient(a), 0) == 11.0);
    assert_true(element(lvn_gradient(b), 0) == 1.0);
    lvn_release(a);
    lvn_release(b);
}

TEST(reshape_is_the_same_memory)
{
    lvn_tensor *a = lvn_require_grad(VECTOR(1, 2, 3, 4));
    open_scope();
    lvn_tensor *square = lvn_reshape(a, 2, (const int64_t[]){2, -1});
    assert_ptr_equal(lvn_data(square), lvn_data(a));
    lvn_tensor *first = lvn_sum(lvn_mul(square, lvn_flatten(square, 0)->ndim == 1 ? square : NULL));
    assert_int_equal(lvn_backward(first), LVN_OK);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    assert_int_equal(lvn_ndim(lvn_gradient(a)), 1);
    assert_true(element(lvn_gradient(a), 3) == 8.0);
    lvn_release(a);
    lvn_tensor *view = NULL, *b = VECTOR(5, 6);
    open_scope();
    view = lvn_keep(lvn_reshape(b, 2, (const int64_t[]){1, 2}));
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(b);
    assert_true(element(view, 1) == 6.0); /* the view holds the memory */
    lvn_release(view);
}

/* ---- recording ---- */

TEST(nothing_is_recorded_when_switched_off)
{
    lvn_tensor *a = lvn_require_grad(VECTOR(1, 2));
    open_scope();
    assert_true(lvn_set_grad_enabled(false));
    lvn_tensor *loss = lvn_sum(lvn_square(a));
    assert_false(lvn_set_grad_enabled(true));
    assert_int_equal(lvn_backward(loss), LVN_ERR_INVALID);
    assert_error_has("does not depend on anything that requires a gradient");
    assert_int_equal(lvn_scope_close(), LVN_OK);
    assert_null(lvn_gradient(a));
    lvn_release(a);
}

TEST(backward_reports_what_it_needs)
{
    lvn_tensor *a = lvn_require_grad(VECTOR(1, 2));
    open_scope();
    assert_int_equal(lvn_backward(NULL), LVN_ERR_INVALID);
    assert_int_equal(lvn_backward(lvn_square(a)), LVN_ERR_INVALID);
    assert_error_has("one element, not 2");
    lvn_tensor *loss = lvn_sum(lvn_square(a));
    assert_int_equal(lvn_backward(loss), LVN_OK);
    assert_int_equal(lvn_backward(loss), LVN_ERR_INVALID);
    assert_error_has("lvn_backward: the graph behind this tensor is gone");
    assert_error_has("run the forward pass again");
    assert_null(lvn_grad(loss, a));
    assert_error_has("lvn_grad: the graph behind this tensor is gone");
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID); /* a failed op fails its scope */
    assert_true(element(lvn_gradient(a), 1) == 4.0);
    lvn_release(a);
}

TEST(parts_that_do_not_lead_to_the_loss_get_nothing)
{
    lvn_tensor *a = lvn_require_grad(VECTOR(1, 2)), *b = lvn_require_grad(VECTOR(3, 4));
    open_scope();
    lvn_tensor *aside = lvn_exp(b);
    assert_int_equal(lvn_backward(lvn_sum(a)), LVN_OK);
    assert_non_null(aside);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    assert_null(lvn_gradient(b));
    lvn_release(a);
    lvn_release(b);
}

TEST(argmax_and_accuracy_have_no_gradient)
{
    const dims shape = S(3, 3);
    lvn_tensor *x = make_leaf(LVN_F64, 5, &shape, NORMAL), *labels = make_labels(3, 3);
    double *v = lvn_data(x);
    for (int i = 0; i < 9; i++) {
        v[i] = i == 0 || i == 4 || i == 6 ? 1
               : i == 1                   ? 1
                                          : 0; /* rows: tie of 0 and 1 (the first wins), 1, 0 */
    }
    open_scope();
    lvn_tensor *top = lvn_argmax(x, 1, false), *right = lvn_accuracy(x, labels);
    assert_int_equal(((const int64_t *)lvn_const_data(top))[0], 0);
    assert_int_equal(((const int64_t *)lvn_const_data(top))[1], 1);
    assert_int_equal(((const int64_t *)lvn_const_data(top))[2], 0);
    assert_close(lvn_item(right), 2.0 / 3.0);
    assert_int_equal(lvn_backward(right), LVN_ERR_INVALID);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
    lvn_release(labels);
}

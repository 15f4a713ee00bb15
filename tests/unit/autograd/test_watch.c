/* The first number that is not finite (kernels/anomaly.h): which op made it, where, from what. */
#include "gradient_support.h"

#include "autograd/tape.h"
#include "kernels/anomaly.h"

#include <math.h>
#include <string.h>

static lvni_kernels_anomaly watch;

static const char *found(void)
{
    return lvn_last_error()->message;
}

/* Two elements. */
static lvn_tensor *pair(float a, float b)
{
    const int64_t two = 2;
    lvn_tensor *t = make_constant(LVN_F32, 1, 1, &two);
    float *data = lvn_data(t);
    data[0] = a;
    data[1] = b;
    return t;
}

static int begin(void **state)
{
    (void)state;
    watch = (lvni_kernels_anomaly){.found = false};
    (void)lvni_kernels_anomaly_set(&watch);
    return lvn_scope_open() == LVN_OK ? 0 : -1;
}

static int end(void **state)
{
    (void)lvni_kernels_anomaly_set(NULL);
    (void)lvn_scope_close();
    (void)state;
    return 0;
}

TEST_EACH(begin, end);

TEST(finite_numbers_pass)
{
    lvn_tensor *x = pair(1.0f, 2.0f);
    assert_non_null(lvn_sub(lvn_log_e(x), lvn_exp(x)));
    assert_false(watch.found);
    lvn_release(x);
}

TEST(the_op_that_makes_a_nan_is_named)
{
    lvn_tensor *x = pair(1.0f, -2.0f);
    lvni_tensor_ctx_get()->module_path = "head.act";
    assert_null(lvn_exp(lvn_log_e(x)));
    lvni_tensor_ctx_get()->module_path = "";
    assert_true(watch.found);
    assert_string_equal(found(), "log in head.act made the first NaN, from finite numbers");
    assert_int_equal(lvn_scope_status(), LVN_ERR_NON_FINITE);
    lvn_release(x);
}

TEST(an_infinity_is_kept_until_a_nan_comes_of_it)
{
    lvn_tensor *x = pair(0.0f, 1000.0f), *y = lvn_exp(x);
    assert_non_null(y);
    assert_string_equal(watch.infinite, "exp");
    assert_non_null(lvn_add(y, y));
    assert_null(lvn_sub(y, y));
    assert_string_equal(found(), "sub made the first NaN, from an infinity in its input 0, the "
                                 "first of which was made by exp");
    lvn_release(x);
}

TEST(numbers_that_came_from_outside_are_no_op_s)
{
    lvn_tensor *x = pair(NAN, 1.0f);
    assert_null(lvn_exp(x));
    assert_string_equal(found(), "exp was given a NaN in its input 0, which no op made: it is in "
                                 "the data, or the module's own");
    lvn_release(x);
}

TEST(a_weight_is_called_one)
{
    lvn_tensor *x = pair(1.0f, 1.0f), *w = pair(1.0f, NAN);
    w->param = 3;
    assert_null(lvn_mul(x, w));
    assert_string_equal(found(), "mul was given a NaN in its input 1, a weight of the model");
    lvn_release(x);
    lvn_release(w);
}

/* The root of 0 is finite, and its slope is not. */
TEST(a_backward_pass_names_where_the_op_ran_forward)
{
    lvn_tensor *x = lvn_require_grad(pair(0.0f, 4.0f));
    lvni_tensor_ctx_get()->module_path = "body.norm";
    lvn_tensor *y = lvn_sqrt(x);
    lvni_tensor_ctx_get()->module_path = "";
    lvn_tensor *loss = lvn_sum(y);
    assert_non_null(loss);
    watch.strict = true;
    assert_int_equal(lvn_backward(loss), LVN_ERR_NON_FINITE);
    assert_non_null(strstr(found(), " in body.norm made the first infinity, from finite numbers"));
    lvn_release(x);
}

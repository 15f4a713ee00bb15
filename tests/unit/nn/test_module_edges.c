/* What users do by mistake or at the edge: forward outside of scopes, old errors, metrics that do not fit, options structs of
 * another size, buffers of another model. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "nn/model.h"

#include <string.h>

typedef struct net {
    lvn_module base;
    lvn_module *linear, *norm;
    lvn_buffer *buffer;
} net;

static lvn_status net_build(lvn_module *module, lvn_builder *b)
{
    net *m = (net *)module;
    m->linear = lvn_nn_linear(b, "linear", 2, 1);
    m->buffer = lvn_builder_buffer(b, "mean", 1, (const int64_t[]){1}, 0.0, 0.5);
    m->norm = lvn_nn_batch_norm(b, "norm", 2, 0.1, .eps = 1e-30, .relu = true);
    return lvn_builder_status(b);
}

static lvn_tensor *net_forward(const lvn_module *module, lvn_tensor *x)
{
    return lvn_forward(((const net *)module)->linear, x);
}

static const lvn_module_class net_class = {.name = "net", .size = sizeof(net), .build = net_build, .forward = net_forward};

static lvni_model *make(void)
{
    lvni_model *m;
    assert_int_equal(lvni_model_build(&net_class, NULL, 1, &m), LVN_OK);
    return m;
}

static void forward_outside_of_scopes_keeps_the_tape(void **state)
{
    (void)state;
    lvni_model *m = make();
    lvn_tensor *x = lvn_tensor_create(LVN_F32, 2, (const int64_t[]){1, 2});
    ((float *)lvn_data(x))[0] = 3.0f;
    ((float *)lvn_data(x))[1] = -1.0f;
    assert_int_equal(lvn_backward(lvn_sum(lvn_forward(m->root, x))), LVN_OK);
    const float *g = lvn_const_data(lvn_gradient(m->parameters[0].tensor)); /* linear.weight: dL/dw = x */
    assert_float_equal(g[0], 3.0f, 0.0f);
    assert_float_equal(g[1], -1.0f, 0.0f);
    lvn_release(x);
    lvni_model_destroy(m);
}

/* A norm adds the residual before its relu; a module without a way of its own is followed by a sum. */
static void forward_residual_by_the_class_or_by_a_sum(void **state)
{
    (void)state;
    lvni_model *m = make();
    const net *n = (const net *)m->root;
    float in[] = {3, -1}, more[] = {-4, 2}, one[] = {10};
    lvn_tensor *x = lvn_tensor_wrap(in, LVN_F32, 2, (const int64_t[]){1, 2}), *r = lvn_tensor_wrap(more, LVN_F32, 2, (const int64_t[]){1, 2});
    lvn_tensor *ten = lvn_tensor_wrap(one, LVN_F32, 2, (const int64_t[]){1, 1});
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const float *y = lvn_const_data(lvn_forward_residual(n->norm, x, r)); /* running mean 0, variance 1 */
    assert_float_equal(y[0], 0.0f, 0.0f);
    assert_float_equal(y[1], 1.0f, 0.0f);
    y = lvn_const_data(lvn_forward(n->norm, x));
    assert_float_equal(y[0], 3.0f, 0.0f);
    assert_float_equal(y[1], 0.0f, 0.0f);
    lvn_tensor *without = lvn_forward(n->linear, x), *sum = lvn_forward_residual(n->linear, x, ten);
    assert_float_equal(lvn_item(sum), (float)lvn_item(without) + 10.0f, 0.0f);
    assert_null(lvn_forward_residual(n->norm, x, NULL));
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    lvn_release(x);
    lvn_release(r);
    lvn_release(ten);
    lvni_model_destroy(m);
}

static void an_old_error_is_no_reason(void **state)
{
    (void)state;
    lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__, "an old matter");
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_null(lvn_relu(NULL));
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    assert_string_equal(lvn_last_error()->message, "relu was given NULL; the thread's last error before: an old matter");
}

static void metrics_that_do_not_fit_fail_the_scope(void **state)
{
    (void)state;
    lvn_tensor *one = lvn_tensor_create(LVN_F32, 0, NULL), *two = lvn_tensor_create(LVN_F32, 1, (const int64_t[]){2});
    lvn_step step = {.weight = 1.0};
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_log(&step, "a_name_of_just_thirty_one_bytes", one);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_log(&step, "a_name_of_just_thirty_two_bytes_", one);
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_log(&step, "vector", two);
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    assert_non_null(strstr(lvn_last_error()->message, "vector"));
    assert_int_equal(step.n_metrics, 1);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    for (char name[] = "b"; name[0] < 'b' + LVNI_METRICS; name[0]++) {
        lvn_log(&step, name, one);
    }
    assert_int_equal(step.n_metrics, LVNI_METRICS);
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    lvn_release(one);
    lvn_release(two);
}

static void options_are_read_by_their_size(void **state)
{
    (void)state;
    lvn_tensor *x = lvn_tensor_create(LVN_F32, 4, (const int64_t[]){1, 4, 4, 1});
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const lvn_pool2d_options older = {.struct_size = offsetof(lvn_pool2d_options, stride), .stride = 1, .padding = 1};
    assert_int_equal(lvn_size(lvn_max_pool2d_with(x, 2, &older), 1), 2); /* fields behind its size do not count */
    assert_int_equal(lvn_size(lvn_max_pool2d_with(x, 2, NULL), 1), 2);
    assert_int_equal(lvn_size(lvn_max_pool2d(x, 2, .stride = 1), 1), 3);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
}

static void a_buffer_of_another_model_is_refused(void **state)
{
    (void)state;
    lvni_model *m = make(), *other = make();
    lvni_set *set;
    assert_int_equal(lvni_set_create(m, &set), LVN_OK);
    lvni_set_begin(set, 1.0);
    lvni_ctx *ctx = lvni_ctx_get();
    ctx->records = set;
    ctx->at.training = true;
    lvn_tensor *value = lvn_tensor_create(LVN_F32, 1, (const int64_t[]){1});
    assert_int_equal(lvn_buffer_push(((net *)other->root)->buffer, value), LVN_ERR_INVALID);
    assert_int_equal(lvn_buffer_push(((net *)m->root)->buffer, value), LVN_OK);
    ctx->records = NULL;
    ctx->at.training = false;
    lvn_release(value);
    lvni_set_destroy(set);
    lvni_model_destroy(other);
    lvni_model_destroy(m);
}

static void nothing_is_asked_of_null(void **state)
{
    (void)state;
    assert_int_equal(lvn_size(NULL, 0), 0);
    assert_int_equal(lvn_numel(NULL), 0);
    assert_int_equal(lvn_ndim(NULL), 0);
    assert_null(lvn_data(NULL));
    assert_int_equal(lvn_tensor_dtype(NULL), LVN_DTYPE_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_outside_of_scopes_keeps_the_tape),
        cmocka_unit_test(forward_residual_by_the_class_or_by_a_sum),
        cmocka_unit_test(an_old_error_is_no_reason),
        cmocka_unit_test(metrics_that_do_not_fit_fail_the_scope),
        cmocka_unit_test(options_are_read_by_their_size),
        cmocka_unit_test(a_buffer_of_another_model_is_refused),
        cmocka_unit_test(nothing_is_asked_of_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

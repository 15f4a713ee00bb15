/* What users do by mistake or at the edge: forward outside of scopes, old errors, metrics that do
 * not fit, options structs of another size, buffers of another model, ops on vectors, on large
 * windows, and with what they cannot differentiate. */
#include "nn/model.h"
#include "nn/step_metrics.h"
#include "support/test.h"

#include <math.h>
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

static const lvn_module_class net_class = {
    .name = "net", .size = sizeof(net), .build = net_build, .forward = net_forward};

static lvni_nn_model *make(void)
{
    lvni_nn_model *m;
    assert_int_equal(lvni_nn_model_build(&net_class, NULL, 1, &m), LVN_OK);
    return m;
}

TEST(forward_outside_of_scopes_keeps_the_tape)
{
    lvni_nn_model *m = make();
    lvn_tensor *x = lvn_tensor_create(LVN_F32, 2, (const int64_t[]){1, 2});
    ((float *)lvn_data(x))[0] = 3.0f;
    ((float *)lvn_data(x))[1] = -1.0f;
    assert_int_equal(lvn_backward(lvn_sum(lvn_forward(m->root, x))), LVN_OK);
    /* linear.weight: dL/dw = x */
    const float *g = lvn_const_data(lvn_gradient(m->parameters[0].tensor));
    assert_float_equal(g[0], 3.0f, 0.0f);
    assert_float_equal(g[1], -1.0f, 0.0f);
    lvn_release(x);
    lvni_nn_model_destroy(m);
}

/* A norm adds the residual before its relu; a module without a way of its own is followed by a
 * sum. */
TEST(forward_residual_by_the_class_or_by_a_sum)
{
    lvni_nn_model *m = make();
    const net *n = (const net *)m->root;
    float in[] = {3, -1}, more[] = {-4, 2}, one[] = {10};
    lvn_tensor *x = lvn_tensor_wrap(in, LVN_F32, 2, (const int64_t[]){1, 2}),
               *r = lvn_tensor_wrap(more, LVN_F32, 2, (const int64_t[]){1, 2});
    lvn_tensor *ten = lvn_tensor_wrap(one, LVN_F32, 2, (const int64_t[]){1, 1});
    assert_int_equal(lvn_scope_open(), LVN_OK);
    /* running mean 0, variance 1 */
    const float *y = lvn_const_data(lvn_forward_residual(n->norm, x, r));
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
    lvni_nn_model_destroy(m);
}

TEST(an_old_error_is_no_reason)
{
    lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__, "an old matter");
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_null(lvn_relu(NULL));
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    assert_string_equal(lvn_last_error()->message,
                        "relu was given NULL; the thread's last error before: an old matter");
}

TEST(metrics_that_do_not_fit_fail_the_scope)
{
    lvn_tensor *one = lvn_tensor_create(LVN_F32, 0, NULL),
               *two = lvn_tensor_create(LVN_F32, 1, (const int64_t[]){2});
    lvni_nn_step step;
    lvni_nn_step_begin(&step, 1.0);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_log(&step.now, "a_name_of_just_thirty_nine_bytes_in_all", one);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_log(&step.now, "a_name_of_just_forty_bytes_altogether_in", one);
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_log(&step.now, "vector", two);
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    assert_non_null(strstr(lvn_last_error()->message, "vector"));
    assert_int_equal(step.n_metrics, 1);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    for (int i = 1; i < LVNI_METRICS; i++) {
        const char name[] = {(char)('a' + i / 26), (char)('a' + i % 26), '\0'};
        lvn_log(&step.now, name, one);
    }
    assert_int_equal(step.n_metrics, 64);
    assert_int_equal(lvn_scope_status(), LVN_OK);
    lvn_log(&step.now, "the_65th", one);
    assert_int_equal(step.n_metrics, 64);
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    assert_non_null(strstr(lvn_last_error()->message, "the_65th"));
    lvn_release(one);
    lvn_release(two);
}

TEST(options_are_read_by_their_size)
{
    lvn_tensor *x = lvn_tensor_create(LVN_F32, 4, (const int64_t[]){1, 4, 4, 1});
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const lvn_pool2d_options older = {
        .struct_size = offsetof(lvn_pool2d_options, stride), .stride = 1, .padding = 1};
    /* fields behind its size do not count */
    assert_int_equal(lvn_size(lvn_max_pool2d_with(x, 2, &older), 1), 2);
    assert_int_equal(lvn_size(lvn_max_pool2d_with(x, 2, NULL), 1), 2);
    assert_int_equal(lvn_size(lvn_max_pool2d(x, 2, .stride = 1), 1), 3);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
}

/* Kernels, strides and borders that differ between height and width. */
typedef struct uneven {
    lvn_module base;
    lvn_module *down, *up;
} uneven;

static lvn_status uneven_build(lvn_module *module, lvn_builder *b)
{
    uneven *m = (uneven *)module;
    m->down = lvn_nn_conv2d(b, "down", 2, 3, 1, .kernel_hw = {0, 5}, .stride_hw = {2, 1},
                            .padding_hw = {0, 2}, .dilation_hw = {0, 2});
    m->up = lvn_nn_conv_transpose2d(b, "up", 3, 2, 3, .kernel_hw = {2, 0}, .stride_hw = {2, 1},
                                    .padding_hw = {0, 1}, .output_padding_hw = {1, 0},
                                    .dilation_hw = {1, 2});
    return lvn_builder_status(b);
}

static void assert_shape(const lvn_tensor *t, const int64_t want[4])
{
    assert_non_null(t);
    assert_int_equal(lvn_ndim(t), 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(lvn_size(t, i), want[i]);
    }
}

TEST(layers_whose_axes_differ)
{
    static const lvn_module_class uneven_class = {
        .name = "uneven", .size = sizeof(uneven), .build = uneven_build};
    lvni_nn_model *m;
    assert_int_equal(lvni_nn_model_build(&uneven_class, NULL, 1, &m), LVN_OK);
    const uneven *u = (const uneven *)m->root;
    assert_shape(m->parameters[0].tensor, (const int64_t[]){3, 1, 5, 2}); /* down.weight */
    assert_shape(m->parameters[2].tensor, (const int64_t[]){3, 2, 3, 2}); /* up.weight */
    int64_t in_file[LVN_MAX_NDIM];
    assert_int_equal(lvni_nn_parameter_file_shape(&m->parameters[2], in_file), 4);
    assert_true(in_file[0] == 3 && in_file[1] == 2 && in_file[2] == 2 && in_file[3] == 3);
    lvn_tensor *x = lvn_tensor_create(LVN_F32, LVN_SHAPE(1, 7, 9, 2));
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *y = lvn_forward(u->down, x);
    assert_shape(y, (const int64_t[]){1, 4, 5, 3}); /* (7 - 1) / 2 + 1, 9 + 4 - 8 */
    /* 3 * 2 + 2 + 1, 4 - 2 + 4 + 1 */
    assert_shape(lvn_forward(u->up, y), (const int64_t[]){1, 9, 7, 2});
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
    lvni_nn_model_destroy(m);
}

typedef struct sequence {
    lvn_module base;
    lvn_module *conv;
} sequence;

static lvn_status sequence_build(lvn_module *module, lvn_builder *b)
{
    ((sequence *)module)->conv =
        lvn_nn_conv1d(b, "conv", 4, 6, 3, .stride = 2, .padding = 1, .dilation = 2, .groups = 2);
    return lvn_builder_status(b);
}

static lvn_status bad_sequence_build(lvn_module *module, lvn_builder *b)
{
    (void)module;
    lvn_nn_conv1d(b, "conv", 4, 6, 3, .groups = 4);
    return lvn_builder_status(b);
}

/* The layer is the op with its parameters; files have the weight as (O, I / groups, K). */
TEST(sequences_are_convolved)
{
    static const lvn_module_class sequence_class = {
        .name = "sequence", .size = sizeof(sequence), .build = sequence_build};
    lvni_nn_model *m;
    assert_int_equal(lvni_nn_model_build(&sequence_class, NULL, 1, &m), LVN_OK);
    const lvni_nn_parameter *w = &m->parameters[0], *bias = &m->parameters[1];
    assert_string_equal(w->name, "conv.weight");
    assert_string_equal(bias->name, "conv.bias");
    int64_t in_file[LVN_MAX_NDIM];
    assert_int_equal(lvni_nn_parameter_file_shape(w, in_file), 3);
    assert_true(in_file[0] == 6 && in_file[1] == 2 && in_file[2] == 3);
    float file[36], back[36];
    const float *here = lvn_const_data(w->tensor);
    lvni_nn_parameter_to_file(w, here, file);
    for (int o = 0; o < 6; o++) {
        for (int k = 0; k < 3; k++) {
            for (int i = 0; i < 2; i++) {
                assert_true(file[(o * 2 + i) * 3 + k] == here[(o * 3 + k) * 2 + i]);
            }
        }
    }
    lvni_nn_parameter_from_file(w, file, back);
    assert_memory_equal(back, here, sizeof back);
    double most = 0.0;
    for (int i = 0; i < 36; i++) {
        most = fmax(most, fabs((double)here[i]));
    }
    assert_true(most <= 1.0 / sqrt(6.0) && most > 0.8 / sqrt(6.0)); /* fan in: 2 * 3 */
    lvn_tensor *x = lvn_tensor_create(LVN_F32, LVN_SHAPE(2, 9, 4));
    for (int64_t i = 0; i < lvn_numel(x); i++) {
        ((float *)lvn_data(x))[i] = (float)(i * 37 % 101) / 50.0f;
    }
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *y = lvn_forward(((const sequence *)m->root)->conv, x),
               *plain = lvn_conv1d(x, w->tensor, bias->tensor, .stride = 2, .padding = 1,
                                   .dilation = 2, .groups = 2);
    assert_non_null(y);
    assert_int_equal(lvn_numel(y), 2 * 4 * 6); /* (9 + 2 - 4 - 1) / 2 + 1 places */
    assert_memory_equal(lvn_const_data(y), lvn_const_data(plain), 48 * sizeof(float));
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
    lvni_nn_model_destroy(m);
    static const lvn_module_class bad_class = {
        .name = "bad", .size = sizeof(lvn_module), .build = bad_sequence_build};
    assert_int_equal(lvni_nn_model_build(&bad_class, NULL, 1, &m), LVN_ERR_INVALID);
    assert_string_equal(
        lvn_last_error()->message,
        "conv: a convolution from 4 to 6 channels with kernel 3 and 4 groups is not possible");
}

/* ---- recurrent cells ---- */

typedef struct memory {
    lvn_module base;
    lvn_module *gru, *lstm;
} memory;

static lvn_status memory_build(lvn_module *module, lvn_builder *b)
{
    memory *m = (memory *)module;
    m->gru = lvn_nn_gru_cell(b, "gru", 3, 2);
    m->lstm = lvn_nn_lstm_cell(b, "lstm", 3, 2, .no_bias = true);
    return lvn_builder_status(b);
}

static lvn_status empty_cell_build(lvn_module *module, lvn_builder *b)
{
    (void)module;
    lvn_nn_gru_cell(b, "gru", 3, 0);
    return lvn_builder_status(b);
}

/* The modules are the ops with their parameters, whose names are PyTorch's. */
TEST(cells_step_with_their_parameters)
{
    static const char *const names[] = {"gru.weight_ih", "gru.weight_hh",  "gru.bias_ih",
                                        "gru.bias_hh",   "lstm.weight_ih", "lstm.weight_hh"};
    static const lvn_module_class memory_class = {
        .name = "memory", .size = sizeof(memory), .build = memory_build};
    lvni_nn_model *m;
    assert_int_equal(lvni_nn_model_build(&memory_class, NULL, 1, &m), LVN_OK);
    assert_int_equal(m->n_parameters, 6);
    lvn_tensor *p[6];
    for (int i = 0; i < 6; i++) {
        assert_string_equal(m->parameters[i].name, names[i]);
        p[i] = m->parameters[i].tensor;
    }
    const memory *cells = (const memory *)m->root;
    lvn_tensor *x = lvn_tensor_create(LVN_F32, LVN_SHAPE(1, 3)),
               *h = lvn_tensor_create(LVN_F32, LVN_SHAPE(1, 2)), *c, *plain_c;
    for (int i = 0; i < 3; i++) {
        ((float *)lvn_data(x))[i] = (float)i - 0.5f;
        ((float *)lvn_data(h))[i % 2] = 0.25f;
    }
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *next = lvn_nn_gru_cell_step(cells->gru, x, h),
               *plain = lvn_gru_cell(x, h, p[0], p[1], p[2], p[3]);
    assert_memory_equal(lvn_const_data(next), lvn_const_data(plain), 2 * sizeof(float));
    next = lvn_nn_lstm_cell_step(cells->lstm, x, h, h, &c);
    plain = lvn_lstm_cell(x, h, h, p[4], p[5], NULL, NULL, &plain_c);
    assert_memory_equal(lvn_const_data(next), lvn_const_data(plain), 2 * sizeof(float));
    assert_memory_equal(lvn_const_data(c), lvn_const_data(plain_c), 2 * sizeof(float));
    assert_null(lvn_gru_cell(x, x, p[0], p[1], NULL, NULL));
    assert_string_equal(lvn_last_error()->message,
                        "gru_cell: x is (1, 3), h (1, 3), w_ih (6, 3), w_hh (6, 2); they must be "
                        "(N, I), (N, H), (3 H, I), (3 H, H)");
    assert_int_equal(lvn_scope_close(), LVN_ERR_SHAPE);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_null(lvn_lstm_cell(x, h, x, p[4], p[5], NULL, NULL, &c));
    assert_string_equal(lvn_last_error()->message,
                        "lstm_cell: h is (1, 2) but c is (1, 3); both must have one shape");
    assert_null(c);
    assert_int_equal(lvn_scope_close(), LVN_ERR_SHAPE);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_null(lvn_nn_gru_cell_step(cells->lstm, x, h));
    assert_string_equal(lvn_last_error()->message,
                        "gru_cell: the module is lstm_cell; it must be made by lvn_nn_gru_cell");
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    lvn_release(x);
    lvn_release(h);
    lvni_nn_model_destroy(m);
    static const lvn_module_class empty_class = {
        .name = "empty", .size = sizeof(lvn_module), .build = empty_cell_build};
    assert_int_equal(lvni_nn_model_build(&empty_class, NULL, 1, &m), LVN_ERR_INVALID);
    assert_string_equal(lvn_last_error()->message,
                        "gru: a cell of 0 features from 3 is not possible");
}

TEST(a_buffer_of_another_model_is_refused)
{
    lvni_nn_model *m = make(), *other = make();
    lvni_nn_set *set;
    assert_int_equal(lvni_nn_set_create(m, &set), LVN_OK);
    lvni_nn_set_begin(set, 1.0);
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    ctx->records = set;
    ctx->at.training = true;
    lvn_tensor *value = lvn_tensor_create(LVN_F32, 1, (const int64_t[]){1});
    assert_int_equal(lvn_buffer_push(((net *)other->root)->buffer, value), LVN_ERR_INVALID);
    assert_int_equal(lvn_buffer_push(((net *)m->root)->buffer, value), LVN_OK);
    ctx->records = NULL;
    ctx->at.training = false;
    lvn_release(value);
    lvni_nn_set_destroy(set);
    lvni_nn_model_destroy(other);
    lvni_nn_model_destroy(m);
}

TEST(nothing_is_asked_of_null)
{
    assert_int_equal(lvn_size(NULL, 0), 0);
    assert_int_equal(lvn_numel(NULL), 0);
    assert_int_equal(lvn_ndim(NULL), 0);
    assert_null(lvn_data(NULL));
    assert_int_equal(lvn_tensor_dtype(NULL), LVN_DTYPE_COUNT);
}

static lvn_tensor *counted(int ndim, const int64_t *shape)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F32, ndim, shape);
    for (int64_t i = 0; i < lvn_numel(t); i++) {
        ((float *)lvn_data(t))[i] = (float)(i * 37 % 101);
    }
    return t;
}

TEST(a_vector_is_one_row_of_linear)
{
    lvn_tensor *x = counted(LVN_SHAPE(3)), *w = lvn_require_grad(counted(LVN_SHAPE(2, 3)));
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *y = lvn_linear(x, w, NULL),
               *rows = lvn_linear(lvn_reshape(x, 2, (const int64_t[]){1, 3}), w, NULL);
    assert_int_equal(lvn_ndim(y), 1);
    assert_int_equal(lvn_size(y, 0), 2);
    assert_memory_equal(lvn_const_data(y), lvn_const_data(rows), 2 * sizeof(float));
    assert_int_equal(lvn_backward(lvn_sum(y)), LVN_OK);
    assert_memory_equal(lvn_const_data(lvn_gradient(w)), lvn_const_data(x), 3 * sizeof(float));
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
    lvn_release(w);
}

/* A window of 20 x 20 over an image of 20 x 23: the last four columns in turn. */
TEST(large_windows_are_pooled)
{
    lvn_tensor *x = counted(LVN_SHAPE(1, 20, 23, 1));
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const lvn_tensor *y = lvn_max_pool2d(x, 20, .stride = 1);
    assert_int_equal(lvn_size(y, 1), 1);
    assert_int_equal(lvn_size(y, 2), 4);
    for (int64_t out = 0; out < 4; out++) {
        float most = 0.0f;
        for (int64_t i = 0; i < 20 * 20; i++) {
            const float v = ((const float *)lvn_const_data(x))[i / 20 * 23 + i % 20 + out];
            most = v > most ? v : most;
        }
        assert_float_equal(((const float *)lvn_const_data(y))[out], most, 0.0f);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
}

static void expect(const lvn_tensor *y, const char *want)
{
    assert_null(y);
    assert_string_equal(lvn_last_error()->message, want);
    lvn_scope_close();
    lvn_scope_open();
}

TEST(errors_name_the_call)
{
    lvn_tensor *x = counted(LVN_SHAPE(2, 3)), *empty = lvn_tensor_create(LVN_F32, LVN_SHAPE(2, 0)),
               *whole = lvn_tensor_create(LVN_I64, LVN_SHAPE(2));
    assert_int_equal(lvn_scope_open(), LVN_OK);
    expect(lvn_min_axis(x, 2, false),
           "min_axis: axis 2 does not exist or is named twice in a tensor of shape (2, 3)");
    expect(lvn_argmin(x, -3, false),
           "argmin: axis -3 does not exist or is named twice in a tensor of shape (2, 3)");
    expect(lvn_argmin(empty, 1, false), "argmin: x is (2, 0), and its axis 1 has no elements");
    expect(lvn_min_axis(whole, 0, false), "min_axis: x is i64, it must be f32, f64, bf16 or f16");
    expect(lvn_argmax(empty, 1, true), "argmax: x is (2, 0), and its axis 1 has no elements");
    lvn_clear_error();
    expect(lvn_min_axis(NULL, 0, false), "min_axis was given NULL");
    lvn_scope_close();
    lvn_release(x);
    lvn_release(empty);
    lvn_release(whole);
}

TEST(weights_of_losses_get_no_gradient)
{
    lvn_tensor *x = counted(LVN_SHAPE(2, 3)), *w = lvn_require_grad(counted(LVN_SHAPE(2, 3))),
               *labels = lvn_tensor_create(LVN_I64, LVN_SHAPE(2));
    assert_int_equal(lvn_scope_open(), LVN_OK);
    expect(
        lvn_mse_loss(x, x, .weight = w),
        "mse_loss: weight requires a gradient, but gets none here; lvn_detach of it is a constant");
    expect(lvn_bce_with_logits(x, w), "bce_with_logits: target requires a gradient, but gets none "
                                      "here; lvn_detach of it is a constant");
    lvn_tensor *per_row = lvn_sum_axes(w, (const int[]){1}, 1, false);
    expect(lvn_cross_entropy(x, labels, .sample_weight = per_row),
           "cross_entropy: sample_weight requires a gradient, but gets none here; lvn_detach of it "
           "is a constant");
    assert_non_null(lvn_mse_loss(x, x, .weight = lvn_detach(w)));
    const bool before = lvn_set_grad_enabled(false);
    assert_non_null(lvn_mse_loss(x, x, .weight = w));
    lvn_set_grad_enabled(before);
    lvn_scope_close();
    lvn_release(x);
    lvn_release(w);
    lvn_release(labels);
}

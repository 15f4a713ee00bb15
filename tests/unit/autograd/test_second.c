/* lvn_grad, create_graph, lvn_function, lvn_cast, lvn_detach: what the rows of test_gradients do
 * not show. */
#include "gradient_support.h"

#include "core/math.h"
#include "tensor/ctx.h"

#include <math.h>

static const dims vector = S(4);

/* d(sum x^3)/dx = 3 x^2; its sum's gradient 6 x; and its 6. */
TEST(gradients_of_gradients)
{
    lvn_tensor *x = make_leaf(LVN_F64, 1, &vector, NORMAL);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *y = lvn_sum(lvn_mul(lvn_mul(x, x), x));
    lvn_tensor *first = lvn_grad(y, x, .create_graph = true);
    lvn_tensor *second = lvn_grad(lvn_sum(first), x, .create_graph = true);
    lvn_tensor *third = lvn_grad(lvn_sum(second), x);
    assert_null(lvn_gradient(x)); /* lvn_grad leaves it alone */
    for (int64_t e = 0; e < 4; e++) {
        const double v = element(x, e);
        assert_true(fabs(element(first, e) - 3.0 * v * v) < 1e-12);
        assert_true(fabs(element(second, e) - 6.0 * v) < 1e-12);
        assert_true(fabs(element(third, e) - 6.0) < 1e-12);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
}

/* Of a result in the middle of the tape; grad_output weighs the elements of y. */
TEST(of_results_and_with_weights)
{
    lvn_tensor *x = make_leaf(LVN_F64, 1, &vector, NORMAL),
               *w = make_constant(LVN_F64, 2, 1, vector.size);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *h = lvn_mul_scalar(x, 2.0), *y = lvn_mul(h, h);
    lvn_tensor *dh = lvn_grad(y, h, .grad_output = w);
    for (int64_t e = 0; e < 4; e++) {
        assert_true(fabs(element(dh, e) - 2.0 * element(h, e) * element(w, e)) < 1e-12);
    }
    lvn_tensor *both[2] = {x, h}, *grads[2];
    assert_int_equal(lvn_grads_with(lvn_sum(y), both, 2, grads, NULL), LVN_OK);
    for (int64_t e = 0; e < 4; e++) {
        assert_true(fabs(element(grads[0], e) - 8.0 * element(x, e)) < 1e-12);
        assert_true(fabs(element(grads[1], e) - 4.0 * element(x, e)) < 1e-12);
    }
    assert_int_equal(lvn_backward(lvn_sum(y)), LVN_OK); /* the tape was kept */
    assert_true(fabs(element(lvn_gradient(x), 1) - 8.0 * element(x, 1)) < 1e-12);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
    lvn_release(w);
}

/* dx/dx is 1, of leaves and of results; also behind an op that gives its input back. */
TEST(of_itself)
{
    lvn_tensor *x = make_leaf(LVN_F64, 1, &vector, NORMAL),
               *s = lvn_require_grad(lvn_tensor_create(LVN_F64, 0, NULL));
    *(double *)lvn_data(s) = 2.5;
    lvn_tensor *w = make_constant(LVN_F64, 2, 1, vector.size);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *same[] = {x,
                          lvn_cast(x, LVN_F64),
                          lvn_dropout(x, 0.0),
                          lvn_permute(x, (int[]){0}, 1),
                          lvn_sum_to(x, 1, vector.size),
                          lvn_mul_scalar(x, 3.0)};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        lvn_tensor *g = lvn_grad(same[i], same[i], .grad_output = w, .create_graph = i % 2 == 1);
        assert_near("its own gradient", g, w, 0.0, 1.0);
    }
    assert_near("behind a cast", lvn_grad(lvn_cast(x, LVN_F64), x, .grad_output = w), w, 0.0, 1.0);
    assert_true(lvn_item(lvn_grad(s, s)) == 1.0);
    lvn_tensor *both[2] = {s, s}, *grads[2];
    assert_int_equal(lvn_grads_with(s, both, 2, grads, NULL), LVN_OK);
    assert_true(lvn_item(grads[0]) == 1.0 && lvn_item(grads[1]) == 1.0);
    assert_null(lvn_gradient(s));
    assert_int_equal(lvn_backward_scaled(s, 3.0), LVN_OK); /* s is its own loss */
    assert_int_equal(lvn_backward(lvn_cast(s, LVN_F64)), LVN_OK);
    assert_true(lvn_item(lvn_gradient(s)) == 4.0);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
    lvn_release(s);
    lvn_release(w);
}

/* |x - target| = beta lies on the straight part: the second derivative is 0 there, as in PyTorch,
 * and 1 / beta inside. */
TEST(second_derivative_of_smooth_l1)
{
    double at[4] = {-2.0, -1.0, 1.0, 2.0}, none[4] = {0.0};
    lvn_tensor *x = lvn_require_grad(lvn_tensor_wrap(at, LVN_F64, 1, vector.size)),
               *t = lvn_tensor_wrap(none, LVN_F64, 1, vector.size);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *loss = lvn_smooth_l1_loss(x, t, 2.0, .reduction = LVN_REDUCTION_SUM),
               *first = lvn_grad(loss, x, .create_graph = true),
               *second = lvn_grad(lvn_sum(first), x);
    static const double want[2][4] = {{-1.0, -0.5, 0.5, 1.0}, {0.0, 0.5, 0.5, 0.0}};
    for (int e = 0; e < 4; e++) {
        assert_true(element(first, e) == want[0][e] && element(second, e) == want[1][e]);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
    lvn_release(t);
}

/* A NaN on either side is the result, and all of the gradient goes to both sides, as in PyTorch:
 * where(equal, dy / 2, dy), 0 to the one that lost. */
TEST(nan_in_minimum_and_maximum)
{
    const double nan = (double)NAN;
    double left[4] = {nan, 1.0, nan, 2.0}, right[4] = {1.0, nan, nan, 2.0};
    static const double want[4] = {1.0, 1.0, 1.0, 0.5};
    float low[2][4];
    for (int k = 0; k < 2; k++) {
        const lvn_dtype dtype = k == 0 ? LVN_F64 : LVN_F32;
        for (int e = 0; e < 4; e++) {
            low[0][e] = (float)left[e];
            low[1][e] = (float)right[e];
        }
        lvn_tensor *in[2] = {lvn_require_grad(lvn_tensor_wrap(k == 0 ? (void *)left : low[0], dtype,
                                                              1, vector.size)),
                             lvn_require_grad(lvn_tensor_wrap(k == 0 ? (void *)right : low[1],
                                                              dtype, 1, vector.size))};
        assert_int_equal(lvn_scope_open(), LVN_OK);
        for (int i = 0; i < 4; i++) {
            lvn_tensor *y = i < 2 ? lvn_minimum(in[0], in[1]) : lvn_maximum(in[0], in[1]),
                       *grads[2];
            const lvn_grad_options graph = {.struct_size = sizeof graph,
                                            .create_graph = i % 2 == 1};
            assert_int_equal(lvn_grads_with(lvn_sum(y), in, 2, grads, &graph), LVN_OK);
            for (int e = 0; e < 4; e++) {
                assert_true(e < 3 ? isnan(element(y, e)) : element(y, e) == 2.0);
                assert_true(element(grads[0], e) == want[e] && element(grads[1], e) == want[e]);
            }
        }
        assert_int_equal(lvn_scope_close(), LVN_OK);
        lvn_release(in[0]);
        lvn_release(in[1]);
    }
}

TEST(errors)
{
    lvn_tensor *x = make_leaf(LVN_F64, 1, &vector, NORMAL),
               *z = make_leaf(LVN_F64, 2, &vector, NORMAL);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_null(lvn_grad(lvn_sum(x), z));
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    assert_error_has("does not depend on tensor 0");
    lvn_clear_error();
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_null(lvn_grad(lvn_mul_scalar(x, 2.0), x));
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    assert_error_has("give .grad_output");
    lvn_clear_error();
    int64_t label = 0;
    const dims row = S(1, 4);
    lvn_tensor *labels = lvn_tensor_wrap(&label, LVN_I64, 1, (const int64_t[]){1}),
               *logits = make_leaf(LVN_F64, 3, &row, NORMAL);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_null(lvn_grad(lvn_sum(lvn_max_axis(logits, 1, false)), logits, .create_graph = true));
    assert_int_equal(lvn_scope_close(), LVN_ERR_UNSUPPORTED);
    assert_error_has("max has no second derivative");
    lvn_clear_error();
    assert_int_equal(lvn_scope_open(), LVN_OK); /* the failure left nothing behind */
    assert_non_null(lvn_grad(lvn_sum(lvn_max_axis(logits, 1, false)), logits));
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
    lvn_release(z);
    lvn_release(labels);
    lvn_release(logits);
}

TEST(detached)
{
    lvn_tensor *x = make_leaf(LVN_F64, 1, &vector, NORMAL);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_int_equal(lvn_backward(lvn_sum(lvn_mul(x, lvn_detach(lvn_mul_scalar(x, 3.0))))), LVN_OK);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    for (int64_t e = 0; e < 4; e++) {
        assert_true(fabs(element(lvn_gradient(x), e) - 3.0 * element(x, e)) < 1e-12);
    }
    lvn_release(x);
}

/* ---- a user's own op: y = a x^3 ---- */

static lvn_tensor *cube_forward(lvn_function_call *call, lvn_tensor *const *in)
{
    call->saved[0] = in[0];
    return lvn_mul_scalar(lvn_mul(lvn_mul(in[0], in[0]), in[0]), *(const double *)call->attr);
}

static lvn_status cube_backward(lvn_function_call *call, lvn_tensor *dy, lvn_tensor **dx)
{
    assert_true(call->wanted[0]);
    dx[0] =
        lvn_mul(dy, lvn_mul_scalar(lvn_square(call->saved[0]), 3.0 * *(const double *)call->attr));
    return LVN_OK;
}

static const lvn_function cube = {.name = "cube",
                                  .attr_size = sizeof(double),
                                  .forward = cube_forward,
                                  .backward = cube_backward,
                                  .differentiable = true};

static lvn_tensor *fn_cube(lvn_tensor *const *in)
{
    const double a = 1.5;
    return lvn_apply(&cube, in, 1, &a);
}

/* The same filled by hand: no second derivative. */
static lvn_tensor *hand_forward(lvn_function_call *call, lvn_tensor *const *in)
{
    call->saved[0] = in[0];
    lvn_tensor *y = lvn_zeros(LVN_F64, 1, vector.size);
    for (int64_t e = 0; e < 4; e++) {
        const double v = element(in[0], e);
        ((double *)lvn_data(y))[e] = v * v * v;
    }
    return y;
}

static lvn_status hand_backward(lvn_function_call *call, lvn_tensor *dy, lvn_tensor **dx)
{
    dx[0] = lvn_zeros(LVN_F64, 1, vector.size);
    for (int64_t e = 0; e < 4; e++) {
        const double v = element(call->saved[0], e);
        ((double *)lvn_data(dx[0]))[e] = 3.0 * v * v * element(dy, e);
    }
    return LVN_OK;
}

static const lvn_function by_hand = {
    .name = "by_hand", .forward = hand_forward, .backward = hand_backward};

static lvn_tensor *fn_hand(lvn_tensor *const *in)
{
    return lvn_apply(&by_hand, in, 1, NULL);
}

static lvn_tensor *same_forward(lvn_function_call *call, lvn_tensor *const *in)
{
    (void)call;
    return in[0];
}

TEST(own_ops)
{
    lvn_tensor *x = make_leaf(LVN_F64, 1, &vector, NORMAL);
    check_gradients("cube", fn_cube, &x, 1, 1e-8);
    check_second_gradients("cube", fn_cube, &x, 1, 1e-6);
    lvn_zero_grad(x);
    check_gradients("by hand", fn_hand, &x, 1, 1e-8);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_null(lvn_grad(lvn_sum(fn_hand(&x)), x, .create_graph = true));
    assert_int_equal(lvn_scope_close(), LVN_ERR_UNSUPPORTED);
    assert_error_has("by_hand has no second derivative");
    lvn_clear_error();
    const lvn_function same = {.name = "same", .forward = same_forward, .backward = hand_backward};
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_null(lvn_apply(&same, &x, 1, NULL));
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    assert_error_has("returned one of its inputs");
    lvn_clear_error();
    lvn_release(x);
}

/* ---- rules that do what they must not ---- */

static lvn_status wide_backward(lvn_function_call *call, lvn_tensor *dy, lvn_tensor **dx)
{
    (void)call;
    dx[0] = lvn_expand(dy, 2, (const int64_t[]){3, 4}); /* the input is (4) */
    return LVN_OK;
}

static lvn_status nested_backward(lvn_function_call *call, lvn_tensor *dy, lvn_tensor **dx)
{
    dx[0] = lvn_grad(lvn_sum(lvn_mul(call->saved[0], dy)), call->saved[0]);
    return lvn_scope_status();
}

static lvn_status again_backward(lvn_function_call *call, lvn_tensor *dy, lvn_tensor **dx)
{
    (void)dx;
    return lvn_backward(lvn_sum(lvn_mul(call->saved[0], dy)));
}

TEST(bad_rules_are_reported)
{
    static const struct {
        lvn_function f;
        lvn_status status;
        const char *reports;
    } bad[] = {{{.name = "wide", .forward = hand_forward, .backward = wide_backward},
                LVN_ERR_SHAPE,
                "of shape (3, 4) for input 0, which is (4)"},
               {{.name = "nested", .forward = hand_forward, .backward = nested_backward},
                LVN_ERR_INVALID,
                "lvn_grad"},
               {{.name = "again", .forward = hand_forward, .backward = again_backward},
                LVN_ERR_INVALID,
                "lvn_backward"}};
    static const lvn_function empty = {.name = "empty"};
    lvn_tensor *leaf = make_leaf(LVN_F64, 1, &vector, NORMAL);
    assert_null(lvn_apply(&empty, &leaf, 1, NULL));
    assert_error_has("lvn_apply(empty): a function needs a name, a forward and a backward");
    lvn_clear_error();
    lvn_release(leaf);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lvn_tensor *x = make_leaf(LVN_F64, 1, &vector, NORMAL);
        assert_int_equal(lvn_scope_open(), LVN_OK);
        assert_int_equal(lvn_backward(lvn_sum(lvn_apply(&bad[i].f, &x, 1, NULL))), bad[i].status);
        assert_error_has(bad[i].reports);
        (void)lvn_scope_close();
        lvn_clear_error();
        lvn_release(x);
    }
}

/* ---- values at edges ---- */

TEST(edges)
{
    int64_t whole[3] = {-1, 0, 1};
    double zero = 0.0, two = 2.0;
    lvn_tensor *i = lvn_tensor_wrap(whole, LVN_I64, 1, (const int64_t[]){3});
    lvn_tensor *a = lvn_require_grad(lvn_tensor_wrap(&zero, LVN_F64, 0, NULL)),
               *b = lvn_require_grad(lvn_tensor_wrap(&two, LVN_F64, 0, NULL));
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const uint8_t *less = lvn_const_data(lvn_lt_scalar(i, 0.5)),
                  *equal = lvn_const_data(lvn_eq_scalar(i, 0.5)),
                  *bounded = lvn_const_data(lvn_lt_scalar(i, (double)INFINITY)),
                  *none = lvn_const_data(lvn_ge_scalar(i, (double)NAN));
    assert_true(less[0] && less[1] && !less[2] && !equal[0] && !equal[1] && !equal[2] &&
                bounded[2] && !none[0] && !none[2]);
    lvn_tensor *in[2] = {a, b}, *fused[2], *ops[2];
    const lvn_grad_options graph = {.struct_size = sizeof graph, .create_graph = true};
    assert_int_equal(lvn_grads_with(lvn_pow(a, b), in, 2, fused, NULL), LVN_OK);
    assert_int_equal(lvn_grads_with(lvn_pow(a, b), in, 2, ops, &graph), LVN_OK);
    for (int k = 0; k < 2; k++) {
        assert_true(lvn_item(fused[k]) == 0.0 && lvn_item(ops[k]) == 0.0);
    }
    lvn_tensor *twice[2] = {a, a};
    assert_int_equal(lvn_grads_with(lvn_mul_scalar(a, 3.0), twice, 2, fused, NULL), LVN_OK);
    assert_true(lvn_item(fused[0]) == 3.0 && lvn_item(fused[1]) == 3.0);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(i);
    lvn_release(a);
    lvn_release(b);
}

/* log(1 + e^x) where e^x is far below 1; the same is the loss of a right answer at -x. */
TEST(small_values_of_softplus)
{
    for (int k = 0; k < 2; k++) {
        const lvn_dtype dtype = k == 0 ? LVN_F64 : LVN_F32;
        const double least = k == 0 ? 2e-15 : 4e-7;
        for (int e = 0; e < 64; e++) {
            assert_int_equal(lvn_scope_open(), LVN_OK);
            lvn_tensor *x = lvn_add_scalar(lvn_zeros(dtype, 0, NULL), -40.0 + 0.625 * e),
                       *one = lvn_add_scalar(lvn_mul_scalar(x, 0.0), 1.0);
            const double want = log1p(exp(-40.0 + 0.625 * e));
            assert_true(fabs(lvn_item(lvn_softplus(x)) / want - 1.0) < least);
            assert_true(fabs(lvn_item(lvn_bce_with_logits(lvn_neg(x), one)) / want - 1.0) < least);
            assert_int_equal(lvn_scope_close(), LVN_OK);
        }
    }
}

/* ---- types ---- */

TEST(casts)
{
    const float values[4] = {1.0f + 0x1p-8f, 1.0f + 0x3p-8f, 65519.0f, 0x1p-24f};
    float copy[4];
    for (int e = 0; e < 4; e++) {
        copy[e] = values[e];
    }
    lvn_tensor *x = lvn_require_grad(lvn_tensor_wrap(copy, LVN_F32, 1, vector.size));
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *b = lvn_cast(x, LVN_BF16), *h = lvn_cast(x, LVN_F16);
    const uint16_t *bits = lvn_const_data(b), *half = lvn_const_data(h);
    assert_int_equal(bits[0], 0x3f80); /* ties go to the even neighbour: down, up */
    assert_int_equal(bits[1], 0x3f82);
    assert_int_equal(half[2], 0x7bff); /* 65504, the largest */
    assert_int_equal(half[3], 0x0001); /* the smallest subnormal */
    assert_ptr_equal(lvn_cast(x, LVN_F32), x);
    assert_int_equal(lvn_backward(lvn_sum(lvn_mul(lvn_cast(b, LVN_F32), lvn_cast(h, LVN_F32)))),
                     LVN_OK);
    assert_int_equal(lvn_tensor_dtype(lvn_gradient(x)), LVN_F32);
    assert_true(fabs(element(lvn_gradient(x), 0) - 2.0) < 0.02);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
}

/* A product under bf16-mixed gives bf16, a sum of it f32; the leaf's gradient comes back in f32. */
TEST(mixed_precision_chooses_types)
{
    const dims a = S(3, 4), b = S(4, 2);
    lvn_tensor *x = make_leaf(LVN_F32, 1, &a, NORMAL), *w = make_leaf(LVN_F32, 2, &b, NORMAL);
    for (int k = 0; k < 2; k++) {
        const lvn_dtype low = k == 0 ? LVN_BF16 : LVN_F16;
        lvni_tensor_ctx_get()->low = low;
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *y = lvn_matmul(x, w);
        assert_int_equal(lvn_tensor_dtype(y), low);
        assert_int_equal(lvn_tensor_dtype(lvn_relu(y)), low);
        assert_int_equal(lvn_tensor_dtype(lvn_add(y, lvn_zeros(LVN_F32, 0, NULL))), LVN_F32);
        lvn_tensor *loss = lvn_sum(y);
        assert_int_equal(lvn_tensor_dtype(loss), LVN_F32);
        lvn_zero_grad(x);
        assert_int_equal(lvn_backward(loss), LVN_OK);
        assert_int_equal(lvn_tensor_dtype(lvn_gradient(x)), LVN_F32);
        assert_true(fabs(element(lvn_gradient(x), 0) - element(w, 0) - element(w, 1)) < 0.02);
        assert_int_equal(lvn_scope_close(), LVN_OK);
    }
    lvni_tensor_ctx_get()->low = LVN_F32;
    lvn_release(x);
    lvn_release(w);
}

/* A learned slope stays f32, and so does its gradient: added up in f32 by the kernel; the rule that
 * create_graph takes rounds its terms. */
TEST(a_learned_slope_beside_16_bits)
{
    const dims a = S(3, 4), b = S(4, 2), one = S(1);
    lvn_tensor *x = make_leaf(LVN_F32, 1, &a, NORMAL), *w = make_leaf(LVN_F32, 2, &b, NORMAL);
    lvn_tensor *slope = make_leaf(LVN_F32, 3, &one, NORMAL);
    for (int k = 0; k < 2; k++) {
        const lvn_dtype low = k == 0 ? LVN_BF16 : LVN_F16;
        lvni_tensor_ctx_get()->low = low;
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *h = lvn_matmul(x, w), *y = lvn_prelu(h, slope);
        assert_int_equal(lvn_tensor_dtype(y), low);
        double want = 0.0, terms = 0.0;
        lvn_tensor *wide = lvn_cast(h, LVN_F32);
        for (int64_t e = 0; e < lvn_numel(wide); e++) {
            const double value = element(wide, e);
            want += value > 0.0 ? 0.0 : value;
            terms += fabs(value);
        }
        lvn_tensor *first = lvn_grad(lvn_sum(y), slope);
        lvn_tensor *second = lvn_grad(lvn_sum(y), slope, .create_graph = true);
        assert_int_equal(lvn_tensor_dtype(first), LVN_F32);
        assert_int_equal(lvn_tensor_dtype(second), LVN_F32);
        assert_true(fabs(element(first, 0) - want) < 1e-6 * terms);
        assert_true(fabs(element(second, 0) - want) < 0.02 * terms);
        assert_int_equal(lvn_scope_close(), LVN_OK);
    }
    lvni_tensor_ctx_get()->low = LVN_F32;
    lvn_release(x);
    lvn_release(w);
    lvn_release(slope);
}

/* Logits in 16 bits: the loss is f32, and all bits are those of logits that were cast before. */
TEST(cross_entropy_of_16_bits)
{
    const dims a = S(5, 4), b = S(4, 7), classes = S(7);
    int64_t label[5] = {6, 0, 3, 1, 2};
    lvn_tensor *x = make_leaf(LVN_F32, 1, &a, NORMAL), *w = make_leaf(LVN_F32, 2, &b, NORMAL);
    lvn_tensor *labels = lvn_tensor_wrap(label, LVN_I64, 1, (const int64_t[]){5});
    lvn_tensor *of_class = make_leaf(LVN_F32, 3, &classes, POSITIVE);
    for (int k = 0; k < 4; k++) {
        const lvn_dtype low = k < 2 ? LVN_BF16 : LVN_F16;
        lvni_tensor_ctx_get()->low = low;
        assert_int_equal(lvn_scope_open(), LVN_OK);
        const lvn_class_loss_options o = {.struct_size = sizeof o,
                                          .class_weight = k % 2 == 0 ? NULL : lvn_detach(of_class),
                                          .label_smoothing = k % 2 == 0 ? 0.0 : 0.1};
        lvn_tensor *y = lvn_matmul(x, w), *wide = lvn_cast(y, LVN_F32);
        assert_int_equal(lvn_tensor_dtype(y), low);
        lvn_tensor *loss = lvn_cross_entropy_with(y, labels, &o),
                   *cast = lvn_cross_entropy_with(wide, labels, &o);
        assert_int_equal(lvn_tensor_dtype(loss), LVN_F32);
        assert_true(lvn_item(loss) == lvn_item(cast));
        lvn_tensor *dx = lvn_grad(loss, x), *want = lvn_grad(cast, x);
        for (int64_t e = 0; e < lvn_numel(dx); e++) {
            assert_true(element(dx, e) == element(want, e));
        }
        assert_true(lvn_item(lvn_accuracy(y, labels)) == lvn_item(lvn_accuracy(wide, labels)));
        assert_int_equal(lvn_scope_close(), LVN_OK);
    }
    lvni_tensor_ctx_get()->low = LVN_F32;
    lvn_release(x);
    lvn_release(w);
    lvn_release(labels);
    lvn_release(of_class);
}

/* lvn_backward of every op in ops.h against central differences, in f64 on the reference backend, over
 * shapes, axes and options. An op of ops.h without a row here fails the last test. */
#include "gradient_support.h"

#include "tensor/ctx.h"

#include <stdio.h>
#include <string.h>

/* The one table of tolerances, relative to the largest gradient of an input: h = 1e-5, so differences are
 * good to about 1e-10 of values near 1; functions of large third derivative lose more. */
#define SMOOTH 1e-8
#define CURVED 1e-7 /* quotients, roots, batch statistics */

#define FN(name, formula)                                                                                    \
    static lvn_tensor *fn_##name(lvn_tensor *const *in)                                                      \
    {                                                                                                        \
        return formula;                                                                                      \
    }
FN(add, lvn_add(in[0], in[1]))
FN(sub, lvn_sub(in[0], in[1]))
FN(mul, lvn_mul(in[0], in[1]))
FN(div, lvn_div(in[0], in[1]))
FN(add_scalar, lvn_add_scalar(in[0], 2.5))
FN(mul_scalar, lvn_mul_scalar(in[0], -1.5))
FN(neg, lvn_neg(in[0]))
FN(exp, lvn_exp(in[0]))
FN(log_e, lvn_log_e(in[0]))
FN(square, lvn_square(in[0]))
FN(sqrt, lvn_sqrt(in[0]))
FN(relu, lvn_relu(in[0]))
FN(sum, lvn_sum(in[0]))
FN(mean, lvn_mean(in[0]))
FN(sum_first, lvn_sum_axes(in[0], (const int[]){0}, 1, false))
FN(sum_last_two, lvn_sum_axes(in[0], (const int[]){-1, 1}, 2, true))
FN(sum_none, lvn_sum_axes(in[0], NULL, 0, false))
FN(mean_middle, lvn_mean_axes(in[0], (const int[]){1}, 1, true))
FN(mean_outer, lvn_mean_axes(in[0], (const int[]){0, -1}, 2, false))
FN(max_0, lvn_max_axis(in[0], 0, false))
FN(max_1, lvn_max_axis(in[0], 1, true))
FN(max_last, lvn_max_axis(in[0], -1, false))
FN(reshape, lvn_reshape(in[0], 3, (const int64_t[]){2, -1, 3}))
FN(flatten, lvn_flatten(in[0], 1))
FN(flatten_last, lvn_flatten(in[0], -1))
FN(matmul, lvn_matmul(in[0], in[1]))
FN(matmul_ta, lvn_matmul(in[0], in[1], .trans_a = true))
FN(matmul_tb, lvn_matmul(in[0], in[1], .trans_b = true))
FN(matmul_tt, lvn_matmul(in[0], in[1], .trans_a = true, .trans_b = true))
FN(gram, lvn_matmul(in[0], in[0], .trans_b = true))
FN(linear, lvn_linear(in[0], in[1], in[2]))
FN(linear_plain, lvn_linear(in[0], in[1], NULL))
FN(conv, lvn_conv2d(in[0], in[1], in[2]))
FN(conv_plain, lvn_conv2d(in[0], in[1], NULL, .padding = 1))
FN(conv_stride, lvn_conv2d(in[0], in[1], in[2], .stride = 2, .padding = 1))
FN(conv_groups, lvn_conv2d(in[0], in[1], in[2], .padding = 1, .groups = 2))
FN(conv_dilation, lvn_conv2d(in[0], in[1], in[2], .padding = 2, .dilation = 2))
FN(pool, lvn_max_pool2d(in[0], 2))
FN(pool_overlap, lvn_max_pool2d(in[0], 3, .stride = 2, .padding = 1))
FN(global_avg, lvn_global_avg_pool2d(in[0]))
FN(norm_train, lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL))
FN(norm_train_relu, lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL, .relu = true))
FN(norm_train_add, lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL, .residual = in[3]))
FN(norm_train_both, lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL, .residual = in[3], .relu = true))
FN(norm_train_own, lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL, .residual = in[0], .relu = true))
FN(softmax, lvn_softmax(in[0]))
FN(log_softmax, lvn_log_softmax(in[0]))
FN(dropout, lvn_dropout(in[0], 0.4))

static lvn_tensor *constant[2]; /* of the test in work: running statistics, labels */
FN(norm_eval, lvn_batch_norm_eval(in[0], in[1], in[2], constant[0], constant[1], 1e-2))
FN(norm_eval_relu, lvn_batch_norm_eval(in[0], in[1], in[2], constant[0], constant[1], 1e-2, .relu = true))
FN(norm_eval_both, lvn_batch_norm_eval(in[0], in[1], in[2], constant[0], constant[1], 1e-2, .residual = in[3], .relu = true))
FN(cross_entropy, lvn_cross_entropy(in[0], constant[0]))
FN(twice, lvn_add(lvn_mul(in[0], in[0]), lvn_mul_scalar(in[0], 3.0)))
FN(both_sides, lvn_add(in[0], in[0]))

typedef struct row {
    const char *op; /* as in ops.h, without lvn_ */
    formula f;
    double tolerance;
    int n;
    dims shape[4];
    domain from;
} row;

static const row rows[] = {
    {"add", fn_add, SMOOTH, 2, {S(3, 4), S(3, 4)}, NORMAL},
    {"add", fn_add, SMOOTH, 2, {S(2, 3, 4), S(4)}, NORMAL},
    {"add", fn_add, SMOOTH, 2, {S(3, 1), S(2, 1, 5)}, NORMAL}, /* both sides grow */
    {"add", fn_both_sides, SMOOTH, 1, {S(5)}, NORMAL},
    {"sub", fn_sub, SMOOTH, 2, {S(3, 4), S(3, 4)}, NORMAL},
    {"sub", fn_sub, SMOOTH, 2, {S(1, 4), S(3, 1)}, NORMAL},
    {"mul", fn_mul, SMOOTH, 2, {S(3, 4), S(3, 4)}, NORMAL},
    {"mul", fn_mul, SMOOTH, 2, {S(4), S(2, 3, 4)}, NORMAL},
    {"mul", fn_mul, SMOOTH, 2, {S(2, 1, 3), S(4, 1)}, NORMAL},
    {"mul", fn_twice, SMOOTH, 1, {S(3, 2)}, NORMAL},
    {"div", fn_div, CURVED, 2, {S(3, 4), S(3, 4)}, POSITIVE},
    {"div", fn_div, CURVED, 2, {S(2, 3, 1), S(1, 4)}, POSITIVE},
    {"add_scalar", fn_add_scalar, SMOOTH, 1, {S(2, 5)}, NORMAL},
    {"mul_scalar", fn_mul_scalar, SMOOTH, 1, {S(2, 5)}, NORMAL},
    {"neg", fn_neg, SMOOTH, 1, {S(7)}, NORMAL},
    {"exp", fn_exp, SMOOTH, 1, {S(3, 5)}, NORMAL},
    {"log_e", fn_log_e, CURVED, 1, {S(3, 5)}, POSITIVE},
    {"square", fn_square, SMOOTH, 1, {S(3, 5)}, NORMAL},
    {"sqrt", fn_sqrt, CURVED, 1, {S(3, 5)}, POSITIVE},
    {"relu", fn_relu, SMOOTH, 1, {S(4, 5)}, APART},
    {"sum", fn_sum, SMOOTH, 1, {S(2, 3, 4)}, NORMAL},
    {"sum", fn_sum, SMOOTH, 1, {S(1)}, NORMAL},
    {"mean", fn_mean, SMOOTH, 1, {S(2, 3, 4)}, NORMAL},
    {"sum_axes", fn_sum_first, SMOOTH, 1, {S(3, 4)}, NORMAL},
    {"sum_axes", fn_sum_last_two, SMOOTH, 1, {S(2, 3, 4)}, NORMAL},
    {"sum_axes", fn_sum_none, SMOOTH, 1, {S(2, 3)}, NORMAL},
    {"mean_axes", fn_mean_middle, SMOOTH, 1, {S(2, 3, 4)}, NORMAL},
    {"mean_axes", fn_mean_outer, SMOOTH, 1, {S(2, 3, 4)}, NORMAL},
    {"max_axis", fn_max_0, SMOOTH, 1, {S(3, 4)}, APART},
    {"max_axis", fn_max_1, SMOOTH, 1, {S(2, 3, 4)}, APART},
    {"max_axis", fn_max_last, SMOOTH, 1, {S(2, 3, 4)}, APART},
    {"reshape", fn_reshape, SMOOTH, 1, {S(3, 4)}, NORMAL},
    {"flatten", fn_flatten, SMOOTH, 1, {S(2, 3, 4)}, NORMAL},
    {"flatten", fn_flatten_last, SMOOTH, 1, {S(2, 3, 4)}, NORMAL},
    {"matmul_with", fn_matmul, SMOOTH, 2, {S(3, 4), S(4, 5)}, NORMAL},
    {"matmul_with", fn_matmul_ta, SMOOTH, 2, {S(4, 3), S(4, 5)}, NORMAL},
    {"matmul_with", fn_matmul_tb, SMOOTH, 2, {S(3, 4), S(5, 4)}, NORMAL},
    {"matmul_with", fn_matmul_tt, SMOOTH, 2, {S(4, 3), S(5, 4)}, NORMAL},
    {"matmul_with", fn_gram, SMOOTH, 1, {S(3, 4)}, NORMAL},
    {"linear", fn_linear, SMOOTH, 3, {S(3, 4), S(5, 4), S(5)}, NORMAL},
    {"linear", fn_linear_plain, SMOOTH, 2, {S(2, 3), S(1, 3)}, NORMAL},
    {"conv2d_with", fn_conv, SMOOTH, 3, {S(2, 4, 5, 3), S(2, 3, 2, 3), S(2)}, NORMAL},
    {"conv2d_with", fn_conv_plain, SMOOTH, 2, {S(1, 3, 3, 2), S(3, 3, 3, 2)}, NORMAL},
    {"conv2d_with", fn_conv_stride, SMOOTH, 3, {S(2, 5, 4, 2), S(3, 3, 3, 2), S(3)}, NORMAL},
    {"conv2d_with", fn_conv_groups, SMOOTH, 3, {S(1, 3, 4, 4), S(6, 3, 3, 2), S(6)}, NORMAL},
    {"conv2d_with", fn_conv_dilation, SMOOTH, 3, {S(1, 5, 5, 2), S(2, 3, 3, 2), S(2)}, NORMAL},
    {"max_pool2d_with", fn_pool, SMOOTH, 1, {S(2, 4, 5, 2)}, APART},
    {"max_pool2d_with", fn_pool_overlap, SMOOTH, 1, {S(1, 5, 6, 2)}, APART},
    {"global_avg_pool2d", fn_global_avg, SMOOTH, 1, {S(2, 3, 4, 3)}, NORMAL},
    {"batch_norm_train_with", fn_norm_train, CURVED, 3, {S(2, 3, 2, 3), S(3), S(3)}, NORMAL},
    {"batch_norm_train_with", fn_norm_train, CURVED, 3, {S(5, 2), S(2), S(2)}, NORMAL},
    {"batch_norm_train_with", fn_norm_train_relu, CURVED, 3, {S(2, 3, 2, 3), S(3), S(3)}, NORMAL},
    {"batch_norm_train_with", fn_norm_train_add, CURVED, 4, {S(2, 3, 2, 3), S(3), S(3), S(2, 3, 2, 3)}, NORMAL},
    {"batch_norm_train_with", fn_norm_train_both, CURVED, 4, {S(2, 3, 2, 3), S(3), S(3), S(2, 3, 2, 3)}, NORMAL},
    {"batch_norm_train_with", fn_norm_train_own, CURVED, 3, {S(2, 3, 2, 3), S(3), S(3)}, NORMAL},
    {"softmax", fn_softmax, SMOOTH, 1, {S(3, 5)}, NORMAL},
    {"softmax", fn_softmax, SMOOTH, 1, {S(2, 2, 4)}, NORMAL},
    {"log_softmax", fn_log_softmax, SMOOTH, 1, {S(3, 5)}, NORMAL},
};

static void check_row(const row *r)
{
    lvn_tensor *in[4] = {NULL, NULL, NULL, NULL};
    char name[96];
    snprintf(name, sizeof name, "%s, row %d", r->op, (int)(r - rows));
    for (int i = 0; i < r->n; i++) {
        in[i] = make_leaf(LVN_F64, 10u + (uint64_t)i, &r->shape[i], r->from);
    }
    check_gradients(name, r->f, in, r->n, r->tolerance);
    for (int i = 0; i < r->n; i++) {
        lvn_release(in[i]);
    }
}

static void rows_of_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_row(&rows[i]);
    }
}

/* ---- ops with inputs that have no gradient, or that look at the context ---- */

static void batch_norm_eval(void **state)
{
    (void)state;
    const dims x = S(2, 2, 3, 3), c = S(3);
    lvn_tensor *in[] = {make_leaf(LVN_F64, 1, &x, NORMAL), make_leaf(LVN_F64, 2, &c, NORMAL),
                        make_leaf(LVN_F64, 3, &c, NORMAL), make_leaf(LVN_F64, 6, &x, NORMAL)};
    constant[0] = make_constant(LVN_F64, 4, 1, c.size);
    constant[1] = make_leaf(LVN_F64, 5, &c, POSITIVE);
    static const formula f[] = {fn_norm_eval, fn_norm_eval_relu, fn_norm_eval_both};
    for (int k = 0; k < 3; k++) {
        check_gradients("batch_norm_eval", f[k], in, k < 2 ? 3 : 4, CURVED);
        for (int i = 0; i < 4; i++) {
            lvn_zero_grad(in[i]);
        }
    }
    assert_null(lvn_gradient(constant[1])); /* running statistics have none, even if they ask */
    for (int i = 0; i < 4; i++) {
        lvn_release(in[i]);
    }
    lvn_release(constant[0]);
    lvn_release(constant[1]);
}

static void cross_entropy(void **state)
{
    (void)state;
    const dims shape = S(4, 3);
    lvn_tensor *x = make_leaf(LVN_F64, 6, &shape, NORMAL);
    constant[0] = make_labels(4, 3);
    check_gradients("cross_entropy", fn_cross_entropy, &x, 1, SMOOTH);
    lvn_release(x);
    lvn_release(constant[0]);
}

static lvn_tensor *dropout_here(lvn_tensor *const *in)
{
    lvni_ctx_get()->at =
        (lvni_position){.seed = 3, .step = 4, .shard = 5, .training = true}; /* the same numbers every time */
    return fn_dropout(in);
}

static void dropout(void **state)
{
    (void)state;
    const dims shape = S(5, 6);
    lvn_tensor *x = make_leaf(LVN_F64, 7, &shape, NORMAL);
    check_gradients("dropout", dropout_here, &x, 1, SMOOTH);
    int zeros = 0; /* p = 0.4 of 30 */
    for (int64_t e = 0; e < 30; e++) {
        zeros += element(lvn_gradient(x), e) == 0.0;
    }
    assert_in_range(zeros, 5, 20);
    lvni_ctx_get()->at = (lvni_position){0};
    lvn_release(x);
}

/* Inputs that want no gradient get none, and the others get the same one. */
static void only_what_is_wanted(void **state)
{
    (void)state;
    const dims shapes[] = {S(2, 4, 4, 2), S(3, 3, 3, 2), S(3)};
    for (int wanted = 1; wanted < 8; wanted++) {
        lvn_tensor *in[3];
        for (int i = 0; i < 3; i++) {
            in[i] = (wanted >> i & 1) != 0
                        ? make_leaf(LVN_F64, (uint64_t)i, &shapes[i], NORMAL)
                        : make_constant(LVN_F64, (uint64_t)i, shapes[i].ndim, shapes[i].size);
        }
        assert_int_equal(lvn_scope_open(), LVN_OK);
        assert_int_equal(lvn_backward(lvn_sum(lvn_square(lvn_conv2d(in[0], in[1], in[2], .padding = 1)))),
                         LVN_OK);
        assert_int_equal(lvn_scope_close(), LVN_OK);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(lvn_gradient(in[i]) != NULL, (wanted >> i & 1) != 0);
            lvn_release(in[i]);
        }
    }
}

/* ---- completeness ---- */

static bool has_row(const char *op)
{
    static const char *const elsewhere[] = {"batch_norm_eval_with", "cross_entropy", "dropout"};
    static const char *const without_gradient[] = {"keep", "require_grad", "gradient", "argmax", "accuracy"};
    bool found = false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        found = found || strcmp(rows[i].op, op) == 0;
    }
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        found = found || strcmp(elsewhere[i], op) == 0;
    }
    for (size_t i = 0; i < sizeof without_gradient / sizeof *without_gradient; i++) {
        found = found || strcmp(without_gradient[i], op) == 0;
    }
    return found;
}

static void every_op_of_the_header_is_here(void **state)
{
    (void)state;
    FILE *f = fopen(LEVIN_OPS_HEADER, "r");
    assert_non_null(f);
    char line[256], op[64];
    int n = 0;
    while (fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "LVN_API lvn_tensor *lvn_%63[a-z0-9_](", op) == 1) {
            n++;
            if (!has_row(op)) {
                fail_msg("lvn_%s has no row in test_gradients.c", op);
            }
        }
    }
    fclose(f);
    assert_true(n >= 35); /* the header was read */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_the_table),   cmocka_unit_test(batch_norm_eval),
        cmocka_unit_test(cross_entropy),       cmocka_unit_test(dropout),
        cmocka_unit_test(only_what_is_wanted), cmocka_unit_test(every_op_of_the_header_is_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* lvn_backward of every op in ops.h against central differences, in f64 on the reference backend,
 * over shapes, axes and options. An op of ops.h without a row here fails the last test. */
#include "gradient_rows.h"

#include "tensor/ctx.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

static lvn_tensor *constant[2]; /* of the running test: running statistics, labels */
FN(norm_eval, lvn_batch_norm_eval(in[0], in[1], in[2], constant[0], constant[1], 1e-2))
FN(norm_eval_relu,
   lvn_batch_norm_eval(in[0], in[1], in[2], constant[0], constant[1], 1e-2, .relu = true))
FN(norm_eval_both, lvn_batch_norm_eval(in[0], in[1], in[2], constant[0], constant[1], 1e-2,
                                       .residual = in[3], .relu = true))
FN(index_select, lvn_index_select(in[0], 1, constant[0]))
FN(gather, lvn_gather(in[0], -2, constant[1]))
FN(cross_entropy, lvn_cross_entropy(in[0], constant[0]))

static const row_table *const tables[] = {&rows_elementwise, &rows_reduce, &rows_shape,
                                          &rows_linear,      &rows_image,  &rows_norm,
                                          &rows_loss,        &rows_seq,    &rows_group};
enum { N_TABLES = sizeof tables / sizeof *tables };

static void check_row(const row *r, int number)
{
    lvn_tensor *in[LVN_FUNCTION_INPUTS] = {NULL};
    char name[96];
    snprintf(name, sizeof name, "%s, row %d", r->op, number);
    for (int i = 0; i < r->n; i++) {
        in[i] = make_leaf(LVN_F64, 10u + (uint64_t)i, &r->shape[i], r->from);
    }
    check_gradients(name, r->f, in, r->n, r->tolerance);
    if (r->second) {
        check_second_gradients(name, r->f, in, r->n, 100.0 * r->tolerance);
    }
    for (int i = 0; i < r->n; i++) {
        lvn_release(in[i]);
    }
}

TEST(rows_of_the_table)
{
    for (int t = 0; t < N_TABLES; t++) {
        for (size_t i = 0; i < tables[t]->n; i++) {
            check_row(&tables[t]->rows[i], (int)i);
        }
    }
}

/* ---- ops with inputs that have no gradient, or that look at the context ---- */

TEST(batch_norm_eval)
{
    const dims x = S(2, 2, 3, 3), c = S(3);
    lvn_tensor *in[] = {make_leaf(LVN_F64, 1, &x, NORMAL), make_leaf(LVN_F64, 2, &c, NORMAL),
                        make_leaf(LVN_F64, 3, &c, NORMAL), make_leaf(LVN_F64, 6, &x, NORMAL)};
    constant[0] = make_constant(LVN_F64, 4, 1, c.size);
    constant[1] = make_leaf(LVN_F64, 5, &c, POSITIVE);
    static const formula f[] = {fn_norm_eval, fn_norm_eval_relu, fn_norm_eval_both};
    for (int k = 0; k < 3; k++) {
        check_gradients("batch_norm_eval", f[k], in, k < 2 ? 3 : 4, CURVED);
        check_second_gradients("batch_norm_eval", f[k], in, k < 2 ? 3 : 4, 100.0 * CURVED);
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

TEST(cross_entropy)
{
    const dims shape = S(4, 3);
    lvn_tensor *x = make_leaf(LVN_F64, 6, &shape, NORMAL);
    constant[0] = make_labels(4, 3);
    check_gradients("cross_entropy", fn_cross_entropy, &x, 1, SMOOTH);
    lvn_release(x);
    lvn_release(constant[0]);
}

FN(cross_entropy_all,
   lvn_cross_entropy(in[0], constant[0], .ignores = true, .ignore_index = 1, .label_smoothing = 0.1,
                     .class_weight = lvn_detach(constant[1]), .reduction = LVN_REDUCTION_SUM))
FN(nll, lvn_nll_loss(lvn_log_softmax(in[0]), constant[0], .class_weight = lvn_detach(constant[1])))
FN(embedding, lvn_embedding(in[0], constant[0], .positions = in[1]))
FN(embedding_alone, lvn_embedding(in[0], constant[0]))

TEST(losses_and_lookups_with_labels)
{
    const dims shape = S(5, 3), positions = S(6, 3), three = S(3);
    lvn_tensor *in[] = {make_leaf(LVN_F64, 6, &shape, NORMAL),
                        make_leaf(LVN_F64, 7, &positions, NORMAL)};
    constant[0] = make_labels(5, 3);
    constant[1] = make_leaf(LVN_F64, 8, &three, POSITIVE);
    static const formula f[] = {fn_cross_entropy_all, fn_nll, fn_embedding, fn_embedding_alone};
    static const char *const names[] = {"cross_entropy", "nll_loss", "embedding",
                                        "embedding without positions"};
    for (int i = 0; i < 4; i++) {
        check_gradients(names[i], f[i], in, i == 2 ? 2 : 1, SMOOTH);
        lvn_zero_grad(in[0]);
        lvn_zero_grad(in[1]);
    }
    assert_null(lvn_gradient(constant[1])); /* weights have none */
    for (int i = 0; i < 2; i++) {
        lvn_release(in[i]);
        lvn_release(constant[i]);
    }
}

FN(mse_weighted,
   lvn_mse_loss(in[0], in[1], .weight = lvn_detach(constant[0]), .reduction = LVN_REDUCTION_SUM))
FN(mse_mean, lvn_mse_loss(in[0], in[1], .weight = lvn_detach(constant[0])))
FN(l1, lvn_l1_loss(in[0], in[1], .weight = lvn_detach(constant[0])))
FN(smooth, lvn_smooth_l1_loss(in[0], in[1], 0.9, .weight = lvn_detach(constant[0])))
FN(bce, lvn_bce_with_logits(in[0], lvn_detach(constant[0])))
FN(bce_weighted, lvn_bce_with_logits(in[0], lvn_detach(constant[0]),
                                     .weight = lvn_detach(constant[0]), .pos_weight = constant[1]))

FN(soft_weighted, lvn_soft_cross_entropy(in[0], in[1], .class_weight = constant[1],
                                         .reduction = LVN_REDUCTION_SUM))

TEST(losses_with_weights)
{
    const dims shape = S(4, 3), three = S(3);
    lvn_tensor *in[] = {make_leaf(LVN_F64, 6, &shape, NORMAL),
                        make_leaf(LVN_F64, 7, &shape, NORMAL)};
    constant[0] = make_leaf(LVN_F64, 9, &shape, POSITIVE);
    constant[1] = make_constant(LVN_F64, 8, 1, three.size);
    static const struct {
        const char *name;
        formula f;
        int n;
    } losses[] = {{"mse_loss, sum", fn_mse_weighted, 2},
                  {"mse_loss", fn_mse_mean, 2},
                  {"l1_loss", fn_l1, 2},
                  {"smooth_l1_loss", fn_smooth, 2},
                  {"soft_cross_entropy", fn_soft_weighted, 2},
                  {"bce_with_logits", fn_bce, 1},
                  {"bce_with_logits, weights", fn_bce_weighted, 1}};
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        check_gradients(losses[i].name, losses[i].f, in, losses[i].n, SMOOTH);
        check_second_gradients(losses[i].name, losses[i].f, in, losses[i].n, 100.0 * SMOOTH);
        lvn_zero_grad(in[0]);
        lvn_zero_grad(in[1]);
    }
    for (int i = 0; i < 2; i++) {
        lvn_release(in[i]);
        lvn_release(constant[i]);
    }
}

/* The same element several times, and some never. */
TEST(by_index)
{
    const dims shape = S(2, 4, 3);
    lvn_tensor *x = make_leaf(LVN_F64, 8, &shape, NORMAL);
    constant[0] = lvn_tensor_create(LVN_I64, LVN_SHAPE(5));
    constant[1] = lvn_tensor_create(LVN_I64, LVN_SHAPE(2, 5, 3));
    for (int64_t e = 0; e < 30; e++) {
        ((int64_t *)lvn_data(constant[1]))[e] = e * e % 4;
    }
    memcpy(lvn_data(constant[0]), (const int64_t[]){1, 3, 1, 0, 1}, 5 * sizeof(int64_t));
    check_gradients("index_select", fn_index_select, &x, 1, SMOOTH);
    check_second_gradients("index_select", fn_index_select, &x, 1, 100.0 * SMOOTH);
    lvn_zero_grad(x);
    check_gradients("gather", fn_gather, &x, 1, SMOOTH);
    check_second_gradients("gather", fn_gather, &x, 1, 100.0 * SMOOTH);
    lvn_release(constant[0]);
    lvn_release(constant[1]);
    lvn_release(x);
}

/* What the row of dropout differentiates is not the identity. */
TEST(dropout_drops)
{
    const dims shape = S(5, 6);
    lvn_tensor *x = make_leaf(LVN_F64, 7, &shape, NORMAL);
    lvni_tensor_ctx_get()->at =
        (lvni_tensor_position){.seed = 3, .step = 4, .micro_batch = 5, .training = true};
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_int_equal(lvn_backward(lvn_sum(lvn_dropout(x, 0.4))), LVN_OK);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvni_tensor_ctx_get()->at = (lvni_tensor_position){0};
    int zeros = 0; /* p = 0.4 of 30 */
    for (int64_t e = 0; e < 30; e++) {
        zeros += element(lvn_gradient(x), e) == 0.0;
    }
    assert_int_in_range(zeros, 5, 20);
    lvn_release(x);
}

/* Inputs that want no gradient get none, and the others get the same one. */
TEST(only_what_is_wanted)
{
    const dims shapes[] = {S(2, 4, 4, 2), S(3, 3, 3, 2), S(3)};
    for (int wanted = 1; wanted < 8; wanted++) {
        lvn_tensor *in[3];
        for (int i = 0; i < 3; i++) {
            in[i] = (wanted >> i & 1) != 0
                        ? make_leaf(LVN_F64, (uint64_t)i, &shapes[i], NORMAL)
                        : make_constant(LVN_F64, (uint64_t)i, shapes[i].ndim, shapes[i].size);
        }
        assert_int_equal(lvn_scope_open(), LVN_OK);
        assert_int_equal(
            lvn_backward(lvn_sum(lvn_square(lvn_conv2d(in[0], in[1], in[2], .padding = 1)))),
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
    static const char *const elsewhere[] = {
        "batch_norm_eval_with", "cross_entropy_with",   "nll_loss_with", "embedding_with",
        "l1_loss_with",         "bce_with_logits_with", "index_select",  "gather"};
    static const char *const without_gradient[] = {
        "keep", "require_grad", "gradient", "argmax", "accuracy", "heatmap2d", "grad_with",
        "detach", "apply", "zeros", "cast", "sign", "round", "floor", "ceil", "argsort", "one_hot",
        "argmin", "random_uniform_with", "random_normal_with", "random_permutation",
        /* test_second.c */
        "eq", "ne", "lt", "le", "gt", "ge", "eq_scalar", "ne_scalar", "lt_scalar", "le_scalar",
        "gt_scalar", "ge_scalar"};
    bool found = false;
    for (int t = 0; t < N_TABLES; t++) {
        for (size_t i = 0; i < tables[t]->n; i++) {
            found = found || strcmp(tables[t]->rows[i].op, op) == 0;
        }
    }
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        found = found || strcmp(elsewhere[i], op) == 0;
    }
    for (size_t i = 0; i < sizeof without_gradient / sizeof *without_gradient; i++) {
        found = found || strcmp(without_gradient[i], op) == 0;
    }
    return found;
}

static int check_header(const char *path)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char line[256], op[64];
    int n = 0;
    while (fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "LVN_API lvn_tensor *lvn_%63[a-z0-9_](", op) == 1) {
            n++;
            if (!has_row(op)) {
                fail_msg("lvn_%s has no row in rows_*.c", op);
            }
        }
    }
    fclose(f);
    return n;
}

TEST(every_op_of_the_headers_is_here)
{
    glob_t headers;
    assert_int_equal(glob(LEVIN_OPS_HEADERS, 0, NULL, &headers), 0);
    int n = 0;
    for (size_t i = 0; i < headers.gl_pathc; i++) {
        n += check_header(headers.gl_pathv[i]);
    }
    globfree(&headers);
    assert_true(n >= 40); /* the headers were read */
}

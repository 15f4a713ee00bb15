/* src/ops/second.def lists the ops with second derivatives: what the ops record must agree. */
#include "gradient_rows.h"

#include "autograd/tape_impl.h"
#include "ops/second.h"

#include <string.h>

static const row_table *const tables[] = {&rows_elementwise, &rows_reduce, &rows_shape,
                                          &rows_linear,      &rows_image,  &rows_norm,
                                          &rows_loss,        &rows_seq,    &rows_group};
enum { N_TABLES = sizeof tables / sizeof *tables };

static bool seen[LVNI_OP_COUNT];

/* Nodes of views and of users' ops carry names that are not kernel ops; three public ops run as
 * scale, one as point_loss. */
static void check_node(const lvni_autograd_node *node)
{
    static const char *const scales[] = {"add_scalar", "mul_scalar", "neg"};
    for (int i = 0; i < 3; i++) {
        seen[LVNI_OP_scale] = seen[LVNI_OP_scale] ||
                              (strcmp(scales[i], node->name) == 0 && node->backward_ops != NULL);
    }
    seen[LVNI_OP_point_loss] = seen[LVNI_OP_point_loss] ||
                               (strcmp(node->name, "mse_loss") == 0 && node->backward_ops != NULL);
    for (int i = 0; i < LVNI_OP_COUNT; i++) {
        if (strcmp(lvni_kernels_ops[i].name, node->name) == 0) {
            seen[i] = true;
            if ((node->backward_ops != NULL) != lvni_ops_has_second((lvni_kernels_op)i)) {
                fail_msg("%s: src/ops/second.def: %s, its backward rule: %s", node->name,
                         lvni_ops_has_second((lvni_kernels_op)i) ? "yes" : "no",
                         node->backward_ops != NULL ? "yes" : "no");
            }
        }
    }
}

static void check_row(const row *r)
{
    lvn_tensor *in[4] = {NULL};
    for (int i = 0; i < r->n; i++) {
        in[i] = make_leaf(LVN_F64, 1u + (uint64_t)i, &r->shape[i], r->from);
    }
    assert_int_equal(lvn_scope_open(), LVN_OK);
    /* squared: dL/dy depends on the inputs, so what rules do to it is recorded */
    lvn_tensor *y = r->f(in), *sum = lvn_sum(lvn_square(y));
    assert_non_null(sum);
    if (r->second) { /* rules are made of ops, too */
        lvn_tensor *grads[4];
        const lvn_grad_options graph = {.struct_size = sizeof graph, .create_graph = true};
        if (lvn_grads_with(sum, in, r->n, grads, &graph) != LVN_OK) {
            fail_msg("%s: %s", r->op, lvn_last_error()->message);
        }
    }
    for (const lvni_autograd_node *node = lvni_autograd_tape_get()->first; node != NULL;
         node = node->next) {
        check_node(node);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    for (int i = 0; i < r->n; i++) {
        lvn_release(in[i]);
    }
}

TEST(the_list_is_what_the_ops_record)
{
    for (int t = 0; t < N_TABLES; t++) {
        for (size_t i = 0; i < tables[t]->n; i++) {
            check_row(&tables[t]->rows[i]);
        }
    }
    /* these have no row: test_second.c and test_gradients.c differentiate them */
    static const lvni_kernels_op elsewhere[] = {
        LVNI_OP_cast,   LVNI_OP_index_select, LVNI_OP_index_select_grad,
        LVNI_OP_gather, LVNI_OP_gather_grad,  LVNI_OP_batch_norm_eval};
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        seen[elsewhere[i]] = true;
    }
    for (int i = 0; i < LVNI_OP_COUNT; i++) {
        if (lvni_ops_has_second((lvni_kernels_op)i) && !seen[i]) {
            fail_msg("%s: in src/ops/second.def, but no row of the gradient tests records it",
                     lvni_kernels_ops[i].name);
        }
    }
}

/* The ops in the sweep: what the gradient tests know of each is enough to run it and its backward
 * rule. */
#include "autograd/gradient_rows.h"
#include "sweep.h"

#include <stdio.h>
#include <string.h>

static const row_table *const tables[] = {&rows_elementwise, &rows_reduce, &rows_shape,
                                          &rows_linear,      &rows_image,  &rows_norm,
                                          &rows_loss,        &rows_seq,    &rows_group};
enum { N_TABLES = sizeof tables / sizeof *tables };

typedef struct of_row {
    const row *r;
    lvn_dtype dtype;
} of_row;

static _Thread_local lvn_tensor *in[4];

static void make_inputs(const void *argument)
{
    const of_row *o = argument;
    for (int i = 0; i < o->r->n; i++) {
        in[i] = make_leaf(o->dtype, 10u + (uint64_t)i, &o->r->shape[i], o->r->from);
    }
}

static void drop_inputs(const void *argument)
{
    const of_row *o = argument;
    for (int i = 0; i < o->r->n; i++) {
        lvn_release(in[i]);
    }
}

static lvn_status forward_and_back(const void *argument)
{
    const of_row *o = argument;
    LVN_TRY(lvn_scope_open());
    lvn_tensor *sum = lvn_sum(o->r->f(in));
    if (sum != NULL && o->r->second) {
        (void)lvn_sum(lvn_grad(sum, in[0], .create_graph = true));
    }
    const lvn_status back = sum == NULL ? LVN_OK : lvn_backward(sum);
    const lvn_status forward = lvn_scope_close();
    return forward != LVN_OK ? forward : back;
}

void sweep_gradient_rows(void)
{
    for (int t = 0; t < N_TABLES; t++) {
        for (size_t i = 0; i < 2 * tables[t]->n; i++) {
            const of_row o = {&tables[t]->rows[i / 2], i % 2 == 0 ? LVN_F64 : LVN_F32};
            const scenario s = {.run = forward_and_back,
                                .argument = &o,
                                .before = make_inputs,
                                .after = drop_inputs};
            char what[96];
            snprintf(what, sizeof what, "lvn_%s, %s", o.r->op, lvn_dtype_name(o.dtype));
            assert_true(sweep(what, &s) >= 2);
        }
    }
}

bool sweep_has_gradient_row(const char *op)
{
    for (int t = 0; t < N_TABLES; t++) {
        for (size_t i = 0; i < tables[t]->n; i++) {
            if (strcmp(tables[t]->rows[i].op, op) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* Gradients on the simulated accelerator: the rows of the gradient tests, in f32, first and second
 * order, with the bits of the cpu. */
#include "gradient_rows.h"
#include "sim_support.h"

#include <stdio.h>

static const row_table *const tables[] = {&rows_elementwise, &rows_reduce, &rows_shape,
                                          &rows_linear,      &rows_image,  &rows_norm,
                                          &rows_loss,        &rows_seq,    &rows_group};

/* sum(y^2), y = f(in); with `second` also the square of its gradient by the first input. */
static lvn_tensor *objective(const row *r, lvn_tensor *const *in, bool second)
{
    lvn_tensor *loss = lvn_sum(lvn_square(r->f(in)));
    return second ? lvn_sum(lvn_square(lvn_grad(loss, in[0], .create_graph = true))) : loss;
}

static void backward(const char *name, const row *r, lvn_tensor *const *in, bool second)
{
    assert_int_equal(lvn_device_use(lvn_tensor_device(in[0])), LVN_OK);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const lvn_status s = lvn_backward(objective(r, in, second));
    const lvn_status closed = lvn_scope_close();
    assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    if (s != LVN_OK || closed != LVN_OK) {
        fail_msg("%s: %s", name, lvn_last_error()->message);
    }
}

static void check(const char *name, const row *r, bool second)
{
    lvn_tensor *here[LVN_FUNCTION_INPUTS] = {NULL}, *there[LVN_FUNCTION_INPUTS] = {NULL};
    for (int i = 0; i < r->n; i++) {
        here[i] = make_leaf(LVN_F32, 10u + (uint64_t)i, &r->shape[i], r->from);
        there[i] = lvn_require_grad(sim_put(here[i]));
    }
    backward(name, r, here, second);
    backward(name, r, there, second);
    for (int i = 0; i < r->n; i++) {
        if (lvn_gradient(here[i]) != NULL) {
            assert_same_bits(name, lvn_gradient(here[i]), lvn_gradient(there[i]));
        }
        lvn_release(here[i]);
        lvn_release(there[i]);
    }
}

TEST(gradients_have_the_bits_of_the_cpu)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (size_t i = 0; i < tables[t]->n; i++) {
            const row *r = &tables[t]->rows[i];
            char name[96];
            snprintf(name, sizeof name, "%s, row %d", r->op, (int)i);
            check(name, r, false);
            if (r->second) {
                check(name, r, true);
            }
        }
    }
}

BEFORE_ALL()
{
    sim_start("1", "256MiB");
    return 0;
}

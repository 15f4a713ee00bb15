/* Rows of a table by their numbers: what language models read tokens with. */
#include "autograd/tape.h"
#include "core/options_struct.h"

/* saved: ids. The weight's gradient goes on top of the one that is there already (a head that
 * shares the table), where possible. */
static lvn_status embedding_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvni_kernels_lookup_attr attr = n->attr.lookup;
    lvni_kernels_args a = {.in = {dy, n->saved[0]}, .attr = &attr};
    a.out[0] = lvni_autograd_grad_written(n, 0);
    attr.add = a.out[0] != NULL;
    if (a.out[0] == NULL && lvni_autograd_grad_wanted(n, 0)) {
        a.out[0] = lvni_autograd_grad_dest(n, 0);
    }
    a.out[1] = lvni_autograd_grad_wanted(n, 1) ? lvni_autograd_grad_dest(n, 1) : NULL;
    LVN_TRY(lvni_autograd_grad_run(LVNI_OP_embedding_grad, &a,
                                   lvni_autograd_grad_wanted(n, 1) ? 3u : 1u));
    lvn_status s = LVN_OK;
    for (int i = 0; i < 2; i++) {
        if (s == LVN_OK && lvni_autograd_grad_wanted(n, i)) {
            s = lvni_autograd_grad_give(n, i, a.out[i]);
        } else {
            lvn_release(a.out[i]);
        }
    }
    return s;
}

lvn_tensor *lvn_embedding_with(lvn_tensor *weight, lvn_tensor *ids,
                               const lvn_embedding_options *options)
{
    lvn_embedding_options o;
    if (lvni_core_options_copy("embedding", &o, sizeof o, options) != LVN_OK) {
        return lvni_autograd_op_fail("embedding");
    }
    lvn_tensor *in[] = {weight, ids, o.positions};
    if (!lvni_autograd_op_begin(LVNI_OP_embedding, in, 3, 4)) {
        return lvni_autograd_op_fail("embedding");
    }
    lvni_kernels_args args = {.in = {in[0], in[1], in[2]}};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_embedding, &args, 1);
    lvni_autograd_node *node =
        lvni_autograd_record("embedding", embedding_backward, y, (lvn_tensor *[]){in[0], in[2]}, 2);
    if (node != NULL) {
        node->attr.lookup = (lvni_kernels_lookup_attr){
            .rows = in[0]->shape[0], .positions = in[2] == NULL ? 0 : in[2]->shape[0]};
        lvni_autograd_save(node, 0, in[1]);
    }
    return y;
}

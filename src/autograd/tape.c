/* Recording (tape.h). A node holds what its backward rule needs and nothing else: inputs are
 * remembered as links, so that an activation nobody needs is gone with its scope. */
#include "autograd/tape_impl.h"

#include "tensor/ctx.h"

#include <string.h>

bool lvni_autograd_records(lvn_tensor *const *in, int n)
{
    const struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    if (tape == NULL || tape->paused) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (in[i] != NULL && (in[i]->node != NULL || in[i]->requires_grad)) {
            return true;
        }
    }
    return false;
}

lvni_autograd_node *lvni_autograd_record(const char *name, lvni_autograd_backward_rule backward,
                                         lvn_tensor *out, lvn_tensor *const *in, int n_in)
{
    if (out == NULL || !lvni_autograd_records(in, n_in)) {
        return NULL;
    }
    size_t got;
    lvni_autograd_node *node =
        lvni_tensor_cache_take(lvni_tensor_ctx_get()->cache, sizeof *node, &got);
    if (node == NULL) {
        /* NULL; the scope carries the error */
        return (lvni_autograd_node *)(void *)lvni_autograd_op_fail(name);
    }
    memset(node, 0, sizeof *node);
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    node->name = name;
    node->backward = backward;
    node->previous = tape->last;
    *(tape->last == NULL ? &tape->first : &tape->last->next) = node;
    tape->last = node;
    node->dtype = out->dtype;
    node->head.out = out;
    out->node = node;
    node->in_desc = lvni_tensor_get_desc(in[0]);
    for (int i = 0; i < n_in; i++) {
        if (in[i] == NULL) {
            continue;
        }
        node->source[i] = in[i]->node;
        if (in[i]->node == NULL && in[i]->requires_grad) {
            node->leaf[i] = lvn_retain(in[i]);
        }
    }
    return node;
}

void lvni_autograd_save(lvni_autograd_node *node, int i, lvn_tensor *t)
{
    node->saved[i] = lvn_retain(t);
}

static void node_free(lvni_autograd_node *node)
{
    for (int i = 0; i < LVNI_NODE_IN; i++) {
        lvn_release(node->leaf[i]);
    }
    for (int i = 0; i < LVNI_NODE_SAVED; i++) {
        lvn_release(node->saved[i]);
    }
    lvn_release(node->grad);
    if (node->head.out != NULL) {
        node->head.out->node = NULL;
        node->head.out->past_gone = true;
    }
    lvni_tensor_cache_give(lvni_tensor_ctx_get()->cache, node, sizeof *node);
}

lvn_status lvni_autograd_tape_check_past(const lvn_tensor *y, const char *info)
{
    if (y->node == NULL && y->past_gone) {
        LVN_FAIL(LVN_ERR_INVALID,
                 "%s: the graph behind this tensor is gone: an earlier lvn_backward of its scope "
                 "has used it up, or its scope was closed; "
                 "run the forward pass again, or add losses up before lvn_backward; lvn_grad, "
                 "called before it, keeps the graph",
                 info);
    }
    LVN_ARG(y->node != NULL, "%s: the tensor does not depend on anything that requires a gradient",
            info);
    return LVN_OK;
}

void lvni_autograd_tape_drop_nodes(struct lvni_autograd_tape *tape)
{
    while (tape->last != NULL) {
        lvni_autograd_node *node = tape->last;
        tape->last = node->previous;
        node_free(node);
    }
    tape->first = NULL;
}

bool lvn_set_grad_enabled(bool enabled)
{
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    if (tape == NULL) {
        return false;
    }
    const bool before = !tape->paused;
    tape->paused = !enabled;
    return before;
}

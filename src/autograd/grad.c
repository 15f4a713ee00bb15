/* lvn_grad: gradients of chosen tensors, leaves or results, while the tape stays. With create_graph
 * the rules written with ops run and are recorded, so that the gradient itself can be
 * differentiated. */
#include "autograd/tape_impl.h"

#include "autograd/placing.h"
#include "autograd/recompute.h"
#include "core/options_struct.h"

static int target_of_leaf(const lvni_autograd_walk *walk, const lvn_tensor *leaf)
{
    for (int k = 0; leaf != NULL && k < walk->n; k++) {
        if (walk->targets[k] == leaf) {
            return k;
        }
    }
    return -1;
}

static int target_of_node(const lvni_autograd_walk *walk, const lvni_autograd_node *node)
{
    for (int k = 0; k < walk->n; k++) {
        if (walk->targets[k]->node == node) {
            return k;
        }
    }
    return -1;
}

lvn_status lvni_autograd_walk_give_leaf(lvni_autograd_walk *walk, lvn_tensor *leaf, lvn_tensor *t)
{
    const int k = target_of_leaf(walk, leaf);
    if (k < 0) {
        lvn_release(t);
        return LVN_OK;
    }
    return lvni_autograd_accumulate(&walk->grads[k], t);
}

/* Oldest node first: an input is wanted when it is a target or leads to one. */
static void mark_wanted(const struct lvni_autograd_tape *tape, const lvni_autograd_walk *walk)
{
    for (lvni_autograd_node *node = tape->first; node != NULL; node = node->next) {
        node->wanted = 0;
        for (int i = 0; i < LVNI_NODE_IN; i++) {
            const lvni_autograd_node *source = node->source[i];
            const bool wanted = source != NULL
                                    ? source->wanted != 0 || target_of_node(walk, source) >= 0
                                    : target_of_leaf(walk, node->leaf[i]) >= 0;
            node->wanted |= wanted ? 1u << i : 0u;
        }
        int n;
        lvn_tensor *const *leaf = lvni_autograd_recompute_leaves(node, &n);
        for (int i = LVNI_NODE_IN; i < n + LVNI_NODE_IN && leaf != node->leaf; i++) {
            node->wanted |= target_of_leaf(walk, leaf[i - LVNI_NODE_IN]) >= 0 ? LVNI_IN_UNIT : 0u;
        }
    }
}

static lvn_status run_rule(lvni_autograd_node *node, const lvni_autograd_walk *walk)
{
    lvni_autograd_backward_rule rule = walk->create_graph ? node->backward_ops : node->backward;
    if (rule == NULL) {
        LVN_FAIL(
            LVN_ERR_UNSUPPORTED,
            "create_graph: %s has no second derivative; `levin ops` lists the ops that have one",
            node->name);
    }
    const lvn_status s = rule(node, node->grad);
    if (s != LVN_OK) {
        lvn_error_frame("backward of %s", node->name);
    }
    return s;
}

static lvn_status walk_from(lvni_autograd_node *last, lvni_autograd_walk *walk)
{
    for (lvni_autograd_node *node = last; node != NULL; node = node->previous) {
        if (node->grad == NULL && (!node->syncs || walk->create_graph)) {
            continue;
        }
        const int k = target_of_node(walk, node);
        if (k >= 0 && node->grad != NULL) {
            LVN_TRY(lvni_autograd_accumulate(&walk->grads[k], lvn_retain(node->grad)));
        }
        if (node->wanted != 0) {
            LVN_TRY(run_rule(node, walk));
        }
        lvn_release(node->grad);
        node->grad = NULL;
    }
    return LVN_OK;
}

/* After a failure: nodes may hold gradients that will not be fetched. */
static void clear_gradients(const struct lvni_autograd_tape *tape)
{
    for (lvni_autograd_node *node = tape->first; node != NULL; node = node->next) {
        lvn_release(node->grad);
        node->grad = NULL;
    }
}

/* dL/dy, where the walk begins: at y's node, or at y itself, a leaf, which has none. */
static lvn_status start(lvn_tensor *y, lvni_autograd_walk *walk, const lvn_grad_options *o)
{
    LVN_ARG(o->grad_output == NULL ||
                (lvni_tensor_same_shape(y, o->grad_output) && y->dtype == o->grad_output->dtype),
            "lvn_grad: grad_output must have the shape and type of y");
    LVN_ARG(o->grad_output != NULL || lvn_numel(y) == 1,
            "lvn_grad: y has %lld elements; give .grad_output, or take lvn_sum() of it",
            (long long)lvn_numel(y));
    lvn_tensor *seed =
        o->grad_output != NULL ? lvn_retain(o->grad_output) : lvni_autograd_seed_gradient(y, 1.0);
    if (seed == NULL) {
        return lvn_last_error()->code;
    }
    if (y->node == NULL) {
        return lvni_autograd_walk_give_leaf(walk, y, seed);
    }
    y->node->grad = seed;
    return LVN_OK;
}

static lvn_status gradients(struct lvni_autograd_tape *tape, lvn_tensor *y,
                            lvni_autograd_walk *walk, const lvn_grad_options *o)
{
    LVN_TRY(lvni_autograd_tape_check_past(y, "lvn_grad"));
    LVN_TRY(lvni_autograd_recompute_check("lvn_grad"));
    LVN_ARG(!tape->walking, "lvn_grad cannot run inside a backward rule");
    mark_wanted(tape, walk);
    LVN_TRY(start(y, walk, o));
    const bool paused = tape->paused;
    tape->paused = !walk->create_graph;
    tape->walking = true;
    tape->walk = walk;
    const lvn_status s = walk_from(tape->last, walk);
    tape->walk = NULL;
    tape->walking = false;
    tape->paused = paused;
    LVN_TRY(s);
    for (int k = 0; k < walk->n; k++) {
        for (int j = 0; j < k && walk->grads[k] == NULL; j++) { /* asked for twice */
            walk->grads[k] =
                walk->targets[j] == walk->targets[k] ? lvn_retain(walk->grads[j]) : NULL;
        }
        if (walk->grads[k] == NULL) {
            LVN_FAIL(LVN_ERR_INVALID, "lvn_grad: y does not depend on tensor %d of those asked for",
                     k);
        }
    }
    return LVN_OK;
}

lvn_status lvn_grads_with(lvn_tensor *y, lvn_tensor *const *x, int n, lvn_tensor **grads,
                          const lvn_grad_options *options)
{
    lvn_grad_options o;
    const lvn_status read = lvni_core_options_copy("grad", &o, sizeof o, options);
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    bool given = read == LVN_OK && y != NULL && tape != NULL && !lvni_autograd_scope_failed();
    for (int k = 0; k < n; k++) {
        grads[k] = NULL;
        given = given && x[k] != NULL;
    }
    if (!given) {
        lvni_autograd_op_fail("grad");
        return lvn_last_error()->code;
    }
    lvni_autograd_walk walk = {
        .targets = x, .grads = grads, .n = n, .create_graph = o.create_graph};
    lvn_status s = lvni_autograd_stages_check_whole("lvn_grad");
    s = s == LVN_OK ? gradients(tape, y, &walk, &o) : s;
    if (s != LVN_OK) {
        clear_gradients(tape);
        lvni_autograd_op_fail("grad");
    }
    for (int k = 0; k < n; k++) {
        if (s != LVN_OK) {
            lvn_release(grads[k]);
            grads[k] = NULL;
        } else if (lvni_autograd_adopt(grads[k]) == NULL) {
            s = LVN_ERR_MEMORY;
        }
    }
    for (int k = 0; s != LVN_OK && k < n; k++) {
        grads[k] = NULL; /* adopted ones go with the scope */
    }
    return s;
}

lvn_tensor *lvn_grad_with(lvn_tensor *y, lvn_tensor *x, const lvn_grad_options *options)
{
    lvn_tensor *grad = NULL;
    return lvn_grads_with(y, &x, 1, &grad, options) == LVN_OK ? grad : NULL;
}

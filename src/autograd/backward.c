/* The backward walk of lvn_backward: newest node first; each node's rule hands gradients to its
 * inputs. Gradients of parameters go straight into the slices of the micro-batch's flat gradient
 * set when the trainer gave one. grad.c walks for chosen tensors. */
#include "autograd/tape_impl.h"

#include "autograd/placing.h"
#include "autograd/recompute.h"
#include "core/error.h"
#include "kernels/flat.h"
#include "tensor/device.h"

#include <string.h>

lvn_tensor *lvn_require_grad(lvn_tensor *t)
{
    if (t != NULL) {
        t->requires_grad = true;
    }
    return t;
}

lvn_tensor *lvn_gradient(lvn_tensor *t)
{
    return t == NULL ? NULL : t->grad;
}

void lvn_zero_grad(lvn_tensor *t)
{
    if (t != NULL) {
        lvn_release(t->grad);
        t->grad = NULL;
    }
}

/* The slice of a parameter in the micro-batch's gradient set, or NULL when the leaf is not one of
 * its parameters. */
static float *slice_of(const lvn_tensor *leaf)
{
    const lvni_autograd_gradients *g = lvni_tensor_ctx_get()->gradients;
    return g != NULL && leaf->param >= 0 && leaf->param < g->n ? g->data + g->offset[leaf->param]
                                                               : NULL;
}

lvn_tensor *lvni_autograd_grad_dest(lvni_autograd_node *node, int i)
{
    lvn_tensor *leaf = node->leaf[i];
    float *slice =
        leaf == NULL || lvni_tensor_ctx_get()->tape->walk != NULL ? NULL : slice_of(leaf);
    const lvni_autograd_gradients *g = lvni_tensor_ctx_get()->gradients;
    if (slice == NULL || g->written[leaf->param]) {
        return NULL;
    }
    for (int k = 0; k < i; k++) {
        if (node->leaf[k] == leaf) {
            return NULL; /* one parameter at two places of the op: the slice is the first one's */
        }
    }
    return lvn_tensor_wrap(slice, LVN_F32, leaf->ndim, leaf->shape);
}

lvn_tensor *lvni_autograd_grad_written(lvni_autograd_node *node, int i)
{
    lvn_tensor *leaf = node->leaf[i];
    float *slice =
        leaf == NULL || lvni_tensor_ctx_get()->tape->walk != NULL ? NULL : slice_of(leaf);
    const lvni_autograd_gradients *g = lvni_tensor_ctx_get()->gradients;
    return slice == NULL || !g->written[leaf->param]
               ? NULL
               : lvn_tensor_wrap(slice, LVN_F32, leaf->ndim, leaf->shape);
}

lvn_status lvni_autograd_grad_run(lvni_kernels_op op, lvn_kernel_args *args, unsigned want)
{
    const lvn_status s = lvni_kernels_run(op, args, want);
    for (int i = 0; s != LVN_OK && i < LVN_KERNEL_OUTPUTS; i++) {
        lvn_release(args->out[i]);
        args->out[i] = NULL;
    }
    return s;
}

/* d(a + b) goes to both; passing on needs no op, so this is also the rule for create_graph. */
static lvn_status sum_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    for (int i = 0; i < 2; i++) {
        if (lvni_autograd_grad_wanted(n, i)) {
            LVN_TRY(lvni_autograd_grad_give(n, i, lvn_retain(dy)));
        }
    }
    return LVN_OK;
}

lvn_status lvni_autograd_accumulate(lvn_tensor **sum, lvn_tensor *t)
{
    if (*sum == NULL) {
        *sum = t;
        return LVN_OK;
    }
    const bool create_graph = lvni_tensor_ctx_get()->tape->walk != NULL &&
                              lvni_tensor_ctx_get()->tape->walk->create_graph;
    lvn_kernel_args a = {.in = {*sum, t}};
    if (!create_graph && lvni_tensor_alone(*sum) && lvni_tensor_same_shape(*sum, t)) {
        /* saves a pass over fresh memory */
        a.out[0] = *sum;
        const lvn_status in_place = lvni_kernels_run(LVNI_OP_add, &a, 1);
        lvn_release(t);
        return in_place;
    }
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_kernels_run(LVNI_OP_add, &a, 1));
    if (create_graph) {
        lvni_autograd_node *node =
            lvni_autograd_record("add", sum_backward, a.out[0], (lvn_tensor *[]){*sum, t}, 2);
        if (node != NULL) {
            node->backward_ops = sum_backward;
        }
    }
    lvn_release(*sum);
    *sum = a.out[0];
done:
    lvn_release(t);
    return s;
}

static lvn_status give_parameter(lvn_tensor *leaf, float *slice, lvn_tensor *t)
{
    const lvni_autograd_gradients *g = lvni_tensor_ctx_get()->gradients;
    lvn_status s = LVN_OK;
    if (t->data != slice && !g->written[leaf->param]) {
        s = lvni_tensor_mem_copy(slice, t->data, (size_t)lvn_numel(t) * sizeof *slice);
    } else if (t->data != slice) { /* used twice in the network */
        lvn_tensor *sum = lvn_tensor_wrap(slice, LVN_F32, leaf->ndim, leaf->shape);
        lvn_kernel_args a = {.in = {sum, t}};
        s = sum == NULL ? lvn_last_error()->code : lvni_kernels_run(LVNI_OP_add, &a, 1);
        if (s == LVN_OK && a.out[0] != NULL) {
            s = lvni_tensor_mem_copy(slice, a.out[0]->data, (size_t)lvn_numel(t) * sizeof *slice);
            lvn_release(a.out[0]);
        }
        lvn_release(sum);
    }
    g->written[leaf->param] = LVNI_GRADIENT_THERE;
    lvn_release(t);
    return s;
}

/* Moves *t into the type of the input it is for. */
static lvn_status adapt_type(lvn_tensor **t, lvn_dtype dtype)
{
    if ((*t)->dtype == dtype) {
        return LVN_OK;
    }
    const lvni_autograd_walk *walk = lvni_tensor_ctx_get()->tape->walk;
    if (walk != NULL && walk->create_graph) {
        lvn_tensor *cast = lvn_retain(lvni_autograd_cast(*t, dtype));
        lvn_release(*t);
        *t = cast;
        return cast == NULL ? lvn_scope_status() : LVN_OK;
    }
    const lvn_cast_attr attr = {.dtype = dtype};
    lvn_kernel_args a = {.in = {*t}, .attr = &attr};
    const lvn_status s = lvni_kernels_run(LVNI_OP_cast, &a, 1);
    lvn_release(*t);
    *t = a.out[0];
    return s;
}

static lvn_status give_leaf(lvn_tensor *leaf, lvn_tensor *t)
{
    float *slice = slice_of(leaf);
    return slice != NULL ? give_parameter(leaf, slice, t)
                         : lvni_autograd_accumulate(&leaf->grad, t);
}

lvn_status lvni_autograd_grad_give(lvni_autograd_node *node, int i, lvn_tensor *t)
{
    if (t == NULL) {
        return lvn_last_error()->code != LVN_OK ? lvn_last_error()->code : LVN_ERR_INTERNAL;
    }
    lvn_tensor *leaf = node->leaf[i];
    LVN_TRY(adapt_type(&t, leaf != NULL ? leaf->dtype : node->source[i]->dtype));
    if (node->source[i] != NULL) {
        return lvni_autograd_accumulate(&node->source[i]->grad, t);
    }
    if (lvni_tensor_ctx_get()->tape->walk != NULL) {
        return lvni_autograd_walk_give_leaf(lvni_tensor_ctx_get()->tape->walk, leaf, t);
    }
    return give_leaf(leaf, t);
}

lvn_status lvni_autograd_grad_give_all(lvni_autograd_node *node, lvn_tensor *const *out, int n,
                                       unsigned made)
{
    lvn_status s = LVN_OK;
    for (int i = 0; i < n; i++) {
        if (s == LVN_OK && (made & 1u << i) != 0 && lvni_autograd_grad_wanted(node, i)) {
            s = lvni_autograd_grad_give(node, i, out[i]);
        } else {
            lvn_release(out[i]);
        }
    }
    return s;
}

lvn_status lvni_autograd_grad_give_op(lvni_autograd_node *node, int i, lvn_tensor *t)
{
    if (t == NULL && lvn_scope_status() != LVN_OK) {
        return lvn_scope_status();
    }
    return lvni_autograd_grad_give(node, i, lvn_retain(t));
}

lvn_status lvni_autograd_grad_weight_and_bias(lvni_autograd_node *n, lvni_kernels_op op,
                                              lvn_kernel_args *a)
{
    const bool weight = lvni_autograd_grad_wanted(n, 1), bias = lvni_autograd_grad_wanted(n, 2);
    if (!weight && !bias) {
        return LVN_OK;
    }
    a->out[0] = lvni_autograd_grad_dest(n, 1);
    a->out[1] = bias ? lvni_autograd_grad_dest(n, 2) : NULL;
    LVN_TRY(lvni_autograd_grad_run(op, a, bias ? 3u : 1u));
    const lvn_status s = bias ? lvni_autograd_grad_give(n, 2, a->out[1]) : LVN_OK;
    if (s == LVN_OK && weight) {
        return lvni_autograd_grad_give(n, 1, a->out[0]);
    }
    lvn_release(a->out[0]);
    return s;
}

lvn_tensor *lvni_autograd_seed_gradient(const lvn_tensor *y, double seed)
{
    const lvni_tensor_desc d = lvni_tensor_get_desc(y);
    return lvni_tensor_number(&d, seed, lvni_tensor_device_of(y->data));
}

/* The set of the current micro-batch when its gradients are to be reported one by one. */
static const lvni_autograd_gradients *watched(void)
{
    const lvni_autograd_gradients *g = lvni_tensor_ctx_get()->gradients;
    return g != NULL && g->final != NULL ? g : NULL;
}

static void find_oldest(const struct lvni_autograd_tape *tape, const lvni_autograd_gradients *g)
{
    memset(g->oldest, 0, (size_t)g->n * sizeof *g->oldest);
    for (const lvni_autograd_node *node = tape->last; node != NULL; node = node->previous) {
        int n;
        lvn_tensor *const *leaf = lvni_autograd_recompute_leaves(node, &n);
        for (int i = 0; i < n; i++) {
            if (leaf[i] != NULL && leaf[i]->param >= 0 && leaf[i]->param < g->n) {
                g->oldest[leaf[i]->param] = node;
            }
        }
    }
}

/* The walk has passed a node, whether or not it led to the loss. */
static void report_final(const lvni_autograd_node *node, const lvni_autograd_gradients *g)
{
    int n;
    lvn_tensor *const *leaf = lvni_autograd_recompute_leaves(node, &n);
    for (int i = 0; i < n; i++) {
        const int parameter = leaf[i] == NULL ? -1 : leaf[i]->param;
        if (parameter >= 0 && parameter < g->n && g->oldest[parameter] == node) {
            g->oldest[parameter] = NULL;
            g->final(g->user, parameter);
        }
    }
}

static lvn_status walk_node(lvni_autograd_node *node)
{
    node->wanted = 0;
    for (int i = 0; i < LVNI_NODE_IN; i++) {
        node->wanted |= node->source[i] != NULL || node->leaf[i] != NULL ? 1u << i : 0u;
    }
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const char *outside = ctx->module_path;
    ctx->module_path = node->module_path != NULL ? node->module_path : outside;
    const lvn_status s = node->backward(node, node->grad);
    ctx->module_path = outside;
    if (s != LVN_OK) {
        lvn_error_frame("backward of %s", node->name);
        return s;
    }
    lvn_release(node->grad);
    node->grad = NULL;
    for (int i = 0; i < LVNI_NODE_SAVED; i++) { /* memory for the nodes still to come */
        lvn_release(node->saved[i]);
        node->saved[i] = NULL;
    }
    return LVN_OK;
}

/* g: of which parameters are reported; NULL: none. */
static lvn_status walk(const struct lvni_autograd_tape *tape, const lvni_autograd_gradients *g)
{
    if (g != NULL) {
        find_oldest(tape, g);
    }
    for (lvni_autograd_node *node = tape->last; node != NULL; node = node->previous) {
        if (node->grad != NULL || node->syncs) { /* else it does not lead to the loss */
            LVN_TRY(walk_node(node));
        }
        if (g != NULL) {
            report_final(node, g);
        }
    }
    return LVN_OK;
}

lvn_status lvni_autograd_tape_walk(struct lvni_autograd_tape *tape)
{
    return walk(tape, NULL);
}

static lvn_tensor *make_seed(const lvn_tensor *y, const lvni_autograd_seed *seed)
{
    if (seed->weight == NULL && seed->factor == NULL) {
        return lvni_autograd_seed_gradient(y, seed->number);
    }
    const lvni_tensor_desc d = lvni_tensor_get_desc(y);
    lvn_tensor *t = lvni_tensor_new_on(&d, lvni_tensor_device_of(y->data));
    if (t != NULL) {
        lvni_kernels_flat_seed(t, seed->number, seed->weight, seed->factor);
    }
    return t;
}

/* dL/d(loss) to its node, or to the loss itself, a leaf. */
static lvn_status begin(lvn_tensor *loss, const lvni_autograd_seed *seed)
{
    lvn_tensor *t = make_seed(loss, seed);
    if (t == NULL) {
        return lvn_last_error()->code;
    }
    if (loss->node == NULL) {
        return give_leaf(loss, t);
    }
    loss->node->grad = t;
    return LVN_OK;
}

/* loss NULL: from what other stages send. */
static lvn_status walk_from(struct lvni_autograd_tape *tape, lvn_tensor *loss,
                            const lvni_autograd_seed *seed)
{
    const bool paused = tape->paused;
    tape->walking = true;
    tape->paused = true; /* a user's rule may call ops */
    lvn_status s;
    LVNI_TRY_DONE(s, loss == NULL ? LVN_OK : begin(loss, seed));
    s = walk(tape, watched());
done:
    tape->paused = paused;
    tape->walking = false;
    lvni_autograd_tape_drop_nodes(tape);
    return s;
}

static lvn_status backward(lvn_tensor *loss, const lvni_autograd_seed *seed)
{
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    if (tape == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (tape->scope[tape->depth].failed != LVN_OK) {
        return lvn_error_adopt(&tape->error);
    }
    LVN_TRY(lvni_autograd_recompute_check("lvn_backward"));
    LVN_ARG(!tape->walking, "lvn_backward cannot run inside a backward rule");
    LVN_ARG(loss != NULL, "lvn_backward was given NULL");
    LVN_ARG(
        lvn_numel(loss) == 1,
        "lvn_backward needs a loss of one element, not %lld: take lvn_mean() or lvn_sum() of it",
        (long long)lvn_numel(loss));
    LVN_TRY(lvni_autograd_tape_check_past(loss, "lvn_backward"));
    return walk_from(tape, loss, seed);
}

lvn_status lvni_autograd_backward_received(void)
{
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    if (tape == NULL) {
        return LVN_ERR_MEMORY;
    }
    const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
    const lvn_status s = walk_from(tape, NULL, NULL);
    lvni_tensor_fp_leave(before);
    return s;
}

lvn_status lvni_autograd_backward(lvn_tensor *loss, const lvni_autograd_seed *seed)
{
    const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
    const lvn_status s = backward(loss, seed);
    lvni_tensor_fp_leave(before);
    return s;
}

lvn_status lvn_backward_scaled(lvn_tensor *loss, double seed)
{
    LVN_TRY(lvni_autograd_stages_check_whole("lvn_backward"));
    return lvni_autograd_backward(loss, &(lvni_autograd_seed){.number = seed});
}

lvn_status lvn_backward(lvn_tensor *loss)
{
    return lvn_backward_scaled(loss, 1.0);
}

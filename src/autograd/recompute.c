/* Units that are recomputed (recompute.h). */
#include "autograd/recompute.h"

#include "autograd/tape_impl.h"
#include "core/alloc.h"
#include "core/error.h"

#include <string.h>

enum { INSIDE = 1u << 30 }; /* of `wanted`, while a unit's nodes are looked at */

typedef struct unit {
    lvni_autograd_node node; /* first */
    lvni_autograd_call call; /* its tensors are held by the node */
    lvni_tensor_position at; /* where it began */
    uint32_t random;         /* random ops in it */
    int64_t nodes;           /* that it recorded */
    lvn_tensor **leaf;       /* held, each once */
    int n, room;
} unit;

static lvn_status run_again(lvni_autograd_node *node, lvn_tensor *dy);

static bool is_unit(const lvni_autograd_node *node)
{
    return node->backward == run_again;
}

lvn_tensor *const *lvni_autograd_recompute_leaves(const lvni_autograd_node *node, int *n)
{
    if (!is_unit(node)) {
        *n = LVNI_NODE_IN;
        return node->leaf;
    }
    const unit *u = (const unit *)(const void *)node;
    *n = u->n;
    return u->leaf;
}

static void free_leaves(unit *u)
{
    for (int i = 0; i < u->n; i++) {
        lvn_release(u->leaf[i]);
    }
    lvni_core_free(u->leaf);
}

size_t lvni_autograd_recompute_end_of(lvni_autograd_node *node)
{
    if (!is_unit(node)) {
        return sizeof *node;
    }
    free_leaves((unit *)(void *)node);
    return sizeof(unit);
}

bool lvni_autograd_recompute_again(void)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    return ctx != NULL && ctx->tape != NULL && ctx->tape->again;
}

lvn_status lvni_autograd_recompute_check(const char *call)
{
    const struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    if (tape != NULL && tape->unit != NULL) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "recompute: %s stands in the forward of %s, which is to be recomputed, and a "
                 "gradient inside of it cannot be; leave that module out of recompute=",
                 call, tape->unit);
    }
    return LVN_OK;
}

/* ---- the first run ---- */

void lvni_autograd_recompute_begin(lvni_autograd_first_run *run, const char *path)
{
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    run->on = tape != NULL && !tape->paused && tape->depth > 0 && tape->unit == NULL &&
              tape->stages == NULL;
    if (run->on) {
        run->before = tape->last;
        run->at = lvni_tensor_ctx_get()->at;
        tape->unit = path;
    }
}

static bool add_leaf(unit *u, lvn_tensor *leaf)
{
    for (int i = 0; i < u->n; i++) {
        if (u->leaf[i] == leaf) {
            return true;
        }
    }
    if (u->n == u->room) {
        const int room = u->room == 0 ? 16 : 2 * u->room;
        lvn_tensor **more =
            lvni_core_realloc(LVNI_TAG_TENSOR, u->leaf, (size_t)room * sizeof *more);
        if (more == NULL) {
            return false;
        }
        u->leaf = more;
        u->room = room;
    }
    u->leaf[u->n++] = lvn_retain(leaf);
    return true;
}

static lvn_status refuse(const lvni_autograd_call *call, const char *what)
{
    LVN_FAIL(LVN_ERR_UNSUPPORTED,
             "recompute: %s, of the class %s, cannot be recomputed: %s; leave it out of recompute=",
             call->path, call->class_name, what);
}

/* What runs again gets the inputs of the call and nothing else. */
static lvn_status check_source(const lvni_autograd_node *source, const lvni_autograd_call *c)
{
    const bool known = source == NULL || (source->wanted & INSIDE) != 0 || source == c->x->node ||
                       (c->residual != NULL && source == c->residual->node);
    return known ? LVN_OK
                 : refuse(c, "its forward uses a tensor of the step that it is not called with");
}

/* Leaves and links of the nodes behind `before`, which are marked. */
static lvn_status collect(const struct lvni_autograd_tape *tape, const lvni_autograd_node *before,
                          const lvni_autograd_call *call, unit *u, bool *syncs)
{
    for (const lvni_autograd_node *n = tape->last; n != before; n = n->previous) {
        *syncs = *syncs || n->syncs;
        for (int i = 0; i < LVNI_NODE_IN; i++) {
            LVN_TRY(check_source(n->source[i], call));
            if (n->leaf[i] != NULL && !add_leaf(u, n->leaf[i])) {
                return LVN_ERR_MEMORY;
            }
        }
    }
    return LVN_OK;
}

static int64_t mark(const struct lvni_autograd_tape *tape, const lvni_autograd_node *before,
                    bool inside)
{
    int64_t n = 0;
    for (lvni_autograd_node *node = tape->last; node != before; node = node->previous) {
        node->wanted = inside ? INSIDE : 0;
        n++;
    }
    return n;
}

/* The tape lets go of what the unit made. */
static lvn_status drop(struct lvni_autograd_tape *tape, lvni_autograd_node *before,
                       const lvni_autograd_call *call, const lvn_tensor *y)
{
    for (lvni_autograd_node *n = tape->last; n != before; n = n->previous) {
        for (int i = 0; i < LVNI_NODE_SAVED; i++) {
            lvn_release(n->saved[i]);
            n->saved[i] = NULL;
        }
    }
    bool held = false;
    for (const lvni_autograd_node *n = tape->last; n != before; n = n->previous) {
        held = held || (n->head.out != NULL && n->head.out != y);
    }
    lvni_autograd_tape_drop_after(tape, before);
    return held ? refuse(call, "a tensor that its forward made is used outside of it") : LVN_OK;
}

static bool fail(unit *u)
{
    free_leaves(u);
    (void)lvni_autograd_op_fail(NULL);
    return false;
}

bool lvni_autograd_recompute_end(const lvni_autograd_first_run *run, const lvni_autograd_call *call,
                                 lvn_tensor *y)
{
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    if (!run->on) {
        return true;
    }
    tape->unit = NULL;
    if (y == NULL || y->node == NULL) {
        return true; /* it failed, or nothing in it wants a gradient */
    }
    unit made = {.call = *call,
                 .at = run->at,
                 .random = lvni_tensor_ctx_get()->at.call - run->at.call,
                 .nodes = mark(tape, run->before, true)};
    const bool own = (y->node->wanted & INSIDE) != 0;
    bool syncs = false;
    const lvn_status s = own ? collect(tape, run->before, call, &made, &syncs) : LVN_OK;
    (void)mark(tape, run->before, false);
    if (!own) {
        return true; /* one of its inputs */
    }
    if (s != LVN_OK || drop(tape, run->before, call, y) != LVN_OK) {
        return fail(&made);
    }
    y->past_gone = false;
    lvni_autograd_node *node = lvni_autograd_tape_add(
        "recompute", run_again, y, (lvn_tensor *[]){call->x, call->residual}, 2, sizeof(unit));
    if (node == NULL) {
        return fail(&made);
    }
    made.node = *node;
    *(unit *)(void *)node = made;
    node->backward_ops = run_again;
    node->syncs = syncs;
    lvni_autograd_save(node, 0, call->x);
    lvni_autograd_save(node, 1, call->residual);
    return true;
}

/* ---- in the backward pass ---- */

/* Its output; NULL: the scope has failed, or it ran another way than before. */
static lvn_tensor *forward(struct lvni_autograd_tape *tape, const unit *u)
{
    const uint64_t before = lvn_last_error()->serial;
    lvn_tensor *y = u->call.run(&u->call);
    if (y == NULL) {
        if (!lvni_autograd_scope_failed()) {
            lvni_core_error_of_null(before, "forward() of the module class %s, at %s",
                                    u->call.class_name, u->call.path);
        }
        return lvni_autograd_op_fail(NULL);
    }
    if (y->node == NULL || mark(tape, NULL, false) != u->nodes ||
        lvni_tensor_ctx_get()->at.call - u->at.call != u->random) {
        (void)refuse(&u->call, "its forward ran another way in the backward pass than before");
        return lvni_autograd_op_fail(NULL);
    }
    return y;
}

/* With the unit's own tape: what it is to give goes to nodes of the outer one. */
static lvn_status run_and_walk(struct lvni_autograd_tape *tape, unit *u)
{
    LVN_TRY(lvn_scope_open());
    tape->paused = false;
    lvn_tensor *y = forward(tape, u);
    tape->paused = true;
    lvn_status s = lvn_scope_status();
    if (y != NULL && s == LVN_OK) {
        y->node->grad = u->node.grad;
        u->node.grad = NULL;
        s = lvni_autograd_tape_walk(tape);
    }
    lvni_autograd_tape_drop_nodes(tape);
    const lvn_status closed = lvn_scope_close();
    return s != LVN_OK ? s : closed;
}

static lvn_status run_again(lvni_autograd_node *node, lvn_tensor *dy)
{
    (void)dy; /* the node's own; none where it only syncs */
    unit *u = (unit *)(void *)node;
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (tape->walk != NULL) {
        return refuse(&u->call, "lvn_grad, a gradient inside of a step, goes through it");
    }
    lvni_autograd_node *const first = tape->first, *const last = tape->last;
    const lvni_tensor_position at = ctx->at;
    const char *outside = ctx->module_path;
    tape->first = tape->last = NULL;
    tape->unit = ctx->module_path = u->call.path;
    tape->again = true;
    ctx->at = u->at;
    const lvn_status s = run_and_walk(tape, u);
    if (s != LVN_OK) {
        lvn_error_frame("recomputing %s", u->call.path);
    }
    ctx->at = at;
    ctx->module_path = outside;
    tape->again = false;
    tape->unit = NULL;
    tape->first = first;
    tape->last = last;
    return s;
}

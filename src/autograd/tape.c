/* The tape of a thread (tape.h): scopes, which own what ops make and spread a failure, and the
 * nodes recorded in them. A node holds what its backward rule needs and nothing else: inputs are
 * remembered as links, so that an activation that is not needed is gone with its scope. */
#include "autograd/tape_impl.h"

#include "autograd/placing.h"
#include "autograd/recompute.h"
#include "core/alloc.h"
#include "tensor/ctx.h"
#include "tensor/device.h"

#include <string.h>

/* ---- scopes ---- */

static void tape_destroy(struct lvni_autograd_tape *tape)
{
    lvni_autograd_tape_drop_nodes(tape);
    for (int64_t i = tape->n_tensors - 1; i >= 0; i--) {
        lvn_release(tape->tensors[i]);
    }
    lvni_core_free(tape->tensors);
    lvni_core_free(tape);
}

/* Before main: lanes must not write the pointer while others read it. */
__attribute__((constructor)) static void register_free(void)
{
    lvni_tensor_ctx_free_tape = tape_destroy;
}

struct lvni_autograd_tape *lvni_autograd_tape_get(void)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx == NULL) {
        return NULL;
    }
    if (ctx->tape == NULL) {
        ctx->tape = LVNI_NEW(LVNI_TAG_TENSOR, struct lvni_autograd_tape);
    }
    return ctx->tape;
}

/* A device computes later than ops return: its error becomes one of the scope that is open when it
 * shows. */
static void fetch_device_error(struct lvni_autograd_tape *tape)
{
    const bool deferred =
        lvni_tensor_ctx_get()->deferred; /* the error is taken where it is looked for */
    if ((deferred ? lvni_tensor_device_sync() : lvni_tensor_device_take_error()) != LVN_OK) {
        if (tape->scope[tape->depth].failed == LVN_OK) {
            tape->error = *lvn_last_error();
            tape->scope[tape->depth].failed = tape->depth > 0 ? tape->error.code : LVN_OK;
        }
    }
}

lvn_status lvn_scope_open(void)
{
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    if (tape == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_ARG(tape->depth < LVNI_SCOPES, "more than %d scopes are open", LVNI_SCOPES);
    tape->depth++;
    tape->scope[tape->depth] = (lvni_autograd_scope){.first = tape->n_tensors,
                                                     .failed = tape->scope[tape->depth - 1].failed,
                                                     .serial = lvn_last_error()->serial};
    return LVN_OK;
}

lvn_status lvn_scope_close(void)
{
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    LVN_ARG(tape != NULL && tape->depth > 0, "no scope is open");
    if ((tape->depth == 1 && !lvni_tensor_ctx_get()->deferred) || lvni_tensor_device_failed()) {
        fetch_device_error(tape);
    }
    const lvni_autograd_scope scope = tape->scope[tape->depth];
    if (tape->depth == 1) {
        lvni_autograd_tape_drop_nodes(tape);
    }
    while (tape->n_tensors > scope.first) {
        lvn_release(tape->tensors[--tape->n_tensors]);
    }
    tape->depth--;
    if (scope.failed == LVN_OK) {
        return LVN_OK;
    }
    if (tape->depth > 0) {
        tape->scope[tape->depth].failed = scope.failed;
    }
    return lvn_error_adopt(&tape->error);
}

lvn_status lvn_scope_status(void)
{
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    if (tape != NULL && lvni_tensor_device_failed()) {
        fetch_device_error(tape);
        return lvn_last_error()->code; /* outside of all scopes it is reported once */
    }
    return tape == NULL ? LVN_ERR_MEMORY : tape->scope[tape->depth].failed;
}

int lvni_autograd_scope_depth(void)
{
    const struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    return tape == NULL ? 0 : tape->depth;
}

bool lvni_autograd_scope_failed(void)
{
    return lvn_scope_status() != LVN_OK;
}

/* An op fails because of an error of this scope, or because it was given NULL: an error from before
 * the scope is not its reason. */
static void name_null(const struct lvni_autograd_tape *tape, const char *op)
{
    const lvn_error *e = lvn_last_error();
    if (op == NULL) {
        op = "an op";
    }
    if (e->code == LVN_OK) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__, "%s was given NULL", op);
    } else if (tape->depth > 0 && e->serial == tape->scope[tape->depth].serial) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                      "%s was given NULL; the thread's last error before: %s", op, e->message);
    }
}

lvn_tensor *lvni_autograd_op_fail(const char *op)
{
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    if (tape != NULL && tape->scope[tape->depth].failed == LVN_OK) {
        name_null(tape, op);
        if (op != NULL) {
            const char *path = lvni_tensor_ctx_get()->module_path;
            lvn_error_frame("%s%s%s", op, path[0] != '\0' ? " in " : "", path);
        }
        tape->error = *lvn_last_error();
        if (tape->depth > 0) { /* outside of all scopes the NULL result itself is the only sign */
            tape->scope[tape->depth].failed = tape->error.code;
        }
    }
    return NULL;
}

static bool grow(struct lvni_autograd_tape *tape)
{
    const int64_t capacity = tape->capacity == 0 ? 256 : 2 * tape->capacity;
    lvn_tensor **more =
        lvni_core_realloc(LVNI_TAG_TENSOR, tape->tensors, (size_t)capacity * sizeof *more);
    if (more == NULL) {
        return false;
    }
    tape->tensors = more;
    tape->capacity = capacity;
    return true;
}

lvn_tensor *lvni_autograd_adopt(lvn_tensor *t)
{
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    if (t == NULL || tape == NULL || (tape->n_tensors == tape->capacity && !grow(tape))) {
        lvn_release(t);
        return lvni_autograd_op_fail(NULL);
    }
    tape->tensors[tape->n_tensors++] = t;
    return tape->stages == NULL || lvni_autograd_stages_made(t) ? t : lvni_autograd_op_fail(NULL);
}

lvn_tensor *lvn_keep(lvn_tensor *t)
{
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    if (t == NULL || tape == NULL) {
        return NULL;
    }
    const int64_t first = tape->scope[tape->depth].first; /* those of outer scopes stay theirs */
    for (int64_t i = tape->n_tensors - 1; i >= first; i--) {
        if (tape->tensors[i] == t) {
            tape->tensors[i] = NULL;
            return t;
        }
    }
    return lvn_retain(t); /* not this scope's: a parameter, a batch's field */
}

lvn_tensor *lvni_autograd_op_run(lvni_kernels_op op, lvn_kernel_args *args, unsigned want)
{
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    for (int i = 0; tape != NULL && tape->stages != NULL && i < LVN_KERNEL_INPUTS; i++) {
        args->in[i] = lvni_autograd_stages_here((lvn_tensor *)(uintptr_t)args->in[i]);
    }
    if (lvni_kernels_run(op, args, want) != LVN_OK) {
        return lvni_autograd_op_fail(lvni_kernels_ops[op].name);
    }
    bool good = true;
    for (int i = 0; i < lvni_kernels_ops[op].n_out; i++) {
        if (good) {
            good = args->out[i] == NULL || lvni_autograd_adopt(args->out[i]) != NULL;
        } else {
            lvn_release(args->out[i]);
        }
    }
    return good ? args->out[0] : NULL;
}

/* ---- nodes ---- */

bool lvni_autograd_records(lvn_tensor *const *in, int n)
{
    const struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    if (tape == NULL || tape->paused || (tape->stages != NULL && lvni_autograd_stages_away())) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        const lvn_tensor *t = tape->stages == NULL ? in[i] : lvni_autograd_stages_here(in[i]);
        if (t != NULL && (t->node != NULL || t->requires_grad)) {
            return true;
        }
    }
    return false;
}

lvni_autograd_node *lvni_autograd_record(const char *name, lvni_autograd_backward_rule backward,
                                         lvn_tensor *out, lvn_tensor *const *in, int n_in)
{
    return out == NULL || !lvni_autograd_records(in, n_in)
               ? NULL
               : lvni_autograd_tape_add(name, backward, out, in, n_in, sizeof(lvni_autograd_node));
}

lvni_autograd_node *lvni_autograd_tape_add(const char *name, lvni_autograd_backward_rule backward,
                                           lvn_tensor *out, lvn_tensor *const *in, int n_in,
                                           size_t bytes)
{
    size_t got;
    lvni_autograd_node *node = lvni_tensor_cache_take(lvni_tensor_ctx_get()->cache, bytes, &got);
    if (node == NULL) {
        /* NULL; the scope carries the error */
        return (lvni_autograd_node *)(void *)lvni_autograd_op_fail(name);
    }
    memset(node, 0, bytes);
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    node->name = name;
    node->backward = backward;
    if (lvni_tensor_ctx_get()->anomaly != NULL) { /* who sets one keeps the modules until its end */
        node->module_path = lvni_tensor_ctx_get()->module_path;
    }
    node->previous = tape->last;
    *(tape->last == NULL ? &tape->first : &tape->last->next) = node;
    tape->last = node;
    node->dtype = out->dtype;
    node->head.out = out;
    out->node = node;
    node->in_desc = lvni_tensor_get_desc(in[0]);
    for (int i = 0; i < n_in; i++) {
        lvn_tensor *t = tape->stages == NULL ? in[i] : lvni_autograd_stages_here(in[i]);
        if (t == NULL) {
            continue;
        }
        node->source[i] = t->node;
        if (t->node == NULL && t->requires_grad) {
            node->leaf[i] = lvn_retain(t);
        }
    }
    return node;
}

void lvni_autograd_save(lvni_autograd_node *node, int i, lvn_tensor *t)
{
    node->saved[i] =
        lvn_retain(lvni_autograd_tape_get()->stages == NULL ? t : lvni_autograd_stages_here(t));
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
    lvni_tensor_cache_give(lvni_tensor_ctx_get()->cache, node,
                           lvni_autograd_recompute_end_of(node));
}

lvn_status lvni_autograd_tape_check_past(const lvn_tensor *y, const char *call)
{
    if (y->node == NULL && y->past_gone) {
        LVN_FAIL(LVN_ERR_INVALID,
                 "%s: the graph behind this tensor is gone: an earlier lvn_backward of its scope "
                 "has used it up, or its scope was closed; "
                 "run the forward pass again, or add losses up before lvn_backward; lvn_grad, "
                 "called before it, keeps the graph",
                 call);
    }
    LVN_ARG(y->node != NULL || y->requires_grad,
            "%s: the tensor does not depend on anything that requires a gradient", call);
    return LVN_OK;
}

void lvni_autograd_tape_drop_after(struct lvni_autograd_tape *tape, lvni_autograd_node *before)
{
    while (tape->last != before) {
        lvni_autograd_node *node = tape->last;
        tape->last = node->previous;
        node_free(node);
    }
    *(before == NULL ? &tape->first : &before->next) = NULL;
}

void lvni_autograd_tape_drop_nodes(struct lvni_autograd_tape *tape)
{
    lvni_autograd_tape_drop_after(tape, NULL);
}

bool lvn_set_grad_enabled(bool enabled)
{
    struct lvni_autograd_tape *tape = lvni_autograd_tape_get();
    if (tape == NULL) {
        return true; /* as the one that is made later: who sets this again must not pause that */
    }
    const bool before = !tape->paused;
    tape->paused = !enabled;
    return before;
}

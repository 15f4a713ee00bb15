/* Coupled micro-batches: lvn_group_gather and lvn_group_sum (ops_group.h). What the micro-batches
 * brought lies in host memory; each micro-batch puts its own result together, in an order that
 * depends on the micro-batches' numbers alone. */
#include "ops/group_parts.h"

#include "plan/tree.h"
#include "tensor/device.h"

#include <string.h>

static const char GATHER[] = "group_gather", SUM[] = "group_sum";

/* ---- what the ops share (group_parts.h) ---- */

lvn_status lvni_ops_group_current(const char *op, const lvni_tensor_group **group)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    *group = ctx->group != NULL && ctx->group->micro_batches > 1 ? ctx->group : NULL;
    LVN_ARG(ctx->group != NULL || ctx->gradients == NULL || !ctx->at.training,
            "%s in a model whose micro-batches are not coupled: call lvn_builder_couple() in "
            "the module's build()",
            op);
    return LVN_OK;
}

lvn_status lvni_ops_group_same(const char *op, const lvni_tensor_part *parts, int micro_batches,
                               const lvni_tensor_desc *d, int first)
{
    for (int s = 0; s < micro_batches; s++) {
        const lvni_tensor_desc *other = &parts[s].desc;
        bool same = parts[s].data == NULL || (other->dtype == d->dtype && other->ndim == d->ndim);
        for (int i = first; parts[s].data != NULL && same && i < d->ndim; i++) {
            same = other->shape[i] == d->shape[i];
        }
        if (!same) {
            char a[96], b[96];
            LVN_FAIL(LVN_ERR_SHAPE,
                     "%s: this micro-batch has %s %s, micro-batch %d of its group %s %s", op,
                     lvn_dtype_name(d->dtype), lvni_tensor_shape_string(d->ndim, d->shape, a), s,
                     lvn_dtype_name(other->dtype),
                     lvni_tensor_shape_string(other->ndim, other->shape, b));
        }
    }
    return LVN_OK;
}

/* bytes added at once: a buffer for each level of the tree lies on the stack */
enum { PIECE = 4096 };

static void add_piece(lvn_dtype dtype, void *a, const void *b, size_t bytes)
{
    if (dtype == LVN_F64) {
        double *x = a;
        const double *y = b;
        for (size_t i = 0; i < bytes / sizeof *x; i++) {
            x[i] += y[i];
        }
        return;
    }
    float *x = a;
    const float *y = b;
    for (size_t i = 0; i < bytes / sizeof *x; i++) {
        x[i] += y[i];
    }
}

/* The node over micro-batches [lo, hi): bytes [at, at + bytes) of each. False: it is empty. */
static bool
add_node(const lvni_tensor_part *parts, int lo, int hi, lvn_dtype dtype, size_t at, size_t bytes,
         unsigned char *sum) /* NOLINT(misc-no-recursion): the tree's depth, 16 at most */
{
    if (hi - lo == 1) {
        if (parts[lo].data != NULL) {
            memcpy(sum, (const unsigned char *)parts[lo].data + at, bytes);
        }
        return parts[lo].data != NULL;
    }
    const int middle = lo + (int)lvni_plan_tree_split(hi - lo);
    if (!add_node(parts, lo, middle, dtype, at, bytes, sum)) {
        return add_node(parts, middle, hi, dtype, at, bytes, sum);
    }
    _Alignas(16) unsigned char right[PIECE];
    if (add_node(parts, middle, hi, dtype, at, bytes, right)) {
        add_piece(dtype, sum, right, bytes);
    }
    return true;
}

bool lvni_ops_group_add(const lvni_tensor_part *parts, int micro_batches, lvn_dtype dtype,
                        int64_t offset, int64_t n, void *sum)
{
    const size_t size = lvn_dtype_size(dtype), all = (size_t)n * size;
    bool any = false;
    for (int s = 0; s < micro_batches; s++) {
        any = any || parts[s].data != NULL;
    }
    for (size_t at = 0; any && at < all; at += PIECE) {
        const size_t bytes = all - at < PIECE ? all - at : PIECE;
        add_node(parts, 0, micro_batches, dtype, (size_t)offset * size + at, bytes,
                 (unsigned char *)sum + at);
    }
    return any;
}

lvn_tensor *lvni_ops_group_place(lvn_tensor *t)
{
    struct lvni_tensor_device *device = lvni_tensor_ctx_get()->device;
    if (t == NULL || device == NULL) {
        return t;
    }
    lvn_tensor *on_device = lvni_tensor_to(t, device);
    lvn_release(t);
    return on_device;
}

/* Gather `x` (NULL: nothing; f32 or f64) and add up the elements [offset, ...) of all, as many
 * as d has. *out: owned by the caller, NULL when no micro-batch brought anything. */
static lvn_status sync_and_add(const lvni_tensor_group *g, const char *op, const lvn_tensor *x,
                               int64_t offset, const lvni_tensor_desc *d, lvn_tensor **out)
{
    const lvni_tensor_part *parts;
    *out = NULL;
    LVN_TRY(g->gather(g, op, x, 0, &parts));
    if (x != NULL) {
        const lvni_tensor_desc own = lvni_tensor_get_desc(x);
        LVN_TRY(lvni_ops_group_same(op, parts, g->micro_batches, &own, 0));
    }
    lvn_tensor *sum = lvni_tensor_new_on(d, NULL);
    if (sum == NULL) {
        return lvn_last_error()->code;
    }
    if (!lvni_ops_group_add(parts, g->micro_batches, d->dtype, offset, lvni_tensor_desc_numel(d),
                            sum->data)) {
        lvn_release(sum);
        return LVN_OK;
    }
    *out = lvni_ops_group_place(sum);
    return *out == NULL ? lvn_last_error()->code : LVN_OK;
}

/* bf16 and f16 as f32; owned by the caller, NULL for NULL. */
static lvn_status as_full(lvn_tensor *x, lvn_tensor **out)
{
    const lvn_cast_attr attr = {.dtype = LVN_F32};
    lvn_kernel_args a = {.in = {x}, .attr = &attr};
    if (x == NULL || !lvni_tensor_is_low(x->dtype)) {
        *out = x == NULL ? NULL : lvn_retain(x);
        return LVN_OK;
    }
    LVN_TRY(lvni_kernels_run(LVNI_OP_cast, &a, 1));
    *out = a.out[0];
    return LVN_OK;
}

/* Both gradients: all micro-batches' dy added up, and of that the part that belongs to this
 * micro-batch's input. */
static lvn_status gradient(lvni_autograd_node *n, lvn_tensor *dy, int64_t offset)
{
    lvni_tensor_desc d = n->in_desc;
    /* added in full, rounded once when it is handed over */
    d.dtype = d.dtype == LVN_F64 ? LVN_F64 : LVN_F32;
    lvn_tensor *full, *dx;
    LVN_TRY(as_full(dy, &full));
    const lvn_status s = sync_and_add(lvni_tensor_ctx_get()->group, n->name, full, offset, &d, &dx);
    lvn_release(full);
    LVN_TRY(s);
    return dx == NULL ? LVN_OK : lvni_autograd_grad_give(n, 0, dx);
}

/* ---- the sum ---- */

static lvn_status sum_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return gradient(n, dy, 0);
}

static lvn_status sum_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give_op(n, 0, lvn_group_sum(dy));
}

lvn_tensor *lvn_group_sum(lvn_tensor *x)
{
    const lvni_tensor_group *g;
    if (x == NULL || lvni_autograd_scope_failed() || lvni_ops_group_current(SUM, &g) != LVN_OK) {
        return lvni_autograd_op_fail(SUM);
    }
    if (x->dtype != LVN_F32 && x->dtype != LVN_F64 && !lvni_tensor_is_low(x->dtype)) {
        lvn_error_set(LVN_ERR_DTYPE, __FILE__, __LINE__, "%s: adds floats, not %s; lvn_cast it",
                      SUM, lvn_dtype_name(x->dtype));
        return lvni_autograd_op_fail(SUM);
    }
    if (g == NULL) {
        return x;
    }
    if (lvni_tensor_is_low(x->dtype)) { /* added in f32, rounded once */
        lvn_tensor *full = lvni_autograd_cast(x, LVN_F32),
                   *sum = full == NULL ? NULL : lvn_group_sum(full);
        return sum == NULL ? lvni_autograd_op_fail(SUM) : lvni_autograd_cast(sum, x->dtype);
    }
    const lvni_tensor_desc d = lvni_tensor_get_desc(x);
    lvn_tensor *y;
    if (sync_and_add(g, SUM, x, 0, &d, &y) != LVN_OK || lvni_autograd_adopt(y) == NULL) {
        return lvni_autograd_op_fail(SUM);
    }
    lvni_autograd_node *node = lvni_autograd_record(SUM, sum_backward, y, &x, 1);
    if (node != NULL) {
        node->backward_ops = sum_backward_ops;
        node->syncs = true;
    }
    return y;
}

/* ---- one after the other ---- */

/* Elements of a row along axis 0. */
static int64_t row_of(const lvni_tensor_desc *d)
{
    int64_t n = 1;
    for (int i = 1; i < d->ndim; i++) {
        n *= d->shape[i];
    }
    return n;
}

static lvn_status gather_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return gradient(n, dy, n->attr.micro_batch.first * row_of(&n->in_desc));
}

static lvn_status gather_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    const int64_t first = n->attr.micro_batch.first;
    return lvni_autograd_grad_give_op(
        n, 0, lvn_slice(lvn_group_sum(dy), 0, first, first + n->in_desc.shape[0]));
}

/* *first: this micro-batch's first row. Owned by the caller; NULL on failure. */
static lvn_tensor *join(const lvni_tensor_group *g, const lvn_tensor *x, int64_t *first)
{
    const lvni_tensor_part *parts;
    lvni_tensor_desc d = lvni_tensor_get_desc(x);
    if (g->gather(g, GATHER, x, 0, &parts) != LVN_OK ||
        lvni_ops_group_same(GATHER, parts, g->micro_batches, &d, 1) != LVN_OK) {
        return NULL;
    }
    const size_t row = (size_t)row_of(&d) * lvn_dtype_size(d.dtype);
    d.shape[0] = 0;
    for (int s = 0; s < g->micro_batches; s++) {
        *first = s == g->index ? d.shape[0] : *first;
        d.shape[0] += parts[s].data == NULL ? 0 : parts[s].desc.shape[0];
    }
    lvn_tensor *y = lvni_tensor_new_on(&d, NULL);
    unsigned char *at = y == NULL ? NULL : y->data;
    for (int s = 0; s < g->micro_batches && y != NULL; s++) {
        if (parts[s].data != NULL) {
            const size_t bytes = (size_t)parts[s].desc.shape[0] * row;
            memcpy(at, parts[s].data, bytes);
            at += bytes;
        }
    }
    return lvni_ops_group_place(y);
}

lvn_tensor *lvn_group_gather_at(lvn_tensor *x, int64_t *first)
{
    const lvni_tensor_group *g;
    *first = 0;
    if (x == NULL || lvni_autograd_scope_failed() || lvni_ops_group_current(GATHER, &g) != LVN_OK) {
        return lvni_autograd_op_fail(GATHER);
    }
    if (x->ndim < 1) {
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                      "%s: a single number has no axis along which to join; lvn_reshape it to (1)",
                      GATHER);
        return lvni_autograd_op_fail(GATHER);
    }
    if (g == NULL) {
        return x;
    }
    lvn_tensor *y = join(g, x, first);
    if (y == NULL || lvni_autograd_adopt(y) == NULL) {
        return lvni_autograd_op_fail(GATHER);
    }
    lvni_autograd_node *node = lvni_autograd_record(GATHER, gather_backward, y, &x, 1);
    if (node != NULL) {
        node->backward_ops = gather_backward_ops;
        node->syncs = true;
        node->attr.micro_batch.first = *first;
    }
    return y;
}

lvn_tensor *lvn_group_gather(lvn_tensor *x)
{
    int64_t first;
    return lvn_group_gather_at(x, &first);
}

/* Ops that move elements without computing: other shapes over the same memory (reshape, flatten),
 * permute, slices, borders, choice by index, concat; and running sums, which are linear, too. */
#include "ops/move.h"

#include "autograd/placing.h"
#include "core/options_struct.h"

#include <string.h>

/* ---- other shapes ---- */

static lvn_status reshape_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give(n, 0, lvni_tensor_view(dy, n->in_desc.ndim, n->in_desc.shape));
}

static lvn_status reshape_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give_op(n, 0, lvn_reshape(dy, n->in_desc.ndim, n->in_desc.shape));
}

lvn_tensor *lvn_detach(lvn_tensor *x)
{
    if (x == NULL || lvni_autograd_scope_failed() || !lvni_autograd_stages_op("detach", &x, 1)) {
        return lvni_autograd_op_fail("detach");
    }
    return lvni_autograd_adopt(lvni_tensor_view(x, x->ndim, x->shape));
}

/* Fill in the size given as -1; false with an error when the numbers do not fit. */
static bool complete_shape(const lvn_tensor *x, int ndim, const int64_t *shape,
                           int64_t out[LVN_MAX_NDIM])
{
    int64_t known = 1, total = lvn_numel(x);
    int unknown = -1;
    bool good = ndim >= 0 && ndim <= LVN_MAX_NDIM;
    for (int i = 0; good && i < ndim; i++) {
        out[i] = shape[i];
        if (shape[i] == -1 && unknown < 0) {
            unknown = i;
        } else {
            good = shape[i] >= 0 && (shape[i] == 0 || known <= INT64_MAX / shape[i]);
            known *= good ? shape[i] : 1;
        }
    }
    if (good && unknown >= 0) {
        good = known > 0 && total % known == 0;
        out[unknown] = good ? total / known : 0;
        known = total;
    }
    if (!good || known != total) {
        char a[96], b[96];
        lvn_error_set(
            LVN_ERR_SHAPE, __FILE__, __LINE__,
            "reshape: %s has %lld elements, which do not fit into %s",
            lvni_tensor_shape_string(x->ndim, x->shape, a), (long long)total,
            lvni_tensor_shape_string(ndim < 0 || ndim > LVN_MAX_NDIM ? 0 : ndim, shape, b));
        return false;
    }
    return true;
}

lvn_tensor *lvn_reshape(lvn_tensor *x, int ndim, const int64_t *shape)
{
    int64_t full[LVN_MAX_NDIM];
    if (x == NULL || lvni_autograd_scope_failed() || !complete_shape(x, ndim, shape, full) ||
        !lvni_autograd_stages_op("reshape", &x, 1)) {
        return lvni_autograd_op_fail("reshape");
    }
    lvn_tensor *y = lvni_autograd_adopt(lvni_tensor_view(x, ndim, full));
    lvni_autograd_node *node =
        lvni_autograd_record("reshape", reshape_backward, y, (lvn_tensor *[]){x}, 1);
    if (node != NULL) {
        node->backward_ops = reshape_backward_ops;
    }
    return y;
}

lvn_tensor *lvn_flatten(lvn_tensor *x, int start_axis)
{
    if (x == NULL) {
        return lvni_autograd_op_fail("flatten");
    }
    const int start = start_axis < 0 ? start_axis + x->ndim : start_axis;
    if (start < 0 || start >= x->ndim) {
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__, "flatten: axis %d of a tensor of %d axes",
                      start_axis, x->ndim);
        return lvni_autograd_op_fail("flatten");
    }
    int64_t shape[LVN_MAX_NDIM], rest = 1;
    memcpy(shape, x->shape, sizeof shape);
    for (int i = start; i < x->ndim; i++) {
        rest *= x->shape[i];
    }
    shape[start] = rest;
    return lvn_reshape(x, start + 1, shape);
}

/* ---- moves: each is linear, and the gradient of one is another one of them (its adjoint), so one
 * rule serves all, also under create_graph ---- */

/* Which op, with what. */
typedef struct movement {
    lvni_kernels_op op;
    union {
        lvn_permute_attr permute;
        lvn_box_attr box;
        lvn_axis_attr axis;
        lvn_scan_attr scan;
    } attr;
} movement;

static movement movement_of(const lvni_autograd_node *n)
{
    movement m = {.op = n->attr.move.op};
    memcpy(&m.attr, &n->attr.move.attr, sizeof m.attr);
    return m;
}

static lvni_kernels_op adjoint_op(const movement *m)
{
    switch (m->op) {
    case LVNI_OP_crop: return LVNI_OP_pad;
    case LVNI_OP_pad: return m->attr.box.reflect ? LVNI_OP_pad_reflect_grad : LVNI_OP_crop;
    case LVNI_OP_pad_reflect_grad: return LVNI_OP_pad;
    case LVNI_OP_index_select: return LVNI_OP_index_select_grad;
    case LVNI_OP_index_select_grad: return LVNI_OP_index_select;
    case LVNI_OP_gather: return LVNI_OP_gather_grad;
    case LVNI_OP_gather_grad: return LVNI_OP_gather;
    default: return m->op; /* permute, cumsum */
    }
}

/* What carries dy, shaped like the result, back to the shape of the input. */
static movement adjoint(const lvni_autograd_node *n)
{
    const movement m = movement_of(n);
    movement back = {.op = adjoint_op(&m)};
    switch (m.op) {
    case LVNI_OP_permute:
        back.attr.permute.ndim = m.attr.permute.ndim;
        for (int i = 0; i < m.attr.permute.ndim; i++) {
            back.attr.permute.axis[m.attr.permute.axis[i]] = i;
        }
        break;
    case LVNI_OP_crop:
    case LVNI_OP_pad:
    case LVNI_OP_pad_reflect_grad:
        back.attr.box = m.attr.box;
        back.attr.box.value = 0.0;
        memcpy(back.attr.box.size, n->in_desc.shape, sizeof back.attr.box.size);
        break;
    case LVNI_OP_cumsum:
        back.attr.scan = (lvn_scan_attr){m.attr.scan.axis, !m.attr.scan.reverse};
        break;
    default:
        back.attr.axis =
            (lvn_axis_attr){.axis = m.attr.axis.axis, .size = n->in_desc.shape[m.attr.axis.axis]};
        break;
    }
    return back;
}

/* saved[0]: the index, or NULL */
static lvn_status move_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    const movement back = adjoint(n);
    lvn_kernel_args a = {.in = {dy, n->saved[0]}, .attr = &back.attr};
    LVN_TRY(lvni_kernels_run(back.op, &a, 1));
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

static lvn_tensor *move(const movement *m, lvn_tensor *x, lvn_tensor *index);

static lvn_status move_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    const movement back = adjoint(n);
    return lvni_autograd_grad_give_op(n, 0, move(&back, dy, n->saved[0]));
}

/* x and index are checked by the caller (lvni_autograd_op_begin). */
static lvn_tensor *move(const movement *m, lvn_tensor *x, lvn_tensor *index)
{
    lvn_kernel_args args = {.in = {x, index}, .attr = &m->attr};
    lvn_tensor *y = lvni_autograd_op_run(m->op, &args, 1);
    lvni_autograd_node *node =
        lvni_autograd_record(lvni_kernels_ops[m->op].name, move_backward, y, &x, 1);
    if (node != NULL) {
        node->backward_ops = move_backward_ops;
        node->attr.move.op = m->op;
        memcpy(&node->attr.move.attr, &m->attr, sizeof node->attr.move.attr);
        if (index != NULL) {
            lvni_autograd_save(node, 0, index);
        }
    }
    return y;
}

bool lvni_ops_own_axis(const char *op, const lvn_tensor *x, int *axis, int ndim)
{
    const int given = *axis;
    *axis += *axis < 0 ? ndim : 0;
    if (*axis < 0 || *axis >= ndim) {
        char shape[96];
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                      "%s: there is no axis %d for a tensor of shape %s; axes are %d to %d", op,
                      given, lvni_tensor_shape_string(x->ndim, x->shape, shape), -ndim, ndim - 1);
        return false;
    }
    return true;
}

/* ---- order ---- */

lvn_tensor *lvn_permute(lvn_tensor *x, const int *axes, int n_axes)
{
    if (!lvni_autograd_op_begin(LVNI_OP_permute, &x, 1, 0)) {
        return lvni_autograd_op_fail("permute");
    }
    movement m = {.op = LVNI_OP_permute, .attr.permute = {.ndim = n_axes}};
    bool moves = false;
    for (int i = 0; i < n_axes && i < LVN_MAX_NDIM; i++) {
        m.attr.permute.axis[i] = axes[i] < 0 ? axes[i] + x->ndim : axes[i];
        moves = moves || m.attr.permute.axis[i] != i;
    }
    return moves || n_axes != x->ndim ? move(&m, x, NULL) : x;
}

lvn_tensor *lvn_transpose(lvn_tensor *x, int axis_a, int axis_b)
{
    if (x == NULL || !lvni_ops_own_axis("transpose", x, &axis_a, x->ndim) ||
        !lvni_ops_own_axis("transpose", x, &axis_b, x->ndim)) {
        return lvni_autograd_op_fail("transpose");
    }
    int axes[LVN_MAX_NDIM];
    for (int i = 0; i < x->ndim; i++) {
        axes[i] = i == axis_a ? axis_b : i == axis_b ? axis_a : i;
    }
    return lvn_permute(x, axes, x->ndim);
}

/* ---- parts ---- */

lvn_tensor *lvn_slice(lvn_tensor *x, int axis, int64_t start, int64_t stop)
{
    if (!lvni_autograd_op_begin(LVNI_OP_crop, &x, 1, 0) ||
        !lvni_ops_own_axis("slice", x, &axis, x->ndim)) {
        return lvni_autograd_op_fail("slice");
    }
    stop = stop == LVN_END ? x->shape[axis] : stop;
    if (start < 0 || start > stop || stop > x->shape[axis]) {
        char shape[96];
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                      "slice: elements %lld to %lld do not lie in axis %d of %s", (long long)start,
                      (long long)stop, axis, lvni_tensor_shape_string(x->ndim, x->shape, shape));
        return lvni_autograd_op_fail("slice");
    }
    if (start == 0 && stop == x->shape[axis]) {
        return x;
    }
    movement m = {.op = LVNI_OP_crop, .attr.box = {.ndim = x->ndim}};
    memcpy(m.attr.box.size, x->shape, sizeof m.attr.box.size);
    m.attr.box.start[axis] = start;
    m.attr.box.size[axis] = stop - start;
    return move(&m, x, NULL);
}

lvn_status lvn_split(lvn_tensor *x, int axis, const int64_t *sizes, int n, lvn_tensor **parts)
{
    int64_t total = 0;
    for (int i = 0; i < n; i++) {
        parts[i] = NULL;
        total += sizes[i];
    }
    if (x == NULL || !lvni_ops_own_axis("split", x, &axis, x->ndim)) {
        lvni_autograd_op_fail("split");
        return lvn_last_error()->code != LVN_OK ? lvn_last_error()->code : LVN_ERR_INVALID;
    }
    if (total != x->shape[axis]) {
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                      "split: the %d sizes add up to %lld, axis %d has %lld elements", n,
                      (long long)total, axis, (long long)x->shape[axis]);
        lvni_autograd_op_fail("split");
        return LVN_ERR_SHAPE;
    }
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        parts[i] = lvn_slice(x, axis, at, at + sizes[i]);
        at += sizes[i];
        if (parts[i] == NULL) {
            memset(parts, 0, (size_t)n * sizeof(lvn_tensor *));
            return lvn_last_error()->code;
        }
    }
    return LVN_OK;
}

lvn_tensor *lvn_pad_with(lvn_tensor *x, const int64_t *before, const int64_t *after,
                         const lvn_pad_options *options)
{
    lvn_pad_options o;
    if (lvni_core_options_copy("pad", &o, sizeof o, options) != LVN_OK ||
        !lvni_autograd_op_begin(LVNI_OP_pad, &x, 1, 0)) {
        return lvni_autograd_op_fail("pad");
    }
    movement m = {.op = LVNI_OP_pad,
                  .attr.box = {.ndim = x->ndim, .value = o.value, .reflect = o.reflect}};
    bool same = true;
    for (int i = 0; i < x->ndim; i++) {
        m.attr.box.start[i] = before[i];
        m.attr.box.size[i] = before[i] + x->shape[i] + after[i];
        same = same && before[i] == 0 && after[i] == 0;
    }
    return same ? x : move(&m, x, NULL);
}

lvn_tensor *lvn_pad2d_with(lvn_tensor *x, int64_t top, int64_t bottom, int64_t left, int64_t right,
                           const lvn_pad_options *options)
{
    if (x != NULL && x->ndim != 4) {
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                      "pad2d takes (N, H, W, C), not a tensor of %d axes", x->ndim);
        return lvni_autograd_op_fail("pad2d");
    }
    return lvn_pad_with(x, (const int64_t[]){0, top, left, 0},
                        (const int64_t[]){0, bottom, right, 0}, options);
}

/* ---- by index ---- */

static lvn_tensor *choose(lvni_kernels_op op, lvn_tensor *x, int axis, lvn_tensor *index)
{
    lvn_tensor *in[] = {x, index};
    if (!lvni_autograd_op_begin(op, in, 2, 0) ||
        !lvni_ops_own_axis(lvni_kernels_ops[op].name, x, &axis, x->ndim)) {
        return lvni_autograd_op_fail(lvni_kernels_ops[op].name);
    }
    const movement m = {.op = op, .attr.axis = {.axis = axis}};
    return move(&m, in[0], index);
}

lvn_tensor *lvn_index_select(lvn_tensor *x, int axis, lvn_tensor *index)
{
    return choose(LVNI_OP_index_select, x, axis, index);
}

lvn_tensor *lvn_gather(lvn_tensor *x, int axis, lvn_tensor *index)
{
    return choose(LVNI_OP_gather, x, axis, index);
}

lvn_tensor *lvni_ops_put_back(lvn_tensor *x, int axis, int64_t size, lvn_tensor *index)
{
    lvn_tensor *in[] = {x, index};
    if (!lvni_autograd_op_begin(LVNI_OP_gather_grad, in, 2, 0)) {
        return lvni_autograd_op_fail("gather_grad");
    }
    const movement m = {.op = LVNI_OP_gather_grad, .attr.axis = {.axis = axis, .size = size}};
    return move(&m, in[0], index);
}

lvn_tensor *lvn_cumsum(lvn_tensor *x, int axis)
{
    if (!lvni_autograd_op_begin(LVNI_OP_cumsum, &x, 1, 0) ||
        !lvni_ops_own_axis("cumsum", x, &axis, x->ndim)) {
        return lvni_autograd_op_fail("cumsum");
    }
    const movement m = {.op = LVNI_OP_cumsum, .attr.scan = {.axis = axis}};
    return move(&m, x, NULL);
}

/* ---- several tensors ---- */

static lvn_box_attr part_of(const lvni_autograd_node *n, const lvn_tensor *dy, int64_t start,
                            int64_t size)
{
    lvn_box_attr box = {.ndim = dy->ndim};
    memcpy(box.size, dy->shape, sizeof box.size);
    box.start[n->attr.concat.axis] = start;
    box.size[n->attr.concat.axis] = size;
    return box;
}

static lvn_status concat_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    int64_t at = 0;
    for (int i = 0; i < LVNI_NODE_IN; at += n->attr.concat.size[i++]) {
        if (lvni_autograd_grad_wanted(n, i)) {
            const lvn_box_attr box = part_of(n, dy, at, n->attr.concat.size[i]);
            lvn_kernel_args a = {.in = {dy}, .out = {lvni_autograd_grad_dest(n, i)}, .attr = &box};
            LVN_TRY(lvni_autograd_grad_run(LVNI_OP_crop, &a, 1));
            LVN_TRY(lvni_autograd_grad_give(n, i, a.out[0]));
        }
    }
    return LVN_OK;
}

static lvn_status concat_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    int64_t at = 0;
    for (int i = 0; i < LVNI_NODE_IN; at += n->attr.concat.size[i++]) {
        if (lvni_autograd_grad_wanted(n, i)) {
            LVN_TRY(lvni_autograd_grad_give_op(
                n, i, lvn_slice(dy, n->attr.concat.axis, at, at + n->attr.concat.size[i])));
        }
    }
    return LVN_OK;
}

/* Up to LVN_KERNEL_INPUTS tensors, axis >= 0. */
static lvn_tensor *concat_few(lvn_tensor *const *tensors, int n, int axis)
{
    lvn_tensor *in[LVN_KERNEL_INPUTS] = {NULL};
    memcpy(in, tensors, (size_t)n * sizeof *in);
    if (!lvni_autograd_op_begin(LVNI_OP_concat, in, n, 0)) {
        return lvni_autograd_op_fail("concat");
    }
    if (n == 1) {
        return in[0];
    }
    const lvn_axis_attr attr = {.axis = axis};
    lvn_kernel_args args = {.attr = &attr};
    memcpy(args.in, in, sizeof in);
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_concat, &args, 1);
    lvni_autograd_node *node = lvni_autograd_record("concat", concat_backward, y, in, n);
    if (node != NULL) {
        node->backward_ops = concat_backward_ops;
        node->attr.concat.axis = axis;
        for (int i = 0; i < n; i++) {
            node->attr.concat.size[i] = in[i]->shape[axis];
        }
    }
    return y;
}

static lvn_tensor *with_new_axis(lvn_tensor *t, int axis)
{
    if (t == NULL || t->ndim == LVN_MAX_NDIM) {
        return t; /* the next op reports what is wrong */
    }
    int64_t shape[LVN_MAX_NDIM];
    for (int i = 0; i <= t->ndim; i++) {
        shape[i] = i < axis ? t->shape[i] : i == axis ? 1 : t->shape[i - 1];
    }
    return lvn_reshape(t, t->ndim + 1, shape);
}

/* Any number, in a tree of concats of up to LVN_KERNEL_INPUTS. */
static lvn_tensor *concat_many(lvn_tensor *const *tensors, int n, int axis, bool stack)
{
    lvn_tensor *part[LVN_KERNEL_INPUTS];
    int per = 1, parts = 0;
    while (per * LVN_KERNEL_INPUTS < n) {
        per *= LVN_KERNEL_INPUTS;
    }
    for (int i = 0; i < n; i += per) {
        const int few = n - i < per ? n - i : per;
        part[parts++] = per > 1 ? concat_many(tensors + i, few, axis, stack)
                        : stack ? with_new_axis(tensors[i], axis)
                                : tensors[i];
    }
    return concat_few(part, parts, axis);
}

static lvn_tensor *join(const char *op, lvn_tensor *const *tensors, int n, int axis, bool stack)
{
    if (n < 1) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__, "%s: takes one tensor or more, not %d",
                      op, n);
        return lvni_autograd_op_fail(op);
    }
    const lvn_tensor *first = tensors[0];
    if (first == NULL || !lvni_ops_own_axis(op, first, &axis, first->ndim + (stack ? 1 : 0))) {
        return lvni_autograd_op_fail(op);
    }
    return concat_many(tensors, n, axis, stack);
}

lvn_tensor *lvn_concat(lvn_tensor *const *tensors, int n, int axis)
{
    return join("concat", tensors, n, axis, false);
}

lvn_tensor *lvn_stack(lvn_tensor *const *tensors, int n, int axis)
{
    if (n > 0 && tensors[0] != NULL && tensors[0]->ndim == LVN_MAX_NDIM) {
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                      "stack: the tensors have %d axes already, the most there can be",
                      LVN_MAX_NDIM);
        return lvni_autograd_op_fail("stack");
    }
    return join("stack", tensors, n, axis, true);
}

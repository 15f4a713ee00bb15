/* Batch norm over the samples of a whole group of micro-batches (lvn_batch_norm_train with .sync).
 * Each micro-batch works out the mean and variance of its own values; these are joined in f64 in
 * the order of the micro-batches (Chan, Golub & LeVeque 1983), and on the way back the two sums of
 * the gradient are added in the tree. So three small vectors travel for each channel, and x is read
 * as often as by the plain batch norm. */
#include "ops/group_parts.h"

#include "core/error.h"
#include "tensor/device.h"

static const char NAME[] = "batch_norm_sync", BACK[] = "the backward of batch_norm_sync";

enum { X, GAMMA, BETA, RESIDUAL, N_IN };
enum { OF_X, OF_GAMMA, OF_MEAN, OF_VARIANCE, OF_BETA, OF_Y };

static double value_at(const void *data, lvn_dtype dtype, int64_t i)
{
    return dtype == LVN_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void set_at(void *data, lvn_dtype dtype, int64_t i, double value)
{
    if (dtype == LVN_F64) {
        ((double *)data)[i] = value;
    } else {
        ((float *)data)[i] = (float)value;
    }
}

/* Of channel c, from the means and variances (2, channels) of the micro-batches; `all` values
 * together. */
static void join_channel(const lvni_tensor_part *parts, int micro_batches, lvn_dtype dtype,
                         int64_t c, int64_t channels, double all, double *mean, double *squares)
{
    double sum = 0.0;
    for (int s = 0; s < micro_batches; s++) {
        sum += parts[s].data == NULL ? 0.0
                                     : (double)parts[s].number * value_at(parts[s].data, dtype, c);
    }
    *mean = sum / all;
    *squares = 0.0;
    for (int s = 0; s < micro_batches; s++) {
        if (parts[s].data != NULL) {
            const double n = (double)parts[s].number,
                         far = value_at(parts[s].data, dtype, c) - *mean;
            *squares += n * (value_at(parts[s].data, dtype, channels + c) + far * far);
        }
    }
}

/* The moments of the group: mean, variance, unbiased variance (channels each), where the context
 * computes; of the scope. */
static bool join(const lvni_tensor_group *g, const lvni_tensor_part *parts, lvn_dtype dtype,
                 int64_t channels, int64_t values, lvn_tensor *out[3])
{
    const lvni_tensor_desc d = {.dtype = dtype, .ndim = 1, .shape = {channels}};
    lvn_tensor *t[3] = {NULL};
    bool good = true;
    for (int i = 0; i < 3; i++) {
        t[i] = good ? lvni_tensor_new_on(&d, NULL) : NULL;
        good = t[i] != NULL;
    }
    for (int64_t c = 0; good && c < channels; c++) {
        double mean, squares;
        join_channel(parts, g->micro_batches, dtype, c, channels, (double)values, &mean, &squares);
        set_at(t[0]->data, dtype, c, mean);
        set_at(t[1]->data, dtype, c, squares / (double)values);
        set_at(t[2]->data, dtype, c, squares / (double)(values - 1));
    }
    for (int i = 0; i < 3; i++) {
        if (good) {
            out[i] = lvni_autograd_adopt(lvni_ops_group_place(t[i]));
            good = out[i] != NULL;
        } else {
            lvn_release(t[i]);
        }
    }
    return good;
}

/* Syncs the group with the moments of x. *values: of a channel in all of it. */
static bool sync_moments(const lvni_tensor_group *g, lvn_tensor *x, int64_t *values,
                         lvn_tensor *out[3])
{
    const int64_t channels = x->ndim > 0 ? x->shape[x->ndim - 1] : 0;
    lvn_kernel_args a = {.in = {x}};
    const lvni_tensor_part *parts;
    if (lvni_kernels_run(LVNI_OP_batch_norm_moments, &a, 1) != LVN_OK) {
        return false;
    }
    lvn_tensor *own = a.out[0];
    const lvni_tensor_desc d = lvni_tensor_get_desc(own);
    bool joined = false;
    lvn_status s;
    LVNI_TRY_DONE(s, g->gather(g, NAME, own, channels > 0 ? lvn_numel(x) / channels : 0, &parts));
    LVNI_TRY_DONE(s, lvni_ops_group_same(NAME, parts, g->micro_batches, &d, 0));
    *values = 0;
    for (int i = 0; i < g->micro_batches; i++) {
        *values += parts[i].data == NULL ? 0 : parts[i].number;
    }
    if (*values < 2) {
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                      "%s: batch norm needs more than one value per channel in training, and the "
                      "micro-batches of the group have %lld together; use larger micro-batches or "
                      "images",
                      NAME, (long long)*values);
        goto done;
    }
    joined = join(g, parts, d.dtype, channels, *values, out);
done:
    lvn_release(own);
    return joined;
}

/* sums of this micro-batch become the group's over the number of values; owned by the caller. */
static lvn_status sync_sums(const lvni_autograd_node *n, const lvn_tensor *sums, lvn_tensor **share)
{
    const lvni_tensor_group *g = lvni_tensor_ctx_get()->group;
    const lvni_tensor_desc d = lvni_tensor_get_desc(sums);
    const lvni_tensor_part *parts;
    LVN_TRY(g->gather(g, BACK, sums, 0, &parts));
    LVN_TRY(lvni_ops_group_same(BACK, parts, g->micro_batches, &d, 0));
    lvn_tensor *t = lvni_tensor_new_on(&d, NULL);
    if (t == NULL) {
        return lvn_last_error()->code;
    }
    lvni_ops_group_add(parts, g->micro_batches, d.dtype, 0, lvn_numel(t), t->data);
    for (int64_t i = 0; i < lvn_numel(t); i++) {
        set_at(t->data, d.dtype, i,
               value_at(t->data, d.dtype, i) / (double)n->attr.micro_batch_norm.values);
    }
    *share = lvni_ops_group_place(t);
    return *share == NULL ? lvn_last_error()->code : LVN_OK;
}

/* One of the two halves of sums; owned. Ops of devices take whole vectors (levin/backend.h). */
static lvn_tensor *half_of(lvn_tensor *sums, int64_t offset, const lvni_tensor_desc *d)
{
    const size_t size = lvn_dtype_size(d->dtype), at = (size_t)offset * size;
    lvn_tensor *half = lvni_tensor_slice(sums, offset, d);
    if (half == NULL || at % LVN_TENSOR_ALIGNMENT == 0) {
        return half;
    }
    lvn_tensor *copy = lvni_tensor_new(d);
    if (copy != NULL &&
        lvni_tensor_mem_copy(copy->data, half->data, (size_t)lvn_numel(half) * size) != LVN_OK) {
        lvn_release(copy);
        copy = NULL;
    }
    lvn_release(half);
    return copy;
}

/* The gradients of the vectors are this micro-batch's own sums: those of all micro-batches are
 * added with the other parameters'. */
static lvn_status give_vectors(lvni_autograd_node *n, lvn_tensor *sums)
{
    const lvni_tensor_desc d = lvni_tensor_get_desc(n->saved[OF_GAMMA]);
    if (lvni_autograd_grad_wanted(n, BETA)) {
        LVN_TRY(lvni_autograd_grad_give(n, BETA, half_of(sums, 0, &d)));
    }
    return lvni_autograd_grad_wanted(n, GAMMA)
               ? lvni_autograd_grad_give(n, GAMMA, half_of(sums, d.shape[0], &d))
               : LVN_OK;
}

/* g: what of dy passed relu where a residual wants it, else NULL. */
static lvn_status give_tables(lvni_autograd_node *n, lvn_tensor *dy, lvn_tensor *g,
                              const lvn_tensor *share)
{
    lvn_tensor *const *saved = n->saved;
    lvn_norm_attr attr = n->attr.micro_batch_norm.norm;
    const bool passed = g != NULL;
    attr.relu = attr.relu && !passed;
    if (lvni_autograd_grad_wanted(n, X)) {
        lvn_kernel_args a = {.in = {passed ? g : dy, saved[OF_X], saved[OF_GAMMA], saved[OF_MEAN],
                                    saved[OF_VARIANCE], saved[OF_BETA], share,
                                    passed ? NULL : saved[OF_Y]},
                             .attr = &attr};
        LVN_TRY(lvni_kernels_run(LVNI_OP_batch_norm_group_grad, &a, 1));
        LVN_TRY(lvni_autograd_grad_give(n, X, a.out[0]));
    }
    return lvni_autograd_grad_wanted(n, RESIDUAL)
               ? lvni_autograd_grad_give(n, RESIDUAL, lvn_retain(passed ? g : dy))
               : LVN_OK;
}

static lvn_status backward_with(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_tensor *const *saved = n->saved;
    const lvn_norm_attr *attr = &n->attr.micro_batch_norm.norm;
    lvn_kernel_args a = {.in = {dy, saved[OF_X], saved[OF_GAMMA], saved[OF_MEAN],
                                saved[OF_VARIANCE], saved[OF_BETA], saved[OF_Y]},
                         .attr = attr};
    const bool keep = attr->relu && lvni_autograd_grad_wanted(n, RESIDUAL);
    LVN_TRY(lvni_kernels_run(LVNI_OP_batch_norm_sums, &a, keep ? 3u : 1u));
    lvn_tensor *sums = a.out[0], *g = a.out[1], *share = NULL;
    lvn_status s;
    LVNI_TRY_DONE(s, sync_sums(n, sums, &share));
    LVNI_TRY_DONE(s, give_tables(n, dy, g, share));
    s = give_vectors(n, sums);
done:
    lvn_release(sums);
    lvn_release(g);
    lvn_release(share);
    return s;
}

/* A micro-batch whose loss does not depend on the result still moves the statistics of the others:
 * its dy is zero. */
static lvn_status micro_batch_norm_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    if (dy != NULL) {
        return backward_with(n, dy);
    }
    lvn_tensor *zeros = lvni_tensor_zeros(n->in_desc.dtype, n->in_desc.ndim, n->in_desc.shape);
    const lvn_status s = zeros == NULL ? lvn_last_error()->code : backward_with(n, zeros);
    lvn_release(zeros);
    return s;
}

lvn_tensor *lvni_ops_sync_batch_norm(const lvni_tensor_group *group, lvn_tensor *const in[N_IN],
                                     const lvn_norm_attr *attr, lvn_tensor **mean,
                                     lvn_tensor **variance)
{
    lvn_tensor *moments[3];
    int64_t values;
    if (!sync_moments(group, in[X], &values, moments)) {
        return lvni_autograd_op_fail(NAME);
    }
    lvn_kernel_args a = {.in = {in[X], in[GAMMA], in[BETA], moments[0], moments[1], in[RESIDUAL]},
                         .attr = attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_batch_norm_eval, &a, 1);
    if (y == NULL) {
        return NULL;
    }
    if (mean != NULL) {
        *mean = moments[0];
    }
    if (variance != NULL) {
        *variance = moments[2];
    }
    lvni_autograd_node *node = lvni_autograd_record(NAME, micro_batch_norm_backward, y, in, N_IN);
    if (node != NULL) {
        node->syncs = true;
        node->attr.micro_batch_norm.norm = *attr;
        node->attr.micro_batch_norm.values = values;
        lvni_autograd_save(node, OF_X, in[X]);
        lvni_autograd_save(node, OF_GAMMA, in[GAMMA]);
        lvni_autograd_save(node, OF_MEAN, moments[0]);
        lvni_autograd_save(node, OF_VARIANCE, moments[1]);
        lvni_autograd_save(node, OF_BETA, in[BETA]);
        lvni_autograd_save(node, OF_Y, attr->relu && in[RESIDUAL] != NULL ? y : NULL);
    }
    return y;
}

/* Matrix products on oneDNN: matmul, linear and the gradient of linear's weights. Called through
 * the op table.
 *
 * A product whose first factor is transposed in memory adds over the team and belongs to the
 * reducing class: it always runs with wgrad_threads. All others run with the team of the lane where
 * their bits do not depend on it (onednn_table.c chooses, onednn_version.c knows which;
 * tests/unit/kernels_cpu/test_onednn_reproducibility.c and test_onednn_teams.c watch). */
#include "core/math.h"
#include "kernels/cpu/omp_team.h"
#include "kernels/cpu/onednn_weights.h"
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

#include <string.h>

/* y (m, n) = a (m, k) b (k, n) + bias (n) or NULL. Types: f32; or a bf16, b bf16 or f32 (a
 * parameter, carried to bf16), y bf16 or f32. */
typedef struct product_call {
    lvni_cpu_dnn_matmul_shape shape;
    const lvn_tensor *a, *b, *bias;
    lvn_tensor *y;
} product_call;

/* Products over nothing: y is the bias (or zero) in every row. */
static lvn_status fill_rows(const product_call *c)
{
    memset(c->y->data, 0, (size_t)lvn_numel(c->y) * lvn_dtype_size(c->y->dtype));
    for (int64_t e = 0; c->bias != NULL && e < lvn_numel(c->y); e++) {
        const int64_t column = e % c->shape.n;
        const float value = c->bias->dtype == LVN_BF16
                                ? lvni_core_bf16_to_f32(((const uint16_t *)c->bias->data)[column])
                                : LVNI_CF32(c->bias)[column];
        if (c->y->dtype == LVN_BF16) {
            ((uint16_t *)c->y->data)[e] = lvni_core_f32_to_bf16(value);
        } else {
            LVNI_F32(c->y)[e] = value;
        }
    }
    return LVN_OK;
}

static lvn_status product(const product_call *c)
{
    const lvni_cpu_dnn_matmul_shape *s = &c->shape;
    if (s->batch == 0 || s->m == 0 || s->n == 0) {
        return LVN_OK;
    }
    if (s->k == 0) {
        return fill_rows(c);
    }
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx == NULL) {
        return lvn_last_error()->code;
    }
    lvni_cpu_dnn_key key;
    memset(&key, 0, sizeof key);
    key.work.op = LVNI_DNN_MATMUL;
    key.work.bias = c->bias != NULL;
    key.work.low = c->a->dtype == LVN_BF16;
    key.work.wide_w = c->b->dtype != c->a->dtype;
    key.work.wide_y = c->y->dtype != c->a->dtype;
    key.work.shape.matmul = *s;
    key.fixed_team = ctx->pins.wgrad_threads;
    key.team = s->trans_a != 0 ? ctx->pins.wgrad_threads : ctx->team;
    lvni_cpu_dnn_found f = {0};
    LVN_TRY(lvni_cpu_dnn_lookup(&key, &f));
    const void *data[LVNI_DNN_MAX_ARGS] = {c->a->data, NULL, c->y->data, NULL};
    LVN_TRY(lvni_cpu_dnn_bias(c->bias, &data[3]));
    const int before = lvni_cpu_omp_enter(f.team);
    const lvn_status status = lvni_cpu_dnn_run_with_weights(&f, data, c->b);
    lvni_cpu_omp_leave(before);
    return status;
}

lvn_status lvni_cpu_matmul(const lvn_kernel_args *args)
{
    const lvn_matmul_attr *at = args->attr;
    const lvn_tensor *a = args->in[0], *b = args->in[1];
    const int row = a->ndim - 2, column = a->ndim - 1;
    lvni_cpu_dnn_matmul_shape s = {.batch = 1,
                                   .m = a->shape[at->trans_a ? column : row],
                                   .k = a->shape[at->trans_a ? row : column],
                                   .n = b->shape[at->trans_b ? row : column],
                                   .trans_a = at->trans_a,
                                   .trans_b = at->trans_b};
    for (int i = 0; i < row; i++) {
        s.batch *= a->shape[i];
    }
    return product(&(product_call){.shape = s, .a = a, .b = b, .y = args->out[0]});
}

lvn_status lvni_cpu_linear(const lvn_kernel_args *args)
{
    const lvn_tensor *x = args->in[0], *w = args->in[1];
    const lvni_cpu_dnn_matmul_shape s = {
        .batch = 1, .m = x->shape[0], .k = x->shape[1], .n = w->shape[0], .trans_b = 1};
    return product(
        &(product_call){.shape = s, .a = x, .b = w, .bias = args->in[2], .y = args->out[0]});
}

/* From how many terms times columns, and rows, oneDNN's sgemm is quicker than its matmul with this
 * layout (a third in a network's head; twice where rows of w lie a multiple of 4096 bytes apart).
 * Below 16 rows its sums depend on their number. */
enum { SGEMM_WEIGHTS = 512 * 512, SGEMM_ROWS = 16 };

/* dx (N, I) = dy (N, O) w (O, I). sgemm's sums depend on the team, so the whole op is of the
 * reducing class. */
lvn_status lvni_cpu_linear_grad_input(const lvn_kernel_args *args)
{
    const lvn_tensor *dy = args->in[0], *w = args->in[1];
    const lvni_cpu_dnn_matmul_shape s = {
        .batch = 1, .m = dy->shape[0], .k = dy->shape[1], .n = w->shape[1]};
    if (dy->dtype != LVN_F32 || s.m < SGEMM_ROWS || s.k * s.n < SGEMM_WEIGHTS) {
        return product(&(product_call){.shape = s, .a = dy, .b = w, .y = args->out[0]});
    }
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx == NULL) {
        return lvn_last_error()->code;
    }
    const int before = lvni_cpu_omp_enter(ctx->pins.wgrad_threads);
    const lvn_status status =
        lvni_cpu_dnn_sgemm(&s, LVNI_CF32(dy), LVNI_CF32(w), LVNI_F32(args->out[0]));
    lvni_cpu_omp_leave(before);
    return status;
}

/* dw (O, I) = dy^T (O, N) x (N, I) */
lvn_status lvni_cpu_linear_grad_weight(const lvn_kernel_args *args)
{
    const lvn_tensor *dy = args->in[0], *x = args->in[1];
    const lvni_cpu_dnn_matmul_shape s = {
        .batch = 1, .m = dy->shape[1], .k = dy->shape[0], .n = x->shape[1], .trans_a = 1};
    if (args->out[0] != NULL) {
        LVN_TRY(product(&(product_call){.shape = s, .a = dy, .b = x, .y = args->out[0]}));
    }
    if (args->out[1] != NULL) {
        return lvni_cpu_sum_rows(dy, args->out[1]);
    }
    return LVN_OK;
}

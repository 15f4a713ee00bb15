/* Matrix products on oneDNN: matmul, linear and the gradient of linear's weights. Called through the op table.
 *
 * A product whose first factor is transposed in memory adds over the team and belongs to the reducing class: it always
 * runs with wgrad_team. All others have the same bits for every team of the lane (onednn_table.c chooses;
 * tests/unit/kernels_cpu/test_onednn_law.c watches). */
#include "kernels/cpu/omp_team.h"
#include "kernels/cpu/onednn_table.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"

#include <string.h>

static lvn_status run(const lvni_dnn_key *key, const void *const *data)
{
    lvni_dnn_found f = {0};
    LVN_TRY(lvni_dnn_lookup(key, &f));
    void *scratch = lvni_scratch(LVNI_SCRATCH_DNNL, f.prim->scratch_bytes);
    if (scratch == NULL) {
        return lvn_last_error()->code;
    }
    const int before = lvni_omp_enter(f.team);
    const lvn_status s = lvni_dnn_run(f.prim, f.stream, data, scratch);
    lvni_omp_leave(before);
    return s;
}

/* Products over nothing: y is the bias (or zero) in every row. */
static void fill_rows(float *y, int64_t rows, int64_t columns, const float *bias)
{
    for (int64_t r = 0; r < rows; r++) {
        if (bias != NULL) {
            memcpy(y + r * columns, bias, (size_t)columns * sizeof *y);
        } else {
            memset(y + r * columns, 0, (size_t)columns * sizeof *y);
        }
    }
}

/* y (m, n) = a (m, k) b (k, n) + bias (n) or NULL. */
static lvn_status product(const lvni_dnn_matmul_shape *s, const float *a, const float *b, const float *bias, float *y)
{
    if (s->m == 0 || s->n == 0) {
        return LVN_OK;
    }
    if (s->k == 0) {
        fill_rows(y, s->m, s->n, bias);
        return LVN_OK;
    }
    const lvni_ctx *ctx = lvni_ctx_get();
    if (ctx == NULL) {
        return lvn_last_error()->code;
    }
    lvni_dnn_key key;
    memset(&key, 0, sizeof key);
    key.work.op = LVNI_DNN_MATMUL;
    key.work.bias = bias != NULL;
    key.work.shape.matmul = *s;
    key.fixed_team = ctx->wgrad_team;
    key.team = s->trans_a != 0 ? ctx->wgrad_team : ctx->team;
    const void *const data[] = {a, b, y, bias};
    return run(&key, data);
}

lvn_status lvni_cpu_matmul(const lvni_args *args)
{
    const lvni_matmul_attr *at = args->attr;
    const lvn_tensor *a = args->in[0], *b = args->in[1];
    const lvni_dnn_matmul_shape s = {.m = a->shape[at->trans_a ? 1 : 0],
                                     .k = a->shape[at->trans_a ? 0 : 1],
                                     .n = b->shape[at->trans_b ? 0 : 1],
                                     .trans_a = at->trans_a,
                                     .trans_b = at->trans_b};
    return product(&s, LVNI_CF32(a), LVNI_CF32(b), NULL, LVNI_F32(args->out[0]));
}

lvn_status lvni_cpu_linear(const lvni_args *args)
{
    const lvn_tensor *x = args->in[0], *w = args->in[1], *b = args->in[2];
    const lvni_dnn_matmul_shape s = {.m = x->shape[0], .k = x->shape[1], .n = w->shape[0], .trans_b = 1};
    return product(&s, LVNI_CF32(x), LVNI_CF32(w), b == NULL ? NULL : LVNI_CF32(b), LVNI_F32(args->out[0]));
}

/* dw (O, I) = dy^T (O, N) x (N, I) */
lvn_status lvni_cpu_linear_grad_weight(const lvni_args *args)
{
    const lvn_tensor *dy = args->in[0], *x = args->in[1];
    const lvni_dnn_matmul_shape s = {.m = dy->shape[1], .k = dy->shape[0], .n = x->shape[1], .trans_a = 1};
    if (args->out[0] != NULL) {
        LVN_TRY(product(&s, LVNI_CF32(dy), LVNI_CF32(x), NULL, LVNI_F32(args->out[0])));
    }
    if (args->out[1] != NULL) {
        const lvni_axes_attr rows = {.mask = 1u};
        return lvni_cpu_sum(&(lvni_args){.in = {dy}, .out = {args->out[1]}, .attr = &rows});
    }
    return LVN_OK;
}

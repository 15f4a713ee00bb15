/* Micro-batches in lanes for tests (group_sync_support.h). */
#include "group_sync_support.h"

#include "core/rng.h"

#include <math.h>
#include <string.h>

void micro_batches_open(micro_batches *s, int n, micro_batch_formula f)
{
    assert_true(n <= MOST_MICRO_BATCHES);
    memset(s, 0, sizeof *s);
    s->n = n;
    s->f = f;
    assert_int_equal(lvni_trainer_lanes_create(n, 1, NULL, &s->lanes), LVN_OK);
    assert_int_equal(lvni_trainer_group_sync_create(n, &s->group_sync), LVN_OK);
}

void micro_batches_close(micro_batches *s)
{
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < INPUTS; k++) {
            lvn_release(s->in[i][k]);
        }
    }
    lvni_trainer_group_sync_destroy(s->group_sync);
    lvni_trainer_lanes_destroy(s->lanes);
}

static double normal(int micro_batch, int input, int64_t e)
{
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(5, lvni_core_rng_purpose("inputs")),
                               .a = (uint32_t)micro_batch,
                               .b = (uint32_t)input};
    return (double)(float)lvni_core_rng_normal(&rng, (uint64_t)e);
}

static void set(lvn_tensor *t, int64_t e, double value)
{
    if (t->dtype == LVN_F64) {
        ((double *)t->data)[e] = value;
    } else {
        LVNI_F32(t)[e] = (float)value;
    }
}

lvn_tensor *micro_batches_input(micro_batches *s, int micro_batch, int input, lvn_dtype dtype,
                                int ndim, const int64_t *shape)
{
    lvn_tensor *t = lvn_tensor_create(dtype, ndim, shape);
    if (t == NULL) {
        fail();
        return NULL;
    }
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        set(t, e, normal(micro_batch, input, e));
    }
    lvn_release(s->in[micro_batch][input]);
    s->in[micro_batch][input] = lvn_require_grad(t);
    return t;
}

static lvn_status run_one(micro_batches *s, int micro_batch)
{
    LVN_TRY(lvn_scope_open());
    lvn_tensor *y = s->f(s, micro_batch, s->in[micro_batch]);
    lvn_tensor *r = y == NULL ? NULL : lvn_tensor_create(y->dtype, y->ndim, y->shape);
    for (int64_t e = 0; r != NULL && e < lvn_numel(r); e++) {
        set(r, e, s->plain ? 1.0 : normal(micro_batch, 77, e));
    }
    lvn_tensor *loss = lvn_sum(lvn_mul(r, y));
    s->loss[micro_batch] = loss == NULL ? (double)NAN : lvn_item(loss);
    const lvn_status back = s->backward ? lvn_backward(loss) : LVN_OK;
    s->y[micro_batch] = s->keep ? lvn_keep(y) : NULL;
    lvn_release(r);
    const lvn_status closed = lvn_scope_close();
    return closed != LVN_OK ? closed : back;
}

static lvn_status work(void *user, int lane)
{
    micro_batches *s = user;
    s->loss[lane] = 0.0;
    s->status[lane] = LVN_OK;
    if (s->empty[lane]) {
        return LVN_OK;
    }
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    ctx->group = lvni_trainer_group_sync_group(s->group_sync, lane);
    s->status[lane] = run_one(s, lane);
    ctx->group = NULL;
    lvni_trainer_group_sync_leave(s->group_sync, lane, s->status[lane]);
    return s->status[lane];
}

lvn_status micro_batches_run(micro_batches *s, bool backward)
{
    s->backward = backward;
    lvni_trainer_group_sync_open(s->group_sync, &(lvni_trainer_group_sync_ranks){0});
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < INPUTS && !s->empty[i]; k++) {
            lvn_zero_grad(s->in[i][k]);
        }
        if (!s->empty[i]) {
            lvni_trainer_group_sync_expect(s->group_sync, i);
        }
    }
    const lvn_status all = lvni_trainer_lanes_run(s->lanes, s->n, work, s),
                     met = lvni_trainer_group_sync_status(s->group_sync);
    return met != LVN_OK ? met : all;
}

static double total(micro_batches *s, const char *name)
{
    double sum = 0.0;
    if (micro_batches_run(s, false) != LVN_OK) {
        fail_msg("%s: %s", name, lvn_last_error()->message);
    }
    for (int i = 0; i < s->n; i++) {
        sum += s->loss[i];
    }
    return sum;
}

static void compare(micro_batches *s, const char *name, int micro_batch, int input, const double *g,
                    double tolerance)
{
    lvn_tensor *x = s->in[micro_batch][input];
    const double h = 1e-5;
    double most = 0.0;
    for (int64_t e = 0; e < lvn_numel(x); e++) {
        most = fmax(most, fabs(g[e]));
    }
    assert_true(most > 0.0); /* a test that compares zeros shows nothing */
    for (int64_t e = 0; e < lvn_numel(x); e++) {
        double *at = (double *)x->data + e;
        const double kept = *at;
        *at = kept + h;
        const double up = total(s, name);
        *at = kept - h;
        const double down = total(s, name);
        *at = kept;
        const double numeric = (up - down) / (2 * h);
        if (!(fabs(numeric - g[e]) <= tolerance * most)) {
            fail_msg("%s, micro-batch %d, input %d, element %d: differences give %.12g, "
                     "lvn_backward %.12g",
                     name, micro_batch, input, (int)e, numeric, g[e]);
        }
    }
}

void micro_batches_check_gradients(micro_batches *s, const char *name, double tolerance)
{
    if (micro_batches_run(s, true) != LVN_OK) {
        fail_msg("%s: %s", name, lvn_last_error()->message);
    }
    lvn_tensor *g[MOST_MICRO_BATCHES][INPUTS] = {{NULL}};
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < INPUTS; k++) {
            if (s->empty[i] || s->in[i][k] == NULL) {
                continue;
            }
            g[i][k] = lvn_gradient(s->in[i][k]);
            if (g[i][k] == NULL) {
                fail_msg("%s: micro-batch %d, input %d has no gradient", name, i, k);
                return;
            }
            lvn_retain(g[i][k]);
        }
    }
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < INPUTS; k++) {
            if (g[i][k] != NULL) {
                compare(s, name, i, k, g[i][k]->data, tolerance);
                lvn_release(g[i][k]);
            }
        }
    }
}

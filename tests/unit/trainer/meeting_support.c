/* Shards in lanes for tests (meeting_support.h). */
#include "meeting_support.h"

#include "core/rng.h"

#include <math.h>
#include <string.h>

void shards_open(shards *s, int n, shard_formula f)
{
    assert_true(n <= MOST_SHARDS);
    memset(s, 0, sizeof *s);
    s->n = n;
    s->f = f;
    assert_int_equal(lvni_lanes_create(n, 1, 1, &s->lanes), LVN_OK);
    assert_int_equal(lvni_meeting_create(n, &s->meeting), LVN_OK);
}

void shards_close(shards *s)
{
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < INPUTS; k++) {
            lvn_release(s->in[i][k]);
        }
    }
    lvni_meeting_destroy(s->meeting);
    lvni_lanes_destroy(s->lanes);
}

static double normal(int shard, int input, int64_t e)
{
    const lvni_rng rng = {.key = lvni_rng_make_key(5, lvni_rng_purpose("shards")),
                          .a = (uint32_t)shard,
                          .b = (uint32_t)input};
    return (double)(float)lvni_rng_normal(&rng, (uint64_t)e);
}

static void set(lvn_tensor *t, int64_t e, double value)
{
    if (t->dtype == LVN_F64) {
        ((double *)t->data)[e] = value;
    } else {
        LVNI_F32(t)[e] = (float)value;
    }
}

lvn_tensor *shards_input(shards *s, int shard, int input, lvn_dtype dtype, int ndim,
                         const int64_t *shape)
{
    lvn_tensor *t = lvn_tensor_create(dtype, ndim, shape);
    if (t == NULL) {
        fail();
        return NULL;
    }
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        set(t, e, normal(shard, input, e));
    }
    lvn_release(s->in[shard][input]);
    s->in[shard][input] = lvn_require_grad(t);
    return t;
}

static lvn_status run_one(shards *s, int shard)
{
    LVN_TRY(lvn_scope_open());
    lvn_tensor *y = s->f(s, shard, s->in[shard]);
    lvn_tensor *r = y == NULL ? NULL : lvn_tensor_create(y->dtype, y->ndim, y->shape);
    for (int64_t e = 0; r != NULL && e < lvn_numel(r); e++) {
        set(r, e, normal(shard, 77, e));
    }
    lvn_tensor *loss = lvn_sum(lvn_mul(r, y));
    s->loss[shard] = loss == NULL ? (double)NAN : lvn_item(loss);
    const lvn_status back = s->backward ? lvn_backward(loss) : LVN_OK;
    s->y[shard] = s->keep ? lvn_keep(y) : NULL;
    lvn_release(r);
    const lvn_status closed = lvn_scope_close();
    return closed != LVN_OK ? closed : back;
}

static lvn_status work(void *user, int lane)
{
    shards *s = user;
    s->loss[lane] = 0.0;
    s->status[lane] = LVN_OK;
    if (s->empty[lane]) {
        return LVN_OK;
    }
    lvni_ctx *ctx = lvni_ctx_get();
    ctx->group = lvni_meeting_group(s->meeting, lane);
    s->status[lane] = run_one(s, lane);
    ctx->group = NULL;
    lvni_meeting_leave(s->meeting, lane, s->status[lane]);
    return s->status[lane];
}

lvn_status shards_run(shards *s, bool backward)
{
    s->backward = backward;
    lvni_meeting_open(s->meeting, &(lvni_meeting_ranks){0});
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < INPUTS && !s->empty[i]; k++) {
            lvn_zero_grad(s->in[i][k]);
        }
        if (!s->empty[i]) {
            lvni_meeting_expect(s->meeting, i);
        }
    }
    const lvn_status all = lvni_lanes_run(s->lanes, s->n, work, s),
                     met = lvni_meeting_status(s->meeting);
    return met != LVN_OK ? met : all;
}

static double total(shards *s, const char *name)
{
    double sum = 0.0;
    if (shards_run(s, false) != LVN_OK) {
        fail_msg("%s: %s", name, lvn_last_error()->message);
    }
    for (int i = 0; i < s->n; i++) {
        sum += s->loss[i];
    }
    return sum;
}

static void compare(shards *s, const char *name, int shard, int input, const double *g,
                    double tolerance)
{
    lvn_tensor *x = s->in[shard][input];
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
            fail_msg(
                "%s, shard %d, input %d, element %d: differences give %.12g, lvn_backward %.12g",
                name, shard, input, (int)e, numeric, g[e]);
        }
    }
}

void shards_check_gradients(shards *s, const char *name, double tolerance)
{
    if (shards_run(s, true) != LVN_OK) {
        fail_msg("%s: %s", name, lvn_last_error()->message);
    }
    lvn_tensor *g[MOST_SHARDS][INPUTS] = {{NULL}};
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < INPUTS; k++) {
            if (s->empty[i] || s->in[i][k] == NULL) {
                continue;
            }
            g[i][k] = lvn_gradient(s->in[i][k]);
            if (g[i][k] == NULL) {
                fail_msg("%s: shard %d, input %d has no gradient", name, i, k);
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

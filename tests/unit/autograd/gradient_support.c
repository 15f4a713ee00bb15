/* Leaves, differences, comparisons (gradient_support.h). */
#include "gradient_support.h"

#include "core/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void set(lvn_tensor *t, int64_t e, double value)
{
    if (lvn_tensor_dtype(t) == LVN_F64) {
        ((double *)lvn_data(t))[e] = (double)(float)value;
    } else {
        ((float *)lvn_data(t))[e] = (float)value;
    }
}

double element(const lvn_tensor *t, int64_t e)
{
    const void *data = lvn_const_data(t);
    return lvn_tensor_dtype(t) == LVN_F64 ? ((const double *)data)[e]
                                          : (double)((const float *)data)[e];
}

double largest(const lvn_tensor *t)
{
    double most = 0.0;
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        most = fmax(most, fabs(element(t, e)));
    }
    return most;
}

/* Element e of a random order of 0 .. n-1, without memory: how many of the others have a smaller
 * random number. */
static int64_t place(const lvni_core_rng *rng, int64_t e, int64_t n)
{
    const uint32_t mine = lvni_core_rng_u32(rng, (uint64_t)e);
    int64_t smaller = 0;
    for (int64_t k = 0; k < n; k++) {
        const uint32_t other = lvni_core_rng_u32(rng, (uint64_t)k);
        smaller += other < mine || (other == mine && k < e);
    }
    return smaller;
}

lvn_tensor *make_leaf(lvn_dtype dtype, uint64_t seed, const dims *shape, domain from)
{
    lvn_tensor *t = make_constant(dtype, seed, shape->ndim, shape->size);
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(seed, lvni_core_rng_purpose("order"))};
    const int64_t n = lvn_numel(t), middle = n / 2;
    for (int64_t e = 0; e < n && from != NORMAL; e++) {
        set(t, e,
            from == POSITIVE ? fabs(element(t, e)) + 0.5
                             : ((double)place(&rng, e, n) - (double)middle + 0.25) * 0.1);
    }
    return lvn_require_grad(t);
}

lvn_tensor *make_constant(lvn_dtype dtype, uint64_t seed, int ndim, const int64_t *shape)
{
    lvn_tensor *t = lvn_tensor_create(dtype, ndim, shape);
    assert_non_null(t);
    const lvni_core_rng rng = {.key =
                                   lvni_core_rng_make_key(seed, lvni_core_rng_purpose("values"))};
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        set(t, e, lvni_core_rng_normal(&rng, (uint64_t)e));
    }
    return t;
}

lvn_tensor *make_labels(int64_t n, int64_t n_classes)
{
    lvn_tensor *t = lvn_tensor_create(LVN_I64, 1, &n);
    assert_non_null(t);
    for (int64_t i = 0; i < n; i++) {
        ((int64_t *)lvn_data(t))[i] = i % n_classes;
    }
    return t;
}

void assert_near(const char *what, const lvn_tensor *a, const lvn_tensor *b, double tolerance,
                 double floor)
{
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(lvn_numel(a), lvn_numel(b));
    const double scale = fmax(largest(b), floor);
    for (int64_t e = 0; e < lvn_numel(a); e++) {
        if (!(fabs(element(a, e) - element(b, e)) <= tolerance * scale)) {
            fail_msg("%s, element %d: %.9g and %.9g differ by more than %g of %g", what, (int)e,
                     element(a, e), element(b, e), tolerance, scale);
        }
    }
}

/* sum(r y) with r from a fixed stream; NULL when the formula failed. */
static lvn_tensor *objective(formula f, lvn_tensor *const *in, lvn_tensor **r)
{
    lvn_tensor *y = f(in);
    if (y == NULL) {
        return NULL;
    }
    if (*r == NULL) {
        int64_t shape[LVN_MAX_NDIM];
        for (int i = 0; i < lvn_ndim(y); i++) {
            shape[i] = lvn_size(y, i);
        }
        *r = make_constant(LVN_F64, 77, lvn_ndim(y), shape);
    }
    return lvn_sum(lvn_mul(*r, y));
}

static double value_of(const char *name, formula f, lvn_tensor *const *in, lvn_tensor **r)
{
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const double value = lvn_item(objective(f, in, r));
    if (lvn_scope_close() != LVN_OK) {
        fail_msg("%s: %s", name, lvn_last_error()->message);
    }
    return value;
}

static void compare(const char *name, formula f, lvn_tensor *const *in, int k, lvn_tensor **r,
                    double tolerance)
{
    const double h = 1e-5;
    const lvn_tensor *g = lvn_gradient(in[k]);
    if (g == NULL) {
        fail_msg("%s: input %d has no gradient", name, k);
        return;
    }
    assert_int_equal(lvn_ndim(g), lvn_ndim(in[k]));
    for (int i = 0; i < lvn_ndim(g); i++) {
        assert_int_equal(lvn_size(g, i), lvn_size(in[k], i));
    }
    const double most = largest(g);
    assert_true(most > 0.0); /* a test that compares zeros shows nothing */
    double *x = lvn_data(in[k]);
    for (int64_t e = 0; e < lvn_numel(in[k]); e++) {
        const double kept = x[e];
        x[e] = kept + h;
        const double up = value_of(name, f, in, r);
        x[e] = kept - h;
        const double down = value_of(name, f, in, r);
        x[e] = kept;
        const double numeric = (up - down) / (2 * h);
        if (!(fabs(numeric - element(g, e)) <= tolerance * most)) {
            fail_msg("%s, input %d, element %d: differences give %.12g, lvn_backward %.12g", name,
                     k, (int)e, numeric, element(g, e));
        }
    }
}

void check_gradients(const char *name, formula f, lvn_tensor *const *in, int n, double tolerance)
{
    lvn_tensor *r = NULL;
    lvn_clear_error();
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *loss = objective(f, in, &r);
    if (loss == NULL || lvn_backward(loss) != LVN_OK) {
        fail_msg("%s: %s", name, lvn_last_error()->message);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_set_grad_enabled(false);
    for (int k = 0; k < n; k++) {
        compare(name, f, in, k, &r, tolerance);
    }
    lvn_set_grad_enabled(true);
    lvn_release(r);
}

/* ---- second order ---- */

/* sum(r y^2 + r y): y^2, so that the second derivative of a linear f is not zero. */
static lvn_tensor *curved_objective(formula f, lvn_tensor *const *in)
{
    lvn_tensor *y = f(in);
    if (y == NULL) {
        return NULL;
    }
    int64_t shape[LVN_MAX_NDIM];
    for (int i = 0; i < lvn_ndim(y); i++) {
        shape[i] = lvn_size(y, i);
    }
    lvn_tensor *r = make_constant(LVN_F64, 78, lvn_ndim(y), shape);
    lvn_tensor *z = lvn_sum(lvn_mul(r, lvn_add(lvn_mul(y, y), y)));
    lvn_release(r);
    return z;
}

/* s = sum_k(q_k dz/dx_k) */
static lvn_tensor *slope(formula f, lvn_tensor *const *in, int n, bool create_graph)
{
    lvn_tensor *grads[LVN_FUNCTION_INPUTS], *s = NULL;
    const lvn_grad_options o = {.struct_size = sizeof o, .create_graph = create_graph};
    if (lvn_grads_with(curved_objective(f, in), in, n, grads, &o) != LVN_OK) {
        return NULL;
    }
    for (int k = 0; k < n; k++) {
        int64_t shape[LVN_MAX_NDIM];
        for (int i = 0; i < lvn_ndim(in[k]); i++) {
            shape[i] = lvn_size(in[k], i);
        }
        lvn_tensor *q = make_constant(LVN_F64, 79u + (uint64_t)k, lvn_ndim(in[k]), shape);
        lvn_tensor *term = lvn_sum(lvn_mul(q, grads[k]));
        lvn_release(q);
        s = s == NULL ? term : lvn_add(s, term);
    }
    return s;
}

static double slope_value(const char *name, formula f, lvn_tensor *const *in, int n)
{
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const double value = lvn_item(slope(f, in, n, false));
    if (lvn_scope_close() != LVN_OK) {
        fail_msg("%s: %s", name, lvn_last_error()->message);
    }
    return value;
}

static void compare_second(const char *name, formula f, lvn_tensor *const *in, int n, int k,
                           double tolerance)
{
    const double h = 1e-5;
    const lvn_tensor *g = lvn_gradient(in[k]);
    if (g == NULL) {
        fail_msg("%s: input %d has no second gradient", name, k);
        return;
    }
    const double most = fmax(largest(g), 1e-3);
    double *x = lvn_data(in[k]);
    for (int64_t e = 0; e < lvn_numel(in[k]); e++) {
        const double kept = x[e];
        x[e] = kept + h;
        const double up = slope_value(name, f, in, n);
        x[e] = kept - h;
        const double down = slope_value(name, f, in, n);
        x[e] = kept;
        const double numeric = (up - down) / (2 * h);
        if (!(fabs(numeric - element(g, e)) <= tolerance * most)) {
            fail_msg("%s, input %d, element %d: differences of gradients give %.12g, lvn_backward "
                     "of lvn_grad %.12g",
                     name, k, (int)e, numeric, element(g, e));
        }
    }
}

void check_second_gradients(const char *name, formula f, lvn_tensor *const *in, int n,
                            double tolerance)
{
    for (int k = 0; k < n; k++) {
        lvn_zero_grad(in[k]);
    }
    lvn_clear_error();
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *s = slope(f, in, n, true);
    if (s == NULL || lvn_backward(s) != LVN_OK) {
        fail_msg("%s, create_graph: %s", name, lvn_last_error()->message);
    }
    const double by_ops = lvn_item(s), fused = slope_value(name, f, in, n);
    if (!(fabs(by_ops - fused) <= 1e-10 * fmax(fabs(fused), 1.0))) {
        fail_msg("%s: gradients by ops give %.15g, fused ones %.15g", name, by_ops, fused);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    for (int k = 0; k < n; k++) {
        compare_second(name, f, in, n, k, tolerance);
    }
}

void assert_error_has(const char *text)
{
    const lvn_error *e = lvn_last_error();
    char all[2600];
    int n = snprintf(all, sizeof all, "%s", e->message);
    for (int i = 0; i < e->n_frames; i++) {
        n += snprintf(all + n, sizeof all - (size_t)n, " | %s", e->frames[i]);
    }
    if (strstr(all, text) == NULL) {
        fail_msg("the error should speak of \"%s\": %s", text, all);
    }
}

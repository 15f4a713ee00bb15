#include "golden_support.h"

#include "core/alloc.h"
#include "core/rng.h"

#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), e = strlen(end);
    return n >= e && strcmp(name + n - e, end) == 0;
}

typedef struct rule {
    uint64_t seed;
    const char *last; /* norm of a residual block */
} rule;

/* u in [-1, 1) to the element of a tensor of this name and shape (PyTorch's). */
static double value(const rule *r, const char *name, int ndim, const int64_t *shape, int64_t n,
                    double u)
{
    if (ends_with(name, "running_var")) {
        return 1.0 + 0.3 * u;
    }
    if (ndim == 1 && ends_with(name, "weight")) {
        char last[64];
        snprintf(last, sizeof last, "%s.weight", r->last);
        return (1.0 + 0.2 * u) * (ends_with(name, last) ? 0.25 : 1.0);
    }
    if (ndim == 1) {
        return 0.1 * u;
    }
    const int64_t fan_in = n / shape[0];
    return shape[0] == 1 ? 0.2 * u : u * sqrt((ndim == 4 ? 6.0 : 3.0) / (double)fan_in);
}

static void fill(const rule *r, const char *name, int ndim, const int64_t *shape, int64_t n,
                 float *out)
{
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(r->seed, lvni_core_rng_purpose(name))};
    for (int64_t k = 0; k < n; k++) {
        out[k] = (float)value(r, name, ndim, shape, n,
                              (double)lvni_core_rng_uniform(&rng, (uint64_t)k) * 2.0 - 1.0);
    }
}

static void fill_parameter(const rule *r, const lvni_nn_parameter *p, float *values)
{
    float *file = lvni_core_alloc(LVNI_TAG_MODEL, (size_t)p->numel * sizeof *file);
    int64_t shape[LVN_MAX_NDIM];
    assert_non_null(file);
    const int ndim = lvni_nn_parameter_file_shape(p, shape);
    fill(r, p->name, ndim, shape, p->numel, file);
    lvni_nn_parameter_from_file(p, file, values);
    lvni_core_free(file);
}

void golden_fill(lvni_nn_model *m, uint64_t seed, const char *last)
{
    const rule r = {.seed = seed, .last = last};
    for (int i = 0; i < m->n_parameters; i++) {
        fill_parameter(&r, &m->parameters[i], LVNI_F32(m->parameters[i].tensor));
    }
    for (int i = 0; i < m->n_buffers; i++) {
        const lvn_buffer *b = m->buffers[i];
        if (b->file.tensor != NULL) { /* it was a parameter */
            fill_parameter(&r, &b->file, LVNI_F32(b->tensor));
        } else {
            fill(&r, b->name, b->tensor->ndim, b->tensor->shape, b->numel, LVNI_F32(b->tensor));
        }
    }
    lvni_nn_model_touch(m);
}

void golden_set(lvn_tensor *t, int64_t e, double x)
{
    if (t->dtype == LVN_F64) {
        ((double *)t->data)[e] = x;
    } else {
        LVNI_F32(t)[e] = (float)x;
    }
}

double golden_get(const lvn_tensor *t, int64_t e)
{
    return t->dtype == LVN_F64 ? ((const double *)t->data)[e] : (double)LVNI_CF32(t)[e];
}

lvn_tensor *golden_tensor(uint64_t seed, const char *name, int ndim, const int64_t *shape)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F32, ndim, shape);
    assert_non_null(t);
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(seed, lvni_core_rng_purpose(name))};
    for (int64_t k = 0; k < lvn_numel(t); k++) {
        LVNI_F32(t)
        [k] = (float)(((double)lvni_core_rng_uniform(&rng, (uint64_t)k) * 2.0 - 1.0) * 2.0);
    }
    return t;
}

lvn_tensor *golden_labels(int64_t n, int classes)
{
    lvn_tensor *t = lvn_tensor_create(LVN_I64, 1, &n);
    assert_non_null(t);
    for (int64_t k = 0; k < n; k++) {
        ((int64_t *)t->data)[k] = k % classes;
    }
    return t;
}

int golden_number(const lvni_ckpt_st_file *f, const char *key)
{
    const char *text = lvni_ckpt_st_meta_get(f, key);
    if (text == NULL) {
        fail_msg("the golden file has no %s", key);
        return 0;
    }
    return (int)strtol(text, NULL, 10);
}

const double *golden_values(const lvni_ckpt_st_file *f, const char *prefix, const char *name,
                            int64_t *n)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const lvni_ckpt_st_tensor *e = lvni_ckpt_st_find(f, full);
    if (e == NULL || e->dtype != LVN_F64) {
        fail_msg("the golden file has no %s", full);
        return NULL;
    }
    *n = (int64_t)(e->bytes / sizeof(double));
    return e->data;
}

void golden_compare(const double *want, int64_t n, const float *have, double tolerance,
                    const char *what, double *worst)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(want[i]));
    }
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)have[i] - want[i]) / most;
        *worst = fmax(*worst, d);
        if (!(d <= tolerance)) {
            fail_msg("%s, element %d: %.9g, PyTorch %.9g", what, (int)i, (double)have[i], want[i]);
        }
    }
}

void golden_compare_row_within(const double *want, const float *have, int64_t n, double tolerance,
                               const char *what, double least, double *worst)
{
    double row[GOLDEN_ROW] = {0}, squares = 0.0;
    for (int64_t k = 0; k < n; k++) {
        row[0] = fmax(row[0], fabs((double)have[k]));
        squares += (double)have[k] * (double)have[k];
    }
    row[1] = sqrt(squares);
    for (int j = 0; j < GOLDEN_PLACES; j++) {
        row[2 + j] = (double)have[golden_place(j, n)];
    }
    for (int j = 0; j < GOLDEN_ROW; j++) {
        const double d = fabs(row[j] - want[j]) / fmax(j == 1 ? want[1] : want[0], least);
        *worst = fmax(*worst, d);
        if (!(d <= tolerance)) {
            fail_msg("%s: number %d (largest, norm, samples) is %.9g, PyTorch has %.9g; the "
                     "largest is %.9g",
                     what, j, row[j], want[j], want[0]);
        }
    }
}

void golden_compare_row(const double *want, const float *have, int64_t n, const char *what,
                        double least, double *worst)
{
    golden_compare_row_within(want, have, n, GOLDEN_GRADIENTS, what, least, worst);
}

double golden_largest(const double *x, int64_t n)
{
    double most = 0.0;
    for (int64_t e = 0; e < n; e++) {
        most = fmax(most, fabs(x[e]));
    }
    return most;
}

const double *golden_compare_input(lvn_tensor *input, const double *want, int64_t zeros,
                                   double most, const char *what)
{
    const lvn_tensor *have = lvn_gradient(input);
    assert_non_null(have);
    const int64_t n = lvn_numel(have), counting = n - zeros;
    for (int64_t e = 0; e < n; e++) {
        const double x = golden_get(have, e), w = e < counting ? want[e] : 0.0;
        if (!(fabs(x - w) <= most)) {
            fail_msg("%s: element %d: %.15g, in the file %.15g", what, (int)e, x, w);
        }
    }
    return want + counting;
}

/* Of parameter i: ten numbers; NULL where the file has none. */
static const double *gradient_row(const lvni_ckpt_st_file *f, const char *prefix,
                                  const lvni_nn_parameter *p, char name[256])
{
    snprintf(name, 256, "%s%s", prefix, p->name);
    if (lvni_ckpt_st_find(f, name) == NULL) {
        return NULL;
    }
    int64_t n = 0;
    const double *row = golden_values(f, prefix, p->name, &n);
    assert_int_equal(n, GOLDEN_ROW);
    return row;
}

static const double ZERO = 1e-2; /* times GOLDEN_GRADIENTS of the largest gradient */

int golden_compare_gradients(const lvni_ckpt_st_file *f, const char *prefix, const lvni_nn_set *set,
                             double least, double *worst)
{
    const lvni_nn_model *m = set->model;
    double largest = 0.0;
    int compared = 0;
    char name[256];
    for (int i = 0; i < m->n_parameters; i++) {
        const double *want = gradient_row(f, prefix, &m->parameters[i], name);
        largest = want == NULL ? largest : fmax(largest, want[0]);
    }
    for (int i = 0; i < m->n_parameters; i++) {
        const lvni_nn_parameter *p = &m->parameters[i];
        const double *want = gradient_row(f, prefix, p, name);
        if (want == NULL) {
            continue;
        }
        float *g = lvni_core_alloc(LVNI_TAG_MODEL, (size_t)p->numel * sizeof *g);
        assert_non_null(g);
        lvni_nn_parameter_to_file(p, set->data + m->offset[i], g);
        /* a norm behind a bias takes it away: terms cancel to what rounding leaves of them */
        const bool zero = want[0] < 1e-12 * largest;
        golden_compare_row(want, g, p->numel, name, (zero ? ZERO : least) * largest, worst);
        lvni_core_free(g);
        compared++;
    }
    return compared;
}

int golden_compare_buffers(const lvni_ckpt_st_file *f, const char *prefix, const lvni_nn_model *m,
                           double tolerance)
{
    int compared = 0;
    for (int i = 0; i < m->n_buffers; i++) {
        const lvn_buffer *b = m->buffers[i];
        float have[GOLDEN_PLACES];
        char name[256];
        snprintf(name, sizeof name, "%s%s", prefix, b->name);
        if (lvni_ckpt_st_find(f, name) == NULL) {
            continue;
        }
        int64_t n = 0;
        double worst = 0.0;
        const double *want = golden_values(f, prefix, b->name, &n);
        assert_int_equal(n, GOLDEN_PLACES);
        for (int j = 0; j < GOLDEN_PLACES; j++) {
            have[j] = LVNI_F32(b->tensor)[golden_place(j, b->numel)];
        }
        golden_compare(want, n, have, tolerance, b->name, &worst);
        compared++;
    }
    return compared;
}

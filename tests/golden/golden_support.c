#include "golden_support.h"

#include "core/alloc.h"
#include "core/rng.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

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

void golden_fill(lvni_nn_model *m, uint64_t seed, const char *last)
{
    const rule r = {.seed = seed, .last = last};
    for (int i = 0; i < m->n_parameters; i++) {
        const lvni_nn_parameter *p = &m->parameters[i];
        float *file = lvni_core_alloc(LVNI_TAG_MODEL, (size_t)p->numel * sizeof *file);
        int64_t shape[LVN_MAX_NDIM];
        assert_non_null(file);
        const int ndim = lvni_nn_parameter_file_shape(p, shape);
        fill(&r, p->name, ndim, shape, p->numel, file);
        lvni_nn_parameter_from_file(p, file, LVNI_F32(p->tensor));
        lvni_core_free(file);
    }
    for (int i = 0; i < m->n_buffers; i++) {
        const lvn_buffer *b = m->buffers[i];
        fill(&r, b->name, b->tensor->ndim, b->tensor->shape, b->numel, LVNI_F32(b->tensor));
    }
    lvni_nn_model_touch(m);
}

lvn_tensor *golden_image(uint64_t seed, int n, int size, int channels)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F32, 4, (const int64_t[]){n, size, size, channels});
    assert_non_null(t);
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(seed, lvni_core_rng_purpose("image"))};
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

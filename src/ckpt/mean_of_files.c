/* The mean of the weights of several files (checkpoint.h). Called by `levin ckpt average`. */
#include "ckpt/checkpoint.h"
#include "core/alloc.h"
#include "core/math.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct job {
    const char *const *paths;
    lvni_ckpt_st_file **files;
    int n;
    double *values; /* room for n */
    lvni_ckpt_st_tensor *out;
    int64_t n_out;
} job;

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool is_checkpoint(const lvni_ckpt_st_file *f)
{
    return lvni_ckpt_st_meta_get(f, LVNI_CKPT_FORMAT) != NULL;
}

/* Of a checkpoint the weights and their running average, of another file all tensors. */
static bool is_weight(const lvni_ckpt_st_file *f, const lvni_ckpt_st_tensor *t)
{
    return !is_checkpoint(f) || starts_with(t->name, LVNI_CKPT_MODEL) ||
           starts_with(t->name, LVNI_CKPT_AVERAGE);
}

/* ---- do the files fit each other? ---- */

static lvn_status check_tensor(const job *j, int k, const lvni_ckpt_st_tensor *t)
{
    const lvni_ckpt_st_tensor *other = lvni_ckpt_st_find(j->files[k], t->name);
    char mine[96], theirs[96];
    if (other == NULL) {
        LVN_FAIL(LVN_ERR_MISMATCH,
                 "%s has no tensor %s, which %s has: only weights of one network have a mean",
                 j->paths[k], t->name, j->paths[0]);
    }
    lvni_tensor_shape_string(t->ndim, t->shape, mine);
    lvni_tensor_shape_string(other->ndim, other->shape, theirs);
    if (strcmp(mine, theirs) != 0 || t->dtype != other->dtype) {
        LVN_FAIL(LVN_ERR_MISMATCH,
                 "%s is %s %s in %s and %s %s in %s: only weights of one network have a mean",
                 t->name, lvn_dtype_name(t->dtype), mine, j->paths[0], lvn_dtype_name(other->dtype),
                 theirs, j->paths[k]);
    }
    return LVN_OK;
}

static lvn_status check_file(const job *j, int k)
{
    const lvni_ckpt_st_file *first = j->files[0], *f = j->files[k];
    const lvni_ckpt_st_other *unread = lvni_ckpt_st_other_at(f, 0);
    if (unread != NULL) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: tensor %s (%s) has no mean: levin does not read its elements; average files "
                 "without it, or convert it to f32 where they were made",
                 j->paths[k], unread->name, unread->what);
    }
    if (is_checkpoint(f) != is_checkpoint(first)) {
        LVN_FAIL(LVN_ERR_MISMATCH,
                 "%s is a %s and %s is not: their layouts differ; give files of one kind",
                 j->paths[is_checkpoint(f) ? k : 0], "checkpoint",
                 j->paths[is_checkpoint(f) ? 0 : k]);
    }
    for (int64_t i = 0; i < lvni_ckpt_st_count(first); i++) {
        const lvni_ckpt_st_tensor *t = lvni_ckpt_st_at(first, i);
        if (is_weight(first, t)) {
            LVN_TRY(check_tensor(j, k, t));
        }
    }
    for (int64_t i = 0; i < lvni_ckpt_st_count(f); i++) {
        const lvni_ckpt_st_tensor *t = lvni_ckpt_st_at(f, i);
        if (is_weight(f, t) && lvni_ckpt_st_find(first, t->name) == NULL) {
            LVN_FAIL(LVN_ERR_MISMATCH,
                     "%s has no tensor %s, which %s has: only weights of one network have a mean",
                     j->paths[0], t->name, j->paths[k]);
        }
    }
    return LVN_OK;
}

/* ---- the mean ---- */

/* The values in ascending order, so that the sum does not depend on the order of the files. */
static void sort(double *v, int n)
{
    for (int i = 1; i < n; i++) {
        const double x = v[i];
        int k = i;
        for (; k > 0 && v[k - 1] > x; k--) {
            v[k] = v[k - 1];
        }
        v[k] = x;
    }
}

static double mean(double *v, int n)
{
    sort(v, n);
    double sum = v[0];
    for (int i = 1; i < n; i++) {
        sum += v[i];
    }
    return isnan(sum) ? (double)NAN : sum / n;
}

static void store(lvn_dtype dtype, void *data, int64_t i, double x)
{
    switch ((int)dtype) {
    case LVN_F32: ((float *)data)[i] = (float)x; break;
    case LVN_F64: ((double *)data)[i] = x; break;
    case LVN_BF16: ((uint16_t *)data)[i] = lvni_core_f32_to_bf16((float)x); break;
    case LVN_F16: ((uint16_t *)data)[i] = lvni_core_f32_to_f16((float)x); break;
    case LVN_I64: ((int64_t *)data)[i] = llrint(x); break;
    case LVN_I32: ((int32_t *)data)[i] = (int32_t)llrint(x); break;
    default: ((uint8_t *)data)[i] = (uint8_t)llrint(x); break;
    }
}

static lvn_status average_tensor(job *j, const lvni_ckpt_st_tensor *t)
{
    const lvni_ckpt_st_tensor **all = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)j->n, sizeof *all);
    void *data = lvni_core_alloc(LVNI_TAG_CKPT, t->bytes);
    if (all == NULL || data == NULL) {
        lvni_core_free(all);
        lvni_core_free(data);
        return LVN_ERR_MEMORY;
    }
    for (int k = 0; k < j->n; k++) {
        all[k] = lvni_ckpt_st_find(j->files[k], t->name);
    }
    const int64_t n = (int64_t)(t->bytes / lvn_dtype_size(t->dtype));
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < j->n; k++) {
            j->values[k] = lvni_ckpt_st_value(all[k], (size_t)i);
        }
        store(t->dtype, data, i, mean(j->values, j->n));
    }
    lvni_core_free(all);
    lvni_ckpt_st_tensor *o = &j->out[j->n_out++];
    *o = *t;
    o->data = data;
    return LVN_OK;
}

static lvn_status average_tensors(job *j)
{
    const lvni_ckpt_st_file *first = j->files[0];
    j->values = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)j->n, sizeof *j->values);
    j->out = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)lvni_ckpt_st_count(first) + 1, sizeof *j->out);
    if (j->values == NULL || j->out == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < lvni_ckpt_st_count(first); i++) {
        const lvni_ckpt_st_tensor *t = lvni_ckpt_st_at(first, i);
        if (is_weight(first, t)) {
            LVN_TRY(average_tensor(j, t));
        }
    }
    return LVN_OK;
}

/* ---- files ---- */

/* What describes the network stays; checksums and the states of scaler and schedule do not. */
static bool is_kept(const char *key)
{
    static const char *const others[] = {LVNI_ST_CHECKSUMS, LVNI_ST_HEADER_CHECKSUM,
                                         LVNI_CKPT_SCALER, LVNI_CKPT_SCHEDULE, LVNI_CKPT_AVERAGED};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(key, others[i]) == 0) {
            return false;
        }
    }
    return true;
}

static lvn_status write(const job *j, const char *path)
{
    const lvni_ckpt_st_meta *m;
    int64_t n = 0;
    while (lvni_ckpt_st_meta_at(j->files[0], n) != NULL) {
        n++;
    }
    lvni_ckpt_st_meta *meta = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)n + 1, sizeof *meta);
    if (meta == NULL) {
        return LVN_ERR_MEMORY;
    }
    char count[16];
    snprintf(count, sizeof count, "%d", j->n);
    meta[0] = (lvni_ckpt_st_meta){.key = LVNI_CKPT_AVERAGED, .value = count};
    n = 1;
    for (int64_t i = 0; (m = lvni_ckpt_st_meta_at(j->files[0], i)) != NULL; i++) {
        if (is_kept(m->key)) {
            meta[n++] = *m;
        }
    }
    const lvn_status s = lvni_ckpt_st_save(path, j->out, j->n_out, meta, n);
    lvni_core_free(meta);
    return s;
}

static lvn_status run(job *j, const char *path)
{
    j->files = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)j->n, sizeof(lvni_ckpt_st_file *));
    if (j->files == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int k = 0; k < j->n; k++) {
        LVN_TRY(lvni_ckpt_st_open(j->paths[k], LVNI_ST_VERIFY, &j->files[k]));
        LVN_TRY(check_file(j, k));
    }
    LVN_TRY(average_tensors(j));
    return write(j, path);
}

lvn_status lvni_ckpt_average(const char *const *paths, int n, const char *out, int64_t *n_tensors)
{
    LVN_ARG(n > 0 && out != NULL, "an average needs at least one file and a place");
    job j = {.paths = paths, .n = n};
    const lvn_status s = run(&j, out);
    *n_tensors = j.n_out;
    for (int k = 0; j.files != NULL && k < n; k++) {
        lvni_ckpt_st_close(j.files[k]);
    }
    for (int64_t i = 0; i < j.n_out; i++) {
        lvni_core_free((void *)(uintptr_t)j.out[i].data);
    }
    lvni_core_free(j.files);
    lvni_core_free(j.values);
    lvni_core_free(j.out);
    return s;
}

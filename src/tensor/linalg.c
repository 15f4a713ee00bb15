/* Eigenvalues and singular values (levin/linalg.h). Of LAPACKE only two functions are called; they
 * are declared here, and the library is loaded at the first call: with it come BLAS and Fortran's
 * library, which no other command should wait for. */
#include "core/alloc.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

#include <levin/linalg.h>

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

/* Values of LAPACK_COL_MAJOR; a matrix in row-major order is its transpose in this one. */
enum { COLUMNS = 102 };

static struct {
    int (*dsyev)(int layout, char vectors, char triangle, int n, double *a, int lda,
                 double *values);
    int (*dgesdd)(int layout, char vectors, int m, int n, double *a, int lda, double *s, double *u,
                  int ldu, double *vt, int ldvt);
    /* of OpenBLAS, whose results would depend on the number of threads; NULL in other libraries */
    int (*get_threads)(void);
    void (*set_threads)(int n);
} api;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* the number of threads is the process's */
static char missing[256];      /* why there is none */

static void *find(void *library, const char *name, void *to)
{
    void *at = dlsym(library, name);
    memcpy(to, &at, sizeof at);
    return at;
}

static void load(void)
{
    void *library = dlopen("liblapacke.so.3", RTLD_NOW | RTLD_LOCAL); /* never closed */
    if (library == NULL || find(library, "LAPACKE_dsyev", &api.dsyev) == NULL ||
        find(library, "LAPACKE_dgesdd", &api.dgesdd) == NULL) {
        const char *why = dlerror();
        strncpy(missing, why != NULL ? why : "liblapacke.so.3 cannot be loaded",
                sizeof missing - 1);
    } else if (find(library, "openblas_get_num_threads", &api.get_threads) != NULL) {
        find(library, "openblas_set_num_threads", &api.set_threads);
    }
}

/* A matrix and its factors, in the order in which they lie in memory. */
typedef struct factors {
    int m, n, k;                 /* rows, columns, the smaller of both */
    double *a, *values, *u, *vt; /* u NULL: a is symmetric and becomes vt */
} factors;

static int call(const factors *f)
{
    if (f->u == NULL) {
        return api.dsyev(COLUMNS, 'V', 'U', f->n, f->vt, f->n, f->values);
    }
    /* a is the transpose of what LAPACK sees, and its left factor ours on the right */
    return api.dgesdd(COLUMNS, 'S', f->n, f->m, f->a, f->n, f->values, f->vt, f->n, f->u, f->k);
}

static lvn_status run(const char *name, const factors *f)
{
    pthread_once(&once, load);
    if (missing[0] != '\0') {
        LVN_FAIL(LVN_ERR_NOT_FOUND, "%s: the library of LAPACK (liblapacke): %s", name, missing);
    }
    pthread_mutex_lock(&lock);
    const int threads = api.set_threads != NULL ? api.get_threads() : 1;
    if (threads != 1) {
        api.set_threads(1);
    }
    const unsigned before = lvni_tensor_fp_enter(LVNI_FP_EXACT);
    const int info = call(f);
    lvni_tensor_fp_leave(before);
    if (threads != 1) {
        api.set_threads(threads);
    }
    pthread_mutex_unlock(&lock);
    if (info != 0) {
        LVN_FAIL(info < -1000 ? LVN_ERR_MEMORY : LVN_ERR_INTERNAL,
                 "%s: LAPACK ends with %d for a matrix of %d x %d", name, info, f->m, f->n);
    }
    return LVN_OK;
}

/* ---- what is given ---- */

static lvn_status check(const char *name, const lvn_tensor *a)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_ARG(a != NULL, "%s was given NULL", name);
    LVN_ARG(!ctx->at.training && ctx->gradients == NULL && ctx->records == NULL,
            "%s in a training step: it has no gradient and runs on the host; call it before "
            "training, such as in the open() of a recipe",
            name);
    LVN_ARG(!a->requires_grad && a->node == NULL,
            "%s: the matrix requires a gradient, which this function does not have; give it "
            "lvn_detach() of the matrix",
            name);
    const struct lvni_tensor_device *device = lvni_tensor_device_of(a->data);
    LVN_ARG(device == NULL,
            "%s: the matrix lies on %s, it must lie in host memory; lvn_to_device copies it", name,
            lvni_tensor_device_name(device));
    if (a->dtype != LVN_F32 && a->dtype != LVN_F64) {
        LVN_FAIL(LVN_ERR_DTYPE, "%s: the matrix is %s, it must be f32 or f64", name,
                 lvn_dtype_name(a->dtype));
    }
    if (a->ndim != 2 || a->shape[0] > LVN_LINALG_MAX || a->shape[1] > LVN_LINALG_MAX) {
        char shape[96];
        LVN_FAIL(LVN_ERR_SHAPE, "%s: the matrix is %s, it must have 2 axes of up to %d", name,
                 lvni_tensor_shape_string(a->ndim, a->shape, shape), LVN_LINALG_MAX);
    }
    for (int64_t e = 0; e < lvn_numel(a); e++) {
        const double x =
            a->dtype == LVN_F64 ? ((const double *)a->data)[e] : (double)LVNI_CF32(a)[e];
        LVN_ARG(isfinite(x), "%s: element (%lld, %lld) of the matrix is %g, it must be finite",
                name, (long long)(e / a->shape[1]), (long long)(e % a->shape[1]), x);
    }
    return LVN_OK;
}

static void copy(const lvn_tensor *a, double *to)
{
    for (int64_t e = 0; e < lvn_numel(a); e++) {
        to[e] = a->dtype == LVN_F64 ? ((const double *)a->data)[e] : (double)LVNI_CF32(a)[e];
    }
}

/* Both triangles become their mean. */
static lvn_status make_symmetric(double *a, int n)
{
    double largest = 0.0;
    for (int e = 0; e < n * n; e++) {
        largest = fmax(largest, fabs(a[e]));
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++) {
            double *x = &a[i * n + j], *y = &a[j * n + i];
            LVN_ARG(fabs(*x - *y) <= 1e-5 * largest,
                    "eigh: element (%d, %d) of the matrix is %g, but (%d, %d) is %g; it must be "
                    "symmetric",
                    i, j, *x, j, i, *y);
            *x = *y = 0.5 * *x + 0.5 * *y;
        }
    }
    return LVN_OK;
}

/* ---- what is returned ---- */

/* Row by row of vt, with the column of u (NULL: none). */
static void choose_signs(const factors *f)
{
    for (int i = 0; i < f->k; i++) {
        double *row = f->vt + (ptrdiff_t)i * f->n, largest = 0.0;
        for (int j = 0; j < f->n; j++) {
            largest = fmax(largest, fabs(row[j]));
        }
        int first = 0;
        while (first < f->n - 1 && fabs(row[first]) < (1.0 - 1e-6) * largest) {
            first++;
        }
        const double sign = row[first] < 0.0 ? -1.0 : 1.0;
        for (int j = 0; j < f->n; j++) {
            row[j] *= sign;
        }
        for (int j = 0; f->u != NULL && j < f->m; j++) {
            f->u[(ptrdiff_t)j * f->k + i] *= sign;
        }
    }
}

/* LAPACK's smallest eigenvalue comes first. */
static void reverse(double *values, double *vectors, int n)
{
    for (int i = 0, j = n - 1; i < j; i++, j--) {
        const double value = values[i];
        values[i] = values[j];
        values[j] = value;
        for (int e = 0; e < n; e++) {
            const double x = vectors[i * n + e];
            vectors[i * n + e] = vectors[j * n + e];
            vectors[j * n + e] = x;
        }
    }
}

/* Hand out the results that are wanted, or on failure none. */
static lvn_status hand_out(lvn_status s, lvn_tensor *const made[3], lvn_tensor **const out[3])
{
    for (int i = 0; i < 3; i++) {
        if (s == LVN_OK && out[i] != NULL) {
            *out[i] = made[i];
        } else {
            lvn_release(made[i]);
        }
    }
    return s;
}

static lvn_status eigh(const lvn_tensor *a, lvn_tensor *const made[3])
{
    const int n = (int)a->shape[0];
    const factors f = {n, n, n, NULL, made[0]->data, NULL, made[1]->data};
    copy(a, f.vt);
    LVN_TRY(make_symmetric(f.vt, n));
    LVN_TRY(n > 0 ? run("eigh", &f) : LVN_OK);
    reverse(f.values, f.vt, n);
    choose_signs(&f);
    return LVN_OK;
}

lvn_status lvn_eigh(const lvn_tensor *a, lvn_tensor **values, lvn_tensor **vectors)
{
    lvn_tensor **const out[3] = {values, vectors, NULL};
    for (int i = 0; i < 2; i++) {
        if (out[i] != NULL) {
            *out[i] = NULL;
        }
    }
    LVN_TRY(check("eigh", a));
    if (a->shape[0] != a->shape[1]) {
        LVN_FAIL(LVN_ERR_SHAPE, "eigh: the matrix is (%lld, %lld), it must be square",
                 (long long)a->shape[0], (long long)a->shape[1]);
    }
    lvn_tensor *made[3] = {lvn_tensor_create(LVN_F64, 1, a->shape),
                           lvn_tensor_create(LVN_F64, 2, a->shape), NULL};
    const bool there = made[0] != NULL && made[1] != NULL;
    return hand_out(there ? eigh(a, made) : LVN_ERR_MEMORY, made, out);
}

static lvn_status svd(const lvn_tensor *a, int k, lvn_tensor *const made[3])
{
    factors f = {(int)a->shape[0], (int)a->shape[1], k, NULL, made[1]->data,
                 made[0]->data,    made[2]->data};
    if (k == 0) {
        return LVN_OK;
    }
    f.a = lvni_core_alloc(LVNI_TAG_TENSOR, (size_t)f.m * (size_t)f.n * sizeof *f.a);
    if (f.a == NULL) {
        return LVN_ERR_MEMORY;
    }
    copy(a, f.a);
    const lvn_status s = run("svd", &f);
    lvni_core_free(f.a);
    if (s == LVN_OK) {
        choose_signs(&f);
    }
    return s;
}

lvn_status lvn_svd(const lvn_tensor *a, lvn_tensor **u, lvn_tensor **s, lvn_tensor **vt)
{
    lvn_tensor **const out[3] = {u, s, vt};
    for (int i = 0; i < 3; i++) {
        if (out[i] != NULL) {
            *out[i] = NULL;
        }
    }
    LVN_TRY(check("svd", a));
    const int64_t m = a->shape[0], n = a->shape[1], k = m < n ? m : n;
    lvn_tensor *made[3] = {lvn_tensor_create(LVN_F64, LVN_SHAPE(m, k)),
                           lvn_tensor_create(LVN_F64, LVN_SHAPE(k)),
                           lvn_tensor_create(LVN_F64, LVN_SHAPE(k, n))};
    const bool there = made[0] != NULL && made[1] != NULL && made[2] != NULL;
    return hand_out(there ? svd(a, (int)k, made) : LVN_ERR_MEMORY, made, out);
}

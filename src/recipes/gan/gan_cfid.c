/* CFID of embedded images (gan_cfid.h). Matrices are row-major, in double precision. */
#include "recipes/gan/gan_cfid.h"

#include "core/alloc.h"
#include "core/error.h"

#include <levin/linalg.h>

#include <math.h>
#include <string.h>

/* ---- small dense algebra ---- */

/* c (m, n) = a (m, k) b (k, n) */
static void multiply(int m, int k, int n, const double *a, const double *b, double *c)
{
    memset(c, 0, (size_t)m * (size_t)n * sizeof *c);
    for (int i = 0; i < m; i++) {
        for (int l = 0; l < k; l++) {
            const double x = a[(int64_t)i * k + l];
            for (int j = 0; j < n; j++) {
                c[(int64_t)i * n + j] += x * b[(int64_t)l * n + j];
            }
        }
    }
}

/* trace of a (m, k) b (m, k)^T */
static double product_trace(int m, int k, const double *a, const double *b)
{
    double sum = 0.0;
    for (int64_t e = 0; e < (int64_t)m * k; e++) {
        sum += a[e] * b[e];
    }
    return sum;
}

static double trace(int n, const double *a)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++) {
        sum += a[(int64_t)i * n + i];
    }
    return sum;
}

/* out (n, n) = f(a), a function of the eigenvalues of a symmetric a: their root, or their inverse
 * where it is finite. out may be a. */
static lvn_status of_eigenvalues(int n, bool invert, const double *a, double *out)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F64, LVN_SHAPE(n, n)), *values = NULL, *vectors = NULL;
    if (t == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(lvn_data(t), a, (size_t)n * (size_t)n * sizeof *a);
    const lvn_status s = lvn_eigh(t, &values, &vectors);
    lvn_release(t);
    if (s != LVN_OK) {
        return s;
    }
    const double *w = lvn_const_data(values), *v = lvn_const_data(vectors);
    const double least = n * 0x1p-52 * fmax(w[0], 0.0);
    memset(out, 0, (size_t)n * (size_t)n * sizeof *out);
    for (int l = 0; l < n; l++) {
        const double f = invert ? (w[l] > least ? 1.0 / w[l] : 0.0) : sqrt(fmax(w[l], 0.0));
        for (int i = 0; i < n; i++) {
            const double x = f * v[(int64_t)l * n + i];
            for (int j = 0; j < n; j++) {
                out[(int64_t)i * n + j] += x * v[(int64_t)l * n + j];
            }
        }
    }
    lvn_release(values);
    lvn_release(vectors);
    return LVN_OK;
}

/* The sum of the singular values of a (n, n). */
static lvn_status nuclear_norm(int n, const double *a, double *sum)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F64, LVN_SHAPE(n, n)), *values = NULL;
    if (t == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(lvn_data(t), a, (size_t)n * (size_t)n * sizeof *a);
    *sum = 0.0;
    lvn_status s;
    LVNI_TRY_DONE(s, lvn_svd(t, NULL, &values, NULL));
    for (int i = 0; i < n; i++) {
        *sum += ((const double *)lvn_const_data(values))[i];
    }
done:
    lvn_release(t);
    lvn_release(values);
    return s;
}

/* ---- statistics of the embeddings ---- */

typedef struct work {
    int d, k;
    double *x, *s, *y; /* (n, d), (n, d), (n, k), centred */
    double *mean_x, *mean_s, *mean_y;
    double *xx, *ss, *yy, *xy, *sy; /* covariances; xx and ss become conditional */
    double *wide, *square;          /* (d, k), (d, d): intermediate results */
} work;

static void centre(int64_t n, int d, const double *in, double *out, double *mean)
{
    for (int j = 0; j < d; j++) {
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++) {
            sum += in[i * d + j];
        }
        mean[j] = sum / (double)n;
        for (int64_t i = 0; i < n; i++) {
            out[i * d + j] = in[i * d + j] - mean[j];
        }
    }
}

/* a (n, p), b (n, q), both centred -> out (p, q) with divisor n */
static void covariance(int64_t n, int p, int q, const double *a, const double *b, double *out)
{
    memset(out, 0, (size_t)p * (size_t)q * sizeof *out);
    for (int64_t i = 0; i < n; i++) {
        for (int j = 0; j < p; j++) {
            const double x = a[i * p + j] / (double)n;
            for (int l = 0; l < q; l++) {
                out[(int64_t)j * q + l] += x * b[i * q + l];
            }
        }
    }
}

/* xx -= xy yy^+ xy^T, with `inverse` = yy^+ */
static void condition(const work *w, double *xx, const double *xy, const double *inverse)
{
    multiply(w->d, w->k, w->k, xy, inverse, w->wide);
    for (int i = 0; i < w->d; i++) {
        for (int j = 0; j < w->d; j++) {
            xx[(int64_t)i * w->d + j] -=
                product_trace(1, w->k, w->wide + (int64_t)i * w->k, xy + (int64_t)j * w->k);
        }
    }
    for (int i = 0; i < w->d; i++) { /* symmetric again after rounding */
        for (int j = 0; j < i; j++) {
            double *a = &xx[(int64_t)i * w->d + j], *b = &xx[(int64_t)j * w->d + i];
            *a = *b = 0.5 * *a + 0.5 * *b;
        }
    }
}

/* Tr[(C_xy - C_sy) C_yy^+ (C_yx - C_ys)]; overwrites sy. */
static double cross_term(const work *w)
{
    for (int64_t e = 0; e < (int64_t)w->d * w->k; e++) {
        w->sy[e] = w->xy[e] - w->sy[e];
    }
    multiply(w->d, w->k, w->k, w->sy, w->yy, w->wide);
    return product_trace(w->d, w->k, w->wide, w->sy);
}

static lvn_status compute(const work *w, lvni_gan_cfid *out)
{
    double roots = 0.0;
    LVN_TRY(of_eigenvalues(w->k, true, w->yy, w->yy));
    condition(w, w->xx, w->xy, w->yy);
    condition(w, w->ss, w->sy, w->yy);
    const double traces = trace(w->d, w->xx) + trace(w->d, w->ss), cross = cross_term(w);
    LVN_TRY(of_eigenvalues(w->d, false, w->xx, w->xx));
    LVN_TRY(of_eigenvalues(w->d, false, w->ss, w->ss));
    multiply(w->d, w->d, w->d, w->ss, w->xx, w->square);
    LVN_TRY(nuclear_norm(w->d, w->square, &roots));
    out->mean = 0.0;
    for (int j = 0; j < w->d; j++) {
        const double difference = w->mean_x[j] - w->mean_s[j];
        out->mean += difference * difference;
    }
    out->covariance = cross + traces - 2.0 * roots;
    out->cfid = out->mean + out->covariance;
    return LVN_OK;
}

lvn_status lvni_gan_cfid_of(int64_t n, int d, int k, const double *x, const double *s,
                            const double *y, lvni_gan_cfid *out)
{
    *out = (lvni_gan_cfid){NAN, NAN, NAN};
    LVN_ARG(n > 0 && n < INT32_MAX && d > 0 && d <= LVN_LINALG_MAX && k > 0 && k <= LVN_LINALG_MAX,
            "CFID cannot be computed for n = %lld, d = %d, k = %d", (long long)n, d, k);
    work w = {.d = d, .k = k};
    const size_t rows = (size_t)n, p = (size_t)d, q = (size_t)k;
    const struct part {
        double **at;
        size_t count;
    } parts[] = {{&w.x, rows * p},  {&w.s, rows * p}, {&w.y, rows * q}, {&w.mean_x, p},
                 {&w.mean_s, p},    {&w.mean_y, q},   {&w.xx, p * p},   {&w.ss, p * p},
                 {&w.yy, q * q},    {&w.xy, p * q},   {&w.sy, p * q},   {&w.wide, p * q},
                 {&w.square, p * p}};
    size_t count = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        count += parts[i].count;
    }
    double *memory = lvni_core_alloc(LVNI_TAG_DATA, count * sizeof *memory);
    if (memory == NULL) {
        return LVN_ERR_MEMORY;
    }
    double *next = memory;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].at = next;
        next += parts[i].count;
    }
    centre(n, d, x, w.x, w.mean_x);
    centre(n, d, s, w.s, w.mean_s);
    centre(n, k, y, w.y, w.mean_y);
    covariance(n, d, d, w.x, w.x, w.xx);
    covariance(n, d, d, w.s, w.s, w.ss);
    covariance(n, k, k, w.y, w.y, w.yy);
    covariance(n, d, k, w.x, w.y, w.xy);
    covariance(n, d, k, w.s, w.y, w.sy);
    const lvn_status status = compute(&w, out);
    lvni_core_free(memory);
    return status;
}

/* Principal components of keypoints (pose_pca.h). With missing labels the mean of a coordinate is
 * over the rows that have it, and the covariance of two over the rows that have both (divided by
 * their number less one). Such a matrix can have negative eigenvalues: they count as 0. */
#include "recipes/pose/pose_pca.h"

#include "core/alloc.h"

#include <levin/linalg.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MULTIVIEW_KEEPS = 3, NAMED = 3 /* keypoints in a message */ };

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Between neighbours of n sorted numbers linearly. */
static double quantile(const double *sorted, int64_t n, double q)
{
    const double at = q * (double)(n - 1), low = floor(at);
    const int64_t i = (int64_t)low;
    return i + 1 < n ? sorted[i] + (at - low) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

/* ---- rows ---- */

static double centre_of(const lvni_pose_pca *p, const double *x)
{
    double present[LVNI_POSE_PCA_MOST], sum = 0.0;
    int n = 0;
    for (int j = 0; j < p->points; j++) {
        if (!isnan(x[2 * j])) {
            present[n++] = x[2 * j];
            sum += x[2 * j];
        }
    }
    if (n == 0 || p->centring == LVNI_POSE_CENTRING_MEAN) {
        return n > 0 ? sum / n : 0.0;
    }
    qsort(present, (size_t)n, sizeof *present, ascending);
    return quantile(present, n, 0.5);
}

/* Points that are not there are NaN in both coordinates, before and after. */
static void centre(const lvni_pose_pca *p, double *x)
{
    for (int c = 0; c < 2 && p->centring != LVNI_POSE_CENTRING_NONE; c++) {
        const double at = centre_of(p, x + c);
        for (int j = 0; j < p->points; j++) {
            x[2 * j + c] -= at;
        }
    }
}

/* x (2 points) -> error (points): (x - mean) less its part in the kept directions. */
static void measure_row(const lvni_pose_pca *p, const double *x, double *error)
{
    const int dim = 2 * p->points;
    double rest[2 * LVNI_POSE_PCA_MOST], along[2 * LVNI_POSE_PCA_MOST];
    for (int d = 0; d < dim; d++) {
        rest[d] = x[d] - p->mean[d];
    }
    for (int i = 0; i < p->kept; i++) {
        along[i] = 0.0;
        for (int d = 0; d < dim; d++) {
            along[i] += p->vector[i * dim + d] * rest[d];
        }
    }
    for (int d = 0; d < dim; d++) {
        for (int i = 0; i < p->kept; i++) {
            rest[d] -= along[i] * p->vector[i * dim + d];
        }
    }
    for (int j = 0; j < p->points; j++) {
        error[j] = sqrt(rest[2 * j] * rest[2 * j] + rest[2 * j + 1] * rest[2 * j + 1]);
    }
}

void lvni_pose_pca_error(const lvni_pose_pca *pca, const float *value, int64_t n, double *error)
{
    double x[2 * LVNI_POSE_PCA_MOST], of_row[LVNI_POSE_PCA_MOST];
    for (int64_t i = 0; i < n * pca->k; i++) {
        error[i] = (double)NAN;
    }
    for (int64_t row = 0; row < n * pca->parts; row++) {
        const int64_t frame = row / pca->parts * pca->k;
        const int *column = pca->column + row % pca->parts;
        for (int j = 0; j < pca->points; j++) {
            const float *point = value + 3 * (frame + column[j * pca->parts]);
            x[2 * j] = (double)point[0];
            x[2 * j + 1] = (double)point[1];
        }
        centre(pca, x);
        measure_row(pca, x, of_row);
        for (int j = 0; j < pca->points; j++) {
            error[frame + column[j * pca->parts]] = of_row[j];
        }
    }
}

/* ---- the fit ---- */

typedef struct fit {
    const lvni_pose_pca_options *o;
    const double *xy; /* (n, k, 2) */
    int64_t n, rows;
    double *a; /* (2 points, rows) */
    lvni_pose_pca *p;
} fit;

static const char *name_of(const fit *f)
{
    return f->o->views > 0 ? "pca_multiview" : "pca_singleview";
}

static const char *columns_key(const fit *f)
{
    return f->o->views > 0 ? "data.mirrored_column_matches" : "data.columns_for_singleview_pca";
}

static bool is_missing(const fit *f, int64_t frame, int keypoint)
{
    const double *point = f->xy + 2 * (frame * f->p->k + keypoint);
    return isnan(point[0]) || isnan(point[1]);
}

static lvn_status check_options(const fit *f)
{
    const lvni_pose_pca_options *o = f->o;
    const int n = o->column != NULL ? o->n_columns : f->p->k, views = o->views > 0 ? o->views : 1;
    const int points = o->views > 0 ? views : n;
    if (n <= 0 || n % views != 0 || points > LVNI_POSE_PCA_MOST) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s has %d keypoints in %d views: as many in each view, 1 or more, and at most %d "
                 "that belong together",
                 columns_key(f), n, views, LVNI_POSE_PCA_MOST);
    }
    for (int i = 0; o->column != NULL && i < n; i++) {
        if (o->column[i] < 0 || o->column[i] >= f->p->k) {
            LVN_FAIL(LVN_ERR_USAGE, "%s has keypoint %d: keypoints are 0 to %d", columns_key(f),
                     o->column[i], f->p->k - 1);
        }
    }
    if (o->views == 0 && o->components > 2 * points) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "losses.pca_singleview.components_to_keep=%d: %d keypoints have %d components; "
                 "give fewer, or a share of the variance such as 0.99",
                 o->components, points, 2 * points);
    }
    if (o->components < 0 || (o->components == 0 && !(o->variance >= 0.0 && o->variance <= 1.0))) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "losses.%s.components_to_keep=%g: an integer of 1 or more is a number of "
                 "components, a number from 0.0 to 1.0 the share of the variance that they explain",
                 name_of(f), o->components < 0 ? (double)o->components : o->variance);
    }
    return LVN_OK;
}

static lvn_status make_columns(const fit *f)
{
    const lvni_pose_pca_options *o = f->o;
    lvni_pose_pca *p = f->p;
    const int n = o->column != NULL ? o->n_columns : p->k;
    p->points = o->views > 0 ? o->views : n;
    p->parts = n / p->points;
    p->centring = o->views > 0 ? LVNI_POSE_CENTRING_NONE : o->centring;
    p->column = lvni_core_alloc(LVNI_TAG_DATA, (size_t)n * sizeof *p->column);
    if (p->column == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < n; i++) {
        p->column[i] = o->column != NULL ? o->column[i] : i;
    }
    return LVN_OK;
}

/* The keypoints that most often have no label, which keep the fit from what it needs. */
static void print_missing(const fit *f, lvni_core_str *out)
{
    const int n = f->p->points * f->p->parts;
    int64_t bound = f->n + 1; /* named are those above it, and the first ones that equal it */
    int after = -1;
    for (int named = 0; named < NAMED; named++) {
        int64_t most = 0;
        int which = -1;
        for (int i = 0; i < n; i++) {
            int64_t missing = 0;
            for (int64_t frame = 0; frame < f->n; frame++) {
                missing += is_missing(f, frame, f->p->column[i]);
            }
            if (missing > most && (missing < bound || (missing == bound && i > after))) {
                most = missing;
                which = i;
            }
        }
        if (which < 0) {
            return;
        }
        lvni_core_str_printf(out, "%s%s (%lld of %lld)",
                             named == 0 ? "; most often without a label: " : ", ",
                             f->o->keypoint[f->p->column[which]], (long long)most, (long long)f->n);
        bound = most;
        after = which;
    }
}

static lvn_status check_rows(const fit *f)
{
    if (f->rows >= 2 * f->p->points) {
        return LVN_OK;
    }
    lvni_core_str missing = {0};
    print_missing(f, &missing);
    (void)lvn_error_set(
        LVN_ERR_INVALID, __FILE__, __LINE__,
        "cannot fit %s: %lld rows of labels are fewer than the %d coordinates of a row; label "
        "more frames, or give fewer keypoints in %s%s",
        name_of(f), (long long)f->rows, 2 * f->p->points, columns_key(f),
        lvni_core_str_text(&missing));
    lvni_core_str_free(&missing);
    return LVN_ERR_INVALID;
}

static void gather(const fit *f)
{
    const lvni_pose_pca *p = f->p;
    const int points = p->points;
    double x[2 * LVNI_POSE_PCA_MOST];
    for (int64_t row = 0; row < f->rows; row++) {
        const int64_t frame = row / p->parts;
        for (int j = 0; j < points; j++) {
            const int keypoint = p->column[j * p->parts + row % p->parts];
            const double *point = f->xy + 2 * (frame * p->k + keypoint);
            const bool missing = is_missing(f, frame, keypoint);
            x[2 * j] = missing ? (double)NAN : point[0];
            x[2 * j + 1] = missing ? (double)NAN : point[1];
        }
        centre(p, x);
        for (int j = 0; j < points; j++) {
            f->a[2 * j * f->rows + row] = x[2 * j];
            f->a[(2 * j + 1) * f->rows + row] = x[2 * j + 1];
        }
    }
}

static lvn_status take_mean(const fit *f)
{
    for (int d = 0; d < 2 * f->p->points; d++) {
        int64_t present = 0;
        double sum = 0.0;
        for (int64_t row = 0; row < f->rows; row++) {
            const double x = f->a[d * f->rows + row];
            present += !isnan(x);
            sum += isnan(x) ? 0.0 : x;
        }
        if (present == 0) {
            LVN_FAIL(LVN_ERR_INVALID,
                     "cannot fit %s: in the %lld training frames %s%s has no label; take it out of "
                     "%s, or label it",
                     name_of(f), (long long)f->n, f->o->keypoint[f->p->column[d / 2 * f->p->parts]],
                     f->p->parts > 1 ? ", as every other keypoint of its view," : "",
                     columns_key(f));
        }
        f->p->mean[d] = sum / (double)present;
    }
    return LVN_OK;
}

static double covariance_of(const fit *f, int i, int j)
{
    const double *x = f->a + i * f->rows, *y = f->a + j * f->rows;
    int64_t both = 0;
    double sum = 0.0;
    for (int64_t row = 0; row < f->rows; row++) {
        if (!isnan(x[row]) && !isnan(y[row])) {
            both++;
            sum += (x[row] - f->p->mean[i]) * (y[row] - f->p->mean[j]);
        }
    }
    return both > 1 ? sum / (double)(both - 1) : sum;
}

/* The number of components: enough for the share of the variance, or as many as were asked for. */
static int choose(const fit *f)
{
    const int dim = 2 * f->p->points;
    if (f->o->views > 0) {
        return dim < MULTIVIEW_KEEPS ? dim : MULTIVIEW_KEEPS;
    }
    if (f->o->components > 0 || f->o->variance == 1.0) {
        return f->o->components > 0 ? f->o->components : dim;
    }
    double sum = 0.0;
    for (int i = 0; i < dim; i++) {
        sum += f->p->explained[i];
        if (sum >= f->o->variance) {
            return i + 1;
        }
    }
    return dim;
}

static lvn_status take_components(const fit *f, const double *value, const double *vector)
{
    lvni_pose_pca *p = f->p;
    const int dim = 2 * p->points;
    double total = 0.0;
    for (int i = 0; i < dim; i++) {
        total += fmax(value[i], 0.0);
    }
    for (int i = 0; i < dim; i++) {
        p->explained[i] = total > 0.0 ? fmax(value[i], 0.0) / total : 0.0;
    }
    p->kept = choose(f);
    const size_t bytes = (size_t)p->kept * (size_t)dim * sizeof *p->vector;
    p->vector = lvni_core_alloc(LVNI_TAG_DATA, bytes);
    if (p->vector == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(p->vector, vector, bytes);
    return LVN_OK;
}

static lvn_status decompose(const fit *f)
{
    const int dim = 2 * f->p->points;
    lvn_tensor *c = lvn_tensor_create(LVN_F64, LVN_SHAPE(dim, dim)), *values = NULL,
               *vectors = NULL;
    if (c == NULL) {
        return LVN_ERR_MEMORY;
    }
    double *to = lvn_data(c);
    for (int i = 0; i < dim; i++) {
        for (int j = 0; j <= i; j++) {
            to[i * dim + j] = to[j * dim + i] = covariance_of(f, i, j);
        }
    }
    lvn_status s = lvn_eigh(c, &values, &vectors);
    if (s == LVN_OK) {
        s = take_components(f, lvn_const_data(values), lvn_const_data(vectors));
    }
    lvn_release(c);
    lvn_release(values);
    lvn_release(vectors);
    return s;
}

/* Of the rows with all their points: one with a gap has no projection. */
static lvn_status take_epsilon(const fit *f)
{
    lvni_pose_pca *p = f->p;
    double x[2 * LVNI_POSE_PCA_MOST];
    p->epsilon = f->o->epsilon;
    if (!isnan(p->epsilon)) {
        return LVN_OK;
    }
    double *error =
        lvni_core_alloc(LVNI_TAG_DATA, (size_t)f->rows * (size_t)p->points * sizeof *error);
    if (error == NULL) {
        return LVN_ERR_MEMORY;
    }
    int64_t n = 0;
    for (int64_t row = 0; row < f->rows; row++) {
        for (int d = 0; d < 2 * p->points; d++) {
            x[d] = f->a[d * f->rows + row];
        }
        measure_row(p, x, error + n);
        n += isnan(error[n]) ? 0 : p->points;
    }
    if (n > 0) {
        qsort(error, (size_t)n, sizeof *error, ascending);
        p->epsilon = quantile(error, n, f->o->percentile / 100.0) * f->o->multiplier;
    }
    lvni_core_free(error);
    return LVN_OK;
}

static lvn_status run(fit *f)
{
    LVN_TRY(make_columns(f));
    f->rows = f->n * f->p->parts;
    LVN_TRY(check_rows(f));
    const size_t dim = 2 * (size_t)f->p->points;
    f->a = lvni_core_alloc(LVNI_TAG_DATA, dim * (size_t)f->rows * sizeof *f->a);
    f->p->mean = lvni_core_alloc(LVNI_TAG_DATA, dim * sizeof *f->p->mean);
    f->p->explained = lvni_core_alloc(LVNI_TAG_DATA, dim * sizeof *f->p->explained);
    if (f->a == NULL || f->p->mean == NULL || f->p->explained == NULL) {
        return LVN_ERR_MEMORY;
    }
    gather(f);
    LVN_TRY(take_mean(f));
    LVN_TRY(decompose(f));
    return take_epsilon(f);
}

lvn_status lvni_pose_pca_fit(const lvni_pose_pca_options *o, const double *xy, int64_t n, int k,
                             lvni_pose_pca *out)
{
    *out = (lvni_pose_pca){.k = k};
    fit f = {.o = o, .xy = xy, .n = n, .p = out};
    LVN_TRY(check_options(&f));
    const lvn_status s = run(&f);
    lvni_core_free(f.a);
    if (s != LVN_OK) {
        lvni_pose_pca_free(out);
    }
    return s;
}

void lvni_pose_pca_free(lvni_pose_pca *pca)
{
    lvni_core_free(pca->column);
    lvni_core_free(pca->mean);
    lvni_core_free(pca->vector);
    lvni_core_free(pca->explained);
    *pca = (lvni_pose_pca){0};
}

/* Volumes of k-space in a folder: which there are, images of a slice, fewer combined coils. */
#include "core/alloc.h"
#include "core/math.h"
#include "core/str.h"
#include "data/array.h"
#include "mri.h"

#include <string.h>

enum { MAX_COILS = 64 };

/* ---- the folder ---- */

static lvn_status check_header(const lvni_data_inverse_options *o, const lvni_data_array *a,
                               const char *path)
{
    char text[192];
    const int coils = o->in_chans / 2, n = o->im_size;
    if (a->ndim != 4 || a->type < LVNI_ARRAY_C64 || a->shape[0] < 1) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s holds %s of %s; a volume of k-space is complex64 of (slices, coils, rows, "
                 "columns)",
                 path, lvni_data_array_shape_text(a, text), lvni_data_array_type_name(a->type));
    }
    if (a->shape[1] < coils || a->shape[1] > MAX_COILS) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s has %lld coil%s: in_chans=%d needs %d to %d; remove the file or change "
                 "in_chans",
                 path, (long long)a->shape[1], lvni_core_plural(a->shape[1], "", "s"), o->in_chans,
                 coils, MAX_COILS);
    }
    if (a->shape[2] < n || a->shape[3] < n) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: slices of %lld x %lld are smaller than im_size=%d; remove the file or choose "
                 "a smaller im_size",
                 path, (long long)a->shape[2], (long long)a->shape[3], n);
    }
    return LVN_OK;
}

/* The transform of this size, made when there is none. */
static lvn_status transform_for(lvni_inverse_volumes *all, lvni_inverse_volume *v)
{
    for (int64_t i = 0; i < all->n; i++) {
        if (all->volume[i].rows == v->rows && all->volume[i].cols == v->cols) {
            v->fourier = all->volume[i].fourier;
            return LVN_OK;
        }
    }
    lvni_data_fourier **grown = lvni_core_realloc(LVNI_TAG_DATA, (void *)all->fourier,
                                                  (size_t)(all->n_fouriers + 1) * sizeof *grown);
    if (grown == NULL) {
        return LVN_ERR_MEMORY;
    }
    all->fourier = grown;
    LVN_TRY(lvni_data_fourier_create(v->rows, v->cols, &grown[all->n_fouriers]));
    v->fourier = grown[all->n_fouriers++];
    return LVN_OK;
}

static lvn_status look_at(const lvni_data_inverse_options *o, const char *folder, const char *name,
                          lvni_inverse_volumes *all, lvni_inverse_volume *v)
{
    lvni_data_array a;
    size_t at;
    v->path = lvni_inverse_path(folder, name);
    v->maps = o->maps_path != NULL ? lvni_inverse_path(o->maps_path, name) : NULL;
    if (v->path == NULL || (o->maps_path != NULL && v->maps == NULL)) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(lvni_data_npy_peek(v->path, &a, &at));
    LVN_TRY(check_header(o, &a, v->path));
    const int most = o->split == LVNI_INVERSE_TEST ? 6 : 8;
    v->slices = a.shape[0] < most ? (int)a.shape[0] : most;
    v->coils = (int)a.shape[1];
    v->rows = (int)a.shape[2];
    v->cols = (int)a.shape[3];
    if (v->maps == NULL) {
        return transform_for(all, v);
    }
    LVN_TRY(lvni_data_npy_peek(v->maps, &a, &at));
    if (a.ndim != 4 || a.shape[0] < v->slices || a.shape[1] != o->in_chans / 2 ||
        a.shape[2] != o->im_size || a.shape[3] != o->im_size) {
        char text[192];
        LVN_FAIL(LVN_ERR_USAGE, "%s holds %s; maps are complex64 of (%d, %d, %d, %d)", v->maps,
                 lvni_data_array_shape_text(&a, text), v->slices, o->in_chans / 2, o->im_size,
                 o->im_size);
    }
    return transform_for(all, v);
}

static lvn_status look_at_all(const lvni_data_inverse_options *o, const char *folder,
                              lvni_inverse_volumes *out)
{
    char **names;
    int64_t n;
    LVN_TRY(lvni_inverse_list(folder, &names, &n));
    out->volume = lvni_core_calloc(LVNI_TAG_DATA, (size_t)n, sizeof *out->volume);
    lvn_status s = out->volume != NULL ? LVN_OK : LVN_ERR_MEMORY;
    for (int64_t i = 0; i < n && s == LVN_OK; i++) {
        s = look_at(o, folder, names[i], out, &out->volume[i]);
        out->n++; /* the failed one, too: it is freed with the others */
    }
    lvni_inverse_free_names(names, n);
    return s;
}

lvn_status lvni_inverse_volumes_open(const lvni_data_inverse_options *o, lvni_inverse_volumes *out)
{
    static const char *const folders[] = {"multicoil_train", "multicoil_val", "small_T2_test"};
    *out = (lvni_inverse_volumes){0};
    char *folder = lvni_inverse_path(o->path, folders[o->split]);
    const lvn_status s = folder != NULL ? look_at_all(o, folder, out) : LVN_ERR_MEMORY;
    lvni_core_free(folder);
    if (s != LVN_OK) {
        lvni_inverse_volumes_free(out);
    }
    return s;
}

void lvni_inverse_volumes_free(lvni_inverse_volumes *v)
{
    for (int64_t i = 0; i < v->n; i++) {
        lvni_core_free(v->volume[i].path);
        lvni_core_free(v->volume[i].maps);
    }
    for (int i = 0; i < v->n_fouriers; i++) {
        lvni_data_fourier_destroy(v->fourier[i]);
    }
    lvni_core_free(v->volume);
    lvni_core_free((void *)v->fourier);
    *v = (lvni_inverse_volumes){0};
}

const lvni_inverse_volume *lvni_inverse_volumes_at(const lvni_inverse_volumes *v, int64_t sample,
                                                   int *slice)
{
    const lvni_inverse_volume *at = v->volume;
    for (; sample >= at->slices; at++) {
        sample -= at->slices;
    }
    *slice = (int)sample;
    return at;
}

lvn_status lvni_inverse_volumes_names(const lvni_inverse_volumes *v, char ***names, int64_t *n)
{
    int64_t count = 0, at = 0;
    for (int64_t i = 0; i < v->n; i++) {
        count += v->volume[i].slices;
    }
    *names = lvni_core_calloc(LVNI_TAG_DATA, (size_t)count, sizeof **names);
    *n = count;
    if (*names == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < v->n; i++) {
        const char *slash = strrchr(v->volume[i].path, '/');
        for (int slice = 0; slice < v->volume[i].slices; slice++) {
            lvni_core_str text = {0};
            lvni_core_str_printf(&text, "%s slice %d", slash + 1, slice);
            (*names)[at] = lvni_core_str_take(&text);
            if ((*names)[at++] == NULL) {
                lvni_inverse_free_names(*names, count);
                *names = NULL;
                return LVN_ERR_MEMORY;
            }
        }
    }
    return LVN_OK;
}

/* ---- fewer coils ---- */

/* Hermitian (n, n), whose eigenvectors become the columns of v: Jacobi's rotations. */
typedef struct hermitian {
    int n;
    lvni_data_complex a[MAX_COILS][MAX_COILS], v[MAX_COILS][MAX_COILS];
} hermitian;

static lvni_data_complex conjugate(lvni_data_complex a)
{
    return (lvni_data_complex){a.re, -a.im};
}

/* Columns p and q of m: p' = c p - conj(s) q, q' = s p + c q. */
static void rotate_columns(lvni_data_complex (*m)[MAX_COILS], int n, int p, int q, double c,
                           lvni_data_complex s)
{
    for (int i = 0; i < n; i++) {
        const lvni_data_complex x = m[i][p], y = m[i][q];
        const lvni_data_complex sx = lvni_data_complex_mul(s, x),
                                sy = lvni_data_complex_mul(conjugate(s), y);
        m[i][p] = (lvni_data_complex){c * x.re - sy.re, c * x.im - sy.im};
        m[i][q] = (lvni_data_complex){sx.re + c * y.re, sx.im + c * y.im};
    }
}

static void rotate_rows(hermitian *h, int p, int q, double c, lvni_data_complex s)
{
    for (int i = 0; i < h->n; i++) {
        const lvni_data_complex x = h->a[p][i], y = h->a[q][i];
        const lvni_data_complex sx = lvni_data_complex_mul(conjugate(s), x),
                                sy = lvni_data_complex_mul(s, y);
        h->a[p][i] = (lvni_data_complex){c * x.re - sy.re, c * x.im - sy.im};
        h->a[q][i] = (lvni_data_complex){sx.re + c * y.re, sx.im + c * y.im};
    }
}

/* The rotation that makes a[p][q] 0. */
static void annihilate(hermitian *h, int p, int q)
{
    const lvni_data_complex e = h->a[p][q];
    const double size = lvni_core_sqrt(e.re * e.re + e.im * e.im);
    if (!(size > 0.0)) {
        return;
    }
    const double theta = (h->a[q][q].re - h->a[p][p].re) / (2.0 * size);
    const double root = lvni_core_sqrt(theta * theta + 1.0);
    const double t = theta >= 0.0 ? 1.0 / (theta + root) : 1.0 / (theta - root);
    const double c = 1.0 / lvni_core_sqrt(t * t + 1.0), s = t * c;
    const lvni_data_complex turn = {s * e.re / size, s * e.im / size};
    rotate_columns(h->a, h->n, p, q, c, turn);
    rotate_rows(h, p, q, c, turn);
    rotate_columns(h->v, h->n, p, q, c, turn);
}

static void diagonalise(hermitian *h)
{
    enum { SWEEPS = 30 };
    for (int i = 0; i < h->n; i++) {
        for (int j = 0; j < h->n; j++) {
            h->v[i][j] = (lvni_data_complex){i == j ? 1.0 : 0.0, 0.0};
        }
    }
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        double off = 0.0, all = 0.0;
        for (int i = 0; i < h->n; i++) {
            for (int j = 0; j < h->n; j++) {
                const double square = h->a[i][j].re * h->a[i][j].re + h->a[i][j].im * h->a[i][j].im;
                all += square;
                off += i == j ? 0.0 : square;
            }
        }
        if (off <= all * 1e-30) {
            return;
        }
        for (int p = 0; p < h->n; p++) {
            for (int q = p + 1; q < h->n; q++) {
                annihilate(h, p, q);
            }
        }
    }
}

/* The column of the largest eigenvalue not taken yet, its largest part made real and positive. */
static int take_largest(hermitian *h, bool taken[MAX_COILS])
{
    int best = -1;
    for (int i = 0; i < h->n; i++) {
        if (!taken[i] && (best < 0 || h->a[i][i].re > h->a[best][best].re)) {
            best = i;
        }
    }
    taken[best] = true;
    double most = 0.0;
    lvni_data_complex turn = {1.0, 0.0};
    for (int i = 0; i < h->n; i++) {
        const lvni_data_complex v = h->v[i][best];
        const double size = lvni_core_sqrt(v.re * v.re + v.im * v.im);
        if (size > most) {
            most = size;
            turn = (lvni_data_complex){v.re / size, -v.im / size};
        }
    }
    for (int i = 0; i < h->n; i++) {
        h->v[i][best] = lvni_data_complex_mul(h->v[i][best], turn);
    }
    return best;
}

/* x: (from, plane); the right singular vectors of (plane, from) are the eigenvectors of this. */
static void covariance(hermitian *h, const lvni_data_complex *x, size_t plane)
{
    for (int i = 0; i < h->n; i++) {
        for (int j = i; j < h->n; j++) {
            const lvni_data_complex *a = x + (size_t)i * plane, *b = x + (size_t)j * plane;
            lvni_data_complex sum = {0.0, 0.0};
            for (size_t k = 0; k < plane; k++) {
                const lvni_data_complex p = lvni_data_complex_mul(conjugate(a[k]), b[k]);
                sum.re += p.re;
                sum.im += p.im;
            }
            h->a[i][j] = sum;
            h->a[j][i] = conjugate(sum);
        }
    }
}

/* The images of `from` coils become `to` combinations, those with the most signal first. */
static lvn_status compress(const lvni_data_complex *x, int from, int to, size_t plane,
                           lvni_data_complex *out)
{
    hermitian *h = LVNI_NEW(LVNI_TAG_DATA, hermitian);
    if (h == NULL) {
        return LVN_ERR_MEMORY;
    }
    h->n = from;
    covariance(h, x, plane);
    diagonalise(h);
    bool taken[MAX_COILS] = {false};
    memset(out, 0, (size_t)to * plane * sizeof *out);
    for (int t = 0; t < to; t++, out += plane) {
        const int column = take_largest(h, taken);
        for (int c = 0; c < from; c++) {
            const lvni_data_complex *in = x + (size_t)c * plane, w = h->v[c][column];
            for (size_t k = 0; k < plane; k++) {
                const lvni_data_complex p = lvni_data_complex_mul(in[k], w);
                out[k].re += p.re;
                out[k].im += p.im;
            }
        }
    }
    lvni_core_free(h);
    return LVN_OK;
}

/* ---- a slice ---- */

/* The middle n x n pixels of coil c. */
static lvn_status read_coil(const lvni_inverse_volume *v, int slice, int c, int n,
                            lvni_data_complex *raw, lvni_data_complex *out)
{
    const int64_t size = (int64_t)v->rows * v->cols;
    LVN_TRY(
        lvni_data_npy_read_part(v->path, ((int64_t)slice * v->coils + c) * size, size, &raw->re));
    lvni_data_fourier_centred(v->fourier, true, raw, raw + size);
    const int top = (v->rows - n) / 2, left = (v->cols - n) / 2;
    for (int r = 0; r < n; r++) {
        memcpy(out + (size_t)r * (size_t)n,
               raw + (size_t)(top + r) * (size_t)v->cols + (size_t)left, (size_t)n * sizeof *out);
    }
    return LVN_OK;
}

lvn_status lvni_inverse_volume_read(const lvni_inverse_volume *v, int slice, int coils, int n,
                                    lvni_data_complex *out)
{
    const size_t plane = (size_t)n * (size_t)n, size = (size_t)v->rows * (size_t)v->cols;
    const size_t all = v->coils > coils ? (size_t)v->coils * plane : 0;
    lvni_data_complex *raw = lvni_core_alloc(
        LVNI_TAG_DATA, (size + lvni_data_fourier_scratch(v->fourier) + all) * sizeof *raw);
    if (raw == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_data_complex *images = all > 0 ? raw + size + lvni_data_fourier_scratch(v->fourier) : out;
    lvn_status s = LVN_OK;
    for (int c = 0; c < v->coils && s == LVN_OK; c++) {
        s = read_coil(v, slice, c, n, raw, images + (size_t)c * plane);
    }
    if (s == LVN_OK && all > 0) {
        s = compress(images, v->coils, coils, plane, out);
    }
    lvni_core_free(raw);
    return s;
}

lvn_status lvni_inverse_volume_maps(const lvni_inverse_volume *v, int slice, int coils, int n,
                                    lvni_data_complex *out)
{
    const int64_t count = (int64_t)coils * n * n;
    return lvni_data_npy_read_part(v->maps, (int64_t)slice * count, count, &out->re);
}

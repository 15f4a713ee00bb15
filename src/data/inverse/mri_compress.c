/* Fewer coils: the combinations of their images that keep the most signal, by the singular value
 * decomposition of (pixels, coils), whose right vectors are eigenvectors of a small matrix. */
#include "core/alloc.h"
#include "core/math.h"
#include "mri.h"

#include <string.h>

/* Hermitian (n, n), whose eigenvectors become the columns of v: Jacobi's rotations. */
typedef struct hermitian {
    int n;
    lvni_data_complex a[LVNI_INVERSE_MAX_VOLUME_COILS][LVNI_INVERSE_MAX_VOLUME_COILS],
        v[LVNI_INVERSE_MAX_VOLUME_COILS][LVNI_INVERSE_MAX_VOLUME_COILS];
} hermitian;

static lvni_data_complex conjugate(lvni_data_complex a)
{
    return (lvni_data_complex){a.re, -a.im};
}

/* Columns p and q of m: p' = c p - conj(s) q, q' = s p + c q. */
static void rotate_columns(lvni_data_complex (*m)[LVNI_INVERSE_MAX_VOLUME_COILS], int n, int p,
                           int q, double c, lvni_data_complex s)
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
static int take_largest(hermitian *h, bool taken[LVNI_INVERSE_MAX_VOLUME_COILS])
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

lvn_status lvni_inverse_mri_compress(const lvni_data_complex *x, int from, int to, size_t plane,
                                     lvni_data_complex *out)
{
    hermitian *h = LVNI_NEW(LVNI_TAG_DATA, hermitian);
    if (h == NULL) {
        return LVN_ERR_MEMORY;
    }
    h->n = from;
    covariance(h, x, plane);
    diagonalise(h);
    bool taken[LVNI_INVERSE_MAX_VOLUME_COILS] = {false};
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

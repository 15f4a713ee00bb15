/* Fourier transforms (fourier.h): Stockham's self-sorting algorithm, one stage per prime factor
 * (and per 4), over LANES columns at a time, which the compiler turns into vector instructions. */
#include "data/fourier.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/math.h"

#include <string.h>

enum { MAX_SIZE = 16384, MAX_STAGES = 16, LANES = 8 };

/* Of one axis. */
typedef struct axis {
    int n, n_stages, radix[MAX_STAGES];
    lvni_data_complex *turn; /* n: exp(-2 pi i k / n) */
} axis;

struct lvni_data_fourier {
    axis rows, cols; /* along a column: rows.n elements */
};

static lvn_status axis_init(axis *a, int n)
{
    a->n = n;
    for (int rest = n, r = 4; rest > 1;) {
        if (rest % r == 0) {
            a->radix[a->n_stages++] = r;
            rest /= r;
        } else {
            r = r == 4 ? 2 : r == 2 ? 3 : r * r > rest ? rest : r + 2;
        }
    }
    a->turn = lvni_core_alloc(LVNI_TAG_DATA, (size_t)n * sizeof *a->turn);
    if (a->turn == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int k = 0; k < n; k++) {
        const double part = (double)k / n;
        a->turn[k] = (lvni_data_complex){lvni_core_cos2pi(part), -lvni_core_cos2pi(part - 0.25)};
    }
    return LVN_OK;
}

lvn_status lvni_data_fourier_create(int rows, int cols, lvni_data_fourier **out)
{
    *out = NULL;
    LVN_ARG(rows >= 1 && cols >= 1 && rows <= MAX_SIZE && cols <= MAX_SIZE,
            "a Fourier transform of %d x %d: each size must be 1 to %d", rows, cols, MAX_SIZE);
    lvni_data_fourier *f = LVNI_NEW(LVNI_TAG_DATA, lvni_data_fourier);
    if (f == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status s;
    LVNI_TRY_DONE(s, axis_init(&f->rows, rows));
    LVNI_TRY_DONE(s, axis_init(&f->cols, cols));
    *out = f;
    return LVN_OK;
done:
    lvni_data_fourier_destroy(f);
    return s;
}

void lvni_data_fourier_destroy(lvni_data_fourier *f)
{
    if (f != NULL) {
        lvni_core_free(f->rows.turn);
        lvni_core_free(f->cols.turn);
        lvni_core_free(f);
    }
}

static int longest(const lvni_data_fourier *f)
{
    return f->rows.n > f->cols.n ? f->rows.n : f->cols.n;
}

size_t lvni_data_fourier_scratch(const lvni_data_fourier *f)
{
    return (size_t)f->rows.n * (size_t)f->cols.n + (size_t)2 * LANES * (size_t)longest(f);
}

/* ---- one stage: of x (radix, m, s) to y (m, radix, s), s the lanes times the radices before ----
 */

typedef struct stage {
    const axis *a;
    int radix, m, s, step; /* step: the product of the radices before */
} stage;

static lvni_data_complex add(lvni_data_complex a, lvni_data_complex b)
{
    return (lvni_data_complex){a.re + b.re, a.im + b.im};
}

static lvni_data_complex sub(lvni_data_complex a, lvni_data_complex b)
{
    return (lvni_data_complex){a.re - b.re, a.im - b.im};
}

/* a times -i */
static lvni_data_complex quarter(lvni_data_complex a)
{
    return (lvni_data_complex){a.im, -a.re};
}

static lvni_data_complex turn_of(const stage *t, int j, int p)
{
    return t->a->turn[(size_t)j * (size_t)p * (size_t)t->step];
}

static void stage_2(const stage *t, const lvni_data_complex *restrict x,
                    lvni_data_complex *restrict y)
{
    const int s = t->s;
    const size_t half = (size_t)t->m * (size_t)s;
    for (int p = 0; p < t->m; p++) {
        const lvni_data_complex w = turn_of(t, 1, p), *in = x + (size_t)p * (size_t)s;
        lvni_data_complex *out = y + (size_t)2 * (size_t)p * (size_t)s;
        for (int q = 0; q < s; q++) {
            const lvni_data_complex a = in[q], b = in[half + (size_t)q];
            out[q] = add(a, b);
            out[s + q] = lvni_data_complex_mul(sub(a, b), w);
        }
    }
}

static void stage_3(const stage *t, const lvni_data_complex *restrict x,
                    lvni_data_complex *restrict y)
{
    static const double sin60 = 0.86602540378443864676;
    const size_t s = (size_t)t->s, third = (size_t)t->m * s;
    for (int p = 0; p < t->m; p++) {
        const lvni_data_complex w1 = turn_of(t, 1, p), w2 = turn_of(t, 2, p);
        const lvni_data_complex *in = x + (size_t)p * s;
        lvni_data_complex *out = y + 3 * (size_t)p * s;
        for (size_t q = 0; q < s; q++) {
            const lvni_data_complex a = in[q], b = in[third + q], c = in[2 * third + q];
            const lvni_data_complex sum = add(b, c), d = quarter(sub(b, c));
            const lvni_data_complex mid = {a.re - 0.5 * sum.re, a.im - 0.5 * sum.im};
            const lvni_data_complex side = {sin60 * d.re, sin60 * d.im};
            out[q] = add(a, sum);
            out[s + q] = lvni_data_complex_mul(add(mid, side), w1);
            out[2 * s + q] = lvni_data_complex_mul(sub(mid, side), w2);
        }
    }
}

static void stage_4(const stage *t, const lvni_data_complex *restrict x,
                    lvni_data_complex *restrict y)
{
    const size_t s = (size_t)t->s, part = (size_t)t->m * s;
    for (int p = 0; p < t->m; p++) {
        const lvni_data_complex w1 = turn_of(t, 1, p), w2 = turn_of(t, 2, p), w3 = turn_of(t, 3, p);
        const lvni_data_complex *in = x + (size_t)p * s;
        lvni_data_complex *out = y + 4 * (size_t)p * s;
        for (size_t q = 0; q < s; q++) {
            const lvni_data_complex a = in[q], b = in[part + q], c = in[2 * part + q],
                                    d = in[3 * part + q];
            const lvni_data_complex even = add(a, c), odd = add(b, d);
            const lvni_data_complex even2 = sub(a, c), odd2 = quarter(sub(b, d));
            out[q] = add(even, odd);
            out[s + q] = lvni_data_complex_mul(add(even2, odd2), w1);
            out[2 * s + q] = lvni_data_complex_mul(sub(even, odd), w2);
            out[3 * s + q] = lvni_data_complex_mul(sub(even2, odd2), w3);
        }
    }
}

/* Any radix, by its definition. */
static void stage_any(const stage *t, const lvni_data_complex *restrict x,
                      lvni_data_complex *restrict y)
{
    const int r = t->radix, n = t->a->n;
    const size_t s = (size_t)t->s, part = (size_t)t->m * s;
    for (int p = 0; p < t->m; p++) {
        for (int j = 0; j < r; j++) {
            const lvni_data_complex w = turn_of(t, j, p), *in = x + (size_t)p * s;
            lvni_data_complex *out = y + ((size_t)r * (size_t)p + (size_t)j) * s;
            memcpy(out, in, s * sizeof *out);
            for (int k = 1; k < r; k++) {
                const int64_t whole = (int64_t)j * k % r;
                const lvni_data_complex v = t->a->turn[whole * (n / r)];
                const lvni_data_complex *from = in + (size_t)k * part;
                for (size_t q = 0; q < s; q++) {
                    out[q] = add(out[q], lvni_data_complex_mul(from[q], v));
                }
            }
            for (size_t q = 0; q < s; q++) {
                out[q] = lvni_data_complex_mul(out[q], w);
            }
        }
    }
}

/* Of `lanes` columns that lie beside each other, (n, lanes); the result is in the buffer that is
 * returned. */
static lvni_data_complex *transform(const axis *a, int lanes, lvni_data_complex *x,
                                    lvni_data_complex *y)
{
    stage t = {.a = a, .m = a->n, .s = lanes, .step = 1};
    for (int i = 0; i < a->n_stages; i++) {
        t.radix = a->radix[i];
        t.m /= t.radix;
        switch (t.radix) {
        case 2: stage_2(&t, x, y); break;
        case 3: stage_3(&t, x, y); break;
        case 4: stage_4(&t, x, y); break;
        default: stage_any(&t, x, y);
        }
        t.s *= t.radix;
        t.step *= t.radix;
        lvni_data_complex *const swap = x;
        x = y;
        y = swap;
    }
    return x;
}

/* All columns of in (n, cols) to the rows of out (cols, n). */
static void transform_columns(const axis *a, int cols, const lvni_data_complex *in,
                              lvni_data_complex *out, lvni_data_complex *buffers)
{
    const int n = a->n;
    for (int first = 0; first < cols; first += LANES) {
        const int lanes = cols - first < LANES ? cols - first : LANES;
        for (int k = 0; k < n; k++) {
            memcpy(buffers + (size_t)k * (size_t)lanes, in + (size_t)k * (size_t)cols + first,
                   (size_t)lanes * sizeof *in);
        }
        const lvni_data_complex *done =
            transform(a, lanes, buffers, buffers + (size_t)n * (size_t)lanes);
        for (int l = 0; l < lanes; l++) {
            for (int k = 0; k < n; k++) {
                out[(size_t)(first + l) * (size_t)n + (size_t)k] =
                    done[(size_t)k * (size_t)lanes + (size_t)l];
            }
        }
    }
}

void lvni_data_fourier_forward(const lvni_data_fourier *f, lvni_data_complex *x,
                               lvni_data_complex *scratch)
{
    lvni_data_complex *const turned = scratch + (size_t)2 * LANES * (size_t)longest(f);
    transform_columns(&f->rows, f->cols.n, x, turned, scratch);
    transform_columns(&f->cols, f->rows.n, turned, x, scratch);
}

/* With real and imaginary parts exchanged before and after, the forward transform is the inverse.
 */
static void exchange(lvni_data_complex *x, size_t n, double scale)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = (lvni_data_complex){x[i].im * scale, x[i].re * scale};
    }
}

void lvni_data_fourier_inverse(const lvni_data_fourier *f, lvni_data_complex *x,
                               lvni_data_complex *scratch)
{
    const size_t n = (size_t)f->rows.n * (size_t)f->cols.n;
    exchange(x, n, 1.0);
    lvni_data_fourier_forward(f, x, scratch);
    exchange(x, n, 1.0 / (double)n);
}

/* x[r][c] to out[(r + dr) mod rows][(c + dc) mod cols], times scale. */
static void roll(const lvni_data_fourier *f, int dr, int dc, double scale,
                 const lvni_data_complex *x, lvni_data_complex *out)
{
    const int rows = f->rows.n, cols = f->cols.n;
    for (int r = 0; r < rows; r++) {
        lvni_data_complex *to = out + (size_t)((r + dr) % rows) * (size_t)cols;
        for (int c = 0; c < cols; c++, x++) {
            to[(c + dc) % cols] = (lvni_data_complex){x->re * scale, x->im * scale};
        }
    }
}

void lvni_data_fourier_centred(const lvni_data_fourier *f, bool inverse, lvni_data_complex *x,
                               lvni_data_complex *scratch)
{
    const int rows = f->rows.n, cols = f->cols.n;
    const size_t n = (size_t)rows * (size_t)cols;
    const double root = lvni_core_sqrt((double)n);
    roll(f, rows - rows / 2, cols - cols / 2, 1.0, x, scratch);
    memcpy(x, scratch, n * sizeof *x);
    if (inverse) {
        lvni_data_fourier_inverse(f, x, scratch);
    } else {
        lvni_data_fourier_forward(f, x, scratch);
    }
    roll(f, rows / 2, cols / 2, inverse ? root : 1.0 / root, x, scratch);
    memcpy(x, scratch, n * sizeof *x);
}

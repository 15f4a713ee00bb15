/* Radio images: the dirty image of an interferometer and its point spread function (or which
 * frequencies it samples) are the measurement, the sky is the truth. From arrays of a folder, or
 * made up. */
#include "radio.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/math.h"
#include "core/str.h"
#include "core/vfs.h"
#include "data/array.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double builtin_sigma = 0.01;
enum { X, Y, UV, ARRAYS, MACRO_SAMPLES = 32 };
static const char *const letters[ARRAYS] = {"x", "y", "uv"};

typedef struct radio {
    lvni_inverse_base b;
    size_t n;           /* pixels */
    bool of_complex;    /* 3 to 2 channels */
    char *path[ARRAYS]; /* of this split; NULL: builtin */
    double uv_least, uv_range;
    lvni_inverse_scale macro[ARRAYS];
} radio;

typedef struct work {
    lvni_data_complex *at[ARRAYS]; /* at[X] is the start of the block */
    lvni_data_complex *noise, *scratch;
} work;

static lvn_status work_init(work *w, const radio *r)
{
    lvni_data_complex *all = lvni_core_alloc(
        LVNI_TAG_DATA, (4 * r->n + lvni_data_fourier_scratch(r->b.fourier)) * sizeof *all);
    *w = (work){.at = {all, all + r->n, all + 2 * r->n}};
    if (all == NULL) {
        return LVN_ERR_MEMORY;
    }
    w->noise = all + 3 * r->n;
    w->scratch = all + 4 * r->n;
    return LVN_OK;
}

/* ---- a sample in its own units ---- */

static void to_complex(const double *in, size_t n, lvni_data_complex *out)
{
    for (size_t i = n; i-- > 0;) { /* backwards: `in` may be the first half of `out` */
        out[i] = (lvni_data_complex){in[i], 0.0};
    }
}

/* x[r][c] to the place half an image farther. */
static void centre(lvni_data_complex *x, int n, lvni_data_complex *scratch)
{
    for (int i = 0; i < n * n; i++) {
        const int row = (i / n + n / 2) % n, col = (i % n + n / 2) % n;
        scratch[row * n + col] = x[i];
    }
    memcpy(x, scratch, (size_t)n * (size_t)n * sizeof *x);
}

static lvn_status draw(const radio *r, lvni_data_inverse_split split, uint32_t sample,
                       const lvni_inverse_random *noise, work *w)
{
    const int n = r->b.o.im_size;
    const lvni_inverse_random sky = {r->b.o.seed, split, 0, sample, LVNI_INVERSE_TRUTH},
                              shape = {r->b.o.seed, split, 0, sample, LVNI_INVERSE_SHAPE};
    double *sampling = lvni_core_alloc(LVNI_TAG_DATA, r->n * sizeof *sampling);
    if (sampling == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_inverse_radio_sky(&sky, n, &w->at[X]->re);
    to_complex(&w->at[X]->re, r->n, w->at[X]);
    lvni_inverse_normals(noise, r->n, &w->noise->re);
    to_complex(&w->noise->re, r->n, w->noise);
    lvni_inverse_radio_sampling(&shape, n, sampling);
    lvni_inverse_radio_observe(r->b.fourier, n, sampling, r->b.o.sigma, w->at[X], w->noise,
                               w->at[Y], w->at[UV], w->scratch);
    if (r->of_complex) {
        to_complex(sampling, r->n, w->at[UV]);
        centre(w->at[UV], n, w->scratch);
    }
    lvni_core_free(sampling);
    return LVN_OK;
}

static lvn_status read_arrays(const radio *r, char *const path[ARRAYS], int64_t sample, work *w)
{
    const int64_t n = (int64_t)r->n;
    for (int k = 0; k < ARRAYS; k++) {
        LVN_TRY(lvni_data_npy_read_part(path[k], sample * n, n, &w->at[k]->re));
        LVN_TRY(lvni_inverse_check_finite(path[k], sample, w->at[k], r->n, r->b.o.im_size));
    }
    return LVN_OK;
}

/* ---- normalised ---- */

/* Over the real parts alone, which are packed in the scratch memory. */
static lvn_status real_statistics(const radio *r, int64_t sample, const lvni_data_complex *x,
                                  work *w, lvni_inverse_scale *out)
{
    double *const packed = &w->scratch->re;
    for (size_t i = 0; i < r->n; i++) {
        packed[i] = x[i].re;
    }
    return lvni_inverse_statistics(&r->b, sample, packed, r->n, out);
}

static lvn_status put_complex(const radio *r, int64_t sample, work *w, void *const field[],
                              lvni_inverse_scale *scale)
{
    float *y = field[0], *x = field[1];
    LVN_TRY(lvni_inverse_statistics(&r->b, sample, &w->at[Y]->re, 2 * r->n, scale));
    for (size_t i = 0; i < r->n; i++, x += 2, y += 3) {
        y[0] = lvni_inverse_scaled(w->at[Y][i].re, *scale);
        y[1] = lvni_inverse_scaled(w->at[Y][i].im, *scale);
        y[2] = lvni_inverse_scaled((w->at[UV][i].re - r->uv_least) / r->uv_range, *scale);
        x[0] = lvni_inverse_scaled(w->at[X][i].re, *scale);
        x[1] = lvni_inverse_scaled(w->at[X][i].im, *scale);
    }
    return LVN_OK;
}

static lvn_status put_real(const radio *r, int64_t sample, work *w, void *const field[],
                           lvni_inverse_scale *scale)
{
    lvni_inverse_scale of[ARRAYS] = {r->macro[X], r->macro[Y], r->macro[UV]};
    float *y = field[0], *x = field[1];
    if (r->b.o.norm == LVNI_INVERSE_NORM_MICRO) {
        LVN_TRY(real_statistics(r, sample, w->at[Y], w, &of[Y]));
        LVN_TRY(real_statistics(r, sample, w->at[UV], w, &of[UV]));
        of[X] = of[Y];
    }
    for (size_t i = 0; i < r->n; i++) {
        y[2 * i] = lvni_inverse_scaled(w->at[Y][i].re, of[Y]);
        y[2 * i + 1] = lvni_inverse_scaled(w->at[UV][i].re, of[UV]);
        x[i] = lvni_inverse_scaled(w->at[X][i].re, of[X]);
    }
    *scale = of[X];
    return LVN_OK;
}

static lvn_status radio_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                            void *const field[])
{
    const radio *r = (const radio *)dataset;
    work w;
    LVN_TRY(lvni_inverse_check_sample(&r->b, key));
    LVN_TRY(work_init(&w, r));
    const lvni_inverse_random noise = lvni_inverse_noise(&r->b.o, key);
    lvni_inverse_scale scale = {0};
    lvn_status s = r->path[X] != NULL ? read_arrays(r, r->path, key->sample, &w)
                                      : draw(r, r->b.o.split, (uint32_t)key->sample, &noise, &w);
    if (s == LVN_OK) {
        s = r->of_complex ? put_complex(r, key->sample, &w, field, &scale)
                          : put_real(r, key->sample, &w, field, &scale);
    }
    lvni_core_free(w.at[X]);
    LVN_TRY(s);
    *(float *)field[2] = (float)scale.mean;
    *(float *)field[3] = (float)scale.std;
    return LVN_OK;
}

static void radio_destroy(lvn_dataset *dataset)
{
    radio *r = (radio *)dataset;
    lvni_inverse_base_free(&r->b);
    for (int k = 0; k < ARRAYS; k++) {
        lvni_core_free(r->path[k]);
    }
    lvni_core_free(r);
}

static const lvn_dataset_class radio_class = {
    .name = "inverse:radio", .get = radio_get, .destroy = radio_destroy};

/* ---- arrays of a folder ---- */

/* "<path>/<split>/<what><letter>.npy", the caller's. */
static char *array_path(const radio *r, lvni_data_inverse_split split, const char *what, int k)
{
    lvni_core_str name = {0};
    lvni_core_str_printf(&name, "%s/%s%s.npy", lvni_inverse_split_name(split), what, letters[k]);
    char *path = lvni_core_str_status(&name) == LVN_OK
                     ? lvni_inverse_path(r->b.o.path, lvni_core_str_text(&name))
                     : NULL;
    lvni_core_str_free(&name);
    return path;
}

/* The three of a split; *count is how many samples they have. */
static lvn_status look_at(const radio *r, lvni_data_inverse_split split, char *path[ARRAYS],
                          int64_t *count)
{
    const int n = r->b.o.im_size;
    for (int k = 0; k < ARRAYS; k++) {
        lvni_data_array a;
        size_t at;
        char text[192];
        path[k] = array_path(r, split, "", k);
        if (path[k] == NULL) {
            return LVN_ERR_MEMORY;
        }
        LVN_TRY(lvni_data_npy_peek(path[k], &a, &at));
        if (a.ndim != 3 || a.shape[0] < 1 || a.shape[1] != n || a.shape[2] != n) {
            LVN_FAIL(LVN_ERR_USAGE, "%s holds an array of %s; im_size=%d needs (samples, %d, %d)",
                     path[k], lvni_data_array_shape_text(&a, text), n, n, n);
        }
        if (k > 0 && a.shape[0] != *count) {
            LVN_FAIL(LVN_ERR_USAGE, "%s has %lld sample%s, but %s has %lld", path[k],
                     (long long)a.shape[0], lvni_core_plural(a.shape[0], "", "s"), path[0],
                     (long long)*count);
        }
        if (a.type >= LVNI_ARRAY_C64 && (k == UV || !r->of_complex)) {
            LVN_FAIL(LVN_ERR_USAGE, "%s holds %s; in_chans=%d out_chans=%d needs real numbers",
                     path[k], lvni_data_array_type_name(a.type), r->b.o.in_chans, r->b.o.out_chans);
        }
        *count = a.shape[0];
    }
    return LVN_OK;
}

/* uv of the whole set to 0 to 1. */
static lvn_status find_range(radio *r, work *w)
{
    double least = INFINITY, most = -INFINITY;
    for (int64_t i = 0; i < r->b.count; i++) {
        LVN_TRY(
            lvni_data_npy_read_part(r->path[UV], i * (int64_t)r->n, (int64_t)r->n, &w->at[UV]->re));
        for (size_t k = 0; k < r->n; k++) {
            least = w->at[UV][k].re < least ? w->at[UV][k].re : least;
            most = w->at[UV][k].re > most ? w->at[UV][k].re : most;
        }
    }
    if (!(most > least) || !isfinite(most - least)) {
        LVN_FAIL(LVN_ERR_USAGE, "%s is constant or not finite", r->path[UV]);
    }
    r->uv_least = least;
    r->uv_range = most - least;
    return LVN_OK;
}

/* ---- statistics of the training set ---- */

/* One number each, as rcGAN leaves them in the folder. */
static lvn_status read_macro(radio *r, bool *found)
{
    *found = true;
    for (int i = 0; i < 2 * ARRAYS && *found; i++) {
        double v[2];
        char *path = array_path(r, LVNI_INVERSE_TRAIN, i % 2 == 0 ? "mean_" : "std_", i / 2);
        if (path == NULL) {
            return LVN_ERR_MEMORY;
        }
        *found = lvni_core_path_exists(path);
        const lvn_status s = *found ? lvni_data_npy_read_part(path, 0, 1, v) : LVN_OK;
        lvni_core_free(path);
        LVN_TRY(s);
        if (*found) {
            *(i % 2 == 0 ? &r->macro[i / 2].mean : &r->macro[i / 2].std) = v[0];
        }
    }
    return LVN_OK;
}

/* Mean of all pixels, and mean of the deviations (divisor n) of the images. */
static void add_macro(radio *r, const work *w)
{
    for (int k = 0; k < ARRAYS; k++) {
        double sum = 0.0, squares = 0.0;
        for (size_t i = 0; i < r->n; i++) {
            sum += w->at[k][i].re;
        }
        const double mean = sum / (double)r->n;
        for (size_t i = 0; i < r->n; i++) {
            squares += (w->at[k][i].re - mean) * (w->at[k][i].re - mean);
        }
        r->macro[k].mean += mean;
        r->macro[k].std += lvni_core_sqrt(squares / (double)r->n);
    }
}

static lvn_status add_all_macro(radio *r, char *const path[ARRAYS], int64_t count, work *w)
{
    for (int k = 0; k < ARRAYS; k++) {
        r->macro[k] = (lvni_inverse_scale){0.0, 0.0};
    }
    for (int64_t i = 0; i < count; i++) {
        const lvni_inverse_random noise = {r->b.o.seed, LVNI_INVERSE_TRAIN, 0, (uint32_t)i,
                                           LVNI_INVERSE_NOISE};
        LVN_TRY(path[X] != NULL ? read_arrays(r, path, i, w)
                                : draw(r, LVNI_INVERSE_TRAIN, (uint32_t)i, &noise, w));
        add_macro(r, w);
    }
    for (int k = 0; k < ARRAYS; k++) {
        r->macro[k].mean /= (double)count;
        r->macro[k].std /= (double)count;
    }
    return LVN_OK;
}

static lvn_status make_macro(radio *r, work *w)
{
    char *path[ARRAYS] = {NULL};
    int64_t count = MACRO_SAMPLES;
    bool found = false;
    lvn_status s;
    if (r->path[X] != NULL) {
        LVNI_TRY_DONE(s, read_macro(r, &found));
        LVNI_TRY_DONE(s, found ? LVN_OK : look_at(r, LVNI_INVERSE_TRAIN, path, &count));
    }
    s = found ? LVN_OK : add_all_macro(r, path, count, w);
done:
    for (int k = 0; k < ARRAYS; k++) {
        lvni_core_free(path[k]);
    }
    LVN_TRY(s);
    for (int k = 0; k < ARRAYS; k++) {
        if (!(r->macro[k].std > 0.0) || !isfinite(r->macro[k].std)) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s: the training set's %s is constant or not finite; use norm=micro",
                     r->b.o.path, letters[k]);
        }
    }
    return LVN_OK;
}

/* ---- opening ---- */

static lvn_status radio_init(radio *r, const lvni_data_inverse_options *o)
{
    r->n = (size_t)o->im_size * (size_t)o->im_size;
    r->of_complex = o->out_chans == 2;
    r->uv_range = 1.0;
    for (int k = 0; k < ARRAYS; k++) {
        r->macro[k] = (lvni_inverse_scale){0.0, 1.0};
    }
    LVN_TRY(lvni_inverse_base_init(&r->b, o, &radio_class));
    r->b.o.sigma = o->sigma > 0.0 ? o->sigma : builtin_sigma;
    const bool builtin = lvni_inverse_builtin(o);
    LVN_TRY(builtin ? LVN_OK : look_at(r, o->split, r->path, &r->b.count));
    work w;
    LVN_TRY(work_init(&w, r));
    lvn_status s = LVN_OK;
    if (r->of_complex && !builtin) {
        s = find_range(r, &w);
    } else if (o->norm == LVNI_INVERSE_NORM_MACRO) {
        s = make_macro(r, &w);
    }
    lvni_core_free(w.at[X]);
    return s;
}

void lvni_inverse_radio_check(const lvni_data_inverse_options *o, lvni_data_inverse_mistakes *out)
{
    const bool three = o->in_chans == 3 && o->out_chans == 2,
               two = o->in_chans == 2 && o->out_chans == 1;
    if (!three && !two) {
        lvni_inverse_mistake(
            out, "in_chans",
            "in_chans=%d out_chans=%d: radio images have 3 and 2, or 2 and 1 channels", o->in_chans,
            o->out_chans);
    }
    if (three && o->norm != LVNI_INVERSE_NORM_MICRO) {
        lvni_inverse_mistake(
            out, "norm",
            "in_chans=3 out_chans=2 has norm=micro; others are for in_chans=2 out_chans=1");
    }
    if (lvni_inverse_builtin(o) && o->im_size % 2 != 0) {
        lvni_inverse_mistake(out, "im_size", "im_size=%d: builtin:radio needs an even number",
                             o->im_size);
    }
}

lvn_status lvni_inverse_radio_open(const lvni_data_inverse_options *options, lvn_dataset **out)
{
    *out = NULL;
    radio *r = LVNI_NEW(LVNI_TAG_DATA, radio);
    if (r == NULL) {
        return LVN_ERR_MEMORY;
    }
    const lvn_status s = radio_init(r, options);
    if (s != LVN_OK) {
        radio_destroy(&r->b.dataset);
        return s;
    }
    *out = &r->b.dataset;
    return LVN_OK;
}

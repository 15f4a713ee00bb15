/* Magnetic resonance images of several coils, of which a part of k-space was measured: the truth is
 * the images of the coils, the measurement those that the measured columns alone give
 * (zero-filled). From volumes of k-space, or phantoms. */
#include "mri.h"

#include "core/alloc.h"
#include "core/math.h"

#include <string.h>

static const double builtin_sigma = 0.005;
enum { MAX_COILS = 32, ACCELERATION = 8, CALIB_WIDTH = 16 };

typedef struct mri {
    lvni_inverse_base b;
    int coils;
    size_t plane;                 /* N * N */
    double *columns;              /* N */
    lvni_data_complex *coil_maps; /* builtin: (coils, N, N) */
    lvni_inverse_volumes volumes; /* of a folder */
} mri;

/* Of one sample; all planes (coils, N, N). */
typedef struct sample {
    const mri *m;
    lvni_data_complex *truth, *measured, *maps, *scratch; /* truth is the start of the block */
} sample;

static lvn_status sample_init(sample *s, const mri *m)
{
    const size_t all = (size_t)m->coils * m->plane;
    *s = (sample){.m = m};
    s->truth = lvni_core_alloc(LVNI_TAG_DATA, (3 * all + lvni_data_fourier_scratch(m->b.fourier)) *
                                                  sizeof *s->truth);
    if (s->truth == NULL) {
        return LVN_ERR_MEMORY;
    }
    s->measured = s->truth + all;
    s->maps = s->truth + 2 * all;
    s->scratch = s->truth + 3 * all;
    return LVN_OK;
}

/* ---- maps from the middle of k-space ---- */

/* 1 in the middle, falling to 0 at `width` / 2 from it: cos^2 (Hann's window). */
static double window(int i, int n, int width)
{
    const int from_middle = i - n / 2;
    const double turn = (double)from_middle / width;
    return turn <= -0.5 || turn >= 0.5 ? 0.0 : 0.5 + 0.5 * lvni_core_cos2pi(turn);
}

/* Each pixel's values of the coils divided by the root of the sum of their squares. */
static void normalise_maps(const mri *m, lvni_data_complex *maps)
{
    const double even = 1.0 / lvni_core_sqrt(m->coils);
    for (size_t i = 0; i < m->plane; i++) {
        double sum = 0.0;
        for (size_t k = i; k < (size_t)m->coils * m->plane; k += m->plane) {
            sum += maps[k].re * maps[k].re + maps[k].im * maps[k].im;
        }
        const double scale = sum > 0.0 ? 1.0 / lvni_core_sqrt(sum) : 0.0;
        for (size_t k = i; k < (size_t)m->coils * m->plane; k += m->plane) {
            maps[k] = sum > 0.0 ? (lvni_data_complex){maps[k].re * scale, maps[k].im * scale}
                                : (lvni_data_complex){even, 0.0};
        }
    }
}

/* Coils are smooth: images of low resolution, from what was measured in the middle, show them. */
static void estimate_maps(sample *s)
{
    const mri *m = s->m;
    const int n = m->b.o.im_size;
    memcpy(s->maps, s->measured, (size_t)m->coils * m->plane * sizeof *s->maps);
    for (int c = 0; c < m->coils; c++) {
        lvni_data_complex *k = s->maps + (size_t)c * m->plane;
        lvni_data_fourier_centred(m->b.fourier, false, k, s->scratch);
        for (size_t i = 0; i < m->plane; i++) {
            const double w = window((int)i / n, n, m->b.o.calib_width) *
                             window((int)i % n, n, m->b.o.calib_width);
            k[i] = (lvni_data_complex){k[i].re * w, k[i].im * w};
        }
        lvni_data_fourier_centred(m->b.fourier, true, k, s->scratch);
    }
    normalise_maps(m, s->maps);
}

/* ---- truth to measurement ---- */

/* measured holds standard normal numbers, for sigma > 0. */
static void measure(sample *s, double sigma)
{
    const mri *m = s->m;
    const int n = m->b.o.im_size;
    lvni_data_complex *k = s->maps; /* not made yet */
    for (int c = 0; c < m->coils; c++) {
        lvni_data_complex *out = s->measured + (size_t)c * m->plane;
        memcpy(k, s->truth + (size_t)c * m->plane, m->plane * sizeof *k);
        lvni_data_fourier_centred(m->b.fourier, false, k, s->scratch);
        for (size_t i = 0; i < m->plane; i++) {
            const double on = m->columns[i % (size_t)n];
            const lvni_data_complex noise = sigma > 0.0 ? out[i] : (lvni_data_complex){0.0, 0.0};
            out[i] = (lvni_data_complex){(k[i].re + sigma * noise.re) * on,
                                         (k[i].im + sigma * noise.im) * on};
        }
        lvni_data_fourier_centred(m->b.fourier, true, out, s->scratch);
    }
}

static void draw(sample *s, const lvn_sample_key *key)
{
    const mri *m = s->m;
    const lvni_inverse_random shape = {m->b.o.seed, m->b.o.split, 0, (uint32_t)key->sample,
                                       LVNI_INVERSE_SHAPE},
                              noise = lvni_inverse_noise(&m->b.o, key);
    const size_t all = (size_t)m->coils * m->plane;
    double *const image = &s->scratch->re;
    lvni_inverse_mri_phantom(&shape, m->b.o.im_size, image);
    for (size_t i = 0; i < all; i++) {
        const double v = image[i % m->plane];
        s->truth[i] = (lvni_data_complex){m->coil_maps[i].re * v, m->coil_maps[i].im * v};
    }
    lvni_inverse_normals(&noise, 2 * all, &s->measured->re);
    measure(s, m->b.o.sigma);
    memcpy(s->maps, m->coil_maps, all * sizeof *s->maps);
}

static lvn_status read_slice(sample *s, const lvn_sample_key *key)
{
    const mri *m = s->m;
    int slice;
    const lvni_inverse_volume *v = lvni_inverse_volumes_at(&m->volumes, key->sample, &slice);
    LVN_TRY(lvni_inverse_volume_read(v, slice, m->coils, m->b.o.im_size, s->truth));
    measure(s, 0.0);
    if (v->maps != NULL) {
        return lvni_inverse_volume_maps(v, slice, m->coils, m->b.o.im_size, s->maps);
    }
    estimate_maps(s);
    return LVN_OK;
}

/* ---- the dataset ---- */

/* (coils, N, N) to (N, N, 2 coils): real parts, then imaginary parts. */
static void put(const mri *m, const lvni_data_complex *planes, lvni_inverse_scale scale, float *out)
{
    const size_t coils = (size_t)m->coils;
    for (size_t c = 0; c < coils; c++, planes += m->plane) {
        for (size_t i = 0; i < m->plane; i++) {
            out[i * 2 * coils + c] = lvni_inverse_scaled(planes[i].re, scale);
            out[i * 2 * coils + coils + c] = lvni_inverse_scaled(planes[i].im, scale);
        }
    }
}

static lvn_status fill(sample *s, const lvn_sample_key *key, void *const field[])
{
    static const lvni_inverse_scale as_it_is = {0.0, 1.0};
    const mri *m = s->m;
    lvni_inverse_scale scale;
    if (lvni_inverse_builtin(&m->b.o)) {
        draw(s, key);
    } else {
        LVN_TRY(read_slice(s, key));
    }
    LVN_TRY(lvni_inverse_statistics(&m->b, key->sample, &s->measured->re,
                                    2 * (size_t)m->coils * m->plane, &scale));
    put(m, s->measured, scale, field[0]);
    put(m, s->truth, scale, field[1]);
    *(float *)field[2] = (float)scale.mean;
    *(float *)field[3] = (float)scale.std;
    for (int i = 0; i < m->b.o.im_size; i++) {
        ((float *)field[4])[i] = (float)m->columns[i];
    }
    put(m, s->maps, as_it_is, field[5]);
    return LVN_OK;
}

static lvn_status mri_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                          void *const field[])
{
    const mri *m = (const mri *)dataset;
    sample s;
    LVN_TRY(lvni_inverse_check_sample(&m->b, key));
    LVN_TRY(sample_init(&s, m));
    const lvn_status status = fill(&s, key, field);
    lvni_core_free(s.truth);
    return status;
}

static void mri_destroy(lvn_dataset *dataset)
{
    mri *m = (mri *)dataset;
    lvni_inverse_base_free(&m->b);
    lvni_inverse_volumes_free(&m->volumes);
    lvni_core_free(m->columns);
    lvni_core_free(m->coil_maps);
    lvni_core_free(m);
}

static const lvn_dataset_class mri_class = {
    .name = "inverse:mri", .get = mri_get, .destroy = mri_destroy};

/* ---- opening ---- */

static lvn_status mri_init(mri *m, const lvni_data_inverse_options *o)
{
    m->coils = o->in_chans / 2;
    m->plane = (size_t)o->im_size * (size_t)o->im_size;
    LVN_TRY(lvni_inverse_base_init(&m->b, o, &mri_class));
    m->b.o.sigma = o->sigma > 0.0 ? o->sigma : builtin_sigma;
    m->b.o.calib_width = o->calib_width > 0 ? o->calib_width : CALIB_WIDTH;
    m->columns = lvni_core_alloc(LVNI_TAG_DATA, (size_t)o->im_size * sizeof *m->columns);
    if (m->columns == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_inverse_mri_columns(o->im_size, o->acceleration > 0 ? o->acceleration : ACCELERATION,
                             m->columns);
    if (!lvni_inverse_builtin(o)) {
        char **names;
        int64_t n;
        LVN_TRY(lvni_inverse_volumes_open(o, &m->volumes));
        LVN_TRY(lvni_inverse_volumes_names(&m->volumes, &names, &n));
        lvni_inverse_base_names(&m->b, names, n);
        return LVN_OK;
    }
    m->coil_maps =
        lvni_core_alloc(LVNI_TAG_DATA, (size_t)m->coils * m->plane * sizeof *m->coil_maps);
    if (m->coil_maps == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_inverse_mri_coils(m->coils, o->im_size, m->coil_maps);
    return LVN_OK;
}

void lvni_inverse_mri_check(const lvni_data_inverse_options *o, lvni_data_inverse_mistakes *out)
{
    const int n = o->im_size, middle = n / 16 > 0 ? n / 16 : 1;
    if (o->in_chans != o->out_chans || o->in_chans < 2 || o->in_chans % 2 != 0 ||
        o->in_chans > 2 * MAX_COILS) {
        lvni_inverse_mistake(
            out, "in_chans",
            "in_chans=%d out_chans=%d: images of magnetic resonance have twice as many "
            "channels as coils, 2 to %d, the same of both",
            o->in_chans, o->out_chans, 2 * MAX_COILS);
    }
    if (o->acceleration < 0 || (o->acceleration > 0 && n / o->acceleration < middle) ||
        (o->acceleration == 0 && n / ACCELERATION < middle)) {
        lvni_inverse_mistake(
            out, "acceleration",
            "an acceleration of %d for im_size=%d leaves fewer columns than the %d in the "
            "middle, which are always measured",
            o->acceleration, n, middle);
    }
    if (o->calib_width < 0 || o->calib_width > n) {
        lvni_inverse_mistake(out, "calib_width", "calib_width=%d: it must be 1 to im_size=%d",
                             o->calib_width, n);
    }
    if (o->maps_path != NULL && lvni_inverse_builtin(o)) {
        lvni_inverse_mistake(out, "sense_maps_path",
                             "%s has coil maps of its own; leave out those of %s", o->path,
                             o->maps_path);
    }
}

lvn_status lvni_inverse_mri_open(const lvni_data_inverse_options *options, lvn_dataset **out)
{
    *out = NULL;
    mri *m = LVNI_NEW(LVNI_TAG_DATA, mri);
    if (m == NULL) {
        return LVN_ERR_MEMORY;
    }
    const lvn_status s = mri_init(m, options);
    if (s != LVN_OK) {
        mri_destroy(&m->b.dataset);
        return s;
    }
    *out = &m->b.dataset;
    return LVN_OK;
}

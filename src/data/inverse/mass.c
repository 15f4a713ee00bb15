/* Maps of mass (convergence) and the shear of galaxies behind it. Maps come from a folder, or are
 * Gaussian fields of a known spectrum; the shear is computed for each sample, with new noise in
 * each epoch of training. */
#include "mass.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/math.h"
#include "core/vfs.h"

#include <string.h>

/* Mean and deviation of the magnitude of the shear where constants normalise it, those of the data
 * set that rcGAN was made for. */
static const lvni_inverse_scale magnitude_scale = {0.14049194898307577, 0.11606233247891737};
/* Spectrum of the builtin maps: deviation of a pixel, scale and slope. */
static const double prior_std = 0.03, prior_scale = 4.0, prior_slope = 3.0;
static const double builtin_sigma = 0.0676;

double lvni_data_inverse_mass_sigma(int im_size)
{
    const double degrees = 5.0, galaxies = 30.0, pixel = 60.0 * degrees / im_size;
    return 0.37 / lvni_core_sqrt(pixel * pixel * galaxies);
}

static bool by_constants(const lvni_data_inverse_options *o)
{
    return o->in_chans == 4 || o->by_constants;
}

/* ---- operators ---- */

/* Index to frequency: 0 .. n/2 - 1, then -n/2 .. -1. */
static int frequency(int i, int n)
{
    return i < n / 2 ? i : i - n;
}

void lvni_inverse_mass_kernel(int n, bool rows_first, lvni_data_complex *out)
{
    for (int r = 0; r < n; r++) {
        for (int c = 0; c < n; c++, out++) {
            const double kr = frequency(r, n), kc = frequency(c, n), square = kr * kr + kc * kc;
            const double difference = rows_first ? kr * kr - kc * kc : kc * kc - kr * kr;
            *out = square > 0.0 ? (lvni_data_complex){difference / square, 2.0 * kr * kc / square}
                                : (lvni_data_complex){0.0, 0.0};
        }
    }
}

static void filter(const lvni_inverse_mass *m, double sign, lvni_data_complex *x,
                   lvni_data_complex *scratch)
{
    lvni_data_fourier_forward(m->b.fourier, x, scratch);
    for (size_t i = 0; i < m->n; i++) {
        const lvni_data_complex d = {m->kernel[i].re, sign * m->kernel[i].im};
        x[i] = lvni_data_complex_mul(x[i], d);
    }
    lvni_data_fourier_inverse(m->b.fourier, x, scratch);
}

void lvni_inverse_mass_shear(const lvni_inverse_mass *m, lvni_data_complex *x,
                             lvni_data_complex *scratch)
{
    filter(m, 1.0, x, scratch);
}

/* The kernel's magnitude is 1: to divide by it is to multiply by its conjugate. */
void lvni_inverse_mass_invert(const lvni_inverse_mass *m, lvni_data_complex *x,
                              lvni_data_complex *scratch)
{
    filter(m, -1.0, x, scratch);
}

/* ---- samples ---- */

lvni_data_complex *lvni_inverse_mass_work(const lvni_inverse_mass *m)
{
    return lvni_core_alloc(LVNI_TAG_DATA, (3 * m->n + lvni_data_fourier_scratch(m->b.fourier)) *
                                              sizeof(lvni_data_complex));
}

static lvn_status read_map(const lvni_inverse_mass *m, int64_t sample, lvni_data_complex *kappa)
{
    char *path = lvni_inverse_path(m->folder, m->b.names[sample]);
    lvn_status s;
    LVNI_TRY_DONE(s, path == NULL ? LVN_ERR_MEMORY
                                  : lvni_inverse_read_square(path, m->b.o.im_size, kappa));
    for (size_t i = 0; m->b.o.out_chans == 1 && i < m->n; i++) {
        if (kappa[i].im != 0.0) {
            s = lvn_error_set(LVN_ERR_CORRUPT, __FILE__, __LINE__,
                              "%s holds complex numbers; out_chans=1 needs real ones", path);
            break;
        }
    }
done:
    lvni_core_free(path);
    return s;
}

/* White noise, coloured by the square root of the spectrum. */
static void draw_map(const lvni_inverse_mass *m, const lvni_inverse_random *random,
                     lvni_data_complex *kappa, lvni_data_complex *scratch)
{
    double *const white = &scratch->re;
    lvni_inverse_normals(random, m->n, white);
    for (size_t i = 0; i < m->n; i++) {
        kappa[i] = (lvni_data_complex){white[i], 0.0};
    }
    lvni_data_fourier_forward(m->b.fourier, kappa, scratch);
    for (size_t i = 0; i < m->n; i++) {
        const double root = lvni_core_sqrt(m->prior[i]);
        kappa[i] = (lvni_data_complex){kappa[i].re * root, kappa[i].im * root};
    }
    lvni_data_fourier_inverse(m->b.fourier, kappa, scratch);
    for (size_t i = 0; i < m->n; i++) {
        kappa[i].im = 0.0;
    }
}

/* gamma = shear of kappa + noise */
static void measure(const lvni_inverse_mass *m, const lvni_inverse_random *noise,
                    const lvni_data_complex *kappa, lvni_data_complex *gamma,
                    lvni_data_complex *scratch)
{
    memcpy(gamma, kappa, m->n * sizeof *gamma);
    lvni_inverse_mass_shear(m, gamma, scratch);
    lvni_inverse_normals(noise, 2 * m->n, &scratch->re);
    for (size_t i = 0; i < m->n; i++) {
        gamma[i].re += (m->noise[0] != NULL ? m->noise[0][i] : m->sigma) * scratch[i].re;
        gamma[i].im += (m->noise[1] != NULL ? m->noise[1][i] : m->sigma) * scratch[i].im;
    }
}

lvn_status lvni_inverse_mass_measure(const lvni_inverse_mass *m, const lvn_sample_key *key,
                                     lvni_data_complex *kappa, lvni_data_complex *gamma,
                                     lvni_data_complex *scratch)
{
    const lvni_inverse_random noise = lvni_inverse_noise(&m->b.o, key);
    if (m->folder != NULL) {
        LVN_TRY(read_map(m, key->sample, kappa));
        measure(m, &noise, kappa, gamma, scratch);
        return LVN_OK;
    }
    const lvni_inverse_random truth = {m->b.o.seed, m->b.o.split, 0, (uint32_t)key->sample,
                                       LVNI_INVERSE_TRUTH};
    lvni_inverse_mass_draw(m, &truth, &noise, kappa, gamma, scratch);
    return LVN_OK;
}

void lvni_inverse_mass_draw(const lvni_inverse_mass *m, const lvni_inverse_random *truth,
                            const lvni_inverse_random *noise, lvni_data_complex *kappa,
                            lvni_data_complex *gamma, lvni_data_complex *scratch)
{
    draw_map(m, truth, kappa, scratch);
    measure(m, noise, kappa, gamma, scratch);
}

/* Into two of the channels of y, 0 where the mask hides. */
static void put(const lvni_inverse_mass *m, const lvni_data_complex *x, lvni_inverse_scale scale,
                float *y)
{
    for (size_t i = 0; i < m->n; i++, y += m->b.o.in_chans) {
        const bool hidden = m->mask != NULL && m->mask[i] == 0.0;
        y[0] = hidden ? 0.0F : lvni_inverse_scaled(x[i].re, scale);
        y[1] = hidden ? 0.0F : lvni_inverse_scaled(x[i].im, scale);
    }
}

/* Real part, and with two channels imaginary part. */
static void put_truth(const lvni_inverse_mass *m, const lvni_data_complex *kappa,
                      lvni_inverse_scale scale, float *x)
{
    for (size_t i = 0; i < m->n; i++) {
        *x++ = lvni_inverse_scaled(kappa[i].re, scale);
        if (m->b.o.out_chans == 2) {
            *x++ = lvni_inverse_scaled(kappa[i].im, scale);
        }
    }
}

/* All by the statistics of the shear, those of what is hidden included. */
static lvn_status put_by_sample(const lvni_inverse_mass *m, int64_t sample,
                                const lvni_data_complex *work, void *const field[],
                                lvni_inverse_scale *scale)
{
    const lvni_data_complex *kappa = work, *gamma = work + m->n;
    LVN_TRY(lvni_inverse_statistics(&m->b, sample, &gamma->re, 2 * m->n, scale));
    put(m, gamma, *scale, field[0]);
    put_truth(m, kappa, *scale, field[1]);
    return LVN_OK;
}

/* The magnitude of the shear and the mass by constants, the inversion by its own statistics. */
static lvn_status put_by_constants(const lvni_inverse_mass *m, int64_t sample,
                                   lvni_data_complex *work, void *const field[],
                                   lvni_inverse_scale *scale)
{
    static const lvni_inverse_scale as_it_is = {0.0, 1.0};
    const lvni_data_complex *kappa = work, *gamma = work + m->n;
    lvni_data_complex *other = work + 2 * m->n, *scratch = work + 3 * m->n;
    for (size_t i = 0; i < m->n; i++) {
        const double size = lvni_core_sqrt(gamma[i].re * gamma[i].re + gamma[i].im * gamma[i].im);
        const double new_size = (size - magnitude_scale.mean) / magnitude_scale.std;
        other[i] = size > 0.0 ? (lvni_data_complex){gamma[i].re / size * new_size,
                                                    gamma[i].im / size * new_size}
                              : (lvni_data_complex){new_size, 0.0};
    }
    put(m, other, as_it_is, field[0]);
    if (m->b.o.in_chans == 4) {
        memcpy(other, gamma, m->n * sizeof *other);
        lvni_inverse_mass_invert(m, other, scratch);
        LVN_TRY(lvni_inverse_statistics(&m->b, sample, &other->re, 2 * m->n, scale));
        put(m, other, *scale, (float *)field[0] + 2);
    }
    *scale = (lvni_inverse_scale){m->b.o.kappa_mean, m->b.o.kappa_std};
    put_truth(m, kappa, *scale, field[1]);
    return LVN_OK;
}

static lvn_status mass_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                           void *const field[])
{
    const lvni_inverse_mass *m = (const lvni_inverse_mass *)dataset;
    LVN_TRY(lvni_inverse_check_sample(&m->b, key));
    lvni_data_complex *work = lvni_inverse_mass_work(m);
    if (work == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_inverse_scale scale = {0};
    lvn_status s = lvni_inverse_mass_measure(m, key, work, work + m->n, work + 3 * m->n);
    if (s == LVN_OK) {
        s = by_constants(&m->b.o) ? put_by_constants(m, key->sample, work, field, &scale)
                                  : put_by_sample(m, key->sample, work, field, &scale);
    }
    lvni_core_free(work);
    LVN_TRY(s);
    *(float *)field[2] = (float)scale.mean;
    *(float *)field[3] = (float)scale.std;
    return LVN_OK;
}

static void mass_destroy(lvn_dataset *dataset)
{
    lvni_inverse_mass *m = (lvni_inverse_mass *)dataset;
    lvni_inverse_base_free(&m->b);
    lvni_core_free(m->kernel);
    lvni_core_free(m->prior);
    lvni_core_free(m->mask);
    lvni_core_free(m->noise[0]);
    lvni_core_free(m->noise[1]);
    lvni_core_free(m->folder);
    lvni_core_free(m);
}

static const lvn_dataset_class mass_class = {
    .name = "inverse:mass", .get = mass_get, .destroy = mass_destroy};

const lvni_inverse_mass *lvni_inverse_mass_of(const lvn_dataset *dataset)
{
    return dataset->cls->get == mass_get ? (const lvni_inverse_mass *)dataset : NULL;
}

/* ---- opening ---- */

static lvn_status new_plane(const lvni_inverse_mass *m, double **out)
{
    *out = lvni_core_calloc(LVNI_TAG_DATA, m->n, sizeof **out);
    return *out != NULL ? LVN_OK : LVN_ERR_MEMORY;
}

/* (1 + k^2 / scale^2)^(-slope / 2), so that a pixel has the deviation prior_std; none at frequency
 * 0 and at n / 2, whose sign is not defined. */
static lvn_status make_prior(lvni_inverse_mass *m)
{
    const int n = m->b.o.im_size;
    double sum = 0.0;
    LVN_TRY(new_plane(m, &m->prior));
    for (int r = 0, i = 0; r < n; r++) {
        for (int c = 0; c < n; c++, i++) {
            const double kr = frequency(r, n), kc = frequency(c, n), square = kr * kr + kc * kc;
            if (square > 0.0 && r != n / 2 && c != n / 2) {
                m->prior[i] =
                    lvni_core_pow(1.0 + square / (prior_scale * prior_scale), -0.5 * prior_slope);
                sum += m->prior[i];
            }
        }
    }
    const double factor = prior_std * prior_std * (double)m->n / sum;
    for (size_t i = 0; i < m->n; i++) {
        m->prior[i] *= factor;
    }
    return LVN_OK;
}

/* Discs, as bright stars leave them, until a fifth is hidden: one mask for all splits. */
static lvn_status make_mask(lvni_inverse_mass *m)
{
    const int n = m->b.o.im_size;
    const lvni_inverse_random random = {m->b.o.seed, LVNI_INVERSE_TRAIN, 0, 0, LVNI_INVERSE_SHAPE};
    const lvni_core_rng rng = lvni_inverse_rng(&random);
    LVN_TRY(new_plane(m, &m->mask));
    for (size_t i = 0; i < m->n; i++) {
        m->mask[i] = 1.0;
    }
    size_t hidden = 0;
    for (uint64_t e = 0; hidden < m->n / 5; e += 3) {
        const double cy = (double)lvni_core_rng_uniform(&rng, e) * n,
                     cx = (double)lvni_core_rng_uniform(&rng, e + 1) * n,
                     radius = (0.01 + 0.06 * (double)lvni_core_rng_uniform(&rng, e + 2)) * n;
        for (int r = 0, i = 0; r < n; r++) {
            for (int c = 0; c < n; c++, i++) {
                const double dy = r + 0.5 - cy, dx = c + 0.5 - cx;
                if (dy * dy + dx * dx < radius * radius && m->mask[i] != 0.0) {
                    m->mask[i] = 0.0;
                    hidden++;
                }
            }
        }
    }
    return LVN_OK;
}

static lvn_status read_plane(lvni_inverse_mass *m, const char *name, double **out)
{
    char *path = lvni_inverse_path(m->b.o.cosmo_dir, name);
    lvni_data_complex *all = lvni_core_alloc(LVNI_TAG_DATA, m->n * sizeof *all);
    lvn_status s;
    LVNI_TRY_DONE(s, path == NULL || all == NULL ? LVN_ERR_MEMORY : new_plane(m, out));
    if (!lvni_core_path_exists(path)) {
        s = lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
                          "there is no %s: a folder for cosmo_dir_path has cosmos_mask.npy, "
                          "cosmos_std1.npy and cosmos_std2.npy; leave it out for no mask and the "
                          "same noise everywhere",
                          path);
        goto done;
    }
    LVNI_TRY_DONE(s, lvni_inverse_check_square(path, m->b.o.im_size));
    LVNI_TRY_DONE(s, lvni_inverse_read_square(path, m->b.o.im_size, all));
    for (size_t i = 0; i < m->n; i++) {
        (*out)[i] = all[i].re;
    }
done:
    lvni_core_free(all);
    lvni_core_free(path);
    return s;
}

/* A mask of zeros hides all that could be learned from. */
static lvn_status read_mask(lvni_inverse_mass *m)
{
    LVN_TRY(read_plane(m, "cosmos_mask.npy", &m->mask));
    for (size_t i = 0; i < m->n; i++) {
        if (m->mask[i] != 0.0) {
            return LVN_OK;
        }
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "%s: cosmos_mask.npy is 0 everywhere, so that nothing is measured: it is 1 where "
             "galaxies are seen, and 0 where they are hidden",
             m->b.o.cosmo_dir);
}

/* The first map shows whether im_size is right; one that cannot be read is left to on_error. */
static lvn_status check_first(const lvni_inverse_mass *m)
{
    char *path = lvni_inverse_path(m->folder, m->b.names[0]);
    if (path == NULL) {
        return LVN_ERR_MEMORY;
    }
    const lvn_status s = lvni_inverse_check_square(path, m->b.o.im_size);
    lvni_core_free(path);
    return s == LVN_ERR_CORRUPT || s == LVN_ERR_UNSUPPORTED ? LVN_OK : s;
}

static lvn_status list_maps(lvni_inverse_mass *m)
{
    static const char *const folders[] = {"kappa_train", "kappa_val", "kappa_test"};
    char **names;
    int64_t n;
    const lvn_status s =
        lvni_inverse_list_part(&m->b.o, folders[m->b.o.split], &m->folder, &names, &n);
    if (s != LVN_OK) {
        lvni_inverse_free_names(names, n);
        return s;
    }
    lvni_inverse_base_names(&m->b, names, n);
    return check_first(m);
}

static lvn_status mass_init(lvni_inverse_mass *m, const lvni_data_inverse_options *o)
{
    const bool builtin = lvni_inverse_builtin(o);
    m->n = (size_t)o->im_size * (size_t)o->im_size;
    LVN_TRY(lvni_inverse_base_init(&m->b, o, &mass_class));
    m->b.o.kappa_std = o->kappa_std > 0.0 ? o->kappa_std : prior_std;
    m->sigma = o->sigma > 0.0 ? o->sigma
               : builtin      ? builtin_sigma
                              : lvni_data_inverse_mass_sigma(o->im_size) /
                               lvni_core_sqrt(o->out_chans == 1 ? 2.0 : 1.0);
    LVN_TRY(builtin ? make_prior(m) : list_maps(m));
    m->kernel = lvni_core_alloc(LVNI_TAG_DATA, m->n * sizeof *m->kernel);
    if (m->kernel == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_inverse_mass_kernel(o->im_size, !by_constants(o), m->kernel);
    if (o->cosmo_dir != NULL) {
        LVN_TRY(read_mask(m));
        LVN_TRY(read_plane(m, "cosmos_std1.npy", &m->noise[0]));
        return read_plane(m, "cosmos_std2.npy", &m->noise[1]);
    }
    return o->random_mask ? make_mask(m) : LVN_OK;
}

void lvni_inverse_mass_check(const lvni_data_inverse_options *o, lvni_data_inverse_mistakes *out)
{
    const bool two = o->in_chans == 2 && o->out_chans == 2,
               four = o->in_chans == 4 && (o->out_chans == 1 || o->out_chans == 2);
    if (o->im_size % 2 != 0) {
        lvni_inverse_mistake(out, "im_size", "im_size=%d: maps of mass need an even number",
                             o->im_size);
    }
    if (!two && !four) {
        lvni_inverse_mistake(
            out, "in_chans",
            "in_chans=%d out_chans=%d: maps of mass have 2 and 2, 4 and 1, or 4 and 2 channels",
            o->in_chans, o->out_chans);
    }
    if ((four || (two && o->by_constants)) && !lvni_inverse_builtin(o) && !(o->kappa_std > 0.0)) {
        lvni_inverse_mistake(out, "kappa_std",
                             "kappa_std=%g: %s needs kappa_mean and kappa_std, mean and deviation "
                             "of the training maps",
                             o->kappa_std,
                             four ? o->out_chans == 1 ? "in_chans=4 out_chans=1"
                                                      : "in_chans=4 out_chans=2"
                                  : "mass_norm=constants");
    }
}

lvn_status lvni_inverse_mass_open(const lvni_data_inverse_options *options, lvn_dataset **out)
{
    *out = NULL;
    lvni_inverse_mass *m = LVNI_NEW(LVNI_TAG_DATA, lvni_inverse_mass);
    if (m == NULL) {
        return LVN_ERR_MEMORY;
    }
    const lvn_status s = mass_init(m, options);
    if (s != LVN_OK) {
        mass_destroy(&m->b.dataset);
        return s;
    }
    *out = &m->b.dataset;
    return LVN_OK;
}

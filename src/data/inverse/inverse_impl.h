/* What the datasets of inverse problems share: files of a folder, random numbers, statistics. */
#ifndef LEVIN_DATA_INVERSE_INVERSE_IMPL_H
#define LEVIN_DATA_INVERSE_INVERSE_IMPL_H

#include "core/rng.h"
#include "data/fourier.h"
#include "data/inverse.h"

/* ---- random numbers ----
 * Key (seed, "inverse/train" "inverse/val" "inverse/test"); a = epoch (0 except for noise in
 * training), b = sample, c = stream; numbers in blocks of four. */

typedef enum lvni_inverse_stream {
    LVNI_INVERSE_TRUTH,
    LVNI_INVERSE_NOISE,
    LVNI_INVERSE_SHAPE, /* of what is drawn, and of masks (sample 0 of train) */
    /* samples of a posterior: epoch is their number */
    LVNI_INVERSE_DRAW_TRUTH,
    LVNI_INVERSE_DRAW_NOISE
} lvni_inverse_stream;

typedef struct lvni_inverse_random {
    uint64_t seed;
    lvni_data_inverse_split split;
    uint32_t epoch, sample;
    lvni_inverse_stream stream;
} lvni_inverse_random;

lvni_core_rng lvni_inverse_rng(const lvni_inverse_random *random);
/* The first n standard normal numbers: each block of Philox gives two pairs of Box and Muller's. */
void lvni_inverse_normals(const lvni_inverse_random *random, size_t n, double *out);
/* The stream of a sample's noise: in training by the key's seed and epoch, else by the options. */
lvni_inverse_random lvni_inverse_noise(const lvni_data_inverse_options *options,
                                       const lvn_sample_key *key);

/* ---- every dataset begins with this ---- */

typedef struct lvni_inverse_base {
    lvn_dataset dataset;
    lvn_dataset_class cls;
    lvni_data_inverse_options o; /* paths are owned */
    int64_t count;
    char **names; /* count, of the samples of a folder; NULL: numbers */
    lvni_data_fourier *fourier;
} lvni_inverse_base;

/* Copies the options and the class, to which it adds what all have in common, and makes the
 * transform of N x N. */
lvn_status lvni_inverse_base_init(lvni_inverse_base *b, const lvni_data_inverse_options *options,
                                  const lvn_dataset_class *cls);
/* The samples of a folder; the names become the base's. */
void lvni_inverse_base_names(lvni_inverse_base *b, char **names, int64_t count);
void lvni_inverse_base_free(lvni_inverse_base *b);
int lvni_inverse_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS]);
int64_t lvni_inverse_length(const lvn_dataset *dataset);
/* LVN_ERR_INVALID: there is no such sample. */
lvn_status lvni_inverse_check_sample(const lvni_inverse_base *b, const lvn_sample_key *key);
bool lvni_inverse_builtin(const lvni_data_inverse_options *options);
const char *lvni_inverse_split_name(lvni_data_inverse_split split); /* "train" */

/* Of each kind: adds its mistakes. */
void lvni_inverse_mass_check(const lvni_data_inverse_options *options,
                             lvni_data_inverse_mistakes *out);
void lvni_inverse_mri_check(const lvni_data_inverse_options *options,
                            lvni_data_inverse_mistakes *out);
void lvni_inverse_radio_check(const lvni_data_inverse_options *options,
                              lvni_data_inverse_mistakes *out);
void lvni_inverse_mistake(lvni_data_inverse_mistakes *out, const char *key, const char *fmt, ...)
    LVN_PRINTF(3, 4);

/* The constructors; the options are checked before. */
lvn_status lvni_inverse_mass_open(const lvni_data_inverse_options *options, lvn_dataset **out);
lvn_status lvni_inverse_mri_open(const lvni_data_inverse_options *options, lvn_dataset **out);
lvn_status lvni_inverse_radio_open(const lvni_data_inverse_options *options, lvn_dataset **out);

/* ---- files ---- */

/* "<folder>/<name>", the caller's; NULL: no memory. */
char *lvni_inverse_path(const char *folder, const char *name);
/* The entries of a folder in byte order, hidden ones left out; LVN_ERR_NOT_FOUND without any. Free
 * with lvni_inverse_free_names. */
lvn_status lvni_inverse_list(const char *folder, char ***names, int64_t *n);
void lvni_inverse_free_names(char **names, int64_t n);
/* The same of the part of options->path, or that file alone where it is one and may be; *folder of
 * the names is the caller's, also on failure. */
lvn_status lvni_inverse_list_part(const lvni_data_inverse_options *options, const char *part,
                                  char **folder, char ***names, int64_t *n);
bool lvni_inverse_is_file(const lvni_data_inverse_options *options);
/* Before work: LVN_ERR_USAGE when it holds an array of another shape than (n, n). */
lvn_status lvni_inverse_check_square(const char *path, int n);
/* All n x n elements of a file; LVN_ERR_CORRUPT when it has another shape, or a
 * value is not finite. */
lvn_status lvni_inverse_read_square(const char *path, int n, lvni_data_complex *out);
/* LVN_ERR_CORRUPT where a value of the planes of side x side pixels is not finite. of: the sample
 * that they are of in the file; -1: it has no axis of samples. */
lvn_status lvni_inverse_check_finite(const char *path, int64_t of, const lvni_data_complex *x,
                                     size_t pixels, int side);

/* ---- statistics ---- */

typedef struct lvni_inverse_scale {
    double mean, std;
} lvni_inverse_scale;

/* Mean and deviation (divisor n - 1) of n numbers, added in order. LVN_ERR_CORRUPT, with the name
 * of the sample, when they are constant or not finite. */
lvn_status lvni_inverse_statistics(const lvni_inverse_base *b, int64_t sample, const double *x,
                                   size_t n, lvni_inverse_scale *out);
static inline float lvni_inverse_scaled(double v, lvni_inverse_scale s)
{
    return (float)((v - s.mean) / s.std);
}

#endif

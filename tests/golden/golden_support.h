/* What the comparison with PyTorch shares: the rule that fills weights and images (as in
 * golden_rule.py), and the golden file. */
#ifndef TESTS_GOLDEN_SUPPORT_H
#define TESTS_GOLDEN_SUPPORT_H

#include "ckpt/safetensors.h"
#include "nn/model.h"

/* Parameters and buffers by the rule of `value` in golden_rule.py. */
void golden_fill(lvni_nn_model *m, uint64_t seed, const char *last);
/* Of numbers in [-2, 2). The caller's. */
lvn_tensor *golden_tensor(uint64_t seed, const char *name, int ndim, const int64_t *shape);
/* Element e of a tensor of f32 or f64. */
void golden_set(lvn_tensor *t, int64_t e, double x);
double golden_get(const lvn_tensor *t, int64_t e);
/* 0, 1, ... modulo classes. The caller's. */
lvn_tensor *golden_labels(int64_t n, int classes);

/* A number from the file's metadata. */
int golden_number(const lvni_ckpt_st_file *f, const char *key);
/* Doubles of "prefix" "name"; the test fails where they are missing. */
const double *golden_values(const lvni_ckpt_st_file *f, const char *prefix, const char *name,
                            int64_t *n);

double golden_largest(const double *x, int64_t n); /* of magnitudes */
/* The gradient of a micro-batch's input against `want`; its last `zeros` elements are 0, and the
 * file has none of them. The test fails where two differ by more than `most`. Returns what is
 * behind those that were compared, which is the next micro-batch's. */
const double *golden_compare_input(lvn_tensor *input, const double *want, int64_t zeros,
                                   double most, const char *what);

/* Of a tensor the file has its largest magnitude, its norm and eight elements. */
enum { GOLDEN_PLACES = 8, GOLDEN_ROW = 2 + GOLDEN_PLACES };
static const double GOLDEN_GRADIENTS = 1e-4; /* tolerance, relative to the largest of the tensor */
/* The place of element j of 8 among n. */
static inline int64_t golden_place(int j, int64_t n)
{
    return (2 * (int64_t)j + 1) * n / 16;
}

/* The test fails where two differ by more than the tolerance, relative to the largest; *worst
 * becomes the largest difference so far. */
void golden_compare(const double *want, int64_t n, const float *have, double tolerance,
                    const char *what, double *worst);
/* n numbers in the order of files. `least` bounds what counts as large from below: some gradients
 * are zero except for rounding. */
void golden_compare_row_within(const double *want, const float *have, int64_t n, double tolerance,
                               const char *what, double least, double *worst);
/* The same, within GOLDEN_GRADIENTS. */
void golden_compare_row(const double *want, const float *have, int64_t n, const char *what,
                        double least, double *worst);
/* All whose numbers the file has under this prefix, `least` being a part of the largest gradient of
 * all. Return how many they are. */
int golden_compare_gradients(const lvni_ckpt_st_file *f, const char *prefix, const lvni_nn_set *set,
                             double least, double *worst);
int golden_compare_buffers(const lvni_ckpt_st_file *f, const char *prefix, const lvni_nn_model *m,
                           double tolerance);

#endif

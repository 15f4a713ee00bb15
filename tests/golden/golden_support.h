/* What the comparison with PyTorch shares: the rule that fills weights and images (as in
 * make_goldens.py), and the golden file. */
#ifndef TESTS_GOLDEN_SUPPORT_H
#define TESTS_GOLDEN_SUPPORT_H

#include "ckpt/safetensors.h"
#include "nn/model.h"

/* Parameters and buffers by the rule of `value` in make_goldens.py. */
void golden_fill(lvni_nn_model *m, uint64_t seed, const char *last);
/* (n, size, size, channels) in [-2, 2). The caller's. */
lvn_tensor *golden_image(uint64_t seed, int n, int size, int channels);
/* 0, 1, ... modulo classes. The caller's. */
lvn_tensor *golden_labels(int64_t n, int classes);

/* A number from the file's metadata. */
int golden_number(const lvni_ckpt_st_file *f, const char *key);
/* Doubles of "prefix" "name"; the test fails where they are missing. */
const double *golden_values(const lvni_ckpt_st_file *f, const char *prefix, const char *name,
                            int64_t *n);
/* The place of sample j of 8 among n elements. */
static inline int64_t golden_place(int j, int64_t n)
{
    return (2 * (int64_t)j + 1) * n / 16;
}

#endif

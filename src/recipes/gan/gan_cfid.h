/* Conditional Frechet inception distance (Soloveitchik et al. 2021, "Conditional Frechet Inception
 * Distance"): how far the distribution of samples given the measurement is from that of the truth,
 * as seen by an embedding of images into vectors. And an embedding that needs no file. */
#ifndef LEVIN_RECIPES_GAN_GAN_CFID_H
#define LEVIN_RECIPES_GAN_GAN_CFID_H

#include <levin/status.h>

typedef struct lvni_gan_cfid {
    double cfid;       /* the sum of both parts */
    double mean;       /* |m_x - m_s|^2 */
    double covariance; /* the rest */
} lvni_gan_cfid;

/* n rows: of each truth x and sample s (n, d) and of the condition y (n, k), row i of all three
 * belonging together; a truth with several samples stands there once for each.
 *
 *   CFID = |m_x - m_s|^2 + Tr[(C_xy - C_sy) C_yy^+ (C_yx - C_ys)]
 *          + Tr[C_x|y + C_s|y - 2 (C_s|y^1/2 C_x|y C_s|y^1/2)^1/2]
 *   C_x|y = C_xx - C_xy C_yy^+ C_yx
 *
 * with covariances of divisor n, pseudo-inverse ^+ without eigenvalues below k 2^-52 of the
 * largest, and the trace of the last root as the sum of the singular values of C_s|y^1/2
 * C_x|y^1/2, which is the same number and keeps its digits where covariances are singular. With
 * n <= k linearly independent conditions predict everything, and both conditional covariances
 * are 0.
 *
 * LAPACK as in levin/linalg.h. LVN_ERR_NOT_FOUND without it, LVN_ERR_INVALID for what is not
 * finite, LVN_ERR_MEMORY. */
lvn_status lvni_gan_cfid_of(int64_t n, int d, int k, const double *x, const double *s,
                            const double *y, lvni_gan_cfid *out);

/* ---- the built-in embedding ----
 *
 * A convolutional network whose weights are random and fixed: four layers of 3 x 3 convolution with
 * stride 2 and leaky ReLU, then the average over the pixels. Values are comparable between levin's
 * runs, and not with published ones, which come from a trained VGG-16. */

enum { LVNI_GAN_EMBEDDING = 32 }; /* numbers of a vector */

typedef struct lvni_gan_embedding lvni_gan_embedding;

/* For images of so many channels; the truth (or a magnitude) has 1. */
lvn_status lvni_gan_embedding_create(int channels, lvni_gan_embedding **out);
void lvni_gan_embedding_destroy(lvni_gan_embedding *embedding); /* NULL is fine */
/* image (channels, height, width), scaled by its least and largest value to 0..1 first (a constant
 * one to 0). LVN_ERR_MEMORY. */
lvn_status lvni_gan_embed(const lvni_gan_embedding *embedding, const float *image, int height,
                          int width, double out[LVNI_GAN_EMBEDDING]);

#endif

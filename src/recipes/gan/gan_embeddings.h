/* The embeddings of an evaluation: of each sample, its truth and its measurement, of which CFID is
 * computed (gan_cfid.h). Called by the evaluation and by the choice of an epoch. */
#ifndef LEVIN_RECIPES_GAN_GAN_EMBEDDINGS_H
#define LEVIN_RECIPES_GAN_GAN_EMBEDDINGS_H

#include "recipes/gan/gan_cfid.h"
#include "recipes/gan/gan_samples.h"

typedef struct lvni_gan_embeddings {
    lvni_gan_embedding *of_image, *of_measurement;
    double *x, *s, *y; /* (rows, LVNI_GAN_EMBEDDING) each */
    int64_t rows, room;
    int64_t measurements;
} lvni_gan_embeddings;

/* A zeroed one is empty, and may be freed. */
lvn_status lvni_gan_embeddings_begin(lvni_gan_embeddings *e, int in_chans);
/* All samples of the item that `work` has. */
lvn_status lvni_gan_embeddings_add(lvni_gan_embeddings *e, const lvni_gan_work *work);
/* Warns of too few measurements. */
void lvni_gan_embeddings_check(const lvni_gan_embeddings *e);
lvn_status lvni_gan_embeddings_cfid(const lvni_gan_embeddings *e, lvni_gan_cfid *out);
void lvni_gan_embeddings_free(lvni_gan_embeddings *e); /* is empty again */

#endif

/* Embeddings of all samples (gan_embeddings.h). */
#include "recipes/gan/gan_embeddings.h"

#include "core/alloc.h"
#include "log/run_log.h"

#include <string.h>

lvn_status lvni_gan_embeddings_begin(lvni_gan_embeddings *e, int in_chans)
{
    LVN_TRY(lvni_gan_embedding_create(1, &e->of_image));
    return lvni_gan_embedding_create(in_chans, &e->of_measurement);
}

void lvni_gan_embeddings_free(lvni_gan_embeddings *e)
{
    lvni_gan_embedding_destroy(e->of_image);
    lvni_gan_embedding_destroy(e->of_measurement);
    lvni_core_free(e->x);
    lvni_core_free(e->s);
    lvni_core_free(e->y);
    *e = (lvni_gan_embeddings){0};
}

static lvn_status make_room(lvni_gan_embeddings *e, int64_t rows)
{
    if (e->rows + rows <= e->room) {
        return LVN_OK;
    }
    const int64_t room = 2 * (e->rows + rows);
    double **list[] = {&e->x, &e->s, &e->y};
    for (int i = 0; i < 3; i++) {
        double *more = lvni_core_realloc(LVNI_TAG_DATA, *list[i],
                                         (size_t)(room * LVNI_GAN_EMBEDDING) * sizeof *more);
        if (more == NULL) {
            return LVN_ERR_MEMORY;
        }
        *list[i] = more;
    }
    e->room = room;
    return LVN_OK;
}

/* The measurement (H, W, C) as (C, H, W). */
static lvn_status embed_measurement(const lvni_gan_embeddings *e, const lvni_gan_work *w,
                                    double *out)
{
    const int c = w->settings->sizes.in_chans, side = w->settings->sizes.im_size;
    const float *y = w->field[LVNI_GAN_Y];
    float *planes = lvni_core_calloc(LVNI_TAG_DATA, (size_t)(w->pixels * c), sizeof *planes);
    if (planes == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < w->pixels * c; i++) {
        planes[i % c * w->pixels + i / c] = y[i];
    }
    const lvn_status s = lvni_gan_embed(e->of_measurement, planes, side, side, out);
    lvni_core_free(planes);
    return s;
}

lvn_status lvni_gan_embeddings_add(lvni_gan_embeddings *e, const lvni_gan_work *w)
{
    const int side = w->settings->sizes.im_size;
    LVN_TRY(make_room(e, w->n_samples));
    double *x = e->x + e->rows * LVNI_GAN_EMBEDDING, *y = e->y + e->rows * LVNI_GAN_EMBEDDING;
    LVN_TRY(lvni_gan_embed(e->of_image, lvni_gan_truth(w), side, side, x));
    LVN_TRY(embed_measurement(e, w, y));
    e->measurements++;
    for (int i = 0; i < w->n_samples; i++, e->rows++) {
        const int64_t at = e->rows * LVNI_GAN_EMBEDDING;
        memcpy(e->x + at, x, LVNI_GAN_EMBEDDING * sizeof *x);
        memcpy(e->y + at, y, LVNI_GAN_EMBEDDING * sizeof *y);
        LVN_TRY(lvni_gan_embed(e->of_image, w->images + i * w->pixels, side, side, e->s + at));
    }
    return LVN_OK;
}

/* n measurements have n - 1 directions around their mean; where the embedding has as many numbers,
 * a linear function of it gives each truth, and no covariance is left to be compared. */
void lvni_gan_embeddings_check(const lvni_gan_embeddings *e)
{
    const int least = LVNI_GAN_EMBEDDING + 2;
    if (e->measurements < least) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "CFID of %lld measurement%s means little: with fewer than %d the %d numbers "
                      "that each is embedded in determine its truth; use a larger split or more "
                      "data (data.count)",
                      (long long)e->measurements, lvni_core_plural(e->measurements, "", "s"), least,
                      (int)LVNI_GAN_EMBEDDING);
    }
}

lvn_status lvni_gan_embeddings_cfid(const lvni_gan_embeddings *e, lvni_gan_cfid *out)
{
    return lvni_gan_cfid_of(e->rows, LVNI_GAN_EMBEDDING, LVNI_GAN_EMBEDDING, e->x, e->s, e->y, out);
}

/* classify's part of the model card (exported.h): what prediction needs beside the weights. */
#ifndef LEVIN_RECIPES_CLASSIFY_CLASSIFY_CARD_H
#define LEVIN_RECIPES_CLASSIFY_CLASSIFY_CARD_H

#include "images/image_data.h"
#include "run/exported.h"
#include "run/weights.h"

typedef struct lvni_classify_card {
    lvni_images_trained images;
    double dropout;
} lvni_classify_card;

/* Of the row (recipe.h). */
void lvni_classify_card_write(const lvni_run_card *card, const void *own, lvni_core_str *out);
lvn_status lvni_classify_card_read(lvni_run_exported *e, const json_t *json);
void lvni_classify_card_free(void *own);
void lvni_classify_card_summary(const void *own, lvni_core_str *out);
/* LVN_ERR_USAGE when the names of classes are others, or stand in another order: labels would swap
 * unnoticed. */
lvn_status lvni_classify_card_compare(const char *path, const json_t *saved, const json_t *now);

/* Of an open model of classify. */
const lvni_classify_card *lvni_classify_card_of(const lvni_run_exported *e);
/* Network `name` of the zoo for images of this size, with as many classes as the file of weights
 * has. Its card has no names of classes. */
lvn_status lvni_classify_from_weights(const char *name, const lvni_run_weights_source *from,
                                      int image_size, lvni_run_exported **out);

#endif

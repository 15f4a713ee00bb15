/* classify's part of the model card (exported.h): what prediction needs beside the weights. */
#ifndef LEVIN_RECIPES_CLASSIFY_CLASSIFY_CARD_H
#define LEVIN_RECIPES_CLASSIFY_CLASSIFY_CARD_H

#include "data/augment.h"
#include "run/exported.h"
#include "run/weights.h"

/* Metadata of exported models and of checkpoints: the card of a classifier. */
#define LVNI_CLASSIFIER_CARD "classifier"

typedef struct lvni_classify_card {
    int image_size, n_classes;
    const char *const *class_names;
    double dropout;
    int eval_resize, eval_crop; /* evaluation: shorter side of the resized image, side of the square
                                   in its middle */
    lvni_data_filter eval_filter;
    float mean[3], std[3];
    /* With data and seed of the general part what the validation part of the training follows
     * from. */
    double val_split;
    lvni_run_card general; /* of a trained model */
} lvni_classify_card;

/* Of such a text: image_size, what evaluation does with images, mean and deviation; the rest of
 * *out stays. Cards of early versions have eval_crop as a part of the shorter side: it is resized
 * to image_size / eval_crop, bilinear. LVN_ERR_CORRUPT. */
lvn_status lvni_classify_card_read_eval(const char *text, lvni_classify_card *out);

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

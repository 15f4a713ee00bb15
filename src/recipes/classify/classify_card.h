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

/* Of the row (recipe.h). A resume is LVN_ERR_USAGE when the names of classes are others, or stand
 * in another order: labels would swap unnoticed. */
extern const lvni_run_card_format lvni_classify_card_format;
void lvni_classify_summary(const lvni_run_job *job, lvni_core_str *out);

/* Of an open model of classify. */
const lvni_classify_card *lvni_classify_card_of(const lvni_run_exported *e);
/* Network `name` of the zoo for images of this size, with as many classes as the file of weights
 * has. Its card has no names of classes. */
lvn_status lvni_classify_from_weights(const char *name, const lvni_run_weights_source *from,
                                      int image_size, lvni_run_exported **out);

#endif

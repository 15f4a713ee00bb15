/* data=: images cut into training and validation views; where they come from is in
 * image_source.h. */
#ifndef LEVIN_RECIPES_IMAGE_DATA_H
#define LEVIN_RECIPES_IMAGE_DATA_H

#include "core/config.h"
#include "data/augment.h"
#include "recipes/preprocess.h"

/* image_size val_split augment.* */
extern const lvni_core_option_table lvni_recipes_augment_options;

typedef struct lvni_recipes_image_data {
    lvn_dataset *train, *val; /* val may be NULL; prediction: only train */
    /* of the training view; evaluation and prediction: of their only view */
    lvni_data_transform transform;
    lvni_data_transform eval;           /* training: of the validation view */
    lvni_recipes_preprocess preprocess; /* training: what weights= asks for */
    /* for lvni_recipes_image_data_write_index; empty: nothing is to be written */
    lvni_core_str index;
    size_t decode_bytes, val_decode_bytes; /* that each loading thread keeps; 0: not known */
    lvni_core_str note; /* "data clothing: 341 images in 3 classes (dress 30, hat 14, ...); 273 to
                      train, 68 to validate" */
    lvni_core_str ignored; /* "ignored: 6 .webp, 1 .txt"; empty: nothing was */
    /* of the whole list, by the images' names: the same wherever the folder lies. Prediction:
     * "" */
    char identity[96];
    const char *split; /* evaluation: which part it is: all, train, val or test */
    /* evaluation of all images: how many the model was trained on, as far as it is known */
    int64_t n_trained;
} lvni_recipes_image_data;

/* For training. Free with lvni_recipes_image_data_free. */
lvn_status lvni_recipes_image_data_open(const lvni_core_config *config,
                                        lvni_recipes_image_data *out);
/* To data.index=, else as LVNI_RUN_INDEX into a run directory that is there. Nothing without one to
 * write. */
lvn_status lvni_recipes_image_data_write_index(const lvni_core_config *config,
                                               const lvni_recipes_image_data *data,
                                               const char *run);
/* For a trained model: flat, without labels (predict). */
lvn_status lvni_recipes_image_data_for_model(const lvni_core_config *config,
                                             const lvni_recipes_classifier_card *card,
                                             lvni_recipes_image_data *out);
/* For a trained model: with its classes, and the part of the data that the key `split` asks for
 * (eval). */
lvn_status lvni_recipes_image_data_for_eval(const lvni_core_config *config,
                                            const lvni_recipes_classifier_card *card,
                                            lvni_recipes_image_data *out);
void lvni_recipes_image_data_free(lvni_recipes_image_data *data);

#endif

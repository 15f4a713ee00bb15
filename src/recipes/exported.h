/* Exported models: safetensors with the names and layouts others use (convolutions OIHW), and in
 * the metadata what prediction needs. Written beside every checkpoint; read by predict, eval and
 * weights=. */
#ifndef LEVIN_RECIPES_EXPORTED_H
#define LEVIN_RECIPES_EXPORTED_H

#include "core/pins.h"
#include "core/str.h"
#include "data/augment.h"
#include "nn/model.h"

/* The model card: what prediction needs beside the weights. */
typedef struct lvni_recipes_classifier_card {
    const char *model; /* name in the zoo */
    int image_size, n_classes;
    lvni_core_pins pins; /* of the training: forward passes read some, too */
    const char *const *class_names;
    double dropout;
    int eval_resize, eval_crop; /* evaluation: shorter side of the resized image, side of the square
                                   in its middle */
    lvni_data_filter eval_filter;
    double ema_decay; /* of the average that these weights are; 0: they are none */
    float mean[3], std[3];
    /* What the validation part of the training follows from; data NULL: not known
     * (early files). */
    const char *data; /* lvni_recipes_image_data.identity */
    double val_split;
    int64_t seed;
} lvni_recipes_classifier_card;

/* Metadata of exported models and of checkpoints: the card as JSON. */
#define LVNI_CARD "classifier"
void lvni_recipes_classifier_card_print(const lvni_recipes_classifier_card *card,
                                        lvni_core_str *out);
/* Of such a text: image_size, what evaluation does with images, mean and deviation; the rest of
 * *out stays. Cards of early versions have eval_crop as a part of the shorter side: it is resized
 * to image_size / eval_crop, bilinear. LVN_ERR_CORRUPT. */
lvn_status lvni_recipes_classifier_card_read_eval(const char *text,
                                                  lvni_recipes_classifier_card *out);

/* values: of the model, laid out as its `weights`; its tensors are not used. card NULL: the
 * file holds the tensors alone. step: of the training, kept as LVNI_CKPT_STEP; -1: not kept. */
lvn_status lvni_recipes_export_model(const lvni_nn_model *model, const float *values,
                                     const lvni_recipes_classifier_card *card, int64_t step,
                                     const char *path);

typedef struct lvni_recipes_exported {
    lvni_recipes_classifier_card card;
    char *model_name, *data;
    char **class_names;          /* owned; card points at them */
    lvni_core_pin_entries *pins; /* the same */
    lvni_nn_model *model;
} lvni_recipes_exported;

/* An exported file, a checkpoint of a classifier, or a run directory
 * (exported_models/exported_<which>.safetensors; which NULL: best, else last). use_ema false: the
 * weights themselves where the file has averages; they come from the run directory's checkpoint of
 * the same name, or from the checkpoint itself, whose averages are taken otherwise. */
lvn_status lvni_recipes_exported_open(const char *path, const char *which, bool use_ema,
                                      lvni_recipes_exported **out);
/* Is there a file that lvni_recipes_exported_open would read? Nothing is opened. */
lvn_status lvni_recipes_exported_check(const char *path, const char *which);
/* Network `name` of the zoo for images of this size, with as many classes as the file at
 * `weights` has (weights.h). Its card has no names of classes. */
lvn_status lvni_recipes_exported_from_weights(const char *name, const char *weights, int image_size,
                                              lvni_recipes_exported **out);
void lvni_recipes_exported_close(lvni_recipes_exported *exported);

#endif

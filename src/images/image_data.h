/* data=: where images come from (image_source.c), how they are prepared (preprocess.c), cut into
 * training and validation views (image_data.c), and the log's summary of them (data_summary.c). */
#ifndef LEVIN_IMAGES_IMAGE_DATA_H
#define LEVIN_IMAGES_IMAGE_DATA_H

#include "core/config.h"
#include "core/str.h"
#include "data/array_images.h"
#include "data/image_folder.h"
#include "data/shapes.h"
#include "data/views.h"
#include "run/exported.h"
#include "run/ranks.h"

#include <levin/data.h>

/* ---- image_source.c: a folder, array files, or builtin:shapes ---- */

typedef struct lvni_images_source {
    lvni_data_image_scan *scan; /* a folder; NULL: none */
    /* of the folder, to be written to data.index=, else into the run directory; empty: it is there,
     * or is not kept */
    lvni_core_str index;
    lvni_data_array_images *arrays; /* array files; NULL: none; neither: shapes */
    lvni_data_shapes_options shapes;
} lvni_images_source;

extern const lvni_core_option_table lvni_images_options; /* data labels data.* */

/* Before anything is read: LVN_ERR_USAGE when data= is missing, wrong, or not there. */
lvn_status lvni_images_source_check(const lvni_core_config *config);
/* The same for a training, whose run may not lie among the classes of data=. */
lvn_status lvni_images_source_check_run(const lvni_core_config *config);
typedef struct lvni_images_opening {
    lvni_data_scan_mode mode; /* FLAT: no classes are needed */
    const char *run;          /* the directory whose index of the folder may be taken, or NULL */
    bool training;            /* an index is made where none fits */
    /* of a training: the first rank of a node lists the folder, and the others have its list; NULL:
     * alone */
    const lvni_run_rank *rank;
} lvni_images_opening;
/* The same, and with on_error=stop and in a training LVN_ERR_CORRUPT when headers are damaged,
 * LVN_ERR_USAGE when a class folder has no image; else as the openers of the kinds. */
lvn_status lvni_images_source_open(const lvni_core_config *config, const lvni_images_opening *how,
                                   lvni_images_source *out);
/* Of an open source of builtin:shapes: the keys that are not given are those of `trained`, the data
 * of a model in use (its card's; NULL: not known). */
void lvni_images_source_take_shapes(const lvni_core_config *config, const char *trained,
                                    lvni_images_source *source);
void lvni_images_source_close(lvni_images_source *source);
/* data.exif=: images keep the orientation in which they are stored (lvni_data_transform.as_stored).
 * Where the key is not given that of `trained`, a model in use; NULL: there is none. */
bool lvni_images_source_as_stored(const lvni_core_config *config, const bool *trained);

/* Photos are cropped at random and come in 224; small images and shapes are used whole, in their
 * own size or 32. */
void lvni_images_source_transform(const lvni_images_source *source, lvni_data_transform *out);
lvn_status lvni_images_source_view(const lvni_images_source *source, const int64_t *indices,
                                   int64_t n, const lvni_data_transform *transform,
                                   lvn_dataset **out);
/* Several views of each image (data/views.h). */
lvn_status lvni_images_source_views(const lvni_images_source *source, const int64_t *indices,
                                    int64_t n, const lvni_data_views *views, lvn_dataset **out);
/* A validation part of its own. */
bool lvni_images_source_has_parts(const lvni_images_source *source);
/* Indices of the test part (lvni_core_free); *n 0: there is none. */
lvn_status lvni_images_source_test(const lvni_images_source *source, int64_t **part, int64_t *n);
/* What of a folder was passed over: "6 .webp, 1 .txt; folders docs", appended; nothing where
 * nothing was. */
void lvni_images_source_print_ignored(const lvni_images_source *source, lvni_core_str *out);
/* Indices of training and validation (lvni_core_free): the source's own parts, or a seeded
 * split. */
lvn_status lvni_images_source_cut(const lvni_images_source *source,
                                  const lvni_data_transform *transform, double val_split,
                                  uint64_t seed, int64_t *part[2], int64_t n[2]);
/* An identity (below) as messages write it; returns out. */
const char *lvni_images_source_identity_text(const char *identity, char out[96]);
/* Which images these are, wherever they lie: a test part does not count. */
lvn_status lvni_images_source_identify(const lvni_images_source *source,
                                       const lvni_data_transform *transform, char identity[96]);
/* Number the classes as a trained model does. */
lvn_status lvni_images_source_relabel(const lvni_images_source *source,
                                      const char *const *class_names, int n_classes);

/* ---- preprocess.c: how evaluation and prediction prepare an image, from keys, the file of
 * weights=, and the card of a trained model; the same for validation, eval and predict ---- */

/* eval.resize ... normalize.std */
extern const lvni_core_option_table lvni_images_preprocess_options;

/* From eval.preset= or the file of weights=; keys that are given take precedence. */
typedef struct lvni_images_preprocess {
    double crop_pct; /* crop over shorter side; 0: lvni_data_transform_resize */
    lvni_data_filter filter;
    float mean[3], std[3];
    bool from_weights; /* from the file, or from the network it holds */
} lvni_images_preprocess;

/* Of a file of weights, as weights= takes it; known false: of a file of levin that does not record
 * it. One that cannot be read is as torchvision's: loading it reports why. */
lvn_status lvni_images_preprocess_of_file(const char *weights, lvni_images_preprocess *out,
                                          bool *known);

/* The transforms of training and validation, from a training transform with its size. photos:
 * resized and cropped by default, not taken whole. Reports what comes from the file of weights=.
 * LVN_ERR_USAGE. */
lvn_status lvni_images_preprocess_train(const lvni_core_config *config, bool photos,
                                        lvni_images_preprocess *found, lvni_data_transform *train,
                                        lvni_data_transform *eval);
/* Keys that are auto get what came from the file of weights=: later starts of the run may not have
 * it. eval: what lvni_images_preprocess_train made of it. */
lvn_status lvni_images_preprocess_resolve(lvni_core_config *config,
                                          const lvni_images_preprocess *found,
                                          const lvni_data_transform *eval);
/* What evaluation does with an image, as the card of a trained model has it. */
typedef struct lvni_images_eval {
    int image_size;   /* of the training */
    int resize, crop; /* shorter side of the resized image, side of the square in its middle */
    lvni_data_filter filter;
    float mean[3], std[3];
    bool as_stored; /* without the turn that Exif asks for */
} lvni_images_eval;

/* Members of a card behind image_size: eval, mean, std, appended with a comma in front. */
void lvni_images_eval_write(const lvni_images_eval *eval, lvni_core_str *out);
/* Of such a card. Cards of early versions have eval_crop as a part of the shorter side: it is
 * resized to image_size / eval_crop, bilinear. LVN_ERR_CORRUPT. */
lvn_status lvni_images_eval_read(const json_t *card, lvni_images_eval *out);
lvn_status lvni_images_eval_read_text(const char *card, lvni_images_eval *out);

/* What a trained model keeps of its images. */
typedef struct lvni_images_trained {
    lvni_images_eval eval;
    int n_classes;
    const char *const *class_names;
    /* With data and seed of the general part what the validation part of the training follows
     * from. */
    double val_split;
    lvni_run_card general;
} lvni_images_trained;

/* For a trained model: from its card, except for keys that are given. */
lvn_status lvni_images_preprocess_use(const lvni_core_config *config,
                                      const lvni_images_trained *card, lvni_data_transform *out);
/* LVN_ERR_USAGE when the network needs images of the size it was trained with, and eval.crop is
 * another. */
lvn_status lvni_images_preprocess_check_size(const lvni_core_config *config, const char *model,
                                             int image_size, int crop);
/* LVN_ERR_USAGE for any of these keys on the command line of a command that uses none. */
lvn_status lvni_images_preprocess_no_effect(const lvni_core_config *config, const char *why);

/* ---- image_data.c: views of parts ---- */

/* image_size val_split augment.* */
extern const lvni_core_option_table lvni_images_augment_options;

typedef struct lvni_images_data {
    lvn_dataset *train, *val; /* val may be NULL; prediction: only train */
    /* of the training view; evaluation and prediction: of their only view */
    lvni_data_transform transform;
    lvni_data_transform eval;          /* training: of the validation view */
    lvni_images_preprocess preprocess; /* training: from weights= */
    /* for lvni_images_data_write_index; empty: nothing is to be written */
    lvni_core_str index;
    uint64_t files; /* training: a number for what the files hold; 0: they are none */
    /* training: of all images, which the start has accepted; evaluation and prediction: they are
     * photos, of which a training reads them */
    bool headers_read;
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
} lvni_images_data;

/* For training, on one of `ranks` (NULL: alone). Free with lvni_images_data_free. */
lvn_status lvni_images_data_open(const lvni_core_config *config, const lvni_run_ranks *ranks,
                                 lvni_images_data *out);
/* For training without classes: all images, each in several views. side: of the images where no key
 * gives their size. */
typedef lvn_status lvni_images_make_views(lvni_core_config *config, int side, lvni_data_views *out);
lvn_status lvni_images_data_open_views(lvni_core_config *config, const lvni_run_ranks *ranks,
                                       lvni_images_make_views *make, lvni_images_data *out);
/* To data.index=, else as LVNI_RUN_INDEX into a run directory that is there. Nothing without one to
 * write. */
lvn_status lvni_images_data_write_index(const lvni_core_config *config,
                                        const lvni_images_data *data, const char *run);
/* For a trained model: flat, without labels (predict). */
lvn_status lvni_images_data_for_model(const lvni_core_config *config,
                                      const lvni_images_trained *card, lvni_images_data *out);
/* For a trained model: with its classes, and the part of the data that split= selects (eval). */
lvn_status lvni_images_data_for_eval(const lvni_core_config *config,
                                     const lvni_images_trained *card, lvni_images_data *out);
void lvni_images_data_free(lvni_images_data *data);

/* ---- data_summary.c ---- */

/* Appended, without the images whose headers are damaged (scan NULL: none): "76 images in 2 classes
 * (cat 36, dog 40) and 4 that cannot be used; 61 to train, 15 to validate"; of more than 20 classes
 * "(smallest: apron 12, largest: shirt 98)". val may be NULL. */
lvn_status lvni_images_counts_print(const lvni_data_image_scan *scan, const lvn_dataset *train,
                                    const lvn_dataset *val, lvni_core_str *out);
/* The same where classes do not matter: "76 images and 4 that cannot be used". */
lvn_status lvni_images_total_print(const lvni_data_image_scan *scan, const lvn_dataset *train,
                                   lvni_core_str *out);
/* Classes with images to train on and none to validate, appended: "hat, coat, and 3 more". Nothing
 * where there are none. */
lvn_status lvni_images_class_counts_unvalidated(const lvn_dataset *train, const lvn_dataset *val,
                                                lvni_core_str *out);
/* Classes of a folder of whose images none can be read, by their headers, appended in the same
 * way. */
lvn_status lvni_images_class_counts_unreadable(const lvni_data_image_scan *scan,
                                               lvni_core_str *out);
/* "; images from 80x60 to 640x427 pixels, 24.1 MB of files", appended; nothing where the
 * headers were not read, or all are damaged. */
void lvni_images_sizes_print(const lvni_data_image_scan *scan, lvni_core_str *out);
/* Bytes that one thread keeps for files and pixels on the way through `transform`: its random
 * crops, or what evaluation takes; 0: not known. */
size_t lvni_images_sizes_decode(const lvni_data_image_scan *scan,
                                const lvni_data_transform *transform, bool crops);
/* The same on the way through several views of an image decoded once. */
size_t lvni_images_sizes_decode_views(const lvni_data_image_scan *scan,
                                      const lvni_data_views *views);

#endif

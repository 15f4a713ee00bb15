/* The recipe `pretrain`: self-supervised pretraining of an image backbone. pretrain.c is the row of
 * the registry; keys are pretrain_keys.c's, views pretrain_views.c's. A method is
 * a row with a root class of its own (lvni_pretrain_method_find), whose build() gets
 * lvni_pretrain_settings. */
#ifndef LEVIN_RECIPES_PRETRAIN_PRETRAIN_H
#define LEVIN_RECIPES_PRETRAIN_PRETRAIN_H

#include "core/config.h"
#include "data/views.h"
#include "nn/model.h"
#include "run/recipe.h"

struct lvni_images_source; /* images/image_data.h */

/* Numbers of method=dino, named as its keys. */
typedef struct lvni_pretrain_dino_settings {
    int64_t bottleneck_dim;
    bool norm_last_layer;
    double student_temp, teacher_temp, warmup_teacher_temp, center_momentum;
    double momentum_start, momentum_end;
    int64_t warmup_teacher_temp_steps;
} lvni_pretrain_dino_settings;

/* Numbers of method=dinov2, beside those of dino, named as its keys. */
typedef struct lvni_pretrain_dinov2_settings {
    bool ibot_separate_head, sinkhorn_knopp;
    int64_t ibot_bottleneck_dim;
    double dino_loss_weight, ibot_loss_weight, koleo_loss_weight;
    double mask_probability, mask_ratio_min, mask_ratio_max;
} lvni_pretrain_dinov2_settings;

/* Numbers of method=distillation, named as its keys. */
typedef struct lvni_pretrain_distill_settings {
    /* 1: against the queue; 2: feature maps; 3: against the queue, and within the map */
    int version;
    const char *teacher; /* as the zoo has it */
    bool taught;         /* false: a model in use, which has no teacher */
    int64_t queue_size;
    double temperature_global, temperature_local, loss_local_weight;
    int64_t n_teacher_blocks, n_projection_layers, projection_hidden_dim;
} lvni_pretrain_distill_settings;

/* What a root is built of; lives as long as the job. */
typedef struct lvni_pretrain_settings {
    const char *model; /* of the backbone, as the zoo has it */
    lvni_nn_zoo_arguments backbone;
    int embed_dim; /* 0: what the backbone gives */
    /* the projection head: widths, number of linear layers, whether each has a batch norm */
    int64_t hidden_dim, output_dim, num_layers;
    bool batch_norm;
    double temperature;
    lvni_pretrain_dino_settings dino; /* of that method, and of dinov2 */
    lvni_pretrain_dinov2_settings dinov2;
    lvni_pretrain_distill_settings distill;
} lvni_pretrain_settings;

/* Of keys that an optimizer, by its name, begins from. */
typedef struct lvni_pretrain_optim {
    const char *name, *defaults;
} lvni_pretrain_optim;

#define LVNI_PRETRAIN_TEACHER "teacher" /* the module of the root */

/* What automatic values follow from. */
typedef struct lvni_pretrain_scale {
    int64_t images, batch, steps; /* batch: of a step. steps INT64_MAX: the run has no end */
    int64_t micro_batches;        /* of a step; 0: no training */
} lvni_pretrain_scale;

typedef struct lvni_pretrain_method {
    const char *name, *views; /* of method=, of the preset of its views (images/view_presets.h) */
    const lvn_module_class *cls;
    const char *args; /* the method_args.* that it has, each with a blank behind it */
    const char *optimizer, *defaults;
    lvni_pretrain_optim optim[4]; /* where the method has numbers of its own; names NULL: no more */
    const char *transformer_adamw; /* adamw's of a transformer; NULL: the same */
    bool of_these;                 /* it trains with those alone */
    bool limits_steps;             /* its automatic numbers of steps, unless exact=true */
    /* Of a run: where neither max_epochs nor max_steps is given, so many, and fewer are a warning;
     * 0: the recipe's max_epochs */
    int64_t usual_steps;
    /* Modules of the root: the backbone that is exported, and where it is not the one that is
     * trained, that one (lvni_run_job). */
    const char *exported_part, *trained_part;
    /* What may help against features that are alike, beside optim.lr and batch_size. */
    const char *advice;
    /* NULL: nothing but numbers is needed. Adds mistakes of a training's configuration. */
    void (*check)(lvni_core_config *config);
    /* Sets the automatic values that are not given. */
    lvn_status (*resolve)(lvni_core_config *config, const lvni_pretrain_scale *scale);
} lvni_pretrain_method;

/* ---- pretrain_methods.c ---- */

/* NULL: there is no such method. */
const lvni_pretrain_method *lvni_pretrain_method_find(const char *name);

/* ---- pretrain_method_keys.c ---- */

extern const lvni_core_option_table lvni_pretrain_method_options; /* method_args.* */

/* ---- pretrain_mistakes.c ---- */

/* By arguments, or by a file in another way than as it is without. An alias: under that name. */
bool lvni_pretrain_is_given(const lvni_core_config *config, const lvni_core_option *row);
/* Adds mistakes: numbers of other methods, an optimizer that it does not train with. */
void lvni_pretrain_method_check(lvni_core_config *config, const lvni_pretrain_method *method);
void lvni_pretrain_check_distillation(lvni_core_config *config); /* lvni_pretrain_method.check */

/* ---- pretrain_resolve.c ---- */

/* lvni_pretrain_method.resolve */
lvn_status lvni_pretrain_resolve_simclr(lvni_core_config *c, const lvni_pretrain_scale *scale);
lvn_status lvni_pretrain_resolve_dino(lvni_core_config *c, const lvni_pretrain_scale *scale);
lvn_status lvni_pretrain_resolve_distillation(lvni_core_config *c,
                                              const lvni_pretrain_scale *scale);
/* For these: a value, and one where none is given. */
lvn_status lvni_pretrain_set_number(lvni_core_config *c, const char *key, double value);
lvn_status lvni_pretrain_resolve(lvni_core_config *c, const char *key, double value);
/* The same with `usual` steps, at most a part of the run, unless exact=true. */
lvn_status lvni_pretrain_resolve_limited(lvni_core_config *c, const char *key, int64_t usual,
                                         const lvni_pretrain_scale *scale, double part);
/* scheduler.warmup_steps where no warm-up is given; none for a schedule that rises by itself. */
lvn_status lvni_pretrain_resolve_warmup(lvni_core_config *c, double steps);
/* PATTERN=NUMBER in a list of them, beside what is given; of, a key: where it comes from. A saved
 * run has it already. */
lvn_status lvni_pretrain_add_rule(lvni_core_config *c, const char *list, const char *pattern,
                                  double number, const char *of);
#define LVNI_PRETRAIN_LAST_LAYER "student.projection_head.last_layer.*"

/* ---- pretrain_dinov2_keys.c ---- */

lvn_status lvni_pretrain_resolve_dinov2(lvni_core_config *c, const lvni_pretrain_scale *scale);
void lvni_pretrain_check_dinov2(lvni_core_config *c);
lvni_pretrain_dinov2_settings lvni_pretrain_read_dinov2(const lvni_core_config *c);

/* ---- pretrain_keys.c ---- */

extern const lvni_core_option_table *const lvni_pretrain_train_keys[];
/* Where the value of resume is from when resume_interrupted=true has found no run. */
#define LVNI_PRETRAIN_BEGINS "there is no run yet"
/* Defaults of the method, and what is missing: lvni_run_defaults.prepare. */
lvn_status lvni_pretrain_prepare(lvni_core_config *config);
/* The same without images: lvni_run_defaults.prepare_export. */
lvn_status lvni_pretrain_prepare_export(lvni_core_config *config);
/* backbone: with the side of an image, of a run that has resolved it. */
void lvni_pretrain_read_settings(const lvni_core_config *config, lvni_pretrain_settings *out);

/* ---- pretrain_auto.c ---- */

/* "auto: max_epochs 100 (method=simclr), ...": what is not given, in the order in which it is
 * decided, with the reason of each; with the views resolved. */
lvn_status lvni_pretrain_print_choices(const lvni_run_job *job, lvni_core_str *out);

/* ---- pretrain_warnings.c ---- */

/* With all values resolved, on rank 0: what is allowed and seldom meant. */
lvn_status lvni_pretrain_warn(const lvni_run_job *job, const lvni_pretrain_settings *settings,
                              const lvni_pretrain_scale *scale);

/* ---- pretrain_teacher.c ---- */

/* The teacher's weights into a rank's model, from the file of the same hash at every start:
 * lvni_run_job.complete. */
lvn_status lvni_pretrain_load_teacher(const lvni_run_job *job, lvni_nn_model *model);

/* ---- pretrain_views.c ---- */

extern const lvni_core_option_table lvni_pretrain_transform_options; /* transform_args.* */

/* The view that measures an image, as `keys` of a training have it; photos are resized and cropped
 * in their middle. side: 0, or another size than that of the training. */
void lvni_pretrain_eval_view(const lvni_core_config *keys, bool photos, int side,
                             lvni_data_transform *out);
/* Channels of a view, which the backbone takes. */
int lvni_pretrain_channels(const lvni_core_config *keys);
/* LVN_ERR_USAGE for keys of channels that do not fit each other, or the backbone. */
lvn_status lvni_pretrain_check_channels(const lvni_core_config *keys);
/* The views of method=, changed by transform_args.*, of which all are resolved; side: of the images
 * where no image_size is given. LVN_ERR_USAGE. */
lvn_status lvni_pretrain_read_views(lvni_core_config *config, int side, lvni_data_views *out);

/* ---- pretrain_embedding.c ---- */

/* A backbone and the layer that embed_dim= adds behind it. */
typedef struct lvni_pretrain_embedding {
    const lvn_module *backbone, *layer; /* layer NULL: none */
    int64_t features;                   /* of the result */
} lvni_pretrain_embedding;

/* What the roots of all methods begin with. */
typedef struct lvni_pretrain_root {
    lvn_module base;
    lvni_pretrain_embedding embedding;
} lvni_pretrain_root;

/* In build(): children `backbone` and `embedding`, of a child named `of` ("student") where that is
 * not NULL; blocks: each begins a block. */
void lvni_pretrain_embedding_build(lvn_builder *b, const char *of, bool blocks,
                                   const lvni_pretrain_settings *s, lvni_pretrain_embedding *out);
/* Images (N, H, W, 3) -> the map (N, h, w, features) and (N, features). */
lvni_nn_features lvni_pretrain_embed_map(const lvni_pretrain_embedding *e, lvn_tensor *images);
/* Images (N, H, W, 3) -> (N, features). */
lvn_tensor *lvni_pretrain_embed(const lvni_pretrain_embedding *e, lvn_tensor *images);
/* Views (N, V, H, W, 3) as images (N V, H, W, 3): row i V + v is view v of sample i. */
lvn_tensor *lvni_pretrain_images(lvn_tensor *views);
/* first, first + 1, ..., n numbers along an axis of two; made where the step is computed, so that a
 * step copies nothing to the device. */
lvn_tensor *lvni_pretrain_count_up(int64_t first, int64_t n, int axis);
/* Rows x / |x|, with 1e-12 for smaller lengths. */
lvn_tensor *lvni_pretrain_unit_rows(lvn_tensor *x);
/* Logs feature_std, the mean over features of the deviation of unit rows within the micro-batch,
 * times the square root of their number: near 1 where rows point everywhere, 0 where they have
 * collapsed into one point. images: that the rows are views of; views of one are alike by rights,
 * and do not count. */
void lvni_pretrain_log_spread(lvn_step *step, lvn_tensor *features, int64_t images);
/* A warning, once, when feature_std, or what a teacher's answers show of the image
 * (teacher_information, of methods with a teacher), is below LVNI_PRETRAIN_COLLAPSED in two log
 * records in a row; the trainer's hooks, of rank 0. */
#define LVNI_PRETRAIN_COLLAPSED 0.05
typedef struct lvni_pretrain_watch {
    int64_t every;      /* log_every_n_steps */
    int64_t from;       /* records of steps before it are not looked at */
    int64_t step;       /* the newest, with its metrics; NaN: it has none */
    const char *advice; /* of the method: an argument that it has */
    double spread, information;
    int below, uninformed; /* records */
} lvni_pretrain_watch;
lvni_trainer_hooks lvni_pretrain_watch_hooks(lvni_pretrain_watch *watch);

/* ---- pretrain_rows.c ---- */

/* Images whose features are computed: references, and behind them the queries. */
typedef struct lvni_pretrain_images_used {
    lvn_dataset *data;
    int64_t references; /* the samples before the first query */
    /* of a page: how many there are in all, and how the network sees them */
    int64_t all;
    lvni_data_transform view;
} lvni_pretrain_images_used;
enum { LVNI_PRETRAIN_SHOWN = 200 }; /* of a page at most, evenly spaced among all */

typedef struct lvni_pretrain_place {
    int64_t label; /* the class */
    bool is_reference;
} lvni_pretrain_place;
/* What the next row is of, in the order of the data, in which samples may be missing; *at: 0 at
 * first. LVN_ERR_NON_FINITE names the image. */
lvn_status lvni_pretrain_images_place(const lvni_pretrain_images_used *of, int64_t *at,
                                      int64_t sample, const float *value, int64_t dim,
                                      lvni_pretrain_place *out);
/* LVN_ERR_NON_FINITE alone. */
lvn_status lvni_pretrain_check_row(const lvn_dataset *data, int64_t sample, const float *value,
                                   int64_t dim);
/* |x|, with 1e-12 for smaller ones. */
double lvni_pretrain_row_length(const float *value, int64_t n);
/* Is the label's number among the k largest ones? Of equal ones the first come first; NaN is not
 * among them. */
bool lvni_pretrain_is_among(const double *value, int64_t n, int64_t label, int k);

/* ---- pretrain_votes.c ---- */

typedef struct lvni_pretrain_votes lvni_pretrain_votes;
typedef struct lvni_pretrain_votes_count {
    int64_t references, queries, k; /* that were seen; k: at most the references */
    int64_t first, five;            /* queries that are right with one guess, with five */
} lvni_pretrain_votes_count;

/* keys: k, temperature. *out is destroyed in any case. */
lvn_status lvni_pretrain_votes_create(const lvni_core_config *keys,
                                      const lvni_pretrain_images_used *of,
                                      lvni_pretrain_votes **out);
void lvni_pretrain_votes_destroy(lvni_pretrain_votes *votes); /* NULL is fine */
/* Features of the next sample in the order of the data, in which samples may be missing.
 * LVN_ERR_NON_FINITE. */
lvn_status lvni_pretrain_votes_add(lvni_pretrain_votes *votes, int64_t sample, const float *value,
                                   int64_t dim);
lvni_pretrain_votes_count lvni_pretrain_votes_result(const lvni_pretrain_votes *votes);
/* The effective rank (Roy & Vetterli 2007, "The effective rank: a measure of effective
 * dimensionality": exp of the entropy of the normalised singular values) of the unit rows of the
 * first 256 references: 1 where all have one direction. LVN_ERR_NOT_FOUND: no LAPACK
 * (levin/linalg.h). */
lvn_status lvni_pretrain_votes_rank(const lvni_pretrain_votes *votes, double *out);

/* ---- pretrain_held.c: knn.data=, images with classes that a training is measured on ---- */

typedef struct lvni_pretrain_held {
    lvni_core_config *keys; /* as those of `eval`; NULL: there is no knn.data= */
    lvni_pretrain_images_used images;
    size_t decode_bytes; /* that each loading thread keeps */
    bool photos;
    int narrow;        /* evaluations in a row whose effective rank was too small */
    bool rank_missing; /* that it cannot be computed */
} lvni_pretrain_held;

extern const lvni_core_option_table lvni_pretrain_held_options; /* knn.* */
/* With a configuration whose views are resolved. Freed with lvni_pretrain_held_close in any
 * case. */
lvn_status lvni_pretrain_held_open(const lvni_core_config *config, lvni_pretrain_held *out);
void lvni_pretrain_held_close(lvni_pretrain_held *held);
/* References and queries: train/ and val/, or where there are none the part that val_split keeps.
 * keys: of `eval`; seed: of the cut. */
lvn_status lvni_pretrain_open_parts(const lvni_core_config *keys, uint64_t seed,
                                    const struct lvni_images_source *source,
                                    const lvni_data_transform *view,
                                    lvni_pretrain_images_used *out);

/* ---- pretrain_page.c: what `levin report` shows ---- */

/* Places of n rows (n, dim) along their first two principal components, and the parts of the
 * variance that these explain. LVN_ERR_NOT_FOUND: no LAPACK (levin/linalg.h). */
lvn_status lvni_pretrain_map(const float *row, int n, int64_t dim, double (*at)[2], double part[2]);

/* ---- pretrain_probe.c: a linear classifier on features ---- */

typedef struct lvni_pretrain_probe_images {
    const float *feature; /* (n, dim) */
    const int64_t *label; /* (n), of `classes` */
    int64_t n, dim, classes;
} lvni_pretrain_probe_images;
typedef struct lvni_pretrain_probe_options {
    int64_t epochs, batch_size; /* of fewer images all */
    double lr;                  /* of 256 images */
    double momentum, weight_decay;
    uint64_t seed; /* of the order of images */
    /* After each epoch; loss: the mean of its steps. NULL: nothing. Another status than LVN_OK
     * ends it. */
    lvn_status (*epoch)(void *user, int64_t epoch, double loss);
    void *user;
} lvni_pretrain_probe_options;
/* Rows of `feature` (n, dim), which those of the images may be of, each feature with mean 0 and
 * deviation 1 over the images, or as it is where its deviation is 0. */
void lvni_pretrain_probe_standardize(const lvni_pretrain_probe_images *images, float *feature,
                                     int64_t n);
/* Trains weight (classes, dim) and bias (classes), which are the caller's and begin as they are,
 * with SGD and a cosine to a thousandth, on the lane of the calling thread. A last batch that is
 * incomplete is left out of its epoch. LVN_ERR_NON_FINITE names the epoch in which it diverges. */
lvn_status lvni_pretrain_probe_train(const lvni_pretrain_probe_images *images,
                                     const lvni_pretrain_probe_options *options, lvn_tensor *weight,
                                     lvn_tensor *bias);
typedef struct lvni_pretrain_probe_count {
    int64_t n, first, five; /* right with one guess, with five */
} lvni_pretrain_probe_count;
lvn_status lvni_pretrain_probe_measure(const lvni_pretrain_probe_images *images, lvn_tensor *weight,
                                       lvn_tensor *bias, lvni_pretrain_probe_count *out);

/* ---- a trained model: pretrain_knn.c, pretrain_linear.c, and features of `predict`:
 * pretrain_embed.c ---- */

extern const lvni_core_option_table *const lvni_pretrain_eval_keys[];
/* Logs val/knn. */
lvni_trainer_evaluation lvni_pretrain_evaluation(lvni_pretrain_held *held);
lvni_pretrain_images_used lvni_pretrain_used(const lvni_run_job *job);

extern const lvni_core_option_table lvni_pretrain_embed_options, lvni_pretrain_output_options,
    lvni_pretrain_knn_options, lvni_pretrain_parts_options, lvni_pretrain_linear_options;
/* Features (N, K) of a batch. */
lvn_tensor *lvni_pretrain_features(const lvn_module *root, const lvn_batch *batch, void *user);
extern const struct lvni_run_results lvni_pretrain_embeddings, lvni_pretrain_knn,
    lvni_pretrain_linear, lvni_pretrain_page;

/* ---- the methods ---- */

extern const lvn_module_class lvni_pretrain_simclr;  /* pretrain_simclr.c */
extern const lvn_module_class lvni_pretrain_dino;    /* pretrain_dino.c */
extern const lvn_module_class lvni_pretrain_dinov2;  /* pretrain_dinov2.c */
extern const lvn_module_class lvni_pretrain_distill; /* pretrain_distill.c */

/* The parts of distillation's losses (LightlyTrain's methods distillationv1 and v3).
 *
 * The mean over rows of the divergence of the student's distribution from the teacher's, each being
 * softmax over the teacher's features of other images: `teacher`, `student` (N, F), rows of length
 * 1. The others are `current` (G, F), of all images of the step, and the newest of the rows of
 * `queue` (Q, F), Q in all; next (1): the row of the queue that is the oldest. */
lvn_tensor *lvni_pretrain_distill_global(lvn_tensor *teacher, lvn_tensor *student,
                                         lvn_tensor *current, lvn_tensor *queue, lvn_tensor *next,
                                         double temperature);
/* The same over the positions of an image's own map, mean over positions: (N, P, F), rows of length
 * 1. */
lvn_tensor *lvni_pretrain_distill_local(lvn_tensor *teacher, lvn_tensor *student,
                                        double temperature);

/* NT-Xent (Chen et al. 2020, "A simple framework for contrastive learning of visual
 * representations", eq. 1) of the rows of two views (N, P), each of unit length, against those of
 * all micro-batches of the group: the mean over the 2N rows of the cross entropy between the row's
 * cosines, divided by the temperature, and its partner among the 2G - 1 others. *accuracy: how
 * often the partner is the nearest. */
lvn_tensor *lvni_pretrain_nt_xent(lvn_tensor *first, lvn_tensor *second, double temperature,
                                  lvn_tensor **accuracy);

extern const lvni_run_recipe lvni_pretrain_recipe, lvni_pretrain_linear_recipe,
    lvni_pretrain_page_recipe;

#endif

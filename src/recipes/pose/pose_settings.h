/* What the keys of the recipe pose amount to (pose_keys.h), for the files that do it. */
#ifndef LEVIN_RECIPES_POSE_POSE_SETTINGS_H
#define LEVIN_RECIPES_POSE_POSE_SETTINGS_H

#include "core/config.h"

typedef enum lvni_pose_model_type {
    LVNI_POSE_HEATMAP,
    LVNI_POSE_REGRESSION,
    LVNI_POSE_CONTEXT,
    LVNI_POSE_MULTIVIEW
} lvni_pose_model_type;

/* In the order of lvni_pose_unsupervised_names. */
typedef enum lvni_pose_unsupervised {
    LVNI_POSE_PCA_SINGLEVIEW,
    LVNI_POSE_PCA_MULTIVIEW,
    LVNI_POSE_TEMPORAL,
    LVNI_POSE_TEMPORAL_MSE,
    LVNI_POSE_TEMPORAL_KL
} lvni_pose_unsupervised;
enum { LVNI_POSE_UNSUPERVISED = 5, LVNI_POSE_VIEWS = 16 };
extern const char *const lvni_pose_unsupervised_names[LVNI_POSE_UNSUPERVISED];

typedef struct lvni_pose_unsupervised_settings {
    bool used;
    double log_weight;
    /* of pca */
    double components;                    /* a part of the variance, or a count */
    bool components_counted, has_epsilon; /* else it is from the labels */
    double pca_epsilon, epsilon_percentile, epsilon_multiplier;
    int centering; /* 0 none, 1 mean, 2 median */
    /* of temporal: one number, or one per keypoint; borrowed from the configuration */
    const double *epsilon;
    size_t n_epsilon;
    double prob_threshold;
} lvni_pose_unsupervised_settings;

/* The epoch at which the backbone begins to learn where no key gives one. */
enum { LVNI_POSE_UNFREEZING = 20 };

typedef struct lvni_pose_settings {
    /* data; texts are borrowed from the configuration */
    const char *data_dir, *csv_file, *video_dir, *split; /* NULL: unset */
    int height, width, keypoints, downsample;            /* 0: unset */
    const char *const *names;                            /* keypoints of them; NULL: the labels' */
    int views, matched;         /* of mirrored_column_matches: (views, matched) */
    int *match;                 /* owned; NULL: none */
    const int64_t *pca_columns; /* n_pca_columns of them; NULL: all */
    size_t n_pca_columns;

    /* training */
    const char *imgaug; /* a name, or the map as JSON */
    bool hflip;
    double train_prob, val_prob, train_frames;
    uint64_t seed_data, seed_model;
    bool unfreezing_in_steps;
    int64_t unfreezing;          /* epoch or step */
    int64_t ckpt_every_n_epochs; /* 0: none */
    bool uniform_for_nan;

    /* model */
    lvni_pose_model_type type;
    const char *backbone;  /* as it is called: resnet50_animal_ap10k */
    const char *zoo_model; /* the architecture: resnet50 */
    bool pretrained;
    int loss; /* lvni_pose_loss of pose_loss.h: mse, kl, js */

    /* frames without labels */
    int64_t clip, predict_clip, context_clip, context_predict_clip;
    uint64_t clip_seed;
    lvni_pose_unsupervised_settings unsupervised[LVNI_POSE_UNSUPERVISED];
    double anneal_init, anneal_increase, anneal_final;
    int64_t anneal_from_epoch;

    /* evaluation */
    bool predict_videos, save_videos;
    const char *test_videos; /* NULL: unset */
    const char *colormap;
    double draw_threshold;
    const char *draw_frames; /* "all" or a number, as PNG files; NULL: a video */
} lvni_pose_settings;

lvn_status lvni_pose_settings_read(const lvni_core_config *config, lvni_pose_settings *out);
void lvni_pose_settings_free(lvni_pose_settings *settings);

/* "[[0,1],[2,3]]" as a (views, matched) table, the caller's (lvni_core_free). LVN_ERR_INVALID: it
 * is not one, *wrong has a sentence about it. */
lvn_status lvni_pose_matches_read(const char *text, int *views, int *matched, int **match,
                                  const char **wrong);
/* "0.99" is a part, "3" a count; false: it is neither. */
bool lvni_pose_components_read(const char *text, double *value, bool *counted);

#endif

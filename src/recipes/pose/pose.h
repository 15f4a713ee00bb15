/* The recipe pose: where keypoints are in images, from labelled frames (Biswas et al. 2024,
 * "Lightning Pose"). Keys are those of Lightning Pose's configuration files (pose_keys.c); frames
 * are read by pose_frames.c, the network is pose_network.c's, and
 * what a step does is pose_module.c's. */
#ifndef LEVIN_RECIPES_POSE_POSE_H
#define LEVIN_RECIPES_POSE_POSE_H

#include "recipes/pose/pose_cut.h"
#include "recipes/pose/pose_labels.h"
#include "recipes/pose/pose_loss.h"
#include "recipes/pose/pose_network.h"
#include "recipes/pose/pose_pca.h"
#include "recipes/pose/pose_settings.h"
#include "run/inference.h"

#include <limits.h>

extern const lvni_run_recipe lvni_pose_recipe;

/* ---- pose_images.c ---- */

typedef struct lvni_pose_images {
    uint64_t files;     /* a hash of the files' sizes and ends (contents.h) */
    size_t most_pixels; /* of the largest frame */
} lvni_pose_images;
/* Of frame i, from its head. path: room for its path, to be freed. */
typedef struct lvni_pose_frame_head {
    int width, height;
    size_t bytes; /* of the file */
} lvni_pose_frame_head;
lvn_status lvni_pose_images_head(const lvni_pose_labels *labels, const char *folder, int64_t i,
                                 lvni_core_str *path, lvni_pose_frame_head *out);
/* Whether all of it can be decoded. */
lvn_status lvni_pose_images_decode(const lvni_pose_labels *labels, const char *folder, int64_t i,
                                   lvni_core_str *path);
/* Which sizes frames have, and how many have each. */
enum { LVNI_POSE_SIZES = 16 };
typedef struct lvni_pose_sizes {
    int n;
    int64_t frames, others; /* all; of sizes behind the last one that is kept */
    struct {
        int width, height;
        int64_t frames;
    } size[LVNI_POSE_SIZES];
} lvni_pose_sizes;
void lvni_pose_sizes_add(lvni_pose_sizes *sizes, int width, int height);
/* Reads the head of every image; context: the frames around one count for the hash, too.
 * LVN_ERR_USAGE: a label lies outside its frame. */
lvn_status lvni_pose_images_look(const lvni_pose_labels *labels, const char *folder, bool context,
                                 lvni_pose_images *out);

/* ---- pose_fits.c: what PCA keeps of the labels of the training frames ---- */

typedef struct lvni_pose_fits {
    bool has_singleview, has_multiview;
    lvni_pose_pca singleview, multiview;
} lvni_pose_fits;
/* Of the keypoints that the settings name, of all where a loss needs a fit and they name none. set:
 * of each frame. Labels that are too few are a note, and no fit: its errors are then left out; of a
 * loss that needs the fit LVN_ERR_USAGE. All ranks have what rank 0 has fitted. ranks NULL: one
 * rank. */
lvn_status lvni_pose_fits_make(const lvni_pose_settings *settings, const lvni_pose_labels *labels,
                               const int8_t *set, const lvni_run_ranks *ranks, lvni_pose_fits *out);
/* job->fixed: the keys of fits that losses use. */
void lvni_pose_fits_fix(const lvni_pose_settings *settings, lvni_run_job *job);
/* Into the facts of a model's card, with the names of the keypoints, and out of them. */
lvn_status lvni_pose_fits_keep(const lvni_pose_fits *fits, const lvni_pose_labels *labels,
                               lvn_card *facts);
lvn_status lvni_pose_fits_read(const lvn_card *facts, int keypoints, lvni_pose_fits *out);
/* The names alone, of labels without frames. LVN_ERR_CORRUPT: there are none. */
lvn_status lvni_pose_names_read(const lvn_card *facts, lvni_pose_labels *out);
void lvni_pose_fits_free(lvni_pose_fits *fits);

/* ---- pose_module.c ---- */

/* Arguments of the root's build(). */
typedef struct lvni_pose_arguments {
    lvni_pose_model_type type; /* heatmap, regression, context */
    lvni_pose_network_settings network;
    int height, width; /* of the network's input */
    lvni_pose_loss loss;
    const lvni_pose_settings *settings; /* losses of clips and their annealing; outlive the model */
    const lvni_pose_fits *fits; /* PCA of the training's labels; NULL or empty: it is not trained */
    bool clips;                 /* a step takes the stream `clips` */
} lvni_pose_arguments;
extern const lvn_module_class lvni_pose_module;
/* (N, 3 K) of a batch: of each keypoint x, y in pixels of the frame, and the likelihood. */
lvn_tensor *lvni_pose_predict(const lvn_module *root, const lvn_batch *batch, void *user);

/* ---- pose_predict.c ---- */

/* Of `levin predict`: predictions of label files and videos, and their errors. */
extern const lvni_run_results lvni_pose_predictions_of_frames;
extern const lvni_run_results lvni_pose_metrics;            /* of `levin eval`, of label files */
extern const lvni_core_option_table lvni_pose_used_options, /* data data.data_dir */
    lvni_pose_predict_options;                              /* output overwrite */
const char *lvni_pose_base_name(const char *path);          /* behind the last '/' */
/* output= of a configuration of predict, or where the table lies without it. */
lvn_status lvni_pose_table_place(const lvni_core_config *config, lvni_core_str *out);
lvn_status lvni_pose_refuse_json(const lvni_core_config *config); /* json= of predict */
/* LVN_ERR_USAGE: data= has the ending of an image. */
lvn_status lvni_pose_refuse_image(const char *data);
/* Is data= a video, and not a label file? */
bool lvni_pose_is_video(const lvni_core_config *config);

/* ---- pose_videos.c ---- */

/* Of `levin predict`, where data= is a folder: predictions of all of its videos. */
extern const lvni_run_results lvni_pose_predictions_of_folder;
/* Where it is a list: of each of its files. */
extern const lvni_run_results lvni_pose_predictions_of_list;
/* The next video of the folder (pose_folder.h) as rank 0 sees it: a collective of the processes. */
lvn_status lvni_pose_share_next(const lvni_run_ranks *ranks, const char *folder,
                                char name[NAME_MAX + 1]);
/* By rank 0, of one that lvni_pose_share_next has found: LVN_ERR_USAGE where a video before it in
 * the folder has the name of its table. */
lvn_status lvni_pose_check_video_name(const char *folder, const char *name);
/* What stands beside others costs only its own predictions: a status that is about the data is
 * reported by rank 0, and then LVN_OK. s: what all ranks have agreed on. */
lvn_status lvni_pose_forgive(const lvni_run_ranks *ranks, lvn_status s, const char *what,
                             bool *forgiven);

/* ---- pose_ended.c ---- */

/* train_status.json of a training; of the process that has rank 0. */
typedef struct lvni_pose_progress {
    char *dir; /* of the run; NULL: nothing is written */
    bool in_steps, failed;
    int64_t epoch, completed, total, every;
} lvni_pose_progress;
lvni_trainer_hooks lvni_pose_progress_hooks(lvni_pose_progress *progress,
                                            const lvni_core_config *config);
lvn_status lvni_pose_progress_begin(lvni_pose_progress *progress, const char *dir);
void lvni_pose_progress_end(lvni_pose_progress *progress);
/* Behind the end of a training (lvni_run_recipe.ended): predictions of the frames it has labels of,
 * and of CollectedData_new.csv and _test.csv beside them. */
lvn_status lvni_pose_ended(const lvni_run_job *job, const char *dir);

/* ---- pose.c ---- */

/* What a command has opened. */
typedef struct lvni_pose_used {
    const lvni_pose_settings *settings; /* of the training */
    const lvni_pose_labels *labels;     /* of a video the names alone */
    lvni_pose_cut cut;                  /* of the frames that a trained model looks at */
    int64_t chunk;                      /* of its predictions; 0: as eval_batch_size has it */
    const lvni_pose_fits *fits;
    const char *file;             /* of the labels */
    const int8_t *set;            /* of each frame; NULL: the file is not the training's */
    lvni_pose_progress *progress; /* of a training */
} lvni_pose_used;
const lvni_pose_used *lvni_pose_used_of(const lvni_run_job *job);

#endif

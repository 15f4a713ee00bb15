/* Rows of the recipe pose (pose_keys.h). Names and meanings are those of Lightning Pose 2.4.3; what
 * holds where a key is not given is what holds there. */
#include "recipes/pose/pose_keys.h"

#include "core/option.h"

#include <string.h>

#define LATER_VIEWS "several cameras of one animal, and boxes, come with a later version"
#define LATER_BACKBONE "this network comes with a later version; use vits_dino or a resnet"

static const lvni_core_option data_rows[] = {
    {.name = "data.data_dir",
     .type = LVNI_OPT_PATH,
     .flags = LVNI_OPT_RUN,
     .help = "Folder of the project: the labels, and the images that they name; needed."},
    {.name = "data.csv_file",
     .type = LVNI_OPT_PATH,
     .fallback = "CollectedData.csv",
     .flags = LVNI_OPT_RUN,
     .help = "Labels: three header rows (scorer, bodyparts, coords), then an image per row with x "
             "and y of each keypoint; below data.data_dir, else as it is."},
    {.name = "data.video_dir",
     .type = LVNI_OPT_PATH,
     .flags = LVNI_OPT_RUN,
     .help = "Folder of videos without labels; below data.data_dir, else as it is."},
    {.name = "data.split",
     .type = LVNI_OPT_PATH,
     .flags = LVNI_OPT_RUN,
     .help = "Which frames train, validate and test, from a CSV of images and sets, or a "
             "predictions.csv with a column `set`; unset: drawn with seed_data."},
    {.name = "data.image_resize_dims.height",
     .type = LVNI_OPT_INT,
     .unit = "pixels",
     .range = LVNI_AT_LEAST(1),
     .help = "Frames are resized to this height, a multiple of 128; needed."},
    {.name = "data.image_resize_dims.width",
     .type = LVNI_OPT_INT,
     .unit = "pixels",
     .range = LVNI_AT_LEAST(1),
     .help = "Frames are resized to this width, a multiple of 128; needed."},
    {.name = "data.num_keypoints",
     .type = LVNI_OPT_INT,
     .range = LVNI_AT_LEAST(1),
     .help = "Keypoints of a frame, as many as the labels have; needed."},
    {.name = "data.keypoint_names",
     .type = LVNI_OPT_STRING_LIST,
     .help = "Their names in the order of the labels; unset: those of the labels."},
    LVNI_OPTION_ALIAS("data.keypoints", "data.keypoint_names"),
    {.name = "data.mirrored_column_matches",
     .type = LVNI_OPT_STRING,
     .flags = LVNI_OPT_JSON,
     .help = "A list of keypoints per view that a mirror gives, [[0,1],[2,3]], the first ones of "
             "all lists the same body part, and so on; for the loss pca_multiview."},
    {.name = "data.columns_for_singleview_pca",
     .type = LVNI_OPT_INT_LIST,
     .range = LVNI_AT_LEAST(0),
     .help = "Keypoints, from 0, whose poses the loss pca_singleview is of; unset: all."},
    {.name = "data.downsample_factor",
     .type = LVNI_OPT_INT,
     .fallback = "2",
     .range = LVNI_BETWEEN(1, 3),
     .help = "The sides of maps are those of the resized frames / 2^this."},
    {.name = "data.view_names",
     .type = LVNI_OPT_STRING_LIST,
     .flags = LVNI_OPT_LATER | LVNI_OPT_HIDDEN,
     .later_note = LATER_VIEWS,
     .help = "Names of cameras."},
    {.name = "data.bbox_file",
     .type = LVNI_OPT_STRING,
     .flags = LVNI_OPT_LATER | LVNI_OPT_HIDDEN | LVNI_OPT_JSON,
     .later_note = LATER_VIEWS,
     .help = "A box per frame."},
    {.name = "data.camera_params_file",
     .type = LVNI_OPT_STRING,
     .flags = LVNI_OPT_LATER | LVNI_OPT_HIDDEN | LVNI_OPT_JSON,
     .later_note = LATER_VIEWS,
     .help = "Calibration of cameras."},
};
const lvni_core_option_table lvni_pose_data_options = LVNI_OPTION_TABLE("pose data", data_rows);

static const lvni_core_option training_rows[] = {
    {.name = "training.imgaug",
     .type = LVNI_OPT_STRING,
     .fallback = "dlc",
     .flags = LVNI_OPT_JSON,
     .help = "What happens to training frames: default or none (resized alone), dlc, dlc-lr, "
             "dlc-top-down, or a map of operations, {Rotate: {p: 0.4, kwargs: {rotate: [-25, "
             "25]}}}."},
    {.name = "training.imgaug_hflip",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Mirror half of the training frames, and exchange names that end with _left and "
             "_right."},
    {.name = "training.train_prob",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.95",
     .range = {.used = true, .above = true, .min = 0, .max = 1},
     .help = "Part of the labelled frames that train."},
    {.name = "training.val_prob",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.05",
     .range = LVNI_BETWEEN(0, 1),
     .help = "Part of the labelled frames that validate, at least one; the rest tests, or trains "
             "where it is fewer than 5."},
    {.name = "training.train_frames",
     .type = LVNI_OPT_FLOAT,
     .fallback = "1",
     .range = LVNI_ABOVE(0),
     .help = "Of the training frames use so many (above 1) or this part (below 1); 1: all."},
    {.name = "seed_data",
     .type = LVNI_OPT_INT,
     .range = LVNI_AT_LEAST(0),
     .flags = LVNI_OPT_AUTO,
     .help = "Seed of the split, of order and augmentation; auto: seed."},
    LVNI_OPTION_ALIAS("training.rng_seed_data_pt", "seed_data"),
    {.name = "seed_model",
     .type = LVNI_OPT_INT,
     .range = LVNI_AT_LEAST(0),
     .flags = LVNI_OPT_AUTO,
     .help = "Seed of the first weights; auto: seed."},
    LVNI_OPTION_ALIAS("training.rng_seed_model_pt", "seed_model"),
    {.name = "training.unfreezing_epoch",
     .type = LVNI_OPT_INT,
     .unit = "epochs",
     .range = LVNI_AT_LEAST(0),
     .help = "Epoch at which the backbone begins to learn; unset: 20, or "
             "training.unfreezing_step."},
    {.name = "training.unfreezing_step",
     .type = LVNI_OPT_INT,
     .unit = "steps",
     .range = LVNI_AT_LEAST(0),
     .help = "The same in steps, with max_steps."},
    {.name = "training.ckpt_every_n_epochs",
     .type = LVNI_OPT_INT,
     .unit = "epochs",
     .range = LVNI_AT_LEAST(1),
     .help = "Keep a checkpoint of each of these epochs, beside the best; a multiple of "
             "check_val_every_n_epoch."},
    {.name = "training.early_stopping",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "End when val/supervised_loss does not improve any more."},
    {.name = "training.early_stop_patience",
     .type = LVNI_OPT_INT,
     .fallback = "3",
     .range = LVNI_AT_LEAST(1),
     .help = "Validations without improvement that end it, with training.early_stopping."},
    {.name = "training.lr_scheduler",
     .type = LVNI_OPT_CHOICE,
     .choices = "multisteplr",
     .spellings = "multistep_lr=multisteplr",
     .fallback = "multisteplr",
     .help = "How the learning rate falls: at scheduler.milestones by scheduler.gamma."},
    {.name = "training.lr_scheduler_params.multisteplr.milestone_steps",
     .type = LVNI_OPT_INT_LIST,
     .unit = "steps",
     .range = LVNI_AT_LEAST(1),
     .help = "The milestones in steps, with max_steps."},
    {.name = "training.uniform_heatmaps_for_nan_keypoints",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "The map of a point without label is to be uniform, so that its confidence is low; "
             "else the point is ignored."},
    LVNI_OPTION_ALIAS("training.train_batch_size", "batch_size"),
    LVNI_OPTION_ALIAS("training.val_batch_size", "eval_batch_size"),
    LVNI_OPTION_ALIAS("training.num_gpus", "devices"),
    LVNI_OPTION_ALIAS("training.num_workers", "num_workers"),
    LVNI_OPTION_ALIAS("training.max_epochs", "max_epochs"),
    LVNI_OPTION_ALIAS("training.min_epochs", "min_epochs"),
    LVNI_OPTION_ALIAS("training.max_steps", "max_steps"),
    LVNI_OPTION_ALIAS("training.min_steps", "min_steps"),
    LVNI_OPTION_ALIAS("training.log_every_n_steps", "log_every_n_steps"),
    LVNI_OPTION_ALIAS("training.check_val_every_n_epoch", "check_val_every_n_epoch"),
    LVNI_OPTION_ALIAS("training.val_check_interval", "val_check_interval"),
    LVNI_OPTION_ALIAS("training.accumulate_grad_batches", "accumulate_grad_batches"),
    LVNI_OPTION_ALIAS("training.limit_train_batches", "limit_train_batches"),
    LVNI_OPTION_ALIAS("training.profiler", "profiler"),
    LVNI_OPTION_ALIAS("training.optimizer", "optim.name"),
    LVNI_OPTION_ALIAS("training.optimizer_params.learning_rate", "optim.lr"),
    LVNI_OPTION_ALIAS("training.lr_scheduler_params.multisteplr.milestones",
                      "scheduler.milestones"),
    LVNI_OPTION_ALIAS("training.lr_scheduler_params.multisteplr.gamma", "scheduler.gamma"),
    LVNI_OPTION_ALIAS("training.lr_scheduler_params.multistep_lr.milestones",
                      "scheduler.milestones"),
    LVNI_OPTION_ALIAS("training.lr_scheduler_params.multistep_lr.gamma", "scheduler.gamma"),
};
const lvni_core_option_table lvni_pose_training_options =
    LVNI_OPTION_TABLE("pose training", training_rows);

static const lvni_core_option model_rows[] = {
    {.name = "model.model_type",
     .type = LVNI_OPT_CHOICE,
     .choices = "heatmap|regression|heatmap_mhcrnn|heatmap_multiview_transformer",
     .fallback = "heatmap",
     .later = "heatmap_multiview_transformer",
     .later_note = LATER_VIEWS,
     .help = "heatmap: a map per keypoint, of one frame; heatmap_mhcrnn: the same of a frame with "
             "the two before and after it; regression: coordinates without maps."},
    {.name = "model.backbone",
     .type = LVNI_OPT_CHOICE,
     .choices = "resnet18|resnet34|resnet50|resnet101|resnet152|resnet50_animal_apose|"
                "resnet50_animal_ap10k|resnet50_human_jhmdb|resnet50_human_res_rle|"
                "resnet50_human_top_res|resnet50_human_hand|efficientnet_b0|efficientnet_b1|"
                "efficientnet_b2|vits_dino|vitb_dino|vits_dinov2|vitb_dinov2|vits_dinov3|"
                "vitb_dinov3|vitb_imagenet|vitb_sam|vitb_sam2|vits_sam2|vitt_sam2",
     .fallback = "resnet50_animal_ap10k",
     .later = "vits_dinov2|vitb_dinov2|vits_dinov3|vitb_dinov3|vitb_sam|vitb_sam2|vits_sam2|"
              "vitt_sam2",
     .later_note = LATER_BACKBONE,
     .help = "The network before the head; resnet50_NAME is resnet50, vitb_imagenet the network of "
             "vitb_dino, with the weights that NAME is known for. The transformers take square "
             "frames."},
    {.name = "model.backbone_pretrained",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .help = "Begin with the backbone's usual weights, of weights= or where other programs keep "
             "them; false: drawn at random."},
    {.name = "model.backbone_checkpoint",
     .type = LVNI_OPT_STRING,
     .flags = LVNI_OPT_LATER | LVNI_OPT_HIDDEN,
     .later_note = "weights=FILE takes such a file",
     .help = "Weights of a ViT-MAE."},
    {.name = "model.heatmap_loss_type",
     .type = LVNI_OPT_CHOICE,
     .choices = "mse|kl|js",
     .fallback = "mse",
     .help = "How far a map is from that of its label: squared differences, or the divergence of "
             "Kullback and Leibler or of Jensen and Shannon."},
    {.name = "model.losses_to_use",
     .type = LVNI_OPT_STRING_LIST,
     .help = "Losses of frames without labels: pca_singleview, pca_multiview, temporal, "
             "temporal_heatmap_mse, temporal_heatmap_kl; unset or []: none."},
    LVNI_OPTION_ALIAS("model.checkpoint", "weights"),
    {.name = "dali.base.train.sequence_length",
     .type = LVNI_OPT_INT,
     .unit = "frames",
     .fallback = "32",
     .range = LVNI_AT_LEAST(1),
     .help = "Frames without labels of a step."},
    {.name = "dali.base.predict.sequence_length",
     .type = LVNI_OPT_INT,
     .unit = "frames",
     .fallback = "96",
     .range = LVNI_AT_LEAST(1),
     .help = "Frames of a video that are predicted at once."},
    {.name = "dali.context.train.batch_size",
     .type = LVNI_OPT_INT,
     .unit = "frames",
     .fallback = "16",
     .range = LVNI_AT_LEAST(1),
     .help = "The same in training with heatmap_mhcrnn, of which 4 have no result."},
    {.name = "dali.context.predict.sequence_length",
     .type = LVNI_OPT_INT,
     .unit = "frames",
     .fallback = "96",
     .range = LVNI_AT_LEAST(5),
     .help = "The same in prediction with heatmap_mhcrnn."},
    {.name = "dali.general.seed",
     .type = LVNI_OPT_INT,
     .fallback = "123456",
     .range = LVNI_AT_LEAST(0),
     .help = "Seed of which clips a step has, and of what happens to them."},
    LVNI_OPTION_ALIAS("dali.train.base.sequence_length", "dali.base.train.sequence_length"),
    LVNI_OPTION_ALIAS("dali.train.context.batch_size", "dali.context.train.batch_size"),
};
const lvni_core_option_table lvni_pose_model_options = LVNI_OPTION_TABLE("pose model", model_rows);

#define WEIGHT_ROW(loss)                                                                           \
    {                                                                                              \
        .name = "losses." loss ".log_weight", .type = LVNI_OPT_FLOAT, .fallback = "0",             \
        .help = "w: the loss counts 1 / (2 exp(w))."                                               \
    }
#define THRESHOLD_ROW(loss)                                                                        \
    {                                                                                              \
        .name = "losses." loss ".prob_threshold", .type = LVNI_OPT_FLOAT, .fallback = "0",         \
        .range = LVNI_BETWEEN(0, 1), .help = "Points with a smaller confidence do not count."      \
    }
#define PIXELS_ROW(loss)                                                                           \
    {                                                                                              \
        .name = "losses." loss ".epsilon", .type = LVNI_OPT_FLOAT_LIST, .unit = "pixels",          \
        .fallback = "0", .range = LVNI_AT_LEAST(0),                                                \
        .help = "Moves up to this count nothing; one number, or one per keypoint."                 \
    }
#define PCA_ROWS(loss)                                                                             \
    WEIGHT_ROW(loss),                                                                              \
        {.name = "losses." loss ".epsilon",                                                        \
         .type = LVNI_OPT_FLOAT,                                                                   \
         .unit = "pixels",                                                                         \
         .range = LVNI_AT_LEAST(0),                                                                \
         .help = "Distances up to this count nothing; unset: from those of the labels."},          \
        {.name = "losses." loss ".empirical_epsilon_percentile",                                   \
         .type = LVNI_OPT_FLOAT,                                                                   \
         .unit = "%",                                                                              \
         .fallback = "99",                                                                         \
         .range = LVNI_BETWEEN(0, 100),                                                            \
         .help = "Which of the distances of the labels it is then."},                              \
        {.name = "losses." loss ".empirical_epsilon_multiplier",                                   \
         .type = LVNI_OPT_FLOAT,                                                                   \
         .fallback = "1",                                                                          \
         .range = LVNI_AT_LEAST(0),                                                                \
         .help = "A factor on it."},                                                               \
    {                                                                                              \
        .name = "losses." loss ".centering_method", .type = LVNI_OPT_CHOICE,                       \
        .choices = "none|mean|median", .fallback = "none",                                         \
        .help = "What of a pose is subtracted from it first."                                      \
    }

static const lvni_core_option loss_rows[] = {
    {.name = "losses.pca_multiview.components_to_keep",
     .type = LVNI_OPT_STRING,
     .fallback = "3",
     .help = "Components that poses are described by: so many, or, below 1 and with a point, those "
             "of this part of the variance."},
    PCA_ROWS("pca_multiview"),
    {.name = "losses.pca_singleview.components_to_keep",
     .type = LVNI_OPT_STRING,
     .fallback = "0.95",
     .help = "The same for one view."},
    PCA_ROWS("pca_singleview"),
    WEIGHT_ROW("temporal"),
    PIXELS_ROW("temporal"),
    THRESHOLD_ROW("temporal"),
    WEIGHT_ROW("temporal_heatmap_mse"),
    PIXELS_ROW("temporal_heatmap_mse"),
    THRESHOLD_ROW("temporal_heatmap_mse"),
    WEIGHT_ROW("temporal_heatmap_kl"),
    PIXELS_ROW("temporal_heatmap_kl"),
    THRESHOLD_ROW("temporal_heatmap_kl"),
    {.name = "callbacks.anneal_weight.attr_name",
     .type = LVNI_OPT_CHOICE,
     .choices = "total_unsupervised_importance",
     .fallback = "total_unsupervised_importance",
     .flags = LVNI_OPT_HIDDEN,
     .help = "What grows: the factor on all losses of frames without labels."},
    {.name = "callbacks.anneal_weight.init_val",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .help = "The factor on all losses of frames without labels at the beginning."},
    {.name = "callbacks.anneal_weight.increase_factor",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.01",
     .range = LVNI_AT_LEAST(0),
     .help = "What it grows by in an epoch."},
    {.name = "callbacks.anneal_weight.final_val",
     .type = LVNI_OPT_FLOAT,
     .fallback = "1",
     .range = LVNI_AT_LEAST(0),
     .help = "What it grows to."},
    {.name = "callbacks.anneal_weight.freeze_until_epoch",
     .type = LVNI_OPT_INT,
     .unit = "epochs",
     .fallback = "60",
     .range = LVNI_AT_LEAST(0),
     .help = "Epoch from which on it grows."},
};
const lvni_core_option_table lvni_pose_loss_options =
    LVNI_OPTION_TABLE("pose losses without labels", loss_rows);

static const lvni_core_option eval_rows[] = {
    {.name = "eval.predict_vids_after_training",
     .type = LVNI_OPT_BOOL,
     .flags = LVNI_OPT_RUN,
     .fallback = "true",
     .help = "Predict all videos of eval.test_videos_directory at the end."},
    {.name = "eval.test_videos_directory",
     .type = LVNI_OPT_PATH,
     .flags = LVNI_OPT_RUN,
     .help = "Folder of videos to predict; unset: data.video_dir."},
    {.name = "eval.save_vids_after_training",
     .type = LVNI_OPT_BOOL,
     .flags = LVNI_OPT_RUN,
     .fallback = "false",
     .help = "Write these videos with their keypoints drawn, too: "
             "video_preds/labeled_videos/NAME_labeled.mp4."},
    {.name = "eval.frames",
     .type = LVNI_OPT_STRING,
     .flags = LVNI_OPT_RUN,
     .help = "With eval.save_vids_after_training, PNG files in video_preds/labeled_videos/NAME in "
             "place of the video: all frames, or this many at equal distances."},
    {.name = "eval.colormap",
     .type = LVNI_OPT_STRING,
     .fallback = "cool",
     .help =
         "Colours of the keypoints that are drawn, a map of matplotlib by its name: cool, viridis, "
         "plasma, inferno, magma, turbo, jet, hsv, rainbow, gray, spring, summer, autumn, "
         "winter, tab10."},
    {.name = "eval.confidence_thresh_for_vid",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.9",
     .range = LVNI_BETWEEN(0, 1),
     .help = "Points with a confidence up to this are not drawn."},
};
const lvni_core_option_table lvni_pose_eval_options =
    LVNI_OPTION_TABLE("pose evaluation", eval_rows);

/* Of Lightning Pose's files, whatever their values: saved again, and without effect. */
#define UNUSED_ROW(key)                                                                            \
    {                                                                                              \
        .name = key, .type = LVNI_OPT_STRING,                                                      \
        .flags = LVNI_OPT_HIDDEN | LVNI_OPT_RUN | LVNI_OPT_JSON | LVNI_OPT_LITERAL,                \
        .help = "Of Lightning Pose, without effect."                                               \
    }
static const lvni_core_option unused_rows[] = {
    UNUSED_ROW("creation_datetime"),
    UNUSED_ROW("model.lightning_pose_version"),
    UNUSED_ROW("model.model_name"),
    UNUSED_ROW("data.image_delimiter"),
    UNUSED_ROW("data.image_orig_dims"),
    UNUSED_ROW("data.header_rows"),
    UNUSED_ROW("training.test_batch_size"),
    UNUSED_ROW("training.imgaug_3d"),
    UNUSED_ROW("training.patch_mask"),
    UNUSED_ROW("training.gpu_id"),
    UNUSED_ROW("losses.supervised_reprojection_heatmap_mse"),
    UNUSED_ROW("losses.supervised_pairwise_projections"),
    UNUSED_ROW("losses.unimodal_mse"),
    UNUSED_ROW("losses.unimodal_kl"),
    UNUSED_ROW("callbacks.patch_masking"),
    UNUSED_ROW("eval.hydra_paths"),
    UNUSED_ROW("eval.fiftyone"),
    UNUSED_ROW("eval.pred_csv_files_to_plot"),
    UNUSED_ROW("eval.video_file_to_plot"),
    UNUSED_ROW("eval.saved_vid_preds_dir"),
    UNUSED_ROW("hydra"),
    UNUSED_ROW("wandb"),
};
const lvni_core_option_table lvni_pose_unused_options =
    LVNI_OPTION_TABLE("pose, without effect", unused_rows);

const char lvni_pose_job[] =
    "batch_size=16 eval_batch_size=32 max_epochs=300 check_val_every_n_epoch=5 optim=adam "
    "optim.lr=0.001 scheduler=multistep scheduler.milestones=[150,200,250] scheduler.gamma=0.5 "
    "sync_batchnorm=true checkpoint.monitor=val/supervised_loss checkpoint.mode=min";

void lvni_pose_unused_keys(const lvni_core_config *config, lvni_core_str *out)
{
    for (size_t i = 0; i < sizeof unused_rows / sizeof unused_rows[0]; i++) {
        const char *name = unused_rows[i].name;
        if (lvni_core_config_has(config, name) && lvni_core_config_is_set(config, name)) {
            lvni_core_str_printf(out, "%s%s", out->len > 0 ? ", " : "", name);
        }
    }
}

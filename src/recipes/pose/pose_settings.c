/* Keys of the recipe pose as one struct (pose_settings.h). */
#include "recipes/pose/pose_settings.h"

#include "core/alloc.h"
#include "core/json_read.h"
#include "recipes/pose/pose_pca.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const lvni_pose_unsupervised_names[LVNI_POSE_UNSUPERVISED] = {
    "pca_singleview", "pca_multiview", "temporal", "temporal_heatmap_mse", "temporal_heatmap_kl"};

/* ---- values that are texts ---- */

/* No row has more components than coordinates. */
bool lvni_pose_components_read(const char *text, double *value, bool *counted)
{
    char *end = NULL;
    *value = lvni_core_strtod(text, &end);
    *counted = text[strcspn(text, ".eE")] == '\0';
    return end != text && *end == '\0' && isfinite(*value) && *value > 0 &&
           *value <= (*counted ? 2 * LVNI_POSE_PCA_MOST : 1);
}

/* Each list into its row of the table; wrong: NULL while nothing is. */
static const char *copy_views(const json_t *views, int matched, int *match)
{
    for (size_t v = 0; v < json_array_size(views); v++) {
        const json_t *view = json_array_get(views, v);
        if (!json_is_array(view) || (int)json_array_size(view) != matched) {
            return "expected lists of equal lengths, one per view";
        }
        for (int i = 0; i < matched; i++) {
            const json_t *keypoint = json_array_get(view, (size_t)i);
            const json_int_t k = json_integer_value(keypoint);
            if (!json_is_integer(keypoint) || k < 0 || k > INT16_MAX) {
                return "expected numbers of keypoints, from 0";
            }
            match[(int)v * matched + i] = (int)k;
        }
    }
    return NULL;
}

lvn_status lvni_pose_matches_read(const char *text, int *views, int *matched, int **match,
                                  const char **wrong)
{
    json_t *json = lvni_core_json_try(text, LVNI_JSON_INNER);
    const json_t *first = json_array_get(json, 0);
    *match = NULL;
    *views = (int)json_array_size(json);
    *matched = (int)json_array_size(first);
    *wrong = NULL;
    if (*views < 2 || *views > LVNI_POSE_VIEWS || *matched < 1) {
        *wrong = "expected a list of keypoints per view, [[0,1],[2,3]]";
    } else {
        *match = lvni_core_calloc(LVNI_TAG_DATA, (size_t)*views * (size_t)*matched, sizeof **match);
        *wrong = *match != NULL ? copy_views(json, *matched, *match) : NULL;
    }
    json_decref(json);
    if (*wrong != NULL) {
        lvni_core_free(*match);
        *match = NULL;
        LVN_FAIL(LVN_ERR_INVALID, "data.mirrored_column_matches: %s", *wrong);
    }
    return *match != NULL ? LVN_OK : LVN_ERR_MEMORY;
}

/* ---- the struct ---- */

static int64_t int_or(const lvni_core_config *c, const char *key, int64_t other)
{
    return lvni_core_config_is_set(c, key) ? lvni_core_config_int(c, key) : other;
}

static lvn_status read_data(const lvni_core_config *c, lvni_pose_settings *s)
{
    const char *wrong, *matches = lvni_core_config_str(c, "data.mirrored_column_matches");
    size_t n;
    s->data_dir = lvni_core_config_str(c, "data.data_dir");
    s->csv_file = lvni_core_config_str(c, "data.csv_file");
    s->video_dir = lvni_core_config_str(c, "data.video_dir");
    s->split = lvni_core_config_str(c, "data.split");
    s->height = (int)int_or(c, "data.image_resize_dims.height", 0);
    s->width = (int)int_or(c, "data.image_resize_dims.width", 0);
    s->keypoints = (int)int_or(c, "data.num_keypoints", 0);
    s->downsample = (int)lvni_core_config_int(c, "data.downsample_factor");
    s->names = lvni_core_config_str_list(c, "data.keypoint_names", &n);
    s->names = n > 0 ? s->names : NULL;
    s->pca_columns =
        lvni_core_config_int_list(c, "data.columns_for_singleview_pca", &s->n_pca_columns);
    return matches == NULL
               ? LVN_OK
               : lvni_pose_matches_read(matches, &s->views, &s->matched, &s->match, &wrong);
}

static void read_training(const lvni_core_config *c, lvni_pose_settings *s)
{
    const int64_t seed = lvni_core_config_int(c, "seed");
    s->imgaug = lvni_core_config_str(c, "training.imgaug");
    s->hflip = lvni_core_config_bool(c, "training.imgaug_hflip");
    s->train_prob = lvni_core_config_float(c, "training.train_prob");
    s->val_prob = lvni_core_config_float(c, "training.val_prob");
    s->train_frames = lvni_core_config_float(c, "training.train_frames");
    s->seed_data = (uint64_t)int_or(c, "seed_data", seed);
    s->seed_model = (uint64_t)int_or(c, "seed_model", seed);
    s->unfreezing_in_steps = lvni_core_config_is_set(c, "training.unfreezing_step");
    s->unfreezing = int_or(c, "training.unfreezing_step",
                           int_or(c, "training.unfreezing_epoch", LVNI_POSE_UNFREEZING));
    s->ckpt_every_n_epochs = int_or(c, "training.ckpt_every_n_epochs", 0);
    s->uniform_for_nan = lvni_core_config_bool(c, "training.uniform_heatmaps_for_nan_keypoints");
}

/* "resnet50_animal_ap10k" is a resnet50 */
static const char *zoo_model(const char *backbone)
{
    static const struct {
        const char *theirs, *ours;
    } transformers[] = {{"vits_dino", "dino_vits16"},
                        {"vitb_dino", "dino_vitb16"},
                        {"vitb_imagenet", "dino_vitb16"}};
    for (size_t i = 0; i < sizeof transformers / sizeof *transformers; i++) {
        if (strcmp(backbone, transformers[i].theirs) == 0) {
            return transformers[i].ours;
        }
    }
    return strncmp(backbone, "resnet50_", 9) == 0 ? "resnet50" : backbone;
}

static void read_model(const lvni_core_config *c, lvni_pose_settings *s)
{
    s->type = (lvni_pose_model_type)lvni_core_config_choice(c, "model.model_type");
    s->backbone = lvni_core_config_str(c, "model.backbone");
    s->zoo_model = zoo_model(s->backbone);
    s->pretrained = lvni_core_config_bool(c, "model.backbone_pretrained");
    s->loss = lvni_core_config_choice(c, "model.heatmap_loss_type");
    s->clip = lvni_core_config_int(c, "dali.base.train.sequence_length");
    s->predict_clip = lvni_core_config_int(c, "dali.base.predict.sequence_length");
    s->context_clip = lvni_core_config_int(c, "dali.context.train.batch_size");
    s->context_predict_clip = lvni_core_config_int(c, "dali.context.predict.sequence_length");
    s->clip_seed = (uint64_t)lvni_core_config_int(c, "dali.general.seed");
}

static const char *loss_key(int loss, const char *of, char key[96])
{
    snprintf(key, 96, "losses.%s.%s", lvni_pose_unsupervised_names[loss], of);
    return key;
}

static void read_pca(const lvni_core_config *c, int loss, lvni_pose_unsupervised_settings *u)
{
    char key[96];
    (void)lvni_pose_components_read(
        lvni_core_config_str(c, loss_key(loss, "components_to_keep", key)), &u->components,
        &u->components_counted);
    u->has_epsilon = lvni_core_config_is_set(c, loss_key(loss, "epsilon", key));
    u->pca_epsilon = u->has_epsilon ? lvni_core_config_float(c, key) : 0;
    u->epsilon_percentile =
        lvni_core_config_float(c, loss_key(loss, "empirical_epsilon_percentile", key));
    u->epsilon_multiplier =
        lvni_core_config_float(c, loss_key(loss, "empirical_epsilon_multiplier", key));
    u->centering = lvni_core_config_choice(c, loss_key(loss, "centering_method", key));
}

static void read_unsupervised(const lvni_core_config *c, int loss,
                              lvni_pose_unsupervised_settings *u)
{
    char key[96];
    size_t n;
    const char *const *used = lvni_core_config_str_list(c, "model.losses_to_use", &n);
    for (size_t i = 0; i < n; i++) {
        u->used = u->used || strcmp(used[i], lvni_pose_unsupervised_names[loss]) == 0;
    }
    u->log_weight = lvni_core_config_float(c, loss_key(loss, "log_weight", key));
    if (loss == LVNI_POSE_PCA_SINGLEVIEW || loss == LVNI_POSE_PCA_MULTIVIEW) {
        read_pca(c, loss, u);
        return;
    }
    u->epsilon = lvni_core_config_float_list(c, loss_key(loss, "epsilon", key), &u->n_epsilon);
    u->prob_threshold = lvni_core_config_float(c, loss_key(loss, "prob_threshold", key));
}

static void read_evaluation(const lvni_core_config *c, lvni_pose_settings *s)
{
    s->anneal_init = lvni_core_config_float(c, "callbacks.anneal_weight.init_val");
    s->anneal_increase = lvni_core_config_float(c, "callbacks.anneal_weight.increase_factor");
    s->anneal_final = lvni_core_config_float(c, "callbacks.anneal_weight.final_val");
    s->anneal_from_epoch = lvni_core_config_int(c, "callbacks.anneal_weight.freeze_until_epoch");
    s->predict_videos = lvni_core_config_bool(c, "eval.predict_vids_after_training");
    s->save_videos = lvni_core_config_bool(c, "eval.save_vids_after_training");
    s->test_videos = lvni_core_config_str(c, "eval.test_videos_directory");
    s->test_videos = s->test_videos != NULL ? s->test_videos : s->video_dir;
    s->colormap = lvni_core_config_str(c, "eval.colormap");
    s->draw_frames = lvni_core_config_str(c, "eval.frames");
    s->draw_threshold = lvni_core_config_float(c, "eval.confidence_thresh_for_vid");
}

lvn_status lvni_pose_settings_read(const lvni_core_config *config, lvni_pose_settings *out)
{
    *out = (lvni_pose_settings){0};
    read_training(config, out);
    read_model(config, out);
    for (int loss = 0; loss < LVNI_POSE_UNSUPERVISED; loss++) {
        read_unsupervised(config, loss, &out->unsupervised[loss]);
    }
    LVN_TRY(read_data(config, out));
    read_evaluation(config, out);
    return LVN_OK;
}

void lvni_pose_settings_free(lvni_pose_settings *settings)
{
    lvni_core_free(settings->match);
    *settings = (lvni_pose_settings){0};
}

/* Rules of the recipe pose (pose_rules.h): those of Lightning Pose, checked together and before
 * anything is computed, and what it finds out late. */
#include "recipes/pose/pose_rules.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"
#include "recipes/pose/pose_augment.h"
#include "recipes/pose/pose_folder.h"
#include "recipes/pose/pose_labeled.h"
#include "recipes/pose/pose_labels.h"
#include "recipes/pose/pose_settings.h"
#include "recipes/pose/pose_split.h"

#include <string.h>
#include <sys/stat.h>

enum { SIDE = 128 };

#define HEIGHT "data.image_resize_dims.height"
#define WIDTH "data.image_resize_dims.width"
#define KEYPOINTS "data.num_keypoints"
#define NAMES "data.keypoint_names"
#define MATCHES "data.mirrored_column_matches"
#define COLUMNS "data.columns_for_singleview_pca"
#define LOSSES "model.losses_to_use"
#define MILESTONE_STEPS "training.lr_scheduler_params.multisteplr.milestone_steps"

/* ---- shared ---- */

static bool is_set(const lvni_core_config *c, const char *key)
{
    return lvni_core_config_is_set(c, key) && !lvni_core_config_is_mistaken(c, key);
}

static bool is_given(const lvni_core_config *c, const char *key)
{
    return lvni_core_config_is_given(c, key);
}

/* "KEY VALUE: what is wrong  (ORIGIN)" */
LVN_PRINTF(4, 5)
static void refuse(lvni_core_config *c, const char *key, const char *value, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    lvni_core_format_args(text, sizeof text, fmt, args);
    va_end(args);
    lvni_core_config_add_mistake(c, "%s %.80s: %s  (%s)", lvni_core_config_spelled(c, key), value,
                                 text, lvni_core_config_origin(c, key));
}

LVN_PRINTF(4, 5)
static void refuse_int(lvni_core_config *c, const char *key, int64_t value, const char *fmt, ...)
{
    char text[512], number[32];
    va_list args;
    va_start(args, fmt);
    lvni_core_format_args(text, sizeof text, fmt, args);
    va_end(args);
    snprintf(number, sizeof number, "%lld", (long long)value);
    refuse(c, key, number, "%s", text);
}

static void need(lvni_core_config *c, const char *key, const char *what)
{
    if (!lvni_core_config_is_set(c, key) && !lvni_core_config_is_mistaken(c, key)) {
        lvni_core_config_add_mistake(c, "`%s` is missing: %s", key, what);
    }
}

/* Has model.losses_to_use this name? An empty one is none. */
static bool uses(const lvni_core_config *c, const char *loss)
{
    size_t n;
    const char *const *names = lvni_core_config_str_list(c, LOSSES, &n);
    for (size_t i = 0; i < n; i++) {
        if (loss == NULL ? names[i][0] != '\0' : strcmp(names[i], loss) == 0) {
            return true;
        }
    }
    return false;
}

/* By name: types of later versions have no number yet. */
static bool is_type(const lvni_core_config *c, const char *name)
{
    const char *type = lvni_core_config_str(c, "model.model_type");
    return type != NULL && strcmp(type, name) == 0;
}

/* ---- data ---- */

static void check_side(lvni_core_config *c, const char *key)
{
    if (!is_set(c, key)) {
        need(c, key, "frames are resized to it, as in 256 or 384");
        return;
    }
    const int64_t side = lvni_core_config_int(c, key), below = side / SIDE * SIDE;
    if (side % SIDE != 0 && below > 0) {
        refuse_int(c, key, side, "not a multiple of %d; use %lld or %lld", SIDE, (long long)below,
                   (long long)below + SIDE);
    } else if (side % SIDE != 0) {
        refuse_int(c, key, side, "not a multiple of %d; use %d", SIDE, SIDE);
    }
}

static void check_names(lvni_core_config *c)
{
    size_t n;
    (void)lvni_core_config_str_list(c, NAMES, &n);
    if (is_set(c, NAMES) && is_set(c, KEYPOINTS) && n > 0 &&
        (int64_t)n != lvni_core_config_int(c, KEYPOINTS)) {
        refuse_int(c, KEYPOINTS, lvni_core_config_int(c, KEYPOINTS),
                   "%s has %lld names; give one per keypoint", NAMES, (long long)n);
    }
}

static bool stands_before(const int64_t *columns, size_t i)
{
    size_t k = 0;
    while (k < i && columns[k] != columns[i]) {
        k++;
    }
    return k < i;
}

static const char twice[] = "the keypoint stands twice; name each once";

static void check_columns(lvni_core_config *c)
{
    size_t n;
    const int64_t *columns = lvni_core_config_int_list(c, COLUMNS, &n);
    for (size_t i = 0; is_set(c, COLUMNS) && is_set(c, KEYPOINTS) && i < n; i++) {
        if (columns[i] >= lvni_core_config_int(c, KEYPOINTS)) {
            refuse_int(c, COLUMNS, columns[i], "there are %lld keypoints, from 0 to %lld",
                       (long long)lvni_core_config_int(c, KEYPOINTS),
                       (long long)lvni_core_config_int(c, KEYPOINTS) - 1);
            return;
        }
        if (stands_before(columns, i)) {
            refuse_int(c, COLUMNS, columns[i], "%s", twice);
            return;
        }
    }
}

/* A keypoint is one body part in one view. */
static bool match_is_before(const int *match, int i)
{
    int k = 0;
    while (k < i && match[k] != match[i]) {
        k++;
    }
    return k < i;
}

static lvn_status check_matches(lvni_core_config *c)
{
    const char *text = lvni_core_config_str(c, MATCHES), *wrong = NULL;
    int views, matched, *match = NULL;
    if (!is_set(c, MATCHES)) {
        return LVN_OK;
    }
    const lvn_status status = lvni_pose_matches_read(text, &views, &matched, &match, &wrong);
    if (status == LVN_ERR_INVALID) {
        refuse(c, MATCHES, text, "%s", wrong);
        return LVN_OK;
    }
    LVN_TRY(status);
    for (int i = 0; is_set(c, KEYPOINTS) && i < views * matched; i++) {
        if (match[i] >= lvni_core_config_int(c, KEYPOINTS)) {
            refuse_int(c, MATCHES, match[i], "there are %lld keypoints, from 0 to %lld",
                       (long long)lvni_core_config_int(c, KEYPOINTS),
                       (long long)lvni_core_config_int(c, KEYPOINTS) - 1);
            break;
        }
        if (match_is_before(match, i)) {
            refuse_int(c, MATCHES, match[i], "%s", twice);
            break;
        }
    }
    lvni_core_free(match);
    return LVN_OK;
}

static void check_parts(lvni_core_config *c)
{
    static const char train[] = "training.train_prob", val[] = "training.val_prob";
    if (!is_set(c, train) || !is_set(c, val)) {
        return;
    }
    const double t = lvni_core_config_float(c, train), v = lvni_core_config_float(c, val);
    if (t + v > 1 + 1e-6) {
        char text[32];
        lvni_core_format(text, sizeof text, "%g", t);
        refuse(c, train, text,
               "with %s %g more than all labelled frames; give parts that add up "
               "to at most 1",
               val, v);
    }
}

/* ---- the length of a training ---- */

/* By the name of Lightning Pose's files, for which the rules hold: other names are of every
 * training here, and of what a run has saved. */
static bool is_named(const lvni_core_config *c, const char *key)
{
    return is_given(c, key) && strncmp(lvni_core_config_spelled(c, key), "training.", 9) == 0;
}

/* max_steps= by its own name cuts any training short. */
bool lvni_pose_counts_steps(const lvni_core_config *c)
{
    return (is_named(c, "max_steps") && is_set(c, "max_steps") &&
            lvni_core_config_int(c, "max_steps") >= 0) ||
           lvni_core_config_is_set(c, "training.unfreezing_step") ||
           lvni_core_config_is_set(c, MILESTONE_STEPS);
}

static void check_mode(lvni_core_config *c)
{
    static const char *const steps[] = {"max_steps", "training.unfreezing_step", MILESTONE_STEPS},
                             *const epochs[] = {"max_epochs", "min_epochs",
                                                "training.unfreezing_epoch",
                                                "scheduler.milestones"};
    if (!lvni_pose_counts_steps(c)) {
        return;
    }
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        if (!is_given(c, steps[i])) {
            lvni_core_config_add_mistake(
                c,
                "`%s%s` is missing: a training in steps has max_steps, unfreezing_step and "
                "lr_scheduler_params.multisteplr.milestone_steps",
                i == 0 ? "training." : "", steps[i]);
        }
    }
    for (size_t i = 0; i < sizeof epochs / sizeof epochs[0]; i++) {
        if (is_named(c, epochs[i])) {
            lvni_core_config_add_mistake(
                c,
                "%s: a training in steps has no keys of epochs; remove it, or the keys of "
                "steps  (%s)",
                lvni_core_config_spelled(c, epochs[i]), lvni_core_config_origin(c, epochs[i]));
        }
    }
}

/* A file's milestones may lie beyond an end that the command line gives. */
static void check_milestones(lvni_core_config *c, const char *key, const char *end)
{
    size_t n;
    const int64_t *milestones = lvni_core_config_int_list(c, key, &n);
    if (!is_set(c, key) || !is_set(c, end) || !is_named(c, key) ||
        lvni_core_config_layer(c, key) < lvni_core_config_layer(c, end) ||
        lvni_core_config_int(c, end) < 0) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (milestones[i] > lvni_core_config_int(c, end)) {
            refuse_int(c, key, milestones[i], "behind the end, %s %lld; remove it, or train longer",
                       lvni_core_config_spelled(c, end), (long long)lvni_core_config_int(c, end));
            return;
        }
    }
}

static void check_validation(lvni_core_config *c)
{
    static const char keep[] = "training.ckpt_every_n_epochs", every[] = "check_val_every_n_epoch",
                      end[] = "max_epochs", limit[] = "limit_val_batches";
    const int64_t period = is_set(c, every) ? lvni_core_config_int(c, every) : 1;
    if (is_set(c, keep) && period > 0 && lvni_core_config_int(c, keep) % period != 0) {
        const int64_t next = (lvni_core_config_int(c, keep) / period + 1) * period;
        refuse_int(c, keep, lvni_core_config_int(c, keep),
                   "not a multiple of %s %lld; use %lld, or validate in each of these epochs",
                   lvni_core_config_spelled(c, every), (long long)period, (long long)next);
    }
    if (is_set(c, end) && lvni_core_config_int(c, end) > 0 && is_given(c, every) &&
        period > lvni_core_config_int(c, end)) {
        refuse_int(c, every, period,
                   "there is no validation in %lld epoch%s, so there is no best checkpoint; use at "
                   "most %lld",
                   (long long)lvni_core_config_int(c, end),
                   lvni_core_plural(lvni_core_config_int(c, end), "", "s"),
                   (long long)lvni_core_config_int(c, end));
    }
    const char *batches = lvni_core_config_str(c, limit);
    if (batches != NULL && (strcmp(batches, "0") == 0 || strcmp(batches, "0.0") == 0)) {
        refuse(c, limit, batches, "there is no validation, so there is no best checkpoint");
    }
}

/* ---- losses of frames without labels ---- */

static bool is_loss(const char *name)
{
    for (int i = 0; i < LVNI_POSE_UNSUPERVISED; i++) {
        if (strcmp(name, lvni_pose_unsupervised_names[i]) == 0) {
            return true;
        }
    }
    return name[0] == '\0';
}

static void check_loss_names(lvni_core_config *c)
{
    size_t n;
    const char *const *names = lvni_core_config_str_list(c, LOSSES, &n);
    for (size_t i = 0; i < n; i++) {
        if (!is_loss(names[i])) {
            refuse(c, LOSSES, names[i],
                   "expected pca_singleview, pca_multiview, temporal, temporal_heatmap_mse or "
                   "temporal_heatmap_kl");
        } else if (strncmp(names[i], "temporal_heatmap", 16) == 0 && is_type(c, "regression")) {
            refuse(c, LOSSES, names[i],
                   "it compares maps, which model.model_type regression has none of; use temporal");
        }
    }
    if (uses(c, "pca_multiview") && !lvni_core_config_is_set(c, MATCHES)) {
        refuse(c, LOSSES, "pca_multiview", "it needs %s, the keypoints of each view: [[0,1],[2,3]]",
               MATCHES);
    }
}

/* null stands for no number at all, and not for the default. */
static void check_loss_values(lvni_core_config *c)
{
    for (int i = 0; i < LVNI_POSE_UNSUPERVISED; i++) {
        const char *loss = lvni_pose_unsupervised_names[i];
        char key[96];
        size_t n;
        double value;
        bool counted;
        snprintf(key, sizeof key, "losses.%s.components_to_keep", loss);
        const char *components = lvni_core_config_has(c, key) ? lvni_core_config_str(c, key) : NULL;
        if (components != NULL && !lvni_pose_components_read(components, &value, &counted)) {
            refuse(c, key, components, "expected a count (3), or a part of the variance (0.99)");
        }
        snprintf(key, sizeof key, "losses.%s.epsilon", loss);
        if (i < LVNI_POSE_TEMPORAL || !uses(c, loss) || !is_set(c, key)) {
            continue;
        }
        (void)lvni_core_config_float_list(c, key, &n);
        if (is_set(c, KEYPOINTS) && n != 1 && (int64_t)n != lvni_core_config_int(c, KEYPOINTS)) {
            refuse_int(c, key, (int64_t)n,
                       "numbers for %lld keypoints; give one, or one per "
                       "keypoint",
                       (long long)lvni_core_config_int(c, KEYPOINTS));
        }
    }
}

static void check_context(lvni_core_config *c)
{
    static const char clip[] = "dali.context.train.batch_size", down[] = "data.downsample_factor";
    enum { LEAST = 5, DOWNSAMPLE = 2 };
    if (!is_type(c, "heatmap_mhcrnn")) {
        return;
    }
    if (uses(c, NULL) && is_set(c, clip) && lvni_core_config_int(c, clip) < LEAST) {
        refuse_int(c, clip, lvni_core_config_int(c, clip),
                   "a clip has 4 frames without a result, so it needs at least %d", LEAST);
    }
    if (is_set(c, down) && lvni_core_config_int(c, down) != DOWNSAMPLE) {
        refuse_int(c, down, lvni_core_config_int(c, down), "heatmap_mhcrnn takes %d alone",
                   DOWNSAMPLE);
    }
}

static void check_backbone(lvni_core_config *c)
{
    static const char down[] = "data.downsample_factor";
    enum { MOST = 2 }; /* a pixel shuffle doubles maps of 1/16 of the sides, then a layer does */
    const char *backbone = lvni_core_config_str(c, "model.backbone");
    if (backbone == NULL || strncmp(backbone, "vit", 3) != 0) {
        return;
    }
    if (is_type(c, "regression")) {
        refuse(c, "model.backbone", backbone,
               "model.model_type regression takes networks with a pooled map; use a resnet");
    } else if (is_set(c, down) && lvni_core_config_int(c, down) > MOST) {
        refuse_int(c, down, lvni_core_config_int(c, down), "%s takes 1 or 2", backbone);
    }
    if (!is_set(c, HEIGHT) || !is_set(c, WIDTH)) {
        return;
    }
    const int64_t height = lvni_core_config_int(c, HEIGHT), width = lvni_core_config_int(c, WIDTH);
    if (height != width) {
        refuse_int(c, HEIGHT, height, "%s takes square frames, and %s is %lld", backbone, WIDTH,
                   (long long)width);
    }
}

/* Before the training, and not at its end. */
static void check_drawing(lvni_core_config *c)
{
    static const char map[] = "eval.colormap", frames[] = "eval.frames";
    lvni_report_colour_map known;
    int64_t n;
    if (!lvni_core_config_bool(c, "eval.save_vids_after_training")) {
        return;
    }
    if (is_set(c, map) && !lvni_report_colour_map_find(lvni_core_config_str(c, map), &known)) {
        refuse(c, map, lvni_core_config_str(c, map), "levin has the colour maps %s",
               lvni_report_colour_map_names);
    }
    if (is_set(c, frames) && !lvni_pose_labeled_frames_read(lvni_core_config_str(c, frames), &n)) {
        refuse(c, frames, lvni_core_config_str(c, frames), "expected all, or how many frames");
    }
}

static lvn_status check_imgaug(lvni_core_config *c)
{
    static const char key[] = "training.imgaug";
    lvni_pose_pipeline *pipeline = NULL;
    if (!is_set(c, key)) {
        return LVN_OK;
    }
    const lvn_status status =
        lvni_pose_pipeline_make(lvni_core_config_str(c, key), SIDE, SIDE, false, &pipeline);
    lvni_pose_pipeline_free(pipeline);
    if (status != LVN_ERR_USAGE) {
        return status;
    }
    lvni_core_config_add_mistake(c, "%s  (%s)", lvn_last_error()->message,
                                 lvni_core_config_origin(c, key));
    lvn_clear_error();
    return LVN_OK;
}

static void check_later(lvni_core_config *c)
{
    const char *csv = lvni_core_config_str(c, "data.csv_file");
    if (csv != NULL && csv[0] == '[') { /* a list is joined with no folder */
        refuse(c, "data.csv_file", csv,
               "several files of labels are for several cameras, which come with a later version");
    }
}

lvn_status lvni_pose_check_keys(lvni_core_config *c)
{
    need(c, KEYPOINTS, "how many keypoints a frame has");
    check_side(c, HEIGHT);
    check_side(c, WIDTH);
    check_names(c);
    check_columns(c);
    LVN_TRY(check_matches(c));
    check_parts(c);
    check_mode(c);
    if (!lvni_pose_counts_steps(c)) {
        check_milestones(c, "scheduler.milestones", "max_epochs");
    }
    check_milestones(c, MILESTONE_STEPS, "max_steps");
    check_validation(c);
    check_loss_names(c);
    check_loss_values(c);
    check_context(c);
    check_backbone(c);
    check_drawing(c);
    LVN_TRY(check_imgaug(c));
    check_later(c);
    return LVN_OK;
}

/* ---- the project ---- */

static lvn_status keep(lvni_core_config *c, lvn_status status)
{
    if (status != LVN_ERR_USAGE && status != LVN_ERR_NOT_FOUND && status != LVN_ERR_IO) {
        return status;
    }
    lvni_core_config_add_mistake(c, "%s", lvn_last_error()->message);
    lvn_clear_error();
    return LVN_OK;
}

/* "paw" of "paw_left"; false: the name has no side. */
static bool other_side(const char *name, char *other, size_t room)
{
    static const char *const sides[2] = {"_left", "_right"};
    for (int s = 0; s < 2; s++) {
        const size_t n = strlen(name), m = strlen(sides[s]);
        if (n >= m && strcmp(name + n - m, sides[s]) == 0) {
            snprintf(other, room, "%.*s%s", (int)(n - m), name, sides[1 - s]);
            return true;
        }
    }
    return false;
}

static bool has_name(const lvni_pose_labels *labels, const char *name)
{
    for (int k = 0; k < labels->k; k++) {
        if (strcmp(labels->keypoint[k], name) == 0) {
            return true;
        }
    }
    return false;
}

static lvn_status check_flip(lvni_core_config *c, const lvni_pose_labels *labels)
{
    static const char key[] = "training.imgaug_hflip";
    lvni_core_str missing = {0};
    char other[256];
    for (int k = 0; lvni_core_config_is_on(c, key) && k < labels->k; k++) {
        if (other_side(labels->keypoint[k], other, sizeof other) && !has_name(labels, other)) {
            lvni_core_str_printf(&missing, "%s`%.64s`", missing.len > 0 ? ", " : "",
                                 labels->keypoint[k]);
        }
    }
    const lvn_status status = lvni_core_str_status(&missing);
    if (status == LVN_OK && missing.len > 0) {
        refuse(c, key, "true",
               "a mirrored frame exchanges _left and _right, but the other side of "
               "%.300s is not labelled",
               lvni_core_str_text(&missing));
    }
    lvni_core_str_free(&missing);
    return status;
}

/* Other names, or an order of its own: the numbers of keypoints in this file mean others. */
static void check_order(lvni_core_config *c, const lvni_pose_labels *labels)
{
    size_t n;
    const char *const *names = lvni_core_config_str_list(c, NAMES, &n);
    for (int k = 0; is_set(c, NAMES) && (int64_t)n == labels->k && k < labels->k; k++) {
        if (strcmp(names[k], labels->keypoint[k]) != 0) {
            refuse(c, NAMES, names[k],
                   "keypoint %d of the labels is `%.64s`; give their names in their order, or omit "
                   "the key",
                   k, labels->keypoint[k]);
            return;
        }
    }
}

static lvn_status check_labels(lvni_core_config *c, const lvni_pose_labels *labels)
{
    const char *split = lvni_core_config_str(c, "data.split");
    if (is_set(c, KEYPOINTS)) {
        LVN_TRY(keep(c, lvni_pose_labels_check_count(labels, lvni_core_config_int(c, KEYPOINTS))));
    }
    LVN_TRY(
        keep(c, lvni_pose_labels_check_images(labels, lvni_core_config_str(c, "data.data_dir"))));
    check_order(c, labels);
    LVN_TRY(check_flip(c, labels));
    if (split == NULL) {
        return LVN_OK;
    }
    int8_t *set = lvni_core_calloc(LVNI_TAG_DATA, (size_t)labels->n, sizeof *set);
    const lvn_status status =
        set == NULL ? LVN_ERR_MEMORY : keep(c, lvni_pose_split_read(split, labels, set));
    lvni_core_free(set);
    return status;
}

/* What the training predicts at its end is found broken now, and not after the last epoch. */
static lvn_status check_other(lvni_core_config *c, const char *csv, const char *suffix)
{
    lvni_core_str path = {0};
    lvni_pose_labels labels = {0};
    lvn_status status;
    lvni_pose_labels_other(csv, suffix, &path);
    LVNI_TRY_DONE(status, lvni_core_str_status(&path));
    if (lvni_core_path_exists(lvni_core_str_text(&path))) {
        status = lvni_pose_labels_read(lvni_core_str_text(&path), &labels);
        if (status == LVN_OK && is_set(c, KEYPOINTS)) {
            status = lvni_pose_labels_check_count(&labels, lvni_core_config_int(c, KEYPOINTS));
        }
        if (status == LVN_OK) {
            status =
                lvni_pose_labels_check_images(&labels, lvni_core_config_str(c, "data.data_dir"));
        }
        status = status == LVN_OK ? LVN_OK : keep(c, status);
    }
done:
    lvni_pose_labels_free(&labels);
    lvni_core_str_free(&path);
    return status;
}

/* The run has a copy of the label file, which must not be one of its own files. false: refused. */
static bool check_file_name(lvni_core_config *c, const char *csv)
{
    static const char key[] = "data.csv_file";
    const char *slash = strrchr(csv, '/'), *name = slash == NULL ? csv : slash + 1,
               *dot = strrchr(name, '.');
    if (dot == NULL || strcmp(dot, ".csv") != 0) {
        refuse(c, key, csv, "labels are a table; give a file whose name ends in .csv");
        return false;
    }
    if (strncmp(name, "predictions", 11) == 0 || strcmp(name, "metrics.csv") == 0) {
        refuse(c, key, csv,
               "a run has a file of its own of that name beside its copy of the labels; rename "
               "the label file, as to CollectedData.csv");
        return false;
    }
    return true;
}

/* overwrite=true would remove config.yaml and others that are the project's. */
static void check_out(lvni_core_config *c, const char *data_dir)
{
    const char *out = lvni_core_config_str(c, "out");
    struct stat run, project;
    if (out != NULL && stat(out, &run) == 0 && stat(data_dir, &project) == 0 &&
        run.st_dev == project.st_dev && run.st_ino == project.st_ino) {
        refuse(c, "out", out,
               "the folder of the project, data.data_dir, whose config.yaml the run would "
               "replace; give a folder of its own");
    }
}

/* Frames without labels are those of videos; what these hold is found when they are opened. */
static lvn_status check_videos(lvni_core_config *c)
{
    static const char key[] = "data.video_dir";
    char name[NAME_MAX + 1] = "";
    const char *folder = lvni_core_config_str(c, key);
    if (!uses(c, NULL)) {
        return LVN_OK;
    }
    if (folder == NULL) {
        need(c, key, "the folder of videos, which " LOSSES " is about");
        return LVN_OK;
    }
    if (!lvni_core_path_is_folder(folder)) {
        refuse(c, key, folder, "there is no such folder, and " LOSSES " is about its videos");
        return LVN_OK;
    }
    LVN_TRY(keep(c, lvni_pose_folder_next(folder, lvni_pose_has_video_ending, name)));
    if (name[0] == '\0') {
        refuse(c, key, folder,
               "there is no video in it, as clip.mp4, and " LOSSES " is about them");
    }
    return LVN_OK;
}

lvn_status lvni_pose_check_project(lvni_core_config *c)
{
    static const char folder[] = "data.data_dir";
    const char *data_dir = lvni_core_config_str(c, folder),
               *csv = lvni_core_config_str(c, "data.csv_file");
    need(c, folder, "the folder of the project");
    if (data_dir == NULL || csv == NULL || csv[0] == '[') {
        return LVN_OK;
    }
    if (!lvni_core_path_is_folder(data_dir)) {
        refuse(c, folder, data_dir, "there is no such folder");
        return LVN_OK;
    }
    check_out(c, data_dir);
    LVN_TRY(check_videos(c));
    if (!check_file_name(c, csv)) {
        return LVN_OK;
    }
    if (!lvni_core_path_exists(csv)) {
        refuse(c, "data.csv_file", csv,
               "there is no such file; a relative path is looked for below %s, then here", folder);
        return LVN_OK;
    }
    lvni_pose_labels labels;
    const lvn_status read = lvni_pose_labels_read(csv, &labels);
    const lvn_status status = read == LVN_OK ? check_labels(c, &labels) : keep(c, read);
    lvni_pose_labels_free(&labels);
    LVN_TRY(status);
    LVN_TRY(check_other(c, csv, "new"));
    return check_other(c, csv, "test");
}

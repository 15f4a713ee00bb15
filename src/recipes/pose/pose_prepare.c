/* Keys of the recipe pose that stand for others, and paths as they are on this machine
 * (pose_keys.h). */
#include "recipes/pose/pose_keys.h"

#include "core/alloc.h"
#include "core/vfs.h"
#include "recipes/pose/pose_rules.h"
#include "recipes/pose/pose_settings.h"
#include "run/run_dir.h"

#include <stdio.h>
#include <string.h>

static bool is_given(const lvni_core_config *c, const char *key)
{
    return lvni_core_config_is_given(c, key);
}

/* One below data.data_dir; where it is not there, it may be there as it was given. */
static lvn_status resolve_path(lvni_core_config *c, const char *key)
{
    const char *data_dir = lvni_core_config_str(c, "data.data_dir"),
               *path = lvni_core_config_str(c, key);
    if (data_dir == NULL || path == NULL || path[0] == '/' || path[0] == '[') {
        return LVN_OK;
    }
    lvni_core_str text = {0};
    char origin[320];
    snprintf(origin, sizeof origin, "%s", lvni_core_config_origin(c, key));
    lvni_core_str_printf(&text, "%s%s%s", data_dir,
                         data_dir[strlen(data_dir) - 1] == '/' ? "" : "/", path);
    lvn_status status = lvni_core_str_status(&text);
    const bool as_given = status == LVN_OK && is_given(c, key) &&
                          !lvni_core_path_exists(lvni_core_str_text(&text)) &&
                          lvni_core_path_exists(path);
    if (status == LVN_OK && !as_given) {
        status = lvni_core_config_set(c, key, lvni_core_str_text(&text), origin);
    }
    lvni_core_str_free(&text);
    return status;
}

lvn_status lvni_pose_resolve_paths(lvni_core_config *c)
{
    static const char *const keys[] = {"data.csv_file", "data.video_dir", "data.split",
                                       "eval.test_videos_directory"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        LVN_TRY(resolve_path(c, keys[i]));
    }
    return LVN_OK;
}

static lvn_status load_int(lvni_core_config *c, const char *key, int64_t value)
{
    char text[96];
    snprintf(text, sizeof text, "%s=%lld", key, (long long)value);
    return lvni_core_config_load_job(c, text);
}

/* Those of the data are the run's: of order and augmentation. */
static lvn_status resolve_seeds(lvni_core_config *c)
{
    char text[32];
    if (!lvni_core_config_is_set(c, "seed_data")) {
        return LVN_OK;
    }
    snprintf(text, sizeof text, "%lld", (long long)lvni_core_config_int(c, "seed_data"));
    return lvni_core_config_set(c, "seed", text, "seed_data");
}

/* Each of these is kept, and the best is chosen among all. */
static lvn_status resolve_kept(lvni_core_config *c)
{
    static const char key[] = "training.ckpt_every_n_epochs";
    if (!lvni_core_config_is_set(c, key)) {
        return LVN_OK;
    }
    return load_int(c, "checkpoint.keep_every_n_epochs", lvni_core_config_int(c, key));
}

static lvn_status resolve_steps(lvni_core_config *c)
{
    static const char key[] = "training.lr_scheduler_params.multisteplr.milestone_steps";
    size_t n;
    const int64_t *milestones = lvni_core_config_int_list(c, key, &n);
    lvni_core_str text = {0};
    if (lvni_core_config_is_set(c, "max_steps") && lvni_core_config_int(c, "max_steps") >= 0) {
        LVN_TRY(lvni_core_config_load_job(c, "max_epochs=-1"));
    }
    if (n == 0) {
        return LVN_OK;
    }
    lvni_core_str_append(&text, "scheduler.interval=step scheduler.milestones=[");
    for (size_t i = 0; i < n; i++) {
        lvni_core_str_printf(&text, "%s%lld", i > 0 ? "," : "", (long long)milestones[i]);
    }
    lvni_core_str_char(&text, ']');
    lvn_status status = lvni_core_str_status(&text);
    if (status == LVN_OK) {
        status = lvni_core_config_load_job(c, lvni_core_str_text(&text));
    }
    lvni_core_str_free(&text);
    return status;
}

/* Files have a patience and least epochs also where nothing ends early. */
static lvn_status resolve_early_stopping(lvni_core_config *c)
{
    if (lvni_core_config_is_on(c, "training.early_stopping")) {
        LVN_TRY(lvni_core_config_load_job(
            c, "early_stopping.monitor=val/supervised_loss early_stopping.mode=min"));
        LVN_TRY(load_int(c, "early_stopping.patience",
                         lvni_core_config_int(c, "training.early_stop_patience")));
    }
    if (lvni_core_config_is_set(c, "early_stopping.monitor") ||
        lvni_core_config_layer(c, "early_stopping.patience") >= LVNI_LAYER_FILE) {
        return LVN_OK;
    }
    LVN_TRY(lvni_core_config_set(c, "min_epochs", "0", "no early stopping"));
    return lvni_core_config_set(c, "min_steps", "0", "no early stopping");
}

/* An end on the command line lies before what the file plans for: it validates at that end. */
static lvn_status resolve_end(lvni_core_config *c)
{
    static const char every[] = "check_val_every_n_epoch", end[] = "max_epochs";
    const int64_t last = lvni_core_config_is_set(c, end) ? lvni_core_config_int(c, end) : -1;
    char text[32];
    if (last < 1 || !lvni_core_config_is_set(c, every) ||
        lvni_core_config_layer(c, every) >= lvni_core_config_layer(c, end) ||
        lvni_core_config_int(c, every) <= last) {
        return LVN_OK;
    }
    snprintf(text, sizeof text, "%lld", (long long)last);
    return lvni_core_config_set(c, every, text, lvni_core_config_spelled(c, end));
}

/* Every file of Lightning Pose has a number of GPUs. 0 is read as 1, and 1 is what there is:
 * without a GPU the CPU. */
static lvn_status resolve_devices(lvni_core_config *c)
{
    const char *devices = lvni_core_config_str(c, "devices");
    const bool one = devices != NULL && (strcmp(devices, "0") == 0 || strcmp(devices, "1") == 0) &&
                     strcmp(lvni_core_config_spelled(c, "devices"), "training.num_gpus") == 0;
    return one ? lvni_core_config_set(c, "devices", "1", "training.num_gpus") : LVN_OK;
}

/* The backbone's rate: a tenth of the head's when it is released, growing to it. */
static lvn_status resolve_unfreezing(lvni_core_config *c)
{
    static const char key[] = "lr_zero_until", steps[] = "training.unfreezing_step",
                      epoch[] = "training.unfreezing_epoch";
    char text[96], origin[96];
    const bool in_steps = lvni_core_config_is_set(c, steps),
               in_epochs = !in_steps && lvni_core_config_is_set(c, epoch);
    const char *from = in_steps ? steps : epoch;
    /* what a run has saved gives way to what is given when it is resumed or repeated */
    if (lvni_core_config_is_set(c, key) &&
        (!is_given(c, from) || lvni_core_config_layer(c, key) >= lvni_core_config_layer(c, from))) {
        return LVN_OK;
    }
    const int64_t at = in_steps || in_epochs ? lvni_core_config_int(c, from) : LVNI_POSE_UNFREEZING;
    snprintf(text, sizeof text, "[backbone=%lld%s:0.1:1.5]", (long long)at,
             in_steps ? "" : "epochs");
    snprintf(origin, sizeof origin, "%s=%lld", from, (long long)at);
    return lvni_core_config_set(c, key, text, origin);
}

/* AdamW alone decays weights where nothing is given, as torch's. */
static lvn_status resolve_decay(lvni_core_config *c)
{
    const char *name = lvni_core_config_str(c, "optim.name");
    return name != NULL && strcmp(name, "adamw") == 0
               ? LVN_OK
               : lvni_core_config_load_job(c, "optim.weight_decay=0");
}

static lvn_status resolve_others(lvni_core_config *c)
{
    LVN_TRY(resolve_decay(c));
    LVN_TRY(resolve_unfreezing(c));
    LVN_TRY(resolve_seeds(c));
    LVN_TRY(resolve_kept(c));
    LVN_TRY(resolve_steps(c));
    LVN_TRY(resolve_devices(c));
    return resolve_early_stopping(c);
}

lvn_status lvni_pose_prepare_export(lvni_core_config *c)
{
    LVN_TRY(resolve_end(c));
    return resolve_others(c);
}

static lvn_status note_unused(lvni_core_config *c)
{
    lvni_core_str keys = {0};
    lvni_pose_unused_keys(c, &keys);
    const lvn_status status = lvni_core_str_status(&keys);
    if (status == LVN_OK && keys.len > 0) {
        lvni_core_config_note(c, "of Lightning Pose, without effect here: %s",
                              lvni_core_str_text(&keys));
    }
    lvni_core_str_free(&keys);
    return status;
}

/* Labelled frames are drawn, or they are of sets that a file names. */
static void note_split(lvni_core_config *c)
{
    static const char *const drawn[] = {"training.train_prob", "training.val_prob",
                                        "training.train_frames"};
    char keys[96] = "";
    for (size_t i = 0; i < sizeof drawn / sizeof drawn[0]; i++) {
        if (is_given(c, drawn[i])) {
            const size_t n = strlen(keys);
            snprintf(keys + n, sizeof keys - n, "%s%s", n > 0 ? ", " : "", drawn[i]);
        }
    }
    if (lvni_core_config_str(c, "data.split") != NULL && keys[0] != '\0') {
        lvni_core_config_note(c, "data.split decides which frames train, without effect are %s",
                              keys);
    }
}

/* What stands for other keys depends on what the run has saved. */
static lvn_status load_saved(lvni_core_config *c)
{
    const char *out = lvni_core_config_str(c, "out");
    char *path = out == NULL ? NULL : lvni_run_path_join(out, "config.yaml");
    if (out == NULL || path == NULL) {
        return out == NULL ? LVN_OK : LVN_ERR_MEMORY;
    }
    const lvn_status status = lvni_core_path_exists(path)
                                  ? lvni_core_config_load_file(c, LVNI_LAYER_SAVED, path)
                                  : LVN_OK;
    lvni_core_free(path);
    return status;
}

/* What is resumed was checked when it began. */
lvn_status lvni_pose_prepare(lvni_core_config *c)
{
    if (lvni_core_config_is_on(c, "resume")) {
        LVN_TRY(load_saved(c));
    }
    LVN_TRY(lvni_pose_resolve_paths(c));
    LVN_TRY(resolve_end(c));
    if (!lvni_core_config_is_on(c, "resume")) {
        LVN_TRY(lvni_pose_check_keys(c));
        LVN_TRY(lvni_pose_check_project(c));
    }
    LVN_TRY(note_unused(c));
    note_split(c);
    return resolve_others(c);
}

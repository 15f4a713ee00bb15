/* What a training of the recipe pose shows while it runs, train_status.json, and what it leaves
 * behind its end: predictions of all frames with labels and of its videos, by the best checkpoint
 * (pose.h). */
#include "recipes/pose/pose.h"

#include "core/error.h"
#include "core/str.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "recipes/pose/pose_status.h"
#include "run/inference.h"
#include "run/output_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- train_status.json ---- */

/* A status that cannot be written must not cost the run. */
static void write_status(lvni_pose_progress *p, const char *status)
{
    if (p->dir != NULL && !p->failed &&
        lvni_pose_status_write(p->dir, status, p->completed, p->total) != LVN_OK) {
        p->failed = true;
        lvni_log_line(LVNI_LOG_WARNING, "train_status.json is not written any more: %s",
                      lvn_last_error()->message);
        lvn_clear_error();
    }
}

lvn_status lvni_pose_progress_begin(lvni_pose_progress *p, const char *dir)
{
    p->dir = lvni_core_strdup(LVNI_TAG_DATA, dir);
    write_status(p, "TRAINING");
    return p->dir == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static void show_step(void *user, const lvni_trainer_step_result *result)
{
    lvni_pose_progress *p = user;
    p->epoch = result->after.epoch;
    if (p->in_steps && (result->after.step % p->every == 0 || result->after.step == p->total)) {
        p->completed = result->after.step;
        write_status(p, "TRAINING");
    }
}

/* Behind the epoch's last step, which is still one of it. */
static void show_epoch(void *user)
{
    lvni_pose_progress *p = user;
    if (!p->in_steps) {
        p->completed = p->epoch + 1;
        write_status(p, "TRAINING");
    }
}

/* Epochs, or steps where these end the run. */
lvni_trainer_hooks lvni_pose_progress_hooks(lvni_pose_progress *p, const lvni_core_config *c)
{
    p->in_steps = lvni_core_config_int(c, "max_epochs") < 0;
    p->total = lvni_core_config_int(c, p->in_steps ? "max_steps" : "max_epochs");
    p->every = lvni_core_config_int(c, "log_every_n_steps");
    p->every = p->every > 0 ? p->every : 1;
    return (lvni_trainer_hooks){.step = show_step, .epoch = show_epoch, .user = p};
}

void lvni_pose_progress_end(lvni_pose_progress *p)
{
    lvni_core_free(p->dir);
    p->dir = NULL;
}

/* ---- predictions ---- */

enum { ARGUMENTS = 7 };

/* As `levin predict model=DIR data=FILE output=DIR/NAME overwrite=true on_error=skip` would, on
 * these ranks. Whether frames may be missing was decided by the training, which has ended: one that
 * it left out must not cost the predictions of the others. */
static lvn_status predict(const lvni_run_job *job, const char *dir, const char *file,
                          const char *name)
{
    const lvni_pose_used *used = lvni_pose_used_of(job);
    lvni_core_str argument[ARGUMENTS] = {{0}};
    const char *args[ARGUMENTS];
    lvni_core_config *c = NULL;
    int n = 0;
    lvni_core_str_printf(&argument[n++], "model=%s", dir);
    lvni_core_str_printf(&argument[n++], "data=%s", file);
    lvni_core_str_printf(&argument[n++], "output=%s/%s.csv", dir, name);
    lvni_core_str_append(&argument[n++], "overwrite=true");
    lvni_core_str_append(&argument[n++], "on_error=skip");
    if (used->settings->data_dir != NULL) {
        lvni_core_str_printf(&argument[n++], "data.data_dir=%s", used->settings->data_dir);
    }
    lvni_core_str_printf(&argument[n++], "accelerator=%s",
                         lvni_core_config_str(job->config, "accelerator"));
    lvn_status s = LVN_OK;
    for (int i = 0; i < n && s == LVN_OK; i++) {
        args[i] = lvni_core_str_text(&argument[i]);
        s = lvni_core_str_status(&argument[i]);
    }
    const lvni_run_measurement of = {
        .results = &lvni_pose_predictions_of_frames, .n = n, .args = args};
    LVNI_TRY_DONE(s, s);
    LVNI_TRY_DONE(s, lvni_run_inference_read(&lvni_pose_recipe, "predict", n, args, &c));
    s = lvni_run_inference_on(&lvni_pose_recipe, "predict", &of, c, job->ranks);
done:
    for (int i = 0; i < n; i++) {
        lvni_core_str_free(&argument[i]);
    }
    return s;
}

/* What stands beside the training's frames costs only its own predictions; every rank finds the
 * same. */
static lvn_status forgive(const lvni_run_job *job, lvn_status s, const char *what)
{
    if (s != LVN_ERR_USAGE && s != LVN_ERR_CORRUPT && s != LVN_ERR_UNSUPPORTED && s != LVN_ERR_IO) {
        return s;
    }
    if (job->ranks->rank->rank == 0) {
        lvni_log_line(LVNI_LOG_WARNING, "no predictions of this %s: %s", what,
                      lvn_last_error()->message);
    }
    lvn_clear_error();
    return LVN_OK;
}

/* "CollectedData_new.csv" beside "CollectedData.csv", where there is one. */
static lvn_status predict_other(const lvni_run_job *job, const char *dir, const char *file,
                                const char *suffix)
{
    lvni_core_str path = {0}, name = {0};
    const char *dot = strrchr(file, '.');
    lvni_core_str_append_n(&path, file, dot == NULL ? strlen(file) : (size_t)(dot - file));
    lvni_core_str_printf(&path, "_%s.csv", suffix);
    lvni_core_str_printf(&name, "predictions_%s", suffix);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(s, lvni_core_str_status(&name));
    if (lvni_core_path_exists(lvni_core_str_text(&path))) {
        s = predict(job, dir, lvni_core_str_text(&path), lvni_core_str_text(&name));
        s = forgive(job, s, "label file");
    }
done:
    lvni_core_str_free(&path);
    lvni_core_str_free(&name);
    return s;
}

/* ---- videos ---- */

static bool has_ending_of_video(const char *name)
{
    static const char *const endings[] = {".mp4", ".avi", ".mov", ".mkv", ".webm"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (lvni_run_output_ends_in(name, endings[i], strlen(endings[i]))) {
            return true;
        }
    }
    return false;
}

/* The first video of the folder behind `after` in the order of bytes, into `name`; "": there are no
 * more. */
static lvn_status next_video(const char *folder, const char *after, lvni_core_str *name)
{
    lvni_core_str least = {0};
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        LVN_FAIL(LVN_ERR_IO, "eval.test_videos_directory=%s: %s", folder, strerror(errno));
    }
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (has_ending_of_video(e->d_name) && strcmp(e->d_name, after) > 0 &&
            (least.len == 0 || strcmp(e->d_name, lvni_core_str_text(&least)) < 0)) {
            lvni_core_str_clear(&least);
            lvni_core_str_append(&least, e->d_name);
        }
    }
    closedir(dir);
    lvni_core_str_free(name);
    *name = least;
    return lvni_core_str_status(name);
}

static lvn_status predict_video(const lvni_run_job *job, const char *dir, const char *folder,
                                const char *video)
{
    lvni_core_str path = {0}, name = {0};
    const char *dot = strrchr(video, '.');
    lvni_core_str_printf(&path, "%s/%s", folder, video);
    lvni_core_str_printf(&name, "video_preds/%.*s", (int)(dot - video), video);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(s, lvni_core_str_status(&name));
    s = predict(job, dir, lvni_core_str_text(&path), lvni_core_str_text(&name));
done:
    lvni_core_str_free(&path);
    lvni_core_str_free(&name);
    return s;
}

static lvn_status predict_videos(const lvni_run_job *job, const char *dir)
{
    const lvni_pose_settings *settings = lvni_pose_used_of(job)->settings;
    const char *folder = settings->test_videos;
    lvni_core_str name = {0};
    lvn_status s = LVN_OK;
    if (!settings->predict_videos || folder == NULL || !lvni_core_path_is_folder(folder)) {
        return LVN_OK;
    }
    for (;;) {
        LVNI_TRY_DONE(s, next_video(folder, lvni_core_str_text(&name), &name));
        if (name.len == 0) {
            break;
        }
        s = predict_video(job, dir, folder, lvni_core_str_text(&name));
        LVNI_TRY_DONE(s, forgive(job, s, "video"));
    }
done:
    lvni_core_str_free(&name);
    return s;
}

lvn_status lvni_pose_ended(const lvni_run_job *job, const char *dir)
{
    const lvni_pose_used *used = lvni_pose_used_of(job);
    lvni_pose_progress *p = used->progress;
    const char *file = used->file;
    write_status(p, "EVALUATING");
    LVN_TRY(predict(job, dir, file, "predictions"));
    LVN_TRY(predict_other(job, dir, file, "new"));
    LVN_TRY(predict_other(job, dir, file, "test"));
    LVN_TRY(predict_videos(job, dir));
    write_status(p, "COMPLETED");
    return LVN_OK;
}

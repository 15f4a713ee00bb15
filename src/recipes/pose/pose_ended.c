/* What a training of the recipe pose shows while it runs, train_status.json, and what it leaves
 * behind its end: predictions of all frames with labels and of its videos, by the best checkpoint
 * (pose.h). */
#include "recipes/pose/pose.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "core/vfs.h"
#include "data/video.h"
#include "log/run_log.h"
#include "recipes/pose/pose_labeled.h"
#include "recipes/pose/pose_results.h"
#include "recipes/pose/pose_status.h"
#include "run/inference.h"

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

/* As `levin predict model=DIR data=FILE output=DIR/NAME overwrite=true on_error=skip` would, on
 * these ranks. Whether frames may be missing was decided by the training, which has ended: one that
 * it left out must not cost the predictions of the others. Not as arguments: a ${ in a path is text
 * here. kept: of a video that is to be drawn, NULL of the others. */
static lvn_status predict(const lvni_run_job *job, const char *dir, const char *file,
                          const char *name, lvni_pose_kept *kept)
{
    static const char origin[] = "the end of the training";
    const lvni_pose_used *used = lvni_pose_used_of(job);
    const lvni_run_measurement of = {.results = &lvni_pose_predictions_of_frames, .user = kept};
    lvni_core_str output = {0};
    lvni_core_config *c = NULL;
    lvn_status s;
    lvni_core_str_printf(&output, "%s/%s.csv", dir, name);
    LVNI_TRY_DONE(s, lvni_core_str_status(&output));
    const char *set[][2] = {{"model", dir},
                            {"data", file},
                            {"output", lvni_core_str_text(&output)},
                            {"overwrite", "true"},
                            {"on_error", "skip"},
                            {"accelerator", lvni_core_config_str(job->config, "accelerator")},
                            {"data.data_dir", used->settings->data_dir}};
    LVNI_TRY_DONE(s, lvni_run_inference_read(&lvni_pose_recipe, "predict", 0, NULL, &c));
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        if (set[i][1] != NULL) {
            LVNI_TRY_DONE(s, lvni_core_config_set(c, set[i][0], set[i][1], origin));
        }
    }
    lvni_core_config *taken = c;
    c = NULL;
    s = lvni_run_inference_on(&lvni_pose_recipe, "predict", &of, taken, job->ranks);
done:
    lvni_core_config_destroy(c);
    lvni_core_str_free(&output);
    return s;
}

/* Was it all written behind the same end, before a stop? Rank 0 looks; true in every process. */
static lvn_status is_kept(const lvni_run_job *job, const char *dir, const char *file,
                          const char *name, bool draws, bool *kept)
{
    char there[2] = "";
    lvni_core_str path = {0};
    lvn_status s;
    if (job->ranks->rank->rank == 0 && lvni_pose_used_of(job)->progress->completed < 0) {
        lvni_core_str_printf(&path, "%s/%s.csv", dir, name);
        LVNI_TRY_DONE(s, lvni_core_str_status(&path));
        bool is = lvni_pose_is_written(lvni_core_str_text(&path), dir, file);
        if (draws && is) {
            lvni_core_str_clear(&path);
            lvni_core_str_printf(&path, "%s/video_preds/labeled_videos/%s_labeled.mp4", dir,
                                 lvni_pose_base_name(name));
            LVNI_TRY_DONE(s, lvni_core_str_status(&path));
            is = lvni_pose_is_written(lvni_core_str_text(&path), dir, file);
        }
        there[0] = is ? '1' : '\0';
    }
    s = lvni_run_ranks_share(job->ranks, there, sizeof there);
    *kept = there[0] != '\0';
done:
    lvni_core_str_free(&path);
    return s;
}

/* Nothing where that is there. */
static lvn_status predict_missing(const lvni_run_job *job, const char *dir, const char *file,
                                  const char *name)
{
    bool kept;
    LVN_TRY(is_kept(job, dir, file, name, false, &kept));
    return kept ? LVN_OK : predict(job, dir, file, name, NULL);
}

/* What stands beside the training's frames. */
static lvn_status forgive(const lvni_run_job *job, lvn_status s, const char *what)
{
    bool forgiven;
    return lvni_pose_forgive(job->ranks, s, what, &forgiven);
}

/* "CollectedData_new.csv" beside "CollectedData.csv", where rank 0 finds one. */
static lvn_status predict_other(const lvni_run_job *job, const char *dir, const char *file,
                                const char *suffix)
{
    lvni_core_str path = {0};
    char name[32], there[2] = "";
    snprintf(name, sizeof name, "predictions_%s", suffix);
    lvni_pose_labels_other(file, suffix, &path);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    there[0] = lvni_core_path_exists(lvni_core_str_text(&path)) ? '1' : '\0';
    LVNI_TRY_DONE(s, lvni_run_ranks_share(job->ranks, there, sizeof there));
    if (there[0] != '\0') {
        s = predict_missing(job, dir, lvni_core_str_text(&path), name);
        s = forgive(job, s, "label file");
    }
done:
    lvni_core_str_free(&path);
    return s;
}

/* ---- videos ---- */

static lvn_status predict_and_draw(const lvni_run_job *job, const char *dir, const char *path,
                                   const char *name)
{
    const lvni_pose_settings *settings = lvni_pose_used_of(job)->settings;
    lvni_pose_kept kept = {0};
    bool undrawn;
    lvni_core_str table = {0};
    lvni_core_str_printf(&table, "%s/%s.csv", dir, name);
    lvn_status s = lvni_core_str_status(&table);
    s = s == LVN_OK ? predict(job, dir, path, name, &kept) : s;
    if (s == LVN_OK) {
        const lvni_pose_labeled_options options = {.video = path,
                                                   .dir = dir,
                                                   .table = lvni_core_str_text(&table),
                                                   .colormap = settings->colormap,
                                                   .threshold = settings->draw_threshold,
                                                   .frames = settings->draw_frames,
                                                   .found = kept.found};
        s = lvni_pose_labeled_together(job->ranks, job->config, &options, &undrawn);
    }
    lvni_core_free(kept.found.value);
    lvni_core_str_free(&table);
    return s;
}

static lvn_status predict_video(const lvni_run_job *job, const char *dir, const char *folder,
                                const char *video)
{
    const bool draws = lvni_pose_used_of(job)->settings->save_videos;
    lvni_core_str path = {0}, name = {0};
    const char *dot = strrchr(video, '.');
    bool kept;
    lvni_core_str_printf(&path, "%s/%s", folder, video);
    lvni_core_str_printf(&name, "video_preds/%.*s", (int)(dot - video), video);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(s, lvni_core_str_status(&name));
    s = job->ranks->rank->rank == 0 ? lvni_pose_check_video_name(folder, video) : LVN_OK;
    LVNI_TRY_DONE(s, lvni_run_ranks_agree(job->ranks, s));
    LVNI_TRY_DONE(
        s, is_kept(job, dir, lvni_core_str_text(&path), lvni_core_str_text(&name), draws, &kept));
    s = kept    ? LVN_OK
        : draws ? predict_and_draw(job, dir, lvni_core_str_text(&path), lvni_core_str_text(&name))
                : predict(job, dir, lvni_core_str_text(&path), lvni_core_str_text(&name), NULL);
done:
    lvni_core_str_free(&path);
    lvni_core_str_free(&name);
    return s;
}

static lvn_status predict_videos(const lvni_run_job *job, const char *dir)
{
    const lvni_pose_settings *settings = lvni_pose_used_of(job)->settings;
    const char *folder = settings->test_videos;
    char name[NAME_MAX + 1] = "";
    if (!settings->predict_videos || folder == NULL) {
        return LVN_OK;
    }
    for (bool first = true;; first = false) {
        LVN_TRY(lvni_pose_share_next(job->ranks, folder, name));
        if (name[0] == '\0') {
            return LVN_OK;
        }
        if (first) { /* without the module a line for all of them */
            const lvn_status s = lvni_run_ranks_agree(job->ranks, lvni_data_video_ready(folder));
            if (s != LVN_OK) {
                return forgive(job, s, "folder");
            }
        }
        LVN_TRY(forgive(job, predict_video(job, dir, folder, name), "video"));
    }
}

lvn_status lvni_pose_ended(const lvni_run_job *job, const char *dir)
{
    const lvni_pose_used *used = lvni_pose_used_of(job);
    lvni_pose_progress *p = used->progress;
    const char *file = used->file;
    if (p->dir == NULL && job->ranks->rank->rank == 0) {
        /* resumed behind its end: nothing was trained that could be counted */
        p->completed = -1;
        p->dir = lvni_core_strdup(LVNI_TAG_DATA, dir);
        LVN_TRY(p->dir == NULL ? LVN_ERR_MEMORY : LVN_OK);
    }
    write_status(p, "EVALUATING");
    LVN_TRY(predict_missing(job, dir, file, "predictions"));
    LVN_TRY(predict_other(job, dir, file, "new"));
    LVN_TRY(predict_other(job, dir, file, "test"));
    LVN_TRY(predict_videos(job, dir));
    write_status(p, "COMPLETED");
    return LVN_OK;
}

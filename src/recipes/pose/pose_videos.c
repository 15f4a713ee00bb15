/* The videos of a folder, one after the other (pose.h): those that a training predicts at its end,
 * and those of `levin predict pose data=DIR`, of which one that cannot be used costs its own
 * predictions alone. */
#include "recipes/pose/pose.h"

#include "core/error.h"
#include "core/str.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "recipes/pose/pose_folder.h"
#include "recipes/pose/pose_labeled.h"
#include "recipes/pose/pose_video.h"
#include "run/output_file.h"

#include <string.h>

/* ---- one after the other ---- */

/* Where rank 0 cannot see the folder, the others have no more videos, and it fails. */
lvn_status lvni_pose_share_next(const lvni_run_ranks *ranks, const char *folder,
                                char name[NAME_MAX + 1])
{
    const bool leads = ranks->rank->rank == 0;
    const lvn_status s =
        leads ? lvni_pose_folder_next(folder, lvni_pose_has_video_ending, name) : LVN_OK;
    const lvn_error error = *lvn_last_error();
    if (s != LVN_OK) {
        name[0] = '\0';
    }
    LVN_TRY(lvni_run_ranks_share(ranks, name, NAME_MAX + 1));
    return s == LVN_OK ? LVN_OK : lvn_error_adopt(&error);
}

lvn_status lvni_pose_forgive(const lvni_run_ranks *ranks, lvn_status s, const char *what,
                             bool *forgiven)
{
    *forgiven =
        s == LVN_ERR_USAGE || s == LVN_ERR_CORRUPT || s == LVN_ERR_UNSUPPORTED || s == LVN_ERR_IO;
    if (!*forgiven) {
        return s;
    }
    if (ranks->rank->rank == 0) {
        lvni_log_line(LVNI_LOG_WARNING, "no predictions of this %s: %s", what,
                      lvn_last_error()->message);
    }
    lvn_clear_error();
    return LVN_OK;
}

/* ---- levin predict pose data=DIR ---- */

/* As the command with data=DIR/VIDEO would have it, and output=OUTPUT/NAME.csv where output= is
 * given. Frames of one that is damaged are left out, unless on_error= is given: a rank that failed
 * alone would end all that is left. */
static lvn_status make_config(const lvni_run_inference *u, const char *video,
                              lvni_core_config **out)
{
    static const char on_error[] = "on_error";
    const lvni_core_config *of = u->config;
    const char *folder = lvni_core_config_str(of, "data"),
               *output = lvni_core_config_str(of, "output"), *dot = strrchr(video, '.');
    lvni_core_str data = {0}, table = {0};
    lvni_core_config *c = NULL;
    lvn_status s;
    lvni_core_str_printf(&data, "%s/%s", folder, video);
    lvni_core_str_printf(&table, "%s/%.*s.csv", output == NULL ? "" : output, (int)(dot - video),
                         video);
    LVNI_TRY_DONE(s, lvni_core_str_status(&data));
    LVNI_TRY_DONE(s, lvni_core_str_status(&table));
    LVNI_TRY_DONE(s, lvni_run_inference_read(u->recipe, u->command, u->n_args, u->args, &c));
    const char *set[][2] = {
        {"data", lvni_core_str_text(&data)},
        {"output", output == NULL ? NULL : lvni_core_str_text(&table)},
        {"accelerator", lvni_core_config_str(of, "accelerator")},
        {on_error, lvni_core_config_layer(of, on_error) == LVNI_LAYER_DEFAULT ? "skip" : NULL}};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        if (set[i][1] != NULL) {
            LVNI_TRY_DONE(s, lvni_core_config_set(c, set[i][0], set[i][1], folder));
        }
    }
    *out = c;
    c = NULL;
done:
    lvni_core_config_destroy(c);
    lvni_core_str_free(&data);
    lvni_core_str_free(&table);
    return s;
}

static lvn_status predict_video(const lvni_run_inference *u, const char *video)
{
    const lvni_run_measurement of = {.results = &lvni_pose_predictions_of_frames};
    lvni_core_config *c;
    bool done = false;
    char there[2] = "";
    LVN_TRY(make_config(u, video, &c));
    lvn_status s = lvni_run_inference_leads(u) ? of.results->is_done(c, &done) : LVN_OK;
    there[0] = done ? '1' : '\0';
    const lvn_status shared = lvni_run_ranks_share(u->ranks, there, sizeof there);
    s = s == LVN_OK ? shared : s;
    if (s == LVN_OK && there[0] == '\0') {
        return lvni_run_inference_on(u->recipe, u->command, &of, c, u->ranks);
    }
    lvni_core_config_destroy(c);
    return s;
}

static lvn_status predict_each(lvni_run_inference *u)
{
    const char *folder = lvni_core_config_str(u->config, "data");
    char name[NAME_MAX + 1] = "";
    int n = 0, failed = 0;
    for (;; n++) {
        bool forgiven;
        LVN_TRY(lvni_pose_share_next(u->ranks, folder, name));
        if (name[0] == '\0') {
            break;
        }
        LVN_TRY(lvni_pose_forgive(u->ranks, predict_video(u, name), "video", &forgiven));
        failed += forgiven ? 1 : 0;
    }
    if (failed > 0 && lvni_run_inference_leads(u)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "data=%s: %d of %d videos %s no predictions: see the warnings",
                 folder, failed, n, failed == 1 ? "has" : "have");
    }
    return LVN_OK;
}

static lvn_status check_folder(const lvni_core_config *c)
{
    char name[NAME_MAX + 1] = "";
    const char *folder = lvni_core_config_str(c, "data"),
               *output = lvni_core_config_str(c, "output");
    LVN_TRY(lvni_run_inference_check(c));
    LVN_TRY(lvni_pose_folder_next(folder, lvni_pose_has_video_ending, name));
    if (name[0] == '\0') {
        LVN_FAIL(LVN_ERR_USAGE,
                 "data=%s: the folder has no video (.mp4, .avi, .mov, .mkv, .webm); of frames with "
                 "labels give the label file (.csv)",
                 folder);
    }
    if (output != NULL && lvni_run_output_ends_in(output, ".csv", strlen(".csv"))) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "output=%s: the videos of data=%s get a table each: give the folder for them",
                 output, folder);
    }
    if (output == NULL && !lvni_core_path_is_folder(lvni_core_config_str(c, "model"))) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "output= is missing: model=%s is a file, and only a run directory has a place for "
                 "predictions",
                 lvni_core_config_str(c, "model"));
    }
    return lvni_pose_labeled_check(c);
}

const lvni_run_results lvni_pose_predictions_of_folder = {.check = check_folder,
                                                          .each = predict_each};

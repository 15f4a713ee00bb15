/* Files one after the other (pose.h): the videos of a folder that a training predicts at its end,
 * those of `levin predict pose data=DIR`, and data=[FILE,FILE], of which one that cannot be used
 * costs its own predictions alone. */
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

lvn_status lvni_pose_check_video_name(const char *folder, const char *name)
{
    char twin[NAME_MAX + 1];
    LVN_TRY(lvni_pose_folder_twin(folder, name, twin));
    if (twin[0] != '\0') {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s/%s: a table has the name of its video without the ending, and %s has the same "
                 "one: rename one of them",
                 folder, name, twin);
    }
    return LVN_OK;
}

lvn_status lvni_pose_forgive(const lvni_run_ranks *ranks, lvn_status s, const char *what,
                             bool *forgiven)
{
    *forgiven = s == LVN_ERR_USAGE || s == LVN_ERR_CORRUPT || s == LVN_ERR_UNSUPPORTED ||
                s == LVN_ERR_IO || s == LVN_ERR_NOT_FOUND || s == LVN_ERR_MISMATCH;
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

/* ---- one of several files ---- */

/* The table of a file without the folder: its name up to the ending. */
static int stem_of(const char *path, const char **name)
{
    *name = lvni_pose_base_name(path);
    const char *dot = strrchr(*name, '.');
    return (int)(dot == NULL ? strlen(*name) : (size_t)(dot - *name));
}

static bool is_label_file(const char *path)
{
    return lvni_run_output_ends_in(path, ".csv", strlen(".csv"));
}

/* As the command with data=PATH would have it, and output=OUTPUT/NAME.csv where output= is given.
 * Frames of a video that is damaged are left out, unless on_error= is given. */
static lvn_status make_config(const lvni_run_inference *u, const char *path, lvni_core_config **out)
{
    static const char on_error[] = "on_error";
    const lvni_core_config *of = u->config;
    const char *output = lvni_core_config_str(of, "output"), *name;
    const int stem = stem_of(path, &name);
    const bool leaves_out =
        lvni_core_config_layer(of, on_error) == LVNI_LAYER_DEFAULT && !is_label_file(path);
    lvni_core_str table = {0};
    lvni_core_config *c = NULL;
    lvn_status s;
    lvni_core_str_printf(&table, "%s/%.*s.csv", output == NULL ? "" : output, stem, name);
    LVNI_TRY_DONE(s, lvni_core_str_status(&table));
    LVNI_TRY_DONE(s, lvni_run_inference_read(u->recipe, u->command, u->n_args, u->args, &c));
    const char *set[][2] = {{"data", path},
                            {"output", output == NULL ? NULL : lvni_core_str_text(&table)},
                            {"accelerator", lvni_core_config_str(of, "accelerator")},
                            {on_error, leaves_out ? "skip" : NULL}};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        if (set[i][1] != NULL) {
            LVNI_TRY_DONE(s, lvni_core_config_set(c, set[i][0], set[i][1], "one of data="));
        }
    }
    *out = c;
    c = NULL;
done:
    lvni_core_config_destroy(c);
    lvni_core_str_free(&table);
    return s;
}

/* Rank 0 knows whether the table is there. mine: what it has found out already. */
static lvn_status look(const lvni_run_inference *u, const char *path, lvn_status mine,
                       lvni_core_config **c, char there[2])
{
    bool done = false;
    lvn_status s = mine == LVN_OK ? make_config(u, path, c) : mine;
    if (s == LVN_OK && lvni_run_inference_leads(u)) {
        s = lvni_pose_predictions_of_frames.is_done(*c, &done);
    }
    LVN_TRY(lvni_run_ranks_agree(u->ranks, s));
    there[0] = done ? '1' : '\0';
    return lvni_run_ranks_share(u->ranks, there, 2);
}

/* Where the ranks draw, as they go on together, rank 0 keeps what was found. */
static lvn_status draw_video(const lvni_run_inference *u, const char *video,
                             const lvni_pose_kept *kept, const char *table, bool *undrawn)
{
    const lvni_pose_labeled_options options = {.video = video,
                                               .dir = lvni_core_config_str(u->config, "model"),
                                               .table = table,
                                               .colormap = kept->colormap,
                                               .threshold = kept->threshold,
                                               .frames = lvni_pose_labeled_images(u->config),
                                               .found = kept->found};
    return lvni_pose_labeled_together(u->ranks, u->config, &options, undrawn);
}

static lvn_status predict_and_draw(const lvni_run_inference *u, lvni_core_config *c, bool *undrawn)
{
    const bool draws = lvni_pose_labeled_wanted(c);
    lvni_pose_kept kept = {0};
    const lvni_run_measurement of = {.results = &lvni_pose_predictions_of_frames,
                                     .user = draws ? &kept : NULL};
    lvni_core_str video = {0}, table = {0};
    lvni_core_str_append(&video, lvni_core_config_str(c, "data"));
    lvn_status s = lvni_core_str_status(&video);
    s = s == LVN_OK ? lvni_pose_table_place(c, &table) : s;
    s = lvni_run_ranks_agree(u->ranks, s);
    if (s != LVN_OK) {
        lvni_core_config_destroy(c);
    } else {
        s = lvni_run_inference_on(u->recipe, u->command, &of, c, u->ranks);
    }
    if (s == LVN_OK && draws) {
        s = draw_video(u, lvni_core_str_text(&video), &kept, lvni_core_str_text(&table), undrawn);
    }
    lvni_core_free(kept.found.value);
    lvni_core_str_free(&video);
    lvni_core_str_free(&table);
    return s;
}

static lvn_status predict_file(const lvni_run_inference *u, const char *path, lvn_status mine,
                               bool *undrawn)
{
    lvni_core_config *c = NULL;
    char there[2] = "";
    const lvn_status s = look(u, path, mine, &c, there);
    if (s == LVN_OK && there[0] == '\0') {
        return predict_and_draw(u, c, undrawn);
    }
    lvni_core_config_destroy(c);
    return s;
}

/* How many there were. */
typedef struct counts {
    int n, failed, undrawn;
} counts;

/* What goes wrong with one is counted. mine: of this process, before it. */
static lvn_status predict_one(const lvni_run_inference *u, const char *path, lvn_status mine,
                              counts *of)
{
    bool forgiven, bare = false;
    LVN_TRY(lvni_pose_forgive(u->ranks, predict_file(u, path, mine, &bare),
                              is_label_file(path) ? "label file" : "video", &forgiven));
    of->n++;
    of->failed += forgiven ? 1 : 0;
    of->undrawn += bare ? 1 : 0;
    return LVN_OK;
}

/* By rank 0. */
static lvn_status report_failed(const char *data, const char *what, const counts *of)
{
    if (of->failed > 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "data=%s: %d of %d %s %s no predictions: see the warnings", data,
                 of->failed, of->n, what, of->failed == 1 ? "has" : "have");
    }
    if (of->undrawn > 0) {
        LVN_FAIL(LVN_ERR_IO, "data=%s: %d of %d %s %s not drawn: see the warnings", data,
                 of->undrawn, of->n, what, of->undrawn == 1 ? "is" : "are");
    }
    return LVN_OK;
}

/* ---- levin predict pose data=DIR ---- */

/* By rank 0: a video that is passed over must not look as if it had predictions. */
static void report_others(const char *folder)
{
    lvni_core_str names = {0};
    char name[NAME_MAX + 1] = "";
    int n = 0;
    enum { NAMED = 8 };
    while (lvni_pose_folder_next(folder, lvni_pose_has_other_ending, name) == LVN_OK &&
           name[0] != '\0') {
        if (n < NAMED) {
            lvni_core_str_printf(&names, "%s%s", n > 0 ? ", " : "", name);
        }
        n++;
    }
    if (n > 0 && lvni_core_str_status(&names) == LVN_OK) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "data=%s: %d file%s not looked at (%s%s): of a folder those are that end in "
                      ".mp4, .avi, .mov, .mkv or .webm; data=FILE takes one of any ending",
                      folder, n, n == 1 ? " is" : "s are", lvni_core_str_text(&names),
                      n > NAMED ? ", ..." : "");
    }
    lvn_clear_error();
    lvni_core_str_free(&names);
}

/* The status is that of rank 0 about the video's name; of others LVN_OK. */
static lvn_status predict_in_folder(const lvni_run_inference *u, const char *folder,
                                    const char *name, counts *of)
{
    lvni_core_str path = {0};
    lvni_core_str_printf(&path, "%s/%s", folder, name);
    lvn_status mine = lvni_core_str_status(&path);
    if (mine == LVN_OK && lvni_run_inference_leads(u)) {
        mine = lvni_pose_check_video_name(folder, name);
    }
    const lvn_status s = predict_one(u, lvni_core_str_text(&path), mine, of);
    lvni_core_str_free(&path);
    return s;
}

static lvn_status predict_each(lvni_run_inference *u)
{
    const char *folder = lvni_core_config_str(u->config, "data");
    char name[NAME_MAX + 1] = "";
    counts of = {0};
    if (lvni_run_inference_leads(u)) {
        report_others(folder);
    }
    for (;;) {
        LVN_TRY(lvni_pose_share_next(u->ranks, folder, name));
        if (name[0] == '\0') {
            break;
        }
        LVN_TRY(predict_in_folder(u, folder, name, &of));
    }
    return lvni_run_inference_leads(u) ? report_failed(folder, "videos", &of) : LVN_OK;
}

/* A file for several tables, or a model without a place for them. */
static lvn_status check_output(const lvni_core_config *c, const char *what)
{
    const char *data = lvni_core_config_str(c, "data"), *output = lvni_core_config_str(c, "output"),
               *model = lvni_core_config_str(c, "model");
    if (output != NULL && is_label_file(output)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "output=%s: the %s of data=%s get a table each: give the folder for them", output,
                 what, data);
    }
    if (output == NULL && !lvni_core_path_is_folder(model)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "output= is missing: model=%s is a file, and only a run directory has a place for "
                 "predictions",
                 model);
    }
    return LVN_OK;
}

static lvn_status check_folder(const lvni_core_config *c)
{
    char name[NAME_MAX + 1] = "";
    const char *folder = lvni_core_config_str(c, "data");
    LVN_TRY(lvni_pose_refuse_json(c));
    LVN_TRY(lvni_run_inference_check(c));
    LVN_TRY(lvni_pose_folder_next(folder, lvni_pose_has_video_ending, name));
    if (name[0] == '\0') {
        LVN_FAIL(LVN_ERR_USAGE,
                 "data=%s: the folder has no video (.mp4, .avi, .mov, .mkv, .webm); of frames with "
                 "labels give the label file (.csv)",
                 folder);
    }
    LVN_TRY(check_output(c, "videos"));
    LVN_TRY(lvni_data_video_ready(folder)); /* once, not for each of them */
    return lvni_pose_labeled_check(c);
}

const lvni_run_results lvni_pose_predictions_of_folder = {.check = check_folder,
                                                          .each = predict_each};

/* ---- levin predict pose data=[FILE,FILE] ---- */

/* Would two files have one table? Without output= those of label files lie apart. */
static lvn_status check_names(const lvni_core_config *c, const char *const *file, size_t i)
{
    const bool together = lvni_core_config_str(c, "output") != NULL;
    const char *name, *other;
    const int stem = stem_of(file[i], &name);
    for (size_t k = 0; k < i; k++) {
        const bool labels = is_label_file(file[i]), alike = labels == is_label_file(file[k]);
        const int length = stem_of(file[k], &other);
        if ((alike || together) && length == stem && strncmp(name, other, (size_t)stem) == 0) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "data=%s: %s and %s would have one table, which has the name of its file "
                     "without the ending: rename one, or predict them one after the other with "
                     "output=",
                     lvni_core_config_str(c, "data"), file[k], file[i]);
        }
    }
    return LVN_OK;
}

static lvn_status check_file(const lvni_core_config *c, const char *path)
{
    const char *data = lvni_core_config_str(c, "data");
    if (lvni_core_path_is_folder(path)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "data=%s: %s is a folder; a list has label files (.csv) and videos, data=%s alone "
                 "takes all videos of the folder",
                 data, path, path);
    }
    if (!lvni_core_path_exists(path)) {
        LVN_FAIL(LVN_ERR_USAGE, "data=%s: there is no file %s", data, path);
    }
    if (is_label_file(path) && lvni_pose_labeled_wanted(c)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "data=%s: keypoints are drawn into videos, and %s is a label file: predict it "
                 "alone, or leave out labeled_video and eval.frames",
                 data, path);
    }
    return lvni_pose_refuse_image(path);
}

static lvn_status check_list(const lvni_core_config *c)
{
    size_t n;
    const char *const *file = lvni_core_config_paths(c, "data", &n);
    LVN_TRY(lvni_pose_refuse_json(c));
    LVN_TRY(lvni_run_inference_check(c));
    LVN_TRY(check_output(c, "files"));
    for (size_t i = 0; i < n; i++) {
        LVN_TRY(is_label_file(file[i]) ? LVN_OK : lvni_data_video_ready(file[i]));
        LVN_TRY(check_file(c, file[i]));
        LVN_TRY(check_names(c, file, i));
    }
    return lvni_pose_labeled_check(c);
}

static lvn_status predict_list(lvni_run_inference *u)
{
    size_t n;
    const char *const *file = lvni_core_config_paths(u->config, "data", &n);
    counts of = {0};
    for (size_t i = 0; i < n; i++) {
        LVN_TRY(predict_one(u, file[i], LVN_OK, &of));
    }
    return lvni_run_inference_leads(u)
               ? report_failed(lvni_core_config_str(u->config, "data"), "files", &of)
               : LVN_OK;
}

const lvni_run_results lvni_pose_predictions_of_list = {.check = check_list, .each = predict_list};

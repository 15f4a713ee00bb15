/* What a trained network finds in frames with labels (pose.h): the files of `levin predict`, and
 * those that a training leaves behind its end. */
#include "recipes/pose/pose.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "recipes/pose/pose_labeled.h"
#include "recipes/pose/pose_pca.h"
#include "recipes/pose/pose_results.h"
#include "recipes/pose/pose_status.h"
#include "run/inference.h"
#include "run/output_file.h"
#include "run/run_dir.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const lvni_core_option used_rows[] = {
    {.name = "data",
     .type = LVNI_OPT_PATH,
     .flags = LVNI_OPT_PATHS,
     .help = "Label file (.csv) of frames, or, for predict, a video, a folder of videos, or "
             "[a.mp4,b.csv], a list of files."},
    {.name = "data.data_dir",
     .type = LVNI_OPT_PATH,
     .help = "Folder that paths in the label file are relative to; the file's own where it is not "
             "given."},
    LVNI_OPTION_ALIAS("data_dir", "data.data_dir"), /* elsewhere another name of data= */
};
const lvni_core_option_table lvni_pose_used_options = LVNI_OPTION_TABLE("data", used_rows);

static const lvni_core_option predict_rows[] = {
    {.name = "output",
     .type = LVNI_OPT_PATH,
     .flags = LVNI_OPT_AUTO,
     .help =
         "Table to write (.csv), with tables of errors beside it; auto: "
         "image_preds/NAME/predictions.csv in the run directory, NAME of the label file, or "
         "video_preds/NAME.csv, NAME of the video without its ending. Of a folder of videos or a "
         "list of files: the folder for NAME.csv of each."},
    {.name = "overwrite",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Write the table again where there is one; without it what is there is left as it "
             "is."},
    {.name = "precision",
     .type = LVNI_OPT_CHOICE,
     .choices = "32-true|bf16-mixed|16-mixed|auto",
     .fallback = "32-true",
     .spellings = "32=32-true|fp32=32-true|bf16=bf16-mixed|16=16-mixed|fp16=16-mixed",
     .help = "Number format of products and activations, whatever the training's was. auto: "
             "bf16-mixed on a GPU, else 32-true."},
    LVNI_OPTION_ALIAS("predict_batch_size", "eval_batch_size"),
};
const lvni_core_option_table lvni_pose_predict_options = LVNI_OPTION_TABLE("predict", predict_rows);

typedef struct rows {
    const lvni_pose_used *of;
    float *value;  /* (n, k, 3) */
    double *error; /* (n, k) */
    lvni_core_str output;
} rows;

/* ---- where files lie ---- */

static const char csv[] = ".csv";

const char *lvni_pose_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* "DIR/predictions.csv" -> "DIR/predictions_pixel_error.csv" */
static const char *beside(const char *output, const char *what, lvni_core_str *out)
{
    const char *dot = strrchr(lvni_pose_base_name(output), '.');
    const size_t stem = dot == NULL ? strlen(output) : (size_t)(dot - output);
    lvni_core_str_clear(out);
    lvni_core_str_append_n(out, output, stem);
    lvni_core_str_printf(out, "_%s.csv", what);
    return lvni_core_str_text(out);
}

bool lvni_pose_is_video(const lvni_core_config *c)
{
    const char *data = lvni_core_config_str(c, "data");
    return data != NULL && !lvni_run_output_ends_in(data, csv, sizeof csv - 1);
}

/* model= is a run directory, or a file in a folder of one. */
lvn_status lvni_pose_table_place(const lvni_core_config *c, lvni_core_str *out)
{
    const char *model = lvni_core_config_str(c, "model");
    if (lvni_core_config_is_set(c, "output")) {
        lvni_core_str_append(out, lvni_core_config_str(c, "output"));
        return lvni_core_str_status(out);
    }
    if (!lvni_core_path_is_folder(model)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "output= is missing: model=%s is a file, and only a run directory has a place for "
                 "predictions",
                 model);
    }
    const char *name = lvni_pose_base_name(lvni_core_config_str(c, "data"));
    if (lvni_pose_is_video(c)) {
        const char *dot = strrchr(name, '.');
        const int stem = (int)(dot == NULL ? strlen(name) : (size_t)(dot - name));
        lvni_core_str_printf(out, "%s/video_preds/%.*s.csv", model, stem, name);
    } else {
        lvni_core_str_printf(out, "%s/image_preds/%s/predictions.csv", model, name);
    }
    return lvni_core_str_status(out);
}

/* ---- predict ---- */

static lvn_status check_data(const lvni_core_config *c)
{
    LVN_TRY(lvni_run_inference_check(c));
    if (lvni_core_config_str(c, "data") == NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "data= is missing: a label file (.csv), or, for predict, a video or a folder of "
                 "videos");
    }
    return LVN_OK;
}

static lvn_status check_eval(const lvni_core_config *c)
{
    size_t n = 0;
    (void)lvni_core_config_paths(c, "data", &n);
    if (n > 0) {
        LVN_FAIL(LVN_ERR_USAGE, "data=%s: errors are measured on one label file, not on a list",
                 lvni_core_config_str(c, "data"));
    }
    LVN_TRY(check_data(c));
    if (lvni_pose_is_video(c)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "data=%s: errors are measured on frames with labels: give a label file (.csv)",
                 lvni_core_config_str(c, "data"));
    }
    return LVN_OK;
}

/* Lines of JSON are of recipes with a row of numbers for each sample. */
lvn_status lvni_pose_refuse_json(const lvni_core_config *c)
{
    if (lvni_core_config_bool(c, "json")) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "json=true: predictions of keypoints are tables, and have no lines of JSON: leave "
                 "it out; output=FILE.csv names the table");
    }
    return LVN_OK;
}

/* FFmpeg reads an image as a video of one frame, whose table would lie among those of videos. */
lvn_status lvni_pose_refuse_image(const char *data)
{
    static const char *const endings[] = {".png",  ".jpg",  ".jpeg", ".tif",
                                          ".tiff", ".webp", ".bmp"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (lvni_run_output_ends_in(data, endings[i], strlen(endings[i]))) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "data=%s is an image: give a label file (.csv) whose rows name images, their "
                     "points may be empty; a video; or a folder of videos",
                     data);
        }
    }
    return LVN_OK;
}

static lvn_status check_arguments(const lvni_core_config *c)
{
    LVN_TRY(lvni_pose_refuse_json(c));
    LVN_TRY(check_data(c));
    LVN_TRY(lvni_pose_refuse_image(lvni_core_config_str(c, "data")));
    const char *output = lvni_core_config_str(c, "output");
    if (output != NULL && !lvni_run_output_ends_in(output, csv, sizeof csv - 1)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "output=%s: predictions of keypoints are a table: give a name that "
                 "ends in .csv",
                 output);
    }
    lvni_core_str place = {0};
    lvn_status s = lvni_pose_table_place(c, &place);
    lvni_core_str_free(&place);
    return s == LVN_OK ? lvni_pose_labeled_check(c) : s;
}

/* Has the table the frames of the label file? A label file that cannot be read is an error of the
 * command. */
static bool has_frames_of(const char *table, const char *file)
{
    lvni_pose_labels is = {0}, of = {0};
    bool same = true;
    if (lvni_pose_labels_read(file, &of) == LVN_OK) {
        same = lvni_pose_labels_read(table, &is) == LVN_OK && is.n == of.n;
        for (int64_t i = 0; same && i < of.n; i++) {
            same = strcmp(is.image[i], of.image[i]) == 0;
        }
    }
    lvn_clear_error();
    lvni_pose_labels_free(&is);
    lvni_pose_labels_free(&of);
    return same;
}

/* The place has the name of the file alone, and files of other folders may have the same. */
static lvn_status check_table(const lvni_core_config *c, const char *table)
{
    const char *data = lvni_core_config_str(c, "data");
    if (lvni_pose_is_video(c)) {
        lvni_log_line(LVNI_LOG_INFO,
                      "%s is there, and is left as it is, of this video or another of its name "
                      "(overwrite=true writes it again, output=FILE.csv another one)",
                      table);
        return LVN_OK;
    }
    if (!has_frames_of(table, data)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s has other frames than data=%s: give output=FILE.csv for a table beside it, or "
                 "overwrite=true to write this one again",
                 table, data);
    }
    lvni_log_line(LVNI_LOG_INFO,
                  "%s is there, and is left as it is (overwrite=true writes it again)", table);
    return LVN_OK;
}

static lvn_status is_done(const lvni_core_config *c, bool *done)
{
    lvni_core_str place = {0};
    *done = !lvni_core_config_bool(c, "overwrite") && check_arguments(c) == LVN_OK &&
            lvni_pose_table_place(c, &place) == LVN_OK &&
            lvni_core_path_exists(lvni_core_str_text(&place));
    lvn_clear_error(); /* which the command finds again */
    const lvn_status s = *done ? check_table(c, lvni_core_str_text(&place)) : LVN_OK;
    lvni_core_str_free(&place);
    return s;
}

static lvn_status begin(lvni_run_inference *u)
{
    rows *w = u->own = LVNI_NEW(LVNI_TAG_DATA, rows);
    if (w == NULL) {
        return LVN_ERR_MEMORY;
    }
    w->of = lvni_pose_used_of(&u->exported->job);
    const lvni_pose_labels *labels = w->of->labels;
    const size_t n = (size_t)w->of->cut.frames, k = (size_t)labels->k;
    u->chunk = w->of->chunk > 0 ? w->of->chunk : u->chunk;
    LVN_TRY(lvni_pose_table_place(u->config, &w->output));
    if (!lvni_run_inference_leads(u)) {
        return LVN_OK;
    }
    w->value = lvni_core_calloc(LVNI_TAG_DATA, n, 3 * k * sizeof *w->value);
    w->error = lvni_core_calloc(LVNI_TAG_DATA, n, k * sizeof *w->error);
    if (w->value == NULL || w->error == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (size_t i = 0; i < 3 * n * k; i++) {
        w->value[i] = NAN; /* of a frame that cannot be read */
    }
    return LVN_OK;
}

static lvn_status take_row(lvni_run_inference *u, int64_t sample, const float *value, int64_t k)
{
    const rows *w = u->own;
    const int64_t row = lvni_pose_cut_row(&w->of->cut, sample);
    if (row >= 0) {
        memcpy(w->value + row * k, value, (size_t)k * sizeof *value);
        u->n += w->of->cut.side > 0 && isnan(value[0]) ? 0 : 1;
    }
    return LVN_OK;
}

/* ---- files ---- */

static lvn_status write_pca(const rows *w, const lvni_pose_predictions *p, const char *what,
                            const lvni_pose_pca *pca, lvni_core_str *path)
{
    char name[64];
    snprintf(name, sizeof name, "pca_%s_error", what);
    lvni_pose_pca_error(pca, p->value, p->n, w->error);
    return lvni_pose_write_errors(beside(lvni_core_str_text(&w->output), name, path), p, w->error);
}

static lvn_status write_files(const rows *w, const lvni_pose_predictions *p, lvni_core_str *path)
{
    const char *output = lvni_core_str_text(&w->output);
    const double *labels = w->of->labels->xy;
    if (labels != NULL) {
        lvni_pose_pixel_error(p, labels, w->error);
    } else {
        lvni_pose_temporal_norm(p, w->error);
    }
    LVN_TRY(lvni_pose_write_errors(
        beside(output, labels != NULL ? "pixel_error" : "temporal_norm", path), p, w->error));
    const lvni_pose_fits *fits = w->of->fits;
    LVN_TRY(fits->has_singleview ? write_pca(w, p, "singleview", &fits->singleview, path) : LVN_OK);
    LVN_TRY(fits->has_multiview ? write_pca(w, p, "multiview", &fits->multiview, path) : LVN_OK);
    return lvni_pose_write_predictions(output, p); /* last: it shows that all are there */
}

static lvn_status make_folder(const char *file)
{
    lvni_core_str folder = {0};
    const char *slash = strrchr(file, '/');
    lvni_core_str_append_n(&folder, file, slash == NULL ? 0 : (size_t)(slash - file));
    lvn_status s = lvni_core_str_status(&folder);
    if (s == LVN_OK && folder.len > 0) {
        s = lvni_core_mkdirs(lvni_core_str_text(&folder));
    }
    lvni_core_str_free(&folder);
    return s;
}

/* As Lightning Pose has them: <model_type>_tracker. */
static const char *const scorers[] = {[LVNI_POSE_HEATMAP] = "heatmap_tracker",
                                      [LVNI_POSE_REGRESSION] = "regression_tracker",
                                      [LVNI_POSE_CONTEXT] = "heatmap_mhcrnn_tracker"};

/* Frames of clips that cannot be read are not among the samples that are left out. */
static void report_windows(const lvni_run_inference *u)
{
    const rows *w = u->own;
    const lvni_pose_cut *cut = &w->of->cut;
    const int64_t empty = cut->frames - u->n;
    if (cut->side > 0 && empty > 0) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "%s: %lld of %lld rows are empty: a frame that cannot be read leaves those "
                      "of the two frames before and after it without a window, too",
                      lvni_core_config_str(u->config, "data"), (long long)empty,
                      (long long)cut->frames);
    }
}

static lvn_status finish(lvni_run_inference *u)
{
    const rows *w = u->own;
    const lvni_pose_labels *labels = w->of->labels;
    const char *output = lvni_core_str_text(&w->output);
    const lvni_pose_predictions p = {.n = w->of->cut.frames,
                                     .k = labels->k,
                                     .keypoint = (const char *const *)labels->keypoint,
                                     .scorer = scorers[w->of->settings->type],
                                     .name = (const char *const *)labels->image,
                                     .value = w->value,
                                     .set = w->of->set};
    lvni_core_str path = {0};
    lvn_status s;
    LVN_TRY(lvni_run_check_rows(u));
    lvni_pose_cut_end(&w->of->cut, w->value, 3 * p.k);
    report_windows(u);
    LVNI_TRY_DONE(s, make_folder(output));
    LVNI_TRY_DONE(s, write_files(w, &p, &path));
    lvni_log_line(LVNI_LOG_INFO, "predictions of %lld frame%s in %s", (long long)u->n,
                  lvni_core_plural(u->n, "", "s"), output);
    if (lvni_pose_is_video(u->config)) {
        const lvni_pose_found found = {.value = w->value, .n = p.n, .k = p.k};
        s = lvni_pose_labeled_finish(u, w->of->settings, output, &found);
    }
done:
    lvni_core_str_free(&path);
    return s;
}

static void end(lvni_run_inference *u)
{
    rows *w = u->own;
    if (w != NULL) {
        lvni_core_free(w->value);
        lvni_core_free(w->error);
        lvni_core_str_free(&w->output);
        lvni_core_free(w);
    }
}

static const lvni_run_results *by_data(const lvni_core_config *c)
{
    const char *data = lvni_core_config_str(c, "data");
    size_t n = 0;
    (void)lvni_core_config_paths(c, "data", &n);
    return n > 0                                            ? &lvni_pose_predictions_of_list
           : data != NULL && lvni_core_path_is_folder(data) ? &lvni_pose_predictions_of_folder
                                                            : NULL;
}

const lvni_run_results lvni_pose_predictions_of_frames = {.instead = by_data,
                                                          .check = check_arguments,
                                                          .is_done = is_done,
                                                          .begin = begin,
                                                          .output = lvni_pose_predict,
                                                          .row = take_row,
                                                          .any_order = true,
                                                          .finish = finish,
                                                          .end = end};

/* ---- eval ---- */

static lvn_status begin_eval(lvni_run_inference *u)
{
    const lvni_pose_labels *l = lvni_pose_used_of(&u->exported->job)->labels;
    for (int64_t i = 0; i < l->n * l->k; i++) {
        if (!isnan(l->xy[2 * i]) && !isnan(l->xy[2 * i + 1])) {
            return LVN_OK;
        }
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "data=%s has no labels to measure against: none of its %lld frames has a keypoint "
             "with x and y; levin predict pose finds them",
             l->path, (long long)l->n);
}

/* The means of what the validation step logs. */
const lvni_run_results lvni_pose_metrics = {.check = check_eval, .begin = begin_eval};

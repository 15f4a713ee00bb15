/* Writes a project of DeepLabCut as one of Lightning Pose (pose_dlc.h): under another name beside
 * OUT, which is its name once all of it is there. */
#include "recipes/pose/pose_dlc.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "run/output_file.h"
#include "run/run_dir.h"

#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 128, LONGEST = 384, OPEN_FOLDERS = 16 };

typedef struct writer {
    const lvni_pose_dlc_options *o;
    const lvni_pose_dlc *p;
    lvni_core_str folder; /* that is written */
    int64_t without;      /* frames without any label */
} writer;

/* ---- the table of labels ---- */

static void add_cells(lvni_core_str *out, const char *first, const lvni_pose_dlc *p, int row)
{
    lvni_core_str_append(out, first);
    for (int k = 0; k < 2 * p->keypoints.n; k++) {
        lvni_core_str_char(out, ',');
        if (row == 0) {
            lvni_run_csv_field(out, p->scorer != NULL ? p->scorer : "scorer");
        } else {
            lvni_run_csv_field(out, row == 1 ? p->keypoints.text[k / 2] : k % 2 == 0 ? "x" : "y");
        }
    }
    lvni_core_str_char(out, '\n');
}

/* which[k]: the keypoint of the recording that is keypoint k of the project; -1: it has none. */
static bool add_frame(const lvni_pose_labels *l, int64_t i, const int *which, int keypoints,
                      lvni_core_str *out)
{
    bool labelled = false;
    for (int k = 0; k < keypoints; k++) {
        const double *xy = which[k] < 0 ? NULL : l->xy + 2 * (i * l->k + which[k]);
        for (int axis = 0; axis < 2; axis++) {
            lvni_core_str_char(out, ',');
            if (xy != NULL && !isnan(xy[axis])) {
                lvni_core_str_double(out, xy[axis]);
                labelled = true;
            }
        }
    }
    lvni_core_str_char(out, '\n');
    return labelled;
}

static lvn_status add_recording(writer *w, int r, lvni_core_str *out)
{
    const lvni_pose_dlc *p = w->p;
    const lvni_pose_labels *l = &p->labels[r];
    int *which = lvni_core_calloc(LVNI_TAG_DATA, (size_t)p->keypoints.n, sizeof *which);
    lvni_core_str path = {0};
    if (which == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int k = 0; k < p->keypoints.n; k++) {
        which[k] = -1;
        for (int j = 0; j < l->k; j++) {
            which[k] = strcmp(l->keypoint[j], p->keypoints.text[k]) == 0 ? j : which[k];
        }
    }
    for (int64_t i = 0; i < l->n; i++) {
        lvni_core_str_clear(&path);
        lvni_core_str_printf(&path, "labeled-data/%s/%s", p->recordings.text[r], l->image[i]);
        lvni_run_csv_field(out, lvni_core_str_text(&path));
        w->without += !add_frame(l, i, which, p->keypoints.n, out);
    }
    const lvn_status s = lvni_core_str_status(&path);
    lvni_core_str_free(&path);
    lvni_core_free(which);
    return s;
}

static lvn_status write_text(const writer *w, const char *name, const lvni_core_str *text)
{
    LVN_TRY(lvni_core_str_status(text));
    char *path = lvni_run_path_join(lvni_core_str_text(&w->folder), name);
    const lvn_status s = path == NULL
                             ? LVN_ERR_MEMORY
                             : lvni_core_file_write(path, lvni_core_str_text(text), text->len);
    lvni_core_free(path);
    return s;
}

static lvn_status write_labels(writer *w)
{
    static const char *const heads[] = {"scorer", "bodyparts", "coords"};
    lvni_core_str text = {0};
    lvn_status s = LVN_OK;
    for (int row = 0; row < 3; row++) {
        add_cells(&text, heads[row], w->p, row);
    }
    for (int r = 0; r < w->p->recordings.n; r++) {
        LVNI_TRY_DONE(s, add_recording(w, r, &text));
    }
    s = write_text(w, "CollectedData.csv", &text);
done:
    lvni_core_str_free(&text);
    return s;
}

/* ---- the configuration ---- */

/* Both sides in the proportion of most frames, the longer one at most 384: larger ones cost much
 * and find little more. */
static void choose_sides(const lvni_pose_sizes *sizes, int *width, int *height)
{
    int most = 0;
    for (int i = 1; i < sizes->n; i++) {
        most = sizes->size[i].frames > sizes->size[most].frames ? i : most;
    }
    const int side[2] = {sizes->size[most].width, sizes->size[most].height};
    const int longer = side[0] > side[1] ? side[0] : side[1];
    const double scale = longer > LONGEST ? (double)LONGEST / longer : 1.0;
    int *to[2] = {width, height};
    for (int i = 0; i < 2; i++) {
        const int times = (int)(side[i] * scale / SIDE + 0.5);
        *to[i] = SIDE * (times > 0 ? times : 1);
    }
}

/* Sections that do not depend on the project: the values of Lightning Pose's own template. */
static const char rest[] =
    "training:\n"
    "  imgaug: dlc\n"
    "  imgaug_hflip: false\n"
    "  train_batch_size: 16\n"
    "  val_batch_size: 32\n"
    "  train_prob: 0.95\n"
    "  val_prob: 0.05\n"
    "  train_frames: 1\n"
    "  num_gpus: 1\n"
    "  unfreezing_epoch: 20\n"
    "  min_epochs: 300\n"
    "  max_epochs: 300\n"
    "  log_every_n_steps: 10\n"
    "  check_val_every_n_epoch: 5\n"
    "  ckpt_every_n_epochs: null\n"
    "  early_stopping: false\n"
    "  early_stop_patience: 3\n"
    "  rng_seed_data_pt: 0\n"
    "  rng_seed_model_pt: 0\n"
    "  optimizer: Adam\n"
    "  optimizer_params:\n"
    "    learning_rate: 1e-3\n"
    "  lr_scheduler: multisteplr\n"
    "  lr_scheduler_params:\n"
    "    multisteplr:\n"
    "      milestones: [150, 200, 250]\n"
    "      gamma: 0.5\n"
    "  uniform_heatmaps_for_nan_keypoints: true\n"
    "  accumulate_grad_batches: 1\n"
    "model:\n"
    "  # temporal, pca_singleview, pca_multiview: learns from frames of the videos, too\n"
    "  losses_to_use: []\n"
    "  backbone: resnet50_animal_ap10k\n"
    "  model_type: heatmap\n"
    "  heatmap_loss_type: mse\n"
    "  checkpoint: null\n"
    "dali:\n"
    "  general:\n"
    "    seed: 123456\n"
    "  base:\n"
    "    train:\n"
    "      sequence_length: 32\n"
    "    predict:\n"
    "      sequence_length: 96\n"
    "  context:\n"
    "    train:\n"
    "      batch_size: 16\n"
    "    predict:\n"
    "      sequence_length: 96\n"
    "losses:\n"
    "  pca_multiview:\n"
    "    log_weight: 11.0\n"
    "    components_to_keep: 3\n"
    "    epsilon: null\n"
    "  pca_singleview:\n"
    "    log_weight: 11.0\n"
    "    components_to_keep: 0.99\n"
    "    epsilon: null\n"
    "  temporal:\n"
    "    log_weight: 11.0\n"
    "    epsilon: 20.0\n"
    "    prob_threshold: 0.05\n"
    "callbacks:\n"
    "  anneal_weight:\n"
    "    attr_name: total_unsupervised_importance\n"
    "    init_val: 0.0\n"
    "    increase_factor: 0.01\n"
    "    final_val: 1.0\n"
    "    freeze_until_epoch: 60\n"
    "eval:\n"
    "  predict_vids_after_training: true\n"
    "  save_vids_after_training: false\n"
    "  test_videos_directory: ${data.video_dir}\n"
    "  colormap: cool\n"
    "  confidence_thresh_for_vid: 0.90\n";

static lvn_status write_config(const writer *w)
{
    const lvni_pose_dlc *p = w->p;
    lvni_core_str text = {0}, folder = {0};
    int width, height;
    choose_sides(&p->sizes, &width, &height);
    lvni_core_path_absolute(w->o->out, &folder);
    lvni_core_str_printf(&text,
                         "# made by levin data dlc\n"
                         "data:\n"
                         "  # frames are resized to this: multiples of 128, of which larger ones "
                         "take more time and memory\n"
                         "  image_resize_dims:\n    height: %d\n    width: %d\n  data_dir: ",
                         height, width);
    lvni_core_str_json(&text, lvni_core_str_text(&folder));
    lvni_core_str_printf(&text,
                         "\n  video_dir: ${data.data_dir}/videos\n"
                         "  csv_file: CollectedData.csv\n"
                         "  downsample_factor: 2\n"
                         "  num_keypoints: %d\n"
                         "  keypoint_names:\n",
                         p->keypoints.n);
    for (int k = 0; k < p->keypoints.n; k++) {
        lvni_core_str_append(&text, "    - ");
        lvni_core_str_json(&text, p->keypoints.text[k]);
        lvni_core_str_char(&text, '\n');
    }
    lvni_core_str_append(&text, "  # keypoints by their numbers from 0: those of each view of a "
                                "mirror, [[0, 1], [2, 3]]; those of one pose, [0, 1, 2]\n"
                                "  mirrored_column_matches: null\n"
                                "  columns_for_singleview_pca: null\n");
    lvni_core_str_append(&text, rest);
    const lvn_status s = lvni_core_str_status(&folder);
    const lvn_status written = s == LVN_OK ? write_text(w, "config.yaml", &text) : s;
    lvni_core_str_free(&folder);
    lvni_core_str_free(&text);
    return written;
}

/* ---- images and videos ---- */

/* A link holds the whole path: it is valid wherever the project lies. */
static lvn_status link_file(const char *from, const char *to)
{
    lvni_core_str target = {0};
    lvni_core_path_absolute(from, &target);
    lvn_status s = lvni_core_str_status(&target);
    if (s == LVN_OK && symlink(lvni_core_str_text(&target), to) != 0) {
        s = lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__,
                          "%s: cannot link it to %s: %s; link=false copies it", to,
                          lvni_core_str_text(&target), strerror(errno));
    }
    lvni_core_str_free(&target);
    return s;
}

static lvn_status bring(const writer *w, const char *from, const char *to)
{
    return w->o->link ? link_file(from, to) : lvni_core_file_copy(from, to);
}

static lvn_status bring_images(const writer *w, int r)
{
    const lvni_pose_labels *l = &w->p->labels[r];
    const char *name = w->p->recordings.text[r], *folder = lvni_core_str_text(&w->folder);
    lvni_core_str from = {0}, to = {0};
    lvn_status s;
    lvni_core_str_printf(&to, "%s/labeled-data/%s", folder, name);
    LVNI_TRY_DONE(s, lvni_core_str_status(&to));
    LVNI_TRY_DONE(s, lvni_core_mkdirs(lvni_core_str_text(&to)));
    for (int64_t i = 0; i < l->n; i++) {
        lvni_core_str_clear(&from);
        lvni_core_str_clear(&to);
        lvni_core_str_printf(&from, "%s/labeled-data/%s/%s", w->o->in, name, l->image[i]);
        lvni_core_str_printf(&to, "%s/labeled-data/%s/%s", folder, name, l->image[i]);
        LVNI_TRY_DONE(s, lvni_core_str_status(&from));
        LVNI_TRY_DONE(s, lvni_core_str_status(&to));
        /* an image may have several rows */
        s = lvni_core_path_exists(lvni_core_str_text(&to))
                ? LVN_OK
                : bring(w, lvni_core_str_text(&from), lvni_core_str_text(&to));
        LVNI_TRY_DONE(s, s);
    }
done:
    lvni_core_str_free(&from);
    lvni_core_str_free(&to);
    return s;
}

static lvn_status bring_videos(const writer *w)
{
    lvni_core_str to = {0};
    lvn_status s;
    lvni_core_str_printf(&to, "%s/videos", lvni_core_str_text(&w->folder));
    LVNI_TRY_DONE(s, lvni_core_str_status(&to));
    LVNI_TRY_DONE(s, lvni_core_mkdirs(lvni_core_str_text(&to)));
    for (int i = 0; i < w->p->videos.n; i++) {
        const char *from = w->p->videos.text[i];
        lvni_core_str_clear(&to);
        lvni_core_str_printf(&to, "%s/videos/%s", lvni_core_str_text(&w->folder),
                             lvni_pose_dlc_name_in(from));
        LVNI_TRY_DONE(s, lvni_core_str_status(&to));
        LVNI_TRY_DONE(s, bring(w, from, lvni_core_str_text(&to)));
    }
done:
    lvni_core_str_free(&to);
    return s;
}

/* ---- all of it, or nothing ---- */

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    (void)remove(path);
    return 0;
}

static lvn_status check_out(const char *out)
{
    char name[NAME_MAX + 1] = "";
    if (out[0] == '\0') {
        LVN_FAIL(LVN_ERR_USAGE, "OUT is empty: give the folder of the new project");
    }
    if (lvni_core_path_exists(out) && !lvni_core_path_is_folder(out)) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: it is a file; give a folder that is not there yet", out);
    }
    LVN_TRY(lvni_pose_folder_next(out, NULL, name));
    if (name[0] != '\0') {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: the folder is not empty (%s); give one that is not there yet, or remove what "
                 "it holds",
                 out, name);
    }
    return LVN_OK;
}

/* "DIR/OUT.tmp-PID" of "DIR/OUT/". */
static lvn_status make_folder(writer *w)
{
    size_t n = strlen(w->o->out);
    while (n > 1 && w->o->out[n - 1] == '/') {
        n--;
    }
    lvni_core_str_printf(&w->folder, "%.*s.tmp-%ld", (int)n, w->o->out, (long)getpid());
    LVN_TRY(lvni_core_str_status(&w->folder));
    return lvni_core_mkdirs(lvni_core_str_text(&w->folder));
}

/* ---- the report ---- */

static void report_list(const lvni_pose_list *list, const char *what, const char *why,
                        lvni_core_str *out)
{
    enum { NAMED = 8 };
    if (list->n == 0) {
        return;
    }
    lvni_core_str_message(out, "%d %s%s %s: ", list->n, what, lvni_core_plural(list->n, "", "s"),
                          why);
    for (int i = 0; i < list->n && i < NAMED; i++) {
        lvni_core_str_message(out, "%s%s", i > 0 ? ", " : "", list->text[i]);
    }
    lvni_core_str_append(out, list->n > NAMED ? ", ...\n" : "\n");
}

/* They are converted as they are. */
static void report_twice(const lvni_pose_dlc *p, lvni_core_str *out)
{
    for (int r = 0; r < p->recordings.n; r++) {
        if (lvni_pose_labels_check_once(&p->labels[r]) != LVN_OK) {
            lvni_core_str_message(out, "%s\n", lvn_last_error()->message);
            lvn_clear_error();
        }
    }
}

static void report(const writer *w, lvni_core_str *out)
{
    const lvni_pose_dlc *p = w->p;
    const int64_t frames = p->sizes.frames;
    int width, height;
    choose_sides(&p->sizes, &width, &height);
    lvni_core_str_message(out,
                          "%s: %lld frame%s of %d recording%s with %d keypoint%s, %d video%s%s\n",
                          w->o->out, (long long)frames, lvni_core_plural(frames, "", "s"),
                          p->recordings.n, lvni_core_plural(p->recordings.n, "", "s"),
                          p->keypoints.n, lvni_core_plural(p->keypoints.n, "", "s"), p->videos.n,
                          lvni_core_plural(p->videos.n, "", "s"), w->o->link ? ", as links" : "");
    report_list(&p->unlabelled, "recording", "without labels left out", out);
    report_list(&p->missing, "video", "of config.yaml not found", out);
    report_list(&p->same_name, "video", "of config.yaml left out, with the name of another", out);
    if (p->named > 0 && p->named < p->keypoints.n) {
        lvni_core_str_message(out,
                              "config.yaml has %d body part%s, labels have more: the first is "
                              "%s\n",
                              p->named, lvni_core_plural(p->named, "", "s"),
                              p->keypoints.text[p->named]);
    }
    if (w->without > 0) {
        lvni_core_str_printf(out, "%lld frame%s without any label\n", (long long)w->without,
                             lvni_core_plural(w->without, "", "s"));
    }
    report_twice(p, out);
    lvni_core_str_printf(out, "frames are resized to %d x %d (width x height)\n", width, height);
    lvni_core_str_append(out, "levin train pose config=");
    lvni_core_str config = {0};
    lvni_core_str_printf(&config, "%s/config.yaml", w->o->out);
    lvni_core_shell_quote(out, lvni_core_str_text(&config));
    lvni_core_str_append(out, " out=RUN\n");
    out->failed = out->failed || config.failed;
    lvni_core_str_free(&config);
}

/* ---- the whole ---- */

/* The name comes last: what fails before it leaves nothing. */
static lvn_status write_all(writer *w, lvni_core_str *out)
{
    LVN_TRY(make_folder(w));
    LVN_TRY(write_labels(w));
    for (int r = 0; r < w->p->recordings.n; r++) {
        LVN_TRY(bring_images(w, r));
    }
    LVN_TRY(bring_videos(w));
    LVN_TRY(write_config(w));
    report(w, out);
    LVN_TRY(lvni_core_str_status(out));
    if (lvni_core_vfs_get()->rename(lvni_core_str_text(&w->folder), w->o->out) != 0) {
        LVN_FAIL(LVN_ERR_IO, "%s: cannot give the new project this name: %s", w->o->out,
                 strerror(errno));
    }
    return LVN_OK;
}

lvn_status lvni_pose_dlc_convert(const lvni_pose_dlc_options *o, lvni_core_str *out)
{
    lvni_pose_dlc project = {0};
    writer w = {.o = o, .p = &project};
    lvn_status s;
    LVNI_TRY_DONE(s, check_out(o->out));
    LVNI_TRY_DONE(s, lvni_pose_dlc_read(o->in, o->videos, &project));
    s = write_all(&w, out);
    if (s != LVN_OK && w.folder.len > 0) {
        const lvn_error error = *lvn_last_error();
        (void)nftw(lvni_core_str_text(&w.folder), remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
        lvn_error_adopt(&error);
    }
    if (s != LVN_OK) {
        lvni_core_str_clear(out);
    }
done:
    lvni_core_str_free(&w.folder);
    lvni_pose_dlc_free(&project);
    return s;
}

/* Looks at a project (pose_check.h): at all of it, past what is wrong. */
#include "recipes/pose/pose_check.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"
#include "data/video.h"
#include "recipes/pose/pose_keys.h"
#include "run/run_dir.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PROBLEMS = 20 };

/* The thread's last error, where what failed is the project's: it is kept, and the rest is looked
 * at. */
static lvn_status keep_problem(lvni_pose_check *c, lvn_status s)
{
    if (s == LVN_OK || s == LVN_ERR_MEMORY) {
        return s;
    }
    const lvn_error error = *lvn_last_error();
    lvn_clear_error();
    if (c->problems.n == PROBLEMS) {
        c->more++;
        return LVN_OK;
    }
    return lvni_pose_list_add(&c->problems, error.message);
}

/* ---- the configuration ---- */

/* Without the rules of a training, which come at the end. */
static lvn_status read_config(int n, const char *const *args, lvni_core_config **out)
{
    lvni_core_config *c;
    LVN_TRY(lvni_core_config_create(lvni_pose_recipe.keys, &c));
    *out = c;
    lvni_core_config_set_help(c, "levin help train.pose");
    lvni_core_config_collect(c);
    LVN_TRY(lvni_core_config_load_job(c, lvni_pose_recipe.defaults.job));
    LVN_TRY(lvni_core_config_load_arguments(c, n, args));
    LVN_TRY(lvni_pose_resolve_paths(c));
    LVN_TRY(lvni_core_config_check(c));
    return lvni_core_config_finish(c);
}

/* ---- labels and frames ---- */

static lvn_status count_labels(lvni_pose_check *c)
{
    const lvni_pose_labels *l = &c->labels;
    c->labelled = lvni_core_calloc(LVNI_TAG_DATA, (size_t)l->k, sizeof *c->labelled);
    if (c->labelled == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < l->n; i++) {
        int missing = 0;
        for (int k = 0; k < l->k; k++) {
            const bool there = !isnan(l->xy[2 * (i * l->k + k)]);
            c->labelled[k] += there;
            missing += !there;
        }
        c->gaps += missing > 0;
    }
    return LVN_OK;
}

static lvn_status divide(lvni_pose_check *c)
{
    const lvni_pose_settings *s = &c->settings;
    const lvni_pose_labels *l = &c->labels;
    int8_t *set = lvni_core_calloc(LVNI_TAG_DATA, (size_t)l->n, sizeof *set);
    if (set == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status status = s->split != NULL ? lvni_pose_split_read(s->split, l, set)
                                         : lvni_pose_split(l->n, s->train_prob, s->val_prob,
                                                           s->train_frames, s->seed_data, set);
    c->divided = status == LVN_OK;
    if (c->divided) {
        lvni_pose_split_count(set, l->n, c->count);
        status = lvni_pose_split_check(l, set);
    }
    lvni_core_free(set);
    return keep_problem(c, status);
}

static void count_rows(lvni_pose_check *c)
{
    const lvni_pose_settings *s = &c->settings;
    const int64_t frames = c->count[LVNI_POSE_TRAIN];
    const int keypoints = s->n_pca_columns > 0 ? (int)s->n_pca_columns : c->labels.k;
    c->singleview = (lvni_pose_check_rows){
        .named = s->n_pca_columns > 0, .rows = frames, .coordinates = 2 * keypoints};
    c->multiview = (lvni_pose_check_rows){
        .named = s->match != NULL, .rows = frames * s->matched, .coordinates = 2 * s->views};
}

static lvn_status look_at_frames(lvni_pose_check *c)
{
    const lvni_pose_labels *l = &c->labels;
    const char *folder = c->settings.data_dir;
    lvni_core_str path = {0};
    lvn_status s;
    LVNI_TRY_DONE(s, keep_problem(c, lvni_pose_labels_check_images(l, folder)));
    for (int64_t i = 0; i < l->n; i++) {
        lvni_pose_frame_head head;
        lvni_pose_labels_image_path(l, folder, i, &path);
        LVNI_TRY_DONE(s, lvni_core_str_status(&path));
        if (!lvni_core_path_exists(lvni_core_str_text(&path))) {
            continue; /* it was counted */
        }
        s = lvni_pose_images_head(l, folder, i, &path, &head);
        if (s == LVN_OK) {
            lvni_pose_sizes_add(&c->sizes, head.width, head.height);
            s = lvni_pose_labels_check_inside(l, i, head.width, head.height);
            LVNI_TRY_DONE(s, keep_problem(c, s));
            s = lvni_pose_images_decode(l, folder, i, &path);
        }
        LVNI_TRY_DONE(s, keep_problem(c, s));
    }
done:
    lvni_core_str_free(&path);
    return s;
}

static lvn_status look_at_labels(lvni_pose_check *c)
{
    lvn_status s = lvni_pose_labels_read(c->settings.csv_file, &c->labels);
    if (s != LVN_OK) {
        lvni_pose_labels_free(&c->labels);
        return keep_problem(c, s);
    }
    LVN_TRY(count_labels(c));
    LVN_TRY(divide(c));
    LVN_TRY(keep_problem(c, lvni_pose_labels_check_once(&c->labels)));
    count_rows(c);
    return look_at_frames(c);
}

/* ---- videos ---- */

/* The first frame, one in the middle and the last: a file may have all frames, and none of them can
 * be decoded. */
static lvn_status decode_some(const lvni_data_video *video, const lvni_data_video_info *info)
{
    lvni_data_video_decoders *decoders = NULL;
    const int64_t frame[] = {0, info->frames / 2, info->frames - 1};
    uint8_t *rgb = lvni_core_calloc(LVNI_TAG_DATA, (size_t)info->height, (size_t)info->width * 3);
    lvn_status s = rgb == NULL ? LVN_ERR_MEMORY : lvni_data_video_decoders_create(1, &decoders);
    for (size_t i = 0; i < sizeof frame / sizeof *frame && s == LVN_OK; i++) {
        s = lvni_data_video_read(decoders, video, frame[i], 1, rgb);
    }
    lvni_data_video_decoders_destroy(decoders);
    lvni_core_free(rgb);
    return s;
}

/* first: of those that are looked at. Without the module it has the reason for all. */
static lvn_status look_at_video(const char *path, bool first, lvni_pose_check_video *out)
{
    lvni_data_video *video;
    *out = (lvni_pose_check_video){0};
    if (!first && lvni_data_video_ready(path) != LVN_OK) {
        lvn_clear_error();
        out->error = lvni_core_strdup(LVNI_TAG_DATA, "not read either");
        return out->error == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    lvn_status s = lvni_data_video_open(path, NULL, &video);
    if (s == LVN_OK) {
        lvni_data_video_info info;
        lvni_data_video_describe(video, &info);
        out->width = info.width;
        out->height = info.height;
        out->frames = info.frames;
        out->rate = info.rate;
        snprintf(out->codec, sizeof out->codec, "%s", info.codec);
        s = lvni_data_video_check(video);
        s = s == LVN_OK && info.frames > 0 ? decode_some(video, &info) : s;
        lvni_data_video_close(video);
    }
    if (s == LVN_OK || s == LVN_ERR_MEMORY) {
        return s;
    }
    const char *message = lvn_last_error()->message;
    const size_t n = strlen(path);
    const bool names_it = strncmp(message, path, n) == 0 && strncmp(message + n, ": ", 2) == 0;
    out->error = lvni_core_strdup(LVNI_TAG_DATA, message + (names_it ? n + 2 : 0));
    lvn_clear_error();
    return out->error == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static lvn_status list_videos(lvni_pose_check *c, const char *folder)
{
    char name[NAME_MAX + 1] = "";
    for (;;) {
        LVN_TRY(lvni_pose_folder_next(folder, lvni_pose_has_video_ending, name));
        if (name[0] == '\0') {
            return LVN_OK;
        }
        char *path = lvni_run_path_join(folder, name);
        const lvn_status s = path == NULL ? LVN_ERR_MEMORY
                             : lvni_pose_list_find(&c->paths, path) >= 0
                                 ? LVN_OK
                                 : lvni_pose_list_add(&c->paths, path);
        lvni_core_free(path);
        LVN_TRY(s);
    }
}

/* Those that a training learns from, then those that it predicts at its end. */
static lvn_status look_at_videos(lvni_pose_check *c)
{
    const char *const folders[] = {c->settings.video_dir, c->settings.test_videos};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        if (folders[i] != NULL) {
            LVN_TRY(keep_problem(c, list_videos(c, folders[i])));
        }
    }
    c->video = lvni_core_calloc(LVNI_TAG_DATA, (size_t)c->paths.n + 1, sizeof *c->video);
    LVN_TRY(c->video == NULL ? LVN_ERR_MEMORY : LVN_OK);
    for (int i = 0; i < c->paths.n; i++) {
        LVN_TRY(look_at_video(c->paths.text[i], i == 0, &c->video[i]));
    }
    return LVN_OK;
}

/* ---- all of it ---- */

lvn_status lvni_pose_check_look(int n, const char *const *args, lvni_pose_check *c)
{
    *c = (lvni_pose_check){0};
    LVN_TRY(read_config(n, args, &c->config));
    LVN_TRY(lvni_pose_settings_read(c->config, &c->settings));
    LVN_TRY(look_at_labels(c));
    LVN_TRY(look_at_videos(c));
    if (lvni_run_estimate(&lvni_pose_recipe, n, args, &c->memory) != LVN_OK) {
        c->refused = lvni_core_strdup(LVNI_TAG_DATA, lvn_last_error()->message);
        return c->refused == NULL ? LVN_ERR_MEMORY : LVN_OK; /* the error stays the thread's */
    }
    return LVN_OK;
}

void lvni_pose_check_free(lvni_pose_check *c)
{
    for (int i = 0; c->video != NULL && i < c->paths.n; i++) {
        lvni_core_free(c->video[i].error);
    }
    lvni_core_free(c->video);
    lvni_core_free(c->labelled);
    lvni_core_free(c->refused);
    lvni_core_str_free(&c->memory.line);
    lvni_core_str_free(&c->memory.scarce);
    lvni_pose_list_free(&c->paths);
    lvni_pose_list_free(&c->problems);
    lvni_pose_labels_free(&c->labels);
    lvni_pose_settings_free(&c->settings);
    lvni_core_config_destroy(c->config);
    *c = (lvni_pose_check){0};
}

static bool is_clean(const lvni_pose_check *c)
{
    bool videos = true;
    for (int i = 0; i < c->paths.n; i++) {
        videos = videos && c->video[i].error == NULL;
    }
    return videos && c->problems.n == 0 && c->memory.scarce.len == 0;
}

lvn_status lvni_pose_data_check(int n, const char *const *args, bool json, bool *clean)
{
    lvni_pose_check c;
    lvni_core_str text = {0};
    lvn_status s = lvni_pose_check_look(n, args, &c);
    if (s == LVN_OK) {
        const lvn_error refusal = *lvn_last_error();
        (json ? lvni_pose_check_json : lvni_pose_check_lines)(&c, &text);
        s = lvni_core_str_status(&text);
        fputs(lvni_core_str_text(&text), stdout);
        fflush(stdout); /* before the error, where both go into one file */
        *clean = is_clean(&c);
        s = s == LVN_OK && c.refused != NULL ? lvn_error_adopt(&refusal) : s;
    }
    lvni_core_str_free(&text);
    lvni_pose_check_free(&c);
    return s;
}

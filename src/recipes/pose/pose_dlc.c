/* What a project of DeepLabCut holds (pose_dlc.h), and `levin data dlc` as a whole. */
#include "recipes/pose/pose_dlc.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/json_read.h"
#include "core/vfs.h"
#include "run/run_dir.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define LABELED "labeled-data"
enum { CONFIG_MAX = 1 << 20 };
static const char table_begin[] = "CollectedData", table_end[] = ".csv";

/* ---- config.yaml ---- */

/* Names of body parts; where there are several animals, a word stands in place of the list. */
static lvn_status take_names(const json_t *names, lvni_pose_dlc *p)
{
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (name != NULL && name[0] != '\0' && lvni_pose_list_find(&p->keypoints, name) < 0) {
            LVN_TRY(lvni_pose_list_add(&p->keypoints, name));
        }
    }
    return LVN_OK;
}

/* A video by the name of its file, from the project's folder or from where config.yaml has it; -1:
 * there is none. */
static int find_video(const lvni_pose_dlc *p, const char *path)
{
    int i = 0;
    while (i < p->videos.n &&
           strcmp(lvni_pose_dlc_name_in(p->videos.text[i]), lvni_pose_dlc_name_in(path)) != 0) {
        i++;
    }
    return i < p->videos.n ? i : -1;
}

/* Both are there. copied: one may be the copy of the other. */
static bool are_different(const char *a, const char *b, bool copied)
{
    struct stat one, two;
    return stat(a, &one) == 0 && stat(b, &two) == 0 &&
           (one.st_ino != two.st_ino || one.st_dev != two.st_dev) &&
           (!copied || one.st_size != two.st_size);
}

static lvn_status take_video_sets(json_t *sets, lvni_pose_dlc *p)
{
    const char *path;
    json_t *value;
    const int listed = p->videos.n; /* those of the project's folder */
    json_object_foreach(sets, path, value)
    {
        const int at = find_video(p, path);
        if (at >= 0 && are_different(p->videos.text[at], path, at < listed)) {
            LVN_TRY(lvni_pose_list_add(&p->same_name, path));
        } else if (at < 0 && lvni_pose_dlc_name_in(path)[0] != '\0') {
            LVN_TRY(
                lvni_pose_list_add(lvni_core_path_exists(path) ? &p->videos : &p->missing, path));
        }
    }
    return LVN_OK;
}

static lvn_status take_config(const json_t *config, bool videos, lvni_pose_dlc *p)
{
    static const char *const names[] = {"bodyparts", "multianimalbodyparts", "uniquebodyparts"};
    const char *scorer = json_string_value(json_object_get(config, "scorer"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        LVN_TRY(take_names(json_object_get(config, names[i]), p));
    }
    p->named = p->keypoints.n;
    if (scorer != NULL && scorer[0] != '\0') {
        p->scorer = lvni_core_strdup(LVNI_TAG_DATA, scorer);
        LVN_TRY(p->scorer == NULL ? LVN_ERR_MEMORY : LVN_OK);
    }
    return videos ? take_video_sets(json_object_get(config, "video_sets"), p) : LVN_OK;
}

/* Without such a file the order is that of the recordings. */
static lvn_status read_config(const char *in, bool videos, lvni_pose_dlc *p)
{
    char *path = lvni_run_path_join(in, "config.yaml"), *text = NULL;
    json_t *config = NULL;
    size_t bytes;
    lvn_status s = path == NULL ? LVN_ERR_MEMORY : LVN_OK;
    if (s == LVN_OK && lvni_core_path_exists(path)) {
        LVNI_TRY_DONE(s, lvni_core_regular_read(path, CONFIG_MAX, &text, &bytes));
        LVNI_TRY_DONE(s, lvni_core_json_of_yaml(path, text, bytes, &config));
        s = take_config(config, videos, p);
    }
done:
    json_decref(config);
    lvni_core_free(text);
    lvni_core_free(path);
    return s;
}

static lvn_status list_videos(const char *in, lvni_pose_dlc *p)
{
    lvni_core_str folder = {0};
    char name[NAME_MAX + 1] = "";
    lvn_status s = LVN_OK;
    lvni_core_str_printf(&folder, "%s/videos", in);
    LVNI_TRY_DONE(s, lvni_core_str_status(&folder));
    for (;;) {
        LVNI_TRY_DONE(s, lvni_pose_folder_next(lvni_core_str_text(&folder),
                                               lvni_pose_has_video_ending, name));
        if (name[0] == '\0') {
            break;
        }
        char *path = lvni_run_path_join(lvni_core_str_text(&folder), name);
        s = path == NULL ? LVN_ERR_MEMORY : lvni_pose_list_add(&p->videos, path);
        lvni_core_free(path);
        LVNI_TRY_DONE(s, s);
    }
done:
    lvni_core_str_free(&folder);
    return s;
}

/* ---- recordings ---- */

static bool is_table(const char *name)
{
    const size_t n = strlen(name), end = sizeof table_end - 1;
    return strncmp(name, table_begin, sizeof table_begin - 1) == 0 && n > end &&
           strcmp(name + n - end, table_end) == 0;
}

static bool is_hdf(const char *name)
{
    const size_t n = strlen(name);
    return strncmp(name, table_begin, sizeof table_begin - 1) == 0 && n > 3 &&
           strcmp(name + n - 3, ".h5") == 0;
}

/* The table of the recording in `folder`; "": it has none. Of several that of the project's scorer
 * counts. */
static lvn_status choose_table(const lvni_pose_dlc *p, const char *folder, char name[NAME_MAX + 1])
{
    char next[NAME_MAX + 1] = "", own[NAME_MAX + 1] = "", first[NAME_MAX + 1] = "";
    int n = 0;
    if (p->scorer != NULL) {
        snprintf(own, sizeof own, "%s_%.200s%s", table_begin, p->scorer, table_end);
    }
    for (;; n++) {
        LVN_TRY(lvni_pose_folder_next(folder, is_table, next));
        if (next[0] == '\0' || strcmp(next, own) == 0) {
            break;
        }
        memcpy(n == 0 ? first : name, next, sizeof next);
    }
    if (next[0] == '\0' && n > 1) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s has labels of several scorers (%s, %s), and config.yaml names none of them as "
                 "`scorer`: leave one of these files there",
                 folder, first, name);
    }
    memcpy(name, next[0] == '\0' ? first : next, sizeof next);
    return LVN_OK;
}

/* Labels that are in the binary file alone must not be lost without a word. */
static lvn_status refuse_hdf(const char *folder)
{
    char name[NAME_MAX + 1] = "";
    LVN_TRY(lvni_pose_folder_next(folder, is_hdf, name));
    if (name[0] == '\0') {
        return LVN_OK;
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "%s/%s: the labels of this recording are in an HDF5 file alone, which levin does not "
             "read; write them as CSV, in Python: pandas.read_hdf(\"%s\").to_csv(\"%.*s.csv\")",
             folder, name, name, (int)(strlen(name) - 3), name);
}

/* Behind those of the recordings before. */
static lvn_status add_labels(lvni_pose_dlc *p, const char *table_path, const char *name)
{
    const size_t n = (size_t)p->recordings.n;
    lvni_pose_labels *more =
        lvni_core_realloc(LVNI_TAG_DATA, p->labels, (n + 1) * sizeof *p->labels);
    if (more == NULL) {
        return LVN_ERR_MEMORY;
    }
    p->labels = more;
    lvni_pose_labels *l = &p->labels[n];
    lvn_status s = lvni_pose_dlc_labels_read(table_path, l);
    if (s == LVN_OK) {
        s = lvni_pose_list_add(&p->recordings, name);
    }
    if (s != LVN_OK) {
        lvni_pose_labels_free(l);
        return s;
    }
    for (int k = 0; k < l->k; k++) {
        if (lvni_pose_list_find(&p->keypoints, l->keypoint[k]) < 0) {
            LVN_TRY(lvni_pose_list_add(&p->keypoints, l->keypoint[k]));
        }
    }
    return LVN_OK;
}

/* Whether the images are there and have the labels in them. */
static lvn_status look_at_images(lvni_pose_dlc *p, const lvni_pose_labels *l, const char *folder)
{
    lvni_core_str path = {0};
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_pose_labels_check_images(l, folder));
    for (int64_t i = 0; i < l->n; i++) {
        lvni_pose_frame_head head;
        LVNI_TRY_DONE(s, lvni_pose_images_head(l, folder, i, &path, &head));
        LVNI_TRY_DONE(s, lvni_pose_labels_check_inside(l, i, head.width, head.height));
        lvni_pose_sizes_add(&p->sizes, head.width, head.height);
    }
done:
    lvni_core_str_free(&path);
    return s;
}

static lvn_status read_recording(const char *folder, const char *name, lvni_pose_dlc *p)
{
    char file[NAME_MAX + 1] = "";
    LVN_TRY(choose_table(p, folder, file));
    if (file[0] == '\0') {
        LVN_TRY(refuse_hdf(folder));
        return lvni_pose_list_add(&p->unlabelled, name);
    }
    char *path = lvni_run_path_join(folder, file);
    const lvn_status s = path == NULL ? LVN_ERR_MEMORY : add_labels(p, path, name);
    lvni_core_free(path);
    return s == LVN_OK ? look_at_images(p, &p->labels[p->recordings.n - 1], folder) : s;
}

static lvn_status read_recordings(const char *in, lvni_pose_dlc *p)
{
    char name[NAME_MAX + 1] = "";
    char *all = lvni_run_path_join(in, LABELED);
    lvn_status s = all == NULL ? LVN_ERR_MEMORY : LVN_OK;
    if (s == LVN_OK && !lvni_core_path_is_folder(all)) {
        s = lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
                          "%s has no folder " LABELED
                          ", so it is not a project of DeepLabCut; give the folder that its "
                          "config.yaml is in",
                          in);
    }
    while (s == LVN_OK) {
        LVNI_TRY_DONE(s, lvni_pose_folder_next(all, NULL, name));
        if (name[0] == '\0') {
            break;
        }
        char *folder = lvni_run_path_join(all, name);
        s = folder == NULL                     ? LVN_ERR_MEMORY
            : lvni_core_path_is_folder(folder) ? read_recording(folder, name, p)
                                               : LVN_OK;
        lvni_core_free(folder);
    }
    if (s == LVN_OK && p->recordings.n == 0) {
        const int n = p->unlabelled.n;
        s = n == 0 ? lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
                                   "%s has no folder, and each recording has one with its images "
                                   "and %s_SCORER%s",
                                   all, table_begin, table_end)
                   : lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
                                   "%s: none of its %d folder%s has labels (%s_SCORER%s)", all, n,
                                   lvni_core_plural(n, "", "s"), table_begin, table_end);
    }
done:
    lvni_core_free(all);
    return s;
}

/* ---- the project ---- */

lvn_status lvni_pose_dlc_read(const char *in, bool videos, lvni_pose_dlc *out)
{
    *out = (lvni_pose_dlc){0};
    if (!lvni_core_path_is_folder(in)) {
        LVN_FAIL(LVN_ERR_NOT_FOUND,
                 "%s: %s; give the folder of a project of DeepLabCut, in which config.yaml "
                 "and " LABELED " are",
                 in, lvni_core_path_exists(in) ? "it is a file" : "there is no such folder");
    }
    LVN_TRY(videos ? list_videos(in, out) : LVN_OK);
    LVN_TRY(read_config(in, videos, out));
    return read_recordings(in, out);
}

void lvni_pose_dlc_free(lvni_pose_dlc *p)
{
    for (int i = 0; p->labels != NULL && i < p->recordings.n; i++) {
        lvni_pose_labels_free(&p->labels[i]);
    }
    lvni_core_free(p->labels);
    lvni_core_free(p->scorer);
    lvni_pose_list_free(&p->keypoints);
    lvni_pose_list_free(&p->recordings);
    lvni_pose_list_free(&p->unlabelled);
    lvni_pose_list_free(&p->videos);
    lvni_pose_list_free(&p->missing);
    lvni_pose_list_free(&p->same_name);
    *p = (lvni_pose_dlc){0};
}

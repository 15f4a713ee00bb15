/* Names in folders, and lists of names (pose_folder.h). */
#include "recipes/pose/pose_folder.h"

#include "core/alloc.h"
#include "core/vfs.h"
#include "run/output_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool ends_in(const char *name, const char *const *endings, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (lvni_run_output_ends_in(name, endings[i], strlen(endings[i]))) {
            return true;
        }
    }
    return false;
}

bool lvni_pose_has_video_ending(const char *name)
{
    static const char *const endings[] = {".mp4", ".avi", ".mov", ".mkv", ".webm"};
    return ends_in(name, endings, sizeof endings / sizeof *endings);
}

bool lvni_pose_has_other_ending(const char *name)
{
    static const char *const endings[] = {".m4v", ".mpg",   ".mpeg", ".wmv", ".ts",
                                          ".mts", ".m2ts",  ".flv",  ".3gp", ".ogv",
                                          ".vob", ".mjpeg", ".h264"};
    return ends_in(name, endings, sizeof endings / sizeof *endings);
}

/* *out: NULL where there is no such folder. */
static lvn_status open_folder(const char *folder, DIR **out)
{
    *out = lvni_core_path_is_folder(folder) ? opendir(folder) : NULL;
    if (*out == NULL && lvni_core_path_is_folder(folder)) {
        LVN_FAIL(LVN_ERR_IO, "%s: cannot list the folder: %s", folder, strerror(errno));
    }
    return LVN_OK;
}

lvn_status lvni_pose_folder_next(const char *folder, bool (*wanted)(const char *name),
                                 char name[NAME_MAX + 1])
{
    char least[NAME_MAX + 1] = "";
    DIR *dir;
    LVN_TRY(open_folder(folder, &dir));
    for (struct dirent *e = dir == NULL ? NULL : readdir(dir); e != NULL; e = readdir(dir)) {
        if (e->d_name[0] != '.' && (wanted == NULL || wanted(e->d_name)) &&
            strcmp(e->d_name, name) > 0 && (least[0] == '\0' || strcmp(e->d_name, least) < 0)) {
            snprintf(least, sizeof least, "%s", e->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    memcpy(name, least, sizeof least);
    return LVN_OK;
}

lvn_status lvni_pose_folder_twin(const char *folder, const char *name, char twin[NAME_MAX + 1])
{
    const char *dot = strrchr(name, '.');
    const size_t stem = dot == NULL ? strlen(name) : (size_t)(dot - name);
    DIR *dir;
    twin[0] = '\0';
    LVN_TRY(open_folder(folder, &dir));
    for (struct dirent *e = dir == NULL ? NULL : readdir(dir); e != NULL; e = readdir(dir)) {
        const char *d = strrchr(e->d_name, '.');
        if (d != NULL && (size_t)(d - e->d_name) == stem && strncmp(e->d_name, name, stem) == 0 &&
            lvni_pose_has_video_ending(e->d_name) && strcmp(e->d_name, name) < 0 &&
            (twin[0] == '\0' || strcmp(e->d_name, twin) < 0)) {
            snprintf(twin, NAME_MAX + 1, "%s", e->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return LVN_OK;
}

lvn_status lvni_pose_folder_remove(const char *folder, bool (*wanted)(const char *name))
{
    DIR *dir;
    LVN_TRY(open_folder(folder, &dir));
    lvn_status s = LVN_OK;
    for (struct dirent *e = dir == NULL ? NULL : readdir(dir); e != NULL && s == LVN_OK;
         e = readdir(dir)) {
        if (wanted(e->d_name) && unlinkat(dirfd(dir), e->d_name, 0) != 0 && errno != ENOENT) {
            s = lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__, "%s/%s: cannot remove: %s", folder,
                              e->d_name, strerror(errno));
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return s;
}

/* ---- lists ---- */

lvn_status lvni_pose_list_add(lvni_pose_list *list, const char *text)
{
    if (list->n == list->room) {
        const int room = list->room > 0 ? 2 * list->room : 16;
        char **more =
            lvni_core_realloc(LVNI_TAG_DATA, list->text, (size_t)room * sizeof *list->text);
        if (more == NULL) {
            return LVN_ERR_MEMORY;
        }
        list->text = more;
        list->room = room;
    }
    char *copy = lvni_core_strdup(LVNI_TAG_DATA, text);
    if (copy == NULL) {
        return LVN_ERR_MEMORY;
    }
    list->text[list->n++] = copy;
    return LVN_OK;
}

int lvni_pose_list_find(const lvni_pose_list *list, const char *text)
{
    int i = 0;
    while (i < list->n && strcmp(list->text[i], text) != 0) {
        i++;
    }
    return i < list->n ? i : -1;
}

void lvni_pose_list_free(lvni_pose_list *list)
{
    for (int i = 0; i < list->n; i++) {
        lvni_core_free(list->text[i]);
    }
    lvni_core_free(list->text);
    *list = (lvni_pose_list){0};
}

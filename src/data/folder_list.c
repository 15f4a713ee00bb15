/* Several folders and image files as one flat list (folder_impl.h): where they lie together, what
 * is wrong with them, and the walk over all of them. Called by image_folder.c and the recipes. */
#include "data/folder_impl.h"

#include "core/alloc.h"
#include "core/error.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- mistakes ---- */

static void add_mistake(lvni_core_str *out, const char *entry, const char *what)
{
    lvni_core_str_printf(out, "%s%s: %s", out->len > 0 ? "; " : "", entry, what);
}

static lvn_status check_folder(const char *entry, lvni_core_str *mistakes)
{
    bool any;
    const lvn_status s = lvni_data_walk_any(entry, &any);
    if (s == LVN_ERR_MEMORY) {
        return s;
    }
    if (s != LVN_OK) { /* the message begins with the path */
        lvni_core_str_printf(mistakes, "%s%s", mistakes->len > 0 ? "; " : "",
                             lvn_last_error()->message);
        lvn_clear_error();
    } else if (!any) {
        add_mistake(mistakes, entry, "no images (JPEG or PNG) in this folder or below");
    }
    return LVN_OK;
}

lvn_status lvni_data_list_check(const char *const *entries, size_t n, lvni_core_str *mistakes)
{
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        if (stat(entries[i], &st) != 0) {
            add_mistake(mistakes, entries[i], strerror(errno));
        } else if (S_ISDIR(st.st_mode)) {
            LVN_TRY(check_folder(entries[i], mistakes));
        } else if (!S_ISREG(st.st_mode) || !lvni_data_file_is_image(entries[i])) {
            add_mistake(mistakes, entries[i],
                        "neither a folder nor an image (JPEG or PNG: .jpg, .jpeg, .png)");
        }
    }
    return lvni_core_str_status(mistakes);
}

/* ---- where they lie ---- */

/* The folder that it lies in without links and dots, and its own name, by which a link is known. */
static lvn_status locate(const char *entry, lvni_core_str *out)
{
    char path[PATH_MAX], real[PATH_MAX];
    size_t n = strlen(entry);
    while (n > 1 && entry[n - 1] == '/') {
        n--;
    }
    if (n >= sizeof path) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: the path is longer than %d bytes", entry, PATH_MAX);
    }
    snprintf(path, sizeof path, "%.*s", (int)n, entry);
    char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    const bool whole = name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
    char own[PATH_MAX];
    snprintf(own, sizeof own, "%s", whole ? "" : name);
    if (!whole && slash != NULL) {
        slash[slash == path] = '\0';
    }
    if (realpath(!whole && slash == NULL ? "." : path, real) == NULL) {
        LVN_FAIL(errno == ENOENT ? LVN_ERR_NOT_FOUND : LVN_ERR_IO, "%s: %s", entry,
                 strerror(errno));
    }
    lvni_core_str_printf(out, "%s%s%s", strcmp(real, "/") == 0 ? "" : real, whole ? "" : "/", own);
    return lvni_core_str_status(out);
}

/* Bytes up to the last slash that both have in common; without that slash. */
static size_t common_folder(const char *a, size_t n, const char *b)
{
    size_t same = 0, slash = 0;
    while (same < n && a[same] == b[same]) {
        same++;
        slash = a[same] == '/' && b[same] == '/' ? same : slash;
    }
    return same == n && b[same] == '/' ? n : slash;
}

void lvni_data_list_free(lvni_data_list *list)
{
    for (size_t i = 0; list->entry != NULL && i < list->n; i++) {
        lvni_core_free(list->entry[i]);
    }
    lvni_core_free(list->entry);
    lvni_core_free(list->root);
    *list = (lvni_data_list){0};
}

/* The folder that all of them lie in: of each its parent, as names are never empty. */
static lvn_status find_root(lvni_data_list *list)
{
    const char *first = list->entry[0];
    size_t length = strlen(first);
    for (size_t i = 0; i < list->n; i++) {
        const char *slash = strrchr(list->entry[i], '/');
        const size_t parent = slash == NULL ? 0 : (size_t)(slash - list->entry[i]);
        const size_t same = common_folder(first, length, list->entry[i]);
        length = same < parent ? same : parent;
    }
    list->root = lvni_core_calloc(LVNI_TAG_DATA, length + 1, 1);
    if (list->root == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(list->root, first, length); /* "" is the folder / */
    return LVN_OK;
}

static lvn_status find_places(const char *const *entries, size_t n, lvni_data_list *list)
{
    lvni_core_str path = {0};
    lvn_status s = LVN_OK;
    for (size_t i = 0; i < n; i++) {
        lvni_core_str_clear(&path);
        LVNI_TRY_DONE(s, locate(entries[i], &path));
        list->entry[i] = lvni_core_strdup(LVNI_TAG_DATA, lvni_core_str_text(&path));
        LVNI_TRY_DONE(s, list->entry[i] == NULL ? LVN_ERR_MEMORY : LVN_OK);
    }
    s = find_root(list);
done:
    lvni_core_str_free(&path);
    return s;
}

lvn_status lvni_data_list_find(const char *const *entries, size_t n, lvni_data_list *list)
{
    *list = (lvni_data_list){.n = n};
    list->entry = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *list->entry);
    const lvn_status s = list->entry == NULL ? LVN_ERR_MEMORY : find_places(entries, n, list);
    if (s != LVN_OK) {
        lvni_data_list_free(list);
    }
    return s;
}

/* ---- the walk ---- */

lvn_status lvni_data_list_walk(const lvni_data_list *list, lvni_data_walk *walk)
{
    for (size_t i = 0; i < list->n; i++) {
        struct stat st;
        const char *below = list->entry[i] + strlen(list->root);
        below += *below == '/';
        if (stat(list->entry[i], &st) == 0 && S_ISREG(st.st_mode)) {
            LVN_TRY(lvni_data_walk_add_name(walk, below));
        } else {
            LVN_TRY(lvni_data_walk_add(walk, list->root, below));
        }
    }
    lvni_data_walk_sort(walk, 0);
    return LVN_OK;
}
